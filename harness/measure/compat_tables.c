/* The rows of other tools' figures, a block a tool, each with where its definitions were read.
 *
 * The log's stamps in their words: "request start" of a client that starts its watch as it posts is our
 * ISSUE (actual, not intended), "end" is the stream's end (DONE) or the last token event as the tool
 * has it, tokens are N of DONE. Rates of closed-loop clients divide by begin to last end (`elapsed`).
 * Failed requests are left out everywhere but in counts of failures, as all of them do. */
#include "harness/measure/compat.h"

#include <math.h>
#include <stddef.h>

#define ABSENT ((double)NAN)
#define MS 1e-6 /* from ns */
#define S 1e-9

/* --- scalars ------------------------------------------------------------------------------------ */

static double count(int64_t n) {
    return (double)n;
}

static double completed(const struct compat_context *c) {
    return c->p->issued ? count(c->p->completed) : ABSENT;
}

static double failed(const struct compat_context *c) {
    return c->p->issued ? count(c->p->failed) : ABSENT;
}

static double ended(const struct compat_context *c) {
    return completed(c) + failed(c);
}

static double issued(const struct compat_context *c) {
    return c->p->issued ? count(c->p->issued) : ABSENT;
}

static double input_tokens(const struct compat_context *c) {
    return completed(c) > 0 ? count(c->p->input_tokens) : ABSENT;
}

static double output_tokens(const struct compat_context *c) {
    return completed(c) > 0 ? count(c->p->output_tokens) : ABSENT;
}

static double total_tokens(const struct compat_context *c) {
    return input_tokens(c) + output_tokens(c);
}

/* Seconds between two stamps of `of` requests; absent when there is none, or no time passed. */
static double seconds(int64_t of, int64_t from_ns, int64_t to_ns) {
    return of > 0 && to_ns > from_ns ? S * count(to_ns - from_ns) : ABSENT;
}

/* From the window's begin to the last end, failures included: the drain is inside. */
static double elapsed(const struct compat_context *c) {
    return seconds(c->p->completed + c->p->failed, c->p->begin_ns, c->p->last_done_ns);
}

static double elapsed_ns(const struct compat_context *c) {
    return c->p->completed + c->p->failed > 0 ? count(c->p->last_done_ns - c->p->begin_ns) : ABSENT;
}

static double request_rate(const struct compat_context *c) {
    return completed(c) / elapsed(c);
}

static double request_rate_per_min(const struct compat_context *c) {
    return 60 * request_rate(c);
}

static double input_rate(const struct compat_context *c) {
    return input_tokens(c) / elapsed(c);
}

static double output_rate(const struct compat_context *c) {
    return output_tokens(c) / elapsed(c);
}

static double total_rate(const struct compat_context *c) {
    return total_tokens(c) / elapsed(c);
}

/* Only when every answer was streamed: the tools would see another TTFT of one that was not. */
static double goodput(const struct compat_context *c) {
    const struct metrics_facts *f = c->f;
    bool limits = f->limit_ttft_ns || f->limit_tpot_ns || f->limit_e2e_ns;
    return limits && c->cols->at[COL_ISSUE_TTFT]->n == c->p->completed
               ? count(c->p->good_compat) / elapsed(c)
               : ABSENT;
}

static double concurrency(const struct compat_context *c) {
    return c->f->max_concurrency > 0 && c->p->completed ? count(c->f->max_concurrency) : ABSENT;
}

static double chips(const struct compat_context *c) {
    return c->f->chips > 0 ? count(c->f->chips) : ABSENT;
}

static double total_rate_per_chip(const struct compat_context *c) {
    return total_rate(c) / chips(c);
}

static double output_rate_per_chip(const struct compat_context *c) {
    return output_rate(c) / chips(c);
}

static double input_rate_per_chip(const struct compat_context *c) {
    return input_rate(c) / chips(c);
}

static double failed_share(const struct compat_context *c) {
    return failed(c) / ended(c);
}

/* From the first request's start to the last end of all that ended. */
static double spanned(const struct compat_context *c) {
    return seconds(c->p->completed + c->p->failed, c->p->first_start_ns, c->p->last_done_ns);
}

static double request_rate_spanned(const struct compat_context *c) {
    return completed(c) / spanned(c);
}

static double input_rate_spanned(const struct compat_context *c) {
    return input_tokens(c) / spanned(c);
}

