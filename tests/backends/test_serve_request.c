/* Reading request bodies: what counts as a token, what is refused and where, and agreement with
 * jansson on what is JSON at all. */
#include "backends/serve/serve_internal.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

TestSuite(backends_serve_request, .timeout = 30);

static const struct serve_limits limits = {
    .max_context = 1000, .model_id = "sim/v6e-8/m", .model_name = "m"};

static int parse(const char *body, enum serve_endpoint endpoint, struct serve_request *r,
                 struct serve_error *e) {
    *e = (struct serve_error){0};
    return serve_request_parse(body, strlen(body), endpoint, &limits, r, e);
}

Test(backends_serve_request, counts_tokens) {
    static const struct {
        enum serve_endpoint endpoint;
        const char *body;
        int64_t isl, osl;
    } rows[] = {
        {SERVE_COMPLETIONS, "{\"prompt\":\"\"}", 1, 16},
        {SERVE_COMPLETIONS, "{\"prompt\":\"abcd\",\"max_tokens\":3}", 1, 3},
        {SERVE_COMPLETIONS, "{\"prompt\":\"abcde\",\"max_tokens\":null}", 2, 16},
        /* two-byte é, escaped and raw; a surrogate pair is four bytes */
        {SERVE_COMPLETIONS, "{\"prompt\":\"\\u00e9\xc3\xa9\"}", 1, 16},
        {SERVE_COMPLETIONS, "{\"prompt\":\"\\ud83d\\ude00\\n\"}", 2, 16},
        {SERVE_COMPLETIONS, "{\"prompt\":[5,6,7]}", 3, 16},
        {SERVE_COMPLETIONS, "{\"prompt\":[[5,6,7,8]]}", 4, 16},
        {SERVE_COMPLETIONS, "{\"prompt\":[\"abcdefgh\"]}", 2, 16},
        {SERVE_COMPLETIONS, "{\"prompt\":[1],\"min_tokens\":40}", 1, 40},
        {SERVE_COMPLETIONS, "{\"prompt\":[1],\"max_tokens\":999,\"model\":\"m\"}", 1, 999},
        {SERVE_COMPLETIONS, "{\"prompt\":\"abc\",\"prompt\":[1,2],\"x\":{\"prompt\":[[]]}}", 2, 16},
        {SERVE_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"abcde\"}]}", 2, 256},
        {SERVE_CHAT, "{\"messages\":[{\"role\":\"a\",\"content\":null},{\"role\":\"b\"}]}", 1, 256},
        {SERVE_CHAT,
         "{\"max_tokens\":9,\"max_completion_tokens\":7,\"messages\":[{\"content\":[{\"text\":"
         "\"abcd\","
         "\"type\":\"text\"},{\"type\":\"text\",\"text\":\"e\"}],\"role\":\"user\"}],\"prompt\":3}",
         2, 7},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct serve_request r;
        struct serve_error e;
        cr_assert(eq(int, parse(rows[i].body, rows[i].endpoint, &r, &e), 0), "row %zu: %s", i,
                  e.message);
        cr_assert(eq(i64, r.isl, rows[i].isl), "row %zu", i);
        cr_assert(eq(i64, r.osl, rows[i].osl), "row %zu", i);
    }
}

Test(backends_serve_request, reads_stream_options) {
    struct serve_request r;
    struct serve_error e;
    cr_assert(eq(
        int,
        parse("{\"prompt\":\"x\",\"stream\":true,\"ignore_eos\":true,\"stream_options\":{\"include_"
              "usage\":true,\"continuous_usage_stats\":true}}",
              SERVE_COMPLETIONS, &r, &e),
        0));
    cr_assert(r.stream && r.include_usage && r.continuous_usage && r.ignore_eos);
    cr_assert(
        eq(int,
           parse("{\"prompt\":\"x\",\"stream\":true,\"stream_options\":{\"include_usage\":false,"
                 "\"continuous_usage_stats\":true}}",
                 SERVE_COMPLETIONS, &r, &e),
           0));
    cr_assert(not(r.continuous_usage)); /* vLLM: only together with include_usage */
}

