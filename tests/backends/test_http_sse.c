/* The event-stream parser: the WHATWG standard's examples (HTML, section 9.2.6 "Interpreting an
 * event stream"), its rules one by one, every way of cutting the bytes, and a naive reading of the
 * standard as oracle for random streams. */
#include "backends/http/sse.h"
#include "harness/core/rng.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Events as text: "type|data" each, ended by \x1e. */
static void record(void *ctx, const struct sse_event *ev) {
    struct buf *b = ctx;
    buf_put(b, ev->type.p, ev->type.n);
    buf_putc(b, '|');
    buf_put(b, ev->data.p, ev->data.n);
    buf_putc(b, '\x1e');
}

// clang-format off: a rule a row
#define E "\x1e"
static const struct {
    const char *name, *in;
    size_t n; /* 0: strlen */
    const char *out;
} rows[] = {
    {"standard: three lines", "data: YHOO\ndata: +2\ndata: 10\n\n", 0, "|YHOO\n+2\n10" E},
    {"standard: comment, ids, spaces",
     ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
     0, "|first event" E "|second event" E "| third event" E},
    {"standard: empty data, unfinished end", "data\n\ndata\ndata\n\ndata:", 0, "|" E "|\n" E},
    {"standard: the space is optional", "data:test\n\ndata: test\n\n", 0, "|test" E "|test" E},
    {"standard: types", "event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\ndata: x\n\n", 0,
     "add|73857293" E "remove|2153" E "|x" E},
    {"CR LF", "data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", 0, "|a\nb" E "|c" E},
    {"CR", "data: a\rdata: b\r\rdata: c\r\r", 0, "|a\nb" E "|c" E},
    {"mixed line ends", "data: a\r\ndata: b\rdata: c\n\r\ndata: d\n\r", 0, "|a\nb\nc" E "|d" E},
    {"LF CR is two ends", "data: a\n\rdata: b\n\r", 0, "|a" E "|b" E},
    {"byte order mark",
     "\xEF\xBB\xBF"
     "data: a\n\n",
     0, "|a" E},
    {"only the first mark is dropped",
     "\xEF\xBB\xBF\xEF\xBB\xBF"
     "data: a\n\ndata: b\n\n",
     0, "|b" E},
    {"half a mark is content",
     "\xEF\xBB"
     "data: a\n\ndata: b\n\n",
     0, "|b" E},
    {"a mark later is content", "data: \xEF\xBB\xBF\n\n", 0, "|\xEF\xBB\xBF" E},
    {"no other line ends",
     "data: a\xE2\x80\xA8"
     "b\xE2\x80\xA9"
     "c\xC2\x85"
     "d\x0B"
     "e\x0C"
     "f\n\n",
     0,
     "|a\xE2\x80\xA8"
     "b\xE2\x80\xA9"
     "c\xC2\x85"
     "d\x0B"
     "e\x0C"
     "f" E},
    {"one space only", "data:  a\ndata:\tb\n\n", 0, "| a\n\tb" E},
    {"colon in the value", "data: {\"a\":1}\n\n", 0, "|{\"a\":1}" E},
    {"no data, no event; the type is forgotten", "event: x\n\ndata: a\n\n", 0, "|a" E},
    {"last type wins", "event: x\nevent: y\ndata: a\n\n", 0, "y|a" E},
    {"empty type", "event: x\nevent\ndata: a\n\n", 0, "|a" E},
    {"names are exact", "Data: a\ndatax: b\n data: c\ndat: d\ndata : e\n\ndata: f\n\n", 0, "|f" E},
    {"id and retry mean nothing here", "id: 1\nretry: 10\ndata: a\n\n", 0, "|a" E},
    {"comments between lines of an event", "data: a\n: ping\ndata: b\n\n", 0, "|a\nb" E},
    {"many blank lines", "\n\n\r\n\rdata: a\n\n\n\n", 0, "|a" E},
    {"NUL is content", "data: a\0b\n\n", 11, "|a"},
    {"unfinished event", "data: a\n\ndata: b\n", 0, "|a" E},
    {"done mark", "data: [DONE]\n\n", 0, "|[DONE]" E},
};
// clang-format on
enum { NROWS = sizeof rows / sizeof *rows };

static struct str input(int i) {
    return (struct str){rows[i].in, rows[i].n ? rows[i].n : strlen(rows[i].in)};
}

