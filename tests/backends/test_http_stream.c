/* The http backend against a scripted server: stamps, token counts, and every class of failure of
 * openai-streaming.md section 5. */
#include "tests/backends/http_fixture.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#define TEXT(s) "{\"choices\":[{\"index\":0,\"text\":\"" s "\",\"finish_reason\":null}]}"
#define FINISH "{\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"length\"}]}"
#define USAGE(p, c) "{\"choices\":[],\"usage\":{\"prompt_tokens\":" #p ",\"completion_tokens\":" #c "}}"

#define REPLY(name, ...) static const struct mock_step name[] = {__VA_ARGS__, {MOCK_END, NULL, 0}}
#define PLAY(f, options, ...)                                                                      \
    static const struct mock_step steps[] = {__VA_ARGS__, {MOCK_END, NULL, 0}};                    \
    static const struct mock_step *const replies[] = {steps, NULL};                                \
    static struct fixture f;                                                                       \
    fixture_start(&f, &(struct mock_config){.replies = replies}, options)

Test(backends_http_stream, three_tokens, .timeout = 20) {
    PLAY(f, NULL, {MOCK_HEAD}, {MOCK_EVENT, TEXT("a")}, {MOCK_SLEEP, NULL, 20}, {MOCK_EVENT, TEXT("b")},
         {MOCK_SLEEP, NULL, 20}, {MOCK_EVENT, TEXT("c")}, {MOCK_EVENT, FINISH}, {MOCK_EVENT, USAGE(4, 3)},
         {MOCK_EVENT, "[DONE]"}, {MOCK_LAST});
    struct completion c = fixture_run(&f, 5, 3);
    cr_assert(eq(i32, c.fail_class, FAIL_NONE));
    cr_assert(eq(u32, c.output_tokens, 3));
    cr_assert(eq(int, fixture_count(&f, EVENT_SENT, 5), 1));
    cr_assert(eq(int, fixture_count(&f, EVENT_TOKENS, 5), 3));
    int done = fixture_event(&f, EVENT_DONE, 5, 0);
    cr_assert(ge(int, done, 0));
    cr_assert(eq(i64, f.block.a[done], 3));
    cr_assert(eq(i64, f.block.b[done], 4));
    for (int k = 0; k < 3; k++) {
        int i = fixture_event(&f, EVENT_TOKENS, 5, k);
        cr_assert(eq(i64, f.block.a[i], 1));
        cr_assert(eq(i64, f.block.b[i], 0));
        cr_assert(gt(int, i, fixture_event(&f, EVENT_SENT, 5, 0)));
    }
    /* the second token cannot be stamped before the server's pause was over */
    int64_t first = f.block.time_ns[fixture_event(&f, EVENT_TOKENS, 5, 0)];
    cr_assert(ge(i64, f.block.time_ns[fixture_event(&f, EVENT_TOKENS, 5, 1)] - first, 19000000));
    fixture_stop(&f);
}
