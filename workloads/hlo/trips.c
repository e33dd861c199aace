/* How often a while runs: told by the compiler in backend_config, else found by following the
 * induction variable: condition compare(element + a, N), body element + s, start b. Values are
 * followed through tuples, converts, copies, calls, fusions and loops that leave them alone; all
 * else is unknown. */
#include "workloads/hlo/cost_internal.h"

#include "harness/core/int128.h"
#include "harness/core/json.h"

#include <string.h>

/* Where parameters come from while a callee is looked into. */
struct frame {
    const struct hlo_module *m;
    const struct hlo_computation *c;
    const struct hlo_instr *call; /* whose operands are the parameters; NULL: the loop's own */
    const struct frame *up;
    int *steps; /* left, over all frames */
};

/* What is known of an integer: a constant, or an element of the loop's state plus one. */
struct value {
    enum { UNKNOWN, CONSTANT, ELEMENT } kind;
    int64_t element; /* -1: the state itself, which is no tuple */
    int64_t number;
};

enum { STEPS_MAX = 4096, LEVELS_MAX = 64, WHOLE = -1 };

static struct value follow(const struct frame *f, const struct hlo_instr *i, int64_t element,
                           int depth);

static const struct hlo_instr *root_of(const struct hlo_computation *c) {
    return &c->instrs[c->root];
}

static bool passes_through(unsigned opcode) {
    return opcode == HLO_COPY || opcode == HLO_CONVERT || opcode == HLO_BITCAST ||
           opcode == HLO_RESHAPE || opcode == HLO_OPT_BARRIER || opcode == HLO_DOMAIN ||
           opcode == HLO_ADD_DEPENDENCY;
}

/* a + sign·b, where one of them is a constant. */
static struct value sum(struct value a, struct value b, int sign) {
    struct value r = {UNKNOWN, WHOLE, 0};
    int64_t n;
    if (a.kind == UNKNOWN || b.kind == UNKNOWN || (b.kind == ELEMENT && sign < 0) ||
        (a.kind == ELEMENT && b.kind == ELEMENT) ||
        (sign < 0 ? __builtin_sub_overflow(a.number, b.number, &n)
                  : __builtin_add_overflow(a.number, b.number, &n)))
        return r;
    r = a.kind == ELEMENT ? a : b;
    r.number = n;
    return r;
}

static struct value follow_callee(const struct frame *f, const struct hlo_instr *i,
                                  enum hlo_key key, int64_t element, int depth) {
    uint32_t callee = hlo_callee(f->c, i, key);
    if (callee == UINT32_MAX)
        return (struct value){UNKNOWN, WHOLE, 0};
    struct frame inner = {f->m, &f->m->computations[callee], i, f, f->steps};
    return follow(&inner, root_of(inner.c), element, depth + 1);
}

/* After a loop that does not change it, a value is what it was before. */
static struct value follow_loop(const struct frame *f, const struct hlo_instr *i, int64_t element,
                                int depth) {
    uint32_t body = hlo_callee(f->c, i, HLO_KEY_BODY);
    if (body == UINT32_MAX)
        return (struct value){UNKNOWN, WHOLE, 0};
    struct frame inner = {f->m, &f->m->computations[body], NULL, NULL, f->steps};
    struct value v = follow(&inner, root_of(inner.c), element, depth + 1);
    if (v.kind == ELEMENT && v.element == element && !v.number)
        return follow(f, hlo_operand(f->c, i, 0), element, depth + 1);
    return (struct value){UNKNOWN, WHOLE, 0};
}

static struct value follow_parameter(const struct frame *f, const struct hlo_instr *i,
                                     int64_t element, int depth) {
    if (f->call)
        return i->value < f->call->noperands
                   ? follow(f->up, hlo_operand(f->up->c, f->call, (uint32_t)i->value), element,
                            depth + 1)
                   : (struct value){UNKNOWN, WHOLE, 0};
    return (struct value){i->value ? UNKNOWN : ELEMENT, element, 0};
}

