/* The op graph: what one step of a model computes, before any machine is chosen.
 *
 * A graph is a list of blocks (the embedding, a decoder layer, the head), each a straight line of ops
 * over values, and a list of calls that says in which order and how often blocks run. Values have named
 * axes; what an axis means on a machine (split over a mesh, padded, kept whole) is the backend's to
 * decide. Three axes are open until a step is known: tokens and routed rows are `n` times the step's
 * tokens, sequences `n` times its sequences, so that one graph serves steps of every size.
 *
 * Matrix products are einsums, one letter an axis ("td,dhe->the"): a letter in all three operands is a batch
 * axis, one in both inputs alone is contracted. Fused ops of real stacks are ops of their own.
 * Weights appear with the model's own shapes: their sum over the calls is the model's parameter count.
 *
 * Sources of the layers: transformers, src/transformers/models/FAMILY/modeling_FAMILY.py. */
#ifndef WORKLOADS_GRAPH_H
#define WORKLOADS_GRAPH_H

#include "harness/core/arena.h"
#include "harness/core/err.h"
#include "workloads/model.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { GRAPH_RANK_MAX = 4, GRAPH_OPERANDS_MAX = 6, GRAPH_EINSUM_MAX = 20 };

enum axis {
    AXIS_PLAIN, /* a width nobody splits */
    AXIS_TOKENS,
    AXIS_SEQUENCES,
    AXIS_ROUTED, /* rows sorted by expert: n times the tokens */
    AXIS_HIDDEN,
    AXIS_HEADS,
    AXIS_KV_HEADS,
    AXIS_HEAD_DIM,
    AXIS_FFN, /* columns of a feed-forward layer */
    AXIS_EXPERT_FFN,
    AXIS_EXPERTS,
    AXIS_VOCAB,
    AXIS_LATENT, /* rank of a low-rank projection */
    AXIS_COUNT
};
extern const char *const axis_names[AXIS_COUNT];

enum dtype { DTYPE_BF16, DTYPE_F32, DTYPE_S32, DTYPE_COUNT };
extern const char *const dtype_names[DTYPE_COUNT];
int64_t dtype_bytes(enum dtype t);

enum value_role {
    VALUE_ACTIVATION,
    VALUE_WEIGHT, /* a matrix: what weight quantisation narrows */
    VALUE_TABLE,  /* embedding or output projection: stays as it is when weights are narrowed */
    VALUE_VECTOR, /* norm scales, biases, sinks */
    VALUE_INPUT,  /* token ids, positions */
};

struct value {
    const char *name;
    enum value_role role;
    enum dtype dtype;
    int rank;
    enum axis axis[GRAPH_RANK_MAX];
    int64_t n[GRAPH_RANK_MAX];
    uint32_t shared; /* the value whose memory it is, plus 1: a tied table; 0 = its own */
};

enum op_kind {
    OP_EMBED,     /* ids, table -> rows */
    OP_NORM,      /* x, scale -> RMS norm; operands may be followed by a bias */
    OP_EINSUM,    /* a, b[, bias] -> by the einsum */
    OP_ROPE,      /* q, k[, q scale, k scale] -> rotated; with scales: normalised a head before */
    OP_ATTENTION, /* q, k, v[, sinks]; MLA: q in the latent space, rotated q, latent. The earlier tokens' cache
                     has the shape of k and v (of the latent) and is not spelt out */
    OP_SLICE,     /* x -> a part of its last axis: a view */
    OP_GLU,       /* gate, up -> act(gate) * up */
    OP_ADD,       /* a, b -> sum; of a residual */
    OP_ROUTE,     /* logits[, bias] -> the chosen experts and their shares */
    OP_DISPATCH,  /* x, routes -> rows sorted by expert */
    OP_GROUPED,   /* rows, weights of all experts[, bias] -> each row by its expert's matrix */
    OP_COMBINE,   /* rows, routes -> the weighted sum a token */
    OP_SAMPLE,    /* logits -> the next token */
    OP_KINDS
};
extern const char *const op_kind_names[OP_KINDS];

struct op {
    enum op_kind kind;
    uint32_t operand[GRAPH_OPERANDS_MAX], result; /* values */
    int operands;
    char einsum[GRAPH_EINSUM_MAX]; /* OP_EINSUM, OP_GROUPED */
    int64_t top;                   /* OP_ROUTE: experts a token */
    int64_t window;                /* OP_ATTENTION: tokens seen; 0 = all */
    int64_t rotated;               /* OP_ROPE: dims of a head */
    int64_t offset;                /* OP_SLICE */
};

struct block {
    const char *name;
    uint32_t first, n; /* ops */
};
struct call {
    uint32_t block;
    int64_t times; /* in a row */
};

/* Arrays live in the arena. */
struct graph {
    struct arena arena;
    char name[MODEL_NAME_MAX];
    struct value *value;
    struct op *op;
    struct block *block;
    struct call *call;
    uint32_t nvalues, nops, nblocks, ncalls;
    uint32_t x; /* the residual stream: what a block's last op writes and the next block reads */
};

/* What is known of a step. */
struct graph_step {
    int64_t tokens, sequences;
};

/* Builds the graph of a decoder's step from the model's shape. ASSAY_ENOMEM. Release it always. */
int graph_from_model(const struct model *m, struct graph *g, struct err *e) MUST_USE;
void graph_release(struct graph *g);

int64_t graph_dim(const struct value *v, int i, const struct graph_step *s);
int64_t graph_elements(const struct value *v, const struct graph_step *s);
/* How often an op of that block runs in a step. */
int64_t graph_block_times(const struct graph *g, uint32_t block);

/* An einsum's extents: batch x (m x k)(k x n). */
struct extents {
    int64_t batch, m, n, k;
};
/* Where each letter stands. role: 'b', 'm', 'n', 'k', or 'x' for one of b alone, the expert that a row chooses;
 * dim: its place in a, b, out (-1 = absent). */
struct einsum_letter {
    char letter, role;
    int dim[3];
};
/* Returns the number of letters. The graph's own einsums are well formed. */
int einsum_letters(const struct op *o, struct einsum_letter out[2 * GRAPH_RANK_MAX]);
struct extents graph_extents(const struct graph *g, const struct op *o, const struct graph_step *s);

/* Multiply-adds times two of all einsums and grouped products of a step; attention's, which depend on the
 * contexts, not. */
int64_t graph_matmul_flops(const struct graph *g, const struct graph_step *s);
/* Elements of weights, tables and vectors over all calls: the model's parameters. */
int64_t graph_parameters(const struct graph *g);

/* One line an op. */
void graph_print(const struct graph *g, FILE *out);

#endif
