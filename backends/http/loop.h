/* libcurl's multi_socket interface driven by epoll, with deadlines in nanoseconds.
 *
 * libcurl says which sockets matter and when it wants to be called; the loop sleeps in epoll until
 * a socket is ready, libcurl's own timer is due, or the caller's deadline is near, and spins over
 * the last stretch, since a sleep is exact to tens of microseconds only. */
#ifndef BACKENDS_HTTP_LOOP_H
#define BACKENDS_HTTP_LOOP_H

#include "harness/core/err.h"
#include "harness/core/event.h"

#include <curl/curl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

enum { LOOP_READY_MAX = 32 };

struct loop {
    CURLM *multi;
    int epoll_fd, timer_fd;
    int64_t timer_at_ns; /* when the timer will fire; INT64_MAX = not set */
    int64_t curl_at_ns;  /* when libcurl wants to be called; INT64_MAX = not */
    int64_t clock_ns;    /* latest reading of the machine's clock, here or in a callback */
    uint64_t actions;    /* calls into libcurl: one read of one plain socket each */

    /* When bytes can have come that nobody has seen yet: what bounds the delay of a stamp.
     * look_ns: a look at all sockets began then; those that it did not report held nothing.
     * since_ns: what the current batch brings came after that, being unreported by the look before.
     * A call that slept adds nothing to that window but the time from the look before it to its
     * beginning: it slept because nothing was there, and what ends a sleep comes while it lasts. So
     * a look that does not sleep goes before a sleep only when the last one is older than
     * LOOP_SERVED_NS, or when a read may have left something (must_look); it costs as much as a read.
     * What passes between the end of a sleep and the return, the wake-up, no clock of this process
     * can see; `wake` keeps how late the wake-ups were whose time is known, those by the timer. A
     * call of at most LOOP_SEEN_NS is not taken for a sleep and counts whole. */
    int64_t look_ns, since_ns;
    int64_t quiet_ns; /* the last look that found nothing at all, or its like: nothing older is left anywhere */
    bool must_look;
    bool never_sleeps; /* while there are transfers: looks again and again instead */
    uint64_t wake[EVENT_BOUND_MAX + 1]; /* sleeps that the timer ended, by event_bound_bucket of lateness */
    uint64_t batches;    /* times that epoll reported sockets */
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

/* Serves what is ready now, if the last look at the sockets is older than LOOP_SEEN_MAX_NS, and does not
 * wait: for those who keep the thread busy otherwise, so that what comes meanwhile is stamped in time. */
int loop_glance(struct loop *l, struct err *e) MUST_USE;

/* The next finished transfer, which has been removed from the loop; NULL when there is none. */
CURL *loop_finished(struct loop *l, CURLcode *code);

/* {"timer_wakes", "late_p50_ns", "late_p99_ns", "late_max_ns"} of `wake`, each at most 1.5 times too
 * large; a new object, NULL when there was no such sleep. */
json_t *loop_wakes_json(const struct loop *l);

#endif
