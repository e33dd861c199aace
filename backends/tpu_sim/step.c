/* A step's cost: the op graph as lower.c lays it on a device, and attention by contexts. */
#include "backends/tpu_sim/step.h"

#include <inttypes.h>
#include <string.h>

static int64_t pad_head(int64_t d) {
    return d <= 64 ? 64 : round_up(d, 128);
}

static bool is_mla(const struct model *m) {
    return m->kv_lora_rank > 0;
}

/* Whole parameters on one device: matrices split, the rest whole; embeddings stay 16-bit. */
static double device_weight_bytes(const struct step_model *s) {
    const struct model *m = &s->model;
    double all = (double)model_parameters(m);
    double embed = (double)model_embedding_parameters(m) * (m->tied_embeddings ? 1 : 2);
    double t = (double)s->tensor;
    double w = (all - embed) * num_bytes(s->o.weights) + embed * 2.0;
    /* KV projections that are replicated because there are fewer KV heads than devices */
    if (!is_mla(m) && m->kv_heads < s->tensor)
        w += (double)m->layers * 2.0 * (double)m->hidden *
             (double)(m->head_dim * (s->tensor - m->kv_heads)) * num_bytes(s->o.weights);
    return w / t;
}

static int check_split(const struct step_model *s, const char *what, int64_t n, struct err *e) {
    if (n % s->tensor == 0)
        return 0;
    return err_set(e, ASSAY_EINPUT,
                   "-o tensor: %" PRId64 " devices do not divide the %" PRId64 " %s of model '%s'",
                   s->tensor, n, what, s->model.name);
}

/* How many devices share one expert's columns. */
static int64_t expert_slices(const struct step_model *s) {
    return s->tensor % s->expert == 0 ? s->tensor / s->expert : s->tensor;
}

static void decode_coefficients(struct step_model *s);

int step_init(struct step_model *s, const struct chip *chip, const struct model *m,
              const struct step_options *o, struct err *e) {
    *s = (struct step_model){.chip = chip, .model = *m, .o = *o};
    device_init(&s->device, chip);
    int rc = topology_init(&s->topology, chip, o->chips, o->topology, e);
    if (rc)
        return rc;
    int64_t devices = o->chips * chip->devices;
    s->tensor = o->tensor > 0 ? o->tensor : devices;
    if (devices % s->tensor)
        return err_set(e, ASSAY_EUSAGE,
                       "-o tensor: %" PRId64 " does not divide the %" PRId64
                       " devices of a replica",
                       s->tensor, devices);
    s->expert = o->expert > 0 ? o->expert : 1;
    rc = check_split(s, "attention heads", m->heads, e);
    if (!rc && !is_mla(m) && m->kv_heads % s->tensor && s->tensor % m->kv_heads)
        rc = check_split(s, "key/value heads", m->kv_heads, e);
    if (!rc && m->ffn && (!m->experts || m->dense_layers))
        rc = check_split(s, "FFN columns", m->ffn, e);
    if (!rc && m->experts && m->experts % s->expert)
        rc = err_set(e, ASSAY_EINPUT,
                     "%" PRId64 " expert-parallel devices do not divide the %" PRId64
                     " experts of model '%s'",
                     s->expert, m->experts, m->name);
    if (!rc && m->experts && m->expert_ffn % expert_slices(s))
        rc = err_set(e, ASSAY_EINPUT,
                     "-o tensor: %" PRId64 " devices do not divide the %" PRId64
                     " columns of an expert of model '%s' (try -o expert=)",
                     expert_slices(s), m->expert_ffn, m->name);
    if (rc)
        return rc;
    struct topology rest = s->topology;
    int64_t chips = ceil_div(s->tensor, chip->devices);
    if (!topology_cut(&rest, chips, &s->group))
        return err_set(e, ASSAY_EUSAGE,
                       "-o tensor: %" PRId64 " chips cannot be cut out of the slice", chips);
    s->group.cores = s->tensor / chips;
    s->heads = m->heads / s->tensor;
    s->kv_heads = ceil_div(m->kv_heads, s->tensor);
    s->head_dim = pad_head(m->head_dim);
    double layers = (double)m->layers;
    s->window_layers = 0;
    if (m->sliding_window > 0 && m->sliding_every > 0)
        s->window_layers = (double)(m->layers - m->layers / m->sliding_every);
    s->full_layers = layers - s->window_layers;
    double kvb = num_bytes(o->kv);
    if (is_mla(m)) /* the latent is shared by all heads: whole on every device */
        s->kv_token_bytes =
            layers * (double)round_up(m->kv_lora_rank + m->qk_rope_head_dim, 128) * kvb;
    else
        s->kv_token_bytes = layers * 2.0 * (double)(s->kv_heads * s->head_dim) * kvb;
    s->weight_bytes = device_weight_bytes(s);
    decode_coefficients(s);
    if ((rc = graph_from_model(m, &s->graph, e)))
        step_release(s);
    return rc;
}

