/* One word to ids: merges in order of rank, the leftmost first. Short words by scanning for the
 * lowest rank, long ones with a heap; both give what the definition gives. */
#include "workloads/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

enum { SCAN_MAX = 48 };

const struct merge *merge_get(const struct tokenizer *t, uint32_t left, uint32_t right) {
    uint64_t pair = (uint64_t)left << 32 | right;
    uint64_t h = pair * UINT64_C(0x9E3779B97F4A7C15);
    for (size_t i = (h ^ h >> 32) & t->merges_mask; t->merges[i].pair != UINT64_MAX;
         i = (i + 1) & t->merges_mask)
        if (t->merges[i].pair == pair)
            return &t->merges[i];
    return NULL;
}

void *work_grow(struct tokenizer_work *w, void *p, size_t *cap, size_t want, size_t size) {
    if (want <= *cap)
        return p;
    size_t to = want + want / 2 + 64;
    void *more = realloc(p, to * size);
    if (!more) {
        w->failed = true;
        return p;
    }
    *cap = to;
    return more;
}

/* The symbols that a word starts from, into w->word; returns how many. */
static size_t symbols(struct tokenizer_work *w, const char *p, size_t n) {
    const struct tokenizer *t = w->t;
    w->word = work_grow(w, w->word, &w->cap_word, n, sizeof *w->word);
    if (w->failed)
        return 0;
    size_t k = 0;
    bool unk = false; /* one is pending: the next unknown may join it */
    const uint8_t *s = (const uint8_t *)p, *end = s + n;
    while (s < end) {
        const uint8_t *from = s;
        uint32_t id;
        size_t len = t->byte_level ? 1 : utf8_len(*s);
        s += len;
        id = len == 1 ? t->byte_id[*from]
                      : vocab_get(&t->by_bytes, t->bytes, (const char *)from, len);
        if (id != ID_NONE) {
            if (unk)
                w->word[k++] = t->unk, unk = false;
            w->word[k++] = id;
            continue;
        }
        if (t->byte_fallback && !t->byte_level) {
            bool all = true;
            for (size_t i = 0; i < len; i++)
                all &= t->fallback_id[from[i]] != ID_NONE;
            if (all) {
                for (size_t i = 0; i < len; i++)
                    w->word[k++] = t->fallback_id[from[i]];
                continue;
            }
        }
        if (t->unk == ID_NONE)
            continue;
        if (unk && !t->fuse_unk)
            w->word[k++] = t->unk;
        unk = true;
    }
    if (unk)
        w->word[k++] = t->unk;
    return k;
}

static size_t merge_scan(const struct tokenizer *t, uint32_t *ids, size_t n) {
    uint32_t rank[SCAN_MAX], to[SCAN_MAX];
    for (size_t i = 0; i + 1 < n; i++) {
        const struct merge *m = merge_get(t, ids[i], ids[i + 1]);
        rank[i] = m ? m->rank : UINT32_MAX, to[i] = m ? m->id : 0;
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == UINT32_MAX)
            break;
        ids[best] = to[best];
        n--;
        for (size_t i = best + 1; i < n; i++)
            ids[i] = ids[i + 1];
        for (size_t i = best + 1; i + 1 < n; i++)
            rank[i] = rank[i + 1], to[i] = to[i + 1];
        if (best + 1 < n) {
            const struct merge *m = merge_get(t, ids[best], ids[best + 1]);
            rank[best] = m ? m->rank : UINT32_MAX, to[best] = m ? m->id : 0;
        }
        if (best) {
            const struct merge *m = merge_get(t, ids[best - 1], ids[best]);
            rank[best - 1] = m ? m->rank : UINT32_MAX, to[best - 1] = m ? m->id : 0;
        }
    }
    return n;
}

static bool before(struct candidate a, struct candidate b) {
    return a.rank != b.rank ? a.rank < b.rank : a.pos < b.pos;
}

static void push(struct tokenizer_work *w, uint32_t pos, uint32_t left, uint32_t right) {
    const struct merge *m = merge_get(w->t, left, right);
    if (!m)
        return;
    w->heap = work_grow(w, w->heap, &w->cap_heap, w->nheap + 1, sizeof *w->heap);
    if (w->failed)
        return;
    struct candidate c = {m->rank, pos, m->id};
    size_t i = w->nheap++;
    while (i && before(c, w->heap[(i - 1) / 2]))
        w->heap[i] = w->heap[(i - 1) / 2], i = (i - 1) / 2;
    w->heap[i] = c;
}

static struct candidate pop(struct tokenizer_work *w) {
    struct candidate top = w->heap[0], last = w->heap[--w->nheap];
    size_t i = 0;
    for (;;) {
        size_t k = 2 * i + 1;
        if (k >= w->nheap)
            break;
        if (k + 1 < w->nheap && before(w->heap[k + 1], w->heap[k]))
            k++;
        if (!before(w->heap[k], last))
            break;
        w->heap[i] = w->heap[k], i = k;
    }
    w->heap[i] = last;
    return top;
}

