/* Where a simulated run's time went, op by op. */
#ifndef HARNESS_CLI_SUMMARY_OPS_H
#define HARNESS_CLI_SUMMARY_OPS_H

#include "harness/core/arena.h"

#include <jansson.h>
#include <stdio.h>

/* observed: the record's member; one object a thread, those without "ops" or "mesh_search" are passed over. Returns the tables printed. */
int summary_ops(const json_t *observed, struct arena *a, FILE *out);

#endif
