/* Distributions: one table of JSON members a kind and unit, and one function that draws. Draws use
 * the generators of harness/core/rng.h only, so that a plan repeats to the bit anywhere. */
#include "workloads/dist.h"

#include "harness/core/json.h"
#include "harness/core/options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* 30 days: no think or tool time is longer, and sums of them stay far below 2^63 ns */
#define DELAY_MAX_NS (30.0 * 86400 * 1e9)

struct fields {
    const char *kind;
    int64_t value, min, max; /* tokens, turns or ns */
    double ratio, sigma;
    double mean, stddev, median; /* tokens or turns */
    int64_t mean_ns, stddev_ns, median_ns;
    const json_t *values, *weights;
};
#define AT(member) offsetof(struct fields, member)
#define KIND                                                                                       \
    { "kind", OPT_STR, AT(kind), .flags = OPTION_REQUIRED }
#define COUNT(name, member, lo, flag)                                                              \
    { name, OPT_I64, AT(member), .min = lo, .max = TOKENS_MAX, .flags = flag }
#define TIME(name, member, flag)                                                                   \
    { name, OPT_DURATION, AT(member), .min = 0, .max = DELAY_MAX_NS, .flags = flag }
#define REAL(name, member, lo, hi, flag)                                                           \
    { name, OPT_F64, AT(member), .min = lo, .max = hi, .flags = flag }

// clang-format off
static const struct option fixed_count[] = {KIND, COUNT("value", value, 1, OPTION_REQUIRED), {0}};
static const struct option fixed_time[] = {KIND, TIME("value", value, OPTION_REQUIRED), {0}};
static const struct option uniform_count[] = {KIND, COUNT("min", min, 1, OPTION_REQUIRED),
    COUNT("max", max, 1, OPTION_REQUIRED), {0}};
static const struct option uniform_time[] = {KIND, TIME("min", min, OPTION_REQUIRED),
    TIME("max", max, OPTION_REQUIRED), {0}};
static const struct option ratio_count[] = {KIND, COUNT("value", value, 1, OPTION_REQUIRED),
    REAL("ratio", ratio, 0, 1, OPTION_REQUIRED), {0}};
static const struct option normal_count[] = {KIND, REAL("mean", mean, 0, TOKENS_MAX, OPTION_REQUIRED),
    REAL("stddev", stddev, 0, TOKENS_MAX, OPTION_REQUIRED), COUNT("min", min, 1, 0), COUNT("max", max, 1, 0), {0}};
static const struct option normal_time[] = {KIND, TIME("mean", mean_ns, OPTION_REQUIRED),
    TIME("stddev", stddev_ns, OPTION_REQUIRED), TIME("min", min, 0), TIME("max", max, 0), {0}};
static const struct option lognormal_count[] = {KIND, REAL("median", median, 1, TOKENS_MAX, OPTION_REQUIRED),
    REAL("sigma", sigma, 0, 10, OPTION_REQUIRED), COUNT("min", min, 1, 0), COUNT("max", max, 1, 0), {0}};
static const struct option lognormal_time[] = {KIND, {"median", OPT_DURATION, AT(median_ns), .min = 1,
    .max = DELAY_MAX_NS, .flags = OPTION_REQUIRED},
    REAL("sigma", sigma, 0, 10, OPTION_REQUIRED), TIME("min", min, 0), TIME("max", max, 0), {0}};
static const struct option exponential_count[] = {KIND, REAL("mean", mean, 0, TOKENS_MAX, OPTION_REQUIRED),
    COUNT("min", min, 1, 0), COUNT("max", max, 1, 0), {0}};
static const struct option exponential_time[] = {KIND, TIME("mean", mean_ns, OPTION_REQUIRED),
    TIME("min", min, 0), TIME("max", max, 0), {0}};
static const struct option empirical_count[] = {KIND, {"values", OPT_JSON, AT(values), .flags = OPTION_REQUIRED},
    {"weights", OPT_JSON, AT(weights), .help = "relative; default equal"}, {0}};

static const struct kind {
    const char *name;
    enum dist_kind kind;
    const struct option *count, *time; /* NULL: not for this unit */
} kinds[] = {
    {"fixed",       DIST_FIXED,       fixed_count,       fixed_time},
    {"uniform",     DIST_UNIFORM,     uniform_count,     uniform_time},
    {"range_ratio", DIST_RANGE_RATIO, ratio_count,       NULL},
    {"normal",      DIST_NORMAL,      normal_count,      normal_time},
    {"lognormal",   DIST_LOGNORMAL,   lognormal_count,   lognormal_time},
    {"empirical",   DIST_EMPIRICAL,   empirical_count,   NULL},
    {"exponential", DIST_EXPONENTIAL, exponential_count, exponential_time},
};
// clang-format on
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static double upper_bound(enum dist_unit unit) {
    return unit == DIST_UNIT_TOKENS  ? TOKENS_MAX
           : unit == DIST_UNIT_TURNS ? TURNS_MAX
                                     : DELAY_MAX_NS;
}

