/* What an instruction must have so that it can be priced: operands in number, computations,
 * dimensions that exist and agree; and the shape of one that was written without. One row an
 * opcode. */
#include "workloads/hlo/hlo_internal.h"

static bool check_arity(struct parser *p, const struct hlo_instr *i, const char *at) {
    int least, most;
    hlo_opcode_arity((enum hlo_opcode)i->opcode, &least, &most);
    int64_t n = i->noperands;
    if (n >= least && (most < 0 || n <= most))
        return true;
    const char *name = hlo_opcode_name((enum hlo_opcode)i->opcode);
    if (least == most)
        return parse_fail(p, at, "expected %d operands of '%s', found %u", least, name,
                          i->noperands);
    return parse_fail(p, at, "expected at least %d operands of '%s', found %u", least, name,
                      i->noperands);
}

/* ---- which computations an op calls ---- */
static const struct {
    enum hlo_opcode opcode;
    enum hlo_key keys[2]; /* both, HLO_KEY_OTHER: none */
} callee_rows[] = {
    {HLO_ALL_REDUCE, {HLO_KEY_TO_APPLY}},
    {HLO_ALL_REDUCE_START, {HLO_KEY_TO_APPLY}},
    {HLO_CALL, {HLO_KEY_TO_APPLY}},
    {HLO_FUSION, {HLO_KEY_CALLS}},
    {HLO_MAP, {HLO_KEY_TO_APPLY}},
    {HLO_REDUCE, {HLO_KEY_TO_APPLY}},
    {HLO_REDUCE_SCATTER, {HLO_KEY_TO_APPLY}},
    {HLO_REDUCE_WINDOW, {HLO_KEY_TO_APPLY}},
    {HLO_SCAN, {HLO_KEY_TO_APPLY}},
    {HLO_SCATTER, {HLO_KEY_TO_APPLY}},
    {HLO_SELECT_AND_SCATTER, {HLO_KEY_SELECT_COMPUTATION, HLO_KEY_SCATTER_COMPUTATION}},
    {HLO_SORT, {HLO_KEY_TO_APPLY}},
    {HLO_WHILE, {HLO_KEY_BODY, HLO_KEY_CONDITION}},
};

static const char *key_name(enum hlo_key key) {
    for (size_t i = 0; i < hlo_nkey_words; i++)
        if (hlo_key_words[i].id == key)
            return hlo_key_words[i].text;
    return "";
}

static bool check_callees(struct parser *p, const struct hlo_computation *c,
                          const struct hlo_instr *i, const char *at) {
    for (size_t r = 0; r < sizeof callee_rows / sizeof *callee_rows; r++) {
        if (callee_rows[r].opcode != i->opcode)
            continue;
        for (size_t k = 0; k < 2 && callee_rows[r].keys[k]; k++)
            if (hlo_callee(c, i, callee_rows[r].keys[k]) == UINT32_MAX)
                return parse_fail(p, at, "expected the attribute '%s' of '%s'",
                                  key_name(callee_rows[r].keys[k]),
                                  hlo_opcode_name((enum hlo_opcode)i->opcode));
    }
    return true;
}

/* The arguments are the callee's parameters, one by one. */
static bool check_arguments(struct parser *p, const struct hlo_module *m,
                            const struct hlo_computation *c, const struct hlo_instr *i,
                            const char *at) {
    enum hlo_key key = i->opcode == HLO_CALL ? HLO_KEY_TO_APPLY : HLO_KEY_CALLS;
    const struct hlo_computation *callee = &m->computations[hlo_callee(c, i, key)];
    if (callee->nparameters == i->noperands)
        return true;
    return parse_fail(p, at, "expected %u operands, as '%.*s' has parameters, found %u",
                      callee->nparameters, callee->name.n > 80 ? 80 : (int)callee->name.n,
                      callee->name.p, i->noperands);
}

static bool check_while(struct parser *p, const struct hlo_module *m,
                        const struct hlo_computation *c, const struct hlo_instr *i,
                        const char *at) {
    for (int k = 0; k < 2; k++) {
        enum hlo_key key = k ? HLO_KEY_CONDITION : HLO_KEY_BODY;
        if (m->computations[hlo_callee(c, i, key)].nparameters != 1)
            return parse_fail(p, at, "expected a %s of one parameter, found %u", key_name(key),
                              m->computations[hlo_callee(c, i, key)].nparameters);
    }
    return true;
}

