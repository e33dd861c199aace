/* APIs beyond chat and completions against a scripted server: what is sent, how the stream is read, and
 * how it ends or fails. The streams are written by hand after the examples and schemas of
 * https://developers.openai.com/api/reference/resources/responses/streaming-events and
 * https://platform.claude.com/docs/en/build-with-claude/streaming. */
#include "backends/http/quirks.h"
#include "tests/backends/http_fixture.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLAY(f, options, ...)                                                                      \
    static const struct mock_step steps[] = {__VA_ARGS__, {MOCK_END, NULL, 0}};                    \
    static const struct mock_step *const replies[] = {steps, NULL};                                \
    static struct fixture f;                                                                       \
    fixture_start(&f, &(struct mock_config){.replies = replies}, options)

static const char *const responses[] = {"api=responses", NULL};
static const char *const messages[] = {"api=messages", NULL};

/* An event as both servers send it: its name, then data that names it again. */
#define EV(name, rest) "event: " name "\ndata: {\"type\":\"" name "\"" rest "}\n\n"

/* ---- Responses ---- */

#define CREATED                                                                                    \
    EV("response.created", ",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\",\"status\":"    \
                           "\"in_progress\",\"error\":null,\"output\":[],\"usage\":null}")         \
    EV("response.in_progress", ",\"sequence_number\":1,\"response\":{\"id\":\"resp_1\"}")          \
    EV("response.output_item.added",                                                               \
       ",\"output_index\":0,\"item\":{\"id\":\"msg_1\",\"type\":\"message\",\"content\":[]}")      \
    EV("response.content_part.added",                                                              \
       ",\"item_id\":\"msg_1\",\"part\":{\"type\":\"output_text\",\"text\":\"\"}")
#define R_TEXT(s)                                                                                  \
    EV("response.output_text.delta",                                                               \
       ",\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\"delta\":\"" s "\"")
#define R_THINK(s) EV("response.reasoning_summary_text.delta", ",\"summary_index\":0,\"delta\":\"" s "\"")
#define R_DONE                                                                                     \
    EV("response.output_text.done", ",\"item_id\":\"msg_1\",\"text\":\"all of it\"")               \
    EV("response.content_part.done", ",\"part\":{\"type\":\"output_text\",\"text\":\"all\"}")      \
    EV("response.output_item.done",                                                                \
       ",\"item\":{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"x\"}]}")
#define R_USAGE(in, out)                                                                           \
    "\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"all\"}]}"  \
    "],\"usage\":{\"input_tokens\":" #in ",\"input_tokens_details\":{\"cached_tokens\":2},"        \
    "\"output_tokens\":" #out ",\"output_tokens_details\":{\"reasoning_tokens\":1}}"
#define COMPLETED(in, out)                                                                         \
    EV("response.completed", ",\"response\":{\"status\":\"completed\"," R_USAGE(in, out) "}")

Test(backends_http_protocol, responses, .timeout = 20) {
    static const char *const options[] = {"api=responses", "api_key_env=MOCK_KEY", NULL};
    setenv("MOCK_KEY", "sk-secret", 1);
    PLAY(f, options, {MOCK_HEAD}, {MOCK_CHUNK, CREATED}, {MOCK_SLEEP, NULL, 10},
         {MOCK_CHUNK, R_THINK("hm")}, {MOCK_SLEEP, NULL, 10}, {MOCK_CHUNK, R_TEXT("Hi")},
         {MOCK_CHUNK, EV("response.dreams.delta", ",\"delta\":\"zzz\"")},
         {MOCK_CHUNK, R_TEXT("") R_TEXT("\\\"type\\\":\\\"error\\\"")}, {MOCK_CHUNK, R_DONE},
         {MOCK_CHUNK, COMPLETED(4, 3)}, {MOCK_LAST});
    struct completion c = fixture_run(&f, 0, 3);
    cr_assert(eq(str, (char *)fail_class_name(c.fail_class), (char *)fail_class_name(FAIL_NONE)));
    cr_assert(eq(u32, c.output_tokens, 3));
    cr_assert(eq(int, fixture_count(&f, EVENT_TOKENS, 0), 3));
    cr_assert(eq(i64, fixture_b(&f, fixture_event(&f, EVENT_TOKENS, 0, 0)), TOKENS_REASONING));
    int u = fixture_event(&f, EVENT_USAGE, 0, 0), done = fixture_event(&f, EVENT_DONE, 0, 0);
    cr_assert(eq(i64, f.block.a[u], 2));
    cr_assert(eq(i64, fixture_b(&f, u), 1));
    cr_assert(eq(i64, f.block.a[done], 3));
    cr_assert(eq(i64, fixture_b(&f, done), 4));
    cr_assert(zero(i64, fixture_counter(&f, "slow_scans")));

    const char *post = mock_post(f.server, 0), *body = strstr(post, "\r\n\r\n") + 4;
    cr_assert(zero(int, strncmp(post, "POST /v1/responses HTTP/1.1\r\n", 29)), "%s", post);
    cr_assert(ne(ptr, (void *)strstr(post, "\r\nAuthorization: Bearer sk-secret\r\n"), NULL));
    json_t *root = json_loads(body, JSON_REJECT_DUPLICATES, NULL);
    json_t *input = json_object_get(root, "input");
    cr_assert(eq(sz, json_array_size(input), 1));
    cr_assert(eq(str, (char *)json_string_value(json_object_get(json_array_get(input, 0), "role")), "user"));
    json_object_del(root, "input");
    json_t *want = json_loads("{\"model\":\"mock\",\"max_output_tokens\":3,\"temperature\":0,\"stream\":true}", 0, NULL);
    cr_assert(json_equal(root, want), "%s", body);
    json_decref(root);
    json_decref(want);
    fixture_stop(&f);
}

