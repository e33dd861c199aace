/* CSV in one pass over a private copy of the text, unquoting in place. */
#include "harness/run/csv.h"

#include "harness/core/buf.h"

#include <stdlib.h>
#include <string.h>

enum { CSV_FILE_MAX_BYTES = 64 * 1024 * 1024 };

/* Ends a field in place; *p moves to the character after it (',', '\n' or the end).
 * Returns NULL and sets *why on bad quoting. */
static char *take_field(char **p, const char *end, size_t *line, const char **why) {
    char *s = *p, *out = s;
    if (s == end || *s != '"') {
        char *q = s;
        while (q < end && *q != ',' && *q != '\n') {
            if (*q == '"') {
                *why = "a quote inside an unquoted field";
                return NULL;
            }
            q++;
        }
        *p = q;
        return s;
    }
    char *q = s + 1;
    for (;;) {
        if (q == end) {
            *why = "a quoted field without its closing quote";
            return NULL;
        }
        if (*q == '"') {
            if (q + 1 < end && q[1] == '"') {
                *out++ = '"';
                q += 2;
                continue;
            }
            break;
        }
        *line += *q == '\n';
        *out++ = *q++;
    }
    q++;
    if (q < end && *q == '\r' && q + 1 < end && q[1] == '\n')
        q++;
    if (q < end && *q != ',' && *q != '\n') {
        *why = "text after a closing quote";
        return NULL;
    }
    *out = '\0';
    *p = q;
    return s;
}

static int grow(struct csv_table *c, size_t *cap, const char *label, struct err *e) {
    if (c->rows < *cap)
        return 0;
    if (c->rows >= CSV_ROWS_MAX)
        return err_set(e, ASSAY_EINPUT, "%s: more than %d rows", label, CSV_ROWS_MAX);
    size_t n = *cap ? *cap * 2 : 256;
    const char **f = realloc(c->field, n * c->columns * sizeof *f);
    if (f)
        c->field = f;
    size_t *l = realloc(c->line, n * sizeof *l);
    if (l)
        c->line = l;
    if (!f || !l)
        return err_set(e, ASSAY_ENOMEM, "%s: out of memory for %zu rows", label, n);
    *cap = n;
    return 0;
}

static int parse(struct csv_table *c, size_t n, const char *label, struct err *e) {
    char *p = c->text, *end = p + n;
    size_t line = 1, cap = 0;
    bool header = true;
    if (memchr(p, '\0', n))
        return err_set(e, ASSAY_EINPUT, "%s: a NUL byte: not a text file", label);
    while (p < end) {
        size_t first = line, k = 0;
        if (!header) {
            int rc = grow(c, &cap, label, e);
            if (rc)
                return rc;
        }
        for (;;) {
            const char *why = NULL;
            char *f = take_field(&p, end, &line, &why);
            if (!f)
                return err_set(e, ASSAY_EINPUT, "%s:%zu: %s", label, first, why);
            bool last = p == end || *p == '\n';
            if (p < end) {
                if (*p == '\n' && p > f && p[-1] == '\r')
                    p[-1] = '\0';
                *p++ = '\0';
            }
            if (k >= (header ? (size_t)CSV_COLUMNS_MAX : c->columns))
                return err_set(e, ASSAY_EINPUT, "%s:%zu: expected %zu fields, found more", label,
                               first, header ? (size_t)CSV_COLUMNS_MAX : c->columns);
            if (header)
                c->name[k++] = f;
            else
                c->field[c->rows * c->columns + k++] = f;
            if (last)
                break;
        }
        line++;
        if (header) {
            c->columns = k;
        } else {
            if (k != c->columns)
                return err_set(e, ASSAY_EINPUT, "%s:%zu: expected %zu fields, found %zu", label,
                               first, c->columns, k);
            c->line[c->rows++] = first;
        }
        header = false;
    }
    if (header)
        return err_set(e, ASSAY_EINPUT, "%s: empty: expected a header line", label);
    return 0;
}

int csv_table_parse(struct csv_table *c, const char *text, size_t n, const char *label,
                    struct err *e) {
    *c = (struct csv_table){0};
    c->text = malloc(n + 1);
    if (!c->text)
        return err_set(e, ASSAY_ENOMEM, "%s: out of memory", label);
    memcpy(c->text, text, n);
    c->text[n] = '\0';
    int rc = parse(c, n, label, e);
    if (rc)
        csv_table_release(c);
    return rc;
}

int csv_table_open(struct csv_table *c, const char *path, struct err *e) {
    struct buf b;
    *c = (struct csv_table){0};
    int rc = buf_read_file(&b, path, CSV_FILE_MAX_BYTES, e);
    if (rc)
        return rc;
    rc = csv_table_parse(c, b.p ? b.p : "", b.n, path, e);
    buf_release(&b);
    return rc;
}

void csv_table_release(struct csv_table *c) {
    free(c->text);
    free(c->field);
    free(c->line);
    *c = (struct csv_table){0};
}

int csv_table_column(const struct csv_table *c, const char *name) {
    for (size_t i = 0; i < c->columns; i++)
        if (strcmp(c->name[i], name) == 0)
            return (int)i;
    return -1;
}
