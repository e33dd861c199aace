/* Inside the metrics: what one pass over the log leaves behind, and the columns drawn from it.
 * metrics_pass.c fills it, metrics.c publishes the house figures, compat*.c those of other tools. */
#ifndef HARNESS_MEASURE_METRICS_INTERNAL_H
#define HARNESS_MEASURE_METRICS_INTERNAL_H

#include "harness/measure/eventlog.h"
#include "harness/measure/metrics.h"
#include "harness/measure/order.h"

enum request_flags {
    REQ_ISSUED = 1 << 0,
    REQ_SENT = 1 << 1,    /* a SENT event; else sent at ISSUE */
    REQ_TOKENS = 1 << 2,  /* at least one token event */
    REQ_MANY = 1 << 3,    /* more than one */
    REQ_DONE = 1 << 4,
    REQ_FAILED = 1 << 5,
    REQ_STEP = 1 << 6,    /* a training step */
    REQ_MEASURED = 1 << 7,
    REQ_PENDING = 1 << 8, /* issued before its thread's window began, if it ever does */
    REQ_USAGE = 1 << 9,
    REQ_IN_SESSION = 1 << 10,
    REQ_KNOWN_FIRST = 1 << 11, /* the first token event said how many tokens it holds */
    REQ_TURN_SHIFT = 12,       /* three bits: turn_group of a request in a session */
};

/* Turns of sessions by how many came before: none, 1, 2 to 3, 4 to 7, … 64 and more. */
enum { TURN_GROUPS = 8 };
static inline unsigned turn_group(uint64_t before) {
    unsigned bits = before ? 64 - (unsigned)__builtin_clzll(before) : 0;
    return bits < TURN_GROUPS ? bits : TURN_GROUPS - 1;
}

/* Whose stamp a bound is of; that of the last token event is the one before while reading. */
enum request_bound { BOUND_FIRST, BOUND_LAST, BOUND_DONE, BOUND_COUNT };

enum request_stamp { AT_ISSUE, AT_SENT, AT_FIRST, AT_LAST, AT_DONE, AT_COUNT };

/* Stamps are ns after the intended issue, 48 bits (78 hours), each in the upper part of a word. The
 * lower 16 bits hold what else there is: ISSUE the flags, FIRST and DONE the tokens of the first event,
 * SENT and LAST the cached tokens (low half first). */
struct request_state {
    int64_t intended_ns;
    uint64_t word[AT_COUNT];
    uint32_t out, in;
    uint8_t bound[BOUND_COUNT]; /* buckets of event_bound_ns; 0 = none stated */
};
_Static_assert(sizeof(struct request_state) == 64, "64 bytes and an index of 4 are the promise");

static inline uint64_t request_at(const struct request_state *r, enum request_stamp s) {
    return r->word[s] >> 16;
}

static inline void request_stamp(struct request_state *r, enum request_stamp s, uint64_t d) {
    r->word[s] = d << 16 | (r->word[s] & 0xffff);
}

static inline unsigned request_flags(const struct request_state *r) {
    return (unsigned)(r->word[AT_ISSUE] & 0xffff);
}

static inline void request_flag(struct request_state *r, unsigned flags) {
    r->word[AT_ISSUE] |= flags;
}

static inline uint32_t request_half(const struct request_state *r, enum request_stamp low,
                                    enum request_stamp high) {
    return (uint32_t)(r->word[low] & 0xffff) | (uint32_t)(r->word[high] & 0xffff) << 16;
}

static inline void request_set_half(struct request_state *r, enum request_stamp low,
                                    enum request_stamp high, uint32_t x) {
    r->word[low] = (r->word[low] & ~UINT64_C(0xffff)) | (x & 0xffff);
    r->word[high] = (r->word[high] & ~UINT64_C(0xffff)) | x >> 16;
}

static inline uint32_t request_n_first(const struct request_state *r) {
    return request_half(r, AT_FIRST, AT_DONE);
}

static inline uint32_t request_cached(const struct request_state *r) {
    return request_half(r, AT_SENT, AT_LAST);
}

/* Completed and measured: what every latency and throughput is about. */
static inline bool request_counts(const struct request_state *r) {
    return (request_flags(r) & (REQ_MEASURED | REQ_DONE | REQ_STEP)) == (REQ_MEASURED | REQ_DONE);
}

