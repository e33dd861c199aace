/* From a Weka session's calls to a tree, by AgentX's rules as published (SemiAnalysisAI/aiperf,
 * docs/tutorials/weka-trace.md, docs/benchmark-modes/semianalysis-agentx-faq.md; not its code):
 *
 * - A call goes on with the chain whose last prompt it extends whole (blocks name their whole prefix),
 *   if that call had ended and the model is the same. With a part of the prefix only (a context that
 *   was cut) it goes on when no later call extends the longer state; otherwise it begins a branch.
 * - An agent's entry begins a branch of the agent that holds the entry.
 * - The first later call of the parent's chain that began after a branch's end waits for the branch; with
 *   none the branch runs in the background.
 * - Delays are the recorded gaps from the end of what a call follows; a branch that is waited for adds
 *   none. */
#include "workloads/trace_weka.h"

#include "harness/core/clock.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define SLACK_NS NS_PER_S /* recordings of whole seconds: an end may seem to lie behind the next start */

struct branch {
    uint32_t agent, parent; /* parent = its own number: the session's */
    uint32_t spawn;         /* the call that it follows; NONE */
    uint32_t first, last;   /* calls */
    uint32_t calls;
    int64_t end_ns;
};

/* Calls are named by their rank in time from here on. */
struct node {
    const struct weka_call *c;
    uint32_t branch, turn;
    uint32_t before, after; /* in the branch */
    uint32_t shared;        /* whole blocks of the context so far; NONE = all of it */
    uint32_t nwaits;
    struct session_wait *wait;
};

struct tree {
    const struct reader *r;
    struct weka *w;
    struct node *node;
    uint32_t n;
    struct branch *branch;
    uint32_t branches, branches_cap;
    uint32_t *base;  /* by agent: its own chain, NONE before its first call */
    uint32_t *chain; /* of the agent at work: its branches */
    uint32_t chains;
};

static int64_t end_of(const struct weka_call *c) {
    return c->t_ns + (c->api_ns > 0 ? c->api_ns : 0);
}

static const uint64_t *ids_of(const struct tree *t, const struct weka_call *c) {
    return t->w->ids + c->first_id;
}

static uint32_t common_ids(const struct tree *t, const struct weka_call *a,
                           const struct weka_call *b) {
    const uint64_t *x = ids_of(t, a), *y = ids_of(t, b);
    uint32_t n = a->nids < b->nids ? a->nids : b->nids, i = 0;
    if (n && x[n - 1] == y[n - 1] && memcmp(x, y, n * sizeof *x) == 0)
        return n; /* the usual case */
    while (i < n && x[i] == y[i])
        i++;
    return i;
}

