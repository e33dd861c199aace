/* Facts of a chip file: each figure with its source, and the ratios that follow. */
#include "harness/cli/inspect_internal.h"

#include "backends/tpu_sim/chip.h"

#include <string.h>

static int put_parameters(const json_t *effective, json_t *facts) {
    const json_t *given = json_object_get(effective, "parameters");
    json_t *rows = json_object();
    int bad = json_object_set_new(facts, "parameters", rows);
    for (const struct option *o = chip_options; o->type != OPT_END && !bad; o++) {
        json_t *row = json_object_get(given, o->name);
        if (!row)
            continue;
        json_t *copy = json_copy(row);
        if (o->unit)
            bad |= json_object_set_new(copy, "unit", json_string(o->unit));
        bad |= json_object_set_new(copy, "what", json_string(o->help));
        bad |= json_object_set_new(rows, o->name, copy);
    }
    return bad;
}

int inspect_chip(const char *name, json_t *facts, struct err *e) {
    struct chip c;
    json_t *effective = NULL;
    int rc = chip_load(name, NULL, 0, &c, &effective, e);
    if (rc)
        return rc;
    const char *title = json_string_value(json_object_get(effective, "title"));
    double hbm = c.hbm_gbps * 1e9;
    int bad = json_object_set_new(facts, "name", json_string(c.name));
    if (title)
        bad |= json_object_set_new(facts, "description", json_string(title));
    /* where a matmul stops being bound by memory, at the peaks */
    bad |= json_object_set_new(facts, "ridge_bf16_flops_per_byte",
                               json_real(chip_peak_flops(&c, NUM_BF16) / hbm));
    bad |= json_object_set_new(facts, "ridge_int8_ops_per_byte",
                               json_real(chip_peak_flops(&c, NUM_INT8) / hbm));
    /* the least time of a decode step whose weights fill the memory */
    bad |= json_object_set_new(facts, "hbm_sweep_ns",
                               json_real(c.hbm_gib * 1024 * 1024 * 1024 / hbm * 1e9));
    bad |= put_parameters(effective, facts);
    json_decref(effective);
    return bad ? err_set(e, ASSAY_ENOMEM, "out of memory") : 0;
}
