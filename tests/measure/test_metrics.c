/* Metrics: small logs worked out by hand, the corners of the definitions, hostile logs, and random logs
 * against a second computation that sorts. */
#include "harness/measure/metrics.h"
#include "tests/measure/logbuild.h"
#include "harness/core/rng.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>

static const struct metrics_facts no_facts;

static struct metrics compute(struct logbuild *l, const struct metrics_facts *f) {
    struct metrics m;
    struct err e = {0};
    struct eventlog_source src = log_source(l);
    int rc = metrics_compute(&src, f, &m, &e);
    cr_assert(eq(int, rc, 0), "%s", e.text);
    log_release(l);
    return m;
}

static double get(const struct metrics *m, const char *name, const char *stat) {
    const struct metric *x = metrics_find(m, name, stat);
    cr_assert(x != NULL, "no %s %s", name, stat);
    return x->value;
}

static bool absent(const struct metrics *m, const char *name) {
    for (int i = 0; i < m->n; i++)
        if (!strcmp(m->m[i].name, name))
            return false;
    return true;
}

/* Two requests, every stamp different.
 * 0: intended 1000, issued 1010, sent 1030, tokens 1100 (1), 1150 (2), 1210 (1), done 1250: N 4
 * 1: intended 1020, issued 1020, sent 1020, tokens 1300 (2), 1400 (2), done 1400: N 4 */
static void two(struct logbuild *l) {
    log_init(l, 1);
    log_put(l, 900, EVENT_MARK, MARK_RUN_BEGIN, 900, 0);
    log_put(l, 1000, EVENT_MARK, MARK_WINDOW_BEGIN, 1000, 0);
    log_put(l, 1010, EVENT_ISSUE, 0, 10, 100);
    log_put(l, 1020, EVENT_ISSUE, 1, 0, 50);
    log_put(l, 1030, EVENT_SENT, 0, 0, 0);
    log_put(l, 1040, EVENT_MARK, MARK_WINDOW_END, 1040, 0);
    log_put(l, 1100, EVENT_TOKENS, 0, 1, 0);
    log_put(l, 1150, EVENT_TOKENS, 0, 2, 0);
    log_put(l, 1210, EVENT_TOKENS, 0, 1, 0);
    log_put(l, 1220, EVENT_USAGE, 0, 60, 0);
    log_put(l, 1250, EVENT_DONE, 0, 4, 0);
    log_put(l, 1300, EVENT_TOKENS, 1, 2, 0);
    log_put(l, 1400, EVENT_TOKENS, 1, 2, 0);
    log_put(l, 1400, EVENT_DONE, 1, 4, 55);
    log_put(l, 1500, EVENT_MARK, MARK_RUN_END, 1500, 0);
}

Test(measure_metrics, by_hand) {
    struct logbuild l;
    two(&l);
    struct metrics_facts f = {.chips = 2, .peak_flops_per_s = 1e12, .flops_per_token = 1e6};
    struct metrics m = compute(&l, &f);
    cr_assert(eq(i64, m.issued, 2));
    cr_assert(eq(i64, m.completed, 2));
    cr_assert(eq(i64, m.failed, 0));
    cr_assert(eq(i64, m.in_flight_at_end, 0));
    cr_assert(eq(i64, m.token_events, 5));
    cr_assert(eq(i64, m.events, 15));
    cr_assert(eq(i64, m.input_tokens, 155)); /* 100 as planned, 55 as counted */
    cr_assert(eq(i64, m.output_tokens, 8));
    cr_assert(eq(i64, m.duration_ns, 400)); /* 1000 to 1400 */
    cr_assert(eq(dbl, get(&m, "ttft_ns", "min"), 100));
    cr_assert(eq(dbl, get(&m, "ttft_ns", "p50"), 100)); /* rank ceil(2 * 0.5) = 1 */
    cr_assert(eq(dbl, get(&m, "ttft_ns", "p90"), 280));
    cr_assert(eq(dbl, get(&m, "ttft_ns", "max"), 280));
    cr_assert(eq(dbl, get(&m, "ttft_ns", "mean"), 190));
    cr_assert(eq(dbl, get(&m, "service_ttft_ns", "min"), 70));
    cr_assert(eq(dbl, get(&m, "service_ttft_ns", "max"), 280));
    cr_assert(eq(dbl, get(&m, "e2e_ns", "min"), 210));
    cr_assert(eq(dbl, get(&m, "e2e_ns", "max"), 380));
    cr_assert(eq(dbl, get(&m, "service_e2e_ns", "min"), 180));
    cr_assert(eq(dbl, get(&m, "lateness_ns", "max"), 30));
    cr_assert(eq(dbl, get(&m, "lateness_ns", "min"), 0));
    cr_assert(eq(dbl, get(&m, "tpot_ns", "min"), 110.0 / 3)); /* (1210-1100)/(4-1) */
    cr_assert(eq(dbl, get(&m, "tpot_ns", "max"), 50));        /* (1400-1300)/(4-2) */
    cr_assert(eq(dbl, get(&m, "itl_ns", "min"), 50));
    cr_assert(eq(dbl, get(&m, "itl_ns", "p50"), 60)); /* 50 60 100 */
    cr_assert(eq(dbl, get(&m, "itl_ns", "max"), 100));
    cr_assert(eq(dbl, get(&m, "itl_ns", "mean"), 70));
    cr_assert(eq(i64, metrics_find(&m, "itl_ns", "mean")->n, 3));
    cr_assert(eq(dbl, get(&m, "requests_per_s", "value"), 2 / 400e-9));
    cr_assert(eq(dbl, get(&m, "output_tokens_per_s", "value"), 8 / 400e-9));
    cr_assert(eq(dbl, get(&m, "output_tokens_per_s_per_chip", "value"), 8 / 400e-9 / 2));
    cr_assert(eq(dbl, get(&m, "total_tokens_per_s", "value"), 163 / 400e-9));
    cr_assert(eq(dbl, get(&m, "tokens_per_s_per_user", "p50"), 1e9 / (110.0 / 3)));
    cr_assert(eq(dbl, get(&m, "tokens_per_s_per_user", "p90"), 1e9 / 50));
    cr_assert(ieee_ulp_eq(dbl, get(&m, "cached_token_share", "value"), 60.0 / 155, 1));
    /* (155 - 60 + 8) tokens of 1e6 FLOPs in 400 ns on 2 chips of 1e12 FLOP/s */
    cr_assert(ieee_ulp_eq(dbl, get(&m, "mfu", "value"), 103e6 / 400e-9 / 2e12, 2));
    cr_assert(absent(&m, "goodput_requests_per_s"));
    cr_assert(absent(&m, "step_ns"));
    cr_assert(absent(&m, "session_e2e_ns"));
    cr_assert(metrics_find(&m, "ttft_ns", "p99") == NULL);
    metrics_release(&m);
}

