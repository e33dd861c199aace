/* The key scan of dialects whose events have a `type`: OpenAI's Responses and Anthropic's Messages.
 * Documents of both (answers that are no stream) go the same way. No allocation. */
#include "backends/http/scan_internal.h"

#include <string.h>

/* ---- types ---- */

#define TYPE(w, ...)                                                                               \
    { .word = w, .length = sizeof w - 1, __VA_ARGS__ }
#define DELTA(flags) .lets.delta = flags
enum { EVERYTHING = ~0 };

/* Order: the frequent ones first. The first row is for no type at all, which is what documents have. */
static const struct scan_type responses_types[] = {
    {.lets.whole = (unsigned)EVERYTHING},
    TYPE("response.output_text.delta", DELTA(SCAN_CONTENT)),
    TYPE("response.reasoning_text.delta", DELTA(SCAN_REASONING)),
    TYPE("response.reasoning_summary_text.delta", DELTA(SCAN_REASONING)),
    TYPE("response.function_call_arguments.delta", DELTA(SCAN_TOOL_CALL)),
    TYPE("response.refusal.delta", DELTA(SCAN_REFUSAL)),
    TYPE("response.custom_tool_call_input.delta", DELTA(SCAN_TOOL_CALL)),
    TYPE("response.mcp_call_arguments.delta", DELTA(SCAN_TOOL_CALL)),
    TYPE("response.code_interpreter_call_code.delta", DELTA(SCAN_TOOL_CALL)),
    TYPE("response.reasoning.delta", DELTA(SCAN_REASONING)), /* names of earlier servers */
    TYPE("response.reasoning_summary.delta", DELTA(SCAN_REASONING)),
    TYPE("response.output_item.added", .lets.block = SCAN_TOOL_CALL),
    TYPE("response.completed", .always = SCAN_FINISH | SCAN_END),
    TYPE("response.incomplete", .always = SCAN_FINISH | SCAN_END, .lets.whole = SCAN_FINISH_LENGTH),
    TYPE("response.failed", .always = SCAN_ERROR | SCAN_END),
    TYPE("error", .always = SCAN_ERROR),
    {0},
};

static const struct scan_type messages_types[] = {
    {.lets.whole = (unsigned)EVERYTHING},
    TYPE("content_block_delta", DELTA(SCAN_OUTPUT)),
    TYPE("content_block_start", .lets.block = SCAN_OUTPUT),
    TYPE("message_delta", DELTA(SCAN_FINISH | SCAN_FINISH_LENGTH)),
    TYPE("message_stop", .always = SCAN_END),
    TYPE("message", .lets.whole = (unsigned)EVERYTHING), /* a document */
    TYPE("error", .always = SCAN_ERROR),
    {0},
};

static bool is_word(const char *p, size_t n, const char *word) {
    return n == strlen(word) && !memcmp(p, word, n);
}

const struct scan_type *scan_type_of(enum scan_dialect d, const char *p, size_t n) {
    const struct scan_type *row = d == SCAN_RESPONSES ? responses_types : messages_types;
    if (!p)
        return row;
    for (row++; row->word; row++)
        if (row->length == n && !memcmp(row->word, p, n))
            break;
    return row;
}

unsigned scan_resolve(const struct scan_type *type, const struct scan_found *found) {
    unsigned flags = type->always | (found->delta & type->lets.delta) |
                     (found->block & type->lets.block) | (found->whole & type->lets.whole);
    return flags & SCAN_OUTPUT ? flags | SCAN_CHOICES : flags;
}

unsigned scan_status_flags(const char *p, size_t n) {
    if (is_word(p, n, "completed") || is_word(p, n, "incomplete"))
        return SCAN_FINISH;
    return is_word(p, n, "failed") || is_word(p, n, "cancelled") ? SCAN_ERROR : 0;
}

unsigned scan_stop_flags(const char *p, size_t n) {
    if (is_word(p, n, "max_tokens"))
        return SCAN_FINISH | SCAN_FINISH_LENGTH;
    return n ? SCAN_FINISH : 0;
}

bool scan_is_call(enum scan_dialect d, const char *p, size_t n) {
    const char *tail = d == SCAN_RESPONSES ? "_call" : "tool_use"; /* function_call, server_tool_use … */
    size_t k = strlen(tail);
    return n >= k && !memcmp(p + n - k, tail, k);
}

/* ---- the scan ---- */

struct typed {
    struct scanner s; /* first: readers are given it */
    enum scan_dialect dialect;
    const struct scan_type *type;
    struct scan_found found;
    unsigned *into; /* flags of the object that is being read */
    bool text, call, reasoning; /* of the item that is being read */
};

static struct typed *of(struct scanner *s) {
    return (struct typed *)s;
}

static bool read_flag(struct scanner *s, unsigned flag) {
    bool any = false;
    if (!scan_nonempty(s, &any))
        return false;
    if (any)
        *of(s)->into |= flag;
    return true;
}

