/* Ops to kernels and collectives: one row of `rules` an op kind. See the header. */
#include "backends/tpu_sim/lower.h"

#include <assert.h>

enum { VALUES_MAX = 1024 };

struct lowering {
    const struct graph *g;
    const struct layout *l;
    const struct graph_step *step;
    lower_fn *fn;
    void *ctx;
    struct work w;            /* block, op and times of the op at hand */
    bool partial[VALUES_MAX]; /* each device holds a summand */
};

/* ---- a device's part ---- */

static int64_t ways(const struct layout *l, enum axis a) {
    switch (a) {
    case AXIS_HEADS:
    case AXIS_KV_HEADS:
    case AXIS_FFN:
    case AXIS_VOCAB:
        return l->tensor;
    case AXIS_EXPERTS:
        return l->expert;
    case AXIS_EXPERT_FFN:
        return l->slices;
    case AXIS_ROUTED:
        return l->tokens_shared ? l->expert : 1;
    default:
        return 1;
    }
}

int64_t layout_part(const struct layout *l, const struct value *v, int dim, const struct graph_step *s) {
    return ceil_div(graph_dim(v, dim, s), ways(l, v->axis[dim]));
}

static int64_t part(const struct lowering *w, const struct value *v, int dim) {
    return layout_part(w->l, v, dim, w->step);
}

static double part_elements(const struct lowering *w, uint32_t value) {
    const struct value *v = &w->g->value[value];
    double n = 1;
    for (int i = 0; i < v->rank; i++)
        n *= (double)part(w, v, i);
    return n;
}

static double all_bytes(const struct lowering *w, uint32_t value) {
    const struct value *v = &w->g->value[value];
    return (double)graph_elements(v, w->step) * (double)dtype_bytes(v->dtype);
}

/* ---- emitting ---- */

static void emit_kernel(struct lowering *w, const struct kernel *k) {
    w->w.is_collective = false;
    w->w.kernel = *k;
    w->fn(w->ctx, &w->w);
}

static void emit_collective(struct lowering *w, enum collective kind, uint32_t value) {
    w->w.is_collective = true;
    w->w.collective = kind;
    w->w.joined = value;
    w->w.bytes = all_bytes(w, value);
    w->fn(w->ctx, &w->w);
}

static void vector_kernel(struct lowering *w, double elements, double ops, double bytes, unsigned flags) {
    emit_kernel(w, &(struct kernel){
                       .kind = KERNEL_VECTOR, .flags = flags, .elements = elements, .ops = ops, .read_bytes = bytes});
}

/* ---- products ---- */

/* The device's part of an einsum; *split: contracted letters are spread over devices. */
static struct extents part_extents(const struct lowering *w, const struct op *o, bool *split) {
    struct einsum_letter letter[2 * GRAPH_RANK_MAX];
    struct extents x = {1, 1, 1, 1};
    int n = einsum_letters(o, letter);
    const struct value *a = &w->g->value[o->operand[0]], *b = &w->g->value[o->operand[1]];
    for (int i = 0; i < n; i++) {
        const struct einsum_letter *l = &letter[i];
        if (l->role == 'x')
            continue;
        const struct value *v = l->dim[0] >= 0 ? a : b;
        int dim = l->dim[0] >= 0 ? l->dim[0] : l->dim[1];
        *(l->role == 'b' ? &x.batch : l->role == 'm' ? &x.m : l->role == 'n' ? &x.n : &x.k) *= part(w, v, dim);
        if (l->role == 'k' && ways(w->l, v->axis[dim]) > 1)
            *split = true;
    }
    return x;
}

/* Vector work of operands that are stored wider or narrower than they are multiplied. */
static void conversion(const struct layout *l, struct kernel *k, double matrices) {
    double weights = matrices * (double)k->n * (double)k->k;
    double rows = (double)k->m * (double)k->k * (k->batch ? (double)k->batch : 1);
    if (l->math == NUM_BF16 && l->weights != NUM_BF16) /* widen on the way in */
        k->elements = weights;
    if (l->math != NUM_BF16) /* largest value, scale, convert */
        k->elements = VPU_QUANTIZE * (rows + (l->weights == NUM_BF16 ? weights : 0));
    k->ops = VPU_CHEAP;
}

