/* DSSE: the protocol's own example, round trip, refusals, mutations, the published vectors. */
#include "results/dsse.h"
#include "results/jcs.h"
#include "tests/results/vectors.h"

#include <stdio.h>

static char *pae_of(const char *type, const void *body, size_t n, size_t *out_n) {
    struct buf b;
    buf_init(&b, 1 << 16);
    dsse_pae(type, strlen(type), body, n, &b);
    cr_assert(zero(int, buf_check(&b, "pae", NULL)));
    return buf_take(&b, out_n);
}

/* Golden: secure-systems-lab/dsse, protocol.md. */
Test(results_dsse, pae_of_the_protocol) {
    size_t n;
    char *p = pae_of("http://example.com/HelloWorld", "hello world", 11, &n);
    cr_assert(eq(str, p, "DSSEv1 29 http://example.com/HelloWorld 11 hello world"));
    free(p);
    p = pae_of("x/\xc3\xa9", "\x00\xff\n", 3, &n);
    cr_assert(n == 19 && memcmp(p, "DSSEv1 4 x/\xc3\xa9 3 \x00\xff\n", 19) == 0,
              "bytes, not characters");
    free(p);
}

static struct secret_key *key_number(unsigned char i) {
    unsigned char seed[32];
    struct secret_key *k;
    memset(seed, i, sizeof seed);
    cr_assert(zero(int, secret_key_from_seed(seed, &k, NULL)));
    return k;
}

static int parse(const char *text, struct dsse *d, struct err *e) {
    return dsse_parse(text, strlen(text), "e.json", d, e);
}

static char *print_signed(const char *payload, struct secret_key **k, int n) {
    struct dsse_signature sig[DSSE_SIGNATURES_MAX];
    struct buf b;
    struct err e = {0};
    for (int i = 0; i < n; i++)
        cr_assert(
            zero(int, dsse_sign(DSSE_PAYLOAD_TYPE, payload, strlen(payload), k[i], &sig[i], &e)),
            "%s", e.text);
    buf_init(&b, 1 << 22);
    cr_assert(zero(int, dsse_print(DSSE_PAYLOAD_TYPE, payload, strlen(payload), sig, n, &b, &e)),
              "%s", e.text);
    return buf_take(&b, NULL);
}

Test(results_dsse, sign_print_parse_verify) {
    struct secret_key *k[3] = {key_number(1), key_number(2), key_number(3)};
    char *text = print_signed("{\"a\":1}", k, 2);
    struct dsse d;
    struct err e = {0};
    cr_assert(zero(int, parse(text, &d, &e)), "%s", e.text);
    cr_assert(eq(str, d.payload_type, DSSE_PAYLOAD_TYPE));
    cr_assert(eq(str, d.payload.p, "{\"a\":1}"));
    cr_assert(eq(int, d.nsig, 2));
    cr_assert(eq(str, d.sig[1].keyid, secret_key_public(k[1])->keyid));
    struct public_key trusted[4] = {*secret_key_public(k[2]), *secret_key_public(k[1]),
                                    *secret_key_public(k[0]), *secret_key_public(k[1])};
    bool matched[4];
    int distinct;
    cr_assert(zero(int, dsse_verify(&d, trusted, 4, matched, &distinct, &e)));
    cr_assert(eq(int, distinct, 2), "a key listed twice counts once");
    cr_assert(matched[1] && matched[2] && matched[3] && !matched[0]);
    cr_assert(zero(int, dsse_verify(&d, trusted, 1, matched, &distinct, &e)));
    cr_assert(eq(int, distinct, 0));
    cr_assert(zero(int, dsse_verify(&d, NULL, 0, NULL, &distinct, &e)));
    /* what was printed is canonical JSON */
    json_t *v;
    struct buf b;
    buf_init(&b, 1 << 16);
    cr_assert(zero(int, jcs_parse(text, strlen(text), "e", &v, &e)));
    cr_assert(zero(int, jcs_encode(v, &b, &e)));
    cr_assert(eq(str, b.p, text));
    json_decref(v);
    buf_release(&b);
    dsse_release(&d);
    free(text);
    for (int i = 0; i < 3; i++)
        secret_key_free(k[i]);
}

Test(results_dsse, an_empty_payload_can_be_signed) {
    struct secret_key *k = key_number(1);
    char *text = print_signed("", &k, 1);
    struct dsse d;
    struct err e = {0};
    bool matched;
    int distinct;
    cr_assert(zero(int, parse(text, &d, &e)), "%s", e.text);
    cr_assert(d.payload.n == 0 && d.payload.p != NULL);
    cr_assert(zero(int, dsse_verify(&d, secret_key_public(k), 1, &matched, &distinct, &e)));
    cr_assert(matched);
    dsse_release(&d);
    free(text);
    secret_key_free(k);
}

