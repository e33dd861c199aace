/* Costs of HLO by hand arithmetic. XLA column: the formulas of xla/service/hlo_cost_analysis.cc;
 * each figure is worked out beside its row. */
#include "workloads/hlo/facts.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition, ...) cr_assert(eq(int, !!(condition), 1), ##__VA_ARGS__)

TestSuite(workloads_hlo_cost, .timeout = 60);

struct read {
    struct hlo_file *f;
    struct hlo_analysis *a;
    const struct hlo_module *m;
    const struct hlo_computation *entry;
};

static struct read analyse(const char *text) {
    struct read r = {0};
    struct err e = {0};
    cr_assert(eq(int, hlo_parse(text, strlen(text), "t.hlo", &r.f, &e), 0), "%s\n%s", e.text, text);
    r.m = &r.f->modules[0];
    r.entry = &r.m->computations[r.m->entry];
    cr_assert(eq(int, hlo_analyse(r.m, NULL, &r.a, &e), 0), "%s\n%s", e.text, text);
    return r;
}

static void release(struct read *r) {
    hlo_analysis_free(r->a);
    hlo_free(r->f);
}

static struct hlo_cost root_cost(const struct read *r, enum hlo_rule rule) {
    struct hlo_cost c;
    struct err e = {0};
    cr_assert(eq(int, hlo_cost_of(r->a, r->m->entry, r->entry->root, rule, &c, &e), 0), "%s",
              e.text);
    return c;
}

/* Computations that the rows below call. */
static const char library[] =
    "HloModule m, num_partitions=8\n"
    "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }\n"
    "ge { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), "
    "direction=GE }\n"
    "argmax { a = f32[] parameter(0) i = s32[] parameter(1) b = f32[] parameter(2) j = s32[] "
    "parameter(3)\n"
    "  m = f32[] maximum(a, b) k = s32[] maximum(i, j) ROOT r = (f32[], s32[]) tuple(m, k) }\n"
    "expsum { a = f32[] parameter(0) b = f32[] parameter(1) x = f32[] exponential(b) ROOT r = "
    "f32[] add(a, x) }\n"
    "lt { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), "
    "direction=LT }\n"
    "ENTRY e { v = f32[4] parameter(0) m = f32[8,16] parameter(1) z = f32[] constant(0)\n"
    "  i = s32[] constant(1) b = bf16[2,8,16] parameter(2) n = f32[16,32] parameter(3)\n"
    "  c = c64[4] parameter(4) w = s32[8,16] parameter(5) p = pred[8,16] parameter(6)\n"
    "  cube = f32[100,8,16] parameter(7) t = token[] after-all() id = s32[10,1] parameter(8)\n"
    "  up = f32[10,8,16] parameter(9) sq = f32[2,6,6] parameter(10) rhs = f32[2,6,3] "
    "parameter(11)\n"
    "  x = f32[1,5,5,3] parameter(12) k = f32[3,3,3,7] parameter(13) zi = s32[] constant(0)\n"
    "  ROOT r = %s }\n";

