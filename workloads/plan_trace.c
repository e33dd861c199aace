/* Plans from a trace: placeholder until the readers land in the same series. */
#include "workloads/plan_internal.h"

static int trace_plan_next(struct plan *p, struct request *r, bool *end, struct err *e) {
    (void)p;
    (void)r;
    *end = true;
    return err_set(e, ASSAY_EUSAGE, "this build cannot read traces");
}
static int64_t trace_plan_total(const struct plan *p) {
    (void)p;
    return -1;
}
const struct plan_source plan_trace = {NULL, trace_plan_next, trace_plan_total, NULL};
