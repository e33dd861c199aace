/* Inside harness/measure: order statistics, mean and spread of a column of values, without keeping it.
 * The values come by twice, in blocks, in the same order: the first time they are counted in buckets of
 * a 128th of an octave, the second time those in the buckets of the wanted ranks are gathered and
 * selected from. Values are doubles >= 0; whole numbers below 2^53 are exact in them.
 *
 *   column_feed*, column_fed  -> n, mean    then column_want*, want_sd
 *   column_plan, column_gather*, column_finish  -> column_at, min, max, m2
 */
#ifndef HARNESS_MEASURE_ORDER_H
#define HARNESS_MEASURE_ORDER_H

#include "harness/core/err.h"
#include "harness/core/int128.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    COLUMN_RANKS_MAX = 96,
    COLUMN_BUCKETS = 64 << 7, /* 64 octaves of 128; below 1 all is one bucket */
    COLUMN_LANES = 4,      /* partial sums that do not wait for each other */
};

/* A bucket with wanted ranks. */
struct column_part {
    size_t begin, n; /* its values in work */
    int64_t first;   /* rank of the smallest */
    int from, to;    /* wanted ranks [from, to) */
};

struct column {
    bool integer;        /* whole numbers: the sum is exact */
    bool want_sd;        /* m2 is wanted */
    bool varies;         /* not all values fed are equal */
    int64_t n;           /* values fed */
    int64_t extra_zeros; /* values of 0 that belong to the column but are not fed */
    double min, max, mean;
    double m2; /* sum of squared differences from the mean */
    int64_t rank[COLUMN_RANKS_MAX]; /* wanted, 0-based, rising */
    double value[COLUMN_RANKS_MAX];
    int nranks;

    u128 sum;
    double lane[COLUMN_LANES], lost[COLUMN_LANES]; /* Neumaier sums; then those of m2 */
    uint32_t count[COLUMN_BUCKETS];
    uint8_t part_of[COLUMN_BUCKETS]; /* part + 1, 0 = not wanted */
    struct column_part part[COLUMN_RANKS_MAX];
    int parts;
    double *work;
};

/* Whole numbers: n of them must sum to less than 2^64. */
void column_feed(struct column *c, const double *x, size_t n);

/* How many values, those not fed included. */
static inline int64_t column_n(const struct column *c) {
    return c->n + c->extra_zeros;
}

/* Ends the feeding. */
void column_fed(struct column *c);

/* Notes a wanted rank, 0 <= rank < column_n. */
void column_want(struct column *c, int64_t rank);

int column_plan(struct column *c, struct err *e) MUST_USE;
void column_gather(struct column *c, const double *x, size_t n);
/* Selects; releases the work. */
int column_finish(struct column *c, struct err *e) MUST_USE;
void column_release(struct column *c);

/* After column_finish: a wanted rank's value. */
double column_at(const struct column *c, int64_t rank);

#endif
