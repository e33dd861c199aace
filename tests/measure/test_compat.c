/* Other tools' figures. InferenceX: the raw result that its own, unmodified client wrote about 40
 * requests (per-request arrays included) and what its own aggregation made of one; the rest by hand on
 * a small log, after the definitions in compat_tables.c. */
#include "harness/core/json.h"
#include "harness/measure/metrics.h"
#include "tests/measure/logbuild.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <unistd.h>

#define RAW "../shared/data/inferencex/result_json/raw_detailed.json"

struct sample {
    int64_t t, a, b;
    uint64_t request;
    size_t made;
    int kind;
};

static int by_time(const void *px, const void *py) {
    const struct sample *x = px, *y = py;
    if (x->t != y->t)
        return x->t < y->t ? -1 : 1;
    return x->made < y->made ? -1 : x->made > y->made;
}

static int64_t ns(double s) {
    return llround(s * 1e9);
}

static double num(const json_t *o, const char *path) {
    char key[64];
    for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
        snprintf(key, sizeof key, "%.*s", (int)(slash - path), path);
        o = json_object_get(o, key);
    }
    o = json_object_get(o, path);
    int is_number = json_is_number(o);
    cr_assert(is_number, "no number '%s'", path);
    return json_number_value(o);
}

static bool has(const json_t *o, const char *tool, const char *key) {
    return json_object_get(json_object_get(o, tool), key) != NULL;
}

Test(measure_compat, inferencex_as_its_own_client_printed) {
    if (access(RAW, R_OK) != 0)
        cr_skip_test("no " RAW);
    json_t *raw;
    struct err e = {0};
    cr_assert(eq(int, json_parse_file(RAW, &raw, &e), 0), "%s", e.text);
    size_t n = json_array_size(json_object_get(raw, "ttfts")), k = 0;
    static struct sample ev[100000];
    int64_t end = ns(num(raw, "duration"));
    for (size_t i = 0; i < n; i++) {
        const json_t *itl = json_array_get(json_object_get(raw, "itls"), i);
        int64_t in = json_integer_value(json_array_get(json_object_get(raw, "input_lens"), i));
        int64_t out = json_integer_value(json_array_get(json_object_get(raw, "output_lens"), i));
        /* starts are not in the file: any will do; the last one ends with the run */
        int64_t start = (int64_t)i * 1000;
        double t = json_real_value(json_array_get(json_object_get(raw, "ttfts"), i));
        ev[k++] = (struct sample){start, 0, in, i, k, EVENT_ISSUE};
        ev[k++] = (struct sample){start + ns(t), 1, 0, i, k, EVENT_TOKENS};
        size_t j;
        json_t *gap;
        json_array_foreach(itl, j, gap) {
            t += json_real_value(gap);
            ev[k++] = (struct sample){start + ns(t), 1, 0, i, k, EVENT_TOKENS};
        }
        ev[k++] = (struct sample){i + 1 == n ? end : start + ns(t), out, 0, i, k, EVENT_DONE};
    }
    qsort(ev, k, sizeof ev[0], by_time);
    struct logbuild l;
    log_init(&l, 1);
    log_put(&l, 0, EVENT_MARK, MARK_WINDOW_BEGIN, 0, 0);
    for (size_t i = 0; i < k; i++)
        log_put(&l, ev[i].t, ev[i].kind, ev[i].request, ev[i].a, ev[i].b);
    struct metrics m;
    struct metrics_facts f = {.max_concurrency = (int64_t)num(raw, "max_concurrency")};
    struct eventlog_source src = log_source(&l);
    cr_assert(eq(int, metrics_compute(&src, &f, &m, &e), 0), "%s", e.text);

    static const char *const exact[] = {"completed", "total_input_tokens", "total_output_tokens",
                                        "max_concurrency"};
    static const char *const rate[] = {"duration", "request_throughput", "output_throughput",
                                       "total_token_throughput"};
    static const char *const stat[] = {"mean", "median", "std", "p90", "p99", "p99.9"};
    static const char *const what[] = {"ttft", "tpot", "itl", "e2el"};
    const json_t *ix = json_object_get(m.compat, "inferencex");
    for (size_t i = 0; i < 4; i++) {
        cr_assert(eq(dbl, num(ix, exact[i]), num(raw, exact[i])), "%s", exact[i]);
        cr_assert(lt(dbl, fabs(num(ix, rate[i]) / num(raw, rate[i]) - 1), 1e-9), "%s", rate[i]);
    }
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < 4; j++) {
            char key[32];
            snprintf(key, sizeof key, "%s_%s_ms", stat[i], what[j]);
            /* stamps here are whole ns: at most one of difference. The client reads its clock twice for
             * the first token, so that its latency is not quite TTFT + sum of ITL: some 30 ns. */
            double ms = j == 0 || j == 2 ? 2e-6 : 2e-4;
            cr_assert(lt(dbl, fabs(num(ix, key) - num(raw, key)), ms), "%s: %.9f %.9f", key,
                      num(ix, key), num(raw, key));
            cr_assert(eq(dbl, num(json_object_get(m.compat, "vllm"), key), num(ix, key)));
        }
    metrics_release(&m);
    json_decref(raw);
    log_release(&l);
}

