/* Rule packs: read, and judge a run. A kind of rule is one row: its options and its judgement. What a
 * benchmark demands is in schemas/rules; this file knows no benchmark. */
#include "harness/measure/rules.h"

#include "harness/core/buf.h"
#include "harness/core/embed.h"
#include "harness/core/json.h"
#include "harness/core/options.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS_MAX = 64 };

/* The options of all kinds; each kind's table names those that it reads. */
struct rule {
    const char *id;
    int kind;
    const char *kind_name, *note;
    const char *metric, *stat;
    int64_t duration_ns, count;
    double number;
    const json_t *seeds_json;
    uint64_t seed[SEEDS_MAX];
    int seeds;
};

struct rule_pack {
    struct arena arena;
    const char *name, *version, *description;
    json_t *json;
    struct rule rule[RULES_PACK_MAX];
    int n;
};

struct facts {
    const struct rule *r;
    const struct metrics *m;
    const struct rules_facts *f;
    struct verdict *v;
};

/* --- human units -------------------------------------------------------------------------------- */

/* digits significant ones, but never an exponent for what a person can read. */
static void print_unit(char *out, size_t n, double x, const char *unit, int digits) {
    static const struct {
        const char *name;
        double scale;
    } time[] = {{" s", 1e9}, {" ms", 1e6}, {" us", 1e3}, {" ns", 1}};
    char suffix[24];
    if (strcmp(unit, "ns") == 0) {
        int i = 0;
        while (i < 3 && fabs(x) < time[i].scale)
            i++;
        x /= time[i].scale;
        snprintf(suffix, sizeof suffix, "%s", time[i].name);
    } else {
        bool percent = strcmp(unit, "%") == 0, bare = strcmp(unit, "1") == 0;
        x *= percent ? 100 : 1;
        snprintf(suffix, sizeof suffix, "%s%s", bare ? "" : " ", bare ? "" : unit);
    }
    bool large = fabs(x) >= pow(10, digits) && fabs(x) < 1e15;
    if (large)
        snprintf(out, n, "%.0f%s", x, suffix);
    else
        snprintf(out, n, "%.*g%s", digits, x, suffix);
}

/* A bound and a value, with as many digits as it takes to tell them apart. prefix: "" or "<= ". */
static bool judge(const struct facts *j, const char *prefix, double bound, double value,
                  const char *unit, bool ok) {
    char want[64], got[64];
    for (int digits = 4; digits <= 17; digits++) {
        print_unit(want, sizeof want, bound, unit, digits);
        print_unit(got, sizeof got, value, unit, digits);
        if (ok || strcmp(want, got) != 0)
            break;
    }
    snprintf(j->v->want, sizeof j->v->want, "%s%s", prefix, want);
    snprintf(j->v->got, sizeof j->v->got, "%s", got);
    return ok;
}

static bool judge_text(const struct facts *j, const char *want, const char *got, bool ok) {
    snprintf(j->v->want, sizeof j->v->want, "%s", want);
    snprintf(j->v->got, sizeof j->v->got, "%s", got);
    return ok;
}

/* --- judgements --------------------------------------------------------------------------------- */

static bool min_duration(const struct facts *j) {
    return judge(j, "", (double)j->r->duration_ns, (double)j->m->duration_ns, "ns",
                 j->m->duration_ns >= j->r->duration_ns);
}

static bool count_at_least(const struct facts *j, int64_t want, int64_t got) {
    snprintf(j->v->want, sizeof j->v->want, "%" PRId64, want);
    snprintf(j->v->got, sizeof j->v->got, "%" PRId64, got);
    return got >= want;
}

static bool min_requests(const struct facts *j) {
    return count_at_least(j, j->r->count, j->m->completed);
}

static bool requests_per_concurrency(const struct facts *j) {
    if (j->f->max_concurrency <= 0) {
        snprintf(j->v->want, sizeof j->v->want, "%" PRId64 " x concurrency", j->r->count);
        snprintf(j->v->got, sizeof j->v->got, "a load pattern without a concurrency");
        return false;
    }
    int64_t want;
    if (__builtin_mul_overflow(j->r->count, j->f->max_concurrency, &want))
        want = INT64_MAX;
    return count_at_least(j, want, j->m->issued);
}

