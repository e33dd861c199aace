/* Requests one by one: the definitions of metrics.h on a log by hand. */
#include "harness/measure/requests.h"
#include "tests/measure/logbuild.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include <math.h>

struct seen {
    struct request_latency r[8];
    int n, stop_at;
};

static int keep(void *ctx, const struct request_latency *r, struct err *e) {
    struct seen *s = ctx;
    if (s->n == s->stop_at)
        return err_set(e, ASSAY_ENEGATIVE, "enough");
    s->r[s->n++] = *r;
    return 0;
}

/* Warm-up, then: completed, unstreamed, failed, in flight at the end. */
static void build(struct logbuild *l) {
    log_init(l, 1);
    log_put(l, 0, EVENT_ISSUE, 0, 0, 10);
    log_put(l, 50, EVENT_TOKENS, 0, 1, 0);
    log_put(l, 60, EVENT_DONE, 0, 1, 0);
    log_put(l, 100, EVENT_MARK, MARK_WINDOW_BEGIN, 100, 0);
    log_put(l, 110, EVENT_ISSUE, 1, 10, 10); /* intended at 100 */
    log_put(l, 120, EVENT_ISSUE, 2, 0, 10);
    log_put(l, 130, EVENT_ISSUE, 3, 0, 10);
    log_put(l, 140, EVENT_ISSUE, 4, 0, 10);
    log_put(l, 200, EVENT_TOKENS, 1, 1, 0);
    log_put(l, 260, EVENT_TOKENS, 2, 4, 0);
    log_put(l, 265, EVENT_DONE, 2, 4, 0);
    log_put(l, 300, EVENT_TOKENS, 1, 2, 0);
    log_put(l, 310, EVENT_DONE, 1, 3, 0);
    log_put(l, 400, EVENT_FAIL, 3, FAIL_RESET, 0);
}

Test(measure_requests, by_hand) {
    struct logbuild l;
    struct err e = {0};
    struct seen s = {.stop_at = 8};
    build(&l);
    struct eventlog_source src = log_source(&l);
    struct metrics_facts f = {.limit_ttft_ns = 100, .limit_tpot_ns = 50};
    cr_assert(eq(int, requests_each(&src, &f, keep, &s, &e), 0), "%s", e.text);
    cr_assert(eq(int, s.n, 4));
    cr_assert(eq(i64, s.r[0].intended_ns, 100));
    cr_assert(eq(i64, s.r[0].end_ns, 310));
    cr_assert(eq(dbl, s.r[0].ttft_ns, 100)); /* inclusive: good */
    cr_assert(eq(dbl, s.r[0].tpot_ns, 50));
    cr_assert(eq(dbl, s.r[0].e2e_ns, 200));
    cr_assert(eq(int, s.r[0].completed && s.r[0].good, 1));
    cr_assert(eq(int, isnan(s.r[1].ttft_ns) && isnan(s.r[1].tpot_ns), 1)); /* all at once */
    cr_assert(eq(dbl, s.r[1].e2e_ns, 140));
    cr_assert(eq(int, s.r[1].completed && !s.r[1].good, 1));
    cr_assert(eq(int, s.r[2].completed || s.r[2].good, 0));
    cr_assert(eq(i64, s.r[2].end_ns, 400));
    cr_assert(eq(int, isnan(s.r[2].e2e_ns), 1));
    cr_assert(eq(int, s.r[3].completed || s.r[3].good, 0));
    cr_assert(eq(i64, s.r[3].end_ns, INT64_MAX));

    s = (struct seen){.stop_at = 1}; /* a visit's error ends it */
    src = log_source(&l);
    cr_assert(eq(int, requests_each(&src, &f, keep, &s, &e), ASSAY_ENEGATIVE));
    log_release(&l);
}
