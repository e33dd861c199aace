/* Computations and their instructions. Scratch arrays hold the computation that is open; it is
 * copied to the arena, at its exact size, when it closes. */
#include "workloads/hlo/hlo_internal.h"

/* What the checks and decoders see of a computation that is still open. */
static struct hlo_computation open_computation(const struct parser *p) {
    return (struct hlo_computation){
        .name = p->open_name,
        .instrs = p->instrs.p,
        .operands = p->operands.p,
        .attrs = p->attrs.p,
        .callees = p->callees.p,
        .n = (uint32_t)p->instrs.n,
    };
}

static struct hlo_module open_module(const struct parser *p) {
    return (struct hlo_module){
        .text = p->text,
        .computations = p->computations.p,
        .n = (uint32_t)p->computations.n,
    };
}

/* ---- attributes ---- */

static bool push_attr(struct parser *p, struct vec *attrs, struct str key, uint32_t id,
                      const char *value, size_t n) {
    if (key.n > UINT16_MAX)
        return parse_fail(p, key.p, "expected a shorter attribute name");
    struct hlo_attr *a = vec_push(p, attrs);
    if (a)
        *a = (struct hlo_attr){offset(p, key.p), offset(p, value), (uint32_t)n, (uint16_t)key.n,
                               (uint16_t)id};
    return a;
}

/* A computation or a braced list of them, each defined before. */
static bool push_callees(struct parser *p, struct vec *callees, uint32_t key, const char *value) {
    const char *after = p->at;
    bool list = *value == '{', ok = true;
    p->at = value + list;
    for (bool first = true; ok; first = false) {
        struct str name;
        ok = skip_space(p);
        if (!ok || (list && *p->at == '}'))
            break;
        if (!first && !(ok = expect_char(p, ',') && skip_space(p)))
            break;
        const char *at = p->at;
        if (!(ok = scan_name(p, &name))) {
            parse_expected(p, at, "the name of a computation");
            break;
        }
        struct name_slot *slot =
            names_find(&p->computations_by_name, p->text, name, hlo_hash(name.p, name.n));
        if (!slot) {
            ok = parse_expected(p, at, "a computation defined before");
            break;
        }
        struct hlo_callee *c = vec_push(p, callees);
        if (!(ok = c))
            break;
        *c = (struct hlo_callee){slot->value, key};
        if (!list)
            break;
    }
    if (ok && p->at + list != after)
        ok = parse_expected(p, p->at, "the end of this list of computations");
    p->at = after;
    return ok;
}

bool parse_attrs(struct parser *p, struct vec *attrs, struct vec *callees) {
    for (;;) {
        if (!skip_space(p))
            return false;
        if (!skip_char(p, ','))
            return true;
        if (!skip_space(p))
            return false;
        struct str key = {p->at, 0};
        while (is(*p->at, CH_NAME))
            p->at++;
        key.n = (size_t)(p->at - key.p);
        if (!key.n)
            return parse_expected(p, key.p, "the name of an attribute");
        if (*p->at != '=' && !skip_space(p))
            return false;
        if (!skip_char(p, '='))
            return parse_expected(p, p->at, "'=' after the name of an attribute");
        if (!skip_space(p))
            return false;
        uint32_t id = dict_find(&p->keys, key.p, key.n, HLO_KEY_OTHER);
        const char *value = p->at;
        if (!scan_value(p, id) || !push_attr(p, attrs, key, id, value, (size_t)(p->at - value)))
            return false;
        if (callees && hlo_key_is_callee(id) && !push_callees(p, callees, id, value))
            return false;
    }
}

/* ---- operands ---- */

static bool parse_op(struct parser *p, struct str name, const char *at,
                     const struct hlo_shape *shape, uint32_t *index);

static bool push_pending(struct parser *p, uint32_t index) {
    uint32_t *slot = vec_push(p, &p->pending);
    if (slot)
        *slot = index;
    return slot;
}