static int compare(const void *a, const void *b) {
    const struct weka_call *x = ((const struct node *)a)->c, *y = ((const struct node *)b)->c;
    if (x->t_ns != y->t_ns)
        return x->t_ns < y->t_ns ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* ---- branches ---- */

/* The last call of a branch that had ended when call i began; when none had, the last that had begun. */
static uint32_t latest(const struct tree *t, uint32_t branch, uint32_t i) {
    uint32_t at = t->branch[branch].last, begun;
    while (at != NONE && at >= i)
        at = t->node[at].before;
    begun = at;
    while (at != NONE && end_of(t->node[at].c) > t->node[i].c->t_ns + SLACK_NS)
        at = t->node[at].before;
    return at == NONE ? begun : at;
}

static int begin_branch(struct tree *t, uint32_t i, uint32_t parent, struct err *e) {
    struct node *n = &t->node[i];
    if (t->branches == SESSION_BRANCHES_MAX)
        return reader_fault(t->r, n->c->line, 1, e,
                            "expected sessions of at most %d branches, found more",
                            SESSION_BRANCHES_MAX);
    if (t->branches == t->branches_cap) {
        uint32_t cap = t->branches_cap ? 2 * t->branches_cap : 16;
        struct branch *b = realloc(t->branch, cap * sizeof *b);
        if (!b)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        t->branch = b;
        t->branches_cap = cap;
    }
    uint32_t b = t->branches++;
    uint32_t spawn = parent == NONE ? NONE : latest(t, parent, i);
    t->branch[b] = (struct branch){.agent = n->c->agent,
                                   .parent = parent == NONE ? b : parent,
                                   .spawn = spawn,
                                   .first = i,
                                   .last = i,
                                   .calls = 1,
                                   .end_ns = end_of(n->c)};
    n->branch = b;
    n->before = n->after = NONE;
    n->shared = spawn == NONE ? 0 : common_ids(t, t->node[spawn].c, n->c);
    t->chain[t->chains++] = b;
    return 0;
}

static void continue_branch(struct tree *t, uint32_t i, uint32_t branch, uint32_t shared) {
    struct branch *b = &t->branch[branch];
    struct node *n = &t->node[i], *last = &t->node[b->last];
    n->branch = branch;
    n->turn = last->turn + 1;
    n->before = b->last;
    n->after = NONE;
    n->shared = shared;
    last->after = i;
    b->last = i;
    b->calls++;
    if (end_of(n->c) > b->end_ns)
        b->end_ns = end_of(n->c);
}

/* Whether a later call of the agent needs more than `shared` blocks of what call `tail` left. */
static bool needed_later(const struct tree *t, uint32_t tail, uint32_t i, uint32_t shared) {
    const struct weka_call *left = t->node[tail].c;
    for (uint32_t j = i + 1; j < t->n; j++) {
        const struct weka_call *c = t->node[j].c;
        if (c->agent == left->agent && c->model == left->model && c->nids > shared &&
            common_ids(t, left, c) > shared)
            return true;
    }
    return false;
}

static int place_call(struct tree *t, uint32_t i, struct err *e) {
    const struct weka_call *c = t->node[i].c;
    uint32_t best = NONE, fork = NONE, best_ids = 0, fork_ids = 0;
    bool whole = false;
    for (uint32_t k = 0; k < t->chains; k++) {
        uint32_t b = t->chain[k];
        const struct weka_call *tail = t->node[t->branch[b].last].c;
        uint32_t ids = common_ids(t, tail, c);
        if (fork == NONE || ids > fork_ids) {
            fork = b;
            fork_ids = ids;
        }
        if (tail->model != c->model || c->t_ns + SLACK_NS < end_of(tail))
            continue;
        bool extends = ids == tail->nids && (ids > 0 || c->nids == 0);
        if (best == NONE || (extends && !whole) || (extends == whole && ids > best_ids)) {
            best = b;
            best_ids = ids;
            whole = extends;
        }
    }
    if (best != NONE && whole) {
        continue_branch(t, i, best, NONE);
        return 0;
    }
    if (best != NONE && best_ids && !needed_later(t, t->branch[best].last, i, best_ids)) {
        continue_branch(t, i, best, best_ids);
        return 0;
    }
    if (fork == NONE) { /* the agent's first */
        uint32_t parent = c->agent ? t->base[t->w->agent[c->agent].parent] : NONE;
        t->base[c->agent] = t->branches;
        return begin_branch(t, i, parent, e);
    }
    return begin_branch(t, i, fork_ids ? fork : t->base[c->agent], e);
}

/* ---- what waits for what ---- */

/* The call that waits for a branch's end; NONE: it runs in the background. */
static uint32_t joined_by(const struct tree *t, const struct branch *b) {
    const struct branch *parent = &t->branch[b->parent];
    const struct weka_agent *a = &t->w->agent[b->agent];
    int64_t end = b->end_ns;
    if (parent == b)
        return NONE;
    if (parent->agent != b->agent && a->duration_ns >= 0) {
        int64_t told = a->t_ns + a->duration_ns;
        end = a->async && end > told ? end : told;
    }
    uint32_t at = b->spawn == NONE ? parent->first : t->node[b->spawn].after;
    while (at != NONE && (t->node[at].c->t_ns < end || at < b->last))
        at = t->node[at].after;
    return at;
}

static int64_t gap(const struct tree *t, uint32_t from, uint32_t to) {
    int64_t ns = t->node[to].c->t_ns - end_of(t->node[from].c);
    return ns > 0 ? ns : 0;
}

/* What a call follows: the one before in its branch, or the one that began the branch; the session's
 * first call for those that have neither. */
static uint32_t follows(const struct tree *t, uint32_t i) {
    const struct node *n = &t->node[i];
    uint32_t at = n->before != NONE ? n->before : t->branch[n->branch].spawn;
    return at == NONE && i ? 0 : at;
}

static int put_waits(const struct tree *t, struct session *s, struct err *e) {
    uint32_t *join = malloc(t->branches * sizeof *join);
    if (!join)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    size_t all = 0;
    for (uint32_t i = 0; i < t->n; i++)
        all += t->node[i].nwaits = follows(t, i) != NONE;
    for (uint32_t b = 0; b < t->branches; b++) {
        join[b] = joined_by(t, &t->branch[b]);
        if (join[b] == NONE)
            continue;
        t->node[join[b]].nwaits++;
        all++;
    }
    struct session_wait *w = arena_alloc(&s->arena, all + 1, sizeof *w);
    if (!w) {
        free(join);
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    }
    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t at = follows(t, i);
        s->call[i].wait = t->node[i].wait = w;
        if (at != NONE)
            w[s->call[i].nwaits++] = (struct session_wait){at, gap(t, at, i)};
        w += t->node[i].nwaits;
    }
    for (uint32_t b = 0; b < t->branches; b++)
        if (join[b] != NONE) {
            struct session_call *c = &s->call[join[b]];
            t->node[join[b]].wait[c->nwaits++] = (struct session_wait){t->branch[b].last, 0};
        }
    free(join);
    return 0;
}

