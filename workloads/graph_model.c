/* Builds the op graph of a decoder from its shape: one block for each kind of layer it has (dense or
 * experts, full or windowed attention). Weights have the shapes of the published checkpoints, split into heads. */
#include "workloads/graph.h"

#include <assert.h>
#include <string.h>

enum { VALUES_MAX = 512, OPS_MAX = 256, BLOCKS_MAX = 8 };

struct builder {
    struct graph *g;
    const struct model *m;
};

struct dim {
    enum axis axis;
    int64_t n;
};
#define DIMS(...) ((const struct dim[]){__VA_ARGS__, {AXIS_COUNT, 0}})

static uint32_t value(struct builder *b, const char *name, enum value_role role, enum dtype dtype,
                      const struct dim *d) {
    struct graph *g = b->g;
    assert(g->nvalues < VALUES_MAX);
    struct value *v = &g->value[g->nvalues];
    *v = (struct value){.name = name, .role = role, .dtype = dtype};
    for (; d->axis != AXIS_COUNT; d++) {
        assert(v->rank < GRAPH_RANK_MAX);
        v->axis[v->rank] = d->axis;
        v->n[v->rank++] = d->n;
    }
    return g->nvalues++;
}

static uint32_t activation(struct builder *b, const char *name, const struct dim *d) {
    return value(b, name, VALUE_ACTIVATION, DTYPE_BF16, d);
}
static uint32_t weight(struct builder *b, const char *name, const struct dim *d) {
    return value(b, name, VALUE_WEIGHT, DTYPE_BF16, d);
}
static uint32_t vector(struct builder *b, const char *name, const struct dim *d) {
    return value(b, name, VALUE_VECTOR, DTYPE_BF16, d);
}

static const uint32_t NONE = UINT32_MAX; /* an operand that is not there */

/* Appends an op; operands that are NONE are left out. */
static struct op *op(struct builder *b, enum op_kind kind, uint32_t result, const uint32_t *operand, int n) {
    struct graph *g = b->g;
    assert(g->nops < OPS_MAX);
    struct op *o = &g->op[g->nops++];
    *o = (struct op){.kind = kind, .result = result};
    for (int i = 0; i < n; i++)
        if (operand[i] != NONE)
            o->operand[o->operands++] = operand[i];
    g->block[g->nblocks - 1].n++;
    return o;
}
#define OP(b, kind, result, ...)                                                                               \
    op(b, kind, result, (const uint32_t[]){__VA_ARGS__}, (int)(sizeof((const uint32_t[]){__VA_ARGS__}) / 4))

static uint32_t einsum(struct builder *b, const char *spec, uint32_t result, uint32_t a, uint32_t w, uint32_t bias) {
    struct op *o = OP(b, OP_EINSUM, result, a, w, bias);
    assert(strlen(spec) < sizeof o->einsum);
    memcpy(o->einsum, spec, strlen(spec) + 1);
    return result;
}
static uint32_t grouped(struct builder *b, const char *spec, uint32_t result, uint32_t a, uint32_t w, uint32_t bias) {
    struct op *o = OP(b, OP_GROUPED, result, a, w, bias);
    assert(strlen(spec) < sizeof o->einsum);
    memcpy(o->einsum, spec, strlen(spec) + 1);
    return result;
}

static void begin(struct builder *b, const char *name) {
    assert(b->g->nblocks < BLOCKS_MAX);
    b->g->block[b->g->nblocks++] = (struct block){.name = name, .first = b->g->nops};
}

/* ---- the parts of a layer; each takes and returns rows of the hidden size ---- */

#define TOKENS {AXIS_TOKENS, 1}
#define HIDDEN {AXIS_HIDDEN, m->hidden}

static uint32_t rows(struct builder *b, const char *name) {
    const struct model *m = b->m;
    return activation(b, name, DIMS(TOKENS, HIDDEN));
}

static uint32_t norm(struct builder *b, const char *name, uint32_t x) {
    const struct model *m = b->m;
    uint32_t y = rows(b, name);
    OP(b, OP_NORM, y, x, vector(b, "scale", DIMS(HIDDEN)));
    return y;
}

