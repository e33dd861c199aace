/* What HTTP itself may do between the backend and a server: compress, redirect, answer twice, add trailers;
 * and the shapes of streams that no other test has, end to end. */
#include "backends/http/http_internal.h"
#include "tests/backends/http_fixture.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT(s) "{\"choices\":[{\"index\":0,\"text\":\"" s "\",\"finish_reason\":null}]}"
#define REPLY(name, ...) static const struct mock_step name[] = {__VA_ARGS__, {MOCK_END, NULL, 0}}
#define PLAY(f, options, ...)                                                                      \
    static const struct mock_step steps[] = {__VA_ARGS__, {MOCK_END, NULL, 0}};                    \
    static const struct mock_step *const replies[] = {steps, NULL};                                \
    static struct fixture f;                                                                       \
    fixture_start(&f, &(struct mock_config){.replies = replies}, options)
#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})

static bool posted(const struct mock *m, int k, const char *text) {
    return strcasestr(mock_post(m, k), text) != NULL;
}

/* ---- compression ---- */

/* zlib 1.2.13 through Python's zlib.compressobj(9, DEFLATED, 31): two events with choices[0].text "a" and
 * "b", each flushed with Z_SYNC_FLUSH, and data: [DONE]. */
static const char gz_a[] = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x4a\x49\x2c\x49\xb4\x52\xa8\x56\x4a\xce\xc8\xcf\x4c\x4e\x2d"
                           "\x56\xb2\x8a\xae\x56\x2a\x49\xad\x28\x51\xb2\x52\x4a\x54\xaa\x8d\xad\xe5\xe2\x02\x00\x00\x00\xff\xff";
static const char gz_b[] = "\x4a\xc1\xad\x22\x09\xa2\x02\x00\x00\x00\xff\xff";
static const char gz_done[] = "\x83\xa8\x88\x76\xf1\xf7\x73\x8d\xe5\xe2\x02\x00\x97\x09\xb6\x1a\x52\x00\x00\x00";
/* likewise {"choices":[{"text":"abc"}],"usage":{"completion_tokens":3}} */
static const char gz_document[] = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\x4a\xce\xc8\xcf\x4c\x4e\x2d\x56\xb2\x8a\xae\x56\x2a"
                                  "\x49\xad\x28\x51\xb2\x52\x4a\x4c\x4a\x56\xaa\x8d\xd5\x51\x2a\x2d\x4e\x4c\x4f\x55\xb2\xaa\x56\x4a\xce"
                                  "\xcf\x2d\xc8\x49\x2d\xc9\xcc\xcf\x8b\x2f\xc9\xcf\x4e\xcd\x03\xaa\x36\xae\xad\x05\x00\x76\xf9\x39\x7d"
                                  "\x3c\x00\x00\x00";
#define BYTES(b) {MOCK_BYTES, b, sizeof b - 1}

Test(backends_http_wire, compressed_though_not_asked, .timeout = 20) {
    PLAY(f, NULL, {MOCK_HEAD, "Content-Encoding: gzip\r\n"}, BYTES(gz_a), {MOCK_SLEEP, NULL, 20}, BYTES(gz_b),
         BYTES(gz_done), {MOCK_LAST});
    struct completion c = fixture_run(&f, 0, 2);
    cr_assert(eq(str, (char *)fail_class_name(c.fail_class), (char *)fail_class_name(FAIL_NONE)));
    cr_assert(eq(int, fixture_count(&f, EVENT_TOKENS, 0), 2));
    int a = fixture_event(&f, EVENT_TOKENS, 0, 0), b = fixture_event(&f, EVENT_TOKENS, 0, 1);
    /* what the server flushed is an event as soon as it is read */
    cr_assert(ge(i64, f.block.time_ns[b] - f.block.time_ns[a], 19000000));
    cr_assert(not(posted(f.server, 0, "\r\nAccept-Encoding")));
    cr_assert(eq(i64, fixture_counter(&f, "compressed"), 1));
    json_t *seen = backend_http.observe(f.backend);
    char *text = json_dumps(json_object_get(seen, "warnings"), 0);
    cr_assert(ne(ptr, (void *)strstr(text, "compressed though nobody asked"), NULL), "%s", text);
    free(text);
    json_decref(seen);
    fixture_stop(&f);
}

