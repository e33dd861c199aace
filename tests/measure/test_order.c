/* Selection without sorting, against sorting: distributions that try its buckets. */
#include "harness/core/rng.h"
#include "harness/measure/order.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 20000, FEED = 256 };

static int rising(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static double draw(struct rng *r, int style, int i) {
    switch (style) {
    case 0:
        return 7; /* constant */
    case 1:
        return (double)rng_below(r, 2); /* 0 or 1 */
    case 2:
        return (double)i; /* rising */
    case 3:
        return (double)(N - i);
    case 4:
        return floor(rng_lognormal(r, 18, 3)); /* ten octaves and more */
    case 5:
        return 1e9 + (double)rng_below(r, 5); /* nearly equal: one bucket */
    case 6:
        return i % 1000 ? 1000 : 0x1p52; /* two far values */
    case 7:
        return 0;
    default:
        return (double)(rng_next(r) >> 11); /* up to 2^53 */
    }
}

Test(measure_order, selects_as_sorting_does) {
    static double x[N], sorted[N];
    struct rng r;
    struct err e = {0};
    rng_seed(&r, 4);
    for (int style = 0; style < 9; style++)
        for (int zeros = 0; zeros <= 300; zeros += 300)
            for (int n = 1; n <= N; n = n * 7 + 3) {
                struct column *c = calloc(1, sizeof *c);
                c->integer = true;
                c->want_sd = true;
                c->extra_zeros = zeros;
                double sum = 0, m2 = 0;
                for (int i = 0; i < n; i++)
                    sum += x[i] = draw(&r, style, i);
                for (int i = 0; i < n; i += FEED)
                    column_feed(c, x + i, (size_t)(n - i < FEED ? n - i : FEED));
                column_fed(c);
                cr_assert(eq(i64, column_n(c), n + zeros));
                double mean = sum / (n + zeros);
                cr_assert(le(dbl, fabs(c->mean - mean), 1e-12 * mean));
                static const double p[] = {0, 0.001, 0.01, 0.25, 0.5, 0.501, 0.9, 0.99, 0.999, 1};
                for (size_t k = 0; k < sizeof p / sizeof p[0]; k++)
                    column_want(c, (int64_t)(p[k] * (double)(n + zeros - 1)));
                cr_assert(eq(int, column_plan(c, &e), 0), "%s", e.text);
                for (int i = 0; i < n; i += FEED)
                    column_gather(c, x + i, (size_t)(n - i < FEED ? n - i : FEED));
                cr_assert(eq(int, column_finish(c, &e), 0), "%s", e.text);
                memcpy(sorted, x, sizeof x);
                qsort(sorted, (size_t)n, sizeof x[0], rising);
                for (size_t k = 0; k < sizeof p / sizeof p[0]; k++) {
                    int64_t rank = (int64_t)(p[k] * (double)(n + zeros - 1));
                    double want = rank < zeros ? 0 : sorted[rank - zeros];
                    cr_assert(eq(dbl, column_at(c, rank), want), "style %d n %d rank %ld", style, n,
                              (long)rank);
                }
                cr_assert(eq(dbl, c->min, zeros ? 0 : sorted[0]));
                cr_assert(eq(dbl, c->max, sorted[n - 1]));
                for (int i = 0; i < n; i++)
                    m2 += (x[i] - mean) * (x[i] - mean);
                m2 += zeros * mean * mean;
                cr_assert(le(dbl, fabs(c->m2 - m2), 1e-9 * m2 + 1e-6), "style %d n %d", style, n);
                free(c);
            }
}

/* Without whole numbers the sum is compensated: 0.1 ten thousand times is 1000 to the last bits. */
Test(measure_order, compensated_mean) {
    struct column *c = calloc(1, sizeof *c);
    double x[FEED];
    for (int i = 0; i < FEED; i++)
        x[i] = 0.1;
    for (int i = 0; i < 1000; i++)
        column_feed(c, x, FEED);
    column_fed(c);
    cr_assert(ieee_ulp_eq(dbl, c->mean, 0.1, 1));
    column_release(c);
    free(c);
}
