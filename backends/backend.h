/* A backend: whatever answers requests. The harness drives every backend through these slots and
 * reads no other clock than the backend's, so one scenario runs against a socket, a CPU kernel or a
 * chip that does not exist.
 *
 * Life: ops found in the registry -> options parsed by the core into `options` -> open -> describe ->
 * (submit | wait | now)* -> close. One instance belongs to one thread (shard); instances never share
 * state. The backend records SENT, TOKENS, USAGE, DONE, FAIL (and STEP, ENGINE) events of its requests
 * in the sink it is given; the driver records MARK, SESSION and ISSUE. DONE or FAIL is recorded before
 * the matching completion is returned. */
#ifndef BACKENDS_BACKEND_H
#define BACKENDS_BACKEND_H

#include "harness/core/arena.h"
#include "harness/core/err.h"
#include "harness/core/event.h"
#include "harness/core/options.h"
#include "workloads/plan.h"
#include "workloads/workload.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { BACKEND_ABI = 1 };

enum backend_caps {
    BACKEND_VIRTUAL_CLOCK = 1 << 0, /* may run in virtual time (see info.virtual_clock) */
    BACKEND_SERVING = 1 << 1,       /* takes requests */
    BACKEND_TRAINING = 1 << 2,      /* takes training steps */
    BACKEND_SINGLE = 1 << 3,        /* one instance a run: more threads are refused */
};

/* What stands behind the numbers (DESIGN.md idea 6). Ordered from weak to strong claim. */
enum result_class { CLASS_NONE, CLASS_PROJECTED, CLASS_SIMULATED, CLASS_EMULATED, CLASS_MEASURED };
const char *result_class_name(enum result_class c);
int result_class_parse(const char *name, enum result_class *c) MUST_USE;

/* A backend's answer to describe: what the record says of the system that ran. */
struct backend_info {
    enum result_class result_class;
    bool virtual_clock;     /* now() is virtual: waiting costs no time */
    char chip[64];          /* "v6e", "" when unknown */
    int64_t chips;          /* physical chips; 0 when unknown */
    double peak_flops_per_s;/* of one chip at the dtype used; 0 = unknown: no MFU */
    double flops_per_token; /* model FLOPs of one generated token (2*active parameters); 0 = unknown */
    char model_id[128];     /* as the endpoint names it */
    char settings[128];     /* what beside chip and chips makes it another system: "weights=int8"; "" when
                               all is at its default. Part of the system's name */
    char metrics_urls[4096];/* where the system may show Prometheus metrics of itself: URLs apart by a
                               blank; "" when unknown */
    json_t *details;        /* new reference, goes into the record (chip digest, engine settings,
                               model version, calibration digest…); never secrets. May be NULL. */
};

struct backend_open_args {
    const struct workload *workload; /* borrowed for the instance's life */
    const void *options;             /* options_size bytes, filled from the table */
    struct event_sink *sink;         /* borrowed for the instance's life */
    uint32_t shard, shards;
    int64_t origin_ns;               /* CLOCK_MONOTONIC time that now() counts from on real clocks, so
                                        that all shards share one zero; virtual clocks ignore it */
    int64_t max_in_flight;           /* the most the driver will have open at once; 0 = unbounded */
};

enum submit_result { SUBMIT_DONE = 0, SUBMIT_QUEUED = 1, SUBMIT_BUSY = 2 };

struct completion {
    uint64_t request;
    int64_t time_ns;
    uint32_t output_tokens;
    int32_t fail_class; /* FAIL_NONE when it succeeded */
};

/* One resource's share of the busy time, for the `bottleneck` of the summary. */
struct backend_share {
    char resource[32];
    double share;
};

struct backend; /* instance: defined by each backend, begins with struct backend_base */

struct backend_ops {
    unsigned abi;               /* BACKEND_ABI */
    const char *name, *summary;
    const char *version;        /* of the model or protocol code; changes when numbers may change */
    unsigned caps;
    const struct option *options; /* ends with {0} */
    size_t options_size;

    /* required. Allocates *out. Everything slow (name resolution, graph building, allocation for
     * max_in_flight requests) happens here. ASSAY_EENV when the endpoint cannot be reached. */
    int (*open)(const struct backend_open_args *args, struct backend **out, struct err *e);
    /* required. info->details is a new reference. */
    int (*describe)(struct backend *b, struct backend_info *info, struct err *e);
    /* required. Takes a copy of what it needs of r before returning.
     * SUBMIT_DONE: completed at now(), events recorded, *c filled, no completion will follow.
     * SUBMIT_QUEUED: a completion follows from wait. SUBMIT_BUSY: nothing taken; wait, then retry.
     * < 0: the run cannot go on. */
    int (*submit)(struct backend *b, const struct request *r, struct completion *c, struct err *e);
    /* required. Runs until the first completions are there or until_ns is reached, whichever comes
     * first; INT64_MAX = no deadline. Fills at most max completions and sets *n (0 at the deadline,
     * or when nothing is in flight and until_ns is INT64_MAX). After it now() >= until_ns or *n > 0.
     * Returns ASSAY_EINTERRUPTED soon after *stop becomes non-zero (real clocks only). */
    int (*wait)(struct backend *b, int64_t until_ns, struct completion *c, int max, int *n,
                const volatile int *stop, struct err *e);
    /* required. ns; starts near 0 at open; never decreases. */
    int64_t (*now)(struct backend *b);
    /* optional (virtual clocks): when the next thing would happen by itself; INT64_MAX = nothing. */
    int64_t (*next_ns)(struct backend *b);
    /* optional: abandons a request; FAIL with FAIL_CANCELLED follows through wait. */
    void (*cancel)(struct backend *b, uint64_t request);
    /* optional: where the time went; returns the count, at most max. */
    int (*shares)(struct backend *b, struct backend_share *s, int max);
    /* optional: what the instance saw during the run, as a new JSON object or NULL; called once, after
     * the last wait. "warnings": texts that a reader of the figures must see. */
    json_t *(*observe)(struct backend *b);
    /* optional: runs `steps` training steps from step `first`, recording ISSUE and STEP itself. */
    int (*train)(struct backend *b, uint64_t first, int64_t steps, struct err *e);
    /* required; b may be half-opened or NULL. */
    void (*close)(struct backend *b);
};

/* First member of every instance. */
struct backend {
    const struct backend_ops *ops;
};

extern const struct backend_ops *const backend_all[]; /* NULL-terminated; the only list */
/* Checks ABI and slot combinations once. Unknown names: ASSAY_EUSAGE with the near ones. */
int backend_find(const char *name, const struct backend_ops **out, struct err *e) MUST_USE;

extern const struct backend_ops backend_null, backend_tpu_sim, backend_http;

#endif
