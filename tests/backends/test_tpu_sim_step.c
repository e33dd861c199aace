/* Step floors and KV sizes against worked examples of jax-ml/scaling-book (applied-inference.md),
 * on a chip whose shares are all 1 and whose fixed costs are 0. */
#include "backends/tpu_sim/step.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

static struct chip ideal(const char *name, const char *hbm_gbps) {
    struct chip_override o[] = {{"mxu_eff", "1"},      {"hbm_eff", "1"},     {"attn_hbm_eff", "1"},
                                {"attn_mxu_eff", "1"}, {"kernel_us", "0"},   {"collective_us", "0"},
                                {"ici_hop_us", "0"},   {"attn_seq_us", "0"}, {"fill_mb", "0"},
                                {"hbm_gbps", hbm_gbps}};
    struct chip c;
    struct err e = {0};
    cr_assert(eq(int, chip_load(name, o, sizeof o / sizeof o[0], &c, NULL, &e), 0), "%s", e.text);
    return c;
}

static struct model shape(const char *name) {
    struct model m;
    struct err e = {0};
    cr_assert(eq(int, model_load(name, &m, &e), 0), "%s", e.text);
    return m;
}

static struct step_model step(const struct chip *c, const struct model *m, struct step_options o) {
    struct step_model s;
    struct err e = {0};
    cr_assert(eq(int, step_init(&s, c, m, &o, &e), 0), "%s", e.text);
    return s;
}

Test(backends_tpu_sim_step, kv_bytes_of_llama_70b) {
    struct chip c = ideal("v5e", "810");
    struct model m = shape("llama3.1-70b");
    struct step_model s = step(&c, &m, (struct step_options){.chips = 8, .kv = NUM_INT8});
    cr_assert(eq(dbl, s.kv_token_bytes * 8, 163840.0)); /* 2*80*8*128 */
    step_release(&s);
    /* more devices than KV heads: each head is held twice */
    s = step(&c, &m, (struct step_options){.chips = 16, .kv = NUM_INT8});
    cr_assert(eq(dbl, s.kv_token_bytes * 16, 2 * 163840.0));
    step_release(&s);
}

Test(backends_tpu_sim_step, decode_floor_of_llama_70b_on_v5e_4x2) {
    /* int8 weights and cache, 32 sequences of 8192: (41.9e9 + 70e9) / (8 * 8.1e11) = 17.3 ms */
    struct chip c = ideal("v5e", "810");
    struct model m = shape("llama3.1-70b");
    struct step_model s = step(
        &c, &m,
        (struct step_options){.chips = 8, .topology = "2x4", .kv = NUM_INT8, .weights = NUM_INT8});
    struct cost sum = {0};
    step_compute(&s, 32, &sum);
    step_head(&s, 32, &sum);
    step_decode_attention(&s, 32, 32 * 8192, 32 * 8192, &sum);
    double floor_s = (32 * 8192 * 163840.0 + 70e9) / (8 * 8.1e11);
    cr_assert(epsilon_eq(dbl, floor_s, 17.3e-3, 0.2e-3)); /* the book rounds the context */
    cr_assert(ge(dbl, cost_total(&sum), floor_s));
    /* the rest: 16-bit embedding and head, norms and sampling */
    cr_assert(le(dbl, sum.s[BOUND_HBM], floor_s * 1.04));
    cr_assert(gt(dbl, sum.s[BOUND_HBM], floor_s * 0.97));
    step_release(&s);
}

Test(backends_tpu_sim_step, causal_prefill_does_half_the_square) {
    struct chip c = ideal("v6e", "1638");
    struct model m = shape("llama3.1-8b");
    struct step_model s = step(&c, &m, (struct step_options){.chips = 1});
    struct kernel k;
    step_prefill_kernel(&s, 4096, 4096, 0, &k);
    /* 2*B*H*D*s*s, plus the diagonal */
    cr_assert(epsilon_eq(dbl, k.flops, 2.0 * 32 * 128 * 4096 * 4096, 2.0 * 32 * 128 * 4096 * 1.01));
    /* two chunks do what one does */
    struct kernel a, b;
    step_prefill_kernel(&s, 2048, 2048, 0, &a);
    step_prefill_kernel(&s, 2048, 4096, 0, &b);
    cr_assert(eq(dbl, a.flops + b.flops, k.flops));
    /* a window of 1024: first 1024 queries see a triangle, the others 1024 each */
    step_prefill_kernel(&s, 4096, 4096, 1024, &k);
    cr_assert(eq(dbl, k.elements, 32.0 * (1024.0 * 1025 / 2 + 3072.0 * 1024)));
    /* late chunk, whole window */
    step_prefill_kernel(&s, 512, 8192, 1024, &k);
    cr_assert(eq(dbl, k.elements, 32.0 * 512 * 1024));
    step_release(&s);
}

Test(backends_tpu_sim_step, latent_cache_is_one_vector) {
    struct chip c = ideal("7x", "7380");
    struct model m = shape("deepseek-v3");
    struct step_model s =
        step(&c, &m,
             (struct step_options){.chips = 16, .expert = 32, .weights = NUM_FP8, .kv = NUM_BF16});
    cr_assert(
        eq(dbl, s.kv_token_bytes, 61.0 * 640 * 2)); /* 512 + 64, padded to lanes, on every device */
    cr_assert(gt(dbl, step_kv_room_bytes(&s, 0.9), 0.0));
    step_release(&s);
}

Test(backends_tpu_sim_step, costs_grow_with_tokens_and_contexts) {
    static const char *const models[] = {"llama3.1-8b", "mixtral-8x7b", "gpt-oss-120b",
                                         "gemma3-27b", "qwen3-32b"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct chip c;
        struct err e = {0};
        cr_assert(eq(int, chip_load("v5p", NULL, 0, &c, NULL, &e), 0));
        struct model m = shape(models[i]);
        struct step_model s = step(&c, &m, (struct step_options){.chips = 4});
        double last = 0;
        for (int64_t t = 1; t <= 16384; t *= 2) {
            struct cost sum = {0};
            step_layers(&s, t, &sum);
            cr_assert(ge(dbl, cost_total(&sum), last), "%s %d", models[i], (int)t);
            last = cost_total(&sum);
        }
        struct cost a = {0}, b = {0};
        step_decode_attention(&s, 8, 8000, 8000, &a);
        step_decode_attention(&s, 8, 16000, 8000, &b);
        cr_assert(ge(dbl, cost_total(&b), cost_total(&a)));
        step_release(&s);
    }
}

Test(backends_tpu_sim_step, more_chips_are_faster_but_not_free) {
    struct chip c;
    struct err e = {0};
    cr_assert(eq(int, chip_load("v6e", NULL, 0, &c, NULL, &e), 0));
    struct model m = shape("llama3.1-70b");
    double last = 1e9;
    for (int64_t n = 8; n <= 64; n *= 2) {
        struct step_model s = step(&c, &m, (struct step_options){.chips = n});
        struct cost sum = {0};
        step_layers(&s, 2048, &sum);
        cr_assert(lt(dbl, cost_total(&sum), last));
        cr_assert(gt(dbl, sum.s[BOUND_ICI], 0.0));
        last = cost_total(&sum);
        step_release(&s);
    }
}
