/* The price of an op that stands alone, one function a class. Formulas: openxla/xla
 * `xla/service/hlo_cost_analysis.cc`; where the model rule differs the function says why. */
#include "workloads/hlo/cost_internal.h"

#include <string.h>

/* ---- the bricks ---- */

int64_t count_of(struct pricing *x, const struct hlo_shape *s) {
    if (s->count >= 0)
        return s->count;
    x->unknown = true;
    return 0;
}

int64_t leaf_bytes_of(struct pricing *x, const struct hlo_shape *s) {
    if (s->bytes >= 0)
        return s->bytes;
    x->unknown = true;
    return 0;
}

int64_t bytes_of(struct pricing *x, const struct hlo_shape *s) {
    enum { POINTER_BYTES = 8 };
    if (x->rule == HLO_RULE_XLA && s->dtype == HLO_TUPLE_TYPE)
        return (int64_t)s->nelements * POINTER_BYTES;
    return leaf_bytes_of(x, s);
}

int64_t default_bytes(struct pricing *x, const struct hlo_instr *i) {
    int64_t sum = bytes_of(x, i->shape);
    for (uint32_t k = 0; k < i->noperands; k++)
        sum = add(x, sum, bytes_of(x, operand(x, i, k)->shape));
    return sum;
}

void hlo_cost_add(struct pricing *x, struct hlo_cost *out, const struct hlo_cost *in, int64_t n) {
    for (int k = 0; k < HLO_PROPERTIES; k++)
        out->v[k] = add(x, out->v[k], mul(x, in->v[k], n));
}

const struct hlo_cost *callee_cost(const struct pricing *x, const struct hlo_instr *i,
                                   enum hlo_key key) {
    uint32_t k = hlo_callee(x->c, i, key);
    return k == UINT32_MAX ? NULL : &x->a->total[x->rule][k];
}

/* Flops and transcendentals of an embedded computation, n times; its bytes stay in registers. */
static void apply(struct pricing *x, const struct hlo_instr *i, enum hlo_key key, int64_t n,
                  struct hlo_cost *out) {
    const struct hlo_cost *body = callee_cost(x, i, key);
    if (!body)
        return;
    x->unknown |= body->v[HLO_UNKNOWN_OPS] != 0;
    out->v[HLO_FLOPS] = add(x, out->v[HLO_FLOPS], mul(x, body->v[HLO_FLOPS], n));
    out->v[HLO_TRANSCENDENTALS] =
        add(x, out->v[HLO_TRANSCENDENTALS], mul(x, body->v[HLO_TRANSCENDENTALS], n));
}

static const struct hlo_shape *first_array(const struct hlo_shape *s) {
    while (s->dtype == HLO_TUPLE_TYPE && s->nelements)
        s = s->elements[0];
    return s;
}

static int64_t ceil_log2(int64_t n) {
    return n <= 1 ? 0 : 64 - __builtin_clzll((unsigned long long)n - 1);
}

/* ---- elementwise, moves ---- */

static void price_elementwise(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    out->v[HLO_FLOPS] = count_of(x, i->shape);
    out->v[HLO_BYTES] = default_bytes(x, i);
}

/* The model charges arithmetic; a choice or a change of type is none. */
static void price_selection(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    out->v[HLO_FLOPS] = x->rule == HLO_RULE_XLA ? count_of(x, i->shape) : 0;
    out->v[HLO_BYTES] = default_bytes(x, i);
}

static void price_transcendental(struct pricing *x, const struct hlo_instr *i,
                                 struct hlo_cost *out) {
    out->v[HLO_TRANSCENDENTALS] = count_of(x, i->shape);
    out->v[HLO_BYTES] = default_bytes(x, i);
}

static void price_move(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    out->v[HLO_BYTES] = default_bytes(x, i);
}

static bool row_major(const struct hlo_shape *s) {
    for (int k = 0; k < s->rank; k++)
        if (s->minor_to_major[k] != s->rank - 1 - k)
            return false;
    return true;
}

/* Does the result name the same bytes in the same order? */
static bool is_bitcast(const struct pricing *x, const struct hlo_instr *i) {
    const struct hlo_shape *in = operand(x, i, 0)->shape, *out = i->shape;
    int64_t order[HLO_RANK_MAX];
    struct str s;
    size_t n;
    if (in->dtype != out->dtype || in->layout.n || out->layout.n)
        return false;
    if (i->opcode == HLO_RESHAPE)
        return row_major(in) && row_major(out);
    if (!hlo_attr(x->m, x->c, i, HLO_KEY_DIMENSIONS, &s) || !hlo_ints(s, order, HLO_RANK_MAX, &n) ||
        n != in->rank || n != out->rank)
        return false;
    for (size_t k = 0; k < n; k++)
        if (order[out->minor_to_major[k]] != in->minor_to_major[k])
            return false;
    return true;
}

