/* The pacing thread: owns the backend, ties its virtual clock to the wall, and writes each event's bytes
 * to the client the moment it is due. It parses nothing and knows HTTP only as chunk framing.
 *
 * Virtual time v is due at wall time t0 + v / speed. The loop sleeps until the backend's next event or
 * a message from the HTTP thread, advances the backend to the virtual now, and routes what it recorded.
 * Events stamped later than the virtual now (a backend may overshoot) are kept until they are due. */
#include "backends/serve/serve_internal.h"

#include "harness/core/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    WAIT_BATCH = 256,          /* completions and epoll events taken at once */
    STEPS_PER_TURN = 64,       /* batches of completions before sockets are looked at again */
    EVENT_TOKENS_MAX = 16384,  /* more tokens at once are split, so that a chunk stays small */
    REFILL_BYTES = 64 * 1024,  /* of a backlog made into text at a time */
    OUT_MAX_BYTES = REFILL_BYTES + EVENT_TOKENS_MAX * SERVE_PIECE_BYTES + 16384,
};
#define STOP_POLL_NS INT64_C(100000000) /* how often *stop is looked at */
#define DRAIN_NS INT64_C(1000000000)

const int64_t serve_lateness_bound_ns[LATENESS_BUCKETS - 1] = {
    10000, 50000, 100000, 200000, 500000, 1000000, 2000000, 5000000, 10000000,
};

TAILQ_HEAD(stream_list, serve_stream);

struct later {
    int64_t time_ns;
    uint64_t request;
    int64_t a;
    uint8_t kind;
};

struct serve_loop {
    const struct serve_options *o;
    const struct serve_identity *id;
    struct serve_mailbox *mailbox;
    struct serve_counters *counters;
    double speed;
    int64_t backlog_bytes;

    struct backend *backend;
    const struct backend_ops *ops;
    struct event_sink sink;
    struct event_block *block;
    int64_t t0_ns;      /* wall time of virtual 0 */
    int64_t virtual_ns; /* events up to here are due */

    struct stream_list all, waiting; /* waiting: not yet taken by the backend, in order of arrival */
    int64_t count;
    uint64_t next_id;

    struct serve_stream **slot; /* open addressing by request id */
    size_t slot_mask, in_backend;

    struct later *later; /* FIFO of events that are not due yet */
    size_t later_first, later_n, later_cap;

    bool overrun;

