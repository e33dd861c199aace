/* Many recording threads against one log writer, in a plain program: ThreadSanitizer cannot run the
 * suite. Each thread records numbered events; afterwards every one is there, in order. */
#include "harness/core/clock.h"
#include "results/store.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 6, EVENTS = 60000 };

static void die(const char *what, const struct err *e) {
    fprintf(stderr, "log_writer: %s: %s\n", what, e->text);
    exit(1);
}

static void *record(void *arg) {
    struct event_sink *sink = arg;
    for (int64_t i = 0; i < EVENTS; i++) {
        event_put(sink, i, EVENT_TOKENS, (uint64_t)i, i & 3, 0);
        if (i % 9973 == 0)
            event_sink_flush(sink);
    }
    return NULL;
}

static void check(struct store *s, int64_t run_id) {
    struct err e = {0};
    struct eventlog_source src;
    struct eventlog_reader *r;
    uint64_t next[THREADS] = {0};
    if (store_log_open(s, run_id, &src, &e) || eventlog_open(&src, &r, &e))
        die("reading", &e);
    for (int n = 1; n;) {
        struct event ev[256];
        if (eventlog_read(r, ev, 256, &n, &e))
            die("reading", &e);
        for (int i = 0; i < n; i++)
            if (ev[i].request != next[ev[i].thread]++) {
                fprintf(stderr, "log_writer: thread %u: event %" PRIu64 " out of order\n", ev[i].thread, ev[i].request);
                exit(1);
            }
    }
    for (int i = 0; i < THREADS; i++)
        if (next[i] != EVENTS) {
            fprintf(stderr, "log_writer: thread %d: %" PRIu64 " of %d events\n", i, next[i], EVENTS);
            exit(1);
        }
    eventlog_close(r);
    store_log_close(&src);
}

int main(void) {
    char dir[] = "/tmp/assay-threads-XXXXXX", db[64], lease[64];
    struct err e = {0};
    struct store *s;
    if (!mkdtemp(dir))
        return 1;
    snprintf(db, sizeof db, "%s/a.db", dir);
    snprintf(lease, sizeof lease, "%s/a.db-lease", dir);
    if (store_open(db, STORE_WRITE, &s, NULL, &e))
        die("opening", &e);
    json_t *o = json_pack("{s:s}", "name", "threads");
    struct run_begin b = {.workload = o, .system = o, .rules = o, .backend = o, .environment = o,
                          .mode = "performance", .load_kind = "offline", .seed = "1",
                          .started_wall_ns = clock_wall_ns()};
    struct run_handle h;
    uuid_v7(b.uuid);
    if (store_run_begin(s, &b, &h, &e))
        die("beginning", &e);

    struct event_sink sinks[THREADS];
    struct log_writer *w;
    pthread_t t[THREADS];
    uint64_t chunks, bytes;
    unsigned char digest[32];
    if (log_writer_open(s, &h, THREADS, sinks, &w, &e))
        die("opening the log", &e);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&t[i], NULL, record, &sinks[i]))
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    if (log_writer_close(w, &chunks, &bytes, digest, &e))
        die("closing the log", &e);
    check(s, h.run_id);
    store_close(s);
    json_decref(o);
    unlink(db);
    unlink(lease);
    rmdir(dir);
    printf("log_writer: %d threads, %d events each, %" PRIu64 " chunks\n", THREADS, EVENTS, chunks);
    return 0;
}