/* B: v 16, m 512, b 512, n 2048, c 32, w 512, p 128, cube 51200, id 40, up 5120 bytes. */
static const struct row {
    const char *op;
    int64_t flops, transcendentals, bytes;                   /* XLA */
    int64_t model_flops, model_transcendentals, model_bytes; /* -2: as XLA */
} rows[] = {
    {"f32[8,16] add(m, m)", 128, 0, 1536, -2, -2, -2},
    {"f32[8,16] exponential(m)", 0, 128, 1024, -2, -2, -2},
    {"f32[8,16] erf(m)", 0, 128, 1024, -2, -2, -2},
    {"bf16[8,16] convert(m)", 128, 0, 768, 0, -2, -2},
    {"f32[8,16] select(p, m, m)", 128, 0, 128 + 3 * 512, 0, -2, -2},
    {"f32[8,16] clamp(z, m, z)", 128, 0, 1024 + 8, -2, -2, -2},
    {"pred[8,16] compare(m, m), direction=LT", 128, 0, 1024 + 128, -2, -2, -2},
    {"f32[8,16] negate(m)", 128, 0, 1024, -2, -2, -2},
    {"f32[2,8,16] broadcast(m), dimensions={1,2}", 0, 0, 1024 + 512, -2, -2, -2},
    {"f32[16,8] reshape(m)", 0, 0, 1024, -2, -2, 0},
    {"f32[16,8]{0,1} reshape(m)", 0, 0, 1024, -2, -2, 1024},
    {"f32[16,8] transpose(m), dimensions={1,0}", 0, 0, 1024, -2, -2, 1024},
    {"f32[16,8]{0,1} transpose(m), dimensions={1,0}", 0, 0, 0, -2, -2, 0},
    {"f32[128] bitcast(m)", 0, 0, 0, -2, -2, -2},
    {"f32[8,16] copy(m)", 0, 0, 1024, -2, -2, -2},
    {"s32[100] iota(), iota_dimension=0", 0, 0, 400, -2, -2, -2},
    {"(f32[4], f32[8,16]) tuple(v, m)", 0, 0, 16, -2, -2, 0},
    {"(f32[], s32[]) opt-barrier((f32[], s32[]) tuple(z, i))", 0, 0, 32, -2, -2, 0},
    /* 2 · 8·32 · 16 */
    {"f32[8,32] dot(m, n), lhs_contracting_dims={1}, rhs_contracting_dims={0}", 8192, 0,
     512 + 2048 + 1024, -2, -2, -2},
    /* batch 2: 2 · 2·8·8 · 16 */
    {"f32[2,8,8] dot(b, b), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
     "rhs_contracting_dims={2}",
     4096, 0, 1024 + 512, -2, -2, -2},
    /* outer product: nothing is contracted */
    {"f32[4,4] dot(v, v)", 32, 0, 64 + 32, -2, -2, -2},
    /* rows of a group: 2 · 8·32 · 16, not times the groups */
    {"f32[8,32] ragged-dot(m, f32[3,16,32] broadcast(n), s32[3] broadcast(i)), "
     "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}",
     8192, 0, 512 + 6144 + 12 + 1024, -2, -2, -2},
    /* ragged contraction: [3,8,8] has 3 groups, each row of 16 is in one: 2 · 8·8 · 16 */
    {"f32[3,8,8] ragged-dot(m, m, s32[3] broadcast(i)), lhs_contracting_dims={1}, "
     "rhs_contracting_dims={1}, lhs_ragged_dims={1}",
     2048, 0, 1024 + 12 + 768, -2, -2, -2},
    /* valid: 2 · 3 · 7 · 1 · 9·9 (3 taps on 3 outputs each side) */
    {"f32[1,3,3,7] convolution(x, k), window={size=3x3}, dim_labels=b01f_01io->b01f",
     2 * 3 * 7 * 9 * 9, 0, 300 + 756 + 252, -2, -2, -2},
    /* same: a side has 5 + 4 + 4 pairs of tap and output that do not read padding */
    {"f32[1,5,5,7] convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
     2 * 3 * 7 * 13 * 13, 0, 300 + 756 + 700, -2, -2, -2},
    /* stride 2: outputs at 0, 2, 4 (pad 1): taps 2 + 3 + 2 */
    {"f32[1,3,3,7] convolution(x, k), window={size=3x3 stride=2x2 pad=1_1x1_1}, "
     "dim_labels=b01f_01io->b01f",
     2 * 3 * 7 * 7 * 7, 0, 300 + 756 + 252, -2, -2, -2},
    /* reduce: 128 - 8 additions */
    {"f32[8] reduce(m, z), dimensions={1}, to_apply=sum", 120, 0, 512 + 4 + 32, -2, -2, -2},
    {"f32[] reduce(m, z), dimensions={0,1}, to_apply=expsum", 127, 127, 512 + 4 + 4, -2, -2, -2},
    /* variadic: the body does two flops; XLA's result is two pointers, the model's 32 + 32 bytes */
    {"(f32[8], s32[8]) reduce(m, w, z, zi), dimensions={1}, to_apply=argmax", 240, 0,
     16 + 512 + 512 + 8, -2, -2, 64 + 512 + 512 + 8},
    /* windows of 2·2 on 4·8 outputs: 3 additions each */
    {"f32[4,8] reduce-window(m, z), window={size=2x2 stride=2x2}, to_apply=sum", 96, 0,
     512 + 4 + 128, -2, -2, -2},
    /* a running sum over 16: 128/16 + 15 steps */
    {"f32[8,16] reduce-window(m, z), window={size=1x31 pad=0_0x15_15}, to_apply=sum", 23, 0,
     512 + 4 + 512, -2, -2, -2},
    /* source of 4·8: (4 - 1) compares and one addition each */
    {"f32[8,16] select-and-scatter(m, f32[4,8] broadcast(z), z), window={size=2x2 stride=2x2}, "
     "select=ge, scatter=sum",
     32 * 3 + 32, 0, 512 + 128 + 4 + 512, -2, -2, -2},
    {"f32[8,16] map(m, m), dimensions={0,1}, to_apply=expsum", 128, 128, 1536, -2, -2, -2},
    /* all 128: 7 levels; along one dimension of 16: 4 */
    {"f32[8,16] sort(m), dimensions={1}, to_apply=lt", 128 * 7, 0, 1024, 128 * 4, -2, -2},
    {"(f32[8,4], s32[8,4]) topk(m), k=4, largest=true", 0, 0, 16 + 512, 128 * 2, -2, 256 + 512},
    /* 2·4 · log2 4 · 4 elements */
    {"c64[4] fft(c), fft_type=FFT, fft_length={4}", 64, 0, 64, -2, -2, -2},
    {"f32[2,6,6] cholesky(sq)", 144, 0, 288, -2, -2, -2},
    /* 2 · 6 · 36; half of A */
    {"f32[2,6,3] triangular-solve(sq, rhs), left_side=true", 432, 0, 144 + 144 + 144, -2, -2, -2},
    {"f32[8,16] rng(z, z), distribution=rng_uniform", 0, 128, 512 + 8, -2, -2, -2},
    {"f32[2,4] slice(m), slice={[0:2], [0:4]}", 0, 0, 64, -2, -2, -2},
    {"f32[2,4] dynamic-slice(m, i, i), dynamic_slice_sizes={2,4}", 0, 0, 68, -2, -2, 72},
    {"f32[8,16] dynamic-update-slice(m, f32[2,4] broadcast(z), i, i)", 0, 0, 68, -2, -2, 72},
    {"f32[10,8,16] gather(cube, id), offset_dims={1,2}, collapsed_slice_dims={0}, "
     "start_index_map={0}, index_vector_dim=1, slice_sizes={1,8,16}",
     0, 0, 2 * 5120 + 40, -2, -2, -2},
    {"f32[100,8,16] scatter(cube, id, up), update_window_dims={1,2}, inserted_window_dims={0}, "
     "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum",
     1280, 0, 3 * 5120 + 40, -2, -2, -2},
    {"((f32[4]), token[]) infeed(t)", 0, 0, 16, -2, -2, -2},
    {"token[] outfeed((f32[4], f32[8,16]) tuple(v, m), t), outfeed_shape=(f32[4], f32[8,16])", 0, 0,
     528, -2, -2, -2},
    /* pairs: the pointers of XLA; the model reads and writes once, on the start */
    {"(f32[8,16], f32[8,16], u32[]) copy-start(m)", 0, 0, 24 + 512, -2, -2, 1024},
    {"(f32[8,16], u32[], token[]) send(m, t), channel_id=1", 0, 0, 24 + 512, -2, -2, 512},
    {"(f32[4], u32[], token[]) recv(t), channel_id=1", 0, 0, 24, -2, -2, 16},
    /* collectives: groups of 4 */
    {"f32[8,16] all-reduce(m), replica_groups=[2,4]<=[8], to_apply=sum", 128, 0, 1024, 96, -2,
     1024},
    {"(f32[8,16], f32[4]) all-reduce(m, v), replica_groups=[2,4]<=[8], to_apply=sum", 132, 0,
     2 * 528, 99, -2, 2 * 528},
    {"f32[32,16] all-gather(m), replica_groups=[2,4]<=[8], dimensions={0}", 0, 0, 2560, -2, -2, -2},
    {"(f32[8,16], f32[32,16]) all-gather-start(m), replica_groups=[2,4]<=[8], dimensions={0}", 0, 0,
     16 + 512, -2, -2, 2560},
    {"f32[2,16] reduce-scatter(m), replica_groups=[2,4]<=[8], dimensions={0}, to_apply=sum", 0, 0,
     640, 96, -2, 640},
    {"f32[8,16] all-to-all(m), replica_groups=[2,4]<=[8], dimensions={0}", 0, 0, 1024, -2, -2, -2},
    {"f32[8,16] collective-permute(m), source_target_pairs={{0,1}}", 0, 0, 1024, -2, -2, -2},
    {"((f32[8,16]), f32[2,16], s32[]) reduce-scatter-start(m), replica_groups=[2,4]<=[8], "
     "dimensions={0}, to_apply=sum",
     0, 0, 640, 96, -2, 640},
    /* what nobody knows */
    {"f32[8,16] custom-call(m), custom_call_target=\"mystery\"", -1, 0, -1, 0, -2, 1024},
    {"f32[8,16] custom-call(m), custom_call_target=\"Sharding\"", -1, 0, -1, 0, -2, 0},
    {"f32[8,16] frobnicate(m)", 0, 0, 1024, -2, -2, -2},
};