/* A word: a string without escapes. Other kinds of value are passed over: raw->p = NULL. */
static bool read_word(struct scanner *s, struct str *raw) {
    bool escaped;
    *raw = (struct str){0};
    if (scan_peek(s) != '"')
        return scan_skip_value(s);
    if (!scan_take_string(s, raw, &escaped))
        return false;
    return escaped ? scan_slow(s) : true;
}

static bool read_type(struct scanner *s) {
    struct str raw;
    if (!read_word(s, &raw))
        return false;
    if (raw.p)
        of(s)->type = scan_type_of(of(s)->dialect, raw.p, raw.n);
    return true;
}

/* Usage twice in one event: which counts is left to the tree. */
static bool read_usage(struct scanner *s, const struct key_row *rows) {
    if (scan_peek(s) == '{') {
        if (s->out->flags & SCAN_USAGE)
            return scan_slow(s);
        s->out->flags |= SCAN_USAGE;
    }
    return scan_object_or_null(s, rows);
}

static bool read_input_tokens(struct scanner *s) {
    return scan_count(s, &s->out->prompt_tokens);
}

static bool read_output_tokens(struct scanner *s) {
    return scan_count(s, &s->out->completion_tokens);
}

static bool read_cached(struct scanner *s) {
    return scan_count(s, &s->out->cached_tokens);
}

/* ---- Responses ---- */

static bool read_reasoning_tokens(struct scanner *s) {
    return scan_count(s, &s->out->reasoning_tokens);
}

static bool read_input_details(struct scanner *s) {
    static const struct key_row keys[] = {KEY("cached_tokens", read_cached), {0}};
    return scan_object_or_null(s, keys);
}

static bool read_output_details(struct scanner *s) {
    static const struct key_row keys[] = {KEY("reasoning_tokens", read_reasoning_tokens), {0}};
    return scan_object_or_null(s, keys);
}

static bool read_responses_usage(struct scanner *s) {
    static const struct key_row keys[] = {
        KEY("input_tokens", read_input_tokens),
        KEY("output_tokens", read_output_tokens),
        KEY("input_tokens_details", read_input_details),
        KEY("output_tokens_details", read_output_details),
        {0},
    };
    return read_usage(s, keys);
}

/* A string is a piece of whatever the type says; objects are of types that mean nothing here. */
static bool read_responses_delta(struct scanner *s) {
    bool any = false;
    if (scan_peek(s) != '"')
        return scan_skip_value(s);
    if (!scan_nonempty(s, &any))
        return false;
    if (any)
        of(s)->found.delta |= SCAN_OUTPUT;
    return true;
}

static bool read_reason(struct scanner *s) {
    struct str raw;
    if (!read_word(s, &raw))
        return false;
    if (raw.p && is_word(raw.p, raw.n, "max_output_tokens"))
        of(s)->found.whole |= SCAN_FINISH_LENGTH;
    return true;
}

static bool read_incomplete(struct scanner *s) {
    static const struct key_row keys[] = {KEY("reason", read_reason), {0}};
    return scan_object_or_null(s, keys);
}

static bool read_status(struct scanner *s) {
    struct str raw;
    if (!read_word(s, &raw))
        return false;
    if (raw.p)
        of(s)->found.whole |= scan_status_flags(raw.p, raw.n);
    return true;
}

/* The response inside an event: its output has been sent in other events. */
static bool read_response(struct scanner *s) {
    static const struct key_row keys[] = {
        KEY("usage", read_responses_usage),
        KEY("incomplete_details", read_incomplete),
        KEY("model", scan_model),
        {0},
    };
    return scan_object_or_null(s, keys);
}

static bool read_part_text(struct scanner *s) {
    return scan_nonempty(s, &of(s)->text);
}

static bool read_part_refusal(struct scanner *s) {
    return read_flag(s, SCAN_REFUSAL);
}

static bool read_part(struct scanner *s) {
    static const struct key_row keys[] = {
        KEY("text", read_part_text), KEY("refusal", read_part_refusal), {0}};
    return scan_object_or_null(s, keys);
}

static bool read_parts(struct scanner *s) {
    return scan_array_or_null(s, read_part);
}

static bool read_item_type(struct scanner *s) {
    struct str raw;
    if (!read_word(s, &raw))
        return false;
    if (raw.p) {
        of(s)->call = scan_is_call(SCAN_RESPONSES, raw.p, raw.n);
        of(s)->reasoning = is_word(raw.p, raw.n, "reasoning");
    }
    return true;
}

static bool read_item(struct scanner *s) {
    static const struct key_row keys[] = {
        KEY("type", read_item_type),
        KEY("content", read_parts),
        KEY("summary", read_parts),
        {0},
    };
    struct typed *t = of(s);
    t->text = t->call = t->reasoning = false;
    if (!scan_object_or_null(s, keys))
        return false;
    if (t->text)
        *t->into |= t->reasoning ? SCAN_REASONING : SCAN_CONTENT;
    if (t->call)
        *t->into |= SCAN_TOOL_CALL;
    return true;
}

static bool read_event_item(struct scanner *s) {
    of(s)->into = &of(s)->found.block;
    return read_item(s);
}

