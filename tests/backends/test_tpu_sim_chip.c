/* Chip files: what ships loads, and says where each figure is from; what is malformed is named. */
#include "backends/tpu_sim/chip.h"
#include "harness/core/embed.h"
#include "harness/core/json.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

static const char *const shipped[] = {"v3", "v4", "v5e", "v5p", "v6e", "7x"};

Test(backends_tpu_sim_chip, all_that_ship_load) {
    for (size_t i = 0; i < sizeof shipped / sizeof shipped[0]; i++) {
        struct chip c;
        struct err e = {0};
        json_t *j = NULL;
        cr_assert(eq(int, chip_load(shipped[i], NULL, 0, &c, &j, &e), 0), "%s", e.text);
        cr_assert(eq(str, c.name, (char *)shipped[i]));
        /* a clock that a chip can have, or the peak would need more than one product a cell and
         * cycle */
        double cells = (double)(c.mxus * c.mxu_dim * c.mxu_dim);
        cr_assert(lt(dbl, c.bf16_tflops * 1e12 / (2 * cells), 4.5e9));
        /* at most four figures are fitted, and each names its rows */
        int fitted = 0;
        const char *key;
        json_t *v;
        json_object_foreach(json_object_get(j, "parameters"), key, v) fitted +=
            strcmp(json_string_value(json_object_get(v, "uncertainty")), "fitted") == 0;
        cr_assert(le(int, fitted, 4), "%s", shipped[i]);
        json_decref(j);
    }
}

Test(backends_tpu_sim_chip, every_shipped_file_is_in_the_list) {
    size_t n, found = 0;
    const struct embedded *all = embedded_all(&n);
    for (size_t i = 0; i < n; i++)
        found += strncmp(all[i].path, "backends/tpu_sim/chips/", 23) == 0;
    cr_assert(eq(sz, found, sizeof shipped / sizeof shipped[0]));
}

Test(backends_tpu_sim_chip, published_figures) {
    /* Google Cloud TPU documentation, system architecture pages */
    struct chip c;
    struct err e = {0};
    cr_assert(eq(int, chip_load("v6e", NULL, 0, &c, NULL, &e), 0));
    cr_assert(eq(dbl, c.bf16_tflops, 918.0));
    cr_assert(eq(dbl, c.hbm_gib, 32.0));
    cr_assert(eq(dbl, c.hbm_gbps, 1638.0));
    cr_assert(eq(int, chip_load("7x", NULL, 0, &c, NULL, &e), 0));
    cr_assert(eq(i64, c.devices, 2));
    cr_assert(eq(dbl, c.fp8_tflops, 4614.0));
    cr_assert(eq(dbl, chip_peak_flops(&c, NUM_INT8), chip_peak_flops(&c, NUM_BF16)));
}

Test(backends_tpu_sim_chip, overrides_reach_struct_and_document) {
    struct chip c;
    struct err e = {0};
    json_t *j;
    struct chip_override o[] = {{"hbm_gbps", "2000"}, {"devices", "2"}};
    cr_assert(eq(int, chip_load("v6e", o, 2, &c, &j, &e), 0), "%s", e.text);
    cr_assert(eq(dbl, c.hbm_gbps, 2000.0));
    cr_assert(eq(i64, c.devices, 2));
    /* another chip, by name too; what no name holds is told apart */
    cr_assert(eq(str, c.name, "v6e+hbm_gbps=2000+devices=2"));
    struct chip many[2];
    struct chip_override four[] = {
        {"hbm_gbps", "2000"}, {"mxu_eff", "0.5"}, {"hbm_eff", "0.5"}, {"kernel_us", "1"}};
    for (int i = 0; i < 2; i++, four[3].value = "2")
        cr_assert(eq(int, chip_load("v6e", four, 4, &many[i], NULL, &e), 0), "%s", e.text);
    cr_assert(zero(int, strncmp(many[0].name, "v6e+4@", 6)), "%s", many[0].name);
    cr_assert(ne(str, many[0].name, many[1].name));
    json_t *f = json_object_get(json_object_get(j, "parameters"), "hbm_gbps");
    cr_assert(eq(dbl, json_number_value(json_object_get(f, "value")), 2000.0));
    cr_assert(eq(dbl, json_number_value(json_object_get(f, "was")), 1638.0));
    cr_assert(eq(str, (char *)json_string_value(json_object_get(f, "uncertainty")), "override"));
    /* the effective document is itself a chip file */
    struct chip again;
    cr_assert(eq(int, chip_from_json(j, "again", NULL, 0, &again, &e), 0), "%s", e.text);
    cr_assert(eq(int, memcmp(&again, &c, sizeof c), 0));
    json_decref(j);
    struct chip_override bad[] = {{"hbm_gbps", "-1"}};
    cr_assert(lt(int, chip_load("v6e", bad, 1, &c, NULL, &e), 0));
    cr_assert(ne(ptr, strstr(e.text, "hbm_gbps"), NULL), "%s", e.text);
}

