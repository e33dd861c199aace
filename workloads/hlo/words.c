/* The fixed words of HLO text: opcodes, element types, attribute keys. Tables and their lookup. */
#include "workloads/hlo/hlo_internal.h"

const struct word hlo_opcode_words[HLO_OPCODE_COUNT - 1] = {
#define X(id, name, least, most, class) {name, HLO_##id},
    HLO_OPCODES(X)
#undef X
};

static const struct opcode_row {
    int8_t least, most;
    uint8_t class;
} opcode_rows[HLO_OPCODE_COUNT] = {[HLO_UNKNOWN] = {0, -1, HLO_CLASS_UNKNOWN},
#define X(id, name, least, most, class) [HLO_##id] = {least, most, HLO_CLASS_##class},
                                   HLO_OPCODES(X)
#undef X
};

const struct word hlo_key_words[] = {
#define X(id, name, callee) {name, HLO_KEY_##id},
    HLO_KEYS(X)
#undef X
};
const size_t hlo_nkey_words = sizeof hlo_key_words / sizeof *hlo_key_words;

static const uint8_t key_callee[HLO_KEY_COUNT] = {
#define X(id, name, callee) [HLO_KEY_##id] = callee,
    HLO_KEYS(X)
#undef X
};

const struct word hlo_dtype_words[] = {
#define X(id, name, bits) {name, HLO_##id},
    HLO_DTYPES(X)
#undef X
};
const size_t hlo_ndtype_words = sizeof hlo_dtype_words / sizeof *hlo_dtype_words;

const uint8_t hlo_dtype_bits[HLO_DTYPE_COUNT] = {
#define X(id, name, bits) [HLO_##id] = bits,
    HLO_DTYPES(X)
#undef X
};

const char *hlo_opcode_name(enum hlo_opcode op) {
    return op == HLO_UNKNOWN || op >= HLO_OPCODE_COUNT ? "unknown" : hlo_opcode_words[op - 1].text;
}

enum hlo_class hlo_opcode_class(enum hlo_opcode op) {
    return op < HLO_OPCODE_COUNT ? (enum hlo_class)opcode_rows[op].class : HLO_CLASS_UNKNOWN;
}

void hlo_opcode_arity(enum hlo_opcode op, int *least, int *most) {
    *least = opcode_rows[op].least;
    *most = opcode_rows[op].most;
}

/* Binary search: the table is sorted. */
enum hlo_opcode hlo_opcode_find(const char *name, size_t n) {
    size_t lo = 0, hi = HLO_OPCODE_COUNT - 1;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const char *text = hlo_opcode_words[mid].text;
        int order = strncmp(name, text, n);
        if (!order && text[n])
            order = -1;
        if (!order)
            return (enum hlo_opcode)hlo_opcode_words[mid].id;
        if (order < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return HLO_UNKNOWN;
}

const char *hlo_dtype_name(enum hlo_dtype t) {
    return t < HLO_TUPLE_TYPE ? hlo_dtype_words[t].text : t == HLO_TUPLE_TYPE ? "tuple" : "buffer";
}

bool hlo_key_is_callee(uint32_t key) {
    return key < HLO_KEY_COUNT && key_callee[key];
}

void dict_init(struct dict *d, const struct word *words, size_t n) {
    memset(d, 0, sizeof *d);
    d->words = words;
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(words[i].text);
        size_t s = hlo_hash(words[i].text, length) % DICT_SLOTS;
        while (d->n[s])
            s = (s + 1) % DICT_SLOTS;
        d->n[s] = (uint8_t)length;
        d->at[s] = (uint16_t)i;
    }
}

uint32_t dict_find(const struct dict *d, const char *p, size_t n, uint32_t none) {
    for (size_t s = hlo_hash(p, n) % DICT_SLOTS; d->n[s]; s = (s + 1) % DICT_SLOTS) {
        const struct word *w = &d->words[d->at[s]];
        if (d->n[s] == n && !memcmp(w->text, p, n))
            return w->id;
    }
    return none;
}