static bool read_output(struct scanner *s) {
    of(s)->into = &of(s)->found.whole;
    return scan_array_or_null(s, read_item);
}

static const struct key_row responses_keys[] = {
    KEY("type", read_type),
    KEY("delta", read_responses_delta),
    KEY("response", read_response),
    KEY("item", read_event_item),
    KEY("error", scan_error),
    /* of a document */
    KEY("object", scan_object_kind),
    KEY("model", scan_model),
    KEY("status", read_status),
    KEY("incomplete_details", read_incomplete),
    KEY("output", read_output),
    KEY("usage", read_responses_usage),
    {0},
};

/* ---- Messages ---- */

static bool read_written(struct scanner *s) {
    return scan_count(s, &s->out->written_tokens);
}

static bool read_messages_usage(struct scanner *s) {
    static const struct key_row keys[] = {
        KEY("input_tokens", read_input_tokens),
        KEY("output_tokens", read_output_tokens),
        KEY("cache_read_input_tokens", read_cached),
        KEY("cache_creation_input_tokens", read_written),
        {0},
    };
    return read_usage(s, keys);
}

/* What message_start says of the output is no count of it yet. */
static bool read_start_usage(struct scanner *s) {
    static const struct key_row keys[] = {
        KEY("input_tokens", read_input_tokens),
        KEY("cache_read_input_tokens", read_cached),
        KEY("cache_creation_input_tokens", read_written),
        {0},
    };
    return read_usage(s, keys);
}

static bool read_start(struct scanner *s) {
    static const struct key_row keys[] = {
        KEY("usage", read_start_usage), KEY("model", scan_model), {0}};
    return scan_object_or_null(s, keys);
}

static bool read_block_text(struct scanner *s) {
    return read_flag(s, SCAN_CONTENT);
}

static bool read_thinking(struct scanner *s) {
    return read_flag(s, SCAN_REASONING);
}

static bool read_partial_json(struct scanner *s) {
    return read_flag(s, SCAN_TOOL_CALL);
}

static bool read_block_type(struct scanner *s) {
    struct str raw;
    if (!read_word(s, &raw))
        return false;
    if (raw.p && scan_is_call(SCAN_MESSAGES, raw.p, raw.n))
        *of(s)->into |= SCAN_TOOL_CALL;
    return true;
}

static bool read_stop(struct scanner *s, unsigned *into) {
    struct str raw;
    if (!read_word(s, &raw))
        return false;
    if (raw.p)
        *into |= scan_stop_flags(raw.p, raw.n);
    return true;
}

static bool read_delta_stop(struct scanner *s) {
    return read_stop(s, of(s)->into);
}

/* A delta, a content block, or an element of a document's content. */
static bool read_block(struct scanner *s) {
    static const struct key_row keys[] = {
        KEY("text", read_block_text),
        KEY("type", read_block_type),
        KEY("thinking", read_thinking),
        KEY("partial_json", read_partial_json),
        KEY("stop_reason", read_delta_stop),
        {0},
    };
    return scan_object_or_null(s, keys);
}

static bool read_messages_delta(struct scanner *s) {
    of(s)->into = &of(s)->found.delta;
    return read_block(s);
}

static bool read_content_block(struct scanner *s) {
    of(s)->into = &of(s)->found.block;
    return read_block(s);
}

static bool read_content(struct scanner *s) {
    of(s)->into = &of(s)->found.whole;
    return scan_array_or_null(s, read_block);
}

static bool read_document_stop(struct scanner *s) {
    return read_stop(s, &of(s)->found.whole);
}

static const struct key_row messages_keys[] = {
    KEY("type", read_type),
    KEY("delta", read_messages_delta),
    KEY("content_block", read_content_block),
    KEY("usage", read_messages_usage),
    KEY("message", read_start),
    KEY("error", scan_error),
    /* of a document */
    KEY("object", scan_object_kind),
    KEY("model", scan_model),
    KEY("content", read_content),
    KEY("stop_reason", read_document_stop),
    {0},
};

_Static_assert(sizeof responses_keys / sizeof *responses_keys <= SCAN_KEY_ROWS_MAX &&
                   sizeof messages_keys / sizeof *messages_keys <= SCAN_KEY_ROWS_MAX,
               "a bit a row");

enum scan_result scan_typed(enum scan_dialect d, const char *p, size_t n, struct scan *out) {
    struct typed t = {.s = {.p = p, .end = p + n, .out = out, .failure = SCAN_OK},
                      .dialect = d,
                      .type = scan_type_of(d, NULL, 0)};
    if (!scan_object(&t.s, d == SCAN_RESPONSES ? responses_keys : messages_keys))
        return t.s.failure;
    if (!scan_end(&t.s))
        return SCAN_MALFORMED;
    out->flags |= scan_resolve(t.type, &t.found);
    if (!(out->flags & SCAN_OUTPUT)) /* what was read repeats what other events brought */
        out->ntexts = 0, out->text_lost = false;
    out->text_lost |= (out->flags & SCAN_TOOL_CALL) != 0;
    return SCAN_OK;
}