/* Products that follow one another and share their input are one kernel: their columns stand side by side. */
static uint32_t product(struct lowering *w, const struct op *o, uint32_t left) {
    bool split = false;
    const struct value *b = &w->g->value[o->operand[1]], *out = &w->g->value[o->result];
    struct extents x = part_extents(w, o, &split);
    uint32_t used = 1;
    for (; used < left; used++) {
        const struct op *next = o + used;
        bool ignored = false;
        if (next->kind != o->kind || next->operand[0] != o->operand[0] || x.batch > 1)
            break;
        x.n += part_extents(w, next, &ignored).n;
        w->partial[next->result] = split;
    }
    w->partial[o->result] = split;
    struct kernel k = {.kind = KERNEL_MATMUL, .m = x.m, .n = x.n, .k = x.k, .batch = x.batch > 1 ? x.batch : 0};
    if (out->dtype == DTYPE_F32)
        k.out_bytes = 4;
    if (b->role == VALUE_WEIGHT) {
        k.math = w->l->math;
        k.b_bytes = num_bytes(w->l->weights);
        conversion(w->l, &k, x.batch > 1 ? (double)x.batch : 1);
    }
    w->w.ops = used;
    emit_kernel(w, &k);
    return used;
}

/* Experts that at least one of `draws` choices hits, of n equal ones: n(1-(1-1/n)^draws). */
static double touched(double n, int64_t draws) {
    double miss = 1, base = 1 - 1 / n;
    for (int64_t d = draws; d > 0; d >>= 1) {
        if (d & 1)
            miss *= base;
        base *= base;
    }
    return n * (1 - miss);
}

static uint32_t grouped(struct lowering *w, const struct op *o, uint32_t left) {
    const struct value *rows = &w->g->value[o->operand[0]], *b = &w->g->value[o->operand[1]];
    bool split = false;
    struct extents x = part_extents(w, o, &split);
    uint32_t used = 1;
    for (; used < left && o[used].kind == OP_GROUPED && o[used].operand[0] == o->operand[0]; used++) {
        bool ignored = false;
        x.n += part_extents(w, o + used, &ignored).n;
        w->partial[o[used].result] = split;
    }
    w->partial[o->result] = split;
    int64_t draws = graph_dim(rows, 0, w->step) * (w->l->tokens_shared ? 1 : w->l->expert);
    double experts = (double)b->n[0], hit = touched(experts, draws) * (double)part(w, b, 0) / experts;
    int64_t groups = (int64_t)(hit + 0.5);
    struct kernel k = {.kind = KERNEL_GROUPED,
                       .math = w->l->math,
                       .b_bytes = num_bytes(w->l->weights),
                       .groups = groups < 1 ? 1 : groups,
                       .m = x.m,
                       .n = x.n,
                       .k = x.k};
    conversion(w->l, &k, (double)k.groups);
    w->w.ops = used;
    emit_kernel(w, &k);
    return used;
}

/* ---- the other kinds; each returns the ops it has taken ---- */

static uint32_t embed(struct lowering *w, const struct op *o, uint32_t left) {
    (void)left;
    double n = part_elements(w, o->result);
    vector_kernel(w, n, VPU_CHEAP, 2 * n * 2, 0);
    return 1;
}

/* Over a latent it rides in the product before it. */
static uint32_t norm(struct lowering *w, const struct op *o, uint32_t left) {
    (void)left;
    const struct value *v = &w->g->value[o->result];
    vector_kernel(w, part_elements(w, o->result), VPU_RMSNORM, 0,
                  v->axis[v->rank - 1] == AXIS_LATENT ? KERNEL_FUSED : 0);
    return 1;
}

static uint32_t add(struct lowering *w, const struct op *o, uint32_t left) {
    (void)left;
    vector_kernel(w, part_elements(w, o->result), VPU_CHEAP, 0, KERNEL_FUSED);
    return 1;
}

/* Keys of a latent are few: their rotation rides in the product. */
static uint32_t rope(struct lowering *w, const struct op *o, uint32_t left) {
    (void)left;
    const struct value *k = &w->g->value[o->operand[1]];
    bool latent = k->axis[k->rank - 1] == AXIS_LATENT;
    double n = part_elements(w, o->operand[0]) + (latent ? 0 : part_elements(w, o->operand[1]));
    vector_kernel(w, n, VPU_ROPE + (o->operands > 2 ? VPU_RMSNORM : 0), 0, latent ? KERNEL_FUSED : 0);
    return 1;
}

