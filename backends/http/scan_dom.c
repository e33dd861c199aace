/* The facts of scan.h from a tree: for the shapes that the scan leaves, and as its reference. */
#include "backends/http/scan.h"

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

bool scan_dom(const json_t *root, struct scan *out) {
    scan_none(out);
    if (!json_is_object(root))
        return false;
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
    return true;
}

enum scan_result scan_any(const char *p, size_t n, struct scan *out, bool *slow_path) {
    enum scan_result r = scan_event(p, n, out);
    *slow_path = r == SCAN_SLOW;
    if (r != SCAN_SLOW)
        return r;
    json_error_t je;
    json_t *root = json_loadb(p, n, JSON_ALLOW_NUL, &je);
    bool object = root && scan_dom(root, out);
    json_decref(root);
    return object ? SCAN_OK : SCAN_MALFORMED;
}
