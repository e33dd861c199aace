/* The scanner: blanks, comments, names, strings, balanced slices; errors with their place; and the
 * parser's memory. Lines and columns are counted only when there is an error to tell. */
#include "workloads/hlo/hlo_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define LETTERS(set) ['a' ... 'z'] = (set), ['A' ... 'Z'] = (set)
// clang-format off
__extension__ const uint8_t hlo_chars[256] = {
    [0] = CH_BRACKET, [' '] = CH_SPACE, ['\t'] = CH_SPACE, ['\r'] = CH_SPACE, ['\n'] = CH_SPACE,
    LETTERS(CH_NAME | CH_START | CH_VALUE),
    ['0' ... '9'] = CH_NAME | CH_VALUE | CH_DIGIT,
    ['_'] = CH_NAME | CH_START | CH_VALUE, ['.'] = CH_NAME | CH_VALUE, ['-'] = CH_NAME | CH_VALUE,
    ['('] = CH_BRACKET, [')'] = CH_BRACKET, ['['] = CH_BRACKET, [']'] = CH_BRACKET,
    ['{'] = CH_BRACKET, ['}'] = CH_BRACKET, ['"'] = CH_BRACKET, ['\''] = CH_BRACKET, ['/'] = CH_BRACKET,
    ['%'] = CH_VALUE, ['<'] = CH_VALUE, ['>'] = CH_VALUE, ['='] = CH_VALUE, ['+'] = CH_VALUE,
    ['*'] = CH_VALUE, ['#'] = CH_VALUE, ['?'] = CH_VALUE, ['~'] = CH_VALUE, [':'] = CH_VALUE,
    ['@'] = CH_VALUE, ['!'] = CH_VALUE, ['$'] = CH_VALUE, ['&'] = CH_VALUE, ['|'] = CH_VALUE,
    ['^'] = CH_VALUE,
};
// clang-format on

/* ---- errors ---- */

static void place(const struct parser *p, const char *at, size_t *line, size_t *column) {
    const char *start = p->text;
    *line = 1;
    for (const char *q; (q = memchr(start, '\n', (size_t)(at - start))); start = q + 1)
        ++*line;
    *column = (size_t)(at - start) + 1;
}

bool parse_fail(struct parser *p, const char *at, const char *fmt, ...) {
    if (p->rc)
        return false;
    char text[512];
    size_t line, column;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    place(p, at, &line, &column);
    if (!p->open_name.n) {
        p->rc = err_set(p->e, ASSAY_EINPUT, "%s:%zu:%zu: %s", p->file_name, line, column, text);
        return false;
    }
    size_t open_line, open_column;
    int n = p->open_name.n > 80 ? 80 : (int)p->open_name.n;
    place(p, p->open_at, &open_line, &open_column);
    p->rc = err_set(p->e, ASSAY_EINPUT, "%s:%zu:%zu: %s (in computation '%.*s' of line %zu)",
                    p->file_name, line, column, text, n, p->open_name.p, open_line);
    return false;
}

bool parse_expected(struct parser *p, const char *at, const char *what) {
    enum { SHOWN = 32 };
    if (at >= p->end)
        return parse_fail(p, at, "expected %s, found the end of the text", what);
    if (at_separator(p, at))
        return parse_fail(p, at, "expected %s, found '// -----', which ends the module", what);
    int n = 1;
    if (is(*at, CH_NAME) || *at == '%')
        while (n < SHOWN && is(at[n], CH_NAME))
            n++;
    return parse_fail(p, at, "expected %s, found '%.*s'", what, n, at);
}

bool parse_memory(struct parser *p) {
    if (!p->rc)
        p->rc = err_set(p->e, ASSAY_ENOMEM, "out of memory");
    return false;
}

/* ---- blanks ---- */

/* A line that is "// -----", which parts two modules. */
bool at_separator(const struct parser *p, const char *at) {
    static const char mark[] = "// -----";
    size_t n = sizeof mark - 1;
    if ((size_t)(p->end - at) < n || memcmp(at, mark, n) || (at > p->text && at[-1] != '\n'))
        return false;
    for (at += n; *at == ' ' || *at == '\t' || *at == '\r'; at++)
        ;
    return *at == '\n' || at == p->end;
}

