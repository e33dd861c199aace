/* The command line's one table. A verb is one file and one row; its options are rows of tables that
 * verbs share by reference. Parsing, `assay help`, `assay VERB --help`, the man page and the shell
 * completion all read these rows and nothing else.
 *
 * The row of an option is a `struct option` (harness/core/options.h) read a little differently
 * here: `unit` is what help shows for the value (FILE, NAME, RATE); empty, the type's own word. */
#ifndef HARNESS_CLI_VERB_H
#define HARNESS_CLI_VERB_H

#include "harness/core/arena.h"
#include "harness/core/err.h"
#include "harness/core/options.h"

#include <stdbool.h>
#include <stddef.h>

/* Beside enum option_flags. */
enum cli_flags {
    CLI_LIST = 1 << 16,     /* may be repeated; the field is a struct strings */
    CLI_OVERRIDE = 1 << 17, /* the value is checked by the row's type, then appended to
                               common.overrides as "PATH=value", see args_override_path */
};

/* Texts in the order they were typed; borrowed from argv or from the arena. */
struct strings {
    const char **v;
    int n, cap;
};

/* The first member of every verb's options: what all of them know. */
struct common {
    bool help, json, quiet, no_progress;
    const char *db;
    struct strings args;      /* positional arguments */
    struct strings overrides; /* "json.path=value": --set and the named overrides, as typed */
    struct arena arena;
    const struct verb *verb;
};

struct verb {
    const char *name;
    const char *usage;      /* arguments, as help shows them: "WORKLOAD" */
    const char *summary;    /* one line */
    const char *about;      /* paragraphs apart by an empty line; for --help and the man page */
    const char *examples;   /* "command\n" lines, a comment line begins with '#' */
    int args_min, args_max; /* positional arguments; max -1 = any number */
    size_t options_size;    /* of a struct that begins with struct common */
    const struct option *const *options; /* tables, own first; ends with NULL */
    bool backends;                       /* help lists the backends and their own options too */
    int (*run)(void *options, struct err *e); /* 0 or ASSAY_E*; results on stdout */
};

extern const struct verb *const verb_all[];     /* in the contract's order; ends with NULL */
const struct verb *verb_find(const char *name); /* NULL when there is none */

/* Shared tables. */
extern const struct option common_output[]; /* --json */
extern const struct option common_store[];  /* --db */
extern const struct option common_help[];   /* --help; every verb has it without naming it */

/* Raised by SIGINT and SIGTERM once stop_install was called; a second signal ends the process as
 * the signal does by default. */
extern volatile int stop_flag;
void stop_install(void);

#endif
