/* HTTP/2 against a server that speaks nothing else, built on Debian's python3-h2 (a protocol stack
 * that shares no code with libcurl's): negotiation, streams of one connection, resets, stamps. */
#include "tests/backends/http_fixture.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <curl/curl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct h2 {
    pid_t pid;
    int to;     /* closing it ends the server */
    FILE *from; /* port, then counts */
    int port;
};

static struct h2 start(const char *mode, const char *tokens, const char *gap_ms,
                       const char *max_streams) {
    if (system("/usr/bin/python3 -c 'import h2' 2>/dev/null"))
        cr_skip_test("no /usr/bin/python3 with the package 'h2'");
    int in[2], out[2];
    cr_assert(zero(int, pipe(in)));
    cr_assert(zero(int, pipe(out)));
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* nothing outlives a failed test */
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        close(out[0]);
        execl("/usr/bin/python3", "python3", "tests/backends/h2_server.py", mode, tokens, gap_ms,
              max_streams, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    struct h2 s = {.pid = pid, .to = in[1], .from = fdopen(out[0], "r")};
    cr_assert(eq(int, fscanf(s.from, "%d", &s.port), 1));
    return s;
}

/* Ends the server and returns what it saw; the caller decrefs. */
static json_t *stop(struct h2 *s) {
    close(s->to);
    json_t *seen = json_loadf(s->from, JSON_DISABLE_EOF_CHECK, NULL);
    fclose(s->from);
    waitpid(s->pid, NULL, 0);
    cr_assert(ne(ptr, seen, NULL));
    return seen;
}

static int count(const json_t *seen, const char *name) {
    return (int)json_integer_value(json_object_get(seen, name));
}

static void open_h2(struct fixture *f, const struct h2 *s, bool tls, const char *more) {
    char url[64];
    snprintf(url, sizeof url, "url=%s://127.0.0.1:%d", tls ? "https" : "http", s->port);
    const char *const options[] = {url, "http=2", "ca_file=tests/data/http/cert.pem", more, NULL};
    cr_assert(zero(int, fixture_open(f, options)), "%s", f->err.text);
}

static void submit_all(struct fixture *f, uint64_t n, uint32_t osl) {
    for (uint64_t k = 0; k < n; k++) {
        struct request r = fixture_request(k, 4, osl);
        cr_assert(eq(int, fixture_submit(f, &r), SUBMIT_QUEUED), "%s", f->err.text);
    }
}

/* The first endpoint of what the record says of the run. */
static json_t *observed(struct fixture *f) {
    json_t *all = backend_http.observe(f->backend);
    json_t *ep = json_incref(json_array_get(json_object_get(all, "endpoints"), 0));
    json_decref(all);
    return ep;
}

static void expect_streams(bool tls, const char *option, int connections) {
    enum { N = 50, TOKENS = 5 };
    struct h2 s = start(tls ? "tls" : "plain", "5", "20", NULL);
    struct fixture *f = calloc(1, sizeof *f);
    static struct completion c[N];
    open_h2(f, &s, tls, option);
    submit_all(f, N, TOKENS);
    cr_assert(zero(int, fixture_wait(f, c, N)), "%s", f->err.text);
    for (int i = 0; i < N; i++)
        cr_assert(eq(i32, c[i].fail_class, FAIL_NONE), "%s", fail_class_name(c[i].fail_class));
    for (uint64_t k = 0; k < N; k++) {
        cr_assert(eq(int, fixture_count(f, EVENT_SENT, k), 1));
        cr_assert(eq(int, fixture_count(f, EVENT_TOKENS, k), TOKENS));
        int sent = fixture_event(f, EVENT_SENT, k, 0);
        for (int j = 0; j < TOKENS; j++) {
            int i = fixture_event(f, EVENT_TOKENS, k, j);
            cr_assert(lt(int, sent, i));
            /* nothing is stamped before the server could have written it */
            cr_assert(ge(i64, f->block.time_ns[i] - f->block.time_ns[sent], j * 20000000 - 1000));
        }
    }
    json_t *ep = observed(f), *by = json_object_get(ep, "answers_by_http_version");
    cr_assert(eq(int, count(by, "2"), N));
    cr_assert(eq(int, count(by, "1.1"), 0));
    cr_assert(eq(int, count(ep, "connections"), connections));
    json_decref(ep);
    struct backend_info info;
    cr_assert(zero(int, backend_http.describe(f->backend, &info, &f->err)));
    ep = json_array_get(json_object_get(info.details, "endpoints"), 0);
    cr_assert(eq(str, (char *)json_string_value(json_object_get(ep, "http")), "2"));
    json_decref(info.details);
    fixture_stop(f);
    json_t *seen = stop(&s);
    cr_assert(eq(int, count(seen, "connections"), connections + 1)); /* the probe's own */
    cr_assert(eq(int, count(seen, "most_open"), connections == 1 ? N : 1));
    cr_assert(eq(int, count(seen, "resets"), 0));
    json_decref(seen);
    free(f);
}

Test(backends_http_h2, streams_of_one_connection, .timeout = 60) {
    expect_streams(true, "prewarm=on", 1);
}

Test(backends_http_h2, prior_knowledge, .timeout = 60) {
    expect_streams(false, "reuse=off", 50);
}

Test(backends_http_h2, prior_knowledge_of_an_old_libcurl, .timeout = 60) {
    if (curl_version_info(CURLVERSION_NOW)->version_num >= 0x080000)
        cr_skip_test("this libcurl can");
    static struct fixture f;
    f.server = mock_start(&(struct mock_config){0});
    cr_assert(eq(int, fixture_open(&f, (const char *const[]){"http=2", NULL}), ASSAY_EUSAGE));
    cr_assert(ne(ptr, (void *)strstr(f.err.text, "reuse=off"), NULL), "%s", f.err.text);
    fixture_stop(&f);
}

/* The server's limit of streams is kept: more connections, no failure. */
Test(backends_http_h2, limit_of_streams, .timeout = 60) {
    enum { N = 150, LIMIT = 100 };
    struct h2 s = start("tls", "3", "20", "100");
    static struct fixture f;
    static struct completion c[N];
    open_h2(&f, &s, true, "prewarm=on");
    submit_all(&f, N, 3);
    cr_assert(zero(int, fixture_wait(&f, c, N)), "%s", f.err.text);
    for (int i = 0; i < N; i++)
        cr_assert(eq(i32, c[i].fail_class, FAIL_NONE));
    fixture_stop(&f);
    json_t *seen = stop(&s);
    cr_assert(le(int, count(seen, "most_open"), LIMIT));
    cr_assert(eq(int, count(seen, "posts"), N));
    json_decref(seen);
}

/* Giving up a stream resets it alone: the others go on over the same connection. */
static void expect_reset(const char *option, bool by_call) {
    enum { N = 20 };
    struct h2 s = start("tls", "10", "20", NULL);
    struct fixture *f = calloc(1, sizeof *f);
    static struct completion c[N];
    open_h2(f, &s, true, option);
    submit_all(f, N, 10);
    for (int i = 0; by_call && i < N / 2; i++)
        backend_http.cancel(f->backend, (uint64_t)i);
    cr_assert(zero(int, fixture_wait(f, c, N)), "%s", f->err.text);
    int cancelled = 0;
    for (int i = 0; i < N; i++) {
        cr_assert(c[i].fail_class == FAIL_NONE || c[i].fail_class == FAIL_CANCELLED, "%s",
                  fail_class_name(c[i].fail_class));
        cancelled += c[i].fail_class == FAIL_CANCELLED;
    }
    cr_assert(gt(int, cancelled, 0));
    cr_assert(lt(int, cancelled, N));
    json_t *ep = observed(f);
    cr_assert(le(int, count(ep, "connections"), 1));
    cr_assert(eq(int, count(ep, "failed"), cancelled));
    json_decref(ep);
    cr_assert(eq(i32, fixture_run(f, N, 10).fail_class, FAIL_NONE));
    fixture_stop(f);
    json_t *seen = stop(&s);
    cr_assert(le(int, count(seen, "connections"), 2));
    if (!by_call)
        cr_assert(eq(int, count(seen, "resets"), cancelled));
    json_decref(seen);
    free(f);
}

Test(backends_http_h2, cancel_by_call_resets_the_stream, .timeout = 60) {
    expect_reset("prewarm=on", true);
}

Test(backends_http_h2, limits_reset_the_stream, .timeout = 60) {
    struct h2 s = start("tls", "100", "50", NULL);
    static struct fixture f;
    static struct completion c[4];
    open_h2(&f, &s, true, "timeout_total=300ms");
    submit_all(&f, 4, 100);
    cr_assert(zero(int, fixture_wait(&f, c, 4)), "%s", f.err.text);
    for (int i = 0; i < 4; i++)
        cr_assert(eq(i32, c[i].fail_class, FAIL_TIMEOUT_TOTAL));
    usleep(100000);
    fixture_stop(&f);
    json_t *seen = stop(&s);
    cr_assert(eq(int, count(seen, "connections"), 2));
    cr_assert(gt(int, count(seen, "resets"), 0));
    json_decref(seen);
}

Test(backends_http_h2, cancel_by_option, .timeout = 60) {
    expect_reset("cancel_fraction=0.5", false);
}

/* A body of several megabytes waits for the server's window; SENT comes when the last byte is gone. */
Test(backends_http_h2, large_upload, .timeout = 60) {
    struct h2 s = start("tls", "2", "0", NULL);
    static struct fixture f;
    open_h2(&f, &s, true, "prewarm=on");
    struct request r = fixture_request(0, 500000, 2);
    struct completion c;
    cr_assert(eq(int, fixture_submit(&f, &r), SUBMIT_QUEUED));
    cr_assert(zero(int, fixture_event(&f, EVENT_SENT, 0, 0) >= 0));
    cr_assert(zero(int, fixture_wait(&f, &c, 1)));
    cr_assert(eq(i32, c.fail_class, FAIL_NONE), "%s", fail_class_name(c.fail_class));
    cr_assert(eq(int, fixture_count(&f, EVENT_SENT, 0), 1));
    fixture_stop(&f);
    json_t *seen = stop(&s);
    cr_assert(gt(int, count(seen, "body_bytes"), 2000000));
    json_decref(seen);
}

/* Events of one stream that one read brought are marked, also when libcurl hands them out singly. */
Test(backends_http_h2, events_of_one_read_are_marked, .timeout = 60) {
    struct h2 s = start("tls", "4", "0", NULL);
    static struct fixture f;
    open_h2(&f, &s, true, "prewarm=on");
    cr_assert(eq(i32, fixture_run(&f, 0, 4).fail_class, FAIL_NONE));
    for (int k = 0; k < 4; k++)
        cr_assert(f.block.b[fixture_event(&f, EVENT_TOKENS, 0, k)] & TOKENS_COALESCED);
    fixture_stop(&f);
    json_decref(stop(&s));
}

/* Several streams of one connection: what the server wrote while the client did other things waited, and
 * the bound of its stamp says so, in whichever order libcurl hands the streams out. */
static void expect_bounds(bool tls, uint64_t streams, const char *option) {
    enum { TOKENS = 12 };
    struct h2 s = start(tls ? "tls" : "plain", "12", "20", NULL);
    struct fixture *f = calloc(1, sizeof *f);
    struct busy busy = {0};
    open_h2(f, &s, tls, option);
    submit_all(f, streams, TOKENS);
    fixture_run_busy(f, (int)streams, &busy);
    fixture_stop(f);
    json_t *seen = stop(&s), *written = json_object_get(seen, "written_ns");
    cr_assert(eq(sz, json_array_size(written), streams));
    int covered = 0;
    for (uint64_t k = 0; k < streams; k++) {
        json_t *times = json_array_get(written, k);
        cr_assert(eq(sz, json_array_size(times), TOKENS));
        for (int j = 0; j < TOKENS; j++)
            covered += fixture_check_bound(f, &busy, fixture_event(f, EVENT_TOKENS, k, j),
                                           json_integer_value(json_array_get(times, (size_t)j)));
    }
    cr_assert(gt(int, covered, 0));
    json_decref(seen);
    free(f);
}

Test(backends_http_h2, bounds_cover_what_a_busy_client_missed, .timeout = 60) {
    expect_bounds(true, 4, "prewarm=on");
}

Test(backends_http_h2, bounds_cover_what_a_busy_client_missed_without_tls, .timeout = 60) {
    expect_bounds(false, 1, "reuse=off");
}

Test(backends_http_h2, server_without_it, .timeout = 60) {
    static struct fixture f;
    f.server = mock_start(&(struct mock_config){0});
    cr_assert(eq(int, fixture_open(&f, (const char *const[]){"http=2", "reuse=off", NULL}),
                 ASSAY_EENV));
    cr_assert(ne(ptr, (void *)strstr(f.err.text, "cannot reach"), NULL), "%s", f.err.text);
    fixture_stop(&f);
}
