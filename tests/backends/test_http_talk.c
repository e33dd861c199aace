/* Conversations: arrays of messages that grow without changing what was sent, histories that are freed,
 * salts. Salt vectors: hashlib.blake2b(…, digest_size=2) of Python 3.11. */
#include "backends/http/talk.h"
#include "workloads/workload.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <jansson.h>
#include <string.h>

static struct body_template chat, flat;

static void templates(void) {
    struct err e;
    struct body_options o = {.protocol = &protocols[API_CHAT], .model = "m"};
    cr_assert(zero(int, body_template_init(&chat, &o, &e)));
    o.protocol = &protocols[API_COMPLETIONS];
    o.text = true;
    cr_assert(zero(int, body_template_init(&flat, &o, &e)));
}

static void no_templates(void) {
    body_template_release(&chat);
    body_template_release(&flat);
}

TestSuite(backends_http_talk, .init = templates, .fini = no_templates);

static json_t *send(struct talk *t, const struct body_template *b, const struct request *r) {
    struct buf out;
    struct err e;
    buf_init(&out, BODY_MAX_BYTES);
    cr_assert(zero(int, talk_body(t, b, r, &out, &e)), "%s", e.text);
    json_t *root = json_loadb(out.p, out.n, JSON_REJECT_DUPLICATES, NULL);
    cr_assert(ne(ptr, root, NULL), "%.300s", out.p);
    buf_release(&out);
    return root;
}

static const char *at(json_t *root, size_t i, const char *member) {
    return json_string_value(
        json_object_get(json_array_get(json_object_get(root, "messages"), i), member));
}

static size_t words(const char *text) {
    size_t n = 1;
    for (; *text; text++)
        n += *text == ' ';
    return n;
}

Test(backends_http_talk, a_session_grows_by_question_and_answer) {
    struct talk t;
    talk_init(&t, &(struct talk_options){.history_max_bytes = 1 << 20});
    struct request r = {.session = 7, .turns = 3, .isl = 10, .osl = 4, .content_seed = 3};
    json_t *first = send(&t, &chat, &r);
    cr_assert(eq(sz, json_array_size(json_object_get(first, "messages")), 1));
    cr_assert(eq(sz, words(at(first, 0, "content")), 10));
    talk_answered(&t, &(struct talk_turn){.session = 7, .turns = 3}, false);
    r.shared = 14;
    r.isl = 20;
    r.turn = 1;
    json_t *second = send(&t, &chat, &r);
    cr_assert(eq(sz, json_array_size(json_object_get(second, "messages")), 3));
    cr_assert(eq(str, (char *)at(first, 0, "content"), (char *)at(second, 0, "content")));
    cr_assert(eq(str, (char *)at(second, 1, "role"), "assistant"));
    cr_assert(eq(sz, words(at(second, 1, "content")), 4));
    cr_assert(eq(sz, words(at(second, 2, "content")), 6));

    /* the same words as a flat prompt */
    json_t *whole = send(&t, &flat, &r);
    char joined[2048];
    snprintf(joined, sizeof joined, "%s %s %s", at(second, 0, "content"), at(second, 1, "content"),
             at(second, 2, "content"));
    cr_assert(eq(str, joined, (char *)json_string_value(json_object_get(whole, "prompt"))));

    talk_answered(&t, &(struct talk_turn){.session = 7, .turns = 3, .last_turn = true}, false);
    cr_assert(eq(sz, t.histories.n, 0));
    cr_assert(eq(i64, t.histories.bytes, 0));
    json_decref(first);
    json_decref(second);
    json_decref(whole);
    talk_release(&t);
}

Test(backends_http_talk, many_sessions_are_kept_apart_and_freed) {
    struct talk t;
    talk_init(&t, &(struct talk_options){.history_max_bytes = 1 << 24});
    for (uint64_t s = 0; s < 1000; s++) {
        struct request r = {.session = s, .turns = 2, .isl = 5, .osl = 2, .content_seed = s + 1};
        json_decref(send(&t, &chat, &r));
        talk_answered(&t, &(struct talk_turn){.session = s, .turns = 2}, false);
    }
    cr_assert(eq(sz, t.histories.n, 1000));
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t s = i * 7 % 1000;
        struct request r = {.session = s, .turns = 2, .turn = 1, .isl = 9, .osl = 2, .shared = 7,
                            .content_seed = s + 1};
        json_t *root = send(&t, &chat, &r);
        char *got = (char *)at(root, 0, "content");
        cr_assert(eq(int, memcmp(got, body_word(&body_common_words, s + 1, 0), strlen(body_word(&body_common_words, s + 1, 0))), 0));
        cr_assert(eq(sz, json_array_size(json_object_get(root, "messages")), 3));
        json_decref(root);
        talk_answered(&t, &(struct talk_turn){.session = s, .turns = 2}, true);
    }
    cr_assert(eq(sz, t.histories.n, 0));
    cr_assert(eq(i64, t.histories.bytes, 0));
    talk_release(&t);
}

