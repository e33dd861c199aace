/* The one pass over the merged events: per-request state of 64 bytes, a pool of token gaps, window
 * bookkeeping and all checks that a log makes sense. What is computed from it is in metrics.c. */
#include "harness/core/int128.h"
#include "harness/measure/metrics_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    ID_SLACK = 1 << 20,  /* ids below this are always fine */
    ID_SPREAD = 256,     /* and up to so many times the requests seen: 1 KiB of index a request */
};
#define ID_MAX (UINT64_C(1) << 31)
/* No two stamps are further apart, so that no difference of sums of them overflows. */
#define SPAN_MAX_NS (INT64_MAX / 4)

/* --- memory -------------------------------------------------------------------------------------- */

/* A large array of which every page will be used: the fault for each 4 KiB costs more than all that is
 * done with what they hold. */
static void use_large_pages(void *p, size_t bytes) {
    enum { SMALL_PAGE = 4096, LARGE_PAGE = 2 << 20 };
    uintptr_t from = (uintptr_t)p & ~(uintptr_t)(SMALL_PAGE - 1); /* one mapping stays one, so it can grow */
    if (bytes >= 2 * LARGE_PAGE) /* merely advice: what it returns does not matter */
        madvise((void *)from, (size_t)((uintptr_t)p + bytes - from), MADV_HUGEPAGE);
}

/* --- ids ---------------------------------------------------------------------------------------- */

static int id_grow(struct id_map *m, uint64_t id, const char *what, struct err *e) {
    if (id >= ID_MAX || id >= ID_SLACK + (uint64_t)ID_SPREAD * m->n)
        return err_set(e, ASSAY_EINPUT,
                       "event log: %s id %llu after %u of them: ids must be dense from 0", what,
                       (unsigned long long)id, m->n);
    uint64_t cap = m->cap ? m->cap : 4096;
    while (cap <= id)
        cap *= 2;
    /* Dense ids, the rule: grown in place and cleared. Sparse ones: fresh pages that the system clears
     * as they are used, so that a hostile id costs no memory. */
    bool dense = cap <= 4096 + 4 * (uint64_t)m->n;
    uint32_t *slot = dense ? realloc(m->slot, cap * sizeof *slot) : calloc(cap, sizeof *slot);
    if (!slot)
        return err_set(e, ASSAY_ENOMEM, "out of memory for %llu %s ids", (unsigned long long)cap,
                       what);
    if (dense) {
        use_large_pages(slot, cap * sizeof *slot);
        memset(slot + m->cap, 0, (cap - m->cap) * sizeof *slot);
    } else {
        if (m->cap)
            memcpy(slot, m->slot, m->cap * sizeof *slot);
        free(m->slot);
    }
    m->slot = slot;
    m->cap = cap;
    return 0;
}

/* Makes room for `need` elements; what is new is not initialised (nor touched). */
static int grow(void *array, uint32_t *cap, uint64_t need, size_t size, struct err *e) {
    void **a = array;
    if (need <= *cap)
        return 0;
    uint64_t want = *cap ? *cap : 1024;
    while (want < need)
        want *= 2;
    void *p = want <= UINT32_MAX ? realloc(*a, want * size) : NULL;
    if (!p)
        return err_set(e, ASSAY_ENOMEM, "out of memory for %llu requests", (unsigned long long)want);
    use_large_pages(p, want * size);
    *a = p;
    *cap = (uint32_t)want;
    return 0;
}

/* --- one event ---------------------------------------------------------------------------------- */

/* An event is the i-th of a view; copied out only to complain. */
static int nonsense(struct err *e, const struct eventlog_view *v, uint32_t i, const char *why) {
    static const char *const name[EVENT_KIND_COUNT] = {
        "NONE", "MARK", "SESSION", "ISSUE", "SENT",       "TOKENS", "DONE",
        "FAIL", "USAGE", "STEP",   "EVAL",  "CHECKPOINT", "ENGINE"};
    return err_set(e, ASSAY_EINPUT, "event log: %s of request %llu at %lld ns of thread %u: %s",
                   name[v->kind[i]], (unsigned long long)v->request[i],
                   (long long)v->time_ns[i], v->thread, why);
}

