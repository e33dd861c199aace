/* The time of one operation on one device: matrix tiles, vector work, HBM traffic, fixed cost.
 *
 * A kernel is described by its shape and its traffic; nothing here knows of layers or requests, so
 * an op graph can feed it as well as step.c does. All closed forms, no per-cycle stepping: against
 * 1541 published TPU v4 matmuls a tile model is ten times closer than cycle counts scaled by a
 * line. Only + - * / on doubles: results repeat to the bit on any machine. */
#ifndef BACKENDS_TPU_SIM_KERNEL_H
#define BACKENDS_TPU_SIM_KERNEL_H

#include "backends/tpu_sim/chip.h"

#include <stdbool.h>
#include <stdint.h>

/* What a stretch of time waited for. */
enum bound {
    BOUND_MXU,
    BOUND_VPU,
    BOUND_HBM,
    BOUND_ICI,
    BOUND_OVERHEAD, /* fixed costs of kernels and collectives */
    BOUND_HOST,     /* the device idle while the host prepares the next step */
    BOUND_COUNT
};
extern const char *const bound_names[BOUND_COUNT];

/* Seconds by what they waited for; their sum is the time. */
struct cost {
    double s[BOUND_COUNT];
};
double cost_total(const struct cost *c);
void cost_add(struct cost *to, const struct cost *from, double times);

/* One device: a chip's figures divided by its devices and turned into rates. */
struct device {
    double flops_per_s[NUM_COUNT]; /* peak */
    double mxu_hz[NUM_COUNT];      /* rows a second into one matrix unit */
    double mxus;
    int64_t mxu_dim, row_pad;
    int64_t load_rows; /* a fold takes at least as many cycles as its weight load */
    double vpu_ops_per_s;
    double hbm_bytes_per_s; /* sustained: peak x hbm_eff */
    double attn_hbm_bytes_per_s;
    double mxu_eff, attn_mxu_eff, grouped_eff, gather_eff, fill_bytes, f16_ops;
    double kernel_s, tile_s, attn_seq_s, plain_seq_s;
    double vmem_bytes, hbm_bytes;
};
void device_init(struct device *d, const struct chip *c);

enum kernel_kind {
    KERNEL_MATMUL,    /* batch x (m x k)(k x n) */
    KERNEL_GROUPED,   /* m rows spread over `groups` touched experts, each (k x n) */
    KERNEL_TILED,     /* matmul with the given tiles tm, tn, tk (a hand-written kernel) */
    KERNEL_ATTENTION, /* flops, elements and bytes as given; sequences add attn_seq each */
    KERNEL_VECTOR,    /* elements x ops on the vector unit, bytes as given */
    KERNEL_COPY,      /* bytes only */
    KERNEL_GATHER,    /* bytes of rows that lie scattered */
};

enum kernel_flags {
    KERNEL_FUSED = 1 << 0,    /* rides in another kernel: no fixed cost */
    KERNEL_RESIDENT = 1 << 1, /* the weight operand is already in VMEM: its bytes do not move */
    KERNEL_PLAIN = 1 << 3,    /* attention as plain array code: rates of ordinary kernels */
    KERNEL_F16 = 1 << 2, /* arrays are IEEE half: each element is converted, before and after */
};

struct kernel {
    enum kernel_kind kind;
    unsigned flags;
    enum num math;                      /* operand type of the matrix unit */
    double a_bytes, b_bytes, out_bytes; /* bytes an element; 0 = 2 (bf16) */
    int64_t batch;                      /* 0 = 1 */
    int64_t groups;                     /* KERNEL_GROUPED */
    int64_t m, n, k;
    int64_t tm, tn, tk;             /* KERNEL_TILED */
    double elements, ops;           /* vector work */
    double flops;                   /* KERNEL_ATTENTION: padded matrix work */
    double read_bytes, write_bytes; /* HBM traffic beyond a matmul's operands */
    double sequences;               /* KERNEL_ATTENTION */
};

struct kernel_time {
    double s;
    double flops;        /* useful, 2mnk */
    double issued_flops; /* after padding */
    double hbm_bytes;
    double mxu_s, vpu_s, hbm_s, fixed_s; /* each resource's own time */
    double convert_s;                    /* vector work that cannot overlap the matrix unit */
    enum bound bound;
};

void kernel_run(const struct device *d, const struct kernel *k, struct kernel_time *t);
/* The same, added `times` times to a sum: fixed part to BOUND_OVERHEAD, the rest to its bound. */
void kernel_add(const struct device *d, const struct kernel *k, double times, struct cost *sum);

/* Cycles of `units` matrix units of dim x dim for (m x k)(k x n). Weights are double-buffered: a
 * tile costs the longer of its rows and the weight load (load_rows cycles); with fewer tiles than
 * units the rows are shared out as well. eff: share of the peak at which rows stream; a weight load
 * has its own pace. mxu_cycles has load_rows = dim, eff = 1 and adds the skew of the first tile;
 * kernels leave it out, since their fixed cost holds it. */
double mxu_fold_cycles(int64_t dim, double units, int64_t row_pad, int64_t load_rows, double eff,
                       int64_t m, int64_t n, int64_t k);
double mxu_cycles(int64_t dim, double units, int64_t row_pad, int64_t m, int64_t n, int64_t k);

/* SCALE-Sim's stall-free cycles (its COMPUTE_REPORT "Total Cycles"), no overlap between folds: the
 * reference that tests compare with; no time of this backend comes from it. */
enum dataflow { DATAFLOW_WS, DATAFLOW_IS, DATAFLOW_OS };
int64_t scalesim_cycles(enum dataflow f, int64_t rows, int64_t cols, int64_t m, int64_t n,
                        int64_t k);

/* x rounded up to a multiple of unit; ceil(x / unit). */
static inline int64_t ceil_div(int64_t x, int64_t unit) {
    return (x + unit - 1) / unit;
}
static inline int64_t round_up(int64_t x, int64_t unit) {
    return ceil_div(x, unit) * unit;
}

/* Vector operations an element costs. Classes (cheap, medium, expensive): Pallas TPU docs. The
 * numbers are estimates; VPU_SIN and VPU_LAYERNORM were set while looking at published v6e rope and
 * v4 layer-norm rows, so those rows do not test them. */
enum {
    VPU_CHEAP = 1, /* add mul max select compare convert */
    VPU_DIV = 4,
    VPU_EXP = 8, /* also tanh, sigmoid's inner part */
    VPU_RSQRT = 4,
    VPU_SIN = 60,
    VPU_SOFTMAX = 12,   /* max, subtract, exp, sum, scale */
    VPU_LAYERNORM = 16, /* mean, variance, normalise, scale, shift; lane reductions */
    VPU_RMSNORM = 6,    /* square, add, rsqrt's share, two mul, convert */
    VPU_ROPE = 6,       /* four mul, two add an element pair, converts; tables precomputed */
    VPU_QUANTIZE = 3,   /* running maximum, scale, convert */
    VPU_SWIGLU = 16,    /* exp, division, two mul, converts */
};

#endif
