/* From a server's series to figures. The names are a table; see the header for the definitions. */
#include "harness/measure/server.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// clang-format off
static const struct {
    const char *name;
    enum server_kind kind;
} figures[SERVER_FIGURES] = {
    [SERVER_RUNNING] = {"running", SERVER_GAUGE_SUM},
    [SERVER_WAITING] = {"waiting", SERVER_GAUGE_SUM},
    [SERVER_KV_USAGE] = {"kv_cache_usage", SERVER_GAUGE_MAX},
    [SERVER_PREFIX_HITS] = {"prefix_cache_hit_tokens", SERVER_COUNTER},
    [SERVER_PREFIX_QUERIES] = {"prefix_cache_query_tokens", SERVER_COUNTER},
    [SERVER_PREFIX_HIT_RATE] = {"prefix_cache_hit_rate", SERVER_GAUGE_MAX},
    [SERVER_PREEMPTIONS] = {"preemptions", SERVER_COUNTER},
    [SERVER_PROMPT_TOKENS] = {"prompt_tokens", SERVER_COUNTER},
    [SERVER_GENERATION_TOKENS] = {"generation_tokens", SERVER_COUNTER},
    [SERVER_REQUESTS] = {"requests", SERVER_COUNTER},
    [SERVER_TTFT] = {"ttft_ns", SERVER_HISTOGRAM},
    [SERVER_TPOT] = {"tpot_ns", SERVER_HISTOGRAM},
    [SERVER_E2E] = {"e2e_ns", SERVER_HISTOGRAM},
    [SERVER_QUEUE_TIME] = {"queue_time_ns", SERVER_HISTOGRAM},
    [SERVER_SPEC_DRAFTED] = {"spec_drafted_tokens", SERVER_COUNTER},
    [SERVER_SPEC_ACCEPTED] = {"spec_accepted_tokens", SERVER_COUNTER},
    [SERVER_SPEC_LENGTH] = {"spec_accept_length", SERVER_GAUGE_MAX},
};
// clang-format on

const char *server_figure_name(enum server_figure f) {
    return (size_t)f < SERVER_FIGURES ? figures[f].name : "unknown";
}

int client_totals_read(const struct eventlog_source *src, struct client_totals *t,
                       struct err *e) {
    struct eventlog_reader *r;
    bool window = false, uncounted = false;
    *t = (struct client_totals){0};
    int rc = eventlog_open(src, &r, e);
    if (rc)
        return rc;
    for (struct eventlog_view v; !(rc = eventlog_next(r, &v, e)) && v.n;)
        for (uint32_t i = 0; i < v.n; i++) {
            if (v.kind[i] == EVENT_DONE) {
                t->done++;
                t->output_tokens += v.a[i];
                int64_t input = v.b[i] & ((INT64_C(1) << EVENT_DONE_BOUND_SHIFT) - 1);
                uncounted = uncounted || !input;
                t->input_tokens += input;
            } else if (v.kind[i] == EVENT_FAIL) {
                t->failed++;
            } else if (v.kind[i] == EVENT_MARK && v.request[i] == MARK_WINDOW_BEGIN && !window) {
                t->window_begin_ns = v.a[i];
                window = true;
            } else if (v.kind[i] == EVENT_MARK && v.request[i] == MARK_RUN_BEGIN && !window) {
                t->window_begin_ns = v.a[i];
            }
        }
    eventlog_close(r);
    if (uncounted) /* an answer without usage: only the plan is known */
        t->input_tokens = 0;
    return rc;
}

/* ---- walking series ---- */

struct work {
    const struct series_log *l;
    uint32_t rounds;      /* all of them */
    uint32_t from, to;    /* the span: increases of rounds (from, to] count */
    double *at;           /* scratch, one a round: a sum or a maximum */
    uint32_t *first_good; /* per source: its first good round; rounds = none */
    int64_t *t_ns;        /* per round: of the first source that answered */
    int64_t resets;
    json_t *out;
    const char *engine;
    double run[SERVER_FIGURES], window[SERVER_FIGURES]; /* counters; NaN = not shown */
};

static bool name_is(const char *name, const char *known, const char *suffix) {
    size_t n = strlen(known);
    return !strncmp(name, known, n) &&
           (!strcmp(name + n, suffix) || (!*suffix && !strcmp(name + n, "_total")));
}