static int request_room(struct pass *p, struct err *e) {
    uint64_t n = p->ids.n + UINT64_C(1);
    int rc = grow(&p->req, &p->req_cap, n, sizeof *p->req, e);
    if (rc == 0 && p->threads > 1)
        rc = grow(&p->thread_of, &p->thread_of_cap, n, sizeof *p->thread_of, e);
    if (rc == 0 && p->any_session)
        rc = grow(&p->session_of, &p->session_of_cap, n, sizeof *p->session_of, e);
    return rc;
}

/* The request's slot, a new one if need be. */
static int request_slot(struct pass *p, const struct eventlog_view *v, uint32_t i, uint32_t *slot,
                        struct err *e) {
    uint64_t id = v->request[i];
    int rc = 0;
    if (id >= p->ids.cap && (rc = id_grow(&p->ids, id, "request", e)))
        return rc;
    if (p->ids.slot[id]) {
        *slot = p->ids.slot[id] - 1;
        return 0;
    }
    uint32_t n = p->ids.n;
    if ((n == p->req_cap || (p->threads > 1 && n == p->thread_of_cap) ||
         (p->any_session && n >= p->session_of_cap)) &&
        (rc = request_room(p, e)))
        return rc;
    p->req[n] = (struct request_state){0};
    if (p->session_of)
        p->session_of[n] = 0;
    if (p->thread_of)
        p->thread_of[n] = (uint16_t)v->thread;
    p->ids.slot[id] = n + 1;
    p->ids.n = n + 1;
    *slot = n;
    return 0;
}

static void earlier(int64_t *t, int64_t x) {
    *t = x < *t ? x : *t;
}

static void later(int64_t *t, int64_t x) {
    *t = x > *t ? x : *t;
}

/* The boundary is the mark's a; the event itself may come later. */
static int on_mark(struct pass *p, const struct eventlog_view *v, uint32_t i, struct err *e) {
    int64_t t = v->a[i], away;
    if (__builtin_sub_overflow(t, p->first_event_ns, &away) || away > SPAN_MAX_NS ||
        away < -SPAN_MAX_NS)
        return nonsense(e, v, i, "boundary more than 73 years away");
    switch (v->request[i]) {
    case MARK_RUN_BEGIN:
        if (!p->any_run_begin)
            p->run_begin_ns = t;
        earlier(&p->run_begin_ns, t);
        p->any_run_begin = true;
        return 0;
    case MARK_WINDOW_BEGIN:
        if (!p->any_begin)
            p->begin_ns = t;
        earlier(&p->begin_ns, t);
        p->any_begin = true;
        if (!p->window[v->thread].begun)
            p->window[v->thread].begin_ns = t;
        p->window[v->thread].begun = true;
        return 0;
    case MARK_WINDOW_END:
        if (!p->any_end)
            p->end_ns = t;
        later(&p->end_ns, t);
        p->any_end = true;
        p->window[v->thread].end_ns = t;
        p->window[v->thread].ended = true;
        return 0;
    case MARK_RUN_END:
        return 0;
    case MARK_INTERRUPTED:
        p->interrupted = 1;
        return 0;
    default:
        return nonsense(e, v, i, "unknown mark");
    }
}

static int on_session(struct pass *p, const struct eventlog_view *v, uint32_t i, struct err *e) {
    uint32_t slot;
    p->any_session = true; /* from here on session_of follows; earlier requests belong to none */
    int rc = request_slot(p, v, i, &slot, e);
    if (rc)
        return rc;
    if (request_flags(&p->req[slot]))
        return nonsense(e, v, i, "must be its first event");
    uint64_t id = (uint64_t)v->a[i];
    rc = id < p->session_ids.cap ? 0 : id_grow(&p->session_ids, id, "session", e);
    if (rc)
        return rc;
    if (p->session_ids.slot[id] == 0) {
        rc = grow(&p->session, &p->session_cap, p->session_ids.n + UINT64_C(1), sizeof *p->session,
                  e);
        if (rc)
            return rc;
        p->session[p->session_ids.n] = (struct session_state){0};
        p->session_ids.slot[id] = ++p->session_ids.n;
    }
    p->session_of[slot] = p->session_ids.slot[id] - 1;
    unsigned group = turn_group(v->b[i] > 0 ? (uint64_t)v->b[i] : 0);
    request_flag(&p->req[slot], REQ_IN_SESSION | group << REQ_TURN_SHIFT);
    return 0;
}

