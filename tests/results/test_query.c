/* Planner questions against a store whose figures are set by hand, so that each answer is arithmetic
 * on the page; the three formats; SQL of others. */
#include "harness/core/json.h"
#include "results/query.h"
#include "results/store_internal.h"
#include "tests/results/fixture.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct scratch dir;
static struct store *s;

static void set_metric(sqlite3 *c, int run, const char *name, const char *stat, double value) {
    char sql[600];
    snprintf(sql, sizeof sql,
             "DELETE FROM metric WHERE run_id=%d AND metric_id IN(SELECT metric_id FROM metric_def WHERE name='%s' AND stat='%s');"
             "INSERT INTO metric SELECT %d, metric_id, %.17g, 64, NULL, NULL, NULL FROM metric_def WHERE name='%s' AND stat='%s'",
             run, name, stat, run, value, name, stat);
    raw_exec(c, sql);
    snprintf(sql, sizeof sql, "SELECT count(*) FROM metric JOIN metric_def USING(metric_id) WHERE run_id=%d AND name='%s' AND stat='%s'",
             run, name, stat);
    cr_assert(raw_int(c, sql) == 1, "no metric %s %s", name, stat);
}

static const struct {
    const char *chip, *result_class;
    int chips, concurrency;
    double output, requests, user, ttft_ms, tpot_ms;
} points[] = {
    {"v6e", "simulated", 8, 1, 100, 1, 100, 50, 10},
    {"v6e", "simulated", 8, 4, 380, 4, 95, 60, 11},
    {"v6e", "simulated", 8, 16, 1200, 12, 75, 90, 14},
    {"v6e", "simulated", 8, 64, 2000, 20, 31, 400, 33},
    {"v6e", "simulated", 8, 32, 1100, 11, 40, 120, 26}, /* run 3 beats it in both */
    {"v5e", "simulated", 16, 16, 1600, 16, 60, 100, 17},
    {"v6e", "measured", 8, 16, 1000, 10, 70, 95, 15},
};
enum { POINTS = sizeof points / sizeof points[0] };

static void setup(void) {
    struct err e = {0};
    struct secret_key *key = key_of(1);
    struct load l = load_default();
    struct definitions d;
    dir = scratch_make();
    must(store_open(dir.db, STORE_WRITE, &s, NULL, &e), &e);
    for (int i = 0; i < POINTS; i++) {
        d = definitions_make("chat", points[i].chip, points[i].chips, points[i].result_class);
        l.concurrency = points[i].concurrency;
        run_make(s, &d, &l, key, i < 5 ? "sweep" : NULL, NULL);
        definitions_release(&d);
    }
    d = definitions_make("chat", "v6e", 8, "simulated");
    l.fail_every = 4;
    run_make(s, &d, &l, key, "sweep", NULL); /* run 8: invalid */
    struct run_begin b = begin_of(&d);
    struct run_handle h;
    struct run_end end = {.verdict = "ABORTED", .abort_reason = "=cmd|' /C calc'!A0, \"quoted\""};
    b.campaign = "sweep";
    must(store_run_begin(s, &b, &h, &e), &e); /* run 9: aborted */
    must(store_run_end(s, &h, &end, &e), &e);
    definitions_release(&d);
    static const struct price prices[] = {
        {"v6e", "2025-01-01", 3.00, "list", "an older page"}, {"v6e", "2026-01-01", 2.70, "list", "the page"},
        {"v6e", "2999-01-01", 9.99, "list", "not yet"},       {"v6e", "2025-06-01", 1.35, "contract", "ours"},
        {"v5e", "2025-01-01", 1.20, "list", "the page"},
    };
    for (size_t i = 0; i < sizeof prices / sizeof prices[0]; i++)
        must(store_price_add(s, &prices[i], &e), &e);
    store_close(s);
    sqlite3 *c = raw_unguarded(dir.db);
    for (int i = 0; i < POINTS; i++) {
        set_metric(c, i + 1, "output_tokens_per_s", "value", points[i].output);
        set_metric(c, i + 1, "requests_per_s", "value", points[i].requests);
        set_metric(c, i + 1, "tokens_per_s_per_user", "p50", points[i].user);
        set_metric(c, i + 1, "ttft_ns", "p99", points[i].ttft_ms * 1e6);
        set_metric(c, i + 1, "tpot_ns", "p99", points[i].tpot_ms * 1e6);
    }
    sqlite3_close(c);
    must(store_open(dir.db, STORE_READ, &s, NULL, &e), &e);
    secret_key_free(key);
}
static void teardown(void) {
    store_close(s);
    scratch_remove(&dir);
}
TestSuite(results_query, .init = setup, .fini = teardown, .timeout = 60);

