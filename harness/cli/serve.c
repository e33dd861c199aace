/* `assay serve`: a backend's timing behind an OpenAI-compatible endpoint, until a signal ends it.
 */
#include "harness/cli/args.h"
#include "harness/cli/out.h"
#include "harness/cli/summary.h"
#include "harness/cli/term.h"
#include "harness/cli/verbs.h"

#include "backends/serve/serve.h"
#include "harness/core/embed.h"
#include "harness/core/json.h"
#include "results/jcs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct serve_args {
    struct common c;
    const char *backend, *bind;
    struct strings backend_options;
    int64_t port, max_connections;
    double speed;
    bool log;
};

#define AT(field) offsetof(struct serve_args, field)
// clang-format off
static const struct option serve_options[] = {
    {.name = "backend", .type = OPT_STR, .offset = AT(backend), .unit = "BACKEND", .def = "tpu-sim",
     .help = "whose timing it is; must have a virtual clock"},
    {.name = "option", .type = OPT_STR, .offset = AT(backend_options), .unit = "KEY=VALUE",
     .flags = CLI_LIST, .help = "set an option of the backend"},
    {.name = "set", .type = OPT_STR, .offset = AT(c.overrides), .unit = "PATH=VALUE",
     .flags = CLI_LIST, .help = "set a member of the workload's JSON"},
    {.name = "port", .type = OPT_I64, .offset = AT(port), .min = 0, .max = 65535, .def = "8000",
     .help = "0 picks a free one; either way it is printed when the endpoint is ready"},
    {.name = "bind", .type = OPT_STR, .offset = AT(bind), .unit = "ADDRESS", .def = "127.0.0.1",
     .help = "numeric address to listen on"},
    {.name = "speed", .type = OPT_F64, .offset = AT(speed), .unit = "FACTOR", .min = 0.001, .max = 1e6,
     .def = "1", .help = "virtual seconds a second of the wall"},
    {.name = "max-connections", .type = OPT_I64, .offset = AT(max_connections), .min = 0, .max = 1e6,
     .def = "0", .help = "0: as many as the limits allow"},
    {.name = "log", .type = OPT_BOOL, .offset = AT(log), .help = "a line a request on stderr"},
    {.name = "quiet", .type = OPT_BOOL, .offset = AT(c.quiet), .help = "no closing statistics"},
    {0},
};
// clang-format on

/* A model's name stands for the smallest workload that has it: the endpoint asks only for the
 * model. */
static int load_workload(struct serve_args *a, struct workload **w, struct err *e) {
    const char *name = a->c.args.v[0];
    json_t *file = NULL;
    bool is_model = !embedded_find_in("workloads/library", name, ".json") &&
                    embedded_find_in("workloads/models", name, ".json");
    size_t n = strlen(name);
    if (n > 5 && !strcmp(name + n - 5, ".json")) {
        int rc = json_parse_file(name, &file, e);
        if (rc)
            return rc;
        is_model = json_object_get(file, "hidden_size") != NULL;
        json_decref(file);
    }
    if (!is_model)
        return workload_load(name, a->c.overrides.v, a->c.overrides.n, w, e);
    if (a->c.overrides.n)
        return err_set(e, ASSAY_EUSAGE, "serve: --set is for workloads; '%s' is a model", name);
    json_t *definition =
        json_pack("{s:s,s:s,s:s,s:s,s:i,s:i,s:i}", "name", "serve", "kind", "serving", "model",
                  name, "pattern", "concurrency:1", "requests", 1, "isl", 1, "osl", 1);
    int rc = definition ? workload_from_json(definition, name, w, e)
                        : err_set(e, ASSAY_ENOMEM, "out of memory");
    json_decref(definition);
    return rc;
}

static void ready(void *ctx, uint16_t port) {
    const struct serve_args *a = ctx;
    bool v6 = strchr(a->bind, ':') != NULL;
    char url[128];
    snprintf(url, sizeof url, "http://%s%.80s%s:%u", v6 ? "[" : "", a->bind, v6 ? "]" : "", port);
    if (a->c.json) {
        json_t *v = json_pack("{s:s,s:s,s:i}", "url", url, "bind", a->bind, "port", (int)port);
        out_json(v, stdout);
        json_decref(v);
    } else {
        printf("%s\n", url);
    }
    fflush(stdout); /* a script waits for this line */
}

static void print_stats(const struct serve_stats *s) {
    char mean[FMT_BYTES], max[FMT_BYTES];
    double n = s->token_events ? (double)s->token_events : 1;
    fprintf(stderr,
            "assay: info: served requests=%" PRId64 " completed=%" PRId64 " failed=%" PRId64
            " rejected=%" PRId64 " disconnected=%" PRId64 " dropped=%" PRId64 " tokens=%" PRId64
            " lateness mean %s max %s\n",
            s->requests, s->completed, s->failed, s->rejected, s->disconnected, s->dropped,
            s->tokens, fmt_ns(mean, (double)s->lateness_sum_ns / n),
            fmt_ns(max, (double)s->lateness_max_ns));
}

static int run_serve(void *options, struct err *e) {
    struct serve_args *a = options;
    const struct backend_ops *ops = NULL;
    struct workload *w = NULL;
    struct serve_stats stats = {0};
    void *backend_options = NULL;
    int rc = backend_find(a->backend, &ops, e);
    if (rc)
        return rc;
    backend_options = arena_alloc(&a->c.arena, 1, ops->options_size);
    if (!backend_options)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    options_defaults(ops->options, backend_options, &a->c.arena);
    for (int i = 0; i < a->backend_options.n; i++)
        if ((rc = options_set_pair(ops->options, backend_options, a->backend_options.v[i], "-o",
                                   &a->c.arena, e)))
            return err_wrap(e, "backend '%s'", ops->name);
    rc = load_workload(a, &w, e);
    if (rc)
        return rc;
    stop_install();
    struct serve_options o = {
        .ops = ops,
        .backend_options = backend_options,
        .workload = w,
        .bind = a->bind,
        .port = (uint16_t)a->port,
        .speed = a->speed,
        .max_connections = a->max_connections,
        .log = a->log,
        .ready = ready,
        .ready_ctx = a,
        .digest = jcs_sha256,
        .stop = &stop_flag,
        .stats = &stats,
    };
    rc = serve_run(&o, e);
    workload_free(w);
    if (!rc && !a->c.quiet)
        print_stats(&stats);
    return rc;
}

// clang-format off
const struct verb verb_serve = {
    .name = "serve",
    .usage = "WORKLOAD|MODEL",
    .summary = "an OpenAI-compatible endpoint whose timing is a backend's",
    .about =
        "Answers /v1/chat/completions and /v1/completions (streaming or not), /v1/models, /health and "
        "/metrics as the backend would in time: point any client at a chip that does not exist. The URL "
        "is printed when the endpoint is ready. Every response names class and chip (X-Assay-Class, "
        "X-Assay-Chip, system_fingerprint, model id), and 'assay run --backend http' inherits them.\n\n"
        "A signal ends it, which is no failure.",
    .examples = "assay serve llama3.1-70b -o chip=v6e -o chips=8 --port 8000\n"
                "assay serve chat-serving --backend tpu-sim -o chip=v5e -o chips=16 --port 0\n",
    .args_min = 1,
    .args_max = 1,
    .options_size = sizeof(struct serve_args),
    .options = (const struct option *const[]){serve_options, common_output, NULL},
    .backends = true,
    .run = run_serve,
};
// clang-format on