static size_t merge_heap(struct tokenizer_work *w, size_t n) {
    w->symbols = work_grow(w, w->symbols, &w->cap_symbols, n, sizeof *w->symbols);
    if (w->failed)
        return 0;
    struct symbol *s = w->symbols;
    for (size_t i = 0; i < n; i++)
        s[i] = (struct symbol){w->word[i], (int32_t)i - 1, i + 1 < n ? (int32_t)i + 1 : -1};
    w->nheap = 0;
    for (size_t i = 0; i + 1 < n; i++)
        push(w, (uint32_t)i, s[i].id, s[i + 1].id);
    while (w->nheap && !w->failed) {
        struct candidate c = pop(w);
        struct symbol *left = &s[c.pos];
        if (left->id == ID_NONE || left->next < 0)
            continue;
        struct symbol *right = &s[left->next];
        const struct merge *m = merge_get(w->t, left->id, right->id);
        if (!m || m->id != c.id)
            continue;
        left->id = c.id;
        left->next = right->next;
        right->id = ID_NONE;
        if (left->next >= 0) {
            s[left->next].prev = (int32_t)c.pos;
            push(w, c.pos, left->id, s[left->next].id);
        }
        if (left->prev >= 0)
            push(w, (uint32_t)left->prev, s[left->prev].id, left->id);
    }
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if (s[i].id != ID_NONE)
            w->word[k++] = s[i].id;
    return k;
}

/* Ids of a word into w->word. */
static size_t word_ids(struct tokenizer_work *w, const char *p, size_t n) {
    const struct tokenizer *t = w->t;
    if (t->ignore_merges) {
        uint32_t id = vocab_get(&t->by_bytes, t->bytes, p, n);
        if (id != ID_NONE) {
            w->word = work_grow(w, w->word, &w->cap_word, 1, sizeof *w->word);
            if (w->failed)
                return 0;
            w->word[0] = id;
            return 1;
        }
    }
    size_t k = symbols(w, p, n);
    return k <= SCAN_MAX ? merge_scan(t, w->word, k) : merge_heap(w, k);
}

static uint64_t word_hash(const char *p, size_t n) {
    uint64_t h = n * UINT64_C(0x9E3779B97F4A7C15);
    while (n >= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        h = (h ^ v) * UINT64_C(0xD6E8FEB86659FD93);
        h ^= h >> 32;
        p += 8, n -= 8;
    }
    uint64_t v = 0;
    memcpy(&v, p, n);
    h = (h ^ v) * UINT64_C(0xD6E8FEB86659FD93);
    return h ^ h >> 32;
}

static void one_word(struct tokenizer_work *w, const char *p, size_t n) {
    if (n <= CACHE_BYTES) {
        uint64_t h = word_hash(p, n);
        struct cached *c = &w->cache[h & (CACHE_SETS - 1)];
        if (c->len == n && c->hash == (uint32_t)(h >> 32) && !memcmp(c->spare, p, n)) {
            if (w->count + CACHE_IDS <= w->cap)
                memcpy(w->ids + w->count, c->ids, sizeof c->ids);
            else
                for (size_t i = 0; i < c->n && w->count + i < w->cap; i++)
                    w->ids[w->count + i] = c->ids[i];
            w->count += c->n;
            return;
        }
        size_t k = word_ids(w, p, n);
        for (size_t i = 0; i < k; i++)
            work_emit(w, w->word[i]);
        if (k <= CACHE_IDS && !w->failed) {
            c->len = (uint8_t)n, c->n = (uint8_t)k, c->hash = (uint32_t)(h >> 32);
            memcpy(c->spare, p, n);
            memcpy(c->ids, w->word, k * sizeof *c->ids);
        }
        return;
    }
    struct cached2 *c = NULL;
    uint64_t h = 0;
    if (n <= CACHE2_BYTES) {
        h = word_hash(p, n);
        c = &w->cache2[h & (CACHE2_SETS - 1)];
        if (c->len == n && c->hash == h && !memcmp(c->key, p, n)) {
            for (size_t i = 0; i < c->n; i++)
                work_emit(w, c->ids[i]);
            return;
        }
    }
    size_t k = word_ids(w, p, n);
    for (size_t i = 0; i < k; i++)
        work_emit(w, w->word[i]);
    if (c && k <= CACHE2_IDS && !w->failed) {
        c->len = (uint16_t)n, c->n = (uint16_t)k, c->hash = h;
        memcpy(c->key, p, n);
        memcpy(c->ids, w->word, k * sizeof *c->ids);
    }
}

/* Whether some merge crosses between two neighbouring characters. */
static bool joins(const struct tokenizer *t, uint32_t a, uint32_t b) {
    if (a < 128 && b < 128)
        return t->ascii_joins[a][b];
    uint64_t key = ((uint64_t)a << 32 | b) + 1;
    uint64_t h = key * UINT64_C(0x9E3779B97F4A7C15);
    for (size_t i = (h ^ h >> 32) & t->joins_mask; t->joins[i]; i = (i + 1) & t->joins_mask)
        if (t->joins[i] == key)
            return true;
    return false;
}

void bpe_word(struct tokenizer_work *w, const char *p, size_t n) {
    const struct tokenizer *t = w->t;
    if (!n || w->failed)
        return;
    if (!t->seams) {
        one_word(w, p, n);
        return;
    }
    /* Merges never cross a seam, so the parts between seams merge as if alone. */
    const uint8_t *s = (const uint8_t *)p, *end = s + n, *from = s;
    uint32_t last = utf8_next(&s);
    while (s < end) {
        const uint8_t *at = s;
        uint32_t c = utf8_next(&s);
        if (!joins(t, last, c)) {
            one_word(w, (const char *)from, (size_t)(at - from));
            from = at;
        }
        last = c;
    }
    one_word(w, (const char *)from, (size_t)(end - from));
}
