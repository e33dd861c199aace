/* Costs of a module: computations in their order, each after those it calls, so that nothing
 * recurses; then how often each runs. */
#include "workloads/hlo/cost_internal.h"

#include <stdlib.h>
#include <string.h>

const char *const hlo_property_names[HLO_PROPERTIES] = {
    "flops",        "transcendentals", "bytes_accessed", "dot_flops",   "convolution_flops",
    "kernel_flops", "payload_bytes",   "sent_bytes",     "unknown_ops",
};

static int overflow(const struct hlo_module *m, const struct hlo_computation *c,
                    const struct hlo_instr *i, struct err *e) {
    struct str name = hlo_instr_name(m, i);
    return err_set(e, ASSAY_EINPUT,
                   "module '%.*s': the cost of '%.*s' in computation '%.*s' does not fit 63 bits",
                   (int)(m->name.n > 80 ? 80 : m->name.n), m->name.p,
                   (int)(name.n > 80 ? 80 : name.n), name.p, (int)(c->name.n > 80 ? 80 : c->name.n),
                   c->name.p);
}

static int price(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out,
                 struct err *e) {
    *out = (struct hlo_cost){{0}};
    x->overflow = x->unknown = false;
    hlo_prices[hlo_opcode_class((enum hlo_opcode)i->opcode)](x, i, out);
    if (x->unknown)
        out->v[HLO_UNKNOWN_OPS] = add(x, out->v[HLO_UNKNOWN_OPS], 1);
    return x->overflow ? overflow(x->m, x->c, i, e) : 0;
}

static int price_computation(struct analysis *a, uint32_t k, enum hlo_rule rule, struct err *e) {
    const struct hlo_module *m = a->pub.m;
    struct pricing x = {.a = a, .m = m, .c = &m->computations[k], .rule = rule};
    struct hlo_cost one, *total = &a->total[rule][k];
    for (uint32_t j = 0; j < x.c->n; j++) {
        int rc = price(&x, &x.c->instrs[j], &one, e);
        if (rc)
            return rc;
        hlo_cost_add(&x, total, &one, 1);
        if (x.overflow)
            return overflow(m, x.c, &x.c->instrs[j], e);
    }
    if (a->fused[rule][k].reads) {
        x.overflow = x.unknown = false;
        fused_reads(&x, &a->fused[rule][k]);
        if (x.overflow)
            return overflow(m, x.c, &x.c->instrs[x.c->root], e);
    }
    return 0;
}

static void *take(struct analysis *a, size_t n, size_t size, bool *bad) {
    void *p = arena_alloc(&a->arena, n ? n : 1, size);
    *bad |= !p;
    return p;
}

/* Finds the whiles and the computations that are fused. */
static bool survey(struct analysis *a) {
    const struct hlo_module *m = a->pub.m;
    bool bad = false;
    uint32_t loops = 0;
    for (uint32_t k = 0; k < m->n; k++)
        for (uint32_t j = 0; j < m->computations[k].n; j++)
            loops += m->computations[k].instrs[j].opcode == HLO_WHILE;
    a->loops = take(a, loops, sizeof *a->loops, &bad);
    a->multiplicity = take(a, m->n, sizeof *a->multiplicity, &bad);
    for (int r = 0; r < HLO_RULES; r++) {
        a->total[r] = take(a, m->n, sizeof *a->total[r], &bad);
        a->fused[r] = take(a, m->n, sizeof *a->fused[r], &bad);
    }
    for (uint32_t k = 0; k < m->n && !bad; k++) {
        const struct hlo_computation *c = &m->computations[k];
        for (uint32_t j = 0; j < c->n && !bad; j++) {
            const struct hlo_instr *i = &c->instrs[j];
            if (i->opcode == HLO_WHILE) {
                struct hlo_loop *l = &a->loops[a->pub.nloops++];
                *l = (struct hlo_loop){.computation = k, .instr = j};
                l->trips = loop_trips(m, k, i, &l->told);
            }
            uint32_t callee =
                i->opcode == HLO_FUSION ? hlo_callee(c, i, HLO_KEY_CALLS) : UINT32_MAX;
            for (int r = 0; r < HLO_RULES && callee != UINT32_MAX; r++) {
                struct fused *f = &a->fused[r][callee];
                uint32_t n = m->computations[callee].nparameters;
                if (f->reads)
                    continue;
                f->reads = take(a, n, sizeof *f->reads, &bad);
                f->shared = take(a, n, sizeof *f->shared, &bad);
            }
        }
    }
    return !bad;
}

/* Runs of a callee for one run of the call; 0: it is priced by the op that calls it. */
static int64_t runs(const struct hlo_instr *i, uint32_t key, int64_t trips) {
    switch (i->opcode) {
    case HLO_CALL:
    case HLO_FUSION:
    case HLO_ASYNC_START:
    case HLO_CONDITIONAL:
        return 1;
    case HLO_WHILE:
        return key == HLO_KEY_BODY ? trips : trips + 1;
    default:
        return 0;
    }
}

static int multiply(struct analysis *a, struct err *e) {
    const struct hlo_module *m = a->pub.m;
    uint32_t loop = a->pub.nloops;
    a->multiplicity[m->entry] = 1;
    for (uint32_t k = m->n; k-- > 0;) {
        const struct hlo_computation *c = &m->computations[k];
        for (uint32_t j = c->n; j-- > 0;) {
            const struct hlo_instr *i = &c->instrs[j];
            int64_t trips = i->opcode == HLO_WHILE ? a->loops[--loop].trips : 1;
            trips = trips < 0 ? 1 : trips;
            for (uint16_t q = 0; q < i->ncallees && a->multiplicity[k]; q++) {
                const struct hlo_callee *callee = &c->callees[i->callees + q];
                int64_t *out = &a->multiplicity[callee->computation], times;
                if (__builtin_mul_overflow(a->multiplicity[k], runs(i, callee->key, trips),
                                           &times) ||
                    __builtin_add_overflow(*out, times, out))
                    return overflow(m, c, i, e);
            }
        }
    }
    return 0;
}

int hlo_analyse(const struct hlo_module *m, const struct hlo_kernel *kernels,
                struct hlo_analysis **out, struct err *e) {
    struct analysis *a = calloc(1, sizeof *a);
    if (!a)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    a->pub.m = m;
    a->pub.kernels = kernels;
    int rc = survey(a) ? 0 : err_set(e, ASSAY_ENOMEM, "out of memory");
    a->pub.loops = a->loops;
    a->pub.multiplicity = a->multiplicity;
    for (int r = 0; r < HLO_RULES && !rc; r++) {
        a->pub.total[r] = a->total[r];
        for (uint32_t k = 0; k < m->n && !rc; k++)
            rc = price_computation(a, k, (enum hlo_rule)r, e);
    }
    if (!rc)
        rc = multiply(a, e);
    if (rc)
        hlo_analysis_free(&a->pub);
    else
        *out = &a->pub;
    return rc;
}

void hlo_analysis_free(struct hlo_analysis *pub) {
    if (!pub)
        return;
    struct analysis *a = (struct analysis *)pub; /* its first member */
    arena_release(&a->arena);
    free(a);
}

int hlo_cost_of(const struct hlo_analysis *pub, uint32_t computation, uint32_t instr,
                enum hlo_rule rule, struct hlo_cost *out, struct err *e) {
    const struct analysis *a = (const struct analysis *)pub;
    const struct hlo_module *m = pub->m;
    struct pricing x = {.a = a, .m = m, .c = &m->computations[computation], .rule = rule};
    return price(&x, &x.c->instrs[instr], out, e);
}
