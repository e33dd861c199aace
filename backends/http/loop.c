/* The event loop under all transfers of one instance. Knows sockets and time, nothing of requests.
 */
#include "backends/http/loop.h"

#include "harness/core/clock.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { HANDOUTS_MAX = 4096 };     /* in a row; what is left waits for the next step */
#define LOOP_SEEN_MAX_NS (NS_PER_MS / 10) /* between two looks while requests are sent in a row */
#define SLICE_NS (50 * NS_PER_MS) /* how late a stop flag may be noticed */
#define LOOP_SEEN_NS 10000        /* a call of epoll that takes no longer is not taken for a sleep */
#define LOOP_SERVED_NS 20000      /* since the last look: a sleep may begin without another */

static int on_timer(CURLM *multi, long timeout_ms, void *ctx) {
    (void)multi;
    struct loop *l = ctx;
    if (timeout_ms < 0)
        l->curl_at_ns = INT64_MAX;
    else
        l->curl_at_ns = timeout_ms ? clock_now_ns() + timeout_ms * NS_PER_MS : 0;
    return 0;
}

/* `known` is non-NULL once the socket is in the epoll set. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *known) {
    (void)easy;
    struct loop *l = ctx;
    if (what == CURL_POLL_REMOVE) {
        if (known)
            epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
        curl_multi_assign(l->multi, fd, NULL);
        return 0;
    }
    struct epoll_event ev = {.data.fd = fd};
    if (what & CURL_POLL_IN)
        ev.events |= EPOLLIN;
    if (what & CURL_POLL_OUT)
        ev.events |= EPOLLOUT;
    int rc = epoll_ctl(l->epoll_fd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &ev);
    if (rc && errno == EEXIST)
        rc = epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, fd, &ev);
    if (rc)
        return -1;
    curl_multi_assign(l->multi, fd, l);
    return 0;
}

int loop_init(struct loop *l, long max_connections, struct err *e) {
    *l = LOOP_NONE;
    l->clock_ns = l->look_ns = l->since_ns = l->quiet_ns = clock_now_ns();
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    l->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    /* edge-triggered: an expiry is told once and needs no read */
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.fd = l->timer_fd};
    if (l->epoll_fd < 0 || l->timer_fd < 0 ||
        epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, l->timer_fd, &ev)) {
        int rc = err_errno(e, ASSAY_EENV, errno, "cannot create an epoll set with a timer");
        loop_release(l);
        return rc;
    }
    l->multi = curl_multi_init();
    if (!l->multi) {
        loop_release(l);
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    }
    curl_multi_setopt(l->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(l->multi, CURLMOPT_SOCKETDATA, l);
    curl_multi_setopt(l->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(l->multi, CURLMOPT_TIMERDATA, l);
    curl_multi_setopt(l->multi, CURLMOPT_MAXCONNECTS, max_connections);
    /* HTTP/2: the server's limit of streams is the one that counts */
    curl_multi_setopt(l->multi, CURLMOPT_MAX_CONCURRENT_STREAMS, (long)INT32_MAX);
    return 0;
}

void loop_release(struct loop *l) {
    if (l->multi) {
        curl_multi_setopt(l->multi, CURLMOPT_TIMERFUNCTION, NULL);
        curl_multi_cleanup(l->multi);
    }
    l->multi = NULL;
    if (l->timer_fd >= 0)
        close(l->timer_fd);
    if (l->epoll_fd >= 0)
        close(l->epoll_fd);
    *l = LOOP_NONE;
}

static int act(struct loop *l, curl_socket_t fd, int mask, struct err *e) {
    int running;
    l->actions++;
    CURLMcode code = curl_multi_socket_action(l->multi, fd, mask, &running);
    if (code != CURLM_OK)
        return err_set(e, ASSAY_EENV, "libcurl: %s", curl_multi_strerror(code));
    return 0;
}

static int run_timer(struct loop *l, struct err *e) {
    l->curl_at_ns = INT64_MAX;
    return act(l, CURL_SOCKET_TIMEOUT, 0, e);
}

int loop_add(struct loop *l, CURL *easy, struct err *e) {
    CURLMcode code = curl_multi_add_handle(l->multi, easy);
    if (code != CURLM_OK)
        return err_set(e, ASSAY_EENV, "libcurl: %s", curl_multi_strerror(code));
    l->in_multi++;
    return run_timer(l, e);
}

void loop_remove(struct loop *l, CURL *easy) {
    curl_multi_remove_handle(l->multi, easy);
    l->in_multi--;
}

/* Makes the timer fire at at_ns or earlier. A timer that is set already and fires earlier stays:
 * waking once for nothing is cheaper than setting it before each sleep. */
static void set_timer(struct loop *l, int64_t at_ns) {
    if (l->timer_at_ns <= at_ns)
        return;
    struct itimerspec t = {.it_value = {at_ns / NS_PER_S, at_ns % NS_PER_S}};
    timerfd_settime(l->timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
    l->timer_at_ns = at_ns;
}

/* Takes the timer's own event out of the batch. */
static void drop_timer_event(struct loop *l) {
    for (int i = 0; i < l->nready; i++)
        if (l->ready[i].data.fd == l->timer_fd) {
            l->ready[i] = l->ready[--l->nready];
            l->timer_at_ns = INT64_MAX;
            return;
        }
}

/* One call of epoll, begun at now_ns. */
static int look(struct loop *l, int64_t now_ns, bool sleeps) {
    int n = epoll_wait(l->epoll_fd, l->ready, LOOP_READY_MAX, sleeps ? -1 : 0);
    if (n < 0)
        return n;
    bool slept = false;
    int64_t seen_ns = l->clock_ns = now_ns;
    l->since_ns = l->look_ns;
    if (sleeps) {
        int64_t back_ns = l->clock_ns = clock_now_ns();
        slept = back_ns - now_ns > LOOP_SEEN_NS;
        if (slept) {
            l->since_ns += back_ns - now_ns;
            seen_ns = back_ns;
        }
        if (n == 1 && l->ready[0].data.fd == l->timer_fd && l->timer_at_ns > now_ns)
            l->wake[event_bound_bucket(back_ns - l->timer_at_ns)]++;
    }
    if (n < LOOP_READY_MAX) /* else some may be ready that it had no room for */
        l->look_ns = seen_ns;
    if (n == 0 || slept)
        l->quiet_ns = slept ? l->since_ns : now_ns;
    return n;
}

/* Fills the batch. Nothing ready: it stays empty when the deadline, libcurl's timer, a signal or
 * the slice's end came first. */
static int gather(struct loop *l, int64_t until_ns, int64_t spin_ns, struct err *e) {
    int64_t now = clock_now_ns(), slice_ns = now + SLICE_NS;
    l->nready = l->next = 0;
    for (;; now = clock_now_ns()) {
        int64_t wake_ns = until_ns == INT64_MAX ? INT64_MAX : until_ns - spin_ns;
        if (l->curl_at_ns < wake_ns)
            wake_ns = l->curl_at_ns;
        if (slice_ns < wake_ns)
            wake_ns = slice_ns;
        bool over = now >= until_ns || now >= l->curl_at_ns || now >= slice_ns;
        bool sleeps = now < wake_ns && !(l->never_sleeps && l->in_multi > 0);
        int n = 0;
        if (!sleeps || l->must_look || now - l->look_ns > LOOP_SERVED_NS) {
            n = look(l, now, false);
            l->must_look = false;
        }
        if (!n && sleeps) {
            set_timer(l, wake_ns);
            n = look(l, now, true);
        }
        if (n < 0 && errno != EINTR)
            return err_errno(e, ASSAY_EENV, errno, "epoll failed");
        l->nready = n > 0 ? n : 0;
        drop_timer_event(l);
        l->batches += l->nready > 0;
        if (l->nready || n < 0 || over)
            return 0;
    }
}

/* Serves the rest of the batch, at least one socket, until a stamp reaches until_ns. */
static int serve(struct loop *l, int64_t until_ns, struct err *e) {
    int rc = 0;
    while (l->next < l->nready && !rc) {
        const struct epoll_event *ev = &l->ready[l->next++];
        int mask = 0;
        if (ev->events & EPOLLIN)
            mask |= CURL_CSELECT_IN;
        if (ev->events & EPOLLOUT)
            mask |= CURL_CSELECT_OUT;
        if (ev->events & (EPOLLERR | EPOLLHUP))
            mask |= CURL_CSELECT_ERR | CURL_CSELECT_IN;
        rc = act(l, ev->data.fd, mask, e);
        /* HTTP/2: a read may hold frames of other streams, which libcurl wants to hand out at once */
        for (int i = 0; i < HANDOUTS_MAX && l->curl_at_ns == 0 && !rc; i++)
            rc = run_timer(l, e);
        if (l->clock_ns >= until_ns)
            break;
    }
    return rc;
}

int loop_step(struct loop *l, int64_t until_ns, int64_t spin_ns, bool *drained, struct err *e) {
    int rc = 0;
    if (l->next == l->nready && (rc = gather(l, until_ns, spin_ns, e)))
        return rc;
    rc = serve(l, until_ns, e);
    if (!rc && l->curl_at_ns <= l->clock_ns)
        rc = run_timer(l, e);
    *drained = l->next == l->nready && l->nready < LOOP_READY_MAX;
    return rc;
}

int loop_glance(struct loop *l, struct err *e) {
    int64_t now = clock_now_ns();
    if (now - l->look_ns < LOOP_SEEN_MAX_NS)
        return 0;
    if (l->next == l->nready) {
        int n = look(l, now, false);
        l->next = 0;
        l->nready = n > 0 ? n : 0;
        drop_timer_event(l);
        l->batches += l->nready > 0;
    }
    return serve(l, INT64_MAX, e);
}

json_t *loop_wakes_json(const struct loop *l) {
    uint64_t all = 0, seen = 0;
    int64_t p50 = 0, p99 = 0, max = 0;
    for (int k = 0; k <= EVENT_BOUND_MAX; k++)
        all += l->wake[k];
    for (int k = 0; k <= EVENT_BOUND_MAX && all; k++) {
        if (!l->wake[k])
            continue;
        max = event_bound_ns(k);
        p50 = 2 * seen < all ? max : p50;
        p99 = 100 * seen < 99 * all ? max : p99;
        seen += l->wake[k];
    }
    return all ? json_pack("{s:I, s:I, s:I, s:I}", "timer_wakes", (json_int_t)all, "late_p50_ns",
                           (json_int_t)p50, "late_p99_ns", (json_int_t)p99, "late_max_ns",
                           (json_int_t)max)
               : NULL;
}

CURL *loop_finished(struct loop *l, CURLcode *code) {
    int left;
    CURLMsg *m;
    while ((m = curl_multi_info_read(l->multi, &left)))
        if (m->msg == CURLMSG_DONE) {
            CURL *easy = m->easy_handle;
            *code = m->data.result;
            loop_remove(l, easy);
            return easy;
        }
    return NULL;
}