/* XLA prices every reshape as a copy; the model not one that moves nothing. */
static void price_relayout(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    bool may_be_free = x->rule == HLO_RULE_MODEL || i->opcode == HLO_TRANSPOSE;
    if (!may_be_free || !is_bitcast(x, i))
        out->v[HLO_BYTES] = default_bytes(x, i);
}

static void price_free(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    (void)x, (void)i, (void)out;
}

/* What XLA prices as a move of pointers and the model as nothing. */
static void price_pointers(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    if (x->rule == HLO_RULE_XLA)
        out->v[HLO_BYTES] = i->opcode == HLO_TUPLE ? bytes_of(x, i->shape) : default_bytes(x, i);
}

/* ---- matrix products ---- */

/* 2 · n(out) · the contracted sizes of the left. */
static int64_t dot_flops(struct pricing *x, const struct hlo_instr *i, int64_t outputs) {
    int64_t dims[HLO_RANK_MAX], flops = mul(x, 2, outputs);
    const struct hlo_shape *lhs = operand(x, i, 0)->shape;
    struct str s;
    size_t n;
    if (!hlo_attr(x->m, x->c, i, HLO_KEY_LHS_CONTRACTING_DIMS, &s) ||
        !hlo_ints(s, dims, HLO_RANK_MAX, &n))
        return flops;
    for (size_t k = 0; k < n; k++) {
        if (lhs->dims[dims[k]] < 0)
            x->unknown = true;
        else
            flops = mul(x, flops, lhs->dims[dims[k]]);
    }
    return x->unknown ? 0 : flops;
}

static void price_dot(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    out->v[HLO_FLOPS] = out->v[HLO_DOT_FLOPS] = dot_flops(x, i, count_of(x, i->shape));
    out->v[HLO_BYTES] = default_bytes(x, i);
}

/* Each row is used once. Where the ragged dimension is the contracted one the result has a group
 * dimension in front, which does not multiply the work. */
static void price_ragged_dot(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    int64_t ragged[HLO_RANK_MAX], contracted[HLO_RANK_MAX], outputs = count_of(x, i->shape);
    struct str r, c;
    size_t nr, nc;
    bool both = hlo_attr(x->m, x->c, i, HLO_KEY_LHS_RAGGED_DIMS, &r) &&
                hlo_attr(x->m, x->c, i, HLO_KEY_LHS_CONTRACTING_DIMS, &c) &&
                hlo_ints(r, ragged, HLO_RANK_MAX, &nr) &&
                hlo_ints(c, contracted, HLO_RANK_MAX, &nc);
    for (size_t k = 0; both && nr && k < nc; k++)
        if (contracted[k] == ragged[0] && i->shape->rank && i->shape->dims[0] > 0) {
            outputs /= i->shape->dims[0];
            break;
        }
    out->v[HLO_FLOPS] = dot_flops(x, i, outputs);
    out->v[HLO_BYTES] = default_bytes(x, i);
}

/* ---- ops with a computation inside ---- */

static void price_reduce(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    int64_t n = count_of(x, operand(x, i, 0)->shape) - count_of(x, first_array(i->shape));
    apply(x, i, HLO_KEY_TO_APPLY, n > 0 ? n : 0, out);
    out->v[HLO_BYTES] = default_bytes(x, i);
}

static int64_t window_of(struct pricing *x, const struct hlo_instr *i, struct hlo_window_dim *w,
                         size_t *n) {
    struct str s;
    int64_t product = 1;
    *n = 0;
    if (hlo_attr(x->m, x->c, i, HLO_KEY_WINDOW, &s) && hlo_window(s, w, HLO_RANK_MAX, n))
        for (size_t k = 0; k < *n; k++)
            product = mul(x, product, w[k].size);
    return product;
}

/* A window over all that came before (size 2·pad + 1, pad = dim - 1, in one padded dimension) is a
 * running sum, which XLA charges as a reduce and a broadcast: n(out)/dim + dim - 1 steps. */
