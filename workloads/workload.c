/* Loads a workload file: one option table for each JSON object of it, then the checks of
 * workload_check.c and the resolved form of workload_effective.c. Defaults are in the tables. */
#include "workloads/workload.h"

#include "harness/core/embed.h"
#include "harness/core/json.h"
#include "harness/core/options.h"
#include "workloads/dist.h"
#include "workloads/trace.h"
#include "workloads/workload_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char LIBRARY_DIR[] = "workloads/library";

const char *const workload_kind_names[] = {"training", "decode", "serving", "agentic", NULL};
const char *const trace_format_names[] = {"mooncake", "azure", "burstgpt", "sharegpt",
                                          "mlperf-endpoints", "weka", NULL};
static const char *const failure_names[] = {"drop", "keep", NULL};

const char *workload_kind_name(enum workload_kind k) {
    return (unsigned)k < 4 ? workload_kind_names[k] : "?";
}

#define REQUESTS_MAX 1e12 /* of one plan: ids and sums of tokens stay below 2^63 */
#define YEAR_NS 3.15576e16

#define AT(member) offsetof(struct definition, member)
// clang-format off
static const struct option top_fields[] = {
    {"name", OPT_STR, AT(name), .flags = OPTION_REQUIRED},
    {"version", OPT_STR, AT(version), .def = "1"},
    {"description", OPT_STR, AT(description), .help = "what it stands for, units, reasons for its figures"},
    {"kind", OPT_ENUM, AT(kind), .choices = workload_kind_names, .flags = OPTION_REQUIRED},
    {"model", OPT_JSON, AT(model), .help = "a shipped model, the path of a config.json, or its content"},
    {"pattern", OPT_STR, AT(pattern), .help = "when requests are issued"},
    {"requests", OPT_JSON, AT(requests), .help = "measured requests, or a multiple of the concurrency"},
    {"duration", OPT_DURATION, AT(duration_ns), .min = 1, .max = YEAR_NS},
    {"warmup", OPT_JSON, AT(warmup), .help = "requests or time before the measured window"},
    {"seed", OPT_U64, AT(seed), .def = "0"},
    {"rules", OPT_STR, AT(rules), .help = "rule pack"},
    {"isl", OPT_JSON, AT(isl), .help = "input tokens"},
    {"osl", OPT_JSON, AT(osl), .help = "output tokens"},
    {"shared_prefix", OPT_JSON, AT(shared_prefix), .help = "what prompts have in common"},
    {"trace", OPT_JSON, AT(trace), .help = "recorded requests"},
    {"sessions", OPT_JSON, AT(sessions), .help = "turns that share a growing context"},
    {"limits", OPT_JSON, AT(limits), .help = "latency limits of a good request"},
    {"training", OPT_JSON, AT(training), .help = "training steps"},
    {0},
};

