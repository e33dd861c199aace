/* Text to ids: added tokens cut out, the rest normalised, split, merged. */
#include "workloads/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

static bool word_after(const char *p, size_t n) {
    if (!n)
        return false;
    const uint8_t *s = (const uint8_t *)p;
    return unicode_is_word(utf8_next(&s));
}

static size_t char_before(const char *p, size_t n) {
    size_t i = n - 1;
    while (i && ((uint8_t)p[i] & 0xC0) == 0x80)
        i--;
    return i;
}

static bool word_before(const char *p, size_t n) {
    if (!n)
        return false;
    size_t i = char_before(p, n);
    return word_after(p + i, n - i);
}

static size_t spaces_after(const char *p, size_t n) {
    const uint8_t *s = (const uint8_t *)p, *end = s + n, *from = s;
    while (s < end) {
        const uint8_t *at = s;
        if (!unicode_is_space(utf8_next(&s)))
            return (size_t)(at - from);
    }
    return n;
}

static size_t spaces_start(const char *p, size_t n) {
    while (n) {
        size_t i = char_before(p, n);
        const uint8_t *s = (const uint8_t *)p + i;
        if (!unicode_is_space(utf8_next(&s)))
            break;
        n = i;
    }
    return n;
}

typedef void (*rest_fn)(struct tokenizer_work *w, const char *p, size_t n, bool at_start);

/* Calls rest for what lies between added tokens of the trie. */
static void cut(struct tokenizer_work *w, const struct trie *trie, const char *p, size_t n,
                bool at_start, rest_fn rest) {
    size_t done = 0, i = 0;
    while (trie->count && i < n) {
        if (!trie->first[(uint8_t)p[i]]) {
            i++;
            continue;
        }
        uint32_t k = 0;
        size_t len = trie_match(trie, (const uint8_t *)p + i, n - i, &k);
        if (!len) {
            i++;
            continue;
        }
        const struct added *a = &w->t->added[k];
        size_t start = i, stop = i + len;
        i = stop;
        if (a->single_word && (word_before(p, start) || word_after(p + stop, n - stop)))
            continue;
        if (a->lstrip) {
            size_t left = spaces_start(p, start);
            start = left > done ? left : done;
        }
        if (a->rstrip)
            stop += spaces_after(p + stop, n - stop);
        if (done < start)
            rest(w, p + done, start - done, at_start && !done);
        work_emit(w, a->id);
        done = stop;
    }
    if (done < n)
        rest(w, p + done, n - done, at_start && !done);
}

static void after_normalized(struct tokenizer_work *w, const char *p, size_t n, bool at_start) {
    split_piece(w, 0, p, n, at_start);
}

static void after_raw(struct tokenizer_work *w, const char *p, size_t n, bool at_start) {
    if (w->t->nnorms)
        normalize_piece(w, &p, &n);
    if (w->t->normalized.count)
        cut(w, &w->t->normalized, p, n, at_start, after_normalized);
    else if (n)
        split_piece(w, 0, p, n, at_start);
}

int tokenizer_encode(const struct tokenizer *t, struct tokenizer_work *w, const char *text,
                     size_t n, unsigned flags, uint32_t *ids, size_t cap, size_t *count,
                     struct err *e) {
    *count = 0;
    if (n > TOKENIZER_TEXT_MAX_BYTES)
        return err_set(e, ASSAY_EINPUT, "a text of %zu bytes: at most %d can be tokenized", n,
                       (int)TOKENIZER_TEXT_MAX_BYTES);
    w->ids = ids, w->cap = cap, w->count = 0, w->failed = w->gave_up = false, w->nspans = 0;
    bool around = flags & TOKENIZER_ENCODE_TEMPLATE;
    for (int i = 0; around && i < t->nbefore; i++)
        work_emit(w, t->before[i]);
    size_t bad;
    if (utf8_valid(text, n, &bad) < n) {
        buf_clear(&w->clean);
        utf8_lossy(text, n, &w->clean);
        w->failed |= w->clean.failed;
        text = w->clean.p, n = w->clean.n;
    }
    if (!w->failed)
        cut(w, &t->raw, text, n, true, after_raw);
    for (int i = 0; around && i < t->nafter; i++)
        work_emit(w, t->after[i]);
    if (w->gave_up)
        return err_set(e, ASSAY_EINPUT,
                       "tokenizing %zu bytes: a regular expression of the tokenizer gave up at its "
                       "limit of steps",
                       n);
    if (w->failed)
        return err_set(e, ASSAY_ENOMEM, "tokenizing %zu bytes: out of memory", n);
    *count = w->count;
    return 0;
}

int tokenizer_count(const struct tokenizer *t, struct tokenizer_work *w, const char *text, size_t n,
                    size_t *count, struct err *e) {
    return tokenizer_encode(t, w, text, n, 0, NULL, 0, count, e);
}

struct tokenizer_work *tokenizer_work_new(const struct tokenizer *t) {
    struct tokenizer_work *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->t = t;
    struct buf *bufs[] = {&w->clean, &w->norm_a, &w->norm_b, &w->norm_scratch};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        buf_init(bufs[i], (size_t)16 * TOKENIZER_TEXT_MAX_BYTES);
    for (size_t i = 0; i < STEPS_MAX; i++)
        buf_init(&w->piece[i], (size_t)16 * TOKENIZER_TEXT_MAX_BYTES);
    w->cache = calloc(CACHE_SETS, sizeof *w->cache);
    w->cache2 = calloc(CACHE2_SETS, sizeof *w->cache2);
    w->match = pcre2_match_data_create(1, NULL);
    w->match_context = pcre2_match_context_create(NULL);
    if (!w->cache || !w->cache2 || !w->match || !w->match_context) {
        tokenizer_work_free(w);
        return NULL;
    }
    return w;
}

void tokenizer_work_free(struct tokenizer_work *w) {
    if (!w)
        return;
    buf_release(&w->clean);
    buf_release(&w->norm_a);
    buf_release(&w->norm_b);
    buf_release(&w->norm_scratch);
    for (size_t i = 0; i < STEPS_MAX; i++)
        buf_release(&w->piece[i]);
    free(w->spans);
    free(w->word);
    free(w->symbols);
    free(w->heap);
    free(w->cache);
    free(w->cache2);
    pcre2_match_data_free(w->match);
    pcre2_match_context_free(w->match_context);
    free(w);
}
