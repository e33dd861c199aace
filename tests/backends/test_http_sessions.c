/* Sessions over the wire: the driver, the http backend and a scripted server. What is compared are the
 * bytes that the server got, and orders and intended times of the log, which no clock decides. */
#include "harness/run/driver.h"
#include "tests/backends/http_fixture.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#define REPLY                                                                                      \
    {MOCK_HEAD}, {MOCK_EVENT, "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}"},          \
        {MOCK_EVENT, "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}"},  \
        {MOCK_EVENT, "[DONE]"}, {MOCK_LAST}, {MOCK_END}
static const struct mock_step one_token[] = {REPLY};
static const struct mock_step *const replies[] = {one_token, NULL};

enum { EVENTS = 4096, POSTS = 64, REQUESTS = 64 };
static struct run {
    struct fixture f;
    struct workload *w;
    int64_t intended_ns[REQUESTS], done_ns[REQUESTS];
    uint64_t order[REQUESTS]; /* request ids as they were issued */
    int issued;
    int posts;
    struct post {
        char session[64]; /* the header's value; "" = none was sent */
        const char *messages, *end; /* inside of the array */
        const char *body;
    } post[POSTS];
} run;

static struct event_block *collect(void *ctx, struct event_block *full) {
    (void)ctx;
    for (uint32_t i = 0; i < full->n; i++) {
        uint64_t id = full->request[i];
        if (full->kind[i] == EVENT_ISSUE) {
            cr_assert(lt(u64, id, REQUESTS));
            run.intended_ns[id] = full->time_ns[i] - full->a[i];
            run.order[run.issued++] = id;
        }
        if (full->kind[i] == EVENT_DONE)
            run.done_ns[id] = full->time_ns[i];
    }
    full->n = 0;
    return full;
}

/* The array's end: brackets outside strings. */
static const char *array_end(const char *p) {
    bool in_string = false;
    for (int depth = 1; *p; p++) {
        if (in_string) {
            p += *p == '\\';
            in_string = *p != '"';
        } else if (*p == '"') {
            in_string = true;
        } else if (*p == '[' || *p == ']') {
            depth += *p == '[' ? 1 : -1;
            if (!depth)
                return p;
        }
    }
    return NULL;
}

static void take_posts(void) {
    run.posts = mock_posts(run.f.server);
    cr_assert(le(int, run.posts, POSTS));
    for (int i = 0; i < run.posts; i++) {
        struct post *p = &run.post[i];
        const char *text = mock_post(run.f.server, i);
        const char *header = strstr(text, "\r\nX-Session-ID: ");
        p->body = strstr(text, "\r\n\r\n") + 4;
        if (header && header < p->body)
            sscanf(header + 16, "%63[^\r]", p->session);
        p->messages = strstr(p->body, "\"messages\":[");
        cr_assert(ne(ptr, (void *)p->messages, NULL));
        p->messages += 12;
        p->end = array_end(p->messages);
        cr_assert(ne(ptr, (void *)p->end, NULL));
    }
}

/* Runs a workload in one thread against the server. */
static void play(const char *workload, const char *const *set, int nset,
                 const char *const *options) {
    static const volatile int stop = 0;
    struct err e = {0};
    struct driver_shared shared;
    struct driver_progress progress = {0};
    cr_assert(eq(int, workload_load(workload, set, nset, &run.w, &e), 0), "%s", e.text);
    fixture_start(&run.f, &(struct mock_config){.replies = replies}, options);
    run.f.sink.flush = collect;
    driver_shared_init(&shared, 1);
    struct driver_args args = {.workload = run.w, .backend = run.f.backend, .sink = &run.f.sink,
                               .shared = &shared, .progress = &progress, .stop = &stop};
    cr_assert(eq(int, driver_run(&args, &e), 0), "%s", e.text);
    event_sink_flush(&run.f.sink);
    driver_shared_release(&shared);
    take_posts();
}

static void played(void) {
    fixture_stop(&run.f);
    workload_free(run.w);
}

