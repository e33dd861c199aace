/* The table of APIs. Sources: openai-streaming.md section 1; the OpenAI API reference. */
#include "backends/http/protocol.h"

#include <string.h>

enum { FIELDS_OPENAI = FIELD_IGNORE_EOS | FIELD_MIN_TOKENS | FIELD_INCLUDE_USAGE |
                       FIELD_CONTINUOUS_USAGE | FIELD_RETURN_TOKEN_IDS };

const struct protocol protocols[API_COUNT] = {
    [API_COMPLETIONS] = {.name = "completions",
                         .path = "/completions",
                         .prompt_key = "prompt",
                         .max_tokens_key = "max_tokens",
                         .fields = FIELDS_OPENAI,
                         .auth = "Authorization: Bearer "},
    [API_CHAT] = {.name = "chat",
                  .path = "/chat/completions",
                  .prompt_key = "messages",
                  .max_tokens_key = "max_completion_tokens",
                  .messages = true,
                  .fields = FIELDS_OPENAI,
                  .auth = "Authorization: Bearer "},
};

const char *const protocol_names[API_COUNT + 1] = {
    [API_COMPLETIONS] = "completions",
    [API_CHAT] = "chat",
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
