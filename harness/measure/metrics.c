/* The house's figures, one row each: from which column or sum they come, what they mean. Definitions
 * are in metrics.h; the log is read in metrics_pass.c; other tools' figures are in compat.c. */
#include "harness/measure/metrics.h"

#include "harness/measure/metrics_internal.h"
#include "harness/measure/stats.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CI_LEVEL 0.95
#define ABSENT ((double)NAN)

struct context {
    const struct pass *p;
    const struct metrics_facts *f;
    const struct columns *cols;
    double duration_s;
    int64_t good;
};

/* --- figures that are not order statistics: ABSENT -------------------------------------- */

static double rate(const struct context *c, double count) {
    return c->duration_s > 0 ? count / c->duration_s : ABSENT;
}

static double per_chip(const struct context *c, double x) {
    return c->f->chips > 0 ? x / (double)c->f->chips : ABSENT;
}

static int64_t requests(const struct context *c) { /* completed ones that are no training steps */
    return c->cols->at[COL_E2E]->n;
}

static double requests_per_s(const struct context *c) {
    return requests(c) ? rate(c, (double)requests(c)) : ABSENT;
}

static double requests_per_s_per_chip(const struct context *c) {
    return per_chip(c, requests_per_s(c));
}

static double output_tokens_per_s(const struct context *c) {
    return requests(c) ? rate(c, (double)c->p->output_tokens) : ABSENT;
}

static double output_tokens_per_s_per_chip(const struct context *c) {
    return per_chip(c, output_tokens_per_s(c));
}

static double total_tokens_per_s(const struct context *c) {
    return requests(c) ? rate(c, (double)(c->p->input_tokens + c->p->output_tokens)) : ABSENT;
}

static double total_tokens_per_s_per_chip(const struct context *c) {
    return per_chip(c, total_tokens_per_s(c));
}

static double goodput(const struct context *c) {
    const struct metrics_facts *f = c->f;
    bool limits = f->limit_ttft_ns || f->limit_tpot_ns || f->limit_e2e_ns;
    return limits && c->p->issued && !c->p->any_step ? rate(c, (double)c->good) : ABSENT;
}

static double cached_token_share(const struct context *c) {
    return c->p->any_usage && c->p->input_tokens
               ? (double)c->p->cached_tokens / (double)c->p->input_tokens
               : ABSENT;
}

static double cached_of_turns(const struct context *c, unsigned group) {
    return c->p->any_usage && c->p->turn_input[group]
               ? (double)c->p->turn_cached[group] / (double)c->p->turn_input[group]
               : ABSENT;
}

/* One function a group, because a row of the table has no argument for it. */
#define CACHED_OF_TURNS(group)                                                                     \
    static double cached_of_turns_##group(const struct context *c) {                               \
        return cached_of_turns(c, group);                                                          \
    }
CACHED_OF_TURNS(0)
CACHED_OF_TURNS(1)
CACHED_OF_TURNS(2)
CACHED_OF_TURNS(3)
CACHED_OF_TURNS(4)
CACHED_OF_TURNS(5)
CACHED_OF_TURNS(6)
CACHED_OF_TURNS(7)
#undef CACHED_OF_TURNS

static double mfu(const struct context *c) {
    const struct pass *p = c->p;
    double tokens = (double)(p->input_tokens - p->cached_tokens + p->output_tokens) +
                    3 * (double)p->step_tokens;
    double peak = c->f->peak_flops_per_s * (double)c->f->chips;
    return p->completed && peak > 0 && c->f->flops_per_token > 0
               ? rate(c, tokens * c->f->flops_per_token) / peak
               : ABSENT;
}

static double step_tokens_per_s(const struct context *c) {
    return c->cols->at[COL_STEP]->n ? rate(c, (double)c->p->step_tokens) : ABSENT;
}

static double step_tokens_per_s_per_chip(const struct context *c) {
    return per_chip(c, step_tokens_per_s(c));
}

static double step_samples_per_s(const struct context *c) {
    return c->cols->at[COL_STEP]->n ? rate(c, (double)c->p->step_samples) : ABSENT;
}

static double eval_score(const struct context *c) {
    return c->p->eval_n ? c->p->eval_score : ABSENT;
}

