/* A backend with a virtual clock and a known schedule (first token at +ttft, the others each
 * +tpot), a server on top of it in a thread, and a strict little HTTP and SSE reader over a plain
 * socket. For the tests and benchmarks of serve; everything is static, so that each file has its
 * own. */
#ifndef TESTS_BACKENDS_SERVE_FIXTURE_H
#define TESTS_BACKENDS_SERVE_FIXTURE_H

#include "backends/serve/serve.h"
#include "harness/core/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wunused-function"

/* ---- the backend ---- */

struct fake_options {
    int64_t ttft_ns, tpot_ns;
    int64_t batch;      /* more are SUBMIT_BUSY; 0 = 64 */
    int64_t reject_isl; /* longer inputs are FAIL_REJECTED at submit; 0 = none */
    int64_t fail_after; /* tokens, then FAIL_IN_BAND_ERROR; 0 = never */
    int64_t cached;     /* told as USAGE; -1 = not told */
    int64_t per_event;  /* tokens an event; 0 = 1 */
    bool at_once;       /* SUBMIT_DONE: the whole answer at submit, an event a token */
    bool ahead;         /* records the answer at submit, stamped with its times to come */
};
static _Atomic int64_t fake_cancels, fake_submits;

struct fake_slot {
    bool used;
    uint64_t id;
    int64_t next_ns, sent, osl;
};
struct fake_backend {
    struct backend base;
    struct fake_options o;
    struct event_sink *sink;
    int64_t now_ns;
    struct fake_slot *slot;
    int64_t n;
};

static int fake_open(const struct backend_open_args *args, struct backend **out, struct err *e);
static int fake_describe(struct backend *b, struct backend_info *info, struct err *e) {
    (void)b, (void)e;
    *info = (struct backend_info){.result_class = CLASS_SIMULATED,
                                  .virtual_clock = true,
                                  .chip = "v6e",
                                  .chips = 8,
                                  .model_id = "sim/v6e-8/fake"};
    info->details = json_pack("{s:{}, s:i}", "chip", "counter", 1);
    return 0;
}

static int fake_submit(struct backend *b, const struct request *r, struct completion *c,
                       struct err *e) {
    struct fake_backend *f = (struct fake_backend *)b;
    struct fake_slot *s = NULL;
    (void)e;
    *c = (struct completion){.request = r->id, .time_ns = f->now_ns, .output_tokens = r->osl};
    if (f->o.reject_isl && r->isl > f->o.reject_isl) {
        event_put(f->sink, f->now_ns, EVENT_FAIL, r->id, FAIL_REJECTED, 0);
        c->fail_class = FAIL_REJECTED;
        return SUBMIT_DONE;
    }
    if (f->o.at_once) {
        for (uint32_t i = 0; i < r->osl; i++)
            event_put(f->sink, f->now_ns, EVENT_TOKENS, r->id, 1, 0);
        event_put(f->sink, f->now_ns, EVENT_DONE, r->id, r->osl, 0);
        return SUBMIT_DONE;
    }
    for (int64_t i = 0; i < f->n && !s; i++)
        if (!f->slot[i].used)
            s = &f->slot[i];
    if (!s)
        return SUBMIT_BUSY;
    atomic_fetch_add(&fake_submits, 1);
    if (f->o.ahead) {
        int64_t t = f->now_ns + f->o.ttft_ns;
        for (uint32_t i = 0; i < r->osl; i++, t += f->o.tpot_ns)
            event_put(f->sink, t, EVENT_TOKENS, r->id, 1, 0);
        event_put(f->sink, t, EVENT_DONE, r->id, r->osl, 0);
        return SUBMIT_DONE;
    }
    *s = (struct fake_slot){true, r->id, f->now_ns + f->o.ttft_ns, 0, r->osl};
    if (f->o.cached >= 0)
        event_put(f->sink, f->now_ns, EVENT_USAGE, r->id, f->o.cached, 0);
    return SUBMIT_QUEUED;
}

static struct fake_slot *fake_first(struct fake_backend *f) {
    struct fake_slot *best = NULL;
    for (int64_t i = 0; i < f->n; i++)
        if (f->slot[i].used && (!best || f->slot[i].next_ns < best->next_ns))
            best = &f->slot[i];
    return best;
}