static bool is_cumulative(const struct hlo_window_dim *w, size_t n, const struct hlo_shape *out,
                          int64_t *dim) {
    size_t wide = 0, padded = 0, at = 0;
    for (size_t k = 0; k < n; k++) {
        if (w[k].size != 1) {
            wide++;
            at = k;
        }
        padded += w[k].pad_low || w[k].pad_high;
    }
    if (wide != 1 || padded != 1 || at >= out->rank || !w[at].pad_low ||
        w[at].pad_low != w[at].pad_high || w[at].size % 2 == 0 || w[at].size / 2 != w[at].pad_low)
        return false;
    *dim = out->dims[at];
    return w[at].pad_low == *dim - 1;
}

static void price_reduce_window(struct pricing *x, const struct hlo_instr *i,
                                struct hlo_cost *out) {
    struct hlo_window_dim w[HLO_RANK_MAX];
    size_t n;
    int64_t dim, window = window_of(x, i, w, &n), outputs = count_of(x, first_array(i->shape));
    int64_t times = mul(x, window - 1, outputs);
    if (i->shape->dtype < HLO_TUPLE_TYPE && is_cumulative(w, n, i->shape, &dim)) {
        times = outputs / dim + dim - 1;
        x->overflow = false; /* of the product above, which does not count */
    }
    apply(x, i, HLO_KEY_TO_APPLY, times, out);
    out->v[HLO_BYTES] = default_bytes(x, i);
}

static void price_select_and_scatter(struct pricing *x, const struct hlo_instr *i,
                                     struct hlo_cost *out) {
    struct hlo_window_dim w[HLO_RANK_MAX];
    size_t n;
    int64_t window = window_of(x, i, w, &n), source = count_of(x, operand(x, i, 1)->shape);
    apply(x, i, HLO_KEY_SELECT_COMPUTATION, mul(x, source, window - 1), out);
    apply(x, i, HLO_KEY_SCATTER_COMPUTATION, source, out);
    out->v[HLO_BYTES] = default_bytes(x, i);
}

static void price_map(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    apply(x, i, HLO_KEY_TO_APPLY, count_of(x, first_array(i->shape)), out);
    out->v[HLO_BYTES] = default_bytes(x, i);
}

static void price_scan(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    apply(x, i, HLO_KEY_TO_APPLY, count_of(x, operand(x, i, 0)->shape), out);
    out->v[HLO_BYTES] = default_bytes(x, i);
}

/* XLA compares all elements with each other; a sort is along one dimension. */
static void price_sort(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    const struct hlo_shape *s = operand(x, i, 0)->shape;
    int64_t n = count_of(x, s), along = n, dim;
    struct str text;
    size_t k;
    if (x->rule == HLO_RULE_MODEL && s->rank) {
        dim = s->rank - 1;
        if (hlo_attr(x->m, x->c, i, HLO_KEY_DIMENSIONS, &text) &&
            (!hlo_ints(text, &dim, 1, &k) || dim < 0 || dim >= s->rank))
            dim = s->rank - 1;
        along = s->dims[dim];
    }
    out->v[HLO_FLOPS] = mul(x, n, ceil_log2(along));
    out->v[HLO_BYTES] = default_bytes(x, i);
}

static void price_topk(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    struct str text;
    int64_t k;
    if (x->rule == HLO_RULE_MODEL && hlo_attr(x->m, x->c, i, HLO_KEY_K, &text) && hlo_int(text, &k))
        out->v[HLO_FLOPS] = mul(x, count_of(x, operand(x, i, 0)->shape), ceil_log2(k));
    out->v[HLO_BYTES] = default_bytes(x, i);
}

/* ---- linear algebra, random numbers ---- */

static void price_fft(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    enum { FLOPS_PER_STEP = 2 * 4 };
    int64_t length[HLO_RANK_MAX], logs = 1;
    struct str s;
    size_t n;
    if (hlo_attr(x->m, x->c, i, HLO_KEY_FFT_LENGTH, &s) && hlo_ints(s, length, HLO_RANK_MAX, &n))
        for (size_t k = 0; k < n; k++)
            logs = mul(x, logs,
                       length[k] > 1 ? 63 - __builtin_clzll((unsigned long long)length[k]) : 0);
    out->v[HLO_FLOPS] =
        mul(x, mul(x, FLOPS_PER_STEP, logs), count_of(x, first_array(operand(x, i, 0)->shape)));
    out->v[HLO_BYTES] = default_bytes(x, i);
}

static int64_t last_dim(struct pricing *x, const struct hlo_shape *s) {
    int64_t n = s->rank ? s->dims[s->rank - 1] : 0;
    if (n < 0)
        x->unknown = true;
    return n < 0 ? 0 : n;
}

