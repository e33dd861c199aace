/* Several endpoints: which request goes where, and what the record says of all of them. */
#include "tests/backends/http_fixture.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT(s) "{\"choices\":[{\"index\":0,\"text\":\"" s "\",\"finish_reason\":null}]}"
#define REPLY(name, ...) static const struct mock_step name[] = {__VA_ARGS__, {MOCK_END, NULL, 0}}
REPLY(good, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
REPLY(slow, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_SLEEP, NULL, 300}, {MOCK_EVENT, "[DONE]"},
      {MOCK_LAST});
static const struct mock_step *const good_replies[] = {good, NULL};
static const struct mock_step *const slow_replies[] = {slow, NULL};

enum { N = 3 };
struct fleet {
    struct mock *server[N];
    struct fixture f;
};

static int open_fleet(struct fleet *t, const struct mock_config c[N], const char *route) {
    char url[256];
    for (int i = 0; i < N; i++)
        t->server[i] = mock_start(&c[i]);
    snprintf(url, sizeof url, "url=http://127.0.0.1:%d,http://127.0.0.1:%d/v1,http://127.0.0.1:%d",
             mock_port(t->server[0]), mock_port(t->server[1]), mock_port(t->server[2]));
    return fixture_open(&t->f, (const char *const[]){url, route, NULL});
}

static void close_fleet(struct fleet *t) {
    fixture_stop(&t->f);
    for (int i = 0; i < N; i++)
        mock_stop(t->server[i]);
}

static void expect_posts(const struct fleet *t, int a, int b, int c) {
    cr_assert(eq(int, mock_posts(t->server[0]), a));
    cr_assert(eq(int, mock_posts(t->server[1]), b));
    cr_assert(eq(int, mock_posts(t->server[2]), c));
}

Test(backends_http_route, round_robin, .timeout = 20) {
    static struct fleet t;
    const struct mock_config c[N] = {{good_replies}, {good_replies}, {good_replies}};
    cr_assert(zero(int, open_fleet(&t, c, "route=round-robin")), "%s", t.f.err.text);
    for (uint64_t k = 0; k < 7; k++)
        fixture_run(&t.f, k, 1);
    expect_posts(&t, 3, 2, 2);
    json_t *seen = backend_http.observe(t.f.backend), *all = json_object_get(seen, "endpoints");
    static const int want[N] = {3, 2, 2};
    for (int i = 0; i < N; i++) {
        json_t *ep = json_array_get(all, (size_t)i);
        cr_assert(eq(int, (int)json_integer_value(json_object_get(ep, "requests")), want[i]));
        cr_assert(eq(int, (int)json_integer_value(json_object_get(ep, "connections")), 1));
        cr_assert(zero(int, (int)json_integer_value(json_object_get(ep, "failed"))));
    }
    json_decref(seen);
    close_fleet(&t);
}

Test(backends_http_route, sessions_stay, .timeout = 20) {
    static struct fleet t;
    const struct mock_config c[N] = {{good_replies}, {good_replies}, {good_replies}};
    cr_assert(zero(int, open_fleet(&t, c, "route=session-sticky")), "%s", t.f.err.text);
    for (uint64_t k = 0; k < 8; k++) {
        struct request r = fixture_request(k, 4, 1);
        struct completion done;
        r.session = k < 6 ? 4 : 2; /* 4 mod 3 = 1, 2 mod 3 = 2 */
        cr_assert(eq(int, fixture_submit(&t.f, &r), SUBMIT_QUEUED));
        cr_assert(zero(int, fixture_wait(&t.f, &done, 1)));
    }
    expect_posts(&t, 0, 6, 2);
    close_fleet(&t);
}

Test(backends_http_route, least_in_flight, .timeout = 20) {
    static struct fleet t;
    const struct mock_config c[N] = {{slow_replies}, {good_replies}, {good_replies}};
    cr_assert(zero(int, open_fleet(&t, c, "route=least-in-flight")), "%s", t.f.err.text);
    struct completion done[8];
    struct request r = fixture_request(0, 4, 1);
    cr_assert(eq(int, fixture_submit(&t.f, &r), SUBMIT_QUEUED)); /* the slow one is busy now */
    for (uint64_t k = 3; k < 9; k++)                             /* ids whose turn would begin at 0 */
        fixture_run(&t.f, 3 * k, 1);
    cr_assert(zero(int, fixture_wait(&t.f, done, 1)));
    cr_assert(eq(int, mock_posts(t.server[0]), 1));
    close_fleet(&t);
}

Test(backends_http_route, the_weakest_class_is_the_runs, .timeout = 20) {
    static struct fleet t;
    const struct mock_config c[N] = {
        {good_replies, .models_headers = "X-Assay-Chip: v6e;chips=8\r\n"},
        {good_replies,
         .models_headers = "X-Assay-Class: simulated\r\nX-Assay-Chip: v5p;chips=4\r\n"},
        {good_replies,
         .models_headers = "X-Assay-Class: emulated\r\nX-Assay-Chip: v6e;chips=8\r\n"}};
    cr_assert(zero(int, open_fleet(&t, c, "route=round-robin")), "%s", t.f.err.text);
    struct backend_info info;
    cr_assert(zero(int, backend_http.describe(t.f.backend, &info, &t.f.err)));
    cr_assert(eq(int, info.result_class, CLASS_SIMULATED));
    cr_assert(eq(str, info.chip, "v6e+v5p"));
    cr_assert(eq(i64, info.chips, 20));
    cr_assert(eq(sz, json_array_size(json_object_get(info.details, "endpoints")), 3));
    json_decref(info.details);
    close_fleet(&t);
}

Test(backends_http_route, every_endpoint_is_asked, .timeout = 20) {
    static const struct {
        struct mock_config last;
        const char *says;
    } rows[] = {
        {{good_replies, .models_status = "503 Loading"}, "is not ready (HTTP 503)"},
        {{good_replies, .models = "{\"data\":[{\"id\":\"other\"}]}"}, "does not list it"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fleet *t = calloc(1, sizeof *t);
        const struct mock_config c[N] = {{good_replies}, {good_replies}, rows[i].last};
        cr_assert(eq(int, open_fleet(t, c, "route=round-robin"), ASSAY_EENV));
        cr_assert(ne(ptr, (void *)strstr(t->f.err.text, rows[i].says), NULL), "%s", t->f.err.text);
        close_fleet(t);
        free(t);
    }
}

Test(backends_http_route, bad_lists, .timeout = 20) {
    static const struct {
        const char *options[3];
        const char *says;
    } rows[] = {
        {{"url=http://127.0.0.1:1,", NULL}, "'' is not a URL"},
        {{"url=http://127.0.0.1:1,ftp://127.0.0.1", NULL}, "found 'ftp'"},
        {{"url=http://127.0.0.1:1,http://127.0.0.1:2", "unix_socket=/tmp/x", NULL}, "names 2"},
        {{"url=http://127.0.0.1:1,https://127.0.0.1:2", "http=2", NULL}, "one scheme"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fixture *f = calloc(1, sizeof *f);
        cr_assert(eq(int, fixture_open(f, rows[i].options), ASSAY_EUSAGE), "%s", f->err.text);
        cr_assert(ne(ptr, (void *)strstr(f->err.text, rows[i].says), NULL), "%s", f->err.text);
        fixture_stop(f);
        free(f);
    }
}
