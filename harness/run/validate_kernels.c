/* Single operations of the general table: matmuls, copies, collectives, expert blocks, attention.
 */
#include "harness/run/validate_internal.h"

#include "backends/tpu_sim/collective.h"
#include "backends/tpu_sim/step.h"

#include <stdlib.h>
#include <string.h>

/* Timed from Python, a call costs this beside the device's work.
 * Source: jax docs/pallas/tpu/matmul.ipynb: about 0.1 ms for a 1024^3 product. */
static const double HOST_DISPATCH_S = 100e-6;

static const double dim_classes[] = {512, 4096, 16384, 0};
static const double byte_classes[] = {1048576, 33554432, 1073741824, 0};
static const double token_classes[] = {512, 8192, 65536, 0};

static bool whole(double x) {
    return x >= 1 && x <= 1e9;
}

static enum num dtype_of(const struct validate_row *r) {
    if (strncmp(r->dtype, "int8", 4) == 0)
        return NUM_INT8;
    return strncmp(r->dtype, "fp8", 3) == 0 ? NUM_FP8 : NUM_BF16;
}

static bool from_host(const struct validate_row *r) {
    return validate_has(r->notes, "host timing") || validate_has(r->notes, "mean of 100") ||
           strncmp(r->notes, "pallas", 6) == 0 ||
           strcmp(r->notes, "xla") == 0; /* rates of such times */
}

/* Seconds and useful FLOPs to the row's metric. False: a metric that is not a time or a rate. */
static bool to_metric(const struct validate_row *r, const struct chip *c, double s, double flops,
                      double bytes, double *got) {
    static const struct {
        const char *unit;
        double per_s;
    } times[] = {{"s", 1}, {"ms", 1e3}, {"us", 1e6}};
    if (strcmp(r->metric, "time") == 0)
        for (size_t i = 0; i < 3; i++)
            if (strcmp(r->unit, times[i].unit) == 0) {
                *got = s * times[i].per_s;
                return true;
            }
    if (flops > 0 && strncmp(r->metric, "tflops", 6) == 0)
        *got = flops / s * 1e-12;
    else if (flops > 0 && strcmp(r->metric, "mfu") == 0)
        *got = 100 * flops / s / chip_peak_flops(c, NUM_BF16);
    else if (bytes > 0 &&
             (strcmp(r->metric, "bandwidth") == 0 || strcmp(r->metric, "achieved_bw") == 0))
        *got = bytes / s * 1e-9;
    else
        return false;
    return true;
}

/* "bm=512 bk=1024 bn=1024" or "bm=bk=bn=128". */
static void tiles_of(const char *text, struct kernel *k) {
    double all = validate_find_number(text, "bm=bk=bn");
    double m = all > 0 ? all : validate_find_number(text, "bm"),
           n = all > 0 ? all : validate_find_number(text, "bn"),
           kk = all > 0 ? all : validate_find_number(text, "bk");
    if (!whole(m) || !whole(n) || !whole(kk))
        return;
    k->kind = KERNEL_TILED;
    k->tm = (int64_t)m;
    k->tn = (int64_t)n;
    k->tk = (int64_t)kk;
}

static const char *matmul_row(struct validator *v, const struct validate_row *r,
                              const struct chip *c, struct validate_answer *a) {
    a->kind = "matmul";
    if (!whole(r->m) || !whole(r->n) || !whole(r->k))
        return "m, n, k are not all stated";
    double size = r->m > r->n ? r->m : r->n;
    a->size_class = validate_class(v, size > r->k ? size : r->k, dim_classes);
    double b = strcmp(r->dtype, "f32") == 0 ? 4 : num_bytes(dtype_of(r));
    struct device d;
    device_init(&d, c);
    struct kernel k = {.kind = KERNEL_MATMUL,
                       .math = dtype_of(r),
                       .a_bytes = b,
                       .b_bytes = b,
                       .out_bytes = b,
                       .m = (int64_t)r->m,
                       .n = (int64_t)r->n,
                       .k = (int64_t)r->k};
    tiles_of(r->sharding, &k);
    struct kernel_time t;
    kernel_run(&d, &k, &t);
    double s = t.s;
    if (strcmp(r->phase, "matmul_masked") == 0) /* the product, read and written once more */
        s += 2 * r->m * r->n * 2 / d.hbm_bytes_per_s;
    if (strcmp(r->phase, "matmul_block_sparse") == 0) {
        /* only the kept blocks run; each is a grid step of a hand-tiled kernel */
        double kept = validate_has(r->notes, "probability 0.1")    ? 0.1
                      : validate_has(r->notes, "lower-triangular") ? 0.5
                                                                   : 0;
        if (kept <= 0)
            return "the share of blocks kept is not stated";
        s = kept * (t.s + r->m / 512 * (r->n / 512) * (r->k / 512) / 4 * d.tile_s);
    }
    if (from_host(r))
        s += HOST_DISPATCH_S;
    return to_metric(r, c, s, t.flops, 0, &a->got) ? NULL : "unknown metric of a matmul";
}

