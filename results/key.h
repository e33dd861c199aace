/* Ed25519 keys (libsodium). Files: PKCS#8 PEM private (mode 0600 enforced), SPKI PEM public.
 * Key id: "sha256:" + hex SHA-256 of the SPKI DER. Source: certification.md section 7. */
#ifndef RESULTS_KEY_H
#define RESULTS_KEY_H

#include "harness/core/err.h"

#include <stdbool.h>
#include <stddef.h>

enum { KEYID_BYTES = 72 }; /* with NUL */

struct public_key {
    unsigned char raw[32];
    char keyid[KEYID_BYTES];
};
struct secret_key; /* in sodium_malloc memory */

/* Small-order and non-canonical keys are refused (VEC ed25519_strictness). */
int public_key_from_raw(const unsigned char raw[32], struct public_key *k, struct err *e) MUST_USE;
int public_key_from_pem(const char *pem, size_t n, const char *name, struct public_key *k,
                        struct err *e) MUST_USE;
int public_key_load(const char *path, struct public_key *k, struct err *e) MUST_USE;
void public_key_to_pem(const struct public_key *k, char out[160]);

int secret_key_from_seed(const unsigned char seed[32], struct secret_key **k, struct err *e) MUST_USE;
/* Refuses group- or world-readable files and files of another owner (ASSAY_EENV). */
int secret_key_load(const char *path, struct secret_key **k, struct err *e) MUST_USE;
/* Makes a new key: path (0600) and path.pub; never overwrites. Temp file, fsync, rename. */
int secret_key_create(const char *path, struct secret_key **k, struct err *e) MUST_USE;
const struct public_key *secret_key_public(const struct secret_key *k);
void secret_key_free(struct secret_key *k); /* wiped */

/* The default runner key: $XDG_DATA_HOME/assay/keys/runner.pem (else ~/.local/share/…); made on first
 * use, *created says so. path receives where. */
int runner_key_load(const char *path_or_null, struct secret_key **k, bool *created,
                    char *path, size_t path_bytes, struct err *e) MUST_USE;

void key_sign(const struct secret_key *k, const void *msg, size_t n, unsigned char sig[64]);
bool key_verify(const struct public_key *k, const void *msg, size_t n, const unsigned char sig[64]);

#endif
