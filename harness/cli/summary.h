/* A run's summary (the JSON object of `run --json`) as the table that `run` prints. */
#ifndef HARNESS_CLI_SUMMARY_H
#define HARNESS_CLI_SUMMARY_H

#include "harness/core/arena.h"

#include <jansson.h>
#include <stdio.h>

/* Whatever the summary lacks is left out. store: where the record is, for the closing line; or
 * NULL. */
void summary_print(const json_t *summary, const char *store, struct arena *a, FILE *out);

/* One line: class, verdict, run id, workload. */
void summary_line(const json_t *summary, FILE *out);

/* "SIMULATED" for "simulated"; "" for "measured" and for nothing: only the weaker classes shout. */
const char *class_shout(const char *result_class);

/* The percentile table of a "metrics" object; prints nothing when it has no latency. */
void summary_latencies(const json_t *metrics, struct arena *a, FILE *out);

#endif
