/* The describing functions, one a kind; rows of the table in inspect_kinds.c. */
#ifndef HARNESS_CLI_INSPECT_INTERNAL_H
#define HARNESS_CLI_INSPECT_INTERNAL_H

#include "harness/core/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Each adds facts to the object; name is a path or what ships. */
int inspect_workload(const char *name, json_t *facts, struct err *e) MUST_USE;
int inspect_trace(const char *name, json_t *facts, struct err *e) MUST_USE;
int inspect_chip(const char *name, json_t *facts, struct err *e) MUST_USE;
int inspect_model(const char *name, json_t *facts, struct err *e) MUST_USE;
int inspect_tokenizer(const char *name, json_t *facts, struct err *e) MUST_USE;
/* … and the ids of a text, when it is not NULL. */
int inspect_tokenizer_text(const char *name, const char *text, json_t *facts,
                           struct err *e) MUST_USE;
int inspect_hlo(const char *name, json_t *facts, struct err *e) MUST_USE;

/* True when the head of a file that is no JSON object looks like a trace that can be read. */
bool inspect_is_trace(const char *path);

/* True when a file's name or its first word is that of HLO text. */
bool inspect_is_hlo(const char *path);

/* {"mean","p50","p90","p99","max"} of n > 0 values, by nearest rank; sorts them. New reference. */
json_t *inspect_spread(int64_t *v, size_t n);

#endif
