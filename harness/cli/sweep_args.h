/* What the parts of `assay sweep` share: its options. */
#ifndef HARNESS_CLI_SWEEP_ARGS_H
#define HARNESS_CLI_SWEEP_ARGS_H

#include "harness/cli/run_args.h"
#include "harness/run/find.h"

struct sweep_args {
    struct run_args run;
    const char *concurrency, *rate, *precision;
    struct strings over, limit;
    bool find;
    int64_t repeats, points;
    /* filled by sweep_limits: those with a share come first */
    struct find_limit limits[FIND_LIMITS_MAX];
    int nlimits;
};

/* Reads --limit: what a good request keeps goes into the overrides, the rest into a->limits. */
int sweep_limits(struct sweep_args *a, struct err *e) MUST_USE;
/* "LO..HI" of --concurrency or --rate: the bounds, and LO as the pattern among the overrides. *lo = 0 when
 * neither is given. */
int sweep_range(struct sweep_args *a, double *lo, double *hi, struct err *e) MUST_USE;
/* --find */
int sweep_find(struct sweep_args *a, struct err *e) MUST_USE;

#endif
