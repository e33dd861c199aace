/* Generators against published outputs; the deterministic functions against libm. */
#include "harness/core/rng.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>

/* Widely published first outputs of splitmix64-seeded xoshiro256** with seed 42 (also the vector of
 * the bootstrap generator). */
Test(core_rng, xoshiro_seed_42) {
    static const uint64_t want[] = {UINT64_C(1546998764402558742), UINT64_C(6990951692964543102),
                                    UINT64_C(12544586762248559009), UINT64_C(17057574109182124193)};
    struct rng r;
    rng_seed(&r, 42);
    for (int i = 0; i < 4; i++)
        cr_assert(eq(u64, rng_next(&r), want[i]));
}

/* First output of MT19937 with seed 5489, and the 10,000th, as the C++ standard states it. */
Test(core_rng, mt19937_standard_outputs) {
    struct mt19937 m;
    mt_seed(&m, 5489);
    cr_assert(eq(u32, mt_next32(&m), 3499211612u));
    for (int i = 2; i < 10000; i++)
        mt_next32(&m);
    cr_assert(eq(u32, mt_next32(&m), 4123659995u));
}

Test(core_rng, log_and_exp_agree_with_libm) {
    struct rng r;
    rng_seed(&r, 1);
    for (int i = 0; i < 200000; i++) {
        double x = det_exp(40 * (rng_uniform(&r) - 0.5));
        double y = 700 * (rng_uniform(&r) - 0.5);
        cr_assert(fabs(det_log(x) - log(x)) <= 4e-15 * fabs(log(x)) + 1e-16, "log %a", x);
        cr_assert(fabs(det_exp(y) / exp(y) - 1) < 1e-14, "exp %a", y);
    }
    cr_assert(eq(dbl, det_log(1), 0));
    cr_assert(fabs(det_log(5e-324) - log(5e-324)) < 1e-10);
}

/* Moments of 200,000 draws lie within five standard errors. */
static void check_moments(double (*draw)(struct rng *, double), double p, double mean, double var) {
    struct rng r;
    rng_seed(&r, 7);
    int n = 200000;
    double s = 0, q = 0;
    for (int i = 0; i < n; i++) {
        double x = draw(&r, p);
        s += x;
        q += x * x;
    }
    double m = s / n, v = q / n - m * m;
    cr_assert(fabs(m - mean) < 5 * sqrt(var / n), "mean %g, expected %g", m, mean);
    cr_assert(fabs(v / var - 1) < 0.06, "variance %g, expected %g", v, var);
}
static double draw_exp(struct rng *r, double p) {
    (void)p;
    return rng_exponential(r);
}
static double draw_normal(struct rng *r, double p) {
    (void)p;
    return rng_normal(r);
}
Test(core_rng, moments) {
    check_moments(draw_exp, 0, 1, 1);
    check_moments(draw_normal, 0, 0, 1);
    check_moments(rng_gamma, 0.5, 0.5, 0.5);
    check_moments(rng_gamma, 4, 4, 4);
}

Test(core_rng, places_are_independent_of_order) {
    struct rng a = rng_at(1, 2, 3), b = rng_at(1, 2, 4);
    uint64_t x = rng_next(&a);
    cr_assert(ne(u64, x, rng_next(&b)));
    a = rng_at(1, 2, 3);
    cr_assert(eq(u64, x, rng_next(&a)));
}
