/* SHA-256 (FIPS 180-4 examples), hex, base64 (RFC 4648 section 10 and the profile's refusals). */
#include "tests/results/vectors.h"

#include <stdio.h>
#include <unistd.h>

static const char *sha_hex(const void *p, size_t n) {
    static unsigned char d[32];
    sha256(p, n, d);
    return hex32(d);
}

/* Golden: FIPS 180-4 / NIST CAVP examples. */
Test(results_hash, sha256_matches_the_standard) {
    cr_assert(eq(str, sha_hex("", 0),
                 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
    cr_assert(eq(str, sha_hex("abc", 3),
                 "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    struct sha256_stream *s = sha256_new();
    char a[1000];
    unsigned char d[32];
    memset(a, 'a', sizeof a);
    for (int i = 0; i < 1000; i++)
        sha256_add(s, a, sizeof a);
    sha256_finish(s, d);
    cr_assert(
        eq(str, hex32(d), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
}

Test(results_hash, a_file_is_hashed_whole) {
    char path[] = "/tmp/assay-hash-XXXXXX";
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    unsigned char block[70001], want[32], got[32];
    for (size_t i = 0; i < sizeof block; i++)
        block[i] = (unsigned char)(i * 31);
    cr_assert(write(fd, block, sizeof block) == (ssize_t)sizeof block);
    close(fd);
    struct err e = {0};
    sha256(block, sizeof block, want);
    cr_assert(zero(int, sha256_file(path, got, &e)));
    cr_assert(eq(str, hex32(got), hex32(want)));
    unlink(path);
    cr_assert(eq(int, sha256_file(path, got, &e), ASSAY_EENV));
    cr_assert(strstr(e.text, path) != NULL);
    cr_assert(eq(int, sha256_file("/tmp", got, &e), ASSAY_EENV), "a directory is no file");
}

Test(results_hash, hex_takes_only_its_exact_form) {
    unsigned char b[4];
    cr_assert(zero(int, hex_decode("00ff10a9", 4, b)));
    cr_assert(b[0] == 0 && b[1] == 255 && b[2] == 16 && b[3] == 0xa9);
    cr_assert(hex_decode("00FF10A9", 4, b) != 0, "upper case");
    cr_assert(hex_decode("00ff10a", 4, b) != 0, "short");
    cr_assert(hex_decode("00ff10a9b", 4, b) != 0, "long");
    cr_assert(hex_decode("00ff10ag", 4, b) != 0, "not a digit");
    cr_assert(hex_decode("", 0, b) == 0);
}

static char *decode(const char *s, size_t *n) {
    struct buf b;
    buf_init(&b, 1024);
    if (base64_decode(s, strlen(s), &b, NULL)) {
        buf_release(&b);
        return NULL;
    }
    return buf_take(&b, n);
}

/* Golden: RFC 4648 section 10. */
Test(results_hash, base64_matches_the_rfc_both_ways) {
    static const char *const pair[][2] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"fooba", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy"},
    };
    for (size_t i = 0; i < sizeof pair / sizeof pair[0]; i++) {
        struct buf b;
        size_t n = 0;
        buf_init(&b, 64);
        base64_encode(pair[i][0], strlen(pair[i][0]), &b);
        buf_put(&b, "", 0);
        cr_assert(eq(str, b.p, pair[i][1]));
        char *back = decode(pair[i][1], &n);
        cr_assert(back && n == strlen(pair[i][0]) && memcmp(back, pair[i][0], n) == 0);
        b.n = strcspn(b.p, "=");
        b.p[b.n] = '\0';
        free(back);
        back = decode(b.p, &n);
        cr_assert(back && n == strlen(pair[i][0]), "padding may be missing");
        free(back);
        buf_release(&b);
    }
}

Test(results_hash, base64_takes_either_alphabet_but_not_both) {
    size_t n;
    char *a = decode("-_-_", &n), *b = decode("+/+/", &n);
    cr_assert(a && b && memcmp(a, b, 3) == 0 && memcmp(a, "\xfb\xff\xbf", 3) == 0);
    cr_assert(decode("-_+/", &n) == NULL);
    free(a);
    free(b);
}

Test(results_hash, base64_refuses_what_is_not_it) {
    static const char *const wrong[] = {
        "Z",    "Zg=",  "Zg===",    "=",    "====",    "Zm9v\n", "Zm9v=",    "Zm 9v",     "Zh==",
        "Zm9=", "Zg=g", "Zm9v====", "Z===", "Zm9\xc3", "Zm8==",  "Zm\r\n9v", "Zm9v YmFy",
    };
    size_t n;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        cr_assert(decode(wrong[i], &n) == NULL, "'%s'", wrong[i]);
}

Test(results_hash, base64_keeps_the_buffer_intact_on_failure) {
    struct buf b;
    struct err e = {0};
    buf_init(&b, 64);
    buf_puts(&b, "kept");
    cr_assert(eq(int, base64_decode("Zm9v!A==", 8, &b, &e), ASSAY_EINPUT));
    cr_assert(eq(str, b.p, "kept"));
    cr_assert(strstr(e.text, "offset 4") != NULL, "%s", e.text);
    cr_assert(eq(int, base64_decode("Zm9v", 4, &b, &e), 0));
    cr_assert(eq(str, b.p, "keptfoo"));
    buf_release(&b);
    buf_init(&b, 2);
    cr_assert(eq(int, base64_decode("Zm9v", 4, &b, &e), ASSAY_EINPUT), "the ceiling holds");
    buf_release(&b);
}

Test(results_hash, base64_round_trips_every_length_and_byte) {
    unsigned char in[300];
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)(i * 167 + 13);
    for (size_t n = 0; n <= sizeof in; n++) {
        struct buf text, back;
        buf_init(&text, 1024);
        buf_init(&back, 1024);
        base64_encode(in, n, &text);
        cr_assert(zero(int, base64_decode(text.p, text.n, &back, NULL)));
        cr_assert(back.n == n && (n == 0 || memcmp(back.p, in, n) == 0));
        buf_release(&text);
        buf_release(&back);
    }
}

Test(results_hash, vectors_artifacts) {
    /* The statement's digests are those of the listed byte strings. */
    json_t *items = json_object_get(vectors_get("artifacts"), "items");
    const char *payload = vec_str(vectors_get("dsse"), "payload_utf8");
    cr_assert(gt(sz, json_array_size(items), 0));
    size_t i;
    json_t *v;
    json_array_foreach(items, i, v) {
        const char *s = json_string_value(v);
        cr_assert(strstr(payload, sha_hex(s, strlen(s))) != NULL, "'%s'", s);
    }
}
