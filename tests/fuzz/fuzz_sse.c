/* The event-stream parser: however the bytes are cut, the events are the same, and memory stays
 * within the maximum. The first byte chooses the cut. */
#include "backends/http/sse.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

struct digest {
    uint64_t hash, events;
};

static void add(void *ctx, const struct sse_event *ev) {
    struct digest *d = ctx;
    const struct str parts[] = {ev->type, ev->data};
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < parts[k].n; i++)
            d->hash = (d->hash ^ (unsigned char)parts[k].p[i]) * UINT64_C(0x100000001b3);
        d->hash = (d->hash ^ 256) * UINT64_C(0x100000001b3);
    }
    d->events++;
}

static int run(const char *p, size_t n, size_t piece, struct digest *d) {
    struct sse s;
    int rc = 0;
    *d = (struct digest){0};
    sse_init(&s, 4096);
    for (size_t at = 0; at < n && !rc; at += piece) {
        size_t k = piece < n - at ? piece : n - at;
        char *copy = malloc(k); /* a view that outlives its piece is a use after free */
        if (!copy)
            abort();
        memcpy(copy, p + at, k);
        rc = sse_feed(&s, copy, k, add, d);
        free(copy);
    }
    struct sse_event ev;
    if (!rc && sse_pending(&s, &ev))
        add(d, &ev);
    if (s.line.n > 4096 || s.data.n > 4096)
        abort();
    sse_release(&s);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
    if (n < 2)
        return 0;
    struct digest whole, cut, single;
    int a = run((const char *)p + 1, n - 1, n, &whole);
    int b = run((const char *)p + 1, n - 1, (size_t)p[0] + 1, &cut);
    int c = run((const char *)p + 1, n - 1, 1, &single);
    if (a != b || a != c || whole.hash != cut.hash || whole.hash != single.hash ||
        whole.events != cut.events)
        abort();
    return 0;
}
