/* How much this machine can read as a client before the client is what is measured: the `http` backend
 * against a server thread (doctor_server.c), with four times the streams each time until the rule
 * max_client_error of the rule packs would call the run invalid, then once between the last two. The figures are judged by the code that
 * judges a run, from an event log of the same form. */
#include "harness/run/doctor.h"

#include "backends/backend.h"
#include "harness/core/clock.h"
#include "harness/measure/metrics.h"
#include "harness/run/doctor_internal.h"
#include "harness/run/doctor_server.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum {
    STREAMS_LEAST = 32,
    STREAMS_FIRST = 128,
    STREAMS_MOST = 2048,
    EVENTS = 12, /* of a stream: some of its gaps fall while all stream */
    BLOCKS = 9,
    OTHER_FILES = 256,
};
#define GAP_NS (20 * NS_PER_MS)    /* 50 tokens/s each, as chat models are read */
#define SUBMIT_NS 80000            /* between two issues: more than one takes */
#define BUDGET_NS (1500 * NS_PER_MS) /* no step begins after that */
#define STEP_MOST_NS (3 * NS_PER_S)
#define SHARE_MOST 0.01            /* rule packs: max_client_error */
#define LATE_MOST 0.01             /* of the events, beyond half a gap: then the server is the limit */

_Static_assert(BLOCKS * EVENT_BLOCK_CAP > STREAMS_MOST * (EVENTS + 4), "a step's log fits");

struct probe {
    struct arena arena;
    struct workload workload;
    struct event_block *blocks;
    int nblocks;
    struct event_sink sink;
    uint8_t *blob;
    struct doctor_server *server;
    void *options;
    struct backend *b;
    cpu_set_t allowed;
    int nallowed, client_cpu, server_cpu, most;
};

struct step {
    int streams;
    double share; /* that the client could move its worst figure by */
    char worst[64];
    double cpu_share;
    int64_t cpu_per_event_ns, delay_p50_ns, delay_p99_ns, server_late;
};

/* ---- the log of a step, in memory ---- */

static struct event_block *next_block(void *ctx, struct event_block *full) {
    struct probe *p = ctx;
    (void)full;
    return &p->blocks[++p->nblocks]; /* room for all: asserted above */
}

static int next_blob(void *ctx, uint32_t thread, const uint8_t **out, size_t *n, struct err *e) {
    struct probe *p = ctx;
    (void)thread, (void)e;
    *n = 0;
    if (p->nblocks < BLOCKS && p->blocks[p->nblocks].n) {
        p->blocks[p->nblocks].sequence = (uint64_t)p->nblocks;
        *n = eventlog_encode(&p->blocks[p->nblocks++], p->blob);
        *out = p->blob;
    }
    return 0;
}

static int compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* From the server's note before it wrote to the client's stamp. */
static int take_delays(const struct probe *p, struct step *s) {
    int64_t *delay = malloc((size_t)s->streams * EVENTS * sizeof *delay);
    uint8_t *seen = calloc((size_t)s->streams, 1);
    size_t n = 0;
    for (int k = 0; delay && seen && k < BLOCKS; k++) {
        const struct event_block *b = &p->blocks[k];
        for (uint32_t i = 0; i < b->n; i++)
            if (b->kind[i] == EVENT_TOKENS && seen[b->request[i]] < EVENTS) {
                int stream = (int)b->request[i];
                delay[n++] = b->time_ns[i] - doctor_server_sent_ns(p->server, stream, seen[stream]++);
            }
    }
    if (n) {
        qsort(delay, n, sizeof *delay, compare);
        s->delay_p50_ns = delay[(n - 1) / 2];
        s->delay_p99_ns = delay[(n * 99 + 99) / 100 - 1];
    }
    free(delay);
    free(seen);
    return n ? 0 : -1;
}

static int judge_step(struct probe *p, struct step *s, struct err *e) {
    const struct eventlog_source src = {.ctx = p, .threads = 1, .next = next_blob};
    const struct metrics_facts facts = {0};
    struct metrics *m = calloc(1, sizeof *m);
    if (!m || take_delays(p, s)) {
        free(m);
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    }
    p->nblocks = 0;
    int rc = metrics_compute(&src, &facts, m, e);
    if (!rc) {
        struct client_error c = metrics_client_error(m, CLIENT_FLOOR_NS);
        s->share = c.share;
        if (c.worst)
            snprintf(s->worst, sizeof s->worst, "%s %s", c.worst->name, c.worst->stat);
        metrics_release(m);
    }
    free(m);
    return rc;
}

/* ---- one load ---- */

static int64_t thread_cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * NS_PER_S + t.tv_nsec;
}

