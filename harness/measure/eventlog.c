/* One block of events to one blob and back. Columns are written one after the other; the values a and
 * b are grouped by kind first, since they mean something else for each kind, and the request column
 * may be predicted: streams that share a batch take turns in nearly the same order round after round.
 * Format: schemas/event-log.md. Integer sequences: eventlog_ints.c. Merging threads: eventlog_read.c. */
#include "harness/measure/eventlog.h"
#include "harness/measure/eventlog_internal.h"

#include <string.h>

static const uint8_t magic[3] = {'A', 'E', 'L'};

_Static_assert(EVENT_KIND_COUNT <= 64, "a set of kinds is a 64-bit mask");
_Static_assert(EVENTLOG_BLOCK_MAX_BYTES >= EVENT_BLOCK_CAP * 33 + 4096, "worst case of a block");

/* --- successor prediction --------------------------------------------------------------------- */

/* next[x]: which request (as difference from the smallest of the block) came after x last time; at
 * first x + 1. Encoder and decoder keep the same table. The entry after the last stands for "no event
 * yet". */
struct succ {
    uint16_t next[SUCC_SPAN_MAX + 1];
    uint32_t prev;
};

static void succ_init(struct succ *s, uint32_t span) {
    for (uint32_t i = 0; i < span; i++)
        s->next[i] = (uint16_t)(i + 1);
    s->next[span - 1] = 0;
    s->next[span] = 0;
    s->prev = span;
}

/* --- groups of one kind ----------------------------------------------------------------------- */

/* The most frequent kind (the lowest of equals) is never listed: nearly all events are tokens. */
struct groups {
    uint8_t most;
    uint32_t others;                   /* events of any other kind */
    uint32_t count[EVENT_KIND_COUNT];
    uint16_t place[EVENT_BLOCK_CAP + 1];/* of the others, in order of time */
    uint16_t by_kind[EVENT_BLOCK_CAP]; /* the same, grouped by rising kind */
};

/* Lists the events that are not of kind most; returns how many. */
static uint32_t groups_list(struct groups *g, const uint8_t *kind, uint32_t n, uint8_t most) {
    uint64_t eight = UINT64_C(0x0101010101010101) * most;
    uint32_t e = 0, i = 0;
    while (i < n) {
        if (i + 8 <= n) {
            uint64_t w;
            memcpy(&w, kind + i, 8);
            if (w == eight) {
                i += 8;
                continue;
            }
        }
        for (uint32_t stop = i + 8 < n ? i + 8 : n; i < stop; i++) {
            g->place[e] = (uint16_t)i;
            e += kind[i] != most;
        }
    }
    return e;
}

/* Kinds must be known. most: a guess. */
static void groups_make(struct groups *g, const uint8_t *kind, uint32_t n, uint8_t most) {
    for (;;) {
        memset(g->count, 0, sizeof g->count);
        g->others = groups_list(g, kind, n, most);
        for (uint32_t j = 0; j < g->others; j++)
            g->count[kind[g->place[j]]]++;
        g->count[most] = n - g->others;
        g->most = 0;
        for (unsigned x = 0; x < EVENT_KIND_COUNT; x++)
            if (g->count[x] > g->count[g->most])
                g->most = (uint8_t)x;
        if (g->most == most)
            break;
        most = g->most;
    }
    uint32_t at[EVENT_KIND_COUNT], sum = 0;
    for (unsigned x = 0; x < EVENT_KIND_COUNT; x++) {
        at[x] = sum;
        sum += x == most ? 0 : g->count[x];
    }
    for (uint32_t j = 0; j < g->others; j++)
        g->by_kind[at[kind[g->place[j]]]++] = g->place[j];
}

/* --- encoding --------------------------------------------------------------------------------- */

struct encoder {
    struct ints_scratch ints;
    int64_t column[EVENT_BLOCK_CAP];
    int64_t gap[EVENT_BLOCK_CAP + 1], miss[EVENT_BLOCK_CAP + 1]; /* one more: written, not used */
    uint8_t wrong[EVENT_BLOCK_CAP];
    struct groups groups;
    struct succ succ;
};

static uint8_t *put_column(struct encoder *c, uint8_t *p, const int64_t *v, uint32_t m,
                           enum ints_depth depth) {
    struct ints_plan plan = ints_plan(v, m, depth, &c->ints);
    return ints_put(p, v, m, &plan, &c->ints);
}

