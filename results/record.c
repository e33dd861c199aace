/* The record's builder: from what a run knows to canonical Statement bytes. Every figure of the
 * store's tables is in it, so that the tables can be made again from records alone. Reading is
 * record_read.c's. */
#include "results/record.h"

#include "harness/core/clock.h"
#include "harness/core/version.h"
#include "results/hash.h"
#include "results/jcs.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define EXACT_MAX INT64_C(9007199254740991) /* 2^53 - 1: beyond it integers travel as strings */

/* ---- values under the profile; all return new references, NULL when memory or sense is lacking
 * ---- */

static json_t *i64_string(int64_t v) {
    return json_sprintf("%" PRId64, v);
}

static json_t *i64_json(int64_t v) {
    return v > EXACT_MAX || v < -EXACT_MAX ? i64_string(v) : json_integer(v);
}

static json_t *f64_json(double v) {
    char text[32];
    if (fabs(v) <= (double)EXACT_MAX)
        return json_real(v);
    return jcs_number(v, text, NULL) ? NULL
                                     : json_string(text); /* so large that it is an integer */
}

static json_t *digest_json(const unsigned char digest[32]) {
    char hex[SHA256_HEX];
    hex_encode(digest, 32, hex);
    return json_pack("{s:s}", "sha256", hex);
}

static json_t *time_json(int64_t wall_ns) {
    char text[32];
    clock_rfc3339(wall_ns, text, sizeof text);
    return json_string(text);
}

/* A copy in which every number keeps to the profile, whoever made the original. */
static json_t *profile_copy(const json_t *v) {
    if (json_is_integer(v))
        return i64_json(json_integer_value(v));
    if (json_is_real(v))
        return f64_json(json_real_value(v));
    if (json_is_array(v)) {
        json_t *a = json_array();
        for (size_t i = 0; a && i < json_array_size(v); i++)
            if (json_array_append_new(a, profile_copy(json_array_get(v, i)))) {
                json_decref(a);
                return NULL;
            }
        return a;
    }
    if (json_is_object(v)) {
        json_t *o = json_object(), *shallow = json_copy((json_t *)(uintptr_t)v), *member;
        const char *name;
        bool bad = !o || !shallow;
        if (!bad)
            json_object_foreach(shallow, name, member) bad =
                bad || json_object_set_new(o, name, profile_copy(member));
        json_decref(shallow);
        if (!bad)
            return o;
        json_decref(o);
        return NULL;
    }
    return json_deep_copy(v);
}

json_t *record_profile_copy(const json_t *v) {
    return profile_copy(v);
}

/* ---- objects under construction ---- */

/* Remembers the first member that could not be made; later puts go on and change nothing. */
struct object {
    json_t *json;
    const char *bad;
};

static struct object object_new(void) {
    struct object o = {.json = json_object()};
    o.bad = o.json ? NULL : "object";
    return o;
}

/* Takes v. */
static void put(struct object *o, const char *name, json_t *v) {
    if (json_object_set_new(o->json, name, v) && !o->bad)
        o->bad = name;
}

static void put_text(struct object *o, const char *name, const char *text) {
    put(o, name, json_string(text ? text : "unknown"));
}

static void put_object(struct object *o, const char *name, struct object v) {
    if (v.bad && !o->bad)
        o->bad = v.bad;
    put(o, name, v.json);
}

static const char *text_of(const json_t *o, const char *name) {
    return json_string_value(json_object_get(o, name));
}

/* ---- the predicate's parts, in the order of certification.md section 5 ---- */

static json_t *invalid_reasons(const struct record_input *in) {
    json_t *a = json_array();
    for (int i = 0; a && i < in->nverdicts; i++) {
        const struct verdict *v = &in->verdicts[i];
        bool there = v->ok;
        for (size_t k = 0; k < json_array_size(a); k++)
            there = there || strcmp(json_string_value(json_array_get(a, k)), v->reason_code) == 0;
        if (!there && json_array_append_new(a, json_string(v->reason_code))) {
            json_decref(a);
            return NULL;
        }
    }
    return a;
}