/* The name of the figure that the server shows; NULL = none. suffix: "" or "_count" of histograms. */
static const struct server_name *shown(const struct work *w, enum server_figure f) {
    const char *suffix = figures[f].kind == SERVER_HISTOGRAM ? "_count" : "";
    for (const struct server_name *n = server_names; n->name; n++) {
        if (n->figure != f)
            continue;
        for (size_t i = 0; i < w->l->nseries; i++)
            if (w->l->series[i].n && name_is(w->l->series[i].name, n->name, suffix))
                return n;
    }
    return NULL;
}

/* How much a counter's series grew over the rounds (from, to]. */
static double increase(struct work *w, const struct series *s, uint32_t from, uint32_t to,
                       int64_t *resets) {
    double last = (double)NAN, sum = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct series_sample *p = &w->l->sample[s->first + i];
        double v = p->value, d;
        bool first = i == 0;
        if (isnan(v)) {
            last = v;
            continue;
        }
        if (first)
            d = p->round > w->first_good[s->source] ? v : 0; /* began at 0 after the first look */
        else
            d = isnan(last) || v < last ? v : v - last;
        if (!first && (isnan(last) || v < last) && p->round > from && p->round <= to)
            ++*resets;
        if (p->round > from && p->round <= to && isfinite(d))
            sum += d;
        last = v;
    }
    return sum;
}

static double counter_sum(struct work *w, const char *name, const char *suffix, bool window) {
    double sum = (double)NAN;
    int64_t ignored = 0;
    for (size_t i = 0; i < w->l->nseries; i++) {
        const struct series *s = &w->l->series[i];
        if (!name_is(s->name, name, suffix))
            continue;
        double d = window ? increase(w, s, w->from, w->to, &w->resets)
                          : increase(w, s, 0, w->rounds, &ignored);
        sum = isnan(sum) ? d : sum + d;
    }
    return sum;
}

static void put(json_t *o, const char *name, json_t *v) {
    json_object_set_new(o, name, v);
}

/* Counts as integers where they are such. */
static json_t *count_json(double v) {
    return v == floor(v) && fabs(v) < 9e15 ? json_integer((json_int_t)v) : json_real(v);
}

static void counter(struct work *w, enum server_figure f, const struct server_name *n) {
    w->window[f] = counter_sum(w, n->name, "", true);
    w->run[f] = counter_sum(w, n->name, "", false);
    json_t *o = json_object();
    put(o, "window", count_json(w->window[f]));
    put(o, "run", count_json(w->run[f]));
    put(w->out, figures[f].name, o);
}

/* ---- gauges ---- */

/* Adds (or maxes) a series into w->at. Absent values add nothing. */
static void gauge_series(struct work *w, const struct series *s, bool largest) {
    double v = (double)NAN;
    uint32_t k = 0;
    for (uint32_t round = 0; round < w->rounds; round++) {
        for (; k < s->n && w->l->sample[s->first + k].round <= round; k++)
            v = w->l->sample[s->first + k].value;
        if (!isfinite(v))
            continue;
        if (isnan(w->at[round]))
            w->at[round] = v;
        else
            w->at[round] = largest ? fmax(w->at[round], v) : w->at[round] + v;
    }
}

static void gauge(struct work *w, enum server_figure f, const struct server_name *n) {
    for (uint32_t i = 0; i < w->rounds; i++)
        w->at[i] = (double)NAN;
    for (size_t i = 0; i < w->l->nseries; i++)
        if (name_is(w->l->series[i].name, n->name, ""))
            gauge_series(w, &w->l->series[i], figures[f].kind == SERVER_GAUGE_MAX);
    double sum = 0, most = (double)NAN;
    int64_t rounds = 0;
    for (uint32_t i = w->from; i <= w->to && i < w->rounds; i++) {
        if (isnan(w->at[i]))
            continue;
        sum += w->at[i];
        most = isnan(most) ? w->at[i] : fmax(most, w->at[i]);
        rounds++;
    }
    if (!rounds)
        return;
    w->window[f] = most;
    put(w->out, figures[f].name,
        json_pack("{s:f, s:f, s:I}", "mean", sum / (double)rounds, "max", most, "n",
                  (json_int_t)rounds));
}

/* ---- histograms ---- */

struct bucket {
    double le, count; /* cumulative */
};

static int by_bound(const void *a, const void *b) {
    double x = ((const struct bucket *)a)->le, y = ((const struct bucket *)b)->le;
    return (x > y) - (x < y);
}

