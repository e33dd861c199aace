/* What survives: kill -9 at random moments, a full disk, several writers, a reader beside a writer. */
#include "results/hash.h"
#include "results/register.h"
#include "results/store_internal.h"
#include "tests/results/fixture.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(results_store_crash, .timeout = 300);

struct ack {
    char what; /* b = begun, l = log committed, e = ended */
    char uuid[RUN_UUID];
};

static void acknowledge(int fd, char what, const char *uuid) {
    struct ack a = {.what = what};
    snprintf(a.uuid, sizeof a.uuid, "%s", uuid);
    if (write(fd, &a, sizeof a) != (ssize_t)sizeof a) /* below PIPE_BUF: whole or not at all */
        _exit(3);
}

static void record_blocks(struct event_sink *sink, int blocks) {
    for (int i = 0; i < blocks * EVENT_BLOCK_CAP; i++)
        event_put(sink, i, EVENT_MARK, MARK_RUN_BEGIN, 0, 0);
}

/* Runs until it is killed. */
static void child_runs(const char *db, int fd) {
    struct err e = {0};
    struct store *s;
    struct definitions d = definitions_make("w", "v6e", 8, "simulated");
    if (store_open(db, STORE_WRITE, &s, NULL, &e))
        _exit(4);
    for (;;) {
        struct run_begin b = begin_of(&d);
        struct run_handle h;
        struct event_sink sink;
        struct log_writer *w;
        uint64_t chunks, bytes;
        unsigned char digest[32];
        struct run_end end = {.verdict = "ABORTED", .abort_reason = "test"};
        if (store_run_begin(s, &b, &h, &e))
            _exit(5);
        acknowledge(fd, 'b', h.uuid);
        if (log_writer_open(s, &h, 1, &sink, &w, &e))
            _exit(6);
        record_blocks(&sink, 2);
        if (log_writer_close(w, &chunks, &bytes, digest, &e))
            _exit(7);
        acknowledge(fd, 'l', h.uuid);
        if (store_run_end(s, &h, &end, &e))
            _exit(8);
        acknowledge(fd, 'e', h.uuid);
    }
}

struct chain_check {
    unsigned char last[32];
    struct merkle tree;
    uint64_t next;
};

static int check_entry(void *ctx, uint64_t seq, const void *entry, size_t n, const unsigned char leaf[32],
                       const unsigned char chain[32], struct err *e) {
    struct chain_check *k = ctx;
    unsigned char want[32];
    register_chain(k->last, entry, n, want);
    if (seq != k->next++ || memcmp(want, chain, 32))
        return err_set(e, ASSAY_EINPUT, "chain broken at %" PRIu64, seq);
    memcpy(k->last, want, 32);
    merkle_leaf(entry, n, want);
    if (memcmp(want, leaf, 32))
        return err_set(e, ASSAY_EINPUT, "leaf differs at %" PRIu64, seq);
    merkle_append(&k->tree, leaf);
    return 0;
}

static void register_is_sound(struct store *s) {
    struct err e = {0};
    struct chain_check k = {0};
    unsigned char root[32], want[32];
    uint64_t size;
    must(store_register_each(s, check_entry, &k, &e), &e);
    must(register_head(&s->c, &size, root, &e), &e);
    merkle_root(&k.tree, want);
    cr_assert(size == k.next && memcmp(root, want, 32) == 0);
}

static int64_t count_for(sqlite3 *c, const char *sql, const char *uuid) {
    sqlite3_stmt *st;
    cr_assert(sqlite3_prepare_v2(c, sql, -1, &st, NULL) == 0);
    sqlite3_bind_text(st, 1, uuid, -1, SQLITE_STATIC);
    int64_t n = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : -1;
    sqlite3_finalize(st);
    return n;
}

/* Returns how many were acknowledged. */
static int check_acks(sqlite3 *c, int fd) {
    static const struct {
        char what;
        const char *sql;
        int64_t want;
    } rows[] = {
        {'b', "SELECT count(*) FROM run WHERE uuid=?", 1},
        {'l', "SELECT count(*) FROM chunk JOIN run USING(run_id) WHERE uuid=?", 2},
        {'e', "SELECT count(*) FROM run_end JOIN run USING(run_id) WHERE uuid=?", 1},
    };
    struct ack a;
    int n = 0;
    for (; read(fd, &a, sizeof a) == (ssize_t)sizeof a; n++)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            if (rows[i].what == a.what)
                cr_assert(count_for(c, rows[i].sql, a.uuid) == rows[i].want, "%c of %s is lost", a.what, a.uuid);
    return n;
}

