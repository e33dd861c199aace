/* The table of servers. Sources: openai-streaming.md sections 1.1 and 4; what each one's own code or
 * documentation says: vLLM, SGLang (entrypoints/openai/protocol.py), TensorRT-LLM
 * (serve/openai_protocol.py, which forbids members it does not know), llama.cpp (tools/server), TGI
 * (docs/openapi.json, router/src/server.rs), OpenAI's and Anthropic's API references. */
#include "backends/http/quirks.h"

#include <string.h>
#include <strings.h>

enum {
    CONTROLLED = FIELD_IGNORE_EOS | FIELD_MIN_TOKENS | FIELD_INCLUDE_USAGE | FIELD_CONTINUOUS_USAGE,
    EVERYTHING = CONTROLLED | FIELD_RETURN_TOKEN_IDS
};

const struct server_kind server_kinds[SERVER_COUNT] = {
    [SERVER_AUTO] = {.name = "auto"},
    [SERVER_GENERIC] = {.name = "generic", .accepts = EVERYTHING},
    [SERVER_ASSAY] = {.name = "assay", .owned_by = "assay", .accepts = CONTROLLED},
    [SERVER_VLLM] = {.name = "vllm", .owned_by = "vllm", .accepts = EVERYTHING},
    [SERVER_SGLANG] = {.name = "sglang", .owned_by = "sglang", .accepts = CONTROLLED},
    [SERVER_TRTLLM] = {.name = "trtllm", .owned_by = "tensorrt_llm", .accepts = CONTROLLED},
    [SERVER_LLAMACPP] = {.name = "llamacpp",
                         .owned_by = "llamacpp",
                         .header = "Server: llama.cpp",
                         .accepts = FIELD_IGNORE_EOS | FIELD_INCLUDE_USAGE,
                         .chat_max_tokens_key = "max_tokens"},
    [SERVER_TGI] = {.name = "tgi",
                    .owner_is_model = true,
                    .accepts = FIELD_INCLUDE_USAGE,
                    .chat_max_tokens_key = "max_tokens"},
    [SERVER_OPENAI] = {.name = "openai",
                       .header = "openai-version: ",
                       .host = "api.openai.com",
                       .accepts = FIELD_INCLUDE_USAGE},
    [SERVER_ANTHROPIC] = {.name = "anthropic",
                          .header = "anthropic-organization-id: ",
                          .host = "api.anthropic.com",
                          .accepts = FIELD_INCLUDE_USAGE},
};

const char *const server_kind_names[SERVER_COUNT + 1] = {
    [SERVER_AUTO] = "auto",         [SERVER_GENERIC] = "generic",     [SERVER_ASSAY] = "assay",
    [SERVER_VLLM] = "vllm",         [SERVER_SGLANG] = "sglang",       [SERVER_TRTLLM] = "trtllm",
    [SERVER_LLAMACPP] = "llamacpp", [SERVER_TGI] = "tgi",             [SERVER_OPENAI] = "openai",
    [SERVER_ANTHROPIC] = "anthropic",
};

static const struct server_kind *const end = server_kinds + SERVER_COUNT;

const struct server_kind *server_by_host(const char *host) {
    for (const struct server_kind *k = server_kinds; k < end; k++)
        if (k->host && !strcasecmp(host, k->host))
            return k;
    return NULL;
}

const struct server_kind *server_by_header(const char *line, size_t n) {
    for (const struct server_kind *k = server_kinds; k < end; k++)
        if (k->header && n >= strlen(k->header) &&
            !strncasecmp(line, k->header, strlen(k->header)))
            return k;
    return NULL;
}

const struct server_kind *server_by_model(const json_t *model) {
    const char *owner = json_string_value(json_object_get(model, "owned_by"));
    const char *id = json_string_value(json_object_get(model, "id"));
    const json_t *created = json_object_get(model, "created");
    bool is_model = owner && id && !strcmp(owner, id) && json_is_integer(created) &&
                    json_integer_value(created) == 0;
    for (const struct server_kind *k = server_kinds; k < end; k++)
        if (owner && ((k->owned_by && !strcmp(owner, k->owned_by)) || (k->owner_is_model && is_model)))
            return k;
    return NULL;
}