void dist_fixed(struct dist *d, int64_t value) {
    memset(d, 0, sizeof *d);
    d->kind = DIST_FIXED;
    d->value = d->min = d->max = (double)value;
}

static int wrong(const json_t *json, const char *file, const char *pointer, const char *expected,
                 struct err *e) {
    char found[64];
    json_excerpt(json, found, sizeof found);
    return err_set(e, ASSAY_EINPUT, "%s: at %s: expected %s, found %s", file, pointer, expected,
                   found);
}

static int read_bare(const json_t *json, enum dist_unit unit, const char *file, const char *pointer,
                     struct dist *d, struct err *e) {
    int64_t v = 0;
    if (unit == DIST_UNIT_NS) {
        const char *s = json_string_value(json);
        if (!s || parse_duration_ns(s, &v) || v < 0 || (double)v > DELAY_MAX_NS)
            return wrong(json, file, pointer, "a duration from 0s to 720h or a distribution object",
                         e);
    } else {
        v = json_integer_value(json);
        char expected[96];
        snprintf(expected, sizeof expected, "an integer from 1 to %.0f or a distribution object",
                 upper_bound(unit));
        if (!json_is_integer(json) || v < 1 || (double)v > upper_bound(unit))
            return wrong(json, file, pointer, expected, e);
    }
    dist_fixed(d, v);
    return 0;
}

static int unknown_kind(const json_t *kind, bool time, const char *file, const char *pointer,
                        struct err *e) {
    char known[160] = "";
    size_t n = 0;
    for (size_t i = 0; i < KINDS; i++)
        if (time ? kinds[i].time : kinds[i].count)
            n +=
                (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", kinds[i].name);
    char found[64];
    json_excerpt(kind, found, sizeof found);
    return err_set(e, ASSAY_EINPUT, "%s: at %s/kind: expected one of %s, found %s", file, pointer,
                   known, found);
}

static int read_empirical(const struct fields *f, const char *file, const char *pointer,
                          struct arena *a, struct dist *d, struct err *e) {
    char where[256];
    size_t n = json_array_size(f->values);
    snprintf(where, sizeof where, "%s/values", pointer);
    if (!json_is_array(f->values) || n < 1 || n > EMPIRICAL_MAX)
        return wrong(f->values, file, where, "an array of 1 to 65536 integers", e);
    snprintf(where, sizeof where, "%s/weights", pointer);
    if (f->weights && (!json_is_array(f->weights) || json_array_size(f->weights) != n))
        return wrong(f->weights, file, where, "an array as long as values", e);
    double *values = arena_alloc(a, n, sizeof *values), *sums = arena_alloc(a, n, sizeof *sums);
    double *given = arena_alloc(a, n, sizeof *given);
    if (!values || !sums || !given)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(f->values, i);
        const json_t *w = f->weights ? json_array_get(f->weights, i) : NULL;
        snprintf(where, sizeof where, "%s/values/%zu", pointer, i);
        if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > TOKENS_MAX)
            return wrong(v, file, where, "an integer from 1 to 16777216", e);
        values[i] = (double)json_integer_value(v);
        snprintf(where, sizeof where, "%s/weights/%zu", pointer, i);
        if (w &&
            (!json_is_number(w) || !(json_number_value(w) >= 0) || json_number_value(w) > 1e15))
            return wrong(w, file, where, "a number from 0 to 1e15", e);
        given[i] = w ? json_number_value(w) : 1;
        sum += given[i];
        sums[i] = sum;
        if (i == 0 || values[i] < d->min)
            d->min = values[i];
        if (i == 0 || values[i] > d->max)
            d->max = values[i];
    }
    snprintf(where, sizeof where, "%s/weights", pointer);
    if (!(sum > 0))
        return wrong(f->weights, file, where, "at least one weight above 0", e);
    for (size_t i = 0; i < n; i++)
        sums[i] /= sum;
    sums[n - 1] = 1;
    d->values = values;
    d->given = given;
    d->weights = sums;
    d->n = (int64_t)n;
    return 0;
}

static int range_fault(const char *file, const char *pointer, const char *member,
                       const char *expected, double found, enum dist_unit unit, struct err *e) {
    return err_set(e, ASSAY_EINPUT, "%s: at %s/%s: expected %s, found %.17g%s", file, pointer,
                   member, expected, found, unit == DIST_UNIT_NS ? " ns" : "");
}

static int check(const struct dist *d, enum dist_unit unit, const char *file, const char *pointer,
                 struct err *e) {
    char expected[64];
    snprintf(expected, sizeof expected, "at most %.0f", upper_bound(unit));
    if (d->max > upper_bound(unit))
        return range_fault(file, pointer,
                           d->kind == DIST_FIXED || d->kind == DIST_RANGE_RATIO ? "value"
                           : d->kind == DIST_EMPIRICAL                          ? "values"
                                                                                : "max",
                           expected, d->max, unit, e);
    if (d->kind == DIST_LOGNORMAL && !(d->median > 0))
        return range_fault(file, pointer, "median", "above 0", d->median, unit, e);
    if (d->min > d->max)
        return range_fault(file, pointer, "max", "at least min", d->max, unit, e);
    if (d->kind == DIST_RANGE_RATIO && (int64_t)(d->value * d->ratio) < 1)
        return range_fault(file, pointer, "ratio", "value * ratio of at least 1", d->ratio, unit,
                           e);
    return 0;
}

