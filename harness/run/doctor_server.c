#include "harness/run/doctor_server.h"

#include "harness/core/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { INPUT_BYTES = 2048, IN_A_ROW = 64, BACKLOG = 1024 };

struct conn {
    struct conn *all_next; /* every connection, to be freed */
    struct conn *next;     /* in the queue of those that stream */
    int fd, stream, event;
    int64_t due_ns;
    size_t n;
    char in[INPUT_BYTES];
};

struct doctor_server {
    pthread_t thread;
    bool running, spins;
    int cpu, listen_fd, epoll_fd, stop_fd, port, streams, events;
    int64_t gap_ns;
    struct conn *all;
    struct conn *head, *tail; /* one gap for all, so whoever was served last is due last */
    char chunk[512], last[64];
    size_t chunk_bytes, last_bytes;
    _Atomic int64_t late;
    _Atomic int64_t *sent_ns; /* [stream][event] */
};

static void append(struct doctor_server *s, struct conn *c) {
    c->next = NULL;
    *(s->tail ? &s->tail->next : &s->head) = c;
    s->tail = c;
}

/* Waits for a reader that is behind: a socket's buffer holds a stream. */
static void put(const struct conn *c, const char *p, size_t n) {
    while (n) {
        ssize_t k = send(c->fd, p, n, MSG_NOSIGNAL);
        if (k < 0 && errno != EINTR)
            return;
        p += k > 0 ? k : 0;
        n -= k > 0 ? (size_t)k : 0;
    }
}

static void serve_head(struct doctor_server *s) {
    struct conn *c = s->head;
    s->head = c->next;
    if (!s->head)
        s->tail = NULL;
    int64_t now = clock_now_ns();
    if (now - c->due_ns > s->gap_ns / 2)
        atomic_fetch_add_explicit(&s->late, 1, memory_order_relaxed);
    if (c->event == s->events) {
        put(c, s->last, s->last_bytes);
        return;
    }
    atomic_store_explicit(&s->sent_ns[(size_t)c->stream * (size_t)s->events + (size_t)c->event++], now,
                          memory_order_relaxed);
    put(c, s->chunk, s->chunk_bytes);
    c->due_ns += s->gap_ns;
    append(s, c);
}

/* One whole request in c->in, or nothing happens. */
static void take_request(struct doctor_server *s, struct conn *c) {
    static const char head[] =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    static const char models[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                                 "Content-Length: 26\r\n\r\n{\"data\":[{\"id\":\"doctor\"}]}";
    c->in[c->n] = '\0';
    const char *end = strstr(c->in, "\r\n\r\n");
    if (!end)
        return;
    const char *length = strcasestr(c->in, "\r\ncontent-length:"), *tag = strstr(end, "\"max_tokens\":");
    if (length && length < end &&
        c->n < (size_t)(end + 4 - c->in) + strtoul(length + 17, NULL, 10))
        return;
    bool post = !strncmp(c->in, "POST ", 5);
    long stream = tag ? strtol(tag + 13, NULL, 10) - DOCTOR_TAG : -1;
    c->n = 0;
    if (!post || stream < 0 || stream >= s->streams) {
        put(c, models, sizeof models - 1);
        return;
    }
    put(c, head, sizeof head - 1);
    c->stream = (int)stream;
    c->event = 0;
    c->due_ns = clock_now_ns() + s->gap_ns;
    append(s, c);
}

static void take_connection(struct doctor_server *s) {
    int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    struct conn *c = fd < 0 ? NULL : calloc(1, sizeof *c);
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
    if (!c || epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev)) {
        if (fd >= 0)
            close(fd);
        free(c);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    c->fd = fd;
    c->all_next = s->all;
    s->all = c;
}

static void take_input(struct doctor_server *s, struct conn *c) {
    ssize_t k = recv(c->fd, c->in + c->n, INPUT_BYTES - 1 - c->n, 0);
    if (k > 0) {
        c->n += (size_t)k;
        take_request(s, c);
    } else { /* gone, or sent more than any client here does; freed at the end */
        epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    }
}

static void *serve(void *ctx) {
    struct doctor_server *s = ctx;
    struct epoll_event ready[64];
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)s->cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
    for (;;) {
        for (int i = 0; i < IN_A_ROW && s->head && s->head->due_ns <= clock_now_ns(); i++)
            serve_head(s);
        bool due = s->head && s->head->due_ns <= clock_now_ns();
        int n = epoll_wait(s->epoll_fd, ready, 64, !s->head ? -1 : s->spins || due ? 0 : 1);
        for (int i = 0; i < n; i++) {
            if (ready[i].data.ptr == &s->stop_fd)
                return NULL;
            if (ready[i].data.ptr == &s->listen_fd)
                take_connection(s);
            else
                take_input(s, ready[i].data.ptr);
        }
    }
}

