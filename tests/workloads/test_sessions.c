/* Recorded sessions: the readers' fixtures call by call, malformed input with its place, published
 * traces' counted facts, and plans from sessions. */
#include "workloads/plan.h"
#include "workloads/trace.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA "tests/data/workloads/"
#define SHARED "../shared/data/"

static struct trace *open_trace(const char *path, enum trace_format f) {
    struct trace *t;
    struct trace_options o = {0};
    struct err e = {0};
    cr_assert(eq(int, trace_open(path, f, &o, &t, &e), 0), "%s", e.text);
    return t;
}

static bool next(struct trace *t, struct session *s) {
    struct err e = {0};
    bool end;
    session_clear(s);
    cr_assert(eq(int, trace_next_session(t, s, &end, &e), 0), "%s", e.text);
    return !end;
}

/* The messages of a call as JSON. */
static json_t *messages(const struct session *s, size_t from, size_t to) {
    size_t n = to - from;
    char *text = malloc(n + 2);
    text[0] = '[';
    memcpy(text + 1, s->messages + from, n);
    text[n + 1] = ']';
    json_t *v = json_loadb(text, n + 2, JSON_REJECT_DUPLICATES, NULL);
    cr_assert(ne(ptr, v, NULL), "%.*s", (int)n, s->messages + from);
    free(text);
    return v;
}

/* ---- MLPerf Endpoints ---- */

Test(workloads_sessions, a_conversation_is_read_message_by_message) {
    struct trace *t = open_trace(DATA "endpoints.jsonl", TRACE_ENDPOINTS);
    struct session s = {0};
    cr_assert(next(t, &s));
    cr_assert(eq(str, (char *)s.id, "c1"));
    cr_assert(eq(u64, s.line, 1));
    cr_assert(eq(u32, s.ncalls, 2));
    cr_assert(eq(u32, s.branches, 1));

    /* what each row says, written out by hand */
    static const char *const want[] = {
        "[{\"role\":\"system\",\"content\":\"be brief\"},"
        "{\"role\":\"user\",\"content\":\"list the \\\"files\\\"\"}]",
        "[{\"role\":\"system\",\"content\":\"be brief\"},"
        "{\"role\":\"user\",\"content\":\"list the \\\"files\\\"\"},"
        "{\"role\":\"assistant\",\"reasoning_content\":\"I look.\",\"tool_calls\":[{\"id\":\"f:0\","
        "\"type\":\"function\",\"function\":{\"name\":\"bash\","
        "\"arguments\":\"{\\\"command\\\": \\\"ls\\\"}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"f:0\",\"content\":\"a.c\\nb.c\"},"
        "{\"role\":\"tool\",\"tool_call_id\":\"f:1\",\"content\":\"\xc3\xa9\"},"
        "{\"role\":\"user\",\"content\":\"and?\"}]"};
    for (int i = 0; i < 2; i++) {
        json_t *got = messages(&s, 0, s.call[i].messages_bytes);
        json_t *expected = json_loads(want[i], 0, NULL);
        cr_assert(json_equal(got, expected), "call %d: %s", i, json_dumps(got, 0));
        json_decref(got);
        json_decref(expected);
    }
    json_t *own = messages(&s, s.call[1].own_at, s.call[1].messages_bytes);
    cr_assert(eq(sz, json_array_size(own), 3), "two results and the user's question");
    json_decref(own);

    /* text: 8 + 16 bytes; tools: 77 as compact JSON; then 7 + 94 of the answer, 7 + 2 + 4 more */
    size_t tools = strlen("[{\"type\":\"function\",\"function\":{\"name\":\"bash\","
                          "\"parameters\":{\"type\":\"object\"}}}]");
    size_t calls = strlen("[{\"id\":\"f:0\",\"type\":\"function\",\"function\":{\"name\":\"bash\","
                          "\"arguments\":\"{\\\"command\\\": \\\"ls\\\"}\"}}]");
    cr_assert(eq(sz, s.call[0].tools_bytes, tools));
    cr_assert(eq(sz, s.call[1].tools_bytes, tools), "tools hold on");
    cr_assert(eq(u32, s.call[0].isl, (uint32_t)((24 + tools + 3) / 4)));
    cr_assert(eq(u32, s.call[0].osl, (uint32_t)((7 + calls + 3) / 4)));
    cr_assert(eq(u32, s.call[0].shared, 0));
    cr_assert(eq(u32, s.call[1].isl, (uint32_t)((24 + tools + 7 + calls + 13 + 3) / 4)));
    cr_assert(eq(u32, s.call[1].shared, (uint32_t)((24 + tools + 7 + calls) / 4)));
    cr_assert(eq(u32, s.call[1].osl, 3)); /* "two files" */

    /* the delay of the row that triggers the request, not of the one before it */
    cr_assert(eq(u32, s.call[0].nwaits, 0));
    cr_assert(eq(u32, s.call[1].nwaits, 1));
    cr_assert(eq(u32, s.call[1].wait[0].call, 0));
    cr_assert(eq(i64, s.call[1].wait[0].delay_ns, 1500000000));
    cr_assert(eq(int, s.call[0].last_turn, 0));
    cr_assert(eq(int, s.call[1].last_turn, 1));

    cr_assert(next(t, &s));
    cr_assert(eq(str, (char *)s.id, "c2"));
    cr_assert(eq(u64, s.line, 9));
    cr_assert(eq(u32, s.ncalls, 1));
    cr_assert(eq(ptr, (void *)s.call[0].tools, NULL));
    cr_assert(not(next(t, &s)));
    cr_assert(not(next(t, &s)));
    cr_assert(eq(u64, trace_dropped(t), 1));
    trace_close(t);
}

