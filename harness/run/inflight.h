/* Two small containers of the driver: requests in flight by id, and next turns by time. */
#ifndef HARNESS_RUN_INFLIGHT_H
#define HARNESS_RUN_INFLIGHT_H

#include "workloads/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct inflight_entry {
    struct request request;
    int64_t intended_ns;
};
/* Open addressing, linear probing, at most half full; grows only past what init foresaw. */
struct inflight {
    struct inflight_entry *e;
    size_t n, cap; /* cap is a power of two */
};
/* All return 0 or -1 (no memory; not found). */
int inflight_init(struct inflight *f, size_t expected);
int inflight_put(struct inflight *f, const struct request *r, int64_t intended_ns);
int inflight_take(struct inflight *f, uint64_t id, struct request *r, int64_t *intended_ns);
void inflight_release(struct inflight *f);

struct turn {
    int64_t at_ns;
    struct request request;
};
/* Binary heap ordered by (at_ns, request id). */
struct turn_heap {
    struct turn *t;
    size_t n, cap;
};
int turn_heap_push(struct turn_heap *h, const struct turn *t);
int64_t turn_heap_top(const struct turn_heap *h); /* INT64_MAX when empty */
struct turn turn_heap_pop(struct turn_heap *h);   /* must not be empty */
/* Takes out some turn of a session; false when there is none. Looks at all of them. */
bool turn_heap_take_session(struct turn_heap *h, uint64_t session, struct turn *out);
void turn_heap_release(struct turn_heap *h);

#endif
