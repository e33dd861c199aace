/* A sweep: one run per operating point, and which of the points no other one beats.
 *
 * A point is a choice of one value for each axis; axes multiply, the last one moves fastest. A
 * point that fails is kept with its error and the sweep goes on; an interrupted one ends it. */
#ifndef HARNESS_RUN_SWEEP_H
#define HARNESS_RUN_SWEEP_H

#include "harness/core/arena.h"
#include "harness/run/run.h"

#include <stdbool.h>

enum { SWEEP_AXES_MAX = 8, SWEEP_POINTS_MAX = 4096, SWEEP_LABEL = 160 };

enum sweep_target {
    SWEEP_OVERRIDE, /* key is a path of the workload's JSON */
    SWEEP_BACKEND,  /* key is an option of the backend */
    SWEEP_PATTERN,  /* key is the pattern's kind: "concurrency", "poisson" */
};

struct sweep_axis {
    enum sweep_target target;
    const char *name; /* as shown: "concurrency", "rate", "o.chips" */
    const char *key;
    const char **value;
    int n;
};

/* "1,2,4" into axis->value; "key=1,2,4" for sweep_axis_over, where a key "o.NAME" is a backend
 * option and any other a workload path. where: how messages call it, e.g. "--over". Empty lists,
 * empty values and repeated values are ASSAY_EUSAGE. */
int sweep_axis_list(struct sweep_axis *axis, const char *list, const char *where, struct arena *a,
                    struct err *e) MUST_USE;
int sweep_axis_over(struct sweep_axis *axis, const char *text, const char *where, struct arena *a,
                    struct err *e) MUST_USE;

struct sweep_point {
    char label[SWEEP_LABEL]; /* "concurrency=4 o.chips=8" */
    const char *value[SWEEP_AXES_MAX];
    int code;            /* 0, or ASSAY_E* of run_execute */
    char error[1024];    /* when it failed before anything ran; else "" */
    char uuid[RUN_UUID]; /* "" when nothing was stored */
    bool valid, frontier;
    json_t *summary; /* the run's; NULL when nothing was stored */
    /* from the summary's metrics; NAN = absent */
    double output_tokens_per_s, per_chip, per_user, ttft_p50_ns, ttft_p99_ns, tpot_p50_ns,
        requests_per_s, goodput_per_s, step_p50_ns, step_tokens_per_s;
};

struct sweep {
    const struct sweep_axis *axis;
    int naxes;
    struct sweep_point *point; /* heap */
    int npoints;               /* points that were run */
    int planned;
    /* of a placed sweep, else NAN; in logarithms of both coordinates, scaled to the ends' distance */
    double deviation; /* estimate of how far the frontier is from the chord between neighbours, at most */
    double uncertain; /* share of the ends' rectangle in which the frontier may lie if it only falls */
};

typedef void sweep_visit_fn(void *ctx, const struct sweep *s, int index, bool ended);

/* Runs every point; base gives all that the axes do not. visit is called before and after each
 * point, may be NULL. Returns 0, or the code of the point whose exit code is the highest; s is
 * filled either way, release it. Too many points: ASSAY_EUSAGE before anything ran. */
int sweep_execute(const struct run_options *base, const struct sweep_axis *axes, int naxes,
                  sweep_visit_fn *visit, void *ctx, struct sweep *s, struct err *e) MUST_USE;
void sweep_release(struct sweep *s);

/* Places at most n >= 3 points of one load axis (SWEEP_PATTERN, without values) in lo..hi where the frontier
 * bends: the ends, their geometric middle, then always the middle of the interval whose chord is estimated
 * to be furthest from the frontier (with a part of what it could hide), until that is below tolerance (0 = never) or an interval has no
 * middle: loads of concurrency are whole. Points come out by rising load; visit sees them as they are run.
 * a keeps the values. */
int sweep_place(const struct run_options *base, struct sweep_axis *axis, double lo, double hi, int n,
                double tolerance, struct arena *a, sweep_visit_fn *visit, void *ctx, struct sweep *s,
                struct err *e) MUST_USE;

/* The estimate for each of n - 1 intervals between points of rising load (log load u, log coordinates x and
 * y scaled to the ends): the distance of an inner point from the chord of its neighbours, taken down by the
 * square of the interval's part of that chord, as a parabola has it; the greater one of its two ends. -1: a
 * point is missing. deviation: n - 1. */
void sweep_deviations(const double *u, const double *x, const double *y, int n, double *deviation);

/* {"points":[run_plan of each point, with "over"]}; runs nothing. New reference. */
int sweep_plan(const struct run_options *base, const struct sweep_axis *axes, int naxes,
               json_t **out, struct err *e) MUST_USE;

/* {"points":[…],"frontier":[run ids]}; new reference, NULL when memory runs out. */
json_t *sweep_to_json(const struct sweep *s);

/* Marks the points that no other beats: another beats i when it is at least as good in x and in y
 * and better in one; more is better in both. NAN in either takes a point out. Equal points stay
 * together. */
void pareto_mark(const double *x, const double *y, int n, bool *on_frontier);

#endif
