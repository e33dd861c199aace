/* Model shapes: reads a Hugging Face config.json through one table of members and one of families,
 * and counts parameters and KV bytes from the shapes. It knows nothing of time, placement or
 * weights.
 *
 * A new family is one row of `families`: what its config.json leaves to the modelling code. */
#include "workloads/model.h"

#include "harness/core/embed.h"
#include "harness/core/json.h"
#include "harness/core/options.h"

#include <stdio.h>
#include <string.h>

static const char MODELS_DIR[] = "workloads/models";

struct config {
    const char *model_type, *dtype, *torch_dtype, *hidden_act, *topk_method;
    int64_t layers, hidden, heads, kv_heads, head_dim, vocab, max_context, ffn;
    bool tied, attention_bias, mlp_bias, use_sliding_window;
    int64_t experts, local_experts, routed_experts, experts_per_token, expert_ffn;
    int64_t shared_experts, dense_layers;
    int64_t q_lora_rank, kv_lora_rank, qk_nope, qk_rope, v_head_dim;
    int64_t sliding_window, sliding_pattern;
    const json_t *layer_types;
};

#define AT(member) offsetof(struct config, member)
// clang-format off
static const struct option config_fields[] = {
    {"model_type", OPT_STR, AT(model_type), .flags = OPTION_REQUIRED},
    {"num_hidden_layers", OPT_I64, AT(layers), .min = 1, .max = 4096, .flags = OPTION_REQUIRED},
    {"hidden_size", OPT_I64, AT(hidden), .min = 1, .max = 1 << 20, .flags = OPTION_REQUIRED},
    {"num_attention_heads", OPT_I64, AT(heads), .min = 1, .max = 4096, .flags = OPTION_REQUIRED},
    {"num_key_value_heads", OPT_I64, AT(kv_heads), .min = 1, .max = 4096},
    {"head_dim", OPT_I64, AT(head_dim), .min = 1, .max = 4096},
    {"vocab_size", OPT_I64, AT(vocab), .min = 1, .max = 1 << 24, .flags = OPTION_REQUIRED},
    {"max_position_embeddings", OPT_I64, AT(max_context), .min = 1, .max = 1 << 28, .flags = OPTION_REQUIRED},
    {"intermediate_size", OPT_I64, AT(ffn), .min = 1, .max = 1 << 22, .flags = OPTION_REQUIRED},
    {"hidden_act", OPT_STR, AT(hidden_act), .help = "activation"},
    {"tie_word_embeddings", OPT_BOOL, AT(tied), .help = "one table for input and output"},
    {"attention_bias", OPT_BOOL, AT(attention_bias), .help = "biases on q, k, v and o"},
    {"mlp_bias", OPT_BOOL, AT(mlp_bias), .help = "biases in the feed-forward layers"},
    {"num_experts", OPT_I64, AT(experts), .min = 0, .max = 65536},
    {"num_local_experts", OPT_I64, AT(local_experts), .min = 0, .max = 65536},
    {"n_routed_experts", OPT_I64, AT(routed_experts), .min = 0, .max = 65536},
    {"num_experts_per_tok", OPT_I64, AT(experts_per_token), .min = 1, .max = 65536},
    {"moe_intermediate_size", OPT_I64, AT(expert_ffn), .min = 1, .max = 1 << 22},
    {"n_shared_experts", OPT_I64, AT(shared_experts), .min = 0, .max = 4096},
    {"first_k_dense_replace", OPT_I64, AT(dense_layers), .min = 0, .max = 4096},
    {"topk_method", OPT_STR, AT(topk_method), .help = "routing"},
    {"q_lora_rank", OPT_I64, AT(q_lora_rank), .min = 1, .max = 1 << 20},
    {"kv_lora_rank", OPT_I64, AT(kv_lora_rank), .min = 1, .max = 1 << 20},
    {"qk_nope_head_dim", OPT_I64, AT(qk_nope), .min = 1, .max = 4096},
    {"qk_rope_head_dim", OPT_I64, AT(qk_rope), .min = 1, .max = 4096},
    {"v_head_dim", OPT_I64, AT(v_head_dim), .min = 1, .max = 4096},
    {"sliding_window", OPT_I64, AT(sliding_window), .min = 1, .max = 1 << 28},
    {"sliding_window_pattern", OPT_I64, AT(sliding_pattern), .min = 1, .max = 4096},
    {"use_sliding_window", OPT_BOOL, AT(use_sliding_window), .help = "false: the window is ignored"},
    {"layer_types", OPT_JSON, AT(layer_types), .help = "full_attention or sliding_attention, a layer each"},
    {"torch_dtype", OPT_STR, AT(torch_dtype), .help = "of the weights"},
    {"dtype", OPT_STR, AT(dtype), .help = "of the weights"}, /* the name since transformers 4.56 */
    {0},
};

