/* Integer sequences of the event log: which of a few encodings is the smallest for these values, and
 * the bits of each. Bit streams are little-endian, least significant bit first, padded with zero bits
 * to a byte. The format is schemas/event-log.md; columns and blocks are in eventlog.c. */
#include "harness/measure/eventlog_internal.h"

#include <string.h>

enum {
    RICE_K_MAX = 35,   /* RICE_ESCAPE + 1 + k fits the 56 bits that one unaligned store takes */
    PLAN_SAMPLES = 96, /* values that are looked at to choose a Rice parameter */
};

uint8_t *varint_put(uint8_t *p, uint64_t v) {
    while (v >= 0x80) {
        *p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}

uint64_t varint_get(struct bytes_in *in) {
    uint64_t v = 0;
    for (unsigned shift = 0;; shift += 7) {
        if (in->p == in->end) {
            in->why = "truncated number";
            return 0;
        }
        uint8_t c = *in->p++;
        if (shift == 63 && c > 1) {
            in->why = "number above 64 bits";
            return 0;
        }
        v |= (uint64_t)(c & 0x7f) << shift;
        if (!(c & 0x80)) {
            if (c == 0 && shift) {
                in->why = "over-long number";
                return 0;
            }
            return v;
        }
    }
}

/* --- bit streams ------------------------------------------------------------------------------ */

static inline uint64_t le64(uint64_t v) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return __builtin_bswap64(v);
#else
    return v;
#endif
}

static inline uint64_t low_mask(unsigned w) {
    return w >= 64 ? UINT64_MAX : (UINT64_C(1) << w) - 1;
}

/* Writes up to 8 bytes past the stream's end; the encoder's output buffer has room for that. */
struct bits_out {
    uint8_t *p;
    uint64_t acc;
    unsigned n; /* bits in acc, < 8 between calls */
};

/* v < 2^w, w <= 56. Without a branch: where a byte boundary falls cannot be predicted. */
static inline void bits_put(struct bits_out *o, uint64_t v, unsigned w) {
    o->acc |= v << o->n;
    uint64_t x = le64(o->acc);
    memcpy(o->p, &x, 8);
    unsigned n = o->n + w;
    o->p += n >> 3;
    o->acc >>= n & ~7u;
    o->n = n & 7;
}

static uint8_t *bits_end(struct bits_out *o) {
    if (o->n)
        *o->p++ = (uint8_t)o->acc;
    return o->p;
}

/* Near the end, byte by byte; what lies past it reads as zero. */
static __attribute__((noinline)) uint64_t peek_slowly(const uint8_t *p, size_t n, size_t byte) {
    uint64_t x = 0;
    for (unsigned i = 0; i < 8 && byte + i < n; i++)
        x |= (uint64_t)p[byte + i] << (8 * i);
    return x;
}

/* At least 57 bits from bit position pos; bits past the end read as zero. */
static inline uint64_t bits_peek(const uint8_t *p, size_t n, size_t pos) {
    size_t byte = pos >> 3;
    uint64_t x;
    if (__builtin_expect(byte + 8 <= n, 1)) {
        memcpy(&x, p + byte, 8);
        x = le64(x);
    } else {
        x = peek_slowly(p, n, byte);
    }
    return x >> (pos & 7);
}

/* Ends a bit stream of `bits` bits at in->p: it must be there, padded with zero bits. */
static bool bits_close(struct bytes_in *in, size_t bits) {
    size_t n = (size_t)(in->end - in->p), bytes = (bits + 7) / 8;
    if (bytes > n) {
        in->why = "truncated bit stream";
        return false;
    }
    if ((bits & 7) && in->p[bytes - 1] >> (bits & 7)) {
        in->why = "padding bits that are not zero";
        return false;
    }
    in->p += bytes;
    return true;
}

/* --- planning --------------------------------------------------------------------------------- */

static size_t bytes_of_bits(uint64_t bits) {
    return (size_t)((bits + 7) / 8);
}

static inline uint64_t rice_bits(uint64_t u, unsigned k) {
    uint64_t q = u >> k;
    return q < RICE_ESCAPE ? q + 1 + k : (uint64_t)RICE_ESCAPE + 64;
}

/* Chooses the Rice parameter from the median bit length of a sample and estimates the size from the
 * same sample; ints_put measures. base: subtracted first; zig: the differences are signed. */
