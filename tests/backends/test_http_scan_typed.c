/* The key scan of events with a `type`, against the tree: the shapes of OpenAI's Responses
 * (https://developers.openai.com/api/reference/resources/responses/streaming-events) and of Anthropic's
 * Messages (https://platform.claude.com/docs/en/build-with-claude/streaming), written by hand after these
 * pages; adversarial ones; random documents. */
#include "backends/http/scan.h"
#include "harness/core/rng.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

// clang-format off: a row a shape
#define NONE -1
#define R SCAN_RESPONSES
#define M SCAN_MESSAGES
enum { TEXT = SCAN_CHOICES | SCAN_CONTENT, THINK = SCAN_CHOICES | SCAN_REASONING, CALL = SCAN_CHOICES | SCAN_TOOL_CALL };
static const struct {
    enum scan_dialect d;
    const char *name, *json;
    unsigned flags;
    int64_t prompt, completion, cached, reasoning, written;
} shapes[] = {
    {R, "created", "{\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\",\"object\":\"response\","
        "\"created_at\":1,\"status\":\"in_progress\",\"error\":null,\"incomplete_details\":null,\"model\":\"m\",\"output\":[],"
        "\"usage\":null,\"metadata\":{}}}", 0, NONE, NONE, NONE, NONE, NONE},
    {R, "item added", "{\"type\":\"response.output_item.added\",\"sequence_number\":2,\"output_index\":0,\"item\":{\"id\":\"msg_1\","
        "\"type\":\"message\",\"status\":\"in_progress\",\"content\":[],\"role\":\"assistant\"}}", 0, NONE, NONE, NONE, NONE, NONE},
    {R, "part added", "{\"type\":\"response.content_part.added\",\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,"
        "\"part\":{\"type\":\"output_text\",\"annotations\":[],\"text\":\"\"}}", 0, NONE, NONE, NONE, NONE, NONE},
    {R, "text", "{\"type\":\"response.output_text.delta\",\"sequence_number\":4,\"item_id\":\"msg_1\",\"output_index\":0,"
        "\"content_index\":0,\"delta\":\"Hi\",\"logprobs\":[],\"obfuscation\":\"x\"}", TEXT, NONE, NONE, NONE, NONE, NONE},
    {R, "type last", "{\"delta\":\"Hi\",\"logprobs\":[],\"type\":\"response.output_text.delta\"}", TEXT, NONE, NONE, NONE, NONE, NONE},
    {R, "empty delta", "{\"type\":\"response.output_text.delta\",\"delta\":\"\"}", 0, NONE, NONE, NONE, NONE, NONE},
    {R, "reasoning", "{\"type\":\"response.reasoning_text.delta\",\"delta\":\"hm\"}", THINK, NONE, NONE, NONE, NONE, NONE},
    {R, "summary", "{\"type\":\"response.reasoning_summary_text.delta\",\"summary_index\":0,\"delta\":\"hm\"}", THINK, NONE, NONE, NONE, NONE, NONE},
    {R, "refusal", "{\"type\":\"response.refusal.delta\",\"delta\":\"no\"}", SCAN_CHOICES | SCAN_REFUSAL, NONE, NONE, NONE, NONE, NONE},
    {R, "call begins", "{\"type\":\"response.output_item.added\",\"item\":{\"type\":\"function_call\",\"id\":\"fc_1\",\"call_id\":\"call_1\","
        "\"name\":\"f\",\"arguments\":\"\"}}", CALL, NONE, NONE, NONE, NONE, NONE},
    {R, "arguments", "{\"type\":\"response.function_call_arguments.delta\",\"delta\":\"{\\\"a\\\":\"}", CALL, NONE, NONE, NONE, NONE, NONE},
    {R, "text done", "{\"type\":\"response.output_text.done\",\"text\":\"Hi there\",\"delta\":\"x\"}", 0, NONE, NONE, NONE, NONE, NONE},
    {R, "item done", "{\"type\":\"response.output_item.done\",\"item\":{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"Hi\"}]}}",
        0, NONE, NONE, NONE, NONE, NONE},
    {R, "call done", "{\"type\":\"response.output_item.done\",\"item\":{\"type\":\"function_call\",\"arguments\":\"{}\"}}", 0, NONE, NONE, NONE, NONE, NONE},
    {R, "completed", "{\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"error\":null,\"incomplete_details\":null,"
        "\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"Hi\"}]}],\"usage\":{\"input_tokens\":37,"
        "\"input_tokens_details\":{\"cached_tokens\":8},\"output_tokens\":11,\"output_tokens_details\":{\"reasoning_tokens\":3},"
        "\"total_tokens\":48}}}", SCAN_FINISH | SCAN_END | SCAN_USAGE, 37, 11, 8, 3, NONE},
    {R, "incomplete", "{\"response\":{\"usage\":{\"output_tokens\":4,\"input_tokens\":1},\"incomplete_details\":{\"reason\":\"max_output_tokens\"},"
        "\"status\":\"incomplete\"},\"type\":\"response.incomplete\"}", SCAN_FINISH | SCAN_FINISH_LENGTH | SCAN_END | SCAN_USAGE, 1, 4, NONE, NONE, NONE},
    {R, "filtered", "{\"type\":\"response.incomplete\",\"response\":{\"incomplete_details\":{\"reason\":\"content_filter\"}}}",
        SCAN_FINISH | SCAN_END, NONE, NONE, NONE, NONE, NONE},
    {R, "failed", "{\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"m\"},\"usage\":null}}",
        SCAN_ERROR | SCAN_END, NONE, NONE, NONE, NONE, NONE},
    {R, "error", "{\"type\":\"error\",\"code\":\"ERR_SOMETHING\",\"message\":\"m\",\"param\":null,\"sequence_number\":1}", SCAN_ERROR, NONE, NONE, NONE, NONE, NONE},
    {R, "error of another kind", "{\"error\":{\"message\":\"m\"}}", SCAN_ERROR, NONE, NONE, NONE, NONE, NONE},
    {R, "unknown type", "{\"type\":\"response.dreams.delta\",\"delta\":\"x\",\"output\":[{\"type\":\"function_call\"}]}", 0, NONE, NONE, NONE, NONE, NONE},
    {R, "unknown delta", "{\"type\":\"response.audio.delta\",\"delta\":{\"a\":[1]}}", 0, NONE, NONE, NONE, NONE, NONE},
    {R, "simulated", "{\"type\":\"response.created\",\"response\":{\"model\":\"sim/v6e-8/m\"}}", SCAN_SIMULATED, NONE, NONE, NONE, NONE, NONE},
    {R, "document", "{\"id\":\"resp_1\",\"object\":\"response\",\"status\":\"completed\",\"error\":null,\"incomplete_details\":null,\"model\":\"m\","
        "\"output\":[{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"hm\"}]},{\"content\":[{\"type\":\"output_text\","
        "\"text\":\"Hi\",\"annotations\":[]}],\"type\":\"message\"},{\"type\":\"function_call\",\"arguments\":\"{}\"}],\"usage\":{\"input_tokens\":9,"
        "\"output_tokens\":10}}", TEXT | THINK | CALL | SCAN_FINISH | SCAN_USAGE, 9, 10, NONE, NONE, NONE},
    {R, "document cut", "{\"status\":\"incomplete\",\"incomplete_details\":{\"reason\":\"max_output_tokens\"},\"output\":[]}",
        SCAN_FINISH | SCAN_FINISH_LENGTH, NONE, NONE, NONE, NONE, NONE},
    {R, "document refused", "{\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"no\"}]}]}", SCAN_CHOICES | SCAN_REFUSAL,
        NONE, NONE, NONE, NONE, NONE},
    {R, "document failed", "{\"object\":\"response\",\"status\":\"failed\",\"error\":{\"code\":\"server_error\"}}", SCAN_ERROR, NONE, NONE, NONE, NONE, NONE},
    {M, "start", "{\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"model\":\"m\","
        "\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":25,\"cache_creation_input_tokens\":100,"
        "\"cache_read_input_tokens\":40,\"output_tokens\":1}}}", SCAN_USAGE, 25, NONE, 40, NONE, 100},
    {M, "block start", "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}", 0, NONE, NONE, NONE, NONE, NONE},
    {M, "ping", "{\"type\": \"ping\"}", 0, NONE, NONE, NONE, NONE, NONE},
    {M, "text", "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}", TEXT, NONE, NONE, NONE, NONE, NONE},
    {M, "type last", "{\"delta\":{\"text\":\"Hello\",\"type\":\"text_delta\"},\"index\":0,\"type\":\"content_block_delta\"}", TEXT, NONE, NONE, NONE, NONE, NONE},
    {M, "empty text", "{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"\"}}", 0, NONE, NONE, NONE, NONE, NONE},
    {M, "thinking", "{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}", THINK, NONE, NONE, NONE, NONE, NONE},
    {M, "signature", "{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"signature_delta\",\"signature\":\"EqQB\"}}", 0, NONE, NONE, NONE, NONE, NONE},
    {M, "call begins", "{\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"f\",\"input\":{}}}",
        CALL, NONE, NONE, NONE, NONE, NONE},
    {M, "arguments", "{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"text\\\": \\\"x\"}}", CALL, NONE, NONE, NONE, NONE, NONE},
    {M, "no arguments", "{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\"}}", 0, NONE, NONE, NONE, NONE, NONE},
    {M, "block stop", "{\"type\":\"content_block_stop\",\"index\":0}", 0, NONE, NONE, NONE, NONE, NONE},
    {M, "delta", "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":15}}",
        SCAN_FINISH | SCAN_USAGE, NONE, 15, NONE, NONE, NONE},
    {M, "delta at length", "{\"usage\":{\"input_tokens\":25,\"cache_creation_input_tokens\":null,\"output_tokens\":16},\"delta\":{\"stop_reason\":"
        "\"max_tokens\"},\"type\":\"message_delta\"}", SCAN_FINISH | SCAN_FINISH_LENGTH | SCAN_USAGE, 25, 16, NONE, NONE, NONE},
    {M, "stop", "{\"type\":\"message_stop\"}", SCAN_END, NONE, NONE, NONE, NONE, NONE},
    {M, "error", "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}", SCAN_ERROR, NONE, NONE, NONE, NONE, NONE},
    {M, "unknown type", "{\"type\":\"dream_delta\",\"delta\":{\"text\":\"x\",\"stop_reason\":\"y\"},\"content\":[{\"text\":\"x\"}]}", 0, NONE, NONE, NONE, NONE, NONE},
    {M, "simulated", "{\"type\":\"message_start\",\"message\":{\"model\":\"sim/v6e-8/m\"}}", SCAN_SIMULATED, NONE, NONE, NONE, NONE, NONE},
    {M, "document", "{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\","
        "\"signature\":\"x\"},{\"type\":\"text\",\"text\":\"Hi!\"},{\"type\":\"tool_use\",\"name\":\"f\",\"input\":{\"text\":\"x\"}}],\"stop_reason\":\"max_tokens\","
        "\"stop_sequence\":null,\"usage\":{\"input_tokens\":2095,\"output_tokens\":503}}", TEXT | THINK | CALL | SCAN_FINISH | SCAN_FINISH_LENGTH | SCAN_USAGE,
        2095, 503, NONE, NONE, NONE},
    {M, "empty document", "{\"type\":\"message\",\"content\":[],\"stop_reason\":\"end_turn\",\"usage\":{\"output_tokens\":0}}", SCAN_FINISH | SCAN_USAGE,
        NONE, 0, NONE, NONE, NONE},
    /* adversarial: the tree may be needed */
    {R, "slow begins here", "{\"type\":\"response.output_text.delta\",\"d\\u0065lta\":\"x\"}", TEXT, NONE, NONE, NONE, NONE, NONE},
    {R, "escaped type", "{\"type\":\"response.output\\u005ftext.delta\",\"delta\":\"x\"}", TEXT, NONE, NONE, NONE, NONE, NONE},
    {R, "keys in values", "{\"type\":\"response.output_text.done\",\"text\":\"\\\"type\\\":\\\"response.output_text.delta\\\",\\\"delta\\\":\\\"x\\\"\"}",
        0, NONE, NONE, NONE, NONE, NONE},
    {R, "types in values", "{\"type\":\"response.in_progress\",\"delta\":\"\\\",\\\"type\\\":\\\"error\\\"\",\"response\":{\"type\":\"error\",\"delta\":\"x\","
        "\"status\":\"failed\",\"error\":{\"a\":1}}}", 0, NONE, NONE, NONE, NONE, NONE},
    {R, "repeated type", "{\"type\":\"response.output_text.delta\",\"delta\":\"x\",\"type\":\"response.created\"}", 0, NONE, NONE, NONE, NONE, NONE},
    {R, "type number", "{\"type\":5,\"delta\":\"x\"}", 0, NONE, NONE, NONE, NONE, NONE},
    {R, "usage twice", "{\"usage\":{\"input_tokens\":1},\"response\":{\"usage\":{\"output_tokens\":2}}}", SCAN_USAGE, 1, 2, NONE, NONE, NONE},
    {R, "shapes off", "{\"type\":\"response.completed\",\"response\":[1],\"item\":\"x\",\"output\":{},\"usage\":3,\"incomplete_details\":\"y\"}",
        SCAN_FINISH | SCAN_END, NONE, NONE, NONE, NONE, NONE},
    {M, "escaped key", "{\"type\":\"content_block_delta\",\"delta\":{\"t\\u0065xt\":\"x\"}}", TEXT, NONE, NONE, NONE, NONE, NONE},
    {M, "keys in arguments", "{\"type\":\"content_block_delta\",\"delta\":{\"partial_json\":\"{\\\"text\\\":\\\"x\\\",\\\"stop_reason\\\":\\\"y\\\"}\"}}", CALL, NONE, NONE, NONE, NONE, NONE},
    {M, "nested type", "{\"delta\":{\"type\":\"message_stop\",\"error\":{\"a\":1}},\"message\":{\"type\":\"error\"},\"type\":\"ping\"}", 0, NONE, NONE, NONE, NONE, NONE},
    {M, "delta text", "{\"type\":\"content_block_delta\",\"delta\":\"x\"}", 0, NONE, NONE, NONE, NONE, NONE},
    {M, "text number", "{\"type\":\"content_block_delta\",\"delta\":{\"text\":5}}", 0, NONE, NONE, NONE, NONE, NONE},
    {M, "count as real", "{\"type\":\"message_delta\",\"usage\":{\"output_tokens\":12.0}}", SCAN_USAGE, NONE, 12, NONE, NONE, NONE},
    {M, "content text", "{\"type\":\"message\",\"content\":\"x\"}", 0, NONE, NONE, NONE, NONE, NONE},
};
// clang-format on
enum { NSHAPES = sizeof shapes / sizeof *shapes };

