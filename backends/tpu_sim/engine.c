/* The scheduler and its clockwork. Not here: what a step costs (step.c), the backend's slots
 * (tpu_sim.c). */
#include "backends/tpu_sim/engine.h"

#include "backends/tpu_sim/common.h"
#include "backends/tpu_sim/prefix.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX /* no sequence */
enum { BUCKETS_MAX = 40, TOKEN_BUCKET_MIN = 16, ROW_BUCKET_MIN = 8 };

enum seq_flags {
    SEQ_CANCELLED = 1 << 0,
    SEQ_KEEP = 1 << 1,     /* another turn of its session follows */
    SEQ_ADMITTED = 1 << 2, /* has been scheduled before */
};

struct seq {
    uint64_t request, session;
    int32_t isl, osl;
    int32_t known;     /* prompt plus tokens generated so far */
    int32_t computed;  /* tokens whose keys and values are in the cache */
    int32_t scheduled; /* tokens of the step in progress */
    int32_t blocks; /* its own */
    int32_t shared, cached;
    uint32_t group;       /* of a prefix that others have too, COMMON_NONE = none */
    int32_t common, base; /* whole blocks of it; of these, read from the group's */
    uint32_t prev, next; /* waiting list */
    unsigned flags;
};

struct engine {
    const struct step_model *model;
    struct engine_options o;
    struct event_sink *sink;
    struct completion_queue *done;

    struct seq *seq;
    uint32_t seqs, seqs_used, free_list;
    uint32_t *running; /* order of admission */
    int64_t nrunning, in_flight;
    uint32_t first, last; /* waiting list; preempted sequences go to the front */
    int64_t nwaiting;

    int64_t free_blocks, kv_tokens;
    struct prefix_cache prefix; /* of participants in a group: the blocks behind the group's */
    struct common_cache common;

    int64_t step_end_ns;
    bool stepping;
    struct engine_counters counters;

    struct cost layers[BUCKETS_MAX], head[BUCKETS_MAX]; /* by padded size 2^i */
    double layers_s[BUCKETS_MAX], head_s[BUCKETS_MAX];
    struct cost *exact; /* BUCKETS_NONE: by tokens, filled on first use */
    double *exact_s;    /* < 0: not yet */
    int64_t layers_steps[BUCKETS_MAX], head_steps[BUCKETS_MAX], *exact_steps; /* how often each was charged */
};

/* ---- completions ---- */

int completion_promise(struct completion_queue *q, struct err *e) {
    if (q->n + q->promised < q->cap) {
        q->promised++;
        return 0;
    }
    size_t cap = q->cap ? q->cap * 2 : 256;
    struct completion *c = calloc(cap, sizeof *c);
    if (!c)
        return err_set(e, ASSAY_ENOMEM, "out of memory for %zu completions", cap);
    for (size_t i = 0; i < q->n; i++)
        c[i] = q->c[(q->head + i) & (q->cap - 1)];
    free(q->c);
    q->c = c;
    q->cap = cap;
    q->head = 0;
    q->promised++;
    return 0;
}

void completion_put(struct completion_queue *q, const struct completion *c) {
    assert(q->n < q->cap && q->promised > 0);
    q->promised--;
    q->c[(q->head + q->n++) & (q->cap - 1)] = *c;
}

int completion_drain(struct completion_queue *q, struct completion *out, int max) {
    int n = 0;
    while (n < max && q->n > 0) {
        out[n++] = q->c[q->head];
        q->head = (q->head + 1) & (q->cap - 1);
        q->n--;
    }
    return n;
}

/* ---- step cost ---- */

static int bucket_index(int64_t n, int64_t least) {
    if (n < least)
        n = least;
    return n <= 1 ? 0 : 64 - __builtin_clzll((unsigned long long)n - 1);
}