static uint32_t attention(struct builder *b, uint32_t x, int64_t window) {
    const struct model *m = b->m;
    struct dim heads = {AXIS_HEADS, m->heads}, kv_heads = {AXIS_KV_HEADS, m->kv_heads},
               width = {AXIS_HEAD_DIM, m->head_dim};
    bool bias = m->qkv_bias;
    uint32_t q = activation(b, "q", DIMS(TOKENS, heads, width));
    uint32_t k = activation(b, "k", DIMS(TOKENS, kv_heads, width));
    uint32_t v = activation(b, "v", DIMS(TOKENS, kv_heads, width));
    einsum(b, "td,dhe->the", q, x, weight(b, "wq", DIMS(HIDDEN, heads, width)),
           bias ? vector(b, "bq", DIMS(heads, width)) : NONE);
    einsum(b, "td,dge->tge", k, x, weight(b, "wk", DIMS(HIDDEN, kv_heads, width)),
           bias ? vector(b, "bk", DIMS(kv_heads, width)) : NONE);
    einsum(b, "td,dge->tge", v, x, weight(b, "wv", DIMS(HIDDEN, kv_heads, width)),
           bias ? vector(b, "bv", DIMS(kv_heads, width)) : NONE);
    OP(b, OP_ROPE, q, q, k, m->qk_norm ? vector(b, "q_norm", DIMS(width)) : NONE,
       m->qk_norm ? vector(b, "k_norm", DIMS(width)) : NONE)
        ->rotated = m->head_dim;
    uint32_t o = activation(b, "attention", DIMS(TOKENS, heads, width));
    OP(b, OP_ATTENTION, o, q, k, v, m->attention_sinks ? vector(b, "sinks", DIMS(heads)) : NONE)->window = window;
    return einsum(b, "the,hed->td", rows(b, "o"), o, weight(b, "wo", DIMS(heads, width, HIDDEN)),
                  m->o_bias ? vector(b, "bo", DIMS(HIDDEN)) : NONE);
}

/* Multi-head latent attention, absorbed: queries go into the latent space, what was attended comes out of it. */
static uint32_t latent_attention(struct builder *b, uint32_t x, int64_t window) {
    const struct model *m = b->m;
    struct dim heads = {AXIS_HEADS, m->heads}, nope = {AXIS_HEAD_DIM, m->qk_nope_head_dim},
               rope = {AXIS_HEAD_DIM, m->qk_rope_head_dim}, out = {AXIS_HEAD_DIM, m->v_head_dim},
               qk = {AXIS_HEAD_DIM, m->qk_nope_head_dim + m->qk_rope_head_dim},
               rank = {AXIS_LATENT, m->kv_lora_rank}, q_rank = {AXIS_LATENT, m->q_lora_rank},
               kv = {AXIS_LATENT, m->kv_lora_rank + m->qk_rope_head_dim};
    uint32_t q = activation(b, "q", DIMS(TOKENS, heads, qk)), latent = activation(b, "latent", DIMS(TOKENS, kv));
    uint32_t down = NONE;
    if (m->q_lora_rank)
        down = einsum(b, "td,dl->tl", activation(b, "q_down", DIMS(TOKENS, q_rank)), x,
                      weight(b, "wq_a", DIMS(HIDDEN, q_rank)), NONE);
    else
        einsum(b, "td,dhe->the", q, x, weight(b, "wq", DIMS(HIDDEN, heads, qk)), NONE);
    einsum(b, "td,dl->tl", latent, x, weight(b, "wkv_a", DIMS(HIDDEN, kv)), NONE);
    OP(b, OP_NORM, latent, latent, vector(b, "kv_norm", DIMS(rank)));
    if (m->q_lora_rank) {
        OP(b, OP_NORM, down, down, vector(b, "q_norm", DIMS(q_rank)));
        einsum(b, "tl,lhe->the", q, down, weight(b, "wq_b", DIMS(q_rank, heads, qk)), NONE);
    }
    uint32_t q_nope = activation(b, "q_nope", DIMS(TOKENS, heads, nope)),
             q_rope = activation(b, "q_rope", DIMS(TOKENS, heads, rope));
    OP(b, OP_SLICE, q_nope, q);
    OP(b, OP_SLICE, q_rope, q)->offset = m->qk_nope_head_dim;
    OP(b, OP_ROPE, q_rope, q_rope, latent)->rotated = m->qk_rope_head_dim;
    uint32_t q_latent = einsum(b, "thn,hnr->thr", activation(b, "q_latent", DIMS(TOKENS, heads, rank)), q_nope,
                               weight(b, "wk_b", DIMS(heads, nope, rank)), NONE);
    uint32_t seen = activation(b, "attention", DIMS(TOKENS, heads, rank));
    OP(b, OP_ATTENTION, seen, q_latent, q_rope, latent)->window = window;
    uint32_t o = einsum(b, "thr,hrv->thv", activation(b, "o_up", DIMS(TOKENS, heads, out)), seen,
                        weight(b, "wv_b", DIMS(heads, rank, out)), NONE);
    return einsum(b, "thv,hvd->td", rows(b, "o"), o, weight(b, "wo", DIMS(heads, out, HIDDEN)), NONE);
}

