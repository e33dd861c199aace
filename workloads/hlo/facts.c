/* Counting a module. */
#include "workloads/hlo/facts.h"

#include <stdlib.h>
#include <string.h>

enum { KINDS_MAX = 16 }; /* of collectives: the opcodes of that class are fewer */

static int too_large(struct err *e) {
    return err_set(e, ASSAY_EINPUT, "the sums over the module do not fit 63 bits");
}

static int memory(struct err *e) {
    return err_set(e, ASSAY_ENOMEM, "out of memory");
}

/* sum += times · n */
static bool accumulate(int64_t *sum, int64_t times, int64_t n) {
    int64_t product;
    return !__builtin_mul_overflow(times, n, &product) &&
           !__builtin_add_overflow(*sum, product, sum);
}

static int count_collective(const struct hlo_analysis *a, const struct hlo_computation *c,
                            const struct hlo_instr *i, int64_t times, struct hlo_facts *f,
                            struct err *e) {
    struct hlo_traffic t;
    if (!hlo_traffic(a->m, c, i, &t))
        return 0;
    struct hlo_collective_fact *k = f->collectives;
    while (k < f->collectives + f->ncollectives && k->op != t.op)
        k++;
    if (k == f->collectives + f->ncollectives) {
        f->ncollectives++;
        k->op = t.op;
    }
    k->count++;
    if (t.group_size > k->max_group)
        k->max_group = t.group_size;
    bool fits = accumulate(&k->operand_bytes, 1, t.payload_bytes) &&
                accumulate(&k->executed, times, 1) &&
                accumulate(&k->executed_payload_bytes, times, t.payload_bytes) &&
                accumulate(&k->executed_sent_bytes, times, t.sent_bytes);
    return fits ? 0 : too_large(e);
}

/* A list that is searched from its end: modules have few names, and equal ones stand together. */
static struct hlo_name_fact *name_fact(struct arena *arena, struct hlo_name_fact **list, size_t *n,
                                       size_t *cap, struct str name) {
    for (size_t k = *n; k-- > 0;)
        if ((*list)[k].name.n == name.n && !memcmp((*list)[k].name.p, name.p, name.n))
            return &(*list)[k];
    if (*n == *cap) {
        size_t more = *cap ? 2 * *cap : 16;
        struct hlo_name_fact *bigger = arena_alloc(arena, more, sizeof *bigger);
        if (!bigger)
            return NULL;
        if (*n)
            memcpy(bigger, *list, *n * sizeof *bigger);
        *list = bigger;
        *cap = more;
    }
    struct hlo_name_fact *fact = &(*list)[(*n)++];
    *fact = (struct hlo_name_fact){.name = name};
    return fact;
}

struct counting {
    const struct hlo_analysis *a;
    struct arena *arena;
    struct hlo_facts *f;
    size_t targets_cap, opcodes_cap;
};

static int count_named(struct counting *n, const struct hlo_computation *c,
                       const struct hlo_instr *i, int64_t times, struct err *e) {
    struct hlo_facts *f = n->f;
    const struct hlo_module *m = n->a->m;
    enum hlo_opcode op = hlo_instr_wrapped(m, c, i);
    bool custom = op == HLO_CUSTOM_CALL && (i->opcode == op || !i->ncallees);
    struct str name = hlo_instr_opcode(m, c, i);
    if (custom && !hlo_attr(m, c, i, HLO_KEY_CUSTOM_CALL_TARGET, &name))
        name = (struct str){"", 0};
    if (!custom && i->opcode != HLO_UNKNOWN)
        return 0;
    struct hlo_name_fact *fact =
        custom
            ? name_fact(n->arena, &f->targets, &f->ntargets, &n->targets_cap, hlo_unquote(name))
            : name_fact(n->arena, &f->unknown_opcodes, &f->nunknown_opcodes, &n->opcodes_cap, name);
    if (!fact)
        return memory(e);
    const struct hlo_kernel *kernel = NULL;
    if (custom) {
        struct hlo_call call = {m, c, i, hlo_instr_name(m, i), {NULL, 0}};
        struct hlo_cost cost = {{0}};
        hlo_attr(m, c, i, HLO_KEY_BACKEND_CONFIG, &call.config);
        kernel = hlo_kernel_of(n->a->kernels, &call, &cost);
    }
    fact->count++;
    fact->source = kernel ? kernel->source : NULL;
    return accumulate(&fact->executed, times, 1) && accumulate(&fact->unknown, times, !kernel)
               ? 0
               : too_large(e);
}

