/* The event loop under all transfers of one instance. Knows sockets and time, nothing of requests. */
#include "backends/http/loop.h"

#include "harness/core/clock.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SLICE_NS (50 * NS_PER_MS) /* how late a stop flag may be noticed */

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
    *l = (struct loop){.epoll_fd = -1, .curl_at_ns = INT64_MAX};
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (l->epoll_fd < 0)
        return err_errno(e, ASSAY_EENV, errno, "cannot create an epoll set");
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
    return 0;
}

void loop_release(struct loop *l) {
    if (l->multi) {
        curl_multi_setopt(l->multi, CURLMOPT_TIMERFUNCTION, NULL);
        curl_multi_cleanup(l->multi);
    }
    l->multi = NULL;
    if (l->epoll_fd >= 0)
        close(l->epoll_fd);
    l->epoll_fd = -1;
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

/* Fills the batch. Nothing ready: n stays 0 when the deadline, libcurl's timer, a signal or the slice's
 * end came first. */
static int gather(struct loop *l, int64_t until_ns, int64_t spin_ns, struct err *e) {
    l->nready = l->next = 0;
    for (;;) {
        int64_t now = clock_now_ns();
        int64_t left = until_ns - now - spin_ns; /* <= 0: spin */
        int64_t curl_left = l->curl_at_ns == INT64_MAX ? INT64_MAX : l->curl_at_ns - now;
        bool due = until_ns <= now || curl_left <= 0;
        int64_t nap = left < curl_left ? left : curl_left;
        if (nap > SLICE_NS)
            nap = SLICE_NS;
        if (nap < 0 || due)
            nap = 0;
        struct timespec ts = {nap / NS_PER_S, nap % NS_PER_S};
        int n = epoll_pwait2(l->epoll_fd, l->ready, LOOP_READY_MAX, &ts, NULL);
        if (n < 0 && errno == ENOSYS) /* before Linux 5.11: whole milliseconds, the rest is spun */
            n = epoll_wait(l->epoll_fd, l->ready, LOOP_READY_MAX, (int)(nap / NS_PER_MS));
        if (n < 0 && errno != EINTR)
            return err_errno(e, ASSAY_EENV, errno, "epoll failed");
        if (n > 0)
            l->nready = n;
        if (n || due || nap == SLICE_NS)
            return 0;
    }
}

int loop_step(struct loop *l, int64_t until_ns, int64_t spin_ns, bool *drained, struct err *e) {
    int rc = 0;
    if (l->next == l->nready && (rc = gather(l, until_ns, spin_ns, e)))
        return rc;
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
        if (l->stamp_ns >= until_ns)
            break;
    }
    if (!rc && l->curl_at_ns != INT64_MAX && l->curl_at_ns <= clock_now_ns())
        rc = run_timer(l, e);
    *drained = l->next == l->nready && l->nready < LOOP_READY_MAX;
    return rc;
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
