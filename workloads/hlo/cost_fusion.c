/* Convolutions and fusions: the two prices that look deeper. */
#include "workloads/hlo/cost_internal.h"

#include "harness/core/int128.h"

/* ---- convolution ---- */

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* Which outputs of a tap fall on an input and not between two: o·stride + shift ≡ 0 (mod ld). */
struct residue {
    int64_t gcd, period; /* of the outputs that do, when gcd divides shift */
    int64_t inverse;     /* of stride/gcd, modulo period */
};

static struct residue residue_of(const struct hlo_window_dim *w) {
    int64_t a = w->stride, b = w->lhs_dilate, u = 1, v = 0; /* a = u·stride (mod ld) */
    while (b) {
        int64_t q = a / b, t = a - q * b;
        a = b;
        b = t;
        t = u - q * v;
        u = v;
        v = t;
    }
    struct residue r = {a, w->lhs_dilate / a, 0};
    r.inverse = u % r.period;
    r.inverse += r.inverse < 0 ? r.period : 0;
    return r;
}

/* Outputs 0 ≤ o < O for which a tap reads an input, not padding nor a hole:
 * u = o·stride + shift is a multiple of ld and 0 ≤ u/ld < I. */
static int64_t outputs_of_tap(const struct hlo_window_dim *w, const struct residue *r,
                              int64_t shift, int64_t inputs, int64_t outputs) {
    int64_t top = (inputs - 1) * w->lhs_dilate;
    int64_t lo = -floor_div(shift, w->stride), hi = floor_div(top - shift, w->stride);
    if (lo < 0)
        lo = 0;
    if (hi > outputs - 1)
        hi = outputs - 1;
    if (lo > hi || shift % r->gcd)
        return 0;
    int64_t first = -(shift / r->gcd) % r->period;
    first += first < 0 ? r->period : 0;
    first = (int64_t)((i128)first * r->inverse % r->period);
    /* how many of first, first + period, … lie in [lo, hi] */
    return floor_div(hi - first, r->period) - floor_div(lo - 1 - first, r->period);
}

enum { TAPS_MAX = 1 << 22 };

/* Pairs of tap and output that read an input. shift = k·rd - pad_low. */
static int64_t valid_positions(struct pricing *x, const struct hlo_window_dim *w, int64_t inputs,
                               int64_t kernel, int64_t outputs) {
    int64_t sum = 0, reach;
    /* keep all products below 2^63 */
    if (inputs < 0 || kernel < 0 || outputs < 0) {
        x->unknown = true;
        return 0;
    }
    if (__builtin_mul_overflow(inputs, w->lhs_dilate, &reach) ||
        __builtin_mul_overflow(outputs, w->stride, &reach) ||
        __builtin_mul_overflow(kernel, w->rhs_dilate, &reach) || reach > INT64_MAX / 4 ||
        w->pad_low > INT64_MAX / 4 || w->pad_low < -(INT64_MAX / 4) || w->stride > INT64_MAX / 4 ||
        inputs * w->lhs_dilate > INT64_MAX / 4 || outputs * w->stride > INT64_MAX / 4) {
        x->overflow = true;
        return 0;
    }
    if (!inputs || !outputs)
        return 0;
    if (kernel > TAPS_MAX) {
        x->unknown = true; /* a window no program has */
        return 0;
    }
    const struct residue r = residue_of(w);
    for (int64_t k = 0; k < kernel; k++)
        sum = add(x, sum, outputs_of_tap(w, &r, k * w->rhs_dilate - w->pad_low, inputs, outputs));
    return sum;
}

static int64_t count_attr(const struct pricing *x, const struct hlo_instr *i, enum hlo_key key) {
    struct str s;
    int64_t n;
    return hlo_attr(x->m, x->c, i, key, &s) && hlo_int(s, &n) && n > 0 ? n : 1;
}

static int64_t dim(struct pricing *x, const struct hlo_shape *s, int d) {
    if (s->dims[d] < 0)
        x->unknown = true;
    return s->dims[d] < 0 ? 0 : s->dims[d];
}

