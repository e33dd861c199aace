/* SQLite idioms of the store: one connection with its settings, SQL in one call, errors with file
 * and free bytes, write transactions that wait their turn. Knows no table. Settings and their
 * reasons: schemas/database.md. */
#include "harness/core/clock.h"
#include "results/store_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <time.h>

/* A file name as a URI: SQLite's query part is the only way to say immutable=1. */
static void uri_from_path(struct buf *b, const char *path, unsigned flags) {
    buf_puts(b, "file:");
    for (const char *p = path; *p; p++)
        if (*p == '%' || *p == '?' || *p == '#')
            buf_printf(b, "%%%02x", (unsigned)*p);
        else
            buf_putc(b, *p);
    if (flags & CONN_IMMUTABLE)
        buf_puts(b, "?immutable=1");
}

int sql_error(const struct conn *c, int rc, struct err *e, const char *doing) {
    const char *what = c->db ? sqlite3_errmsg(c->db) : sqlite3_errstr(rc);
    int sys = c->db ? sqlite3_system_errno(c->db) : 0;
    switch (rc & 0xff) {
    case SQLITE_FULL:
    case SQLITE_IOERR: {
        struct statvfs v;
        uint64_t bytes = statvfs(c->path, &v) ? 0 : (uint64_t)v.f_bavail * v.f_frsize;
        return err_set(e, ASSAY_EENV, "%s: cannot write '%s': %s%s%s (%" PRIu64 " bytes free)",
                       doing, c->path, what, sys ? ", " : "", sys ? strerror(sys) : "", bytes);
    }
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set(e, ASSAY_EENV, "%s: '%s' is locked by another process", doing, c->path);
    case SQLITE_NOTADB:
        return err_set(e, ASSAY_EINPUT,
                       "'%s' is not a results database: the file has another format", c->path);
    case SQLITE_CORRUPT:
        return err_set(e, ASSAY_EINPUT, "%s: '%s' is damaged: %s", doing, c->path, what);
    case SQLITE_NOMEM:
        return err_set(e, ASSAY_ENOMEM, "%s: out of memory", doing);
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
        return err_set(e, ASSAY_EENV, "%s: '%s': %s%s%s", doing, c->path, what, sys ? ": " : "",
                       sys ? strerror(sys) : "");
    default:
        return err_set(e, ASSAY_EENV, "%s: '%s': %s (SQLite code %d)", doing, c->path, what, rc);
    }
}

int conn_open(struct conn *c, const char *path, unsigned flags, struct err *e) {
    *c = (struct conn){.busy_ms = 60000};
    struct buf uri;
    buf_init(&uri, 64 * 1024);
    uri_from_path(&uri, path, flags);
    c->path = strdup(path);
    int rc =
        uri.failed || !c->path ? err_set(e, ASSAY_ENOMEM, "opening '%s': out of memory", path) : 0;
    if (rc)
        goto out;
    int f =
        SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_EXRESCODE;
    f |= flags & CONN_WRITE ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY;
    f |= flags & CONN_CREATE ? SQLITE_OPEN_CREATE : 0;
    int q = sqlite3_open_v2(uri.p, &c->db, f, NULL);
    if (q) {
        rc = sql_error(c, q, e, "opening the results database");
        goto out;
    }
    static const struct {
        int op, on;
    } config[] = {
        {SQLITE_DBCONFIG_DEFENSIVE, 1},        {SQLITE_DBCONFIG_DQS_DML, 0},
        {SQLITE_DBCONFIG_DQS_DDL, 0},          {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
        {SQLITE_DBCONFIG_ENABLE_FKEY, 1},      {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0},
        {SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1}, /* until the file is known to be ours */
    };
    for (size_t i = 0; i < sizeof config / sizeof config[0]; i++) {
        int now = -1;
        q = sqlite3_db_config(c->db, config[i].op, config[i].on, &now);
        if (q || now != config[i].on) {
            rc = err_set(e, ASSAY_EENV, "SQLite refused database setting %d", config[i].op);
            goto out;
        }
    }
    sqlite3_busy_timeout(c->db, STORE_BUSY_TIMEOUT_MS);
out:
    if (rc)
        conn_close(c);
    buf_release(&uri);
    return rc;
}

/* Each is set, then read back: SQLite ignores an unknown or refused pragma silently. */
static const struct {
    const char *name, *set, *want;
    bool write_only;
} settings[] = {
    {"journal_mode", "PRAGMA journal_mode=WAL", "wal", true},
    {"synchronous", "PRAGMA synchronous=FULL", "2", true},
    {"wal_autocheckpoint", "PRAGMA wal_autocheckpoint=1000", "1000", true},
    {"recursive_triggers", "PRAGMA recursive_triggers=ON", "1", false},
    {"foreign_keys", "PRAGMA foreign_keys=ON", "1", false},
    {"trusted_schema", "PRAGMA trusted_schema=OFF", "0", false},
    {"cell_size_check", "PRAGMA cell_size_check=ON", "1", false},
    {"mmap_size", "PRAGMA mmap_size=0", "0", false},
    {"busy_timeout", "PRAGMA busy_timeout=10000", "10000", false},
};

int conn_settings(struct conn *c, bool write, struct err *e) {
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        if (settings[i].write_only && !write)
            continue;
        char ask[64], got[32] = "";
        snprintf(ask, sizeof ask, "PRAGMA %s", settings[i].name);
        sqlite3_stmt *st = NULL;
        bool row = false;
        int rc = sql_exec_patient(c, settings[i].set, e);
        if (!rc)
            rc = sql_prepare(c, ask, &st, e);
        if (!rc)
            rc = sql_step(c, st, &row, e);
        if (!rc && row)
            snprintf(got, sizeof got, "%s", (const char *)sqlite3_column_text(st, 0));
        sqlite3_finalize(st);
        if (rc)
            return rc;
        /* memory-mapped I/O that is compiled out answers nothing, which is what is wanted */
        if (strcmp(got, settings[i].want) && !(row == false && strcmp(settings[i].want, "0") == 0))
            return err_set(e, ASSAY_EENV, "'%s': SQLite keeps %s at '%s', needed is '%s'", c->path,
                           settings[i].name, got, settings[i].want);
    }
    return 0;
}

