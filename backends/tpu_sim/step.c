/* Layers to kernels. The lists below are the simulator's picture of a decoder layer as compiled for
 * TPU: projections merged, norms and activations fused into their neighbours, one all-reduce after
 * attention and one after the FFN. */
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
    return 0;
}

double step_kv_room_bytes(const struct step_model *s, double hbm_share) {
    return s->device.hbm_bytes * hbm_share - s->weight_bytes;
}

/* ---- layers ---- */

/* Vector work of operands that are stored wider or narrower than they are multiplied. */
static void conversion(const struct step_model *s, struct kernel *x, double matrices) {
    double weights = matrices * (double)x->n * (double)x->k, rows = (double)x->m * (double)x->k;
    if (s->o.math == NUM_BF16 && s->o.weights != NUM_BF16) /* widen on the way in */
        x->elements = weights;
    if (s->o.math != NUM_BF16) /* largest value, scale, convert */
        x->elements = VPU_QUANTIZE * (rows + (s->o.weights == NUM_BF16 ? weights : 0));
    x->ops = VPU_CHEAP;
}

static void add_matmul(const struct step_model *s, int64_t m, int64_t n, int64_t k, double layers,
                       struct cost *sum) {
    if (n <= 0 || k <= 0)
        return;
    struct kernel x = {.kind = KERNEL_MATMUL,
                       .math = s->o.math,
                       .b_bytes = num_bytes(s->o.weights),
                       .m = m,
                       .n = n,
                       .k = k};
    conversion(s, &x, 1);
    kernel_add(&s->device, &x, layers, sum);
}

static void add_vector(const struct step_model *s, double elements, double ops, double bytes,
                       unsigned flags, double layers, struct cost *sum) {
    struct kernel x = {.kind = KERNEL_VECTOR,
                       .flags = flags,
                       .elements = elements,
                       .ops = ops,
                       .read_bytes = bytes};
    kernel_add(&s->device, &x, layers, sum);
}

static void add_projections(const struct step_model *s, int64_t tokens, struct cost *sum) {
    const struct model *m = &s->model;
    double layers = (double)m->layers, t = (double)tokens;
    if (is_mla(m)) {
        int64_t qk = m->qk_nope_head_dim + m->qk_rope_head_dim;
        int64_t latent = m->kv_lora_rank + m->qk_rope_head_dim;
        if (m->q_lora_rank > 0) { /* both down-projections in one product, whole on each device */
            add_matmul(s, tokens, m->q_lora_rank + latent, m->hidden, layers, sum);
            add_matmul(s, tokens, s->heads * qk, m->q_lora_rank, layers, sum);
        } else {
            add_matmul(s, tokens, s->heads * qk + latent, m->hidden, layers, sum);
        }
        /* absorbed: queries into the latent space, attention output out of it, per head */
        struct kernel up = {.kind = KERNEL_MATMUL,
                            .math = s->o.math,
                            .b_bytes = num_bytes(s->o.weights),
                            .batch = s->heads,
                            .m = tokens,
                            .n = m->kv_lora_rank,
                            .k = m->qk_nope_head_dim};
        kernel_add(&s->device, &up, layers, sum);
        up.n = m->v_head_dim;
        up.k = m->kv_lora_rank;
        kernel_add(&s->device, &up, layers, sum);
        add_vector(s, t * (double)(s->heads * m->qk_rope_head_dim), VPU_ROPE, 0, KERNEL_FUSED,
                   layers, sum);
        add_matmul(s, tokens, m->hidden, s->heads * m->v_head_dim, layers, sum);
        return;
    }
    int64_t q = s->heads * m->head_dim, kv = s->kv_heads * m->head_dim;
    add_matmul(s, tokens, q + 2 * kv, m->hidden, layers, sum);
    add_vector(s, t * (double)(q + kv), VPU_ROPE + (m->qk_norm ? VPU_RMSNORM : 0), 0, 0, layers,
               sum);
    add_matmul(s, tokens, m->hidden, q, layers, sum);
}