static double eval_ns(const struct context *c) {
    return c->p->eval_n ? c->p->eval_ns / (double)c->p->eval_n : ABSENT;
}

static double checkpoint_ns(const struct context *c) {
    return c->p->checkpoint_n ? c->p->checkpoint_ns / (double)c->p->checkpoint_n : ABSENT;
}

/* --- the table ---------------------------------------------------------------------------------- */

enum how { HOW_MEAN, HOW_MIN, HOW_MAX, HOW_QUANTILE, HOW_INVERSE, HOW_SCALAR, HOW_BOUND, HOW_CLIENT };

struct row {
    enum how how;
    enum column_id column;
    int64_t ppm;
    double (*scalar)(const struct context *);
};

/* clang-format off */
#define SERIES(X, name, unit, better, column, text) \
    X(name, "mean",  unit, better, text, HOW_MEAN,     column, 0,      NULL) \
    X(name, "p50",   unit, better, text, HOW_QUANTILE, column, 500000, NULL) \
    X(name, "p90",   unit, better, text, HOW_QUANTILE, column, 900000, NULL) \
    X(name, "p95",   unit, better, text, HOW_QUANTILE, column, 950000, NULL) \
    X(name, "p99",   unit, better, text, HOW_QUANTILE, column, 990000, NULL) \
    X(name, "p99.9", unit, better, text, HOW_QUANTILE, column, 999000, NULL) \
    X(name, "min",   unit, better, text, HOW_MIN,      column, 0,      NULL) \
    X(name, "max",   unit, better, text, HOW_MAX,      column, 0,      NULL)

#define SCALAR(X, name, stat, unit, better, function, text) \
    X(name, stat, unit, better, text, HOW_SCALAR, COL_COUNT, 0, function)

#define BOUND(X, stat, ppm) \
    X("stamp_bound_ns", stat, "ns", "lower", \
        "how long what a stamp tells of may have waited before, of all token events of the log and of the " \
        "ends of answers without any; rounded up to 1, 1.5, 2, 3, 4, 6, 8 us …", \
        HOW_BOUND, COL_COUNT, ppm, NULL)

#define CACHED(X, stat, group) \
    SCALAR(X, "cached_token_share_by_turn", stat, "1", "higher", cached_of_turns_##group, \
        "cached_token_share of those turns of sessions (of a branch, where there are several), counted from 1")

