/* What a serving engine must conserve, whatever its steps cost: tokens, blocks, order, time. */
#include "backends/backend.h"
#include "backends/tpu_sim/engine.h"
#include "harness/core/rng.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- a sink that keeps everything ---- */

struct event {
    int64_t t, a, b;
    uint64_t request;
    int kind;
};
struct log {
    struct event_sink sink;
    struct event_block block;
    struct event *e;
    size_t n, cap;
};

static struct event_block *keep(void *ctx, struct event_block *k) {
    struct log *l = ctx;
    if (l->n + k->n > l->cap) {
        l->cap = (l->n + k->n) * 2;
        l->e = realloc(l->e, l->cap * sizeof *l->e);
    }
    for (uint32_t i = 0; i < k->n; i++)
        l->e[l->n++] = (struct event){k->time_ns[i], k->a[i], k->b[i], k->request[i], k->kind[i]};
    k->n = 0;
    return k;
}

static struct log *log_new(void) {
    struct log *l = calloc(1, sizeof *l);
    l->sink = (struct event_sink){.block = &l->block, .flush = keep, .ctx = l};
    return l;
}

static size_t count(const struct log *l, int kind, uint64_t request) {
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++)
        n += l->e[i].kind == kind && (request == UINT64_MAX || l->e[i].request == request);
    return n;
}

static const struct event *find(const struct log *l, int kind, uint64_t request) {
    for (size_t i = 0; i < l->n; i++)
        if (l->e[i].kind == kind && l->e[i].request == request)
            return &l->e[i];
    return NULL;
}

/* ---- a backend ---- */

struct rig {
    struct workload w;
    struct arena a;
    void *options;
    struct log *log;
    struct backend *b;
    struct err e;
};
static const struct backend_ops *const ops = &backend_tpu_sim;
static const volatile int go_on = 0;

static int rig_try(struct rig *r, const char *model, const char *options) {
    *r = (struct rig){.w = {.kind = WORKLOAD_SERVING, .has_model = true}, .log = log_new()};
    cr_assert(eq(int, model_load(model, &r->w.model, &r->e), 0), "%s", r->e.text);
    r->options = arena_alloc(&r->a, 1, ops->options_size);
    options_defaults(ops->options, r->options, &r->a);
    char *text = arena_strdup(&r->a, options), *save = NULL;
    for (char *o = strtok_r(text, " ", &save); o; o = strtok_r(NULL, " ", &save)) {
        int rc = options_set_pair(ops->options, r->options, o, "-o", &r->a, &r->e);
        if (rc)
            return rc;
    }
    struct backend_open_args args = {
        .workload = &r->w, .options = r->options, .sink = &r->log->sink, .shards = 1};
    return ops->open(&args, &r->b, &r->e);
}

static void rig_open(struct rig *r, const char *options) {
    cr_assert(eq(int, rig_try(r, "llama3.1-8b", options), 0), "%s", r->e.text);
}

static void rig_close(struct rig *r) {
    ops->close(r->b);
    arena_release(&r->a);
    free(r->log->e);
    free(r->log);
}

static struct request plain(uint64_t id, uint32_t isl, uint32_t osl) {
    return (struct request){
        .id = id, .session = REQUEST_NO_SESSION, .last_turn = true, .isl = isl, .osl = osl};
}

static void submit(struct rig *r, struct request q) {
    struct completion c;
    cr_assert(eq(int, ops->submit(r->b, &q, &c, &r->e), SUBMIT_QUEUED), "%s", r->e.text);
}

static int wait_until(struct rig *r, int64_t until, struct completion *c, int max) {
    int n;
    cr_assert(eq(int, ops->wait(r->b, until, c, max, &n, &go_on, &r->e), 0));
    return n;
}

static void run_dry(struct rig *r) {
    struct completion c[16];
    while (wait_until(r, INT64_MAX, c, 16) > 0)
        ;
    event_sink_flush(&r->log->sink);
}

