/* One run, from workload to signed record: the spine of the product. */
#ifndef HARNESS_RUN_RUN_H
#define HARNESS_RUN_RUN_H

#include "backends/backend.h"
#include "harness/core/err.h"
#include "harness/measure/metrics.h"
#include "harness/measure/rules.h"
#include "results/store.h"
#include "workloads/workload.h"

#include <jansson.h>
#include <stdint.h>

struct run_progress;
struct run_options {
    const char *workload;              /* name or path */
    const char *const *overrides;      /* "json.path=value" */
    int noverrides;
    const char *backend;
    const char *const *backend_options;/* "key=value" */
    int nbackend_options;
    const char *db, *key, *system, *campaign, *rules;
    const char *const *scrape;         /* "off", "auto", or URLs of /metrics; none = auto */
    int nscrape;
    int64_t scrape_interval_ns;        /* 0 = 1 s */
    const char *const *telemetry;      /* CSV files that other tools write during the run */
    int ntelemetry;
    const char *telemetry_tz;          /* telemetry_zone_parse's; NULL = local */
    int64_t telemetry_gap_ns;          /* readings further apart leave a hole; 0 = 5 s */
    int64_t threads;                   /* >= 1 */
    int64_t grace_ns;                  /* real clocks: how long in-flight requests may drain */
    /* progress: called at most every 100 ms of wall time; NULL = none */
    void (*progress)(void *ctx, const struct run_progress *p);
    void *progress_ctx;
    const volatile int *stop;          /* set by a signal handler; never NULL */
};
struct run_progress {
    int64_t elapsed_ns, issued, done, failed, total; /* total -1 = unknown */
    int64_t in_flight;
    double rate_per_s;
    int64_t e2e_p50_ns, e2e_p99_ns; /* so far, log-bucket estimates within 1 % */
};

struct run_result {
    char uuid[RUN_UUID];
    bool valid;
    int nverdicts;
    struct verdict verdict[RULES_MAX];
    struct metrics metrics;
    json_t *summary;      /* the JSON object of cli.md; owned */
    bool key_created;
    char key_path[512];
    int recovered_runs;
};
/* Returns 0 (valid), ASSAY_ENEGATIVE (done, not valid), ASSAY_EINTERRUPTED (partial, stored), or an
 * error before anything ran. *r is filled for the first three; release it. */
int run_execute(const struct run_options *o, struct run_result *r, struct err *e) MUST_USE;
void run_result_release(struct run_result *r);

/* The plan of a run as `--dry-run` prints it: effective workload, requests, estimates; touches nothing. */
int run_plan(const struct run_options *o, json_t **out, struct err *e) MUST_USE;

#endif