static bool max_failed_fraction(const struct facts *j) {
    int64_t lost = j->m->issued - j->m->completed;
    if (j->m->issued == 0)
        return judge_text(j, "a measured request", "none", false);
    double share = (double)lost / (double)j->m->issued;
    bool ok = (double)lost <= j->r->number * (double)j->m->issued;
    judge(j, "<= ", j->r->number, share, "%", ok);
    size_t n = strlen(j->v->got);
    snprintf(j->v->got + n, sizeof j->v->got - n, " (%" PRId64 " of %" PRId64 ")", lost,
             j->m->issued);
    return ok;
}

static const struct metric *figure(const struct facts *j, const char *prefix, double bound,
                                   const char *unit) {
    const struct metric *x = metrics_find(j->m, j->r->metric, j->r->stat);
    if (x)
        return x;
    char want[64];
    print_unit(want, sizeof want, bound, unit, 4);
    snprintf(j->v->want, sizeof j->v->want, "%s%s", prefix, want);
    const struct metric *any = metrics_find(j->m, j->r->metric, "max");
    if (any)
        snprintf(j->v->got, sizeof j->v->got, "no %s %s: %" PRId64 " observations are too few",
                 j->r->metric, j->r->stat, any->n);
    else
        snprintf(j->v->got, sizeof j->v->got, "no %s", j->r->metric);
    return NULL;
}

static bool latency_limit(const struct facts *j) {
    double limit = (double)j->r->duration_ns;
    const struct metric *x = figure(j, "<= ", limit, "ns");
    return x && judge(j, "<= ", limit, x->value, "ns", x->value <= limit);
}

static const char *unit_of(const char *metric, const char *stat) {
    for (const struct metric_def *d = metric_defs; d->name; d++)
        if (strcmp(d->name, metric) == 0 && strcmp(d->stat, stat) == 0)
            return d->unit;
    return NULL;
}

static bool min_value(const struct facts *j) {
    const char *unit = unit_of(j->r->metric, j->r->stat);
    const struct metric *x = figure(j, "", j->r->number, unit);
    return x && judge(j, "", j->r->number, x->value, unit, x->value >= j->r->number);
}

static bool max_value(const struct facts *j) {
    const char *unit = unit_of(j->r->metric, j->r->stat);
    const struct metric *x = figure(j, "<= ", j->r->number, unit);
    return x && judge(j, "<= ", j->r->number, x->value, unit, x->value <= j->r->number);
}

/* p99 of the send lag against max(share of the median latency, floor). With too few requests for a
 * p99 the largest lag stands in, which is stricter. */
static bool max_lateness(const struct facts *j) {
    if (!j->f->real_clock)
        return judge_text(j, "real clocks only", "virtual clock", true);
    const struct metric *p50 = metrics_find(j->m, "e2e_ns", "p50");
    const struct metric *lag = metrics_find(j->m, "lateness_ns", "p99");
    if (!lag)
        lag = metrics_find(j->m, "lateness_ns", "max");
    double limit = p50 ? j->r->number * p50->value : 0;
    if (limit < (double)j->r->duration_ns)
        limit = (double)j->r->duration_ns;
    if (!lag) {
        char want[64];
        print_unit(want, sizeof want, limit, "ns", 4);
        snprintf(j->v->want, sizeof j->v->want, "<= %s", want);
        snprintf(j->v->got, sizeof j->v->got, "no request was sent");
        return false;
    }
    return judge(j, "<= ", limit, lag->value, "ns", lag->value <= limit);
}

