/* A rule pack of any bytes: read or refused, and what was read judges an empty run and a full one. */
#include "harness/core/json.h"
#include "harness/measure/rules.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    json_t *json = NULL;
    struct rule_pack *pack = NULL;
    struct err e = {0};
    if (json_parse((const char *)data, size, "fuzz", &json, &e))
        return 0;
    if (rules_from_json(json, "fuzz", &pack, &e)) {
        if (pack || e.code != ASSAY_EINPUT || !e.text[0])
            abort();
    } else {
        struct verdict v[RULES_MAX];
        struct metrics none = {0}, full = {.issued = 5, .completed = 4, .failed = 1, .duration_ns = 7};
        struct rules_facts f = {.real_clock = true, .seed = 3, .max_concurrency = INT64_MAX};
        for (const struct metric_def *d = metric_defs; d->name && full.n < METRICS_MAX; d++)
            full.m[full.n++] = (struct metric){.name = d->name, .stat = d->stat, .value = 1e300, .n = 1};
        int n = rules_evaluate(pack, &none, &f, v);
        if (n < 1 || n > RULES_MAX || n != rules_evaluate(pack, &full, &f, v))
            abort();
        rules_free(pack);
    }
    json_decref(json);
    return 0;
}