static uint32_t ffn(struct builder *b, uint32_t x, int64_t columns) {
    const struct model *m = b->m;
    struct dim f = {AXIS_FFN, columns};
    uint32_t up = einsum(b, "td,df->tf", activation(b, "up", DIMS(TOKENS, f)), x, weight(b, "w_up", DIMS(HIDDEN, f)),
                         m->ffn_bias ? vector(b, "b_up", DIMS(f)) : NONE);
    uint32_t gate = NONE;
    if (m->gated_ffn)
        gate = einsum(b, "td,df->tf", activation(b, "gate", DIMS(TOKENS, f)), x,
                      weight(b, "w_gate", DIMS(HIDDEN, f)), m->ffn_bias ? vector(b, "b_gate", DIMS(f)) : NONE);
    uint32_t inner = activation(b, "glu", DIMS(TOKENS, f));
    OP(b, OP_GLU, inner, up, gate);
    return einsum(b, "tf,fd->td", rows(b, "down"), inner, weight(b, "w_down", DIMS(f, HIDDEN)),
                  m->ffn_bias ? vector(b, "b_down", DIMS(HIDDEN)) : NONE);
}

static uint32_t experts(struct builder *b, uint32_t x) {
    const struct model *m = b->m;
    struct dim e = {AXIS_EXPERTS, m->experts}, f = {AXIS_EXPERT_FFN, m->expert_ffn},
               routed = {AXIS_ROUTED, m->experts_per_token};
    bool bias = m->ffn_bias;
    uint32_t logits = einsum(b, "td,dx->tx", activation(b, "router", DIMS(TOKENS, {AXIS_PLAIN, m->experts})), x,
                             weight(b, "w_router", DIMS(HIDDEN, {AXIS_PLAIN, m->experts})), NONE);
    uint32_t routes = value(b, "route", VALUE_ACTIVATION, DTYPE_F32, DIMS(routed, {AXIS_PLAIN, 2}));
    OP(b, OP_ROUTE, routes, logits, m->router_bias ? vector(b, "b_router", DIMS(e)) : NONE)->top =
        m->experts_per_token;
    uint32_t sorted = activation(b, "dispatch", DIMS(routed, HIDDEN));
    OP(b, OP_DISPATCH, sorted, x, routes);
    uint32_t up = grouped(b, "rd,xdf->rf", activation(b, "up", DIMS(routed, f)), sorted,
                          weight(b, "w_up", DIMS(e, HIDDEN, f)), bias ? vector(b, "b_up", DIMS(e, f)) : NONE);
    uint32_t gate = NONE;
    if (m->gated_ffn)
        gate = grouped(b, "rd,xdf->rf", activation(b, "gate", DIMS(routed, f)), sorted,
                       weight(b, "w_gate", DIMS(e, HIDDEN, f)), bias ? vector(b, "b_gate", DIMS(e, f)) : NONE);
    uint32_t inner = activation(b, "glu", DIMS(routed, f));
    OP(b, OP_GLU, inner, up, gate);
    uint32_t down = grouped(b, "rf,xfd->rd", activation(b, "down", DIMS(routed, HIDDEN)), inner,
                            weight(b, "w_down", DIMS(e, f, HIDDEN)), bias ? vector(b, "b_down", DIMS(e, HIDDEN)) : NONE);
    uint32_t sum = rows(b, "combine");
    OP(b, OP_COMBINE, sum, down, routes);
    if (!m->shared_experts)
        return sum;
    uint32_t both = rows(b, "experts");
    OP(b, OP_ADD, both, sum, ffn(b, x, m->shared_experts * m->shared_expert_ffn));
    return both;
}

