/* The latencies of single requests, as the event log has them: for judgements that percentiles of one
 * run do not carry, such as over several runs. Definitions and window are those of metrics.h. */
#ifndef HARNESS_MEASURE_REQUESTS_H
#define HARNESS_MEASURE_REQUESTS_H

#include "harness/measure/metrics.h"

#include <stdbool.h>

struct request_latency {
    int64_t intended_ns, end_ns; /* end INT64_MAX: in flight when the log ended */
    double ttft_ns, tpot_ns, e2e_ns; /* NAN = has none */
    bool completed; /* else failed, or in flight when the log ended: no latencies */
    bool good;      /* completed within every limit of the facts */
};

/* Visits the measured requests in the order of their issue. A visit that returns non-zero ends it. */
typedef int request_visit_fn(void *ctx, const struct request_latency *r, struct err *e);
int requests_each(const struct eventlog_source *src, const struct metrics_facts *facts,
                  request_visit_fn *visit, void *ctx, struct err *e) MUST_USE;

#endif