/* 4 chips; interactivity and rates per GPU as utils/process_result.py derives them. */
static void small(struct logbuild *l) {
    log_init(l, 1);
    log_put(l, 0, EVENT_MARK, MARK_WINDOW_BEGIN, 0, 0);
    /* request i: intended 1000 i, issued 100 later, first token 1000 (i + 1) after issue, then one event
     * of 2 tokens 500 later and one of 1 token 300 later, end 50 later: N = 4 */
    for (uint64_t i = 0; i < 3; i++)
        log_put(l, (int64_t)(1000 * i + 100), EVENT_ISSUE, i, 100, (int64_t)(10 + i));
    log_put(l, 2150, EVENT_ISSUE, 3, 0, 99);
    log_put(l, 2200, EVENT_FAIL, 3, FAIL_RESET, 0);
    for (uint64_t i = 0; i < 3; i++) {
        int64_t first = (int64_t)(1000 * i + 100 + 1500 * (i + 1)) + 1000;
        log_put(l, first, EVENT_TOKENS, i, 1, 0);
        log_put(l, first + 500, EVENT_TOKENS, i, 2, 0);
        log_put(l, first + 800, EVENT_TOKENS, i, 1, 0);
        log_put(l, first + 850, EVENT_DONE, i, 4, 0);
    }
}

