/* Reads the blobs of all threads as one stream, merged by (time, thread, sequence), and insists on
 * what a whole log must be: each blob's thread is the one it was filed under, its sequence is the
 * next one, and time never goes back within a thread. Memory: one decoded block a thread. */
#include "harness/measure/eventlog.h"

#include <stdbool.h>
#include <stdlib.h>

struct lane {
    struct event_block block;
    uint32_t i;        /* next event of the block */
    uint64_t sequence; /* of the next block */
    int64_t last_ns;
};

struct eventlog_reader {
    struct eventlog_source src;
    struct lane *lane;
    uint32_t *heap; /* lanes that have an event, smallest (time, thread) first */
    uint32_t heap_n;
};

static int64_t lane_time(const struct lane *l) {
    return l->block.time_ns[l->i];
}

/* Loads the lane's next block; *end when there is none. */
static int lane_load(struct eventlog_reader *r, uint32_t thread, bool *end, struct err *e) {
    struct lane *l = &r->lane[thread];
    const uint8_t *p = NULL;
    size_t n = 0;
    *end = false;
    int rc = r->src.next(r->src.ctx, thread, &p, &n, e);
    if (rc)
        return rc;
    if (n == 0) {
        *end = true;
        return 0;
    }
    rc = eventlog_decode(p, n, &l->block, e);
    if (rc)
        return err_wrap(e, "thread %u, block %llu", thread, (unsigned long long)l->sequence);
    if (l->block.thread != thread)
        return err_set(e, ASSAY_EINPUT,
                       "event log of thread %u: block %llu belongs to thread %u", thread,
                       (unsigned long long)l->sequence, l->block.thread);
    if (l->block.sequence != l->sequence)
        return err_set(e, ASSAY_EINPUT,
                       "event log of thread %u: expected block %llu, found block %llu", thread,
                       (unsigned long long)l->sequence, (unsigned long long)l->block.sequence);
    if (l->sequence && l->block.time_ns[0] < l->last_ns)
        return err_set(e, ASSAY_EINPUT,
                       "event log of thread %u: time goes back at the start of block %llu", thread,
                       (unsigned long long)l->sequence);
    l->sequence++;
    l->last_ns = l->block.time_ns[l->block.n - 1];
    l->i = 0;
    return 0;
}

static bool lane_before(const struct eventlog_reader *r, uint32_t x, uint32_t y) {
    int64_t tx = lane_time(&r->lane[x]), ty = lane_time(&r->lane[y]);
    return tx < ty || (tx == ty && x < y);
}

static void heap_down(struct eventlog_reader *r, uint32_t i) {
    for (;;) {
        uint32_t least = i;
        for (uint32_t c = 2 * i + 1; c <= 2 * i + 2 && c < r->heap_n; c++)
            if (lane_before(r, r->heap[c], r->heap[least]))
                least = c;
        if (least == i)
            return;
        uint32_t x = r->heap[i];
        r->heap[i] = r->heap[least];
        r->heap[least] = x;
        i = least;
    }
}

int eventlog_open(const struct eventlog_source *src, struct eventlog_reader **out, struct err *e) {
    int rc = 0;
    struct eventlog_reader *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    r->src = *src;
    if (src->threads == 0 || src->threads > EVENTLOG_THREADS_MAX) {
        rc = err_set(e, ASSAY_EINPUT, "event log: expected 1 to %d threads, found %u",
                     EVENTLOG_THREADS_MAX, src->threads);
        goto out;
    }
    r->lane = calloc(src->threads, sizeof *r->lane);
    r->heap = calloc(src->threads, sizeof *r->heap);
    if (!r->lane || !r->heap) {
        rc = err_set(e, ASSAY_ENOMEM, "out of memory for %u threads of an event log", src->threads);
        goto out;
    }
    for (uint32_t t = 0; t < src->threads; t++) {
        bool end;
        rc = lane_load(r, t, &end, e);
        if (rc)
            goto out;
        if (!end)
            r->heap[r->heap_n++] = t;
    }
    for (uint32_t i = r->heap_n / 2; i-- > 0;)
        heap_down(r, i);
    *out = r;
    r = NULL;
out:
    eventlog_close(r);
    return rc;
}

/* How many events of the first lane come before any other lane's next one. */
static uint32_t run_length(const struct eventlog_reader *r) {
    const struct lane *l = &r->lane[r->heap[0]];
    uint32_t n = l->block.n;
    if (r->heap_n == 1)
        return n - l->i;
    uint32_t rival = r->heap[1];
    if (r->heap_n > 2 && lane_before(r, r->heap[2], rival))
        rival = r->heap[2];
    int64_t bound = lane_time(&r->lane[rival]);
    bool tie_wins = r->heap[0] < rival;
    uint32_t i = l->i + 1;
    while (i < n && (l->block.time_ns[i] < bound || (tie_wins && l->block.time_ns[i] == bound)))
        i++;
    return i - l->i;
}

int eventlog_next(struct eventlog_reader *r, struct eventlog_view *v, struct err *e) {
    v->n = 0;
    if (r->heap_n == 0)
        return 0;
    struct lane *l = &r->lane[r->heap[0]];
    if (l->i == l->block.n) {
        bool end;
        int rc = lane_load(r, r->heap[0], &end, e);
        if (rc)
            return rc;
        if (end)
            r->heap[0] = r->heap[--r->heap_n];
        if (r->heap_n == 0)
            return 0;
    }
    heap_down(r, 0); /* the lane that the last call advanced may no longer be the first */
    l = &r->lane[r->heap[0]];
    uint32_t i = l->i, n = run_length(r);
    *v = (struct eventlog_view){
        .n = n,
        .thread = l->block.thread,
        .time_ns = l->block.time_ns + i,
        .request = l->block.request + i,
        .a = l->block.a + i,
        .b = l->block.b + i,
        .kind = l->block.kind + i,
    };
    l->i += n; /* the lane stays in front until the next call: eventlog_read may step back */
    return 0;
}

int eventlog_read(struct eventlog_reader *r, struct event *ev, int max, int *n, struct err *e) {
    *n = 0;
    while (*n < max) {
        struct eventlog_view v;
        int rc = eventlog_next(r, &v, e);
        if (rc)
            return rc;
        if (v.n == 0)
            break;
        uint32_t take = v.n;
        if (take > (uint32_t)(max - *n)) {
            take = (uint32_t)(max - *n);
            r->lane[v.thread].i -= v.n - take;
        }
        for (uint32_t i = 0; i < take; i++)
            ev[(*n)++] = (struct event){.time_ns = v.time_ns[i],
                                        .request = v.request[i],
                                        .a = v.a[i],
                                        .b = v.b[i],
                                        .thread = v.thread,
                                        .kind = v.kind[i]};
    }
    return 0;
}

void eventlog_close(struct eventlog_reader *r) {
    if (!r)
        return;
    free(r->lane);
    free(r->heap);
    free(r);
}
