/* The load pattern's text form: "poisson:2.5" to its parts and back. When requests are then issued
 * is the business of harness/run/pattern.h. */
#include "harness/core/options.h"
#include "workloads/workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 1e7 requests a second is beyond any client; 1e6 in flight beyond any server. */
// clang-format off
static const struct row {
    const char *name;
    enum pattern_kind kind;
    int values, optional;    /* how many numbers follow the colon; of these optional */
    bool integer;
    double max;              /* of the first value; > 0 always */
    const char *form;
} rows[] = {
    {"concurrency", PATTERN_CONCURRENCY, 1, 0, true,  1e6, "concurrency:N with N from 1 to 1000000"},
    {"constant",    PATTERN_CONSTANT,    1, 0, false, 1e7, "constant:RATE with RATE in 1/s, above 0 and at most 1e7"},
    {"gamma",       PATTERN_GAMMA,       2, 0, false, 1e7, "gamma:RATE,SHAPE with RATE in 1/s, above 0 and at most 1e7, SHAPE from 0.001 to 1000"},
    {"offline",     PATTERN_OFFLINE,     0, 0, false, 0,   "offline without a value"},
    {"poisson",     PATTERN_POISSON,     1, 0, false, 1e7, "poisson:RATE with RATE in 1/s, above 0 and at most 1e7"},
    {"single",      PATTERN_SINGLE,      0, 0, false, 0,   "single without a value"},
    {"trace",       PATTERN_TRACE,       1, 1, false, 1e6, "trace or trace:SPEED with SPEED above 0 and at most 1e6"},
};
// clang-format on
enum { ROWS = sizeof rows / sizeof rows[0] };

static const struct row *row_of(enum pattern_kind k) {
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].kind == k)
            return &rows[i];
    return NULL;
}

const char *pattern_kind_name(enum pattern_kind k) {
    const struct row *r = row_of(k);
    return r ? r->name : "?";
}

static bool parse_values(const struct row *r, const char *text, struct pattern *p) {
    char part[2][64];
    int n = 0;
    while (n < 2 && text) {
        size_t len = strcspn(text, ",");
        if (len >= sizeof part[0])
            return false;
        memcpy(part[n], text, len);
        part[n++][len] = '\0';
        text = text[len] ? text + len + 1 : NULL;
    }
    if (text || n != r->values || parse_f64(part[0], &p->value) || !(p->value > 0) ||
        p->value > r->max)
        return false;
    if (r->integer && p->value != (double)(int64_t)p->value)
        return false;
    return n < 2 || (parse_f64(part[1], &p->shape) == 0 && p->shape >= 0.001 && p->shape <= 1000);
}

int pattern_parse(const char *text, struct pattern *p, struct err *e) {
    size_t len = strcspn(text, ":");
    const char *values = text[len] ? text + len + 1 : NULL;
    const struct row *r = NULL;
    for (size_t i = 0; i < ROWS && !r; i++)
        if (strlen(rows[i].name) == len && memcmp(rows[i].name, text, len) == 0)
            r = &rows[i];
    if (!r) {
        const char *names[ROWS];
        char head[64];
        for (size_t i = 0; i < ROWS; i++)
            names[i] = rows[i].name;
        snprintf(head, sizeof head, "%.*s", (int)(len < 60 ? len : 60), text);
        const char *near = nearest_name(head, names, ROWS);
        return err_set(e, ASSAY_EINPUT,
                       "expected a load pattern (offline, single, concurrency:N, poisson:RATE, "
                       "constant:RATE, gamma:RATE,SHAPE, trace[:SPEED]), found '%.60s'%s%s%s",
                       text, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    struct pattern got = {.kind = r->kind, .value = 1, .shape = 1};
    bool ok = values ? r->values > 0 && parse_values(r, values, &got) : r->values == r->optional;
    if (!ok)
        return err_set(e, ASSAY_EINPUT, "expected %s, found '%.60s'", r->form, text);
    *p = got;
    return 0;
}

/* The shortest decimal that reads back to the same double. */
static void print_exact(double v, char *out, size_t out_bytes) {
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, out_bytes, "%.*g", digits, v);
        if (strtod(out, NULL) == v)
            return;
    }
}

void pattern_print(const struct pattern *p, char *out, size_t out_bytes) {
    const struct row *r = row_of(p->kind);
    char value[40], shape[40];
    print_exact(p->value, value, sizeof value);
    print_exact(p->shape, shape, sizeof shape);
    if (r->integer)
        snprintf(value, sizeof value, "%lld", (long long)p->value);
    if (r->values == 0 || (r->optional && p->value == 1))
        snprintf(out, out_bytes, "%s", r->name);
    else if (r->values == 1)
        snprintf(out, out_bytes, "%s:%s", r->name, value);
    else
        snprintf(out, out_bytes, "%s:%s,%s", r->name, value, shape);
}
