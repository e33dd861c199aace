/* The key scan: one pass, no allocation, no tree. Here: reading of values, and the events of chat and
 * text completions; events of other dialects are in scan_typed.c.
 *
 * Each object whose keys matter is a table of rows; a row names a key and the function that reads
 * its value. All else is skipped with the grammar checked. */
#include "backends/http/scan_internal.h"

#include <string.h>

enum { SKIP_DEPTH_MAX = 256 };

bool scan_slow(struct scanner *s) {
    s->failure = SCAN_SLOW;
    return false;
}

static bool malformed(struct scanner *s) {
    s->failure = SCAN_MALFORMED;
    return false;
}

static void skip_space(struct scanner *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r'))
        s->p++;
}

/* The next byte that is no space, or 0 at the end. */
static char peek(struct scanner *s) {
    skip_space(s);
    return s->p < s->end ? *s->p : '\0';
}

char scan_peek(struct scanner *s) {
    return peek(s);
}

static bool take(struct scanner *s, char c) {
    if (peek(s) != c)
        return malformed(s);
    s->p++;
    return true;
}

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool skip_escape(struct scanner *s) {
    const char *p = s->p + 1; /* past the backslash */
    if (p == s->end)
        return malformed(s);
    if (*p == 'u') {
        if (s->end - p < 5)
            return malformed(s);
        for (int i = 1; i <= 4; i++)
            if (!is_hex(p[i]))
                return malformed(s);
        s->p = p + 5;
        return true;
    }
    if (!strchr("\"\\/bfnrt", *p) || !*p)
        return malformed(s);
    s->p = p + 1;
    return true;
}

/* Skips bytes that are plain string content, eight at a time: stops at a quote, a backslash, a
 * control character or the end. Borrow of the subtractions can only mark bytes above a true hit, so
 * the lowest marked byte is right (Hacker's Delight, section 6-1). */
static void skip_plain(struct scanner *s) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const uint64_t ones = UINT64_C(0x0101010101010101), high = ones << 7;
    while (s->end - s->p >= 8) {
        uint64_t w;
        memcpy(&w, s->p, 8);
        uint64_t quote = w ^ (ones * '"'), back = w ^ (ones * '\\');
        uint64_t hit =
            ((quote - ones) & ~quote) | ((back - ones) & ~back) | ((w - ones * 0x20) & ~w);
        hit &= high;
        if (hit) {
            s->p += __builtin_ctzll(hit) / 8;
            return;
        }
        s->p += 8;
    }
#endif
    while (s->p < s->end && *s->p != '"' && *s->p != '\\' && (unsigned char)*s->p >= 0x20)
        s->p++;
}

/* At an opening quote. The raw bytes between the quotes go to *raw; *escaped: it holds a backslash.
 */
bool scan_take_string(struct scanner *s, struct str *raw, bool *escaped) {
    if (!take(s, '"'))
        return false;
    raw->p = s->p;
    *escaped = false;
    for (;;) {
        skip_plain(s);
        if (s->p == s->end || (unsigned char)*s->p < 0x20)
            return malformed(s);
        if (*s->p == '"')
            break;
        *escaped = true;
        if (!skip_escape(s))
            return false;
    }
    raw->n = (size_t)(s->p - raw->p);
    s->p++;
    return true;
}

static bool is_digit(const struct scanner *s) {
    return s->p < s->end && *s->p >= '0' && *s->p <= '9';
}

static bool skip_digits(struct scanner *s) {
    if (!is_digit(s))
        return malformed(s);
    while (is_digit(s))
        s->p++;
    return true;
}

/* Numbers that a 64-bit integer or a double cannot hold are for the tree's parser to refuse: those
 * with more than 18 digits, or with an exponent of more than two digits. */
static bool skip_number(struct scanner *s, bool *integer) {
    const char *from = s->p, *exponent = NULL;
    *integer = true;
    if (*s->p == '-')
        s->p++;
    if (s->p < s->end && *s->p == '0')
        s->p++;
    else if (!skip_digits(s))
        return false;
    if (s->p < s->end && *s->p == '.') {
        *integer = false;
        s->p++;
        if (!skip_digits(s))
            return false;
    }
    if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
        *integer = false;
        s->p++;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
            s->p++;
        exponent = s->p;
        if (!skip_digits(s))
            return false;
    }
    if (exponent ? s->p - exponent > 2 || exponent - from > 150
                 : s->p - from > (*integer ? 18 : 150))
        return scan_slow(s);
    return true;
}

static bool skip_word(struct scanner *s, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n))
        return malformed(s);
    s->p += n;
    return true;
}

