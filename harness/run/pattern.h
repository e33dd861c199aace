/* Load patterns: when requests are issued. Arrival i of an open-loop pattern is a pure function of
 * (pattern, seed, i) through a running sum that every shard computes alike. */
#ifndef HARNESS_RUN_PATTERN_H
#define HARNESS_RUN_PATTERN_H

#include "harness/core/rng.h"
#include "workloads/workload.h"

#include <stdint.h>

struct arrivals {
    struct pattern pattern;
    struct rng rng;  /* gaps are drawn in order: every shard walks all arrivals */
    uint64_t next;   /* index of the arrival that arrivals_next returns */
    double at_ns;    /* running sum */
};
void arrivals_init(struct arrivals *a, const struct pattern *p, uint64_t seed);
/* 146 years: an arrival at or beyond it never comes. The sum with any clock's time still fits. */
#define ARRIVAL_NEVER (INT64_C(1) << 62)
/* ns as a time, at most ARRIVAL_NEVER. */
int64_t arrival_clip(double ns);
/* Time of the next arrival, ns from the start, for the open-loop patterns; 0 for offline. */
int64_t arrivals_next(struct arrivals *a);
/* Closed loop: requests (or sessions) that shard may have in flight; concurrency split exactly. */
int64_t pattern_shard_concurrency(const struct pattern *p, uint32_t shard, uint32_t shards);

#endif
