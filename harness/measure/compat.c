/* What other tools would print from the same log. (Being built.) */
#include "harness/measure/metrics_internal.h"

void compat_want(const struct pass *p, struct column *col) {
    (void)p;
    (void)col;
}

json_t *compat_make(const struct pass *p, const struct metrics_facts *f, const struct column *col) {
    (void)p;
    (void)f;
    (void)col;
    return NULL;
}