static void layer(struct builder *b, bool dense, int64_t window) {
    const struct model *m = b->m;
    uint32_t x = b->g->x, y = norm(b, "attention_norm", x);
    y = m->kv_lora_rank ? latent_attention(b, y, window) : attention(b, y, window);
    if (m->norms_per_layer == 4)
        y = norm(b, "attention_post_norm", y);
    uint32_t mid = rows(b, "residual");
    OP(b, OP_ADD, mid, x, y);
    y = norm(b, "ffn_norm", mid);
    y = dense ? ffn(b, y, m->ffn) : experts(b, y);
    if (m->norms_per_layer == 4)
        y = norm(b, "ffn_post_norm", y);
    OP(b, OP_ADD, x, mid, y);
}

static void layers(struct builder *b) {
    static const char *const names[2][2] = {{"moe_layer", "moe_window_layer"}, {"layer", "window_layer"}};
    const struct model *m = b->m;
    struct graph *g = b->g;
    uint32_t built[2][2] = {{NONE, NONE}, {NONE, NONE}};
    for (int64_t i = 0; i < m->layers; i++) {
        bool dense = !m->experts || i < m->dense_layers;
        bool windowed = m->sliding_window > 0 && m->sliding_every > 0 && (i + 1) % m->sliding_every != 0;
        uint32_t *at = &built[dense][windowed];
        if (*at == NONE) {
            begin(b, names[dense][windowed]);
            layer(b, dense, windowed ? m->sliding_window : 0);
            *at = g->nblocks - 1;
        }
        if (g->call[g->ncalls - 1].block == *at)
            g->call[g->ncalls - 1].times++;
        else
            g->call[g->ncalls++] = (struct call){*at, 1};
    }
}

int graph_from_model(const struct model *m, struct graph *g, struct err *e) {
    struct builder b = {g, m};
    *g = (struct graph){0};
    memcpy(g->name, m->name, sizeof g->name);
    g->value = arena_alloc(&g->arena, VALUES_MAX, sizeof *g->value);
    g->op = arena_alloc(&g->arena, OPS_MAX, sizeof *g->op);
    g->block = arena_alloc(&g->arena, BLOCKS_MAX, sizeof *g->block);
    g->call = arena_alloc(&g->arena, (size_t)m->layers + 2, sizeof *g->call);
    if (!g->value || !g->op || !g->block || !g->call)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    struct dim vocab = {AXIS_VOCAB, m->vocab};
    g->x = rows(&b, "x");
    begin(&b, "embedding");
    uint32_t table = value(&b, "embedding", VALUE_TABLE, DTYPE_BF16, DIMS(vocab, HIDDEN));
    OP(&b, OP_EMBED, g->x, value(&b, "ids", VALUE_INPUT, DTYPE_S32, DIMS(TOKENS)), table);
    g->call[g->ncalls++] = (struct call){0, 1};
    layers(&b);
    begin(&b, "head");
    struct dim sequences = {AXIS_SEQUENCES, 1};
    uint32_t last = activation(&b, "last", DIMS(sequences, HIDDEN));
    OP(&b, OP_NORM, last, g->x, vector(&b, "scale", DIMS(HIDDEN)));
    uint32_t head = value(&b, "head", VALUE_TABLE, DTYPE_BF16, DIMS(HIDDEN, vocab));
    g->value[head].shared = m->tied_embeddings ? table + 1 : 0;
    uint32_t logits = value(&b, "logits", VALUE_ACTIVATION, DTYPE_F32, DIMS(sequences, vocab));
    einsum(&b, "sd,dv->sv", logits, last, head, NONE);
    OP(&b, OP_SAMPLE, value(&b, "next", VALUE_ACTIVATION, DTYPE_S32, DIMS(sequences)), logits);
    g->call[g->ncalls++] = (struct call){g->nblocks - 1, 1};
    return 0;
}
