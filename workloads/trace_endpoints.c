/* MLPerf Endpoints multi-turn JSONL (github.com/mlcommons/endpoints, agentic inference): one message a
 * row, the rows of a conversation together, turn = 1, 2, 3, … A request stands for each row of a
 * client (user, tool) that an assistant's row follows; its prompt is all recorded messages before.
 * Lengths are estimated from bytes of text, the recorded answer's length is what is asked for.
 * Rows' own sampling settings are not taken over: they are the run's. */
#include "harness/core/buf.h"
#include "harness/core/clock.h"
#include "harness/core/json.h"
#include "workloads/dist.h"
#include "workloads/trace_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DELAY_MAX_S 31557600.0 /* a year */

enum role { ROLE_USER, ROLE_TOOL, ROLE_ASSISTANT, ROLES };
static const char *const role_names[ROLES] = {"user", "tool", "assistant"};

/* One row, checked; everything is borrowed from json. */
struct row {
    json_t *json; /* NULL = none */
    uint64_t line;
    const char *id;
    int64_t turn;
    enum role role;
};

struct endpoints {
    struct row next;      /* read ahead: the first of the next conversation */
    struct buf messages;  /* of the conversation that is being read */
    struct session_call *call;
    size_t ncalls, cap;
};

static int fault(const struct trace *t, uint64_t line, const char *member, const char *expected,
                 const json_t *found, struct err *e) {
    char text[64];
    json_excerpt(found, text, sizeof text);
    return reader_fault(&t->reader, line, 1, e, "at /%s: expected %s, found %s", member, expected,
                        text);
}

static int read_row(struct trace *t, struct row *row, bool *end, struct err *e) {
    char *line;
    size_t n;
    json_error_t je;
    *row = (struct row){0};
    do {
        int rc = reader_line(&t->reader, &line, &n, end, e);
        if (rc || *end)
            return rc;
    } while (n == 0);
    row->line = t->reader.line;
    json_t *json = json_loadb(line, n, JSON_REJECT_DUPLICATES, &je);
    if (!json)
        return reader_fault(&t->reader, row->line, je.column > 0 ? (size_t)je.column : 1, e, "%s",
                            je.text);
    const json_t *id = json_object_get(json, "conversation_id"),
                 *turn = json_object_get(json, "turn"), *role = json_object_get(json, "role");
    const char *name = json_string_value(role);
    int which = 0;
    while (name && which < ROLES && strcmp(name, role_names[which]) != 0)
        which++;
    int rc = 0;
    if (!json_is_object(json))
        rc = fault(t, row->line, "", "an object", json, e);
    else if (!json_string_length(id))
        rc = fault(t, row->line, "conversation_id", "a text", id, e);
    else if (!json_is_integer(turn) || json_integer_value(turn) < 1)
        rc = fault(t, row->line, "turn", "an integer of at least 1", turn, e);
    else if (!name || which == ROLES)
        rc = fault(t, row->line, "role", "\"user\", \"assistant\" or \"tool\"", role, e);
    if (rc) {
        json_decref(json);
        return rc;
    }
    row->json = json;
    row->id = json_string_value(id);
    row->turn = json_integer_value(turn);
    row->role = (enum role)which;
    return 0;
}

/* ---- messages ---- */

/* Appends the value as JSON; counts the bytes of its text (strings without escapes). */
static int put_json(struct buf *out, const json_t *v, size_t *text_bytes, struct err *e) {
    char *s = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!s)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    buf_puts(out, s);
    *text_bytes += json_is_string(v) ? json_string_length(v) : strlen(s);
    free(s);
    return 0;
}

static int put_text(struct buf *out, const char *role, const json_t *content, size_t *text_bytes,
                    struct err *e) {
    buf_printf(out, "%s{\"role\":\"%s\",\"content\":", out->n ? "," : "", role);
    int rc = put_json(out, content, text_bytes, e);
    buf_putc(out, '}');
    return rc;
}