static bool bound_of(const char *labels, double *le) {
    struct str s = series_label(labels, "le");
    char text[64];
    if (!s.n || s.n >= sizeof text)
        return false;
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    char *end;
    *le = strtod(text, &end);
    return !*end && !isnan(*le);
}

/* Prometheus' histogram_quantile: linear within the bucket, from 0 in the first (when its bound is
 * positive); in the last the highest finite bound. ns: bounds are seconds. */
static json_t *quantile(const struct bucket *b, size_t n, double q) {
    double rank = q * b[n - 1].count;
    size_t i = 0;
    while (i + 1 < n && b[i].count < rank)
        i++;
    double lo = i ? b[i - 1].le : b[0].le > 0 ? 0 : b[0].le, below = i ? b[i - 1].count : 0;
    json_t *o = json_object();
    if (isinf(b[i].le)) {
        put(o, "value", json_real(lo * 1e9));
        put(o, "bucket_from", json_real(lo * 1e9));
        put(o, "bucket_to", json_null());
        return o;
    }
    double in = b[i].count - below;
    put(o, "value", json_real((in > 0 ? lo + (b[i].le - lo) * (rank - below) / in : lo) * 1e9));
    put(o, "bucket_from", json_real(lo * 1e9));
    put(o, "bucket_to", json_real(b[i].le * 1e9));
    return o;
}

static int histogram(struct work *w, enum server_figure f, const struct server_name *n,
                     struct err *e) {
    double sum = counter_sum(w, n->name, "_sum", true), count = counter_sum(w, n->name, "_count", true);
    size_t nb = 0;
    if (!(count > 0))
        return 0;
    struct bucket *b = calloc(w->l->nseries, sizeof *b);
    if (!b)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    for (size_t i = 0; i < w->l->nseries; i++) {
        const struct series *s = &w->l->series[i];
        int64_t ignored = 0;
        if (name_is(s->name, n->name, "_bucket") && bound_of(s->labels, &b[nb].le))
            b[nb++].count = increase(w, s, w->from, w->to, &ignored);
    }
    qsort(b, nb, sizeof *b, by_bound);
    size_t k = 0; /* engines of one bound together, and never falling */
    for (size_t i = 0; i < nb; i++)
        if (k && b[k - 1].le == b[i].le)
            b[k - 1].count += b[i].count;
        else
            b[k++] = b[i];
    for (size_t i = 1; i < k; i++)
        b[i].count = fmax(b[i].count, b[i - 1].count);
    json_t *o = json_object();
    put(o, "n", count_json(count));
    if (isfinite(sum)) {
        w->window[f] = sum / count * 1e9;
        put(o, "mean", json_real(w->window[f]));
    }
    static const struct {
        const char *name;
        double q;
    } quantiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}};
    for (size_t i = 0; k && b[k - 1].count > 0 && i < 3; i++)
        put(o, quantiles[i].name, quantile(b, k, quantiles[i].q));
    put(w->out, figures[f].name, o);
    free(b);
    return 0;
}

/* vLLM counts its requests by the reason they ended for. */
static void reasons(struct work *w, const struct server_name *n) {
    json_t *o = json_object();
    for (size_t i = 0; i < w->l->nseries; i++) {
        const struct series *s = &w->l->series[i];
        struct str reason = series_label(s->labels, "finished_reason");
        int64_t ignored = 0;
        char key[64];
        if (!name_is(s->name, n->name, "") || !reason.n || reason.n >= sizeof key)
            continue;
        memcpy(key, reason.p, reason.n);
        key[reason.n] = 0;
        double d = increase(w, s, w->from, w->to, &ignored);
        put(o, key, count_json(d + json_number_value(json_object_get(o, key))));
    }
    if (json_object_size(o))
        json_object_set(w->out, "requests_by_reason", o);
    json_decref(o);
}

/* ---- comparing ---- */

static void warn(json_t *warnings, json_t *text) {
    json_array_append_new(warnings, text);
}

#define DISAGREE 0.02

static void compare_count(struct work *w, enum server_figure f, int64_t client, const char *what,
                          json_t *beside, json_t *warnings) {
    double server = w->run[f];
    if (isnan(server) || client <= 0)
        return;
    put(beside, figures[f].name,
        json_pack("{s:o, s:I}", "server", count_json(server), "client", (json_int_t)client));
    if (fabs(server - (double)client) > DISAGREE * (double)client)
        warn(warnings,
             json_sprintf("server and client disagree on %s of the whole run: %.0f and %lld (%+.1f %%); "
                          "other clients, failed requests or lost events",
                          what, server, (long long)client,
                          100 * (server - (double)client) / (double)client));
}

