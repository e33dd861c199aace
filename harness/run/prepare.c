/* From options to an opened backend: all that can be wrong with the input is found here, before
 * anything is written. */
#include "harness/run/run_internal.h"

#include "harness/core/clock.h"
#include "harness/core/json.h"
#include "harness/run/doctor.h"
#include "harness/run/pattern.h"
#include "results/hash.h"
#include "workloads/plan.h"
#include "results/jcs.h"
#include "harness/core/buf.h"

#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 256 };

static int parse_backend_options(const struct run_options *o, struct prepared *p, struct err *e) {
    p->options = arena_alloc(&p->arena, 1, p->ops->options_size);
    if (!p->options)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    options_defaults(p->ops->options, p->options, &p->arena);
    for (int i = 0; i < o->nbackend_options; i++) {
        int rc = options_set_pair(p->ops->options, p->options, o->backend_options[i], "-o", &p->arena,
                                  e);
        if (rc)
            return err_wrap(e, "backend '%s'", p->ops->name);
    }
    return 0;
}

static int check_fit(const struct run_options *o, const struct prepared *p, struct err *e) {
    const struct workload *w = p->workload;
    unsigned need = w->kind == WORKLOAD_TRAINING ? BACKEND_TRAINING : BACKEND_SERVING;
    if (!(p->ops->caps & need))
        return err_set(e, ASSAY_EUSAGE, "backend '%s' cannot run a workload of kind '%s'",
                       p->ops->name, workload_kind_name(w->kind));
    if (o->threads < 1 || o->threads > THREADS_MAX)
        return err_set(e, ASSAY_EUSAGE, "--threads: expected an integer in 1..%d, found %lld",
                       THREADS_MAX, (long long)o->threads);
    if (o->threads > 1 && ((p->ops->caps & BACKEND_SINGLE) || w->kind == WORKLOAD_TRAINING))
        return err_set(e, ASSAY_EUSAGE, "backend '%s' runs this workload in one thread, not %lld",
                       p->ops->name, (long long)o->threads);
    if (o->threads > 1 && w->pattern.kind == PATTERN_TRACE && w->warmup_requests)
        return err_set(e, ASSAY_EUSAGE, "the warm-up of a trace needs --threads 1");
    if (o->threads > 1 && w->pattern.kind == PATTERN_CONCURRENCY && w->pattern.value < (double)o->threads)
        return err_set(e, ASSAY_EUSAGE, "%lld threads cannot share a concurrency of %.0f",
                       (long long)o->threads, w->pattern.value);
    if (o->threads > 1 && w->pattern.kind == PATTERN_SINGLE)
        return err_set(e, ASSAY_EUSAGE, "pattern 'single' needs --threads 1");
    return 0;
}

/* An open loop that cannot end on any clock. Sessions and traces are seen by the driver. */
static int check_span(const struct workload *w, struct err *e) {
    bool timed = w->pattern.kind == PATTERN_POISSON || w->pattern.kind == PATTERN_CONSTANT ||
                 w->pattern.kind == PATTERN_GAMMA;
    double n = (double)w->warmup_requests + (w->duration_ns ? 0 : (double)w->requests);
    if (!timed || workload_has_sessions(w) || n * 1e9 / w->pattern.value < (double)ARRIVAL_NEVER)
        return 0;
    return err_set(e, ASSAY_EINPUT,
                   "%s: at /pattern: expected a rate at which %.0f requests are issued within 146 years, "
                   "found %g/s",
                   w->name, n, w->pattern.value);
}

/* What the record will name by digest must have a canonical form; told here, with the file's name. */
static int check_canonical(const json_t *v, const char *name, struct err *e) {
    struct buf b;
    if (!v)
        return 0;
    buf_init(&b, JSON_FILE_MAX_BYTES);
    int rc = jcs_encode(v, &b, e);
    buf_release(&b);
    return rc ? err_wrap(e, "%s", name) : 0;
}

static void add_bytes(void *ctx, const void *p, size_t n) {
    sha256_add(ctx, p, n);
}

