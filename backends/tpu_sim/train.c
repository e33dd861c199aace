/* The training step in closed form. Not here: layers (step.c), links (collective.c). */
#include "backends/tpu_sim/train.h"

#include "backends/tpu_sim/step.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *const train_remat_names[] = {"none", "minimal", "full", NULL};

int train_mesh_parse(const char *text, struct train_options *o, struct err *e) {
    static const struct {
        const char *name;
        size_t offset;
    } axes[] = {
        {"data", offsetof(struct train_options, data)},
        {"fsdp", offsetof(struct train_options, fsdp)},
        {"tensor", offsetof(struct train_options, tensor)},
        {"expert", offsetof(struct train_options, expert)},
        {"context", offsetof(struct train_options, context)},
    };
    const char *p = text;
    while (*p) {
        size_t n = strcspn(p, ":"), i = 0;
        while (i < sizeof axes / sizeof axes[0] &&
               (strlen(axes[i].name) != n || strncmp(axes[i].name, p, n) != 0))
            i++;
        if (i == sizeof axes / sizeof axes[0] || p[n] != ':')
            return err_set(e, ASSAY_EUSAGE,
                           "-o mesh: expected axes like \"data:4,tensor:2\" of data, fsdp, tensor, "
                           "expert and context, found \"%.40s\"",
                           p);
        char *end;
        const char *digits = p + n + 1;
        long long v = strtoll(digits, &end, 10);
        if (end == digits || *digits < '1' || *digits > '9' || v > 1 << 20 || (*end && *end != ','))
            return err_set(e, ASSAY_EUSAGE,
                           "-o mesh: axis '%s': expected 1 to 1048576 devices, found \"%.20s\"",
                           axes[i].name, digits);
        int64_t *field = (int64_t *)(void *)((char *)o + axes[i].offset);
        if (*field)
            return err_set(e, ASSAY_EUSAGE, "-o mesh: axis '%s' appears twice", axes[i].name);
        *field = v;
        p = *end ? end + 1 : end;
    }
    return 0;
}

/* Fills the axes not named; the product must be the slice's devices. */
static int complete_mesh(struct train_options *o, int64_t devices, struct err *e) {
    int64_t *rest = o->data || o->fsdp ? NULL : &o->fsdp;
    int64_t *axis[] = {&o->data, &o->fsdp, &o->tensor, &o->expert, &o->context};
    int64_t product = 1;
    for (size_t i = 0; i < 5; i++) {
        if (!*axis[i])
            *axis[i] = 1;
        product *= *axis[i];
        if (product > INT64_C(1) << 40)
            break;
    }
    if (rest && devices % product == 0) {
        *rest = devices / product;
        product = devices;
    }
    if (product != devices)
        return err_set(e, ASSAY_EUSAGE,
                       "-o mesh: the axes hold %" PRId64 " devices, but a slice of %" PRId64
                       " chips has %" PRId64,
                       product, o->chips, devices);
    return 0;
}

/* A mesh axis of n devices as a group of chips; devices of one chip are its innermost part. */
static void cut_axis(struct topology *left, int64_t *inner, int64_t n, struct topology *group) {
    int64_t in_chip = 1;
    while (*inner > 1 && n % 2 == 0) {
        in_chip *= 2;
        *inner /= 2;
        n /= 2;
    }
    if (!topology_cut(left, n, group)) { /* not a box: a line through what there is */
        *group = (struct topology){.axes = 1};
        group->length[0] = n;
    }
    group->cores = in_chip;
}

static double seconds(const struct chip *c, const struct topology *g, enum collective kind,
                      double bytes) {
    struct collective_time t;
    collective_run(c, g, kind, bytes, &t);
    return t.s;
}

