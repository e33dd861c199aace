/* The run register's arithmetic: hash chain, RFC 9162 Merkle tree and its proofs, C2SP checkpoint
 * notes. Pure; the entries live in the store. */
#include "results/register.h"

#include "results/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void register_chain(const unsigned char prev[32], const void *entry, size_t n,
                    unsigned char out[32]) {
    static const char domain[] = "assay-register-v1"; /* its NUL is part of the domain */
    unsigned char b[sizeof domain + 64];
    memcpy(b, domain, sizeof domain);
    memcpy(b + sizeof domain, prev, 32);
    sha256(entry, n, b + sizeof domain + 32);
    sha256(b, sizeof b, out);
}

void merkle_leaf(const void *entry, size_t n, unsigned char out[32]) {
    static const unsigned char leaf_domain = 0;
    struct sha256_stream *s = sha256_new();
    sha256_add(s, &leaf_domain, 1);
    sha256_add(s, entry, n);
    sha256_finish(s, out);
}

/* out may be left or right. */
static void node(const unsigned char left[32], const unsigned char right[32],
                 unsigned char out[32]) {
    unsigned char b[65];
    b[0] = 1;
    memcpy(b + 1, left, 32);
    memcpy(b + 33, right, 32);
    sha256(b, sizeof b, out);
}

/* ---- the growing tree ---- */

/* edge[k] is the root of the complete subtree of 2^k leaves that bit k of size stands for; the
 * highest bit is leftmost. */
void merkle_append(struct merkle *m, const unsigned char leaf[32]) {
    unsigned char carry[32];
    memcpy(carry, leaf, 32);
    int k = 0;
    for (; m->size >> k & 1; k++)
        node(m->edge[k], carry, carry);
    memcpy(m->edge[k], carry, 32);
    m->size++;
}

void merkle_root(const struct merkle *m, unsigned char out[32]) {
    if (!m->size) {
        sha256("", 0, out);
        return;
    }
    int k = __builtin_ctzll(m->size);
    memcpy(out, m->edge[k], 32);
    for (k++; k < 64; k++)
        if (m->size >> k & 1)
            node(m->edge[k], out, out);
}

/* ---- proofs, after RFC 9162 section 2.1 ---- */

/* The largest power of two below n, n >= 2. */
static uint64_t split(uint64_t n) {
    return UINT64_C(1) << (63 - __builtin_clzll(n - 1));
}

static void root_of(const unsigned char (*leaves)[32], uint64_t n, unsigned char out[32]) {
    struct merkle m = {0};
    for (uint64_t i = 0; i < n; i++)
        merkle_append(&m, leaves[i]);
    merkle_root(&m, out);
}

/* Both proofs walk down from the root to a subtree and note the sibling at each level, deepest
 * first. */
int merkle_inclusion(const unsigned char (*leaves)[32], uint64_t n, uint64_t index,
                     unsigned char path[64][32], int *np) {
    *np = 0;
    if (index >= n)
        return ASSAY_EUSAGE;
    int depth = 0;
    for (uint64_t size = n, i = index; size > 1; depth++) { /* how deep it goes */
        uint64_t k = split(size);
        size = i < k ? k : size - k;
        i = i < k ? i : i - k;
    }
    *np = depth;
    while (n > 1) {
        uint64_t k = split(n);
        depth--;
        if (index < k) {
            root_of(leaves + k, n - k, path[depth]);
            n = k;
        } else {
            root_of(leaves, k, path[depth]);
            leaves += k;
            n -= k;
            index -= k;
        }
    }
    return 0;
}

bool merkle_check_inclusion(const unsigned char leaf[32], uint64_t index, uint64_t n,
                            const unsigned char (*path)[32], int np, const unsigned char root[32]) {
    if (index >= n)
        return false;
    uint64_t fn = index, sn = n - 1;
    unsigned char r[32];
    memcpy(r, leaf, 32);
    for (int i = 0; i < np; i++) {
        if (!sn)
            return false;
        if (fn & 1 || fn == sn) {
            node(path[i], r, r);
            while (!(fn & 1) && fn) {
                fn >>= 1;
                sn >>= 1;
            }
        } else {
            node(r, path[i], r);
        }
        fn >>= 1;
        sn >>= 1;
    }
    return sn == 0 && memcmp(r, root, 32) == 0;
}

