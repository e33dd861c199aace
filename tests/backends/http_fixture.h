/* What the tests of the http backend share: an instance against a scripted server, and its events.
 */
#ifndef TESTS_BACKENDS_HTTP_FIXTURE_H
#define TESTS_BACKENDS_HTTP_FIXTURE_H

#include "backends/backend.h"
#include "tests/backends/mock_server.h"

struct fixture {
    struct mock *server;
    struct arena arena;
    struct workload workload;
    struct event_block block; /* every event; a test must not overflow it */
    struct event_sink sink;
    char *options; /* the parsed options */
    struct backend *backend;
    struct err err;
    volatile int stop;
    int64_t origin_ns; /* machine's time of the backend's zero */
};

/* Opens the backend with "key=value" options, NULL-terminated; url defaults to the server's port
 * (when there is a server) and prewarm to off. Returns open's code. */
int fixture_open(struct fixture *f, const char *const *options);
/* Starts the server, opens, and fails the test when open fails. */
void fixture_start(struct fixture *f, const struct mock_config *c, const char *const *options);
void fixture_stop(struct fixture *f);

struct request fixture_request(uint64_t id, uint32_t isl, uint32_t osl);
int fixture_submit(struct fixture *f, const struct request *r);
/* Submits request id (isl 4, osl as given) and waits for its completion. */
struct completion fixture_run(struct fixture *f, uint64_t id, uint32_t osl);
/* Waits until n completions came; aborts the test after 10 s. */
int fixture_wait(struct fixture *f, struct completion *c, int n);

/* The k-th event of a kind for a request; index into the block or -1. */
int fixture_event(const struct fixture *f, enum event_kind kind, uint64_t request, int k);
int fixture_count(const struct fixture *f, enum event_kind kind, uint64_t request);
/* The event's b without the bound in it, and the bucket of that bound. */
int64_t fixture_b(const struct fixture *f, int index);
int64_t fixture_bound(const struct fixture *f, int index);
/* A number of describe's details: counts.NAME, 0 when absent. */
int64_t fixture_counter(struct fixture *f, const char *name);

/* A client that hardly ever looks: between two waits of 1 ms it does something else for 30 ms. What came
 * meanwhile cannot have been stamped in time, and no sleep's end hides how late it was. */
struct busy {
    int64_t from_ns[256], to_ns[256]; /* machine's clock */
    int n;
};
/* Runs so until n requests completed. */
void fixture_run_busy(struct fixture *f, int n, struct busy *b);
/* What lay in a socket at written_ns at the latest has a bound that covers its wait, if the client was
 * busy then; true when it was. */
bool fixture_check_bound(const struct fixture *f, const struct busy *b, int index, int64_t written_ns);

#endif
