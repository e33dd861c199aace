/* Ids and texts of two small vocabularies of our own (tests/data/tokenizer/bytes.json and chars.json,
 * BPE trained on a page written for them) under every component that is known, against golden.json:
 * made from the very same JSON by Hugging Face's Rust library (npm tokenizers 0.23.2) with
 * `scripts/tokenizer-peer.js golden tests/data/tokenizer`. scripts/check-tokenizer makes it anew and
 * compares, and does the same for whole vocabularies of published models. */
#include "harness/core/json.h"
#include "workloads/tokenizer/tokenizer_internal.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IDS_MAX = 4096 };

static json_t *read_json(const char *file) {
    char path[128];
    json_t *v = NULL;
    struct err e = {0};
    snprintf(path, sizeof path, "tests/data/tokenizer/%s", file);
    cr_assert(zero(int, json_parse_file(path, &v, &e)), "%s", e.text);
    return v;
}

/* A base with members replaced; those within "model" one by one. */
static struct tokenizer *load_variant(json_t *variant, bool general) {
    char file[64];
    snprintf(file, sizeof file, "%s.json",
             json_string_value(json_object_get(variant, "base")));
    json_t *base = read_json(file), *patch = json_deep_copy(json_object_get(variant, "patch"));
    json_t *model = json_object_get(patch, "model");
    cr_assert(zero(int, json_object_update(json_object_get(base, "model"), model) && model));
    json_object_del(patch, "model");
    cr_assert(zero(int, json_object_update(base, patch)));
    char *text = json_dumps(base, 0);
    struct tokenizer *t = NULL;
    struct err e = {0};
    cr_assert(zero(int, tokenizer_parse_with(text, strlen(text), "variant", general, &t, &e)),
              "%s: %s", json_string_value(json_object_get(variant, "name")), e.text);
    free(text);
    json_decref(patch);
    json_decref(base);
    return t;
}

static size_t ids_of(const json_t *list, uint32_t *ids) {
    size_t i;
    json_t *v;
    cr_assert(le(sz, json_array_size(list), IDS_MAX));
    json_array_foreach((json_t *)list, i, v) {
        ids[i] = (uint32_t)json_integer_value(v);
    }
    return json_array_size(list);
}

static bool same_ids(const uint32_t *a, size_t na, const uint32_t *b, size_t nb) {
    return na == nb && !memcmp(a, b, na * sizeof *a);
}

typedef void (*variant_fn)(const struct tokenizer *t, const char *name, json_t *texts,
                           const json_t *golden);

static void each_variant(bool general, variant_fn fn) {
    json_t *plan = read_json("variants.json"), *golden = read_json("golden.json");
    json_t *variants = json_object_get(plan, "variants"), *v;
    json_t *rows = json_object_get(golden, "variants");
    size_t i;
    cr_assert(eq(str, (char *)json_string_value(json_object_get(golden, "library")),
                 "npm tokenizers 0.23.2 (Hugging Face's Rust library)"));
    cr_assert(eq(sz, json_array_size(variants), json_array_size(rows)));
    cr_assert(ge(sz, json_array_size(variants), 38));
    json_array_foreach(variants, i, v) {
        const char *name = json_string_value(json_object_get(v, "name"));
        const json_t *row = json_array_get(rows, i);
        cr_assert(eq(str, (char *)json_string_value(json_object_get(row, "variant")),
                     (char *)name));
        struct tokenizer *t = load_variant(v, general);
        fn(t, name, json_object_get(plan, "texts"), row);
        tokenizer_free(t);
    }
    json_decref(plan);
    json_decref(golden);
}

