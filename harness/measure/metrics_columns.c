/* Columns of observations, drawn from the per-request state eight at a time so that memory stays
 * bounded, and solved for the order statistics that the house and the other tools want. */
#include "harness/measure/metrics_internal.h"

#include <assert.h>
#include <stdlib.h>

enum { GROUP = 8 };

/* The value of a request, or false when it has none. Times are ns. */
static bool value_of(enum column_id id, const struct request_state *r, double *x) {
    uint64_t issue = request_at(r, AT_ISSUE), first = request_at(r, AT_FIRST),
             last = request_at(r, AT_LAST), done = request_at(r, AT_DONE);
    uint64_t sent = r->flags & REQ_SENT ? request_at(r, AT_SENT) : issue;
    bool streamed = request_streamed(r);
    uint32_t n = r->out;
    switch (id) {
    case COL_TTFT:
        *x = (double)first;
        return streamed;
    case COL_SERVICE_TTFT:
        *x = (double)(first - sent);
        return streamed;
    case COL_TPOT:
        if (!streamed || n <= r->n_first)
            return false;
        *x = (double)(last - first) / (double)(n - r->n_first);
        return true;
    case COL_E2E:
        *x = (double)last;
        return true;
    case COL_SERVICE_E2E:
        *x = (double)(last - sent);
        return true;
    case COL_ISSUE_TTFT:
        *x = (double)(first - issue);
        return streamed;
    case COL_ISSUE_E2E:
        *x = (double)(last - issue);
        return true;
    case COL_ISSUE_DONE:
        *x = (double)(done - issue);
        return true;
    case COL_INTENDED_DONE:
        *x = (double)done;
        return true;
    case COL_TPOT_1:
        if (!streamed || n < 2)
            return false;
        *x = (double)(last - first) / (double)(n - 1);
        return true;
    case COL_TPOT_DONE:
        if (!streamed || n <= r->n_first)
            return false;
        *x = (double)(done - first) / (double)(n - r->n_first);
        return true;
    case COL_TPOT_DIV:
        if (!streamed || n < 2)
            return false;
        *x = (double)((done - first) / (n - 1));
        return true;
    case COL_TIME_PER_TOKEN:
        if (n == 0)
            return false;
        *x = (double)(last - issue) / (double)n;
        return true;
    case COL_NTPOT:
        if (n == 0)
            return false;
        *x = (double)(done - issue) / (double)n;
        return true;
    case COL_RATE_ITL:
        if (!streamed || n < 2 || last == first)
            return false;
        *x = 1e9 * (double)(n - 1) / (double)(last - first);
        return true;
    case COL_RATE_E2E:
        if (last == issue)
            return false;
        *x = 1e9 * (double)n / (double)(last - issue);
        return true;
    case COL_RATE_DONE:
        if (done == issue)
            return false;
        *x = 1e9 * (double)n / (double)(done - issue);
        return true;
    case COL_ISL:
        *x = (double)r->in;
        return true;
    case COL_OSL:
        *x = (double)n;
        return true;
    default:
        return false;
    }
}

static const bool integer_column[COL_COUNT] = {
    [COL_TTFT] = true,         [COL_SERVICE_TTFT] = true, [COL_E2E] = true,
    [COL_SERVICE_E2E] = true,  [COL_LATENESS] = true,     [COL_ITL] = true,
    [COL_STEP] = true,         [COL_SESSION_E2E] = true,  [COL_SESSION_TURNS] = true,
    [COL_ISSUE_TTFT] = true,   [COL_ISSUE_E2E] = true,    [COL_ISSUE_DONE] = true,
    [COL_INTENDED_DONE] = true, [COL_TPOT_DIV] = true,    [COL_ISL] = true,
    [COL_OSL] = true,          [COL_ITL_TOKENS] = true,
};

static bool per_request(enum column_id id) {
    return id != COL_ITL && id != COL_ITL_TOKENS && id != COL_LATENESS && id != COL_STEP &&
           id != COL_SESSION_E2E && id != COL_SESSION_TURNS;
}

