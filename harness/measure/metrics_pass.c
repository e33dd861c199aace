/* The one pass over the merged events: per-request state of 56 bytes, a pool of token gaps, window
 * bookkeeping and all checks that a log makes sense. What is computed from it is in metrics.c. */
#include "harness/measure/metrics_internal.h"

#include <assert.h>
#include <stdlib.h>

enum {
    ID_SLACK = 1 << 20,  /* ids below this are always fine */
    ID_SPREAD = 256,     /* and up to so many times the requests seen: 1 KiB of index a request */
};
#define ID_MAX (UINT64_C(1) << 31)

/* --- ids ---------------------------------------------------------------------------------------- */

static int id_grow(struct id_map *m, uint64_t id, const char *what, struct err *e) {
    if (id >= ID_MAX || id >= ID_SLACK + (uint64_t)ID_SPREAD * m->n)
        return err_set(e, ASSAY_EINPUT,
                       "event log: %s id %llu after %u of them: ids must be dense from 0", what,
                       (unsigned long long)id, m->n);
    uint64_t cap = m->cap ? m->cap : 4096;
    while (cap <= id)
        cap *= 2;
    uint32_t *slot = calloc(cap, sizeof *slot); /* fresh pages: only what is used becomes real */
    if (!slot)
        return err_set(e, ASSAY_ENOMEM, "out of memory for %llu %s ids", (unsigned long long)cap,
                       what);
    if (m->cap)
        memcpy(slot, m->slot, m->cap * sizeof *slot);
    free(m->slot);
    m->slot = slot;
    m->cap = cap;
    return 0;
}

/* Makes room for `need` zeroed elements. */
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
    memset((char *)p + (size_t)*cap * size, 0, (want - *cap) * size);
    *a = p;
    *cap = (uint32_t)want;
    return 0;
}

/* --- one event ---------------------------------------------------------------------------------- */

static int nonsense(struct err *e, const struct event *ev, const char *why) {
    static const char *const name[EVENT_KIND_COUNT] = {
        "NONE", "MARK", "SESSION", "ISSUE", "SENT",       "TOKENS", "DONE",
        "FAIL", "USAGE", "STEP",   "EVAL",  "CHECKPOINT", "ENGINE"};
    return err_set(e, ASSAY_EINPUT, "event log: %s of request %llu at %lld ns of thread %u: %s",
                   name[ev->kind], (unsigned long long)ev->request, (long long)ev->time_ns,
                   ev->thread, why);
}

static int request_new(struct pass *p, const struct event *ev, uint32_t *slot, struct err *e) {
    int rc = ev->request < p->ids.cap ? 0 : id_grow(&p->ids, ev->request, "request", e);
    if (rc)
        return rc;
    if (p->ids.slot[ev->request]) {
        *slot = p->ids.slot[ev->request] - 1;
        return 0;
    }
    uint32_t n = p->ids.n;
    rc = grow(&p->req, &p->req_cap, n + 1ull, sizeof *p->req, e);
    if (rc == 0 && p->threads > 1)
        rc = grow(&p->thread_of, &p->thread_of_cap, n + 1ull, sizeof *p->thread_of, e);
    if (rc == 0 && p->any_session)
        rc = grow(&p->session_of, &p->session_of_cap, n + 1ull, sizeof *p->session_of, e);
    if (rc)
        return rc;
    if (p->thread_of)
        p->thread_of[n] = (uint16_t)ev->thread;
    p->ids.slot[ev->request] = n + 1;
    p->ids.n = n + 1;
    *slot = n;
    return 0;
}

static int on_mark(struct pass *p, const struct event *ev, struct err *e) {
    int64_t t = ev->a; /* the boundary; the event itself may come later */
    switch (ev->request) {
    case MARK_RUN_BEGIN:
        if (!p->any_run_begin)
            p->run_begin_ns = t; /* the first in time order */
        p->any_run_begin = true;
        return 0;
    case MARK_WINDOW_BEGIN:
        if (!p->any_begin)
            p->begin_ns = t;
        p->any_begin = true;
        if (!p->window[ev->thread].begun)
            p->window[ev->thread].begin_ns = t;
        p->window[ev->thread].begun = true;
        return 0;
    case MARK_WINDOW_END:
        p->end_ns = t; /* the last in time order */
        p->any_end = true;
        p->window[ev->thread].end_ns = t;
        p->window[ev->thread].ended = true;
        return 0;
    case MARK_RUN_END:
        return 0;
    case MARK_INTERRUPTED:
        p->interrupted = 1;
        return 0;
    default:
        return nonsense(e, ev, "unknown mark");
    }
}