Test(backends_tpu_sim_chip, unknown_names_get_help) {
    struct chip c;
    struct err e = {0};
    cr_assert(eq(int, chip_load("v6x", NULL, 0, &c, NULL, &e), ASSAY_EINPUT));
    cr_assert(ne(ptr, strstr(e.text, "v6e"), NULL), "%s", e.text);
    cr_assert(eq(int, chip_load("/no/such/chip.json", NULL, 0, &c, NULL, &e), e.code));
    cr_assert(lt(int, e.code, 0));
}

static void refused(const char *edit_path, const char *value, const char *expect) {
    const struct embedded *f = embedded_find("backends/tpu_sim/chips/v5e.json");
    json_t *j;
    struct err e = {0};
    struct chip c;
    cr_assert(eq(int, json_parse(f->data, f->size, "x.json", &j, &e), 0));
    cr_assert(eq(int, json_set_path(j, edit_path, value, &e), 0), "%s", e.text);
    cr_assert(eq(int, chip_from_json(j, "x.json", NULL, 0, &c, &e), ASSAY_EINPUT), "%s", edit_path);
    cr_assert(ne(ptr, strstr(e.text, expect), NULL), "%s", e.text);
    cr_assert(ne(ptr, strstr(e.text, "x.json"), NULL), "%s", e.text);
    json_decref(j);
}

Test(backends_tpu_sim_chip, malformed_files_name_the_place) {
    refused("parameters.hbm_gbps.value", "\"fast\"", "/parameters");
    refused("parameters.hbm_gbps.value", "0", "/parameters/hbm_gbps");
    refused("parameters.hbm_gbps.source", "3", "/parameters/hbm_gbps/source");
    refused("parameters.hbm_gbps.uncertainty", "guess", "/parameters/hbm_gbps/uncertainty");
    refused("parameters.hbm_gbps.uncertainty", "fitted", "/parameters/hbm_gbps/rows");
    refused("parameters.hbm_gbps.unit", "GB/s", "unknown member 'unit'");
    refused("parameters.hbm_gbps", "12", "/parameters/hbm_gbps");
    refused("parameters.warp_speed.value", "1", "/parameters/warp_speed");
    refused("parameters", "[]", "/parameters");
    refused("name", "7", "/name");
    refused("colour", "\"red\"", "colour");
    json_t *empty = json_pack("{s:s,s:{}}", "name", "x", "parameters");
    struct chip c;
    struct err e = {0};
    cr_assert(eq(int, chip_from_json(empty, "x.json", NULL, 0, &c, &e), ASSAY_EINPUT));
    json_decref(empty);
}

Test(backends_tpu_sim_chip, the_schema_lists_the_same_figures) {
    const struct embedded *f = embedded_find("schemas/chip.json");
    cr_assert(ne(ptr, (void *)(uintptr_t)f, NULL));
    json_t *j;
    struct err e = {0};
    cr_assert(eq(int, json_parse(f->data, f->size, f->path, &j, &e), 0), "%s", e.text);
    json_t *parameters = json_object_get(json_object_get(j, "properties"), "parameters");
    json_t *p = json_object_get(parameters, "properties");
    cr_assert(eq(sz, json_object_size(p), chip_option_count));
    cr_assert(eq(sz, json_array_size(json_object_get(parameters, "required")), chip_option_count));
    for (size_t i = 0; i < chip_option_count; i++) {
        json_t *v = json_object_get(
            json_object_get(json_object_get(p, chip_options[i].name), "properties"), "value");
        cr_assert(ne(ptr, v, NULL), "%s", chip_options[i].name);
        cr_assert(eq(dbl, json_number_value(json_object_get(v, "minimum")), chip_options[i].min));
        cr_assert(eq(dbl, json_number_value(json_object_get(v, "maximum")), chip_options[i].max));
    }
    json_decref(j);
}
