/* Arrival times and the split of concurrency. */
#include "harness/run/pattern.h"

/* The stream of rng_at that arrival gaps are drawn from; plans use others. */
enum { ARRIVAL_STREAM = 0x61727276 };

void arrivals_init(struct arrivals *a, const struct pattern *p, uint64_t seed) {
    *a = (struct arrivals){.pattern = *p, .rng = rng_at(seed, ARRIVAL_STREAM, 0)};
}

int64_t arrival_clip(double ns) {
    return ns < (double)ARRIVAL_NEVER ? (int64_t)(ns + 0.5) : ARRIVAL_NEVER;
}

int64_t arrivals_next(struct arrivals *a) {
    uint64_t i = a->next++;
    double rate = a->pattern.value;
    switch (a->pattern.kind) {
    case PATTERN_CONSTANT:
        /* from the index, so that no rounding error builds up */
        return arrival_clip((double)i * 1e9 / rate);
    case PATTERN_POISSON:
        a->at_ns += rng_exponential(&a->rng) * 1e9 / rate;
        return arrival_clip(a->at_ns);
    case PATTERN_GAMMA:
        /* gaps of mean 1/rate and squared coefficient of variation 1/shape */
        a->at_ns += rng_gamma(&a->rng, a->pattern.shape) / a->pattern.shape * 1e9 / rate;
        return arrival_clip(a->at_ns);
    case PATTERN_OFFLINE:
    case PATTERN_SINGLE:
    case PATTERN_CONCURRENCY:
    case PATTERN_TRACE:
        break;
    }
    return 0;
}

int64_t pattern_shard_concurrency(const struct pattern *p, uint32_t shard, uint32_t shards) {
    int64_t total = p->kind == PATTERN_SINGLE ? 1 : (int64_t)p->value;
    if (p->kind != PATTERN_SINGLE && p->kind != PATTERN_CONCURRENCY)
        return INT64_MAX;
    return total / shards + (shard < total % shards);
}
