/* Enumerates meshes, costs each by train_run. See the header. */
#include "backends/tpu_sim/mesh.h"

#include "backends/tpu_sim/lower.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS_MAX = 65536 };

/* ---- memory ---- */

static bool is_kept(const struct op *o, enum train_remat remat) {
    return remat == REMAT_NONE      ? o->kind != OP_SLICE
           : remat == REMAT_MINIMAL ? o->kind == OP_EINSUM || o->kind == OP_GROUPED || o->kind == OP_ATTENTION
                                    : false;
}

static double part_bytes(const struct graph *g, const struct layout *l, const struct graph_step *s, uint32_t value) {
    const struct value *v = &g->value[value];
    double n = (double)dtype_bytes(v->dtype);
    for (int i = 0; i < v->rank; i++)
        n *= (double)layout_part(l, v, i, s);
    return n;
}

int mesh_activation_bytes(const struct chip *c, const struct model *m, const struct train_options *o, double *bytes,
                          struct err *e) {
    struct graph g;
    int rc = graph_from_model(m, &g, e);
    (void)c;
    if (!rc) {
        int64_t slices = o->slices > 0 ? o->slices : 1;
        double tokens = (double)o->global_batch * (double)o->seq_len /
                        (double)(o->data * o->fsdp * o->expert * slices * o->context);
        const struct layout l = {.tensor = o->tensor, .expert = o->expert, .slices = o->tensor};
        const struct graph_step s = {(int64_t)(tokens + 0.5), (int64_t)(tokens + 0.5)};
        double sum = 0, most = 0;
        for (uint32_t b = 1; b + 1 < g.nblocks; b++) { /* layers: neither the embedding nor the head */
            double kept = part_bytes(&g, &l, &s, g.x), all = 0;
            for (uint32_t i = 0; i < g.block[b].n; i++) {
                const struct op *op = &g.op[g.block[b].first + i];
                double result = op->kind == OP_SLICE ? 0 : part_bytes(&g, &l, &s, op->result);
                all += result;
                kept += is_kept(op, o->remat) ? result : 0;
            }
            sum += kept * (double)graph_block_times(&g, b);
            most = all > most ? all : most;
        }
        double logits = (double)s.tokens * (double)ceil_div(m->vocab, o->tensor) * (4 + 2);
        *bytes = sum + (most > logits ? most : logits); /* never at once */
    }
    graph_release(&g);
    return rc;
}

/* ---- search ---- */

/* Costs one mesh; false: it does not divide. */
static bool cost_mesh(const struct chip *c, const struct model *m, const struct train_options *o, struct mesh_row *r) {
    struct train_step t;
    struct err ignored = {0};
    int64_t slices = o->slices > 0 ? o->slices : 1;
    if (o->global_batch % (o->data * o->fsdp * o->expert * slices) || o->seq_len % o->context)
        return false;
    *r = (struct mesh_row){o->data, o->fsdp, o->tensor, o->expert, o->context, .fits = true};
    struct train_options open = *o;
    open.any_memory = true;
    if (train_run(c, m, &open, &t, &ignored) || mesh_activation_bytes(c, m, o, &r->activation_bytes, &ignored))
        return false;
    r->s = t.s;
    r->compute_s = t.compute_s;
    r->exposed_comm_s = t.exposed_comm_s;
    r->optimizer_s = t.optimizer_s;
    r->state_bytes = t.hbm_bytes;
    return true;
}

static int by_time(const void *a, const void *b) {
    const struct mesh_row *x = a, *y = b;
    if (x->fits != y->fits)
        return x->fits ? -1 : 1;
    double mx = x->state_bytes + x->activation_bytes, my = y->state_bytes + y->activation_bytes;
    if (!x->fits)
        return (mx > my) - (mx < my);
    return x->s != y->s ? (x->s < y->s ? -1 : 1) : (mx > my) - (mx < my);
}

/* The values of an axis: what was given, or every divisor of what is left. */
static bool next_divisor(int64_t *v, int64_t left, int64_t given) {
    if (given)
        return *v == 0 && left % given == 0 && (*v = given);
    for (++*v; *v <= left; ++*v)
        if (left % *v == 0)
            return true;
    return false;
}

static bool add_row(struct mesh_search *s, const struct chip *c, const struct model *m, const struct train_options *o,
                    double hbm) {
    struct mesh_row *r = &s->row[s->divides];
    s->n++;
    if (s->divides == ROWS_MAX || !cost_mesh(c, m, o, r))
        return false;
    r->fits = r->state_bytes + r->activation_bytes <= hbm;
    s->fits += r->fits;
    s->divides++;
    return true;
}

