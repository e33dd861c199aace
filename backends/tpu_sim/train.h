/* One training step on a mesh of chips: forward, backward, gradients, optimizer.
 *
 * The mesh has data (replicated weights), fsdp (weights, gradients and moments sharded), tensor and
 * expert axes, in devices. Communication that later compute can hide is hidden up to a share; what
 * is left is reported as exposed. Not here: convergence, input pipelines, checkpoints. */
#ifndef BACKENDS_TPU_SIM_TRAIN_H
#define BACKENDS_TPU_SIM_TRAIN_H

#include "backends/tpu_sim/collective.h"
#include "backends/tpu_sim/kernel.h"
#include "workloads/model.h"

enum train_remat {
    REMAT_NONE,    /* every activation stays */
    REMAT_MINIMAL, /* matmul outputs stay: only cheap work is redone */
    REMAT_FULL,    /* layer inputs stay: one more forward */
};
extern const char *const train_remat_names[]; /* NULL-terminated */

struct train_options {
    int64_t chips;        /* of one slice */
    int64_t slices;       /* joined by the data-centre network; data parallel between them */
    const char *topology; /* of one slice; NULL = derived */
    /* devices along each axis of one slice; 0 = 1, and fsdp takes what is left when data is 0 */
    int64_t data, fsdp, tensor, expert, context;
    enum num math; /* bf16, int8 or fp8 matrix products */
    enum train_remat remat;
    double overlap;         /* share of hideable communication that hides */
    double optimizer_bytes; /* traffic a parameter of the optimizer step, bytes */
    int64_t global_batch, seq_len;
    bool any_memory; /* cost it also when the state does not fit */
};

struct train_step {
    double s;
    struct cost by;   /* sums to s */
    double compute_s; /* forward, backward, recomputation */
    double optimizer_s;
    double comm_s, exposed_comm_s;
    double
        model_flops; /* of the whole step, all chips: 6 x active parameters x tokens + attention */
    double model_flops_whole; /* the same with causal attention counted whole, as older tables do */
    double mfu, hfu;          /* of the peak at `math` */
    double tokens_per_s_per_chip;
    double hbm_bytes; /* weights, gradients, moments of one device */
};

/* Reads "data:4,fsdp:2,tensor:2" into o. */
int train_mesh_parse(const char *text, struct train_options *o, struct err *e) MUST_USE;
int train_run(const struct chip *c, const struct model *m, const struct train_options *o,
              struct train_step *t, struct err *e) MUST_USE;

#endif
