/* Facts of a workload and of a trace: what its plan asks for, found by walking it. */
#include "harness/cli/inspect_internal.h"

#include "harness/core/buf.h"
#include "harness/core/options.h"
#include "results/hash.h"
#include "results/jcs.h"
#include "workloads/plan.h"
#include "workloads/trace.h"
#include "workloads/workload.h"

#include <stdlib.h>
#include <string.h>

/* A longer plan is described by its beginning; "requests_read" says so. */
enum { WALK_MAX = 2000000 };

static int compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

json_t *inspect_spread(int64_t *v, size_t n) {
    static const struct {
        const char *name;
        size_t per_hundred;
    } ranks[] = {{"p50", 50}, {"p90", 90}, {"p99", 99}};
    qsort(v, n, sizeof *v, compare);
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)v[i];
    json_t *o = json_pack("{s:f,s:I}", "mean", sum / (double)n, "min", (json_int_t)v[0]);
    for (size_t i = 0; o && i < sizeof ranks / sizeof *ranks; i++)
        json_object_set_new(o, ranks[i].name,
                            json_integer(v[(n * ranks[i].per_hundred + 99) / 100 - 1]));
    if (o)
        json_object_set_new(o, "max", json_integer(v[n - 1]));
    return o;
}

/* What was seen on the way. */
struct walk {
    int64_t *isl, *osl, *turns;
    size_t n, cap, osl_cap, nturns, turns_cap;
    int64_t reused_tokens, input_tokens, branches;
    uint64_t left_out;
    bool whole, out_of_memory;
};

static bool grow(int64_t **v, size_t *cap, size_t n) {
    if (n < *cap)
        return true;
    size_t more = *cap ? 2 * *cap : 4096;
    int64_t *p = realloc(*v, more * sizeof **v);
    if (!p)
        return false;
    *v = p;
    *cap = more;
    return true;
}

static bool count_request(void *ctx, const struct request *r) {
    struct walk *w = ctx;
    bool session = r->session != REQUEST_NO_SESSION && r->turn == 0 && r->branch == 0;
    w->out_of_memory = !grow(&w->isl, &w->cap, w->n) || !grow(&w->osl, &w->osl_cap, w->n) ||
                       (session && !grow(&w->turns, &w->turns_cap, w->nturns));
    if (w->out_of_memory)
        return false;
    w->isl[w->n] = r->isl;
    w->osl[w->n++] = r->osl;
    if (session)
        w->turns[w->nturns++] = r->turns;
    w->branches += r->turn == 0 && r->branch > 0;
    w->input_tokens += r->isl;
    w->reused_tokens += r->shared;
    return w->n < WALK_MAX;
}

static int walk_plan(const struct workload *load, struct walk *w, struct err *e) {
    struct plan *plan = NULL;
    int rc = plan_open(load, 0, 1, &plan, e);
    if (!rc)
        rc = plan_walk(plan, count_request, w, &w->whole, e);
    if (!rc && w->out_of_memory)
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
    if (!rc)
        w->left_out = plan_left_out(plan);
    plan_close(plan);
    return rc;
}

static void walk_release(struct walk *w) {
    free(w->isl);
    free(w->osl);
    free(w->turns);
}

/* "requests" are those of the measured window, as in the definition; lengths are of all. */
static int walk_facts(const struct workload *load, struct walk *w, json_t *facts, struct err *e) {
    json_int_t n = (json_int_t)w->n;
    if (w->whole && load->warmup_requests <= n)
        n -= load->warmup_requests;
    int bad = json_object_set_new(facts, w->whole ? "requests" : "requests_read", json_integer(n));
    if (w->n) {
        bad |= json_object_set_new(facts, "isl", inspect_spread(w->isl, w->n));
        bad |= json_object_set_new(facts, "osl", inspect_spread(w->osl, w->n));
    }
    if (w->nturns) {
        bad |= json_object_set_new(facts, "sessions", json_integer((json_int_t)w->nturns));
        bad |= json_object_set_new(facts, "turns", inspect_spread(w->turns, w->nturns));
    }
    if (w->branches)
        bad |= json_object_set_new(facts, "branches", json_integer(w->branches));
    if (w->left_out)
        bad |= json_object_set_new(facts, "sessions_left_out",
                                   json_integer((json_int_t)w->left_out));
    if (w->reused_tokens)
        bad |= json_object_set_new(facts, "reusable_prefix_share",
                                   json_real((double)w->reused_tokens / (double)w->input_tokens));
    return bad ? err_set(e, ASSAY_ENOMEM, "out of memory") : 0;
}