static int count_instr(struct counting *n, uint32_t k, uint32_t j, struct err *e) {
    struct hlo_facts *f = n->f;
    const struct hlo_computation *c = &n->a->m->computations[k];
    const struct hlo_instr *i = &c->instrs[j];
    int64_t times = n->a->multiplicity[k];
    enum hlo_class class = hlo_opcode_class((enum hlo_opcode)i->opcode);
    struct hlo_cost cost;
    f->instructions++;
    f->opcodes[i->opcode]++;
    f->with_sharding += hlo_attr(n->a->m, c, i, HLO_KEY_SHARDING, NULL);
    int rc = 0;
    if (class == HLO_CLASS_DOT || class == HLO_CLASS_CONVOLUTION) {
        if ((rc = hlo_cost_of(n->a, k, j, HLO_RULE_MODEL, &cost, e)))
            return rc;
        if (!accumulate(&f->static_dot_flops, 1, cost.v[HLO_DOT_FLOPS]) ||
            !accumulate(&f->static_convolution_flops, 1, cost.v[HLO_CONVOLUTION_FLOPS]))
            return too_large(e);
    }
    if (class == HLO_CLASS_COLLECTIVE || class == HLO_CLASS_ASYNC)
        rc = count_collective(n->a, c, i, times, f, e);
    if (!rc)
        rc = count_named(n, c, i, times, e);
    return rc;
}

static int descending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static int count_loops(struct counting *n, struct err *e) {
    struct hlo_facts *f = n->f;
    f->loops = n->a->nloops;
    f->trips = arena_alloc(n->arena, n->a->nloops ? n->a->nloops : 1, sizeof *f->trips);
    if (!f->trips)
        return memory(e);
    for (uint32_t k = 0; k < n->a->nloops; k++) {
        const struct hlo_loop *l = &n->a->loops[k];
        if (!n->a->multiplicity[l->computation])
            continue;
        if (l->trips < 0)
            f->unknown_trips++;
        else
            f->trips[f->ntrips++] = l->trips;
    }
    qsort(f->trips, f->ntrips, sizeof *f->trips, descending);
    return 0;
}

int hlo_facts(const struct hlo_analysis *a, struct arena *arena, struct hlo_facts *f,
              struct err *e) {
    const struct hlo_module *m = a->m;
    const struct hlo_computation *entry = &m->computations[m->entry];
    struct counting n = {.a = a, .arena = arena, .f = f};
    *f = (struct hlo_facts){
        .computations = m->n,
        .entry_instructions = entry->n,
        .entry_parameters = entry->nparameters,
        .entry_result_bytes = entry->instrs[entry->root].shape->bytes,
        .alias_entries = hlo_alias_entries(m),
        .executed = a->total[HLO_RULE_MODEL][m->entry],
        .xla = a->total[HLO_RULE_XLA][m->entry],
        .scope = hlo_scope(m),
    };
    f->collectives = arena_alloc(arena, KINDS_MAX, sizeof *f->collectives);
    if (!f->collectives)
        return memory(e);
    for (uint32_t j = 0; j < entry->n; j++) {
        int64_t bytes = entry->instrs[j].shape->bytes;
        if (entry->instrs[j].opcode == HLO_PARAMETER && bytes > 0 &&
            !accumulate(&f->entry_parameter_bytes, 1, bytes))
            return too_large(e);
    }
    for (uint32_t k = 0; k < m->n; k++)
        for (uint32_t j = 0; j < m->computations[k].n; j++) {
            int rc = count_instr(&n, k, j, e);
            if (rc)
                return rc;
        }
    return count_loops(&n, e);
}

/* ---- the costliest ---- */

static bool is_leaf(const struct hlo_instr *i) {
    switch (hlo_opcode_class((enum hlo_opcode)i->opcode)) {
    case HLO_CLASS_CALL:
    case HLO_CLASS_WHILE:
    case HLO_CLASS_CONDITIONAL:
        return false;
    case HLO_CLASS_ASYNC:
        return !i->ncallees;
    default:
        return true;
    }
}

int hlo_top(const struct hlo_analysis *a, enum hlo_property by, struct hlo_top *top, size_t max,
            size_t *n, struct err *e) {
    const struct hlo_module *m = a->m;
    uint8_t *fused = calloc(m->n, 1); /* the inside of a fusion belongs to the fusion */
    int rc = fused ? 0 : memory(e);
    *n = 0;
    for (uint32_t k = 0; k < m->n && !rc; k++)
        for (uint32_t j = 0; j < m->computations[k].n; j++) {
            const struct hlo_instr *i = &m->computations[k].instrs[j];
            if (i->opcode == HLO_FUSION)
                fused[hlo_callee(&m->computations[k], i, HLO_KEY_CALLS)] = 1;
        }
    for (uint32_t k = 0; k < m->n && !rc; k++) {
        for (uint32_t j = 0; j < m->computations[k].n && !rc; j++) {
            struct hlo_top t = {k, j, a->multiplicity[k], {{0}}};
            if (fused[k] || !t.executed || !is_leaf(&m->computations[k].instrs[j]))
                continue;
            rc = hlo_cost_of(a, k, j, HLO_RULE_MODEL, &t.cost, e);
            for (int p = 0; p < HLO_PROPERTIES && !rc; p++)
                if (__builtin_mul_overflow(t.cost.v[p], t.executed, &t.cost.v[p]))
                    rc = too_large(e);
            if (rc || t.cost.v[by] <= 0)
                continue;
            size_t at = *n;
            while (at && top[at - 1].cost.v[by] < t.cost.v[by])
                at--;
            if (at == max)
                continue;
            size_t tail = (*n < max ? *n : max - 1) - at;
            memmove(&top[at + 1], &top[at], tail * sizeof *top);
            top[at] = t;
            *n += *n < max;
        }
    }
    free(fused);
    return rc;
}