static inline int on_issue(struct pass *p, const struct eventlog_view *v, uint32_t i,
                           struct err *e) {
    uint32_t slot = 0;
    int rc = request_slot(p, v, i, &slot, e);
    if (rc)
        return rc;
    struct request_state *r = &p->req[slot];
    int64_t late = v->a[i], t;
    if (request_flags(r) & REQ_ISSUED)
        return nonsense(e, v, i, "issued twice");
    if (late < 0 || late >> 48 || v->b[i] < 0 || v->b[i] > UINT32_MAX)
        return nonsense(e, v, i, "lateness or input tokens out of range");
    if (__builtin_sub_overflow(v->time_ns[i], late, &t))
        return nonsense(e, v, i, "intended time out of range");
    r->intended_ns = t;
    r->in = (uint32_t)v->b[i];
    unsigned flag = REQ_ISSUED;
    if (!p->window[v->thread].begun)
        flag |= REQ_PENDING;
    else if (t >= p->window[v->thread].begin_ns)
        flag |= REQ_MEASURED; /* the window's end is checked at the end */
    r->word[AT_ISSUE] = (uint64_t)late << 16 | request_flags(r) | flag;
    return 0;
}

/* What follows ISSUE and precedes DONE or FAIL: the request and the ns since its intended issue. */
static inline int find_open(struct pass *p, const struct eventlog_view *v, uint32_t i,
                            uint32_t *slot, uint64_t *d, struct err *e) {
    uint64_t id = v->request[i];
    uint32_t s = id < p->ids.cap ? p->ids.slot[id] : 0;
    if (s == 0)
        return nonsense(e, v, i, "without an ISSUE");
    const struct request_state *r = &p->req[s - 1];
    unsigned flags = request_flags(r);
    if (!(flags & REQ_ISSUED))
        return nonsense(e, v, i, "without an ISSUE");
    if (flags & (REQ_DONE | REQ_FAILED))
        return nonsense(e, v, i, "after the request's end");
    *slot = s - 1;
    /* time never goes back in the merged log, so d >= what was stamped before */
    *d = (uint64_t)v->time_ns[i] - (uint64_t)r->intended_ns;
    if (*d >> 48)
        return nonsense(e, v, i, "more than 78 hours after the intended issue");
    return 0;
}

static int push_big(struct pass *p, uint64_t gap, struct err *e) {
    if (p->bigs == p->big_cap) {
        size_t cap = p->big_cap ? p->big_cap * 2 : 256;
        uint64_t *big = realloc(p->big, cap * sizeof *big);
        if (!big)
            return err_set(e, ASSAY_ENOMEM, "out of memory for token gaps");
        p->big = big;
        p->big_cap = cap;
    }
    p->big[p->bigs++] = gap;
    return 0;
}

/* Room for n more gaps, so that the token path need not ask. */
static int reserve_gaps(struct pass *p, size_t n, struct err *e) {
    if (p->gap_cap - p->gaps >= n || p->gaps_dropped)
        return 0;
    if (p->gaps + n > METRICS_GAPS_MAX) {
        p->gaps_dropped = true;
        free(p->gap);
        free(p->gap_bound);
        p->gap = NULL;
        p->gap_bound = NULL;
        return 0;
    }
    size_t cap = p->gap_cap ? p->gap_cap * 2 : 65536;
    while (cap - p->gaps < n)
        cap *= 2;
    uint64_t *gap = realloc(p->gap, cap * sizeof *gap);
    if (gap)
        p->gap = gap;
    uint16_t *bound = gap && p->gap_bound ? realloc(p->gap_bound, cap * sizeof *bound) : NULL;
    if (!gap || (p->gap_bound && !bound))
        return err_set(e, ASSAY_ENOMEM, "out of memory for %zu token gaps", cap);
    use_large_pages(gap, cap * sizeof *gap);
    p->gap_bound = bound;
    p->gap_cap = cap;
    return 0;
}

