/* The key scan against the tree on the shapes that servers send (openai-streaming.md section 4), on
 * adversarial ones, and on random documents. */
#include "backends/http/scan.h"
#include "harness/core/rng.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

// clang-format off: a row a shape
#define NONE -1
static const struct {
    const char *name, *json;
    unsigned flags;
    int64_t ids, prompt, completion, cached, reasoning;
} shapes[] = {
    {"vllm role",
     "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\","
     "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":"
     "null,\"finish_reason\":null}]}",
     SCAN_CHOICES, NONE, NONE, NONE, NONE, NONE},
    {"vllm content",
     "{\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"logprobs\":"
     "null,\"finish_reason\":null}]}",
     SCAN_CHOICES | SCAN_CONTENT, NONE, NONE, NONE, NONE, NONE},
    {"vllm reasoning", "{\"choices\":[{\"index\":0,\"delta\":{\"reasoning\":\"so\"}}]}",
     SCAN_CHOICES | SCAN_REASONING, NONE, NONE, NONE, NONE, NONE},
    {"sglang nulls",
     "{\"choices\":[{\"index\":0,\"delta\":{\"role\":null,\"content\":null,\"reasoning_content\":"
     "\"so\",\"tool_calls\":null},\"logprobs\":null,\"finish_reason\":null,\"matched_stop\":null}],"
     "\"usage\":null}",
     SCAN_CHOICES | SCAN_REASONING, NONE, NONE, NONE, NONE, NONE},
    {"sglang finish",
     "{\"choices\":[{\"index\":0,\"delta\":{\"role\":null,\"content\":null},\"finish_reason\":"
     "\"length\",\"matched_stop\":null}]}",
     SCAN_CHOICES | SCAN_FINISH | SCAN_FINISH_LENGTH, NONE, NONE, NONE, NONE, NONE},
    {"hidden states", "{\"choices\":[{\"index\":0,\"delta\":{\"hidden_states\":[[0.1,-2e-5]]}}]}",
     SCAN_CHOICES, NONE, NONE, NONE, NONE, NONE},
    {"usage event",
     "{\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"total_tokens\":15,\"completion_tokens\":5,"
     "\"prompt_tokens_details\":{\"cached_tokens\":8},\"completion_tokens_details\":{\"reasoning_"
     "tokens\":3}}}",
     SCAN_USAGE, NONE, 10, 5, 8, 3},
    {"usage with nulls",
     "{\"choices\":null,\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":null,\"prompt_tokens_"
     "details\":null}}",
     SCAN_USAGE, NONE, 10, NONE, NONE, NONE},
    {"continuous usage",
     "{\"choices\":[{\"text\":\"a\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}",
     SCAN_CHOICES | SCAN_CONTENT | SCAN_USAGE, NONE, 1, 2, NONE, NONE},
    {"llama.cpp end",
     "{\"choices\":[],\"usage\":{\"completion_tokens\":2,\"prompt_tokens\":1},\"timings\":{"
     "\"prompt_n\":1,\"prompt_ms\":1.5,\"predicted_per_second\":12.25}}",
     SCAN_USAGE, NONE, 1, 2, NONE, NONE},
    {"completions",
     "{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"choices\":[{\"index\":0,\"text\":\" "
     "a\",\"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null}]}",
     SCAN_CHOICES | SCAN_CONTENT, NONE, NONE, NONE, NONE, NONE},
    {"completions with ids",
     "{\"choices\":[{\"index\":0,\"text\":\"\",\"token_ids\":[1,22,333],\"prompt_token_ids\":[1,2]}"
     "]}",
     SCAN_CHOICES, 3, NONE, NONE, NONE, NONE},
    {"ids null", "{\"choices\":[{\"text\":\"a\",\"token_ids\":null}]}", SCAN_CHOICES | SCAN_CONTENT,
     NONE, NONE, NONE, NONE, NONE},
    {"ids empty", "{\"choices\":[{\"text\":\"\",\"token_ids\":[]}]}", SCAN_CHOICES, 0, NONE, NONE,
     NONE, NONE},
    {"two choices",
     "{\"choices\":[{\"text\":\"\",\"token_ids\":[1]},{\"text\":\"b\",\"token_ids\":[2,3]}]}",
     SCAN_CHOICES | SCAN_CONTENT, 3, NONE, NONE, NONE, NONE},
    {"tool call",
     "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_1\",\"type\":"
     "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]}}]}",
     SCAN_CHOICES | SCAN_TOOL_CALL, NONE, NONE, NONE, NONE, NONE},
    {"tool calls empty", "{\"choices\":[{\"delta\":{\"tool_calls\":[]}}]}", SCAN_CHOICES, NONE,
     NONE, NONE, NONE, NONE},
    {"function call", "{\"choices\":[{\"delta\":{\"function_call\":{\"arguments\":\"{\"}}}]}",
     SCAN_CHOICES | SCAN_TOOL_CALL, NONE, NONE, NONE, NONE, NONE},
    {"refusal", "{\"choices\":[{\"delta\":{\"refusal\":\"no\"}}]}", SCAN_CHOICES | SCAN_REFUSAL,
     NONE, NONE, NONE, NONE, NONE},
    {"azure first",
     "{\"choices\":[],\"prompt_filter_results\":[{\"prompt_index\":0,\"content_filter_results\":{"
     "\"hate\":{\"filtered\":false}}}]}",
     0, NONE, NONE, NONE, NONE, NONE},
    {"obfuscation",
     "{\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"obfuscation\":\"x\\\"y\",\"service_tier\":"
     "\"default\"}",
     SCAN_CHOICES | SCAN_CONTENT, NONE, NONE, NONE, NONE, NONE},
    {"no stream",
     "{\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\"abc\"},\"finish_reason\":"
     "\"stop\"}],\"usage\":{\"completion_tokens\":3}}",
     SCAN_CHOICES | SCAN_CONTENT | SCAN_FINISH | SCAN_USAGE, NONE, NONE, 3, NONE, NONE},
    {"error object", "{\"error\":{\"message\":\"m\",\"code\":400}}", SCAN_ERROR, NONE, NONE, NONE,
     NONE, NONE},
    {"error string", "{\"error\":\"m\",\"error_type\":\"generation\"}", SCAN_ERROR, NONE, NONE,
     NONE, NONE, NONE},
    {"error true", "{\"error\":true}", SCAN_ERROR, NONE, NONE, NONE, NONE, NONE},
    {"error number", "{\"error\":3}", SCAN_ERROR, NONE, NONE, NONE, NONE, NONE},
    {"error array", "{\"error\":[ 0 ]}", SCAN_ERROR, NONE, NONE, NONE, NONE, NONE},
    {"falsy errors", "{\"error\":null}", 0, NONE, NONE, NONE, NONE, NONE},
    {"falsy object", "{\"error\":{ }}", 0, NONE, NONE, NONE, NONE, NONE},
    {"falsy string", "{\"error\":\"\"}", 0, NONE, NONE, NONE, NONE, NONE},
    {"falsy zero", "{\"error\":0}", 0, NONE, NONE, NONE, NONE, NONE},
    {"falsy false", "{\"error\":false}", 0, NONE, NONE, NONE, NONE, NONE},
    {"flat error",
     "{\"object\":\"error\",\"message\":\"m\",\"type\":\"BadRequestError\",\"code\":400}",
     SCAN_ERROR, NONE, NONE, NONE, NONE, NONE},
    {"typed error", "{\"type\":\"error\",\"x\":{}}", SCAN_ERROR, NONE, NONE, NONE, NONE, NONE},
    {"nested error is no error",
     "{\"choices\":[{\"delta\":{\"error\":\"x\"},\"error\":{\"a\":1}}],\"meta\":{\"error\":\"x\","
     "\"object\":\"error\"}}",
     SCAN_CHOICES, NONE, NONE, NONE, NONE, NONE},
    {"simulated", "{\"system_fingerprint\":\"assay-sim/v6e\",\"choices\":[]}", SCAN_SIMULATED, NONE,
     NONE, NONE, NONE, NONE},
    {"simulated model", "{\"model\":\"sim/v6e-8/m\",\"system_fingerprint\":null}", SCAN_SIMULATED,
     NONE, NONE, NONE, NONE, NONE},
    {"not simulated", "{\"model\":\"x-sim/v6e\",\"system_fingerprint\":\"fp_1\"}", 0, NONE, NONE,
     NONE, NONE, NONE},
    /* adversarial */
    {"keys in strings",
     "{\"choices\":[{\"delta\":{\"content\":\"\",\"role\":\"\\\"content\\\":\\\"x\\\"\"}}],\"id\":"
     "\"\\\",\\\"error\\\":\\\"x\\\"\"}",
     SCAN_CHOICES, NONE, NONE, NONE, NONE, NONE},
    {"keys in arguments",
     "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":\"{\\\"content\\\":"
     "\\\"x\\\",\\\"usage\\\":{\\\"completion_tokens\\\":99}}\"}}]}}]}",
     SCAN_CHOICES | SCAN_TOOL_CALL, NONE, NONE, NONE, NONE, NONE},
    {"keys in logprobs",
     "{\"choices\":[{\"logprobs\":{\"content\":[{\"token\":\"content\",\"text\":\"x\",\"top_"
     "logprobs\":[{\"token\":\"\\\"}\"}]}]},\"delta\":{}}]}",
     SCAN_CHOICES, NONE, NONE, NONE, NONE, NONE},
    {"usage elsewhere",
     "{\"x_groq\":{\"usage\":{\"completion_tokens\":9}},\"choices\":[{\"usage\":{\"completion_"
     "tokens\":8}}]}",
     SCAN_CHOICES, NONE, NONE, NONE, NONE, NONE},
    {"choices elsewhere",
     "{\"delta\":{\"content\":\"x\"},\"text\":\"y\",\"a\":[{\"choices\":[{\"text\":\"z\"}]}]}", 0,
     NONE, NONE, NONE, NONE, NONE},
    {"escaped key", "{\"choices\":[{\"delta\":{\"c\\u006fntent\":\"x\"}}]}",
     SCAN_CHOICES | SCAN_CONTENT, NONE, NONE, NONE, NONE, NONE},
    {"repeated key", "{\"choices\":[{\"delta\":{\"content\":\"x\",\"content\":\"\"}}]}",
     SCAN_CHOICES, NONE, NONE, NONE, NONE, NONE},
    {"content parts",
     "{\"choices\":[{\"delta\":{\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}}]}",
     SCAN_CHOICES | SCAN_CONTENT, NONE, NONE, NONE, NONE, NONE},
    {"content number", "{\"choices\":[{\"delta\":{\"content\":5}}]}", SCAN_CHOICES, NONE, NONE,
     NONE, NONE, NONE},
    {"choices object", "{\"choices\":{\"delta\":{\"content\":\"x\"}}}", 0, NONE, NONE, NONE, NONE,
     NONE},
    {"choice null", "{\"choices\":[null,{\"text\":\"a\"}]}", SCAN_CHOICES | SCAN_CONTENT, NONE,
     NONE, NONE, NONE, NONE},
    {"count as real", "{\"usage\":{\"completion_tokens\":12.0}}", SCAN_USAGE, NONE, NONE, 12, NONE,
     NONE},
    {"count negative", "{\"usage\":{\"completion_tokens\":-2}}", SCAN_USAGE, NONE, NONE, NONE, NONE,
     NONE},
    {"count as text", "{\"usage\":{\"completion_tokens\":\"7\"}}", SCAN_USAGE, NONE, NONE, NONE,
     NONE, NONE},
    {"large count", "{\"usage\":{\"completion_tokens\":123456789012345678}}", SCAN_USAGE, NONE,
     NONE, 123456789012345678, NONE, NONE},
    {"usage text", "{\"usage\":\"none\"}", 0, NONE, NONE, NONE, NONE, NONE},
    {"spaces",
     " {\n\t\"choices\" : [ { \"text\" : \"a\" , \"finish_reason\" : null } ] , \"usage\" : { } "
     "}\r\n",
     SCAN_CHOICES | SCAN_CONTENT | SCAN_USAGE, NONE, NONE, NONE, NONE, NONE},
    {"empty", "{}", 0, NONE, NONE, NONE, NONE, NONE},
    {"escapes", "{\"choices\":[{\"text\":\"\\n\\u00e9\\ud83d\\ude00\\\\\\\"\\/\"}]}",
     SCAN_CHOICES | SCAN_CONTENT, NONE, NONE, NONE, NONE, NONE},
    {"raw U+2028", "{\"choices\":[{\"text\":\"\xE2\x80\xA8\"}]}", SCAN_CHOICES | SCAN_CONTENT, NONE,
     NONE, NONE, NONE, NONE},
    {"deep", "{\"x\":[[[[{\"a\":[[{}]],\"content\":\"x\"}]]]],\"choices\":[]}", 0, NONE, NONE, NONE,
     NONE, NONE},
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

Test(backends_http_scan, shapes) {
    for (int i = 0; i < NSHAPES; i++) {
        struct scan want = {shapes[i].flags,      shapes[i].ids,    shapes[i].prompt,
                            shapes[i].completion, shapes[i].cached, shapes[i].reasoning, NONE};
        struct scan got;
        bool slow;
        cr_assert(eq(int, scan_any(SCAN_OPENAI, shapes[i].json, strlen(shapes[i].json), &got, &slow), SCAN_OK),
                  "%s", shapes[i].name);
        check(shapes[i].name, &got, &want);
        json_t *root = json_loads(shapes[i].json, 0, NULL);
        cr_assert(ne(ptr, root, NULL), "%s", shapes[i].name);
        cr_assert(scan_dom(SCAN_OPENAI, root, &got));
        check(shapes[i].name, &got, &want);
        json_decref(root);
    }
}

/* What servers send must not need the tree. */
Test(backends_http_scan, usual_shapes_are_fast) {
    for (int i = 0; strcmp(shapes[i].name, "no stream"); i++) {
        struct scan got;
        cr_assert(eq(int, scan_event(SCAN_OPENAI, shapes[i].json, strlen(shapes[i].json), &got), SCAN_OK), "%s",
                  shapes[i].name);
    }
}

Test(backends_http_scan, malformed) {
    static const char *const bad[] = {
        "",
        " ",
        "{",
        "}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":[1,]}",
        "{\"a\":[1 2]}",
        "{\"a\":[}",
        "{\"a\":{]}",
        "{} x",
        "{}{}",
        "{\"a\":\"\n\"}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12g4\"}",
        "{\"a\":\"\\u12",
        "{\"a\":\"",
        "{\"a\":tru}",
        "{\"a\":01}",
        "{\"a\":1.}",
        "{\"a\":-}",
        "{\"a\":1e}",
        "{\"a\":.5}",
        "{\"a\":+1}",
        "{a:1}",
        "{'a':1}",
        "{\"a\":NaN}",
        "{\"choices\":[{\"text\":\"b\"]}",
        "{\"choices\":[{\"text\":\"b\"}",
        "{\"choices\":[{}},",
        "{\"usage\":{\"completion_tokens\":1",
        "{\"usage\":{\"completion_tokens\":}}",
        "{\"error\":{",
        "{\"error\":\"",
        "<html>",
        "hello",
        "{\"a\":1}\x01",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct scan s;
        bool slow;
        cr_assert(eq(ptr, json_loads(bad[i], 0, NULL), NULL), "%s", bad[i]);
        cr_assert(eq(int, scan_any(SCAN_OPENAI, bad[i], strlen(bad[i]), &s, &slow), SCAN_MALFORMED), "%s",
                  bad[i]);
    }
    static const char *const no_object[] = {"[]", "1", "\"x\"", "null", "[{\"choices\":[]}]"};
    for (size_t i = 0; i < sizeof no_object / sizeof *no_object; i++) {
        struct scan s;
        bool slow;
        cr_assert(eq(int, scan_any(SCAN_OPENAI, no_object[i], strlen(no_object[i]), &s, &slow), SCAN_MALFORMED),
                  "%s", no_object[i]);
    }
}

