/* serve over real sockets: what leaves the wire, in which shape, never before its time, and what
 * happens when clients or the server go away. Shapes: the OpenAI API as vLLM sends it. */
#include "results/jcs.h"
#include "tests/backends/serve_fixture.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <curl/curl.h>
#include <math.h>

#define MS INT64_C(1000000)
#define COMPLETIONS "/v1/completions"
#define CHAT "/v1/chat/completions"

TestSuite(backends_serve_http, .timeout = 60);

static json_t *json_of(const struct answer *a) {
    json_t *j = json_loadb(a->body, a->body_n, JSON_REJECT_DUPLICATES, NULL);
    cr_assert(ne(ptr, j, NULL), "not JSON: %s", a->body);
    return j;
}

Test(backends_serve_http, tells_health_models_and_what_stands_behind) {
    static struct fixture x = {.fake = {.tpot_ns = MS, .cached = -1}};
    x.workload.has_model = true;
    snprintf(x.workload.model.name, sizeof x.workload.model.name, "fake-8b");
    x.workload.model.max_context = 4096;
    x.o.digest = jcs_sha256;
    fixture_start(&x);
    struct answer a = ask(&x, "/health", NULL);
    cr_assert(eq(int, a.status, 200));
    cr_assert(eq(str, (char *)header_of(&a, "X-Assay-Class"), "simulated"));
    cr_assert(eq(str, (char *)header_of(&a, "X-Assay-Chip"),
                 "v6e;chips=8;sha256=" /* of the two bytes {} */
                 "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"));
    answer_free(&a);
    a = ask(&x, "/v1/models", NULL);
    json_t *j = json_of(&a), *m = json_array_get(json_object_get(j, "data"), 0);
    cr_assert(eq(str, (char *)json_string_value(json_object_get(m, "id")), "sim/v6e-8/fake"));
    cr_assert(eq(i64, json_integer_value(json_object_get(m, "max_model_len")), 4096));
    json_decref(j);
    answer_free(&a);
    a = ask(&x, COMPLETIONS, "{\"prompt\":[1],\"max_tokens\":4096}");
    cr_assert(eq(int, a.status, 400));
    cr_assert(eq(str, (char *)header_of(&a, "X-Assay-Class"), "simulated"));
    answer_free(&a);
    a = ask(&x, COMPLETIONS, "{\"model\":\"fake-8b\",\"prompt\":[1],\"max_tokens\":2}");
    cr_assert(eq(int, a.status, 200));
    answer_free(&a);
    a = ask(&x, "/metrics", NULL);
    cr_assert(eq(int, a.status, 200));
    cr_assert(ne(ptr, strstr(a.body, "\nvllm:generation_tokens_total 2\n"), NULL), "%s", a.body);
    answer_free(&a);
    fixture_stop(&x);
    cr_assert(eq(int, x.rc, 0), "%s", x.e.text);
}

Test(backends_serve_http, streams_one_event_and_chunk_a_token) {
    static struct fixture x = {.fake = {.ttft_ns = MS, .tpot_ns = MS, .cached = -1}};
    fixture_start(&x);
    struct answer a = ask(&x, COMPLETIONS,
                          "{\"model\":\"sim/v6e-8/fake\",\"prompt\":[1,2,3,4,5],\"max_tokens\":20,"
                          "\"stream\":true,\"ignore_eos\":true,\"min_tokens\":20}");
    cr_assert(eq(int, a.status, 200));
    cr_assert(eq(ptr, (void *)a.broken, NULL), "%s", a.broken);
    cr_assert(eq(str, (char *)header_of(&a, "Content-Type"), "text/event-stream; charset=utf-8"));
    struct stream s = read_stream(&a);
    cr_assert(eq(ptr, (void *)s.broken, NULL), "%s", s.broken);
    cr_assert(eq(int, s.tokens_events, 20));
    cr_assert(eq(int, s.events, 22)); /* finish and [DONE] */
    cr_assert(eq(int, a.chunks, 22));
    cr_assert(eq(int, s.usage_events, 0));
    cr_assert(eq(str, s.object, "text_completion"));
    cr_assert(eq(str, s.finish, "length"));
    cr_assert(not(s.finish_before_end));
    cr_assert(eq(str, s.model, "sim/v6e-8/fake"));
    cr_assert(eq(str, s.fingerprint, "assay-simulated/v6e-8"));
    cr_assert(eq(int, strncmp(s.id, "cmpl-", 5), 0));
    cr_assert(eq(sz, strlen(s.text), 20 * 4));
    cr_assert(eq(int, strncmp(s.text, " aaa aab aac", 12), 0), "%s", s.text);
    answer_free(&a);
    fixture_stop(&x);
    cr_assert(eq(i64, x.stats.completed, 1));
    cr_assert(eq(i64, x.stats.token_events, 20));
}

