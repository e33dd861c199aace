/* Canonical JSON (RFC 8785) and the project's stricter profile. Source: certification.md section 3. */
#ifndef RESULTS_JCS_H
#define RESULTS_JCS_H

#include "harness/core/buf.h"
#include "harness/core/err.h"

#include <jansson.h>
#include <stddef.h>

/* ECMAScript Number::toString; out: at least 32 bytes. NaN and infinities are errors. */
int jcs_number(double v, char out[32], struct err *e) MUST_USE;

/* Appends the canonical bytes of v to out (initialised by the caller).
 * Integers beyond +/-(2^53-1), depth > 64, names > 255 bytes, > 10,000 members: ASSAY_EINPUT. */
int jcs_encode(const json_t *v, struct buf *out, struct err *e) MUST_USE;

/* Parses under the profile (I-JSON, no duplicates, 2^53 rule, limits). max 1 MiB. */
int jcs_parse(const char *text, size_t n, const char *name, json_t **out, struct err *e) MUST_USE;

/* SHA-256 of the canonical bytes. */
int jcs_sha256(const json_t *v, unsigned char digest[32], struct err *e) MUST_USE;

#endif
