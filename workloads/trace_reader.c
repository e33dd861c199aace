/* Bounded reading: a window of 1 MiB over a file or over memory that grows only when one row needs
 * it, up to TRACE_ROW_MAX_BYTES. */
#include "workloads/trace_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW_BYTES = 1 << 20 };

int reader_fault(const struct reader *r, uint64_t line, size_t column, struct err *e,
                 const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(e, ASSAY_EINPUT, "%s:%llu:%zu: %s", r->name, (unsigned long long)line, column,
                   text);
}

static int grow(struct reader *r, struct err *e) {
    size_t cap = r->cap ? r->cap * 2 : WINDOW_BYTES;
    if (cap > 2 * (size_t)TRACE_ROW_MAX_BYTES)
        return reader_fault(r, r->line, 1, e,
                            "expected rows of at most %d bytes, found a longer one",
                            TRACE_ROW_MAX_BYTES);
    if (r->fd < 0 && r->cap == 0 && r->mem_n < WINDOW_BYTES)
        cap = r->mem_n + 2;             /* small inputs from memory need no whole window */
    char *p = realloc(r->buf, cap + 1); /* + 1: a line at the end of file gets its NUL */
    if (!p)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    r->buf = p;
    r->cap = cap;
    return 0;
}

int reader_start(struct reader *r, struct err *e) {
    r->begin = r->end = 0;
    return grow(r, e);
}

int reader_more(struct reader *r, bool *got, struct err *e) {
    *got = false;
    if (r->eof)
        return 0;
    if (r->begin > 0 && (r->begin == r->end || r->end == r->cap)) {
        memmove(r->buf, r->buf + r->begin, r->end - r->begin);
        r->end -= r->begin;
        r->begin = 0;
    }
    if (r->end == r->cap) {
        int rc = grow(r, e);
        if (rc)
            return rc;
    }
    size_t room = r->cap - r->end, n;
    if (r->fd < 0) {
        n = r->mem_n < room ? r->mem_n : room;
        if (n)
            memcpy(r->buf + r->end, r->mem, n);
        r->mem += n;
        r->mem_n -= n;
    } else {
        ssize_t k;
        do
            k = read(r->fd, r->buf + r->end, room);
        while (k < 0 && errno == EINTR);
        if (k < 0)
            return err_errno(e, ASSAY_EINPUT, errno, "cannot read '%s'", r->name);
        n = (size_t)k;
    }
    if (r->seen && n)
        r->seen(r->seen_ctx, r->buf + r->end, n);
    r->end += n;
    r->eof = n == 0;
    *got = n > 0;
    return 0;
}

int reader_line(struct reader *r, char **line, size_t *n, bool *end, struct err *e) {
    size_t seen = 0;
    *end = false;
    for (;;) {
        size_t have = r->end - r->begin;
        char *p = r->buf + r->begin;
        char *lf = have > seen ? memchr(p + seen, '\n', have - seen) : NULL;
        if (lf || (r->eof && have)) {
            size_t len = lf ? (size_t)(lf - p) : have;
            r->begin += lf ? len + 1 : len;
            r->line++;
            if (len > TRACE_ROW_MAX_BYTES)
                return reader_fault(r, r->line, 1, e,
                                    "expected rows of at most %d bytes, found %zu",
                                    TRACE_ROW_MAX_BYTES, len);
            if (len && p[len - 1] == '\r')
                len--;
            p[len] = '\0';
            *line = p;
            *n = len;
            return 0;
        }
        if (r->eof) {
            *end = true;
            return 0;
        }
        bool got;
        seen = have;
        int rc = reader_more(r, &got, e);
        if (rc)
            return rc;
    }
}

bool parse_decimal_ns(const char *p, size_t n, int64_t unit_ns, int64_t *out) {
    size_t i = 0;
    bool negative = n && p[0] == '-';
    int64_t whole = 0, part = 0, scale = unit_ns;
    i += negative;
    size_t digits = i;
    for (; i < n && p[i] >= '0' && p[i] <= '9'; i++)
        if (__builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, p[i] - '0', &whole))
            return false;
    if (i == digits)
        return false;
    if (i < n && p[i] == '.') {
        digits = ++i;
        for (; i < n && p[i] >= '0' && p[i] <= '9'; i++) {
            scale /= 10; /* exact while it matters: unit_ns is a power of ten */
            part += scale * (p[i] - '0');
        }
        if (i == digits)
            return false;
    }
    if (i != n || __builtin_mul_overflow(whole, unit_ns, &whole) ||
        __builtin_add_overflow(whole, part, &whole))
        return false;
    *out = negative ? -whole : whole;
    return true;
}
