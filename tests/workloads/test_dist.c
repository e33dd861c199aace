/* Distributions: moments of many draws against their formulas, bounds, and exact repeats. */
#include "harness/core/json.h"
#include "workloads/dist.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <string.h>

static struct dist read_dist(const char *text, enum dist_unit unit, struct arena *a) {
    json_t *json;
    struct dist d;
    struct err e = {0};
    cr_assert(eq(int, json_parse(text, strlen(text), "t", &json, &e), 0), "%s", e.text);
    cr_assert(eq(int, dist_from_json(json, unit, "t", "/x", a, &d, &e), 0), "%s", e.text);
    json_decref(json);
    return d;
}

/* 200,000 draws each; the tolerance is five standard errors of the mean. The seeds are fixed, so a
 * pass is a pass for ever. */
Test(workloads_dist, means_of_draws_equal_the_formulas) {
    static const struct {
        const char *text;
        double mean, sd, lo, hi;
    } cases[] = {
        {"{\"kind\":\"uniform\",\"min\":10,\"max\":19}", 14.5, 2.8723, 10, 19},
        {"{\"kind\":\"normal\",\"mean\":1000,\"stddev\":50}", 1000, 50, 1, TOKENS_MAX},
        /* mean = median * exp(sigma^2 / 2), sd = mean * sqrt(exp(sigma^2) - 1) */
        {"{\"kind\":\"lognormal\",\"median\":1000,\"sigma\":0.5}", 1133.148, 603.9, 1, TOKENS_MAX},
        {"{\"kind\":\"exponential\",\"mean\":5000}", 5000, 5000, 1, TOKENS_MAX},
        {"{\"kind\":\"empirical\",\"values\":[1,10,100],\"weights\":[1,2,1]}", 30.25, 40.6, 1, 100},
        {"{\"kind\":\"empirical\",\"values\":[4,8]}", 6, 2, 4, 8},
    };
    struct arena a = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dist d = read_dist(cases[i].text, DIST_UNIT_TOKENS, &a);
        double sum = 0;
        enum { N = 200000 };
        for (uint64_t k = 0; k < N; k++) {
            struct rng r = rng_at(3, 99, k);
            int64_t v = dist_draw(&d, &r);
            cr_assert(ge(dbl, (double)v, cases[i].lo));
            cr_assert(le(dbl, (double)v, cases[i].hi));
            sum += (double)v;
        }
        cr_assert(lt(dbl, fabs(sum / N - cases[i].mean), 5 * cases[i].sd / sqrt(N)), "%s: %g",
                  cases[i].text, sum / N);
    }
    arena_release(&a);
}

Test(workloads_dist, draws_are_clipped_to_the_bounds_and_reach_them) {
    struct arena a = {0};
    struct dist d =
        read_dist("{\"kind\":\"normal\",\"mean\":10,\"stddev\":100,\"min\":5,\"max\":15}",
                  DIST_UNIT_TOKENS, &a);
    struct rng r;
    int lo = 0, hi = 0;
    rng_seed(&r, 1);
    for (int i = 0; i < 1000; i++) {
        int64_t v = dist_draw(&d, &r);
        cr_assert(ge(i64, v, 5));
        cr_assert(le(i64, v, 15));
        lo += v == 5;
        hi += v == 15;
    }
    cr_assert(gt(int, lo, 100));
    cr_assert(gt(int, hi, 100));
    arena_release(&a);
}

Test(workloads_dist, times_are_in_ns) {
    struct arena a = {0};
    struct dist d = read_dist("\"1.5s\"", DIST_UNIT_NS, &a);
    struct rng r;
    rng_seed(&r, 1);
    cr_assert(eq(i64, dist_draw(&d, &r), 1500000000));
    d = read_dist("{\"kind\":\"uniform\",\"min\":\"1ms\",\"max\":\"2ms\"}", DIST_UNIT_NS, &a);
    for (int i = 0; i < 100; i++) {
        int64_t v = dist_draw(&d, &r);
        cr_assert(ge(i64, v, 1000000));
        cr_assert(le(i64, v, 2000000));
    }
    arena_release(&a);
}

/* Golden: the same generators written in Python (statistics.NormalDist().inv_cdf is Wichura's AS
 * 241 too). A change here changes every plan ever recorded. */
Test(workloads_dist, draws_repeat_to_the_bit) {
    static const int64_t want[] = {808, 676, 515, 620, 446, 1754};
    struct arena a = {0};
    struct dist d =
        read_dist("{\"kind\":\"lognormal\",\"median\":1000,\"sigma\":0.5}", DIST_UNIT_TOKENS, &a);
    for (uint64_t i = 0; i < 6; i++) {
        struct rng r = rng_at(1, 1, i);
        cr_assert(eq(i64, dist_draw(&d, &r), want[i]), "draw %d", (int)i);
    }
    arena_release(&a);
}
