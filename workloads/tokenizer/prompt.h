/* Prompts of an exact number of tokens: English-looking sentences that encode to as many ids as
 * asked, no more, no fewer, with whatever a template puts around them. The text alone decides:
 * encoding it again gives the same ids, at the server too.
 *
 * Threads: a prompt_maker belongs to one thread. */
#ifndef WORKLOADS_TOKENIZER_PROMPT_H
#define WORKLOADS_TOKENIZER_PROMPT_H

#include "workloads/tokenizer/chat_template.h"
#include "workloads/tokenizer/tokenizer.h"

struct prompt_maker;

/* t is borrowed and must outlive it. Errors: memory. */
int prompt_maker_new(const struct tokenizer *t, struct prompt_maker **out, struct err *e) MUST_USE;
void prompt_maker_free(struct prompt_maker *m); /* NULL is fine */

/* What stands around a prompt and counts with it. */
struct prompt_around {
    struct buf before, after;
    unsigned flags; /* enum tokenizer_encode_flag of the whole */
};
void prompt_around_release(struct prompt_around *a);
/* Nothing but what the tokenizer itself adds (begin of text): a text completion. */
void prompt_around_nothing(struct prompt_around *a);
/* One user message, and what opens the answer. date: "YYYY-MM-DD". */
int prompt_around_chat(struct prompt_around *a, const struct chat_template *t, const char *date,
                       struct err *e) MUST_USE;

/* Replaces text by a prompt, a pure function of tokenizer, seed, tokens and around, that has
 * `tokens` ids with what is around it. ids: of the whole; room for `tokens`, or NULL. Errors: fewer
 * tokens than the surroundings alone have (the least is told), a vocabulary in which that number
 * cannot be had. */
int prompt_make(struct prompt_maker *m, const struct prompt_around *a, uint64_t seed, size_t tokens,
                struct buf *text, uint32_t *ids, struct err *e) MUST_USE;

/* Words that are one token each, at the begin of a text and after another of them with a space
 * between: n of them joined by spaces are n tokens, and their ids depend on nothing before. */
size_t prompt_nwords(const struct prompt_maker *m);
const char *prompt_word(const struct prompt_maker *m, size_t i);
/* Tokens that `around` adds to a prompt of such words; measured. Errors: it is not one number for
 * all of them (a merge across its edge). */
int prompt_overhead(struct prompt_maker *m, const struct prompt_around *a, size_t *tokens,
                    struct err *e) MUST_USE;

#endif
