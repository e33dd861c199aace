/* Plans from a trace: line i is request i. Every shard reads the whole file and keeps its own rows,
 * so that a shard depends on no other. Memory holds one row. */
#include "workloads/plan_internal.h"
#include "workloads/trace.h"

static struct trace_options options_of(const struct workload *w) {
    return (struct trace_options){
        .keep_failures = w->trace_keep_failures, .force = w->trace_force, .seed = w->seed};
}

static int trace_plan_open(struct plan *p, struct err *e) {
    const struct workload *w = p->w;
    struct trace_options o = options_of(w);
    p->next = 0;
    int rc = trace_check_rate(w->trace_path, w->trace_format, &o, e);
    return rc ? rc : trace_open(w->trace_path, w->trace_format, &o, &p->trace, e);
}

/* Rows must be in time order when their times decide: a trace is not sorted silently. */
static int check_order(struct plan *p, const struct trace_row *row, struct err *e) {
    if (p->next == 0)
        p->first_arrival_ns = p->last_arrival_ns = row->arrival_ns;
    if (row->arrival_ns < p->last_arrival_ns && p->w->pattern.kind == PATTERN_TRACE)
        return err_set(
            e, ASSAY_EINPUT,
            "%s:%llu:1: expected a time at or after the one before, found one %lld ns earlier "
            "(sort the file by time)",
            p->w->trace_path, (unsigned long long)row->line,
            (long long)(p->last_arrival_ns - row->arrival_ns));
    p->last_arrival_ns = row->arrival_ns;
    return 0;
}

static int trace_plan_next(struct plan *p, struct request *r, bool *end, struct err *e) {
    for (;;) {
        struct trace_row row;
        *end = p->next >= p->warmup && p->next - p->warmup >= p->measured;
        if (*end)
            return 0;
        int rc = trace_next(p->trace, &row, end, e);
        if (rc || *end || (rc = check_order(p, &row, e)))
            return rc;
        uint64_t id = p->next++;
        if (id % p->shards != p->shard)
            continue;
        plan_lone_request(r, id);
        r->isl = row.isl;
        r->osl = row.osl;
        if (row.arrival_ns >= 0)
            r->arrival_ns = row.arrival_ns - p->first_arrival_ns;
        r->nblocks = row.nblocks;
        r->blocks = row.blocks;
        r->block_tokens = row.nblocks ? trace_format_info(p->w->trace_format)->block_tokens : 0;
        r->text = row.text;
        r->content_seed = plan_content_seed(p->w->seed, STREAM_CONTENT, id);
        return 0;
    }
}

static int64_t trace_plan_total(const struct plan *p) {
    (void)p;
    return -1;
}

int plan_check_trace(const struct workload *w, void (*seen)(void *ctx, const void *p, size_t n),
                     void *ctx, struct err *e) {
    struct plan p = {.w = w,
                     .warmup = (uint64_t)w->warmup_requests,
                     .measured = w->requests ? (uint64_t)w->requests : UINT64_MAX};
    struct trace_options o = options_of(w);
    o.seen = seen;
    o.seen_ctx = ctx;
    bool end = false, sessions = workload_has_sessions(w);
    int rc = sessions ? 0 : trace_check_rate(w->trace_path, w->trace_format, &o, e);
    if (rc || (rc = trace_open(w->trace_path, w->trace_format, &o, &p.trace, e)))
        return rc;
    while (!rc && !end) {
        struct trace_row row;
        if (!sessions && p.next >= p.warmup && p.next - p.warmup >= p.measured)
            break;
        rc = trace_next(p.trace, &row, &end, e);
        if (!rc && !end && !(rc = check_order(&p, &row, e)))
            p.next++;
    }
    if (!rc)
        rc = trace_drain(p.trace, e);
    trace_close(p.trace);
    return rc;
}

static void trace_plan_close(struct plan *p) {
    trace_close(p->trace);
}

const struct plan_source plan_trace = {trace_plan_open, trace_plan_next, NULL, trace_plan_total,
                                       trace_plan_close};
