/* The event sink: where every timestamp of a run goes, and the only truth afterwards.
 *
 * Each thread has its own sink and its own block of columns; recording is a few stores, without
 * allocation and without a lock. A full block (or one older than EVENT_FLUSH_NS, which the driver
 * checks) is handed to the sink's consumer, which gives back an empty one: during a run the consumer
 * is the log writer, under `serve` it is the loop that streams tokens to clients.
 *
 * Times are ns of the backend's clock and never decrease within a thread. Logs of several threads
 * merge by (time, thread, sequence).  Byte format of stored blocks: schemas/event-log.md,
 * harness/measure/eventlog.h. */
#ifndef HARNESS_CORE_EVENT_H
#define HARNESS_CORE_EVENT_H

#include <assert.h>
#include <stdint.h>

enum event_kind {
    EVENT_NONE = 0,
    /* request = request id unless said otherwise */
    EVENT_MARK = 1,       /* request = enum event_mark; a = the boundary in ns, which may lie before
                             the event's own time (a window begins at an intended issue time) */
    EVENT_SESSION = 2,    /* a = session id, b = turn; before ISSUE, only in session workloads */
    EVENT_ISSUE = 3,      /* a = lateness_ns (time - intended time, >= 0), b = planned input tokens */
    EVENT_SENT = 4,       /* last request byte accepted by the socket; absent = sent at ISSUE */
    EVENT_TOKENS = 5,     /* a token event: a = tokens in it (0 = unknown), b = enum event_token_flags
                             | bound bucket << EVENT_TOKENS_BOUND_SHIFT */
    EVENT_DONE = 6,       /* stream end: a = output tokens N, b = input tokens as counted (0 = planned)
                             | bound bucket << EVENT_DONE_BOUND_SHIFT */
    EVENT_FAIL = 7,       /* a = enum fail_class, b = HTTP status or 0 */
    EVENT_USAGE = 8,      /* before DONE: a = cached input tokens, b = reasoning tokens */
    EVENT_STEP = 9,       /* training step `request` ended; a = tokens, b = samples; it began at ISSUE */
    EVENT_EVAL = 10,      /* a = duration_ns, b = score in millionths; request = step */
    EVENT_CHECKPOINT = 11,/* a = duration_ns, b = bytes; request = step */
    EVENT_ENGINE = 12,    /* a backend's state: a = running sequences, b = KV tokens in use;
                             request = queued requests. At most one a millisecond of its clock. */
    EVENT_KIND_COUNT
};

enum event_mark {
    MARK_RUN_BEGIN = 1,
    MARK_WINDOW_BEGIN = 2, /* warm-up is over: the intended time of the first measured request */
    MARK_WINDOW_END = 3,   /* begin + duration when a duration was asked for (what is in flight may
                              still complete), else the last completion */
    MARK_RUN_END = 4,
    MARK_INTERRUPTED = 5,
};

enum event_token_flags {
    TOKENS_COALESCED = 1 << 0, /* shares its stamp with another event of the same read */
    TOKENS_REASONING = 1 << 1,
    TOKENS_TOOL_CALL = 1 << 2,
};

/* How long what an event tells of may have waited unseen before its stamp: an upper bound, stated by
 * backends that read a wire. Coarse, so that its column costs a fraction of a byte: bucket k >= 1 is
 * (2 + odd) << half half-microseconds with odd = (k - 1) & 1, half = (k - 1) >> 1, that is 1, 1.5, 2, 3,
 * 4, 6, 8, ... us; the smallest that is not below the bound is stated, at most 1.5 times too large.
 * 0: no bound is known, or there is nothing to bound (virtual clocks, `null`). */
enum {
    EVENT_TOKENS_BOUND_SHIFT = 3,
    EVENT_DONE_BOUND_SHIFT = 32,
    EVENT_BOUND_MAX = 95, /* 4.5 years */
};

static inline int64_t event_bound_ns(int64_t bucket) {
    return bucket <= 0 ? 0 : ((2 + ((bucket - 1) & 1)) << ((bucket - 1) >> 1)) * 500;
}

