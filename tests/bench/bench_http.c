/* What the http backend costs and how exact it is, as ratios against the least that any libcurl client
 * must do, and against limits.
 *
 * A server in a process of its own, on another core when there is one, answers each POST with events,
 * each written alone, and notes the time before each write in shared memory. The backend and a bare
 * libcurl multi_socket loop that only stamps and looks for one key take turns on the same load. One
 * table; the exit code tells malfunction only, since the machine may be anybody's. */
#include "backends/http/body.h"
#include "backends/http/scan.h"
#include "backends/http/sse.h"
#include "harness/core/clock.h"
#include "tests/bench/http/bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static int port;

/* ---- figures ---- */

static int compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static double median(int64_t *v, size_t n) {
    qsort(v, n, sizeof *v, compare);
    return (double)v[n / 2];
}

static void row(const char *what, const char *ours, const char *against, double ratio,
                const char *goal, bool reached) {
    printf("  %-44s %-22s %-22s %8.3f  %-8s %s\n", what, ours, against, ratio, goal,
           reached ? "ok" : "missed");
    fflush(stdout);
}

/* ---- cost ---- */

enum { TURNS = 3, BURST_TURNS = 10 };

static int64_t least(const int64_t *v, int n) {
    int64_t least = v[0];
    for (int i = 1; i < n; i++)
        least = v[i] < least ? v[i] : least;
    return least;
}

/* The least of several turns each, since what else the machine does only adds. */
static void bench_cpu(const char *what, const char *floor, int64_t period_ns) {
    enum { STREAMS = 256 };
    int64_t ours[BURST_TURNS], theirs[BURST_TURNS], bare[BURST_TURNS];
    struct turn t = {.streams = STREAMS, .requests = period_ns ? STREAMS : 4 * STREAMS};
    int turns = period_ns ? TURNS : BURST_TURNS;
    shared->streams = STREAMS;
    shared->events = EVENTS_MAX;
    shared->period_ns = 0;
    struct client *c = client_open(port, STREAMS, "stream=on", "spin=60us");
    struct peer *p = peer_open(port, STREAMS, true);
    struct raw *r = raw_open(port, STREAMS);
    client_turn(c, &t); /* all warm */
    peer_turn(p, &t);
    raw_turn(r, &t);
    shared->period_ns = period_ns;
    for (int i = 0; i < turns; i++) {
        client_turn(c, &t);
        ours[i] = t.cpu_ns;
        peer_turn(p, &t);
        theirs[i] = t.cpu_ns;
        raw_turn(r, &t);
        bare[i] = t.cpu_ns;
    }
    client_close(c);
    peer_close(p);
    raw_close(r);
    double n = 1e3 * t.requests, x = (double)least(ours, turns) / n,
           y = (double)least(theirs, turns) / n, z = (double)least(bare, turns) / n;
    char a[32], b[32];
    snprintf(a, sizeof a, "%.0f us CPU", x);
    snprintf(b, sizeof b, "bare libcurl %.0f us", y);
    row(what, a, b, x / y, "<= 1.15", x / y <= 1.15);
    snprintf(b, sizeof b, "epoll and recv %.0f us", z);
    row(floor, a, b, x / z, "", true);
}

static void bench_small(void) {
    enum { STREAMS = 64, REQUESTS = 8192 };
    int64_t ours[TURNS], theirs[TURNS];
    struct turn t = {.streams = STREAMS, .requests = REQUESTS};
    shared->streams = STREAMS;
    struct client *c = client_open(port, STREAMS, "stream=off", "spin=60us");
    struct peer *p = peer_open(port, STREAMS, false);
    client_turn(c, &t);
    peer_turn(p, &t);
    for (int i = 0; i < TURNS; i++) {
        client_turn(c, &t);
        ours[i] = t.wall_ns;
        peer_turn(p, &t);
        theirs[i] = t.wall_ns;
    }
    client_close(c);
    peer_close(p);
    double x = REQUESTS / median(ours, TURNS) * 1e9, y = REQUESTS / median(theirs, TURNS) * 1e9;
    char a[32], b[32];
    snprintf(a, sizeof a, "%.0f /s", x);
    snprintf(b, sizeof b, "bare libcurl %.0f /s", y);
    row("small requests, not streamed, 64 at a time", a, b, x / y, ">= 0.90", x / y >= 0.90);
}

