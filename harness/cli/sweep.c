/* `assay sweep`: the points as they end, then the Pareto table. */
#include "harness/run/sweep.h"
#include "harness/cli/out.h"
#include "harness/cli/run_args.h"
#include "harness/cli/summary.h"
#include "harness/cli/sweep_args.h"
#include "harness/cli/verbs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// clang-format off
static const struct option sweep_options[] = {
    {.name = "concurrency", .type = OPT_STR, .offset = offsetof(struct sweep_args, concurrency),
     .unit = "N,...", .help = "a run for each number of requests (or sessions) in flight"},
    {.name = "rate", .type = OPT_STR, .offset = offsetof(struct sweep_args, rate), .unit = "R,...",
     .help = "a run for each rate of Poisson arrivals, requests per second"},
    {.name = "limit", .type = OPT_STR, .offset = offsetof(struct sweep_args, limit),
     .unit = "NAME=VALUE", .flags = CLI_LIST,
     .help = "ttft, tpot or e2e=TIME: what a good request keeps; ttft_p99=TIME and the like, or "
             "goodput=SHARE: what --find looks for"},
    {.name = "find", .type = OPT_BOOL, .offset = offsetof(struct sweep_args, find),
     .help = "find the highest load that meets the limits: of the workload's pattern, or between "
             "LO..HI of --concurrency or --rate"},
    {.name = "precision", .type = OPT_STR, .offset = offsetof(struct sweep_args, precision),
     .unit = "PERCENT", .def = "2%", .help = "--find: how close a rate is bracketed"},
    {.name = "repeats", .type = OPT_I64, .offset = offsetof(struct sweep_args, repeats), .min = 1,
     .max = FIND_REPEATS_MAX, .def = "5", .help = "--find: most runs at a load before it is undecided"},
    {.name = "points", .type = OPT_I64, .offset = offsetof(struct sweep_args, points), .min = 3,
     .max = 256, .help = "place at most that many points in LO..HI of --concurrency or --rate, where the "
                         "frontier bends"},
    {.name = "over", .type = OPT_STR, .offset = offsetof(struct sweep_args, over),
     .unit = "KEY=V1,V2,...", .flags = CLI_LIST,
     .help = "a run for each value; KEY is a path of the workload's JSON, or o.NAME for an option of "
             "the backend"},
    {0},
};
// clang-format on

struct watch {
    struct progress progress;
    bool quiet;
};

static void visit(void *ctx, const struct sweep *s, int i, bool ended) {
    struct watch *w = ctx;
    const struct sweep_point *p = &s->point[i];
    if (!ended) {
        bool on = w->progress.on;
        progress_init(&w->progress, on);
        snprintf(w->progress.label, sizeof w->progress.label, "%d/%d %.40s", i + 1, s->planned,
                 p->label);
        return;
    }
    progress_clear(&w->progress);
    if (*p->error)
        fprintf(stderr, "assay: warn: point %d/%d %s failed: %s\n", i + 1, s->planned, p->label,
                p->error);
    else if (!w->quiet)
        fprintf(stderr, "assay: info: point %d/%d %s: run %s %s\n", i + 1, s->planned, p->label,
                p->uuid, p->valid ? "valid" : "invalid");
}

/* The columns of figures; one that no point has is left out. */
#define AT(field) offsetof(struct sweep_point, field)
static const struct {
    const char *heading;
    size_t offset;
    const char *(*format)(char *out, double v);
} figures[] = {
    {"output tok/s", AT(output_tokens_per_s), fmt_number},
    {"tok/s", AT(step_tokens_per_s), fmt_number},
    {"tok/s/chip", AT(per_chip), fmt_number},
    {"tok/s/user", AT(per_user), fmt_number},
    {"requests/s", AT(requests_per_s), fmt_number},
    {"goodput", AT(goodput_per_s), fmt_number},
    {"TTFT p50", AT(ttft_p50_ns), fmt_ns},
    {"TTFT p99", AT(ttft_p99_ns), fmt_ns},
    {"TPOT p50", AT(tpot_p50_ns), fmt_ns},
    {"step p50", AT(step_p50_ns), fmt_ns},
};
#undef AT
enum { FIGURES = sizeof figures / sizeof *figures, ENDS = 2 };
_Static_assert(SWEEP_AXES_MAX + FIGURES + ENDS <= TABLE_COLUMNS_MAX, "columns");