void step_release(struct step_model *s) {
    graph_release(&s->graph);
}

double step_kv_room_bytes(const struct step_model *s, double hbm_share) {
    return s->device.hbm_bytes * hbm_share - s->weight_bytes;
}

/* ---- layers and head: the op graph, lowered ---- */

struct sum {
    const struct step_model *s;
    struct cost *cost;
    bool collectives;
};

static void add_work(void *ctx, const struct work *w) {
    const struct sum *x = ctx;
    if (!w->is_collective)
        kernel_add(&x->s->device, &w->kernel, w->times, x->cost);
    else if (x->collectives)
        collective_add(x->s->chip, &x->s->group, w->collective, w->bytes, w->times, x->cost);
}

static struct layout layout_of(const struct step_model *s) {
    return (struct layout){.tensor = s->tensor,
                           .expert = s->expert,
                           .slices = expert_slices(s),
                           .tokens_shared = s->tensor % s->expert == 0,
                           .weights = s->o.weights,
                           .math = s->o.math};
}

void step_each_work(const struct step_model *s, const struct graph_step *at, enum step_part part, lower_fn *fn,
                    void *ctx) {
    uint32_t head = s->graph.nblocks - 1;
    struct layout l = layout_of(s);
    lower(&s->graph, &l, at, part == STEP_HEAD ? head : 0, part == STEP_LAYERS ? head : head + 1, fn, ctx);
}

void step_compute(const struct step_model *s, int64_t tokens, struct cost *sum) {
    struct sum x = {s, sum, false};
    step_each_work(s, &(struct graph_step){tokens, 0}, STEP_LAYERS, add_work, &x);
}

void step_layers(const struct step_model *s, int64_t tokens, struct cost *sum) {
    struct sum x = {s, sum, true};
    step_each_work(s, &(struct graph_step){tokens, 0}, STEP_LAYERS, add_work, &x);
}

void step_head(const struct step_model *s, int64_t rows, struct cost *sum) {
    struct sum x = {s, sum, true};
    step_each_work(s, &(struct graph_step){0, rows}, STEP_HEAD, add_work, &x);
}

/* ---- attention ---- */

/* Query-key pairs a causal chunk attends, the window applied. */
static double attended_pairs(int64_t q, int64_t context, int64_t window) {
    double n = (double)q, c = (double)context;
    double pairs = n * (c - n) + n * (n + 1) / 2;
    if (window > 0 && context > window) {
        double w = (double)window, first = c - n; /* tokens before the chunk */
        double below = first < w ? w - first : 0; /* queries that still see everything */
        if (below > n)
            below = n;
        pairs = below * first + below * (below + 1) / 2 + (n - below) * w;
    }
    return pairs;
}

/* Bytes a context token costs in plain array code: K and V read, one of them written once more for
 * every query head (the other's repetition fuses into its product). */
static double plain_kv_bytes(const struct step_model *s) {
    double kv = 2 * (double)(s->kv_heads * s->head_dim) * num_bytes(s->o.kv);
    return kv + (double)(s->heads * s->head_dim) * 2;
}

