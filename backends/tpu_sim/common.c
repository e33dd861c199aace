/* The table of groups. There are few: a least recently used one is searched. */
#include "backends/tpu_sim/common.h"

#include "harness/core/rng.h"

#include <assert.h>
#include <stdlib.h>

void common_release(struct common_cache *c) {
    free(c->group);
    free(c->slot);
    *c = (struct common_cache){0};
}

static uint32_t *find(const struct common_cache *c, uint64_t seed) {
    uint64_t x = seed;
    uint32_t i = (uint32_t)(splitmix64(&x) & (c->slots - 1));
    while (c->slot[i] && c->group[c->slot[i] - 1].seed != seed)
        i = (i + 1) & (c->slots - 1);
    return &c->slot[i];
}

static int grow(struct common_cache *c, struct err *e) {
    uint32_t cap = c->cap ? 2 * c->cap : 16;
    struct common_group *group = realloc(c->group, cap * sizeof *group);
    if (group)
        c->group = group;
    uint32_t *slot = group && cap <= UINT32_MAX / 4 ? calloc(2 * (size_t)cap, sizeof *slot) : NULL;
    if (!slot)
        return err_set(e, ASSAY_ENOMEM, "out of memory for %u shared prefixes", cap);
    free(c->slot);
    c->slot = slot;
    c->slots = 2 * cap;
    c->cap = cap;
    for (uint32_t i = 0; i < c->n; i++)
        *find(c, c->group[i].seed) = i + 1;
    return 0;
}

int common_get(struct common_cache *c, uint64_t seed, uint32_t *group, struct err *e) {
    int rc = c->n == c->cap ? grow(c, e) : 0;
    if (rc)
        return rc;
    uint32_t *slot = find(c, seed);
    if (!*slot) {
        c->group[c->n++] = (struct common_group){.seed = seed};
        *slot = c->n;
    }
    *group = *slot - 1;
    return 0;
}

int64_t common_blocks(const struct common_cache *c, uint32_t group) {
    return c->group[group].blocks;
}

void common_attach(struct common_cache *c, uint32_t group) {
    struct common_group *g = &c->group[group];
    assert(g->blocks > 0);
    if (g->readers++ == 0)
        c->idle_blocks -= g->blocks;
    g->used = ++c->clock;
}

void common_detach(struct common_cache *c, uint32_t group) {
    struct common_group *g = &c->group[group];
    assert(g->readers > 0);
    if (--g->readers == 0)
        c->idle_blocks += g->blocks;
}

void common_give(struct common_cache *c, uint32_t group, int64_t blocks) {
    struct common_group *g = &c->group[group];
    assert(g->blocks == 0 && g->readers == 0 && blocks > 0);
    g->blocks = blocks;
    g->readers = 1;
    g->used = ++c->clock;
}

int64_t common_evict(struct common_cache *c, int64_t n) {
    int64_t freed = 0;
    while (freed < n && c->idle_blocks > 0) {
        struct common_group *oldest = NULL;
        for (uint32_t i = 0; i < c->n; i++) {
            struct common_group *g = &c->group[i];
            if (g->blocks && !g->readers && (!oldest || g->used < oldest->used))
                oldest = g;
        }
        assert(oldest);
        freed += oldest->blocks;
        c->idle_blocks -= oldest->blocks;
        oldest->blocks = 0;
    }
    return freed;
}
