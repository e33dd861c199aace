/* Schema versions of the store: applies the numbered scripts of schemas/sql, generates the guards
 * that make the signed side append-only, and seeds the metric definitions. Decides nothing about
 * whether a file is ours: store.c does. */
#include "harness/core/embed.h"
#include "results/store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const store_mutable_tables[] = {"lease", "meta", "price", "tag", NULL};

int migrations_embedded(struct migration *m, int *n, struct err *e) {
    static const char dir[] = "schemas/sql/";
    size_t count;
    const struct embedded *all = embedded_all(&count);
    *n = 0;
    for (size_t i = 0; i < count; i++) {
        if (strncmp(all[i].path, dir, sizeof dir - 1))
            continue;
        long v = strtol(all[i].path + sizeof dir - 1, NULL, 10);
        if (v != *n + 1 || *n == MIGRATIONS_MAX)
            return err_set(e, ASSAY_EENV, "migration '%s' is out of sequence: expected number %d",
                           all[i].path, *n + 1);
        m[(*n)++] = (struct migration){(int)v, all[i].data};
    }
    if (*n == 0)
        return err_set(e, ASSAY_EENV, "this binary holds no schema for the results database");
    return 0;
}

/* " OR EXISTS(SELECT 1 FROM t WHERE a=NEW.a AND b=NEW.b)" for one unique key. */
static int guard_key(struct conn *c, const char *table, const char *columns_sql, const char *arg,
                     struct buf *when, struct err *e) {
    sqlite3_stmt *st = NULL;
    int rc = sql_prepare(c, columns_sql, &st, e);
    if (!rc)
        rc = sql_bind(c, st, e, "t", arg);
    bool row = true;
    int n = 0;
    while (!rc && !(rc = sql_step(c, st, &row, e)) && row) {
        const char *col = sql_text(st, 0);
        if (n++ == 0)
            buf_printf(when, "%sEXISTS(SELECT 1 FROM \"%s\" WHERE ", when->n ? " OR " : "", table);
        else
            buf_puts(when, " AND ");
        buf_printf(when, "\"%s\"=NEW.\"%s\"", col, col);
    }
    if (n)
        buf_putc(when, ')');
    sqlite3_finalize(st);
    return rc;
}

/* The guards of one table. UPDATE and DELETE need one trigger each. INSERT OR REPLACE deletes
 * without firing a DELETE trigger unless the connection has recursive_triggers on, and that belongs
 * to the connection, not to the file; so a third trigger refuses an INSERT that would collide. */
static int guard_table(struct conn *c, const char *table, struct err *e) {
    struct buf when, sql;
    buf_init(&when, 64 * 1024);
    buf_init(&sql, 64 * 1024);
    sqlite3_stmt *st = NULL;
    int rc = sql_prepare(
        c, "SELECT name FROM pragma_index_list(?) WHERE \"unique\" AND NOT partial", &st, e);
    if (!rc)
        rc = sql_bind(c, st, e, "t", table);
    bool row = true;
    while (!rc && !(rc = sql_step(c, st, &row, e)) && row)
        rc =
            guard_key(c, table, "SELECT name FROM pragma_index_info(?)", sql_text(st, 0), &when, e);
    sqlite3_finalize(st);
    /* INTEGER PRIMARY KEY has no index of its own */
    if (!rc)
        rc = guard_key(c, table,
                       "SELECT t.name FROM pragma_table_info(?1) t WHERE t.pk AND NOT EXISTS"
                       "(SELECT 1 FROM pragma_index_list(?1) WHERE origin='pk')",
                       table, &when, e);
    if (rc)
        goto out;
    static const struct {
        const char *suffix, *event;
        bool keyed;
    } guards[] = {
        {"update", "UPDATE", false}, {"delete", "DELETE", false}, {"replace", "INSERT", true}};
    for (size_t i = 0; i < sizeof guards / sizeof guards[0]; i++) {
        if (guards[i].keyed && !when.n)
            continue;
        buf_printf(&sql,
                   "DROP TRIGGER IF EXISTS \"%s_guard_%s\";"
                   "CREATE TRIGGER \"%s_guard_%s\" BEFORE %s ON \"%s\" %s%s "
                   "BEGIN SELECT raise(ABORT,'append-only: %s'); END;",
                   table, guards[i].suffix, table, guards[i].suffix, guards[i].event, table,
                   guards[i].keyed ? "WHEN " : "", guards[i].keyed ? when.p : "", table);
    }
    rc = buf_check(&sql, "the schema's guards", e);
    if (!rc)
        rc = sql_exec(c, sql.p, e);
out:
    buf_release(&when);
    buf_release(&sql);
    return rc;
}

static bool is_guarded(const char *table) {
    for (const char *const *t = store_mutable_tables; *t; t++)
        if (strcmp(table, *t) == 0)
            return false;
    return true;
}

