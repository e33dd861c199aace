/* What serving costs and how exact it is:
 *   rate      token events a second through serve when all are overdue, against a bare epoll loop
 * that sends the same bytes, one send an event, to as many sockets from the same core to the same
 *             client. Serve may join overdue events of a stream in one send, so it can exceed the
 * loop; paced     CPU an event when each goes out alone at its time, against the same loop on a
 * timer, and how long after its due time an event leaves; crowd     many connections at once: all
 * answers whole? The client is another process (on another core when there is one), so that neither
 * side's work nor descriptors count for the other. */
#include "tests/backends/serve_fixture.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>

static struct fixture x;

static void pin(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sysconf(_SC_NPROCESSORS_ONLN) > core)
        sched_setaffinity(0, sizeof set, &set);
}

struct report { /* of the client */
    int64_t ns, events, whole;
};

static const char *request_of(int tokens) {
    static char body[128], text[512];
    int n =
        snprintf(body, sizeof body, "{\"prompt\":\"x\",\"max_tokens\":%d,\"stream\":true}", tokens);
    snprintf(text, sizeof text,
             "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", n, body);
    return text;
}

/* Opens `streams` connections, asks on each and reads all to their last chunk, counting the events.
 */
static struct report consume_all(uint16_t port, int streams, int tokens) {
    enum { SEEN = 8 };
    struct report r = {0};
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int ep = epoll_create1(0), open = 0;
    char(*tail)[SEEN] = calloc((size_t)streams, SEEN), *buf = malloc(1 << 18);
    int *fd = calloc((size_t)streams, sizeof *fd);
    for (int i = 0; i < streams; i++) {
        fd[i] = socket(AF_INET, SOCK_STREAM, 0);
        if (fd[i] < 0 || connect(fd[i], (struct sockaddr *)&to, sizeof to))
            break;
        open++;
        epoll_ctl(ep, EPOLL_CTL_ADD, fd[i],
                  &(struct epoll_event){.events = EPOLLIN, .data.u32 = (uint32_t)i});
    }
    if (open < streams)
        fprintf(stderr, "only %d of %d connections: %s\n", open, streams, strerror(errno));
    int64_t t0 = clock_now_ns();
    const char *request = request_of(tokens);
    for (int i = 0; i < open; i++)
        say(fd[i], request, strlen(request));
    while (open > 0) {
        struct epoll_event ev[256];
        int n = epoll_wait(ep, ev, 256, 30000);
        if (n <= 0)
            break;
        for (int k = 0; k < n; k++) {
            uint32_t i = ev[k].data.u32;
            ssize_t got = recv(fd[i], buf, 1 << 18, MSG_DONTWAIT);
            if (got < 0 && errno == EAGAIN)
                continue;
            for (const char *p = buf;
                 got > 0 && (p = memmem(p, (size_t)(buf + got - p), "\n\n", 2)); p += 2)
                r.events++;
            for (ssize_t j = got > 5 ? got - 5 : 0; j < got; j++) { /* the last five bytes */
                memmove(tail[i], tail[i] + 1, 4);
                tail[i][4] = buf[j];
            }
            bool end = !memcmp(tail[i], "0\r\n\r\n", 5);
            if (got <= 0 || end) {
                r.whole += end;
                close(fd[i]);
                open--;
            }
        }
    }
    r.ns = clock_now_ns() - t0;
    free(tail), free(fd), free(buf);
    close(ep);
    return r;
}

/* Runs the client in a child that reports through a pipe once it is told the port. */
struct child {
    pid_t pid;
    int port_fd, report_fd;
};
static struct child client_start(int streams, int tokens) {
    int a[2], b[2];
    if (pipe(a) || pipe(b))
        abort();
    struct child c = {.port_fd = a[1], .report_fd = b[0]};
    if ((c.pid = fork()) == 0) {
        uint16_t port;
        struct rlimit l;
        close(a[1]);
        close(b[0]);
        pin(1);
        getrlimit(RLIMIT_NOFILE, &l);
        l.rlim_cur = l.rlim_max;
        setrlimit(RLIMIT_NOFILE, &l);
        if (read(a[0], &port, sizeof port) != sizeof port)
            _exit(1);
        struct report r = consume_all(port, streams, tokens);
        _exit(write(b[1], &r, sizeof r) != sizeof r);
    }
    close(a[0]);
    close(b[1]);
    return c;
}
static struct report client_finish(struct child c, uint16_t port) {
    struct report r = {0};
    if (write(c.port_fd, &port, sizeof port) != sizeof port ||
        read(c.report_fd, &r, sizeof r) != sizeof r)
        fprintf(stderr, "the client failed\n");
    close(c.port_fd);
    close(c.report_fd);
    waitpid(c.pid, NULL, 0);
    return r;
}

