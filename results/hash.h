/* SHA-256 (libcrypto EVP), hex and base64. */
#ifndef RESULTS_HASH_H
#define RESULTS_HASH_H

#include "harness/core/buf.h"
#include "harness/core/err.h"

#include <stddef.h>

enum { SHA256_BYTES = 32, SHA256_HEX = 65 };

void sha256(const void *p, size_t n, unsigned char out[32]);
struct sha256_stream; /* incremental */
struct sha256_stream *sha256_new(void);
void sha256_add(struct sha256_stream *s, const void *p, size_t n);
void sha256_finish(struct sha256_stream *s, unsigned char out[32]); /* frees s */
int sha256_file(const char *path, unsigned char out[32], struct err *e) MUST_USE;

void hex_encode(const unsigned char *p, size_t n, char *out); /* 2n+1 bytes, lower case */
int hex_decode(const char *hex, size_t n, unsigned char *out) MUST_USE; /* n bytes out, exact length */

void base64_encode(const void *p, size_t n, struct buf *out); /* standard alphabet, padded */
/* Accepts standard and URL-safe, missing padding; rejects other characters, newlines, non-zero
 * trailing bits. */
int base64_decode(const char *s, size_t n, struct buf *out, struct err *e) MUST_USE;

#endif
