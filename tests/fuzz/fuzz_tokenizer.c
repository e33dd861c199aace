/* The tokenizer. Inputs that begin with '{' are a tokenizer.json up to a zero byte and then a text: no
 * file and no text aborts, a refused file is named, and the ways to encode agree: with regular
 * expressions alone, from the caches, counted only. Other inputs are a text for a fixed byte-level
 * vocabulary: decoding gives it back (ill-formed parts as U+FFFD), at once and as a stream. */
#include "harness/core/json.h"
#include "workloads/tokenizer/tokenizer_internal.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { TEXT_MAX = 4096, IDS_MAX = 1 << 16 };

static void must(bool right) {
    if (!right)
        abort();
}

/* tests/data/tokenizer/bytes.json without its added tokens, some of which swallow spaces. */
static const struct tokenizer *fixed(void) {
    static struct tokenizer *t;
    struct err e = {0};
    json_t *root = NULL;
    if (t)
        return t;
    must(!json_parse_file("tests/data/tokenizer/bytes.json", &root, &e));
    must(!json_object_set_new(root, "added_tokens", json_array()));
    char *text = json_dumps(root, 0);
    must(!tokenizer_parse(text, strlen(text), "fixed", &t, &e));
    free(text);
    json_decref(root);
    return t;
}

static void round_trip(const char *text, size_t n) {
    const struct tokenizer *t = fixed();
    static struct tokenizer_work *w;
    static uint32_t ids[IDS_MAX];
    struct err e = {0};
    struct buf want, back, streamed;
    size_t count;
    if (!w)
        w = tokenizer_work_new(t);
    buf_init(&want, 1 << 20);
    buf_init(&back, 1 << 20);
    buf_init(&streamed, 1 << 20);
    utf8_lossy(text, n, &want);
    must(!tokenizer_encode(t, w, text, n, 0, ids, IDS_MAX, &count, &e) && count <= IDS_MAX);
    must(!tokenizer_decode(t, ids, count, 0, &back, &e));
    must(back.n == want.n && (!want.n || !memcmp(back.p, want.p, want.n)));
    struct tokenizer_stream *s = tokenizer_stream_new(t, 0);
    must(s);
    for (size_t i = 0; i < count && n < 512; i++)
        must(!tokenizer_stream_push(s, ids[i], &streamed, &e));
    must(!tokenizer_stream_end(s, &streamed, &e));
    must(n >= 512 || (streamed.n == want.n && (!want.n || !memcmp(streamed.p, want.p, want.n))));
    tokenizer_stream_free(s);
    buf_release(&want);
    buf_release(&back);
    buf_release(&streamed);
}

static size_t encode(const struct tokenizer *t, struct tokenizer_work *w, const char *text, size_t n,
                     uint32_t *ids, size_t cap, int *rc) {
    struct err e = {0};
    size_t count = 0;
    *rc = tokenizer_encode(t, w, text, n, TOKENIZER_ENCODE_TEMPLATE, ids, cap, &count, &e);
    must(!*rc || e.text[0]);
    return count;
}

static void any_file(const char *json, size_t n, const char *text, size_t text_bytes) {
    static uint32_t a[IDS_MAX], b[IDS_MAX];
    struct tokenizer *t = NULL, *general = NULL;
    struct err e = {0};
    if (tokenizer_parse(json, n, "my.json", &t, &e)) {
        must(!t && !strncmp(e.text, "my.json", 7));
        return;
    }
    must(!tokenizer_parse_with(json, n, "my.json", true, &general, &e));
    struct tokenizer_work *w = tokenizer_work_new(t), *wg = tokenizer_work_new(general);
    must(w && wg);
    int rc, again, other;
    size_t na = encode(t, w, text, text_bytes, a, IDS_MAX, &rc);
    size_t nb = encode(t, w, text, text_bytes, NULL, 0, &again);
    must(rc == again && na == nb);
    for (int i = 0; i < 2; i++) { /* from the cache; by regular expressions */
        nb = i ? encode(general, wg, text, text_bytes, b, IDS_MAX, &other)
               : encode(t, w, text, text_bytes, b, IDS_MAX, &other);
        if (!rc && !other) /* a regular expression may give up */
            must(na == nb && !memcmp(a, b, (na < IDS_MAX ? na : IDS_MAX) * sizeof *a));
    }
    if (!rc && na <= IDS_MAX) {
        struct buf out;
        buf_init(&out, 1 << 24);
        (void)!tokenizer_decode(t, a, na, 0, &out, &e);
        buf_clear(&out);
        (void)!tokenizer_decode(t, a, na, TOKENIZER_DECODE_SKIP_SPECIAL, &out, &e);
        buf_release(&out);
    }
    tokenizer_work_free(w);
    tokenizer_work_free(wg);
    tokenizer_free(t);
    tokenizer_free(general);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
    if (!n || p[0] != '{') {
        round_trip(n ? (const char *)p : "", n < TEXT_MAX ? n : TEXT_MAX);
        return 0;
    }
    const uint8_t *zero = memchr(p, 0, n);
    size_t json = zero ? (size_t)(zero - p) : n, text = zero ? n - json - 1 : 0;
    /* exact copies, so that reading past either's end is seen */
    char *j = malloc(json), *x = malloc(text ? text : 1);
    must(j && x);
    memcpy(j, p, json);
    if (text)
        memcpy(x, zero + 1, text);
    any_file(j, json, x, text < TEXT_MAX ? text : TEXT_MAX);
    free(j);
    free(x);
    return 0;
}
