/* The pre-tokenizer: a piece goes through the steps, each cutting it further. */
#include "workloads/tokenizer/tokenizer_internal.h"

#include <string.h>

/* The next match of a step; SIZE_MAX: none. *from keeps what an empty match needs. */
static size_t next_match(struct tokenizer_work *w, const struct split_step *s, const char *p,
                         size_t n, size_t at, size_t last_end, size_t *start) {
    if (s->fast)
        return s->fast(w->t->classes, (const uint8_t *)p, n, at, start);
    if (s->kind == SPLIT_LITERAL) {
        const char *hit =
            at <= n && s->literal.n ? memmem(p + at, n - at, s->literal.p, s->literal.n) : NULL;
        if (!hit)
            return SIZE_MAX;
        *start = (size_t)(hit - p);
        return *start + s->literal.n;
    }
    size_t end;
    while (at <= n && regex_match(w, s->code, p, n, at, start, &end)) {
        if (*start < end || end != last_end)
            return end;
        /* an empty match right after a match is passed over */
        at = end + (end < n ? utf8_len((uint8_t)p[end]) : 1);
    }
    return SIZE_MAX;
}

static void add_span(struct tokenizer_work *w, size_t from, size_t to, bool match) {
    w->spans = work_grow(w, w->spans, &w->cap_spans, w->nspans + 1, sizeof *w->spans);
    if (!w->failed)
        w->spans[w->nspans++] = (struct span){from, to, match};
}

static void split_general(struct tokenizer_work *w, int step, const struct split_step *s,
                          const char *p, size_t n, bool at_start) {
    size_t base = w->nspans, prev = 0, at = 0, last_end = SIZE_MAX, start, end;
    while ((end = next_match(w, s, p, n, at, last_end, &start)) != SIZE_MAX) {
        if (prev != start)
            add_span(w, prev, start, s->invert);
        add_span(w, start, end, !s->invert);
        prev = at = last_end = end;
    }
    if (prev != n)
        add_span(w, prev, n, s->invert);
    if (w->failed)
        return;
    /* merge in place: spans[base, count) become pieces */
    size_t count = w->nspans, kept = base;
    struct span *v = w->spans;
    bool before = false;
    if (s->behavior == SPLIT_MERGED_WITH_NEXT) {
        kept = count; /* from the end, kept part grows downwards */
        for (size_t i = count; i-- > base;) {
            bool match = v[i].match;
            if (match && !before && kept < count)
                v[kept].from = v[i].from;
            else
                v[--kept] = v[i];
            before = match;
        }
        for (size_t i = kept; i < count; i++) {
            struct span x = w->spans[i]; /* the array may move below */
            if (x.from < x.to)
                split_piece(w, step + 1, p + x.from, x.to - x.from, at_start && !x.from);
        }
        w->nspans = base;
        return;
    }
    for (size_t i = base; i < count; i++) {
        struct span x = v[i];
        bool join = false;
        switch (s->behavior) {
        case SPLIT_REMOVED:
            if (x.match)
                continue;
            break;
        case SPLIT_MERGED_WITH_PREVIOUS:
            join = x.match && !before;
            break;
        case SPLIT_CONTIGUOUS:
            join = x.match == before;
            break;
        default:
            break;
        }
        before = x.match;
        if (join && kept > base)
            v[kept - 1].to = x.to;
        else
            v[kept++] = x;
    }
    w->nspans = kept;
    for (size_t i = base; i < kept; i++) {
        struct span x = w->spans[i];
        if (x.from < x.to)
            split_piece(w, step + 1, p + x.from, x.to - x.from, at_start && !x.from);
    }
    w->nspans = base;
}

/* Isolated matches need no list. */
static void split_isolated(struct tokenizer_work *w, int step, const struct split_step *s,
                           const char *p, size_t n, bool at_start) {
    size_t at = 0, last_end = SIZE_MAX, start = 0, end;
    bool leaf = step + 1 == w->t->nsplits;
    while (!w->failed && (end = next_match(w, s, p, n, at, last_end, &start)) != SIZE_MAX) {
        if (start > at)
            split_piece(w, step + 1, p + at, start - at, at_start && !at);
        if (leaf)
            bpe_word(w, p + start, end - start);
        else if (end > start)
            split_piece(w, step + 1, p + start, end - start, at_start && !start);
        at = last_end = end;
    }
    if (at < n)
        split_piece(w, step + 1, p + at, n - at, at_start && !at);
}

static void metaspace(struct tokenizer_work *w, int step, const struct split_step *s, const char *p,
                      size_t n, bool at_start) {
    struct buf *b = &w->piece[step];
    buf_clear(b);
    bool has = (n >= s->literal.n && !memcmp(p, s->literal.p, s->literal.n)) || p[0] == ' ';
    if (!has && (s->prepend == 1 || (s->prepend == 2 && at_start)))
        buf_put(b, s->literal.p, s->literal.n);
    for (size_t i = 0; i < n; i++)
        if (p[i] == ' ')
            buf_put(b, s->literal.p, s->literal.n);
        else
            buf_putc(b, p[i]);
    if (b->failed) {
        w->failed = true;
        return;
    }
    if (!s->split) {
        split_piece(w, step + 1, b->p, b->n, at_start);
        return;
    }
    struct split_step cut = {
        .kind = SPLIT_LITERAL, .behavior = SPLIT_MERGED_WITH_NEXT, .literal = s->literal};
    split_general(w, step, &cut, b->p, b->n, at_start);
}

void split_piece(struct tokenizer_work *w, int step, const char *p, size_t n, bool at_start) {
    if (w->failed || !n)
        return;
    if (step == w->t->nsplits) {
        bpe_word(w, p, n);
        return;
    }
    const struct split_step *s = &w->t->splits[step];
    switch (s->kind) {
    case SPLIT_METASPACE:
        metaspace(w, step, s, p, n, at_start);
        return;
    case SPLIT_PREFIX_SPACE:
        if (p[0] != ' ') {
            struct buf *b = &w->piece[step];
            buf_clear(b);
            buf_putc(b, ' ');
            buf_put(b, p, n);
            w->failed |= b->failed;
            p = b->p, n = b->n;
        }
        split_piece(w, step + 1, p, n, at_start);
        return;
    default:
        if (s->behavior == SPLIT_ISOLATED)
            split_isolated(w, step, s, p, n, at_start);
        else
            split_general(w, step, s, p, n, at_start);
    }
}