int merkle_consistency(const unsigned char (*leaves)[32], uint64_t m, uint64_t n,
                       unsigned char path[64][32], int *np) {
    *np = 0;
    if (!m || m > n)
        return ASSAY_EUSAGE;
    /* Down to the subtree that ends the first m leaves; whole says it is a complete node of the old
     * tree whose root the verifier knows already. */
    bool whole = true;
    unsigned char up[64][32];
    int depth = 0;
    while (m != n) {
        uint64_t k = split(n);
        if (m <= k) {
            root_of(leaves + k, n - k, up[depth++]);
            n = k;
        } else {
            root_of(leaves, k, up[depth++]);
            leaves += k;
            m -= k;
            n -= k;
            whole = false;
        }
    }
    if (!whole)
        root_of(leaves, n, path[(*np)++]);
    while (depth)
        memcpy(path[(*np)++], up[--depth], 32);
    return 0;
}

bool merkle_check_consistency(uint64_t m, uint64_t n, const unsigned char root_m[32],
                              const unsigned char root_n[32], const unsigned char (*path)[32],
                              int np) {
    if (!m || m > n)
        return false; /* an empty tree is a prefix of anything: proof of nothing */
    if (m == n)
        return np == 0 && memcmp(root_m, root_n, 32) == 0;
    int i = 0;
    unsigned char fr[32], sr[32];
    if ((m & (m - 1)) == 0) {
        memcpy(fr, root_m, 32); /* the old tree is one complete node */
    } else {
        if (np == 0)
            return false;
        memcpy(fr, path[i++], 32);
    }
    memcpy(sr, fr, 32);
    uint64_t fn = m - 1, sn = n - 1;
    while (fn & 1) {
        fn >>= 1;
        sn >>= 1;
    }
    for (; i < np; i++) {
        if (!sn)
            return false;
        if (fn & 1 || fn == sn) {
            node(path[i], fr, fr);
            node(path[i], sr, sr);
            while (!(fn & 1) && fn) {
                fn >>= 1;
                sn >>= 1;
            }
        } else {
            node(sr, path[i], sr);
        }
        fn >>= 1;
        sn >>= 1;
    }
    return sn == 0 && memcmp(fr, root_m, 32) == 0 && memcmp(sr, root_n, 32) == 0;
}

/* ---- checkpoints: C2SP tlog-checkpoint in a signed note ---- */

enum {
    NOTE_MAX_BYTES = 64 * 1024,
    NOTE_SIGNATURES_MAX = 100,
    KEY_NAME_MAX_BYTES = 255,
};
#define EM_DASH "\xe2\x80\x94"

/* A key name and an origin: not empty, no plus, no white space or control characters. (The note
 * specification forbids all Unicode spaces; of those above U+007F none can be part of ours, which
 * are ASCII.) */
static bool key_name_valid(const char *s, size_t n) {
    if (!n || n > KEY_NAME_MAX_BYTES)
        return false;
    for (size_t i = 0; i < n; i++)
        if (s[i] <= 0x20 || s[i] == '+' || s[i] == 0x7f) /* char is signed: also above ASCII */
            return false;
    return true;
}

/* First four bytes of SHA-256(name LF 01 key). */
static void key_hash(const char *name, size_t n, const unsigned char raw[32],
                     unsigned char out[4]) {
    unsigned char digest[32];
    struct sha256_stream *s = sha256_new();
    sha256_add(s, name, n);
    sha256_add(s, "\n\x01", 2);
    sha256_add(s, raw, 32);
    sha256_finish(s, digest);
    memcpy(out, digest, 4);
}

static int origin_check(const char *origin, struct err *e) {
    if (key_name_valid(origin, strlen(origin)))
        return 0;
    return err_set(e, ASSAY_EUSAGE,
                   "the register's origin must be 1 to %d printable ASCII characters without space "
                   "and '+'",
                   (int)KEY_NAME_MAX_BYTES);
}

