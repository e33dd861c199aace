/* The only list of backends, and the only place that checks what a backend may leave out. */
#include "backends/backend.h"

#include <string.h>

const struct backend_ops *const backend_all[] = {
    &backend_null,
    &backend_tpu_sim,
    &backend_http,
    NULL,
};

static const char *const class_names[] = {
    [CLASS_NONE] = "none",
    [CLASS_PROJECTED] = "projected",
    [CLASS_SIMULATED] = "simulated",
    [CLASS_EMULATED] = "emulated",
    [CLASS_MEASURED] = "measured",
};

const char *result_class_name(enum result_class c) {
    return class_names[c];
}

int result_class_parse(const char *name, enum result_class *c) {
    for (size_t i = 0; i < sizeof class_names / sizeof *class_names; i++)
        if (strcmp(class_names[i], name) == 0) {
            *c = (enum result_class)i;
            return 0;
        }
    return ASSAY_EINPUT;
}

static const char *missing_slot(const struct backend_ops *o) {
    if (!o->open || !o->describe || !o->close || !o->now)
        return "open, describe, now and close are required";
    if ((o->caps & BACKEND_SERVING) && (!o->submit || !o->wait))
        return "a serving backend needs submit and wait";
    if ((o->caps & BACKEND_TRAINING) && !o->train)
        return "a training backend needs train";
    if ((o->caps & BACKEND_VIRTUAL_CLOCK) && (o->caps & BACKEND_SERVING) && !o->next_ns)
        return "a virtual clock needs next_ns";
    if (!o->options || !o->options_size || !o->version)
        return "options, options_size and version are required";
    return NULL;
}

int backend_find(const char *name, const struct backend_ops **out, struct err *e) {
    const char *names[32];
    size_t n = 0;
    for (; backend_all[n] && n < 32; n++) {
        names[n] = backend_all[n]->name;
        if (strcmp(name, names[n]) != 0)
            continue;
        const struct backend_ops *o = backend_all[n];
        if (o->abi != BACKEND_ABI)
            return err_set(e, ASSAY_EUSAGE, "backend '%s' speaks ABI %u, this harness %d", name,
                           o->abi, BACKEND_ABI);
        const char *why = missing_slot(o);
        if (why)
            return err_set(e, ASSAY_EUSAGE, "backend '%s' is incomplete: %s", name, why);
        *out = o;
        return 0;
    }
    const char *near = nearest_name(name, names, n);
    if (near)
        return err_set(e, ASSAY_EUSAGE, "unknown backend '%s'; did you mean '%s'?", name, near);
    char list[256] = "";
    for (size_t i = 0; i < n; i++) {
        size_t at = strlen(list);
        snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", names[i]);
    }
    return err_set(e, ASSAY_EUSAGE, "unknown backend '%s'; known are: %s", name, list);
}
