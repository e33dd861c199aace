/* Facts of a workload and of a trace: what its plan asks for, found by walking it. */
#include "harness/cli/inspect_internal.h"

#include "harness/core/buf.h"
#include "harness/core/options.h"
#include "results/hash.h"
#include "results/jcs.h"
#include "workloads/plan.h"
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

/* What was seen on the way. Prefix blocks: how many were referred to, how many of these are new. */
struct walk {
    int64_t *isl, *osl, *turns;
    size_t n, cap, nturns, turns_cap;
    uint64_t *seen; /* open addressing, 0 = free (ids are shifted by one) */
    size_t nseen, seen_cap;
    int64_t blocks, reused_tokens, input_tokens, last_arrival_ns;
    bool whole, timed;
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

/* Adds a block id; *fresh says whether it is new. */
static bool see(struct walk *w, uint64_t id, bool *fresh) {
    if (2 * (w->nseen + 1) > w->seen_cap) {
        size_t cap = w->seen_cap ? 2 * w->seen_cap : 4096;
        uint64_t *bigger = calloc(cap, sizeof *bigger);
        if (!bigger)
            return false;
        for (size_t i = 0; i < w->seen_cap; i++)
            if (w->seen[i]) {
                size_t at = (size_t)(w->seen[i] * UINT64_C(0x9E3779B97F4A7C15)) & (cap - 1);
                while (bigger[at])
                    at = (at + 1) & (cap - 1);
                bigger[at] = w->seen[i];
            }
        free(w->seen);
        w->seen = bigger;
        w->seen_cap = cap;
    }
    uint64_t key = id + 1 ? id + 1 : 1;
    size_t at = (size_t)(key * UINT64_C(0x9E3779B97F4A7C15)) & (w->seen_cap - 1);
    while (w->seen[at] && w->seen[at] != key)
        at = (at + 1) & (w->seen_cap - 1);
    *fresh = !w->seen[at];
    if (*fresh) {
        w->seen[at] = key;
        w->nseen++;
    }
    return true;
}

/* Leading tokens that an unbounded prefix cache would hold already. */
static bool count_request(struct walk *w, const struct request *r) {
    if (!grow(&w->isl, &w->cap, w->n))
        return false;
    int64_t *osl = realloc(w->osl, w->cap * sizeof *osl);
    if (!osl)
        return false;
    w->osl = osl;
    w->isl[w->n] = r->isl;
    w->osl[w->n++] = r->osl;
    w->input_tokens += r->isl;
    if (r->arrival_ns >= 0) {
        w->timed = true;
        w->last_arrival_ns = r->arrival_ns > w->last_arrival_ns ? r->arrival_ns : w->last_arrival_ns;
    }
    bool leading = true;
    for (uint32_t i = 0; i < r->nblocks; i++) {
        bool fresh;
        if (!see(w, r->blocks[i], &fresh))
            return false;
        w->blocks++;
        leading = leading && !fresh;
        int64_t rest = (int64_t)r->isl - (int64_t)i * r->block_tokens;
        if (leading && rest > 0)
            w->reused_tokens += rest < r->block_tokens ? rest : r->block_tokens;
    }
    if (!r->nblocks)
        w->reused_tokens += r->shared;
    return true;
}

static int walk_plan(const struct workload *load, struct walk *w, struct err *e) {
    struct plan *plan = NULL;
    struct request r;
    bool end = false;
    int rc = plan_open(load, 0, 1, &plan, e);
    while (!rc && w->n < WALK_MAX && !(rc = plan_next(plan, &r, &end, e)) && !end) {
        int64_t turns = 1;
        for (;; turns++) {
            if (!count_request(w, &r)) {
                rc = err_set(e, ASSAY_ENOMEM, "out of memory");
                break;
            }
            if (r.session == REQUEST_NO_SESSION || r.last_turn || w->n >= WALK_MAX)
                break;
            struct request done = r;
            if ((rc = plan_next_turn(plan, &done, done.osl, &r, e)))
                break;
        }
        if (!rc && r.session != REQUEST_NO_SESSION) {
            if (!grow(&w->turns, &w->turns_cap, w->nturns))
                rc = err_set(e, ASSAY_ENOMEM, "out of memory");
            else
                w->turns[w->nturns++] = turns;
        }
    }
    w->whole = end;
    plan_close(plan);
    return rc;
}

static void walk_release(struct walk *w) {
    free(w->isl);
    free(w->osl);
    free(w->turns);
    free(w->seen);
}

static int walk_facts(struct walk *w, json_t *facts, struct err *e) {
    int bad = json_object_set_new(facts, w->whole ? "requests" : "requests_read",
                                  json_integer((json_int_t)w->n));
    if (w->n) {
        bad |= json_object_set_new(facts, "isl", inspect_spread(w->isl, w->n));
        bad |= json_object_set_new(facts, "osl", inspect_spread(w->osl, w->n));
    }
    if (w->nturns) {
        bad |= json_object_set_new(facts, "sessions", json_integer((json_int_t)w->nturns));
        bad |= json_object_set_new(facts, "turns", inspect_spread(w->turns, w->nturns));
    }
    if (w->timed && w->last_arrival_ns > 0) {
        double seconds = (double)w->last_arrival_ns * 1e-9;
        bad |= json_object_set_new(facts, "span_ns", json_integer(w->last_arrival_ns));
        bad |= json_object_set_new(facts, "rate_per_s", json_real((double)w->n / seconds));
    }
    if (w->blocks) {
        bad |= json_object_set_new(facts, "prefix_blocks", json_integer(w->blocks));
        bad |= json_object_set_new(facts, "distinct_prefix_blocks", json_integer((json_int_t)w->nseen));
    }
    if (w->reused_tokens)
        bad |= json_object_set_new(facts, "reusable_prefix_share",
                                   json_real((double)w->reused_tokens / (double)w->input_tokens));
    return bad ? err_set(e, ASSAY_ENOMEM, "out of memory") : 0;
}

static int plan_facts(const struct workload *load, json_t *facts, struct err *e) {
    struct walk w = {0};
    int rc = walk_plan(load, &w, e);
    if (!rc)
        rc = walk_facts(&w, facts, e);
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

/* A format is told by words that stand in the first line of its files only. */
static const struct {
    const char *format, *word;
} trace_marks[] = {
    {"mooncake", "\"input_length\""},
    {"azure", "ContextTokens"},
    {"burstgpt", "Request tokens"},
    {"sharegpt", "\"conversations\""},
};

static const char *trace_format(const char *path) {
    char head[4096];
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    size_t n = fread(head, 1, sizeof head - 1, f);
    fclose(f);
    head[n] = '\0';
    for (size_t i = 0; i < sizeof trace_marks / sizeof *trace_marks; i++)
        if (strstr(head, trace_marks[i].word))
            return trace_marks[i].format;
    return NULL;
}

bool inspect_is_trace(const char *path) {
    return trace_format(path) != NULL;
}

int inspect_trace(const char *name, json_t *facts, struct err *e) {
    const char *format = trace_format(name);
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX];
    int rc = sha256_file(name, digest, e);
    if (rc)
        return rc;
    if (!format)
        return err_set(e, ASSAY_EINPUT,
                       "%s: expected a trace (mooncake, azure, burstgpt or sharegpt), found none of "
                       "their columns in the beginning",
                       name);
    hex_encode(digest, sizeof digest, hex);
    const char *pattern = !strcmp(format, "sharegpt") ? "concurrency:1" : "trace";
    json_t *definition = json_pack("{s:s,s:s,s:s,s:{s:s,s:s}}", "name", "trace", "kind", "serving",
                                   "pattern", pattern, "trace", "path", name, "format", format);
    struct workload *w = NULL;
    int bad = json_object_set_new(facts, "format", json_string(format));
    bad |= json_object_set_new(facts, "sha256", json_string(hex));
    rc = bad || !definition ? err_set(e, ASSAY_ENOMEM, "out of memory")
                            : workload_from_json(definition, name, &w, e);
    if (!rc) {
        rc = plan_facts(w, facts, e);
        workload_free(w);
    }
    json_decref(definition);
    return rc;
}
