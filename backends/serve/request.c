/* Reads the body of a completion request: one pass over the bytes that checks the whole of it as JSON
 * (RFC 8259) and keeps only what a paced answer needs. No tree is built, so a hostile 32 MiB body costs
 * its own length and nothing more. It does not tokenize: see serve.h for how input tokens count. */
#include "backends/serve/serve_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct scan {
    const char *start, *p, *end;
    int depth;
    struct serve_error *err;
    const char *param; /* the top-level member being read, for messages */
    struct serve_request *out;
    struct prompt_hash *hash; /* NULL = not wanted */
};

/* What the request said beyond struct serve_request; checked together at the end. */
struct seen {
    bool prompt, messages, stream_options;
    int64_t prompt_tokens, max_tokens, max_completion_tokens, n;
};

struct body {
    struct scan s;
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

static void place(const struct scan *s, const char *at, int64_t *line, int64_t *column) {
    const char *line_start = s->start;
    *line = 1;
    for (const char *q = s->start; q < at; q++)
        if (*q == '\n') {
            ++*line;
            line_start = q + 1;
        }
    *column = at - line_start + 1;
}

static int malformed(struct scan *s, const char *at, const char *expected) {
    int64_t line, column;
    place(s, at, &line, &column);
    char found[24] = "the end of the body";
    if (at < s->end)
        snprintf(found, sizeof found, *at > 0x20 && *at < 0x7f ? "'%c'" : "byte 0x%02x",
                 (unsigned char)*at);
    return serve_error_set(s->err, 400, NULL,
                           "the body is not valid JSON at line %" PRId64 " column %" PRId64
                           " (byte %td): expected %s, found %s",
                           line, column, at - s->start, expected, found);
}

static const char *kind_at(const struct scan *s) {
    if (s->p == s->end)
        return "nothing";
    switch (*s->p) {
    case '{':
        return "an object";
    case '[':
        return "an array";
    case '"':
        return "a string";
    case 't':
    case 'f':
        return "a boolean";
    case 'n':
        return "null";
    default:
        return "a number";
    }
}

static int mistyped(struct scan *s, const char *expected) {
    if (s->p == s->end || !strchr("{[\"tfn-0123456789", *s->p) || !*s->p)
        return malformed(s, s->p, "a value");
    int64_t line, column;
    place(s, s->p, &line, &column);
    return serve_error_set(s->err, 400, s->param,
                           "%s: expected %s, found %s at line %" PRId64 " column %" PRId64,
                           s->param, expected, kind_at(s), line, column);
}

static void skip_blanks(struct scan *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'))
        s->p++;
}

static bool at(const struct scan *s, char c) {
    return s->p < s->end && *s->p == c;
}

/* Length of the well-formed UTF-8 sequence at p (RFC 3629 table), 0 when there is none. */
static size_t utf8_length(const char *p, const char *end) {
    const unsigned char *u = (const unsigned char *)p;
    size_t left = (size_t)(end - p);
    unsigned char lo = 0x80, hi = 0xbf;
    size_t n;
    if (u[0] >= 0xc2 && u[0] <= 0xdf)
        n = 2;
    else if (u[0] >= 0xe0 && u[0] <= 0xef)
        n = 3, lo = u[0] == 0xe0 ? 0xa0 : 0x80, hi = u[0] == 0xed ? 0x9f : 0xbf;
    else if (u[0] >= 0xf0 && u[0] <= 0xf4)
        n = 4, lo = u[0] == 0xf0 ? 0x90 : 0x80, hi = u[0] == 0xf4 ? 0x8f : 0xbf;
    else
        return 0;
    if (left < n || u[1] < lo || u[1] > hi)
        return 0;
    for (size_t i = 2; i < n; i++)
        if (u[i] < 0x80 || u[i] > 0xbf)
            return 0;
    return n;
}

static int hex4(struct scan *s, unsigned *v) {
    *v = 0;
    for (int i = 0; i < 4; i++, s->p++) {
        char c = s->p < s->end ? *s->p : '\0';
        unsigned d = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
                                            : 16;
        if (d == 16)
            return malformed(s, s->p, "four hexadecimal digits after \\u");
        *v = *v << 4 | d;
    }
    return 0;
}

/* A string's bytes as decoded: counted, and the first of them copied when to is given (NUL-ended;
 * what does not fit is cut, *bytes tells). */
struct text {
    char *to;
    size_t to_bytes, bytes;
    struct prompt_hash *hash;
};

static void text_add(struct text *t, const char *p, size_t n) {
    if (t->hash)
        prompt_hash_add(t->hash, p, n);
    if (t->to)
        for (size_t i = 0; i < n && t->bytes + i + 1 < t->to_bytes; i++) {
            t->to[t->bytes + i] = p[i];
            t->to[t->bytes + i + 1] = '\0';
        }
    t->bytes += n;
}

static int escape(struct scan *s, struct text *t) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *begin = s->p++; /* the backslash */
    const char *f = s->p < s->end && *s->p ? strchr(from, *s->p) : NULL;
    if (f) {
        text_add(t, &to[f - from], 1);
        s->p++;
        return 0;
    }
    if (!at(s, 'u'))
        return malformed(s, s->p, "an escape character");
    s->p++;
    unsigned u, low;
    if (hex4(s, &u))
        return -1;
    if (u >= 0xdc00 && u <= 0xdfff)
        return malformed(s, begin, "a high surrogate before a low one");
    if (u >= 0xd800 && u <= 0xdbff) {
        if (s->end - s->p < 2 || s->p[0] != '\\' || s->p[1] != 'u')
            return malformed(s, s->p, "a low surrogate after a high one");
        const char *second = s->p;
        s->p += 2;
        if (hex4(s, &low))
            return -1;
        if (low < 0xdc00 || low > 0xdfff)
            return malformed(s, second, "a low surrogate after a high one");
        u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
    }
    char b[4];
    size_t n;
    if (u < 0x80)
        n = 1, b[0] = (char)u;
    else if (u < 0x800)
        n = 2, b[0] = (char)(0xc0 | u >> 6), b[1] = (char)(0x80 | (u & 0x3f));
    else if (u < 0x10000)
        n = 3, b[0] = (char)(0xe0 | u >> 12), b[1] = (char)(0x80 | (u >> 6 & 0x3f)),
        b[2] = (char)(0x80 | (u & 0x3f));
    else
        n = 4, b[0] = (char)(0xf0 | u >> 18), b[1] = (char)(0x80 | (u >> 12 & 0x3f)),
        b[2] = (char)(0x80 | (u >> 6 & 0x3f)), b[3] = (char)(0x80 | (u & 0x3f));
    text_add(t, b, n);
    return 0;
}

