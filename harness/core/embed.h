/* Files compiled into the binary: workload library, models, chips, rule packs, SQL, schemas.
 * The names are their paths in the source tree ("workloads/library/chat.json"). */
#ifndef HARNESS_CORE_EMBED_H
#define HARNESS_CORE_EMBED_H

#include <stddef.h>

struct embedded {
    const char *path;
    const char *data; /* NUL-terminated past size */
    size_t size;
};

/* Sorted by path; *n receives the count. */
const struct embedded *embedded_all(size_t *n);

/* NULL when there is no such file. */
const struct embedded *embedded_find(const char *path);

/* "workloads/library" + "chat" + ".json"; NULL when absent. */
const struct embedded *embedded_find_in(const char *dir, const char *name, const char *suffix);

#endif