static double output_rate_spanned(const struct compat_context *c) {
    return output_tokens(c) / spanned(c);
}

static double total_rate_spanned(const struct compat_context *c) {
    return total_tokens(c) / spanned(c);
}

/* From the first start to the last response of completed requests. */
static double answered(const struct compat_context *c) {
    return seconds(c->p->completed, c->p->first_issue_ns, c->p->last_token_ns);
}

static double request_rate_answered(const struct compat_context *c) {
    return completed(c) / answered(c);
}

static double output_rate_answered(const struct compat_context *c) {
    return output_tokens(c) / answered(c);
}

static double total_rate_answered(const struct compat_context *c) {
    return total_tokens(c) / answered(c);
}

/* Server: samples after the first over the completion time of the last issued one. */
static double loadgen_span(const struct compat_context *c) {
    int64_t n = c->p->completed > 1 && c->p->failed == 0 ? c->p->completed : 0;
    return seconds(n, c->p->first_intended_ns, c->p->last_issued_done_ns);
}

static double loadgen_completed_rate(const struct compat_context *c) {
    return (completed(c) - 1) / loadgen_span(c);
}

static double loadgen_completed_token_rate(const struct compat_context *c) {
    return output_tokens(c) / loadgen_span(c);
}

static double loadgen_offline_rate(const struct compat_context *c) {
    double longest = S * c->cols->at[COL_INTENDED_DONE]->max;
    return completed(c) > 0 && longest > 0 ? completed(c) / longest : ABSENT;
}

static double loadgen_offline_token_rate(const struct compat_context *c) {
    double longest = S * c->cols->at[COL_INTENDED_DONE]->max;
    return completed(c) > 0 && longest > 0 ? output_tokens(c) / longest : ABSENT;
}

/* Tokens over the summed answer times, tool time excluded. */
static double mean_interactivity(const struct compat_context *c) {
    const struct column *t = c->cols->at[COL_ISSUE_DONE];
    double seconds = S * t->mean * count(t->n);
    return t->n && seconds > 0 ? output_tokens(c) / seconds : ABSENT;
}

/* Weighted by tokens: the sum of spans over the sum of tokens. */
static double weighted_tpot(const struct compat_context *c) {
    const struct column *t = c->cols->at[COL_ISSUE_E2E];
    return t->n && c->p->output_tokens ? MS * t->mean * count(t->n) / output_tokens(c) : ABSENT;
}

static double weighted_itl(const struct compat_context *c) {
    return c->p->decode_tokens ? MS * (double)c->p->decode_ns / count(c->p->decode_tokens) : ABSENT;
}

/* --- rows --------------------------------------------------------------------------------------- */

/* clang-format off */
#define STAT(tool, path, column, stat, ppm, scale) {tool, path, NULL, column, COL_NONE, stat, ppm, scale, false, false}
#define WHOLE(tool, path, column, stat, ppm) {tool, path, NULL, column, COL_NONE, stat, ppm, 1, false, true}
#define INVERSE(tool, path, column, stat, ppm, scale) {tool, path, NULL, column, COL_NONE, stat, ppm, scale, true, false}
#define ONLY_IF(tool, path, column, same, stat, ppm, scale) {tool, path, NULL, column, same, stat, ppm, scale, false, false}
#define FIGURE(tool, path, function) {tool, path, function, COL_NONE, COL_NONE, CSTAT_MEAN, 0, 1, false, false}
#define COUNT(tool, path, function) {tool, path, function, COL_NONE, COL_NONE, CSTAT_MEAN, 0, 1, false, true}

/* numpy: population standard deviation, linear interpolation */
#define SERVING(tool, name, column) \
    STAT(tool, "mean_" name "_ms", column, CSTAT_MEAN, 0, MS), \
    STAT(tool, "median_" name "_ms", column, CSTAT_LINEAR7, 500000, MS), \
    STAT(tool, "std_" name "_ms", column, CSTAT_SD, 0, MS), \
    STAT(tool, "p90_" name "_ms", column, CSTAT_LINEAR7, 900000, MS), \
    STAT(tool, "p99_" name "_ms", column, CSTAT_LINEAR7, 990000, MS), \
    STAT(tool, "p99.9_" name "_ms", column, CSTAT_LINEAR7, 999000, MS)