int checkpoint_print(const char *origin, uint64_t size, const unsigned char root[32],
                     const struct secret_key *k, struct buf *out, struct err *e) {
    int rc = origin_check(origin, e);
    if (rc)
        return rc;
    size_t start = out->n;
    unsigned char signature[68];
    buf_printf(out, "%s\n%" PRIu64 "\n", origin, size);
    base64_encode(root, 32, out);
    buf_putc(out, '\n');
    if ((rc = buf_check(out, "the checkpoint", e)))
        return rc;
    key_hash(origin, strlen(origin), secret_key_public(k)->raw, signature);
    key_sign(k, out->p + start, out->n - start, signature + 4);
    buf_printf(out, "\n" EM_DASH " %s ", origin);
    base64_encode(signature, sizeof signature, out);
    buf_putc(out, '\n');
    return buf_check(out, "the checkpoint", e);
}

int checkpoint_vkey(const char *origin, const struct public_key *k, struct buf *out) {
    struct err e;
    unsigned char hash[4], key[33] = {1};
    char hex[9];
    if (origin_check(origin, NULL))
        return ASSAY_EUSAGE;
    memcpy(key + 1, k->raw, 32);
    key_hash(origin, strlen(origin), k->raw, hash);
    hex_encode(hash, sizeof hash, hex);
    buf_printf(out, "%s+%s+", origin, hex);
    base64_encode(key, sizeof key, out);
    return buf_check(out, "the verifier key", &e);
}

/* A note's base64 is the standard alphabet with padding, unlike an envelope's: decode, encode,
 * compare. want: exact length, 0 = at least 5 bytes. */
static bool strict_base64(const char *s, size_t n, unsigned char *out, size_t room, size_t want,
                          size_t *got) {
    struct buf bytes, again;
    buf_init(&bytes, room);
    buf_init(&again, NOTE_MAX_BYTES);
    bool ok = base64_decode(s, n, &bytes, NULL) == 0;
    if (ok) {
        base64_encode(bytes.p, bytes.n, &again);
        ok = again.n == n && memcmp(again.p, s, n) == 0 && (want ? bytes.n == want : bytes.n > 4);
    }
    if (ok && out)
        memcpy(out, bytes.p, bytes.n);
    if (got)
        *got = bytes.n;
    buf_release(&bytes);
    buf_release(&again);
    return ok;
}

struct vkey {
    const char *name;
    size_t n;
    unsigned char hash[4];
    struct public_key key;
};

static int vkey_parse(const char *text, struct vkey *v, struct err *e) {
    const char *plus = strchr(text, '+');
    const char *second = plus ? strchr(plus + 1, '+') : NULL;
    unsigned char key[33], hash[4];
    char hex[9] = "";
    *v = (struct vkey){.name = text, .n = plus ? (size_t)(plus - text) : 0};
    if (!second || second - plus != 9 || !key_name_valid(text, v->n))
        return err_set(e, ASSAY_EINPUT, "verifier key: expected 'name+8 hex digits+base64'");
    memcpy(hex, plus + 1, 8);
    if (hex_decode(hex, 4, v->hash))
        return err_set(e, ASSAY_EINPUT, "verifier key: expected 8 hex digits after the name");
    if (!strict_base64(second + 1, strlen(second + 1), key, sizeof key, sizeof key, NULL) ||
        key[0] != 1)
        return err_set(e, ASSAY_EINPUT, "verifier key: expected base64 of an Ed25519 key");
    if (public_key_from_raw(key + 1, &v->key, e))
        return err_wrap(e, "verifier key");
    key_hash(v->name, v->n, v->key.raw, hash);
    if (memcmp(hash, v->hash, 4) != 0)
        return err_set(e, ASSAY_EINPUT, "verifier key: the hash does not belong to name and key");
    return 0;
}

/* The next line without its newline; false at the end or when the newline is missing. */
static bool line_next(const char **p, const char *end, struct str *line) {
    const char *nl = *p < end ? memchr(*p, '\n', (size_t)(end - *p)) : NULL;
    if (!nl)
        return false;
    *line = (struct str){.p = *p, .n = (size_t)(nl - *p)};
    *p = nl + 1;
    return true;
}

static bool size_parse(struct str s, uint64_t *size) {
    uint64_t v = 0;
    if (!s.n || s.n > 20 || (s.p[0] == '0' && s.n > 1))
        return false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9' || __builtin_mul_overflow(v, UINT64_C(10), &v) ||
            __builtin_add_overflow(v, (uint64_t)(s.p[i] - '0'), &v))
            return false;
    }
    *size = v;
    return true;
}