/* sorted by name */
#define METRICS(X) \
    SCALAR(X, "cached_token_share", "value", "1", "higher", cached_token_share, \
        "cached input tokens (USAGE) / input tokens, of completed requests") \
    CACHED(X, "turn_1", 0) \
    CACHED(X, "turn_2", 1) \
    CACHED(X, "turns_3_4", 2) \
    CACHED(X, "turns_5_8", 3) \
    CACHED(X, "turns_9_16", 4) \
    CACHED(X, "turns_17_32", 5) \
    CACHED(X, "turns_33_64", 6) \
    CACHED(X, "turns_65_up", 7) \
    SCALAR(X, "checkpoint_ns", "mean", "ns", "lower", checkpoint_ns, "duration of a checkpoint") \
    X("client_error_share", "value", "1", "lower", \
        "the most that the client's own error (lateness, bounds of stamps) could move a mean, a p50 to " \
        "p99.9 or a rate, relative; up to 50 us of a latency are not counted", \
        HOW_CLIENT, COL_COUNT, 0, NULL) \
    SERIES(X, "e2e_ns", "ns", "lower", COL_E2E, \
        "last token event - intended issue; without token events the stream's end") \
    SCALAR(X, "eval_ns", "mean", "ns", "lower", eval_ns, "duration of an evaluation") \
    SCALAR(X, "eval_score", "value", "1", "higher", eval_score, "score of the last evaluation") \
    SCALAR(X, "goodput_requests_per_s", "value", "1/s", "higher", goodput, \
        "completed requests within every limit that is set (inclusive) / window; a TTFT limit is " \
        "missed by a request without TTFT, a TPOT limit is kept by one without TPOT") \
    SERIES(X, "itl_ns", "ns", "lower", COL_ITL, \
        "gap between successive token events, pooled over completed requests; an event of k tokens " \
        "counts as one") \
    SERIES(X, "lateness_ns", "ns", "lower", COL_LATENESS, \
        "sent - intended issue, of all measured requests, failed ones included: it judges the load " \
        "generator") \
    SCALAR(X, "mfu", "value", "1", "higher", mfu, \
        "(input - cached + output tokens of completed requests, 3 x step tokens) x forward FLOPs a " \
        "token / (window x chips x peak)") \
    SCALAR(X, "output_tokens_per_s", "value", "tok/s", "higher", output_tokens_per_s, \
        "output tokens of completed measured requests / window") \
    SCALAR(X, "output_tokens_per_s_per_chip", "value", "tok/s", "higher", \
        output_tokens_per_s_per_chip, "output_tokens_per_s / physical chips") \
    SCALAR(X, "requests_per_s", "value", "1/s", "higher", requests_per_s, \
        "completed measured requests / window") \
    SCALAR(X, "requests_per_s_per_chip", "value", "1/s", "higher", requests_per_s_per_chip, \
        "requests_per_s / physical chips") \
    SERIES(X, "service_e2e_ns", "ns", "lower", COL_SERVICE_E2E, "last token event - sent") \
    SERIES(X, "service_ttft_ns", "ns", "lower", COL_SERVICE_TTFT, "first token event - sent") \
    SERIES(X, "session_e2e_ns", "ns", "lower", COL_SESSION_E2E, \
        "end of the last turn - intended issue of the first, of sessions all of whose turns are " \
        "measured and completed") \
    SERIES(X, "session_turns", "1", "higher", COL_SESSION_TURNS, "turns of such a session") \
    BOUND(X, "p50", 500000) \
    BOUND(X, "p99", 990000) \
    BOUND(X, "max", 1000000) \
    SERIES(X, "step_ns", "ns", "lower", COL_STEP, "STEP - ISSUE of a training step") \
    SCALAR(X, "step_samples_per_s", "value", "1/s", "higher", step_samples_per_s, \
        "training samples / window") \
    SCALAR(X, "step_tokens_per_s", "value", "tok/s", "higher", step_tokens_per_s, \
        "training tokens / window") \
    SCALAR(X, "step_tokens_per_s_per_chip", "value", "tok/s", "higher", step_tokens_per_s_per_chip, \
        "step_tokens_per_s / physical chips") \
    X("tokens_per_s_per_user", "p50", "tok/s", "higher", "interactivity: 1e9 / tpot_ns p50", \
        HOW_INVERSE, COL_TPOT, 500000, NULL) \
    X("tokens_per_s_per_user", "p90", "tok/s", "higher", \
        "1e9 / tpot_ns p90: what nine users in ten get at least", HOW_INVERSE, COL_TPOT, 900000, NULL) \
    SCALAR(X, "total_tokens_per_s", "value", "tok/s", "higher", total_tokens_per_s, \
        "input + output tokens of completed measured requests / window") \
    SCALAR(X, "total_tokens_per_s_per_chip", "value", "tok/s", "higher", \
        total_tokens_per_s_per_chip, "total_tokens_per_s / physical chips") \
    SERIES(X, "tpot_ns", "ns", "lower", COL_TPOT, \
        "(last - first token event) / (N - tokens of the first event), per request; absent when " \
        "the first event holds them all") \
    SERIES(X, "ttft_ns", "ns", "lower", COL_TTFT, \
        "first token event - intended issue; absent when the whole answer came in one event of " \
        "several tokens")

#define AS_DEF(name, stat, unit, better, text, how, column, ppm, scalar) {name, stat, unit, better, text},
#define AS_ROW(name, stat, unit, better, text, how, column, ppm, scalar) {how, column, ppm, scalar},
/* clang-format on */

const struct metric_def metric_defs[] = {METRICS(AS_DEF){0}};
static const struct row rows[] = {METRICS(AS_ROW)};
enum { ROWS = sizeof rows / sizeof rows[0] };
_Static_assert((int)ROWS <= (int)METRICS_MAX, "every metric fits");

/* --- without the client's error ----------------------------------------------------------------- */