Test(workloads_hlo_cost, ops_by_hand) {
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        char text[4096];
        const struct row *w = &rows[k];
        snprintf(text, sizeof text, library, w->op);
        struct read r = analyse(text);
        struct hlo_cost x = root_cost(&r, HLO_RULE_XLA), y = root_cost(&r, HLO_RULE_MODEL);
        cr_assert(eq(i64, x.v[HLO_FLOPS], w->flops), "xla flops: %s", w->op);
        cr_assert(eq(i64, x.v[HLO_TRANSCENDENTALS], w->transcendentals), "%s", w->op);
        cr_assert(eq(i64, x.v[HLO_BYTES], w->bytes), "xla bytes: %s", w->op);
        cr_assert(eq(i64, y.v[HLO_FLOPS], w->model_flops == -2 ? w->flops : w->model_flops),
                  "model flops: %s", w->op);
        cr_assert(
            eq(i64, y.v[HLO_TRANSCENDENTALS],
               w->model_transcendentals == -2 ? w->transcendentals : w->model_transcendentals),
            "%s", w->op);
        cr_assert(eq(i64, y.v[HLO_BYTES], w->model_bytes == -2 ? w->bytes : w->model_bytes),
                  "model bytes: %s", w->op);
        int unknown = strstr(w->op, "mystery") || strstr(w->op, "frob");
        cr_assert(eq(i64, y.v[HLO_UNKNOWN_OPS], unknown), "%s", w->op);
        release(&r);
    }
}

/* The closed form for convolutions against the definition: every tap, every output. */
Test(workloads_hlo_cost, convolution_positions_by_brute_force) {
    unsigned seed = 7;
    for (int round = 0; round < 3000; round++) {
        int v[8];
        static const int top[8] = {9, 6, 12, 4, 9, 4, 5, 9}; /* I K O stride pad ld rd pad_high */
        for (int k = 0; k < 8; k++) {
            seed = seed * 1103515245u + 12345u;
            v[k] = 1 + (int)(seed >> 16) % top[k];
        }
        int pad = v[4] - 4; /* also negative */
        int64_t positions = 0;
        for (int tap = 0; tap < v[1]; tap++)
            for (int o = 0; o < v[2]; o++) {
                int u = o * v[3] - pad + tap * v[6];
                positions += u >= 0 && u % v[5] == 0 && u / v[5] < v[0];
            }
        char text[1024];
        snprintf(text, sizeof text,
                 "e { x = f32[2,%d,3] parameter(0) k = f32[%d,3,5] parameter(1)\n"
                 "ROOT r = f32[2,%d,5] convolution(x, k), window={size=%d stride=%d pad=%d_%d "
                 "lhs_dilate=%d rhs_dilate=%d}, dim_labels=b0f_0io->b0f }",
                 v[0], v[1], v[2], v[1], v[3], pad, v[7], v[5], v[6]);
        struct read r = analyse(text);
        cr_assert(eq(i64, root_cost(&r, HLO_RULE_XLA).v[HLO_CONVOLUTION_FLOPS],
                     2 * 3 * 5 * 2 * positions),
                  "%s", text);
        release(&r);
    }
}

