/* What a plan costs: opening one of a million requests, and the next request, by kind of workload.
 * Prints one JSON object a line: {"plan": name, "open_ms": x, "next_ns": y, "requests": n}. */
#include "harness/core/clock.h"
#include "workloads/plan.h"

#include <stdio.h>
#include <stdlib.h>

struct bench_case {
    const char *name, *workload, *overrides[3];
    int n;
};

static uint64_t checksum;

static int run(const struct bench_case *c, struct err *e) {
    struct workload *w;
    struct plan *p;
    struct request r;
    bool end = false;
    int rc = workload_load(c->workload, c->overrides, c->n, &w, e);
    if (rc)
        return rc;
    int64_t start_ns = clock_cpu_ns();
    rc = plan_open(w, 0, 1, &p, e);
    int64_t open_ns = clock_cpu_ns() - start_ns;
    uint64_t requests = 0;
    int64_t at_ns;
    start_ns = clock_cpu_ns();
    while (rc == 0 && (rc = plan_next(p, &r, &end, e)) == 0 && !end) {
        do {
            bool over;
            checksum += r.isl + r.osl + r.content_seed;
            requests++;
            rc = plan_done(p, &r, 0, r.osl, false, &over, e);
        } while (rc == 0 && plan_take(p, &r, &at_ns));
    }
    int64_t next_ns = clock_cpu_ns() - start_ns;
    printf("{\"plan\": \"%s\", \"open_ms\": %.2f, \"next_ns\": %.1f, \"requests\": %llu}\n",
           c->name, (double)open_ns / 1e6, (double)next_ns / (double)requests,
           (unsigned long long)requests);
    plan_close(p);
    workload_free(w);
    return rc;
}

int main(void) {
    static const struct bench_case cases[] = {
        {"fixed", "decode-loop", {"requests=1000000"}, 1},
        {"range_ratio", "inferencex-8k1k", {"requests=1000000"}, 1},
        {"lognormal", "chat-serving", {"requests=1000000"}, 1},
        {"sessions", "agentic-multiturn", {"requests=1000000"}, 1},
    };
    struct err e = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (run(&cases[i], &e)) {
            fprintf(stderr, "bench_plan: %s\n", e.text);
            return err_exit_code(e.code);
        }
    return checksum == 0;
}
