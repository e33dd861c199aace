/* The judgements of the search: limits from text, the tests of a probe, growth of a queue, conclusions. */
#include "harness/run/find_internal.h"

#include "harness/core/options.h"
#include "harness/measure/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ABSENT ((double)NAN)

/* ---- limits ---- */

static const struct {
    const char *name;
    enum find_what what;
} whats[] = {
    {"ttft", FIND_TTFT}, {"tpot", FIND_TPOT}, {"e2e", FIND_E2E}, {"goodput", FIND_GOODPUT}};
enum { WHATS = sizeof whats / sizeof *whats };

static int bad_limit(const char *text, const char *where, struct err *e) {
    return err_set(e, ASSAY_EUSAGE,
                   "%s: expected ttft_pNN=TIME, tpot_pNN=TIME, e2e_pNN=TIME, goodput=SHARE, or "
                   "ttft, tpot or e2e=TIME for what a good request keeps, found '%s'",
                   where, text);
}

/* "99", "99.9" of a percentile, or "0.95", "95%" of a share: in millionths, exclusive of 0 and 1. */
static int parse_ppm(const char *s, size_t n, double scale, int64_t *ppm) {
    char text[FIND_NAME];
    double v;
    if (n == 0 || n >= sizeof text)
        return ASSAY_EINPUT;
    memcpy(text, s, n);
    text[n] = '\0';
    if (parse_f64(text, &v) || !(v * scale > 0 && v * scale < 1e6))
        return ASSAY_EINPUT;
    *ppm = llround(v * scale);
    return *ppm > 0 && *ppm < STATS_PPM ? 0 : ASSAY_EINPUT;
}

int find_limit_parse(const char *text, const char *where, struct find_limit *l, struct err *e) {
    const char *equals = strchr(text, '=');
    *l = (struct find_limit){0};
    size_t name = equals ? (size_t)(equals - text) : 0, word = strcspn(text, "_="), i = 0;
    while (i < WHATS && (strlen(whats[i].name) != word || strncmp(text, whats[i].name, word) != 0))
        i++;
    if (!equals || i == WHATS || name >= sizeof l->name || strlen(equals + 1) >= sizeof l->value)
        return bad_limit(text, where, e);
    l->what = whats[i].what;
    memcpy(l->name, text, name);
    strncpy(l->value, equals + 1, sizeof l->value - 1);
    if (l->what == FIND_GOODPUT) {
        size_t n = strlen(l->value);
        bool percent = n && l->value[n - 1] == '%';
        if (name != word || parse_ppm(l->value, n - percent, percent ? 1e4 : 1e6, &l->share_ppm))
            return bad_limit(text, where, e);
        return 0;
    }
    if (name != word && (strncmp(text + word, "_p", 2) != 0 ||
                         parse_ppm(text + word + 2, name - word - 2, 1e4, &l->share_ppm)))
        return bad_limit(text, where, e);
    if (parse_duration_ns(l->value, &l->limit_ns) || l->limit_ns <= 0)
        return err_set(e, ASSAY_EUSAGE, "%s: expected a time such as 50ms, found '%s' in '%s'", where,
                       l->value, text);
    return 0;
}

int find_overrides(const struct find_limit *l, int n, struct arena *a, const char *out[3], int *nout,
                   struct err *e) {
    *nout = 0;
    for (int w = 0; w < WHATS; w++) {
        const struct find_limit *best = NULL;
        for (int i = 0; i < n; i++) {
            if (l[i].what != whats[w].what || l[i].what == FIND_GOODPUT)
                continue;
            if (!best || l[i].share_ppm == 0 || (best->share_ppm && l[i].share_ppm > best->share_ppm))
                best = &l[i];
        }
        if (!best)
            continue;
        char text[64];
        snprintf(text, sizeof text, "limits.%s=%s", whats[w].name, best->value);
        if (!(out[(*nout)++] = arena_strdup(a, text)))
            return err_set(e, ASSAY_ENOMEM, "out of memory");
    }
    return 0;
}

const char *find_verdict_name(enum find_verdict v) {
    static const char *const names[] = {"pass", "fail", "undecided"};
    return names[v];
}

/* ---- samples ---- */