struct cost {
    struct report client;
    double cpu_ns; /* of this process, an event */
};

static void *null_options(struct arena *a, const char *const *pairs, int n) {
    void *o = arena_alloc(a, 1, backend_null.options_size);
    struct err e = {0};
    options_defaults(backend_null.options, o, a);
    for (int i = 0; i < n; i++)
        if (options_set_pair(backend_null.options, o, pairs[i], "-o", a, &e)) {
            fprintf(stderr, "%s\n", e.text);
            exit(1);
        }
    return o;
}

static struct cost through_serve(int streams, int tokens, const char *ttft, const char *tpot,
                                 double speed) {
    struct arena arena = {0};
    struct cost c;
    const char *const pairs[] = {"stream=on", ttft, tpot};
    struct child child = client_start(streams, tokens);
    x = (struct fixture){.o = {.ops = &backend_null,
                               .speed = speed,
                               .backend_options = null_options(&arena, pairs, 3)}};
    fixture_start(&x);
    int64_t cpu = clock_cpu_ns();
    c.client = client_finish(child, x.port);
    c.cpu_ns = (double)(clock_cpu_ns() - cpu) / (double)c.client.events;
    fixture_stop(&x);
    arena_release(&arena);
    return c;
}

/* The same bytes from a loop that does nothing else: every socket in turn, one send an event; with
 * a tick, one event a socket each tick. */
