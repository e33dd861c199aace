/* Patterns of tokenizer.json are written for Oniguruma in Ruby's syntax. Here they become PCRE2:
 * classes are written out from our own table, so that both engines mean the same characters; what
 * differs in meaning is translated, what is not known to be the same is refused. */
#include "workloads/tokenizer/tokenizer_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

struct translation {
    const char *p, *end;
    struct buf out;
    char *why;
    size_t why_bytes;
    bool bad;
};

static void refuse(struct translation *t, const char *what) {
    if (!t->bad)
        snprintf(t->why, t->why_bytes, "%s", what);
    t->bad = true;
}

static void add_range(void *to, uint32_t from, uint32_t last) {
    struct translation *t = to;
    if (from >= 0xD800 && from <= 0xDFFF)
        return;
    buf_printf(&t->out, from == last ? "\\x{%X}" : "\\x{%X}-\\x{%X}", from, last);
}

struct inverse {
    struct translation *t;
    uint32_t next;
};

static void add_between(void *to, uint32_t from, uint32_t last) {
    struct inverse *v = to;
    if (from > v->next) {
        uint32_t a = v->next, b = from - 1;
        if (a < 0xD800 && b > 0xDFFF) {
            add_range(v->t, a, 0xD7FF);
            add_range(v->t, 0xE000, b);
        } else if (a <= b)
            add_range(v->t, a >= 0xD800 && a <= 0xDFFF ? 0xE000 : a, b);
    }
    v->next = last + 1;
}

/* A class escape: inside brackets its ranges, outside with brackets of its own. */
static void class_escape(struct translation *t, bool inside, char kind, const char *name, size_t n,
                         bool negated) {
    if (!inside)
        buf_puts(&t->out, "[");
    struct inverse v = {t, 0};
    void (*add)(void *, uint32_t, uint32_t) = negated ? add_between : add_range;
    void *to = negated ? (void *)&v : (void *)t;
    bool known = true;
    if (kind == 's')
        unicode_space(add, to);
    else if (kind == 'w' && !negated) /* its ranges come in no single order */
        unicode_word(add, to);
    else if (kind == 'd')
        known = unicode_property("Nd", 2, add, to);
    else
        known = kind == 'p' && unicode_property(name, n, add, to);
    if (!known)
        refuse(t, "a class that is not known here");
    if (negated)
        add_between(&v, UNICODE_END, UNICODE_END);
    if (!inside)
        buf_puts(&t->out, "]");
}

static void escape(struct translation *t, bool inside) {
    char c = *t->p++;
    switch (c) {
    case 's':
    case 'd':
    case 'w':
        class_escape(t, inside, c, NULL, 0, false);
        return;
    case 'S':
    case 'D':
    case 'W':
        class_escape(t, inside, (char)tolower(c), NULL, 0, true);
        return;
    case 'p':
    case 'P': {
        bool negated = c == 'P';
        if (t->p == t->end || *t->p != '{') {
            refuse(t, "\\p without braces");
            return;
        }
        const char *name = ++t->p;
        if (name < t->end && *name == '^')
            negated = !negated, name = ++t->p;
        while (t->p < t->end && *t->p != '}')
            t->p++;
        if (t->p == t->end) {
            refuse(t, "\\p{ without }");
            return;
        }
        class_escape(t, inside, 'p', name, (size_t)(t->p - name), negated);
        t->p++;
        return;
    }
    case 'n':
    case 'r':
    case 't':
    case 'f':
        buf_printf(&t->out, "\\%c", c);
        return;
    case 'v':
        buf_puts(&t->out, "\\x{B}");
        return;
    case 'A':
    case 'z':
        if (!inside) {
            buf_printf(&t->out, "\\%c", c);
            return;
        }
        break;
    case 'x':
    case 'u': {
        unsigned v = 0;
        int digits = 0, most = c == 'u' ? 4 : 2;
        bool brace = c == 'x' && t->p < t->end && *t->p == '{';
        if (brace)
            t->p++, most = 8;
        while (t->p < t->end && digits < most && isxdigit((unsigned char)*t->p)) {
            char h = *t->p++;
            v = v * 16 + (unsigned)(isdigit((unsigned char)h) ? h - '0' : (h | 0x20) - 'a' + 10);
            digits++;
        }
        if (!digits || (brace && (t->p == t->end || *t->p++ != '}')) || v >= UNICODE_END ||
            (v >= 0x80 && v < 0x100 && !brace && c == 'x')) {
            refuse(t, "an escape by number that is not known here");
            return;
        }
        buf_printf(&t->out, "\\x{%X}", v);
        return;
    }
    default:
        if (!isalnum((unsigned char)c) && (unsigned char)c < 0x80) {
            buf_printf(&t->out, "\\%c", c);
            return;
        }
    }
    refuse(t, "an escape that is not known here");
}