/* ---- Messages ---- */

#define START(in)                                                                                  \
    EV("message_start",                                                                            \
       ",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],"  \
       "\"model\":\"m\",\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":"  \
       #in ",\"cache_creation_input_tokens\":3,\"cache_read_input_tokens\":2,\"output_tokens\":1}}")
#define PING EV("ping", "")
#define BLOCK(i, rest) EV("content_block_start", ",\"index\":" #i ",\"content_block\":{" rest "}")
#define TEXT_BLOCK(i) BLOCK(i, "\"type\":\"text\",\"text\":\"\"")
#define DELTA(i, rest) EV("content_block_delta", ",\"index\":" #i ",\"delta\":{" rest "}")
#define M_TEXT(s) DELTA(0, "\"type\":\"text_delta\",\"text\":\"" s "\"")
#define BLOCK_STOP(i) EV("content_block_stop", ",\"index\":" #i)
#define M_DELTA(reason, out)                                                                       \
    EV("message_delta", ",\"delta\":{\"stop_reason\":\"" reason                                    \
                        "\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":" #out "}")
#define M_STOP EV("message_stop", "")

Test(backends_http_protocol, messages, .timeout = 20) {
    static const char *const options[] = {"api=messages", "api_key_env=MOCK_KEY", NULL};
    setenv("MOCK_KEY", "sk-secret", 1);
    PLAY(f, options, {MOCK_HEAD}, {MOCK_CHUNK, START(4) BLOCK(0, "\"type\":\"thinking\",\"thinking\":\"\"") PING},
         {MOCK_SLEEP, NULL, 10},
         {MOCK_CHUNK, DELTA(0, "\"type\":\"thinking_delta\",\"thinking\":\"hm\"")},
         {MOCK_CHUNK, DELTA(0, "\"type\":\"signature_delta\",\"signature\":\"EqQBCg==\"") BLOCK_STOP(0) TEXT_BLOCK(1)},
         {MOCK_SLEEP, NULL, 10}, {MOCK_CHUNK, DELTA(1, "\"type\":\"text_delta\",\"text\":\"Hello\"")},
         {MOCK_CHUNK, EV("dream", ",\"delta\":{\"text\":\"z\"}") BLOCK_STOP(1)},
         {MOCK_CHUNK, BLOCK(2, "\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"f\",\"input\":{}")},
         {MOCK_CHUNK, DELTA(2, "\"type\":\"input_json_delta\",\"partial_json\":\"\"")},
         {MOCK_CHUNK, DELTA(2, "\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"text\\\":\\\"x\\\"}\"") BLOCK_STOP(2)},
         {MOCK_CHUNK, M_DELTA("tool_use", 9)}, {MOCK_CHUNK, M_STOP}, {MOCK_LAST});
    struct completion c = fixture_run(&f, 0, 9);
    cr_assert(eq(str, (char *)fail_class_name(c.fail_class), (char *)fail_class_name(FAIL_NONE)));
    cr_assert(eq(u32, c.output_tokens, 9));
    static const int64_t flags[] = {TOKENS_REASONING, 0, TOKENS_TOOL_CALL, TOKENS_TOOL_CALL};
    cr_assert(eq(int, fixture_count(&f, EVENT_TOKENS, 0), 4));
    for (int k = 0; k < 4; k++)
        cr_assert(eq(i64, fixture_b(&f, fixture_event(&f, EVENT_TOKENS, 0, k)) & ~(int64_t)TOKENS_COALESCED, flags[k]));
    int u = fixture_event(&f, EVENT_USAGE, 0, 0), done = fixture_event(&f, EVENT_DONE, 0, 0);
    cr_assert(eq(i64, f.block.a[u], 2));
    cr_assert(eq(i64, fixture_b(&f, done), 4 + 3 + 2)); /* read from and written to a cache included */
    cr_assert(zero(i64, fixture_counter(&f, "slow_scans")));

    const char *post = mock_post(f.server, 0), *body = strstr(post, "\r\n\r\n") + 4;
    cr_assert(zero(int, strncmp(post, "POST /v1/messages HTTP/1.1\r\n", 28)), "%s", post);
    cr_assert(ne(ptr, (void *)strstr(post, "\r\nx-api-key: sk-secret\r\n"), NULL));
    cr_assert(ne(ptr, (void *)strstr(post, "\r\nanthropic-version: 2023-06-01\r\n"), NULL));
    cr_assert(eq(ptr, (void *)strstr(post, "Authorization"), NULL));
    json_t *root = json_loads(body, JSON_REJECT_DUPLICATES, NULL);
    cr_assert(eq(sz, json_array_size(json_object_get(root, "messages")), 1));
    json_object_del(root, "messages");
    json_t *want = json_loads("{\"model\":\"mock\",\"max_tokens\":9,\"temperature\":0,\"stream\":true}", 0, NULL);
    cr_assert(json_equal(root, want), "%s", body);
    json_decref(root);
    json_decref(want);
    fixture_stop(&f);
}

