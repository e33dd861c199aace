/* Files that are broken or that hold what this reader does not know: each is refused with the file's
 * name, the place, what was expected and what was found. */
#include "harness/core/json.h"
#include "workloads/tokenizer/tokenizer_internal.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *fixture(const char *file) {
    char path[128];
    json_t *v = NULL;
    struct err e = {0};
    snprintf(path, sizeof path, "tests/data/tokenizer/%s", file);
    cr_assert(zero(int, json_parse_file(path, &v, &e)), "%s", e.text);
    return v;
}

/* Sets what a JSON pointer of existing parents names; value NULL removes it. */
static void set_at(json_t *root, const char *pointer, const char *value) {
    char part[64];
    json_t *at = root, *v = value ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
    cr_assert(not(value && !v), "%s", value);
    for (const char *p = pointer + 1;;) {
        size_t n = strcspn(p, "/");
        snprintf(part, sizeof part, "%.*s", (int)n, p);
        bool last = !p[n];
        if (json_is_array(at)) {
            size_t i = (size_t)atoi(part);
            if (last) {
                cr_assert(zero(int, json_array_set_new(at, i, v)), "%s", pointer);
                return;
            }
            at = json_array_get(at, i);
        } else if (last) {
            cr_assert(zero(int, v ? json_object_set_new(at, part, v) : json_object_del(at, part)),
                      "%s", pointer);
            return;
        } else
            at = json_object_get(at, part);
        cr_assert(ne(ptr, at, NULL), "%s", pointer);
        p += n + 1;
    }
}

static int parse(const json_t *root, struct err *e) {
    struct tokenizer *t = NULL;
    char *text = json_dumps(root, JSON_ENCODE_ANY);
    int rc = tokenizer_parse(text, strlen(text), "my.json", &t, e);
    cr_assert(eq(int, rc == 0, t != NULL));
    tokenizer_free(t);
    free(text);
    return rc;
}

