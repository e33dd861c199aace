/* The prefix cache's table and its LRU list. Not here: when a hit counts (engine.c). */
#include "backends/tpu_sim/prefix.h"

#include "harness/core/rng.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct prefix_entry {
    uint64_t session;
    int64_t blocks;
    uint32_t prev, next; /* LRU order from the anchor: next of 0 is the oldest */
};

void prefix_init(struct prefix_cache *p) {
    *p = (struct prefix_cache){0};
}

void prefix_release(struct prefix_cache *p) {
    free(p->entry);
    free(p->slot);
    prefix_init(p);
}

static uint32_t home(const struct prefix_cache *p, uint64_t session) {
    uint64_t x = session;
    return (uint32_t)(splitmix64(&x) & (p->slots - 1));
}

static uint32_t find_slot(const struct prefix_cache *p, uint64_t session) {
    uint32_t i = home(p, session);
    while (p->slot[i] && p->entry[p->slot[i]].session != session)
        i = (i + 1) & (p->slots - 1);
    return i;
}

int prefix_reserve(struct prefix_cache *p, uint32_t n, struct err *e) {
    if (p->capacity > 0 && n <= p->capacity - 1 - p->entries)
        return 0;
    uint64_t want = (uint64_t)p->entries + n + 1, capacity = p->capacity ? p->capacity : 64;
    while (capacity < want)
        capacity *= 2;
    if (capacity > UINT32_MAX / 4)
        return err_set(e, ASSAY_ENOMEM, "too many idle sessions in the prefix cache");
    struct prefix_entry *entry = realloc(p->entry, capacity * sizeof *entry);
    if (!entry)
        return err_set(e, ASSAY_ENOMEM, "out of memory for %llu idle sessions",
                       (unsigned long long)capacity);
    p->entry = entry;
    uint32_t *slot = calloc(capacity * 2, sizeof *slot);
    if (!slot)
        return err_set(e, ASSAY_ENOMEM, "out of memory for %llu idle sessions",
                       (unsigned long long)capacity);
    free(p->slot);
    p->slot = slot;
    p->slots = (uint32_t)capacity * 2;
    uint32_t from = p->capacity ? p->capacity : 1;
    if (!p->capacity)
        p->entry[0] = (struct prefix_entry){0};
    for (uint32_t i = (uint32_t)capacity; i-- > from;) {
        p->entry[i] = (struct prefix_entry){.next = p->free_list};
        p->free_list = i;
    }
    p->capacity = (uint32_t)capacity;
    for (uint32_t i = p->entry[0].next; i; i = p->entry[i].next)
        p->slot[find_slot(p, p->entry[i].session)] = i;
    return 0;
}

void prefix_keep(struct prefix_cache *p, uint64_t session, int64_t blocks) {
    assert(p->free_list && blocks > 0);
    uint32_t s = find_slot(p, session);
    assert(!p->slot[s]);
    uint32_t i = p->free_list;
    struct prefix_entry *n = &p->entry[i], *anchor = &p->entry[0];
    p->free_list = n->next;
    *n = (struct prefix_entry){session, blocks, anchor->prev, 0};
    p->entry[anchor->prev].next = i;
    anchor->prev = i;
    p->slot[s] = i;
    p->entries++;
    p->blocks += blocks;
}

/* Linear probing without tombstones: what follows the hole moves back where it may. */
static void remove_slot(struct prefix_cache *p, uint32_t hole) {
    uint32_t mask = p->slots - 1;
    for (uint32_t i = (hole + 1) & mask; p->slot[i]; i = (i + 1) & mask) {
        uint32_t h = home(p, p->entry[p->slot[i]].session);
        if (((i - h) & mask) >= ((i - hole) & mask)) {
            p->slot[hole] = p->slot[i];
            hole = i;
        }
    }
    p->slot[hole] = 0;
}

static void drop(struct prefix_cache *p, uint32_t i) {
    struct prefix_entry *n = &p->entry[i];
    remove_slot(p, find_slot(p, n->session));
    p->entry[n->prev].next = n->next;
    p->entry[n->next].prev = n->prev;
    p->blocks -= n->blocks;
    p->entries--;
    *n = (struct prefix_entry){.next = p->free_list};
    p->free_list = i;
}

int64_t prefix_find(const struct prefix_cache *p, uint64_t session) {
    if (!p->entries)
        return 0;
    uint32_t i = p->slot[find_slot(p, session)];
    return i ? p->entry[i].blocks : 0;
}

int64_t prefix_take(struct prefix_cache *p, uint64_t session) {
    if (!p->entries)
        return 0;
    uint32_t i = p->slot[find_slot(p, session)];
    if (!i)
        return 0;
    int64_t blocks = p->entry[i].blocks;
    drop(p, i);
    return blocks;
}

void prefix_evict(struct prefix_cache *p, int64_t n) {
    assert(n <= p->blocks);
    while (n > 0) {
        uint32_t i = p->entry[0].next;
        struct prefix_entry *oldest = &p->entry[i];
        if (oldest->blocks > n) {
            oldest->blocks -= n;
            p->blocks -= n;
            return;
        }
        n -= oldest->blocks;
        drop(p, i);
    }
}