/* Tokens-weighted pairs of attention per sequence: causal half, the window where layers slide. */
static double attention_flops(const struct model *m, double full_layers, double window_layers,
                              double seq) {
    double per_pair = 4.0 * (double)m->heads *
                      (double)(m->kv_lora_rank > 0
                                   ? (m->qk_nope_head_dim + m->qk_rope_head_dim + m->v_head_dim) / 2
                                   : m->head_dim);
    double w = (double)m->sliding_window;
    double window_pairs = w > 0 && w < seq ? seq * w - w * w / 2 : seq * seq / 2;
    return per_pair * (full_layers * seq * seq / 2 + window_layers * window_pairs);
}

struct overlap {
    double share, comm, exposed;
};

/* comm seconds in the shade of compute seconds. */
static void shade(struct overlap *o, double comm, double compute) {
    double hidden = (comm < compute ? comm : compute) * o->share;
    o->comm += comm;
    o->exposed += comm - hidden;
}

int train_run(const struct chip *c, const struct model *m, const struct train_options *given,
              struct train_step *t, struct err *e) {
    struct train_options o = *given;
    *t = (struct train_step){0};
    int rc = complete_mesh(&o, o.chips * c->devices, e);
    if (rc)
        return rc;
    int64_t slices = o.slices > 0 ? o.slices : 1;
    double ways = (double)(o.data * o.fsdp * o.expert * slices);
    double sequences =
        (double)o.global_batch / ways; /* of one device and its tensor and context peers */
    double device_tokens = sequences * (double)o.seq_len / (double)o.context;
    if (o.global_batch < 1 || o.seq_len < 1)
        return err_set(e, ASSAY_EINPUT,
                       "training needs a global batch and a sequence length of at least 1");
    if (device_tokens < 1)
        return err_set(e, ASSAY_EINPUT,
                       "a global batch of %" PRId64
                       " sequences leaves less than one token a device on %" PRId64 " devices",
                       o.global_batch, o.chips * c->devices * slices);
    struct step_options so = {.chips = ceil_div(o.tensor, c->devices),
                              .tensor = o.tensor,
                              .expert = o.expert,
                              .math = o.math};
    struct step_model s;
    if ((rc = step_init(&s, c, m, &so, e)))
        return rc;

    /* state: f32 weights, gradients and two moments, sharded over fsdp, tensor and expert */
    double params = (double)model_parameters(m), active = (double)model_active_parameters(m);
    double embed = (double)model_embedding_parameters(m);
    double shard = params / (double)(o.fsdp * o.tensor * o.expert);
    t->hbm_bytes = shard * 16;
    if (t->hbm_bytes > s.device.hbm_bytes && !o.any_memory) {
        step_release(&s);
        return err_set(e, ASSAY_EINPUT,
                       "weights, gradients and moments of model '%s' need %.1f GiB of a device's "
                       "%.1f GiB of HBM; "
                       "shard over at least %.0f devices (-o mesh=fsdp:N)",
                       m->name, t->hbm_bytes / 1073741824.0, s.device.hbm_bytes / 1073741824.0,
                       params * 16 / s.device.hbm_bytes + 0.5);
    }

    /* compute of one device */
    struct cost layers = {0}, attention = {0}, head = {0};
    int64_t tokens = (int64_t)(device_tokens + 0.5);
    step_compute(&s, tokens, &layers);
    step_prefill_attention(&s, o.seq_len, o.seq_len, &attention);
    struct kernel logits = {.kind = KERNEL_MATMUL,
                            .math = NUM_BF16,
                            .m = tokens,
                            .n = ceil_div(m->vocab, o.tensor),
                            .k = m->hidden};
    kernel_add(&s.device, &logits, 1, &head);
    double att = sequences / (double)o.context; /* sequences' worth of attention a device does */
    double again = o.remat == REMAT_FULL ? 1 : 0;
    double attention_again = o.remat == REMAT_NONE ? 0 : 1;
    step_release(&s);
    cost_add(&t->by, &layers, 3 + again);
    cost_add(&t->by, &attention, att * (3.5 + attention_again));
    cost_add(&t->by, &head, 3);
    t->by.s[BOUND_OVERHEAD] += cost_total(&t->by) * (1 / c->train_eff - 1);
    t->compute_s = cost_total(&t->by);
    double forward = (cost_total(&layers) + cost_total(&attention) * att) / c->train_eff;
    double backward = t->compute_s - forward;

    /* communication */
    struct topology left, g_tensor, g_expert, g_fsdp, g_data, g_context;
    if ((rc = topology_init(&left, c, o.chips, o.topology, e)))
        return rc;
    int64_t inner = c->devices;
    cut_axis(&left, &inner, o.tensor, &g_tensor);
    cut_axis(&left, &inner, o.expert, &g_expert);
    cut_axis(&left, &inner, o.context, &g_context);
    cut_axis(&left, &inner, o.fsdp, &g_fsdp);
    cut_axis(&left, &inner, o.data, &g_data);
    double L = (double)m->layers, act = device_tokens * (double)m->hidden * 2;
    struct overlap ov = {.share = o.overlap};
    double weights =
        params / (double)(o.tensor * o.expert) * 2 / L; /* bytes of one layer, gathered */
    double gather = L * seconds(c, &g_fsdp, COLLECTIVE_ALL_GATHER, weights);
    double scatter = L * seconds(c, &g_fsdp, COLLECTIVE_REDUCE_SCATTER, weights);
    double reduce = L * 2 * seconds(c, &g_tensor, COLLECTIVE_ALL_REDUCE, act);
    double a2a = 0, ring = 0;
    if (m->experts && o.expert > 1)
        a2a = 2 * (L - (double)m->dense_layers) *
              seconds(c, &g_expert, COLLECTIVE_ALL_TO_ALL,
                      act * (double)m->experts_per_token * (double)topology_chips(&g_expert));
    if (o.context > 1)
        ring = L * (double)(o.context - 1) *
               seconds(c, &g_context, COLLECTIVE_PERMUTE,
                       device_tokens * 4 * (double)(m->kv_heads * m->head_dim) / (double)o.tensor);
    shade(&ov, gather + reduce + a2a + ring, forward);
    double grads = shard * 2;
    double data = o.data > 1 ? seconds(c, &g_data, COLLECTIVE_ALL_REDUCE, grads) : 0;
    shade(&ov, gather + scatter + 2 * (reduce + a2a + ring) + data, backward);
    if (slices > 1 &&
        c->dcn_gbps > 0) { /* f32 gradients of a chip's shard, after the backward pass */
        double dcn = 2 * (double)(slices - 1) / (double)slices * 2 * grads * (double)c->devices /
                     (c->dcn_gbps * 1e9);
        ov.comm += dcn;
        ov.exposed += dcn;
    }
    t->comm_s = ov.comm;
    t->exposed_comm_s = ov.exposed;
    t->by.s[BOUND_ICI] += ov.exposed;

    t->optimizer_s = shard * o.optimizer_bytes / s.device.hbm_bytes_per_s;
    t->by.s[BOUND_HBM] += t->optimizer_s;
    t->s = cost_total(&t->by);

    double all_tokens = (double)o.global_batch * (double)o.seq_len;
    double multiplied =
        active - (m->tied_embeddings ? 0 : embed); /* looking up a row is no product */
    double att_flops = (double)o.global_batch *
                       attention_flops(m, s.full_layers, s.window_layers, (double)o.seq_len);
    t->model_flops = 6 * multiplied * all_tokens + 3 * att_flops;
    t->model_flops_whole = t->model_flops + 3 * att_flops;
    double hardware = t->model_flops + again * (2 * multiplied * all_tokens + att_flops);
    double chips = (double)(o.chips * slices), peak = chip_peak_flops(c, o.math) * chips * t->s;
    t->mfu = t->model_flops / peak;
    t->hfu = hardware / peak;
    t->tokens_per_s_per_chip = all_tokens / t->s / chips;
    return 0;
}