/* Half of A is read, half of the result written. */
static void price_cholesky(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    const struct hlo_shape *a = operand(x, i, 0)->shape;
    out->v[HLO_FLOPS] = mul(x, count_of(x, a), last_dim(x, a)) / 3;
    out->v[HLO_BYTES] = bytes_of(x, a);
}

static void price_triangular_solve(struct pricing *x, const struct hlo_instr *i,
                                   struct hlo_cost *out) {
    const struct hlo_shape *a = operand(x, i, 0)->shape, *b = operand(x, i, 1)->shape;
    out->v[HLO_FLOPS] = mul(x, 2, mul(x, last_dim(x, a), count_of(x, b)));
    out->v[HLO_BYTES] = add(x, bytes_of(x, i->shape), add(x, bytes_of(x, a) / 2, bytes_of(x, b)));
}

/* ---- parts of arrays ---- */

static void price_slice(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    out->v[HLO_BYTES] = mul(x, 2, bytes_of(x, i->shape));
}

/* Bytes of the index operands from `first` on; XLA looks at one of them. */
static int64_t index_bytes(struct pricing *x, const struct hlo_instr *i, uint32_t first) {
    uint32_t end = x->rule == HLO_RULE_XLA && i->noperands > first + 1 ? first + 1 : i->noperands;
    int64_t sum = 0;
    for (uint32_t k = first; k < end; k++)
        sum = add(x, sum, bytes_of(x, operand(x, i, k)->shape));
    return sum;
}

static void price_dynamic_slice(struct pricing *x, const struct hlo_instr *i,
                                struct hlo_cost *out) {
    out->v[HLO_BYTES] = add(x, mul(x, 2, bytes_of(x, i->shape)), index_bytes(x, i, 1));
}

static void price_dynamic_update_slice(struct pricing *x, const struct hlo_instr *i,
                                       struct hlo_cost *out) {
    out->v[HLO_BYTES] =
        add(x, mul(x, 2, bytes_of(x, operand(x, i, 1)->shape)), index_bytes(x, i, 2));
}

static void price_gather(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    out->v[HLO_BYTES] =
        add(x, mul(x, 2, bytes_of(x, i->shape)), bytes_of(x, operand(x, i, 1)->shape));
}

/* Operands: n arrays, the indices, n updates. */
static void price_scatter(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    uint32_t n = (i->noperands - 1) / 2;
    int64_t updates = 0;
    for (uint32_t k = n + 1; k < i->noperands; k++)
        updates = add(x, updates, bytes_of(x, operand(x, i, k)->shape));
    apply(x, i, HLO_KEY_TO_APPLY, count_of(x, operand(x, i, n + 1)->shape), out);
    out->v[HLO_BYTES] = add(x, mul(x, 3, updates), bytes_of(x, operand(x, i, n)->shape));
}

static void price_infeed(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    out->v[HLO_BYTES] = leaf_bytes_of(x, i->shape);
}

static void price_outfeed(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    for (uint32_t k = 0; k < i->noperands; k++)
        out->v[HLO_BYTES] = add(x, out->v[HLO_BYTES], leaf_bytes_of(x, operand(x, i, k)->shape));
}

/* ---- pairs ---- */

/* copy-start reads and writes, send reads, recv writes its first element; XLA charges pointers. */
static void price_transfer(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    if (x->rule == HLO_RULE_XLA)
        out->v[HLO_BYTES] = default_bytes(x, i);
    else if (i->opcode == HLO_COPY_START)
        out->v[HLO_BYTES] = mul(x, 2, leaf_bytes_of(x, operand(x, i, 0)->shape));
    else if (i->opcode == HLO_SEND)
        out->v[HLO_BYTES] = leaf_bytes_of(x, operand(x, i, 0)->shape);
    else if (i->shape->nelements)
        out->v[HLO_BYTES] = leaf_bytes_of(x, i->shape->elements[0]);
}

static void price_done(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    if (x->rule == HLO_RULE_XLA)
        out->v[HLO_BYTES] = default_bytes(x, i);
}

/* ---- control ---- */

static void price_call(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    const struct hlo_cost *body = callee_cost(x, i, HLO_KEY_TO_APPLY);
    if (body)
        *out = *body;
}

static int64_t trips_of(const struct pricing *x, const struct hlo_instr *i) {
    const struct hlo_analysis *a = &x->a->pub;
    uint32_t c = (uint32_t)(x->c - x->m->computations), k = (uint32_t)(i - x->c->instrs);
    uint32_t lo = 0, hi = a->nloops; /* sorted by place */
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        const struct hlo_loop *l = &a->loops[mid];
        if (l->computation < c || (l->computation == c && l->instr < k))
            lo = mid + 1;
        else
            hi = mid;
    }
    return a->loops[lo].trips < 0 ? 1 : a->loops[lo].trips;
}

