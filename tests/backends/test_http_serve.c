/* The two ends together: this client against our own endpoint, whose schedule is known. */
#include "backends/serve/serve.h"
#include "results/jcs.h"
#include "harness/core/clock.h"
#include "tests/backends/http_fixture.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct server {
    struct serve_options o;
    struct arena arena;
    struct workload *workload;
    volatile int stop;
    int port;
    sem_t ready;
    pthread_t thread;
};

static void on_ready(void *ctx, uint16_t port) {
    struct server *s = ctx;
    s->port = port;
    sem_post(&s->ready);
}

static void *run(void *ctx) {
    struct server *s = ctx;
    struct err e = {0};
    if (serve_run(&s->o, &e)) {
        fprintf(stderr, "serve: %s\n", e.text);
        abort();
    }
    return NULL;
}

static void start(struct server *s, const struct backend_ops *ops, const char *const *options) {
    struct err e = {0};
    cr_assert(zero(int, workload_load("chat-serving", NULL, 0, &s->workload, &e)), "%s", e.text);
    void *o = calloc(1, ops->options_size);
    options_defaults(ops->options, o, &s->arena);
    for (; *options; options++)
        cr_assert(zero(int, options_set_pair(ops->options, o, *options, "-o", &s->arena, &e)), "%s",
                  e.text);
    s->o = (struct serve_options){.ops = ops,
                                  .backend_options = o,
                                  .workload = s->workload,
                                  .digest = jcs_sha256,
                                  .ready = on_ready,
                                  .ready_ctx = s,
                                  .stop = &s->stop};
    sem_init(&s->ready, 0, 0);
    cr_assert(zero(int, pthread_create(&s->thread, NULL, run, s)));
    sem_wait(&s->ready);
}

static void stop(struct server *s) {
    s->stop = 1;
    pthread_join(s->thread, NULL);
    free((void *)(uintptr_t)s->o.backend_options);
    workload_free(s->workload);
    arena_release(&s->arena);
}

static void open_client(struct fixture *f, struct server *s, const char *api) {
    char url[64];
    snprintf(url, sizeof url, "url=http://127.0.0.1:%d", s->port);
    cr_assert(zero(int, fixture_open(f, (const char *const[]){url, api, "prewarm=on", NULL})), "%s",
              f->err.text);
}

Test(backends_http_serve, schedule_lengths_and_class, .timeout = 30) {
    static struct server s;
    static struct fixture f;
    start(&s, &backend_null, (const char *const[]){"ttft=30ms", "tpot=5ms", "stream=on", NULL});
    open_client(&f, &s, "api=completions");
    struct request r = fixture_request(0, 777, 8);
    struct completion c;
    cr_assert(eq(int, fixture_submit(&f, &r), SUBMIT_QUEUED));
    cr_assert(zero(int, fixture_wait(&f, &c, 1)), "%s", f.err.text);
    cr_assert(eq(i32, c.fail_class, FAIL_NONE));
    cr_assert(eq(u32, c.output_tokens, 8));
    int done = fixture_event(&f, EVENT_DONE, 0, 0), sent = fixture_event(&f, EVENT_SENT, 0, 0);
    cr_assert(eq(i64, fixture_b(&f, done), 777)); /* the ids that were sent, counted by the server */
    cr_assert(eq(int, fixture_count(&f, EVENT_TOKENS, 0), 8));
    /* nothing can be seen before its time */
    for (int k = 0; k < 8; k++) {
        int64_t t = f.block.time_ns[fixture_event(&f, EVENT_TOKENS, 0, k)];
        cr_assert(ge(i64, t, (30 + 5 * k) * NS_PER_MS));
        cr_assert(ge(i64, t, f.block.time_ns[sent]));
    }
    struct backend_info info;
    cr_assert(zero(int, backend_http.describe(f.backend, &info, &f.err)));
    cr_assert(eq(int, info.result_class, CLASS_NONE)); /* null: no claim at all */
    json_decref(info.details);
    fixture_stop(&f);
    stop(&s);
}

Test(backends_http_serve, a_simulated_chip_stays_simulated, .timeout = 60) {
    static struct server s;
    static struct fixture f;
    start(&s, &backend_tpu_sim, (const char *const[]){"chip=v6e", "chips=8", NULL});
    open_client(&f, &s, "api=chat");
    struct completion c = fixture_run(&f, 0, 5);
    cr_assert(eq(i32, c.fail_class, FAIL_NONE));
    cr_assert(eq(u32, c.output_tokens, 5));
    struct backend_info info;
    cr_assert(zero(int, backend_http.describe(f.backend, &info, &f.err)));
    cr_assert(eq(int, info.result_class, CLASS_SIMULATED));
    cr_assert(eq(str, info.chip, "v6e"));
    cr_assert(eq(i64, info.chips, 8));
    cr_assert(zero(int, strncmp(info.model_id, "sim/v6e-8/", 10)));
    cr_assert(eq(sz, strlen(json_string_value(json_object_get(info.details, "chip_sha256"))), 64));
    json_decref(info.details);
    fixture_stop(&f);
    stop(&s);
}

/* A what-if has the same name through the endpoint as without it. */
Test(backends_http_serve, a_chip_with_other_figures_keeps_its_name, .timeout = 60) {
    static struct server s;
    static struct fixture f;
    start(&s, &backend_tpu_sim,
          (const char *const[]){"chip=v6e", "chips=8", "chip.hbm_gbps=3276", NULL});
    open_client(&f, &s, "api=chat");
    struct backend_info info;
    cr_assert(zero(int, backend_http.describe(f.backend, &info, &f.err)));
    cr_assert(eq(str, info.chip, "v6e+hbm_gbps=3276"));
    cr_assert(eq(i64, info.chips, 8));
    json_decref(info.details);
    fixture_stop(&f);
    stop(&s);
}
