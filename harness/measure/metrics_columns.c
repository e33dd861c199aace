/* Columns of observations, drawn from the per-request state in blocks: once to count, once to gather
 * (order.h). Columns that must come out equal (no lateness, nothing after the last token, one token an
 * event) are computed once. */
#include "harness/measure/metrics_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 256 };

/* Which requests have a value. */
enum mask {
    MASK_COUNTS,    /* completed and measured */
    MASK_STREAMED,
    MASK_TPOT,      /* streamed, N > tokens of the first event */
    MASK_TPOT_1,    /* streamed, N > 1 */
    MASK_RATE_ITL,  /* and not all tokens at once */
    MASK_TOKENS,    /* N > 0 */
    MASK_RATE_DONE, /* took time */
    MASK_LATENESS,  /* measured, whatever became of it */
    MASK_STEP,
    MASK_COUNT
};

static const struct {
    enum mask mask;
    bool integer;
} kind[COL_COUNT] = {
    [COL_TTFT] = {MASK_STREAMED, true},
    [COL_SERVICE_TTFT] = {MASK_STREAMED, true},
    [COL_TPOT] = {MASK_TPOT, false},
    [COL_E2E] = {MASK_COUNTS, true},
    [COL_SERVICE_E2E] = {MASK_COUNTS, true},
    [COL_LATENESS] = {MASK_LATENESS, true},
    [COL_ITL] = {MASK_COUNT, true}, /* from the pool of gaps */
    [COL_STEP] = {MASK_STEP, true},
    [COL_SESSION_E2E] = {MASK_COUNT, true}, /* from the sessions */
    [COL_SESSION_TURNS] = {MASK_COUNT, true},
    [COL_ISSUE_TTFT] = {MASK_STREAMED, true},
    [COL_ISSUE_E2E] = {MASK_COUNTS, true},
    [COL_ISSUE_DONE] = {MASK_COUNTS, true},
    [COL_INTENDED_DONE] = {MASK_COUNTS, true},
    [COL_TPOT_1] = {MASK_TPOT_1, false},
    [COL_TPOT_DONE] = {MASK_TPOT, false},
    [COL_TPOT_DIV] = {MASK_TPOT_1, true},
    [COL_TIME_PER_TOKEN] = {MASK_TOKENS, false},
    [COL_NTPOT] = {MASK_TOKENS, false},
    [COL_RATE_ITL] = {MASK_RATE_ITL, false},
    [COL_RATE_DONE] = {MASK_RATE_DONE, false},
    [COL_ISL] = {MASK_COUNTS, true},
    [COL_OSL] = {MASK_COUNTS, true},
    [COL_TTFT_LO] = {MASK_STREAMED, true},
    [COL_E2E_LO] = {MASK_COUNTS, true},
    [COL_TPOT_LO] = {MASK_TPOT, false},
    [COL_TPOT_HI] = {MASK_TPOT, false},
    [COL_ITL_LO] = {MASK_COUNT, true},
    [COL_ITL_HI] = {MASK_COUNT, true},
    [COL_SESSION_LO] = {MASK_COUNT, true},
    [COL_ITL_TOKENS] = {MASK_COUNT, true},
};

/* A block of requests, field by field; stamps are exact in doubles (48 bits). */
struct block {
    double issue[BLOCK], sent[BLOCK], first[BLOCK], last[BLOCK], done[BLOCK];
    double n[BLOCK], n_first[BLOCK], in[BLOCK];
    double bound_first[BLOCK], bound_last[BLOCK]; /* ns */
    uint16_t masks[BLOCK]; /* bit m = enum mask m */
    unsigned any, all;     /* masks that are set for some, for every request */
    int size;
};

