/* Inside the HLO reader: the parser's state, scanning, tables. */
#ifndef WORKLOADS_HLO_HLO_INTERNAL_H
#define WORKLOADS_HLO_HLO_INTERNAL_H

#include "workloads/hlo/hlo.h"

#include "harness/core/arena.h"

#include <string.h>

/* ---- characters ---- */
enum {
    CH_SPACE = 1,   /* blank, tab, CR, LF */
    CH_NAME = 2,    /* inside a name */
    CH_START = 4,   /* begins a name */
    CH_BRACKET = 8, /* what a balanced scan must look at: brackets, quotes, '/', NUL */
    CH_VALUE = 16,  /* inside an attribute's value outside of brackets and quotes */
    CH_DIGIT = 32,
};
extern const uint8_t hlo_chars[256];
static inline bool is(char c, int class) {
    return hlo_chars[(unsigned char)c] & class;
}

static inline uint32_t hlo_hash(const char *p, size_t n) {
    const uint64_t k = UINT64_C(0x9E3779B97F4A7C15);
    uint64_t h = n * k, v = 0;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&v, p, 8);
        h = (h ^ v) * k;
        h ^= h >> 29;
    }
    if (n >= 4) {
        uint32_t a, b;
        memcpy(&a, p, 4);
        memcpy(&b, p + n - 4, 4);
        v = (uint64_t)a << 32 | b;
    } else if (n) {
        v = (uint64_t)(unsigned char)p[0] << 16 | (uint64_t)(unsigned char)p[n / 2] << 8 |
            (unsigned char)p[n - 1];
    } else {
        v = 0;
    }
    h = (h ^ v) * k;
    return (uint32_t)(h >> 32);
}

/* ---- fixed words: opcodes, keys, types ---- */
struct word {
    const char *text;
    uint32_t id;
};
enum { DICT_SLOTS = 512 };
struct dict {
    const struct word *words;
    uint8_t n[DICT_SLOTS]; /* length, 0: free */
    uint16_t at[DICT_SLOTS];
};
void dict_init(struct dict *d, const struct word *words, size_t n);
/* The word's id, or `none`. */
uint32_t dict_find(const struct dict *d, const char *p, size_t n, uint32_t none);

extern const struct word hlo_opcode_words[HLO_OPCODE_COUNT - 1];
extern const struct word hlo_key_words[];
extern const struct word hlo_dtype_words[];
extern const size_t hlo_nkey_words, hlo_ndtype_words;
bool hlo_key_is_callee(uint32_t key);
void hlo_opcode_arity(enum hlo_opcode op, int *least, int *most);
extern const uint8_t hlo_dtype_bits[HLO_DTYPE_COUNT];

/* ---- growing arrays of the parser: freed when it ends ---- */
struct vec {
    void *p;
    size_t n, cap, item;
};

/* ---- names of the text: a slice to a number ---- */
struct name_slot {
    uint32_t hash, epoch, at, n, value;
};
struct names {
    struct name_slot *slots;
    size_t cap, n;
    uint32_t epoch; /* a slot of another epoch is free */
};

struct shape_slot {
    uint32_t hash, at, n;
    const struct hlo_shape *shape;
};

struct parser {
    const char *text, *end, *at; /* *end is 0 */
    const char *file_name;
    struct arena *arena;
    struct err *e;
    int rc;
    size_t arena_bytes, scratch_bytes;
    struct dict opcodes, keys, dtypes;
    struct names local, computations_by_name;
    struct shape_slot *shapes;
    size_t shapes_cap, nshapes;
    int depth;
    /* of the computation that is open */
    struct vec instrs, operands, attrs, callees, pending;
    struct str open_name; /* empty between computations */
    const char *open_at;
    int64_t root;
    struct vec parameters; /* a bit a number: seen */
    /* of the module and the file */
    struct vec computations, module_attrs, modules;
};

/* ---- scan.c ---- */
/* Sets the error at a place: "file:line:column: expected WHAT, found '…'"; returns false. */
bool parse_expected(struct parser *p, const char *at, const char *what);
bool parse_fail(struct parser *p, const char *at, const char *fmt, ...) PRINTF_LIKE(3, 4);
bool parse_memory(struct parser *p);

/* Steps over blanks and comments; stops at a module separator. False: an open comment. */
bool skip_space_slow(struct parser *p);
static inline bool skip_space(struct parser *p) {
    while (is(*p->at, CH_SPACE))
        p->at++;
    return *p->at != '/' || skip_space_slow(p);
}
bool at_separator(const struct parser *p, const char *at);

static inline bool skip_char(struct parser *p, char c) {
    if (*p->at != c)
        return false;
    p->at++;
    return true;
}
bool expect_char(struct parser *p, char c); /* after blanks */
/* A name, its '%' not included; false: there is none, no error is set. */
static inline bool scan_name(struct parser *p, struct str *name) {
    const char *q = p->at + (*p->at == '%');
    if (!is(*q, CH_START) && !(*p->at == '%' && is(*q, CH_NAME)))
        return false;
    const char *start = q;
    while (is(*q, CH_NAME))
        q++;
    *name = (struct str){start, (size_t)(q - start)};
    p->at = q;
    return true;
}
bool scan_int(struct parser *p, int64_t *v); /* error when there is none */
bool scan_string(struct parser *p);          /* at the opening quote */
bool scan_balanced(struct parser *p);        /* at the opening bracket */
bool scan_value(struct parser *p, uint32_t key);

static inline uint32_t offset(const struct parser *p, const char *at) {
    return (uint32_t)(at - p->text);
}

void *parse_alloc(struct parser *p, size_t n, size_t size); /* zeroed; NULL: error is set */
void *vec_grow(struct parser *p, struct vec *v);
/* Room for one more item at the end. */
static inline void *vec_push(struct parser *p, struct vec *v) {
    if (v->n == v->cap && !vec_grow(p, v))
        return NULL;
    return (char *)v->p + v->item * v->n++;
}
/* A copy in the arena, NULL and no error when empty. */
bool vec_keep(struct parser *p, const struct vec *v, void *out);

struct name_slot *names_find(const struct names *t, const char *text, struct str name,
                             uint32_t hash);
bool names_put(struct parser *p, struct names *t, struct str name, uint32_t hash, uint32_t value);
void names_clear(struct names *t);

/* ---- shape.c ---- */
const struct hlo_shape *parse_shape(struct parser *p);
/* Does a shape begin here ("f32[", "(", "b(")? */
bool shape_begins(const struct parser *p, const char *at);
const struct hlo_shape *shape_array(struct parser *p, const char *at, enum hlo_dtype t,
                                    const int64_t *dims, int rank);
const struct hlo_shape *shape_tuple(struct parser *p, const char *at,
                                    const struct hlo_shape *const *elements, uint32_t n);

/* ---- instr.c ---- */
bool parse_computation(struct parser *p, bool entry);
/* key=value list after commas into attrs (and callees, where computations are named). */
bool parse_attrs(struct parser *p, struct vec *attrs, struct vec *callees);

/* ---- check.c ---- */
bool check_instr(struct parser *p, const struct hlo_module *m, const struct hlo_computation *c,
                 const struct hlo_instr *i, const char *at);
const struct hlo_shape *infer_shape(struct parser *p, const struct hlo_module *m,
                                    const struct hlo_computation *c, const struct hlo_instr *i,
                                    const char *at);

#endif