static struct object run_part(const struct record_input *in) {
    const struct run_begin *b = in->begin;
    const struct run_handle *h = in->handle;
    struct object o = object_new(), load = object_new();
    put_text(&o, "runId", h->uuid);
    put(&o, "registerSeq", i64_json(h->register_seq));
    put_text(&o, "campaign", h->campaign);
    put(&o, "attempt", i64_json(h->attempt));
    put(&o, "startedOn", time_json(b->started_wall_ns));
    put(&o, "finishedOn", time_json(in->finished_wall_ns));
    put(&o, "monotonicDurationNs", i64_string(in->monotonic_duration_ns));
    put_text(&o, "verdict", in->verdict);
    put(&o, "invalidReasons", invalid_reasons(in));
    put_text(&o, "seed", b->seed);
    put_text(&o, "mode", b->mode);
    put_text(&load, "kind", b->load_kind);
    put(&load, "value", f64_json(b->load_value));
    put_object(&o, "load", load);
    return o;
}

static struct object harness_part(const struct record_input *in) {
    struct object o = object_new(), source = object_new();
    put_text(&o, "name", "assay");
    put_text(&o, "version", assay_version);
    put(&o, "digest", digest_json(in->handle->harness_sha256));
    if (strlen(assay_git_commit) == 40)
        put(&source, "digest", json_pack("{s:s}", "gitCommit", assay_git_commit));
    put_object(&o, "source", source);
    /* a binary that does not know its tree cannot claim that it was clean */
    put(&o, "dirty",
        json_boolean(strstr(assay_version, "dirty") != NULL ||
                     strcmp(assay_version, "unknown") == 0));
    return o;
}

/* Files that the workload reads besides its definition: a trace, or none. The digest is SHA-256
 * over lines "hexsha256 SP SP path LF"; over no lines when all is generated from the seed. */
static struct object dataset_part(const json_t *workload) {
    struct object o = object_new();
    const json_t *trace = json_object_get(workload, "trace");
    const char *path = text_of(trace, "path"), *sha = text_of(trace, "sha256");
    const char *base = path && strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    struct buf lines;
    unsigned char digest[32];
    buf_init(&lines, 8192);
    if (path && sha)
        buf_printf(&lines, "%s  %s\n", sha, base);
    put_text(&o, "name", !path ? "synthetic" : base);
    if (!path || sha) {
        sha256(lines.p, lines.n, digest);
        put(&o, "digest", digest_json(digest));
    } else {
        put(&o, "digest", json_null()); /* whoever loaded the trace did not say what it read */
    }
    if (lines.failed)
        o.bad = "dataset";
    buf_release(&lines);
    return o;
}

static struct object workload_part(const struct record_input *in, struct err *e) {
    const struct run_begin *b = in->begin;
    const json_t *w = b->workload, *model = json_object_get(w, "model");
    struct object o = object_new();
    const char *model_name = json_is_string(model)     ? json_string_value(model)
                             : text_of(model, "$name") ? text_of(model, "$name")
                                                       : text_of(model, "name");
    put_text(&o, "name", text_of(w, "name"));
    put_text(&o, "version", text_of(w, "version"));
    if (text_of(w, "kind"))
        put_text(&o, "kind", text_of(w, "kind"));
    if (model_name)
        put_text(&o, "model", model_name);
    put(&o, "digest", digest_json(in->handle->workload_sha256));
    if (b->workload_file) {
        unsigned char digest[32];
        if (jcs_sha256(b->workload_file, digest, e))
            o.bad = "workload.file";
        else
            put(&o, "file", json_pack("{s:o}", "digest", digest_json(digest)));
    }
    put_object(&o, "dataset", dataset_part(w));
    put_text(&o, "scenario", b->load_kind);
    if (text_of(w, "pattern"))
        put_text(&o, "pattern", text_of(w, "pattern"));
    if (strcmp(b->load_kind, "concurrency") == 0)
        put(&o, "concurrency", f64_json(b->load_value));
    else if (strcmp(b->load_kind, "poisson") == 0 || strcmp(b->load_kind, "constant") == 0 ||
             strcmp(b->load_kind, "gamma") == 0)
        put(&o, "targetQps", f64_json(b->load_value));
    json_t *overrides = json_array();
    for (int i = 0; in->workload && i < in->workload->noverrides; i++)
        if (json_array_append_new(overrides, json_string(in->workload->overrides[i])))
            o.bad = "workload.overrides";
    put(&o, "overrides", overrides);
    return o;
}

