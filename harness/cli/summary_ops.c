/* The table of ops: time first, then what it was spent on. See the header. */
#include "harness/cli/summary_ops.h"

#include "harness/cli/term.h"

#include <stdlib.h>

/* Numbers beyond 2^53 are texts in a record. */
static double member(const json_t *o, const char *name) {
    const json_t *v = json_object_get(o, name);
    return json_is_string(v) ? strtod(json_string_value(v), NULL) : json_number_value(v);
}

static const char *word(const json_t *o, const char *name) {
    const char *s = json_string_value(json_object_get(o, name));
    return s ? s : "";
}

/* A rate of this row in SI units, empty where there is none. */
static void rate_cell(struct table *t, const json_t *row, const char *name, const char *unit) {
    char number[FMT_BYTES];
    double s = member(row, "s"), n = member(row, name);
    if (s > 0 && n > 0)
        table_cellf(t, "%s%s", fmt_si(number, n / s), unit);
    else
        table_cell(t, "");
}

static void print_row(struct table *t, const json_t *row) {
    char text[FMT_BYTES];
    double s = member(row, "s"), times = member(row, "times");
    table_cell(t, word(row, "block"));
    table_cell(t, word(row, "op"));
    table_cell(t, fmt_percent(text, member(row, "share")));
    table_cell(t, word(row, "resource"));
    table_cell(t, times > 0 ? fmt_ns(text, 1e9 * s / times) : "");
    rate_cell(t, row, "flops", "FLOP/s");
    table_cell(t, json_object_get(row, "useful") ? fmt_percent(text, member(row, "useful")) : "");
    rate_cell(t, row, "hbm_bytes", "B/s");
    table_cell(t, s > 0 ? fmt_percent(text, member(row, "fixed_s") / s) : "");
}

/* Candidates of a mesh search: what a step of each waits for, what it keeps in HBM. */
static void print_meshes(const json_t *search, struct arena *a, FILE *out) {
    static const char *const headings[] = {"mesh", "step", "compute", "exposed comm", "optimizer", "state", "activations", "HBM"};
    struct table t;
    size_t i;
    json_t *row;
    double hbm = member(search, "hbm_bytes");
    table_init(&t, a, "lrrrrrrr", headings);
    json_array_foreach(json_object_get(search, "meshes"), i, row) {
        char text[FMT_BYTES];
        table_cell(&t, word(row, "mesh"));
        table_cell(&t, fmt_ns(text, 1e9 * member(row, "s")));
        table_cell(&t, fmt_ns(text, 1e9 * member(row, "compute_s")));
        table_cell(&t, fmt_ns(text, 1e9 * member(row, "exposed_comm_s")));
        table_cell(&t, fmt_ns(text, 1e9 * member(row, "optimizer_s")));
        table_cell(&t, fmt_bytes(text, member(row, "state_bytes")));
        table_cell(&t, fmt_bytes(text, member(row, "activation_bytes")));
        table_cell(&t, fmt_percent(text, (member(row, "state_bytes") + member(row, "activation_bytes")) / hbm));
    }
    putc('\n', out);
    table_print(&t, out, 0);
    fprintf(out, "%.0f meshes, %.0f divide the model and the batch, %.0f fit in HBM; the first was run\n",
            member(search, "considered"), member(search, "divide"), member(search, "fit"));
}

int summary_ops(const json_t *observed, struct arena *a, FILE *out) {
    static const char *const headings[] = {"block", "op", "time", "waits for", "each", "FLOP rate", "useful", "HBM rate",
                                           "fixed"};
    int printed = 0;
    size_t i, k;
    json_t *seen, *row;
    json_array_foreach(observed, i, seen) {
        struct table t;
        const json_t *ops = json_object_get(seen, "ops"), *search = json_object_get(seen, "mesh_search");
        if (search) {
            print_meshes(search, a, out);
            printed++;
        }
        if (!json_array_size(ops))
            continue;
        table_init(&t, a, "llrlrrrrr", headings);
        json_array_foreach(ops, k, row) {
            print_row(&t, row);
        }
        putc('\n', out);
        table_print(&t, out, 0);
        printed++;
    }
    return printed;
}
