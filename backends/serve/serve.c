/* The HTTP side of serve: listening, routes, reading bodies, starting and ending responses. Runs on
 * libmicrohttpd's thread, except serve_run itself, whose thread becomes the pacing thread (loop.c).
 */
#include "backends/serve/serve.h"

#include "backends/serve/serve_internal.h"
#include "harness/core/clock.h"
#include "harness/core/version.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    DEFAULT_CONNECTIONS = 16384,
    SPARE_FDS = 64, /* for everything that is not a connection */
    CONNECTION_POOL_BYTES =
        16384,            /* of libmicrohttpd, a connection: headers and pieces of a body */
    IDLE_TIMEOUT_S = 600, /* a kept connection without a request */
    ANSWER_MAX_BYTES = 64 * 1024 * 1024,
};

struct server {
    const struct serve_options *o;
    struct serve_identity id;
    struct serve_limits limits;
    struct serve_mailbox mailbox;
    struct serve_counters counters;
    struct MHD_Daemon *daemon;
    uint64_t serial; /* HTTP thread only */
};

/* One request being read. */
struct call {
    const struct route *route; /* NULL = no such path */
    bool wrong_method, too_large, http_1_1;
    struct buf body;
    size_t discarded;            /* bytes of a body that nobody will read */
    struct serve_stream *stream; /* given to the pacing thread */
};

struct route {
    const char *path, *method, *allow;
    enum MHD_Result (*answer)(struct server *v, struct MHD_Connection *c, struct call *call);
    enum serve_endpoint endpoint;
};

/* ---- answers ---- */

static enum MHD_Result queue(struct server *v, struct MHD_Connection *c, unsigned status,
                             struct MHD_Response *r, const char *content_type, const char *allow) {
    if (!r)
        return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    MHD_add_response_header(r, "X-Assay-Class", v->id.class_name);
    MHD_add_response_header(r, "X-Assay-Chip", v->id.chip_header);
    MHD_add_response_header(r, MHD_HTTP_HEADER_SERVER, "assay");
    if (allow)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, allow);
    enum MHD_Result ok = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return ok;
}

static enum MHD_Result answer_buf(struct server *v, struct MHD_Connection *c, unsigned status,
                                  struct buf *b, const char *content_type, const char *allow) {
    size_t n = 0;
    char *p = buf_take(b, &n);
    if (!p)
        return MHD_NO;
    struct MHD_Response *r = MHD_create_response_from_buffer(n, p, MHD_RESPMEM_MUST_FREE);
    if (!r)
        free(p);
    return queue(v, c, status, r, content_type, allow);
}

static enum MHD_Result answer_error(struct server *v, struct MHD_Connection *c,
                                    const struct serve_error *error, const char *allow) {
    struct buf b;
    buf_init(&b, 4096);
    put_error_body(&b, error);
    return answer_buf(v, c, (unsigned)error->status, &b, "application/json", allow);
}

static enum MHD_Result answer_models(struct server *v, struct MHD_Connection *c,
                                     struct call *call) {
    (void)call;
    struct buf b;
    buf_init(&b, 16384);
    put_models_body(&b, &v->id);
    return answer_buf(v, c, 200, &b, "application/json", NULL);
}

static enum MHD_Result answer_health(struct server *v, struct MHD_Connection *c,
                                     struct call *call) {
    (void)call;
    struct buf b;
    buf_init(&b, 4096);
    buf_puts(&b, "{\"status\":\"ok\",\"version\":");
    put_json_string(&b, assay_version);
    buf_putc(&b, '}');
    return answer_buf(v, c, 200, &b, "application/json", NULL);
}

/* ---- completions ---- */

/* Called after the headers went out, and again when the pacing thread gave the connection back.
 * Never writes a token: those go straight to the socket, from the other thread. */