Test(backends_http_talk, histories_beyond_the_limit_are_an_error) {
    struct talk t;
    struct err e;
    struct buf out;
    talk_init(&t, &(struct talk_options){.history_max_bytes = 1000});
    buf_init(&out, BODY_MAX_BYTES);
    struct request r = {.session = 1, .turns = 2, .isl = 4000, .osl = 2};
    cr_assert(eq(int, talk_body(&t, &chat, &r, &out, &e), ASSAY_EENV));
    cr_assert(ne(ptr, strstr(e.text, "history"), NULL), "%s", e.text);
    buf_release(&out);
    talk_release(&t);
}

Test(backends_http_talk, salts_differ_by_what_they_are_for) {
    struct talk t;
    talk_init(&t, &(struct talk_options){.salt = TALK_SALT_REQUEST, .history_max_bytes = 1 << 20});
    struct request r = {.session = REQUEST_NO_SESSION, .turns = 1, .isl = 3, .osl = 1};
    json_t *a = send(&t, &chat, &r), *b = send(&t, &flat, &r);
    cr_assert(eq(int, strncmp(at(a, 0, "content"), "[salt: ", 7), 0));
    const char *prompt = json_string_value(json_object_get(b, "prompt"));
    cr_assert(eq(int, strncmp(prompt, at(a, 0, "content"), 27), 0));
    r.id = 1;
    json_t *c = send(&t, &chat, &r);
    cr_assert(ne(int, strncmp(at(c, 0, "content"), at(a, 0, "content"), 24), 0));
    json_decref(a);
    json_decref(b);
    json_decref(c);
    talk_release(&t);

    talk_init(&t, &(struct talk_options){.salt = TALK_SALT_SESSION, .history_max_bytes = 1 << 20});
    static const char messages[] = "{\"role\":\"system\",\"content\":\"be \\\"brief\\\"\"},"
                                   "{\"role\":\"user\",\"content\":\"hi\"}";
    struct request_talk talk = {.messages = messages, .messages_bytes = strlen(messages),
                                .conversation = "c1", .play = 1};
    r.talk = &talk;
    r.session = 0;
    json_t *d = send(&t, &chat, &r);
    cr_assert(eq(str, (char *)at(d, 0, "content"),
                 "[salt: 4461]\n\nbe \"brief\"\n\n[salt: 6d82]"));
    json_decref(d);
    talk_release(&t);
    cr_assert(eq(int, talk_blake2b_16("2", 1), 0xba75));
}

/* Recorded conversations over an API whose system prompt is no message. */
Test(backends_http_talk, a_recorded_system_message_goes_apart_salted_and_escaped) {
    static const char recorded[] = "{\"role\":\"system\",\"content\":\"be \\\"brief\\\"}\\\\\"},"
                                   "{\"role\":\"user\",\"content\":\"hi\"}";
    struct body_template b;
    struct talk t;
    struct err e;
    struct body_options o = {.protocol = &protocols[API_MESSAGES], .model = "m"};
    struct request_talk talk = {.messages = recorded, .messages_bytes = strlen(recorded),
                                .conversation = "c1", .play = 1};
    struct request r = {.session = 0, .turns = 1, .isl = 3, .osl = 1, .talk = &talk};
    cr_assert(zero(int, body_template_init(&b, &o, &e)));
    for (int salt = TALK_SALT_OFF; salt <= TALK_SALT_SESSION; salt++) {
        talk_init(&t, &(struct talk_options){.salt = salt, .history_max_bytes = 1 << 20});
        json_t *root = send(&t, &b, &r);
        const char *system = json_string_value(json_object_get(root, "system"));
        cr_assert(ne(ptr, strstr(system, "be \"brief\"}\\"), NULL), "%s", system);
        cr_assert(eq(int, strstr(system, "[salt: ") != NULL, salt != TALK_SALT_OFF));
        cr_assert(eq(sz, json_array_size(json_object_get(root, "messages")), 1));
        cr_assert(eq(str, (char *)at(root, 0, "role"), "user"));
        json_decref(root);
        talk_release(&t);
    }
    /* no system message, or one that is more than a text: as recorded */
    static const char *const others[] = {
        "{\"role\":\"user\",\"content\":\"hi\"}",
        "{\"role\":\"system\",\"content\":\"x\",\"name\":\"n\"},{\"role\":\"user\",\"content\":\"hi\"}"};
    for (size_t i = 0; i < 2; i++) {
        talk.messages = others[i];
        talk.messages_bytes = strlen(others[i]);
        talk_init(&t, &(struct talk_options){.history_max_bytes = 1 << 20});
        json_t *root = send(&t, &b, &r);
        cr_assert(eq(sz, json_array_size(json_object_get(root, "messages")), i + 1));
        cr_assert(eq(ptr, json_object_get(root, "system"), NULL));
        json_decref(root);
        talk_release(&t);
    }
    body_template_release(&b);
}

