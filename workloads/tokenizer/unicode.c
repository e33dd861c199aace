/* Classes of characters and UTF-8. */
#include "workloads/tokenizer/unicode_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static const char names[UC_COUNT][3] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                        "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                        "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs"};

static const uint32_t spaces[][2] = {
    {9, 13},          {32, 32},         {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
/* Word characters outside L, M, Nd, Nl, Pc. */
static const uint32_t word_more[][2] = {{0xB2, 0xB3},      {0xB9, 0xB9},       {0xBC, 0xBE},
                                        {0x24B6, 0x24E9},  {0x1F130, 0x1F149}, {0x1F150, 0x1F169},
                                        {0x1F170, 0x1F189}};

/* Scripts that occur in published patterns. */
static const struct script {
    const char *name;
    uint32_t ranges[22][2];
} scripts[] = {
    {"Han", {{0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},
             {0x3007, 0x3007},   {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},
             {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},   {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3},
             {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739}, {0x2B740, 0x2B81D},
             {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2EBF0, 0x2EE5D}, {0x2F800, 0x2FA1D},
             {0x30000, 0x3134A}, {0x31350, 0x323AF}}},
    {"Hiragana",
     {{0x3041, 0x3096},
      {0x309D, 0x309F},
      {0x1B001, 0x1B11F},
      {0x1B132, 0x1B132},
      {0x1B150, 0x1B152},
      {0x1F200, 0x1F200}}},
    {"Thai", {{0xE01, 0xE3A}, {0xE40, 0xE5B}}},
};

static uint8_t *classes;
static pthread_once_t classes_once = PTHREAD_ONCE_INIT;

static uint8_t class_of(int category) {
    switch (category) {
    case UC_LU:
    case UC_LT:
        return UCLASS_L | UCLASS_UPPER;
    case UC_LL:
        return UCLASS_L | UCLASS_LOWER;
    case UC_LM:
    case UC_LO:
        return UCLASS_L | UCLASS_UPPER | UCLASS_LOWER;
    case UC_MN:
    case UC_MC:
    case UC_ME:
        return UCLASS_M | UCLASS_UPPER | UCLASS_LOWER;
    case UC_ND:
    case UC_NL:
    case UC_NO:
        return UCLASS_N;
    default:
        return category >= UC_PC && category <= UC_SO ? UCLASS_PS : 0;
    }
}

/* Calls f for each run, alternating ones taken apart. */
static void each_run(void (*f)(void *, uint32_t, uint32_t, int), void *to) {
    for (size_t i = 0; i < unicode_nruns; i++) {
        uint32_t from = unicode_runs[i] >> 8;
        uint32_t end = i + 1 < unicode_nruns ? unicode_runs[i + 1] >> 8 : UNICODE_END;
        int category = (int)(unicode_runs[i] & 0xFF);
        if (category != UC_LU_LL) {
            f(to, from, end - 1, category);
            continue;
        }
        for (uint32_t c = from; c < end; c++)
            f(to, c, c, (c - from) % 2 ? UC_LL : UC_LU);
    }
}

static void fill(void *to, uint32_t from, uint32_t last, int category) {
    memset((uint8_t *)to + from, class_of(category), last - from + 1);
}

static void build(void) {
    uint8_t *t = calloc(UNICODE_END, 1);
    if (!t)
        return;
    each_run(fill, t);
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        for (uint32_t c = spaces[i][0]; c <= spaces[i][1]; c++)
            t[c] |= UCLASS_SPACE;
    t['\r'] |= UCLASS_NEWLINE;
    t['\n'] |= UCLASS_NEWLINE;
    classes = t;
}

const uint8_t *unicode_classes(void) {
    pthread_once(&classes_once, build);
    return classes;
}

struct collect {
    uint32_t mask; /* categories */
    uint32_t from, last;
    bool open;
    void (*add)(void *, uint32_t, uint32_t);
    void *to;
};

static void collect_run(void *to, uint32_t from, uint32_t last, int category) {
    struct collect *c = to;
    if (!(c->mask >> category & 1))
        return;
    if (c->open && c->last + 1 == from) {
        c->last = last;
        return;
    }
    if (c->open)
        c->add(c->to, c->from, c->last);
    c->open = true, c->from = from, c->last = last;
}

static void categories(uint32_t mask, void (*add)(void *, uint32_t, uint32_t), void *to) {
    struct collect c = {.mask = mask, .add = add, .to = to};
    each_run(collect_run, &c);
    if (c.open)
        add(to, c.from, c.last);
}

bool unicode_property(const char *name, size_t n, void (*add)(void *, uint32_t, uint32_t),
                      void *to) {
    uint32_t mask = 0;
    for (int i = 0; i < UC_COUNT; i++)
        if ((n == 1 && names[i][0] == name[0]) || (n == 2 && !memcmp(names[i], name, 2)))
            mask |= 1u << i;
    if (mask) {
        mask &= ~(1u << UC_CS); /* no text holds a surrogate */
        categories(mask, add, to);
        return true;
    }
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (strlen(scripts[i].name) == n && !memcmp(scripts[i].name, name, n)) {
            for (size_t k = 0; k < 22 && scripts[i].ranges[k][0]; k++)
                add(to, scripts[i].ranges[k][0], scripts[i].ranges[k][1]);
            return true;
        }
    return false;
}

void unicode_space(void (*add)(void *, uint32_t, uint32_t), void *to) {
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        add(to, spaces[i][0], spaces[i][1]);
}

void unicode_word(void (*add)(void *, uint32_t, uint32_t), void *to) {
    uint32_t mask = 1u << UC_ND | 1u << UC_NL | 1u << UC_PC;
    for (int i = UC_LU; i <= UC_ME; i++)
        mask |= 1u << i;
    categories(mask, add, to);
    for (size_t i = 0; i < sizeof word_more / sizeof *word_more; i++)
        add(to, word_more[i][0], word_more[i][1]);
}

bool unicode_is_space(uint32_t c) {
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        if (c >= spaces[i][0] && c <= spaces[i][1])
            return true;
    return false;
}

struct within {
    uint32_t c;
    bool yes;
};

static void within(void *to, uint32_t from, uint32_t last) {
    struct within *w = to;
    w->yes |= w->c >= from && w->c <= last;
}

bool unicode_is_word(uint32_t c) {
    struct within w = {c, c == 0x200C || c == 0x200D};
    uint32_t mask = 1u << UC_ND | 1u << UC_NL | 1u << UC_PC;
    for (int i = UC_LU; i <= UC_ME; i++)
        mask |= 1u << i;
    categories(mask, within, &w);
    for (size_t i = 3; i < sizeof word_more / sizeof *word_more; i++) /* superscripts are none */
        within(&w, word_more[i][0], word_more[i][1]);
    return w.yes;
}

size_t utf8_put(uint32_t c, char *out) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6), out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12), out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18), out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F)), out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