/* "ttft_ns p99 of 34 ms could be 3.2 % lower: lateness p99 1.1 ms, stamps 2 us" */
static void print_client_error(const struct facts *j, const struct client_error *c, char *out, size_t n) {
    const struct metric *x = c->worst, *late = metrics_find(j->m, "lateness_ns", "p99"),
                        *bound = metrics_find(j->m, "stamp_bound_ns", "p99");
    char value[64], share[32], lateness[32] = "", stamps[32] = "", text[160];
    if (!late)
        late = metrics_find(j->m, "lateness_ns", "max");
    print_unit(value, sizeof value, x->value, x->unit, 3);
    char limit[32]; /* as many digits as it takes to tell the two apart */
    for (int digits = 2; digits <= 8; digits++) {
        print_unit(share, sizeof share, c->share, "%", digits);
        print_unit(limit, sizeof limit, j->r->number, "%", digits);
        if (c->share <= j->r->number || strcmp(share, limit) != 0)
            break;
    }
    if (late)
        print_unit(lateness, sizeof lateness, late->value, "ns", 2);
    if (bound)
        print_unit(stamps, sizeof stamps, bound->value, "ns", 2);
    bool rate = !strcmp(x->stat, "value");
    snprintf(text, sizeof text, "%.31s%s%.6s of %.24s could be %.12s %s: lateness %.6s %.10s, stamps %.10s", x->name, rate ? "" : " ",
             rate ? "" : x->stat, value, share,
             x->client_hi - x->value > x->value - x->client_lo ? "higher" : "lower",
             late ? late->stat : "", lateness, stamps);
    snprintf(out, n, "%.*s", (int)n - 1, text);
}

/* Fails closed: a stamp without a bound may be late by anything. */
static bool max_client_error(const struct facts *j) {
    char limit[32], floor[32];
    print_unit(limit, sizeof limit, j->r->number, "%", 4);
    print_unit(floor, sizeof floor, (double)j->r->duration_ns, "ns", 4);
    if (!j->f->real_clock)
        return judge_text(j, "real clocks only", "virtual clock", true);
    if (j->f->no_system)
        return judge_text(j, "systems only", "class none: the client itself", true);
    snprintf(j->v->want, sizeof j->v->want, "<= %s%s%s", limit, j->r->duration_ns ? " or " : "",
             j->r->duration_ns ? floor : "");
    if (j->m->stamps_unbounded) {
        snprintf(j->v->got, sizeof j->v->got, "%" PRId64 " of %" PRId64 " stamps state no bound",
                 j->m->stamps_unbounded, j->m->stamps);
        return false;
    }
    if (!j->m->stamps) {
        snprintf(j->v->got, sizeof j->v->got, "no answers"); /* training, or nothing completed */
        return true;
    }
    struct client_error c = metrics_client_error(j->m, (double)j->r->duration_ns);
    if (!c.worst) {
        snprintf(j->v->got, sizeof j->v->got, "no figure by more than %s", floor);
        return true;
    }
    print_client_error(j, &c, j->v->got, sizeof j->v->got);
    return c.share <= j->r->number;
}

static bool not_interrupted(const struct facts *j) {
    bool bad = j->f->interrupted || j->m->interrupted;
    return judge_text(j, "not interrupted", bad ? "interrupted" : "not interrupted", !bad);
}

static bool no_clock_step(const struct facts *j) {
    return judge_text(j, "no clock step", j->f->clock_stepped ? "the clock stepped" : "no clock step",
                      !j->f->clock_stepped);
}

static bool seed(const struct facts *j) {
    bool ok = j->r->seeds == 0;
    size_t n = 0, room = sizeof j->v->want;
    snprintf(j->v->want, room, "any");
    for (int i = 0; i < j->r->seeds; i++) {
        ok |= j->r->seed[i] == j->f->seed;
        if (n < room - 24)
            n += (size_t)snprintf(j->v->want + n, room - n, "%s%" PRIu64, i ? ", " : "",
                                  j->r->seed[i]);
        else if (n < room - 4)
            n += (size_t)snprintf(j->v->want + n, room - n, ", …");
    }
    snprintf(j->v->got, sizeof j->v->got, "%" PRIu64, j->f->seed);
    return ok;
}

static bool completed_all(const struct facts *j) {
    snprintf(j->v->want, sizeof j->v->want, "%" PRId64 " completed",
             j->m->issued ? j->m->issued : 1);
    snprintf(j->v->got, sizeof j->v->got, "%" PRId64 " completed, %" PRId64 " failed, %" PRId64
                                          " in flight",
             j->m->completed, j->m->failed, j->m->in_flight_at_end);
    return j->m->issued > 0 && j->m->completed == j->m->issued;
}

