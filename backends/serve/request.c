/* Reads the body of a completion request: one pass over the bytes that checks the whole of it as
 * JSON (RFC 8259) and keeps only what a paced answer needs. No tree is built, so a hostile 32 MiB
 * body costs its own length and nothing more. It does not tokenize: see serve.h for how input
 * tokens count. */
#include "backends/serve/reader.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* What the request said beyond struct serve_request; checked together at the end. */
struct seen {
    bool prompt, messages, stream_options;
    int64_t prompt_tokens, max_tokens, max_completion_tokens, n;
};

struct body {
    struct reader s;
    struct seen seen;
};

int serve_error_set(struct serve_error *err, int status, const char *param, const char *fmt, ...) {
    *err = (struct serve_error){.status = status};
    err->type = status == 400   ? "BadRequestError"
                : status == 404 ? "NotFoundError"
                : status == 405 ? "Method Not Allowed"
                : status == 413 ? "Request Entity Too Large"
                : status == 503 ? "ServiceUnavailableError"
                                : "InternalServerError";
    snprintf(err->param, sizeof err->param, "%s", param ? param : "");
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    return -1;
}

/* ---- the members we read; each is at the first byte of its value ---- */

static int64_t tokens_of_bytes(uint64_t bytes) {
    uint64_t t = (bytes + SERVE_PIECE_BYTES - 1) / SERVE_PIECE_BYTES;
    return t ? (int64_t)t : 1;
}

static void hash_begin(struct reader *s, size_t token_bytes) {
    if (s->hash)
        prompt_hash_begin(s->hash, s->hash->sessions, token_bytes);
}

static int read_bool(struct reader *s, void *field) {
    bool v = reader_at(s, 't');
    if (!v && !reader_at(s, 'f'))
        return reader_mistyped(s, "a boolean");
    if (reader_skip(s))
        return -1;
    *(bool *)field = v;
    return 0;
}

static int read_integer(struct reader *s, void *field) {
    const char *from = s->p;
    bool integer = false;
    int64_t v;
    if (!reader_at_number(s))
        return reader_mistyped(s, "an integer");
    if (reader_number(s, &integer, &v))
        return -1;
    if (!integer) {
        s->p = from;
        return reader_mistyped(s, "an integer");
    }
    *(int64_t *)field = v;
    return 0;
}

static int read_model(struct reader *s, void *field) {
    struct text t = {.to = field, .to_bytes = SERVE_MODEL_MAX};
    if (!reader_at(s, '"'))
        return reader_mistyped(s, "a string");
    if (reader_string(s, &t))
        return -1;
    if (t.bytes >= SERVE_MODEL_MAX)
        return serve_error_set(s->err, 404, "model",
                               "the model does not exist: its name is longer than %d bytes",
                               SERVE_MODEL_MAX - 1);
    return 0;
}

struct ids {
    int64_t n;
    bool nested; /* inside an array already */
    char kind;   /* of the first element: 'n'umber, 's'tring, 'a'rray */
    int64_t tokens;
};

/* A plain token id of at most nine digits: nearly all of them, read without the general number's
 * checks. */
static bool plain_id(struct reader *s, int64_t *v) {
    const char *p = s->p, *stop = s->end - p > 10 ? p + 10 : s->end;
    uint32_t n = 0;
    if (p == stop || *p < '1' || *p > '9')
        return false;
    while (p < stop && *p >= '0' && *p <= '9')
        n = n * 10 + (uint32_t)(*p++ - '0');
    if (p == stop || (*p != ',' && *p != ']'))
        return false;
    s->p = p;
    *v = n;
    return true;
}

