/* The whole store under examination: the file, its schema, the register, every run; and the
 * register against a checkpoint that was kept elsewhere. */
#include "results/verify_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct finding {
    int64_t n;
    char first[256];
};

static void check_database(struct store *s, struct report *r) {
    struct err e = {0};
    int64_t ok = 0, dangling = 0;
    int rc = sql_get_int(&s->c, &e, &ok, NULL,
                         "SELECT group_concat(quick_check)='ok' FROM pragma_quick_check", "");
    if (!rc)
        rc = sql_get_int(&s->c, &e, &dangling, NULL,
                         "SELECT count(*) FROM pragma_foreign_key_check", "");
    if (rc)
        report_error(r, "database", VERIFY_INVALID, &e);
    else
        report_check(r, "database", ok && !dangling, VERIFY_INVALID,
                     ok ? "pages are sound, %lld dangling references"
                        : "SQLite's quick_check finds damage (%lld dangling references)",
                     (long long)dangling);
}

/* The schema as this program makes it, in memory. */
static int reference_schema(struct conn *c, int64_t *version, struct err *e) {
    struct migration m[MIGRATIONS_MAX];
    int n;
    int rc = migrations_embedded(m, &n, e);
    *version = n;
    if (!rc)
        rc = conn_open(c, ":memory:", CONN_WRITE | CONN_CREATE, e);
    return rc ? rc : migrate(c, 0, m, n, e);
}

/* Every object of `from` must be in `in`, word for word. */
static int compare_schemas(struct conn *from, struct conn *in, bool text, const char *wrong,
                           struct finding *f, struct err *e) {
    sqlite3_stmt *st = NULL;
    bool row = true;
    int rc = sql_prepare(
        from,
        "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        " ORDER BY type, name",
        &st, e);
    while (!rc && !(rc = sql_step(from, st, &row, e)) && row) {
        const char *type = sql_text(st, 0), *name = sql_text(st, 1), *sql = sql_text(st, 2);
        int64_t there;
        rc = sql_get_int(
            in, e, &there, NULL,
            "SELECT count(*) FROM sqlite_schema WHERE type=? AND name=? AND (sql=? OR ?)", "ttti",
            type, name, sql, (int64_t)!text);
        if (!rc && !there && !f->n++)
            snprintf(f->first, sizeof f->first, "%s '%s' %s", type, name, wrong);
    }
    sqlite3_finalize(st);
    return rc;
}

/* Tables, views and guards are those of this program. Guards are the first line only, but a missing
 * one tells that somebody wrote behind the store; a changed view would show other figures than were
 * signed. */
static void check_schema(struct store *s, struct report *r) {
    struct conn ref = {0};
    struct err e = {0};
    struct finding f = {0};
    int64_t known = 0, version = 0;
    int rc = reference_schema(&ref, &known, &e);
    if (!rc)
        rc = sql_get_int(&s->c, &e, &version, NULL, "PRAGMA user_version", "");
    if (!rc && version == known)
        rc = compare_schemas(&ref, &s->c, true, "is missing or changed", &f, &e);
    if (!rc && version == known)
        rc = compare_schemas(&s->c, &ref, false, "is not of this program", &f, &e);
    conn_close(&ref);
    if (rc)
        report_error(r, "schema", VERIFY_MISMATCH, &e);
    else if (version != known)
        report_check(r, "schema", true, VERIFY_MISMATCH, "version %lld: not compared",
                     (long long)version);
    else
        report_findings(r, "schema", VERIFY_MISMATCH, f.n, f.first,
                        "tables, views and append-only guards of version %lld", (long long)version);
}

struct missing_run {
    struct store *s;
    int64_t n;
    char first[RUN_UUID];
};

static int note_missing(void *ctx, const struct run_entry *entry) {
    struct missing_run *m = ctx;
    struct err e = {0};
    int64_t there = 0;
    if (sql_get_int(&m->s->c, &e, &there, NULL, "SELECT count(*) FROM run WHERE uuid=?", "t",
                    entry->uuid) ||
        !there) {
        if (!m->n++)
            snprintf(m->first, sizeof m->first, "%s", entry->uuid);
    }
    return 0;
}

/* Appends the run's name, outcome and failed checks to runs when it failed. */
static int add_failed(json_t *runs, const char *uuid, struct report *one) {
    json_t *failed = json_array(), *c;
    size_t i;
    json_array_foreach(one->checks, i, c) if (!json_is_true(json_object_get(c, "ok")) &&
                                              json_array_append(failed, c)) return -1;
    return json_array_append_new(runs,
                                 json_pack("{s:s s:s s:o}", "run", uuid, "outcome",
                                           verify_outcome_name(one->worst), "checks", failed));
}

struct tally {
    int64_t runs, ok, open, failed;
    char first[RUN_UUID];
};