/* ---- Weka ---- */

struct want_wait {
    uint32_t call;
    int64_t ms;
};
static const struct want_call {
    uint32_t branch, parent, turn, isl, osl, shared, nwaits;
    struct want_wait wait[3];
    bool last;
} tree[] = {
    /* by hand from the fixture's times; branches: 0 main, 1 the fork at 9 s, 2 to 4 agents s1 to s3 */
    {0, 0, 0, 128, 10, 0, 0, {{0, 0}}, false},
    {2, 0, 0, 64, 5, 0, 1, {{0, 1000}}, false},        /* 3 s, the main call ended at 2 s */
    {3, 0, 0, 192, 7, 128, 1, {{0, 2000}}, true},      /* 4 s; two blocks are the parent's */
    {2, 0, 1, 130, 6, 69, 1, {{1, 1000}}, true},       /* 5 s after 4 s; 64 + 5 tokens are old */
    {0, 0, 1, 200, 8, 138, 3, {{0, 6000}, {3, 0}, {2, 0}}, false}, /* s1 ended at 7 s, s2 at 6 s */
    {1, 0, 0, 256, 9, 128, 1, {{0, 7000}}, true},      /* beside it: forks from the first call */
    {0, 0, 2, 300, 11, 208, 2, {{4, 1000}, {5, 0}}, false}, /* the fork ended at 10 s */
    {4, 0, 0, 64, 12, 0, 1, {{6, 500}}, true},         /* ends at 19.5 s: nobody waits */
    {0, 0, 3, 200, 13, 128, 1, {{6, 2000}}, true},     /* the context was cut to two blocks */
};
enum { TREE = sizeof tree / sizeof *tree };

