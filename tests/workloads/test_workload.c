/* The workload loader: every field of schemas/workload.json with every fault, contradictions,
 * overrides, and the effective definition. */
#include "harness/core/buf.h"
#include "harness/core/embed.h"
#include "harness/core/json.h"
#include "workloads/workload.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *parse(const char *text) {
    json_t *json;
    struct err e = {0};
    cr_assert(eq(int, json_parse(text, strlen(text), "test", &json, &e), 0), "%s", e.text);
    return json;
}

static int read_json(const json_t *json, struct err *e) {
    struct workload *w = NULL;
    memset(e, 0, sizeof *e);
    int rc = workload_from_json(json, "t.json", &w, e);
    cr_assert(eq(int, rc == 0, w != NULL));
    workload_free(w);
    return rc;
}

#define HEAD "\"name\":\"t\",\"kind\":\"serving\",\"pattern\":\"concurrency:4\",\"requests\":10,"
#define PLAIN "{" HEAD "\"isl\":100,\"osl\":10}"
#define ISL(d) "{" HEAD "\"osl\":10,\"isl\":" d "}"
#define THINK(d) "{" HEAD "\"isl\":100,\"osl\":10,\"sessions\":{\"turns\":2,\"think_time\":" d "}}"

/* Each object of the schema, a valid workload that has one, and where. */
static const struct place {
    const char *schema, *base, *path; /* path: dotted, "" = the top */
} places[] = {
    {"", PLAIN, ""},
    {"/properties/warmup", "{" HEAD "\"isl\":100,\"osl\":10,\"warmup\":{\"requests\":2}}",
     "warmup"},
    {"/properties/trace", "{" HEAD "\"trace\":{\"path\":\"x\",\"format\":\"azure\"}}", "trace"},
    {"/properties/sessions", "{" HEAD "\"isl\":1,\"osl\":1,\"sessions\":{\"turns\":2}}",
     "sessions"},
    {"/properties/shared_prefix", "{" HEAD "\"isl\":9,\"osl\":1,\"shared_prefix\":{\"tokens\":4}}",
     "shared_prefix"},
    {"/properties/limits", "{" HEAD "\"isl\":1,\"osl\":1,\"limits\":{\"ttft\":\"1s\"}}", "limits"},
    {"/properties/training",
     "{\"name\":\"t\",\"kind\":\"training\",\"model\":\"llama3.1-8b\",\"training\":{\"global_"
     "batch\":8,"
     "\"seq_len\":64,\"steps\":2}}",
     "training"},
    {"/$defs/multiple",
     "{\"name\":\"t\",\"kind\":\"serving\",\"pattern\":\"concurrency:4\",\"isl\":1,\"osl\":1,"
     "\"requests\":{\"per_concurrency\":10}}",
     "requests"},
    {"/$defs/tokens_fixed", ISL("{\"kind\":\"fixed\",\"value\":5}"), "isl"},
    {"/$defs/tokens_uniform", ISL("{\"kind\":\"uniform\",\"min\":5,\"max\":9}"), "isl"},
    {"/$defs/tokens_range_ratio", ISL("{\"kind\":\"range_ratio\",\"value\":50,\"ratio\":0.8}"),
     "isl"},
    {"/$defs/tokens_normal", ISL("{\"kind\":\"normal\",\"mean\":50,\"stddev\":8}"), "isl"},
    {"/$defs/tokens_lognormal", ISL("{\"kind\":\"lognormal\",\"median\":50,\"sigma\":1}"), "isl"},
    {"/$defs/tokens_exponential", ISL("{\"kind\":\"exponential\",\"mean\":50}"), "isl"},
    {"/$defs/tokens_empirical", ISL("{\"kind\":\"empirical\",\"values\":[1,2],\"weights\":[1,3]}"),
     "isl"},
    {"/$defs/time_fixed", THINK("{\"kind\":\"fixed\",\"value\":\"1s\"}"), "sessions.think_time"},
    {"/$defs/time_uniform", THINK("{\"kind\":\"uniform\",\"min\":\"1s\",\"max\":\"2s\"}"),
     "sessions.think_time"},
    {"/$defs/time_normal", THINK("{\"kind\":\"normal\",\"mean\":\"1s\",\"stddev\":\"1s\"}"),
     "sessions.think_time"},
    {"/$defs/time_lognormal", THINK("{\"kind\":\"lognormal\",\"median\":\"1s\",\"sigma\":1}"),
     "sessions.think_time"},
    {"/$defs/time_exponential", THINK("{\"kind\":\"exponential\",\"mean\":\"1s\"}"),
     "sessions.think_time"},
};
enum { PLACES = sizeof places / sizeof places[0] };