static int fake_wait(struct backend *b, int64_t until_ns, struct completion *c, int max, int *n,
                     const volatile int *stop, struct err *e) {
    struct fake_backend *f = (struct fake_backend *)b;
    struct fake_slot *s;
    (void)stop, (void)e, (void)max;
    *n = 0;
    while ((s = fake_first(f)) && s->next_ns <= until_ns) {
        int64_t k = f->o.per_event ? f->o.per_event : 1;
        f->now_ns = s->next_ns > f->now_ns ? s->next_ns : f->now_ns;
        if (k > s->osl - s->sent)
            k = s->osl - s->sent;
        event_put(f->sink, f->now_ns, EVENT_TOKENS, s->id, k, 0);
        s->sent += k;
        s->next_ns += f->o.tpot_ns;
        bool fail = f->o.fail_after && s->sent >= f->o.fail_after;
        if (!fail && s->sent < s->osl)
            continue;
        event_put(f->sink, f->now_ns, fail ? EVENT_FAIL : EVENT_DONE, s->id,
                  fail ? FAIL_IN_BAND_ERROR : s->sent, 0);
        s->used = false;
        c[0] = (struct completion){s->id, f->now_ns, (uint32_t)s->sent,
                                   fail ? FAIL_IN_BAND_ERROR : FAIL_NONE};
        *n = 1;
        return 0;
    }
    if (until_ns != INT64_MAX && until_ns > f->now_ns)
        f->now_ns = until_ns;
    return 0;
}

static int64_t fake_now(struct backend *b) {
    return ((struct fake_backend *)b)->now_ns;
}

static int64_t fake_next(struct backend *b) {
    struct fake_slot *s = fake_first((struct fake_backend *)b);
    return s ? s->next_ns : INT64_MAX;
}

static void fake_cancel(struct backend *b, uint64_t request) {
    struct fake_backend *f = (struct fake_backend *)b;
    for (int64_t i = 0; i < f->n; i++)
        if (f->slot[i].used && f->slot[i].id == request) {
            f->slot[i].used = false;
            event_put(f->sink, f->now_ns, EVENT_FAIL, request, FAIL_CANCELLED, 0);
            atomic_fetch_add(&fake_cancels, 1);
        }
}

static void fake_close(struct backend *b) {
    struct fake_backend *f = (struct fake_backend *)b;
    if (f)
        free(f->slot);
    free(f);
}

static const struct option fake_table[] = {{0}};
static const struct backend_ops fake_ops = {
    .abi = BACKEND_ABI,
    .name = "fake",
    .summary = "a fixed schedule",
    .version = "1",
    .caps = BACKEND_VIRTUAL_CLOCK | BACKEND_SERVING,
    .options = fake_table,
    .options_size = sizeof(struct fake_options),
    .open = fake_open,
    .describe = fake_describe,
    .submit = fake_submit,
    .wait = fake_wait,
    .now = fake_now,
    .next_ns = fake_next,
    .cancel = fake_cancel,
    .close = fake_close,
};

static int fake_open(const struct backend_open_args *args, struct backend **out, struct err *e) {
    struct fake_backend *f = calloc(1, sizeof *f);
    (void)e;
    if (!f)
        abort();
    f->base.ops = &fake_ops;
    f->o = *(const struct fake_options *)args->options;
    f->sink = args->sink;
    f->n = f->o.batch ? f->o.batch : 64;
    f->slot = calloc((size_t)f->n, sizeof *f->slot);
    *out = &f->base;
    return 0;
}

/* ---- a server in a thread ---- */

struct fixture {
    struct fake_options fake;
    struct serve_options o;
    struct workload workload;
    struct serve_stats stats;
    volatile int stop;
    uint16_t port;
    sem_t ready;
    pthread_t thread;
    int rc;
    struct err e;
};

static void fixture_ready(void *ctx, uint16_t port) {
    struct fixture *x = ctx;
    x->port = port;
    sem_post(&x->ready);
}

static void *fixture_main(void *ctx) {
    struct fixture *x = ctx;
    x->rc = serve_run(&x->o, &x->e);
    if (x->rc)
        sem_post(&x->ready);
    return NULL;
}

/* Fields of x->fake, x->o and x->workload may be set before. */
static void fixture_start_with(struct fixture *x, const struct workload *w) {
    sem_init(&x->ready, 0, 0);
    if (!x->o.ops) {
        x->o.ops = &fake_ops;
        x->o.backend_options = &x->fake;
    }
    x->o.workload = w;
    x->o.ready = fixture_ready;
    x->o.ready_ctx = x;
    x->o.stop = &x->stop;
    x->o.stats = &x->stats;
    if (pthread_create(&x->thread, NULL, fixture_main, x))
        abort();
    while (sem_wait(&x->ready))
        ;
}

static void fixture_start(struct fixture *x) {
    fixture_start_with(x, &x->workload);
}

static void fixture_stop(struct fixture *x) {
    __atomic_store_n(&x->stop, 1, __ATOMIC_RELAXED);
    pthread_join(x->thread, NULL);
    sem_destroy(&x->ready);
}

