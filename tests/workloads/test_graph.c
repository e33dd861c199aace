/* The op graph against counts that were derived without it: parameters published with the checkpoints, and 2 FLOPs
 * a parameter that takes part in products. */
#include "harness/core/embed.h"
#include "workloads/graph.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

/* Calls fn for each model that ships. */
static size_t each_model(void (*fn)(const struct model *m, const struct graph *g)) {
    size_t n, seen = 0;
    const struct embedded *all = embedded_all(&n);
    for (size_t i = 0; i < n; i++) {
        char name[64];
        struct model m;
        struct graph g;
        struct err e = {0};
        if (strncmp(all[i].path, "workloads/models/", 17))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(strlen(all[i].path) - 22), all[i].path + 17);
        cr_assert(eq(int, model_load(name, &m, &e), 0), "%s", e.text);
        cr_assert(eq(int, graph_from_model(&m, &g, &e), 0), "%s", e.text);
        fn(&m, &g);
        graph_release(&g);
        seen++;
    }
    return seen;
}

static void same_parameters(const struct model *m, const struct graph *g) {
    cr_assert(eq(i64, graph_parameters(g), model_parameters(m)), "%s", m->name);
}

Test(workloads_graph, weights_add_up_to_the_published_parameters) {
    cr_assert(ge(sz, each_model(same_parameters), 13));
}

/* Elements of vectors (norms, biases) that a token passes: in the active count, but no product. */
static int64_t vectors(const struct model *m, const struct graph *g) {
    const struct graph_step one = {1, 1};
    int64_t sum = 0;
    for (uint32_t b = 0; b < g->nblocks; b++)
        for (uint32_t i = 0; i < g->block[b].n; i++) {
            const struct op *o = &g->op[g->block[b].first + i];
            for (int k = 0; k < o->operands; k++) {
                const struct value *v = &g->value[o->operand[k]];
                int64_t n = v->role == VALUE_VECTOR ? graph_elements(v, &one) : 0;
                if (o->kind == OP_GROUPED)
                    n = n / m->experts * m->experts_per_token;
                sum += n * graph_block_times(g, b);
            }
        }
    return sum;
}

static void two_flops_a_parameter(const struct model *m, const struct graph *g) {
    const struct graph_step s = {7, 7};
    cr_assert(eq(i64, graph_matmul_flops(g, &s), 7 * 2 * (model_matmul_parameters(m) - vectors(m, g))), "%s",
              m->name);
}

Test(workloads_graph, a_token_costs_two_flops_a_parameter_it_meets) {
    cr_assert(ge(sz, each_model(two_flops_a_parameter), 13));
}

static void calls_are_all_layers(const struct model *m, const struct graph *g) {
    int64_t n = 0;
    for (uint32_t b = 0; b < g->nblocks; b++)
        n += graph_block_times(g, b);
    cr_assert(eq(i64, n, m->layers + 2), "%s", m->name);
}

Test(workloads_graph, calls_run_every_layer_in_order) {
    each_model(calls_are_all_layers);
    struct model m;
    struct graph g;
    struct err e = {0};
    cr_assert(eq(int, model_load("gemma3-27b", &m, &e), 0));
    cr_assert(eq(int, graph_from_model(&m, &g, &e), 0));
    /* five windowed layers, one full, ten times, and two windowed at the end: 62 */
    cr_assert(eq(u32, g.ncalls, 1 + 20 + 1 + 1));
    cr_assert(eq(i64, g.call[1].times, 5));
    cr_assert(eq(i64, g.call[2].times, 1));
    cr_assert(eq(i64, g.call[21].times, 2));
    graph_release(&g);
}

Test(workloads_graph, an_einsum_tells_its_extents) {
    struct value v[3] = {{.rank = 3, .n = {5, 3, 4}, .axis = {AXIS_TOKENS}},
                         {.rank = 3, .n = {3, 4, 7}},
                         {.rank = 3}};
    struct op o = {.kind = OP_EINSUM, .operand = {0, 1}, .operands = 2, .result = 2, .einsum = "thn,hnr->thr"};
    struct graph g = {.value = v};
    struct graph_step s = {.tokens = 2};
    struct extents x = graph_extents(&g, &o, &s);
    cr_assert(eq(i64, x.batch, 3));
    cr_assert(eq(i64, x.m, 10));
    cr_assert(eq(i64, x.k, 4));
    cr_assert(eq(i64, x.n, 7));
}

Test(workloads_graph, print_names_every_op) {
    struct model m;
    struct graph g;
    struct err e = {0};
    char *text = NULL;
    size_t size;
    cr_assert(eq(int, model_load("mixtral-8x7b", &m, &e), 0));
    cr_assert(eq(int, graph_from_model(&m, &g, &e), 0));
    FILE *f = open_memstream(&text, &size);
    graph_print(&g, f);
    fclose(f);
    cr_assert(ne(ptr, strstr(text, "call moe_layer x 32\n"), NULL), "%s", text);
    cr_assert(ne(ptr, strstr(text, "up bf16[routed*2,expert_ffn=14336] = grouped rd,xdf->rf("), NULL), "%s", text);
    free(text);
    graph_release(&g);
}