/* A TPU's dot: batch as a window (the spec's example, 2·4096·128·128·32 flops). */
Test(workloads_hlo_cost, dot_written_as_convolution) {
    struct read r =
        analyse("e { x = bf16[128,4096,1] parameter(0) k = bf16[32,4096,128] parameter(1)\n"
                "ROOT r = bf16[128,32,128] convolution(x, k), window={size=32 pad=31_31 "
                "rhs_reversal=1}, dim_labels=bf0_0io->b0f }");
    cr_assert(
        eq(i64, root_cost(&r, HLO_RULE_XLA).v[HLO_FLOPS], INT64_C(2) * 4096 * 128 * 128 * 32));
    release(&r);
}

/* Fusions: what goes in and out of memory. Bytes: the result, then each parameter as its users read
 * it, then constants that are arrays. */
Test(workloads_hlo_cost, fusion_bytes) {
    static const struct {
        const char *body, *call;
        int64_t flops, bytes;
    } fusions[] = {
        {"p = f32[100] parameter(0) a = f32[100] add(p, p) ROOT r = f32[100] multiply(a, p)",
         "f32[100] fusion(v)", 200, 400 + 400},
        {"p = f32[100] parameter(0) ROOT r = f32[10] slice(p), slice={[0:10]}", "f32[10] fusion(v)",
         0, 40 + 40},
        {"p = f32[100] parameter(0) b = f32[2,100] broadcast(p), dimensions={1} n = f32[100] "
         "negate(p)\n"
         "ROOT r = (f32[2,100], f32[100]) tuple(b, n)",
         "(f32[2,100], f32[100]) fusion(v)", 100, 800 + 400 + 400 + 400},
        {"p = f32[100] parameter(0) i = s32[] parameter(1) u = f32[5] parameter(2)\n"
         "ROOT r = f32[100] dynamic-update-slice(p, u, i)",
         "f32[100] fusion(v, i, u)", 0, 20 + 0 + 4 + 20},
        {"p = f32[100] parameter(0) k = f32[100] constant({...}) z = f32[] constant(1)\n"
         "ROOT r = f32[100] add(p, k)",
         "f32[100] fusion(v)", 100, 400 + 400 + 400},
        {"p = f32[100] parameter(0) ROOT r = f32[10] fusion(p), kind=kLoop, calls=inner",
         "f32[10] fusion(v)", 10, 40 + 40 + 12},
    };
    for (size_t k = 0; k < sizeof fusions / sizeof *fusions; k++) {
        char text[2048];
        snprintf(
            text, sizeof text,
            "inner { p = f32[100] parameter(0) c = f32[3] constant({1,2,3})\n"
            "  s = f32[10] slice(p), slice={[0:10]} ROOT n = f32[10] negate(s) }\n"
            "f { %s }\n"
            "ENTRY e { v = f32[100] parameter(0) i = s32[] parameter(1) u = f32[5] parameter(2)\n"
            "ROOT r = %s, kind=kLoop, calls=f }",
            fusions[k].body, fusions[k].call);
        struct read r = analyse(text);
        struct hlo_cost c = root_cost(&r, HLO_RULE_XLA);
        cr_assert(eq(i64, c.v[HLO_FLOPS], fusions[k].flops), "%s", fusions[k].body);
        cr_assert(eq(i64, c.v[HLO_BYTES], fusions[k].bytes), "%s", fusions[k].body);
        release(&r);
    }
}