static ssize_t content(void *cls, uint64_t pos, char *to, size_t max) {
    struct call *call = cls;
    struct serve_stream *s = call->stream;
    (void)pos;
    if (s->closing_sent)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (s->action == ACTION_STREAM) {
        if (mailbox_post(s->mailbox, s, MESSAGE_READY, true))
            return 0;
        static const char closing[] =
            "data: {\"error\":{\"message\":\"the server is shutting down\",\"type\":"
            "\"ServiceUnavailableError\",\"param\":null,\"code\":503}}\n\ndata: [DONE]\n\n";
        s->closing_sent = true;
        if (max < sizeof closing)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        memcpy(to, closing, sizeof closing - 1);
        return sizeof closing - 1;
    }
    return s->action == ACTION_END ? MHD_CONTENT_READER_END_OF_STREAM
                                   : MHD_CONTENT_READER_END_WITH_ERROR;
}

/* The pacing thread has decided what this connection gets. */
static enum MHD_Result resume_answer(struct server *v, struct MHD_Connection *c,
                                     struct call *call) {
    struct serve_stream *s = call->stream;
    struct buf b;
    switch (s->action) {
    case ACTION_STREAM: {
        struct MHD_Response *r =
            MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 1024, content, call, NULL);
        if (r)
            MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
        return queue(v, c, 200, r, "text/event-stream; charset=utf-8", NULL);
    }
    case ACTION_BODY:
        buf_init(&b, ANSWER_MAX_BYTES);
        put_full_body(&b, s, &v->id);
        return answer_buf(v, c, 200, &b, "application/json", NULL);
    case ACTION_ERROR:
        return answer_error(v, c, &s->error, NULL);
    default:
        return MHD_NO;
    }
}

static enum MHD_Result answer_completion(struct server *v, struct MHD_Connection *c,
                                         struct call *call) {
    struct serve_error error;
    struct serve_request request;
    if (serve_request_parse(call->body.p ? call->body.p : "", call->body.n, call->route->endpoint,
                            &v->limits, &request, &error))
        return answer_error(v, c, &error, NULL);
    buf_release(&call->body);
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct serve_stream *s = info ? calloc(1, sizeof *s) : NULL;
    if (!s)
        return MHD_NO;
    s->connection = c;
    s->fd = info->connect_fd;
    s->chunked = call->http_1_1;
    s->request = request;
    s->received_ns = clock_now_ns();
    s->created_s = clock_wall_ns() / NS_PER_S;
    s->serial = v->serial++;
    s->cached_tokens = -1;
    s->mailbox = &v->mailbox;
    call->stream = s;
    if (mailbox_post(&v->mailbox, s, MESSAGE_NEW, true))
        return MHD_YES;
    call->stream = NULL;
    stream_free(s);
    serve_error_set(&error, 503, NULL, "the server is shutting down");
    return answer_error(v, c, &error, NULL);
}

/* ---- routes ---- */

static enum MHD_Result answer_metrics(struct server *v, struct MHD_Connection *c,
                                      struct call *call);

static const struct route routes[] = {
    {"/health", MHD_HTTP_METHOD_GET, "GET, HEAD", answer_health, 0},
    {"/metrics", MHD_HTTP_METHOD_GET, "GET, HEAD", answer_metrics, 0},
    {"/v1/chat/completions", MHD_HTTP_METHOD_POST, "POST", answer_completion, SERVE_CHAT},
    {"/v1/completions", MHD_HTTP_METHOD_POST, "POST", answer_completion, SERVE_COMPLETIONS},
    {"/v1/models", MHD_HTTP_METHOD_GET, "GET, HEAD", answer_models, 0},
};

static void put_metric(struct buf *b, const char *name, const char *type, const char *help,
                       _Atomic int64_t *value) {
    buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n%s %" PRId64 "\n", name, help, name, type, name,
               atomic_load_explicit(value, memory_order_relaxed));
}