size_t utf8_valid(const char *text, size_t n, size_t *bad) {
    const uint8_t *p = (const uint8_t *)text;
    size_t i = 0;
    *bad = 0;
    while (i < n) {
        uint64_t eight;
        if (n - i >= 8 && (memcpy(&eight, p + i, 8), !(eight & UINT64_C(0x8080808080808080)))) {
            i += 8;
            continue;
        }
        uint8_t c = p[i];
        if (c < 0x80) {
            i++;
            continue;
        }
        size_t want = c >= 0xC2 && c <= 0xDF   ? 1
                      : c >= 0xE0 && c <= 0xEF ? 2
                      : c >= 0xF0 && c <= 0xF4 ? 3
                                               : 0;
        uint8_t low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
        uint8_t high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
        size_t got = 0;
        while (got < want && i + 1 + got < n && p[i + 1 + got] >= low && p[i + 1 + got] <= high)
            got++, low = 0x80, high = 0xBF;
        if (!want || got < want) {
            *bad = 1 + got;
            return i;
        }
        i += 1 + want;
    }
    return n;
}

void utf8_lossy(const char *p, size_t n, struct buf *out) {
    for (;;) {
        size_t bad, good = utf8_valid(p, n, &bad);
        buf_put(out, p, good);
        if (good == n)
            return;
        buf_put(out, "\xEF\xBF\xBD", 3);
        p += good + bad, n -= good + bad;
    }
}

/* Simple lower case, but for the one character whose lower case is two, and for pairs of Unicode 16
 * and 17, which utf8proc 2.8 (Unicode 15) does not have. step: from one capital to the next. */
int unicode_lower(uint32_t c, uint32_t out[2]) {
    static const struct {
        uint32_t from, last, step;
        int32_t to; /* offset */
    } young[] = {
        {0x1C89, 0x1C89, 1, 1},      {0xA7CB, 0xA7CB, 1, 0x264 - 0xA7CB},
        {0xA7CC, 0xA7CE, 2, 1},      {0xA7D2, 0xA7D4, 2, 1},
        {0xA7DA, 0xA7DA, 1, 1},      {0xA7DC, 0xA7DC, 1, 0x19B - 0xA7DC},
        {0x10D50, 0x10D65, 1, 0x20}, {0x16EA0, 0x16EB8, 1, 0x1B},
    };
    if (c < 0x80) {
        out[0] = c >= 'A' && c <= 'Z' ? c + 32 : c;
        return 1;
    }
    if (c == 0x130) {
        out[0] = 'i', out[1] = 0x307;
        return 2;
    }
    out[0] = (uint32_t)utf8proc_tolower((int32_t)c);
    for (size_t i = 0; out[0] == c && i < sizeof young / sizeof *young; i++)
        if (c >= young[i].from && c <= young[i].last && (c - young[i].from) % young[i].step == 0)
            out[0] = (uint32_t)((int32_t)c + young[i].to);
    return 1;
}
