/* Arrival processes: rates, burstiness, repeatability; the split of concurrency. */
#include "harness/run/pattern.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>

static void gaps(struct pattern p, int n, double *mean_ns, double *scv) {
    struct arrivals a;
    arrivals_init(&a, &p, 9);
    int64_t last = arrivals_next(&a), first = last;
    double q = 0;
    for (int i = 1; i < n; i++) {
        int64_t t = arrivals_next(&a);
        cr_assert(t >= last);
        q += (double)(t - last) * (double)(t - last);
        last = t;
    }
    *mean_ns = (double)(last - first) / (n - 1);
    *scv = q / (n - 1) / (*mean_ns * *mean_ns) - 1;
}

Test(run_pattern, open_loops_have_their_rate_and_burstiness) {
    double mean, scv;
    gaps((struct pattern){PATTERN_POISSON, 100, 0}, 100000, &mean, &scv);
    cr_assert(fabs(mean / 1e7 - 1) < 0.02);
    cr_assert(fabs(scv - 1) < 0.05);
    gaps((struct pattern){PATTERN_GAMMA, 100, 0.25}, 100000, &mean, &scv);
    cr_assert(fabs(mean / 1e7 - 1) < 0.04);
    cr_assert(fabs(scv - 4) < 0.4);
    gaps((struct pattern){PATTERN_CONSTANT, 3, 0}, 1000, &mean, &scv);
    cr_assert(fabs(mean - 1e9 / 3) < 1);
    cr_assert(fabs(scv) < 1e-9);
}

Test(run_pattern, constant_arrivals_gather_no_rounding_error) {
    struct pattern p = {PATTERN_CONSTANT, 3, 0};
    struct arrivals a;
    arrivals_init(&a, &p, 0);
    int64_t t = 0;
    for (int i = 0; i <= 3000000; i++)
        t = arrivals_next(&a);
    cr_assert(eq(i64, t, INT64_C(1000000) * 1000000000));
}

/* Rates so small that an arrival lies beyond any clock: it never comes, and times stay in order. */
Test(run_pattern, arrivals_beyond_any_clock_never_come) {
    static const struct pattern slow[] = {{PATTERN_POISSON, 1e-300, 0}, {PATTERN_GAMMA, 1e-300, 0.5},
                                          {PATTERN_CONSTANT, 1e-15, 0}, {PATTERN_POISSON, 1e-9, 0}};
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
        struct arrivals a;
        int64_t last = 0;
        arrivals_init(&a, &slow[i], 1);
        for (int k = 0; k < 100; k++) {
            int64_t t = arrivals_next(&a);
            cr_assert(t >= last && t <= ARRIVAL_NEVER);
            last = t;
        }
        cr_assert(eq(i64, last, ARRIVAL_NEVER));
    }
}

Test(run_pattern, concurrency_is_split_exactly) {
    for (uint32_t shards = 1; shards <= 7; shards++)
        for (int c = 1; c < 40; c++) {
            struct pattern p = {PATTERN_CONCURRENCY, c, 0};
            int64_t sum = 0;
            for (uint32_t i = 0; i < shards; i++)
                sum += pattern_shard_concurrency(&p, i, shards);
            cr_assert(eq(i64, sum, c));
        }
}