static uint32_t attention(struct lowering *w, const struct op *o, uint32_t left) {
    (void)o;
    (void)left;
    emit_kernel(w, &(struct kernel){.kind = KERNEL_ATTENTION});
    return 1;
}

static uint32_t glu(struct lowering *w, const struct op *o, uint32_t left) {
    (void)left;
    vector_kernel(w, part_elements(w, o->result), VPU_SWIGLU, 0, KERNEL_FUSED);
    return 1;
}

static uint32_t route(struct lowering *w, const struct op *o, uint32_t left) {
    (void)left;
    vector_kernel(w, part_elements(w, o->operand[0]), VPU_SOFTMAX, 0, 0);
    return 1;
}

/* Rows move, once there and once back. */
static uint32_t move(struct lowering *w, const struct op *o, uint32_t left) {
    (void)left;
    double bytes = part_elements(w, o->kind == OP_DISPATCH ? o->result : o->operand[0]) * 2;
    emit_kernel(w, &(struct kernel){.kind = KERNEL_GATHER, .read_bytes = bytes, .write_bytes = bytes});
    return 1;
}

static uint32_t sample(struct lowering *w, const struct op *o, uint32_t left) {
    (void)left;
    double n = part_elements(w, o->operand[0]);
    vector_kernel(w, n, VPU_SOFTMAX, n * 4, 0);
    if (w->l->tensor > 1)
        emit_collective(w, COLLECTIVE_ALL_GATHER, o->operand[0]);
    return 1;
}

static uint32_t nothing(struct lowering *w, const struct op *o, uint32_t left) {
    (void)w;
    (void)o;
    (void)left;
    return 1;
}

/* sums: a partial operand makes a partial result; else it must be whole. */
static const struct {
    uint32_t (*take)(struct lowering *w, const struct op *o, uint32_t left);
    bool sums;
} rules[OP_KINDS] = {
    [OP_EMBED] = {embed},       [OP_NORM] = {norm},         [OP_EINSUM] = {product},
    [OP_ROPE] = {rope},         [OP_ATTENTION] = {attention}, [OP_SLICE] = {nothing},
    [OP_GLU] = {glu},           [OP_ADD] = {add, true},     [OP_ROUTE] = {route},
    [OP_DISPATCH] = {move},     [OP_GROUPED] = {grouped},   [OP_COMBINE] = {move, true},
    [OP_SAMPLE] = {sample},
};

/* Joins operands that are summands, unless all of them are and the op is a sum. Each device combines the rows of its own
 * experts: a summand of the token, too. */
static void join(struct lowering *w, const struct op *o) {
    int spread = 0, inputs = o->kind == OP_COMBINE ? 1 : o->operands;
    if (o->kind == OP_COMBINE && w->l->expert > 1)
        w->partial[o->operand[0]] = true;
    for (int i = 0; i < inputs; i++)
        spread += w->partial[o->operand[i]];
    if (rules[o->kind].sums && spread == inputs) {
        w->partial[o->result] = true;
        return;
    }
    for (int i = 0; i < inputs && spread; i++)
        if (w->partial[o->operand[i]]) {
            emit_collective(w, COLLECTIVE_ALL_REDUCE, o->operand[i]);
            w->partial[o->operand[i]] = false;
        }
}

void lower(const struct graph *g, const struct layout *l, const struct graph_step *step, uint32_t from, uint32_t to,
           lower_fn *fn, void *ctx) {
    struct lowering w = {.g = g, .l = l, .step = step, .fn = fn, .ctx = ctx};
    assert(g->nvalues <= VALUES_MAX);
    for (uint32_t b = from; b < to; b++) {
        const struct block *k = &g->block[b];
        w.w = (struct work){.block = k, .times = (double)graph_block_times(g, b)};
        for (uint32_t i = 0; i < k->n;) {
            w.w.op = &g->op[k->first + i];
            w.w.ops = 1;
            join(&w, w.w.op);
            i += rules[w.w.op->kind].take(&w, w.w.op, k->n - i);
        }
    }
}
