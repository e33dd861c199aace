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
    bool last_turn;   /* no later turn in its branch */
    uint32_t isl;       /* input tokens, whole context included */
    uint32_t osl;       /* output tokens wanted (exact unless the backend cannot) */
    uint32_t shared;    /* leading input tokens equal to the session's context so far (prefix) */
    int64_t arrival_ns; /* a trace's arrival, from its first request; -1 = the pattern decides */
    int64_t delay_ns;   /* think or tool time after the previous turn's end; 0 for a first turn */
    uint64_t content_seed; /* from which a wire backend makes the prompt's token ids */
    uint32_t turns;        /* of its session; 1 outside sessions */
    /* a trace's prefix blocks: block i covers tokens [i*block_tokens, (i+1)*block_tokens), the last
     * one may be partial; equal leading ids = equal leading tokens, across all requests.
     * Borrowed until the next plan_next; NULL = none known. */
    uint32_t nblocks, block_tokens;
    const uint64_t *blocks;
    uint64_t block_seed; /* equal ids are equal tokens only under one seed */
    const char *text; /* a trace's literal prompt, borrowed until the next plan_next; or NULL */
    const struct request_talk *talk; /* a trace's messages; or NULL */
    /* leading tokens that all requests of the workload share, and from what they are made */
    uint32_t common;
    uint64_t common_seed;
};

struct plan;

/* Order: warm-up requests come first (ids 0 .. warmup_requests-1), then the measured ones. Session
 * turns are numbered through: id = turns of all earlier sessions + turn, whatever is issued when. A
 * session that would cross the end of the warm-up or of the plan is cut there, so that both hold
 * exactly as many requests as the workload says.
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

/* The turn after `done` in its session (done->last_turn false). output_tokens: what was answered,
 * which becomes part of the next context. Pure: needs no state but the request itself. */
int plan_next_turn(struct plan *p, const struct request *done, uint32_t output_tokens,
                   struct request *r, struct err *e) MUST_USE;

/* How many requests the whole plan holds; -1 when only the trace's or the run's end will tell. With a
 * number of sessions instead of requests it counts their turns: call it once. */
int64_t plan_total(const struct plan *p);

void plan_close(struct plan *p);

#endif