static void bench_memory(void) {
    enum { STREAMS = 10000, EVENTS = 15 };
    struct rlimit r = {0};
    getrlimit(RLIMIT_NOFILE, &r);
    if (r.rlim_max < STREAMS + 200) {
        printf("  %-44s skipped: the limit of open files is %" PRIu64 "\n", "10,000 slow streams",
               (uint64_t)r.rlim_max);
        return;
    }
    struct turn t = {.streams = 1, .requests = 1};
    shared->streams = 1;
    shared->events = EVENTS;
    shared->period_ns = 50 * NS_PER_MS;
    struct client *c = client_open(port, 1, "stream=on", "prewarm=off");
    client_turn(c, &t);
    client_close(c);
    int64_t before = t.rss_bytes;
    shared->streams = STREAMS;
    shared->period_ns = 200 * NS_PER_MS;
    t = (struct turn){.streams = STREAMS, .requests = STREAMS};
    c = client_open(port, STREAMS, "stream=on", "prewarm=on");
    client_turn(c, &t);
    client_close(c);
    /* the stamps' own pages are the benchmark's, not the backend's */
    int64_t own = (int64_t)STREAMS * (int64_t)sizeof read_ns[0];
    double each = (double)(t.rss_bytes - before - own) / STREAMS / 1024;
    char a[32];
    snprintf(a, sizeof a, "%.1f KiB, %.0f %% CPU", each,
             100.0 * (double)t.cpu_ns / (double)t.wall_ns);
    row("10,000 streams, 5 events/s each: RSS a stream", a, "limit 64 KiB", each / 64, "<= 1",
        each <= 64);
}

/* ---- exactness ---- */

struct quantiles {
    double p50, p90, p99, max; /* us */
};

static struct quantiles quantiles_of(int64_t *v, size_t n) {
    qsort(v, n, sizeof *v, compare);
    return (struct quantiles){(double)v[n / 2] / 1e3, (double)v[n * 9 / 10] / 1e3,
                              (double)v[n * 99 / 100] / 1e3, (double)v[n - 1] / 1e3};
}

static void print_quantiles(const char *what, int64_t *v, size_t n) {
    struct quantiles q = quantiles_of(v, n);
    printf("  %-44s p50 %.1f us  p90 %.1f us  p99 %.1f us  max %.1f us  (n=%zu)\n", what, q.p50, q.p90,
           q.p99, q.max, n);
}

/* How far a client's view is from the server's, in one turn or in the best of several. */
struct lateness {
    struct quantiles first, gap, stamp;
};

static void keep_better(struct quantiles *best, struct quantiles q) {
    if (best->max == 0 || q.p99 < best->p99)
        *best = q;
}

/* The turn that has just ended: read_ns against the server's own stamps. */
static void take_lateness(struct lateness *best, int streams, int events) {
    enum { STAMPS = 1000 * EVENTS_MAX };
    static int64_t first[REQUESTS_MAX], all[STAMPS], gap[STAMPS];
    size_t n = 0, k = 0;
    for (int r = 0; r < streams; r++) {
        first[r] = read_ns[r][0] - shared->sent_ns[r][0];
        for (int j = 0; j < events; j++) {
            all[n++] = read_ns[r][j] - shared->sent_ns[r][j];
            if (j)
                gap[k++] = llabs((read_ns[r][j] - read_ns[r][j - 1]) -
                                 (shared->sent_ns[r][j] - shared->sent_ns[r][j - 1]));
        }
    }
    keep_better(&best->first, quantiles_of(first, (size_t)streams));
    keep_better(&best->gap, quantiles_of(gap, k));
    keep_better(&best->stamp, quantiles_of(all, n));
}