/* One product over a slice: each chip's part, and the collective that joins or spreads it. */
static const char *sharded_matmul(struct validator *v, const struct validate_row *r,
                                  const struct chip *c, struct validate_answer *a, struct err *e) {
    a->kind = "matmul_sharded";
    if (!whole(r->m) || !whole(r->n) || !whole(r->k) || !whole(r->chips))
        return "m, n, k and chips are not all stated";
    a->size_class = validate_class(v, r->m, dim_classes);
    struct topology t;
    if (topology_init(&t, c, (int64_t)r->chips, r->topology, e))
        return "the topology does not match the chips";
    double b = num_bytes(dtype_of(r));
    struct device d;
    device_init(&d, c);
    struct kernel k = {.kind = KERNEL_MATMUL,
                       .math = dtype_of(r),
                       .a_bytes = b,
                       .b_bytes = b,
                       .out_bytes = b,
                       .m = (int64_t)r->m,
                       .n = (int64_t)r->n,
                       .k = (int64_t)r->k};
    struct collective_time ct = {0};
    if (validate_has(r->sharding, "partial sums")) {
        k.k /= (int64_t)r->chips;
        collective_run(c, &t, COLLECTIVE_ALL_REDUCE, r->m * r->n * b, &ct);
    } else if (validate_has(r->sharding, "gather of B")) {
        k.m /= (int64_t)r->chips;
        collective_run(c, &t, COLLECTIVE_ALL_GATHER, r->k * r->n * b, &ct);
    } else if (!validate_has(r->sharding, "replicated"))
        return "unknown sharding of a matmul";
    struct kernel_time kt;
    kernel_run(&d, &k, &kt);
    double s = kt.s + ct.s + (from_host(r) ? HOST_DISPATCH_S : 0);
    return to_metric(r, c, s, 2 * r->m * r->n * r->k, 0, &a->got) ? NULL
                                                                  : "unknown metric of a matmul";
}

static const char *copy_row(struct validator *v, const struct validate_row *r, const struct chip *c,
                            struct validate_answer *a) {
    a->kind = "hbm";
    struct device d;
    device_init(&d, c);
    /* a long stream when no size is given; a copy reads and writes */
    double bytes = 2 * (r->bytes > 0 ? r->bytes : 8589934592.0);
    a->size_class = validate_class(v, bytes / 2, byte_classes);
    struct kernel k = {.kind = KERNEL_COPY, .read_bytes = bytes};
    struct kernel_time t;
    kernel_run(&d, &k, &t);
    return to_metric(r, c, t.s, 0, bytes, &a->got) ? NULL : "unknown metric of a copy";
}