/* Nothing may be left open: what is still in flight at the end never said how slow it was. */
static bool none_in_flight(const struct facts *j) {
    snprintf(j->v->want, sizeof j->v->want, "0 in flight at the end");
    snprintf(j->v->got, sizeof j->v->got, "%" PRId64 " in flight at the end",
             j->m->in_flight_at_end);
    return j->m->in_flight_at_end == 0;
}

/* --- the table ---------------------------------------------------------------------------------- */

/* clang-format off */
#define FIELD(member) offsetof(struct rule, member)
#define COMMON \
    {.name = "kind", .type = OPT_STR, .offset = FIELD(kind_name), .flags = OPTION_REQUIRED}, \
    {.name = "id", .type = OPT_STR, .offset = FIELD(id), .help = "name in verdicts; default: the kind"}, \
    {.name = "note", .type = OPT_STR, .offset = FIELD(note), .help = "why, with its source"}
#define METRIC_FIELD {.name = "metric", .type = OPT_STR, .offset = FIELD(metric), .flags = OPTION_REQUIRED, .help = "a metric's name"}
#define STAT_FIELD(default) {.name = "stat", .type = OPT_STR, .offset = FIELD(stat), .def = default, .help = "its statistic"}

static const struct option plain_options[] = {COMMON, {0}};
static const struct option min_duration_options[] = {
    COMMON, {.name = "min", .type = OPT_DURATION, .offset = FIELD(duration_ns), .flags = OPTION_REQUIRED}, {0}};
static const struct option min_count_options[] = {
    COMMON, {.name = "min", .type = OPT_I64, .offset = FIELD(count), .min = 1, .max = 1e15, .flags = OPTION_REQUIRED}, {0}};
static const struct option max_share_options[] = {
    COMMON, {.name = "max", .type = OPT_F64, .offset = FIELD(number), .min = 0, .max = 1, .flags = OPTION_REQUIRED}, {0}};
static const struct option latency_options[] = {
    COMMON, METRIC_FIELD, STAT_FIELD("p99"),
    {.name = "max", .type = OPT_DURATION, .offset = FIELD(duration_ns), .flags = OPTION_REQUIRED}, {0}};
static const struct option min_value_options[] = {
    COMMON, METRIC_FIELD, STAT_FIELD("value"), {.name = "min", .type = OPT_F64, .offset = FIELD(number), .flags = OPTION_REQUIRED}, {0}};
static const struct option max_value_options[] = {
    COMMON, METRIC_FIELD, STAT_FIELD("value"), {.name = "max", .type = OPT_F64, .offset = FIELD(number), .flags = OPTION_REQUIRED}, {0}};
static const struct option lateness_options[] = {
    COMMON, {.name = "share", .type = OPT_F64, .offset = FIELD(number), .def = "0.01", .min = 0, .max = 1, .help = "of the median E2E latency"},
    {.name = "floor", .type = OPT_DURATION, .offset = FIELD(duration_ns), .def = "1ms", .help = "allowed in any case"}, {0}};
static const struct option client_options[] = {
    COMMON, {.name = "max", .type = OPT_F64, .offset = FIELD(number), .def = "0.01", .min = 0, .max = 1, .help = "of the figure"},
    {.name = "floor", .type = OPT_DURATION, .offset = FIELD(duration_ns), .def = "50us", .help = "of a latency, allowed in any case: what a sleeping client cannot see of its wake-ups"}, {0}};
static const struct option seed_options[] = {
    COMMON, {.name = "allowed", .type = OPT_JSON, .offset = FIELD(seeds_json), .help = "integers or decimal strings; absent = any"}, {0}};

