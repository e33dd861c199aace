/* The event log's bytes: one block of events <-> one self-contained blob, the store's sample chunk.
 * Format: schemas/event-log.md. Pure functions. */
#ifndef HARNESS_MEASURE_EVENTLOG_H
#define HARNESS_MEASURE_EVENTLOG_H

#include "harness/core/err.h"
#include "harness/core/event.h"

#include <stddef.h>
#include <stdint.h>

enum {
    EVENTLOG_VERSION = 1,
    EVENTLOG_BLOCK_MAX_BYTES = 256 * 1024, /* worst case of a full block, checked by a test */
    EVENTLOG_THREADS_MAX = 1024,
};

/* Encodes k (n >= 1) into out (EVENTLOG_BLOCK_MAX_BYTES); returns the bytes used. Cannot fail. */
size_t eventlog_encode(const struct event_block *k, uint8_t *out);

/* Decodes one blob. Every malformation is ASSAY_EINPUT: bad magic or version, more events than
 * EVENT_BLOCK_CAP, truncated or trailing bytes, over-long varints, decreasing time, unknown kind. */
int eventlog_decode(const uint8_t *p, size_t n, struct event_block *k, struct err *e) MUST_USE;

/* One event, as a reader sees it. */
struct event {
    int64_t time_ns;
    uint64_t request;
    int64_t a, b;
    uint32_t thread;
    uint8_t kind;
};

/* Where a reader gets the blobs of a thread, in sequence. next: sets *p,*n to the next blob (valid
 * until the following call for the same thread), or *n = 0 at the end. */
struct eventlog_source {
    void *ctx;
    uint32_t threads;
    int (*next)(void *ctx, uint32_t thread, const uint8_t **p, size_t *n, struct err *e);
};

/* Merges the threads by (time, thread, sequence). Memory: one decoded block a thread.
 * ASSAY_EINPUT when a blob belongs to another thread, is not the next of its thread, or begins
 * before the last event of the blob before it. */
struct eventlog_reader;
int eventlog_open(const struct eventlog_source *src, struct eventlog_reader **out,
                  struct err *e) MUST_USE;
/* Up to max events; *n = 0 at the end. */
int eventlog_read(struct eventlog_reader *r, struct event *ev, int max, int *n,
                  struct err *e) MUST_USE;
/* The same without a copy: the next events that follow each other in the merged order and come from
 * one block. With one thread that is a block. Valid until the next call; n = 0 at the end. */
struct eventlog_view {
    uint32_t n;
    uint32_t thread;
    const int64_t *time_ns;
    const uint64_t *request;
    const int64_t *a, *b;
    const uint8_t *kind;
};
int eventlog_next(struct eventlog_reader *r, struct eventlog_view *v, struct err *e) MUST_USE;
void eventlog_close(struct eventlog_reader *r);

#endif