static json_t *at_path(json_t *root, const char *path) {
    char part[64];
    while (*path) {
        size_t n = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        root = json_object_get(root, part);
        path += n + (path[n] == '.');
    }
    return root;
}

static json_t *schema_at(json_t *schema, const char *pointer) {
    char part[64];
    while (*pointer) {
        size_t n = strcspn(++pointer, "/");
        snprintf(part, sizeof part, "%.*s", (int)n, pointer);
        schema = json_object_get(schema, part);
        pointer += n;
    }
    return schema;
}

static void pointer_of(const char *path, const char *member, char *out, size_t n) {
    size_t k =
        (size_t)snprintf(out, n, "%s%s%s%s", *path ? "/" : "", path, *member ? "/" : "", member);
    for (size_t i = 0; i < k; i++)
        out[i] = out[i] == '.' ? '/' : out[i];
}

static size_t faults;

/* Loads base with the object at path changed: member = value, or without it when value is NULL. */
static void expect_fault(const struct place *p, const char *member, json_t *value,
                         const char *also) {
    struct err e;
    char want[200];
    json_t *json = parse(p->base), *object = at_path(json, p->path);
    if (value)
        json_object_set_new(object, member, value);
    else
        json_object_del(object, member);
    int rc = read_json(json, &e);
    char *shown = json_dumps(json, 0);
    cr_assert(eq(int, rc, ASSAY_EINPUT), "accepted: %s", shown);
    char pointer[128];
    pointer_of(p->path, strcmp(also, "unknown key") == 0 ? "" : member, pointer, sizeof pointer);
    snprintf(want, sizeof want, "t.json: at %s", *pointer ? pointer : "/");
    cr_assert(eq(int, strncmp(e.text, want, strlen(want)), 0), "%s\nwanted %s", e.text, want);
    cr_assert(ne(ptr, strstr(e.text, also), NULL), "%s\nwanted '%s'", e.text, also);
    free(shown);
    json_decref(json);
    faults++;
}

/* Every fault that the schema's description of one member allows. */
static void break_member(const struct place *p, json_t *schema, const char *name, json_t *s) {
    const char *ref = json_string_value(json_object_get(s, "$ref"));
    json_t *resolved = ref ? schema_at(schema, ref + 1) : s;
    const char *type = json_string_value(json_object_get(resolved, "type"));
    bool array = type && strcmp(type, "array") == 0;
    expect_fault(p, name, array ? json_integer(7) : json_pack("[b]", 1), "expected");
    expect_fault(p, name, json_null(), "expected");
    json_t *min = json_object_get(resolved, "minimum"), *max = json_object_get(resolved, "maximum");
    if (min)
        expect_fault(p, name, json_integer((json_int_t)json_number_value(min) - 1), "expected");
    if (max)
        expect_fault(p, name, json_integer((json_int_t)json_number_value(max) + 1), "expected");
    if (json_object_get(resolved, "enum") || json_object_get(resolved, "const"))
        expect_fault(p, name, json_string("zzz"), "expected one of");
    if (ref && strcmp(ref, "#/$defs/duration") == 0) {
        expect_fault(p, name, json_string("5 parsecs"), "a duration");
        expect_fault(p, name, json_integer(5), "a duration");
        expect_fault(p, name, json_string("300000h"), "a duration");
        /* no time at all means something there */
        if (strncmp(p->schema, "/$defs/time_", 12) && strcmp(name, "max_delay"))
            expect_fault(p, name, json_string("0s"), "a duration");
    }
    if (json_object_get(resolved, "oneOf")) {
        const json_t *bare = json_array_get(json_object_get(resolved, "oneOf"), 0);
        json_t *top = json_object_get(bare, "maximum");
        if (top) {
            expect_fault(p, name, json_integer(0), "expected");
            expect_fault(p, name, json_integer(json_integer_value(top) + 1), "expected");
            expect_fault(p, name, json_string("many"), "expected");
        }
    }
}

