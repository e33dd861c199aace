/* Overrides of a workload file: "path=value" texts of the command line, set in the JSON before it
 * is read, so that they are checked as the file is. */
#include "harness/core/json.h"
#include "harness/core/options.h"
#include "workloads/workload_internal.h"

#include <stdio.h>
#include <string.h>

static bool is_object_with(const json_t *json, const char *member, const char *sub) {
    return json_object_get(json_object_get(json, member), sub) != NULL;
}

/* isl=N keeps what kind of length it is when that kind has one value (a range ratio); warmup=10 and
 * warmup=30s say which of the two members they mean. */
static int set_one(json_t *json, const char *path, const char *value, struct err *e) {
    int64_t n;
    bool isl = strcmp(path, "isl") == 0, osl = strcmp(path, "osl") == 0;
    if ((isl || osl) && parse_i64(value, &n) == 0 && is_object_with(json, path, "value"))
        return json_set_path(json, isl ? "isl.value" : "osl.value", value, e);
    if (strcmp(path, "warmup") == 0 && value[0] != '{') {
        json_object_del(json, "warmup");
        if (parse_i64(value, &n) == 0 && n == 0) /* warmup=0: none */
            return 0;
        return json_set_path(json, parse_i64(value, &n) ? "warmup.duration" : "warmup.requests",
                             value, e);
    }
    if (strncmp(path, "model.", 6) == 0 && json_is_string(json_object_get(json, "model"))) {
        json_t *inlined;
        int rc = model_json(json_string_value(json_object_get(json, "model")), &inlined, e);
        if (rc)
            return rc;
        if (json_object_set_new(json, "model", inlined))
            return err_set(e, ASSAY_ENOMEM, "out of memory");
    }
    return json_set_path(json, path, value, e);
}

int workload_apply_overrides(struct workload *w, json_t *json, const char *const *overrides,
                             int noverrides, struct err *e) {
    if (noverrides > WORKLOAD_OVERRIDES_MAX)
        return err_set(e, ASSAY_EUSAGE, "at most %d overrides, found %d", WORKLOAD_OVERRIDES_MAX,
                       noverrides);
    for (int i = 0; i < noverrides; i++) {
        const char *text = overrides[i], *eq = strchr(text, '=');
        char path[WORKLOAD_OVERRIDE_BYTES];
        if (strlen(text) >= WORKLOAD_OVERRIDE_BYTES)
            return err_set(e, ASSAY_EUSAGE,
                           "--set '%.40s…': expected fewer than %d bytes, found %zu", text,
                           WORKLOAD_OVERRIDE_BYTES, strlen(text));
        if (!eq || eq == text)
            return err_set(e, ASSAY_EUSAGE, "--set '%s': expected PATH=VALUE", text);
        snprintf(path, sizeof path, "%.*s", (int)(eq - text), text);
        int rc = set_one(json, path, eq + 1, e);
        if (rc)
            return err_wrap(e, "--set '%s'", text);
        snprintf(w->overrides[i], WORKLOAD_OVERRIDE_BYTES, "%s", text);
        w->noverrides = i + 1;
    }
    return 0;
}