static int plan_facts(const struct workload *load, json_t *facts, struct err *e) {
    struct walk w = {0};
    int rc = walk_plan(load, &w, e);
    if (!rc)
        rc = walk_facts(load, &w, facts, e);
    walk_release(&w);
    return rc;
}

static int put_digest(const json_t *v, json_t *facts, struct err *e) {
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX];
    int rc = jcs_sha256(v, digest, e);
    if (rc)
        return rc;
    hex_encode(digest, sizeof digest, hex);
    return json_object_set_new(facts, "sha256", json_string(hex))
               ? err_set(e, ASSAY_ENOMEM, "out of memory")
               : 0;
}

int inspect_workload(const char *name, json_t *facts, struct err *e) {
    struct workload *w = NULL;
    int rc = workload_load(name, NULL, 0, &w, e);
    if (rc)
        return rc;
    int bad = json_object_set_new(facts, "name", json_string(w->name));
    bad |= json_object_set_new(facts, "version", json_string(w->version));
    bad |= json_object_set_new(facts, "workload_kind", json_string(workload_kind_name(w->kind)));
    if (w->description)
        bad |= json_object_set_new(facts, "description", json_string(w->description));
    if (w->has_model)
        bad |= json_object_set_new(facts, "model", json_string(w->model.name));
    if (w->kind == WORKLOAD_TRAINING) {
        bad |= json_object_set_new(facts, "global_batch", json_integer(w->global_batch));
        bad |= json_object_set_new(facts, "seq_len", json_integer(w->seq_len));
        bad |= json_object_set_new(facts, "steps", json_integer(w->steps));
    } else {
        char pattern[64];
        pattern_print(&w->pattern, pattern, sizeof pattern);
        bad |= json_object_set_new(facts, "pattern", json_string(pattern));
    }
    if (w->warmup_requests)
        bad |= json_object_set_new(facts, "warmup_requests", json_integer(w->warmup_requests));
    if (w->trace_path)
        bad |= json_object_set_new(facts, "trace", json_string(w->trace_path));
    rc = bad ? err_set(e, ASSAY_ENOMEM, "out of memory") : 0;
    if (!rc && w->kind != WORKLOAD_TRAINING)
        rc = plan_facts(w, facts, e);
    if (!rc)
        rc = put_digest(w->effective_json, facts, e);
    if (!rc && json_object_set(facts, "effective", w->effective_json))
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
    workload_free(w);
    return rc;
}

/* ---- traces ---- */

/* A format is told by words that stand in the beginning of its files only. */
static const struct {
    enum trace_format format;
    const char *word;
} trace_marks[] = {
    {TRACE_MOONCAKE, "\"input_length\""},
    {TRACE_AZURE, "ContextTokens"},
    {TRACE_BURSTGPT, "Request tokens"},
    {TRACE_SHAREGPT, "\"conversations\""},
    {TRACE_ENDPOINTS, "\"conversation_id\""},
    {TRACE_WEKA, "\"hash_id_scope\""},
    {TRACE_WEKA, "\"block_size\""},
};

static enum trace_format trace_format_of(const char *path) {
    char head[4096];
    FILE *f = fopen(path, "rb");
    if (!f)
        return TRACE_NONE;
    size_t n = fread(head, 1, sizeof head - 1, f);
    fclose(f);
    head[n] = '\0';
    for (size_t i = 0; i < sizeof trace_marks / sizeof *trace_marks; i++)
        if (strstr(head, trace_marks[i].word))
            return trace_marks[i].format;
    return TRACE_NONE;
}

