/* Server-sent events, as the WHATWG HTML standard frames them ("Server-sent events", section
 * "Interpreting an event stream"): bytes in, events out, in whatever pieces the bytes come.
 *
 * Incremental and allocation-free: an event whose bytes lie in one piece is handed out as a view
 * into that piece; only an event cut by a piece's end is copied, into buffers that are kept from
 * stream to stream and never exceed the maximum. `id` and `retry` are read and ignored: nothing
 * reconnects here. */
#ifndef BACKENDS_HTTP_SSE_H
#define BACKENDS_HTTP_SSE_H

#include "harness/core/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Both views die when the callback returns. */
struct sse_event {
    struct str type; /* n = 0: none given, which means "message" */
    struct str data; /* lines joined by LF, without the last one */
};

typedef void sse_event_fn(void *ctx, const struct sse_event *ev);

struct sse {
    size_t max_event_bytes;
    struct buf line; /* a line that has begun in an earlier piece */
    struct buf data; /* data of an event that could not stay a view */
    struct buf type;
    struct str view;   /* data of the current event inside the current piece; p = NULL: in `data` */
    bool has_data;     /* the standard's "data buffer is not empty": one data field was seen */
    bool swallow_lf;   /* the last piece ended in CR */
    bool failed;       /* a line or an event exceeded the maximum */
    unsigned bom;      /* bytes of a byte order mark seen at the very start; 3 = past it */
    uint64_t events;   /* dispatched */
    uint64_t comments; /* lines beginning with ':' */
    uint64_t ignored;  /* lines with a field name that the standard does not know */
};

/* Storage is the caller's; reserves the usual event's size at once. */
void sse_init(struct sse *s, size_t max_event_bytes);
void sse_release(struct sse *s);
void sse_clear(struct sse *s); /* ready for the next stream; keeps the memory */

/* Calls fn for each event that p[0..n) completes. ASSAY_EINPUT (and from then on always) when a
 * line or an event is larger than the maximum; the events before it have been handed out. */
int sse_feed(struct sse *s, const char *p, size_t n, sse_event_fn *fn, void *ctx) MUST_USE;

/* At the end of a stream: the event that has no final blank line, if there is one with data. The
 * standard discards it; the caller decides. The view lives until the next call. */
bool sse_pending(struct sse *s, struct sse_event *ev);

#endif
