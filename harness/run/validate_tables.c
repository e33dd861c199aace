/* The two device-trace tables: kernels on a TPU v4, and one layer of Llama-3.1-8B on a v6e.
 * Sources: yutation/SCALE-SIM_Validation (the data behind arXiv:2603.22535; IEEE half inputs) and
 * casys-kaist/LLMServingSim (profiler TPU-v6e-1, plain array code, one module at a time). */
#include "harness/run/validate_internal.h"

#include "backends/tpu_sim/step.h"

#include <stdlib.h>
#include <string.h>

static const double dim_classes[] = {128, 512, 1024, 4096, 0};
static const double element_classes[] = {8192, 65536, 1048576, 0};
static const double token_classes[] = {128, 512, 2048, 0};

/* Integers in a shape's text: "f16[768,1024]" (what stands before '[' is a type), "8, 16, 64",
 * "96,". */
static int shape_of(const char *text, int64_t *dim, int max) {
    const char *p = strchr(text, '[');
    int n = 0;
    p = p ? p + 1 : text;
    while (*p && n < max) {
        if (*p < '0' || *p > '9') {
            p++;
            continue;
        }
        char *end;
        dim[n++] = strtoll(p, &end, 10);
        p = end;
    }
    return n;
}

/* Elements after padding: the compiler picks which two axes lie in (8,128) tiles, so the least. */
static double padded_elements(const int64_t *dim, int n) {
    if (n == 1)
        return (double)round_up(dim[0], 8 * 128);
    double best = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            if (i == j)
                continue;
            double p = (double)(round_up(dim[i], 8) * round_up(dim[j], 128));
            for (int q = 0; q < n; q++)
                if (q != i && q != j)
                    p *= (double)dim[q];
            if (best == 0 || p < best)
                best = p;
        }
    return best;
}

/* Arrays touched and vector operations an element of each kind of fusion. */
static const struct {
    const char *op;
    double arrays, ops;
} vector_ops[] = {
    {"add", 3, VPU_CHEAP},
    {"mul", 3, VPU_CHEAP},
    {"relu", 2, VPU_CHEAP},
    {"binary", 2, VPU_CHEAP},
    {"elu", 2, VPU_EXP + 2 * VPU_CHEAP},
    {"leaky", 2, 2 * VPU_CHEAP},
    {"linear", 2, VPU_CHEAP},
    {"parametric", 2, 2 * VPU_CHEAP},
    {"selu", 2, VPU_EXP + 3 * VPU_CHEAP},
    {"sigmoid", 2, VPU_EXP + VPU_DIV + VPU_CHEAP},
    {"tanh", 2, VPU_EXP},
    {"layer_norm", 2, VPU_LAYERNORM},
};

static int v4_vector(const struct device *d, const char *op, const char *shape, double *us,
                     double *elements, const char **why) {
    int64_t dim[8];
    int n = shape_of(shape, dim, 8);
    size_t i = 0, count = sizeof vector_ops / sizeof vector_ops[0];
    while (i < count && strcmp(op, vector_ops[i].op) != 0)
        i++;
    if (i == count)
        *why = "no cost for this operation";
    else if (n == 0)
        *why = "the shape has no dimensions";
    if (*why)
        return 0;
    *elements = padded_elements(dim, n);
    struct kernel k = {.kind = KERNEL_VECTOR,
                       .flags = KERNEL_F16,
                       .elements = *elements,
                       .ops = vector_ops[i].ops,
                       .read_bytes = 2 * *elements * vector_ops[i].arrays};
    struct kernel_time t;
    kernel_run(d, &k, &t);
    *us = t.s * 1e6;
    return 0;
}

