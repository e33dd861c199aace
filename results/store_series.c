/* The series of a run in the store: written with its end, read back for show and verify, digested for
 * the record. */
#include "results/hash.h"
#include "results/store_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- digest ---- */

static void add_le(struct sha256_stream *h, uint64_t v, size_t bytes) {
    unsigned char b[8];
    for (size_t i = 0; i < bytes; i++)
        b[i] = (unsigned char)(v >> 8 * i);
    sha256_add(h, b, bytes);
}

static void add_text(struct sha256_stream *h, const char *s) {
    sha256_add(h, s, strlen(s) + 1);
}

static void add_f64(struct sha256_stream *h, double v) {
    uint64_t bits = UINT64_C(0x7ff8000000000000); /* every NaN alike */
    if (!isnan(v))
        memcpy(&bits, &v, sizeof bits);
    add_le(h, bits, 8);
}

void series_digest(const struct series_log *l, unsigned char digest[32]) {
    struct sha256_stream *h = sha256_new();
    for (size_t i = 0; i < l->nsources; i++) {
        add_le(h, i, 4);
        add_text(h, l->source[i].kind);
        add_text(h, l->source[i].location);
    }
    for (size_t i = 0; i < l->nscrapes; i++) {
        const struct series_scrape *s = &l->scrape[i];
        add_le(h, s->source, 4);
        add_le(h, s->round, 4);
        add_le(h, (uint64_t)s->t_ns, 8);
        add_le(h, (uint64_t)s->took_ns, 8);
        add_le(h, (uint64_t)s->bytes, 8);
        add_le(h, s->ok, 1);
    }
    for (size_t i = 0; i < l->nseries; i++) {
        const struct series *s = &l->series[i];
        add_le(h, i, 4);
        add_le(h, s->source, 4);
        add_text(h, s->name);
        add_text(h, s->labels);
        add_text(h, prom_kind_name(s->kind));
    }
    for (size_t i = 0; i < l->nsamples; i++) {
        add_le(h, l->sample[i].series, 4);
        add_le(h, l->sample[i].round, 4);
        add_f64(h, l->sample[i].value);
    }
    sha256_finish(h, digest);
}

/* ---- writing ---- */

/* Runs a prepared statement once more. */
static int again(struct conn *c, sqlite3_stmt *st, int rc, struct err *e) {
    bool row;
    if (!rc)
        rc = sql_step(c, st, &row, e);
    sqlite3_reset(st);
    return rc;
}

static int put_samples(struct conn *c, int64_t run_id, const struct series_log *l, struct err *e) {
    sqlite3_stmt *st = NULL;
    int rc = sql_prepare(c, "INSERT INTO series_sample VALUES(?,?,?,?)", &st, e);
    for (size_t i = 0; !rc && i < l->nsamples; i++) {
        const struct series_sample *p = &l->sample[i];
        rc = isnan(p->value) ? sql_bind(c, st, e, "iiin", run_id, (int64_t)p->series, (int64_t)p->round)
                             : sql_bind(c, st, e, "iiid", run_id, (int64_t)p->series,
                                        (int64_t)p->round, p->value);
        rc = again(c, st, rc, e);
    }
    sqlite3_finalize(st);
    return rc;
}

static int put_rounds(struct conn *c, int64_t run_id, const struct series_log *l, struct err *e) {
    sqlite3_stmt *st = NULL;
    int rc = sql_prepare(c, "INSERT INTO series_round VALUES(?,?,?,?,?,?,?)", &st, e);
    for (size_t i = 0; !rc && i < l->nscrapes; i++) {
        const struct series_scrape *s = &l->scrape[i];
        rc = sql_bind(c, st, e, "iiiiiii", run_id, (int64_t)s->source, (int64_t)s->round, s->t_ns,
                      s->took_ns, s->bytes, (int64_t)s->ok);
        rc = again(c, st, rc, e);
    }
    sqlite3_finalize(st);
    return rc;
}

static int put_series(struct conn *c, int64_t run_id, const struct series_log *l, struct err *e) {
    sqlite3_stmt *st = NULL;
    int rc = sql_prepare(c, "INSERT INTO series VALUES(?,?,?,?,?,?)", &st, e);
    for (size_t i = 0; !rc && i < l->nseries; i++) {
        const struct series *s = &l->series[i];
        rc = sql_bind(c, st, e, "iiittt", run_id, (int64_t)i, (int64_t)s->source, s->name, s->labels,
                      prom_kind_name(s->kind));
        rc = again(c, st, rc, e);
    }
    sqlite3_finalize(st);
    return rc;
}

