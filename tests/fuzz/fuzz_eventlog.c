/* Whatever decodes must encode and decode to the same events again; nothing may crash or overrun. */
#include "harness/measure/eventlog.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct event_block x, y;
    static uint8_t out[EVENTLOG_BLOCK_MAX_BYTES];
    struct err e = {0};
    if (eventlog_decode(data, size, &x, &e)) {
        if (x.n != 0 || e.code != ASSAY_EINPUT || !e.text[0])
            abort();
        return 0;
    }
    size_t n = eventlog_encode(&x, out);
    if (n > sizeof out - 8 || eventlog_decode(out, n, &y, &e))
        abort();
    if (x.n != y.n || x.thread != y.thread || x.sequence != y.sequence ||
        memcmp(x.time_ns, y.time_ns, x.n * sizeof x.time_ns[0]) ||
        memcmp(x.request, y.request, x.n * sizeof x.request[0]) ||
        memcmp(x.a, y.a, x.n * sizeof x.a[0]) || memcmp(x.b, y.b, x.n * sizeof x.b[0]) ||
        memcmp(x.kind, y.kind, x.n))
        abort();
    return 0;
}
