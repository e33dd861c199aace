/* Serving rows of the general table: the simulated engine under the load the source describes, in
 * virtual time, through the backend's own slots. One run answers every metric of its point. */
#include "harness/run/validate_internal.h"

#include "backends/backend.h"
#include "harness/core/rng.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double concurrency_classes[] = {16, 64, 256, 0};

enum { OPTIONS_MAX = 16 };

/* The load and the engine's settings, as the row and its notes state them. */
struct serve_point {
    char options[OPTIONS_MAX][64];
    int noptions;
    int64_t isl, osl, requests, concurrency;
    double ratio; /* lengths uniform in [ratio, 1] of the nominal; 1 = fixed */
};

struct serve_result {
    double duration_s, output_tokens, input_tokens, requests, peak_tokens_per_s;
    double mean_ttft_s, median_ttft_s, p99_ttft_s, mean_tpot_s, median_tpot_s, p99_tpot_s,
        mean_itl_s, median_itl_s, p99_itl_s, mean_e2e_s;
};

struct serve_cache {
    struct serve_cache *next;
    char key[1200];
    struct serve_result r;
    const char *why;
};

/* ---- reading the events ---- */

struct times {
    int64_t sent, first, last;
    uint32_t n;
};
struct log {
    struct event_sink sink;
    struct event_block block;
    struct times *t;
    size_t requests;
    double *gap; /* inter-token, s */
    size_t gaps, gaps_cap;
    double *second; /* tokens of each second */
    size_t seconds, seconds_cap;
    bool failed;
};

static bool room(double **p, size_t n, size_t *cap) {
    if (n < *cap)
        return true;
    size_t want = *cap ? *cap : 1024;
    while (want <= n)
        want *= 2;
    double *q = realloc(*p, want * sizeof *q);
    if (!q)
        return false;
    memset(q + *cap, 0, (want - *cap) * sizeof *q);
    *p = q;
    *cap = want;
    return true;
}