int sample_add(struct sample *s, double x, struct err *e) {
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 4096;
        double *p = realloc(s->x, cap * sizeof *p);
        if (!p)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        s->x = p;
        s->cap = cap;
    }
    s->x[s->n++] = x;
    return 0;
}

static bool keeps(const struct find_limit *l, double x) {
    return l->what == FIND_GOODPUT ? x > 0 : x <= (double)l->limit_ns;
}

/* Variance of the batch means over that of independent requests; 0 when all or none keep the limit. */
static double batch_factor(const struct find_limit *l, const double *x, size_t n) {
    size_t each = n / FIND_BATCHES;
    double mean[FIND_BATCHES], p;
    if (each < 2)
        return 0;
    for (size_t b = 0; b < FIND_BATCHES; b++) {
        size_t within = 0;
        for (size_t i = b * each; i < (b + 1) * each; i++)
            within += keeps(l, x[i]);
        mean[b] = (double)within / (double)each;
    }
    p = stats_mean(mean, FIND_BATCHES);
    double sd = stats_sd(mean, FIND_BATCHES);
    return p > 0 && p < 1 ? (double)each * sd * sd / (p * (1 - p)) : 0;
}

int sample_end_run(const struct find_limit *l, struct sample *s, struct err *e) {
    size_t n = s->n - s->run_begin, finite = 0;
    double *x = calloc(n + 1, sizeof *x);
    if (!x)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    for (size_t i = s->run_begin; i < s->n; i++)
        if (isfinite(s->x[i]))
            x[finite++] = s->x[i];
    double r1 = stats_lag1(x, finite);
    free(x);
    r1 = r1 > 0.999 ? 0.999 : r1 > 0 ? r1 : 0;
    double t = fmax((1 + r1) / (1 - r1), batch_factor(l, s->x + s->run_begin, n));
    s->effective += (double)n / t;
    s->run_begin = s->n;
    return 0;
}