/* name#1: an element of a tuple, without an instruction of its own in the text. */
static bool parse_element(struct parser *p, uint32_t *index) {
    const char *at = p->at++;
    int64_t v;
    if (!scan_int(p, &v))
        return false;
    const struct hlo_shape *s = ((struct hlo_instr *)p->instrs.p)[*index].shape;
    if (s->dtype != HLO_TUPLE_TYPE || v < 0 || v >= s->nelements)
        return parse_fail(p, at, "expected an index of a tuple of %u, found %lld", s->nelements,
                          (long long)v);
    uint32_t *operand = vec_push(p, &p->operands);
    struct hlo_instr *i = operand ? vec_push(p, &p->instrs) : NULL;
    if (!i)
        return false;
    *operand = *index;
    *i = (struct hlo_instr){.shape = s->elements[v],
                            .value = v,
                            .name_at = offset(p, at),
                            .operands = (uint32_t)p->operands.n - 1,
                            .noperands = 1,
                            .attrs = (uint32_t)p->attrs.n,
                            .callees = (uint32_t)p->callees.n,
                            .opcode = HLO_GET_TUPLE_ELEMENT,
                            .flags = HLO_INSTR_HAS_VALUE | HLO_INSTR_ANONYMOUS};
    *index = (uint32_t)p->instrs.n - 1;
    return true;
}

static bool parse_operand(struct parser *p) {
    const struct hlo_shape *shape = NULL;
    if (shape_begins(p, p->at) && (!(shape = parse_shape(p)) || !skip_space(p)))
        return false;
    const char *at = p->at;
    struct str name;
    uint32_t index;
    if (!scan_name(p, &name))
        return parse_expected(p, at, "an operand");
    if (*at != '%') {
        if (!skip_space(p))
            return false;
        if (*p->at == '(') {
            p->at = at;
            return parse_op(p, (struct str){at, 0}, at, shape, &index) && push_pending(p, index);
        }
    }
    struct name_slot *slot = names_find(&p->local, p->text, name, hlo_hash(name.p, name.n));
    if (!slot)
        return parse_expected(p, at, "an operand defined before");
    index = slot->value;
    while (*p->at == '#')
        if (!parse_element(p, &index))
            return false;
    if (shape && !hlo_shape_same(shape, ((struct hlo_instr *)p->instrs.p)[index].shape))
        return parse_fail(p, at,
                          "expected an operand of the shape written here, found '%.*s' of "
                          "another shape",
                          name.n > 80 ? 80 : (int)name.n, name.p);
    return push_pending(p, index);
}

static bool parse_operands(struct parser *p) {
    p->at++; /* '(' */
    if (p->depth == HLO_DEPTH_MAX)
        return parse_fail(p, p->at, "expected at most %d nested instructions", HLO_DEPTH_MAX);
    p->depth++;
    bool first = true;
    while (skip_space(p) && *p->at != ')') {
        if (!first && !expect_char(p, ','))
            break;
        if (!skip_space(p) || !parse_operand(p))
            break;
        first = false;
    }
    p->depth--;
    if (p->rc)
        return false;
    p->at++;
    return true;
}

/* ---- what stands in the brackets of a constant or a parameter ---- */

static bool is_integer_type(unsigned t) {
    return t <= HLO_U64;
}

/* A scalar integer or boolean, braces around it or not. */
static void literal_value(struct hlo_instr *i, struct str s) {
    if (i->shape->count != 1 || !is_integer_type(i->shape->dtype))
        return;
    while (s.n && (*s.p == '{' || is(*s.p, CH_SPACE)))
        s.p++, s.n--;
    while (s.n && (s.p[s.n - 1] == '}' || is(s.p[s.n - 1], CH_SPACE)))
        s.n--;
    bool yes = s.n == 4 && !memcmp(s.p, "true", 4), no = s.n == 5 && !memcmp(s.p, "false", 5);
    if (yes || no)
        i->value = yes;
    else if (!hlo_int(s, &i->value))
        return;
    i->flags |= HLO_INSTR_HAS_VALUE;
}