Test(backends_http_wire, compressed_as_asked, .timeout = 20) {
    PLAY(f, OPTIONS("compression=on", "stream=off"),
         {MOCK_SEND, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"},
         BYTES(gz_document), {MOCK_LAST});
    struct completion c = fixture_run(&f, 0, 3);
    cr_assert(eq(i32, c.fail_class, FAIL_NONE));
    cr_assert(eq(u32, c.output_tokens, 3));
    cr_assert(posted(f.server, 0, "\r\nAccept-Encoding: "));
    cr_assert(posted(f.server, 0, "gzip"));
    cr_assert(eq(i64, fixture_counter(&f, "compressed"), 1));
    json_t *seen = backend_http.observe(f.backend);
    char *text = json_dumps(seen, 0);
    cr_assert(eq(ptr, (void *)strstr(text, "nobody asked"), NULL));
    free(text);
    json_decref(seen);
    fixture_stop(&f);
}

Test(backends_http_wire, asked_and_not_compressed, .timeout = 20) {
    PLAY(f, OPTIONS("compression=on"), {MOCK_HEAD, "Content-Encoding: identity\r\n"}, {MOCK_EVENT, TEXT("a")},
         {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    cr_assert(eq(i32, fixture_run(&f, 0, 1).fail_class, FAIL_NONE));
    cr_assert(zero(i64, fixture_counter(&f, "compressed")));
    fixture_stop(&f);
}

/* ---- redirects ---- */

REPLY(good, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
static const struct mock_step *const good_replies[] = {good, NULL};

#define MESSAGE "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n"
REPLY(good_message, {MOCK_HEAD}, {MOCK_CHUNK, MESSAGE}, {MOCK_LAST});
static const struct mock_step *const good_messages[] = {good_message, NULL};

static const char *redirect_to(char *out, size_t n, const struct mock *m, const char *path) {
    snprintf(out, n, "HTTP/1.1 307 Elsewhere\r\nLocation: http://127.0.0.1:%d%s\r\nContent-Length: 0\r\n\r\n", mock_port(m), path);
    return out;
}

/* Another origin gets the request, but neither the key nor the user's headers; the next request goes to the
 * endpoint again, with both. */
Test(backends_http_wire, a_redirect_to_another_origin_carries_no_secret, .timeout = 20) {
    static struct fixture f;
    char reply[256];
    struct mock *other = mock_start(&(struct mock_config){.replies = good_messages});
    const struct mock_step moved[] = {{MOCK_SEND, redirect_to(reply, sizeof reply, other, "/x/messages"), 0}, {MOCK_END, NULL, 0}};
    const struct mock_step *const replies[] = {moved, NULL};
    setenv("MOCK_KEY", "sk-ant-secret", 1);
    fixture_start(&f, &(struct mock_config){.replies = replies},
                  OPTIONS("api=messages", "redirects=1", "api_key_env=MOCK_KEY", "header=X-Token: hidden-too"));
    for (uint64_t k = 0; k < 2; k++) {
        cr_assert(eq(i32, fixture_run(&f, k, 1).fail_class, FAIL_NONE));
        cr_assert(eq(int, fixture_count(&f, EVENT_SENT, k), 2)); /* the last is the one that counts */
    }
    cr_assert(eq(int, mock_posts(f.server), 2));
    cr_assert(eq(int, mock_posts(other), 2));
    for (int k = 0; k < 2; k++) {
        cr_assert(posted(f.server, k, "\r\nx-api-key: sk-ant-secret\r\n"));
        cr_assert(posted(f.server, k, "\r\nX-Token: hidden-too\r\n"));
        cr_assert(eq(int, strncmp(mock_post(other, k), "POST /x/messages ", 17), 0));
        cr_assert(not(posted(other, k, "x-api-key")));
        cr_assert(not(posted(other, k, "secret")));
        cr_assert(not(posted(other, k, "hidden")));
        cr_assert(posted(other, k, "\r\nanthropic-version: "));
        cr_assert(eq(str, strstr(mock_post(f.server, k), "\r\n\r\n"), strstr(mock_post(other, k), "\r\n\r\n")));
    }
    cr_assert(eq(i64, fixture_counter(&f, "redirected"), 2));
    json_t *seen = backend_http.observe(f.backend);
    cr_assert(eq(ptr, json_object_get(seen, "first_error"), NULL));
    json_decref(seen);
    fixture_stop(&f);
    mock_stop(other);
}

Test(backends_http_wire, a_redirect_within_the_origin_keeps_the_key, .timeout = 20) {
    REPLY(moved, {MOCK_SEND, "HTTP/1.1 308 Permanent\r\nLocation: /v2/completions\r\nContent-Length: 2\r\n\r\n{}"});
    static const struct mock_step *const replies[] = {moved, good, NULL};
    static struct fixture f;
    setenv("MOCK_KEY", "sk-secret", 1);
    fixture_start(&f, &(struct mock_config){.replies = replies}, OPTIONS("redirects=5", "api_key_env=MOCK_KEY"));
    cr_assert(eq(i32, fixture_run(&f, 0, 1).fail_class, FAIL_NONE));
    cr_assert(eq(int, strncmp(mock_post(f.server, 1), "POST /v2/completions ", 21), 0));
    cr_assert(posted(f.server, 1, "\r\nAuthorization: Bearer sk-secret\r\n"));
    /* the next request begins at the endpoint's own URL */
    cr_assert(eq(i32, fixture_run(&f, 1, 1).fail_class, FAIL_NONE));
    cr_assert(eq(int, strncmp(mock_post(f.server, 2), "POST /v1/completions ", 21), 0));
    fixture_stop(&f);
}

static void expect_redirect_fails(const char *answer, const char *option, int status, int posts) {
    struct fixture *f = calloc(1, sizeof *f);
    const struct mock_step moved[] = {{MOCK_SEND, answer, 0}, {MOCK_END, NULL, 0}};
    const struct mock_step *const replies[] = {moved, NULL};
    fixture_start(f, &(struct mock_config){.replies = replies}, OPTIONS(option));
    cr_assert(eq(i32, fixture_run(f, 0, 1).fail_class, FAIL_HTTP_STATUS));
    cr_assert(eq(i64, fixture_b(f, fixture_event(f, EVENT_FAIL, 0, 0)), status));
    cr_assert(eq(int, fixture_count(f, EVENT_FAIL, 0), 1));
    cr_assert(eq(int, mock_posts(f->server), posts));
    fixture_stop(f);
    free(f);
}

Test(backends_http_wire, redirects_that_are_failures, .timeout = 30) {
#define TO_SELF(status) "HTTP/1.1 " status "\r\nLocation: /v1/completions\r\nContent-Length: 0\r\n\r\n"
    expect_redirect_fails(TO_SELF("307 Loop"), "redirects=0", 307, 1);
    expect_redirect_fails(TO_SELF("307 Loop"), "redirects=2", 307, 3);
    expect_redirect_fails(TO_SELF("302 Found"), "redirects=2", 302, 1);
    expect_redirect_fails(TO_SELF("303 See"), "redirects=2", 303, 1);
    expect_redirect_fails("HTTP/1.1 307 Nowhere\r\nContent-Length: 0\r\n\r\n", "redirects=2", 307, 1);
    expect_redirect_fails("HTTP/1.1 307 File\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n", "redirects=2", 307, 1);
}

Test(backends_http_wire, what_a_redirect_may_do) {
    static const struct {
        const char *from, *to;
        bool allowed, same;
    } rows[] = {
        {"http://a:1/v1", "http://a:1/v2?x", true, true},
        {"https://a/v1", "https://A:443/", true, true},
        {"http://a/v1", "http://a:80/", true, true},
        {"http://a/v1", "http://a:81/", true, false},
        {"http://a/v1", "http://b/", true, false},
        {"http://a/v1", "https://a/", true, false},
        {"https://a/v1", "http://a/", false, false},
        {"https://a/v1", "ftp://a/", false, false},
        {"http://a/v1", "file:///etc/passwd", false, false},
        {"http://a/v1", "http://a.b/", true, false},
        {"http://a/v1", "nonsense://", false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool same;
        cr_assert(eq(int, redirect_allowed(rows[i].from, rows[i].to, &same), rows[i].allowed), "%s", rows[i].to);
        cr_assert(eq(int, same, rows[i].same), "%s", rows[i].to);
    }
}

/* The question before the run follows too, and tells no secret either. */
Test(backends_http_wire, the_probe_follows_when_asked, .timeout = 20) {
    static struct fixture f;
    char location[128];
    struct mock *other = mock_start(&(struct mock_config){.replies = good_replies, .models = "{\"data\":[{\"id\":\"there\"}]}"});
    snprintf(location, sizeof location, "Location: http://127.0.0.1:%d/v1/models\r\n", mock_port(other));
    setenv("MOCK_KEY", "sk-secret", 1);
    fixture_start(&f, &(struct mock_config){.replies = good_replies, .models_status = "307 There", .models_headers = location},
                  OPTIONS("redirects=1", "api_key_env=MOCK_KEY"));
    struct backend_info info;
    cr_assert(zero(int, backend_http.describe(f.backend, &info, &f.err)));
    cr_assert(eq(str, info.model_id, "there"));
    json_decref(info.details);
    cr_assert(ne(ptr, (void *)strstr(mock_get(f.server), "sk-secret"), NULL));
    cr_assert(eq(ptr, (void *)strstr(mock_get(other), "sk-secret"), NULL));
    fixture_stop(&f);
    mock_stop(other);
}

/* ---- answers before the answer, and lines behind it ---- */

#define SUCCEEDS(name, options, tokens, ...)                                                       \
    Test(backends_http_wire, name, .timeout = 30) {                                                \
        PLAY(f, options, __VA_ARGS__);                                                             \
        struct completion c = fixture_run(&f, 0, tokens);                                          \
        cr_assert(eq(str, (char *)fail_class_name(c.fail_class), (char *)fail_class_name(FAIL_NONE))); \
        cr_assert(eq(u32, c.output_tokens, tokens));                                               \
        cr_assert(eq(int, fixture_count(&f, EVENT_DONE, 0), 1));                                   \
        cr_assert(zero(i64, fixture_counter(&f, "not_streamed")));                                 \
        fixture_stop(&f);                                                                          \
    }

#define EVENT_STREAM "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
#define CHAT(delta) "{\"choices\":[{\"index\":0,\"delta\":{" delta "},\"finish_reason\":null}]}"
static const char *const chat[] = {"api=chat", NULL};

// clang-format off: a stream a row
SUCCEEDS(interim_answers_are_not_the_answer, NULL, 1,
         {MOCK_SEND, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n\r\n"},
         {MOCK_SLEEP, NULL, 10}, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST})
SUCCEEDS(trailers_change_nothing, NULL, 1, {MOCK_HEAD, "Trailer: X-Checksum\r\n"}, {MOCK_EVENT, TEXT("a")}, {MOCK_EVENT, "[DONE]"},
         {MOCK_SEND, "0\r\nX-Checksum: 1\r\nContent-Type: application/json\r\nRetry-After: 3\r\n\r\n"})
SUCCEEDS(byte_by_byte_with_mark_cr_and_comments, NULL, 2,
         {MOCK_SEND, EVENT_STREAM "\xEF\xBB\xBF: hello\r\rdata: " TEXT("h\xC3\xA9\xE2\x80\xA8") "\r\r: ping\r\rdata: " TEXT("\xF0\x9F\x98\x80") "\r\rdata: [DONE]\r\r", 1},
         {MOCK_CLOSE})
SUCCEEDS(finish_reason_ends_a_stream_without_done_mark, chat, 2, {MOCK_HEAD},
         {MOCK_EVENT, CHAT("\"role\":\"assistant\",\"content\":\"\"")}, {MOCK_EVENT, CHAT("\"content\":\"a\"")}, {MOCK_EVENT, CHAT("\"content\":\"b\"")},
         {MOCK_EVENT, "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}"}, {MOCK_LAST})
SUCCEEDS(repeated_usage_the_last_counts, NULL, 3, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a b c")},
         {MOCK_EVENT, "{\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":2}}"},
         {MOCK_EVENT, "{\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":3}}"},
         {MOCK_EVENT, "{\"choices\":[],\"usage\":{\"completion_tokens\":null}}"}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST})
SUCCEEDS(several_choices_in_one_event, NULL, 3, {MOCK_HEAD},
         {MOCK_EVENT, "{\"choices\":[{\"index\":0,\"text\":\"a\",\"token_ids\":[1]},{\"index\":1,\"text\":\"b\",\"token_ids\":[2,3]}]}"},
         {MOCK_EVENT, "[DONE]"}, {MOCK_LAST})
SUCCEEDS(interleaved_choices, NULL, 3, {MOCK_HEAD}, {MOCK_EVENT, "{\"choices\":[{\"index\":1,\"text\":\"a\"}]}"}, {MOCK_EVENT, TEXT("b")},
         {MOCK_EVENT, "{\"choices\":[{\"index\":1,\"text\":\"c\"}]}"}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST})

/* ---- failures ---- */

#define FAILS(name, options, class, tokens, ...)                                                   \
    Test(backends_http_wire, name, .timeout = 30) {                                                \
        PLAY(f, options, __VA_ARGS__);                                                             \
        struct completion c = fixture_run(&f, 0, 2);                                               \
        cr_assert(eq(str, (char *)fail_class_name(c.fail_class), (char *)fail_class_name(class))); \
        cr_assert(eq(int, fixture_count(&f, EVENT_TOKENS, 0), tokens));                            \
        cr_assert(eq(int, fixture_count(&f, EVENT_FAIL, 0), 1));                                   \
        cr_assert(zero(int, fixture_count(&f, EVENT_DONE, 0)));                                    \
        fixture_stop(&f);                                                                          \
    }
FAILS(compressed_in_an_unknown_way, NULL, FAIL_BAD_SSE, 0, {MOCK_HEAD, "Content-Encoding: dream\r\n"}, {MOCK_EVENT, TEXT("a")}, {MOCK_LAST})
FAILS(compressed_wrongly, NULL, FAIL_BAD_SSE, 0, {MOCK_HEAD, "Content-Encoding: gzip\r\n"}, {MOCK_EVENT, TEXT("a")}, {MOCK_LAST})
FAILS(compressed_and_cut, NULL, FAIL_TRUNCATED, 1, {MOCK_HEAD, "Content-Encoding: gzip\r\n"}, BYTES(gz_a), {MOCK_CLOSE})
FAILS(compressed_without_end, NULL, FAIL_NO_TERMINATOR, 1, {MOCK_HEAD, "Content-Encoding: gzip\r\n"}, BYTES(gz_a), {MOCK_LAST})
FAILS(interim_answer_and_no_more, NULL, FAIL_RESET, 0, {MOCK_SEND, "HTTP/1.1 100 Continue\r\n\r\n"}, {MOCK_CLOSE})
FAILS(role_and_finish_only, chat, FAIL_NO_OUTPUT, 0, {MOCK_HEAD}, {MOCK_EVENT, CHAT("\"role\":\"assistant\",\"content\":\"\"")},
      {MOCK_EVENT, "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}"}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST})
FAILS(usage_only, NULL, FAIL_NO_OUTPUT, 0, {MOCK_HEAD}, {MOCK_EVENT, "{\"choices\":[],\"usage\":{\"completion_tokens\":5}}"}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST})
// clang-format on
