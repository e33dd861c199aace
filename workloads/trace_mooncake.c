/* Mooncake JSONL (github.com/kvcache-ai/Mooncake, FAST25-release): one flat object a line with
 * timestamp (ms), input_length, output_length and hash_ids (prefix blocks of 512 tokens, global to
 * the file). Read by a scanner of its own, because a trace may be replayed on a hot path. Members
 * of other names are skipped. */
#include "harness/core/clock.h"
#include "workloads/dist.h"
#include "workloads/trace_internal.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_TOKENS = 512, DEPTH_MAX = 64 };

struct mooncake {
    uint64_t *blocks;
    size_t cap;
};

struct scan {
    const struct reader *r;
    const char *start, *p, *end;
};

static int fault(const struct scan *s, const char *expected, struct err *e) {
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

static void space(struct scan *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t'))
        s->p++;
}

static int take(struct scan *s, char c, const char *expected, struct err *e) {
    space(s);
    if (s->p >= s->end || *s->p != c)
        return fault(s, expected, e);
    s->p++;
    return 0;
}

static bool peek(struct scan *s, char c) {
    space(s);
    return s->p < s->end && *s->p == c;
}

/* The raw text between the quotes; escapes stay as they are. */
static int string(struct scan *s, const char **text, size_t *n, struct err *e) {
    int rc = take(s, '"', "'\"'", e);
    if (rc)
        return rc;
    *text = s->p;
    while (s->p < s->end && *s->p != '"')
        s->p += *s->p == '\\' && s->p + 1 < s->end ? 2 : 1;
    if (s->p >= s->end) {
        s->p = s->end;
        return fault(s, "a closing '\"'", e);
    }
    *n = (size_t)(s->p++ - *text);
    return 0;
}

/* A number's text: what of JSON's numbers is digits, sign and point. */
static int number(struct scan *s, const char **text, size_t *n, const char *expected,
                  struct err *e) {
    space(s);
    *text = s->p;
    while (s->p < s->end && ((*s->p >= '0' && *s->p <= '9') || *s->p == '.' || *s->p == '-'))
        s->p++;
    *n = (size_t)(s->p - *text);
    return *n ? 0 : fault(s, expected, e);
}

static int integer(struct scan *s, uint64_t max, const char *expected, uint64_t *out,
                   struct err *e) {
    const char *text;
    size_t n;
    int rc = number(s, &text, &n, expected, e);
    if (rc)
        return rc;
    bool ok = true;
    uint64_t v = 0;
    for (size_t i = 0; i < n && ok; i++)
        ok = text[i] >= '0' && text[i] <= '9' && !__builtin_mul_overflow(v, (uint64_t)10, &v) &&
             !__builtin_add_overflow(v, (uint64_t)(text[i] - '0'), &v);
    if (!ok || v > max) {
        s->p = text;
        return fault(s, expected, e);
    }
    *out = v;
    return 0;
}

static int skip_digits(struct scan *s, const char *expected, struct err *e) {
    const char *first = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
        s->p++;
    return s->p > first ? 0 : fault(s, expected, e);
}

static bool next_is(struct scan *s, char a, char b) {
    if (s->p >= s->end || (*s->p != a && *s->p != b))
        return false;
    s->p++;
    return true;
}

static int skip_number(struct scan *s, struct err *e) {
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

static int skip(struct scan *s, int depth, struct err *e);

static int skip_members(struct scan *s, char close, bool named, int depth, struct err *e) {
    int rc;
    s->p++;
    if (peek(s, close)) {
        s->p++;
        return 0;
    }
    for (;;) {
        const char *text;
        size_t n;
        if (named && ((rc = string(s, &text, &n, e)) || (rc = take(s, ':', "':'", e))))
            return rc;
        if ((rc = skip(s, depth + 1, e)))
            return rc;
        if (peek(s, close)) {
            s->p++;
            return 0;
        }
        if ((rc = take(s, ',', close == ']' ? "',' or ']'" : "',' or '}'", e)))
            return rc;
    }
}

static int skip(struct scan *s, int depth, struct err *e) {
    static const char *const words[] = {"true", "false", "null"};
    const char *text;
    size_t n;
    space(s);
    if (depth > DEPTH_MAX)
        return fault(s, "at most 64 nested values", e);
    if (peek(s, '"'))
        return string(s, &text, &n, e);
    if (peek(s, '{'))
        return skip_members(s, '}', true, depth, e);
    if (peek(s, '['))
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

static int read_blocks(struct scan *s, struct mooncake *m, uint32_t *count, struct err *e) {
    int rc = take(s, '[', "an array of block ids", e);
    if (rc)
        return rc;
    *count = 0;
    if (peek(s, ']')) {
        s->p++;
        return 0;
    }
    for (;;) {
        if (*count == m->cap) {
            size_t cap = m->cap ? m->cap * 2 : 256;
            if (cap > TRACE_BLOCKS_MAX)
                return fault(s, "at most 32768 block ids", e);
            uint64_t *p = realloc(m->blocks, cap * sizeof *p);
            if (!p)
                return err_set(e, ASSAY_ENOMEM, "out of memory");
            m->blocks = p;
            m->cap = cap;
        }
        space(s);
        if ((rc = integer(s, UINT64_MAX, "a block id", &m->blocks[*count], e)))
            return rc;
        ++*count;
        if (peek(s, ']')) {
            s->p++;
            return 0;
        }
        if ((rc = take(s, ',', "',' or ']'", e)))
            return rc;
    }
}

enum member { TIMESTAMP, INPUT, OUTPUT, HASH_IDS, MEMBERS };
static const char *const member_names[MEMBERS] = {"timestamp", "input_length", "output_length",
                                                  "hash_ids"};

static int read_member(struct scan *s, struct mooncake *m, enum member which, struct trace_row *row,
                       struct err *e) {
    const char *text;
    size_t n;
    uint64_t v = 0;
    int rc = 0;
    space(s);
    switch (which) {
    case TIMESTAMP:
        if ((rc = number(s, &text, &n, "a time in ms", e)))
            return rc;
        if (parse_decimal_ns(text, n, NS_PER_MS, &row->arrival_ns) && row->arrival_ns >= 0)
            return 0;
        s->p = text;
        return fault(s, "a time in ms from 0 to 9.2e12", e);
    case INPUT:
        rc = integer(s, TOKENS_MAX, "input_length from 1 to 16777216", &v, e);
        row->isl = (uint32_t)v;
        break;
    case OUTPUT:
        rc = integer(s, TOKENS_MAX, "output_length from 1 to 16777216", &v, e);
        row->osl = (uint32_t)v;
        break;
    case HASH_IDS:
    case MEMBERS:
        return read_blocks(s, m, &row->nblocks, e);
    }
    if (rc == 0 && v == 0) {
        while (s->p > s->start && s->p[-1] == '0')
            s->p--;
        rc = fault(s, "a length of at least 1 token", e);
    }
    return rc;
}

static int read_object(struct scan *s, struct mooncake *m, struct trace_row *row, struct err *e) {
    unsigned seen = 0;
    int rc = take(s, '{', "'{'", e);
    if (rc)
        return rc;
    bool more = !peek(s, '}');
    if (!more)
        s->p++;
    while (more) {
        const char *name;
        size_t n;
        space(s);
        const char *at = s->p;
        if ((rc = string(s, &name, &n, e)) || (rc = take(s, ':', "':'", e)))
            return rc;
        unsigned which = 0;
        while (which < MEMBERS &&
               (strlen(member_names[which]) != n || memcmp(member_names[which], name, n)))
            which++;
        if (which < MEMBERS && (seen & 1u << which)) {
            s->p = at;
            return fault(s, "each member once", e);
        }
        seen |= 1u << which;
        rc = which < MEMBERS ? read_member(s, m, (enum member)which, row, e) : skip(s, 0, e);
        if (rc)
            return rc;
        more = !peek(s, '}');
        if (!more)
            s->p++;
        else if ((rc = take(s, ',', "',' or '}'", e)))
            return rc;
    }
    space(s);
    if (s->p < s->end)
        return fault(s, "the line's end", e);
    for (unsigned i = 0; i < HASH_IDS; i++)
        if (!(seen & 1u << i))
            return reader_fault(s->r, s->r->line, 1, e, "expected a member \"%s\", found none",
                                member_names[i]);
    uint32_t want = (row->isl + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    if ((seen & 1u << HASH_IDS) && row->nblocks != want)
        return reader_fault(
            s->r, s->r->line, 1, e,
            "expected %u hash_ids (input_length %u in blocks of %d tokens), found %u", want,
            row->isl, BLOCK_TOKENS, row->nblocks);
    row->blocks = row->nblocks ? m->blocks : NULL;
    return 0;
}

static int mooncake_next(struct trace *t, struct trace_row *row, bool *end, struct err *e) {
    char *line;
    size_t n;
    do {
        int rc = reader_line(&t->reader, &line, &n, end, e);
        if (rc || *end)
            return rc;
    } while (n == 0);
    *row = (struct trace_row){.line = t->reader.line, .arrival_ns = -1};
    struct scan s = {&t->reader, line, line, line + n};
    return read_object(&s, t->state, row, e);
}

static void mooncake_close(struct trace *t) {
    free(((struct mooncake *)t->state)->blocks);
}

const struct trace_ops trace_mooncake = {
    .info = {.name = "mooncake",
             .summary = "Mooncake JSONL: timestamp (ms), input_length, output_length, hash_ids",
             .resolution_ns = NS_PER_MS,
             .block_tokens = BLOCK_TOKENS},
    .state_bytes = sizeof(struct mooncake),
    .next = mooncake_next,
    .close = mooncake_close,
};