Test(measure_metrics, absent_without_facts) {
    struct logbuild l;
    two(&l);
    struct metrics m = compute(&l, &no_facts);
    cr_assert(absent(&m, "mfu"));
    cr_assert(absent(&m, "output_tokens_per_s_per_chip"));
    metrics_release(&m);
}

Test(measure_metrics, goodput_is_inclusive) {
    static const struct {
        int64_t ttft, tpot, e2e;
        int good;
    } row[] = {{100, 0, 0, 1}, {99, 0, 0, 0},  {280, 0, 0, 2}, {0, 36, 0, 0}, {0, 37, 0, 1},
               {0, 50, 0, 2},  {0, 49, 0, 1},  {0, 0, 210, 1}, {0, 0, 209, 0}, {280, 37, 0, 1},
               {100, 0, 1, 0}, {280, 50, 380, 2}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct logbuild l;
        two(&l);
        struct metrics_facts f = {.limit_ttft_ns = row[i].ttft,
                                  .limit_tpot_ns = row[i].tpot,
                                  .limit_e2e_ns = row[i].e2e};
        struct metrics m = compute(&l, &f);
        cr_assert(eq(dbl, get(&m, "goodput_requests_per_s", "value"), row[i].good / 400e-9),
                  "row %zu", i);
        metrics_release(&m);
    }
}

/* ---- the client's error ---- */

/* Stamps as in `two`, in microseconds, each with the bound of how late it may be:
 * 0: intended 1000, sent 1030, tokens 1100 (-8), 1150 (-2), 1210 (-12), end 1250 (-16): N 3
 * 1: intended and sent 1020, tokens 1300 (-4; 2 tokens), 1400 (-64; 2 tokens), end 1400 (-64): N 4 */
static void bounded(struct logbuild *l, bool last_without) {
    static const int64_t us = 1000;
    log_init(l, 1);
    log_put(l, 1000 * us, EVENT_MARK, MARK_WINDOW_BEGIN, 1000 * us, 0);
    log_put(l, 1010 * us, EVENT_ISSUE, 0, 10 * us, 100);
    log_put(l, 1020 * us, EVENT_ISSUE, 1, 0, 50);
    log_put(l, 1030 * us, EVENT_SENT, 0, 0, 0);
    log_put(l, 1100 * us, EVENT_TOKENS, 0, 1, event_bound_bucket(8 * us) << EVENT_TOKENS_BOUND_SHIFT | TOKENS_REASONING);
    log_put(l, 1150 * us, EVENT_TOKENS, 0, 1, event_bound_bucket(2 * us) << EVENT_TOKENS_BOUND_SHIFT);
    log_put(l, 1210 * us, EVENT_TOKENS, 0, 1, event_bound_bucket(12 * us) << EVENT_TOKENS_BOUND_SHIFT);
    log_put(l, 1250 * us, EVENT_DONE, 0, 3, event_bound_bucket(16 * us) << EVENT_DONE_BOUND_SHIFT | 77);
    log_put(l, 1300 * us, EVENT_TOKENS, 1, 2, event_bound_bucket(4 * us) << EVENT_TOKENS_BOUND_SHIFT);
    log_put(l, 1400 * us, EVENT_TOKENS, 1, 2,
            last_without ? 0 : event_bound_bucket(64 * us) << EVENT_TOKENS_BOUND_SHIFT);
    log_put(l, 1400 * us, EVENT_DONE, 1, 4, event_bound_bucket(64 * us) << EVENT_DONE_BOUND_SHIFT);
}

static void client(const struct metrics *m, const char *name, const char *stat, double lo, double value,
                   double hi) {
    const struct metric *x = metrics_find(m, name, stat);
    cr_assert(x != NULL, "no %s %s", name, stat);
    cr_assert(ieee_ulp_eq(dbl, x->client_lo, lo, 4), "%s %s", name, stat);
    cr_assert(ieee_ulp_eq(dbl, x->value, value, 4), "%s %s", name, stat);
    cr_assert(ieee_ulp_eq(dbl, x->client_hi, hi, 4), "%s %s", name, stat);
}