Test(workloads_workload, every_field_of_the_schema_refuses_every_fault, .timeout = 60) {
    const struct embedded *f = embedded_find("schemas/workload.json");
    struct err e = {0};
    json_t *schema;
    cr_assert(ne(ptr, (void *)(uintptr_t)f, NULL));
    cr_assert(eq(int, json_parse(f->data, f->size, f->path, &schema, &e), 0), "%s", e.text);
    size_t objects = 2; /* count and $defs/duration have no members of their own */
    for (size_t i = 0; i < PLACES; i++) {
        json_t *base = parse(places[i].base), *object = schema_at(schema, places[i].schema);
        cr_assert(eq(int, read_json(base, &e), 0), "%s", e.text);
        cr_assert(ne(ptr, object, NULL), "%s", places[i].schema);
        json_decref(base);
        const char *name;
        json_t *s;
        json_object_foreach(json_object_get(object, "properties"), name, s)
            break_member(&places[i], schema, name, s);
        size_t k;
        json_array_foreach(json_object_get(object, "required"), k, s)
            expect_fault(&places[i], json_string_value(s), NULL, "expected");
        expect_fault(&places[i], "zzz", json_integer(1), "unknown key");
        objects++;
    }
    /* the table above names every object the schema describes */
    size_t described = 1;
    const char *name;
    json_t *s;
    json_object_foreach(json_object_get(schema, "properties"), name, s) described +=
        json_object_get(s, "properties") != NULL;
    json_object_foreach(json_object_get(schema, "$defs"), name, s) described +=
        json_object_get(s, "properties") != NULL;
    cr_assert(eq(sz, described, PLACES));
    cr_assert(gt(sz, faults, 250), "%zu", faults);
    json_decref(schema);
}

static const char TRAINING[] = "{\"name\":\"t\",\"kind\":\"training\",\"model\":\"llama3.1-8b\","
                               "\"training\":{\"global_batch\":8,"
                               "\"seq_len\":64,\"steps\":2}}";
static const char TRACE[] = "{" HEAD "\"trace\":{\"path\":\"x\",\"format\":\"azure\"}}";
static const char RATIO[] = ISL("{\"kind\":\"range_ratio\",\"value\":50,\"ratio\":0.8}");
static const char SESSIONS[] = "{" HEAD "\"isl\":1,\"osl\":1,\"sessions\":{\"turns\":2}}";