Test(backends_serve_http, streams_chat_with_role_and_usage_on_every_event) {
    static struct fixture x = {.fake = {.ttft_ns = MS, .tpot_ns = MS, .cached = 3}};
    fixture_start(&x);
    struct answer a =
        ask(&x, CHAT,
            "{\"messages\":[{\"role\":\"system\",\"content\":\"12345678\"},{\"content\":[{\"type\":"
            "\"text\",\"text\":\"123456789\"}],\"role\":\"user\"}],\"max_completion_tokens\":5,"
            "\"stream\":true,\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":"
            "true}}");
    cr_assert(eq(int, a.status, 200), "%s", a.body);
    struct stream s = read_stream(&a);
    cr_assert(eq(ptr, (void *)s.broken, NULL), "%s", s.broken);
    cr_assert(eq(str, s.object, "chat.completion.chunk"));
    cr_assert(eq(int, s.role_events, 1));
    cr_assert(eq(int, s.tokens_events, 5));
    cr_assert(eq(int, s.continuous, 7)); /* role, five tokens, finish */
    cr_assert(eq(int, s.usage_events, 1));
    cr_assert(eq(i64, s.prompt_tokens, 5)); /* 17 bytes */
    cr_assert(eq(i64, s.completion_tokens, 5));
    cr_assert(eq(i64, s.cached, 3));
    cr_assert(eq(int, s.done, 1));
    answer_free(&a);
    fixture_stop(&x);
}

Test(backends_serve_http, answers_whole_and_keeps_the_connection) {
    static struct fixture x = {
        .fake = {.ttft_ns = MS, .tpot_ns = MS, .cached = -1, .per_event = 3}};
    fixture_start(&x);
    static struct reader r;
    r.fd = dial(&x);
    for (int i = 0; i < 6; i++) {
        bool chat = i & 1, stream = i & 2;
        char body[256];
        snprintf(body, sizeof body, "{%s,\"max_tokens\":7,\"stream\":%s}",
                 chat ? "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
                      : "\"prompt\":\"hi\"",
                 stream ? "true" : "false");
        post(r.fd, chat ? CHAT : COMPLETIONS, body);
        struct answer a = read_answer(&r);
        cr_assert(eq(int, a.status, 200));
        cr_assert(eq(ptr, (void *)a.broken, NULL), "%s", a.broken);
        if (stream) {
            struct stream s = read_stream(&a);
            cr_assert(eq(ptr, (void *)s.broken, NULL), "%s", s.broken);
            cr_assert(eq(int, s.tokens_events, 3)); /* 3 + 3 + 1 tokens */
            cr_assert(eq(sz, strlen(s.text), 28));
        } else {
            json_t *j = json_of(&a);
            json_t *c = json_array_get(json_object_get(j, "choices"), 0);
            json_t *text = chat ? json_object_get(json_object_get(c, "message"), "content")
                                : json_object_get(c, "text");
            cr_assert(eq(str, (char *)json_string_value(text), " aaa aab aac aad aae aaf aag"));
            cr_assert(
                eq(str, (char *)json_string_value(json_object_get(c, "finish_reason")), "length"));
            json_t *u = json_object_get(j, "usage");
            cr_assert(eq(i64, json_integer_value(json_object_get(u, "completion_tokens")), 7));
            cr_assert(eq(i64, json_integer_value(json_object_get(u, "prompt_tokens")), 1));
            json_decref(j);
        }
        answer_free(&a);
    }
    close(r.fd);
    fixture_stop(&x);
    cr_assert(eq(i64, x.stats.completed, 6));
}

/* No token may leave before its virtual time: the i-th not before ttft + i * tpot after the request
 * was sent, whatever the machine does. With speed 4 everything is due four times earlier. */