static void fill_tables(struct engine *g) {
    int top = bucket_index(g->o.max_batched_tokens, TOKEN_BUCKET_MIN);
    for (int i = 0; i <= top && g->o.buckets == BUCKETS_POW2; i++) {
        step_layers(g->model, INT64_C(1) << i, &g->layers[i]);
        g->layers_s[i] = cost_total(&g->layers[i]);
    }
    top = bucket_index(g->o.max_seqs, ROW_BUCKET_MIN);
    for (int i = 0; i <= top; i++) {
        int64_t rows = INT64_C(1) << i;
        step_head(g->model, rows, &g->head[i]);
        g->head_s[i] = cost_total(&g->head[i]);
    }
}

static double layers_cost(struct engine *g, int64_t tokens, const struct cost **c,
                          int64_t *padded) {
    if (g->o.buckets == BUCKETS_POW2) {
        int i = bucket_index(tokens, TOKEN_BUCKET_MIN);
        *c = &g->layers[i];
        *padded = INT64_C(1) << i;
        g->layers_steps[i]++;
        return g->layers_s[i];
    }
    if (g->exact_s[tokens] < 0) {
        g->exact[tokens] = (struct cost){0};
        step_layers(g->model, tokens, &g->exact[tokens]);
        g->exact_s[tokens] = cost_total(&g->exact[tokens]);
    }
    *c = &g->exact[tokens];
    *padded = tokens;
    g->exact_steps[tokens]++;
    return g->exact_s[tokens];
}

/* What a step holds, summed while it is scheduled. */
struct batch {
    int64_t tokens, rows, decodes, context, window_context;
    struct cost prefill;
};

static int64_t to_ns(double s) {
    return (int64_t)(s * 1e9 + 0.5);
}

static int64_t charge(struct engine *g, const struct batch *b) {
    const struct cost *layers;
    int64_t padded;
    double device = layers_cost(g, b->tokens, &layers, &padded);
    struct cost attention = b->prefill;
    step_decode_attention(g->model, b->decodes, b->context, b->window_context, &attention);
    device += cost_total(&attention);
    struct cost *busy = &g->counters.busy;
    cost_add(busy, layers, 1);
    cost_add(busy, &attention, 1);
    cost_add(&g->counters.attention, &attention, 1);
    if (b->rows > 0) {
        int i = bucket_index(b->rows, ROW_BUCKET_MIN);
        device += g->head_s[i];
        cost_add(busy, &g->head[i], 1);
        g->head_steps[i]++;
    }
    int64_t device_ns = to_ns(device), ns = device_ns + g->o.host_ns;
    if (g->o.async_scheduling)
        ns = device_ns > g->o.host_ns ? device_ns : g->o.host_ns;
    busy->s[BOUND_HOST] += (double)(ns - device_ns) * 1e-9;
    g->counters.steps++;
    g->counters.scheduled_tokens += b->tokens;
    g->counters.padded_tokens += padded;
    return ns > 0 ? ns : 1;
}

double engine_decode_step_s(const struct engine *g, int64_t decodes, int64_t context) {
    struct cost sum = {0};
    step_layers(g->model,
                g->o.buckets == BUCKETS_POW2 ? INT64_C(1) << bucket_index(decodes, TOKEN_BUCKET_MIN)
                                             : decodes,
                &sum);
    step_head(g->model, INT64_C(1) << bucket_index(decodes, ROW_BUCKET_MIN), &sum);
    int64_t window = g->model->model.sliding_window;
    step_decode_attention(g->model, decodes, context,
                          window > 0 && context > window * decodes ? window * decodes : context,
                          &sum);
    double device = cost_total(&sum), host = (double)g->o.host_ns * 1e-9;
    if (g->o.async_scheduling)
        return device > host ? device : host;
    return device + host;
}

/* ---- life ---- */

