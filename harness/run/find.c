/* The search: runs at a load until it is judged, doubling, bisecting. Prints nothing. */
#include "harness/run/find_internal.h"

#include "results/hash.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HISTORY = 4096 };
#define ABSENT ((double)NAN)

/* Watches a run on a real clock from its progress: in flight at each count issued. */
struct monitor {
    const struct run_options *base;
    volatile int stop; /* of the run: the user's, or ours */
    bool watching, overload;
    double span_ns; /* how long the issuing takes */
    struct {
        int64_t issued, in_flight;
    } history[HISTORY];
    int n;
};

struct search {
    struct find *f;
    const struct run_options *base;
    const struct find_options *o;
    find_visit_fn *visit;
    void *visit_ctx;
    struct monitor monitor;
    struct metrics_facts facts;
    int64_t requests, duration_ns, warmup_requests, warmup_ns;
    uint64_t seed;
    /* of the probe at work */
    struct sample sample[FIND_LIMITS_MAX];
    struct span *span;
    size_t spans, span_cap;
};

/* ---- stopping what cannot pass ---- */

static void watch(struct monitor *m, const struct run_progress *p) {
    const int64_t slack_ns = 10000000000; /* a start may be slow */
    if (m->overload || p->issued < 100)
        return;
    if ((double)p->elapsed_ns > 2 * m->span_ns + (double)slack_ns)
        m->overload = true; /* what is left takes longer than it took to come */
    if (m->n < HISTORY) {
        m->history[m->n].issued = p->issued;
        m->history[m->n++].in_flight = p->in_flight;
    }
    /* grown over the last third of what came, a third of the plan at least, once three times the median
     * time of a request has gone by: filling up is not growing */
    int i = 0;
    while (i < m->n && m->history[i].issued < p->issued / 3 * 2)
        i++;
    if (i < m->n && p->total > 0 && p->issued > p->total / 3 && p->done >= 100 &&
        p->elapsed_ns > 3 * p->e2e_p50_ns &&
        find_grew((double)m->history[i].in_flight, (double)p->in_flight,
                  (double)(p->issued - m->history[i].issued)))
        m->overload = true;
    if (m->overload)
        m->stop = 1;
}

static void on_progress(void *ctx, const struct run_progress *p) {
    struct monitor *m = ctx;
    if (*m->base->stop)
        m->stop = 1;
    if (m->watching)
        watch(m, p);
    if (m->base->progress)
        m->base->progress(m->base->progress_ctx, p);
}

/* ---- one run ---- */

static int take(void *ctx, const struct request_latency *r, struct err *e) {
    struct search *s = ctx;
    if (s->spans == s->span_cap) {
        size_t cap = s->span_cap ? 2 * s->span_cap : 4096;
        struct span *p = realloc(s->span, cap * sizeof *p);
        if (!p)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        s->span = p;
        s->span_cap = cap;
    }
    s->span[s->spans++] = (struct span){r->intended_ns, r->end_ns};
    for (int i = 0; i < s->o->nlimits; i++) {
        enum find_what what = s->o->limit[i].what;
        double x = what == FIND_GOODPUT ? r->good
                   : !r->completed      ? (double)INFINITY
                   : what == FIND_TTFT  ? r->ttft_ns
                   : what == FIND_TPOT  ? r->tpot_ns
                                        : r->e2e_ns;
        if (isnan(x) && what == FIND_TTFT)
            x = (double)INFINITY; /* as goodput has it: without a first token the limit is missed */
        int rc = isnan(x) ? 0 : sample_add(&s->sample[i], x, e);
        if (rc)
            return rc;
    }
    return 0;
}

static int collect(struct search *s, const char *uuid, struct err *e) {
    struct store *store;
    struct eventlog_source src;
    int64_t id;
    char full[RUN_UUID];
    s->spans = 0;
    int rc = store_open(s->base->db, STORE_READ, &store, NULL, e);
    if (rc)
        return rc;
    rc = store_find_run(store, uuid, &id, full, e);
    if (!rc && !(rc = store_log_open(store, id, &src, e))) {
        rc = requests_each(&src, &s->facts, take, s, e);
        store_log_close(&src);
    }
    store_close(store);
    for (int i = 0; i < s->o->nlimits && !rc; i++)
        rc = sample_end_run(&s->o->limit[i], &s->sample[i], e);
    return rc;
}

