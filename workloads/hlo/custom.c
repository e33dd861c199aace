/* Custom calls: what is known of each target, a row each. Bytes are preset with operands plus
 * result. Zero-cost markers, host transfers and library calls: openxla/xla; Pallas kernels carry
 * their own estimate when the author gave one (jax-ml/jax `jax/_src/tpu_custom_call.py`); attention
 * by 4·b·h·s_q·s_kv·d, a half where the mask is causal, 5/2 of it backward (five products for two).
 */
#include "workloads/hlo/cost_internal.h"

#include "harness/core/json.h"

#include <stdlib.h>
#include <string.h>

static bool free_of_charge(const struct hlo_call *call, struct hlo_cost *out) {
    (void)call;
    *out = (struct hlo_cost){{0}};
    return true;
}

/* Over the host link: read or written here once. */
static bool host_transfer(const struct hlo_call *call, struct hlo_cost *out) {
    if (!call->i->noperands || hlo_operand(call->c, call->i, 0)->shape->bytes < 0)
        return false;
    out->v[HLO_BYTES] = hlo_operand(call->c, call->i, 0)->shape->bytes;
    return true;
}

static bool product(const int64_t *v, size_t n, int64_t *out) {
    *out = 1;
    for (size_t k = 0; k < n; k++)
        if (v[k] < 0 || __builtin_mul_overflow(*out, v[k], out))
            return false;
    return true;
}

/* ---- backend_config ---- */

/* As JSON, whether it stands there plainly or quoted with \" or \22 escapes. New reference or NULL.
 */
static json_t *config_json(struct str s) {
    json_t *v = NULL;
    if (!s.n)
        return NULL;
    if (*s.p == '{')
        return json_parse(s.p, s.n, "backend_config", &v, NULL) ? NULL : v;
    s = hlo_unquote(s);
    char *text = malloc(s.n + 1);
    size_t n = 0;
    static const char hex[] = "0123456789ABCDEFabcdef";
    for (size_t k = 0; text && k < s.n; k++) {
        char c = s.p[k];
        if (c == '\\' && k + 2 < s.n && memchr(hex, s.p[k + 1], 22) &&
            memchr(hex, s.p[k + 2], 22)) {
            char pair[3] = {s.p[k + 1], s.p[k + 2], 0};
            c = (char)strtol(pair, NULL, 16);
            k += 2;
        } else if (c == '\\' && k + 1 < s.n) {
            c = s.p[++k];
        }
        text[n++] = c;
    }
    bool bad = !text || json_parse(text, n, "backend_config", &v, NULL);
    free(text);
    return bad ? NULL : v;
}

/* "key = 64 : i64" in an MLIR dictionary. */
static bool config_int(struct str s, const char *key, int64_t *v) {
    size_t n = strlen(key);
    if (!s.n)
        return false;
    for (const char *p = s.p, *end = s.p + s.n; p && p + n < end; p++) {
        p = memmem(p, (size_t)(end - p), key, n);
        if (!p)
            return false;
        const char *q = p + n;
        if ((p > s.p && p[-1] != ' ' && p[-1] != '{' && p[-1] != ',') || end - q < 4 ||
            memcmp(q, " = ", 3))
            continue;
        const char *digits = q += 3;
        while (q < end && (*q == '-' || (*q >= '0' && *q <= '9')))
            q++;
        return hlo_int((struct str){digits, (size_t)(q - digits)}, v);
    }
    return false;
}

/* ---- kernels ---- */

/* cost_estimate of a Pallas kernel: flops, transcendentals, bytes_accessed. */
static bool own_estimate(const struct hlo_call *call, struct hlo_cost *out) {
    json_t *v = config_json(call->config);
    const json_t *estimate =
        json_object_get(json_object_get(v, "custom_call_config"), "cost_estimate");
    static const struct {
        const char *name;
        enum hlo_property property;
    } rows[] = {{"flops", HLO_FLOPS},
                {"transcendentals", HLO_TRANSCENDENTALS},
                {"bytes_accessed", HLO_BYTES}};
    bool there = json_is_object(estimate);
    for (size_t k = 0; k < sizeof rows / sizeof *rows && there; k++) {
        const json_t *n = json_object_get(estimate, rows[k].name);
        if (json_is_integer(n) && json_integer_value(n) >= 0)
            out->v[rows[k].property] = json_integer_value(n);
        else if (n)
            there = false; /* a figure that is none */
    }
    json_decref(v);
    return there;
}

/* q [heads, s_q, d], k [kv heads, s_kv, d], v: the first three floating operands of three
 * dimensions. The mask is data: without it the count is that of full attention. */
