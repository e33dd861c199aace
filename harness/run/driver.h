/* The driver: issues a plan's requests to one backend instance when the load pattern says so.
 *
 * One driver a shard (thread). It records MARK (shard 0 only), SESSION and ISSUE events; everything
 * else comes from the backend. It never reads a clock for a decision: time is the backend's.
 *
 * Windows. Warm-up by count: closed-loop and offline patterns drain the warm-up requests before the
 * window begins; open-loop patterns and sessions go on without a pause, and the window begins at the
 * intended time of the first measured request. Warm-up by duration never drains. With a duration the
 * window ends at begin + duration, and nothing that was intended later is issued; without one it ends
 * with the last completion. */
#ifndef HARNESS_RUN_DRIVER_H
#define HARNESS_RUN_DRIVER_H

#include "backends/backend.h"
#include "harness/core/err.h"
#include "harness/core/event.h"
#include "harness/measure/metrics.h"
#include "workloads/workload.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Counters of one shard, written by it (relaxed) and read by the progress line. */
struct driver_progress {
    _Atomic int64_t issued, done, failed, in_flight;
};

/* What the shards share: nothing on the hot path. */
struct driver_shared {
    uint32_t shards;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    uint32_t waiting;
    uint64_t generation;
    int64_t max_ns, result_ns;
    bool failed;
};
void driver_shared_init(struct driver_shared *s, uint32_t shards);
void driver_shared_release(struct driver_shared *s);

struct driver_args {
    const struct workload *workload;
    struct backend *backend;
    bool virtual_clock;
    struct event_sink *sink;
    uint32_t shard;
    struct driver_shared *shared;
    struct driver_progress *progress;  /* of this shard */
    struct sketch *latency;            /* E2E from the intended time, shard 0's; may be NULL */
    int64_t grace_ns;                  /* real clocks: longest drain; 0 = until all is done */
    const volatile int *stop;
    /* called about every 50 ms of machine time, from this thread; non-zero ends the run */
    int (*tick)(void *ctx, struct err *e);
    void *tick_ctx;
};

/* Runs the shard to its end. 0, ASSAY_EINTERRUPTED (log complete up to there), or an error. */
int driver_run(const struct driver_args *a, struct err *e) MUST_USE;

#endif
