/* Hash table and heap. An entry is free when its request id is INFLIGHT_FREE. */
#include "harness/run/inflight.h"

#include <assert.h>
#include <stdlib.h>

#define INFLIGHT_FREE UINT64_MAX

static size_t home(const struct inflight *f, uint64_t id) {
    return (size_t)((id * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (f->cap - 1);
}

static int allocate(struct inflight *f, size_t cap) {
    f->e = malloc(cap * sizeof *f->e);
    if (!f->e)
        return -1;
    for (size_t i = 0; i < cap; i++)
        f->e[i].request.id = INFLIGHT_FREE;
    f->cap = cap;
    f->n = 0;
    return 0;
}

int inflight_init(struct inflight *f, size_t expected) {
    size_t cap = 16;
    while (cap < 2 * expected && cap < (size_t)1 << 40)
        cap *= 2;
    return allocate(f, cap);
}

static void place(struct inflight *f, const struct inflight_entry *x) {
    size_t i = home(f, x->request.id);
    while (f->e[i].request.id != INFLIGHT_FREE)
        i = (i + 1) & (f->cap - 1);
    f->e[i] = *x;
    f->n++;
}

int inflight_put(struct inflight *f, const struct request *r, int64_t intended_ns) {
    if (2 * f->n >= f->cap) {
        struct inflight old = *f;
        if (allocate(f, 2 * old.cap)) {
            *f = old;
            return -1;
        }
        for (size_t i = 0; i < old.cap; i++)
            if (old.e[i].request.id != INFLIGHT_FREE)
                place(f, &old.e[i]);
        free(old.e);
    }
    struct inflight_entry x = {*r, intended_ns};
    place(f, &x);
    return 0;
}

int inflight_take(struct inflight *f, uint64_t id, struct request *r, int64_t *intended_ns) {
    size_t mask = f->cap - 1, i = home(f, id);
    while (f->e[i].request.id != id) {
        if (f->e[i].request.id == INFLIGHT_FREE)
            return -1;
        i = (i + 1) & mask;
    }
    *r = f->e[i].request;
    *intended_ns = f->e[i].intended_ns;
    f->n--;
    /* close the gap: move back whatever probed past it */
    for (size_t j = i;;) {
        j = (j + 1) & mask;
        if (f->e[j].request.id == INFLIGHT_FREE)
            break;
        size_t h = home(f, f->e[j].request.id);
        if (((j - h) & mask) >= ((j - i) & mask)) {
            f->e[i] = f->e[j];
            i = j;
        }
    }
    f->e[i].request.id = INFLIGHT_FREE;
    return 0;
}

void inflight_release(struct inflight *f) {
    free(f->e);
    *f = (struct inflight){0};
}

static int earlier(const struct turn *a, const struct turn *b) {
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->request.id < b->request.id;
}

/* Puts x into the free place i or above it. */
static void rise(struct turn_heap *h, size_t i, const struct turn *x) {
    struct turn t = *x;
    while (i && earlier(&t, &h->t[(i - 1) / 2])) {
        h->t[i] = h->t[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    h->t[i] = t;
}

/* Puts x into the free place i or below it. */
static void sink(struct turn_heap *h, size_t i, const struct turn *x) {
    struct turn t = *x;
    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= h->n)
            break;
        if (c + 1 < h->n && earlier(&h->t[c + 1], &h->t[c]))
            c++;
        if (!earlier(&h->t[c], &t))
            break;
        h->t[i] = h->t[c];
        i = c;
    }
    h->t[i] = t;
}

int turn_heap_push(struct turn_heap *h, const struct turn *t) {
    if (h->n == h->cap) {
        size_t cap = h->cap ? 2 * h->cap : 64;
        struct turn *p = realloc(h->t, cap * sizeof *p);
        if (!p)
            return -1;
        h->t = p;
        h->cap = cap;
    }
    rise(h, h->n++, t);
    return 0;
}

int64_t turn_heap_top(const struct turn_heap *h) {
    return h->n ? h->t[0].at_ns : INT64_MAX;
}

struct turn turn_heap_pop(struct turn_heap *h) {
    assert(h->n);
    struct turn top = h->t[0];
    if (--h->n)
        sink(h, 0, &h->t[h->n]);
    return top;
}

bool turn_heap_take_session(struct turn_heap *h, uint64_t session, struct turn *out) {
    size_t i = 0;
    while (i < h->n && h->t[i].request.session != session)
        i++;
    if (i == h->n)
        return false;
    *out = h->t[i];
    if (i == --h->n)
        return true;
    struct turn last = h->t[h->n];
    if (earlier(&last, out))
        rise(h, i, &last);
    else
        sink(h, i, &last);
    return true;
}

void turn_heap_release(struct turn_heap *h) {
    free(h->t);
    *h = (struct turn_heap){0};
}