static void check_schedule(double speed, bool ahead) {
    static struct fixture x;
    x = (struct fixture){
        .fake = {.ttft_ns = 40 * MS, .tpot_ns = 20 * MS, .cached = -1, .ahead = ahead}};
    x.o.speed = speed;
    fixture_start(&x);
    int fd = dial(&x);
    char buf[8192], seen[65536] = "";
    int tokens = 0;
    int64_t sent = clock_now_ns();
    post(fd, COMPLETIONS, "{\"prompt\":\"x\",\"max_tokens\":8,\"stream\":true}");
    while (!strstr(seen, "[DONE]")) {
        ssize_t n = recv(fd, buf, sizeof buf - 1, 0);
        int64_t at = clock_now_ns() - sent;
        cr_assert(gt(i64, n, 0));
        buf[n] = '\0';
        strncat(seen, buf, sizeof seen - strlen(seen) - 1);
        int now = 0;
        for (const char *p = seen; (p = strstr(p, "\"text\":\" ")); p++)
            now++;
        for (; tokens < now; tokens++)
            cr_assert(ge(i64, at, (int64_t)((double)((40 + 20 * tokens) * MS) / speed) - 1));
    }
    cr_assert(eq(int, tokens, 8));
    close(fd);
    fixture_stop(&x);
    cr_assert(eq(int, x.rc, 0));
}

Test(backends_serve_http, never_sends_before_its_time) {
    check_schedule(1.0, false);
}

Test(backends_serve_http, scales_time) {
    check_schedule(4.0, false);
}

Test(backends_serve_http, holds_back_what_a_backend_recorded_ahead) {
    check_schedule(1.0, true);
}

Test(backends_serve_http, answers_errors_as_vllm_does) {
    static struct fixture x = {.fake = {.tpot_ns = MS, .reject_isl = 100, .cached = -1}};
    static const struct {
        const char *path, *body;
        int status;
        const char *type, *param, *message;
    } rows[] = {
        {COMPLETIONS, "", 400, "BadRequestError", NULL, "line 1 column 1 (byte 0): expected '{'"},
        {COMPLETIONS, "{\"prompt\":\"x\",\n \"max_tokens\" 5}", 400, "BadRequestError", NULL,
         "line 2 column 15 (byte 29): expected ':' after a member name, found '5'"},
        {COMPLETIONS, "{\"prompt\":\"x\",\"max_tokens\":\"5\"}", 400, "BadRequestError",
         "max_tokens", "max_tokens: expected an integer, found a string at line 1 column 28"},
        {COMPLETIONS, "{\"prompt\":\"x\",\"model\":\"gpt-4\"}", 404, "NotFoundError", "model",
         "the model 'gpt-4' does not exist"},
        {COMPLETIONS, "{\"prompt\":\"x\",\"n\":2}", 400, "BadRequestError", "n",
         "expected 1, found 2"},
        {CHAT, "{\"prompt\":\"x\"}", 400, "BadRequestError", "messages", "missing"},
        {"/v1/embeddings", "{}", 404, "NotFoundError", NULL, "no such path"},
        {"/health", "{}", 405, "Method Not Allowed", NULL, "GET"},
    };
    fixture_start(&x);
    static struct reader r;
    r.fd = dial(&x);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        post(r.fd, rows[i].path, rows[i].body);
        struct answer a = read_answer(&r);
        cr_assert(eq(int, a.status, rows[i].status), "row %zu: %s", i, a.body);
        json_t *j = json_of(&a), *o = json_object_get(j, "error");
        const char *param = json_string_value(json_object_get(o, "param"));
        cr_assert(
            eq(str, (char *)json_string_value(json_object_get(o, "type")), (char *)rows[i].type));
        cr_assert(eq(i64, json_integer_value(json_object_get(o, "code")), rows[i].status));
        cr_assert(eq(int, strcmp(param ? param : "-", rows[i].param ? rows[i].param : "-"), 0));
        cr_assert(ne(ptr, strstr(json_string_value(json_object_get(o, "message")), rows[i].message),
                     NULL),
                  "row %zu: %s", i, a.body);
        json_decref(j);
        answer_free(&a);
    }
    get(r.fd, CHAT);
    struct answer a = read_answer(&r);
    cr_assert(eq(int, a.status, 405));
    cr_assert(eq(str, (char *)header_of(&a, "Allow"), "POST"));
    answer_free(&a);
    close(r.fd);

    /* refused by the backend before anything was sent: a plain 400, streamed or not */
    char big[1024];
    for (int stream = 0; stream < 2; stream++) {
        snprintf(big, sizeof big, "{\"prompt\":\"%0500d\",\"stream\":%s}", 0,
                 stream ? "true" : "false");
        a = ask(&x, COMPLETIONS, big);
        cr_assert(eq(int, a.status, 400));
        cr_assert(ne(ptr, strstr(a.body, "125 tokens of input"), NULL), "%s", a.body);
        answer_free(&a);
    }
    fixture_stop(&x);
    cr_assert(eq(i64, x.stats.rejected, 2));
}

