/* The peer: a bare libcurl multi_socket loop that stamps each piece and looks for one key in it. */
#include "tests/bench/http/bench.h"

#include "harness/core/clock.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

struct peer {
    CURLM *multi;
    int ep, streams;
    bool stream;
    int64_t timer_ns;
    CURL **easy;
    char (*body)[512];
    struct curl_slist *headers;
};
static int64_t events_seen, last_stamp;

static size_t on_piece(char *p, size_t one, size_t n, void *ctx) {
    (void)one;
    (void)ctx;
    last_stamp = clock_now_ns();
    for (const char *at = p; (at = memmem(at, n - (size_t)(at - p), "\"text\":\"", 8)); at += 8)
        events_seen += at[8] != '"';
    return n;
}

static int on_timer(CURLM *m, long ms, void *ctx) {
    (void)m;
    ((struct peer *)ctx)->timer_ns = ms < 0 ? INT64_MAX : ms ? clock_now_ns() + ms * NS_PER_MS : 0;
    return 0;
}

static int on_socket(CURL *c, curl_socket_t fd, int what, void *ctx, void *known) {
    (void)c;
    struct peer *b = ctx;
    struct epoll_event ev = {.data.fd = fd,
                             .events = (what & CURL_POLL_IN ? EPOLLIN : 0u) |
                                       (what & CURL_POLL_OUT ? EPOLLOUT : 0u)};
    if (what == CURL_POLL_REMOVE)
        epoll_ctl(b->ep, EPOLL_CTL_DEL, fd, NULL);
    else
        epoll_ctl(b->ep, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &ev);
    curl_multi_assign(b->multi, fd, what == CURL_POLL_REMOVE ? NULL : b);
    return 0;
}

struct peer *peer_open(int port, int streams, bool stream) {
    struct peer *b = calloc(1, sizeof *b);
    char url[64];
    if (!b || !(b->easy = calloc((size_t)streams, sizeof(CURL *))) ||
        !(b->body = calloc((size_t)streams, sizeof *b->body)))
        die("memory");
    snprintf(url, sizeof url, "http://127.0.0.1:%d/v1/completions", port);
    b->streams = streams;
    b->stream = stream;
    b->timer_ns = INT64_MAX;
    b->ep = epoll_create1(0);
    b->multi = curl_multi_init();
    b->headers = curl_slist_append(NULL, "Content-Type: application/json");
    b->headers = curl_slist_append(b->headers, "Expect:");
    curl_multi_setopt(b->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(b->multi, CURLMOPT_SOCKETDATA, b);
    curl_multi_setopt(b->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(b->multi, CURLMOPT_TIMERDATA, b);
    curl_multi_setopt(b->multi, CURLMOPT_MAXCONNECTS, (long)streams);
    for (int i = 0; i < streams; i++) {
        CURL *c = b->easy[i] = curl_easy_init();
        curl_easy_setopt(c, CURLOPT_URL, url);
        curl_easy_setopt(c, CURLOPT_PROXY, "");
        curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
        curl_easy_setopt(c, CURLOPT_HTTPHEADER, b->headers);
        curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_piece);
        curl_easy_setopt(c, CURLOPT_PRIVATE, b->body[i]);
        curl_easy_setopt(c, CURLOPT_POST, 1L);
    }
    return b;
}

static void start(struct peer *b, CURL *c, int i) {
    char *body = NULL;
    int running;
    curl_easy_getinfo(c, CURLINFO_PRIVATE, &body);
    int n = snprintf(body, sizeof b->body[0],
                     "{\"model\":\"bench\",\"prompt\":[10001,10002,10003,10004],\"max_tokens\":%d,"
                     "\"min_tokens\":%d,\"ignore_eos\":true,\"temperature\":0,%s}",
                     TAG + i, TAG + i,
                     b->stream ? "\"stream\":true,\"stream_options\":{\"include_usage\":true}"
                               : "\"stream\":false");
    curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE, (long)n);
    curl_easy_setopt(c, CURLOPT_POSTFIELDS, body);
    curl_multi_add_handle(b->multi, c);
    curl_multi_socket_action(b->multi, CURL_SOCKET_TIMEOUT, 0, &running);
}

void peer_turn(struct peer *b, struct turn *t) {
    int issued = 0, finished = 0, running, left;
    struct epoll_event ready[32];
    events_seen = 0;
    int64_t cpu = clock_cpu_ns(), wall = clock_now_ns();
    while (issued < t->streams && issued < t->requests) {
        start(b, b->easy[issued], issued);
        issued++;
    }
    while (finished < t->requests) {
        int64_t nap = b->timer_ns == INT64_MAX ? -1 : (b->timer_ns - clock_now_ns()) / NS_PER_MS;
        int n = epoll_wait(b->ep, ready, 32, b->timer_ns != INT64_MAX && nap < 0 ? 0 : (int)nap);
        for (int i = 0; i < n; i++)
            curl_multi_socket_action(b->multi, ready[i].data.fd,
                                     ready[i].events & EPOLLIN ? CURL_CSELECT_IN : CURL_CSELECT_OUT,
                                     &running);
        if (b->timer_ns != INT64_MAX && b->timer_ns <= clock_now_ns()) {
            b->timer_ns = INT64_MAX;
            curl_multi_socket_action(b->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        }
        for (CURLMsg *m; (m = curl_multi_info_read(b->multi, &left));) {
            if (m->msg != CURLMSG_DONE || m->data.result != CURLE_OK)
                die("the bare client failed");
            CURL *c = m->easy_handle;
            curl_multi_remove_handle(b->multi, c);
            finished++;
            if (issued < t->requests)
                start(b, c, issued++);
        }
    }
    t->cpu_ns = clock_cpu_ns() - cpu;
    t->wall_ns = clock_now_ns() - wall;
    if (events_seen != (int64_t)t->requests * (b->stream ? shared->events : 1))
        die("the bare client lost events");
}

void peer_close(struct peer *b) {
    for (int i = 0; i < b->streams; i++)
        curl_easy_cleanup(b->easy[i]);
    curl_multi_cleanup(b->multi);
    curl_slist_free_all(b->headers);
    close(b->ep);
    free(b->easy);
    free(b->body);
    free(b);
}
