/* Plans from recorded sessions. A session is read when it begins and kept until it is over; the calls of
 * all sessions before count for the ids of one, so every shard reads the whole trace. */
#include "workloads/plan_internal.h"
#include "workloads/trace.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Calls that wait for another one, by that one. */
struct follower {
    uint32_t call;
    int64_t delay_ns;
};

/* A session that has begun and is not over. Arrays are in its arena, by call. */
struct live {
    struct live *next; /* of the same bucket */
    struct session s;
    uint64_t session, first_id;
    uint32_t ncalls;      /* of the plan: fewer than recorded when the plan ends in it */
    uint32_t outstanding; /* given out and not done */
    bool failed;
    struct request_talk *talk;
    uint32_t *pending;                    /* how many it still waits for */
    int64_t *due_ns;                      /* the latest of what has ended so far */
    uint32_t *first_follower;             /* ncalls + 1 */
    struct follower *follower;
    uint32_t *last; /* by branch: its last call of the plan */
};

struct replay {
    struct trace *trace;
    uint64_t play; /* 1 = the first */
    uint64_t sessions, of_this_play, left_out;
    struct live **bucket;
    size_t buckets, live;
};

static struct live **bucket_of(const struct replay *x, uint64_t session) {
    uint64_t s = session;
    return &x->bucket[splitmix64(&s) & (x->buckets - 1)];
}

static int grow(struct replay *x, struct err *e) {
    struct replay old = *x;
    x->buckets = old.buckets ? 2 * old.buckets : 64;
    x->bucket = calloc(x->buckets, sizeof(struct live *));
    if (!x->bucket) {
        *x = old;
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < old.buckets; i++)
        for (struct live *l = old.bucket[i], *next; l; l = next) {
            struct live **b = bucket_of(x, l->session);
            next = l->next;
            l->next = *b;
            *b = l;
        }
    free(old.bucket);
    return 0;
}

static void live_free(struct live *l) {
    session_clear(&l->s);
    free(l);
}

static void forget(struct replay *x, struct live *l) {
    struct live **at = bucket_of(x, l->session);
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    x->live--;
    live_free(l);
}

/* ---- a session's tree ---- */

static int64_t delay_of(const struct workload *w, int64_t recorded_ns) {
    bool cut = w->trace_max_delay_ns >= 0 && recorded_ns > w->trace_max_delay_ns;
    return cut ? w->trace_max_delay_ns : recorded_ns;
}

static int prepare(const struct workload *w, struct live *l, uint64_t play, struct err *e) {
    struct arena *a = &l->s.arena;
    size_t n = l->ncalls, edges = 0;
    for (size_t i = 0; i < n; i++)
        edges += l->s.call[i].nwaits;
    l->talk = l->s.messages ? arena_alloc(a, n, sizeof *l->talk) : NULL;
    l->pending = arena_alloc(a, n, sizeof *l->pending);
    l->due_ns = arena_alloc(a, n, sizeof *l->due_ns);
    l->first_follower = arena_alloc(a, n + 2, sizeof *l->first_follower);
    l->follower = arena_alloc(a, edges + 1, sizeof *l->follower);
    l->last = arena_alloc(a, l->s.branches, sizeof *l->last);
    if ((l->s.messages && !l->talk) || !l->pending || !l->due_ns || !l->first_follower ||
        !l->follower || !l->last)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    uint32_t *first = l->first_follower + 1; /* moves back to its place as it is filled */
    for (size_t i = 0; i < n; i++) {
        const struct session_call *c = &l->s.call[i];
        l->pending[i] = c->nwaits;
        l->last[c->branch] = (uint32_t)i;
        for (uint32_t k = 0; k < c->nwaits; k++)
            if (c->wait[k].call + 1 < n)
                first[c->wait[k].call + 1]++;
        if (l->talk)
            l->talk[i] = (struct request_talk){.messages = l->s.messages,
                                               .messages_bytes = c->messages_bytes,
                                               .own_at = c->own_at,
                                               .tools = c->tools,
                                               .tools_bytes = c->tools_bytes,
                                               .conversation = l->s.id,
                                               .play = play};
    }
    for (size_t i = 1; i <= n; i++)
        first[i] += first[i - 1];
    for (uint32_t i = 0; i < n; i++) {
        const struct session_call *c = &l->s.call[i];
        for (uint32_t k = 0; k < c->nwaits; k++)
            l->follower[first[c->wait[k].call]++] =
                (struct follower){i, delay_of(w, c->wait[k].delay_ns)};
    }
    return 0;
}

static void fill(const struct plan *p, const struct live *l, uint32_t i, struct request *r) {
    const struct session_call *c = &l->s.call[i];
    memset(r, 0, sizeof *r);
    r->id = l->first_id + i;
    r->session = l->session;
    r->turn = c->turn;
    r->branch = c->branch;
    r->parent = c->parent;
    r->last_turn = l->last[c->branch] == i;
    r->isl = c->isl;
    r->osl = c->osl;
    r->shared = c->shared;
    r->arrival_ns = -1;
    r->delay_ns = c->nwaits ? delay_of(p->w, c->wait[0].delay_ns) : 0;
    r->content_seed = plan_content_seed(p->w->seed, STREAM_SESSION_CONTENT, l->session);
    r->turns = l->ncalls;
    r->branches = l->s.branches;
    r->nblocks = c->nblocks;
    r->block_tokens = c->nblocks ? trace_format_info(p->w->trace_format)->block_tokens : 0;
    r->blocks = c->blocks;
    r->talk = l->talk ? &l->talk[i] : NULL;
}