int validate_v4_table(struct validator *v, const struct csv_table *c, const char *file,
                      struct err *e) {
    static const struct {
        const char *theirs, *ours;
    } kinds[] = {{"gemm", "gemm"},
                 {"elementwise", "elementwise"},
                 {"activation", "activation"},
                 {"layer_norm", "layernorm"},
                 {"copy_hbm_to_vmem", "copy"}};
    const struct chip *chip;
    int rc = validate_chip(v, "v4", &chip, e);
    if (rc)
        return rc;
    struct device d;
    device_init(&d, chip);
    int id = csv_table_column(c, "id"), kind = csv_table_column(c, "kind"),
        op = csv_table_column(c, "op"), shape = csv_table_column(c, "shape"),
        us = csv_table_column(c, "avg_us"), mc = csv_table_column(c, "m"),
        nc = csv_table_column(c, "n"), kc = csv_table_column(c, "k"),
        bc = csv_table_column(c, "bytes");
    for (size_t r = 0; r < c->rows && !rc; r++) {
        double m, n, k, bytes, want, got = 0, size = 0;
        if ((rc = validate_number(c, r, mc, file, &m, e)) ||
            (rc = validate_number(c, r, nc, file, &n, e)) ||
            (rc = validate_number(c, r, kc, file, &k, e)) ||
            (rc = validate_number(c, r, bc, file, &bytes, e)) ||
            (rc = validate_number(c, r, us, file, &want, e)))
            return rc;
        const char *name = csv_table_get(c, r, kind), *why = NULL, *label = NULL;
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
            if (strcmp(kinds[i].theirs, name) == 0)
                label = kinds[i].ours;
        struct kernel_time t;
        const double *classes = element_classes;
        if (want <= 0)
            why = "the measurement is not a positive number";
        else if (!label)
            why = "unknown kind of kernel";
        else if (strcmp(label, "gemm") == 0) {
            if (m < 1 || n < 1 || k < 1 || m > 1e6 || n > 1e6 || k > 1e6) {
                why = "m, n, k are not all in 1..1000000";
            } else {
                struct kernel x = {.kind = KERNEL_MATMUL,
                                   .flags = KERNEL_F16,
                                   .m = (int64_t)m,
                                   .n = (int64_t)n,
                                   .k = (int64_t)k};
                kernel_run(&d, &x, &t);
                got = t.s * 1e6;
                size = m > n ? m : n;
                size = size > k ? size : k;
                classes = dim_classes;
            }
        } else if (strcmp(label, "copy") == 0) {
            /* the recorded bytes are half the array: what one of the two cores moves. A copy is a
             * DMA of its own: it costs a DMA's start, not a fusion's */
            struct kernel x = {.kind = KERNEL_COPY, .flags = KERNEL_FUSED, .read_bytes = 2 * bytes};
            kernel_run(&d, &x, &t);
            got = (t.s + d.tile_s) * 1e6;
            size = bytes;
        } else {
            rc = v4_vector(&d, csv_table_get(c, r, op), csv_table_get(c, r, shape), &got, &size,
                           &why);
        }
        if (!rc)
            rc = why ? validate_add_why(v, csv_table_get(c, r, id), why, e)
                     : validate_add_point(v, csv_table_get(c, r, id), label, "v4",
                                          validate_class(v, size, classes), want, got, e);
    }
    return rc;
}

/* ---- v6e: Llama-3.1-8B, one module at a time ---- */

/* Projections: the weights come from HBM, except where the loop around the module kept them in
 * VMEM. */
static bool v6e_projection(const struct device *d, const char *layer, double m, double n, double k,
                           double *us) {
    static const struct {
        const char *layer;
        unsigned flags;
    } list[] = {{"q_proj", 0},    {"o_proj", KERNEL_RESIDENT},
                {"gate_proj", 0}, {"up_proj", 0},
                {"down_proj", 0}, {"lm_head", 0}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        if (strcmp(list[i].layer, layer) != 0)
            continue;
        struct kernel x = {.kind = KERNEL_MATMUL,
                           .flags = list[i].flags,
                           .m = (int64_t)m,
                           .n = (int64_t)n,
                           .k = (int64_t)k};
        struct kernel_time t;
        kernel_run(d, &x, &t);
        *us = t.s * 1e6;
        return true;
    }
    return false;
}

