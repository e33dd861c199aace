/* Conversations: what a turn's prompt is made of when earlier turns and answers belong to it.
 *
 * A chat endpoint gets a growing array of messages. A trace's conversations are sent as recorded, their
 * recorded answers included; in others an answer is words, as many as tokens were answered (or
 * recorded), the same as at those positions of a flat prompt. The history of a session's branch is
 * kept as it was sent; a branch of a recorded session begins with what it shares with its parent's. A
 * session's histories are freed with its last turn or its first failure. */
#ifndef BACKENDS_HTTP_TALK_H
#define BACKENDS_HTTP_TALK_H

#include "backends/http/body.h"
#include "backends/http/history.h"
#include "harness/core/buf.h"
#include "harness/core/err.h"
#include "workloads/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is made different, so that prefix caches miss between: nothing, all requests, all sessions. Text
 * gets "[salt: xxxx]" in front of its first message (xxxx: hex), token ids become others. Recorded
 * sessions are salted as MLPerf Endpoints does: the play before, the conversation behind. */
enum talk_salt { TALK_SALT_OFF, TALK_SALT_REQUEST, TALK_SALT_SESSION };

struct talk_options {
    int salt; /* enum talk_salt */
    int64_t history_max_bytes;
};

struct talk {
    struct talk_options o;
    struct histories histories;
};

void talk_init(struct talk *t, const struct talk_options *o);
void talk_release(struct talk *t);

/* Replaces out's content by the body of r. The history of r's branch grows by r's own messages. */
int talk_body(struct talk *t, const struct body_template *b, const struct request *r,
              struct buf *out, struct err *e) MUST_USE;

/* What must be known of a turn when it ends. */
struct talk_turn {
    uint64_t session;
    uint32_t branch, branches, turns;
    bool last_turn;
};
struct talk_turn talk_turn_of(const struct request *r);
/* A turn ended; failed: nothing of its session follows. */
void talk_answered(struct talk *t, const struct talk_turn *turn, bool failed);

/* Value of a session header, NUL-terminated; "" outside sessions. */
void talk_session_name(const struct request *r, char *out, size_t out_bytes);

/* BLAKE2b with 16 bits of digest of at most 128 bytes; first byte high. */
uint16_t talk_blake2b_16(const void *p, size_t n);

#endif
