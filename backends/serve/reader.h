/* Reading JSON without building a tree, private to this room: the callbacks of reader_array and
 * reader_object read exactly the value they are called at. Every function returns 0, or -1 with s->err
 * filled, and allocates nothing. */
#ifndef BACKENDS_SERVE_READER_H
#define BACKENDS_SERVE_READER_H

#include "backends/serve/serve_internal.h"

struct reader {
    const char *start, *p, *end;
    int depth;
    struct serve_error *err;
    const char *param; /* the top-level member being read, for messages */
    struct serve_request *out;
    struct prompt_hash *hash; /* NULL = not wanted */
};

/* A string's bytes as decoded: counted, and the first of them copied when to is given (NUL-ended;
 * what does not fit is cut, *bytes tells). */
struct text {
    char *to;
    size_t to_bytes, bytes;
    struct prompt_hash *hash;
};

typedef int element_fn(struct reader *s, size_t i, void *ctx);
typedef int member_fn(struct reader *s, const char *name, void *ctx);

static inline bool reader_at(const struct reader *s, char c) {
    return s->p < s->end && *s->p == c;
}
static inline bool reader_at_number(const struct reader *s) {
    return s->p < s->end && (*s->p == '-' || (*s->p >= '0' && *s->p <= '9'));
}

void reader_blanks(struct reader *s);
/* Set the error "not valid JSON at …" for a place, and "PARAM: expected …, found …" for the value here. */
int reader_malformed(struct reader *s, const char *at, const char *expected);
int reader_mistyped(struct reader *s, const char *expected);
const char *reader_kind(const struct reader *s); /* of the value here: "an object", … */

int reader_string(struct reader *s, struct text *t) MUST_USE;
/* *integer: it is one; its value saturates. */
int reader_number(struct reader *s, bool *integer, int64_t *value) MUST_USE;
/* Each calls back at the first byte of every element or value. */
int reader_array(struct reader *s, element_fn *element, void *ctx) MUST_USE;
int reader_object(struct reader *s, member_fn *member, void *ctx) MUST_USE;
int reader_skip(struct reader *s) MUST_USE;

#endif
