/* Weka session JSON (callanjfox/kv-cache-tester, SemiAnalysisAI cc-traces; replayed by InferenceX's
 * AgentX): one object a line, {"id", "block_size": 64, "hash_id_scope", "requests": […]}, a request
 * being {"t", "type": "n"|"s", "model", "in", "out", "hash_ids", "api_time"} or an agent that it started,
 * {"t", "type": "subagent", "duration_ms", "status", "requests": […]}. Reading is here; how the calls
 * hang together is in trace_weka_tree.c. Times are seconds; those inside an agent count from its start
 * when one of them is below the agent's own. hash_ids name whole blocks of the prompt only. */
#include "harness/core/clock.h"
#include "workloads/dist.h"
#include "workloads/trace_weka.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { AGENT_DEPTH_MAX = 8, AGENTS_MAX = SESSION_BRANCHES_MAX, NUMBER_BYTES = 40 };

/* array: address of the pointer to it. Room for element n. */
static int grow(void *array, size_t *cap, size_t n, size_t size, struct err *e) {
    void *p;
    if (n < *cap)
        return 0;
    size_t more = *cap ? *cap : 64;
    while (more <= n)
        more *= 2;
    memcpy(&p, array, sizeof p);
    p = realloc(p, more * size);
    if (!p)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    memcpy(array, &p, sizeof p);
    *cap = more;
    return 0;
}

/* A time in units of unit_ns, also in scientific notation; null and below zero are -1. */
static int read_time(struct lex *s, double unit_ns, int64_t *out, struct err *e) {
    char text[NUMBER_BYTES], *end;
    size_t n = 0;
    lex_space(s);
    const char *at = s->p;
    if (s->end - at >= 4 && memcmp(at, "null", 4) == 0) {
        *out = -1;
        s->p += 4;
        return 0;
    }
    while (s->p < s->end && n < sizeof text - 1 && *s->p && strchr("0123456789+-.eE", *s->p))
        text[n++] = *s->p++;
    text[n] = '\0';
    double v = strtod(text, &end) * unit_ns;
    if (n == 0 || *end || !(v < 9e18) || !(v > -9e18)) {
        s->p = at;
        return lex_fault(s, "a time", e);
    }
    *out = v < 0 ? -1 : (int64_t)(v + 0.5);
    return 0;
}

/* FNV-1a: equal names are equal models. */
static uint64_t name_hash(const char *p, size_t n) {
    uint64_t h = 0xcbf29ce484222325;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)p[i]) * 0x100000001b3;
    return h;
}

static int read_entry(struct weka *w, struct lex *s, uint32_t agent, int depth, struct err *e);

static int read_entries(struct weka *w, struct lex *s, uint32_t agent, int depth, struct err *e) {
    int rc = lex_take(s, '[', "an array of requests", e);
    if (rc || lex_peek(s, ']')) {
        s->p += !rc;
        return rc;
    }
    for (;;) {
        if ((rc = read_entry(w, s, agent, depth, e)))
            return rc;
        if (lex_peek(s, ']')) {
            s->p++;
            return 0;
        }
        if ((rc = lex_take(s, ',', "',' or ']'", e)))
            return rc;
    }
}

static int add_ids(struct weka *w, uint32_t n, struct err *e) {
    int rc = grow(&w->ids, &w->ids_cap, w->nids + n, sizeof *w->ids, e);
    if (rc)
        return rc;
    if (n)
        memcpy(w->ids + w->nids, w->read.id, n * sizeof *w->ids);
    w->nids += n;
    return 0;
}

enum member { TIME, TYPE, MODEL, IN, OUT, HASH_IDS, API_TIME, DURATION, STATUS, REQUESTS, MEMBERS };
static const char *const member_names[MEMBERS] = {
    "t", "type", "model", "in", "out", "hash_ids", "api_time", "duration_ms", "status", "requests"};

