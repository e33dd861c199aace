/* argv to a verb's options, by the rows of its tables. */
#ifndef HARNESS_CLI_ARGS_H
#define HARNESS_CLI_ARGS_H

#include "harness/cli/verb.h"

/* argv: what follows the verb. options: v->options_size zeroed bytes; begins with struct common
 * whose arena keeps what is parsed. `--name value`, `--name=value`, `-j 4`, `-j4`; `--` ends the
 * options. With --help nothing else is required. Bad use: ASSAY_EUSAGE. */
int args_parse(const struct verb *v, int argc, const char *const *argv, void *options,
               struct err *e) MUST_USE;

/* Appends s to l, growing it in the arena; false when memory runs out. */
bool strings_add(struct strings *l, const char *s, struct arena *a);

/* The row called name among a verb's tables, NULL when there is none. */
const struct option *args_row(const struct verb *v, const char *name);
/* The i-th row of a verb over all its tables, --help last; NULL past the end. */
const struct option *args_row_at(const struct verb *v, size_t i);

/* The short letter of an option's name, 0 when it has none. */
char args_letter(const char *name);
/* What help calls the value: "N", "FILE", "a|b"; NULL for a switch. buf: room for an enum's words.
 */
const char *args_value_word(const struct option *row, char *buf, size_t n);
/* Where in a workload's JSON the option of this name writes ("load.pattern"); NULL = nowhere. */
const char *args_override_path(const char *name);

/* Writes "; did you mean 'a' or 'b'?" for the candidates near to name: those it begins, and the
 * nearest by edit distance. Empty when none is near. */
void args_near(const char *name, const char *const *candidates, size_t n, char *out, size_t out_n);

#endif
