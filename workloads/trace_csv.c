/* Lines of comma-separated fields: quoted ones are unquoted in place, quotes doubled inside. A
 * quoted field does not span lines: no trace here has such. */
#include "workloads/dist.h"
#include "workloads/trace_internal.h"

#include <string.h>

static int split(const struct reader *r, char *p, size_t n, struct csv_line *c, struct err *e) {
    size_t i = 0;
    const char *nul = memchr(p, '\0', n);
    if (nul)
        return reader_fault(r, c->line, (size_t)(nul - p) + 1, e, "expected text, found byte 0x00");
    c->n = 0;
    for (;;) {
        if (c->n == CSV_FIELDS_MAX)
            return reader_fault(r, c->line, i + 1, e, "expected at most %d columns, found more",
                                CSV_FIELDS_MAX);
        c->column[c->n] = i + 1;
        char *out = p + i, *start = out;
        if (i < n && p[i] == '"') {
            size_t quote = i++;
            for (;; i++) {
                if (i == n)
                    return reader_fault(r, c->line, quote + 1, e,
                                        "expected a closing '\"', found the line's end");
                if (p[i] == '"' && i + 1 < n && p[i + 1] == '"')
                    i++;
                else if (p[i] == '"')
                    break;
                *out++ = p[i];
            }
            i++;
            if (i < n && p[i] != ',')
                return reader_fault(r, c->line, i + 1, e,
                                    "expected ',' after a quoted field, found '%c'", p[i]);
        } else {
            while (i < n && p[i] != ',')
                i++;
            out = p + i;
        }
        bool last = i == n;
        c->field[c->n] = start;
        c->length[c->n++] = (size_t)(out - start);
        *out = '\0';
        if (last)
            return 0;
        i++;
    }
}

int csv_next(struct reader *r, struct csv_line *c, bool *end, struct err *e) {
    char *line;
    size_t n;
    do {
        int rc = reader_line(r, &line, &n, end, e);
        if (rc || *end)
            return rc;
    } while (n == 0);
    c->line = r->line;
    return split(r, line, n, c, e);
}

int csv_find(const struct csv_line *header, const char *name) {
    for (int i = 0; i < header->n; i++)
        if (strcmp(header->field[i], name) == 0)
            return i;
    return -1;
}

int csv_column(const struct reader *r, const struct csv_line *header, const char *name, int *index,
               struct err *e) {
    *index = csv_find(header, name);
    if (*index >= 0)
        return 0;
    return reader_fault(r, header->line, 1, e,
                        "expected a header line with a column '%s', found '%.60s%s'", name,
                        header->field[0], header->n > 1 ? ",…" : "");
}

int csv_fault(const struct reader *r, const struct csv_line *c, int index, const char *expected,
              struct err *e) {
    if (index >= c->n)
        return reader_fault(r, c->line, c->column[c->n - 1] + c->length[c->n - 1], e,
                            "expected %s, found the line's end", expected);
    return reader_fault(r, c->line, c->column[index], e, "expected %s, found '%.40s'", expected,
                        c->field[index]);
}

int csv_tokens(const struct reader *r, const struct csv_line *c, int index, const char *name,
               uint32_t min, uint32_t *out, struct err *e) {
    uint64_t v = 0;
    bool ok = index < c->n && c->length[index] >= 1 && c->length[index] <= 9;
    for (size_t i = 0; ok && i < c->length[index]; i++) {
        ok = c->field[index][i] >= '0' && c->field[index][i] <= '9';
        v = v * 10 + (uint64_t)(c->field[index][i] - '0');
    }
    *out = (uint32_t)v;
    if (ok && v >= min && v <= TOKENS_MAX)
        return 0;
    char expected[96];
    snprintf(expected, sizeof expected, "%s from %u to %d", name, min, TOKENS_MAX);
    return csv_fault(r, c, index, expected, e);
}
