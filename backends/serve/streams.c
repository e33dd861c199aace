/* One stream's life on the pacing thread: found by its request, fed with token events, written to
 * its socket, handed back to the HTTP thread. When to do so is loop.c's. */
#include "backends/serve/loop_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum {
    EVENT_TOKENS_MAX = 16384, /* more tokens at once are split, so that a chunk stays small */
    REFILL_BYTES = 64 * 1024, /* of a backlog made into text at a time */
    OUT_MAX_BYTES = REFILL_BYTES + EVENT_TOKENS_MAX * SERVE_PIECE_BYTES + 16384,
};

/* ---- streams by request id ---- */

static size_t slot_of(const struct serve_loop *l, uint64_t id) {
    return (size_t)(id * UINT64_C(0x9e3779b97f4a7c15) >> 20) & l->slot_mask;
}

struct serve_stream *stream_find(const struct serve_loop *l, uint64_t id) {
    for (size_t i = slot_of(l, id); l->slot[i]; i = (i + 1) & l->slot_mask)
        if (l->slot[i]->id == id)
            return l->slot[i];
    return NULL;
}

void stream_enter(struct serve_loop *l, struct serve_stream *s) {
    size_t i = slot_of(l, s->id);
    while (l->slot[i])
        i = (i + 1) & l->slot_mask;
    l->slot[i] = s;
    l->in_backend++;
}

void stream_forget(struct serve_loop *l, const struct serve_stream *s) {
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

void stream_watch(struct serve_loop *l, struct serve_stream *s, bool out) {
    struct epoll_event ev = {.events = EPOLLRDHUP | (out ? EPOLLOUT : 0u), .data.ptr = s};
    if (epoll_ctl(l->epoll_fd, s->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, s->fd, &ev) == 0)
        s->watched = true;
    s->want_out = out;
}

void stream_unwatch(struct serve_loop *l, struct serve_stream *s) {
    if (s->watched)
        epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, s->fd, &(struct epoll_event){0});
    s->watched = false;
}

/* Gives the connection back to the HTTP thread, which finds in s->action what to do. */
void stream_give_back(struct serve_loop *l, struct serve_stream *s, enum stream_action action) {
    if (action != ACTION_STREAM)
        stream_unwatch(l, s);
    s->action = action;
    s->suspended = s->direct = false;
    MHD_resume_connection(s->connection);
}

/* Nobody wants this stream any more. */
void stream_drop(struct serve_loop *l, struct serve_stream *s) {
    if (s->is_waiting) {
        TAILQ_REMOVE(&l->waiting, s, waiting);
        s->is_waiting = false;
    }
    if (s->submitted && !s->ended) {
        stream_forget(l, s);
        s->ended = true;
        if (l->ops->cancel)
            l->ops->cancel(l->backend, s->id);
    }
    s->dead = true;
    if (s->suspended)
        stream_give_back(l, s, ACTION_CLOSE);
}

void stream_client_left(struct serve_loop *l, struct serve_stream *s) {
    if (s->dead)
        return;
    counter_add(&l->counters->disconnected, 1);
    stream_drop(l, s);
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
                stream_drop(l, s);
                return;
            }
            s->run = p;
            s->runs_cap = cap;
        }
        s->run[s->nruns++] = (struct serve_run){.tokens = tokens, .events = 1};
    }
    s->owed_bytes += put_token_event_bytes(s, tokens);
    if (s->owed_bytes > l->backlog_bytes) {
        counter_add(&l->counters->dropped, 1);
        stream_drop(l, s);
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
void stream_flush(struct serve_loop *l, struct serve_stream *s) {
    do {
        while (s->out_sent < s->out.n) {
            ssize_t n = send(s->fd, s->out.p + s->out_sent, s->out.n - s->out_sent,
                             MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
                if (!s->want_out)
                    stream_watch(l, s, true);
                return;
            }
            if (n < 0) {
                stream_client_left(l, s);
                return;
            }
            s->out_sent += (size_t)n;
        }
    } while (refill(s));
    if (s->out.failed) {
        stream_drop(l, s);
        return;
    }
    if (s->want_out)
        stream_watch(l, s, false);
    if (s->ended)
        stream_give_back(l, s, ACTION_END);
}

static bool idle(const struct serve_stream *s) {
    return s->direct && s->out_sent == s->out.n && s->first_run == s->nruns;
}

/* A token event is due: straight to the socket when nothing is before it. */
void stream_tokens(struct serve_loop *l, struct serve_stream *s, int64_t n) {
    if (n < 1)
        n = 1;
    if (n > s->request.osl - s->tokens) /* never more than was asked */
        n = s->request.osl - s->tokens;
    if (n < 1)
        return;
    s->tokens += n;
    counter_add(&l->counters->token_events, 1);
    counter_add(&l->counters->tokens, n);
    if (!s->request.stream)
        return;
    for (; n > EVENT_TOKENS_MAX && !s->dead; n -= EVENT_TOKENS_MAX)
        owe(l, s, EVENT_TOKENS_MAX);
    if (s->dead)
        return;
    if (!idle(s)) {
        owe(l, s, n);
        if (s->direct && !s->dead && !s->want_out)
            stream_flush(l, s);
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
        s->out_sent = sent > 0 ? (size_t)sent : 0, stream_watch(l, s, true);
    else
        stream_client_left(l, s);
}

void stream_ended(struct serve_loop *l, struct serve_stream *s) {
    stream_forget(l, s);
    s->ended = true;
}

void stream_done(struct serve_loop *l, struct serve_stream *s, int64_t tokens) {
    if (tokens > s->tokens)
        stream_tokens(l, s, tokens - s->tokens);
    if (s->dead)
        return;
    stream_ended(l, s);
    counter_add(&l->counters->completed, 1);
    if (!s->request.stream)
        stream_give_back(l, s, ACTION_BODY);
    else if (idle(s))
        stream_flush(l, s);
}

void stream_fail(struct serve_loop *l, struct serve_stream *s, int64_t fail) {
    bool rejected = fail == FAIL_REJECTED;
    stream_ended(l, s);
    s->failed = true;
    counter_add(rejected ? &l->counters->rejected : &l->counters->failed, 1);
    if (rejected)
        serve_error_set(&s->error, 400, NULL,
                        "the request can never be served here: %" PRId64
                        " tokens of input and %" PRId64
                        " of output do not fit the model's context or the KV cache",
                        s->request.isl, s->request.osl);
    else
        serve_error_set(&s->error, 500, NULL, "the backend failed the request: %s",
                        fail_class_name((int)fail));
    if (s->suspended && !s->direct) /* nothing was sent yet */
        stream_give_back(l, s, ACTION_ERROR);
    else if (idle(s))
        stream_flush(l, s);
}

void stream_init(struct serve_stream *s) {
    buf_init(&s->out, OUT_MAX_BYTES);
}

void stream_free(struct serve_stream *s) {
    buf_release(&s->out);
    free(s->run);
    free(s->head);
    free(s);
}