/* Loops by their induction variable: condition, body, start; -1: not known. */
Test(workloads_hlo_cost, trip_counts) {
    static const struct {
        const char *condition, *body, *start, *config;
        int64_t trips;
    } loops[] = {
        {"compare(i, n), direction=LT", "add(i, one)", "0", "", 10},
        {"compare(i, n), direction=LT", "add(one, i)", "3", "", 7},
        {"compare(i, n), direction=LE", "add(i, one)", "0", "", 11},
        {"compare(n, i), direction=GT", "add(i, one)", "0", "", 10},
        {"compare(n, i), direction=GE", "add(i, one)", "0", "", 11},
        {"compare(i, n), direction=NE", "add(i, two)", "0", "", 5},
        {"compare(i, n), direction=NE", "add(i, two)", "1", "", -1},
        {"compare(i, n), direction=LT", "add(i, two)", "1", "", 5},
        {"compare(i, n), direction=LT", "add(i, two)", "0", "", 5},
        {"compare(i, n), direction=LT", "add(i, one)", "10", "", 0},
        {"compare(i, n), direction=LT", "add(i, one)", "11", "", 0},
        {"compare(i, n), direction=LT", "subtract(i, one)", "0", "", -1},
        {"compare(i, n), direction=GT", "subtract(i, one)", "20", "", 10},
        {"compare(i, n), direction=LT", "multiply(i, two)", "1", "", -1},
        {"compare(i, n), direction=EQ", "add(i, one)", "0", "", -1},
        {"compare(add(i, two), n), direction=LT", "add(i, one)", "0", "", 8},
        {"compare(i, bound), direction=LT", "add(i, one)", "0", "", 6},
        {"compare(i, moving), direction=LT", "add(i, one)", "0", "", -1},
        {"call(i, n), to_apply=less", "add(i, one)", "0", "", 10},
        {"fusion(i), kind=kLoop, calls=below", "add(i, one)", "0", "", 4},
        {"compare(convert(i), copy(n)), direction=LT", "fusion(i), kind=kLoop, calls=next", "0", "",
         10},
        {"compare(i, i), direction=LT", "add(i, one)", "0", "", -1},
        {"compare(i, n), direction=LT", "add(i, one)", "0",
         ", backend_config={\"known_trip_count\":{\"n\":\"99\"}}", 99},
        {"compare(i, i), direction=LT", "add(i, one)", "0",
         ", backend_config={\"known_trip_count\":{\"n\":98},\"other\":\"}\"}", 98},
        {"compare(i, n), direction=LT", "add(i, one)", "0",
         ", backend_config={\"known_trip_count\":{\"n\":\"-1\"}}", 10},
        {"compare(i, n), direction=LT", "add(i, one)", "0", ", backend_config=known_trip_count",
         10},
    };
    for (size_t k = 0; k < sizeof loops / sizeof *loops; k++) {
        char text[4096], condition[256], body[256];
        /* the shapes of the nested ones */
        snprintf(condition, sizeof condition, "%s", loops[k].condition);
        snprintf(body, sizeof body, "%s", loops[k].body);
        if (strstr(condition, "add(i, two)"))
            snprintf(condition, sizeof condition, "compare(s32[] add(i, two), n), direction=LT");
        if (strstr(condition, "convert"))
            snprintf(condition, sizeof condition,
                     "compare(s32[] convert(i), s32[] copy(n)), direction=LT");
        snprintf(
            text, sizeof text,
            "less { a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = pred[] compare(a, b), "
            "direction=LT }\n"
            "below { a = s32[] parameter(0) b = s32[] constant(4) ROOT r = pred[] compare(a, b), "
            "direction=LT }\n"
            "next { a = s32[] parameter(0) b = s32[] constant(1) ROOT r = s32[] add(a, b) }\n"
            "c { t = (s32[], f32[8], s32[], s32[]) parameter(0) i = s32[] get-tuple-element(t), "
            "index=0\n"
            "  bound = s32[] get-tuple-element(t), index=2 moving = s32[] get-tuple-element(t), "
            "index=3\n"
            "  n = s32[] constant(10) two = s32[] constant(2) ROOT r = pred[] %s }\n"
            "b { t = (s32[], f32[8], s32[], s32[]) parameter(0) i = s32[] get-tuple-element(t), "
            "index=0\n"
            "  x = f32[8] get-tuple-element(t), index=1 y = f32[8] add(x, x)\n"
            "  q = s32[] get-tuple-element(t), index=2 z = s32[] get-tuple-element(t), index=3 z2 "
            "= s32[] add(z, i)\n"
            "  one = s32[] constant(1) two = s32[] constant(2) j = s32[] %s\n"
            "  ROOT r = (s32[], f32[8], s32[], s32[]) tuple(j, y, q, z2) }\n"
            "ENTRY e { v = f32[8] parameter(0) s = s32[] constant(%s) six = s32[] constant(6)\n"
            "  t = (s32[], f32[8], s32[], s32[]) tuple(s, v, six, s)\n"
            "  ROOT w = (s32[], f32[8], s32[], s32[]) while(t), condition=c, body=b%s }",
            condition, body, loops[k].start, loops[k].config);
        struct read r = analyse(text);
        cr_assert(eq(u32, r.a->nloops, 1));
        cr_assert(eq(i64, r.a->loops[0].trips, loops[k].trips), "%s | %s | %s%s", condition, body,
                  loops[k].start, loops[k].config);
        cr_assert(eq(int, r.a->loops[0].told, loops[k].trips > 90));
        int64_t trips = loops[k].trips < 0 ? 1 : loops[k].trips;
        for (uint32_t c = 0; c < r.m->n; c++) {
            if (r.m->computations[c].name.n == 1 && *r.m->computations[c].name.p == 'b')
                cr_assert(eq(i64, r.a->multiplicity[c], trips));
            if (r.m->computations[c].name.n == 1 && *r.m->computations[c].name.p == 'c')
                cr_assert(eq(i64, r.a->multiplicity[c], trips + 1));
        }
        release(&r);
    }
}