static void price_while(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    int64_t trips = x->rule == HLO_RULE_XLA ? 1 : trips_of(x, i);
    int64_t tests = x->rule == HLO_RULE_XLA ? 1 : add(x, trips, 1);
    hlo_cost_add(x, out, callee_cost(x, i, HLO_KEY_BODY), trips);
    hlo_cost_add(x, out, callee_cost(x, i, HLO_KEY_CONDITION), tests);
}

static void price_conditional(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    for (uint16_t k = 0; k < i->ncallees; k++) {
        const struct hlo_cost *branch =
            &x->a->total[x->rule][x->c->callees[i->callees + k].computation];
        for (int p = 0; p < HLO_PROPERTIES; p++)
            if (!k || branch->v[p] > out->v[p])
                out->v[p] = branch->v[p];
    }
}

/* The wrapped computation; without one the op that X-start stands for, with its own result: the
 * second element of ((operands), result, context). */
static void price_async(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    const struct hlo_cost *body = callee_cost(x, i, HLO_KEY_CALLS);
    if (body) {
        *out = *body;
        return;
    }
    struct hlo_instr plain = *i;
    plain.opcode = (uint16_t)hlo_instr_wrapped(x->m, x->c, i);
    if (plain.shape->dtype == HLO_TUPLE_TYPE && plain.shape->nelements > 1)
        plain.shape = plain.shape->elements[1];
    enum hlo_class class = hlo_opcode_class((enum hlo_opcode)plain.opcode);
    if (class == HLO_CLASS_ASYNC || class == HLO_CLASS_WHILE || class == HLO_CLASS_FUSION)
        x->unknown = true;
    else
        hlo_prices[class](x, &plain, out);
}

static void price_unknown(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    out->v[HLO_BYTES] = default_bytes(x, i);
    x->unknown = true;
}

price_fn *const hlo_prices[HLO_CLASSES] = {
    [HLO_CLASS_UNKNOWN] = price_unknown,
    [HLO_CLASS_ELEMENTWISE] = price_elementwise,
    [HLO_CLASS_SELECTION] = price_selection,
    [HLO_CLASS_TRANSCENDENTAL] = price_transcendental,
    [HLO_CLASS_MOVE] = price_move,
    [HLO_CLASS_RELAYOUT] = price_relayout,
    [HLO_CLASS_FREE] = price_free,
    [HLO_CLASS_POINTERS] = price_pointers,
    [HLO_CLASS_DOT] = price_dot,
    [HLO_CLASS_RAGGED_DOT] = price_ragged_dot,
    [HLO_CLASS_CONVOLUTION] = price_convolution,
    [HLO_CLASS_REDUCE] = price_reduce,
    [HLO_CLASS_REDUCE_WINDOW] = price_reduce_window,
    [HLO_CLASS_SELECT_AND_SCATTER] = price_select_and_scatter,
    [HLO_CLASS_MAP] = price_map,
    [HLO_CLASS_SCAN] = price_scan,
    [HLO_CLASS_SORT] = price_sort,
    [HLO_CLASS_TOPK] = price_topk,
    [HLO_CLASS_FFT] = price_fft,
    [HLO_CLASS_CHOLESKY] = price_cholesky,
    [HLO_CLASS_TRIANGULAR_SOLVE] = price_triangular_solve,
    [HLO_CLASS_RNG] = price_transcendental,
    [HLO_CLASS_SLICE] = price_slice,
    [HLO_CLASS_DYNAMIC_SLICE] = price_dynamic_slice,
    [HLO_CLASS_DYNAMIC_UPDATE_SLICE] = price_dynamic_update_slice,
    [HLO_CLASS_GATHER] = price_gather,
    [HLO_CLASS_SCATTER] = price_scatter,
    [HLO_CLASS_INFEED] = price_infeed,
    [HLO_CLASS_OUTFEED] = price_outfeed,
    [HLO_CLASS_COLLECTIVE] = price_collective,
    [HLO_CLASS_TRANSFER] = price_transfer,
    [HLO_CLASS_DONE] = price_done,
    [HLO_CLASS_ASYNC] = price_async,
    [HLO_CLASS_FUSION] = price_fusion,
    [HLO_CLASS_CALL] = price_call,
    [HLO_CLASS_WHILE] = price_while,
    [HLO_CLASS_CONDITIONAL] = price_conditional,
    [HLO_CLASS_CUSTOM_CALL] = price_custom_call,
};