Test(measure_compat, by_hand) {
    struct logbuild l;
    struct metrics m;
    struct err e = {0};
    struct metrics_facts f = {.chips = 4, .max_concurrency = 4, .limit_ttft_ns = 4000};
    small(&l);
    struct eventlog_source src = log_source(&l);
    cr_assert(eq(int, metrics_compute(&src, &f, &m, &e), 0), "%s", e.text);
    const json_t *c = m.compat;
    /* from issue: TTFT 2500 4000 5500; latency to last token 3300 4800 6300; to the end 3350 4850 6350 */
    cr_assert(ieee_ulp_eq(dbl, num(c, "vllm/mean_ttft_ms"), 4000e-6, 2));
    cr_assert(ieee_ulp_eq(dbl, num(c, "vllm/median_ttft_ms"), 4000e-6, 2));
    cr_assert(ieee_ulp_eq(dbl, num(c, "vllm/p90_ttft_ms"), 5200e-6, 4)); /* 4000 + 0.8 * 1500 */
    cr_assert(ieee_ulp_eq(dbl, num(c, "vllm/std_ttft_ms"), 1500e-6 * sqrt(2.0 / 3), 4));
    cr_assert(ieee_ulp_eq(dbl, num(c, "vllm/mean_tpot_ms"), 800.0 / 3 * 1e-6, 2));
    cr_assert(ieee_ulp_eq(dbl, num(c, "vllm/mean_itl_ms"), 400e-6, 2));
    cr_assert(ieee_ulp_eq(dbl, num(c, "vllm/p99_e2el_ms"), 4800e-6 + 0.98 * 1500e-6, 4));
    cr_assert(eq(dbl, num(c, "vllm/failed"), 1));
    double d = 8450e-9; /* window begin to the last end: request 2, 2100 + 5500 + 850 */
    cr_assert(ieee_ulp_eq(dbl, num(c, "vllm/duration"), d, 4));
    cr_assert(ieee_ulp_eq(dbl, num(c, "vllm/request_goodput"), 2 / d, 4)); /* 4000 is within */
    cr_assert(ieee_ulp_eq(dbl, num(c, "inferencex/request_goodput:"), 2 / d, 4));
    cr_assert(ieee_ulp_eq(dbl, num(c, "inferencex/output_tput_per_gpu"), 12 / d / 4, 4));
    cr_assert(ieee_ulp_eq(dbl, num(c, "inferencex/input_tput_per_gpu"), 33 / d / 4, 4));
    cr_assert(ieee_ulp_eq(dbl, num(c, "inferencex/tput_per_gpu"), 45 / d / 4, 4));
    cr_assert(ieee_ulp_eq(dbl, num(c, "inferencex/p99_intvty"), 3e9 / 800, 4));

    /* LoadGen: from the scheduled time, whole ns, index trunc(n p) */
    cr_assert(eq(dbl, num(c, "mlperf_loadgen/result_min_latency_ns"), 3450));
    cr_assert(eq(dbl, num(c, "mlperf_loadgen/result_mean_latency_ns"), 4950));
    cr_assert(eq(dbl, num(c, "mlperf_loadgen/result_50.00_percentile_latency_ns"), 4950));
    cr_assert(eq(dbl, num(c, "mlperf_loadgen/result_90.00_percentile_latency_ns"), 6450));
    cr_assert(eq(dbl, num(c, "mlperf_loadgen/result_first_token_mean_latency_ns"), 4100));
    cr_assert(eq(dbl, num(c, "mlperf_loadgen/result_time_to_output_token_mean"), 283)); /* 850 div 3 */
    cr_assert(not(has(c, "mlperf_loadgen", "early_stopping_latency_ss")));
    cr_assert(not(has(c, "mlperf_loadgen", "result_completed_samples_per_sec"))); /* one failed */
    cr_assert(ieee_ulp_eq(dbl, num(c, "mlperf_loadgen/result_samples_per_second"), 3 / 6450e-9, 4));

    /* Endpoints: to the end, tokens after the first chunk, index floor(p (n - 1)) */
    cr_assert(eq(dbl, num(c, "mlperf_endpoints/latency/percentiles/90.0"), 4850));
    cr_assert(eq(dbl, num(c, "mlperf_endpoints/latency/percentiles/50.0"), 4850));
    cr_assert(eq(dbl, num(c, "mlperf_endpoints/latency/max"), 6350));
    cr_assert(ieee_ulp_eq(dbl, num(c, "mlperf_endpoints/latency/std_dev"), 1500, 2));
    cr_assert(eq(dbl, num(c, "mlperf_endpoints/output_sequence_lengths/total"), 12));
    cr_assert(ieee_ulp_eq(dbl, num(c, "mlperf_endpoints/tps_per_user"), 3e9 / 850, 4));
    cr_assert(ieee_ulp_eq(dbl, num(c, "mlperf_endpoints/e2e_avg_interactivity"), 12 / 14550e-9, 4));
    cr_assert(eq(dbl, num(c, "mlperf_endpoints/n_samples_issued"), 4));
    cr_assert(eq(dbl, num(c, "mlperf_endpoints/n_samples_completed"), 3));

    /* AIPerf: 100 (first issue) to 8400 (last token) */
    cr_assert(ieee_ulp_eq(dbl, num(c, "aiperf/benchmark_duration/avg"), 8300e-9, 4));
    cr_assert(ieee_ulp_eq(dbl, num(c, "aiperf/output_token_throughput_per_user/p50"), 3e9 / 800, 4));
    cr_assert(ieee_ulp_eq(dbl, num(c, "aiperf/inter_chunk_latency/max"), 500e-6, 2));

    /* guidellm: nearest-rank; its TPOT includes the first token */
    cr_assert(ieee_ulp_eq(dbl, num(c, "guidellm/request_latency/median"), 4850e-9, 2));
    cr_assert(ieee_ulp_eq(dbl, num(c, "guidellm/time_per_output_token_ms/mean"), 14400.0 / 12 * 1e-6, 4));
    cr_assert(ieee_ulp_eq(dbl, num(c, "guidellm/inter_token_latency_ms/mean"), 2400.0 / 9 * 1e-6, 4));

    /* inference-perf: gaps 0 500 300 a request, nine in all */
    cr_assert(ieee_ulp_eq(dbl, num(c, "inference_perf/successes/latency/inter_token_latency/mean"),
                          2400.0 / 9 * 1e-9, 4));
    cr_assert(eq(dbl, num(c, "inference_perf/successes/latency/inter_token_latency/p25"), 0));
    cr_assert(ieee_ulp_eq(dbl, num(c, "inference_perf/successes/latency/inter_token_latency/median"),
                          300e-9, 2));
    cr_assert(ieee_ulp_eq(
        dbl, num(c, "inference_perf/successes/latency/normalized_time_per_output_token/max"),
        6350.0 / 4 * 1e-9, 2));
    cr_assert(ieee_ulp_eq(dbl, num(c, "inference_perf/benchmark_time_seconds"), 8350e-9, 4));

    /* llmperf */
    cr_assert(ieee_ulp_eq(dbl, num(c, "llmperf/inter_token_latency_s/min"), 3300.0 / 4 * 1e-9, 2));
    cr_assert(ieee_ulp_eq(dbl, num(c, "llmperf/end_to_end_latency_s/quantiles/p75"), 5600e-9, 4));
    cr_assert(ieee_ulp_eq(dbl, num(c, "llmperf/end_to_end_latency_s/stddev"), 1500e-9, 4));
    cr_assert(ieee_ulp_eq(dbl, num(c, "llmperf/request_output_throughput_token_per_s/max"),
                          4e9 / 3350, 4));
    cr_assert(eq(dbl, num(c, "llmperf/error_rate"), 0.25));
    metrics_release(&m);
    log_release(&l);
}