static bool check_conditional(struct parser *p, const struct hlo_module *m,
                              const struct hlo_computation *c, const struct hlo_instr *i,
                              const char *at) {
    (void)m, (void)c;
    return i->ncallees || parse_fail(p, at,
                                     "expected 'branch_computations', or 'true_computation' "
                                     "and 'false_computation', of 'conditional'");
}

static bool check_element(struct parser *p, const struct hlo_module *m,
                          const struct hlo_computation *c, const struct hlo_instr *i,
                          const char *at) {
    (void)m;
    const struct hlo_shape *s = hlo_operand(c, i, 0)->shape;
    if (!(i->flags & HLO_INSTR_HAS_VALUE))
        return parse_fail(p, at, "expected the attribute 'index' of 'get-tuple-element'");
    if (s->dtype != HLO_TUPLE_TYPE)
        return parse_fail(p, at, "expected an operand that is a tuple, found an array");
    if (i->value < 0 || i->value >= s->nelements)
        return parse_fail(p, at, "expected an index of a tuple of %u, found %lld", s->nelements,
                          (long long)i->value);
    if (!hlo_shape_same(i->shape, s->elements[i->value]))
        return parse_fail(p, at, "expected the shape of element %lld of the tuple, found another",
                          (long long)i->value);
    return true;
}

/* ---- dots ---- */

struct dot_dims {
    int64_t lhs_batch[HLO_RANK_MAX], rhs_batch[HLO_RANK_MAX];
    int64_t lhs[HLO_RANK_MAX], rhs[HLO_RANK_MAX]; /* contracted */
    size_t nbatch, ncontracted;
};

static bool dims_of(struct parser *p, const struct hlo_module *m, const struct hlo_computation *c,
                    const struct hlo_instr *i, enum hlo_key key, uint32_t operand, int64_t *dims,
                    size_t *n, const char *at) {
    struct str s;
    const struct hlo_shape *shape = hlo_operand(c, i, operand)->shape;
    uint64_t seen = 0;
    *n = 0;
    if (!hlo_attr(m, c, i, key, &s))
        return true;
    if (!hlo_ints(s, dims, HLO_RANK_MAX, n))
        return parse_expected(p, s.p, "dimensions like {0,1}");
    for (size_t k = 0; k < *n; k++) {
        if (dims[k] < 0 || dims[k] >= shape->rank)
            return parse_fail(p, s.p, "expected a dimension of an operand of %d, found %lld",
                              shape->rank, (long long)dims[k]);
        if (seen >> dims[k] & 1)
            return parse_fail(p, s.p, "expected each dimension once, found %lld again",
                              (long long)dims[k]);
        seen |= UINT64_C(1) << dims[k];
    }
    return at != NULL;
}

static bool same_sizes(struct parser *p, const struct hlo_computation *c, const struct hlo_instr *i,
                       const int64_t *lhs, const int64_t *rhs, size_t nlhs, size_t nrhs,
                       const char *what, const char *at) {
    const struct hlo_shape *a = hlo_operand(c, i, 0)->shape, *b = hlo_operand(c, i, 1)->shape;
    if (nlhs != nrhs)
        return parse_fail(p, at,
                          "expected as many %s dimensions of the left as of the right, found "
                          "%zu and %zu",
                          what, nlhs, nrhs);
    for (size_t k = 0; k < nlhs; k++)
        if (a->dims[lhs[k]] != b->dims[rhs[k]] && a->dims[lhs[k]] >= 0 && b->dims[rhs[k]] >= 0)
            return parse_fail(p, at, "expected %s dimensions of one size, found %lld and %lld",
                              what, (long long)a->dims[lhs[k]], (long long)b->dims[rhs[k]]);
    return true;
}