/* The value of i, or of that element of the tuple i. */
static struct value follow(const struct frame *f, const struct hlo_instr *i, int64_t element,
                           int depth) {
    const struct value unknown = {UNKNOWN, WHOLE, 0};
    if (depth > LEVELS_MAX || --*f->steps < 0)
        return unknown;
    switch (i->opcode) {
    case HLO_CONSTANT:
        return (i->flags & HLO_INSTR_HAS_VALUE) && element == WHOLE
                   ? (struct value){CONSTANT, WHOLE, i->value}
                   : unknown;
    case HLO_PARAMETER:
        return follow_parameter(f, i, element, depth);
    case HLO_TUPLE:
        return element >= 0 && element < i->noperands
                   ? follow(f, hlo_operand(f->c, i, (uint32_t)element), WHOLE, depth + 1)
                   : unknown;
    case HLO_GET_TUPLE_ELEMENT:
        return element == WHOLE ? follow(f, hlo_operand(f->c, i, 0), i->value, depth + 1) : unknown;
    case HLO_ADD:
    case HLO_SUBTRACT:
        return element == WHOLE ? sum(follow(f, hlo_operand(f->c, i, 0), WHOLE, depth + 1),
                                      follow(f, hlo_operand(f->c, i, 1), WHOLE, depth + 1),
                                      i->opcode == HLO_ADD ? 1 : -1)
                                : unknown;
    case HLO_CALL:
        return follow_callee(f, i, HLO_KEY_TO_APPLY, element, depth);
    case HLO_FUSION:
        return follow_callee(f, i, HLO_KEY_CALLS, element, depth);
    case HLO_WHILE:
        return follow_loop(f, i, element, depth);
    default:
        return passes_through(i->opcode) ? follow(f, hlo_operand(f->c, i, 0), element, depth + 1)
                                         : unknown;
    }
}

/* ---- the comparison ---- */

enum direction { NONE, LT, LE, GT, GE, NE };

static enum direction direction_of(struct str s) {
    static const char names[][3] = {"", "LT", "LE", "GT", "GE", "NE"};
    for (int d = LT; d <= NE; d++)
        if (s.n == 2 && !memcmp(s.p, names[d], 2))
            return (enum direction)d;
    return NONE;
}

static enum direction swapped(enum direction d) {
    static const enum direction other[] = {NONE, GT, GE, LT, LE, NE};
    return other[d];
}

/* How often x = start, start + step, … compares true with limit before it does not; -1: for ever.
 */
static int64_t count(enum direction d, int64_t start, int64_t step, int64_t limit) {
    i128 distance = (i128)limit - start, s = step;
    if (d == GT || d == GE) {
        distance = -distance;
        s = -s;
    }
    if (d == NE) {
        if (!distance)
            return 0;
        if (!s || distance % s || distance / s < 0)
            return -1;
        return distance / s > INT64_MAX ? -1 : (int64_t)(distance / s);
    }
    distance += d == LE || d == GE;
    if (distance <= 0)
        return 0;
    if (s <= 0)
        return -1;
    i128 n = (distance + s - 1) / s;
    return n >= INT64_MAX ? -1 : (int64_t)n; /* trips + 1 must fit, too */
}

struct loop {
    const struct hlo_computation *outer;
    const struct hlo_instr *i;
    const struct frame *condition, *body, *before;
};

/* An element that the body leaves alone is the constant it started as. */
static struct value settle(const struct loop *l, struct value v) {
    if (v.kind != ELEMENT)
        return v;
    struct value after = follow(l->body, root_of(l->body->c), v.element, 0);
    if (after.kind != ELEMENT || after.element != v.element || after.number)
        return v;
    struct value start = follow(l->before, hlo_operand(l->outer, l->i, 0), v.element, 0);
    return start.kind == CONSTANT ? sum(start, (struct value){CONSTANT, WHOLE, v.number}, 1) : v;
}