/* The first stamp with a bound: from here on gaps have theirs, those before have none. */
static int first_bound(struct pass *p, struct err *e) {
    p->any_bound = true;
    if (p->gaps_dropped)
        return 0;
    p->gap_bound = calloc(p->gap_cap ? p->gap_cap : 1, sizeof *p->gap_bound);
    return p->gap_bound ? 0 : err_set(e, ASSAY_ENOMEM, "out of memory for token gaps");
}

static inline int on_tokens(struct pass *p, const struct eventlog_view *v, uint32_t i,
                            struct err *e) {
    uint32_t slot = 0;
    uint64_t d = 0;
    int rc = find_open(p, v, i, &slot, &d, e);
    if (rc)
        return rc;
    struct request_state *r = &p->req[slot];
    int64_t tokens = v->a[i];
    if (tokens < 0 || tokens > UINT32_MAX)
        return nonsense(e, v, i, "token count out of range");
    uint64_t bound = (uint64_t)v->b[i] >> EVENT_TOKENS_BOUND_SHIFT;
    if (bound > EVENT_BOUND_MAX)
        return nonsense(e, v, i, "flags or bound out of range");
    p->token_events++;
    p->bounds[bound]++;
    if (bound && !p->any_bound && (rc = first_bound(p, e)))
        return rc;
    if (!(request_flags(r) & REQ_TOKENS)) {
        request_flag(r, REQ_TOKENS | (tokens ? (unsigned)REQ_KNOWN_FIRST : 0u));
        request_stamp(r, AT_FIRST, d);
        request_set_half(r, AT_FIRST, AT_DONE, tokens ? (uint32_t)tokens : 1);
        r->bound[BOUND_FIRST] = (uint8_t)bound;
    } else {
        request_flag(r, REQ_MANY);
        uint64_t gap = d - request_at(r, AT_LAST);
        if (!p->gaps_dropped) {
            bool big = gap >= UINT32_MAX;
            if (p->gap_bound)
                p->gap_bound[p->gaps] = (uint16_t)(r->bound[BOUND_LAST] << 8 | (int)bound);
            p->gap[p->gaps++] = (uint64_t)slot << 32 | (big ? UINT32_MAX : gap);
            if (big && (rc = push_big(p, gap, e)))
                return rc;
        }
    }
    request_stamp(r, AT_LAST, d);
    r->bound[BOUND_LAST] = (uint8_t)bound;
    return 0;
}