/* Prometheus text. The vllm: names are those a scraper of such an endpoint expects. */
static enum MHD_Result answer_metrics(struct server *v, struct MHD_Connection *c,
                                      struct call *call) {
    (void)call;
    struct serve_counters *n = &v->counters;
    struct buf b;
    buf_init(&b, 65536);
    put_metric(&b, "vllm:num_requests_running", "gauge", "Requests the backend has.", &n->running);
    put_metric(&b, "vllm:num_requests_waiting", "gauge", "Requests not yet taken.", &n->waiting);
    put_metric(&b, "vllm:prompt_tokens_total", "counter", "Input tokens.", &n->prompt_tokens);
    put_metric(&b, "vllm:generation_tokens_total", "counter", "Output tokens.", &n->tokens);
    put_metric(&b, "assay_serve_requests_total", "counter", "Requests accepted.", &n->requests);
    put_metric(&b, "assay_serve_completed_total", "counter", "Requests completed.", &n->completed);
    put_metric(&b, "assay_serve_failed_total", "counter", "Requests failed.", &n->failed);
    put_metric(&b, "assay_serve_rejected_total", "counter", "Requests refused.", &n->rejected);
    put_metric(&b, "assay_serve_disconnected_total", "counter", "Clients that left early.",
               &n->disconnected);
    put_metric(&b, "assay_serve_dropped_total", "counter", "Slow clients cut.", &n->dropped);
    buf_puts(&b, "# HELP assay_serve_lateness_seconds How late token events leave.\n"
                 "# TYPE assay_serve_lateness_seconds histogram\n");
    int64_t sum = 0;
    for (int i = 0; i < LATENESS_BUCKETS; i++) {
        sum += atomic_load_explicit(&n->lateness[i], memory_order_relaxed);
        if (i < LATENESS_BUCKETS - 1)
            buf_printf(&b, "assay_serve_lateness_seconds_bucket{le=\"%g\"} %" PRId64 "\n",
                       (double)serve_lateness_bound_ns[i] / 1e9, sum);
    }
    buf_printf(
        &b,
        "assay_serve_lateness_seconds_bucket{le=\"+Inf\"} %" PRId64
        "\nassay_serve_lateness_seconds_sum %.9f\nassay_serve_lateness_seconds_count %" PRId64 "\n",
        sum, (double)atomic_load_explicit(&n->lateness_sum_ns, memory_order_relaxed) / 1e9, sum);
    return answer_buf(v, c, 200, &b, "text/plain; version=0.0.4; charset=utf-8", NULL);
}

static enum MHD_Result too_large(struct server *v, struct MHD_Connection *c) {
    struct serve_error error;
    serve_error_set(&error, 413, NULL, "the body is larger than the limit of %d bytes",
                    SERVE_BODY_MAX_BYTES);
    return answer_error(v, c, &error, NULL);
}

