/* Selection of many ranks at once: a histogram over the leading bits, then only the values in the
 * buckets that hold a wanted rank, again and again until a bucket is small or of one value. */
#include "harness/measure/order.h"

#include "harness/core/int128.h"

#include <assert.h>
#include <stdlib.h>

enum { BUCKET_BITS_MAX = 12, SMALL = 48 };

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

static void sort_small(uint64_t *v, size_t n) {
    for (size_t i = 1; i < n; i++) {
        uint64_t x = v[i];
        size_t j = i;
        for (; j > 0 && v[j - 1] > x; j--)
            v[j] = v[j - 1];
        v[j] = x;
    }
}

/* Answers rank[0..k) (relative to v) into value. v may be reordered when `own`. */
static int select_ranks(uint64_t *v, size_t n, bool own, const int64_t *rank, int64_t offset,
                        double *value, int k, struct err *e) {
    uint64_t lo = v[0], hi = v[0];
    for (size_t i = 1; i < n; i++) {
        lo = v[i] < lo ? v[i] : lo;
        hi = v[i] > hi ? v[i] : hi;
    }
    if (lo == hi) {
        for (int i = 0; i < k; i++)
            value[i] = column_double(lo);
        return 0;
    }
    if (own && n <= SMALL) {
        sort_small(v, n);
        for (int i = 0; i < k; i++)
            value[i] = column_double(v[rank[i] - offset]);
        return 0;
    }
    unsigned bits = 5, shift = 0;
    while (bits < BUCKET_BITS_MAX && n >> bits)
        bits++;
    size_t buckets = (size_t)1 << bits;
    while ((hi - lo) >> shift >= buckets)
        shift++;

    int rc = 0;
    uint32_t *slot = calloc(buckets, sizeof *slot); /* 0 = not wanted, else number + 1 */
    size_t *count = calloc(buckets, sizeof *count);
    uint64_t *work = NULL;
    if (!slot || !count) {
        rc = err_set(e, ASSAY_ENOMEM, "out of memory for order statistics");
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        count[(v[i] - lo) >> shift]++;

    /* which buckets hold a wanted rank, and where their values go in work */
    struct {
        size_t begin, n;
        int64_t first; /* rank of its smallest value, relative to v */
        int from, to;  /* wanted ranks */
    } part[COLUMN_RANKS_MAX];
    uint32_t parts = 0;
    size_t total = 0;
    int64_t before = 0;
    int next = 0;
    for (size_t b = 0; b < buckets && next < k; b++) {
        int64_t after = before + (int64_t)count[b];
        int from = next;
        while (next < k && rank[next] - offset < after)
            next++;
        if (next > from) {
            part[parts].begin = total;
            part[parts].n = 0;
            part[parts].first = before;
            part[parts].from = from;
            part[parts].to = next;
            total += count[b];
            slot[b] = ++parts;
        }
        before = after;
    }
    work = malloc(total * sizeof *work);
    if (!work) {
        rc = err_set(e, ASSAY_ENOMEM, "out of memory for order statistics");
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t s = slot[(v[i] - lo) >> shift];
        if (s)
            work[part[s - 1].begin + part[s - 1].n++] = v[i];
    }
    for (uint32_t i = 0; i < parts && rc == 0; i++)
        rc = select_ranks(work + part[i].begin, part[i].n, true, rank + part[i].from,
                          offset + part[i].first, value + part[i].from,
                          part[i].to - part[i].from, e);
out:
    free(work);
    free(count);
    free(slot);
    return rc;
}

/* The mean of whole numbers from their exact sum; of others by Neumaier's sum, in order. */
static double mean_of(const struct column *c) {
    double n = (double)column_n(c);
    if (c->integer) {
        u128 sum = 0;
        uint64_t part = 0; /* cannot overflow within a block: values are below 2^53 */
        for (int64_t i = 0; i < c->n; i++) {
            part += (uint64_t)column_double(c->bits[i]);
            if ((i & 1023) == 1023) {
                sum += part;
                part = 0;
            }
        }
        sum += part;
        uint64_t whole = (uint64_t)(sum / (uint64_t)column_n(c));
        uint64_t rest = (uint64_t)(sum % (uint64_t)column_n(c));
        return (double)whole + (double)rest / n;
    }
    double sum = 0, lost = 0;
    for (int64_t i = 0; i < c->n; i++) {
        double x = column_double(c->bits[i]), t = sum + x;
        lost += sum >= x ? (sum - t) + x : (x - t) + sum; /* both >= 0 */
        sum = t;
    }
    return (sum + lost) / n;
}

int column_solve(struct column *c, struct err *e) {
    if (column_n(c) == 0)
        return 0;
    uint64_t lo = c->n ? c->bits[0] : 0, hi = lo;
    for (int64_t i = 1; i < c->n; i++) {
        lo = c->bits[i] < lo ? c->bits[i] : lo;
        hi = c->bits[i] > hi ? c->bits[i] : hi;
    }
    c->min = c->extra_zeros ? 0 : column_double(lo);
    c->max = column_double(hi);
    c->mean = mean_of(c);
    double m2 = 0;
    for (int64_t i = 0; i < c->n; i++) {
        double d = column_double(c->bits[i]) - c->mean;
        m2 += d * d;
    }
    c->m2 = m2 + (double)c->extra_zeros * c->mean * c->mean;

    int zeros = 0; /* wanted ranks that fall among the zeros that are not stored */
    while (zeros < c->nranks && c->rank[zeros] < c->extra_zeros)
        c->value[zeros++] = 0;
    if (zeros == c->nranks)
        return 0;
    return select_ranks(c->bits, (size_t)c->n, false, c->rank + zeros, c->extra_zeros,
                        c->value + zeros, c->nranks - zeros, e);
}