int engine_new(const struct step_model *model, const struct engine_options *o,
               struct event_sink *sink, struct completion_queue *done, struct engine **out,
               struct err *e) {
    struct engine *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    g->model = model;
    g->o = *o;
    g->sink = sink;
    g->done = done;
    g->first = g->last = g->free_list = NONE;
    g->free_blocks = o->kv_blocks;
    prefix_init(&g->prefix);
    g->running = calloc((size_t)o->max_seqs, sizeof *g->running);
    bool ok = g->running != NULL;
    if (o->buckets == BUCKETS_NONE) {
        size_t n = (size_t)o->max_batched_tokens + 1;
        g->exact = calloc(n, sizeof *g->exact);
        g->exact_s = calloc(n, sizeof *g->exact_s);
        g->exact_steps = calloc(n, sizeof *g->exact_steps);
        ok = ok && g->exact && g->exact_s && g->exact_steps;
        for (size_t i = 0; ok && i < n; i++)
            g->exact_s[i] = -1;
    }
    if (!ok) {
        engine_free(g);
        return err_set(e, ASSAY_ENOMEM, "out of memory for an engine of %lld sequences",
                       (long long)o->max_seqs);
    }
    fill_tables(g);
    *out = g;
    return 0;
}

void engine_free(struct engine *g) {
    if (!g)
        return;
    prefix_release(&g->prefix);
    common_release(&g->common);
    free(g->exact);
    free(g->exact_s);
    free(g->exact_steps);
    free(g->running);
    free(g->seq);
    free(g);
}

/* ---- requests in ---- */

bool engine_fits(const struct engine *g, const struct request *r) {
    int64_t tokens = (int64_t)r->isl + (int64_t)r->osl;
    if (tokens > INT32_MAX || (g->o.max_context > 0 && tokens > g->o.max_context))
        return false;
    return ceil_div(tokens, g->o.block_size) <= g->o.kv_blocks;
}

static int grow_pool(struct engine *g, struct err *e) {
    uint64_t n = g->seqs ? (uint64_t)g->seqs * 2 : 1024;
    if (n > NONE / 2)
        return err_set(e, ASSAY_ENOMEM, "more than %u requests in flight", NONE / 4);
    struct seq *s = realloc(g->seq, n * sizeof *s);
    if (!s)
        return err_set(e, ASSAY_ENOMEM, "out of memory for %llu requests", (unsigned long long)n);
    g->seq = s;
    g->seqs = (uint32_t)n;
    return 0;
}

static void wait_push(struct engine *g, uint32_t i, bool front) {
    struct seq *s = &g->seq[i];
    if (front) {
        s->prev = NONE;
        s->next = g->first;
        if (g->first != NONE)
            g->seq[g->first].prev = i;
        else
            g->last = i;
        g->first = i;
    } else {
        s->next = NONE;
        s->prev = g->last;
        if (g->last != NONE)
            g->seq[g->last].next = i;
        else
            g->first = i;
        g->last = i;
    }
    g->nwaiting++;
}

static void wait_remove(struct engine *g, uint32_t i) {
    struct seq *s = &g->seq[i];
    if (s->prev != NONE)
        g->seq[s->prev].next = s->next;
    else
        g->first = s->next;
    if (s->next != NONE)
        g->seq[s->next].prev = s->prev;
    else
        g->last = s->prev;
    g->nwaiting--;
}

int engine_submit(struct engine *g, const struct request *r, struct err *e) {
    assert(engine_fits(g, r));
    int rc = 0;
    if (g->free_list == NONE && g->seqs_used == g->seqs)
        rc = grow_pool(g, e);
    bool session = r->session != REQUEST_NO_SESSION;
    /* one entry at most for each request in flight, beside those there are */
    if (!rc && g->o.prefix_cache && session)
        rc = prefix_reserve(&g->prefix, (uint32_t)g->in_flight + 1, e);
    uint32_t group = COMMON_NONE;
    /* one that was cut to a short prompt is computed as any other: groups have one length */
    if (!rc && g->o.prefix_cache && r->common >= g->o.block_size && r->common + 1 < r->isl)
        rc = common_get(&g->common, r->common_seed, &group, e);
    if (!rc)
        rc = completion_promise(g->done, e);
    if (rc)
        return rc;
    uint32_t i = g->free_list;
    if (i != NONE)
        g->free_list = g->seq[i].next;
    else
        i = g->seqs_used++;
    int32_t isl = r->isl > 0 ? (int32_t)r->isl : 1; /* an empty prompt still has its first token */
    g->seq[i] = (struct seq){
        .request = r->id,
        .session = r->session ^ (uint64_t)r->branch << 40, /* a branch has a context of its own */
        .isl = isl,
        .osl = (int32_t)r->osl,
        .known = isl,
        .shared = session && (int64_t)r->shared < isl ? (int32_t)r->shared
                  : session                           ? isl - 1
                                                      : 0,
        .group = group,
        .common = group == COMMON_NONE ? 0 : (int32_t)(r->common / g->o.block_size),
        .flags = session && !r->last_turn ? SEQ_KEEP : 0,
    };
    wait_push(g, i, false);
    g->in_flight++;
    return 0;
}