static bool splash_forward(const struct hlo_call *call, struct hlo_cost *out) {
    const struct hlo_shape *qkv[3];
    int n = 0;
    for (uint32_t k = 0; k < call->i->noperands && n < 3; k++) {
        const struct hlo_shape *s = hlo_operand(call->c, call->i, k)->shape;
        if (s->rank >= 3 && (s->dtype == HLO_BF16 || s->dtype == HLO_F32) && s->count > 0)
            qkv[n++] = s;
    }
    if (n < 3 || qkv[0]->rank != qkv[1]->rank)
        return false;
    int64_t factors[] = {4, qkv[0]->count, qkv[1]->dims[qkv[1]->rank - 2]};
    return product(factors, 3, &out->v[HLO_FLOPS]);
}

/* lhs [m, k], rhs [groups, k, n]: each row meets one group. */
static bool grouped_matmul(const struct hlo_call *call, struct hlo_cost *out) {
    const struct hlo_shape *mk = NULL, *gkn = NULL;
    for (uint32_t k = 0; k < call->i->noperands; k++) {
        const struct hlo_shape *s = hlo_operand(call->c, call->i, k)->shape;
        if (!mk && s->rank == 2)
            mk = s;
        else if (mk && !gkn && s->rank == 3)
            gkn = s;
    }
    if (!mk || !gkn || mk->dims[1] != gkn->dims[1])
        return false;
    int64_t factors[] = {2, mk->count, gkn->dims[2]};
    return product(factors, 3, &out->v[HLO_FLOPS]);
}

/* Transformer Engine's fused attention: sizes are in its configuration. */
static bool te_attention(const struct hlo_call *call, struct hlo_cost *out) {
    enum {
        CAUSAL = 2,
        PADDING_CAUSAL = 3,
        CAUSAL_BOTTOM_RIGHT = 4,
        PADDING_CAUSAL_BOTTOM_RIGHT = 5
    };
    int64_t batch, heads, queries, keys, qk, value, mask = 0, scores;
    struct str s = call->config;
    if (!config_int(s, "input_batch", &batch) || !config_int(s, "attn_heads", &heads) ||
        !config_int(s, "q_max_seqlen", &queries) || !config_int(s, "kv_max_seqlen", &keys) ||
        (!config_int(s, "qk_head_dim", &qk) && !config_int(s, "head_dim", &qk)))
        return false;
    if (!config_int(s, "v_head_dim", &value))
        value = qk;
    config_int(s, "mask_type", &mask);
    bool causal = mask >= CAUSAL && mask <= PADDING_CAUSAL_BOTTOM_RIGHT;
    int64_t sizes[] = {batch, heads, queries, keys}, flops;
    if (qk < 0 || value < 0 || qk > INT64_MAX / 4 || value > INT64_MAX / 4 ||
        !product(sizes, 4, &scores))
        return false;
    int64_t both[] = {2, scores, qk + value};
    if (!product(both, 3, &flops))
        return false;
    out->v[HLO_FLOPS] = causal ? flops / 2 : flops;
    return true;
}

static bool te_attention_backward(const struct hlo_call *call, struct hlo_cost *out) {
    return te_attention(call, out) &&
           !__builtin_mul_overflow(out->v[HLO_FLOPS], 5, &out->v[HLO_FLOPS]) &&
           ((out->v[HLO_FLOPS] /= 2), true);
}

static bool contracted(const json_t *dims, const struct hlo_shape *lhs, int64_t *product_out) {
    size_t k;
    json_t *d, *list = json_object_get(dims, "lhs_contracting_dimensions");
    *product_out = 1;
    json_array_foreach(list, k, d) {
        int64_t at = -1;
        if (json_is_integer(d))
            at = json_integer_value(d);
        else if (!json_is_string(d) ||
                 !hlo_int((struct str){json_string_value(d), json_string_length(d)}, &at))
            return false;
        if (at < 0 || at >= lhs->rank || lhs->dims[at] < 0 ||
            __builtin_mul_overflow(*product_out, lhs->dims[at], product_out))
            return false;
    }
    return json_array_size(list) > 0;
}

static const struct hlo_shape *first_result(const struct hlo_shape *s) {
    return s->dtype == HLO_TUPLE_TYPE && s->nelements ? s->elements[0] : s;
}

/* cuBLAS and oneDNN products: dot_dimension_numbers in the configuration. */
static bool library_matmul(const struct hlo_call *call, struct hlo_cost *out) {
    json_t *v = config_json(call->config);
    const json_t *gemm = json_object_get(v, "gemm_backend_config");
    const json_t *dims = json_object_get(gemm ? gemm : v, "dot_dimension_numbers");
    int64_t width = 0;
    bool ok = dims && call->i->noperands >= 2 &&
              contracted(dims, hlo_operand(call->c, call->i, 0)->shape, &width);
    json_decref(v);
    int64_t factors[] = {2, first_result(call->i->shape)->count, width};
    return ok && product(factors, 3, &out->v[HLO_FLOPS]);
}

