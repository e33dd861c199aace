/* The options that `run` and `sweep` share: what turns a workload into one run. */
#ifndef HARNESS_CLI_RUN_ARGS_H
#define HARNESS_CLI_RUN_ARGS_H

#include "harness/cli/term.h"
#include "harness/cli/verb.h"
#include "harness/run/run.h"

struct run_args {
    struct common c;
    const char *backend, *key, *system, *campaign, *rules;
    const char *telemetry_tz;
    struct strings backend_options, scrape, telemetry;
    int64_t threads, grace_ns, scrape_interval_ns, telemetry_gap_ns;
    bool dry_run;
};

extern const struct option common_run[]; /* offsets into struct run_args */

/* Fills o from a: everything borrowed from it. progress may be NULL. */
void run_args_options(const struct run_args *a, struct progress *progress, struct run_options *o);

#endif