/* Every prefix of a valid event is malformed, and read within its bounds. */
Test(backends_http_scan, truncated_anywhere) {
    for (int i = 0; i < NSHAPES; i++) {
        size_t whole = strlen(shapes[i].json);
        while (whole && strchr(" \r\n", shapes[i].json[whole - 1]))
            whole--;
        for (size_t n = 0; n < whole; n++) {
            char *copy = malloc(n ? n : 1);
            memcpy(copy, shapes[i].json, n);
            struct scan s;
            bool slow;
            cr_assert(eq(int, scan_any(SCAN_OPENAI, copy, n, &s, &slow), SCAN_MALFORMED), "%s cut to %zu",
                      shapes[i].name, n);
            free(copy);
        }
    }
}

/* ---- random documents ---- */

static const char *const names[] = {"choices",
                                    "delta",
                                    "message",
                                    "text",
                                    "content",
                                    "reasoning",
                                    "reasoning_content",
                                    "refusal",
                                    "tool_calls",
                                    "function_call",
                                    "finish_reason",
                                    "token_ids",
                                    "usage",
                                    "prompt_tokens",
                                    "completion_tokens",
                                    "prompt_tokens_details",
                                    "completion_tokens_details",
                                    "cached_tokens",
                                    "reasoning_tokens",
                                    "error",
                                    "object",
                                    "type",
                                    "model",
                                    "system_fingerprint",
                                    "logprobs",
                                    "id",
                                    "x"};