Test(workloads_sessions, a_session_is_a_tree_of_agents) {
    struct trace *t = open_trace(DATA "weka.jsonl", TRACE_WEKA);
    struct session s = {0};
    cr_assert(next(t, &s));
    cr_assert(eq(str, (char *)s.id, "w1"));
    cr_assert(eq(u32, s.ncalls, TREE));
    cr_assert(eq(u32, s.branches, 5));
    for (uint32_t i = 0; i < TREE; i++) {
        const struct session_call *c = &s.call[i];
        const struct want_call *w = &tree[i];
        cr_assert(eq(u32, c->branch, w->branch), "call %u", i);
        cr_assert(eq(u32, c->parent, w->parent), "call %u", i);
        cr_assert(eq(u32, c->turn, w->turn), "call %u", i);
        cr_assert(eq(u32, c->isl, w->isl), "call %u", i);
        cr_assert(eq(u32, c->osl, w->osl), "call %u", i);
        cr_assert(eq(u32, c->shared, w->shared), "call %u", i);
        cr_assert(eq(int, c->last_turn, w->last), "call %u", i);
        cr_assert(eq(u32, c->nblocks, (w->isl + 63) / 64), "call %u", i);
        cr_assert(eq(u32, c->nwaits, w->nwaits), "call %u", i);
        for (uint32_t k = 0; k < w->nwaits; k++) {
            cr_assert(eq(u32, c->wait[k].call, w->wait[k].call), "call %u", i);
            cr_assert(eq(i64, c->wait[k].delay_ns, w->wait[k].ms * 1000000), "call %u", i);
        }
    }
    /* call 4 has 8 tokens of the block that call 6 names: they are the same tokens */
    cr_assert(eq(u64, s.call[4].blocks[3], s.call[6].blocks[3]));
    cr_assert(eq(u32, s.call[4].whole_blocks, 3));
    cr_assert(ne(u64, s.call[6].blocks[4], s.call[8].blocks[3]));

    /* ids of another session are others; a request of no output asks for one token */
    uint64_t one = s.call[0].blocks[0];
    cr_assert(next(t, &s));
    cr_assert(eq(u32, s.ncalls, 2));
    cr_assert(ne(u64, s.call[0].blocks[0], one));
    cr_assert(eq(u32, s.call[0].osl, 1));
    cr_assert(eq(u32, s.call[0].whole_blocks, 1), "two blocks do not fit into 100 tokens");
    cr_assert(eq(u32, s.call[1].shared, 101));
    cr_assert(eq(i64, s.call[1].wait[0].delay_ns, 500000000));
    cr_assert(eq(u64, s.call[0].blocks[1], s.call[1].blocks[1]));
    cr_assert(not(next(t, &s)));
    trace_close(t);
}

/* ---- bad input ---- */

#define ROW(turn, role, more)                                                                      \
    "{\"conversation_id\":\"c\",\"turn\":" turn ",\"role\":\"" role "\"" more "}"
#define U1 ROW("1", "user", ",\"content\":\"a\"") "\n"
#define WK "{\"id\":\"w\",\"requests\":["
#define CALL "{\"t\":0,\"type\":\"n\",\"in\":70,\"out\":5"