static struct object system_part(const struct record_input *in) {
    struct object o = object_new();
    put_text(&o, "name", in->system_name);
    put_text(&o, "class", in->result_class);
    put(&o, "descriptor", json_pack("{s:o}", "digest", digest_json(in->handle->system_sha256)));
    put_text(&o, "accelerator", in->chip && in->chip[0] ? in->chip : NULL);
    put(&o, "accelerators", i64_json(in->chips)); /* 0 = unknown */
    return o;
}

/* A backend's own words: model version, engine settings, chip, calibration. What is long (a whole
 * chip file) is named by its digest; the backend document, which config.digest covers, has it in
 * full. */
static struct object details_part(const json_t *details, struct err *e) {
    enum { INLINE_MAX_BYTES = 1024 };
    struct object o = object_new();
    struct buf text;
    json_t *shallow = json_copy((json_t *)(uintptr_t)details), *v;
    const char *name;
    buf_init(&text, 1024 * 1024);
    json_object_foreach(shallow, name, v) {
        unsigned char digest[32];
        buf_clear(&text);
        json_t *copy = profile_copy(v);
        if (!copy || jcs_encode(copy, &text, e))
            o.bad = "backend.details";
        if (text.n <= INLINE_MAX_BYTES) {
            put(&o, name, copy);
            continue;
        }
        json_decref(copy);
        sha256(text.p, text.n, digest);
        put(&o, name, json_pack("{s:o}", "digest", digest_json(digest)));
    }
    json_decref(shallow);
    buf_release(&text);
    return o;
}

static struct object backend_part(const struct record_input *in, struct err *e) {
    struct object o = object_new();
    const json_t *b = in->begin->backend, *details = json_object_get(b, "details");
    put_text(&o, "name", text_of(b, "name"));
    put_text(&o, "version", text_of(b, "version"));
    put(&o, "config", json_pack("{s:o}", "digest", digest_json(in->handle->backend_sha256)));
    if (text_of(b, "modelId") && text_of(b, "modelId")[0])
        put_text(&o, "modelId", text_of(b, "modelId"));
    if (details)
        put_object(&o, "details", details_part(details, e));
    return o;
}

static struct object rules_part(const struct record_input *in) {
    struct object o = object_new();
    const json_t *r = in->begin->rules;
    put_text(&o, "name", text_of(r, "name"));
    /* a version may be written as a number in the pack */
    const json_t *version = json_object_get(r, "version");
    if (json_is_integer(version))
        put(&o, "version", i64_string(json_integer_value(version)));
    else
        put_text(&o, "version", json_string_value(version));
    put(&o, "digest", digest_json(in->handle->rules_sha256));
    return o;
}

static json_t *verdicts_part(const struct record_input *in) {
    json_t *a = json_array();
    for (int i = 0; a && i < in->nverdicts; i++) {
        const struct verdict *v = &in->verdicts[i];
        struct object o = object_new();
        put_text(&o, "rule", v->rule);
        put(&o, "ok", json_boolean(v->ok));
        put_text(&o, "want", v->want);
        put_text(&o, "got", v->got);
        put_text(&o, "reasonCode", v->reason_code);
        if (json_array_append_new(a, o.json) || o.bad) {
            json_decref(a);
            return NULL;
        }
    }
    return a;
}