static bool read_dot(struct parser *p, const struct hlo_module *m, const struct hlo_computation *c,
                     const struct hlo_instr *i, const char *at, struct dot_dims *d) {
    size_t nrhs, nrhs_batch;
    if (hlo_operand(c, i, 0)->shape->dtype >= HLO_TUPLE_TYPE ||
        hlo_operand(c, i, 1)->shape->dtype >= HLO_TUPLE_TYPE)
        return parse_fail(p, at, "expected operands that are arrays");
    return dims_of(p, m, c, i, HLO_KEY_LHS_BATCH_DIMS, 0, d->lhs_batch, &d->nbatch, at) &&
           dims_of(p, m, c, i, HLO_KEY_RHS_BATCH_DIMS, 1, d->rhs_batch, &nrhs_batch, at) &&
           dims_of(p, m, c, i, HLO_KEY_LHS_CONTRACTING_DIMS, 0, d->lhs, &d->ncontracted, at) &&
           dims_of(p, m, c, i, HLO_KEY_RHS_CONTRACTING_DIMS, 1, d->rhs, &nrhs, at) &&
           same_sizes(p, c, i, d->lhs_batch, d->rhs_batch, d->nbatch, nrhs_batch, "batch", at) &&
           same_sizes(p, c, i, d->lhs, d->rhs, d->ncontracted, nrhs, "contracted", at);
}

static bool check_dot(struct parser *p, const struct hlo_module *m, const struct hlo_computation *c,
                      const struct hlo_instr *i, const char *at) {
    struct dot_dims d;
    return read_dot(p, m, c, i, at, &d);
}

/* ---- convolutions, collectives ---- */

static bool check_convolution(struct parser *p, const struct hlo_module *m,
                              const struct hlo_computation *c, const struct hlo_instr *i,
                              const char *at) {
    struct hlo_window_dim window[HLO_RANK_MAX];
    struct hlo_dim_labels l;
    struct str s;
    size_t n = 0;
    int64_t v;
    if (!hlo_attr(m, c, i, HLO_KEY_DIM_LABELS, &s))
        return parse_fail(p, at, "expected the attribute 'dim_labels' of 'convolution'");
    if (!hlo_dim_labels(s, &l))
        return parse_expected(p, s.p, "dimension labels like b01f_01io->b01f");
    if (hlo_attr(m, c, i, HLO_KEY_WINDOW, &s) && !hlo_window(s, window, HLO_RANK_MAX, &n))
        return parse_expected(p, s.p, "a window like {size=3x3 pad=1_1x1_1}");
    const int rank = l.nspatial + 2;
    if (n != (size_t)l.nspatial || hlo_operand(c, i, 0)->shape->rank != rank ||
        hlo_operand(c, i, 1)->shape->rank != rank || i->shape->rank != rank)
        return parse_fail(p, at,
                          "expected a window of %d dimensions and arrays of %d, as the labels "
                          "say",
                          l.nspatial, rank);
    static const enum hlo_key counts[] = {HLO_KEY_FEATURE_GROUP_COUNT, HLO_KEY_BATCH_GROUP_COUNT};
    for (size_t k = 0; k < 2; k++)
        if (hlo_attr(m, c, i, counts[k], &s) && (!hlo_int(s, &v) || v < 1))
            return parse_expected(p, s.p, "a count >= 1");
    return true;
}

static bool check_window(struct parser *p, const struct hlo_module *m,
                         const struct hlo_computation *c, const struct hlo_instr *i,
                         const char *at) {
    struct hlo_window_dim window[HLO_RANK_MAX];
    struct str s;
    size_t n;
    if (!hlo_attr(m, c, i, HLO_KEY_WINDOW, &s))
        return parse_fail(p, at, "expected the attribute 'window' of '%s'",
                          hlo_opcode_name((enum hlo_opcode)i->opcode));
    return hlo_window(s, window, HLO_RANK_MAX, &n) ||
           parse_expected(p, s.p, "a window like {size=3x3 pad=1_1x1_1}");
}

static bool check_collective(struct parser *p, const struct hlo_module *m,
                             const struct hlo_computation *c, const struct hlo_instr *i,
                             const char *at) {
    struct hlo_groups g;
    struct err e = {0};
    struct str s;
    (void)at;
    if (hlo_groups(m, c, i, &g, &e))
        return parse_fail(p, g.text.p, "%s", e.text);
    if (hlo_attr(m, c, i, HLO_KEY_SOURCE_TARGET_PAIRS, &s) && hlo_pairs(s, NULL, 0) < 0)
        return parse_expected(p, s.p, "pairs like {{0,1},{1,2}}");
    return true;
}