static uint8_t *put_kinds(struct encoder *c, uint8_t *p, const uint8_t *kind, uint32_t n) {
    const struct groups *g = &c->groups;
    if (g->others == 0)
        return ints_put_const(p, g->most);
    if (g->others < n / 4) {
        uint32_t next = 0;
        for (uint32_t j = 0; j < g->others; j++) {
            c->gap[j] = (int64_t)g->place[j] - (int64_t)next;
            c->miss[j] = kind[g->place[j]];
            next = g->place[j] + 1u;
        }
        return ints_put_sparse(p, g->most, c->gap, c->miss, g->others);
    }
    for (uint32_t i = 0; i < n; i++)
        c->column[i] = kind[i];
    return put_column(c, p, c->column, n, INTS_WITH_SPARSE);
}

static uint8_t *put_requests(struct encoder *c, uint8_t *p, const uint64_t *request, uint32_t n) {
    const int64_t *v = (const int64_t *)request; /* 64-bit patterns */
    int64_t lo, hi;
    ints_range(v, n, &lo, &hi);
    uint64_t last = (uint64_t)hi - (uint64_t)lo;
    if (last == 0 || last >= SUCC_SPAN_MAX || n < 16)
        return put_column(c, p, v, n, INTS_WITH_DELTA);

    succ_init(&c->succ, (uint32_t)last + 1);
    uint32_t e = 0, prev = c->succ.prev;
    for (uint32_t i = 0; i < n; i++) {
        uint16_t x = (uint16_t)((uint64_t)v[i] - (uint64_t)lo);
        uint8_t wrong = c->succ.next[prev] != x;
        c->succ.next[prev] = x;
        prev = x;
        c->wrong[i] = wrong;
        c->miss[e] = x;
        e += wrong;
    }
    size_t bytes = 1 + varint_size(zigzag(lo)) + varint_size(last) + varint_size(e);
    struct ints_plan gaps = {0}, misses = {0};
    bool bitmap = e > n / 4; /* about where the gaps begin to cost a bit an event */
    if (e) {
        if (!bitmap) {
            uint32_t g = 0, next = 0;
            for (uint32_t i = 0; i < n; i++) {
                c->gap[g] = (int64_t)(i - next);
                next = c->wrong[i] ? i + 1 : next;
                g += c->wrong[i];
            }
            gaps = ints_plan(c->gap, e, INTS_FLAT, &c->ints);
        }
        misses = ints_plan(c->miss, e, INTS_FLAT, &c->ints);
        bytes += (bitmap ? 1 + (n + 7) / 8 : gaps.bytes) + misses.bytes;
    }
    /* Worth to look at the other ways: prediction hardly beats packing, or differences may do better. */
    if (bytes > (size_t)n * bit_length(last) / 11 ||
        (bytes * 8 > n && ints_delta_promises(v, n, bytes))) {
        struct ints_plan plan = ints_plan(v, n, INTS_WITH_DELTA, &c->ints);
        if (plan.bytes <= bytes)
            return ints_put(p, v, n, &plan, &c->ints);
    }
    *p++ = INTS_SUCC;
    p = varint_put(p, zigzag(lo));
    p = varint_put(p, last);
    p = varint_put(p, e);
    if (e == 0)
        return p;
    if (bitmap) {
        *p++ = INTS_BITMAP;
        p = bitmap_put(p, c->wrong, n);
    } else {
        p = ints_put(p, c->gap, e, &gaps, &c->ints);
    }
    return ints_put(p, c->miss, e, &misses, &c->ints);
}

static uint8_t *put_values(struct encoder *c, uint8_t *p, const int64_t *v, uint32_t n) {
    const struct groups *g = &c->groups;
    if (g->others == 0)
        return put_column(c, p, v, n, INTS_WITH_DELTA);
    /* The values of the most frequent kind lie between the others; mostly they are all the same. */
    uint32_t m = 0, i = 0;
    while (i < g->others && g->place[i] == i)
        i++;
    const int64_t first = v[i];
    bool differ = false;
    for (uint32_t j = i; j <= g->others && !differ; j++) {
        uint32_t stop = j < g->others ? g->place[j] : n;
        int64_t any = 0;
        for (; i < stop; i++)
            any |= v[i] ^ first;
        differ = any != 0;
        i++;
    }
    if (!differ)
        p = ints_put_const(p, first);
    i = 0;
    for (uint32_t j = 0; differ && j <= g->others; j++) {
        uint32_t stop = j < g->others ? g->place[j] : n;
        if (stop - i >= 16) {
            memcpy(c->column + m, v + i, (stop - i) * sizeof *v);
            m += stop - i;
            i = stop;
        }
        while (i < stop)
            c->column[m++] = v[i++];
        i++;
    }
    if (differ)
        p = put_column(c, p, c->column, m, INTS_WITH_DELTA);
    const uint16_t *at = g->by_kind;
    for (unsigned kind = 0; kind < EVENT_KIND_COUNT; kind++) {
        m = kind == g->most ? 0 : g->count[kind];
        if (m == 0)
            continue;
        for (uint32_t j = 0; j < m; j++)
            c->column[j] = v[at[j]];
        p = put_column(c, p, c->column, m, INTS_WITH_DELTA);
        at += m;
    }
    return p;
}

