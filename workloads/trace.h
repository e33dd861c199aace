/* Recorded traces, read one request or one session at a time in bounded memory: Mooncake JSONL, Azure
 * LLM inference CSV, BurstGPT CSV, ShareGPT JSON; sessions: MLPerf Endpoints JSONL, Weka JSON (AgentX).
 * A malformed or truncated row is an error `file:line:column: …`.
 *
 * Lengths of texts are an estimate: one token for each TRACE_BYTES_PER_TOKEN bytes of UTF-8, rounded
 * up, because the text alone does not say what a tokenizer makes of it. */
#ifndef WORKLOADS_TRACE_H
#define WORKLOADS_TRACE_H

#include "harness/core/err.h"
#include "workloads/session.h"
#include "workloads/workload.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TRACE_BYTES_PER_TOKEN = 4, /* common for English text and byte-pair tokenizers */
    TRACE_ROW_MAX_BYTES = 64 * 1024 * 1024,
    TRACE_BLOCKS_MAX = 32768, /* of one request */
};

/* What a format is, for messages, inspection and checks. */
struct trace_format_info {
    const char *name, *summary;
    int64_t resolution_ns; /* of its times; 0 = it has none */
    uint32_t block_tokens; /* of its prefix blocks; 0 = it has none */
    bool has_text;
    bool has_sessions; /* read by trace_next_session; trace_next gives their calls */
};
const struct trace_format_info *trace_format_info(enum trace_format f); /* NULL for TRACE_NONE */

struct trace_options {
    bool keep_failures; /* BurstGPT: rows with 0 response tokens failed; kept ones get osl = 1 */
    bool force;         /* trace_check_rate accepts anything */
    uint64_t seed;      /* spreads BurstGPT's equal whole-second stamps inside their second */
    /* is given every byte of the file that is read, in order; NULL = nobody */
    void (*seen)(void *ctx, const void *p, size_t n);
    void *seen_ctx;
};

struct trace_row {
    uint64_t line;      /* 1-based, where the row begins */
    int64_t arrival_ns; /* from the format's own zero; -1 = none */
    uint32_t isl, osl;
    bool failed;            /* when it was recorded */
    uint32_t nblocks;       /* prefix blocks of block_tokens each, the last may be partial (weka: only
                               whole ones) */
    const uint64_t *blocks; /* borrowed until the next trace_next, as text is */
    const char *text;       /* literal prompt; NULL = none */
};

struct trace;
int trace_open(const char *path, enum trace_format f, const struct trace_options *o,
               struct trace **out, struct err *e) MUST_USE;
/* The same from memory, borrowed until trace_close. name: for messages. */
int trace_open_memory(const void *p, size_t n, const char *name, enum trace_format f,
                      const struct trace_options *o, struct trace **out, struct err *e) MUST_USE;
int trace_next(struct trace *t, struct trace_row *row, bool *end, struct err *e) MUST_USE;
/* Formats with sessions: the next one. s: zeroed or cleared; also after an error the caller clears it.
 * Not to be mixed with trace_next. */
int trace_next_session(struct trace *t, struct session *s, bool *end, struct err *e) MUST_USE;
/* Reads the rest without looking at it, for `seen`. */
int trace_drain(struct trace *t, struct err *e) MUST_USE;
uint64_t trace_dropped(const struct trace *t); /* rows left out so far: failures, too short talks */
void trace_close(struct trace *t);

/* Refuses a trace whose mean rate, over its first 65,536 rows, exceeds 100,000 a second or is below one
 * an hour: the time unit is wrong then. */
int trace_check_rate(const char *path, enum trace_format f, const struct trace_options *o,
                     struct err *e) MUST_USE;

struct length_stats {
    double mean;
    uint32_t min, p50, p90, p99, max; /* nearest rank */
};
struct trace_stats {
    uint64_t rows, dropped, failed; /* dropped ones are not in rows; failed ones may be (kept) */
    int64_t duration_ns;            /* last - first arrival; -1 = the format has no times */
    double rate_per_s;              /* (rows - 1) / duration; 0 = unknown */
    bool rate_plausible;
    uint64_t out_of_order; /* rows earlier than the one before */
    struct length_stats isl, osl;
    uint64_t input_tokens, output_tokens;
    /* prefix blocks: references, distinct ids, 1 - distinct/references: what an unbounded cache
     * could serve */
    uint64_t block_references, distinct_blocks;
    double ideal_hit_share;
    uint32_t block_tokens;
    bool lengths_estimated; /* from bytes of text */
    uint64_t sessions, branches; /* branches beside the sessions' own; both 0 without sessions */
    struct length_stats turns;   /* calls of a session */
};
/* One pass over the whole file. */
int trace_summary(const char *path, enum trace_format f, const struct trace_options *o,
                  struct trace_stats *s, struct err *e) MUST_USE;

#endif