/* Sorted by name. code: the reason code of the record when the rule is broken. */
static const struct kind {
    const char *name, *code;
    const struct option *options;
    bool (*judge)(const struct facts *);
    const char *help;
} kinds[] = {
    {"completed_all", "completed-all", plain_options, completed_all, "every measured request completed"},
    {"latency_limit", "latency-limit", latency_options, latency_limit, "a statistic of a latency is at most so long"},
    {"max_client_error", "client-error", client_options, max_client_error, "the client was not the bottleneck: without its lateness and the bounds of its stamps no mean, p50 to p99.9 or rate would differ by more than max (min and max of a latency, and errors up to floor, are not judged); real clocks and systems only"},
    {"max_failed_fraction", "failed-requests", max_share_options, max_failed_fraction, "measured requests that did not complete are at most this share"},
    {"max_lateness", "send-lag", lateness_options, max_lateness, "the load generator kept its schedule: p99 of lateness <= max(share of p50 e2e, floor); real clocks only"},
    {"max_value", "max-value", max_value_options, max_value, "a metric is at most this"},
    {"min_duration", "min-duration", min_duration_options, min_duration, "the measured window is at least so long"},
    {"min_requests", "min-requests", min_count_options, min_requests, "so many measured requests completed"},
    {"min_value", "min-value", min_value_options, min_value, "a metric is at least this"},
    {"no_clock_step", "clock-step", plain_options, no_clock_step, "the machine's clock was not stepped during the run"},
    {"none_in_flight", "in-flight", plain_options, none_in_flight, "every issued request ended, well or badly"},
    {"not_interrupted", "interrupted", plain_options, not_interrupted, "no signal ended the run"},
    {"requests_per_concurrency", "min-requests", min_count_options, requests_per_concurrency, "at least so many measured requests for each request in flight"},
    {"seed", "seed", seed_options, seed, "the seed is one of those allowed"},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };
/* clang-format on */

const char *rules_kind(int i, const char **help) {
    if (i < 0 || i >= KINDS)
        return NULL;
    if (help)
        *help = kinds[i].help;
    return kinds[i].name;
}

/* --- reading ------------------------------------------------------------------------------------ */

struct head {
    const char *name, *version, *description;
    const json_t *rules;
};

static const struct option head_options[] = {
    {.name = "name", .type = OPT_STR, .offset = offsetof(struct head, name), .flags = OPTION_REQUIRED},
    {.name = "version",
     .type = OPT_STR,
     .offset = offsetof(struct head, version),
     .flags = OPTION_REQUIRED},
    {.name = "description", .type = OPT_STR, .offset = offsetof(struct head, description)},
    {.name = "rules",
     .type = OPT_JSON,
     .offset = offsetof(struct head, rules),
     .flags = OPTION_REQUIRED},
    {0}};

static int read_seeds(struct rule *r, const char *label, const char *pointer, struct err *e) {
    if (!r->seeds_json)
        return 0;
    size_t n = json_array_size(r->seeds_json);
    if (!json_is_array(r->seeds_json) || n == 0 || n > SEEDS_MAX)
        return err_set(e, ASSAY_EINPUT, "%s: at %s/allowed: expected 1 to %d seeds in an array",
                       label, pointer, SEEDS_MAX);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(r->seeds_json, i);
        bool ok = false;
        if (json_is_integer(v) && json_integer_value(v) >= 0) {
            r->seed[i] = (uint64_t)json_integer_value(v);
            ok = true;
        } else if (json_is_string(v)) {
            ok = parse_u64(json_string_value(v), &r->seed[i]) == 0;
        }
        if (!ok) {
            char found[64];
            json_excerpt(v, found, sizeof found);
            return err_set(e, ASSAY_EINPUT, "%s: at %s/allowed/%zu: expected a seed, found %s",
                           label, pointer, i, found);
        }
    }
    r->seeds = (int)n;
    return 0;
}