static const struct {
    enum trace_format format;
    const char *text, *place, *says;
} malformed[] = {
    {TRACE_ENDPOINTS, "{", "t:1:", "'}' expected"},
    {TRACE_ENDPOINTS, U1 "\n{\"turn\":1,\"turn\":2}", "t:3:", "duplicate"},
    {TRACE_ENDPOINTS, "[]", "t:1:1:", "expected an object, found an array"},
    {TRACE_ENDPOINTS, "{\"turn\":1}", "t:1:1: at /conversation_id:", "expected a text, found nothing"},
    {TRACE_ENDPOINTS, ROW("0", "user", ""), "t:1:1: at /turn:", "at least 1, found 0"},
    {TRACE_ENDPOINTS, ROW("1", "human", ""), "t:1:1: at /role:", "found \"human\""},
    {TRACE_ENDPOINTS, ROW("1", "user", ""), "t:1:1: at /content:", "expected a text"},
    {TRACE_ENDPOINTS, ROW("2", "user", ""), "t:1:1: at /turn:", "expected 1 (rows"},
    {TRACE_ENDPOINTS, U1 ROW("3", "assistant", ""), "t:2:1: at /turn:", "expected 2 (rows"},
    {TRACE_ENDPOINTS, ROW("1", "tool", ""), "t:1:1: at /role:", "expected a user's row"},
    {TRACE_ENDPOINTS, U1 ROW("2", "user", ""), "t:2:1: at /role:", "expected an assistant's row"},
    {TRACE_ENDPOINTS, U1 ROW("2", "assistant", ""), "t:2:1: at /content:", "found nothing"},
    {TRACE_ENDPOINTS, U1 ROW("2", "assistant", ",\"content\":5"), "t:2:1: at /content:", "a text"},
    {TRACE_ENDPOINTS, U1 ROW("2", "assistant", ",\"tool_calls\":[]"),
     "t:2:1: at /tool_calls:", "an array of calls"},
    {TRACE_ENDPOINTS, U1 ROW("2", "assistant", ",\"content\":\"x\"") "\n" ROW("3", "tool", ""),
     "t:3:1: at /tool_results:", "at least one result"},
    {TRACE_ENDPOINTS,
     U1 ROW("2", "assistant", ",\"content\":\"x\"") "\n" ROW("3", "tool",
                                                           ",\"tool_results\":[{\"content\":\"\"}]"),
     "t:3:1: at /tool_results/0/tool_call_id:", "a text"},
    {TRACE_ENDPOINTS, ROW("1", "user", ",\"content\":\"a\",\"delay_seconds\":-1"),
     "t:1:1: at /delay_seconds:", "from 0 to a year"},
    {TRACE_ENDPOINTS, ROW("1", "user", ",\"content\":\"a\",\"system\":5"),
     "t:1:1: at /system:", "a text"},
    {TRACE_ENDPOINTS,
     U1 ROW("2", "assistant", ",\"content\":\"x\"") "\n" ROW(
         "3", "user", ",\"content\":\"a\",\"system\":\"s\""),
     "t:3:1: at /system:", "first row"},
    {TRACE_ENDPOINTS, ROW("1", "user", ",\"content\":\"a\",\"tools\":{}"),
     "t:1:1: at /tools:", "an array"},
    {TRACE_WEKA, "[]", "t:1:1:", "expected '{'"},
    {TRACE_WEKA, "{}", "t:1:1:", "a member \"id\""},
    {TRACE_WEKA, "{\"id\":\"a\"}", "t:1:1:", "a member \"requests\""},
    {TRACE_WEKA, "\n{\"id\":\"\"}", "t:2:8:", "an id without escapes"},
    {TRACE_WEKA, "{\"block_size\":16", "t:1:15:", "a block size of 64"},
    {TRACE_WEKA, "{\"hash_id_scope\":\"all\"", "t:1:19:", "local or global"},
    {TRACE_WEKA, "{\"requests\":5}", "t:1:13:", "an array of requests, found '5'"},
    {TRACE_WEKA, WK "{\"t\":0}", "t:1:", "a member \"type\""},
    {TRACE_WEKA, WK "{\"type\":\"n\",\"t\":0}", "t:1:", "a member \"in\""},
    {TRACE_WEKA, WK "{\"type\":\"x\"", "t:1:32:", "n, s or subagent"},
    {TRACE_WEKA, WK "{\"t\":-1}", "t:1:", "at least 0"},
    {TRACE_WEKA, WK "{\"t\":1e99}", "t:1:28:", "a time"},
    {TRACE_WEKA, WK "{\"t\":4e8,\"type\":\"n\",\"in\":1,\"out\":1}", "t:1:", "below ten years"},
    {TRACE_WEKA, WK "{\"in\":0", "t:1:29:", "in from 1"},
    {TRACE_WEKA, WK "{\"out\":-1", "t:1:30:", "out from 0"},
    {TRACE_WEKA, WK "{\"hash_ids\":[1.5]", "t:1:36:", "a block id"},
    {TRACE_WEKA, WK CALL ",\"in\":7", "t:1:", "each member once"},
    {TRACE_WEKA, WK CALL ",\"requests\":[]}", "t:1:", "type is not subagent"},
    {TRACE_WEKA, WK CALL "} ", "t:1:", "',' or ']', found the line's end"},
    {TRACE_WEKA, WK CALL ",\"hash_ids\":[9999999999]}]}", "t:1:1:", "at most 2147483647"},
    {TRACE_WEKA, WK CALL "}]} x", "t:1:", "the line's end, found 'x'"},
    {TRACE_WEKA,
     WK "{\"requests\":[{\"requests\":[{\"requests\":[{\"requests\":[{\"requests\":[{\"requests\":["
        "{\"requests\":[{\"requests\":[{\"requests\":[",
     "t:1:", "at most 8 deep"},
};

Test(workloads_sessions, malformed_rows_name_line_and_place) {
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        struct trace *t = NULL;
        struct trace_options o = {0};
        struct err e = {0};
        bool end = false;
        int rc = trace_open_memory(malformed[i].text, strlen(malformed[i].text), "t",
                                   malformed[i].format, &o, &t, &e);
        while (rc == 0 && !end) {
            struct session s = {0};
            rc = trace_next_session(t, &s, &end, &e);
            session_clear(&s);
        }
        trace_close(t);
        cr_assert(eq(int, rc, ASSAY_EINPUT), "accepted: %s", malformed[i].text);
        cr_assert(eq(int, strncmp(e.text, malformed[i].place, strlen(malformed[i].place)), 0),
                  "%s\nwanted %s for %s", e.text, malformed[i].place, malformed[i].text);
        cr_assert(ne(ptr, strstr(e.text, malformed[i].says), NULL), "%s\nwanted '%s'", e.text,
                  malformed[i].says);
    }
}

