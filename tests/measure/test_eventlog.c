/* The event log codec: round trips (real-looking streams and hostile values), the size that the
 * format promises, a blob written by hand from the document, and the rejection of malformations. */
#include "harness/measure/eventlog.h"
#include "tests/measure/streams.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#define NEW_BLOCK() calloc(1, sizeof(struct event_block))

static bool same_events(const struct event_block *x, const struct event_block *y) {
    return x->n == y->n && x->thread == y->thread && x->sequence == y->sequence &&
           !memcmp(x->time_ns, y->time_ns, x->n * sizeof x->time_ns[0]) &&
           !memcmp(x->request, y->request, x->n * sizeof x->request[0]) &&
           !memcmp(x->a, y->a, x->n * sizeof x->a[0]) &&
           !memcmp(x->b, y->b, x->n * sizeof x->b[0]) && !memcmp(x->kind, y->kind, x->n);
}

static size_t round_trip(const struct event_block *k) {
    static uint8_t out[EVENTLOG_BLOCK_MAX_BYTES];
    struct event_block *back = NEW_BLOCK();
    struct err e = {0};
    size_t n = eventlog_encode(k, out);
    cr_assert(le(sz, n, EVENTLOG_BLOCK_MAX_BYTES - 8)); /* the encoder may write 8 bytes ahead */
    int rc = eventlog_decode(out, n, back, &e);
    cr_assert(eq(int, rc, 0), "%s", e.text);
    cr_assert(same_events(k, back));
    free(back);
    return n;
}

static double bytes_per_event(int sim, int width, uint64_t seed) {
    struct stream *s = malloc(sizeof *s);
    struct event_block *k = NEW_BLOCK();
    size_t total = 0;
    stream_init(s, seed, width, 256);
    for (int i = 0; i < 24; i++) {
        stream_fill(s, sim, k);
        k->sequence = (uint64_t)i;
        total += round_trip(k);
    }
    free(k);
    free(s);
    return (double)total / (24.0 * EVENT_BLOCK_CAP);
}

/* The promise of the format: at most 4 bytes a token of a wire run, bounds included (exponential gaps of 312 us and
 * 78 us carry 2.46 and 2.21 bytes of entropy in the stamps alone), far below 1 of a simulated one. */
Test(measure_eventlog, size_of_real_streams) {
    cr_assert(lt(dbl, bytes_per_event(0, 64, 1), 4.0));
    cr_assert(lt(dbl, bytes_per_event(0, 256, 2), 4.0));
    cr_assert(lt(dbl, bytes_per_event(1, 64, 3), 0.3));
    cr_assert(lt(dbl, bytes_per_event(1, 256, 4), 0.3));
}

static int64_t wild(struct rng *r, unsigned style) {
    switch (style) {
    case 0:
        return 0;
    case 1:
        return (int64_t)rng_below(r, 8);
    case 2:
        return (int64_t)rng_next(r);
    case 3:
        return rng_next(r) & 1 ? INT64_MAX : INT64_MIN;
    case 4:
        return (int64_t)rng_next(r) >> rng_below(r, 64);
    case 5:
        return rng_below(r, 40) ? -7 : (int64_t)rng_next(r) >> 20;
    default:
        return (int64_t)(rng_next(r) >> (40 + rng_below(r, 20)));
    }
}