static int string(struct scan *s, struct text *t) {
    t->bytes = 0;
    if (t->to)
        t->to[0] = '\0';
    if (!at(s, '"'))
        return malformed(s, s->p, "a string");
    s->p++;
    for (;;) {
        const char *q = s->p;
        while (q < s->end && (unsigned char)*q >= 0x20 && (unsigned char)*q < 0x80 && *q != '"' &&
               *q != '\\')
            q++;
        text_add(t, s->p, (size_t)(q - s->p));
        s->p = q;
        if (q == s->end)
            return malformed(s, q, "'\"' at the end of a string");
        if (*q == '"') {
            s->p++;
            return 0;
        }
        if (*q == '\\') {
            if (escape(s, t))
                return -1;
            continue;
        }
        if ((unsigned char)*q < 0x20)
            return malformed(s, q, "an escaped control character");
        size_t n = utf8_length(q, s->end);
        if (!n)
            return malformed(s, q, "valid UTF-8");
        text_add(t, q, n);
        s->p += n;
    }
}

static const char *digits(struct scan *s) {
    const char *from = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
        s->p++;
    return from;
}

/* *integer: it is one; its value saturates. */
static int number(struct scan *s, bool *integer, int64_t *value) {
    bool minus = at(s, '-');
    if (minus)
        s->p++;
    const char *from = digits(s);
    if (s->p == from)
        return malformed(s, s->p, minus ? "a digit" : "a value");
    if (*from == '0' && s->p - from > 1)
        return malformed(s, from + 1, "no digit after a leading zero");
    int64_t v = 0;
    for (const char *q = from; q < s->p; q++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *q - '0', &v)) {
            v = INT64_MAX;
            break;
        }
    *value = minus ? -v : v;
    *integer = true;
    if (at(s, '.')) {
        s->p++;
        *integer = false;
        if (digits(s) == s->p)
            return malformed(s, s->p, "a digit after the decimal point");
    }
    if (at(s, 'e') || at(s, 'E')) {
        s->p++;
        *integer = false;
        if (at(s, '+') || at(s, '-'))
            s->p++;
        if (digits(s) == s->p)
            return malformed(s, s->p, "a digit in the exponent");
    }
    return 0;
}