/* Eight additions a round, three rounds within five; a scalar as the state. */
Test(workloads_hlo_cost, nested_loops_multiply) {
    struct read r = analyse(
        "ic { i = s32[] parameter(0) n = s32[] constant(3) ROOT r = pred[] compare(i, n), "
        "direction=LT }\n"
        "ib { i = s32[] parameter(0) one = s32[] constant(1) v = f32[8] constant({...}) w = f32[8] "
        "add(v, v)\n"
        "  ROOT j = s32[] add(i, one) }\n"
        "oc { t = (s32[], s32[]) parameter(0) i = s32[] get-tuple-element(t), index=0 n = s32[] "
        "constant(5)\n"
        "  ROOT r = pred[] compare(i, n), direction=LT }\n"
        "ob { t = (s32[], s32[]) parameter(0) i = s32[] get-tuple-element(t), index=0 one = s32[] "
        "constant(1)\n"
        "  z = s32[] constant(0) w = s32[] while(z), condition=ic, body=ib j = s32[] add(i, one)\n"
        "  ROOT r = (s32[], s32[]) tuple(j, w) }\n"
        "ENTRY e { z = s32[] constant(0) t = (s32[], s32[]) tuple(z, z)\n"
        "  ROOT w = (s32[], s32[]) while(t), condition=oc, body=ob }");
    /* inner round 8 + 1, its test 1: 3·9 + 4 = 31; outer round 31 + 1, test 1: 5·32 + 6 */
    cr_assert(eq(i64, r.a->total[HLO_RULE_MODEL][r.m->entry].v[HLO_FLOPS], 166));
    /* XLA runs each once: 9 + 1, + 1, + 1 */
    cr_assert(eq(i64, r.a->total[HLO_RULE_XLA][r.m->entry].v[HLO_FLOPS], 12));
    static const int64_t runs[] = {20, 15, 6, 5, 1};
    for (int k = 0; k < 5; k++)
        cr_assert(eq(i64, r.a->multiplicity[k], runs[k]), "%d", k);
    struct hlo_top top[3];
    size_t n;
    cr_assert(eq(int, hlo_top(r.a, HLO_FLOPS, top, 3, &n, NULL), 0));
    cr_assert(eq(sz, n, 3));
    cr_assert(eq(i64, top[0].cost.v[HLO_FLOPS], 120)); /* 15 times 8 */
    cr_assert(eq(i64, top[0].executed, 15));
    release(&r);
}

/* The dearest branch, property by property. */
Test(workloads_hlo_cost, conditional_is_the_maximum) {
    struct read r =
        analyse("x { p = f32[8] parameter(0) ROOT r = f32[8] add(p, p) }\n"
                "y { p = f32[8] parameter(0) ROOT r = f32[8] exponential(p) }\n"
                "ENTRY e { b = pred[] parameter(0) p = f32[8] parameter(1)\n"
                "ROOT r = f32[8] conditional(b, p, p), true_computation=x, false_computation=y }");
    struct hlo_cost c = root_cost(&r, HLO_RULE_MODEL);
    cr_assert(eq(i64, c.v[HLO_FLOPS], 8));
    cr_assert(eq(i64, c.v[HLO_TRANSCENDENTALS], 8));
    cr_assert(eq(i64, c.v[HLO_BYTES], 96));
    release(&r);
}

/* The three sorts of pairs: bytes once, on the start. */
Test(workloads_hlo_cost, async_pairs_count_once) {
    static const char *const pairs[] = {
        "s = (f32[8], f32[32]) all-gather-start(p), replica_groups={{0,1,2,3}}, dimensions={0}\n"
        "ROOT d = f32[32] all-gather-done(s)",
        "s = ((f32[8]), f32[32]) async-start(p), calls=wrapped\n"
        "u = ((f32[8]), f32[32]) async-update(s), calls=wrapped\n"
        "ROOT d = f32[32] async-done(u), calls=wrapped",
        "s = ((f32[8]), f32[32], s32[]) all-gather-start-start(p), replica_groups={{0,1,2,3}}, "
        "dimensions={0}\nROOT d = f32[32] all-gather-start-done(s)",
    };
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "wrapped { p = f32[8] parameter(0)\n"
                 "  ROOT g = f32[32] all-gather(p), replica_groups={{0,1,2,3}}, dimensions={0} }\n"
                 "ENTRY e { p = f32[8] parameter(0) %s }",
                 pairs[k]);
        struct read r = analyse(text);
        const struct hlo_cost *c = &r.a->total[HLO_RULE_MODEL][r.m->entry];
        cr_assert(eq(i64, c->v[HLO_PAYLOAD_BYTES], 32), "%s", pairs[k]);
        cr_assert(eq(i64, c->v[HLO_SENT_BYTES], 96), "%s", pairs[k]);
        cr_assert(eq(i64, c->v[HLO_BYTES], 32 + 128), "%s", pairs[k]);
        release(&r);
    }
}

