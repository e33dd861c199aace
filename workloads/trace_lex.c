/* A scanner of one line of JSON, for formats that are read on a hot path or whose lines hold long
 * arrays of numbers. Faults name line and column. */
#include "workloads/trace_internal.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 64 };

int lex_fault(const struct lex *s, const char *expected, struct err *e) {
    size_t column = (size_t)(s->p - s->start) + 1;
    if (s->p >= s->end)
        return reader_fault(s->r, s->r->line, column, e, "expected %s, found the line's end",
                            expected);
    unsigned char c = (unsigned char)*s->p;
    if (c < 0x20 || c > 0x7e)
        return reader_fault(s->r, s->r->line, column, e, "expected %s, found byte 0x%02x", expected,
                            c);
    return reader_fault(s->r, s->r->line, column, e, "expected %s, found '%c'", expected, c);
}

void lex_space(struct lex *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t'))
        s->p++;
}

int lex_take(struct lex *s, char c, const char *expected, struct err *e) {
    lex_space(s);
    if (s->p >= s->end || *s->p != c)
        return lex_fault(s, expected, e);
    s->p++;
    return 0;
}

bool lex_peek(struct lex *s, char c) {
    lex_space(s);
    return s->p < s->end && *s->p == c;
}

/* The raw text between the quotes; escapes stay as they are. */
int lex_string(struct lex *s, const char **text, size_t *n, struct err *e) {
    int rc = lex_take(s, '"', "'\"'", e);
    if (rc)
        return rc;
    *text = s->p;
    while (s->p < s->end && *s->p != '"')
        s->p += *s->p == '\\' && s->p + 1 < s->end ? 2 : 1;
    if (s->p >= s->end) {
        s->p = s->end;
        return lex_fault(s, "a closing '\"'", e);
    }
    *n = (size_t)(s->p++ - *text);
    return 0;
}

/* A number's text: what of JSON's numbers is digits, sign and point. */
int lex_number(struct lex *s, const char **text, size_t *n, const char *expected,
                  struct err *e) {
    lex_space(s);
    *text = s->p;
    while (s->p < s->end && ((*s->p >= '0' && *s->p <= '9') || *s->p == '.' || *s->p == '-'))
        s->p++;
    *n = (size_t)(s->p - *text);
    return *n ? 0 : lex_fault(s, expected, e);
}

int lex_integer(struct lex *s, uint64_t max, const char *expected, uint64_t *out,
                   struct err *e) {
    const char *text;
    size_t n;
    int rc = lex_number(s, &text, &n, expected, e);
    if (rc)
        return rc;
    bool ok = true;
    uint64_t v = 0;
    for (size_t i = 0; i < n && ok; i++)
        ok = text[i] >= '0' && text[i] <= '9' && !__builtin_mul_overflow(v, (uint64_t)10, &v) &&
             !__builtin_add_overflow(v, (uint64_t)(text[i] - '0'), &v);
    if (!ok || v > max) {
        s->p = text;
        return lex_fault(s, expected, e);
    }
    *out = v;
    return 0;
}

static int skip_digits(struct lex *s, const char *expected, struct err *e) {
    const char *first = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
        s->p++;
    return s->p > first ? 0 : lex_fault(s, expected, e);
}

static bool next_is(struct lex *s, char a, char b) {
    if (s->p >= s->end || (*s->p != a && *s->p != b))
        return false;
    s->p++;
    return true;
}

static int skip_number(struct lex *s, struct err *e) {
    next_is(s, '-', '-');
    int rc = skip_digits(s, "a value", e);
    if (rc == 0 && next_is(s, '.', '.'))
        rc = skip_digits(s, "a digit", e);
    if (rc == 0 && next_is(s, 'e', 'E')) {
        next_is(s, '+', '-');
        rc = skip_digits(s, "an exponent", e);
    }
    return rc;
}

static int skip_value(struct lex *s, int depth, struct err *e);

static int skip_members(struct lex *s, char close, bool named, int depth, struct err *e) {
    int rc;
    s->p++;
    if (lex_peek(s, close)) {
        s->p++;
        return 0;
    }
    for (;;) {
        const char *text;
        size_t n;
        if (named && ((rc = lex_string(s, &text, &n, e)) || (rc = lex_take(s, ':', "':'", e))))
            return rc;
        if ((rc = skip_value(s, depth + 1, e)))
            return rc;
        if (lex_peek(s, close)) {
            s->p++;
            return 0;
        }
        if ((rc = lex_take(s, ',', close == ']' ? "',' or ']'" : "',' or '}'", e)))
            return rc;
    }
}

static int skip_value(struct lex *s, int depth, struct err *e) {
    static const char *const words[] = {"true", "false", "null"};
    const char *text;
    size_t n;
    lex_space(s);
    if (depth > DEPTH_MAX)
        return lex_fault(s, "at most 64 nested values", e);
    if (lex_peek(s, '"'))
        return lex_string(s, &text, &n, e);
    if (lex_peek(s, '{'))
        return skip_members(s, '}', true, depth, e);
    if (lex_peek(s, '['))
        return skip_members(s, ']', false, depth, e);
    for (size_t i = 0; i < 3; i++) {
        n = strlen(words[i]);
        if ((size_t)(s->end - s->p) >= n && memcmp(s->p, words[i], n) == 0) {
            s->p += n;
            return 0;
        }
    }
    return skip_number(s, e);
}

int lex_skip(struct lex *s, struct err *e) {
    return skip_value(s, 0, e);
}

int lex_ids(struct lex *s, struct id_list *m, uint32_t *count, struct err *e) {
    int rc = lex_take(s, '[', "an array of block ids", e);
    if (rc)
        return rc;
    *count = 0;
    if (lex_peek(s, ']')) {
        s->p++;
        return 0;
    }
    for (;;) {
        if (*count == m->cap) {
            size_t cap = m->cap ? m->cap * 2 : 256;
            if (cap > TRACE_BLOCKS_MAX)
                return lex_fault(s, "at most 32768 block ids", e);
            uint64_t *p = realloc(m->id, cap * sizeof *p);
            if (!p)
                return err_set(e, ASSAY_ENOMEM, "out of memory");
            m->id = p;
            m->cap = cap;
        }
        lex_space(s);
        if ((rc = lex_integer(s, UINT64_MAX, "a block id", &m->id[*count], e)))
            return rc;
        ++*count;
        if (lex_peek(s, ']')) {
            s->p++;
            return 0;
        }
        if ((rc = lex_take(s, ',', "',' or ']'", e)))
            return rc;
    }
}