static bool parse_literal(struct parser *p, struct hlo_instr *i) {
    const char *start = p->at;
    if (!scan_balanced(p))
        return false;
    struct str s = {start + 1, (size_t)(p->at - start) - 2};
    while (s.n && is(*s.p, CH_SPACE))
        s.p++, s.n--;
    while (s.n && is(s.p[s.n - 1], CH_SPACE))
        s.n--;
    if (!s.n)
        return parse_fail(p, start, "expected a literal");
    if (i->shape)
        literal_value(i, s);
    return push_attr(p, &p->attrs, (struct str){start, 0}, HLO_KEY_LITERAL_TEXT, s.p, s.n);
}

static bool parse_number(struct parser *p, struct hlo_instr *i) {
    p->at++;
    const char *at = p->at;
    if (!skip_space(p) || !scan_int(p, &i->value))
        return false;
    if (i->value < 0)
        return parse_expected(p, at, "a parameter number >= 0");
    i->flags |= HLO_INSTR_HAS_VALUE;
    return expect_char(p, ')');
}

/* ---- instructions ---- */

/* An opcode of no table may still be X-start, X-update or X-done of one that is. */
static uint16_t async_opcode(const struct parser *p, struct str word) {
    static const struct {
        const char *suffix;
        uint16_t opcode;
    } rows[] = {
        {"-start", HLO_ASYNC_START}, {"-update", HLO_ASYNC_UPDATE}, {"-done", HLO_ASYNC_DONE}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        size_t n = strlen(rows[k].suffix);
        if (word.n > n && !memcmp(word.p + word.n - n, rows[k].suffix, n) &&
            dict_find(&p->opcodes, word.p, word.n - n, HLO_UNKNOWN))
            return rows[k].opcode;
    }
    return HLO_UNKNOWN;
}

static bool parse_op(struct parser *p, struct str name, const char *at,
                     const struct hlo_shape *shape, uint32_t *index) {
    struct hlo_instr i = {.shape = shape, .name_at = offset(p, name.p), .name_n = (uint32_t)name.n};
    size_t pending = p->pending.n;
    struct str word = {p->at, 0};
    while (is(*p->at, CH_NAME))
        p->at++;
    word.n = (size_t)(p->at - word.p);
    if (!word.n)
        return parse_expected(p, word.p, shape ? "an opcode" : "a shape or an opcode");
    i.opcode = (uint16_t)dict_find(&p->opcodes, word.p, word.n, HLO_UNKNOWN);
    bool spelt = i.opcode == HLO_UNKNOWN;
    if (spelt)
        i.opcode = async_opcode(p, word);
    if (!skip_space(p))
        return false;
    if (*p->at != '(')
        return parse_expected(p, p->at, "'(' after the opcode");
    bool plain = i.opcode != HLO_CONSTANT && i.opcode != HLO_PARAMETER;
    if (plain && !parse_operands(p))
        return false;
    i.attrs = (uint32_t)p->attrs.n;
    i.callees = (uint32_t)p->callees.n;
    if (i.opcode == HLO_CONSTANT && !parse_literal(p, &i))
        return false;
    if (i.opcode == HLO_PARAMETER && !parse_number(p, &i))
        return false;
    if (spelt && !push_attr(p, &p->attrs, (struct str){word.p, 0}, HLO_KEY_OPCODE, word.p, word.n))
        return false;
    if (name.n && !parse_attrs(p, &p->attrs, &p->callees))
        return false;
    size_t nattrs = p->attrs.n - i.attrs, ncallees = p->callees.n - i.callees;
    if (nattrs > UINT16_MAX || ncallees > UINT16_MAX)
        return parse_fail(p, at, "expected fewer than 65536 attributes");
    i.nattrs = (uint16_t)nattrs;
    i.ncallees = (uint16_t)ncallees;
    i.operands = (uint32_t)p->operands.n;
    i.noperands = (uint32_t)(p->pending.n - pending);
    for (size_t k = pending; k < p->pending.n; k++) {
        uint32_t *operand = vec_push(p, &p->operands);
        if (!operand)
            return false;
        *operand = ((uint32_t *)p->pending.p)[k];
    }
    p->pending.n = pending;
    if (!name.n)
        i.flags |= HLO_INSTR_ANONYMOUS;
    struct hlo_instr *slot = vec_push(p, &p->instrs);
    if (!slot)
        return false;
    *slot = i;
    *index = (uint32_t)p->instrs.n - 1;

    struct hlo_module m = open_module(p);
    struct hlo_computation c = open_computation(p);
    if (slot->opcode == HLO_GET_TUPLE_ELEMENT) {
        struct str text;
        if (hlo_attr(&m, &c, slot, HLO_KEY_INDEX, &text) && hlo_int(text, &slot->value))
            slot->flags |= HLO_INSTR_HAS_VALUE;
    }
    if (!slot->shape) {
        slot->flags |= HLO_INSTR_SHAPELESS;
        if (!(slot->shape = infer_shape(p, &m, &c, slot, at)))
            return false;
    }
    return check_instr(p, &m, &c, slot, at);
}

