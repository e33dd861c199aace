/* The http backend against a scripted server: stamps, token counts, and every class of failure of
 * openai-streaming.md section 5. */
#include "harness/core/clock.h"
#include "tests/backends/http_fixture.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#define TEXT(s) "{\"choices\":[{\"index\":0,\"text\":\"" s "\",\"finish_reason\":null}]}"
#define FINISH "{\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"length\"}]}"
#define USAGE(p, c)                                                                                \
    "{\"choices\":[],\"usage\":{\"prompt_tokens\":" #p ",\"completion_tokens\":" #c "}}"

#define REPLY(name, ...) static const struct mock_step name[] = {__VA_ARGS__, {MOCK_END, NULL, 0}}
#define PLAY(f, options, ...)                                                                      \
    static const struct mock_step steps[] = {__VA_ARGS__, {MOCK_END, NULL, 0}};                    \
    static const struct mock_step *const replies[] = {steps, NULL};                                \
    static struct fixture f;                                                                       \
    fixture_start(&f, &(struct mock_config){.replies = replies}, options)

Test(backends_http_stream, three_tokens, .timeout = 20) {
    PLAY(f, NULL, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_SLEEP, NULL, 20},
         {MOCK_EVENT, TEXT("b")}, {MOCK_SLEEP, NULL, 20}, {MOCK_EVENT, TEXT("c")},
         {MOCK_EVENT, FINISH}, {MOCK_EVENT, USAGE(4, 3)}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    struct completion c = fixture_run(&f, 5, 3);
    cr_assert(eq(i32, c.fail_class, FAIL_NONE));
    cr_assert(eq(u32, c.output_tokens, 3));
    cr_assert(eq(int, fixture_count(&f, EVENT_SENT, 5), 1));
    cr_assert(eq(int, fixture_count(&f, EVENT_TOKENS, 5), 3));
    int done = fixture_event(&f, EVENT_DONE, 5, 0);
    cr_assert(ge(int, done, 0));
    cr_assert(eq(i64, f.block.a[done], 3));
    cr_assert(eq(i64, fixture_b(&f, done), 4));
    for (int k = 0; k < 3; k++) {
        int i = fixture_event(&f, EVENT_TOKENS, 5, k);
        cr_assert(eq(i64, f.block.a[i], 1));
        cr_assert(eq(i64, fixture_b(&f, i), 0));
        cr_assert(gt(int, i, fixture_event(&f, EVENT_SENT, 5, 0)));
    }
    /* the second token cannot be stamped before the server's pause was over */
    int64_t first = f.block.time_ns[fixture_event(&f, EVENT_TOKENS, 5, 0)];
    cr_assert(ge(i64, f.block.time_ns[fixture_event(&f, EVENT_TOKENS, 5, 1)] - first, 19000000));
    fixture_stop(&f);
}

/* ---- how long a stamp can be late ---- */

Test(backends_http_stream, every_stamp_has_a_bound, .timeout = 20) {
    PLAY(f, NULL, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_SLEEP, NULL, 20},
         {MOCK_EVENT, TEXT("b")}, {MOCK_EVENT, USAGE(4, 2)}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    fixture_run(&f, 0, 2);
    for (int k = 0; k < 2; k++)
        cr_assert(gt(i64, fixture_bound(&f, fixture_event(&f, EVENT_TOKENS, 0, k)), 0));
    cr_assert(gt(i64, fixture_bound(&f, fixture_event(&f, EVENT_DONE, 0, 0)), 0));
    fixture_stop(&f);
}

