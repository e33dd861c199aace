/* The Pareto frontier and the axes of a sweep: pure functions. */
#include "harness/run/sweep.h"

#include "harness/core/rng.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include <math.h>
#include <string.h>

#define CHECK(condition, ...) cr_assert(eq(int, !!(condition), 1), ##__VA_ARGS__)

Test(run_sweep, frontier_of_a_known_set) {
    /*            A    B    C    D    E    F    G  */
    double x[] = {1.0, 2.0, 3.0, 3.0, 2.0, (double)NAN, 0.5};
    double y[] = {9.0, 8.0, 5.0, 4.0, 8.0, 99., 9.0};
    bool on[7];
    pareto_mark(x, y, 7, on);
    bool want[] = {true, true, true, false, true, false, false}; /* B and E are equal: both stay */
    for (int i = 0; i < 7; i++)
        cr_assert(eq(int, on[i], want[i]), "point %c", 'A' + i);
}

Test(run_sweep, frontier_of_nothing_and_of_one) {
    double one = 1;
    bool on[1] = {false};
    pareto_mark(&one, &one, 0, on);
    CHECK(!on[0]);
    pareto_mark(&one, &one, 1, on);
    CHECK(on[0]);
}

/* The definition turned around, on random points: a point off the frontier is beaten by one on it,
 * and walking the frontier from left to right y never rises. */
Test(run_sweep, frontier_properties_on_random_points) {
    enum { N = 200 };
    struct rng r;
    rng_seed(&r, 20);
    for (int round = 0; round < 50; round++) {
        double x[N], y[N];
        bool on[N];
        for (int i = 0; i < N; i++) {
            x[i] = (double)rng_below(&r, 30);
            y[i] = (double)rng_below(&r, 30);
        }
        pareto_mark(x, y, N, on);
        for (int i = 0; i < N; i++) {
            bool beaten = false;
            for (int j = 0; j < N; j++) {
                if (on[i] && on[j] && x[j] > x[i])
                    CHECK(y[j] < y[i]);
                beaten |= on[j] && x[j] >= x[i] && y[j] >= y[i] && (x[j] > x[i] || y[j] > y[i]);
            }
            CHECK(beaten != on[i]);
        }
    }
}

Test(run_sweep, axes_are_lists) {
    struct arena a = {0};
    struct err e = {0};
    struct sweep_axis x = {0};
    cr_assert(eq(int, sweep_axis_over(&x, "o.chips=4,8", "--over", &a, &e), 0));
    cr_assert(eq(int, x.target, SWEEP_BACKEND));
    cr_assert(eq(str, (char *)x.key, "chips"));
    cr_assert(eq(str, (char *)x.name, "o.chips"));
    cr_assert(eq(int, x.n, 2));
    cr_assert(eq(str, (char *)x.value[0], "4"));
    cr_assert(eq(str, (char *)x.value[1], "8"));
    cr_assert(eq(int, sweep_axis_over(&x, "isl=512", "--over", &a, &e), 0));
    cr_assert(eq(int, x.target, SWEEP_OVERRIDE));
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"isl", "expected KEY=V1,V2"},      {"=1,2", "expected KEY=V1,V2"},
        {"o.=1", "expected a key after"},   {"isl=", "found an empty one"},
        {"isl=1,", "found an empty one"},   {"isl=1,,2", "found an empty one"},
        {"isl=1,2,1", "'1' is there twice"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert(eq(int, sweep_axis_over(&x, bad[i].text, "--over", &a, &e), ASSAY_EUSAGE));
        CHECK(strstr(e.text, bad[i].says), "%s: %s", bad[i].text, e.text);
    }
    arena_release(&a);
}