static void wild_block(struct rng *r, struct event_block *k) {
    unsigned st = (unsigned)rng_below(r, 7), sr = (unsigned)rng_below(r, 7),
             sa = (unsigned)rng_below(r, 7), sb = (unsigned)rng_below(r, 7),
             sk = (unsigned)rng_below(r, 4);
    k->n = 1 + (uint32_t)(rng_below(r, 3) ? rng_below(r, 40) : rng_below(r, EVENT_BLOCK_CAP));
    k->thread = rng_below(r, 9) ? (uint32_t)rng_below(r, 70) : UINT32_MAX;
    k->sequence = rng_below(r, 9) ? rng_below(r, 1000) : UINT64_MAX;
    int64_t t = rng_below(r, 3) ? wild(r, st) : INT64_MIN;
    for (uint32_t i = 0; i < k->n; i++) {
        uint64_t d = (uint64_t)wild(r, st) & INT64_MAX;
        int64_t next = (int64_t)((uint64_t)t + (i ? d : 0));
        t = next < t ? t : next;
        k->time_ns[i] = t;
        k->request[i] = (uint64_t)wild(r, sr);
        k->a[i] = wild(r, sa);
        k->b[i] = wild(r, sb);
        k->kind[i] = (uint8_t)(1 + (sk ? rng_below(r, sk == 1 ? 2 : EVENT_KIND_COUNT - 1) : 4));
    }
    if (k->n > 2 && rng_below(r, 20) == 0) { /* the largest difference there is */
        k->time_ns[0] = INT64_MIN;
        k->time_ns[k->n - 1] = INT64_MAX;
    }
}

Test(measure_eventlog, random_blocks_round_trip) {
    struct event_block *k = NEW_BLOCK();
    struct rng r;
    rng_seed(&r, 99);
    for (int i = 0; i < 1500; i++) {
        wild_block(&r, k);
        round_trip(k);
    }
    free(k);
}

Test(measure_eventlog, worst_case_fits) {
    struct event_block *k = NEW_BLOCK();
    struct rng r;
    rng_seed(&r, 5);
    k->n = EVENT_BLOCK_CAP;
    k->thread = UINT32_MAX;
    k->sequence = UINT64_MAX;
    int64_t t = INT64_MIN;
    for (uint32_t i = 0; i < k->n; i++) {
        t = (int64_t)((uint64_t)t + (rng_next(&r) >> (i % 50 ? 30 : 9)));
        k->time_ns[i] = t;
        k->request[i] = rng_next(&r);
        k->a[i] = i % 2 ? INT64_MAX : (int64_t)rng_next(&r);
        k->b[i] = (int64_t)rng_next(&r);
        k->kind[i] = (uint8_t)(1 + rng_below(&r, EVENT_KIND_COUNT - 1));
    }
    size_t n = round_trip(k);
    cr_assert(gt(sz, n, EVENT_BLOCK_CAP * 24)); /* it is near the worst there is */
    cr_assert(lt(sz, n, EVENTLOG_BLOCK_MAX_BYTES / 2));
    free(k);
}

/* The blob of schemas/event-log.md, section "An example", put together by hand. */
static const uint8_t by_hand[] = {
    'A',  'E',  'L',  0x01,                               /* magic, version */
    0x03, 0x07, 0x04,                                     /* thread, sequence, events */
    0x01, 0x06, 0x02, 0xe8,                               /* kinds 3 5 5 6 */
    0xd0, 0x0f,                                           /* first time 1000 */
    0x01, 0x00, 0x09, 0xf4, 0x01, 0x90, 0x01,             /* differences 500 0 100 */
    0x00, 0x12,                                           /* requests: all 9 */
    0x00, 0x02, 0x00, 0x0a, 0x00, 0x04,                   /* a: TOKENS 1 1; ISSUE 5; DONE 2 */
    0x00, 0x00, 0x00, 0x80, 0x02, 0x00, 0x00,             /* b: TOKENS 0 0; ISSUE 128; DONE 0 */
};