/* base, one change (NULL value = member taken away), how the message begins, what it explains */
static const struct {
    const char *base, *path, *value, *pointer, *why;
} contradictions[] = {
    {TRAINING, "isl", "5", "/isl", "kind is training"},
    {TRAINING, "osl", "5", "/osl", "kind is training"},
    {TRAINING, "trace", "{\"path\":\"x\",\"format\":\"azure\"}", "/trace", "kind is training"},
    {TRAINING, "sessions", "{\"turns\":2}", "/sessions", "kind is training"},
    {TRAINING, "pattern", "offline", "/pattern", "steps follow each other"},
    {TRAINING, "requests", "5", "/requests", "training.steps"},
    {TRAINING, "duration", "5s", "/duration", "training.steps"},
    {TRAINING, "limits", "{\"ttft\":\"1s\"}", "/limits", "kind is training"},
    {TRAINING, "model", NULL, "/model", "expected a model"},
    {TRAINING, "training", NULL, "/training", "found nothing"},
    {PLAIN, "training", "{\"global_batch\":8,\"seq_len\":64,\"steps\":2}", "/training",
     "not training"},
    {PLAIN, "pattern", NULL, "/pattern", "found nothing"},
    {PLAIN, "isl", NULL, "/isl", "found nothing"},
    {PLAIN, "osl", NULL, "/osl", "found nothing"},
    {PLAIN, "requests", NULL, "/requests", "so that the run ends"},
    {PLAIN, "trace", "{\"path\":\"x\",\"format\":\"azure\"}", "/isl", "beside trace"},
    {PLAIN, "pattern", "trace", "/pattern", "no trace"},
    {PLAIN, "pattern", "warp:9", "/pattern", "expected a load pattern"},
    {PLAIN, "pattern", "poissn:9", "/pattern", "did you mean 'poisson'"},
    {PLAIN, "pattern", "concurrency:0", "/pattern", "concurrency:N"},
    {PLAIN, "pattern", "concurrency:1.5", "/pattern", "concurrency:N"},
    {PLAIN, "pattern", "concurrency", "/pattern", "concurrency:N"},
    {PLAIN, "pattern", "poisson:-1", "/pattern", "RATE"},
    {PLAIN, "pattern", "poisson:nan", "/pattern", "RATE"},
    {PLAIN, "pattern", "gamma:4", "/pattern", "SHAPE"},
    {PLAIN, "pattern", "gamma:4,1,2", "/pattern", "SHAPE"},
    {PLAIN, "pattern", "gamma:4,0", "/pattern", "SHAPE"},
    {PLAIN, "pattern", "offline:3", "/pattern", "without a value"},
    {PLAIN, "kind", "agentic", "/sessions", "kind is agentic"},
    {PLAIN, "name", "", "/name", "letters"},
    {PLAIN, "name", "a b", "/name", "letters"},
    {PLAIN, "version", "../1", "/version", "letters"},
    {PLAIN, "model", "llama9", "/model", "no model 'llama9'"},
    {PLAIN, "warmup", "{\"requests\":1,\"duration\":\"1s\"}", "/warmup/duration", "found both"},
    {PLAIN, "requests", "{\"per_concurrency\":2,\"min\":0}", "/requests/min", "expected"},
    {PLAIN, "isl", "{\"kind\":\"uniform\",\"min\":9,\"max\":5}", "/isl/max", "at least min"},
    {PLAIN, "isl", "{\"kind\":\"range_ratio\",\"value\":5,\"ratio\":0.1}", "/isl/ratio",
     "at least 1"},
    {PLAIN, "isl", "{\"kind\":\"fixed\",\"value\":5,\"ratio\":0.1}", "/isl", "unknown key 'ratio'"},
    {PLAIN, "isl", "{\"kind\":\"empirical\",\"values\":[]}", "/isl/values", "1 to 65536"},
    {PLAIN, "isl", "{\"kind\":\"empirical\",\"values\":[0]}", "/isl/values/0", "expected"},
    {PLAIN, "isl", "{\"kind\":\"empirical\",\"values\":[1],\"weights\":[1,2]}", "/isl/weights",
     "as long"},
    {PLAIN, "isl", "{\"kind\":\"empirical\",\"values\":[1],\"weights\":[-1]}", "/isl/weights/0",
     "0 to"},
    {PLAIN, "isl", "{\"kind\":\"empirical\",\"values\":[1],\"weights\":[0]}", "/isl/weights",
     "above 0"},
    {SESSIONS, "pattern", "offline", "/pattern", "sessions"},
    {SESSIONS, "sessions.turns", "{\"kind\":\"fixed\",\"value\":10001}", "/sessions/turns/value",
     "10000"},
    {SESSIONS, "sessions.turns", "{\"kind\":\"uniform\",\"min\":1,\"max\":10001}",
     "/sessions/turns/max", "10000"},
    {SESSIONS, "isl", "{\"kind\":\"range_ratio\",\"value\":5,\"ratio\":0.5}", "/isl",
     "beside sessions"},
    {SESSIONS, "sessions.think_time", "{\"kind\":\"empirical\",\"values\":[1]}",
     "/sessions/think_time/kind", "expected one of fixed, uniform"},
    {SESSIONS, "sessions.think_time", "{\"kind\":\"lognormal\",\"median\":\"0s\",\"sigma\":1}",
     "/sessions/think_time/median", "a duration"},
    {SESSIONS, "sessions.think_time", "721h", "/sessions/think_time", "720h"},
    {RATIO, "requests", NULL, "/requests", "range_ratio"},
    {RATIO, "seed", "4294967296", "/seed", "4294967295"},
    {TRACE, "osl", "5", "/osl", "beside trace"},
    {TRACE, "sessions", "{\"turns\":2}", "/sessions", "beside trace"},
    {TRACE, "shared_prefix", "{\"tokens\":5}", "/shared_prefix", "beside trace"},
    {TRAINING, "shared_prefix", "{\"tokens\":5}", "/shared_prefix", "kind is training"},
    {TRACE, "trace.path", "", "/trace/path", "expected a path"},
    {TRACE, "trace.sha256", "abc", "/trace/sha256", "64 lower-case hex"},
};

