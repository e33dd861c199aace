/* The pacing thread: owns the backend, ties its virtual clock to the wall, and writes each event's
 * bytes to the client the moment it is due. It parses nothing and knows HTTP only as chunk framing.
 *
 * Virtual time v is due at wall time t0 + v / speed. The loop sleeps until the backend's next event
 * or a message from the HTTP thread, advances the backend to the virtual now, and routes what it
 * recorded. Events stamped later than the virtual now (a backend may overshoot) are kept until they
 * are due. */
#include "backends/serve/loop_internal.h"

#include "harness/core/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    WAIT_BATCH = 256,    /* completions and epoll events taken at once */
    STEPS_PER_TURN = 64, /* batches of completions before sockets are looked at again */
};
#define STOP_POLL_NS INT64_C(100000000) /* how often *stop is looked at */
#define DRAIN_NS INT64_C(1000000000)

const int64_t serve_lateness_bound_ns[LATENESS_BUCKETS - 1] = {
    10000, 50000, 100000, 200000, 500000, 1000000, 2000000, 5000000, 10000000,
};

/* ---- mailbox ---- */

bool mailbox_post(struct serve_mailbox *m, struct serve_stream *s, enum stream_message message,
                  bool suspend) {
    bool wake = false, taken = false;
    pthread_mutex_lock(&m->lock);
    if (!m->closing || message == MESSAGE_CLOSED) {
        taken = true;
        if (suspend)
            MHD_suspend_connection(s->connection);
        s->messages |= (unsigned)message;
        if (!s->queued) {
            s->queued = true;
            s->next = NULL;
            wake = !m->head;
            if (m->tail)
                m->tail->next = s;
            else
                m->head = s;
            m->tail = s;
        }
    }
    pthread_mutex_unlock(&m->lock);
    if (wake)
        eventfd_write(m->event_fd, 1);
    return taken;
}

static struct serve_stream *mailbox_take(struct serve_mailbox *m) {
    pthread_mutex_lock(&m->lock);
    struct serve_stream *head = m->head;
    m->head = m->tail = NULL;
    pthread_mutex_unlock(&m->lock);
    return head;
}

/* The messages of one taken stream; afterwards it can be posted again. */
static unsigned mailbox_open(struct serve_mailbox *m, struct serve_stream *s) {
    pthread_mutex_lock(&m->lock);
    unsigned messages = s->messages;
    s->messages = 0;
    s->queued = false;
    pthread_mutex_unlock(&m->lock);
    return messages;
}

/* ---- events of the backend ---- */

static int64_t wall_of(const struct serve_loop *l, int64_t virtual_ns) {
    return l->t0_ns + (l->speed == 1.0 ? virtual_ns : (int64_t)((double)virtual_ns / l->speed));
}

static int64_t virtual_of(const struct serve_loop *l, int64_t wall_ns) {
    int64_t d = wall_ns - l->t0_ns;
    return l->speed == 1.0 ? d : (int64_t)((double)d * l->speed);
}

static void late(struct serve_loop *l, int64_t due_virtual_ns) {
    int64_t ns = clock_now_ns() - wall_of(l, due_virtual_ns);
    int i = 0;
    if (ns < 0)
        ns = 0;
    while (i < LATENESS_BUCKETS - 1 && ns > serve_lateness_bound_ns[i])
        i++;
    counter_add(&l->counters->lateness[i], 1);
    counter_add(&l->counters->lateness_sum_ns, ns);
    if (ns > atomic_load_explicit(&l->counters->lateness_max_ns, memory_order_relaxed))
        atomic_store_explicit(&l->counters->lateness_max_ns, ns, memory_order_relaxed);
}

static void route(struct serve_loop *l, int64_t time_ns, int kind, uint64_t request, int64_t a) {
    struct serve_stream *s = stream_find(l, request);
    if (!s)
        return; /* dropped before, or none of ours */
    switch (kind) {
    case EVENT_TOKENS:
        if (!s->first_ns)
            s->first_ns = clock_now_ns();
        stream_tokens(l, s, a);
        late(l, time_ns);
        break;
    case EVENT_USAGE:
        s->cached_tokens = a;
        break;
    case EVENT_DONE:
        stream_done(l, s, a);
        break;
    case EVENT_FAIL:
        stream_fail(l, s, a);
        break;
    default:
        break;
    }
}

