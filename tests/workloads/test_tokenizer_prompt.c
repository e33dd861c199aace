/* Prompts of an exact number of tokens: for every number, in every vocabulary that the tests have, alone
 * and within a chat; the text decides, so it is encoded anew here. */
#include "harness/core/json.h"
#include "workloads/tokenizer/prompt.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_MAX = 2000 };

struct bench {
    struct tokenizer *t;
    struct tokenizer_work *w;
    struct prompt_maker *m;
    struct prompt_around around;
    struct buf text;
};

static void begin(struct bench *b, struct tokenizer *t, const char *family) {
    struct err e = {0};
    const struct chat_template *chat = NULL;
    b->t = t;
    b->w = tokenizer_work_new(t);
    buf_init(&b->text, 1 << 20);
    cr_assert(zero(int, prompt_maker_new(t, &b->m, &e)), "%s", e.text);
    prompt_around_nothing(&b->around);
    if (family) {
        cr_assert(zero(int, chat_template_named(family, &chat, &e)), "%s", e.text);
        cr_assert(zero(int, prompt_around_chat(&b->around, chat, "2026-01-02", &e)), "%s", e.text);
    }
}

static void end(struct bench *b) {
    prompt_around_release(&b->around);
    prompt_maker_free(b->m);
    tokenizer_work_free(b->w);
    tokenizer_free(b->t);
    buf_release(&b->text);
}

static struct tokenizer *load_file(const char *path) {
    struct tokenizer *t = NULL;
    struct err e = {0};
    cr_assert(zero(int, tokenizer_load(path, &t, &e)), "%s", e.text);
    return t;
}

/* Returns false when there are fewer tokens than the surroundings have, or than the shortest text. */
static bool exact(struct bench *b, uint64_t seed, size_t tokens, const char *what) {
    static uint32_t made[TOKENS_MAX], again[TOKENS_MAX];
    struct buf whole;
    struct err e = {0};
    size_t n;
    int rc = prompt_make(b->m, &b->around, seed, tokens, &b->text, made, &e);
    if (rc && tokens < 8 && (strstr(e.text, "expected at least") || strstr(e.text, "no text of exactly")))
        return false;
    if (rc && strstr(e.text, "expected at least"))
        return false;
    cr_assert(zero(int, rc), "%s: %zu tokens: %s", what, tokens, e.text);
    buf_init(&whole, 1 << 20);
    buf_put(&whole, b->around.before.p, b->around.before.n);
    buf_put(&whole, b->text.p, b->text.n);
    buf_put(&whole, b->around.after.p, b->around.after.n);
    cr_assert(zero(int, tokenizer_encode(b->t, b->w, whole.p ? whole.p : "", whole.n, b->around.flags, again,
                                         TOKENS_MAX, &n, &e)));
    cr_assert(eq(sz, n, tokens), "%s: '%s'", what, b->text.p ? b->text.p : "");
    cr_assert(zero(int, memcmp(made, again, n * sizeof *made)));
    buf_release(&whole);
    return true;
}

static void every_length(const char *file, const char *family) {
    struct bench b;
    size_t made = 0;
    begin(&b, load_file(file), family);
    for (size_t n = 1; n <= TOKENS_MAX; n++) {
        bool there = exact(&b, n, n, file);
        cr_assert(there || !made); /* once it can be had, so can all longer ones */
        made += there;
    }
    cr_assert(ge(sz, made, TOKENS_MAX - 200));
    end(&b);
}

Test(workloads_tokenizer_prompt, every_length_of_bytes, .timeout = 120) {
    every_length("tests/data/tokenizer/bytes.json", NULL);
}

Test(workloads_tokenizer_prompt, every_length_of_characters, .timeout = 120) {
    every_length("tests/data/tokenizer/chars.json", NULL);
}

Test(workloads_tokenizer_prompt, every_length_within_a_chat, .timeout = 120) {
    every_length("tests/data/tokenizer/bytes.json", "qwen3");
    every_length("tests/data/tokenizer/chars.json", "gemma3");
}