static void compare_mean(struct work *w, enum server_figure f, double client, json_t *beside) {
    if (!isnan(w->window[f]) && client > 0)
        put(beside, figures[f].name, json_pack("{s:f, s:f}", "server", w->window[f], "client", client));
}

static const char prefixes_member[] = "workload_repeats_prefixes";

enum server_prefixes server_prefixes_of(const json_t *report) {
    const json_t *v = json_object_get(report, prefixes_member);
    return json_is_true(v)    ? SERVER_PREFIXES_SHARED
           : json_is_false(v) ? SERVER_PREFIXES_NONE
                              : SERVER_PREFIXES_UNKNOWN;
}

static void compare(struct work *w, const struct server_compare *c, json_t *warnings) {
    json_t *beside = json_object();
    const struct client_totals *t = &c->totals;
    compare_count(w, SERVER_GENERATION_TOKENS, t->output_tokens, "generation tokens", beside, warnings);
    compare_count(w, SERVER_PROMPT_TOKENS, t->input_tokens, "prompt tokens", beside, warnings);
    compare_count(w, SERVER_REQUESTS, t->done, "requests", beside, warnings);
    compare_mean(w, SERVER_TTFT, c->ttft_mean_ns, beside);
    compare_mean(w, SERVER_E2E, c->e2e_mean_ns, beside);
    if (json_object_size(beside))
        json_object_set(w->out, "beside_client", beside);
    json_decref(beside);
    if (w->window[SERVER_PREEMPTIONS] > 0)
        warn(warnings, json_sprintf("the server preempted %.0f requests in the window: its KV cache was "
                                    "too small for this load",
                                    w->window[SERVER_PREEMPTIONS]));
    double hits = w->window[SERVER_PREFIX_HITS], queries = w->window[SERVER_PREFIX_QUERIES];
    if (!(queries > 0) || isnan(hits))
        return;
    double share = hits / queries;
    put(w->out, "prefix_cache_hit_share", json_real(share));
    if (c->prefixes != SERVER_PREFIXES_UNKNOWN)
        put(w->out, prefixes_member, json_boolean(c->prefixes == SERVER_PREFIXES_SHARED));
    if (c->prefixes == SERVER_PREFIXES_NONE && share > DISAGREE)
        warn(warnings, json_sprintf("the server took %.1f %% of the prompt tokens from its prefix cache, "
                                    "but the workload repeats no prefix: an earlier run warmed it",
                                    100 * share));
    else if (c->prefixes == SERVER_PREFIXES_SHARED && !(hits > 0))
        warn(warnings, json_string("the workload repeats prefixes, but the server took no prompt token "
                                   "from its prefix cache"));
}

/* ---- the report ---- */

static void find_span(struct work *w, int64_t begin_ns, int64_t end_ns) {
    w->from = 0;
    w->to = w->rounds - 1;
    for (uint32_t i = 0; i < w->rounds; i++)
        if (w->t_ns[i] != INT64_MIN && w->t_ns[i] <= begin_ns)
            w->from = i;
    for (uint32_t i = w->rounds; i-- > 0;)
        if (w->t_ns[i] != INT64_MIN && w->t_ns[i] >= end_ns && i > w->from)
            w->to = i;
}

static void sources(struct work *w) {
    json_t *a = json_array();
    for (uint32_t k = 0; k < w->l->nsources; k++) {
        int64_t good = 0, failed = 0, bytes = 0, took = 0;
        if (strcmp(w->l->source[k].kind, "prometheus"))
            continue;
        for (size_t i = 0; i < w->l->nscrapes; i++) {
            const struct series_scrape *s = &w->l->scrape[i];
            if (s->source != k)
                continue;
            good += s->ok;
            failed += !s->ok;
            bytes += s->bytes;
            took = s->took_ns > took ? s->took_ns : took;
        }
        json_array_append_new(
            a, json_pack("{s:s, s:I, s:I, s:I, s:I}", "url", w->l->source[k].location, "scrapes",
                         (json_int_t)good, "failed", (json_int_t)failed, "bytes", (json_int_t)bytes,
                         "longest_ns", (json_int_t)took));
    }
    put(w->out, "sources", a);
}

