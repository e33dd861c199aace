/* `assay sweep --find`: the probes as they end, their table, and the answer. */
#include "harness/cli/out.h"
#include "harness/cli/summary.h"
#include "harness/cli/sweep_args.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

static int add_override(struct sweep_args *a, const char *text, struct err *e) {
    struct strings *s = &a->run.c.overrides;
    if (s->n == s->cap) { /* the old one dies with the arena */
        int cap = 2 * s->cap + 4;
        const char **v = arena_alloc(&a->run.c.arena, (size_t)cap, sizeof *v);
        if (!v)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        if (s->n)
            memcpy(v, s->v, (size_t)s->n * sizeof *v);
        s->v = v;
        s->cap = cap;
    }
    if (!text)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    s->v[s->n++] = text;
    return 0;
}

int sweep_limits(struct sweep_args *a, struct err *e) {
    struct find_limit all[FIND_LIMITS_MAX];
    const char *out[3];
    int nout, rc = 0;
    if (a->limit.n > FIND_LIMITS_MAX)
        return err_set(e, ASSAY_EUSAGE, "sweep --limit: at most %d limits", FIND_LIMITS_MAX);
    for (int i = 0; i < a->limit.n; i++) {
        if ((rc = find_limit_parse(a->limit.v[i], "sweep --limit", &all[i], e)))
            return rc;
        for (int j = 0; j < i; j++)
            if (!strcmp(all[i].name, all[j].name))
                return err_set(e, ASSAY_EUSAGE, "sweep --limit: '%s' is there twice", all[i].name);
        if (all[i].share_ppm)
            a->limits[a->nlimits++] = all[i];
    }
    rc = find_overrides(all, a->limit.n, &a->run.c.arena, out, &nout, e);
    for (int i = 0; i < nout && !rc; i++)
        rc = add_override(a, out[i], e);
    return rc;
}

int sweep_range(struct sweep_args *a, double *lo, double *hi, struct err *e) {
    const char *text = a->concurrency ? a->concurrency : a->rate;
    const char *name = a->concurrency ? "concurrency" : "rate";
    *lo = *hi = 0;
    if (a->concurrency && a->rate)
        return err_set(e, ASSAY_EUSAGE, "sweep: --concurrency and --rate both set the pattern");
    if (!text)
        return 0;
    const char *dots = strstr(text, "..");
    char *low = dots ? arena_strndup(&a->run.c.arena, text, (size_t)(dots - text)) : NULL;
    if (!low || parse_f64(low, lo) || parse_f64(dots + 2, hi) || !(*lo > 0 && *hi > *lo) ||
        (a->concurrency && (floor(*lo) != *lo || floor(*hi) != *hi || *hi > 1e6)))
        return err_set(e, ASSAY_EUSAGE, "sweep --%s: expected a range such as 1..256, found '%s'", name,
                       text);
    char pattern[64];
    snprintf(pattern, sizeof pattern, "pattern=%s:%.17g", a->concurrency ? name : "poisson", *lo);
    return add_override(a, arena_strdup(&a->run.c.arena, pattern), e);
}

static int parse_precision(const char *text, double *out, struct err *e) {
    char number[32];
    size_t n = strlen(text), digits = n && text[n - 1] == '%' ? n - 1 : n;
    snprintf(number, sizeof number, "%.*s", (int)(digits < 31 ? digits : 31), text);
    if (digits >= 31 || parse_f64(number, out) || (digits < n && (*out /= 100, false)) ||
        !(*out >= 0.0005 && *out <= 1))
        return err_set(e, ASSAY_EUSAGE,
                       "sweep --precision: expected 0.05%% to 100%%, such as 2%% or 0.02, found '%s'",
                       text);
    return 0;
}

/* ---- output ---- */

struct watch {
    struct progress progress;
    bool quiet;
};

static const char *unit(const struct find *f) {
    return f->integer ? " in flight" : f->pattern.kind == PATTERN_TRACE ? " times the speed" : "/s";
}

static void visit(void *ctx, const struct find *f, const struct find_probe *p, int run, bool ended) {
    struct watch *w = ctx;
    if (!ended) {
        bool on = w->progress.on;
        progress_init(&w->progress, on);
        snprintf(w->progress.label, sizeof w->progress.label, "%s %.5g, run %d of at most %d",
                 pattern_kind_name(f->pattern.kind), p->load, run + 1, f->options->repeats);
        return;
    }
    progress_clear(&w->progress);
    if (!w->quiet)
        fprintf(stderr, "assay: info: %s %.5g: run %s, %s%s%s\n", pattern_kind_name(f->pattern.kind),
                p->load, p->uuid[run], find_verdict_name(p->verdict), *p->why ? ": " : "", p->why);
}

static const char *value_text(char *out, const struct find_limit *l, double v) {
    if (!isfinite(v))
        snprintf(out, FMT_BYTES, "%s", isnan(v) ? "?" : "never");
    else if (l->what == FIND_GOODPUT)
        fmt_percent(out, v);
    else
        fmt_ns(out, v);
    return out;
}

/* "TTFT p99", "goodput" */
static const char *limit_name(char *out, const struct find_limit *l) {
    static const char *const words[] = {"TTFT", "TPOT", "E2E", "goodput"};
    const char *p = strchr(l->name, '_');
    snprintf(out, FMT_BYTES, "%s%s%s", words[l->what], p ? " " : "", p ? p + 1 : "");
    return out;
}

