/* Who counts the output tokens of a request, and prompts of exact length by a tokenizer. The tokenizers are
 * the small ones of tests/data/tokenizer, whose ids are proven elsewhere. */
#include "backends/http/scan.h"
#include "tests/backends/http_fixture.h"
#include "workloads/tokenizer/chat_template.h"
#include "workloads/tokenizer/tokenizer.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES "tests/data/tokenizer/bytes.json"
#define TEXT(s) "{\"choices\":[{\"index\":0,\"text\":\"" s "\",\"finish_reason\":null}]}"
#define USAGE(n) "{\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":" #n "}}"
#define PLAY(f, options, ...)                                                                      \
    static const struct mock_step steps[] = {__VA_ARGS__, {MOCK_END, NULL, 0}};                    \
    static const struct mock_step *const replies[] = {steps, NULL};                                \
    static struct fixture f;                                                                       \
    fixture_start(&f, &(struct mock_config){.replies = replies}, options)

static int64_t counted_by(struct fixture *f, const char *method) {
    json_t *seen = backend_http.observe(f->backend);
    int64_t n = json_integer_value(json_object_get(json_object_get(seen, "counted_by"), method));
    json_decref(seen);
    return n;
}

/* "The assay of a chip": 10 tokens as bytes.json splits it, by the library (golden.json), in events cut
 * anywhere, within an escape of two units too. */
static const struct mock_step answer[] = {
    {MOCK_HEAD},
    {MOCK_EVENT, TEXT("The as")},
    {MOCK_EVENT, TEXT("say of a ch")},
    {MOCK_EVENT, TEXT("ip \\ud83d")},
    {MOCK_EVENT, TEXT("\\ude42")},
    {MOCK_EVENT, USAGE(9)},
    {MOCK_EVENT, "[DONE]"},
    {MOCK_LAST},
    {MOCK_END},
};
static const struct mock_step without_usage[] = {
    {MOCK_HEAD},
    {MOCK_EVENT, TEXT("The as")},
    {MOCK_EVENT, TEXT("say of a ch")},
    {MOCK_EVENT, TEXT("ip \\ud83d")},
    {MOCK_EVENT, TEXT("\\ude42")},
    {MOCK_EVENT, "[DONE]"},
    {MOCK_LAST},
    {MOCK_END},
};
static const struct mock_step with_ids[] = {
    {MOCK_HEAD},
    {MOCK_EVENT, "{\"choices\":[{\"index\":0,\"text\":\"The as\",\"token_ids\":[1,2,3]}]}"},
    {MOCK_EVENT, "{\"choices\":[{\"index\":0,\"text\":\"say\",\"token_ids\":[4,5]}]}"},
    {MOCK_EVENT, "[DONE]"},
    {MOCK_LAST},
    {MOCK_END},
};

static size_t tokens_of(const char *text, unsigned flags) {
    struct tokenizer *t = NULL;
    struct err e = {0};
    size_t n;
    cr_assert(zero(int, tokenizer_load(BYTES, &t, &e)), "%s", e.text);
    struct tokenizer_work *w = tokenizer_work_new(t);
    cr_assert(zero(int, tokenizer_encode(t, w, text, strlen(text), flags, NULL, 0, &n, &e)));
    tokenizer_work_free(w);
    tokenizer_free(t);
    return n;
}