/* A member's name read; MEMBERS for one that is not among names. */
static int read_name(struct lex *s, const char *const *names, unsigned n, unsigned *seen,
                     unsigned *which, struct err *e) {
    const char *name;
    size_t bytes;
    lex_space(s);
    const char *at = s->p;
    int rc = lex_string(s, &name, &bytes, e);
    if (rc || (rc = lex_take(s, ':', "':'", e)))
        return rc;
    for (*which = 0; *which < n; ++*which)
        if (strlen(names[*which]) == bytes && memcmp(names[*which], name, bytes) == 0)
            break;
    if (*which < n && (*seen & 1u << *which)) {
        s->p = at;
        return lex_fault(s, "each member once", e);
    }
    *seen |= 1u << *which;
    return 0;
}

/* What an entry says, whichever of the two it is. */
struct entry {
    struct weka_call call;
    struct weka_agent agent;
    uint32_t index; /* of its agent, 0 = no requests inside */
    char type;      /* of "n", "s", "subagent" */
};

static int read_member(struct weka *w, struct lex *s, struct entry *n, uint32_t parent, int depth,
                       enum member which, struct err *e) {
    const char *text;
    size_t bytes;
    uint64_t v = 0;
    int rc = 0;
    switch (which) {
    case TIME:
        if ((rc = read_time(s, (double)NS_PER_S, &n->call.t_ns, e)) || n->call.t_ns >= 0)
            return rc;
        return lex_fault(s, "a time of at least 0 before this", e);
    case API_TIME:
        return read_time(s, (double)NS_PER_S, &n->call.api_ns, e);
    case DURATION:
        return read_time(s, (double)NS_PER_MS, &n->agent.duration_ns, e);
    case TYPE:
    case MODEL:
    case STATUS:
        if ((rc = lex_string(s, &text, &bytes, e)))
            return rc;
        if (which == MODEL)
            n->call.model = name_hash(text, bytes);
        else if (which == STATUS)
            n->agent.async = bytes == 14 && memcmp(text, "async_launched", 14) == 0;
        else if (bytes == 8 && memcmp(text, "subagent", 8) == 0)
            n->type = 'a';
        else if (bytes == 1 && (*text == 'n' || *text == 's'))
            n->type = *text;
        else {
            s->p = text;
            return lex_fault(s, "n, s or subagent", e);
        }
        return 0;
    case IN:
        lex_space(s);
        if (lex_peek(s, '0')) /* nothing was asked */
            return lex_fault(s, "in from 1 to 16777216", e);
        rc = lex_integer(s, TOKENS_MAX, "in from 1 to 16777216", &v, e);
        n->call.isl = (uint32_t)v;
        return rc;
    case OUT:
        lex_space(s);
        rc = lex_integer(s, TOKENS_MAX, "out from 0 to 16777216", &v, e);
        n->call.osl = v ? (uint32_t)v : 1; /* cut off before the first token */
        return rc;
    case HASH_IDS: {
        uint32_t count = 0;
        if ((rc = lex_ids(s, &w->read, &count, e)))
            return rc;
        n->call.first_id = w->nids;
        n->call.nids = count;
        return add_ids(w, count, e);
    }
    case REQUESTS:
        if (depth == AGENT_DEPTH_MAX)
            return lex_fault(s, "agents nested at most 8 deep", e);
        if (w->nagents == AGENTS_MAX)
            return lex_fault(s, "at most 16384 agents", e);
        if ((rc = grow(&w->agent, &w->agents_cap, w->nagents, sizeof *w->agent, e)))
            return rc;
        n->index = w->nagents++;
        w->agent[n->index] = (struct weka_agent){.parent = parent};
        return read_entries(w, s, n->index, depth + 1, e);
    case MEMBERS:
        return lex_skip(s, e);
    }
    return 0;
}

