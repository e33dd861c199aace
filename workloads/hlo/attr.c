/* Attributes decoded from their slices, and small questions about instructions. */
#include "workloads/hlo/hlo_internal.h"

/* ---- a cursor over a slice ---- */
struct cursor {
    const char *p, *end;
};

static void blanks(struct cursor *c) {
    while (c->p < c->end && is(*c->p, CH_SPACE))
        c->p++;
    if (c->end - c->p >= 4 && c->p[0] == '/' && c->p[1] == '*') {
        const char *q = c->p + 2;
        while (q + 1 < c->end && (q[0] != '*' || q[1] != '/'))
            q++;
        if (q + 1 < c->end) {
            c->p = q + 2;
            blanks(c);
        }
    }
}

static bool take(struct cursor *c, char want) {
    blanks(c);
    if (c->p >= c->end || *c->p != want)
        return false;
    c->p++;
    return true;
}

static bool take_int(struct cursor *c, int64_t *v) {
    blanks(c);
    const char *q = c->p;
    bool negative = q < c->end && *q == '-';
    int64_t n = 0;
    q += negative;
    if (q >= c->end || !is(*q, CH_DIGIT))
        return false;
    for (; q < c->end && is(*q, CH_DIGIT); q++) {
        int64_t digit = *q - '0';
        if (__builtin_mul_overflow(n, 10, &n) || (negative ? __builtin_sub_overflow(n, digit, &n)
                                                           : __builtin_add_overflow(n, digit, &n)))
            return false;
    }
    *v = n;
    c->p = q;
    return true;
}

bool hlo_int(struct str s, int64_t *v) {
    struct cursor c = {s.p, s.p + s.n};
    int64_t n;
    if (!take_int(&c, &n))
        return false;
    blanks(&c);
    if (c.p != c.end)
        return false;
    *v = n;
    return true;
}

bool hlo_ints(struct str s, int64_t *v, size_t max, size_t *n) {
    struct cursor c = {s.p, s.p + s.n};
    *n = 0;
    if (!take(&c, '{'))
        return false;
    if (take(&c, '}'))
        return true;
    do {
        if (*n == max || !take_int(&c, &v[*n]))
            return false;
        ++*n;
    } while (take(&c, ','));
    return take(&c, '}');
}

struct str hlo_unquote(struct str s) {
    if (s.n >= 2 && (*s.p == '"' || *s.p == '\'') && s.p[s.n - 1] == *s.p)
        return (struct str){s.p + 1, s.n - 2};
    return s;
}

/* ---- instructions ---- */

const struct hlo_instr *hlo_operand(const struct hlo_computation *c, const struct hlo_instr *i,
                                    uint32_t n) {
    return &c->instrs[c->operands[i->operands + n]];
}

struct str hlo_instr_name(const struct hlo_module *m, const struct hlo_instr *i) {
    return (struct str){m->text + i->name_at, i->name_n};
}

bool hlo_attr(const struct hlo_module *m, const struct hlo_computation *c,
              const struct hlo_instr *i, enum hlo_key key, struct str *value) {
    for (uint16_t k = 0; k < i->nattrs; k++) {
        const struct hlo_attr *a = &c->attrs[i->attrs + k];
        if (a->key == key) {
            if (value)
                *value = (struct str){m->text + a->at, a->n};
            return true;
        }
    }
    return false;
}

struct str hlo_instr_opcode(const struct hlo_module *m, const struct hlo_computation *c,
                            const struct hlo_instr *i) {
    struct str s;
    if (hlo_attr(m, c, i, HLO_KEY_OPCODE, &s))
        return s;
    const char *name = hlo_opcode_name((enum hlo_opcode)i->opcode);
    return (struct str){name, strlen(name)};
}

enum hlo_opcode hlo_instr_wrapped(const struct hlo_module *m, const struct hlo_computation *c,
                                  const struct hlo_instr *i) {
    static const struct {
        enum hlo_opcode start, plain;
    } pairs[] = {
        {HLO_ALL_GATHER_START, HLO_ALL_GATHER},
        {HLO_ALL_REDUCE_START, HLO_ALL_REDUCE},
        {HLO_COLLECTIVE_PERMUTE_START, HLO_COLLECTIVE_PERMUTE},
    };
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
        if (i->opcode == pairs[k].start)
            return pairs[k].plain;
    if (i->opcode != HLO_ASYNC_START)
        return (enum hlo_opcode)i->opcode;
    uint32_t callee = hlo_callee(c, i, HLO_KEY_CALLS);
    if (callee != UINT32_MAX)
        return (enum hlo_opcode)m->computations[callee].instrs[m->computations[callee].root].opcode;
    struct str word = hlo_instr_opcode(m, c, i);
    static const char suffix[] = "-start";
    return word.n > sizeof suffix - 1 ? hlo_opcode_find(word.p, word.n - (sizeof suffix - 1))
                                      : HLO_UNKNOWN;
}

