/* Inside a sweep: one point at a time, for those who choose the next one by what the last ones gave. */
#ifndef HARNESS_RUN_SWEEP_INTERNAL_H
#define HARNESS_RUN_SWEEP_INTERNAL_H

#include "harness/run/sweep.h"

/* After value[] is set: the label; figures absent. */
void sweep_point_begin(const struct sweep *s, struct sweep_point *p);
void sweep_point_run(const struct run_options *base, const struct sweep *s, struct sweep_point *p);
/* What the frontier is drawn in, NAN for points that cannot be on it; npoints each. */
void sweep_coordinates(const struct sweep *s, double *x, double *y);
int sweep_mark_frontier(struct sweep *s, struct err *e) MUST_USE;

#endif