static void check_ids(const struct tokenizer *t, const char *name, json_t *texts,
                      const json_t *golden) {
    static uint32_t want[IDS_MAX], got[IDS_MAX];
    const json_t *rows = json_object_get(golden, "texts");
    struct tokenizer_work *w = tokenizer_work_new(t);
    struct err e = {0};
    size_t i, n, count;
    json_t *text;
    cr_assert(eq(sz, json_array_size(rows), json_array_size(texts)));
    for (int twice = 0; twice < 2; twice++) /* the second time from the caches */
        json_array_foreach(texts, i, text) {
            const char *s = json_string_value(text);
            n = ids_of(json_object_get(json_array_get(rows, i), "ids"), want);
            cr_assert(zero(int, tokenizer_encode(t, w, s, strlen(s), 0, got, IDS_MAX, &count, &e)),
                      "%s", e.text);
            cr_assert(same_ids(got, count, want, n), "%s: '%s': %zu ids, %zu expected", name, s,
                      count, n);
            cr_assert(zero(int, tokenizer_count(t, w, s, strlen(s), &count, &e)));
            cr_assert(eq(sz, count, n));
        }
    /* with what the template adds */
    n = ids_of(json_object_get(golden, "around"), want);
    cr_assert(zero(int, tokenizer_encode(t, w, "a", 1, TOKENIZER_ENCODE_TEMPLATE, got, IDS_MAX,
                                         &count, &e)));
    cr_assert(same_ids(got, count, want, n), "%s: template", name);
    tokenizer_work_free(w);
    cr_assert(eq(sz, tokenizer_vocab_size(t), json_integer_value(json_object_get(golden, "vocab"))),
              "%s", name);
}

Test(workloads_tokenizer, ids_are_those_of_the_rust_library, .timeout = 60) {
    each_variant(false, check_ids);
}

/* The hand-written splitters are switched off: the translated expressions alone. */
Test(workloads_tokenizer, regular_expressions_give_the_same_ids, .timeout = 60) {
    each_variant(true, check_ids);
}

static void check_text(const struct tokenizer *t, const char *name, const json_t *ids,
                       unsigned flags, const char *want) {
    static uint32_t list[IDS_MAX];
    size_t n = ids_of(ids, list);
    struct buf out;
    struct err e = {0};
    buf_init(&out, 1 << 20);
    cr_assert(zero(int, tokenizer_decode(t, list, n, flags, &out, &e)), "%s", e.text);
    cr_assert(eq(str, out.p ? out.p : (char *)"", (char *)want), "%s", name);
    buf_release(&out);
}

static void check_decoded(const struct tokenizer *t, const char *name, json_t *texts,
                          const json_t *golden) {
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(golden, "texts"), i, row) {
        const json_t *ids = json_object_get(row, "ids"), *back = json_object_get(row, "back"),
                     *plain = json_object_get(row, "plain");
        back = back ? back : json_array_get(texts, i);
        check_text(t, name, ids, 0, json_string_value(back));
        check_text(t, name, ids, TOKENIZER_DECODE_SKIP_SPECIAL,
                   json_string_value(plain ? plain : back));
    }
    json_array_foreach(json_object_get(golden, "lists"), i, row) {
        const json_t *ids = json_object_get(row, "ids");
        check_text(t, name, ids, 0, json_string_value(json_object_get(row, "back")));
        check_text(t, name, ids, TOKENIZER_DECODE_SKIP_SPECIAL,
                   json_string_value(json_object_get(row, "plain")));
    }
}

Test(workloads_tokenizer, texts_of_ids_are_those_of_the_rust_library, .timeout = 60) {
    each_variant(false, check_decoded);
}