static uint64_t lateness(const struct request_state *r) {
    return request_at(r, r->flags & REQ_SENT ? AT_SENT : AT_ISSUE);
}

static bool session_counts(const struct session_state *s) {
    return s->turns && s->flags == 0;
}

/* Keeps the gaps of completed measured requests, as doubles, in the same memory. */
static void filter_gaps(struct pass *p) {
    size_t n = 0, big = 0;
    for (size_t i = 0; i < p->gaps; i++) {
        uint32_t ns = (uint32_t)p->gap[i];
        uint64_t gap = ns == UINT32_MAX ? p->big[big++] : ns;
        if (request_counts(&p->req[p->gap[i] >> 32]))
            p->gap[n++] = column_bits((double)gap);
    }
    p->gaps = n;
    p->gap_cap = n; /* the pass is over: nothing is pushed any more */
}

void columns_count(struct pass *p, struct column *col) {
    for (int id = 0; id < COL_COUNT; id++)
        col[id] = (struct column){.integer = integer_column[id]};
    int64_t inside = 0; /* tokens that share an event with an earlier one */
    for (uint32_t i = 0; i < p->ids.n; i++) {
        const struct request_state *r = &p->req[i];
        if (r->flags & REQ_MEASURED && r->flags & REQ_ISSUED && !(r->flags & REQ_STEP))
            col[COL_LATENESS].n++;
        if ((r->flags & (REQ_MEASURED | REQ_STEP)) == (REQ_MEASURED | REQ_STEP))
            col[COL_STEP].n++;
        if (!request_counts(r))
            continue;
        bool streamed = request_streamed(r);
        col[COL_TTFT].n += streamed;
        col[COL_E2E].n++;
        col[COL_TPOT].n += streamed && r->out > r->n_first;
        col[COL_TPOT_1].n += streamed && r->out > 1;
        col[COL_TIME_PER_TOKEN].n += r->out > 0;
        col[COL_RATE_ITL].n += streamed && r->out > 1 &&
                               request_at(r, AT_LAST) != request_at(r, AT_FIRST);
        col[COL_RATE_E2E].n += request_at(r, AT_LAST) != request_at(r, AT_ISSUE);
        col[COL_RATE_DONE].n += request_at(r, AT_DONE) != request_at(r, AT_ISSUE);
        if (streamed)
            inside += r->out;
    }
    col[COL_SERVICE_TTFT].n = col[COL_ISSUE_TTFT].n = col[COL_TTFT].n;
    col[COL_SERVICE_E2E].n = col[COL_ISSUE_E2E].n = col[COL_E2E].n;
    col[COL_ISSUE_DONE].n = col[COL_INTENDED_DONE].n = col[COL_E2E].n;
    col[COL_ISL].n = col[COL_OSL].n = col[COL_E2E].n;
    col[COL_TPOT_DONE].n = col[COL_TPOT].n;
    col[COL_TPOT_DIV].n = col[COL_TPOT_1].n;
    col[COL_NTPOT].n = col[COL_TIME_PER_TOKEN].n;

    for (uint32_t i = 0; i < p->session_ids.n; i++)
        col[COL_SESSION_E2E].n += session_counts(&p->session[i]);
    col[COL_SESSION_TURNS].n = col[COL_SESSION_E2E].n;

    if (!p->gaps_dropped) {
        filter_gaps(p);
        col[COL_ITL].n = col[COL_ITL_TOKENS].n = (int64_t)p->gaps;
        /* events = gaps + streamed requests; each further token is a gap of 0 */
        int64_t zeros = inside - (int64_t)p->gaps - col[COL_TTFT].n;
        col[COL_ITL_TOKENS].extra_zeros = zeros > 0 ? zeros : 0;
    }
}