Test(backends_http_talk, recorded_tools_are_for_chat) {
    struct body_template b;
    struct talk t;
    struct err e;
    struct buf out;
    struct body_options o = {.protocol = &protocols[API_RESPONSES], .model = "m"};
    static const char recorded[] = "{\"role\":\"user\",\"content\":\"hi\"}";
    struct request_talk talk = {.messages = recorded, .messages_bytes = strlen(recorded),
                                .tools = "[]", .tools_bytes = 2, .conversation = "c1", .play = 1};
    struct request r = {.session = 0, .turns = 1, .isl = 3, .osl = 1, .talk = &talk};
    buf_init(&out, BODY_MAX_BYTES);
    talk_init(&t, &(struct talk_options){.history_max_bytes = 1 << 20});
    cr_assert(zero(int, body_template_init(&b, &o, &e)));
    cr_assert(eq(int, talk_body(&t, &b, &r, &out, &e), ASSAY_EUSAGE));
    cr_assert(ne(ptr, strstr(e.text, "'c1'"), NULL), "%s", e.text);
    body_template_release(&b);
    buf_release(&out);
    talk_release(&t);
}

Test(backends_http_talk, equal_blocks_are_equal_tokens_and_the_common_part_is_everyones) {
    static const uint64_t one[] = {5, 6}, two[] = {5, 7};
    struct request a = {.isl = 20, .content_seed = 1, .nblocks = 2, .block_tokens = 8,
                        .blocks = one};
    struct request b = a;
    b.blocks = two;
    b.content_seed = 2;
    struct buf x, y;
    buf_init(&x, 1000);
    buf_init(&y, 1000);
    body_put_words(&body_common_words, &a, 0, 0, 8, &x);
    body_put_words(&body_common_words, &b, 0, 0, 8, &y);
    cr_assert(eq(sz, x.n, y.n));
    cr_assert(eq(int, memcmp(x.p, y.p, x.n), 0));
    body_put_words(&body_common_words, &a, 0, 8, 20, &x);
    body_put_words(&body_common_words, &b, 0, 8, 20, &y);
    cr_assert(x.n != y.n || memcmp(x.p, y.p, x.n));
    buf_clear(&x);
    buf_clear(&y);
    a.common = b.common = 6;
    a.blocks = b.blocks = NULL;
    body_put_words(&body_common_words, &a, 0, 0, 6, &x);
    body_put_words(&body_common_words, &b, 0, 0, 6, &y);
    cr_assert(x.n == y.n && !memcmp(x.p, y.p, x.n));
    buf_release(&x);
    buf_release(&y);
}

/* ---- recorded trees ---- */

/* The body of every request of the fixture's first session (its tree: tests/workloads/test_sessions.c),
 * by id, in the order of a system that answers at once. */
enum { CALLS = 9 };
static struct tree {
    struct talk t;
    const struct body_template *b;
    json_t *body[CALLS];
    struct request r[CALLS];
} tree;

static void play(const struct talk_options *o, const struct body_template *b) {
    static const char *const set[] = {"requests=9"};
    struct err e = {0};
    struct workload *w;
    struct plan *p;
    struct request r;
    bool end, over = false;
    int64_t at_ns;
    talk_init(&tree.t, o);
    cr_assert(eq(int, workload_load("tests/data/workloads/sessions.json", set, 1, &w, &e), 0), "%s",
              e.text);
    cr_assert(eq(int, plan_open(w, 0, 1, &p, &e), 0), "%s", e.text);
    cr_assert(eq(int, plan_next(p, &r, &end, &e), 0));
    do {
        tree.body[r.id] = send(&tree.t, b, &r);
        tree.r[r.id] = r;
        struct talk_turn turn = talk_turn_of(&r);
        talk_answered(&tree.t, &turn, false);
        cr_assert(eq(int, plan_done(p, &r, 0, r.osl, false, &over, &e), 0));
    } while (plan_take(p, &r, &at_ns));
    cr_assert(over);
    cr_assert(eq(sz, tree.t.histories.n, 0), "histories end with their session");
    cr_assert(eq(i64, tree.t.histories.bytes, 0));
    plan_close(p);
    workload_free(w);
}