/* A client that does other things while an answer lies there must own up to all of that time. */
Test(backends_http_stream, a_busy_clients_bound_covers_what_it_missed, .timeout = 20) {
    enum { BUSY_NS = 80000000 };
    PLAY(f, NULL, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_EVENT, USAGE(4, 1)},
         {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    struct request r = fixture_request(0, 4, 1);
    struct completion c;
    cr_assert(eq(int, fixture_submit(&f, &r), SUBMIT_QUEUED));
    for (int64_t end = clock_now_ns() + BUSY_NS; clock_now_ns() < end;)
        ;
    cr_assert(zero(int, fixture_wait(&f, &c, 1)), "%s", f.err.text);
    int first = fixture_event(&f, EVENT_TOKENS, 0, 0), sent = fixture_event(&f, EVENT_SENT, 0, 0);
    if (f.block.time_ns[sent] < f.block.time_ns[first] - BUSY_NS) /* else it was busy before sending */
        cr_assert(ge(i64, event_bound_ns(fixture_bound(&f, first)), BUSY_NS));
    fixture_stop(&f);
}

/* Without sleep there is no wake-up that nobody sees. */
Test(backends_http_stream, busy_poll_never_sleeps, .timeout = 20) {
    for (int on = 0; on < 2; on++) {
        static struct fixture f;
        static const struct mock_step steps[] = {
            {MOCK_HEAD, NULL, 0}, {MOCK_SLEEP, NULL, 80}, {MOCK_EVENT, TEXT("a"), 0},
            {MOCK_EVENT, USAGE(4, 1), 0}, {MOCK_EVENT, "[DONE]", 0}, {MOCK_LAST, NULL, 0}, {MOCK_END, NULL, 0}};
        static const struct mock_step *const replies[] = {steps, NULL};
        f = (struct fixture){0};
        fixture_start(&f, &(struct mock_config){.replies = replies},
                      (const char *const[]){on ? "busy_poll=on" : "busy_poll=off", NULL});
        cr_assert(eq(i32, fixture_run(&f, 0, 1).fail_class, FAIL_NONE));
        json_t *seen = backend_http.observe(f.backend);
        /* a sleep of 80 ms ends at its slice of 50 ms at least once, by the timer */
        cr_assert(eq(int, json_object_get(seen, "wake_ups") != NULL, !on));
        json_decref(seen);
        fixture_stop(&f);
    }
}

/* ---- how tokens are counted ---- */

Test(backends_http_stream, events_of_one_read_share_a_stamp, .timeout = 20) {
    PLAY(f, NULL, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_SLEEP, NULL, 20},
         {MOCK_CHUNK, "data: " TEXT("b") "\n\ndata: " TEXT("c") "\n\n"}, {MOCK_SLEEP, NULL, 20},
         {MOCK_EVENT, TEXT("d")}, {MOCK_EVENT, USAGE(4, 4)}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    fixture_run(&f, 0, 4);
    int i[4];
    for (int k = 0; k < 4; k++)
        i[k] = fixture_event(&f, EVENT_TOKENS, 0, k);
    cr_assert(eq(i64, fixture_b(&f, i[0]), 0));
    cr_assert(eq(i64, fixture_b(&f, i[1]), TOKENS_COALESCED));
    cr_assert(eq(i64, fixture_b(&f, i[2]), TOKENS_COALESCED));
    cr_assert(eq(i64, fixture_b(&f, i[3]), 0));
    cr_assert(eq(i64, f.block.time_ns[i[1]], f.block.time_ns[i[2]]));
    cr_assert(eq(i64, fixture_counter(&f, "coalesced_token_events"), 2));
    fixture_stop(&f);
}

/* Two HTTP chunks in one TCP segment: one read, though libcurl hands them out one by one. */
Test(backends_http_stream, chunks_of_one_read_share_a_stamp, .timeout = 20) {
    PLAY(f, NULL, {MOCK_HEAD}, {MOCK_SLEEP, NULL, 20},
         {MOCK_SEND, "41\r\ndata: " TEXT("a") "\n\n\r\n41\r\ndata: " TEXT("b") "\n\n\r\n"},
         {MOCK_SLEEP, NULL, 20}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    cr_assert(eq(i32, fixture_run(&f, 0, 2).fail_class, FAIL_NONE));
    int a = fixture_event(&f, EVENT_TOKENS, 0, 0), b = fixture_event(&f, EVENT_TOKENS, 0, 1);
    cr_assert(eq(i64, f.block.time_ns[a], f.block.time_ns[b]));
    cr_assert(eq(i64, fixture_b(&f, a), TOKENS_COALESCED));
    cr_assert(eq(i64, fixture_b(&f, b), TOKENS_COALESCED));
    fixture_stop(&f);
}

/* The stamp belongs to the event's last byte. */
Test(backends_http_stream, split_event_has_the_last_bytes_time, .timeout = 20) {
    PLAY(f, NULL, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_SLEEP, NULL, 10},
         {MOCK_CHUNK, "data: {\"choices\":[{\"te"}, {MOCK_SLEEP, NULL, 50},
         {MOCK_CHUNK, "xt\":\"b\"}]}\n"}, {MOCK_SLEEP, NULL, 50}, {MOCK_CHUNK, "\n"},
         {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    fixture_run(&f, 0, 2);
    int64_t a = f.block.time_ns[fixture_event(&f, EVENT_TOKENS, 0, 0)];
    int64_t b = f.block.time_ns[fixture_event(&f, EVENT_TOKENS, 0, 1)];
    cr_assert(ge(i64, b - a, 105000000));
    fixture_stop(&f);
}

Test(backends_http_stream, role_only_and_empty_are_no_tokens, .timeout = 20) {
    static const char *const chat[] = {"api=chat", NULL};
    PLAY(f, chat, {MOCK_HEAD},
         {MOCK_EVENT, "{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}"},
         {MOCK_EVENT, "{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null}}]}"},
         {MOCK_EVENT, "{\"choices\":[],\"usage\":null}"}, {MOCK_CHUNK, ": PROCESSING\n\n"},
         {MOCK_SLEEP, NULL, 30},
         {MOCK_EVENT, "{\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}"},
         {MOCK_EVENT, "{\"choices\":[{\"delta\":{\"content\":\"yes\"}}]}"},
         {MOCK_EVENT, "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{"
                      "\"arguments\":\"\"}}]}}]}"},
         {MOCK_EVENT, "{\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}"},
         {MOCK_EVENT, "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":12,"
                      "\"prompt_tokens_details\":{\"cached_tokens\":8},\"completion_tokens_"
                      "details\":{\"reasoning_tokens\":5}}}"},
         {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    struct completion c = fixture_run(&f, 0, 12);
    cr_assert(eq(u32, c.output_tokens, 12));
    cr_assert(eq(int, fixture_count(&f, EVENT_TOKENS, 0), 3));
    const int64_t none = ~(int64_t)TOKENS_COALESCED;
    cr_assert(eq(i64, fixture_b(&f, fixture_event(&f, EVENT_TOKENS, 0, 0)) & none, TOKENS_REASONING));
    cr_assert(eq(i64, fixture_b(&f, fixture_event(&f, EVENT_TOKENS, 0, 1)) & none, 0));
    cr_assert(eq(i64, fixture_b(&f, fixture_event(&f, EVENT_TOKENS, 0, 2)) & none, TOKENS_TOOL_CALL));
    int u = fixture_event(&f, EVENT_USAGE, 0, 0), done = fixture_event(&f, EVENT_DONE, 0, 0);
    cr_assert(eq(i64, f.block.a[u], 8));
    cr_assert(eq(i64, fixture_b(&f, u), 5));
    cr_assert(lt(int, u, done));
    cr_assert(eq(i64, fixture_counter(&f, "comments"), 1));
    fixture_stop(&f);
}

Test(backends_http_stream, token_ids_count_first, .timeout = 20) {
    PLAY(f, NULL, {MOCK_HEAD},
         {MOCK_EVENT, "{\"choices\":[{\"text\":\"\",\"token_ids\":[5,6,7]}]}"},
         {MOCK_EVENT, "{\"choices\":[{\"text\":\"x\",\"token_ids\":[8]}]}"}, {MOCK_EVENT, FINISH},
         {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    struct completion c = fixture_run(&f, 0, 4);
    cr_assert(eq(u32, c.output_tokens, 4));
    cr_assert(eq(i64, f.block.a[fixture_event(&f, EVENT_TOKENS, 0, 0)], 3));
    cr_assert(eq(i64, f.block.a[fixture_event(&f, EVENT_TOKENS, 0, 1)], 1));
    cr_assert(eq(i64, fixture_counter(&f, "length_mismatch"), 0));
    fixture_stop(&f);
}

/* Continuous usage: the step of the cumulative count, role event (0) included. */
Test(backends_http_stream, growth_of_cumulative_usage, .timeout = 20) {
#define CUMULATIVE(text, n)                                                                        \
    "{\"choices\":[{\"text\":\"" text                                                              \
    "\"}],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":" #n "}}"
    PLAY(f, NULL, {MOCK_HEAD}, {MOCK_EVENT, CUMULATIVE("", 0)}, {MOCK_EVENT, CUMULATIVE("ab", 2)},
         {MOCK_EVENT, CUMULATIVE("", 3)}, {MOCK_EVENT, CUMULATIVE("cde", 7)}, {MOCK_EVENT, FINISH},
         {MOCK_EVENT, USAGE(4, 7)}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    struct completion c = fixture_run(&f, 0, 7);
    static const int64_t want[] = {2, 1, 4};
    cr_assert(eq(u32, c.output_tokens, 7));
    cr_assert(eq(int, fixture_count(&f, EVENT_TOKENS, 0), 3));
    for (int k = 0; k < 3; k++)
        cr_assert(eq(i64, f.block.a[fixture_event(&f, EVENT_TOKENS, 0, k)], want[k]));
    fixture_stop(&f);
}

/* A total that rides on the finish event is no token event. */
Test(backends_http_stream, usage_on_the_finish_event_is_no_token, .timeout = 20) {
    PLAY(f, NULL, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_EVENT, TEXT("b")},
         {MOCK_EVENT, "{\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}],\"usage\":{"
                      "\"completion_tokens\":2}}"},
         {MOCK_LAST});
    struct completion c = fixture_run(&f, 0, 2);
    cr_assert(eq(u32, c.output_tokens, 2));
    cr_assert(eq(int, fixture_count(&f, EVENT_TOKENS, 0), 2));
    fixture_stop(&f);
}

Test(backends_http_stream, without_usage_events_are_counted_and_told, .timeout = 20) {
    PLAY(f, NULL, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_EVENT, TEXT("b")},
         {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    struct completion c = fixture_run(&f, 0, 2);
    cr_assert(eq(u32, c.output_tokens, 2));
    cr_assert(eq(i64, fixture_counter(&f, "requests_without_usage"), 1));
    json_t *seen = backend_http.observe(f.backend);
    cr_assert(eq(sz, json_array_size(json_object_get(seen, "warnings")), 1));
    json_decref(seen);
    fixture_stop(&f);
}

Test(backends_http_stream, usage_after_done_still_counts, .timeout = 20) {
    PLAY(f, NULL, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_EVENT, "[DONE]"},
         {MOCK_EVENT, USAGE(4, 9)}, {MOCK_EVENT, TEXT("late")}, {MOCK_LAST});
    struct completion c = fixture_run(&f, 0, 9);
    cr_assert(eq(u32, c.output_tokens, 9));
    cr_assert(eq(int, fixture_count(&f, EVENT_TOKENS, 0), 1));
    fixture_stop(&f);
}

Test(backends_http_stream, missing_final_blank_line_is_used_and_told, .timeout = 20) {
    PLAY(f, NULL, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_CHUNK, "data: [DONE]"}, {MOCK_LAST});
    cr_assert(eq(i32, fixture_run(&f, 0, 1).fail_class, FAIL_NONE));
    cr_assert(eq(i64, fixture_counter(&f, "missing_final_blank_line"), 1));
    fixture_stop(&f);
}

Test(backends_http_stream, one_document_has_no_first_token, .timeout = 20) {
    PLAY(f, NULL,
         {MOCK_SEND,
          "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 92\r\n\r\n"
          "{\"choices\":[{\"text\":\"abc\",\"finish_reason\":\"length\"}],\"usage\":{\"completion_"
          "tokens\":3       }}"});
    struct completion c = fixture_run(&f, 0, 3);
    cr_assert(eq(i32, c.fail_class, FAIL_NONE));
    cr_assert(eq(u32, c.output_tokens, 3));
    cr_assert(eq(int, fixture_count(&f, EVENT_TOKENS, 0), 0));
    cr_assert(eq(i64, fixture_counter(&f, "not_streamed"), 1));
    fixture_stop(&f);
}

Test(backends_http_stream, not_streaming, .timeout = 20) {
    static const char *const options[] = {"stream=off", "api=chat", NULL};
    PLAY(f, options,
         {MOCK_SEND,
          "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 93\r\n\r\n"
          "{\"choices\":[{\"message\":{\"content\":\"abc\"}}],\"usage\":{\"completion_tokens\":3,"
          "\"prompt_tokens\":2}}"});
    struct completion c = fixture_run(&f, 0, 3);
    cr_assert(eq(u32, c.output_tokens, 3));
    cr_assert(eq(int, fixture_count(&f, EVENT_TOKENS, 0), 0));
    cr_assert(eq(int, fixture_count(&f, EVENT_SENT, 0), 1));
    cr_assert(ne(ptr, (void *)strstr(mock_post(f.server, 0), "\"stream\":false"), NULL));
    fixture_stop(&f);
}

/* ---- failures ---- */

#define FAILS(name, options, class, http, tokens, ...)                                             \
    Test(backends_http_faults, name, .timeout = 20) {                                              \
        PLAY(f, options, __VA_ARGS__);                                                             \
        struct completion c = fixture_run(&f, 0, 3);                                               \
        cr_assert(eq(str, (char *)fail_class_name(c.fail_class), (char *)fail_class_name(class))); \
        cr_assert(eq(u32, c.output_tokens, 0));                                                    \
        int fail = fixture_event(&f, EVENT_FAIL, 0, 0);                                            \
        cr_assert(ge(int, fail, 0));                                                               \
        cr_assert(eq(i64, f.block.a[fail], class));                                                \
        cr_assert(eq(i64, fixture_b(&f, fail), http));                                                 \
        cr_assert(eq(int, fixture_count(&f, EVENT_TOKENS, 0), tokens));                            \
        cr_assert(zero(int, fixture_count(&f, EVENT_DONE, 0)));                                    \
        fixture_stop(&f);                                                                          \
    }

#define JSON_HEAD(status, n)                                                                       \
    "HTTP/1.1 " status "\r\nContent-Type: application/json\r\nContent-Length: " #n "\r\n\r\n"

// clang-format off: a fault a row
FAILS(status_429, NULL, FAIL_HTTP_STATUS, 429, 0,
      {MOCK_SEND, "HTTP/1.1 429 Too Many\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}"})
FAILS(status_503_html, NULL, FAIL_HTTP_STATUS, 503, 0,
      {MOCK_SEND,
       "HTTP/1.1 503 Busy\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>"})
FAILS(status_400_json, NULL, FAIL_HTTP_STATUS, 400, 0,
      {MOCK_SEND, JSON_HEAD("400 Bad", 27) "{\"error\":{\"message\":\"bad\"}}"})
FAILS(status_500_then_reset, NULL, FAIL_HTTP_STATUS, 500, 0,
      {MOCK_SEND, "HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\nx"}, {MOCK_SLEEP, NULL, 20},
      {MOCK_RESET})
FAILS(redirect, NULL, FAIL_HTTP_STATUS, 307, 0,
      {MOCK_SEND,
       "HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"})
FAILS(error_event_before_tokens, NULL, FAIL_IN_BAND_ERROR, 200, 0, {MOCK_HEAD},
      {MOCK_EVENT, "{\"error\":{\"message\":\"too long\",\"code\":400}}"}, {MOCK_EVENT, "[DONE]"},
      {MOCK_LAST})
FAILS(error_event_mid_stream, NULL, FAIL_IN_BAND_ERROR, 200, 2, {MOCK_HEAD},
      {MOCK_EVENT, TEXT("a")}, {MOCK_EVENT, TEXT("b")},
      {MOCK_EVENT, "{\"error\":\"out of memory\",\"error_type\":\"generation\"}"},
      {MOCK_EVENT, TEXT("c")}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST})
FAILS(error_by_object, NULL, FAIL_IN_BAND_ERROR, 200, 0, {MOCK_HEAD},
      {MOCK_EVENT, "{\"object\":\"error\",\"message\":\"no\"}"}, {MOCK_EVENT, "[DONE]"},
      {MOCK_LAST})
FAILS(error_by_type, NULL, FAIL_IN_BAND_ERROR, 200, 0, {MOCK_HEAD},
      {MOCK_EVENT, "{\"type\":\"error\"}"}, {MOCK_LAST})
FAILS(error_by_event_name, NULL, FAIL_IN_BAND_ERROR, 200, 1, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")},
      {MOCK_CHUNK, "event: error\ndata: oops\n\n"}, {MOCK_LAST})
FAILS(error_in_one_document, NULL, FAIL_IN_BAND_ERROR, 200, 0,
      {MOCK_SEND, JSON_HEAD("200 OK", 27) "{\"error\":{\"message\":\"bad\"}}"})
FAILS(error_then_silence, ((const char *const[]){"timeout_drain=50ms", NULL}), FAIL_IN_BAND_ERROR,
      200, 1, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_EVENT, "{\"error\":\"x\"}"}, {MOCK_HANG})
FAILS(done_without_tokens, NULL, FAIL_NO_OUTPUT, 200, 0, {MOCK_HEAD}, {MOCK_EVENT, "[DONE]"},
      {MOCK_LAST})
FAILS(finish_without_tokens, NULL, FAIL_NO_OUTPUT, 200, 0, {MOCK_HEAD}, {MOCK_EVENT, FINISH},
      {MOCK_EVENT, USAGE(4, 0)}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST})
FAILS(done_without_tokens_then_silence, ((const char *const[]){"timeout_drain=50ms", NULL}),
      FAIL_NO_OUTPUT, 200, 0, {MOCK_HEAD}, {MOCK_EVENT, "[DONE]"}, {MOCK_HANG})
FAILS(empty_body, NULL, FAIL_NO_OUTPUT, 200, 0, {MOCK_HEAD}, {MOCK_LAST})
FAILS(empty_document, NULL, FAIL_NO_OUTPUT, 200, 0, {MOCK_SEND, JSON_HEAD("200 OK", 0)})
FAILS(only_comments, NULL, FAIL_NO_OUTPUT, 200, 0, {MOCK_HEAD},
      {MOCK_CHUNK, ": wait\n\n: wait\n\n"}, {MOCK_LAST})
FAILS(no_terminator, NULL, FAIL_NO_TERMINATOR, 200, 2, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")},
      {MOCK_EVENT, TEXT("b")}, {MOCK_LAST})
FAILS(no_terminator_by_close, NULL, FAIL_NO_TERMINATOR, 200, 1,
      {MOCK_SEND,
       "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: " TEXT("a") "\n\n"},
      {MOCK_CLOSE})
FAILS(truncated_between_chunks, NULL, FAIL_TRUNCATED, 200, 1, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")},
      {MOCK_CLOSE})
FAILS(truncated_in_a_chunk, NULL, FAIL_TRUNCATED, 200, 1, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")},
      {MOCK_SEND, "40\r\ndata: {\"cho"}, {MOCK_CLOSE})
FAILS(truncated_after_finish, NULL, FAIL_TRUNCATED, 200, 1, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")},
      {MOCK_EVENT, FINISH}, {MOCK_CLOSE})
FAILS(truncated_document, NULL, FAIL_TRUNCATED, 200, 0,
      {MOCK_SEND, JSON_HEAD("200 OK", 500) "{\"choices\":[{\"text\":\"a\"}]}"}, {MOCK_CLOSE})
FAILS(reset_before_the_answer, NULL, FAIL_RESET, 0, 0, {MOCK_SLEEP, NULL, 10}, {MOCK_RESET})
FAILS(close_before_the_answer, NULL, FAIL_RESET, 0, 0, {MOCK_SLEEP, NULL, 10}, {MOCK_CLOSE})
FAILS(reset_mid_stream, NULL, FAIL_RESET, 200, 1, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")},
      {MOCK_SLEEP, NULL, 30}, {MOCK_RESET})
FAILS(bad_json, NULL, FAIL_BAD_JSON, 200, 1, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")},
      {MOCK_EVENT, "{\"choices\":[{\"text\":\"b\"]}"}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST})