static struct call *call_begin(const char *url, const char *method, const char *version) {
    struct call *call = calloc(1, sizeof *call);
    if (!call)
        return NULL;
    buf_init(&call->body, SERVE_BODY_MAX_BYTES);
    call->http_1_1 = !strcmp(version, MHD_HTTP_VERSION_1_1);
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++)
        if (!strcmp(url, routes[i].path))
            call->route = &routes[i];
    call->wrong_method =
        call->route && strcmp(method, call->route->method) &&
        (strcmp(method, MHD_HTTP_METHOD_HEAD) || strcmp(call->route->method, MHD_HTTP_METHOD_GET));
    return call;
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *c, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *data_bytes, void **state) {
    struct server *v = cls;
    struct call *call = *state;
    struct serve_error error;
    if (!call) { /* headers only */
        if (!(call = *state = call_begin(url, method, version)))
            return MHD_NO;
        const char *length =
            MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
        if (length && strtoull(length, NULL, 10) > SERVE_BODY_MAX_BYTES)
            return too_large(v, c);
        return MHD_YES;
    }
    if (*data_bytes) { /* a piece of the body; kept only when somebody will read it */
        if (call->route && !call->wrong_method && call->route->answer == answer_completion &&
            !call->too_large)
            buf_put(&call->body, data, *data_bytes);
        else
            call->discarded += *data_bytes;
        if (call->body.failed) {
            call->too_large = true;
            buf_release(&call->body);
        }
        *data_bytes = 0;
        return call->discarded > SERVE_BODY_MAX_BYTES ? MHD_NO
                                                      : MHD_YES; /* an upload without end */
    }
    if (call->stream)
        return resume_answer(v, c, call);
    if (call->too_large)
        return too_large(v, c);
    if (!call->route) {
        serve_error_set(&error, 404, NULL,
                        "no such path: this is POST /v1/completions, POST "
                        "/v1/chat/completions, GET /v1/models, /health and /metrics");
        return answer_error(v, c, &error, NULL);
    }
    if (call->wrong_method) {
        serve_error_set(&error, 405, NULL, "method not allowed: %s expects %s", call->route->path,
                        call->route->allow);
        return answer_error(v, c, &error, call->route->allow);
    }
    return call->route->answer(v, c, call);
}

static void completed(void *cls, struct MHD_Connection *c, void **state,
                      enum MHD_RequestTerminationCode why) {
    struct server *v = cls;
    struct call *call = *state;
    (void)c, (void)why;
    if (!call)
        return;
    if (call->stream)
        mailbox_post(&v->mailbox, call->stream, MESSAGE_CLOSED, false);
    buf_release(&call->body);
    free(call);
    *state = NULL;
}

/* Events are small and each must leave at once. */
static void connected(void *cls, struct MHD_Connection *c, void **socket_state,
                      enum MHD_ConnectionNotificationCode what) {
    (void)cls, (void)socket_state;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (what == MHD_CONNECTION_NOTIFY_STARTED && info)
        setsockopt(info->connect_fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

/* Its complaints are about clients that left; those are counted already. */
static void mute(void *cls, const char *fmt, va_list ap) {
    (void)cls, (void)fmt, (void)ap;
}

/* ---- life ---- */

static int64_t raise_fd_limit(int64_t wanted) {
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r))
        return 1024 - SPARE_FDS;
    if (r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &r) || getrlimit(RLIMIT_NOFILE, &r))
            return 1024 - SPARE_FDS;
    }
    if (r.rlim_cur != RLIM_INFINITY && (int64_t)r.rlim_cur - SPARE_FDS < wanted)
        return (int64_t)r.rlim_cur > 2 * SPARE_FDS ? (int64_t)r.rlim_cur - SPARE_FDS : SPARE_FDS;
    return wanted;
}

static int listen_on(const char *address, uint16_t port, uint16_t *bound, int *family,
                     struct err *e) {
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                             .ai_socktype = SOCK_STREAM};
    struct addrinfo *ai = NULL;
    char service[8];
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } name;
    socklen_t n = sizeof name;
    snprintf(service, sizeof service, "%u", port);
    int why = getaddrinfo(address, service, &hints, &ai);
    if (why)
        return err_set(e, ASSAY_EUSAGE, "cannot listen on '%s': expected a numeric address (%s)",
                       address, gai_strerror(why));
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *family = ai->ai_family;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) ||
        bind(fd, ai->ai_addr, ai->ai_addrlen) || listen(fd, SOMAXCONN) ||
        getsockname(fd, &name.sa, &n)) {
        int rc = err_errno(e, ASSAY_EENV, errno, "cannot listen on '%s' port %u", address, port);
        if (fd >= 0)
            close(fd);
        freeaddrinfo(ai);
        return rc;
    }
    *bound = ntohs(ai->ai_family == AF_INET6 ? name.in6.sin6_port : name.in.sin_port);
    freeaddrinfo(ai);
    return fd;
}