static void unpack(struct block *b, const struct pass *p, uint32_t from) {
    uint32_t left = p->ids.n - from;
    int size = left < BLOCK ? (int)left : BLOCK;
    unsigned any = 0, all = UINT32_MAX;
    for (int i = 0; i < size; i++) {
        const struct request_state *r = &p->req[from + (uint32_t)i];
        unsigned f = request_flags(r), m = 0;
        uint64_t issue = request_at(r, AT_ISSUE), first = request_at(r, AT_FIRST),
                 last = request_at(r, AT_LAST), done = request_at(r, AT_DONE);
        uint32_t n = r->out, n_first = request_n_first(r);
        b->issue[i] = (double)(int64_t)issue;
        b->sent[i] = f & REQ_SENT ? (double)(int64_t)request_at(r, AT_SENT) : b->issue[i];
        b->first[i] = (double)(int64_t)first;
        b->last[i] = (double)(int64_t)last;
        b->done[i] = (double)(int64_t)done;
        b->n[i] = (double)n;
        b->n_first[i] = (double)n_first;
        b->in[i] = (double)r->in;
        if (p->any_bound) {
            b->bound_first[i] = (double)event_bound_ns(r->bound[BOUND_FIRST]);
            b->bound_last[i] = (double)event_bound_ns(r->bound[BOUND_LAST]);
        }
        if ((f & (REQ_MEASURED | REQ_ISSUED)) == (REQ_MEASURED | REQ_ISSUED))
            m = f & REQ_STEP ? 1u << MASK_STEP : 1u << MASK_LATENESS;
        if (request_counts(r)) {
            m |= 1u << MASK_COUNTS | (unsigned)(n > 0) << MASK_TOKENS |
                 (unsigned)(done > issue) << MASK_RATE_DONE;
            if (request_streamed(r))
                m |= 1u << MASK_STREAMED | (unsigned)(n > n_first) << MASK_TPOT |
                     (unsigned)(n > 1) << MASK_TPOT_1 |
                     (unsigned)(n > 1 && last > first) << MASK_RATE_ITL;
        }
        b->masks[i] = (uint16_t)m;
        any |= m;
        all &= m;
    }
    b->any = any;
    b->all = all;
    b->size = size;
}

static inline double positive(double x) {
    return x > 0 ? x : 0;
}

#define EACH(expression)                                                                           \
    for (int i = 0; i < BLOCK; i++)                                                                \
        x[i] = (expression);                                                                       \
    break

/* The column's values of a block, those without one squeezed out; returns how many. What lies past
 * the block's size is computed too (the trip count is then a constant) and dropped. */
static size_t values_of(enum column_id id, const struct block *restrict b, double *restrict x) {
    const double *issue = b->issue, *sent = b->sent, *first = b->first, *last = b->last,
                 *done = b->done, *n = b->n;
    switch (id) {
    case COL_TTFT:
        EACH(first[i]);
    case COL_SERVICE_TTFT:
        EACH(first[i] - sent[i]);
    case COL_TPOT:
        EACH((last[i] - first[i]) / (n[i] - b->n_first[i]));
    case COL_E2E:
        EACH(last[i]);
    case COL_SERVICE_E2E:
        EACH(last[i] - sent[i]);
    case COL_LATENESS:
        EACH(sent[i]);
    case COL_STEP:
    case COL_ISSUE_DONE:
        EACH(done[i] - issue[i]);
    case COL_ISSUE_TTFT:
        EACH(first[i] - issue[i]);
    case COL_ISSUE_E2E:
        EACH(last[i] - issue[i]);
    case COL_INTENDED_DONE:
        EACH(done[i]);
    case COL_TPOT_1:
        EACH((last[i] - first[i]) / (n[i] - 1));
    case COL_TPOT_DONE:
        EACH((done[i] - first[i]) / (n[i] - b->n_first[i]));
    case COL_TPOT_DIV: /* whole division; the quotient's error is below 1/(N - 1) */
        for (int i = 0; i < BLOCK; i++)
            x[i] = n[i] > 1 ? (double)(int64_t)((done[i] - first[i]) / (n[i] - 1)) : 0;
        break;
    case COL_TIME_PER_TOKEN:
        EACH((last[i] - issue[i]) / n[i]);
    case COL_NTPOT:
        EACH((done[i] - issue[i]) / n[i]);
    case COL_RATE_ITL:
        EACH(1e9 * (n[i] - 1) / (last[i] - first[i]));
    case COL_RATE_DONE:
        EACH(1e9 * n[i] / (done[i] - issue[i]));
    case COL_TTFT_LO:
        EACH(positive(first[i] - sent[i] - b->bound_first[i]));
    case COL_E2E_LO:
        EACH(positive(last[i] - sent[i] - b->bound_last[i]));
    case COL_TPOT_LO:
        EACH(positive(last[i] - first[i] - b->bound_last[i]) / (n[i] - b->n_first[i]));
    case COL_TPOT_HI:
        EACH((last[i] - first[i] + b->bound_first[i]) / (n[i] - b->n_first[i]));
    case COL_ISL:
        EACH(b->in[i]);
    case COL_OSL:
        EACH(n[i]);
    default:
        return 0;
    }
    if (b->all >> kind[id].mask & 1)
        return (size_t)b->size;
    size_t k = 0;
    for (int i = 0; i < b->size; i++) {
        x[k] = x[i];
        k += b->masks[i] >> kind[id].mask & 1;
    }
    return k;
}
#undef EACH