int dist_from_json(const json_t *json, enum dist_unit unit, const char *file, const char *pointer,
                   struct arena *a, struct dist *d, struct err *e) {
    memset(d, 0, sizeof *d);
    if (!json_is_object(json))
        return read_bare(json, unit, file, pointer, d, e);
    bool time = unit == DIST_UNIT_NS;
    const json_t *name = json_object_get(json, "kind");
    const struct kind *k = NULL;
    const struct option *table = NULL;
    for (size_t i = 0; i < KINDS && !table; i++)
        if (json_is_string(name) && strcmp(kinds[i].name, json_string_value(name)) == 0) {
            k = &kinds[i];
            table = time ? k->time : k->count;
        }
    if (!table)
        return unknown_kind(name, time, file, pointer, e);
    struct fields f = {.min = time ? 0 : 1, .max = (int64_t)upper_bound(unit)};
    int rc = options_from_json(table, &f, json, file, pointer, a, e);
    if (rc)
        return rc;
    d->kind = k->kind;
    d->value = (double)f.value;
    d->ratio = f.ratio;
    d->sigma = f.sigma;
    d->mean = time ? (double)f.mean_ns : f.mean;
    d->stddev = time ? (double)f.stddev_ns : f.stddev;
    d->median = time ? (double)f.median_ns : f.median;
    d->min = (double)f.min;
    d->max = (double)f.max;
    if (d->kind == DIST_FIXED)
        d->min = d->max = d->value;
    if (d->kind == DIST_RANGE_RATIO) {
        d->min = floor(d->value * d->ratio); /* int(value * ratio) of the original, value > 0 */
        d->max = d->value;
    }
    if (d->kind == DIST_LOGNORMAL && d->median > 0)
        d->mu = det_log(d->median);
    if (d->kind == DIST_EMPIRICAL)
        rc = read_empirical(&f, file, pointer, a, d, e);
    return rc ? rc : check(d, unit, file, pointer, e);
}

static int put_arrays(json_t *out, const struct dist *d) {
    json_t *values = json_array(), *weights = json_array();
    int rc = !values || !weights;
    for (int64_t i = 0; i < d->n && rc == 0; i++)
        rc = json_array_append_new(values, json_integer((json_int_t)d->values[i])) ||
             json_array_append_new(weights, json_real(d->given[i]));
    rc = rc || json_object_set(out, "values", values) || json_object_set(out, "weights", weights);
    json_decref(values);
    json_decref(weights);
    return rc;
}

json_t *dist_to_json(const struct dist *d, enum dist_unit unit) {
    bool time = unit == DIST_UNIT_NS;
    const struct kind *k = &kinds[0];
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i].kind == d->kind)
            k = &kinds[i];
    struct fields f = {.kind = k->name,
                       .value = (int64_t)d->value,
                       .min = (int64_t)d->min,
                       .max = (int64_t)d->max,
                       .ratio = d->ratio,
                       .sigma = d->sigma,
                       .mean = d->mean,
                       .stddev = d->stddev,
                       .median = d->median,
                       .mean_ns = (int64_t)d->mean,
                       .stddev_ns = (int64_t)d->stddev,
                       .median_ns = (int64_t)d->median};
    json_t *out = options_to_json(time ? k->time : k->count, &f);
    if (out && d->kind == DIST_EMPIRICAL && put_arrays(out, d)) {
        json_decref(out);
        return NULL;
    }
    return out;
}

static int64_t clip(const struct dist *d, double v) {
    v = v < d->min ? d->min : v > d->max ? d->max : v;
    return (int64_t)(v + 0.5); /* v >= 0: half away from zero */
}

int64_t dist_draw(const struct dist *d, struct rng *r) {
    switch (d->kind) {
    case DIST_FIXED:
    case DIST_RANGE_RATIO:
        return (int64_t)d->value;
    case DIST_UNIFORM:
        return (int64_t)d->min + (int64_t)rng_below(r, (uint64_t)(d->max - d->min) + 1);
    case DIST_NORMAL:
        return clip(d, d->mean + d->stddev * rng_normal(r));
    case DIST_LOGNORMAL:
        return clip(d, rng_lognormal(r, d->mu, d->sigma));
    case DIST_EXPONENTIAL:
        return clip(d, d->mean * rng_exponential(r));
    case DIST_EMPIRICAL: {
        double u = rng_uniform(r);
        int64_t lo = 0, hi = d->n - 1;
        while (lo < hi) {
            int64_t mid = lo + (hi - lo) / 2;
            if (u < d->weights[mid])
                hi = mid;
            else
                lo = mid + 1;
        }
        return (int64_t)d->values[lo];
    }
    }
    return (int64_t)d->value;
}

int64_t dist_max(const struct dist *d) {
    return (int64_t)d->max;
}
