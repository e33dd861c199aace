/* The endpoint that doctor measures this machine's client against: a thread on a processor of its own where
 * there is one, that streams a fixed event at a fixed gap and notes when it did. Speaks as much HTTP as
 * the client beside it needs, to loopback only. Private to doctor. */
#ifndef HARNESS_RUN_DOCTOR_SERVER_H
#define HARNESS_RUN_DOCTOR_SERVER_H

#include "harness/core/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct doctor_server;

/* cpu: where the thread stays; spins: the processor is its own, so it need not sleep between events.
 * Room for `streams` at a time, `events` each. */
int doctor_server_start(int cpu, bool spins, int streams, int events, int64_t gap_ns,
                        struct doctor_server **out, struct err *e) MUST_USE;
void doctor_server_stop(struct doctor_server *s); /* NULL is allowed */
int doctor_server_port(const struct doctor_server *s);

/* Of the stream whose request asked for DOCTOR_TAG + stream tokens, the last time it was asked for. */
enum { DOCTOR_TAG = 1000000 };
int64_t doctor_server_sent_ns(const struct doctor_server *s, int stream, int event); /* machine's clock */
/* Events that it wrote later than half a gap after they were due, since the last call. */
int64_t doctor_server_late(struct doctor_server *s);

#endif