/* An agent's entry is complete: its calls' times from its own when they are relative. */
static void end_agent(struct weka *w, const struct entry *n, size_t first_call) {
    struct weka_agent *a = &w->agent[n->index];
    bool relative = false;
    for (size_t i = first_call; i < w->ncalls; i++)
        relative |= w->call[i].t_ns < n->call.t_ns;
    for (size_t i = first_call; relative && i < w->ncalls; i++)
        w->call[i].t_ns += n->call.t_ns;
    for (uint32_t i = n->index + 1; relative && i < w->nagents; i++)
        w->agent[i].t_ns += n->call.t_ns;
    a->t_ns = n->call.t_ns;
    a->duration_ns = n->agent.duration_ns;
    a->async = n->agent.async;
}

static int read_entry(struct weka *w, struct lex *s, uint32_t agent, int depth, struct err *e) {
    struct entry n = {.call = {.api_ns = -1, .agent = agent, .line = s->r->line},
                      .agent = {.duration_ns = -1}};
    size_t first_call = w->ncalls;
    unsigned seen = 0, which;
    int rc = lex_take(s, '{', "'{'", e);
    if (rc)
        return rc;
    if (!lex_peek(s, '}')) {
        do {
            if ((rc = read_name(s, member_names, MEMBERS, &seen, &which, e)) ||
                (rc = read_member(w, s, &n, agent, depth, (enum member)which, e)))
                return rc;
        } while (lex_peek(s, ',') && s->p++);
    }
    if ((rc = lex_take(s, '}', "',' or '}'", e)))
        return rc;
    unsigned need = n.type == 'a' ? 1u << TIME : 1u << TIME | 1u << IN | 1u << OUT;
    for (unsigned i = 0; i < MEMBERS; i++)
        if ((need | 1u << TYPE) & 1u << i && !(seen & 1u << i))
            return reader_fault(s->r, s->r->line, (size_t)(s->p - s->start), e,
                                "expected a member \"%s\" of the request that ends here, found none",
                                member_names[i]);
    if (n.call.t_ns > WEKA_TIME_MAX_NS || n.agent.duration_ns > WEKA_TIME_MAX_NS ||
        n.call.api_ns > WEKA_TIME_MAX_NS)
        return reader_fault(s->r, s->r->line, (size_t)(s->p - s->start), e,
                            "expected times below ten years in the request that ends here");
    if (n.type == 'a') {
        if (n.index)
            end_agent(w, &n, first_call);
        return 0;
    }
    if (n.index)
        return reader_fault(s->r, s->r->line, (size_t)(s->p - s->start), e,
                            "expected no \"requests\" in the request that ends here, because its "
                            "type is not subagent");
    if (w->ncalls == SESSION_CALLS_MAX)
        return lex_fault(s, "at most 65536 requests of a session", e);
    if ((rc = grow(&w->call, &w->calls_cap, w->ncalls, sizeof *w->call, e)))
        return rc;
    if (n.call.nids > n.call.isl / WEKA_BLOCK_TOKENS)
        n.call.nids = n.call.isl / WEKA_BLOCK_TOKENS;
    w->call[w->ncalls++] = n.call;
    return 0;
}

/* ---- a session ---- */

enum top { ID, BLOCK_SIZE, SCOPE, TOP_REQUESTS, TOPS };
static const char *const top_names[TOPS] = {"id", "block_size", "hash_id_scope", "requests"};