Test(workloads_workload, contradictions_are_refused_with_the_reason) {
    for (size_t i = 0; i < sizeof contradictions / sizeof contradictions[0]; i++) {
        struct err e = {0};
        char want[200];
        json_t *json = parse(contradictions[i].base);
        if (contradictions[i].value)
            cr_assert(eq(
                int, json_set_path(json, contradictions[i].path, contradictions[i].value, &e), 0));
        else
            json_object_del(json, contradictions[i].path);
        cr_assert(eq(int, read_json(json, &e), ASSAY_EINPUT), "%s = %s", contradictions[i].path,
                  contradictions[i].value);
        snprintf(want, sizeof want, "t.json: at %s:", contradictions[i].pointer);
        cr_assert(eq(int, strncmp(e.text, want, strlen(want)), 0), "%s\nwanted %s", e.text, want);
        cr_assert(ne(ptr, strstr(e.text, contradictions[i].why), NULL), "%s\nwanted '%s'", e.text,
                  contradictions[i].why);
        json_decref(json);
    }
}

Test(workloads_workload, patterns_print_as_they_parse) {
    static const struct {
        const char *text, *printed;
        double value, shape;
    } good[] = {
        {"offline", "offline", 1, 1},
        {"single", "single", 1, 1},
        {"concurrency:64", NULL, 64, 1},
        {"concurrency:1000000", NULL, 1000000, 1},
        {"poisson:2.5", NULL, 2.5, 1},
        {"constant:1e3", "constant:1e+03", 1000, 1},
        {"gamma:0.1,0.5", NULL, 0.1, 0.5},
        {"trace", "trace", 1, 1},
        {"trace:2", NULL, 2, 1},
        {"trace:1", "trace", 1, 1},
        {"poisson:0.30000000000000004", NULL, 0.30000000000000004, 1},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct pattern p, q;
        struct err e = {0};
        char text[128];
        cr_assert(eq(int, pattern_parse(good[i].text, &p, &e), 0), "%s", e.text);
        cr_assert(eq(dbl, p.value, good[i].value));
        cr_assert(eq(dbl, p.shape, good[i].shape));
        pattern_print(&p, text, sizeof text);
        cr_assert(eq(str, text, (char *)(good[i].printed ? good[i].printed : good[i].text)));
        cr_assert(eq(int, pattern_parse(text, &q, &e), 0));
        cr_assert(eq(int, (int)q.kind, (int)p.kind));
        cr_assert(eq(dbl, q.value, p.value));
        cr_assert(eq(dbl, q.shape, p.shape));
    }
}

static struct workload *load(const char *name, const char *const *overrides, int n) {
    struct workload *w;
    struct err e = {0};
    cr_assert(eq(int, workload_load(name, overrides, n, &w, &e), 0), "%s: %s", name, e.text);
    return w;
}

/* Each shipped workload, plain and with overrides, reads back from its own effective form. */
Test(workloads_workload, the_effective_definition_reads_back_to_itself) {
    static const char *const some[] = {"seed=18446744073709551615", "warmup=30s", "version=v2"};
    size_t n, seen = 0;
    const struct embedded *all = embedded_all(&n);
    for (size_t i = 0; i < n; i++) {
        if (strncmp(all[i].path, "workloads/library/", 18))
            continue;
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(strlen(all[i].path) - 23), all[i].path + 18);
        bool ratio = strncmp(name, "inferencex", 10) == 0;
        for (int k = 0; k < 2; k++) {
            struct workload *w = load(name, some + ratio, k ? 3 - ratio : 0), *v, *u;
            struct err e = {0};
            cr_assert(eq(str, (char *)(uintptr_t)w->name, name));
            cr_assert(gt(sz, strlen(w->description), 80));
            cr_assert(eq(int, workload_from_json(w->effective_json, "again", &v, &e), 0), "%s",
                      e.text);
            cr_assert(eq(int, workload_from_json(v->effective_json, "again", &u, &e), 0), "%s",
                      e.text);
            cr_assert(eq(int, json_equal(w->effective_json, v->effective_json), 1), "%s", name);
            cr_assert(eq(int, json_equal(u->effective_json, v->effective_json), 1), "%s", name);
            cr_assert(eq(int, v->noverrides, w->noverrides));
            cr_assert(eq(i64, v->requests, w->requests));
            cr_assert(eq(u64, v->seed, w->seed));
            cr_assert(eq(int, json_is_object(json_object_get(w->effective_json, "model")), 1));
            workload_free(w);
            workload_free(v);
            workload_free(u);
        }
        seen++;
    }
    cr_assert(eq(sz, seen, 8));
}

