/* A recorded session: calls of one agent and of the agents that it started, as a tree of branches.
 *
 * A branch is a chain of calls that share a growing context. A call waits for calls that come before
 * it in `call`: the one before in its branch, the one that started its branch, the last ones of
 * branches whose results it needs. It is due when for each of them end + delay is past; a call that
 * waits for nothing begins the session (the first one, and only it).
 * Everything is in the session's arena and dies with it. */
#ifndef WORKLOADS_SESSION_H
#define WORKLOADS_SESSION_H

#include "harness/core/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SESSION_CALLS_MAX = 1 << 16, SESSION_BRANCHES_MAX = 1 << 14 };

struct session_wait {
    uint32_t call; /* index, below the waiting call's own */
    int64_t delay_ns;
};

struct session_call {
    uint64_t line;   /* of the trace */
    uint32_t branch; /* 0 = the session's own */
    uint32_t parent; /* the branch whose context a branch's first call shares */
    uint32_t turn;   /* 0-based in the branch */
    bool last_turn;  /* of the branch */
    uint32_t isl, osl;
    uint32_t shared; /* leading input tokens equal to the context so far: of the branch's call before
                        and its answer, or of the parent's when it is the branch's first */
    const struct session_wait *wait;
    uint32_t nwaits;
    /* prefix blocks as in struct request; the first whole_blocks of them are the trace's own */
    const uint64_t *blocks;
    uint32_t nblocks, whole_blocks;
    /* messages: the prompt is session.messages[0, messages_bytes), the call's own begin at own_at */
    size_t messages_bytes, own_at;
    const char *tools; /* a JSON array; NULL = none */
    size_t tools_bytes;
};

struct session {
    struct arena arena;
    uint64_t line;  /* where it begins */
    const char *id; /* in the trace */
    struct session_call *call;
    uint32_t ncalls, branches;
    const char *messages; /* OpenAI messages as JSON, separated by commas; NULL = lengths alone */
};

/* Frees what it holds; it may be filled again. */
void session_clear(struct session *s);

#endif
