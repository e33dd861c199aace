/* Canonical JSON after RFC 8785: an encoder over jansson's tree, the ECMAScript number formatter,
 * and a parser under the project's stricter profile. jansson's own printer cannot be used: it sorts
 * by UTF-8 bytes and prints numbers with 17 digits. */
#include "results/jcs.h"

#include "results/hash.h"

#include <fenv.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    JCS_DEPTH_MAX = 64,
    JCS_NAME_MAX_BYTES = 255,
    JCS_MEMBERS_MAX = 10000,
    JCS_TEXT_MAX_BYTES = 1024 * 1024,
};
#define JCS_INTEGER_MAX INT64_C(9007199254740991) /* 2^53 - 1 */

/* ---- numbers ---- */

/* Significant decimal digits d1..dk (k <= 17) of value 0.d1..dk * 10^point. */
struct decimal {
    char digit[24];
    int k, point;
};

static void integer_text(uint64_t v, char *out) {
    char rev[24];
    int n = 0;
    do
        rev[n++] = (char)('0' + v % 10);
    while (v /= 10);
    for (int i = 0; i < n; i++)
        out[i] = rev[n - 1 - i];
    out[n] = '\0';
}

/* Written as DDDDe±X, without a decimal point, so that no locale can change what strtod reads. */
static double decimal_value(const struct decimal *d) {
    char text[48];
    snprintf(text, sizeof text, "%.*se%d", d->k, d->digit, d->point - d->k);
    return strtod(text, NULL);
}

/* The decimal of `digits` digits nearest to v. printf's point (whatever the locale calls it) is
 * skipped. */
static void decimal_nearest(double v, int digits, struct decimal *d) {
    char text[48];
    snprintf(text, sizeof text, "%.*e", digits - 1, v);
    const char *p = text;
    for (d->k = 0; *p != 'e'; p++)
        if (*p >= '0' && *p <= '9')
            d->digit[d->k++] = *p;
    d->point = (int)strtol(p + 1, NULL, 10) + 1;
}

/* The next decimal of the same length. */
static void decimal_up(struct decimal *d) {
    int i = d->k - 1;
    while (i >= 0 && d->digit[i] == '9')
        d->digit[i--] = '0';
    if (i >= 0) {
        d->digit[i]++;
    } else { /* 99…9 becomes 10…0 */
        d->digit[0] = '1';
        d->point++;
    }
}

/* The shortest decimal that reads back as v > 0, and of those the nearest.
 * Up to 15 digits every decimal survives the way through a normal double and back (DBL_DIG), so one
 * try at 15 finds all shorter ones as well; subnormals have fewer digits and start from one.
 * Trap: at a power of two the interval that reads back is twice as wide above as below, so the
 * shortest text can be the neighbour above of the nearest one (46 of the 2,047 powers of two). */
static void decimal_shortest(double v, struct decimal *d) {
    for (int digits = v < 0x1p-1022 ? 1 : 15; digits < 17; digits++) {
        decimal_nearest(v, digits, d);
        if (decimal_value(d) == v)
            goto strip;
        decimal_up(d);
        if (decimal_value(d) == v)
            goto strip;
    }
    decimal_nearest(v, 17, d);
strip:
    while (d->k > 1 && d->digit[d->k - 1] == '0')
        d->k--;
}

/* ECMA-262 Number::toString, steps 6 to 10, with k digits and n = point. */
static void decimal_text(const struct decimal *d, char *out, size_t room) {
    int k = d->k, n = d->point;
    if (k <= n && n <= 21)
        snprintf(out, room, "%.*s%.*s", k, d->digit, n - k, "000000000000000000000");
    else if (0 < n && n <= 21)
        snprintf(out, room, "%.*s.%.*s", n, d->digit, k - n, d->digit + n);
    else if (-6 < n && n <= 0)
        snprintf(out, room, "0.%.*s%.*s", -n, "00000", k, d->digit);
    else
        snprintf(out, room, "%c%s%.*se%+d", d->digit[0], k > 1 ? "." : "", k - 1, d->digit + 1,
                 n - 1);
}

int jcs_number(double v, char out[32], struct err *e) {
    if (!isfinite(v))
        return err_set(e, ASSAY_EINPUT, "a number is %s: JSON has only finite numbers",
                       isnan(v) ? "NaN" : "infinite");
    size_t room = 32;
    if (v < 0) {
        *out++ = '-';
        room--;
        v = -v;
    }
    if (v <= (double)JCS_INTEGER_MAX && v == (double)(uint64_t)v) { /* also both zeros */
        integer_text((uint64_t)v, out);
        return 0;
    }
    int mode = fegetround();
    if (mode != FE_TONEAREST)
        fesetround(FE_TONEAREST);
    struct decimal d;
    decimal_shortest(v, &d);
    decimal_text(&d, out, room);
    if (mode != FE_TONEAREST)
        fesetround(mode);
    return 0;
}

/* ---- strings ---- */

/* Bytes of the well-formed UTF-8 sequence at p, 0 if there is none (RFC 3629: no surrogates,
 * nothing overlong, nothing beyond U+10FFFF). */
