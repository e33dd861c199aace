/* Normal forms of Unicode 9.0: what the Rust library's normalizers know. utf8proc knows a later
 * version; characters that got a decomposition or a combining class since then are taken back. */
#include "workloads/tokenizer/unicode_internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static const uint32_t young[][2] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
    {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},
    {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x10781, 0x10785}, {0x10787, 0x107B0},
    {0x107B2, 0x107BA}, {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B},
    {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11938, 0x11938}, {0x1193D, 0x1193E},
    {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
    {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97},
    {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F},
    {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
    {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
};

enum { PAIR_SLOTS = 4096, DECOMPOSED_MAX = 32 };
enum { S_BASE = 0xAC00, L_BASE = 0x1100, V_BASE = 0x1161, T_BASE = 0x11A7, S_COUNT = 11172 };

struct norm {
    enum norm_form form;
    uint8_t ccc[UNICODE_END];
    uint8_t safe[UNICODE_END / 8]; /* starters that neither change nor are changed by a neighbour */
    struct {
        uint32_t a, b, to;
    } pairs[PAIR_SLOTS];
};

static bool is_young(uint32_t c) {
    size_t lo = 0, hi = sizeof young / sizeof *young;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (c > young[mid][1])
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < sizeof young / sizeof *young && c >= young[lo][0];
}

static size_t pair_slot(uint32_t a, uint32_t b) {
    return (size_t)((a * UINT32_C(0x9E3779B1)) ^ (b * UINT32_C(0x85EBCA6B))) >> 7 &
           (PAIR_SLOTS - 1);
}

static uint32_t compose(const struct norm *m, uint32_t a, uint32_t b) {
    if (a >= L_BASE && a < L_BASE + 19 && b >= V_BASE && b < V_BASE + 21)
        return S_BASE + ((a - L_BASE) * 21 + (b - V_BASE)) * 28;
    if (a >= S_BASE && a < S_BASE + S_COUNT && (a - S_BASE) % 28 == 0 && b > T_BASE &&
        b < T_BASE + 28)
        return a + (b - T_BASE);
    for (size_t i = pair_slot(a, b); m->pairs[i].to; i = (i + 1) & (PAIR_SLOTS - 1))
        if (m->pairs[i].a == a && m->pairs[i].b == b)
            return m->pairs[i].to;
    return 0;
}

/* At most DECOMPOSED_MAX code points; returns how many. */
static int decompose(uint32_t c, bool compat, int32_t *out) {
    int boundclass = 0;
    if (!is_young(c)) {
        utf8proc_ssize_t n = utf8proc_decompose_char(
            (int32_t)c, out, DECOMPOSED_MAX, UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0),
            &boundclass);
        if (n > 0 && n <= DECOMPOSED_MAX)
            return (int)n;
    }
    out[0] = (int32_t)c;
    return 1;
}

static bool composes(enum norm_form form) {
    return form == NORM_NFC || form == NORM_NFKC;
}

/* Whether c is what its decomposition composes to: singletons and excluded composites are not. */
static bool primary(uint32_t c, int32_t *full, int *n) {
    int32_t d[DECOMPOSED_MAX];
    if ((c >= S_BASE && c < S_BASE + S_COUNT) || (*n = decompose(c, false, full)) < 2)
        return false;
    memcpy(d, full, (size_t)*n * sizeof *d);
    return utf8proc_normalize_utf32(d, *n, UTF8PROC_COMPOSE | UTF8PROC_STABLE) == 1 &&
           d[0] == (int32_t)c;
}

/* Enters the pair that makes c, once the composite of its leading part is known. */
static bool put_pair(struct norm *m, uint32_t c, const int32_t *full, int n) {
    uint32_t b = (uint32_t)full[n - 1], a = (uint32_t)full[0];
    for (int i = 1; i < n - 1 && a; i++)
        a = compose(m, a, (uint32_t)full[i]);
    if (!a || compose(m, a, b))
        return false;
    size_t slot = pair_slot(a, b);
    while (m->pairs[slot].to)
        slot = (slot + 1) & (PAIR_SLOTS - 1);
    m->pairs[slot].a = a, m->pairs[slot].b = b, m->pairs[slot].to = c;
    return true;
}

struct norm *norm_new(enum norm_form form) {
    struct norm *m = calloc(1, sizeof *m);
    uint8_t *second = calloc(UNICODE_END / 8, 1); /* may compose with what is before */
    if (!m || !second) {
        free(m);
        free(second);
        return NULL;
    }
    m->form = form;
    for (uint32_t c = 0; c < UNICODE_END; c++)
        m->ccc[c] = is_young(c) ? 0 : (uint8_t)utf8proc_get_property((int32_t)c)->combining_class;
    for (bool more = true; more;) { /* a composite's leading part may come later in the table */
        more = false;
        for (uint32_t c = 0; c < 0x20000; c++) {
            int32_t full[DECOMPOSED_MAX];
            int n;
            if (primary(c, full, &n) && put_pair(m, c, full, n)) {
                second[full[n - 1] / 8] |= (uint8_t)(1 << full[n - 1] % 8);
                more = true;
            }
        }
    }
    bool compat = form == NORM_NFKC || form == NORM_NFKD;
    for (uint32_t c = 0; c < UNICODE_END; c++) {
        int32_t d[DECOMPOSED_MAX];
        int n = decompose(c, compat, d);
        bool same = n == 1 && (uint32_t)d[0] == c;
        if (!same && composes(form)) { /* does it compose back to itself? */
            uint32_t a = (uint32_t)d[0];
            for (int i = 1; i < n && a; i++)
                a = compose(m, a, (uint32_t)d[i]);
            same = a == c;
        }
        bool joins =
            composes(form) && ((second[c / 8] >> c % 8 & 1) || (c >= V_BASE && c < V_BASE + 21) ||
                               (c > T_BASE && c < T_BASE + 28));
        if (same && !joins && !m->ccc[c])
            m->safe[c / 8] |= (uint8_t)(1 << c % 8);
    }
    free(second);
    return m;
}

void norm_free(struct norm *m) {
    free(m);
}

bool norm_quick(const struct norm *m, const char *text, size_t n) {
    const uint8_t *p = (const uint8_t *)text, *end = p + n;
    while (p < end) {
        if (*p < 0x80) { /* never changes, nor does it compose with what is before */
            p++;
            continue;
        }
        uint32_t c = utf8_next(&p);
        if (!(m->safe[c / 8] >> c % 8 & 1))
            return false;
    }
    return true;
}

void norm_apply(const struct norm *m, const char *text, size_t n, struct buf *out,
                struct buf *scratch) {
    bool compat = m->form == NORM_NFKC || m->form == NORM_NFKD;
    const uint8_t *p = (const uint8_t *)text, *end = p + n;
    buf_clear(scratch);
    while (p < end) {
        int32_t d[DECOMPOSED_MAX];
        int k = decompose(utf8_next(&p), compat, d);
        buf_put(scratch, d, (size_t)k * sizeof *d);
    }
    if (scratch->failed) {
        out->failed = true;
        return;
    }
    if (!scratch->n)
        return;
    uint32_t *c = (uint32_t *)(void *)scratch->p;
    size_t len = scratch->n / sizeof *c;
    for (size_t i = 0; i < len;) { /* canonical order: stable within runs of non-starters */
        size_t j = i;
        while (j < len && m->ccc[c[j]])
            j++;
        bool sorted = false;
        if (j - i > 64) { /* counting sort: a hostile run must not cost a square */
            uint32_t *copy = malloc((j - i) * sizeof *copy);
            if (copy) {
                size_t at[257] = {0};
                for (size_t k = i; k < j; k++)
                    at[m->ccc[c[k]] + 1]++;
                for (size_t k = 1; k < 257; k++)
                    at[k] += at[k - 1];
                for (size_t k = i; k < j; k++)
                    copy[at[m->ccc[c[k]]]++] = c[k];
                memcpy(c + i, copy, (j - i) * sizeof *copy);
                free(copy);
                sorted = true;
            }
        }
        for (size_t k = i + 1; k < j && !sorted; k++)
            for (size_t q = k; q > i && m->ccc[c[q - 1]] > m->ccc[c[q]]; q--) {
                uint32_t swap = c[q];
                c[q] = c[q - 1], c[q - 1] = swap;
            }
        i = j + 1;
    }
    if (composes(m->form)) {
        size_t to = 0, starter = SIZE_MAX;
        uint8_t last = 0; /* class of what was kept after the starter */
        for (size_t i = 0; i < len; i++) {
            uint8_t cc = m->ccc[c[i]];
            bool adjacent = starter != SIZE_MAX && to == starter + 1;
            uint32_t joined = 0;
            if (starter != SIZE_MAX && (adjacent || last < cc))
                joined = compose(m, c[starter], c[i]);
            if (joined) {
                c[starter] = joined;
                continue;
            }
            if (!cc)
                starter = to, last = 0;
            else
                last = cc;
            c[to++] = c[i];
        }
        len = to;
    }
    for (size_t i = 0; i < len; i++) {
        char four[4];
        buf_put(out, four, utf8_put(c[i], four));
    }
}