Test(backends_serve_http, reports_a_failure_inside_a_stream) {
    static struct fixture x = {.fake = {.tpot_ns = MS, .fail_after = 3, .cached = -1}};
    fixture_start(&x);
    struct answer a = ask(&x, COMPLETIONS, "{\"prompt\":\"x\",\"max_tokens\":9,\"stream\":true}");
    struct stream s = read_stream(&a);
    cr_assert(eq(int, a.status, 200));
    cr_assert(eq(ptr, (void *)a.broken, NULL));
    cr_assert(eq(ptr, (void *)s.broken, NULL), "%s", s.broken);
    cr_assert(eq(int, s.tokens_events, 3));
    cr_assert(eq(int, s.errors, 1));
    cr_assert(eq(str, s.error, "the backend failed the request: in_band_error"));
    cr_assert(eq(int, s.done, 1));
    answer_free(&a);
    a = ask(&x, COMPLETIONS, "{\"prompt\":\"x\",\"max_tokens\":9}");
    cr_assert(eq(int, a.status, 500));
    answer_free(&a);
    fixture_stop(&x);
    cr_assert(eq(i64, x.stats.failed, 2));
}

static void wait_for(const _Atomic int64_t *v, int64_t want) {
    for (int i = 0; i < 2000 && atomic_load(v) < want; i++)
        usleep(10000);
    cr_assert(ge(i64, atomic_load(v), want));
}

Test(backends_serve_http, cancels_when_the_client_leaves) {
    static struct fixture x = {.fake = {.ttft_ns = 3600000 * MS, .tpot_ns = MS, .cached = -1}};
    fixture_start(&x);
    int fd[4];
    for (int i = 0; i < 4; i++) {
        fd[i] = dial(&x);
        post(fd[i], i & 1 ? CHAT : COMPLETIONS,
             i == 0   ? "{\"prompt\":\"x\",\"stream\":true}"
             : i == 1 ? "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}],\"stream\":true}"
             : i == 2 ? "{\"prompt\":\"x\"}"
                      : "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}");
    }
    wait_for(&fake_submits, 4);
    for (int i = 0; i < 4; i++)
        close(fd[i]);
    wait_for(&fake_cancels, 4);
    struct answer a = ask(&x, "/health", NULL);
    cr_assert(eq(int, a.status, 200));
    answer_free(&a);
    fixture_stop(&x);
    cr_assert(eq(i64, x.stats.disconnected, 4));
    cr_assert(eq(i64, x.stats.completed, 0));
}

Test(backends_serve_http, ends_streams_with_an_error_when_stopped) {
    static struct fixture x = {.fake = {.tpot_ns = 3600000 * MS, .cached = -1}};
    fixture_start(&x);
    static struct reader r, whole;
    r.fd = dial(&x);
    whole.fd = dial(&x);
    post(r.fd, COMPLETIONS, "{\"prompt\":\"x\",\"stream\":true}");
    post(whole.fd, COMPLETIONS, "{\"prompt\":\"x\"}");
    wait_for(&fake_submits, 2);
    fixture_stop(&x);
    cr_assert(eq(int, x.rc, 0));
    struct answer a = read_answer(&r);
    struct stream s = read_stream(&a);
    cr_assert(eq(int, a.status, 200));
    cr_assert(eq(ptr, (void *)a.broken, NULL), "%s", a.broken);
    cr_assert(eq(str, s.error, "the server is shutting down"));
    cr_assert(eq(int, s.done, 1));
    answer_free(&a);
    a = read_answer(&whole);
    cr_assert(eq(int, a.status, 503));
    answer_free(&a);
    cr_assert(eq(int, next_byte(&r), -1)); /* and the socket is closed */
    close(r.fd);
    close(whole.fd);
}