static int literal(struct scan *s, const char *word) {
    for (const char *w = word; *w; w++, s->p++)
        if (!at(s, *w))
            return malformed(s, s->p, word);
    return 0;
}

typedef int element_fn(struct scan *s, size_t i, void *ctx);
typedef int member_fn(struct scan *s, const char *name, void *ctx);

static int deeper(struct scan *s) {
    if (++s->depth > SERVE_JSON_DEPTH_MAX) {
        int64_t line, column;
        place(s, s->p, &line, &column);
        return serve_error_set(s->err, 400, NULL,
                               "the body nests deeper than %d levels at line %" PRId64
                               " column %" PRId64,
                               SERVE_JSON_DEPTH_MAX, line, column);
    }
    return 0;
}

/* Each calls back at the first byte of every element or value; the callback reads exactly it. */
static int array(struct scan *s, element_fn *element, void *ctx) {
    if (deeper(s))
        return -1;
    s->p++; /* '[' */
    skip_blanks(s);
    if (at(s, ']')) {
        s->p++;
        s->depth--;
        return 0;
    }
    for (size_t i = 0;; i++) {
        skip_blanks(s);
        if (element(s, i, ctx))
            return -1;
        skip_blanks(s);
        if (at(s, ',')) {
            s->p++;
            continue;
        }
        if (!at(s, ']'))
            return malformed(s, s->p, "',' or ']' in an array");
        s->p++;
        s->depth--;
        return 0;
    }
}

static int object(struct scan *s, member_fn *member, void *ctx) {
    if (deeper(s))
        return -1;
    s->p++; /* '{' */
    skip_blanks(s);
    if (at(s, '}')) {
        s->p++;
        s->depth--;
        return 0;
    }
    for (;;) {
        skip_blanks(s);
        char name[64];
        struct text t = {.to = name, .to_bytes = sizeof name};
        if (!at(s, '"'))
            return malformed(s, s->p, "a member name");
        if (string(s, &t))
            return -1;
        if (t.bytes >= sizeof name || memchr(name, '\0', t.bytes))
            name[0] = '\0'; /* none of ours */
        skip_blanks(s);
        if (!at(s, ':'))
            return malformed(s, s->p, "':' after a member name");
        s->p++;
        skip_blanks(s);
        if (member(s, name, ctx))
            return -1;
        skip_blanks(s);
        if (at(s, ',')) {
            s->p++;
            continue;
        }
        if (!at(s, '}'))
            return malformed(s, s->p, "',' or '}' in an object");
        s->p++;
        s->depth--;
        return 0;
    }
}

static int skip_value(struct scan *s);
static int skip_element(struct scan *s, size_t i, void *ctx) {
    (void)i, (void)ctx;
    return skip_value(s);
}
static int skip_member(struct scan *s, const char *name, void *ctx) {
    (void)name, (void)ctx;
    return skip_value(s);
}

static int skip_value(struct scan *s) {
    if (s->p == s->end)
        return malformed(s, s->p, "a value");
    struct text t = {0};
    bool integer;
    int64_t v;
    switch (*s->p) {
    case '{':
        return object(s, skip_member, NULL);
    case '[':
        return array(s, skip_element, NULL);
    case '"':
        return string(s, &t);
    case 't':
        return literal(s, "true");
    case 'f':
        return literal(s, "false");
    case 'n':
        return literal(s, "null");
    default:
        return number(s, &integer, &v);
    }
}

static bool at_number(const struct scan *s) {
    return s->p < s->end && (*s->p == '-' || (*s->p >= '0' && *s->p <= '9'));
}

/* ---- the members we read; each is at the first byte of its value ---- */

static int64_t tokens_of_bytes(uint64_t bytes) {
    uint64_t t = (bytes + SERVE_PIECE_BYTES - 1) / SERVE_PIECE_BYTES;
    return t ? (int64_t)t : 1;
}

