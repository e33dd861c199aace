/* The store: opening, settings, the append-only guards, the three acts of a run, leases, migration. */
#include "results/hash.h"
#include "results/store_internal.h"
#include "tests/results/fixture.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct scratch dir;

static void setup(void) {
    dir = scratch_make();
}
static void teardown(void) {
    scratch_remove(&dir);
}
TestSuite(results_store, .init = setup, .fini = teardown, .timeout = 60);

static struct store *open_store(enum store_mode mode) {
    struct store *s;
    struct err e = {0};
    must(store_open(dir.db, mode, &s, NULL, &e), &e);
    return s;
}

static int64_t one(struct store *s, const char *sql) {
    return raw_int(store_sqlite(s), sql);
}

static void write_file(const char *path, const void *p, size_t n) {
    FILE *f = fopen(path, "wb");
    cr_assert(f && fwrite(p, 1, n, f) == n && fclose(f) == 0);
}

static void sha_of(const char *path, unsigned char out[32]) {
    struct err e = {0};
    must(sha256_file(path, out, &e), &e);
}

/* ---- a file that goes away ---- */

/* SQLite writes on into a file without a name; what went there must not count as stored. */
static void end_after(const char *command, int want) {
    struct err e = {0};
    struct store *s = open_store(STORE_WRITE);
    struct price p = {.chip = "v6e", .valid_from = "2026-01-01", .usd_per_chip_hour = 1, .basis = "list",
                      .source = "test"};
    cr_assert(eq(int, setenv("DB", dir.db, 1), 0));
    cr_assert(eq(int, system(command), 0));
    cr_assert(eq(int, store_price_add(s, &p, &e), want), "%s: %s", command, e.text);
    cr_assert(want == 0 || strstr(e.text, dir.db));
    store_close(s);
}
Test(results_store, a_removed_file_takes_nothing) {
    end_after("rm \"$DB\"", ASSAY_EENV);
}
Test(results_store, a_replaced_file_takes_nothing) {
    end_after("cp \"$DB\" \"$DB.new\" && mv \"$DB.new\" \"$DB\"", ASSAY_EENV);
}
Test(results_store, a_file_in_its_place_takes_all) {
    end_after("test -f \"$DB\"", 0);
}

/* ---- opening ---- */

Test(results_store, a_new_store_says_what_it_is) {
    struct store *s = open_store(STORE_WRITE);
    conn_unrestrict(&s->c);
    cr_assert(eq(i64, one(s, "SELECT application_id FROM pragma_application_id"), 0x41535359));
    cr_assert(eq(i64, one(s, "SELECT user_version FROM pragma_user_version"), 2));
    cr_assert(eq(i64, one(s, "SELECT count(*) FROM run"), 0));
    int64_t defs = 0;
    while (metric_defs[defs].name)
        defs++;
    cr_assert(eq(i64, one(s, "SELECT count(*) FROM metric_def"), defs));
    cr_assert(gt(i64, defs, 10));
    store_close(s);
    /* a clean end leaves one file that may be copied */
    char wal[400];
    snprintf(wal, sizeof wal, "%s-wal", dir.db);
    cr_assert(access(wal, F_OK) != 0);
}

Test(results_store, opening_again_changes_nothing) {
    store_close(open_store(STORE_WRITE));
    unsigned char before[32], after[32];
    sha_of(dir.db, before);
    store_close(open_store(STORE_WRITE));
    store_close(open_store(STORE_READ));
    sha_of(dir.db, after);
    cr_assert(memcmp(before, after, 32) == 0);
}

Test(results_store, every_connection_has_the_settings) {
    struct store *s = open_store(STORE_WRITE);
    conn_unrestrict(&s->c);
    static const struct {
        const char *pragma;
        int64_t want;
    } want[] = {{"synchronous", 2},      {"foreign_keys", 1},    {"recursive_triggers", 1}, {"trusted_schema", 0},
                {"cell_size_check", 1},  {"busy_timeout", 10000}, {"wal_autocheckpoint", 1000}};
    conn_unrestrict(&s->c);
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        char sql[64];
        snprintf(sql, sizeof sql, "PRAGMA %s", want[i].pragma);
        cr_assert(one(s, sql) == want[i].want, "%s", sql);
    }
    cr_assert(eq(i64, one(s, "SELECT journal_mode='wal' FROM pragma_journal_mode"), 1));
    static const int on[] = {SQLITE_DBCONFIG_DEFENSIVE};
    static const int off[] = {SQLITE_DBCONFIG_DQS_DML, SQLITE_DBCONFIG_DQS_DDL, SQLITE_DBCONFIG_TRUSTED_SCHEMA,
                              SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE};
    int v;
    for (size_t i = 0; i < sizeof on / sizeof on[0]; i++)
        cr_assert(sqlite3_db_config(store_sqlite(s), on[i], -1, &v) == 0 && v == 1);
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++)
        cr_assert(sqlite3_db_config(store_sqlite(s), off[i], -1, &v) == 0 && v == 0);
    store_close(s);
}

