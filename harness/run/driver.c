/* Issuing: one loop over three sources of due work (new starts by the pattern, next turns of sessions,
 * a request that a busy backend refused), and the windows around it. */
#include "harness/run/driver.h"

#include "harness/core/clock.h"
#include "harness/run/inflight.h"
#include "harness/run/pattern.h"
#include "workloads/plan.h"

#include <stdlib.h>

enum { COMPLETIONS_MAX = 256, TICK_EVERY = 256 };
#define TICK_NS (50 * NS_PER_MS)

struct driver {
    const struct driver_args *a;
    const struct backend_ops *ops;
    struct backend *b;
    struct plan *plan;
    struct arrivals arrivals;
    bool closed_loop;
    int64_t start_ns;             /* zero of the pattern */

    /* new starts */
    struct request next;          /* fetched from the plan, not yet issued */
    int64_t next_ns;              /* its intended time (open loop) */
    bool have_next, exhausted;
    int64_t *slots;               /* ring of free slots' times (closed loop) */
    int64_t nslots, slot_head, slot_cap;

    struct inflight flight;       /* by id, for sessions and latency so far */
    struct turn_heap turns;       /* next turns by time */
    struct request held;          /* refused by a busy backend */
    int64_t held_ns;
    bool have_held;

    /* windows */
    bool window_open, draining_warmup;
    int64_t warmup_left;          /* sessions: requests still to issue before the window */
    int64_t begin_ns, end_ns, last_done_ns;

    int64_t issued, done, failed, in_flight;
    int64_t machine_ns;           /* of the last tick */
    unsigned spins;
};

void driver_shared_init(struct driver_shared *s, uint32_t shards) {
    *s = (struct driver_shared){.shards = shards, .max_ns = INT64_MIN};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->cond, NULL);
}

void driver_shared_release(struct driver_shared *s) {
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->cond);
}

/* All shards meet; each gets the largest value that any brought. -1 when a shard has failed. */
static int shared_max(struct driver_shared *s, int64_t *v) {
    pthread_mutex_lock(&s->lock);
    uint64_t mine = s->generation;
    if (*v > s->max_ns)
        s->max_ns = *v;
    if (++s->waiting == s->shards) {
        s->result_ns = s->max_ns;
        s->max_ns = INT64_MIN;
        s->waiting = 0;
        s->generation++;
        pthread_cond_broadcast(&s->cond);
    }
    while (mine == s->generation && !s->failed)
        pthread_cond_wait(&s->cond, &s->lock);
    int rc = s->failed ? -1 : 0;
    *v = s->result_ns;
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static void shared_fail(struct driver_shared *s) {
    pthread_mutex_lock(&s->lock);
    s->failed = true;
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->lock);
}

static int64_t now(struct driver *d) {
    return d->ops->now(d->b);
}

static void mark(struct driver *d, enum event_mark m, int64_t boundary_ns) {
    if (d->a->shard != 0)
        return;
    int64_t t = now(d);
    if (t < d->a->sink->last_ns)
        t = d->a->sink->last_ns;
    event_put(d->a->sink, t, EVENT_MARK, m, boundary_ns, 0);
}

static void open_window(struct driver *d, int64_t begin_ns) {
    const struct workload *w = d->a->workload;
    d->window_open = true;
    d->begin_ns = begin_ns;
    d->end_ns = w->duration_ns ? begin_ns + w->duration_ns : INT64_MAX;
    mark(d, MARK_WINDOW_BEGIN, begin_ns);
}

/* Flushes a block that is older than EVENT_FLUSH_NS, publishes counters, lets the caller look in. */
static int tick(struct driver *d, bool force, struct err *e) {
    if (!force && ++d->spins % TICK_EVERY)
        return 0;
    int64_t t = clock_now_ns();
    if (t - d->machine_ns < TICK_NS)
        return 0;
    d->machine_ns = t;
    event_sink_flush(d->a->sink);
    struct driver_progress *p = d->a->progress;
    atomic_store_explicit(&p->issued, d->issued, memory_order_relaxed);
    atomic_store_explicit(&p->done, d->done, memory_order_relaxed);
    atomic_store_explicit(&p->failed, d->failed, memory_order_relaxed);
    atomic_store_explicit(&p->in_flight, d->in_flight, memory_order_relaxed);
    return d->a->tick ? d->a->tick(d->a->tick_ctx, e) : 0;
}

/* ---- sources of work ---- */