Test(workloads_workload, defaults_are_resolved) {
    json_t *json = parse("{\"name\":\"t\",\"kind\":\"serving\",\"pattern\":\"trace\",\"trace\":"
                         "{\"path\":\"x\",\"format\":\"burstgpt\"}}");
    struct workload *w;
    struct err e = {0};
    cr_assert(eq(int, workload_from_json(json, "t", &w, &e), 0), "%s", e.text);
    char *got = json_dumps(w->effective_json, JSON_COMPACT | JSON_SORT_KEYS);
    cr_assert(eq(str, got,
                 "{\"kind\":\"serving\",\"name\":\"t\",\"pattern\":\"trace\",\"seed\":0,\"trace\":"
                 "{\"failures\":\"drop\",\"force\":false,\"format\":\"burstgpt\",\"path\":\"x\"},"
                 "\"version\":\"1\"}"));
    free(got);
    json_decref(json);
    workload_free(w);
}

Test(workloads_workload, multiples_follow_the_concurrency) {
    static const char *const o[] = {"pattern=concurrency:7"};
    struct workload *w = load("inferencex-8k1k", o, 1);
    cr_assert(eq(i64, w->requests, 70));
    cr_assert(eq(i64, w->warmup_requests, 14));
    workload_free(w);
    static const char *const p[] = {"pattern=poisson:7"};
    struct err e = {0};
    cr_assert(eq(int, workload_load("inferencex-8k1k", p, 1, &w, &e), ASSAY_EINPUT));
    cr_assert(ne(ptr, strstr(e.text, "/requests/per_concurrency"), NULL), "%s", e.text);
}

Test(workloads_workload, overrides_keep_the_file_and_name_themselves) {
    static const char *const o[] = {"isl=4096", "osl=100", "requests=5", "warmup=3",
                                    "limits.ttft=2s"};
    struct workload *w = load("inferencex-8k1k", o, 5);
    cr_assert(eq(int, (int)w->isl.kind, DIST_RANGE_RATIO), "isl=N keeps the range ratio");
    cr_assert(eq(dbl, w->isl.value, 4096));
    cr_assert(eq(dbl, w->osl.max, 100));
    cr_assert(eq(dbl, w->osl.min, 80));
    cr_assert(eq(i64, w->requests, 5));
    cr_assert(eq(i64, w->warmup_requests, 3));
    cr_assert(eq(i64, w->limit_ttft_ns, 2000000000));
    cr_assert(eq(int, w->noverrides, 5));
    cr_assert(eq(str, w->overrides[4], "limits.ttft=2s"));
    cr_assert(eq(i64,
                 json_integer_value(json_object_get(json_object_get(w->file_json, "isl"), "value")),
                 8192));
    cr_assert(eq(sz, json_array_size(json_object_get(w->effective_json, "$overrides")), 5));
    workload_free(w);

    static const char *const lengths[] = {"isl=77", "model.num_hidden_layers=4"};
    w = load("chat-serving", lengths, 2);
    cr_assert(eq(int, (int)w->isl.kind, DIST_FIXED));
    cr_assert(eq(dbl, w->isl.value, 77));
    cr_assert(eq(i64, w->model.layers, 4));
    cr_assert(eq(str, w->model.name, "llama3.1-70b"));
    workload_free(w);
}

