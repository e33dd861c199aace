/* The op graph on devices: what is split adds up to what was there, sums are joined where they must be, and the rows of
 * an explanation are what was charged. */
#include "backends/tpu_sim/explain.h"
#include "backends/tpu_sim/step.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

static const char *const models[] = {"llama3.1-8b", "llama3.1-70b", "qwen3-32b",   "gemma3-27b",
                                     "mixtral-8x7b", "gpt-oss-120b", "deepseek-v3"};
enum { MODELS = sizeof models / sizeof *models };

static void load(struct chip *c, struct model *m, const char *name) {
    struct err e = {0};
    cr_assert(eq(int, chip_load("v6e", NULL, 0, c, NULL, &e), 0), "%s", e.text);
    cr_assert(eq(int, model_load(name, m, &e), 0), "%s", e.text);
}

struct seen {
    double flops, reduces, reduced_bytes, gathers;
};

static void see(void *ctx, const struct work *w) {
    struct seen *s = ctx;
    struct chip c;
    struct err e = {0};
    struct device d;
    struct kernel_time t;
    if (w->is_collective && w->collective == COLLECTIVE_ALL_REDUCE) {
        s->reduces += w->times;
        s->reduced_bytes += w->times * w->bytes;
    } else if (w->is_collective) {
        s->gathers += w->times;
    } else {
        cr_assert(eq(int, chip_load("v6e", NULL, 0, &c, NULL, &e), 0));
        device_init(&d, &c);
        kernel_run(&d, &w->kernel, &t);
        s->flops += t.flops * w->times;
    }
}

/* On one device every product of the graph is done once. */
Test(backends_tpu_sim_lower, one_device_does_what_the_graph_says) {
    for (size_t i = 0; i < MODELS; i++) {
        struct model m;
        struct chip c;
        struct graph g;
        struct err e = {0};
        struct seen s = {0};
        const struct graph_step step = {256, 8};
        const struct layout l = {.tensor = 1, .expert = 1, .slices = 1, .tokens_shared = true};
        load(&c, &m, models[i]);
        cr_assert(eq(int, graph_from_model(&m, &g, &e), 0));
        lower(&g, &l, &step, 0, g.nblocks, see, &s);
        cr_assert(eq(dbl, s.flops, (double)graph_matmul_flops(&g, &step)), "%s", models[i]);
        cr_assert(eq(dbl, s.reduces + s.gathers, 0.0));
        graph_release(&g);
    }
}

/* Over eight devices each does an eighth of what is split, and the sums after attention and after the feed-forward layer are
 * joined: two all-reduces of [tokens, hidden] a layer (Megatron-LM, arXiv:1909.08053, section 3), and the logits gathered once. */
Test(backends_tpu_sim_lower, tensor_parallel_layers_join_two_sums) {
    for (size_t i = 0; i < MODELS; i++) {
        struct model m;
        struct chip c;
        struct graph g;
        struct err e = {0};
        struct seen s = {0};
        const struct graph_step step = {64, 8};
        const struct layout l = {.tensor = 8, .expert = 1, .slices = 8, .tokens_shared = true};
        load(&c, &m, models[i]);
        cr_assert(eq(int, graph_from_model(&m, &g, &e), 0));
        lower(&g, &l, &step, 0, g.nblocks, see, &s);
        double whole = (double)graph_matmul_flops(&g, &step);
        cr_assert(eq(dbl, s.reduces, 2.0 * (double)m.layers), "%s", models[i]);
        cr_assert(eq(dbl, s.reduced_bytes, s.reduces * 64 * (double)m.hidden * 2), "%s", models[i]);
        cr_assert(eq(dbl, s.gathers, 1.0), "%s", models[i]);
        /* more than an eighth: routers and latents are whole on every device */
        cr_assert(ge(dbl, s.flops * 8, whole), "%s", models[i]);
        cr_assert(le(dbl, s.flops, whole / 8 * 1.5), "%s", models[i]);
        if (!m.experts && !m.kv_lora_rank && m.vocab % 8 == 0)
            cr_assert(eq(dbl, s.flops * 8, whole), "%s", models[i]);
        graph_release(&g);
    }
}

Test(backends_tpu_sim_lower, experts_spread_over_devices_join_once) {
    struct model m;
    struct chip c;
    struct graph g;
    struct err e = {0};
    struct seen s = {0};
    const struct graph_step step = {64, 8};
    const struct layout l = {.tensor = 8, .expert = 8, .slices = 1, .tokens_shared = true};
    load(&c, &m, "deepseek-v3");
    cr_assert(eq(int, graph_from_model(&m, &g, &e), 0));
    lower(&g, &l, &step, 0, g.nblocks, see, &s);
    cr_assert(eq(dbl, s.reduces, 2.0 * (double)m.layers));
    graph_release(&g);
}

/* The rows of an explanation add up to the cost of the steps. */
Test(backends_tpu_sim_lower, an_explanation_adds_up) {
    for (size_t i = 0; i < MODELS; i++) {
        struct model m;
        struct chip c;
        struct step_model s;
        struct explain x;
        struct err e = {0};
        struct cost sum = {0}, attention = {.s = {[BOUND_HBM] = 1e-3}};
        load(&c, &m, models[i]);
        const struct step_options o = {.chips = 8};
        cr_assert(eq(int, step_init(&s, &c, &m, &o, &e), 0), "%s", e.text);
        cr_assert(eq(int, explain_init(&x, &s, &e), 0));
        step_layers(&s, 128, &sum);
        step_layers(&s, 128, &sum);
        step_layers(&s, 2048, &sum);
        step_head(&s, 8, &sum);
        explain_add(&x, &(struct graph_step){128, 0}, STEP_LAYERS, 2);
        explain_add(&x, &(struct graph_step){2048, 0}, STEP_LAYERS, 1);
        explain_add(&x, &(struct graph_step){0, 8}, STEP_HEAD, 1);
        double total = cost_total(&sum) + 1e-3, seconds = 0, shares = 0, last = 1e9;
        json_t *rows = explain_json(&x, &attention, total), *row;
        size_t k;
        json_array_foreach(rows, k, row) {
            double one = json_number_value(json_object_get(row, "s"));
            cr_assert(le(dbl, one, last), "rows fall");
            last = one;
            seconds += one;
            shares += json_number_value(json_object_get(row, "share"));
        }
        cr_assert(epsilon_eq(dbl, seconds, total, 1e-12 * total * 100), "%s: %.17g %.17g", models[i], seconds, total);
        cr_assert(epsilon_eq(dbl, shares, 1.0, 1e-9));
        json_decref(rows);
        explain_release(&x);
        step_release(&s);
    }
}