/* What a stream gives out, joined, is the text of all ids at once, wherever a character is cut. */
static void check_streamed(const struct tokenizer *t, const char *name, json_t *texts,
                           const json_t *golden) {
    static uint32_t ids[IDS_MAX];
    (void)texts;
    struct tokenizer_stream *s = tokenizer_stream_new(t, 0);
    size_t i, n;
    json_t *row;
    struct err e = {0};
    json_array_foreach(json_object_get(golden, "texts"), i, row) {
        struct buf whole, joined;
        buf_init(&whole, 1 << 20);
        buf_init(&joined, 1 << 20);
        n = ids_of(json_object_get(row, "ids"), ids);
        cr_assert(zero(int, tokenizer_decode(t, ids, n, 0, &whole, &e)));
        for (size_t k = 0; k < n; k++) {
            size_t before = joined.n, bad;
            cr_assert(zero(int, tokenizer_stream_push(s, ids[k], &joined, &e)), "%s", e.text);
            size_t fresh = joined.n - before;
            cr_assert(eq(sz, fresh ? utf8_valid(joined.p + before, fresh, &bad) : 0, fresh));
        }
        cr_assert(zero(int, tokenizer_stream_end(s, &joined, &e)));
        cr_assert(eq(sz, joined.n, whole.n), "%s: text %zu", name, i);
        cr_assert(zero(int, whole.n ? memcmp(joined.p, whole.p, whole.n) : 0));
        buf_release(&whole);
        buf_release(&joined);
    }
    tokenizer_stream_free(s);
}

Test(workloads_tokenizer, a_stream_gives_the_same_text_character_by_character, .timeout = 60) {
    each_variant(false, check_streamed);
}

static struct tokenizer *load_file(const char *path) {
    struct tokenizer *t = NULL;
    struct err e = {0};
    cr_assert(zero(int, tokenizer_load(path, &t, &e)), "%s", e.text);
    return t;
}

Test(workloads_tokenizer, a_character_cut_between_tokens_comes_whole_and_a_broken_one_at_the_end) {
    struct tokenizer *t = load_file("tests/data/tokenizer/bytes.json");
    struct tokenizer_work *w = tokenizer_work_new(t);
    struct tokenizer_stream *s = tokenizer_stream_new(t, 0);
    uint32_t ids[16];
    size_t n, pieces = 0;
    struct err e = {0};
    struct buf out;
    buf_init(&out, 4096);
    /* a rocket in four bytes, of which no merge makes one token */
    cr_assert(zero(int, tokenizer_encode(t, w, "\xF0\x9F\x9A\x80", 4, 0, ids, 16, &n, &e)));
    cr_assert(ge(sz, n, 2));
    for (size_t i = 0; i < n; i++) {
        size_t before = out.n;
        cr_assert(zero(int, tokenizer_stream_push(s, ids[i], &out, &e)));
        cr_assert(eq(int, out.n > before, i + 1 == n));
        pieces += out.n > before;
    }
    cr_assert(eq(sz, pieces, 1));
    cr_assert(eq(str, out.p, "\xF0\x9F\x9A\x80"));
    buf_clear(&out);
    cr_assert(zero(int, tokenizer_stream_end(s, &out, &e)));
    cr_assert(eq(sz, out.n, 0));
    for (size_t i = 0; i + 1 < n; i++)
        cr_assert(zero(int, tokenizer_stream_push(s, ids[i], &out, &e)));
    cr_assert(eq(sz, out.n, 0));
    cr_assert(zero(int, tokenizer_stream_end(s, &out, &e)));
    cr_assert(eq(str, out.p, "\xEF\xBF\xBD"));
    buf_release(&out);
    tokenizer_stream_free(s);
    tokenizer_work_free(w);
    tokenizer_free(t);
}

/* Byte-level vocabularies lose nothing: any text comes back, the characters of all of Unicode too. */
Test(workloads_tokenizer, byte_level_text_comes_back) {
    struct tokenizer *t = load_file("tests/data/tokenizer/bytes.json");
    struct tokenizer_work *w = tokenizer_work_new(t);
    static uint32_t ids[1 << 16];
    struct buf text, back;
    struct err e = {0};
    buf_init(&text, 1 << 16);
    buf_init(&back, 1 << 20);
    for (uint32_t base = 0; base < UNICODE_END; base += 997) {
        buf_clear(&text);
        buf_clear(&back);
        for (uint32_t c = base; c < base + 997 && c < UNICODE_END; c += 7) {
            char four[4];
            if (c < 0xD800 || c > 0xDFFF)
                buf_put(&text, four, utf8_put(c, four));
        }
        size_t n;
        if (!text.n)
            continue;
        cr_assert(zero(int, tokenizer_encode(t, w, text.p, text.n, 0, ids, 1 << 16, &n, &e)));
        cr_assert(zero(int, tokenizer_decode(t, ids, n, 0, &back, &e)));
        cr_assert(eq(sz, back.n, text.n));
        cr_assert(zero(int, memcmp(back.p, text.p, text.n)), "from U+%04X", base);
    }
    buf_release(&text);
    buf_release(&back);
    tokenizer_work_free(w);
    tokenizer_free(t);
}

