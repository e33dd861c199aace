/* Prefixes that groups of requests have in common (a system prompt), kept once in the KV cache.
 *
 * The blocks of a group come from the first sequence that computed them; sequences that read them are
 * counted. Blocks that nobody reads give way when others need the room, the least recently used group
 * first and whole, because its requests need all of it or none. Memory is reserved ahead (common_get), so
 * that giving and taking never allocate. */
#ifndef BACKENDS_TPU_SIM_COMMON_H
#define BACKENDS_TPU_SIM_COMMON_H

#include "harness/core/err.h"

#include <stdint.h>

struct common_group {
    uint64_t seed;
    int64_t blocks; /* held; 0 = not in the cache */
    int64_t readers;
    uint64_t used; /* the clock's value at its last use */
};

struct common_cache {
    struct common_group *group;
    uint32_t n, cap;
    uint32_t *slot; /* hash table of group index + 1, 0 = empty */
    uint32_t slots;
    uint64_t clock;
    int64_t idle_blocks; /* of groups without readers */
};

#define COMMON_NONE UINT32_MAX

void common_release(struct common_cache *c);
/* The group of a seed, made when there is none. */
int common_get(struct common_cache *c, uint64_t seed, uint32_t *group, struct err *e) MUST_USE;
/* Blocks of a group, 0 when they are not in the cache. */
int64_t common_blocks(const struct common_cache *c, uint32_t group);
/* A sequence begins, ends to read the group's blocks. */
void common_attach(struct common_cache *c, uint32_t group);
void common_detach(struct common_cache *c, uint32_t group);
/* blocks > 0 of a group that has none, from a sequence that goes on reading them (attached). */
void common_give(struct common_cache *c, uint32_t group, int64_t blocks);
/* Drops groups without readers until n blocks are free or none is left; returns how many blocks. */
int64_t common_evict(struct common_cache *c, int64_t n);

#endif