static struct object counts_part(const struct metrics *m) {
    struct object o = object_new(), classes = object_new();
    put(&o, "issued", i64_json(m->issued));
    put(&o, "completed", i64_json(m->completed));
    put(&o, "failed", i64_json(m->failed));
    for (int i = 0; i < FAIL_TABLE; i++)
        if (m->failed_by_class[i])
            put(&classes, fail_class_name(i), i64_json(m->failed_by_class[i]));
    put_object(&o, "failedByClass", classes);
    put(&o, "inFlightAtEnd", i64_json(m->in_flight_at_end));
    put(&o, "warmupRequests", i64_json(m->warmup_requests));
    put(&o, "inputTokens", i64_json(m->input_tokens));
    put(&o, "outputTokens", i64_json(m->output_tokens));
    put(&o, "tokenEvents", i64_json(m->token_events));
    put(&o, "events", i64_json(m->events));
    put(&o, "windowNs", i64_string(m->duration_ns));
    put(&o, "interrupted", json_boolean(m->interrupted));
    return o;
}

/* An interval, or the reason why there is none: a simulation repeats to the bit, and one run says
 * nothing about the spread between runs. */
static json_t *metric_json(const struct metric *m, bool virtual_clock) {
    struct object o = object_new();
    put_text(&o, "name", m->name);
    put_text(&o, "stat", m->stat);
    put(&o, "value", f64_json(m->value));
    put_text(&o, "unit", m->unit);
    put(&o, "n", i64_json(m->n));
    put_text(&o, "better", m->better);
    if (metric_client_moves(m)) {
        put(&o, "clientLo", f64_json(m->client_lo));
        put(&o, "clientHi", f64_json(m->client_hi));
    }
    if (m->ci_level > 0) {
        struct object ci = object_new();
        put(&ci, "level", f64_json(m->ci_level));
        put(&ci, "lo", f64_json(m->ci_lo));
        put(&ci, "hi", f64_json(m->ci_hi));
        put_text(&ci, "method", "ci/order-statistic");
        put_object(&o, "ci", ci);
    } else {
        put(&o, "ci", json_null());
        put_text(&o, "ciReason", virtual_clock ? "deterministic" : "single-run");
    }
    if (!o.bad)
        return o.json;
    json_decref(o.json);
    return NULL;
}

static json_t *metrics_part(const struct record_input *in) {
    bool virtual_clock = json_is_true(json_object_get(in->clock, "virtual"));
    json_t *a = json_array();
    for (int i = 0; a && i < in->metrics->n; i++)
        if (json_array_append_new(a, metric_json(&in->metrics->m[i], virtual_clock))) {
            json_decref(a);
            return NULL;
        }
    return a;
}

/* Doubles as numbers where the profile lets them be; durations always as strings. */
static struct object facts_part(const struct metrics_facts *f) {
    struct object o = object_new();
    put(&o, "chips", i64_json(f->chips));
    put(&o, "peakFlopsPerS", f64_json(f->peak_flops_per_s));
    put(&o, "flopsPerToken", f64_json(f->flops_per_token));
    put(&o, "limitTtftNs", i64_string(f->limit_ttft_ns));
    put(&o, "limitTpotNs", i64_string(f->limit_tpot_ns));
    put(&o, "limitE2eNs", i64_string(f->limit_e2e_ns));
    put(&o, "maxConcurrency", i64_json(f->max_concurrency));
    return o;
}

static struct object warmup_part(const struct record_input *in) {
    struct object o = object_new();
    const json_t *w = json_object_get(in->begin->workload, "warmup");
    const json_t *requests = json_object_get(w, "requests");
    char rule[64] = "none";
    if (json_is_integer(requests))
        snprintf(rule, sizeof rule, "requests:%" PRId64, (int64_t)json_integer_value(requests));
    else if (text_of(w, "duration"))
        snprintf(rule, sizeof rule, "duration:%.40s", text_of(w, "duration"));
    put_text(&o, "rule", rule);
    put(&o, "dropped", i64_json(in->metrics->warmup_requests));
    put(&o, "steadyStateIndex", json_null()); /* not detected: the rule alone decides */
    return o;
}