void step_prefill_kernel(const struct step_model *s, int64_t q, int64_t context, int64_t window,
                         struct kernel *k) {
    const struct model *m = &s->model;
    double heads = (double)s->heads, pairs = attended_pairs(q, context, window);
    double kvb = num_bytes(s->o.kv),
           seen = (double)(window > 0 && context > window + q ? window + q : context);
    double blocks = (double)ceil_div(q, 512); /* each block of queries reads its context again */
    *k = (struct kernel){.kind = KERNEL_ATTENTION,
                         .math = NUM_BF16,
                         .elements = heads * pairs,
                         .ops = VPU_SOFTMAX,
                         .sequences = 1};
    if (is_mla(m)) {
        double dims =
            (double)(round_up(m->kv_lora_rank + m->qk_rope_head_dim, 128) + m->kv_lora_rank);
        k->flops = 2 * heads * dims * pairs;
        k->read_bytes = blocks / 2 * seen * (double)(m->kv_lora_rank + m->qk_rope_head_dim) * kvb;
    } else {
        k->flops = 4 * heads * (double)s->head_dim * pairs;
        k->read_bytes = (blocks + 1) / 2 * seen * 2 * (double)(s->kv_heads * s->head_dim) * kvb;
    }
    if (s->o.attention == ATTENTION_PLAIN) { /* no causal skipping; f32 scores written and read */
        double square = heads * (double)q * (double)context;
        k->flags = KERNEL_PLAIN;
        k->elements = square;
        k->flops = 4 * (double)s->head_dim * square;
        k->read_bytes = plain_kv_bytes(s) * (double)context + 8 * square;
    }
}

void step_prefill_attention(const struct step_model *s, int64_t q, int64_t context,
                            struct cost *sum) {
    struct kernel k;
    if (s->full_layers > 0) {
        step_prefill_kernel(s, q, context, 0, &k);
        k.flags |=
            KERNEL_FUSED; /* one ragged kernel a layer: its fixed cost is in decode_fixed_s */
        kernel_add(&s->device, &k, s->full_layers, sum);
    }
    if (s->window_layers > 0) {
        step_prefill_kernel(s, q, context, s->model.sliding_window, &k);
        k.flags |= KERNEL_FUSED;
        kernel_add(&s->device, &k, s->window_layers, sum);
    }
}

void step_decode_kernel(const struct step_model *s, double sequences, double context,
                        struct kernel *k) {
    const struct model *m = &s->model;
    double heads = (double)s->heads, kvb = num_bytes(s->o.kv);
    *k = (struct kernel){.kind = KERNEL_ATTENTION,
                         .math = NUM_BF16,
                         .elements = heads * context,
                         .ops = VPU_SOFTMAX,
                         .sequences = sequences};
    if (is_mla(m)) {
        double latent = (double)round_up(m->kv_lora_rank + m->qk_rope_head_dim, 128);
        double rows = (double)round_up(s->heads, s->device.row_pad);
        k->flops = 2 * rows * (latent + (double)m->kv_lora_rank) * context;
        k->read_bytes = context * latent * kvb;
    } else {
        double rows =
            (double)(s->kv_heads * round_up(ceil_div(s->heads, s->kv_heads), s->device.row_pad));
        k->flops = 4 * rows * (double)s->head_dim * context;
        k->read_bytes = context * 2 * (double)(s->kv_heads * s->head_dim) * kvb;
    }
    if (s->o.attention == ATTENTION_PLAIN) {
        k->flags = KERNEL_PLAIN;
        k->read_bytes = plain_kv_bytes(s) * context;
    }
}

static void decode_coefficients(struct step_model *s) {
    struct kernel k;
    struct kernel_time t;
    step_decode_kernel(s, 0, 1048576.0, &k);
    k.flags |= KERNEL_FUSED;
    kernel_run(&s->device, &k, &t);
    double per_token = t.s / 1048576.0;
    s->decode_bound = t.bound;
    s->decode_token_s = per_token * s->full_layers;
    s->decode_window_token_s = per_token * s->window_layers;
    double seq_s = s->o.attention == ATTENTION_PLAIN ? s->device.plain_seq_s : s->device.attn_seq_s;
    s->decode_seq_s = seq_s * (double)s->model.layers;
    s->decode_fixed_s = s->device.kernel_s * (double)s->model.layers;
}

void step_decode_attention(const struct step_model *s, int64_t sequences, int64_t context,
                           int64_t window_context, struct cost *sum) {
    sum->s[s->decode_bound] +=
        s->decode_token_s * (double)context + s->decode_window_token_s * (double)window_context;
    sum->s[BOUND_OVERHEAD] += s->decode_seq_s * (double)sequences;
}
