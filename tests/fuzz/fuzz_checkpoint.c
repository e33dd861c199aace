/* Checkpoint notes. Input: a verifier key line, then a note. Also checked against a fixed key,
 * whose secret (RFC 8032 test 1) signed only what is in the corpus. */
#include "results/register.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char fixed[] =
        "fuzz.example/log+37983db0+AddamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea";
    uint64_t n;
    unsigned char root[32];
    const uint8_t *nl = size ? memchr(data, '\n', size) : NULL;
    const char *note = nl ? (const char *)nl + 1 : (const char *)data;
    size_t note_n = nl ? size - (size_t)(nl + 1 - data) : size;
    if (nl) {
        char *vkey = strndup((const char *)data, (size_t)(nl - data));
        if (!vkey)
            abort();
        (void)!checkpoint_check(note, note_n, vkey, &n, root, NULL);
        free(vkey);
    }
    if (checkpoint_check(note, note_n, fixed, &n, root, NULL) == 0 && n != 4)
        abort();
    return 0;
}