static void keep(struct serve_loop *l, struct later ev) {
    if (l->later_n == l->later_cap) {
        size_t cap = l->later_cap ? 2 * l->later_cap : 4096;
        struct later *p = calloc(cap, sizeof *p);
        if (!p) {
            l->overrun = true;
            return;
        }
        for (size_t i = 0; i < l->later_n; i++)
            p[i] = l->later[(l->later_first + i) & (l->later_cap - 1)];
        free(l->later);
        l->later = p;
        l->later_cap = cap;
        l->later_first = 0;
    }
    l->later[(l->later_first + l->later_n++) & (l->later_cap - 1)] = ev;
}

static void release_due(struct serve_loop *l) {
    while (l->later_n) {
        struct later ev = l->later[l->later_first];
        if (ev.time_ns > l->virtual_ns)
            return;
        l->later_first = (l->later_first + 1) & (l->later_cap - 1);
        l->later_n--;
        route(l, ev.time_ns, ev.kind, ev.request, ev.a);
    }
}

/* The sink's consumer: queues what concerns streams and gives the same block back. Nothing is
 * routed from here, since it may run inside the backend and routing may call the backend's cancel.
 */
static struct event_block *consume(void *ctx, struct event_block *k) {
    struct serve_loop *l = ctx;
    for (uint32_t i = 0; i < k->n; i++)
        if (k->kind[i] >= EVENT_TOKENS && k->kind[i] <= EVENT_USAGE)
            keep(l, (struct later){k->time_ns[i], k->request[i], k->a[i], k->kind[i]});
    k->n = 0;
    k->sequence++;
    return k;
}

/* Streams what the backend recorded and is due. */
static int drain_sink(struct serve_loop *l, struct err *e) {
    event_sink_flush(&l->sink);
    release_due(l);
    return l->overrun
               ? err_set(e, ASSAY_ENOMEM, "out of memory for events of backend '%s'", l->ops->name)
               : 0;
}

/* Brings the backend to the virtual now; false: more is due, look at the sockets first. */
static int advance(struct serve_loop *l, bool *caught_up, struct err *e) {
    struct completion c[WAIT_BATCH];
    *caught_up = false;
    for (int i = 0; i < STEPS_PER_TURN; i++) {
        int n = 0;
        int rc = l->ops->wait(l->backend, l->virtual_ns, c, WAIT_BATCH, &n, l->o->stop, e);
        if (rc || (rc = drain_sink(l, e)))
            return rc;
        if (n == 0) {
            if (l->ops->now(l->backend) < l->virtual_ns)
                return err_set(e, ASSAY_EENV, "backend '%s' did not reach the time it waited for",
                               l->ops->name);
            *caught_up = true;
            return 0;
        }
    }
    return 0;
}

static int submit(struct serve_loop *l, struct serve_stream *s, bool *busy, struct err *e) {
    struct request r = {
        .id = l->next_id,
        .session = s->request.session,
        .turn = s->request.shared > 0,
        .last_turn = s->request.session == REQUEST_NO_SESSION,
        .shared = (uint32_t)s->request.shared,
        .isl = (uint32_t)s->request.isl,
        .osl = (uint32_t)s->request.osl,
        .arrival_ns = -1,
        .content_seed = s->serial,
    };
    struct completion c;
    s->id = r.id;
    stream_enter(l, s); /* before: a full block may be routed from inside submit */
    s->submitted = true;
    int rc = l->ops->submit(l->backend, &r, &c, e);
    if (rc < 0)
        return rc;
    *busy = rc == SUBMIT_BUSY;
    if (*busy) {
        stream_forget(l, s);
        s->submitted = false;
        return 0;
    }
    l->next_id++;
    s->is_waiting = false;
    TAILQ_REMOVE(&l->waiting, s, waiting);
    rc = drain_sink(l, e);
    if (rc)
        return rc;
    /* accepted, unless the backend has already refused it (on_fail answered then) */
    if (s->request.stream && s->suspended && !s->failed)
        stream_give_back(l, s, ACTION_STREAM);
    return 0;
}

/* ---- messages of the HTTP thread ---- */

