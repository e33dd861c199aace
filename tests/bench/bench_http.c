/* What the http backend costs and how exact it is, against the least that any libcurl client must
 * do.
 *
 * A server in a process of its own, on another core when there is one, answers each POST with 130
 * events, each written alone, and notes the time before each write in shared memory. Two clients
 * take turns on the same load: this backend, and a bare libcurl multi_socket loop that only stamps
 * and looks for one key. Prints CPU time per request of both and their ratio, the differences
 * between the client's stamps and the server's, and how late wait() returns from a deadline. */
#include "backends/backend.h"
#include "backends/http/body.h"
#include "backends/http/scan.h"
#include "backends/http/sse.h"
#include "harness/core/clock.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
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

enum {
    STREAMS = 64,
    EVENTS = 130,
    REQUESTS = 128, /* of one turn */
    TURNS = 5,      /* of each client */
    TAG = 100000,   /* max_tokens = TAG + number of the request: tells the server which one it is */
    CONNECTIONS = 1024,
};
#define PERIOD_NS (4 * NS_PER_MS) /* between the events of a stream */

static const char event_format[] =
    "data: {\"id\":\"cmpl-0123456789abcdef\",\"object\":\"text_completion\",\"created\":1700000000,"
    "\"model\":\"bench\",\"choices\":[{\"index\":0,\"text\":\" word\",\"logprobs\":null,"
    "\"finish_reason\":null,\"stop_reason\":null}]}\n\n";
static const char last_events[] =
    "data: {\"id\":\"cmpl-0123456789abcdef\",\"choices\":[],\"usage\":{\"prompt_tokens\":4,"
    "\"completion_tokens\":130,\"total_tokens\":134}}\n\ndata: [DONE]\n\n";

static int64_t (*sent_ns)[EVENTS]; /* shared: [request][event] */

static void die(const char *what) {
    fprintf(stderr, "bench_http: %s: %s\n", what, strerror(errno));
    exit(3);
}

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu % (int)sysconf(_SC_NPROCESSORS_ONLN), &set);
    sched_setaffinity(0, sizeof set, &set);
}

/* ---- the server ---- */

struct conn {
    int fd;
    size_t n;
    char in[8192];
    int request, event; /* event < 0: idle */
    int64_t next_ns;
};

static char chunk[512], last_chunk[512];
static size_t chunk_bytes, last_bytes;

static size_t make_chunk(char *out, size_t out_bytes, const char *text, const char *after) {
    return (size_t)snprintf(out, out_bytes, "%zx\r\n%s\r\n%s", strlen(text), text, after);
}

static void send_exact(int fd, const char *p, size_t n) {
    if (send(fd, p, n, MSG_NOSIGNAL) != (ssize_t)n)
        die("the server cannot send");
}

static void answer_models(int fd) {
    static const char text[] =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
        "27\r\n\r\n{\"data\":[{\"id\":\"bench\"}]}  ";
    send_exact(fd, text, sizeof text - 1);
}

static void take_input(struct conn *c, unsigned *phase) {
    static const char head[] =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    c->in[c->n] = '\0';
    const char *end = strstr(c->in, "\r\n\r\n");
    if (!end)
        return;
    if (!strncmp(c->in, "GET ", 4)) {
        answer_models(c->fd);
        c->n = 0;
        return;
    }
    const char *length = strcasestr(c->in, "\r\ncontent-length:"),
               *tag = strstr(end, "\"max_tokens\":");
    if (!length || c->n < (size_t)(end - c->in) + 4 + strtoul(length + 17, NULL, 10))
        return;
    c->request = tag ? atoi(tag + 13) - TAG : 0;
    c->n = 0;
    c->event = 0;
    send_exact(c->fd, head, sizeof head - 1);
    /* spread over the period, so that each write is read alone */
    int64_t now = clock_now_ns();
    c->next_ns =
        now - now % PERIOD_NS + PERIOD_NS + PERIOD_NS * (int64_t)(*phase)++ / STREAMS % PERIOD_NS;
}

static void send_due(struct conn *c) {
    if (c->event < EVENTS) {
        sent_ns[c->request][c->event] = clock_now_ns();
        send_exact(c->fd, chunk, chunk_bytes);
        c->event++;
        c->next_ns += PERIOD_NS;
    } else {
        send_exact(c->fd, last_chunk, last_bytes);
        c->event = -1;
    }
}

