/* Torus times against the worked examples of jax-ml/scaling-book (sharding.md), which leave out the
 * (n-1)/n of a finite ring and any fixed cost; the tests put both back. */
#include "backends/tpu_sim/collective.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

static struct chip chip_of(const char *name) {
    struct chip c;
    struct err e = {0};
    cr_assert(eq(int, chip_load(name, NULL, 0, &c, NULL, &e), 0), "%s", e.text);
    return c;
}

static struct topology topo(const struct chip *c, int64_t chips, const char *text) {
    struct topology t;
    struct err e = {0};
    cr_assert(eq(int, topology_init(&t, c, chips, text, &e), 0), "%s", e.text);
    return t;
}

/* One bit an axis that wraps. */
static int wraps(const struct topology *t) {
    int mask = 0;
    for (int i = 0; i < t->axes; i++)
        mask |= t->wrap[i] << i;
    return mask;
}

Test(backends_tpu_sim_collective, all_gather_and_all_reduce_on_v4) {
    struct chip c = chip_of("v4");
    struct topology t = topo(&c, 64, "4x4x4"), g;
    struct collective_time r;
    cr_assert(eq(int, wraps(&t), 7));
    cr_assert(topology_cut(&t, 4, &g));
    /* bf16[1024,1024] over one ring of 4: 2.1e6 / 9e10 = 23.3 us */
    collective_run(&c, &g, COLLECTIVE_ALL_GATHER, 2.0 * 1024 * 1024, &r);
    cr_assert(epsilon_eq(dbl, r.wire_s * 4 / 3, 23.3e-6, 0.1e-6));
    /* the whole array over two axes: 8.4e6 / (2 * 9e10) = 46.6 us */
    t = topo(&c, 64, "4x4x4");
    cr_assert(topology_cut(&t, 16, &g));
    collective_run(&c, &g, COLLECTIVE_ALL_GATHER, 2.0 * 1024 * 4096, &r);
    cr_assert(epsilon_eq(dbl, r.wire_s * 16 / 15, 46.6e-6, 0.1e-6));
    /* all-reduce of bf16[1024,4096] on one ring: 186 us */
    t = topo(&c, 64, "4x4x4");
    cr_assert(topology_cut(&t, 4, &g));
    collective_run(&c, &g, COLLECTIVE_ALL_REDUCE, 2.0 * 1024 * 4096, &r);
    cr_assert(epsilon_eq(dbl, r.wire_s * 4 / 3, 186e-6, 1e-6));
    /* 256 bytes: two hops, then the fixed cost */
    collective_run(&c, &g, COLLECTIVE_ALL_GATHER, 256, &r);
    cr_assert(epsilon_eq(dbl, r.hops_s, 2e-6, 1e-9));
    cr_assert(epsilon_eq(dbl, r.s, 2e-6 + c.collective_us * 1e-6, 1e-12));
}

Test(backends_tpu_sim_collective, short_axes_do_not_wrap) {
    struct chip c = chip_of("v5e");
    struct topology t = topo(&c, 16, "4x4"), g;
    cr_assert(eq(int, wraps(&t), 0));
    cr_assert(topology_cut(&t, 4, &g));
    /* 32 kB shards over a line of 4: 3 hops; the published profile shows 8 us in all */
    struct collective_time r;
    collective_run(&c, &g, COLLECTIVE_ALL_GATHER, 2.0 * 256 * 256, &r);
    cr_assert(epsilon_eq(dbl, r.s, 8e-6, 0.1e-6));
    /* only the axis of 16 of an 8x16 slice wraps */
    t = topo(&c, 128, "8x16");
    cr_assert(eq(int, wraps(&t), 2));
    /* v4: a cube of 4 wraps, 4x4x8 too, 2x4x4 not at all */
    struct chip v4 = chip_of("v4");
    t = topo(&v4, 128, "4x4x8");
    cr_assert(eq(int, wraps(&t), 7));
    t = topo(&v4, 32, "2x4x4");
    cr_assert(eq(int, wraps(&t), 0));
}

Test(backends_tpu_sim_collective, corner_to_corner_on_v5e) {
    struct chip c = chip_of("v5e");
    /* bf16[8,128,8192] over two links, 6 hops: 186 + 6 = 192 us (the book prints 194) */
    cr_assert(epsilon_eq(dbl, permute_seconds(&c, 2.0 * 8 * 128 * 8192, 6, 2), 192e-6, 1e-6));
}

Test(backends_tpu_sim_collective, all_to_all_is_a_quarter_of_all_gather_on_a_ring) {
    struct chip c = chip_of("v5e");
    struct topology t = topo(&c, 256, "16x16"), g;
    cr_assert(topology_cut(&t, 16, &g));
    struct collective_time gather, a2a;
    collective_run(&c, &g, COLLECTIVE_ALL_GATHER, 1e9, &gather);
    collective_run(&c, &g, COLLECTIVE_ALL_TO_ALL, 1e9, &a2a);
    cr_assert(epsilon_eq(dbl, a2a.wire_s, gather.wire_s * 16 / 15 / 4, 1e-9));
}

Test(backends_tpu_sim_collective, default_boxes) {
    static const struct {
        const char *chip;
        int64_t chips;
        const char *box;
    } row[] = {{"v6e", 1, "1x1"},         {"v6e", 4, "2x2"},     {"v6e", 8, "2x4"},
               {"v6e", 32, "4x8"},        {"v6e", 256, "16x16"}, {"7x", 4, "2x2x1"},
               {"7x", 8, "2x2x2"},        {"7x", 16, "2x2x4"},   {"7x", 128, "4x4x8"},
               {"v5p", 6144, "16x16x24"}, {"v4", 1, "1x1x1"}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct chip c = chip_of(row[i].chip);
        struct topology t = topo(&c, row[i].chips, NULL);
        char text[64];
        topology_print(&t, text, sizeof text);
        cr_assert(eq(str, text, (char *)row[i].box), "%s %lld", row[i].chip,
                  (long long)row[i].chips);
        cr_assert(eq(i64, topology_chips(&t), row[i].chips));
    }
}

Test(backends_tpu_sim_collective, bad_boxes_are_refused) {
    struct chip c = chip_of("v6e");
    static const char *const bad[] = {"2x3", "2x2x2", "x", "0x8", "2x", "8x1x1", "-8", "2,4"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct topology t;
        struct err e = {0};
        cr_assert(eq(int, topology_init(&t, &c, 8, bad[i], &e), ASSAY_EUSAGE), "%s", bad[i]);
        cr_assert(ne(str, e.text, (char *)""));
    }
}

Test(backends_tpu_sim_collective, one_chip_needs_no_links) {
    struct chip c = chip_of("7x");
    struct topology t = topo(&c, 1, NULL);
    struct collective_time r;
    collective_run(&c, &t, COLLECTIVE_ALL_REDUCE, 1e9, &r);
    cr_assert(eq(dbl, r.s, 0.0));
}