Test(results_store, the_default_place_follows_the_environment) {
    struct store *s;
    struct err e = {0};
    char want[400];
    setenv("ASSAY_DB", dir.db, 1);
    must(store_open(NULL, STORE_WRITE, &s, NULL, &e), &e);
    cr_assert(eq(str, (char *)store_path(s), dir.db));
    store_close(s);
    unsetenv("ASSAY_DB");
    setenv("XDG_DATA_HOME", dir.dir, 1);
    must(store_open(NULL, STORE_WRITE, &s, NULL, &e), &e);
    snprintf(want, sizeof want, "%s/assay/assay.db", dir.dir);
    cr_assert(eq(str, (char *)store_path(s), want));
    store_close(s);
    unsetenv("XDG_DATA_HOME");
    setenv("HOME", dir.dir, 1);
    must(store_open(NULL, STORE_WRITE, &s, NULL, &e), &e);
    snprintf(want, sizeof want, "%s/.local/share/assay/assay.db", dir.dir);
    cr_assert(eq(str, (char *)store_path(s), want));
    store_close(s);
}

Test(results_store, an_odd_path_is_a_path) {
    char path[400];
    struct store *s;
    struct err e = {0};
    snprintf(path, sizeof path, "%s/a b?mode=memory#%%41.db", dir.dir);
    must(store_open(path, STORE_WRITE, &s, NULL, &e), &e);
    store_close(s);
    cr_assert(access(path, F_OK) == 0);
}

static void refused_untouched(int want, const char *text) {
    unsigned char before[32], after[32];
    struct store *s;
    struct err e = {0};
    sha_of(dir.db, before);
    cr_assert(eq(int, store_open(dir.db, STORE_WRITE, &s, NULL, &e), want));
    cr_assert(contains(e.text, text), "%s", e.text);
    cr_assert(s == NULL);
    err_clear(&e);
    cr_assert(eq(int, store_open(dir.db, STORE_READ, &s, NULL, &e), want));
    cr_assert(contains(e.text, text), "%s", e.text);
    sha_of(dir.db, after);
    cr_assert(memcmp(before, after, 32) == 0);
}

Test(results_store, another_format_is_refused) {
    char junk[8192];
    memset(junk, 'x', sizeof junk);
    write_file(dir.db, junk, sizeof junk);
    refused_untouched(ASSAY_EINPUT, "not a results database");
    write_file(dir.db, "short text", 10);
    refused_untouched(ASSAY_EINPUT, "not a results database");
}

Test(results_store, another_programs_database_is_refused) {
    sqlite3 *c = raw_open(dir.db);
    raw_exec(c, "CREATE TABLE t(a); INSERT INTO t VALUES(1)");
    sqlite3_close(c);
    refused_untouched(ASSAY_EINPUT, "another program");
    c = raw_open(dir.db);
    raw_exec(c, "PRAGMA application_id=7; PRAGMA journal_mode=WAL");
    sqlite3_close(c);
    refused_untouched(ASSAY_EINPUT, "another program");
}