static bool is_mutable(const char *table) {
    for (const char *const *t = store_mutable_tables; *t; t++)
        if (table && strcmp(table, *t) == 0)
            return true;
    return false;
}

static int authorize(void *ctx, int action, const char *a, const char *b, const char *database,
                     const char *trigger) {
    (void)ctx;
    (void)b;
    (void)database;
    (void)trigger;
    switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_FUNCTION:
    case SQLITE_RECURSIVE:
    case SQLITE_TRANSACTION:
    case SQLITE_SAVEPOINT:
    case SQLITE_INSERT:
        return SQLITE_OK;
    case SQLITE_UPDATE:
    case SQLITE_DELETE:
        return is_mutable(a) ? SQLITE_OK : SQLITE_DENY;
    default:
        return SQLITE_DENY;
    }
}

void conn_restrict(struct conn *c) {
    sqlite3_set_authorizer(c->db, authorize, NULL);
}

void conn_unrestrict(struct conn *c) {
    sqlite3_set_authorizer(c->db, NULL, NULL);
}

void conn_close(struct conn *c) {
    if (c->db)
        sqlite3_close_v2(c->db);
    free(c->path);
    *c = (struct conn){0};
}

int sql_exec(struct conn *c, const char *sql, struct err *e) {
    int q = sqlite3_exec(c->db, sql, NULL, NULL, NULL);
    return q ? sql_error(c, q, e, "using the results database") : 0;
}

int sql_prepare(struct conn *c, const char *sql, sqlite3_stmt **st, struct err *e) {
    int q = sqlite3_prepare_v2(c->db, sql, -1, st, NULL);
    return q ? sql_error(c, q, e, "preparing a statement") : 0;
}

static int vbind(struct conn *c, sqlite3_stmt *st, struct err *e, const char *types, va_list ap) {
    int q = 0, count = sqlite3_bind_parameter_count(st);
    for (int i = 1; i <= count && types[i - 1] && !q; i++) {
        switch (types[i - 1]) {
        case 'i':
            q = sqlite3_bind_int64(st, i, va_arg(ap, int64_t));
            break;
        case 'd':
            q = sqlite3_bind_double(st, i, va_arg(ap, double));
            break;
        case 't':
            q = sqlite3_bind_text(st, i, va_arg(ap, const char *), -1, SQLITE_STATIC);
            break;
        case 'h':
            q = sqlite3_bind_blob(st, i, va_arg(ap, const void *), SHA256_N, SQLITE_STATIC);
            break;
        case 'b': {
            const void *p = va_arg(ap, const void *);
            size_t n = va_arg(ap, size_t);
            q = n ? sqlite3_bind_blob64(st, i, p, n, SQLITE_STATIC)
                  : sqlite3_bind_zeroblob(st, i, 0);
            break;
        }
        default:
            q = sqlite3_bind_null(st, i);
        }
    }
    return q ? sql_error(c, q, e, "binding a value") : 0;
}