static void played(void) {
    for (int i = 0; i < CALLS; i++) {
        cr_assert(ne(ptr, tree.body[i], NULL));
        json_decref(tree.body[i]);
    }
    talk_release(&tree.t);
}

/* The words of all messages of a body, joined. */
static char *content(json_t *root) {
    enum { MAX = 1 << 16 };
    char *all = calloc(1, MAX);
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(json_object_get(root, "messages")); i++)
        n += (size_t)snprintf(all + n, MAX - n, "%s%s", i ? " " : "", at(root, i, "content"));
    return all;
}

static size_t count_messages(int call) {
    return json_array_size(json_object_get(tree.body[call], "messages"));
}

Test(backends_http_talk, a_tree_s_branches_begin_with_what_they_share) {
    play(&(struct talk_options){.history_max_bytes = 1 << 20}, &chat);
    for (int i = 0; i < CALLS; i++) {
        char *text = content(tree.body[i]);
        cr_assert(eq(sz, words(text), tree.r[i].isl), "call %d", i);
        free(text);
    }
    /* the main branch grows: question, answer of 10 tokens, question, answer of 8, question */
    static const size_t grown[] = {128, 10, 62, 8, 92};
    cr_assert(eq(sz, count_messages(0), 1));
    cr_assert(eq(sz, count_messages(4), 3));
    cr_assert(eq(sz, count_messages(6), 5));
    for (size_t i = 0; i < 5; i++) {
        cr_assert(eq(sz, words(at(tree.body[6], i, "content")), grown[i]));
        cr_assert(eq(str, (char *)at(tree.body[6], i, "role"), i % 2 ? "assistant" : "user"));
        if (i < 3)
            cr_assert(eq(str, (char *)at(tree.body[6], i, "content"),
                         (char *)at(tree.body[4], i, "content")));
    }
    /* two branches fork from the first prompt's two blocks: its message, then their own */
    for (int i = 2; i <= 5; i += 3) {
        cr_assert(eq(str, (char *)at(tree.body[i], 0, "content"),
                     (char *)at(tree.body[0], 0, "content")));
        cr_assert(eq(sz, count_messages(i), 2));
        cr_assert(eq(str, (char *)at(tree.body[i], 1, "role"), "user"));
    }
    cr_assert(ne(str, (char *)at(tree.body[2], 1, "content"), (char *)at(tree.body[5], 1, "content")));
    /* an agent of its own shares nothing */
    cr_assert(eq(sz, count_messages(1), 1));
    cr_assert(eq(sz, count_messages(3), 3));
    cr_assert(ne(int, strncmp(at(tree.body[1], 0, "content"), at(tree.body[0], 0, "content"), 40), 0));
    /* the cut context goes back to the end of the first message */
    cr_assert(eq(sz, count_messages(8), 2));
    cr_assert(eq(str, (char *)at(tree.body[8], 0, "content"), (char *)at(tree.body[0], 0, "content")));
    cr_assert(eq(sz, words(at(tree.body[8], 1, "content")), 72));
    played();
}

/* A flat prompt and the messages' words are the same tokens wherever blocks say so: everywhere. */
Test(backends_http_talk, a_tree_s_messages_are_its_flat_prompts) {
    static char *joined[CALLS];
    play(&(struct talk_options){.history_max_bytes = 1 << 20}, &chat);
    for (int i = 0; i < CALLS; i++)
        joined[i] = content(tree.body[i]);
    played();
    play(&(struct talk_options){.history_max_bytes = 1 << 20}, &flat);
    for (int i = 0; i < CALLS; i++) {
        cr_assert(eq(str, joined[i],
                     (char *)json_string_value(json_object_get(tree.body[i], "prompt"))),
                  "call %d", i);
        free(joined[i]);
    }
    played();
}

Test(backends_http_talk, a_failure_frees_the_histories_of_all_branches) {
    struct talk t;
    talk_init(&t, &(struct talk_options){.history_max_bytes = 1 << 20});
    for (uint32_t b = 0; b < 3; b++) {
        struct request r = {.session = 4, .branch = b, .branches = 3, .turns = 9, .isl = 20,
                            .osl = 2, .shared = b ? 20 : 0, .content_seed = 1};
        r.isl += b;
        json_decref(send(&t, &chat, &r));
    }
    cr_assert(eq(sz, t.histories.n, 4), "three branches and what counts their turns");
    talk_answered(&t, &(struct talk_turn){.session = 4, .branch = 1, .branches = 3, .turns = 9}, true);
    cr_assert(eq(sz, t.histories.n, 0));
    cr_assert(eq(i64, t.histories.bytes, 0));
    talk_release(&t);
}