static void check(const char *name, const struct scan *got, const struct scan *want) {
    cr_assert(eq(u32, got->flags, want->flags), "%s", name);
    cr_assert(eq(i64, got->token_ids, want->token_ids), "%s", name);
    cr_assert(eq(i64, got->prompt_tokens, want->prompt_tokens), "%s", name);
    cr_assert(eq(i64, got->completion_tokens, want->completion_tokens), "%s", name);
    cr_assert(eq(i64, got->cached_tokens, want->cached_tokens), "%s", name);
    cr_assert(eq(i64, got->reasoning_tokens, want->reasoning_tokens), "%s", name);
    cr_assert(eq(i64, got->written_tokens, want->written_tokens), "%s", name);
}

Test(backends_http_scan_typed, shapes) {
    for (int i = 0; i < NSHAPES; i++) {
        struct scan want = {shapes[i].flags,  NONE,
                            shapes[i].prompt, shapes[i].completion,
                            shapes[i].cached, shapes[i].reasoning,
                            shapes[i].written};
        struct scan got;
        bool slow;
        cr_assert(eq(int,
                     scan_any(shapes[i].d, shapes[i].json, strlen(shapes[i].json), &got, &slow),
                     SCAN_OK),
                  "%s", shapes[i].name);
        check(shapes[i].name, &got, &want);
        json_t *root = json_loads(shapes[i].json, 0, NULL);
        cr_assert(ne(ptr, root, NULL), "%s", shapes[i].name);
        cr_assert(scan_dom(shapes[i].d, root, &got));
        check(shapes[i].name, &got, &want);
        json_decref(root);
    }
}