size_t eventlog_encode(const struct event_block *k, uint8_t *out) {
    struct encoder c;
    uint32_t n = k->n;
    assert(n >= 1 && n <= EVENT_BLOCK_CAP);

    uint8_t *p = out;
    memcpy(p, magic, sizeof magic);
    p += sizeof magic;
    *p++ = EVENTLOG_VERSION;
    p = varint_put(p, k->thread);
    p = varint_put(p, k->sequence);
    p = varint_put(p, n);

    groups_make(&c.groups, k->kind, n, k->kind[n / 2]);
    assert(c.groups.count[EVENT_NONE] == 0);
    p = put_kinds(&c, p, k->kind, n);
    p = varint_put(p, zigzag(k->time_ns[0]));
    if (n > 1) {
        for (uint32_t i = 1; i < n; i++)
            c.column[i - 1] = (int64_t)((uint64_t)k->time_ns[i] - (uint64_t)k->time_ns[i - 1]);
        p = put_column(&c, p, c.column, n - 1, INTS_WITH_SPARSE);
    }
    p = put_requests(&c, p, k->request, n);
    p = put_values(&c, p, k->a, n);
    p = put_values(&c, p, k->b, n);
    return (size_t)(p - out);
}

/* --- decoding --------------------------------------------------------------------------------- */

static bool get_kinds(struct bytes_in *in, uint8_t *kind, uint32_t n, int64_t *work,
                      int64_t *work2) {
    int64_t base;
    uint32_t e;
    bool strange = false;
    if (ints_get_const(in, &base)) {
        strange = base <= EVENT_NONE || base >= EVENT_KIND_COUNT;
        memset(kind, (uint8_t)base, n);
    } else if (in->why || !ints_get_exceptions(in, n, &base, &e, work, work2)) {
        return false;
    } else if (e) {
        strange = base <= EVENT_NONE || base >= EVENT_KIND_COUNT;
        memset(kind, (uint8_t)base, n);
        for (uint32_t j = 0; j < e; j++) {
            strange |= work2[j] <= EVENT_NONE || work2[j] >= EVENT_KIND_COUNT;
            kind[work[j]] = (uint8_t)work2[j];
        }
    } else {
        if (!ints_get(in, work, n, INTS_FLAT))
            return false;
        for (uint32_t i = 0; i < n; i++) {
            strange |= work[i] <= EVENT_NONE || work[i] >= EVENT_KIND_COUNT;
            kind[i] = (uint8_t)work[i];
        }
    }
    if (strange)
        in->why = "unknown kind of event";
    return !strange;
}

/* Which events a prediction missed: a bitmap, or the gaps between them. */
static bool get_places(struct bytes_in *in, uint8_t *wrong, uint32_t n, uint32_t e, int64_t *gap) {
    if (in->p < in->end && *in->p == INTS_BITMAP) {
        in->p++;
        return bitmap_get(in, wrong, n, e);
    }
    if (!ints_get(in, gap, e, INTS_FLAT))
        return false;
    uint64_t at = 0;
    memset(wrong, 0, n);
    for (uint32_t j = 0; j < e; j++) {
        if ((uint64_t)gap[j] >= n - at) {
            in->why = "exception outside the sequence";
            return false;
        }
        at += (uint64_t)gap[j];
        wrong[at++] = 1;
    }
    return true;
}

static bool get_requests(struct bytes_in *in, int64_t *v, uint32_t n, int64_t *work) {
    if (in->p == in->end) {
        in->why = "truncated sequence";
        return false;
    }
    uint8_t method = *in->p++;
    if (method != INTS_SUCC)
        return ints_get_method(in, method, v, n, INTS_WITH_DELTA);
    int64_t base = unzigzag(varint_get(in));
    uint64_t last = in->why ? 0 : varint_get(in), e = in->why ? 0 : varint_get(in);
    if (in->why)
        return false;
    if (last >= SUCC_SPAN_MAX || e > n) {
        in->why = "bad successor table";
        return false;
    }
    int64_t miss[EVENT_BLOCK_CAP + 1] = {0}; /* one more: read beside the last one, never used */
    uint8_t wrong[EVENT_BLOCK_CAP];
    if (e == 0) {
        memset(wrong, 0, n);
    } else {
        if (!get_places(in, wrong, n, (uint32_t)e, work) ||
            !ints_get(in, miss, (uint32_t)e, INTS_FLAT))
            return false;
        bool outside = false;
        for (uint64_t j = 0; j < e; j++)
            outside |= (uint64_t)miss[j] > last;
        if (outside) {
            in->why = "request outside the successor table";
            return false;
        }
    }
    struct succ s;
    succ_init(&s, (uint32_t)last + 1);
    uint32_t prev = s.prev, j = 0;
    for (uint32_t i = 0; i < n; i++) {
        /* a mask instead of a branch on wrong: it cannot be predicted */
        uint32_t guess = s.next[prev], x = guess ^ ((guess ^ (uint32_t)miss[j]) & (0u - wrong[i]));
        j += wrong[i];
        s.next[prev] = (uint16_t)x;
        prev = x;
        v[i] = (int64_t)((uint64_t)base + x);
    }
    return true;
}

