/* What storing costs: opening a new and an old store, the commits of a run, the log writer per event
 * (beside what the codec alone costs), and each named question on a store of many runs.
 * bench_store [RUNS] */
#include "harness/core/clock.h"
#include "results/hash.h"
#include "results/query.h"
#include "results/store.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct err err;
static void check(int rc, const char *what) {
    if (!rc)
        return;
    fprintf(stderr, "bench_store: %s: %s\n", what, err.text);
    exit(1);
}

struct timer {
    int64_t wall, cpu;
};
static struct timer start(void) {
    return (struct timer){clock_now_ns(), clock_cpu_ns()};
}
static void stop(struct timer t, const char *what) {
    printf("%-34s %8.2f ms  %8.2f ms CPU\n", what, (double)(clock_now_ns() - t.wall) / 1e6,
           (double)(clock_cpu_ns() - t.cpu) / 1e6);
}

/* ---- one run ---- */

/* A decode stream: 64 requests in flight, a token each in turn. */
static void record(struct event_sink *sink, int64_t events) {
    int64_t t = 0;
    uint64_t x = 1;
    for (int64_t i = 0; i < events; i++) {
        x = x * UINT64_C(6364136223846793005) + 1;
        t += 1000 + (int64_t)(x >> 54);
        event_put(sink, t, EVENT_TOKENS, (uint64_t)(i & 63), 1, 0);
    }
}

/* event_flush_fn that only encodes and hashes: what the writer cannot do without. */
struct codec {
    struct event_block block;
    uint8_t out[EVENTLOG_BLOCK_MAX_BYTES];
};
static struct event_block *encode_only(void *ctx, struct event_block *k) {
    struct codec *c = ctx;
    unsigned char digest[32];
    sha256(c->out, eventlog_encode(k, c->out), digest);
    k->n = 0;
    return k;
}

static void bench_run(struct store *s, int64_t events) {
    json_t *o = json_pack("{s:s s:s s:s s:i}", "name", "bench", "class", "none", "chip", "none", "chips", 1);
    struct run_begin b = {.workload = o, .system = o, .rules = o, .backend = o, .environment = o, .mode = "performance",
                          .load_kind = "offline", .seed = "1", .started_wall_ns = clock_wall_ns()};
    struct run_handle h;
    struct event_sink sink;
    struct log_writer *w;
    uint64_t chunks, bytes;
    unsigned char digest[32];
    uuid_v7(b.uuid);
    struct timer t = start();
    check(store_run_begin(s, &b, &h, &err), "begin");
    stop(t, "begin a run (one commit)");
    t = start();
    check(log_writer_open(s, &h, 1, &sink, &w, &err), "log writer");
    stop(t, "open the log writer");

    struct codec *c = calloc(1, sizeof *c);
    struct event_sink alone = {.block = &c->block, .flush = encode_only, .ctx = c};
    int64_t cpu = clock_cpu_ns();
    record(&alone, events);
    double codec_ns = (double)(clock_cpu_ns() - cpu) / (double)events;
    free(c);

    cpu = clock_cpu_ns();
    int64_t wall = clock_now_ns();
    record(&sink, events);
    double produced = (double)(clock_now_ns() - wall) / 1e6;
    uint64_t stalls = log_writer_stalls(w);
    check(log_writer_close(w, &chunks, &bytes, digest, &err), "closing the log");
    double ns = (double)(clock_cpu_ns() - cpu) / (double)events;
    printf("log of %" PRId64 " events: %.1f ns/event CPU in all, of which record, encode and hash %.1f (x %.2f); "
           "%.2f bytes/event, %" PRIu64 " chunks, recorded in %.0f ms with %" PRIu64 " stalls\n",
           events, ns, codec_ns, ns / codec_ns, (double)bytes / (double)events, chunks, produced, stalls);
    struct run_end end = {.verdict = "ABORTED", .abort_reason = "bench", .finished_wall_ns = clock_wall_ns()};
    t = start();
    check(store_run_end(s, &h, &end, &err), "end");
    stop(t, "end a run (one commit)");
    json_decref(o);
}

/* ---- many runs ---- */

static void exec(sqlite3 *c, const char *sql) {
    char *text = NULL;
    if (sqlite3_exec(c, sql, NULL, NULL, &text)) {
        fprintf(stderr, "bench_store: %s: %s\n", sql, text);
        exit(1);
    }
}