/* ---- blocks ---- */

static bool take_blocks(struct engine *g, int64_t n) {
    if (n <= 0)
        return true;
    if (g->free_blocks < n) {
        int64_t lack = n - g->free_blocks;
        if (lack > g->prefix.blocks + g->common.idle_blocks)
            return false;
        int64_t idle = lack < g->prefix.blocks ? lack : g->prefix.blocks;
        prefix_evict(&g->prefix, idle);
        idle += common_evict(&g->common, lack - idle);
        g->free_blocks += idle;
        g->counters.evictions += idle;
    }
    g->free_blocks -= n;
    int64_t used = g->o.kv_blocks - g->free_blocks;
    if (used > g->counters.peak_blocks)
        g->counters.peak_blocks = used;
    return true;
}

static void release_blocks(struct engine *g, struct seq *s) {
    g->free_blocks += s->blocks;
    g->kv_tokens -= s->computed;
    if (s->base)
        common_detach(&g->common, s->group);
    s->base = 0;
    s->blocks = 0;
    s->computed = 0;
}

static void free_seq(struct engine *g, uint32_t i) {
    struct seq *s = &g->seq[i];
    if (s->flags & SEQ_KEEP && g->o.prefix_cache && !(s->flags & SEQ_CANCELLED)) {
        int64_t whole = s->computed / (int32_t)g->o.block_size - s->common;
        int64_t old = prefix_take(&g->prefix, s->session); /* a client that overlaps its turns */
        g->free_blocks += old;
        if (whole > 0) {
            prefix_keep(&g->prefix, s->session, whole);
            s->blocks -= (int32_t)whole;
        }
    }
    release_blocks(g, s);
    s->next = g->free_list;
    g->free_list = i;
    g->in_flight--;
}

static void fail(struct engine *g, uint32_t i, int64_t now, enum fail_class why) {
    struct seq *s = &g->seq[i];
    event_put(g->sink, now, EVENT_FAIL, s->request, why, 0);
    completion_put(g->done, &(struct completion){.request = s->request,
                                                 .time_ns = now,
                                                 .output_tokens = (uint32_t)(s->known - s->isl),
                                                 .fail_class = (int32_t)why});
    free_seq(g, i);
}

bool engine_cancel(struct engine *g, uint64_t request, int64_t now) {
    for (int64_t r = 0; r < g->nrunning; r++) {
        uint32_t i = g->running[r];
        if (g->seq[i].request != request)
            continue;
        g->seq[i].flags |= SEQ_CANCELLED;
        if (!g->stepping) {
            memmove(&g->running[r], &g->running[r + 1],
                    (size_t)(g->nrunning - r - 1) * sizeof g->running[0]);
            g->nrunning--;
            fail(g, i, now, FAIL_CANCELLED);
        }
        return true;
    }
    for (uint32_t i = g->first; i != NONE; i = g->seq[i].next)
        if (g->seq[i].request == request) {
            g->seq[i].flags |= SEQ_CANCELLED;
            wait_remove(g, i);
            fail(g, i, now, FAIL_CANCELLED);
            return true;
        }
    return false;
}

/* ---- a step ---- */

