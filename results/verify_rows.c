/* The index tables against the signed payload: each column that a reader can query has one place in
 * the payload that it must repeat. Also the documents that the payload names by digest. */
#include "harness/core/clock.h"
#include "harness/core/options.h"
#include "results/record.h"
#include "results/verify_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one row a run ---- */

enum field_kind { FIELD_TEXT, FIELD_INTEGER, FIELD_REAL, FIELD_TIME, FIELD_DIGEST, FIELD_CONST };
static const struct {
    const char *column, *path; /* FIELD_CONST: the one value the column may have */
    enum field_kind kind;
    bool optional; /* may be absent from the payload */
} fields[] = {
    {"r.uuid", "run.runId", FIELD_TEXT, false},
    {"c.name", "run.campaign", FIELD_TEXT, false},
    {"r.attempt", "run.attempt", FIELD_INTEGER, false},
    {"r.mode", "run.mode", FIELD_TEXT, false},
    {"r.load_kind", "run.load.kind", FIELD_TEXT, false},
    {"r.load_value", "run.load.value", FIELD_REAL, false},
    {"r.seed", "run.seed", FIELD_TEXT, false},
    {"r.started_ns", "run.startedOn", FIELD_TIME, false},
    {"e.finished_ns", "run.finishedOn", FIELD_TIME, false},
    {"e.verdict", "run.verdict", FIELD_TEXT, false},
    {"e.duration_ns", "counts.windowNs", FIELD_INTEGER, false},
    {"e.issued", "counts.issued", FIELD_INTEGER, false},
    {"e.completed", "counts.completed", FIELD_INTEGER, false},
    {"e.failed", "counts.failed", FIELD_INTEGER, false},
    {"e.input_tokens", "counts.inputTokens", FIELD_INTEGER, false},
    {"e.output_tokens", "counts.outputTokens", FIELD_INTEGER, false},
    {"r.class", "system.class", FIELD_TEXT, false},
    {"r.chip", "system.accelerator", FIELD_TEXT, false},
    {"r.chips", "system.accelerators", FIELD_INTEGER, false},
    {"s.name", "system.name", FIELD_TEXT, false},
    {"w.name", "workload.name", FIELD_TEXT, false},
    {"w.version", "workload.version", FIELD_TEXT, false},
    {"w.kind", "workload.kind", FIELD_TEXT, true},
    {"w.model", "workload.model", FIELD_TEXT, true},
    {"p.name", "rules.name", FIELD_TEXT, false},
    {"p.version", "rules.version", FIELD_TEXT, false},
    {"h.name", "harness.name", FIELD_TEXT, false},
    {"h.version", "harness.version", FIELD_TEXT, false},
    {"b.name", "backend.name", FIELD_TEXT, false},
    {"b.version", "backend.version", FIELD_TEXT, false},
    {"w.digest", "workload.digest.sha256", FIELD_DIGEST, false},
    {"r.workload_file_digest", "workload.file.digest.sha256", FIELD_DIGEST, true},
    {"s.digest", "system.descriptor.digest.sha256", FIELD_DIGEST, false},
    {"p.digest", "rules.digest.sha256", FIELD_DIGEST, false},
    {"r.environment_digest", "environment.digest.sha256", FIELD_DIGEST, false},
    {"h.digest", "harness.digest.sha256", FIELD_DIGEST, false},
    {"r.backend_digest", "backend.config.digest.sha256", FIELD_DIGEST, false},
    {"h.kind", "harness", FIELD_CONST, false},
    {"b.kind", "backend", FIELD_CONST, false},
    {"e.reason", "", FIELD_CONST, false}, /* of a run without a record only */
};
enum { FIELDS = sizeof fields / sizeof fields[0] };
static const char run_tables[] =
    " FROM run r JOIN run_end e USING(run_id) JOIN campaign c USING(campaign_id) JOIN system s "
    "USING(system_id)"
    " JOIN workload w USING(workload_id) JOIN rule_pack p USING(rule_pack_id)"
    " JOIN software h ON h.software_id=r.harness_id JOIN software b ON b.software_id=r.backend_id "
    "WHERE r.run_id=?";

