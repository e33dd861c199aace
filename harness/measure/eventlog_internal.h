/* Inside the event log codec: variable-length integers, bit streams and integer sequences.
 * The bytes are those of schemas/event-log.md; nothing outside harness/measure includes this. */
#ifndef HARNESS_MEASURE_EVENTLOG_INTERNAL_H
#define HARNESS_MEASURE_EVENTLOG_INTERNAL_H

#include "harness/core/event.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How an integer sequence is written; the numbers are part of the format. */
enum ints_method {
    INTS_CONST = 0,  /* all equal base */
    INTS_PACK = 1,   /* base + w-bit unsigned */
    INTS_RICE = 2,   /* base + Rice(k) */
    INTS_ZRICE = 3,  /* base + unzigzag(Rice(k)) */
    INTS_SPARSE = 4, /* base, except at listed positions */
    INTS_DELTA = 5,  /* first value, then differences */
    INTS_SUCC = 6,   /* request column only: successor prediction */
    INTS_BITMAP = 7, /* in SUCC, instead of the gaps: a bit an event */
};

/* Which methods a place admits: each depth admits those of the depths below it. */
enum ints_depth { INTS_FLAT = 0, INTS_WITH_SPARSE = 1, INTS_WITH_DELTA = 2 };

enum {
    RICE_ESCAPE = 20,      /* so many zero bits announce a raw 64-bit value */
    SUCC_SPAN_MAX = 16384, /* ids of a block must span fewer for successor prediction */
};

static inline uint64_t zigzag(int64_t v) {
    return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
}

static inline int64_t unzigzag(uint64_t u) {
    return (int64_t)((u >> 1) ^ (~(u & 1) + 1));
}

static inline unsigned bit_length(uint64_t v) {
    return v ? 64u - (unsigned)__builtin_clzll(v) : 0u;
}

static inline size_t varint_size(uint64_t v) {
    return v ? (bit_length(v) + 6u) / 7u : 1u;
}

uint8_t *varint_put(uint8_t *p, uint64_t v);

/* A reader over borrowed bytes; why stays NULL until something is malformed. */
struct bytes_in {
    const uint8_t *p, *end;
    const char *why;
};
uint64_t varint_get(struct bytes_in *in); /* 0 and in->why on failure */

/* How a sequence would be written, and about how large it gets. */
struct ints_plan {
    uint8_t method; /* enum ints_method */
    uint8_t k;      /* width or Rice parameter */
    uint8_t delta;  /* the differences are what is written, inside DELTA */
    uint8_t width;  /* Rice: what packing would need, should the estimate prove wrong */
    int64_t base, lo;
    uint32_t exceptions;
    size_t bytes;
};

/* Room for the sequences that an encoder derives; one an encode call, on its stack. */
struct ints_scratch {
    int64_t delta[EVENT_BLOCK_CAP];
    int64_t gap[EVENT_BLOCK_CAP / 2], value[EVENT_BLOCK_CAP / 2];
};

void ints_range(const int64_t *v, uint32_t m, int64_t *lo, int64_t *hi);
/* Whether, by a sample, the differences take fewer bytes than that. */
bool ints_delta_promises(const int64_t *v, uint32_t m, size_t bytes);
struct ints_plan ints_plan(const int64_t *v, uint32_t m, enum ints_depth depth,
                           struct ints_scratch *s);
uint8_t *ints_put(uint8_t *p, const int64_t *v, uint32_t m, const struct ints_plan *plan,
                  struct ints_scratch *s);

uint8_t *ints_put_const(uint8_t *p, int64_t base);
/* SPARSE from a list of e >= 1 exceptions that the caller has already. */
uint8_t *ints_put_sparse(uint8_t *p, int64_t base, const int64_t *gap, const int64_t *value,
                         uint32_t e);

/* One bit a value, flag[i] 0 or 1. get: exactly e of them must be set. */
uint8_t *bitmap_put(uint8_t *p, const uint8_t *flag, uint32_t m);
bool bitmap_get(struct bytes_in *in, uint8_t *flag, uint32_t m, uint32_t e);

/* When the next sequence is CONST, takes it and returns true: the caller fills in bulk. */
bool ints_get_const(struct bytes_in *in, int64_t *base);
/* When it is SPARSE, takes its head and gives the places of the e exceptions, rising, and their
 * values; *e = 0 when it is something else; false when malformed. */
bool ints_get_exceptions(struct bytes_in *in, uint32_t m, int64_t *base, uint32_t *e,
                         int64_t *place, int64_t *value);

/* Reads m >= 1 values; false and in->why when malformed. */
bool ints_get(struct bytes_in *in, int64_t *v, uint32_t m, enum ints_depth depth);
/* The same when the method byte has been consumed already. */
bool ints_get_method(struct bytes_in *in, uint8_t method, int64_t *v, uint32_t m,
                     enum ints_depth depth);

#endif
