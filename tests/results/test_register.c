/* The register's arithmetic against RFC 9162's recursive definitions, the CT reference tree, and
 * the published vectors; checkpoints. */
#include "results/jcs.h"
#include "results/register.h"
#include "tests/results/vectors.h"

#include <stdio.h>

typedef unsigned char hash_t[32];

/* The eight leaves of the certificate-transparency reference tests, and their published root. */
static const struct {
    const char *bytes;
    size_t n;
} ct_leaf[8] = {
    {"", 0},
    {"\x00", 1},
    {"\x10", 1},
    {"\x20\x21", 2},
    {"\x30\x31", 2},
    {"\x40\x41\x42\x43", 4},
    {"\x50\x51\x52\x53\x54\x55\x56\x57", 8},
    {"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f", 16},
};
#define CT_ROOT "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"

Test(results_register, ct_reference_tree) {
    struct merkle m = {0};
    hash_t h;
    merkle_root(&m, h);
    cr_assert(
        eq(str, hex32(h), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
    for (int i = 0; i < 8; i++) {
        merkle_leaf(ct_leaf[i].bytes, ct_leaf[i].n, h);
        merkle_append(&m, h);
        if (i == 4) {
            merkle_root(&m, h);
            cr_assert(eq(str, hex32(h),
                         "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4"));
        }
    }
    merkle_root(&m, h);
    cr_assert(eq(str, hex32(h), CT_ROOT));
}

/* ---- naive definitions, straight from RFC 9162 section 2.1, on purpose not the code's way ---- */

static uint64_t largest_power_below(uint64_t n) {
    uint64_t k = 1;
    while (k * 2 < n)
        k *= 2;
    return k;
}

static void naive_node(const hash_t l, const hash_t r, hash_t out) {
    unsigned char b[65] = {1};
    memcpy(b + 1, l, 32);
    memcpy(b + 33, r, 32);
    sha256(b, 65, out);
}

static void naive_root(const hash_t *d, uint64_t n, hash_t out) {
    if (n == 0) {
        sha256("", 0, out);
    } else if (n == 1) {
        memcpy(out, d[0], 32);
    } else {
        hash_t l, r;
        uint64_t k = largest_power_below(n);
        naive_root(d, k, l);
        naive_root(d + k, n - k, r);
        naive_node(l, r, out);
    }
}

static int naive_path(uint64_t m, const hash_t *d, uint64_t n, hash_t *out) {
    if (n == 1)
        return 0;
    uint64_t k = largest_power_below(n);
    int c;
    if (m < k) {
        c = naive_path(m, d, k, out);
        naive_root(d + k, n - k, out[c]);
    } else {
        c = naive_path(m - k, d + k, n - k, out);
        naive_root(d, k, out[c]);
    }
    return c + 1;
}

static int naive_subproof(uint64_t m, const hash_t *d, uint64_t n, bool b, hash_t *out) {
    if (m == n) {
        if (b)
            return 0;
        naive_root(d, n, out[0]);
        return 1;
    }
    uint64_t k = largest_power_below(n);
    int c;
    if (m <= k) {
        c = naive_subproof(m, d, k, b, out);
        naive_root(d + k, n - k, out[c]);
    } else {
        c = naive_subproof(m - k, d + k, n - k, false, out);
        naive_root(d, k, out[c]);
    }
    return c + 1;
}

enum { N = 64 };
static hash_t leaves[N + 1];

static void make_leaves(void) {
    for (int i = 0; i <= N; i++) {
        char s[16];
        int n = snprintf(s, sizeof s, "entry %d", i);
        merkle_leaf(s, (size_t)n, leaves[i]);
    }
}

/* Every way to spoil a path by one hash: one changed, one removed, one added anywhere. fn answers
 * whether the spoilt path is accepted. */
typedef bool accepts_fn(const hash_t *path, int np, const void *ctx);
static void spoil(const hash_t *path, int np, accepts_fn *fn, const void *ctx) {
    hash_t p[66];
    for (int i = 0; i < np; i++) {
        memcpy(p, path, (size_t)np * 32);
        p[i][i % 32] ^= 0x10;
        cr_assert(not(fn(p, np, ctx)), "hash %d changed", i);
        memcpy(p, path, (size_t)np * 32);
        memmove(p[i], p[i + 1], (size_t)(np - 1 - i) * 32);
        cr_assert(not(fn(p, np - 1, ctx)), "hash %d removed", i);
    }
    for (int i = 0; i <= np; i++) {
        memcpy(p, path, (size_t)i * 32);
        memcpy(p[i], leaves[N], 32);
        memcpy(p[i + 1], path + i, (size_t)(np - i) * 32);
        cr_assert(not(fn(p, np + 1, ctx)), "hash added at %d", i);
    }
}

struct inclusion {
    uint64_t i, n;
    hash_t leaf, root;
};
static bool inclusion_accepts(const hash_t *path, int np, const void *ctx) {
    const struct inclusion *c = ctx;
    return merkle_check_inclusion(c->leaf, c->i, c->n, path, np, c->root);
}

Test(results_register, inclusion_of_all_leaves_in_all_sizes, .timeout = 60) {
    make_leaves();
    struct merkle m = {0};
    for (uint64_t n = 1; n <= N; n++) {
        struct inclusion c = {.n = n};
        hash_t grown;
        merkle_append(&m, leaves[n - 1]);
        merkle_root(&m, grown);
        naive_root(leaves, n, c.root);
        cr_assert(eq(str, hex32(grown), hex32(c.root)));
        for (c.i = 0; c.i < n; c.i++) {
            hash_t path[64], want[64];
            int np, nw = naive_path(c.i, leaves, n, want);
            cr_assert(zero(int, merkle_inclusion(leaves, n, c.i, path, &np)));
            cr_assert(np == nw && memcmp(path, want, (size_t)np * 32) == 0);
            memcpy(c.leaf, leaves[c.i], 32);
            cr_assert(inclusion_accepts(path, np, &c), "%d of %d", (int)c.i, (int)n);
            spoil(path, np, inclusion_accepts, &c);
            struct inclusion other = c;
            other.i = (c.i + 1) % n;
            if (n > 1)
                cr_assert(not(inclusion_accepts(path, np, &other)), "another place");
            other = c;
            other.root[0] ^= 1;
            cr_assert(not(inclusion_accepts(path, np, &other)), "another root");
            other = c;
            other.i = n;
            cr_assert(not(inclusion_accepts(path, np, &other)), "outside");
        }
        hash_t path[64];
        int np;
        cr_assert(eq(int, merkle_inclusion(leaves, n, n, path, &np), ASSAY_EUSAGE));
    }
}

struct consistency {
    uint64_t m, n;
    hash_t old, new;
};
static bool consistency_accepts(const hash_t *path, int np, const void *ctx) {
    const struct consistency *c = ctx;
    return merkle_check_consistency(c->m, c->n, c->old, c->new, path, np);
}

Test(results_register, consistency_of_all_pairs_of_sizes, .timeout = 60) {
    make_leaves();
    for (uint64_t n = 1; n <= N; n++) {
        for (uint64_t m = 1; m <= n; m++) {
            struct consistency c = {.m = m, .n = n};
            hash_t path[64], want[64];
            int np, nw = naive_subproof(m, leaves, n, true, want);
            naive_root(leaves, m, c.old);
            naive_root(leaves, n, c.new);
            cr_assert(zero(int, merkle_consistency(leaves, m, n, path, &np)));
            cr_assert(np == nw && memcmp(path, want, (size_t)np * 32) == 0);
            cr_assert(consistency_accepts(path, np, &c), "%d to %d", (int)m, (int)n);
            spoil(path, np, consistency_accepts, &c);
            struct consistency other = c;
            other.old[31] ^= 1;
            cr_assert(not(consistency_accepts(path, np, &other)), "another old root");
            other = c;
            other.new[31] ^= 1;
            cr_assert(not(consistency_accepts(path, np, &other)), "another new root");
        }
        hash_t path[64], root;
        int np;
        naive_root(leaves, n, root);
        cr_assert(eq(int, merkle_consistency(leaves, 0, n, path, &np), ASSAY_EUSAGE));
        cr_assert(eq(int, merkle_consistency(leaves, n + 1, n, path, &np), ASSAY_EUSAGE));
        cr_assert(not(merkle_check_consistency(0, n, root, root, path, 0)), "proof of nothing");
        cr_assert(not(merkle_check_consistency(n + 1, n, root, root, path, 0)));
    }
}

Test(results_register, a_fork_is_not_consistent) {
    make_leaves();
    hash_t path[64], old, forked;
    int np;
    naive_root(leaves, 20, old);
    memcpy(leaves[7], leaves[N], 32); /* history rewritten */
    naive_root(leaves, 50, forked);
    cr_assert(zero(int, merkle_consistency(leaves, 20, 50, path, &np)));
    cr_assert(not(merkle_check_consistency(20, 50, old, forked, path, np)));
}

/* ---- checkpoints ---- */

static struct secret_key *log_key(unsigned char i) {
    unsigned char seed[32];
    struct secret_key *k;
    memset(seed, i, sizeof seed);
    cr_assert(zero(int, secret_key_from_seed(seed, &k, NULL)));
    return k;
}

static char *vkey_of(const char *origin, const struct secret_key *k) {
    struct buf b;
    buf_init(&b, 1024);
    cr_assert(zero(int, checkpoint_vkey(origin, secret_key_public(k), &b)));
    return buf_take(&b, NULL);
}

Test(results_register, checkpoint_round_trip) {
    struct secret_key *k = log_key(1), *other = log_key(2);
    struct buf b;
    struct err e = {0};
    hash_t root, got;
    uint64_t size = 0;
    memset(root, 0xab, sizeof root);
    char *vkey = vkey_of("lab.example/register", k),
         *vother = vkey_of("lab.example/register", other);
    buf_init(&b, 4096);
    cr_assert(zero(int, checkpoint_print("lab.example/register", 20852163, root, k, &b, &e)));
    cr_assert(zero(int, checkpoint_check(b.p, b.n, vkey, &size, got, &e)), "%s", e.text);
    cr_assert(eq(u64, size, 20852163));
    cr_assert(eq(str, hex32(got), hex32(root)));
    cr_assert(eq(int, checkpoint_check(b.p, b.n, vother, &size, got, &e), ASSAY_ENEGATIVE));
    /* each byte counts: text, name, key hash, signature */
    for (size_t i = 0; i < b.n; i++) {
        b.p[i] ^= 1;
        cr_assert(checkpoint_check(b.p, b.n, vkey, &size, got, &e) != 0, "byte %zu", i);
        b.p[i] ^= 1;
        cr_assert(checkpoint_check(b.p, i, vkey, &size, got, &e) != 0, "cut at %zu", i);
    }
    /* a second signer's line is ignored, before or behind */
    struct buf c;
    const char *sigs = strstr(b.p, "\n\n") + 2;
    buf_init(&c, 4096);
    buf_put(&c, b.p, (size_t)(sigs - b.p));
    buf_puts(&c, "\xe2\x80\x94 witness.example/w AAAAAAECAwQF\n");
    buf_puts(&c, sigs);
    cr_assert(zero(int, checkpoint_check(c.p, c.n, vkey, &size, got, &e)), "%s", e.text);
    cr_assert(eq(int, checkpoint_print("has space", 1, root, k, &c, &e), ASSAY_EUSAGE));
    cr_assert(eq(int, checkpoint_print("", 1, root, k, &c, &e), ASSAY_EUSAGE));
    cr_assert(eq(int, checkpoint_print("a+b", 1, root, k, &c, &e), ASSAY_EUSAGE));
    buf_release(&b);
    buf_release(&c);
    free(vkey);
    free(vother);
    secret_key_free(k);
    secret_key_free(other);
}

/* Signs any text as a note, to show that a good signature does not excuse a bad body. */
static char *note_of(const char *text, const char *name, const struct secret_key *k) {
    struct buf b;
    unsigned char sig[68];
    char *vkey = vkey_of(name, k), hex[9] = "";
    memcpy(hex, strchr(vkey, '+') + 1, 8);
    cr_assert(zero(int, hex_decode(hex, 4, sig)));
    key_sign(k, text, strlen(text), sig + 4);
    buf_init(&b, 1 << 16);
    buf_printf(&b, "%s\n\xe2\x80\x94 %s ", text, name);
    base64_encode(sig, sizeof sig, &b);
    buf_putc(&b, '\n');
    free(vkey);
    return buf_take(&b, NULL);
}

#define ROOT64 "q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s="

Test(results_register, checkpoint_bodies_are_strict) {
    static const struct {
        const char *text;
        bool good;
    } c[] = {
        {"log\n4\n" ROOT64 "\n", true},
        {"log\n0\n" ROOT64 "\n", true},
        {"log\n18446744073709551615\n" ROOT64 "\n", true},
        {"log\n4\n" ROOT64 "\nextension\n", true},
        {"log2\n4\n" ROOT64 "\n", false},
        {"log\n04\n" ROOT64 "\n", false},
        {"log\n-4\n" ROOT64 "\n", false},
        {"log\n\n" ROOT64 "\n", false},
        {"log\n18446744073709551616\n" ROOT64 "\n", false},
        {"log\n4\nq6urq6s=\n", false},
        {"log\n4\n" ROOT64 "=\n", false},
        {"log\n4\n", false},
        {"log\n4\n" ROOT64 "\n\nextension\n", false},
        {"log\r\n4\n" ROOT64 "\n", false},
    };
    struct secret_key *k = log_key(1);
    char *vkey = vkey_of("log", k);
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        char *note = note_of(c[i].text, "log", k);
        struct err e = {0};
        uint64_t size;
        hash_t root;
        cr_assert(
            eq(int, checkpoint_check(note, strlen(note), vkey, &size, root, &e) == 0, c[i].good),
            "%s: %s", c[i].text, e.text);
        free(note);
    }
    free(vkey);
    secret_key_free(k);
}

Test(results_register, verifier_keys_are_strict) {
    struct secret_key *k = log_key(1);
    char *good = vkey_of("log", k), *note = note_of("log\n4\n" ROOT64 "\n", "log", k);
    uint64_t size;
    hash_t root;
    struct err e = {0};
    cr_assert(zero(int, checkpoint_check(note, strlen(note), good, &size, root, &e)), "%s", e.text);
    for (size_t i = 0; i < strlen(good); i++) {
        char *bad = strdup(good);
        bad[i] = bad[i] == 'A' ? 'B' : 'A';
        cr_assert(checkpoint_check(note, strlen(note), bad, &size, root, &e) != 0, "%s", bad);
        bad[i] = '\0';
        cr_assert(
            eq(int, checkpoint_check(note, strlen(note), bad, &size, root, &e), ASSAY_EINPUT));
        free(bad);
    }
    free(good);
    free(note);
    secret_key_free(k);
}

/* ---- the published vectors ---- */

static int path_load(const json_t *list, hash_t *path) {
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v) vec_hex32(json_string_value(v), path[i]);
    return (int)json_array_size(list);
}

