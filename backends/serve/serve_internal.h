/* Shared by the files of this room alone: what a request asks, what a stream is, who may touch what.
 *
 * Two threads. The HTTP thread (libmicrohttpd's) accepts, parses and answers; the pacing thread owns
 * the backend and the streams. A request's connection is *suspended* while the pacing thread has it:
 * libmicrohttpd then neither reads nor writes the socket, and the pacing thread writes each event's
 * bytes to it itself. Going through libmicrohttpd for each token (resume, wake, content callback)
 * would cost a thread switch a token and, in libmicrohttpd 0.9.75, a walk over all suspended
 * connections at each wake-up; the direct write costs one send(). Start and end of a response
 * (headers, last chunk, keep-alive) stay libmicrohttpd's. */
#ifndef BACKENDS_SERVE_INTERNAL_H
#define BACKENDS_SERVE_INTERNAL_H

#include "backends/serve/serve.h"
#include "harness/core/buf.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

struct serve_mailbox;

enum {
    SERVE_BODY_MAX_BYTES = 32 * 1024 * 1024,
    SERVE_JSON_DEPTH_MAX = 64,
    SERVE_MODEL_MAX = 128,
    SERVE_PIECE_BYTES = 4,                  /* of text a token, in and out */
    SERVE_OSL_MAX = 1 << 20,                /* tokens, when the model's context is not known */
    SERVE_DEFAULT_COMPLETION_TOKENS = 16,   /* the API's documented default of max_tokens */
    SERVE_DEFAULT_CHAT_TOKENS = 256,        /* filler never meets an end-of-sequence token */
};

/* ---- request.c: the body, read without building a tree ---- */

enum serve_endpoint { SERVE_COMPLETIONS, SERVE_CHAT };

struct serve_request {
    enum serve_endpoint endpoint;
    bool stream, include_usage, continuous_usage, ignore_eos;
    int64_t isl, osl;
    int64_t min_tokens;
    uint64_t session; /* REQUEST_NO_SESSION when conversations are not looked for */
    int64_t shared;   /* leading input tokens known from the session's last turn */
    char model[SERVE_MODEL_MAX]; /* "" when absent */
};

/* An answer other than 200, in the shape vLLM gives it. */
struct serve_error {
    int status;
    const char *type;  /* "BadRequestError", … */
    char param[64];    /* "" = null */
    char message[256];
};

struct serve_limits {
    int64_t max_context;         /* tokens in and out; 0 = unknown */
    const char *model_id;        /* as served */
    const char *model_name;      /* also accepted as "model"; "" = none */
    struct sessions *sessions;   /* NULL = conversations are not looked for */
};

/* Returns 0, or -1 with *err filled. Allocates nothing. Records the prompt in limits->sessions. */
int serve_request_parse(const char *body, size_t n, enum serve_endpoint endpoint,
                        const struct serve_limits *limits, struct serve_request *out,
                        struct serve_error *err) MUST_USE;
