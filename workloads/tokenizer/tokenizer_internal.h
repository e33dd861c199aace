/* Inside of the tokenizer: the parts of a file as tables, and one thread's scratch. */
#ifndef WORKLOADS_TOKENIZER_TOKENIZER_INTERNAL_H
#define WORKLOADS_TOKENIZER_TOKENIZER_INTERNAL_H

#include "harness/core/arena.h"
#include "workloads/tokenizer/tokenizer.h"
#include "workloads/tokenizer/unicode_internal.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { STEPS_MAX = 32, AFFIX_MAX = 16, ID_NONE = 0x7FFFFFFF, ID_MAX = 1 << 24 };

/* Text of tokens to ids, open addressing. */
struct vocab {
    uint32_t *slots; /* id + 1 */
    size_t mask;
};

struct merge {
    uint64_t pair; /* left << 32 | right; UINT64_MAX: empty */
    uint32_t rank, id;
};

enum norm_kind { STEP_FORM, STEP_PREPEND, STEP_REPLACE, STEP_STRIP, STEP_LOWERCASE };
struct norm_step {
    enum norm_kind kind;
    struct norm *form;
    struct str a, b;  /* prepended; replaced and replacement */
    pcre2_code *code; /* of a replaced pattern, or NULL */
    bool left, right;
};

/* The next match at or after `at` of text[0,n): its end, and its start in *start; SIZE_MAX: none.
 */
typedef size_t (*split_fn)(const uint8_t *cls, const uint8_t *text, size_t n, size_t at,
                           size_t *start);

enum split_kind { SPLIT_MATCHES, SPLIT_LITERAL, SPLIT_METASPACE, SPLIT_PREFIX_SPACE };
enum split_behavior {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS,
};
struct split_step {
    enum split_kind kind;
    enum split_behavior behavior;
    bool invert;
    split_fn fast;    /* else */
    pcre2_code *code; /* or, for a literal, */
    struct str literal;
    int prepend; /* metaspace: 0 never, 1 always, 2 first */
    bool split;
};

enum decode_kind {
    DEC_BYTELEVEL,
    DEC_REPLACE,
    DEC_BYTEFALLBACK,
    DEC_FUSE,
    DEC_STRIP,
    DEC_METASPACE
};
struct decode_step {
    enum decode_kind kind;
    struct str a, b;
    size_t start, stop;
    bool prepended;
};

/* Added tokens as a trie of bytes: edges in one hash table. */
struct trie {
    uint64_t *edges; /* (node << 8 | byte) + 1 */
    uint32_t *to;
    size_t mask;
    uint32_t *token; /* by node: index into added + 1 */
    uint32_t nodes;
    bool first[256];
    uint32_t count; /* tokens within */
};

struct added {
    struct str content;
    uint32_t id;
    bool special, lstrip, rstrip, single_word, normalized;
};

struct tokenizer {
    struct arena arena;
    char sha256[65];
    json_t *facts;

    /* the model */
    struct str *text;  /* by id: as the file has it; p NULL: no such id */
    struct str *shown; /* by id: as decoded; the same array unless an added token is normalized */
    struct str *bytes; /* by id: as looked up; the same array unless byte-level */
    uint32_t nids, model_vocab;
    bool *special; /* by id */
    struct vocab by_text, by_bytes;
    struct merge *merges;
    size_t merges_mask;
    bool byte_level, ignore_merges, byte_fallback, fuse_unk;
    uint32_t unk;                  /* ID_NONE: there is none */
    uint32_t byte_id[256];         /* byte-level: the symbol; else an ASCII character */
    uint32_t fallback_id[256];     /* <0x00> … */
    bool seams;                    /* where no merge can cross, text is cut */
    uint8_t ascii_joins[128][128]; /* some merge crosses between the two */
    uint64_t *joins;               /* pairs of code points that a merge crosses, + 1 */
    size_t joins_mask;

    struct added *added;
    size_t nadded;
    struct trie raw, normalized;
    struct norm_step norms[STEPS_MAX];
    int nnorms;
    struct split_step splits[STEPS_MAX];
    int nsplits;
    struct decode_step decodes[STEPS_MAX];
    int ndecodes;
    bool no_decoder,
        general; /* general: regular expressions even where a hand-written way is known */
    uint32_t before[AFFIX_MAX], after[AFFIX_MAX];
    int nbefore, nafter;
    const uint8_t *classes;
    pcre2_code *codes[STEPS_MAX];
    int ncodes;
};