static int64_t detail(struct rig *r, const char *group, const char *key) {
    struct backend_info info;
    cr_assert(eq(int, ops->describe(r->b, &info, &r->e), 0));
    int64_t v = json_integer_value(json_object_get(json_object_get(info.details, group), key));
    json_decref(info.details);
    return v;
}

/* ---- conservation ---- */

/* A random closed loop; fills the log. */
static void random_load(struct rig *r, uint64_t seed, int requests, int concurrency) {
    struct rng g;
    rng_seed(&g, seed);
    int issued = 0, done = 0;
    struct completion c[7];
    while (done < requests) {
        for (; issued < requests && issued - done < concurrency; issued++)
            submit(r, plain((uint64_t)issued, 1 + (uint32_t)rng_below(&g, 900),
                            1 + (uint32_t)rng_below(&g, 60)));
        int64_t until =
            rng_below(&g, 3) ? INT64_MAX : ops->now(r->b) + (int64_t)rng_below(&g, 40000000);
        int n = wait_until(r, until, c, 7);
        if (until != INT64_MAX && n == 0)
            cr_assert(eq(i64, ops->now(r->b), until));
        for (int i = 0; i < n; i++)
            cr_assert(le(i64, c[i].time_ns, ops->now(r->b)));
        done += n;
    }
    event_sink_flush(&r->log->sink);
}

static void check_conservation(struct rig *r, uint64_t seed, int requests) {
    struct rng g;
    rng_seed(&g, seed);
    size_t *tokens = calloc((size_t)requests, sizeof *tokens);
    int64_t *done = calloc((size_t)requests, sizeof *done), last = 0, engine_last = INT64_MIN / 2;
    for (size_t i = 0; i < r->log->n; i++) {
        const struct event *e = &r->log->e[i];
        cr_assert(ge(i64, e->t, last), "time went back");
        last = e->t;
        if (e->kind == EVENT_TOKENS) {
            tokens[e->request] += (size_t)e->a;
            cr_assert(eq(i64, done[e->request], 0), "token after DONE");
        } else if (e->kind == EVENT_DONE) {
            cr_assert(eq(i64, done[e->request], 0), "DONE twice");
            cr_assert(eq(sz, tokens[e->request], (size_t)e->a));
            done[e->request] = e->t;
        } else if (e->kind == EVENT_ENGINE) {
            cr_assert(ge(i64, e->t - engine_last, 1000000));
            engine_last = e->t;
        } else {
            cr_assert(eq(int, e->kind, EVENT_SENT));
        }
    }
    for (int i = 0; i < requests; i++)
        cr_assert(gt(i64, done[i], 0), "request %d is missing", i);
    free(tokens);
    free(done);
    cr_assert(eq(i64, detail(r, "counters", "free_blocks"),
                 detail(r, "engine", "kv_blocks") * detail(r, "parallelism", "replicas")),
              "blocks leaked");
}

static const char *const settings[] = {
    "chips=1",
    "chips=1 buckets=none max_batched_tokens=100",
    "chips=1 kv_blocks=40 block_size=64 max_seqs=16", /* pressure: preemption */
    "chips=1 kv_blocks=16 block_size=64 max_seqs=64 async_scheduling=off",
    "chips=4 tensor=2 data=2 max_seqs=4 topology=2x2",
    "chip=7x chips=2 kv=fp8 weights=fp8 math=fp8 prefix_cache=on",
};

Test(backends_tpu_sim_engine, every_request_gets_its_tokens_once) {
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        struct rig r;
        rig_open(&r, settings[i]);
        random_load(&r, i, 300, 40);
        check_conservation(&r, i, 300);
        struct rng g;
        rng_seed(&g, i);
        rig_close(&r);
    }
}

Test(backends_tpu_sim_engine, pressure_preempts_and_still_finishes) {
    struct rig r;
    rig_open(&r, settings[2]);
    random_load(&r, 5, 300, 60);
    check_conservation(&r, 5, 300);
    cr_assert(gt(i64, detail(&r, "counters", "preemptions"), 0));
    rig_close(&r);
}