/* The first operands must be arrays of the needed rank, so that the prices can be reckoned. */
static bool check_first(struct parser *p, const struct hlo_computation *c,
                        const struct hlo_instr *i, const char *at) {
    const struct hlo_shape *s = hlo_operand(c, i, 0)->shape;
    return s->rank > 0 ||
           parse_fail(p, at, "expected an array of one dimension or more as operand of '%s'",
                      hlo_opcode_name((enum hlo_opcode)i->opcode));
}

static bool check_square(struct parser *p, const struct hlo_module *m,
                         const struct hlo_computation *c, const struct hlo_instr *i,
                         const char *at) {
    (void)m;
    return check_first(p, c, i, at);
}

/* X-start without a wrapped computation stands for X, with the second element of its shape. */
static bool check_start(struct parser *p, const struct hlo_module *m,
                        const struct hlo_computation *c, const struct hlo_instr *i,
                        const char *at) {
    struct hlo_instr plain = *i;
    if (hlo_callee(c, i, HLO_KEY_CALLS) != UINT32_MAX)
        return true;
    plain.opcode = (uint16_t)hlo_instr_wrapped(m, c, i);
    if (plain.opcode == HLO_ASYNC_START)
        return parse_fail(p, at, "expected the attribute 'calls' of 'async-start'");
    if (plain.shape->dtype == HLO_TUPLE_TYPE && plain.shape->nelements > 1)
        plain.shape = plain.shape->elements[1];
    return check_instr(p, m, c, &plain, at);
}

typedef bool check_fn(struct parser *p, const struct hlo_module *m, const struct hlo_computation *c,
                      const struct hlo_instr *i, const char *at);

static check_fn *const checks[HLO_OPCODE_COUNT] = {
    [HLO_GET_TUPLE_ELEMENT] = check_element,
    [HLO_DOT] = check_dot,
    [HLO_RAGGED_DOT] = check_dot,
    [HLO_SCALED_DOT] = check_dot,
    [HLO_CONVOLUTION] = check_convolution,
    [HLO_REDUCE_WINDOW] = check_window,
    [HLO_SELECT_AND_SCATTER] = check_window,
    [HLO_FUSION] = check_arguments,
    [HLO_CALL] = check_arguments,
    [HLO_WHILE] = check_while,
    [HLO_CONDITIONAL] = check_conditional,
    [HLO_CHOLESKY] = check_square,
    [HLO_TRIANGULAR_SOLVE] = check_square,
    [HLO_ALL_GATHER] = check_collective,
    [HLO_ALL_GATHER_START] = check_collective,
    [HLO_ALL_REDUCE] = check_collective,
    [HLO_ALL_REDUCE_START] = check_collective,
    [HLO_ALL_TO_ALL] = check_collective,
    [HLO_COLLECTIVE_BROADCAST] = check_collective,
    [HLO_COLLECTIVE_PERMUTE] = check_collective,
    [HLO_COLLECTIVE_PERMUTE_START] = check_collective,
    [HLO_COLLECTIVE_REDUCE] = check_collective,
    [HLO_RAGGED_ALL_TO_ALL] = check_collective,
    [HLO_REDUCE_SCATTER] = check_collective,
    [HLO_ASYNC_START] = check_start,
};

bool check_instr(struct parser *p, const struct hlo_module *m, const struct hlo_computation *c,
                 const struct hlo_instr *i, const char *at) {
    return check_arity(p, i, at) && check_callees(p, c, i, at) &&
           (!checks[i->opcode] || checks[i->opcode](p, m, c, i, at));
}

/* ---- shapes that were not written ---- */

