/* Shapes: element type, dimensions, layout; tuples. A shape whose text was seen is the shape of
 * then, so that a module's few thousand texts cost one parse each. */
#include "workloads/hlo/hlo_internal.h"

#include <stdlib.h>

enum {
    LEAVES_MAX = 1 << 24
}; /* of one tuple: inferred tuples of tuples would double without end */

/* ---- building ---- */

static bool array_counts(struct hlo_shape *s) {
    int64_t count = 1, bytes;
    for (int i = 0; i < s->rank; i++) {
        if (s->dims[i] < 0) {
            s->count = s->bytes = HLO_UNKNOWN_COUNT;
            return true;
        }
        if (__builtin_mul_overflow(count, s->dims[i], &count))
            return false;
    }
    int64_t per = s->element_bits ? s->element_bits : hlo_dtype_bits[s->dtype];
    /* eighths apart, so that what fits in bytes does not fail in bits */
    if (__builtin_mul_overflow(count, per / 8, &bytes) ||
        __builtin_add_overflow(bytes, count / 8 * (per % 8) + (count % 8 * (per % 8) + 7) / 8,
                               &bytes))
        return false;
    s->count = count;
    s->bytes = bytes;
    return true;
}

const struct hlo_shape *shape_array(struct parser *p, const char *at, enum hlo_dtype t,
                                    const int64_t *dims, int rank) {
    struct hlo_shape *s = parse_alloc(p, 1, sizeof *s);
    /* one block: dimensions, then their order */
    int64_t *d = s ? parse_alloc(p, (size_t)rank + ((size_t)rank + 7) / 8 + 1, sizeof *d) : NULL;
    if (!d)
        return NULL;
    uint8_t *order = (uint8_t *)(d + rank);
    if (rank)
        memcpy(d, dims, (size_t)rank * sizeof *d);
    for (int i = 0; i < rank; i++)
        order[i] = (uint8_t)(rank - 1 - i);
    s->dtype = (uint8_t)t;
    s->rank = (uint8_t)rank;
    s->leaves = 1;
    s->dims = d;
    s->minor_to_major = order;
    if (!array_counts(s)) {
        parse_fail(p, at, "expected a shape of fewer than 2^63 bytes");
        return NULL;
    }
    return s;
}

static const struct hlo_shape *shape_of(struct parser *p, const char *at, enum hlo_dtype t,
                                        const struct hlo_shape *const *elements, uint32_t n) {
    struct hlo_shape *s = parse_alloc(p, 1, sizeof *s);
    const struct hlo_shape **copy = s ? parse_alloc(p, n ? n : 1, sizeof *copy) : NULL;
    if (!copy)
        return NULL;
    s->dtype = (uint8_t)t;
    s->nelements = n;
    s->elements = copy;
    for (uint32_t i = 0; i < n; i++) {
        const struct hlo_shape *x = copy[i] = elements[i];
        bool unknown = s->count < 0 || x->count < 0;
        s->leaves += x->leaves;
        if (s->depth < x->depth + 1)
            s->depth = (uint16_t)(x->depth + 1);
        if (unknown) {
            s->count = s->bytes = HLO_UNKNOWN_COUNT;
        } else if (__builtin_add_overflow(s->count, x->count, &s->count) ||
                   __builtin_add_overflow(s->bytes, x->bytes, &s->bytes)) {
            parse_fail(p, at, "expected a tuple of fewer than 2^63 bytes");
            return NULL;
        }
        if (s->leaves > LEAVES_MAX || s->depth > HLO_DEPTH_MAX) {
            parse_fail(p, at, "expected a tuple of at most %d arrays and %d levels", LEAVES_MAX,
                       HLO_DEPTH_MAX);
            return NULL;
        }
    }
    return s;
}

const struct hlo_shape *shape_tuple(struct parser *p, const char *at,
                                    const struct hlo_shape *const *elements, uint32_t n) {
    return shape_of(p, at, HLO_TUPLE_TYPE, elements, n);
}

/* ---- parsing ---- */

bool shape_begins(const struct parser *p, const char *at) {
    if (*at == '(')
        return true;
    if (at[0] == 'b' && at[1] == '(')
        return true;
    const char *q = at;
    while (is(*q, CH_NAME))
        q++;
    return *q == '[' && q > at &&
           dict_find(&p->dtypes, at, (size_t)(q - at), UINT32_MAX) != UINT32_MAX;
}

/* After a shape's ']': is what follows its layout, or the body of a computation? */
static bool layout_begins(const char *at) {
    if (at[0] != '{')
        return false;
    for (at++; is(*at, CH_SPACE); at++)
        ;
    return is(*at, CH_DIGIT) || *at == ':' || (*at == '}' && at[-1] == '{');
}