Test(measure_metrics, client_error_by_hand) {
    struct logbuild l;
    bounded(&l, false);
    struct metrics_facts f = {.limit_ttft_ns = 70000};
    struct metrics m = compute(&l, &f);
    cr_assert(eq(i64, m.input_tokens, 127)); /* 77 as counted, 50 as planned */
    cr_assert(eq(i64, m.stamps, 5));
    cr_assert(eq(i64, m.stamps_unbounded, 0));
    client(&m, "ttft_ns", "p50", 62e3, 100e3, 100e3); /* 1100 - 1030 - 8 */
    client(&m, "ttft_ns", "max", 276e3, 280e3, 280e3);
    client(&m, "ttft_ns", "mean", 169e3, 190e3, 190e3);
    client(&m, "service_ttft_ns", "min", 62e3, 70e3, 70e3);
    client(&m, "e2e_ns", "p50", 168e3, 210e3, 210e3); /* 1210 - 1030 - 12 */
    client(&m, "e2e_ns", "p90", 316e3, 380e3, 380e3); /* 1400 - 1020 - 64 */
    client(&m, "service_e2e_ns", "p90", 316e3, 380e3, 380e3);
    client(&m, "tpot_ns", "p50", 18e3, 50e3, 52e3); /* (100 - 64)/2, 100/2, (100 + 4)/2 */
    client(&m, "tpot_ns", "p90", 49e3, 55e3, 59e3); /* (110 - 12)/2, 110/2, (110 + 8)/2 */
    client(&m, "tokens_per_s_per_user", "p50", 1e9 / 52e3, 1e9 / 50e3, 1e9 / 18e3);
    client(&m, "itl_ns", "p50", 48e3, 60e3, 62e3); /* 36 48 48; 50 60 100; 58 62 104 */
    client(&m, "itl_ns", "max", 48e3, 100e3, 104e3);
    client(&m, "itl_ns", "mean", 44e3, 70e3, 224e3 / 3);
    /* the end that closes the window of 400 us may be 64 late; within 70 us of the intended time: none,
     * without the client's error one */
    client(&m, "requests_per_s", "value", 2 / 400e-6, 2 / 400e-6, 2 / 336e-6);
    client(&m, "goodput_requests_per_s", "value", 0, 0, 1 / 336e-6);
    cr_assert(eq(dbl, get(&m, "stamp_bound_ns", "p50"), 8000)); /* 2 4 8 12 64 */
    cr_assert(eq(dbl, get(&m, "stamp_bound_ns", "max"), 64000));
    cr_assert(eq(i64, metrics_find(&m, "stamp_bound_ns", "p50")->n, 5));
    /* TTFT may be off by 38 us, which is below the floor; a gap of 100 by 52, which is above */
    struct client_error worst = metrics_client_error(&m, 50e3);
    cr_assert(eq(str, (char *)worst.worst->name, "itl_ns"));
    cr_assert(eq(str, (char *)worst.worst->stat, "p90"));
    cr_assert(ieee_ulp_eq(dbl, worst.share, 0.52, 8));
    cr_assert(eq(dbl, get(&m, "client_error_share", "value"), worst.share));
    worst = metrics_client_error(&m, 0); /* 18 instead of 50 us a token: 55.6 instead of 20 a ms */
    cr_assert(eq(str, (char *)worst.worst->name, "tokens_per_s_per_user"));
    metrics_release(&m);

    bounded(&l, false);
    f = (struct metrics_facts){.max_concurrency = 2};
    m = compute(&l, &f);
    /* of 2 slots x 400 us the client took 30 + 16 and 0 + 64 */
    client(&m, "output_tokens_per_s", "value", 7 / 400e-6, 7 / 400e-6, 7 / (400e-6 * (1 - 110.0 / 800)));
    worst = metrics_client_error(&m, 53e3); /* without the gap's 52 */
    cr_assert(eq(str, (char *)worst.worst->name, "e2e_ns")); /* 316 instead of 380 */
    cr_assert(eq(str, (char *)worst.worst->stat, "p90"));
    cr_assert(ieee_ulp_eq(dbl, worst.share, 64.0 / 380, 8));
    metrics_release(&m);
}

Test(measure_metrics, a_stamp_without_a_bound_is_counted) {
    struct logbuild l;
    bounded(&l, true);
    struct metrics m = compute(&l, &no_facts);
    cr_assert(eq(i64, m.stamps_unbounded, 1));
    cr_assert(eq(i64, m.stamps, 5));
    metrics_release(&m);
    two(&l);
    m = compute(&l, &no_facts);
    cr_assert(eq(i64, m.stamps_unbounded, 5));
    cr_assert(absent(&m, "client_error_share"));
    cr_assert(absent(&m, "stamp_bound_ns"));
    cr_assert(eq(dbl, metrics_find(&m, "ttft_ns", "p50")->client_hi, 0));
    metrics_release(&m);
}

/* Two turns: each was late and may have been noticed late; the second waits for both. */
Test(measure_metrics, client_error_of_a_session) {
    static const int64_t us = 1000;
    struct logbuild l;
    log_init(&l, 1);
    for (uint64_t i = 0; i < 2; i++) {
        int64_t t = (1000 + 1000 * (int64_t)i) * us;
        log_put(&l, t, EVENT_SESSION, i, 0, (int64_t)i);
        log_put(&l, t, EVENT_ISSUE, i, 20 * us, 10);
        log_put(&l, t + 400 * us, EVENT_TOKENS, i, 1, event_bound_bucket(3 * us) << EVENT_TOKENS_BOUND_SHIFT);
        log_put(&l, t + 500 * us, EVENT_DONE, i, 1, event_bound_bucket(6 * us) << EVENT_DONE_BOUND_SHIFT);
    }
    struct metrics m = compute(&l, &no_facts);
    client(&m, "session_e2e_ns", "p50", (1520 - 2 * 26) * 1e3, 1520e3, 1520e3);
    client(&m, "ttft_ns", "p50", 397e3, 420e3, 420e3);
    metrics_release(&m);
}