Test(results_store, a_foreign_wal_is_left_alone) {
    /* another program that crashed: its -wal must not be checkpointed by us */
    char wal[400];
    snprintf(wal, sizeof wal, "%s-wal", dir.db);
    pid_t pid = fork();
    if (pid == 0) {
        sqlite3 *c = raw_open(dir.db);
        raw_exec(c, "PRAGMA journal_mode=WAL; CREATE TABLE t(a); INSERT INTO t VALUES(1)");
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    struct stat st;
    cr_assert(stat(wal, &st) == 0 && st.st_size > 0);
    off_t size = st.st_size;
    refused_untouched(ASSAY_EINPUT, "another program");
    cr_assert(stat(wal, &st) == 0 && st.st_size == size);
}

Test(results_store, a_newer_version_is_refused_for_writing) {
    store_close(open_store(STORE_WRITE));
    sqlite3 *c = raw_open(dir.db);
    raw_exec(c, "PRAGMA user_version=99; UPDATE meta SET value='99' WHERE key='min_reader_version'");
    sqlite3_close(c);
    refused_untouched(ASSAY_EINPUT, "newer assay");
    /* it may be read when it says that this version can */
    c = raw_open(dir.db);
    raw_exec(c, "UPDATE meta SET value='1' WHERE key='min_reader_version'");
    sqlite3_close(c);
    store_close(open_store(STORE_READ));
    struct store *s;
    struct err e = {0};
    cr_assert(eq(int, store_open(dir.db, STORE_WRITE, &s, NULL, &e), ASSAY_EINPUT));
}

Test(results_store, a_missing_store_cannot_be_read) {
    struct store *s;
    struct err e = {0};
    cr_assert(eq(int, store_open(dir.db, STORE_READ, &s, NULL, &e), ASSAY_EENV));
    cr_assert(contains(e.text, dir.db));
    cr_assert(access(dir.db, F_OK) != 0);
}

Test(results_store, an_unwritable_place_is_an_environment_error) {
    struct store *s;
    struct err e = {0};
    cr_assert(eq(int, store_open("/proc/assay.db", STORE_WRITE, &s, NULL, &e), ASSAY_EENV));
    cr_assert(contains(e.text, "/proc/assay.db"));
    char below[400];
    write_file(dir.db, "x", 1);
    snprintf(below, sizeof below, "%s/x.db", dir.db); /* a file where a directory should be */
    cr_assert(eq(int, store_open(below, STORE_WRITE, &s, NULL, &e), ASSAY_EENV));
}

Test(results_store, network_file_systems_are_known) {
    /* magic numbers of linux/magic.h and of the kernel's own sources */
    cr_assert(eq(str, (char *)store_network_fs(0x6969), "NFS"));
    cr_assert(eq(str, (char *)store_network_fs(0xFF534D42u), "CIFS"));
    cr_assert(eq(str, (char *)store_network_fs(0xFE534D42u), "SMB2"));
    cr_assert(eq(str, (char *)store_network_fs(0x65735546), "FUSE"));
    cr_assert(store_network_fs(0xEF53) == NULL);     /* ext4 */
    cr_assert(store_network_fs(0x01021994) == NULL); /* tmpfs */
}

/* Runs fn as an unprivileged user, for whom file modes count; returns its exit code. */
static int as_nobody(int (*fn)(void)) {
    pid_t pid = fork();
    if (pid == 0) {
        if (geteuid() == 0 && (setgid(65534) || setuid(65534)))
            _exit(99);
        _exit(fn());
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

static int read_ok(void) {
    struct store *s;
    struct err e = {0};
    int rc = store_open(dir.db, STORE_READ, &s, NULL, &e);
    if (rc)
        return strstr(e.text, dir.db) ? -rc : 96;
    int64_t n = one(s, "SELECT count(*) FROM metric_def");
    store_close(s);
    return n > 0 ? 0 : 97;
}

static int write_refused(void) {
    struct store *s;
    struct err e = {0};
    int rc = store_open(dir.db, STORE_WRITE, &s, NULL, &e);
    return rc == ASSAY_EENV && strstr(e.text, dir.db) ? 0 : 1;
}

Test(results_store, a_read_only_file_and_directory_can_be_read) {
    store_close(open_store(STORE_WRITE));
    cr_assert(chmod(dir.db, 0444) == 0 && chmod(dir.dir, 0555) == 0);
    cr_assert(eq(int, as_nobody(read_ok), 0));
    cr_assert(eq(int, as_nobody(write_refused), 0));
}

/* A crash leaves -wal and perhaps -shm; what is committed there is part of the store. */
Test(results_store, a_read_only_directory_after_a_crash) {
    char shm[400];
    snprintf(shm, sizeof shm, "%s-shm", dir.db);
    pid_t pid = fork();
    if (pid == 0) {
        struct store *s = open_store(STORE_WRITE);
        _exit(s == NULL);
    }
    int status;
    waitpid(pid, &status, 0);
    chmod(dir.dir, 0555);
    cr_assert(eq(int, as_nobody(read_ok), 0));
    chmod(dir.dir, 0755);
    cr_assert(unlink(shm) == 0);
    chmod(dir.dir, 0555);
    cr_assert(eq(int, as_nobody(read_ok), -ASSAY_EENV));
}

/* ---- append-only ---- */

/* One row of every table, so that each guard has something to guard. */
static struct store *full_store(void) {
    struct store *s = open_store(STORE_WRITE);
    struct definitions d = definitions_make("w", "v6e", 8, "simulated");
    struct secret_key *k = key_of(1);
    struct load l = load_default();
    run_make(s, &d, &l, k, NULL, NULL);
    l.fail_every = 2;
    run_make(s, &d, &l, k, NULL, NULL);
    definitions_release(&d);
    secret_key_free(k);
    return s;
}

/* Calls fn for each table of the signed side with one row in it. */
static void each_guarded(sqlite3 *c, void (*fn)(sqlite3 *c, const char *table)) {
    sqlite3_stmt *st;
    char name[64][64];
    int n = 0;
    cr_assert(sqlite3_prepare_v2(c, "SELECT name FROM sqlite_schema WHERE type='table' AND name NOT IN"
                                    "('lease','meta','price','tag') AND name NOT LIKE 'sqlite_%'", -1, &st, NULL) == 0);
    while (sqlite3_step(st) == SQLITE_ROW)
        snprintf(name[n++], sizeof name[0], "%s", (const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    cr_assert(ge(int, n, 19));
    for (int i = 0; i < n; i++)
        fn(c, name[i]);
}

static void has_a_row(sqlite3 *c, const char *t) {
    char sql[256];
    if (strcmp(t, "checkpoint") == 0)
        raw_exec(c, "INSERT INTO checkpoint VALUES('o',1,randomblob(32),'n')");
    if (strcmp(t, "verdict") == 0 && raw_int(c, "SELECT count(*) FROM verdict") == 0)
        raw_exec(c, "INSERT INTO verdict VALUES(1,0,'r',1,'w','g','')");
    if (strcmp(t, "invalid_reason") == 0 && raw_int(c, "SELECT count(*) FROM invalid_reason") == 0)
        raw_exec(c, "INSERT INTO invalid_reason VALUES(1,'x')");
    snprintf(sql, sizeof sql, "SELECT count(*)>0 FROM \"%s\"", t);
    cr_assert(raw_int(c, sql) == 1, "no row in %s", t);
}

static void refuses_changes(sqlite3 *c, const char *t) {
    char sql[512], want[128], column[64] = "";
    sqlite3_stmt *st;
    snprintf(want, sizeof want, "append-only: %s", t);
    snprintf(sql, sizeof sql, "SELECT name FROM pragma_table_info('%s') ORDER BY cid DESC LIMIT 1", t);
    cr_assert(sqlite3_prepare_v2(c, sql, -1, &st, NULL) == 0 && sqlite3_step(st) == SQLITE_ROW);
    snprintf(column, sizeof column, "%s", (const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);

    snprintf(sql, sizeof sql, "UPDATE \"%s\" SET \"%s\"=\"%s\"", t, column, column);
    cr_assert(contains(raw_error(c, sql), want), "%s: %s", sql, sqlite3_errmsg(c));
    snprintf(sql, sizeof sql, "DELETE FROM \"%s\"", t);
    cr_assert(contains(raw_error(c, sql), want), "%s: %s", sql, sqlite3_errmsg(c));
    static const char *const verbs[] = {"INSERT OR REPLACE", "REPLACE", "INSERT OR IGNORE", "INSERT"};
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        snprintf(sql, sizeof sql, "%s INTO \"%s\" SELECT * FROM \"%s\"", verbs[i], t, t);
        cr_assert(raw_fails(c, sql), "%s worked", sql);
    }
}

Test(results_store, every_signed_table_is_append_only_on_any_connection) {
    store_close(full_store());
    sqlite3 *c = raw_open(dir.db); /* foreign keys and recursive_triggers off: SQLite's defaults */
    cr_assert(eq(i64, raw_int(c, "PRAGMA recursive_triggers"), 0));
    each_guarded(c, has_a_row);
    each_guarded(c, refuses_changes);
    sqlite3_close(c);
}

/* REPLACE deletes by any unique key, not only by the primary one. */
Test(results_store, replace_by_another_unique_key_is_refused) {
    store_close(full_store());
    sqlite3 *c = raw_open(dir.db);
    int64_t runs = raw_int(c, "SELECT count(*) FROM run");
    static const char *const sql[] = {
        "INSERT OR REPLACE INTO run SELECT 99,uuid,campaign_id,99,workload_id,workload_file_digest,system_id,"
        "rule_pack_id,environment_digest,harness_id,backend_id,backend_digest,class,chip,chips,mode,load_kind,"
        "load_value,seed,started_ns FROM run WHERE run_id=1",
        "INSERT OR REPLACE INTO envelope SELECT randomblob(32),run_id,payload_type,payload FROM envelope WHERE run_id=1",
        "INSERT OR REPLACE INTO register_entry SELECT (SELECT max(seq)+1 FROM register_entry),kind,run_id,at_ns,entry,leaf,chain,edge FROM register_entry WHERE seq=0",
        "INSERT OR REPLACE INTO key SELECT 'sha256:'||lower(hex(randomblob(32))),public,owner FROM key",
    };
    for (size_t i = 0; i < sizeof sql / sizeof sql[0]; i++)
        cr_assert(contains(raw_error(c, sql[i]), "append-only"), "%s: %s", sql[i], sqlite3_errmsg(c));
    cr_assert(eq(i64, raw_int(c, "SELECT count(*) FROM run"), runs));
    cr_assert(contains(raw_error(c, "INSERT INTO register_entry SELECT 99,kind,run_id,at_ns,entry,leaf,randomblob(32),"
                                  "edge FROM register_entry WHERE seq=0"), "dense"));
    sqlite3_close(c);
}

Test(results_store, the_stores_own_connection_cannot_change_history) {
    struct store *s = full_store();
    sqlite3 *c = store_sqlite(s);
    static const char *const denied[] = {
        "UPDATE metric SET value=0", "DELETE FROM run_end", "DROP TRIGGER metric_guard_update", "DROP TABLE metric",
        "ALTER TABLE metric RENAME TO m", "CREATE TABLE x(a)", "ATTACH ':memory:' AS m", "PRAGMA user_version=5",
        "PRAGMA writable_schema=ON", "CREATE TEMP TRIGGER t BEFORE INSERT ON metric BEGIN SELECT 1; END",
    };
    for (size_t i = 0; i < sizeof denied / sizeof denied[0]; i++)
        cr_assert(raw_fails(c, denied[i]), "%s worked", denied[i]);
    raw_exec(c, "UPDATE meta SET value=value; DELETE FROM tag; DELETE FROM price");
    store_close(s);
}

/* Each constraint has an insert that fails. */
Test(results_store, constraints_hold) {
    struct store *s = full_store();
    sqlite3 *c = store_sqlite(s);
    static const char *const bad[] = {
        "INSERT INTO metric VALUES(1,999999,1.0,1,NULL,NULL,NULL)",
        "INSERT INTO metric VALUES(999,1,1.0,1,NULL,NULL,NULL)",
        "INSERT INTO metric_def(name,stat,unit,better,description) VALUES('x','p50','ns','bigger','')",
        "INSERT INTO campaign(name) VALUES('')",
        "INSERT INTO document VALUES(x'00','{}')",
        "INSERT INTO document VALUES(randomblob(32),'')",
        "INSERT INTO key VALUES('md5:00',randomblob(32),'o')",
        "INSERT INTO key VALUES('sha256:'||lower(hex(randomblob(32))),randomblob(31),'o')",
        "INSERT INTO artifact VALUES(1,'x',randomblob(31))",
        "INSERT INTO chunk VALUES(1,0,99,0,0,0,randomblob(32),x'00')",
        "INSERT INTO chunk VALUES(1,0,99,1,5,4,randomblob(32),x'00')",
        "INSERT INTO chunk VALUES(1,0,99,1,0,0,randomblob(32),x'')",
        "INSERT INTO chunk VALUES(1,-1,99,1,0,0,randomblob(32),x'00')",
        "INSERT INTO price VALUES('v6e','yesterday',1.0,'list','s')",
        "INSERT INTO price VALUES('v6e','2026-01-01',-1.0,'list','s')",
        "INSERT INTO price VALUES('v6e','2026-01-01',1.0,'rumour','s')",
        "INSERT INTO software(kind,name,version,digest) VALUES('harness','a','1',x'00')",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_assert(raw_fails(c, bad[i]), "%s worked", bad[i]);
    /* a value that SQLite would take: an infinity in a REAL column */
    raw_exec(c, "INSERT INTO metric_def(name,stat,unit,better,description) VALUES('zz','p50','ns','lower','')");
    cr_assert(contains(raw_error(c, "INSERT INTO metric SELECT 1,metric_id,9e999,1,NULL,NULL,NULL FROM metric_def "
                                  "WHERE name='zz'"), "CHECK"));
    store_close(s);
}

/* ---- runs ---- */

Test(results_store, beginning_registers_the_run) {
    struct store *s = open_store(STORE_WRITE);
    struct definitions d = definitions_make("chat", "v6e", 8, "simulated");
    struct run_begin b = begin_of(&d);
    struct run_handle h, h2;
    struct err e = {0};
    must(store_run_begin(s, &b, &h, &e), &e);
    cr_assert(eq(i64, h.register_seq, 0));
    cr_assert(eq(i64, h.attempt, 1));
    cr_assert(eq(u64, h.previous_size, 0));
    /* the root of the empty tree is the digest of nothing: RFC 9162 2.1.1 */
    unsigned char empty[32];
    sha256("", 0, empty);
    cr_assert(memcmp(h.previous_root, empty, 32) == 0);
    cr_assert(strncmp(h.campaign, "chat@", 5) == 0 && strstr(h.campaign, "/v6e-8@") && strstr(h.campaign, "/test@"),
              "%s", h.campaign);
    unsigned char exe[32];
    sha_of("/proc/self/exe", exe);
    cr_assert(memcmp(h.harness_sha256, exe, 32) == 0);
    cr_assert(eq(i64, one(s, "SELECT count(*) FROM v_open_run WHERE class='simulated' AND chip='v6e' AND chips=8"), 1));
    cr_assert(eq(i64, one(s, "SELECT json_extract(entry,'$.type')='run.started' AND json_extract(entry,'$.seq')=0 AND "
                             "json_extract(entry,'$.seed')='18446744073709551615' AND json_extract(entry,'$.attempt')=1"
                             " FROM register_entry"), 1));
    /* another seed is the same campaign: it competes for the same result */
    json_object_set_new(d.workload, "seed", json_integer(99));
    b = begin_of(&d);
    must(store_run_begin(s, &b, &h2, &e), &e);
    cr_assert(eq(str, h2.campaign, h.campaign));
    cr_assert(eq(i64, h2.attempt, 2));
    cr_assert(eq(i64, h2.register_seq, 1));
    cr_assert(ne(int, memcmp(h2.workload_sha256, h.workload_sha256, 32), 0));
    /* another workload is not */
    json_object_set_new(d.workload, "version", json_string("2"));
    b = begin_of(&d);
    must(store_run_begin(s, &b, &h2, &e), &e);
    cr_assert(ne(str, h2.campaign, h.campaign));
    cr_assert(eq(i64, h2.attempt, 1));
    /* the same run cannot begin twice */
    cr_assert(store_run_begin(s, &b, &h2, &e) < 0);
    cr_assert(eq(i64, one(s, "SELECT count(*) FROM register_entry"), 3));
    definitions_release(&d);
    store_close(s);
}

Test(results_store, ending_stores_everything_in_one_commit) {
    struct store *s = open_store(STORE_WRITE);
    struct definitions d = definitions_make("chat", "v6e", 8, "simulated");
    struct secret_key *k = key_of(1);
    struct load l = load_default();
    struct run_handle h;
    run_make(s, &d, &l, k, "c", &h);
    cr_assert(eq(i64, one(s, "SELECT count(*) FROM v_run WHERE verdict='VALID' AND completed=64 AND failed=0 AND "
                             "output_tokens=64*16 AND signatures=1 AND campaign='c'"), 1));
    cr_assert(gt(i64, one(s, "SELECT count(*) FROM v_result"), 10));
    cr_assert(eq(i64, one(s, "SELECT count(*) FROM envelope"), 1));
    cr_assert(gt(i64, one(s, "SELECT count(*) FROM artifact"), 0));
    cr_assert(eq(i64, one(s, "SELECT count(*) FROM lease"), 0));
    cr_assert(eq(i64, one(s, "SELECT json_extract(entry,'$.type')='run.finished' AND json_extract(entry,'$.verdict')="
                             "'VALID' AND json_extract(entry,'$.payloadSha256')=(SELECT record_sha256 FROM v_run)"
                             " FROM register_entry WHERE seq=1"), 1));
    struct dsse env;
    struct err e = {0};
    must(store_envelope(s, h.run_id, &env, &e), &e);
    struct public_key pub = *secret_key_public(k);
    bool matched;
    int distinct;
    must(dsse_verify(&env, &pub, 1, &matched, &distinct, &e), &e);
    cr_assert(eq(int, distinct, 1));
    dsse_release(&env);
    /* it ends once */
    struct run_end end = {.verdict = "ABORTED", .abort_reason = "again"};
    cr_assert(store_run_end(s, &h, &end, &e) < 0);
    end.verdict = "VALID";
    cr_assert(eq(int, store_run_end(s, &h, &end, &e), ASSAY_EUSAGE));
    cr_assert(eq(i64, one(s, "SELECT count(*) FROM register_entry"), 2));
    secret_key_free(k);
    definitions_release(&d);
    store_close(s);
}

Test(results_store, a_second_signature_keeps_the_record) {
    struct store *s = open_store(STORE_WRITE);
    struct definitions d = definitions_make("chat", "v6e", 8, "simulated");
    struct secret_key *k = key_of(1), *reviewer = key_of(2);
    struct load l = load_default();
    struct run_handle h;
    struct err e = {0};
    run_make(s, &d, &l, k, NULL, &h);
    struct dsse env;
    struct dsse_signature sig;
    must(store_envelope(s, h.run_id, &env, &e), &e);
    must(dsse_sign(env.payload_type, env.payload.p, env.payload.n, reviewer, &sig, &e), &e);
    dsse_release(&env);
    must(store_sign(s, h.run_id, &sig, secret_key_public(reviewer), "lab-b", &e), &e);
    cr_assert(eq(int, store_sign(s, h.run_id, &sig, secret_key_public(reviewer), "lab-b", &e), ASSAY_EUSAGE));
    must(store_envelope(s, h.run_id, &env, &e), &e);
    cr_assert(eq(int, env.nsig, 2));
    dsse_release(&env);
    cr_assert(eq(i64, one(s, "SELECT signatures*10+signer_owners FROM v_run"), 22));
    secret_key_free(k);
    secret_key_free(reviewer);
    definitions_release(&d);
    store_close(s);
}

Test(results_store, runs_are_found_by_either_end_of_their_id) {
    struct store *s = open_store(STORE_WRITE);
    struct definitions d = definitions_make("chat", "v6e", 8, "simulated");
    struct run_handle h[2];
    struct err e = {0};
    int64_t id;
    char uuid[RUN_UUID];
    cr_assert(eq(int, store_find_run(s, "latest", &id, uuid, &e), ASSAY_EUSAGE));
    static const char *const ids[] = {"01930000-0000-7000-8000-00000000aaaa", "01930000-0000-7000-8000-00000000bbbb"};
    for (int i = 0; i < 2; i++) {
        struct run_begin b = begin_of(&d);
        snprintf(b.uuid, sizeof b.uuid, "%s", ids[i]);
        must(store_run_begin(s, &b, &h[i], &e), &e);
    }
    static const struct {
        const char *ref;
        int rc, which;
    } cases[] = {{"latest", 0, 1},
                 {"01930000-0000-7000-8000-00000000aaaa", 0, 0},
                 {"01930000-0000-7000-8000-00000000A", 0, 0},
                 {"bbbb", 0, 1},
                 {"AAAA", 0, 0},
                 {"0193", ASSAY_EUSAGE, 0},
                 {"abc", ASSAY_EUSAGE, 0},
                 {"zzzz", ASSAY_EUSAGE, 0},
                 {"%%%%", ASSAY_EUSAGE, 0},
                 {"cccc", ASSAY_EUSAGE, 0},
                 {"", ASSAY_EUSAGE, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int rc = store_find_run(s, cases[i].ref, &id, uuid, &e);
        cr_assert(rc == cases[i].rc, "'%s' gave %d: %s", cases[i].ref, rc, e.text);
        if (!rc)
            cr_assert(eq(str, uuid, (char *)ids[cases[i].which]));
    }
    definitions_release(&d);
    store_close(s);
}

Test(results_store, a_uuid_is_version_7_and_of_now) {
    char a[RUN_UUID], b[RUN_UUID];
    uuid_v7(a);
    uuid_v7(b);
    cr_assert(ne(str, a, b));
    cr_assert(eq(u64, strlen(a), 36));
    cr_assert(a[14] == '7' && strchr("89ab", a[19]), "%s", a); /* RFC 9562 5.7 */
    unsigned long long hi, lo;
    cr_assert(sscanf(a, "%8llx-%4llx", &hi, &lo) == 2);
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t ms = (int64_t)(hi << 16 | lo), now = (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    cr_assert(ms <= now && ms > now - 60000);
}

/* ---- leases ---- */

static struct run_handle begin_one(struct store *s) {
    struct definitions d = definitions_make("chat", "v6e", 8, "simulated");
    struct run_begin b = begin_of(&d);
    struct run_handle h;
    struct err e = {0};
    must(store_run_begin(s, &b, &h, &e), &e);
    definitions_release(&d);
    return h;
}

Test(results_store, an_open_run_of_a_living_process_is_left_alone) {
    struct store *a = open_store(STORE_WRITE), *b;
    struct err e = {0};
    int recovered = -1;
    begin_one(a);
    must(store_open(dir.db, STORE_WRITE, &b, &recovered, &e), &e);
    cr_assert(eq(int, recovered, 0));
    cr_assert(eq(i64, one(b, "SELECT count(*) FROM v_open_run"), 1));
    store_close(b);
    /* given up with its handle */
    store_close(a);
    must(store_open(dir.db, STORE_WRITE, &b, &recovered, &e), &e);
    cr_assert(eq(int, recovered, 1));
    cr_assert(eq(i64, one(b, "SELECT count(*) FROM v_run WHERE verdict='ABORTED' AND reason='crash-recovered'"), 1));
    cr_assert(eq(i64, one(b, "SELECT json_extract(entry,'$.type')='run.aborted' AND json_extract(entry,'$.reason')="
                             "'crash-recovered' FROM register_entry WHERE seq=1"), 1));
    store_close(b);
    must(store_open(dir.db, STORE_WRITE, &b, &recovered, &e), &e);
    cr_assert(eq(int, recovered, 0));
    store_close(b);
}

Test(results_store, a_living_run_survives_the_loss_of_the_lease_file) {
    struct store *a = open_store(STORE_WRITE), *b;
    struct err e = {0};
    int recovered;
    char lease[400];
    begin_one(a);
    snprintf(lease, sizeof lease, "%s-lease", dir.db);
    cr_assert(unlink(lease) == 0);
    must(store_open(dir.db, STORE_WRITE, &b, &recovered, &e), &e); /* process and boot speak for it */
    cr_assert(eq(int, recovered, 0));
    store_close(b);
    store_close(a);
}

Test(results_store, a_run_in_another_pid_namespace_is_left_alone) {
    /* its row names a process that does not exist here; the lock speaks for it */
    struct store *a = open_store(STORE_WRITE), *b;
    struct err e = {0};
    int recovered;
    begin_one(a);
    raw_exec(store_sqlite(a), "UPDATE lease SET pid=4194304000");
    must(store_open(dir.db, STORE_WRITE, &b, &recovered, &e), &e);
    cr_assert(eq(int, recovered, 0));
    store_close(b);
    store_close(a);
}

Test(results_store, a_reused_pid_is_not_the_process) {
    struct store *a = open_store(STORE_WRITE);
    struct err e = {0};
    int recovered;
    begin_one(a);
    store_close(a);
    sqlite3 *c = raw_open(dir.db);
    char sql[128];
    snprintf(sql, sizeof sql, "UPDATE lease SET pid=%d, process_start=process_start-1", (int)getpid());
    raw_exec(c, sql);
    sqlite3_close(c);
    must(store_open(dir.db, STORE_WRITE, &a, &recovered, &e), &e);
    cr_assert(eq(int, recovered, 1));
    store_close(a);
}

Test(results_store, a_killed_run_is_closed_and_its_log_stays) {
    int fd[2];
    cr_assert(pipe(fd) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct store *s = open_store(STORE_WRITE);
        struct run_handle h = begin_one(s);
        struct event_sink sink;
        struct log_writer *w;
        struct err e = {0};
        must(log_writer_open(s, &h, 1, &sink, &w, &e), &e);
        for (int i = 0; i < 3 * EVENT_BLOCK_CAP; i++)
            event_put(&sink, i, EVENT_MARK, MARK_RUN_BEGIN, 0, 0);
        while (raw_int(store_sqlite(s), "SELECT count(*) FROM chunk") < 3)
            usleep(1000);
        if (write(fd[1], "x", 1) != 1)
            _exit(1);
        pause();
    }
    char x;
    cr_assert(read(fd[0], &x, 1) == 1);
    kill(pid, SIGKILL);
    int status, recovered;
    waitpid(pid, &status, 0);
    struct store *s;
    struct err e = {0};
    must(store_open(dir.db, STORE_WRITE, &s, &recovered, &e), &e);
    cr_assert(eq(int, recovered, 1));
    cr_assert(eq(i64, one(s, "SELECT count(*) FROM v_run WHERE verdict='ABORTED' AND reason='crash-recovered'"), 1));
    struct eventlog_source src;
    must(store_log_open(s, 1, &src, &e), &e);
    const uint8_t *p;
    size_t n, chunks = 0;
    while (src.next(src.ctx, 0, &p, &n, &e) == 0 && n)
        chunks++;
    cr_assert(eq(u64, chunks, 3));
    store_log_close(&src);
    store_close(s);
}

/* A parent that does not reap, as the first process of many a container: the entry in /proc stays. */
Test(results_store, a_zombie_is_dead) {
    pid_t pid = fork();
    if (pid == 0) {
        begin_one(open_store(STORE_WRITE));
        _exit(0);
    }
    siginfo_t info;
    cr_assert(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
    struct store *s;
    struct err e = {0};
    int recovered, status;
    must(store_open(dir.db, STORE_WRITE, &s, &recovered, &e), &e);
    cr_assert(eq(int, recovered, 1));
    store_close(s);
    waitpid(pid, &status, 0);
}

/* ---- copies ---- */

Test(results_store, a_backup_is_a_store) {
    struct store *s = full_store(), *copy;
    struct err e = {0};
    char to[400];
    snprintf(to, sizeof to, "%s/copy.db", dir.dir);
    must(store_backup(s, to, &e), &e);
    cr_assert(eq(int, store_backup(s, to, &e), ASSAY_EENV)); /* never overwrites */
    cr_assert(raw_fails(store_sqlite(s), "ATTACH ':memory:' AS m"));
    store_close(s);
    must(store_open(to, STORE_READ, &copy, NULL, &e), &e);
    cr_assert(eq(i64, one(copy, "SELECT count(*) FROM v_run"), 2));
    snprintf(to, sizeof to, "%s/again.db", dir.dir);
    must(store_backup(copy, to, &e), &e); /* a reader can make one, too */
    store_close(copy);
}

/* ---- migration ---- */

static const struct migration two[] = {
    {1, "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);"
        "CREATE TABLE metric_def(metric_id INTEGER PRIMARY KEY,name TEXT,stat TEXT,unit TEXT,better TEXT,description TEXT);"
        "CREATE TABLE a(id INTEGER PRIMARY KEY, v TEXT UNIQUE);"},
    {2, "CREATE TABLE b(id INTEGER PRIMARY KEY, v TEXT UNIQUE, w TEXT); CREATE UNIQUE INDEX a_w ON a(v,id);"},
};
static const struct migration broken = {2, "CREATE TABLE b(id INTEGER PRIMARY KEY); SELECT no_such_function();"};

Test(results_store, an_upgrade_copies_first_and_guards_what_is_new) {
    struct conn c;
    struct err e = {0};
    char bak[400];
    must(conn_open(&c, dir.db, CONN_WRITE | CONN_CREATE, &e), &e);
    must(conn_settings(&c, true, &e), &e);
    must(migrate(&c, 0, two, 1, &e), &e);
    raw_exec(c.db, "INSERT INTO a VALUES(1,'x')");
    must(migrate(&c, 1, two, 2, &e), &e);
    cr_assert(eq(i64, raw_int(c.db, "PRAGMA user_version"), 2));
    raw_exec(c.db, "INSERT INTO b VALUES(1,'x','y')");
    cr_assert(contains(raw_error(c.db, "UPDATE b SET w='z'"), "append-only: b"));
    cr_assert(contains(raw_error(c.db, "REPLACE INTO b VALUES(2,'x','y')"), "append-only: b"));
    cr_assert(contains(raw_error(c.db, "DELETE FROM a"), "append-only: a"));
    snprintf(bak, sizeof bak, "%s.v1.bak", dir.db);
    sqlite3 *old = raw_open(bak);
    cr_assert(eq(i64, raw_int(old, "PRAGMA user_version"), 1));
    cr_assert(eq(i64, raw_int(old, "SELECT count(*) FROM a"), 1));
    sqlite3_close(old);
    conn_close(&c);
}

Test(results_store, a_failed_upgrade_changes_nothing) {
    struct conn c;
    struct err e = {0};
    struct migration m[] = {two[0], broken};
    must(conn_open(&c, dir.db, CONN_WRITE | CONN_CREATE, &e), &e);
    must(conn_settings(&c, true, &e), &e);
    must(migrate(&c, 0, m, 1, &e), &e);
    cr_assert(migrate(&c, 1, m, 2, &e) < 0);
    cr_assert(contains(e.text, "version 2"), "%s", e.text);
    cr_assert(eq(i64, raw_int(c.db, "PRAGMA user_version"), 1));
    cr_assert(eq(i64, raw_int(c.db, "SELECT count(*) FROM sqlite_schema WHERE name='b'"), 0));
    conn_close(&c);
}

Test(results_store, an_upgrade_killed_in_the_middle_is_old_or_new) {
    for (int round = 0; round < 20; round++) {
        char cmd[64];
        struct scratch d = scratch_make();
        struct err e = {0};
        struct conn c;
        must(conn_open(&c, d.db, CONN_WRITE | CONN_CREATE, &e), &e);
        must(conn_settings(&c, true, &e), &e);
        must(migrate(&c, 0, two, 1, &e), &e);
        conn_close(&c);
        pid_t pid = fork();
        if (pid == 0) {
            must(conn_open(&c, d.db, CONN_WRITE, &e), &e);
            must(conn_settings(&c, true, &e), &e);
            must(migrate(&c, 1, two, 2, &e), &e);
            _exit(0);
        }
        usleep((useconds_t)(round * 700));
        kill(pid, SIGKILL);
        int status;
        waitpid(pid, &status, 0);
        sqlite3 *db = raw_open(d.db);
        int64_t v = raw_int(db, "PRAGMA user_version");
        snprintf(cmd, sizeof cmd, "SELECT count(*) FROM sqlite_schema WHERE name='b'");
        cr_assert(v == 1 || v == 2);
        cr_assert(eq(i64, raw_int(db, cmd), v - 1));
        sqlite3_close(db);
        scratch_remove(&d);
    }
}