static void v6e_layer(const struct device *d, const char *layer, double tokens, double m, double n,
                      double k, double *us, const char **why) {
    enum { HIDDEN = 4096, HEAD_DIM = 128 };
    struct kernel x = {.kind = KERNEL_VECTOR};
    struct kernel_time t;
    if (strcmp(layer, "post_layernorm") == 0 || strcmp(layer, "final_layernorm") == 0) {
        *why =
            "the time does not grow with the tokens: the profile's loop does not contain the work";
        return;
    }
    if (m >= 1 && n >= 1 && k >= 1) {
        if (!v6e_projection(d, layer, m, n, k, us))
            *why = "unknown projection";
        return;
    }
    if (strcmp(layer, "rope") == 0) { /* cosines and sines of the positions */
        x.flags = KERNEL_FUSED;
        x.elements = tokens * HEAD_DIM;
        x.ops = 2 * VPU_SIN;
    } else if (strcmp(layer, "input_layernorm") == 0) {
        x.elements = tokens * HIDDEN;
        x.ops = VPU_RMSNORM;
    } else if (strcmp(layer, "embedding") == 0) {
        x.kind = KERNEL_GATHER;
        x.read_bytes = x.write_bytes = tokens * HIDDEN * 2;
    } else {
        *why = "unknown layer";
        return;
    }
    kernel_run(d, &x, &t);
    *us = t.s * 1e6;
}

int validate_v6e_table(struct validator *v, const struct csv_table *c, const char *file,
                       struct err *e) {
    const struct chip *chip;
    struct model llama;
    int rc = validate_chip(v, "v6e", &chip, e);
    if (!rc)
        rc = model_load("llama3.1-8b", &llama, e);
    struct step_options so = {.chips = 1, .attention = ATTENTION_PLAIN, .block_size = 1};
    struct step_model s;
    if (!rc)
        rc = step_init(&s, chip, &llama, &so, e);
    if (rc)
        return rc;
    static const char *const names[] = {"tokens", "prefill_chunk", "kv_len", "batch", "m", "n",
                                        "k",      "p50_us",        "mean_us"};
    enum { TOKENS, CHUNK, KV, BATCH, M, N, K, P50, MEAN, NUMBERS };
    int at[NUMBERS], id = csv_table_column(c, "id"), kind = csv_table_column(c, "kind"),
                     layer = csv_table_column(c, "layer");
    for (int i = 0; i < NUMBERS; i++)
        at[i] = csv_table_column(c, names[i]);
    for (size_t r = 0; r < c->rows && !rc; r++) {
        double x[NUMBERS];
        for (int i = 0; i < NUMBERS; i++)
            if ((rc = validate_number(c, r, at[i], file, &x[i], e)))
                goto out;
        double want = x[P50] > 0 ? x[P50] : x[MEAN], got = 0, size = x[TOKENS];
        const char *name = csv_table_get(c, r, kind), *label = "layer", *why = NULL;
        const double *classes = token_classes;
        struct kernel k;
        struct kernel_time t;
        if (want <= 0)
            why = "the measurement is not a positive number";
        else if (strcmp(name, "layer") == 0 && x[TOKENS] >= 1)
            v6e_layer(&s.device, csv_table_get(c, r, layer), x[TOKENS], x[M], x[N], x[K], &got,
                      &why);
        else if (strcmp(name, "attention_prefill") == 0 && x[CHUNK] >= 1 && x[KV] >= 0) {
            label = "attention";
            size = x[CHUNK];
            step_prefill_kernel(&s, (int64_t)x[CHUNK], (int64_t)(x[CHUNK] + x[KV]), 0, &k);
            kernel_run(&s.device, &k, &t);
            got = t.s * 1e6;
        } else if (strcmp(name, "attention_decode") == 0 && x[BATCH] >= 1 && x[KV] >= 1) {
            static const double batch_classes[] = {8, 64, 256, 0};
            label = "attention";
            size = x[BATCH];
            classes = batch_classes;
            step_decode_kernel(&s, x[BATCH], x[BATCH] * x[KV], &k);
            kernel_run(&s.device, &k, &t);
            got = t.s * 1e6;
        } else
            why = "unknown kind, or its sizes are missing";
        rc = why ? validate_add_why(v, csv_table_get(c, r, id), why, e)
                 : validate_add_point(v, csv_table_get(c, r, id), label, "v6e",
                                      validate_class(v, size, classes), want, got, e);
    }
out:
    step_release(&s);
    return rc;
}