/* cuDNN convolutions carry window and dim_labels like the op. */
static bool library_convolution(const struct hlo_call *call, struct hlo_cost *out) {
    struct pricing x = {.m = call->m, .c = call->c, .rule = HLO_RULE_MODEL};
    if (call->i->noperands < 2)
        return false;
    out->v[HLO_FLOPS] = convolution_flops(&x, call->i, first_result(call->i->shape));
    return !x.unknown && !x.overflow;
}

// clang-format off
const struct hlo_kernel hlo_kernels[] = {
    {"Sharding", NULL, "a marker", free_of_charge},
    {"SPMDFullToShardShape", NULL, "a marker", free_of_charge},
    {"SPMDShardToFullShape", NULL, "a marker", free_of_charge},
    {"xla.sdy.FuncResultSharding", NULL, "a marker", free_of_charge},
    {"annotate_device_placement", NULL, "a marker", free_of_charge},
    {"AssumeGatherIndicesInBound", NULL, "a marker", free_of_charge},
    {"__xla_internal_call_marker_before", NULL, "a marker", free_of_charge},
    {"__xla_internal_call_marker_after", NULL, "a marker", free_of_charge},
    {"ConcatBitcast", NULL, "a marker", free_of_charge},
    {"SetBound", NULL, "a marker", free_of_charge},
    {"MoveToHost", NULL, "operand bytes", host_transfer},
    {"MoveToDevice", NULL, "operand bytes", host_transfer},
    {"tpu_custom_call", NULL, "the kernel's own cost_estimate", own_estimate},
    {"tpu_custom_call", "splash_mha_fwd", "operand shapes, without the mask", splash_forward},
    {"tpu_custom_call", "splash_mqa_fwd", "operand shapes, without the mask", splash_forward},
    {"tpu_custom_call", "gmm", "operand shapes", grouped_matmul},
    {"te_fused_attn_forward_ffi", NULL, "sizes and mask of its configuration", te_attention},
    {"te_fused_attn_backward_ffi", NULL, "sizes and mask of its configuration", te_attention_backward},
    {"__cublas$gemm", NULL, "dimension numbers of its configuration", library_matmul},
    {"__cublas$lt$matmul", NULL, "dimension numbers of its configuration", library_matmul},
    {"__onednn$matmul", NULL, "dimension numbers of its configuration", library_matmul},
    {"__cudnn$convForward", NULL, "window and labels", library_convolution},
    {"__cudnn$convBiasActivationForward", NULL, "window and labels", library_convolution},
    {NULL, NULL, NULL, NULL},
};
// clang-format on

static bool same(struct str s, const char *text) {
    return s.n == strlen(text) && !memcmp(s.p, text, s.n);
}

static bool inside(struct str s, const char *part) {
    return s.n && memmem(s.p, s.n, part, strlen(part));
}

const struct hlo_kernel *hlo_kernel_of(const struct hlo_kernel *more, const struct hlo_call *call,
                                       struct hlo_cost *out) {
    const struct hlo_kernel *const tables[] = {more, hlo_kernels};
    const struct hlo_cost preset = *out;
    struct str target, metadata = {NULL, 0};
    if (!hlo_attr(call->m, call->c, call->i, HLO_KEY_CUSTOM_CALL_TARGET, &target))
        return NULL;
    target = hlo_unquote(target);
    hlo_attr(call->m, call->c, call->i, HLO_KEY_METADATA, &metadata);
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct hlo_kernel *k = tables[t]; k && k->target; k++) {
            if (!same(target, k->target) ||
                (k->kernel && !inside(call->name, k->kernel) && !inside(metadata, k->kernel)))
                continue;
            *out = preset;
            if (k->price(call, out))
                return k;
        }
    *out = preset;
    return NULL;
}

void price_custom_call(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    if (x->rule == HLO_RULE_XLA) {
        out->v[HLO_FLOPS] = out->v[HLO_BYTES] = -1; /* how XLA writes "unknown" */
        return;
    }
    struct hlo_call call = {x->m, x->c, i, hlo_instr_name(x->m, i), {NULL, 0}};
    hlo_attr(x->m, x->c, i, HLO_KEY_BACKEND_CONFIG, &call.config);
    out->v[HLO_BYTES] = default_bytes(x, i);
    if (!hlo_kernel_of(x->a->pub.kernels, &call, out))
        x->unknown = true;
    out->v[HLO_KERNEL_FLOPS] = out->v[HLO_FLOPS];
}