/* What a row leaves empty, the record calls unknown. */
static const char *or_unknown(const char *s) {
    return s && *s ? s : "unknown";
}

static bool field_agrees(sqlite3_stmt *st, int i, const json_t *p, char *shown, size_t n) {
    const json_t *v = json_at(p, fields[i].path);
    const char *text = json_string_value(v);
    int64_t whole;
    double real;
    char buffer[SHA256_HEX];
    snprintf(shown, n, "%s", sql_text(st, i)); /* before other column calls: types convert */
    if (fields[i].kind == FIELD_CONST)
        return strcmp(fields[i].path, shown) == 0;
    if (!v)
        return fields[i].optional;
    switch (fields[i].kind) {
    case FIELD_INTEGER:
        return integer_at(p, fields[i].path, &whole) &&
               sqlite3_column_type(st, i) == SQLITE_INTEGER && whole == sqlite3_column_int64(st, i);
    case FIELD_REAL:
        return number_at(p, fields[i].path, &real) && real == sqlite3_column_double(st, i);
    case FIELD_TIME:
        clock_rfc3339(sqlite3_column_int64(st, i), buffer, sizeof buffer);
        return text && strcmp(text, buffer) == 0;
    case FIELD_DIGEST:
        if (sqlite3_column_bytes(st, i) != 32)
            return false;
        hex_encode(sqlite3_column_blob(st, i), 32, buffer);
        snprintf(shown, n, "%s", buffer);
        return text && strcmp(text, buffer) == 0;
    default:
        return text && strcmp(or_unknown(text), or_unknown(shown)) == 0;
    }
}

struct mismatch {
    int n;
    char first[400];
};

static void mismatch(struct mismatch *m, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void mismatch(struct mismatch *m, const char *fmt, ...) {
    if (m->n++)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(m->first, sizeof m->first, fmt, ap);
    va_end(ap);
}

static int check_run_row(struct conn *c, int64_t run_id, const json_t *p, struct mismatch *m,
                         struct err *e) {
    struct buf sql;
    sqlite3_stmt *st = NULL;
    bool row = false;
    buf_init(&sql, 16 * 1024);
    buf_puts(&sql, "SELECT ");
    for (int i = 0; i < FIELDS; i++)
        buf_printf(&sql, "%s%s", i ? "," : "", fields[i].column);
    buf_puts(&sql, run_tables);
    int rc = buf_check(&sql, "the query", e);
    if (!rc)
        rc = sql_prepare(c, sql.p, &st, e);
    if (!rc)
        rc = sql_bind(c, st, e, "i", run_id);
    if (!rc)
        rc = sql_step(c, st, &row, e);
    if (!rc && !row)
        mismatch(m, "rows that the run refers to are missing");
    for (int i = 0; !rc && row && i < FIELDS; i++) {
        char shown[160], found[48] = "";
        if (field_agrees(st, i, p, shown, sizeof shown))
            continue;
        const json_t *v = json_at(p, fields[i].path);
        if (json_is_string(v))
            snprintf(found, sizeof found, "%s", json_string_value(v));
        else if (json_is_integer(v))
            snprintf(found, sizeof found, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        else if (json_is_real(v))
            snprintf(found, sizeof found, "%.17g", json_real_value(v));
        mismatch(m, "column %s: signed '%s', the row says '%s'", fields[i].column, found, shown);
    }
    sqlite3_finalize(st);
    buf_release(&sql);
    return rc;
}

/* ---- lists: metrics, verdicts, reasons, subjects ---- */

static const json_t *signed_metric(const json_t *list, const char *name, const char *stat) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        const char *n = text_at(v, "name"), *s = text_at(v, "stat");
        if (n && s && strcmp(n, name) == 0 && strcmp(s, stat) == 0)
            return v;
    }
    return NULL;
}

static bool text_is(const json_t *o, const char *path, const char *want) {
    const char *s = text_at(o, path);
    return s && strcmp(s, want) == 0;
}

