/* Any bytes as a workload file: refused, or loaded with an effective definition that loads back to
 * itself, and a plan that can be walked. */
#include "harness/core/json.h"
#include "workloads/plan.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(const struct workload *w) {
    struct plan *p;
    struct err e = {0};
    struct request r;
    bool end = false;
    /* a range ratio's plan draws all input lengths at once: fine for people, slow for a fuzzer */
    if (w->trace_path || w->requests > 100000 || plan_open(w, 0, 2, &p, &e))
        return;
    for (int i = 0; i < 100 && plan_next(p, &r, &end, &e) == 0 && !end; i++)
        for (int k = 0; k < 10; k++) {
            bool over;
            int64_t at_ns;
            if (plan_done(p, &r, 0, r.osl, false, &over, &e) || !plan_take(p, &r, &at_ns))
                break;
        }
    plan_close(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    json_t *json;
    struct workload *w = NULL, *again = NULL;
    struct err e = {0};
    if (json_parse((const char *)data, size, "fuzz", &json, &e))
        return 0;
    if (workload_from_json(json, "fuzz", &w, &e) == 0) {
        if (workload_from_json(w->effective_json, "again", &again, &e) ||
            !json_equal(w->effective_json, again->effective_json))
            abort();
        walk(w);
    }
    workload_free(w);
    workload_free(again);
    json_decref(json);
    return 0;
}