/* The text that a question prints. */
static char *ask_text(const char *name, const char *const *args, int nargs, enum query_format f) {
    struct err e = {0};
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    must(query_run(s, name, args, nargs, f, out, &e), &e);
    fclose(out);
    return text;
}

static json_t *rows_of(char *text) {
    struct err e = {0};
    json_t *o;
    must(json_parse(text, strlen(text), "answer", &o, &e), &e);
    json_t *rows = json_incref(json_object_get(o, "rows"));
    bool is_array = json_is_array(rows);
    cr_assert(is_array);
    json_decref(o);
    free(text);
    return rows;
}

#define ASK(name, ...) rows_of(ask_text(name, (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), QUERY_JSON))

static double num(const json_t *rows, size_t row, const char *column) {
    const json_t *v = json_object_get(json_array_get(rows, row), column);
    bool is = json_is_number(v);
    cr_assert(is, "row %zu has no number '%s'", row, column);
    return json_number_value(v);
}

static const char *str(const json_t *rows, size_t row, const char *column) {
    const char *v = json_string_value(json_object_get(json_array_get(rows, row), column));
    cr_assert(v != NULL, "row %zu has no text '%s'", row, column);
    return v;
}

/* The row with these texts. */
static size_t row_with(const json_t *rows, const char *c1, const char *v1, const char *c2, const char *v2) {
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (!strcmp(str(rows, i, c1), v1) && !strcmp(str(rows, i, c2), v2))
            return i;
    cr_assert(false, "no row with %s=%s and %s=%s", c1, v1, c2, v2);
    return 0;
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* ---- the table of questions ---- */

Test(results_query, the_questions_are_in_order_and_all_answer) {
    int n = 0;
    for (const struct named_query *q = named_queries; q->name; q++, n++) {
        if (n)
            cr_assert(strcmp(q[-1].name, q->name) < 0, "%s is out of order", q->name);
        const char *args[6];
        int nargs = 0;
        for (int i = 0; i < 6 && q->param[i].name; i++) {
            char used[80];
            snprintf(used, sizeof used, ":%s", q->param[i].name);
            cr_assert(strstr(q->sql, used) != NULL, "%s does not use %s", q->name, used);
            cr_assert(q->param[i].help != NULL);
            if (!q->param[i].def)
                args[nargs++] = "rate=10";
        }
        json_t *rows = rows_of(ask_text(q->name, args, nargs, QUERY_JSON));
        bool figures = strcmp(q->name, "prices") && strcmp(q->name, "campaigns") && strcmp(q->name, "training") &&
                       strcmp(q->name, "wide-intervals") && strcmp(q->name, "power"); /* no device was read */
        if (figures) {
            cr_assert(json_array_size(rows) > 0, "%s has no answer", q->name);
            str(rows, 0, "class"); /* every figure says what stands behind it */
        }
        json_decref(rows);
        free(ask_text(q->name, args, nargs, QUERY_TABLE));
        free(ask_text(q->name, args, nargs, QUERY_CSV));
    }
    cr_assert(ge(int, n, 14));
}

Test(results_query, best_throughput) {
    json_t *r = ASK("best-throughput", "workload=chat");
    cr_assert(eq(u64, json_array_size(r), 3));
    size_t i = row_with(r, "system", "v6e-8", "class", "simulated");
    cr_assert(num(r, i, "output_tokens_per_s") == 2000);
    cr_assert(eq(str, (char *)str(r, i, "load"), "concurrency:64"));
    cr_assert(eq(str, (char *)str(r, i, "runs"), "5/7"));
    cr_assert(num(r, i, "signatures") == 1);
    cr_assert(num(r, row_with(r, "system", "v6e-8", "class", "measured"), "output_tokens_per_s") == 1000);
    cr_assert(num(r, row_with(r, "system", "v5e-16", "class", "simulated"), "output_tokens_per_s") == 1600);
    json_decref(r);
    r = ASK("best-throughput", "workload=ch*", "class=measured");
    cr_assert(eq(u64, json_array_size(r), 1));
    json_decref(r);
    r = ASK("best-throughput", "workload=x' OR 1=1 --");
    cr_assert(eq(u64, json_array_size(r), 0));
    json_decref(r);
    r = ASK("best-throughput-per-chip", "chip=v5e");
    cr_assert(eq(u64, json_array_size(r), 1));
    cr_assert(num(r, 0, "output_tokens_per_s_per_chip") == 100);
    json_decref(r);
}

Test(results_query, cost) {
    json_t *r = ASK("cheapest", "ttft_ms=100");
    /* 8 chips x 2.70 USD/h / (1200 tok/s x 3600 s/h) x 1e6 = 5 USD a million tokens */
    cr_assert(eq(u64, json_array_size(r), 5)); /* v6e list and contract, twice by class, and v5e */
    for (size_t i = 0; i < json_array_size(r); i++) {
        bool contract = !strcmp(str(r, i, "basis"), "contract"), v5e = !strcmp(str(r, i, "system"), "v5e-16");
        double want = v5e ? 16 * 1.2e6 / (1600 * 3600.0) : (contract ? 0.5 : 1) * (!strcmp(str(r, i, "class"), "measured") ? 6.0 : 5.0);
        cr_assert(near(num(r, i, "usd_per_mtok"), want), "row %zu: %g, expected %g", i, num(r, i, "usd_per_mtok"), want);
        if (i)
            cr_assert(num(r, i, "usd_per_mtok") >= num(r, i - 1, "usd_per_mtok"));
    }
    json_decref(r);
    r = ASK("cheapest", "basis=list", "class=simulated");
    cr_assert(near(num(r, row_with(r, "system", "v6e-8", "basis", "list"), "usd_per_mtok"), 3.0));
    json_decref(r);
    r = ASK("prices", "chip=v6e");
    cr_assert(eq(u64, json_array_size(r), 4));
    json_decref(r);
}

Test(results_query, capacity) {
    json_t *r = ASK("chips-for-rate", "rate=100", "ttft_ms=100");
    size_t i = row_with(r, "system", "v6e-8", "class", "simulated");
    cr_assert(num(r, i, "systems") == 11 && num(r, i, "chips") == 88); /* ceil(130 / 12) */
    i = row_with(r, "system", "v5e-16", "class", "simulated");
    cr_assert(num(r, i, "systems") == 9 && num(r, i, "chips") == 144); /* ceil(130 / 16) */
    json_decref(r);
    r = ASK("chips-for-rate", "rate=20", "headroom=0", "class=simulated", "workload=chat");
    i = row_with(r, "system", "v6e-8", "class", "simulated");
    cr_assert(num(r, i, "systems") == 1);
    json_decref(r);
    r = ASK("max-load-under-slo", "ttft_ms=100", "tpot_ms=15");
    cr_assert(num(r, row_with(r, "system", "v6e-8", "class", "simulated"), "load_value") == 16);
    cr_assert(eq(u64, json_array_size(r), 2));
    json_decref(r);
    r = ASK("max-load-under-slo", "tpot_ms=5");
    cr_assert(eq(u64, json_array_size(r), 0));
    json_decref(r);
}

Test(results_query, curves) {
    json_t *r = ASK("pareto", "class=simulated", "chip=v6e");
    static const double user[] = {31, 75, 95, 100}, per_chip[] = {250, 150, 47.5, 12.5};
    cr_assert(eq(u64, json_array_size(r), 4));
    for (size_t i = 0; i < 4; i++)
        cr_assert(num(r, i, "tokens_per_s_per_user") == user[i] && num(r, i, "output_tokens_per_s_per_chip") == per_chip[i]);
    json_decref(r);
    r = ASK("knee", "class=simulated");
    size_t i = row_with(r, "system", "v6e-8", "load_kind", "concurrency");
    cr_assert(num(r, i, "lowest_ttft_p99_ms") == 50 && num(r, i, "knee_load") == 32 && num(r, i, "ttft_p99_ms") == 120);
    cr_assert(eq(u64, json_array_size(r), 1));
    json_decref(r);
    r = ASK("knee", "factor=4", "class=simulated");
    cr_assert(num(r, 0, "knee_load") == 64);
    json_decref(r);
    r = ASK("scaling", "chip=v6e", "class=simulated");
    cr_assert(num(r, 0, "efficiency") == 1);
    json_decref(r);
}

Test(results_query, runs_and_their_fates) {
    json_t *r = ASK("campaign-runs", "campaign=sweep");
    static const char *const verdicts[] = {"VALID", "VALID", "VALID", "VALID", "VALID", "INVALID", "ABORTED"};
    cr_assert(eq(u64, json_array_size(r), 7));
    for (size_t i = 0; i < 7; i++) {
        cr_assert(eq(str, (char *)str(r, i, "verdict"), (char *)verdicts[i]));
        cr_assert(num(r, i, "attempt") == (double)i + 1);
    }
    json_decref(r);
    r = ASK("campaigns", "campaign=sweep");
    cr_assert(eq(str, (char *)str(r, 0, "valid_of_started"), "5/7"));
    json_decref(r);
    r = ASK("dropped-runs", "campaign=sweep");
    cr_assert(eq(u64, json_array_size(r), 2));
    cr_assert(eq(str, (char *)str(r, 1, "verdict"), "INVALID"));
    cr_assert(eq(str, (char *)str(r, 1, "reason"), "failed-requests"));
    json_decref(r);
    r = ASK("failures", "workload=chat");
    cr_assert(num(r, 0, "failed_share") == 0.25 && num(r, 0, "failed") == 16);
    json_decref(r);
    r = ASK("signatures", "below=2", "campaign=sweep");
    cr_assert(eq(u64, json_array_size(r), 6));
    cr_assert(contains(str(r, 0, "signers"), "runner "));
    json_decref(r);
    r = ASK("latest", "class=simulated", "chip=v6e");
    cr_assert(eq(u64, json_array_size(r), 1));
    cr_assert(eq(str, (char *)str(r, 0, "load"), "concurrency:32")); /* run 5, not the invalid one */
    json_decref(r);
}

Test(results_query, comparisons) {
    json_t *r = ASK("sim-vs-measured", "workload=chat");
    cr_assert(eq(u64, json_array_size(r), 1)); /* the one load that both ran */
    cr_assert(near(num(r, 0, "relative_error"), 0.2));
    json_decref(r);
    r = ASK("run-variation", "campaign=sweep");
    /* mean 956 and sample deviation of 100, 380, 1200, 2000, 1100 */
    cr_assert(num(r, 0, "n") == 5 && near(num(r, 0, "mean"), 956));
    cr_assert(near(num(r, 0, "cv"), sqrt((856.0 * 856 + 576.0 * 576 + 244.0 * 244 + 1044.0 * 1044 + 144.0 * 144) / 4) / 956));
    json_decref(r);
    r = ASK("lengths-effect", "chip=v5e");
    cr_assert(num(r, 0, "mean_isl") == 128 && num(r, 0, "mean_osl") == 16);
    json_decref(r);
    r = ASK("figures", "metric=ttft_ns");
    cr_assert(gt(u64, json_array_size(r), 3));
    json_decref(r);
}

/* ---- parameters ---- */

Test(results_query, wrong_names_and_values_are_explained) {
    struct err e = {0};
    static const struct {
        const char *name, *arg, *part;
    } bad[] = {
        {"best-thruput", NULL, "did you mean 'best-throughput'"},
        {"nonsense", NULL, "no question 'nonsense'"},
        {"chips-for-rate", NULL, "needs rate="},
        {"chips-for-rate", "rate=many", "expected a number, found 'many'"},
        {"cheapest", "ttft_ms=fast", "expected a number, found 'fast'"},
        {"cheapest", "ttft=1", "did you mean 'ttft_ms'"},
        {"cheapest", "100", "expected a parameter as name=value"},
        {"knee", "factor=", "expected a number"},
    };
    FILE *out = fopen("/dev/null", "w");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int rc = query_run(s, bad[i].name, &bad[i].arg, bad[i].arg ? 1 : 0, QUERY_TABLE, out, &e);
        cr_assert(rc == ASSAY_EUSAGE, "%s %s gave %d", bad[i].name, bad[i].arg ? bad[i].arg : "", rc);
        cr_assert(contains(e.text, bad[i].part), "%s", e.text);
    }
    fclose(out);
}