static const char *limit_value(char *out, const struct find_limit *l) {
    return value_text(out, l,
                      l->what == FIND_GOODPUT ? (double)l->share_ppm / 1e6 : (double)l->limit_ns);
}

static void print_probes(const struct find *f, struct arena *a, FILE *out) {
    const char *headings[] = {pattern_kind_name(f->pattern.kind), "verdict", "limiting", "value",
                              "interval", "limit", "requests/s", "goodput", "runs", "requests",
                              "worth"};
    const char *shout = class_shout(f->result_class);
    if (*shout)
        fprintf(out, "%s%s%s\n", term_bold(out), shout, term_plain(out));
    struct table t;
    table_init(&t, a, "rllrrrrrrrr", headings);
    for (int i = 0; i < f->nprobes; i++) {
        const struct find_probe *p = &f->probe[i];
        const struct find_limit *l = &f->options->limit[p->limiting];
        const struct find_figure *x = &p->at[p->limiting];
        char name[FMT_BYTES], lo[FMT_BYTES], hi[FMT_BYTES], text[FMT_BYTES];
        table_cellf(&t, "%.5g", p->load);
        table_cell(&t, find_verdict_name(p->verdict));
        table_cell(&t, *p->why ? p->why : limit_name(name, l));
        table_cell(&t, value_text(text, l, x->value));
        if (isnan(x->lo) && isnan(x->hi))
            table_cell(&t, "-");
        else
            table_cellf(&t, "%s to %s", value_text(lo, l, x->lo), value_text(hi, l, x->hi));
        table_cell(&t, limit_value(text, l));
        table_cell(&t, isnan(p->requests_per_s) ? "-" : fmt_number(text, p->requests_per_s));
        table_cell(&t, isnan(p->goodput_per_s) ? "-" : fmt_number(text, p->goodput_per_s));
        table_cell(&t, fmt_count(text, p->runs));
        table_cell(&t, fmt_count(text, p->requests));
        table_cell(&t, fmt_count(text, (int64_t)x->effective));
    }
    table_print(&t, out, 0);
}

static void print_answer(const struct find *f, FILE *out) {
    char name[FMT_BYTES], value[FMT_BYTES];
    fprintf(out, "\nhighest %s load that meets", pattern_kind_name(f->pattern.kind));
    for (int i = 0; i < f->options->nlimits; i++) {
        const struct find_limit *l = &f->options->limit[i];
        fprintf(out, "%s %s %s %s", i ? "," : "", limit_name(name, l),
                l->what == FIND_GOODPUT ? ">=" : "<=", limit_value(value, l));
    }
    if (isnan(f->highest)) {
        fputs(": none\n", out);
    } else {
        fprintf(out, ": %s%.5g%s%s", term_bold(out), f->highest, unit(f), term_plain(out));
        if (!isnan(f->lowest_fail)) {
            fputs(" (", out);
            if (!isnan(f->estimate))
                fprintf(out, "limit reached near %.4g; ", f->estimate);
            fprintf(out, "95 %%: %.5g to %.5g)", f->highest, f->lowest_fail);
        }
        if (f->limited_by >= 0)
            fprintf(out, ", limited by %s", limit_name(name, &f->options->limit[f->limited_by]));
        else if (isnan(f->lowest_fail))
            fputs(", where the range ends", out);
        fputc('\n', out);
    }
    int undecided = 0;
    for (int i = 0; i < f->nprobes; i++)
        undecided += f->probe[i].verdict == FIND_UNDECIDED;
    if (undecided)
        fprintf(out, "%d load%s undecided after %d runs: more --requests or --repeats narrow the interval\n",
                undecided, undecided == 1 ? "" : "s", f->options->repeats);
    if (f->violations)
        fprintf(out,
                "not monotone: load %.5g did better than %.5g beyond chance (%d such pair%s); the answer "
                "need not be the highest\n",
                f->violation[1], f->violation[0], f->violations, f->violations == 1 ? "" : "s");
    fprintf(out, "campaign %s\n", f->campaign);
}

int sweep_find(struct sweep_args *a, struct err *e) {
    struct find_options o = {.limit = a->limits, .nlimits = a->nlimits, .repeats = (int)a->repeats};
    int rc = parse_precision(a->precision, &o.precision, e);
    if (rc || (rc = sweep_range(a, &o.from, &o.to, e)))
        return rc;
    if (!a->nlimits)
        return err_set(e, ASSAY_EUSAGE,
                       "sweep --find: expected a limit, such as --limit ttft_p99=2s or --limit goodput=0.95");
    if (a->over.n || a->run.dry_run)
        return err_set(e, ASSAY_EUSAGE, "sweep --find: --%s has no place in a search",
                       a->over.n ? "over" : "dry-run");
    struct watch w = {.quiet = a->run.c.quiet};
    progress_init(&w.progress, !a->run.c.quiet && !a->run.c.no_progress);
    struct run_options base;
    run_args_options(&a->run, &w.progress, &base);
    struct find *f = calloc(1, sizeof *f);
    if (!f)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    stop_install();
    rc = find_execute(&base, &o, visit, &w, f, e);
    progress_clear(&w.progress);
    if (f->nprobes && a->run.c.json) {
        json_t *v = find_to_json(f);
        if (v)
            out_json(v, stdout);
        else
            rc = err_set(e, ASSAY_ENOMEM, "out of memory");
        json_decref(v);
    } else if (f->nprobes) {
        print_probes(f, &a->run.c.arena, stdout);
        print_answer(f, stdout);
    }
    free(f);
    return rc;
}
