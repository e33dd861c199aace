/* Shards together issue exactly the single-thread plan, meet at the window, and race on nothing.
 * A plain program, so that ThreadSanitizer can run it. */
#include "harness/core/json.h"
#include "harness/run/driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REQUESTS = 3000, WARMUP = 100, SHARDS_MAX = 4 };

struct shard {
    struct driver_args args;
    struct driver_progress progress;
    struct event_sink sink;
    struct event_block block;
    int issued[REQUESTS + WARMUP];
    int64_t begin_ns, first_measured_ns;
    int rc;
    pthread_t thread;
};

static struct event_block *collect(void *ctx, struct event_block *b) {
    struct shard *s = ctx;
    for (uint32_t i = 0; i < b->n; i++) {
        if (b->kind[i] == EVENT_ISSUE) {
            s->issued[b->request[i]]++;
            if (b->request[i] >= WARMUP && s->first_measured_ns < 0)
                s->first_measured_ns = b->time_ns[i] - b->a[i];
        }
        if (b->kind[i] == EVENT_MARK && b->request[i] == MARK_WINDOW_BEGIN)
            s->begin_ns = b->a[i];
    }
    b->n = 0;
    return b;
}

static void *run(void *arg) {
    struct shard *s = arg;
    struct err e = {0};
    s->rc = driver_run(&s->args, &e);
    if (s->rc)
        fprintf(stderr, "%s\n", e.text);
    event_sink_flush(&s->sink);
    return NULL;
}

static int check(const char *pattern, uint32_t shards) {
    static const volatile int stop = 0;
    char text[512];
    snprintf(text, sizeof text,
             "{\"name\":\"t\",\"version\":\"1\",\"kind\":\"serving\",\"isl\":10,\"osl\":5,\"seed\":3,"
             "\"pattern\":\"%s\",\"requests\":%d,\"warmup\":{\"requests\":%d}}",
             pattern, REQUESTS, WARMUP);
    struct err e = {0};
    json_t *j;
    struct workload *w;
    const struct backend_ops *ops;
    struct arena arena = {0};
    if (json_parse(text, strlen(text), "t", &j, &e) || workload_from_json(j, "t", &w, &e) ||
        backend_find("null", &ops, &e))
        return fprintf(stderr, "%s\n", e.text);
    void *o = arena_alloc(&arena, 1, ops->options_size);
    options_defaults(ops->options, o, &arena);
    if (options_set_pair(ops->options, o, "ttft=1ms", "-o", &arena, &e))
        return fprintf(stderr, "%s\n", e.text);
    struct driver_shared shared;
    driver_shared_init(&shared, shards);
    struct shard *s = calloc(shards, sizeof *s);
    for (uint32_t i = 0; i < shards; i++) {
        s[i].sink = (struct event_sink){.block = &s[i].block, .flush = collect, .ctx = &s[i]};
        s[i].first_measured_ns = -1;
        struct backend *b;
        struct backend_open_args args = {.workload = w, .options = o, .sink = &s[i].sink, .shard = i,
                                         .shards = shards};
        if (ops->open(&args, &b, &e))
            return fprintf(stderr, "%s\n", e.text);
        s[i].args = (struct driver_args){.workload = w, .backend = b, .virtual_clock = true,
                                         .sink = &s[i].sink, .shard = i, .shared = &shared,
                                         .progress = &s[i].progress, .stop = &stop};
        pthread_create(&s[i].thread, NULL, run, &s[i]);
    }
    int bad = 0;
    for (uint32_t i = 0; i < shards; i++) {
        pthread_join(s[i].thread, NULL);
        bad += s[i].rc != 0;
        /* every shard's window begins where shard 0 says */
        bad += s[i].first_measured_ns < s[0].begin_ns;
        ops->close(s[i].args.backend);
    }
    for (int r = 0; r < REQUESTS + WARMUP; r++) {
        int n = 0;
        for (uint32_t i = 0; i < shards; i++)
            n += s[i].issued[r];
        bad += n != 1;
    }
    free(s);
    driver_shared_release(&shared);
    workload_free(w);
    json_decref(j);
    arena_release(&arena);
    printf("shards: %s with %u: %s\n", pattern, shards, bad ? "FAILED" : "ok");
    return bad;
}

int main(void) {
    int bad = 0;
    for (uint32_t n = 1; n <= SHARDS_MAX; n++) {
        bad += check("concurrency:13", n);
        bad += check("poisson:1000", n);
        bad += check("offline", n);
    }
    return bad != 0;
}