/* Rows of the shapes that real runs have: 20 workloads, 10 systems, loads 1..64, all metrics. */
static void fill(const char *db, long runs) {
    sqlite3 *c;
    if (sqlite3_open(db, &c))
        exit(1);
    char sql[2048];
    exec(c, "PRAGMA synchronous=OFF; PRAGMA foreign_keys=OFF; BEGIN");
    exec(c, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<20) INSERT INTO workload"
            " SELECT i+1000, randomblob(32), 'w'||i, '1', 'serving', 'm'||(i%3) FROM n");
    exec(c, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<10) INSERT INTO system"
            " SELECT i+1000, randomblob(32), 's'||i FROM n");
    snprintf(sql, sizeof sql,
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<%ld) INSERT INTO campaign SELECT i+1000,"
             " 'c'||i FROM n", runs / 5);
    exec(c, sql);
    snprintf(sql, sizeof sql,
             "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<%ld) INSERT INTO run SELECT i+1000,"
             " printf('%%08x-0000-7000-8000-%%012x',i,i), i/5+1001, i%%5+1, i%%20+1001, x'00', i/5%%10+1001, 1, x'00', 1, 2, x'00',"
             " iif(i%%7,'simulated','measured'), 'chip'||(i/5%%3), 8<<(i/5%%4), 'performance', 'concurrency', 1<<(i%%7), '1',"
             " 1700000000000000000+i*1000000000000 FROM n", runs - 1);
    exec(c, sql);
    exec(c, "INSERT INTO envelope SELECT randomblob(32), run_id, 't', zeroblob(18000) FROM run WHERE run_id>=1000");
    exec(c, "INSERT INTO run_end SELECT run_id, started_ns, 1000000000, iif(run_id%11,'VALID','INVALID'), NULL, (SELECT"
            " payload_sha256 FROM envelope e WHERE e.run_id=r.run_id), 1000, 990, 10, 1000000, 200000 FROM run r WHERE run_id>=1000");
    exec(c, "INSERT INTO key VALUES('sha256:'||lower(hex(zeroblob(32))), zeroblob(32), 'o')");
    exec(c, "INSERT INTO signature SELECT payload_sha256, 'sha256:'||lower(hex(zeroblob(32))), zeroblob(64), 1 FROM envelope");
    exec(c, "INSERT INTO metric SELECT run_id, metric_id, 1000.0+(run_id*metric_id*7919)%9973, 1000, NULL, NULL, NULL FROM"
            " run_end CROSS JOIN (SELECT metric_id FROM metric_def LIMIT 60) WHERE run_id>=1000");
    exec(c, "INSERT INTO price VALUES('chip0','2024-01-01',1.0,'list','s'),('chip1','2024-01-01',2.0,'list','s'),"
            "('chip2','2024-01-01',3.0,'list','s'); COMMIT; ANALYZE; PRAGMA wal_checkpoint(TRUNCATE)");
    sqlite3_close(c);
}

static void bench_queries(struct store *s) {
    FILE *out = fopen("/dev/null", "w");
    double worst = 0;
    const char *which = "";
    for (const struct named_query *q = named_queries; q->name; q++) {
        const char *arg = "rate=100";
        int64_t cpu = clock_cpu_ns();
        check(query_run(s, q->name, &arg, strcmp(q->name, "chips-for-rate") == 0, QUERY_CSV, out, &err), q->name);
        double ms = (double)(clock_cpu_ns() - cpu) / 1e6;
        printf("  %-26s %8.1f ms CPU\n", q->name, ms);
        if (ms > worst) {
            worst = ms;
            which = q->name;
        }
    }
    printf("worst question: %s, %.0f ms CPU\n", which, worst);
    fclose(out);
}

int main(int argc, char **argv) {
    char dir[] = "/tmp/assay-bench-XXXXXX", db[64], lease[64];
    struct store *s;
    long runs = argc > 1 ? strtol(argv[1], NULL, 10) : 10000;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!mkdtemp(dir))
        return 1;
    snprintf(db, sizeof db, "%s/a.db", dir);
    snprintf(lease, sizeof lease, "%s/a.db-lease", dir);
    struct timer t = start();
    check(store_open(db, STORE_WRITE, &s, NULL, &err), "open");
    stop(t, "open a new store");
    bench_run(s, 3000000);
    t = start();
    store_close(s);
    stop(t, "close it (checkpoint)");
    t = start();
    check(store_open(db, STORE_WRITE, &s, NULL, &err), "open");
    stop(t, "open it again");
    store_close(s);
    fill(db, runs);
    t = start();
    check(store_open(db, STORE_WRITE, &s, NULL, &err), "open");
    stop(t, "open a store of many runs");
    printf("questions over %ld runs:\n", runs);
    bench_queries(s);
    if (getenv("KEEP"))
        return 0;
    store_close(s);
    unlink(db);
    unlink(lease);
    rmdir(dir);
    return 0;
}