Test(workloads_workload, bad_overrides_name_themselves) {
    static char longest[200];
    memset(longest, 'a', sizeof longest - 1);
    longest[1] = '=';
    static const struct {
        const char *text;
        int code;
        const char *message;
    } bad[] = {
        {"isl", ASSAY_EUSAGE, "--set 'isl'"},
        {"=5", ASSAY_EUSAGE, "PATH=VALUE"},
        {"isl..x=5", ASSAY_EUSAGE, "--set 'isl..x=5'"},
        {"name.x=5", ASSAY_EUSAGE, "not an object"},
        {"isl=many", ASSAY_EINPUT, "/isl: expected"},
        {"zeed=5", ASSAY_EINPUT, "did you mean 'seed'"},
        {"model.num_hidden_layers=0", ASSAY_EINPUT, "/model/num_hidden_layers"},
        {longest, ASSAY_EUSAGE, "fewer than 160 bytes"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct workload *w;
        struct err e = {0};
        const char *o[] = {bad[i].text};
        cr_assert(eq(int, workload_load("chat-serving", o, 1, &w, &e), bad[i].code), "%s",
                  bad[i].text);
        cr_assert(ne(ptr, strstr(e.text, bad[i].message), NULL), "%s", e.text);
    }
    const char *many[33];
    for (int i = 0; i < 33; i++)
        many[i] = "seed=1";
    struct workload *w;
    struct err e = {0};
    cr_assert(eq(int, workload_load("chat-serving", many, 33, &w, &e), ASSAY_EUSAGE));
    cr_assert(eq(int, workload_load("chat-serving", many, 32, &w, &e), 0), "%s", e.text);
    workload_free(w);
}

Test(workloads_workload, names_and_files_that_are_not_there) {
    struct workload *w;
    struct err e = {0};
    cr_assert(eq(int, workload_load("chat-servin", NULL, 0, &w, &e), ASSAY_EUSAGE));
    cr_assert(ne(ptr, strstr(e.text, "did you mean 'chat-serving'"), NULL), "%s", e.text);
    cr_assert(ne(int, workload_load("no/such/file.json", NULL, 0, &w, &e), 0));
    cr_assert(eq(int, workload_load("tests/data/workloads/truncated.json", NULL, 0, &w, &e),
                 ASSAY_EINPUT));
    cr_assert(ne(ptr, strstr(e.text, "truncated.json:4:"), NULL), "%s", e.text);
    cr_assert(eq(int, workload_load("tests/data/workloads/no_trace.json", NULL, 0, &w, &e),
                 ASSAY_EINPUT));
    cr_assert(ne(ptr, strstr(e.text, "no_trace.json: at /trace/path"), NULL), "%s", e.text);
}

/* A relative trace path counts from the workload's folder; the definition keeps it as written. */
Test(workloads_workload, trace_paths_are_resolved_beside_the_file) {
    struct workload *w = load("tests/data/workloads/replay.json", NULL, 0);
    cr_assert(eq(str, (char *)(uintptr_t)w->trace_path, "tests/data/workloads/mooncake.jsonl"));
    cr_assert(eq(str,
                 (char *)(uintptr_t)json_string_value(
                     json_object_get(json_object_get(w->effective_json, "trace"), "path")),
                 "mooncake.jsonl"));
    workload_free(w);
    static const char *const o[] = {"trace.path=tests/data/workloads/mooncake.jsonl"};
    w = load("tests/data/workloads/replay.json", o, 1);
    cr_assert(eq(str, (char *)(uintptr_t)w->trace_path, "tests/data/workloads/mooncake.jsonl"));
    workload_free(w);
}

/* So do those of a model and a rule pack; those of overrides count from the current folder. */
Test(workloads_workload, model_and_rules_are_resolved_beside_the_file) {
    struct workload *w = load("tests/data/workloads/beside.json", NULL, 0);
    cr_assert(eq(i64, w->model.layers, 2));
    cr_assert(eq(str, (char *)(uintptr_t)w->rules, "tests/data/workloads/pack/rules.json"));
    cr_assert(eq(str,
                 (char *)(uintptr_t)json_string_value(json_object_get(w->effective_json, "rules")),
                 "pack/rules.json"));
    workload_free(w);
    static const char *const inside[] = {"model.num_hidden_layers=3"};
    w = load("tests/data/workloads/beside.json", inside, 1);
    cr_assert(eq(i64, w->model.layers, 3));
    workload_free(w);
    static const char *const o[] = {"model=tests/data/workloads/small/config.json", "rules=x/y.json"};
    w = load("tests/data/workloads/beside.json", o, 2);
    cr_assert(eq(i64, w->model.layers, 2));
    cr_assert(eq(str, (char *)(uintptr_t)w->rules, "x/y.json"));
    workload_free(w);
}