static double figure(const struct run_result *r, const char *name) {
    const struct metric *m = metrics_find(&r->metrics, name, "value");
    return m ? m->value : ABSENT;
}

static void note(struct find_probe *p, const struct search *s, const struct run_result *r) {
    const char *class = json_string_value(
        json_object_get(json_object_get(r->summary, "backend"), "class"));
    snprintf(s->f->result_class, sizeof s->f->result_class, "%s", class ? class : "");
    memcpy(p->uuid[p->runs++], r->uuid, sizeof r->uuid);
    p->requests += r->metrics.issued;
    p->requests_per_s = figure(r, "requests_per_s");
    p->goodput_per_s = figure(r, "goodput_requests_per_s");
    p->output_tokens_per_s = figure(r, "output_tokens_per_s");
    if (s->monitor.overload || (s->f->open_loop && find_queue_grew(s->span, s->spans))) {
        snprintf(p->why, sizeof p->why, "overload");
        return;
    }
    for (int i = 0; i < r->nverdicts && !*p->why; i++)
        if (!r->verdict[i].ok)
            snprintf(p->why, sizeof p->why, "rule %s", r->verdict[i].rule);
}

static int run_once(struct search *s, struct find_probe *p, struct err *e) {
    struct find *f = s->f;
    const struct run_options *base = s->base;
    char pattern[96], seed[40];
    struct run_options o = *base;
    const char **overrides = calloc((size_t)base->noverrides + 2, sizeof *overrides);
    if (!overrides)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    if (base->noverrides)
        memcpy(overrides, base->overrides, (size_t)base->noverrides * sizeof *overrides);
    struct pattern at = f->pattern;
    at.value = p->load;
    snprintf(pattern, sizeof pattern, "pattern=");
    pattern_print(&at, pattern + strlen(pattern), sizeof pattern - strlen(pattern));
    snprintf(seed, sizeof seed, "seed=%llu", (unsigned long long)(s->seed + (uint64_t)p->runs));
    overrides[o.noverrides++] = pattern;
    overrides[o.noverrides++] = seed;
    o.overrides = overrides;
    o.campaign = f->campaign;
    struct monitor *m = &s->monitor;
    *m = (struct monitor){.base = base, .watching = f->open_loop && f->real_clock};
    m->span_ns = f->pattern.kind == PATTERN_TRACE ? (double)INFINITY
                 : s->duration_ns ? (double)(s->duration_ns + s->warmup_ns)
                 : (double)(s->requests + s->warmup_requests) / p->load * 1e9 + (double)s->warmup_ns;
    o.progress = on_progress;
    o.progress_ctx = m;
    o.stop = &m->stop;
    struct run_result r;
    int rc = run_execute(&o, &r, e);
    if (rc == ASSAY_ENEGATIVE || (rc == ASSAY_EINTERRUPTED && m->overload && !*base->stop))
        rc = 0;
    if (!rc && !(rc = collect(s, r.uuid, e)))
        note(p, s, &r);
    run_result_release(&r);
    free(overrides);
    return rc;
}

/* ---- a probe ---- */

static void judge(struct search *s, struct find_probe *p) {
    double alpha = FIND_ERROR / 2 / s->o->repeats, worst = -1;
    p->verdict = FIND_PASS;
    for (int i = 0; i < s->o->nlimits; i++) {
        const struct find_limit *l = &s->o->limit[i];
        struct find_figure *x = &p->at[i];
        *x = find_judge(l, &s->sample[i], alpha);
        if (x->verdict == FIND_FAIL || p->verdict == FIND_PASS)
            p->verdict = x->verdict;
        if (find_excess(l, x) > worst) {
            worst = find_excess(l, x);
            p->limiting = i;
        }
    }
    if (*p->why)
        p->verdict = FIND_FAIL;
}

/* Keeps probes by rising load. */
static struct find_probe *insert(struct find *f, double load) {
    int i = f->nprobes++;
    for (; i > 0 && f->probe[i - 1].load > load; i--)
        f->probe[i] = f->probe[i - 1];
    f->probe[i] = (struct find_probe){.load = load};
    return &f->probe[i];
}

