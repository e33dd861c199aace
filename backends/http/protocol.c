/* The table of APIs. Sources: openai-streaming.md section 1;
 * https://developers.openai.com/api/reference/resources/responses,
 * https://platform.claude.com/docs/en/api/messages and …/api/versioning. */
#include "backends/http/protocol.h"

#include <string.h>

enum { FIELDS_OPENAI = FIELD_IGNORE_EOS | FIELD_MIN_TOKENS | FIELD_INCLUDE_USAGE |
                       FIELD_CONTINUOUS_USAGE | FIELD_RETURN_TOKEN_IDS };

#define NO_FINISH "the stream ended without finish_reason and without [DONE]"

const struct protocol protocols[API_COUNT] = {
    [API_COMPLETIONS] = {.name = "completions",
                         .path = "/completions",
                         .prompt_key = "prompt",
                         .max_tokens_key = "max_tokens",
                         .fields = FIELDS_OPENAI,
                         .auth = AUTH_BEARER,
                  .no_end = NO_FINISH},
    [API_CHAT] = {.name = "chat",
                  .path = "/chat/completions",
                  .prompt_key = "messages",
                  .max_tokens_key = "max_completion_tokens",
                  .messages = true,
                  .fields = FIELDS_OPENAI,
                  .auth = AUTH_BEARER,
                  .no_end = NO_FINISH},
    [API_RESPONSES] = {.name = "responses",
                       .path = "/responses",
                       .prompt_key = "input",
                       .max_tokens_key = "max_output_tokens",
                       .messages = true,
                       .auth = AUTH_BEARER,
                       .dialect = SCAN_RESPONSES,
                       .end_event = true,
                       .no_end = "the stream ended without response.completed, .incomplete or .failed"},
    [API_MESSAGES] = {.name = "messages",
                      .path = "/messages",
                      .prompt_key = "messages",
                      .max_tokens_key = "max_tokens",
                      .messages = true,
                      .system_apart = true,
                      .auth = AUTH_X_API_KEY,
                      .headers = {"anthropic-version: 2023-06-01"},
                      .dialect = SCAN_MESSAGES,
                      .end_event = true,
                      .cached_beside = true,
                      .no_end = "the stream ended without message_stop"},
};

const char *const auth_names[AUTH_COUNT + 1] = {
    [AUTH_AUTO] = "auto",
    [AUTH_BEARER] = "bearer",
    [AUTH_X_API_KEY] = "x-api-key",
};

const char *const auth_lines[AUTH_COUNT] = {
    [AUTH_BEARER] = "Authorization: Bearer ",
    [AUTH_X_API_KEY] = "x-api-key: ",
};

const char *const protocol_names[API_COUNT + 1] = {
    [API_COMPLETIONS] = "completions",
    [API_CHAT] = "chat",
    [API_RESPONSES] = "responses",
    [API_MESSAGES] = "messages",
};

const struct protocol *protocol_of_path(const char *path) {
    const struct protocol *best = NULL;
    size_t n = strlen(path), longest = 0;
    for (size_t i = 0; i < API_COUNT; i++) {
        size_t k = strlen(protocols[i].path);
        if (k > longest && n >= k && !strcmp(path + n - k, protocols[i].path)) {
            best = &protocols[i];
            longest = k;
        }
    }
    return best;
}