Test(results_query, prices_are_checked) {
    struct err e = {0};
    struct store *w;
    must(store_open(dir.db, STORE_WRITE, &w, NULL, &e), &e);
    static const struct price bad[] = {
        {"v6e", "2026-01-01", 1, "list", "twice"}, {"v6e", "01/02/2026", 1, "list", "s"}, {"v6e", "2026-13-01", 1, "list", "s"},
        {"v6e", "2026-02-01", -1, "list", "s"},    {"v6e", "2026-02-01", NAN, "list", "s"}, {"v6e", "2026-02-01", 1, "rumour", "s"},
        {"", "2026-02-01", 1, "list", "s"},        {"v6e", "2026-02-01", 1, "list", ""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_assert(store_price_add(w, &bad[i], &e) == ASSAY_EUSAGE, "price %zu", i);
    store_close(w);
}

/* ---- formats ---- */

static char *sql_text_of(const char *sql, enum query_format f) {
    struct err e = {0};
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    must(query_sql(s, sql, 0, f, out, &e), &e);
    fclose(out);
    return text;
}

static const char mixed[] = "VALUES(1,0.1,'plain',NULL),(-9007199254740993,1e300,'a,\"b\"',x'00ff'),(2,-2.5,'=1+1','@x'),"
                            "(3,100.0,'two\nlines',' lead'),(4,1.0/3,'é','-5')";

Test(results_query, csv_is_rfc_4180_without_formulas) {
    char *t = sql_text_of(mixed, QUERY_CSV);
    cr_assert(eq(str, t, "column1,column2,column3,column4\r\n"
                         "1,0.1,plain,\r\n"
                         "-9007199254740993,1e+300,\"a,\"\"b\"\"\",00ff\r\n"
                         "2,-2.5,'=1+1,'@x\r\n"
                         "3,100,\"two\nlines\",\" lead\"\r\n"
                         "4,0.3333333333333333,é,'-5\r\n"));
    free(t);
}

Test(results_query, json_has_no_nulls_and_no_inexact_integers) {
    char *t = sql_text_of(mixed, QUERY_JSON);
    cr_assert(eq(str, t, "{\"rows\":[\n"
                         "{\"column1\":1,\"column2\":0.1,\"column3\":\"plain\"},\n"
                         "{\"column1\":\"-9007199254740993\",\"column2\":1e+300,\"column3\":\"a,\\\"b\\\"\",\"column4\":\"00ff\"},\n"
                         "{\"column1\":2,\"column2\":-2.5,\"column3\":\"=1+1\",\"column4\":\"@x\"},\n"
                         "{\"column1\":3,\"column2\":100,\"column3\":\"two\\u000alines\",\"column4\":\" lead\"},\n"
                         "{\"column1\":4,\"column2\":0.3333333333333333,\"column3\":\"é\",\"column4\":\"-5\"}]}\n"));
    free(t);
    json_decref(rows_of(sql_text_of("SELECT CAST(x'ff41c0' AS TEXT) AS t, 9e999 AS inf", QUERY_JSON))); /* parses */
    t = sql_text_of("SELECT 1 WHERE 0", QUERY_JSON);
    cr_assert(eq(str, t, "{\"rows\":[]}\n"));
    free(t);
}

Test(results_query, a_table_is_aligned) {
    char *t = sql_text_of("SELECT 1 AS n, 'é' AS t, 0.5 AS x UNION ALL SELECT 1000, 'long', 1234567.0", QUERY_TABLE);
    cr_assert(eq(str, t, "   n  t           x\n"
                         "   1  é         0.5\n"
                         "1000  long  1234567\n"));
    free(t);
}

/* ---- SQL of others ---- */

Test(results_query, sql_only_reads) {
    static const char *const refused[] = {
        "INSERT INTO tag VALUES(1,'x')", "UPDATE run SET seed='1'", "DELETE FROM price", "DROP TABLE run", "ATTACH 'x.db' AS x",
        "PRAGMA user_version", "PRAGMA user_version=9", "BEGIN", "VACUUM", "CREATE TEMP TABLE t(a)", "REINDEX", "ANALYZE",
        "WITH a AS (SELECT 1) INSERT INTO tag SELECT 1,'x'", "SELECT 1; DROP TABLE run", "SELECT 1; SELECT 2", "", "  -- nothing",
        "SELECT load_extension('x')", "SELECT * FROM pragma_user_version", "SELEKT 1", "SELECT no_such_column FROM run",
        "EXPLAIN DELETE FROM price", "SELECT * FROM", "SELECT zeroblob(1000000000)", "/* x */ DELETE FROM price",
    };
    struct err e = {0};
    FILE *out = fopen("/dev/null", "w");
    struct store *w;
    must(store_open(dir.db, STORE_WRITE, &w, NULL, &e), &e);
    struct store *both[] = {s, w};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
            int rc = query_sql(both[k], refused[i], 0, QUERY_TABLE, out, &e);
            cr_assert(rc == ASSAY_EUSAGE, "'%s' gave %d: %s", refused[i], rc, e.text);
        }
    static const char *const good[] = {
        "SELECT count(*) FROM v_run;", " /* c */ SELECT 1 -- end", "WITH a AS (SELECT 1 AS x) SELECT * FROM a", "VALUES(1),(2)",
        "EXPLAIN QUERY PLAN SELECT * FROM v_result", "select max(value) from v_result ; ; ",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        must(query_sql(both[i % 2], good[i], 0, QUERY_TABLE, out, &e), &e);
    cr_assert(eq(i64, raw_int(store_sqlite(s), "SELECT count(*) FROM price"), 5));
    /* the handle for writing is as restricted as before, and as able */
    cr_assert(raw_fails(store_sqlite(w), "DROP TABLE tag"));
    raw_exec(store_sqlite(w), "INSERT INTO tag VALUES(1,'x')");
    store_close(w);
    fclose(out);
}

Test(results_query, sql_has_a_time_limit) {
    struct err e = {0};
    FILE *out = fopen("/dev/null", "w");
    int rc = query_sql(s, "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT count(*) FROM c", 30000000, QUERY_TABLE, out, &e);
    cr_assert(eq(int, rc, ASSAY_EUSAGE));
    cr_assert(contains(e.text, "time limit of 0.03 s"), "%s", e.text);
    must(query_sql(s, "SELECT 1", 0, QUERY_TABLE, out, &e), &e);
    fclose(out);
}

Test(results_query, a_failing_output_is_an_error) {
    struct err e = {0};
    FILE *out = fopen("/dev/full", "w");
    cr_assert(out != NULL);
    cr_assert(eq(int, query_sql(s, "SELECT 1", 0, QUERY_TABLE, out, &e), ASSAY_EENV));
    fclose(out);
}

Test(results_query, the_schema_is_sql) {
    struct err e = {0};
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    must(query_schema(s, QUERY_TABLE, out, &e), &e);
    fclose(out);
    sqlite3 *c;
    cr_assert(sqlite3_open(":memory:", &c) == SQLITE_OK);
    cr_assert(contains(text, "CREATE VIEW v_result"));
    cr_assert(strstr(text, "CREATE VIEW") < strstr(text, "CREATE TABLE")); /* the promise first */
    raw_exec(c, text);
    sqlite3_close(c);
    free(text);
    out = open_memstream(&text, &n);
    must(query_schema(s, QUERY_JSON, out, &e), &e);
    fclose(out);
    json_t *root = json_loads(text, 0, NULL), *first = json_array_get(json_object_get(root, "objects"), 0);
    cr_assert(eq(str, (char *)json_string_value(json_object_get(first, "type")), "view"));
    cr_assert(contains(json_string_value(json_object_get(first, "sql")), "CREATE VIEW"));
    json_decref(root);
    free(text);
}