static double figure(const struct sweep_point *p, size_t i) {
    return *(const double *)(const void *)((const char *)p + figures[i].offset);
}

static void print_table(const struct sweep *s, struct arena *a, FILE *out) {
    const char *headings[TABLE_COLUMNS_MAX], *shout = "";
    char align[TABLE_COLUMNS_MAX + 1], text[FMT_BYTES];
    bool shown[FIGURES] = {false};
    int n = 0;
    for (int i = 0; i < s->naxes; i++)
        headings[n++] = s->axis[i].name;
    for (size_t f = 0; f < FIGURES; f++) {
        for (int i = 0; i < s->npoints; i++)
            shown[f] = shown[f] || !isnan(figure(&s->point[i], f));
        if (shown[f])
            headings[n++] = figures[f].heading;
    }
    memset(align, 'r', (size_t)n);
    memcpy(align + n, "ll", ENDS + 1);
    headings[n++] = "valid";
    headings[n++] = "frontier";
    for (int i = 0; i < s->npoints && !*shout; i++)
        shout = class_shout(json_string_value(
            json_object_get(json_object_get(s->point[i].summary, "backend"), "class")));
    if (*shout)
        fprintf(out, "%s%s%s\n", term_bold(out), shout, term_plain(out));
    struct table t;
    table_init(&t, a, align, headings);
    for (int i = 0; i < s->npoints; i++) {
        const struct sweep_point *p = &s->point[i];
        for (int x = 0; x < s->naxes; x++)
            table_cell(&t, p->value[x]);
        for (size_t f = 0; f < FIGURES; f++)
            if (shown[f])
                table_cell(&t, isnan(figure(p, f)) ? "-" : figures[f].format(text, figure(p, f)));
        table_cell(&t, *p->error ? "failed" : p->valid ? "yes" : "no");
        table_cell(&t, p->frontier ? "*" : "");
    }
    table_print(&t, out, 0);
    if (!isnan(s->deviation)) {
        char d[FMT_BYTES], u[FMT_BYTES];
        fprintf(out, "between neighbours the frontier is about %s of its extent from a straight line in "
                     "logarithms, at most; %s of the area between its ends is not known\n",
                fmt_percent(d, s->deviation), isnan(s->uncertain) ? "all" : fmt_percent(u, s->uncertain));
    } else if (s->npoints < s->planned)
        fprintf(out, "%d of %d points were run\n", s->npoints, s->planned);
}

static int make_axes(struct sweep_args *a, struct sweep_axis *axis, int *n, struct err *e) {
    struct arena *arena = &a->run.c.arena;
    int rc = 0;
    *n = 0;
    if (a->concurrency && a->rate)
        return err_set(e, ASSAY_EUSAGE, "sweep: --concurrency and --rate both set the pattern");
    if (a->concurrency) {
        axis[*n] = (struct sweep_axis){SWEEP_PATTERN, "concurrency", "concurrency", NULL, 0};
        rc = sweep_axis_list(&axis[(*n)++], a->concurrency, "sweep --concurrency", arena, e);
    }
    if (!rc && a->rate) {
        axis[*n] = (struct sweep_axis){SWEEP_PATTERN, "rate", "poisson", NULL, 0};
        rc = sweep_axis_list(&axis[(*n)++], a->rate, "sweep --rate", arena, e);
    }
    for (int i = 0; i < a->over.n && !rc; i++) {
        if (*n == SWEEP_AXES_MAX)
            return err_set(e, ASSAY_EUSAGE, "sweep: at most %d axes", SWEEP_AXES_MAX);
        rc = sweep_axis_over(&axis[(*n)++], a->over.v[i], "sweep --over", arena, e);
    }
    for (int i = 0; i < *n && !rc; i++)
        for (int j = 0; j < i && !rc; j++)
            if (!strcmp(axis[i].name, axis[j].name))
                rc = err_set(e, ASSAY_EUSAGE, "sweep: '%s' is swept twice", axis[i].name);
    if (!rc && !*n)
        rc = err_set(e, ASSAY_EUSAGE, "sweep: expected --concurrency, --rate or --over");
    return rc;
}