void sample_release(struct sample *s) {
    free(s->x);
    *s = (struct sample){0};
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* P(X >= w) and P(X <= w) for X ~ Binomial(n, p), continued to n and w that are not whole. */
static double upper_tail(double w, double n, double p) {
    return w <= 0 ? 1 : stats_beta(w, n - w + 1, p);
}
static double lower_tail(double w, double n, double p) {
    return w >= n ? 1 : stats_beta(n - w, w + 1, 1 - p);
}

/* Clopper-Pearson: the share at which the tail is alpha. */
static double share_bound(double w, double n, double alpha, bool lower) {
    double lo = 0, hi = 1;
    for (int i = 0; i < 60; i++) {
        double mid = (lo + hi) / 2;
        bool below = lower ? upper_tail(w, n, mid) < alpha : lower_tail(w, n, mid) > alpha;
        *(below ? &lo : &hi) = mid;
    }
    return lower ? lo : hi;
}

static void bound_share(struct find_figure *f, double alpha) {
    double w = f->within * f->effective;
    f->value = f->within;
    f->lo = w > 0 ? share_bound(w, f->effective, alpha, true) : 0;
    f->hi = w < f->effective ? share_bound(w, f->effective, alpha, false) : 1;
}

/* Ranks of the independent observations, carried over to the whole sample. */
static void bound_quantile(struct find_figure *f, const double *sorted, int64_t ppm, double alpha) {
    struct stats_ranks r;
    f->value = sorted[stats_nearest_rank(f->n, ppm) - 1];
    if (!stats_quantile_ci((int64_t)f->effective, ppm, 1 - 2 * alpha, &r))
        return;
    double worth = (double)f->n / floor(f->effective);
    int64_t lo = (int64_t)floor((double)r.lo * worth), hi = (int64_t)ceil((double)r.hi * worth);
    f->lo = sorted[(lo > 1 ? lo : 1) - 1];
    f->hi = sorted[(hi < f->n ? hi : f->n) - 1];
}

struct find_figure find_judge(const struct find_limit *l, struct sample *s, double alpha) {
    struct find_figure f = {.n = (int64_t)s->n,
                            .effective = s->effective,
                            .value = ABSENT,
                            .lo = ABSENT,
                            .hi = ABSENT,
                            .verdict = FIND_UNDECIDED};
    if (!s->n)
        return f;
    int64_t within = 0;
    bool goodput = l->what == FIND_GOODPUT;
    for (size_t i = 0; i < s->n; i++)
        within += keeps(l, s->x[i]);
    f.within = (double)within / (double)f.n;
    double p = (double)l->share_ppm / (double)STATS_PPM, w = f.within * f.effective;
    if (upper_tail(w, f.effective, p) <= alpha)
        f.verdict = FIND_PASS;
    else if (lower_tail(w, f.effective, p) <= alpha)
        f.verdict = FIND_FAIL;
    if (goodput) {
        bound_share(&f, alpha);
    } else {
        qsort(s->x, s->n, sizeof *s->x, by_value);
        bound_quantile(&f, s->x, l->share_ppm, alpha);
    }
    return f;
}

double find_excess(const struct find_limit *l, const struct find_figure *f) {
    double allowed = 1 - (double)l->share_ppm / (double)STATS_PPM;
    /* half a request more: none at all is not infinitely good */
    return f->n ? ((1 - f->within) * (double)f->n + 0.5) / ((double)f->n * allowed) : 0;
}

/* ---- growth ---- */

bool find_grew(double from, double to, double issued) {
    double growth = to - from;
    return growth > 3 * sqrt(issued) && growth > issued / 20;
}

bool find_queue_grew(const struct span *s, size_t n) {
    if (n < 30)
        return false;
    int64_t first = s[0].begin_ns, last = s[n - 1].begin_ns, then = first + (last - first) / 3 * 2;
    double at_then = 0, at_last = 0, issued = 0;
    for (size_t i = 0; i < n; i++) {
        at_then += s[i].begin_ns <= then && s[i].end_ns > then;
        at_last += s[i].begin_ns <= last && s[i].end_ns > last;
        issued += s[i].begin_ns > then;
    }
    return find_grew(at_then, at_last, issued);
}

/* ---- conclusions ---- */

static double worst_excess(const struct find *f, const struct find_probe *p) {
    return find_excess(&f->options->limit[p->limiting], &p->at[p->limiting]);
}

/* Where the pooled excess crosses 1, by a line in logarithms between the two probes around it. */
static double crossing(const struct find *f) {
    for (int i = 0; i + 1 < f->nprobes; i++) {
        const struct find_probe *a = &f->probe[i], *b = a + 1;
        double x = worst_excess(f, a), y = worst_excess(f, b);
        if (*a->why || (x > 1 || (y <= 1 && !*b->why)))
            continue;
        if (*b->why || y <= x)
            return sqrt(a->load * b->load);
        return a->load * pow(b->load / a->load, log(1 / x) / log(y / x));
    }
    return ABSENT;
}

/* The higher load did better in a limit than the lower one, and their intervals are apart. */
static bool contradicts(const struct find_limit *l, const struct find_figure *low,
                        const struct find_figure *high) {
    return l->what == FIND_GOODPUT ? low->hi < high->lo : low->lo > high->hi;
}

void find_conclude(struct find *f) {
    f->highest = f->lowest_fail = f->estimate = ABSENT;
    f->limited_by = -1;
    f->violations = 0;
    for (int i = 0; i < f->nprobes; i++) {
        const struct find_probe *p = &f->probe[i];
        if (isnan(f->lowest_fail) && p->verdict == FIND_FAIL)
            f->lowest_fail = p->load;
        for (int j = i + 1; j < f->nprobes; j++) {
            const struct find_probe *q = &f->probe[j];
            bool odd = p->verdict != FIND_PASS && q->verdict == FIND_PASS;
            for (int k = 0; k < f->options->nlimits && !*p->why && !*q->why; k++)
                odd = odd || contradicts(&f->options->limit[k], &p->at[k], &q->at[k]);
            if (odd && f->violations++ == 0) {
                f->violation[0] = p->load;
                f->violation[1] = q->load;
            }
        }
    }
    /* every probed load up to the answer passes */
    int n = 0;
    while (n < f->nprobes && f->probe[n].verdict == FIND_PASS)
        f->highest = f->probe[n++].load;
    if (n < f->nprobes && !*f->probe[n].why)
        f->limited_by = f->probe[n].limiting;
    f->estimate = crossing(f);
}
