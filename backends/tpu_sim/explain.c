/* Sums of work by op. See the header. */
#include "backends/tpu_sim/explain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int explain_init(struct explain *x, const struct step_model *m, struct err *e) {
    *x = (struct explain){.model = m, .n = 2 * (size_t)m->graph.nops};
    x->row = calloc(x->n, sizeof *x->row);
    return x->row ? 0 : err_set(e, ASSAY_ENOMEM, "out of memory");
}

void explain_release(struct explain *x) {
    free(x->row);
    *x = (struct explain){0};
}

static void add_work(void *ctx, const struct work *w) {
    struct explain *x = ctx;
    size_t op = (size_t)(w->op - x->model->graph.op);
    struct op_total *r = &x->row[op + (w->is_collective ? x->n / 2 : 0)];
    double times = x->times * w->times;
    struct cost cost = {0};
    r->block = w->block;
    r->op = w->op;
    r->ops = w->ops;
    r->is_collective = w->is_collective;
    r->times += times;
    if (w->is_collective) {
        r->collective = w->collective;
        r->joined = w->joined;
        r->hbm_bytes += w->bytes * times;
        collective_add(x->model->chip, &x->model->group, w->collective, w->bytes, times, &cost);
    } else {
        struct kernel_time t;
        kernel_run(&x->model->device, &w->kernel, &t);
        r->flops += t.flops * times;
        r->issued_flops += t.issued_flops * times;
        r->hbm_bytes += t.hbm_bytes * times;
        kernel_add(&x->model->device, &w->kernel, times, &cost);
    }
    r->s += cost_total(&cost);
    r->fixed_s += cost.s[BOUND_OVERHEAD];
    for (int i = 0; i < BOUND_COUNT; i++)
        r->by[i] += cost.s[i];
}

void explain_add(struct explain *x, const struct graph_step *at, enum step_part part, double times) {
    x->times = times;
    step_each_work(x->model, at, part, add_work, x);
}

/* ---- JSON ---- */

static int longer_first(const void *a, const void *b) {
    const struct op_total *x = a, *y = b;
    return x->s != y->s ? (x->s < y->s ? 1 : -1) : x->op != y->op ? (x->op > y->op ? 1 : -1) : 0;
}

/* "q+k+v", "all-reduce of o". */
static void name_of(const struct graph *g, const struct op_total *r, char *out, size_t bytes) {
    static const char *const collectives[] = {"all-gather", "reduce-scatter", "all-reduce", "all-to-all", "permute"};
    if (r->is_collective) {
        snprintf(out, bytes, "%s of %s", collectives[r->collective], g->value[r->joined].name);
        return;
    }
    size_t n = (size_t)snprintf(out, bytes, "%s", g->value[r->op->result].name);
    for (uint32_t i = 1; i < r->ops && n < bytes; i++)
        n += (size_t)snprintf(out + n, bytes - n, "+%s", g->value[r->op[i].result].name);
}

static const char *waited_for(const double by[BOUND_COUNT]) {
    int most = 0;
    for (int i = 1; i < BOUND_COUNT; i++)
        if (by[i] > by[most])
            most = i;
    return bound_names[most];
}

static json_t *row_json(const struct graph *g, const struct op_total *r, double total_s) {
    char name[96];
    name_of(g, r, name, sizeof name);
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:f}", "block", r->block->name, "op", name, "kind",
                          r->is_collective ? "collective" : op_kind_names[r->op->kind], "resource", waited_for(r->by),
                          "times", r->times, "s", r->s, "share", total_s > 0 ? r->s / total_s : 0, "fixed_s", r->fixed_s);
    if (o && r->flops > 0) {
        json_object_set_new(o, "flops", json_real(r->flops));
        json_object_set_new(o, "useful", json_real(r->issued_flops > 0 ? r->flops / r->issued_flops : 1));
    }
    if (o && r->hbm_bytes > 0)
        json_object_set_new(o, r->is_collective ? "array_bytes" : "hbm_bytes", json_real(r->hbm_bytes));
    return o;
}

static json_t *attention_json(const struct cost *c, double total_s) {
    double s = cost_total(c);
    return json_pack("{s:s, s:s, s:s, s:s, s:f, s:f, s:f}", "block", "layers", "op", "attention by context", "kind",
                     op_kind_names[OP_ATTENTION], "resource", waited_for(c->s), "s", s, "share",
                     total_s > 0 ? s / total_s : 0, "fixed_s", c->s[BOUND_OVERHEAD]);
}

json_t *explain_json(const struct explain *x, const struct cost *attention, double total_s) {
    json_t *rows = json_array();
    bool told = !attention || cost_total(attention) <= 0;
    qsort(x->row, x->n, sizeof *x->row, longer_first);
    for (size_t i = 0; i <= x->n && rows; i++) {
        double s = i < x->n ? x->row[i].s : 0;
        if (!told && s <= cost_total(attention)) {
            json_array_append_new(rows, attention_json(attention, total_s));
            told = true;
        }
        if (s > 0)
            json_array_append_new(rows, row_json(&x->model->graph, &x->row[i], total_s));
    }
    return rows;
}