static unsigned rice_plan(const int64_t *v, uint32_t m, int64_t base, bool zig, size_t *bytes) {
    uint64_t u[PLAN_SAMPLES];
    uint8_t count[65] = {0};
    uint32_t step = m > PLAN_SAMPLES ? m / PLAN_SAMPLES : 1, n = 0;
    for (uint32_t i = 0; i < m && n < PLAN_SAMPLES; i += step, n++) {
        u[n] = (uint64_t)v[i] - (uint64_t)base;
        if (zig)
            u[n] = zigzag((int64_t)u[n]);
        count[bit_length(u[n])]++;
    }
    unsigned med = 0;
    for (uint32_t seen = count[0]; seen * 2 < n; seen += count[++med])
        ;
    unsigned hi = med > RICE_K_MAX ? RICE_K_MAX : med, lo = hi ? hi - 1 : 0;
    uint64_t bits_hi = 0, bits_lo = 0;
    for (uint32_t i = 0; i < n; i++) {
        bits_hi += rice_bits(u[i], hi);
        bits_lo += rice_bits(u[i], lo);
    }
    uint64_t bits = bits_lo <= bits_hi ? bits_lo : bits_hi;
    *bytes = bytes_of_bits(bits * m / n);
    return bits_lo <= bits_hi ? lo : hi;
}

static void consider(struct ints_plan *best, struct ints_plan p) {
    if (p.bytes < best->bytes)
        *best = p;
}

/* A value that fills more than 3/4 of the sequence, by majority vote; false when there is none. */
static bool dominant(const int64_t *v, uint32_t m, int64_t *value, uint32_t *exceptions) {
    int64_t c = v[0];
    uint32_t votes = 0;
    for (uint32_t i = 0; i < m; i++) {
        if (votes == 0)
            c = v[i];
        votes += v[i] == c ? 1u : UINT32_MAX; /* +1 or -1 */
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < m; i++)
        n += v[i] != c;
    *value = c;
    *exceptions = n;
    return n < (m + 3) / 4 && n <= EVENT_BLOCK_CAP / 2;
}

static void sparse_split(const int64_t *v, uint32_t m, int64_t base, struct ints_scratch *s) {
    uint32_t e = 0, next = 0;
    for (uint32_t i = 0; i < m; i++) {
        if (v[i] != base) {
            s->gap[e] = (int64_t)(i - next);
            s->value[e++] = v[i];
            next = i + 1;
        }
    }
}

void ints_range(const int64_t *v, uint32_t m, int64_t *lo, int64_t *hi) {
    /* two chains, since one of conditional moves is as slow as its latency */
    int64_t l = v[0], l2 = l, h = l, h2 = l;
    uint32_t i = 0;
    for (; i + 2 <= m; i += 2) {
        int64_t x = v[i], y = v[i + 1];
        l = x < l ? x : l;
        h = x > h ? x : h;
        l2 = y < l2 ? y : l2;
        h2 = y > h2 ? y : h2;
    }
    if (i < m) {
        l = v[i] < l ? v[i] : l;
        h = v[i] > h ? v[i] : h;
    }
    *lo = l2 < l ? l2 : l;
    *hi = h2 > h ? h2 : h;
}

static struct ints_plan plan_flat(const int64_t *v, uint32_t m, uint32_t *repeats) {
    uint32_t i = 1, same = 0;
    while (i < m && v[i] == v[0])
        i++;
    if (i == m) {
        *repeats = m - 1;
        return (struct ints_plan){
            .method = INTS_CONST, .base = v[0], .lo = v[0], .bytes = 1 + varint_size(zigzag(v[0]))};
    }
    int64_t lo, hi;
    ints_range(v, m, &lo, &hi);
    for (i = 1; i < m; i++)
        same += v[i] == v[i - 1];
    *repeats = same;
    size_t head = 1 + varint_size(zigzag(lo));
    unsigned w = bit_length((uint64_t)hi - (uint64_t)lo);
    struct ints_plan best = {.method = INTS_PACK,
                             .k = (uint8_t)w,
                             .base = lo,
                             .bytes = head + 1 + bytes_of_bits((uint64_t)m * w)};
    if (m < 8)
        return best;
    /* Rice costs at least one bit a value: not worth a look when packing needs no more. */
    if (w > 1) {
        size_t bytes;
        struct ints_plan p = {.method = INTS_RICE, .base = lo, .width = (uint8_t)w, .lo = lo};
        p.k = (uint8_t)rice_plan(v, m, lo, false, &bytes);
        p.bytes = head + 1 + bytes;
        consider(&best, p);
        if (lo < 0 && hi > 0) {
            p.method = INTS_ZRICE;
            p.base = 0;
            p.k = (uint8_t)rice_plan(v, m, 0, true, &bytes);
            p.bytes = 3 + bytes;
            consider(&best, p);
        }
    }
    return best;
}

