/* A pass over JSON text (RFC 8259) that builds nothing: grammar, places and errors. What members
 * mean is request.c's. */
#include "backends/serve/reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void place(const struct reader *s, const char *at, int64_t *line, int64_t *column) {
    const char *line_start = s->start;
    *line = 1;
    for (const char *q = s->start; q < at; q++)
        if (*q == '\n') {
            ++*line;
            line_start = q + 1;
        }
    *column = at - line_start + 1;
}

int reader_malformed(struct reader *s, const char *at, const char *expected) {
    int64_t line, column;
    place(s, at, &line, &column);
    char found[24] = "the end of the body";
    if (at < s->end)
        snprintf(found, sizeof found, *at > 0x20 && *at < 0x7f ? "'%c'" : "byte 0x%02x",
                 (unsigned char)*at);
    return serve_error_set(s->err, 400, NULL,
                           "the body is not valid JSON at line %" PRId64 " column %" PRId64
                           " (byte %td): expected %s, found %s",
                           line, column, at - s->start, expected, found);
}

const char *reader_kind(const struct reader *s) {
    if (s->p == s->end)
        return "nothing";
    switch (*s->p) {
    case '{':
        return "an object";
    case '[':
        return "an array";
    case '"':
        return "a string";
    case 't':
    case 'f':
        return "a boolean";
    case 'n':
        return "null";
    default:
        return "a number";
    }
}

int reader_mistyped(struct reader *s, const char *expected) {
    if (s->p == s->end || !strchr("{[\"tfn-0123456789", *s->p) || !*s->p)
        return reader_malformed(s, s->p, "a value");
    int64_t line, column;
    place(s, s->p, &line, &column);
    return serve_error_set(s->err, 400, s->param,
                           "%s: expected %s, found %s at line %" PRId64 " column %" PRId64,
                           s->param, expected, reader_kind(s), line, column);
}

void reader_blanks(struct reader *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'))
        s->p++;
}

/* Length of the well-formed UTF-8 sequence at p (RFC 3629 table), 0 when there is none. */
static size_t utf8_length(const char *p, const char *end) {
    const unsigned char *u = (const unsigned char *)p;
    size_t left = (size_t)(end - p);
    unsigned char lo = 0x80, hi = 0xbf;
    size_t n;
    if (u[0] >= 0xc2 && u[0] <= 0xdf)
        n = 2;
    else if (u[0] >= 0xe0 && u[0] <= 0xef)
        n = 3, lo = u[0] == 0xe0 ? 0xa0 : 0x80, hi = u[0] == 0xed ? 0x9f : 0xbf;
    else if (u[0] >= 0xf0 && u[0] <= 0xf4)
        n = 4, lo = u[0] == 0xf0 ? 0x90 : 0x80, hi = u[0] == 0xf4 ? 0x8f : 0xbf;
    else
        return 0;
    if (left < n || u[1] < lo || u[1] > hi)
        return 0;
    for (size_t i = 2; i < n; i++)
        if (u[i] < 0x80 || u[i] > 0xbf)
            return 0;
    return n;
}

static int hex4(struct reader *s, unsigned *v) {
    *v = 0;
    for (int i = 0; i < 4; i++, s->p++) {
        char c = s->p < s->end ? *s->p : '\0';
        unsigned d = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
                                            : 16;
        if (d == 16)
            return reader_malformed(s, s->p, "four hexadecimal digits after \\u");
        *v = *v << 4 | d;
    }
    return 0;
}

static void text_add(struct text *t, const char *p, size_t n) {
    if (t->hash)
        prompt_hash_add(t->hash, p, n);
    if (t->to)
        for (size_t i = 0; i < n && t->bytes + i + 1 < t->to_bytes; i++) {
            t->to[t->bytes + i] = p[i];
            t->to[t->bytes + i + 1] = '\0';
        }
    t->bytes += n;
}

static int escape(struct reader *s, struct text *t) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *begin = s->p++; /* the backslash */
    const char *f = s->p < s->end && *s->p ? strchr(from, *s->p) : NULL;
    if (f) {
        text_add(t, &to[f - from], 1);
        s->p++;
        return 0;
    }
    if (!reader_at(s, 'u'))
        return reader_malformed(s, s->p, "an escape character");
    s->p++;
    unsigned u, low;
    if (hex4(s, &u))
        return -1;
    if (u >= 0xdc00 && u <= 0xdfff)
        return reader_malformed(s, begin, "a high surrogate before a low one");
    if (u >= 0xd800 && u <= 0xdbff) {
        if (s->end - s->p < 2 || s->p[0] != '\\' || s->p[1] != 'u')
            return reader_malformed(s, s->p, "a low surrogate after a high one");
        const char *second = s->p;
        s->p += 2;
        if (hex4(s, &low))
            return -1;
        if (low < 0xdc00 || low > 0xdfff)
            return reader_malformed(s, second, "a low surrogate after a high one");
        u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
    }
    char b[4];
    size_t n;
    if (u < 0x80)
        n = 1, b[0] = (char)u;
    else if (u < 0x800)
        n = 2, b[0] = (char)(0xc0 | u >> 6), b[1] = (char)(0x80 | (u & 0x3f));
    else if (u < 0x10000)
        n = 3, b[0] = (char)(0xe0 | u >> 12), b[1] = (char)(0x80 | (u >> 6 & 0x3f)),
        b[2] = (char)(0x80 | (u & 0x3f));
    else
        n = 4, b[0] = (char)(0xf0 | u >> 18), b[1] = (char)(0x80 | (u >> 12 & 0x3f)),
        b[2] = (char)(0x80 | (u >> 6 & 0x3f)), b[3] = (char)(0x80 | (u & 0x3f));
    text_add(t, b, n);
    return 0;
}