Test(backends_serve_request, refuses_with_the_place) {
    static const struct {
        enum serve_endpoint endpoint;
        const char *body, *param, *message;
    } rows[] = {
        {0, "[]", "", "the body: expected an object, found an array"},
        {0, "{}", "prompt", "prompt: missing"},
        {0, "{\"prompt\":null}", "prompt", "prompt: missing"},
        {0, "{\"prompt\":5}", "prompt",
         "prompt: expected a string or an array, found a number at line 1 column 11"},
        {0, "{\"prompt\":[]}", "prompt", "prompt: expected at least one token"},
        {0, "{\"prompt\":[1,\"a\"]}", "prompt",
         "prompt: expected a token id, found a string at line 1 column 14"},
        {0, "{\"prompt\":[1,-2]}", "prompt",
         "prompt: expected a token id >= 0, found a number at line 1 column 14"},
        {0, "{\"prompt\":[1,2.5]}", "prompt",
         "prompt: expected an integer, found a number at line 1 column 14"},
        {0, "{\"prompt\":[\"a\",\"b\"]}", "prompt",
         "prompt: one prompt a request, found an array of several"},
        {0, "{\"prompt\":[[[1]]]}", "prompt",
         "prompt: expected a token id, found an array at line 1 column 13"},
        {0, "{\"prompt\":\"x\",\"max_tokens\":0}", "max_tokens",
         "max_tokens: expected at least 1, found 0"},
        {0, "{\"prompt\":\"x\",\"max_tokens\":1000}", "max_tokens",
         "the model's context is 1000 tokens, but 1001 were requested (1 of input, 1000 of "
         "output)"},
        {0, "{\"prompt\":\"x\",\"max_tokens\":99999999999999999999}", "max_tokens",
         "the model's context is 1000 tokens, but 9223372036854775807 were requested (1 of input, "
         "9223372036854775807 of output)"},
        {0, "{\"prompt\":\"x\",\"min_tokens\":9,\"max_tokens\":8}", "min_tokens",
         "min_tokens: expected 0 to max_tokens (8), found 9"},
        {0, "{\"prompt\":\"x\",\"stream_options\":{}}", "stream_options",
         "stream_options: allowed only when stream is true"},
        {0, "{\"prompt\":\"x\",\"stream\":1}", "stream",
         "stream: expected a boolean, found a number at line 1 column 24"},
        {SERVE_CHAT, "{\"messages\":[   ]}", "messages",
         "messages: expected at least one message, found an array at line 1 column 13"},
        {SERVE_CHAT, "{\"messages\":[ {\n\"content\":\"x\"}]}", "messages",
         "messages: expected an object with role, found an object at line 1 column 15"},
        {SERVE_CHAT,
         "{\"messages\":[{\"role\":\"u\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]}]"
         "}",
         "messages", "messages: expected a part of type text, found an object at line 1 column 37"},
        {0, "{\"prompt\":\"x\",}", "",
         "the body is not valid JSON at line 1 column 15 (byte 14): expected a member name, found "
         "'}'"},
        {0, "{\"prompt\":\"x\" \"y\"}", "",
         "the body is not valid JSON at line 1 column 15 (byte 14): expected ',' or '}' in an "
         "object, found '\"'"},
        {0, "{\"prompt\":\"\\ud800x\"}", "",
         "the body is not valid JSON at line 1 column 18 (byte 17): expected a low surrogate after "
         "a high one, found 'x'"},
        {0, "{\"prompt\":\"\xff\"}", "",
         "the body is not valid JSON at line 1 column 12 (byte 11): expected valid UTF-8, found "
         "byte 0xff"},
        {0, "{\"prompt\":\"a\tb\"}", "",
         "the body is not valid JSON at line 1 column 13 (byte 12): expected an escaped control "
         "character, found byte 0x09"},
        {0, "{\"prompt\":\"x\",\"y\":01}", "",
         "the body is not valid JSON at line 1 column 20 (byte 19): expected no digit after a "
         "leading zero, found '1'"},
        {0, "{\"prompt\":\"x\"} x", "",
         "the body is not valid JSON at line 1 column 16 (byte 15): expected the end of the body, "
         "found 'x'"},
        {0, "{\"prompt\":\"x", "",
         "the body is not valid JSON at line 1 column 13 (byte 12): expected '\"' at the end of a "
         "string, found the end of the body"},
        {0, "{\"prompt\":", "",
         "the body is not valid JSON at line 1 column 11 (byte 10): expected a value, found the "
         "end of the body"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct serve_request r;
        struct serve_error e;
        cr_assert(eq(int, parse(rows[i].body, rows[i].endpoint, &r, &e), -1), "row %zu", i);
        cr_assert(eq(int, e.status, 400));
        cr_assert(eq(str, e.message, (char *)rows[i].message));
        cr_assert(eq(str, e.param, (char *)rows[i].param));
    }
}

Test(backends_serve_request, bounds_depth_and_size_of_output) {
    char body[4096] = "{\"prompt\":\"x\",\"y\":";
    struct serve_request r;
    struct serve_error e;
    size_t n = strlen(body);
    memset(body + n, '[', 63);
    memset(body + n + 63, ']', 63);
    memcpy(body + n + 126, "}", 2);
    cr_assert(eq(int, parse(body, SERVE_COMPLETIONS, &r, &e), 0), "%s", e.message);
    memset(body + n, '[', 64);
    memset(body + n + 64, ']', 64);
    memcpy(body + n + 128, "}", 2);
    cr_assert(eq(int, parse(body, SERVE_COMPLETIONS, &r, &e), -1));
    cr_assert(eq(str, e.message, "the body nests deeper than 64 levels at line 1 column 82"));
    static const struct serve_limits unknown = {.model_id = "x", .model_name = ""};
    static const char big[] = "{\"prompt\":\"x\",\"max_tokens\":1048577}";
    cr_assert(
        eq(int, serve_request_parse(big, sizeof big - 1, SERVE_COMPLETIONS, &unknown, &r, &e), -1));
    cr_assert(eq(str, e.message, "max_tokens: expected at most 1048576, found 1048577"));
}

/* Turns of a conversation, by what was said: each continues the one before when it begins with all
 * of it. */
Test(backends_serve_request, finds_conversations) {
    struct serve_limits l = {.model_id = "x", .model_name = ""};
    struct serve_request a, b, c;
    struct serve_error e;
    struct err err;
    char answer[4 * 128 + 1] = "", body[8192], ids[4096] = "1";
    cr_assert(eq(int, sessions_new(&l.sessions, &err), 0));
#define PARSE(r, endpoint, ...)                                                                    \
    snprintf(body, sizeof body, __VA_ARGS__);                                                      \
    cr_assert(eq(int, serve_request_parse(body, strlen(body), endpoint, &l, r, &e), 0), "%s",      \
              e.message)
    for (int i = 0; i < 128; i++)
        serve_piece(i, answer + 4 * i);
    char opening[400];
    snprintf(opening, sizeof opening, "{\"role\":\"user\",\"content\":\"%0300d\"}", 7);
    PARSE(&a, SERVE_CHAT, "{\"max_tokens\":128,\"messages\":[%s]}", opening);
    cr_assert(eq(i64, a.isl, 75));
    cr_assert(eq(i64, a.shared, 0));
    cr_assert(ne(u64, a.session, REQUEST_NO_SESSION));
    /* the answer sent back, in parts and with an escape: 75 + 128 tokens, known to the last whole
     * word */
    PARSE(&b, SERVE_CHAT,
          "{\"messages\":[%s,{\"role\":\"assistant\",\"content\":\"\\u0020%s\"},{\"role\":\"user\","
          "\"content\":\"more\"}]}",
          opening, answer + 1);
    cr_assert(eq(u64, b.session, a.session));
    cr_assert(eq(i64, b.isl, 204));
    cr_assert(eq(i64, b.shared, 202));
    /* another answer: only the first prompt is known */
    PARSE(&c, SERVE_CHAT, "{\"messages\":[%s,{\"role\":\"assistant\",\"content\":\"no\"}]}",
          opening);
    cr_assert(eq(u64, c.session, a.session));
    cr_assert(eq(i64, c.shared, 74));
    /* the same prompt again is a conversation of its own, and so is another one */
    PARSE(&c, SERVE_CHAT, "{\"max_tokens\":128,\"messages\":[%s]}", opening);
    cr_assert(ne(u64, c.session, a.session));
    cr_assert(eq(i64, c.shared, 0));
    PARSE(&b, SERVE_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"8%0299d and more\"}]}",
          7);
    cr_assert(ne(u64, b.session, a.session));
    cr_assert(eq(i64, b.shared, 0));
    /* token ids: every one counts */
    for (size_t i = 1; i < 130; i++)
        memcpy(ids + strlen(ids), ",9", sizeof ",9");
    PARSE(&a, SERVE_COMPLETIONS, "{\"prompt\":[%s]}", ids);
    PARSE(&b, SERVE_COMPLETIONS, "{\"prompt\":[[%s,5,6,7]]}", ids);
    cr_assert(eq(u64, b.session, a.session));
    cr_assert(eq(i64, b.isl, 133));
    cr_assert(eq(i64, b.shared, 130));
    /* a refused request leaves no trace */
    snprintf(body, sizeof body, "{\"prompt\":\"3%0299d\",\"n\":2}", 7);
    cr_assert(eq(int, serve_request_parse(body, strlen(body), SERVE_COMPLETIONS, &l, &a, &e), -1));
    PARSE(&b, SERVE_COMPLETIONS, "{\"prompt\":\"3%0299dxxxx\"}", 7);
    cr_assert(eq(i64, b.shared, 0));
    sessions_free(l.sessions);
}

/* Far more conversations than are remembered: the newest are found. */
Test(backends_serve_request, forgets_the_oldest_conversations) {
    struct serve_limits l = {.model_id = "x", .model_name = ""};
    struct serve_request r;
    struct serve_error e;
    struct err err;
    char body[512];
    int found = 0;
    cr_assert(eq(int, sessions_new(&l.sessions, &err), 0));
    for (int i = 0; i < 200000; i++) {
        snprintf(body, sizeof body, "{\"prompt\":\"%0256d\",\"max_tokens\":1}", i);
        cr_assert(
            eq(int, serve_request_parse(body, strlen(body), SERVE_COMPLETIONS, &l, &r, &e), 0));
    }
    for (int i = 199000; i < 200000; i++) {
        snprintf(body, sizeof body, "{\"prompt\":\"%0256dnext\",\"max_tokens\":1}", i);
        cr_assert(
            eq(int, serve_request_parse(body, strlen(body), SERVE_COMPLETIONS, &l, &r, &e), 0));
        cr_assert(r.session == (uint64_t)i || r.shared == 0);
        found += r.shared == 64;
    }
    cr_assert(gt(int, found, 950));
    sessions_free(l.sessions);
}

/* Every truncation and every single-byte change of a body is either read by both or by neither.
 * jansson differs where it refuses numbers beyond its range and \u0000; the body has neither. */
Test(backends_serve_request, agrees_with_jansson) {
    static const char seed[] =
        "{\"prompt\":[\"a\\u00e9\\n\"], \"z\":{\"k\":[true,false,null,-1.5e+3,0]},\n"
        "\"max_tokens\" : 12, \"s\":\"\\ud83d\\ude00 \xe2\x82\xac\"}";
    static const char changes[] = "{}[]\",:0-e.u\\\x01\xc3\xff tn";
    char body[sizeof seed];
    int refused = 0, read = 0;
    for (size_t i = 0; i < sizeof seed - 1; i++)
        for (size_t k = 0; k < sizeof changes; k++) {
            size_t n = k == sizeof changes - 1 ? i : sizeof seed - 1;
            struct serve_request r;
            struct serve_error e = {0};
            memcpy(body, seed, sizeof seed);
            if (n == sizeof seed - 1)
                body[i] = changes[k];
            json_t *j = json_loadb(body, n, JSON_ALLOW_NUL, NULL);
            bool ours = serve_request_parse(body, n, SERVE_COMPLETIONS, &limits, &r, &e) == 0;
            bool malformed = !ours && strstr(e.message, "not valid JSON");
            if (j)
                cr_assert(not(malformed), "refused: %.*s: %s", (int)n, body, e.message);
            else
                cr_assert(not(ours), "read: %.*s", (int)n, body);
            refused += !ours;
            read += ours;
            json_decref(j);
        }
    cr_assert(gt(int, refused, 1000));
    cr_assert(gt(int, read, 100));
}
