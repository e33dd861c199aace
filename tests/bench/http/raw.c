/* The floor: epoll, one recv a ready socket, one stamp, one look for the key. No HTTP is understood, so
 * nothing of a client can cost less, and what it sees late is the kernel's, the machine's or the
 * server's doing. */
#include "tests/bench/http/bench.h"

#include "harness/core/clock.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 16384 };
static const char key[] = "\"text\":\"", end_mark[] = "\r\n0\r\n\r\n";
enum { KEY = sizeof key - 1, END = sizeof end_mark - 1, CARRY = KEY };

struct conn {
    int fd, request, events;
    size_t carried; /* bytes of the read before that a key or the end mark may begin in */
    char carry[CARRY];
};

struct raw {
    int ep, streams;
    struct conn *conn;
    char *in;
};

struct raw *raw_open(int port, int streams) {
    struct raw *r = calloc(1, sizeof *r);
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (!r || !(r->conn = calloc((size_t)streams, sizeof *r->conn)) ||
        !(r->in = malloc(CARRY + READ_BYTES)))
        die("memory");
    r->streams = streams;
    r->ep = epoll_create1(0);
    for (int i = 0; i < streams; i++) {
        struct conn *c = &r->conn[i];
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(c->fd, (struct sockaddr *)&a, sizeof a))
            die("the floor cannot connect");
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        epoll_ctl(r->ep, EPOLL_CTL_ADD, c->fd, &ev);
    }
    return r;
}

static void start(struct conn *c, int request) {
    char body[256], text[512];
    int n = snprintf(body, sizeof body,
                     "{\"model\":\"bench\",\"prompt\":[10001,10002,10003,10004],\"max_tokens\":%d,"
                     "\"stream\":true}",
                     TAG + request);
    int k = snprintf(text, sizeof text,
                     "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s",
                     n, body);
    c->request = request;
    c->events = 0;
    c->carried = 0;
    if (send(c->fd, text, (size_t)k, MSG_NOSIGNAL) != k)
        die("the floor cannot send");
}

/* One read of a ready socket; true when the answer is over. */
static bool take(struct raw *r, struct conn *c) {
    char *in = r->in + CARRY - c->carried;
    memcpy(in, c->carry, c->carried);
    ssize_t k = recv(c->fd, r->in + CARRY, READ_BYTES, 0);
    int64_t now = clock_now_ns();
    if (k <= 0)
        die("the floor lost a connection");
    const char *at = in, *end = r->in + CARRY + k;
    for (const char *hit; (hit = memmem(at, (size_t)(end - at), key, KEY)); at = hit + KEY)
        if (c->events < EVENTS_MAX)
            read_ns[c->request][c->events++] = now;
    if (end - in >= END && !memcmp(end - END, end_mark, END))
        return true;
    /* never a whole key: it would be found again */
    c->carried = end - at < KEY - 1 ? (size_t)(end - at) : KEY - 1;
    memcpy(c->carry, end - c->carried, c->carried);
    return false;
}

void raw_turn(struct raw *r, struct turn *t) {
    struct epoll_event ready[32];
    int issued = 0, finished = 0;
    int64_t cpu = clock_cpu_ns(), wall = clock_now_ns();
    for (; issued < r->streams && issued < t->requests; issued++)
        start(&r->conn[issued], issued);
    while (finished < t->requests) {
        int n = epoll_wait(r->ep, ready, 32, -1);
        for (int i = 0; i < n; i++) {
            struct conn *c = ready[i].data.ptr;
            if (!take(r, c))
                continue;
            if (c->events != shared->events)
                die("the floor lost events");
            finished++;
            if (issued < t->requests)
                start(c, issued++);
        }
    }
    t->cpu_ns = clock_cpu_ns() - cpu;
    t->wall_ns = clock_now_ns() - wall;
}

void raw_close(struct raw *r) {
    for (int i = 0; i < r->streams; i++)
        close(r->conn[i].fd);
    close(r->ep);
    free(r->conn);
    free(r->in);
    free(r);
}