/* A metric must be one that is defined, and a latency one that is measured in ns. */
static int check_metric(const struct rule *r, const char *label, const char *pointer,
                        struct err *e) {
    enum { NAMES = 256 };
    const char *names[NAMES];
    size_t n = 0;
    bool name_known = false;
    for (const struct metric_def *d = metric_defs; d->name && n < NAMES; d++) {
        if (strcmp(d->name, r->metric) == 0)
            name_known = true;
        if (n == 0 || strcmp(names[n - 1], d->name) != 0)
            names[n++] = d->name;
    }
    if (!name_known) {
        const char *near = nearest_name(r->metric, names, n);
        return err_set(e, ASSAY_EINPUT, "%s: at %s/metric: expected a metric, found '%.60s'%s%s%s",
                       label, pointer, r->metric, near ? " (did you mean '" : "", near ? near : "",
                       near ? "'?)" : "");
    }
    const char *unit = unit_of(r->metric, r->stat);
    if (!unit)
        return err_set(e, ASSAY_EINPUT, "%s: at %s/stat: '%.60s' has no statistic '%.60s'", label,
                       pointer, r->metric, r->stat);
    if (kinds[r->kind].judge == latency_limit && strcmp(unit, "ns") != 0)
        return err_set(e, ASSAY_EINPUT,
                       "%s: at %s/metric: expected a metric in ns, found '%.60s' in %s", label,
                       pointer, r->metric, unit);
    return 0;
}

static int read_rule(struct rule_pack *p, const json_t *json, const char *label, struct rule *r,
                     struct err *e) {
    char pointer[32];
    const char *names[KINDS];
    snprintf(pointer, sizeof pointer, "/rules/%d", p->n);
    if (!json_is_object(json)) {
        char found[64];
        json_excerpt(json, found, sizeof found);
        return err_set(e, ASSAY_EINPUT, "%s: at %s: expected an object, found %s", label, pointer,
                       found);
    }
    const json_t *kind = json_object_get(json, "kind");
    if (!json_is_string(kind)) {
        char found[64];
        json_excerpt(kind, found, sizeof found);
        return err_set(e, ASSAY_EINPUT, "%s: at %s/kind: expected a kind of rule, found %s", label,
                       pointer, kind ? found : "nothing (the member is required)");
    }
    r->kind = -1;
    for (int i = 0; i < KINDS; i++) {
        names[i] = kinds[i].name;
        if (strcmp(kinds[i].name, json_string_value(kind)) == 0)
            r->kind = i;
    }
    if (r->kind < 0) {
        const char *near = nearest_name(json_string_value(kind), names, KINDS);
        return err_set(e, ASSAY_EINPUT,
                       "%s: at %s/kind: expected a kind of rule, found '%.60s'%s%s%s", label,
                       pointer, json_string_value(kind), near ? " (did you mean '" : "",
                       near ? near : "", near ? "'?)" : "");
    }
    const struct option *table = kinds[r->kind].options;
    options_defaults(table, r, &p->arena);
    int rc = options_from_json(table, r, json, label, pointer, &p->arena, e);
    if (rc)
        return rc;
    if (!r->id)
        r->id = kinds[r->kind].name;
    if (!*r->id || strlen(r->id) >= sizeof((struct verdict){0}.rule))
        return err_set(e, ASSAY_EINPUT, "%s: at %s/id: expected 1 to %zu bytes, found %zu", label,
                       pointer, sizeof((struct verdict){0}.rule) - 1, strlen(r->id));
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->rule[i].id, r->id) == 0)
            return err_set(e, ASSAY_EINPUT,
                           "%s: at %s/id: expected a unique id, found '%s' of /rules/%d again",
                           label, pointer, r->id, i);
    rc = read_seeds(r, label, pointer, e);
    if (rc == 0 && r->metric)
        rc = check_metric(r, label, pointer, e);
    return rc;
}

int rules_from_json(const json_t *json, const char *label, struct rule_pack **out, struct err *e) {
    struct head h = {0};
    struct rule_pack *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p)
        return err_set(e, ASSAY_ENOMEM, "out of memory for rule pack '%s'", label);
    int rc = options_from_json(head_options, &h, json, label, "", &p->arena, e);
    if (rc)
        goto out;
    p->name = h.name;
    p->version = h.version;
    p->description = h.description;
    size_t n = json_array_size(h.rules);
    if (!json_is_array(h.rules) || n == 0 || n > RULES_PACK_MAX) {
        rc = err_set(e, ASSAY_EINPUT, "%s: at /rules: expected an array of 1 to %d rules", label,
                     RULES_PACK_MAX);
        goto out;
    }
    for (size_t i = 0; i < n; i++, p->n++) {
        rc = read_rule(p, json_array_get(h.rules, i), label, &p->rule[i], e);
        if (rc)
            goto out;
    }
    p->json = json_deep_copy(json);
    if (!p->json) {
        rc = err_set(e, ASSAY_ENOMEM, "out of memory for rule pack '%s'", label);
        goto out;
    }
    *out = p;
    p = NULL;
