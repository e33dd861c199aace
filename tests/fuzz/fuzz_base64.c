/* Base64: what decodes encodes to the standard padded form, which decodes to the same bytes. */
#include "results/hash.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok) {
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct buf bytes, text, again;
    buf_init(&bytes, size + 1);
    buf_init(&text, 2 * size + 8);
    buf_init(&again, size + 1);
    if (base64_decode((const char *)data, size, &bytes, NULL) == 0) {
        base64_encode(bytes.p, bytes.n, &text);
        must(!text.failed && text.n == (bytes.n + 2) / 3 * 4);
        must(base64_decode(text.p, text.n, &again, NULL) == 0);
        must(again.n == bytes.n && (again.n == 0 || memcmp(again.p, bytes.p, again.n) == 0));
        size_t same = 0; /* the input is that text, but for padding and alphabet */
        while (same < size && data[same] != '=' && same < text.n &&
               (text.p[same] == (char)data[same] || strchr("+/-_", data[same])))
            same++;
        must(same == size || data[same] == '=');
    }
    buf_release(&bytes);
    buf_release(&text);
    buf_release(&again);
    return 0;
}