/* Where a column's values lie when the client's error is taken out; a column that is not here stays. */
static const struct {
    enum column_id of, lo, hi;
} shifts[] = {
    {COL_TTFT, COL_TTFT_LO, COL_TTFT},   {COL_SERVICE_TTFT, COL_TTFT_LO, COL_SERVICE_TTFT},
    {COL_E2E, COL_E2E_LO, COL_E2E},      {COL_SERVICE_E2E, COL_E2E_LO, COL_SERVICE_E2E},
    {COL_TPOT, COL_TPOT_LO, COL_TPOT_HI}, {COL_ITL, COL_ITL_LO, COL_ITL_HI},
    {COL_SESSION_E2E, COL_SESSION_LO, COL_SESSION_E2E},
};

struct shifted {
    struct column *lo, *hi;
};

static struct shifted shifted(const struct columns *cols, const struct pass *p, enum column_id id) {
    for (size_t i = 0; p->any_bound && i < sizeof shifts / sizeof shifts[0]; i++)
        if (shifts[i].of == id)
            return (struct shifted){cols->at[shifts[i].lo], cols->at[shifts[i].hi]};
    return (struct shifted){cols->at[id], cols->at[id]};
}

/* --- quantiles ---------------------------------------------------------------------------------- */

/* p50 and p90 are shown for any n, those further out when ten observations lie beyond them. */
static bool shown(int64_t n, int64_t ppm) {
    return n > 0 && (ppm <= 900000 || stats_informative(n, ppm));
}

/* Intervals depend on (n, p) alone; several columns share them. */
struct interval_cache {
    int64_t n, ppm;
    bool exists;
    struct stats_ranks r;
};

static bool interval(struct interval_cache *cache, int *used, int64_t n, int64_t ppm,
                     struct stats_ranks *r) {
    for (int i = 0; i < *used; i++)
        if (cache[i].n == n && cache[i].ppm == ppm) {
            *r = cache[i].r;
            return cache[i].exists;
        }
    bool exists = stats_quantile_ci(n, ppm, CI_LEVEL, r);
    if (*used < ROWS)
        cache[(*used)++] = (struct interval_cache){n, ppm, exists, *r};
    return exists;
}

static void put(struct metrics *m, const struct metric_def *d, double value, int64_t n) {
    m->m[m->n++] = (struct metric){.name = d->name,
                                   .stat = d->stat,
                                   .unit = d->unit,
                                   .better = d->better,
                                   .value = value,
                                   .n = n};
}

static void put_client(struct metrics *m, const struct pass *p, double lo, double hi) {
    if (!p->any_bound)
        return;
    m->m[m->n - 1].client_lo = lo;
    m->m[m->n - 1].client_hi = hi;
}

static double whole(const struct column *c, enum how how) {
    return how == HOW_MEAN ? c->mean : how == HOW_MIN ? c->min : c->max;
}

static void copy_counts(struct metrics *m, const struct pass *p) {
    m->issued = p->issued;
    m->completed = p->completed;
    m->failed = p->failed;
    m->in_flight_at_end = p->in_flight;
    for (int i = 0; i < FAIL_CLASS_COUNT; i++)
        m->failed_by_class[i] = p->by_class[i];
    m->warmup_requests = p->warmup;
    m->token_events = p->token_events;
    m->events = p->events;
    m->input_tokens = p->input_tokens;
    m->output_tokens = p->output_tokens;
    m->duration_ns = p->duration_ns;
    m->interrupted = p->interrupted;
    m->stamps_unbounded = p->bounds[0];
    for (int i = 0; i <= EVENT_BOUND_MAX; i++)
        m->stamps += p->bounds[i];
}

