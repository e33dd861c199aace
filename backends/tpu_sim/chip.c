/* Reading chip files. Every figure must say where it comes from; a file that does not is refused.
 * Not here: what the figures mean for time (kernel.c, collective.c). */
#include "backends/tpu_sim/chip.h"

#include "harness/core/buf.h"
#include "harness/core/embed.h"
#include "harness/core/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHIP_ROW(key, type, unit, min, max, help)                                                  \
    {#key, OPT_##type, offsetof(struct chip, key), unit, min, max, NULL, NULL, OPTION_REQUIRED,    \
     help},
const struct option chip_options[] = {CHIP_PARAMETERS(CHIP_ROW){0}};
const size_t chip_option_count = sizeof chip_options / sizeof chip_options[0] - 1;

const char *const num_names[] = {"bf16", "int8", "fp8", "f32", NULL};

double num_bytes(enum num n) {
    static const double bytes[NUM_COUNT] = {2, 1, 1, 4};
    return bytes[n];
}

double chip_peak_flops(const struct chip *c, enum num n) {
    double t = c->bf16_tflops;
    if (n == NUM_INT8 && c->int8_tops > 0)
        t = c->int8_tops;
    else if (n == NUM_FP8 && c->fp8_tflops > 0)
        t = c->fp8_tflops;
    return t * 1e12;
}

/* "fitted" must name the rows it was fitted on. */
static const char *const uncertainties[] = {"published", "derived", "estimate", "fitted",
                                            "override"};

static int check_figure(const char *key, const json_t *v, const char *file, struct err *e) {
    if (!json_is_object(v))
        return err_set(e, ASSAY_EINPUT,
                       "%s: at /parameters/%s: expected an object with value, source and "
                       "uncertainty, found %s",
                       file, key, json_kind(v));
    static const char *const members[] = {"value", "source", "uncertainty", "rows", "note", "was"};
    const char *name;
    json_t *member;
    json_object_foreach((json_t *)(uintptr_t)v, name, member) {
        size_t i = 0;
        while (i < sizeof members / sizeof members[0] && strcmp(name, members[i]) != 0)
            i++;
        if (i == sizeof members / sizeof members[0])
            return err_set(e, ASSAY_EINPUT, "%s: at /parameters/%s: unknown member '%s'", file, key,
                           name);
    }
    static const char *const needed[] = {"source", "uncertainty"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *s = json_object_get(v, needed[i]);
        if (!json_is_string(s) || json_string_length(s) == 0)
            return err_set(e, ASSAY_EINPUT, "%s: at /parameters/%s/%s: expected a string, found %s",
                           file, key, needed[i], json_kind(s));
    }
    const char *u = json_string_value(json_object_get(v, "uncertainty"));
    size_t i = 0, n = sizeof uncertainties / sizeof uncertainties[0];
    while (i < n && strcmp(u, uncertainties[i]) != 0)
        i++;
    if (i == n)
        return err_set(e, ASSAY_EINPUT,
                       "%s: at /parameters/%s/uncertainty: expected published, derived, estimate "
                       "or fitted, found \"%.40s\"",
                       file, key, u);
    if (strcmp(u, "fitted") == 0 && !json_is_string(json_object_get(v, "rows")))
        return err_set(e, ASSAY_EINPUT,
                       "%s: at /parameters/%s/rows: a fitted figure must name the rows it was "
                       "fitted on",
                       file, key);
    return 0;
}

/* {KEY:{"value":V,…}} -> {KEY:V}, checking each figure's company. */
static int flatten(const json_t *parameters, const char *file, json_t **out, struct err *e) {
    json_t *flat = json_object();
    if (!flat)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)parameters, key, v) {
        int rc = check_figure(key, v, file, e);
        if (!rc && json_object_set(flat, key, json_object_get(v, "value")))
            rc =
                err_set(e, ASSAY_EINPUT,
                        "%s: at /parameters/%s/value: expected a number, found nothing", file, key);
        if (rc) {
            json_decref(flat);
            return rc;
        }
    }
    *out = flat;
    return 0;
}

static const struct option *find_option(const char *key) {
    for (const struct option *o = chip_options; o->type != OPT_END; o++)
        if (strcmp(o->name, key) == 0)
            return o;
    return NULL;
}

/* "1.5x" of what the file says, as a plain number; any other text as it is. */
static const char *scaled(const char *text, const json_t *figure, char out[40]) {
    char *end;
    double factor = strtod(text, &end);
    const json_t *was = json_object_get(figure, "value");
    if (end == text || strcmp(end, "x") != 0 || !json_is_number(was))
        return text;
    double v = factor * json_number_value(was);
    if (json_is_integer(was) && v == floor(v))
        snprintf(out, 40, "%.0f", v);
    else
        snprintf(out, 40, "%.17g", v);
    return out;
}

/* Writes the override into c (range-checked) and into the document (so that the digest sees it). */
static int apply_override(json_t *parameters, const struct chip_override *ov, struct chip *c,
                          struct err *e) {
    struct arena a = {0};
    char number[40];
    json_t *figure = json_object_get(parameters, ov->key);
    int rc = options_set(chip_options, c, ov->key, scaled(ov->value, figure, number), "-o chip.", &a, e);
    arena_release(&a);
    if (rc)
        return rc;
    const struct option *o = find_option(ov->key);
    const char *at = (const char *)c + o->offset;
    json_t *value = o->type == OPT_I64 ? json_integer(*(const int64_t *)(const void *)at)
                                       : json_real(*(const double *)(const void *)at);
    json_t *fresh = json_pack("{s:o,s:s,s:s,s:O?}", "value", value, "source", "command line",
                              "uncertainty", "override", "was", json_object_get(figure, "value"));
    if (!fresh || json_object_set_new(parameters, ov->key, fresh))
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    return 0;
}