/* Ill-formed bytes count as U+FFFD each maximal part; a short room for ids still gives the count. */
Test(workloads_tokenizer, broken_utf8_and_short_rooms) {
    struct tokenizer *t = load_file("tests/data/tokenizer/bytes.json");
    struct tokenizer_work *w = tokenizer_work_new(t);
    static const struct {
        const char *bytes, *as;
    } cases[] = {
        {"a\xFFz", "a\xEF\xBF\xBDz"},
        {"\xE2\x82", "\xEF\xBF\xBD"},
        {"\xE2\x82z", "\xEF\xBF\xBDz"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF0\x9F\x9A", "\xEF\xBF\xBD"},
        {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
    };
    struct err e = {0};
    uint32_t a[64], b[64];
    size_t na, nb;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert(zero(int, tokenizer_encode(t, w, cases[i].bytes, strlen(cases[i].bytes), 0, a, 64,
                                             &na, &e)));
        cr_assert(zero(int, tokenizer_encode(t, w, cases[i].as, strlen(cases[i].as), 0, b, 64, &nb,
                                             &e)));
        cr_assert(same_ids(a, na, b, nb), "case %zu", i);
    }
    const char *text = "The assay of a chip begins before the chip exists.";
    cr_assert(zero(int, tokenizer_encode(t, w, text, strlen(text), 0, a, 64, &na, &e)));
    for (size_t cap = 0; cap <= na; cap++) {
        memset(b, 0xEE, sizeof b);
        cr_assert(zero(int, tokenizer_encode(t, w, text, strlen(text), 0, cap ? b : NULL, cap, &nb,
                                             &e)));
        cr_assert(eq(sz, nb, na));
        cr_assert(zero(int, memcmp(a, b, cap * sizeof *a)));
        cr_assert(eq(u32, b[cap], 0xEEEEEEEE));
    }
    tokenizer_work_free(w);
    tokenizer_free(t);
}

Test(workloads_tokenizer, tokens_are_found_by_text_and_facts_name_the_components) {
    struct tokenizer *t = load_file("tests/data/tokenizer/bytes.json");
    uint32_t id;
    cr_assert(tokenizer_id(t, "<|end|>", &id));
    cr_assert(eq(u32, id, 523));
    cr_assert(tokenizer_is_special(t, id));
    cr_assert(tokenizer_id(t, "assay", &id));
    cr_assert(not(tokenizer_is_special(t, id)));
    cr_assert(not(tokenizer_id(t, "no such token", &id)));
    cr_assert(not(tokenizer_is_special(t, 999999)));
    cr_assert(eq(sz, strlen(tokenizer_sha256(t)), 64));
    json_t *f = tokenizer_facts(t);
    cr_assert(eq(str, (char *)json_string_value(json_object_get(f, "kind")), "byte-level BPE"));
    cr_assert(eq(i64, json_integer_value(json_object_get(f, "vocabulary")), 522));
    cr_assert(eq(i64, json_integer_value(json_object_get(f, "merges")), 266));
    cr_assert(eq(i64, json_integer_value(json_object_get(f, "added_tokens")), 9));
    cr_assert(eq(str, (char *)json_string_value(json_object_get(f, "pre_tokenizer")), "Sequence"));
    json_decref(f);
    tokenizer_free(t);
}
