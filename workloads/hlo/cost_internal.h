/* Pricing, inside. */
#ifndef WORKLOADS_HLO_COST_INTERNAL_H
#define WORKLOADS_HLO_COST_INTERNAL_H

#include "harness/core/arena.h"
#include "workloads/hlo/cost.h"

/* Of a computation that a fusion calls. */
struct fused {
    int64_t *reads;  /* bytes, a parameter each; NULL: no fusion calls it */
    uint8_t *shared; /* the one read that most users share has been counted */
    int64_t constants;
};

struct analysis {
    struct hlo_analysis pub;
    struct arena arena;
    struct hlo_cost *total[HLO_RULES];
    struct fused *fused[HLO_RULES];
    struct hlo_loop *loops;
    int64_t *multiplicity;
};

/* One instruction being priced. Arithmetic that overflows sets the flag and goes on with 0; a shape
 * of unknown size makes the op unknown. */
struct pricing {
    const struct analysis *a;
    const struct hlo_module *m;
    const struct hlo_computation *c;
    enum hlo_rule rule;
    bool overflow, unknown;
};

typedef void price_fn(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out);

static inline int64_t mul(struct pricing *x, int64_t a, int64_t b) {
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r)) {
        x->overflow = true;
        return 0;
    }
    return r;
}
static inline int64_t add(struct pricing *x, int64_t a, int64_t b) {
    int64_t r;
    if (__builtin_add_overflow(a, b, &r)) {
        x->overflow = true;
        return 0;
    }
    return r;
}
/* out += n times in, property by property. */
void hlo_cost_add(struct pricing *x, struct hlo_cost *out, const struct hlo_cost *in, int64_t n);

/* Elements and bytes; 0 and `unknown` when the shape has no size. */
int64_t count_of(struct pricing *x, const struct hlo_shape *s);
int64_t bytes_of(struct pricing *x, const struct hlo_shape *s);
int64_t leaf_bytes_of(struct pricing *x, const struct hlo_shape *s);
/* B(out) + sum of B(operands). */
int64_t default_bytes(struct pricing *x, const struct hlo_instr *i);

static inline const struct hlo_instr *operand(const struct pricing *x, const struct hlo_instr *i,
                                              uint32_t n) {
    return hlo_operand(x->c, i, n);
}
const struct hlo_cost *callee_cost(const struct pricing *x, const struct hlo_instr *i,
                                   enum hlo_key key); /* NULL: none */

extern price_fn *const hlo_prices[HLO_CLASSES];
price_fn price_convolution, price_collective, price_fusion, price_custom_call;
void fused_reads(struct pricing *x, struct fused *f);
/* Flops of a convolution with this result. */
int64_t convolution_flops(struct pricing *x, const struct hlo_instr *i,
                          const struct hlo_shape *result);

/* trips.c: how often the while runs its body, -1: not known. */
int64_t loop_trips(const struct hlo_module *m, uint32_t computation, const struct hlo_instr *i,
                   bool *told);

#endif