static int on_session(struct pass *p, const struct event *ev, struct err *e) {
    uint32_t slot;
    p->any_session = true; /* from here on session_of follows; earlier requests belong to none */
    int rc = request_new(p, ev, &slot, e);
    if (rc)
        return rc;
    if (p->req[slot].flags)
        return nonsense(e, ev, "must be its first event");
    uint64_t id = (uint64_t)ev->a;
    rc = id < p->session_ids.cap ? 0 : id_grow(&p->session_ids, id, "session", e);
    if (rc)
        return rc;
    if (p->session_ids.slot[id] == 0) {
        rc = grow(&p->session, &p->session_cap, p->session_ids.n + 1ull, sizeof *p->session, e);
        if (rc)
            return rc;
        p->session_ids.slot[id] = ++p->session_ids.n;
    }
    p->session_of[slot] = p->session_ids.slot[id] - 1;
    p->req[slot].flags = REQ_IN_SESSION;
    return 0;
}

static void stamp(struct request_state *r, enum request_stamp s, uint64_t d) {
    r->lo[s] = (uint32_t)d;
    r->hi[s] = (uint16_t)(d >> 32);
}

static int on_issue(struct pass *p, const struct event *ev, struct err *e) {
    uint32_t slot;
    int rc = request_new(p, ev, &slot, e);
    if (rc)
        return rc;
    struct request_state *r = &p->req[slot];
    if (r->flags & REQ_ISSUED)
        return nonsense(e, ev, "issued twice");
    if (ev->a < 0 || ev->a >> 48 || ev->b < 0 || ev->b > UINT32_MAX)
        return nonsense(e, ev, "lateness or input tokens out of range");
    r->intended_ns = (int64_t)((uint64_t)ev->time_ns - (uint64_t)ev->a);
    if (r->intended_ns > ev->time_ns)
        return nonsense(e, ev, "intended time out of range");
    stamp(r, AT_ISSUE, (uint64_t)ev->a);
    r->in = (uint32_t)ev->b;
    r->flags |= REQ_ISSUED;
    if (!p->window[ev->thread].begun)
        r->flags |= REQ_PENDING;
    else if (r->intended_ns >= p->window[ev->thread].begin_ns &&
             !(p->window[ev->thread].ended &&
               r->intended_ns > p->window[ev->thread].end_ns))
        r->flags |= REQ_MEASURED;
    return 0;
}

/* What follows ISSUE and precedes DONE or FAIL. */
static int find_open(struct pass *p, const struct event *ev, uint32_t *slot, uint64_t *d,
                     struct err *e) {
    *slot = ev->request < p->ids.cap ? p->ids.slot[ev->request] : 0;
    if (*slot == 0 || !(p->req[*slot - 1].flags & REQ_ISSUED))
        return nonsense(e, ev, "without an ISSUE");
    --*slot;
    const struct request_state *r = &p->req[*slot];
    if (r->flags & (REQ_DONE | REQ_FAILED))
        return nonsense(e, ev, "after the request's end");
    *d = (uint64_t)ev->time_ns - (uint64_t)r->intended_ns;
    if (ev->time_ns < r->intended_ns || *d < request_at(r, AT_ISSUE))
        return nonsense(e, ev, "before its ISSUE");
    if (*d >> 48)
        return nonsense(e, ev, "more than 78 hours after the intended issue");
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
        p->gap = NULL;
        return 0;
    }
    size_t cap = p->gap_cap ? p->gap_cap * 2 : 65536;
    while (cap - p->gaps < n)
        cap *= 2;
    uint64_t *gap = realloc(p->gap, cap * sizeof *gap);
    if (!gap)
        return err_set(e, ASSAY_ENOMEM, "out of memory for %zu token gaps", cap);
    p->gap = gap;
    p->gap_cap = cap;
    return 0;
}

