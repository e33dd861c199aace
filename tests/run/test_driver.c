/* The driver on the null backend's virtual clock: exact schedules, windows, sessions, shards. */
#include "harness/core/json.h"
#include "harness/run/driver.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS_MAX = 200000 };

struct seen {
    int64_t time_ns, a, b;
    uint64_t request;
    int kind;
};
struct log {
    struct seen e[EVENTS_MAX];
    int n;
};

static struct event_block *collect(void *ctx, struct event_block *full) {
    struct log *l = ctx;
    for (uint32_t i = 0; i < full->n && l->n < EVENTS_MAX; i++)
        l->e[l->n++] = (struct seen){full->time_ns[i], full->a[i], full->b[i], full->request[i],
                                     full->kind[i]};
    full->n = 0;
    return full;
}

static struct workload *workload(const char *json) {
    struct err e = {0};
    json_t *j;
    struct workload *w;
    cr_assert(eq(int, json_parse(json, strlen(json), "test", &j, &e), 0), "%s", e.text);
    cr_assert(eq(int, workload_from_json(j, "test", &w, &e), 0), "%s", e.text);
    json_decref(j);
    return w;
}

static struct backend *open_null(const struct workload *w, struct event_sink *s,
                                 const char *const *opts, struct arena *a) {
    struct err e = {0};
    const struct backend_ops *ops;
    struct backend *b;
    cr_assert(eq(int, backend_find("null", &ops, &e), 0));
    void *o = arena_alloc(a, 1, ops->options_size);
    options_defaults(ops->options, o, a);
    for (; opts && *opts; opts++)
        cr_assert(eq(int, options_set_pair(ops->options, o, *opts, "-o", a, &e), 0), "%s", e.text);
    struct backend_open_args args = {.workload = w, .options = o, .sink = s, .shards = 1};
    cr_assert(eq(int, ops->open(&args, &b, &e), 0), "%s", e.text);
    return b;
}

/* Runs one shard alone and returns its log. */
static struct log *drive(const char *json, const char *const *opts, int want_rc) {
    static const volatile int stop = 0;
    struct err e = {0};
    struct arena arena = {0};
    struct workload *w = workload(json);
    struct event_block *block = calloc(1, sizeof *block);
    struct log *l = calloc(1, sizeof *l);
    struct event_sink sink = {.block = block, .flush = collect, .ctx = l};
    struct driver_shared shared;
    struct driver_progress progress = {0};
    driver_shared_init(&shared, 1);
    struct backend *b = open_null(w, &sink, opts, &arena);
    struct driver_args args = {.workload = w, .backend = b, .virtual_clock = true, .sink = &sink,
                               .shared = &shared, .progress = &progress, .stop = &stop};
    cr_assert(eq(int, driver_run(&args, &e), want_rc), "%s", e.text);
    event_sink_flush(&sink);
    b->ops->close(b);
    driver_shared_release(&shared);
    workload_free(w);
    arena_release(&arena);
    free(block);
    return l;
}

static const struct seen *find(const struct log *l, int kind, uint64_t request) {
    for (int i = 0; i < l->n; i++)
        if (l->e[i].kind == kind && l->e[i].request == request)
            return &l->e[i];
    return NULL;
}

static int count(const struct log *l, int kind) {
    int n = 0;
    for (int i = 0; i < l->n; i++)
        n += l->e[i].kind == kind;
    return n;
}

static int64_t intended(const struct seen *issue) {
    return issue->time_ns - issue->a;
}

#define HEAD "{\"name\":\"t\",\"version\":\"1\",\"kind\":\"serving\",\"isl\":10,\"osl\":5,\"seed\":1,"