/* The properties after ':' : letters or a sign, then brackets. */
static bool parse_properties(struct parser *p, struct hlo_shape *s) {
    static const char *const known[] = {"D", "T", "L", "#", "*", "E", "S", "SC", "P", "M"};
    const char *start = p->at;
    while (skip_space(p) && *p->at != '}') {
        const char *name = p->at;
        if (*p->at == '#' || *p->at == '*')
            p->at++;
        else
            while (*p->at >= 'A' && *p->at <= 'Z')
                p->at++;
        size_t n = (size_t)(p->at - name), k = 0;
        for (; k < sizeof known / sizeof *known; k++)
            if (n == strlen(known[k]) && !memcmp(known[k], name, n))
                break;
        if (k == sizeof known / sizeof *known)
            return parse_expected(p, name, "a layout property (D, T, L, #, *, E, S, SC, P or M)");
        if (*p->at != '(')
            return parse_expected(p, p->at, "'('");
        const char *value = p->at + 1;
        do {
            if (!scan_balanced(p))
                return false;
        } while (*p->at == '(');
        const char *after = p->at;
        if (n == 1 && (*name == 'E' || *name == 'S')) {
            int64_t v;
            p->at = value;
            if (!skip_space(p) || !scan_int(p, &v))
                return false;
            if (v < 0 || v > (*name == 'E' ? 128 : INT32_MAX))
                return parse_fail(p, value, "expected a number in range, found %lld", (long long)v);
            if (*name == 'E')
                s->element_bits = (uint8_t)v;
            else
                s->memory_space = (int32_t)v;
            p->at = after;
        }
    }
    s->layout = (struct str){start, (size_t)(p->at - start)};
    return !p->rc;
}

static bool parse_layout(struct parser *p, struct hlo_shape *s) {
    uint8_t *order = (uint8_t *)(uintptr_t)s->minor_to_major;
    uint64_t seen = 0;
    int n = 0;
    const char *start = p->at++;
    for (;; n++) {
        int64_t v;
        if (!skip_space(p))
            return false;
        if (*p->at == ':' || *p->at == '}')
            break;
        if (n && !skip_char(p, ','))
            return parse_expected(p, p->at, "',' or '}'");
        if (!skip_space(p) || !scan_int(p, &v))
            return false;
        if (n == s->rank || v < 0 || v >= s->rank || (seen >> v & 1))
            return parse_fail(p, start, "expected a layout of the %d dimensions, each once",
                              s->rank);
        seen |= UINT64_C(1) << v;
        order[n] = (uint8_t)v;
    }
    if (n && n != s->rank)
        return parse_fail(p, start, "expected a layout of %d dimensions, found %d", s->rank, n);
    s->has_layout = n > 0;
    if (skip_char(p, ':') && !parse_properties(p, s))
        return false;
    return expect_char(p, '}');
}

static const struct hlo_shape *parse_array(struct parser *p, enum hlo_dtype t) {
    int64_t dims[HLO_RANK_MAX];
    uint64_t bounded = 0;
    int rank = 0;
    const char *start = p->at++; /* '[' */
    for (;; rank++) {
        if (!skip_space(p))
            return NULL;
        if (*p->at == ']')
            break;
        if (rank && !skip_char(p, ',')) {
            parse_expected(p, p->at, "',' or ']'");
            return NULL;
        }
        if (!skip_space(p))
            return NULL;
        if (rank == HLO_RANK_MAX) {
            parse_fail(p, start, "expected at most %d dimensions", HLO_RANK_MAX);
            return NULL;
        }
        if (skip_char(p, '?')) {
            dims[rank] = -1;
            continue;
        }
        if (p->at[0] == '<' && p->at[1] == '=') {
            bounded |= UINT64_C(1) << rank;
            p->at += 2;
        }
        const char *at = p->at;
        if (!skip_space(p) || !scan_int(p, &dims[rank]))
            return NULL;
        if (dims[rank] < 0) {
            parse_expected(p, at, "a dimension >= 0");
            return NULL;
        }
    }
    p->at++;
    struct hlo_shape *s = (struct hlo_shape *)(uintptr_t)shape_array(p, start, t, dims, rank);
    if (!s)
        return NULL;
    s->bounded = bounded;
    const char *end = p->at;
    if (!skip_space(p))
        return NULL;
    if (layout_begins(p->at)) {
        if (!parse_layout(p, s))
            return NULL;
        if (!array_counts(s)) {
            parse_fail(p, start, "expected a shape of fewer than 2^63 bytes");
            return NULL;
        }
    } else {
        p->at = end;
    }
    return s;
}