static bool metric_row_agrees(const json_t *v, sqlite3_stmt *st) {
    double value, level, lo, hi;
    int64_t n;
    bool interval = sqlite3_column_type(st, 6) != SQLITE_NULL;
    if (!v || !text_is(v, "unit", sql_text(st, 2)) || !text_is(v, "better", sql_text(st, 3)) ||
        !number_at(v, "value", &value) || value != sqlite3_column_double(st, 4) ||
        !integer_at(v, "n", &n) || n != sqlite3_column_int64(st, 5) ||
        interval != json_is_object(json_object_get(v, "ci")))
        return false;
    return !interval ||
           (number_at(v, "ci.level", &level) && level == sqlite3_column_double(st, 6) &&
            number_at(v, "ci.lo", &lo) && lo == sqlite3_column_double(st, 7) &&
            number_at(v, "ci.hi", &hi) && hi == sqlite3_column_double(st, 8));
}

typedef bool row_agrees_fn(const json_t *p, sqlite3_stmt *st);

static bool metric_agrees(const json_t *p, sqlite3_stmt *st) {
    return metric_row_agrees(
        signed_metric(json_object_get(p, "metrics"), sql_text(st, 0), sql_text(st, 1)), st);
}

static bool verdict_agrees(const json_t *p, sqlite3_stmt *st) {
    const json_t *v =
        json_array_get(json_object_get(p, "verdicts"), (size_t)sqlite3_column_int64(st, 0));
    return v && text_is(v, "rule", sql_text(st, 1)) &&
           json_is_true(json_object_get(v, "ok")) == sqlite3_column_int(st, 2) &&
           text_is(v, "want", sql_text(st, 3)) && text_is(v, "got", sql_text(st, 4)) &&
           text_is(v, "reasonCode", sql_text(st, 5));
}

static bool reason_agrees(const json_t *p, sqlite3_stmt *st) {
    const json_t *list = json_at(p, "run.invalidReasons");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_array_get(list, i))
                       ? json_string_value(json_array_get(list, i))
                       : "",
                   sql_text(st, 0)) == 0)
            return true;
    return false;
}

static bool artifact_agrees(const json_t *statement, sqlite3_stmt *st) {
    unsigned char digest[32];
    return record_subject(statement, sql_text(st, 0), digest, NULL) == 0 &&
           sqlite3_column_bytes(st, 1) == 32 && memcmp(digest, sqlite3_column_blob(st, 1), 32) == 0;
}

/* As many rows as members, and each row is one of them. */
static int check_list(struct conn *c, int64_t run_id, const char *table, const char *sql,
                      const json_t *o, size_t members, row_agrees_fn *agrees, struct mismatch *m,
                      struct err *e) {
    sqlite3_stmt *st = NULL;
    bool row = true;
    size_t n = 0;
    int rc = sql_prepare(c, sql, &st, e);
    if (!rc)
        rc = sql_bind(c, st, e, "i", run_id);
    for (; !rc && !(rc = sql_step(c, st, &row, e)) && row; n++)
        if (!agrees(o, st))
            mismatch(m, "table %s: the row of '%s %s' is not what was signed", table,
                     sql_text(st, 0), sqlite3_column_count(st) > 2 ? sql_text(st, 1) : "");
    if (!rc && n != members)
        mismatch(m, "table %s: %zu members are signed, there are %zu rows", table, members, n);
    sqlite3_finalize(st);
    return rc;
}