static int put_tool_results(struct trace *t, const struct row *row, size_t *text_bytes,
                            struct err *e) {
    struct buf *out = &((struct endpoints *)t->state)->messages;
    const json_t *results = json_object_get(row->json, "tool_results");
    int rc = 0;
    if (json_array_size(results) == 0)
        return fault(t, row->line, "tool_results", "an array of at least one result", results, e);
    for (size_t i = 0; i < json_array_size(results) && !rc; i++) {
        const json_t *one = json_array_get(results, i), *id = json_object_get(one, "tool_call_id"),
                     *content = json_object_get(one, "content");
        char member[64];
        snprintf(member, sizeof member, "tool_results/%zu/%s", i,
                 json_is_string(id) ? "content" : "tool_call_id");
        if (!json_is_string(id) || !json_is_string(content))
            return fault(t, row->line, member, "a text", json_is_string(id) ? content : id, e);
        size_t name_bytes = 0;
        buf_printf(out, "%s{\"role\":\"tool\",\"tool_call_id\":", out->n ? "," : "");
        if ((rc = put_json(out, id, &name_bytes, e)))
            break;
        buf_puts(out, ",\"content\":");
        rc = put_json(out, content, text_bytes, e);
        buf_putc(out, '}');
    }
    return rc;
}

static int put_answer(struct trace *t, const struct row *row, size_t *text_bytes, struct err *e) {
    static const char *const members[] = {"content", "reasoning_content", "tool_calls"};
    struct buf *out = &((struct endpoints *)t->state)->messages;
    int found = 0, rc = 0;
    buf_puts(out, ",{\"role\":\"assistant\"");
    for (size_t i = 0; i < 3 && !rc; i++) {
        const json_t *v = json_object_get(row->json, members[i]);
        if (!v || json_is_null(v))
            continue;
        if (i < 2 ? !json_is_string(v) : json_array_size(v) == 0)
            return fault(t, row->line, members[i], i < 2 ? "a text" : "an array of calls", v, e);
        found += i != 1;
        buf_printf(out, ",\"%s\":", members[i]);
        rc = put_json(out, v, text_bytes, e);
    }
    buf_putc(out, '}');
    return rc || found ? rc
                       : fault(t, row->line, "content", "content or tool_calls of an assistant",
                               NULL, e);
}

/* ---- conversations ---- */

/* What is known of a conversation while its rows are read. */
struct talk {
    struct session *s;
    enum role before;
    json_t *system; /* own reference; NULL = none */
    size_t text_bytes, tools_bytes; /* so far */
    size_t answered_at, answered_text; /* behind the last answer: in messages, of text */
    int64_t delay_ns;
    const char *tools;
};

static int read_system(struct trace *t, struct talk *k, const struct row *row, struct err *e) {
    const json_t *system = json_object_get(row->json, "system");
    struct buf *out = &((struct endpoints *)t->state)->messages;
    if (!system || json_is_null(system))
        return 0;
    if (!json_is_string(system))
        return fault(t, row->line, "system", "a text", system, e);
    if (row->turn > 1 && (!k->system || !json_equal(system, k->system)))
        return fault(t, row->line, "system", "what the conversation's first row says", system, e);
    if (row->turn > 1)
        return 0;
    k->system = json_incref(json_object_get(row->json, "system"));
    return put_text(out, "system", system, &k->text_bytes, e);
}

/* The tools of a row hold until another row has others. */
static int read_tools(struct trace *t, struct talk *k, const struct row *row, struct err *e) {
    const json_t *tools = json_object_get(row->json, "tools");
    if (!tools || json_is_null(tools))
        return 0;
    if (!json_is_array(tools))
        return fault(t, row->line, "tools", "an array", tools, e);
    char *s = json_array_size(tools) ? json_dumps(tools, JSON_COMPACT) : NULL;
    k->tools = s ? arena_strdup(&k->s->arena, s) : NULL;
    k->tools_bytes = s ? strlen(s) : 0;
    free(s);
    return json_array_size(tools) && !k->tools ? err_set(e, ASSAY_ENOMEM, "out of memory") : 0;
}

