/* The benchmark's server: one thread that never sleeps while anything streams. */
#include "tests/bench/http/bench.h"

#include "harness/core/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONNECTIONS = 32768, INPUT_BYTES = 4096 };

struct bench_shared *shared;
static pid_t child;

#define EVENT                                                                                      \
    "data: {\"id\":\"cmpl-0123456789abcdef\",\"object\":\"text_completion\",\"created\":"         \
    "1700000000,\"model\":\"bench\",\"choices\":[{\"index\":0,\"text\":\" word\",\"logprobs\":"    \
    "null,\"finish_reason\":null,\"stop_reason\":null}]}\n\n"
const char event_format[] = EVENT;
const size_t event_format_bytes = sizeof EVENT - 1;

#define DOCUMENT                                                                                   \
    "{\"choices\":[{\"text\":\" word\"}],\"usage\":{\"prompt_tokens\":4,"                          \
    "\"completion_tokens\":1}}"

void die(const char *what) {
    fprintf(stderr, "bench_http: %s: %s\n", what, strerror(errno));
    if (child > 0)
        kill(child, SIGKILL);
    exit(3);
}

void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu % (int)sysconf(_SC_NPROCESSORS_ONLN), &set);
    sched_setaffinity(0, sizeof set, &set);
}

struct conn {
    int fd;
    size_t n;
    char *in;
    int request, event;
    int64_t next_ns;
};

/* connections that stream, by next_ns: a binary heap */
static struct conn *heap[CONNECTIONS];
static int nheap;

static void heap_push(struct conn *c) {
    int i = nheap++;
    for (; i && heap[(i - 1) / 2]->next_ns > c->next_ns; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = c;
}

/* Puts the top where it belongs after its time changed; NULL: takes it out. */
static void heap_settle(struct conn *c) {
    int i = 0;
    if (!c)
        c = heap[--nheap];
    for (int k; (k = 2 * i + 1) < nheap; i = k) {
        k += k + 1 < nheap && heap[k + 1]->next_ns < heap[k]->next_ns;
        if (heap[k]->next_ns >= c->next_ns)
            break;
        heap[i] = heap[k];
    }
    heap[i] = c;
}

static char chunk[512], last_chunk[512];
static size_t chunk_bytes, last_bytes;

static void send_exact(int fd, const char *p, size_t n) {
    while (n) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k < 0 && errno != EAGAIN && errno != EINTR)
            return; /* the client has gone */
        p += k > 0 ? k : 0;
        n -= k > 0 ? (size_t)k : 0;
    }
}

static void take_input(struct conn *c, unsigned *phase) {
    static const char head[] =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    static const char models[] =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
        "27\r\n\r\n{\"data\":[{\"id\":\"bench\"}]}  ";
    static const char document[] =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 80\r\n\r\n" DOCUMENT;
    _Static_assert(sizeof DOCUMENT - 1 == 80, "Content-Length");
    c->in[c->n] = '\0';
    const char *end = strstr(c->in, "\r\n\r\n");
    if (!end)
        return;
    if (!strncmp(c->in, "GET ", 4)) {
        c->n = 0;
        send_exact(c->fd, models, sizeof models - 1);
        return;
    }
    const char *length = strcasestr(c->in, "\r\ncontent-length:"),
               *tag = strstr(end, "\"max_tokens\":");
    if (!length || c->n < (size_t)(end - c->in) + 4 + strtoul(length + 17, NULL, 10))
        return;
    c->request = tag ? (atoi(tag + 13) - TAG) % REQUESTS_MAX : 0;
    c->n = 0;
    if (strstr(end, "\"stream\":false")) {
        send_exact(c->fd, document, sizeof document - 1);
        return;
    }
    c->event = 0;
    send_exact(c->fd, head, sizeof head - 1);
    /* spread over the period, so that each write is read alone */
    int64_t now = clock_now_ns(), period = shared->period_ns;
    c->next_ns = period ? now - now % period + period +
                              period * (int64_t)((*phase)++ % (unsigned)shared->streams) /
                                  shared->streams
                        : now;
    heap_push(c);
}

static void send_due(struct conn *c) {
    if (c->event < shared->events) {
        shared->sent_ns[c->request][c->event++] = clock_now_ns();
        send_exact(c->fd, chunk, chunk_bytes);
        c->next_ns = shared->period_ns ? c->next_ns + shared->period_ns : clock_now_ns();
        heap_settle(c);
    } else {
        send_exact(c->fd, last_chunk, last_bytes);
        heap_settle(NULL);
    }
}

static void take(int ep, int listen_fd) {
    struct epoll_event ev;
    int fd = accept(listen_fd, NULL, NULL);
    struct conn *c = fd < 0 ? NULL : calloc(1, sizeof *c);
    if (!c || !(c->in = malloc(INPUT_BYTES)))
        die("the server cannot accept");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    c->fd = fd;
    ev = (struct epoll_event){.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
}

static _Noreturn void serve(int listen_fd) {
    enum { IN_A_ROW = 64 };
    int ep = epoll_create1(0);
    unsigned phase = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL}, ready[64];
    epoll_ctl(ep, EPOLL_CTL_ADD, listen_fd, &ev);
    for (;;) {
        for (int i = 0; i < IN_A_ROW && nheap && heap[0]->next_ns <= clock_now_ns(); i++)
            send_due(heap[0]);
        /* polls while anything streams: this core is the server's own */
        int n = epoll_wait(ep, ready, 64, nheap ? 0 : -1);
        for (int i = 0; i < n; i++) {
            struct conn *c = ready[i].data.ptr;
            if (!c) {
                take(ep, listen_fd);
                continue;
            }
            ssize_t k = recv(c->fd, c->in + c->n, INPUT_BYTES - 1 - c->n, 0);
            if (k <= 0) { /* not while it streams: the client waits for the end */
                close(c->fd);
                free(c->in);
                free(c);
                continue;
            }
            c->n += (size_t)k;
            take_input(c, &phase);
        }
    }
}

static size_t make_chunk(char *out, size_t out_bytes, const char *text, const char *after) {
    return (size_t)snprintf(out, out_bytes, "%zx\r\n%s\r\n%s", strlen(text), text, after);
}

int server_start(void) {
    static const char last[] =
        "data: {\"id\":\"cmpl-0123456789abcdef\",\"choices\":[],\"usage\":{\"prompt_tokens\":4,"
        "\"completion_tokens\":130,\"total_tokens\":134}}\n\ndata: [DONE]\n\n";
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    chunk_bytes = make_chunk(chunk, sizeof chunk, event_format, "");
    last_bytes = make_chunk(last_chunk, sizeof last_chunk, last, "0\r\n\r\n");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 4096) ||
        getsockname(fd, (struct sockaddr *)&a, &n))
        die("cannot listen");
    child = fork();
    if (child < 0)
        die("fork");
    if (child == 0) {
        child = 0;
        pin(1);
        serve(fd);
    }
    close(fd);
    return ntohs(a.sin_port);
}

void server_stop(void) {
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}
