/* libcurl's multi_socket interface driven by epoll, with deadlines in nanoseconds.
 *
 * libcurl says which sockets matter and when it wants to be called; the loop sleeps in epoll until
 * a socket is ready, libcurl's own timer is due, or the caller's deadline is near, and spins over
 * the last stretch, since a sleep is exact to tens of microseconds only. */
#ifndef BACKENDS_HTTP_LOOP_H
#define BACKENDS_HTTP_LOOP_H

#include "harness/core/err.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

enum { LOOP_READY_MAX = 32 };

struct loop {
    CURLM *multi;
    int epoll_fd, timer_fd;
    int64_t timer_at_ns; /* when the timer will fire; INT64_MAX = not set */
    int64_t curl_at_ns;  /* when libcurl wants to be called; INT64_MAX = not */
    int64_t stamp_ns;    /* latest clock reading of a callback; lets a batch end at the deadline */
    uint64_t actions;    /* calls into libcurl: one read of one plain socket each */
    struct epoll_event ready[LOOP_READY_MAX]; /* what epoll reported; a batch may span two steps */
    int nready, next;
    int64_t in_multi; /* easy handles added */
};

#define LOOP_NONE                                                                                  \
    ((struct loop){                                                                                \
        .epoll_fd = -1, .timer_fd = -1, .timer_at_ns = INT64_MAX, .curl_at_ns = INT64_MAX})

int loop_init(struct loop *l, long max_connections, struct err *e) MUST_USE;
void loop_release(
    struct loop *l); /* all easy handles must have been removed; LOOP_NONE is allowed */

/* Starts a transfer: connects or sends as far as that goes without waiting. */
int loop_add(struct loop *l, CURL *easy, struct err *e) MUST_USE;
void loop_remove(struct loop *l, CURL *easy);

/* Waits until a socket or timer is ready or the machine's clock reaches until_ns, and serves what
 * is ready; returns early when a signal came, after 50 ms at the latest. *drained: nothing more was
 * ready. At least one ready socket is served even when until_ns has passed. */
int loop_step(struct loop *l, int64_t until_ns, int64_t spin_ns, bool *drained,
              struct err *e) MUST_USE;

/* The next finished transfer, which has been removed from the loop; NULL when there is none. */
CURL *loop_finished(struct loop *l, CURLcode *code);

#endif
