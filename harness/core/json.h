/* JSON on the way in: jansson with our limits and our messages. (On the way out to signatures:
 * results/jcs.h. Never on a hot path.) */
#ifndef HARNESS_CORE_JSON_H
#define HARNESS_CORE_JSON_H

#include "harness/core/err.h"

#include <jansson.h>
#include <stddef.h>

enum { JSON_FILE_MAX_BYTES = 64 * 1024 * 1024 };

/* Duplicate names, trailing bytes, BOM, invalid UTF-8 are errors `name:line:column: …`.
 * Returns a new reference in *out. name: for messages. */
int json_parse(const char *text, size_t n, const char *name, json_t **out, struct err *e) MUST_USE;
int json_parse_file(const char *path, json_t **out, struct err *e) MUST_USE;

/* "a string", "an integer", … for messages. */
const char *json_kind(const json_t *v);

/* A short printable rendering of a value for "found …" (at most 40 characters). */
void json_excerpt(const json_t *v, char *out, size_t out_bytes);

/* Sets the value at a dotted path ("load.rate_per_s", "sessions.turns.mean"), creating objects on the
 * way; value text is parsed as JSON when it is JSON, else taken as a string. */
int json_set_path(json_t *root, const char *path, const char *value, struct err *e) MUST_USE;

#endif
