/* What other tools would print from the same log: their names, their definitions, their percentile
 * rules. Only what this log supports is there; a figure that would need what no event says (their
 * tokenizer, their sampling clock) is left out, and so is one whose definition differs for a request of
 * this run in a way the log cannot settle. These figures are for comparison with published numbers of
 * those tools; the house's own are in metrics.c. Tables and formulas of each tool: compat_tables.c. */
#include "harness/measure/compat.h"

#include "harness/measure/stats.h"

#include <math.h>
#include <string.h>

static bool usable(const struct compat_row *r, const struct columns *cols) {
    int64_t n = column_n(cols->at[r->column]);
    if (n == 0 || (r->stat == CSTAT_SD_SAMPLE && n < 2))
        return false;
    /* the same requests as another column, or the tool would have counted others too */
    return r->same_as == COL_NONE || n == column_n(cols->at[r->same_as]);
}

/* Which ranks a row needs; a zero count when it needs none. */
static int ranks_of(const struct compat_row *r, int64_t n, struct stats_position *at) {
    int64_t t;
    switch (r->stat) {
    case CSTAT_LINEAR7:
        *at = stats_linear7(n, (double)r->ppm / 1e6);
        return at->lo == at->hi ? 1 : 2;
    case CSTAT_NEAREST:
        at->lo = stats_nearest_rank(n, r->ppm) - 1;
        return 1;
    case CSTAT_LOADGEN:
        at->lo = stats_loadgen_index(n, (double)r->ppm / 1e6);
        return 1;
    case CSTAT_LOWER:
        at->lo = stats_lower_index(n, r->ppm);
        return 1;
    case CSTAT_EARLY_STOPPING:
        t = stats_early_stopping_t(n, (double)r->ppm / 1e6, 0, 0.99);
        at->lo = n - t;
        return t ? 1 : 0;
    default:
        return 0;
    }
}

void compat_want(struct columns *cols) {
    for (const struct compat_row *r = compat_rows; r->tool; r++) {
        if (r->scalar || !usable(r, cols))
            continue;
        struct column *c = cols->at[r->column];
        struct stats_position at;
        int k = ranks_of(r, column_n(c), &at);
        if (k)
            column_want(c, at.lo);
        if (k == 2)
            column_want(c, at.hi);
        c->want_sd |= r->stat == CSTAT_SD || r->stat == CSTAT_SD_SAMPLE;
    }
}

static double value_of_row(const struct compat_row *r, const struct column *c) {
    int64_t n = column_n(c);
    struct stats_position at;
    int k;
    switch (r->stat) {
    case CSTAT_MEAN:
        return c->mean;
    case CSTAT_MEAN_FLOOR:
        return floor(c->mean);
    case CSTAT_SUM:
        return c->mean * (double)n;
    case CSTAT_SD:
        return sqrt(c->m2 / (double)n);
    case CSTAT_SD_SAMPLE:
        return sqrt(c->m2 / (double)(n - 1));
    case CSTAT_MIN:
        return c->min;
    case CSTAT_MAX:
        return c->max;
    default:
        break;
    }
    k = ranks_of(r, n, &at);
    if (k == 0)
        return (double)NAN;
    double lo = column_at(c, at.lo);
    return k == 2 ? stats_interpolate(lo, column_at(c, at.hi), at.fraction) : lo;
}

/* Sets o["a"]["b"]["c"] for the path "a/b/c". */
static void set_path(json_t *o, const char *path, json_t *value) {
    const char *slash;
    while ((slash = strchr(path, '/'))) {
        json_t *next = json_object_getn(o, path, (size_t)(slash - path));
        if (!next) {
            next = json_object();
            json_object_setn_new(o, path, (size_t)(slash - path), next);
        }
        o = next;
        path = slash + 1;
    }
    json_object_set_new(o, path, value);
}

json_t *compat_make(const struct pass *p, const struct metrics_facts *f,
                    const struct columns *cols) {
    if (p->any_step)
        return NULL; /* these tools know no training */
    struct compat_context ctx = {.p = p, .f = f, .cols = cols};
    json_t *all = json_object();
    for (const struct compat_row *r = compat_rows; r->tool; r++) {
        double x;
        if (r->scalar)
            x = r->scalar(&ctx);
        else if (usable(r, cols))
            x = value_of_row(r, cols->at[r->column]);
        else
            continue;
        x = r->stat_inverse ? r->scale / x : x * r->scale;
        if (!isfinite(x))
            continue;
        json_t *tool = json_object_get(all, r->tool);
        if (!tool) {
            tool = json_object();
            json_object_set_new(all, r->tool, tool);
        }
        bool whole = r->whole && x == floor(x) && fabs(x) < 0x1p53;
        set_path(tool, r->path, whole ? json_integer((json_int_t)x) : json_real(x));
    }
    if (json_object_size(all) == 0) {
        json_decref(all);
        return NULL;
    }
    return all;
}
