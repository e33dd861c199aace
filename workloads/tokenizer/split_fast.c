/* The splitting patterns of widely used models by hand, keyed on the exact text of the pattern; the
 * regular expression itself is the general way, and a test holds the two equal. */
#include "workloads/tokenizer/tokenizer_internal.h"

#include <string.h>

const char split_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

struct at {
    uint8_t cls;
    size_t next; /* offset after it */
};

static struct at look(const uint8_t *cls, const uint8_t *p, size_t i) {
    uint8_t c = p[i];
    if (c < 0x80)
        return (struct at){cls[c], i + 1};
    const uint8_t *s = p + i;
    uint32_t u = utf8_next(&s);
    return (struct at){cls[u], (size_t)(s - p)};
}

static size_t run(const uint8_t *cls, const uint8_t *p, size_t n, size_t i, uint8_t any) {
    while (i < n) {
        struct at a = look(cls, p, i);
        if (!(a.cls & any))
            break;
        i = a.next;
    }
    return i;
}

static size_t run_without(const uint8_t *cls, const uint8_t *p, size_t n, size_t i, uint8_t none) {
    while (i < n) {
        struct at a = look(cls, p, i);
        if (a.cls & none)
            break;
        i = a.next;
    }
    return i;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d) at i: its end, or i. U+017F folds to s. */