static _Noreturn void serve(int listen_fd) {
    static struct conn conns[CONNECTIONS];
    int nconns = 0, ep = epoll_create1(0);
    unsigned phase = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL}, ready[64];
    epoll_ctl(ep, EPOLL_CTL_ADD, listen_fd, &ev);
    for (;;) {
        int64_t now = clock_now_ns(), next = INT64_MAX;
        for (int i = 0; i < nconns; i++) {
            if (conns[i].fd < 0 || conns[i].event < 0)
                continue;
            if (conns[i].next_ns <= now)
                send_due(&conns[i]);
            if (conns[i].event >= 0 && conns[i].next_ns < next)
                next = conns[i].next_ns;
        }
        /* polls while anything streams: this core is the server's own */
        int n = epoll_wait(ep, ready, 64, next == INT64_MAX ? -1 : 0);
        for (int i = 0; i < n; i++) {
            struct conn *c = ready[i].data.ptr;
            if (!c) {
                int fd = accept(listen_fd, NULL, NULL);
                if (fd < 0 || nconns == CONNECTIONS)
                    die("the server cannot accept");
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
                c = &conns[nconns++];
                c->fd = fd;
                c->event = -1;
                ev = (struct epoll_event){.events = EPOLLIN, .data.ptr = c};
                epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
                continue;
            }
            ssize_t k = recv(c->fd, c->in + c->n, sizeof c->in - 1 - c->n, 0);
            if (k <= 0) {
                close(c->fd);
                c->fd = -1;
                continue;
            }
            c->n += (size_t)k;
            take_input(c, &phase);
        }
    }
}

/* ---- the backend ---- */

static int64_t read_ns[REQUESTS][EVENTS];
static int nread[REQUESTS];

static struct event_block *take_block(void *ctx, struct event_block *k) {
    (void)ctx;
    for (uint32_t i = 0; i < k->n; i++)
        if (k->kind[i] == EVENT_TOKENS && nread[k->request[i]] < EVENTS)
            read_ns[k->request[i]][nread[k->request[i]]++] = k->time_ns[i];
    k->n = 0;
    return k;
}

struct client {
    struct arena arena;
    struct workload workload;
    struct event_block block;
    struct event_sink sink;
    struct backend *b;
};
static const volatile int never = 0;

static void open_backend(struct client *c, int port, const char *spin) {
    struct err e = {0};
    char url[64];
    void *o = calloc(1, backend_http.options_size);
    if (!o)
        die("memory");
    snprintf(url, sizeof url, "url=http://127.0.0.1:%d", port);
    options_defaults(backend_http.options, o, &c->arena);
    c->sink = (struct event_sink){.block = &c->block, .flush = take_block};
    struct backend_open_args args = {.workload = &c->workload,
                                     .options = o,
                                     .sink = &c->sink,
                                     .shards = 1,
                                     .max_in_flight = STREAMS};
    if (options_set_pair(backend_http.options, o, url, "-o", &c->arena, &e) ||
        options_set_pair(backend_http.options, o, spin, "-o", &c->arena, &e) ||
        backend_http.open(&args, &c->b, &e)) {
        fprintf(stderr, "bench_http: %s\n", e.text);
        exit(3);
    }
    free(o);
}

static void submit(struct client *c, int i) {
    struct err e;
    struct completion done;
    struct request r = {.id = (uint64_t)i,
                        .session = REQUEST_NO_SESSION,
                        .isl = 4,
                        .osl = (uint32_t)(TAG + i),
                        .content_seed = 1};
    if (backend_http.submit(c->b, &r, &done, &e) != SUBMIT_QUEUED) {
        fprintf(stderr, "bench_http: %s\n", e.text);
        exit(3);
    }
}

static int64_t turn_backend(struct client *c) {
    struct completion done[64];
    struct err e;
    int issued = 0, finished = 0, n;
    memset(nread, 0, sizeof nread);
    int64_t cpu = clock_cpu_ns();
    while (issued < STREAMS)
        submit(c, issued++);
    while (finished < REQUESTS) {
        /* as the driver calls it: never longer than 50 ms */
        if (backend_http.wait(c->b, backend_http.now(c->b) + 50 * NS_PER_MS, done, 64, &n, &never,
                              &e))
            die(e.text);
        for (int i = 0; i < n; i++) {
            if (done[i].fail_class)
                die(fail_class_name(done[i].fail_class));
            finished++;
            if (issued < REQUESTS)
                submit(c, issued++);
        }
    }
    cpu = clock_cpu_ns() - cpu;
    event_sink_flush(&c->sink);
    return cpu;
}

/* ---- the bare client ---- */

struct bare {
    CURLM *multi;
    int ep;
    int64_t timer_ns;
    CURL *easy[STREAMS];
    char body[STREAMS][512];
    struct curl_slist *headers;
};
static int64_t bare_events, bare_stamp;

static size_t bare_write(char *p, size_t one, size_t n, void *ctx) {
    (void)one;
    (void)ctx;
    bare_stamp = clock_now_ns();
    for (const char *at = p; (at = memmem(at, n - (size_t)(at - p), "\"text\":\"", 8)); at += 8)
        bare_events += at[8] != '"';
    return n;
}