#define SIG                                                                                        \
    "\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==\""

Test(results_dsse, malformed_envelopes_are_refused_with_their_place) {
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"", "e.json:1"},
        {"[]", "expected an object"},
        {"{\"payload\":\"\",\"signatures\":[{\"sig\":" SIG "}]}", "/payloadType"},
        {"{\"payload\":\"\",\"payloadType\":7,\"signatures\":[{\"sig\":" SIG "}]}", "/payloadType"},
        {"{\"payloadType\":\"t\",\"signatures\":[{\"sig\":" SIG "}]}", "/payload"},
        {"{\"payload\":\"a\",\"payloadType\":\"t\",\"signatures\":[{\"sig\":" SIG "}]}",
         "/payload"},
        {"{\"payload\":\"\",\"payloadType\":\"t\"}", "/signatures"},
        {"{\"payload\":\"\",\"payloadType\":\"t\",\"signatures\":[]}", "/signatures"},
        {"{\"payload\":\"\",\"payloadType\":\"t\",\"signatures\":[4]}", "/signatures/0/sig"},
        {"{\"payload\":\"\",\"payloadType\":\"t\",\"signatures\":[{\"sig\":" SIG ",\"keyid\":4}]}",
         "/signatures/0/keyid"},
        {"{\"payload\":\"\",\"payloadType\":\"t\",\"signatures\":[{\"sig\":" SIG
         "},{\"sig\":\"AAAA\"}]}",
         "/signatures/1/sig"},
        {"{\"payload\":\"\",\"payload\":\"\",\"payloadType\":\"t\",\"signatures\":[{\"sig\":" SIG
         "}]}",
         "duplicate"},
        {"{\"payload\":\"\",\"payloadType\":\"t\",\"signatures\":[{\"sig\":" SIG "}]}x",
         "e.json:1"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct dsse d;
        struct err e = {0};
        cr_assert(eq(int, parse(wrong[i].text, &d, &e), ASSAY_EINPUT), "%s", wrong[i].text);
        cr_assert(strstr(e.text, wrong[i].says) != NULL, "%s: %s", wrong[i].text, e.text);
        cr_assert(d.payload.p == NULL);
    }
}

Test(results_dsse, limits_hold) {
    struct buf b;
    struct dsse d;
    struct err e = {0};
    buf_init(&b, 8 << 20);
    for (int n = 16; n <= 17; n++) {
        buf_clear(&b);
        buf_puts(&b, "{\"payload\":\"\",\"payloadType\":\"t\",\"signatures\":[");
        for (int i = 0; i < n; i++)
            buf_printf(&b, "%s{\"sig\":" SIG "}", i ? "," : "");
        buf_puts(&b, "]}");
        cr_assert(eq(int, parse(b.p, &d, &e), n == 16 ? 0 : ASSAY_EINPUT), "%d signatures", n);
        dsse_release(&d);
    }
    for (int over = 0; over < 2;
         over++) { /* 1 MiB is not a multiple of 3: 1048576 = 3*349525 + 1 */
        buf_clear(&b);
        buf_puts(&b, "{\"payload\":\"");
        for (int i = 0; i < 349525; i++)
            buf_puts(&b, "AAAA");
        buf_puts(&b, over ? "AAA" : "AA");
        buf_puts(&b, "\",\"payloadType\":\"t\",\"signatures\":[{\"sig\":" SIG "}]}");
        cr_assert(eq(int, parse(b.p, &d, &e), over ? ASSAY_EINPUT : 0), "1 MiB + %d", over);
        dsse_release(&d);
    }
    buf_clear(&b);
    while (b.n < 3 << 20)
        buf_puts(&b, "                                ");
    cr_assert(eq(int, parse(b.p, &d, &e), ASSAY_EINPUT));
    char type[200];
    memset(type, 't', sizeof type - 1);
    type[sizeof type - 1] = '\0';
    buf_clear(&b);
    buf_printf(&b, "{\"payload\":\"\",\"payloadType\":\"%s\",\"signatures\":[{\"sig\":" SIG "}]}",
               type);
    cr_assert(eq(int, parse(b.p, &d, &e), ASSAY_EINPUT));
    buf_release(&b);
}