static int64_t pattern_time(struct driver *d, const struct request *r) {
    const struct pattern *p = &d->a->workload->pattern;
    if (p->kind == PATTERN_OFFLINE)
        return d->start_ns;
    if (p->kind == PATTERN_TRACE)
        return d->start_ns + arrival_clip((double)r->arrival_ns / p->value);
    uint64_t index = r->session == REQUEST_NO_SESSION ? r->id : r->session;
    int64_t t = 0, warmup = d->a->workload->warmup_requests;
    while (d->arrivals.next <= index) {
        t = arrivals_next(&d->arrivals);
        /* the window's begin is an arrival that may belong to another shard */
        if (!d->window_open && warmup && d->arrivals.next == (uint64_t)warmup + 1)
            d->begin_ns = d->start_ns + t;
    }
    return d->start_ns + t;
}

/* Intended time of the next new start; INT64_MAX when there is none now. */
static int next_start(struct driver *d, int64_t *t, struct err *e) {
    *t = INT64_MAX;
    if (d->closed_loop && d->nslots == 0)
        return 0;
    if (!d->have_next && !d->exhausted) {
        bool end = false;
        int rc = plan_next(d->plan, &d->next, &end, e);
        if (rc)
            return rc;
        d->exhausted = end;
        d->have_next = !end;
        if (d->have_next && !d->closed_loop)
            d->next_ns = pattern_time(d, &d->next);
    }
    if (!d->have_next)
        return 0;
    if (d->draining_warmup && d->next.id >= (uint64_t)d->a->workload->warmup_requests)
        return 0;
    int64_t at = d->closed_loop ? d->slots[d->slot_head] : d->next_ns;
    if (d->end_ns == INT64_MAX && at - d->start_ns >= ARRIVAL_NEVER)
        return err_set(e, ASSAY_EINPUT,
                       "at /pattern: request %llu would be issued more than 146 years after the start",
                       (unsigned long long)d->next.id);
    if (at < d->end_ns)
        *t = at;
    return 0;
}

static void free_slot(struct driver *d, int64_t t) {
    if (!d->closed_loop)
        return;
    d->slots[(d->slot_head + d->nslots++) % d->slot_cap] = t;
}

/* ---- issue and completion ---- */

static int complete(struct driver *d, const struct completion *c, const struct request *r,
                    int64_t intended_ns, struct err *e) {
    d->done++;
    if (c->time_ns > d->last_done_ns)
        d->last_done_ns = c->time_ns;
    if (c->fail_class)
        d->failed++;
    else if (d->a->latency)
        sketch_add(d->a->latency, c->time_ns - intended_ns);
    bool over;
    int rc = plan_done(d->plan, r, c->time_ns, c->output_tokens, c->fail_class != 0, &over, e);
    struct turn t;
    while (!rc && plan_take(d->plan, &t.request, &t.at_ns))
        if (turn_heap_push(&d->turns, &t))
            rc = err_set(e, ASSAY_ENOMEM, "out of memory");
    /* nothing follows a failure, in no branch of the session */
    while (!rc && c->fail_class && !over && turn_heap_take_session(&d->turns, r->session, &t))
        plan_withdraw(d->plan, &t.request, &over);
    if (!rc && over)
        free_slot(d, c->time_ns);
    return rc;
}

static int issue(struct driver *d, const struct request *r, int64_t intended_ns, struct err *e) {
    struct event_sink *s = d->a->sink;
    if (!d->window_open && !d->draining_warmup) {
        const struct workload *w = d->a->workload;
        bool by_count = w->warmup_requests > 0;
        bool first = by_count ? (workload_has_sessions(w) ? d->warmup_left-- == 0
                                                 : r->id >= (uint64_t)w->warmup_requests)
                              : intended_ns >= d->begin_ns;
        if (first)
            open_window(d, by_count && (workload_has_sessions(w) || d->begin_ns == INT64_MAX) ? intended_ns
                                                                                    : d->begin_ns);
    }
    int64_t t = now(d); /* after the mark, which has a time of its own */
    uint32_t events = r->session == REQUEST_NO_SESSION ? 1 : 2;
    event_sink_reserve(s, events);
    if (events == 2)
        event_put(s, t, EVENT_SESSION, r->id, (int64_t)r->session, r->turn);
    event_put(s, t, EVENT_ISSUE, r->id, t - intended_ns, r->isl);
    struct completion c;
    int rc = d->ops->submit(d->b, r, &c, e);
    if (rc < 0)
        return rc;
    if (rc == SUBMIT_BUSY) {
        event_sink_rollback(s, events);
        d->held = *r;
        d->held_ns = intended_ns;
        d->have_held = true;
        return 0;
    }
    d->issued++;
    if (rc == SUBMIT_DONE)
        return complete(d, &c, r, intended_ns, e);
    d->in_flight++;
    if (inflight_put(&d->flight, r, intended_ns))
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    return 0;
}