/* What servers send must not need the tree. */
Test(backends_http_scan_typed, usual_shapes_are_fast) {
    for (int i = 0; strcmp(shapes[i].name, "slow begins here"); i++) {
        struct scan got;
        cr_assert(eq(int, scan_event(shapes[i].d, shapes[i].json, strlen(shapes[i].json), &got),
                     SCAN_OK),
                  "%s", shapes[i].name);
    }
}

/* Every prefix of a valid event is malformed, and read within its bounds. */
Test(backends_http_scan_typed, truncated_anywhere) {
    for (int i = 0; i < NSHAPES; i++)
        for (size_t n = 0; n < strlen(shapes[i].json); n++) {
            char *copy = malloc(n ? n : 1);
            memcpy(copy, shapes[i].json, n);
            struct scan s;
            bool slow;
            cr_assert(eq(int, scan_any(shapes[i].d, copy, n, &s, &slow), SCAN_MALFORMED),
                      "%s cut to %zu", shapes[i].name, n);
            free(copy);
        }
}

/* ---- random documents: members of the shapes, in any order, any place and any combination ---- */

static json_t *shape(int i) {
    return json_loads(shapes[i].json, 0, NULL);
}

static void mix(json_t *into, json_t *from, struct rng *r) {
    const char *key;
    json_t *v;
    json_object_foreach(from, key, v) {
        if (rng_below(r, 4) == 0)
            continue;
        json_t *mine = json_object_get(into, key);
        if (json_is_object(mine) && json_is_object(v) && rng_below(r, 2))
            mix(mine, v, r);
        else if (!mine || rng_below(r, 2))
            json_object_set_new(into, key, json_deep_copy(v));
    }
    if (rng_below(r, 8) == 0)
        json_object_set_new(into, "delta", json_string("x"));
    if (rng_below(r, 16) == 0)
        json_object_set_new(into, "usage", json_pack("{s:i}", "output_tokens", (int)rng_below(r, 99)));
}

