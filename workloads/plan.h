/* The plan: the seeded sequence of requests that a workload asks for.
 *
 * Request i is a pure function of (workload, seed, i) — or of the trace's line i — so that any number
 * of shards together issue exactly the single-thread plan. A plan streams: memory does not grow with
 * the number of requests. Times are left to the load pattern (harness/run/pattern.h), except a
 * trace's own arrivals and a session's delays, which belong to the request. */
#ifndef WORKLOADS_PLAN_H
#define WORKLOADS_PLAN_H

#include "harness/core/err.h"
#include "workloads/workload.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REQUEST_NO_SESSION UINT64_MAX

/* What a trace recorded of a conversation: OpenAI messages as JSON, separated by commas, of which a
 * turn's history is a prefix. Borrowed until the session is over (plan_done). */
struct request_talk {
    const char *messages; /* from the first message to this turn's last */
    size_t messages_bytes;
    size_t own_at;     /* this turn's own messages begin here, behind the recorded answer before */
    const char *tools; /* a JSON array, or NULL */
    size_t tools_bytes;
    const char *conversation; /* its id in the trace */
    uint64_t play;            /* 1 = the first time that it is played */
};

struct request {
    uint64_t id;      /* 0-based position in the whole plan */
    uint64_t session; /* REQUEST_NO_SESSION outside sessions */
    uint32_t turn;    /* 0-based in the session */
    uint32_t branch;  /* of a session tree: requests of one branch share a context, 0 is the root's */
    uint32_t parent;  /* branch whose context the first turn of a branch shares */
    bool last_turn;   /* no later turn in its branch */
    uint32_t isl;       /* input tokens, whole context included */
    uint32_t osl;       /* output tokens wanted (exact unless the backend cannot) */
    uint32_t shared;    /* leading input tokens equal to the branch's context so far (prefix); of a first
                           turn: to the parent's */
    int64_t arrival_ns; /* a trace's arrival, from its first request; -1 = the pattern decides */
    int64_t delay_ns;   /* think or tool time after the end of the turn that it follows */
    uint64_t content_seed; /* from which a wire backend makes the prompt's token ids */
    uint32_t turns;        /* of its session, in all branches; 1 outside sessions */
    uint32_t branches;     /* of a recorded session; else 0 */
    /* a trace's prefix blocks: block i covers tokens [i*block_tokens, (i+1)*block_tokens), the last
     * one may be partial; equal leading ids = equal leading tokens, across all requests.
     * Borrowed until the next plan_next, in sessions until theirs is over; NULL = none known. */
    uint32_t nblocks, block_tokens;
    const uint64_t *blocks;
    uint64_t block_seed; /* equal ids are equal tokens only under one seed */
    const char *text; /* a trace's literal prompt, borrowed until the next plan_next; or NULL */
    const struct request_talk *talk; /* a trace's messages; or NULL */
    /* leading tokens that all requests of a group share (workload's shared_prefix), and from what they
     * are made; equal in all turns of a session */
    uint32_t common;
    uint64_t common_seed;
};

struct plan;

/* Order: warm-up requests come first (ids 0 .. warmup_requests-1), then the measured ones. Session
 * turns are numbered through: id = turns of all earlier sessions + turn, whatever is issued when. A
 * session that would cross the end of the warm-up or of the plan is cut there, so that both hold
 * exactly as many requests as the workload says. Recorded sessions are cut at the plan's end only, in
 * the order in which their requests began.
 * content_seed: token j of a prompt is a function of (content_seed, j), so that requests of one
 * session, which share it, have equal prefixes. InferenceX lengths (DIST_RANGE_RATIO): warm-up
 * requests are copies of the first measured one, as that client sends them. */

/* A plan of shard `shard` of `shards`: without sessions, requests with id % shards == shard; with
 * sessions, whole sessions with session % shards == shard. w is borrowed and must outlive it.
 * A training workload has steps instead of requests: its plan is empty. */
int plan_open(const struct workload *w, uint32_t shard, uint32_t shards, struct plan **out,
              struct err *e) MUST_USE;

/* Without sessions: the next request. With sessions: the first turn of the next session.
 * *end is set when the plan is exhausted. Errors: a malformed trace line (file:line: …). */
int plan_next(struct plan *p, struct request *r, bool *end, struct err *e) MUST_USE;

/* `done`, a request of this plan, ended: with output_tokens, or failed. What may be issued because of it
 * comes out of plan_take. In synthetic sessions the answer becomes part of the next context; in
 * recorded ones all lengths are the trace's. A failure ends its session: nothing more becomes ready
 * there. *over: the last request of its session that was given out has ended and none will follow
 * (always so outside sessions); what was borrowed of the session is gone then. */
int plan_done(struct plan *p, const struct request *done, int64_t end_ns, uint32_t output_tokens,
              bool failed, bool *over, struct err *e) MUST_USE;
/* The next request that plan_done made ready, due at *at_ns; false when there is none. */
bool plan_take(struct plan *p, struct request *r, int64_t *at_ns);
/* A request that plan_take gave will not be issued, because its session failed. *over as above. */
void plan_withdraw(struct plan *p, const struct request *r, bool *over);

/* The requests of the whole plan, sessions included, as if each were answered at once with what it asks
 * for. Stops when fn returns false. *whole: the plan's end was reached. The plan is used up. */
int plan_walk(struct plan *p, bool (*fn)(void *ctx, const struct request *r), void *ctx,
              bool *whole, struct err *e) MUST_USE;

/* Sessions left out because one of their requests exceeds the context, so far. */
uint64_t plan_left_out(const struct plan *p);

/* How many requests the whole plan holds; -1 when only the trace's or the run's end will tell. With a
 * number of sessions instead of requests it counts their turns: call it once. */
int64_t plan_total(const struct plan *p);

void plan_close(struct plan *p);

/* Reads a workload's trace to its end and checks every row that the plan would take; seen is given all
 * bytes of the file, in order (to digest them; may be NULL). */
int plan_check_trace(const struct workload *w, void (*seen)(void *ctx, const void *p, size_t n),
                     void *ctx, struct err *e) MUST_USE;

#endif
