/* What the files of the store share: one SQLite connection with its settings, SQL in one call, the
 * migrations, the leases of open runs, the register's next entry. Private to results/store*.c,
 * log_writer.c, verify*.c, query.c and their tests. */
#ifndef RESULTS_STORE_INTERNAL_H
#define RESULTS_STORE_INTERNAL_H

#include "harness/core/buf.h"
#include "results/store.h"

#include <sqlite3.h>

enum {
    STORE_APPLICATION_ID = 0x41535359, /* "ASSY" */
    STORE_BUSY_TIMEOUT_MS = 10000,     /* SQLite's own waiting for one lock */
    SHA256_N = 32,
};

/* One connection; one thread. */
struct conn {
    sqlite3 *db;
    char *path;      /* owned */
    int64_t busy_ms; /* how long BEGIN IMMEDIATE is tried in all */
};

struct open_lease {
    int64_t run_id;
    struct open_lease *next;
};

struct store {
    struct conn c;
    enum store_mode mode;
    int lease_fd;             /* -1 when reading */
    struct open_lease *lease; /* runs begun through this handle and not ended */
};

/* ---- store_sql.c: connections and statements ---- */

enum conn_flags { CONN_WRITE = 1 << 0, CONN_CREATE = 1 << 1, CONN_IMMUTABLE = 1 << 2 };
/* Opens and makes the settings that touch no file; conn_settings makes and reads back the others.
 */
int conn_open(struct conn *c, const char *path, unsigned flags, struct err *e) MUST_USE;
int conn_settings(struct conn *c, bool write, struct err *e) MUST_USE;
/* Denies DDL, ATTACH, pragmas and changes of signed tables to every later statement. */
void conn_restrict(struct conn *c);
void conn_unrestrict(struct conn *c);
void conn_close(struct conn *c);

/* What SQLite said of the last call, as an error that names the file (and free bytes when full). */
int sql_error(const struct conn *c, int rc, struct err *e, const char *doing);

int sql_exec(struct conn *c, const char *sql, struct err *e) MUST_USE;
int sql_prepare(struct conn *c, const char *sql, sqlite3_stmt **st, struct err *e) MUST_USE;
/* types, one letter an argument: i int64_t, d double, t const char * (NULL = null),
 * b const void * and size_t, h 32-byte digest (NULL = null), n null (no argument). */
int sql_bind(struct conn *c, sqlite3_stmt *st, struct err *e, const char *types, ...) MUST_USE;
/* A text column, never NULL: a file of another's making may hold anything. */
static inline const char *sql_text(sqlite3_stmt *st, int col) {
    const char *s = (const char *)sqlite3_column_text(st, col);
    return s ? s : "";
}
/* One step; *row says whether there is one. */
int sql_step(struct conn *c, sqlite3_stmt *st, bool *row, struct err *e) MUST_USE;
/* Prepares, binds and runs a statement without a result. */
int sql_run(struct conn *c, struct err *e, const char *sql, const char *types, ...) MUST_USE;
/* The first column of the first row; *found (may be NULL: then no row is 0) says whether there was
 * one. A null is no row. */
int sql_get_int(struct conn *c, struct err *e, int64_t *out, bool *found, const char *sql,
                const char *types, ...) MUST_USE;

/* The id that `find` selects; when there is none, `add` inserts the row and *id is its rowid. Both
 * are given the same values; `find` may use the first ones only. */
int sql_id(struct conn *c, struct err *e, int64_t *id, const char *find, const char *add,
           const char *types, ...) MUST_USE;

/* Runs a statement that needs a lock, with retries and jitter: SQLite's busy handler alone is
 * unfair among writers, and is not asked at all when the journal mode changes. */
int sql_exec_patient(struct conn *c, const char *sql, struct err *e) MUST_USE;
/* BEGIN IMMEDIATE, so. */
int sql_begin(struct conn *c, struct err *e) MUST_USE;
/* Also an error: the file is no longer the one of that name. */
int sql_commit(struct conn *c, struct err *e) MUST_USE;
void sql_rollback(struct conn *c); /* harmless when SQLite has rolled back by itself */

/* ---- store_migrate.c ---- */

struct migration {
    int version;
    const char *sql;
};
enum { MIGRATIONS_MAX = 64 };
/* The embedded schemas/sql/NNN_*.sql, ascending from 1. */
int migrations_embedded(struct migration *m, int *n, struct err *e) MUST_USE;
/* Brings the database to the last version, each step in an exclusive transaction; an existing
 * database is copied to PATH.vN.bak first. version: the current one. */
int migrate(struct conn *c, int version, const struct migration *m, int n, struct err *e) MUST_USE;
/* The tables that may be changed; NULL-terminated. All others get the guards. */
extern const char *const store_mutable_tables[];
/* Rows of metric_def for the definitions that are not there yet. Inside a transaction or not. */
int metric_defs_seed(struct conn *c, struct err *e) MUST_USE;

/* ---- store_lease.c ---- */

int lease_open(struct store *s, struct err *e) MUST_USE;
/* Inside the transaction that inserts the run. */
int lease_take(struct store *s, int64_t run_id, struct err *e) MUST_USE;
void lease_drop(struct store *s, int64_t run_id);
void lease_close(struct store *s); /* gives up all that are open */
/* Closes the open runs whose process is gone; *n receives how many. */
int runs_recover(struct store *s, int *n, struct err *e) MUST_USE;

/* ---- store_register.c ---- */

/* Appends o (with "seq" and "at" added here) inside a transaction. *seq receives its number. */
int register_append(struct conn *c, const char *kind, int64_t run_id, int64_t at_ns, json_t *o,
                    int64_t *seq, struct err *e) MUST_USE;
/* The tree's right edge as register_entry.edge holds it; returns the bytes. */
size_t register_edge(const struct merkle *m, unsigned char out[64 * 32]);
/* The register's size and Merkle root as they stand. */
int register_head(struct conn *c, uint64_t *size, unsigned char root[32], struct err *e) MUST_USE;

/* ---- store.c ---- */

/* "NFS", … for the magic number of a network file system, else NULL. */
const char *store_network_fs(uint32_t magic);

/* ---- store_read.c ---- */

/* Size and digest of a run's stored log, as log_writer_close defines it. */
int log_digest(struct conn *c, int64_t run_id, uint64_t *chunks, uint64_t *bytes,
               unsigned char digest[32], struct err *e) MUST_USE;

/* ---- store_series.c ---- */

/* Inside the transaction that ends the run. */
int series_store(struct conn *c, int64_t run_id, const struct series_log *l,
                 struct err *e) MUST_USE;

/* ---- store_run.c ---- */

/* Ends a run as ABORTED with a register entry, inside a transaction. */
int run_abort(struct conn *c, int64_t run_id, const char *uuid, const char *reason, int64_t at_ns,
              int64_t duration_ns, struct err *e) MUST_USE;

#endif