bool inspect_is_trace(const char *path) {
    return trace_format_of(path) != TRACE_NONE;
}

static json_t *lengths(const struct length_stats *l) {
    return json_pack("{s:f,s:I,s:I,s:I,s:I,s:I}", "mean", l->mean, "min", (json_int_t)l->min, "p50",
                     (json_int_t)l->p50, "p90", (json_int_t)l->p90, "p99", (json_int_t)l->p99,
                     "max", (json_int_t)l->max);
}

static int trace_facts(const struct trace_stats *s, json_t *facts, struct err *e) {
    int bad = json_object_set_new(facts, "requests", json_integer((json_int_t)s->rows));
    if (s->dropped)
        bad |= json_object_set_new(facts, "rows_dropped", json_integer((json_int_t)s->dropped));
    if (s->failed)
        bad |= json_object_set_new(facts, "rows_failed", json_integer((json_int_t)s->failed));
    if (s->rows) {
        bad |= json_object_set_new(facts, "isl", lengths(&s->isl));
        bad |= json_object_set_new(facts, "osl", lengths(&s->osl));
        bad |=
            json_object_set_new(facts, "input_tokens", json_integer((json_int_t)s->input_tokens));
        bad |=
            json_object_set_new(facts, "output_tokens", json_integer((json_int_t)s->output_tokens));
    }
    if (s->sessions) {
        bad |= json_object_set_new(facts, "sessions", json_integer((json_int_t)s->sessions));
        bad |= json_object_set_new(facts, "turns", lengths(&s->turns));
        if (s->branches)
            bad |= json_object_set_new(facts, "branches", json_integer((json_int_t)s->branches));
    }
    if (s->lengths_estimated)
        bad |= json_object_set_new(facts, "lengths_estimated", json_true());
    if (s->duration_ns >= 0)
        bad |= json_object_set_new(facts, "span_ns", json_integer(s->duration_ns));
    if (s->rate_per_s > 0) {
        bad |= json_object_set_new(facts, "rate_per_s", json_real(s->rate_per_s));
        bad |= json_object_set_new(facts, "rate_plausible", json_boolean(s->rate_plausible));
    }
    if (s->out_of_order)
        bad |= json_object_set_new(facts, "rows_out_of_order",
                                   json_integer((json_int_t)s->out_of_order));
    if (s->block_references) {
        bad |= json_object_set_new(facts, "block_tokens", json_integer(s->block_tokens));
        bad |= json_object_set_new(facts, "block_references",
                                   json_integer((json_int_t)s->block_references));
        bad |= json_object_set_new(facts, "distinct_blocks",
                                   json_integer((json_int_t)s->distinct_blocks));
        bad |= json_object_set_new(facts, "ideal_hit_share", json_real(s->ideal_hit_share));
    }
    return bad ? err_set(e, ASSAY_ENOMEM, "out of memory") : 0;
}

int inspect_trace(const char *name, json_t *facts, struct err *e) {
    enum trace_format format = trace_format_of(name);
    struct trace_options options = {0};
    struct trace_stats stats;
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX];
    int rc = sha256_file(name, digest, e);
    if (rc)
        return rc;
    if (format == TRACE_NONE)
        return err_set(
            e, ASSAY_EINPUT,
            "%s: expected a trace (mooncake, azure, burstgpt, sharegpt, mlperf-endpoints or weka), "
            "found none of their columns in the beginning",
            name);
    hex_encode(digest, sizeof digest, hex);
    rc = trace_summary(name, format, &options, &stats, e);
    if (rc)
        return rc;
    int bad = json_object_set_new(facts, "format", json_string(trace_format_info(format)->name));
    bad |=
        json_object_set_new(facts, "description", json_string(trace_format_info(format)->summary));
    bad |= json_object_set_new(facts, "sha256", json_string(hex));
    return bad ? err_set(e, ASSAY_ENOMEM, "out of memory") : trace_facts(&stats, facts, e);
}
