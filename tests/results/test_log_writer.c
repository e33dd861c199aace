/* The log writer: what is recorded is what is read, in order, with its digest; nothing is lost when
 * the store is slow; errors stay. */
#include "results/hash.h"
#include "results/store_internal.h"
#include "tests/results/fixture.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static struct scratch dir;
static struct store *s;
static struct run_handle h;
static struct definitions d;

static void setup(void) {
    struct err e = {0};
    dir = scratch_make();
    must(store_open(dir.db, STORE_WRITE, &s, NULL, &e), &e);
    d = definitions_make("w", "v6e", 8, "simulated");
    struct run_begin b = begin_of(&d);
    must(store_run_begin(s, &b, &h, &e), &e);
}
static void teardown(void) {
    store_close(s);
    definitions_release(&d);
    scratch_remove(&dir);
}
TestSuite(results_log_writer, .init = setup, .fini = teardown, .timeout = 120);

static void put_n(struct event_sink *sink, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        event_put(sink, i / 3, EVENT_TOKENS, (uint64_t)i, i % 7, i % 5);
}

/* Reads it all back: events of each thread are 0..n-1 in order. */
static void check_log(uint32_t threads, int64_t n) {
    struct err e = {0};
    struct eventlog_source src;
    struct eventlog_reader *r;
    int64_t seen[16] = {0};
    must(store_log_open(s, h.run_id, &src, &e), &e);
    cr_assert(eq(u32, src.threads, threads));
    must(eventlog_open(&src, &r, &e), &e);
    for (;;) {
        struct event ev[512];
        int got;
        must(eventlog_read(r, ev, 512, &got, &e), &e);
        if (!got)
            break;
        for (int i = 0; i < got; i++) {
            int64_t k = seen[ev[i].thread]++;
            cr_assert(ev[i].request == (uint64_t)k && ev[i].time_ns == k / 3 && ev[i].a == k % 7 && ev[i].b == k % 5 &&
                          ev[i].kind == EVENT_TOKENS,
                      "thread %u event %lld", ev[i].thread, (long long)k);
        }
    }
    eventlog_close(r);
    store_log_close(&src);
    for (uint32_t i = 0; i < threads; i++)
        cr_assert(eq(i64, seen[i], n));
}

Test(results_log_writer, what_is_recorded_is_read) {
    struct event_sink sinks[3];
    struct log_writer *w;
    struct err e = {0};
    uint64_t chunks, bytes;
    unsigned char digest[32], want[32];
    const int64_t n = 5 * EVENT_BLOCK_CAP + 17;
    must(log_writer_open(s, &h, 3, sinks, &w, &e), &e);
    for (int i = 0; i < 3; i++)
        put_n(&sinks[i], n);
    must(log_writer_close(w, &chunks, &bytes, digest, &e), &e);
    cr_assert(eq(u64, chunks, 18));
    check_log(3, n);

    /* the digest by its definition: over thread LE32, sequence LE64, SHA-256 of the blob */
    struct buf all;
    buf_init(&all, 1 << 20);
    sqlite3_stmt *st;
    uint64_t total = 0;
    cr_assert(sqlite3_prepare_v2(store_sqlite(s), "SELECT data FROM chunk WHERE run_id=? ORDER BY thread, sequence", -1,
                                 &st, NULL) == 0);
    sqlite3_bind_int64(st, 1, h.run_id);
    for (int i = 0; sqlite3_step(st) == SQLITE_ROW; i++) {
        unsigned char head[12] = {(unsigned char)(i / 6), 0, 0, 0, (unsigned char)(i % 6)}, sum[32];
        size_t blob = (size_t)sqlite3_column_bytes(st, 0);
        sha256(sqlite3_column_blob(st, 0), blob, sum);
        buf_put(&all, head, sizeof head);
        buf_put(&all, sum, sizeof sum);
        total += blob;
    }
    sqlite3_finalize(st);
    sha256(all.p, all.n, want);
    buf_release(&all);
    cr_assert(memcmp(digest, want, 32) == 0);
    cr_assert(eq(u64, bytes, total));
}

Test(results_log_writer, an_empty_log_is_empty) {
    struct event_sink sink;
    struct log_writer *w;
    struct err e = {0};
    struct eventlog_source src;
    uint64_t chunks, bytes;
    unsigned char digest[32], want[32];
    must(log_writer_open(s, &h, 1, &sink, &w, &e), &e);
    must(log_writer_close(w, &chunks, &bytes, digest, &e), &e);
    sha256("", 0, want);
    cr_assert(chunks == 0 && bytes == 0 && memcmp(digest, want, 32) == 0);
    must(store_log_open(s, h.run_id, &src, &e), &e);
    cr_assert(eq(u32, src.threads, 0));
    store_log_close(&src);
}

