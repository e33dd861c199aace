/* A backend behind HTTP: an OpenAI-compatible streaming endpoint whose timing is a backend's, so that
 * any client can be pointed at a chip that does not exist yet.
 *
 * The backend must have a virtual clock (tpu-sim, null): the clock is tied to the wall, so that an
 * event of virtual time v leaves the socket at start + v / speed. Every response tells what stands
 * behind it (header X-Assay-Class, X-Assay-Chip, system_fingerprint, model id), so that a number
 * measured through this endpoint cannot pass for one measured on silicon.
 *
 * Paths: POST /v1/completions, POST /v1/chat/completions, GET /v1/models, GET /health, GET /metrics.
 * Input tokens are the ids given, else a quarter of the text's bytes, rounded up, at least 1. Output
 * is always max_tokens long: filler of exactly four bytes a token, a function of the token's position
 * (so an answer sent back as part of a prompt counts as the same number of tokens). */
#ifndef BACKENDS_SERVE_SERVE_H
#define BACKENDS_SERVE_SERVE_H

#include "backends/backend.h"
#include "harness/core/err.h"
#include "workloads/workload.h"

#include <stdbool.h>
#include <stdint.h>

/* What happened, for tests, benchmarks and the closing line of the log. Lateness is how long after its
 * due time an event's bytes were handed to the kernel, in wall time. */
struct serve_stats {
    int64_t requests, completed, failed, rejected;
    int64_t disconnected; /* clients that left before their answer was complete */
    int64_t dropped;      /* streams cut because the client read too slowly */
    int64_t token_events, tokens;
    int64_t lateness_max_ns, lateness_sum_ns;
};

struct serve_options {
    const struct backend_ops *ops;   /* caps must have BACKEND_SERVING and BACKEND_VIRTUAL_CLOCK */
    const void *backend_options;     /* parsed, ops->options_size bytes */
    const struct workload *workload; /* gives the model; borrowed until serve_run returns */
    const char *bind;                /* numeric address; NULL = 127.0.0.1 */
    uint16_t port;                   /* 0 = any free one, told through ready */
    double speed;                    /* virtual seconds a wall second; 0 = 1.0 */
    int64_t max_connections;         /* 0 = 16384; lowered to what the fd limit allows */
    int64_t backlog_bytes;           /* how far a client may lag before it is cut; 0 = 64 MiB */
    bool sessions;                   /* find conversations by their prompts, so that backends can re-use
                                        KV caches; always on when the workload has sessions */
    bool log;                        /* one line a request on stderr */
    void (*ready)(void *ctx, uint16_t port); /* called once, when connections are accepted; or NULL */
    void *ready_ctx;
    /* SHA-256 of canonical JSON (results/jcs.h: jcs_sha256), for the chip's digest in X-Assay-Chip;
     * NULL = no digest. A parameter, since this room is not above that one. */
    int (*digest)(const json_t *v, unsigned char sha256[32], struct err *e);
    const volatile int *stop;        /* serve until non-zero; never NULL */
    struct serve_stats *stats;       /* filled on return; or NULL */
};

/* Serves until *stop is set (looked at ten times a second at least). Streams in flight then end with an
 * error event. Raises the soft limit of open files to the hard one.
 * ASSAY_EUSAGE: the backend has no virtual clock; ASSAY_EENV: the address cannot be bound. */
int serve_run(const struct serve_options *o, struct err *e) MUST_USE;

#endif