#define AIPERF(name, column, scale) \
    STAT("aiperf", name "/avg", column, CSTAT_MEAN, 0, scale), \
    STAT("aiperf", name "/min", column, CSTAT_MIN, 0, scale), \
    STAT("aiperf", name "/max", column, CSTAT_MAX, 0, scale), \
    STAT("aiperf", name "/std", column, CSTAT_SD, 0, scale), \
    STAT("aiperf", name "/p1", column, CSTAT_LINEAR7, 10000, scale), \
    STAT("aiperf", name "/p5", column, CSTAT_LINEAR7, 50000, scale), \
    STAT("aiperf", name "/p10", column, CSTAT_LINEAR7, 100000, scale), \
    STAT("aiperf", name "/p25", column, CSTAT_LINEAR7, 250000, scale), \
    STAT("aiperf", name "/p50", column, CSTAT_LINEAR7, 500000, scale), \
    STAT("aiperf", name "/p75", column, CSTAT_LINEAR7, 750000, scale), \
    STAT("aiperf", name "/p90", column, CSTAT_LINEAR7, 900000, scale), \
    STAT("aiperf", name "/p95", column, CSTAT_LINEAR7, 950000, scale), \
    STAT("aiperf", name "/p99", column, CSTAT_LINEAR7, 990000, scale)

#define GUIDELLM(name, column, scale) \
    STAT("guidellm", name "/mean", column, CSTAT_MEAN, 0, scale), \
    STAT("guidellm", name "/median", column, CSTAT_NEAREST, 500000, scale), \
    STAT("guidellm", name "/std_dev", column, CSTAT_SD, 0, scale), \
    STAT("guidellm", name "/min", column, CSTAT_MIN, 0, scale), \
    STAT("guidellm", name "/max", column, CSTAT_MAX, 0, scale), \
    STAT("guidellm", name "/percentiles/p05", column, CSTAT_NEAREST, 50000, scale), \
    STAT("guidellm", name "/percentiles/p50", column, CSTAT_NEAREST, 500000, scale), \
    STAT("guidellm", name "/percentiles/p90", column, CSTAT_NEAREST, 900000, scale), \
    STAT("guidellm", name "/percentiles/p95", column, CSTAT_NEAREST, 950000, scale), \
    STAT("guidellm", name "/percentiles/p99", column, CSTAT_NEAREST, 990000, scale), \
    STAT("guidellm", name "/percentiles/p999", column, CSTAT_NEAREST, 999000, scale)

#define INFERENCE_PERF(path, column, same, scale) \
    ONLY_IF("inference_perf", path "/mean", column, same, CSTAT_MEAN, 0, scale), \
    ONLY_IF("inference_perf", path "/min", column, same, CSTAT_MIN, 0, scale), \
    ONLY_IF("inference_perf", path "/max", column, same, CSTAT_MAX, 0, scale), \
    ONLY_IF("inference_perf", path "/p0.1", column, same, CSTAT_LINEAR7, 1000, scale), \
    ONLY_IF("inference_perf", path "/p1", column, same, CSTAT_LINEAR7, 10000, scale), \
    ONLY_IF("inference_perf", path "/p5", column, same, CSTAT_LINEAR7, 50000, scale), \
    ONLY_IF("inference_perf", path "/p10", column, same, CSTAT_LINEAR7, 100000, scale), \
    ONLY_IF("inference_perf", path "/p25", column, same, CSTAT_LINEAR7, 250000, scale), \
    ONLY_IF("inference_perf", path "/median", column, same, CSTAT_LINEAR7, 500000, scale), \
    ONLY_IF("inference_perf", path "/p75", column, same, CSTAT_LINEAR7, 750000, scale), \
    ONLY_IF("inference_perf", path "/p90", column, same, CSTAT_LINEAR7, 900000, scale), \
    ONLY_IF("inference_perf", path "/p95", column, same, CSTAT_LINEAR7, 950000, scale), \
    ONLY_IF("inference_perf", path "/p99", column, same, CSTAT_LINEAR7, 990000, scale), \
    ONLY_IF("inference_perf", path "/p99.9", column, same, CSTAT_LINEAR7, 999000, scale)