static const struct hlo_shape *infer_dot(struct parser *p, const struct hlo_module *m,
                                         const struct hlo_computation *c, const struct hlo_instr *i,
                                         const char *at) {
    struct dot_dims d;
    int64_t dims[2 * HLO_RANK_MAX];
    int rank = 0;
    if (!read_dot(p, m, c, i, at, &d))
        return NULL;
    const struct hlo_shape *lhs = hlo_operand(c, i, 0)->shape, *rhs = hlo_operand(c, i, 1)->shape;
    uint64_t used[2] = {0, 0};
    for (size_t k = 0; k < d.nbatch; k++) {
        dims[rank++] = lhs->dims[d.lhs_batch[k]];
        used[0] |= UINT64_C(1) << d.lhs_batch[k];
        used[1] |= UINT64_C(1) << d.rhs_batch[k];
    }
    for (size_t k = 0; k < d.ncontracted; k++) {
        used[0] |= UINT64_C(1) << d.lhs[k];
        used[1] |= UINT64_C(1) << d.rhs[k];
    }
    for (int side = 0; side < 2; side++) {
        const struct hlo_shape *s = side ? rhs : lhs;
        for (int k = 0; k < s->rank; k++)
            if (!(used[side] >> k & 1))
                dims[rank++] = s->dims[k];
    }
    if (rank > HLO_RANK_MAX) {
        parse_fail(p, at, "expected a result of at most %d dimensions", HLO_RANK_MAX);
        return NULL;
    }
    return shape_array(p, at, (enum hlo_dtype)lhs->dtype, dims, rank);
}

static const struct hlo_shape *infer_tuple(struct parser *p, const struct hlo_computation *c,
                                           const struct hlo_instr *i, const char *at) {
    const struct hlo_shape **elements =
        parse_alloc(p, i->noperands ? i->noperands : 1, sizeof *elements);
    if (!elements)
        return NULL;
    for (uint32_t k = 0; k < i->noperands; k++)
        elements[k] = hlo_operand(c, i, k)->shape;
    return shape_tuple(p, at, elements, i->noperands);
}

const struct hlo_shape *infer_shape(struct parser *p, const struct hlo_module *m,
                                    const struct hlo_computation *c, const struct hlo_instr *i,
                                    const char *at) {
    if (!check_arity(p, i, at))
        return NULL;
    const struct hlo_shape *first = i->noperands ? hlo_operand(c, i, 0)->shape : NULL;
    enum hlo_class class = hlo_opcode_class((enum hlo_opcode)i->opcode);
    if (i->opcode == HLO_TUPLE)
        return infer_tuple(p, c, i, at);
    if (i->opcode == HLO_DOT)
        return infer_dot(p, m, c, i, at);
    if (i->opcode == HLO_GET_TUPLE_ELEMENT && (i->flags & HLO_INSTR_HAS_VALUE) && i->value >= 0 &&
        i->value < first->nelements)
        return first->elements[i->value];
    if (i->opcode == HLO_GET_TUPLE_ELEMENT) {
        parse_fail(p, at, "expected the index of an element of a tuple of %u", first->nelements);
        return NULL;
    }
    if (i->opcode == HLO_COMPARE && first->dtype < HLO_TUPLE_TYPE)
        return shape_array(p, at, HLO_PRED, first->dims, first->rank);
    if (i->opcode == HLO_SELECT)
        return hlo_operand(c, i, 1)->shape;
    if (i->opcode == HLO_COPY || i->opcode == HLO_ADD_DEPENDENCY || i->opcode == HLO_OPT_BARRIER ||
        i->opcode == HLO_REVERSE || i->opcode == HLO_ALL_REDUCE ||
        ((class == HLO_CLASS_ELEMENTWISE || class == HLO_CLASS_TRANSCENDENTAL) &&
         i->opcode != HLO_REAL && i->opcode != HLO_IMAG && i->opcode != HLO_COMPLEX &&
         i->opcode != HLO_IS_FINITE && i->opcode != HLO_CLAMP &&
         i->opcode != HLO_STOCHASTIC_CONVERT &&
         !(i->opcode == HLO_ABS && (first->dtype == HLO_C64 || first->dtype == HLO_C128))))
        if (first)
            return first;
    struct str word = hlo_instr_opcode(m, c, i);
    parse_fail(p, at, "expected the shape of this '%.*s': it does not follow from its operands",
               word.n > 40 ? 40 : (int)word.n, word.p);
    return NULL;
}