/* A turn of a session whose requests share a system prompt. */
Test(backends_http_protocol, messages_have_the_system_prompt_apart, .timeout = 20) {
    PLAY(f, messages, {MOCK_HEAD}, {MOCK_CHUNK, START(4) TEXT_BLOCK(0) M_TEXT("a") M_DELTA("max_tokens", 1) M_STOP}, {MOCK_LAST});
    struct request r = fixture_request(0, 10, 1);
    struct completion c;
    r.common = 4;
    r.common_seed = 2;
    r.session = 3;
    r.turns = 2;
    cr_assert(eq(int, fixture_submit(&f, &r), SUBMIT_QUEUED), "%s", f.err.text);
    cr_assert(zero(int, fixture_wait(&f, &c, 1)));
    r.id = 1;
    r.turn = 1;
    r.shared = 11;
    r.isl = 14;
    r.last_turn = true;
    cr_assert(eq(int, fixture_submit(&f, &r), SUBMIT_QUEUED), "%s", f.err.text);
    cr_assert(zero(int, fixture_wait(&f, &c, 1)));
    cr_assert(eq(i32, c.fail_class, FAIL_NONE));
    json_t *one = json_loads(strstr(mock_post(f.server, 0), "\r\n\r\n"), JSON_REJECT_DUPLICATES, NULL);
    json_t *two = json_loads(strstr(mock_post(f.server, 1), "\r\n\r\n"), JSON_REJECT_DUPLICATES, NULL);
    static const char *const roles[] = {"user", "assistant", "user"};
    json_t *all = json_object_get(two, "messages"), *m;
    size_t i;
    cr_assert(eq(sz, json_array_size(json_object_get(one, "messages")), 1));
    cr_assert(eq(sz, json_array_size(all), 3));
    json_array_foreach(all, i, m) cr_assert(eq(str, (char *)json_string_value(json_object_get(m, "role")), (char *)roles[i]));
    cr_assert(json_equal(json_array_get(all, 0), json_array_get(json_object_get(one, "messages"), 0)));
    cr_assert(gt(sz, json_string_length(json_object_get(one, "system")), 0));
    cr_assert(json_equal(json_object_get(one, "system"), json_object_get(two, "system")));
    json_decref(one);
    json_decref(two);
    fixture_stop(&f);
}