/* The ratio is to the floor, which is as late as kernel, machine and server make any client; the goal is
 * of ours alone. */
static void row_late(int streams, const char *how, const char *what, struct quantiles ours, struct quantiles bare,
                     double limit_us) {
    char name[64], a[32], b[32], goal[32];
    snprintf(name, sizeof name, "%d streams%s: %s", streams, how, what);
    snprintf(a, sizeof a, "p50 %.0f p99 %.0f us", ours.p50, ours.p99);
    snprintf(b, sizeof b, "floor %.0f, %.0f us", bare.p50, bare.p99);
    snprintf(goal, sizeof goal, "<=%.1fms", limit_us / 1e3);
    row(name, a, b, ours.p99 / bare.p99, limit_us > 0 ? goal : "", limit_us <= 0 || ours.p99 <= limit_us);
}

static void bench_stamps(int streams, int events, bool polls, double limit_us) {
    const char *how = polls ? ", polled" : "";
    struct lateness ours = {0}, bare = {0};
    struct turn t = {.streams = streams, .requests = streams};
    shared->streams = streams;
    shared->events = events;
    shared->period_ns = 20 * NS_PER_MS;
    struct client *c = client_open(port, streams, "stream=on", polls ? "busy_poll=on" : "busy_poll=off");
    struct raw *r = raw_open(port, streams);
    for (int i = 0; i < TURNS; i++) {
        client_turn(c, &t);
        take_lateness(&ours, streams, events);
        raw_turn(r, &t);
        take_lateness(&bare, streams, events);
    }
    client_close(c);
    raw_close(r);
    row_late(streams, how, "TTFT, |client - server|", ours.first, bare.first, limit_us);
    row_late(streams, how, "ITL, |client - server|", ours.gap, bare.gap, limit_us);
    row_late(streams, how, "token stamp, client - server", ours.stamp, bare.stamp, 0);
}

static void bench_deadlines(bool loaded) {
    enum { N = 1500, STREAMS = 64 };
    static int64_t late[N];
    static const volatile int never = 0;
    struct completion done[64];
    struct err e;
    int n, issued = 0, in_flight = 0;
    shared->streams = STREAMS;
    shared->events = EVENTS_MAX;
    shared->period_ns = 4 * NS_PER_MS;
    struct client *c = client_open(port, STREAMS, "stream=on", "spin=60us");
    struct backend *b = client_backend(c);
    for (; loaded && issued < STREAMS; issued++, in_flight++)
        client_submit(c, issued);
    int64_t at = backend_http.now(b);
    for (int i = 0; i < N; i++) {
        at += NS_PER_MS + i * 7919 % 300000; /* no beat with the server's period */
        for (;;) {
            if (backend_http.wait(b, at, done, 64, &n, &never, &e))
                die(e.text);
            if (!n)
                break;
            for (in_flight -= n; loaded && in_flight < STREAMS; in_flight++)
                client_submit(c, issued++ % REQUESTS_MAX);
        }
        late[i] = backend_http.now(b) - at;
    }
    while (in_flight > 0) {
        if (backend_http.wait(b, INT64_MAX, done, 64, &n, &never, &e))
            die(e.text);
        in_flight -= n;
    }
    client_close(c);
    print_quantiles(loaded ? "wait() late from a deadline, 64 streams"
                           : "wait() late from a deadline, idle",
                    late, N);
}

/* ---- parts ---- */

static void on_event(void *ctx, const struct sse_event *ev) {
    struct scan s;
    *(unsigned *)ctx += scan_event(SCAN_OPENAI, ev->data.p, ev->data.n, &s) == SCAN_OK && s.flags & SCAN_CONTENT;
}