bool skip_space_slow(struct parser *p) {
    for (;;) {
        while (is(*p->at, CH_SPACE))
            p->at++;
        if (p->at[0] != '/')
            return true;
        if (p->at[1] == '/') {
            if (at_separator(p, p->at))
                return true;
            const char *q = memchr(p->at, '\n', (size_t)(p->end - p->at));
            p->at = q ? q : p->end;
        } else if (p->at[1] == '*') {
            const char *q = p->at + 2;
            do {
                q = memchr(q, '*', (size_t)(p->end - q));
            } while (q && *++q != '/');
            if (!q)
                return parse_fail(p, p->at,
                                  "expected the end '*/' of this comment, found the end "
                                  "of the text");
            p->at = q + 1;
        } else {
            return true;
        }
    }
}

bool expect_char(struct parser *p, char c) {
    if (!skip_space(p))
        return false;
    if (skip_char(p, c))
        return true;
    char what[4] = {'\'', c, '\'', 0};
    return parse_expected(p, p->at, what);
}

/* ---- numbers, strings, brackets ---- */

bool scan_int(struct parser *p, int64_t *v) {
    const char *q = p->at;
    bool negative = *q == '-';
    uint64_t n = 0, limit = (uint64_t)INT64_MAX + negative;
    q += negative;
    if (!is(*q, CH_DIGIT))
        return parse_expected(p, p->at, "an integer");
    for (; is(*q, CH_DIGIT); q++)
        if (__builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(*q - '0'), &n) || n > limit)
            return parse_fail(p, p->at, "expected an integer of at most 64 bits");
    *v = negative ? (int64_t)(0 - n) : (int64_t)n;
    p->at = q;
    return true;
}

bool scan_string(struct parser *p) {
    const char *start = p->at, *q = start + 1;
    char quote = *start;
    for (;; q++) {
        while (*q != quote && *q != '\\' && *q)
            q++;
        if (*q == quote)
            break;
        if (*q == '\\')
            q++;
        if (q >= p->end)
            return parse_fail(p, start,
                              "expected the closing %c of this string, found the end of the text",
                              quote);
    }
    p->at = q + 1;
    return true;
}

bool scan_balanced(struct parser *p) {
    char open[HLO_DEPTH_MAX];
    const char *start = p->at, *q = start;
    int depth = 0;
    for (;; q++) {
        while (!is(*q, CH_BRACKET))
            q++;
        switch (*q) {
        case '(':
        case '[':
        case '{':
            if (depth == HLO_DEPTH_MAX)
                return parse_fail(p, q, "expected at most %d nested brackets", HLO_DEPTH_MAX);
            open[depth++] = (char)(*q == '(' ? ')' : *q + 2);
            break;
        case ')':
        case ']':
        case '}':
            if (*q != open[depth - 1]) {
                char what[4] = {'\'', open[depth - 1], '\'', 0};
                return parse_expected(p, q, what);
            }
            if (!--depth) {
                p->at = q + 1;
                return true;
            }
            break;
        case '"':
        case '\'':
            p->at = q;
            if (!scan_string(p))
                return false;
            q = p->at - 1;
            break;
        case '/':
            p->at = q;
            if (q[1] == '/' || q[1] == '*') {
                if (at_separator(p, q) || !skip_space_slow(p))
                    return parse_expected(p, q, "a closing bracket");
                q = p->at - 1;
            }
            break;
        default:
            if (q >= p->end)
                return parse_fail(
                    p, start,
                    "expected the closing bracket of this '%c', found the end of the text", *start);
        }
    }
}

/* May a value go on after blanks? Only where two parts belong together:
 * "[2,4] <= [8]", "… T(1,0)", "mesh['x'=2] {'x'}", "device_ids=(0,1) {'x'}". */
static bool value_goes_on(char before, const char *next) {
    if (before == ']')
        return *next == '{' || (next[0] == '<' && next[1] == '=') ||
               (next[0] == 'T' && next[1] == '(');
    return (before == ')' && *next == '{') || before == '=';
}

/* After a comma: mesh['x'=2], device_ids=(1,0) {'x'} and …), {'x'} */
static bool mesh_goes_on(const char *start, char before, const char *next) {
    return !strncmp(start, "mesh[", 5) &&
           (!strncmp(next, "device_ids=", 11) || (before == ')' && *next == '{'));
}

