/* The search of a mesh against an exhaustive one that shares no loop with it, and memory against hand-worked sums. */
#include "backends/tpu_sim/mesh.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

static void load(const char *chip, const char *model, struct chip *c, struct model *m) {
    struct err e = {0};
    cr_assert(eq(int, chip_load(chip, NULL, 0, c, NULL, &e), 0), "%s", e.text);
    cr_assert(eq(int, model_load(model, m, &e), 0), "%s", e.text);
}

static const struct train_options base = {
    .chips = 16, .remat = REMAT_FULL, .overlap = 0.9, .optimizer_bytes = 20, .global_batch = 64, .seq_len = 4096};

/* Llama-3.1-8B, 16 chips by fsdp: 64/16 * 4096 = 16384 tokens a device. Full remat keeps a [16384, 4096] bf16 array for each of 32
 * layers; beside them the logits, 16384 * 128256 * (4 + 2) bytes, are more than one layer at work. */
Test(backends_tpu_sim_mesh, activations_of_full_remat) {
    struct chip c;
    struct model m;
    struct err e = {0};
    struct train_options o = base;
    double bytes;
    load("v5p", "llama3.1-8b", &c, &m);
    o.data = o.tensor = o.expert = o.context = 1;
    o.fsdp = 16;
    cr_assert(eq(int, mesh_activation_bytes(&c, &m, &o, &bytes, &e), 0));
    cr_assert(eq(dbl, bytes, 32.0 * 16384 * 4096 * 2 + 16384.0 * 128256 * 6));
    double full = bytes, minimal;
    o.remat = REMAT_MINIMAL;
    cr_assert(eq(int, mesh_activation_bytes(&c, &m, &o, &minimal, &e), 0));
    /* products and attention a layer and token: q 4096, k and v 1024 each, attention 4096, o 4096, up and gate 14336 each,
     * down 4096 */
    cr_assert(eq(dbl, minimal - full, 32.0 * 16384 * 2 * (4096 * 4 + 2 * 1024 + 2 * 14336)));
    o.remat = REMAT_NONE;
    cr_assert(eq(int, mesh_activation_bytes(&c, &m, &o, &bytes, &e), 0));
    cr_assert(gt(dbl, bytes, minimal));
}

Test(backends_tpu_sim_mesh, the_winner_is_the_fastest_that_fits) {
    static const char *const names[] = {"llama3.1-8b", "mixtral-8x7b"};
    for (size_t k = 0; k < 2; k++) {
        struct chip c;
        struct model m;
        struct err e = {0};
        struct mesh_search s;
        double best = 1e300;
        size_t fit = 0;
        load("v5p", names[k], &c, &m);
        cr_assert(eq(int, mesh_search(&c, &m, &base, &s, &e), 0), "%s", e.text);
        for (int code = 0; code < 5 * 5 * 5 * 5 * 5; code++) { /* 2^0..2^4 on each axis */
            int64_t x[5], product = 1;
            for (int i = 0, left = code; i < 5; i++, left /= 5)
                product *= x[i] = 1 << left % 5;
            if (product != 16 || (!m.experts && x[3] > 1))
                continue;
            struct train_options o = base;
            o.data = x[0], o.fsdp = x[1], o.tensor = x[2], o.expert = x[3], o.context = x[4];
            struct train_step t;
            double bytes;
            if (64 % (x[0] * x[1] * x[3]) || train_run(&c, &m, &o, &t, &e) ||
                mesh_activation_bytes(&c, &m, &o, &bytes, &e) || t.hbm_bytes + bytes > s.hbm_bytes)
                continue;
            fit++;
            best = t.s < best ? t.s : best;
        }
        cr_assert(eq(dbl, s.row[0].s, best), "%s", names[k]);
        cr_assert(eq(sz, s.fits, fit), "%s", names[k]);
        cr_assert(s.row[0].frontier);
        mesh_search_release(&s);
    }
}

Test(backends_tpu_sim_mesh, axes_that_are_given_stay) {
    struct chip c;
    struct model m;
    struct err e = {0};
    struct mesh_search s;
    struct train_options o = base;
    load("v5p", "llama3.1-8b", &c, &m);
    o.tensor = 4;
    cr_assert(eq(int, mesh_search(&c, &m, &o, &s, &e), 0));
    for (size_t i = 0; i < s.divides; i++)
        cr_assert(eq(i64, s.row[i].tensor, 4));
    mesh_search_release(&s);
}

Test(backends_tpu_sim_mesh, what_does_not_fit_says_by_how_much) {
    struct chip c;
    struct model m;
    struct err e = {0};
    struct mesh_search s;
    struct train_options o = base;
    load("v5e", "llama3.1-70b", &c, &m);
    cr_assert(eq(int, mesh_search(&c, &m, &o, &s, &e), ASSAY_EINPUT));
    cr_assert(ne(ptr, strstr(e.text, "GiB of state"), NULL), "%s", e.text);
    mesh_search_release(&s);
    o.global_batch = 7;
    o.seq_len = 4099;
    o.data = 4;
    cr_assert(eq(int, mesh_search(&c, &m, &o, &s, &e), ASSAY_EINPUT));
    cr_assert(ne(ptr, strstr(e.text, "divides model"), NULL), "%s", e.text);
    mesh_search_release(&s);
}
