/* Between the two files of the Weka reader: a session's calls as read, and their tree. */
#ifndef WORKLOADS_TRACE_WEKA_H
#define WORKLOADS_TRACE_WEKA_H

#include "workloads/session.h"
#include "workloads/trace_internal.h"

enum { WEKA_BLOCK_TOKENS = 64 };
#define WEKA_TIME_MAX_NS INT64_C(315576000000000000) /* ten years; sums over all depths fit */
/* ids of a session with a scope of its own become (session << 32 | id); a partial block that no id
 * names gets one with the highest bit set */
#define WEKA_LOCAL_ID_MAX UINT64_C(0x7fffffff)
#define WEKA_GLOBAL_ID_MAX UINT64_C(0x7fffffffffffffff)

struct weka_call {
    uint64_t line, model;
    int64_t t_ns, api_ns; /* from the session's start; duration or -1 */
    uint32_t isl, osl;
    uint32_t agent;
    size_t first_id; /* in weka.ids */
    uint32_t nids;   /* whole blocks within isl */
};

struct weka_agent { /* 0 = the session's own */
    uint32_t parent;
    int64_t t_ns, duration_ns; /* -1 = not told */
    bool async;                /* its parent did not wait for its end */
};

struct weka {
    struct weka_call *call;
    struct weka_agent *agent;
    uint64_t *ids;
    size_t ncalls, calls_cap, nids, ids_cap, agents_cap;
    uint32_t nagents;
    bool local;
    uint64_t sessions; /* read so far */
    struct id_list read;
};

/* Fills s's calls from w's; line and id are there. r: for messages. */
int weka_tree(const struct reader *r, struct weka *w, struct session *s, struct err *e) MUST_USE;

#endif