FAILS(no_object, NULL, FAIL_BAD_JSON, 200, 0, {MOCK_HEAD}, {MOCK_EVENT, "[1,2]"}, {MOCK_LAST})
FAILS(document_is_no_json, NULL, FAIL_BAD_JSON, 200, 0, {MOCK_SEND, JSON_HEAD("200 OK", 5) "hello"})
FAILS(html_instead_of_events, NULL, FAIL_BAD_SSE, 200, 0,
      {MOCK_SEND,
       "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 14\r\n\r\n<html>\n</html>"})
FAILS(json_messages_without_data, NULL, FAIL_BAD_SSE, 200, 0, {MOCK_HEAD},
      {MOCK_CHUNK, "{\"text\": \"a\"}\n{\"text\": \"b\"}\n"}, {MOCK_LAST})
FAILS(garbage_bytes, NULL, FAIL_BAD_SSE, 0, 0,
      {MOCK_SEND, "\x01\x02\xff\xfe garbage \r\n\r\n more"}, {MOCK_CLOSE})
FAILS(garbage_body, NULL, FAIL_BAD_SSE, 200, 0, {MOCK_HEAD},
      {MOCK_CHUNK, "\x01\x02\xff\xfe\n\n\x1f\x8b\x08"}, {MOCK_LAST})