/* Issues everything that is due; *next_ns receives when the next thing will be. */
static int issue_due(struct driver *d, int64_t *next_ns, struct err *e) {
    int64_t t = now(d);
    for (;;) {
        int rc = tick(d, false, e);
        if (rc)
            return rc;
        if (*d->a->stop)
            return err_set(e, ASSAY_EINTERRUPTED, "interrupted");
        if (d->have_held) {
            d->have_held = false;
            struct request r = d->held;
            if ((rc = issue(d, &r, d->held_ns, e)))
                return rc;
            if (d->have_held) {
                *next_ns = INT64_MAX; /* still busy: only a completion helps */
                return 0;
            }
            continue;
        }
        int64_t start, turn = turn_heap_top(&d->turns);
        if ((rc = next_start(d, &start, e)))
            return rc;
        if (turn >= d->end_ns)
            turn = INT64_MAX;
        *next_ns = start < turn ? start : turn;
        if (*next_ns > t)
            return 0;
        if (turn <= start) {
            struct turn x = turn_heap_pop(&d->turns);
            rc = issue(d, &x.request, x.at_ns, e);
        } else {
            d->have_next = false;
            if (d->closed_loop) {
                d->slot_head = (d->slot_head + 1) % d->slot_cap;
                d->nslots--;
            }
            struct request r = d->next;
            rc = issue(d, &r, start, e);
        }
        if (rc)
            return rc;
    }
}

static int take_completions(struct driver *d, const struct completion *c, int n, struct err *e) {
    for (int i = 0; i < n; i++) {
        struct request r;
        int64_t intended_ns;
        if (inflight_take(&d->flight, c[i].request, &r, &intended_ns))
            return err_set(e, ASSAY_EENV, "backend '%s' completed request %llu, which is not in flight",
                           d->ops->name, (unsigned long long)c[i].request);
        d->in_flight--;
        int rc = complete(d, &c[i], &r, intended_ns, e);
        if (rc)
            return rc;
    }
    return 0;
}

/* Issues and waits until nothing more is to be issued and nothing is in flight. */
static int run_phase(struct driver *d, struct err *e) {
    struct completion c[COMPLETIONS_MAX];
    int64_t drain_ns = -1;
    for (;;) {
        int64_t until = INT64_MAX;
        int n = 0, rc = issue_due(d, &until, e);
        if (rc)
            return rc;
        bool issuing = until != INT64_MAX || d->have_held;
        if (!issuing && d->in_flight == 0)
            return 0;
        if (!d->a->virtual_clock) {
            int64_t t = now(d);
            if (!issuing && drain_ns < 0)
                drain_ns = t;
            if (!issuing && d->a->grace_ns && t - drain_ns > d->a->grace_ns)
                return 0;
            if (until > t + TICK_NS)
                until = t + TICK_NS; /* to flush the log and show progress in time */
        }
        rc = d->ops->wait(d->b, until, c, COMPLETIONS_MAX, &n, d->a->stop, e);
        if (rc == 0)
            rc = take_completions(d, c, n, e);
        if (rc == 0)
            rc = tick(d, !d->a->virtual_clock, e);
        if (rc)
            return rc;
        if (n == 0 && until == INT64_MAX && d->a->virtual_clock)
            return err_set(e, ASSAY_EENV,
                           "backend '%s' has nothing to do with %lld requests in flight",
                           d->ops->name, (long long)d->in_flight);
    }
}

/* ---- the run ---- */

static int setup(struct driver *d, const struct driver_args *a, struct err *e) {
    const struct workload *w = a->workload;
    *d = (struct driver){.a = a, .ops = a->backend->ops, .b = a->backend, .end_ns = INT64_MAX,
                         .begin_ns = INT64_MAX, .machine_ns = clock_now_ns()};
    int64_t slots = pattern_shard_concurrency(&w->pattern, a->shard, a->shared->shards);
    d->closed_loop = slots != INT64_MAX;
    if (d->closed_loop) {
        d->slot_cap = slots ? slots : 1;
        d->slots = calloc((size_t)d->slot_cap, sizeof *d->slots);
        if (!d->slots)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        d->nslots = slots;
    }
    if (inflight_init(&d->flight, d->closed_loop ? (size_t)slots : 1024))
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    arrivals_init(&d->arrivals, &w->pattern, w->seed);
    return plan_open(w, a->shard, a->shared->shards, &d->plan, e);
}

