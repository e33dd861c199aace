/* A step of a serving engine on one replica: what its layers cost, from the model's shape.
 *
 * A step is a padded number of tokens through all layers, plus the attention of each sequence, plus
 * the output head of the sequences that get a token. The first and last are tables over padded
 * sizes; attention is linear in contexts, so that a step costs O(1) once the engine keeps the sums.
 * Not here: which sequences run (engine.c), training (train.c). */
#ifndef BACKENDS_TPU_SIM_STEP_H
#define BACKENDS_TPU_SIM_STEP_H

#include "backends/tpu_sim/collective.h"
#include "backends/tpu_sim/kernel.h"
#include "backends/tpu_sim/lower.h"
#include "workloads/graph.h"
#include "workloads/model.h"

#include <stdbool.h>

enum attention_kernel {
    ATTENTION_PAGED, /* tuned kernels: flash prefill, ragged paged decode */
    ATTENTION_PLAIN, /* compiled from plain array code: K and V repeated to every query head */
};

struct step_options {
    int64_t chips;  /* of one replica */
    int64_t tensor; /* devices one layer is split over; 0 = all devices of `chips` */
    int64_t expert; /* devices that whole experts are spread over; the rest of `tensor` slices each
                       expert. 0 = 1. Serving: divides tensor. Training: an axis of its own. */
    const char *topology; /* of one replica; NULL = derived */
    enum num weights, kv, math;
    enum attention_kernel attention;
    int64_t block_size; /* tokens of a KV page */
};

/* Which tokens a step has. Contexts include the tokens of this step. */
struct step_model {
    const struct chip *chip; /* borrowed */
    struct model model;
    struct step_options o;
    struct device device;
    struct topology topology, group; /* the replica; the tensor-parallel group */
    int64_t tensor, expert;          /* devices */
    /* per device */
    int64_t heads, kv_heads, head_dim; /* head_dim padded to lanes */
    double full_layers, window_layers;
    double weight_bytes;   /* resident weights */
    double kv_token_bytes; /* KV cache of one token, all layers */
    /* decode attention of one step: token_s * context tokens (whole pages) + seq_s * sequences */
    double decode_token_s, decode_window_token_s, decode_seq_s, decode_fixed_s;
    enum bound decode_bound;
    struct graph graph; /* owned */
};

/* ASSAY_EUSAGE or ASSAY_EINPUT: what does not divide. Release it when it succeeded. */
int step_init(struct step_model *s, const struct chip *chip, const struct model *m,
              const struct step_options *o, struct err *e) MUST_USE;
void step_release(struct step_model *s);

/* What the ops of a step cost a device, one by one; the sums below add these up. Attention appears with its
 * fixed cost alone. */
enum step_part { STEP_LAYERS, STEP_HEAD, STEP_ALL };
void step_each_work(const struct step_model *s, const struct graph_step *at, enum step_part part, lower_fn *fn,
                    void *ctx);

/* All layers but attention for `tokens` (already padded) tokens; embedding included. */
void step_layers(const struct step_model *s, int64_t tokens, struct cost *sum);
/* The same without the collectives. */
void step_compute(const struct step_model *s, int64_t tokens, struct cost *sum);
/* Final norm, output head and sampling of `rows` (already padded) sequences. */
void step_head(const struct step_model *s, int64_t rows, struct cost *sum);
/* Attention over all layers of one prefill chunk: q new tokens, the last at position context. */
void step_prefill_attention(const struct step_model *s, int64_t q, int64_t context,
                            struct cost *sum);
/* Attention of decoding sequences: total context in whole pages, the same cut to the window. */
void step_decode_attention(const struct step_model *s, int64_t sequences, int64_t context,
                           int64_t window_context, struct cost *sum);

/* One layer's attention kernel, for validation: a chunk, or a batch of equal contexts. */
void step_prefill_kernel(const struct step_model *s, int64_t q, int64_t context, int64_t window,
                         struct kernel *k);
void step_decode_kernel(const struct step_model *s, double sequences, double context,
                        struct kernel *k);

/* KV tokens one device can hold beside weights: hbm_share of HBM. Negative: bytes that lack. */
double step_kv_room_bytes(const struct step_model *s, double hbm_share);

#endif