/* ---- the plan ---- */

static int open_trace(const struct plan *p, struct trace **out, struct err *e) {
    struct trace_options o = {.force = true};
    return trace_open(p->w->trace_path, p->w->trace_format, &o, out, e);
}

static int replay_open(struct plan *p, struct err *e) {
    struct replay *x = p->replay = calloc(1, sizeof *x);
    if (!x)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    p->next = 0;
    x->play = 1;
    int rc = grow(x, e);
    return rc ? rc : open_trace(p, &x->trace, e);
}

static bool fits(const struct workload *w, const struct session *s) {
    for (uint32_t i = 0; w->trace_max_context && i < s->ncalls; i++)
        if ((int64_t)s->call[i].isl + s->call[i].osl > w->trace_max_context)
            return false;
    return true;
}

/* The next recorded session, plays of the trace one after the other. */
static int next_session(struct plan *p, struct session *s, bool *end, struct err *e) {
    struct replay *x = p->replay;
    for (;;) {
        int rc = trace_next_session(x->trace, s, end, e);
        if (rc)
            return rc;
        if (!*end && fits(p->w, s)) {
            x->of_this_play++;
            return 0;
        }
        session_clear(s);
        x->left_out += !*end && x->play == 1;
        if (!*end)
            continue;
        if (!x->of_this_play || (p->w->trace_plays && x->play == (uint64_t)p->w->trace_plays))
            return 0;
        trace_close(x->trace);
        x->trace = NULL;
        if ((rc = open_trace(p, &x->trace, e)))
            return rc;
        x->play++;
        x->of_this_play = 0;
    }
}

static uint64_t room(const struct plan *p) {
    uint64_t all = p->measured == UINT64_MAX ? UINT64_MAX : p->warmup + p->measured;
    return all - p->next;
}

static int replay_next(struct plan *p, struct request *r, bool *end, struct err *e) {
    struct replay *x = p->replay;
    for (;;) {
        struct live *l = calloc(1, sizeof *l);
        if (!l)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        *end = room(p) == 0;
        int rc = *end ? 0 : next_session(p, &l->s, end, e);
        if (rc || *end) {
            live_free(l);
            return rc;
        }
        l->session = x->sessions++;
        l->first_id = p->next;
        l->ncalls = l->s.ncalls < room(p) ? l->s.ncalls : (uint32_t)room(p);
        p->next += l->ncalls;
        if (l->session % p->shards != p->shard) {
            live_free(l);
            continue;
        }
        if ((rc = prepare(p->w, l, x->play, e)) || (x->live >= x->buckets && (rc = grow(x, e)))) {
            live_free(l);
            return rc;
        }
        struct live **b = bucket_of(x, l->session);
        l->next = *b;
        *b = l;
        x->live++;
        l->outstanding = 1;
        fill(p, l, 0, r);
        return 0;
    }
}

static struct live *find(const struct replay *x, const struct request *r) {
    struct live *l = *bucket_of(x, r->session);
    while (l && l->session != r->session)
        l = l->next;
    assert(l && r->id >= l->first_id && r->id - l->first_id < l->ncalls);
    return l;
}

/* One of those that were given out is no more. */
static bool settle(struct replay *x, struct live *l) {
    bool over = l->outstanding == 0;
    if (over)
        forget(x, l);
    return over;
}

void plan_withdraw(struct plan *p, const struct request *r, bool *over) {
    struct live *l = find(p->replay, r);
    l->outstanding--;
    *over = settle(p->replay, l);
}

static int replay_done(struct plan *p, const struct request *done, int64_t end_ns,
                       uint32_t output_tokens, bool failed, bool *over, struct err *e) {
    struct replay *x = p->replay;
    struct live *l = find(x, done);
    (void)output_tokens;
    uint32_t call = (uint32_t)(done->id - l->first_id);
    l->outstanding--;
    l->failed |= failed;
    for (uint32_t k = l->first_follower[call]; k < l->first_follower[call + 1] && !l->failed; k++) {
        const struct follower *f = &l->follower[k];
        if (l->due_ns[f->call] < end_ns + f->delay_ns)
            l->due_ns[f->call] = end_ns + f->delay_ns;
        if (--l->pending[f->call])
            continue;
        struct request r;
        fill(p, l, f->call, &r);
        l->outstanding++;
        int rc = plan_push_ready(p, &r, l->due_ns[f->call], e);
        if (rc)
            return rc;
    }
    *over = settle(x, l);
    return 0;
}

static int64_t replay_total(const struct plan *p) {
    (void)p;
    return -1; /* the trace's end or the run's will tell */
}

static void replay_close(struct plan *p) {
    struct replay *x = p->replay;
    if (!x)
        return;
    for (size_t i = 0; i < x->buckets; i++)
        while (x->bucket[i])
            forget(x, x->bucket[i]);
    free(x->bucket);
    trace_close(x->trace);
    free(x);
}

uint64_t plan_left_out(const struct plan *p) {
    return p->replay ? p->replay->left_out : 0;
}

const struct plan_source plan_replay = {replay_open, replay_next, replay_done, replay_total,
                                        replay_close};
