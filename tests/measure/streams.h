/* Event streams that look like the real ones, for the codec's and the metrics' tests and benchmarks.
 * http: `width` concurrent streams, a token every 20 ms each plus lognormal jitter (median 30 us,
 * sigma 0.8) of the network and scheduler, starts spread at random, an ISSUE/SENT before and a DONE
 * after `tokens` tokens (drawn around the given mean), the freed slot taken by the next request; with bounds.
 * sim: a batch of `width` sequences in slot order, all tokens of a step with one stamp, steps of
 * 8 ms that grow with the context. */
#ifndef TESTS_MEASURE_STREAMS_H
#define TESTS_MEASURE_STREAMS_H

#include "harness/core/event.h"
#include "harness/core/rng.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_WIDTH_MAX = 512 };

struct stream {
    struct rng rng;
    int64_t next_ns[STREAM_WIDTH_MAX];
    uint64_t id[STREAM_WIDTH_MAX];
    int32_t left[STREAM_WIDTH_MAX], total[STREAM_WIDTH_MAX];
    int heap[STREAM_WIDTH_MAX];
    int width, mean_tokens;
    uint64_t next_id;
    int64_t now_ns, step;
    int slot;
    /* events waiting to be handed out */
    struct {
        int64_t t, a, b;
        uint64_t r;
        uint8_t k;
    } q[8];
    int qn, qi;
};

static inline int64_t stream_jitter(struct stream *s) {
    return (int64_t)rng_lognormal(&s->rng, det_log(30000.0), 0.8);
}

static inline void stream_queue(struct stream *s, int64_t t, int k, uint64_t r, int64_t a,
                                int64_t b) {
    if (s->qi == s->qn)
        s->qi = s->qn = 0;
    int i = s->qn++;
    s->q[i].t = t;
    s->q[i].k = (uint8_t)k;
    s->q[i].r = r;
    s->q[i].a = a;
    s->q[i].b = b;
}

static inline int stream_before(const struct stream *s, int x, int y) {
    return s->next_ns[x] < s->next_ns[y];
}

static inline void stream_down(struct stream *s, int i) {
    for (;;) {
        int m = i;
        for (int c = 2 * i + 1; c <= 2 * i + 2 && c < s->width; c++)
            if (stream_before(s, s->heap[c], s->heap[m]))
                m = c;
        if (m == i)
            return;
        int x = s->heap[i];
        s->heap[i] = s->heap[m];
        s->heap[m] = x;
        i = m;
    }
}

static inline void stream_begin(struct stream *s, int slot) {
    s->id[slot] = s->next_id++;
    s->total[slot] = s->mean_tokens / 2 + (int)rng_below(&s->rng, (uint64_t)s->mean_tokens + 1);
    s->left[slot] = s->total[slot];
}

static inline void stream_init(struct stream *s, uint64_t seed, int width, int mean_tokens) {
    memset(s, 0, sizeof *s);
    rng_seed(&s->rng, seed);
    s->width = width;
    s->mean_tokens = mean_tokens;
    s->next_id = 1000;
    for (int i = 0; i < width; i++) {
        stream_begin(s, i);
        s->left[i] = 1 + (int)rng_below(&s->rng, (uint64_t)s->left[i]); /* already under way */
        s->next_ns[i] = (int64_t)rng_below(&s->rng, 20000000);
        s->heap[i] = i;
    }
    for (int i = width; i-- > 0;)
        stream_down(s, i);
}

/* Bounds as a client states them: a few microseconds as a rule (median 8 us, sigma 0.6). */
static inline int64_t stream_bound(struct stream *s) {
    return event_bound_bucket((int64_t)rng_lognormal(&s->rng, det_log(8000.0), 0.6));
}

static inline void stream_http_step(struct stream *s) {
    int slot = s->heap[0];
    int64_t t = s->next_ns[slot];
    stream_queue(s, t, EVENT_TOKENS, s->id[slot], 1, stream_bound(s) << EVENT_TOKENS_BOUND_SHIFT);
    s->next_ns[slot] = t + 20000000 + stream_jitter(s);
    if (--s->left[slot] == 0) {
        stream_queue(s, t, EVENT_DONE, s->id[slot], s->total[slot],
                     stream_bound(s) << EVENT_DONE_BOUND_SHIFT);
        stream_begin(s, slot);
        int64_t late = stream_jitter(s) / 10;
        stream_queue(s, t + late, EVENT_ISSUE, s->id[slot], late,
                     6500 + (int64_t)rng_below(&s->rng, 1700));
        stream_queue(s, t + late + 20000, EVENT_SENT, s->id[slot], 0, 0);
        s->next_ns[slot] += 150000000;
    }
    stream_down(s, 0);
}

static inline void stream_sim_step(struct stream *s) {
    if (s->slot == 0)
        s->now_ns += 8000000 + 1000 * (s->step++ % 64);
    int slot = s->slot;
    s->slot = (slot + 1) % s->width;
    stream_queue(s, s->now_ns, EVENT_TOKENS, s->id[slot], 1, 0);
    if (--s->left[slot] == 0) {
        stream_queue(s, s->now_ns, EVENT_DONE, s->id[slot], s->total[slot], 0);
        stream_begin(s, slot);
        stream_queue(s, s->now_ns, EVENT_ISSUE, s->id[slot], 0,
                     6500 + (int64_t)rng_below(&s->rng, 1700));
    }
}

/* Fills a block; times never decrease, also across blocks. */
static inline void stream_fill(struct stream *s, int sim, struct event_block *k) {
    for (uint32_t i = 0; i < EVENT_BLOCK_CAP; i++) {
        if (s->qi == s->qn)
            sim ? stream_sim_step(s) : stream_http_step(s);
        int j = s->qi++;
        int64_t t = s->q[j].t;
        if (t < s->now_ns)
            t = s->now_ns;
        s->now_ns = t;
        k->time_ns[i] = t;
        k->kind[i] = s->q[j].k;
        k->request[i] = s->q[j].r;
        k->a[i] = s->q[j].a;
        k->b[i] = s->q[j].b;
    }
    k->n = EVENT_BLOCK_CAP;
}

#endif