static void hash_begin(struct scan *s, size_t token_bytes) {
    if (s->hash)
        prompt_hash_begin(s->hash, s->hash->sessions, token_bytes);
}

static int read_bool(struct scan *s, void *field) {
    bool v = at(s, 't');
    if (!v && !at(s, 'f'))
        return mistyped(s, "a boolean");
    if (skip_value(s))
        return -1;
    *(bool *)field = v;
    return 0;
}

static int read_integer(struct scan *s, void *field) {
    const char *from = s->p;
    bool integer = false;
    int64_t v;
    if (!at_number(s))
        return mistyped(s, "an integer");
    if (number(s, &integer, &v))
        return -1;
    if (!integer) {
        s->p = from;
        return mistyped(s, "an integer");
    }
    *(int64_t *)field = v;
    return 0;
}

static int read_model(struct scan *s, void *field) {
    struct text t = {.to = field, .to_bytes = SERVE_MODEL_MAX};
    if (!at(s, '"'))
        return mistyped(s, "a string");
    if (string(s, &t))
        return -1;
    if (t.bytes >= SERVE_MODEL_MAX)
        return serve_error_set(s->err, 404, "model", "the model does not exist: its name is longer than %d bytes",
                               SERVE_MODEL_MAX - 1);
    return 0;
}

struct ids {
    int64_t n;
    bool nested; /* inside an array already */
    char kind;   /* of the first element: 'n'umber, 's'tring, 'a'rray */
    int64_t tokens;
};

