/* The tables that loading fills and encoding reads. */
#include "workloads/tokenizer/tokenizer_internal.h"

#include <string.h>

static uint64_t hash_bytes(const char *p, size_t n) {
    uint64_t h = UINT64_C(0x9E3779B97F4A7C15) ^ n;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)p[i]) * UINT64_C(0x100000001B3);
    return h ^ h >> 29;
}

static size_t power_above(size_t n) {
    size_t p = 16;
    while (p < n)
        p *= 2;
    return p;
}

int vocab_init(struct vocab *v, struct arena *a, size_t n) {
    size_t slots = power_above(n * 2 + 1);
    v->slots = arena_alloc(a, slots, sizeof *v->slots);
    v->mask = slots - 1;
    return v->slots ? 0 : ASSAY_ENOMEM;
}

void vocab_put(struct vocab *v, const struct str *texts, uint32_t id) {
    size_t i = hash_bytes(texts[id].p, texts[id].n) & v->mask;
    while (v->slots[i])
        i = (i + 1) & v->mask;
    v->slots[i] = id + 1;
}

uint32_t vocab_get(const struct vocab *v, const struct str *texts, const char *p, size_t n) {
    for (size_t i = hash_bytes(p, n) & v->mask; v->slots[i]; i = (i + 1) & v->mask) {
        const struct str *s = &texts[v->slots[i] - 1];
        if (s->n == n && !memcmp(s->p, p, n))
            return v->slots[i] - 1;
    }
    return ID_NONE;
}

int trie_init(struct trie *t, struct arena *a, size_t bytes) {
    size_t slots = power_above(bytes * 2 + 1);
    t->edges = arena_alloc(a, slots, sizeof *t->edges);
    t->to = arena_alloc(a, slots, sizeof *t->to);
    t->token = arena_alloc(a, bytes + 2, sizeof *t->token);
    t->mask = slots - 1;
    t->nodes = 1;
    return t->edges && t->to && t->token ? 0 : ASSAY_ENOMEM;
}

static size_t edge_slot(const struct trie *t, uint64_t key) {
    size_t i = (size_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> 24) & t->mask;
    while (t->edges[i] && t->edges[i] != key + 1)
        i = (i + 1) & t->mask;
    return i;
}

void trie_put(struct trie *t, const char *p, size_t n, uint32_t token) {
    uint32_t node = 0;
    if (!n)
        return;
    t->first[(uint8_t)p[0]] = true;
    for (size_t k = 0; k < n; k++) {
        uint64_t key = (uint64_t)node << 8 | (uint8_t)p[k];
        size_t i = edge_slot(t, key);
        if (!t->edges[i])
            t->edges[i] = key + 1, t->to[i] = t->nodes++;
        node = t->to[i];
    }
    if (!t->token[node])
        t->token[node] = token + 1; /* the first of equal ones */
    t->count++;
}

size_t trie_match(const struct trie *t, const uint8_t *p, size_t n, uint32_t *token) {
    uint32_t node = 0;
    size_t best = 0;
    for (size_t k = 0; k < n; k++) {
        size_t i = edge_slot(t, (uint64_t)node << 8 | p[k]);
        if (!t->edges[i])
            break;
        node = t->to[i];
        if (t->token[node])
            *token = t->token[node] - 1, best = k + 1;
    }
    return best;
}
