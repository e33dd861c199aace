/* Request bodies: valid JSON with the fields asked for, exact input length, content that depends on
 * seed and position alone. */
#include "backends/http/body.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <jansson.h>
#include <string.h>

static const struct body_options plain = {.protocol = &protocols[API_COMPLETIONS],
                                          .model = "m",
                                          .fields = FIELD_MIN_TOKENS | FIELD_IGNORE_EOS |
                                                    FIELD_INCLUDE_USAGE,
                                          .stream = true,
                                          .vocab = 128256};

static json_t *build(const struct body_options *o, const struct request *r) {
    struct body_template t;
    struct buf b;
    struct err e;
    buf_init(&b, BODY_MAX_BYTES);
    cr_assert(zero(int, body_template_init(&t, o, &e)), "%s", e.text);
    cr_assert(zero(int, body_build(&t, r, &b, &e)), "%s", e.text);
    json_error_t je;
    json_t *root = json_loadb(b.p, b.n, JSON_REJECT_DUPLICATES, &je);
    cr_assert(ne(ptr, root, NULL), "%s: %.200s", je.text, b.p);
    buf_release(&b);
    body_template_release(&t);
    return root;
}

static bool equals(json_t *root, const char *want) {
    json_t *w = json_loads(want, 0, NULL);
    bool same = json_equal(root, w);
    json_decref(w);
    return same;
}

Test(backends_http_body, completions_fields) {
    struct request r = {.isl = 3, .osl = 17, .content_seed = 1};
    json_t *root = build(&plain, &r);
    json_t *prompt = json_object_get(root, "prompt");
    cr_assert(eq(sz, json_array_size(prompt), 3));
    json_object_del(root, "prompt");
    cr_assert(equals(root, "{\"model\":\"m\",\"max_tokens\":17,\"min_tokens\":17,\"ignore_eos\":"
                           "true,\"temperature\":0,"
                           "\"stream\":true,\"stream_options\":{\"include_usage\":true}}"));
    json_decref(root);
}

Test(backends_http_body, chat_fields) {
    struct body_options o = {
        .protocol = &protocols[API_CHAT],
        .model = "a\"b\\c/\xC3\xA9",
        .fields = FIELD_CONTINUOUS_USAGE | FIELD_RETURN_TOKEN_IDS,
        .temperature = -1,
        .stream = true,
        .extra = "{\"top_k\": 5, \"chat_template_kwargs\": {\"enable_thinking\": false}}"};
    struct request r = {.isl = 2, .osl = 1, .text = "say \"hi\"\n\ttab \x01 \xE2\x82\xAC"};
    json_t *root = build(&o, &r);
    cr_assert(equals(
        root,
        "{\"model\":\"a\\\"b\\\\c/\xC3\xA9\",\"messages\":[{\"role\":\"user\",\"content\":\"say "
        "\\\"hi\\\"\\n\\ttab \\u0001 \xE2\x82\xAC\"}],"
        "\"max_completion_tokens\":1,\"stream\":true,\"stream_options\":{\"include_usage\":true,"
        "\"continuous_usage_stats\":true},"
        "\"return_token_ids\":true,\"top_k\":5,\"chat_template_kwargs\":{\"enable_thinking\":false}"
        "}"));
    json_decref(root);
}

Test(backends_http_body, input_length_is_exact) {
    static const uint32_t lengths[] = {0, 1, 2, 3, 4, 5, 1000, 131072};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct request r = {.isl = lengths[i], .osl = 4294967295u, .content_seed = i};
        json_t *root = build(&plain, &r);
        json_t *prompt = json_object_get(root, "prompt"), *id;
        size_t k;
        cr_assert(eq(sz, json_array_size(prompt), lengths[i]));
        json_array_foreach(prompt, k, id)
            cr_assert(json_integer_value(id) >= 10000 && json_integer_value(id) < 96192);
        cr_assert(eq(i64, json_integer_value(json_object_get(root, "max_tokens")), 4294967295));
        json_decref(root);
    }
}

Test(backends_http_body, chat_text_has_a_word_per_token) {
    struct body_options o = plain;
    o.protocol = &protocols[API_CHAT];
    struct request r = {.isl = 500, .osl = 1, .content_seed = 3};
    json_t *root = build(&o, &r);
    const char *text = json_string_value(
        json_object_get(json_array_get(json_object_get(root, "messages"), 0), "content"));
    int words = 1;
    for (const char *p = text; *p; p++)
        words += *p == ' ';
    cr_assert(eq(int, words, 500));
    json_decref(root);
}

/* A later turn begins with the tokens of the earlier one; another seed does not. */
Test(backends_http_body, shared_prefix_is_identical) {
    struct request one = {.isl = 100, .osl = 1, .content_seed = 9}, two = one, other = one;
    two.isl = 175;
    other.content_seed = 10;
    json_t *a = build(&plain, &one), *b = build(&plain, &two), *c = build(&plain, &other);
    json_t *pa = json_object_get(a, "prompt"), *pb = json_object_get(b, "prompt"),
           *pc = json_object_get(c, "prompt");
    int same = 0, distinct = 0;
    struct body_template t;
    cr_assert(zero(int, body_template_init(&t, &plain, NULL)));
    for (size_t i = 0; i < 100; i++) {
        cr_assert(json_equal(json_array_get(pa, i), json_array_get(pb, i)));
        cr_assert(
            eq(i64, json_integer_value(json_array_get(pa, i)), body_token_id(&t, 9, (uint32_t)i)));
        same += json_equal(json_array_get(pa, i), json_array_get(pc, i));
        distinct += i == 0 || !json_equal(json_array_get(pa, i), json_array_get(pa, i - 1));
    }
    cr_assert(lt(int, same, 5));
    cr_assert(gt(int, distinct, 95));
    body_template_release(&t);
    json_decref(a);
    json_decref(b);
    json_decref(c);
}

Test(backends_http_body, ids_stay_inside_small_vocabularies) {
    static const int64_t vocabs[] = {1, 100, 5000, 32000, 50257, 300000};
    for (size_t i = 0; i < sizeof vocabs / sizeof *vocabs; i++) {
        struct body_options o = plain;
        struct body_template t;
        o.vocab = vocabs[i];
        cr_assert(zero(int, body_template_init(&t, &o, NULL)));
        for (uint32_t k = 0; k < 20000; k++)
            cr_assert(lt(u32, body_token_id(&t, 5, k), (uint32_t)vocabs[i]));
        body_template_release(&t);
    }
}

Test(backends_http_body, bad_extra) {
    static const char *const bad[] = {
        "", "[1]", "{", "5", "{\"model\":\"x\"}", "{\"stream\":false}", "{\"a\":1,\"a\":2}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct body_options o = plain;
        struct body_template t;
        struct err e;
        o.extra = bad[i];
        cr_assert(eq(int, body_template_init(&t, &o, &e), ASSAY_EUSAGE), "%s", bad[i]);
        cr_assert(ne(ptr, (void *)strstr(e.text, "extra"), NULL));
    }
}