static struct event_block *take(void *ctx, struct event_block *k) {
    struct log *l = ctx;
    for (uint32_t i = 0; i < k->n; i++) {
        if (k->kind[i] != EVENT_SENT && k->kind[i] != EVENT_TOKENS)
            continue;
        struct times *t = &l->t[k->request[i]];
        if (k->kind[i] == EVENT_SENT) {
            t->sent = k->time_ns[i];
            continue;
        }
        size_t second = (size_t)(k->time_ns[i] / 1000000000);
        if (!room(&l->gap, l->gaps, &l->gaps_cap) || !room(&l->second, second, &l->seconds_cap)) {
            l->failed = true;
            break;
        }
        if (t->n == 0)
            t->first = k->time_ns[i];
        else
            l->gap[l->gaps++] = (double)(k->time_ns[i] - t->last) * 1e-9;
        t->last = k->time_ns[i];
        t->n++;
        l->second[second]++;
        if (second >= l->seconds)
            l->seconds = second + 1;
    }
    k->n = 0;
    return k;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts x; NaN of nothing. */
static void spread(double *x, size_t n, double *mean, double *median, double *p99) {
    double sum = 0;
    *mean = *median = *p99 = (double)NAN;
    if (!n)
        return;
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    qsort(x, n, sizeof *x, ascending);
    *mean = sum / (double)n;
    *median = (x[(n - 1) / 2] + x[n / 2]) / 2;
    *p99 = x[(n * 99 + 99) / 100 - 1];
}

static void summarise(struct log *l, size_t n, struct serve_result *r) {
    double *x = calloc(n + 1, sizeof *x), ignored, ignored2;
    if (!x)
        return;
    for (size_t i = 0; i < n; i++)
        x[i] = (double)(l->t[i].first - l->t[i].sent) * 1e-9;
    spread(x, n, &r->mean_ttft_s, &r->median_ttft_s, &r->p99_ttft_s);
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if (l->t[i].n > 1)
            x[k++] = (double)(l->t[i].last - l->t[i].first) * 1e-9 / (double)(l->t[i].n - 1);
    spread(x, k, &r->mean_tpot_s, &r->median_tpot_s, &r->p99_tpot_s);
    for (size_t i = 0; i < n; i++)
        x[i] = (double)(l->t[i].last - l->t[i].sent) * 1e-9;
    spread(x, n, &r->mean_e2e_s, &ignored, &ignored2);
    free(x);
    spread(l->gap, l->gaps, &r->mean_itl_s, &r->median_itl_s, &r->p99_itl_s);
    for (size_t i = 0; i < l->seconds; i++)
        if (l->second[i] > r->peak_tokens_per_s)
            r->peak_tokens_per_s = l->second[i];
}

/* ---- one run ---- */

static uint32_t length(struct rng *g, int64_t nominal, double ratio) {
    if (ratio >= 1)
        return (uint32_t)nominal;
    int64_t least = (int64_t)((double)nominal * ratio);
    return (uint32_t)(least + (int64_t)rng_below(g, (uint64_t)(nominal - least + 1)));
}

static int drive(struct backend *b, const struct serve_point *p, struct serve_result *r,
                 const char **why, struct err *e) {
    static const volatile int go_on = 0;
    struct rng g;
    rng_seed(&g, 1);
    int64_t issued = 0, done = 0;
    struct completion c[256];
    while (done < p->requests) {
        for (; issued < p->requests && issued - done < p->concurrency; issued++) {
            struct request q = {.id = (uint64_t)issued,
                                .session = REQUEST_NO_SESSION,
                                .last_turn = true,
                                .isl = length(&g, p->isl, p->ratio),
                                .osl = length(&g, p->osl, p->ratio)};
            int rc = backend_tpu_sim.submit(b, &q, c, e);
            if (rc < 0)
                return rc;
            if (rc != SUBMIT_QUEUED) {
                *why = "a request never fits in the context or the KV cache";
                return 0;
            }
            r->input_tokens += q.isl;
        }
        int n, rc = backend_tpu_sim.wait(b, INT64_MAX, c, 256, &n, &go_on, e);
        if (rc)
            return rc;
        for (int i = 0; i < n; i++)
            r->output_tokens += c[i].output_tokens;
        done += n;
    }
    r->duration_s = (double)backend_tpu_sim.now(b) * 1e-9;
    r->requests = (double)done;
    return 0;
}

static int simulate(struct validator *v, const struct serve_point *p, const struct model *m,
                    const char *chip, struct serve_result *r, const char **why, struct err *e) {
    const struct backend_ops *ops = &backend_tpu_sim;
    struct arena a = {0};
    void *options = arena_alloc(&a, 1, ops->options_size);
    struct workload w = {.kind = WORKLOAD_SERVING, .has_model = true, .model = *m};
    struct log l = {.requests = (size_t)p->requests, .t = calloc((size_t)p->requests, sizeof *l.t)};
    struct backend *b = NULL;
    int rc = 0;
    if (!options || !l.t) {
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
        goto out;
    }
    options_defaults(ops->options, options, &a);
    for (int i = 0; i < p->noptions; i++)
        if ((rc = options_set_pair(ops->options, options, p->options[i], "validate", &a, e)))
            goto out;
    struct chip_override ov[VALIDATE_OVERRIDES_MAX];
    int n = validate_chip_overrides(v, chip, ov, VALIDATE_OVERRIDES_MAX);
    for (int i = 0; i < n; i++) {
        char key[96];
        snprintf(key, sizeof key, "chip.%s", ov[i].key);
        if ((rc = options_set(ops->options, options, key, ov[i].value, "validate", &a, e)))
            goto out;
    }
    l.sink = (struct event_sink){.block = &l.block, .flush = take, .ctx = &l};
    struct backend_open_args args = {.workload = &w,
                                     .options = options,
                                     .sink = &l.sink,
                                     .shards = 1,
                                     .max_in_flight = p->concurrency};
    struct err open_error = {0};
    if (ops->open(&args, &b,
                  &open_error)) { /* the setting cannot be simulated: a reason, not a failure */
        *why = arena_strdup(&v->arena, open_error.text);
        goto out;
    }
    rc = drive(b, p, r, why, e);
    event_sink_flush(&l.sink);
    if (!rc && l.failed)
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
    if (!rc && !*why)
        summarise(&l, (size_t)p->requests, r);
out:
    if (b)
        ops->close(b);
    free(l.t);
    free(l.gap);
    free(l.second);
    arena_release(&a);
    return rc;
}

/* ---- what a row says ---- */

static void option(struct serve_point *p, const char *key, int64_t value) {
    snprintf(p->options[p->noptions], sizeof p->options[0], "%s=%" PRId64, key, value);
    p->noptions++;
}

static const char *types_of(const char *quant) {
    if (validate_has(quant, "fp8 weights, activations and KV"))
        return "weights=fp8 kv=fp8 math=fp8";
    if (validate_has(quant, "fp8 weights and KV"))
        return "weights=fp8 kv=fp8";
    if (validate_has(quant, "8-bit weights") || validate_has(quant, "int8 weights"))
        return "weights=int8";
    return validate_has(quant, "fp8") ? "weights=fp8 kv=fp8 math=fp8" : "";
}

/* The first of the keys that the notes give a number for, else otherwise. */
static int64_t setting(const char *notes, const char *const *keys, int64_t otherwise) {
    for (; *keys; keys++) {
        double x = validate_find_number(notes, *keys);
        if (x >= 1 && x <= 1e6)
            return (int64_t)x;
    }
    return otherwise;
}

/* "3000 prompts", "prompts = 3 x concurrency", "prompts = 10 x concurrency". */
static int64_t prompts(const char *notes, int64_t concurrency, int64_t otherwise) {
    double times = validate_find_number(notes, "prompts =");
    if (times >= 1)
        return (int64_t)times * concurrency;
    const char *p = strstr(notes, " prompts");
    if (!p)
        p = strstr(notes, " requests");
    if (!p)
        return otherwise;
    const char *q = p;
    while (q > notes && q[-1] >= '0' && q[-1] <= '9')
        q--;
    return q < p ? strtoll(q, NULL, 10) : otherwise;
}

static const char *describe(const struct validate_row *r, const struct model *m, const char *chip,
                            struct serve_point *p) {
    static const char *const budget[] = {"max-num-batched-tokens", "chunked-prefill", NULL};
    static const char *const seqs[] = {"max-num-seqs", "max-running", NULL};
    static const char *const page[] = {"page", "block", NULL};
    bool at_once = validate_has(r->notes, "at once");
    if (validate_has(r->notes, "prefix caching ON") || validate_has(r->notes, "prefix cache hit"))
        return "prefix caching with an unknown hit rate: the prefill work is not known";
    if (r->isl < 1 || r->osl < 1)
        return "input and output lengths are not stated";
    if (r->concurrency < 1 && !at_once)
        return "the concurrency is not stated";
    if (r->chips < 1)
        return "the number of chips is not stated";
    double data = validate_find_number(r->sharding, "data=");
    if (data > 1 && m->experts)
        return "data-parallel attention over shared experts has no model yet";
    if (validate_has(r->notes, "a software effect"))
        return "the source blames a slow software path of the time";
    *p = (struct serve_point){
        .isl = (int64_t)(r->isl + 0.5), .osl = (int64_t)(r->osl + 0.5), .ratio = 1};
    p->concurrency = r->concurrency >= 1 ? (int64_t)r->concurrency : 1000000;
    p->requests =
        prompts(r->notes, p->concurrency, r->concurrency >= 1 ? 10 * p->concurrency : 1000);
    if (at_once)
        p->concurrency = p->requests;
    double ratio = validate_find_number(r->notes, "range-ratio");
    if (ratio > 0 && ratio < 1)
        p->ratio = ratio;
    if (strstr(r->metric, "ttft") && validate_has(r->notes, "separate run with output length 1")) {
        p->osl = 1;
        p->concurrency = p->requests;
    }
    snprintf(p->options[p->noptions++], sizeof p->options[0], "chip=%s", chip);
    option(p, "chips", (int64_t)r->chips);
    option(p, "max_batched_tokens", setting(r->notes, budget, 2048));
    option(p, "max_seqs", setting(r->notes, seqs, 256));
    option(p, "block_size", setting(r->notes, page, 128));
    if (strncmp(r->group, "sgl-", 4) == 0) {
        /* SGLang-JAX does not hide its host work: what its small batches take beside the device.
         * Fitted on the shared sgl-* rows. */
        snprintf(p->options[p->noptions++], sizeof p->options[0], "async_scheduling=off");
        snprintf(p->options[p->noptions++], sizeof p->options[0], "host_overhead=5ms");
    }
    if (data >= 1)
        option(p, "data", (int64_t)data);
    if (m->experts && (validate_has(r->sharding, "expert") || validate_has(r->sharding, "moe=")))
        option(p, "expert", (int64_t)(r->chips * (strcmp(chip, "7x") == 0 ? 2 : 1)));
    return NULL;
}

/* Appends "weights=fp8 kv=fp8": the option list holds one pair an entry. */
static void add_types(struct serve_point *p, const char *types) {
    while (*types && p->noptions < OPTIONS_MAX) {
        size_t n = strcspn(types, " ");
        snprintf(p->options[p->noptions++], sizeof p->options[0], "%.*s", (int)n, types);
        types += n + (types[n] == ' ');
    }
}

static int cached(struct validator *v, const struct serve_point *p, const struct model *m,
                  const char *chip, const struct serve_cache **out, struct err *e) {
    char key[sizeof((struct serve_cache *)0)->key];
    int at = snprintf(key, sizeof key, "%s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %.3f",
                      m->name, p->isl, p->osl, p->requests, p->concurrency, p->ratio);
    for (int i = 0; i < p->noptions; i++)
        at += snprintf(key + at, sizeof key - (size_t)at, " %s", p->options[i]);
    for (struct serve_cache *c = v->serve; c; c = c->next)
        if (strcmp(c->key, key) == 0) {
            *out = c;
            return 0;
        }
    struct serve_cache *c = arena_alloc(&v->arena, 1, sizeof *c);
    if (!c)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    snprintf(c->key, sizeof c->key, "%s", key);
    int rc = simulate(v, p, m, chip, &c->r, &c->why, e);
    if (rc)
        return rc;
    c->next = v->serve;
    v->serve = c;
    *out = c;
    return 0;
}

static const char *metric(const struct validate_row *r, const struct serve_result *x,
                          struct validate_answer *a) {
    double tokens = x->output_tokens, s = x->duration_s;
    const struct {
        const char *metric, *kind;
        double got;
    } list[] = {
        {"output_token_throughput", "throughput", tokens / s},
        {"output_tok_per_s", "throughput", tokens / s},
        {"output_tok_per_s_per_chip", "throughput", tokens / s / r->chips},
        {"total_token_throughput", "throughput", (tokens + x->input_tokens) / s},
        {"input_token_throughput", "throughput", x->input_tokens / s},
        {"request_throughput", "throughput", x->requests / s},
        {"peak_output_token_throughput", "peak_throughput", x->peak_tokens_per_s},
        {"duration", "duration", s},
        {"mean_ttft", "ttft", x->mean_ttft_s * 1e3},
        {"median_ttft", "ttft", x->median_ttft_s * 1e3},
        {"p99_ttft", "ttft_p99", x->p99_ttft_s * 1e3},
        {"mean_tpot", "tpot", x->mean_tpot_s * 1e3},
        {"median_tpot", "tpot", x->median_tpot_s * 1e3},
        {"p99_tpot", "tpot_p99", x->p99_tpot_s * 1e3},
        {"mean_itl", "itl", x->mean_itl_s * 1e3},
        {"median_itl", "itl", x->median_itl_s * 1e3},
        {"p99_itl", "itl_p99", x->p99_itl_s * 1e3},
        {"mean_e2e", "e2e", x->mean_e2e_s * 1e3},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (strcmp(list[i].metric, r->metric) == 0) {
            a->kind = list[i].kind;
            a->got = list[i].got;
            return isfinite(a->got) && a->got > 0 ? NULL : "the simulated run has no such figure";
        }
    return "no model of this metric";
}

static int mixed_row(struct validator *v, const struct validate_row *r, const struct model *m,
                     const char *chip, struct validate_answer *a, struct err *e) {
    struct serve_point p;
    a->why = describe(r, m, chip, &p);
    if (a->why)
        return 0;
    add_types(&p, types_of(r->quant));
    const struct serve_cache *c = NULL;
    int rc = cached(v, &p, m, chip, &c, e);
    if (rc)
        return rc;
    a->why = c->why ? c->why : metric(r, &c->r, a);
    a->size_class = validate_class(v, (double)p.concurrency, concurrency_classes);
    return 0;
}

int validate_serve_row(struct validator *v, const struct validate_row *r, struct validate_answer *a,
                       struct err *e) {
    struct model m;
    const char *chip = validate_chip_name(r->chip);
    if (strcmp(r->phase, "serve_spec") == 0)
        a->why = "speculative decoding has no model yet";
    else if (validate_has(r->notes, "linear attention") || validate_has(r->model, "Kimi-Linear") ||
             validate_has(r->model, "Qwen3.5"))
        a->why = "layers of linear attention have no model yet";
    else if (validate_has(r->model, "MiMo-V2"))
        a->why = "two kinds of KV heads and keys wider than values: no model of this attention yet";
    else if (!validate_model(r->model, &m))
        a->why = "the model's shape is not known here, or it is no decoder";
    else if (strncmp(r->phase, "mlperf", 6) == 0)
        a->why = "beam search over a data set whose lengths are not stated";
    else if (strcmp(r->phase, "serve_mixed") == 0 || strcmp(r->phase, "serve_offline") == 0)
        return mixed_row(v, r, &m, chip, a, e);
    else
        return validate_step_row(v, r, &m, a, e);
    return 0;
}

void validate_serve_release(struct validator *v) {
    v->serve = NULL; /* lives in the arena */
}