/* Columns that coincide are computed once: they must not come out differently for that. One run with
 * every stamp different and one, shifted, in which lateness, SENT and tail are nil. */
Test(measure_compat, equal_columns_agree) {
    for (int variant = 0; variant < 2; variant++) {
        struct logbuild l;
        struct metrics m;
        struct err e = {0};
        struct metrics_facts f = {0};
        log_init(&l, 1);
        for (uint64_t i = 0; i < 50; i++) {
            int64_t t = (int64_t)i * 1000, late = variant ? 7 : 0;
            log_put(&l, t + late, EVENT_ISSUE, i, late, 5);
            if (variant)
                log_put(&l, t + late, EVENT_SENT, i, 0, 0); /* at once: no difference */
            log_put(&l, t + 100 + (int64_t)i, EVENT_TOKENS, i, 1, 0);
            log_put(&l, t + 100 + 2 * (int64_t)i, EVENT_TOKENS, i, 1, 0);
            log_put(&l, t + 100 + 2 * (int64_t)i, EVENT_DONE, i, 2, 0);
        }
        struct eventlog_source src = log_source(&l);
        cr_assert(eq(int, metrics_compute(&src, &f, &m, &e), 0), "%s", e.text);
        double late = variant ? 7 : 0;
        cr_assert(eq(dbl, metrics_find(&m, "ttft_ns", "max")->value, 149));
        cr_assert(eq(dbl, metrics_find(&m, "service_ttft_ns", "max")->value, 149 - late));
        cr_assert(eq(dbl, metrics_find(&m, "service_e2e_ns", "p50")->value, 148 - late));
        cr_assert(eq(dbl, num(m.compat, "mlperf_endpoints/latency/min"), 100 - late));
        cr_assert(eq(dbl, num(m.compat, "mlperf_loadgen/result_min_latency_ns"), 100));
        cr_assert(ieee_ulp_eq(dbl, num(m.compat, "vllm/p90_tpot_ms"), 44.1e-6, 4));
        cr_assert(ieee_ulp_eq(dbl, num(m.compat, "llmperf/inter_token_latency_s/max"),
                              (198 - late) / 2 * 1e-9, 4));
        metrics_release(&m);
        log_release(&l);
    }
}

Test(measure_compat, training_has_none) {
    struct logbuild l;
    struct metrics m;
    struct err e = {0};
    struct metrics_facts f = {.chips = 1};
    log_init(&l, 1);
    log_put(&l, 0, EVENT_ISSUE, 0, 0, 0);
    log_put(&l, 10, EVENT_STEP, 0, 4096, 4);
    struct eventlog_source src = log_source(&l);
    cr_assert(eq(int, metrics_compute(&src, &f, &m, &e), 0), "%s", e.text);
    cr_assert(m.compat == NULL);
    metrics_release(&m);
    log_release(&l);
}
