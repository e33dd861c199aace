/* Plans: opening, and single requests from distributions. Sessions are in plan_sessions.c, traces
 * in plan_trace.c. Nothing here depends on time or on what was issued before. */
#include "workloads/dist.h"
#include "workloads/plan_internal.h"

#include <stdlib.h>
#include <string.h>

uint64_t plan_content_seed(uint64_t seed, uint64_t stream, uint64_t index) {
    uint64_t s = seed ^ (stream << 56);
    uint64_t t = splitmix64(&s) ^ index;
    return splitmix64(&t);
}

void plan_lone_request(struct request *r, uint64_t id) {
    memset(r, 0, sizeof *r);
    r->id = id;
    r->session = REQUEST_NO_SESSION;
    r->last_turn = true;
    r->turns = 1;
    r->arrival_ns = -1;
}

void plan_share_prefix(const struct workload *w, uint64_t index, struct request *r) {
    if (!w->shared_prefix_tokens || r->isl < 2)
        return;
    uint64_t group = 0;
    if (w->shared_prefix_groups > 1) {
        struct rng rng = rng_at(w->seed, STREAM_PREFIX, index);
        group = rng_below(&rng, (uint64_t)w->shared_prefix_groups);
    }
    r->common = w->shared_prefix_tokens < r->isl ? (uint32_t)w->shared_prefix_tokens : r->isl - 1;
    r->common_seed = plan_content_seed(w->seed, STREAM_PREFIX, group);
}

/* One length as numpy's legacy randint(lo, hi + 1) draws it: nothing is drawn when lo == hi. */
static uint32_t draw_ratio(const struct dist *d, struct mt19937 *mt) {
    return (uint32_t)mt_range(mt, (int64_t)d->min, (int64_t)d->max + 1);
}

/* The measured request k's lengths; k never decreases. One generator draws all input
 * lengths, then all output lengths. Source: SemiAnalysisAI/InferenceX,
 * utils/bench_serving/benchmark_serving.py. */
static void ratio_lengths(struct plan *p, uint64_t k, uint32_t *isl, uint32_t *osl) {
    for (; p->drawn <= k; p->drawn++) {
        p->isl = draw_ratio(&p->w->isl, &p->isl_mt);
        p->osl = draw_ratio(&p->w->osl, &p->osl_mt);
    }
    *isl = p->isl;
    *osl = p->osl;
}

static int single_open(struct plan *p, struct err *e) {
    const struct workload *w = p->w;
    (void)e;
    p->ratio = w->isl.kind == DIST_RANGE_RATIO || w->osl.kind == DIST_RANGE_RATIO;
    if (!p->ratio)
        return 0;
    mt_seed(&p->isl_mt, (uint32_t)w->seed);
    p->osl_mt = p->isl_mt;
    if (w->isl.min < w->isl.max)
        for (uint64_t i = 0; i < p->measured; i++)
            draw_ratio(&w->isl, &p->osl_mt);
    ratio_lengths(p, 0, &p->first_isl, &p->first_osl);
    return 0;
}

static int single_next(struct plan *p, struct request *r, bool *end, struct err *e) {
    const struct workload *w = p->w;
    uint64_t id = p->next;
    (void)e;
    *end = id >= p->warmup && id - p->warmup >= p->measured;
    if (*end)
        return 0;
    p->next += p->shards;
    plan_lone_request(r, id);
    uint64_t content = id;
    if (p->ratio && id < p->warmup) {
        content = p->warmup; /* a copy of the first measured request */
        r->isl = p->first_isl;
        r->osl = p->first_osl;
    } else if (p->ratio) {
        ratio_lengths(p, id - p->warmup, &r->isl, &r->osl);
    } else if (w->isl.kind == DIST_FIXED && w->osl.kind == DIST_FIXED) {
        r->isl = (uint32_t)w->isl.value;
        r->osl = (uint32_t)w->osl.value;
    } else {
        struct rng rng = rng_at(w->seed, STREAM_REQUEST, id);
        r->isl = (uint32_t)dist_draw(&w->isl, &rng);
        r->osl = (uint32_t)dist_draw(&w->osl, &rng);
    }
    r->content_seed = plan_content_seed(w->seed, STREAM_CONTENT, content);
    plan_share_prefix(w, content, r);
    return 0;
}

static int64_t single_total(const struct plan *p) {
    return p->measured == UINT64_MAX ? -1 : (int64_t)(p->warmup + p->measured);
}

const struct plan_source plan_single = {single_open, single_next, NULL, single_total, NULL};

int plan_open(const struct workload *w, uint32_t shard, uint32_t shards, struct plan **out,
              struct err *e) {
    *out = NULL;
    if (shards == 0 || shard >= shards)
        return err_set(e, ASSAY_EUSAGE, "expected a shard below %u, found %u", shards, shard);
    struct plan *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    p->w = w;
    p->shard = shard;
    p->shards = shards;
    p->next = shard;
    p->warmup = (uint64_t)w->warmup_requests;
    p->measured = w->requests ? (uint64_t)w->requests : UINT64_MAX;
    p->source = w->trace_path                 ? &plan_trace
                : workload_has_sessions(w) ? &plan_sessions
                                              : &plan_single;
    if (w->trace_path && workload_has_sessions(w))
        p->source = &plan_replay;
    if (w->kind == WORKLOAD_TRAINING) {
        p->warmup = p->measured = 0;
        p->source = &plan_single;
    }
    int rc = p->source->open ? p->source->open(p, e) : 0;
    if (rc) {
        plan_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

int plan_next(struct plan *p, struct request *r, bool *end, struct err *e) {
    return p->source->next(p, r, end, e);
}

int plan_push_ready(struct plan *p, const struct request *r, int64_t at_ns, struct err *e) {
    if (p->ready_at == p->nready)
        p->ready_at = p->nready = 0;
    if (p->nready == p->ready_cap) {
        size_t cap = p->ready_cap ? 2 * p->ready_cap : 16;
        struct plan_ready *q = realloc(p->ready, cap * sizeof *q);
        if (!q)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        p->ready = q;
        p->ready_cap = cap;
    }
    p->ready[p->nready].request = *r;
    p->ready[p->nready++].at_ns = at_ns;
    return 0;
}

int plan_done(struct plan *p, const struct request *done, int64_t end_ns, uint32_t output_tokens,
              bool failed, bool *over, struct err *e) {
    *over = true;
    if (done->session == REQUEST_NO_SESSION || !p->source->done)
        return 0;
    return p->source->done(p, done, end_ns, output_tokens, failed, over, e);
}

bool plan_take(struct plan *p, struct request *r, int64_t *at_ns) {
    if (p->ready_at == p->nready)
        return false;
    *r = p->ready[p->ready_at].request;
    *at_ns = p->ready[p->ready_at++].at_ns;
    return true;
}

int plan_walk(struct plan *p, bool (*fn)(void *ctx, const struct request *r), void *ctx,
              bool *whole, struct err *e) {
    *whole = false;
    for (;;) {
        struct request r;
        bool end, over;
        int64_t at_ns;
        int rc = plan_next(p, &r, &end, e);
        *whole = !rc && end;
        if (rc || end)
            return rc;
        do {
            if (!fn(ctx, &r))
                return 0;
            if ((rc = plan_done(p, &r, 0, r.osl, false, &over, e)))
                return rc;
        } while (plan_take(p, &r, &at_ns));
    }
}

int64_t plan_total(const struct plan *p) {
    return p->source->total(p);
}

void plan_close(struct plan *p) {
    if (!p)
        return;
    if (p->source->close)
        p->source->close(p);
    free(p->ready);
    free(p);
}