Test(workloads_tokenizer_bad, each_says_where_what_was_expected_and_what_was_found) {
    static const struct {
        const char *file, *pointer, *value, *message;
    } cases[] = {
        /* of a wrong type */
        {"bytes.json", "/version", "\"2.0\"", "my.json: at /version: expected \"1.0\", found \"2.0\""},
        {"bytes.json", "/truncation", "{\"max_length\":5}",
         "my.json: at /truncation: expected null, as it would change counts, found an object"},
        {"bytes.json", "/padding", "7", "my.json: at /padding: expected null"},
        {"bytes.json", "/added_tokens", "{}",
         "my.json: at /added_tokens: expected an array, found an object"},
        {"bytes.json", "/added_tokens/2/content", "5", "my.json: at /added_tokens/2: expected content"},
        {"bytes.json", "/added_tokens/2/content", "\"\"", "my.json: at /added_tokens/2: expected"},
        {"bytes.json", "/added_tokens/2/id", "\"524\"", "found a string and a string"},
        {"bytes.json", "/added_tokens/2/lstrip", "1",
         "my.json: at /added_tokens/2/lstrip: expected a boolean, found an integer"},
        {"bytes.json", "/added_tokens/2/normalized", NULL,
         "my.json: at /added_tokens/2/normalized: expected a boolean, found nothing"},
        {"bytes.json", "/added_tokens/2/id", "900",
         "my.json: at /added_tokens/2: '<|user|>' has id 900, but its place gives 524"},
        {"bytes.json", "/model", "[]", "my.json: at /model: expected an object, found an array"},
        {"bytes.json", "/model", NULL, "my.json: at /model: expected an object, found nothing"},
        {"bytes.json", "/model/vocab", "[]", "my.json: at /model/vocab: expected an object, found an array"},
        {"bytes.json", "/model/vocab/a", "-1",
         "my.json: at /model/vocab: 'a': expected an id from 0 to 16777216, found -1"},
        {"bytes.json", "/model/vocab/a", "1e3", "found 1000"},
        {"bytes.json", "/model/vocab/a", "99999999", "found 99999999"},
        {"bytes.json", "/model/vocab/a", "9999999",
         "my.json: at /model/vocab: expected ids without wide gaps, found 9999999 with 522 tokens"},
        {"bytes.json", "/model/vocab/a", "65", "my.json: at /model/vocab: id 65 stands for two tokens"},
        {"bytes.json", "/model/merges", "{}", "my.json: at /model/merges: expected an array, found an object"},
        {"bytes.json", "/model/merges/3", "[\"t\"]",
         "my.json: at /model/merges/3: expected two tokens, found an array"},
        {"bytes.json", "/model/merges/3", "\"a b c\"",
         "my.json: at /model/merges/3: expected two tokens, found \"a b c\""},
        {"bytes.json", "/model/merges/3", "[\"q\",\"q\"]",
         "my.json: at /model/merges/3: 'q' and 'q': a token, or what they make, is not in the vocabulary"},
        {"bytes.json", "/model/ignore_merges", "1",
         "my.json: at /model/ignore_merges: expected a boolean, found an integer"},
        {"bytes.json", "/model/byte_fallback", "true", "my.json: at /model/byte_fallback: true beside ByteLevel"},
        {"bytes.json", "/model/dropout", "0.1", "my.json: at /model/dropout: expected null"},
        {"bytes.json", "/model/dropout", "\"no\"", "found \"no\""},
        {"bytes.json", "/model/continuing_subword_prefix", "\"##\"",
         "my.json: at /model/continuing_subword_prefix: expected null or \"\", found \"##\""},
        {"bytes.json", "/model/end_of_word_suffix", "3", "my.json: at /model/end_of_word_suffix"},
        {"chars.json", "/model/unk_token", "3", "my.json: at /model/unk_token: expected a string, found an integer"},
        {"chars.json", "/model/unk_token", "\"none such\"",
         "my.json: at /model/unk_token: 'none such' is not in the vocabulary"},
        /* of an unknown kind */
        {"bytes.json", "/model/type", "\"Unigram\"",
         "my.json: at /model/type: expected \"BPE\", found \"Unigram\""},
        {"bytes.json", "/model/type", "\"WordPiece\"", "found \"WordPiece\""},
        {"bytes.json", "/model/type", "null", "found null"},
        {"bytes.json", "/normalizer", "{\"type\":\"BertNormalizer\",\"lowercase\":true}",
         "my.json: at /normalizer: normalizer of type 'BertNormalizer' is not known here"},
        {"bytes.json", "/normalizer", "\"NFC\"",
         "my.json: at /normalizer: expected an object with a type, found \"NFC\""},
        {"bytes.json", "/normalizer", "{\"type\":3}", "my.json: at /normalizer/type: expected a string, found 3"},
        {"bytes.json", "/normalizer", "{\"type\":\"Sequence\"}",
         "my.json: at /normalizer/normalizers: expected an array, found nothing"},
        {"chars.json", "/normalizer/normalizers/1", "{\"type\":\"Nmt\"}",
         "my.json: at /normalizer/normalizers/1: normalizer of type 'Nmt' is not known here"},
        {"chars.json", "/normalizer/normalizers/1/content", "5",
         "my.json: at /normalizer/normalizers/1/content: expected a string, found 5"},
        {"chars.json", "/normalizer/normalizers/1/pattern", "\" \"",
         "my.json: at /normalizer/normalizers/1/pattern: expected an object with String or Regex, found \" \""},
        {"chars.json", "/normalizer/normalizers/1/pattern/String", "\"\"",
         "expected a pattern that is not empty"},
        {"chars.json", "/normalizer/normalizers/0/prepend", "null",
         "my.json: at /normalizer/normalizers/0/prepend: expected a string, found null"},
        {"chars.json", "/normalizer", "{\"type\":\"Strip\",\"strip_left\":\"yes\"}",
         "my.json: at /normalizer/strip_left: expected a boolean, found \"yes\""},
        {"chars.json", "/normalizer", "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}",
         "my.json: at /normalizer/pattern: '('"},
        {"chars.json", "/normalizer", "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x*\"},\"content\":\"\"}",
         "my.json: at /normalizer/pattern/Regex: expected a pattern that cannot match nothing, found \"x*\""},
        {"bytes.json", "/pre_tokenizer/pretokenizers/0/type", "\"Whitespace\"",
         "my.json: at /pre_tokenizer/pretokenizers/0: pre_tokenizer of type 'Whitespace' is not known here"},
        {"bytes.json", "/pre_tokenizer/pretokenizers/0/behavior", "\"isolated\"",
         "my.json: at /pre_tokenizer/pretokenizers/0/behavior: expected Removed, Isolated"},
        {"bytes.json", "/pre_tokenizer/pretokenizers/0/invert", "0", "expected a boolean, found 0"},
        {"bytes.json", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"(?<name>a)\"",
         "my.json: at /pre_tokenizer/pretokenizers/0/pattern: '(?<name>a)': a group '(?' that is not known here"},
        {"bytes.json", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"\\\\p{Nonsense}\"",
         "a class that is not known here"},
        {"bytes.json", "/pre_tokenizer/pretokenizers/1/use_regex", "\"no\"",
         "my.json: at /pre_tokenizer/pretokenizers/1/use_regex: expected a boolean"},
        {"bytes.json", "/pre_tokenizer",
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":\"WhitespaceSplit\"}]}",
         "my.json: at /pre_tokenizer/pretokenizers/1: pre_tokenizer of type 'WhitespaceSplit' is not known "
         "here: nothing may follow ByteLevel"},
        {"chars.json", "/pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"ab\"}",
         "my.json: at /pre_tokenizer/replacement: expected one character, found \"ab\""},
        {"chars.json", "/pre_tokenizer",
         "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"sometimes\"}",
         "my.json: at /pre_tokenizer/prepend_scheme: expected always, never or first, found \"sometimes\""},
        {"bytes.json", "/decoder", "{\"type\":\"WordPiece\"}",
         "my.json: at /decoder: decoder of type 'WordPiece' is not known here"},
        {"chars.json", "/decoder/decoders/3/start", "-1",
         "my.json: at /decoder/decoders/3/start: expected a count, found -1"},
        {"chars.json", "/decoder/decoders/3/content", "\"\"",
         "my.json: at /decoder/decoders/3/content: expected one character, found \"\""},
        {"chars.json", "/decoder/decoders/0/pattern", "{\"Regex\":\"a\"}",
         "my.json: at /decoder/decoders/0: decoder of type 'Replace' is not known here: replacing by a "
         "regular expression"},
        {"bytes.json", "/post_processor/type", "\"BertProcessing\"",
         "my.json: at /post_processor: post_processor of type 'BertProcessing' is not known here"},
        {"bytes.json", "/post_processor/single", "[]", "the text must appear in it once"},
        {"bytes.json", "/post_processor/single/1/Sequence/id", "\"B\"",
         "my.json: at /post_processor/single: expected the sequence A, found \"B\""},
        {"bytes.json", "/post_processor/special_tokens", "{}",
         "a piece that is neither a sequence nor a listed token"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root = fixture(cases[i].file);
        struct err e = {0};
        set_at(root, cases[i].pointer, cases[i].value);
        cr_expect(eq(int, parse(root, &e), ASSAY_EINPUT), "%s = %s", cases[i].pointer,
                  cases[i].value ? cases[i].value : "(removed)");
        cr_expect(ne(ptr, strstr(e.text, cases[i].message), NULL), "%s = %s: '%s', expected '%s'",
                  cases[i].pointer, cases[i].value ? cases[i].value : "(removed)", e.text,
                  cases[i].message);
        json_decref(root);
    }
}

/* What is no tokenizer at all. */
Test(workloads_tokenizer_bad, other_json_and_no_json) {
    static const char *const texts[] = {"",     "{",    "[]",   "null",          "7",
                                        "\"x\"", "{}",   "{\"model\":null}", "{\"a\":1,\"a\":2}",
                                        "\xFF\xFE{}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct tokenizer *t = NULL;
        struct err e = {0};
        cr_assert(eq(int, tokenizer_parse(texts[i], strlen(texts[i]), "my.json", &t, &e),
                     ASSAY_EINPUT));
        cr_assert(eq(ptr, t, NULL));
        cr_assert(zero(int, strncmp(e.text, "my.json:", 8)), "%s", e.text);
    }
}

/* Cut anywhere, a file is refused at the line and column of its end. */
Test(workloads_tokenizer_bad, truncated_files, .timeout = 60) {
    static const char *const files[] = {"bytes.json", "chars.json"};
    for (size_t f = 0; f < 2; f++) {
        char path[128];
        struct buf b;
        struct err e = {0};
        snprintf(path, sizeof path, "tests/data/tokenizer/%s", files[f]);
        cr_assert(zero(int, buf_read_file(&b, path, 1 << 20, &e)));
        for (size_t n = 0; n + 2 < b.n; n += 97) {
            struct tokenizer *t = NULL;
            cr_assert(eq(int, tokenizer_parse(b.p, n, path, &t, &e), ASSAY_EINPUT), "%zu", n);
            cr_assert(eq(ptr, t, NULL));
            cr_assert(zero(int, strncmp(e.text, path, strlen(path))), "%s", e.text);
        }
        buf_release(&b);
    }
}

Test(workloads_tokenizer_bad, files_that_are_not_there) {
    struct tokenizer *t = NULL;
    struct err e = {0};
    cr_assert(lt(int, tokenizer_load("tests/data/tokenizer/none.json", &t, &e), 0));
    cr_assert(ne(ptr, strstr(e.text, "tests/data/tokenizer/none.json"), NULL), "%s", e.text);
    cr_assert(lt(int, tokenizer_load("tests/data/http", &t, &e), 0)); /* a folder without one */
    cr_assert(ne(ptr, strstr(e.text, "tests/data/http/tokenizer.json"), NULL), "%s", e.text);
}

/* Patterns that take forever are given up with an error; long texts alone are none. */
Test(workloads_tokenizer_bad, patterns_that_give_up, .timeout = 60) {
    static const struct {
        const char *pattern;
        size_t n;
        int rc;
    } cases[] = {
        {"\"(?:a|aa)+(?:b|c)\"", 200, ASSAY_EINPUT},
        {"\"(?:\\\\p{L}|\\\\p{N})+\"", 200000, 0}, /* deeper than the stack of compiled patterns */
    };
    char *text = malloc(200000);
    memset(text, 'a', 200000);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root = fixture("bytes.json");
        struct tokenizer *t = NULL;
        struct err e = {0};
        size_t count;
        set_at(root, "/pre_tokenizer/pretokenizers/0/pattern/Regex", cases[i].pattern);
        char *json = json_dumps(root, 0);
        cr_assert(zero(int, tokenizer_parse(json, strlen(json), "my.json", &t, &e)), "%s", e.text);
        struct tokenizer_work *w = tokenizer_work_new(t);
        cr_assert(eq(int, tokenizer_count(t, w, text, cases[i].n, &count, &e), cases[i].rc), "%zu: %s",
                  i, e.text);
        if (cases[i].rc)
            cr_assert(ne(ptr, strstr(e.text, "gave up"), NULL), "%s", e.text);
        tokenizer_work_free(w);
        tokenizer_free(t);
        free(json);
        json_decref(root);
    }
    free(text);
}

/* The limit on a text is an error, not a wrong count. */
Test(workloads_tokenizer_bad, a_text_above_the_limit) {
    struct tokenizer *t = NULL;
    struct err e = {0};
    size_t count = 7;
    cr_assert(zero(int, tokenizer_load("tests/data/tokenizer/bytes.json", &t, &e)), "%s", e.text);
    struct tokenizer_work *w = tokenizer_work_new(t);
    cr_assert(eq(int, tokenizer_count(t, w, "x", (size_t)TOKENIZER_TEXT_MAX_BYTES + 1, &count, &e),
                 ASSAY_EINPUT));
    cr_assert(eq(sz, count, 0));
    cr_assert(ne(ptr, strstr(e.text, "at most 268435456"), NULL), "%s", e.text);
    tokenizer_work_free(w);
    tokenizer_free(t);
}