Test(backends_http_scan_typed, random_documents_against_the_tree) {
    int fast[SCAN_DIALECTS] = {0}, flagged[SCAN_DIALECTS] = {0};
    for (uint64_t k = 0; k < 40000; k++) {
        struct rng r = rng_at(5, 0, k);
        enum scan_dialect d = k % 2 ? R : M;
        json_t *root = shape((int)rng_below(&r, NSHAPES));
        for (uint64_t n = rng_below(&r, 3); n; n--) {
            json_t *other = shape((int)rng_below(&r, NSHAPES));
            mix(root, other, &r);
            json_decref(other);
        }
        char *text = json_dumps(root, JSON_COMPACT | (rng_below(&r, 2) ? JSON_SORT_KEYS : 0));
        struct scan got, want;
        cr_assert(scan_dom(d, root, &want));
        enum scan_result res = scan_event(d, text, strlen(text), &got);
        cr_assert(ne(int, res, SCAN_MALFORMED), "%s", text);
        if (res == SCAN_OK) {
            check(text, &got, &want);
            fast[d]++;
            flagged[d] += (got.flags & (SCAN_CHOICES | SCAN_END | SCAN_FINISH)) != 0;
        }
        free(text);
        json_decref(root);
    }
    /* the property means nothing when the scan always gives up */
    for (enum scan_dialect d = SCAN_RESPONSES; d <= SCAN_MESSAGES; d++) {
        cr_assert(gt(int, fast[d], 5000));
        cr_assert(gt(int, flagged[d], 1000));
    }
}