/* Does f to every block of values of every column that is its own. */
typedef void column_fn(struct column *c, const double *x, size_t n);

/* The first sweep feeds, and counts each block just before it is unpacked; the second gathers for
 * the columns that want something. */
static void sweep_requests(struct pass *p, struct columns *cols, column_fn *fn,
                           const struct metrics_facts *f) {
    struct block b;
    double x[BLOCK];
    enum column_id own[COL_COUNT];
    int k = 0;
    for (int id = 0; id < COL_COUNT; id++)
        if (kind[id].mask != MASK_COUNT && cols->at[id] == &cols->own[id] &&
            (f || cols->own[id].parts || cols->own[id].want_sd))
            own[k++] = (enum column_id)id;
    memset(&b, 0, sizeof b);
    for (uint32_t from = 0; from < p->ids.n; from += BLOCK) {
        uint32_t left = p->ids.n - from;
        if (f)
            pass_count(p, from, from + (left < BLOCK ? left : BLOCK), f);
        unpack(&b, p, from);
        for (int j = 0; j < k; j++)
            if (b.any >> kind[own[j]].mask & 1)
                fn(&cols->own[own[j]], x, values_of(own[j], &b, x));
    }
}

static void sweep_sessions(const struct pass *p, struct columns *cols, column_fn *f) {
    for (uint32_t i = 0; i < p->session_ids.n; i++) {
        const struct session_state *s = &p->session[i];
        if (s->turns == 0 || s->flags)
            continue;
        double e2e = (double)(s->last_ns - s->first_ns), turns = (double)s->turns;
        f(&cols->own[COL_SESSION_E2E], &e2e, 1);
        f(&cols->own[COL_SESSION_TURNS], &turns, 1);
        if (p->any_bound) {
            double lo = positive(e2e - (double)s->client_ns);
            f(&cols->own[COL_SESSION_LO], &lo, 1);
        }
    }
}

/* The same gaps without the client's error: n of them, of which x[i] is that of bound[i]. */
static void shift_gaps(struct columns *cols, column_fn *f, const double *x, const uint16_t *bound,
                       size_t n) {
    double lo[BLOCK], hi[BLOCK];
    for (size_t i = 0; i < n; i++) {
        lo[i] = positive(x[i] - (double)event_bound_ns(bound[i] & 0xff));
        hi[i] = x[i] + (double)event_bound_ns(bound[i] >> 8);
    }
    f(&cols->own[COL_ITL_LO], lo, n);
    f(&cols->own[COL_ITL_HI], hi, n);
}

/* Gaps of completed measured requests; feeding keeps them, as doubles, in the pool's own memory. */
static void feed_gaps(struct pass *p, struct columns *cols) {
    size_t n = 0, big = 0;
    double x[BLOCK];
    for (size_t from = 0; from < p->gaps; from += BLOCK) {
        size_t k = 0, stop = p->gaps - from < BLOCK ? p->gaps : from + BLOCK;
        for (size_t i = from; i < stop; i++) {
            uint32_t ns = (uint32_t)p->gap[i];
            x[k] = (double)(ns == UINT32_MAX ? p->big[big++] : ns);
            if (p->gap_bound)
                p->gap_bound[n + k] = p->gap_bound[i]; /* n + k <= i */
            k += request_counts(&p->req[p->gap[i] >> 32]);
        }
        column_feed(&cols->own[COL_ITL], x, k);
        if (p->gap_bound)
            shift_gaps(cols, column_feed, x, p->gap_bound + n, k);
        memcpy(p->gap + n, x, k * sizeof x[0]); /* n <= from */
        n += k;
    }
    p->gaps = n;
}

static void gather_gaps(const struct pass *p, struct columns *cols, struct column *c) {
    double x[BLOCK];
    for (size_t from = 0; from < p->gaps; from += BLOCK) {
        size_t k = p->gaps - from < BLOCK ? p->gaps - from : BLOCK;
        memcpy(x, p->gap + from, k * sizeof x[0]);
        column_gather(c, x, k);
        if (p->gap_bound && c == &cols->own[COL_ITL])
            shift_gaps(cols, column_gather, x, p->gap_bound + from, k);
    }
}

static void alias(struct columns *c, bool when, enum column_id id, enum column_id same) {
    if (when && c->at[id] == &c->own[id])
        c->at[id] = c->at[same];
}

/* Which columns cannot differ in this run. Each rule points to a column that stays itself or to one
 * that was pointed on already. */