static int read_delay(struct trace *t, struct talk *k, const struct row *row, struct err *e) {
    const json_t *delay = json_object_get(row->json, "delay_seconds");
    k->delay_ns = 0;
    if (!delay || json_is_null(delay))
        return 0;
    double s = json_number_value(delay);
    if (!json_is_number(delay) || s < 0 || s > DELAY_MAX_S)
        return fault(t, row->line, "delay_seconds", "a number of seconds from 0 to a year", delay,
                     e);
    k->delay_ns = (int64_t)(s * (double)NS_PER_S + 0.5);
    return 0;
}

static int client_row(struct trace *t, struct talk *k, const struct row *row, struct err *e) {
    struct endpoints *p = t->state;
    int rc = 0;
    if ((rc = read_system(t, k, row, e)) || (rc = read_tools(t, k, row, e)) ||
        (rc = read_delay(t, k, row, e)))
        return rc;
    if (row->role == ROLE_TOOL)
        return put_tool_results(t, row, &k->text_bytes, e);
    const json_t *content = json_object_get(row->json, "content");
    if (!json_is_string(content))
        return fault(t, row->line, "content", "a text", content, e);
    return put_text(&p->messages, "user", content, &k->text_bytes, e);
}

static int add_call(struct trace *t, struct talk *k, const struct row *row, uint32_t osl,
                    size_t messages_bytes, size_t text_bytes, struct err *e) {
    struct endpoints *p = t->state;
    if (p->ncalls == SESSION_CALLS_MAX)
        return reader_fault(&t->reader, row->line, 1, e,
                            "expected conversations of at most %d requests, found a longer one",
                            SESSION_CALLS_MAX);
    if (p->ncalls == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 64;
        struct session_call *c = realloc(p->call, cap * sizeof *c);
        if (!c)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        p->call = c;
        p->cap = cap;
    }
    uint32_t turn = (uint32_t)p->ncalls;
    struct session_wait *wait = NULL;
    if (turn) {
        wait = arena_alloc(&k->s->arena, 1, sizeof *wait);
        if (!wait)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        *wait = (struct session_wait){turn - 1, k->delay_ns};
    }
    struct session_call *c = &p->call[p->ncalls++];
    *c = (struct session_call){
        .line = row->line,
        .turn = turn,
        .isl = trace_estimate_tokens(text_bytes + k->tools_bytes),
        .osl = osl,
        .wait = wait,
        .nwaits = turn > 0,
        .messages_bytes = messages_bytes,
        .own_at = k->answered_at,
        .tools = k->tools,
        .tools_bytes = k->tools_bytes,
    };
    size_t shared = turn ? (k->answered_text + k->tools_bytes) / TRACE_BYTES_PER_TOKEN : 0;
    c->shared = shared < c->isl ? (uint32_t)shared : c->isl - 1;
    return 0;
}

static int assistant_row(struct trace *t, struct talk *k, const struct row *row, struct err *e) {
    struct endpoints *p = t->state;
    size_t messages_bytes = p->messages.n, text_bytes = k->text_bytes;
    int rc = put_answer(t, row, &k->text_bytes, e);
    if (rc)
        return rc;
    if (p->messages.failed)
        return 0; /* told by the caller */
    rc = add_call(t, k, row, trace_estimate_tokens(k->text_bytes - text_bytes), messages_bytes,
                  text_bytes, e);
    k->answered_at = p->messages.n + 1; /* behind the comma that follows */
    k->answered_text = k->text_bytes;
    return rc;
}