Test(backends_tpu_sim_engine, equal_seeds_give_equal_logs) {
    struct rig r[2];
    for (int i = 0; i < 2; i++) {
        rig_open(&r[i], settings[2]);
        random_load(&r[i], 11, 200, 30);
    }
    cr_assert(eq(sz, r[0].log->n, r[1].log->n));
    for (size_t i = 0; i < r[0].log->n; i++) {
        const struct event *a = &r[0].log->e[i], *b = &r[1].log->e[i];
        cr_assert(a->t == b->t && a->kind == b->kind && a->request == b->request && a->a == b->a &&
                  a->b == b->b);
    }
    rig_close(&r[0]);
    rig_close(&r[1]);
}

Test(backends_tpu_sim_engine, first_come_first_served) {
    struct rig r;
    rig_open(&r, "chips=1 max_seqs=4 max_batched_tokens=256");
    for (uint64_t i = 0; i < 64; i++)
        submit(&r, plain(i, 300, 8));
    run_dry(&r);
    int64_t last = 0;
    for (uint64_t i = 0; i < 64; i++) {
        const struct event *first = find(r.log, EVENT_TOKENS, i);
        cr_assert(ge(i64, first->t, last), "request %d overtook", (int)i);
        last = first->t;
    }
    rig_close(&r);
}

/* ---- scheduling ---- */

Test(backends_tpu_sim_engine, a_long_prompt_is_prefilled_in_chunks) {
    struct rig r;
    rig_open(&r, "chips=1 max_batched_tokens=512");
    submit(&r, plain(0, 1500, 3));
    run_dry(&r);
    /* 512 + 512 + 476 tokens, then two decode steps; the first token comes with the last chunk */
    cr_assert(eq(i64, detail(&r, "counters", "steps"), 5));
    cr_assert(eq(i64, detail(&r, "counters", "scheduled_tokens"), 1502));
    rig_close(&r);
}

Test(backends_tpu_sim_engine, decodes_go_before_new_prompts) {
    struct rig r;
    rig_open(&r, "chips=1 max_batched_tokens=64 buckets=none");
    submit(&r, plain(0, 32, 20));
    struct completion c;
    while (find(r.log, EVENT_TOKENS, 0) == NULL) {
        cr_assert(eq(
            int, wait_until(&r, ops->next_ns(r.b) == INT64_MAX ? 1 : ops->next_ns(r.b), &c, 1), 0));
        event_sink_flush(&r.log->sink);
    }
    submit(&r, plain(1, 640, 1));
    run_dry(&r);
    /* the first token, one of the step in progress, then one in each of the 640/63 = 11 steps in
     * which request 1 takes the rest of the budget */
    const struct event *done1 = find(r.log, EVENT_DONE, 1);
    size_t before = 0;
    for (size_t i = 0; i < r.log->n; i++)
        before += r.log->e[i].kind == EVENT_TOKENS && r.log->e[i].request == 0 &&
                  r.log->e[i].t <= done1->t;
    cr_assert(eq(sz, before, 13));
    rig_close(&r);
}

Test(backends_tpu_sim_engine, more_in_flight_than_slots_waits) {
    struct rig r;
    rig_open(&r, "chips=1 max_seqs=2");
    for (uint64_t i = 0; i < 6; i++)
        submit(&r, plain(i, 16, 50));
    run_dry(&r);
    for (size_t i = 0; i < r.log->n; i++)
        if (r.log->e[i].kind == EVENT_ENGINE)
            cr_assert(le(i64, r.log->e[i].a, 2));
    cr_assert(gt(i64, find(r.log, EVENT_TOKENS, 2)->t, find(r.log, EVENT_DONE, 0)->t - 1));
    rig_close(&r);
}

