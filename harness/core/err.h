/* The one error idiom.
 *
 * A function that can fail returns 0 or a negative ASSAY_E* code; its answer goes through a last out
 * parameter. The detail is set once, at the origin, in a `struct err` that the caller owns, and gets
 * context in front as it travels up:
 *
 *     if (f(x, e))
 *         return err_wrap(e, "loading workload '%s'", path);
 *
 * A message is lower case, without a full stop: what failed first, the subject in single quotes, then
 * why. Parsers begin with the place: `x.json:12:34: expected '{', found 'ROOT'`, or
 * `x.json: at /load/rate: expected a number > 0, found "fast"`. */
#ifndef HARNESS_CORE_ERR_H
#define HARNESS_CORE_ERR_H

#include <stddef.h>

#define MUST_USE __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* Each code belongs to one exit code of the command line (err_exit_code). */
enum {
    ASSAY_ENEGATIVE = -1,    /* exit 1: done, the verdict is negative */
    ASSAY_EUSAGE = -2,       /* exit 2: wrong use of the command line or of an API */
    ASSAY_EINPUT = -3,       /* exit 2: a file, trace, option value or message is malformed */
    ASSAY_EENV = -4,         /* exit 3: endpoint unreachable, store locked or full, key missing */
    ASSAY_ENOMEM = -5,       /* exit 3 */
    ASSAY_EINTERRUPTED = -6, /* exit 4: a signal asked to stop; what was measured is stored */
};

struct err {
    int code; /* 0 or ASSAY_E* */
    const char *file;
    int line; /* origin in our source, shown with ASSAY_DEBUG=1 */
    char text[1024];
};

/* Sets code and text, and returns code, so that `return err_set(e, ...)` is the idiom.
 * e may be NULL: the code is returned all the same. */
#define err_set(e, code, ...) err_set_at((e), (code), __FILE__, __LINE__, __VA_ARGS__)
int err_set_at(struct err *e, int code, const char *file, int line, const char *fmt, ...)
    PRINTF_LIKE(5, 6);

/* As err_set, with ": strerror(errnum)" appended. */
#define err_errno(e, code, errnum, ...)                                                            \
    err_errno_at((e), (code), (errnum), __FILE__, __LINE__, __VA_ARGS__)
int err_errno_at(struct err *e, int code, int errnum, const char *file, int line, const char *fmt,
                 ...) PRINTF_LIKE(6, 7);

/* Puts "context: " before the text; returns e->code (ASSAY_EENV when e is NULL). */
int err_wrap(struct err *e, const char *fmt, ...) PRINTF_LIKE(2, 3);

void err_clear(struct err *e);

/* 0 for 0, else 1..4 as cli.md lists them. */
int err_exit_code(int code);

#endif