static void on_message(struct serve_loop *l, struct serve_stream *s, unsigned messages) {
    if (messages & MESSAGE_NEW) {
        TAILQ_INSERT_TAIL(&l->all, s, all);
        TAILQ_INSERT_TAIL(&l->waiting, s, waiting);
        l->count++;
        s->is_waiting = s->suspended = true;
        counter_add(&l->counters->requests, 1);
        counter_add(&l->counters->prompt_tokens, s->request.isl);
        stream_init(s);
        if (s->request.stream && stream_head_build(s, l->id))
            stream_drop(l, s);
        else
            stream_watch(l, s, false);
    }
    if (messages & MESSAGE_READY) {
        s->suspended = s->direct = true;
        if (s->dead)
            stream_give_back(l, s, ACTION_CLOSE);
        else
            stream_flush(l, s);
    }
    if (messages & MESSAGE_CLOSED) {
        s->suspended = s->direct = false;
        stream_unwatch(l, s);
        if (!s->ended && !s->dead)
            stream_client_left(l, s);
        if (l->o->log)
            fprintf(stderr,
                    "assay: info: serve request=%" PRIu64 " endpoint=%s stream=%d isl=%" PRId64
                    " osl=%" PRId64 " tokens=%" PRId64 " outcome=%s first_us=%" PRId64
                    " total_us=%" PRId64 "\n",
                    s->serial, s->request.endpoint == SERVE_CHAT ? "chat" : "completions",
                    s->request.stream, s->request.isl, s->request.osl, s->tokens,
                    s->dead     ? "cut"
                    : s->failed ? "error"
                                : "done",
                    s->first_ns ? (s->first_ns - s->received_ns) / 1000 : -1,
                    (clock_now_ns() - s->received_ns) / 1000);
        TAILQ_REMOVE(&l->all, s, all);
        l->count--;
        stream_free(s);
    }
}

static void take_messages(struct serve_loop *l) {
    for (struct serve_stream *s = mailbox_take(l->mailbox), *next; s; s = next) {
        next = s->next;
        on_message(l, s, mailbox_open(l->mailbox, s));
    }
}

/* ---- the loop ---- */

static int64_t sleep_ns(const struct serve_loop *l, bool caught_up) {
    int64_t next = INT64_MAX, now = clock_now_ns();
    if (!caught_up)
        return 0;
    if (l->later_n)
        next = l->later[l->later_first].time_ns;
    int64_t own = l->ops->next_ns(l->backend);
    if (own < next)
        next = own;
    int64_t ns = STOP_POLL_NS;
    if (next < virtual_of(l, now + ns))
        ns = wall_of(l, next) - now;
    return ns < 0 ? 0 : ns;
}