/* Rounds, their times, each source's first good one. */
static int prepare(struct work *w, struct err *e) {
    const struct series_log *l = w->l;
    for (size_t i = 0; i < l->nscrapes; i++)
        if (!strcmp(l->source[l->scrape[i].source].kind, "prometheus") &&
            l->scrape[i].round >= w->rounds)
            w->rounds = l->scrape[i].round + 1;
    w->at = calloc(w->rounds + 1, sizeof *w->at);
    w->t_ns = calloc(w->rounds + 1, sizeof *w->t_ns);
    w->first_good = calloc(SERIES_SOURCES_MAX, sizeof *w->first_good);
    if (!w->at || !w->t_ns || !w->first_good)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < w->rounds; i++)
        w->t_ns[i] = INT64_MIN;
    for (size_t i = 0; i < SERIES_SOURCES_MAX; i++)
        w->first_good[i] = UINT32_MAX;
    for (size_t i = 0; i < l->nscrapes; i++) {
        const struct series_scrape *s = &l->scrape[i];
        if (!s->ok || strcmp(l->source[s->source].kind, "prometheus"))
            continue;
        if (w->t_ns[s->round] == INT64_MIN)
            w->t_ns[s->round] = s->t_ns;
        if (s->round < w->first_good[s->source])
            w->first_good[s->source] = s->round;
    }
    return 0;
}

static const char *engine_of(const struct work *w) {
    for (enum server_figure f = 0; f < SERVER_FIGURES; f++) {
        const struct server_name *n = shown(w, f);
        if (n && strcmp(n->engine, "generic"))
            return n->engine;
    }
    return "unknown";
}

int server_report(struct series_log *l, int64_t begin_ns, int64_t end_ns,
                  const struct server_compare *c, json_t **out, struct err *e) {
    struct work w = {.l = l, .out = json_object()};
    json_t *warnings = json_array();
    bool any = false;
    *out = NULL;
    int rc = w.out && warnings ? series_log_sort(l, e) : err_set(e, ASSAY_ENOMEM, "out of memory");
    if (!rc)
        rc = prepare(&w, e);
    for (uint32_t i = 0; !rc && i < w.rounds; i++)
        any = any || w.t_ns[i] != INT64_MIN;
    if (rc || !any)
        goto done;
    for (enum server_figure f = 0; f < SERVER_FIGURES; f++)
        w.run[f] = w.window[f] = (double)NAN;
    find_span(&w, begin_ns, end_ns);
    put(w.out, "engine", json_string(engine_of(&w)));
    sources(&w);
    put(w.out, "series", json_integer((json_int_t)l->nseries));
    put(w.out, "samples", json_integer((json_int_t)l->nsamples));
    put(w.out, "span",
        json_pack("{s:I, s:I}", "from_ns", (json_int_t)w.t_ns[w.from], "to_ns", (json_int_t)w.t_ns[w.to]));
    for (enum server_figure f = 0; !rc && f < SERVER_FIGURES; f++) {
        const struct server_name *n = shown(&w, f);
        if (!n)
            continue;
        if (figures[f].kind == SERVER_COUNTER)
            counter(&w, f, n);
        else if (figures[f].kind == SERVER_HISTOGRAM)
            rc = histogram(&w, f, n, e);
        else
            gauge(&w, f, n);
        if (f == SERVER_REQUESTS)
            reasons(&w, n);
    }
    put(w.out, "resets", json_integer((json_int_t)w.resets));
    if (w.resets)
        warn(warnings, json_string("a counter of the server fell during the window: it restarted"));
    if (l->full) {
        put(w.out, "truncated", json_true());
        warn(warnings, json_string("the server's metrics were too many: some samples are missing"));
    }
    if (!isnan(w.window[SERVER_SPEC_ACCEPTED]) && w.window[SERVER_SPEC_DRAFTED] > 0)
        put(w.out, "spec_accept_share",
            json_real(w.window[SERVER_SPEC_ACCEPTED] / w.window[SERVER_SPEC_DRAFTED]));
    if (c)
        compare(&w, c, warnings);
    if (json_array_size(warnings))
        json_object_set(w.out, "warnings", warnings);
    if (!rc) {
        *out = w.out;
        w.out = NULL;
    }
done:
    json_decref(warnings);
    json_decref(w.out);
    free(w.at);
    free(w.t_ns);
    free(w.first_good);
    return rc;
}
