/* One pass over the log, then the requests it left behind, one by one. */
#include "harness/measure/requests.h"

#include "harness/measure/metrics_internal.h"

#include <math.h>

#define ABSENT ((double)NAN)

static struct request_latency latency(const struct request_state *r, bool good) {
    unsigned f = request_flags(r);
    struct request_latency x = {.intended_ns = r->intended_ns,
                                .end_ns = INT64_MAX,
                                .ttft_ns = ABSENT,
                                .tpot_ns = ABSENT,
                                .e2e_ns = ABSENT,
                                .completed = request_counts(r),
                                .good = good};
    if (f & (REQ_DONE | REQ_FAILED))
        x.end_ns = r->intended_ns + (int64_t)request_at(r, AT_DONE);
    if (!x.completed)
        return x;
    double first = (double)(int64_t)request_at(r, AT_FIRST),
           last = (double)(int64_t)request_at(r, AT_LAST);
    uint32_t n_first = request_n_first(r);
    x.e2e_ns = last;
    if (request_streamed(r)) {
        x.ttft_ns = first;
        if (r->out > n_first)
            x.tpot_ns = (last - first) / (double)(r->out - n_first);
    }
    return x;
}

int requests_each(const struct eventlog_source *src, const struct metrics_facts *facts,
                  request_visit_fn *visit, void *ctx, struct err *e) {
    struct pass p;
    int rc = pass_run(&p, src, e);
    bool limits = facts->limit_ttft_ns || facts->limit_tpot_ns || facts->limit_e2e_ns;
    for (uint32_t i = 0; i < p.ids.n && !rc; i++) {
        int64_t good = p.good;
        pass_count(&p, i, i + 1, facts);
        if (!(request_flags(&p.req[i]) & REQ_MEASURED))
            continue;
        struct request_latency x = latency(&p.req[i], p.good > good);
        if (!limits)
            x.good = x.completed;
        rc = visit(ctx, &x, e);
    }
    pass_release(&p);
    return rc;
}