static int take_row(struct trace *t, struct talk *k, const struct row *row, struct err *e) {
    static const char *const after[ROLES] = {"an assistant's row", "an assistant's or a user's row",
                                             "a user's or a tool's row"};
    struct endpoints *p = t->state;
    bool first = row->turn == 1;
    const char *expected = first ? "a user's row" : after[k->before];
    bool ok = first                      ? row->role == ROLE_USER
              : k->before == ROLE_USER   ? row->role == ROLE_ASSISTANT
              : k->before == ROLE_TOOL   ? row->role != ROLE_TOOL
                                         : row->role != ROLE_ASSISTANT;
    if (!ok)
        return fault(t, row->line, "role", expected, json_object_get(row->json, "role"), e);
    k->before = row->role;
    int rc = row->role == ROLE_ASSISTANT ? assistant_row(t, k, row, e) : client_row(t, k, row, e);
    if (rc == 0 && (p->messages.failed || k->tools_bytes > TRACE_ROW_MAX_BYTES - p->messages.n))
        rc = reader_fault(&t->reader, row->line, 1, e,
                          "expected conversations of at most %d bytes, found a longer one",
                          TRACE_ROW_MAX_BYTES);
    return rc;
}

static int finish(struct endpoints *p, struct session *s, struct err *e) {
    s->ncalls = (uint32_t)p->ncalls;
    s->branches = 1;
    if (!s->ncalls)
        return 0;
    s->call = arena_alloc(&s->arena, p->ncalls, sizeof *s->call);
    s->messages = arena_strndup(&s->arena, p->messages.p, p->messages.n);
    if (!s->call || !s->messages)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    memcpy(s->call, p->call, p->ncalls * sizeof *s->call);
    s->call[p->ncalls - 1].last_turn = true;
    return 0;
}

/* All rows of the conversation that p->next begins. */
static int read_talk(struct trace *t, struct session *s, bool *more, struct err *e) {
    struct endpoints *p = t->state;
    struct talk k = {.s = s};
    int64_t turn = 1;
    int rc = 0;
    bool end = false;
    buf_clear(&p->messages);
    p->ncalls = 0;
    s->line = p->next.line;
    s->id = arena_strdup(&s->arena, p->next.id);
    if (!s->id)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    for (; !rc && !end && strcmp(p->next.id, s->id) == 0; turn++) {
        if (p->next.turn != turn) {
            char found[32];
            snprintf(found, sizeof found, "%lld", (long long)p->next.turn);
            rc = reader_fault(&t->reader, p->next.line, 1, e,
                              "at /turn: expected %lld (rows of a conversation stand together and "
                              "in order), found %s",
                              (long long)turn, found);
            break;
        }
        rc = take_row(t, &k, &p->next, e);
        json_decref(p->next.json);
        p->next.json = NULL;
        if (!rc)
            rc = read_row(t, &p->next, &end, e);
    }
    json_decref(k.system);
    *more = !end;
    return rc ? rc : finish(p, s, e);
}

static int endpoints_next(struct trace *t, struct session *s, bool *end, struct err *e) {
    struct endpoints *p = t->state;
    if (!p->messages.max)
        buf_init(&p->messages, TRACE_ROW_MAX_BYTES);
    *end = false;
    if (!p->next.json) {
        int rc = read_row(t, &p->next, end, e);
        if (rc || *end)
            return rc;
    }
    for (;;) {
        bool more = false;
        int rc = read_talk(t, s, &more, e);
        if (rc || s->ncalls)
            return rc;
        t->dropped++; /* nobody answered */
        session_clear(s);
        *end = !more;
        if (*end)
            return 0;
    }
}

static void endpoints_close(struct trace *t) {
    struct endpoints *p = t->state;
    json_decref(p->next.json);
    buf_release(&p->messages);
    free(p->call);
}

const struct trace_ops trace_endpoints = {
    .info = {.name = "mlperf-endpoints",
             .summary = "MLPerf Endpoints multi-turn JSONL: recorded conversations with tools and "
                        "their delays; lengths estimated at 4 bytes a token",
             .has_text = true,
             .has_sessions = true},
    .state_bytes = sizeof(struct endpoints),
    .next_session = endpoints_next,
    .close = endpoints_close,
};