/* Origin, size, root, then extension lines that we do not read. */
static int body_parse(const char *p, const char *end, const struct vkey *key, uint64_t *size,
                      unsigned char root[32], struct err *e) {
    struct str line;
    if (!line_next(&p, end, &line) || line.n != key->n || memcmp(line.p, key->name, key->n) != 0)
        return err_set(e, ASSAY_EINPUT, "checkpoint: the origin is not '%.*s'", (int)key->n,
                       key->name);
    if (!line_next(&p, end, &line) || !size_parse(line, size))
        return err_set(e, ASSAY_EINPUT, "checkpoint: expected the tree size in line 2");
    if (!line_next(&p, end, &line) || !strict_base64(line.p, line.n, root, 32, 32, NULL))
        return err_set(e, ASSAY_EINPUT, "checkpoint: expected base64 of the root in line 3");
    while (line_next(&p, end, &line))
        if (!line.n)
            return err_set(e, ASSAY_EINPUT, "checkpoint: empty extension line");
    return 0;
}

/* One signature line. *ours: made by the key we look for, and then *ok says whether it verifies. */
static int signature_check(struct str line, const char *text, size_t n, const struct vkey *key,
                           bool *ours, bool *ok, struct err *e) {
    static const char dash[] = EM_DASH " ";
    size_t nd = sizeof dash - 1;
    unsigned char raw[8192];
    size_t got = 0;
    *ours = *ok = false;
    const char *name = line.p + nd;
    const char *space =
        line.n > nd && memcmp(line.p, dash, nd) == 0 ? memchr(name, ' ', line.n - nd) : NULL;
    size_t name_n = space ? (size_t)(space - name) : 0;
    if (!name_n || !strict_base64(space + 1, line.n - nd - name_n - 1, raw, sizeof raw, 0, &got))
        return err_set(e, ASSAY_EINPUT, "checkpoint: malformed signature line");
    *ours =
        name_n == key->n && memcmp(name, key->name, name_n) == 0 && memcmp(raw, key->hash, 4) == 0;
    *ok = *ours && got == 68 && key_verify(&key->key, text, n, raw + 4);
    return 0;
}

int checkpoint_check(const char *note, size_t n, const char *vkey, uint64_t *size,
                     unsigned char root[32], struct err *e) {
    struct vkey key;
    int rc = vkey_parse(vkey, &key, e);
    if (rc)
        return rc;
    if (n > NOTE_MAX_BYTES)
        return err_set(e, ASSAY_EINPUT, "checkpoint: larger than the limit of %d bytes",
                       (int)NOTE_MAX_BYTES);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)note[i] < 0x20 && note[i] != '\n')
            return err_set(e, ASSAY_EINPUT, "checkpoint: control character at offset %zu", i);
    /* The last empty line parts text and signatures; the text keeps its own newline. */
    const char *p = NULL, *end = note + n;
    for (size_t i = n; i > 1 && !p; i--)
        if (note[i - 1] == '\n' && note[i - 2] == '\n')
            p = note + i;
    if (!p || p == end || end[-1] != '\n')
        return err_set(e, ASSAY_EINPUT, "checkpoint: no signature lines");
    size_t text_n = (size_t)(p - note) - 1;
    bool verified = false;
    struct str line;
    for (int i = 0; line_next(&p, end, &line); i++) {
        bool ours, ok;
        if (i == NOTE_SIGNATURES_MAX)
            return err_set(e, ASSAY_EINPUT, "checkpoint: more than %d signatures",
                           (int)NOTE_SIGNATURES_MAX);
        if ((rc = signature_check(line, note, text_n, &key, &ours, &ok, e)))
            return rc;
        if (ours && !ok)
            return err_set(e, ASSAY_ENEGATIVE,
                           "checkpoint: the signature of '%.*s' does not verify", (int)key.n,
                           key.name);
        verified = verified || ok;
    }
    if (!verified)
        return err_set(e, ASSAY_ENEGATIVE, "checkpoint: not signed by '%.*s'", (int)key.n,
                       key.name);
    return body_parse(note, note + text_n, &key, size, root, e);
}