int series_store(struct conn *c, int64_t run_id, const struct series_log *l, struct err *e) {
    int rc = 0;
    for (size_t i = 0; !rc && i < l->nsources; i++)
        rc = sql_run(c, e, "INSERT INTO series_source VALUES(?,?,?,?)", "iitt", run_id, (int64_t)i,
                     l->source[i].kind, l->source[i].location);
    if (!rc)
        rc = put_rounds(c, run_id, l, e);
    if (!rc)
        rc = put_series(c, run_id, l, e);
    if (!rc)
        rc = put_samples(c, run_id, l, e);
    return rc ? err_wrap(e, "storing the series read beside the run") : 0;
}

/* ---- reading ---- */

/* One row into the log. Numbers of a file of another's making are checked here. */
typedef int take_row_fn(struct series_log *l, sqlite3_stmt *st, struct err *e);

static int bad_row(struct err *e, const char *table) {
    return err_set(e, ASSAY_EINPUT, "table %s: its rows do not follow each other", table);
}

static int take_source(struct series_log *l, sqlite3_stmt *st, struct err *e) {
    uint32_t id = 0;
    int64_t want = sqlite3_column_int64(st, 0);
    int rc = series_source_add(l, sql_text(st, 1), sql_text(st, 2), &id, e);
    return !rc && want != id ? bad_row(e, "series_source") : rc;
}

static bool is_u32(int64_t v) {
    return v >= 0 && v < UINT32_MAX;
}

static int take_round(struct series_log *l, sqlite3_stmt *st, struct err *e) {
    int64_t source = sqlite3_column_int64(st, 0), round = sqlite3_column_int64(st, 1);
    if (source < 0 || (uint64_t)source >= l->nsources || round < 0 || round > SERIES_SAMPLES_MAX)
        return bad_row(e, "series_round");
    struct series_scrape s = {(uint32_t)source,
                              (uint32_t)round,
                              sqlite3_column_int64(st, 2),
                              sqlite3_column_int64(st, 3),
                              sqlite3_column_int64(st, 4),
                              sqlite3_column_int64(st, 5) != 0};
    return series_restore_scrape(l, &s, e);
}

static int take_series(struct series_log *l, sqlite3_stmt *st, struct err *e) {
    int64_t id = sqlite3_column_int64(st, 0), source = sqlite3_column_int64(st, 1);
    enum prom_kind kind = prom_kind_parse(sql_text(st, 4));
    if (id < 0 || (uint64_t)id != l->nseries || source < 0 || (uint64_t)source >= l->nsources ||
        kind == PROM_KINDS)
        return bad_row(e, "series");
    return series_restore_series(l, (uint32_t)source, kind, sql_text(st, 2), sql_text(st, 3), e);
}

static int take_sample(struct series_log *l, sqlite3_stmt *st, struct err *e) {
    int64_t series = sqlite3_column_int64(st, 0), round = sqlite3_column_int64(st, 1);
    bool null = sqlite3_column_type(st, 2) == SQLITE_NULL;
    if (!is_u32(series) || round < 0 || round > SERIES_SAMPLES_MAX)
        return bad_row(e, "series_sample");
    return series_restore_sample(l, (uint32_t)series, (uint32_t)round,
                                 null ? (double)NAN : sqlite3_column_double(st, 2), e);
}

int store_series_load(struct store *s, int64_t run_id, struct series_log *l, struct err *e) {
    static const struct {
        const char *sql;
        take_row_fn *take;
    } tables[] = {
        {"SELECT source, kind, location FROM series_source WHERE run_id=? ORDER BY source",
         take_source},
        {"SELECT source, round, t_ns, took_ns, bytes, ok FROM series_round WHERE run_id=? "
         "ORDER BY source, round",
         take_round},
        {"SELECT series, source, name, labels, kind FROM series WHERE run_id=? ORDER BY series",
         take_series},
        {"SELECT series, round, value FROM series_sample WHERE run_id=? ORDER BY series, round",
         take_sample},
    };
    int64_t there;
    series_log_init(l);
    /* a store of schema version 1, opened for reading only */
    int rc = sql_get_int(&s->c, e, &there, NULL,
                         "SELECT count(*) FROM sqlite_schema WHERE name='series_sample'", "");
    for (size_t i = 0; !rc && there && i < sizeof tables / sizeof *tables; i++) {
        sqlite3_stmt *st = NULL;
        bool row = true;
        rc = sql_prepare(&s->c, tables[i].sql, &st, e);
        if (!rc)
            rc = sql_bind(&s->c, st, e, "i", run_id);
        while (!rc && !(rc = sql_step(&s->c, st, &row, e)) && row)
            rc = tables[i].take(l, st, e);
        sqlite3_finalize(st);
    }
    return rc ? rc : series_log_sort(l, e);
}