static inline int on_tokens(struct pass *p, const struct event *ev, struct err *e) {
    uint32_t slot;
    uint64_t d;
    int rc = find_open(p, ev, &slot, &d, e);
    if (rc)
        return rc;
    struct request_state *r = &p->req[slot];
    if (ev->a < 0 || ev->a > UINT32_MAX)
        return nonsense(e, ev, "token count out of range");
    p->token_events++;
    if (!(r->flags & REQ_TOKENS)) {
        r->flags |= REQ_TOKENS | (ev->a ? REQ_KNOWN_FIRST : 0);
        r->n_first = ev->a ? (uint32_t)ev->a : 1;
        stamp(r, AT_FIRST, d);
    } else {
        r->flags |= REQ_MANY;
        uint64_t gap = d - request_at(r, AT_LAST);
        if (!p->gaps_dropped) {
            bool big = gap >= UINT32_MAX;
            p->gap[p->gaps++] = (uint64_t)slot << 32 | (big ? UINT32_MAX : gap);
            if (big && (rc = push_big(p, gap, e)))
                return rc;
        }
    }
    stamp(r, AT_LAST, d);
    return 0;
}

static int on_end(struct pass *p, const struct event *ev, struct err *e) {
    uint32_t slot;
    uint64_t d;
    int rc = find_open(p, ev, &slot, &d, e);
    if (rc)
        return rc;
    struct request_state *r = &p->req[slot];
    stamp(r, AT_DONE, d);
    if (ev->kind == EVENT_FAIL) {
        if (ev->a <= FAIL_NONE || ev->a >= FAIL_CLASS_COUNT)
            return nonsense(e, ev, "unknown failure class");
        r->flags |= REQ_FAILED;
        r->out = (uint32_t)ev->a; /* a failed request's tokens count nowhere: keeps the class */
        return 0;
    }
    bool step = ev->kind == EVENT_STEP;
    if (ev->a < 0 || ev->a > UINT32_MAX || ev->b < 0 || ev->b > UINT32_MAX)
        return nonsense(e, ev, "count out of range");
    r->flags |= REQ_DONE | (step ? REQ_STEP : 0);
    r->out = (uint32_t)ev->a;
    if (step || ev->b)
        r->in = (uint32_t)ev->b; /* samples of a step, else input tokens as counted */
    p->any_step |= step;
    if (!(r->flags & REQ_TOKENS)) {
        stamp(r, AT_FIRST, d);
        stamp(r, AT_LAST, d); /* no token event: the answer's last sign is its end */
    }
    return 0;
}

static int on_other(struct pass *p, const struct event *ev, struct err *e) {
    uint32_t slot;
    uint64_t d;
    int rc;
    switch (ev->kind) {
    case EVENT_MARK:
        return on_mark(p, ev, e);
    case EVENT_SESSION:
        return on_session(p, ev, e);
    case EVENT_SENT:
        rc = find_open(p, ev, &slot, &d, e);
        if (rc)
            return rc;
        if (p->req[slot].flags & REQ_SENT)
            return nonsense(e, ev, "sent twice");
        if (!(p->req[slot].flags & REQ_TOKENS)) { /* an answer before the last byte: sent by then */
            p->req[slot].flags |= REQ_SENT;
            stamp(&p->req[slot], AT_SENT, d);
        }
        return 0;
    case EVENT_USAGE:
        rc = find_open(p, ev, &slot, &d, e);
        if (rc)
            return rc;
        if (ev->a < 0 || ev->a > UINT32_MAX)
            return nonsense(e, ev, "cached tokens out of range");
        p->req[slot].flags |= REQ_USAGE;
        p->req[slot].cached = (uint32_t)ev->a;
        p->any_usage = true;
        return 0;
    case EVENT_EVAL:
    case EVENT_CHECKPOINT:
        if (ev->a < 0)
            return nonsense(e, ev, "negative duration");
        if (ev->kind == EVENT_EVAL) {
            p->eval_n++;
            p->eval_ns += (double)ev->a;
            p->eval_score = (double)ev->b / 1e6;
        } else {
            p->checkpoint_n++;
            p->checkpoint_ns += (double)ev->a;
        }
        return 0;
    default:
        return 0; /* ENGINE: no figure comes from it */
    }
}

