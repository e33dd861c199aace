/* The pacing thread's state, shared by loop.c (when) and streams.c (what is written). */
#ifndef BACKENDS_SERVE_LOOP_INTERNAL_H
#define BACKENDS_SERVE_LOOP_INTERNAL_H

#include "backends/serve/serve_internal.h"

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

static inline void counter_add(_Atomic int64_t *c, int64_t n) {
    atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

/* Streams that the backend has, by request id. */
struct serve_stream *stream_find(const struct serve_loop *l, uint64_t id);
void stream_enter(struct serve_loop *l, struct serve_stream *s);
void stream_forget(struct serve_loop *l, const struct serve_stream *s);

void stream_init(struct serve_stream *s);
/* Notices when the client leaves, and with out when its socket takes bytes again. */
void stream_watch(struct serve_loop *l, struct serve_stream *s, bool out);
void stream_unwatch(struct serve_loop *l, struct serve_stream *s);
void stream_give_back(struct serve_loop *l, struct serve_stream *s, enum stream_action action);
void stream_drop(struct serve_loop *l, struct serve_stream *s);
void stream_client_left(struct serve_loop *l, struct serve_stream *s);
void stream_flush(struct serve_loop *l, struct serve_stream *s);

/* What the backend said, when it is due. tokens of stream_done: all of the answer's. */
void stream_tokens(struct serve_loop *l, struct serve_stream *s, int64_t n);
void stream_done(struct serve_loop *l, struct serve_stream *s, int64_t tokens);
void stream_fail(struct serve_loop *l, struct serve_stream *s, int64_t fail);
void stream_ended(struct serve_loop *l, struct serve_stream *s);

#endif
