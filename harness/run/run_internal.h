/* Parts of one run, private to harness/run: preparation, client health, summary. */
#ifndef HARNESS_RUN_RUN_INTERNAL_H
#define HARNESS_RUN_RUN_INTERNAL_H

#include "harness/run/driver.h"
#include "harness/run/run.h"
#include "results/key.h"
#include "results/record.h"

/* Everything that is known before the first request. Filled by prepare_load (touches nothing), then
 * prepare_backend (opens the backend). */
struct prepared {
    struct arena arena;
    struct workload *workload;
    const struct backend_ops *ops;
    void *options;
    struct rule_pack *rules;
    uint32_t threads;
    struct event_sink *sinks;
    struct backend **backends; /* one a thread */
    int64_t origin_ns;
    struct backend_info info;
    enum result_class result_class; /* of the run: the weakest of backend and system description */
    json_t *system, *backend, *environment;
    struct metrics_facts facts;
};
int prepare_load(const struct run_options *o, struct prepared *p, struct err *e) MUST_USE;
int prepare_backend(const struct run_options *o, struct prepared *p, struct err *e) MUST_USE;
void prepared_release(struct prepared *p);

/* What the client process did during the run; from getrusage and /proc/stat. */
struct client_health {
    int64_t wall_ns, cpu_ns, mono_ns;
    int64_t voluntary, involuntary, steal_ticks, total_ticks;
};
void client_health_start(struct client_health *h);
/* Turns a start into differences. */
void client_health_stop(struct client_health *h);
json_t *client_health_json(const struct client_health *h, int64_t threads, uint64_t log_stalls);

/* How far the wall clock moved against the monotonic one; beyond 100 ms + 100 ppm it was stepped. */
bool clock_was_stepped(const struct client_health *h);

/* The object that cli.md describes for `run --json`. */
json_t *run_summary(const struct prepared *p, const struct run_handle *h, const struct run_result *r,
                    const json_t *bottleneck, const json_t *client, const json_t *observed,
                    const unsigned char record_sha256[32]);
/* Warm-up and measured requests (or steps) of the plan; -1 when only a trace's end will tell. */
int64_t run_total(const struct workload *w);
json_t *bottleneck_json(const struct backend_share *s, int n);

#endif
