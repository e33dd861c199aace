/* Where the time of a run went, op by op: the same kernels and collectives whose sums were charged, multiplied by
 * how often a step of their size ran. Attention, whose work depends on contexts, is one row of what was charged. */
#ifndef BACKENDS_TPU_SIM_EXPLAIN_H
#define BACKENDS_TPU_SIM_EXPLAIN_H

#include "backends/tpu_sim/step.h"

#include <jansson.h>

/* One op of the graph, or the collective it needed. */
struct op_total {
    const struct block *block;
    const struct op *op;
    uint32_t ops; /* of the graph that ran as this one */
    bool is_collective;
    enum collective collective;
    uint32_t joined; /* collective: the value */
    double times, s, fixed_s;
    double flops, issued_flops, hbm_bytes; /* of one device; collective: hbm_bytes are the array's */
    double by[BOUND_COUNT];                /* seconds by what they waited for, fixed_s under overhead */
};

struct explain {
    const struct step_model *model;
    struct op_total *row; /* one an op, then one a collective */
    size_t n;
    double times; /* of the step that is being added */
};
int explain_init(struct explain *x, const struct step_model *m, struct err *e) MUST_USE;
/* `times` steps of that size and part. */
void explain_add(struct explain *x, const struct graph_step *at, enum step_part part, double times);
void explain_release(struct explain *x);

/* Rows by falling time: {block, op, resource, times, s, share, fixed_s, flops, useful, hbm_bytes}; `useful` is the share of
 * issued FLOPs that padding did not add. attention: what was charged for it by contexts, NULL = none. Shares are of total_s.
 * NULL: out of memory. */
json_t *explain_json(const struct explain *x, const struct cost *attention, double total_s);

#endif