Test(backends_http_protocol, a_header_of_the_users_replaces_the_protocols, .timeout = 20) {
    static const char *const options[] = {"api=messages", "header=Anthropic-Version: 2099-01-01", NULL};
    PLAY(f, options, {MOCK_HEAD}, {MOCK_CHUNK, START(4) M_TEXT("a") M_STOP}, {MOCK_LAST});
    cr_assert(eq(i32, fixture_run(&f, 0, 1).fail_class, FAIL_NONE));
    cr_assert(ne(ptr, (void *)strstr(mock_post(f.server, 0), "Anthropic-Version: 2099-01-01\r\n"), NULL));
    cr_assert(eq(ptr, (void *)strstr(mock_post(f.server, 0), "2023-06-01"), NULL));
    fixture_stop(&f);
}

/* Every byte in a read of its own. */
#define PLAIN_HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
Test(backends_http_protocol, cut_at_every_byte, .timeout = 60) {
    static const struct mock_step r_steps[] = {
        {MOCK_SEND, PLAIN_HEAD CREATED R_THINK("\\u00e9") R_TEXT("h\xC3\xA9") R_DONE COMPLETED(4, 2), 1}, {MOCK_CLOSE, NULL, 0}};
    static const struct mock_step m_steps[] = {
        {MOCK_SEND, PLAIN_HEAD START(4) TEXT_BLOCK(0) PING M_TEXT("h\xC3\xA9") M_TEXT("y") BLOCK_STOP(0) M_DELTA("end_turn", 2) M_STOP, 1},
        {MOCK_CLOSE, NULL, 0}};
    static const struct mock_step *const r_replies[] = {r_steps, NULL}, *const m_replies[] = {m_steps, NULL};
    static struct fixture f[2];
    fixture_start(&f[0], &(struct mock_config){.replies = r_replies}, responses);
    fixture_start(&f[1], &(struct mock_config){.replies = m_replies}, messages);
    for (int i = 0; i < 2; i++) {
        struct completion c = fixture_run(&f[i], 0, 2);
        cr_assert(eq(i32, c.fail_class, FAIL_NONE), "%d", i);
        cr_assert(eq(u32, c.output_tokens, 2), "%d", i);
        cr_assert(eq(int, fixture_count(&f[i], EVENT_TOKENS, 0), 2), "%d", i);
        fixture_stop(&f[i]);
    }
}

/* ---- ends that are successes ---- */

#define SUCCEEDS(name, options, tokens, ...)                                                       \
    Test(backends_http_protocol, name, .timeout = 20) {                                            \
        PLAY(f, options, __VA_ARGS__);                                                             \
        struct completion c = fixture_run(&f, 0, 2);                                               \
        cr_assert(eq(str, (char *)fail_class_name(c.fail_class), (char *)fail_class_name(FAIL_NONE))); \
        cr_assert(eq(u32, c.output_tokens, tokens));                                               \
        cr_assert(eq(int, fixture_count(&f, EVENT_DONE, 0), 1));                                   \
        fixture_stop(&f);                                                                          \
    }

// clang-format off: an end a row
SUCCEEDS(responses_incomplete_by_length, responses, 2, {MOCK_HEAD}, {MOCK_CHUNK, CREATED R_TEXT("a") R_TEXT("b")},
         {MOCK_CHUNK, EV("response.incomplete", ",\"response\":{\"status\":\"incomplete\",\"incomplete_details\":{\"reason\":\"max_output_tokens\"}," R_USAGE(4, 2) "}")}, {MOCK_LAST})
SUCCEEDS(responses_end_in_silence, ((const char *const[]){"api=responses", "timeout_drain=50ms", NULL}), 1, {MOCK_HEAD},
         {MOCK_CHUNK, CREATED R_TEXT("a") COMPLETED(4, 1)}, {MOCK_HANG})
SUCCEEDS(responses_followed_by_a_done_mark, responses, 1, {MOCK_HEAD}, {MOCK_CHUNK, CREATED R_TEXT("a") COMPLETED(4, 1) "data: [DONE]\n\n"}, {MOCK_LAST})
SUCCEEDS(messages_at_length, messages, 2, {MOCK_HEAD}, {MOCK_CHUNK, START(4) TEXT_BLOCK(0) M_TEXT("a") M_TEXT("b") M_DELTA("max_tokens", 2) M_STOP}, {MOCK_LAST})
SUCCEEDS(messages_with_keys_in_another_order, messages, 2, {MOCK_HEAD},
         {MOCK_CHUNK, "data: {\"delta\":{\"text\":\"a\",\"type\":\"text_delta\"},\"index\":0,\"type\":\"content_block_delta\"}\n\n"
                      "data: {\"usage\":{\"output_tokens\":2},\"delta\":{\"stop_reason\":\"end_turn\"},\"type\":\"message_delta\"}\n\n" M_STOP}, {MOCK_LAST})
