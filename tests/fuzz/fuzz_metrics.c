/* Any sequence of events, sense or nonsense, must be measured or refused. Each 8 bytes of input are an
 * event: kind, request, thread and advance of time, and two small or, by a bit, extreme values. */
#include "harness/measure/metrics.h"
#include "tests/measure/logbuild.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int64_t value(uint8_t small, uint8_t style) {
    switch (style & 7) {
    case 0:
        return INT64_MAX;
    case 1:
        return INT64_MIN;
    case 2:
        return -(int64_t)small;
    case 3:
        return (int64_t)small << (small % 56);
    default:
        return small;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { THREADS = 3 };
    struct logbuild l;
    int64_t now[THREADS] = {0};
    log_init(&l, THREADS);
    for (size_t i = 0; i + 8 <= size && i < 8 * 4096; i += 8) {
        const uint8_t *p = data + i;
        uint32_t t = p[2] % THREADS;
        int64_t next, step = (int64_t)p[3] << (p[2] >> 2) % 54;
        if (!__builtin_add_overflow(now[t], step, &next))
            now[t] = next;
        log_put_on(&l, t, now[t], 1 + p[0] % (EVENT_KIND_COUNT - 1),
                   p[1] == 255 ? UINT64_MAX : (uint64_t)(p[1] & 15), value(p[4], p[5]),
                   value(p[6], p[7]));
    }
    struct metrics_facts f = {.chips = 2,
                              .peak_flops_per_s = 1e15,
                              .flops_per_token = 1e9,
                              .limit_ttft_ns = 100,
                              .limit_tpot_ns = 10,
                              .limit_e2e_ns = 1000,
                              .max_concurrency = 4};
    struct metrics m;
    struct err e = {0};
    struct eventlog_source src = log_source(&l);
    if (metrics_compute(&src, &f, &m, &e)) {
        if (e.code != ASSAY_EINPUT || !e.text[0])
            abort();
    } else {
        if (m.issued != m.completed + m.failed + m.in_flight_at_end || m.duration_ns < 0)
            abort();
        json_decref(metrics_to_json(&m));
        metrics_release(&m);
    }
    log_release(&l);
    return 0;
}
