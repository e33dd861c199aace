/* The facts of scan.h from a tree: for the shapes that the scan leaves, and as its reference. */
#include "backends/http/scan_internal.h"

#include <string.h>

static void dom_text(const json_t *v, unsigned flag, struct scan *out) {
    /* a list of typed parts: each part's text counts */
    const json_t *part;
    size_t i;
    if (json_string_length(v))
        out->flags |= flag;
    json_array_foreach(v, i, part) if (json_string_length(part) ||
                                       json_string_length(json_object_get(part, "text")))
        out->flags |= flag;
}

static void dom_delta(const json_t *delta, struct scan *out) {
    dom_text(json_object_get(delta, "content"), SCAN_CONTENT, out);
    dom_text(json_object_get(delta, "reasoning"), SCAN_REASONING, out);
    dom_text(json_object_get(delta, "reasoning_content"), SCAN_REASONING, out);
    dom_text(json_object_get(delta, "refusal"), SCAN_REFUSAL, out);
    if (json_array_size(json_object_get(delta, "tool_calls")) ||
        json_is_object(json_object_get(delta, "function_call")))
        out->flags |= SCAN_TOOL_CALL;
}

static void dom_choice(const json_t *choice, struct scan *out) {
    dom_delta(json_object_get(choice, "delta"), out);
    dom_delta(json_object_get(choice, "message"), out);
    dom_text(json_object_get(choice, "text"), SCAN_CONTENT, out);
    const json_t *ids = json_object_get(choice, "token_ids");
    if (json_is_array(ids))
        out->token_ids = (out->token_ids < 0 ? 0 : out->token_ids) + (int64_t)json_array_size(ids);
    const json_t *finish = json_object_get(choice, "finish_reason");
    if (json_string_length(finish)) {
        out->flags |= SCAN_FINISH;
        if (!strcmp(json_string_value(finish), "length"))
            out->flags |= SCAN_FINISH_LENGTH;
    }
}

/* A count written as 12.0 is 12; anything else that is no count is not given. */
static void dom_count(const json_t *v, int64_t *out) {
    if (json_is_integer(v) && json_integer_value(v) >= 0)
        *out = json_integer_value(v);
    else if (json_is_real(v) && json_real_value(v) >= 0 && json_real_value(v) < 1e15)
        *out = (int64_t)json_real_value(v);
}

static bool dom_truthy(const json_t *v) {
    switch (v ? json_typeof(v) : JSON_NULL) {
    case JSON_OBJECT:
        return json_object_size(v) > 0;
    case JSON_ARRAY:
        return json_array_size(v) > 0;
    case JSON_STRING:
        return json_string_length(v) > 0;
    case JSON_INTEGER:
    case JSON_REAL:
        return json_number_value(v) < 0 || json_number_value(v) > 0;
    case JSON_TRUE:
        return true;
    default:
        return false;
    }
}

static bool dom_is(const json_t *v, const char *text) {
    return json_is_string(v) && !strcmp(json_string_value(v), text);
}

static bool dom_begins(const json_t *v, const char *prefix) {
    return json_is_string(v) && !strncmp(json_string_value(v), prefix, strlen(prefix));
}

static void dom_openai(const json_t *root, struct scan *out) {
    const json_t *choices = json_object_get(root, "choices"), *choice;
    size_t i;
    if (json_array_size(choices))
        out->flags |= SCAN_CHOICES;
    json_array_foreach(choices, i, choice) dom_choice(choice, out);
    const json_t *usage = json_object_get(root, "usage");
    if (json_is_object(usage)) {
        out->flags |= SCAN_USAGE;
        dom_count(json_object_get(usage, "prompt_tokens"), &out->prompt_tokens);
        dom_count(json_object_get(usage, "completion_tokens"), &out->completion_tokens);
        dom_count(json_object_get(json_object_get(usage, "prompt_tokens_details"), "cached_tokens"),
                  &out->cached_tokens);
        dom_count(json_object_get(json_object_get(usage, "completion_tokens_details"),
                                  "reasoning_tokens"),
                  &out->reasoning_tokens);
    }
    if (dom_truthy(json_object_get(root, "error")) ||
        dom_is(json_object_get(root, "object"), "error") ||
        dom_is(json_object_get(root, "type"), "error"))
        out->flags |= SCAN_ERROR;
    if (dom_begins(json_object_get(root, "system_fingerprint"), "assay-sim/") ||
        dom_begins(json_object_get(root, "model"), "sim/"))
        out->flags |= SCAN_SIMULATED;
}

/* ---- events with a type ---- */

static const char *text_of(const json_t *v) {
    return json_is_string(v) ? json_string_value(v) : NULL;
}

static unsigned when_text(const json_t *v, unsigned flag) {
    return json_string_length(v) ? flag : 0;
}

static const struct scan_type *dom_type(enum scan_dialect d, const json_t *root) {
    const json_t *type = json_object_get(root, "type");
    return scan_type_of(d, text_of(type), json_string_length(type));
}

static void dom_simulated(const json_t *object, struct scan *out) {
    if (dom_begins(json_object_get(object, "model"), "sim/"))
        out->flags |= SCAN_SIMULATED;
}

static void dom_common(const json_t *root, struct scan *out) {
    dom_simulated(root, out);
    if (dom_truthy(json_object_get(root, "error")) ||
        dom_is(json_object_get(root, "object"), "error"))
        out->flags |= SCAN_ERROR;
}