/* A whole answer in one event has no TTFT; one token in one event has. Nor TPOT without more tokens. */
Test(measure_metrics, unstreamed_answers_have_no_ttft) {
    struct logbuild l;
    log_init(&l, 1);
    for (uint64_t i = 0; i < 5; i++)
        log_put(&l, 0, EVENT_ISSUE, i, 0, 10);
    log_put(&l, 100, EVENT_TOKENS, 0, 7, 0); /* all 7: not streamed */
    log_put(&l, 110, EVENT_DONE, 0, 7, 0);
    log_put(&l, 200, EVENT_TOKENS, 1, 1, 0); /* one token: TTFT, no TPOT */
    log_put(&l, 210, EVENT_DONE, 1, 1, 0);
    log_put(&l, 300, EVENT_TOKENS, 2, 0, 0); /* unknown size: TTFT, TPOT 0 over 6 */
    log_put(&l, 310, EVENT_DONE, 2, 7, 0);
    log_put(&l, 400, EVENT_DONE, 3, 5, 0); /* no token event: only E2E, to the end */
    log_put(&l, 500, EVENT_TOKENS, 4, 3, 0);
    log_put(&l, 504, EVENT_TOKENS, 4, 4, 0);
    log_put(&l, 510, EVENT_DONE, 4, 7, 0);
    struct metrics_facts f = {.limit_ttft_ns = 1000, .limit_tpot_ns = 1};
    struct metrics m = compute(&l, &f);
    cr_assert(eq(i64, metrics_find(&m, "ttft_ns", "mean")->n, 3));
    cr_assert(eq(dbl, get(&m, "ttft_ns", "min"), 200));
    cr_assert(eq(dbl, get(&m, "ttft_ns", "max"), 500));
    cr_assert(eq(i64, metrics_find(&m, "tpot_ns", "mean")->n, 2));
    cr_assert(eq(dbl, get(&m, "tpot_ns", "min"), 0));
    cr_assert(eq(dbl, get(&m, "tpot_ns", "max"), 1));
    cr_assert(eq(i64, metrics_find(&m, "e2e_ns", "mean")->n, 5));
    cr_assert(eq(dbl, get(&m, "e2e_ns", "mean"), (100 + 200 + 300 + 400 + 504) / 5.0));
    cr_assert(eq(i64, m.duration_ns, 510)); /* no marks: from the first event */
    cr_assert(eq(dbl, get(&m, "goodput_requests_per_s", "value"), 3 / 510e-9));
    metrics_release(&m);
}

Test(measure_metrics, failures_count_nowhere_else) {
    struct logbuild l;
    log_init(&l, 1);
    log_put(&l, 0, EVENT_MARK, MARK_WINDOW_BEGIN, 0, 0);
    for (uint64_t i = 0; i < 4; i++)
        log_put(&l, 10, EVENT_ISSUE, i, 0, 10);
    log_put(&l, 20, EVENT_TOKENS, 0, 1, 0);
    log_put(&l, 25, EVENT_TOKENS, 1, 1, 0);
    log_put(&l, 30, EVENT_TOKENS, 0, 1, 0);
    log_put(&l, 31, EVENT_TOKENS, 1, 1, 0);
    log_put(&l, 40, EVENT_DONE, 0, 2, 0);
    log_put(&l, 900, EVENT_FAIL, 1, FAIL_TRUNCATED, 200);
    log_put(&l, 1000, EVENT_FAIL, 2, FAIL_HTTP_STATUS, 503);
    struct metrics m = compute(&l, &no_facts);
    cr_assert(eq(i64, m.issued, 4));
    cr_assert(eq(i64, m.completed, 1));
    cr_assert(eq(i64, m.failed, 2));
    cr_assert(eq(i64, m.in_flight_at_end, 1));
    cr_assert(eq(i64, m.failed_by_class[FAIL_TRUNCATED], 1));
    cr_assert(eq(i64, m.failed_by_class[FAIL_HTTP_STATUS], 1));
    cr_assert(eq(i64, m.duration_ns, 1000)); /* waiting for the failures is part of the window */
    cr_assert(eq(i64, m.output_tokens, 2));
    cr_assert(eq(i64, m.input_tokens, 10));
    cr_assert(eq(i64, metrics_find(&m, "itl_ns", "max")->n, 1));
    cr_assert(eq(dbl, get(&m, "itl_ns", "max"), 10));
    cr_assert(eq(i64, metrics_find(&m, "e2e_ns", "max")->n, 1));
    cr_assert(eq(i64, metrics_find(&m, "lateness_ns", "max")->n, 4));
    json_t *j = metrics_to_json(&m);
    char *text = json_dumps(json_object_get(j, "requests"), JSON_COMPACT | JSON_SORT_KEYS);
    cr_assert(eq(str, text,
                 "{\"completed\":1,\"failed\":2,\"failed_by_class\":{\"http_status\":1,"
                 "\"truncated\":1},\"in_flight_at_end\":1,\"issued\":4}"));
    free(text);
    json_decref(j);
    metrics_release(&m);
}

Test(measure_metrics, nothing_completed) {
    struct logbuild l;
    log_init(&l, 1);
    log_put(&l, 0, EVENT_ISSUE, 0, 0, 10);
    log_put(&l, 5, EVENT_FAIL, 0, FAIL_CONNECT, 0);
    struct metrics m = compute(&l, &no_facts);
    cr_assert(eq(i64, m.failed, 1));
    cr_assert(absent(&m, "requests_per_s"));
    cr_assert(absent(&m, "e2e_ns"));
    metrics_release(&m);
    log_init(&l, 2);
    m = compute(&l, &no_facts); /* an empty log */
    cr_assert(eq(i64, m.issued, 0));
    cr_assert(eq(int, m.n, 0));
    json_t *j = metrics_to_json(&m);
    cr_assert(json_object_get(j, "duration_ns") == NULL);
    json_decref(j);
    metrics_release(&m);
}