static size_t utf8_length(const unsigned char *p, size_t n) {
    if (p[0] < 0x80)
        return 1;
    size_t len = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] >= 0xa0) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] >= 0x90))
        return 0;
    return len;
}

/* A lead byte's place in UTF-16 order: U+10000 and above (F0..F4) begin with a surrogate
 * D800..DBFF, which sorts before U+E000..U+FFFF (lead bytes EE, EF). Every other byte keeps its
 * place. */
static int utf16_rank(unsigned char c) {
    return c == 0xee || c == 0xef ? c + 8 : c;
}

struct member {
    const char *name;
    size_t n;
    const json_t *value;
};

/* Two distinct valid UTF-8 strings differ first in two lead bytes, or in continuation bytes after
 * equal leads; the latter order as UTF-16 does. */
static int member_order(const void *a, const void *b) {
    const struct member *x = a, *y = b;
    size_t n = x->n < y->n ? x->n : y->n;
    for (size_t i = 0; i < n; i++)
        if (x->name[i] != y->name[i])
            return utf16_rank((unsigned char)x->name[i]) - utf16_rank((unsigned char)y->name[i]);
    return x->n < y->n ? -1 : x->n > y->n;
}

/* ---- the encoder ---- */

/* Where the walk is, for messages: a JSON pointer built from the chain of frames on the stack. */
struct place {
    const struct place *up;
    const char *name; /* NULL for an array element */
    size_t n, index;
};

static void place_print(const struct place *at, struct buf *out) {
    if (!at)
        return;
    place_print(at->up, out);
    buf_putc(out, '/');
    if (!at->name) {
        buf_printf(out, "%zu", at->index);
        return;
    }
    for (size_t i = 0; i < at->n && i < 64; i++) {
        unsigned char c = (unsigned char)at->name[i];
        if (c == '~')
            buf_puts(out, "~0");
        else if (c == '/')
            buf_puts(out, "~1");
        else
            buf_putc(out, c < 0x20 || c == 0x7f ? '?' : (char)c);
    }
}

static int bad(const struct place *at, struct err *e, const char *what) {
    struct buf where;
    buf_init(&where, 400);
    place_print(at, &where);
    int rc = err_set(e, ASSAY_EINPUT, "at %s: %s",
                     where.failed ? "(deep inside)"
                     : where.n    ? where.p
                                  : "/",
                     what);
    buf_release(&where);
    return rc;
}

static int encode_string(const char *s, size_t n, const struct place *at, struct buf *out,
                         struct err *e) {
    static const char hex[] = "0123456789abcdef";
    static const char short_escape[0x20] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    const unsigned char *p = (const unsigned char *)s, *end = p + n;
    buf_putc(out, '"');
    while (p < end) {
        const unsigned char *run = p; /* of bytes that stand for themselves */
        while (p < end && *p >= 0x20 && *p != '"' && *p != '\\') {
            size_t len = utf8_length(p, (size_t)(end - p));
            if (!len)
                return bad(at, e, "a string is not valid UTF-8");
            p += len;
        }
        buf_put(out, run, (size_t)(p - run));
        if (p == end)
            break;
        buf_putc(out, '\\');
        if (*p >= 0x20) {
            buf_putc(out, (char)*p);
        } else if (short_escape[*p]) {
            buf_putc(out, short_escape[*p]);
        } else {
            char u[] = {'u', '0', '0', hex[*p >> 4], hex[*p & 15]};
            buf_put(out, u, sizeof u);
        }
        p++;
    }
    buf_putc(out, '"');
    return 0;
}

static int encode(const json_t *v, const struct place *at, int depth, struct buf *out,
                  struct err *e);

/* jansson 2.14 iterates over non-const objects only, and does not change them. */
static int encode_object(const json_t *v, const struct place *at, int depth, struct buf *out,
                         struct err *e) {
    json_t *object = (json_t *)(uintptr_t)v;
    size_t n = json_object_size(v), i = 0;
    if (n > JCS_MEMBERS_MAX)
        return bad(at, e, "an object has more than 10000 members");
    struct member *m = calloc(n + 1, sizeof *m);
    if (!m)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    for (void *it = json_object_iter(object); it && i < n; it = json_object_iter_next(object, it))
        m[i++] = (struct member){.name = json_object_iter_key(it),
                                 .n = json_object_iter_key_len(it),
                                 .value = json_object_iter_value(it)};
    qsort(m, n, sizeof *m, member_order);
    int rc = 0;
    buf_putc(out, '{');
    for (i = 0; !rc && i < n; i++) {
        struct place here = {.up = at, .name = m[i].name, .n = m[i].n};
        if (m[i].n > JCS_NAME_MAX_BYTES) {
            rc = bad(at, e, "a member name is longer than 255 bytes");
            break;
        }
        if (i)
            buf_putc(out, ',');
        rc = encode_string(m[i].name, m[i].n, at, out, e);
        buf_putc(out, ':');
        if (!rc)
            rc = encode(m[i].value, &here, depth + 1, out, e);
    }
    buf_putc(out, '}');
    free(m);
    return rc;
}