static void dom_responses_usage(const json_t *usage, struct scan *out) {
    if (!json_is_object(usage))
        return;
    out->flags |= SCAN_USAGE;
    dom_count(json_object_get(usage, "input_tokens"), &out->prompt_tokens);
    dom_count(json_object_get(usage, "output_tokens"), &out->completion_tokens);
    dom_count(json_object_get(json_object_get(usage, "input_tokens_details"), "cached_tokens"),
              &out->cached_tokens);
    dom_count(json_object_get(json_object_get(usage, "output_tokens_details"), "reasoning_tokens"),
              &out->reasoning_tokens);
}

static unsigned dom_incomplete(const json_t *object) {
    const json_t *details = json_object_get(object, "incomplete_details");
    return dom_is(json_object_get(details, "reason"), "max_output_tokens") ? SCAN_FINISH_LENGTH : 0;
}

static void dom_parts(const json_t *parts, bool *text, unsigned *flags) {
    const json_t *part;
    size_t i;
    json_array_foreach(parts, i, part) {
        *text |= json_string_length(json_object_get(part, "text")) > 0;
        *flags |= when_text(json_object_get(part, "refusal"), SCAN_REFUSAL);
    }
}

static unsigned dom_item(const json_t *item) {
    const json_t *type = json_object_get(item, "type");
    bool text = false;
    unsigned flags = 0;
    dom_parts(json_object_get(item, "content"), &text, &flags);
    dom_parts(json_object_get(item, "summary"), &text, &flags);
    if (text)
        flags |= dom_is(type, "reasoning") ? SCAN_REASONING : SCAN_CONTENT;
    if (json_is_string(type) &&
        scan_is_call(SCAN_RESPONSES, json_string_value(type), json_string_length(type)))
        flags |= SCAN_TOOL_CALL;
    return flags;
}

static void dom_responses(const json_t *root, struct scan *out) {
    const json_t *response = json_object_get(root, "response"),
                 *status = json_object_get(root, "status"), *item;
    struct scan_found found = {0};
    size_t i;
    dom_common(root, out);
    dom_simulated(response, out);
    dom_responses_usage(json_object_get(root, "usage"), out);
    dom_responses_usage(json_object_get(response, "usage"), out);
    found.delta = when_text(json_object_get(root, "delta"), SCAN_OUTPUT);
    found.block = dom_item(json_object_get(root, "item"));
    found.whole = dom_incomplete(root) | dom_incomplete(response);
    json_array_foreach(json_object_get(root, "output"), i, item) found.whole |= dom_item(item);
    if (json_is_string(status))
        found.whole |= scan_status_flags(json_string_value(status), json_string_length(status));
    out->flags |= scan_resolve(dom_type(SCAN_RESPONSES, root), &found);
}

static void dom_messages_usage(const json_t *usage, bool output, struct scan *out) {
    if (!json_is_object(usage))
        return;
    out->flags |= SCAN_USAGE;
    dom_count(json_object_get(usage, "input_tokens"), &out->prompt_tokens);
    dom_count(json_object_get(usage, "cache_read_input_tokens"), &out->cached_tokens);
    dom_count(json_object_get(usage, "cache_creation_input_tokens"), &out->written_tokens);
    if (output)
        dom_count(json_object_get(usage, "output_tokens"), &out->completion_tokens);
}

static unsigned dom_block(const json_t *block) {
    const json_t *type = json_object_get(block, "type"),
                 *stop = json_object_get(block, "stop_reason");
    unsigned flags = when_text(json_object_get(block, "text"), SCAN_CONTENT) |
                     when_text(json_object_get(block, "thinking"), SCAN_REASONING) |
                     when_text(json_object_get(block, "partial_json"), SCAN_TOOL_CALL);
    if (json_is_string(type) &&
        scan_is_call(SCAN_MESSAGES, json_string_value(type), json_string_length(type)))
        flags |= SCAN_TOOL_CALL;
    if (json_is_string(stop))
        flags |= scan_stop_flags(json_string_value(stop), json_string_length(stop));
    return flags;
}

static void dom_messages(const json_t *root, struct scan *out) {
    const json_t *start = json_object_get(root, "message"),
                 *stop = json_object_get(root, "stop_reason"), *block;
    struct scan_found found = {0};
    size_t i;
    dom_common(root, out);
    dom_simulated(start, out);
    dom_messages_usage(json_object_get(start, "usage"), false, out);
    dom_messages_usage(json_object_get(root, "usage"), true, out);
    found.delta = dom_block(json_object_get(root, "delta"));
    found.block = dom_block(json_object_get(root, "content_block"));
    json_array_foreach(json_object_get(root, "content"), i, block) found.whole |= dom_block(block);
    if (json_is_string(stop))
        found.whole |= scan_stop_flags(json_string_value(stop), json_string_length(stop));
    out->flags |= scan_resolve(dom_type(SCAN_MESSAGES, root), &found);
}

bool scan_dom(enum scan_dialect d, const json_t *root, struct scan *out) {
    static void (*const readers[SCAN_DIALECTS])(const json_t *, struct scan *) = {
        dom_openai, dom_responses, dom_messages};
    scan_none(out);
    if (!json_is_object(root))
        return false;
    readers[d](root, out);
    out->text_lost = out->flags & SCAN_OUTPUT; /* a tree's strings are not as they stood in the event */
    return true;
}

enum scan_result scan_any(enum scan_dialect d, const char *p, size_t n, struct scan *out,
                          bool *slow_path) {
    enum scan_result r = scan_event(d, p, n, out);
    *slow_path = r == SCAN_SLOW;
    if (r != SCAN_SLOW)
        return r;
    json_error_t je;
    json_t *root = json_loadb(p, n, JSON_ALLOW_NUL, &je);
    bool object = root && scan_dom(d, root, out);
    json_decref(root);
    return object ? SCAN_OK : SCAN_MALFORMED;
}
