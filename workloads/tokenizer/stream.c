/* Decoding as ids come. A short window of ids is decoded anew for each: those already given out
 * whose text the next may depend on, and those still open. */
#include "workloads/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

struct tokenizer_stream {
    const struct tokenizer *t;
    unsigned flags;
    struct buf ids;  /* uint32_t: the window */
    size_t given;    /* ids of it whose text was given out */
    size_t prefix;   /* bytes of the text of those ids */
    struct buf text; /* of the whole window */
};

struct tokenizer_stream *tokenizer_stream_new(const struct tokenizer *t, unsigned flags) {
    struct tokenizer_stream *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->t = t, s->flags = flags;
    buf_init(&s->ids, TOKENIZER_TEXT_MAX_BYTES);
    buf_init(&s->text, (size_t)16 * TOKENIZER_TEXT_MAX_BYTES);
    return s;
}

void tokenizer_stream_free(struct tokenizer_stream *s) {
    if (!s)
        return;
    buf_release(&s->ids);
    buf_release(&s->text);
    free(s);
}

static int decode_window(struct tokenizer_stream *s, struct err *e) {
    const uint32_t *ids = (const uint32_t *)(const void *)s->ids.p;
    buf_clear(&s->text);
    return tokenizer_decode(s->t, ids, s->ids.n / sizeof *ids, s->flags, &s->text, e);
}

/* A character may still be open: the text ends in U+FFFD. */
static bool open_end(const struct buf *b) {
    return b->n >= 3 && !memcmp(b->p + b->n - 3, "\xEF\xBF\xBD", 3);
}

int tokenizer_stream_push(struct tokenizer_stream *s, uint32_t id, struct buf *out, struct err *e) {
    buf_put(&s->ids, &id, sizeof id);
    int rc = buf_check(&s->ids, "a stream of ids", e);
    if (rc || (rc = decode_window(s, e)))
        return rc;
    if (s->text.n <= s->prefix || open_end(&s->text))
        return 0;
    buf_put(out, s->text.p + s->prefix, s->text.n - s->prefix);
    /* what was given out before no longer matters; what was given out now is the new prefix */
    size_t drop = s->given * sizeof id;
    memmove(s->ids.p, s->ids.p + drop, s->ids.n - drop);
    s->ids.n -= drop;
    s->given = s->ids.n / sizeof id;
    rc = decode_window(s, e);
    s->prefix = s->text.n;
    return rc ? rc : buf_check(out, "the text of a stream", e);
}

int tokenizer_stream_end(struct tokenizer_stream *s, struct buf *out, struct err *e) {
    int rc = s->ids.n ? decode_window(s, e) : 0;
    if (!rc && s->ids.n && s->text.n > s->prefix)
        buf_put(out, s->text.p + s->prefix, s->text.n - s->prefix);
    buf_clear(&s->ids);
    s->given = s->prefix = 0;
    return rc ? rc : buf_check(out, "the text of a stream", e);
}