/* The answer came in one piece of several tokens: nothing was streamed, TTFT has no meaning. */
static inline bool request_streamed(const struct request_state *r) {
    unsigned f = request_flags(r);
    return (f & REQ_TOKENS) && !((f & (REQ_MANY | REQ_KNOWN_FIRST)) == REQ_KNOWN_FIRST &&
                                 r->out > 1 && request_n_first(r) >= r->out);
}

/* 64-bit ids to dense slots, bounded against hostile ids. */
struct id_map {
    uint32_t *slot; /* slot + 1; 0 = unknown */
    uint64_t cap;
    uint32_t n;     /* slots given */
};

struct session_state {
    int64_t first_ns, last_ns; /* intended issue of the first turn, DONE of the last */
    uint32_t turns, done;
    uint32_t flags; /* enum session_flags */
    int64_t client_ns; /* of its turns: sum of lateness and of the bound of the end */
};
enum session_flags { SESSION_OUTSIDE = 1 << 0, SESSION_FAILED = 1 << 1, SESSION_OPEN = 1 << 2 };

/* What requests that ended were not all alike in; see find_aliases. */
enum pass_seen {
    SEEN_LATE = 1 << 0,         /* issued later than intended */
    SEEN_SENT = 1 << 1,         /* sent later than issued */
    SEEN_TAIL = 1 << 2,         /* the stream ended after the last token event */
    SEEN_SPREAD = 1 << 3,       /* first and last token event differ */
    SEEN_UNSTREAMED = 1 << 4,   /* an answer that was not streamed */
    SEEN_FIRST_MANY = 1 << 5,   /* a first event of other than one token */
    SEEN_TOKENS_NOT_1 = 1 << 6, /* N other than 1 */
};

struct pass {
    struct request_state *req;
    uint32_t req_cap;
    struct id_map ids;
    uint32_t *session_of; /* per slot, NULL without sessions */
    uint16_t *thread_of;  /* per slot, NULL with one thread */
    uint32_t session_of_cap, thread_of_cap, threads;
    struct session_state *session;
    uint32_t session_cap;
    struct id_map session_ids;

    /* gaps between token events: slot << 32 | ns, or ns = UINT32_MAX and the true one in big */
    uint64_t *gap;
    size_t gaps, gap_cap;
    uint64_t *big;
    size_t bigs, big_cap;
    bool gaps_dropped; /* more than METRICS_GAPS_MAX: no ITL */
    uint16_t *gap_bound; /* per gap: bucket of the event before << 8 | of the event; NULL: none stated */
    int64_t bounds[EVENT_BOUND_MAX + 1]; /* stamps (token events, ends of answers without any) by bucket */
    bool any_bound;      /* of a bucket other than 0 */

    int64_t first_event_ns, run_begin_ns, begin_ns, end_ns;
    bool any_event, any_run_begin, any_begin, any_end;
    struct {
        int64_t begin_ns, end_ns;
        bool begun, ended;
    } *window; /* per thread */

    int64_t events, token_events;
    int interrupted;
    bool any_step, any_usage, any_session;
    int64_t eval_n, checkpoint_n;
    double eval_score;
    double eval_ns, checkpoint_ns; /* sums */

    /* derived by pass_count */
    int64_t issued, completed, failed, in_flight, warmup, by_class[FAIL_CLASS_COUNT];
    int64_t input_tokens, output_tokens, cached_tokens, step_tokens, step_samples;
    int64_t turn_input[TURN_GROUPS], turn_cached[TURN_GROUPS]; /* of those in sessions */
    int64_t duration_ns;    /* window begin to the last completion, or the window's end if later */
    int64_t last_done_ns;   /* of measured requests */
    int64_t first_start_ns; /* of measured requests that ended: actual issue */
    int64_t first_issue_ns; /* of measured completed requests: actual issue, */
    int64_t first_intended_ns, last_token_ns, last_issued_done_ns; /* intended, last token event, end
                               of the one that was issued last */
    uint64_t decode_ns; /* of streamed ones: sums of last - first and of N - 1 */
    int64_t decode_tokens;
    int64_t streamed_tokens;
    int64_t last_issue_ns;
    unsigned seen; /* enum pass_seen, of whatever ended */
    int64_t good;  /* completed within the house's limits */
    int64_t good_lo, good_hi; /* as many as the client's error lets there be */
    int64_t client_ns;  /* of completed requests: sum of lateness and of the bound of the end */
    int64_t last_done_client_ns; /* the same of the request that ended last */
    int64_t good_compat; /* as other tools judge: from issue, TPOT over N - 1 */
};