static const char *collective_row(struct validator *v, const struct validate_row *r,
                                  const struct chip *c, struct validate_answer *a, struct err *e) {
    static const struct {
        const char *phase;
        enum collective kind;
        double of_bytes; /* the whole array, from the bytes the table gives */
    } kinds[] = {{"all_gather", COLLECTIVE_ALL_GATHER, 1},
                 {"all_reduce", COLLECTIVE_ALL_REDUCE, 1},
                 {"all_reduce_ici", COLLECTIVE_ALL_REDUCE, 1},
                 {"reduce_scatter", COLLECTIVE_REDUCE_SCATTER, 1},
                 {"all_to_all", COLLECTIVE_ALL_TO_ALL, 1},
                 {"ppermute", COLLECTIVE_PERMUTE, 1}};
    a->kind = "collective";
    if (validate_has(r->notes, "is the fit, not a run"))
        return "the source's own fit, not a measurement";
    if (validate_has(r->phase, "dcn"))
        return "a transfer between slices outside a training step: its software path (a few GB/s "
               "over all hosts) has no model";
    size_t i = 0, n = sizeof kinds / sizeof kinds[0];
    while (i < n && strcmp(kinds[i].phase, r->phase) != 0)
        i++;
    if (i == n)
        return "unknown collective";
    if (!whole(r->bytes) || !whole(r->chips))
        return "bytes and chips are not both stated";
    a->size_class = validate_class(v, r->bytes, byte_classes);
    struct topology t, g;
    const char *box = strchr(r->topology, 'x') ? r->topology : NULL;
    if (topology_init(&t, c, (int64_t)r->chips, box, e))
        return "the topology does not match the chips";
    double bytes = r->bytes;
    g = t;
    if (validate_has(r->sharding,
                     "gather over 4 devices")) { /* bytes = what moves, 3/4 of the array */
        if (!topology_cut(&t, 4, &g))
            return "four chips cannot be cut out of the slice";
        bytes = r->bytes * 4 / 3;
    } else if (validate_has(r->sharding, "one axis of 4")) {
        if (!topology_cut(&t, 4, &g))
            return "an axis of 4 cannot be cut out of the slice";
    } else if (validate_has(r->sharding, "one axis over 32 devices")) {
        g = (struct topology){.axes = 1,
                              .length = {32}}; /* a line that does not follow the torus */
    }
    struct collective_time ct;
    collective_run(c, &g, kinds[i].kind, bytes, &ct);
    /* achieved_bw of the 7x all-reduce divides 2(n-1)/n x bytes, n = 16 (stated with it) */
    double counted = validate_has(r->notes, "divides 1.875 x bytes") ? 1.875 * r->bytes : r->bytes;
    return to_metric(r, c, ct.s, 0, counted, &a->got) ? NULL : "unknown metric of a collective";
}

/* ---- expert blocks ---- */

/* "MoE block h2048 i768 E128 top8". */
struct moe {
    double hidden, inner, experts, top, tokens;
};

static double grouped_s(const struct device *d, double rows, double groups, double n, double k,
                        enum num math, double b_bytes) {
    struct kernel x = {.kind = KERNEL_GROUPED,
                       .math = math,
                       .b_bytes = b_bytes,
                       .groups = (int64_t)groups,
                       .m = (int64_t)rows,
                       .n = (int64_t)n,
                       .k = (int64_t)k};
    struct kernel_time t;
    kernel_run(d, &x, &t);
    return t.s;
}

static double gather_s(const struct device *d, double rows, double width) {
    struct kernel x = {
        .kind = KERNEL_GATHER, .read_bytes = rows * width * 2, .write_bytes = rows * width * 2};
    struct kernel_time t;
    kernel_run(d, &x, &t);
    return t.s;
}

