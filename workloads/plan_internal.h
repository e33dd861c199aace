/* Between the files of the plan: one source of requests each for single requests, sessions, traces. */
#ifndef WORKLOADS_PLAN_INTERNAL_H
#define WORKLOADS_PLAN_INTERNAL_H

#include "harness/core/rng.h"
#include "workloads/plan.h"

/* Streams of rng_at: what a number is drawn for. Changing one changes every plan. */
enum plan_stream {
    STREAM_REQUEST = 1, /* index = request id: isl, osl */
    STREAM_SESSION = 2, /* index = session: turns, first_isl */
    STREAM_TURN = 3,    /* index = session * 2^14 + turn: isl, osl, think time */
    STREAM_CONTENT = 4, /* content seeds of single requests */
    STREAM_SESSION_CONTENT = 5,
    STREAM_PREFIX = 7,         /* index = request id or session: its group; content of a group */
    STREAM_SPREAD = 6, /* index = second of a trace: equal stamps spread inside it */
};

struct plan_source {
    int (*open)(struct plan *p, struct err *e); /* may be NULL */
    int (*next)(struct plan *p, struct request *r, bool *end, struct err *e);
    /* of a session; may be NULL */
    int (*done)(struct plan *p, const struct request *done, int64_t end_ns, uint32_t output_tokens,
                bool failed, bool *over, struct err *e);
    int64_t (*total)(const struct plan *p);
    void (*close)(struct plan *p); /* may be NULL */
};
extern const struct plan_source plan_single, plan_sessions, plan_trace, plan_replay;

struct plan_ready {
    struct request request;
    int64_t at_ns;
};

struct trace;
struct replay;
struct plan {
    const struct workload *w;
    const struct plan_source *source;
    uint32_t shard, shards;
    uint64_t warmup, measured; /* requests of the two parts; measured UINT64_MAX = without end */
    uint64_t next;             /* id of the next request to consider */

    /* InferenceX lengths: the generator before the next input length, and before the next output
     * length, so that nothing is stored per request (plan_single) */
    bool ratio;
    struct mt19937 isl_mt, osl_mt;
    uint64_t drawn;
    uint32_t first_isl, first_osl, isl, osl;

    uint64_t session, measured_sessions; /* plan_sessions: walked so far */

    struct trace *trace; /* plan_trace */
    int64_t first_arrival_ns, last_arrival_ns;

    struct replay *replay; /* plan_replay */

    struct plan_ready *ready; /* [ready_at, nready): not yet taken */
    size_t ready_at, nready, ready_cap;
};

uint64_t plan_content_seed(uint64_t seed, uint64_t stream, uint64_t index);
/* A request outside sessions, lengths and content left to the caller. */
void plan_lone_request(struct request *r, uint64_t id);

/* The prefix that r shares with its group; index: request id or session. */
void plan_share_prefix(const struct workload *w, uint64_t index, struct request *r);
int plan_push_ready(struct plan *p, const struct request *r, int64_t at_ns, struct err *e);

#endif
