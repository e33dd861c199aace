/* Inside the metrics: the rows of other tools' figures. A row is a statistic of a column or a scalar
 * function, with the tool's own name and unit. */
#ifndef HARNESS_MEASURE_COMPAT_H
#define HARNESS_MEASURE_COMPAT_H

#include "harness/measure/metrics_internal.h"

#include <stdbool.h>

enum compat_stat {
    CSTAT_MEAN,
    CSTAT_MEAN_FLOOR, /* integer division of an integer sum */
    CSTAT_SUM,
    CSTAT_SD,         /* population */
    CSTAT_SD_SAMPLE,  /* n - 1 */
    CSTAT_MIN,
    CSTAT_MAX,
    CSTAT_LINEAR7,        /* numpy's and pandas' default */
    CSTAT_NEAREST,
    CSTAT_LOADGEN,        /* index trunc(n p) */
    CSTAT_LOWER,          /* numpy method="lower" */
    CSTAT_EARLY_STOPPING, /* binomial estimate at confidence 0.99 */
};

struct compat_context {
    const struct pass *p;
    const struct metrics_facts *f;
    const struct columns *cols;
};

struct compat_row {
    const char *tool, *path; /* '/' separates nested members */
    double (*scalar)(const struct compat_context *); /* NULL: a statistic of a column */
    enum column_id column;
    enum column_id same_as; /* only when this column has as many values; COL_NONE = always */
    enum compat_stat stat;
    int64_t ppm;
    double scale;
    bool stat_inverse; /* scale / value */
    bool whole;        /* the tool prints an integer */
};

extern const struct compat_row compat_rows[]; /* ends with tool NULL */

#endif
