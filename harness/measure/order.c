/* Selection of many ranks from a column that passes twice. What is gathered the second time is a few
 * buckets' worth of values; from there quickselect-like recursion by histogram finds each rank. */
#include "harness/measure/order.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 48, SPLIT_BITS_MAX = 12 };

static inline uint64_t bits_of(double x) {
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* Exponent and seven bits of the mantissa; rising with x. */
static inline uint32_t bucket_of(double x) {
    uint64_t u = bits_of(x) >> 45;
    uint64_t b = u < UINT64_C(1023) << 7 ? 0 : u - (UINT64_C(1023) << 7);
    return (uint32_t)(b < COLUMN_BUCKETS ? b : COLUMN_BUCKETS - 1);
}

/* --- first time --------------------------------------------------------------------------------- */

static void neumaier(double *sum, double *lost, double x) { /* both >= 0 */
    double t = *sum + x;
    *lost += *sum >= x ? (*sum - t) + x : (x - t) + *sum;
    *sum = t;
}

void column_feed(struct column *c, const double *x, size_t n) {
    if (n == 0)
        return;
    if (c->integer) {
        uint64_t sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += (uint64_t)(int64_t)x[i];
        c->sum += sum;
    } else {
        for (size_t i = 0; i < n; i++)
            neumaier(&c->lane[i % COLUMN_LANES], &c->lost[i % COLUMN_LANES], x[i]);
    }
    if (c->n == 0)
        c->min = x[0];
    uint64_t first = bits_of(c->min), differ = 0;
    for (size_t i = 0; i < n; i++) {
        c->count[bucket_of(x[i])]++;
        differ |= bits_of(x[i]) ^ first;
    }
    c->varies |= differ != 0;
    c->n += (int64_t)n;
}

static double lanes_sum(const struct column *c) {
    double sum = 0, lost = 0;
    for (int i = 0; i < COLUMN_LANES; i++)
        neumaier(&sum, &lost, c->lane[i]);
    for (int i = 0; i < COLUMN_LANES; i++)
        lost += c->lost[i];
    return sum + lost;
}

void column_fed(struct column *c) {
    int64_t n = column_n(c);
    if (n == 0)
        return;
    if (c->integer) {
        uint64_t whole = (uint64_t)(c->sum / (uint64_t)n), rest = (uint64_t)(c->sum % (uint64_t)n);
        c->mean = (double)whole + (double)rest / (double)n;
    } else {
        c->mean = lanes_sum(c) / (double)n;
    }
    memset(c->lane, 0, sizeof c->lane);
    memset(c->lost, 0, sizeof c->lost);
}

void column_want(struct column *c, int64_t rank) {
    assert(rank >= 0 && rank < column_n(c));
    int i = c->nranks;
    while (i > 0 && c->rank[i - 1] > rank)
        i--;
    if (i > 0 && c->rank[i - 1] == rank)
        return;
    assert(c->nranks < COLUMN_RANKS_MAX);
    memmove(c->rank + i + 1, c->rank + i, (size_t)(c->nranks - i) * sizeof c->rank[0]);
    c->rank[i] = rank;
    c->nranks++;
}

/* --- second time -------------------------------------------------------------------------------- */

int column_plan(struct column *c, struct err *e) {
    if (column_n(c)) {
        column_want(c, 0);
        column_want(c, column_n(c) - 1);
    }
    size_t total = 0;
    int64_t before = c->extra_zeros;
    int next = 0;
    while (next < c->nranks && c->rank[next] < c->extra_zeros)
        c->value[next++] = 0; /* among the zeros that were not fed */
    while (next < c->nranks && !c->varies)
        c->value[next++] = c->min;
    for (int b = 0; b < COLUMN_BUCKETS && next < c->nranks; b++) {
        int64_t after = before + c->count[b];
        int from = next;
        while (next < c->nranks && c->rank[next] < after)
            next++;
        if (next > from) {
            c->part[c->parts] = (struct column_part){total, 0, before, from, next};
            c->part_of[b] = (uint8_t)++c->parts;
            total += c->count[b];
        }
        before = after;
    }
    c->work = malloc(total ? total * sizeof *c->work : 1);
    return c->work ? 0 : err_set(e, ASSAY_ENOMEM, "out of memory for order statistics");
}

void column_gather(struct column *c, const double *x, size_t n) {
    _Static_assert(COLUMN_RANKS_MAX < 255, "a part's number fits a byte");
    for (size_t i = 0; i < n; i++) {
        unsigned k = c->part_of[bucket_of(x[i])];
        if (k) {
            struct column_part *part = &c->part[k - 1];
            c->work[part->begin + part->n++] = x[i];
        }
    }
    if (!c->want_sd)
        return;
    size_t i = 0;
    for (; i + COLUMN_LANES <= n; i += COLUMN_LANES)
        for (size_t l = 0; l < COLUMN_LANES; l++) {
            double d = x[i + l] - c->mean;
            c->lane[l] += d * d;
        }
    for (; i < n; i++) {
        double d = x[i] - c->mean;
        c->lane[0] += d * d;
    }
}

static void sort_small(double *v, size_t n) {
    for (size_t i = 1; i < n; i++) {
        double x = v[i];
        size_t j = i;
        for (; j > 0 && v[j - 1] > x; j--)
            v[j] = v[j - 1];
        v[j] = x;
    }
}

/* Answers rank[0 … k), counted from `offset` at the smallest of v, into value. v is spoilt. */
static int select_ranks(double *v, size_t n, const int64_t *rank, int64_t offset, double *value,
                        int k, struct err *e) {
    double min = v[0], max = v[0];
    for (size_t i = 1; i < n; i++) {
        min = v[i] < min ? v[i] : min;
        max = v[i] > max ? v[i] : max;
    }
    if (n <= SMALL)
        sort_small(v, n);
    if (n <= SMALL || min == max) {
        for (int i = 0; i < k; i++)
            value[i] = v[rank[i] - offset];
        return 0;
    }
    uint64_t lo = bits_of(min), hi = bits_of(max);
    unsigned bits = 5, shift = 0;
    while (bits < SPLIT_BITS_MAX && n >> bits)
        bits++;
    while ((hi - lo) >> shift >> bits)
        shift++;

    size_t buckets = (size_t)1 << bits, total = 0;
    int rc = 0, next = 0, parts = 0;
    uint32_t *count = calloc(buckets, sizeof *count);
    uint8_t *part_of = calloc(buckets, sizeof *part_of);
    double *work = NULL;
    struct column_part part[COLUMN_RANKS_MAX];
    if (!count || !part_of) {
        rc = err_set(e, ASSAY_ENOMEM, "out of memory for order statistics");
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        count[(bits_of(v[i]) - lo) >> shift]++;
    int64_t before = offset;
    for (size_t b = 0; b < buckets && next < k; b++) {
        int64_t after = before + count[b];
        int from = next;
        while (next < k && rank[next] < after)
            next++;
        if (next > from) {
            part[parts] = (struct column_part){total, 0, before, from, next};
            part_of[b] = (uint8_t)++parts;
            total += count[b];
        }
        before = after;
    }
    work = malloc(total * sizeof *work);
    if (!work) {
        rc = err_set(e, ASSAY_ENOMEM, "out of memory for order statistics");
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned j = part_of[(bits_of(v[i]) - lo) >> shift];
        if (j)
            work[part[j - 1].begin + part[j - 1].n++] = v[i];
    }
    for (int i = 0; i < parts && rc == 0; i++)
        rc = select_ranks(work + part[i].begin, part[i].n, rank + part[i].from, part[i].first,
                          value + part[i].from, part[i].to - part[i].from, e);
out:
    free(work);
    free(part_of);
    free(count);
    return rc;
}

int column_finish(struct column *c, struct err *e) {
    int rc = 0;
    for (int i = 0; i < c->parts && rc == 0; i++) {
        const struct column_part *p = &c->part[i];
        rc = select_ranks(c->work + p->begin, p->n, c->rank + p->from, p->first,
                          c->value + p->from, p->to - p->from, e);
    }
    c->m2 = (double)c->extra_zeros * c->mean * c->mean;
    for (int i = 0; i < COLUMN_LANES; i++)
        c->m2 += c->lane[i];
    if (rc == 0 && column_n(c)) {
        c->min = column_at(c, 0);
        c->max = column_at(c, column_n(c) - 1);
    }
    column_release(c);
    return rc;
}

void column_release(struct column *c) {
    free(c->work);
    c->work = NULL;
}

double column_at(const struct column *c, int64_t rank) {
    int lo = 0, hi = c->nranks;
    while (hi - lo > 1) {
        int mid = lo + (hi - lo) / 2;
        if (c->rank[mid] <= rank)
            lo = mid;
        else
            hi = mid;
    }
    assert(lo < c->nranks && c->rank[lo] == rank);
    return c->value[lo];
}