static int guard_all(struct conn *c, struct err *e) {
    /* names first: triggers cannot be made while a statement reads the schema */
    struct buf names;
    buf_init(&names, 64 * 1024);
    sqlite3_stmt *st = NULL;
    bool row = true;
    int rc = sql_prepare(c,
                         "SELECT name FROM sqlite_schema WHERE type='table' AND name NOT LIKE "
                         "'sqlite\\_%' ESCAPE '\\'",
                         &st, e);
    while (!rc && !(rc = sql_step(c, st, &row, e)) && row) {
        const char *name = sql_text(st, 0);
        buf_put(&names, name, strlen(name) + 1);
    }
    sqlite3_finalize(st);
    if (!rc)
        rc = buf_check(&names, "the list of tables", e);
    for (size_t i = 0; !rc && i < names.n; i += strlen(names.p + i) + 1)
        if (is_guarded(names.p + i))
            rc = guard_table(c, names.p + i, e);
    buf_release(&names);
    return rc;
}

/* A consistent copy; to must not exist. */
static int copy_to(struct conn *c, const char *to, struct err *e) {
    int rc = 0, fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                          0666); /* VACUUM INTO takes an empty file */
    if (fd < 0)
        return err_errno(e, ASSAY_EENV, errno, "cannot create '%s'", to);
    rc = sql_run(c, e, "VACUUM INTO ?", "t", to);
    if (!rc && fsync(fd))
        rc = err_errno(e, ASSAY_EENV, errno, "cannot make '%s' durable", to);
    close(fd);
    if (rc)
        unlink(to);
    return rc ? err_wrap(e, "copying '%s' to '%s'", c->path, to) : 0;
}

int store_backup(struct store *s, const char *to, struct err *e) {
    conn_unrestrict(&s->c); /* VACUUM attaches the copy */
    int rc = copy_to(&s->c, to, e);
    if (s->mode == STORE_WRITE)
        conn_restrict(&s->c);
    return rc;
}

static int back_up(struct conn *c, int version, struct err *e) {
    char to[4096];
    for (int i = 0; i < 100; i++) {
        char nth[16] = "";
        if (i)
            snprintf(nth, sizeof nth, ".%d", i);
        int n = snprintf(to, sizeof to, "%s.v%d.bak%s", c->path, version, nth);
        if (n < 0 || (size_t)n >= sizeof to)
            return err_set(e, ASSAY_EUSAGE, "the path '%s' is too long", c->path);
        if (access(to, F_OK))
            return copy_to(c, to, e);
    }
    return err_set(e, ASSAY_EENV, "too many copies of '%s' from earlier upgrades: remove some",
                   c->path);
}

static int migrate_one(struct conn *c, const struct migration *m, struct err *e) {
    int rc = sql_exec_patient(c, "BEGIN EXCLUSIVE", e);
    if (rc)
        return rc;
    int64_t now = 0;
    char version[64];
    snprintf(version, sizeof version, "PRAGMA user_version=%d", m->version);
    rc = sql_get_int(c, e, &now, NULL, "PRAGMA user_version", "");
    if (rc || now >= m->version) /* another process was faster */
        goto out;
    if (now == 0) {
        char id[64];
        snprintf(id, sizeof id, "PRAGMA application_id=%d", STORE_APPLICATION_ID);
        rc = sql_exec(c, id, e);
    }
    if (!rc)
        rc = sql_exec(c, m->sql, e);
    if (!rc)
        rc = guard_all(c, e);
    if (!rc && now == 0)
        rc = metric_defs_seed(c, e);
    if (!rc)
        rc = sql_exec(c, version, e);
    if (!rc)
        return sql_commit(c, e);
out:
    sql_rollback(c);
    return rc ? err_wrap(e, "upgrading '%s' to schema version %d", c->path, m->version) : 0;
}

int migrate(struct conn *c, int version, const struct migration *m, int n, struct err *e) {
    int rc = version > 0 && version < n ? back_up(c, version, e) : 0;
    for (int i = version; !rc && i < n; i++)
        rc = migrate_one(c, &m[i], e);
    return rc;
}

int metric_defs_seed(struct conn *c, struct err *e) {
    sqlite3_stmt *have = NULL, *add = NULL;
    bool begun = false;
    int rc = sql_prepare(
        c, "SELECT 1 FROM metric_def WHERE name=? AND stat=? AND unit=? AND better=?", &have, e);
    for (const struct metric_def *d = metric_defs; !rc && d->name; d++) {
        bool row = false;
        rc = sql_bind(c, have, e, "tttt", d->name, d->stat, d->unit, d->better);
        if (!rc)
            rc = sql_step(c, have, &row, e);
        sqlite3_reset(have);
        if (rc || row)
            continue;
        if (!begun && sqlite3_get_autocommit(c->db)) {
            rc = sql_begin(c, e);
            begun = !rc;
            d--; /* look again: another process may have added it meanwhile */
            continue;
        }
        if (!add)
            rc = sql_prepare(
                c, "INSERT INTO metric_def(name,stat,unit,better,description) VALUES(?,?,?,?,?)",
                &add, e);
        if (!rc)
            rc = sql_bind(c, add, e, "ttttt", d->name, d->stat, d->unit, d->better, d->description);
        if (!rc)
            rc = sql_step(c, add, &row, e);
        sqlite3_reset(add);
    }
    sqlite3_finalize(have);
    sqlite3_finalize(add);
    if (begun) {
        if (!rc)
            rc = sql_commit(c, e);
        else
            sql_rollback(c);
    }
    return rc;
}
