/* The op graph on one device of a mesh: each op becomes a kernel on the device's part of its operands, and a
 * collective where a sum or a row is spread over devices. This is the simulator's picture of what XLA makes of a decoder:
 * products that share their input are one kernel, activations and residual sums ride in their neighbours, a sum that
 * was split over devices is joined once, before anything but another such sum needs it.
 *
 * Axes split: heads, FFN columns and vocabulary over `tensor` devices, experts over `expert`, an expert's columns over the
 * rest. KV heads fewer than devices are repeated. Nothing allocates. */
#ifndef BACKENDS_TPU_SIM_LOWER_H
#define BACKENDS_TPU_SIM_LOWER_H

#include "backends/tpu_sim/collective.h"
#include "backends/tpu_sim/kernel.h"
#include "workloads/graph.h"

/* How a model is laid on a replica. */
struct layout {
    int64_t tensor, expert, slices; /* devices; slices: that share one expert's columns */
    bool tokens_shared; /* serving: the step's tokens are shared out over the expert group; training: each device brings its
                           own, so that on average it receives as many as it has */
    enum num weights, math;
};

/* What one op costs a device, `times` in a step. A kernel, or a collective over the tensor group. */
struct work {
    const struct block *block;
    const struct op *op;
    uint32_t ops; /* of the block, from op on, that this kernel does */
    bool is_collective;
    struct kernel kernel;
    enum collective collective;
    uint32_t joined; /* collective: the value */
    double bytes;    /* collective: of the whole array */
    double times;
};
typedef void lower_fn(void *ctx, const struct work *w);

/* A device's part of a value's dim. */
int64_t layout_part(const struct layout *l, const struct value *v, int dim, const struct graph_step *s);

/* blocks [from, to). Attention appears with its fixed cost alone: its work depends on contexts. */
void lower(const struct graph *g, const struct layout *l, const struct graph_step *step, uint32_t from, uint32_t to,
           lower_fn *fn, void *ctx);

#endif