static int bare_timer(CURLM *m, long ms, void *ctx) {
    (void)m;
    ((struct bare *)ctx)->timer_ns = ms < 0 ? INT64_MAX : ms ? clock_now_ns() + ms * NS_PER_MS : 0;
    return 0;
}

static int bare_socket(CURL *c, curl_socket_t fd, int what, void *ctx, void *known) {
    (void)c;
    struct bare *b = ctx;
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

static void bare_open(struct bare *b, int port) {
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/v1/completions", port);
    b->ep = epoll_create1(0);
    b->multi = curl_multi_init();
    b->headers = curl_slist_append(NULL, "Content-Type: application/json");
    b->headers = curl_slist_append(b->headers, "Expect:");
    curl_multi_setopt(b->multi, CURLMOPT_SOCKETFUNCTION, bare_socket);
    curl_multi_setopt(b->multi, CURLMOPT_SOCKETDATA, b);
    curl_multi_setopt(b->multi, CURLMOPT_TIMERFUNCTION, bare_timer);
    curl_multi_setopt(b->multi, CURLMOPT_TIMERDATA, b);
    curl_multi_setopt(b->multi, CURLMOPT_MAXCONNECTS, (long)STREAMS);
    for (int i = 0; i < STREAMS; i++) {
        CURL *c = b->easy[i] = curl_easy_init();
        curl_easy_setopt(c, CURLOPT_URL, url);
        curl_easy_setopt(c, CURLOPT_PROXY, "");
        curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
        curl_easy_setopt(c, CURLOPT_HTTPHEADER, b->headers);
        curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, bare_write);
        curl_easy_setopt(c, CURLOPT_PRIVATE, b->body[i]);
        curl_easy_setopt(c, CURLOPT_POST, 1L);
    }
}

static void bare_start(struct bare *b, CURL *c, int i) {
    char *body = NULL;
    int running;
    curl_easy_getinfo(c, CURLINFO_PRIVATE, &body);
    int n =
        snprintf(body, sizeof b->body[0],
                 "{\"model\":\"bench\",\"prompt\":[10001,10002,10003,10004],\"max_tokens\":%d,"
                 "\"min_tokens\":%d,\"ignore_eos\":true,"
                 "\"temperature\":0,\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
                 TAG + i, TAG + i);
    curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE, (long)n);
    curl_easy_setopt(c, CURLOPT_POSTFIELDS, body);
    curl_multi_add_handle(b->multi, c);
    curl_multi_socket_action(b->multi, CURL_SOCKET_TIMEOUT, 0, &running);
}

static int64_t turn_bare(struct bare *b) {
    int issued = 0, finished = 0, running, left;
    struct epoll_event ready[32];
    bare_events = 0;
    int64_t cpu = clock_cpu_ns();
    while (issued < STREAMS) {
        bare_start(b, b->easy[issued], issued);
        issued++;
    }
    while (finished < REQUESTS) {
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
            if (issued < REQUESTS)
                bare_start(b, c, issued++);
        }
    }
    cpu = clock_cpu_ns() - cpu;
    if (bare_events != (int64_t)REQUESTS * EVENTS)
        die("the bare client lost events");
    return cpu;
}

/* ---- figures ---- */

static int compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void print_quantiles(const char *what, int64_t *v, size_t n) {
    qsort(v, n, sizeof *v, compare);
    printf("  %-38s p50 %7.1f us  p90 %7.1f us  p99 %7.1f us  max %8.1f us  (n=%zu)\n", what,
           (double)v[n / 2] / 1e3, (double)v[n * 9 / 10] / 1e3, (double)v[n * 99 / 100] / 1e3,
           (double)v[n - 1] / 1e3, n);
}

static void print_differences(const char *what) {
    static int64_t difference[REQUESTS * EVENTS];
    size_t k = 0;
    for (int r = 0; r < REQUESTS; r++)
        for (int j = 0; j < EVENTS; j++)
            difference[k++] = read_ns[r][j] - sent_ns[r][j];
    print_quantiles(what, difference, k);
}

static double median(int64_t *v, size_t n) {
    qsort(v, n, sizeof *v, compare);
    return (double)v[n / 2];
}

static void bench_deadlines(struct client *c, bool loaded) {
    enum { N = 1500 };
    static int64_t late[N];
    struct completion done[64];
    struct err e;
    int n, issued = 0, in_flight = 0;
    for (; loaded && issued < STREAMS; issued++, in_flight++)
        submit(c, issued);
    int64_t at = backend_http.now(c->b);
    for (int i = 0; i < N; i++) {
        at += NS_PER_MS + i * 7919 % 300000; /* no beat with the server's period */
        for (;;) {
            if (backend_http.wait(c->b, at, done, 64, &n, &never, &e))
                die(e.text);
            if (!n)
                break;
            for (in_flight -= n; loaded && in_flight < STREAMS; in_flight++)
                submit(c, issued++ % REQUESTS);
        }
        late[i] = backend_http.now(c->b) - at;
    }
    while (in_flight > 0) {
        if (backend_http.wait(c->b, INT64_MAX, done, 64, &n, &never, &e))
            die(e.text);
        in_flight -= n;
    }
    print_quantiles(loaded ? "wait() late from a deadline, 64 streams"
                           : "wait() late from a deadline, idle",
                    late, N);
}