int64_t engine_step_end(const struct engine *g) {
    return g->stepping ? g->step_end_ns : INT64_MAX;
}

bool engine_has_work(const struct engine *g) {
    return g->nrunning > 0 || g->nwaiting > 0;
}

int64_t engine_in_flight(const struct engine *g) {
    return g->in_flight;
}

static void preempt_last(struct engine *g) {
    uint32_t i = g->running[--g->nrunning];
    release_blocks(g, &g->seq[i]);
    wait_push(g, i, true);
    g->counters.preemptions++;
}

/* Puts n tokens of s into the step. */
static void schedule(struct engine *g, struct seq *s, int32_t n, struct batch *b) {
    int32_t end = s->computed + n;
    s->scheduled = n;
    b->tokens += n;
    b->rows += end == s->known;
    if (n == 1 && s->known > s->isl) { /* decoding; pages are read whole */
        int64_t context = (s->blocks + s->base) * g->o.block_size;
        int64_t window = g->model->model.sliding_window;
        b->decodes++;
        b->context += context;
        b->window_context += window > 0 && context > window ? window : context;
    } else {
        step_prefill_attention(g->model, n, end, &b->prefill);
    }
}

static void schedule_running(struct engine *g, struct batch *b, int64_t *budget, bool *preempted) {
    int32_t block = (int32_t)g->o.block_size;
    for (int64_t r = 0; r<g->nrunning && * budget> 0; r++) {
        struct seq *s = &g->seq[g->running[r]];
        int32_t n = s->known - s->computed;
        if (n > *budget)
            n = (int32_t)*budget;
        int32_t lack = s->computed + n - (s->blocks + s->base) * block;
        if (lack > 0) {
            int32_t need = (lack + block - 1) / block;
            while (!take_blocks(g, need)) {
                preempt_last(g);
                *preempted = true;
                if (g->nrunning == r)
                    return; /* it was this one */
            }
            s->blocks += need;
        }
        schedule(g, s, n, b);
        *budget -= n;
    }
}

/* Whole blocks of its prompt that are still there: of its group's prefix (*base), behind it of its
 * session's context (*hit); at least one token is computed. */
static void find_prefix(const struct engine *g, const struct seq *s, int64_t *base, int64_t *hit) {
    int64_t block = g->o.block_size;
    *base = *hit = 0;
    if (!g->o.prefix_cache)
        return;
    if (s->common) {
        *base = common_blocks(&g->common, s->group);
        if (!*base)
            return; /* what a session kept stands behind it */
    }
    if (s->session == REQUEST_NO_SESSION)
        return;
    int64_t blocks = s->shared / block - s->common, have = prefix_find(&g->prefix, s->session);
    *hit = blocks < have ? blocks : have;
    if ((s->common + *hit) * block >= s->known)
        *hit = (s->known - 1) / block - s->common;
    if (*hit < 0)
        *hit = 0;
}

static void schedule_waiting(struct engine *g, struct batch *b, int64_t *budget) {
    int64_t block = g->o.block_size;
    while (g->first != NONE && *budget > 0 && g->nrunning < g->o.max_seqs) {
        uint32_t i = g->first;
        struct seq *s = &g->seq[i];
        int64_t base, hit;
        find_prefix(g, s, &base, &hit);
        int64_t start = (base + hit) * block, n = s->known - start;
        if (n > *budget)
            n = *budget;
        int64_t need = ceil_div(start + n, block) - base - hit;
        if (base)
            common_attach(&g->common, s->group);
        if (need > g->free_blocks + g->prefix.blocks - hit + g->common.idle_blocks) {
            if (base)
                common_detach(&g->common, s->group);
            return; /* the hit's own blocks cannot be evicted for it */
        }
        int64_t kept = prefix_take(&g->prefix, s->session);
        g->free_blocks += kept - hit;
        bool taken = take_blocks(g, need);
        assert(taken);
        (void)taken;
        s->base = (int32_t)base;
        s->blocks = (int32_t)(hit + need);
        s->computed = (int32_t)start;
        g->kv_tokens += start;
        if (!(s->flags & SEQ_ADMITTED))
            s->cached = (int32_t)start;
        s->flags |= SEQ_ADMITTED;
        g->counters.cached_tokens += start;
        wait_remove(g, i);
        g->running[g->nrunning++] = i;
        schedule(g, s, (int32_t)n, b);
        *budget -= n;
    }
}