/* A trace is read to its end before anything is written: a malformed or truncated line must not end a
 * run in its middle. Its digest, made in the same pass, goes into the effective definition. */
static int check_trace(struct workload *w, struct err *e) {
    if (!w->trace_path)
        return 0;
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX];
    struct sha256_stream *sum = sha256_new();
    int rc = plan_check_trace(w, add_bytes, sum, e);
    sha256_finish(sum, digest);
    if (rc)
        return rc;
    hex_encode(digest, sizeof digest, hex);
    if (w->trace_sha256 && strcmp(w->trace_sha256, hex) != 0)
        return err_set(e, ASSAY_EINPUT, "%s: at /trace/sha256: expected %s, found %s", w->name,
                       w->trace_sha256, hex);
    json_t *trace = json_object_get(w->effective_json, "trace");
    return json_object_set_new(trace, "sha256", json_string(hex))
               ? err_set(e, ASSAY_ENOMEM, "out of memory")
               : 0;
}

int prepare_load(const struct run_options *o, struct prepared *p, struct err *e) {
    *p = (struct prepared){0};
    int rc = workload_load(o->workload, o->overrides, o->noverrides, &p->workload, e);
    if (rc)
        return rc;
    if ((rc = backend_find(o->backend, &p->ops, e)) || (rc = parse_backend_options(o, p, e)) ||
        (rc = check_fit(o, p, e)) || (rc = check_span(p->workload, e)) ||
        (rc = check_canonical(p->workload->file_json, o->workload, e)) ||
        (rc = check_canonical(p->workload->effective_json, o->workload, e)) ||
        (rc = check_trace(p->workload, e)))
        return rc;
    const char *rules = o->rules ? o->rules : p->workload->rules ? p->workload->rules : "default";
    p->threads = (uint32_t)o->threads;
    rc = rules_load(rules, &p->rules, e);
    return rc ? rc : check_canonical(rules_json(p->rules), rules, e);
}

/* ---- the system description ---- */

struct system_file {
    const char *name, *vendor, *chip;
    int result_class;
    int64_t chips, hosts;
};
static const char *const classes[] = {"none", "projected", "simulated", "emulated", "measured", NULL};
#define AT(f) offsetof(struct system_file, f)
static const struct option system_table[] = {
    {"name", OPT_STR, AT(name), .flags = OPTION_REQUIRED, .help = "what the system is called"},
    {"class", OPT_ENUM, AT(result_class), .choices = classes, .def = "measured"},
    {"vendor", OPT_STR, AT(vendor)},
    {"chip", OPT_STR, AT(chip), .help = "accelerator, e.g. v6e"},
    {"chips", OPT_I64, AT(chips), .min = 1, .max = 1e9, .help = "physical accelerators"},
    {"hosts", OPT_I64, AT(hosts), .min = 1, .max = 1e9, .def = "1"},
    {0},
};

static int load_system(const char *path, struct prepared *p, struct err *e) {
    struct system_file s = {0};
    struct backend_info *info = &p->info;
    int rc = json_parse_file(path, &p->system, e);
    if (rc || (rc = check_canonical(p->system, path, e)))
        return rc;
    options_defaults(system_table, &s, &p->arena);
    if ((rc = options_from_json(system_table, &s, p->system, path, "", &p->arena, e)))
        return rc;
    if (s.chip && info->chip[0] && strcmp(s.chip, info->chip) != 0)
        return err_set(e, ASSAY_EINPUT, "%s: at /chip: the backend reports '%s', found '%s'", path,
                       info->chip, s.chip);
    if (s.chips && info->chips && s.chips != info->chips)
        return err_set(e, ASSAY_EINPUT, "%s: at /chips: the backend reports %lld, found %lld", path,
                       (long long)info->chips, (long long)s.chips);
    if (s.chip)
        snprintf(info->chip, sizeof info->chip, "%s", s.chip);
    if (s.chips)
        info->chips = s.chips;
    if ((enum result_class)s.result_class < p->result_class)
        p->result_class = (enum result_class)s.result_class;
    return 0;
}

