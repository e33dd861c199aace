/* What the endpoint says of itself at open: reachability, models, result class; and what becomes of
 * an endpoint that changes its story. */
#include "tests/backends/http_fixture.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TEXT(s) "{\"choices\":[{\"index\":0,\"text\":\"" s "\",\"finish_reason\":null}]}"
#define REPLY(name, ...) static const struct mock_step name[] = {__VA_ARGS__, {MOCK_END, NULL, 0}}
REPLY(good, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
static const struct mock_step *const good_replies[] = {good, NULL};

static bool says(const struct fixture *f, const char *text) {
    return strstr(f->err.text, text) != NULL;
}

/* ---- bad addresses ---- */

Test(backends_http_endpoint, wrong_urls, .timeout = 20) {
    static const struct {
        const char *option, *says;
    } rows[] = {
        {"url=ftp://127.0.0.1:1", "expected scheme http or https, found 'ftp'"},
        {"url=http://", "not a URL"},
        {"url=", "not a URL"},
        {"url=http://a b", "not a URL"},
        {"url=http://127.0.0.1:99999", "not a URL"},
        {"url=http://me:secret@127.0.0.1:1", "credentials"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fixture *f = calloc(1, sizeof *f);
        cr_assert(
            eq(int, fixture_open(f, (const char *const[]){rows[i].option, NULL}), ASSAY_EUSAGE),
            "%s: %s", rows[i].option, f->err.text);
        cr_assert(says(f, rows[i].says), "%s: %s", rows[i].option, f->err.text);
        cr_assert(not(says(f, "secret")));
        fixture_stop(f);
        free(f);
    }
}

Test(backends_http_endpoint, no_url, .timeout = 20) {
    static struct fixture f;
    cr_assert(eq(int, fixture_open(&f, NULL), ASSAY_EUSAGE));
    fixture_stop(&f);
}

static int closed_port(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert(zero(int, bind(fd, (struct sockaddr *)&a, sizeof a)));
    cr_assert(zero(int, getsockname(fd, (struct sockaddr *)&a, &n)));
    close(fd);
    return ntohs(a.sin_port);
}

Test(backends_http_endpoint, unreachable, .timeout = 20) {
    static struct fixture f;
    char url[64];
    snprintf(url, sizeof url, "url=http://127.0.0.1:%d", closed_port());
    cr_assert(eq(int, fixture_open(&f, (const char *const[]){url, NULL}), ASSAY_EENV));
    cr_assert(says(&f, "cannot reach"), "%s", f.err.text);
    cr_assert(eq(ptr, f.backend, NULL));
    fixture_stop(&f);
}

Test(backends_http_endpoint, unknown_host, .timeout = 20) {
    static struct fixture f;
    cr_assert(
        eq(int, fixture_open(&f, (const char *const[]){"url=http://no-such-host.invalid:80", NULL}),
           ASSAY_EENV));
    cr_assert(says(&f, "cannot resolve host 'no-such-host.invalid'"), "%s", f.err.text);
    fixture_stop(&f);
}

Test(backends_http_endpoint, https_to_a_plain_server, .timeout = 20) {
    static struct fixture f;
    char url[64];
    f.server = mock_start(&(struct mock_config){.replies = good_replies});
    snprintf(url, sizeof url, "url=https://127.0.0.1:%d", mock_port(f.server));
    cr_assert(eq(int, fixture_open(&f, (const char *const[]){url, "timeout_connect=300ms", NULL}),
                 ASSAY_EENV));
    fixture_stop(&f);
}

Test(backends_http_endpoint, accepts_and_never_answers, .timeout = 20) {
    static struct fixture f;
    f.server = mock_start(&(struct mock_config){.hang_models = 1});
    cr_assert(eq(int, fixture_open(&f, (const char *const[]){"timeout_connect=100ms", NULL}),
                 ASSAY_EENV));
    cr_assert(says(&f, "did not answer"), "%s", f.err.text);
    fixture_stop(&f);
}

Test(backends_http_endpoint, answers_that_forbid_a_run, .timeout = 20) {
    static const struct {
        const char *status, *headers, *says;
    } rows[] = {
        {"401 Unauthorized", NULL, "refuses the key"},
        {"503 Loading", NULL, "not ready (HTTP 503)"},
        {"301 Moved", "Location: http://elsewhere/v1/models\r\n",
         "redirects (HTTP 301) to 'http://elsewhere/v1/models'"},
        {"200 OK", "X-Assay-Class: splendid\r\n", "result class 'splendid'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fixture *f = calloc(1, sizeof *f);
        f->server = mock_start(&(struct mock_config){.models_status = rows[i].status,
                                                     .models_headers = rows[i].headers});
        cr_assert(eq(int, fixture_open(f, NULL), ASSAY_EENV));
        cr_assert(says(f, rows[i].says), "%s", f->err.text);
        fixture_stop(f);
        free(f);
    }
}

Test(backends_http_endpoint, missing_keys, .timeout = 20) {
    static const struct {
        const char *option;
        int rc;
    } rows[] = {{"api_key_env=ASSAY_TEST_NO_SUCH_KEY", ASSAY_EENV},
                {"api_key_file=/no/such/file", ASSAY_EENV},
                {"header=nonsense", ASSAY_EUSAGE}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fixture *f = calloc(1, sizeof *f);
        f->server = mock_start(&(struct mock_config){0});
        cr_assert(eq(int, fixture_open(f, (const char *const[]){rows[i].option, NULL}), rows[i].rc),
                  "%s", f->err.text);
        fixture_stop(f);
        free(f);
    }
}

/* ---- paths and models ---- */

Test(backends_http_endpoint, paths, .timeout = 20) {
    static const struct {
        const char *suffix, *api, *want;
    } rows[] = {
        {"", "api=completions", "POST /v1/completions HTTP/1.1"},
        {"/", "api=chat", "POST /v1/chat/completions HTTP/1.1"},
        {"/v1", "api=chat", "POST /v1/chat/completions HTTP/1.1"},
        {"/v1/", "api=completions", "POST /v1/completions HTTP/1.1"},
        {"/openai", "api=completions", "POST /openai/v1/completions HTTP/1.1"},
        {"/deep/chat/completions?api-version=1", "api=chat",
         "POST /deep/chat/completions?api-version=1 HTTP/1.1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fixture *f = calloc(1, sizeof *f);
        char url[128];
        f->server = mock_start(&(struct mock_config){.replies = good_replies});
        snprintf(url, sizeof url, "url=http://localhost:%d%s", mock_port(f->server),
                 rows[i].suffix);
        cr_assert(zero(int, fixture_open(f, (const char *const[]){url, rows[i].api, NULL})), "%s",
                  f->err.text);
        fixture_run(f, 0, 1);
        cr_assert(zero(int, strncmp(mock_post(f->server, 0), rows[i].want, strlen(rows[i].want))),
                  "%s", mock_post(f->server, 0));
        fixture_stop(f);
        free(f);
    }
}

Test(backends_http_endpoint, request_headers, .timeout = 20) {
    static struct fixture f;
    static const char *const options[] = {"header=X-One: 1\nX-Two: 2", NULL};
    fixture_start(&f, &(struct mock_config){.replies = good_replies}, options);
    fixture_run(&f, 0, 1);
    const char *p = mock_post(f.server, 0);
    static const char *const want[] = {"\r\nX-One: 1\r\n", "\r\nX-Two: 2\r\n",
                                       "\r\nContent-Type: application/json\r\n",
                                       "\r\nUser-Agent: assay/"};
    static const char *const unwanted[] = {"\r\nExpect", "\r\nAccept-Encoding", "\r\nAuthorization",
                                           "Transfer-Encoding"};
    for (size_t i = 0; i < 4; i++) {
        cr_assert(ne(ptr, (void *)strcasestr(p, want[i]), NULL), "%s", want[i]);
        cr_assert(eq(ptr, (void *)strcasestr(p, unwanted[i]), NULL), "%s", unwanted[i]);
    }
    fixture_stop(&f);
}

static void expect_model(const char *models, const char *status, const char *option,
                         const char *planned, int rc, const char *want) {
    struct fixture *f = calloc(1, sizeof *f);
    if (planned) {
        f->workload.has_model = true;
        snprintf(f->workload.model.name, sizeof f->workload.model.name, "%s", planned);
    }
    f->server = mock_start(&(struct mock_config){.models = models, .models_status = status});
    cr_assert(
        eq(int, fixture_open(f, (const char *const[]){option ? option : "stream=on", NULL}), rc),
        "%s", f->err.text);
    if (!rc) {
        struct backend_info info;
        cr_assert(zero(int, backend_http.describe(f->backend, &info, &f->err)));
        cr_assert(eq(str, info.model_id, (char *)want));
        json_decref(info.details);
    }
    fixture_stop(f);
    free(f);
}

Test(backends_http_endpoint, model_choice, .timeout = 30) {
    const char *two = "{\"data\":[{\"id\":\"one\"},{\"id\":\"two\"}]}";
    expect_model(two, NULL, NULL, NULL, 0, "one");
    expect_model(two, NULL, NULL, "two", 0, "two");
    expect_model(two, NULL, NULL, "three", 0, "one");
    expect_model(two, NULL, "model=four", "two", 0, "four");
    expect_model("not found", "404 Not Found", NULL, "planned", 0, "planned");
    expect_model("not found", "404 Not Found", NULL, NULL, ASSAY_EUSAGE, NULL);
    expect_model("{\"data\":[]}", NULL, NULL, NULL, ASSAY_EUSAGE, NULL);
    expect_model("{\"data\":[{\"id\":5},{},null]}", NULL, NULL, NULL, ASSAY_EUSAGE, NULL);
    expect_model("<html>", NULL, "model=m", NULL, 0, "m");
}

/* ---- the result class ---- */

static struct backend_info classify(const char *models, const char *headers) {
    struct fixture *f = calloc(1, sizeof *f);
    struct backend_info info;
    fixture_start(f, &(struct mock_config){.models = models, .models_headers = headers}, NULL);
    cr_assert(zero(int, backend_http.describe(f->backend, &info, &f->err)));
    fixture_stop(f);
    free(f);
    return info;
}

Test(backends_http_endpoint, class_measured_by_default, .timeout = 20) {
    struct backend_info i = classify(NULL, NULL);
    cr_assert(eq(int, i.result_class, CLASS_MEASURED));
    cr_assert(eq(str, i.chip, ""));
    cr_assert(zero(i64, i.chips));
    cr_assert(not(i.virtual_clock));
    json_decref(i.details);
}

Test(backends_http_endpoint, class_from_the_header, .timeout = 20) {
    struct backend_info i =
        classify(NULL, "X-Assay-Class: simulated\r\nX-Assay-Chip: v6e;chips=8;sha256=abc123\r\n");
    cr_assert(eq(int, i.result_class, CLASS_SIMULATED));
    cr_assert(eq(str, i.chip, "v6e"));
    cr_assert(eq(i64, i.chips, 8));
    cr_assert(
        eq(str, (char *)json_string_value(json_object_get(i.details, "chip_sha256")), "abc123"));
    json_decref(i.details);
}

Test(backends_http_endpoint, class_from_the_model, .timeout = 20) {
    struct backend_info i = classify("{\"data\":[{\"id\":\"sim/v6e-8/llama3.1-70b\"}]}", NULL);
    cr_assert(eq(int, i.result_class, CLASS_SIMULATED));
    cr_assert(eq(str, i.chip, "v6e"));
    cr_assert(eq(i64, i.chips, 8));
    cr_assert(eq(str, i.model_id, "sim/v6e-8/llama3.1-70b"));
    json_decref(i.details);
}

Test(backends_http_endpoint, header_cannot_strengthen_a_simulated_model, .timeout = 20) {
    struct backend_info i =
        classify("{\"data\":[{\"id\":\"sim/v6e-8/x\"}]}", "x-assay-class: measured\r\n");
    cr_assert(eq(int, i.result_class, CLASS_SIMULATED));
    json_decref(i.details);
    i = classify("{\"data\":[{\"id\":\"sim/v6e-8/x\"}]}", "X-Assay-Class: none\r\n");
    cr_assert(eq(int, i.result_class, CLASS_NONE));
    json_decref(i.details);
}

static void expect_lie(const struct mock_step *steps, const char *headers, const char *want) {
    struct fixture *f = calloc(1, sizeof *f);
    const struct mock_step *const replies[] = {good, steps, NULL};
    const struct mock_config c = {.replies = replies, .models_headers = headers};
    fixture_start(f, &c, NULL);
    fixture_run(f, 0, 1);
    struct request r = fixture_request(1, 4, 1);
    struct completion done;
    cr_assert(eq(int, fixture_submit(f, &r), SUBMIT_QUEUED));
    int rc = fixture_wait(f, &done, 1);
    /* the completion may come first; then the next call says so */
    if (!rc) {
        int n;
        rc = backend_http.wait(f->backend, INT64_MAX, &done, 1, &n, &f->stop, &f->err);
    }
    if (want) {
        cr_assert(eq(int, rc, ASSAY_EENV));
        cr_assert(says(f, want), "%s", f->err.text);
        cr_assert(eq(int, fixture_submit(f, &r), ASSAY_EENV));
    } else {
        cr_assert(zero(int, rc), "%s", f->err.text);
    }
    fixture_stop(f);
    free(f);
}

Test(backends_http_endpoint, a_weaker_class_later_ends_the_run, .timeout = 30) {
    REPLY(by_header, {MOCK_HEAD, "X-Assay-Class: simulated\r\n"}, {MOCK_EVENT, TEXT("a")},
          {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    REPLY(by_unknown, {MOCK_HEAD, "X-Assay-Class: great\r\n"}, {MOCK_EVENT, TEXT("a")},
          {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    REPLY(by_fingerprint, {MOCK_HEAD},
          {MOCK_EVENT, "{\"system_fingerprint\":\"assay-sim/v6e\",\"choices\":[{\"text\":\"a\"}]}"},
          {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    REPLY(on_error, {MOCK_SEND,
                     "HTTP/1.1 503 Busy\r\nX-Assay-Class: projected\r\nContent-Length: 0\r\n\r\n"});
    expect_lie(by_header, NULL,
               "said class 'measured' when the run began and now says 'simulated'");
    expect_lie(by_unknown, NULL, "now says 'none'");
    expect_lie(by_fingerprint, NULL, "now says 'simulated'");
    expect_lie(on_error, "X-Assay-Class: simulated\r\n", "now says 'projected'");
    expect_lie(by_header, "X-Assay-Class: simulated\r\n", NULL);
    expect_lie(by_header, "X-Assay-Class: projected\r\n", NULL);
}

/* ---- the options ---- */

Test(backends_http_endpoint, secrets_are_not_described, .timeout = 20) {
    static struct fixture f;
    setenv("ASSAY_TEST_KEY", "sk-hidden", 1);
    static const char *const options[] = {"api_key_env=ASSAY_TEST_KEY",
                                          "header=X-Token: hidden-too", NULL};
    fixture_start(&f, &(struct mock_config){.replies = good_replies}, options);
    fixture_run(&f, 0, 1);
    struct backend_info info;
    cr_assert(zero(int, backend_http.describe(f.backend, &info, &f.err)));
    char *text = json_dumps(info.details, 0);
    cr_assert(eq(ptr, (void *)strstr(text, "hidden"), NULL), "%s", text);
    free(text);
    json_decref(info.details);
    fixture_stop(&f);
}

Test(backends_http_endpoint, unix_socket, .timeout = 20) {
    char dir[] = "/tmp/assay-test-XXXXXX", path[64], option[96];
    cr_assert(ne(ptr, mkdtemp(dir), NULL));
    snprintf(path, sizeof path, "%s/s", dir);
    snprintf(option, sizeof option, "unix_socket=%s", path);
    static struct fixture f;
    f.server = mock_start(&(struct mock_config){.replies = good_replies, .unix_path = path});
    cr_assert(
        zero(int, fixture_open(&f, (const char *const[]){"url=http://anything", option, NULL})),
        "%s", f.err.text);
    cr_assert(eq(i32, fixture_run(&f, 0, 1).fail_class, FAIL_NONE));
    fixture_stop(&f);
    unlink(path);
    rmdir(dir);
}

Test(backends_http_endpoint, connections, .timeout = 20) {
    struct {
        const char *options[3];
        int connections, cold;
    } rows[] = {
        {{"prewarm=off", "reuse=on"}, 2, 1}, /* the probe's own, and one for all requests */
        {{"prewarm=on", "reuse=on"}, 5, 0},  /* one for each of max_in_flight */
        {{"prewarm=off", "reuse=off"}, 4, 3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fixture *f = calloc(1, sizeof *f);
        fixture_start(f, &(struct mock_config){.replies = good_replies}, rows[i].options);
        for (uint64_t k = 0; k < 3; k++)
            cr_assert(eq(i32, fixture_run(f, k, 1).fail_class, FAIL_NONE));
        cr_assert(eq(int, mock_connections(f->server), rows[i].connections));
        cr_assert(eq(i64, fixture_counter(f, "cold_connections"), rows[i].cold));
        fixture_stop(f);
        free(f);
    }
}

/* More than the slots made at open, all at once. */
Test(backends_http_endpoint, many_at_once, .timeout = 30) {
    static struct fixture f;
    enum { N = 200 };
    static struct completion c[N];
    REPLY(slow, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_SLEEP, NULL, 20},
          {MOCK_EVENT, TEXT("b")}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    static const struct mock_step *const replies[] = {slow, NULL};
    fixture_start(&f, &(struct mock_config){.replies = replies}, NULL);
    for (uint64_t k = 0; k < N; k++) {
        struct request r = fixture_request(k, 4, 2);
        cr_assert(eq(int, fixture_submit(&f, &r), SUBMIT_QUEUED));
    }
    cr_assert(zero(int, fixture_wait(&f, c, N)));
    for (uint64_t k = 0; k < N; k++) {
        cr_assert(eq(i32, c[k].fail_class, FAIL_NONE));
        cr_assert(eq(int, fixture_count(&f, EVENT_TOKENS, k), 2));
        cr_assert(eq(int, fixture_count(&f, EVENT_DONE, k), 1));
    }
    int n = -1;
    cr_assert(zero(int, backend_http.wait(f.backend, INT64_MAX, c, N, &n, &f.stop, &f.err)));
    cr_assert(zero(int, n));
    fixture_stop(&f);
}

/* A body larger than any socket buffer: SENT comes once, when the last byte is gone. */
Test(backends_http_endpoint, large_upload, .timeout = 30) {
    static struct fixture f;
    fixture_start(&f, &(struct mock_config){.replies = good_replies}, NULL);
    struct request r = fixture_request(0, 2000000, 1);
    struct completion c;
    cr_assert(eq(int, fixture_submit(&f, &r), SUBMIT_QUEUED));
    cr_assert(zero(int, fixture_event(&f, EVENT_SENT, 0, 0) >= 0)); /* 12 MB do not fit */
    cr_assert(zero(int, fixture_wait(&f, &c, 1)));
    cr_assert(eq(i32, c.fail_class, FAIL_NONE));
    cr_assert(eq(int, fixture_count(&f, EVENT_SENT, 0), 1));
    cr_assert(lt(int, fixture_event(&f, EVENT_SENT, 0, 0), fixture_event(&f, EVENT_TOKENS, 0, 0)));
    cr_assert(ne(ptr, (void *)strstr(mock_post(f.server, 0), "],\"max_tokens\":1,"), NULL));
    fixture_stop(&f);
}