static const char *const strings[] = {"",
                                      "a",
                                      "error",
                                      "length",
                                      "stop",
                                      "sim/x",
                                      "assay-sim/y",
                                      "\\\"content\\\":\\\"",
                                      "\\u00e9",
                                      "{\\\"a\\\":[",
                                      "\\\\",
                                      "longer text of many bytes \\n here"};
enum { NNAMES = sizeof names / sizeof *names, NSTRINGS = sizeof strings / sizeof *strings };

static void put_space(struct buf *b, struct rng *r) {
    if (rng_below(r, 8) == 0)
        buf_puts(b, rng_below(r, 2) ? " " : "\n\t");
}

static void put_name(struct buf *b, const char *name, struct rng *r) {
    buf_putc(b, '"');
    bool escape = rng_below(r, 40) == 0;
    for (const char *p = name; *p; p++)
        if (escape && rng_below(r, 3) == 0)
            buf_printf(b, "\\u%04x", *p);
        else
            buf_putc(b, *p);
    buf_putc(b, '"');
}

/* under: the key whose value this is; mostly of the kind that servers send there. */
static void put_value(struct buf *b, struct rng *r, const char *under, int depth) {
    put_space(b, r);
    uint64_t kind = rng_below(r, 10);
    if (rng_below(r, 4)) {
        if (!strcmp(under, "choices") || !strcmp(under, "tool_calls") ||
            !strcmp(under, "token_ids"))
            kind = 8;
        else if (!strcmp(under, "delta") || !strcmp(under, "message") || strstr(under, "usage") ||
                 strstr(under, "details") || !*under)
            kind = 9;
        else if (strstr(under, "_tokens"))
            kind = 5;
        else if (strcmp(under, "logprobs"))
            kind = rng_below(r, 2) ? 0 : 3;
    }
    if (depth > 6 && kind >= 8)
        kind = 0;
    switch (kind) {
    case 0:
    case 1:
    case 2:
        buf_printf(b, "\"%s\"", strings[rng_below(r, NSTRINGS)]);
        break;
    case 3:
        buf_puts(b, "null");
        break;
    case 4:
        buf_puts(b, rng_below(r, 2) ? "true" : "false");
        break;
    case 5:
    case 6:
        buf_printf(b, "%d", (int)rng_below(r, 100000));
        break;
    case 7: {
        static const char *const odd[] = {"0",
                                          "-0",
                                          "-3",
                                          "1.5",
                                          "2e3",
                                          "-1.25E-7",
                                          "12.0",
                                          "9223372036854775807",
                                          "0.12345678901234567890"};
        buf_puts(b, odd[rng_below(r, sizeof odd / sizeof *odd)]);
        break;
    }
    case 8:
        buf_putc(b, '[');
        for (uint64_t i = 0, n = rng_below(r, 4); i < n; i++) {
            if (i)
                buf_putc(b, ',');
            put_value(b, r, !strcmp(under, "choices") ? "" : "id", depth + 1);
        }
        put_space(b, r);
        buf_putc(b, ']');
        break;
    default:
        buf_putc(b, '{');
        for (uint64_t i = 0, n = rng_below(r, 7); i < n; i++) {
            const char *name = names[rng_below(r, NNAMES)];
            if (i)
                buf_putc(b, ',');
            put_space(b, r);
            put_name(b, name, r);
            put_space(b, r);
            buf_putc(b, ':');
            put_value(b, r, name, depth + 1);
            put_space(b, r);
        }
        buf_putc(b, '}');
    }
    put_space(b, r);
}

