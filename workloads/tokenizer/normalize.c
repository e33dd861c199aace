/* The normalizer's steps over one piece of text. */
#include "workloads/tokenizer/tokenizer_internal.h"

#include <string.h>

static void replace(struct tokenizer_work *w, const struct norm_step *s, const char *p, size_t n,
                    struct buf *out) {
    size_t at = 0;
    if (!s->code) {
        if (s->a.n == 1) {
            const char *hit;
            while (at < n && (hit = memchr(p + at, s->a.p[0], n - at))) {
                buf_put(out, p + at, (size_t)(hit - p) - at);
                buf_put(out, s->b.p, s->b.n);
                at = (size_t)(hit - p) + 1;
            }
        } else {
            const char *hit;
            while (at < n && (hit = memmem(p + at, n - at, s->a.p, s->a.n))) {
                buf_put(out, p + at, (size_t)(hit - p) - at);
                buf_put(out, s->b.p, s->b.n);
                at = (size_t)(hit - p) + s->a.n;
            }
        }
        buf_put(out, p + at, n - at);
        return;
    }
    size_t start, end; /* never empty: such patterns are refused */
    while (regex_match(w, s->code, p, n, at, &start, &end) && end > start) {
        buf_put(out, p + at, start - at);
        buf_put(out, s->b.p, s->b.n);
        at = end;
    }
    buf_put(out, p + at, n - at);
}

static void lowercase(const char *p, size_t n, struct buf *out) {
    const uint8_t *s = (const uint8_t *)p, *end = s + n;
    while (s < end) {
        uint32_t low[2];
        char four[4];
        int k = unicode_lower(utf8_next(&s), low);
        for (int i = 0; i < k; i++)
            buf_put(out, four, utf8_put(low[i], four));
    }
}

void normalize_piece(struct tokenizer_work *w, const char **p, size_t *n) {
    struct buf *out = &w->norm_a, *other = &w->norm_b;
    for (int i = 0; i < w->t->nnorms && *n && !w->failed; i++) {
        const struct norm_step *s = &w->t->norms[i];
        if (s->kind == STEP_FORM && norm_quick(s->form, *p, *n))
            continue;
        if (s->kind == STEP_STRIP) {
            const uint8_t *q = (const uint8_t *)*p, *end = q + *n;
            while (s->left && q < end) {
                const uint8_t *c = q;
                if (!unicode_is_space(utf8_next(&c)))
                    break;
                q = c;
            }
            while (s->right && end > q) {
                const uint8_t *c = end - 1;
                while ((*c & 0xC0) == 0x80)
                    c--;
                const uint8_t *from = c;
                if (!unicode_is_space(utf8_next(&c)))
                    break;
                end = from;
            }
            *p = (const char *)q, *n = (size_t)(end - q);
            continue;
        }
        buf_clear(out);
        switch (s->kind) {
        case STEP_FORM:
            norm_apply(s->form, *p, *n, out, &w->norm_scratch);
            break;
        case STEP_PREPEND:
            buf_put(out, s->a.p, s->a.n);
            buf_put(out, *p, *n);
            break;
        case STEP_LOWERCASE:
            lowercase(*p, *n, out);
            break;
        default:
            replace(w, s, *p, *n, out);
        }
        w->failed |= out->failed;
        *p = out->p ? out->p : "", *n = out->n;
        struct buf *swap = out;
        out = other, other = swap;
    }
}