/* Whether differences look smaller than what the best plan so far pays a value. */
bool ints_delta_promises(const int64_t *v, uint32_t m, size_t best_bytes) {
    uint32_t step = m > PLAN_SAMPLES ? m / PLAN_SAMPLES : 1, n = 0;
    uint64_t bits = 0;
    for (uint32_t i = 1; i < m; i += step, n++)
        bits += bit_length(zigzag((int64_t)((uint64_t)v[i] - (uint64_t)v[i - 1])));
    return bits * m / n < (uint64_t)best_bytes * 8;
}

struct ints_plan ints_plan(const int64_t *v, uint32_t m, enum ints_depth depth,
                           struct ints_scratch *s) {
    uint32_t repeats, e, ignored;
    struct ints_plan best = plan_flat(v, m, &repeats);
    if (best.method == INTS_CONST || m < 8)
        return best;
    struct ints_plan p = {.method = INTS_SPARSE};
    if (depth >= INTS_WITH_SPARSE && repeats >= m / 2 && dominant(v, m, &p.base, &e)) {
        sparse_split(v, m, p.base, s);
        p.exceptions = e;
        p.bytes = 1 + varint_size(zigzag(p.base)) + varint_size(e) +
                  plan_flat(s->gap, e, &ignored).bytes + plan_flat(s->value, e, &ignored).bytes;
        consider(&best, p);
    }
    if (depth >= INTS_WITH_DELTA && ints_delta_promises(v, m, best.bytes)) {
        for (uint32_t i = 1; i < m; i++)
            s->delta[i - 1] = (int64_t)((uint64_t)v[i] - (uint64_t)v[i - 1]);
        p = ints_plan(s->delta, m - 1, INTS_WITH_SPARSE, s);
        p.delta = 1;
        p.bytes += 1 + varint_size(zigzag(v[0]));
        consider(&best, p);
    }
    return best;
}

/* --- writing ---------------------------------------------------------------------------------- */

static uint8_t *put_head(uint8_t *p, uint8_t method, int64_t base) {
    *p++ = method;
    return varint_put(p, zigzag(base));
}

uint8_t *ints_put_const(uint8_t *p, int64_t base) {
    return put_head(p, INTS_CONST, base);
}

static uint8_t *put_pack(uint8_t *p, const int64_t *v, uint32_t m, int64_t base, unsigned w) {
    p = put_head(p, INTS_PACK, base);
    *p++ = (uint8_t)w;
    struct bits_out o = {.p = p};
    if (w <= 56) {
        for (uint32_t i = 0; i < m; i++)
            bits_put(&o, (uint64_t)v[i] - (uint64_t)base, w);
    } else {
        for (uint32_t i = 0; i < m; i++) {
            uint64_t u = (uint64_t)v[i] - (uint64_t)base;
            bits_put(&o, u & low_mask(32), 32);
            bits_put(&o, u >> 32, w - 32);
        }
    }
    return bits_end(&o);
}

/* zig is a constant at both calls: two loops without a test inside. */
static inline uint8_t *put_rice(uint8_t *p, const int64_t *v, uint32_t m, int64_t base, unsigned k,
                                bool zig) {
    struct bits_out o = {.p = p};
    uint64_t mask = low_mask(k);
    for (uint32_t i = 0; i < m; i++) {
        uint64_t u = (uint64_t)v[i] - (uint64_t)base;
        if (zig)
            u = zigzag((int64_t)u);
        uint64_t q = u >> k;
        if (__builtin_expect(q < RICE_ESCAPE, 1)) {
            bits_put(&o, ((u & mask) << 1 | 1) << q, (unsigned)q + 1 + k);
        } else {
            bits_put(&o, 0, RICE_ESCAPE);
            bits_put(&o, u & low_mask(32), 32);
            bits_put(&o, u >> 32, 32);
        }
    }
    return bits_end(&o);
}

static uint8_t *put_flat(uint8_t *p, const int64_t *v, uint32_t m, const struct ints_plan *plan) {
    if (plan->method == INTS_CONST)
        return ints_put_const(p, plan->base);
    if (plan->method == INTS_PACK)
        return put_pack(p, v, m, plan->base, plan->k);
    uint8_t *to = put_head(p, plan->method, plan->base);
    *to++ = plan->k;
    to = plan->method == INTS_ZRICE ? put_rice(to, v, m, plan->base, plan->k, true)
                                    : put_rice(to, v, m, plan->base, plan->k, false);
    /* The size was an estimate; packing bounds the worst case. */
    size_t pack = 2 + varint_size(zigzag(plan->lo)) + bytes_of_bits((uint64_t)m * plan->width);
    return (size_t)(to - p) <= pack ? to : put_pack(p, v, m, plan->lo, plan->width);
}

