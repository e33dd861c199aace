/* The APIs that the backend speaks, a row each: where requests go, what their bodies call things,
 * which optional fields the API has, how the key is sent, and how answers are read and end. */
#ifndef BACKENDS_HTTP_PROTOCOL_H
#define BACKENDS_HTTP_PROTOCOL_H

#include "backends/http/scan.h"

#include <stdbool.h>
#include <stddef.h>

/* Members of a request that not every API or server has. */
enum request_field {
    FIELD_IGNORE_EOS = 1 << 0,       /* ignore_eos: true */
    FIELD_MIN_TOKENS = 1 << 1,       /* min_tokens: the output length */
    FIELD_INCLUDE_USAGE = 1 << 2,    /* stream_options.include_usage */
    FIELD_CONTINUOUS_USAGE = 1 << 3, /* stream_options.continuous_usage_stats; implies include_usage */
    FIELD_RETURN_TOKEN_IDS = 1 << 4, /* return_token_ids */
};

enum http_api { API_COMPLETIONS, API_CHAT, API_RESPONSES, API_MESSAGES, API_COUNT };

/* How the key is sent: the header line up to it. AUTH_AUTO: as the API does. */
enum http_auth { AUTH_AUTO, AUTH_BEARER, AUTH_X_API_KEY, AUTH_COUNT };

struct protocol {
    const char *name;           /* of -o api */
    const char *path;           /* behind …/v1 */
    const char *prompt_key;     /* of the prompt or the array of messages */
    const char *max_tokens_key; /* of the output length, when the server is not known to differ */
    bool messages;              /* the prompt is an array of {role, content} */
    bool system_apart;          /* no role "system": that message is a member beside the array */
    unsigned fields;            /* enum request_field that the API knows */
    enum http_auth auth;        /* how the key is sent */
    const char *headers[2];     /* further header lines, unless the user sets them */

    enum scan_dialect dialect;
    bool end_event;     /* a stream ends with an event of its own, not with a reason to finish */
    bool cached_beside; /* usage counts cached input tokens beside the others, not among them */
    const char *no_end; /* what to say of a stream without its end */
};

extern const char *const auth_names[AUTH_COUNT + 1]; /* for -o auth; ends with NULL */
extern const char *const auth_lines[AUTH_COUNT];

extern const struct protocol protocols[API_COUNT];      /* by enum http_api */
extern const char *const protocol_names[API_COUNT + 1]; /* for -o api; ends with NULL */

/* The row whose path ends a URL's path, the longest of them; NULL = none. */
const struct protocol *protocol_of_path(const char *path);

#endif