Test(measure_eventlog, example_of_the_document) {
    struct event_block *k = NEW_BLOCK();
    struct err e = {0};
    int rc = eventlog_decode(by_hand, sizeof by_hand, k, &e);
    cr_assert(eq(int, rc, 0), "%s", e.text);
    cr_assert(eq(u32, k->n, 4));
    cr_assert(eq(u32, k->thread, 3));
    cr_assert(eq(u64, k->sequence, 7));
    static const int64_t want[4][5] = {{1000, EVENT_ISSUE, 9, 5, 128},
                                       {1500, EVENT_TOKENS, 9, 1, 0},
                                       {1500, EVENT_TOKENS, 9, 1, 0},
                                       {1600, EVENT_DONE, 9, 2, 0}};
    for (uint32_t i = 0; i < 4; i++) {
        cr_assert(eq(i64, k->time_ns[i], want[i][0]));
        cr_assert(eq(i64, k->kind[i], want[i][1]));
        cr_assert(eq(i64, (int64_t)k->request[i], want[i][2]));
        cr_assert(eq(i64, k->a[i], want[i][3]));
        cr_assert(eq(i64, k->b[i], want[i][4]));
    }
    free(k);
}

/* What a decoder must refuse. Each row changes bytes of the example. */
Test(measure_eventlog, malformations_are_refused) {
    static const struct {
        const char *why;
        const char *bytes;
        size_t n;
    } bad[] = {
        {"not an event log block", "", 0},
        {"not an event log block", "AEX\x01", 4},
        {"unknown version", "AEL\x02\x00\x00\x01", 7},
        {"truncated number", "AEL\x01\x00", 5},
        {"over-long number", "AEL\x01\x80\x00\x00\x01", 8},
        {"number above 64 bits", "AEL\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 14},
        {"bad thread", "AEL\x01\xff\xff\xff\xff\x1f\x00\x01", 11},
        {"bad number of events", "AEL\x01\x00\x00\x00", 7},
        {"bad number of events", "AEL\x01\x00\x00\x81\x20", 8},
        {"truncated sequence", "AEL\x01\x00\x00\x01", 7},
        {"not allowed here", "AEL\x01\x00\x00\x01\x05\x0a", 9},
        {"not allowed here", "AEL\x01\x00\x00\x01\x09\x0a", 9},
        {"unknown kind", "AEL\x01\x00\x00\x01\x00\x00", 9},
        {"unknown kind", "AEL\x01\x00\x00\x01\x00\x1a", 9},
        {"bad width", "AEL\x01\x00\x00\x02\x01\x0a\x00", 10},
        {"bad width", "AEL\x01\x00\x00\x02\x01\x0a\x41", 10},
        {"truncated bit stream", "AEL\x01\x00\x00\x02\x01\x0a\x05\x00", 11},
        {"padding bits", "AEL\x01\x00\x00\x02\x01\x0a\x01\x04", 11},
        {"bad Rice parameter", "AEL\x01\x00\x00\x02\x02\x0a\x24\x00", 11},
        {"truncated bit stream", "AEL\x01\x00\x00\x02\x02\x0a\x01\x00", 11},
        {"bad count of exceptions", "AEL\x01\x00\x00\x02\x04\x0a\x00", 10},
        {"bad count of exceptions", "AEL\x01\x00\x00\x02\x04\x0a\x03", 10},
        {"outside the sequence", "AEL\x01\x00\x00\x02\x04\x0a\x01\x00\x04\x00\x0a", 14},
        {"time that decreases", "AEL\x01\x00\x00\x02\x00\x0a\x00\x00\x01", 12},
        {"bad successor table", "AEL\x01\x00\x00\x01\x00\x0a\x00\x06\x00\x80\x80\x01\x00", 16},
        {"bad successor table", "AEL\x01\x00\x00\x01\x00\x0a\x00\x06\x00\x00\x02", 14},
        {"another count", "AEL\x01\x00\x00\x01\x00\x0a\x00\x06\x00\x00\x01\x07\x00", 16},
        {"outside the successor", "AEL\x01\x00\x00\x01\x00\x0a\x00\x06\x00\x00\x01\x07\x01\x00\x02",
         18},
        {"trailing bytes", "AEL\x01\x00\x00\x01\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x00", 17},
    };
    struct event_block *k = NEW_BLOCK();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err e = {0};
        uint8_t *exact = malloc(bad[i].n + 1); /* so that ASan sees a read past the end */
        memcpy(exact, bad[i].bytes, bad[i].n);
        exact = realloc(exact, bad[i].n ? bad[i].n : 1);
        int rc = eventlog_decode(exact, bad[i].n, k, &e);
        cr_assert(eq(int, rc, ASSAY_EINPUT), "row %zu", i);
        cr_assert(strstr(e.text, bad[i].why) != NULL, "row %zu: got '%s'", i, e.text);
        cr_assert(eq(u32, k->n, 0));
        free(exact);
    }
    free(k);
}

