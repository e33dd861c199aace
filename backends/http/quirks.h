/* Kinds of servers, a row each: how one is recognised by what it says of itself before the first request,
 * and in what its requests differ from those that any server is sent. A server that nobody recognises is
 * of the kind `generic`, which is sent all that its API has. */
#ifndef BACKENDS_HTTP_QUIRKS_H
#define BACKENDS_HTTP_QUIRKS_H

#include "backends/http/protocol.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum server_name {
    SERVER_AUTO, /* -o server=auto: to be recognised */
    SERVER_GENERIC,
    SERVER_ASSAY,
    SERVER_VLLM,
    SERVER_SGLANG,
    SERVER_TRTLLM,
    SERVER_LLAMACPP,
    SERVER_TGI,
    SERVER_OPENAI,
    SERVER_ANTHROPIC,
    SERVER_COUNT
};

struct server_kind {
    const char *name;     /* of -o server, and in the record */
    const char *owned_by; /* a listed model's owned_by; NULL = no mark */
    bool owner_is_model;  /* … is the model's id, and it was created at 0 */
    const char *header;   /* 'Name: begin of the value' of an answer */
    const char *host;     /* of the URL */
    unsigned accepts;     /* enum request_field: the others are refused or mean nothing */
    const char *chat_max_tokens_key; /* what chat calls the output length; NULL: as the API does */
};

extern const struct server_kind server_kinds[SERVER_COUNT]; /* by enum server_name; AUTO's is empty */
extern const char *const server_kind_names[SERVER_COUNT + 1];    /* for -o server; ends with NULL */

/* NULL = says nothing. line: one header line of an answer. model: an element of `data`. */
const struct server_kind *server_by_host(const char *host);
const struct server_kind *server_by_header(const char *line, size_t n);
const struct server_kind *server_by_model(const json_t *model);

#endif