SUCCEEDS(messages_end_in_silence, ((const char *const[]){"api=messages", "timeout_drain=50ms", NULL}), 1, {MOCK_HEAD},
         {MOCK_CHUNK, START(4) M_TEXT("a") M_DELTA("end_turn", 1) M_STOP}, {MOCK_HANG})
SUCCEEDS(messages_without_the_final_blank_line, messages, 1, {MOCK_HEAD}, {MOCK_CHUNK, START(4) M_TEXT("a") M_DELTA("end_turn", 1) "data: {\"type\":\"message_stop\"}"}, {MOCK_LAST})
SUCCEEDS(messages_without_output_usage_count_events, messages, 2, {MOCK_HEAD}, {MOCK_CHUNK, START(4) M_TEXT("a") M_TEXT("b") M_STOP}, {MOCK_LAST})

#define DOCUMENT(body) "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" body
SUCCEEDS(responses_document, ((const char *const[]){"api=responses", "stream=off", NULL}), 2,
         {MOCK_SEND, DOCUMENT("{\"object\":\"response\",\"status\":\"completed\",\"error\":null," R_USAGE(4, 2) "}")}, {MOCK_CLOSE})
SUCCEEDS(messages_document, ((const char *const[]){"api=messages", "stream=off", NULL}), 2,
         {MOCK_SEND, DOCUMENT("{\"type\":\"message\",\"content\":[{\"type\":\"text\",\"text\":\"a b\"}],\"stop_reason\":\"max_tokens\",\"usage\":{\"input_tokens\":4,\"output_tokens\":2}}")}, {MOCK_CLOSE})
SUCCEEDS(messages_document_instead_of_a_stream, messages, 2,
         {MOCK_SEND, DOCUMENT("{\"type\":\"message\",\"content\":[{\"type\":\"text\",\"text\":\"a b\"}],\"usage\":{\"output_tokens\":2}}")}, {MOCK_CLOSE})

/* ---- failures ---- */

#define FAILS(name, options, class, tokens, ...)                                                   \
    Test(backends_http_protocol, name, .timeout = 20) {                                            \
        PLAY(f, options, __VA_ARGS__);                                                             \
        struct completion c = fixture_run(&f, 0, 2);                                               \
        cr_assert(eq(str, (char *)fail_class_name(c.fail_class), (char *)fail_class_name(class))); \
        cr_assert(eq(u32, c.output_tokens, 0));                                                    \
        cr_assert(eq(int, fixture_count(&f, EVENT_TOKENS, 0), tokens));                            \
        cr_assert(eq(int, fixture_count(&f, EVENT_FAIL, 0), 1));                                   \
        cr_assert(zero(int, fixture_count(&f, EVENT_DONE, 0)));                                    \
        fixture_stop(&f);                                                                          \
    }

FAILS(responses_error_mid_stream, responses, FAIL_IN_BAND_ERROR, 1, {MOCK_HEAD}, {MOCK_CHUNK, CREATED R_TEXT("a")},
      {MOCK_CHUNK, "data: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"m\",\"param\":null}\n\n" R_TEXT("b") COMPLETED(4, 2)}, {MOCK_LAST})
FAILS(responses_failed, responses, FAIL_IN_BAND_ERROR, 1, {MOCK_HEAD}, {MOCK_CHUNK, CREATED R_TEXT("a")},
      {MOCK_CHUNK, EV("response.failed", ",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\"}}")}, {MOCK_LAST})
FAILS(responses_without_end, responses, FAIL_NO_TERMINATOR, 1, {MOCK_HEAD}, {MOCK_CHUNK, CREATED R_TEXT("a") R_DONE}, {MOCK_LAST})
FAILS(responses_cut, responses, FAIL_TRUNCATED, 1, {MOCK_HEAD}, {MOCK_CHUNK, CREATED R_TEXT("a") R_DONE}, {MOCK_CLOSE})
FAILS(responses_without_tokens, responses, FAIL_NO_OUTPUT, 0, {MOCK_HEAD}, {MOCK_CHUNK, CREATED COMPLETED(4, 0)}, {MOCK_LAST})
FAILS(responses_document_failed, ((const char *const[]){"api=responses", "stream=off", NULL}), FAIL_IN_BAND_ERROR, 0,
      {MOCK_SEND, DOCUMENT("{\"object\":\"response\",\"status\":\"failed\",\"error\":{\"code\":\"x\"},\"output\":[]}")}, {MOCK_CLOSE})
