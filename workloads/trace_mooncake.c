/* Mooncake JSONL (github.com/kvcache-ai/Mooncake, FAST25-release): one flat object a line with
 * timestamp (ms), input_length, output_length and hash_ids (prefix blocks of 512 tokens, global to
 * the file). Read by a scanner of its own, because a trace may be replayed on a hot path. Members
 * of other names are skipped. */
#include "harness/core/clock.h"
#include "workloads/dist.h"
#include "workloads/trace_internal.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_TOKENS = 512 };

struct mooncake {
    struct id_list ids;
};

enum member { TIMESTAMP, INPUT, OUTPUT, HASH_IDS, MEMBERS };
static const char *const member_names[MEMBERS] = {"timestamp", "input_length", "output_length",
                                                  "hash_ids"};

static int read_member(struct lex *s, struct mooncake *m, enum member which, struct trace_row *row,
                       struct err *e) {
    const char *text;
    size_t n;
    uint64_t v = 0;
    int rc = 0;
    lex_space(s);
    switch (which) {
    case TIMESTAMP:
        if ((rc = lex_number(s, &text, &n, "a time in ms", e)))
            return rc;
        if (parse_decimal_ns(text, n, NS_PER_MS, &row->arrival_ns) && row->arrival_ns >= 0)
            return 0;
        s->p = text;
        return lex_fault(s, "a time in ms from 0 to 9.2e12", e);
    case INPUT:
        rc = lex_integer(s, TOKENS_MAX, "input_length from 1 to 16777216", &v, e);
        row->isl = (uint32_t)v;
        break;
    case OUTPUT:
        rc = lex_integer(s, TOKENS_MAX, "output_length from 1 to 16777216", &v, e);
        row->osl = (uint32_t)v;
        break;
    case HASH_IDS:
    case MEMBERS:
        return lex_ids(s, &m->ids, &row->nblocks, e);
    }
    if (rc == 0 && v == 0) {
        while (s->p > s->start && s->p[-1] == '0')
            s->p--;
        rc = lex_fault(s, "a length of at least 1 token", e);
    }
    return rc;
}

static int read_object(struct lex *s, struct mooncake *m, struct trace_row *row, struct err *e) {
    unsigned seen = 0;
    int rc = lex_take(s, '{', "'{'", e);
    if (rc)
        return rc;
    bool more = !lex_peek(s, '}');
    if (!more)
        s->p++;
    while (more) {
        const char *name;
        size_t n;
        lex_space(s);
        const char *at = s->p;
        if ((rc = lex_string(s, &name, &n, e)) || (rc = lex_take(s, ':', "':'", e)))
            return rc;
        unsigned which = 0;
        while (which < MEMBERS &&
               (strlen(member_names[which]) != n || memcmp(member_names[which], name, n)))
            which++;
        if (which < MEMBERS && (seen & 1u << which)) {
            s->p = at;
            return lex_fault(s, "each member once", e);
        }
        seen |= 1u << which;
        rc = which < MEMBERS ? read_member(s, m, (enum member)which, row, e) : lex_skip(s, e);
        if (rc)
            return rc;
        more = !lex_peek(s, '}');
        if (!more)
            s->p++;
        else if ((rc = lex_take(s, ',', "',' or '}'", e)))
            return rc;
    }
    lex_space(s);
    if (s->p < s->end)
        return lex_fault(s, "the line's end", e);
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
    row->blocks = row->nblocks ? m->ids.id : NULL;
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
    struct lex s = {&t->reader, line, line, line + n};
    return read_object(&s, t->state, row, e);
}

static void mooncake_close(struct trace *t) {
    free(((struct mooncake *)t->state)->ids.id);
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