uint8_t *ints_put_sparse(uint8_t *p, int64_t base, const int64_t *gap, const int64_t *value,
                         uint32_t e) {
    uint32_t ignored;
    p = put_head(p, INTS_SPARSE, base);
    p = varint_put(p, e);
    struct ints_plan f = plan_flat(gap, e, &ignored);
    p = put_flat(p, gap, e, &f);
    f = plan_flat(value, e, &ignored);
    return put_flat(p, value, e, &f);
}

uint8_t *ints_put(uint8_t *p, const int64_t *v, uint32_t m, const struct ints_plan *plan,
                  struct ints_scratch *s) {
    if (plan->delta) {
        p = put_head(p, INTS_DELTA, v[0]);
        for (uint32_t i = 1; i < m; i++)
            s->delta[i - 1] = (int64_t)((uint64_t)v[i] - (uint64_t)v[i - 1]);
        v = s->delta;
        m--;
    }
    if (plan->method != INTS_SPARSE)
        return put_flat(p, v, m, plan);
    sparse_split(v, m, plan->base, s);
    return ints_put_sparse(p, plan->base, s->gap, s->value, plan->exceptions);
}

uint8_t *bitmap_put(uint8_t *p, const uint8_t *flag, uint32_t m) {
    memset(p, 0, (m + 7) / 8);
    for (uint32_t i = 0; i < m; i++)
        p[i >> 3] = (uint8_t)(p[i >> 3] | flag[i] << (i & 7));
    return p + (m + 7) / 8;
}

/* --- reading ---------------------------------------------------------------------------------- */

static bool get_pack(struct bytes_in *in, int64_t *v, uint32_t m, int64_t base) {
    if (in->p == in->end || *in->p == 0 || *in->p > 64) {
        in->why = "bad width";
        return false;
    }
    unsigned w = *in->p++;
    const uint8_t *p = in->p;
    size_t n = (size_t)(in->end - p), bits = (size_t)m * w;
    if (!bits_close(in, bits))
        return false;
    uint64_t mask = low_mask(w);
    size_t pos = 0;
    if (w <= 57) {
        for (uint32_t i = 0; i < m; i++, pos += w)
            v[i] = (int64_t)((uint64_t)base + (bits_peek(p, n, pos) & mask));
    } else {
        for (uint32_t i = 0; i < m; i++, pos += w) {
            uint64_t lo = bits_peek(p, n, pos) & low_mask(32);
            uint64_t hi = bits_peek(p, n, pos + 32) & low_mask(w - 32);
            v[i] = (int64_t)((uint64_t)base + (lo | hi << 32));
        }
    }
    return true;
}

/* The escaped value at pos: two reads of 32 bits. */
static __attribute__((noinline)) uint64_t rice_escaped(const uint8_t *p, size_t n, size_t pos) {
    uint64_t lo = bits_peek(p, n, pos) & low_mask(32);
    return lo | (bits_peek(p, n, pos + 32) & low_mask(32)) << 32;
}

static bool get_rice(struct bytes_in *in, int64_t *v, uint32_t m, int64_t base, bool zig) {
    if (in->p == in->end || *in->p > RICE_K_MAX) {
        in->why = "bad Rice parameter";
        return false;
    }
    const unsigned k = *in->p++;
    const uint8_t *p = in->p;
    const size_t n = (size_t)(in->end - p);
    const uint64_t mask = low_mask(k);
    size_t pos = 0;
    for (uint32_t i = 0; i < m; i++) {
        uint64_t x = bits_peek(p, n, pos), u;
        unsigned q = (unsigned)__builtin_ctzll(x | UINT64_C(1) << RICE_ESCAPE);
        if (__builtin_expect(q < RICE_ESCAPE, 1)) {
            pos += q + 1 + k;
            u = (uint64_t)q << k | (x >> (q + 1) & mask);
        } else {
            u = rice_escaped(p, n, pos + RICE_ESCAPE);
            pos += RICE_ESCAPE + 64;
        }
        v[i] = (int64_t)u;
    }
    if (zig) {
        for (uint32_t i = 0; i < m; i++)
            v[i] = (int64_t)((uint64_t)base + (uint64_t)unzigzag((uint64_t)v[i]));
    } else if (base) {
        for (uint32_t i = 0; i < m; i++)
            v[i] = (int64_t)((uint64_t)base + (uint64_t)v[i]);
    }
    return bits_close(in, pos); /* reading past the end gave zeros; here it is noticed */
}

