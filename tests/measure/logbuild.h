/* Event logs in memory, for tests: events are put thread by thread, blobs come out as a source. */
#ifndef TESTS_MEASURE_LOGBUILD_H
#define TESTS_MEASURE_LOGBUILD_H

#include "harness/measure/eventlog.h"

#include <stdlib.h>
#include <string.h>

enum { LOG_THREADS = 8 };

struct logbuild {
    struct event_block *block[LOG_THREADS];
    uint8_t **blob[LOG_THREADS];
    size_t *size[LOG_THREADS];
    size_t blobs[LOG_THREADS], next[LOG_THREADS];
    uint32_t threads;
};

static inline void log_init(struct logbuild *l, uint32_t threads) {
    memset(l, 0, sizeof *l);
    l->threads = threads;
    for (uint32_t t = 0; t < threads; t++) {
        l->block[t] = calloc(1, sizeof *l->block[t]);
        l->block[t]->thread = t;
    }
}

static inline void log_flush(struct logbuild *l, uint32_t t) {
    static uint8_t out[EVENTLOG_BLOCK_MAX_BYTES];
    struct event_block *k = l->block[t];
    if (k->n == 0)
        return;
    size_t i = l->blobs[t]++, n = eventlog_encode(k, out);
    l->blob[t] = realloc(l->blob[t], (i + 1) * sizeof *l->blob[t]);
    l->size[t] = realloc(l->size[t], (i + 1) * sizeof *l->size[t]);
    l->blob[t][i] = malloc(n);
    memcpy(l->blob[t][i], out, n);
    l->size[t][i] = n;
    k->n = 0;
    k->sequence++;
}

static inline void log_put_on(struct logbuild *l, uint32_t t, int64_t time_ns, int kind,
                              uint64_t request, int64_t a, int64_t b) {
    struct event_block *k = l->block[t];
    uint32_t i = k->n++;
    k->time_ns[i] = time_ns;
    k->kind[i] = (uint8_t)kind;
    k->request[i] = request;
    k->a[i] = a;
    k->b[i] = b;
    if (k->n == EVENT_BLOCK_CAP)
        log_flush(l, t);
}

static inline void log_put(struct logbuild *l, int64_t time_ns, int kind, uint64_t request,
                           int64_t a, int64_t b) {
    log_put_on(l, 0, time_ns, kind, request, a, b);
}

static inline int log_next(void *ctx, uint32_t t, const uint8_t **p, size_t *n, struct err *e) {
    struct logbuild *l = ctx;
    (void)e;
    size_t i = l->next[t]++;
    *p = i < l->blobs[t] ? l->blob[t][i] : NULL;
    *n = i < l->blobs[t] ? l->size[t][i] : 0;
    return 0;
}

/* May be called again to read from the start. */
static inline struct eventlog_source log_source(struct logbuild *l) {
    for (uint32_t t = 0; t < l->threads; t++) {
        log_flush(l, t);
        l->next[t] = 0;
    }
    return (struct eventlog_source){.ctx = l, .threads = l->threads, .next = log_next};
}

static inline void log_release(struct logbuild *l) {
    for (uint32_t t = 0; t < l->threads; t++) {
        for (size_t i = 0; i < l->blobs[t]; i++)
            free(l->blob[t][i]);
        free(l->blob[t]);
        free(l->size[t]);
        free(l->block[t]);
    }
}

#endif
