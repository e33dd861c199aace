/* Points of a sweep where the frontier bends. */
#include "harness/run/sweep_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ABSENT ((double)NAN)

static double from_chord(const double *x, const double *y, int a, int p, int b) {
    double dx = x[b] - x[a], dy = y[b] - y[a], length = hypot(dx, dy);
    if (length == 0)
        return hypot(x[p] - x[a], y[p] - y[a]);
    return fabs(dx * (y[p] - y[a]) - dy * (x[p] - x[a])) / length;
}

void sweep_deviations(const double *u, const double *x, const double *y, int n, double *deviation) {
    for (int i = 0; i + 1 < n; i++) {
        deviation[i] = -1;
        for (int p = i; p <= i + 1; p++) {
            if (p == 0 || p == n - 1)
                continue;
            double d = from_chord(x, y, p - 1, p, p + 1);
            double part = (u[i + 1] - u[i]) / (u[p + 1] - u[p - 1]);
            if (d * part * part > deviation[i]) /* NAN is not */
                deviation[i] = d * part * part;
        }
    }
}

/* What an interval is worth: the estimate, and a tenth of what a kink inside could hide, the height of the
 * triangle over the chord that a falling frontier stays in. The tenth is a matter of trial on simulated
 * frontiers; anything from a twentieth to a fifth does as well. */
static double worth(const double *x, const double *y, const double *deviation, int i) {
    double dx = x[i + 1] - x[i], dy = y[i + 1] - y[i], chord = hypot(dx, dy);
    double hidden = chord > 0 ? fabs(dx * dy) / chord : 0;
    return deviation[i] + (isnan(hidden) ? 0 : hidden / 10);
}

/* Rectangles between neighbours: where a frontier that falls between them may lie; of the ends' one. */
static double uncertain_share(const double *x, const double *y, int n) {
    double sum = 0, whole = fabs((x[n - 1] - x[0]) * (y[n - 1] - y[0]));
    for (int i = 0; i + 1 < n; i++)
        sum += fabs((x[i + 1] - x[i]) * (y[i + 1] - y[i]));
    return whole > 0 ? sum / whole : ABSENT;
}

struct place {
    struct sweep *s;
    struct sweep_axis *axis;
    const struct run_options *base;
    struct arena *arena;
    sweep_visit_fn *visit;
    void *ctx;
    double *load; /* of the points, rising */
    double *work; /* u, x, y, deviation */
    bool whole;   /* loads are whole numbers */
    int worst;
};

/* Runs a load and keeps the points by rising load. */
static int add(struct place *p, double load, struct err *e) {
    struct sweep *s = p->s;
    char text[32];
    snprintf(text, sizeof text, "%.4g", load);
    if (p->whole)
        snprintf(text, sizeof text, "%.0f", load);
    struct sweep_point point = {.value = {arena_strdup(p->arena, text)}};
    if (!point.value[0])
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    /* run in the last place, where a visitor finds it by the number of points */
    int last = s->npoints, at = last;
    s->point[last] = point;
    sweep_point_begin(s, &s->point[last]);
    if (p->visit)
        p->visit(p->ctx, s, last, false);
    sweep_point_run(p->base, s, &s->point[last]);
    s->npoints++;
    if (p->visit)
        p->visit(p->ctx, s, last, true);
    if (err_exit_code(s->point[last].code) > err_exit_code(p->worst))
        p->worst = s->point[last].code;
    point = s->point[last];
    for (; at > 0 && p->load[at - 1] > load; at--) {
        p->load[at] = p->load[at - 1];
        s->point[at] = s->point[at - 1];
    }
    p->load[at] = strtod(point.value[0], NULL);
    s->point[at] = point;
    return 0;
}

static double middle(const struct place *p, double a, double b) {
    double m = p->whole ? round(sqrt(a * b)) : sqrt(a * b);
    return m > a && m < b && (p->whole || b / a > 1.01) ? m : ABSENT;
}

/* Deviations of the points so far; the ends' distance is 1 in each coordinate. */
static const double *measure(struct place *p) {
    int n = p->s->npoints, cap = p->s->planned;
    double *u = p->work, *x = u + cap, *y = x + cap, *d = y + cap;
    sweep_coordinates(p->s, x, y);
    for (int i = 0; i < n; i++) {
        u[i] = log(p->load[i]);
        x[i] = log(x[i]);
        y[i] = log(y[i]);
    }
    for (double *v = x; v <= y; v += cap) {
        double lo = INFINITY, hi = -INFINITY;
        for (int i = 0; i < n; i++) {
            lo = fmin(lo, v[i]);
            hi = fmax(hi, v[i]);
        }
        for (int i = 0; i < n; i++)
            v[i] = hi > lo ? (v[i] - lo) / (hi - lo) : v[i] - lo;
    }
    sweep_deviations(u, x, y, n, d);
    p->s->deviation = 0;
    for (int i = 0; i + 1 < n; i++)
        p->s->deviation = fmax(p->s->deviation, d[i]);
    p->s->uncertain = uncertain_share(x, y, n);
    return d;
}

static int refine(struct place *p, int n, double tolerance, struct err *e) {
    int rc = 0;
    while (!rc && p->worst != ASSAY_EINTERRUPTED) {
        const double *d = measure(p), *x = p->work + p->s->planned, *y = x + p->s->planned;
        double most = -1;
        int best = -1;
        for (int i = 0; i + 1 < p->s->npoints; i++)
            if (!isnan(middle(p, p->load[i], p->load[i + 1])) && worth(x, y, d, i) > most) {
                most = worth(x, y, d, i);
                best = i;
            }
        if (p->s->npoints == n || best < 0 || most < tolerance)
            break;
        rc = add(p, middle(p, p->load[best], p->load[best + 1]), e);
    }
    return rc;
}

int sweep_place(const struct run_options *base, struct sweep_axis *axis, double lo, double hi, int n,
                double tolerance, struct arena *a, sweep_visit_fn *visit, void *ctx, struct sweep *s,
                struct err *e) {
    assert(n >= 3 && n <= SWEEP_POINTS_MAX && lo > 0 && hi > lo && axis->target == SWEEP_PATTERN);
    struct place p = {.s = s, .axis = axis, .base = base, .arena = a, .visit = visit, .ctx = ctx};
    p.whole = !strcmp(axis->key, "concurrency");
    *s = (struct sweep){.axis = axis, .naxes = 1, .planned = n, .deviation = ABSENT, .uncertain = ABSENT};
    s->point = calloc((size_t)n, sizeof *s->point);
    p.load = calloc((size_t)n, sizeof *p.load);
    p.work = calloc((size_t)n * 4, sizeof *p.work);
    int rc = !s->point || !p.load || !p.work ? err_set(e, ASSAY_ENOMEM, "out of memory") : 0;
    const double first[] = {lo, hi, middle(&p, lo, hi)};
    for (int i = 0; i < 3 && !rc && p.worst != ASSAY_EINTERRUPTED; i++)
        if (!isnan(first[i]))
            rc = add(&p, first[i], e);
    if (!rc && s->npoints > 1)
        rc = refine(&p, n, tolerance, e);
    int marked = s->point ? sweep_mark_frontier(s, e) : 0;
    free(p.load);
    free(p.work);
    return rc ? rc : marked ? marked : p.worst;
}
