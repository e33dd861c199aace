/* The null backend: answers at once, or after stated delays, from nothing. Its purpose is to measure
 * the harness itself, and to test schedules with exact times. It is not a model of anything: its class
 * is `none`.
 *
 * Without delays a request is done when submitted: one token event, then DONE with the wanted tokens.
 * With ttft or tpot the answer is scheduled: first token at +ttft, the rest each +tpot, either as one
 * event per token (stream=on) or as first token and end.
 *
 * With servers=c at most c requests are answered at a time, each by one server from its start to its last
 * token; others wait in the order in which they came. Fed by Poisson arrivals that is M/G/c of queueing
 * theory: a system whose limits are known in closed form, to check a search for them. */
#include "backends/backend.h"

#include "harness/core/clock.h"

#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

struct null_options {
    int clock;
    int64_t ttft_ns, tpot_ns, spin_ns;
    bool stream;
    uint64_t fail_every;
    int64_t servers;
};
enum { NULL_VIRTUAL, NULL_REAL };
static const char *const clocks[] = {"virtual", "real", NULL};
#define AT(f) offsetof(struct null_options, f)
static const struct option null_table[] = {
    {"clock", OPT_ENUM, AT(clock), .choices = clocks, .def = "virtual",
     .help = "virtual time, or the machine's monotonic clock"},
    {"ttft", OPT_DURATION, AT(ttft_ns), .def = "0s", .help = "time to the first token"},
    {"tpot", OPT_DURATION, AT(tpot_ns), .def = "0s", .help = "time per token after the first"},
    {"stream", OPT_BOOL, AT(stream), .def = "off", .help = "record every token, not the first only"},
    {"spin", OPT_DURATION, AT(spin_ns), .def = "250us",
     .help = "real clock: the last stretch before a deadline is spun, not slept: beyond what this "
             "machine oversleeps (assay doctor); more is more exact and burns a core"},
    {"fail_every", OPT_U64, AT(fail_every), .def = "0",
     .help = "every n-th request fails with in_band_error; 0 = none"},
    {"servers", OPT_I64, AT(servers), .min = 0, .max = 1e6, .def = "0",
     .help = "requests that are answered at a time, the others queue; needs ttft or tpot; 0 = all"},
    {0},
};

/* A scheduled answer; the heap is ordered by (at_ns, request). */
struct pending {
    int64_t at_ns;
    uint64_t request;
    uint32_t tokens, sent;
};

struct null_backend {
    struct backend base;
    struct null_options o;
    struct event_sink *sink;
    int64_t now_ns, origin_ns;
    struct pending *heap;
    size_t n, cap;
    size_t servers;        /* of this thread; 0 = no queue */
    struct pending *queue; /* ring of those that wait for a server; at_ns is not used yet */
    size_t waiting, queue_head, queue_cap;
};

static int64_t null_now(struct backend *b) {
    struct null_backend *s = (struct null_backend *)b;
    if (s->o.clock == NULL_VIRTUAL)
        return s->now_ns;
    return clock_now_ns() - s->origin_ns;
}

static int null_open(const struct backend_open_args *args, struct backend **out, struct err *e) {
    struct null_backend *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    s->base.ops = &backend_null;
    s->o = *(const struct null_options *)args->options;
    s->sink = args->sink;
    s->origin_ns = args->origin_ns;
    bool delays = s->o.ttft_ns || s->o.tpot_ns;
    if (s->o.servers && (!delays || s->o.servers < args->shards)) {
        free(s);
        return delays ? err_set(e, ASSAY_EUSAGE, "-o servers: %u threads cannot share fewer servers",
                                args->shards)
                      : err_set(e, ASSAY_EUSAGE, "-o servers: expected -o ttft or -o tpot beside it");
    }
    /* threads share the servers as they share a concurrency */
    s->servers = (size_t)(s->o.servers / args->shards + (args->shard < s->o.servers % args->shards));
    s->cap = !delays ? 0 : args->max_in_flight ? (size_t)args->max_in_flight : 1024;
    if (s->cap && !(s->heap = calloc(s->cap, sizeof *s->heap))) {
        free(s);
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    }
    if (s->o.clock == NULL_REAL)
        prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    *out = &s->base;
    return 0;
}