/* A dense FFN of `width` columns a device. */
static void add_ffn(const struct step_model *s, int64_t tokens, int64_t width, double layers,
                    struct cost *sum) {
    const struct model *m = &s->model;
    add_matmul(s, tokens, width * (m->gated_ffn ? 2 : 1), m->hidden, layers, sum);
    add_vector(s, (double)tokens * (double)width, VPU_SWIGLU, 0, KERNEL_FUSED, layers, sum);
    add_matmul(s, tokens, m->hidden, width, layers, sum);
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

static void add_moe(const struct step_model *s, int64_t tokens, double layers, struct cost *sum) {
    const struct model *m = &s->model;
    int64_t slices = expert_slices(s), width = m->expert_ffn / slices;
    int64_t draws = tokens * m->experts_per_token;
    /* serving: the tokens of the step are shared out over the expert group; training: each device
     * brings its own tokens, so that on average it receives as many as it has */
    bool shared_tokens = s->tensor % s->expert == 0;
    int64_t rows = shared_tokens ? ceil_div(draws, s->expert) : draws;
    if (!shared_tokens)
        draws *= s->expert;
    int64_t here = m->experts / s->expert;
    double hit = touched((double)m->experts, draws) * (double)here / (double)m->experts;
    int64_t groups = (int64_t)(hit + 0.5);
    if (groups < 1)
        groups = 1;
    add_matmul(s, tokens, m->experts, m->hidden, layers, sum); /* router, whole on each device */
    add_vector(s, (double)(tokens * m->experts), VPU_SOFTMAX, 0, 0, layers, sum);
    struct kernel x = {.kind = KERNEL_GROUPED,
                       .math = s->o.math,
                       .b_bytes = num_bytes(s->o.weights),
                       .groups = groups,
                       .m = rows,
                       .n = width * (m->gated_ffn ? 2 : 1),
                       .k = m->hidden};
    conversion(s, &x, (double)groups);
    kernel_add(&s->device, &x, layers, sum);
    add_vector(s, (double)rows * (double)width, VPU_SWIGLU, 0, KERNEL_FUSED, layers, sum);
    x.n = m->hidden;
    x.k = width;
    conversion(s, &x, (double)groups);
    kernel_add(&s->device, &x, layers, sum);
    /* sort the tokens to their experts and bring the weighted sum back */
    double moved = (double)rows * (double)m->hidden * 2.0;
    struct kernel move = {.kind = KERNEL_GATHER, .read_bytes = moved, .write_bytes = moved};
    kernel_add(&s->device, &move, 2 * layers, sum);
    if (m->shared_experts > 0) {
        int64_t shared =
            m->shared_expert_ffn > 0 ? m->shared_expert_ffn : m->shared_experts * m->expert_ffn;
        add_ffn(s, tokens, ceil_div(shared, s->tensor), layers, sum);
    }
}

void step_compute(const struct step_model *s, int64_t tokens, struct cost *sum) {
    const struct model *m = &s->model;
    double layers = (double)m->layers, t = (double)tokens, h = (double)m->hidden;
    /* embedding rows, then two norms a layer with the residual add */
    add_vector(s, t * h, VPU_CHEAP, 2 * t * h * 2, 0, 1, sum);
    add_vector(s, t * h, VPU_RMSNORM + VPU_CHEAP, 0, 0, 2 * layers, sum);
    add_projections(s, tokens, sum);
    double moe_layers = m->experts ? layers - (double)m->dense_layers : 0;
    if (layers > moe_layers)
        add_ffn(s, tokens, m->ffn / s->tensor, layers - moe_layers, sum);
    if (moe_layers > 0)
        add_moe(s, tokens, moe_layers, sum);
    sum->s[BOUND_OVERHEAD] += s->decode_fixed_s; /* one ragged attention kernel a layer */
}

void step_layers(const struct step_model *s, int64_t tokens, struct cost *sum) {
    step_compute(s, tokens, sum);
    collective_add(s->chip, &s->group, COLLECTIVE_ALL_REDUCE,
                   (double)tokens * (double)s->model.hidden * 2, 2 * (double)s->model.layers, sum);
}

void step_head(const struct step_model *s, int64_t rows, struct cost *sum) {
    const struct model *m = &s->model;
    int64_t columns = ceil_div(m->vocab, s->tensor);
    add_vector(s, (double)rows * (double)m->hidden, VPU_RMSNORM, 0, 0, 1, sum);
    struct kernel x = {.kind = KERNEL_MATMUL,
                       .math = NUM_BF16,
                       .m = rows,
                       .n = columns,
                       .k = m->hidden,
                       .out_bytes = 4};
    kernel_add(&s->device, &x, 1, sum);
    add_vector(s, (double)rows * (double)columns, VPU_SOFTMAX, (double)rows * (double)columns * 4,
               0, 1, sum);
    collective_add(s->chip, &s->group, COLLECTIVE_ALL_GATHER, (double)rows * (double)m->vocab * 4,
                   1, sum);
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