Test(backends_serve_http, cuts_a_client_that_does_not_read) {
    static struct fixture x = {.fake = {.at_once = true, .cached = -1}};
    x.o.backlog_bytes = 100000;
    fixture_start(&x);
    int fd = dial(&x);
    post(fd, COMPLETIONS, "{\"prompt\":\"x\",\"max_tokens\":100000,\"stream\":true}");
    static struct reader r;
    r.fd = fd;
    struct answer a = read_answer(&r);
    cr_assert(ne(ptr, (void *)a.broken, NULL)); /* an end without the last chunk */
    answer_free(&a);
    close(fd);
    fixture_stop(&x);
    cr_assert(eq(i64, x.stats.dropped, 1));
}

Test(backends_serve_http, catches_up_with_a_client_that_reads_late) {
    enum { TOKENS = 30000 };
    static struct fixture x = {.fake = {.at_once = true, .cached = -1}};
    fixture_start(&x);
    static struct reader r;
    r.fd = dial(&x);
    char body[128];
    snprintf(body, sizeof body, "{\"prompt\":\"x\",\"max_tokens\":%d,\"stream\":true}", TOKENS);
    post(r.fd, COMPLETIONS, body);
    usleep(300000); /* long enough for the kernel's buffers to fill; correct without, too */
    struct answer a = read_answer(&r);
    cr_assert(eq(ptr, (void *)a.broken, NULL), "%s", a.broken);
    cr_assert(eq(int, a.chunks, TOKENS + 2));
    int n = 0; /* by hand: under AddressSanitizer each strstr looks at all that follows */
    static const char mark[] = "\"text\":\" ";
    for (size_t i = 0; i + sizeof mark < a.body_n; i++)
        n += a.body[i] == '"' && !memcmp(a.body + i, mark, sizeof mark - 1);
    cr_assert(eq(int, n, TOKENS));
    cr_assert(eq(str, a.body + a.body_n - 14, "data: [DONE]\n\n"));
    answer_free(&a);
    close(r.fd);
    fixture_stop(&x);
    cr_assert(eq(i64, x.stats.dropped, 0));
}

struct caller {
    const struct fixture *x;
    pthread_t thread;
    struct stream s;
    int status;
};

static void *call_main(void *ctx) {
    struct caller *c = ctx;
    struct answer a =
        ask(c->x, COMPLETIONS, "{\"prompt\":\"x\",\"max_tokens\":30,\"stream\":true}");
    c->status = a.broken ? -1 : a.status;
    c->s = read_stream(&a);
    answer_free(&a);
    return NULL;
}

Test(backends_serve_http, queues_what_a_busy_backend_does_not_take) {
    enum { CALLERS = 40 };
    static struct fixture x = {.fake = {.tpot_ns = MS / 2, .batch = 3, .cached = -1}};
    static struct caller c[CALLERS];
    fixture_start(&x);
    for (int i = 0; i < CALLERS; i++) {
        c[i].x = &x;
        cr_assert(eq(int, pthread_create(&c[i].thread, NULL, call_main, &c[i]), 0));
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(c[i].thread, NULL);
        cr_assert(eq(int, c[i].status, 200));
        cr_assert(eq(ptr, (void *)c[i].s.broken, NULL), "%s", c[i].s.broken);
        cr_assert(eq(int, c[i].s.tokens_events, 30));
        cr_assert(eq(int, c[i].s.done, 1));
    }
    fixture_stop(&x);
    cr_assert(eq(i64, x.stats.completed, CALLERS));
    cr_assert(eq(i64, x.stats.tokens, CALLERS * 30));
}

