/* The spine: prepare, register, load, close the log, compute, judge, sign, store, summarise. */
#include "harness/run/beside.h"
#include "harness/run/run_internal.h"

#include "harness/core/clock.h"
#include "harness/core/json.h"
#include "results/hash.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct shard {
    struct driver_args args;
    struct driver_progress progress;
    pthread_t thread;
    bool started;
    int rc;
    struct err err;
};

struct execution {
    const struct run_options *o;
    struct prepared *p;
    struct log_writer *log;
    struct shard *shards;
    struct sketch *latency;
    int64_t started_mono_ns, shown_ns, total;
    int64_t rate_base_done, rate_base_ns;
};

static void *shard_main(void *arg) {
    struct shard *s = arg;
    s->rc = driver_run(&s->args, &s->err);
    return NULL;
}

/* Called by shard 0 about every 50 ms: the log's health, and the progress line. */
static int on_tick(void *ctx, struct err *e) {
    struct execution *x = ctx;
    int rc = log_writer_error(x->log, e);
    if (rc)
        return rc;
    int64_t t = clock_now_ns();
    if (!x->o->progress || t - x->shown_ns < 100 * NS_PER_MS)
        return 0;
    x->shown_ns = t;
    struct run_progress p = {.elapsed_ns = t - x->started_mono_ns, .total = x->total};
    for (uint32_t i = 0; i < x->p->threads; i++) {
        const struct driver_progress *s = &x->shards[i].progress;
        p.issued += atomic_load_explicit(&s->issued, memory_order_relaxed);
        p.done += atomic_load_explicit(&s->done, memory_order_relaxed);
        p.failed += atomic_load_explicit(&s->failed, memory_order_relaxed);
        p.in_flight += atomic_load_explicit(&s->in_flight, memory_order_relaxed);
    }
    p.rate_per_s = p.elapsed_ns ? (double)p.done * 1e9 / (double)p.elapsed_ns : 0;
    p.e2e_p50_ns = sketch_quantile(x->latency, 0.5);
    p.e2e_p99_ns = sketch_quantile(x->latency, 0.99);
    x->o->progress(x->o->progress_ctx, &p);
    return 0;
}

/* Runs the shards, the first of them in this thread; gives the first real error. */
static int drive(struct execution *x, struct err *e) {
    struct prepared *p = x->p;
    struct driver_shared shared;
    driver_shared_init(&shared, p->threads);
    int rc = 0;
    for (uint32_t i = 0; i < p->threads; i++)
        x->shards[i].args = (struct driver_args){
            .workload = p->workload,
            .backend = p->backends[i],
            .virtual_clock = p->info.virtual_clock,
            .sink = &p->sinks[i],
            .shard = i,
            .shared = &shared,
            .progress = &x->shards[i].progress,
            .latency = i == 0 && x->o->progress ? x->latency : NULL,
            .grace_ns = x->o->grace_ns,
            .stop = x->o->stop,
            .tick = i == 0 ? on_tick : NULL,
            .tick_ctx = x,
        };
    for (uint32_t i = 1; i < p->threads; i++) {
        x->shards[i].started =
            pthread_create(&x->shards[i].thread, NULL, shard_main, &x->shards[i]) == 0;
        if (!x->shards[i].started) {
            rc = err_set(e, ASSAY_EENV, "cannot start thread %u of %u", i, p->threads);
            pthread_mutex_lock(&shared.lock);
            shared.failed = true;
            pthread_mutex_unlock(&shared.lock);
            break;
        }
    }
    if (!rc)
        shard_main(&x->shards[0]);
    for (uint32_t i = 1; i < p->threads; i++)
        if (x->shards[i].started)
            pthread_join(x->shards[i].thread, NULL);
    driver_shared_release(&shared);
    for (uint32_t i = 0; !rc && i < p->threads; i++)
        if (x->shards[i].rc && x->shards[i].rc != ASSAY_EINTERRUPTED) {
            *e = x->shards[i].err;
            rc = x->shards[i].rc;
        }
    if (*x->o->stop)
        return ASSAY_EINTERRUPTED;
    return rc;
}

/* ---- the end of a run ---- */

struct outcome {
    struct client_health health;
    uint64_t chunks, bytes, stalls;
    unsigned char log_digest[32];
    int64_t finished_wall_ns;
    json_t *client, *bottleneck, *clock, *observed;
};

static json_t *clock_json(const struct prepared *p, const struct client_health *h) {
    bool virtual_clock = p->info.virtual_clock;
    return json_pack("{s:s, s:b, s:s, s:b, s:I}", "source",
                     virtual_clock ? "discrete-event" : "CLOCK_MONOTONIC", "virtual", virtual_clock,
                     "resolutionNs", "1", "stepped", clock_was_stepped(h), "wallMinusMonotonicNs",
                     (json_int_t)(h->wall_ns - h->mono_ns));
}