static int probe(struct search *s, double load, enum find_verdict *v, struct err *e) {
    struct find *f = s->f;
    for (int i = 0; i < f->nprobes; i++)
        if (f->probe[i].load == load) {
            *v = f->probe[i].verdict;
            return 0;
        }
    if (f->nprobes == FIND_PROBES_MAX)
        return err_set(e, ASSAY_EUSAGE, "the search needs more than %d probes", FIND_PROBES_MAX);
    struct find_probe *p = insert(f, load);
    int rc = 0;
    do {
        if (s->visit)
            s->visit(s->visit_ctx, f, p, p->runs, false);
        if ((rc = run_once(s, p, e)))
            break;
        judge(s, p);
        if (s->visit)
            s->visit(s->visit_ctx, f, p, p->runs - 1, true);
    } while (p->verdict == FIND_UNDECIDED && p->runs < s->o->repeats);
    for (int i = 0; i < s->o->nlimits; i++)
        sample_release(&s->sample[i]);
    *v = p->verdict;
    if (rc) { /* what was not judged is no probe */
        int at = (int)(p - f->probe);
        memmove(p, p + 1, (size_t)(--f->nprobes - at) * sizeof *p);
    }
    return rc;
}

/* ---- the search ---- */

/* Four digits: a load that can be typed. */
static double round_load(const struct find *f, double x) {
    if (f->integer)
        return floor(x);
    char text[32];
    snprintf(text, sizeof text, "%.4g", x);
    return strtod(text, NULL);
}

/* Narrows (lo, hi) until they are neighbours; a probed load that is_low goes to lo. */
static int bisect(struct search *s, double *lo, double *hi, bool (*is_low)(enum find_verdict),
                  struct err *e) {
    struct find *f = s->f;
    while (f->integer ? *hi - *lo > 1 : *hi / *lo > 1 + s->o->precision) {
        double mid = round_load(f, sqrt(*lo * *hi));
        if (mid <= *lo)
            mid = f->integer ? *lo + 1 : mid;
        if (mid <= *lo || mid >= *hi)
            break;
        enum find_verdict v;
        int rc = probe(s, mid, &v, e);
        if (rc)
            return rc;
        *(is_low(v) ? lo : hi) = mid;
    }
    return 0;
}

static bool passes(enum find_verdict v) {
    return v == FIND_PASS;
}
static bool not_failed(enum find_verdict v) {
    return v != FIND_FAIL;
}

static int search(struct search *s, double start, double from, double to, struct err *e) {
    enum find_verdict v;
    double lo = 0, hi = 0, x = start;
    int rc = probe(s, x, &v, e);
    while (!rc && v == FIND_PASS) { /* up to a load that does not pass */
        lo = x;
        if (x >= to)
            return 0;
        x = 2 * x < to ? round_load(s->f, 2 * x) : to;
        rc = probe(s, x, &v, e);
        hi = x;
    }
    if (!hi)
        hi = x;
    while (!rc && !lo) { /* down to one that does */
        if (x <= from)
            return 0;
        x = x / 2 > from ? round_load(s->f, x / 2) : from;
        if (!(rc = probe(s, x, &v, e)))
            *(v == FIND_PASS ? &lo : &hi) = x;
    }
    if (!rc)
        rc = bisect(s, &lo, &hi, passes, e);
    if (rc)
        return rc;
    /* the other end of the answer's interval: the lowest load that surely fails */
    double below = hi, above = 0;
    for (int i = s->f->nprobes - 1; i >= 0; i--)
        if (s->f->probe[i].verdict == FIND_FAIL)
            above = s->f->probe[i].load;
    for (x = below; !rc && !above && x < to;) {
        x = 2 * x < to ? round_load(s->f, 2 * x) : to;
        if ((rc = probe(s, x, &v, e)))
            return rc;
        *(v == FIND_FAIL ? &above : &below) = x;
    }
    if (!above || above <= hi)
        return 0;
    for (int i = 0; i < s->f->nprobes; i++)
        if (s->f->probe[i].load < above)
            below = s->f->probe[i].load;
    return bisect(s, &below, &above, not_failed, e);
}