/* The first that has computed its group's prefix leaves it to the group. */
static void give_common(struct engine *g, struct seq *s) {
    if (s->base || !s->common || s->computed < s->common * g->o.block_size ||
        common_blocks(&g->common, s->group))
        return;
    common_give(&g->common, s->group, s->common);
    s->base = s->common;
    s->blocks -= s->common;
}

void engine_begin(struct engine *g, int64_t now) {
    assert(!g->stepping && engine_has_work(g));
    struct batch b = {0};
    int64_t budget = g->o.max_batched_tokens;
    bool preempted = false;
    schedule_running(g, &b, &budget, &preempted);
    if (!preempted)
        schedule_waiting(g, &b, &budget);
    assert(b.tokens > 0); /* a lone sequence always fits: engine_fits */
    if (g->nrunning > g->counters.peak_running)
        g->counters.peak_running = g->nrunning;
    g->step_end_ns = now + charge(g, &b);
    g->stepping = true;
}

static void finish(struct engine *g, uint32_t i, int64_t now) {
    struct seq *s = &g->seq[i];
    if (s->cached > 0)
        event_put(g->sink, now, EVENT_USAGE, s->request, s->cached, 0);
    int32_t n = s->known - s->isl;
    event_put(g->sink, now, EVENT_DONE, s->request, n, s->isl);
    completion_put(
        g->done,
        &(struct completion){.request = s->request, .time_ns = now, .output_tokens = (uint32_t)n});
    free_seq(g, i);
}

void engine_end(struct engine *g) {
    assert(g->stepping);
    int64_t now = g->step_end_ns, keep = 0;
    g->stepping = false;
    for (int64_t r = 0; r < g->nrunning; r++) {
        uint32_t i = g->running[r];
        struct seq *s = &g->seq[i];
        s->computed += s->scheduled;
        g->kv_tokens += s->scheduled;
        give_common(g, s);
        if (s->flags & SEQ_CANCELLED) {
            fail(g, i, now, FAIL_CANCELLED);
            continue;
        }
        if (s->scheduled && s->computed == s->known) {
            s->scheduled = 0;
            if (s->osl > 0) {
                s->known++;
                event_put(g->sink, now, EVENT_TOKENS, s->request, 1, 0);
            }
            if (s->known - s->isl >= s->osl) {
                finish(g, i, now);
                continue;
            }
        }
        s->scheduled = 0;
        g->running[keep++] = i;
    }
    g->nrunning = keep;
}

void engine_count(const struct engine *g, struct engine_counters *c) {
    *c = g->counters;
    c->free_blocks = g->free_blocks;
    c->idle_blocks = g->prefix.blocks + g->common.idle_blocks;
    c->waiting = g->nwaiting;
    c->running = g->nrunning;
    c->kv_tokens = g->kv_tokens;
}

void engine_explain(const struct engine *g, struct explain *x) {
    for (int i = 0; i < BUCKETS_MAX; i++) {
        int64_t n = INT64_C(1) << i;
        if (g->layers_steps[i])
            explain_add(x, &(struct graph_step){n, 0}, STEP_LAYERS, (double)g->layers_steps[i]);
        if (g->head_steps[i])
            explain_add(x, &(struct graph_step){0, n}, STEP_HEAD, (double)g->head_steps[i]);
    }
    for (int64_t n = 1; g->exact_steps && n <= g->o.max_batched_tokens; n++)
        if (g->exact_steps[n])
            explain_add(x, &(struct graph_step){n, 0}, STEP_LAYERS, (double)g->exact_steps[n]);
}