static void feed(struct sse *s, const char *p, size_t n, struct buf *out) {
    /* an exact copy on the heap, so that a sanitizer sees a view that outlives its piece */
    char *copy = malloc(n ? n : 1);
    memcpy(copy, p, n);
    cr_assert(zero(int, sse_feed(s, copy, n, record, out)));
    free(copy);
}

Test(backends_http_sse, table) {
    struct sse s;
    struct buf out;
    sse_init(&s, 1 << 20);
    buf_init(&out, 1 << 20);
    for (int i = 0; i < NROWS; i++) {
        sse_clear(&s);
        buf_clear(&out);
        feed(&s, input(i).p, input(i).n, &out);
        /* a row with a NUL is compared up to it */
        cr_assert(eq(str, out.p ? out.p : "", (char *)rows[i].out), "%s", rows[i].name);
    }
    buf_release(&out);
    sse_release(&s);
}

Test(backends_http_sse, cut_anywhere_gives_the_same_events) {
    struct sse s;
    struct buf whole, cut;
    sse_init(&s, 1 << 20);
    buf_init(&whole, 1 << 20);
    buf_init(&cut, 1 << 20);
    for (int i = 0; i < NROWS; i++) {
        struct str in = input(i);
        sse_clear(&s);
        buf_clear(&whole);
        feed(&s, in.p, in.n, &whole);
        uint64_t counts[] = {s.events, s.comments, s.ignored};
        for (size_t a = 0; a <= in.n; a++)
            for (size_t b = a; b <= in.n; b++) {
                sse_clear(&s);
                buf_clear(&cut);
                feed(&s, in.p, a, &cut);
                feed(&s, in.p + a, b - a, &cut);
                feed(&s, in.p + b, in.n - b, &cut);
                cr_assert(eq(sz, cut.n, whole.n), "%s cut at %zu and %zu", rows[i].name, a, b);
                cr_assert(zero(int, memcmp(cut.p ? cut.p : "", whole.p ? whole.p : "", whole.n)),
                          "%s cut at %zu and %zu", rows[i].name, a, b);
                cr_assert(s.events == counts[0] && s.comments == counts[1] &&
                          s.ignored == counts[2]);
            }
        sse_clear(&s);
        buf_clear(&cut);
        for (size_t a = 0; a < in.n; a++)
            feed(&s, in.p + a, 1, &cut);
        cr_assert(eq(sz, cut.n, whole.n), "%s byte by byte", rows[i].name);
        cr_assert(zero(int, memcmp(cut.p ? cut.p : "", whole.p ? whole.p : "", whole.n)));
    }
    buf_release(&whole);
    buf_release(&cut);
    sse_release(&s);
}

/* The standard's text taken literally: line ends made LF, then line by line over the whole stream.
 */
static void oracle(const char *p, size_t n, struct buf *out) {
    char *text = malloc(n + 1), data[4096], type[4096] = "";
    size_t k = 0, ndata = 0;
    if (n >= 3 && !memcmp(p, "\xEF\xBB\xBF", 3)) {
        p += 3;
        n -= 3;
    }
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\r') {
            text[k++] = '\n';
            i += i + 1 < n && p[i + 1] == '\n';
        } else {
            text[k++] = p[i];
        }
    }
    size_t from = 0;
    for (size_t i = 0; i < k; i++) {
        if (text[i] != '\n')
            continue;
        text[i] = '\0';
        char *line = text + from;
        from = i + 1;
        if (!*line) {
            if (ndata) {
                data[ndata - 1] = '\0';
                buf_printf(out, "%s|%s\x1e", type, data);
            }
            ndata = 0;
            type[0] = '\0';
            continue;
        }
        char *value = strchr(line, ':');
        if (value == line)
            continue;
        if (value) {
            *value++ = '\0';
            value += *value == ' ';
        } else {
            value = line + strlen(line);
        }
        if (!strcmp(line, "data"))
            ndata += (size_t)snprintf(data + ndata, sizeof data - ndata, "%s\n", value);
        else if (!strcmp(line, "event"))
            snprintf(type, sizeof type, "%s", value);
    }
    free(text);
}