static int watch(const struct doctor_server *s, int fd, void *as) {
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = as};
    return fd < 0 ? -1 : epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
}

int doctor_server_start(int cpu, bool spins, int streams, int events, int64_t gap_ns,
                        struct doctor_server **out, struct err *e) {
    static const char text[] =
        "data: {\"id\":\"cmpl-0123456789abcdef\",\"object\":\"text_completion\",\"created\":1700000000,"
        "\"model\":\"doctor\",\"choices\":[{\"index\":0,\"text\":\" word\",\"logprobs\":null,"
        "\"finish_reason\":null}]}\n\n";
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    struct doctor_server *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    *s = (struct doctor_server){.cpu = cpu, .spins = spins, .streams = streams, .events = events,
                                .gap_ns = gap_ns, .listen_fd = -1, .epoll_fd = -1, .stop_fd = -1};
    s->chunk_bytes = (size_t)snprintf(s->chunk, sizeof s->chunk, "%zx\r\n%s\r\n", sizeof text - 1, text);
    s->last_bytes = (size_t)snprintf(s->last, sizeof s->last, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
    s->sent_ns = calloc((size_t)streams * (size_t)events, sizeof *s->sent_ns);
    s->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (!s->sent_ns || s->listen_fd < 0 || bind(s->listen_fd, (struct sockaddr *)&a, sizeof a) ||
        listen(s->listen_fd, BACKLOG) || getsockname(s->listen_fd, (struct sockaddr *)&a, &n) ||
        watch(s, s->listen_fd, &s->listen_fd) || watch(s, s->stop_fd, &s->stop_fd)) {
        int rc = err_errno(e, ASSAY_EENV, errno, "cannot listen on 127.0.0.1");
        doctor_server_stop(s);
        return rc;
    }
    s->port = ntohs(a.sin_port);
    if (pthread_create(&s->thread, NULL, serve, s)) {
        doctor_server_stop(s);
        return err_set(e, ASSAY_EENV, "cannot start a thread");
    }
    s->running = true;
    *out = s;
    return 0;
}

void doctor_server_stop(struct doctor_server *s) {
    if (!s)
        return;
    if (s->running) {
        uint64_t one = 1;
        (void)!write(s->stop_fd, &one, sizeof one);
        pthread_join(s->thread, NULL);
    }
    for (struct conn *c = s->all, *next; c; c = next) {
        next = c->all_next;
        close(c->fd);
        free(c);
    }
    if (s->listen_fd >= 0)
        close(s->listen_fd);
    if (s->epoll_fd >= 0)
        close(s->epoll_fd);
    if (s->stop_fd >= 0)
        close(s->stop_fd);
    free(s->sent_ns);
    free(s);
}

int doctor_server_port(const struct doctor_server *s) {
    return s->port;
}

int64_t doctor_server_sent_ns(const struct doctor_server *s, int stream, int event) {
    return atomic_load_explicit(&s->sent_ns[(size_t)stream * (size_t)s->events + (size_t)event],
                                memory_order_relaxed);
}

int64_t doctor_server_late(struct doctor_server *s) {
    return atomic_exchange_explicit(&s->late, 0, memory_order_relaxed);
}
