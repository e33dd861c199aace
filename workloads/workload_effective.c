/* The effective definition: every default and override resolved, the model inlined, in the same
 * format as a workload file, so that it loads back to itself. Its canonical form is what the
 * record's workload digest covers; a trace's digest ("/trace/sha256") is put in by whoever hashed
 * the file. */
#include "harness/core/options.h"
#include "workloads/dist.h"
#include "workloads/workload_internal.h"

#include <stdlib.h>
#include <string.h>

struct scalars {
    const char *name, *version, *description, *pattern, *rules;
    int kind;
    int64_t requests, duration_ns;
    uint64_t seed;
};
#define AT(member) offsetof(struct scalars, member)
// clang-format off
static const struct option scalar_fields[] = {
    {"name", OPT_STR, AT(name), .help = NULL},
    {"version", OPT_STR, AT(version), .help = NULL},
    {"description", OPT_STR, AT(description), .help = NULL},
    {"kind", OPT_ENUM, AT(kind), .choices = workload_kind_names},
    {"pattern", OPT_STR, AT(pattern), .help = NULL},
    {"requests", OPT_I64, AT(requests), .help = NULL},
    {"duration", OPT_DURATION, AT(duration_ns), .help = NULL},
    {"seed", OPT_U64, AT(seed), .help = NULL},
    {"rules", OPT_STR, AT(rules), .help = NULL},
    {0},
};
struct pair {
    int64_t requests, duration_ns;
};
static const struct option warmup_fields[] = {
    {"requests", OPT_I64, offsetof(struct pair, requests), .help = NULL},
    {"duration", OPT_DURATION, offsetof(struct pair, duration_ns), .help = NULL},
    {0},
};
// clang-format on

/* Takes v; true when it could not be set. */
static bool put(json_t *to, const char *name, json_t *v) {
    return json_object_set_new(to, name, v) != 0;
}

/* Zero stands for absent in all these tables. */
static json_t *without_zeros(json_t *o) {
    static const char *const names[] = {"requests", "duration", "ttft", "tpot", "e2e"};
    for (size_t i = 0; o && i < sizeof names / sizeof names[0]; i++) {
        const json_t *v = json_object_get(o, names[i]);
        const char *s = json_string_value(v);
        if ((json_is_integer(v) && json_integer_value(v) == 0) || (s && strcmp(s, "0s") == 0))
            json_object_del(o, names[i]);
    }
    return o;
}

/* max_ns < 0: no limit. */
static bool put_delay(json_t *to, int64_t max_ns) {
    static const struct option field[] = {{"max_delay", OPT_DURATION, 0, .help = NULL}, {0}};
    if (max_ns < 0)
        return false;
    json_t *o = options_to_json(field, &max_ns);
    bool bad = !o || json_object_update(to, o);
    json_decref(o);
    return bad;
}

static bool put_trace(json_t *to, const struct workload *w) {
    json_t *t = json_object();
    bool bad = !t || put(t, "path", json_string(w->trace_path)) ||
               put(t, "format", json_string(trace_format_names[w->trace_format - 1])) ||
               put(t, "failures", json_string(w->trace_keep_failures ? "keep" : "drop")) ||
               put(t, "force", json_boolean(w->trace_force)) ||
               (w->trace_plays != 1 && put(t, "plays", json_integer(w->trace_plays))) ||
               (w->trace_max_context &&
                put(t, "max_context", json_integer(w->trace_max_context))) ||
               put_delay(t, w->trace_max_delay_ns) ||
               (w->trace_sha256 && put(t, "sha256", json_string(w->trace_sha256)));
    return put(to, "trace", t) || bad;
}

static bool put_sessions(json_t *to, const struct workload *w) {
    json_t *s = json_object();
    bool bad = !s || (w->sessions && put(s, "count", json_integer(w->sessions))) ||
               put(s, "turns", dist_to_json(&w->turns, DIST_UNIT_TURNS)) ||
               (dist_max(&w->first_isl) &&
                put(s, "first_isl", dist_to_json(&w->first_isl, DIST_UNIT_TOKENS))) ||
               put(s, "think_time", dist_to_json(&w->think_ns, DIST_UNIT_NS)) ||
               (w->max_context && put(s, "max_context", json_integer(w->max_context)));
    return put(to, "sessions", s) || bad;
}

json_t *workload_effective(const struct workload *w, const json_t *model_json) {
    char pattern[128];
    struct scalars s = {w->name,      w->version,  w->description, NULL,   w->rules,
                        (int)w->kind, w->requests, w->duration_ns, w->seed};
    bool training = w->kind == WORKLOAD_TRAINING, bad = false;
    if (!training) {
        pattern_print(&w->pattern, pattern, sizeof pattern);
        s.pattern = pattern;
    }
    json_t *out = without_zeros(options_to_json(scalar_fields, &s));
    if (!out)
        return NULL;
    if (model_json)
        bad |= put(out, "model", json_deep_copy(model_json));
    if (w->warmup_requests || w->warmup_ns) {
        struct pair warmup = {w->warmup_requests, w->warmup_ns};
        bad |= put(out, "warmup", without_zeros(options_to_json(warmup_fields, &warmup)));
    }
    if (w->limit_ttft_ns || w->limit_tpot_ns || w->limit_e2e_ns)
        bad |= put(out, "limits", without_zeros(options_to_json(workload_limit_fields, w)));
    if (w->shared_prefix_tokens)
        bad |= put(out, "shared_prefix", options_to_json(workload_prefix_fields, w));
    if (training)
        bad |= put(out, "training", options_to_json(workload_training_fields, w));
    if (w->trace_path)
        bad |= put_trace(out, w);
    if (!training && !w->trace_path)
        bad |= put(out, "isl", dist_to_json(&w->isl, DIST_UNIT_TOKENS)) ||
               put(out, "osl", dist_to_json(&w->osl, DIST_UNIT_TOKENS));
    if (w->has_sessions)
        bad |= put_sessions(out, w);
    if (!bad)
        return out;
    json_decref(out);
    return NULL;
}
