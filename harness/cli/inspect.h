/* What each kind of file holds, as facts. */
#ifndef HARNESS_CLI_INSPECT_H
#define HARNESS_CLI_INSPECT_H

#include "harness/core/arena.h"
#include "harness/core/err.h"

#include <jansson.h>
#include <stdio.h>

enum inspect_kind {
    INSPECT_AUTO,
    INSPECT_WORKLOAD,
    INSPECT_TRACE,
    INSPECT_CHIP,
    INSPECT_MODEL,
    INSPECT_RULES,
    INSPECT_TOKENIZER,
    INSPECT_HLO,
};

/* name: a path, or the name of something that ships. text: what a tokenizer shall encode, or NULL; an
 * error with any other kind. *out: {"kind","name",…facts}, new reference.
 * A file that the harness would refuse is refused here with the same message. */
int inspect_describe(const char *name, enum inspect_kind kind, const char *text, json_t **out,
                     struct err *e) MUST_USE;

/* The same object for people. */
void inspect_print(const json_t *facts, struct arena *a, FILE *out);

#endif