static bool get_values(struct bytes_in *in, int64_t *v, const struct groups *g, uint32_t n,
                       int64_t *work) {
    if (g->others == 0)
        return ints_get(in, v, n, INTS_WITH_DELTA);
    uint32_t m = n - g->others;
    int64_t base;
    if (ints_get_const(in, &base)) {
        for (uint32_t i = 0; i < n; i++)
            v[i] = base;
    } else {
        int64_t *most = v + g->others; /* spread from the left, never ahead of what is read */
        if (in->why || !ints_get(in, most, m, INTS_WITH_DELTA))
            return false;
        uint32_t i = 0;
        for (uint32_t j = 0; j < g->others; j++, i++)
            for (; i < g->place[j]; i++)
                v[i] = *most++;
    }
    const uint16_t *at = g->by_kind;
    for (unsigned kind = 0; kind < EVENT_KIND_COUNT; kind++) {
        m = kind == g->most ? 0 : g->count[kind];
        if (m == 0)
            continue;
        if (!ints_get(in, work, m, INTS_WITH_DELTA))
            return false;
        for (uint32_t j = 0; j < m; j++)
            v[at[j]] = work[j];
        at += m;
    }
    return true;
}

static bool get_block(struct bytes_in *in, struct event_block *k) {
    int64_t work[EVENT_BLOCK_CAP];
    struct groups g;

    if (in->end - in->p < 4 || memcmp(in->p, magic, sizeof magic)) {
        in->why = "not an event log block";
        return false;
    }
    if (in->p[3] != EVENTLOG_VERSION) {
        in->why = "unknown version of the event log";
        return false;
    }
    in->p += 4;
    uint64_t thread = varint_get(in), sequence = in->why ? 0 : varint_get(in);
    uint64_t n64 = in->why ? 0 : varint_get(in);
    if (in->why)
        return false;
    if (thread > UINT32_MAX || n64 == 0 || n64 > EVENT_BLOCK_CAP) {
        in->why = thread > UINT32_MAX ? "bad thread number" : "bad number of events";
        return false;
    }
    uint32_t n = (uint32_t)n64;
    k->thread = (uint32_t)thread;
    k->sequence = sequence;
    k->opened_ns = 0;

    if (!get_kinds(in, k->kind, n, work, k->a)) /* a is filled later */
        return false;
    groups_make(&g, k->kind, n, k->kind[n / 2]);

    k->time_ns[0] = unzigzag(varint_get(in));
    if (in->why || (n > 1 && !ints_get(in, k->time_ns + 1, n - 1, INTS_WITH_SPARSE)))
        return false;
    int64_t t = k->time_ns[0];
    bool back = false;
    for (uint32_t i = 1; i < n; i++) {
        int64_t u = (int64_t)((uint64_t)t + (uint64_t)k->time_ns[i]);
        back |= u < t;
        k->time_ns[i] = t = u;
    }
    if (back) {
        in->why = "time that decreases";
        return false;
    }

    /* ids are 64-bit patterns here: the signed twin of the column's type may alias it */
    if (!get_requests(in, (int64_t *)k->request, n, work))
        return false;

    if (!get_values(in, k->a, &g, n, work) || !get_values(in, k->b, &g, n, work))
        return false;
    if (in->p != in->end) {
        in->why = "trailing bytes";
        return false;
    }
    k->n = n;
    return true;
}

int eventlog_decode(const uint8_t *p, size_t n, struct event_block *k, struct err *e) {
    struct bytes_in in = {.p = p, .end = p + n};
    k->n = 0;
    if (!get_block(&in, k))
        return err_set(e, ASSAY_EINPUT, "event log block: at byte %zu of %zu: %s",
                       (size_t)(in.p - p), n, in.why);
    return 0;
}
