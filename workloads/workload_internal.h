/* Between the files of the workload loader. */
#ifndef WORKLOADS_WORKLOAD_INTERNAL_H
#define WORKLOADS_WORKLOAD_INTERNAL_H

#include "harness/core/options.h"
#include "workloads/workload.h"

/* The members of a workload file as read, before they are resolved against each other. */
struct definition {
    const char *name, *version, *description, *rules, *pattern;
    int kind;
    int64_t duration_ns;
    uint64_t seed;
    const json_t *model, *requests, *warmup, *isl, *osl, *trace, *sessions, *limits, *training,
        *shared_prefix;
};

extern const char *const workload_kind_names[];
extern const char *const trace_format_names[]; /* index + 1 = enum trace_format */

/* Contradictions between members; messages name the place. d tells which members are present. */
int workload_check(const struct workload *w, const struct definition *d, const char *label,
                   struct err *e);
/* The resolved definition, without "$overrides"; NULL when memory runs out. */
json_t *workload_effective(const struct workload *w, const json_t *model_json);
/* Applies "path=value" texts to json and keeps them in w. */
int workload_apply_overrides(struct workload *w, json_t *json, const char *const *overrides,
                             int noverrides, struct err *e);
extern const struct option workload_limit_fields[], workload_training_fields[],
    workload_prefix_fields[];

#endif
