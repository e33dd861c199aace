/* DSSE v1.0.2 envelopes. Source: certification.md section 4. */
#ifndef RESULTS_DSSE_H
#define RESULTS_DSSE_H

#include "harness/core/buf.h"
#include "harness/core/err.h"
#include "results/key.h"

#include <stddef.h>

enum { DSSE_SIGNATURES_MAX = 16, DSSE_PAYLOAD_MAX_BYTES = 1024 * 1024 };
#define DSSE_PAYLOAD_TYPE "application/vnd.in-toto+json"

void dsse_pae(const char *type, size_t type_n, const void *body, size_t n, struct buf *out);

struct dsse_signature {
    char keyid[KEYID_BYTES]; /* unauthenticated hint, "" when absent */
    unsigned char sig[64];
};
struct dsse {
    char payload_type[128];
    struct buf payload; /* decoded bytes: what is verified is what is parsed */
    struct dsse_signature sig[DSSE_SIGNATURES_MAX];
    int nsig;
};
/* Limits first, then structure; unknown members are ignored and never read. */
int dsse_parse(const char *text, size_t n, const char *name, struct dsse *out, struct err *e) MUST_USE;
void dsse_release(struct dsse *d);

int dsse_sign(const char *payload_type, const void *payload, size_t n, const struct secret_key *k,
              struct dsse_signature *out, struct err *e) MUST_USE;

/* How many *distinct* keys of trusted[] signed; matched[i] set for each. */
int dsse_verify(const struct dsse *d, const struct public_key *trusted, int ntrusted, bool *matched,
                int *distinct, struct err *e) MUST_USE;

/* The JSON form. */
int dsse_print(const char *payload_type, const void *payload, size_t n,
               const struct dsse_signature *sig, int nsig, struct buf *out, struct err *e) MUST_USE;

#endif
