/* Metrics: pure functions of the event log and of a few facts of the workload and system.
 *
 * What counts. A request is *measured* when its INTENDED issue (ISSUE time - lateness) lies in its
 * thread's window, from the boundary that its WINDOW_BEGIN mark states to that of WINDOW_END, both
 * inclusive (the mark's `a`; the mark may be recorded later). What a thread issues before its
 * WINDOW_BEGIN is warm-up. A thread without marks goes by the earliest begin and latest end of the
 * others; a log without WINDOW_BEGIN is measured whole. A failed request is in no latency, and its
 * tokens are in no throughput. Requests in flight at the end are in `issued` alone.
 *
 * The window's length, which every rate is divided by, runs from the earliest WINDOW_BEGIN (or
 * RUN_BEGIN, or the first event) to the last end (DONE or FAIL) of a measured request, or to WINDOW_END
 * where that is later. Reason: the drain of a closed-loop or offline run produced tokens that are
 * counted, so its time counts too; and a slow open-loop run that happened to be idle when its time was
 * up must not gain from it. It can only lower a rate, never raise it.
 *
 * First tokens. A request without a token event has no TTFT, no TPOT and no gaps; its E2E ends with the
 * stream. Nor has one whose first token event states that it holds all N > 1 tokens: that answer was
 * not streamed. A first event of unknown size counts as one token.
 *
 * Percentiles are nearest-rank, an observed value, by integer arithmetic; p95, p99 and p99.9 are shown
 * only with ten observations beyond them, p50 and p90 always. Intervals are distribution-free, from
 * order statistics, and assume independent requests. What each figure is: the table metric_defs.
 * The client's error. A log of a client that reads a wire states with each stamp how long what it tells
 * of may have waited before (schemas/event-log.md). Then every figure is also computed without what the
 * client can have added: client_lo .. client_hi. A latency that begins at the intended issue loses the
 * whole lateness (which is part of it by definition, and is the client's doing) and the bound of its end;
 * one between two stamps loses the bound of its end or gains that of its begin. A rate loses from its
 * window: under a load pattern with a concurrency, the share of the slots' time (concurrency x window)
 * that lateness and bounds of ends took, since each slot waits for the client before it goes on;
 * otherwise, what the last request's end, if it closes the window, owes to the client.
 *
 * What is judged of it (metrics_client_error): means, p50 to p99.9 and rates. Not min and max: each is a
 * single observation, and one interrupt in an hour would decide. Nor errors of at most
 * CLIENT_FLOOR_NS: a thread that sleeps in epoll is woken 5 to 50 us after its data, which no stamp shows,
 * so a finer claim would be none; 1 % holds for latencies from 5 ms on, 50 us below. Nor one request
 * more or less within the limits of goodput. A log that states no bounds has no client_lo and client_hi.
 *
 * `compat` is what other tools would print from the same log (compat.c). */
#ifndef HARNESS_MEASURE_METRICS_H
#define HARNESS_MEASURE_METRICS_H

#include "harness/core/err.h"
#include "harness/measure/eventlog.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Facts that the log does not hold; a verifier finds them in the signed record. */
struct metrics_facts {
    int64_t chips;           /* physical; 0 = unknown: no per-chip figures */
    double peak_flops_per_s; /* one chip; 0 = no MFU */
    double flops_per_token;  /* forward FLOPs of one token: 2 * active parameters. A training step's
                                tokens count three times (forward and backward, no recomputation) */
    int64_t limit_ttft_ns, limit_tpot_ns, limit_e2e_ns; /* goodput; 0 = no limit */
    int64_t max_concurrency; /* of the pattern, for compat.* that divide by it; 0 = open loop */
};

/* One published figure. */
struct metric {
    const char *name;   /* "ttft_ns" */
    const char *stat;   /* "mean", "p50", "p90", "p99", "max", "min", "value" */
    const char *unit;   /* "ns", "tok/s", … */
    const char *better; /* "lower" or "higher" */
    double value;       /* integers (order statistics in ns) are exact below 2^53 */
    int64_t n;          /* observations behind it */
    double ci_lo, ci_hi, ci_level; /* level 0 = none; order-statistic intervals of quantiles */
    double client_lo, client_hi; /* with the client's error taken out; 0, 0 when the log states no bounds */
};

enum {
    METRICS_MAX = 160,
    FAIL_TABLE = FAIL_CLASS_COUNT,
    METRICS_GAPS_MAX = 1 << 28, /* token gaps that are pooled; a longer log has no itl_ns */
};

struct metrics {
    struct metric m[METRICS_MAX];
    int n;
    /* counts of the measured window */
    int64_t issued, completed, failed, in_flight_at_end;
    int64_t failed_by_class[FAIL_TABLE];
    int64_t warmup_requests, token_events, events;
    int64_t input_tokens, output_tokens;
    int64_t duration_ns; /* of the measured window */
    int interrupted;     /* MARK_INTERRUPTED was seen */
    int64_t stamps, stamps_unbounded; /* token events, and ends of answers without any; of these without
                                         a bound */
    json_t *compat;      /* new reference: {"inferencex":{…},"vllm":{…},…}; may be NULL */
};

/* Reads the whole log once. Memory: at most 72 bytes a request (68 without sessions and with one
 * thread) and 8 bytes a token event (10 with bounds); besides, while order statistics are taken, 8 bytes for each value
 * near a wanted rank (a tenth of all as a rule, all of them when they are nearly equal).
 * Request ids must be dense from 0: below 2^20, or below 256 times the requests seen so far.
 * Semantic nonsense (DONE without ISSUE, a request twice, tokens after DONE) is ASSAY_EINPUT. */
int metrics_compute(const struct eventlog_source *src, const struct metrics_facts *facts,
                    struct metrics *out, struct err *e) MUST_USE;
void metrics_release(struct metrics *m);

const struct metric *metrics_find(const struct metrics *m, const char *name, const char *stat);

/* Latency errors up to this are not held against a run. */
#define CLIENT_FLOOR_NS INT64_C(50000)

/* The figure that the client's error could move the most, relative to its value; NULL: none beyond the
 * floor. */
struct client_error {
    const struct metric *worst;
    double share;
};
struct client_error metrics_client_error(const struct metrics *m, double floor_ns);
/* Whether the log states that the client can have moved the figure at all. */
static inline bool metric_client_moves(const struct metric *m) {
    return (m->client_lo != 0 || m->client_hi != 0) &&
           (m->client_lo != m->value || m->client_hi != m->value);
}
/* That of one figure; 0 within the floor or when nothing is stated. window_s: metrics.duration_ns. */
double metrics_client_share(const struct metric *m, double floor_ns, double window_s);

/* The table of all metric definitions, for the store's metric_def, docs and `inspect --list`. */
struct metric_def {
    const char *name, *stat, *unit, *better, *description;
};
extern const struct metric_def metric_defs[]; /* ends with {0}; sorted by name, then stat order */

/* The "metrics" object of cli.md's run output; new reference. A series also holds its n and, under
 * "ci95", the intervals of its quantiles as [lo, hi]. */
json_t *metrics_to_json(const struct metrics *m);

/* For the progress line: a fixed-size log-bucket histogram (DDSketch, relative error 1 %). */
struct sketch {
    uint64_t count[2048];
    uint64_t n;
};
void sketch_add(struct sketch *s, int64_t ns);
int64_t sketch_quantile(const struct sketch *s, double q);

#endif
