/* Canonical JSON: RFC 8785's own examples, the published number corpus, every power of two, and the
 * profile's refusals. */
#include "results/jcs.h"
#include "tests/results/vectors.h"

#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>

static char *canon(const json_t *v) {
    struct buf b;
    struct err e = {0};
    buf_init(&b, 1 << 20);
    if (jcs_encode(v, &b, &e)) {
        buf_release(&b);
        return NULL;
    }
    return buf_take(&b, NULL);
}

/* As RFC 8785 sees a document: every number a double. */
static json_t *rfc_load(const char *text) {
    return json_loads(
        text, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL,
        NULL);
}

static const char *number(double d) {
    static char text[32];
    struct err e = {0};
    cr_assert(zero(int, jcs_number(d, text, &e)), "%s", e.text);
    return text;
}

static void bits_are(uint64_t bits, const char *want) {
    double d;
    memcpy(&d, &bits, sizeof d);
    cr_assert(eq(str, number(d), want), "%016llx", (unsigned long long)bits);
}

/* Golden: RFC 8785 appendix B. */
Test(results_jcs, numbers_of_the_rfc) {
    bits_are(0x0000000000000000, "0");
    bits_are(0x8000000000000000, "0");
    bits_are(0x0000000000000001, "5e-324");
    bits_are(0x8000000000000001, "-5e-324");
    bits_are(0x7fefffffffffffff, "1.7976931348623157e+308");
    bits_are(0xffefffffffffffff, "-1.7976931348623157e+308");
    bits_are(0x4340000000000000, "9007199254740992");
    bits_are(0xc340000000000000, "-9007199254740992");
    bits_are(0x4430000000000000, "295147905179352830000");
    bits_are(0x44b52d02c7e14af5, "9.999999999999997e+22");
    bits_are(0x44b52d02c7e14af6, "1e+23");
    bits_are(0x44b52d02c7e14af7, "1.0000000000000001e+23");
    bits_are(0x444b1ae4d6e2ef4e, "999999999999999700000");
    bits_are(0x444b1ae4d6e2ef4f, "999999999999999900000");
    bits_are(0x444b1ae4d6e2ef50, "1e+21");
    bits_are(0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7");
    bits_are(0x3eb0c6f7a0b5ed8d, "0.000001");
    bits_are(0x41b3de4355555553, "333333333.3333332");
    bits_are(0x41b3de4355555554, "333333333.33333325");
    bits_are(0x41b3de4355555555, "333333333.3333333");
    bits_are(0x41b3de4355555556, "333333333.3333334");
    bits_are(0x41b3de4355555557, "333333333.33333343");
    bits_are(0xbecbf647612f3696, "-0.0000033333333333333333");
    bits_are(0x43143ff3c1cb0959, "1424953923781206.2");
}

/* The nearest 17-digit text lies below, the shortest above: printf loops give a digit too many. */
Test(results_jcs, a_power_of_two_whose_shortest_text_lies_above) {
    bits_are(0x0060000000000000, "7.120236347223045e-307");
    bits_are(0x0100000000000000, "7.291122019556398e-304");
}

Test(results_jcs, integers_are_exact_to_the_edge) {
    bits_are(0x433fffffffffffff, "9007199254740991");
    bits_are(0x4340000000000001, "9007199254740994");
    cr_assert(eq(str, number(1e15), "1000000000000000"));
    cr_assert(eq(str, number(-42), "-42"));
    cr_assert(eq(str, number(1e20), "100000000000000000000"));
    for (int64_t i = -3000; i < 3000; i++) {
        char want[32];
        snprintf(want, sizeof want, "%lld", (long long)i);
        cr_assert(eq(str, number((double)i), want));
    }
}

Test(results_jcs, numbers_that_json_has_not) {
    char out[32];
    struct err e = {0};
    cr_assert(eq(int, jcs_number((double)NAN, out, &e), ASSAY_EINPUT));
    cr_assert(eq(int, jcs_number((double)INFINITY, out, &e), ASSAY_EINPUT));
    cr_assert(eq(int, jcs_number(-(double)INFINITY, out, &e), ASSAY_EINPUT));
}

Test(results_jcs, neither_locale_nor_rounding_mode_matters) {
    fesetround(FE_UPWARD);
    cr_assert(eq(str, number(0.1), "0.1"));
    cr_assert(eq(str, number(7.120236347223045e-307), "7.120236347223045e-307"));
    cr_assert(eq(int, fegetround(), FE_UPWARD), "restored");
    fesetround(FE_TONEAREST);
    static const char *const comma[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"};
    for (size_t i = 0; i < 3; i++)
        if (setlocale(LC_ALL, comma[i]))
            break;
    cr_assert(eq(str, number(333333333.33333325), "333333333.33333325"));
    cr_assert(eq(str, number(1.5e-300), "1.5e-300"));
}

/* Property: the text reads back, and no shorter one does (a shorter text would have to be the
 * nearest or its neighbour above at one digit less; both are tried here independently of the code).
 */
Test(results_jcs, every_power_of_two_reads_back_and_is_shortest, .timeout = 60) {
    int traps = 0;
    for (int exp2 = -1074; exp2 <= 1023; exp2++) {
        double d = ldexp(1, exp2);
        const char *text = number(d);
        cr_assert(strtod(text, NULL) == d, "%s", text);
        int digits = 0, significant = 0;
        for (const char *p = text; *p && *p != 'e'; p++) {
            if (*p < '0' || *p > '9' || (*p == '0' && !digits))
                continue;
            digits++;
            if (*p != '0')
                significant = digits;
        }
        if (significant > 1) { /* the two neighbours with one digit less do not read back */
            char lower[40], mantissa[40];
            snprintf(lower, sizeof lower, "%.*e", significant - 2, d);
            cr_assert(strtod(lower, NULL) != d, "%s against %s", text, lower);
            long double up = strtold(lower, NULL), unit;
            snprintf(mantissa, sizeof mantissa, "1e%ld",
                     strtol(strchr(lower, 'e') + 1, NULL, 10) - (significant - 2));
            unit = strtold(mantissa, NULL);
            snprintf(lower, sizeof lower, "%.*Le", significant - 2, up + unit);
            cr_assert(strtod(lower, NULL) != d, "%s against %s", text, lower);
        }
        char naive[40];
        for (int p = 0; p < 17; p++) {
            snprintf(naive, sizeof naive, "%.*e", p, d);
            if (strtod(naive, NULL) == d) {
                traps += p + 1 > significant;
                break;
            }
        }
    }
    /* Golden: certification vectors, 46 of the 2,047 powers of two or the smallest subnormal. */
    cr_assert(eq(int, traps, 46), "the trap is really met");
}

/* The doubles of cyberphone/json-canonicalization, testdata/README.md: edge cases, 2,000 neighbours
 * from the smallest normal upward, then a SHA-256 chain read as little-endian doubles. The edge
 * cases are made here from their rules: +/- 10^k/3 (some of them a few units in the last place off,
 * since their author reached them by repeated multiplication), 5e-k, 5.0…06e-6, neighbours of 1, of
 * 0.3 and of the limits. */
struct corpus {
    double edge[168];
    int n, i;
    unsigned char block[32];
    int used; /* doubles taken from block */
};

static void edge_bits(struct corpus *c, uint64_t bits) {
    memcpy(&c->edge[c->n++], &bits, sizeof bits);
}

static void edge_run(struct corpus *c, uint64_t bits, int n) {
    for (int i = 0; i < n; i++)
        edge_bits(c, bits + (uint64_t)i);
}

static void corpus_init(struct corpus *c) {
    static const signed char ulps[50] = {0, 0, 1, 1, 1, 2, 1, 1, 3,  1,
                                         2, 2, 1, 1, 1, 0, 0, 0, -1, [49] = 1};
    const uint64_t sign = UINT64_C(1) << 63;
    char text[80];
    *c = (struct corpus){.used = 4};
    for (uint64_t i = 0; i < 4; i++)
        edge_bits(c, (i & 1 ? sign : 0) | i >> 1);
    for (int negative = 1; negative >= 0; negative--)
        for (int i = 0; i < 50; i++) {
            snprintf(text, sizeof text, "3.3333333333333333333333333333333333333333e%d", 21 - i);
            double d = strtod(text, NULL);
            uint64_t bits;
            memcpy(&bits, &d, sizeof d);
            edge_bits(c, (bits + (uint64_t)(int64_t)ulps[i]) | (negative ? sign : 0));
        }
    c->edge[c->n++] = 10;
    for (int i = 0; i < 10; i++) {
        snprintf(text, sizeof text, "5e-%d", i);
        c->edge[c->n++] = strtod(text, NULL);
    }
    for (int zeros = 1; zeros < 15; zeros++) {
        snprintf(text, sizeof text, "5.%0*d6e-6", zeros, 0);
        c->edge[c->n++] = strtod(text, NULL);
    }
    c->edge[c->n++] = 5e-6;
    c->edge[c->n++] = 1;
    c->edge[c->n++] = -1;
    static const int below_one[] = {-6, -5, 6, 5, 4, 2, -1, -1, 1, 1}; /* units below +/-1 */
    for (int i = 0; i < 10; i++)
        edge_bits(c, UINT64_C(0x3ff0000000000000) - (uint64_t)abs(below_one[i]) +
                         (below_one[i] < 0 ? sign : 0));
    edge_run(c, 0x3fd3333333333332, 3);
    edge_bits(c, 0x0010000000000000);
    edge_bits(c, 0x000ffffffffffffd);
    edge_bits(c, 0x000fffffffffffff);
    c->edge[c->n++] = 0x1.fffffffffffffp1023;
    c->edge[c->n++] = -0x1.fffffffffffffp1023;
    c->edge[c->n++] = 0x1p53;
    c->edge[c->n++] = -0x1p53;
    c->edge[c->n++] = 0x1p68;
    edge_run(c, 0x44b52d02c7e14af5, 3);
    edge_run(c, 0x444b1ae4d6e2ef4e, 3);
    edge_run(c, 0x3eb0c6f7a0b5ed8c, 2);
    edge_run(c, 0x41b3de4355555553, 5);
    edge_bits(c, 0xbecbf647612f3696);
    c->edge[c->n++] = 1424953923781206.2;
    cr_assert(eq(int, c->n, 168));
}

static double corpus_next(struct corpus *c) {
    double d;
    int i = c->i++;
    if (i < c->n)
        return c->edge[i];
    if (i < c->n + 2000) {
        uint64_t bits = UINT64_C(0x0010000000000000) + (uint64_t)(i - c->n);
        memcpy(&d, &bits, sizeof d);
        return d;
    }
    do {
        if (c->used == 4) {
            sha256(c->block, sizeof c->block, c->block);
            c->used = 0;
        }
        memcpy(&d, c->block + 8 * c->used++, sizeof d);
    } while (d == 0 || !isfinite(d));
    return d;
}

static void corpus_is(long lines, const char *want) {
    struct corpus c;
    struct sha256_stream *s = sha256_new();
    unsigned char digest[32];
    corpus_init(&c);
    for (long i = 0; i < lines; i++) {
        double d = corpus_next(&c);
        uint64_t bits;
        char line[64];
        memcpy(&bits, &d, sizeof d);
        int n = snprintf(line, sizeof line, "%llx,%s\n", (unsigned long long)bits, number(d));
        sha256_add(s, line, (size_t)n);
    }
    sha256_finish(s, digest);
    cr_assert(eq(str, hex32(digest), want), "%ld lines", lines);
}

/* Golden: the table of testdata/README.md. ASSAY_LONG_TESTS=1 takes the million-line value too. */
Test(results_jcs, the_published_number_corpus, .timeout = 300) {
    corpus_is(1000, "be18b62b6f69cdab33a7e0dae0d9cfa869fda80ddc712221570f9f40a5878687");
    corpus_is(10000, "b9f7a8e75ef22a835685a52ccba7f7d6bdc99e34b010992cbc5864cd12be6892");
    corpus_is(100000, "22776e6d4b49fa294a0d0f349268e5c28808fe7e0cb2bcbe28f63894e494d4c7");
    if (getenv("ASSAY_LONG_TESTS"))
        corpus_is(1000000, "49415fee2c56c77864931bd3624faad425c3c577d6d74e89a83bc725506dad16");
}

/* Golden: RFC 8785 section 3.2.3 (sorting) and 3.2.2 (serialisation). */
Test(results_jcs, documents_of_the_rfc) {
    json_t *v = rfc_load("{\"\\u20ac\":\"Euro Sign\",\"\\r\":\"Carriage Return\","
                         "\"\\ufb33\":\"Hebrew Letter Dalet With Dagesh\",\"1\":\"One\","
                         "\"\\ud83d\\ude00\":\"Emoji: Grinning Face\",\"\\u0080\":\"Control\","
                         "\"\\u00f6\":\"Latin Small Letter O With Diaeresis\"}");
    char *s = canon(v);
    cr_assert(eq(str, s,
                 "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\xc2\x80\":\"Control\","
                 "\"\xc3\xb6\":\"Latin Small Letter O With Diaeresis\","
                 "\"\xe2\x82\xac\":\"Euro Sign\","
                 "\"\xf0\x9f\x98\x80\":\"Emoji: Grinning Face\","
                 "\"\xef\xac\xb3\":\"Hebrew Letter Dalet With Dagesh\"}"));
    free(s);
    json_decref(v);
    v = rfc_load("{\"numbers\":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"
                 "\"string\":\"\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\\\\"\\/\","
                 "\"literals\":[null,true,false]}");
    s = canon(v);
    cr_assert(eq(str, s,
                 "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,"
                 "1e-27],\"string\":\"\xe2\x82\xac$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}"));
    free(s);
    json_decref(v);
}

static int parse(const char *text, size_t n, struct err *e) {
    json_t *v;
    int rc = jcs_parse(text, n, "x.json", &v, e);
    json_decref(v);
    return rc;
}

Test(results_jcs, the_profile_refuses) {
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"{\"a\":1,\"a\":2}", "duplicate"},
        {"{\"a\":1}x", "x.json:1:8"},
        {"\"\\ud800\"", "x.json:1"},
        {"\"\xff\"", "x.json:1"},
        {"\xef\xbb\xbf{}", "x.json:1"},
        {"1e400", "x.json:1"},
        {"[NaN]", "x.json:1:4"},
        {"{\"n\":{\"m\":[0,9007199254740993]}}", "/n/m/1"},
        {"{\"n\":-9007199254740992}", "/n"},
        {"{\"n\":9007199254740992.0}", "/n"},
        {"{\"n\":1e21}", "/n"},
        {"9223372036854775808", "x.json:1"},
        {"", "x.json:1"},
        {"{\"a\":1", "x.json:1"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct err e = {0};
        cr_assert(eq(int, parse(wrong[i].text, strlen(wrong[i].text), &e), ASSAY_EINPUT), "%s",
                  wrong[i].text);
        cr_assert(strstr(e.text, wrong[i].says) != NULL, "'%s' in '%s'", wrong[i].says, e.text);
    }
    struct err e = {0};
    static const char edge[] = "{\"n\":[9007199254740991,-9007199254740991,0.5]}";
    cr_assert(zero(int, parse(edge, sizeof edge - 1, &e)), "%s", e.text);
}

Test(results_jcs, limits_hold_for_parser_and_encoder) {
    struct buf b;
    struct err e = {0};
    buf_init(&b, 4 << 20);
    for (int depth = 64; depth <= 65; depth++) { /* 64 nested arrays, and one too many */
        buf_clear(&b);
        for (int i = 0; i < depth; i++)
            buf_putc(&b, '[');
        for (int i = 0; i < depth; i++)
            buf_putc(&b, ']');
        cr_assert(eq(int, parse(b.p, b.n, &e), depth == 64 ? 0 : ASSAY_EINPUT));
        json_t *v = rfc_load(b.p);
        char *s = canon(v);
        cr_assert(eq(int, s != NULL, depth == 64));
        free(s);
        json_decref(v);
    }
    for (int members = 10000; members <= 10001; members++) {
        buf_clear(&b);
        for (int i = 0; i < members; i++)
            buf_printf(&b, "%c\"%d\":0", i ? ',' : '{', i);
        buf_putc(&b, '}');
        cr_assert(eq(int, parse(b.p, b.n, &e), members == 10000 ? 0 : ASSAY_EINPUT));
        json_t *v = rfc_load(b.p);
        char *s = canon(v);
        cr_assert(eq(int, s != NULL, members == 10000));
        free(s);
        json_decref(v);
    }
    for (int name = 255; name <= 256; name++) {
        buf_clear(&b);
        buf_puts(&b, "{\"");
        for (int i = 0; i < name; i++)
            buf_putc(&b, 'n');
        buf_puts(&b, "\":0}");
        cr_assert(eq(int, parse(b.p, b.n, &e), name == 255 ? 0 : ASSAY_EINPUT));
    }
    buf_clear(&b);
    while (b.n <= 1 << 20)
        buf_putc(&b, ' ');
    buf_putc(&b, '1');
    cr_assert(eq(int, parse(b.p, b.n, &e), ASSAY_EINPUT), "1 MiB");
    buf_clear(&b);
    for (int i = 0; i < 200000; i++)
        buf_putc(&b, '[');
    cr_assert(eq(int, parse(b.p, b.n, &e), ASSAY_EINPUT), "no stack overflow");
    buf_release(&b);
}

Test(results_jcs, the_encoder_refuses_what_a_tree_can_hold_but_json_cannot) {
    struct err e = {0};
    struct buf b;
    buf_init(&b, 1000);
    json_t *bad = json_string_nocheck("\xed\xa0\x80"), *o = json_object();
    cr_assert(eq(int, jcs_encode(bad, &b, &e), ASSAY_EINPUT));
    json_decref(bad);
    json_object_set_new(o, "seed", json_integer(INT64_C(9007199254740992)));
    buf_clear(&b);
    cr_assert(eq(int, jcs_encode(o, &b, &e), ASSAY_EINPUT));
    cr_assert(strstr(e.text, "/seed") && strstr(e.text, "decimal string"), "%s", e.text);
    cr_assert(eq(int, jcs_encode(NULL, &b, &e), ASSAY_EINPUT));
    json_decref(o);
    json_t *big = json_array();
    for (int i = 0; i < 1000; i++)
        json_array_append_new(big, json_integer(i));
    buf_clear(&b);
    cr_assert(eq(int, jcs_encode(big, &b, &e), ASSAY_EINPUT), "the buffer's ceiling");
    json_decref(big);
    buf_release(&b);
}

Test(results_jcs, canonical_text_is_a_fixed_point) {
    static const char *const text[] = {
        "{\"b\":[1,2.50,{\"z\":null,\"a\":[]}],\"a\":\"\\u0041\\n\"}",
        "[1e-7,0.1,-0,1.0,123456.789,\"\\u007f\\u2028\",{}]",
        "\"\"",
        "{\"\\ufb33\":1,\"\\ud83d\\ude00\":2,\"\\uffff\":3,\"\\ue000\":4,\"\\ud7ff\":5}",
    };
    for (size_t i = 0; i < sizeof text / sizeof text[0]; i++) {
        json_t *v, *w;
        struct err e = {0};
        cr_assert(zero(int, jcs_parse(text[i], strlen(text[i]), "x", &v, &e)), "%s", e.text);
        char *once = canon(v);
        cr_assert(zero(int, jcs_parse(once, strlen(once), "x", &w, &e)), "%s", e.text);
        char *twice = canon(w);
        cr_assert(eq(str, once, twice));
        free(once);
        free(twice);
        json_decref(v);
        json_decref(w);
    }
}

Test(results_jcs, digest_is_of_the_canonical_bytes) {
    json_t *v = rfc_load("{ \"b\" : 1.0, \"a\" : [] }");
    unsigned char got[32], want[32];
    struct err e = {0};
    cr_assert(zero(int, jcs_sha256(v, got, &e)));
    sha256("{\"a\":[],\"b\":1}", 14, want);
    cr_assert(eq(str, hex32(got), hex32(want)));
    json_decref(v);
}

/* ---- the published vectors ---- */

Test(results_jcs, vectors_numbers) {
    json_t *list = vectors_get("jcs_numbers"), *v;
    size_t i;
    json_array_foreach(list, i, v)
        cr_assert(eq(str, number(vec_double(vec_str(v, "ieee754"))), vec_str(v, "json")));
    list = vectors_get("jcs_numbers_reject");
    json_array_foreach(list, i, v) {
        char out[32];
        cr_assert(eq(int, jcs_number(vec_double(vec_str(v, "ieee754")), out, NULL), ASSAY_EINPUT));
    }
    list = json_object_get(vectors_get("jcs_numbers_power_of_two_trap"), "items");
    cr_assert(eq(sz, json_array_size(list), 46));
    json_array_foreach(list, i, v)
        cr_assert(eq(str, number(vec_double(vec_str(v, "ieee754"))), vec_str(v, "json")));
}

Test(results_jcs, vectors_number_corpus, .timeout = 120) {
    json_t *list = json_object_get(vectors_get("jcs_number_corpus"), "hashes"), *v;
    size_t i;
    json_array_foreach(list, i, v) {
        long lines = (long)json_integer_value(json_object_get(v, "lines"));
        if (lines <= 100000 || getenv("ASSAY_LONG_TESTS"))
            corpus_is(lines, vec_str(v, "sha256"));
    }
}

Test(results_jcs, vectors_documents) {
    json_t *list = vectors_get("jcs_documents"), *v;
    size_t i, n;
    json_array_foreach(list, i, v) {
        json_t *doc = rfc_load(vec_str(v, "input"));
        char *s = canon(doc);
        cr_assert(s != NULL, "%s", vec_str(v, "name"));
        unsigned char *want = vec_unhex(vec_str(v, "canonical_hex"), &n), digest[32];
        cr_assert(strlen(s) == n && memcmp(s, want, n) == 0, "%s: %s", vec_str(v, "name"), s);
        cr_assert(zero(int, jcs_sha256(doc, digest, NULL)));
        cr_assert(eq(str, hex32(digest), vec_str(v, "sha256")));
        json_decref(doc);
        /* and through our own parser, where the profile allows the document */
        struct err e = {0};
        const char *input = vec_str(v, "input");
        if (strcmp(vec_str(v, "name"), "numbers") == 0) {
            cr_assert(eq(int, jcs_parse(input, strlen(input), "x", &doc, &e), ASSAY_EINPUT));
        } else {
            cr_assert(zero(int, jcs_parse(input, strlen(input), "x", &doc, &e)), "%s", e.text);
            char *again = canon(doc);
            cr_assert(eq(str, again, s));
            free(again);
            json_decref(doc);
        }
        free(s);
        free(want);
    }
}

Test(results_jcs, vectors_reject) {
    json_t *list = vectors_get("jcs_reject"), *v;
    size_t i, n;
    json_array_foreach(list, i, v) {
        unsigned char *text = vec_unhex(vec_str(v, "input_hex"), &n);
        struct err e = {0};
        cr_assert(eq(int, parse((const char *)text, n, &e), ASSAY_EINPUT), "%s", vec_str(v, "why"));
        free(text);
    }
}