/* The n-th POST of a session name; NULL when there are fewer. */
static const struct post *post_of(const char *session, int n) {
    for (int i = 0; i < run.posts; i++)
        if (!strcmp(run.post[i].session, session) && n-- == 0)
            return &run.post[i];
    return NULL;
}

static bool begins_with(const struct post *later, const struct post *earlier) {
    size_t n = (size_t)(earlier->end - earlier->messages);
    return (size_t)(later->end - later->messages) > n + 1 && later->messages[n] == ',' &&
           memcmp(later->messages, earlier->messages, n) == 0;
}

#define SYNTHETIC "tests/data/workloads/talks.json"
#define RECORDED "tests/data/workloads/sessions.json"

Test(backends_http_sessions, what_was_sent_is_sent_again_to_the_byte, .timeout = 30) {
    static const char *const o[] = {"api=chat", "session_header=X-Session-ID", NULL};
    play(SYNTHETIC, NULL, 0, o);
    cr_assert(eq(int, run.posts, 8));
    for (int s = 0; s < 2; s++) {
        char name[16];
        snprintf(name, sizeof name, "assay-%d", s);
        for (int turn = 1; turn < 4; turn++) {
            const struct post *a = post_of(name, turn - 1), *b = post_of(name, turn);
            cr_assert(ne(ptr, (void *)b, NULL), "every turn has its session's header");
            cr_assert(begins_with(b, a));
        }
        cr_assert(eq(ptr, (void *)post_of(name, 4), NULL));
    }
    cr_assert(not(begins_with(post_of("assay-1", 1), post_of("assay-0", 0))));
    played();
}

static const char *salt(const struct post *p) {
    static char text[4][32];
    static int k;
    const char *at = strstr(p->messages, "[salt: ");
    cr_assert(ne(ptr, (void *)at, NULL));
    k = (k + 1) % 4;
    sscanf(at + 7, "%31[0-9a-f]", text[k]);
    return text[k];
}

Test(backends_http_sessions, a_session_s_salt_stays_through_its_turns, .timeout = 30) {
    static const char *const by_session[] = {"api=chat", "session_header=X-Session-ID",
                                             "salt=session", NULL};
    play(SYNTHETIC, NULL, 0, by_session);
    for (int turn = 1; turn < 4; turn++) {
        const struct post *a = post_of("assay-0", turn - 1), *b = post_of("assay-0", turn);
        cr_assert(eq(str, (char *)salt(a), (char *)salt(b)));
        cr_assert(begins_with(b, a));
    }
    cr_assert(ne(str, (char *)salt(post_of("assay-0", 0)), (char *)salt(post_of("assay-1", 0))));
    played();
}

Test(backends_http_sessions, a_request_s_salt_is_no_other_s, .timeout = 30) {
    static const char *const o[] = {"api=chat", "session_header=X-Session-ID", "salt=request", NULL};
    play(SYNTHETIC, NULL, 0, o);
    for (int i = 0; i < run.posts; i++)
        for (int k = 0; k < i; k++)
            cr_assert(ne(str, (char *)salt(&run.post[i]), (char *)salt(&run.post[k])));
    played();
}

Test(backends_http_sessions, a_recorded_conversation_goes_out_as_it_was, .timeout = 30) {
    static const char *const set[] = {"trace.path=tests/data/workloads/endpoints.jsonl",
                                      "trace.format=mlperf-endpoints", "trace.max_delay=3ms",
                                      "trace.plays=2"};
    static const char *const o[] = {"api=chat", NULL};
    play(RECORDED, set, 4, o);
    cr_assert(eq(int, run.posts, 6));
    /* MLPerf's name for the second play of a conversation; the header goes out unasked */
    static const char *const names[] = {"c1", "c1", "c2", "c1__repeat_2", "c1__repeat_2",
                                        "c2__repeat_2"};
    for (int i = 0; i < 6; i++)
        cr_assert(eq(str, run.post[i].session, (char *)names[i]));
    cr_assert(begins_with(&run.post[1], &run.post[0]));
    for (int i = 0; i < 5; i++)
        cr_assert(eq(int, strstr(run.post[i].body, "\"tools\":[{\"type\":\"function\"") != NULL,
                     i % 3 < 2));
    size_t n = (size_t)(run.post[1].end - run.post[1].messages);
    cr_assert(eq(sz, n, (size_t)(run.post[4].end - run.post[4].messages)));
    cr_assert(eq(int, memcmp(run.post[1].messages, run.post[4].messages, n), 0));
    /* the tool's and the user's time, cut to 3 ms, counts from the answer's end */
    cr_assert(eq(i64, run.intended_ns[1] - run.done_ns[0], 3000000));
    played();
}

