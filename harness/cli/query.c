/* `assay query`: named planner questions, or read-only SQL. */
#include "results/query.h"
#include "harness/cli/out.h"
#include "harness/cli/term.h"
#include "harness/cli/verbs.h"

#include <string.h>

struct query_args {
    struct common c;
    bool list, schema, csv;
    const char *sql;
    int64_t time_limit_ns;
};

#define AT(field) offsetof(struct query_args, field)
// clang-format off
static const struct option query_options[] = {
    {.name = "csv", .type = OPT_BOOL, .offset = AT(csv), .help = "comma-separated values with a heading"},
    {.name = "list", .type = OPT_BOOL, .offset = AT(list), .help = "the named questions and their parameters"},
    {.name = "schema", .type = OPT_BOOL, .offset = AT(schema),
     .help = "the documented views and tables, as SQL"},
    {.name = "sql", .type = OPT_STR, .offset = AT(sql), .unit = "QUERY",
     .help = "one SELECT; nothing that writes is accepted"},
    {.name = "time-limit", .type = OPT_DURATION, .offset = AT(time_limit_ns), .def = "60s",
     .help = "of --sql"},
    {0},
};
// clang-format on

static json_t *params_json(const struct named_query *q) {
    json_t *params = json_array();
    for (size_t i = 0; i < sizeof q->param / sizeof *q->param && q->param[i].name; i++) {
        const struct query_param *p = &q->param[i];
        json_t *v = json_pack("{s:s,s:b,s:s}", "name", p->name, "required", p->def == NULL, "help",
                              p->help ? p->help : "");
        if (v && p->def)
            json_object_set_new(v, "default", json_string(p->def));
        json_array_append_new(params, v);
    }
    return params;
}

static int list_queries(const struct query_args *a, struct arena *arena, struct err *e) {
    if (a->c.json) {
        json_t *list = json_array(), *root = json_pack("{s:o}", "queries", list);
        int bad = !root;
        for (const struct named_query *q = named_queries; q->name && !bad; q++)
            bad = json_array_append_new(list, json_pack("{s:s,s:s,s:o}", "name", q->name, "title",
                                                        q->title, "parameters", params_json(q)));
        if (!bad)
            out_json(root, stdout);
        json_decref(root);
        return bad ? err_set(e, ASSAY_ENOMEM, "out of memory") : 0;
    }
    struct table t;
    table_init(&t, arena, "ll", NULL);
    for (const struct named_query *q = named_queries; q->name; q++) {
        table_cell(&t, q->name);
        table_cell(&t, q->title);
        for (size_t i = 0; i < sizeof q->param / sizeof *q->param && q->param[i].name; i++) {
            const struct query_param *p = &q->param[i];
            table_cellf(&t, "  %s=%s", p->name, p->def ? p->def : "...");
            table_cellf(&t, "  %s%s", p->help ? p->help : "", p->def ? "" : " (required)");
        }
    }
    table_print(&t, stdout, 0);
    return 0;
}

static int run_query(void *options, struct err *e) {
    struct query_args *a = options;
    int forms = (a->c.args.n > 0) + a->list + a->schema + (a->sql != NULL);
    if (forms != 1)
        return err_set(e, ASSAY_EUSAGE,
                       "query: expected one of NAME, --sql, --list and --schema; see "
                       "'assay query --help'");
    if (a->csv && a->c.json)
        return err_set(e, ASSAY_EUSAGE, "query: --csv and --json exclude each other");
    if (a->list)
        return list_queries(a, &a->c.arena, e);
    enum query_format format = a->csv ? QUERY_CSV : a->c.json ? QUERY_JSON : QUERY_TABLE;
    struct store *s = NULL;
    int rc = a->c.args.n ? query_check_name(a->c.args.v[0], e) : 0;
    if (rc || (rc = store_open(a->c.db, STORE_READ, &s, NULL, e)))
        return rc;
    if (a->schema)
        rc = query_schema(s, format, stdout, e);
    else if (a->sql)
        rc = query_sql(s, a->sql, a->time_limit_ns, format, stdout, e);
    else
        rc = query_run(s, a->c.args.v[0], a->c.args.v + 1, a->c.args.n - 1, format, stdout, e);
    store_close(s);
    return rc;
}

// clang-format off
const struct verb verb_query = {
    .name = "query",
    .usage = "[NAME [PARAMETER=VALUE...]]",
    .summary = "planner questions over the store, named or in SQL",
    .about = "NAME is a question of 'assay query --list'; its parameters have defaults unless the list "
             "says that they are required. --sql takes one SELECT over the views of --schema, read-only "
             "and with a limit of time.",
    .examples = "assay query --list\n"
                "assay query --sql 'SELECT run, verdict FROM v_run LIMIT 5' --csv\n"
                "assay query --schema\n",
    .args_min = 0,
    .args_max = -1,
    .options_size = sizeof(struct query_args),
    .options = (const struct option *const[]){query_options, common_store, common_output, NULL},
    .run = run_query,
};
// clang-format on
