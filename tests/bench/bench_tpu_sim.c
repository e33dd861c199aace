/* How fast the simulated engine is: a closed loop of requests straight into the backend's slots,
 * events dropped at the sink. Prints virtual results and tokens per second of machine time.
 *   bench_tpu_sim [REQUESTS] [CONCURRENCY] [ISL] [OSL] [key=value...] */
#include "backends/backend.h"
#include "harness/core/clock.h"
#include "harness/core/version.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct event_block *drop(void *ctx, struct event_block *full) {
    (*(uint64_t *)ctx) += full->n;
    full->n = 0;
    return full;
}

static int die(const struct err *e) {
    fprintf(stderr, "bench_tpu_sim: %s\n", e->text);
    return 1;
}

int main(int argc, char **argv) {
    int64_t arg[4] = {4000, 256, 1024, 256};
    int positional = 0;
    struct err e = {0};
    struct arena a = {0};
    const struct backend_ops *ops = &backend_tpu_sim;
    void *options = arena_alloc(&a, 1, ops->options_size);
    options_defaults(ops->options, options, &a);
    if (options_set_pair(ops->options, options, "chips=8", "-o", &a, &e))
        return die(&e);
    const char *model = "llama3.1-70b";
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "model=", 6) == 0)
            model = argv[i] + 6;
        else if (strchr(argv[i], '=')) {
            if (options_set_pair(ops->options, options, argv[i], "-o", &a, &e))
                return die(&e);
        } else if (positional < 4 && parse_i64(argv[i], &arg[positional++])) {
            err_set(&e, ASSAY_EUSAGE, "expected a number, found '%s'", argv[i]);
            return die(&e);
        }
    }
    struct workload w = {.kind = WORKLOAD_SERVING, .has_model = true};
    if (model_load(model, &w.model, &e))
        return die(&e);
    uint64_t events = 0;
    struct event_block block = {0};
    struct event_sink sink = {.block = &block, .flush = drop, .ctx = &events};
    struct backend_open_args args = {
        .workload = &w, .options = options, .sink = &sink, .shards = 1, .max_in_flight = arg[1]};
    int64_t t0 = clock_now_ns();
    struct backend *b;
    if (ops->open(&args, &b, &e))
        return die(&e);
    int64_t t1 = clock_now_ns();
    static const volatile int stop = 0;
    int64_t issued = 0, done = 0, tokens = 0;
    struct completion c[256];
    while (done < arg[0]) {
        for (; issued < arg[0] && issued - done < arg[1]; issued++) {
            struct request r = {.id = (uint64_t)issued,
                                .session = REQUEST_NO_SESSION,
                                .isl = (uint32_t)arg[2],
                                .osl = (uint32_t)arg[3],
                                .last_turn = true};
            if (ops->submit(b, &r, &c[0], &e) != SUBMIT_QUEUED) {
                if (!e.code)
                    err_set(&e, ASSAY_EINPUT, "request %" PRId64 " was not queued", issued);
                return die(&e);
            }
        }
        int n;
        if (ops->wait(b, INT64_MAX, c, 256, &n, &stop, &e))
            return die(&e);
        for (int i = 0; i < n; i++)
            tokens += c[i].output_tokens;
        done += n;
    }
    int64_t t2 = clock_now_ns();
    double virtual_s = (double)ops->now(b) * 1e-9, machine_s = (double)(t2 - t1) * 1e-9;
    printf("bench_tpu_sim %s: %" PRId64 " requests, concurrency %" PRId64 ", %" PRId64
           " in, %" PRId64 " out, %s\n",
           assay_version, arg[0], arg[1], arg[2], arg[3], model);
    printf("  virtual: %.3f s, %.1f output tokens/s, %.3f ms a token and request\n", virtual_s,
           (double)tokens / virtual_s, virtual_s * (double)arg[1] / (double)tokens * 1e3);
    printf("  machine: open %.3f ms, run %.3f ms, %.2f M tokens/s, %" PRIu64 " events\n",
           (double)(t1 - t0) * 1e-6, machine_s * 1e3, (double)tokens / machine_s * 1e-6,
           events + block.n);
    struct backend_share shares[16];
    int n = ops->shares(b, shares, 16);
    printf("  bound by:");
    for (int i = 0; i < n; i++)
        printf(" %s %.3f", shares[i].resource, shares[i].share);
    putchar('\n');
    ops->close(b);
    arena_release(&a);
    return 0;
}