int64_t convolution_flops(struct pricing *x, const struct hlo_instr *i,
                          const struct hlo_shape *result) {
    struct hlo_window_dim w[HLO_RANK_MAX];
    struct hlo_dim_labels l;
    struct str s;
    size_t n = 0;
    const struct hlo_shape *lhs = operand(x, i, 0)->shape, *rhs = operand(x, i, 1)->shape;
    bool ok = hlo_attr(x->m, x->c, i, HLO_KEY_DIM_LABELS, &s) && hlo_dim_labels(s, &l);
    if (ok && hlo_attr(x->m, x->c, i, HLO_KEY_WINDOW, &s))
        ok = hlo_window(s, w, HLO_RANK_MAX, &n);
    if (!ok || n != (size_t)l.nspatial || lhs->rank != l.nspatial + 2 || rhs->rank != lhs->rank ||
        result->rank != lhs->rank) {
        x->unknown = true; /* of a custom call only: a convolution was checked */
        return 0;
    }
    int64_t flops =
        mul(x, 2, dim(x, lhs, l.feature) / count_attr(x, i, HLO_KEY_FEATURE_GROUP_COUNT));
    flops = mul(x, flops, dim(x, result, l.out_feature));
    flops = mul(x, flops, dim(x, lhs, l.batch) / count_attr(x, i, HLO_KEY_BATCH_GROUP_COUNT));
    for (size_t d = 0; d < n; d++)
        flops =
            mul(x, flops,
                valid_positions(x, &w[d], lhs->dims[l.spatial[d]], rhs->dims[l.kernel_spatial[d]],
                                result->dims[l.out_spatial[d]]));
    return x->unknown ? 0 : flops;
}

void price_convolution(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    out->v[HLO_FLOPS] = out->v[HLO_CONVOLUTION_FLOPS] = convolution_flops(x, i, i->shape);
    out->v[HLO_BYTES] = default_bytes(x, i);
}

/* ---- fusion ---- */

/* What a fused computation reads of its parameters, reads[number] each: a slice reads its result,
 * the array that an update changes is not read, a broadcast or reshape reads it anew, all others
 * share one read; an inner fusion reads what its own parameter is read. And its constants that are
 * arrays. */
void fused_reads(struct pricing *x, struct fused *f) {
    const struct hlo_computation *c = x->c;
    f->constants = 0;
    for (uint32_t k = 0; k < c->n; k++) {
        const struct hlo_instr *user = &c->instrs[k];
        uint32_t inner =
            user->opcode == HLO_FUSION ? hlo_callee(c, user, HLO_KEY_CALLS) : UINT32_MAX;
        if (user->opcode == HLO_CONSTANT && user->shape->count > 1)
            f->constants = add(x, f->constants, bytes_of(x, user->shape));
        if (inner != UINT32_MAX)
            f->constants = add(x, f->constants, x->a->fused[x->rule][inner].constants);
        for (uint32_t o = 0; o < user->noperands; o++) {
            const struct hlo_instr *p = hlo_operand(c, user, o);
            if (p->opcode != HLO_PARAMETER)
                continue;
            int64_t *reads = &f->reads[p->value];
            if (inner != UINT32_MAX)
                *reads = add(x, *reads, x->a->fused[x->rule][inner].reads[o]);
            else if (user->opcode == HLO_SLICE || (user->opcode == HLO_DYNAMIC_SLICE && !o))
                *reads = add(x, *reads, bytes_of(x, user->shape));
            else if (user->opcode == HLO_BROADCAST || user->opcode == HLO_RESHAPE)
                *reads = add(x, *reads, bytes_of(x, p->shape));
            else if ((user->opcode != HLO_DYNAMIC_UPDATE_SLICE || hlo_operand(c, user, 0) != p) &&
                     !f->shared[p->value]) {
                f->shared[p->value] = 1;
                *reads = add(x, *reads, bytes_of(x, p->shape));
            }
        }
    }
}

/* An output that is an update in place is written where it changes. */
static int64_t written_bytes(struct pricing *x, const struct hlo_computation *c,
                             const struct hlo_instr *i) {
    return leaf_bytes_of(x, i->opcode == HLO_DYNAMIC_UPDATE_SLICE ? hlo_operand(c, i, 1)->shape
                                                                  : i->shape);
}

void price_fusion(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    uint32_t callee = hlo_callee(x->c, i, HLO_KEY_CALLS);
    const struct hlo_computation *c = &x->m->computations[callee];
    const struct hlo_instr *root = &c->instrs[c->root];
    const struct fused *f = &x->a->fused[x->rule][callee];
    *out = x->a->total[x->rule][callee];
    int64_t bytes = f->constants;
    if (root->opcode == HLO_TUPLE)
        for (uint32_t k = 0; k < root->noperands; k++)
            bytes = add(x, bytes, written_bytes(x, c, hlo_operand(c, root, k)));
    else
        bytes = add(x, bytes, written_bytes(x, c, root));
    for (uint32_t k = 0; k < c->nparameters; k++)
        bytes = add(x, bytes, f->reads[k]);
    out->v[HLO_BYTES] = bytes;
}