/* The window is about the intended issue, thread by thread; the rates' window drains. */
Test(measure_metrics, window) {
    struct logbuild l;
    log_init(&l, 3);
    /* thread 0: window 100 to 200 */
    log_put_on(&l, 0, 90, EVENT_ISSUE, 0, 0, 1);                 /* warm-up */
    log_put_on(&l, 0, 100, EVENT_ISSUE, 1, 0, 1);                /* before the mark: warm-up */
    log_put_on(&l, 0, 100, EVENT_MARK, MARK_WINDOW_BEGIN, 100, 0);
    log_put_on(&l, 0, 100, EVENT_ISSUE, 2, 0, 1);                /* measured */
    log_put_on(&l, 0, 110, EVENT_ISSUE, 3, 15, 1);               /* intended 95: not */
    log_put_on(&l, 0, 200, EVENT_ISSUE, 4, 0, 1);                /* measured */
    log_put_on(&l, 0, 200, EVENT_MARK, MARK_WINDOW_END, 200, 0);
    log_put_on(&l, 0, 210, EVENT_ISSUE, 5, 10, 1);               /* intended 200: measured */
    log_put_on(&l, 0, 211, EVENT_ISSUE, 6, 10, 1);               /* intended 201: not */
    for (uint64_t i = 0; i < 7; i++)
        log_put_on(&l, 0, 300, EVENT_DONE, i, 1, 0);
    /* thread 1: its own window, 150 to 400 */
    log_put_on(&l, 1, 120, EVENT_ISSUE, 7, 0, 1);                /* warm-up of its thread */
    log_put_on(&l, 1, 150, EVENT_MARK, MARK_WINDOW_BEGIN, 150, 0);
    log_put_on(&l, 1, 390, EVENT_ISSUE, 8, 0, 1);                /* measured */
    log_put_on(&l, 1, 395, EVENT_DONE, 7, 1, 0);
    log_put_on(&l, 1, 396, EVENT_DONE, 8, 1, 0);
    log_put_on(&l, 1, 400, EVENT_MARK, MARK_WINDOW_END, 400, 0);
    /* thread 2 has no marks: 100 to 400 */
    log_put_on(&l, 2, 99, EVENT_ISSUE, 9, 0, 1);
    log_put_on(&l, 2, 100, EVENT_ISSUE, 10, 0, 1);               /* measured */
    log_put_on(&l, 2, 400, EVENT_ISSUE, 11, 0, 1);               /* measured */
    log_put_on(&l, 2, 401, EVENT_ISSUE, 12, 0, 1);
    log_put_on(&l, 2, 450, EVENT_DONE, 11, 1, 0);
    log_put_on(&l, 2, 460, EVENT_DONE, 10, 1, 0);
    log_put_on(&l, 2, 500, EVENT_DONE, 9, 1, 0); /* not measured: its end moves nothing */
    log_put_on(&l, 2, 500, EVENT_DONE, 12, 1, 0);
    struct metrics m = compute(&l, &no_facts);
    cr_assert(eq(i64, m.issued, 6)); /* 2 4 5 8 10 11 */
    cr_assert(eq(i64, m.warmup_requests, 7));
    cr_assert(eq(i64, m.completed, 6));
    cr_assert(eq(i64, m.duration_ns, 360)); /* 100 to 460: request 10 ended last */
    metrics_release(&m);

    log_init(&l, 1); /* idle when its time was up: the window goes on to its end */
    log_put(&l, 0, EVENT_MARK, MARK_WINDOW_BEGIN, 0, 0);
    log_put(&l, 10, EVENT_ISSUE, 0, 0, 1);
    log_put(&l, 20, EVENT_DONE, 0, 1, 0);
    log_put(&l, 1000, EVENT_MARK, MARK_WINDOW_END, 1000, 0);
    log_put(&l, 1000, EVENT_MARK, MARK_INTERRUPTED, 1000, 0);
    m = compute(&l, &no_facts);
    cr_assert(eq(i64, m.duration_ns, 1000));
    cr_assert(eq(int, m.interrupted, 1));
    metrics_release(&m);
}

Test(measure_metrics, training) {
    struct logbuild l;
    log_init(&l, 1);
    log_put(&l, 0, EVENT_MARK, MARK_WINDOW_BEGIN, 0, 0);
    for (uint64_t i = 0; i < 4; i++) {
        log_put(&l, (int64_t)i * 1000, EVENT_ISSUE, i, 0, 0);
        log_put(&l, (int64_t)i * 1000 + 900 + (int64_t)i, EVENT_STEP, i, 4096, 2);
    }
    log_put(&l, 4000, EVENT_EVAL, 3, 70, 812345);
    log_put(&l, 4000, EVENT_CHECKPOINT, 3, 50, 1 << 20);
    struct metrics_facts f = {.chips = 4, .peak_flops_per_s = 1e15, .flops_per_token = 1e9};
    struct metrics m = compute(&l, &f);
    cr_assert(eq(i64, m.completed, 4));
    cr_assert(eq(i64, m.duration_ns, 3903));
    cr_assert(eq(dbl, get(&m, "step_ns", "p50"), 901));
    cr_assert(eq(dbl, get(&m, "step_ns", "max"), 903));
    cr_assert(eq(dbl, get(&m, "step_tokens_per_s", "value"), 4 * 4096 / 3903e-9));
    cr_assert(eq(dbl, get(&m, "step_samples_per_s", "value"), 8 / 3903e-9));
    cr_assert(ieee_ulp_eq(dbl, get(&m, "mfu", "value"), 3 * 4 * 4096e9 / 3903e-9 / 4e15, 4));
    cr_assert(eq(dbl, get(&m, "eval_score", "value"), 0.812345));
    cr_assert(eq(dbl, get(&m, "checkpoint_ns", "mean"), 50));
    cr_assert(absent(&m, "requests_per_s"));
    cr_assert(absent(&m, "ttft_ns"));
    cr_assert(absent(&m, "lateness_ns"));
    metrics_release(&m);
}