static inline int on_end(struct pass *p, const struct eventlog_view *v, uint32_t i, struct err *e) {
    uint32_t slot = 0;
    uint64_t d = 0;
    int rc = find_open(p, v, i, &slot, &d, e);
    if (rc)
        return rc;
    struct request_state *r = &p->req[slot];
    int64_t a = v->a[i], b = v->b[i];
    request_stamp(r, AT_DONE, d);
    if (v->kind[i] == EVENT_FAIL) {
        if (a <= FAIL_NONE || a >= FAIL_CLASS_COUNT)
            return nonsense(e, v, i, "unknown failure class");
        request_flag(r, REQ_FAILED);
        r->out = (uint32_t)a; /* a failed request's tokens count nowhere: keeps the class */
        return 0;
    }
    bool step = v->kind[i] == EVENT_STEP;
    if (!step && b > 0) {
        if (b >> EVENT_DONE_BOUND_SHIFT > EVENT_BOUND_MAX)
            return nonsense(e, v, i, "bound out of range");
        r->bound[BOUND_DONE] = (uint8_t)(b >> EVENT_DONE_BOUND_SHIFT);
        b &= UINT32_MAX;
    }
    if (a < 0 || a > UINT32_MAX || b < 0 || b > UINT32_MAX)
        return nonsense(e, v, i, "count out of range");
    request_flag(r, REQ_DONE | (step ? (unsigned)REQ_STEP : 0u));
    r->out = (uint32_t)a;
    if (step || b)
        r->in = (uint32_t)b; /* samples of a step, else input tokens as counted */
    p->any_step |= step;
    if (!(request_flags(r) & REQ_TOKENS)) {
        request_stamp(r, AT_FIRST, d);
        request_stamp(r, AT_LAST, d); /* no token event: the answer's last sign is its end */
        r->bound[BOUND_FIRST] = r->bound[BOUND_LAST] = r->bound[BOUND_DONE];
        if (!step)
            p->bounds[r->bound[BOUND_DONE]]++;
        if (r->bound[BOUND_DONE] && !p->any_bound && (rc = first_bound(p, e)))
            return rc;
    }
    uint64_t late = request_at(r, AT_ISSUE), last = request_at(r, AT_LAST);
    unsigned flags = request_flags(r);
    p->seen |= (late ? SEEN_LATE : 0u) |
               (flags & REQ_SENT && request_at(r, AT_SENT) != late ? SEEN_SENT : 0u) |
               (d != last ? SEEN_TAIL : 0u) |
               (request_at(r, AT_FIRST) != last ? SEEN_SPREAD : 0u) |
               (request_streamed(r) ? 0u : SEEN_UNSTREAMED) |
               (request_n_first(r) != 1 ? SEEN_FIRST_MANY : 0u) |
               (r->out != 1 ? SEEN_TOKENS_NOT_1 : 0u);
    return 0;
}

static int on_other(struct pass *p, const struct eventlog_view *v, uint32_t i, struct err *e) {
    uint32_t slot = 0;
    uint64_t d = 0;
    int rc;
    switch (v->kind[i]) {
    case EVENT_MARK:
        return on_mark(p, v, i, e);
    case EVENT_SESSION:
        return on_session(p, v, i, e);
    case EVENT_SENT:
        rc = find_open(p, v, i, &slot, &d, e);
        if (rc)
            return rc;
        /* an answer before the last byte: sent by then, so the time of ISSUE stands. A request that
         * is sent again has the time of its last attempt. */
        if (!(request_flags(&p->req[slot]) & REQ_TOKENS)) {
            request_flag(&p->req[slot], REQ_SENT);
            request_stamp(&p->req[slot], AT_SENT, d);
        }
        return 0;
    case EVENT_USAGE:
        rc = find_open(p, v, i, &slot, &d, e);
        if (rc)
            return rc;
        if (v->a[i] < 0 || v->a[i] > UINT32_MAX)
            return nonsense(e, v, i, "cached tokens out of range");
        request_flag(&p->req[slot], REQ_USAGE);
        request_set_half(&p->req[slot], AT_SENT, AT_LAST, (uint32_t)v->a[i]);
        p->any_usage = true;
        return 0;
    case EVENT_EVAL:
    case EVENT_CHECKPOINT:
        if (v->a[i] < 0)
            return nonsense(e, v, i, "negative duration");
        if (v->kind[i] == EVENT_EVAL) {
            p->eval_n++;
            p->eval_ns += (double)v->a[i];
            p->eval_score = (double)v->b[i] / 1e6;
        } else {
            p->checkpoint_n++;
            p->checkpoint_ns += (double)v->a[i];
        }
        return 0;
    default:
        return 0; /* ENGINE: no figure comes from it */
    }
}

/* --- the end ------------------------------------------------------------------------------------ */

static bool in_window(const struct pass *p, uint32_t slot) {
    const struct request_state *r = &p->req[slot];
    uint32_t t = p->thread_of ? p->thread_of[slot] : 0;
    if (p->window[t].ended && r->intended_ns > p->window[t].end_ns)
        return false; /* its thread's mark came after it */
    if (!(request_flags(r) & REQ_PENDING))
        return request_flags(r) & REQ_MEASURED;
    if (!p->any_begin)
        return true;
    if (p->window[t].begun)
        return false; /* issued before its own thread's window */
    return r->intended_ns >= p->begin_ns && !(p->any_end && r->intended_ns > p->end_ns);
}