Test(backends_tpu_sim_engine, a_deadline_does_not_disturb_the_step) {
    struct rig a, b;
    rig_open(&a, "chips=1");
    rig_open(&b, "chips=1");
    submit(&a, plain(0, 2000, 10));
    submit(&b, plain(0, 2000, 10));
    struct completion c;
    cr_assert(eq(int, wait_until(&a, INT64_MAX, &c, 1), 1));
    int64_t whole = c.time_ns;
    int n = 0;
    for (int64_t t = 100000; (n = wait_until(&b, t, &c, 1)) == 0; t += 100000)
        cr_assert(eq(i64, ops->now(b.b), t));
    cr_assert(eq(i64, c.time_ns, whole));
    /* idle: the clock goes where it is told; without a deadline it stays */
    cr_assert(eq(i64, ops->next_ns(b.b), INT64_MAX));
    cr_assert(eq(int, wait_until(&b, whole + 5, &c, 1), 0));
    cr_assert(eq(i64, ops->now(b.b), whole + 5));
    cr_assert(eq(int, wait_until(&b, INT64_MAX, &c, 1), 0));
    cr_assert(eq(i64, ops->now(b.b), whole + 5));
    cr_assert(eq(int, wait_until(&b, 3, &c, 1), 0));
    cr_assert(eq(i64, ops->now(b.b), whole + 5));
    rig_close(&a);
    rig_close(&b);
}

Test(backends_tpu_sim_engine, newcomers_join_at_the_next_step) {
    struct rig r;
    rig_open(&r, "chips=1");
    submit(&r, plain(0, 2000, 10));
    struct completion c;
    cr_assert(eq(int, wait_until(&r, 1000, &c, 1), 0));
    int64_t end = ops->next_ns(r.b);
    submit(&r, plain(1, 10, 1));
    cr_assert(eq(i64, ops->next_ns(r.b), end));
    run_dry(&r);
    cr_assert(eq(i64, find(r.log, EVENT_SENT, 1)->t, 1000));
    cr_assert(gt(i64, find(r.log, EVENT_TOKENS, 1)->t, end));
    rig_close(&r);
}

Test(backends_tpu_sim_engine, what_can_never_fit_is_rejected) {
    struct rig r;
    rig_open(&r, "chips=1 kv_blocks=10 block_size=16 max_context=4000");
    struct request q = plain(7, 150, 11); /* 161 tokens in 160 */
    struct completion c;
    cr_assert(eq(int, ops->submit(r.b, &q, &c, &r.e), SUBMIT_DONE));
    cr_assert(eq(int, c.fail_class, FAIL_REJECTED));
    submit(&r, plain(8, 150, 10));
    q = plain(9, UINT32_MAX, UINT32_MAX);
    cr_assert(eq(int, ops->submit(r.b, &q, &c, &r.e), SUBMIT_DONE));
    run_dry(&r);
    cr_assert(eq(i64, find(r.log, EVENT_FAIL, 7)->a, FAIL_REJECTED));
    cr_assert(eq(sz, count(r.log, EVENT_DONE, 8), 1));
    rig_close(&r);
}

Test(backends_tpu_sim_engine, empty_prompts_and_answers) {
    struct rig r;
    rig_open(&r, "chips=1");
    submit(&r, plain(0, 0, 2));
    submit(&r, plain(1, 5, 0));
    run_dry(&r);
    cr_assert(eq(sz, count(r.log, EVENT_TOKENS, 0), 2));
    cr_assert(eq(sz, count(r.log, EVENT_TOKENS, 1), 0));
    cr_assert(eq(i64, find(r.log, EVENT_DONE, 1)->a, 0));
    rig_close(&r);
}