json_t *bottleneck_json(const struct backend_share *s, int n) {
    json_t *a = json_array();
    for (int i = 0; a && i < n; i++)
        json_array_append_new(
            a, json_pack("{s:s, s:f}", "resource", s[i].resource, "share", s[i].share));
    return a;
}

/* One object a thread; NULL when the backend has nothing to say. */
static json_t *observe(const struct prepared *p) {
    if (!p->ops->observe)
        return NULL;
    json_t *a = json_array();
    for (uint32_t i = 0; a && i < p->threads; i++) {
        json_t *seen = p->ops->observe(p->backends[i]);
        if (seen)
            json_array_append_new(a, seen);
    }
    return a;
}

static bool judge(const struct prepared *p, const struct outcome *x, bool interrupted,
                  struct run_result *r) {
    struct rules_facts f = {.interrupted = interrupted,
                            .clock_stepped = !p->info.virtual_clock && clock_was_stepped(&x->health),
                            .real_clock = !p->info.virtual_clock,
                            .no_system = p->result_class == CLASS_NONE,
                            .seed = p->workload->seed,
                            .max_concurrency = p->facts.max_concurrency};
    r->nverdicts = rules_evaluate(p->rules, &r->metrics, &f, r->verdict);
    bool ok = true;
    for (int i = 0; i < r->nverdicts; i++)
        ok = ok && r->verdict[i].ok;
    return ok;
}

static int close_run(struct store *s, const struct secret_key *key, const struct prepared *p,
                     const struct run_begin *begin, const struct run_handle *h,
                     const struct outcome *x, const struct beside *beside, struct run_result *r,
                     unsigned char record_sha256[32], struct err *e) {
    struct buf payload;
    buf_init(&payload, DSSE_PAYLOAD_MAX_BYTES);
    struct record_input in = {
        .begin = begin,
        .handle = h,
        .metrics = &r->metrics,
        .facts = &p->facts,
        .verdicts = r->verdict,
        .nverdicts = r->nverdicts,
        .verdict = r->valid ? "VALID" : "INVALID",
        .finished_wall_ns = x->finished_wall_ns,
        .monotonic_duration_ns = x->health.mono_ns,
        .result_class = result_class_name(p->result_class),
        .system_name = json_string_value(json_object_get(p->system, "name")),
        .chip = p->info.chip,
        .chips = p->info.chips,
        .log_chunks = x->chunks,
        .log_bytes = x->bytes,
        .clock = x->clock,
        .client = x->client,
        .observed = x->observed,
        .bottleneck = x->bottleneck,
        .server = beside->server,
        .power = beside->power,
        .series_digest = beside->any ? beside->digest : NULL,
        .workload = p->workload,
    };
    memcpy(in.log_digest, x->log_digest, sizeof in.log_digest);
    struct dsse_signature sig;
    int rc = record_build(&in, &payload, e);
    if (!rc)
        rc = dsse_sign(DSSE_PAYLOAD_TYPE, payload.p, payload.n, key, &sig, e);
    if (!rc) {
        sha256(payload.p, payload.n, record_sha256);
        struct run_end end = {.verdict = in.verdict,
                              .finished_wall_ns = x->finished_wall_ns,
                              .duration_ns = r->metrics.duration_ns,
                              .metrics = &r->metrics,
                              .verdicts = r->verdict,
                              .nverdicts = r->nverdicts,
                              .payload = payload.p,
                              .payload_bytes = payload.n,
                              .signature = &sig,
                              .key = secret_key_public(key),
                              .series = beside->any ? &beside->log : NULL};
        rc = store_run_end(s, h, &end, e);
    }
    buf_release(&payload);
    return rc;
}

/* What a failed run leaves: its register entry is closed as aborted, with the reason. */
static void abort_run(struct store *s, const struct run_handle *h, const char *reason) {
    struct run_end end = {.verdict = "ABORTED",
                          .finished_wall_ns = clock_wall_ns(),
                          .abort_reason = reason};
    struct err ignored = {0};
    if (store_run_end(s, h, &end, &ignored))
        return; /* the next start closes it as crash-recovered */
}

static int compute(struct store *s, const struct run_handle *h, const struct prepared *p,
                   struct metrics *m, struct err *e) {
    struct eventlog_source src;
    int rc = store_log_open(s, h->run_id, &src, e);
    if (rc)
        return rc;
    rc = metrics_compute(&src, &p->facts, m, e);
    store_log_close(&src);
    return rc;
}

