/* Error values: formatting and context. No I/O. */
#include "harness/core/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Messages quote files, endpoints and arguments of anybody's: what a terminal would obey becomes '?'.
 * Control characters and, as UTF-8 writes them, those of 0x80..0x9f; a line's end and a tab stay. */
static void defuse(char *text) {
    for (unsigned char *p = (unsigned char *)text; *p; p++) {
        if ((*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7f)
            *p = '?';
        else if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f)
            p[0] = p[1] = '?';
    }
}

PRINTF_LIKE(5, 0)
static void err_vset(struct err *e, int code, const char *file, int line, const char *fmt,
                     va_list ap) {
    e->code = code;
    e->file = file;
    e->line = line;
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    defuse(e->text);
}

int err_set_at(struct err *e, int code, const char *file, int line, const char *fmt, ...) {
    if (!e)
        return code;
    va_list ap;
    va_start(ap, fmt);
    err_vset(e, code, file, line, fmt, ap);
    va_end(ap);
    return code;
}

int err_errno_at(struct err *e, int code, int errnum, const char *file, int line, const char *fmt,
                 ...) {
    if (!e)
        return code;
    va_list ap;
    va_start(ap, fmt);
    err_vset(e, code, file, line, fmt, ap);
    va_end(ap);
    size_t n = strlen(e->text);
    char why[128];
    snprintf(e->text + n, sizeof e->text - n, ": %s", strerror_r(errnum, why, sizeof why));
    return code;
}

int err_wrap(struct err *e, const char *fmt, ...) {
    if (!e)
        return ASSAY_EENV;
    char old[sizeof e->text];
    memcpy(old, e->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof e->text)
        snprintf(e->text + n, sizeof e->text - (size_t)n, ": %s", old);
    defuse(e->text);
    return e->code;
}

void err_clear(struct err *e) {
    if (e)
        *e = (struct err){0};
}

int err_exit_code(int code) {
    switch (code) {
    case 0:
        return 0;
    case ASSAY_ENEGATIVE:
        return 1;
    case ASSAY_EUSAGE:
    case ASSAY_EINPUT:
        return 2;
    case ASSAY_EINTERRUPTED:
        return 4;
    default:
        return 3;
    }
}