/* What the published modelling code fixes and config.json does not say.
 * Source: transformers, src/transformers/models/FAMILY/modeling_FAMILY.py. */
struct family {
    const char *model_type;
    bool qk_norm, sinks;
    bool tied;                 /* the default of tie_word_embeddings */
    bool moe_bias;             /* biases in the router and in each expert */
    int bias;                  /* 0 from attention_bias on q, k, v and o; 1 on q, k, v only */
    int64_t norms;
    int64_t sliding_every;     /* default when a window is set; 0 = all layers slide */
};
enum { BIAS_CONFIG = 0, BIAS_QKV = 1 };
static const struct family families[] = {
    {"deepseek_v2", .norms = 2},
    {"deepseek_v3", .norms = 2},
    {"gemma2",      .norms = 4, .tied = true, .sliding_every = 2},
    {"gemma3_text", .norms = 4, .tied = true, .sliding_every = 6, .qk_norm = true},
    {"gpt_oss",     .norms = 2, .sinks = true, .moe_bias = true, .sliding_every = 2},
    {"llama",       .norms = 2},
    {"mistral",     .norms = 2},
    {"mixtral",     .norms = 2},
    {"qwen2",       .norms = 2, .bias = BIAS_QKV},
    {"qwen3",       .norms = 2, .qk_norm = true},
    {"qwen3_moe",   .norms = 2, .qk_norm = true},
};
// clang-format on
enum { FAMILIES = sizeof families / sizeof families[0] };

static const struct family *find_family(const char *model_type) {
    for (size_t i = 0; i < FAMILIES; i++)
        if (strcmp(families[i].model_type, model_type) == 0)
            return &families[i];
    return NULL;
}

static int unknown_family(const char *file, const char *pointer, const char *found, struct err *e) {
    char known[256] = "";
    for (size_t i = 0, n = 0; i < FAMILIES; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "",
                              families[i].model_type);
    return err_set(e, ASSAY_EINPUT, "%s: at %s/model_type: expected one of %s, found \"%.40s\"",
                   file, pointer, known, found);
}