static void *bare_main(void *ctx) {
    int listener = *(int *)ctx, streams = ((int *)ctx)[1], tokens = ((int *)ctx)[2];
    int64_t tick_ns = ((int *)ctx)[3], due = 0;
    static char head[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", request[4096];
    char event[512], chunk[600];
    snprintf(event, sizeof event,
             "data: "
             "{\"id\":\"cmpl-%08x%016x\",\"object\":\"text_completion\",\"created\":1700000000,"
             "\"model\":"
             "\"none/null\",\"system_fingerprint\":\"assay-none/"
             "none-0\",\"choices\":[{\"index\":0,\"text\":\" aaa\","
             "\"logprobs\":null,\"finish_reason\":null}]}\n\n",
             1, 1);
    size_t n = (size_t)snprintf(chunk, sizeof chunk, "%zx\r\n%s\r\n", strlen(event), event);
    int *fd = calloc((size_t)streams, sizeof *fd), *left = calloc((size_t)streams, sizeof *left);
    size_t *part = calloc((size_t)streams, sizeof *part);
    int ep = epoll_create1(0), open = streams;
    for (int i = 0; i < streams; i++) {
        fd[i] = accept(listener, NULL, NULL);
        left[i] = tokens;
    }
    for (int i = 0; i < streams; i++) {
        if (recv(fd[i], request, sizeof request, 0) <= 0)
            abort();
        say(fd[i], head, sizeof head - 1);
        epoll_ctl(ep, EPOLL_CTL_ADD, fd[i],
                  &(struct epoll_event){.events = EPOLLOUT, .data.u32 = (uint32_t)i});
    }
    while (open) {
        struct epoll_event ev[256];
        if (tick_ns) {
            due = due ? due + tick_ns : clock_now_ns();
            int64_t left_ns = due - clock_now_ns();
            if (left_ns > 0)
                nanosleep(&(struct timespec){0, left_ns}, NULL);
        }
        int k = epoll_wait(ep, ev, 256, 1000);
        for (int j = 0; j < k; j++) {
            uint32_t i = ev[j].data.u32;
            ssize_t sent = send(fd[i], chunk + part[i], n - part[i], MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent < 0)
                continue;
            part[i] = (part[i] + (size_t)sent) % n;
            if (part[i] == 0 && --left[i] == 0) {
                say(fd[i], "0\r\n\r\n", 5);
                close(fd[i]);
                open--;
            }
        }
    }
    free(fd), free(left), free(part);
    close(ep);
    return NULL;
}

static struct cost through_bare(int streams, int tokens, int tick_ns) {
    struct cost c;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    struct child child = client_start(streams, tokens);
    int arg[4] = {socket(AF_INET, SOCK_STREAM, 0), streams, tokens, tick_ns};
    if (bind(arg[0], (struct sockaddr *)&at, sizeof at) || listen(arg[0], 4096) ||
        getsockname(arg[0], (struct sockaddr *)&at, &n))
        abort();
    pthread_t t;
    if (pthread_create(&t, NULL, bare_main, arg))
        abort();
    int64_t cpu = clock_cpu_ns();
    c.client = client_finish(child, ntohs(at.sin_port));
    pthread_join(t, NULL);
    c.cpu_ns = (double)(clock_cpu_ns() - cpu) / (double)c.client.events;
    close(arg[0]);
    return c;
}

static double per_s(const struct cost *c) {
    return (double)c->client.events * 1e9 / (double)c->client.ns;
}

int main(void) {
    enum { STREAMS = 64, TOKENS = 10000, CROWD = 10000, CROWD_TOKENS = 10 };
    pin(0);
    printf("token events through serve, %d streams of %d tokens, as fast as they go\n", STREAMS,
           TOKENS);
    printf("  %-28s %12s %12s %10s\n", "case", "events/s", "CPU ns/event", "vs bare");
    double best[2] = {0}, cpu[2] = {1e18, 1e18};
    for (int i = 0; i < 3; i++) { /* alternating, best of three */
        struct cost b = through_bare(STREAMS, TOKENS, 0);
        struct cost s = through_serve(STREAMS, TOKENS, "ttft=1ms", "tpot=1us", 1.0);
        if (s.client.whole != STREAMS || x.stats.dropped)
            fprintf(stderr, "only %" PRId64 " streams were whole\n", s.client.whole);
        best[0] = per_s(&b) > best[0] ? per_s(&b) : best[0];
        best[1] = per_s(&s) > best[1] ? per_s(&s) : best[1];
        cpu[0] = b.cpu_ns < cpu[0] ? b.cpu_ns : cpu[0];
        cpu[1] = s.cpu_ns < cpu[1] ? s.cpu_ns : cpu[1];
    }
    printf("  %-28s %12.0f %12.0f %10s\n", "bare epoll send loop", best[0], cpu[0], "1.00");
    printf("  %-28s %12.0f %12.0f %10.2f\n\n", "serve", best[1], cpu[1], best[1] / best[0]);

    struct cost p = through_bare(STREAMS, 400, 5000000);
    struct cost l = through_serve(STREAMS, 400, "ttft=50ms", "tpot=5ms", 1.0);
    printf("paced, %d streams at 5 ms a token, %" PRId64 " events\n", STREAMS,
           x.stats.token_events);
    printf("  %-28s %25.0f %10s\n", "bare loop on a timer", p.cpu_ns, "1.00");
    printf("  %-28s %25.0f %10.2f\n", "serve", l.cpu_ns, l.cpu_ns / p.cpu_ns);
    printf("  lateness of an event: mean %.1f us, max %.1f us (the last of a step waits for %d "
           "sends)\n\n",
           (double)x.stats.lateness_sum_ns / (double)x.stats.token_events / 1e3,
           (double)x.stats.lateness_max_ns / 1e3, STREAMS - 1);

    struct cost c = through_serve(CROWD, CROWD_TOKENS, "ttft=2s", "tpot=1s", 1.0);
    printf("crowd: %d connections, %d tokens each, one a second: %" PRId64
           " whole in %.1f s, mean lateness %.2f ms, "
           "CPU %.1f us an event\n",
           CROWD, CROWD_TOKENS, c.client.whole, (double)c.client.ns / 1e9,
           (double)x.stats.lateness_sum_ns / (double)x.stats.token_events / 1e6, c.cpu_ns / 1e3);
    return c.client.whole != CROWD;
}