static int prompt_element(struct reader *s, size_t i, void *ctx) {
    struct ids *ids = ctx;
    char kind = reader_at_number(s) ? 'n' : reader_at(s, '"') ? 's' : reader_at(s, '[') ? 'a' : '?';
    if (i == 0)
        ids->kind = kind;
    if (kind == '?' || kind != ids->kind || (ids->nested && kind != 'n'))
        return reader_mistyped(s, ids->nested || ids->kind == 'n'
                                      ? "a token id"
                                      : "a string or an array of token ids");
    if (kind == 'n') {
        int64_t v = 0;
        const char *from = s->p;
        if (!plain_id(s, &v) && read_integer(s, &v))
            return -1;
        if (v < 0) {
            s->p = from;
            return reader_mistyped(s, "a token id >= 0");
        }
        ids->tokens = ++ids->n;
        if (s->hash)
            prompt_hash_add(s->hash, (const char *)&v, sizeof v);
        return 0;
    }
    if (i > 0)
        return serve_error_set(s->err, 400, s->param,
                               "prompt: one prompt a request, found an array of several");
    if (kind == 's') {
        struct text t = {.hash = s->hash};
        hash_begin(s, SERVE_PIECE_BYTES);
        if (reader_string(s, &t))
            return -1;
        ids->tokens = tokens_of_bytes(t.bytes);
        return 0;
    }
    struct ids inner = {.nested = true};
    if (reader_array(s, prompt_element, &inner))
        return -1;
    ids->tokens = inner.tokens;
    return 0;
}

static int read_prompt(struct reader *s, void *field) {
    struct seen *seen = field;
    seen->prompt = true;
    hash_begin(s, reader_at(s, '"') ? SERVE_PIECE_BYTES : sizeof(int64_t));
    if (reader_at(s, '"')) {
        struct text t = {.hash = s->hash};
        if (reader_string(s, &t))
            return -1;
        seen->prompt_tokens = tokens_of_bytes(t.bytes);
        return 0;
    }
    struct ids ids = {0};
    if (!reader_at(s, '['))
        return reader_mistyped(s, "a string or an array");
    if (reader_array(s, prompt_element, &ids))
        return -1;
    if (ids.tokens == 0)
        return serve_error_set(s->err, 400, s->param, "prompt: expected at least one token");
    seen->prompt_tokens = ids.tokens;
    return 0;
}

struct message {
    bool role;
    uint64_t bytes;
};
struct part {
    char type[16];
    bool text;
    uint64_t bytes;
};

static int part_member(struct reader *s, const char *name, void *ctx) {
    struct part *part = ctx;
    struct text t = {0};
    bool type = !strcmp(name, "type"), text = !strcmp(name, "text");
    if (!type && !text)
        return reader_skip(s);
    if (!reader_at(s, '"'))
        return reader_mistyped(s, "a string");
    if (type)
        t = (struct text){.to = part->type, .to_bytes = sizeof part->type};
    else
        t.hash = s->hash;
    if (reader_string(s, &t))
        return -1;
    if (text)
        part->text = true, part->bytes = t.bytes;
    return 0;
}

static int content_part(struct reader *s, size_t i, void *ctx) {
    (void)i;
    struct message *m = ctx;
    struct part part = {0};
    if (!reader_at(s, '{'))
        return reader_mistyped(s, "an object with type and text");
    const char *from = s->p;
    if (reader_object(s, part_member, &part))
        return -1;
    if (!part.text || (part.type[0] && strcmp(part.type, "text"))) {
        s->p = from;
        return reader_mistyped(s, "a part of type text");
    }
    m->bytes += part.bytes;
    return 0;
}

static int message_member(struct reader *s, const char *name, void *ctx) {
    struct message *m = ctx;
    struct text t = {0};
    if (!strcmp(name, "role")) {
        m->role = true;
        if (!reader_at(s, '"'))
            return reader_mistyped(s, "a role");
        return reader_string(s, &t);
    }
    if (strcmp(name, "content") || reader_at(s, 'n'))
        return reader_skip(s);
    m->bytes = 0; /* of two members of one name the last counts */
    if (reader_at(s, '['))
        return reader_array(s, content_part, m);
    if (!reader_at(s, '"'))
        return reader_mistyped(s, "a string or an array of parts as content");
    t.hash = s->hash;
    if (reader_string(s, &t))
        return -1;
    m->bytes = t.bytes;
    return 0;
}