/* The members that config_fields names, without null ones: configs write null for absent. */
static json_t *known_members(const json_t *json) {
    json_t *out = json_object();
    for (const struct option *row = config_fields; out && row->type != OPT_END; row++) {
        json_t *v = json_object_get(json, row->name);
        if (v && !json_is_null(v) && json_object_set(out, row->name, v)) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

/* Counts the full layers of layer_types and turns them into "the last of each N". */
static int read_layer_types(const struct config *c, const char *file, const char *pointer,
                            int64_t *every, struct err *e) {
    const json_t *list = c->layer_types;
    if (!json_is_array(list) || (int64_t)json_array_size(list) != c->layers)
        return err_set(e, ASSAY_EINPUT,
                       "%s: at %s/layer_types: expected an array of %lld strings, found %s of %zu",
                       file, pointer, (long long)c->layers, json_kind(list), json_array_size(list));
    int64_t full = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *s = json_string_value(json_array_get(list, i));
        if (s && strcmp(s, "full_attention") == 0)
            full++;
        else if (!s || strcmp(s, "sliding_attention") != 0)
            return err_set(e, ASSAY_EINPUT,
                           "%s: at %s/layer_types/%zu: expected \"full_attention\" or "
                           "\"sliding_attention\", found %s%s",
                           file, pointer, i, s ? "" : json_kind(json_array_get(list, i)),
                           s ? s : "");
    }
    if (full == c->layers) {
        *every = 0;
        return 0;
    }
    for (*every = 2; *every <= c->layers + 1; ++*every)
        if (c->layers / *every == full)
            return 0;
    return err_set(
        e, ASSAY_EINPUT,
        "%s: at %s/layer_types: expected one full layer in every N, found %lld full of %lld", file,
        pointer, (long long)full, (long long)c->layers);
}

static int fault(const char *file, const char *pointer, const char *member, const char *expected,
                 int64_t found, struct err *e) {
    return err_set(e, ASSAY_EINPUT, "%s: at %s/%s: expected %s, found %lld", file, pointer, member,
                   expected, (long long)found);
}

/* An upper bound of the parameter count in doubles: the exact sums below must not overflow. */
static double parameter_bound(const struct model *m) {
    double h = (double)m->hidden, layers = (double)m->layers, heads = (double)m->heads;
    double head = (double)(m->head_dim + m->qk_nope_head_dim + m->qk_rope_head_dim + m->v_head_dim);
    double rank = (double)(m->q_lora_rank + m->kv_lora_rank + m->qk_rope_head_dim);
    double width = (double)(m->ffn + m->expert_ffn + m->shared_expert_ffn + 2);
    double copies = (double)(m->experts + m->shared_experts + 1);
    return 2 * h * (double)m->vocab + layers * (4 * (h + rank + 1) * (heads * head + rank + 1) +
                                                copies * 3 * (h + 1) * width + (copies + 4) * h);
}

static int check(const struct model *m, const char *file, const char *pointer, struct err *e) {
    if (parameter_bound(m) > 1e17)
        return err_set(e, ASSAY_EINPUT,
                       "%s: at %s: expected a shape of at most 1e17 parameters, "
                       "found about %.3g",
                       file, *pointer ? pointer : "/", parameter_bound(m));
    if (m->heads % m->kv_heads)
        return fault(file, pointer, "num_key_value_heads", "a divisor of num_attention_heads",
                     m->kv_heads, e);
    if (m->experts && (m->experts_per_token < 1 || m->experts_per_token > m->experts))
        return fault(file, pointer, "num_experts_per_tok", "between 1 and the number of experts",
                     m->experts_per_token, e);
    if (m->dense_layers > m->layers)
        return fault(file, pointer, "first_k_dense_replace", "at most num_hidden_layers",
                     m->dense_layers, e);
    if (m->kv_lora_rank && (!m->qk_nope_head_dim || !m->qk_rope_head_dim || !m->v_head_dim))
        return fault(file, pointer, "kv_lora_rank",
                     "qk_nope_head_dim, qk_rope_head_dim and v_head_dim beside it", m->kv_lora_rank,
                     e);
    return 0;
}

static int fill(const struct config *c, const struct family *f, const char *file,
                const char *pointer, struct model *m, struct err *e) {
    snprintf(m->family, sizeof m->family, "%s", c->model_type);
    snprintf(m->dtype, sizeof m->dtype, "%s",
             c->torch_dtype ? c->torch_dtype : (c->dtype ? c->dtype : "bfloat16"));
    m->layers = c->layers;
    m->hidden = c->hidden;
    m->heads = c->heads;
    m->kv_heads = c->kv_heads ? c->kv_heads : c->heads;
    m->vocab = c->vocab;
    m->max_context = c->max_context;
    m->ffn = c->ffn;
    m->gated_ffn = true; /* every family of the table */
    m->tied_embeddings = c->tied;
    m->qkv_bias = f->bias == BIAS_QKV || c->attention_bias;
    m->o_bias = f->bias == BIAS_CONFIG && c->attention_bias;
    m->qk_norm = f->qk_norm;
    m->attention_sinks = f->sinks;
    m->norms_per_layer = f->norms;
    if (c->head_dim)
        m->head_dim = c->head_dim;
    else if (c->hidden % c->heads == 0)
        m->head_dim = c->hidden / c->heads;
    else
        return fault(file, pointer, "num_attention_heads", "a divisor of hidden_size", c->heads, e);

    m->experts = c->experts ? c->experts : c->local_experts ? c->local_experts : c->routed_experts;
    if (m->experts) {
        m->experts_per_token = c->experts_per_token;
        m->expert_ffn = c->expert_ffn ? c->expert_ffn : c->ffn;
        m->shared_experts = c->shared_experts;
        m->shared_expert_ffn = m->shared_experts ? m->expert_ffn : 0;
        m->dense_layers = c->dense_layers;
    }
    /* noaux_tc is DeepSeek-V3's one score correction an expert */
    m->ffn_bias = c->mlp_bias || f->moe_bias;
    m->router_bias = f->moe_bias || (c->topk_method && strcmp(c->topk_method, "noaux_tc") == 0);

    m->q_lora_rank = c->q_lora_rank;
    m->kv_lora_rank = c->kv_lora_rank;
    m->qk_nope_head_dim = c->qk_nope;
    m->qk_rope_head_dim = c->qk_rope;
    m->v_head_dim = c->v_head_dim;

    if (c->sliding_window && c->use_sliding_window) {
        m->sliding_window = c->sliding_window;
        m->sliding_every = c->sliding_pattern ? c->sliding_pattern
                           : f->sliding_every ? f->sliding_every
                                              : c->layers + 1;
        if (c->layer_types) {
            int rc = read_layer_types(c, file, pointer, &m->sliding_every, e);
            if (rc)
                return rc;
        }
        if (m->sliding_every == 0 || m->sliding_every == 1)
            m->sliding_window = m->sliding_every = 0;
    }
    return check(m, file, pointer, e);
}

int model_from_json(const json_t *json, const char *file, const char *pointer, struct model *m,
                    struct err *e) {
    memset(m, 0, sizeof *m);
    if (!json_is_object(json)) {
        char found[64];
        json_excerpt(json, found, sizeof found);
        return err_set(e, ASSAY_EINPUT, "%s: at %s: expected an object, found %s", file,
                       *pointer ? pointer : "/", found);
    }
    /* multimodal configs keep the language model one level down */
    char nested[160];
    const json_t *text = json_object_get(json, "text_config");
    const json_t *shape = json;
    if (json_is_object(text) && !json_object_get(json, "hidden_size")) {
        shape = text;
        snprintf(nested, sizeof nested, "%s/text_config", pointer);
        pointer = nested;
    }
    struct arena a = {0};
    struct config c = {.use_sliding_window = true};
    int rc = ASSAY_ENOMEM;
    json_t *known = known_members(shape);
    if (!known) {
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
        goto out;
    }
    const char *type = json_string_value(json_object_get(known, "model_type"));
    const struct family *f = type ? find_family(type) : NULL;
    if (type && !f) {
        rc = unknown_family(file, pointer, type, e);
        goto out;
    }
    if (f)
        c.tied = f->tied;
    rc = options_from_json(config_fields, &c, known, file, pointer, &a, e);
    if (rc == 0)
        rc = fill(&c, f, file, pointer, m, e);
    if (rc == 0) {
        const char *name = json_string_value(json_object_get(json, "$name"));
        snprintf(m->name, sizeof m->name, "%s", name ? name : file);
    }
out:
    json_decref(known);
    arena_release(&a);
    return rc;
}

static bool is_path(const char *name) {
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 5 && strcmp(name + n - 5, ".json") == 0);
}