struct multiple {
    int64_t per_concurrency, min;
};
static const struct option multiple_fields[] = {
    {"per_concurrency", OPT_I64, offsetof(struct multiple, per_concurrency), .min = 1, .max = 1e6, .flags = OPTION_REQUIRED},
    {"min", OPT_I64, offsetof(struct multiple, min), .min = 1, .max = REQUESTS_MAX, .def = "1"},
    {0},
};
struct warmup {
    const json_t *requests;
    int64_t duration_ns;
};
static const struct option warmup_fields[] = {
    {"requests", OPT_JSON, offsetof(struct warmup, requests), .help = "a number or a multiple of the concurrency"},
    {"duration", OPT_DURATION, offsetof(struct warmup, duration_ns), .min = 1, .max = YEAR_NS},
    {0},
};
struct trace_fields {
    const char *path, *sha256;
    int format, failures;
    bool force;
    int64_t plays, max_delay_ns, max_context;
};
static const struct option trace_table[] = {
    {"path", OPT_STR, offsetof(struct trace_fields, path), .flags = OPTION_REQUIRED},
    {"format", OPT_ENUM, offsetof(struct trace_fields, format), .choices = trace_format_names, .flags = OPTION_REQUIRED},
    {"failures", OPT_ENUM, offsetof(struct trace_fields, failures), .choices = failure_names, .def = "drop"},
    {"force", OPT_BOOL, offsetof(struct trace_fields, force), .def = "false"},
    {"plays", OPT_I64, offsetof(struct trace_fields, plays), .min = 0, .max = 1e9, .def = "1", .help = "sessions: how often the whole trace is played; 0 = without end"},
    {"max_delay", OPT_DURATION, offsetof(struct trace_fields, max_delay_ns), .min = 0, .max = YEAR_NS, .help = "sessions: longer recorded delays are cut to it"},
    {"max_context", OPT_I64, offsetof(struct trace_fields, max_context), .min = 2, .max = 1 << 28, .help = "sessions with a longer request are left out"},
    {"sha256", OPT_STR, offsetof(struct trace_fields, sha256), .help = "of the trace file"},
    {0},
};
struct session_fields {
    int64_t count, max_context;
    const json_t *turns, *first_isl, *think_time;
};
static const struct option session_table[] = {
    {"count", OPT_I64, offsetof(struct session_fields, count), .min = 1, .max = REQUESTS_MAX},
    {"turns", OPT_JSON, offsetof(struct session_fields, turns), .flags = OPTION_REQUIRED},
    {"first_isl", OPT_JSON, offsetof(struct session_fields, first_isl), .help = "tokens before the first turn's own"},
    {"think_time", OPT_JSON, offsetof(struct session_fields, think_time), .help = "from an answer's end to the next turn"},
    {"max_context", OPT_I64, offsetof(struct session_fields, max_context), .min = 2, .max = 1 << 28},
    {0},
};
const struct option workload_limit_fields[] = {
    {"ttft", OPT_DURATION, offsetof(struct workload, limit_ttft_ns), .min = 1, .max = YEAR_NS},
    {"tpot", OPT_DURATION, offsetof(struct workload, limit_tpot_ns), .min = 1, .max = YEAR_NS},
    {"e2e", OPT_DURATION, offsetof(struct workload, limit_e2e_ns), .min = 1, .max = YEAR_NS},
    {0},
};
const struct option workload_prefix_fields[] = {
    {"tokens", OPT_I64, offsetof(struct workload, shared_prefix_tokens), .unit = "tokens", .min = 1, .max = TOKENS_MAX, .flags = OPTION_REQUIRED},
    {"groups", OPT_I64, offsetof(struct workload, shared_prefix_groups), .min = 1, .max = 1e6, .def = "1"},
    {0},
};
const struct option workload_training_fields[] = {
    {"global_batch", OPT_I64, offsetof(struct workload, global_batch), .unit = "sequences", .min = 1, .max = 1e9, .flags = OPTION_REQUIRED},
    {"seq_len", OPT_I64, offsetof(struct workload, seq_len), .unit = "tokens", .min = 1, .max = TOKENS_MAX, .flags = OPTION_REQUIRED},
    {"steps", OPT_I64, offsetof(struct workload, steps), .min = 1, .max = 1e9, .flags = OPTION_REQUIRED},
    {0},
};
// clang-format on

static int out_of_memory(struct err *e) {
    return err_set(e, ASSAY_ENOMEM, "out of memory");
}

/* "requests": N, or {"per_concurrency": K, "min": M} of the load pattern. least: 0 where none is a
 * sensible answer (warm-up), else 1. */