struct conversation {
    size_t messages;
    uint64_t bytes;
};

static int one_message(struct reader *s, size_t i, void *ctx) {
    struct conversation *c = ctx;
    struct message m = {0};
    if (!reader_at(s, '{'))
        return reader_mistyped(s, "an object with role and content");
    const char *from = s->p;
    if (reader_object(s, message_member, &m))
        return -1;
    if (!m.role) {
        s->p = from;
        return reader_mistyped(s, "an object with role");
    }
    c->messages = i + 1;
    c->bytes += m.bytes;
    return 0;
}

static int read_messages(struct reader *s, void *field) {
    struct seen *seen = field;
    struct conversation c = {0};
    seen->messages = true;
    hash_begin(s, SERVE_PIECE_BYTES);
    if (!reader_at(s, '['))
        return reader_mistyped(s, "an array of messages");
    const char *from = s->p;
    if (reader_array(s, one_message, &c))
        return -1;
    if (!c.messages) {
        s->p = from;
        return reader_mistyped(s, "at least one message");
    }
    seen->prompt_tokens = tokens_of_bytes(c.bytes);
    return 0;
}

static int stream_option(struct reader *s, const char *name, void *ctx) {
    (void)ctx;
    if (reader_at(s, 'n'))
        return reader_skip(s);
    if (!strcmp(name, "include_usage"))
        return read_bool(s, &s->out->include_usage);
    if (!strcmp(name, "continuous_usage_stats"))
        return read_bool(s, &s->out->continuous_usage);
    return reader_skip(s);
}

static int read_stream_options(struct reader *s, void *field) {
    *(bool *)field = true;
    if (!reader_at(s, '{'))
        return reader_mistyped(s, "an object");
    return reader_object(s, stream_option, NULL);
}

#define IN_REQUEST(m) (offsetof(struct serve_request, m)), false
#define IN_SEEN(m) (offsetof(struct seen, m)), true
enum { BOTH = -1 };
static const struct field {
    const char *name;
    int endpoint; /* BOTH or the only one that has it */
    int (*read)(struct reader *s, void *field);
    size_t offset;
    bool in_seen;
} fields[] = {
    {"ignore_eos", BOTH, read_bool, IN_REQUEST(ignore_eos)},
    {"max_completion_tokens", SERVE_CHAT, read_integer, IN_SEEN(max_completion_tokens)},
    {"max_tokens", BOTH, read_integer, IN_SEEN(max_tokens)},
    {"messages", SERVE_CHAT, read_messages, 0, true},
    {"min_tokens", BOTH, read_integer, IN_REQUEST(min_tokens)},
    {"model", BOTH, read_model, IN_REQUEST(model)},
    {"n", BOTH, read_integer, IN_SEEN(n)},
    {"prompt", SERVE_COMPLETIONS, read_prompt, 0, true},
    {"stream", BOTH, read_bool, IN_REQUEST(stream)},
    {"stream_options", BOTH, read_stream_options, IN_SEEN(stream_options)},
};

static int top_member(struct reader *s, const char *name, void *ctx) {
    struct body *b = ctx;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const struct field *f = &fields[i];
        if (strcmp(name, f->name) || (f->endpoint != BOTH && f->endpoint != (int)s->out->endpoint))
            continue;
        if (reader_at(s, 'n')) /* null is absence */
            break;
        s->param = f->name;
        return f->read(s, (char *)(f->in_seen ? (void *)&b->seen : (void *)s->out) + f->offset);
    }
    return reader_skip(s);
}

