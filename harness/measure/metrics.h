/* Metrics: pure functions of the event log and of a few facts of the workload and system.
 * Definitions: openai-streaming.md 6.1 (house), statistics.md section 1 (nearest-rank percentiles by
 * integer arithmetic); `compat` is what other tools would print from the same log. */
#ifndef HARNESS_MEASURE_METRICS_H
#define HARNESS_MEASURE_METRICS_H

#include "harness/core/err.h"
#include "harness/measure/eventlog.h"

#include <jansson.h>
#include <stdint.h>

/* Facts that the log does not hold; a verifier finds them in the signed record. */
struct metrics_facts {
    int64_t chips;           /* physical; 0 = unknown: no per-chip figures */
    double peak_flops_per_s; /* one chip; 0 = no MFU */
    double flops_per_token;
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
};

enum { METRICS_MAX = 160, FAIL_TABLE = FAIL_CLASS_COUNT };

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
    json_t *compat;      /* new reference: {"inferencex":{…},"vllm":{…},…}; may be NULL */
};

/* Reads the whole log. Memory: bounded by 64 bytes a request plus constants.
 * Semantic nonsense (DONE without ISSUE, a request twice, tokens after DONE) is ASSAY_EINPUT. */
int metrics_compute(const struct eventlog_source *src, const struct metrics_facts *facts,
                    struct metrics *out, struct err *e) MUST_USE;
void metrics_release(struct metrics *m);

const struct metric *metrics_find(const struct metrics *m, const char *name, const char *stat);

/* The table of all metric definitions, for the store's metric_def, docs and `inspect --list`. */
struct metric_def {
    const char *name, *stat, *unit, *better, *description;
};
extern const struct metric_def metric_defs[]; /* ends with {0}; sorted by name, then stat order */

/* The "metrics" object of cli.md's run output; new reference. */
json_t *metrics_to_json(const struct metrics *m);

/* For the progress line: a fixed-size log-bucket histogram (DDSketch, relative error 1 %). */
struct sketch {
    uint64_t count[2048];
    uint64_t n;
};
void sketch_add(struct sketch *s, int64_t ns);
int64_t sketch_quantile(const struct sketch *s, double q);

#endif
