/* The search's judgements, and searches over the null backend's queue, whose limits are known in closed
 * form: M/D/1 (Erlang's series) and M/M/c (Erlang C). */
#include "harness/run/find_internal.h"
#include "harness/run/sweep.h"

#include "harness/core/rng.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition, ...) cr_assert(eq(int, !!(condition), 1), ##__VA_ARGS__)

Test(run_find, limits_from_text) {
    static const struct {
        const char *text;
        enum find_what what;
        int64_t share_ppm, limit_ns;
    } good[] = {
        {"ttft_p99=2s", FIND_TTFT, 990000, 2000000000},
        {"tpot_p90=50ms", FIND_TPOT, 900000, 50000000},
        {"e2e_p99.9=1.5s", FIND_E2E, 999000, 1500000000},
        {"ttft=2s", FIND_TTFT, 0, 2000000000},
        {"goodput=0.95", FIND_GOODPUT, 950000, 0},
        {"goodput=95%", FIND_GOODPUT, 950000, 0},
    };
    static const char *const bad[] = {
        "",         "ttft",          "ttft=",           "ttft=2",          "ttft_p99=0s",  "ttft_p100=1s",
        "ttft_=1s", "ttft_p=1s",     "ttft_p0=1s",      "ttft_99=1s",      "itl_p99=1s",   "=1s",
        "goodput",  "goodput=1",     "goodput=0",       "goodput=95",      "goodput=100%", "goodput=%",
        "tt=1s",    "goodput_p9=.9", "ttft_p99 = 2s s", "ttft_pnan=1s",    "goodput=nan",  "ttft_p99=-1s",
        "ttft_p99999999999999999999999999999=1s",
    };
    struct find_limit l;
    struct err e = {0};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        cr_assert(eq(int, find_limit_parse(good[i].text, "--limit", &l, &e), 0), "%s", good[i].text);
        cr_assert(eq(int, (int)l.what, (int)good[i].what));
        cr_assert(eq(i64, l.share_ppm, good[i].share_ppm));
        cr_assert(eq(i64, l.limit_ns, good[i].limit_ns));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert(eq(int, find_limit_parse(bad[i], "--limit", &l, &e), ASSAY_EUSAGE), "%s", bad[i]);
}

Test(run_find, goodput_counts_by_the_plain_limit_or_the_highest_percentile) {
    static const char *const texts[] = {"ttft_p50=1s", "ttft_p99=2s", "tpot_p90=50ms", "tpot=40ms",
                                        "goodput=0.9"};
    struct find_limit l[5];
    struct err e = {0};
    struct arena a = {0};
    const char *out[3];
    int n;
    for (int i = 0; i < 5; i++)
        cr_assert(eq(int, find_limit_parse(texts[i], "--limit", &l[i], &e), 0));
    cr_assert(eq(int, find_overrides(l, 5, &a, out, &n, &e), 0));
    cr_assert(eq(int, n, 2));
    cr_assert(eq(str, (char *)out[0], "limits.ttft=2s"));
    cr_assert(eq(str, (char *)out[1], "limits.tpot=40ms"));
    arena_release(&a);
}

/* 459 independent observations within show p99 at 99 %, 458 do not: MLPerf's table, t = 0. */
Test(run_find, a_pass_needs_as_many_observations_as_early_stopping) {
    struct find_limit l;
    struct err e = {0};
    cr_assert(eq(int, find_limit_parse("e2e_p99=1s", "--limit", &l, &e), 0));
    for (size_t n = 458; n <= 459; n++) {
        struct sample s = {0};
        for (size_t i = 0; i < n; i++)
            cr_assert(eq(int, sample_add(&s, 1e9, &e), 0));
        s.effective = (double)n;
        struct find_figure f = find_judge(&l, &s, 0.01);
        cr_assert(eq(int, (int)f.verdict, (int)(n == 459 ? FIND_PASS : FIND_UNDECIDED)));
        cr_assert(eq(dbl, f.within, 1.0));
        sample_release(&s);
    }
}