Test(backends_http_sse, random_streams_against_the_standard) {
    static const char *const parts[] = {"data",    "event",        "id",           ":",     " ",
                                        "\n",      "\r",           "\r\n",         "x",     "\n\n",
                                        "data: y", "\xEF\xBB\xBF", "\xE2\x80\xA8", "retry", "\xEF"};
    struct sse s;
    struct buf in, got, want;
    sse_init(&s, 1 << 20);
    buf_init(&in, 1 << 20);
    buf_init(&got, 1 << 20);
    buf_init(&want, 1 << 20);
    uint64_t events = 0;
    for (uint64_t k = 0; k < 20000; k++) {
        struct rng r = rng_at(1, 0, k);
        buf_clear(&in);
        buf_clear(&got);
        buf_clear(&want);
        sse_clear(&s);
        for (uint64_t i = 1 + rng_below(&r, 40); i; i--)
            buf_puts(&in, parts[rng_below(&r, sizeof parts / sizeof *parts)]);
        oracle(in.p, in.n, &want);
        for (size_t at = 0; at < in.n;) {
            size_t n = 1 + rng_below(&r, 9);
            n = n < in.n - at ? n : in.n - at;
            feed(&s, in.p + at, n, &got);
            at += n;
        }
        cr_assert(eq(str, got.p ? got.p : "", want.p ? want.p : ""), "stream %d", (int)k);
        events += s.events;
    }
    cr_assert(gt(u64, events, 5000));
    buf_release(&in);
    buf_release(&got);
    buf_release(&want);
    sse_release(&s);
}

Test(backends_http_sse, pending_at_the_end) {
    static const struct {
        const char *in, *data;
    } ends[] = {
        {"data: a\n\ndata: [DONE]", "[DONE]"},
        {"data: x\n", "x"},
        {"data: x\ndata: y", "x\ny"},
        {"data: x\n\n", NULL},
        {": c", NULL},
        {"", NULL},
        {"event: e", NULL},
        {"data", ""},
    };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (size_t cut = 0; cut <= strlen(ends[i].in); cut++) {
            struct sse s;
            struct sse_event ev;
            struct buf out;
            sse_init(&s, 1 << 20);
            buf_init(&out, 1 << 20);
            feed(&s, ends[i].in, cut, &out);
            feed(&s, ends[i].in + cut, strlen(ends[i].in) - cut, &out);
            bool any = sse_pending(&s, &ev);
            cr_assert(eq(int, any, ends[i].data != NULL));
            if (any) {
                cr_assert(eq(sz, ev.data.n, strlen(ends[i].data)));
                cr_assert(zero(int, memcmp(ev.data.p, ends[i].data, ev.data.n)));
            }
            buf_release(&out);
            sse_release(&s);
        }
}

static void count(void *ctx, const struct sse_event *ev) {
    (void)ev;
    ++*(int *)ctx;
}

/* Memory is bounded by the maximum, whatever the pieces. */
Test(backends_http_sse, too_large) {
    static const char in[] =
        "data: ok\n\ndata: 0123456789012345678901234567890123456789\n\ndata: no\n\n";
    static const char lines[] =
        "data: ok\n\ndata: 0123456789012345\ndata: 0123456789012345\ndata: x\n\n";
    const char *const both[] = {in, lines};
    for (int k = 0; k < 2; k++)
        for (size_t piece = 1; piece <= strlen(both[k]); piece++) {
            struct sse s;
            int events = 0, rc = 0;
            sse_init(&s, 32);
            for (size_t at = 0; at < strlen(both[k]) && !rc; at += piece) {
                size_t left = strlen(both[k]) - at;
                rc = sse_feed(&s, both[k] + at, piece < left ? piece : left, count, &events);
            }
            cr_assert(eq(int, rc, ASSAY_EINPUT));
            cr_assert(eq(int, events, 1));
            cr_assert(le(sz, s.line.cap + s.data.cap, 2 * 33));
            cr_assert(eq(int, sse_feed(&s, "\n", 1, count, &events), ASSAY_EINPUT));
            sse_release(&s);
        }
}

static void address(void *ctx, const struct sse_event *ev) {
    *(const char **)ctx = ev->data.p;
}

Test(backends_http_sse, an_event_in_one_piece_is_not_copied) {
    static const char in[] = "data: {\"a\":1}\n\n";
    struct sse s;
    const char *p = NULL;
    sse_init(&s, 1 << 20);
    cr_assert(zero(int, sse_feed(&s, in, strlen(in), address, &p)));
    cr_assert(eq(ptr, (void *)(uintptr_t)p, (void *)(uintptr_t)(in + 6)));
    sse_release(&s);
}