FAILS(responses_document_without_tokens, ((const char *const[]){"api=responses", "stream=off", NULL}), FAIL_NO_OUTPUT, 0,
      {MOCK_SEND, DOCUMENT("{\"object\":\"response\",\"status\":\"completed\",\"output\":[],\"usage\":{\"output_tokens\":0}}")}, {MOCK_CLOSE})
FAILS(messages_error_mid_stream, messages, FAIL_IN_BAND_ERROR, 1, {MOCK_HEAD}, {MOCK_CHUNK, START(4) M_TEXT("a")},
      {MOCK_CHUNK, EV("error", ",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}") M_TEXT("b") M_STOP}, {MOCK_LAST})
FAILS(messages_error_without_name, messages, FAIL_IN_BAND_ERROR, 1, {MOCK_HEAD}, {MOCK_CHUNK, START(4) M_TEXT("a")},
      {MOCK_CHUNK, "data: {\"error\":{\"type\":\"api_error\"},\"type\":\"error\"}\n\n"}, {MOCK_LAST})
FAILS(messages_without_end, messages, FAIL_NO_TERMINATOR, 1, {MOCK_HEAD}, {MOCK_CHUNK, START(4) M_TEXT("a") BLOCK_STOP(0) M_DELTA("end_turn", 1)}, {MOCK_LAST})
FAILS(messages_cut, messages, FAIL_TRUNCATED, 1, {MOCK_HEAD}, {MOCK_CHUNK, START(4) M_TEXT("a") M_DELTA("end_turn", 1)}, {MOCK_CLOSE})
FAILS(messages_only_a_signature, messages, FAIL_NO_OUTPUT, 0, {MOCK_HEAD},
      {MOCK_CHUNK, START(4) DELTA(0, "\"type\":\"signature_delta\",\"signature\":\"x\"") M_DELTA("end_turn", 1) M_STOP}, {MOCK_LAST})
FAILS(messages_document_without_tokens, ((const char *const[]){"api=messages", "stream=off", NULL}), FAIL_NO_OUTPUT, 0,
      {MOCK_SEND, DOCUMENT("{\"type\":\"message\",\"content\":[],\"stop_reason\":\"end_turn\",\"usage\":{\"input_tokens\":4,\"output_tokens\":0}}")}, {MOCK_CLOSE})
FAILS(messages_overloaded, messages, FAIL_HTTP_STATUS, 0,
      {MOCK_SEND, "HTTP/1.1 529 Overloaded\r\nContent-Type: application/json\r\nContent-Length: 55\r\n\r\n{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"    }}"})
// clang-format on

/* The error of an event is stamped when it is read, not when the server gets round to closing. */
static void check_error_stamp(const struct fixture *f) {
    int fail = fixture_event(f, EVENT_FAIL, 0, 0), token = fixture_event(f, EVENT_TOKENS, 0, 0);
    cr_assert(eq(i64, f->block.time_ns[fail], f->block.time_ns[token]));
    cr_assert(eq(i64, f->block.a[fail], FAIL_IN_BAND_ERROR));
    cr_assert(eq(int, fixture_count(f, EVENT_FAIL, 0), 1));
}

Test(backends_http_protocol, an_error_event_has_the_stamp_of_its_read, .timeout = 20) {
    PLAY(f, messages, {MOCK_HEAD},
         {MOCK_CHUNK, START(4) M_TEXT("a") EV("error", ",\"error\":{\"type\":\"api_error\"}")},
         {MOCK_SLEEP, NULL, 30}, {MOCK_LAST});
    cr_assert(eq(i32, fixture_run(&f, 0, 2).fail_class, FAIL_IN_BAND_ERROR));
    check_error_stamp(&f);
    fixture_stop(&f);
}

Test(backends_http_protocol, a_failed_response_has_the_stamp_of_its_read, .timeout = 20) {
    PLAY(f, responses, {MOCK_HEAD},
         {MOCK_CHUNK, R_TEXT("a") EV("response.failed", ",\"response\":{\"status\":\"failed\"}")},
         {MOCK_SLEEP, NULL, 30}, {MOCK_LAST});
    cr_assert(eq(i32, fixture_run(&f, 0, 2).fail_class, FAIL_IN_BAND_ERROR));
    check_error_stamp(&f);
    fixture_stop(&f);
}

