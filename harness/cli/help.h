/* What the rows of the verb table look like to a reader: help text, man page, shell completion. */
#ifndef HARNESS_CLI_HELP_H
#define HARNESS_CLI_HELP_H

#include "harness/cli/verb.h"

#include <stdio.h>

/* Rows that help and man page share. */
struct help_row {
    const char *name, *text;
};
extern const struct help_row help_exits[];       /* ends with {0} */
extern const struct help_row help_environment[]; /* ends with {0} */
extern const struct help_row help_files[];       /* ends with {0} */
extern const char help_tagline[];

void help_overview(FILE *out);
void help_verb(const struct verb *v, FILE *out);
void help_man(FILE *out);
void help_completion_bash(FILE *out);

/* "12 tok/s", "default 4", "1..64": what follows an option's help; "" when nothing does. */
void help_remarks(const struct option *row, char *out, size_t n);

extern const struct verb verb_help;

#endif