int metrics_compute(const struct eventlog_source *src, const struct metrics_facts *facts,
                    struct metrics *out, struct err *e) {
    struct pass p;
    struct interval_cache cache[ROWS];
    int cached = 0;
    *out = (struct metrics){0};
    struct columns cols = {0};
    int rc = pass_run(&p, src, e);
    if (rc)
        goto out;
    rc = columns_feed(&p, &cols, facts, e);
    if (rc)
        goto out;
    copy_counts(out, &p);
    for (int i = 0; i < ROWS; i++) {
        if (rows[i].how != HOW_QUANTILE && rows[i].how != HOW_INVERSE)
            continue;
        struct column *c = cols.at[rows[i].column];
        struct stats_ranks r;
        if (!shown(c->n, rows[i].ppm))
            continue;
        int64_t rank = stats_nearest_rank(c->n, rows[i].ppm) - 1;
        column_want(c, rank);
        if (p.any_bound) {
            struct shifted s = shifted(&cols, &p, rows[i].column);
            column_want(s.lo, rank);
            column_want(s.hi, rank);
        }
        if (interval(cache, &cached, c->n, rows[i].ppm, &r)) {
            column_want(c, r.lo - 1);
            column_want(c, r.hi - 1);
        }
    }
    compat_want(&cols);
    rc = columns_solve(&p, &cols, e);
    if (rc)
        goto out;

    struct context ctx = {.p = &p,
                          .f = facts,
                          .cols = &cols,
                          .duration_s = (double)p.duration_ns / 1e9,
                          .good = p.good};
    struct context ctx_lo = ctx, ctx_hi = ctx; /* of the client's error */
    if (p.any_bound) {
        ctx_lo.good = p.good_lo;
        ctx_hi.good = p.good_hi;
        ctx_hi.duration_s *= 1 - client_window_share(&p, facts);
    }
    int client = -1;
    for (int i = 0; i < ROWS; i++) {
        const struct row *w = &rows[i];
        const struct metric_def *d = &metric_defs[i];
        if (w->how == HOW_SCALAR) {
            double x = w->scalar(&ctx);
            if (isfinite(x)) {
                put(out, d, x, p.completed);
                put_client(out, &p, w->scalar(&ctx_lo), w->scalar(&ctx_hi));
            }
            continue;
        }
        if (w->how == HOW_CLIENT || w->how == HOW_BOUND) {
            int64_t stamps, bound = client_bound_quantile(&p, w->ppm, &stamps);
            if (!p.any_bound)
                continue;
            if (w->how == HOW_CLIENT)
                client = out->n; /* known when all the others are */
            put(out, d, (double)event_bound_ns(bound), stamps);
            continue;
        }
        const struct column *c = cols.at[w->column];
        if (c->n == 0)
            continue;
        struct shifted s = shifted(&cols, &p, w->column);
        if (w->how == HOW_MEAN || w->how == HOW_MIN || w->how == HOW_MAX) {
            put(out, d, whole(c, w->how), c->n);
            put_client(out, &p, whole(s.lo, w->how), whole(s.hi, w->how));
            continue;
        }
        if (!shown(c->n, w->ppm))
            continue;
        int64_t rank = stats_nearest_rank(c->n, w->ppm) - 1;
        double x = column_at(c, rank);
        double x_lo = p.any_bound ? column_at(s.lo, rank) : x, x_hi = p.any_bound ? column_at(s.hi, rank) : x;
        struct stats_ranks r;
        bool has_ci = interval(cache, &cached, c->n, w->ppm, &r);
        double lo = has_ci ? column_at(c, r.lo - 1) : 0, hi = has_ci ? column_at(c, r.hi - 1) : 0;
        if (w->how == HOW_INVERSE) {
            if (x <= 0)
                continue;
            x = 1e9 / x;
            double was_x_lo = x_lo;
            x_lo = 1e9 / x_hi;
            x_hi = 1e9 / (was_x_lo > 1 ? was_x_lo : 1); /* a token a nanosecond at most */
            has_ci = has_ci && lo > 0;
            double was_lo = lo;
            lo = has_ci ? 1e9 / hi : 0;
            hi = has_ci ? 1e9 / was_lo : 0;
        }
        put(out, d, x, c->n);
        put_client(out, &p, x_lo, x_hi);
        if (has_ci) {
            out->m[out->n - 1].ci_lo = lo;
            out->m[out->n - 1].ci_hi = hi;
            out->m[out->n - 1].ci_level = CI_LEVEL;
        }
    }
    if (client >= 0)
        out->m[client].value = metrics_client_error(out, (double)CLIENT_FLOOR_NS).share;
    out->compat = compat_make(&p, facts, &cols);
out:
    columns_release(&cols);
    pass_release(&p);
    if (rc)
        metrics_release(out);
    return rc;
}

