/* The growing buffer with a ceiling. */
#include "harness/core/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void buf_init(struct buf *b, size_t max) {
    *b = (struct buf){.max = max};
}

void buf_release(struct buf *b) {
    free(b->p);
    *b = (struct buf){.max = b->max};
}

void buf_clear(struct buf *b) {
    b->n = 0;
    b->failed = false;
    if (b->p)
        b->p[0] = '\0';
}

char *buf_reserve(struct buf *b, size_t n) {
    if (b->failed || n > b->max - b->n) {
        b->failed = true;
        return NULL;
    }
    if (b->n + n + 1 > b->cap) {
        size_t cap = b->cap ? b->cap : 256;
        while (cap < b->n + n + 1)
            cap *= 2;
        if (cap > b->max + 1)
            cap = b->max + 1;
        char *p = realloc(b->p, cap);
        if (!p) {
            b->failed = true;
            return NULL;
        }
        b->p = p;
        b->cap = cap;
    }
    return b->p + b->n;
}

void buf_put(struct buf *b, const void *p, size_t n) {
    char *to = buf_reserve(b, n);
    if (!to)
        return;
    if (n)
        memcpy(to, p, n);
    b->n += n;
    b->p[b->n] = '\0';
}

void buf_puts(struct buf *b, const char *s) {
    buf_put(b, s, strlen(s));
}

void buf_putc(struct buf *b, char c) {
    buf_put(b, &c, 1);
}

void buf_vprintf(struct buf *b, const char *fmt, va_list ap) {
    va_list ap2;
    va_copy(ap2, ap);
    int n = vsnprintf(NULL, 0, fmt, ap2);
    va_end(ap2);
    char *to = n < 0 ? NULL : buf_reserve(b, (size_t)n);
    if (!to) {
        b->failed = true;
        return;
    }
    vsnprintf(to, (size_t)n + 1, fmt, ap);
    b->n += (size_t)n;
}

void buf_printf(struct buf *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(b, fmt, ap);
    va_end(ap);
}

int buf_check(const struct buf *b, const char *what, struct err *e) {
    if (!b->failed)
        return 0;
    return err_set(e, ASSAY_EINPUT, "%s is larger than the limit of %zu bytes", what, b->max);
}

char *buf_take(struct buf *b, size_t *n) {
    if (b->failed) {
        buf_release(b);
        return NULL;
    }
    buf_put(b, "", 0);
    char *p = b->p;
    if (n)
        *n = b->n;
    *b = (struct buf){.max = b->max};
    return p;
}

int buf_read_file(struct buf *b, const char *path, size_t max, struct err *e) {
    buf_init(b, max);
    int rc = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(e, ASSAY_EINPUT, errno, "cannot open '%s'", path);
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        rc = err_set(e, ASSAY_EINPUT, "cannot read '%s': it is a directory", path);
        goto out;
    }
    for (;;) {
        char *to = buf_reserve(b, 1);
        if (!to) {
            rc = err_set(e, ASSAY_EINPUT, "'%s' is larger than the limit of %zu bytes", path, max);
            goto out;
        }
        ssize_t n = read(fd, to, b->cap - b->n - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            rc = err_errno(e, ASSAY_EINPUT, errno, "cannot read '%s'", path);
            goto out;
        }
        if (n == 0)
            break;
        b->n += (size_t)n;
    }
    b->p[b->n] = '\0';
out:
    close(fd);
    if (rc)
        buf_release(b);
    return rc;
}