static int check(const struct seen *seen, const struct serve_limits *limits,
                 struct serve_request *r, struct serve_error *err) {
    bool chat = r->endpoint == SERVE_CHAT;
    if (chat ? !seen->messages : !seen->prompt)
        return serve_error_set(err, 400, chat ? "messages" : "prompt", "%s: missing",
                               chat ? "messages" : "prompt");
    if (r->model[0] && strcmp(r->model, limits->model_id) &&
        (!limits->model_name[0] || strcmp(r->model, limits->model_name)))
        return serve_error_set(err, 404, "model", "the model '%s' does not exist, this is '%s'",
                               r->model, limits->model_id);
    if (seen->n != 1)
        return serve_error_set(err, 400, "n", "n: expected 1, found %" PRId64, seen->n);
    if (seen->stream_options && !r->stream)
        return serve_error_set(err, 400, "stream_options",
                               "stream_options: allowed only when stream is true");
    r->continuous_usage = r->continuous_usage && r->include_usage;
    r->isl = seen->prompt_tokens;
    bool modern = seen->max_completion_tokens != INT64_MIN;
    const char *name = modern ? "max_completion_tokens" : "max_tokens";
    r->osl = modern ? seen->max_completion_tokens : seen->max_tokens;
    if (r->osl == INT64_MIN) {
        r->osl = chat ? SERVE_DEFAULT_CHAT_TOKENS : SERVE_DEFAULT_COMPLETION_TOKENS;
        if (r->osl < r->min_tokens)
            r->osl = r->min_tokens;
        if (limits->max_context && r->isl < limits->max_context &&
            r->osl > limits->max_context - r->isl && r->min_tokens <= limits->max_context - r->isl)
            r->osl = limits->max_context - r->isl;
    }
    if (r->osl < 1)
        return serve_error_set(err, 400, name, "%s: expected at least 1, found %" PRId64, name,
                               r->osl);
    if (r->min_tokens < 0 || r->min_tokens > r->osl)
        return serve_error_set(err, 400, "min_tokens",
                               "min_tokens: expected 0 to %s (%" PRId64 "), found %" PRId64, name,
                               r->osl, r->min_tokens);
    if (!limits->max_context && r->osl > SERVE_OSL_MAX)
        return serve_error_set(err, 400, name, "%s: expected at most %d, found %" PRId64, name,
                               SERVE_OSL_MAX, r->osl);
    if (limits->max_context && r->osl > limits->max_context - r->isl)
        return serve_error_set(err, 400, name,
                               "the model's context is %" PRId64 " tokens, but %" PRId64
                               " were requested (%" PRId64 " of input, %" PRId64 " of output)",
                               limits->max_context,
                               r->osl > INT64_MAX - r->isl ? INT64_MAX : r->isl + r->osl, r->isl,
                               r->osl);
    return 0;
}

int serve_request_parse(const char *body, size_t n, enum serve_endpoint endpoint,
                        const struct serve_limits *limits, struct serve_request *out,
                        struct serve_error *err) {
    struct prompt_hash hash;
    *out = (struct serve_request){.endpoint = endpoint, .session = REQUEST_NO_SESSION};
    prompt_hash_begin(&hash, limits->sessions, SERVE_PIECE_BYTES);
    struct body b = {
        .s = {.start = body,
              .p = body,
              .end = body + n,
              .err = err,
              .param = "",
              .out = out,
              .hash = limits->sessions ? &hash : NULL},
        .seen = {.n = 1, .max_tokens = INT64_MIN, .max_completion_tokens = INT64_MIN},
    };
    struct reader *s = &b.s;
    reader_blanks(s);
    if (!reader_at(s, '{')) {
        if (s->p == s->end || (!reader_at(s, '[') && !reader_at(s, '"') && !reader_at_number(s)))
            return reader_malformed(s, s->p, "'{'");
        return serve_error_set(err, 400, NULL, "the body: expected an object, found %s",
                               reader_kind(s));
    }
    if (reader_object(s, top_member, &b))
        return -1;
    reader_blanks(s);
    if (s->p != s->end)
        return reader_malformed(s, s->p, "the end of the body");
    if (check(&b.seen, limits, out, err))
        return -1;
    if (limits->sessions)
        sessions_settle(&hash, out);
    return 0;
}