int reader_string(struct reader *s, struct text *t) {
    t->bytes = 0;
    if (t->to)
        t->to[0] = '\0';
    if (!reader_at(s, '"'))
        return reader_malformed(s, s->p, "a string");
    s->p++;
    for (;;) {
        const char *q = s->p;
        while (q < s->end && (unsigned char)*q >= 0x20 && (unsigned char)*q < 0x80 && *q != '"' &&
               *q != '\\')
            q++;
        text_add(t, s->p, (size_t)(q - s->p));
        s->p = q;
        if (q == s->end)
            return reader_malformed(s, q, "'\"' at the end of a string");
        if (*q == '"') {
            s->p++;
            return 0;
        }
        if (*q == '\\') {
            if (escape(s, t))
                return -1;
            continue;
        }
        if ((unsigned char)*q < 0x20)
            return reader_malformed(s, q, "an escaped control character");
        size_t n = utf8_length(q, s->end);
        if (!n)
            return reader_malformed(s, q, "valid UTF-8");
        text_add(t, q, n);
        s->p += n;
    }
}

static const char *digits(struct reader *s) {
    const char *from = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
        s->p++;
    return from;
}

/* *integer: it is one; its value saturates. */
int reader_number(struct reader *s, bool *integer, int64_t *value) {
    bool minus = reader_at(s, '-');
    if (minus)
        s->p++;
    const char *from = digits(s);
    if (s->p == from)
        return reader_malformed(s, s->p, minus ? "a digit" : "a value");
    if (*from == '0' && s->p - from > 1)
        return reader_malformed(s, from + 1, "no digit after a leading zero");
    int64_t v = 0;
    for (const char *q = from; q < s->p; q++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *q - '0', &v)) {
            v = INT64_MAX;
            break;
        }
    *value = minus ? -v : v;
    *integer = true;
    if (reader_at(s, '.')) {
        s->p++;
        *integer = false;
        if (digits(s) == s->p)
            return reader_malformed(s, s->p, "a digit after the decimal point");
    }
    if (reader_at(s, 'e') || reader_at(s, 'E')) {
        s->p++;
        *integer = false;
        if (reader_at(s, '+') || reader_at(s, '-'))
            s->p++;
        if (digits(s) == s->p)
            return reader_malformed(s, s->p, "a digit in the exponent");
    }
    return 0;
}

static int literal(struct reader *s, const char *word) {
    for (const char *w = word; *w; w++, s->p++)
        if (!reader_at(s, *w))
            return reader_malformed(s, s->p, word);
    return 0;
}

static int deeper(struct reader *s) {
    if (++s->depth > SERVE_JSON_DEPTH_MAX) {
        int64_t line, column;
        place(s, s->p, &line, &column);
        return serve_error_set(s->err, 400, NULL,
                               "the body nests deeper than %d levels at line %" PRId64
                               " column %" PRId64,
                               SERVE_JSON_DEPTH_MAX, line, column);
    }
    return 0;
}

/* Each calls back at the first byte of every element or value; the callback reads exactly it. */
int reader_array(struct reader *s, element_fn *element, void *ctx) {
    if (deeper(s))
        return -1;
    s->p++; /* '[' */
    reader_blanks(s);
    if (reader_at(s, ']')) {
        s->p++;
        s->depth--;
        return 0;
    }
    for (size_t i = 0;; i++) {
        reader_blanks(s);
        if (element(s, i, ctx))
            return -1;
        reader_blanks(s);
        if (reader_at(s, ',')) {
            s->p++;
            continue;
        }
        if (!reader_at(s, ']'))
            return reader_malformed(s, s->p, "',' or ']' in an array");
        s->p++;
        s->depth--;
        return 0;
    }
}

int reader_object(struct reader *s, member_fn *member, void *ctx) {
    if (deeper(s))
        return -1;
    s->p++; /* '{' */
    reader_blanks(s);
    if (reader_at(s, '}')) {
        s->p++;
        s->depth--;
        return 0;
    }
    for (;;) {
        reader_blanks(s);
        char name[64];
        struct text t = {.to = name, .to_bytes = sizeof name};
        if (!reader_at(s, '"'))
            return reader_malformed(s, s->p, "a member name");
        if (reader_string(s, &t))
            return -1;
        if (t.bytes >= sizeof name || memchr(name, '\0', t.bytes))
            name[0] = '\0'; /* none of ours */
        reader_blanks(s);
        if (!reader_at(s, ':'))
            return reader_malformed(s, s->p, "':' after a member name");
        s->p++;
        reader_blanks(s);
        if (member(s, name, ctx))
            return -1;
        reader_blanks(s);
        if (reader_at(s, ',')) {
            s->p++;
            continue;
        }
        if (!reader_at(s, '}'))
            return reader_malformed(s, s->p, "',' or '}' in an object");
        s->p++;
        s->depth--;
        return 0;
    }
}

static int skip_element(struct reader *s, size_t i, void *ctx) {
    (void)i, (void)ctx;
    return reader_skip(s);
}
static int skip_member(struct reader *s, const char *name, void *ctx) {
    (void)name, (void)ctx;
    return reader_skip(s);
}

int reader_skip(struct reader *s) {
    if (s->p == s->end)
        return reader_malformed(s, s->p, "a value");
    struct text t = {0};
    bool integer;
    int64_t v;
    switch (*s->p) {
    case '{':
        return reader_object(s, skip_member, NULL);
    case '[':
        return reader_array(s, skip_element, NULL);
    case '"':
        return reader_string(s, &t);
    case 't':
        return literal(s, "true");
    case 'f':
        return literal(s, "false");
    case 'n':
        return literal(s, "null");
    default:
        return reader_number(s, &integer, &v);
    }
}