Test(run_driver, closed_loop_keeps_its_concurrency_and_counts_from_the_free_slot) {
    static const char *const opts[] = {"ttft=10ms", "tpot=1ms", NULL};
    struct log *l = drive(HEAD "\"pattern\":\"concurrency:2\",\"requests\":6}", opts, 0);
    cr_assert(eq(int, count(l, EVENT_ISSUE), 6));
    cr_assert(eq(int, count(l, EVENT_DONE), 6));
    /* each answer takes 10 + 4 * 1 ms; two at a time */
    for (uint64_t i = 0; i < 6; i++) {
        const struct seen *s = find(l, EVENT_ISSUE, i);
        cr_assert(eq(i64, intended(s), (int64_t)(i / 2) * 14000000));
        cr_assert(eq(i64, s->a, 0));
        cr_assert(eq(i64, s->b, 10));
    }
    cr_assert(eq(i64, find(l, EVENT_MARK, MARK_WINDOW_END)->a, 42000000));
    free(l);
}

Test(run_driver, the_null_backend_s_servers_take_the_queue_in_order) {
    static const char *const opts[] = {"ttft=10ms", "tpot=1ms", "servers=2", NULL};
    struct log *l = drive(HEAD "\"pattern\":\"offline\",\"requests\":5}", opts, 0);
    static const int64_t done_ms[] = {14, 14, 28, 28, 42}; /* 10 + 4 * 1 ms each, two at a time */
    for (uint64_t i = 0; i < 5; i++) {
        cr_assert(eq(i64, intended(find(l, EVENT_ISSUE, i)), 0));
        cr_assert(eq(i64, find(l, EVENT_DONE, i)->time_ns, done_ms[i] * 1000000), "request %d", (int)i);
    }
    free(l);
}

Test(run_driver, warm_up_by_count_drains_before_the_window) {
    static const char *const opts[] = {"ttft=10ms", NULL};
    struct log *l =
        drive(HEAD "\"pattern\":\"concurrency:2\",\"requests\":4,\"warmup\":{\"requests\":3}}", opts, 0);
    const struct seen *begin = find(l, EVENT_MARK, MARK_WINDOW_BEGIN);
    cr_assert(eq(i64, begin->a, 20000000)); /* three requests, two at a time */
    for (uint64_t i = 0; i < 7; i++)
        cr_assert(eq(int, intended(find(l, EVENT_ISSUE, i)) >= begin->a, i >= 3));
    free(l);
}

Test(run_driver, open_loop_issues_on_time_whatever_the_backend_does) {
    static const char *const opts[] = {"ttft=10s", NULL};
    struct log *l = drive(HEAD "\"pattern\":\"constant:100\",\"requests\":50,\"warmup\":{\"requests\":5}}",
                          opts, 0);
    for (uint64_t i = 0; i < 55; i++) {
        const struct seen *s = find(l, EVENT_ISSUE, i);
        cr_assert(eq(i64, intended(s), (int64_t)i * 10000000));
        cr_assert(eq(i64, s->a, 0));
    }
    cr_assert(eq(i64, find(l, EVENT_MARK, MARK_WINDOW_BEGIN)->a, 50000000));
    free(l);
}

Test(run_driver, a_duration_ends_issuing_and_lets_the_rest_finish) {
    static const char *const opts[] = {"ttft=30ms", NULL};
    struct log *l = drive(HEAD "\"pattern\":\"constant:100\",\"duration\":\"105ms\"}", opts, 0);
    cr_assert(eq(int, count(l, EVENT_ISSUE), 11)); /* 0, 10, …, 100 ms */
    cr_assert(eq(int, count(l, EVENT_DONE), 11));
    cr_assert(eq(i64, find(l, EVENT_MARK, MARK_WINDOW_END)->a, 105000000));
    free(l);
}

Test(run_driver, offline_issues_everything_at_once) {
    struct log *l = drive(HEAD "\"pattern\":\"offline\",\"requests\":10000}", NULL, 0);
    cr_assert(eq(int, count(l, EVENT_ISSUE), 10000));
    for (uint64_t i = 0; i < 10000; i += 997)
        cr_assert(eq(i64, intended(find(l, EVENT_ISSUE, i)), 0));
    free(l);
}