/* ---- published traces ---- */

/* Counts of kv-cache-tester's traces by a program that shares nothing with this one
 * (shared/data/inferencex/traces/expected.json): requests, tokens, whole blocks, and blocks that an
 * unbounded cache holds when the calls come in the order of their times. */
Test(workloads_sessions, published_weka_traces_have_the_counted_facts) {
    json_t *all = json_load_file(SHARED "inferencex/traces/expected.json", 0, NULL);
    if (!all)
        cr_skip_test("the published traces are not here");
    const char *name;
    json_t *want;
    json_object_foreach(all, name, want) {
        char path[256];
        struct session s = {0};
        snprintf(path, sizeof path, SHARED "inferencex/traces/%s", name);
        struct trace *t = open_trace(path, TRACE_WEKA);
        cr_assert(next(t, &s));
        int64_t in = 0, out = 0, blocks = 0, hits = 0;
        static bool seen[1 << 20]; /* ids of one session are small and begin at 1 */
        memset(seen, 0, sizeof seen);
        uint32_t agents = 0;
        for (uint32_t i = 0; i < s.ncalls; i++) {
            const struct session_call *c = &s.call[i];
            in += c->isl;
            out += c->osl;
            blocks += c->whole_blocks;
            agents += c->turn == 0 && c->branch > 0;
            bool hit = true;
            for (uint32_t k = 0; k < c->whole_blocks; k++) {
                uint64_t id = c->blocks[k] & UINT32_MAX;
                cr_assert(lt(u64, id, sizeof seen));
                hit = hit && seen[id];
                hits += hit;
            }
            for (uint32_t k = 0; k < c->whole_blocks; k++)
                seen[c->blocks[k] & UINT32_MAX] = true;
        }
#define WANT(member) json_integer_value(json_object_get(want, member))
        cr_assert(eq(i64, s.ncalls, WANT("model_requests")), "%s", name);
        cr_assert(eq(i64, in, WANT("input_tokens")), "%s", name);
        cr_assert(eq(i64, out, WANT("output_tokens")), "%s", name);
        cr_assert(eq(i64, blocks, WANT("blocks")), "%s", name);
        cr_assert(eq(i64, hits, WANT("prefix_hit_blocks")), "%s", name);
        cr_assert(ge(i64, agents, WANT("subagents")), "%s", name);
#undef WANT
        cr_assert(not(next(t, &s)));
        trace_close(t);
    }
    json_decref(all);
}

/* 54 rows, 27 of them an assistant's (counted by shared/data's author and by grep). */
Test(workloads_sessions, a_published_conversation_is_read_whole) {
    static const char path[] =
        SHARED "traces/mlperf-endpoints/agentic_coding_one_conversation.jsonl";
    if (access(path, R_OK))
        cr_skip_test("%s is not here", path);
    struct trace *t = open_trace(path, TRACE_ENDPOINTS);
    struct session s = {0};
    cr_assert(next(t, &s));
    cr_assert(eq(str, (char *)s.id, "pallets__flask-5014"));
    cr_assert(eq(u32, s.ncalls, 27));
    cr_assert(eq(i64, s.call[1].wait[0].delay_ns, 119197000)); /* "delay_seconds": 0.119197 */
    json_t *last = messages(&s, 0, s.call[26].messages_bytes);
    /* system, user, 26 answers, and the results of 26 rows, some of two calls */
    cr_assert(ge(sz, json_array_size(last), 54));
    for (uint32_t i = 0; i < 27; i++)
        cr_assert(gt(sz, s.call[i].tools_bytes, 0));
    json_decref(last);
    cr_assert(not(next(t, &s)));
    trace_close(t);
}

/* ---- plans ---- */

static struct workload *load(const char *const *overrides, int n) {
    struct workload *w;
    struct err e = {0};
    cr_assert(eq(int, workload_load(DATA "sessions.json", overrides, n, &w, &e), 0), "%s", e.text);
    return w;
}

struct seen {
    struct request r[64];
    size_t n;
};

