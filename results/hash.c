/* SHA-256 through libcrypto, and the two text forms of bytes. Running out of memory inside a digest
 * aborts: a hash that cannot be computed must never look like one that was. */
#include "results/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static EVP_MD *sha256_md;
static pthread_once_t sha256_once = PTHREAD_ONCE_INIT;

/* Fetched once: EVP_sha256() would look the provider up again in every call (OpenSSL 3). */
static void sha256_fetch(void) {
    sha256_md = EVP_MD_fetch(NULL, "SHA256", NULL);
}

static const EVP_MD *sha256_get(void) {
    pthread_once(&sha256_once, sha256_fetch);
    return sha256_md;
}

static void must(int ok) {
    if (ok == 1)
        return;
    fputs("assay: error: libcrypto cannot compute SHA-256\n", stderr);
    abort();
}

void sha256(const void *p, size_t n, unsigned char out[32]) {
    must(EVP_Digest(p, n, out, NULL, sha256_get(), NULL));
}

struct sha256_stream {
    EVP_MD_CTX *ctx;
};

struct sha256_stream *sha256_new(void) {
    struct sha256_stream *s = malloc(sizeof *s);
    must(s != NULL);
    s->ctx = EVP_MD_CTX_new();
    must(s->ctx != NULL);
    must(EVP_DigestInit_ex(s->ctx, sha256_get(), NULL));
    return s;
}

void sha256_add(struct sha256_stream *s, const void *p, size_t n) {
    must(EVP_DigestUpdate(s->ctx, p, n));
}

void sha256_finish(struct sha256_stream *s, unsigned char out[32]) {
    must(EVP_DigestFinal_ex(s->ctx, out, NULL));
    EVP_MD_CTX_free(s->ctx);
    free(s);
}

int sha256_file(const char *path, unsigned char out[32], struct err *e) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(e, ASSAY_EENV, errno, "cannot open '%s'", path);
    int rc = 0;
    struct sha256_stream *s = sha256_new();
    unsigned char block[64 * 1024];
    for (;;) {
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = err_errno(e, ASSAY_EENV, errno, "cannot read '%s'", path);
        if (n <= 0)
            break;
        sha256_add(s, block, (size_t)n);
    }
    sha256_finish(s, out);
    close(fd);
    return rc;
}

void hex_encode(const unsigned char *p, size_t n, char *out) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[p[i] >> 4];
        out[2 * i + 1] = digits[p[i] & 15];
    }
    out[2 * n] = '\0';
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

int hex_decode(const char *hex, size_t n, unsigned char *out) {
    for (size_t i = 0; i < n; i++) {
        int hi = hex_value(hex[2 * i]);
        int lo = hi < 0 ? -1 : hex_value(hex[2 * i + 1]); /* never past the terminator */
        if (lo < 0)
            return ASSAY_EINPUT;
        out[i] = (unsigned char)(hi << 4 | lo);
    }
    return hex[2 * n] == '\0' ? 0 : ASSAY_EINPUT;
}

static const char base64_std[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(const void *p, size_t n, struct buf *out) {
    const unsigned char *in = p;
    if (n > SIZE_MAX / 2) {
        out->failed = true;
        return;
    }
    size_t full = n / 3, chars = (n + 2) / 3 * 4;
    char *to = buf_reserve(out, chars);
    if (!to)
        return;
    char *q = to;
    for (size_t i = 0; i < full; i++, in += 3) {
        *q++ = base64_std[in[0] >> 2];
        *q++ = base64_std[(in[0] & 3) << 4 | in[1] >> 4];
        *q++ = base64_std[(in[1] & 15) << 2 | in[2] >> 6];
        *q++ = base64_std[in[2] & 63];
    }
    if (n % 3 == 1) {
        *q++ = base64_std[in[0] >> 2];
        *q++ = base64_std[(in[0] & 3) << 4];
        *q++ = '=';
        *q++ = '=';
    } else if (n % 3 == 2) {
        *q++ = base64_std[in[0] >> 2];
        *q++ = base64_std[(in[0] & 3) << 4 | in[1] >> 4];
        *q++ = base64_std[(in[1] & 15) << 2];
        *q++ = '=';
    }
    out->n += chars;
    out->p[out->n] = '\0';
}

enum base64_alphabet { BASE64_EITHER, BASE64_STANDARD, BASE64_URL };

/* -1 for a character of neither alphabet, or of the other one than those before it. */
static int base64_value(unsigned char c, enum base64_alphabet *seen) {
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    enum base64_alphabet of = c == '+' || c == '/' ? BASE64_STANDARD : BASE64_URL;
    if ((c != '+' && c != '/' && c != '-' && c != '_') || (*seen != BASE64_EITHER && *seen != of))
        return -1;
    *seen = of;
    return c == '+' || c == '-' ? 62 : 63;
}

int base64_decode(const char *s, size_t n, struct buf *out, struct err *e) {
    size_t chars = n;
    if (n % 4 == 0 && n > 0 && s[n - 1] == '=')
        chars -= s[n - 2] == '=' ? 2 : 1;
    size_t rest = chars % 4;
    if (rest == 1)
        return err_set(e, ASSAY_EINPUT, "base64: %zu characters cannot be whole bytes", chars);
    size_t bytes = chars / 4 * 3 + (rest ? rest - 1 : 0);
    char *to = buf_reserve(out, bytes);
    if (!to)
        return buf_check(out, "base64", e);
    enum base64_alphabet seen = BASE64_EITHER;
    uint32_t bits = 0;
    unsigned have = 0;
    char *q = to;
    int rc = 0;
    for (size_t i = 0; i < chars; i++) {
        int v = base64_value((unsigned char)s[i], &seen);
        if (v < 0) {
            rc = err_set(e, ASSAY_EINPUT, "base64: unexpected byte 0x%02x at offset %zu",
                         (unsigned)(unsigned char)s[i], i);
            goto out;
        }
        bits = bits << 6 | (uint32_t)v;
        have += 6;
        if (have >= 8) {
            have -= 8;
            *q++ = (char)(bits >> have & 255);
        }
    }
    if (have && (bits & ((1u << have) - 1)))
        rc = err_set(e, ASSAY_EINPUT, "base64: bits left over at the end are not zero");
    else
        out->n += bytes;
out:
    out->p[out->n] = '\0'; /* nothing was appended when rc is set */
    return rc;
}