Test(backends_http_count, each_method_and_what_takes_its_place, .timeout = 60) {
    const int64_t exact = (int64_t)tokens_of("The assay of a chip \xF0\x9F\x99\x82", 0);
    cr_assert(gt(i64, exact, 9)); /* neither the usage nor the number of events */
    const struct {
        const struct mock_step *reply;
        const char *count, *tokenizer, *used;
        int64_t tokens;
    } cases[] = {
        {answer, "auto", BYTES, "usage", 9},
        {answer, "usage", NULL, "usage", 9},
        {answer, "tokenizer", BYTES, "tokenizer", exact},
        {answer, "events", BYTES, "events", 4},
        {answer, "ids", NULL, "usage", 9}, /* there are none: the first that there is */
        {without_usage, "auto", NULL, "events", 4},
        {without_usage, "auto", BYTES, "tokenizer", exact},
        {without_usage, "usage", NULL, "events", 4},
        {with_ids, "auto", BYTES, "ids", 5},
        {with_ids, "tokenizer", BYTES, "tokenizer", (int64_t)tokens_of("The assay", 0)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char count[64], tokenizer[96] = "";
        snprintf(count, sizeof count, "count=%s", cases[i].count);
        if (cases[i].tokenizer)
            snprintf(tokenizer, sizeof tokenizer, "tokenizer=%s", cases[i].tokenizer);
        const char *const options[] = {count, cases[i].tokenizer ? tokenizer : NULL, NULL};
        const struct mock_step *const replies[] = {cases[i].reply, NULL};
        static struct fixture f;
        memset(&f, 0, sizeof f);
        fixture_start(&f, &(struct mock_config){.replies = replies}, options);
        for (uint64_t k = 0; k < 2; k++) { /* the second request begins with no text of the first */
            struct completion c = fixture_run(&f, k, 20);
            cr_assert(eq(i32, c.fail_class, FAIL_NONE));
            cr_assert(eq(u32, c.output_tokens, (uint32_t)cases[i].tokens), "case %zu", i);
            cr_assert(eq(i64, f.block.a[fixture_event(&f, EVENT_DONE, k, 0)], cases[i].tokens));
        }
        cr_assert(eq(i64, counted_by(&f, cases[i].used), 2), "case %zu", i);
        fixture_stop(&f);
    }
}

Test(backends_http_count, what_was_asked_and_could_not_be_had_is_told, .timeout = 20) {
    static const char *const options[] = {"count=ids", NULL};
    const struct mock_step *const replies[] = {answer, NULL};
    static struct fixture f;
    fixture_start(&f, &(struct mock_config){.replies = replies}, options);
    fixture_run(&f, 0, 9);
    json_t *seen = backend_http.observe(f.backend), *text;
    size_t i;
    bool told = false;
    json_array_foreach(json_object_get(seen, "warnings"), i, text)
        told |= strstr(json_string_value(text), "1 requests could not be counted by ids, as asked") != NULL;
    cr_assert(told);
    json_decref(seen);
    fixture_stop(&f);
}

/* A call is no text that a tokenizer could count; other choices' text is not the answer's. */
Test(backends_http_count, what_is_no_plain_text_is_counted_by_events, .timeout = 20) {
    static const char *const options[] = {"api=chat", "tokenizer=" BYTES, NULL};
    PLAY(f, options, {MOCK_HEAD}, {MOCK_EVENT, "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"abc\"}}]}"},
         {MOCK_EVENT, "{\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{"
                      "\"arguments\":\"{}\"}}]}}]}"},
         {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    struct completion c = fixture_run(&f, 0, 20);
    cr_assert(eq(u32, c.output_tokens, 2));
    cr_assert(eq(i64, counted_by(&f, "events"), 1));
    fixture_stop(&f);
}

Test(backends_http_count, a_document_is_counted_too, .timeout = 20) {
    static const char *const options[] = {"stream=off", "api=chat", "count=tokenizer", "tokenizer=" BYTES, NULL};
    PLAY(f, options,
         {MOCK_SEND, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 91\r\n\r\n"
                     "{\"choices\":[{\"message\":{\"content\":\"The assay \\u0041\"}}],\"usage\":{\"completion_tokens\":"
                     "3   }}"});
    struct completion c = fixture_run(&f, 0, 20);
    cr_assert(eq(i32, c.fail_class, FAIL_NONE));
    cr_assert(eq(u32, c.output_tokens, (uint32_t)tokens_of("The assay A", 0)));
    fixture_stop(&f);
}

/* ---- spans ---- */

static void check_spans(enum scan_dialect d, const char *event, const char *joined, bool lost) {
    struct scan c;
    char all[128] = "";
    bool slow;
    cr_assert(eq(int, scan_any(d, event, strlen(event), &c, &slow), SCAN_OK), "%s", event);
    for (unsigned i = 0; i < c.ntexts; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%.*s|", (int)c.text[i].n, c.text[i].p);
    cr_expect(eq(str, all, (char *)joined), "%s", event);
    cr_expect(eq(int, c.text_lost, lost), "%s", event);
}

Test(backends_http_count, spans_of_output_text) {
    static const struct {
        enum scan_dialect d;
        const char *event, *joined;
        bool lost;
    } cases[] = {
        {SCAN_OPENAI, TEXT("a\\n\\u00e9"), "a\\n\\u00e9|", false},
        {SCAN_OPENAI, TEXT(""), "", false},
        {SCAN_OPENAI, "{\"choices\":[{\"delta\":{\"reasoning\":\"r\",\"content\":\"c\"}}]}", "r|c|", false},
        {SCAN_OPENAI, "{\"choices\":[{\"text\":\"b\",\"index\":1}]}", "", true},
        {SCAN_OPENAI, "{\"choices\":[{\"text\":\"a\",\"index\":0},{\"index\":1,\"text\":\"b\"}]}", "a|", true},
        {SCAN_OPENAI, "{\"choices\":[{\"text\":\"\",\"index\":1}]}", "", false},
        {SCAN_OPENAI, "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}", "", true},
        {SCAN_OPENAI, "{\"model\":\"text\",\"id\":\"x\",\"choices\":[{\"logprobs\":{\"content\":[{\"token\":\"t\"}]},"
                      "\"text\":\"a\"}]}", "a|", false},
        {SCAN_OPENAI, "{\"choices\":[{\"t\\u0065xt\":\"a\"}]}", "", true}, /* by the tree */
        {SCAN_OPENAI, "{\"choices\":[],\"usage\":{\"completion_tokens\":3}}", "", false},
        {SCAN_RESPONSES, "{\"type\":\"response.output_text.delta\",\"delta\":\"a\"}", "a|", false},
        {SCAN_RESPONSES, "{\"delta\":\"a\",\"type\":\"response.reasoning_text.delta\"}", "a|", false},
        {SCAN_RESPONSES, "{\"delta\":\"a\",\"type\":\"response.audio.delta\"}", "", false},
        {SCAN_RESPONSES, "{\"type\":\"response.function_call_arguments.delta\",\"delta\":\"{\"}", "{|", true},
        {SCAN_RESPONSES, "{\"type\":\"response.output_item.done\",\"item\":{\"type\":\"message\",\"content\":[{"
                         "\"text\":\"all of it\"}]}}", "", false},
        {SCAN_MESSAGES, "{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}", "a|",
         false},
        {SCAN_MESSAGES, "{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":"
                        "\"{\"}}", "{|", true},
        {SCAN_MESSAGES, "{\"type\":\"message_start\",\"message\":{\"content\":[],\"usage\":{\"input_tokens\":1}}}", "",
         false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_spans(cases[i].d, cases[i].event, cases[i].joined, cases[i].lost);
    /* more pieces than there is room for */
    check_spans(SCAN_MESSAGES,
                "{\"content\":[{\"text\":\"a\"},{\"text\":\"b\"},{\"text\":\"c\"},{\"text\":\"d\"},{\"text\":\"e\"}]}",
                "a|b|c|d|", true);
}

/* ---- prompts ---- */

/* The string member `key` of the JSON body of a POST. */
static json_t *body_of(const char *post) {
    const char *at = strstr(post, "\r\n\r\n");
    cr_assert(ne(ptr, (void *)at, NULL));
    json_t *v = json_loads(at + 4, 0, NULL);
    cr_assert(ne(ptr, v, NULL), "%s", at + 4);
    return v;
}

Test(backends_http_count, text_prompts_have_the_length_asked_for, .timeout = 60) {
    static const char *const options[] = {"prompt=text", "tokenizer=" BYTES, NULL};
    static const uint32_t lengths[] = {2, 3, 7, 64, 500, 2000};
    const struct mock_step *const replies[] = {answer, NULL};
    static struct fixture f;
    fixture_start(&f, &(struct mock_config){.replies = replies}, options);
    for (uint64_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct request r = fixture_request(i, lengths[i], 9);
        r.content_seed = 77 + i;
        struct completion c;
        cr_assert(zero(int, fixture_submit(&f, &r) < 0));
        cr_assert(zero(int, fixture_wait(&f, &c, 1)));
        json_t *body = body_of(mock_post(f.server, (int)i));
        const char *prompt = json_string_value(json_object_get(body, "prompt"));
        /* as the server counts it: with its begin of text */
        cr_assert(eq(sz, tokens_of(prompt, TOKENIZER_ENCODE_TEMPLATE), lengths[i]), "'%s'", prompt);
        json_decref(body);
    }
    fixture_stop(&f);
}

static size_t chat_tokens(const json_t *messages, const char *family) {
    const struct chat_template *t = NULL;
    struct chat_message m[16];
    struct buf text;
    struct err e = {0};
    size_t n = json_array_size(messages);
    cr_assert(le(sz, n, 16));
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(messages, i), *content = json_object_get(one, "content");
        const char *role = json_string_value(json_object_get(one, "role"));
        m[i].role = *role == 's' ? CHAT_SYSTEM : *role == 'u' ? CHAT_USER : CHAT_ASSISTANT;
        m[i].text = (struct str){json_string_value(content), json_string_length(content)};
    }
    buf_init(&text, 1 << 20);
    cr_assert(zero(int, chat_template_named(family, &t, &e)));
    cr_assert(zero(int, chat_template_render(t, m, n, CHAT_RENDER_GENERATION, "2026-01-01", &text, &e)), "%s",
              e.text);
    size_t tokens = tokens_of(text.p, 0);
    buf_release(&text);
    return tokens;
}

/* Messages count with what the template puts around them: alone, behind a common system message, and as a
 * conversation whose answers are part of what follows. */
Test(backends_http_count, conversations_have_the_length_asked_for, .timeout = 60) {
    static const char *const families[] = {"qwen3", "llama3", "llama3.1", "gemma3", "deepseek-v3"};
    for (size_t k = 0; k < sizeof families / sizeof *families; k++) {
        char chat[64];
        snprintf(chat, sizeof chat, "chat_template=%s", families[k]);
        const char *const options[] = {"api=chat", "tokenizer=" BYTES, chat, NULL};
        static const struct mock_step reply[] = {
            {MOCK_HEAD},
            {MOCK_EVENT, "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"the\"}}]}"},
            {MOCK_EVENT, USAGE(9)},
            {MOCK_EVENT, "[DONE]"},
            {MOCK_LAST},
            {MOCK_END},
        };
        const struct mock_step *const replies[] = {reply, NULL};
        static struct fixture f;
        memset(&f, 0, sizeof f);
        fixture_start(&f, &(struct mock_config){.replies = replies}, options);
        static const size_t wanted[] = {1, 2, 1, 3};
        struct request r[4];
        for (uint64_t i = 0; i < 4; i++)
            r[i] = fixture_request(i, 400, 9);
        r[1].common = 100, r[1].common_seed = 5; /* a system message of its own */
        r[2].session = r[3].session = 1;         /* two turns of one session */
        r[2].turns = r[3].turns = 2;
        r[2].last_turn = false;
        r[3].last_turn = true;
        r[3].turn = 1;
        r[3].shared = 409;
        r[3].isl = 700;
        r[2].content_seed = r[3].content_seed = 99;
        for (int i = 0; i < 4; i++) {
            struct completion c;
            cr_assert(zero(int, fixture_submit(&f, &r[i]) < 0), "%s", f.err.text);
            cr_assert(zero(int, fixture_wait(&f, &c, 1)));
            json_t *body = body_of(mock_post(f.server, i));
            const json_t *messages = json_object_get(body, "messages");
            cr_assert(eq(sz, json_array_size(messages), wanted[i]));
            cr_assert(eq(sz, chat_tokens(messages, families[k]), r[i].isl), "%s: request %d", families[k], i);
            json_decref(body);
        }
        fixture_stop(&f);
    }
}

Test(backends_http_count, what_cannot_be_opened, .timeout = 60) {
    static const struct {
        const char *options[4], *message;
        int code;
    } cases[] = {
        {{"count=tokenizer"}, "-o count=tokenizer: expected -o tokenizer=FILE with it", ASSAY_EUSAGE},
        {{"chat_template=qwen3"}, "-o chat_template: expected -o tokenizer=FILE with it", ASSAY_EUSAGE},
        {{"tokenizer=tests/data/none.json"}, "-o tokenizer: ", ASSAY_EINPUT},
        {{"tokenizer=tests/data/tokenizer/golden.json"}, "golden.json: at /model", ASSAY_EINPUT},
        {{"tokenizer=" BYTES, "api=chat", "chat_template=vicuna"}, "no chat template is called 'vicuna'",
         ASSAY_EUSAGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct fixture f;
        memset(&f, 0, sizeof f);
        const struct mock_step *const replies[] = {answer, NULL};
        f.server = mock_start(&(struct mock_config){.replies = replies});
        int rc = fixture_open(&f, cases[i].options);
        cr_expect(ne(int, rc, 0), "case %zu", i);
        cr_expect(ne(ptr, (void *)strstr(f.err.text, cases[i].message), NULL), "case %zu: %s", i, f.err.text);
        fixture_stop(&f);
    }
}

Test(backends_http_count, the_record_says_which_tokenizer, .timeout = 20) {
    static const char *const options[] = {"api=chat", "tokenizer=" BYTES, "chat_template=qwen3", NULL};
    const struct mock_step *const replies[] = {answer, NULL};
    static struct fixture f;
    struct backend_info info;
    fixture_start(&f, &(struct mock_config){.replies = replies}, options);
    cr_assert(zero(int, backend_http.describe(f.backend, &info, &f.err)));
    const json_t *t = json_object_get(info.details, "tokenizer");
    cr_assert(eq(str, (char *)json_string_value(json_object_get(t, "file")), BYTES));
    cr_assert(eq(sz, json_string_length(json_object_get(t, "sha256")), 64));
    cr_assert(eq(str, (char *)json_string_value(json_object_get(t, "chat_template")), "qwen3"));
    cr_assert(gt(i64, json_integer_value(json_object_get(json_object_get(t, "prompt_overhead_tokens"), "first")), 5));
    json_decref(info.details);
    fixture_stop(&f);
}
