/* Tokens as a model's own tokenizer counts them: Hugging Face `tokenizer.json` files with a BPE
 * model, byte-level (Llama 3, Qwen, GPT, DeepSeek) or of characters with byte fallback (Llama 2,
 * Gemma). Ids are those of Hugging Face's Rust library; a component that this reader does not know
 * makes loading fail, since a wrong count would be published as a right one.
 *
 * Threads: a tokenizer is immutable after loading and shared by all; a tokenizer_work belongs to
 * one thread. Encoding allocates only while a work's buffers still grow to the longest text seen.
 */
#ifndef WORKLOADS_TOKENIZER_TOKENIZER_H
#define WORKLOADS_TOKENIZER_TOKENIZER_H

#include "harness/core/buf.h"
#include "harness/core/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;
struct tokenizer_work;

enum tokenizer_encode_flag {
    TOKENIZER_ENCODE_TEMPLATE = 1 << 0, /* with what the post-processor adds (begin of text, …) */
};

enum tokenizer_decode_flag {
    TOKENIZER_DECODE_SKIP_SPECIAL = 1 << 0, /* leave out special tokens */
};

enum { TOKENIZER_TEXT_MAX_BYTES = 256 * 1024 * 1024 };

/* path: a tokenizer.json, or a folder that holds one; borrowed. Free with tokenizer_free.
 * Errors name the file and the JSON pointer of what is not understood. */
int tokenizer_load(const char *path, struct tokenizer **out, struct err *e) MUST_USE;
/* From bytes in memory; name is for messages. */
int tokenizer_parse(const char *json, size_t n, const char *name, struct tokenizer **out,
                    struct err *e) MUST_USE;
void tokenizer_free(struct tokenizer *t); /* NULL is fine */

size_t tokenizer_vocab_size(const struct tokenizer *t);  /* highest id + 1, added tokens included */
const char *tokenizer_sha256(const struct tokenizer *t); /* of the file's bytes, 64 hex digits */
/* Id of a token by its exact text (added tokens first, then the vocabulary); false: there is none.
 */
bool tokenizer_id(const struct tokenizer *t, const char *token, uint32_t *id);
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id);
/* What it is made of: model, normalizer, pre_tokenizer, …; for people. New reference. */
json_t *tokenizer_facts(const struct tokenizer *t);

/* NULL when memory runs out. A work may outlive nothing: free it before its tokenizer. */
struct tokenizer_work *tokenizer_work_new(const struct tokenizer *t);
void tokenizer_work_free(struct tokenizer_work *w); /* NULL is fine */

/* Ids of n bytes of text. Bytes that are no UTF-8 count as U+FFFD, as a lossy conversion writes
 * them. ids: room for cap of them, borrowed, may be NULL when cap is 0. *count is how many the text
 * has, also when that is more than cap (then the first cap are stored). Errors: a text above
 * TOKENIZER_TEXT_MAX_BYTES, memory. */
int tokenizer_encode(const struct tokenizer *t, struct tokenizer_work *w, const char *text,
                     size_t n, unsigned flags, uint32_t *ids, size_t cap, size_t *count,
                     struct err *e) MUST_USE;
/* The number of tokens without those of the template: of generated text, say. */
int tokenizer_count(const struct tokenizer *t, struct tokenizer_work *w, const char *text, size_t n,
                    size_t *count, struct err *e) MUST_USE;
/* Appends the text of ids to out. Ids outside the vocabulary are left out, as the library does;
 * what is no UTF-8 becomes U+FFFD. */
int tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, unsigned flags,
                     struct buf *out, struct err *e) MUST_USE;

/* Decoding as ids come, one at a time, as a server writes its answer: text is given out once no
 * later id can change it, so a character whose bytes come in several tokens comes whole. As the
 * DecodeStream of Hugging Face's library. */
struct tokenizer_stream;
/* flags: enum tokenizer_decode_flag. NULL when memory runs out. Free it before its tokenizer. */
struct tokenizer_stream *tokenizer_stream_new(const struct tokenizer *t, unsigned flags);
void tokenizer_stream_free(struct tokenizer_stream *s); /* NULL is fine */
/* Appends to out what id settles; nothing when a character is still open. Errors: memory. */
int tokenizer_stream_push(struct tokenizer_stream *s, uint32_t id, struct buf *out,
                          struct err *e) MUST_USE;
/* Appends what is still open (U+FFFD for a character that was never completed) and starts anew. */
int tokenizer_stream_end(struct tokenizer_stream *s, struct buf *out, struct err *e) MUST_USE;

#endif