Test(backends_serve_http, reads_bodies_in_every_framing) {
    static struct fixture x = {.fake = {.tpot_ns = MS, .cached = -1}};
    fixture_start(&x);
    static struct reader r;
    r.fd = dial(&x);
    static const char pieces[] =
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
        "5\r\n{\"pro\r\n16\r\nmpt\":\"x\",\"max_tokens\":\r\n2\r\n4}\r\n0\r\n\r\n";
    for (size_t i = 0; i < sizeof pieces - 1; i += 7) {
        say(r.fd, pieces + i, sizeof pieces - 1 - i < 7 ? sizeof pieces - 1 - i : 7);
        usleep(1000);
    }
    struct answer a = read_answer(&r);
    cr_assert(eq(int, a.status, 200), "%s", a.body);
    cr_assert(ne(ptr, strstr(a.body, "\"completion_tokens\":4"), NULL));
    answer_free(&a);
    /* two requests in one segment */
    static const char two[] =
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 44\r\n\r\n"
        "{\"prompt\":\"x\",\"max_tokens\":2,\"stream\":true }"
        "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
    say(r.fd, two, sizeof two - 1);
    a = read_answer(&r);
    struct stream s = read_stream(&a);
    cr_assert(eq(int, s.tokens_events, 2));
    answer_free(&a);
    a = read_answer(&r);
    cr_assert(eq(int, a.status, 200));
    cr_assert(ne(ptr, strstr(a.body, "\"ok\""), NULL), "%s", a.body);
    answer_free(&a);
    close(r.fd);
    /* HTTP/1.0: no chunks, the connection's end is the body's */
    static const char old[] = "POST /v1/completions HTTP/1.0\r\nContent-Length: 44\r\n\r\n"
                              "{\"prompt\":\"x\",\"max_tokens\":2,\"stream\":true }";
    static struct reader o;
    o.fd = dial(&x);
    say(o.fd, old, sizeof old - 1);
    a = read_answer(&o);
    cr_assert(a.closed);
    s = read_stream(&a);
    cr_assert(eq(ptr, (void *)s.broken, NULL), "%s", a.body);
    cr_assert(eq(int, s.tokens_events, 2));
    cr_assert(eq(int, s.done, 1));
    answer_free(&a);
    close(o.fd);
    /* a body over the limit is refused by its announced length */
    static const char huge[] =
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 33554433\r\n\r\n";
    o = (struct reader){.fd = dial(&x)};
    say(o.fd, huge, sizeof huge - 1);
    a = read_answer(&o);
    cr_assert(eq(int, a.status, 413));
    answer_free(&a);
    close(o.fd);
    fixture_stop(&x);
}

Test(backends_serve_http, needs_a_virtual_clock_and_a_free_port) {
    static struct fixture x, y;
    static struct backend_ops real;
    real = fake_ops;
    real.caps = BACKEND_SERVING;
    x.o.ops = &real;
    x.o.backend_options = &x.fake;
    fixture_start(&x);
    fixture_stop(&x);
    cr_assert(eq(int, x.rc, ASSAY_EUSAGE));
    cr_assert(eq(str, x.e.text,
                 "cannot serve backend 'fake': it takes no requests under a virtual clock"));
    x = (struct fixture){0};
    fixture_start(&x);
    y.o.port = x.port;
    fixture_start(&y);
    fixture_stop(&y);
    cr_assert(eq(int, y.rc, ASSAY_EENV));
    fixture_stop(&x);
    y = (struct fixture){.o.bind = "localhost"};
    fixture_start(&y);
    fixture_stop(&y);
    cr_assert(eq(int, y.rc, ASSAY_EUSAGE));
}

Test(backends_serve_http, serves_the_null_backend) {
    static struct fixture x;
    struct arena arena = {0};
    void *options = arena_alloc(&arena, 1, backend_null.options_size);
    options_defaults(backend_null.options, options, &arena);
    x.o.ops = &backend_null;
    x.o.backend_options = options;
    fixture_start(&x);
    struct answer a = ask(&x, COMPLETIONS, "{\"prompt\":\"x\",\"max_tokens\":9,\"stream\":true}");
    struct stream s = read_stream(&a);
    cr_assert(eq(int, a.status, 200));
    cr_assert(eq(str, (char *)header_of(&a, "X-Assay-Class"), "none"));
    cr_assert(eq(str, s.model, "none/null"));
    cr_assert(eq(sz, strlen(s.text), 36));
    cr_assert(eq(str, s.finish, "length"));
    answer_free(&a);
    fixture_stop(&x);
    arena_release(&arena);
    cr_assert(eq(int, x.rc, 0), "%s", x.e.text);
}

