/* The parts of the http benchmark: a server on a core of its own, the backend as a client, a bare
 * libcurl client that does the least any such must, and a loop over sockets that does the least there is. */
#ifndef TESTS_BENCH_HTTP_BENCH_H
#define TESTS_BENCH_HTTP_BENCH_H

#include "backends/backend.h"

#include <stddef.h>
#include <stdint.h>

enum {
    REQUESTS_MAX = 10240, /* of one turn */
    EVENTS_MAX = 130,
    TAG = 100000, /* max_tokens = TAG + number of the request: tells the server which one it is */
};

/* Shared with the server's process: what it is to do, and when it did it. */
struct bench_shared {
    int streams, events;
    int64_t period_ns; /* between events of a stream; 0 = as fast as sockets take them */
    int64_t sent_ns[REQUESTS_MAX][EVENTS_MAX]; /* before each write */
};
extern struct bench_shared *shared;
extern const char event_format[];
extern const size_t event_format_bytes;

_Noreturn void die(const char *what);
void pin(int cpu);

/* server.c: forks; returns the port. Each event is one write; without "stream":true it answers with
 * one small document. */
int server_start(void);
void server_stop(void);

/* client.c: one turn = `requests` requests, `streams` at a time. Streams or not as it was opened. */
struct turn {
    int streams, requests;
    int64_t cpu_ns, wall_ns; /* out */
    int64_t rss_bytes;       /* out: the largest seen while it ran */
};
struct client;
struct client *client_open(int port, int streams, const char *option, const char *more);
void client_turn(struct client *c, struct turn *t);
struct backend *client_backend(struct client *c);
void client_submit(struct client *c, int i);
void client_close(struct client *c);
extern int64_t read_ns[REQUESTS_MAX][EVENTS_MAX]; /* the stamps of the last turn */

/* peer.c */
struct peer;
struct peer *peer_open(int port, int streams, bool stream);
void peer_turn(struct peer *p, struct turn *t);
void peer_close(struct peer *p);

/* raw.c: fills read_ns as client_turn does */
struct raw;
struct raw *raw_open(int port, int streams);
void raw_turn(struct raw *r, struct turn *t);
void raw_close(struct raw *r);

#endif