Test(measure_eventlog, every_truncation_is_refused) {
    struct stream *s = malloc(sizeof *s);
    struct event_block *k = NEW_BLOCK(), *back = NEW_BLOCK();
    uint8_t *out = malloc(EVENTLOG_BLOCK_MAX_BYTES);
    stream_init(s, 3, 16, 20);
    stream_fill(s, 0, k);
    k->n = 300;
    size_t n = eventlog_encode(k, out);
    for (size_t i = 0; i < n; i++) {
        uint8_t *part = malloc(i ? i : 1);
        memcpy(part, out, i);
        int rc = eventlog_decode(part, i, back, NULL);
        cr_assert(eq(int, rc, ASSAY_EINPUT), "cut at %zu of %zu", i, n);
        free(part);
    }
    free(out);
    free(k);
    free(back);
    free(s);
}

/* --- the reader ------------------------------------------------------------------------------- */

enum { LANES = 5, LANE_BLOCKS = 3 };

struct lanes {
    uint8_t *blob[LANES][LANE_BLOCKS];
    size_t size[LANES][LANE_BLOCKS];
    int blocks[LANES], next[LANES];
};

static int lanes_next(void *ctx, uint32_t thread, const uint8_t **p, size_t *n, struct err *e) {
    struct lanes *l = ctx;
    (void)e;
    int i = l->next[thread]++;
    *n = i < l->blocks[thread] ? l->size[thread][i] : 0;
    *p = *n ? l->blob[thread][i] : NULL;
    return 0;
}

static void lanes_make(struct lanes *l, uint64_t seed, struct event *all, int *nall) {
    struct event_block *k = NEW_BLOCK();
    uint8_t *out = malloc(EVENTLOG_BLOCK_MAX_BYTES);
    struct rng r;
    rng_seed(&r, seed);
    memset(l, 0, sizeof *l);
    *nall = 0;
    for (uint32_t t = 0; t < LANES; t++) {
        int64_t now = 0;
        l->blocks[t] = t == 3 ? 0 : LANE_BLOCKS;
        for (int j = 0; j < l->blocks[t]; j++) {
            k->n = 1 + (uint32_t)rng_below(&r, 400);
            k->thread = t;
            k->sequence = (uint64_t)j;
            for (uint32_t i = 0; i < k->n; i++) {
                now += (int64_t)(rng_below(&r, 3) ? 0 : rng_below(&r, 5)); /* many ties */
                k->time_ns[i] = now;
                k->request[i] = rng_next(&r);
                k->a[i] = *nall;
                k->b[i] = 0;
                k->kind[i] = EVENT_TOKENS;
                all[(*nall)++] = (struct event){.time_ns = now,
                                                .request = k->request[i],
                                                .a = k->a[i],
                                                .thread = t,
                                                .kind = EVENT_TOKENS};
            }
            l->size[t][j] = eventlog_encode(k, out);
            l->blob[t][j] = malloc(l->size[t][j]);
            memcpy(l->blob[t][j], out, l->size[t][j]);
        }
    }
    free(out);
    free(k);
}

static void lanes_free(struct lanes *l) {
    for (int t = 0; t < LANES; t++)
        for (int j = 0; j < LANE_BLOCKS; j++)
            free(l->blob[t][j]);
}

static int by_time_thread_order(const void *px, const void *py) {
    const struct event *x = px, *y = py;
    if (x->time_ns != y->time_ns)
        return x->time_ns < y->time_ns ? -1 : 1;
    if (x->thread != y->thread)
        return x->thread < y->thread ? -1 : 1;
    return x->a < y->a ? -1 : x->a > y->a; /* a counts up within a thread */
}