Test(backends_tpu_sim_engine, cancelled_requests_fail_and_free_their_blocks) {
    struct rig r;
    rig_open(&r, "chips=1 max_seqs=2");
    for (uint64_t i = 0; i < 4; i++)
        submit(&r, plain(i, 100, 100));
    struct completion c[8];
    cr_assert(eq(int, wait_until(&r, 20000000, c, 8), 0));
    ops->cancel(r.b, 0);  /* in a step */
    ops->cancel(r.b, 3);  /* waiting */
    ops->cancel(r.b, 99); /* nobody */
    run_dry(&r);
    cr_assert(eq(i64, find(r.log, EVENT_FAIL, 0)->a, FAIL_CANCELLED));
    cr_assert(eq(i64, find(r.log, EVENT_FAIL, 3)->a, FAIL_CANCELLED));
    cr_assert(eq(i64, find(r.log, EVENT_FAIL, 3)->t, 20000000));
    cr_assert(eq(sz, count(r.log, EVENT_DONE, UINT64_MAX), 2));
    cr_assert(eq(i64, detail(&r, "counters", "free_blocks"), detail(&r, "engine", "kv_blocks")));
    rig_close(&r);
}

/* ---- prefix cache ---- */

static struct request turn(uint64_t id, uint64_t session, uint32_t isl, uint32_t osl,
                           uint32_t shared, bool last) {
    return (struct request){
        .id = id, .session = session, .isl = isl, .osl = osl, .shared = shared, .last_turn = last};
}

Test(backends_tpu_sim_engine, shared_context_is_not_computed_again) {
    struct rig on, off;
    rig_open(&on, "chips=1 block_size=64 prefix_cache=on");
    rig_open(&off, "chips=1 block_size=64");
    struct rig *both[] = {&on, &off};
    for (int i = 0; i < 2; i++) {
        submit(both[i], turn(0, 5, 1000, 24, 0, false));
        run_dry(both[i]);
        submit(both[i], turn(1, 5, 1524, 10, 1024, true));
        run_dry(both[i]);
    }
    /* 1000 prompt + 23 answer tokens have keys and values: 15 whole blocks of 64 */
    cr_assert(eq(i64, find(on.log, EVENT_USAGE, 1)->a, 960));
    cr_assert(eq(sz, count(on.log, EVENT_USAGE, 0), 0));
    cr_assert(eq(sz, count(off.log, EVENT_USAGE, UINT64_MAX), 0));
    int64_t saved =
        detail(&off, "counters", "scheduled_tokens") - detail(&on, "counters", "scheduled_tokens");
    cr_assert(eq(i64, saved, 960));
    cr_assert(lt(i64, find(on.log, EVENT_DONE, 1)->t, find(off.log, EVENT_DONE, 1)->t));
    cr_assert(eq(i64, detail(&on, "counters", "idle_blocks"), 0)); /* the last turn keeps nothing */
    cr_assert(eq(i64, detail(&on, "counters", "free_blocks"), detail(&on, "engine", "kv_blocks")));
    rig_close(&on);
    rig_close(&off);
}

Test(backends_tpu_sim_engine, idle_sessions_give_way_least_recent_first) {
    struct rig r;
    rig_open(&r, "chips=1 block_size=64 kv_blocks=40 prefix_cache=on");
    submit(&r, turn(0, 1, 640, 1, 0, false));
    run_dry(&r);
    submit(&r, turn(1, 2, 640, 1, 0, false));
    run_dry(&r);
    cr_assert(eq(i64, detail(&r, "counters", "idle_blocks"), 20));
    submit(&r, plain(2, 1600, 2)); /* 26 blocks: 20 free, 6 from session 1's tail */
    run_dry(&r);
    cr_assert(eq(i64, detail(&r, "counters", "idle_blocks"), 14));
    submit(&r, turn(3, 1, 900, 1, 641, true));
    run_dry(&r);
    submit(&r, turn(4, 2, 900, 1, 641, true));
    run_dry(&r);
    cr_assert(eq(i64, find(r.log, EVENT_USAGE, 3)->a, 4 * 64));
    cr_assert(eq(i64, find(r.log, EVENT_USAGE, 4)->a, 10 * 64));
    cr_assert(eq(i64, detail(&r, "counters", "free_blocks"), 40));
    rig_close(&r);
}