static int read_top(struct weka *w, struct lex *s, struct session *out, enum top which,
                    struct err *e) {
    const char *text;
    size_t n;
    uint64_t v;
    int rc;
    switch (which) {
    case ID:
        if ((rc = lex_string(s, &text, &n, e)))
            return rc;
        if (n == 0 || memchr(text, '\\', n)) {
            s->p = text;
            return lex_fault(s, "an id without escapes", e);
        }
        out->id = arena_strndup(&out->arena, text, n);
        return out->id ? 0 : err_set(e, ASSAY_ENOMEM, "out of memory");
    case BLOCK_SIZE:
        lex_space(s);
        text = s->p;
        if ((rc = lex_integer(s, UINT32_MAX, "a block size of 64", &v, e)) || v == WEKA_BLOCK_TOKENS)
            return rc;
        s->p = text;
        return lex_fault(s, "a block size of 64", e);
    case SCOPE:
        if ((rc = lex_string(s, &text, &n, e)))
            return rc;
        w->local = n == 5 && memcmp(text, "local", 5) == 0;
        if (w->local || (n == 6 && memcmp(text, "global", 6) == 0))
            return 0;
        s->p = text;
        return lex_fault(s, "local or global", e);
    case TOP_REQUESTS:
        return read_entries(w, s, 0, 0, e);
    case TOPS:
        return lex_skip(s, e);
    }
    return 0;
}

static int read_session(struct weka *w, struct lex *s, struct session *out, struct err *e) {
    unsigned seen = 0, which;
    int rc = lex_take(s, '{', "'{'", e);
    if (rc)
        return rc;
    if (!lex_peek(s, '}')) {
        do {
            if ((rc = read_name(s, top_names, TOPS, &seen, &which, e)) ||
                (rc = read_top(w, s, out, (enum top)which, e)))
                return rc;
        } while (lex_peek(s, ',') && s->p++);
    }
    if ((rc = lex_take(s, '}', "',' or '}'", e)))
        return rc;
    lex_space(s);
    if (s->p < s->end)
        return lex_fault(s, "the line's end", e);
    for (unsigned i = 0; i < TOPS; i++)
        if ((i == ID || i == TOP_REQUESTS) && !(seen & 1u << i))
            return reader_fault(s->r, s->r->line, 1, e, "expected a member \"%s\", found none",
                                top_names[i]);
    uint64_t max = w->local ? WEKA_LOCAL_ID_MAX : WEKA_GLOBAL_ID_MAX;
    for (size_t i = 0; i < w->nids; i++)
        if (w->ids[i] > max)
            return reader_fault(s->r, s->r->line, 1, e,
                                "expected block ids of at most %llu, found %llu",
                                (unsigned long long)max, (unsigned long long)w->ids[i]);
    return 0;
}

static int weka_next(struct trace *t, struct session *out, bool *end, struct err *e) {
    struct weka *w = t->state;
    for (;;) {
        char *line;
        size_t n;
        int rc = reader_line(&t->reader, &line, &n, end, e);
        if (rc || *end)
            return rc;
        if (n == 0)
            continue;
        w->ncalls = w->nids = 0;
        w->local = true;
        w->nagents = 1;
        if ((rc = grow(&w->agent, &w->agents_cap, 1, sizeof *w->agent, e)) ||
            (rc = grow(&w->ids, &w->ids_cap, 1, sizeof *w->ids, e)))
            return rc;
        w->agent[0] = (struct weka_agent){.duration_ns = -1};
        out->line = t->reader.line;
        struct lex s = {&t->reader, line, line, line + n};
        if ((rc = read_session(w, &s, out, e)))
            return rc;
        if (w->ncalls) {
            rc = weka_tree(&t->reader, w, out, e);
            w->sessions++;
            return rc;
        }
        t->dropped++; /* of no request */
        session_clear(out);
    }
}

static void weka_close(struct trace *t) {
    struct weka *w = t->state;
    free(w->call);
    free(w->agent);
    free(w->ids);
    free(w->read.id);
}

const struct trace_ops trace_weka = {
    .info = {.name = "weka",
             .summary = "Weka JSON lines (AgentX): sessions of agents and their sub-agents, with "
                        "prefix blocks of 64 tokens",
             .block_tokens = WEKA_BLOCK_TOKENS,
             .has_sessions = true},
    .state_bytes = sizeof(struct weka),
    .next_session = weka_next,
    .close = weka_close,
};