static bool parse_instr(struct parser *p) {
    const char *at = p->at;
    struct str name;
    bool root = false;
    if (!scan_name(p, &name))
        return parse_expected(p, at, "an instruction or '}'");
    if (name.n == 4 && !memcmp(name.p, "ROOT", 4) && *at != '%') {
        if (!skip_space(p))
            return false;
        if (*p->at != '=') {
            root = true;
            at = p->at;
            if (!scan_name(p, &name))
                return parse_expected(p, at, "a name after 'ROOT'");
        }
    }
    if (root && p->root >= 0)
        return parse_fail(p, at, "expected one ROOT, found a second: '%.*s'",
                          name.n > 80 ? 80 : (int)name.n, name.p);
    uint32_t hash = hlo_hash(name.p, name.n), index;
    if (names_find(&p->local, p->text, name, hash))
        return parse_fail(p, at, "expected a new name, found '%.*s' a second time",
                          name.n > 80 ? 80 : (int)name.n, name.p);
    const struct hlo_shape *shape = NULL;
    if (!expect_char(p, '=') || !skip_space(p) ||
        (shape_begins(p, p->at) && (!(shape = parse_shape(p)) || !skip_space(p))) ||
        !parse_op(p, name, at, shape, &index) || !names_put(p, &p->local, name, hash, index))
        return false;
    if (root)
        p->root = index;
    return true;
}

/* ---- computations ---- */

/* (a: f32[2], b: (s32[], pred[])) -> f32[2] */
static bool parse_signature(struct parser *p, struct str *signature,
                            const struct hlo_shape **result) {
    const char *start = p->at++;
    for (bool first = true;; first = false) {
        struct str name;
        if (!skip_space(p))
            return false;
        if (skip_char(p, ')'))
            break;
        if (!first && !expect_char(p, ','))
            return false;
        if (!skip_space(p))
            return false;
        if (!scan_name(p, &name))
            return parse_expected(p, p->at, "the name of a parameter");
        if (!expect_char(p, ':') || !skip_space(p) || !parse_shape(p))
            return false;
    }
    if (!skip_space(p))
        return false;
    if (p->at[0] != '-' || p->at[1] != '>')
        return parse_expected(p, p->at, "'->'");
    p->at += 2;
    if (!skip_space(p) || !(*result = parse_shape(p)))
        return false;
    *signature = (struct str){start, (size_t)(p->at - start)};
    return true;
}