Test(backends_tpu_sim_engine, sessions_under_pressure_conserve_blocks) {
    struct rig r;
    rig_open(&r, "chips=1 block_size=32 kv_blocks=120 max_seqs=8 prefix_cache=on");
    struct rng g;
    rng_seed(&g, 3);
    enum { SESSIONS = 40, TURNS = 5 };
    uint32_t context[SESSIONS] = {0}, at[SESSIONS] = {0};
    uint64_t id = 0;
    int open = 0, left = SESSIONS * TURNS;
    bool busy[SESSIONS] = {0};
    uint64_t owner[SESSIONS * TURNS];
    struct completion c[8];
    while (left > 0) {
        for (int tries = 0; tries < 6 && open < 12; tries++) {
            uint64_t s = rng_below(&g, SESSIONS);
            if (busy[s] || at[s] == TURNS)
                continue;
            uint32_t isl = context[s] + 1 + (uint32_t)rng_below(&g, 300),
                     osl = 1 + (uint32_t)rng_below(&g, 20);
            submit(&r, turn(id, s, isl, osl, context[s], at[s] == TURNS - 1));
            owner[id++] = s;
            context[s] = isl + osl;
            busy[s] = true;
            open++;
        }
        int n = wait_until(&r, INT64_MAX, c, 8);
        for (int i = 0; i < n; i++) {
            busy[owner[c[i].request]] = false;
            at[owner[c[i].request]]++;
        }
        open -= n;
        left -= n;
    }
    event_sink_flush(&r.log->sink);
    cr_assert(eq(sz, count(r.log, EVENT_DONE, UINT64_MAX), SESSIONS * TURNS));
    cr_assert(gt(sz, count(r.log, EVENT_USAGE, UINT64_MAX), 0));
    cr_assert(gt(i64, detail(&r, "counters", "evictions"), 0));
    cr_assert(eq(i64, detail(&r, "counters", "free_blocks"), 120));
    rig_close(&r);
}

static struct request of_group(struct request r, uint64_t group, uint32_t common) {
    r.common_seed = group;
    r.common = common;
    return r;
}

/* Blocks of 64: a prefix of 650 tokens has 10 whole ones. */
Test(backends_tpu_sim_engine, a_group_s_prefix_is_computed_once) {
    struct rig r;
    rig_open(&r, "chips=1 block_size=64 kv_blocks=60 prefix_cache=on");
    submit(&r, of_group(plain(0, 1000, 8), 5, 650));
    run_dry(&r);
    cr_assert(eq(i64, detail(&r, "counters", "idle_blocks"), 10), "without a reader, but there");
    submit(&r, of_group(plain(1, 1000, 8), 5, 650));
    submit(&r, of_group(plain(2, 700, 8), 5, 650));
    submit(&r, of_group(plain(3, 1000, 8), 6, 650));  /* another group */
    submit(&r, of_group(plain(4, 1000, 8), 5, 0));    /* no group */
    submit(&r, of_group(plain(5, 600, 8), 5, 599));   /* cut to its prompt: as any other */
    run_dry(&r);
    cr_assert(eq(sz, count(r.log, EVENT_USAGE, UINT64_MAX), 2));
    cr_assert(eq(i64, find(r.log, EVENT_USAGE, 1)->a, 640));
    cr_assert(eq(i64, find(r.log, EVENT_USAGE, 2)->a, 640));
    cr_assert(eq(i64, detail(&r, "counters", "cached_tokens"), 1280));
    cr_assert(eq(i64, detail(&r, "counters", "idle_blocks"), 20));
    cr_assert(eq(i64, detail(&r, "counters", "free_blocks"), 40));

    /* 50 blocks: the group that was used longer ago gives way whole */
    submit(&r, of_group(plain(6, 700, 1), 5, 650));
    run_dry(&r);
    submit(&r, plain(7, 3100, 1)); /* 49 blocks */
    run_dry(&r);
    cr_assert(eq(i64, detail(&r, "counters", "idle_blocks"), 10));
    submit(&r, of_group(plain(8, 700, 1), 5, 650));
    submit(&r, of_group(plain(9, 700, 1), 6, 650));
    run_dry(&r);
    cr_assert(eq(i64, find(r.log, EVENT_USAGE, 8)->a, 640));
    cr_assert(eq(sz, count(r.log, EVENT_USAGE, 9), 0));
    rig_close(&r);
}