static int read_requests(const json_t *json, const struct pattern *p, int64_t least, const char *label,
                         const char *pointer, struct arena *a, int64_t *out, struct err *e) {
    if (!json)
        return 0;
    if (json_is_object(json)) {
        struct multiple m = {.min = 1};
        int rc = options_from_json(multiple_fields, &m, json, label, pointer, a, e);
        if (rc)
            return rc;
        if (p->kind != PATTERN_CONCURRENCY && p->kind != PATTERN_SINGLE)
            return err_set(e, ASSAY_EINPUT,
                           "%s: at %s/per_concurrency: expected a number of requests, because the "
                           "pattern '%s' has no concurrency to multiply (set %s=N)",
                           label, pointer, pattern_kind_name(p->kind),
                           pointer[1] == 'w' ? "warmup" : "requests");
        int64_t n = m.per_concurrency * (int64_t)(p->kind == PATTERN_SINGLE ? 1 : p->value);
        *out = n > m.min ? n : m.min;
        return 0;
    }
    if (!json_is_integer(json) || json_integer_value(json) < least ||
        (double)json_integer_value(json) > REQUESTS_MAX) {
        char found[64];
        json_excerpt(json, found, sizeof found);
        return err_set(e, ASSAY_EINPUT,
                       "%s: at %s: expected an integer from %d to 1e12 or {\"per_concurrency\": N}, "
                       "found %s",
                       label, pointer, (int)least, found);
    }
    *out = json_integer_value(json);
    return 0;
}

static int read_warmup(struct workload *w, const json_t *json, const char *label, struct err *e) {
    if (!json)
        return 0;
    struct warmup f = {0};
    int rc = options_from_json(warmup_fields, &f, json, label, "/warmup", &w->arena, e);
    if (rc)
        return rc;
    if (f.requests && f.duration_ns)
        return err_set(e, ASSAY_EINPUT,
                       "%s: at /warmup/duration: expected either requests or duration, found both",
                       label);
    w->warmup_ns = f.duration_ns;
    return read_requests(f.requests, &w->pattern, 0, label, "/warmup/requests", &w->arena,
                         &w->warmup_requests, e);
}

static int read_trace(struct workload *w, const json_t *json, const char *label, struct err *e) {
    if (!json)
        return 0;
    struct trace_fields f = {.plays = 1, .max_delay_ns = -1};
    int rc = options_from_json(trace_table, &f, json, label, "/trace", &w->arena, e);
    if (rc)
        return rc;
    if (f.path[0] == '\0')
        return err_set(e, ASSAY_EINPUT, "%s: at /trace/path: expected a path, found \"\"", label);
    if (f.sha256 && (strlen(f.sha256) != 64 || strspn(f.sha256, "0123456789abcdef") != 64))
        return err_set(e, ASSAY_EINPUT,
                       "%s: at /trace/sha256: expected 64 lower-case hex digits, found \"%.80s\"",
                       label, f.sha256);
    w->trace_path = f.path;
    w->trace_format = (enum trace_format)(f.format + 1);
    w->trace_force = f.force;
    w->trace_keep_failures = f.failures == 1;
    w->trace_sha256 = f.sha256;
    w->trace_plays = f.plays;
    w->trace_max_delay_ns = f.max_delay_ns;
    w->trace_max_context = f.max_context;
    if (!f.max_context && w->has_model && workload_has_sessions(w))
        w->trace_max_context = w->model.max_context;
    return 0;
}

bool workload_has_sessions(const struct workload *w) {
    const struct trace_format_info *info = w->trace_path ? trace_format_info(w->trace_format) : NULL;
    return w->has_sessions || (info && info->has_sessions);
}

static int read_sessions(struct workload *w, const json_t *json, const char *label, struct err *e) {
    if (!json)
        return 0;
    struct session_fields f = {0};
    struct arena *a = &w->arena;
    int rc = options_from_json(session_table, &f, json, label, "/sessions", a, e);
    if (rc)
        return rc;
    w->has_sessions = true;
    w->sessions = f.count;
    w->max_context = f.max_context;
    if (w->max_context == 0 && w->has_model)
        w->max_context = w->model.max_context;
    dist_fixed(&w->first_isl, 0);
    dist_fixed(&w->think_ns, 0);
    rc = dist_from_json(f.turns, DIST_UNIT_TURNS, label, "/sessions/turns", a, &w->turns, e);
    if (rc == 0 && f.first_isl)
        rc = dist_from_json(f.first_isl, DIST_UNIT_TOKENS, label, "/sessions/first_isl", a,
                            &w->first_isl, e);
    if (rc == 0 && f.think_time)
        rc = dist_from_json(f.think_time, DIST_UNIT_NS, label, "/sessions/think_time", a,
                            &w->think_ns, e);
    return rc;
}