Test(backends_http_scan, random_documents_against_the_tree) {
    struct buf b;
    buf_init(&b, 1 << 20);
    int fast = 0, flagged = 0;
    for (uint64_t k = 0; k < 60000; k++) {
        struct rng r = rng_at(2, 0, k);
        buf_clear(&b);
        buf_putc(&b, '{');
        for (uint64_t i = 0, n = 1 + rng_below(&r, 5); i < n; i++) {
            const char *name =
                i == 0 && rng_below(&r, 3) ? "choices" : names[rng_below(&r, NNAMES)];
            if (i)
                buf_putc(&b, ',');
            put_name(&b, name, &r);
            buf_putc(&b, ':');
            put_value(&b, &r, name, 1);
        }
        buf_putc(&b, '}');
        struct scan got, want;
        json_error_t je;
        json_t *root = json_loadb(b.p, b.n, 0, &je);
        cr_assert(ne(ptr, root, NULL), "%s: %s", je.text, b.p);
        cr_assert(scan_dom(SCAN_OPENAI, root, &want));
        json_decref(root);
        enum scan_result res = scan_event(SCAN_OPENAI, b.p, b.n, &got);
        cr_assert(ne(int, res, SCAN_MALFORMED), "%s", b.p);
        if (res == SCAN_OK) {
            check(b.p, &got, &want);
            fast++;
            flagged += got.flags != 0;
        }
    }
    /* the property means nothing when the scan always gives up */
    cr_assert(gt(int, fast, 20000));
    cr_assert(gt(int, flagged, 5000));
    buf_release(&b);
}