Test(measure_metrics, sessions) {
    struct logbuild l;
    log_init(&l, 1);
    int64_t t = 0;
    /* session 0: two turns, both fine; session 1: one fails; session 2: three turns, one in flight;
     * session 5: one turn */
    static const struct {
        uint64_t request;
        int64_t session, turn;
        int end;
    } row[] = {{0, 0, 0, EVENT_DONE}, {1, 1, 0, EVENT_DONE}, {2, 0, 1, EVENT_DONE},
               {3, 1, 1, EVENT_FAIL}, {4, 2, 0, EVENT_DONE}, {5, 2, 1, 0},
               {6, 5, 0, EVENT_DONE}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++, t += 100) {
        log_put(&l, t, EVENT_SESSION, row[i].request, row[i].session, row[i].turn);
        log_put(&l, t + 5, EVENT_ISSUE, row[i].request, 5, 10);
        log_put(&l, t + 20, EVENT_TOKENS, row[i].request, 1, 0);
        if (row[i].end)
            log_put(&l, t + 30, row[i].end, row[i].request, 1, 0);
    }
    struct metrics m = compute(&l, &no_facts);
    cr_assert(eq(i64, metrics_find(&m, "session_e2e_ns", "max")->n, 2));
    cr_assert(eq(dbl, get(&m, "session_e2e_ns", "max"), 230)); /* 0 to 230 */
    cr_assert(eq(dbl, get(&m, "session_e2e_ns", "min"), 30));
    cr_assert(eq(dbl, get(&m, "session_turns", "max"), 2));
    cr_assert(eq(dbl, get(&m, "session_turns", "mean"), 1.5));
    metrics_release(&m);
}

/* Two sessions of five turns and one, and a request outside, by hand: what of a turn's input the server
 * says it had. A turn without USAGE has no cached tokens. */
Test(measure_metrics, cached_share_by_turn) {
    static const struct {
        uint64_t request;
        int64_t session, turn, in, cached; /* cached -1: no USAGE; session -1: none */
    } row[] = {{0, 0, 0, 100, -1}, {1, 0, 1, 160, 96}, {2, 0, 2, 220, 160},   {3, 0, 3, 300, 208},
               {4, 0, 4, 400, 288}, {5, 1, 0, 100, 64}, {6, -1, 0, 50, 10}, {7, 2, 64, 1000, 900},
               {8, 2, 0, 200, 300}}; /* more than there is: all of it */
    struct logbuild l;
    log_init(&l, 1);
    int64_t t = 0;
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++, t += 100) {
        if (row[i].session >= 0)
            log_put(&l, t, EVENT_SESSION, row[i].request, row[i].session, row[i].turn);
        log_put(&l, t, EVENT_ISSUE, row[i].request, 0, row[i].in);
        log_put(&l, t + 20, EVENT_TOKENS, row[i].request, 1, 0);
        if (row[i].cached >= 0)
            log_put(&l, t + 25, EVENT_USAGE, row[i].request, row[i].cached, 0);
        log_put(&l, t + 30, EVENT_DONE, row[i].request, 1, 0);
    }
    struct metrics m = compute(&l, &no_facts);
    cr_assert(ieee_ulp_eq(dbl, get(&m, "cached_token_share_by_turn", "turn_1"), 264.0 / 400, 1));
    cr_assert(ieee_ulp_eq(dbl, get(&m, "cached_token_share_by_turn", "turn_2"), 96.0 / 160, 1));
    cr_assert(ieee_ulp_eq(dbl, get(&m, "cached_token_share_by_turn", "turns_3_4"), 368.0 / 520, 1));
    cr_assert(ieee_ulp_eq(dbl, get(&m, "cached_token_share_by_turn", "turns_5_8"), 288.0 / 400, 1));
    cr_assert(ieee_ulp_eq(dbl, get(&m, "cached_token_share_by_turn", "turns_65_up"), 900.0 / 1000, 1));
    cr_assert(metrics_find(&m, "cached_token_share_by_turn", "turns_9_16") == NULL);
    cr_assert(ieee_ulp_eq(dbl, get(&m, "cached_token_share", "value"), 1926.0 / 2530, 1));
    metrics_release(&m);
}

/* --- logs that make no sense --------------------------------------------------------------------- */