static struct workload *llama(int isl, int osl) {
    struct workload *w = NULL;
    struct err e = {0};
    json_t *j =
        json_pack("{s:s,s:s,s:s,s:s,s:i,s:i,s:i}", "name", "t", "kind", "serving", "model",
                  "llama3.1-8b", "pattern", "concurrency:1", "requests", 1, "isl", isl, "osl", osl);
    cr_assert(eq(int, workload_from_json(j, "t", &w, &e), 0), "%s", e.text);
    json_decref(j);
    return w;
}

static void *simulator(struct arena *a, const char *const *pairs, int n) {
    struct err e = {0};
    void *options = arena_alloc(a, 1, backend_tpu_sim.options_size);
    options_defaults(backend_tpu_sim.options, options, a);
    for (int i = 0; i < n; i++)
        cr_assert(
            eq(int, options_set_pair(backend_tpu_sim.options, options, pairs[i], "-o", a, &e), 0),
            "%s", e.text);
    return options;
}

/* A chat through HTTP re-uses the simulator's prefix cache: the second turn, which begins with the
 * first and its answer, has cached tokens; a stranger has none. */
Test(backends_serve_http, lets_the_simulator_cache_a_conversation) {
    static const char *const pairs[] = {"chip=v6e", "chips=1", "prefix_cache=on"};
    static struct fixture x;
    static char body[16384], answer[2048];
    struct arena arena = {0};
    struct workload *w = llama(2000, 200);
    x.o.ops = &backend_tpu_sim;
    x.o.backend_options = simulator(&arena, pairs, 3);
    x.o.sessions = true;
    x.o.speed = 50;
    fixture_start_with(&x, w);
    int64_t cached[3];
    for (int turn = 0; turn < 3; turn++) {
        snprintf(body, sizeof body,
                 "{\"max_tokens\":200,\"messages\":[{\"role\":\"user\",\"content\":\"%s%04000d\"}%"
                 "s%s%s]}",
                 turn == 2 ? "other" : "", 5, turn ? ",{\"role\":\"assistant\",\"content\":\"" : "",
                 turn ? answer : "",
                 turn ? "\"},{\"role\":\"user\",\"content\":\"go on please\"}" : "");
        struct answer a = ask(&x, CHAT, body);
        cr_assert(eq(int, a.status, 200), "%s", a.body);
        json_t *j = json_of(&a), *u = json_object_get(j, "usage");
        cached[turn] = json_integer_value(
            json_object_get(json_object_get(u, "prompt_tokens_details"), "cached_tokens"));
        json_t *c = json_array_get(json_object_get(j, "choices"), 0);
        snprintf(answer, sizeof answer, "%s",
                 json_string_value(json_object_get(json_object_get(c, "message"), "content")));
        json_decref(j);
        answer_free(&a);
    }
    fixture_stop(&x);
    workload_free(w);
    arena_release(&arena);
    cr_assert(eq(i64, cached[0], 0));
    cr_assert(ge(i64, cached[1], 1024)); /* of 1000 + 200 tokens, in whole blocks of the engine's */
    cr_assert(le(i64, cached[1], 1200));
    cr_assert(eq(i64, cached[2], 0));
}

/* The simulator's own schedule, taken straight from the backend in virtual time, bounds what the
 * endpoint may send: no token earlier than its due time. */