#define LLMPERF(name, column, same, scale) \
    ONLY_IF("llmperf", name "/quantiles/p25", column, same, CSTAT_LINEAR7, 250000, scale), \
    ONLY_IF("llmperf", name "/quantiles/p50", column, same, CSTAT_LINEAR7, 500000, scale), \
    ONLY_IF("llmperf", name "/quantiles/p75", column, same, CSTAT_LINEAR7, 750000, scale), \
    ONLY_IF("llmperf", name "/quantiles/p90", column, same, CSTAT_LINEAR7, 900000, scale), \
    ONLY_IF("llmperf", name "/quantiles/p95", column, same, CSTAT_LINEAR7, 950000, scale), \
    ONLY_IF("llmperf", name "/quantiles/p99", column, same, CSTAT_LINEAR7, 990000, scale), \
    ONLY_IF("llmperf", name "/mean", column, same, CSTAT_MEAN, 0, scale), \
    ONLY_IF("llmperf", name "/min", column, same, CSTAT_MIN, 0, scale), \
    ONLY_IF("llmperf", name "/max", column, same, CSTAT_MAX, 0, scale), \
    ONLY_IF("llmperf", name "/stddev", column, same, CSTAT_SD_SAMPLE, 0, scale)

#define LOADGEN_PERCENTILES(before, after, column) \
    WHOLE("mlperf_loadgen", before "50.00" after, column, CSTAT_LOADGEN, 500000), \
    WHOLE("mlperf_loadgen", before "90.00" after, column, CSTAT_LOADGEN, 900000), \
    WHOLE("mlperf_loadgen", before "95.00" after, column, CSTAT_LOADGEN, 950000), \
    WHOLE("mlperf_loadgen", before "97.00" after, column, CSTAT_LOADGEN, 970000), \
    WHOLE("mlperf_loadgen", before "99.00" after, column, CSTAT_LOADGEN, 990000), \
    WHOLE("mlperf_loadgen", before "99.90" after, column, CSTAT_LOADGEN, 999000)

#define ENDPOINTS_PERCENTILE(name, column, key, ppm) \
    {"mlperf_endpoints", name "/percentiles/" key, NULL, column, COL_NONE, CSTAT_LOWER, ppm, 1, false, true}
#define ENDPOINTS_ESTIMATE(name, column, key, ppm) \
    {"mlperf_endpoints", name "/early_stopping_percentiles/" key, NULL, column, COL_NONE, CSTAT_EARLY_STOPPING, ppm, 1, false, true}
#define ENDPOINTS(name, column) \
    {"mlperf_endpoints", name "/total", NULL, column, COL_NONE, CSTAT_SUM, 0, 1, false, true}, \
    {"mlperf_endpoints", name "/min", NULL, column, COL_NONE, CSTAT_MIN, 0, 1, false, true}, \
    {"mlperf_endpoints", name "/max", NULL, column, COL_NONE, CSTAT_MAX, 0, 1, false, true}, \
    STAT("mlperf_endpoints", name "/avg", column, CSTAT_MEAN, 0, 1), \
    STAT("mlperf_endpoints", name "/std_dev", column, CSTAT_SD_SAMPLE, 0, 1), \
    ENDPOINTS_PERCENTILE(name, column, "99.9", 999000), ENDPOINTS_PERCENTILE(name, column, "99.0", 990000), \
    ENDPOINTS_PERCENTILE(name, column, "97.0", 970000), ENDPOINTS_PERCENTILE(name, column, "95.0", 950000), \
    ENDPOINTS_PERCENTILE(name, column, "90.0", 900000), ENDPOINTS_PERCENTILE(name, column, "80.0", 800000), \
    ENDPOINTS_PERCENTILE(name, column, "75.0", 750000), ENDPOINTS_PERCENTILE(name, column, "50.0", 500000), \
    ENDPOINTS_PERCENTILE(name, column, "25.0", 250000), ENDPOINTS_PERCENTILE(name, column, "10.0", 100000), \
    ENDPOINTS_PERCENTILE(name, column, "5.0", 50000), ENDPOINTS_PERCENTILE(name, column, "1.0", 10000)
#define ENDPOINTS_ESTIMATES(name, column) \
    ENDPOINTS_ESTIMATE(name, column, "99.9", 999000), ENDPOINTS_ESTIMATE(name, column, "99.0", 990000), \
    ENDPOINTS_ESTIMATE(name, column, "97.0", 970000), ENDPOINTS_ESTIMATE(name, column, "95.0", 950000), \
    ENDPOINTS_ESTIMATE(name, column, "90.0", 900000), ENDPOINTS_ESTIMATE(name, column, "80.0", 800000), \
    ENDPOINTS_ESTIMATE(name, column, "75.0", 750000), ENDPOINTS_ESTIMATE(name, column, "50.0", 500000)