/* ---- calls ---- */

/* A call's blocks: its own whole ones, then those that cover the rest of its prompt. The rest's first
 * tokens are those of the block that the next call of the branch completes, so that a prompt that was
 * sent is never changed; what no call completes is like nothing else. */
static int put_blocks(const struct tree *t, uint32_t i, struct session *s, uint64_t *lone,
                      struct err *e) {
    const struct node *n = &t->node[i];
    const struct weka_call *c = n->c, *next = n->after == NONE ? NULL : t->node[n->after].c;
    uint64_t session = t->w->sessions & WEKA_LOCAL_ID_MAX, scope = t->w->local ? session << 32 : 0;
    uint32_t want = (c->isl + WEKA_BLOCK_TOKENS - 1) / WEKA_BLOCK_TOKENS;
    uint64_t *b = arena_alloc(&s->arena, want, sizeof *b);
    if (!b)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    for (uint32_t k = 0; k < c->nids; k++)
        b[k] = scope | ids_of(t, c)[k];
    bool extended = next && t->node[n->after].shared == NONE;
    const struct session_call *before = n->shared == NONE ? &s->call[n->before] : NULL;
    for (uint32_t k = c->nids; k < want; k++)
        b[k] = before && k < before->nblocks ? before->blocks[k]
               : extended && k < next->nids  ? scope | ids_of(t, next)[k]
                                             : UINT64_C(1) << 63 | session << 32 | (*lone)++;
    s->call[i].blocks = b;
    s->call[i].nblocks = want;
    s->call[i].whole_blocks = c->nids;
    return 0;
}

static uint32_t shared_tokens(const struct tree *t, uint32_t i) {
    const struct node *n = &t->node[i];
    uint64_t tokens = (uint64_t)n->shared * WEKA_BLOCK_TOKENS;
    if (n->shared == NONE) {
        const struct weka_call *before = t->node[n->before].c;
        tokens = (uint64_t)before->isl + before->osl;
    }
    return tokens < n->c->isl ? (uint32_t)tokens : n->c->isl - 1;
}

static int put_calls(const struct tree *t, struct session *s, struct err *e) {
    uint64_t lone = 0;
    s->call = arena_alloc(&s->arena, t->n, sizeof *s->call);
    if (!s->call)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    s->ncalls = t->n;
    s->branches = t->branches;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct node *n = &t->node[i];
        s->call[i] = (struct session_call){
            .line = n->c->line,
            .branch = n->branch,
            .parent = t->branch[n->branch].parent,
            .turn = n->turn,
            .last_turn = n->after == NONE,
            .isl = n->c->isl,
            .osl = n->c->osl,
            .shared = shared_tokens(t, i),
        };
        int rc = put_blocks(t, i, s, &lone, e);
        if (rc)
            return rc;
    }
    return put_waits(t, s, e);
}

int weka_tree(const struct reader *r, struct weka *w, struct session *s, struct err *e) {
    struct tree t = {.r = r, .w = w, .n = (uint32_t)w->ncalls};
    int rc = 0;
    t.node = calloc(t.n, sizeof *t.node);
    t.base = malloc(w->nagents * sizeof *t.base);
    t.chain = malloc(SESSION_BRANCHES_MAX * sizeof *t.chain);
    if (!t.node || !t.base || !t.chain) {
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
        goto out;
    }
    memset(t.base, 0xff, w->nagents * sizeof *t.base); /* NONE */
    for (uint32_t i = 0; i < t.n; i++)
        t.node[i].c = &w->call[i];
    qsort(t.node, t.n, sizeof *t.node, compare);
    /* a parent's agent has the lower number: its calls are placed before those of its agents */
    for (uint32_t a = 0; a < w->nagents && !rc; a++) {
        t.chains = 0;
        for (uint32_t i = 0; i < t.n && !rc; i++)
            if (t.node[i].c->agent == a)
                rc = place_call(&t, i, e);
    }
    if (!rc)
        rc = put_calls(&t, s, e);
out:
    free(t.node);
    free(t.base);
    free(t.chain);
    free(t.branch);
    return rc;
}
