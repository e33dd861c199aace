/* What is in a trace: one pass that counts lengths exactly (a counter a length) and prefix blocks
 * in a hash set. Memory: 8 bytes a length up to the longest, 16 to 48 bytes a distinct block. */
#include "harness/core/clock.h"
#include "workloads/dist.h"
#include "workloads/trace_internal.h"

#include <stdlib.h>
#include <string.h>

struct counts {
    uint64_t *at; /* index = length */
    size_t cap;
    uint64_t n, sum;
    uint32_t min, max;
};

static int count(struct counts *c, uint32_t v, struct err *e) {
    if (v >= c->cap) {
        size_t cap = c->cap ? c->cap : 4096;
        while (cap <= v)
            cap *= 2;
        uint64_t *p = realloc(c->at, cap * sizeof *p);
        if (!p)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        memset(p + c->cap, 0, (cap - c->cap) * sizeof *p);
        c->at = p;
        c->cap = cap;
    }
    c->at[v]++;
    c->min = c->n == 0 || v < c->min ? v : c->min;
    c->max = v > c->max ? v : c->max;
    c->n++;
    c->sum += v;
    return 0;
}

/* Nearest rank: the smallest value with at least ceil(n * per_cent / 100) values at or below it. */
static uint32_t rank(const struct counts *c, uint64_t per_cent) {
    uint64_t want = (c->n * per_cent + 99) / 100, seen = 0;
    for (uint32_t v = c->min; v < c->max; v++)
        if ((seen += c->at[v]) >= want)
            return v;
    return c->max;
}

static void summarise(const struct counts *c, struct length_stats *s, uint64_t *tokens) {
    *tokens = c->sum;
    if (c->n == 0)
        return;
    s->mean = (double)c->sum / (double)c->n;
    s->min = c->min;
    s->max = c->max;
    s->p50 = rank(c, 50);
    s->p90 = rank(c, 90);
    s->p99 = rank(c, 99);
}

/* Open addressing, half full at most; the id 0 is kept apart because 0 marks an empty place. */
struct id_set {
    uint64_t *at;
    size_t cap, n;
    bool has_zero;
};
enum { IDS_MAX = 1 << 27 }; /* distinct blocks: 2 GiB of set */

static size_t slot(uint64_t id, size_t cap) {
    id *= UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(id ^ (id >> 32)) & (cap - 1);
}

static void place(uint64_t *at, size_t cap, uint64_t id, size_t *n) {
    size_t i = slot(id, cap);
    while (at[i] && at[i] != id)
        i = (i + 1) & (cap - 1);
    *n += at[i] == 0;
    at[i] = id;
}

static int add(struct id_set *s, uint64_t id, struct err *e) {
    if (id == 0) {
        s->has_zero = true;
        return 0;
    }
    if (2 * (s->n + 1) > s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 1 << 14, n = 0;
        if (s->n >= IDS_MAX)
            return err_set(e, ASSAY_EINPUT, "expected at most %d distinct blocks, found more",
                           IDS_MAX);
        uint64_t *at = calloc(cap, sizeof *at);
        if (!at)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        for (size_t i = 0; i < s->cap; i++)
            if (s->at[i])
                place(at, cap, s->at[i], &n);
        free(s->at);
        s->at = at;
        s->cap = cap;
    }
    place(s->at, s->cap, id, &s->n);
    return 0;
}

int trace_summary(const char *path, enum trace_format f, const struct trace_options *o,
                  struct trace_stats *s, struct err *e) {
    const struct trace_format_info *info = trace_format_info(f);
    struct counts isl = {0}, osl = {0}, turns = {0};
    struct id_set ids = {0};
    struct trace *t = NULL;
    int64_t first = 0, last = 0, before = INT64_MIN;
    memset(s, 0, sizeof *s);
    int rc = trace_open(path, f, o, &t, e);
    if (rc)
        return rc;
    for (;;) {
        struct trace_row row;
        bool end;
        if ((rc = trace_next(t, &row, &end, e)))
            goto out;
        if (end)
            break;
        first = s->rows == 0 || row.arrival_ns < first ? row.arrival_ns : first;
        last = s->rows == 0 || row.arrival_ns > last ? row.arrival_ns : last;
        s->out_of_order += row.arrival_ns < before;
        before = row.arrival_ns;
        s->rows++;
        s->failed += row.failed;
        if ((rc = count(&isl, row.isl, e)) || (rc = count(&osl, row.osl, e)))
            goto out;
        if (info->has_sessions && t->call == t->session.ncalls) {
            s->sessions++;
            s->branches += t->session.branches - 1;
            if ((rc = count(&turns, t->session.ncalls, e)))
                goto out;
        }
        s->block_references += row.nblocks;
        for (uint32_t i = 0; i < row.nblocks; i++)
            if ((rc = add(&ids, row.blocks[i], e)))
                goto out;
    }
    s->dropped = trace_dropped(t);
    s->block_tokens = info->block_tokens;
    s->distinct_blocks = ids.n + ids.has_zero;
    if (s->block_references)
        s->ideal_hit_share = 1 - (double)s->distinct_blocks / (double)s->block_references;
    s->lengths_estimated = info->has_text;
    summarise(&isl, &s->isl, &s->input_tokens);
    summarise(&osl, &s->osl, &s->output_tokens);
    uint64_t calls;
    summarise(&turns, &s->turns, &calls);
    s->duration_ns = info->resolution_ns ? last - first : -1;
    s->rate_plausible = true;
    if (info->resolution_ns && s->rows > 1) {
        int64_t span = s->duration_ns > info->resolution_ns ? s->duration_ns : info->resolution_ns;
        s->rate_per_s = (double)(s->rows - 1) * (double)NS_PER_S / (double)span;
        s->rate_plausible = s->rate_per_s <= 100000 && s->rate_per_s * 3600 >= 1;
    }
out:
    trace_close(t);
    free(isl.at);
    free(osl.at);
    free(turns.at);
    free(ids.at);
    return rc;
}