static int check_all_runs(struct store *s, const struct register_state *g,
                          const struct public_key *trusted, int ntrusted, struct report *r,
                          struct err *e) {
    struct tally t = {0};
    json_t *failed = json_array();
    int64_t after = 0;
    int rc = 0;
    for (;;) {
        char uuid[RUN_UUID] = "";
        struct report one;
        sqlite3_stmt *st = NULL;
        bool row = false;
        rc = sql_prepare(
            &s->c, "SELECT run_id, uuid FROM run WHERE run_id>? ORDER BY run_id LIMIT 1", &st, e);
        if (!rc)
            rc = sql_bind(&s->c, st, e, "i", after);
        if (!rc)
            rc = sql_step(&s->c, st, &row, e);
        if (!rc && row) {
            after = sqlite3_column_int64(st, 0);
            snprintf(uuid, sizeof uuid, "%s", sql_text(st, 1));
        }
        sqlite3_finalize(st);
        if (rc || !row || (rc = report_init(&one, e)))
            break;
        rc = check_stored_run(s, g, after, uuid, trusted, ntrusted, false, &one, e);
        t.runs++;
        const struct run_entry *entry = register_find(g, uuid);
        if (!rc && one.worst == VERIFY_INCOMPLETE && entry && entry->fate == FATE_OPEN) {
            t.open++; /* not yet a failure: it may be running */
        } else if (!rc && one.worst == VERIFY_OK) {
            t.ok++;
        } else if (!rc) {
            if (!t.failed++)
                snprintf(t.first, sizeof t.first, "%s", uuid);
            if (report_severity(one.worst) > report_severity(r->worst))
                r->worst = one.worst;
            if (add_failed(failed, uuid, &one))
                r->failed_memory = true;
        }
        r->failed_memory = r->failed_memory || one.failed_memory;
        report_drop(&one);
        if (rc)
            break;
    }
    report_check(r, "runs", !t.failed, VERIFY_OK,
                 t.failed ? "%lld of %lld runs hold, %lld are open; the first that does not is %s"
                          : "%lld of %lld runs hold, %lld are open%s",
                 (long long)t.ok, (long long)t.runs, (long long)t.open, t.first);
    if (json_object_set_new(r->root, "runs",
                            json_pack("{s:I s:I s:I s:I}", "total", (json_int_t)t.runs, "ok",
                                      (json_int_t)t.ok, "open", (json_int_t)t.open, "failed",
                                      (json_int_t)t.failed)) ||
        json_object_set_new(r->root, "failed", failed))
        r->failed_memory = true;
    return rc;
}

int verify_store(struct store *s, const struct public_key *trusted, int ntrusted,
                 enum verify_outcome *outcome, json_t **report, struct err *e) {
    struct report r;
    struct register_state *g = NULL;
    *report = NULL;
    int rc = report_init(&r, e);
    if (rc)
        return rc;
    if (s->mode == STORE_WRITE)
        conn_unrestrict(&s->c);
    check_database(s, &r);
    check_schema(s, &r);
    rc = register_load(s, &g, &r, e);
    if (!rc) {
        struct missing_run m = {.s = s};
        register_each_run(g, note_missing, &m);
        check_checkpoints(s, g, &r);
        report_check(&r, "register_runs", !m.n, VERIFY_REGISTER,
                     m.n ? "%lld registered runs are not in the store; the first is %s"
                         : "every registered run is here (%lld missing)%s",
                     (long long)m.n, m.first);
        rc = check_all_runs(s, g, trusted, ntrusted, &r, e);
    }
    register_free(g);
    if (s->mode == STORE_WRITE)
        conn_restrict(&s->c);
    if (!rc)
        return report_finish(&r, outcome, report, e);
    report_drop(&r);
    return rc;
}

/* ---- a checkpoint kept elsewhere ---- */

int verify_checkpoint(struct store *s, const char *note, size_t n, const char *vkey,
                      enum verify_outcome *outcome, json_t **report, struct err *e) {
    struct report r;
    struct register_state *g = NULL;
    struct err why = {0};
    uint64_t size;
    unsigned char root[32], now[32];
    *report = NULL;
    int rc = report_init(&r, e);
    if (rc)
        return rc;
    rc = register_load(s, &g, &r, e);
    if (rc) {
        register_free(g);
        report_drop(&r);
        return rc;
    }
    if (checkpoint_check(note, n, vkey, &size, root, &why)) {
        report_error(&r, "note", VERIFY_INVALID, &why);
    } else {
        report_check(&r, "note", true, VERIFY_INVALID, "the signature is good; size %llu",
                     (unsigned long long)size);
        bool long_enough = register_root_at(g, size, now);
        bool same = long_enough && memcmp(root, now, 32) == 0;
        report_check(&r, "consistency", same, VERIFY_REGISTER,
                     same ? "the register of %llu entries extends the checkpoint of %llu"
                     : long_enough
                         ? "the register of %llu entries is not an extension of the checkpoint of "
                           "%llu: it was rewritten"
                         : "the register has %llu entries, the checkpoint %llu: its end is missing",
                     (unsigned long long)register_size(g), (unsigned long long)size);
    }
    register_free(g);
    return report_finish(&r, outcome, report, e);
}