static int64_t trips_by(const struct loop *l, const struct frame *f,
                        const struct hlo_instr *compare) {
    struct str s;
    enum direction d =
        hlo_attr(f->m, f->c, compare, HLO_KEY_DIRECTION, &s) ? direction_of(s) : NONE;
    struct value a = settle(l, follow(f, hlo_operand(f->c, compare, 0), WHOLE, 0));
    struct value b = settle(l, follow(f, hlo_operand(f->c, compare, 1), WHOLE, 0));
    if (a.kind == CONSTANT) {
        struct value t = a;
        a = b;
        b = t;
        d = swapped(d);
    }
    if (d == NONE || a.kind != ELEMENT || b.kind != CONSTANT)
        return -1;
    struct value next = follow(l->body, root_of(l->body->c), a.element, 0);
    struct value start = follow(l->before, hlo_operand(l->outer, l->i, 0), a.element, 0);
    int64_t first;
    if (next.kind != ELEMENT || next.element != a.element || start.kind != CONSTANT ||
        __builtin_add_overflow(start.number, a.number, &first))
        return -1;
    return count(d, first, next.number, b.number);
}

/* The compare that decides, behind copies, calls and fusions. */
static int64_t trips_at(const struct loop *l, const struct frame *f, const struct hlo_instr *i,
                        int depth) {
    if (depth > LEVELS_MAX)
        return -1;
    if (i->opcode == HLO_COMPARE)
        return trips_by(l, f, i);
    if (passes_through(i->opcode))
        return trips_at(l, f, hlo_operand(f->c, i, 0), depth + 1);
    uint32_t callee = i->opcode == HLO_FUSION ? hlo_callee(f->c, i, HLO_KEY_CALLS)
                      : i->opcode == HLO_CALL ? hlo_callee(f->c, i, HLO_KEY_TO_APPLY)
                                              : UINT32_MAX;
    if (callee == UINT32_MAX)
        return -1;
    struct frame inner = {f->m, &f->m->computations[callee], i, f, f->steps};
    return trips_at(l, &inner, root_of(inner.c), depth + 1);
}

/* {"known_trip_count":{"n":"7"}} */
static bool told_trips(const struct hlo_module *m, const struct hlo_computation *c,
                       const struct hlo_instr *i, int64_t *trips) {
    struct str s;
    json_t *v = NULL;
    bool told = false;
    if (!hlo_attr(m, c, i, HLO_KEY_BACKEND_CONFIG, &s) ||
        !memmem(s.p, s.n, "known_trip_count", 16) ||
        json_parse(s.p, s.n, "backend_config", &v, NULL))
        return false;
    const json_t *n = json_object_get(json_object_get(v, "known_trip_count"), "n");
    if (json_is_integer(n)) {
        *trips = json_integer_value(n);
        told = *trips >= 0 && *trips < INT64_MAX;
    } else if (json_is_string(n)) {
        told = hlo_int((struct str){json_string_value(n), json_string_length(n)}, trips) &&
               *trips >= 0 && *trips < INT64_MAX;
    }
    json_decref(v);
    return told;
}

int64_t loop_trips(const struct hlo_module *m, uint32_t computation, const struct hlo_instr *i,
                   bool *told) {
    const struct hlo_computation *c = &m->computations[computation];
    int64_t trips;
    int steps = STEPS_MAX;
    if ((*told = told_trips(m, c, i, &trips)))
        return trips;
    /* in the condition and the body the parameter is the state; before, it is unknown */
    static const struct hlo_instr nothing = {.noperands = 0};
    struct frame condition = {m, &m->computations[hlo_callee(c, i, HLO_KEY_CONDITION)], NULL, NULL,
                              &steps};
    struct frame body = {m, &m->computations[hlo_callee(c, i, HLO_KEY_BODY)], NULL, NULL, &steps};
    struct frame before = {m, c, &nothing, NULL, &steps};
    struct loop l = {c, i, &condition, &body, &before};
    return trips_at(&l, &condition, root_of(condition.c), 0);
}