Test(measure_metrics, nonsense_is_refused) {
    struct ev {
        int64_t t;
        int kind;
        uint64_t request;
        int64_t a, b;
    };
    static const struct {
        const char *why;
        struct ev ev[4];
    } bad[] = {
        {"without an ISSUE", {{1, EVENT_DONE, 0, 1, 0}}},
        {"without an ISSUE", {{1, EVENT_TOKENS, 123456789, 1, 0}}},
        {"without an ISSUE", {{1, EVENT_SESSION, 3, 0, 0}, {2, EVENT_TOKENS, 3, 1, 0}}},
        {"issued twice", {{1, EVENT_ISSUE, 0, 0, 0}, {2, EVENT_ISSUE, 0, 0, 0}}},
        {"after the request's end",
         {{1, EVENT_ISSUE, 0, 0, 0}, {2, EVENT_DONE, 0, 1, 0}, {3, EVENT_TOKENS, 0, 1, 0}}},
        {"after the request's end",
         {{1, EVENT_ISSUE, 0, 0, 0}, {2, EVENT_FAIL, 0, 1, 0}, {3, EVENT_DONE, 0, 1, 0}}},
        {"must be its first event", {{1, EVENT_ISSUE, 0, 0, 0}, {2, EVENT_SESSION, 0, 0, 0}}},
        {"lateness", {{1, EVENT_ISSUE, 0, -1, 0}}},
        {"lateness", {{1, EVENT_ISSUE, 0, INT64_MAX, 0}}},
        {"input tokens", {{1, EVENT_ISSUE, 0, 0, -5}}},
        {"token count", {{1, EVENT_ISSUE, 0, 0, 0}, {2, EVENT_TOKENS, 0, -1, 0}}},
        {"count out of range", {{1, EVENT_ISSUE, 0, 0, 0}, {2, EVENT_DONE, 0, INT64_MIN, 0}}},
        {"unknown failure class", {{1, EVENT_ISSUE, 0, 0, 0}, {2, EVENT_FAIL, 0, 99, 0}}},
        {"unknown failure class", {{1, EVENT_ISSUE, 0, 0, 0}, {2, EVENT_FAIL, 0, 0, 0}}},
        {"78 hours", {{1, EVENT_ISSUE, 0, 0, 0}, {INT64_C(1) << 49, EVENT_DONE, 0, 1, 0}}},
        {"73 years", {{1, EVENT_ISSUE, 0, 0, 0}, {INT64_MAX, EVENT_DONE, 0, 1, 0}}},
        {"intended time", {{INT64_MIN, EVENT_ISSUE, 0, 5, 0}}},
        {"unknown mark", {{1, EVENT_MARK, 77, 0, 0}}},
        {"boundary", {{1, EVENT_MARK, MARK_WINDOW_BEGIN, INT64_MIN, 0}}},
        {"dense from 0", {{1, EVENT_ISSUE, 1 << 21, 0, 0}}},
        {"dense from 0", {{1, EVENT_ISSUE, UINT64_MAX, 0, 0}}},
        {"dense from 0", {{1, EVENT_SESSION, 0, -1, 0}}},
        {"negative duration", {{1, EVENT_EVAL, 0, -1, 0}}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct logbuild l;
        struct metrics m;
        struct err e = {0};
        log_init(&l, 1);
        for (int k = 0; k < 4 && bad[i].ev[k].kind; k++)
            log_put(&l, bad[i].ev[k].t, bad[i].ev[k].kind, bad[i].ev[k].request, bad[i].ev[k].a,
                    bad[i].ev[k].b);
        struct eventlog_source src = log_source(&l);
        int rc = metrics_compute(&src, &no_facts, &m, &e);
        cr_assert(eq(int, rc, ASSAY_EINPUT), "row %zu", i);
        cr_assert(strstr(e.text, bad[i].why) != NULL, "row %zu: %s", i, e.text);
        cr_assert(eq(int, m.n, 0));
        log_release(&l);
    }
}

/* --- against a second computation --------------------------------------------------------------- */

enum { RANDOM_REQUESTS = 12000 };

struct truth {
    int64_t intended, sent, first, last, done, n_first, n, in;
    bool ok, many;
};

static int rising(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static void check_series(const struct metrics *m, const char *name, double *x, size_t n) {
    static const struct {
        const char *stat;
        int num, den;
    } q[] = {{"p50", 1, 2}, {"p90", 9, 10}, {"p95", 19, 20}, {"p99", 99, 100}, {"p99.9", 999, 1000}};
    qsort(x, n, sizeof *x, rising);
    cr_assert(eq(dbl, get(m, name, "min"), x[0]));
    cr_assert(eq(dbl, get(m, name, "max"), x[n - 1]));
    for (size_t i = 0; i < 5; i++) {
        const struct metric *g = metrics_find(m, name, q[i].stat);
        bool shown = i < 2 || n * (size_t)(q[i].den - q[i].num) >= 10 * (size_t)q[i].den;
        cr_assert(eq(int, g != NULL, shown), "%s %s n %zu", name, q[i].stat, n);
        if (!shown)
            continue;
        size_t rank = (n * (size_t)q[i].num + (size_t)q[i].den - 1) / (size_t)q[i].den;
        cr_assert(eq(dbl, g->value, x[rank - 1]), "%s %s", name, q[i].stat);
        cr_assert(eq(i64, g->n, (int64_t)n));
        cr_assert(eq(dbl, g->ci_level, 0.95));
        cr_assert(le(dbl, g->ci_lo, g->value));
        cr_assert(ge(dbl, g->ci_hi, g->value));
    }
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    cr_assert(lt(dbl, fabs(get(m, name, "mean") / (sum / (double)n) - 1), 1e-12));
}

struct timed {
    int64_t t, a, b;
    uint64_t request;
    size_t made; /* breaks ties */
    int kind;
};

static int by_time(const void *px, const void *py) {
    const struct timed *x = px, *y = py;
    if (x->t != y->t)
        return x->t < y->t ? -1 : 1;
    return x->made < y->made ? -1 : x->made > y->made;
}

static void random_log(uint64_t seed, uint32_t threads, double spread) {
    static struct truth r[RANDOM_REQUESTS];
    static double x[RANDOM_REQUESTS * 8];
    static struct timed ev[RANDOM_REQUESTS * 12];
    struct logbuild l;
    struct rng g;
    rng_seed(&g, seed);
    log_init(&l, threads);
    size_t gaps = 0;
    static double gap[RANDOM_REQUESTS * 8];
    for (uint32_t t = 0; t < threads; t++) {
        size_t n = 0;
        int64_t now = 0;
        for (uint64_t i = t; i < RANDOM_REQUESTS; i += threads) {
            struct truth *q = &r[i];
            *q = (struct truth){0};
            now += (int64_t)(rng_exponential(&g) * 1e6);
            int64_t late = (int64_t)rng_below(&g, 5000), at = now + late;
            q->intended = now;
            q->in = (int64_t)rng_below(&g, 9000);
#define EV(time, k, x1, x2)                                                                        \
    do {                                                                                           \
        ev[n].t = (time);                                                                          \
        ev[n].made = n;                                                                            \
        ev[n].kind = (k);                                                                          \
        ev[n].request = i;                                                                         \
        ev[n].a = (x1);                                                                            \
        ev[n++].b = (x2);                                                                          \
    } while (0)
            EV(at, EVENT_ISSUE, late, q->in);
            q->sent = at;
            if (rng_below(&g, 2)) {
                q->sent = at += (int64_t)rng_below(&g, 4000);
                EV(at, EVENT_SENT, 0, 0);
            }
            q->ok = rng_below(&g, 50) != 0;
            int events = (int)rng_below(&g, 8);
            for (int k = 0; k < events; k++) {
                int64_t d = (int64_t)rng_lognormal(&g, det_log(20e6), spread), prev = q->last;
                at += d;
                int64_t tokens = (int64_t)rng_below(&g, 4);
                EV(at, EVENT_TOKENS, tokens, 0);
                q->n += tokens;
                if (k == 0) {
                    q->first = at;
                    q->n_first = tokens ? tokens : 1;
                    q->many = tokens == 0; /* unknown size counts as streamed */
                } else {
                    q->many = true;
                    if (q->ok)
                        gap[gaps++] = (double)(at - prev);
                }
                q->last = at;
            }
            q->done = at += (int64_t)rng_below(&g, 3000);
            EV(at, q->ok ? EVENT_DONE : EVENT_FAIL, q->ok ? q->n : 1 + (int64_t)rng_below(&g, 17), 0);
            if (!events)
                q->last = q->done;
        }
        qsort(ev, n, sizeof ev[0], by_time);
        for (size_t i = 0; i < n; i++)
            log_put_on(&l, t, ev[i].t, ev[i].kind, ev[i].request, ev[i].a, ev[i].b);
    }
    struct metrics m = compute(&l, &no_facts);
    int64_t completed = 0, end = 0, begin = INT64_MAX, tokens = 0, in = 0;
    for (int i = 0; i < RANDOM_REQUESTS; i++) {
        completed += r[i].ok;
        end = r[i].done > end ? r[i].done : end;
        int64_t late = r[i].sent - r[i].intended;
        (void)late;
        tokens += r[i].ok ? r[i].n : 0;
        in += r[i].ok ? r[i].in : 0;
        begin = r[i].intended < begin ? r[i].intended : begin;
    }
    cr_assert(eq(i64, m.completed, completed));
    cr_assert(eq(i64, m.failed, RANDOM_REQUESTS - completed));
    cr_assert(eq(i64, m.output_tokens, tokens));
    cr_assert(eq(i64, m.input_tokens, in));
#define SERIES(name, condition, value)                                                             \
    do {                                                                                           \
        size_t n_ = 0;                                                                             \
        for (int i = 0; i < RANDOM_REQUESTS; i++)                                                  \
            if (condition)                                                                         \
                x[n_++] = (double)(value);                                                         \
        check_series(&m, name, x, n_);                                                             \
    } while (0)
#define STREAMED (r[i].ok && r[i].first && (r[i].many || r[i].n <= 1))
    SERIES("e2e_ns", r[i].ok, r[i].last - r[i].intended);
    SERIES("service_e2e_ns", r[i].ok, r[i].last - r[i].sent);
    SERIES("ttft_ns", STREAMED, r[i].first - r[i].intended);
    SERIES("service_ttft_ns", STREAMED, r[i].first - r[i].sent);
    SERIES("tpot_ns", STREAMED && r[i].n > r[i].n_first,
           (double)(r[i].last - r[i].first) / (double)(r[i].n - r[i].n_first));
    SERIES("lateness_ns", true, r[i].sent - r[i].intended);
    check_series(&m, "itl_ns", gap, gaps);
    metrics_release(&m);
}

Test(measure_metrics, random_logs_one_thread, .timeout = 60) {
    random_log(1, 1, 0.5);
}
Test(measure_metrics, random_logs_three_threads, .timeout = 60) {
    random_log(2, 3, 0.01);
}
Test(measure_metrics, random_logs_heavy_tail, .timeout = 60) {
    random_log(3, 2, 3.0); /* gaps up to hours: beyond the 32 bits of the pool */
}

/* --- tables -------------------------------------------------------------------------------------- */

Test(measure_metrics, definitions_are_sorted_and_unique) {
    static const char *const order[] = {
        "value",     "turn_1",     "turn_2",      "turns_3_4",   "turns_5_8",
        "turns_9_16", "turns_17_32", "turns_33_64", "turns_65_up", "mean",
        "p50",       "p90",        "p95",         "p99",         "p99.9",
        "min",       "max"};
    int before = -1;
    for (const struct metric_def *d = metric_defs; d->name; d++) {
        int rank = -1;
        for (int i = 0; i < (int)(sizeof order / sizeof *order); i++)
            if (!strcmp(d->stat, order[i]))
                rank = i;
        cr_assert(ge(int, rank, 0));
        if (d > metric_defs) {
            int c = strcmp(d[-1].name, d->name);
            cr_assert(c < 0 || (c == 0 && before < rank), "%s %s", d->name, d->stat);
        }
        before = rank;
        cr_assert(strcmp(d->better, "lower") == 0 || strcmp(d->better, "higher") == 0);
        cr_assert(d->description[0] && d->unit[0]);
    }
}

Test(measure_metrics, json_shape) {
    struct logbuild l;
    two(&l);
    struct metrics m = compute(&l, &no_facts);
    json_t *j = metrics_to_json(&m);
    cr_assert(eq(i64, json_integer_value(json_object_get(json_object_get(j, "ttft_ns"), "p50")), 100));
    int kind = json_typeof(json_object_get(json_object_get(j, "tpot_ns"), "p50"));
    cr_assert(eq(int, kind, JSON_REAL));
    kind = json_typeof(json_object_get(j, "requests_per_s"));
    cr_assert(eq(int, kind, JSON_REAL));
    cr_assert(eq(i64, json_integer_value(json_object_get(j, "duration_ns")), 400));
    cr_assert(json_object_get(json_object_get(j, "tokens_per_s_per_user"), "p90") != NULL);
    json_decref(j);
    metrics_release(&m);
}

Test(measure_metrics, sketch_is_within_one_percent) {
    static struct sketch s;
    static double x[20000];
    struct rng g;
    rng_seed(&g, 8);
    for (int i = 0; i < 20000; i++) {
        int64_t v = (int64_t)rng_lognormal(&g, det_log(3e7), 2.0);
        x[i] = (double)(v > 1 ? v : 1);
        sketch_add(&s, v);
    }
    qsort(x, 20000, sizeof x[0], rising);
    for (int p = 1; p < 1000; p++) {
        double want = x[(20000 * p + 999) / 1000 - 1], got = (double)sketch_quantile(&s, p / 1000.0);
        cr_assert(le(dbl, fabs(got / want - 1), 0.0101), "p %d: %g %g", p, got, want);
    }
    static struct sketch edge;
    cr_assert(eq(i64, sketch_quantile(&edge, 0.5), 0));
    sketch_add(&edge, INT64_MIN);
    sketch_add(&edge, INT64_MAX);
    cr_assert(eq(i64, sketch_quantile(&edge, 0.1), 1));
}