Test(run_driver, a_turn_waits_for_the_answer_and_its_think_time) {
    static const char *const opts[] = {"ttft=100ms", NULL};
    struct log *l =
        drive("{\"name\":\"t\",\"version\":\"1\",\"kind\":\"agentic\",\"isl\":10,\"osl\":5,\"seed\":1,"
              "\"pattern\":\"concurrency:2\",\"requests\":12,"
              "\"sessions\":{\"turns\":3,\"think_time\":{\"kind\":\"fixed\",\"value\":\"1s\"}}}",
              opts, 0);
    cr_assert(eq(int, count(l, EVENT_ISSUE), 12));
    cr_assert(eq(int, count(l, EVENT_SESSION), 12));
    /* ids 0..2 are session 0; a turn follows 100 ms answer + 1 s think time */
    for (uint64_t s = 0; s < 2; s++)
        for (uint64_t t = 0; t < 3; t++)
            cr_assert(eq(i64, intended(find(l, EVENT_ISSUE, 3 * s + t)), (int64_t)t * 1100000000));
    /* the next session starts when the first one's last answer is there */
    cr_assert(eq(i64, intended(find(l, EVENT_ISSUE, 6)), INT64_C(2300000000)));
    const struct seen *s = find(l, EVENT_SESSION, 7);
    cr_assert(eq(i64, s->a, 2));
    cr_assert(eq(i64, s->b, 1));
    free(l);
}

Test(run_driver, a_failed_turn_ends_its_session_and_frees_the_slot) {
    static const char *const opts[] = {"fail_every=2", NULL};
    struct log *l =
        drive("{\"name\":\"t\",\"version\":\"1\",\"kind\":\"agentic\",\"isl\":10,\"osl\":5,\"seed\":1,"
              "\"pattern\":\"concurrency:1\",\"requests\":12,\"sessions\":{\"turns\":3}}",
              opts, 0);
    /* ids 1, 3, 5, … fail: session 0 stops after turn 1, session 1 at turn 0, … */
    cr_assert(eq(int, count(l, EVENT_FAIL) + count(l, EVENT_DONE), count(l, EVENT_ISSUE)));
    cr_assert(eq(ptr, (void *)find(l, EVENT_ISSUE, 2), NULL));
    cr_assert(ne(ptr, (void *)find(l, EVENT_ISSUE, 3), NULL));
    cr_assert(eq(ptr, (void *)find(l, EVENT_ISSUE, 4), NULL));
    free(l);
}

/* A recorded session's tree on a backend whose every answer takes the same time; the fixture and its
 * tree stand in tests/workloads/test_sessions.c. Times by hand: a call is issued when all that it waits
 * for has ended and its delay is past. */
#define TREE "{\"name\":\"t\",\"kind\":\"agentic\",\"trace\":{\"path\":\"tests/data/workloads/weka.jsonl\"," \
             "\"format\":\"weka\"},"

static void expect_issues(const struct log *l, const double *want_s, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        const struct seen *s = find(l, EVENT_ISSUE, i);
        if (want_s[i] < 0) {
            cr_assert(eq(ptr, (void *)s, NULL), "request %d", (int)i);
            continue;
        }
        cr_assert(ne(ptr, (void *)s, NULL), "request %d", (int)i);
        cr_assert(eq(i64, s->time_ns, (int64_t)(want_s[i] * 1e9)), "request %d", (int)i);
        cr_assert(eq(i64, s->a, 0), "request %d", (int)i);
    }
}

