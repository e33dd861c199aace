/* What measuring costs: ns and bytes an event of the codec for streams like those of a run, and the
 * CPU time of all metrics for a log of many requests and for one of many tokens. */
#include "harness/core/clock.h"
#include "harness/measure/eventlog.h"
#include "harness/measure/metrics.h"
#include "tests/measure/logbuild.h"
#include "tests/measure/streams.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void bench_metrics(const char *name, uint64_t requests, int tokens, bool sent,
                          bool bounds) {
    struct logbuild l;
    struct rng r;
    log_init(&l, 1);
    rng_seed(&r, 3);
    enum { WIDTH = 64 };
    int64_t now = 0;
    uint64_t events = 0;
    log_put(&l, 0, EVENT_MARK, MARK_WINDOW_BEGIN, 0, 0);
    for (uint64_t first = 0; first < requests; first += WIDTH) {
        for (uint64_t i = first; i < first + WIDTH && i < requests; i++, events++) {
            int64_t late = (int64_t)rng_below(&r, 20000);
            log_put(&l, now += 30000, EVENT_ISSUE, i, late, 100 + (int64_t)rng_below(&r, 400));
            if (sent)
                log_put(&l, now += 2000 + (int64_t)rng_below(&r, 4000), EVENT_SENT, i, 0, 0);
            events += sent;
        }
        for (int k = 0; k < tokens; k++)
            for (uint64_t i = first; i < first + WIDTH && i < requests; i++, events++)
                log_put(&l, now += (int64_t)rng_lognormal(&r, det_log(200000.0), 0.5), EVENT_TOKENS,
                        i, 1, bounds ? (int64_t)(1 + rng_below(&r, 8)) << EVENT_TOKENS_BOUND_SHIFT : 0);
        for (uint64_t i = first; i < first + WIDTH && i < requests; i++, events++)
            log_put(&l, now += 500 + (int64_t)rng_below(&r, 1000), EVENT_DONE, i, tokens, 0);
    }
    struct metrics_facts f = {
        .chips = 8, .peak_flops_per_s = 1e15, .flops_per_token = 1e10, .limit_ttft_ns = 1000000};
    double best = 1e30;
    for (int round = 0; round < 3; round++) {
        struct eventlog_source src = log_source(&l);
        struct metrics m;
        struct err e = {0};
        int64_t t0 = clock_cpu_ns();
        if (metrics_compute(&src, &f, &m, &e)) {
            fprintf(stderr, "%s\n", e.text);
            abort();
        }
        double ms = (double)(clock_cpu_ns() - t0) / 1e6;
        best = ms < best ? ms : best;
        metrics_release(&m);
    }
    printf("metrics %-28s %8.1f ms for %llu events, %.1f ns/event\n", name, best,
           (unsigned long long)events, best * 1e6 / (double)events);
    log_release(&l);
}

int main(int argc, char **argv) {
    bool codec = argc < 2 || !strcmp(argv[1], "codec"), metrics = argc < 2 || !codec;
    if (!codec && strcmp(argv[1], "metrics")) {
        fprintf(stderr, "usage: bench_measure [codec|metrics]\n");
        return 2;
    }
    if (codec) {
    bench_codec("http-64", 0, 64);
    bench_codec("http-256", 0, 256);
    bench_codec("sim-64", 1, 64);
    bench_codec("sim-256", 1, 256);
    }
    if (!metrics)
        return 0;
    bench_metrics("1M requests x 1 token", 1000000, 1, false, false);
    bench_metrics("1M requests x 1 token, SENT", 1000000, 1, true, false);
    bench_metrics("1M requests x 1 token, bounds", 1000000, 1, true, true);
    bench_metrics("4000 requests x 256 tokens", 4000, 256, true, false);
    bench_metrics("4000 x 256 tokens, bounds", 4000, 256, true, true);
    return 0;
}