/* The bucket that states a bound of ns; 1 .. EVENT_BOUND_MAX. */
static inline int64_t event_bound_bucket(int64_t ns) {
    if (ns <= 1000)
        return 1;
    uint64_t halves = ((uint64_t)ns + 499) / 500;
    int p = 63 - __builtin_clzll(halves); /* 2^p <= halves, p >= 1 */
    int64_t k = halves == UINT64_C(1) << p ? 2 * p - 1 : halves <= UINT64_C(3) << (p - 1) ? 2 * p : 2 * p + 1;
    return k < EVENT_BOUND_MAX ? k : EVENT_BOUND_MAX;
}

/* openai-streaming.md section 5; names in fail_class_name. Order is part of the log format. */
enum fail_class {
    FAIL_NONE = 0,
    FAIL_CONNECT,
    FAIL_TLS,
    FAIL_TIMEOUT_CONNECT,
    FAIL_TIMEOUT_FIRST_TOKEN,
    FAIL_TIMEOUT_IDLE,
    FAIL_TIMEOUT_TOTAL,
    FAIL_HTTP_STATUS,
    FAIL_IN_BAND_ERROR,
    FAIL_RESET,
    FAIL_TRUNCATED,
    FAIL_NO_TERMINATOR,
    FAIL_NO_OUTPUT,
    FAIL_BAD_JSON,
    FAIL_BAD_SSE,
    FAIL_CANCELLED,
    FAIL_LENGTH_MISMATCH,
    FAIL_REJECTED, /* the backend can never serve it: longer than the context or the KV cache */
    FAIL_CLASS_COUNT
};
const char *fail_class_name(int fail_class); /* "connect", …; never NULL */

enum {
    EVENT_BLOCK_CAP = 4096, /* events a block */
};
#define EVENT_FLUSH_NS INT64_C(100000000)

struct event_block {
    uint32_t n;
    uint32_t thread;    /* shard that recorded it */
    uint64_t sequence;  /* of the block within the thread, from 0 */
    int64_t opened_ns;  /* monotonic machine time when its first event may have come; for flushing */
    int64_t time_ns[EVENT_BLOCK_CAP];
    uint64_t request[EVENT_BLOCK_CAP];
    int64_t a[EVENT_BLOCK_CAP];
    int64_t b[EVENT_BLOCK_CAP];
    uint8_t kind[EVENT_BLOCK_CAP];
};

/* Takes a block with n > 0, returns an empty one to go on with (never NULL: it waits if it must). */
typedef struct event_block *event_flush_fn(void *ctx, struct event_block *full);

struct event_sink {
    struct event_block *block;
    event_flush_fn *flush;
    void *ctx;
    int64_t last_ns;
};

static inline void event_sink_flush(struct event_sink *s) {
    if (s->block->n)
        s->block = s->flush(s->ctx, s->block);
}

/* Makes sure that the next k events (k < EVENT_BLOCK_CAP) do not flush, so that they can be taken back
 * with event_sink_rollback: the driver records ISSUE before it submits, and a busy backend takes
 * nothing. */
static inline void event_sink_reserve(struct event_sink *s, uint32_t k) {
    if (s->block->n + k >= EVENT_BLOCK_CAP)
        event_sink_flush(s);
}
static inline void event_sink_rollback(struct event_sink *s, uint32_t k) {
    assert(s->block->n >= k);
    s->block->n -= k;
}

static inline void event_put(struct event_sink *s, int64_t time_ns, enum event_kind kind,
                             uint64_t request, int64_t a, int64_t b) {
    assert(time_ns >= s->last_ns);
    struct event_block *k = s->block;
    uint32_t i = k->n;
    k->time_ns[i] = time_ns;
    k->request[i] = request;
    k->a[i] = a;
    k->b[i] = b;
    k->kind[i] = (uint8_t)kind;
    s->last_ns = time_ns;
    if ((k->n = i + 1) == EVENT_BLOCK_CAP)
        s->block = s->flush(s->ctx, k);
}

#endif