/* Servers echo keys; records and messages must not. */
Test(backends_http_protocol, the_key_is_in_no_record, .timeout = 20) {
    static const char *const options[] = {"api=messages", "api_key_env=MOCK_KEY", NULL};
    setenv("MOCK_KEY", "sk-ant-secret", 1);
    PLAY(f, options,
         {MOCK_SEND, "HTTP/1.1 401 No\r\nContent-Length: 36\r\n\r\n{\"error\":\"invalid x-api-key: sk-ant-secret\"}"}, {MOCK_CLOSE});
    cr_assert(eq(i32, fixture_run(&f, 0, 1).fail_class, FAIL_HTTP_STATUS));
    struct backend_info info;
    cr_assert(zero(int, backend_http.describe(f.backend, &info, &f.err)));
    json_t *seen = backend_http.observe(f.backend);
    char *a = json_dumps(seen, 0), *b = json_dumps(info.details, 0);
    cr_assert(eq(ptr, (void *)strstr(a, "sk-ant"), NULL), "%s", a);
    cr_assert(eq(ptr, (void *)strstr(b, "sk-ant"), NULL), "%s", b);
    free(a);
    free(b);
    json_decref(seen);
    json_decref(info.details);
    fixture_stop(&f);
}

/* ---- kinds of servers ---- */

#define MODEL(owner) "{\"data\":[{\"id\":\"m\",\"object\":\"model\",\"created\":7,\"owned_by\":\"" owner "\"}]}"

Test(backends_http_protocol, servers_are_recognised_and_sent_what_they_know, .timeout = 30) {
    static const struct {
        const char *models, *headers, *options[4];
        const char *kind, *source;
        const char *has, *has_not[4];
    } rows[] = {
        {NULL, NULL, {"api=chat"}, "generic", "none",
         "\"max_completion_tokens\":1,\"min_tokens\":1,\"ignore_eos\":true,", {NULL}},
        {MODEL("vllm"), NULL, {"api=chat"}, "vllm", "owned_by",
         "\"max_completion_tokens\":1,\"min_tokens\":1,\"ignore_eos\":true,", {NULL}},
        {MODEL("sglang"), NULL, {"api=completions"}, "sglang", "owned_by",
         "\"max_tokens\":1,\"min_tokens\":1,\"ignore_eos\":true,", {NULL}},
        {MODEL("tensorrt_llm"), NULL, {NULL}, "trtllm", "owned_by", "\"min_tokens\":1", {NULL}},
        {MODEL("llamacpp"), NULL, {"api=chat"}, "llamacpp", "owned_by",
         "\"max_tokens\":1,\"ignore_eos\":true,", {"min_tokens"}},
        {MODEL("me"), "Server: llama.cpp\r\n", {"api=chat"}, "llamacpp", "header", "\"max_tokens\":1", {"min_tokens"}},
        {"{\"data\":[{\"id\":\"m\",\"created\":0,\"owned_by\":\"m\"}]}", NULL, {"api=chat"}, "tgi", "owned_by",
         "\"max_tokens\":1", {"min_tokens", "ignore_eos", "max_completion"}},
        {MODEL("m"), NULL, {"api=chat"}, "generic", "none", "\"ignore_eos\":true", {NULL}},
        {MODEL("system"), "openai-version: 2020-10-01\r\n", {"api=chat"}, "openai", "header",
         "\"max_completion_tokens\":1,\"temperature\":0,\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
         {"min_tokens", "ignore_eos"}},
        {NULL, "Anthropic-Organization-Id: x\r\n", {"api=messages"}, "anthropic", "header", "\"max_tokens\":1",
         {"min_tokens", "ignore_eos", "stream_options"}},
        /* what the user says wins */
        {MODEL("vllm"), NULL, {"server=openai", "api=chat"}, "openai", "option", "\"max_completion_tokens\":1",
         {"min_tokens", "ignore_eos"}},
        {MODEL("vllm"), NULL, {"server=generic", "ignore_eos=off", "min_tokens=off", "include_usage=off"}, "generic",
         "option", "\"max_tokens\":1", {"min_tokens", "ignore_eos", "stream_options"}},
        {MODEL("x"), "openai-version: x\r\n", {"ignore_eos=on", "min_tokens=on", "api=responses", "include_usage=on"},
         "openai", "header",
         "\"max_output_tokens\":1,\"min_tokens\":1,\"ignore_eos\":true,\"temperature\":0,\"stream\":true,"
         "\"stream_options\":{\"include_usage\":true}", {NULL}},
        {MODEL("llamacpp"), NULL, {"api=chat", "max_tokens_field=max_completion_tokens"}, "llamacpp", "owned_by",
         "\"max_completion_tokens\":1", {"\"max_tokens\""}},
    };
    static const struct mock_step steps[] = {{MOCK_SEND, "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", 0}, {MOCK_END, NULL, 0}};
    static const struct mock_step *const replies[] = {steps, NULL};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fixture *f = calloc(1, sizeof *f);
        const char *options[5] = {rows[i].options[0], rows[i].options[1], rows[i].options[2], rows[i].options[3], NULL};
        fixture_start(f, &(struct mock_config){.replies = replies, .models = rows[i].models, .models_headers = rows[i].headers}, options);
        fixture_run(f, 0, 1);
        struct backend_info info;
        cr_assert(zero(int, backend_http.describe(f->backend, &info, &f->err)));
        cr_assert(eq(str, (char *)json_string_value(json_object_get(info.details, "server_kind")), (char *)rows[i].kind), "%zu", i);
        cr_assert(eq(str, (char *)json_string_value(json_object_get(info.details, "server_kind_source")), (char *)rows[i].source), "%zu", i);
        json_decref(info.details);
        const char *post = mock_post(f->server, 0);
        cr_assert(ne(ptr, (void *)strstr(post, rows[i].has), NULL), "%zu: %s", i, post);
        for (int k = 0; k < 4 && rows[i].has_not[k]; k++)
            cr_assert(eq(ptr, (void *)strstr(post, rows[i].has_not[k]), NULL), "%zu: %s", i, post);
        fixture_stop(f);
        free(f);
    }
}

