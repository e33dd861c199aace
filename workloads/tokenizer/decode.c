/* Ids to text: each token's text goes through the decoder's steps, which see the list of tokens. */
#include "workloads/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

/* A list of texts: where each ends in one buffer. */
struct list {
    struct buf text, ends;
};

static void list_end(struct list *l) {
    size_t n = l->text.n;
    buf_put(&l->ends, &n, sizeof n);
}

static struct str list_get(const struct list *l, size_t i) {
    const size_t *ends = (const size_t *)(const void *)l->ends.p;
    size_t from = i ? ends[i - 1] : 0;
    return (struct str){(l->text.p ? l->text.p : "") + from, ends[i] - from};
}

static void bytelevel(struct str s, struct buf *out) {
    const uint8_t *p = (const uint8_t *)s.p, *end = p + s.n;
    size_t n = out->n;
    while (p < end) {
        int b = byte_of_char(utf8_next(&p));
        if (b < 0) { /* not an encoded one: as it is */
            out->n = n;
            buf_put(out, s.p, s.n);
            return;
        }
        buf_putc(out, (char)b);
    }
}

static int byte_token(struct str s) {
    if (s.n != 6 || memcmp(s.p, "<0x", 3) || s.p[5] != '>')
        return -1;
    int v = 0;
    for (int i = 3; i < 5; i++) {
        char c = s.p[i], low = (char)(c | 0x20);
        if (c >= '0' && c <= '9')
            v = v * 16 + c - '0';
        else if (low >= 'a' && low <= 'f')
            v = v * 16 + low - 'a' + 10;
        else
            return -1;
    }
    return v;
}

static void flush_bytes(struct buf *bytes, struct list *out) {
    size_t bad;
    if (!bytes->n)
        return;
    if (utf8_valid(bytes->p, bytes->n, &bad) == bytes->n) {
        buf_put(&out->text, bytes->p, bytes->n);
        list_end(out);
    } else
        for (size_t i = 0; i < bytes->n; i++) {
            buf_put(&out->text, "\xEF\xBF\xBD", 3);
            list_end(out);
        }
    buf_clear(bytes);
}

static bool starts(struct str s, struct str with) {
    return s.n >= with.n && !memcmp(s.p, with.p, with.n);
}

static void step(const struct decode_step *d, const struct list *in, struct list *out,
                 struct buf *bytes) {
    size_t n = in->ends.n / sizeof(size_t);
    buf_clear(&out->text);
    buf_clear(&out->ends);
    buf_clear(bytes);
    if (d->kind == DEC_BYTELEVEL) {
        for (size_t i = 0; i < n; i++)
            bytelevel(list_get(in, i), bytes);
        utf8_lossy(bytes->p ? bytes->p : "", bytes->n, &out->text);
        list_end(out);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        struct str s = list_get(in, i);
        switch (d->kind) {
        case DEC_BYTEFALLBACK: {
            int b = byte_token(s);
            if (b >= 0) {
                buf_putc(bytes, (char)b);
                continue;
            }
            flush_bytes(bytes, out);
            buf_put(&out->text, s.p, s.n);
            break;
        }
        case DEC_REPLACE:
            while (s.n) {
                const char *hit = memmem(s.p, s.n, d->a.p, d->a.n);
                size_t k = hit ? (size_t)(hit - s.p) : s.n;
                buf_put(&out->text, s.p, k);
                if (!hit)
                    break;
                buf_put(&out->text, d->b.p, d->b.n);
                s.p += k + d->a.n, s.n -= k + d->a.n;
            }
            break;
        case DEC_METASPACE:
            while (s.n) {
                if (starts(s, d->a)) {
                    if (i || !d->prepended)
                        buf_putc(&out->text, ' ');
                    s.p += d->a.n, s.n -= d->a.n;
                } else {
                    buf_putc(&out->text, *s.p);
                    s.p++, s.n--;
                }
            }
            break;
        case DEC_STRIP:
            for (size_t k = 0; k < d->start && d->a.n && starts(s, d->a); k++)
                s.p += d->a.n, s.n -= d->a.n;
            for (size_t k = 0; k < d->stop && d->a.n && s.n >= d->a.n &&
                               !memcmp(s.p + s.n - d->a.n, d->a.p, d->a.n);
                 k++)
                s.n -= d->a.n;
            buf_put(&out->text, s.p, s.n);
            break;
        default: /* fuse */
            buf_put(&out->text, s.p, s.n);
            continue;
        }
        list_end(out);
    }
    if (d->kind == DEC_BYTEFALLBACK)
        flush_bytes(bytes, out);
    if (d->kind == DEC_FUSE)
        list_end(out);
}

int tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, unsigned flags,
                     struct buf *out, struct err *e) {
    struct list a = {0}, b = {0}, *in = &a, *to = &b;
    struct buf bytes, *all[] = {&a.text, &a.ends, &b.text, &b.ends, &bytes};
    bool failed = false;
    for (size_t i = 0; i < 5; i++)
        buf_init(all[i], (size_t)16 * TOKENIZER_TEXT_MAX_BYTES);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= t->nids || !t->text[ids[i]].p ||
            ((flags & TOKENIZER_DECODE_SKIP_SPECIAL) && t->special[ids[i]]))
            continue;
        if (t->no_decoder && in->ends.n)
            buf_putc(&in->text, ' ');
        buf_put(&in->text, t->shown[ids[i]].p, t->shown[ids[i]].n);
        list_end(in);
    }
    for (int i = 0; i < t->ndecodes; i++) {
        step(&t->decodes[i], in, to, &bytes);
        struct list *swap = in;
        in = to, to = swap;
    }
    buf_put(out, in->text.p ? in->text.p : "", in->text.n);
    for (size_t i = 0; i < 5; i++) {
        failed |= all[i]->failed;
        buf_release(all[i]);
    }
    return failed || out->failed
               ? err_set(e, ASSAY_ENOMEM, "the text of %zu tokens: out of memory", n)
               : 0;
}