static void finish_session(struct pass *p, uint32_t slot) {
    const struct request_state *r = &p->req[slot];
    struct session_state *s = &p->session[p->session_of[slot]];
    unsigned f = request_flags(r);
    s->flags |= (f & REQ_MEASURED ? 0u : SESSION_OUTSIDE) | (f & REQ_FAILED ? SESSION_FAILED : 0u) |
                (f & (REQ_FAILED | REQ_DONE) ? 0u : SESSION_OPEN);
    int64_t done = r->intended_ns + (int64_t)request_at(r, AT_DONE);
    if (s->turns == 0 || r->intended_ns < s->first_ns)
        s->first_ns = r->intended_ns;
    if (s->turns == 0 || done > s->last_ns)
        s->last_ns = done;
    s->turns++;
    s->client_ns += (int64_t)request_sent(r) + request_end_bound(r);
}

/* Within every limit, inclusive; TPOT by integers: (last - first) <= limit * (N - n_first). */
static void judge(struct pass *p, const struct request_state *r, const struct metrics_facts *f,
                  bool streamed) {
    uint64_t issue = request_at(r, AT_ISSUE), first = request_at(r, AT_FIRST),
             last = request_at(r, AT_LAST);
    uint64_t ttft = (uint64_t)f->limit_ttft_ns, tpot = (uint64_t)f->limit_tpot_ns,
             e2e = (uint64_t)f->limit_e2e_ns;
    uint32_t n_first = request_n_first(r), after = r->out > n_first ? r->out - n_first : 0;
    p->good += !(ttft && (!streamed || first > ttft)) && !(e2e && last > e2e) &&
               !(tpot && streamed && after && last - first > (u128)tpot * after);
    double each = r->out > 1 ? (double)(last - first) / (double)(r->out - 1) : 0;
    p->good_compat += !(ttft && first - issue > ttft) && !(e2e && last - issue > e2e) &&
                      !(tpot && each > (double)tpot);
}

static void count_completed(struct pass *p, const struct request_state *r,
                            const struct metrics_facts *f) {
    uint64_t late = request_at(r, AT_ISSUE), first = request_at(r, AT_FIRST),
             last = request_at(r, AT_LAST), done = request_at(r, AT_DONE);
    unsigned flags = request_flags(r);
    int64_t issue = r->intended_ns + (int64_t)late;
    p->completed++;
    earlier(&p->first_issue_ns, issue);
    earlier(&p->first_intended_ns, r->intended_ns);
    later(&p->last_token_ns, r->intended_ns + (int64_t)last);
    if (issue >= p->last_issue_ns) {
        p->last_issue_ns = issue;
        p->last_issued_done_ns = r->intended_ns + (int64_t)done;
    }
    if (flags & REQ_STEP) {
        p->step_tokens += r->out;
        p->step_samples += r->in;
        return;
    }
    bool streamed = request_streamed(r);
    p->input_tokens += r->in;
    p->output_tokens += r->out;
    uint32_t cached = flags & REQ_USAGE ? request_cached(r) : 0;
    cached = cached < r->in ? cached : r->in;
    p->cached_tokens += cached;
    if (flags & REQ_IN_SESSION) {
        unsigned group = flags >> REQ_TURN_SHIFT & (TURN_GROUPS - 1);
        p->turn_input[group] += r->in;
        p->turn_cached[group] += cached;
    }
    if (streamed)
        p->streamed_tokens += r->out;
    if (streamed && r->out > 1) {
        p->decode_ns += last - first;
        p->decode_tokens += r->out - 1;
    }
    bool limits = f->limit_ttft_ns || f->limit_tpot_ns || f->limit_e2e_ns;
    if (limits)
        judge(p, r, f, streamed);
    if (p->any_bound)
        client_count(p, r, f, streamed, limits);
}