Test(results_store_crash, nothing_acknowledged_is_lost_to_kill_9) {
    struct scratch dir = scratch_make();
    struct err e = {0};
    struct store *s;
    must(store_open(dir.db, STORE_WRITE, &s, NULL, &e), &e);
    store_close(s);
    int acks = 0, recovered = 0, r;
    srand(1);
    for (int round = 0; round < 100; round++) {
        int fd[2], status;
        cr_assert(pipe(fd) == 0);
        pid_t pid = fork();
        if (pid == 0) {
            close(fd[0]);
            child_runs(dir.db, fd[1]);
        }
        close(fd[1]);
        /* mostly while runs are written, sometimes while the store is opened */
        int want = round % 4 ? 1 + rand() % 6 : 0, there = 0;
        while (there < want * (int)sizeof(struct ack) && ioctl(fd[0], FIONREAD, &there) == 0)
            usleep(300);
        usleep((useconds_t)(rand() % (want ? 4000 : 40000)));
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        bool killed = WIFSIGNALED(status);
        cr_assert(killed, "the child gave up by itself: %x", status);
        sqlite3 *c = raw_open(dir.db);
        acks += check_acks(c, fd[0]);
        if (round % 10 == 9)
            cr_assert(eq(i64, raw_int(c, "SELECT integrity_check='ok' FROM pragma_integrity_check"), 1));
        int64_t open = raw_int(c, "SELECT count(*) FROM v_open_run");
        cr_assert(open == raw_int(c, "SELECT count(*) FROM lease"));
        sqlite3_close(c);
        close(fd[0]);
        must(store_open(dir.db, STORE_WRITE, &s, &r, &e), &e);
        cr_assert(eq(i64, r, open));
        cr_assert(eq(i64, raw_int(store_sqlite(s), "SELECT count(*) FROM v_open_run"), 0));
        recovered += r;
        if (round % 10 == 9)
            register_is_sound(s);
        store_close(s);
    }
    cr_assert(gt(int, acks, 100)); /* the campaign did something */
    cr_assert(gt(int, recovered, 5));
    sqlite3 *c = raw_open(dir.db);
    cr_assert(eq(i64, raw_int(c, "SELECT count(*) FROM pragma_foreign_key_check"), 0));
    sqlite3_close(c);
    scratch_remove(&dir);
}

/* ---- a full disk ---- */

/* Writes runs until the store refuses; then checks that it refused properly. *ended receives how many
 * runs had ended before. Exits the process with 0 when all is well. */
static void fill(const char *db, void (*relieve)(const char *db)) {
    struct err e = {0};
    struct store *s;
    struct definitions d = definitions_make("w", "v6e", 8, "simulated");
    must(store_open(db, STORE_WRITE, &s, NULL, &e), &e);
    int rc = 0, ended = 0;
    while (!rc && ended < 10000) {
        struct run_begin b = begin_of(&d);
        struct run_handle h;
        struct event_sink sink;
        struct log_writer *w;
        uint64_t chunks, bytes;
        unsigned char digest[32];
        struct run_end end = {.verdict = "ABORTED", .abort_reason = "test"};
        if ((rc = store_run_begin(s, &b, &h, &e)) || (rc = log_writer_open(s, &h, 1, &sink, &w, &e)))
            break;
        record_blocks(&sink, 4);
        rc = log_writer_close(w, &chunks, &bytes, digest, &e);
        if (!rc && !(rc = store_run_end(s, &h, &end, &e)))
            ended++;
    }
    cr_assert(eq(int, rc, ASSAY_EENV));
    cr_assert(contains(e.text, db) && contains(e.text, "bytes free"), "%s", e.text);
    cr_assert(gt(int, ended, 0));
    cr_assert(ge(i64, raw_int(store_sqlite(s), "SELECT count(*) FROM run_end"), ended));
    relieve(db);
    store_close(s);
    /* the same store goes on, with all that was acknowledged */
    must(store_open(db, STORE_WRITE, &s, NULL, &e), &e);
    cr_assert(ge(i64, raw_int(store_sqlite(s), "SELECT count(*) FROM run_end"), ended));
    struct run_begin b = begin_of(&d);
    struct run_handle h;
    must(store_run_begin(s, &b, &h, &e), &e);
    register_is_sound(s);
    store_close(s);
    sqlite3 *c = raw_open(db);
    cr_assert(eq(i64, raw_int(c, "SELECT integrity_check='ok' FROM pragma_integrity_check"), 1));
    sqlite3_close(c);
    definitions_release(&d);
}

