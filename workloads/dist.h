/* Distributions of lengths, turn counts and delays: read from JSON, drawn, written back. */
#ifndef WORKLOADS_DIST_H
#define WORKLOADS_DIST_H

#include "harness/core/rng.h"
#include "workloads/workload.h"

enum { TOKENS_MAX = 1 << 24, TURNS_MAX = 10000, EMPIRICAL_MAX = 65536 };

/* What is distributed: decides the unit in JSON and the bounds. */
enum dist_unit {
    DIST_UNIT_TOKENS, /* integers 1 .. TOKENS_MAX */
    DIST_UNIT_TURNS,  /* integers 1 .. TURNS_MAX */
    DIST_UNIT_NS,     /* "1.5s", … >= 0 */
};

/* A bare number (a duration text for DIST_UNIT_NS) is DIST_FIXED; else {"kind": …, fields}. */
int dist_from_json(const json_t *json, enum dist_unit unit, const char *file, const char *pointer,
                   struct arena *a, struct dist *d, struct err *e) MUST_USE;
/* All fields resolved; a new reference, NULL when memory runs out. */
json_t *dist_to_json(const struct dist *d, enum dist_unit unit);

void dist_fixed(struct dist *d, int64_t value);
/* One draw, an integer within the bounds. Takes nothing from r when DIST_FIXED. DIST_RANGE_RATIO has
 * another generator and is drawn by the plan. */
int64_t dist_draw(const struct dist *d, struct rng *r);
int64_t dist_max(const struct dist *d); /* no draw exceeds it */

#endif
