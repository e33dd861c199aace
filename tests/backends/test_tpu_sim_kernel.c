/* Worked numbers for the kernel formulas. The SCALE-Sim cycles were printed by SCALE-Sim v3 (commit
 * fab89b7) itself; the rest is arithmetic on published figures, stated beside each. */
#include "backends/tpu_sim/chip.h"
#include "backends/tpu_sim/kernel.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

static struct chip load(const char *name) {
    struct chip c;
    struct err e = {0};
    cr_assert(eq(int, chip_load(name, NULL, 0, &c, NULL, &e), 0), "%s", e.text);
    return c;
}

Test(backends_tpu_sim_kernel, scalesim_cycles_match_the_tool) {
    static const struct {
        enum dataflow f;
        int64_t array, m, n, k, cycles;
    } row[] = {
        {DATAFLOW_WS, 128, 128, 128, 128, 509},   {DATAFLOW_WS, 128, 256, 256, 256, 2551},
        {DATAFLOW_WS, 128, 512, 512, 512, 14303}, {DATAFLOW_WS, 128, 1024, 1024, 1024, 89983},
        {DATAFLOW_WS, 128, 1, 128, 128, 382},     {DATAFLOW_WS, 128, 8, 128, 128, 389},
        {DATAFLOW_WS, 128, 129, 128, 128, 510},   {DATAFLOW_WS, 128, 128, 129, 128, 1019},
        {DATAFLOW_WS, 128, 128, 128, 129, 1019},  {DATAFLOW_WS, 128, 100, 130, 70, 963},
        {DATAFLOW_WS, 128, 17, 1000, 333, 9575},  {DATAFLOW_WS, 128, 1024, 1600, 1600, 237613},
        {DATAFLOW_OS, 128, 128, 128, 128, 381},   {DATAFLOW_OS, 128, 512, 512, 512, 12255},
        {DATAFLOW_OS, 128, 17, 1000, 333, 4695},  {DATAFLOW_WS, 256, 512, 512, 512, 5111},
        {DATAFLOW_WS, 256, 128, 128, 128, 893},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        cr_assert(
            eq(i64,
               scalesim_cycles(row[i].f, row[i].array, row[i].array, row[i].m, row[i].n, row[i].k),
               row[i].cycles),
            "row %zu", i);
}

Test(backends_tpu_sim_kernel, mxu_cycles_hide_the_weight_load) {
    /* 16 folds of 512 rows, the skew once: 16 * 512 + 254 */
    cr_assert(eq(dbl, mxu_cycles(128, 1, 8, 512, 512, 512), 8446.0));
    /* the same on four units: 4 folds each */
    cr_assert(eq(dbl, mxu_cycles(128, 4, 8, 512, 512, 512), 2302.0));
    /* one row: 8 padded rows are less than the 128 cycles of a weight load; 32*32/4 folds */
    cr_assert(eq(dbl, mxu_cycles(128, 4, 8, 1, 4096, 4096), 32768.0 + 254.0));
}

Test(backends_tpu_sim_kernel, decode_matmul_waits_for_hbm) {
    struct chip c = load("v5e");
    struct device d;
    device_init(&d, &c);
    /* 32768 cycles at 1.5 GHz = 21.8 us were the weights loaded a row a cycle, half that at two;
     * 33.6 MB at 819 GB/s = 41 us: HBM wins */
    cr_assert(ieee_ulp_eq(dbl, d.mxu_hz[NUM_BF16] / 1e9, 197e12 / (2.0 * 4 * 128 * 128) / 1e9, 4));
    cr_assert(lt(dbl, d.mxu_hz[NUM_BF16], 1.51e9));
    cr_assert(gt(dbl, d.mxu_hz[NUM_BF16], 1.49e9));
    struct kernel k = {.kind = KERNEL_MATMUL, .m = 1, .n = 4096, .k = 4096};
    struct kernel_time t;
    kernel_run(&d, &k, &t);
    cr_assert(eq(int, t.bound, BOUND_HBM));
    cr_assert(epsilon_eq(dbl, t.hbm_s * c.hbm_eff, 41e-6, 0.3e-6));
    cr_assert(epsilon_eq(dbl, t.mxu_s * (double)c.weight_rows, 21.8e-6, 0.1e-6));
    cr_assert(eq(dbl, t.flops, 2.0 * 4096 * 4096));
    cr_assert(eq(dbl, t.issued_flops, 8 * t.flops)); /* 1 row in 8 is useful */
    /* resident weights do not move */
    k.flags = KERNEL_RESIDENT;
    kernel_run(&d, &k, &t);
    cr_assert(lt(dbl, t.hbm_bytes, 20000.0));
}

Test(backends_tpu_sim_kernel, tiles_read_operands_as_often_as_they_pass) {
    struct chip c = load("v5e");
    struct device d;
    device_init(&d, &c);
    /* 4096^3 in 128^3 tiles: A and B 32 times each, 2.18 GB; 32768 grid steps */
    struct kernel k = {
        .kind = KERNEL_TILED, .m = 4096, .n = 4096, .k = 4096, .tm = 128, .tn = 128, .tk = 128};
    struct kernel_time t;
    kernel_run(&d, &k, &t);
    cr_assert(epsilon_eq(dbl, t.hbm_bytes, 2.18e9, 0.01e9));
    cr_assert(epsilon_eq(dbl, t.fixed_s, 32768 * c.tile_us * 1e-6, 5e-6));
    /* bm 512, bk 1024, bn 1024: 4 and 8 times, 436 MB */
    k.tm = 512;
    k.tn = k.tk = 1024;
    kernel_run(&d, &k, &t);
    cr_assert(epsilon_eq(dbl, t.hbm_bytes, 436e6, 1e6));
}

Test(backends_tpu_sim_kernel, critical_batch_of_int8_weights) {
    /* int8 [B,4096] x [4096,16384] on v5e: compute bound above B = 271 at nominal rates (scaling
     * book); here with int8 products: 2*B*4096*16384/394e12 = 4096*(16384+B)+... / 8.1e11 */
    struct chip_override nominal[] = {
        {"mxu_eff", "1"}, {"hbm_eff", "1"}, {"hbm_gbps", "810"}, {"int8_tops", "394"}};
    struct chip c;
    struct err e = {0};
    cr_assert(eq(int, chip_load("v5e", nominal, 4, &c, NULL, &e), 0), "%s", e.text);
    struct device d;
    device_init(&d, &c);
    struct kernel_time t;
    /* the tile model streams whole 8-row tiles and adds the skew, so the crossing is near, not at
     */
    for (int64_t b = 8; b <= 512; b += 8) {
        struct kernel k = {.kind = KERNEL_MATMUL,
                           .math = NUM_INT8,
                           .a_bytes = 1,
                           .b_bytes = 1,
                           .out_bytes = 1,
                           .m = b,
                           .n = 16384,
                           .k = 4096};
        kernel_run(&d, &k, &t);
        if (t.mxu_s > t.hbm_s) {
            cr_assert(ge(i64, b, 248));
            cr_assert(le(i64, b, 288));
            return;
        }
    }
    cr_fail("never compute bound");
}

Test(backends_tpu_sim_kernel, time_grows_with_the_shape) {
    struct chip c = load("7x");
    struct device d;
    device_init(&d, &c);
    double last = 0;
    for (int64_t n = 1; n <= 16384; n *= 2) {
        struct kernel k = {.kind = KERNEL_MATMUL, .m = n, .n = n, .k = n};
        struct kernel_time t;
        kernel_run(&d, &k, &t);
        cr_assert(ge(dbl, t.s, last));
        cr_assert(ge(dbl, t.s, t.mxu_s));
        cr_assert(ge(dbl, t.issued_flops, t.flops));
        last = t.s;
    }
    /* a device of 7x is half a chip: the largest product cannot beat 1153.5 TFLOP/s */
    cr_assert(gt(dbl, last, 2.0 * 16384 * 16384 * 16384 / 1153.5e12));
}

Test(backends_tpu_sim_kernel, cost_parts_sum_to_the_time) {
    struct chip c = load("v6e");
    struct device d;
    device_init(&d, &c);
    struct kernel k = {.kind = KERNEL_GROUPED, .m = 300, .n = 1536, .k = 4096, .groups = 60};
    struct kernel_time t;
    struct cost sum = {0};
    kernel_run(&d, &k, &t);
    kernel_add(&d, &k, 3, &sum);
    cr_assert(epsilon_eq(dbl, cost_total(&sum), 3 * t.s, 1e-12));
    /* 5 rows an expert pad to 8 */
    cr_assert(eq(dbl, t.issued_flops, 2.0 * 8 * 60 * 1536 * 4096));
}