static const char *moe_block_row(struct validator *v, const struct validate_row *r,
                                 const struct chip *c, struct validate_answer *a) {
    struct moe b = {.hidden = validate_find_number(r->model, " h"),
                    .inner = validate_find_number(r->model, " i"),
                    .experts = validate_find_number(r->model, " E"),
                    .top = validate_find_number(r->model, " top"),
                    .tokens = r->m};
    a->kind = "moe";
    if (!whole(b.hidden) || !whole(b.inner) || !whole(b.experts) || !whole(b.top) ||
        !whole(b.tokens))
        return "the block's shape is not in its name";
    a->size_class = validate_class(v, b.tokens, token_classes);
    struct device d;
    device_init(&d, c);
    double rows = b.tokens * b.top;
    double pack = gather_s(&d, rows, b.hidden), combine = pack;
    double up = grouped_s(&d, rows, b.experts, 2 * b.inner, b.hidden, NUM_BF16, 2);
    double down = grouped_s(&d, rows, b.experts, b.hidden, b.inner, NUM_BF16, 2);
    static const struct {
        const char *phase;
        double pack, up, down, combine;
    } parts[] = {{"moe_fwd", 1, 1, 1, 1},        {"moe_fwd_bwd", 3, 3, 3, 3},
                 {"moe_stage_pack", 1, 0, 0, 0}, {"moe_stage_up", 0, 1, 0, 0},
                 {"moe_stage_down", 0, 0, 1, 0}, {"moe_stage_combine", 0, 0, 0, 1}};
    double s = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strcmp(parts[i].phase, r->phase) == 0)
            s = parts[i].pack * pack + parts[i].up * up + parts[i].down * down +
                parts[i].combine * combine;
    if (s <= 0)
        return "unknown part of an expert block";
    if (validate_has(r->sharding, "packed beforehand") || validate_has(r->notes, "packing outside"))
        s -= pack * (strcmp(r->phase, "moe_fwd_bwd") == 0 ? 3 : 1);
    double shared = validate_find_number(r->model, "shared");
    double flops = 6 * b.tokens * b.hidden * (b.top * b.inner + (shared > 0 ? shared : 0)) *
                   (strcmp(r->phase, "moe_fwd_bwd") == 0 ? 3 : 1);
    return to_metric(r, c, s, flops, 0, &a->got) ? NULL : "unknown metric of an expert block";
}

/* Ling-2.6-1T: hidden 8192, inner 2048, 256 experts top-8 and one shared, over 32 cores, fp8. */
static const char *ling_row(struct validator *v, const struct validate_row *r, const struct chip *c,
                            struct validate_answer *a, struct err *e) {
    a->kind = "moe";
    if (!validate_has(r->notes, "hidden 8192, expert inner 2048, 256 experts top-8") ||
        !whole(r->m))
        return "an expert block whose shape is not known here";
    a->size_class = validate_class(v, r->m, token_classes);
    struct topology t;
    if (topology_init(&t, c, (int64_t)r->chips, r->topology, e))
        return "the topology does not match the chips";
    struct device d;
    device_init(&d, c);
    double devices = r->chips * (double)c->devices, rows = r->m * 8 / devices,
           local = 256 / devices;
    double groups = rows * devices < 256 ? rows : local;
    enum num math = validate_has(r->notes, "without activation quantisation") ? NUM_BF16 : NUM_FP8;
    double up = grouped_s(&d, rows, groups, 4096, 8192, math, 1),
           down = grouped_s(&d, rows, groups, 8192, 2048, math, 1);
    double shared = grouped_s(&d, r->m / devices, 1, 4096, 8192, math, 1) +
                    grouped_s(&d, r->m / devices, 1, 8192, 2048, math, 1);
    struct collective_time there;
    collective_run(c, &t, COLLECTIVE_ALL_TO_ALL, r->m * 8 * 8192 * 2, &there);
    double s = 0;
    if (strcmp(r->phase, "moe_ffn1") == 0)
        s = up;
    else if (strcmp(r->phase, "moe_shared") == 0)
        s = shared;
    else if (strcmp(r->phase, "moe_prefill") == 0 ||
             strcmp(r->phase, "moe_decode") == 0) { /* fused: tokens travel while experts work */
        double work = up + down + shared;
        s = (work > 2 * there.s ? work : 2 * there.s) + d.kernel_s;
    }
    return s > 0 && to_metric(r, c, s, 0, 0, &a->got) ? NULL : "unknown part of an expert block";
}

static const char *grouped_row(struct validator *v, const struct validate_row *r,
                               const struct chip *c, struct validate_answer *a) {
    a->kind = "grouped_matmul";
    double touched = validate_find_number(r->notes, "resident groups, ");
    if (!whole(r->m) || !whole(r->n) || !whole(r->k) || !whole(touched))
        return "sizes or touched groups are not stated";
    a->size_class = validate_class(v, r->m, token_classes);
    struct device d;
    device_init(&d, c);
    double s =
        grouped_s(&d, r->m, touched, r->n, r->k, NUM_BF16, validate_has(r->quant, "fp8") ? 1 : 2);
    return to_metric(r, c, s, 2 * r->m * r->n * r->k, 0, &a->got)
               ? NULL
               : "unknown metric of a grouped matmul";
}

