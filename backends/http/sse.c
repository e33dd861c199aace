/* The event-stream parser. Knows lines and fields; knows nothing of JSON, HTTP or tokens. */
#include "backends/http/sse.h"

#include <string.h>

enum { USUAL_EVENT_BYTES = 4096, TYPE_MAX_BYTES = 4096 };

static const unsigned char byte_order_mark[3] = {0xEF, 0xBB, 0xBF};

void sse_init(struct sse *s, size_t max_event_bytes) {
    *s = (struct sse){.max_event_bytes = max_event_bytes};
    buf_init(&s->line, max_event_bytes);
    buf_init(&s->data, max_event_bytes);
    buf_init(&s->type, TYPE_MAX_BYTES);
    size_t usual = max_event_bytes < USUAL_EVENT_BYTES ? max_event_bytes : USUAL_EVENT_BYTES;
    /* failing here only means growing later */
    buf_reserve(&s->line, usual);
    buf_reserve(&s->data, usual);
    buf_reserve(&s->type, 64);
    sse_clear(s);
}

void sse_release(struct sse *s) {
    buf_release(&s->line);
    buf_release(&s->data);
    buf_release(&s->type);
}

void sse_clear(struct sse *s) {
    buf_clear(&s->line);
    buf_clear(&s->data);
    buf_clear(&s->type);
    s->view = (struct str){0};
    s->has_data = s->swallow_lf = s->failed = false;
    s->bom = 0;
    s->events = s->comments = s->ignored = 0;
}

static int too_large(struct sse *s) {
    s->failed = true;
    return ASSAY_EINPUT;
}

/* Moves the data out of the piece that is about to die. */
static void stash_view(struct sse *s) {
    if (!s->view.p)
        return;
    buf_put(&s->data, s->view.p, s->view.n);
    s->view = (struct str){0};
}

/* stays: the value lies in the current piece, so a view of it is good until the piece ends. */
static int add_data(struct sse *s, struct str value, bool stays) {
    if (!s->has_data) {
        s->has_data = true;
        if (stays)
            s->view = value;
        else
            buf_put(&s->data, value.p, value.n);
    } else {
        stash_view(s);
        buf_putc(&s->data, '\n');
        buf_put(&s->data, value.p, value.n);
    }
    return s->data.failed ? too_large(s) : 0;
}

static void dispatch(struct sse *s, sse_event_fn *fn, void *ctx) {
    if (s->has_data) {
        struct sse_event ev = {.type = {s->type.p, s->type.n}, .data = s->view};
        if (!s->view.p)
            ev.data = (struct str){s->data.p, s->data.n};
        s->events++;
        fn(ctx, &ev);
        s->has_data = false;
        s->view = (struct str){0};
        s->data.n = 0;
    }
    s->type.n = 0;
}

static bool name_is(const char *p, size_t n, const char *name) {
    return n == strlen(name) && !memcmp(p, name, n);
}

static int take_field(struct sse *s, const char *p, size_t n, bool stays) {
    if (n > s->max_event_bytes)
        return too_large(s);
    if (p[0] == ':') {
        s->comments++;
        return 0;
    }
    const char *colon = memchr(p, ':', n);
    size_t name = colon ? (size_t)(colon - p) : n;
    struct str value = {p + n, 0};
    if (colon) {
        value = (struct str){colon + 1, n - name - 1};
        if (value.n && value.p[0] == ' ') {
            value.p++;
            value.n--;
        }
    }
    if (name_is(p, name, "data"))
        return add_data(s, value, stays);
    if (name_is(p, name, "event")) {
        s->type.n = 0;
        buf_put(&s->type, value.p, value.n);
        return s->type.failed ? too_large(s) : 0;
    }
    if (!name_is(p, name, "id") && !name_is(p, name, "retry"))
        s->ignored++;
    return 0;
}

/* A mark may be cut anywhere; bytes that turn out to be no mark are content of the first line. */
static const char *skip_mark(struct sse *s, const char *p, const char *end) {
    while (p < end && s->bom < 3) {
        if ((unsigned char)*p != byte_order_mark[s->bom]) {
            buf_put(&s->line, byte_order_mark, s->bom);
            s->bom = 3;
            break;
        }
        p++;
        s->bom++;
    }
    return p;
}

static const char *find(const char *p, char c, const char *end) {
    const char *hit = memchr(p, c, (size_t)(end - p));
    return hit ? hit : end;
}

int sse_feed(struct sse *s, const char *p, size_t n, sse_event_fn *fn, void *ctx) {
    if (s->failed)
        return ASSAY_EINPUT;
    if (!n)
        return 0;
    const char *end = p + n;
    if (s->bom < 3)
        p = skip_mark(s, p, end);
    if (s->swallow_lf && p < end) {
        p += *p == '\n';
        s->swallow_lf = false;
    }
    /* the next LF and CR are searched again only once passed: linear also for CR-only streams */
    const char *lf = NULL, *cr = NULL;
    while (p < end) {
        if (!lf || lf < p)
            lf = find(p, '\n', end);
        if (!cr || cr < p)
            cr = find(p, '\r', end);
        const char *eol = lf < cr ? lf : cr;
        size_t length = (size_t)(eol - p);
        const char *line = p;
        bool carried = s->line.n > 0;
        if (eol == end || carried) {
            buf_put(&s->line, p, length);
            if (s->line.failed)
                return too_large(s);
            if (eol == end)
                break;
            line = s->line.p;
            length = s->line.n;
        }
        if (length == 0)
            dispatch(s, fn, ctx);
        else if (take_field(s, line, length, !carried))
            return ASSAY_EINPUT;
        s->line.n = 0;
        p = eol + 1;
        if (*eol == '\r') {
            if (p == end)
                s->swallow_lf = true;
            else
                p += *p == '\n';
        }
    }
    stash_view(s);
    return s->data.failed ? too_large(s) : 0;
}

bool sse_pending(struct sse *s, struct sse_event *ev) {
    if (s->failed)
        return false;
    if (s->line.n) {
        if (take_field(s, s->line.p, s->line.n, false))
            return false;
        s->line.n = 0;
    }
    if (!s->has_data)
        return false;
    *ev = (struct sse_event){.type = {s->type.p, s->type.n}, .data = {s->data.p, s->data.n}};
    return true;
}