void metrics_release(struct metrics *m) {
    json_decref(m->compat);
    *m = (struct metrics){0};
}

const struct metric *metrics_find(const struct metrics *m, const char *name, const char *stat) {
    for (int i = 0; i < m->n; i++)
        if (!strcmp(m->m[i].name, name) && !strcmp(m->m[i].stat, stat))
            return &m->m[i];
    return NULL;
}

/* --- as JSON ------------------------------------------------------------------------------------ */

/* Order statistics of ns are whole numbers and are written so. */
static json_t *number(double x, bool whole) {
    return whole && x == floor(x) && fabs(x) < 0x1p53 ? json_integer((json_int_t)x) : json_real(x);
}

static json_t *requests_json(const struct metrics *m) {
    json_t *o = json_object(), *classes = json_object();
    json_object_set_new(o, "issued", json_integer(m->issued));
    json_object_set_new(o, "completed", json_integer(m->completed));
    json_object_set_new(o, "failed", json_integer(m->failed));
    if (m->in_flight_at_end)
        json_object_set_new(o, "in_flight_at_end", json_integer(m->in_flight_at_end));
    if (m->warmup_requests)
        json_object_set_new(o, "warmup", json_integer(m->warmup_requests));
    for (int i = 0; i < FAIL_TABLE; i++)
        if (m->failed_by_class[i])
            json_object_set_new(classes, fail_class_name(i), json_integer(m->failed_by_class[i]));
    if (json_object_size(classes))
        json_object_set(o, "failed_by_class", classes);
    json_decref(classes);
    return o;
}

json_t *metrics_to_json(const struct metrics *m) {
    json_t *o = json_object();
    json_object_set_new(o, "requests", requests_json(m));
    if (m->duration_ns > 0)
        json_object_set_new(o, "duration_ns", json_integer(m->duration_ns));
    json_object_set_new(o, "input_tokens", json_integer(m->input_tokens));
    json_object_set_new(o, "output_tokens", json_integer(m->output_tokens));
    for (int i = 0; i < m->n; i++) {
        const struct metric *x = &m->m[i];
        if (!strcmp(x->stat, "value")) {
            json_object_set_new(o, x->name, json_real(x->value));
            continue;
        }
        json_t *series = json_object_get(o, x->name);
        if (!series) {
            series = json_object();
            json_object_set_new(o, x->name, series);
            if (x->n)
                json_object_set_new(series, "n", json_integer(x->n));
        }
        json_object_set_new(series, x->stat, number(x->value, strcmp(x->stat, "mean") != 0));
        if (x->ci_level > 0) {
            json_t *ci = json_object_get(series, "ci95");
            if (!ci) {
                ci = json_object();
                json_object_set_new(series, "ci95", ci);
            }
            json_t *pair = json_array();
            json_array_append_new(pair, number(x->ci_lo, true));
            json_array_append_new(pair, number(x->ci_hi, true));
            json_object_set_new(ci, x->stat, pair);
        }
    }
    return o;
}

/* --- the progress line's sketch ---------------------------------------------------------------- */

#define SKETCH_ALPHA 0.01
enum { SKETCH_BUCKETS = sizeof((struct sketch){0}.count) / sizeof(uint64_t) };

void sketch_add(struct sketch *s, int64_t ns) {
    int64_t i = ns > 1 ? stats_dd_index((double)ns, SKETCH_ALPHA) : 0;
    s->count[i < SKETCH_BUCKETS ? i : SKETCH_BUCKETS - 1]++;
    s->n++;
}

int64_t sketch_quantile(const struct sketch *s, double q) {
    if (s->n == 0)
        return 0;
    int64_t ppm = (int64_t)(q * (double)STATS_PPM + 0.5);
    ppm = ppm < 0 ? 0 : ppm > STATS_PPM ? STATS_PPM : ppm;
    uint64_t rank = (uint64_t)stats_nearest_rank((int64_t)s->n, ppm), seen = 0;
    int64_t i = 0;
    while ((seen += s->count[i]) < rank)
        i++;
    return i ? (int64_t)stats_dd_value(i, SKETCH_ALPHA) : 1;
}
