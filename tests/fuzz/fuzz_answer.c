/* Decoding of joined answers: the text is UTF-8 that the tree's parser takes, of bounded size; what
 * goes into a request is read back by that parser as the same text; fragments may be cut anywhere. */
#include "backends/http/answer.h"

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
    if (n > 65536)
        return 0;
    struct answer a;
    struct buf text, quoted;
    answer_init(&a, 16, n + 1);
    buf_init(&text, 3 * n + 1);
    buf_init(&quoted, 6 * n + 3);
    size_t cut = n ? p[0] % n : 0;
    answer_add(&a, (const char *)p, cut);
    answer_add(&a, (const char *)p + cut, n - cut);
    if (a.lost || a.raw.n != n)
        abort();
    char *copy = malloc(n ? n : 1); /* exact bounds */
    if (!copy)
        abort();
    memcpy(copy, p, n);
    answer_decode(copy, n, &text);
    if (text.failed)
        abort();
    json_t *v = json_stringn(text.p ? text.p : "", text.n); /* NULL: not UTF-8 */
    if (!v)
        abort();
    bool plain = true; /* quotes and control characters cannot stand inside a string: no fragment has them */
    for (size_t i = 0; i < n; i++)
        if (p[i] < 0x20 || (p[i] == '"' && (i == 0 || p[i - 1] != '\\')))
            plain = false;
    buf_putc(&quoted, '"');
    answer_put_escaped(copy, n, &quoted);
    buf_putc(&quoted, '"');
    if (quoted.failed)
        abort();
    json_t *back = plain ? json_loadb(quoted.p, quoted.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    if (back && !json_equal(v, back))
        abort();
    json_decref(back);
    json_decref(v);
    buf_release(&text);
    buf_release(&quoted);
    answer_release(&a);
    free(copy);
    return 0;
}