Test(results_dsse, unknown_members_are_never_read) {
    struct secret_key *k = key_number(1);
    char *text = print_signed("{}", &k, 1);
    struct buf b;
    struct dsse d;
    struct err e = {0};
    bool matched;
    int distinct;
    buf_init(&b, 1 << 16);
    buf_printf(&b, "{\"trusted\":true,\"payload2\":[1],%s", text + 1);
    cr_assert(zero(int, parse(b.p, &d, &e)), "%s", e.text);
    cr_assert(zero(int, dsse_verify(&d, secret_key_public(k), 1, &matched, &distinct, &e)));
    cr_assert(matched);
    dsse_release(&d);
    buf_release(&b);
    free(text);
    secret_key_free(k);
}

/* Property: one byte changed anywhere either breaks the envelope (refused, or nobody signed it) or
 * changes nothing that counts: payload, type and the set of keys stay. */
static void mutations(const char *text, const struct public_key *keys, int nkeys, size_t step) {
    struct dsse d, m;
    struct err e = {0};
    bool matched[4];
    int full, distinct;
    size_t n = strlen(text), refused = 0, unsigned_ = 0, same = 0;
    cr_assert(zero(int, parse(text, &d, &e)), "%s", e.text);
    cr_assert(zero(int, dsse_verify(&d, keys, nkeys, matched, &full, &e)));
    cr_assert(eq(int, full, nkeys));
    char *copy = strdup(text);
    for (size_t i = 0; i < n; i += step) {
        for (unsigned k = 1; k < 256; k = k * 3 + 1 + (unsigned)i % 3) {
            copy[i] = (char)(text[i] ^ (int)k);
            if (dsse_parse(copy, n, "m", &m, &e)) {
                refused++;
                continue;
            }
            cr_assert(zero(int, dsse_verify(&m, keys, nkeys, matched, &distinct, &e)));
            bool payload_same = m.payload.n == d.payload.n &&
                                memcmp(m.payload.p, d.payload.p, d.payload.n) == 0 &&
                                strcmp(m.payload_type, d.payload_type) == 0;
            if (distinct > 0)
                cr_assert(payload_same, "byte %zu: signed, yet another payload", i);
            if (!payload_same)
                cr_assert(eq(int, distinct, 0), "byte %zu", i);
            cr_assert(le(int, distinct, full));
            *(distinct == full ? &same : &unsigned_) += 1;
            dsse_release(&m);
        }
        copy[i] = text[i];
    }
    cr_assert(refused > 0 && unsigned_ > 0 && same > 0, "all three kinds are met");
    free(copy);
    dsse_release(&d);
}

Test(results_dsse, single_byte_mutations_of_a_small_envelope, .timeout = 120) {
    struct secret_key *k[2] = {key_number(1), key_number(2)};
    struct public_key keys[2] = {*secret_key_public(k[0]), *secret_key_public(k[1])};
    char *text = print_signed("{\"verdict\":\"VALID\"}", k, 2);
    mutations(text, keys, 2, 1);
    free(text);
    secret_key_free(k[0]);
    secret_key_free(k[1]);
}

/* ---- the published vectors ---- */

static struct public_key vec_key(const char *name) {
    struct public_key k;
    const char *pem = vec_str(json_object_get(vectors_get("keys"), name), "public_spki_pem");
    cr_assert(zero(int, public_key_from_pem(pem, strlen(pem), name, &k, NULL)));
    return k;
}

static struct secret_key *vec_secret(const char *name) {
    unsigned char seed[32];
    struct secret_key *k;
    vec_hex32(vec_str(json_object_get(vectors_get("keys"), name), "seed"), seed);
    cr_assert(zero(int, secret_key_from_seed(seed, &k, NULL)));
    return k;
}

Test(results_dsse, vectors_pae) {
    json_t *list = vectors_get("pae"), *v;
    size_t i, n, want_n, got_n;
    json_array_foreach(list, i, v) {
        unsigned char *body = vec_unhex(vec_str(v, "body_hex"), &n);
        unsigned char *want = vec_unhex(vec_str(v, "pae_hex"), &want_n);
        char *got = pae_of(vec_str(v, "payloadType"), body, n, &got_n);
        cr_assert(got_n == want_n && memcmp(got, want, got_n) == 0, "%s",
                  vec_str(v, "payloadType"));
        free(body);
        free(want);
        free(got);
    }
}

