/* Placement on the simulator: for as many points, the curve through those placed where it bends is nearer
 * to a dense sweep than that through a geometric grid. */
#include "harness/run/sweep.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition, ...) cr_assert(eq(int, !!(condition), 1), ##__VA_ARGS__)

static char folder[64];

static void init(void) {
    snprintf(folder, sizeof folder, "/tmp/assay-place-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    setenv("XDG_DATA_HOME", folder, 1);
    unsetenv("ASSAY_DB");
}
static void fini(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (*folder && system(command))
        perror(folder);
}
TestSuite(run_sweep_place, .init = init, .fini = fini);

enum { DENSE = 40, N = 6, HIGHEST = 4096 };

static const char *const options[] = {"chip=v5p", "chips=8"};
static const char *const overrides[] = {"requests=600"};
static const volatile int stop = 0;
static const struct run_options base = {.workload = "chat-serving", .overrides = overrides,
                                        .noverrides = 1, .backend = "tpu-sim",
                                        .backend_options = options, .nbackend_options = 2, .threads = 1,
                                        .stop = &stop};

/* Loads in equal ratios, whole numbers, without repetition. */
static void grid(int n, struct sweep_axis *axis, struct arena *a, struct sweep *s) {
    char list[1024] = "";
    long last = 0;
    for (int i = 0; i < n; i++) {
        long load = lround(pow(HIGHEST, i / (n - 1.)));
        if (load != last)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%ld", last ? "," : "", load);
        last = load;
    }
    struct err e = {0};
    *axis = (struct sweep_axis){SWEEP_PATTERN, "concurrency", "concurrency", NULL, 0};
    cr_assert(eq(int, sweep_axis_list(axis, list, "grid", a, &e), 0));
    cr_assert(eq(int, sweep_execute(&base, axis, 1, NULL, NULL, s, &e), 0), "%s", e.text);
}

static double segment(double px, double py, const double a[2], const double b[2]) {
    double dx = b[0] - a[0], dy = b[1] - a[1], l = dx * dx + dy * dy;
    double t = l > 0 ? fmin(1, fmax(0, ((px - a[0]) * dx + (py - a[1]) * dy) / l)) : 0;
    return hypot(px - a[0] - t * dx, py - a[1] - t * dy);
}

/* Greatest distance of the dense points from the lines through s, in logarithms scaled to dense. */
static double error_of(const struct sweep *s, const struct sweep *dense) {
    double lo[2] = {INFINITY, INFINITY}, hi[2] = {-INFINITY, -INFINITY}, worst = 0;
    for (int i = 0; i < dense->npoints; i++) {
        double v[2] = {log(dense->point[i].per_chip), log(dense->point[i].per_user)};
        for (int k = 0; k < 2; k++) {
            lo[k] = fmin(lo[k], v[k]);
            hi[k] = fmax(hi[k], v[k]);
        }
    }
#define AT(p, k) ((log((k) ? (p)->per_user : (p)->per_chip) - lo[k]) / (hi[k] - lo[k]))
    for (int i = 0; i < dense->npoints; i++) {
        const struct sweep_point *p = &dense->point[i];
        double best = INFINITY;
        for (int j = 0; j + 1 < s->npoints; j++) {
            const struct sweep_point *q = &s->point[j];
            double a[2] = {AT(q, 0), AT(q, 1)}, b[2] = {AT(q + 1, 0), AT(q + 1, 1)};
            best = fmin(best, segment(AT(p, 0), AT(p, 1), a, b));
        }
        worst = fmax(worst, best);
    }
#undef AT
    return worst;
}

Test(run_sweep_place, beats_a_grid_of_as_many_points) {
    struct arena a = {0};
    struct err e = {0};
    struct sweep dense, even, placed;
    struct sweep_axis axes[3];
    grid(DENSE, &axes[0], &a, &dense);
    grid(N, &axes[1], &a, &even);
    axes[2] = (struct sweep_axis){SWEEP_PATTERN, "concurrency", "concurrency", NULL, 0};
    cr_assert(eq(int, sweep_place(&base, &axes[2], 1, HIGHEST, N, 0, &a, NULL, NULL, &placed, &e), 0),
              "%s", e.text);
    cr_assert(eq(int, even.npoints, N));
    cr_assert(eq(int, placed.npoints, N));
    for (int i = 0; i + 1 < N; i++)
        CHECK(strtod(placed.point[i].value[0], NULL) < strtod(placed.point[i + 1].value[0], NULL));
    double grid_error = error_of(&even, &dense), placed_error = error_of(&placed, &dense);
    CHECK(placed_error < 0.7 * grid_error, "placed %.4f, grid %.4f", placed_error, grid_error);
    CHECK(placed.deviation > placed_error / 3 && placed.deviation < placed_error * 3, "%.4f of %.4f",
          placed.deviation, placed_error);
    CHECK(placed.uncertain > 0 && placed.uncertain < 1);
    sweep_release(&dense);
    sweep_release(&even);
    sweep_release(&placed);
    arena_release(&a);
}
