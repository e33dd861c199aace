/* Idle sessions' KV blocks, kept for their next turn until others need the room.
 *
 * A session has at most one entry: the whole blocks of its context. Entries leave by being taken
 * (the next turn comes) or by eviction, least recently used first, an entry's tail before its head.
 * Memory is reserved ahead (prefix_reserve), so that keeping and evicting never allocate. */
#ifndef BACKENDS_TPU_SIM_PREFIX_H
#define BACKENDS_TPU_SIM_PREFIX_H

#include "harness/core/err.h"

#include <stdint.h>

struct prefix_cache {
    struct prefix_entry *entry; /* pool; index 0 is the list's anchor */
    uint32_t *slot;             /* hash table of entry indices, 0 = empty */
    uint32_t entries, capacity, slots, free_list;
    int64_t blocks; /* held by all entries */
};

void prefix_init(struct prefix_cache *p);
void prefix_release(struct prefix_cache *p);
/* Room for n more entries. */
int prefix_reserve(struct prefix_cache *p, uint32_t n, struct err *e) MUST_USE;
/* blocks > 0 of a session that has no entry. */
void prefix_keep(struct prefix_cache *p, uint64_t session, int64_t blocks);
/* Blocks of the session's entry, 0 when it has none; prefix_take also removes the entry. */
int64_t prefix_find(const struct prefix_cache *p, uint64_t session);
int64_t prefix_take(struct prefix_cache *p, uint64_t session);
/* Gives back n blocks (n <= p->blocks) of the least recently used sessions. */
void prefix_evict(struct prefix_cache *p, int64_t n);

#endif
