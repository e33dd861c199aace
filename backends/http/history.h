/* Histories: what has been said in the branches of the sessions in flight, as the JSON text that goes on
 * the wire. Its bytes never change once sent (a prefix cache would miss); it is cut and copied between
 * messages only. */
#ifndef BACKENDS_HTTP_HISTORY_H
#define BACKENDS_HTTP_HISTORY_H

#include "harness/core/buf.h"
#include "harness/core/err.h"

#include <stddef.h>
#include <stdint.h>

/* A message's end: tokens of the prompt and bytes of the text up to there. */
struct history_mark {
    uint32_t tokens;
    size_t bytes;
};

struct history {
    uint64_t session; /* HISTORY_NONE = an empty place of the table */
    uint32_t branch;
    uint32_t answered; /* HISTORY_ALL: the session's turns so far */
    struct buf text;   /* messages separated by commas */
    struct history_mark *mark;
    size_t marks, marks_cap;
    size_t counted; /* of text.n, in histories.bytes */
};
#define HISTORY_NONE UINT64_MAX
#define HISTORY_ALL UINT32_MAX /* a branch that stands for the session itself */

struct histories {
    struct history *at; /* open addressing, at most half full */
    size_t n, cap;
    int64_t bytes; /* of all texts */
};

void histories_release(struct histories *h);
/* The branch's history or NULL. Pointers hold until the next add or drop. */
struct history *history_find(const struct histories *h, uint64_t session, uint32_t branch);
/* A new, empty one of a branch that has none. */
int history_add(struct histories *h, uint64_t session, uint32_t branch, struct history **out,
                struct err *e) MUST_USE;
void history_drop(struct histories *h, uint64_t session, uint32_t branch); /* if there is one */

/* Tokens up to the end of the last message; 0 = none yet. */
uint32_t history_tokens(const struct history *x);
/* A message has been put behind the others; it reaches to `tokens`. */
int history_end_message(struct histories *h, struct history *x, uint32_t tokens,
                        struct err *e) MUST_USE;
/* Takes away the messages that reach beyond `tokens`. */
void history_cut(struct histories *h, struct history *x, uint32_t tokens);
/* Makes the empty `to` begin with the messages of `from` that do not reach beyond `tokens`. */
int history_copy(struct histories *h, struct history *to, const struct history *from,
                 uint32_t tokens, struct err *e) MUST_USE;

#endif