static void look_at_sockets(struct serve_loop *l, int64_t timeout_ns) {
    struct epoll_event ev[WAIT_BATCH];
    struct timespec ts = {.tv_sec = timeout_ns / NS_PER_S, .tv_nsec = timeout_ns % NS_PER_S};
    int n = epoll_pwait2(l->epoll_fd, ev, WAIT_BATCH, &ts, NULL);
    if (n < 0 && errno == ENOSYS) /* before Linux 5.11: milliseconds, rounded down, then spin */
        n = epoll_wait(l->epoll_fd, ev, WAIT_BATCH, (int)(timeout_ns / NS_PER_MS));
    for (int i = 0; i < n; i++) {
        struct serve_stream *s = ev[i].data.ptr;
        if (!s) {
            eventfd_t v;
            eventfd_read(l->mailbox->event_fd, &v);
        } else if (ev[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
            stream_client_left(l, s);
            stream_unwatch(l, s);
        } else if (ev[i].events & EPOLLOUT && s->direct) {
            stream_flush(l, s);
        }
    }
}

int loop_run(struct serve_loop *l, const struct serve_identity *id, struct err *e) {
    bool caught_up = true;
    l->id = id;
    prctl(PR_SET_TIMERSLACK, 1UL); /* this thread sleeps to the nanosecond, not to 50 us */
    l->t0_ns = clock_now_ns() - l->ops->now(l->backend);
    while (!__atomic_load_n(l->o->stop, __ATOMIC_RELAXED)) { /* a handler or a thread may set it */
        look_at_sockets(l, sleep_ns(l, caught_up));
        int64_t v = virtual_of(l, clock_now_ns());
        if (v > l->virtual_ns)
            l->virtual_ns = v;
        release_due(l);
        int rc = advance(l, &caught_up, e);
        if (rc == ASSAY_EINTERRUPTED)
            break;
        if (rc)
            return rc;
        take_messages(l);
        bool busy = false;
        struct serve_stream *s;
        while (caught_up && !busy && (s = TAILQ_FIRST(&l->waiting))) {
            rc = submit(l, s, &busy, e);
            if (rc)
                return rc;
        }
        atomic_store_explicit(&l->counters->running, (int64_t)l->in_backend, memory_order_relaxed);
        atomic_store_explicit(&l->counters->waiting, l->count - (int64_t)l->in_backend,
                              memory_order_relaxed);
    }
    return 0;
}

void loop_drain(struct serve_loop *l) {
    struct serve_error stopping;
    struct serve_stream *s, *next;
    serve_error_set(&stopping, 503, NULL, "the server is shutting down");
    pthread_mutex_lock(&l->mailbox->lock);
    l->mailbox->closing = true;
    pthread_mutex_unlock(&l->mailbox->lock);
    take_messages(l);
    for (s = TAILQ_FIRST(&l->all); s; s = next) {
        next = TAILQ_NEXT(s, all);
        if (s->is_waiting)
            TAILQ_REMOVE(&l->waiting, s, waiting);
        s->is_waiting = false;
        if (s->submitted && !s->ended)
            stream_ended(l, s), s->failed = true, s->error = stopping;
        if (!s->suspended)
            continue; /* its content callback finds the mailbox closed */
        if (!s->direct) {
            s->error = stopping;
            stream_give_back(l, s, ACTION_ERROR);
            continue;
        }
        stream_flush(l, s);
        if (s->suspended)
            stream_give_back(l, s, ACTION_CLOSE); /* a client that does not read */
    }
    for (int64_t end = clock_now_ns() + DRAIN_NS; l->count && clock_now_ns() < end;) {
        look_at_sockets(l, 5 * NS_PER_MS);
        take_messages(l);
    }
}

int loop_open(const struct serve_options *o, int64_t max_connections, struct serve_mailbox *mailbox,
              struct serve_counters *counters, struct serve_loop **out, struct backend_info *info,
              struct err *e) {
    int rc = 0;
    struct serve_loop *l = calloc(1, sizeof *l);
    *out = l;
    if (!l)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    l->o = o;
    l->ops = o->ops;
    l->mailbox = mailbox;
    l->counters = counters;
    l->speed = o->speed > 0 ? o->speed : 1.0;
    l->backlog_bytes = o->backlog_bytes > 0 ? o->backlog_bytes : 64 * 1024 * 1024;
    TAILQ_INIT(&l->all);
    TAILQ_INIT(&l->waiting);
    size_t slots = 64;
    while (slots < 2 * (size_t)max_connections)
        slots *= 2;
    l->slot_mask = slots - 1;
    l->slot = calloc(slots, sizeof *l->slot);
    l->block = calloc(1, sizeof *l->block);
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (!l->slot || !l->block)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};
    if (l->epoll_fd < 0 || epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, mailbox->event_fd, &ev))
        return err_errno(e, ASSAY_EENV, errno, "cannot set up epoll");
    l->sink = (struct event_sink){.block = l->block, .flush = consume, .ctx = l};
    struct backend_open_args args = {
        .workload = o->workload,
        .options = o->backend_options,
        .sink = &l->sink,
        .shards = 1,
        .max_in_flight = max_connections,
    };
    if ((rc = l->ops->open(&args, &l->backend, e)) || (rc = l->ops->describe(l->backend, info, e)))
        return rc;
    if (!info->virtual_clock)
        return err_set(e, ASSAY_EUSAGE,
                       "cannot serve backend '%s': its clock is real, serving needs a virtual one",
                       l->ops->name);
    return 0;
}

void loop_close(struct serve_loop *l) {
    if (!l)
        return;
    take_messages(l);
    for (struct serve_stream *s = TAILQ_FIRST(&l->all), *next; s; s = next) {
        next = TAILQ_NEXT(s, all);
        stream_free(s);
    }
    l->ops->close(l->backend);
    if (l->epoll_fd >= 0)
        close(l->epoll_fd);
    free(l->later);
    free(l->slot);
    free(l->block);
    free(l);
}