/* Clopper and Pearson 1934 as R prints it, binom.test(8, 10): 0.4439045 to 0.9747893. */
Test(run_find, the_interval_of_a_share_is_clopper_and_pearson_s) {
    struct find_limit l;
    struct err e = {0};
    struct sample s = {0};
    cr_assert(eq(int, find_limit_parse("goodput=0.5", "--limit", &l, &e), 0));
    for (int i = 0; i < 10; i++)
        cr_assert(eq(int, sample_add(&s, i < 8, &e), 0));
    s.effective = 10;
    struct find_figure f = find_judge(&l, &s, 0.025);
    CHECK(fabs(f.lo - 0.4439045) < 1e-7 && fabs(f.hi - 0.9747893) < 1e-7, "%.8f %.8f", f.lo, f.hi);
    sample_release(&s);
}

/* AR(1) with correlation rho is worth (1 - rho)/(1 + rho) of its observations for the mean. */
Test(run_find, neighbours_that_suffer_together_count_for_less) {
    static const double rhos[] = {0, 0.5, 0.9};
    struct find_limit l;
    struct err e = {0};
    cr_assert(eq(int, find_limit_parse("e2e_p50=1s", "--limit", &l, &e), 0));
    for (int k = 0; k < 3; k++) {
        enum { N = 60000 };
        struct sample s = {0};
        struct rng r;
        double x = 0, rho = rhos[k], want = N * (1 - rho) / (1 + rho);
        rng_seed(&r, 7);
        for (int i = 0; i < N; i++) {
            x = rho * x + sqrt(1 - rho * rho) * rng_normal(&r);
            cr_assert(eq(int, sample_add(&s, 1e9 + 1e8 * x, &e), 0));
        }
        cr_assert(eq(int, sample_end_run(&l, &s, &e), 0));
        CHECK(s.effective <= want * 1.05 && s.effective > want * 0.4, "rho %g: %g of %g", rho,
              s.effective, want);
        sample_release(&s);
    }
}

Test(run_find, a_queue_that_grows_is_told_from_one_that_fluctuates) {
    enum { N = 2000 };
    static struct span s[N];
    struct rng r;
    for (int load = 5; load <= 20; load++) { /* utilisation 0.5 to 2.0 but 0.9 to 1.1 */
        double t = 0, free_at = 0, rho = load / 10.;
        if (load >= 9 && load <= 11)
            continue;
        rng_seed(&r, 3);
        for (int i = 0; i < N; i++) {
            t += rng_exponential(&r) / rho;
            free_at = fmax(free_at, t) + 1;
            s[i] = (struct span){(int64_t)(t * 1e9), (int64_t)(free_at * 1e9)};
        }
        cr_assert(eq(int, find_queue_grew(s, N), rho > 1), "utilisation %g", rho);
    }
}

static struct find_probe made(double load, enum find_verdict v, double within, double lo, double hi) {
    struct find_probe p = {.load = load, .verdict = v, .runs = 1};
    p.at[0] = (struct find_figure){.n = 10000, .effective = 10000, .within = within, .value = lo,
                                   .lo = lo, .hi = hi, .verdict = v};
    return p;
}

Test(run_find, a_system_that_is_better_under_load_is_told) {
    struct find_limit l;
    struct err e = {0};
    cr_assert(eq(int, find_limit_parse("e2e_p90=1s", "--limit", &l, &e), 0));
    struct find_options o = {.limit = &l, .nlimits = 1, .repeats = 1};
    struct find *f = calloc(1, sizeof *f);
    f->options = &o;
    f->nprobes = 3;
    f->probe[0] = made(1, FIND_PASS, 0.98, 0.3e9, 0.4e9);
    f->probe[1] = made(2, FIND_PASS, 0.95, 0.5e9, 0.6e9);
    f->probe[2] = made(4, FIND_FAIL, 0.80, 1.5e9, 1.6e9);
    find_conclude(f);
    cr_assert(eq(int, f->violations, 0));
    cr_assert(eq(dbl, f->highest, 2));
    cr_assert(eq(dbl, f->lowest_fail, 4));
    cr_assert(eq(int, f->limited_by, 0));
    CHECK(f->estimate > 2.8 && f->estimate < 2.9, "%g", f->estimate); /* half, then twice what is allowed */
    f->probe[0] = made(1, FIND_PASS, 0.92, 0.8e9, 0.9e9); /* slower than at 2, intervals apart */
    find_conclude(f);
    cr_assert(eq(int, f->violations, 1));
    cr_assert(eq(dbl, f->violation[0], 1));
    cr_assert(eq(dbl, f->violation[1], 2));
    f->probe[0] = made(1, FIND_UNDECIDED, 0.90, 0.5e9, 1.5e9); /* passes only above it: no answer */
    find_conclude(f);
    cr_assert(eq(int, f->violations, 1));
    CHECK(isnan(f->highest));
    free(f);
}