static bool skip_scalar(struct scanner *s) {
    struct str raw;
    bool flag;
    switch (peek(s)) {
    case '"':
        return scan_take_string(s, &raw, &flag);
    case 't':
        return skip_word(s, "true");
    case 'f':
        return skip_word(s, "false");
    case 'n':
        return skip_word(s, "null");
    default:
        return s->p < s->end ? skip_number(s, &flag) : malformed(s);
    }
}

static bool skip_key(struct scanner *s) {
    struct str raw;
    bool escaped;
    return scan_take_string(s, &raw, &escaped) && take(s, ':');
}

/* Any value, nested to SKIP_DEPTH_MAX, grammar checked, without recursion. */
bool scan_skip_value(struct scanner *s) {
    uint64_t is_object[SKIP_DEPTH_MAX / 64] = {0};
    int depth = 0;
    for (;;) {
        char c = peek(s);
        if (c == '{' || c == '[') {
            if (depth == SKIP_DEPTH_MAX)
                return scan_slow(s);
            uint64_t bit = UINT64_C(1) << (depth % 64);
            is_object[depth / 64] = (is_object[depth / 64] & ~bit) | (c == '{' ? bit : 0);
            depth++;
            s->p++;
            char closing = c == '{' ? '}' : ']';
            if (peek(s) != closing) {
                if (c == '{' && !skip_key(s))
                    return false;
                continue;
            }
            s->p++;
            depth--;
        } else if (!skip_scalar(s)) {
            return false;
        }
        /* a value has ended: close what ends with it, then go to the next member */
        for (;;) {
            if (depth == 0)
                return true;
            bool object = is_object[(depth - 1) / 64] >> ((depth - 1) % 64) & 1;
            c = peek(s);
            if (c == ',') {
                s->p++;
                if (object && !skip_key(s))
                    return false;
                break;
            }
            if (c != (object ? '}' : ']'))
                return malformed(s);
            s->p++;
            depth--;
        }
    }
}

static bool skip_null(struct scanner *s, bool *was_null) {
    *was_null = peek(s) == 'n';
    return *was_null ? skip_word(s, "null") : true;
}

/* An object whose keys are looked up in rows. An escaped key might be any of them, and a repeated
 * one replaces what came before: both are rare enough for the tree. */
bool scan_object(struct scanner *s, const struct key_row *rows) {
    if (peek(s) != '{')
        return scan_slow(s);
    s->p++;
    if (peek(s) == '}') {
        s->p++;
        return true;
    }
    unsigned seen = 0;
    for (;;) {
        struct str key;
        bool escaped;
        if (!scan_take_string(s, &key, &escaped) || !take(s, ':'))
            return false;
        if (escaped)
            return scan_slow(s);
        const struct key_row *row = rows;
        while (row->name && (row->length != key.n || memcmp(row->name, key.p, key.n)))
            row++;
        if (row->name) {
            unsigned bit = 1u << (row - rows);
            if (seen & bit)
                return scan_slow(s);
            seen |= bit;
        }
        if (!(row->name ? row->read(s) : scan_skip_value(s)))
            return false;
        char c = peek(s);
        if (c == '}') {
            s->p++;
            return true;
        }
        if (!take(s, ','))
            return false;
    }
}

bool scan_object_or_null(struct scanner *s, const struct key_row *rows) {
    bool was_null;
    if (!skip_null(s, &was_null))
        return false;
    return was_null || scan_object(s, rows);
}

bool scan_nonempty(struct scanner *s, bool *any) {
    bool was_null, escaped;
    struct str raw;
    if (!skip_null(s, &was_null) || was_null)
        return was_null;
    if (peek(s) != '"')
        return scan_slow(s);
    if (!scan_take_string(s, &raw, &escaped))
        return false;
    *any |= raw.n > 0;
    if (raw.n && s->out->ntexts < SCAN_TEXTS_MAX)
        s->out->text[s->out->ntexts++] = raw;
    else if (raw.n)
        s->out->text_lost = true;
    return true;
}

/* A string or null; flag is raised when it is not empty. */
static bool read_text(struct scanner *s, unsigned flag) {
    bool any = false;
    if (!scan_nonempty(s, &any))
        return false;
    if (any)
        s->out->flags |= flag;
    return true;
}

static bool read_content(struct scanner *s) {
    return read_text(s, SCAN_CONTENT);
}

static bool read_reasoning(struct scanner *s) {
    return read_text(s, SCAN_REASONING);
}

static bool read_refusal(struct scanner *s) {
    return read_text(s, SCAN_REFUSAL);
}

