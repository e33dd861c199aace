/* Connections that cannot be made, and https: a libmicrohttpd server with a self-signed certificate
 * for 127.0.0.1 (tests/data/http, made for this test, secret of nothing). */
#include "harness/core/buf.h"
#include "harness/core/clock.h"
#include "tests/backends/http_fixture.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct mock_step good[] = {
    {MOCK_HEAD, NULL, 0},      {MOCK_EVENT, "{\"choices\":[{\"text\":\"a\"}]}", 0},
    {MOCK_EVENT, "[DONE]", 0}, {MOCK_LAST, NULL, 0},
    {MOCK_END, NULL, 0},
};
static const struct mock_step *const good_replies[] = {good, NULL};

/* Opens against a server that is gone afterwards; returns its port. */
static int open_and_lose(struct fixture *f, const char *const *options) {
    fixture_start(f, &(struct mock_config){.replies = good_replies}, options);
    int port = mock_port(f->server);
    mock_stop(f->server);
    f->server = NULL;
    return port;
}

Test(backends_http_connect, refused, .timeout = 20) {
    static struct fixture f;
    open_and_lose(&f, (const char *const[]){"reuse=off", NULL});
    struct completion c = fixture_run(&f, 0, 1);
    cr_assert(eq(i32, c.fail_class, FAIL_CONNECT));
    cr_assert(zero(int, fixture_count(&f, EVENT_SENT, 0)));
    cr_assert(eq(i64, f.block.b[fixture_event(&f, EVENT_FAIL, 0, 0)], 0));
    fixture_stop(&f);
}

/* A listener whose queue is full drops further SYNs. */
Test(backends_http_connect, timeout, .timeout = 20) {
    static struct fixture f;
    int port = open_and_lose(&f, (const char *const[]){"reuse=off", "timeout_connect=200ms", NULL});
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), filler[8];
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    cr_assert(zero(int, bind(fd, (struct sockaddr *)&a, sizeof a)));
    cr_assert(zero(int, listen(fd, 0)));
    for (int i = 0; i < 8; i++) {
        filler[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)!connect(filler[i], (struct sockaddr *)&a, sizeof a);
    }
    cr_assert(eq(i32, fixture_run(&f, 0, 1).fail_class, FAIL_TIMEOUT_CONNECT));
    fixture_stop(&f);
    for (int i = 0; i < 8; i++)
        close(filler[i]);
    close(fd);
}

/* ---- https ---- */

#define SSE_BODY                                                                                   \
    "data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"choices\":[{\"text\":\"b\"}]}\n\n"         \
    "data: {\"choices\":[],\"usage\":{\"completion_tokens\":2}}\n\ndata: [DONE]\n\n"

static enum MHD_Result answer(void *ctx, struct MHD_Connection *c, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_bytes, void **state) {
    (void)ctx, (void)version, (void)upload, (void)url;
    bool post = !strcmp(method, "POST");
    if (post && (!*state || *upload_bytes)) {
        *upload_bytes = 0;
        *state = c;
        return MHD_YES;
    }
    static char events[] = SSE_BODY, models[] = "{\"data\":[{\"id\":\"tls\"}]}";
    char *text = post ? events : models;
    struct MHD_Response *r =
        MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_PERSISTENT);
    MHD_add_response_header(r, "Content-Type", post ? "text/event-stream" : "application/json");
    enum MHD_Result rc = MHD_queue_response(c, 200, r);
    MHD_destroy_response(r);
    return rc;
}

static _Atomic int64_t answered_ns; /* when the last answer had been written */

static void answered(void *ctx, struct MHD_Connection *c, void **state,
                     enum MHD_RequestTerminationCode how) {
    (void)ctx, (void)c, (void)state;
    if (how == MHD_REQUEST_TERMINATED_COMPLETED_OK)
        answered_ns = clock_now_ns();
}