FAILS(garbage_chunk_size, NULL, FAIL_BAD_SSE, 200, 1, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")},
      {MOCK_SLEEP, NULL, 20}, {MOCK_SEND, "xyz\r\n"})
FAILS(first_token_timeout, ((const char *const[]){"timeout_first_token=60ms", NULL}),
      FAIL_TIMEOUT_FIRST_TOKEN, 0, 0, {MOCK_HANG})
FAILS(first_token_timeout_after_role, ((const char *const[]){"timeout_first_token=60ms", NULL}),
      FAIL_TIMEOUT_FIRST_TOKEN, 200, 0, {MOCK_HEAD}, {MOCK_EVENT, TEXT("")}, {MOCK_HANG})
FAILS(idle_timeout, ((const char *const[]){"timeout_idle=60ms", NULL}), FAIL_TIMEOUT_IDLE, 200, 1,
      {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_HANG})
FAILS(total_timeout, ((const char *const[]){"timeout_total=80ms", NULL}), FAIL_TIMEOUT_TOTAL, 200,
      1, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_SLEEP, NULL, 30}, {MOCK_CHUNK, ": alive\n\n"},
      {MOCK_HANG})
FAILS(length_mismatch_when_fatal, ((const char *const[]){"verify_length=fail", NULL}),
      FAIL_LENGTH_MISMATCH, 200, 1, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_EVENT, USAGE(4, 1)},
      {MOCK_EVENT, "[DONE]"}, {MOCK_LAST})