/* One body for all: what one endpoint of several refuses, none is sent. */
Test(backends_http_protocol, several_servers_are_sent_what_all_know, .timeout = 20) {
    static const struct mock_step steps[] = {{MOCK_SEND, "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", 0}, {MOCK_END, NULL, 0}};
    static const struct mock_step *const replies[] = {steps, NULL};
    static struct fixture f;
    struct mock *other = mock_start(&(struct mock_config){.replies = replies, .models = MODEL("llamacpp")});
    f.server = mock_start(&(struct mock_config){.replies = replies, .models = MODEL("vllm")});
    char url[128];
    snprintf(url, sizeof url, "url=http://127.0.0.1:%d,http://127.0.0.1:%d", mock_port(f.server), mock_port(other));
    cr_assert(zero(int, fixture_open(&f, (const char *const[]){url, NULL})), "%s", f.err.text);
    fixture_run(&f, 0, 1);
    cr_assert(eq(ptr, (void *)strstr(mock_post(f.server, 0), "min_tokens"), NULL));
    cr_assert(ne(ptr, (void *)strstr(mock_post(f.server, 0), "ignore_eos"), NULL));
    fixture_stop(&f);
    mock_stop(other);
}

Test(backends_http_protocol, the_key_can_be_sent_as_asked, .timeout = 20) {
    static const char *const options[] = {"api=messages", "auth=bearer", "api_key_env=MOCK_KEY", NULL};
    setenv("MOCK_KEY", "sk-secret", 1);
    PLAY(f, options, {MOCK_HEAD}, {MOCK_CHUNK, START(4) M_TEXT("a") M_STOP}, {MOCK_LAST});
    cr_assert(eq(i32, fixture_run(&f, 0, 1).fail_class, FAIL_NONE));
    cr_assert(ne(ptr, (void *)strstr(mock_post(f.server, 0), "\r\nAuthorization: Bearer sk-secret\r\n"), NULL));
    cr_assert(eq(ptr, (void *)strstr(mock_post(f.server, 0), "x-api-key"), NULL));
    fixture_stop(&f);
}

/* -o api and -o server name the rows of their tables. */
Test(backends_http_protocol, names_are_those_of_the_tables) {
    for (int i = 0; i < API_COUNT; i++)
        cr_assert(eq(str, (char *)protocol_names[i], (char *)protocols[i].name));
    for (int i = 0; i < SERVER_COUNT; i++)
        cr_assert(eq(str, (char *)server_kind_names[i], (char *)server_kinds[i].name));
    cr_assert(eq(ptr, (void *)protocol_of_path("/v1/chat/completions"), (void *)&protocols[API_CHAT]));
    cr_assert(eq(ptr, (void *)protocol_of_path("/v1/completions"), (void *)&protocols[API_COMPLETIONS]));
    cr_assert(eq(ptr, (void *)protocol_of_path("/x/messages"), (void *)&protocols[API_MESSAGES]));
    cr_assert(eq(ptr, (void *)protocol_of_path("/v1"), NULL));
}
