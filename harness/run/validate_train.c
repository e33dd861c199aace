/* Training steps of the general table, through train_run. */
#include "harness/run/validate_internal.h"

#include "backends/tpu_sim/train.h"

#include <stdlib.h>
#include <string.h>

static const double chip_classes[] = {64, 256, 1024, 0};

/* "data=4 x fsdp=32", "tensor=8 x fsdp; remat minimal": axes named with a size; fsdp takes the
 * rest. */
static void sharding_of(const char *text, int64_t slices, struct train_options *o) {
    static const struct {
        const char *key;
        size_t offset;
    } axes[] = {{"data=", offsetof(struct train_options, data)},
                {"tensor=", offsetof(struct train_options, tensor)},
                {"expert=", offsetof(struct train_options, expert)},
                {"context=", offsetof(struct train_options, context)}};
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        double x = validate_find_number(text, axes[i].key);
        if (x >= 1 && x <= 1e6)
            *(int64_t *)(void *)((char *)o + axes[i].offset) = (int64_t)x;
    }
    if (slices > 1 && o->data == slices) /* the axis that crosses slices */
        o->data = 0;
    if (validate_has(text, "remat minimal") || validate_has(text, "saves dot products"))
        o->remat = REMAT_MINIMAL;
}

/* fsdp = what is left of the slice; data and fsdp are told apart only when data is named. */
static void fill_fsdp(struct train_options *o, int64_t devices) {
    int64_t used = (o->data ? o->data : 1) * (o->tensor ? o->tensor : 1) *
                   (o->expert ? o->expert : 1) * (o->context ? o->context : 1);
    o->fsdp = devices % used == 0 ? devices / used : 0;
}

static const char *train_answer(struct validator *v, const struct validate_row *r,
                                const struct chip *c, const struct model *m,
                                struct validate_answer *a) {
    if (r->chips < 1)
        return "the number of chips is not stated";
    double batch = r->global_batch > 0     ? r->global_batch
                   : r->per_chip_batch > 0 ? r->per_chip_batch * r->chips
                                           : -1;
    if (batch < 1 || r->seq_len < 1)
        return "batch or sequence length is not stated";
    int64_t slices = strtoll(r->slices, NULL, 10);
    slices = slices > 1 ? slices : 1;
    bool box = strchr(r->topology, 'x') && r->topology[0] >= '1' && r->topology[0] <= '9';
    struct train_options o = {
        .chips = (int64_t)r->chips / slices,
        .slices = slices,
        .topology = box ? r->topology : NULL,
        .math = validate_has(r->quant, "fp8")    ? NUM_FP8
                : validate_has(r->quant, "int8") ? NUM_INT8
                                                 : NUM_BF16,
        .remat = REMAT_FULL,
        .overlap = 0.9,
        .optimizer_bytes = 20,
        .global_batch = (int64_t)batch,
        .seq_len = (int64_t)r->seq_len,
    };
    char text[512];
    snprintf(text, sizeof text, "%s; %s", r->sharding, r->notes);
    sharding_of(text, slices, &o);
    fill_fsdp(&o, o.chips * c->devices);
    struct train_step t;
    struct err e = {0};
    int rc = train_run(c, m, &o, &t, &e);
    if (rc && o.topology) { /* a box written for another count */
        o.topology = NULL;
        rc = train_run(c, m, &o, &t, &e);
    }
    if (rc)
        return arena_strdup(&v->arena, e.text);
    a->size_class = validate_class(v, r->chips, chip_classes);
    double tokens = batch * r->seq_len;
    /* what MaxText and others counted: attention whole, unless the source says halved */
    double flops = validate_has(r->notes, "halved") || strstr(r->id, "W") == r->id
                       ? t.model_flops
                       : t.model_flops_whole;
    double per_chip = flops / t.s / r->chips;
    if (strcmp(r->metric, "step_time") == 0) {
        a->kind = "step_time";
        a->got = t.s;
    } else if (strcmp(r->metric, "block_time") == 0) {
        double block = validate_find_number(r->notes, "a block =");
        if (block < tokens)
            return "the tokens of a block are not stated";
        a->kind = "step_time";
        a->got = t.s * block / tokens;
    } else if (strcmp(r->metric, "tokens_per_s_per_chip") == 0) {
        a->kind = "train_tokens_per_s";
        a->got = t.tokens_per_s_per_chip;
    } else if (strcmp(r->metric, "tokens_per_s") == 0) {
        a->kind = "train_tokens_per_s";
        a->got = t.tokens_per_s_per_chip * r->chips;
    } else if (strcmp(r->metric, "model_tflops_per_chip") == 0) {
        a->kind = "train_flops";
        a->got = per_chip * 1e-12;
    } else if (strcmp(r->metric, "mfu") == 0) {
        a->kind = "train_flops";
        a->got = 100 * per_chip / chip_peak_flops(c, NUM_BF16);
    } else {
        return "no model of this metric";
    }
    return NULL;
}

int validate_train_row(struct validator *v, const struct validate_row *r, struct validate_answer *a,
                       struct err *e) {
    const struct chip *c;
    int rc = validate_chip(v, r->chip, &c, e);
    if (rc)
        return rc;
    struct model m;
    if (!c)
        a->why = "no chip file for this chip";
    else if (strcmp(r->metric, "time_to_train") == 0)
        a->why = "time to train depends on convergence, which is not simulated";
    else if (!validate_model(r->model, &m))
        a->why = "the model's shape is not known here, or it is no decoder";
    else
        a->why = train_answer(v, r, c, &m, a);
    return 0;
}