static void find_aliases(struct columns *c, const struct pass *p) {
    bool late = p->seen & SEEN_LATE, sent = p->seen & SEEN_SENT, tail = p->seen & SEEN_TAIL,
         spread = p->seen & SEEN_SPREAD, whole = p->seen & SEEN_UNSTREAMED,
         first = p->seen & SEEN_FIRST_MANY, many = p->seen & SEEN_TOKENS_NOT_1;
    for (int id = COL_TTFT_LO; id <= COL_SESSION_LO; id++) /* nobody asks for them then */
        alias(c, !p->any_bound, (enum column_id)id, COL_E2E);
    alias(c, !spread && !whole, COL_E2E, COL_TTFT);
    alias(c, !sent && !late, COL_SERVICE_TTFT, COL_TTFT);
    alias(c, !spread && !whole, COL_SERVICE_E2E, COL_SERVICE_TTFT);
    alias(c, !sent && !late, COL_SERVICE_E2E, COL_E2E);
    alias(c, !late, COL_ISSUE_TTFT, COL_TTFT);
    alias(c, !sent, COL_ISSUE_TTFT, COL_SERVICE_TTFT);
    alias(c, !late, COL_ISSUE_E2E, COL_E2E);
    alias(c, !sent, COL_ISSUE_E2E, COL_SERVICE_E2E);
    alias(c, !spread && !whole, COL_ISSUE_E2E, COL_ISSUE_TTFT);
    alias(c, !tail, COL_ISSUE_DONE, COL_ISSUE_E2E);
    alias(c, !tail, COL_INTENDED_DONE, COL_E2E);
    alias(c, !late, COL_INTENDED_DONE, COL_ISSUE_DONE);
    alias(c, !first, COL_TPOT_1, COL_TPOT);
    alias(c, !tail, COL_TPOT_DONE, COL_TPOT);
    alias(c, !many, COL_TIME_PER_TOKEN, COL_ISSUE_E2E);
    alias(c, !tail, COL_NTPOT, COL_TIME_PER_TOKEN);
    alias(c, !many, COL_NTPOT, COL_ISSUE_DONE);
}

int columns_feed(struct pass *p, struct columns *cols, const struct metrics_facts *f,
                 struct err *e) {
    cols->own = calloc(COL_COUNT, sizeof *cols->own);
    if (!cols->own)
        return err_set(e, ASSAY_ENOMEM, "out of memory for metrics");
    for (int id = 0; id < COL_COUNT; id++) {
        cols->own[id].integer = kind[id].integer;
        cols->at[id] = &cols->own[id];
    }
    find_aliases(cols, p);
    if (p->ids.n == 0)
        pass_count(p, 0, 0, f);
    sweep_requests(p, cols, column_feed, f);
    sweep_sessions(p, cols, column_feed);
    if (!p->gaps_dropped)
        feed_gaps(p, cols);
    /* events = gaps + streamed requests; each further token of an event is a gap of 0 more */
    int64_t zeros = p->streamed_tokens - (int64_t)p->gaps - cols->at[COL_TTFT]->n;
    struct column *tokens = &cols->own[COL_ITL_TOKENS];
    if (zeros > 0 && !p->gaps_dropped) {
        *tokens = cols->own[COL_ITL];
        tokens->extra_zeros = zeros;
        column_fed(tokens);
    } else {
        cols->at[COL_ITL_TOKENS] = &cols->own[COL_ITL];
    }
    for (int id = 0; id < COL_ITL_TOKENS; id++)
        column_fed(&cols->own[id]);
    return 0;
}

int columns_solve(struct pass *p, struct columns *cols, struct err *e) {
    for (int id = 0; id < COL_COUNT; id++) {
        int rc = column_plan(&cols->own[id], e);
        if (rc)
            return rc;
    }
    sweep_requests(p, cols, column_gather, NULL);
    sweep_sessions(p, cols, column_gather);
    gather_gaps(p, cols, &cols->own[COL_ITL]);
    if (cols->at[COL_ITL_TOKENS] == &cols->own[COL_ITL_TOKENS])
        gather_gaps(p, cols, &cols->own[COL_ITL_TOKENS]);
    for (int id = 0; id < COL_COUNT; id++) {
        int rc = column_finish(&cols->own[id], e);
        if (rc)
            return rc;
    }
    return 0;
}

void columns_release(struct columns *cols) {
    for (int id = 0; cols->own && id < COL_COUNT; id++)
        column_release(&cols->own[id]);
    free(cols->own);
    cols->own = NULL;
}