static int none_fits(const struct mesh_search *s, const struct model *m, const struct train_options *o, struct err *e) {
    const struct mesh_row *r = &s->row[0];
    char mesh[96];
    if (!s->divides)
        return err_set(e, ASSAY_EINPUT,
                       "-o mesh=auto: none of %zu meshes of %" PRId64 " chips divides model '%s', the global batch of %" PRId64
                       " and the sequence of %" PRId64,
                       s->n, o->chips, m->name, o->global_batch, o->seq_len);
    mesh_print(r, mesh, sizeof mesh);
    const double gib = 1073741824.0;
    return err_set(e, ASSAY_EINPUT,
                   "-o mesh=auto: none of %zu meshes fits; the smallest, %s, needs %.1f GiB of state and %.1f GiB of activations of a "
                   "device's %.1f GiB of HBM: more chips%s",
                   s->divides, mesh, r->state_bytes / gib, r->activation_bytes / gib, s->hbm_bytes / gib,
                   o->remat == REMAT_FULL ? "" : " or -o remat=full");
}

int mesh_search(const struct chip *c, const struct model *m, const struct train_options *given, struct mesh_search *out,
                struct err *e) {
    struct device d;
    device_init(&d, c);
    *out = (struct mesh_search){.hbm_bytes = d.hbm_bytes, .row = calloc(ROWS_MAX + 1, sizeof *out->row)};
    if (!out->row)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    int64_t devices = given->chips * c->devices;
    struct train_options o = *given;
    for (o.tensor = 0; next_divisor(&o.tensor, devices, given->tensor);) {
        int64_t a = devices / o.tensor;
        for (o.expert = 0; next_divisor(&o.expert, a, m->experts ? given->expert : 1);) {
            int64_t b = a / o.expert;
            for (o.context = 0; next_divisor(&o.context, b, given->context);) {
                int64_t left = b / o.context;
                for (o.fsdp = 0; next_divisor(&o.fsdp, left, given->fsdp);) {
                    o.data = left / o.fsdp;
                    if (!given->data || given->data == o.data)
                        add_row(out, c, m, &o, d.hbm_bytes);
                }
            }
        }
    }
    qsort(out->row, out->divides, sizeof *out->row, by_time);
    double least = 1e300;
    for (size_t i = 0; i < out->fits; i++) {
        double bytes = out->row[i].state_bytes + out->row[i].activation_bytes;
        out->row[i].frontier = bytes < least;
        least = bytes < least ? bytes : least;
    }
    return out->fits ? 0 : none_fits(out, m, given, e);
}

void mesh_search_release(struct mesh_search *s) {
    free(s->row);
    *s = (struct mesh_search){0};
}

/* ---- print ---- */

void mesh_print(const struct mesh_row *r, char *out, size_t bytes) {
    const struct {
        const char *name;
        int64_t n;
    } axes[] = {{"data", r->data}, {"fsdp", r->fsdp}, {"tensor", r->tensor}, {"expert", r->expert}, {"context", r->context}};
    size_t n = 0;
    snprintf(out, bytes, "data:1");
    for (size_t i = 0; i < sizeof axes / sizeof *axes && n < bytes; i++)
        if (axes[i].n > 1)
            n += (size_t)snprintf(out + n, bytes - n, "%s%s:%" PRId64, n ? "," : "", axes[i].name, axes[i].n);
}

json_t *mesh_search_json(const struct mesh_search *s, size_t most) {
    json_t *rows = json_array();
    size_t printed = 0;
    for (size_t i = 0; i < s->fits && printed < most; i++) {
        const struct mesh_row *r = &s->row[i];
        char mesh[96];
        if (i >= most / 2 && !r->frontier)
            continue;
        mesh_print(r, mesh, sizeof mesh);
        json_array_append_new(rows, json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:b}", "mesh", mesh, "s", r->s, "compute_s",
                                              r->compute_s, "exposed_comm_s", r->exposed_comm_s, "optimizer_s", r->optimizer_s,
                                              "state_bytes", r->state_bytes, "activation_bytes", r->activation_bytes, "frontier",
                                              r->frontier));
        printed++;
    }
    return json_pack("{s:I, s:I, s:I, s:f, s:o}", "considered", (json_int_t)s->n, "divide", (json_int_t)s->divides, "fit",
                     (json_int_t)s->fits, "hbm_bytes", s->hbm_bytes, "meshes", rows);
}