/* One word's ids, by its bytes. */
enum { CACHE_BYTES = 27, CACHE_IDS = 8, CACHE_SETS = 1 << 14 };
struct cached {
    uint32_t ids[CACHE_IDS];
    uint32_t hash;
    uint8_t len, n, spare[CACHE_BYTES];
};
/* Longer words: a key of up to 128 bytes, up to 60 ids. */
enum { CACHE2_BYTES = 250, CACHE2_IDS = 64, CACHE2_SETS = 1 << 12 };
struct cached2 {
    uint64_t hash;
    uint16_t len, n;
    uint32_t ids[CACHE2_IDS];
    char key[CACHE2_BYTES];
};

struct span {
    size_t from, to;
    bool match;
};
struct symbol {
    uint32_t id;
    int32_t prev, next;
};
struct candidate {
    uint32_t rank, pos, id;
};

struct tokenizer_work {
    const struct tokenizer *t;
    struct buf clean, norm_a, norm_b, norm_scratch, piece[STEPS_MAX];
    struct span *spans;
    size_t nspans, cap_spans;
    uint32_t *word; /* symbols of one word */
    size_t cap_word;
    struct symbol *symbols;
    struct candidate *heap;
    size_t cap_symbols, nheap, cap_heap;
    struct cached *cache;
    struct cached2 *cache2;
    pcre2_match_data *match;
    pcre2_match_context *match_context;
    uint32_t *ids;
    size_t cap, count;
    bool failed, at_start;
    bool gave_up; /* a regular expression did, at its limits; failed is set too */
};

/* vocab.c */
int vocab_init(struct vocab *v, struct arena *a, size_t n);
void vocab_put(struct vocab *v, const struct str *texts, uint32_t id);
uint32_t vocab_get(const struct vocab *v, const struct str *texts, const char *p, size_t n);
const struct merge *merge_get(const struct tokenizer *t, uint32_t left, uint32_t right);
int trie_init(struct trie *t, struct arena *a, size_t bytes);
void trie_put(struct trie *t, const char *p, size_t n, uint32_t token);
/* The longest token at p: its length, and its index in *token; 0: none. */
size_t trie_match(const struct trie *t, const uint8_t *p, size_t n, uint32_t *token);

/* regex.c: an Oniguruma (Ruby syntax) pattern as PCRE2. */
int regex_compile(const char *pattern, size_t n, pcre2_code **out, char *why, size_t why_bytes);
/* The next match of code at or after `at`: 1, and its bounds; 0: none, or a failure (in the work).
 */
int regex_match(struct tokenizer_work *w, const pcre2_code *code, const char *p, size_t n,
                size_t at, size_t *start, size_t *end);
/* Whether it could match no text at all. */
bool regex_may_match_nothing(const pcre2_code *code);
split_fn split_known(const char *pattern, size_t n);
extern const char split_gpt2_pattern[];

/* load_steps.c */
int load_normalizer(struct tokenizer *t, json_t *v, const char *name, struct err *e) MUST_USE;
int load_pre_tokenizer(struct tokenizer *t, json_t *v, const char *name, struct err *e) MUST_USE;
int load_decoder(struct tokenizer *t, json_t *v, const char *name, struct err *e) MUST_USE;
int load_post_processor(struct tokenizer *t, json_t *v, const char *name, struct err *e) MUST_USE;
/* The byte of a byte-level character, or -1. */
int byte_of_char(uint32_t c);

/* load.c; general: see struct tokenizer. */
int tokenizer_parse_with(const char *json, size_t n, const char *name, bool general,
                         struct tokenizer **out, struct err *e) MUST_USE;

/* split.c, bpe.c, normalize.c */
void split_piece(struct tokenizer_work *w, int step, const char *p, size_t n, bool at_start);
void bpe_word(struct tokenizer_work *w, const char *p, size_t n);
/* Normal text of a piece: p itself when nothing changes, else in the work's buffers. */
void normalize_piece(struct tokenizer_work *w, const char **p, size_t *n);
void *work_grow(struct tokenizer_work *w, void *p, size_t *cap, size_t want, size_t size);
static inline void work_emit(struct tokenizer_work *w, uint32_t id) {
    if (w->count < w->cap)
        w->ids[w->count] = id;
    w->count++;
}

#endif