/* A chip with other figures is another chip, in headings, campaigns and queries: "v6e+hbm_gbps=3276".
 * More than a name holds is told apart by a digest (FNV-1a, 32 bits). */
static int name_overridden(json_t *json, const struct chip_override *ov, size_t n, struct chip *c,
                           struct err *e) {
    enum { READABLE_BYTES = 48 };
    struct buf text;
    buf_init(&text, 8192);
    for (size_t i = 0; i < n; i++) {
        const struct option *o = find_option(ov[i].key);
        const void *at = (const char *)c + o->offset;
        double v = o->type == OPT_I64 ? (double)*(const int64_t *)at : *(const double *)at;
        buf_printf(&text, "+%s=%.9g", ov[i].key, v);
    }
    int rc = buf_check(&text, "the name of a chip", e);
    if (!rc && strlen(c->name) + text.n < READABLE_BYTES) {
        snprintf(c->name + strlen(c->name), sizeof c->name - strlen(c->name), "%s", text.p);
    } else if (!rc) {
        uint32_t digest = 2166136261u;
        char base[33];
        for (size_t i = 0; i < text.n; i++)
            digest = (digest ^ (unsigned char)text.p[i]) * 16777619u;
        snprintf(base, sizeof base, "%.32s", c->name);
        snprintf(c->name, sizeof c->name, "%s+%zu@%08" PRIx32, base, n, digest);
    }
    buf_release(&text);
    if (!rc && json_object_set_new(json, "name", json_string(c->name)))
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
    return rc;
}

int chip_from_json(json_t *json, const char *file, const struct chip_override *overrides,
                   size_t noverrides, struct chip *c, struct err *e) {
    *c = (struct chip){0};
    if (!json_is_object(json))
        return err_set(e, ASSAY_EINPUT, "%s: at /: expected an object, found %s", file,
                       json_kind(json));
    const char *key;
    json_t *v;
    json_object_foreach(json, key, v) {
        static const char *const known[] = {"name", "title", "comment", "parameters"};
        size_t i = 0, n = sizeof known / sizeof known[0];
        while (i < n && strcmp(key, known[i]) != 0)
            i++;
        if (i == n && key[0] != '$')
            return err_set(e, ASSAY_EINPUT, "%s: at /: unknown member '%.60s'", file, key);
    }
    const json_t *name = json_object_get(json, "name");
    if (!json_is_string(name) || json_string_length(name) == 0 ||
        json_string_length(name) >= CHIP_NAME_MAX)
        return err_set(e, ASSAY_EINPUT,
                       "%s: at /name: expected a string of 1 to %d bytes, found %s", file,
                       CHIP_NAME_MAX - 1, json_kind(name));
    json_t *parameters = json_object_get(json, "parameters");
    if (!json_is_object(parameters))
        return err_set(e, ASSAY_EINPUT, "%s: at /parameters: expected an object, found %s", file,
                       json_kind(parameters));
    json_t *flat = NULL;
    int rc = flatten(parameters, file, &flat, e);
    if (rc)
        return rc;
    struct arena a = {0};
    rc = options_from_json(chip_options, c, flat, file, "/parameters", &a, e);
    arena_release(&a);
    json_decref(flat);
    if (rc)
        return rc;
    snprintf(c->name, sizeof c->name, "%s", json_string_value(name));
    for (size_t i = 0; i < noverrides; i++) {
        rc = apply_override(parameters, &overrides[i], c, e);
        if (rc)
            return rc;
    }
    return noverrides ? name_overridden(json, overrides, noverrides, c, e) : 0;
}

static int unknown_chip(const char *name, struct err *e) {
    static const char dir[] = "backends/tpu_sim/chips/";
    const char *names[64];
    char text[64][CHIP_NAME_MAX], list[512] = "";
    size_t total, n = 0, at = 0;
    const struct embedded *all = embedded_all(&total);
    for (size_t i = 0; i < total && n < 64; i++) {
        if (strncmp(all[i].path, dir, sizeof dir - 1) != 0)
            continue;
        const char *base = all[i].path + sizeof dir - 1;
        int len = (int)strcspn(base, ".");
        snprintf(text[n], sizeof text[n], "%.*s", len, base);
        int w = snprintf(list + at, sizeof list - at, "%s%s", n ? ", " : "", text[n]);
        at = w > 0 && (size_t)w < sizeof list - at ? at + (size_t)w : at;
        names[n] = text[n];
        n++;
    }
    const char *near = nearest_name(name, names, n);
    if (near)
        return err_set(e, ASSAY_EINPUT,
                       "unknown chip '%.60s'; did you mean '%s'? (known: %s, or a file's path)",
                       name, near, list);
    return err_set(e, ASSAY_EINPUT, "unknown chip '%.60s' (known: %s, or a file's path)", name,
                   list);
}

int chip_load(const char *name, const struct chip_override *overrides, size_t noverrides,
              struct chip *c, json_t **effective, struct err *e) {
    json_t *json = NULL;
    size_t len = strlen(name);
    int rc;
    char label[300];
    if (strchr(name, '/') || (len > 5 && strcmp(name + len - 5, ".json") == 0)) {
        snprintf(label, sizeof label, "%s", name);
        rc = json_parse_file(name, &json, e);
    } else {
        const struct embedded *f = embedded_find_in("backends/tpu_sim/chips", name, ".json");
        if (!f)
            return unknown_chip(name, e);
        snprintf(label, sizeof label, "%s", f->path);
        rc = json_parse(f->data, f->size, label, &json, e);
    }
    if (rc)
        return rc;
    rc = chip_from_json(json, label, overrides, noverrides, c, e);
    if (!rc && effective)
        *effective = json_incref(json);
    json_decref(json);
    return rc;
}