/* --- the end ------------------------------------------------------------------------------------ */

static bool in_window(const struct pass *p, uint32_t slot) {
    const struct request_state *r = &p->req[slot];
    if (!(r->flags & REQ_PENDING))
        return r->flags & REQ_MEASURED;
    if (!p->any_begin)
        return true;
    if (p->window[p->thread_of ? p->thread_of[slot] : 0].begun)
        return false; /* issued before its own thread's window */
    return r->intended_ns >= p->begin_ns && !(p->any_end && r->intended_ns > p->end_ns);
}

static void finish_session(struct pass *p, uint32_t slot) {
    const struct request_state *r = &p->req[slot];
    struct session_state *s = &p->session[p->session_of[slot]];
    if (!(r->flags & REQ_MEASURED))
        s->flags |= SESSION_OUTSIDE;
    if (r->flags & REQ_FAILED)
        s->flags |= SESSION_FAILED;
    if (!(r->flags & (REQ_FAILED | REQ_DONE)))
        s->flags |= SESSION_OPEN;
    int64_t done = r->intended_ns + (int64_t)request_at(r, AT_DONE);
    if (s->turns == 0 || r->intended_ns < s->first_ns)
        s->first_ns = r->intended_ns;
    if (s->turns == 0 || done > s->last_ns)
        s->last_ns = done;
    s->turns++;
}

static void finish(struct pass *p) {
    bool any = false, any_issue = false;
    for (uint32_t i = 0; i < p->ids.n; i++) {
        struct request_state *r = &p->req[i];
        if (!(r->flags & REQ_ISSUED))
            continue; /* SESSION without ISSUE: the run ended in between */
        bool measured = in_window(p, i);
        r->flags = (uint16_t)(measured ? r->flags | REQ_MEASURED : r->flags & ~REQ_MEASURED);
        if (r->flags & REQ_IN_SESSION)
            finish_session(p, i);
        if (!measured) {
            p->warmup++;
            continue;
        }
        p->issued++;
        if (!(r->flags & (REQ_DONE | REQ_FAILED))) {
            p->in_flight++;
            continue;
        }
        int64_t done = r->intended_ns + (int64_t)request_at(r, AT_DONE);
        if (!any || done > p->last_done_ns)
            p->last_done_ns = done;
        any = true;
        if (r->flags & REQ_FAILED) {
            p->failed++;
            p->by_class[r->out]++;
            continue;
        }
        p->completed++;
        int64_t issue = r->intended_ns + (int64_t)request_at(r, AT_ISSUE);
        if (!any_issue || issue < p->first_issue_ns)
            p->first_issue_ns = issue;
        any_issue = true;
        if (r->flags & REQ_STEP) {
            p->step_tokens += r->out;
            p->step_samples += r->in;
        } else {
            p->input_tokens += r->in;
            p->output_tokens += r->out;
            p->cached_tokens += r->cached < r->in ? r->cached : r->in;
        }
    }
    if (!p->any_begin)
        p->begin_ns = p->any_run_begin ? p->run_begin_ns : p->first_event_ns;
    int64_t end = p->begin_ns;
    if (p->any_end && p->end_ns > end)
        end = p->end_ns;
    if (any && p->last_done_ns > end)
        end = p->last_done_ns;
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
        rc = reserve_gaps(p, v.n, e);
        for (uint32_t i = 0; i < v.n && rc == 0; i++) {
            struct event ev = {v.time_ns[i], v.request[i], v.a[i], v.b[i], v.thread, v.kind[i]};
            switch (ev.kind) {
            case EVENT_TOKENS:
                rc = on_tokens(p, &ev, e);
                break;
            case EVENT_ISSUE:
                rc = on_issue(p, &ev, e);
                break;
            case EVENT_DONE:
            case EVENT_FAIL:
            case EVENT_STEP:
                rc = on_end(p, &ev, e);
                break;
            default:
                rc = on_other(p, &ev, e);
                break;
            }
        }
        if (rc)
            goto out;
    }
out:
    eventlog_close(reader);
    if (rc == 0)
        finish(p);
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
    free(p->big);
    free(p->window);
    *p = (struct pass){0};
}
