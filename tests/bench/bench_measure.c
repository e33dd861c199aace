/* What the codec costs: ns and bytes an event, for streams like those of a run. */
#include "harness/core/clock.h"
#include "harness/measure/eventlog.h"
#include "tests/measure/streams.h"

#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 64, ROUNDS = 8 };

static void bench_codec(const char *name, int sim, int width) {
    struct event_block *k = calloc(BLOCKS, sizeof *k), *back = calloc(1, sizeof *back);
    uint8_t *out = malloc((size_t)BLOCKS * EVENTLOG_BLOCK_MAX_BYTES);
    size_t size[BLOCKS], total = 0;
    struct stream *s = malloc(sizeof *s);
    if (!k || !back || !out || !s)
        abort();
    stream_init(s, 7, width, 256);
    for (int i = 0; i < BLOCKS; i++) {
        stream_fill(s, sim, &k[i]);
        k[i].sequence = (uint64_t)i;
    }
    double enc = 1e30, dec = 1e30;
    for (int r = 0; r < ROUNDS; r++) {
        int64_t t0 = clock_cpu_ns();
        for (int i = 0; i < BLOCKS; i++)
            size[i] = eventlog_encode(&k[i], out + (size_t)i * EVENTLOG_BLOCK_MAX_BYTES);
        int64_t t1 = clock_cpu_ns();
        for (int i = 0; i < BLOCKS; i++)
            if (eventlog_decode(out + (size_t)i * EVENTLOG_BLOCK_MAX_BYTES, size[i], back, NULL))
                abort();
        int64_t t2 = clock_cpu_ns();
        double n = (double)BLOCKS * EVENT_BLOCK_CAP;
        enc = (double)(t1 - t0) / n < enc ? (double)(t1 - t0) / n : enc;
        dec = (double)(t2 - t1) / n < dec ? (double)(t2 - t1) / n : dec;
    }
    for (int i = 0; i < BLOCKS; i++)
        total += size[i];
    printf("codec %-10s encode %5.1f ns/event  decode %5.1f ns/event  %.3f bytes/event\n", name, enc,
           dec, (double)total / ((double)BLOCKS * EVENT_BLOCK_CAP));
    free(k);
    free(back);
    free(out);
    free(s);
}

int main(void) {
    bench_codec("http-64", 0, 64);
    bench_codec("http-256", 0, 256);
    bench_codec("sim-64", 1, 64);
    bench_codec("sim-256", 1, 256);
    return 0;
}