/* Section 4's table: 512 bytes, groups of 4 of 8 partitions. */
Test(workloads_hlo_cost, traffic_of_collectives) {
    static const struct {
        const char *op;
        int64_t payload, sent, steps, group;
        bool bound;
    } ops[] = {
        {"f32[32,16] all-gather(m), replica_groups=[2,4]<=[8], dimensions={0}", 512, 1536, 3, 4,
         false},
        {"f32[2,16] reduce-scatter(m), replica_groups=[2,4]<=[8], dimensions={0}, to_apply=sum",
         512, 384, 3, 4, false},
        {"f32[8,16] all-reduce(m), replica_groups=[2,4]<=[8], to_apply=sum", 512, 768, 6, 4, false},
        {"f32[8,16] all-to-all(m), replica_groups=mesh['x'=2,'y'=4] {'y'}, dimensions={0}", 512,
         384, 3, 4, false},
        {"f32[8,16] collective-permute(m), channel_id=1, source_target_pairs={{0,1},{1,0}}", 512,
         512, 1, 1, false},
        {"f32[8,16] collective-permute(m), source_target_pairs={}", 512, 0, 0, 1, false},
        {"f32[8,16] collective-broadcast(m), replica_groups={{0,1}}", 512, 512, 1, 2, false},
        /* {}: all: replicas without a channel, devices with one */
        {"f32[8,16] all-reduce(m), replica_groups={}, to_apply=sum", 512, 0, 0, 1, false},
        {"f32[8,16] all-reduce(m), channel_id=3, replica_groups={}, use_global_device_ids=true, "
         "to_apply=sum",
         512, 896, 14, 8, false},
        {"f32[8,16] all-reduce(m), replica_groups={{0,1,2},{3,4}}, to_apply=sum", 512, 684, 4, 3,
         false},
        {"f32[8,16] ragged-all-to-all(m, m, w, w, w, w), replica_groups={{0,1}}", 512, 256, 1, 2,
         true},
    };
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
        char text[4096];
        struct hlo_traffic t;
        snprintf(text, sizeof text, library, ops[k].op);
        struct read r = analyse(text);
        CHECK(hlo_traffic(r.m, r.entry, &r.entry->instrs[r.entry->root], &t), "%s", ops[k].op);
        cr_assert(eq(i64, t.payload_bytes, ops[k].payload), "%s", ops[k].op);
        cr_assert(eq(i64, t.sent_bytes, ops[k].sent), "%s", ops[k].op);
        cr_assert(eq(i64, t.steps, ops[k].steps), "%s", ops[k].op);
        cr_assert(eq(i64, t.group_size, ops[k].group), "%s", ops[k].op);
        cr_assert(eq(int, t.bound, ops[k].bound), "%s", ops[k].op);
        release(&r);
    }
}

static bool my_price(const struct hlo_call *call, struct hlo_cost *out) {
    out->v[HLO_FLOPS] = 7 + (int64_t)call->name.n;
    return true;
}

Test(workloads_hlo_cost, custom_calls) {
    static const struct {
        const char *call;
        int64_t flops, transcendentals, bytes, unknown;
    } calls[] = {
        {"f32[8] custom-call(p), custom_call_target=\"mystery\"", 0, 0, 64, 1},
        {"f32[8] custom-call(p)", 0, 0, 64, 1},
        {"f32[8] custom-call(p), custom_call_target=\"MoveToHost\"", 0, 0, 32, 0},
        {"f32[8] custom-call(p), custom_call_target=\"tpu_custom_call\", backend_config={"
         "\"custom_call_config\":{\"body\":\"TUzvUg==\",\"cost_estimate\":{\"flops\":1000,"
         "\"transcendentals\":20,\"bytes_accessed\":300}}}",
         1000, 20, 300, 0},
        {"f32[8] custom-call(p), custom_call_target=\"tpu_custom_call\", backend_config=\"{"
         "\\22custom_call_config\\22:{\\22cost_estimate\\22:{\\22flops\\22:5}}}\"",
         5, 0, 64, 0},
        {"f32[8] custom-call(p), custom_call_target=\"tpu_custom_call\", "
         "backend_config={\"custom_call_config\":{}}",
         0, 0, 64, 1},
        /* 4 · q (2·16·8) · 24 keys */
        {"bf16[2,16,8] custom-call(q, k, k), custom_call_target=\"tpu_custom_call\", "
         "metadata={op_name=\"jit(f)/splash_mha_fwd_no_residuals\"}",
         4 * 256 * 24, 0, 512 + 512 + 2 * 768, 0},
        {"bf16[10,6] custom-call(l, g), custom_call_target=\"tpu_custom_call\", "
         "metadata={op_name=\"jit(f)/gmm\"}",
         2 * 10 * 4 * 6, 0, 120 + 80 + 144, 0},
        /* 4 · 2·3·16·16·8, halved: causal */
        {"bf16[8] custom-call(p), custom_call_target=\"te_fused_attn_forward_ffi\", "
         "backend_config={"
         "attn_heads = 3 : i64, input_batch = 2 : i64, kv_max_seqlen = 16 : i64, mask_type = 3 : "
         "i64, "
         "q_max_seqlen = 16 : i64, qk_head_dim = 8 : i64, v_head_dim = 8 : i64}",
         2 * 2 * 3 * 16 * 16 * 8, 0, 48, 0},
        {"bf16[8] custom-call(p), custom_call_target=\"te_fused_attn_backward_ffi\", "
         "backend_config={"
         "attn_heads = 3 : i64, input_batch = 2 : i64, kv_max_seqlen = 16 : i64, mask_type = 0 : "
         "i64, "
         "q_max_seqlen = 16 : i64, qk_head_dim = 8 : i64, v_head_dim = 8 : i64}",
         10 * 2 * 3 * 16 * 16 * 8, 0, 48, 0},
        {"(f32[10,6], s8[64]) custom-call(l, f32[4,6] broadcast(z)), "
         "custom_call_target=\"__cublas$gemm\","
         " backend_config={\"gemm_backend_config\":{\"dot_dimension_numbers\":{"
         "\"lhs_contracting_dimensions\":[\"1\"],\"rhs_contracting_dimensions\":[\"0\"]}}}",
         2 * 60 * 4, 0, 240 + 64 + 80 + 96, 0},
        {"(f32[1,3,3,7], u8[9]) custom-call(f32[1,5,5,3] broadcast(z), f32[3,3,3,7] broadcast(z)), "
         "custom_call_target=\"__cudnn$convForward\", window={size=3x3}, "
         "dim_labels=b01f_01io->b01f",
         2 * 3 * 7 * 81, 0, 252 + 9 + 300 + 756, 0},
        {"f32[8] custom-call(p), custom_call_target=\"__cudnn$convForward\"", 0, 0, 64, 1},
    };
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
        char text[2048];
        snprintf(text, sizeof text,
                 "ENTRY e { p = f32[8] parameter(0) q = bf16[2,16,8] parameter(1) k = bf16[2,24,8] "
                 "parameter(2)\n"
                 "l = bf16[10,4] parameter(3) g = bf16[3,4,6] parameter(4) z = f32[] constant(0)\n"
                 "ROOT r = %s }",
                 calls[k].call);
        struct read r = analyse(text);
        struct hlo_cost c = root_cost(&r, HLO_RULE_MODEL);
        cr_assert(eq(i64, c.v[HLO_FLOPS], calls[k].flops), "%s", calls[k].call);
        cr_assert(eq(i64, c.v[HLO_TRANSCENDENTALS], calls[k].transcendentals), "%s", calls[k].call);
        cr_assert(eq(i64, c.v[HLO_BYTES], calls[k].bytes), "%s", calls[k].call);
        cr_assert(eq(i64, c.v[HLO_UNKNOWN_OPS], calls[k].unknown), "%s", calls[k].call);
        release(&r);
    }
    /* a caller's rows go before the built-in ones */
    static const struct hlo_kernel mine[] = {{"Sharding", "nam", "mine", my_price}, {0}};
    struct hlo_file *f = NULL;
    struct hlo_analysis *a = NULL;
    static const char text[] = "e { p = f32[8] parameter(0) name = f32[8] custom-call(p), "
                               "custom_call_target=\"Sharding\"\n"
                               "other = f32[8] custom-call(p), custom_call_target=\"Sharding\" }";
    cr_assert(eq(int, hlo_parse(text, sizeof text - 1, "t", &f, NULL), 0));
    cr_assert(eq(int, hlo_analyse(f->modules, mine, &a, NULL), 0));
    cr_assert(eq(i64, a->total[HLO_RULE_MODEL][0].v[HLO_FLOPS], 11));
    hlo_analysis_free(a);
    hlo_free(f);
}