static void fill_stats(struct serve_stats *to, struct serve_counters *n) {
    *to = (struct serve_stats){
        .requests = n->requests,
        .completed = n->completed,
        .failed = n->failed,
        .rejected = n->rejected,
        .disconnected = n->disconnected,
        .dropped = n->dropped,
        .token_events = n->token_events,
        .tokens = n->tokens,
        .lateness_max_ns = n->lateness_max_ns,
        .lateness_sum_ns = n->lateness_sum_ns,
    };
}

int serve_run(const struct serve_options *o, struct err *e) {
    const unsigned needed = BACKEND_SERVING | BACKEND_VIRTUAL_CLOCK;
    struct serve_loop *loop = NULL;
    struct backend_info info = {0};
    struct server *v = NULL;
    uint16_t port = 0;
    int listen_fd = -1, family = AF_INET, rc;
    const char *address = o->bind ? o->bind : "127.0.0.1";

    if ((o->ops->caps & needed) != needed || !o->ops->next_ns)
        return err_set(e, ASSAY_EUSAGE,
                       "cannot serve backend '%s': it takes no requests under a virtual clock",
                       o->ops->name);
    if (!(o->speed >= 0) || o->speed > 1e6)
        return err_set(e, ASSAY_EUSAGE, "speed: expected 0 to 1e6, found %g", o->speed);
    if (!(v = calloc(1, sizeof *v)))
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    v->o = o;
    pthread_mutex_init(&v->mailbox.lock, NULL);
    int64_t connections =
        raise_fd_limit(o->max_connections > 0 ? o->max_connections : DEFAULT_CONNECTIONS);
    if ((v->mailbox.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) {
        rc = err_errno(e, ASSAY_EENV, errno, "cannot make an eventfd");
        goto out;
    }
    if ((rc = loop_open(o, connections, &v->mailbox, &v->counters, &loop, &info, e)) ||
        (rc = serve_identity_fill(&v->id, o, &info, e)))
        goto out;
    v->limits = (struct serve_limits){.max_context = v->id.max_context,
                                      .model_id = v->id.model_raw,
                                      .model_name = v->id.model_name};
    if ((o->sessions || (o->workload && workload_has_sessions(o->workload))) &&
        (rc = sessions_new(&v->limits.sessions, e)))
        goto out;
    listen_fd = listen_on(address, o->port, &port, &family, e);
    if (listen_fd < 0) {
        rc = listen_fd;
        goto out;
    }
    v->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME |
            MHD_USE_ERROR_LOG | (family == AF_INET6 ? (unsigned)MHD_USE_IPv6 : 0u),
        port, NULL, NULL, handle, v, MHD_OPTION_EXTERNAL_LOGGER, mute, NULL,
        MHD_OPTION_LISTEN_SOCKET, listen_fd, MHD_OPTION_NOTIFY_COMPLETED, completed, v,
        MHD_OPTION_NOTIFY_CONNECTION, connected, v, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_POOL_BYTES,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_TIMEOUT_S, MHD_OPTION_END);
    if (!v->daemon) {
        rc = err_set(e, ASSAY_EENV, "cannot start the HTTP server on '%s' port %u", address, port);
        goto out;
    }
    if (o->ready)
        o->ready(o->ready_ctx, port);
    rc = loop_run(loop, &v->id, e);
    MHD_quiesce_daemon(v->daemon); /* gives listen_fd back: no new connections */
    close(listen_fd);
    listen_fd = -1;
    loop_drain(loop);
    MHD_stop_daemon(v->daemon);
    if (o->stats)
        fill_stats(o->stats, &v->counters);
out:
    if (listen_fd >= 0)
        close(listen_fd);
    loop_close(loop);
    if (v->mailbox.event_fd >= 0)
        close(v->mailbox.event_fd);
    json_decref(info.details);
    sessions_free(v->limits.sessions);
    pthread_mutex_destroy(&v->mailbox.lock);
    free(v);
    return rc;
}