const struct compat_row compat_rows[] = {
    /* SemiAnalysisAI/InferenceX at 843c6254, utils/bench_serving/benchmark_serving.py, completions
     * backend: the watch starts after the concurrency semaphore; latency ends with the last content
     * event; TPOT = (latency - TTFT)/(N - 1). The aggregate of utils/process_result.py adds rates per
     * GPU and interactivity = 1000/TPOT of the same statistic (so p99_intvty is the slow tail). */
    COUNT("inferencex", "completed", completed),
    COUNT("inferencex", "total_input_tokens", input_tokens),
    COUNT("inferencex", "total_output_tokens", output_tokens),
    COUNT("inferencex", "max_concurrency", concurrency),
    FIGURE("inferencex", "duration", elapsed),
    FIGURE("inferencex", "request_throughput", request_rate),
    FIGURE("inferencex", "request_goodput:", goodput), /* the colon is part of the key */
    FIGURE("inferencex", "output_throughput", output_rate),
    FIGURE("inferencex", "total_token_throughput", total_rate),
    SERVING("inferencex", "ttft", COL_ISSUE_TTFT),
    SERVING("inferencex", "tpot", COL_TPOT_1),
    SERVING("inferencex", "itl", COL_ITL),
    SERVING("inferencex", "e2el", COL_ISSUE_E2E),
    FIGURE("inferencex", "tput_per_gpu", total_rate_per_chip),
    FIGURE("inferencex", "output_tput_per_gpu", output_rate_per_chip),
    FIGURE("inferencex", "input_tput_per_gpu", input_rate_per_chip),
    INVERSE("inferencex", "mean_intvty", COL_TPOT_1, CSTAT_MEAN, 0, 1e9),
    INVERSE("inferencex", "median_intvty", COL_TPOT_1, CSTAT_LINEAR7, 500000, 1e9),
    INVERSE("inferencex", "p90_intvty", COL_TPOT_1, CSTAT_LINEAR7, 900000, 1e9),
    INVERSE("inferencex", "p99_intvty", COL_TPOT_1, CSTAT_LINEAR7, 990000, 1e9),
    INVERSE("inferencex", "p99.9_intvty", COL_TPOT_1, CSTAT_LINEAR7, 999000, 1e9),

    /* vllm-project/vllm at 009e6d4a, vllm/benchmarks/serve.py calculate_metrics. Left out:
     * max_output_tokens_per_s and max_concurrent_requests. */
    COUNT("vllm", "completed", completed),
    COUNT("vllm", "failed", failed),
    COUNT("vllm", "total_input_tokens", input_tokens),
    COUNT("vllm", "total_output_tokens", output_tokens),
    COUNT("vllm", "max_concurrency", concurrency),
    FIGURE("vllm", "duration", elapsed),
    FIGURE("vllm", "request_throughput", request_rate),
    FIGURE("vllm", "request_goodput", goodput),
    FIGURE("vllm", "output_throughput", output_rate),
    FIGURE("vllm", "total_token_throughput", total_rate),
    SERVING("vllm", "ttft", COL_ISSUE_TTFT),
    SERVING("vllm", "tpot", COL_TPOT_1),
    SERVING("vllm", "itl", COL_ITL),
    SERVING("vllm", "e2el", COL_ISSUE_E2E),

    /* mlcommons/inference, loadgen 6.0: results.cc, keys of mlperf_log_detail.txt. A latency starts at
     * the scheduled time and ends with the completion; percentile p is sorted[trunc(n p)]; means are
     * integer divisions; TPOT = (latency - TTFT) div (N - 1). Both scenarios' figures are given: Server
     * (completed per second of the last issued query) and Offline (samples over the largest latency). */
    COUNT("mlperf_loadgen", "result_query_count", completed),
    COUNT("mlperf_loadgen", "num_errors", failed),
    FIGURE("mlperf_loadgen", "result_completed_samples_per_sec", loadgen_completed_rate),
    FIGURE("mlperf_loadgen", "result_completed_tokens_per_second", loadgen_completed_token_rate),
    FIGURE("mlperf_loadgen", "result_samples_per_second", loadgen_offline_rate),
    FIGURE("mlperf_loadgen", "result_tokens_per_second", loadgen_offline_token_rate),
    WHOLE("mlperf_loadgen", "early_stopping_latency_ss", COL_INTENDED_DONE, CSTAT_EARLY_STOPPING, 900000),
    WHOLE("mlperf_loadgen", "early_stopping_latency_ms", COL_INTENDED_DONE, CSTAT_EARLY_STOPPING, 990000),
    WHOLE("mlperf_loadgen", "result_min_latency_ns", COL_INTENDED_DONE, CSTAT_MIN, 0),
    WHOLE("mlperf_loadgen", "result_max_latency_ns", COL_INTENDED_DONE, CSTAT_MAX, 0),
    WHOLE("mlperf_loadgen", "result_mean_latency_ns", COL_INTENDED_DONE, CSTAT_MEAN_FLOOR, 0),
    LOADGEN_PERCENTILES("result_", "_percentile_latency_ns", COL_INTENDED_DONE),
    WHOLE("mlperf_loadgen", "result_first_token_min_latency_ns", COL_TTFT, CSTAT_MIN, 0),
    WHOLE("mlperf_loadgen", "result_first_token_max_latency_ns", COL_TTFT, CSTAT_MAX, 0),
    WHOLE("mlperf_loadgen", "result_first_token_mean_latency_ns", COL_TTFT, CSTAT_MEAN_FLOOR, 0),
    LOADGEN_PERCENTILES("result_first_token_", "_percentile_latency_ns", COL_TTFT),
    WHOLE("mlperf_loadgen", "result_time_to_output_token_min", COL_TPOT_DIV, CSTAT_MIN, 0),
    WHOLE("mlperf_loadgen", "result_time_to_output_token_max", COL_TPOT_DIV, CSTAT_MAX, 0),
    WHOLE("mlperf_loadgen", "result_time_to_output_token_mean", COL_TPOT_DIV, CSTAT_MEAN_FLOOR, 0),
    LOADGEN_PERCENTILES("result_time_per_output_token_", "_percentile_ns", COL_TPOT_DIV),

    /* mlcommons/endpoints, result_summary.json: latency = complete - issued, TTFT from issued, TPOT =
     * (complete - first)/tokens after the first chunk; percentiles by index floor(p (n - 1)), sample
     * standard deviation; early-stopping estimates for percentiles >= 50; tracked duration to the last
     * completion; tps_per_user = 1000/TPOT p90 in ms. */
    COUNT("mlperf_endpoints", "n_samples_issued", issued),
    COUNT("mlperf_endpoints", "n_samples_completed", completed),
    COUNT("mlperf_endpoints", "n_samples_failed", failed),
    COUNT("mlperf_endpoints", "duration_ns", elapsed_ns),
    FIGURE("mlperf_endpoints", "qps", request_rate),
    FIGURE("mlperf_endpoints", "tps", output_rate),
    FIGURE("mlperf_endpoints", "system_tps", output_rate),
    INVERSE("mlperf_endpoints", "tps_per_user", COL_TPOT_DONE, CSTAT_LOWER, 900000, 1e9),
    FIGURE("mlperf_endpoints", "e2e_avg_interactivity", mean_interactivity),
    ENDPOINTS("ttft", COL_ISSUE_TTFT),
    ENDPOINTS_ESTIMATES("ttft", COL_ISSUE_TTFT),
    ENDPOINTS("tpot", COL_TPOT_DONE),
    ENDPOINTS_ESTIMATES("tpot", COL_TPOT_DONE),
    ENDPOINTS("latency", COL_ISSUE_DONE),
    ENDPOINTS_ESTIMATES("latency", COL_ISSUE_DONE),
    ENDPOINTS("output_sequence_lengths", COL_OSL),
    ENDPOINTS("input_sequence_lengths", COL_ISL),

    /* ai-dynamo/aiperf, docs/metrics-reference.md: ITL per request = (latency - TTFT)/(OSL - 1), latency
     * to the last content response; inter chunk latency is the pooled gap; rates over first start to
     * last response of valid requests. numpy statistics, times in ms. */
    COUNT("aiperf", "request_count/avg", completed),
    COUNT("aiperf", "error_request_count/avg", failed),
    FIGURE("aiperf", "benchmark_duration/avg", answered),
    FIGURE("aiperf", "request_throughput/avg", request_rate_answered),
    FIGURE("aiperf", "output_token_throughput/avg", output_rate_answered),
    FIGURE("aiperf", "total_token_throughput/avg", total_rate_answered),
    AIPERF("time_to_first_token", COL_ISSUE_TTFT, MS),
    AIPERF("inter_token_latency", COL_TPOT_1, MS),
    AIPERF("inter_chunk_latency", COL_ITL, MS),
    AIPERF("request_latency", COL_ISSUE_E2E, MS),
    AIPERF("output_token_throughput_per_user", COL_RATE_ITL, 1),
    AIPERF("output_sequence_length", COL_OSL, 1),
    AIPERF("input_sequence_length", COL_ISL, 1),

    /* vllm-project/guidellm at 06cef291, schemas/request_stats.py, schemas/statistics.py: percentiles are
     * the first value whose cumulative share reaches p; latency ends with the stream. Its TPOT =
     * (last token - start)/N, first token included, and ITL = (last - first)/(N - 1) are weighted by
     * tokens: their means are given, not their quantiles. Its rates are distributions over time and
     * are left out. */
    COUNT("guidellm", "request_totals/successful", completed),
    COUNT("guidellm", "request_totals/errored", failed),
    GUIDELLM("request_latency", COL_ISSUE_DONE, S),
    GUIDELLM("time_to_first_token_ms", COL_ISSUE_TTFT, MS),
    GUIDELLM("prompt_token_count", COL_ISL, 1),
    GUIDELLM("output_token_count", COL_OSL, 1),
    FIGURE("guidellm", "time_per_output_token_ms/mean", weighted_tpot),
    FIGURE("guidellm", "inter_token_latency_ms/mean", weighted_itl),

    /* kubernetes-sigs/inference-perf at 010d12fb, reportgen/base.py: latency to the stream's end;
     * normalized TPOT divides it by all tokens; TTFT, TPOT and ITL only of answers of two tokens or
     * more, ITL with a gap of 0 between the tokens of one chunk; seconds. */
    COUNT("inference_perf", "load_summary/count", ended),
    COUNT("inference_perf", "successes/count", completed),
    COUNT("inference_perf", "failures/count", failed),
    FIGURE("inference_perf", "benchmark_time_seconds", spanned),
    FIGURE("inference_perf", "successes/throughput/input_tokens_per_sec", input_rate_spanned),
    FIGURE("inference_perf", "successes/throughput/output_tokens_per_sec", output_rate_spanned),
    FIGURE("inference_perf", "successes/throughput/total_tokens_per_sec", total_rate_spanned),
    FIGURE("inference_perf", "successes/throughput/requests_per_sec", request_rate_spanned),
    INFERENCE_PERF("successes/latency/request_latency", COL_ISSUE_DONE, COL_NONE, S),
    INFERENCE_PERF("successes/latency/normalized_time_per_output_token", COL_NTPOT, COL_ISSUE_DONE, S),
    INFERENCE_PERF("successes/latency/time_per_output_token", COL_TPOT_1, COL_NONE, S),
    INFERENCE_PERF("successes/latency/time_to_first_token", COL_ISSUE_TTFT, COL_TPOT_1, S),
    INFERENCE_PERF("successes/latency/inter_token_latency", COL_ITL_TOKENS, COL_NONE, S),
    INFERENCE_PERF("successes/output_len", COL_OSL, COL_NONE, 1),

    /* ray-project/llmperf, token_benchmark_ray.py and its OpenAI client: inter-token latency is the sum
     * of all gaps, TTFT among them, over the tokens; throughput of a request divides by its whole time;
     * pandas statistics (sample standard deviation); seconds. */
    COUNT("llmperf", "num_requests_started", ended),
    COUNT("llmperf", "number_errors", failed),
    FIGURE("llmperf", "error_rate", failed_share),
    COUNT("llmperf", "num_completed_requests", completed),
    FIGURE("llmperf", "num_completed_requests_per_min", request_rate_per_min),
    FIGURE("llmperf", "mean_output_throughput_token_per_s", output_rate),
    LLMPERF("inter_token_latency_s", COL_TIME_PER_TOKEN, COL_ISSUE_E2E, S),
    LLMPERF("ttft_s", COL_ISSUE_TTFT, COL_ISSUE_E2E, S),
    LLMPERF("end_to_end_latency_s", COL_ISSUE_DONE, COL_NONE, S),
    LLMPERF("request_output_throughput_token_per_s", COL_RATE_DONE, COL_ISSUE_DONE, 1),
    LLMPERF("number_input_tokens", COL_ISL, COL_NONE, 1),
    LLMPERF("number_output_tokens", COL_OSL, COL_NONE, 1),
    {0},
};
/* clang-format on */