Test(results_log_writer, a_block_is_committed_before_the_end) {
    struct event_sink sink;
    struct log_writer *w;
    struct err e = {0};
    uint64_t chunks, bytes;
    unsigned char digest[32];
    must(log_writer_open(s, &h, 1, &sink, &w, &e), &e);
    put_n(&sink, 10);
    event_sink_flush(&sink); /* as the driver does with a block older than EVENT_FLUSH_NS */
    sqlite3 *c = raw_open(dir.db);
    while (raw_int(c, "SELECT count(*) FROM chunk") == 0)
        usleep(1000); /* the suite's time limit is the test's */
    cr_assert(eq(i64, raw_int(c, "SELECT sum(events) FROM chunk"), 10));
    sqlite3_close(c);
    must(log_writer_close(w, &chunks, &bytes, digest, &e), &e);
    cr_assert(eq(u64, chunks, 1));
    check_log(1, 10);
}

static void *release_later(void *arg) {
    usleep(300000);
    raw_exec(arg, "COMMIT");
    return NULL;
}

Test(results_log_writer, a_slow_store_loses_nothing) {
    struct event_sink sink;
    struct log_writer *w;
    struct err e = {0};
    uint64_t chunks, bytes;
    unsigned char digest[32];
    const int64_t n = 400 * EVENT_BLOCK_CAP; /* more than pool and batch hold together */
    pthread_t t;
    must(log_writer_open(s, &h, 1, &sink, &w, &e), &e);
    sqlite3 *c = raw_open(dir.db);
    raw_exec(c, "BEGIN IMMEDIATE");
    pthread_create(&t, NULL, release_later, c);
    put_n(&sink, n);
    cr_assert(gt(u64, log_writer_stalls(w), 0));
    cr_assert(eq(int, log_writer_error(w, &e), 0));
    must(log_writer_close(w, &chunks, &bytes, digest, &e), &e);
    pthread_join(t, NULL);
    sqlite3_close(c);
    cr_assert(eq(u64, chunks, 400));
    check_log(1, n);
}

Test(results_log_writer, a_write_error_stays_and_never_blocks) {
    struct event_sink sink;
    struct log_writer *w;
    struct err e = {0};
    uint64_t chunks, bytes;
    unsigned char digest[32];
    must(log_writer_open(s, &h, 1, &sink, &w, &e), &e);
    struct rlimit r;
    signal(SIGXFSZ, SIG_IGN);
    cr_assert(getrlimit(RLIMIT_FSIZE, &r) == 0);
    r.rlim_cur = 256 * 1024;
    cr_assert(setrlimit(RLIMIT_FSIZE, &r) == 0);
    uint64_t x = 1;
    for (int64_t i = 0; i < 600 * EVENT_BLOCK_CAP; i++) { /* incompressible: each block is large */
        x = x * UINT64_C(6364136223846793005) + 1;
        event_put(&sink, i, EVENT_TOKENS, x, (int64_t)(x >> 3), 0);
    }
    cr_assert(eq(int, log_writer_error(w, &e), ASSAY_EENV));
    cr_assert(contains(e.text, dir.db), "%s", e.text);
    err_clear(&e);
    cr_assert(eq(int, log_writer_close(w, &chunks, &bytes, digest, &e), ASSAY_EENV));
    cr_assert(contains(e.text, "bytes free"), "%s", e.text);
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_FSIZE, &r);
}

Test(results_log_writer, threads_are_counted) {
    struct event_sink sink;
    struct log_writer *w;
    struct err e = {0};
    cr_assert(eq(int, log_writer_open(s, &h, 0, &sink, &w, &e), ASSAY_EUSAGE));
    cr_assert(eq(int, log_writer_open(s, &h, EVENTLOG_THREADS_MAX + 1, &sink, &w, &e), ASSAY_EUSAGE));
}

Test(results_log_writer, a_changed_or_missing_chunk_is_found) {
    struct event_sink sink;
    struct log_writer *w;
    struct err e = {0};
    uint64_t chunks, bytes;
    unsigned char digest[32];
    must(log_writer_open(s, &h, 1, &sink, &w, &e), &e);
    put_n(&sink, 3 * EVENT_BLOCK_CAP);
    must(log_writer_close(w, &chunks, &bytes, digest, &e), &e);
    sqlite3 *c = raw_unguarded(dir.db);
    raw_exec(c, "UPDATE chunk SET data=CAST(substr(data,1,length(data)-1)||x'00' AS BLOB) WHERE sequence=2");
    raw_exec(c, "DELETE FROM chunk WHERE sequence=0");
    struct eventlog_source src;
    const uint8_t *p;
    size_t n;
    must(store_log_open(s, h.run_id, &src, &e), &e);
    cr_assert(eq(int, src.next(src.ctx, 0, &p, &n, &e), ASSAY_EINPUT));
    cr_assert(contains(e.text, "gap"), "%s", e.text);
    store_log_close(&src);
    raw_exec(c, "DELETE FROM chunk WHERE sequence=1");
    raw_exec(c, "UPDATE chunk SET sequence=0");
    must(store_log_open(s, h.run_id, &src, &e), &e);
    cr_assert(eq(int, src.next(src.ctx, 0, &p, &n, &e), ASSAY_EINPUT));
    cr_assert(contains(e.text, "SHA-256"), "%s", e.text);
    store_log_close(&src);
    sqlite3_close(c);
}
