/* ShareGPT: one JSON array of conversations, [{"id", "conversations": [{"from", "value"}, …]}, …],
 * walked element by element, so that memory holds one conversation. The first message is the
 * prompt, the second the reference answer (as vLLM's benchmark takes them); conversations with
 * fewer than two messages are dropped. Lengths are estimated from bytes (TRACE_BYTES_PER_TOKEN);
 * the prompt's text is passed on. */
#include "harness/core/json.h"
#include "workloads/dist.h"
#include "workloads/trace_internal.h"

#include <string.h>

struct sharegpt {
    bool opened, closed;
    uint64_t elements;
    size_t column;   /* of buf[begin] */
    json_t *element; /* keeps the text of the last row */
};

static int fault_here(const struct trace *t, const char *expected, struct err *e) {
    const struct reader *r = &t->reader;
    size_t column = ((const struct sharegpt *)t->state)->column;
    if (r->begin == r->end)
        return reader_fault(r, r->line, column, e, "expected %s, found the file's end", expected);
    unsigned char c = (unsigned char)r->buf[r->begin];
    if (c < 0x20 || c > 0x7e)
        return reader_fault(r, r->line, column, e, "expected %s, found byte 0x%02x", expected, c);
    return reader_fault(r, r->line, column, e, "expected %s, found '%c'", expected, c);
}

/* Skips white space; *c = the character at begin, '\0' at the end of file. */
static int peek(struct trace *t, char *c, struct err *e) {
    struct reader *r = &t->reader;
    struct sharegpt *s = t->state;
    for (;;) {
        for (; r->begin < r->end; r->begin++) {
            *c = r->buf[r->begin];
            if (*c == '\n') {
                r->line++;
                s->column = 1;
            } else if (*c == ' ' || *c == '\t' || *c == '\r') {
                s->column++;
            } else {
                if (*c == '\0') /* never part of JSON; '\0' means the end below */
                    return fault_here(t, "JSON", e);
                return 0;
            }
        }
        bool got;
        int rc = reader_more(r, &got, e);
        if (rc)
            return rc;
        if (!got) {
            *c = '\0';
            return 0;
        }
    }
}

/* Length in bytes of the object at begin, braces balanced outside strings. */
static int element_length(struct trace *t, size_t *length, struct err *e) {
    struct reader *r = &t->reader;
    size_t depth = 0, i = 0;
    bool in_string = false, escaped = false;
    for (;;) {
        for (; r->begin + i < r->end; i++) {
            char c = r->buf[r->begin + i];
            if (escaped) {
                escaped = false;
            } else if (in_string) {
                escaped = c == '\\';
                in_string = c != '"';
            } else if (c == '"') {
                in_string = true;
            } else if (c == '{' || c == '[') {
                depth++;
            } else if ((c == '}' || c == ']') && --depth == 0) {
                *length = i + 1;
                return 0;
            }
        }
        if (i > TRACE_ROW_MAX_BYTES)
            return reader_fault(r, r->line, 1, e,
                                "expected conversations of at most %d bytes, found a "
                                "longer one",
                                TRACE_ROW_MAX_BYTES);
        bool got;
        int rc = reader_more(r, &got, e);
        if (rc)
            return rc;
        if (!got)
            return reader_fault(r, r->line, ((struct sharegpt *)t->state)->column, e,
                                "expected a conversation, found one that the file's end cuts off");
    }
}

/* Parses length bytes at begin with jansson and goes past them. */
static int parse_element(struct trace *t, size_t length, struct err *e) {
    struct reader *r = &t->reader;
    struct sharegpt *s = t->state;
    const char *p = r->buf + r->begin;
    json_error_t je;
    json_decref(s->element);
    s->element = json_loadb(p, length, JSON_REJECT_DUPLICATES, &je);
    if (!s->element) {
        int line = je.line > 0 ? je.line : 1, column = je.column > 0 ? je.column : 1;
        return reader_fault(r, r->line + (uint64_t)(line - 1),
                            (size_t)column + (line == 1 ? s->column - 1 : 0), e, "%s", je.text);
    }
    for (size_t i = 0; i < length; i++) {
        if (p[i] == '\n') {
            r->line++;
            s->column = 0;
        }
        s->column++;
    }
    r->begin += length;
    return 0;
}