Test(run_driver, branches_run_beside_each_other_and_the_parent_waits_for_them) {
    static const char *const fast[] = {"ttft=1s", NULL}, *const slow[] = {"ttft=10s", NULL};
    static const double at_fast[] = {0, 2, 3, 4, 7, 8, 9, 10.5, 12, 13, 14.5},
                        at_slow[] = {0, 11, 12, 22, 32, 17, 43, 53.5, 55, 65, 75.5};
    struct log *l = drive(TREE "\"pattern\":\"concurrency:1\"}", fast, 0);
    expect_issues(l, at_fast, 11);
    cr_assert(eq(int, count(l, EVENT_DONE), 11));
    free(l);
    l = drive(TREE "\"pattern\":\"concurrency:1\"}", slow, 0);
    expect_issues(l, at_slow, 11);
    free(l);
}

Test(run_driver, concurrency_counts_recorded_sessions_and_rates_start_them) {
    static const char *const opts[] = {"ttft=1s", NULL};
    static const double two[] = {0, 2, 3, 4, 7, 8, 9, 10.5, 12, 0, 1.5},
                        rate[] = {0, 2, 3, 4, 7, 8, 9, 10.5, 12, 4, 5.5};
    struct log *l = drive(TREE "\"pattern\":\"concurrency:2\"}", opts, 0);
    expect_issues(l, two, 11);
    for (uint64_t i = 0; i < 11; i++) {
        const struct seen *s = find(l, EVENT_SESSION, i);
        cr_assert(eq(i64, s->a, i >= 9));
    }
    cr_assert(eq(i64, find(l, EVENT_SESSION, 3)->b, 1), "the second turn of its branch");
    free(l);
    l = drive(TREE "\"pattern\":\"constant:0.25\"}", opts, 0);
    expect_issues(l, rate, 11);
    free(l);
}

Test(run_driver, a_failure_in_a_branch_ends_the_whole_tree) {
    static const char *const opts[] = {"ttft=1s", "fail_every=3", NULL};
    /* 2 fails at 4 s; 3 and 5, which waited for their delays, are not issued: the slot is free */
    static const double at[] = {0, 2, 3, -1, -1, -1, -1, -1, -1, 4, 5.5};
    struct log *l = drive(TREE "\"pattern\":\"concurrency:1\"}", opts, 0);
    expect_issues(l, at, 11);
    free(l);
}

Test(run_driver, same_seed_same_log) {
    static const char *const opts[] = {"ttft=3ms", "tpot=100us", "stream=on", NULL};
    const char *j = "{\"name\":\"t\",\"version\":\"1\",\"kind\":\"serving\",\"seed\":7,"
                    "\"isl\":{\"kind\":\"lognormal\",\"median\":100,\"sigma\":1,\"min\":1,\"max\":1000},"
                    "\"osl\":{\"kind\":\"lognormal\",\"median\":20,\"sigma\":1,\"min\":1,\"max\":100},"
                    "\"pattern\":\"gamma:300,0.5\",\"requests\":2000}";
    struct log *a = drive(j, opts, 0), *b = drive(j, opts, 0);
    cr_assert(eq(int, a->n, b->n));
    cr_assert(eq(int, memcmp(a->e, b->e, (size_t)a->n * sizeof *a->e), 0));
    free(a);
    free(b);
}

Test(run_driver, training_records_steps_and_a_window_after_the_warm_up) {
    static const char *const opts[] = {"ttft=2s", NULL};
    struct log *l = drive("{\"name\":\"t\",\"version\":\"1\",\"kind\":\"training\",\"model\":\"llama3.1-8b\","
                          "\"warmup\":{\"requests\":2},\"training\":{\"global_batch\":8,\"seq_len\":64,"
                          "\"steps\":5}}",
                          opts, 0);
    cr_assert(eq(int, count(l, EVENT_STEP), 7));
    cr_assert(eq(i64, find(l, EVENT_MARK, MARK_WINDOW_BEGIN)->a, INT64_C(4000000000)));
    cr_assert(eq(i64, find(l, EVENT_MARK, MARK_WINDOW_END)->a, INT64_C(14000000000)));
    free(l);
}