/* Two dots of 2^62 flops do not fit; nor does a loop of them. */
Test(workloads_hlo_cost, overflow_is_an_error) {
    static const char *const texts[] = {
        "e { a = f32[1073741824,4] parameter(0) b = f32[4,536870912] parameter(1)\n"
        "c = f32[1073741824,536870912] dot(a, b), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}\n"
        "d = f32[1073741824,536870912] dot(a, b), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0} }",
        "e { a = f32[1073741824,40] parameter(0) b = f32[40,536870912] parameter(1)\n"
        "c = f32[1073741824,536870912] dot(a, b), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0} }",
        "c { i = s64[] parameter(0) n = s64[] constant(9000000000000000000)\n"
        "  ROOT r = pred[] compare(i, n), direction=LT }\n"
        "b { i = s64[] parameter(0) one = s64[] constant(1) v = f32[8] constant({...})\n"
        "  w = f32[8] add(v, v) ROOT j = s64[] add(i, one) }\n"
        "ENTRY e { z = s64[] constant(0) ROOT w = s64[] while(z), condition=c, body=b }",
    };
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        struct hlo_file *f = NULL;
        struct hlo_analysis *a = NULL;
        struct err e = {0};
        cr_assert(eq(int, hlo_parse(texts[k], strlen(texts[k]), "t", &f, &e), 0), "%s", e.text);
        cr_assert(eq(int, hlo_analyse(f->modules, NULL, &a, &e), ASSAY_EINPUT), "%zu", k);
        CHECK(strstr(e.text, "in computation 'e' does not fit 63 bits"), "%s", e.text);
        hlo_free(f);
    }
}

/* A size that is known only at run time makes the op unknown, not free. */
Test(workloads_hlo_cost, unbounded_shapes_are_unknown) {
    struct read r = analyse("e { p = f32[?,8] parameter(0) ROOT r = f32[?,8] add(p, p) }");
    struct hlo_cost c = root_cost(&r, HLO_RULE_MODEL);
    cr_assert(eq(i64, c.v[HLO_FLOPS], 0));
    cr_assert(eq(i64, c.v[HLO_UNKNOWN_OPS], 1));
    release(&r);
}

/* Each computation costs once however often and deeply it is called: 2^59 leaves, no recursion. */
Test(workloads_hlo_cost, calls_are_memoised) {
    struct buf b;
    struct err e = {0};
    buf_init(&b, 1 << 20);
    buf_puts(&b, "c0 { p = f32[] parameter(0) ROOT r = f32[] negate(p) }\n");
    for (int k = 1; k <= 59; k++)
        buf_printf(&b,
                   "c%d { p = f32[] parameter(0) a = f32[] call(p), to_apply=c%d\n"
                   "ROOT r = f32[] call(a), to_apply=c%d }\n",
                   k, k - 1, k - 1);
    cr_assert(eq(int, buf_check(&b, "text", &e), 0));
    struct read r = analyse(b.p);
    cr_assert(eq(i64, r.a->total[HLO_RULE_MODEL][59].v[HLO_FLOPS], INT64_C(1) << 59));
    cr_assert(eq(i64, r.a->multiplicity[0], INT64_C(1) << 59));
    release(&r);
    buf_release(&b);
}