static uint64_t vec_u64(const json_t *o, const char *name) {
    return (uint64_t)json_integer_value(json_object_get(o, name));
}

Test(results_register, vectors_merkle) {
    json_t *vec = vectors_get("merkle"), *v;
    hash_t leaf[8], root, other, path[64], want[64];
    size_t i, n;
    int np;
    json_array_foreach(json_object_get(vec, "leaves"), i, v) {
        unsigned char *bytes = vec_unhex(json_string_value(v), &n);
        merkle_leaf(bytes, n, leaf[i]);
        free(bytes);
        cr_assert(eq(str, hex32(leaf[i]),
                     json_string_value(json_array_get(json_object_get(vec, "leaf_hashes"), i))));
    }
    json_array_foreach(json_object_get(vec, "roots"), i, v) {
        struct merkle m = {0};
        for (uint64_t j = 0; j < vec_u64(v, "size"); j++)
            merkle_append(&m, leaf[j]);
        merkle_root(&m, root);
        cr_assert(eq(str, hex32(root), vec_str(v, "root")));
    }
    json_array_foreach(json_object_get(vec, "inclusion"), i, v) {
        hash_t h;
        int nw = path_load(json_object_get(v, "path"), want);
        cr_assert(
            zero(int, merkle_inclusion(leaf, vec_u64(v, "size"), vec_u64(v, "index"), path, &np)));
        cr_assert(np == nw && memcmp(path, want, (size_t)np * 32) == 0);
        vec_hex32(vec_str(v, "leaf_hash"), h);
        vec_hex32(vec_str(v, "root"), root);
        cr_assert(
            merkle_check_inclusion(h, vec_u64(v, "index"), vec_u64(v, "size"), want, nw, root));
    }
    json_array_foreach(json_object_get(vec, "consistency"), i, v) {
        uint64_t m = vec_u64(v, "first"), size = vec_u64(v, "second");
        int nw = path_load(json_object_get(v, "path"), want);
        cr_assert(zero(int, merkle_consistency(leaf, m, size, path, &np)));
        cr_assert(np == nw && memcmp(path, want, (size_t)np * 32) == 0);
        vec_hex32(vec_str(v, "first_root"), root);
        vec_hex32(vec_str(v, "second_root"), other);
        cr_assert(merkle_check_consistency(m, size, root, other, want, nw));
    }
}

