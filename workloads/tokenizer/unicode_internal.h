/* What the tokenizer asks of Unicode: classes of characters as its regular expressions see them,
 * and normal forms. Two versions of the standard on purpose: ids must equal those of a library that
 * mixes two (16.0 in its regular expressions, 9.0 in its normalizers). */
#ifndef WORKLOADS_TOKENIZER_UNICODE_INTERNAL_H
#define WORKLOADS_TOKENIZER_UNICODE_INTERNAL_H

#include "harness/core/buf.h"
#include "harness/core/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { UNICODE_END = 0x110000 };

// clang-format off
enum unicode_category {
    UC_CN, UC_LU, UC_LL, UC_LT, UC_LM, UC_LO, UC_MN, UC_MC, UC_ME, UC_ND, UC_NL, UC_NO, UC_PC, UC_PD,
    UC_PS, UC_PE, UC_PI, UC_PF, UC_PO, UC_SM, UC_SC, UC_SK, UC_SO, UC_ZS, UC_ZL, UC_ZP, UC_CC, UC_CF,
    UC_CO, UC_CS,
    UC_LU_LL, /* in the runs only: Lu and Ll by turns */
    UC_COUNT = UC_LU_LL
};
// clang-format on

extern const uint32_t unicode_runs[]; /* first code point << 8 | category */
extern const size_t unicode_nruns;

/* Bits of the class table: what the well-known splitting patterns ask. */
enum unicode_class {
    UCLASS_L = 1,
    UCLASS_N = 2,
    UCLASS_SPACE = 4,
    UCLASS_PS = 8, /* P or S */
    UCLASS_M = 16,
    UCLASS_UPPER = 32, /* Lu Lt Lm Lo M */
    UCLASS_LOWER = 64, /* Ll Lm Lo M */
    UCLASS_NEWLINE = 128,
};

/* The table of classes by code point, built once per process; NULL when memory runs out. */
const uint8_t *unicode_classes(void);

/* "L", "Lu", "LC", "Han", …: calls add for each range of the property; false: not known. */
bool unicode_property(const char *name, size_t n, void (*add)(void *, uint32_t, uint32_t),
                      void *to);
void unicode_space(void (*add)(void *, uint32_t, uint32_t), void *to);
void unicode_word(void (*add)(void *, uint32_t, uint32_t), void *to);
bool unicode_is_space(uint32_t c);
bool unicode_is_word(uint32_t c); /* as \w of Rust's regex crate: with the two joiners */

/* One code point of valid UTF-8; *p moves on. */
static inline uint32_t utf8_next(const uint8_t **p) {
    const uint8_t *s = *p;
    if (s[0] < 0x80) {
        *p = s + 1;
        return s[0];
    }
    if (s[0] < 0xE0) {
        *p = s + 2;
        return (uint32_t)(s[0] & 0x1F) << 6 | (s[1] & 0x3Fu);
    }
    if (s[0] < 0xF0) {
        *p = s + 3;
        return (uint32_t)(s[0] & 0x0F) << 12 | (uint32_t)(s[1] & 0x3F) << 6 | (s[2] & 0x3Fu);
    }
    *p = s + 4;
    return (uint32_t)(s[0] & 7) << 18 | (uint32_t)(s[1] & 0x3F) << 12 |
           (uint32_t)(s[2] & 0x3F) << 6 | (s[3] & 0x3Fu);
}
static inline size_t utf8_len(uint8_t lead) {
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}
size_t utf8_put(uint32_t c, char *out); /* up to 4 bytes */
/* Length of the prefix that is valid UTF-8. *bad: bytes of the maximal ill-formed part after it. */
size_t utf8_valid(const char *p, size_t n, size_t *bad);
void utf8_lossy(const char *p, size_t n, struct buf *out); /* appends, ill-formed parts as U+FFFD */

/* Lower case of one character, as code points in out; returns how many (1 or 2). */
int unicode_lower(uint32_t c, uint32_t out[2]);

/* Normal forms. A struct is made once at load. */
enum norm_form { NORM_NFC, NORM_NFD, NORM_NFKC, NORM_NFKD };
struct norm;
struct norm *norm_new(enum norm_form form); /* NULL when memory runs out */
void norm_free(struct norm *m);
/* True when text is surely in the form already. */
bool norm_quick(const struct norm *m, const char *p, size_t n);
/* Appends the normal form of valid UTF-8 to out; scratch is overwritten. */
void norm_apply(const struct norm *m, const char *p, size_t n, struct buf *out,
                struct buf *scratch);

#endif