static struct object log_part(const struct record_input *in) {
    struct object o = object_new();
    put_text(&o, "format", "assay-event-log");
    put(&o, "version", json_integer(EVENTLOG_VERSION));
    put(&o, "chunks", i64_json((int64_t)in->log_chunks));
    put(&o, "bytes", i64_json((int64_t)in->log_bytes));
    return o;
}

static struct object previous_part(const struct run_handle *h) {
    struct object o = object_new();
    char hex[SHA256_HEX];
    hex_encode(h->previous_root, 32, hex);
    put(&o, "registerSize", i64_json((int64_t)h->previous_size));
    put_text(&o, "registerRoot", hex);
    return o;
}

static struct object predicate(const struct record_input *in, struct err *e) {
    struct object p = object_new();
    put_object(&p, "run", run_part(in));
    put_object(&p, "harness", harness_part(in));
    put_object(&p, "workload", workload_part(in, e));
    put_object(&p, "system", system_part(in));
    put_object(&p, "backend", backend_part(in, e));
    put_object(&p, "rules", rules_part(in));
    put(&p, "environment",
        json_pack("{s:o}", "digest", digest_json(in->handle->environment_sha256)));
    put(&p, "clock", in->clock ? profile_copy(in->clock) : json_object());
    put(&p, "verdicts", verdicts_part(in));
    put_object(&p, "counts", counts_part(in->metrics));
    put(&p, "metrics", metrics_part(in));
    put_object(&p, "facts", facts_part(in->facts));
    put(&p, "definitions",
        json_pack("{s:s, s:s}", "percentile", "pctl/nearest-rank", "interval",
                  "ci/order-statistic"));
    put_object(&p, "warmup", warmup_part(in));
    put(&p, "outliers", json_pack("{s:s, s:i}", "policy", "none", "count", 0));
    put_object(&p, "log", log_part(in));
    put_object(&p, "previous", previous_part(in->handle));
    if (in->metrics->compat)
        put(&p, "compat", profile_copy(in->metrics->compat));
    if (in->client)
        put(&p, "client", profile_copy(in->client));
    if (in->observed)
        put(&p, "observed", profile_copy(in->observed));
    if (in->bottleneck)
        put(&p, "bottleneck", profile_copy(in->bottleneck));
    if (in->server)
        put(&p, "server", profile_copy(in->server));
    if (in->power)
        put(&p, "power", profile_copy(in->power));
    return p;
}

static json_t *subjects(const struct record_input *in) {
    const struct run_handle *h = in->handle;
    const struct {
        const char *name;
        const unsigned char *digest;
    } s[] = {
        {RECORD_SUBJECT_LOG, in->log_digest},
        {RECORD_SUBJECT_WORKLOAD, h->workload_sha256},
        {RECORD_SUBJECT_RULES, h->rules_sha256},
        {RECORD_SUBJECT_SYSTEM, h->system_sha256},
        {RECORD_SUBJECT_ENVIRONMENT, h->environment_sha256},
        {RECORD_SUBJECT_SERIES, in->series_digest},
    };
    json_t *a = json_array();
    for (size_t i = 0; a && i < sizeof s / sizeof s[0]; i++)
        if (s[i].digest &&
            json_array_append_new(a, json_pack("{s:s, s:o}", "name", s[i].name, "digest",
                                               digest_json(s[i].digest)))) {
            json_decref(a);
            return NULL;
        }
    return a;
}

int record_build(const struct record_input *in, struct buf *out, struct err *e) {
    struct object s = object_new();
    struct err detail = {0};
    put_text(&s, "_type", RECORD_STATEMENT_TYPE);
    put(&s, "subject", subjects(in));
    put_text(&s, "predicateType", RECORD_PREDICATE_TYPE);
    put_object(&s, "predicate", predicate(in, &detail));
    int rc = 0;
    if (s.bad) /* a NaN, a string that is not UTF-8, or no memory */
        rc = err_set(e, ASSAY_EINPUT, "the record's member '%s' cannot be written%s%s", s.bad,
                     detail.text[0] ? ": " : "", detail.text);
    else if ((rc = jcs_encode(s.json, out, e)))
        err_wrap(e, "the record");
    json_decref(s.json);
    return rc;
}
