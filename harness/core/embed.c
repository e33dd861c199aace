/* Lookup in the table that the build writes (build/embed.S). */
#include "harness/core/embed.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

extern const struct embedded embedded_table[];
extern const uint64_t embedded_count;

const struct embedded *embedded_all(size_t *n) {
    *n = (size_t)embedded_count;
    return embedded_table;
}

const struct embedded *embedded_find(const char *path) {
    size_t lo = 0, hi = (size_t)embedded_count;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strcmp(path, embedded_table[mid].path);
        if (c == 0)
            return &embedded_table[mid];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

const struct embedded *embedded_find_in(const char *dir, const char *name, const char *suffix) {
    char path[256];
    int n = snprintf(path, sizeof path, "%s/%s%s", dir, name, suffix);
    if (n < 0 || (size_t)n >= sizeof path)
        return NULL;
    return embedded_find(path);
}
