/* The run's summary object, and the plan that a dry run prints. */
#include "harness/run/run_internal.h"

#include "results/hash.h"
#include "workloads/plan.h"

#include <string.h>

static json_t *digest_json(const unsigned char digest[32]) {
    char hex[SHA256_HEX];
    hex_encode(digest, 32, hex);
    return json_string(hex);
}

static json_t *verdicts_json(const struct run_result *r) {
    json_t *a = json_array();
    for (int i = 0; a && i < r->nverdicts; i++) {
        const struct verdict *v = &r->verdict[i];
        json_array_append_new(a, json_pack("{s:s, s:b, s:s, s:s}", "rule", v->rule, "ok", v->ok,
                                           "want", v->want, "got", v->got));
    }
    return a;
}

static json_t *backend_json(const struct prepared *p) {
    json_t *b = json_pack("{s:s, s:s}", "name", p->ops->name, "class",
                          result_class_name(p->result_class));
    if (b && p->info.chip[0])
        json_object_set_new(b, "chip", json_string(p->info.chip));
    if (b && p->info.chips)
        json_object_set_new(b, "chips", json_integer(p->info.chips));
    if (b && p->info.model_id[0])
        json_object_set_new(b, "model_id", json_string(p->info.model_id));
    return b;
}

/* What a reader should know before trusting the figures. */
static json_t *warnings_json(const struct run_result *r, const json_t *observed,
                             const json_t *client) {
    json_t *a = json_array();
    const struct metrics *m = &r->metrics;
    if (a && m->failed)
        json_array_append_new(
            a, json_sprintf("%lld of %lld requests failed; they are in no latency and no throughput",
                            (long long)m->failed, (long long)m->issued));
    if (a && m->in_flight_at_end)
        json_array_append_new(a, json_sprintf("%lld requests were still in flight at the end",
                                              (long long)m->in_flight_at_end));
    if (a && m->interrupted)
        json_array_append_new(a, json_string("the run was interrupted: figures are partial"));
    /* thresholds of doctor's warnings; stamps off a wire only */
    double steal = json_number_value(json_object_get(client, "steal_share")),
           seconds = (double)m->duration_ns / 1e9;
    int64_t forced = json_integer_value(json_object_get(client, "involuntary_switches"));
    if (a && m->stamps > m->stamps_unbounded && steal > 0.01)
        json_array_append_new(a, json_sprintf("the hypervisor took %.1f %% of the processor time during the run",
                                              100 * steal));
    if (a && m->stamps > m->stamps_unbounded && seconds > 0 && (double)forced / seconds > 100)
        json_array_append_new(a, json_sprintf("other work took the processor from the client %.0f times a second",
                                              (double)forced / seconds));
    size_t i, k;
    json_t *seen, *text;
    json_array_foreach(observed, i, seen) {
        json_array_foreach(json_object_get(seen, "warnings"), k, text) {
            if (a)
                json_array_append(a, text);
        }
    }
    return a;
}

json_t *run_summary(const struct prepared *p, const struct run_handle *h, const struct run_result *r,
                    const json_t *bottleneck, const json_t *client, const json_t *observed,
                    const unsigned char record_sha256[32]) {
    json_t *s = json_object();
    if (!s)
        return NULL;
    json_object_set_new(s, "run", json_string(h->uuid));
    json_object_set_new(s, "valid", json_boolean(r->valid));
    if (r->metrics.interrupted)
        json_object_set_new(s, "partial", json_true());
    json_object_set_new(s, "verdicts", verdicts_json(r));
    json_t *w = json_pack("{s:s, s:s, s:s, s:o}", "name", p->workload->name, "version",
                          p->workload->version, "kind", workload_kind_name(p->workload->kind),
                          "sha256", digest_json(h->workload_sha256));
    json_object_set_new(s, "workload", w);
    json_object_set_new(s, "backend", backend_json(p));
    json_object_set_new(s, "campaign", json_pack("{s:s, s:I}", "name", h->campaign, "attempt",
                                                 (json_int_t)h->attempt));
    json_object_set_new(s, "metrics", metrics_to_json(&r->metrics));
    if (r->metrics.compat)
        json_object_set(s, "compat", r->metrics.compat);
    if (json_array_size(bottleneck))
        json_object_set_new(s, "bottleneck", json_deep_copy(bottleneck));
    json_object_set_new(s, "client", json_deep_copy(client));
    json_object_set_new(s, "record_sha256", digest_json(record_sha256));
    json_object_set_new(s, "warnings", warnings_json(r, observed, client));
    return s;
}

/* ---- dry run ---- */

struct plan_facts {
    int64_t requests, input_tokens, output_tokens, last_arrival_ns;
    bool whole; /* the plan was walked to its end */
};

