/* What the client itself may have added to the figures, from what the log states: a request was sent
 * later than intended, and a stamp may have come up to its bound after what it tells of. Each latency is
 * computed once more from stamps without that (columns *_LO and *_HI), each rate from a window without
 * it. Definitions: metrics.h. */
#include "harness/measure/metrics.h"

#include "harness/core/int128.h"
#include "harness/measure/metrics_internal.h"
#include "harness/measure/stats.h"

#include <math.h>
#include <string.h>

static uint64_t less(uint64_t x, uint64_t y) {
    return x > y ? x - y : 0;
}

/* As judge in metrics_pass.c, with the client's part taken out, and put on where stamps can err both
 * ways: a first token stamped too late makes a TPOT too short. */
static void count_good(struct pass *p, const struct request_state *r, const struct metrics_facts *f,
                       bool streamed) {
    uint64_t sent = request_sent(r), first = request_at(r, AT_FIRST), last = request_at(r, AT_LAST),
             ttft = (uint64_t)f->limit_ttft_ns, tpot = (uint64_t)f->limit_tpot_ns,
             e2e = (uint64_t)f->limit_e2e_ns,
             bound_first = (uint64_t)event_bound_ns(r->bound[BOUND_FIRST]),
             bound_last = (uint64_t)event_bound_ns(r->bound[BOUND_LAST]);
    uint32_t n_first = request_n_first(r), after = r->out > n_first ? r->out - n_first : 0;
    bool paced = tpot && streamed && after;
    u128 most = (u128)tpot * after;
    p->good_hi += !(ttft && (!streamed || less(first, sent + bound_first) > ttft)) &&
                  !(e2e && less(last, sent + bound_last) > e2e) &&
                  !(paced && less(last - first, bound_last) > most);
    p->good_lo += !(ttft && (!streamed || first > ttft)) && !(e2e && last > e2e) &&
                  !(paced && last - first + bound_first > most);
}

void client_count(struct pass *p, const struct request_state *r, const struct metrics_facts *f,
                  bool streamed, bool judged) {
    int64_t client = (int64_t)request_sent(r) + request_end_bound(r);
    p->client_ns += client;
    if (r->intended_ns + (int64_t)request_at(r, AT_DONE) == p->last_done_ns)
        p->last_done_client_ns = client;
    if (judged)
        count_good(p, r, f, streamed);
}

double client_window_share(const struct pass *p, const struct metrics_facts *f) {
    if (!p->any_bound || p->duration_ns <= 0)
        return 0;
    double window = (double)p->duration_ns, share;
    if (f->max_concurrency > 0)
        share = (double)p->client_ns / ((double)f->max_concurrency * window);
    else
        share = p->last_done_ns == p->begin_ns + p->duration_ns
                    ? (double)p->last_done_client_ns / window
                    : 0;
    return share < 0.999 ? share : 0.999;
}

int64_t client_bound_quantile(const struct pass *p, int64_t ppm, int64_t *stamps) {
    int64_t n = 0, seen = 0, k = 0;
    for (int i = 1; i <= EVENT_BOUND_MAX; i++)
        n += p->bounds[i];
    *stamps = n;
    if (n == 0)
        return 0;
    int64_t rank = stats_nearest_rank(n, ppm);
    while (seen < rank)
        seen += p->bounds[++k];
    return k;
}

double metrics_client_share(const struct metric *m, double floor_ns, double window_s) {
    if (m->client_lo == 0 && m->client_hi == 0)
        return 0;
    double lo = m->value - m->client_lo, hi = m->client_hi - m->value, off = lo > hi ? lo : hi;
    bool latency = !strcmp(m->unit, "ns");
    /* counts of requests: one of them more or less is the grain of the figure */
    bool count = !strcmp(m->name, "goodput_requests_per_s");
    if (!strcmp(m->name, "tokens_per_s_per_user")) { /* its floor is that of the TPOT */
        double ns = 1e9 / m->value;
        if (ns - 1e9 / m->client_hi <= floor_ns && 1e9 / m->client_lo - ns <= floor_ns)
            return 0;
    }
    if (!(off > 0) || (latency && off <= floor_ns) || (count && off * window_s <= 1.5))
        return 0;
    return m->value > 0 ? off / m->value : 1;
}

struct client_error metrics_client_error(const struct metrics *m, double floor_ns) {
    struct client_error worst = {0};
    for (int i = 0; i < m->n; i++) {
        const struct metric *x = &m->m[i];
        if (!strcmp(x->stat, "min") || !strcmp(x->stat, "max"))
            continue;
        double share = metrics_client_share(x, floor_ns, (double)m->duration_ns / 1e9);
        if (share > worst.share)
            worst = (struct client_error){x, share};
    }
    return worst;
}
