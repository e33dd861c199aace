/* What a benchmark needs to know of one JSON event (or whole document) of a response, without building a
 * tree: which kinds of output it carries, how many tokens, the usage, whether it is an error.
 *
 * The scan follows the grammar from the first byte to the last (depth, strings, escapes), so a key
 * inside a string or inside a nested object is never taken for the real one. Shapes it was not made
 * for (escaped or repeated keys, a value of an unexpected kind, deep nesting) are left to the DOM
 * parser, which extracts the same facts slowly.
 *
 * Field names: openai-streaming.md section 4; of the other dialects
 * https://developers.openai.com/api/reference/resources/responses/streaming-events and
 * https://platform.claude.com/docs/en/build-with-claude/streaming. The scan does not check UTF-8: the event-stream
 * standard decodes bad bytes to replacement characters, which are content. */
#ifndef BACKENDS_HTTP_SCAN_H
#define BACKENDS_HTTP_SCAN_H

#include "harness/core/buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How events say what they are: by the keys they have, or by their `type`. */
enum scan_dialect {
    SCAN_OPENAI,    /* chat and text completions */
    SCAN_RESPONSES, /* OpenAI's Responses */
    SCAN_MESSAGES,  /* Anthropic's Messages */
    SCAN_DIALECTS
};

enum scan_flags {
    SCAN_CHOICES = 1 << 0,       /* choices is a non-empty array; others: the event carries output */
    SCAN_CONTENT = 1 << 1,       /* some choice: non-empty delta/message.content or text */
    SCAN_REASONING = 1 << 2,     /* … reasoning or reasoning_content */
    SCAN_REFUSAL = 1 << 3,       /* … refusal */
    SCAN_TOOL_CALL = 1 << 4,     /* … non-empty tool_calls, or a function_call; others: the begin of a
                                    call, which brings its name, or a piece of its arguments */
    SCAN_ERROR = 1 << 5,         /* truthy top-level error, object or type == "error", a response that
                                    failed */
    SCAN_FINISH = 1 << 6,        /* some choice has a finish_reason */
    SCAN_FINISH_LENGTH = 1 << 7, /* … which says that the length asked for was reached */
    SCAN_USAGE = 1 << 8,         /* usage is an object */
    SCAN_END = 1 << 10, /* the stream's last event, in dialects that have one */
    SCAN_SIMULATED = 1 << 9, /* system_fingerprint begins with "assay-sim/" or model with "sim/" */
};

enum { SCAN_TEXTS_MAX = 4 };

struct scan {
    unsigned flags;
    int64_t token_ids; /* in all choices; -1: no such array (null counts as none) */
    /* usage; -1 = not given */
    int64_t prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens;
    int64_t written_tokens; /* SCAN_MESSAGES, where prompt_tokens counts neither these (newly cached) nor
                               cached_tokens */
    /* Output text of choice 0 (content, reasoning, refusal) in the order of the event, as it stands there:
     * the insides of JSON strings, borrowed from the event. Only the first ntexts are set. */
    struct str text[SCAN_TEXTS_MAX];
    unsigned ntexts;
    bool text_lost; /* there is more of it, or output that is no text (a call), or other choices' */
};

enum scan_result {
    SCAN_OK,
    SCAN_SLOW,      /* valid so far, but not of a shape the scan knows */
    SCAN_MALFORMED, /* not JSON */
};

/* Nothing seen: no flags, counts -1. */
void scan_none(struct scan *out);

enum scan_result scan_event(enum scan_dialect d, const char *p, size_t n, struct scan *out);

/* The same facts from a tree. False when the document is not an object. */
bool scan_dom(enum scan_dialect d, const json_t *root, struct scan *out);

/* The scan, then the tree when the scan gives up (*slow is set). SCAN_OK or SCAN_MALFORMED; a valid
 * document that is not an object counts as malformed. */
enum scan_result scan_any(enum scan_dialect d, const char *p, size_t n, struct scan *out,
                          bool *slow);

#endif