int serve_error_set(struct serve_error *err, int status, const char *param, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

/* ---- sessions.c: conversations found by their prompts; the HTTP thread's ---- */

struct sessions;
int sessions_new(struct sessions **out, struct err *e) MUST_USE;
void sessions_free(struct sessions *t);

/* A prompt while it is read. */
struct prompt_hash {
    struct sessions *sessions;
    size_t token_bytes, fill;
    uint64_t state, word;
    int64_t words;
    bool found; /* the rest describes the longest earlier prompt that this one begins with */
    uint64_t session;
    int64_t isl, shared;
};
/* token_bytes: SERVE_PIECE_BYTES for text, 8 for token ids. */
void prompt_hash_begin(struct prompt_hash *p, struct sessions *t, size_t token_bytes);
void prompt_hash_add(struct prompt_hash *p, const char *bytes, size_t n);
/* Sets r->session and r->shared from the prompt, and remembers the prompt and the answer to come. */
void sessions_settle(struct prompt_hash *p, struct serve_request *r);

/* ---- response.c: bytes out ---- */

void serve_piece(int64_t i, char piece[SERVE_PIECE_BYTES]); /* the text that stands for token i */

/* What does not change while the server runs; all texts JSON-escaped where they go into JSON. */
struct serve_identity {
    char class_name[16];
    char chip_header[192];      /* X-Assay-Chip: v6e;chips=8;sha256=… */
    char fingerprint[160];      /* assay-simulated/v6e-8, escaped */
    char model_raw[SERVE_MODEL_MAX];
    char model[2 * SERVE_MODEL_MAX];  /* escaped */
    char model_name[MODEL_NAME_MAX];
    int64_t max_context;
    int64_t started_s;
    const char *backend;
};
int serve_identity_fill(struct serve_identity *id, const struct serve_options *o,
                        const struct backend_info *info, struct err *e) MUST_USE;

enum stream_action {
    ACTION_NONE,
    ACTION_STREAM, /* accepted: send the headers, then suspend again */
    ACTION_END,    /* the body is out: end it, keep the connection */
    ACTION_BODY,   /* not streamed: build and send the whole answer */
    ACTION_ERROR,  /* nothing was sent: answer with s->error */
    ACTION_CLOSE,  /* cut the connection */
};

enum stream_message { MESSAGE_NEW = 1, MESSAGE_READY = 2, MESSAGE_CLOSED = 4 };

/* So many events of so many tokens each, due but not yet made into bytes. */
struct serve_run {
    int64_t tokens, events;
};

struct serve_stream {
    /* set by the HTTP thread before MESSAGE_NEW, constant afterwards */
    struct MHD_Connection *connection;
    int fd;
    bool chunked; /* false for HTTP/1.0: the body ends with the connection */
    struct serve_request request;
    int64_t received_ns, created_s;
    uint64_t serial; /* makes the response's id */
    struct serve_mailbox *mailbox;

    /* owned by the HTTP thread */
    bool headers_queued, closing_sent;

    /* written by the pacing thread while it has the connection, read by the HTTP thread afterwards */
    enum stream_action action;
    struct serve_error error;
    int64_t tokens;        /* output tokens so far */
    int64_t cached_tokens; /* -1 = the backend did not say */

    /* owned by the pacing thread */
    TAILQ_ENTRY(serve_stream) all, waiting;
    uint64_t id;        /* of the backend's request */
    bool suspended;     /* we have the connection */
    bool direct;        /* headers are out: we may write */
    bool submitted, is_waiting, ended, dead, closed, failed, want_out, watched;
    bool role_sent, tail_out;
    int64_t first_ns;
    int64_t tokens_out; /* of tokens, those made into bytes */
    struct serve_run *run; /* token events owed: first_run..nruns-1 */
    size_t first_run, nruns, runs_cap;
    int64_t owed_bytes;
    struct buf out;     /* framed bytes being sent; those before out_sent are gone */
    size_t out_sent;
    char *head;         /* constant first part of each event of this stream */
    size_t head_bytes;

    /* the mailbox's, under its lock */
    struct serve_stream *next;
    unsigned messages;
    bool queued;
};

/* Each appends one complete event (framed as a chunk when s->chunked) to b. */
int stream_head_build(struct serve_stream *s, const struct serve_identity *id);
void put_role_event(struct buf *b, const struct serve_stream *s);
int64_t put_token_event_bytes(const struct serve_stream *s, int64_t n); /* about what comes next */
void put_token_event(struct buf *b, const struct serve_stream *s, int64_t first, int64_t n);
void put_finish_events(struct buf *b, const struct serve_stream *s); /* finish, usage, [DONE] */
void put_error_event(struct buf *b, const struct serve_stream *s, const struct serve_error *error);

/* Whole bodies. */
void put_full_body(struct buf *b, const struct serve_stream *s, const struct serve_identity *id);
void put_error_body(struct buf *b, const struct serve_error *error);
void put_models_body(struct buf *b, const struct serve_identity *id);
void put_json_string(struct buf *b, const char *s); /* with quotes; bad UTF-8 becomes '?' */

/* ---- loop.c: the paced backend ---- */

enum { LATENESS_BUCKETS = 10 };
extern const int64_t serve_lateness_bound_ns[LATENESS_BUCKETS - 1]; /* the last bucket is open */

/* Counters: written by the pacing thread, read by GET /metrics; relaxed order, each stands alone. */
struct serve_counters {
    _Atomic int64_t requests, completed, failed, rejected, disconnected, dropped, token_events, tokens;
    _Atomic int64_t prompt_tokens, running, waiting;
    _Atomic int64_t lateness_max_ns, lateness_sum_ns, lateness[LATENESS_BUCKETS];
};

/* From the HTTP thread to the pacing thread. Bounded by the number of connections: a stream is in it at
 * most once, linked through itself, so posting allocates nothing. */
struct serve_mailbox {
    pthread_mutex_t lock;
    struct serve_stream *head, *tail;
    bool closing; /* only MESSAGE_CLOSED is taken */
    int event_fd;
};
/* False when the server is closing (the message was not taken). With suspend, the stream's connection is
 * suspended first, under the lock, so that a closing server never leaves a connection suspended. */
bool mailbox_post(struct serve_mailbox *m, struct serve_stream *s, enum stream_message message,
                  bool suspend);

struct serve_loop;
int loop_open(const struct serve_options *o, int64_t max_connections, struct serve_mailbox *mailbox,
              struct serve_counters *counters, struct serve_loop **out, struct backend_info *info,
              struct err *e) MUST_USE;
/* Until *stop; identity must be filled by now. */
int loop_run(struct serve_loop *l, const struct serve_identity *id, struct err *e) MUST_USE;
/* After *stop: ends streams, hands all connections back; waits up to a second until they are closed. */
void loop_drain(struct serve_loop *l);
/* After the HTTP thread is gone: frees what is left. */
void loop_close(struct serve_loop *l);
void stream_free(struct serve_stream *s);

#endif