static const struct hlo_shape *parse_known(struct parser *p, bool balanced);

static const struct hlo_shape *parse_elements(struct parser *p, enum hlo_dtype t, bool balanced) {
    struct vec elements = {.item = sizeof(const struct hlo_shape *)};
    const struct hlo_shape *s = NULL;
    const char *start = p->at++; /* '(' */
    if (p->depth == HLO_DEPTH_MAX) {
        parse_fail(p, start, "expected at most %d nested tuples", HLO_DEPTH_MAX);
        return NULL;
    }
    p->depth++;
    while (skip_space(p) && *p->at != ')') {
        if (elements.n && !expect_char(p, ','))
            goto out;
        if (!skip_space(p))
            goto out;
        const struct hlo_shape *x = parse_known(p, balanced), **slot = NULL;
        if (!x || !(slot = vec_push(p, &elements)))
            goto out;
        *slot = x;
    }
    if (p->rc)
        goto out;
    p->at++;
    if (t == HLO_BUFFER_TYPE && elements.n != 1)
        parse_fail(p, start, "expected one shape in b(...), found %zu", elements.n);
    else
        s = shape_of(p, start, t, elements.p, (uint32_t)elements.n);
out:
    p->depth--;
    p->scratch_bytes -= elements.cap * elements.item;
    free(elements.p);
    return s;
}

/* Where the shape that begins here ends, judged by its brackets; NULL when it takes a parser. */
static const char *quick_end(const char *at) {
    const char *q = at;
    if (*q == '(') {
        for (int depth = 0;; q++) {
            while (*q != '(' && *q != ')' && *q && *q != '/' && *q != '"')
                q++;
            if (*q == '(') {
                depth++;
            } else if (*q == ')') {
                if (!--depth)
                    return q + 1;
            } else if (*q == '/' && q[1] == '*') {
                q = strstr(q + 2, "*/");
                if (!q++)
                    return NULL;
            } else {
                return NULL;
            }
        }
    }
    while (is(*q, CH_NAME))
        q++;
    if (*q != '[')
        return NULL;
    while (*q != ']' && *q && *q != '/')
        q++;
    if (*q != ']')
        return NULL;
    const char *end = ++q;
    while (is(*q, CH_SPACE))
        q++;
    if (*q == '/')
        return NULL;
    if (!layout_begins(q))
        return end;
    while (*q != '}' && *q && *q != '/')
        q++;
    return *q == '}' ? q + 1 : NULL;
}

static bool shapes_grow(struct parser *p) {
    size_t cap = p->shapes_cap ? 2 * p->shapes_cap : 256;
    struct shape_slot *slots = calloc(cap, sizeof *slots);
    if (!slots)
        return parse_memory(p);
    for (size_t i = 0; i < p->shapes_cap; i++) {
        if (!p->shapes[i].shape)
            continue;
        size_t s = p->shapes[i].hash & (cap - 1);
        while (slots[s].shape)
            s = (s + 1) & (cap - 1);
        slots[s] = p->shapes[i];
    }
    p->scratch_bytes += (cap - p->shapes_cap) * sizeof *slots;
    free(p->shapes);
    p->shapes = slots;
    p->shapes_cap = cap;
    return true;
}

static const struct hlo_shape *parse_anew(struct parser *p, bool balanced) {
    const char *start = p->at;
    struct hlo_shape *s;
    if (*p->at == '(') {
        s = (struct hlo_shape *)(uintptr_t)parse_elements(p, HLO_TUPLE_TYPE, balanced);
    } else if (p->at[0] == 'b' && p->at[1] == '(') {
        p->at++;
        s = (struct hlo_shape *)(uintptr_t)parse_elements(p, HLO_BUFFER_TYPE, balanced);
    } else {
        const char *q = start;
        while (is(*q, CH_NAME))
            q++;
        uint32_t t = dict_find(&p->dtypes, start, (size_t)(q - start), UINT32_MAX);
        if (t == UINT32_MAX || *q != '[') {
            parse_expected(p, t == UINT32_MAX ? start : q, t == UINT32_MAX ? "a shape" : "'['");
            return NULL;
        }
        p->at = q;
        s = (struct hlo_shape *)(uintptr_t)parse_array(p, (enum hlo_dtype)t);
    }
    if (s)
        s->text = (struct str){start, (size_t)(p->at - start)};
    return s;
}

