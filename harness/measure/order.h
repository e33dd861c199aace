/* Inside harness/measure: several order statistics of one column of values, by selection.
 * Values are doubles >= 0 (integers below 2^53 are exact in them) kept as their bit patterns, which
 * sort as unsigned integers do. Which ranks are wanted is said first; then one pass finds them all. */
#ifndef HARNESS_MEASURE_ORDER_H
#define HARNESS_MEASURE_ORDER_H

#include "harness/core/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { COLUMN_RANKS_MAX = 96 };

struct column {
    uint64_t *bits; /* n values; borrowed, released by the caller after column_solve */
    int64_t n;
    int64_t extra_zeros;  /* values of 0 that belong to the column but are not stored */
    bool integer;         /* whole numbers: the sum is exact */
    double min, max, mean;
    double m2;            /* sum of squared differences from the mean */
    int64_t rank[COLUMN_RANKS_MAX]; /* wanted, 0-based */
    double value[COLUMN_RANKS_MAX];
    int nranks;
};

static inline uint64_t column_bits(double x) {
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline double column_double(uint64_t u) {
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* How many values, those not stored included. */
static inline int64_t column_n(const struct column *c) {
    return c->n + c->extra_zeros;
}

/* Before column_solve: notes a wanted rank (0 <= rank < n). */
void column_want(struct column *c, int64_t rank);

/* min, max, mean, m2 and the wanted ranks; n = 0 is fine. The order of bits is not changed. */
int column_solve(struct column *c, struct err *e) MUST_USE;

/* After column_solve: a wanted rank's value. */
double column_at(const struct column *c, int64_t rank);

#endif