/* Every component that changes texts or cuts them. */
Test(workloads_tokenizer_prompt, lengths_under_every_variant, .timeout = 120) {
    json_t *plan = NULL, *v;
    struct err e = {0};
    size_t i;
    cr_assert(zero(int, json_parse_file("tests/data/tokenizer/variants.json", &plan, &e)), "%s", e.text);
    json_array_foreach(json_object_get(plan, "variants"), i, v) {
        char file[64];
        json_t *base = NULL, *patch = json_deep_copy(json_object_get(v, "patch"));
        const char *name = json_string_value(json_object_get(v, "name"));
        snprintf(file, sizeof file, "tests/data/tokenizer/%s.json",
                 json_string_value(json_object_get(v, "base")));
        cr_assert(zero(int, json_parse_file(file, &base, &e)), "%s", e.text);
        if (json_object_get(patch, "model"))
            json_object_update(json_object_get(base, "model"), json_object_get(patch, "model"));
        json_object_del(patch, "model");
        json_object_update(base, patch);
        char *text = json_dumps(base, 0);
        struct tokenizer *t = NULL;
        struct bench b;
        cr_assert(zero(int, tokenizer_parse(text, strlen(text), name, &t, &e)), "%s", e.text);
        begin(&b, t, NULL);
        size_t made = 0;
        for (size_t n = 1; n <= 120; n++)
            made += exact(&b, n * 31 + i, n, name);
        cr_assert(ge(sz, made, 113), "%s: %zu", name, made);
        cr_assert(exact(&b, 5, TOKENS_MAX, name));
        end(&b);
        free(text);
        json_decref(patch);
        json_decref(base);
    }
    json_decref(plan);
}

Test(workloads_tokenizer_prompt, a_seed_decides_the_text) {
    struct bench b;
    struct buf first;
    struct err e = {0};
    begin(&b, load_file("tests/data/tokenizer/bytes.json"), NULL);
    buf_init(&first, 1 << 20);
    cr_assert(zero(int, prompt_make(b.m, &b.around, 7, 300, &first, NULL, &e)));
    cr_assert(zero(int, prompt_make(b.m, &b.around, 7, 300, &b.text, NULL, &e)));
    cr_assert(eq(str, first.p, b.text.p));
    cr_assert(zero(int, prompt_make(b.m, &b.around, 8, 300, &b.text, NULL, &e)));
    cr_assert(ne(str, first.p, b.text.p));
    cr_assert(ne(ptr, strstr(first.p, ". "), NULL)); /* sentences, of words */
    cr_assert(eq(ptr, strstr(first.p, "  "), NULL));
    cr_assert(first.p[0] >= 'A' && first.p[0] <= 'Z');
    buf_release(&first);
    end(&b);
}

/* n words that are a token each, joined by spaces, are n tokens; what is around adds one number. */
Test(workloads_tokenizer_prompt, words_of_one_token_each) {
    struct bench b;
    struct err e = {0};
    size_t overhead, n, words;
    begin(&b, load_file("tests/data/tokenizer/bytes.json"), NULL);
    words = prompt_nwords(b.m);
    cr_assert(ge(sz, words, 1));
    for (size_t i = 0; i < 500; i++)
        buf_printf(&b.text, "%s%s", i ? " " : "", prompt_word(b.m, i * 7919 % words));
    cr_assert(zero(int, tokenizer_count(b.t, b.w, b.text.p, b.text.n, &n, &e)));
    cr_assert(eq(sz, n, 500));
    cr_assert(zero(int, prompt_overhead(b.m, &b.around, &overhead, &e)), "%s", e.text);
    cr_assert(eq(sz, overhead, 1)); /* the begin of text */
    end(&b);
    begin(&b, load_file("tests/data/tokenizer/chars.json"), NULL);
    cr_assert(ge(sz, prompt_nwords(b.m), 1));
    cr_assert(zero(int, prompt_overhead(b.m, &b.around, &overhead, &e)), "%s", e.text);
    cr_assert(eq(sz, overhead, 2));
    end(&b);
}

Test(workloads_tokenizer_prompt, fewer_than_the_surroundings_have) {
    struct bench b;
    struct err e = {0};
    begin(&b, load_file("tests/data/tokenizer/chars.json"), NULL);
    cr_assert(eq(int, prompt_make(b.m, &b.around, 1, 1, &b.text, NULL, &e), ASSAY_EINPUT));
    cr_assert(eq(str, e.text, "a prompt of 1 tokens: expected at least 2, what is around it"));
    cr_assert(zero(int, prompt_make(b.m, &b.around, 1, 2, &b.text, NULL, &e)));
    cr_assert(eq(sz, b.text.n, 0));
    end(&b);
}