/* Parameter numbers are 0, 1, … each once. */
static bool check_parameters(struct parser *p, uint32_t *n) {
    const struct hlo_instr *instrs = p->instrs.p;
    p->parameters.n = 0;
    for (size_t k = 0; k < p->instrs.n; k++)
        if (instrs[k].opcode == HLO_PARAMETER) {
            uint8_t *seen = vec_push(p, &p->parameters);
            if (!seen)
                return false;
            *seen = 0;
        }
    uint8_t *seen = p->parameters.p;
    for (size_t k = 0; k < p->instrs.n; k++) {
        int64_t v = instrs[k].value;
        if (instrs[k].opcode != HLO_PARAMETER)
            continue;
        if (v >= (int64_t)p->parameters.n || seen[v])
            return parse_fail(
                p, p->text + instrs[k].name_at,
                "expected parameters numbered from 0, each once, found parameter(%lld) "
                "%s",
                (long long)v, v >= (int64_t)p->parameters.n ? "" : "again");
        seen[v] = 1;
    }
    *n = (uint32_t)p->parameters.n;
    return true;
}

static bool keep_computation(struct parser *p, struct hlo_computation *c) {
    return vec_keep(p, &p->instrs, &c->instrs) && vec_keep(p, &p->operands, &c->operands) &&
           vec_keep(p, &p->attrs, &c->attrs) && vec_keep(p, &p->callees, &c->callees);
}

static bool parse_body(struct parser *p, struct hlo_computation *c) {
    names_clear(&p->local);
    p->instrs.n = p->operands.n = p->attrs.n = p->callees.n = p->pending.n = 0;
    p->root = -1;
    for (;;) {
        if (!skip_space(p))
            return false;
        if (*p->at == '}')
            break;
        if (!parse_instr(p))
            return false;
    }
    if (!p->instrs.n)
        return parse_expected(p, p->at, "an instruction");
    p->at++;
    c->n = (uint32_t)p->instrs.n;
    c->root = p->root < 0 ? c->n - 1 : (uint32_t)p->root;
    return check_parameters(p, &c->nparameters) && keep_computation(p, c);
}

bool parse_computation(struct parser *p, bool entry) {
    struct hlo_computation c = {0};
    const struct hlo_shape *result = NULL;
    const char *at = p->at;
    if (!scan_name(p, &c.name))
        return parse_expected(p, at, entry ? "the name of the ENTRY computation" : "a computation");
    uint32_t hash = hlo_hash(c.name.p, c.name.n);
    if (names_find(&p->computations_by_name, p->text, c.name, hash))
        return parse_fail(p, at, "expected a new name, found computation '%.*s' a second time",
                          c.name.n > 80 ? 80 : (int)c.name.n, c.name.p);
    p->open_name = c.name;
    p->open_at = at;
    if (!skip_space(p) || (*p->at == '(' && !parse_signature(p, &c.signature, &result)) ||
        !expect_char(p, '{') || !parse_body(p, &c))
        return false;
    if (result && !hlo_shape_same(result, c.instrs[c.root].shape))
        return parse_fail(p, p->text + c.instrs[c.root].name_at,
                          "expected a root of the result's shape in the signature, found another");
    const char *end = p->at;
    if (!skip_space(p))
        return false;
    if (skip_char(p, ',')) {
        static const char key[] = "execution_thread";
        if (!skip_space(p))
            return false;
        if (strncmp(p->at, key, sizeof key - 1))
            return parse_expected(p, p->at, "'execution_thread'");
        p->at += sizeof key - 1;
        if (!expect_char(p, '=') || !skip_space(p))
            return false;
        c.thread.p = p->at;
        if (*p->at != '"' && *p->at != '\'')
            return parse_expected(p, p->at, "a string");
        if (!scan_string(p))
            return false;
        c.thread.n = (size_t)(p->at - c.thread.p);
    } else {
        p->at = end;
    }
    p->open_name.n = 0;
    struct hlo_computation *slot = vec_push(p, &p->computations);
    if (!slot)
        return false;
    *slot = c;
    return names_put(p, &p->computations_by_name, c.name, hash, (uint32_t)p->computations.n - 1);
}