static int message(const struct trace *t, uint64_t line, const json_t *list, size_t i,
                   const char **text, size_t *bytes, struct err *e) {
    const struct sharegpt *s = t->state;
    const json_t *v = json_object_get(json_array_get(list, i), "value");
    *text = json_string_value(v);
    *bytes = json_string_length(v);
    if (*text && *bytes <= (size_t)TOKENS_MAX * TRACE_BYTES_PER_TOKEN)
        return 0;
    char found[64];
    json_excerpt(v, found, sizeof found);
    return reader_fault(
        &t->reader, line, 1, e,
        "at /%llu/conversations/%zu/value: expected a text of at most %d bytes, found %s",
        (unsigned long long)(s->elements - 1), i, TOKENS_MAX * TRACE_BYTES_PER_TOKEN,
        *text ? "a longer one" : found);
}

/* The next element: *c = '{', or ']' and the array's end is checked. */
static int to_element(struct trace *t, char *c, struct err *e) {
    struct reader *r = &t->reader;
    struct sharegpt *s = t->state;
    int rc;
    if (!s->opened) {
        r->line = 1;
        s->column = 1;
        if ((rc = peek(t, c, e)))
            return rc;
        if (*c != '[')
            return fault_here(t, "'['", e);
        s->opened = true;
        r->begin++;
        s->column++;
        if ((rc = peek(t, c, e)))
            return rc;
    } else {
        if ((rc = peek(t, c, e)))
            return rc;
        if (*c == ',') {
            r->begin++;
            s->column++;
            if ((rc = peek(t, c, e)))
                return rc;
            return *c == '{' ? 0 : fault_here(t, "'{'", e);
        }
        if (*c != ']')
            return fault_here(t, "',' or ']'", e);
    }
    if (*c == '{')
        return 0;
    if (*c != ']')
        return fault_here(t, "'{' or ']'", e);
    r->begin++;
    s->column++;
    char after;
    if ((rc = peek(t, &after, e)))
        return rc;
    s->closed = true;
    return after ? fault_here(t, "the file's end", e) : 0;
}

static int sharegpt_next(struct trace *t, struct trace_row *row, bool *end, struct err *e) {
    struct sharegpt *s = t->state;
    for (;;) {
        char c = ']';
        size_t length = 0, bytes = 0;
        *end = s->closed;
        if (s->closed)
            return 0;
        int rc = to_element(t, &c, e);
        if (rc)
            return rc;
        if (c == ']')
            continue;
        uint64_t line = t->reader.line;
        if ((rc = element_length(t, &length, e)) || (rc = parse_element(t, length, e)))
            return rc;
        s->elements++;
        const json_t *list = json_object_get(s->element, "conversations");
        if (!json_is_array(list)) {
            char found[64];
            json_excerpt(list, found, sizeof found);
            return reader_fault(&t->reader, line, 1, e,
                                "at /%llu/conversations: expected an array, found %s",
                                (unsigned long long)(s->elements - 1), found);
        }
        if (json_array_size(list) < 2) {
            t->dropped++;
            continue;
        }
        const char *answer;
        *row = (struct trace_row){.line = line, .arrival_ns = -1};
        if ((rc = message(t, line, list, 0, &row->text, &bytes, e)))
            return rc;
        row->isl = trace_estimate_tokens(bytes);
        if ((rc = message(t, line, list, 1, &answer, &bytes, e)))
            return rc;
        row->osl = trace_estimate_tokens(bytes);
        return 0;
    }
}

static void sharegpt_close(struct trace *t) {
    json_decref(((struct sharegpt *)t->state)->element);
}

const struct trace_ops trace_sharegpt = {
    .info = {.name = "sharegpt",
             .summary = "ShareGPT JSON array: first message = prompt, second = answer; lengths "
                        "estimated at 4 bytes a token",
             .has_text = true},
    .state_bytes = sizeof(struct sharegpt),
    .next = sharegpt_next,
    .close = sharegpt_close,
};