FAILS(huge_event, ((const char *const[]){"max_event=1024", NULL}), FAIL_BAD_SSE, 200, 1,
      {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")},
      {MOCK_SEND, "ffffff\r\ndata: {\"choices\":[{\"text\":\""},
#define X64 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
      {MOCK_SEND, X64 X64 X64 X64 X64 X64 X64 X64 X64 X64 X64 X64 X64 X64 X64 X64 X64}, {MOCK_HANG})

// clang-format on
Test(backends_http_faults, idle_is_reset_by_comments, .timeout = 20) {
    static const char *const options[] = {"timeout_idle=100ms", NULL};
    PLAY(f, options, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_SLEEP, NULL, 60},
         {MOCK_CHUNK, ": a\n\n"}, {MOCK_SLEEP, NULL, 60}, {MOCK_CHUNK, ": b\n\n"},
         {MOCK_SLEEP, NULL, 60}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    cr_assert(eq(i32, fixture_run(&f, 0, 1).fail_class, FAIL_NONE));
    fixture_stop(&f);
}

Test(backends_http_faults, done_then_silence_is_success, .timeout = 20) {
    static const char *const options[] = {"timeout_drain=50ms", NULL};
    PLAY(f, options, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_EVENT, "[DONE]"}, {MOCK_HANG});
    cr_assert(eq(i32, fixture_run(&f, 0, 1).fail_class, FAIL_NONE));
    cr_assert(eq(i64, fixture_counter(&f, "unclean_close"), 1));
    fixture_stop(&f);
}