Test(backends_serve_http, serves_the_simulator_by_its_schedule) {
    enum { TOKENS = 12 };
    static struct fixture x;
    static struct event_block block;
    struct arena arena = {0};
    struct err e = {0};
    static const char *const pairs[] = {"chip=v6e", "chips=1"};
    struct workload *w = llama(1000, TOKENS);
    void *options = simulator(&arena, pairs, 2);

    struct event_sink sink = {.block = &block};
    struct backend_open_args args = {.workload = w, .options = options, .sink = &sink, .shards = 1};
    struct backend *b = NULL;
    struct completion c;
    int n = 0;
    volatile int never = 0;
    struct request r = {.session = REQUEST_NO_SESSION,
                        .last_turn = true,
                        .isl = 1000,
                        .osl = TOKENS,
                        .arrival_ns = -1};
    cr_assert(eq(int, backend_tpu_sim.open(&args, &b, &e), 0), "%s", e.text);
    cr_assert(ge(int, backend_tpu_sim.submit(b, &r, &c, &e), 0));
    while (n == 0)
        cr_assert(eq(int, backend_tpu_sim.wait(b, INT64_MAX, &c, 1, &n, &never, &e), 0));
    int64_t due[TOKENS];
    int events = 0;
    for (uint32_t i = 0; i < block.n; i++)
        if (block.kind[i] == EVENT_TOKENS && events < TOKENS)
            due[events++] = block.time_ns[i];
    cr_assert(eq(int, events, TOKENS));
    backend_tpu_sim.close(b);

    x.o.ops = &backend_tpu_sim;
    x.o.backend_options = options;
    fixture_start_with(&x, w);
    char ids[2 * 999 + 1], body[8192], got[32768];
    for (size_t i = 0; i + 1 < sizeof ids; i++)
        ids[i] = i % 2 ? '7' : ',';
    ids[sizeof ids - 1] = '\0';
    snprintf(body, sizeof body,
             "{\"prompt\":[0%s],\"max_tokens\":12,\"stream\":true,"
             "\"stream_options\":{\"include_usage\":true}}",
             ids);
    size_t at = 0;
    int tokens = 0, fd = dial(&x);
    int64_t sent = clock_now_ns();
    post(fd, COMPLETIONS, body);
    while (!memmem(got, at, "[DONE]", 6)) {
        ssize_t k = recv(fd, got + at, sizeof got - 1 - at, 0);
        int64_t now = clock_now_ns() - sent;
        cr_assert(gt(i64, k, 0));
        at += (size_t)k;
        got[at] = '\0';
        int seen = 0;
        for (const char *p = got; (p = strstr(p, "\"text\":\" ")); p++)
            seen++;
        for (; tokens < seen; tokens++)
            cr_assert(ge(i64, now, due[tokens]));
    }
    cr_assert(eq(int, tokens, TOKENS));
    cr_assert(ne(ptr, strstr(got, "\r\nX-Assay-Class: simulated\r\n"), NULL));
    cr_assert(ne(ptr, strstr(got, "\"model\":\"sim/v6e-1/llama3.1-8b\""), NULL));
    cr_assert(ne(ptr, strstr(got, "\"prompt_tokens\":1000,"), NULL));
    close(fd);
    fixture_stop(&x);
    workload_free(w);
    arena_release(&arena);
}

/* ---- libcurl, as a client that was not written here ---- */

static size_t collect(char *p, size_t size, size_t n, void *ctx) {
    struct answer *a = ctx;
    a->body = realloc(a->body, a->body_n + size * n + 1);
    memcpy(a->body + a->body_n, p, size * n);
    a->body_n += size * n;
    a->body[a->body_n] = '\0';
    a->chunks++;
    return size * n;
}

Test(backends_serve_http, satisfies_libcurl) {
    static struct fixture x = {.fake = {.ttft_ns = MS, .tpot_ns = MS, .cached = -1}};
    fixture_start(&x);
    CURL *c = curl_easy_init();
    char url[128];
    snprintf(url, sizeof url, "http://127.0.0.1:%u/v1/chat/completions", x.port);
    struct curl_slist *h = curl_slist_append(NULL, "Content-Type: application/json");
    h = curl_slist_append(h, "Expect: 100-continue");
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, h);
    curl_easy_setopt(
        c, CURLOPT_POSTFIELDS,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":25,\"stream\":"
        "true,\"stream_options\":{\"include_usage\":true}}");
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, collect);
    for (int i = 0; i < 3; i++) {
        struct answer a = {0};
        long status, connects;
        curl_easy_setopt(c, CURLOPT_WRITEDATA, &a);
        cr_assert(eq(int, curl_easy_perform(c), CURLE_OK));
        curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
        curl_easy_getinfo(c, CURLINFO_NUM_CONNECTS, &connects);
        cr_assert(eq(long, status, 200L));
        cr_assert(eq(long, connects, i ? 0L : 1L)); /* the connection is kept */
        struct stream s = read_stream(&a);
        cr_assert(eq(ptr, (void *)s.broken, NULL), "%s", s.broken);
        cr_assert(eq(int, s.tokens_events, 25));
        cr_assert(eq(i64, s.completion_tokens, 25));
        cr_assert(eq(i64, s.cached, -1));
        answer_free(&a);
    }
    curl_slist_free_all(h);
    curl_easy_cleanup(c);
    fixture_stop(&x);
}
