/* The sensitivity of a run to the figures of its chip. See the header. */
#include "harness/cli/what_if.h"

#include "harness/cli/term.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WHAT_IF_MAX = 64, ITEM_BYTES = 96 };

/* The figures compared; those a run does not have are left out. */
static const struct {
    const char *heading, *member, *name, *stat;
    const char *(*format)(char *out, double v);
} figures[] = {
    {"output tok/s", "output_tokens_per_s", "output_tokens_per_s", "value", fmt_number},
    {"TTFT p50", "ttft_p50_ns", "ttft_ns", "p50", fmt_ns},
    {"TTFT p99", "ttft_p99_ns", "ttft_ns", "p99", fmt_ns},
    {"TPOT p50", "tpot_p50_ns", "tpot_ns", "p50", fmt_ns},
    {"E2E p50", "e2e_p50_ns", "e2e_ns", "p50", fmt_ns},
    {"step p50", "step_p50_ns", "step_ns", "p50", fmt_ns},
    {"tok/s", "step_tokens_per_s", "step_tokens_per_s", "value", fmt_number},
};
enum { FIGURES = sizeof figures / sizeof *figures };

/* The item at *list, moved past it; false at the end. */
static bool next_item(const char **list, char item[ITEM_BYTES]) {
    if (!**list)
        return false;
    size_t n = strcspn(*list, ",");
    snprintf(item, ITEM_BYTES, "%.*s", (int)(n < ITEM_BYTES ? n : ITEM_BYTES - 1), *list);
    *list += n + ((*list)[n] == ',');
    return true;
}

static double figure(const struct run_result *r, size_t i) {
    const struct metric *m = metrics_find(&r->metrics, figures[i].name, figures[i].stat);
    return m ? m->value : (double)NAN;
}

static json_t *row_json(const char *what, const struct run_result *r, const struct run_result *base) {
    json_t *row = json_pack("{s:s, s:s, s:b}", "what", what, "run", r->uuid, "valid", r->valid), *all = json_object();
    for (size_t i = 0; i < FIGURES; i++) {
        double v = figure(r, i), was = figure(base, i);
        if (!isnan(v) && !isnan(was))
            json_object_set_new(all, figures[i].member, json_pack("{s:f, s:f}", "value", v, "ratio", was > 0 ? v / was : 1));
    }
    json_object_set_new(row, "figures", all);
    return row;
}

/* The run with one figure changed; rows NULL: its plan alone, for what can be wrong with it. */
static int one(const char *item, const struct run_options *base, const struct run_result *r, json_t *rows,
               struct err *e) {
    char option[ITEM_BYTES + 8];
    struct run_options o = *base;
    struct run_result changed = {0};
    json_t *plan = NULL;
    const char **options = calloc((size_t)base->nbackend_options + 1, sizeof *options);
    if (!options)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    if (base->nbackend_options)
        memcpy(options, base->backend_options, (size_t)base->nbackend_options * sizeof *options);
    snprintf(option, sizeof option, "chip.%s", item);
    options[o.nbackend_options++] = option;
    o.backend_options = options;
    int rc = rows ? run_execute(&o, &changed, e) : run_plan(&o, &plan, e);
    if (rc == ASSAY_ENEGATIVE)
        rc = 0;
    if (!rc && rows)
        json_array_append_new(rows, row_json(item, &changed, r));
    else if (rc)
        err_wrap(e, "--what-if %s", item);
    json_decref(plan);
    run_result_release(&changed);
    free(options);
    return rc;
}

int what_if_check(const char *list, const struct run_options *base, struct err *e) {
    char item[ITEM_BYTES];
    int n = 0;
    for (const char *at = list; next_item(&at, item); n++) {
        const char *eq = strchr(item, '=');
        if (!eq || eq == item || !eq[1])
            return err_set(e, ASSAY_EUSAGE, "--what-if: expected KEY=FACTORx or KEY=VALUE, found '%s'", item);
        int rc = one(item, base, NULL, NULL, e);
        if (rc)
            return rc;
    }
    if (!n || n > WHAT_IF_MAX)
        return err_set(e, ASSAY_EUSAGE, "--what-if: expected 1 to %d changes, found %d", WHAT_IF_MAX, n);
    return 0;
}


int what_if_execute(const char *list, const struct run_options *base, const struct run_result *r, json_t **out,
                    struct err *e) {
    char item[ITEM_BYTES];
    int rc = 0;
    *out = json_array();
    json_array_append_new(*out, row_json("as it is", r, r));
    while (!rc && next_item(&list, item))
        rc = one(item, base, r, *out, e);
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

void what_if_print(const json_t *rows, struct arena *a, FILE *out) {
    const char *headings[FIGURES + 1] = {"what if"};
    char align[FIGURES + 2] = "l";
    size_t n = 0, at[FIGURES], i;
    json_t *row;
    const json_t *first = json_object_get(json_array_get(rows, 0), "figures");
    for (size_t f = 0; f < FIGURES; f++) {
        if (!json_object_get(first, figures[f].member))
            continue;
        at[n] = f;
        headings[n + 1] = figures[f].heading;
        align[++n] = 'r';
    }
    struct table t;
    table_init(&t, a, align, headings);
    json_array_foreach(rows, i, row) {
        table_cell(&t, json_string_value(json_object_get(row, "what")));
        for (size_t k = 0; k < n; k++) {
            char text[FMT_BYTES];
            const json_t *v = json_object_get(json_object_get(row, "figures"), figures[at[k]].member);
            double ratio = json_number_value(json_object_get(v, "ratio"));
            if (!v)
                table_cell(&t, "-");
            else if (i)
                table_cellf(&t, "%s (%+.1f %%)", figures[at[k]].format(text, json_number_value(json_object_get(v, "value"))),
                            100 * (ratio - 1));
            else
                table_cell(&t, figures[at[k]].format(text, json_number_value(json_object_get(v, "value"))));
        }
    }
    putc('\n', out);
    table_print(&t, out, 0);
}