bool bitmap_get(struct bytes_in *in, uint8_t *flag, uint32_t m, uint32_t e) {
    const uint8_t *p = in->p;
    if (!bits_close(in, m))
        return false;
    uint32_t sum = 0, i = 0;
    for (; i + 8 <= m; i += 8) {
        /* eight bits to eight bytes: a copy to each byte, another bit of each kept, carried to bit 7 */
        uint64_t x = p[i >> 3] * UINT64_C(0x0101010101010101) & UINT64_C(0x8040201008040201);
        x = le64((x + UINT64_C(0x7f7f7f7f7f7f7f7f)) >> 7 & UINT64_C(0x0101010101010101));
        memcpy(flag + i, &x, 8);
        sum += (uint32_t)__builtin_popcount(p[i >> 3]);
    }
    for (; i < m; i++) {
        flag[i] = p[i >> 3] >> (i & 7) & 1;
        sum += flag[i];
    }
    if (sum != e)
        in->why = "bitmap with another count than stated";
    return sum == e;
}

bool ints_get_const(struct bytes_in *in, int64_t *base) {
    if (in->p == in->end || *in->p != INTS_CONST)
        return false;
    in->p++;
    *base = unzigzag(varint_get(in));
    return !in->why;
}

/* What follows the base in SPARSE. */
static bool get_exceptions(struct bytes_in *in, uint32_t m, uint32_t *e, int64_t *place,
                           int64_t *value) {
    uint64_t n = varint_get(in);
    if (in->why)
        return false;
    if (n == 0 || n > m) {
        in->why = "bad count of exceptions";
        return false;
    }
    *e = (uint32_t)n;
    if (!ints_get(in, place, *e, INTS_FLAT))
        return false;
    uint64_t at = 0;
    for (uint32_t j = 0; j < *e; j++, at++) {
        if ((uint64_t)place[j] >= m - at) {
            in->why = "exception outside the sequence";
            return false;
        }
        at += (uint64_t)place[j];
        place[j] = (int64_t)at;
    }
    return ints_get(in, value, *e, INTS_FLAT);
}

bool ints_get_exceptions(struct bytes_in *in, uint32_t m, int64_t *base, uint32_t *e,
                         int64_t *place, int64_t *value) {
    *e = 0;
    if (in->p == in->end || *in->p != INTS_SPARSE)
        return true;
    in->p++;
    *base = unzigzag(varint_get(in));
    return !in->why && get_exceptions(in, m, e, place, value);
}

static bool get_sparse(struct bytes_in *in, int64_t *v, uint32_t m, int64_t base) {
    int64_t place[EVENT_BLOCK_CAP], value[EVENT_BLOCK_CAP];
    uint32_t e;
    if (!get_exceptions(in, m, &e, place, value))
        return false;
    for (uint32_t i = 0; i < m; i++)
        v[i] = base;
    for (uint32_t j = 0; j < e; j++)
        v[place[j]] = value[j];
    return true;
}

bool ints_get_method(struct bytes_in *in, uint8_t method, int64_t *v, uint32_t m,
                     enum ints_depth depth) {
    int64_t base = unzigzag(varint_get(in));
    if (in->why)
        return false;
    switch (method) {
    case INTS_CONST:
        for (uint32_t i = 0; i < m; i++)
            v[i] = base;
        return true;
    case INTS_PACK:
        return get_pack(in, v, m, base);
    case INTS_RICE:
        return get_rice(in, v, m, base, false);
    case INTS_ZRICE:
        return get_rice(in, v, m, base, true);
    case INTS_SPARSE:
        if (depth >= INTS_WITH_SPARSE)
            return get_sparse(in, v, m, base);
        break;
    case INTS_DELTA:
        if (depth >= INTS_WITH_DELTA && m > 1) {
            if (!ints_get(in, v + 1, m - 1, INTS_WITH_SPARSE))
                return false;
            v[0] = base;
            for (uint32_t i = 1; i < m; i++)
                v[i] = (int64_t)((uint64_t)v[i - 1] + (uint64_t)v[i]);
            return true;
        }
        break;
    default:
        break;
    }
    in->why = "method that is not allowed here";
    return false;
}

bool ints_get(struct bytes_in *in, int64_t *v, uint32_t m, enum ints_depth depth) {
    if (in->p == in->end) {
        in->why = "truncated sequence";
        return false;
    }
    uint8_t method = *in->p++;
    return ints_get_method(in, method, v, m, depth);
}
