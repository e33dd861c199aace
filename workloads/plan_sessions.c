/* Sessions: turns whose context grows by each question and answer. How many turns a session has is
 * decided from planned lengths alone, so that ids (turns of all earlier sessions + turn) are the
 * same for any number of shards and any timing: each shard walks all sessions and emits its own. */
#include "workloads/dist.h"
#include "workloads/plan_internal.h"

#include <assert.h>
#include <string.h>

_Static_assert(TURNS_MAX < 1 << 14, "a turn's place in STREAM_TURN");

struct turn {
    int64_t isl, osl, think_ns; /* isl: new tokens only */
};

/* think: also the delay, which comes last so that a walk that only counts can leave it out. */
static struct turn draw_turn(const struct workload *w, uint64_t session, uint32_t turn,
                             bool think) {
    struct rng rng = rng_at(w->seed, STREAM_TURN, (session << 14) | turn);
    struct turn t;
    t.isl = dist_draw(&w->isl, &rng);
    t.osl = dist_draw(&w->osl, &rng);
    t.think_ns = think ? dist_draw(&w->think_ns, &rng) : 0;
    return t;
}

/* The first turn brings the system prompt or repository along; it is cut to the context. */
static struct turn draw_first(const struct workload *w, uint64_t session, struct rng *after_turns) {
    struct turn t = draw_turn(w, session, 0, false);
    t.isl += dist_draw(&w->first_isl, after_turns);
    int64_t limit = w->max_context ? w->max_context : UINT32_MAX;
    if (t.osl > limit - 1)
        t.osl = limit - 1;
    if (t.isl > limit - t.osl)
        t.isl = limit - t.osl;
    return t;
}

/* Turns of a session, at most cap; *first receives the first one. */
static uint32_t session_turns(const struct workload *w, uint64_t session, uint64_t cap,
                              struct turn *first) {
    struct rng rng = rng_at(w->seed, STREAM_SESSION, session);
    int64_t turns = dist_draw(&w->turns, &rng);
    *first = draw_first(w, session, &rng);
    if ((uint64_t)turns > cap)
        turns = (int64_t)cap;
    int64_t limit = w->max_context ? w->max_context : UINT32_MAX;
    int64_t context = first->isl + first->osl;
    if (context + (turns - 1) * (dist_max(&w->isl) + dist_max(&w->osl)) <= limit)
        return (uint32_t)turns;
    for (uint32_t n = 1; n < (uint32_t)turns; n++) {
        struct turn t = draw_turn(w, session, n, false);
        context += t.isl + t.osl;
        if (context > limit)
            return n;
    }
    return (uint32_t)turns;
}

/* How many turns may still be planned when `next` are: a session ends with the warm-up. */
static uint64_t room(const struct plan *p, uint64_t next) {
    if (next < p->warmup)
        return p->warmup - next;
    return p->measured == UINT64_MAX ? UINT64_MAX : p->measured - (next - p->warmup);
}

struct walk {
    uint64_t next, session, measured_sessions;
};

/* Goes past one session; false at the end of the plan. */
static bool step(const struct plan *p, struct walk *at, uint32_t *turns, struct turn *first) {
    uint64_t cap = room(p, at->next);
    bool measured = at->next >= p->warmup;
    if (cap == 0 ||
        (measured && p->w->sessions && at->measured_sessions == (uint64_t)p->w->sessions))
        return false;
    *turns = session_turns(p->w, at->session, cap, first);
    at->next += *turns;
    at->session++;
    at->measured_sessions += measured;
    return true;
}

static int sessions_open(struct plan *p, struct err *e) {
    (void)e;
    p->next = 0;
    return 0;
}

static int sessions_next(struct plan *p, struct request *r, bool *end, struct err *e) {
    struct walk at = {p->next, p->session, p->measured_sessions};
    (void)e;
    for (;;) {
        uint64_t id = at.next, session = at.session;
        uint32_t turns;
        struct turn first;
        *end = !step(p, &at, &turns, &first);
        p->next = at.next;
        p->session = at.session;
        p->measured_sessions = at.measured_sessions;
        if (*end)
            return 0;
        if (session % p->shards != p->shard)
            continue;
        memset(r, 0, sizeof *r);
        r->id = id;
        r->session = session;
        r->turns = turns;
        r->last_turn = turns == 1;
        r->isl = (uint32_t)first.isl;
        r->osl = (uint32_t)first.osl;
        r->arrival_ns = -1;
        r->content_seed = plan_content_seed(p->w->seed, STREAM_SESSION_CONTENT, session);
        plan_share_prefix(p->w, session, r);
        return 0;
    }
}

/* A function of the request before alone: no state is kept of a session. */
static int sessions_done(struct plan *p, const struct request *done, int64_t end_ns,
                         uint32_t output_tokens, bool failed, bool *over, struct err *e) {
    *over = failed || done->last_turn;
    if (*over)
        return 0;
    uint32_t turn = done->turn + 1;
    assert(turn < done->turns);
    struct turn t = draw_turn(p->w, done->session, turn, true);
    uint64_t context = (uint64_t)done->isl + output_tokens;
    if (context + (uint64_t)t.isl > UINT32_MAX)
        return err_set(e, ASSAY_EINPUT, "session %llu: its context exceeds 2^32 tokens at turn %u",
                       (unsigned long long)done->session, turn);
    struct request r;
    memcpy(&r, done, sizeof r);
    r.id++;
    r.turn = turn;
    r.last_turn = turn + 1 == r.turns;
    r.shared = (uint32_t)context;
    r.isl = (uint32_t)(context + (uint64_t)t.isl);
    r.osl = (uint32_t)t.osl;
    r.delay_ns = t.think_ns;
    return plan_push_ready(p, &r, end_ns + r.delay_ns, e);
}

static int64_t sessions_total(const struct plan *p) {
    if (p->measured == UINT64_MAX && !p->w->sessions)
        return -1;
    if (!p->w->sessions)
        return (int64_t)(p->warmup + p->measured);
    struct walk at = {0};
    uint32_t turns;
    struct turn first;
    while (step(p, &at, &turns, &first))
        ;
    return (int64_t)at.next;
}

const struct plan_source plan_sessions = {sessions_open, sessions_next, sessions_done,
                                          sessions_total, NULL};