static int integer_range(json_int_t v, const struct place *at, struct err *e) {
    if (v <= JCS_INTEGER_MAX && v >= -JCS_INTEGER_MAX)
        return 0;
    char what[96];
    snprintf(
        what, sizeof what,
        "integer %" JSON_INTEGER_FORMAT " is beyond +/-(2^53 - 1); it must be a decimal string", v);
    return bad(at, e, what);
}

static int encode_integer(json_int_t v, const struct place *at, struct buf *out, struct err *e) {
    char text[24];
    int rc = integer_range(v, at, e);
    if (rc)
        return rc;
    if (v < 0)
        buf_putc(out, '-');
    integer_text((uint64_t)(v < 0 ? -v : v), text);
    buf_puts(out, text);
    return 0;
}

static int encode(const json_t *v, const struct place *at, int depth, struct buf *out,
                  struct err *e) {
    if (!v)
        return bad(at, e, "there is no value");
    if (depth > JCS_DEPTH_MAX)
        return bad(at, e, "nesting is deeper than 64");
    char text[32];
    int rc = 0;
    switch (json_typeof(v)) {
    case JSON_NULL:
        buf_puts(out, "null");
        return 0;
    case JSON_TRUE:
        buf_puts(out, "true");
        return 0;
    case JSON_FALSE:
        buf_puts(out, "false");
        return 0;
    case JSON_INTEGER:
        return encode_integer(json_integer_value(v), at, out, e);
    case JSON_REAL:
        if (jcs_number(json_real_value(v), text, NULL))
            return bad(at, e, "a number is not finite");
        buf_puts(out, text);
        return 0;
    case JSON_STRING:
        return encode_string(json_string_value(v), json_string_length(v), at, out, e);
    case JSON_ARRAY:
        buf_putc(out, '[');
        for (size_t i = 0; !rc && i < json_array_size(v); i++) {
            struct place here = {.up = at, .index = i};
            if (i)
                buf_putc(out, ',');
            rc = encode(json_array_get(v, i), &here, depth + 1, out, e);
        }
        buf_putc(out, ']');
        return rc;
    case JSON_OBJECT:
        return encode_object(v, at, depth, out, e);
    }
    return bad(at, e, "a value of unknown type");
}

int jcs_encode(const json_t *v, struct buf *out, struct err *e) {
    int rc = encode(v, NULL, 1, out, e);
    return rc ? rc : buf_check(out, "canonical JSON", e);
}

int jcs_sha256(const json_t *v, unsigned char digest[32], struct err *e) {
    struct buf b;
    buf_init(&b, (size_t)64 * 1024 * 1024); /* of a workload or environment, not of a payload */
    int rc = jcs_encode(v, &b, e);
    if (!rc)
        sha256(b.p, b.n, digest);
    buf_release(&b);
    return rc;
}

/* ---- the parser's profile ---- */

static int check(const json_t *v, const struct place *at, int depth, struct err *e) {
    if (depth > JCS_DEPTH_MAX)
        return bad(at, e, "nesting is deeper than 64");
    int rc = 0;
    if (json_is_integer(v)) {
        rc = integer_range(json_integer_value(v), at, e);
    } else if (json_is_real(v)) {
        double d = fabs(json_real_value(v));
        if (d > (double)JCS_INTEGER_MAX && d == floor(d))
            rc =
                bad(at, e, "an integer value is beyond +/-(2^53 - 1); it must be a decimal string");
    } else if (json_is_array(v)) {
        for (size_t i = 0; !rc && i < json_array_size(v); i++) {
            struct place here = {.up = at, .index = i};
            rc = check(json_array_get(v, i), &here, depth + 1, e);
        }
    } else if (json_is_object(v)) {
        json_t *object = (json_t *)(uintptr_t)v;
        if (json_object_size(v) > JCS_MEMBERS_MAX)
            return bad(at, e, "an object has more than 10000 members");
        for (void *it = json_object_iter(object); !rc && it;
             it = json_object_iter_next(object, it)) {
            struct place here = {
                .up = at, .name = json_object_iter_key(it), .n = json_object_iter_key_len(it)};
            rc = here.n > JCS_NAME_MAX_BYTES
                     ? bad(at, e, "a member name is longer than 255 bytes")
                     : check(json_object_iter_value(it), &here, depth + 1, e);
        }
    }
    return rc;
}

int jcs_parse(const char *text, size_t n, const char *name, json_t **out, struct err *e) {
    *out = NULL;
    if (n > JCS_TEXT_MAX_BYTES)
        return err_set(e, ASSAY_EINPUT, "%s: %zu bytes are more than the limit of %d", name, n,
                       (int)JCS_TEXT_MAX_BYTES);
    json_error_t je;
    json_t *v = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
    if (!v)
        return err_set(e, ASSAY_EINPUT, "%s:%d:%d: %s", name, je.line > 0 ? je.line : 1,
                       je.column > 0 ? je.column : 1, je.text);
    int rc = check(v, NULL, 1, e);
    if (rc) {
        json_decref(v);
        err_wrap(e, "%s", name);
        return rc;
    }
    *out = v;
    return 0;
}