    int epoll_fd;
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

/* ---- streams by request id ---- */

static size_t slot_of(const struct serve_loop *l, uint64_t id) {
    return (size_t)(id * UINT64_C(0x9e3779b97f4a7c15) >> 20) & l->slot_mask;
}

static struct serve_stream *find(const struct serve_loop *l, uint64_t id) {
    for (size_t i = slot_of(l, id); l->slot[i]; i = (i + 1) & l->slot_mask)
        if (l->slot[i]->id == id)
            return l->slot[i];
    return NULL;
}

static void insert(struct serve_loop *l, struct serve_stream *s) {
    size_t i = slot_of(l, s->id);
    while (l->slot[i])
        i = (i + 1) & l->slot_mask;
    l->slot[i] = s;
    l->in_backend++;
}

static void forget(struct serve_loop *l, const struct serve_stream *s) {
    size_t i = slot_of(l, s->id);
    while (l->slot[i] != s) {
        if (!l->slot[i])
            return;
        i = (i + 1) & l->slot_mask;
    }
    l->in_backend--;
    /* close the gap: move back whatever probed past it */
    for (size_t j = i;;) {
        l->slot[i] = NULL;
        do {
            j = (j + 1) & l->slot_mask;
            if (!l->slot[j])
                return;
        } while (((j - slot_of(l, l->slot[j]->id)) & l->slot_mask) < ((j - i) & l->slot_mask));
        l->slot[i] = l->slot[j];
        i = j;
    }
}

/* ---- one stream's life ---- */

static void count_add(_Atomic int64_t *c, int64_t n) {
    atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

static void watch(struct serve_loop *l, struct serve_stream *s, bool out) {
    struct epoll_event ev = {.events = EPOLLRDHUP | (out ? EPOLLOUT : 0u), .data.ptr = s};
    if (epoll_ctl(l->epoll_fd, s->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, s->fd, &ev) == 0)
        s->watched = true;
    s->want_out = out;
}

static void unwatch(struct serve_loop *l, struct serve_stream *s) {
    if (s->watched)
        epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, s->fd, &(struct epoll_event){0});
    s->watched = false;
}

/* Gives the connection back to the HTTP thread, which finds in s->action what to do. */
static void give_back(struct serve_loop *l, struct serve_stream *s, enum stream_action action) {
    if (action != ACTION_STREAM)
        unwatch(l, s);
    s->action = action;
    s->suspended = s->direct = false;
    MHD_resume_connection(s->connection);
}

/* Nobody wants this stream any more. */
static void drop(struct serve_loop *l, struct serve_stream *s) {
    if (s->is_waiting) {
        TAILQ_REMOVE(&l->waiting, s, waiting);
        s->is_waiting = false;
    }
    if (s->submitted && !s->ended) {
        forget(l, s);
        s->ended = true;
        if (l->ops->cancel)
            l->ops->cancel(l->backend, s->id);
    }
    s->dead = true;
    if (s->suspended)
        give_back(l, s, ACTION_CLOSE);
}

static void client_left(struct serve_loop *l, struct serve_stream *s) {
    if (s->dead)
        return;
    count_add(&l->counters->disconnected, 1);
    drop(l, s);
}

/* Remembers events the socket cannot take now: as counts, made into bytes when there is room. */
static void owe(struct serve_loop *l, struct serve_stream *s, int64_t tokens) {
    struct serve_run *last = s->nruns ? &s->run[s->nruns - 1] : NULL;
    if (last && last->tokens == tokens) {
        last->events++;
    } else {
        if (s->nruns == s->runs_cap) {
            size_t cap = s->runs_cap ? 2 * s->runs_cap : 4;
            struct serve_run *p = reallocarray(s->run, cap, sizeof *p);
            if (!p) {
                drop(l, s);
                return;
            }
            s->run = p;
            s->runs_cap = cap;
        }
        s->run[s->nruns++] = (struct serve_run){.tokens = tokens, .events = 1};
    }
    s->owed_bytes += put_token_event_bytes(s, tokens);
    if (s->owed_bytes > l->backlog_bytes) {
        count_add(&l->counters->dropped, 1);
        drop(l, s);
    }
}

static void put_role_once(struct buf *b, struct serve_stream *s) {
    if (!s->role_sent && s->request.endpoint == SERVE_CHAT)
        put_role_event(b, s);
    s->role_sent = true;
}

/* Turns what is owed into bytes, up to about REFILL_BYTES; false when nothing is owed. */
static bool refill(struct serve_stream *s) {
    buf_clear(&s->out);
    s->out_sent = 0;
    while (s->first_run < s->nruns && s->out.n < REFILL_BYTES) {
        struct serve_run *r = &s->run[s->first_run];
        put_role_once(&s->out, s);
        put_token_event(&s->out, s, s->tokens_out, r->tokens);
        s->tokens_out += r->tokens;
        s->owed_bytes -= put_token_event_bytes(s, r->tokens);
        if (--r->events == 0)
            s->first_run++;
    }
    if (s->first_run == s->nruns) {
        s->first_run = s->nruns = 0;
        if (s->ended && !s->tail_out) {
            if (s->failed)
                put_error_event(&s->out, s, &s->error);
            else
                put_finish_events(&s->out, s);
            s->tail_out = true;
        }
    }
    return s->out.n > 0;
}

/* Hands the socket all it takes; gives the connection back when the stream is complete. */
static void flush(struct serve_loop *l, struct serve_stream *s) {
    do {
        while (s->out_sent < s->out.n) {
            ssize_t n = send(s->fd, s->out.p + s->out_sent, s->out.n - s->out_sent,
                             MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
                if (!s->want_out)
                    watch(l, s, true);
                return;
            }
            if (n < 0) {
                client_left(l, s);
                return;
            }
            s->out_sent += (size_t)n;
        }
    } while (refill(s));
    if (s->out.failed) {
        drop(l, s);
        return;
    }
    if (s->want_out)
        watch(l, s, false);
    if (s->ended)
        give_back(l, s, ACTION_END);
}

static bool idle(const struct serve_stream *s) {
    return s->direct && s->out_sent == s->out.n && s->first_run == s->nruns;
}

/* A token event is due: straight to the socket when nothing is before it. */
static void on_tokens(struct serve_loop *l, struct serve_stream *s, int64_t n) {
    if (n < 1)
        n = 1;
    if (n > s->request.osl - s->tokens) /* never more than was asked */
        n = s->request.osl - s->tokens;
    if (n < 1)
        return;
    s->tokens += n;
    count_add(&l->counters->token_events, 1);
    count_add(&l->counters->tokens, n);
    if (!s->request.stream)
        return;
    for (; n > EVENT_TOKENS_MAX && !s->dead; n -= EVENT_TOKENS_MAX)
        owe(l, s, EVENT_TOKENS_MAX);
    if (s->dead)
        return;
    if (!idle(s)) {
        owe(l, s, n);
        if (s->direct && !s->dead && !s->want_out)
            flush(l, s);
        return;
    }
    buf_clear(&s->out);
    s->out_sent = 0;
    put_role_once(&s->out, s);
    put_token_event(&s->out, s, s->tokens_out, n);
    s->tokens_out += n;
    ssize_t sent = send(s->fd, s->out.p, s->out.n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == (ssize_t)s->out.n)
        buf_clear(&s->out);
    else if (sent >= 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        s->out_sent = sent > 0 ? (size_t)sent : 0, watch(l, s, true);
    else
        client_left(l, s);
}

static void ended(struct serve_loop *l, struct serve_stream *s) {
    forget(l, s);
    s->ended = true;
}

static void on_done(struct serve_loop *l, struct serve_stream *s, int64_t tokens) {
    if (tokens > s->tokens)
        on_tokens(l, s, tokens - s->tokens);
    if (s->dead)
        return;
    ended(l, s);
    count_add(&l->counters->completed, 1);
    if (!s->request.stream)
        give_back(l, s, ACTION_BODY);
    else if (idle(s))
        flush(l, s);
}

static void on_fail(struct serve_loop *l, struct serve_stream *s, int64_t fail) {
    bool rejected = fail == FAIL_REJECTED;
    ended(l, s);
    s->failed = true;
    count_add(rejected ? &l->counters->rejected : &l->counters->failed, 1);
    if (rejected)
        serve_error_set(&s->error, 400, NULL,
                        "the request can never be served here: %" PRId64 " tokens of input and %" PRId64
                        " of output do not fit the model's context or the KV cache",
                        s->request.isl, s->request.osl);
    else
        serve_error_set(&s->error, 500, NULL, "the backend failed the request: %s",
                        fail_class_name((int)fail));
    if (s->suspended && !s->direct) /* nothing was sent yet */
        give_back(l, s, ACTION_ERROR);
    else if (idle(s))
        flush(l, s);
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
    count_add(&l->counters->lateness[i], 1);
    count_add(&l->counters->lateness_sum_ns, ns);
    if (ns > atomic_load_explicit(&l->counters->lateness_max_ns, memory_order_relaxed))
        atomic_store_explicit(&l->counters->lateness_max_ns, ns, memory_order_relaxed);
}

static void route(struct serve_loop *l, int64_t time_ns, int kind, uint64_t request, int64_t a) {
    struct serve_stream *s = find(l, request);
    if (!s)
        return; /* dropped before, or none of ours */
    switch (kind) {
    case EVENT_TOKENS:
        if (!s->first_ns)
            s->first_ns = clock_now_ns();
        on_tokens(l, s, a);
        late(l, time_ns);
        break;
    case EVENT_USAGE:
        s->cached_tokens = a;
        break;
    case EVENT_DONE:
        on_done(l, s, a);
        break;
    case EVENT_FAIL:
        on_fail(l, s, a);
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

/* The sink's consumer: queues what concerns streams and gives the same block back. Nothing is routed
 * from here, since it may run inside the backend and routing may call the backend's cancel. */
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
    return l->overrun ? err_set(e, ASSAY_ENOMEM, "out of memory for events of backend '%s'",
                                l->ops->name)
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
    insert(l, s); /* before: a full block may be routed from inside submit */
    s->submitted = true;
    int rc = l->ops->submit(l->backend, &r, &c, e);
    if (rc < 0)
        return rc;
    *busy = rc == SUBMIT_BUSY;
    if (*busy) {
        forget(l, s);
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
        give_back(l, s, ACTION_STREAM);
    return 0;
}

/* ---- messages of the HTTP thread ---- */

static void on_message(struct serve_loop *l, struct serve_stream *s, unsigned messages) {
    if (messages & MESSAGE_NEW) {
        TAILQ_INSERT_TAIL(&l->all, s, all);
        TAILQ_INSERT_TAIL(&l->waiting, s, waiting);
        l->count++;
        s->is_waiting = s->suspended = true;
        count_add(&l->counters->requests, 1);
        count_add(&l->counters->prompt_tokens, s->request.isl);
        buf_init(&s->out, OUT_MAX_BYTES);
        if (s->request.stream && stream_head_build(s, l->id))
            drop(l, s);
        else
            watch(l, s, false);
    }
    if (messages & MESSAGE_READY) {
        s->suspended = s->direct = true;
        if (s->dead)
            give_back(l, s, ACTION_CLOSE);
        else
            flush(l, s);
    }
    if (messages & MESSAGE_CLOSED) {
        s->suspended = s->direct = false;
        unwatch(l, s);
        if (!s->ended && !s->dead)
            client_left(l, s);
        if (l->o->log)
            fprintf(stderr,
                    "assay: info: serve request=%" PRIu64 " endpoint=%s stream=%d isl=%" PRId64
                    " osl=%" PRId64 " tokens=%" PRId64 " outcome=%s first_us=%" PRId64
                    " total_us=%" PRId64 "\n",
                    s->serial, s->request.endpoint == SERVE_CHAT ? "chat" : "completions",
                    s->request.stream, s->request.isl, s->request.osl, s->tokens,
                    s->dead ? "cut" : s->failed ? "error" : "done",
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

void stream_free(struct serve_stream *s) {
    buf_release(&s->out);
    free(s->run);
    free(s->head);
    free(s);
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
            client_left(l, s);
            unwatch(l, s);
        } else if (ev[i].events & EPOLLOUT && s->direct) {
            flush(l, s);
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
            ended(l, s), s->failed = true, s->error = stopping;
        if (!s->suspended)
            continue; /* its content callback finds the mailbox closed */
        if (!s->direct) {
            s->error = stopping;
            give_back(l, s, ACTION_ERROR);
            continue;
        }
        flush(l, s);
        if (s->suspended)
            give_back(l, s, ACTION_CLOSE); /* a client that does not read */
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