static struct MHD_Daemon *start_tls(int *port) {
    struct buf key, cert;
    struct err e = {0};
    cr_assert(zero(int, buf_read_file(&key, "tests/data/http/key.pem", 65536, &e)), "%s", e.text);
    cr_assert(zero(int, buf_read_file(&cert, "tests/data/http/cert.pem", 65536, &e)), "%s", e.text);
    struct MHD_Daemon *d =
        MHD_start_daemon(MHD_USE_TLS | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, answer, NULL,
                         MHD_OPTION_HTTPS_MEM_KEY, key.p, MHD_OPTION_HTTPS_MEM_CERT, cert.p,
                         MHD_OPTION_NOTIFY_COMPLETED, answered, NULL,
                         MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u, MHD_OPTION_END);
    cr_assert(ne(ptr, d, NULL));
    *port = MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT)->port;
    buf_release(&key);
    buf_release(&cert);
    return d;
}

static int open_tls(struct fixture *f, int port, const char *option) {
    char url[64];
    snprintf(url, sizeof url, "url=https://127.0.0.1:%d", port);
    return fixture_open(f, (const char *const[]){url, "reuse=off", option, NULL});
}

Test(backends_http_connect, https, .timeout = 30) {
    static const char *const ways[] = {"ca_file=tests/data/http/cert.pem", "tls_verify=off"};
    int port;
    struct MHD_Daemon *d = start_tls(&port);
    for (int i = 0; i < 2; i++) {
        static struct fixture f;
        f = (struct fixture){0};
        cr_assert(zero(int, open_tls(&f, port, ways[i])), "%s", f.err.text);
        struct completion c = fixture_run(&f, 0, 2);
        cr_assert(eq(i32, c.fail_class, FAIL_NONE));
        cr_assert(eq(u32, c.output_tokens, 2));
        cr_assert(eq(int, fixture_count(&f, EVENT_TOKENS, 0), 2));
        cr_assert(eq(int, fixture_count(&f, EVENT_SENT, 0), 1));
        fixture_stop(&f);
    }
    MHD_stop_daemon(d);
}

/* An answer that was written while the client did other things: the bounds say how long it lay there. */
Test(backends_http_connect, https_bounds_cover_what_a_busy_client_missed, .timeout = 60) {
    static struct fixture f;
    int port, covered = 0;
    struct MHD_Daemon *d = start_tls(&port);
    cr_assert(zero(int, open_tls(&f, port, "tls_verify=off")), "%s", f.err.text);
    for (uint64_t id = 0; id < 50 && covered < 4; id++) {
        struct busy busy = {0};
        struct request r = fixture_request(id, 4, 2);
        answered_ns = 0;
        cr_assert(eq(int, fixture_submit(&f, &r), SUBMIT_QUEUED), "%s", f.err.text);
        fixture_run_busy(&f, 1, &busy);
        cr_assert(eq(int, fixture_count(&f, EVENT_TOKENS, id), 2));
        int64_t written_ns = answered_ns;
        for (int k = 0; k < 2 && written_ns; k++)
            covered += fixture_check_bound(&f, &busy, fixture_event(&f, EVENT_TOKENS, id, k), written_ns);
    }
    cr_assert(ge(int, covered, 4));
    fixture_stop(&f);
    MHD_stop_daemon(d);
}

Test(backends_http_connect, https_unknown_certificate, .timeout = 30) {
    static struct fixture f;
    int port;
    struct MHD_Daemon *d = start_tls(&port);
    cr_assert(eq(int, open_tls(&f, port, "stream=on"), ASSAY_EENV));
    cr_assert(ne(ptr, (void *)strstr(f.err.text, "certificate"), NULL), "%s", f.err.text);
    fixture_stop(&f);
    MHD_stop_daemon(d);
}

/* A server that stops speaking TLS under the run. */
Test(backends_http_connect, tls_failure, .timeout = 30) {
    static const struct mock_step hang[] = {{MOCK_CLOSE, NULL, 0}, {MOCK_END, NULL, 0}};
    static const struct mock_step *const replies[] = {hang, NULL};
    static struct fixture f;
    int port;
    struct MHD_Daemon *d = start_tls(&port);
    cr_assert(zero(int, open_tls(&f, port, "tls_verify=off")), "%s", f.err.text);
    MHD_stop_daemon(d);
    f.server = mock_start(
        &(struct mock_config){.replies = replies, .port = port, .speak_first = "hello\r\n"});
    cr_assert(eq(i32, fixture_run(&f, 0, 2).fail_class, FAIL_TLS));
    fixture_stop(&f);
}
