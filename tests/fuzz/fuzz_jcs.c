/* Canonical JSON: what the profile accepts prints, parses again, and prints the same bytes. The
 * first eight bytes are also taken as a double, whose text must read back. */
#include "results/jcs.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok) {
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    double d;
    if (size >= sizeof d) {
        char text[32];
        memcpy(&d, data, sizeof d);
        if (jcs_number(d, text, NULL) == 0)
            must(strtod(text, NULL) == d);
        else
            must(!isfinite(d));
    }
    json_t *v = NULL, *w = NULL;
    struct buf once, twice;
    buf_init(&once, (size_t)8 << 20); /* escapes grow: \x01 becomes six bytes */
    buf_init(&twice, (size_t)8 << 20);
    if (jcs_parse((const char *)data, size, "fuzz", &v, NULL) == 0) {
        must(jcs_encode(v, &once, NULL) == 0);
        if (once.n <= 1024 * 1024) {
            must(jcs_parse(once.p, once.n, "fuzz", &w, NULL) == 0);
            must(jcs_encode(w, &twice, NULL) == 0);
            must(once.n == twice.n && memcmp(once.p, twice.p, once.n) == 0);
        }
    }
    json_decref(v);
    json_decref(w);
    buf_release(&once);
    buf_release(&twice);
    return 0;
}