static void set_slots(struct driver *d, int64_t t) {
    for (int64_t i = 0; i < d->nslots; i++)
        d->slots[(d->slot_head + i) % d->slot_cap] = t;
}

/* Shards agree on a time and wait for it. */
static int meet(struct driver *d, int64_t *t, struct err *e) {
    if (shared_max(d->a->shared, t))
        return err_set(e, ASSAY_EENV, "another thread of the run failed");
    while (now(d) < *t) {
        struct completion c[1];
        int n, rc = d->ops->wait(d->b, *t, c, 1, &n, d->a->stop, e);
        if (rc || (rc = take_completions(d, c, n, e)))
            return rc;
    }
    return 0;
}

static int serve_load(struct driver *d, struct err *e) {
    const struct workload *w = d->a->workload;
    int64_t t = now(d);
    int rc = meet(d, &t, e);
    if (rc)
        return rc;
    mark(d, MARK_RUN_BEGIN, t);
    d->start_ns = t;
    set_slots(d, t);
    bool open_loop = !d->closed_loop && w->pattern.kind != PATTERN_OFFLINE;
    if (w->warmup_requests && !open_loop && !workload_has_sessions(w)) {
        d->draining_warmup = true;
        if ((rc = run_phase(d, e)))
            return rc;
        d->draining_warmup = false;
        t = now(d);
        if ((rc = meet(d, &t, e)))
            return rc;
        d->start_ns = t;
        if (d->have_next && !d->closed_loop)
            d->next_ns = t;
        set_slots(d, t);
        open_window(d, t);
    } else if (w->warmup_requests) {
        d->warmup_left = w->warmup_requests / d->a->shared->shards;
    } else if (w->warmup_ns) {
        d->begin_ns = t + w->warmup_ns;
    } else {
        open_window(d, t);
    }
    if ((rc = run_phase(d, e)))
        return rc;
    t = d->last_done_ns > d->start_ns ? d->last_done_ns : d->start_ns;
    if (shared_max(d->a->shared, &t))
        return err_set(e, ASSAY_EENV, "another thread of the run failed");
    if (d->window_open)
        mark(d, MARK_WINDOW_END, d->end_ns != INT64_MAX && d->end_ns < t ? d->end_ns : t);
    mark(d, MARK_RUN_END, now(d));
    return 0;
}

static int train_load(struct driver *d, struct err *e) {
    const struct workload *w = d->a->workload;
    enum { CHUNK = 16 };
    mark(d, MARK_RUN_BEGIN, now(d));
    int64_t warmup = w->warmup_requests, total = warmup + w->steps;
    for (int64_t i = 0; i < total;) {
        if (i == warmup)
            open_window(d, now(d));
        int64_t stop = i < warmup ? warmup : total, n = stop - i < CHUNK ? stop - i : CHUNK;
        int rc = d->ops->train(d->b, (uint64_t)i, n, e);
        if (rc)
            return rc;
        i += n;
        d->issued = d->done = i;
        if ((rc = tick(d, true, e)))
            return rc;
        if (*d->a->stop)
            return err_set(e, ASSAY_EINTERRUPTED, "interrupted");
    }
    mark(d, MARK_WINDOW_END, now(d));
    mark(d, MARK_RUN_END, now(d));
    return 0;
}

int driver_run(const struct driver_args *a, struct err *e) {
    struct driver d;
    int rc = setup(&d, a, e);
    if (!rc)
        rc = a->workload->kind == WORKLOAD_TRAINING ? train_load(&d, e) : serve_load(&d, e);
    if (rc) {
        if (rc == ASSAY_EINTERRUPTED)
            mark(&d, MARK_INTERRUPTED, now(&d));
        shared_fail(a->shared);
    }
    atomic_store_explicit(&a->progress->issued, d.issued, memory_order_relaxed);
    atomic_store_explicit(&a->progress->done, d.done, memory_order_relaxed);
    atomic_store_explicit(&a->progress->failed, d.failed, memory_order_relaxed);
    atomic_store_explicit(&a->progress->in_flight, d.in_flight, memory_order_relaxed);
    plan_close(d.plan);
    inflight_release(&d.flight);
    turn_heap_release(&d.turns);
    free(d.slots);
    return rc;
}