Test(results_dsse, vectors_dsse_is_generated_byte_for_byte) {
    json_t *v = vectors_get("dsse");
    struct err e = {0};
    struct buf payload, text, envelope;
    unsigned char digest[32];
    size_t n;
    buf_init(&payload, 1 << 20);
    buf_init(&text, 1 << 20);
    buf_init(&envelope, 1 << 20);
    /* statement -> payload */
    cr_assert(zero(int, jcs_encode(json_object_get(v, "statement"), &payload, &e)), "%s", e.text);
    cr_assert(eq(str, payload.p, vec_str(v, "payload_utf8")));
    sha256(payload.p, payload.n, digest);
    cr_assert(eq(str, hex32(digest), vec_str(v, "payload_sha256")));
    /* payload -> PAE */
    char *pae = pae_of(vec_str(v, "payloadType"), payload.p, payload.n, &n);
    cr_assert(eq(sz, n, (size_t)json_integer_value(json_object_get(v, "pae_len"))));
    sha256(pae, n, digest);
    cr_assert(eq(str, hex32(digest), vec_str(v, "pae_sha256")));
    unsigned char *prefix = vec_unhex(vec_str(v, "pae_prefix_hex"), &n);
    cr_assert(memcmp(pae, prefix, n) == 0);
    /* signatures */
    static const char *const who[] = {"submitter", "reviewer"}, *const field[] = {
                                                                    "signature_submitter",
                                                                    "signature_reviewer"};
    struct dsse_signature sig[2];
    for (int i = 0; i < 2; i++) {
        struct secret_key *k = vec_secret(who[i]);
        char hex[129];
        cr_assert(zero(int, dsse_sign(DSSE_PAYLOAD_TYPE, payload.p, payload.n, k, &sig[i], &e)));
        hex_encode(sig[i].sig, 64, hex);
        cr_assert(eq(str, hex, vec_str(v, field[i])));
        secret_key_free(k);
    }
    /* envelope: ours, and the vector's canonical form */
    cr_assert(zero(int, dsse_print(DSSE_PAYLOAD_TYPE, payload.p, payload.n, sig, 2, &text, &e)));
    cr_assert(zero(int, jcs_encode(json_object_get(v, "envelope"), &envelope, &e)));
    cr_assert(eq(str, text.p, envelope.p));
    sha256(text.p, text.n, digest);
    cr_assert(eq(str, hex32(digest), vec_str(v, "envelope_jcs_sha256")));
    /* and back */
    struct dsse d;
    struct public_key trusted[2] = {vec_key("reviewer"), vec_key("submitter")};
    bool matched[2];
    int distinct;
    cr_assert(zero(int, parse(text.p, &d, &e)), "%s", e.text);
    cr_assert(d.payload.n == payload.n && memcmp(d.payload.p, payload.p, payload.n) == 0);
    cr_assert(zero(int, dsse_verify(&d, trusted, 2, matched, &distinct, &e)));
    cr_assert(eq(int, distinct, 2));
    dsse_release(&d);
    free(pae);
    free(prefix);
    buf_release(&payload);
    buf_release(&text);
    buf_release(&envelope);
}

Test(results_dsse, vectors_dsse_negative) {
    /* What each variant must come to, by name: signatures by distinct trusted keys. */
    static const struct {
        const char *name;
        int distinct;
        bool submitter;
    } want[] = {
        {"payload_one_byte_changed", 0, false},
        {"payload_type_changed", 0, false},
        {"signature_bit_flipped", 0, false},
        {"signature_over_raw_payload_not_pae", 0, false},
        {"keyid_swapped", 1, true},
        {"same_key_twice", 1, true},
        {"s_plus_order_malleated", 0, false},
        {"base64url_unpadded_payload", 1, true},
    };
    struct public_key trusted[4] = {vec_key("reviewer"), vec_key("submitter"), vec_key("log"),
                                    vec_key("submitter_rotated")};
    json_t *list = vectors_get("dsse_negative"), *v;
    size_t i;
    cr_assert(eq(sz, json_array_size(list), sizeof want / sizeof want[0]));
    json_array_foreach(list, i, v) {
        struct dsse d;
        struct err e = {0};
        bool matched[4];
        int distinct;
        char *text = json_dumps(json_object_get(v, "envelope"), 0);
        cr_assert(eq(str, vec_str(v, "name"), want[i].name));
        cr_assert(zero(int, parse(text, &d, &e)), "%s", e.text);
        cr_assert(zero(int, dsse_verify(&d, trusted, 4, matched, &distinct, &e)));
        cr_assert(eq(int, distinct, want[i].distinct), "%s", want[i].name);
        cr_assert(eq(int, matched[1], want[i].submitter), "%s", want[i].name);
        cr_assert(not(matched[0] || matched[2] || matched[3]));
        dsse_release(&d);
        free(text);
    }
}

Test(results_dsse, vectors_envelope_mutations, .timeout = 120) {
    char *text = json_dumps(json_object_get(vectors_get("dsse"), "envelope"), JSON_COMPACT);
    struct public_key keys[2] = {vec_key("submitter"), vec_key("reviewer")};
    mutations(text, keys, 2, 7);
    free(text);
}