/* A session's own blocks stand behind its group's: both hit, 640 and 896 - 640. */
Test(backends_tpu_sim_engine, a_session_in_a_group_keeps_what_is_behind_the_prefix) {
    struct rig r;
    rig_open(&r, "chips=1 block_size=64 prefix_cache=on");
    submit(&r, of_group(turn(0, 1, 900, 20, 0, false), 5, 650));
    submit(&r, of_group(turn(1, 2, 900, 20, 0, false), 5, 650)); /* beside it: computes its own */
    run_dry(&r);
    submit(&r, of_group(turn(2, 1, 1000, 20, 920, true), 5, 650));
    submit(&r, of_group(turn(3, 2, 1000, 20, 920, true), 5, 650));
    submit(&r, of_group(turn(4, 3, 1000, 20, 0, true), 5, 650));
    run_dry(&r);
    cr_assert(eq(sz, count(r.log, EVENT_USAGE, 0), 0));
    cr_assert(eq(i64, find(r.log, EVENT_USAGE, 2)->a, 896)); /* 919 computed: 14 whole blocks */
    cr_assert(eq(i64, find(r.log, EVENT_USAGE, 3)->a, 896));
    cr_assert(eq(i64, find(r.log, EVENT_USAGE, 4)->a, 640));
    cr_assert(eq(i64, detail(&r, "counters", "idle_blocks"), 10));
    cr_assert(eq(i64, detail(&r, "counters", "free_blocks"), detail(&r, "engine", "kv_blocks") - 10));
    rig_close(&r);
}

/* Two branches of a session have a context each. */
Test(backends_tpu_sim_engine, branches_do_not_take_each_other_s_context) {
    struct rig r;
    rig_open(&r, "chips=1 block_size=64 prefix_cache=on");
    struct request other = turn(1, 1, 640, 10, 0, false);
    other.branch = 1;
    submit(&r, turn(0, 1, 1000, 24, 0, false));
    submit(&r, other);
    run_dry(&r);
    other = turn(3, 1, 700, 10, 650, true);
    other.branch = 1;
    submit(&r, turn(2, 1, 1524, 10, 1024, true));
    submit(&r, other);
    run_dry(&r);
    cr_assert(eq(i64, find(r.log, EVENT_USAGE, 2)->a, 960));
    cr_assert(eq(i64, find(r.log, EVENT_USAGE, 3)->a, 640));
    rig_close(&r);
}