uint32_t hlo_callee(const struct hlo_computation *c, const struct hlo_instr *i, enum hlo_key key) {
    for (uint16_t k = 0; k < i->ncallees; k++)
        if (c->callees[i->callees + k].key == key)
            return c->callees[i->callees + k].computation;
    return UINT32_MAX;
}

int64_t hlo_alias_entries(const struct hlo_module *m) {
    int64_t n = 0;
    for (uint32_t i = 0; i < m->nattrs; i++)
        if (m->attrs[i].key == HLO_KEY_INPUT_OUTPUT_ALIAS)
            for (const char *p = m->text + m->attrs[i].at, *end = p + m->attrs[i].n; p < end; p++)
                n += *p == '('; /* an entry's target; nothing else in there has brackets */
    return n;
}

/* ---- windows ---- */

enum { WINDOW_FIELDS = 6 };

/* "3x3", "1_1x-1_2", "0_0x2_0x1": the numbers of one field, one or two a dimension. */
static bool window_field(struct cursor *c, int field, struct hlo_window_dim *dims, size_t max,
                         size_t *n) {
    for (size_t i = 0;; i++) {
        int64_t v;
        if (i == max || !take_int(c, &v))
            return false;
        if (i == *n) {
            dims[i] =
                (struct hlo_window_dim){.size = 1, .stride = 1, .lhs_dilate = 1, .rhs_dilate = 1};
            ++*n;
        }
        struct hlo_window_dim *d = &dims[i];
        int64_t *const places[WINDOW_FIELDS] = {&d->size,       &d->stride,     &d->pad_low,
                                                &d->lhs_dilate, &d->rhs_dilate, NULL};
        if (places[field])
            *places[field] = v;
        else
            d->reversed = v != 0;
        if (field == 2 && (!take(c, '_') || !take_int(c, &d->pad_high)))
            return false;
        if (c->p >= c->end || *c->p != 'x')
            return true;
        c->p++;
    }
}

bool hlo_window(struct str s, struct hlo_window_dim *dims, size_t max, size_t *n) {
    static const char *const names[WINDOW_FIELDS] = {"size",       "stride",     "pad",
                                                     "lhs_dilate", "rhs_dilate", "rhs_reversal"};
    struct cursor c = {s.p, s.p + s.n};
    *n = 0;
    if (!take(&c, '{'))
        return false;
    while (!take(&c, '}')) {
        int field = 0;
        const char *name = c.p;
        while (c.p < c.end && is(*c.p, CH_NAME))
            c.p++;
        size_t length = (size_t)(c.p - name);
        for (; field < WINDOW_FIELDS; field++)
            if (strlen(names[field]) == length && !memcmp(names[field], name, length))
                break;
        if (field == WINDOW_FIELDS || !take(&c, '=') || !window_field(&c, field, dims, max, n))
            return false;
    }
    for (size_t i = 0; i < *n; i++)
        if (dims[i].size < 1 || dims[i].stride < 1 || dims[i].lhs_dilate < 1 ||
            dims[i].rhs_dilate < 1)
            return false;
    return true;
}

/* One of the three parts: a letter or digit a dimension; two letters and digits 0, 1, … once each.
 */
static bool labels_part(const char *p, size_t n, char first, char second, int *a, int *b,
                        int *spatial, int *nspatial) {
    uint64_t seen = 0;
    *a = *b = -1;
    *nspatial = 0;
    if (n > HLO_RANK_MAX)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == first && *a < 0)
            *a = (int)i;
        else if (p[i] == second && *b < 0)
            *b = (int)i;
        else if (is(p[i], CH_DIGIT) && !(seen >> (p[i] - '0') & 1)) {
            seen |= UINT64_C(1) << (p[i] - '0');
            spatial[p[i] - '0'] = (int)i;
            ++*nspatial;
        } else if (p[i] != '?') {
            return false;
        }
    }
    return *a >= 0 && *b >= 0 && seen == (UINT64_C(1) << *nspatial) - 1;
}

bool hlo_dim_labels(struct str s, struct hlo_dim_labels *l) {
    const char *under = memchr(s.p, '_', s.n), *arrow = under;
    const char *end = s.p + s.n;
    int kernel, out;
    while (arrow && arrow + 1 < end && (arrow[0] != '-' || arrow[1] != '>'))
        arrow++;
    if (!arrow || arrow + 1 >= end)
        return false;
    return labels_part(s.p, (size_t)(under - s.p), 'b', 'f', &l->batch, &l->feature, l->spatial,
                       &l->nspatial) &&
           labels_part(under + 1, (size_t)(arrow - under) - 1, 'i', 'o', &l->kernel_in,
                       &l->kernel_out, l->kernel_spatial, &kernel) &&
           labels_part(arrow + 2, (size_t)(end - arrow) - 2, 'b', 'f', &l->out_batch,
                       &l->out_feature, l->out_spatial, &out) &&
           kernel == l->nspatial && out == l->nspatial;
}