static int describe_system(const struct run_options *o, struct prepared *p, struct err *e) {
    struct backend_info *info = &p->info;
    p->result_class = info->result_class;
    if (o->system) {
        int rc = load_system(o->system, p, e);
        if (rc)
            return rc;
    } else {
        char name[256];
        if (info->chips)
            snprintf(name, sizeof name, "%s-%lld (%s%s%s)", info->chip, (long long)info->chips,
                     p->ops->name, info->settings[0] ? ", " : "", info->settings);
        else
            snprintf(name, sizeof name, "%s", info->chip[0] ? info->chip : p->ops->name);
        p->system = json_pack("{s:s, s:i}", "name", name, "hosts", 1);
    }
    if (!p->system)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    json_object_set_new(p->system, "class", json_string(result_class_name(p->result_class)));
    json_object_set_new(p->system, "chip", json_string(info->chip[0] ? info->chip : "unknown"));
    if (info->chips)
        json_object_set_new(p->system, "chips", json_integer(info->chips));
    return 0;
}

static json_t *describe_backend(const struct prepared *p) {
    json_t *config = options_to_json(p->ops->options, p->options);
    json_t *b = json_pack("{s:s, s:s, s:s, s:s, s:b, s:o*, s:O*}", "name", p->ops->name, "version",
                          p->ops->version, "class", result_class_name(p->info.result_class),
                          "modelId", p->info.model_id, "virtualClock", p->info.virtual_clock,
                          "config", config, "details", p->info.details);
    return b;
}

static int64_t shard_max_in_flight(const struct workload *w, uint32_t shard, uint32_t shards) {
    int64_t n = pattern_shard_concurrency(&w->pattern, shard, shards);
    return n == INT64_MAX ? 0 : n;
}

int prepare_backend(const struct run_options *o, struct prepared *p, struct err *e) {
    p->sinks = arena_alloc(&p->arena, p->threads, sizeof *p->sinks);
    p->backends = arena_alloc(&p->arena, p->threads, sizeof(struct backend *));
    if (!p->sinks || !p->backends)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    p->origin_ns = clock_now_ns();
    /* several branches of a session may be in flight at once */
    bool branches = p->workload->trace_path && workload_has_sessions(p->workload);
    for (uint32_t i = 0; i < p->threads; i++) {
        struct backend_open_args args = {
            .workload = p->workload,
            .options = p->options,
            .sink = &p->sinks[i],
            .shard = i,
            .shards = p->threads,
            .origin_ns = p->origin_ns,
            .max_in_flight =
                branches ? 0 : shard_max_in_flight(p->workload, i, p->threads),
        };
        int rc = p->ops->open(&args, &p->backends[i], e);
        if (rc)
            return err_wrap(e, "opening backend '%s'", p->ops->name);
    }
    int rc = p->ops->describe(p->backends[0], &p->info, e);
    if (rc || (rc = describe_system(o, p, e)))
        return rc;
    p->backend = describe_backend(p);
    if ((rc = doctor_environment(&p->environment, e)))
        return rc;
    if (!p->backend)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    const struct workload *w = p->workload;
    p->facts = (struct metrics_facts){
        .chips = p->info.chips,
        .peak_flops_per_s = p->info.peak_flops_per_s,
        .flops_per_token = p->info.flops_per_token,
        .limit_ttft_ns = w->limit_ttft_ns,
        .limit_tpot_ns = w->limit_tpot_ns,
        .limit_e2e_ns = w->limit_e2e_ns,
        .max_concurrency = shard_max_in_flight(w, 0, 1),
    };
    return 0;
}

void prepared_release(struct prepared *p) {
    for (uint32_t i = 0; p->backends && i < p->threads; i++)
        if (p->backends[i])
            p->ops->close(p->backends[i]);
    json_decref(p->info.details);
    json_decref(p->system);
    json_decref(p->backend);
    json_decref(p->environment);
    rules_free(p->rules);
    workload_free(p->workload);
    arena_release(&p->arena);
}
