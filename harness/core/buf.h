/* One growing byte buffer with a ceiling set at init: exceeding it is an error, not an allocation.
 * Always NUL-terminated past n, so p works as a C string when the content is text.
 * Ownership: the buffer owns p until buf_take. */
#ifndef HARNESS_CORE_BUF_H
#define HARNESS_CORE_BUF_H

#include "harness/core/err.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *p;
    size_t n;    /* bytes used */
    size_t cap;  /* bytes allocated, n < cap once allocated */
    size_t max;  /* ceiling for n */
    bool failed; /* a put did not fit or memory ran out; later puts do nothing */
};

/* A borrowed view; dies with what it views. */
struct str {
    const char *p;
    size_t n;
};

void buf_init(struct buf *b, size_t max);
void buf_release(struct buf *b);
void buf_clear(struct buf *b); /* n = 0, keeps the memory */

/* These set b->failed instead of returning; check once at the end with buf_check. */
void buf_put(struct buf *b, const void *p, size_t n);
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void buf_vprintf(struct buf *b, const char *fmt, va_list ap) PRINTF_LIKE(2, 0);

/* Makes room for n more bytes and returns where they go (n is not advanced), NULL on failure. */
char *buf_reserve(struct buf *b, size_t n);

int buf_check(const struct buf *b, const char *what, struct err *e) MUST_USE;

/* Transfers the bytes (NUL-terminated); free with free(). NULL when b->failed. */
char *buf_take(struct buf *b, size_t *n);

/* Reads a whole file of at most max bytes into b (initialised here). */
int buf_read_file(struct buf *b, const char *path, size_t max, struct err *e) MUST_USE;

#endif