static void on_event(void *ctx, const struct sse_event *ev) {
    struct scan s;
    *(unsigned *)ctx += scan_event(ev->data.p, ev->data.n, &s) == SCAN_OK && s.flags & SCAN_CONTENT;
}

static void bench_parse(void) {
    enum { N = 200000 };
    struct sse s;
    unsigned tokens = 0;
    sse_init(&s, 1 << 20);
    int64_t t = clock_cpu_ns();
    for (int i = 0; i < N; i++)
        if (sse_feed(&s, event_format, sizeof event_format - 1, on_event, &tokens))
            die("parse");
    t = clock_cpu_ns() - t;
    if (tokens != N)
        die("parse");
    printf("  %-38s %.0f ns CPU per event of %zu bytes\n", "framing and key scan", (double)t / N,
           sizeof event_format - 1);
    sse_release(&s);
}

static void bench_body(void) {
    enum { N = 500, ISL = 8192 };
    struct body_options o = {.model = "m", .max_tokens_field = "max_tokens", .vocab = 128256};
    struct request r = {.isl = ISL, .osl = 1024};
    struct body_template t;
    struct buf b;
    buf_init(&b, BODY_MAX_BYTES);
    if (body_template_init(&t, &o, NULL))
        die("body");
    int64_t ns = clock_cpu_ns();
    for (int i = 0; i < N; i++) {
        r.content_seed = (uint64_t)i;
        if (body_build(&t, &r, &b, NULL))
            die("body");
    }
    ns = clock_cpu_ns() - ns;
    printf("  %-38s %.1f us CPU for %d token ids (%.1f ns a token)\n", "building a request body",
           (double)ns / N / 1e3, ISL, (double)ns / N / ISL);
    buf_release(&b);
    body_template_release(&t);
}

/* With an argument, `backend` or `bare`, only that client takes its turns: for profilers. */
int main(int argc, char **argv) {
    static struct client c, busy;
    static struct bare b = {.timer_ns = INT64_MAX};
    static int64_t ours[TURNS], theirs[TURNS];
    chunk_bytes = make_chunk(chunk, sizeof chunk, event_format, "");
    last_bytes = make_chunk(last_chunk, sizeof last_chunk, last_events, "0\r\n\r\n");
    sent_ns = mmap(NULL, sizeof *sent_ns * REQUESTS, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (sent_ns == MAP_FAILED || bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 512) ||
        getsockname(fd, (struct sockaddr *)&a, &n))
        die("cannot listen");
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child == 0) {
        pin(1);
        serve(fd);
    }
    close(fd);
    pin(0);
    open_backend(&c, ntohs(a.sin_port), "spin=60us");
    open_backend(&busy, ntohs(a.sin_port), "spin=50ms");
    bare_open(&b, ntohs(a.sin_port));
    printf("bench_http: %d requests, %d at a time, %d events each, %.0f ms apart\n", REQUESTS,
           STREAMS, EVENTS, (double)PERIOD_NS / 1e6);
    for (int i = 0; argc > 1 && i < TURNS; i++)
        printf("  CPU per request %.1f us\n",
               (double)(strcmp(argv[1], "bare") ? turn_backend(&c) : turn_bare(&b)) / REQUESTS /
                   1e3);
    if (argc > 1)
        return 0;
    turn_backend(&c); /* both warm */
    turn_bare(&b);
    for (int i = 0; i < TURNS; i++) {
        ours[i] = turn_backend(&c);
        theirs[i] = turn_bare(&b);
    }
    double x = median(ours, TURNS) / REQUESTS, y = median(theirs, TURNS) / REQUESTS;
    printf("  %-38s backend %.1f us  bare libcurl %.1f us  ratio %.3f (goal <= 1.15)\n",
           "CPU per request, median of turns", x / 1e3, y / 1e3, x / y);
    turn_backend(&c);
    print_differences("token stamp, client - server");
    turn_backend(&busy);
    print_differences("the same, never sleeping (spin=50ms)");
    bench_deadlines(&c, false);
    bench_deadlines(&c, true);
    bench_parse();
    bench_body();
    backend_http.close(c.b);
    backend_http.close(busy.b);
    arena_release(&c.arena);
    arena_release(&busy.arena);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}
