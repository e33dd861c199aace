/* Collectives on an ideal ring: payload, bytes sent, steps, per device. What a torus does with
 * several axes belongs to the chip. */
#include "workloads/hlo/cost_internal.h"

#include "harness/core/int128.h"

/* b · (g-1)/g, rounded up. */
static int64_t all_but_one(int64_t b, int64_t g) {
    return (int64_t)(((i128)b * (g - 1) + g - 1) / g);
}

/* How an op spreads b bytes of operands over a group of g > 1: bytes sent and steps. */
struct ring {
    enum hlo_opcode op;
    int rounds; /* times (g-1)/g of the payload */
    bool gathers, bound;
};

static const struct ring rings[] = {
    {HLO_ALL_GATHER, 0, true, false}, /* (g-1) · operand */
    {HLO_REDUCE_SCATTER, 1, false, false},
    {HLO_ALL_REDUCE, 2, false, false}, /* a reduce-scatter and an all-gather */
    {HLO_ALL_TO_ALL, 1, false, false},
    {HLO_COLLECTIVE_REDUCE, 1, false, true}, /* at most */
    {HLO_RAGGED_ALL_TO_ALL, 1, false, true}, /* what is sent stands in operands */
};

bool hlo_traffic(const struct hlo_module *m, const struct hlo_computation *c,
                 const struct hlo_instr *i, struct hlo_traffic *t) {
    *t = (struct hlo_traffic){.op = hlo_instr_wrapped(m, c, i), .pairs = -1};
    bool wraps = i->opcode == HLO_ASYNC_START && hlo_callee(c, i, HLO_KEY_CALLS) != UINT32_MAX;
    if (hlo_opcode_class(t->op) != HLO_CLASS_COLLECTIVE || wraps)
        return false; /* what async-start wraps is counted where it stands */
    int64_t unsized = 0;
    for (uint32_t k = 0; k < i->noperands; k++) {
        int64_t b = hlo_operand(c, i, k)->shape->bytes;
        unsized |= b < 0;
        if (b < 0 || __builtin_add_overflow(t->payload_bytes, b, &t->payload_bytes))
            unsized = 1;
        if (t->op == HLO_RAGGED_ALL_TO_ALL)
            break; /* the others are the result's memory, offsets and sizes */
    }
    struct str s;
    t->bound = unsized;
    if (unsized)
        t->payload_bytes = 0;
    if (hlo_groups(m, c, i, &t->groups, NULL))
        return false; /* refused when it was read */
    if (hlo_attr(m, c, i, HLO_KEY_SOURCE_TARGET_PAIRS, &s))
        t->pairs = hlo_pairs(s, NULL, 0);
    t->group_size = t->groups.groups ? t->groups.max_size : hlo_participants(m, c, i);
    if (t->op == HLO_COLLECTIVE_PERMUTE) {
        t->group_size = 1;
        t->steps = t->pairs > 0;
        t->sent_bytes = t->pairs > 0 ? t->payload_bytes : 0;
        return true;
    }
    if (t->group_size <= 1)
        return true;
    if (t->op == HLO_COLLECTIVE_BROADCAST) {
        t->steps = 1;
        t->sent_bytes = t->payload_bytes;
        return true;
    }
    for (size_t k = 0; k < sizeof rings / sizeof *rings; k++) {
        const struct ring *r = &rings[k];
        int64_t g = t->group_size, part;
        if (r->op != t->op)
            continue;
        t->bound |= r->bound;
        part = all_but_one(t->payload_bytes, g);
        if (r->gathers ? __builtin_mul_overflow(t->payload_bytes, g - 1, &t->sent_bytes)
                       : __builtin_mul_overflow(part, r->rounds, &t->sent_bytes))
            t->sent_bytes = INT64_MAX;
        t->steps = r->gathers ? g - 1 : r->rounds * (g - 1);
    }
    return true;
}

/* XLA: an all-reduce adds two, all else computes nothing. The model: g-1 of g elements are added,
 * and the result is as large as the op makes it, whatever shape the -start has. */
void price_collective(struct pricing *x, const struct hlo_instr *i, struct hlo_cost *out) {
    struct hlo_traffic t;
    if (!hlo_traffic(x->m, x->c, i, &t)) {
        x->unknown = true;
        return;
    }
    if (x->rule == HLO_RULE_XLA) {
        out->v[HLO_BYTES] = default_bytes(x, i);
        if (t.op == HLO_ALL_REDUCE) {
            out->v[HLO_FLOPS] = count_of(x, i->shape);
            out->v[HLO_BYTES] =
                add(x, out->v[HLO_BYTES], leaf_bytes_of(x, i->shape) - bytes_of(x, i->shape));
        }
        return;
    }
    int64_t result = t.payload_bytes, elements = 0;
    if (t.op == HLO_ALL_GATHER)
        result = mul(x, result, t.group_size);
    else if (t.op == HLO_REDUCE_SCATTER && t.group_size > 1)
        result /= t.group_size;
    for (uint32_t k = 0; k < i->noperands; k++)
        elements = add(x, elements, count_of(x, operand(x, i, k)->shape));
    if ((t.op == HLO_ALL_REDUCE || t.op == HLO_REDUCE_SCATTER) && t.group_size > 1)
        out->v[HLO_FLOPS] = all_but_one(elements, t.group_size);
    out->v[HLO_BYTES] = add(x, t.payload_bytes, result);
    out->v[HLO_PAYLOAD_BYTES] = t.payload_bytes;
    out->v[HLO_SENT_BYTES] = t.sent_bytes;
    x->overflow |= t.sent_bytes == INT64_MAX;
    x->unknown |= t.bound;
}