Test(backends_http_faults, length_mismatch_is_told, .timeout = 20) {
    PLAY(f, NULL, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_EVENT, USAGE(4, 1)},
         {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    cr_assert(eq(i32, fixture_run(&f, 0, 3).fail_class, FAIL_NONE));
    cr_assert(eq(i64, fixture_counter(&f, "length_mismatch"), 1));
    fixture_stop(&f);
}

/* A server that was told to stop after 3 tokens and sent one cannot have made four billion. */
Test(backends_http_faults, usage_beyond_all_belief_is_not_published, .timeout = 20) {
    PLAY(f, NULL, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_EVENT, USAGE(9000000000, 4000000000)},
         {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    struct completion c = fixture_run(&f, 0, 3);
    cr_assert(eq(i32, c.fail_class, FAIL_NONE));
    cr_assert(eq(u32, c.output_tokens, 3));
    int done = fixture_event(&f, EVENT_DONE, 0, 0);
    cr_assert(eq(i64, f.block.a[done], 3));
    cr_assert(eq(i64, fixture_b(&f, done), 0)); /* as issued */
    cr_assert(eq(i64, fixture_counter(&f, "usage_beyond_asked"), 1));
    cr_assert(eq(i64, fixture_counter(&f, "prompt_usage_beyond_sent"), 1));
    cr_assert(eq(i64, fixture_counter(&f, "length_mismatch"), 1));
    fixture_stop(&f);
}

/* What a server sends beyond what was asked is there, and counts. */
Test(backends_http_faults, tokens_beyond_what_was_asked_count_when_they_arrive, .timeout = 20) {
    PLAY(f, NULL, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_EVENT, TEXT("b")},
         {MOCK_EVENT, TEXT("c")}, {MOCK_EVENT, USAGE(4, 3)}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    cr_assert(eq(u32, fixture_run(&f, 0, 2).output_tokens, 3));
    cr_assert(eq(i64, fixture_counter(&f, "usage_beyond_asked"), 0));
    cr_assert(eq(i64, fixture_counter(&f, "length_mismatch"), 1));
    fixture_stop(&f);
}

/* Cumulative usage that leaps, and parts larger than the whole, do not reach the event log. */
Test(backends_http_faults, leaps_of_cumulative_usage_are_one_token, .timeout = 20) {
    PLAY(f, NULL, {MOCK_HEAD}, {MOCK_EVENT, CUMULATIVE("a", 9000000000000000000)},
         {MOCK_EVENT, CUMULATIVE("b", 9000000000000000001)},
         {MOCK_EVENT, "{\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":2,"
                      "\"prompt_tokens_details\":{\"cached_tokens\":9000000000},"
                      "\"completion_tokens_details\":{\"reasoning_tokens\":9000000000}}}"},
         {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    cr_assert(eq(u32, fixture_run(&f, 0, 2).output_tokens, 2));
    for (int k = 0; k < 2; k++)
        cr_assert(eq(i64, f.block.a[fixture_event(&f, EVENT_TOKENS, 0, k)], 1));
    int usage = fixture_event(&f, EVENT_USAGE, 0, 0);
    cr_assert(eq(i64, f.block.a[usage], 4));
    cr_assert(eq(i64, fixture_b(&f, usage), 2));
    fixture_stop(&f);
}

/* The text of the first failure is kept, but never the key, though servers echo it. */
Test(backends_http_faults, first_error_hides_the_key, .timeout = 20) {
    static const char *const options[] = {"api_key_env=MOCK_KEY", NULL};
    setenv("MOCK_KEY", "sk-secret", 1);
    PLAY(f, options,
         {MOCK_SEND, JSON_HEAD("401 No", 37) "{\"error\":\"wrong key sk-secret given\"}"});
    cr_assert(eq(i32, fixture_run(&f, 0, 1).fail_class, FAIL_HTTP_STATUS));
    json_t *seen = backend_http.observe(f.backend);
    char *text = json_dumps(seen, 0);
    cr_assert(eq(ptr, (void *)strstr(text, "sk-secret"), NULL));
    cr_assert(ne(ptr, (void *)strstr(text, "wrong key *********"), NULL));
    cr_assert(ne(ptr, (void *)strstr(mock_post(f.server, 0), "Authorization: Bearer sk-secret\r\n"),
                 NULL));
    free(text);
    json_decref(seen);
    fixture_stop(&f);
}

Test(backends_http_faults, cancel, .timeout = 20) {
    PLAY(f, NULL, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_HANG});
    struct request r = fixture_request(3, 4, 5);
    struct completion c;
    int n;
    cr_assert(eq(int, fixture_submit(&f, &r), SUBMIT_QUEUED));
    int64_t until = backend_http.now(f.backend) + 50000000;
    cr_assert(zero(int, backend_http.wait(f.backend, until, &c, 1, &n, &f.stop, &f.err)));
    cr_assert(zero(int, n));
    cr_assert(ge(i64, backend_http.now(f.backend), until));
    backend_http.cancel(f.backend, 3);
    cr_assert(zero(int, fixture_wait(&f, &c, 1)));
    cr_assert(eq(i32, c.fail_class, FAIL_CANCELLED));
    cr_assert(eq(int, fixture_count(&f, EVENT_TOKENS, 3), 1));
    fixture_stop(&f);
}

Test(backends_http_faults, stop_interrupts, .timeout = 20) {
    PLAY(f, NULL, {MOCK_HANG});
    struct request r = fixture_request(3, 4, 5);
    struct completion c;
    int n;
    cr_assert(eq(int, fixture_submit(&f, &r), SUBMIT_QUEUED));
    f.stop = 1;
    cr_assert(eq(int, backend_http.wait(f.backend, INT64_MAX, &c, 1, &n, &f.stop, &f.err),
                 ASSAY_EINTERRUPTED));
    fixture_stop(&f);
}

/* A bad connection must not spoil the next request. */
Test(backends_http_faults, after_a_failure_the_next_succeeds, .timeout = 20) {
    REPLY(bad, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_SEND, "zz"}, {MOCK_RESET});
    REPLY(good, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    static const struct mock_step *const replies[] = {bad, good, NULL};
    static struct fixture f;
    fixture_start(&f, &(struct mock_config){.replies = replies}, NULL);
    cr_assert(ne(i32, fixture_run(&f, 0, 1).fail_class, FAIL_NONE));
    cr_assert(eq(i32, fixture_run(&f, 1, 1).fail_class, FAIL_NONE));
    cr_assert(eq(i32, fixture_run(&f, 2, 1).fail_class, FAIL_NONE));
    cr_assert(eq(i64, fixture_counter(&f, "cold_connections"), 2));
    fixture_stop(&f);
}

/* A reused connection that the server closes unanswered is tried again on a fresh one, and told. */
Test(backends_http_faults, retry_on_a_stale_connection_is_told, .timeout = 20) {
    REPLY(good, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    static const struct mock_step *const replies[] = {good, NULL};
    static struct fixture f;
    fixture_start(&f, &(struct mock_config){.replies = replies, .posts_before_idle_close = 1},
                  NULL);
    fixture_run(&f, 0, 1);
    cr_assert(eq(i32, fixture_run(&f, 1, 1).fail_class, FAIL_NONE));
    cr_assert(eq(i64, fixture_counter(&f, "retried"), 1));
    cr_assert(eq(int, fixture_count(&f, EVENT_SENT, 1), 2)); /* the last is the one that counts */
    cr_assert(eq(int, mock_posts(f.server), 3));
    fixture_stop(&f);
}