static bool see(void *ctx, const struct request *r) {
    struct seen *s = ctx;
    cr_assert(lt(sz, s->n, 64));
    s->r[s->n] = *r;
    s->r[s->n].blocks = NULL; /* borrowed */
    s->r[s->n++].talk = NULL;
    return true;
}

static struct seen walk(const struct workload *w, uint32_t shard, uint32_t shards) {
    struct plan *p;
    struct seen s = {0};
    struct err e = {0};
    bool whole;
    cr_assert(eq(int, plan_open(w, shard, shards, &p, &e), 0), "%s", e.text);
    cr_assert(eq(int, plan_walk(p, see, &s, &whole, &e), 0), "%s", e.text);
    cr_assert(whole);
    plan_close(p);
    return s;
}

Test(workloads_sessions, a_plan_plays_the_trace_and_cuts_its_end) {
    struct workload *w = load(NULL, 0);
    struct seen s = walk(w, 0, 1);
    cr_assert(eq(sz, s.n, TREE + 2));
    bool ids[TREE + 2] = {0};
    for (size_t i = 0; i < s.n; i++) {
        cr_assert(not(ids[s.r[i].id]), "once");
        ids[s.r[i].id] = true;
        cr_assert(eq(u64, s.r[i].session, s.r[i].id >= TREE));
        cr_assert(eq(u32, s.r[i].turns, s.r[i].id < TREE ? TREE : 2));
        cr_assert(eq(u32, s.r[i].block_tokens, 64));
    }
    workload_free(w);

    /* eight requests: the ninth in time, the main branch's last, is cut off */
    static const char *const eight[] = {"requests=8"};
    w = load(eight, 1);
    s = walk(w, 0, 1);
    cr_assert(eq(sz, s.n, 8));
    for (size_t i = 0; i < 8; i++)
        if (s.r[i].id == 6)
            cr_assert(s.r[i].last_turn, "there is no later one now");
    workload_free(w);

    static const char *const twice[] = {"trace.plays=2"};
    w = load(twice, 1);
    s = walk(w, 0, 1);
    cr_assert(eq(sz, s.n, 2 * (TREE + 2)));
    cr_assert(eq(u64, s.r[s.n - 1].session, 3));
    struct seen a = walk(w, 0, 2), b = walk(w, 1, 2);
    cr_assert(eq(sz, a.n, 2 * TREE), "sessions 0 and 2");
    cr_assert(eq(sz, b.n, 4));
    for (size_t i = 0; i < a.n; i++)
        cr_assert(eq(int, memcmp(&a.r[i], &s.r[i < TREE ? i : i + 2], sizeof *a.r), 0));
    workload_free(w);

    static const char *const endless[] = {"trace.plays=0", "requests=30"};
    w = load(endless, 2);
    s = walk(w, 0, 1);
    cr_assert(eq(sz, s.n, 30));
    workload_free(w);

    static const char *const small[] = {"trace.max_context=310"};
    w = load(small, 1);
    s = walk(w, 0, 1);
    cr_assert(eq(sz, s.n, 2), "300 + 11 tokens do not fit");
    workload_free(w);
}

