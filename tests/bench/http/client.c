/* The backend as a client of the benchmark's server. */
#include "tests/bench/http/bench.h"

#include "harness/core/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int64_t read_ns[REQUESTS_MAX][EVENTS_MAX];
static uint8_t nread[REQUESTS_MAX];
_Static_assert(EVENTS_MAX < 256, "counted in a byte");

struct client {
    struct arena arena;
    struct workload workload;
    struct event_block block;
    struct event_sink sink;
    struct backend *b;
};
static const volatile int never = 0;

static struct event_block *take_block(void *ctx, struct event_block *k) {
    (void)ctx;
    for (uint32_t i = 0; i < k->n; i++)
        if (k->kind[i] == EVENT_TOKENS && nread[k->request[i]] < EVENTS_MAX)
            read_ns[k->request[i]][nread[k->request[i]]++] = k->time_ns[i];
    k->n = 0;
    return k;
}

struct client *client_open(int port, int streams, const char *option, const char *more) {
    struct client *c = calloc(1, sizeof *c);
    void *o = calloc(1, backend_http.options_size);
    struct err e = {0};
    char url[64];
    if (!c || !o)
        die("memory");
    snprintf(url, sizeof url, "url=http://127.0.0.1:%d", port);
    options_defaults(backend_http.options, o, &c->arena);
    c->sink = (struct event_sink){.block = &c->block, .flush = take_block};
    struct backend_open_args args = {.workload = &c->workload,
                                     .options = o,
                                     .sink = &c->sink,
                                     .shards = 1,
                                     .max_in_flight = streams};
    if (options_set_pair(backend_http.options, o, url, "-o", &c->arena, &e) ||
        options_set_pair(backend_http.options, o, option, "-o", &c->arena, &e) ||
        options_set_pair(backend_http.options, o, more, "-o", &c->arena, &e) ||
        backend_http.open(&args, &c->b, &e))
        die(e.text);
    free(o);
    return c;
}

struct backend *client_backend(struct client *c) {
    return c->b;
}

void client_submit(struct client *c, int i) {
    struct err e;
    struct completion done;
    struct request r = {.id = (uint64_t)i,
                        .session = REQUEST_NO_SESSION,
                        .isl = 4,
                        .osl = (uint32_t)(TAG + i),
                        .content_seed = 1};
    if (backend_http.submit(c->b, &r, &done, &e) != SUBMIT_QUEUED)
        die(e.text);
}

static int64_t rss_bytes(void) {
    long all, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &all, &resident) != 2)
        die("/proc/self/statm");
    fclose(f);
    return resident * sysconf(_SC_PAGESIZE);
}

void client_turn(struct client *c, struct turn *t) {
    struct completion done[64];
    struct err e;
    int issued = 0, finished = 0, n, first = t->streams < t->requests ? t->streams : t->requests;
    memset(nread, 0, sizeof nread);
    t->rss_bytes = 0;
    int64_t cpu = clock_cpu_ns(), wall = clock_now_ns(), look_ns = wall;
    while (issued < first)
        client_submit(c, issued++);
    while (finished < t->requests) {
        /* as the driver calls it: never longer than 50 ms */
        if (backend_http.wait(c->b, backend_http.now(c->b) + 50 * NS_PER_MS, done, 64, &n, &never,
                              &e))
            die(e.text);
        for (int i = 0; i < n; i++) {
            if (done[i].fail_class)
                die(fail_class_name(done[i].fail_class));
            finished++;
            if (issued < t->requests)
                client_submit(c, issued++);
        }
        int64_t now = clock_now_ns();
        if (now - look_ns > 250 * NS_PER_MS) {
            int64_t rss = rss_bytes();
            t->rss_bytes = rss > t->rss_bytes ? rss : t->rss_bytes;
            look_ns = now;
        }
    }
    t->cpu_ns = clock_cpu_ns() - cpu;
    t->wall_ns = clock_now_ns() - wall;
    event_sink_flush(&c->sink);
}

void client_close(struct client *c) {
    backend_http.close(c->b);
    arena_release(&c->arena);
    free(c);
}
