/* One serving engine (one replica): continuous batching over virtual time.
 *
 * Scheduling follows vLLM's V1 scheduler: a step has a token budget; running sequences first, in
 * order of arrival, each with its next token or the next chunk of its prompt; then waiting ones
 * while budget, sequence slots and KV blocks last. When a running sequence finds no block the
 * latest one is preempted and recomputed from its first token. A step's tokens appear at its end.
 * Events (TOKENS, USAGE, DONE, FAIL) go to the sink; completions to a queue that wait drains.
 * Memory grows only in engine_submit. */
#ifndef BACKENDS_TPU_SIM_ENGINE_H
#define BACKENDS_TPU_SIM_ENGINE_H

#include "backends/backend.h"
#include "backends/tpu_sim/explain.h"
#include "backends/tpu_sim/step.h"
#include "harness/core/event.h"

#include <stdbool.h>
#include <stdint.h>

enum engine_buckets {
    BUCKETS_POW2, /* a step is padded to the next compiled size: powers of two */
    BUCKETS_NONE,
};

struct engine_options {
    int64_t max_batched_tokens, max_seqs;
    int64_t block_size, kv_blocks;
    int64_t max_context;   /* tokens of prompt and answer together; 0 = only the KV cache limits */
    int64_t host_ns;       /* host work of a step */
    bool async_scheduling; /* host work hides behind the device: max instead of sum */
    bool prefix_cache;
    enum engine_buckets buckets;
};

/* Completions not yet handed out, shared by the engines of a backend: a ring with room promised for
 * every request in flight. */
struct completion_queue {
    struct completion *c;
    size_t head, n, cap, promised;
};

struct engine;
struct engine_counters {
    int64_t steps, preemptions, scheduled_tokens, padded_tokens, cached_tokens, evictions;
    int64_t peak_running, peak_blocks;
    int64_t free_blocks, idle_blocks;    /* now; idle = kept for sessions and groups */
    int64_t waiting, running, kv_tokens; /* now */
    struct cost busy;                    /* seconds of all steps by what they waited for */
    struct cost attention;               /* of these, attention by contexts */
};

/* model, sink, done: borrowed for the engine's life. */
int engine_new(const struct step_model *model, const struct engine_options *o,
               struct event_sink *sink, struct completion_queue *done, struct engine **out,
               struct err *e) MUST_USE;
void engine_free(struct engine *g);

/* Could it ever be served? false = longer than the context or the KV cache. */
bool engine_fits(const struct engine *g, const struct request *r);
/* Queues a request that fits. */
int engine_submit(struct engine *g, const struct request *r, struct err *e) MUST_USE;
/* Abandons; its FAIL is recorded now, or at the end of the step it is in. False: not here. */
bool engine_cancel(struct engine *g, uint64_t request, int64_t now_ns);

/* End of the step in progress, INT64_MAX when none is. */
int64_t engine_step_end(const struct engine *g);
bool engine_has_work(const struct engine *g);
/* Schedules and begins a step at now (none in progress, work there). */
void engine_begin(struct engine *g, int64_t now_ns);
/* Ends the step in progress: records its events, queues its completions. */
void engine_end(struct engine *g);

int64_t engine_in_flight(const struct engine *g);
void engine_count(const struct engine *g, struct engine_counters *c);
/* Adds the steps run so far, by their padded sizes. */
void engine_explain(const struct engine *g, struct explain *x);

/* Seconds of one step of `decodes` sequences with `context` tokens in all and no prefill, as the
 * engine would charge it, host work included. For estimates and tests. */
double engine_decode_step_s(const struct engine *g, int64_t decodes, int64_t context);

int completion_promise(struct completion_queue *q, struct err *e) MUST_USE;  /* one more */
void completion_put(struct completion_queue *q, const struct completion *c); /* keeps a promise */
int completion_drain(struct completion_queue *q, struct completion *out, int max);

#endif
