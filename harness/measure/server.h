/* What the server says of the run: figures of its own counters, gauges and histograms over the
 * measured window, under names that do not depend on the engine. Pure functions of a series log and of
 * a window.
 *
 * Window. From the last round at or before its begin (the first one, if there is none) to the first
 * round at or after its end (else the last): `span` states it; it is up to two scrape intervals longer
 * than the window. Counters: the sum of increases over all series of the name (engines, replicas); a
 * decrease is a restart, after which the new value counts whole; `resets` counts them. A labelled
 * counter that appears later began at 0. Gauges: sum over series (or the largest, for shares), mean
 * and maximum over the rounds of the span, each round counting once.
 * Histogram quantiles interpolate inside a bucket as Prometheus does; the bucket is given beside them,
 * since it is all that is known. */
#ifndef HARNESS_MEASURE_SERVER_H
#define HARNESS_MEASURE_SERVER_H

#include "harness/core/err.h"
#include "harness/measure/eventlog.h"
#include "harness/measure/series.h"

#include <jansson.h>

enum server_figure {
    SERVER_RUNNING,
    SERVER_WAITING,
    SERVER_KV_USAGE,
    SERVER_PREFIX_HITS,
    SERVER_PREFIX_QUERIES,
    SERVER_PREFIX_HIT_RATE,
    SERVER_PREEMPTIONS,
    SERVER_PROMPT_TOKENS,
    SERVER_GENERATION_TOKENS,
    SERVER_REQUESTS,
    SERVER_TTFT,
    SERVER_TPOT,
    SERVER_E2E,
    SERVER_QUEUE_TIME,
    SERVER_SPEC_DRAFTED,
    SERVER_SPEC_ACCEPTED,
    SERVER_SPEC_LENGTH,
    SERVER_FIGURES
};
enum server_kind { SERVER_COUNTER, SERVER_GAUGE_SUM, SERVER_GAUGE_MAX, SERVER_HISTOGRAM };

/* One engine's name of a figure. Names of counters stand without _total; both are found. Among rows of
 * one figure the first that the server shows counts: newer names before older ones. */
struct server_name {
    enum server_figure figure;
    const char *engine, *name;
};
extern const struct server_name server_names[]; /* ends with {.name = NULL} */
const char *server_figure_name(enum server_figure f);

/* What the client's own log says of the same span. */
struct client_totals {
    int64_t window_begin_ns; /* first MARK_WINDOW_BEGIN, else RUN_BEGIN, else 0 */
    int64_t done, failed, output_tokens, input_tokens; /* of the whole run, warm-up included; input
                                                          tokens 0 when one answer did not count them */
};
int client_totals_read(const struct eventlog_source *src, struct client_totals *t,
                       struct err *e) MUST_USE;

enum server_prefixes { SERVER_PREFIXES_UNKNOWN, SERVER_PREFIXES_NONE, SERVER_PREFIXES_SHARED };

/* What the client measured, to stand beside; 0 = unknown. */
struct server_compare {
    struct client_totals totals;
    double ttft_mean_ns, e2e_mean_ns;
    enum server_prefixes prefixes; /* whether the workload repeats prompts or parts of them */
};

/* The `server` object; NULL json when no source of kind "prometheus" had a good scrape. Sorts l.
 * c may be NULL. "warnings": what a reader of the run's figures must see. */
int server_report(struct series_log *l, int64_t begin_ns, int64_t end_ns,
                  const struct server_compare *c, json_t **out, struct err *e) MUST_USE;
/* Reads back what the report says of the workload, so that it can be computed again. */
enum server_prefixes server_prefixes_of(const json_t *report);

#endif
