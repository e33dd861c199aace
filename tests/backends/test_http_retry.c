/* Further attempts, giving up on purpose, and headers whose values nobody may see. */
#include "harness/core/clock.h"
#include "tests/backends/http_fixture.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TEXT(s) "{\"choices\":[{\"index\":0,\"text\":\"" s "\",\"finish_reason\":null}]}"
#define REPLY(name, ...) static const struct mock_step name[] = {__VA_ARGS__, {MOCK_END, NULL, 0}}
#define STATUS(line, headers) "HTTP/1.1 " line "\r\n" headers "Content-Length: 4\r\n\r\nbusy"
REPLY(good, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
REPLY(busy, {MOCK_SEND, STATUS("429 Too Many Requests", "")});
REPLY(away, {MOCK_SEND, STATUS("503 Service Unavailable", "")});
REPLY(broken, {MOCK_SEND, STATUS("500 Internal Server Error", "")});
REPLY(gone, {MOCK_RESET});
REPLY(cut, {MOCK_HEAD}, {MOCK_RESET});

static struct fixture *start(const struct mock_step *const *replies, const char *const *options) {
    struct fixture *f = calloc(1, sizeof *f);
    fixture_start(f, &(struct mock_config){.replies = replies}, options);
    return f;
}

static void end(struct fixture *f) {
    fixture_stop(f);
    free(f);
}

static int64_t retries(struct fixture *f, const char *cause) {
    json_t *seen = backend_http.observe(f->backend);
    int64_t v = json_integer_value(json_object_get(json_object_get(seen, "retries"), cause));
    json_decref(seen);
    return v;
}

static int64_t time_of(const struct fixture *f, enum event_kind kind, int k) {
    int i = fixture_event(f, kind, 0, k);
    cr_assert(ge(int, i, 0));
    return f->block.time_ns[i];
}

static const char *const twice[] = {"retries=2", "retry_backoff=20ms", NULL};

Test(backends_http_retry, nothing_is_retried_unasked, .timeout = 20) {
    static const struct mock_step *const replies[] = {busy, good, NULL};
    struct fixture *f = start(replies, NULL);
    cr_assert(eq(i32, fixture_run(f, 0, 1).fail_class, FAIL_HTTP_STATUS));
    cr_assert(eq(i64, f->block.b[fixture_event(f, EVENT_FAIL, 0, 0)], 429));
    cr_assert(eq(int, mock_posts(f->server), 1));
    end(f);
}

/* cause; what comes first; whether the third attempt's success is reached */
Test(backends_http_retry, causes, .timeout = 30) {
    static const struct {
        const struct mock_step *first;
        const char *cause; /* NULL: is not retried */
        int fail_class;
    } rows[] = {
        {busy, "http_429", FAIL_NONE},
        {away, "http_503", FAIL_NONE},
        {gone, "reset", FAIL_NONE},
        {broken, NULL, FAIL_HTTP_STATUS},
        {cut, NULL, FAIL_RESET}, /* bytes were read: sending again could be counted twice */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct mock_step *const replies[] = {rows[i].first, rows[i].first, good, NULL};
        struct fixture *f = start(replies, twice);
        cr_assert(eq(i32, fixture_run(f, 0, 1).fail_class, rows[i].fail_class), "%zu", i);
        cr_assert(eq(int, mock_posts(f->server), rows[i].cause ? 3 : 1));
        if (rows[i].cause) {
            cr_assert(eq(i64, retries(f, rows[i].cause), 2));
            json_t *seen = backend_http.observe(f->backend);
            cr_assert(eq(ptr, json_object_get(seen, "first_error"), NULL));
            json_decref(seen);
            /* SENT of each attempt; the waits (20 and 40 ms, at least half of it) lie between */
            cr_assert(eq(int, fixture_count(f, EVENT_SENT, 0), 3));
            cr_assert(ge(i64, time_of(f, EVENT_SENT, 1) - time_of(f, EVENT_SENT, 0), 10000000));
            cr_assert(ge(i64, time_of(f, EVENT_SENT, 2) - time_of(f, EVENT_SENT, 1), 20000000));
            cr_assert(eq(int, fixture_count(f, EVENT_TOKENS, 0), 1));
        }
        end(f);
    }
}

Test(backends_http_retry, the_last_failure_counts, .timeout = 20) {
    static const struct mock_step *const replies[] = {gone, away, busy, NULL};
    struct fixture *f = start(replies, twice);
    cr_assert(eq(i32, fixture_run(f, 0, 1).fail_class, FAIL_HTTP_STATUS));
    cr_assert(eq(i64, f->block.b[fixture_event(f, EVENT_FAIL, 0, 0)], 429));
    cr_assert(eq(int, fixture_count(f, EVENT_FAIL, 0), 1));
    cr_assert(eq(int, mock_posts(f->server), 3));
    end(f);
}

Test(backends_http_retry, connect, .timeout = 20) {
    static const struct mock_step *const replies[] = {good, NULL};
    struct fixture *f = start(replies, (const char *const[]){"retries=3", "retry_backoff=20ms",
                                                              "reuse=off", NULL});
    mock_stop(f->server);
    f->server = NULL;
    cr_assert(eq(i32, fixture_run(f, 0, 1).fail_class, FAIL_CONNECT));
    cr_assert(eq(i64, retries(f, "connect"), 3));
    end(f);
}

/* Retry-After in seconds: at least that long. */
Test(backends_http_retry, retry_after_seconds, .timeout = 20) {
    REPLY(later, {MOCK_SEND, STATUS("429 Later", "Retry-After: 1\r\n")});
    static const struct mock_step *const replies[] = {later, good, NULL};
    struct fixture *f = start(replies, twice);
    cr_assert(eq(i32, fixture_run(f, 0, 1).fail_class, FAIL_NONE));
    cr_assert(ge(i64, time_of(f, EVENT_SENT, 1) - time_of(f, EVENT_SENT, 0), 1000000000));
    end(f);
}

/* As a date it counts from the answer's own Date, whatever either clock says: 2 s here; the example
 * date is RFC 9110's. A date that is past means at once. */
Test(backends_http_retry, retry_after_date, .timeout = 30) {
    REPLY(later, {MOCK_SEND, STATUS("503 Later", "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n"
                                                 "Date: Fri, 31 Dec 1999 23:59:57 GMT\r\n")});
    REPLY(past, {MOCK_SEND, STATUS("503 Later", "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n")});
    static const struct mock_step *const replies[] = {later, past, good, NULL};
    struct fixture *f =
        start(replies, (const char *const[]){"retries=2", "retry_backoff=10s", NULL});
    cr_assert(eq(i32, fixture_run(f, 0, 1).fail_class, FAIL_NONE));
    cr_assert(ge(i64, time_of(f, EVENT_SENT, 1) - time_of(f, EVENT_SENT, 0), 2000000000));
    cr_assert(lt(i64, time_of(f, EVENT_SENT, 2) - time_of(f, EVENT_SENT, 1), 5000000000));
    end(f);
}

/* Limits count from the issue, over attempts and waits; and a request that waits can be given up. */
Test(backends_http_retry, limits_hold_over_all_attempts, .timeout = 30) {
    static const struct {
        const char *option;
        int fail_class;
    } rows[] = {{"timeout_total=150ms", FAIL_TIMEOUT_TOTAL},
                {"timeout_first_token=150ms", FAIL_TIMEOUT_FIRST_TOKEN}};
    static const struct mock_step *const replies[] = {busy, NULL};
    for (int i = 0; i < 2; i++) {
        struct fixture *f = start(replies, (const char *const[]){"retries=1000",
                                                                  "retry_backoff=60s",
                                                                  rows[i].option, NULL});
        cr_assert(eq(i32, fixture_run(f, 0, 1).fail_class, rows[i].fail_class));
        cr_assert(eq(int, mock_posts(f->server), 1));
        end(f);
    }
    struct fixture *f =
        start(replies, (const char *const[]){"retries=5", "retry_backoff=60s", NULL});
    struct completion c;
    int n;
    for (uint64_t k = 0; k < 3; k++) {
        struct request r = fixture_request(k, 4, 1);
        cr_assert(eq(int, fixture_submit(f, &r), SUBMIT_QUEUED));
    }
    cr_assert(zero(int, backend_http.wait(f->backend,
                                          backend_http.now(f->backend) + 100 * NS_PER_MS, &c, 1,
                                          &n, &f->stop, &f->err)));
    cr_assert(zero(int, n));
    cr_assert(eq(i64, retries(f, "http_429"), 3));
    backend_http.cancel(f->backend, 1);
    cr_assert(zero(int, fixture_wait(f, &c, 1)));
    cr_assert(eq(i32, c.fail_class, FAIL_CANCELLED));
    cr_assert(eq(u64, c.request, 1));
    backend_http.cancel(f->backend, 77); /* nobody */
    end(f);                              /* with two that wait */
}

/* ---- giving up on purpose ---- */

Test(backends_http_retry, cancel_after_tokens, .timeout = 30) {
    enum { N = 40 };
    REPLY(five, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_EVENT, TEXT("b")},
          {MOCK_EVENT, TEXT("c")}, {MOCK_EVENT, TEXT("d")}, {MOCK_EVENT, TEXT("e")},
          {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    static const struct mock_step *const replies[] = {five, NULL};
    static const char *const options[] = {"cancel_fraction=0.5", "cancel_tokens=3", NULL};
    int chosen[2][N], cancelled = 0;
    for (int run = 0; run < 2; run++) {
        struct fixture *f = start(replies, options);
        for (uint64_t k = 0; k < N; k++) {
            int c = fixture_run(f, k, 5).fail_class;
            chosen[run][k] = c == FAIL_CANCELLED;
            cr_assert(c == FAIL_NONE || c == FAIL_CANCELLED);
            cr_assert(eq(int, fixture_count(f, EVENT_TOKENS, k), c ? 3 : 5));
            cancelled += c != 0;
        }
        cr_assert(eq(i64, fixture_counter(f, "cancelled_by_option") * (run + 1), cancelled));
        end(f);
    }
    cr_assert(zero(int, memcmp(chosen[0], chosen[1], sizeof chosen[0]))); /* the same ones */
    cr_assert(gt(int, cancelled, 20));
    cr_assert(lt(int, cancelled, 60));
}

/* ---- headers ---- */

Test(backends_http_retry, headers_from_environment_and_file, .timeout = 20) {
    char path[] = "/tmp/assay-test-XXXXXX", option[64];
    int fd = mkstemp(path);
    static const char text[] = "X-File: file-secret\r\nX-More:more-secret\n";
    cr_assert(eq(int, (int)write(fd, text, sizeof text - 1), (int)sizeof text - 1));
    close(fd);
    snprintf(option, sizeof option, "header_file=%s", path);
    setenv("ASSAY_TEST_A", "env-secret", 1);
    REPLY(echo, {MOCK_SEND, "HTTP/1.1 500 No\r\nContent-Length: 46\r\n\r\n"
                            "env-secret file-secret more-secret plain-value"});
    static const struct mock_step *const replies[] = {echo, NULL};
    const char *const options[] = {"header=X-Plain: plain-value", "header_env=X-Env: ASSAY_TEST_A",
                                   option, NULL};
    struct fixture *f = start(replies, options);
    fixture_run(f, 0, 1);
    static const char *const want[] = {"\r\nX-Env: env-secret\r\n", "\r\nX-File: file-secret\r\n",
                                       "\r\nX-More:more-secret\r\n", "\r\nX-Plain: plain-value\r\n"};
    for (int i = 0; i < 4; i++)
        cr_assert(ne(ptr, (void *)strcasestr(mock_post(f->server, 0), want[i]), NULL), "%s",
                  want[i]);
    struct backend_info info;
    cr_assert(zero(int, backend_http.describe(f->backend, &info, &f->err)));
    json_t *seen = backend_http.observe(f->backend);
    json_object_set_new(info.details, "seen", seen);
    char *all = json_dumps(info.details, 0);
    cr_assert(eq(ptr, (void *)strstr(all, "secret"), NULL), "%s", all);
    cr_assert(eq(ptr, (void *)strstr(all, "plain-value"), NULL), "%s", all);
    cr_assert(ne(ptr, (void *)strstr(all, "****"), NULL), "%s", all);
    free(all);
    json_decref(info.details);
    end(f);
    unlink(path);
}

Test(backends_http_retry, bad_headers, .timeout = 20) {
    static const struct {
        const char *option;
        int rc;
        const char *says;
    } rows[] = {
        {"header_env=X-Env: ASSAY_TEST_NO_SUCH", ASSAY_EENV, "'ASSAY_TEST_NO_SUCH' is not set"},
        {"header_env=X-Env", ASSAY_EUSAGE, "line 1: expected 'Name: value'"},
        {"header=X-One: 1\nsecret", ASSAY_EUSAGE, "line 2: expected 'Name: value'"},
        {"header_file=/no/such/file", ASSAY_EENV, "/no/such/file"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fixture *f = calloc(1, sizeof *f);
        f->server = mock_start(&(struct mock_config){0});
        cr_assert(eq(int, fixture_open(f, (const char *const[]){rows[i].option, NULL}), rows[i].rc),
                  "%s", f->err.text);
        cr_assert(ne(ptr, (void *)strstr(f->err.text, rows[i].says), NULL), "%s", f->err.text);
        cr_assert(eq(ptr, (void *)strstr(f->err.text, "secret"), NULL));
        end(f);
    }
}
