/* Inside the search: what it collects from a run, and the judgements on it; pure functions. */
#ifndef HARNESS_RUN_FIND_INTERNAL_H
#define HARNESS_RUN_FIND_INTERNAL_H

#include "harness/measure/requests.h"
#include "harness/run/find.h"

/* The observations of a limit: ns, INFINITY for a request that kept no limit; goodput: 1 good, 0 not. */
struct sample {
    double *x;
    size_t n, cap;
    size_t run_begin; /* those of the run that is being read */
    double effective; /* of the runs before it */
};
int sample_add(struct sample *s, double x, struct err *e) MUST_USE;
/* Ends a run: adds what its observations are worth. */
int sample_end_run(const struct find_limit *l, struct sample *s, struct err *e) MUST_USE;
void sample_release(struct sample *s);

/* alpha: the chance of a wrong verdict, each side. Sorts the sample. */
struct find_figure find_judge(const struct find_limit *l, struct sample *s, double alpha);
/* > 1: too many requests beyond the limit, 2 = twice as many as it allows. */
double find_excess(const struct find_limit *l, const struct find_figure *f);

/* When requests came and went, in the order of issue. */
struct span {
    int64_t begin_ns, end_ns;
};
/* Whether the number in flight grew over the last third of the issuing by more than chance (three
 * standard deviations of the difference of two Poisson counts) and more than a twentieth of what came. */
bool find_queue_grew(const struct span *s, size_t n);
bool find_grew(double from, double to, double issued);

/* Probes by rising load: estimate and violations of f. */
void find_conclude(struct find *f);

#endif