/* A plain token id of at most nine digits: nearly all of them, read without the general number's checks. */
static bool plain_id(struct scan *s, int64_t *v) {
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

static int prompt_element(struct scan *s, size_t i, void *ctx) {
    struct ids *ids = ctx;
    char kind = at_number(s) ? 'n' : at(s, '"') ? 's' : at(s, '[') ? 'a' : '?';
    if (i == 0)
        ids->kind = kind;
    if (kind == '?' || kind != ids->kind || (ids->nested && kind != 'n'))
        return mistyped(s, ids->nested || ids->kind == 'n' ? "a token id"
                                                           : "a string or an array of token ids");
    if (kind == 'n') {
        int64_t v = 0;
        const char *from = s->p;
        if (!plain_id(s, &v) && read_integer(s, &v))
            return -1;
        if (v < 0) {
            s->p = from;
            return mistyped(s, "a token id >= 0");
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
        if (string(s, &t))
            return -1;
        ids->tokens = tokens_of_bytes(t.bytes);
        return 0;
    }
    struct ids inner = {.nested = true};
    if (array(s, prompt_element, &inner))
        return -1;
    ids->tokens = inner.tokens;
    return 0;
}

static int read_prompt(struct scan *s, void *field) {
    struct seen *seen = field;
    seen->prompt = true;
    hash_begin(s, at(s, '"') ? SERVE_PIECE_BYTES : sizeof(int64_t));
    if (at(s, '"')) {
        struct text t = {.hash = s->hash};
        if (string(s, &t))
            return -1;
        seen->prompt_tokens = tokens_of_bytes(t.bytes);
        return 0;
    }
    struct ids ids = {0};
    if (!at(s, '['))
        return mistyped(s, "a string or an array");
    if (array(s, prompt_element, &ids))
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

static int part_member(struct scan *s, const char *name, void *ctx) {
    struct part *part = ctx;
    struct text t = {0};
    bool type = !strcmp(name, "type"), text = !strcmp(name, "text");
    if (!type && !text)
        return skip_value(s);
    if (!at(s, '"'))
        return mistyped(s, "a string");
    if (type)
        t = (struct text){.to = part->type, .to_bytes = sizeof part->type};
    else
        t.hash = s->hash;
    if (string(s, &t))
        return -1;
    if (text)
        part->text = true, part->bytes = t.bytes;
    return 0;
}

static int content_part(struct scan *s, size_t i, void *ctx) {
    (void)i;
    struct message *m = ctx;
    struct part part = {0};
    if (!at(s, '{'))
        return mistyped(s, "an object with type and text");
    const char *from = s->p;
    if (object(s, part_member, &part))
        return -1;
    if (!part.text || (part.type[0] && strcmp(part.type, "text"))) {
        s->p = from;
        return mistyped(s, "a part of type text");
    }
    m->bytes += part.bytes;
    return 0;
}

static int message_member(struct scan *s, const char *name, void *ctx) {
    struct message *m = ctx;
    struct text t = {0};
    if (!strcmp(name, "role")) {
        m->role = true;
        if (!at(s, '"'))
            return mistyped(s, "a role");
        return string(s, &t);
    }
    if (strcmp(name, "content") || at(s, 'n'))
        return skip_value(s);
    m->bytes = 0; /* of two members of one name the last counts */
    if (at(s, '['))
        return array(s, content_part, m);
    if (!at(s, '"'))
        return mistyped(s, "a string or an array of parts as content");
    t.hash = s->hash;
    if (string(s, &t))
        return -1;
    m->bytes = t.bytes;
    return 0;
}

static int one_message(struct scan *s, size_t i, void *ctx) {
    (void)i;
    uint64_t *bytes = ctx;
    struct message m = {0};
    if (!at(s, '{'))
        return mistyped(s, "an object with role and content");
    const char *from = s->p;
    if (object(s, message_member, &m))
        return -1;
    if (!m.role) {
        s->p = from;
        return mistyped(s, "an object with role");
    }
    *bytes += m.bytes;
    return 0;
}

static int read_messages(struct scan *s, void *field) {
    struct seen *seen = field;
    uint64_t bytes = 0;
    seen->messages = true;
    hash_begin(s, SERVE_PIECE_BYTES);
    if (!at(s, '['))
        return mistyped(s, "an array of messages");
    const char *from = s->p;
    if (array(s, one_message, &bytes))
        return -1;
    if (s->p - from < 4) {
        s->p = from;
        return mistyped(s, "at least one message");
    }
    seen->prompt_tokens = tokens_of_bytes(bytes);
    return 0;
}

static int stream_option(struct scan *s, const char *name, void *ctx) {
    (void)ctx;
    if (at(s, 'n'))
        return skip_value(s);
    if (!strcmp(name, "include_usage"))
        return read_bool(s, &s->out->include_usage);
    if (!strcmp(name, "continuous_usage_stats"))
        return read_bool(s, &s->out->continuous_usage);
    return skip_value(s);
}

static int read_stream_options(struct scan *s, void *field) {
    *(bool *)field = true;
    if (!at(s, '{'))
        return mistyped(s, "an object");
    return object(s, stream_option, NULL);
}

#define IN_REQUEST(m) (offsetof(struct serve_request, m)), false
#define IN_SEEN(m) (offsetof(struct seen, m)), true
enum { BOTH = -1 };
static const struct field {
    const char *name;
    int endpoint; /* BOTH or the only one that has it */
    int (*read)(struct scan *s, void *field);
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

static int top_member(struct scan *s, const char *name, void *ctx) {
    struct body *b = ctx;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const struct field *f = &fields[i];
        if (strcmp(name, f->name) || (f->endpoint != BOTH && f->endpoint != (int)s->out->endpoint))
            continue;
        if (at(s, 'n')) /* null is absence */
            break;
        s->param = f->name;
        return f->read(s, (char *)(f->in_seen ? (void *)&b->seen : (void *)s->out) + f->offset);
    }
    return skip_value(s);
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
        .s = {.start = body, .p = body, .end = body + n, .err = err, .param = "", .out = out,
              .hash = limits->sessions ? &hash : NULL},
        .seen = {.n = 1, .max_tokens = INT64_MIN, .max_completion_tokens = INT64_MIN},
    };
    struct scan *s = &b.s;
    skip_blanks(s);
    if (!at(s, '{')) {
        if (s->p == s->end || (!at(s, '[') && !at(s, '"') && !at_number(s)))
            return malformed(s, s->p, "'{'");
        return serve_error_set(err, 400, NULL, "the body: expected an object, found %s", kind_at(s));
    }
    if (object(s, top_member, &b))
        return -1;
    skip_blanks(s);
    if (s->p != s->end)
        return malformed(s, s->p, "the end of the body");
    if (check(&b.seen, limits, out, err))
        return -1;
    if (limits->sessions)
        sessions_settle(&hash, out);
    return 0;
}
