/* BurstGPT (github.com/HPMLL/BurstGPT): CSV of 6 or 8 columns, found by name. Times are seconds,
 * whole ones as published: requests of one second are spread inside it, uniformly and with the
 * workload's seed, so that a replay does not issue them as one burst. A response of 0 tokens is a
 * failure. */
#include "harness/core/clock.h"
#include "workloads/plan_internal.h"
#include "workloads/trace_internal.h"

#include <stdlib.h>
#include <string.h>

enum { SECOND_MAX_ROWS = 1 << 17 }; /* of one second; the rate check refuses 100,000 */

struct small_row {
    uint64_t line;
    int64_t time_ns;
    uint32_t isl, osl;
    bool failed;
};
struct burst {
    int time, isl, osl;
    struct small_row *rows; /* of the second being given out; one of the next second behind them */
    double *spread;
    size_t cap, n, at;
    bool pending; /* rows[n] is the first of the next second */
    bool end;
};

static int burst_open(struct trace *t, struct err *e) {
    struct burst *s = t->state;
    struct csv_line h;
    bool end;
    int rc = csv_next(&t->reader, &h, &end, e);
    if (rc)
        return rc;
    if (end)
        return reader_fault(&t->reader, 1, 1, e, "expected a header line, found an empty file");
    if ((rc = csv_column(&t->reader, &h, "Timestamp", &s->time, e)) ||
        (rc = csv_column(&t->reader, &h, "Request tokens", &s->isl, e)))
        return rc;
    return csv_column(&t->reader, &h, "Response tokens", &s->osl, e);
}

/* The next row that is not dropped. */
static int read_row(struct trace *t, struct small_row *row, bool *end, struct err *e) {
    const struct burst *s = t->state;
    struct csv_line c;
    for (;;) {
        int rc = csv_next(&t->reader, &c, end, e);
        if (rc || *end)
            return rc;
        row->line = c.line;
        if (s->time >= c.n ||
            !parse_decimal_ns(c.field[s->time], c.length[s->time], NS_PER_S, &row->time_ns) ||
            row->time_ns < 0)
            return csv_fault(&t->reader, &c, s->time, "a Timestamp in seconds, at least 0", e);
        if ((rc = csv_tokens(&t->reader, &c, s->osl, "Response tokens", 0, &row->osl, e)))
            return rc;
        row->failed = row->osl == 0;
        if ((rc = csv_tokens(&t->reader, &c, s->isl, "Request tokens", row->failed ? 0 : 1,
                             &row->isl, e)))
            return rc;
        if (!row->failed || t->options.keep_failures)
            break;
        t->dropped++;
    }
    if (row->failed) { /* a request needs tokens on both sides, whatever was recorded */
        row->isl = row->isl ? row->isl : 1;
        row->osl = 1;
    }
    return 0;
}

static int reserve(struct burst *s, const struct reader *r, struct err *e) {
    if (s->n < s->cap)
        return 0;
    size_t cap = s->cap ? s->cap * 2 : 256;
    if (cap > SECOND_MAX_ROWS)
        return reader_fault(r, r->line, 1, e,
                            "expected fewer than %d rows with one time, found more",
                            SECOND_MAX_ROWS);
    struct small_row *rows = realloc(s->rows, cap * sizeof *rows);
    if (rows)
        s->rows = rows;
    double *spread = rows ? realloc(s->spread, cap * sizeof *spread) : NULL;
    if (!spread)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    s->spread = spread;
    s->cap = cap;
    return 0;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Reads all rows of one time and the first of the next. */
static int read_second(struct trace *t, struct err *e) {
    struct burst *s = t->state;
    if (s->pending)
        s->rows[0] = s->rows[s->n];
    s->n = s->pending;
    s->at = 0;
    s->pending = false;
    while (!s->end) {
        int rc = reserve(s, &t->reader, e);
        if (rc || (rc = read_row(t, &s->rows[s->n], &s->end, e)))
            return rc;
        if (s->end)
            break;
        if (s->n && s->rows[s->n].time_ns != s->rows[0].time_ns) {
            s->pending = true;
            break;
        }
        s->n++;
    }
    if (s->n > 1 && s->rows[0].time_ns % NS_PER_S == 0) {
        struct rng rng =
            rng_at(t->options.seed, STREAM_SPREAD, (uint64_t)(s->rows[0].time_ns / NS_PER_S));
        for (size_t i = 0; i < s->n; i++)
            s->spread[i] = rng_uniform(&rng);
        qsort(s->spread, s->n, sizeof *s->spread, ascending);
        for (size_t i = 0; i < s->n; i++)
            s->rows[i].time_ns += (int64_t)(s->spread[i] * (double)NS_PER_S);
    }
    return 0;
}

static int burst_next(struct trace *t, struct trace_row *row, bool *end, struct err *e) {
    struct burst *s = t->state;
    if (s->at == s->n) {
        int rc = read_second(t, e);
        if (rc)
            return rc;
    }
    *end = s->at == s->n;
    if (*end)
        return 0;
    const struct small_row *x = &s->rows[s->at++];
    *row = (struct trace_row){.line = x->line,
                              .arrival_ns = x->time_ns,
                              .isl = x->isl,
                              .osl = x->osl,
                              .failed = x->failed};
    return 0;
}

static void burst_close(struct trace *t) {
    struct burst *s = t->state;
    free(s->rows);
    free(s->spread);
}

const struct trace_ops trace_burstgpt = {
    .info = {.name = "burstgpt",
             .summary = "BurstGPT CSV: Timestamp, Request tokens, Response tokens (6 or 8 columns)",
             .resolution_ns = NS_PER_S},
    .state_bytes = sizeof(struct burst),
    .open = burst_open,
    .next = burst_next,
    .close = burst_close,
};
