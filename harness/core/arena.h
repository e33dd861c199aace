/* An arena: things that die together, freed by one call. Allocation is zeroed and 16-byte aligned.
 * Running out of memory returns NULL; sizes go through checked multiply. */
#ifndef HARNESS_CORE_ARENA_H
#define HARNESS_CORE_ARENA_H

#include <stddef.h>

struct arena_chunk;
struct arena {
    struct arena_chunk *head;
};

void arena_release(struct arena *a); /* the arena is empty and usable again afterwards */
void *arena_alloc(struct arena *a, size_t n, size_t size);
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t n);

#endif