/* The patterns are checked before the first run: a typing error must not cost an hour. */
static int check_patterns(const struct sweep_axis *axis, int n, struct err *e) {
    for (int i = 0; i < n; i++)
        for (int v = 0; v < axis[i].n && axis[i].target == SWEEP_PATTERN; v++) {
            char text[128];
            struct pattern p;
            snprintf(text, sizeof text, "%s:%s", axis[i].key, axis[i].value[v]);
            int rc = pattern_parse(text, &p, e);
            if (rc) {
                if (e)
                    e->code = ASSAY_EUSAGE;
                return err_wrap(e, "sweep --%s", axis[i].name);
            }
        }
    return 0;
}

/* A line a point; 'assay run --dry-run' shows one in full. */
static void print_plan(const json_t *root, const struct sweep_axis *axis, int n, struct arena *arena,
                       FILE *out) {
    static const struct {
        const char *heading, *group, *member;
        const char *(*format)(char *out, double v);
    } columns[] = {
        {"requests or steps", "plan", "requests_or_steps", fmt_number},
        {"mean ISL", "plan", "mean_input_tokens", fmt_number},
        {"mean OSL", "plan", "mean_output_tokens", fmt_number},
        {"least s", "estimate", "least_seconds", fmt_number},
        {"log", "estimate", "log_bytes", fmt_bytes},
        {"memory", "estimate", "memory_bytes", fmt_bytes},
    };
    enum { COLUMNS = sizeof columns / sizeof *columns };
    _Static_assert(SWEEP_AXES_MAX + COLUMNS <= TABLE_COLUMNS_MAX, "columns");
    const char *headings[TABLE_COLUMNS_MAX];
    char align[TABLE_COLUMNS_MAX + 1] = {0};
    int width = 0;
    for (int i = 0; i < n; i++)
        headings[width++] = axis[i].name;
    for (int i = 0; i < COLUMNS; i++)
        headings[width++] = columns[i].heading;
    memset(align, 'r', (size_t)width);
    struct table t;
    table_init(&t, arena, align, headings);
    const json_t *points = json_object_get(root, "points");
    for (size_t k = 0; k < json_array_size(points); k++) {
        const json_t *p = json_array_get(points, k);
        for (int i = 0; i < n; i++) {
            char *text = json_dumps(json_object_get(json_object_get(p, "over"), axis[i].name),
                                    JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
            table_cell(&t, text);
            free(text);
        }
        for (int i = 0; i < COLUMNS; i++) {
            char text[FMT_BYTES];
            const json_t *v =
                json_object_get(json_object_get(p, columns[i].group), columns[i].member);
            table_cell(&t, json_is_integer(v) && columns[i].format == fmt_number
                               ? fmt_count(text, json_integer_value(v))
                           : json_is_number(v) ? columns[i].format(text, json_number_value(v))
                                               : "-");
        }
    }
    table_print(&t, out, 0);
}

/* Places points in the range of the load that is given. */
static int place(struct sweep_args *a, const struct run_options *base, struct sweep_axis *axis,
                 struct watch *w, struct sweep *s, struct err *e) {
    double lo, hi;
    int rc = sweep_range(a, &lo, &hi, e);
    if (!rc && (lo == 0 || a->over.n || a->run.dry_run))
        rc = err_set(e, ASSAY_EUSAGE, "sweep --points: expected --concurrency LO..HI or --rate LO..HI%s",
                     lo == 0 ? "" : a->over.n ? ", without --over" : ", without --dry-run");
    if (rc)
        return rc;
    *axis = (struct sweep_axis){SWEEP_PATTERN, a->concurrency ? "concurrency" : "rate",
                                a->concurrency ? "concurrency" : "poisson", NULL, 0};
    stop_install();
    const double tolerance = 0.005; /* of the ends' distance: below what a plot shows */
    return sweep_place(base, axis, lo, hi, (int)a->points, tolerance, &a->run.c.arena, visit, w, s, e);
}

static int dry_run(struct sweep_args *a, const struct run_options *base,
                   const struct sweep_axis *axis, int n, struct err *e) {
    struct arena *arena = &a->run.c.arena;
    json_t *plan = NULL;
    int rc = sweep_plan(base, axis, n, &plan, e);
    if (rc)
        return rc;
    if (a->run.c.json)
        out_json(plan, stdout);
    else
        print_plan(plan, axis, n, arena, stdout);
    json_decref(plan);
    return 0;
}

static int run_sweep(void *options, struct err *e) {
    struct sweep_args *a = options;
    struct sweep_axis axis[SWEEP_AXES_MAX];
    int n = 1, rc = sweep_limits(a, e);
    if (!rc && a->find && a->points)
        rc = err_set(e, ASSAY_EUSAGE, "sweep: --find and --points both choose the loads");
    if (!rc && a->find)
        return sweep_find(a, e);
    if (!rc && a->nlimits)
        rc = err_set(e, ASSAY_EUSAGE, "sweep --limit %s: expected --find beside it", a->limits[0].name);
    if (!rc && !a->points)
        rc = make_axes(a, axis, &n, e);
    if (!rc && !a->points)
        rc = check_patterns(axis, n, e);
    if (rc)
        return rc;
    struct watch watch = {.quiet = a->run.c.quiet};
    progress_init(&watch.progress, !a->run.c.quiet && !a->run.c.no_progress);
    struct run_options base;
    run_args_options(&a->run, &watch.progress, &base);
    struct sweep s = {0};
    if (a->points) {
        rc = place(a, &base, axis, &watch, &s, e);
    } else if (a->run.dry_run) {
        return dry_run(a, &base, axis, n, e);
    } else {
        stop_install();
        rc = sweep_execute(&base, axis, n, visit, &watch, &s, e);
    }
    if (s.npoints && a->run.c.json) {
        json_t *v = sweep_to_json(&s);
        if (v)
            out_json(v, stdout);
        else
            rc = err_set(e, ASSAY_ENOMEM, "out of memory");
        json_decref(v);
    } else if (s.npoints) {
        print_table(&s, &a->run.c.arena, stdout);
    }
    int failed = 0;
    for (int i = 0; i < s.npoints; i++)
        failed += *s.point[i].error != 0;
    if (rc == ASSAY_EINTERRUPTED)
        err_set(e, rc, "interrupted: %d of %d points were begun, the last one is stored as partial",
                s.npoints, s.planned);
    else if (failed)
        err_set(e, rc, "sweep: %d of %d points failed", failed, s.planned);
    sweep_release(&s);
    return rc;
}

// clang-format off
const struct verb verb_sweep = {
    .name = "sweep",
    .usage = "WORKLOAD",
    .summary = "a run per operating point; prints the Pareto table",
    .about =
        "Runs the workload once for each combination of the swept values, each run with its own signed "
        "record, and marks the points that no other beats in output tokens per second per chip and in "
        "tokens per second per user. A point that fails is reported and the sweep goes on; the exit "
        "code is the worst of all points.\n\n"
        "--points places them itself, where the frontier bends. --find looks for the highest load that "
        "meets every --limit: it doubles or halves the load of the workload's pattern to a bracket and "
        "bisects it. A load passes or fails when the chance of an error is small enough (5 % in all, "
        "for requests that are as correlated as these were), else it is run again with another seed. A "
        "queue that grows without bound fails; on a real clock its run is stopped. --limit ttft=2s "
        "replaces the workload's own limit, by which goodput counts; so does --limit ttft_p99=2s. Exit "
        "code 1: no load meets the limits.",
    .examples = "assay sweep inferencex-1k1k --backend tpu-sim -o chip=v6e -o chips=8 --concurrency 1,4,16,64\n"
                "assay sweep chat-serving --backend tpu-sim -o chips=8 --over o.chip=v5p,v6e --rate 1,2 --requests 300\n"
                "assay sweep inferencex-1k1k --backend null --over isl=512,1024,2048 --json\n"
                "assay sweep chat-serving --backend tpu-sim -o chips=8 --concurrency 1..4096 --points 8 --requests 300\n"
                "assay sweep chat-serving --backend tpu-sim -o chips=8 --find --limit ttft_p99=2s --limit tpot_p90=50ms\n"
                "assay sweep chat-serving --backend tpu-sim -o chips=8 --find --concurrency 1..512 --limit goodput=95%\n",
    .args_min = 1,
    .args_max = 1,
    .options_size = sizeof(struct sweep_args),
    .options = (const struct option *const[]){sweep_options, common_run, common_store, common_output,
                                              NULL},
    .backends = true,
    .run = run_sweep,
};
// clang-format on