/* ---- against queueing theory ---- */

static char folder[64];

static void fini(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (*folder && system(command))
        perror(folder);
}

TestSuite(run_find_theory, .fini = fini);

static const char *in_folder(const char *name) {
    static char path[128];
    if (!*folder) {
        snprintf(folder, sizeof folder, "/tmp/assay-find-XXXXXX");
        CHECK(mkdtemp(folder) != NULL);
        setenv("XDG_DATA_HOME", folder, 1);
        unsetenv("ASSAY_DB");
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static struct find *search(const char *osl, const char *const *backend, int nbackend,
                           const char *const *limits, int nlimits, const char *pattern, int want) {
    static const volatile int stop = 0;
    char osl_text[128], pattern_text[64], path[160];
    snprintf(path, sizeof path, "%s", in_folder("w.json"));
    FILE *file = fopen(path, "w");
    snprintf(osl_text, sizeof osl_text, "%s", osl);
    fprintf(file,
            "{\"name\":\"queue\",\"version\":\"1\",\"kind\":\"serving\",\"pattern\":\"poisson:4\","
            "\"requests\":10000,\"warmup\":{\"requests\":500},\"seed\":1,\"isl\":10,\"osl\":%s}",
            osl_text);
    fclose(file);
    struct arena a = {0};
    struct err e = {0};
    static struct find_limit all[FIND_LIMITS_MAX], shares[FIND_LIMITS_MAX];
    static struct find_options o;
    const char *overrides[8], *limit_texts[3];
    int n = 0, nover = 0, nout;
    for (int i = 0; i < nlimits; i++) {
        cr_assert(eq(int, find_limit_parse(limits[i], "--limit", &all[i], &e), 0));
        if (all[i].share_ppm)
            shares[n++] = all[i];
    }
    cr_assert(eq(int, find_overrides(all, nlimits, &a, limit_texts, &nout, &e), 0));
    for (int i = 0; i < nout; i++)
        overrides[nover++] = limit_texts[i];
    snprintf(pattern_text, sizeof pattern_text, "pattern=%s", pattern);
    overrides[nover++] = pattern_text;
    struct run_options base = {.workload = path, .overrides = overrides, .noverrides = nover,
                               .backend = "null", .backend_options = backend,
                               .nbackend_options = nbackend, .threads = 1, .stop = &stop};
    o = (struct find_options){.limit = shares, .nlimits = n, .precision = 0.02, .repeats = 5};
    struct find *f = calloc(1, sizeof *f);
    cr_assert(eq(int, find_execute(&base, &o, NULL, NULL, f, &e), want), "%s", e.text);
    arena_release(&a);
    return f;
}

/* P(wait <= t) of M/D/1, Erlang 1909: an alternating series, harmless for the few terms used here. */
static double mdl_wait(double t, double rate, double service) {
    long double sum = 0;
    for (int j = 0; j <= (int)(t / service); j++) {
        long double x = (long double)rate * (j * (long double)service - (long double)t), term = 1;
        for (int i = 1; i <= j; i++)
            term *= x / i;
        sum += term * expl(-x);
    }
    return (double)((1 - (long double)rate * (long double)service) * sum);
}

static double mmc_wait_over(double t, double rate, int c) {
    double b = 1;
    for (int i = 1; i <= c; i++)
        b = rate * b / (i + rate * b);
    return b / (1 - rate / c * (1 - b)) * exp(-(c - rate) * t);
}

static void check_near(const struct find *f, double truth) {
    /* one seed of those whose intervals cover in 95 of 100; the answer's own precision is 2 % */
    CHECK(f->highest < truth * 1.02 && f->highest > truth * 0.92, "%g, truth %g", f->highest, truth);
    CHECK(f->lowest_fail > truth * 0.98 && f->lowest_fail < truth * 1.08, "%g, truth %g",
          f->lowest_fail, truth);
    CHECK(fabs(f->estimate / truth - 1) < 0.03, "%g, truth %g", f->estimate, truth);
    cr_assert(eq(int, f->violations, 0));
    cr_assert(eq(int, f->limited_by, 0));
}

Test(run_find_theory, m_d_1) {
    static const char *const backend[] = {"ttft=100ms", "servers=1"};
    static const char *const limits[] = {"ttft_p99=1s"};
    double lo = 0.1, hi = 9.99;
    while (hi - lo > 1e-6) {
        double mid = (lo + hi) / 2;
        *(mdl_wait(0.9, mid, 0.1) > 0.99 ? &lo : &hi) = mid;
    }
    CHECK(fabs(lo - 7.734872) < 1e-5, "%g", lo); /* the series in 60 digits */
    struct find *f = search("1", backend, 2, limits, 1, "poisson:4", 0);
    check_near(f, lo);
    free(f);
}

Test(run_find_theory, m_m_8_by_goodput) {
    static const char *const backend[] = {"ttft=1ms", "tpot=1ms", "servers=8"};
    static const char *const limits[] = {"ttft=501ms", "goodput=0.9"};
    double lo = 0.1, hi = 7.99;
    while (hi - lo > 1e-6) {
        double mid = (lo + hi) / 2;
        *(mmc_wait_over(0.5, mid, 8) < 0.1 ? &lo : &hi) = mid;
    }
    struct find *f = search("{\"kind\":\"exponential\",\"mean\":1000,\"min\":1,\"max\":20000}", backend,
                            3, limits, 2, "poisson:4", 0);
    check_near(f, lo);
    free(f);
}

/* Closed loop without variance: n requests over two servers of 100 ms each wait for n/2 services, so 1 s is
 * kept by 20 of them and by no more. */
Test(run_find_theory, concurrency_is_exact) {
    static const char *const backend[] = {"ttft=100ms", "servers=2"};
    static const char *const limits[] = {"e2e_p99=1s"};
    struct find *f = search("1", backend, 2, limits, 1, "concurrency:1", 0);
    cr_assert(eq(dbl, f->highest, 20));
    cr_assert(eq(dbl, f->lowest_fail, 21));
    free(f);
}

Test(run_find_theory, nothing_meets_what_the_service_alone_exceeds) {
    static const char *const backend[] = {"ttft=100ms", "servers=1"};
    static const char *const limits[] = {"ttft_p50=90ms"};
    struct find *f = search("1", backend, 2, limits, 1, "concurrency:4", ASSAY_ENEGATIVE);
    CHECK(isnan(f->highest));
    cr_assert(eq(dbl, f->lowest_fail, 1));
    free(f);
}

/* ---- placement ---- */

/* A circle's quarter by equal angles: every interior point is 1 - cos(h) from the chord of its neighbours,
 * the arc between two of them 1 - cos(h/2): about a fourth. */
Test(run_find, deviations_of_a_circle) {
    enum { N = 9 };
    double u[N], x[N], y[N], d[N - 1], h = acos(0) / (N - 1);
    for (int i = 0; i < N; i++) {
        u[i] = i;
        x[i] = sin(i * h);
        y[i] = cos(i * h);
    }
    sweep_deviations(u, x, y, N, d);
    for (int i = 0; i < N - 1; i++)
        CHECK(fabs(d[i] / (1 - cos(h / 2)) - 1) < 0.02, "%d: %g of %g", i, d[i], 1 - cos(h / 2));
}