static int64_t fill_others(const struct pass *p, enum column_id id, uint64_t *to) {
    int64_t n = 0;
    if (id == COL_SESSION_E2E || id == COL_SESSION_TURNS) {
        for (uint32_t i = 0; i < p->session_ids.n; i++) {
            const struct session_state *s = &p->session[i];
            if (session_counts(s))
                to[n++] = column_bits(id == COL_SESSION_TURNS ? (double)s->turns
                                                              : (double)(s->last_ns - s->first_ns));
        }
        return n;
    }
    for (uint32_t i = 0; i < p->ids.n; i++) {
        const struct request_state *r = &p->req[i];
        if (!(r->flags & REQ_MEASURED) || !(r->flags & REQ_ISSUED))
            continue;
        if (id == COL_LATENESS && !(r->flags & REQ_STEP))
            to[n++] = column_bits((double)lateness(r));
        if (id == COL_STEP && r->flags & REQ_STEP)
            to[n++] = column_bits((double)(request_at(r, AT_DONE) - request_at(r, AT_ISSUE)));
    }
    return n;
}

/* A column equal to one that is solved already (no lateness, no SENT, stream end = last token):
 * takes its answers if it has all that is wanted. */
static bool borrow(struct column *c, const struct column *from) {
    if (from->n != c->n || from->nranks < c->nranks ||
        memcmp(c->bits, from->bits, (size_t)c->n * sizeof *c->bits))
        return false;
    int j = 0;
    for (int i = 0; i < c->nranks; i++) {
        while (j < from->nranks && from->rank[j] < c->rank[i])
            j++;
        if (j == from->nranks || from->rank[j] != c->rank[i])
            return false;
        c->value[i] = from->value[j];
    }
    c->min = from->min;
    c->max = from->max;
    c->mean = from->mean;
    c->m2 = from->m2;
    return true;
}

static int solve_group(const struct pass *p, struct column *col, const enum column_id *id, int k,
                       struct err *e) {
    int rc = 0;
    int64_t filled[GROUP] = {0};
    for (int j = 0; j < k; j++) {
        col[id[j]].bits = malloc((size_t)col[id[j]].n * sizeof(uint64_t));
        if (!col[id[j]].bits) {
            rc = err_set(e, ASSAY_ENOMEM, "out of memory for %lld observations",
                         (long long)col[id[j]].n);
            goto out;
        }
    }
    for (uint32_t i = 0; i < p->ids.n; i++) {
        const struct request_state *r = &p->req[i];
        double x;
        if (!request_counts(r))
            continue;
        for (int j = 0; j < k; j++)
            if (value_of(id[j], r, &x))
                col[id[j]].bits[filled[j]++] = column_bits(x);
    }
    for (int j = 0; j < k; j++) {
        if (!per_request(id[j]))
            filled[j] = fill_others(p, id[j], col[id[j]].bits);
        assert(filled[j] == col[id[j]].n);
        bool known = false;
        for (int i = 0; i < j && !known; i++)
            known = borrow(&col[id[j]], &col[id[i]]);
        if (!known && (rc = column_solve(&col[id[j]], e)))
            goto out;
    }
out:
    for (int j = 0; j < k; j++) {
        free(col[id[j]].bits);
        col[id[j]].bits = NULL;
    }
    return rc;
}

int columns_solve(struct pass *p, struct column *col, struct err *e) {
    enum column_id group[GROUP];
    int k = 0, rc = 0;
    for (int id = 0; id < COL_COUNT && rc == 0; id++) {
        struct column *c = &col[id];
        if (column_n(c) == 0 || c->nranks == 0)
            continue;
        if (id == COL_ITL || id == COL_ITL_TOKENS) {
            c->bits = p->gap;
            rc = column_solve(c, e);
            c->bits = NULL;
            continue;
        }
        group[k++] = (enum column_id)id;
        if (k == GROUP) {
            rc = solve_group(p, col, group, k, e);
            k = 0;
        }
    }
    if (rc == 0 && k)
        rc = solve_group(p, col, group, k, e);
    return rc;
}