out:
    rules_free(p);
    return rc;
}

static int no_such_pack(const char *name, struct err *e) {
    static const char dir[] = "schemas/rules/";
    enum { PACKS = 64, NAME = 64 };
    char store[PACKS][NAME];
    const char *names[PACKS];
    size_t total, n = 0;
    const struct embedded *all = embedded_all(&total);
    for (size_t i = 0; i < total && n < PACKS; i++) {
        size_t len = strlen(all[i].path);
        if (strncmp(all[i].path, dir, sizeof dir - 1) != 0 || len < sizeof dir + 5)
            continue;
        snprintf(store[n], NAME, "%.*s", (int)(len - (sizeof dir - 1) - 5),
                 all[i].path + sizeof dir - 1);
        names[n] = store[n];
        n++;
    }
    const char *near = nearest_name(name, names, n);
    return err_set(e, ASSAY_EUSAGE,
                   "no rule pack '%.100s' ships with assay%s%s%s; a file is given by its path", name,
                   near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

int rules_load(const char *name, struct rule_pack **out, struct err *e) {
    json_t *json = NULL;
    size_t n = strlen(name);
    int rc;
    const char *label = name;
    *out = NULL;
    if (strchr(name, '/') || (n > 5 && strcmp(name + n - 5, ".json") == 0)) {
        rc = json_parse_file(name, &json, e);
    } else {
        const struct embedded *f = embedded_find_in("schemas/rules", name, ".json");
        if (!f)
            return no_such_pack(name, e);
        label = f->path;
        rc = json_parse(f->data, f->size, f->path, &json, e);
    }
    if (rc == 0)
        rc = rules_from_json(json, label, out, e);
    json_decref(json);
    return rc;
}

void rules_free(struct rule_pack *p) {
    if (!p)
        return;
    json_decref(p->json);
    arena_release(&p->arena);
    free(p);
}

const char *rules_name(const struct rule_pack *p) {
    return p->name;
}

const char *rules_version(const struct rule_pack *p) {
    return p->version;
}

const json_t *rules_json(const struct rule_pack *p) {
    return p->json;
}

/* What no pack can leave out: half a run is none, and a run in which nothing succeeded is not valid.
 * Only a broken one of these adds a verdict, and only where the pack had found no fault. */
static int judge_always(const struct metrics *m, const struct rules_facts *f, struct verdict *out) {
    if (f->interrupted) {
        *out = (struct verdict){.rule = "whole_run",
                                .want = "not interrupted",
                                .got = "interrupted",
                                .reason_code = "interrupted"};
        return 1;
    }
    if (m->issued && !m->completed) {
        *out = (struct verdict){.rule = "some_completed",
                                .want = "at least 1 request completed",
                                .got = "0",
                                .reason_code = "nothing-completed"};
        return 1;
    }
    return 0;
}

int rules_evaluate(const struct rule_pack *p, const struct metrics *m, const struct rules_facts *f,
                   struct verdict *out) {
    bool ok = true;
    for (int i = 0; i < p->n; i++) {
        const struct kind *k = &kinds[p->rule[i].kind];
        struct verdict *v = &out[i];
        *v = (struct verdict){0};
        snprintf(v->rule, sizeof v->rule, "%s", p->rule[i].id);
        struct facts j = {.r = &p->rule[i], .m = m, .f = f, .v = v};
        v->ok = k->judge(&j);
        if (!v->ok)
            snprintf(v->reason_code, sizeof v->reason_code, "%s", k->code);
        ok = ok && v->ok;
    }
    return p->n + (ok ? judge_always(m, f, &out[p->n]) : 0);
}