static bool scan_literal_attr(struct parser *p) {
    if (!parse_shape(p) || !skip_space(p))
        return false;
    if (*p->at == '{' || *p->at == '(')
        return scan_balanced(p);
    const char *start = p->at;
    while (is(*p->at, CH_VALUE))
        p->at++;
    return p->at > start || parse_expected(p, start, "a literal");
}

bool scan_value(struct parser *p, uint32_t key) {
    const char *start = p->at, *end = start;
    if (key == HLO_KEY_LITERAL && shape_begins(p, p->at))
        return scan_literal_attr(p);
    for (;;) {
        char c = *p->at;
        if (is(c, CH_VALUE)) {
            do
                p->at++;
            while (is(*p->at, CH_VALUE));
        } else if (c == '{' || c == '[' || c == '(') {
            if (!scan_balanced(p))
                return false;
        } else if (c == '"' || c == '\'') {
            if (!scan_string(p))
                return false;
        } else {
            end = p->at;
            bool comma = c == ',' && key == HLO_KEY_REPLICA_GROUPS;
            if (end == start || !(is(c, CH_SPACE) || comma))
                break;
            p->at += comma;
            if (!skip_space(p))
                return false;
            if (comma ? !mesh_goes_on(start, end[-1], p->at) : !value_goes_on(end[-1], p->at)) {
                p->at = end;
                break;
            }
        }
    }
    return end > start || parse_expected(p, start, "a value");
}

/* ---- memory ---- */

void *parse_alloc(struct parser *p, size_t n, size_t size) {
    void *q = arena_alloc(p->arena, n, size);
    if (!q)
        parse_memory(p);
    else
        p->arena_bytes += (n * size + 15) & ~(size_t)15;
    return q;
}

void *vec_grow(struct parser *p, struct vec *v) {
    size_t more = v->cap ? 2 * v->cap : 64, old = v->cap * v->item, bytes;
    void *q = __builtin_mul_overflow(more, v->item, &bytes) ? NULL : realloc(v->p, bytes);
    if (!q) {
        parse_memory(p);
        return NULL;
    }
    p->scratch_bytes += bytes - old;
    v->p = q;
    v->cap = more;
    return q;
}

bool vec_keep(struct parser *p, const struct vec *v, void *out) {
    void *q = NULL;
    if (v->n) {
        q = parse_alloc(p, v->n, v->item);
        if (!q)
            return false;
        memcpy(q, v->p, v->n * v->item);
    }
    memcpy(out, &q, sizeof q);
    return true;
}

struct name_slot *names_find(const struct names *t, const char *text, struct str name,
                             uint32_t hash) {
    if (!t->cap)
        return NULL;
    for (size_t s = hash & (t->cap - 1); t->slots[s].epoch == t->epoch;
         s = (s + 1) & (t->cap - 1)) {
        struct name_slot *slot = &t->slots[s];
        if (slot->hash == hash && slot->n == name.n && !memcmp(text + slot->at, name.p, name.n))
            return slot;
    }
    return NULL;
}

static bool names_grow(struct parser *p, struct names *t) {
    size_t cap = t->cap ? 2 * t->cap : 256;
    struct name_slot *slots = calloc(cap, sizeof *slots);
    if (!slots)
        return parse_memory(p);
    for (size_t i = 0; i < t->cap; i++) {
        if (t->slots[i].epoch != t->epoch)
            continue;
        size_t s = t->slots[i].hash & (cap - 1);
        while (slots[s].epoch)
            s = (s + 1) & (cap - 1);
        slots[s] = t->slots[i];
    }
    p->scratch_bytes += (cap - t->cap) * sizeof *slots;
    free(t->slots);
    t->slots = slots;
    t->cap = cap;
    if (!t->epoch)
        t->epoch = 1;
    return true;
}

bool names_put(struct parser *p, struct names *t, struct str name, uint32_t hash, uint32_t value) {
    if (2 * (t->n + 1) > t->cap && !names_grow(p, t))
        return false;
    size_t s = hash & (t->cap - 1);
    while (t->slots[s].epoch == t->epoch)
        s = (s + 1) & (t->cap - 1);
    t->slots[s] = (struct name_slot){hash, t->epoch, offset(p, name.p), (uint32_t)name.n, value};
    t->n++;
    return true;
}

/* Epochs count computations, fewer than the text has bytes: 32 bits do not wrap. */
void names_clear(struct names *t) {
    t->n = 0;
    if (t->cap)
        t->epoch++;
}