/* ---- a client ---- */

static int dial(const struct fixture *x) {
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(x->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 20};
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) ||
        connect(fd, (struct sockaddr *)&to, sizeof to)) {
        perror("dial");
        abort();
    }
    return fd;
}

static void say(int fd, const char *text, size_t n) {
    while (n) {
        ssize_t k = send(fd, text, n, MSG_NOSIGNAL);
        if (k <= 0)
            return;
        text += k;
        n -= (size_t)k;
    }
}

static void post(int fd, const char *path, const char *body) {
    char head[256];
    int n = snprintf(head, sizeof head,
                     "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n",
                     path, strlen(body));
    say(fd, head, (size_t)n);
    say(fd, body, strlen(body));
}

static void get(int fd, const char *path) {
    char head[256];
    int n = snprintf(head, sizeof head, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    say(fd, head, (size_t)n);
}

/* An answer read to its end. broken names the first rule of the protocol that was broken. */
struct answer {
    int status;
    char head[4096];
    char *body; /* chunks joined */
    size_t body_n, body_cap;
    int chunks;
    const char *broken;
    bool closed; /* the peer closed the connection within this answer */
};

struct reader {
    int fd;
    char buf[65536];
    size_t from, n;
};

static int next_byte(struct reader *r) {
    if (r->from == r->n) {
        ssize_t k = recv(r->fd, r->buf, sizeof r->buf, 0);
        if (k <= 0)
            return -1;
        r->from = 0;
        r->n = (size_t)k;
    }
    return (unsigned char)r->buf[r->from++];
}

static bool read_line(struct reader *r, char *line, size_t bytes) {
    for (size_t i = 0; i + 1 < bytes;) {
        int c = next_byte(r);
        if (c < 0)
            return false;
        line[i++] = (char)c;
        if (i >= 2 && line[i - 2] == '\r' && line[i - 1] == '\n') {
            line[i - 2] = '\0';
            return true;
        }
    }
    return false;
}

static void body_room(struct answer *a, size_t n) {
    if (a->body_n + n + 1 <= a->body_cap)
        return;
    a->body_cap = 2 * (a->body_n + n + 1);
    if (!(a->body = realloc(a->body, a->body_cap)))
        abort();
}

static bool read_exact(struct reader *r, struct answer *a, size_t n) {
    body_room(a, n);
    for (; n; n--) {
        int c = next_byte(r);
        if (c < 0)
            return false;
        a->body[a->body_n++] = (char)c;
    }
    a->body[a->body_n] = '\0';
    return true;
}

static const char *header_of(const struct answer *a, const char *name) {
    static _Thread_local char value[512];
    size_t n = strlen(name);
    for (const char *p = a->head; *p; p = strchr(p, '\n') + 1)
        if (!strncasecmp(p, name, n) && p[n] == ':') {
            snprintf(value, sizeof value, "%.*s", (int)strcspn(p + n + 2, "\n"), p + n + 2);
            return value;
        }
    return "";
}

static struct answer read_answer(struct reader *r) {
    struct answer a = {.broken = NULL};
    char line[1024], version[16];
    if (!read_line(r, line, sizeof line)) {
        a.closed = true;
        a.broken = "no status line";
        return a;
    }
    if (sscanf(line, "%15s %d", version, &a.status) != 2) {
        a.broken = "bad status line";
        return a;
    }
    while (read_line(r, line, sizeof line) && line[0]) {
        size_t n = strlen(a.head);
        snprintf(a.head + n, sizeof a.head - n, "%s\n", line);
    }
    body_room(&a, 0);
    a.body[0] = '\0';
    if (!strcasecmp(header_of(&a, "Transfer-Encoding"), "chunked")) {
        for (;;) {
            char *end;
            if (!read_line(r, line, sizeof line)) {
                a.closed = true;
                a.broken = "the chunked body was cut";
                return a;
            }
            size_t n = strtoul(line, &end, 16);
            if (end == line || *end) {
                a.broken = "bad chunk size";
                return a;
            }
            if (n == 0)
                break;
            a.chunks++;
            if (!read_exact(r, &a, n) || !read_line(r, line, sizeof line) || line[0]) {
                a.closed = true;
                a.broken = "a chunk was cut";
                return a;
            }
        }
        if (!read_line(r, line, sizeof line) || line[0])
            a.broken = "no blank line after the last chunk";
    } else if (header_of(&a, "Content-Length")[0]) {
        if (!read_exact(r, &a, strtoul(header_of(&a, "Content-Length"), NULL, 10)))
            a.broken = "the body was cut";
    } else { /* to the end of the connection */
        int c;
        while ((c = next_byte(r)) >= 0) {
            body_room(&a, 1);
            a.body[a.body_n++] = (char)c;
            a.body[a.body_n] = '\0';
        }
        a.closed = true;
    }
    return a;
}

/* What a stream said. Every event must be "data: JSON" or "data: [DONE]" and end with a blank line.
 */
struct stream {
    int events, tokens_events, role_events, usage_events, done, errors, continuous;
    char text[65536];
    char id[128], model[128], fingerprint[128], object[64], finish[32], error[256];
    int64_t prompt_tokens, completion_tokens, cached; /* of the last usage seen; -1 = none */
    bool finish_before_end; /* something else than usage and [DONE] came after the finish */
    const char *broken;
};

static void stream_event(struct stream *s, const char *data, size_t n) {
    s->events++;
    if (s->done)
        s->broken = "an event after [DONE]";
    if (n == 6 && !memcmp(data, "[DONE]", 6)) {
        s->done++;
        return;
    }
    json_t *j = json_loadb(data, n, JSON_REJECT_DUPLICATES, NULL);
    if (!j) {
        s->broken = "an event is not JSON";
        return;
    }
    const char *message =
        json_string_value(json_object_get(json_object_get(j, "error"), "message"));
    if (message) {
        s->errors++;
        snprintf(s->error, sizeof s->error, "%s", message);
        json_decref(j);
        return;
    }
    const char *id = json_string_value(json_object_get(j, "id"));
    const char *model = json_string_value(json_object_get(j, "model"));
    const char *print = json_string_value(json_object_get(j, "system_fingerprint"));
    const char *object = json_string_value(json_object_get(j, "object"));
    if (!id || !model || !print || !object || !json_is_integer(json_object_get(j, "created")))
        s->broken = "an event lacks id, object, created, model or system_fingerprint";
    else if (s->id[0] && strcmp(s->id, id))
        s->broken = "the id changes";
    else {
        snprintf(s->id, sizeof s->id, "%s", id);
        snprintf(s->model, sizeof s->model, "%s", model);
        snprintf(s->fingerprint, sizeof s->fingerprint, "%s", print);
        snprintf(s->object, sizeof s->object, "%s", object);
    }
    json_t *usage = json_object_get(j, "usage"), *choices = json_object_get(j, "choices");
    if (!json_is_array(choices))
        s->broken = "no choices";
    if (usage) {
        s->prompt_tokens = json_integer_value(json_object_get(usage, "prompt_tokens"));
        s->completion_tokens = json_integer_value(json_object_get(usage, "completion_tokens"));
        json_t *cached =
            json_object_get(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
        s->cached = cached ? json_integer_value(cached) : -1;
        if (json_integer_value(json_object_get(usage, "total_tokens")) !=
            s->prompt_tokens + s->completion_tokens)
            s->broken = "total_tokens is not the sum";
    }
    if (json_array_size(choices) == 0) {
        s->usage_events++;
    } else {
        json_t *c = json_array_get(choices, 0), *delta = json_object_get(c, "delta");
        const char *text =
            json_string_value(json_object_get(delta ? delta : c, delta ? "content" : "text"));
        const char *finish = json_string_value(json_object_get(c, "finish_reason"));
        s->continuous += usage != NULL;
        if (s->finish[0])
            s->finish_before_end = true;
        if (finish)
            snprintf(s->finish, sizeof s->finish, "%s", finish);
        if (json_object_get(delta, "role"))
            s->role_events++;
        if (text && text[0]) {
            s->tokens_events++;
            size_t at = strlen(s->text);
            snprintf(s->text + at, sizeof s->text - at, "%s", text);
        }
    }
    json_decref(j);
}

static struct stream read_stream(const struct answer *a) {
    struct stream s = {.cached = -1, .prompt_tokens = -1, .completion_tokens = -1};
    const char *p = a->body ? a->body : "", *end = p + a->body_n;
    while (p < end) {
        const char *stop = memmem(p, (size_t)(end - p), "\n\n", 2);
        if (!stop || strncmp(p, "data: ", 6) || memchr(p, '\n', (size_t)(stop - p))) {
            s.broken = "not 'data: …' and a blank line";
            return s;
        }
        stream_event(&s, p + 6, (size_t)(stop - p - 6));
        p = stop + 2;
    }
    return s;
}

static struct answer ask(const struct fixture *x, const char *path, const char *body) {
    struct reader *r = calloc(1, sizeof *r);
    r->fd = dial(x);
    if (body)
        post(r->fd, path, body);
    else
        get(r->fd, path);
    struct answer a = read_answer(r);
    close(r->fd);
    free(r);
    return a;
}

static void answer_free(struct answer *a) {
    free(a->body);
    a->body = NULL;
}

#endif