static int no_such_model(const char *name, struct err *e) {
    const char *names[128];
    char store[128][MODEL_NAME_MAX];
    size_t count, n = 0;
    const struct embedded *all = embedded_all(&count);
    for (size_t i = 0; i < count && n < 128; i++) {
        const char *p = all[i].path;
        size_t dir = sizeof MODELS_DIR - 1, len = strlen(p);
        if (strncmp(p, MODELS_DIR, dir) || p[dir] != '/' || len < dir + 7)
            continue;
        snprintf(store[n], sizeof store[n], "%.*s", (int)(len - dir - 6), p + dir + 1);
        names[n] = store[n];
        n++;
    }
    const char *near = nearest_name(name, names, n);
    return err_set(e, ASSAY_EUSAGE,
                   "no model '%s' ships with assay%s%s%s; a config.json is given by its path", name,
                   near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

/* "models/x/config.json" is named x: every published folder calls its file config.json. */
static void name_of_path(const char *path, char *out, size_t out_bytes) {
    const char *end = strrchr(path, '/');
    const char *base = end ? end + 1 : path;
    if (end && strcmp(base, "config.json") == 0) {
        const char *start = end;
        while (start > path && start[-1] != '/')
            start--;
        if (end > start) {
            snprintf(out, out_bytes, "%.*s", (int)(end - start), start);
            return;
        }
    }
    size_t n = strlen(base);
    if (n > 5 && strcmp(base + n - 5, ".json") == 0)
        n -= 5;
    snprintf(out, out_bytes, "%.*s", (int)n, base);
}

static int load_json(const char *name, json_t **out, struct err *e) {
    if (is_path(name))
        return json_parse_file(name, out, e);
    const struct embedded *f = embedded_find_in(MODELS_DIR, name, ".json");
    if (!f)
        return no_such_model(name, e);
    return json_parse(f->data, f->size, f->path, out, e);
}

int model_json(const char *name, json_t **out, struct err *e) {
    json_t *aliased = NULL, *json = NULL;
    char own[MODEL_NAME_MAX];
    *out = NULL;
    int rc = load_json(name, &json, e);
    if (rc)
        return rc;
    if (!json_is_object(json)) {
        rc = err_set(e, ASSAY_EINPUT, "%s: at /: expected an object, found %s", name,
                     json_kind(json));
        goto out;
    }
    const char *given = json_string_value(json_object_get(json, "$name"));
    if (given)
        snprintf(own, sizeof own, "%s", given);
    else
        name_of_path(name, own, sizeof own);
    const char *alias = json_string_value(json_object_get(json, "$alias"));
    if (alias) {
        rc = load_json(alias, &aliased, e);
        if (rc) {
            rc = err_wrap(e, "model '%s'", name);
            goto out;
        }
        if (json_object_get(aliased, "$alias")) {
            rc = err_set(e, ASSAY_EINPUT,
                         "%s: at /$alias: expected a model with its own shape, found "
                         "the alias '%s'",
                         name, alias);
            goto out;
        }
        json_t *t = json;
        json = aliased;
        aliased = t;
    }
    if (json_object_set_new(json, "$name", json_string(own))) {
        rc = err_set(e, ASSAY_EINPUT, "%s: at /$name: expected valid UTF-8", name);
        goto out;
    }
    *out = json_incref(json);
out:
    json_decref(json);
    json_decref(aliased);
    return rc;
}

int model_load(const char *name, struct model *m, struct err *e) {
    json_t *json;
    int rc = model_json(name, &json, e);
    if (rc)
        return rc;
    rc = model_from_json(json, name, "", m, e);
    json_decref(json);
    return rc;
}

int64_t model_embedding_parameters(const struct model *m) {
    return m->vocab * m->hidden;
}

/* Weights and biases of one layer's attention, its own norms included. */
static int64_t attention_parameters(const struct model *m) {
    int64_t h = m->hidden;
    if (m->kv_lora_rank) {
        int64_t qk = m->qk_nope_head_dim + m->qk_rope_head_dim;
        int64_t q = m->q_lora_rank ? h * m->q_lora_rank + m->q_lora_rank /* its norm */ +
                                         m->q_lora_rank * m->heads * qk
                                   : h * m->heads * qk;
        int64_t kv = h * (m->kv_lora_rank + m->qk_rope_head_dim) + m->kv_lora_rank /* norm */ +
                     m->kv_lora_rank * m->heads * (m->qk_nope_head_dim + m->v_head_dim);
        return q + kv + m->heads * m->v_head_dim * h;
    }
    int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    int64_t n = h * (q + 2 * kv) + q * h;
    n += m->qkv_bias ? q + 2 * kv : 0;
    n += m->o_bias ? h : 0;
    n += m->qk_norm ? 2 * m->head_dim : 0;
    n += m->attention_sinks ? m->heads : 0;
    return n;
}

static int64_t ffn_parameters(const struct model *m, int64_t width) {
    int64_t ups = m->gated_ffn ? 2 : 1;
    return (ups + 1) * m->hidden * width + (m->ffn_bias ? ups * width + m->hidden : 0);
}

static int64_t count(const struct model *m, int64_t experts) {
    int64_t layer = attention_parameters(m) + m->norms_per_layer * m->hidden;
    int64_t n = m->layers * layer + m->hidden /* the last norm */ + model_embedding_parameters(m);
    if (!m->tied_embeddings)
        n += m->vocab * m->hidden;
    if (m->experts == 0)
        return n + m->layers * ffn_parameters(m, m->ffn);
    int64_t moe = m->experts * m->hidden + (m->router_bias ? m->experts : 0) +
                  experts * ffn_parameters(m, m->expert_ffn) +
                  m->shared_experts * ffn_parameters(m, m->shared_expert_ffn);
    return n + m->dense_layers * ffn_parameters(m, m->ffn) + (m->layers - m->dense_layers) * moe;
}

int64_t model_parameters(const struct model *m) {
    return count(m, m->experts);
}

int64_t model_active_parameters(const struct model *m) {
    return count(m, m->experts_per_token);
}

int64_t model_matmul_parameters(const struct model *m) {
    return model_active_parameters(m) - (m->tied_embeddings ? 0 : model_embedding_parameters(m));
}

int64_t model_full_attention_layers(const struct model *m) {
    return m->sliding_every ? m->layers / m->sliding_every : m->layers;
}

int64_t model_kv_bytes_per_token(const struct model *m, double bytes_per_element) {
    int64_t elements = m->kv_lora_rank ? m->layers * (m->kv_lora_rank + m->qk_rope_head_dim)
                                       : 2 * m->layers * m->kv_heads * m->head_dim;
    return (int64_t)((double)elements * bytes_per_element + 0.5);
}