/* An array or null; *n: its elements. */
static bool count_array(struct scanner *s, int64_t *n) {
    bool was_null;
    *n = -1;
    if (!skip_null(s, &was_null) || was_null)
        return was_null;
    if (peek(s) != '[')
        return scan_slow(s);
    s->p++;
    *n = 0;
    if (peek(s) == ']') {
        s->p++;
        return true;
    }
    for (;;) {
        if (!scan_skip_value(s))
            return false;
        ++*n;
        if (peek(s) == ']') {
            s->p++;
            return true;
        }
        if (!take(s, ','))
            return false;
    }
}

bool scan_array_or_null(struct scanner *s, value_fn *element) {
    bool was_null;
    if (!skip_null(s, &was_null) || was_null)
        return was_null;
    if (peek(s) != '[')
        return scan_slow(s);
    s->p++;
    if (peek(s) == ']') {
        s->p++;
        return true;
    }
    for (;;) {
        if (!element(s))
            return false;
        if (peek(s) == ']') {
            s->p++;
            return true;
        }
        if (!take(s, ','))
            return false;
    }
}

static bool read_tool_calls(struct scanner *s) {
    int64_t n;
    if (!count_array(s, &n))
        return false;
    if (n > 0)
        s->out->flags |= SCAN_TOOL_CALL;
    return true;
}

static bool read_function_call(struct scanner *s) {
    bool was_null;
    if (!skip_null(s, &was_null) || was_null)
        return was_null;
    if (peek(s) != '{')
        return scan_slow(s);
    s->out->flags |= SCAN_TOOL_CALL;
    return scan_skip_value(s);
}

static bool read_token_ids(struct scanner *s) {
    int64_t n;
    if (!count_array(s, &n))
        return false;
    if (n >= 0)
        s->out->token_ids = (s->out->token_ids < 0 ? 0 : s->out->token_ids) + n;
    return true;
}

static bool read_finish_reason(struct scanner *s) {
    bool was_null, escaped;
    struct str raw;
    if (!skip_null(s, &was_null) || was_null)
        return was_null;
    if (peek(s) != '"')
        return scan_slow(s);
    if (!scan_take_string(s, &raw, &escaped))
        return false;
    if (escaped)
        return scan_slow(s);
    if (raw.n)
        s->out->flags |= SCAN_FINISH;
    if (raw.n == 6 && !memcmp(raw.p, "length", 6))
        s->out->flags |= SCAN_FINISH_LENGTH;
    return true;
}

/* Order: the frequent ones first. */
static const struct key_row delta_keys[] = {
    KEY("content", read_content),
    KEY("reasoning_content", read_reasoning),
    KEY("reasoning", read_reasoning),
    KEY("tool_calls", read_tool_calls),
    KEY("refusal", read_refusal),
    KEY("function_call", read_function_call),
    {0},
};

static bool read_delta(struct scanner *s) {
    return scan_object_or_null(s, delta_keys);
}

/* Which choice it is: 0 wherever an event has one alone. */
static bool read_index(struct scanner *s) {
    return scan_count(s, &s->index);
}

static const struct key_row choice_keys[] = {
    KEY("index", read_index),
    KEY("delta", read_delta),
    KEY("text", read_content),
    KEY("finish_reason", read_finish_reason),
    KEY("token_ids", read_token_ids),
    KEY("message", read_delta), /* of a response that is not a stream */
    {0},
};

static bool read_choices(struct scanner *s) {
    bool was_null;
    if (!skip_null(s, &was_null) || was_null)
        return was_null;
    if (peek(s) != '[')
        return scan_slow(s);
    s->p++;
    if (peek(s) == ']') {
        s->p++;
        return true;
    }
    s->out->flags |= SCAN_CHOICES;
    for (;;) {
        unsigned before = s->out->ntexts;
        s->index = 0;
        if (!scan_object(s, choice_keys))
            return false;
        if (s->index && s->out->ntexts > before) { /* its text is another answer's */
            s->out->ntexts = before;
            s->out->text_lost = true;
        }
        if (peek(s) == ']') {
            s->p++;
            return true;
        }
        if (!take(s, ','))
            return false;
    }
}

bool scan_count(struct scanner *s, int64_t *out) {
    bool was_null, integer;
    if (!skip_null(s, &was_null) || was_null)
        return was_null;
    char c = peek(s);
    if (c < '0' || c > '9')
        return scan_slow(s);
    const char *from = s->p;
    if (!skip_number(s, &integer))
        return false;
    if (!integer || s->p - from > 15)
        return scan_slow(s);
    int64_t v = 0;
    for (const char *p = from; p < s->p; p++)
        v = v * 10 + (*p - '0');
    *out = v;
    return true;
}

static bool read_prompt_tokens(struct scanner *s) {
    return scan_count(s, &s->out->prompt_tokens);
}

