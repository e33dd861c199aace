/* Joining and decoding of answers; see answer.h. RFC 8259 section 7 (escapes), Unicode 15 table 3-7
 * (well-formed UTF-8). */
#include "backends/http/answer.h"

#include <stdint.h>
#include <string.h>

void answer_init(struct answer *a, size_t first_bytes, size_t max_bytes) {
    buf_init(&a->raw, max_bytes);
    if (first_bytes)
        buf_reserve(&a->raw, first_bytes < max_bytes ? first_bytes : max_bytes);
    answer_clear(a);
}

void answer_release(struct answer *a) {
    buf_release(&a->raw);
    a->lost = false;
}

void answer_clear(struct answer *a) {
    buf_clear(&a->raw);
    a->lost = false;
}

void answer_add(struct answer *a, const char *p, size_t n) {
    if (a->lost)
        return;
    if (n > a->raw.max - a->raw.n) {
        a->lost = true;
        return;
    }
    buf_put(&a->raw, p, n);
    a->lost = a->raw.failed;
}

void answer_lose(struct answer *a) {
    a->lost = true;
}

/* ---- pieces ---- */

enum piece_kind { PIECE_BYTES, PIECE_CODE, PIECE_WRONG };

struct piece {
    enum piece_kind kind;
    size_t n;      /* bytes read, > 0 */
    uint32_t code; /* PIECE_CODE: what the escape stands for */
};

/* \uXXXX at p; -1 when it is not one. */
static int32_t unit(const char *p, const char *end) {
    if (end - p < 6 || p[0] != '\\' || p[1] != 'u')
        return -1;
    int32_t v = 0;
    for (int i = 2; i < 6; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

static bool is_high(int32_t v) {
    return v >= 0xD800 && v < 0xDC00;
}

static bool is_low(int32_t v) {
    return v >= 0xDC00 && v < 0xE000;
}

static struct piece escape(const char *p, const char *end) {
    static const char names[] = "\"\\/bfnrt", codes[] = "\"\\/\b\f\n\r\t";
    int32_t v = unit(p, end);
    if (v >= 0) {
        if (is_high(v)) {
            int32_t low = unit(p + 6, end);
            if (is_low(low))
                return (struct piece){
                    PIECE_CODE, 12,
                    0x10000 + ((uint32_t)(v - 0xD800) << 10) + (uint32_t)(low - 0xDC00)};
        }
        if (is_high(v) || is_low(v))
            return (struct piece){PIECE_WRONG, 6, 0};
        return (struct piece){PIECE_CODE, 6, (uint32_t)v};
    }
    const char *name = end - p > 1 && p[1] ? strchr(names, p[1]) : NULL;
    if (name)
        return (struct piece){PIECE_CODE, 2, (unsigned char)codes[name - names]};
    return (struct piece){PIECE_CODE, 1, '\\'}; /* stands for itself */
}

/* One character that begins with a byte >= 0x80. */
static struct piece character(const char *text, const char *end) {
    const unsigned char *p = (const unsigned char *)text;
    size_t left = (size_t)(end - text), want;
    unsigned from = 0x80, to = 0xBF; /* of the second byte */
    if (p[0] >= 0xC2 && p[0] <= 0xDF) {
        want = 2;
    } else if ((p[0] & 0xF0) == 0xE0) {
        want = 3;
        from = p[0] == 0xE0 ? 0xA0 : from; /* shorter forms exist */
        to = p[0] == 0xED ? 0x9F : to;     /* surrogates */
    } else if (p[0] >= 0xF0 && p[0] <= 0xF4) {
        want = 4;
        from = p[0] == 0xF0 ? 0x90 : from;
        to = p[0] == 0xF4 ? 0x8F : to; /* past U+10FFFF */
    } else {
        return (struct piece){PIECE_WRONG, 1, 0};
    }
    for (size_t i = 1; i < want; i++, from = 0x80, to = 0xBF)
        if (i == left || p[i] < from || p[i] > to)
            return (struct piece){PIECE_WRONG, i, 0};
    return (struct piece){PIECE_BYTES, want, 0};
}

static struct piece next_piece(const char *p, const char *end) {
    if (*p == '\\')
        return escape(p, end);
    size_t n = 0;
    while (p + n < end && (signed char)p[n] >= 0 && p[n] != '\\')
        n++;
    return n ? (struct piece){PIECE_BYTES, n, 0} : character(p, end);
}

static void put_code(struct buf *out, uint32_t c) {
    char b[4];
    size_t n;
    if (c < 0x80) {
        b[0] = (char)c;
        n = 1;
    } else if (c < 0x800) {
        b[0] = (char)(0xC0 | c >> 6);
        b[1] = (char)(0x80 | (c & 0x3F));
        n = 2;
    } else if (c < 0x10000) {
        b[0] = (char)(0xE0 | c >> 12);
        b[1] = (char)(0x80 | (c >> 6 & 0x3F));
        b[2] = (char)(0x80 | (c & 0x3F));
        n = 3;
    } else {
        b[0] = (char)(0xF0 | c >> 18);
        b[1] = (char)(0x80 | (c >> 12 & 0x3F));
        b[2] = (char)(0x80 | (c >> 6 & 0x3F));
        b[3] = (char)(0x80 | (c & 0x3F));
        n = 4;
    }
    buf_put(out, b, n);
}

void answer_decode(const char *p, size_t n, struct buf *out) {
    for (const char *end = p + n; p < end;) {
        struct piece k = next_piece(p, end);
        if (k.kind == PIECE_BYTES)
            buf_put(out, p, k.n);
        else
            put_code(out, k.kind == PIECE_CODE ? k.code : 0xFFFD);
        p += k.n;
    }
}

void answer_put_escaped(const char *p, size_t n, struct buf *out) {
    for (const char *end = p + n; p < end;) {
        struct piece k = next_piece(p, end);
        if (k.kind == PIECE_WRONG)
            buf_puts(out, "\\ufffd");
        else if (k.kind == PIECE_CODE && k.n == 1)
            buf_puts(out, "\\\\");
        else
            buf_put(out, p, k.n);
        p += k.n;
    }
}