static bool count_request(void *ctx, const struct request *r) {
    enum { WALK_MAX = 200000 };
    struct plan_facts *f = ctx;
    f->requests++;
    f->input_tokens += r->isl;
    f->output_tokens += r->osl;
    if (r->arrival_ns > f->last_arrival_ns)
        f->last_arrival_ns = r->arrival_ns;
    return f->requests < WALK_MAX;
}

/* Walks the plan, sessions included, up to a limit; answers are as long as planned. */
static int walk(const struct workload *w, struct plan_facts *f, struct err *e) {
    struct plan *plan;
    int rc = plan_open(w, 0, 1, &plan, e);
    if (rc)
        return rc;
    *f = (struct plan_facts){0};
    rc = plan_walk(plan, count_request, f, &f->whole, e);
    plan_close(plan);
    return rc;
}

int64_t run_total(const struct workload *w) {
    if (w->kind == WORKLOAD_TRAINING)
        return w->warmup_requests + w->steps;
    struct plan *plan;
    if (plan_open(w, 0, 1, &plan, NULL))
        return -1;
    int64_t n = plan_total(plan);
    plan_close(plan);
    return n;
}

/* Least time that the pattern alone needs; 0 when only the system's speed decides. */
static double pattern_seconds(const struct workload *w, const struct plan_facts *f, int64_t total) {
    if (w->duration_ns)
        return (double)w->duration_ns * 1e-9;
    switch (w->pattern.kind) {
    case PATTERN_POISSON:
    case PATTERN_CONSTANT:
    case PATTERN_GAMMA:
        return w->pattern.value > 0 && total > 0 ? (double)total / w->pattern.value : 0;
    case PATTERN_TRACE:
        return (double)f->last_arrival_ns / w->pattern.value * 1e-9;
    case PATTERN_OFFLINE:
    case PATTERN_SINGLE:
    case PATTERN_CONCURRENCY:
        break;
    }
    return 0;
}

/* A backend with a virtual clock may have an option for the real one (null: clock=real). */
static bool is_virtual(const struct prepared *p) {
    json_t *options = options_to_json(p->ops->options, p->options);
    const char *clock = json_string_value(json_object_get(options, "clock"));
    bool real = clock && !strcmp(clock, "real");
    json_decref(options);
    return (p->ops->caps & BACKEND_VIRTUAL_CLOCK) && !real;
}

int run_plan(const struct run_options *o, json_t **out, struct err *e) {
    struct prepared p;
    int rc = prepare_load(o, &p, e);
    *out = NULL;
    if (rc)
        goto done;
    const struct workload *w = p.workload;
    struct plan_facts f = {0};
    if (w->kind != WORKLOAD_TRAINING && (rc = walk(w, &f, e)))
        goto done;
    int64_t total = run_total(w);
    if (total < 0 && f.whole)
        total = f.requests;
    json_t *estimate = json_object();
    json_t *plan = json_object();
    json_object_set_new(plan, "warmup_requests", json_integer(w->warmup_requests));
    if (total >= 0)
        json_object_set_new(plan, "requests_or_steps", json_integer(total));
    if (f.requests) {
        json_object_set_new(plan, "mean_input_tokens",
                            json_real((double)f.input_tokens / (double)f.requests));
        json_object_set_new(plan, "mean_output_tokens",
                            json_real((double)f.output_tokens / (double)f.requests));
        json_object_set_new(plan, "walked_requests", json_integer(f.requests));
    }
    double seconds = pattern_seconds(w, &f, total);
    if (seconds > 0) {
        json_object_set_new(estimate, "least_seconds", json_real(seconds));
        json_object_set_new(estimate, "clock", json_string(is_virtual(&p) ? "virtual" : "real"));
    }
    /* The log takes about 4 bytes a token event and 16 a request. Metrics take 72 bytes a request, and a
     * gap between token events 8, with a bound 10, and 8 more for the half of them that order
     * statistics gather at once when they are nearly equal, as on simulators (harness/measure/metrics.h);
     * what is left is the program itself. Not in it: the backend's own, such as 30 KiB a stream in flight over HTTP. */
    if (total >= 0 && f.requests) {
        double tokens = (double)f.output_tokens / (double)f.requests * (double)total,
               gaps = tokens > (double)total ? tokens - (double)total : 0, each = is_virtual(&p) ? 12 : 14;
        json_object_set_new(estimate, "log_bytes", json_integer((json_int_t)(tokens * 4 + (double)total * 16)));
        json_object_set_new(estimate, "memory_bytes",
                            json_integer((json_int_t)(gaps * each + (double)total * 72) + (20 << 20)));
    }
    *out = json_pack("{s:{s:s, s:s, s:s}, s:s, s:I, s:o, s:o, s:O}", "workload", "name", w->name,
                     "version", w->version, "kind", workload_kind_name(w->kind), "backend",
                     p.ops->name, "threads", (json_int_t)p.threads, "plan", plan, "estimate", estimate,
                     "effective", w->effective_json);
    if (!*out)
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
done:
    prepared_release(&p);
    return rc;
}