static void relieve_limit(const char *db) {
    (void)db;
    struct rlimit r = {RLIM_INFINITY, RLIM_INFINITY};
    getrlimit(RLIMIT_FSIZE, &r);
    r.rlim_cur = r.rlim_max;
    cr_assert(setrlimit(RLIMIT_FSIZE, &r) == 0);
}

Test(results_store_crash, a_file_that_cannot_grow_is_an_environment_error) {
    struct scratch dir = scratch_make();
    struct rlimit r;
    signal(SIGXFSZ, SIG_IGN);
    cr_assert(getrlimit(RLIMIT_FSIZE, &r) == 0);
    r.rlim_cur = 1 << 20;
    cr_assert(setrlimit(RLIMIT_FSIZE, &r) == 0);
    fill(dir.db, relieve_limit);
    scratch_remove(&dir);
}

static void relieve_ballast(const char *db) {
    char path[400];
    snprintf(path, sizeof path, "%.*sballast", (int)(strrchr(db, '/') + 1 - db), db);
    cr_assert(unlink(path) == 0);
}

Test(results_store_crash, a_full_disk_is_an_environment_error) {
    struct scratch dir = scratch_make();
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("tmpfs", dir.dir, "tmpfs", 0, "size=4m")) {
        scratch_remove(&dir);
        cr_skip_test("needs the right to mount a small file system");
    }
    char path[400];
    static char zeros[1 << 20];
    snprintf(path, sizeof path, "%s/ballast", dir.dir);
    FILE *f = fopen(path, "wb");
    cr_assert(f && fwrite(zeros, 1, sizeof zeros, f) == sizeof zeros && fclose(f) == 0);
    fill(dir.db, relieve_ballast);
    umount(dir.dir);
    scratch_remove(&dir);
}

/* ---- several at once ---- */

enum { WRITER_RUNS = 40, WRITERS = 3 };

static void write_runs(const char *db) {
    struct err e = {0};
    struct store *s;
    struct definitions d = definitions_make("w", "v6e", 8, "simulated");
    if (store_open(db, STORE_WRITE, &s, NULL, &e)) {
        fprintf(stderr, "%s\n", e.text);
        _exit(2);
    }
    for (int i = 0; i < WRITER_RUNS; i++) {
        struct run_begin b = begin_of(&d);
        struct run_handle h;
        struct run_end end = {.verdict = "ABORTED", .abort_reason = "test"};
        if (store_run_begin(s, &b, &h, &e) || store_run_end(s, &h, &end, &e))
            _exit(3);
    }
    store_close(s);
    _exit(0);
}

Test(results_store_crash, writers_in_several_processes_all_succeed) {
    struct scratch dir = scratch_make();
    struct err e = {0};
    for (int i = 0; i < WRITERS; i++) /* all of them create it */
        if (fork() == 0)
            write_runs(dir.db);
    for (int i = 0; i < WRITERS; i++) {
        int status;
        wait(&status);
        cr_assert(status == 0, "writer ended with %x", status);
    }
    struct store *s;
    must(store_open(dir.db, STORE_READ, &s, NULL, &e), &e);
    cr_assert(eq(i64, raw_int(store_sqlite(s), "SELECT count(*) FROM run_end"), WRITERS * WRITER_RUNS));
    cr_assert(eq(i64, raw_int(store_sqlite(s), "SELECT max(attempt) FROM run"), WRITERS * WRITER_RUNS));
    register_is_sound(s);
    store_close(s);
    scratch_remove(&dir);
}