static void bracket(struct translation *t) {
    buf_putc(&t->out, '[');
    if (t->p < t->end && *t->p == '^')
        buf_putc(&t->out, *t->p++);
    if (t->p < t->end && *t->p == ']')
        refuse(t, "']' as the first member of a class");
    while (t->p < t->end && *t->p != ']' && !t->bad) {
        char c = *t->p++;
        if (c == '\\' && t->p < t->end)
            escape(t, true);
        else if (c == '[')
            refuse(t, "a class within a class");
        else if (c == '&' && t->p < t->end && *t->p == '&')
            refuse(t, "'&&' in a class");
        else
            buf_putc(&t->out, c);
    }
    if (t->p == t->end)
        refuse(t, "'[' without ']'");
    else
        t->p++;
    buf_putc(&t->out, ']');
}

static void group(struct translation *t) {
    static const char *const same[] = {"?:", "?=", "?!", "?<=", "?<!", "?>", "?i:", "?-i:"};
    buf_putc(&t->out, '(');
    if (t->p == t->end || *t->p != '?')
        return;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        size_t n = strlen(same[i]);
        if ((size_t)(t->end - t->p) >= n && !memcmp(t->p, same[i], n)) {
            buf_puts(&t->out, same[i]);
            t->p += n;
            return;
        }
    }
    refuse(t, "a group '(?' that is not known here");
}

int regex_compile(const char *pattern, size_t n, pcre2_code **out, char *why, size_t why_bytes) {
    struct translation t = {.p = pattern, .end = pattern + n, .why = why, .why_bytes = why_bytes};
    buf_init(&t.out, 8 * 1024 * 1024);
    *out = NULL;
    while (t.p < t.end && !t.bad) {
        char c = *t.p++;
        if (c == '\\' && t.p < t.end)
            escape(&t, false);
        else if (c == '[')
            bracket(&t);
        else if (c == '(')
            group(&t);
        else if (c == '{') {
            const char *q = t.p;
            while (q < t.end && (isdigit((unsigned char)*q) || *q == ','))
                q++;
            if (q == t.end || *q != '}' || q == t.p || *t.p == ',')
                refuse(&t, "a '{' that is no repetition");
            else if (q + 1 < t.end && (q[1] == '+' || q[1] == '?'))
                refuse(&t, "a sign after '{n,m}', which the two engines read differently");
            buf_putc(&t.out, '{');
        } else
            buf_putc(&t.out, c);
    }
    if (!t.bad && t.out.failed)
        refuse(&t, "a pattern that grows too long");
    if (!t.bad) {
        int code;
        PCRE2_SIZE at;
        *out = pcre2_compile((PCRE2_SPTR)(t.out.p ? t.out.p : ""), t.out.n,
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK |
                                 PCRE2_NEVER_BACKSLASH_C,
                             &code, &at, NULL);
        if (!*out) {
            PCRE2_UCHAR text[128];
            pcre2_get_error_message(code, text, sizeof text);
            refuse(&t, (const char *)text);
        } else
            (void)pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE); /* without it, slower but the same */
    }
    buf_release(&t.out);
    return t.bad ? ASSAY_EINPUT : 0;
}

int regex_match(struct tokenizer_work *w, const pcre2_code *code, const char *p, size_t n,
                size_t at, size_t *start, size_t *end) {
    int rc =
        pcre2_match(code, (PCRE2_SPTR)p, n, at, PCRE2_NO_UTF_CHECK, w->match, w->match_context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter keeps its stack on the heap */
        rc = pcre2_match(code, (PCRE2_SPTR)p, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, w->match,
                         w->match_context);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0) {
        w->failed = w->gave_up = true;
        return 0;
    }
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(w->match);
    *start = v[0], *end = v[1];
    return 1;
}

bool regex_may_match_nothing(const pcre2_code *code) {
    uint32_t may = 1;
    (void)pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &may);
    return may;
}
