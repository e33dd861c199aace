/* Request bodies: what is constant is printed once at open; per request only the prompt and the
 * length are filled in. Content is a pure function of (content seed, position), so that the leading
 * tokens of a session's turns are the same tokens, and a shard's request is the single-thread run's
 * request. */
#ifndef BACKENDS_HTTP_BODY_H
#define BACKENDS_HTTP_BODY_H

#include "backends/http/protocol.h"
#include "harness/core/buf.h"
#include "harness/core/err.h"
#include "workloads/plan.h"

#include <stdbool.h>
#include <stdint.h>

enum { BODY_MAX_BYTES = 256 * 1024 * 1024 };

/* Words that stand for tokens in texts, at most BODY_WORD_BYTES each. */
enum { BODY_WORD_BYTES = 12 };
struct body_words {
    const char *const *word; /* borrowed */
    uint32_t count;
};
extern const struct body_words body_common_words; /* one token each in most vocabularies; none promises it */

/* Tokens that a server adds to a text: with them a prompt has exactly the length asked for. */
struct body_overhead {
    uint32_t first;        /* around a prompt, or a chat's first message */
    uint32_t first_system; /* around a first message and the system's before it */
    uint32_t turn;         /* around an answer and the message after it */
};

struct body_options {
    const struct protocol *protocol;
    bool text;         /* no array of messages: words instead of token ids */
    const char *model; /* served name */
    const char *max_tokens_key; /* NULL = the protocol's */
    unsigned fields;            /* enum request_field: the optional ones to send */
    bool stream;
    double temperature; /* < 0: not sent */
    const char *extra;  /* a JSON object whose members are added; NULL = none */
    int64_t vocab;      /* of the model; 0 = unknown */
    const struct body_words *words; /* NULL = body_common_words; borrowed by the template */
    struct body_overhead overhead;  /* 0 = unknown */
};

struct body_template {
    const struct protocol *protocol;
    bool ids, min_tokens;
    char *head, *middle, *minimum, *tail; /* head PROMPT middle OSL [minimum OSL] tail; PROMPT may be
                                             an array of messages */
    size_t head_bytes, middle_bytes, minimum_bytes, tail_bytes;
    uint32_t id_low, id_count; /* token ids are drawn from [id_low, id_low + id_count) */
    const struct body_words *words;
    struct body_overhead overhead;
};

/* Errors: `extra` is no JSON object, or names a member that the template writes itself. */
int body_template_init(struct body_template *t, const struct body_options *o,
                       struct err *e) MUST_USE;
void body_template_release(struct body_template *t);

/* The two parts of a body around its prompt (or array of messages): body_begin replaces out's content,
 * body_end adds the lengths and everything else. */
void body_begin(const struct body_template *t, struct buf *out);
int body_end(const struct body_template *t, uint32_t osl, struct buf *out, struct err *e) MUST_USE;

/* Tokens [from, to) of r's content: ids separated by commas, or words, each with a space before it but
 * the one at `from`. Where the tokens come from: the part that all requests share, prefix blocks, the
 * request's own content; salt != 0 makes others of all of them. */
void body_put_ids(const struct body_template *t, const struct request *r, uint64_t salt,
                  uint32_t from, uint32_t to, struct buf *out);
void body_put_words(const struct body_words *w, const struct request *r, uint64_t salt, uint32_t from,
                    uint32_t to, struct buf *out);
/* Where the words of a text end that begins at `from`: `overhead` before `to`, but one word is left. */
uint32_t body_text_end(uint32_t from, uint32_t to, uint32_t overhead);

/* Replaces out's content (initialised with BODY_MAX_BYTES) by the body of r. A literal text of the
 * request is sent as such, whatever the kind of prompt. */
int body_build(const struct body_template *t, const struct request *r, struct buf *out,
               struct err *e) MUST_USE;

/* The token id at a position of the content of a seed, and the word that stands for it in text. */
uint32_t body_token_id(const struct body_template *t, uint64_t content_seed, uint32_t position);
const char *body_word(const struct body_words *w, uint64_t content_seed, uint32_t position);

/* s as the inside of a JSON string, and with its quotes. Bytes >= 0x80 are passed through. */
void body_put_escaped(struct buf *out, const char *s);
void body_put_json_string(struct buf *out, const char *s);

#endif