static int64_t events_so_far(const struct probe *p) {
    return (int64_t)p->nblocks * EVENT_BLOCK_CAP + p->sink.block->n;
}

/* Streams begin one after the other, each at its intended time, as under an open load pattern. */
static int load(struct probe *p, struct step *s, struct err *e) {
    static const volatile int never = 0;
    struct completion done[64];
    int issued = 0, finished = 0, n;
    int64_t start = backend_http.now(p->b) + NS_PER_MS, cpu = 0, events = 0, begin = 0;
    while (finished < s->streams) {
        int64_t now = backend_http.now(p->b), due = start + (int64_t)issued * SUBMIT_NS;
        if (now - start > STEP_MOST_NS)
            return err_set(e, ASSAY_EENV, "streams over loopback did not end");
        if (issued < s->streams && now >= due) {
            struct request r = {.id = (uint64_t)issued, .session = REQUEST_NO_SESSION, .isl = 4,
                                .osl = (uint32_t)(DOCTOR_TAG + issued), .arrival_ns = -1};
            event_put(&p->sink, now, EVENT_ISSUE, r.id, now - due, r.isl);
            int rc = backend_http.submit(p->b, &r, done, e);
            if (rc < 0)
                return rc;
            if (++issued == s->streams) { /* from here on it only reads */
                cpu = thread_cpu_ns();
                events = events_so_far(p);
                begin = backend_http.now(p->b);
            }
            continue;
        }
        int64_t until = issued < s->streams ? due : now + 50 * NS_PER_MS;
        int rc = backend_http.wait(p->b, until, done, 64, &n, &never, e);
        if (rc)
            return rc;
        for (int i = 0; i < n; i++)
            if (done[i].fail_class)
                return err_set(e, ASSAY_EENV, "a stream over loopback failed: %s",
                               fail_class_name(done[i].fail_class));
        finished += n;
    }
    cpu = thread_cpu_ns() - cpu;
    events = events_so_far(p) - events;
    s->cpu_share = (double)cpu / (double)(backend_http.now(p->b) - begin);
    s->cpu_per_event_ns = cpu / (events ? events : 1);
    return 0;
}

/* A backend of its own for each: libcurl looks at every idle connection once a second. */
static int run_step(struct probe *p, struct step *s, struct err *e) {
    for (int k = 0; k <= BLOCKS; k++)
        p->blocks[k].n = 0;
    p->nblocks = 0;
    p->sink = (struct event_sink){.block = p->blocks, .flush = next_block, .ctx = p};
    const struct backend_open_args args = {.workload = &p->workload, .options = p->options,
                                           .sink = &p->sink, .shards = 1, .max_in_flight = s->streams};
    int rc = backend_http.open(&args, &p->b, e);
    if (rc)
        return rc;
    doctor_server_late(p->server);
    rc = load(p, s, e);
    s->server_late = doctor_server_late(p->server);
    backend_http.close(p->b);
    return rc ? rc : judge_step(p, s, e);
}

/* ---- the machine ---- */

static void pin(const cpu_set_t *set) {
    sched_setaffinity(0, sizeof *set, set);
}

/* The first and the last processor that this process may use: on most machines of other cores. */
static void choose_processors(struct probe *p) {
    CPU_ZERO(&p->allowed);
    if (sched_getaffinity(0, sizeof p->allowed, &p->allowed))
        CPU_SET(0, &p->allowed);
    p->client_cpu = -1;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET((size_t)i, &p->allowed)) {
            p->client_cpu = p->client_cpu < 0 ? i : p->client_cpu;
            p->server_cpu = i;
            p->nallowed++;
        }
}

static bool same_core(int a, int b) {
    static const char *const files[] = {"physical_package_id", "core_id"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[128], x[32], y[32];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", a, files[i]);
        bool known = machine_text("", path, x, sizeof x);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", b, files[i]);
        if (!known || !machine_text("", path, y, sizeof y) || strcmp(x, y))
            return false;
    }
    return true;
}

/* Both ends of each connection are files of this process. */
static int files_for(void) {
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_max == RLIM_INFINITY)
        return STREAMS_MOST;
    rlim_t room = r.rlim_max > OTHER_FILES ? (r.rlim_max - OTHER_FILES) / 2 : 0;
    if (r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
    return room < STREAMS_MOST ? (int)room : STREAMS_MOST;
}