Test(measure_eventlog, reader_merges_by_time_thread_sequence) {
    static struct event all[LANES * LANE_BLOCKS * 400], got[LANES * LANE_BLOCKS * 400 + 1];
    struct lanes l;
    int nall;
    lanes_make(&l, 17, all, &nall);
    qsort(all, (size_t)nall, sizeof all[0], by_time_thread_order);
    for (int chunk = 1; chunk < 1000; chunk = chunk * 3 + 1) {
        memset(l.next, 0, sizeof l.next);
        struct eventlog_source src = {.ctx = &l, .threads = LANES, .next = lanes_next};
        struct eventlog_reader *r;
        struct err e = {0};
        cr_assert(eq(int, eventlog_open(&src, &r, &e), 0), "%s", e.text);
        int total = 0, n;
        do {
            cr_assert(le(int, total, nall));
            int max = chunk < nall + 1 - total ? chunk : nall + 1 - total;
            cr_assert(eq(int, eventlog_read(r, got + total, max, &n, &e), 0), "%s", e.text);
            total += n;
        } while (n);
        eventlog_close(r);
        cr_assert(eq(int, total, nall));
        for (int i = 0; i < nall; i++) {
            cr_assert(eq(i64, got[i].a, all[i].a), "event %d, chunk %d", i, chunk);
            cr_assert(eq(u32, got[i].thread, all[i].thread));
            cr_assert(eq(i64, got[i].time_ns, all[i].time_ns));
            cr_assert(eq(u64, got[i].request, all[i].request));
        }
    }
    lanes_free(&l);
}

static int open_all(struct lanes *l, struct err *e) {
    struct eventlog_source src = {.ctx = l, .threads = LANES, .next = lanes_next};
    struct eventlog_reader *r;
    struct event ev[64];
    int n, rc = eventlog_open(&src, &r, e);
    while (rc == 0) {
        rc = eventlog_read(r, ev, 64, &n, e);
        if (n == 0)
            break;
    }
    eventlog_close(r);
    return rc;
}

Test(measure_eventlog, reader_insists_on_a_whole_log) {
    static struct event all[LANES * LANE_BLOCKS * 400];
    struct lanes l;
    struct err e = {0};
    int nall;
    lanes_make(&l, 18, all, &nall);
    cr_assert(eq(int, open_all(&l, &e), 0), "%s", e.text);

    memset(l.next, 0, sizeof l.next);
    l.next[1] = 1; /* the first block of thread 1 is missing */
    cr_assert(eq(int, open_all(&l, &e), ASSAY_EINPUT));
    cr_assert(strstr(e.text, "expected block 0, found block 1") != NULL, "%s", e.text);

    memset(l.next, 0, sizeof l.next);
    uint8_t *swap = l.blob[0][0];
    size_t n = l.size[0][0];
    l.blob[0][0] = l.blob[2][0];
    l.size[0][0] = l.size[2][0];
    cr_assert(eq(int, open_all(&l, &e), ASSAY_EINPUT));
    cr_assert(strstr(e.text, "belongs to thread 2") != NULL, "%s", e.text);
    l.blob[0][0] = swap;
    l.size[0][0] = n;

    memset(l.next, 0, sizeof l.next);
    struct event_block *k = NEW_BLOCK();
    uint8_t out[256];
    *k = (struct event_block){.n = 1, .thread = 4, .sequence = 2, .kind = {EVENT_DONE}};
    l.size[4][2] = eventlog_encode(k, out); /* time 0 */
    swap = l.blob[4][2];
    l.blob[4][2] = out;
    cr_assert(eq(int, open_all(&l, &e), ASSAY_EINPUT));
    cr_assert(strstr(e.text, "time goes back") != NULL, "%s", e.text);
    l.blob[4][2] = swap;
    lanes_free(&l);
    free(k);
}