/* balanced: the brackets from here are known to close, so that looking ahead is worth it. */
static const struct hlo_shape *parse_known(struct parser *p, bool balanced) {
    const char *start = p->at, *end = balanced ? quick_end(start) : NULL;
    if (!end)
        return parse_anew(p, balanced && *start != '(');
    size_t n = (size_t)(end - start);
    uint32_t hash = hlo_hash(start, n);
    if (2 * (p->nshapes + 1) > p->shapes_cap && !shapes_grow(p))
        return NULL;
    size_t s = hash & (p->shapes_cap - 1);
    for (; p->shapes[s].shape; s = (s + 1) & (p->shapes_cap - 1))
        if (p->shapes[s].hash == hash && p->shapes[s].n == n &&
            !memcmp(p->text + p->shapes[s].at, start, n)) {
            p->at = end;
            return p->shapes[s].shape;
        }
    const struct hlo_shape *shape = parse_anew(p, true);
    if (!shape || p->at != end)
        return shape;
    /* a tuple's elements may have been put in the way, or have grown the table */
    if (2 * (p->nshapes + 1) > p->shapes_cap && !shapes_grow(p))
        return NULL;
    for (s = hash & (p->shapes_cap - 1); p->shapes[s].shape; s = (s + 1) & (p->shapes_cap - 1))
        ;
    p->shapes[s] = (struct shape_slot){hash, offset(p, start), (uint32_t)n, shape};
    p->nshapes++;
    return shape;
}

const struct hlo_shape *parse_shape(struct parser *p) {
    return parse_known(p, true);
}

/* ---- asking ---- */

bool hlo_shape_same(const struct hlo_shape *a, const struct hlo_shape *b) {
    if (a == b)
        return true;
    if (a->dtype != b->dtype || a->rank != b->rank || a->nelements != b->nelements ||
        a->leaves != b->leaves)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i])
            return false;
    for (uint32_t i = 0; i < a->nelements; i++)
        if (!hlo_shape_same(a->elements[i], b->elements[i]))
            return false;
    return true;
}

/* The numbers of the first tile; '*' is -1. Returns how many, 0: no tile. */
static int first_tile(const struct hlo_shape *s, int64_t *tile) {
    if (!s->layout.n)
        return 0;
    const char *p = s->layout.p, *end = p + s->layout.n;
    int n = 0;
    for (; p < end && *p != 'T'; p++)
        if (*p == '(')
            while (p < end && *p != ')')
                p++;
    if (end - p < 2 || p[1] != '(')
        return 0;
    for (p += 2; p < end && *p != ')' && n < HLO_RANK_MAX; n++) {
        tile[n] = *p == '*' ? -1 : 0;
        for (; p < end && *p != ',' && *p != ')'; p++)
            if (is(*p, CH_DIGIT) && (__builtin_mul_overflow(tile[n], 10, &tile[n]) ||
                                     __builtin_add_overflow(tile[n], *p - '0', &tile[n])))
                return 0;
        p += p < end && *p == ',';
    }
    return n;
}

int64_t hlo_shape_padded_bytes(const struct hlo_shape *s) {
    if (s->dtype >= HLO_TUPLE_TYPE) {
        int64_t sum = 0;
        for (uint32_t i = 0; i < s->nelements; i++) {
            int64_t x = hlo_shape_padded_bytes(s->elements[i]);
            if (x < 0 || __builtin_add_overflow(sum, x, &sum))
                return HLO_UNKNOWN_COUNT;
        }
        return sum;
    }
    int64_t tile[HLO_RANK_MAX], dims[2 * HLO_RANK_MAX], product = 1;
    int t = s->count < 0 ? 0 : first_tile(s, tile), n = 0;
    if (!t)
        return s->bytes;
    for (int i = s->rank; i < t; i++)
        dims[n++] = 1; /* a tile of more dimensions than the array has */
    for (int i = s->rank - 1; i >= 0; i--)
        dims[n++] = s->dims[s->minor_to_major[i]]; /* slowest first */
    for (int i = 0; i < t; i++) {
        int64_t *d = &dims[n - t + i];
        if (tile[i] < 0 && i + 1 < t) { /* taken together with the next */
            if (__builtin_mul_overflow(*d, d[1], &d[1]))
                return HLO_UNKNOWN_COUNT;
            *d = 1;
        } else if (tile[i] > 0) {
            int64_t up;
            if (__builtin_add_overflow(*d, tile[i] - 1, &up) ||
                __builtin_mul_overflow(up / tile[i], tile[i], d))
                return HLO_UNKNOWN_COUNT;
        }
    }
    for (int i = 0; i < n; i++)
        if (__builtin_mul_overflow(product, dims[i], &product))
            return HLO_UNKNOWN_COUNT;
    int64_t bits = s->element_bits ? s->element_bits : hlo_dtype_bits[s->dtype];
    return __builtin_mul_overflow(product, bits, &bits) ? HLO_UNKNOWN_COUNT
                                                        : bits / 8 + (bits % 8 != 0);
}