static int probe_open(struct probe *p, struct err *e) {
    char url[64];
    choose_processors(p);
    p->most = STREAMS_LEAST;
    for (int files = files_for(); p->most < STREAMS_MOST && p->most * 4 <= files;)
        p->most *= 4;
    p->blocks = calloc(BLOCKS + 1, sizeof *p->blocks);
    p->blob = malloc(EVENTLOG_BLOCK_MAX_BYTES);
    p->options = calloc(1, backend_http.options_size);
    if (!p->blocks || !p->blob || !p->options)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    memset(p->blocks, 1, (BLOCKS + 1) * sizeof *p->blocks); /* touched, so that no page is missing later */
    for (int k = 0; k <= BLOCKS; k++)
        p->blocks[k].n = p->blocks[k].thread = 0;
    int rc = doctor_server_start(p->server_cpu, p->nallowed > 1, p->most, EVENTS, GAP_NS, &p->server, e);
    if (rc)
        return rc;
    cpu_set_t mine;
    CPU_ZERO(&mine);
    CPU_SET((size_t)p->client_cpu, &mine);
    pin(&mine);
    snprintf(url, sizeof url, "url=http://127.0.0.1:%d", doctor_server_port(p->server));
    options_defaults(backend_http.options, p->options, &p->arena);
    return options_set_pair(backend_http.options, p->options, url, "-o", &p->arena, e);
}

static void probe_close(struct probe *p) {
    doctor_server_stop(p->server);
    pin(&p->allowed);
    free(p->options);
    free(p->blob);
    free(p->blocks);
    arena_release(&p->arena);
}

static void put_load(json_t *o, const struct step *s) {
    json_object_set_new(o, "streams", json_integer(s->streams));
    json_object_set_new(o, "events_per_s", json_integer(s->streams * NS_PER_S / GAP_NS));
    json_object_set_new(o, "client_error_fraction", json_real(s->share));
    json_object_set_new(o, "cpu_share_fraction", json_real(s->cpu_share));
    json_object_set_new(o, "cpu_per_event_ns", json_integer(s->cpu_per_event_ns));
    json_object_set_new(o, "delay_p50_ns", json_integer(s->delay_p50_ns));
    json_object_set_new(o, "delay_p99_ns", json_integer(s->delay_p99_ns));
}

static bool within(const struct step *s, const char **limit) {
    if ((double)s->server_late > LATE_MOST * s->streams * EVENTS)
        *limit = "the server on this machine fell behind";
    else if (s->share > SHARE_MOST)
        *limit = "the client's error";
    else
        return true;
    return false;
}

/* The largest load within the rule and the smallest beyond; streams = 0: there was none. */
static int climb(struct probe *p, struct step *best, struct step *beyond, const char **limit, struct err *e) {
    int64_t begin = clock_now_ns();
    *limit = "none found in the time it may take";
    for (int n = p->most < STREAMS_FIRST ? p->most : STREAMS_FIRST, next; n; n = next) {
        struct step s = {.streams = n};
        int rc = run_step(p, &s, e);
        if (rc)
            return rc;
        if (within(&s, limit)) {
            *best = s;
            next = beyond->streams || n * 4 > p->most ? 0 : n * 4;
            if (!beyond->streams && !next)
                *limit = n * 4 > STREAMS_MOST ? "none found" : "the limit of open files";
        } else {
            next = beyond->streams || n == STREAMS_LEAST ? 0 : best->streams ? n / 2 : STREAMS_LEAST;
            *beyond = s;
        }
        if (clock_now_ns() - begin > BUDGET_NS)
            return 0;
    }
    return 0;
}

int doctor_client(json_t *report, struct err *e) {
    struct probe *p = calloc(1, sizeof *p);
    struct step best = {0}, beyond = {0};
    const char *limit;
    if (!p)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    int64_t begin = clock_now_ns();
    int rc = probe_open(p, e);
    if (!rc)
        rc = climb(p, &best, &beyond, &limit, e);
    if (!rc) {
        json_t *o = json_object();
        json_object_set_new(report, "client", o);
        if (best.streams)
            put_load(o, &best);
        json_object_set_new(o, "limit", json_string(limit));
        if (beyond.streams) {
            json_object_set_new(o, "beyond_streams", json_integer(beyond.streams));
            json_object_set_new(o, "beyond_client_error_fraction", json_real(beyond.share));
            if (beyond.worst[0])
                json_object_set_new(o, "beyond_worst", json_string(beyond.worst));
        }
        json_object_set_new(o, "gap_ns", json_integer(GAP_NS));
        json_object_set_new(o, "server", json_string(p->nallowed < 2 ? "on the same processor"
                                                     : same_core(p->client_cpu, p->server_cpu)
                                                         ? "on the same core, another thread of it"
                                                         : "on another core"));
        json_object_set_new(o, "measured_ns", json_integer(clock_now_ns() - begin));
    }
    probe_close(p);
    free(p);
    return rc;
}