static const char *load_kind(const struct workload *w) {
    return workload_has_sessions(w) ? "sessions" : pattern_kind_name(w->pattern.kind);
}

int run_execute(const struct run_options *o, struct run_result *r, struct err *e) {
    struct prepared p;
    struct store *store = NULL;
    struct secret_key *key = NULL;
    struct execution x = {.o = o, .p = &p};
    struct outcome out = {0};
    struct beside beside = {0};
    struct run_handle h;
    bool begun = false, interrupted = false;
    char seed[24];
    *r = (struct run_result){0};

    int rc = prepare_load(o, &p, e);
    if (!rc)
        rc = prepare_backend(o, &p, e);
    if (!rc)
        rc = beside_open(o, &p, &beside, e);
    if (!rc)
        rc = runner_key_load(o->key, &key, &r->key_created, r->key_path, sizeof r->key_path, e);
    if (!rc)
        rc = store_open(o->db, STORE_WRITE, &store, &r->recovered_runs, e);
    if (rc)
        goto done;

    snprintf(seed, sizeof seed, "%llu", (unsigned long long)p.workload->seed);
    struct run_begin begin = {
        .campaign = o->campaign,
        .workload = p.workload->effective_json,
        .workload_file = p.workload->file_json,
        .system = p.system,
        .rules = rules_json(p.rules),
        .backend = p.backend,
        .environment = p.environment,
        .mode = "performance",
        .load_kind = load_kind(p.workload),
        .load_value = p.workload->pattern.value,
        .seed = seed,
        .started_wall_ns = clock_wall_ns(),
    };
    uuid_v7(begin.uuid);
    if ((rc = store_run_begin(store, &begin, &h, e)))
        goto done;
    begun = true;
    memcpy(r->uuid, h.uuid, sizeof r->uuid);

    x.shards = calloc(p.threads, sizeof *x.shards);
    x.latency = calloc(1, sizeof *x.latency);
    if (!x.shards || !x.latency) {
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
        goto done;
    }
    if ((rc = log_writer_open(store, &h, p.threads, p.sinks, &x.log, e)))
        goto done;
    if ((rc = beside_start(&beside, e)))
        goto done;
    x.total = run_total(p.workload);
    x.started_mono_ns = clock_now_ns();
    client_health_start(&out.health);
    rc = drive(&x, e);
    client_health_stop(&out.health);
    beside_stop(&beside);
    out.finished_wall_ns = clock_wall_ns();
    interrupted = rc == ASSAY_EINTERRUPTED;
    out.stalls = log_writer_stalls(x.log);
    struct err log_err = {0};
    int log_rc = log_writer_close(x.log, &out.chunks, &out.bytes, out.log_digest,
                                  rc && !interrupted ? &log_err : e);
    x.log = NULL;
    if (rc && !interrupted)
        goto done;
    if ((rc = log_rc))
        goto done;

    struct backend_share shares[16];
    int nshares = p.ops->shares ? p.ops->shares(p.backends[0], shares, 16) : 0;
    out.bottleneck = bottleneck_json(shares, nshares);
    out.observed = observe(&p);
    out.client = client_health_json(&out.health, p.threads, out.stalls);
    out.clock = clock_json(&p, &out.health);
    if ((rc = compute(store, &h, &p, &r->metrics, e)))
        goto done;
    if ((rc = beside_report(&beside, store, &h, &p, &r->metrics, e)))
        goto done;
    r->valid = judge(&p, &out, interrupted, r);
    unsigned char record_sha256[32];
    if ((rc = close_run(store, key, &p, &begin, &h, &out, &beside, r, record_sha256, e)))
        goto done;
    begun = false;
    r->summary = run_summary(&p, &h, r, out.bottleneck, out.client, out.observed, record_sha256);
    beside_summary(&beside, r->summary);
    if (interrupted)
        rc = err_set(e, ASSAY_EINTERRUPTED, "interrupted: what was measured is stored as run %s",
                     h.uuid);
    else if (!r->valid)
        rc = err_set(e, ASSAY_ENEGATIVE, "run %s is not valid", h.uuid);

done:
    if (begun)
        abort_run(store, &h, e ? e->text : "error");
    json_decref(out.bottleneck);
    json_decref(out.client);
    json_decref(out.observed);
    json_decref(out.clock);
    free(x.shards);
    free(x.latency);
    store_close(store);
    secret_key_free(key);
    beside_release(&beside);
    prepared_release(&p);
    return rc;
}

void run_result_release(struct run_result *r) {
    metrics_release(&r->metrics);
    json_decref(r->summary);
    r->summary = NULL;
}