Test(backends_tpu_sim_engine, groups_under_pressure_conserve_blocks) {
    struct rig r;
    rig_open(&r, "chips=1 block_size=32 kv_blocks=90 max_seqs=8 prefix_cache=on");
    struct rng g;
    rng_seed(&g, 9);
    enum { N = 400 };
    struct completion c[8];
    bool first[N] = {0};
    uint32_t context[N] = {0};
    int open = 0, done = 0;
    for (uint64_t id = 0; done < N;) {
        while (open < 12 && id < N) {
            /* an even id's session goes on with the next id, once it has ended */
            bool second = id % 2 && first[id - 1];
            if (id % 2 && !second)
                break;
            uint64_t session = id / 2;
            uint32_t before = second ? context[id - 1] : 0;
            uint32_t isl = (second ? before + 1 : 330) + (uint32_t)rng_below(&g, 400),
                     osl = 1 + (uint32_t)rng_below(&g, 20);
            submit(&r, of_group(turn(id, session, isl, osl, before, second), session % 5, 300));
            context[id++] = isl + osl;
            open++;
        }
        int n = wait_until(&r, INT64_MAX, c, 8);
        for (int i = 0; i < n; i++)
            first[c[i].request] = true;
        open -= n;
        done += n;
    }
    event_sink_flush(&r.log->sink);
    cr_assert(eq(sz, count(r.log, EVENT_DONE, UINT64_MAX), N));
    cr_assert(gt(sz, count(r.log, EVENT_USAGE, UINT64_MAX), N / 4));
    cr_assert(gt(i64, detail(&r, "counters", "evictions"), 0));
    cr_assert(eq(i64, detail(&r, "counters", "free_blocks") + detail(&r, "counters", "idle_blocks"), 90));
    cr_assert(eq(i64, detail(&r, "counters", "idle_blocks") % 9, 0), "groups of 300 / 32 blocks");
    rig_close(&r);
}

/* ---- opening ---- */

Test(backends_tpu_sim_engine, what_does_not_fit_says_how_many_chips_would) {
    struct rig r;
    cr_assert(eq(int, rig_try(&r, "llama3.1-70b", "chip=v6e chips=2"), ASSAY_EINPUT));
    cr_assert(ne(ptr, strstr(r.e.text, "GiB short"), NULL), "%s", r.e.text);
    cr_assert(ne(ptr, strstr(r.e.text, "8 chips would fit"), NULL), "%s", r.e.text);
    rig_close(&r);
    cr_assert(eq(int, rig_try(&r, "llama3.1-70b", "chip=v6e chips=8"), 0), "%s", r.e.text);
    rig_close(&r);
}

Test(backends_tpu_sim_engine, splits_that_do_not_divide_are_refused) {
    static const char *const bad[] = {
        "chips=3",         "chips=64 topology=8x8", "chips=4 tensor=2",
        "chips=4 data=3",  "chips=8 topology=2x3",  "chip.hbm_gbps=0",
        "chips=4 tensor=3"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct rig r;
        int rc = rig_try(&r, "llama3.1-8b", bad[i]);
        cr_assert(rc == ASSAY_EINPUT || rc == ASSAY_EUSAGE, "%s gave %d", bad[i], rc);
        cr_assert(ne(str, r.e.text, (char *)""));
        rig_close(&r);
    }
}

Test(backends_tpu_sim_engine, describes_itself) {
    struct rig r;
    cr_assert(eq(int, rig_try(&r, "llama3.1-70b", "chip=v6e chips=8 chip.hbm_gbps=1700"), 0), "%s",
              r.e.text);
    struct backend_info info;
    cr_assert(eq(int, ops->describe(r.b, &info, &r.e), 0));
    cr_assert(eq(str, info.chip, "v6e+hbm_gbps=1700"));
    cr_assert(eq(str, info.model_id, "sim/v6e+hbm_gbps=1700-8/llama3.1-70b"));
    cr_assert(eq(str, info.settings, ""));
    cr_assert(eq(int, info.result_class, CLASS_SIMULATED));
    cr_assert(eq(i64, info.chips, 8));
    cr_assert(eq(dbl, info.peak_flops_per_s, 918e12));
    cr_assert(eq(dbl, info.flops_per_token, 2.0 * (double)model_active_parameters(&r.w.model)));
    json_t *hbm = json_object_get(
        json_object_get(json_object_get(info.details, "chip"), "parameters"), "hbm_gbps");
    cr_assert(eq(dbl, json_number_value(json_object_get(hbm, "value")), 1700.0));
    json_decref(info.details);
    submit(&r, plain(0, 1000, 20));
    run_dry(&r);
    struct backend_share s[16];
    int n = ops->shares(r.b, s, 16);
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += s[i].share;
    cr_assert(epsilon_eq(dbl, sum, 1.0, 1e-9));
    rig_close(&r);
}
