/* The op graph: sizes, counts, print. Builders: graph_model.c. */
#include "workloads/graph.h"

#include <inttypes.h>
#include <string.h>

const char *const axis_names[AXIS_COUNT] = {
    [AXIS_PLAIN] = "plain",         [AXIS_TOKENS] = "tokens",     [AXIS_SEQUENCES] = "sequences",
    [AXIS_ROUTED] = "routed",       [AXIS_EXPERT_FFN] = "expert_ffn",
    [AXIS_HIDDEN] = "hidden",       [AXIS_HEADS] = "heads",       [AXIS_KV_HEADS] = "kv_heads",
    [AXIS_HEAD_DIM] = "head_dim",   [AXIS_FFN] = "ffn",           [AXIS_EXPERTS] = "experts",
    [AXIS_VOCAB] = "vocab",         [AXIS_LATENT] = "latent",
};
const char *const dtype_names[DTYPE_COUNT] = {"bf16", "f32", "s32"};
const char *const op_kind_names[OP_KINDS] = {
    [OP_EMBED] = "embed",         [OP_NORM] = "norm",         [OP_EINSUM] = "einsum",
    [OP_ROPE] = "rope",           [OP_ATTENTION] = "attention", [OP_SLICE] = "slice", [OP_GLU] = "glu",
    [OP_ADD] = "add",             [OP_ROUTE] = "route",       [OP_DISPATCH] = "dispatch",
    [OP_GROUPED] = "grouped",     [OP_COMBINE] = "combine",   [OP_SAMPLE] = "sample",
};

int64_t dtype_bytes(enum dtype t) {
    static const int64_t bytes[DTYPE_COUNT] = {2, 4, 4};
    return bytes[t];
}

void graph_release(struct graph *g) {
    arena_release(&g->arena);
    *g = (struct graph){0};
}

int64_t graph_dim(const struct value *v, int i, const struct graph_step *s) {
    switch (v->axis[i]) {
    case AXIS_TOKENS:
    case AXIS_ROUTED:
        return v->n[i] * s->tokens;
    case AXIS_SEQUENCES:
        return v->n[i] * s->sequences;
    default:
        return v->n[i];
    }
}

int64_t graph_elements(const struct value *v, const struct graph_step *s) {
    int64_t n = 1;
    for (int i = 0; i < v->rank; i++)
        n *= graph_dim(v, i, s);
    return n;
}

int64_t graph_block_times(const struct graph *g, uint32_t block) {
    int64_t n = 0;
    for (uint32_t i = 0; i < g->ncalls; i++)
        n += g->call[i].block == block ? g->call[i].times : 0;
    return n;
}

/* ---- einsums ---- */

int einsum_letters(const struct op *o, struct einsum_letter out[2 * GRAPH_RANK_MAX]) {
    int n = 0, part = 0, at = 0;
    for (const char *p = o->einsum; *p; p++) {
        if (*p == ',' || *p == '>') {
            part++;
            at = 0;
        }
        if (*p < 'a' || *p > 'z')
            continue;
        int i = 0;
        while (i < n && out[i].letter != *p)
            i++;
        if (i == n)
            out[n++] = (struct einsum_letter){.letter = *p, .dim = {-1, -1, -1}};
        out[i].dim[part] = at++;
    }
    for (int i = 0; i < n; i++) {
        const int *d = out[i].dim;
        out[i].role = d[2] < 0 ? (d[0] < 0 ? 'x' : 'k') : d[0] < 0 ? 'n' : d[1] < 0 ? 'm' : 'b';
    }
    return n;
}

struct extents graph_extents(const struct graph *g, const struct op *o, const struct graph_step *s) {
    struct einsum_letter letter[2 * GRAPH_RANK_MAX];
    struct extents x = {1, 1, 1, 1};
    int n = einsum_letters(o, letter);
    const struct value *a = &g->value[o->operand[0]], *b = &g->value[o->operand[1]];
    for (int i = 0; i < n; i++) {
        const struct einsum_letter *l = &letter[i];
        if (l->role == 'x')
            continue;
        int64_t size = l->dim[0] >= 0 ? graph_dim(a, l->dim[0], s) : graph_dim(b, l->dim[1], s);
        *(l->role == 'b' ? &x.batch : l->role == 'm' ? &x.m : l->role == 'n' ? &x.n : &x.k) *= size;
    }
    return x;
}

/* ---- counts ---- */

int64_t graph_matmul_flops(const struct graph *g, const struct graph_step *s) {
    int64_t sum = 0;
    for (uint32_t b = 0; b < g->nblocks; b++) {
        int64_t block = 0;
        for (uint32_t i = 0; i < g->block[b].n; i++) {
            const struct op *o = &g->op[g->block[b].first + i];
            if (o->kind != OP_EINSUM && o->kind != OP_GROUPED)
                continue;
            struct extents x = graph_extents(g, o, s);
            block += 2 * x.batch * x.m * x.n * x.k;
        }
        sum += block * graph_block_times(g, b);
    }
    return sum;
}

static bool is_parameter(const struct value *v) {
    return (v->role == VALUE_WEIGHT || v->role == VALUE_TABLE || v->role == VALUE_VECTOR) && !v->shared;
}

int64_t graph_parameters(const struct graph *g) {
    const struct graph_step one = {1, 1};
    int64_t sum = 0;
    for (uint32_t b = 0; b < g->nblocks; b++) {
        int64_t block = 0;
        for (uint32_t i = 0; i < g->block[b].n; i++) {
            const struct op *o = &g->op[g->block[b].first + i];
            for (int k = 0; k < o->operands; k++)
                if (is_parameter(&g->value[o->operand[k]]))
                    block += graph_elements(&g->value[o->operand[k]], &one);
        }
        sum += block * graph_block_times(g, b);
    }
    return sum;
}

/* ---- print ---- */

static void print_value(const struct value *v, FILE *out) {
    fprintf(out, "%s %s[", v->name, dtype_names[v->dtype]);
    for (int i = 0; i < v->rank; i++) {
        bool open = v->axis[i] == AXIS_TOKENS || v->axis[i] == AXIS_SEQUENCES || v->axis[i] == AXIS_ROUTED;
        fprintf(out, "%s%s", i ? "," : "", axis_names[v->axis[i]]);
        if (!open || v->n[i] != 1)
            fprintf(out, "%c%" PRId64, open ? '*' : '=', v->n[i]);
    }
    fputc(']', out);
}

void graph_print(const struct graph *g, FILE *out) {
    for (uint32_t c = 0; c < g->ncalls; c++)
        fprintf(out, "call %s x %" PRId64 "\n", g->block[g->call[c].block].name, g->call[c].times);
    for (uint32_t b = 0; b < g->nblocks; b++) {
        fprintf(out, "block %s\n", g->block[b].name);
        for (uint32_t i = 0; i < g->block[b].n; i++) {
            const struct op *o = &g->op[g->block[b].first + i];
            fputs("  ", out);
            print_value(&g->value[o->result], out);
            fprintf(out, " = %s%s%s(", op_kind_names[o->kind], *o->einsum ? " " : "", o->einsum);
            for (int k = 0; k < o->operands; k++) {
                fputs(k ? ", " : "", out);
                print_value(&g->value[o->operand[k]], out);
            }
            fputs(")", out);
            if (o->window)
                fprintf(out, " window %" PRId64, o->window);
            if (o->top)
                fprintf(out, " top %" PRId64, o->top);
            fputc('\n', out);
        }
    }
}
