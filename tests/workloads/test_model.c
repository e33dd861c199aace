/* Model shapes against published totals and figures. */
#include "harness/core/embed.h"
#include "harness/core/json.h"
#include "workloads/model.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct model load(const char *name) {
    struct model m;
    struct err e = {0};
    cr_assert(eq(int, model_load(name, &m, &e), 0), "%s: %s", name, e.text);
    return m;
}

/* Each shipped model's exact count equals the total its publisher's checkpoint has ("$source"). */
Test(workloads_model, parameters_equal_the_published_totals) {
    size_t n, seen = 0;
    const struct embedded *all = embedded_all(&n);
    for (size_t i = 0; i < n; i++) {
        if (strncmp(all[i].path, "workloads/models/", 17))
            continue;
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(strlen(all[i].path) - 22), all[i].path + 17);
        json_t *json;
        struct err e = {0};
        cr_assert(eq(int, model_json(name, &json, &e), 0), "%s", e.text);
        struct model m = load(name);
        cr_assert(eq(str, m.name, name));
        cr_assert(ne(ptr, (void *)json_string_value(json_object_get(json, "$source")), NULL));
        cr_assert(eq(i64, model_parameters(&m),
                     json_integer_value(json_object_get(json, "$parameters_published"))),
                  "%s", name);
        json_decref(json);
        seen++;
    }
    cr_assert(ge(sz, seen, 13));
}

/* gpt-oss model card (arXiv:2508.10925), table 1: 5.13B active, unembedding counted, embedding not.
 * DeepSeek-V3 README_WEIGHTS.md: 36.6B with 0.9B for the output head.
 * Mixtral of Experts (arXiv:2401.04088): 12.9B, both tables counted. */
Test(workloads_model, active_parameters_equal_the_published_ones) {
    struct model g = load("gpt-oss-120b"), d = load("deepseek-v3"), x = load("mixtral-8x7b");
    cr_assert(eq(i64, (model_matmul_parameters(&g) + 5000000) / 10000000, 513));
    cr_assert(eq(i64, (model_matmul_parameters(&d) + 50000000) / 100000000, 366));
    cr_assert(eq(i64, (model_active_parameters(&x) + 50000000) / 100000000, 129));
    struct model l = load("llama3.1-8b");
    cr_assert(eq(i64, model_active_parameters(&l), model_parameters(&l)));
    cr_assert(eq(i64, model_matmul_parameters(&l), 8030261248 - 128256LL * 4096));
    /* tied: the table is the output projection, which does arithmetic */
    struct model t = load("gemma2-27b");
    cr_assert(eq(i64, model_matmul_parameters(&t), model_parameters(&t)));
}

/* How to Scale Your Model (jax-ml.github.io/scaling-book), inference: Llama-3-70B in int8 has
 * 2*80*8*128 = 163840 bytes a token. DeepSeek-V3: 61 * (512 + 64) elements. */
Test(workloads_model, kv_bytes_per_token) {
    struct model l = load("llama3.1-70b"), d = load("deepseek-v3"), q = load("qwen3-32b");
    cr_assert(eq(i64, model_kv_bytes_per_token(&l, 1), 163840));
    cr_assert(eq(i64, model_kv_bytes_per_token(&l, 2), 327680));
    cr_assert(eq(i64, model_kv_bytes_per_token(&l, 0.5), 81920));
    cr_assert(eq(i64, model_kv_bytes_per_token(&d, 2), 70272));
    cr_assert(eq(i64, model_kv_bytes_per_token(&q, 2), 262144));
}

/* Gemma 3 technical report (arXiv:2503.19786): 5 local layers a global one; 62 layers hold 10. */
Test(workloads_model, sliding_layers) {
    struct model g = load("gpt-oss-120b"), m = load("gemma3-27b"), l = load("llama3.1-8b");
    cr_assert(eq(i64, model_full_attention_layers(&g), 18));
    cr_assert(eq(i64, g.sliding_window, 128));
    cr_assert(eq(i64, model_full_attention_layers(&m), 10));
    cr_assert(eq(i64, model_full_attention_layers(&l), 32));
    cr_assert(eq(i64, l.sliding_every, 0));
}

Test(workloads_model, an_alias_has_its_own_name_and_the_others_shape) {
    struct model a = load("llama3.3-70b"), b = load("llama3.1-70b");
    cr_assert(eq(str, a.name, "llama3.3-70b"));
    cr_assert(eq(i64, model_parameters(&a), model_parameters(&b)));
}

Test(workloads_model, an_unknown_name_proposes_the_near_one) {
    struct model m;
    struct err e = {0};
    cr_assert(eq(int, model_load("llama3.1-7b", &m, &e), ASSAY_EUSAGE));
    cr_assert(ne(ptr, strstr(e.text, "llama3.1-"), NULL), "%s", e.text);
}

/* llama2.c's stories260K: 260,032 parameters, tied embeddings; named after its folder. */
Test(workloads_model, a_config_is_loaded_by_its_path) {
    static const char path[] = "../shared/data/models/stories260K/config.json";
    if (access(path, R_OK))
        cr_skip_test("%s is not here", path);
    struct model m = load(path);
    cr_assert(eq(i64, model_parameters(&m), 260032));
    cr_assert(eq(str, m.name, "stories260K"));
    cr_assert(eq(str, m.dtype, "float32"));
}

