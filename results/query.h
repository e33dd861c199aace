/* Planner questions over the store: a table of named queries, and read-only SQL with a time limit.
 * A named query is one row: name, title, parameters, SQL, stable column list. */
#ifndef RESULTS_QUERY_H
#define RESULTS_QUERY_H

#include "harness/core/err.h"
#include "results/store.h"

#include <stdio.h>

/* QUERY_JSON is one object, {"query":NAME,"rows":[{…}]} ("query" only for named ones); what is NULL
 * is absent, integers beyond 2^53-1 and blobs are strings. QUERY_CSV is RFC 4180; text that a
 * spreadsheet would take for a formula gets an apostrophe in front. */
enum query_format { QUERY_TABLE, QUERY_CSV, QUERY_JSON };

struct query_param {
    const char *name; /* bound as :name in the SQL */
    const char *def;  /* default text, NULL = required */
    const char *help;
};
struct named_query {
    const char *name, *title;
    struct query_param param[6];
    const char *sql;
};
extern const struct named_query named_queries[]; /* ends with {0}; sorted by name */

/* Whether there is such a question: before a store is opened for it. */
int query_check_name(const char *name, struct err *e) MUST_USE;

/* args: "name=value" texts. Unknown query or parameter: ASSAY_EUSAGE with the near ones. */
int query_run(
    struct store *s, const char *name, const char *const *args, int nargs,
    /* QUERY_JSON is one object, {"query":NAME,"rows":[{…}]} ("query" only for named ones); what is
     * NULL is absent, integers beyond 2^53-1 and blobs are strings. QUERY_CSV is RFC 4180; text
     * that a spreadsheet would take for a formula gets an apostrophe in front. */
    enum query_format f, FILE *out, struct err *e) MUST_USE;
/* One SELECT; anything that would write, attach or set a pragma is refused (ASSAY_EUSAGE, as is a
 * syntax error or the end of the time limit; 0 = 30 s). */
int query_sql(
    struct store *s, const char *sql,
    int64_t time_limit_ns, /* QUERY_JSON is one object, {"query":NAME,"rows":[{…}]} ("query" only
                            * for named ones); what is NULL is absent, integers beyond 2^53-1 and
                            * blobs are strings. QUERY_CSV is RFC 4180; text that a spreadsheet
                            * would take for a formula gets an apostrophe in front. */
    enum query_format f, FILE *out, struct err *e) MUST_USE;
/* The documented views and tables as SQL text; QUERY_JSON: one object, {"objects":[{"type","name","sql"}]}. */
int query_schema(struct store *s, enum query_format f, FILE *out, struct err *e) MUST_USE;

#endif