static void bench_parse(void) {
    enum { N = 200000 };
    struct sse s;
    unsigned tokens = 0;
    sse_init(&s, 1 << 20);
    int64_t t = clock_cpu_ns();
    for (int i = 0; i < N; i++)
        if (sse_feed(&s, event_format, event_format_bytes, on_event, &tokens))
            die("parse");
    t = clock_cpu_ns() - t;
    if (tokens != N)
        die("parse");
    printf("  %-44s %.0f ns CPU per event of %zu bytes\n", "framing and key scan", (double)t / N,
           event_format_bytes);
    sse_release(&s);
}

static void bench_body(void) {
    enum { N = 500, ISL = 8192 };
    struct body_options o = {.protocol = &protocols[API_COMPLETIONS], .model = "m", .vocab = 128256};
    struct request r = {.isl = ISL, .osl = 1024};
    struct body_template t;
    struct buf b;
    buf_init(&b, BODY_MAX_BYTES);
    if (body_template_init(&t, &o, NULL))
        die("body");
    int64_t ns = clock_cpu_ns();
    for (int i = 0; i < N; i++) {
        r.content_seed = (uint64_t)i;
        if (body_build(&t, &r, &b, NULL))
            die("body");
    }
    ns = clock_cpu_ns() - ns;
    printf("  %-44s %.1f us CPU for %d token ids (%.1f ns a token)\n", "building a request body",
           (double)ns / N / 1e3, ISL, (double)ns / N / ISL);
    buf_release(&b);
    body_template_release(&t);
}

/* Jiffies that the hypervisor took from this machine, and all. */
static void read_steal(int64_t *steal, int64_t *all) {
    int64_t v[8] = {0};
    FILE *f = fopen("/proc/stat", "r");
    int n = f ? fscanf(f, "cpu %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64
                          " %" SCNd64 " %" SCNd64,
                       &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7])
              : 0;
    if (f)
        fclose(f);
    *steal = n == 8 ? v[7] : 0;
    *all = 0;
    for (int i = 0; i < n; i++)
        *all += v[i];
}

static void cpu_burst(void) {
    bench_cpu("CPU a request: 130 events, 256 streams, burst", "  against the floor", 0);
}
static void cpu_paced(void) {
    bench_cpu("CPU a request: 130 events, 256 streams, 20 ms", "  against the floor", 20 * NS_PER_MS);
}
static void stamps_64(void) {
    bench_stamps(64, EVENTS_MAX, false, 300);
}
static void stamps_polled(void) {
    bench_stamps(64, EVENTS_MAX, true, 300);
}
static void stamps_1000(void) {
    bench_stamps(1000, 100, false, 2000);
}
static void deadlines(void) {
    bench_deadlines(false);
    bench_deadlines(true);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"memory", bench_memory}, {"burst", cpu_burst},     {"paced", cpu_paced},
    {"small", bench_small},   {"64", stamps_64},        {"polled", stamps_polled},
    {"1000", stamps_1000},    {"deadlines", deadlines}, {"parse", bench_parse},
    {"body", bench_body},
};

/* With arguments only the cases of these names run. */
int main(int argc, char **argv) {
    int64_t steal, all, steal_end, all_end;
    double load = 0;
    read_steal(&steal, &all);
    port = server_start();
    pin(0);
    printf("  %-44s %-22s %-22s %8s  %-8s\n", "case", "backend", "against", "ratio", "goal");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool wanted = argc == 1;
        for (int k = 1; k < argc; k++)
            wanted |= !strcmp(argv[k], cases[i].name);
        if (wanted)
            cases[i].run();
    }
    server_stop();
    read_steal(&steal_end, &all_end);
    if (getloadavg(&load, 1) != 1)
        load = -1;
    printf("  the machine: load %.1f at the end (this benchmark is 2 of it), stolen %.1f %%\n", load,
           all_end > all ? 100.0 * (double)(steal_end - steal) / (double)(all_end - all) : 0.0);
    return 0;
}
