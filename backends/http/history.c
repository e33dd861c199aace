/* The table of histories by (session, branch), and their messages' ends. */
#include "backends/http/history.h"

#include "backends/http/body.h"
#include "harness/core/rng.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

static size_t home(const struct histories *h, uint64_t session, uint32_t branch) {
    uint64_t s = session ^ (uint64_t)branch << 40;
    return (size_t)splitmix64(&s) & (h->cap - 1);
}

static size_t place(const struct histories *h, uint64_t session, uint32_t branch) {
    size_t i = home(h, session, branch);
    while (h->at[i].session != HISTORY_NONE &&
           (h->at[i].session != session || h->at[i].branch != branch))
        i = (i + 1) & (h->cap - 1);
    return i;
}

static int grow(struct histories *h, struct err *e) {
    struct histories old = *h;
    h->cap = old.cap ? 2 * old.cap : 64;
    h->at = calloc(h->cap, sizeof *h->at);
    if (!h->at) {
        *h = old;
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < h->cap; i++)
        h->at[i].session = HISTORY_NONE;
    for (size_t i = 0; i < old.cap; i++)
        if (old.at[i].session != HISTORY_NONE)
            h->at[place(h, old.at[i].session, old.at[i].branch)] = old.at[i];
    free(old.at);
    return 0;
}

static void release(struct history *x) {
    buf_release(&x->text);
    free(x->mark);
}

void histories_release(struct histories *h) {
    for (size_t i = 0; i < h->cap; i++)
        if (h->at[i].session != HISTORY_NONE)
            release(&h->at[i]);
    free(h->at);
    *h = (struct histories){0};
}

struct history *history_find(const struct histories *h, uint64_t session, uint32_t branch) {
    struct history *x = h->n ? &h->at[place(h, session, branch)] : NULL;
    return x && x->session != HISTORY_NONE ? x : NULL;
}

int history_add(struct histories *h, uint64_t session, uint32_t branch, struct history **out,
                struct err *e) {
    int rc = 2 * (h->n + 1) > h->cap ? grow(h, e) : 0;
    if (rc)
        return rc;
    struct history *x = &h->at[place(h, session, branch)];
    assert(x->session == HISTORY_NONE);
    *x = (struct history){.session = session, .branch = branch};
    buf_init(&x->text, BODY_MAX_BYTES);
    h->n++;
    *out = x;
    return 0;
}

/* What follows the hole moves back where it may: no tombstones. */
void history_drop(struct histories *h, uint64_t session, uint32_t branch) {
    if (!h->n)
        return;
    size_t mask = h->cap - 1, hole = place(h, session, branch);
    if (h->at[hole].session == HISTORY_NONE)
        return;
    h->bytes -= (int64_t)h->at[hole].counted;
    release(&h->at[hole]);
    h->n--;
    for (size_t i = (hole + 1) & mask; h->at[i].session != HISTORY_NONE; i = (i + 1) & mask) {
        size_t from = home(h, h->at[i].session, h->at[i].branch);
        if (((i - from) & mask) >= ((i - hole) & mask)) {
            h->at[hole] = h->at[i];
            hole = i;
        }
    }
    h->at[hole].session = HISTORY_NONE;
}

/* ---- messages ---- */

static void count(struct histories *h, struct history *x) {
    h->bytes += (int64_t)x->text.n - (int64_t)x->counted;
    x->counted = x->text.n;
}

static int put_mark(struct history *x, struct history_mark m, struct err *e) {
    if (x->marks == x->marks_cap) {
        size_t cap = x->marks_cap ? 2 * x->marks_cap : 8;
        struct history_mark *p = realloc(x->mark, cap * sizeof *p);
        if (!p)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        x->mark = p;
        x->marks_cap = cap;
    }
    x->mark[x->marks++] = m;
    return 0;
}

uint32_t history_tokens(const struct history *x) {
    return x->marks ? x->mark[x->marks - 1].tokens : 0;
}

int history_end_message(struct histories *h, struct history *x, uint32_t tokens, struct err *e) {
    int rc = buf_check(&x->text, "a conversation", e);
    if (!rc)
        rc = put_mark(x, (struct history_mark){tokens, x->text.n}, e);
    count(h, x);
    return rc;
}

void history_cut(struct histories *h, struct history *x, uint32_t tokens) {
    while (x->marks && x->mark[x->marks - 1].tokens > tokens)
        x->marks--;
    x->text.n = x->marks ? x->mark[x->marks - 1].bytes : 0;
    count(h, x);
}

int history_copy(struct histories *h, struct history *to, const struct history *from,
                 uint32_t tokens, struct err *e) {
    for (size_t i = 0; i < from->marks && from->mark[i].tokens <= tokens; i++) {
        int rc = put_mark(to, from->mark[i], e);
        if (rc)
            return rc;
    }
    if (to->marks)
        buf_put(&to->text, from->text.p, to->mark[to->marks - 1].bytes);
    count(h, to);
    return buf_check(&to->text, "a conversation", e);
}
