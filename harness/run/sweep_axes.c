/* The pure parts of a sweep: the lists of values, and which points no other beats. */
#include "harness/run/sweep.h"

#include <math.h>
#include <string.h>

int sweep_axis_list(struct sweep_axis *axis, const char *list, const char *where, struct arena *a,
                    struct err *e) {
    size_t n = 1;
    for (const char *c = list; *c; c++)
        n += *c == ',';
    if (n > SWEEP_POINTS_MAX)
        return err_set(e, ASSAY_EUSAGE, "%s: %zu values, at most %d are allowed", where, n,
                       SWEEP_POINTS_MAX);
    axis->value = arena_alloc(a, n, sizeof *axis->value);
    if (!axis->value)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    axis->n = 0;
    for (const char *c = list;; c++) {
        size_t length = strcspn(c, ",");
        if (length == 0)
            return err_set(e, ASSAY_EUSAGE,
                           "%s: expected values apart by commas, found an empty one in '%s'", where,
                           list);
        const char *value = arena_strndup(a, c, length);
        if (!value)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        for (int i = 0; i < axis->n; i++)
            if (!strcmp(axis->value[i], value))
                return err_set(e, ASSAY_EUSAGE, "%s: value '%s' is there twice", where, value);
        axis->value[axis->n++] = value;
        c += length;
        if (!*c)
            return 0;
    }
}

int sweep_axis_over(struct sweep_axis *axis, const char *text, const char *where, struct arena *a,
                    struct err *e) {
    const char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return err_set(e, ASSAY_EUSAGE, "%s: expected KEY=V1,V2,…, found '%s'", where, text);
    axis->name = arena_strndup(a, text, (size_t)(equals - text));
    if (!axis->name)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    bool backend = !strncmp(axis->name, "o.", 2);
    axis->target = backend ? SWEEP_BACKEND : SWEEP_OVERRIDE;
    axis->key = axis->name + (backend ? 2 : 0);
    if (!*axis->key)
        return err_set(e, ASSAY_EUSAGE, "%s: expected a key after 'o.' in '%s'", where, text);
    return sweep_axis_list(axis, equals + 1, where, a, e);
}

void pareto_mark(const double *x, const double *y, int n, bool *on_frontier) {
    for (int i = 0; i < n; i++) {
        on_frontier[i] = !isnan(x[i]) && !isnan(y[i]);
        for (int j = 0; j < n && on_frontier[i]; j++)
            if (x[j] >= x[i] && y[j] >= y[i] && (x[j] > x[i] || y[j] > y[i]))
                on_frontier[i] = false;
    }
}