static void count_request(struct pass *p, uint32_t i, const struct metrics_facts *f) {
    struct request_state *r = &p->req[i];
    unsigned flags = request_flags(r);
    if (!(flags & REQ_ISSUED))
        return; /* SESSION without ISSUE: the run ended in between */
    bool measured = in_window(p, i);
    if (measured)
        request_flag(r, REQ_MEASURED);
    else
        r->word[AT_ISSUE] &= ~(uint64_t)REQ_MEASURED;
    if (flags & REQ_IN_SESSION)
        finish_session(p, i);
    if (!measured) {
        p->warmup++;
        return;
    }
    p->issued++;
    if (!(flags & (REQ_DONE | REQ_FAILED))) {
        p->in_flight++;
        return;
    }
    int64_t done = r->intended_ns + (int64_t)request_at(r, AT_DONE);
    if (done > p->last_done_ns)
        p->last_done_client_ns = 0; /* a completed one says */
    later(&p->last_done_ns, done);
    earlier(&p->first_start_ns, r->intended_ns + (int64_t)request_at(r, AT_ISSUE));
    if (flags & REQ_FAILED) {
        p->failed++;
        p->by_class[r->out]++;
    } else {
        count_completed(p, r, f);
    }
}

void pass_count(struct pass *p, uint32_t from, uint32_t to, const struct metrics_facts *f) {
    if (from == 0) {
        p->first_start_ns = p->first_issue_ns = p->first_intended_ns = INT64_MAX;
        p->last_done_ns = p->last_token_ns = p->last_issue_ns = INT64_MIN;
        if (!p->any_begin)
            p->begin_ns = p->any_run_begin ? p->run_begin_ns : p->first_event_ns;
    }
    for (uint32_t i = from; i < to; i++)
        count_request(p, i, f);
    if (to < p->ids.n)
        return;
    int64_t end = p->begin_ns;
    if (p->any_end)
        later(&end, p->end_ns);
    if (p->completed + p->failed)
        later(&end, p->last_done_ns);
    p->duration_ns = end - p->begin_ns;
}

int pass_run(struct pass *p, const struct eventlog_source *src, struct err *e) {
    struct eventlog_reader *reader = NULL;
    *p = (struct pass){0};
    int rc = eventlog_open(src, &reader, e);
    if (rc)
        return rc;
    p->threads = src->threads;
    p->window = calloc(src->threads, sizeof *p->window);
    if (!p->window) {
        rc = err_set(e, ASSAY_ENOMEM, "out of memory for %u threads", src->threads);
        goto out;
    }
    for (;;) {
        struct eventlog_view v;
        rc = eventlog_next(reader, &v, e);
        if (rc || v.n == 0)
            goto out;
        if (!p->any_event)
            p->first_event_ns = v.time_ns[0];
        p->any_event = true;
        p->events += v.n;
        int64_t span;
        if (__builtin_sub_overflow(v.time_ns[v.n - 1], p->first_event_ns, &span) ||
            span > SPAN_MAX_NS) {
            rc = err_set(e, ASSAY_EINPUT, "event log: spans more than 73 years");
            goto out;
        }
        rc = reserve_gaps(p, v.n, e);
        for (uint32_t i = 0; i < v.n && rc == 0; i++) {
            switch (v.kind[i]) {
            case EVENT_TOKENS:
                rc = on_tokens(p, &v, i, e);
                break;
            case EVENT_ISSUE:
                rc = on_issue(p, &v, i, e);
                break;
            case EVENT_DONE:
            case EVENT_FAIL:
            case EVENT_STEP:
                rc = on_end(p, &v, i, e);
                break;
            default:
                rc = on_other(p, &v, i, e);
                break;
            }
        }
        if (rc)
            goto out;
    }
out:
    eventlog_close(reader);
    return rc;
}

void pass_release(struct pass *p) {
    free(p->req);
    free(p->ids.slot);
    free(p->session_of);
    free(p->thread_of);
    free(p->session);
    free(p->session_ids.slot);
    free(p->gap);
    free(p->gap_bound);
    free(p->big);
    free(p->window);
    *p = (struct pass){0};
}