Test(results_register, vectors_register) {
    json_t *vec = vectors_get("register"), *v;
    unsigned char chain[32] = {0};
    hash_t leaf, root;
    struct merkle m = {0};
    size_t i;
    json_array_foreach(json_object_get(vec, "events"), i, v) {
        struct buf b;
        buf_init(&b, 1 << 16);
        cr_assert(zero(int, jcs_encode(v, &b, NULL)));
        cr_assert(eq(str, b.p,
                     json_string_value(json_array_get(json_object_get(vec, "entries_utf8"), i))));
        register_chain(chain, b.p, b.n, chain);
        cr_assert(eq(str, hex32(chain),
                     json_string_value(json_array_get(json_object_get(vec, "chain"), i))));
        merkle_leaf(b.p, b.n, leaf);
        merkle_append(&m, leaf);
        buf_release(&b);
    }
    merkle_root(&m, root);
    cr_assert(eq(str, hex32(root), vec_str(vec, "merkle_root")));
}

Test(results_register, vectors_checkpoint) {
    json_t *vec = vectors_get("checkpoint");
    const char *origin = vec_str(vec, "origin"), *note = vec_str(vec, "signed_note");
    struct secret_key *k;
    struct err e = {0};
    struct buf b;
    unsigned char seed[32];
    hash_t root, got;
    uint64_t size;
    vec_hex32(vec_str(json_object_get(vectors_get("keys"), "log"), "seed"), seed);
    cr_assert(zero(int, secret_key_from_seed(seed, &k, &e)));
    char *vkey = vkey_of(origin, k);
    cr_assert(eq(str, vkey, vec_str(vec, "vkey")));
    vec_hex32(vec_str(vectors_get("register"), "merkle_root"), root);
    buf_init(&b, 4096);
    cr_assert(zero(int, checkpoint_print(origin, 4, root, k, &b, &e)), "%s", e.text);
    cr_assert(eq(str, b.p, note));
    cr_assert(strncmp(b.p, vec_str(vec, "note_text"), strlen(vec_str(vec, "note_text"))) == 0);
    cr_assert(zero(int, checkpoint_check(note, strlen(note), vkey, &size, got, &e)), "%s", e.text);
    cr_assert(eq(u64, size, 4));
    cr_assert(eq(str, hex32(got), hex32(root)));
    buf_release(&b);
    free(vkey);
    secret_key_free(k);
}