static int null_describe(struct backend *b, struct backend_info *info, struct err *e) {
    (void)e;
    struct null_backend *s = (struct null_backend *)b;
    *info = (struct backend_info){.result_class = CLASS_NONE,
                                  .virtual_clock = s->o.clock == NULL_VIRTUAL,
                                  .model_id = "none/null"};
    info->details = options_to_json(null_table, &s->o);
    return 0;
}

static bool before(const struct pending *a, const struct pending *b) {
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->request < b->request;
}

static void sift_down(struct null_backend *s) {
    struct pending x = s->heap[0];
    size_t i = 0;
    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= s->n)
            break;
        if (c + 1 < s->n && before(&s->heap[c + 1], &s->heap[c]))
            c++;
        if (!before(&s->heap[c], &x))
            break;
        s->heap[i] = s->heap[c];
        i = c;
    }
    s->heap[i] = x;
}

static int push(struct null_backend *s, struct pending x, struct err *e) {
    if (s->n == s->cap) {
        struct pending *p = realloc(s->heap, 2 * s->cap * sizeof *p);
        if (!p)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        s->heap = p;
        s->cap *= 2;
    }
    size_t i = s->n++;
    while (i && before(&x, &s->heap[(i - 1) / 2])) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = x;
    return 0;
}

static int enqueue(struct null_backend *s, struct pending x, struct err *e) {
    if (s->waiting == s->queue_cap) {
        size_t cap = s->queue_cap ? 2 * s->queue_cap : 1024;
        struct pending *q = calloc(cap, sizeof *q);
        if (!q)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        for (size_t i = 0; i < s->waiting; i++)
            q[i] = s->queue[(s->queue_head + i) % s->queue_cap];
        free(s->queue);
        s->queue = q;
        s->queue_head = 0;
        s->queue_cap = cap;
    }
    s->queue[(s->queue_head + s->waiting++) % s->queue_cap] = x;
    return 0;
}

static struct completion finish(struct null_backend *s, int64_t at_ns, uint64_t request,
                                uint32_t tokens) {
    struct completion c = {.request = request, .time_ns = at_ns, .output_tokens = tokens};
    if (s->o.fail_every && (request + 1) % s->o.fail_every == 0) {
        event_put(s->sink, at_ns, EVENT_FAIL, request, FAIL_IN_BAND_ERROR, 0);
        c.fail_class = FAIL_IN_BAND_ERROR;
        c.output_tokens = 0;
    } else {
        event_put(s->sink, at_ns, EVENT_DONE, request, tokens, 0);
    }
    return c;
}

static int null_submit(struct backend *b, const struct request *r, struct completion *c,
                       struct err *e) {
    struct null_backend *s = (struct null_backend *)b;
    int64_t now = null_now(b);
    if (s->cap) {
        struct pending x = {now + s->o.ttft_ns, r->id, r->osl, 0};
        bool busy = s->servers && s->n == s->servers;
        int rc = busy ? enqueue(s, x, e) : push(s, x, e);
        return rc ? rc : SUBMIT_QUEUED;
    }
    event_put(s->sink, now, EVENT_TOKENS, r->id, 1, 0);
    *c = finish(s, now, r->id, r->osl);
    return SUBMIT_DONE;
}

