/* Joining and decoding of answers. Truths: RFC 8259 section 7 and its example of U+1D11E; the WHATWG
 * Encoding standard's rule for wrong bytes (Unicode 15, table 3-8); jansson, which decodes what is
 * well formed. */
#include "backends/http/answer.h"
#include "harness/core/rng.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <jansson.h>
#include <string.h>

static void check_decode(const char *raw, const char *want, size_t want_bytes) {
    struct buf out;
    buf_init(&out, 4096);
    buf_puts(&out, "");
    answer_decode(raw, strlen(raw), &out);
    cr_assert(eq(sz, out.n, want_bytes), "%s", raw);
    cr_assert(zero(int, memcmp(out.p, want, want_bytes)), "%s: %s", raw, out.p);
    buf_release(&out);
}
#define DECODES(raw, want) check_decode(raw, want, sizeof want - 1)
#define BAD "\xEF\xBF\xBD"

Test(backends_http_answer, decode) {
    DECODES("", "");
    DECODES("plain \xC3\xA9", "plain \xC3\xA9");
    DECODES("\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t");
    DECODES("\\u00e9\\u20AC", "\xC3\xA9\xE2\x82\xAC");
    DECODES("a\\u0000b", "a\0b");
    DECODES("\\uD834\\uDD1E", "\xF0\x9D\x84\x9E"); /* the RFC's G clef */
    DECODES("\\ud83d", BAD);
    DECODES("\\ude00", BAD);
    DECODES("\\ud83dx\\ude00", BAD "x" BAD);
    DECODES("\\ud83d\\ud83d\\ude00", BAD "\xF0\x9F\x98\x80");
    DECODES("\\ud83d\\n", BAD "\n");
    /* the standard's table of wrong sequences: C0 AF E0 80 BF F0 81 82 41 */
    DECODES("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", BAD BAD BAD BAD BAD BAD BAD BAD "A");
    DECODES("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", BAD BAD BAD BAD BAD BAD BAD BAD "A");
    DECODES("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", BAD BAD BAD BAD BAD "A" BAD BAD "B");
    DECODES("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", BAD BAD BAD BAD "A");
    DECODES("\xE2\x82", BAD);
}

Test(backends_http_answer, a_pair_of_surrogates_cut_between_events_is_whole) {
    struct answer a;
    struct buf out;
    answer_init(&a, 64, 1024);
    buf_init(&out, 1024);
    answer_add(&a, "ab\\ud83d", 8);
    answer_add(&a, "\\ude00c", 7);
    answer_decode(a.raw.p, a.raw.n, &out);
    cr_assert(eq(str, out.p, "ab\xF0\x9F\x98\x80"
                             "c"));
    cr_assert(not(a.lost));
    buf_release(&out);
    answer_release(&a);
}

Test(backends_http_answer, what_does_not_fit_is_told_and_never_cut_within_a_fragment) {
    struct answer a;
    answer_init(&a, 1024, 10);
    answer_add(&a, "12345678", 8);
    answer_add(&a, "\\u20ac", 6);
    answer_add(&a, "9", 1); /* would leave a gap */
    cr_assert(a.lost);
    cr_assert(eq(str, a.raw.p, "12345678"));
    answer_clear(&a);
    cr_assert(not(a.lost));
    answer_add(&a, "9", 1);
    cr_assert(eq(str, a.raw.p, "9"));
    answer_lose(&a);
    cr_assert(a.lost);
    answer_release(&a);
}

/* The usual answer allocates nothing after init. */
Test(backends_http_answer, storage_is_made_at_init) {
    struct answer a;
    answer_init(&a, 4096, 1 << 20);
    const char *p = a.raw.p;
    for (int i = 0; i < 1000; i++)
        answer_add(&a, "toke", 4);
    cr_assert(eq(ptr, (void *)a.raw.p, (void *)p));
    answer_clear(&a);
    answer_add(&a, "x", 1);
    cr_assert(eq(ptr, (void *)a.raw.p, (void *)p));
    answer_release(&a);
}

/* What jansson reads from a string, in whatever fragments it is joined, is what is decoded; and what
 * is put into a request is read back as the same text. */
Test(backends_http_answer, agrees_with_a_json_parser) {
    static const char *const parts[] = {"a",          "\xC3\xA9",       "\\n",     "\\\"",
                                        "\\\\",       "\\ud83d\\ude00", "\\u0041", "\xF0\x9F\x98\x80",
                                        "\\/",        "\\uffff",        " ",       "\\u00e9",
                                        "\xE2\x80\xA8"};
    struct rng rng;
    rng_seed(&rng, 3);
    for (int round = 0; round < 2000; round++) {
        struct answer a;
        struct buf quoted, text, again;
        answer_init(&a, 0, 4096);
        buf_init(&quoted, 4096);
        buf_init(&text, 4096);
        buf_init(&again, 4096);
        buf_putc(&quoted, '"');
        for (uint64_t n = rng_below(&rng, 20) + 1; n; n--) {
            const char *s = parts[rng_below(&rng, sizeof parts / sizeof *parts)];
            buf_puts(&quoted, s);
            size_t cut = rng_below(&rng, strlen(s) + 1);
            answer_add(&a, s, cut);
            answer_add(&a, s + cut, strlen(s) - cut);
        }
        buf_putc(&quoted, '"');
        json_t *want = json_loadb(quoted.p, quoted.n, JSON_DECODE_ANY, NULL);
        cr_assert(ne(ptr, want, NULL));
        answer_decode(a.raw.p, a.raw.n, &text);
        cr_assert(eq(str, text.p, (char *)(uintptr_t)json_string_value(want)));
        buf_putc(&again, '"');
        answer_put_escaped(a.raw.p, a.raw.n, &again);
        buf_putc(&again, '"');
        cr_assert(eq(str, again.p, quoted.p));
        json_decref(want);
        buf_release(&quoted);
        buf_release(&text);
        buf_release(&again);
        answer_release(&a);
    }
}

Test(backends_http_answer, wrong_parts_can_stand_in_a_request) {
    struct buf out;
    buf_init(&out, 256);
    answer_put_escaped("a\\ud83d\\n\xFF\\u00e9", 16, &out);
    cr_assert(eq(str, out.p, "a\\ufffd\\n\\ufffd\\u00e9"));
    buf_release(&out);
}
