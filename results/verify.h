/* Verification of a stored run, of an envelope file, or of the whole store.
 * Order and outcomes: certification.md sections 7 and 10. Nothing stops at the first failure. */
#ifndef RESULTS_VERIFY_H
#define RESULTS_VERIFY_H

#include "harness/core/err.h"
#include "results/store.h"

#include <jansson.h>

enum verify_outcome {
    VERIFY_OK,
    VERIFY_UNTRUSTED,
    VERIFY_INVALID,
    VERIFY_EXPIRED,
    VERIFY_REVOKED,
    VERIFY_INCOMPLETE,
    VERIFY_MISMATCH,
    VERIFY_REGISTER
};
const char *verify_outcome_name(enum verify_outcome o);

/* trusted: keys that count (the machine's own runner key and those of `key trust`); the store's own
 * key table is never trusted by itself. report: new reference,
 *   {"run","outcome","trust","signers":[{"keyid","status"}],"checks":[{"check","ok","detail"}],
 *    "campaign":{"name","started":k,"valid":n,"invalid","aborted","open","metric","rank":j,"text"},
 *    "class","chip","chips","verdict","record_sha256","register":{"size","root"}}. Returns 0 when
 * the report could be made, whatever its outcome. */
int verify_run(struct store *s, const char *ref, const struct public_key *trusted, int ntrusted,
               enum verify_outcome *outcome, json_t **report, struct err *e) MUST_USE;
/* An envelope file alone: signature, canonical bytes, statement; INCOMPLETE when the log is not
 * there. */
int verify_file(const char *path, const struct public_key *trusted, int ntrusted,
                enum verify_outcome *outcome, json_t **report, struct err *e) MUST_USE;
/* The register against a checkpoint (signed note) that was kept elsewhere: it must extend it.
 * REGISTER when entries were removed or changed since, INVALID when the note is not vkey's. */
int verify_checkpoint(struct store *s, const char *note, size_t n, const char *vkey,
                      enum verify_outcome *outcome, json_t **report, struct err *e) MUST_USE;
/* Register (chain, Merkle, density, times), every run, rows against payloads. */
int verify_store(struct store *s, const struct public_key *trusted, int ntrusted,
                 enum verify_outcome *outcome, json_t **report, struct err *e) MUST_USE;

#endif