/* The first moments of a store are the most crowded ones. */
Test(results_store_crash, many_may_create_the_same_store) {
    for (int round = 0; round < 25; round++) {
        struct scratch dir = scratch_make();
        for (int i = 0; i < 4; i++)
            if (fork() == 0) {
                struct err e = {0};
                struct store *s;
                int rc = store_open(dir.db, STORE_WRITE, &s, NULL, &e);
                if (rc)
                    fprintf(stderr, "%s\n", e.text);
                else
                    store_close(s);
                _exit(rc != 0);
            }
        for (int i = 0; i < 4; i++) {
            int status;
            wait(&status);
            cr_assert(status == 0, "round %d: opening ended with %x", round, status);
        }
        scratch_remove(&dir);
    }
}

Test(results_store_crash, a_reader_sees_the_state_before_a_write) {
    struct scratch dir = scratch_make();
    struct err e = {0};
    struct store *w, *r;
    struct definitions d = definitions_make("w", "v6e", 8, "simulated");
    struct run_handle h;
    must(store_open(dir.db, STORE_WRITE, &w, NULL, &e), &e);
    must(store_open(dir.db, STORE_READ, &r, NULL, &e), &e);
    raw_exec(store_sqlite(r), "BEGIN");
    cr_assert(eq(i64, raw_int(store_sqlite(r), "SELECT count(*) FROM run"), 0));
    struct run_begin b = begin_of(&d);
    must(store_run_begin(w, &b, &h, &e), &e);
    cr_assert(eq(i64, raw_int(store_sqlite(r), "SELECT count(*) FROM run"), 0));
    raw_exec(store_sqlite(r), "COMMIT");
    cr_assert(eq(i64, raw_int(store_sqlite(r), "SELECT count(*) FROM run"), 1));
    store_close(r);
    store_close(w);
    definitions_release(&d);
    scratch_remove(&dir);
}

Test(results_store_crash, a_lock_that_stays_is_an_environment_error) {
    struct scratch dir = scratch_make();
    struct err e = {0};
    struct store *s;
    struct definitions d = definitions_make("w", "v6e", 8, "simulated");
    struct run_handle h;
    must(store_open(dir.db, STORE_WRITE, &s, NULL, &e), &e);
    s->c.busy_ms = 200;
    sqlite3_busy_timeout(store_sqlite(s), 20);
    sqlite3 *c = raw_open(dir.db);
    raw_exec(c, "BEGIN IMMEDIATE");
    struct run_begin b = begin_of(&d);
    cr_assert(eq(int, store_run_begin(s, &b, &h, &e), ASSAY_EENV));
    cr_assert(contains(e.text, "locked") && strstr(e.text, dir.db), "%s", e.text);
    raw_exec(c, "COMMIT");
    must(store_run_begin(s, &b, &h, &e), &e);
    sqlite3_close(c);
    store_close(s);
    definitions_release(&d);
    scratch_remove(&dir);
}

/* ---- out of memory ---- */

/* SQLite's memory is cut off at more and more bytes, until a run goes through: each failure is an error
 * and leaves nothing behind. */
Test(results_store_crash, running_out_of_memory_leaves_no_half_run) {
    struct scratch dir = scratch_make();
    struct err e = {0};
    struct store *s;
    struct definitions d = definitions_make("w", "v6e", 8, "simulated");
    struct run_handle h;
    must(store_open(dir.db, STORE_WRITE, &s, NULL, &e), &e);
    int failures = 0, rc = -1;
    sqlite3_int64 base = sqlite3_memory_used();
    for (sqlite3_int64 more = 256; rc && more < 1 << 20; more += 512) {
        struct run_begin b = begin_of(&d);
        sqlite3_db_release_memory(store_sqlite(s));
        sqlite3_hard_heap_limit64(base + more);
        rc = store_run_begin(s, &b, &h, &e);
        sqlite3_hard_heap_limit64(0);
        failures += rc != 0;
        if (rc)
            cr_assert(rc == ASSAY_ENOMEM || rc == ASSAY_EENV, "%d: %s", rc, e.text);
        cr_assert(eq(i64, raw_int(store_sqlite(s), "SELECT count(*) FROM run"), rc == 0));
        cr_assert(eq(i64, raw_int(store_sqlite(s), "SELECT count(*) FROM register_entry"), rc == 0));
    }
    cr_assert(eq(int, rc, 0));
    cr_assert(gt(int, failures, 3));
    register_is_sound(s);
    store_close(s);
    definitions_release(&d);
    scratch_remove(&dir);
}