static bool read_completion_tokens(struct scanner *s) {
    return scan_count(s, &s->out->completion_tokens);
}

static bool read_cached_tokens(struct scanner *s) {
    return scan_count(s, &s->out->cached_tokens);
}

static bool read_reasoning_tokens(struct scanner *s) {
    return scan_count(s, &s->out->reasoning_tokens);
}

static bool read_prompt_details(struct scanner *s) {
    static const struct key_row keys[] = {KEY("cached_tokens", read_cached_tokens), {0}};
    return scan_object_or_null(s, keys);
}

static bool read_completion_details(struct scanner *s) {
    static const struct key_row keys[] = {KEY("reasoning_tokens", read_reasoning_tokens), {0}};
    return scan_object_or_null(s, keys);
}

static const struct key_row usage_keys[] = {
    KEY("completion_tokens", read_completion_tokens),
    KEY("prompt_tokens", read_prompt_tokens),
    KEY("prompt_tokens_details", read_prompt_details),
    KEY("completion_tokens_details", read_completion_details),
    {0},
};

static bool read_usage(struct scanner *s) {
    bool was_null;
    if (!skip_null(s, &was_null) || was_null)
        return was_null;
    s->out->flags |= SCAN_USAGE;
    return scan_object(s, usage_keys);
}

/* Truthy: a non-empty string, object or array, true, a number that is not zero. */
bool scan_error(struct scanner *s) {
    char c = peek(s);
    bool truthy;
    if (c == '{' || c == '[') {
        const char *from = s->p++;
        truthy = peek(s) != (c == '{' ? '}' : ']');
        s->p = from;
    } else if (c == '"') {
        truthy = s->end - s->p > 1 && s->p[1] != '"';
    } else if (c == 't') {
        truthy = true;
    } else if (c == 'f' || c == 'n') {
        truthy = false;
    } else {
        return scan_slow(s);
    }
    if (truthy)
        s->out->flags |= SCAN_ERROR;
    return scan_skip_value(s);
}

/* A string that is exactly "error" marks an error; other kinds of value mean nothing. */
bool scan_object_kind(struct scanner *s) {
    struct str raw;
    bool escaped;
    if (peek(s) != '"')
        return scan_skip_value(s);
    if (!scan_take_string(s, &raw, &escaped))
        return false;
    if (escaped)
        return scan_slow(s);
    if (raw.n == 5 && !memcmp(raw.p, "error", 5))
        s->out->flags |= SCAN_ERROR;
    return true;
}

static bool read_prefix(struct scanner *s, const char *prefix) {
    struct str raw;
    bool escaped;
    if (peek(s) != '"')
        return scan_skip_value(s);
    if (!scan_take_string(s, &raw, &escaped))
        return false;
    if (escaped)
        return scan_slow(s);
    size_t n = strlen(prefix);
    if (raw.n >= n && !memcmp(raw.p, prefix, n))
        s->out->flags |= SCAN_SIMULATED;
    return true;
}

static bool read_fingerprint(struct scanner *s) {
    return read_prefix(s, "assay-sim/");
}

bool scan_model(struct scanner *s) {
    return read_prefix(s, "sim/");
}

static const struct key_row top_keys[] = {
    KEY("choices", read_choices),
    KEY("object", scan_object_kind),
    KEY("model", scan_model),
    KEY("usage", read_usage),
    KEY("system_fingerprint", read_fingerprint),
    KEY("error", scan_error),
    KEY("type", scan_object_kind),
    {0},
};
_Static_assert(sizeof top_keys / sizeof *top_keys <= SCAN_KEY_ROWS_MAX, "`seen` has a bit a row");

void scan_none(struct scan *out) {
    *out = (struct scan){.token_ids = -1,
                         .prompt_tokens = -1,
                         .completion_tokens = -1,
                         .cached_tokens = -1,
                         .reasoning_tokens = -1,
                         .written_tokens = -1};
}

bool scan_end(struct scanner *s) {
    skip_space(s);
    return s->p == s->end;
}

static enum scan_result scan_openai(const char *p, size_t n, struct scan *out) {
    struct scanner s = {.p = p, .end = p + n, .out = out, .failure = SCAN_OK};
    if (!scan_object(&s, top_keys))
        return s.failure;
    out->text_lost |= (out->flags & SCAN_TOOL_CALL) != 0;
    return scan_end(&s) ? SCAN_OK : SCAN_MALFORMED;
}

enum scan_result scan_event(enum scan_dialect d, const char *p, size_t n, struct scan *out) {
    scan_none(out);
    return d == SCAN_OPENAI ? scan_openai(p, n, out) : scan_typed(d, p, n, out);
}
