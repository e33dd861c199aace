/* `assay validate`: the simulator against published measurements. */
#include "harness/run/validate.h"
#include "harness/cli/out.h"
#include "harness/cli/term.h"
#include "harness/cli/verbs.h"

#include <math.h>
#include <string.h>

struct validate_args {
    struct common c;
    struct strings set;
    bool points, unmodelled;
};

#define AT(field) offsetof(struct validate_args, field)
// clang-format off
static const struct option validate_options[] = {
    {.name = "points", .type = OPT_BOOL, .offset = AT(points), .help = "each modelled row too"},
    {.name = "set", .type = OPT_STR, .offset = AT(set), .unit = "CHIP.KEY=VALUE", .flags = CLI_LIST,
     .help = "another figure of a chip, as v6e.hbm_eff=0.9"},
    {.name = "unmodelled", .type = OPT_BOOL, .offset = AT(unmodelled),
     .help = "each row that is not modelled, and why (--json always has them)"},
    {0},
};
// clang-format on

static const char *text_at(const json_t *o, const char *name) {
    const char *s = json_string_value(json_object_get(o, name));
    return s ? s : "";
}

static void percent_cell(struct table *t, const json_t *row, const char *name, bool sign) {
    const json_t *v = json_object_get(row, name);
    if (json_is_number(v))
        table_cellf(t, sign ? "%+.1f %%" : "%.1f %%", 100 * json_number_value(v));
    else
        table_cell(t, "-");
}

static void print_errors(const json_t *by, struct arena *a, FILE *out) {
    static const char *const headings[] = {"kind", "generation", "size class", "n",
                                           "mean", "median",     "p95",        "bias"};
    struct table t;
    size_t i;
    json_t *row;
    table_init(&t, a, "lllrrrrr", headings);
    json_array_foreach(by, i, row) {
        table_cell(&t, text_at(row, "kind"));
        table_cell(&t, text_at(row, "generation"));
        table_cell(&t, text_at(row, "size_class"));
        table_cellf(&t, "%" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(row, "n")));
        percent_cell(&t, row, "mean", false);
        percent_cell(&t, row, "median", false);
        percent_cell(&t, row, "p95", false);
        percent_cell(&t, row, "bias", true);
    }
    table_print(&t, out, 0);
}

/* How many rows for each reason; reasons in the order they came. */
static void print_reasons(const json_t *list, struct arena *a, FILE *out) {
    size_t i, k;
    json_t *row, *other;
    struct table t;
    table_init(&t, a, "rl", (const char *const[]){"rows", "not modelled, because"});
    json_array_foreach(list, i, row) {
        int n = 0;
        bool first = true;
        json_array_foreach(list, k, other) {
            bool same = !strcmp(text_at(row, "why"), text_at(other, "why"));
            n += same;
            first = first && !(same && k < i);
        }
        if (!first)
            continue;
        table_cellf(&t, "%d", n);
        table_cell(&t, text_at(row, "why"));
    }
    if (t.n) {
        putc('\n', out);
        table_print(&t, out, 0);
    }
}

/* A list of rows as they come: all members, the first row's names as headings. */
static void print_rows(const json_t *list, struct arena *a, FILE *out) {
    const char *headings[TABLE_COLUMNS_MAX], *name;
    char align[TABLE_COLUMNS_MAX + 1] = {0}, text[FMT_BYTES];
    size_t columns = 0, i;
    json_t *v, *row;
    struct table t;
    if (!json_array_size(list))
        return;
    json_object_foreach(json_array_get(list, 0), name, v) {
        if (columns == TABLE_COLUMNS_MAX)
            break;
        headings[columns] = name;
        align[columns++] = json_is_number(v) ? 'r' : 'l';
    }
    table_init(&t, a, align, headings);
    json_array_foreach(list, i, row) {
        for (size_t c = 0; c < columns; c++) {
            v = json_object_get(row, headings[c]);
            table_cell(&t, json_is_string(v)   ? json_string_value(v)
                           : json_is_number(v) ? fmt_number(text, json_number_value(v))
                                               : "");
        }
    }
    putc('\n', out);
    table_print(&t, out, 0);
}

static void print_report(const struct validate_args *a, const json_t *report, struct arena *arena,
                         FILE *out) {
    fprintf(out, "%" JSON_INTEGER_FORMAT " rows, %" JSON_INTEGER_FORMAT " modelled\n\n",
            json_integer_value(json_object_get(report, "rows")),
            json_integer_value(json_object_get(report, "modelled")));
    print_errors(json_object_get(report, "by"), arena, out);
    if (a->points)
        print_rows(json_object_get(report, "points"), arena, out);
    if (a->unmodelled)
        print_rows(json_object_get(report, "unmodelled"), arena, out);
    else
        print_reasons(json_object_get(report, "unmodelled"), arena, out);
}

static int run_validate(void *options, struct err *e) {
    struct validate_args *a = options;
    struct validate_options o = {
        .overrides = a->set.v, .noverrides = a->set.n, .points = a->points};
    json_t *report = NULL;
    int rc = validate_files(a->c.args.v, a->c.args.n, &o, &report, e);
    if (rc)
        return rc;
    if (a->c.json)
        out_json(report, stdout);
    else
        print_report(a, report, &a->c.arena, stdout);
    json_decref(report);
    return 0;
}

// clang-format off
const struct verb verb_validate = {
    .name = "validate",
    .usage = "DATA.csv...",
    .summary = "the simulator against published measurements",
    .about = "Models every row of the tables with the code that runs answer, and prints the relative error "
             "by kind, chip generation and size class: mean, median and p95 of its magnitude, and its "
             "bias. A row that cannot be modelled is counted with the reason.",
    .examples = "assay validate matmul.csv train.csv\n"
                "assay validate hbm.csv --set v6e.hbm_eff=0.9 --json\n",
    .args_min = 1,
    .args_max = -1,
    .options_size = sizeof(struct validate_args),
    .options = (const struct option *const[]){validate_options, common_output, NULL},
    .run = run_validate,
};
// clang-format on