static size_t contraction(const uint8_t *p, size_t n, size_t i, bool fold) {
    if (i + 1 >= n || p[i] != '\'')
        return i;
    uint8_t or = fold ? 0x20 : 0, a = p[i + 1] | or ;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return i + 2;
    if (fold && i + 2 < n && p[i + 1] == 0xC5 && p[i + 2] == 0xBF)
        return i + 3;
    if (i + 2 >= n)
        return i;
    uint8_t b = p[i + 2] | or ;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
        return i + 3;
    return i;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ at i, where a space is (newlines: with the first alternative). */
static size_t space_run(const uint8_t *cls, const uint8_t *p, size_t n, size_t i, bool newlines) {
    size_t last = i, newline = 0, k = i;
    while (k < n) {
        struct at a = look(cls, p, k);
        if (!(a.cls & UCLASS_SPACE))
            break;
        if (a.cls & UCLASS_NEWLINE)
            newline = a.next;
        last = k, k = a.next;
    }
    if (newlines && newline)
        return newline;
    return k == n || last == i ? k : last;
}

static size_t digits(const uint8_t *cls, const uint8_t *p, size_t n, size_t i, int most) {
    for (int k = 0; k < most && i < n; k++) {
        struct at a = look(cls, p, i);
        if (!(a.cls & UCLASS_N))
            break;
        i = a.next;
    }
    return i;
}

/* ` ?[^\s\p{L}\p{N}]+` and what may trail; i when it does not match. */
static size_t marks(const uint8_t *cls, const uint8_t *p, size_t n, size_t i, bool newlines,
                    bool slash) {
    const uint8_t none = UCLASS_SPACE | UCLASS_L | UCLASS_N;
    size_t from = i + (p[i] == ' ');
    size_t k = run_without(cls, p, n, from, none);
    if (k == from)
        return i;
    while (newlines && k < n && (p[k] == '\r' || p[k] == '\n' || (slash && p[k] == '/')))
        k++;
    return k;
}

static size_t llama(const uint8_t *cls, const uint8_t *p, size_t n, size_t i, size_t *start,
                    int most_digits) {
    if (i >= n)
        return SIZE_MAX;
    *start = i;
    struct at c = look(cls, p, i);
    if (c.cls & UCLASS_L)
        return run(cls, p, n, c.next, UCLASS_L);
    size_t end = contraction(p, n, i, true);
    if (end > i)
        return end;
    if (c.cls & UCLASS_N)
        return digits(cls, p, n, i, most_digits);
    if (!(c.cls & UCLASS_NEWLINE) && c.next < n && (look(cls, p, c.next).cls & UCLASS_L))
        return run(cls, p, n, c.next, UCLASS_L);
    end = marks(cls, p, n, i, true, false);
    return end > i ? end : space_run(cls, p, n, i, true);
}

static size_t split_llama3(const uint8_t *cls, const uint8_t *p, size_t n, size_t i,
                           size_t *start) {
    return llama(cls, p, n, i, start, 3);
}

static size_t split_qwen(const uint8_t *cls, const uint8_t *p, size_t n, size_t i, size_t *start) {
    return llama(cls, p, n, i, start, 1);
}

static size_t split_gpt2(const uint8_t *cls, const uint8_t *p, size_t n, size_t i, size_t *start) {
    if (i >= n)
        return SIZE_MAX;
    *start = i;
    size_t end = contraction(p, n, i, false);
    if (end > i)
        return end;
    size_t from = i + (p[i] == ' ');
    if (from < n) {
        struct at c = look(cls, p, from);
        if (c.cls & UCLASS_L)
            return run(cls, p, n, c.next, UCLASS_L);
        if (c.cls & UCLASS_N)
            return run(cls, p, n, c.next, UCLASS_N);
        end = marks(cls, p, n, i, false, false);
        if (end > i)
            return end;
    }
    return space_run(cls, p, n, i, false);
}

/* [upper]*[lower]+ from s: the end, or s when it does not match. */
static size_t cased(const uint8_t *cls, const uint8_t *p, size_t n, size_t s) {
    size_t k = s, both = 0;
    while (k < n) {
        struct at a = look(cls, p, k);
        if (!(a.cls & UCLASS_UPPER))
            break;
        if (a.cls & UCLASS_LOWER)
            both = a.next;
        k = a.next;
    }
    size_t end = run(cls, p, n, k, UCLASS_LOWER);
    return end > k ? end : both ? both : s;
}

static size_t split_o200k(const uint8_t *cls, const uint8_t *p, size_t n, size_t i, size_t *start) {
    if (i >= n)
        return SIZE_MAX;
    *start = i;
    struct at c = look(cls, p, i);
    bool prefix = !(c.cls & (UCLASS_NEWLINE | UCLASS_L | UCLASS_N)) && c.next < n;
    size_t end;
    if (prefix && (end = cased(cls, p, n, c.next)) > c.next)
        return contraction(p, n, end, true);
    if ((end = cased(cls, p, n, i)) > i)
        return contraction(p, n, end, true);
    if (prefix && (end = run(cls, p, n, c.next, UCLASS_UPPER)) > c.next)
        return contraction(p, n, run(cls, p, n, end, UCLASS_LOWER), true);
    if ((end = run(cls, p, n, i, UCLASS_UPPER)) > i)
        return contraction(p, n, run(cls, p, n, end, UCLASS_LOWER), true);
    if (c.cls & UCLASS_N)
        return digits(cls, p, n, i, 3);
    end = marks(cls, p, n, i, true, true);
    return end > i ? end : space_run(cls, p, n, i, true);
}

static size_t split_digits3(const uint8_t *cls, const uint8_t *p, size_t n, size_t i,
                            size_t *start) {
    while (i < n) {
        struct at a = look(cls, p, i);
        if (a.cls & UCLASS_N) {
            *start = i;
            return digits(cls, p, n, i, 3);
        }
        i = a.next;
    }
    return SIZE_MAX;
}

static size_t split_cjk(const uint8_t *cls, const uint8_t *p, size_t n, size_t i, size_t *start) {
    (void)cls;
    size_t from = SIZE_MAX;
    while (i < n) {
        const uint8_t *s = p + i;
        if (*s < 0xE3 && from == SIZE_MAX) { /* cheap: below U+3000 */
            i += utf8_len(*s);
            continue;
        }
        uint32_t c = utf8_next(&s);
        bool in = (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
        if (in && from == SIZE_MAX)
            from = i;
        if (!in && from != SIZE_MAX)
            break;
        i = (size_t)(s - p);
    }
    *start = from;
    return from == SIZE_MAX ? SIZE_MAX : i;
}

static bool ascii_letter(uint8_t c) {
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

static bool ascii_mark(uint8_t c) {
    return c > 0x20 && c < 0x7F && !ascii_letter(c) && !(c >= '0' && c <= '9');
}

static size_t split_deepseek(const uint8_t *cls, const uint8_t *p, size_t n, size_t i,
                             size_t *start) {
    const uint8_t lm = UCLASS_L | UCLASS_M;
    for (; i < n; i = look(cls, p, i).next) {
        *start = i;
        if (ascii_mark(p[i]) && i + 1 < n && ascii_letter(p[i + 1])) {
            size_t k = i + 2;
            while (k < n && ascii_letter(p[k]))
                k++;
            return k;
        }
        struct at c = look(cls, p, i);
        bool prefix = !(c.cls & (UCLASS_NEWLINE | UCLASS_L | UCLASS_PS)) && c.next < n;
        if (prefix && (look(cls, p, c.next).cls & lm))
            return run(cls, p, n, c.next, lm);
        if (c.cls & lm)
            return run(cls, p, n, c.next, lm);
        size_t from = i + (p[i] == ' '), k = run(cls, p, n, from, UCLASS_PS);
        if (k > from) {
            while (k < n && (p[k] == '\r' || p[k] == '\n'))
                k++;
            return k;
        }
        if (c.cls & UCLASS_SPACE)
            return space_run(cls, p, n, i, true);
    }
    return SIZE_MAX;
}

#define TAIL "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SHORT "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
static const struct known {
    const char *pattern;
    split_fn fn;
} known[] = {
    {SHORT "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL,
     split_llama3},
    {SHORT "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL, split_qwen},
    {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
     "+" SHORT "?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}"
     "\\p{M}]*" SHORT "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" TAIL,
     split_o200k},
    {"\\p{N}{1,3}", split_digits3},
    {"[一-龥぀-ゟ゠-ヿ]+", split_cjk},
    {"[!\"#$%&'()*+,\\-./"
     ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
     "?[\\p{P}\\p{S}]+[\r\n]*" TAIL,
     split_deepseek},
    {split_gpt2_pattern, split_gpt2},
};

split_fn split_known(const char *pattern, size_t n) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].pattern) == n && !memcmp(known[i].pattern, pattern, n))
            return known[i].fn;
    return NULL;
}