int pass_run(struct pass *p, const struct eventlog_source *src, struct err *e) MUST_USE;
/* Then once for all slots in order, in pieces [from, to): decides what is measured and counts it. */
void pass_count(struct pass *p, uint32_t from, uint32_t to, const struct metrics_facts *f);
void pass_release(struct pass *p);

/* One value for each request that has it. */
enum column_id {
    COL_TTFT,
    COL_SERVICE_TTFT,
    COL_TPOT,
    COL_E2E,
    COL_SERVICE_E2E,
    COL_LATENESS,
    COL_ITL,
    COL_STEP,
    COL_SESSION_E2E,
    COL_SESSION_TURNS,
    COL_HOUSE_COUNT, /* those above are the house's, those below only other tools' */
    COL_ISSUE_TTFT = COL_HOUSE_COUNT,
    COL_ISSUE_E2E,       /* last token event - issue */
    COL_ISSUE_DONE,      /* stream end - issue */
    COL_INTENDED_DONE,   /* stream end - intended issue */
    COL_TPOT_1,          /* (last - first)/(N - 1) */
    COL_TPOT_DONE,       /* (stream end - first)/(N - n_first) */
    COL_TPOT_DIV,        /* (stream end - first) div (N - 1) */
    COL_TIME_PER_TOKEN,  /* (last - issue)/N */
    COL_NTPOT,           /* (stream end - issue)/N */
    COL_RATE_ITL,        /* 1e9/COL_TPOT_1 */
    COL_RATE_DONE,       /* 1e9 N/COL_ISSUE_DONE */
    COL_ISL,
    COL_OSL,
    COL_TTFT_LO,         /* first token event - sent - its bound: without what the client can have added */
    COL_E2E_LO,          /* last - sent - its bound */
    COL_TPOT_LO,         /* (last - its bound - first)/(N - n_first) */
    COL_TPOT_HI,         /* (last - first + its bound)/(N - n_first) */
    COL_ITL_LO,          /* gap - bound of its end */
    COL_ITL_HI,          /* gap + bound of its begin */
    COL_SESSION_LO,      /* session's E2E - lateness and bounds of its turns */
    COL_ITL_TOKENS,      /* as COL_ITL, a k-token event counting as k - 1 gaps of 0 more */
    COL_COUNT,
    COL_NONE = COL_COUNT
};

/* Several ids may share a column: those that cannot differ in this run. */
struct columns {
    struct column *own; /* COL_COUNT */
    struct column *at[COL_COUNT];
};

/* feed: pass_count, then n and mean of each; then column_want on at[]; then solve. Release in any case. */
int columns_feed(struct pass *p, struct columns *cols, const struct metrics_facts *f,
                 struct err *e) MUST_USE;
int columns_solve(struct pass *p, struct columns *cols, struct err *e) MUST_USE;
void columns_release(struct columns *cols);

/* metrics_client.c: what the figures could be without the client's error. */
static inline uint64_t request_sent(const struct request_state *r) {
    return request_at(r, request_flags(r) & REQ_SENT ? AT_SENT : AT_ISSUE);
}
/* Bucket of the stamp that ends the answer, the bound of the last token event where the end has none. */
static inline int64_t request_end_bound(const struct request_state *r) {
    return event_bound_ns(r->bound[r->bound[BOUND_DONE] ? BOUND_DONE : BOUND_LAST]);
}
/* Counts a completed measured request, after `good`. judged: there are limits. */
void client_count(struct pass *p, const struct request_state *r, const struct metrics_facts *f,
                  bool streamed, bool judged);
/* Share of the window that the client may have added to it. */
double client_window_share(const struct pass *p, const struct metrics_facts *f);
/* Bucket of the nearest-rank quantile of the stamps' bounds; stamps: how many state one. */
int64_t client_bound_quantile(const struct pass *p, int64_t ppm, int64_t *stamps);

/* Other tools' figures; want notes ranks, make builds the object after columns_solve. */
void compat_want(struct columns *cols);
json_t *compat_make(const struct pass *p, const struct metrics_facts *f,
                    const struct columns *cols);

#endif