void check_rows(struct store *s, int64_t run_id, const struct signed_record *rec,
                struct report *r) {
    struct conn *c = &s->c;
    struct err e = {0};
    struct mismatch m = {0};
    const json_t *p = rec->predicate;
    const struct {
        const char *table, *sql;
        const json_t *o, *list;
        row_agrees_fn *agrees;
    } lists[] = {
        {"metric",
         "SELECT name, stat, unit, better, value, n, ci_level, ci_lo, ci_hi FROM metric JOIN "
         "metric_def USING(metric_id) WHERE run_id=?",
         p, json_object_get(p, "metrics"), metric_agrees},
        {"verdict", "SELECT position, rule, ok, want, got, reason_code FROM verdict WHERE run_id=?",
         p, json_object_get(p, "verdicts"), verdict_agrees},
        {"invalid_reason", "SELECT code FROM invalid_reason WHERE run_id=?", p,
         json_at(p, "run.invalidReasons"), reason_agrees},
        {"artifact", "SELECT name, sha256 FROM artifact WHERE run_id=?", rec->statement,
         json_object_get(rec->statement, "subject"), artifact_agrees},
    };
    int rc = check_run_row(c, run_id, p, &m, &e);
    for (size_t i = 0; !rc && i < sizeof lists / sizeof lists[0]; i++)
        rc = check_list(c, run_id, lists[i].table, lists[i].sql, lists[i].o,
                        json_array_size(lists[i].list), lists[i].agrees, &m, &e);
    if (rc)
        report_error(r, "rows", VERIFY_MISMATCH, &e);
    else
        report_findings(r, "rows", VERIFY_MISMATCH, m.n, m.first, "every row repeats the record");
}

/* ---- documents ---- */

/* The stored definition has the digest that was signed, in the predicate and as a subject. */
static void check_document(struct store *s, const struct signed_record *rec, const char *check,
                           const char *path, const char *subject, struct report *r) {
    const char *hex = text_at(rec->predicate, path);
    unsigned char digest[32], other[32];
    sqlite3_stmt *st = NULL;
    bool row = false;
    struct err e = {0};
    if (!hex || strlen(hex) != 64 || hex_decode(hex, 32, digest)) {
        report_check(r, check, false, VERIFY_INVALID, "the record has no digest at %s", path);
        return;
    }
    if (subject &&
        (record_subject(rec->statement, subject, other, &e) || memcmp(other, digest, 32))) {
        report_check(r, check, false, VERIFY_INVALID,
                     "the digest at %s is not that of subject '%s'", path, subject);
        return;
    }
    int rc = sql_prepare(&s->c, "SELECT doc FROM document WHERE digest=?", &st, &e);
    if (!rc)
        rc = sql_bind(&s->c, st, &e, "h", digest);
    if (!rc)
        rc = sql_step(&s->c, st, &row, &e);
    if (rc) {
        report_error(r, check, VERIFY_MISMATCH, &e);
    } else if (!row) {
        report_check(r, check, false, VERIFY_INCOMPLETE,
                     "the definition with SHA-256 %s is not in the store", hex);
    } else {
        sha256(sql_text(st, 0), (size_t)sqlite3_column_bytes(st, 0), other);
        bool same = memcmp(other, digest, 32) == 0;
        report_check(r, check, same, VERIFY_MISMATCH,
                     same ? "SHA-256 %s" : "the stored definition is not the one with SHA-256 %s",
                     hex);
    }
    sqlite3_finalize(st);
}

void check_documents(struct store *s, const struct signed_record *rec, struct report *r) {
    static const struct {
        const char *check, *path, *subject;
        bool optional;
    } docs[] = {
        {"workload", "workload.digest.sha256", RECORD_SUBJECT_WORKLOAD, false},
        {"workload_file", "workload.file.digest.sha256", NULL, true},
        {"system", "system.descriptor.digest.sha256", RECORD_SUBJECT_SYSTEM, false},
        {"rules", "rules.digest.sha256", RECORD_SUBJECT_RULES, false},
        {"environment", "environment.digest.sha256", RECORD_SUBJECT_ENVIRONMENT, false},
        {"backend", "backend.config.digest.sha256", NULL, false},
    };
    for (size_t i = 0; i < sizeof docs / sizeof docs[0]; i++)
        if (!docs[i].optional || json_at(rec->predicate, docs[i].path))
            check_document(s, rec, docs[i].check, docs[i].path, docs[i].subject, r);
    const char *version = text_at(rec->predicate, "harness.version");
    bool dirty = json_is_true(json_at(rec->predicate, "harness.dirty"));
    report_check(r, "harness", true, VERIFY_OK, "%s%s", version ? version : "?",
                 dirty ? ", built from a modified tree" : "");
}
