/* `assay list`: the runs of the store, newest first. Reads the view that the schema promises. */
#include "harness/cli/out.h"
#include "harness/cli/summary.h"
#include "harness/cli/term.h"
#include "harness/cli/verbs.h"
#include "harness/core/clock.h"
#include "harness/core/json.h"
#include "results/query.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct list_args {
    struct common c;
    int64_t limit;
};

// clang-format off
static const struct option list_options[] = {
    {.name = "limit", .type = OPT_I64, .offset = offsetof(struct list_args, limit), .min = 1,
     .max = 1e6, .def = "20", .help = "how many"},
    {0},
};
// clang-format on

/* One published figure of the run of the row. */
#define METRIC(name, stat, as)                                                                     \
    "(SELECT m.value FROM metric m JOIN metric_def d USING(metric_id) WHERE m.run_id=r.run_id "    \
    "AND "                                                                                         \
    "d.name='" name "' AND d.stat='" stat "') AS " as

static const char columns[] =
    "SELECT run, started, verdict, class, workload, workload_version, backend, chip, chips, "
    "load_kind, "
    "load_value, campaign, attempt, issued, completed, failed, duration_ns, reason, "
    "record_sha256, " METRIC("output_tokens_per_s", "value", "output_tokens_per_s") ", " METRIC(
        "ttft_ns", "p50",
        "ttft_p50_ns") ", " METRIC("step_ns", "p50",
                                   "step_p50_ns") " FROM v_run r ORDER BY started_ns DESC, run_id "
                                                  "DESC LIMIT ";

/* The rows as JSON. *out: {"runs":[{…}]}, absent members for SQL's NULL. */
static int read_runs(struct store *s, int64_t limit, json_t **out, struct err *e) {
    char sql[sizeof columns + 32], *text = NULL;
    size_t n = 0;
    json_t *rows = NULL;
    snprintf(sql, sizeof sql, "%s%" PRId64, columns, limit);
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    int rc = query_sql(s, sql, 60 * NS_PER_S, QUERY_JSON, f, e);
    if (fclose(f) && !rc)
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
    if (!rc)
        rc = json_parse(text, n, "list", &rows, e);
    free(text);
    if (!rc && !(*out = json_pack("{s:O}", "runs", json_object_get(rows, "rows"))))
        rc = err_set(e, ASSAY_EENV, "the store's answer has no rows");
    json_decref(rows);
    return rc;
}

static const char *text_at(const json_t *o, const char *name) {
    const char *s = json_string_value(json_object_get(o, name));
    return s ? s : "";
}

static double number_at(const json_t *o, const char *name) {
    return json_number_value(json_object_get(o, name));
}

static void load_cell(struct table *t, const json_t *run) {
    double v = number_at(run, "load_value");
    if (v > 0)
        table_cellf(t, "%s:%g", text_at(run, "load_kind"), v);
    else
        table_cell(t, text_at(run, "load_kind"));
}

static void print_runs(const json_t *list, struct arena *a, FILE *out) {
    static const char *const headings[] = {"run",          "started",  "attempt", "verdict",
                                           "class",        "workload", "backend", "load",
                                           "output tok/s", "TTFT p50"};
    struct table t;
    size_t i;
    json_t *run;
    char text[FMT_BYTES];
    table_init(&t, a, "llrlllllrr", headings);
    json_array_foreach(json_object_get(list, "runs"), i, run) {
        const char *chip = text_at(run, "chip");
        double rate = number_at(run, "output_tokens_per_s"), ttft = number_at(run, "ttft_p50_ns");
        table_cell(&t, text_at(run, "run"));
        table_cell(&t, text_at(run, "started"));
        table_cellf(&t, "%.0f", number_at(run, "attempt"));
        table_cell(&t, text_at(run, "verdict"));
        table_cell(&t, text_at(run, "class"));
        table_cell(&t, text_at(run, "workload"));
        if (*chip && number_at(run, "chips") > 0)
            table_cellf(&t, "%s %s x %.0f", text_at(run, "backend"), chip, number_at(run, "chips"));
        else
            table_cell(&t, text_at(run, "backend"));
        load_cell(&t, run);
        table_cell(&t, rate > 0 ? fmt_number(text, rate) : "");
        table_cell(&t, ttft > 0 ? fmt_ns(text, ttft) : "");
    }
    if (t.n)
        table_print(&t, out, 0);
    else
        fputs("no runs yet\n", out);
}

static int run_list(void *options, struct err *e) {
    struct list_args *a = options;
    struct store *s = NULL;
    json_t *list = NULL;
    int rc = store_open(a->c.db, STORE_READ, &s, NULL, e);
    if (rc)
        return rc;
    rc = read_runs(s, a->limit, &list, e);
    if (!rc && a->c.json)
        out_json(list, stdout);
    else if (!rc)
        print_runs(list, &a->c.arena, stdout);
    json_decref(list);
    store_close(s);
    return rc;
}

// clang-format off
const struct verb verb_list = {
    .name = "list",
    .usage = "",
    .summary = "the runs of the store, newest first",
    .about = "Every run that was started is here, whatever became of it: VALID, INVALID, ABORTED or OPEN.",
    .examples = "assay list --limit 5\n"
                "assay list --json\n",
    .args_min = 0,
    .args_max = 0,
    .options_size = sizeof(struct list_args),
    .options = (const struct option *const[]){list_options, common_store, common_output, NULL},
    .run = run_list,
};
// clang-format on
