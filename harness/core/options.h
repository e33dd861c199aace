/* Tables of typed fields. One row parses `-o key=value`, reads the same field from JSON, checks range,
 * prints help, writes the effective value back as JSON and documents itself. Command-line options,
 * backend options, workload files, chip files and rule packs all go through such rows, so that bad
 * input is reported in one way: file, place (JSON pointer or option), expectation, finding. */
#ifndef HARNESS_CORE_OPTIONS_H
#define HARNESS_CORE_OPTIONS_H

#include "harness/core/arena.h"
#include "harness/core/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum option_type {
    OPT_END = 0,
    OPT_BOOL,     /* bool; true/false, on/off, yes/no, 1/0; bare key = true on the command line */
    OPT_I64,      /* int64_t */
    OPT_U64,      /* uint64_t; JSON: integer or decimal string (seeds beyond 2^53) */
    OPT_F64,      /* double, finite */
    OPT_STR,      /* const char *, copied into the arena */
    OPT_ENUM,     /* int, an index into choices */
    OPT_DURATION, /* int64_t ns: "600s", "1.5ms", "20us", "3min", "2h", "100ns"; JSON: such a string */
    OPT_BYTES,    /* int64_t bytes: "64KiB", "1.5GB", plain number */
    OPT_JSON,     /* const json_t *, borrowed from the document: for nested parts read by hand */
};

enum option_flags {
    OPTION_REQUIRED = 1 << 0, /* must be present (JSON) or set (command line) */
    OPTION_SECRET = 1 << 1,   /* never written by options_to_json, never in a log or record */
    OPTION_HIDDEN = 1 << 2,   /* not in help */
};

struct option {
    const char *name; /* as typed and as in JSON */
    enum option_type type;
    size_t offset;       /* of the field in the caller's struct */
    const char *unit;    /* "1/s", "tokens", …; NULL when it has none */
    double min, max;     /* inclusive range for numbers; both 0 = unchecked (unsigned types: >= 0) */
    const char *def;     /* default, parsed like a command-line value; NULL = field left zero */
    const char *const *choices; /* OPT_ENUM: NULL-terminated */
    unsigned flags;
    const char *help;
};

/* Sets every field of the table that has a default. Programmer errors in a default abort. */
void options_defaults(const struct option *table, void *object, struct arena *a);

/* Sets one field from text. Unknown keys are errors that name the nearest ones.
 * where: how messages call the place, e.g. "-o" or "--set". Returns ASSAY_EUSAGE on bad input. */
int options_set(const struct option *table, void *object, const char *key, const char *value,
                const char *where, struct arena *a, struct err *e) MUST_USE;

/* Same from "key=value"; a bare "key" is allowed for OPT_BOOL. */
int options_set_pair(const struct option *table, void *object, const char *pair, const char *where,
                     struct arena *a, struct err *e) MUST_USE;

/* Reads a JSON object. file and pointer name the place ("chat.json", "/load"); pointer "" = the top.
 * Missing required, wrongly typed, out of range and unknown members are ASSAY_EINPUT errors.
 * Members whose name begins with '$' or equals "comment" or "source_note" are ignored. */
int options_from_json(const struct option *table, void *object, const json_t *json,
                      const char *file, const char *pointer, struct arena *a,
                      struct err *e) MUST_USE;

/* The effective values as a new JSON object (caller decrefs); NULL when memory runs out.
 * OPT_STR NULL and OPT_JSON fields are left out; integers beyond 2^53-1 are strings. */
json_t *options_to_json(const struct option *table, const void *object);

/* " (an integer in 1..64, chips; default 1)": type, range, unit and default for help; "" when there is
 * nothing to say. */
void options_remarks(const struct option *row, char *out, size_t bytes);

/* The candidate nearest to name by edit distance, NULL when none is near. For "did you mean". */
const char *nearest_name(const char *name, const char *const *candidates, size_t n);

/* Text to numbers with units, exposed for other parsers. Return 0 or ASSAY_EINPUT (no message). */
int parse_duration_ns(const char *s, int64_t *ns) MUST_USE;
int parse_bytes(const char *s, int64_t *bytes) MUST_USE;
int parse_i64(const char *s, int64_t *v) MUST_USE;
int parse_u64(const char *s, uint64_t *v) MUST_USE;
int parse_f64(const char *s, double *v) MUST_USE;

#endif