#define BASE                                                                                       \
    "\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":64,\"num_attention_heads\":" \
    "4,"                                                                                           \
    "\"vocab_size\":512,\"max_position_embeddings\":128,\"intermediate_size\":128"

/* text, part of the message; NULL = it must load */
static const struct {
    const char *text, *message;
} cases[] = {
    {"{" BASE "}", NULL},
    {"{" BASE ",\"rope_scaling\":null,\"sliding_window\":null,\"eos_token_id\":[1,2]}", NULL},
    {"{" BASE ",\"num_key_value_heads\":3}", "/num_key_value_heads: expected a divisor"},
    {"{" BASE ",\"num_local_experts\":4}", "/num_experts_per_tok"},
    {"{" BASE ",\"num_local_experts\":4,\"num_experts_per_tok\":5}", "found 5"},
    {"{" BASE ",\"first_k_dense_replace\":3,\"n_routed_experts\":4,\"num_experts_per_tok\":1}",
     "/first_k_dense_replace"},
    {"{" BASE ",\"kv_lora_rank\":8}", "/kv_lora_rank"},
    {"{" BASE ",\"layer_types\":[\"full_attention\"],\"sliding_window\":8}", "/layer_types"},
    {"{" BASE ",\"layer_types\":[\"full_attention\",\"wide\"],\"sliding_window\":8}",
     "/layer_types/1"},
    {"{" BASE ",\"layer_types\":[\"sliding_attention\",\"full_attention\"],\"sliding_window\":8}",
     NULL},
    {"{\"model_type\":\"mamba\"}", "/model_type: expected one of"},
    {"{\"num_hidden_layers\":2}", "/model_type"},
    {"[]", "expected an object"},
    {"{" BASE ",\"head_dim\":\"64\"}", "/head_dim"},
    {"{" BASE ",\"head_dim\":0}", "/head_dim"},
    {"{\"model_type\":\"gemma3\",\"text_config\":{" BASE "}}", NULL},
    {"{\"model_type\":\"mixtral\",\"num_hidden_layers\":4096,\"hidden_size\":1048576,"
     "\"num_attention_heads\":4096,\"vocab_size\":16777216,\"max_position_embeddings\":128,"
     "\"intermediate_size\":4194304,\"num_local_experts\":65536,\"num_experts_per_tok\":2}",
     "1e17 parameters"},
};

Test(workloads_model, bad_shapes_are_refused_with_their_place) {
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err e = {0};
        struct model m;
        json_t *json;
        cr_assert(eq(int, json_parse(cases[i].text, strlen(cases[i].text), "t", &json, &e), 0));
        int rc = model_from_json(json, "x.json", "/model", &m, &e);
        json_decref(json);
        if (!cases[i].message) {
            cr_assert(eq(int, rc, 0), "%s: %s", cases[i].text, e.text);
            continue;
        }
        cr_assert(eq(int, rc, ASSAY_EINPUT), "%s", cases[i].text);
        cr_assert(ne(ptr, strstr(e.text, cases[i].message), NULL), "%s", e.text);
        cr_assert(ne(ptr, strstr(e.text, "x.json: at /model"), NULL), "%s", e.text);
    }
}

static void expect_fault(const char *name, json_t *value) {
    struct err e = {0};
    struct model m;
    char want[96];
    json_t *json;
    cr_assert(eq(int, json_parse("{" BASE "}", strlen("{" BASE "}"), "t", &json, &e), 0));
    if (value)
        json_object_set_new(json, name, value);
    else
        json_object_del(json, name);
    cr_assert(eq(int, model_from_json(json, "x.json", "", &m, &e), ASSAY_EINPUT), "%s", name);
    snprintf(want, sizeof want, "x.json: at /%s", name);
    cr_assert(eq(int, strncmp(e.text, want, strlen(want)), 0), "%s\nwanted %s", e.text, want);
    json_decref(json);
}

/* Schema and loader describe the same members: each refuses a wrong type, its bounds, its absence. */
Test(workloads_model, every_member_of_the_schema_refuses_every_fault) {
    const struct embedded *f = embedded_find("schemas/model.json");
    struct err e = {0};
    json_t *schema, *s;
    const char *name;
    size_t members = 0, k;
    cr_assert(eq(int, json_parse(f->data, f->size, f->path, &schema, &e), 0), "%s", e.text);
    json_t *shape = json_object_get(json_object_get(schema, "$defs"), "shape");
    json_object_foreach(json_object_get(shape, "properties"), name, s) {
        json_t *min = json_object_get(s, "minimum"), *max = json_object_get(s, "maximum");
        if (strcmp(name, "layer_types")) /* is read only beside a sliding window: cases above */
            expect_fault(name, json_pack("[b]", 1));
        if (min)
            expect_fault(name, json_integer(json_integer_value(min) - 1));
        if (max)
            expect_fault(name, json_integer(json_integer_value(max) + 1));
        members++;
    }
    json_array_foreach(json_object_get(shape, "required"), k, s)
        expect_fault(json_string_value(s), NULL);
    cr_assert(ge(sz, members, 30));
    json_decref(schema);
}