/* ---- attention ---- */

static const char *attention_row(struct validator *v, const struct validate_row *r,
                                 const struct chip *c, struct validate_answer *a) {
    static const double batch_classes[] = {32, 256, 0};
    a->kind = "attention";
    struct device d;
    device_init(&d, c);
    struct kernel k = {.kind = KERNEL_ATTENTION, .sequences = r->global_batch};
    struct kernel_time t;
    if (strcmp(r->phase, "decode_attention") == 0) {
        double rank = validate_find_number(r->notes, "kv_lora"),
               rope = validate_find_number(r->notes, "rope"), heads = strtod(r->sharding, NULL);
        if (!whole(rank) || !whole(rope) || !whole(heads) || !whole(r->seq_len) ||
            !whole(r->global_batch))
            return "the latent's sizes, heads, batch or context are not stated";
        double context = r->seq_len * r->global_batch,
               latent = (double)round_up((int64_t)(rank + rope), 128);
        k.flops = 2 * (double)round_up((int64_t)heads, c->row_pad) * (latent + rank) * context;
        k.elements = heads * context;
        k.ops = VPU_SOFTMAX;
        k.read_bytes = context * latent * 2;
        a->size_class = validate_class(v, r->global_batch, batch_classes);
    } else {
        double product = validate_find_number(r->notes, "batch x heads x head size =");
        if (!whole(product) || !whole(r->seq_len))
            return "batch, heads and head size are not stated";
        if (validate_has(r->notes, "default 128 tiles")) {
            /* not causal, 128 x 128: a step loads K and V and runs two dependent products with the
             * running maximum and sum between them: taken as four plain grid steps, a number set on
             * these very rows, so their error says nothing */
            double heads = product / 128, steps = heads * (r->seq_len / 128) * (r->seq_len / 128);
            k.sequences = 0;
            k.flops = 4 * product * r->seq_len * r->seq_len;
            k.elements = heads * r->seq_len * r->seq_len;
            k.ops = VPU_SOFTMAX;
            kernel_run(&d, &k, &t);
            return to_metric(r, c, t.s + steps * 4 * d.tile_s, 0, 0, &a->got)
                       ? NULL
                       : "unknown metric of attention";
        }
        return "tiles are not stated";
    }
    kernel_run(&d, &k, &t);
    return to_metric(r, c, t.s, 0, 0, &a->got) ? NULL : "unknown metric of attention";
}

int validate_kernel_row(struct validator *v, const struct validate_row *r,
                        struct validate_answer *a, struct err *e) {
    const struct chip *c;
    int rc = validate_chip(v, r->chip, &c, e);
    if (rc)
        return rc;
    struct err ignored = {0};
    const char *p = r->phase;
    if (!c)
        a->why = "no chip file for this chip";
    else if (strcmp(p, "matmul") == 0 || strcmp(p, "matmul_masked") == 0 ||
             strcmp(p, "matmul_block_sparse") == 0)
        a->why = matmul_row(v, r, c, a);
    else if (strcmp(p, "matmul_sharded") == 0)
        a->why = sharded_matmul(v, r, c, a, &ignored);
    else if (strcmp(p, "copy") == 0)
        a->why = copy_row(v, r, c, a);
    else if (strcmp(r->workload, "collective") == 0)
        a->why = collective_row(v, r, c, a, &ignored);
    else if (strcmp(p, "decode_attention") == 0 || strcmp(p, "flash_attention_fwd") == 0)
        a->why = attention_row(v, r, c, a);
    else if (strcmp(p, "grouped_matmul") == 0)
        a->why = grouped_row(v, r, c, a);
    else if (strncmp(p, "moe_", 4) == 0)
        a->why = validate_has(r->model, "MoE block") ? moe_block_row(v, r, c, a)
                                                     : ling_row(v, r, c, a, &ignored);
    else if (strcmp(p, "ffn_sharded") == 0)
        a->why = "host timing below a millisecond: mostly dispatch, not the chip";
    else if (strcmp(p, "gather") == 0)
        a->why = "no model of the SparseCore, nor of gathers from a table that fits in VMEM";
    else
        a->why = "no model of this phase";
    return 0;
}