/* *inlined: the model's JSON, a new reference, NULL when there is no model. */
static int read_model(struct workload *w, const json_t *json, const char *label, json_t **inlined,
                      struct err *e) {
    *inlined = NULL;
    if (!json)
        return 0;
    w->has_model = true;
    if (json_is_string(json)) {
        int rc = model_json(json_string_value(json), inlined, e);
        if (rc == 0)
            rc = model_from_json(*inlined, json_string_value(json), "", &w->model, e);
        if (rc) {
            err_wrap(e, "%s: at /model", label);
            return rc == ASSAY_EUSAGE ? (e ? (e->code = ASSAY_EINPUT) : ASSAY_EINPUT) : rc;
        }
        return 0;
    }
    if (!json_is_object(json)) {
        char found[64];
        json_excerpt(json, found, sizeof found);
        return err_set(e, ASSAY_EINPUT,
                       "%s: at /model: expected a model's name, the path of a config.json, or its "
                       "content, found %s",
                       label, found);
    }
    *inlined = json_deep_copy(json);
    return *inlined ? model_from_json(json, label, "/model", &w->model, e) : out_of_memory(e);
}

static int check_name(const char *label, const char *pointer, const char *text, struct err *e) {
    size_t n = strlen(text);
    bool ok = n >= 1 && n <= 64;
    for (size_t i = 0; i < n && ok; i++)
        ok = (text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z') ||
             (text[i] >= '0' && text[i] <= '9') || (i > 0 && strchr("._-+", text[i]));
    if (ok)
        return 0;
    return err_set(e, ASSAY_EINPUT,
                   "%s: at %s: expected 1 to 64 letters, digits and . _ - +, found \"%.80s\"",
                   label, pointer, text);
}

static int read_overrides_member(struct workload *w, const json_t *json, const char *label,
                                 struct err *e) {
    const json_t *list = json_object_get(json, "$overrides");
    if (!list)
        return 0;
    size_t n = json_array_size(list);
    bool ok = json_is_array(list) && n <= WORKLOAD_OVERRIDES_MAX;
    for (size_t i = 0; i < n && ok; i++) {
        const char *s = json_string_value(json_array_get(list, i));
        ok = s && strlen(s) < WORKLOAD_OVERRIDE_BYTES;
        if (ok)
            snprintf(w->overrides[i], WORKLOAD_OVERRIDE_BYTES, "%s", s);
    }
    if (!ok)
        return err_set(e, ASSAY_EINPUT,
                       "%s: at /$overrides: expected an array of at most 32 texts, found %s", label,
                       json_kind(list));
    w->noverrides = (int)n;
    return 0;
}

/* Everything from the JSON (overrides applied) into w. */
static int read_definition(struct workload *w, const json_t *json, const char *label,
                           struct err *e) {
    struct definition d = {0};
    json_t *model = NULL;
    options_defaults(top_fields, &d, &w->arena);
    int rc = options_from_json(top_fields, &d, json, label, "", &w->arena, e);
    if (rc)
        return rc;
    if ((rc = check_name(label, "/name", d.name, e)) ||
        (rc = check_name(label, "/version", d.version, e)) ||
        (d.rules && d.rules[0] == '\0' && (rc = check_name(label, "/rules", d.rules, e))))
        return rc;
    w->name = d.name;
    w->version = d.version;
    w->description = d.description;
    w->kind = (enum workload_kind)d.kind;
    w->rules = d.rules;
    w->seed = d.seed;
    w->duration_ns = d.duration_ns;
    if (d.pattern && (rc = pattern_parse(d.pattern, &w->pattern, e))) {
        err_wrap(e, "%s: at /pattern", label);
        return rc;
    }
    if ((rc = read_model(w, d.model, label, &model, e)))
        goto out;
    if ((rc = read_requests(d.requests, &w->pattern, 1, label, "/requests", &w->arena, &w->requests,
                            e)) ||
        (rc = read_warmup(w, d.warmup, label, e)) || (rc = read_trace(w, d.trace, label, e)) ||
        (rc = read_sessions(w, d.sessions, label, e)))
        goto out;
    if (d.isl &&
        (rc = dist_from_json(d.isl, DIST_UNIT_TOKENS, label, "/isl", &w->arena, &w->isl, e)))
        goto out;
    if (d.osl &&
        (rc = dist_from_json(d.osl, DIST_UNIT_TOKENS, label, "/osl", &w->arena, &w->osl, e)))
        goto out;
    if (d.shared_prefix) {
        w->shared_prefix_groups = 1;
        rc = options_from_json(workload_prefix_fields, w, d.shared_prefix, label, "/shared_prefix",
                               &w->arena, e);
        if (rc)
            goto out;
    }
    if (d.limits && (rc = options_from_json(workload_limit_fields, w, d.limits, label, "/limits",
                                            &w->arena, e)))
        goto out;
    if (d.training && (rc = options_from_json(workload_training_fields, w, d.training, label,
                                              "/training", &w->arena, e)))
        goto out;
    if ((rc = workload_check(w, &d, label, e)))
        goto out;
    w->effective_json = workload_effective(w, model);
    if (!w->effective_json)
        rc = out_of_memory(e);
out:
    json_decref(model);
    return rc;
}

static int put_overrides(struct workload *w, struct err *e) {
    if (w->noverrides == 0)
        return 0;
    json_t *list = json_array();
    int bad = !list;
    for (int i = 0; i < w->noverrides && !bad; i++)
        bad = json_array_append_new(list, json_string(w->overrides[i]));
    bad = bad || json_object_set(w->effective_json, "$overrides", list);
    json_decref(list);
    return bad ? out_of_memory(e) : 0;
}

int workload_from_json(const json_t *json, const char *label, struct workload **out,
                       struct err *e) {
    *out = NULL;
    struct workload *w = calloc(1, sizeof *w);
    if (!w)
        return out_of_memory(e);
    int rc = ASSAY_ENOMEM;
    w->file_json = json_deep_copy(json);
    if (!w->file_json)
        rc = out_of_memory(e);
    else if ((rc = read_definition(w, json, label, e)) == 0 &&
             (rc = read_overrides_member(w, json, label, e)) == 0)
        rc = put_overrides(w, e);
    if (rc) {
        workload_free(w);
        return rc;
    }
    *out = w;
    return 0;
}

static bool is_path(const char *name) {
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 5 && strcmp(name + n - 5, ".json") == 0);
}

