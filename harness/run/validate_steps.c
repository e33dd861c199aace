/* Serving rows that are one engine step, or a few like ones: prefill of a prompt, decode of a
 * batch. */
#include "harness/run/validate_internal.h"

#include "backends/tpu_sim/step.h"

#include <string.h>

static const double token_classes[] = {128, 1024, 8192, 0};

static const char *decode_answer(const struct step_model *s, const struct validate_row *r,
                                 double batch, struct validate_answer *a) {
    double context = r->seq_len > 0 ? r->seq_len
                     : r->isl > 0   ? r->isl + (r->osl > 0 ? r->osl / 2 : 0)
                                    : -1;
    if (context < 1)
        return "the context's length is not stated";
    struct cost sum = {0};
    step_layers(s, (int64_t)batch, &sum);
    step_head(s, (int64_t)batch, &sum);
    step_decode_attention(s, (int64_t)batch, (int64_t)(batch * context), (int64_t)(batch * context),
                          &sum);
    double t = cost_total(&sum);
    /* one author's own numbers are counted on their own; the context is taken as the stated maximum
     */
    a->kind = validate_has(r->notes, "low-trust") ? "decode_step_low_trust" : "decode_step";
    if (strcmp(r->metric, "decode_tok_per_s") == 0)
        a->got = batch / t;
    else if (strcmp(r->metric, "time_per_token") == 0)
        a->got = t * 1e3;
    else if (strcmp(r->metric, "latency") == 0 && r->osl >= 1)
        a->got = t * r->osl * 1e3;
    else if (strcmp(r->metric, "mfu") == 0)
        a->got = 100 * 2 * (double)model_active_parameters(&s->model) * batch /
                 (t * s->device.flops_per_s[NUM_BF16] * (double)s->tensor);
    else
        return "no model of this metric";
    return NULL;
}

/* A whole batch of prompts as one step. */
static const char *prefill_answer(const struct step_model *s, const struct validate_row *r,
                                  double batch, struct validate_answer *a) {
    if (r->isl < 1)
        return "the prompt's length is not stated";
    struct cost sum = {0};
    double tokens = r->isl * batch;
    step_layers(s, (int64_t)tokens, &sum);
    step_head(s, (int64_t)batch, &sum);
    struct cost one = {0};
    step_prefill_attention(s, (int64_t)r->isl, (int64_t)r->isl, &one);
    cost_add(&sum, &one, batch);
    double t = cost_total(&sum);
    a->kind = "prefill";
    if (strcmp(r->metric, "prefill_time") == 0 || strcmp(r->metric, "latency") == 0)
        a->got = t * 1e3;
    else if (strcmp(r->metric, "mfu") == 0)
        a->got = 100 * 2 * (double)model_active_parameters(&s->model) * tokens /
                 (t * s->device.flops_per_s[NUM_BF16] * (double)s->tensor);
    else
        return "no model of this metric";
    return NULL;
}

int validate_step_row(struct validator *v, const struct validate_row *r, const struct model *m,
                      struct validate_answer *a, struct err *e) {
    const struct chip *c;
    int rc = validate_chip(v, r->chip, &c, e);
    if (rc)
        return rc;
    if (validate_has(r->metric, "attention_kernel")) {
        a->why = "an upper value without the sizes it was reached at";
        return 0;
    }
    if (validate_has(r->sharding, "context parallel")) {
        a->why = "prefill split along the context has no model yet";
        return 0;
    }
    if (validate_has(r->sharding, "weight-gathered")) {
        a->why =
            "weights gathered over all axes for one large batch: no model of this partitioning";
        return 0;
    }
    if (!c || r->chips < 1) {
        a->why = "the number of chips is not stated";
        return 0;
    }
    bool box = strchr(r->topology, 'x') && r->topology[0] >= '1' && r->topology[0] <= '9';
    bool int8 = validate_has(r->quant, "int8") || validate_has(r->dtype, "int8");
    struct step_options so = {.chips = (int64_t)r->chips,
                              .topology = box ? r->topology : NULL,
                              .block_size = 128,
                              .weights = int8 ? NUM_INT8 : NUM_BF16,
                              .attention = validate_has(r->notes, "no custom kernels")
                                               ? ATTENTION_PLAIN
                                               : ATTENTION_PAGED};
    struct step_model s;
    struct err why = {0};
    if (step_init(&s, c, m, &so, &why)) {
        a->why = arena_strdup(&v->arena, why.text);
        return 0;
    }
    double batch = r->global_batch >= 1 ? r->global_batch : 1;
    double tokens = strcmp(r->phase, "prefill") == 0 ? batch * r->isl : batch;
    a->size_class = validate_class(v, tokens, token_classes);
    if (strcmp(r->phase, "decode") == 0)
        a->why = decode_answer(&s, r, batch, a);
    else if (strcmp(r->phase, "prefill") == 0)
        a->why = prefill_answer(&s, r, batch, a);
    else
        a->why = "no model of this phase";
    step_release(&s);
    return 0;
}