/* Takes the earliest pending answer one event further; true when it is complete. */
static bool advance(struct null_backend *s, int64_t at_ns, struct completion *c) {
    struct pending *p = &s->heap[0];
    uint32_t k = s->o.stream || p->sent == 0 ? 1 : p->tokens - p->sent;
    event_put(s->sink, at_ns, EVENT_TOKENS, p->request, k, 0);
    p->sent += k;
    bool last = p->sent >= p->tokens;
    p->at_ns += s->o.tpot_ns * (int64_t)(s->o.stream ? 1 : p->tokens - p->sent);
    if (last) {
        *c = finish(s, at_ns, p->request, p->tokens);
        if (s->waiting) { /* the server goes on with the next in the queue */
            s->heap[0] = s->queue[s->queue_head];
            s->heap[0].at_ns = at_ns + s->o.ttft_ns;
            s->queue_head = (s->queue_head + 1) % s->queue_cap;
            s->waiting--;
        } else {
            s->heap[0] = s->heap[--s->n];
        }
    }
    if (s->n)
        sift_down(s);
    return last;
}

static void sleep_until(const struct null_backend *s, int64_t until_ns, const volatile int *stop) {
    enum { SLICE_NS = 100000000 }; /* how late a stop may be noticed */
    for (;;) {
        int64_t left = until_ns + s->origin_ns - clock_now_ns();
        if (left <= s->o.spin_ns || *stop)
            break;
        int64_t nap = left - s->o.spin_ns < SLICE_NS ? left - s->o.spin_ns : SLICE_NS;
        struct timespec ts = {nap / NS_PER_S, nap % NS_PER_S};
        nanosleep(&ts, NULL);
    }
    while (!*stop && clock_now_ns() - s->origin_ns < until_ns)
        ;
}

static int null_wait(struct backend *b, int64_t until_ns, struct completion *c, int max, int *n,
                     const volatile int *stop, struct err *e) {
    struct null_backend *s = (struct null_backend *)b;
    *n = 0;
    for (;;) {
        int64_t next = s->n ? s->heap[0].at_ns : INT64_MAX;
        if (*n && (next > c[*n - 1].time_ns || *n == max))
            return 0;
        int64_t target = next < until_ns ? next : until_ns;
        if (target == INT64_MAX)
            return 0;
        if (s->o.clock == NULL_VIRTUAL) {
            if (target > s->now_ns)
                s->now_ns = target;
        } else {
            sleep_until(s, target, stop);
            if (*stop)
                return err_set(e, ASSAY_EINTERRUPTED, "interrupted");
        }
        if (!s->n || target != next)
            return 0;
        if (advance(s, null_now(b), &c[*n]))
            ++*n;
    }
}

static int64_t null_next(struct backend *b) {
    struct null_backend *s = (struct null_backend *)b;
    return s->n ? s->heap[0].at_ns : INT64_MAX;
}

static int null_train(struct backend *b, uint64_t first, int64_t steps, struct err *e) {
    static const volatile int never = 0;
    struct null_backend *s = (struct null_backend *)b;
    (void)e;
    for (int64_t i = 0; i < steps; i++) {
        uint64_t step = first + (uint64_t)i;
        int64_t now = null_now(b);
        event_put(s->sink, now, EVENT_ISSUE, step, 0, 0);
        if (s->o.clock == NULL_REAL)
            sleep_until(s, now + s->o.ttft_ns, &never);
        else
            s->now_ns = now + s->o.ttft_ns;
        event_put(s->sink, null_now(b), EVENT_STEP, step, 1, 1);
    }
    return 0;
}

static void null_close(struct backend *b) {
    struct null_backend *s = (struct null_backend *)b;
    if (s) {
        free(s->heap);
        free(s->queue);
    }
    free(s);
}

const struct backend_ops backend_null = {
    .abi = BACKEND_ABI,
    .name = "null",
    .summary = "answers from nothing, at once or after stated delays: measures the harness itself",
    .version = "1",
    .caps = BACKEND_VIRTUAL_CLOCK | BACKEND_SERVING | BACKEND_TRAINING,
    .options = null_table,
    .options_size = sizeof(struct null_options),
    .open = null_open,
    .describe = null_describe,
    .submit = null_submit,
    .wait = null_wait,
    .now = null_now,
    .next_ns = null_next,
    .train = null_train,
    .close = null_close,
};
