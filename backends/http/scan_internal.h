/* What the key scan's files share: the reader of JSON values and the tables of event types. */
#ifndef BACKENDS_HTTP_SCAN_INTERNAL_H
#define BACKENDS_HTTP_SCAN_INTERNAL_H

#include "backends/http/scan.h"

struct scanner {
    const char *p, *end;
    struct scan *out;
    enum scan_result failure; /* why a function returned false */
    int64_t index;            /* of the choice that is being read */
};

/* Readers return false with s->failure set. */
typedef bool value_fn(struct scanner *s);

struct key_row {
    const char *name;
    size_t length;
    value_fn *read;
};
#define KEY(name, read)                                                                            \
    { name, sizeof name - 1, read }

/* Rows of a table of keys: a bit each tells which were seen. */
enum { SCAN_KEY_ROWS_MAX = 16 };

enum { SCAN_OUTPUT = SCAN_CONTENT | SCAN_REASONING | SCAN_REFUSAL | SCAN_TOOL_CALL };

/* scan.c: values. `slow` gives up in favour of the tree. */
bool scan_slow(struct scanner *s);
char scan_peek(struct scanner *s); /* the next byte that is no space, or 0 at the end */
bool scan_skip_value(struct scanner *s);
bool scan_take_string(struct scanner *s, struct str *raw, bool *escaped); /* at its quote */
/* An object whose keys are looked up in rows, which end with {0}. */
bool scan_object(struct scanner *s, const struct key_row *rows);
bool scan_object_or_null(struct scanner *s, const struct key_row *rows);
bool scan_array_or_null(struct scanner *s, value_fn *element);
bool scan_nonempty(struct scanner *s, bool *any); /* a string or null of output; raises *any */
bool scan_count(struct scanner *s, int64_t *out); /* >= 0, or null */
bool scan_error(struct scanner *s);
bool scan_model(struct scanner *s);
bool scan_object_kind(struct scanner *s); /* a string that is exactly "error" marks an error */
bool scan_end(struct scanner *s);         /* nothing but space is left */

/* scan_typed.c: events whose `type` says what they are. What an event means is resolved when all of it
 * was read, since its keys may stand in any order: the flags found under its keys, each kind of key in
 * a set of its own, and of each set what the type's row lets through. */
struct scan_found {
    unsigned delta; /* under `delta` */
    unsigned block; /* under `item` or `content_block` */
    unsigned whole; /* of a document that is no event, and incomplete_details */
};

struct scan_type {
    const char *word;
    size_t length;
    unsigned always;
    struct scan_found lets;
};

/* p = NULL: the event has no type. Types that mean nothing here have a row that lets nothing through. */
const struct scan_type *scan_type_of(enum scan_dialect d, const char *p, size_t n);
unsigned scan_resolve(const struct scan_type *type, const struct scan_found *found);
unsigned scan_status_flags(const char *p, size_t n);      /* of a response: completed, failed, … */
unsigned scan_stop_flags(const char *p, size_t n);        /* a stop_reason */
bool scan_is_call(enum scan_dialect d, const char *p, size_t n); /* type of an item that is a call */

enum scan_result scan_typed(enum scan_dialect d, const char *p, size_t n, struct scan *out);

#endif