int sql_bind(struct conn *c, sqlite3_stmt *st, struct err *e, const char *types, ...) {
    va_list ap;
    va_start(ap, types);
    int rc = vbind(c, st, e, types, ap);
    va_end(ap);
    return rc;
}

int sql_step(struct conn *c, sqlite3_stmt *st, bool *row, struct err *e) {
    int q = sqlite3_step(st);
    *row = q == SQLITE_ROW;
    return q == SQLITE_ROW || q == SQLITE_DONE ? 0
                                               : sql_error(c, q, e, "using the results database");
}

int sql_run(struct conn *c, struct err *e, const char *sql, const char *types, ...) {
    sqlite3_stmt *st = NULL;
    int rc = sql_prepare(c, sql, &st, e);
    if (!rc) {
        va_list ap;
        va_start(ap, types);
        rc = vbind(c, st, e, types, ap);
        va_end(ap);
    }
    bool row;
    if (!rc)
        rc = sql_step(c, st, &row, e);
    sqlite3_finalize(st);
    return rc;
}

int sql_get_int(struct conn *c, struct err *e, int64_t *out, bool *found, const char *sql,
                const char *types, ...) {
    *out = 0;
    sqlite3_stmt *st = NULL;
    int rc = sql_prepare(c, sql, &st, e);
    if (!rc) {
        va_list ap;
        va_start(ap, types);
        rc = vbind(c, st, e, types, ap);
        va_end(ap);
    }
    bool row = false;
    if (!rc)
        rc = sql_step(c, st, &row, e);
    if (!rc) {
        row = row && sqlite3_column_type(st, 0) != SQLITE_NULL;
        if (row)
            *out = sqlite3_column_int64(st, 0);
        if (found)
            *found = row;
    }
    sqlite3_finalize(st);
    return rc;
}

int sql_id(struct conn *c, struct err *e, int64_t *id, const char *find, const char *add,
           const char *types, ...) {
    bool found = false;
    for (int adding = 0; adding < 2 && !found; adding++) {
        sqlite3_stmt *st = NULL;
        int rc = sql_prepare(c, adding ? add : find, &st, e);
        if (!rc) {
            va_list ap;
            va_start(ap, types);
            rc = vbind(c, st, e, types, ap);
            va_end(ap);
        }
        if (!rc)
            rc = sql_step(c, st, &found, e);
        if (!rc)
            *id = found ? sqlite3_column_int64(st, 0) : sqlite3_last_insert_rowid(c->db);
        sqlite3_finalize(st);
        if (rc)
            return rc;
    }
    return 0;
}

int sql_exec_patient(struct conn *c, const char *sql, struct err *e) {
    int64_t give_up = clock_now_ns() + c->busy_ms * NS_PER_MS;
    for (;;) {
        int q = sqlite3_exec(c->db, sql, NULL, NULL, NULL);
        if (q == SQLITE_OK)
            return 0;
        if ((q & 0xff) != SQLITE_BUSY || clock_now_ns() >= give_up)
            return sql_error(c, q, e, "beginning to write");
        uint32_t r = 0;
        if (getrandom(&r, sizeof r, GRND_NONBLOCK) != (ssize_t)sizeof r)
            r = (uint32_t)clock_now_ns();
        nanosleep(&(struct timespec){.tv_nsec = (long)(NS_PER_MS + r % (40 * NS_PER_MS))}, NULL);
    }
}

int sql_begin(struct conn *c, struct err *e) {
    return sql_exec_patient(c, "BEGIN IMMEDIATE", e);
}

/* A file that was removed or replaced meanwhile still takes every write, and nobody will ever read
 * them: what went there is lost, not stored. */
static int check_in_place(const struct conn *c, struct err *e) {
    int moved = 0;
    if (sqlite3_file_control(c->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) != SQLITE_OK || !moved)
        return 0;
    return err_set(e, ASSAY_EENV,
                   "'%s' was removed or replaced while it was in use: what was written since is not in the "
                   "file of that name",
                   c->path);
}

int sql_commit(struct conn *c, struct err *e) {
    int q = sqlite3_exec(c->db, "COMMIT", NULL, NULL, NULL);
    if (!q)
        return check_in_place(c, e);
    int rc = sql_error(c, q, e, "committing");
    sql_rollback(c);
    return rc;
}

void sql_rollback(struct conn *c) {
    if (c->db && !sqlite3_get_autocommit(c->db))
        sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
}