Test(backends_http_sessions, branches_fork_from_their_parent_s_context, .timeout = 30) {
    static const char *const set[] = {"trace.max_delay=4ms", "requests=9"};
    static const char *const o[] = {"api=chat", "session_header=X-Session-ID", NULL};
    play(RECORDED, set, 2, o);
    cr_assert(eq(int, run.posts, 9));
    const struct post *root = post_of("assay-0", 0);
    cr_assert(begins_with(post_of("assay-0", 1), root));
    cr_assert(begins_with(post_of("assay-0", 2), post_of("assay-0", 1)));
    cr_assert(begins_with(post_of("assay-0", 3), root), "cut back to the first message");
    cr_assert(not(begins_with(post_of("assay-0", 3), post_of("assay-0", 1))));
    cr_assert(begins_with(post_of("assay-0.1", 0), root), "a fork");
    cr_assert(begins_with(post_of("assay-0.3", 0), root), "an agent with its parent's context");
    cr_assert(not(begins_with(post_of("assay-0.2", 0), root)), "an agent without");
    cr_assert(begins_with(post_of("assay-0.2", 1), post_of("assay-0.2", 0)));
    cr_assert(ne(ptr, (void *)post_of("assay-0.4", 0), NULL));

    /* what waits for what: tests/workloads/test_sessions.c */
    int at[9];
    for (int i = 0; i < 9; i++)
        at[run.order[i]] = i;
    cr_assert(eq(int, at[0], 0));
    for (int i = 0; i < 4; i++)
        cr_assert(lt(int, at[i], at[4]));
    cr_assert(lt(int, at[1], at[3]));
    cr_assert(at[4] < at[6] && at[5] < at[6] && at[6] < at[7] && at[6] < at[8]);
    cr_assert(eq(i64, run.intended_ns[1] - run.done_ns[0], 4000000), "1 s, cut to 4 ms");
    int64_t last = run.done_ns[3] > run.done_ns[2] ? run.done_ns[3] : run.done_ns[2];
    int64_t own = run.done_ns[0] + 4000000; /* 6 s, cut */
    cr_assert(eq(i64, run.intended_ns[4], own > last ? own : last));
    played();
}

/* Prompts of one group begin with the same system message, those of a session too, and grow behind it. */
Test(backends_http_sessions, a_shared_prefix_leads_every_prompt_of_its_group, .timeout = 30) {
    static const char *const set[] = {"shared_prefix.tokens=7"};
    static const char *const o[] = {"api=chat", "session_header=X-Session-ID", NULL};
    play(SYNTHETIC, set, 1, o);
    static const char start[] = "{\"role\":\"system\",\"content\":\"";
    const char *end = strstr(run.post[0].messages, "\"},{\"role\":\"user\"");
    cr_assert(ne(ptr, (void *)end, NULL));
    size_t n = (size_t)(end - run.post[0].messages), blanks = 0;
    cr_assert(eq(int, strncmp(run.post[0].messages, start, sizeof start - 1), 0));
    for (const char *p = run.post[0].messages + sizeof start - 1; p < end; p++)
        blanks += *p == ' ';
    cr_assert(eq(sz, blanks, 6), "seven words");
    for (int i = 1; i < run.posts; i++)
        cr_assert(eq(int, memcmp(run.post[i].messages, run.post[0].messages, n), 0));
    for (int turn = 1; turn < 4; turn++)
        cr_assert(begins_with(post_of("assay-0", turn), post_of("assay-0", turn - 1)));
    cr_assert(not(begins_with(post_of("assay-1", 1), post_of("assay-0", 0))));
    played();
}