static int name_campaign(struct search *s, const char *workload, struct err *e) {
    const struct run_options *o = s->base;
    struct buf b;
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX], kind[32];
    snprintf(kind, sizeof kind, "%s", pattern_kind_name(s->f->pattern.kind));
    buf_init(&b, 1 << 20);
    buf_printf(&b, "%s\n%s\n%s\n%s\n", o->workload, o->backend, o->system ? o->system : "",
               o->rules ? o->rules : "");
    for (int i = 0; i < o->noverrides; i++)
        buf_printf(&b, "set %s\n", o->overrides[i]);
    for (int i = 0; i < o->nbackend_options; i++)
        buf_printf(&b, "option %s\n", o->backend_options[i]);
    for (int i = 0; i < s->o->nlimits; i++)
        buf_printf(&b, "limit %s=%s\n", s->o->limit[i].name, s->o->limit[i].value);
    int rc = buf_check(&b, "the search", e);
    if (!rc) {
        sha256(b.p, b.n, digest);
        hex_encode(digest, 4, hex);
        snprintf(s->f->campaign, sizeof s->f->campaign, "%.64s/%.32s/find-%s@%.8s", workload, o->backend,
                 kind, hex);
    }
    buf_release(&b);
    return rc;
}

/* What the workload says: pattern, size, limits; and whose clock it is. */
static int prepare(struct search *s, struct err *e) {
    struct find *f = s->f;
    struct workload *w;
    json_t *plan = NULL;
    int rc = run_plan(s->base, &plan, e); /* all that can be wrong with the input */
    if (rc)
        return rc;
    const char *clock =
        json_string_value(json_object_get(json_object_get(plan, "estimate"), "clock"));
    f->real_clock = clock && !strcmp(clock, "real");
    json_decref(plan);
    if ((rc = workload_load(s->base->workload, s->base->overrides, s->base->noverrides, &w, e)))
        return rc;
    f->pattern = w->pattern;
    if (f->pattern.kind == PATTERN_SINGLE)
        f->pattern = (struct pattern){PATTERN_CONCURRENCY, 1, 0};
    f->integer = f->pattern.kind == PATTERN_CONCURRENCY;
    f->open_loop = !f->integer;
    s->facts = (struct metrics_facts){.limit_ttft_ns = w->limit_ttft_ns,
                                      .limit_tpot_ns = w->limit_tpot_ns,
                                      .limit_e2e_ns = w->limit_e2e_ns};
    s->requests = w->requests;
    s->duration_ns = w->duration_ns;
    s->warmup_requests = w->warmup_requests;
    s->warmup_ns = w->warmup_ns;
    s->seed = w->seed;
    bool limited = w->limit_ttft_ns || w->limit_tpot_ns || w->limit_e2e_ns;
    for (int i = 0; i < s->o->nlimits && !limited; i++)
        if (s->o->limit[i].what == FIND_GOODPUT)
            rc = err_set(e, ASSAY_EUSAGE,
                         "--limit goodput: workload '%s' has no latency limits; state them, such as "
                         "--limit ttft=2s",
                         w->name);
    if (!rc && w->kind == WORKLOAD_TRAINING)
        rc = err_set(e, ASSAY_EUSAGE, "--find: workload '%s' is training, which has no load", w->name);
    if (!rc && f->pattern.kind == PATTERN_OFFLINE)
        rc = err_set(e, ASSAY_EUSAGE,
                     "--find: pattern 'offline' has no load to vary; expected --pattern concurrency:1 "
                     "or poisson:1");
    if (!rc && s->base->campaign)
        snprintf(f->campaign, sizeof f->campaign, "%s", s->base->campaign);
    else if (!rc)
        rc = name_campaign(s, w->name, e);
    workload_free(w);
    return rc;
}

int find_execute(const struct run_options *base, const struct find_options *o, find_visit_fn *visit,
                 void *ctx, struct find *f, struct err *e) {
    enum { REACH = 4096 }; /* how far from the workload's own load an open range goes */
    assert(o->nlimits >= 1 && o->nlimits <= FIND_LIMITS_MAX && o->repeats >= 1 &&
           o->repeats <= FIND_REPEATS_MAX);
    struct search *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    *f = (struct find){.options = o};
    *s = (struct search){.f = f, .base = base, .o = o, .visit = visit, .visit_ctx = ctx};
    int rc = prepare(s, e);
    if (!rc) {
        double own = f->pattern.value;
        double from = o->from ? o->from : f->integer ? (double)base->threads : own / REACH;
        double to = o->to ? o->to : f->integer ? 65536 : own * REACH;
        rc = search(s, o->from ? o->from : fmax(own, from), from, to, e);
        find_conclude(f);
    }
    free(s->span);
    free(s);
    if (!rc && isnan(f->highest))
        rc = err_set(e, ASSAY_ENEGATIVE, "no load meets the limits");
    return rc;
}