/* What waits is due when the last of what it waits for has ended and its delay is past. */
Test(workloads_sessions, a_turn_waits_for_the_branches_it_needs) {
    static const char *const cut[] = {"trace.max_delay=5s"};
    enum { S = 1000000000 };
    for (int limited = 0; limited < 2; limited++) {
        struct workload *w = load(cut, limited);
        struct plan *p;
        struct err e = {0};
        struct request r, a, b, c, none;
        int64_t at;
        bool end, over;
        cr_assert(eq(int, plan_open(w, 0, 1, &p, &e), 0));
        cr_assert(eq(int, plan_next(p, &r, &end, &e), 0));
        cr_assert(eq(u64, r.id, 0));
        cr_assert(not(plan_take(p, &none, &at)));
        cr_assert(eq(int, plan_done(p, &r, (int64_t)100 * S, 10, false, &over, &e), 0));
        cr_assert(not(over));
        cr_assert(plan_take(p, &a, &at) && a.id == 1 && at == (int64_t)101 * S);
        cr_assert(plan_take(p, &b, &at) && b.id == 2 && at == (int64_t)102 * S);
        cr_assert(plan_take(p, &c, &at) && c.id == 5);
        cr_assert(eq(i64, at, (int64_t)(limited ? 105 : 107) * S), "7 s, or what is allowed");
        cr_assert(not(plan_take(p, &none, &at)), "the main branch waits for both agents");

        cr_assert(eq(int, plan_done(p, &b, (int64_t)103 * S, 7, false, &over, &e), 0));
        cr_assert(not(plan_take(p, &none, &at)));
        cr_assert(eq(int, plan_done(p, &a, (int64_t)104 * S, 5, false, &over, &e), 0));
        cr_assert(plan_take(p, &a, &at) && a.id == 3 && at == (int64_t)105 * S);
        cr_assert(eq(int, plan_done(p, &a, (int64_t)130 * S, 5, false, &over, &e), 0));
        cr_assert(plan_take(p, &a, &at) && a.id == 4);
        cr_assert(eq(i64, at, (int64_t)130 * S), "the delay of 6 s was over at 106 s");

        /* a failure lets what is under way end, and nothing follow */
        cr_assert(eq(int, plan_done(p, &a, (int64_t)140 * S, 0, true, &over, &e), 0));
        cr_assert(not(over), "the fork was given out");
        if (limited)
            plan_withdraw(p, &c, &over);
        else
            cr_assert(eq(int, plan_done(p, &c, (int64_t)141 * S, 9, false, &over, &e), 0));
        cr_assert(over);
        cr_assert(not(plan_take(p, &none, &at)));
        cr_assert(eq(int, plan_next(p, &r, &end, &e), 0));
        cr_assert(eq(u64, r.id, TREE));
        plan_close(p);
        workload_free(w);
    }
}

Test(workloads_sessions, options_of_sessions_are_refused_elsewhere) {
    static const struct {
        const char *set[2], *says;
    } bad[] = {
        {{"trace.format=mooncake", "trace.plays=2"}, "/trace/plays: expected no such member"},
        {{"trace.format=azure", "trace.max_delay=1s"}, "/trace/max_delay: expected no such member"},
        {{"trace.format=azure", "trace.max_context=9"}, "/trace/max_context: expected no such"},
        {{"trace.plays=0", "seed=1"}, "so that the run ends"},
        {{"pattern=offline", "seed=1"}, "/pattern: expected a pattern that waits"},
        {{"pattern=trace", "seed=1"}, "/pattern: expected another pattern"},
        {{"model=llama3.1-8b", "trace.max_context=200000"}, "/trace/max_context: expected at most"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct workload *w;
        struct err e = {0};
        int rc = workload_load(DATA "sessions.json", bad[i].set, 2, &w, &e);
        cr_assert(eq(int, rc, ASSAY_EINPUT), "%s", bad[i].set[0]);
        cr_assert(ne(ptr, strstr(e.text, bad[i].says), NULL), "%s", e.text);
    }
}

static void add(void *ctx, const void *p, size_t n) {
    (void)p;
    *(size_t *)ctx += n;
}

Test(workloads_sessions, a_check_sees_every_byte_and_every_row) {
    struct err e = {0};
    struct workload *w = load(NULL, 0);
    size_t bytes = 0;
    cr_assert(eq(int, plan_check_trace(w, add, &bytes, &e), 0), "%s", e.text);
    FILE *f = fopen(DATA "weka.jsonl", "rb");
    fseek(f, 0, SEEK_END);
    cr_assert(eq(sz, bytes, (size_t)ftell(f)));
    fclose(f);
    workload_free(w);

    char path[] = "/tmp/assay-sessions-XXXXXX", o[64];
    int fd = mkstemp(path);
    snprintf(o, sizeof o, "trace.path=%s", path);
    const char *const set[] = {o, "requests=1"};
    static const char text[] = "{\"id\":\"a\",\"requests\":[" CALL "}]}\n{\"id\":\"b\",";
    cr_assert(eq(i64, write(fd, text, sizeof text - 1), (int64_t)sizeof text - 1));
    close(fd);
    w = load(set, 2);
    cr_assert(eq(int, plan_check_trace(w, NULL, NULL, &e), ASSAY_EINPUT));
    cr_assert(ne(ptr, strstr(e.text, ":2:11: expected"), NULL), "%s", e.text);
    workload_free(w);
    unlink(path);
}