static int no_such_workload(const char *name, struct err *e) {
    const char *names[128];
    char store[128][64];
    size_t count, n = 0;
    const struct embedded *all = embedded_all(&count);
    for (size_t i = 0; i < count && n < 128; i++) {
        size_t dir = sizeof LIBRARY_DIR - 1, len = strlen(all[i].path);
        if (strncmp(all[i].path, LIBRARY_DIR, dir) || all[i].path[dir] != '/' || len < dir + 7)
            continue;
        snprintf(store[n], sizeof store[n], "%.*s", (int)(len - dir - 6), all[i].path + dir + 1);
        names[n] = store[n];
        n++;
    }
    const char *near = nearest_name(name, names, n);
    return err_set(e, ASSAY_EUSAGE,
                   "no workload '%s' ships with assay%s%s%s; a file is given by its path", name,
                   near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

static int load_file(const char *name, json_t **out, struct err *e) {
    if (is_path(name))
        return json_parse_file(name, out, e);
    const struct embedded *f = embedded_find_in(LIBRARY_DIR, name, ".json");
    if (!f)
        return no_such_workload(name, e);
    return json_parse(f->data, f->size, f->path, out, e);
}

/* A relative path in a workload file counts from that file's folder; one that came from an override, or
 * stands in a shipped workload, from the current one. NULL: out of memory. */
static const char *beside(struct workload *w, const char *name, const char *path) {
    const char *slash = strrchr(name, '/');
    if (path[0] == '/' || !slash)
        return path;
    size_t dir = (size_t)(slash - name) + 1, n = strlen(path);
    char *full = arena_alloc(&w->arena, dir + n + 1, 1);
    if (!full)
        return NULL;
    memcpy(full, name, dir);
    memcpy(full + dir, path, n + 1);
    return full;
}

static bool overridden(const struct workload *w, const char *key) {
    size_t n = strlen(key);
    for (int i = 0; i < w->noverrides; i++)
        if (!strncmp(w->overrides[i], key, n) && w->overrides[i][n] == '=')
            return true;
    return false;
}

/* Before the overrides, because one may reach into the model. */
static int resolve_model(struct workload *w, const char *name, json_t *json, struct err *e) {
    const char *model = json_string_value(json_object_get(json, "model"));
    if (!model || !is_path(model))
        return 0;
    const char *full = beside(w, name, model);
    return full && !json_object_set_new(json, "model", json_string(full)) ? 0 : out_of_memory(e);
}

static int resolve_rules(struct workload *w, const char *name, struct err *e) {
    if (w->rules && is_path(w->rules) && !overridden(w, "rules"))
        w->rules = beside(w, name, w->rules);
    else
        return 0;
    return w->rules ? 0 : out_of_memory(e);
}

/* A trace must be readable, too. */
static int resolve_trace(struct workload *w, const char *name, struct err *e) {
    if (!w->trace_path)
        return 0;
    if (!overridden(w, "trace") && !overridden(w, "trace.path"))
        w->trace_path = beside(w, name, w->trace_path);
    if (!w->trace_path)
        return out_of_memory(e);
    struct stat st; /* a device or a pipe may have no end, and a trace is read more than once */
    bool there = stat(w->trace_path, &st) == 0;
    if (there && S_ISREG(st.st_mode) && access(w->trace_path, R_OK) == 0)
        return 0;
    return err_set(e, ASSAY_EINPUT, "%s: at /trace/path: expected a readable file, found '%s'%s",
                   name, w->trace_path,
                   !there                  ? ""
                   : S_ISREG(st.st_mode)   ? ", which may not be read"
                   : S_ISDIR(st.st_mode)   ? ", a folder"
                                           : ", a device or a pipe");
}

int workload_load(const char *name, const char *const *overrides, int noverrides,
                  struct workload **out, struct err *e) {
    *out = NULL;
    struct workload *w = calloc(1, sizeof *w);
    json_t *json = NULL;
    if (!w)
        return out_of_memory(e);
    int rc = load_file(name, &w->file_json, e);
    if (rc)
        goto out;
    json = json_deep_copy(w->file_json);
    if (!json) {
        rc = out_of_memory(e);
        goto out;
    }
    if ((rc = resolve_model(w, name, json, e)) ||
        (rc = workload_apply_overrides(w, json, overrides, noverrides, e)) ||
        (rc = read_definition(w, json, name, e)) || (rc = put_overrides(w, e)) ||
        (rc = resolve_rules(w, name, e)))
        goto out;
    rc = resolve_trace(w, name, e);
out:
    json_decref(json);
    if (rc) {
        workload_free(w);
        return rc;
    }
    *out = w;
    return 0;
}

void workload_free(struct workload *w) {
    if (!w)
        return;
    json_decref(w->file_json);
    json_decref(w->effective_json);
    arena_release(&w->arena);
    free(w);
}
