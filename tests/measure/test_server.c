/* The series log and the figures from a server's own counters: every expected value was computed by
 * hand; the quantiles as Prometheus' histogram_quantile interpolates. */
#include "harness/measure/server.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <string.h>

static int on_sample(void *ctx, const struct prom_sample *s, struct err *e) {
    struct series_log *l = ctx;
    return series_put_prom(l, (uint32_t)(l->nsources - 1), s, e);
}

/* A text as round `round` of the newest source, read at t seconds. */
static void scrape(struct series_log *l, uint32_t round, double t_s, const char *text) {
    struct prom p;
    struct err e = {0};
    prom_init(&p, "t", false, on_sample, l);
    int rc = prom_feed(&p, text, strlen(text), &e);
    if (!rc)
        rc = prom_finish(&p, &e);
    prom_release(&p);
    cr_assert(eq(int, rc, 0), "%s", e.text);
    struct series_scrape s = {(uint32_t)(l->nsources - 1), round, (int64_t)(t_s * 1e9), 1000,
                              (int64_t)strlen(text), true};
    cr_assert(eq(int, series_commit(l, &s, false, &e), 0));
}

static void begin(struct series_log *l) {
    uint32_t id;
    series_log_init(l);
    cr_assert(eq(int, series_source_add(l, "prometheus", "http://h/metrics", &id, NULL), 0));
}

static double at(const json_t *o, const char *a, const char *b) {
    o = json_object_get(o, a);
    if (b)
        o = json_object_get(o, b);
    return json_is_number(o) ? json_number_value(o) : (double)NAN;
}

Test(series, keeps_changes_only_and_says_when_a_series_is_gone) {
    struct series_log l;
    begin(&l);
    scrape(&l, 0, 0, "a{z=\"1\",b=\"x\\\"y\"} 5\nb 1\n");
    scrape(&l, 1, 1, "a{b=\"x\\\"y\",z=\"1\"} 5\nb 2\n"); /* the same series: labels are sorted */
    scrape(&l, 2, 2, "a{z=\"1\",b=\"x\\\"y\"} 6\n");
    scrape(&l, 3, 3, "a{z=\"1\",b=\"x\\\"y\"} 6\nb 2\n");
    cr_assert(eq(int, series_log_sort(&l, NULL), 0));
    cr_assert(eq(sz, l.nseries, 2));
    cr_assert(eq(sz, l.nsamples, 6));
    cr_assert(eq(str, (char *)l.series[0].labels, "{\"b\":\"x\\\"y\",\"z\":\"1\"}"));
    static const struct series_sample want[] = {{0, 0, 5}, {0, 2, 6}, {1, 0, 1}, {1, 1, 2}, {1, 2, 0}, {1, 3, 2}};
    for (int i = 0; i < 6; i++) {
        cr_assert(eq(u32, l.sample[i].series, want[i].series));
        cr_assert(eq(u32, l.sample[i].round, want[i].round));
        cr_assert(i == 4 ? isnan(l.sample[i].value) : l.sample[i].value == want[i].value);
    }
    struct str z = series_label(l.series[0].labels, "z"), none = series_label(l.series[0].labels, "y");
    cr_assert(z.n == 1 && *z.p == '1' && none.n == 0);
    series_log_release(&l);
}

Test(series, a_failed_scrape_changes_nothing) {
    struct series_log l;
    begin(&l);
    scrape(&l, 0, 0, "a 1\n");
    cr_assert(eq(int, series_put(&l, 0, "a", "{}", PROM_GAUGE, 7, NULL), 0));
    cr_assert(eq(int, series_commit(&l, &(struct series_scrape){.round = 1}, false, NULL), 0));
    scrape(&l, 2, 2, "a 1\n");
    cr_assert(eq(sz, l.nsamples, 1));
    cr_assert(eq(sz, l.nscrapes, 3));
    series_log_release(&l);
}

Test(series, a_label_that_is_not_utf8_is_made_so) {
    struct buf b;
    buf_init(&b, 100);
    json_text_put(&b, (struct str){"a\xff\xc3\xa9\xed\xa0\x80\n", 8});
    cr_assert(eq(str, b.p, "\"a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\\u000a\""));
    buf_release(&b);
}

/* Two engines; the second one restarts between rounds 2 and 3. Window 1.5 s..2.5 s, so that the span is
 * rounds 1..3. Generation tokens: engine 0: 100 110 130 160 170, engine 1: 50 60 80 5 15.
 * Whole run: 70 + (10+20+5+10) = 115. Span: (20+30) + (20+5) = 75, one restart. */
Test(server, sums_engines_and_survives_a_restart) {
    static const int e0[] = {100, 110, 130, 160, 170}, e1[] = {50, 60, 80, 5, 15}, kv[] = {1, 4, 9, 3, 2};
    struct series_log l;
    begin(&l);
    for (uint32_t i = 0; i < 5; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "# TYPE vllm:generation_tokens counter\n"
                 "vllm:generation_tokens_total{engine=\"0\"} %d\nvllm:generation_tokens_total{engine=\"1\"} %d\n"
                 "vllm:num_requests_running{engine=\"0\"} %u\nvllm:num_requests_running{engine=\"1\"} 1\n"
                 "vllm:kv_cache_usage_perc{engine=\"0\"} 0.%d\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.35\n"
                 "vllm:gpu_cache_usage_perc 0.99\n%s",
                 e0[i], e1[i], 2 * i, kv[i],
                 i >= 2 ? "vllm:request_success_total{finished_reason=\"length\",engine=\"0\"} 3\n" : "");
        scrape(&l, i, i, text);
    }
    json_t *r;
    struct server_compare c = {.totals = {.output_tokens = 112, .done = 3}};
    cr_assert(eq(int, server_report(&l, 1500000000, 2500000000, &c, &r, NULL), 0));
    const json_t *warnings = json_object_get(r, "warnings");
    cr_assert(eq(str, (char *)json_string_value(json_object_get(r, "engine")), "vllm"));
    cr_assert(eq(dbl, at(r, "span", "from_ns"), 1e9));
    cr_assert(eq(dbl, at(r, "span", "to_ns"), 3e9));
    cr_assert(eq(dbl, at(r, "generation_tokens", "run"), 115));
    cr_assert(eq(dbl, at(r, "generation_tokens", "window"), 75));
    cr_assert(eq(dbl, at(r, "resets", NULL), 1));
    /* running: 2+1, 4+1, 6+1 */
    cr_assert(eq(dbl, at(r, "running", "mean"), 5));
    cr_assert(eq(dbl, at(r, "running", "max"), 7));
    /* the newer name, the fuller engine: .4 .9 .35 */
    cr_assert(epsilon_eq(dbl, at(r, "kv_cache_usage", "mean"), 0.55, 1e-12));
    cr_assert(eq(dbl, at(r, "kv_cache_usage", "max"), 0.9));
    /* a labelled counter that appeared within the span began at 0 */
    cr_assert(eq(dbl, at(r, "requests_by_reason", "length"), 3));
    cr_assert(eq(dbl, at(json_object_get(r, "beside_client"), "generation_tokens", "client"), 112));
    /* 115 against 112 is 2.7 %: said; 3 requests against 3: not; the restart: said */
    cr_assert(eq(sz, json_array_size(warnings), 2));
    cr_assert_not_null(strstr(json_string_value(json_array_get(warnings, 1)), "115 and 112 (+2.7 %)"));
    json_decref(r);
    series_log_release(&l);
}

/* Increases in the span, two engines together: le 0.1: 4, le 0.5: 10, le 1: 20, +Inf: 20; sum 9 s.
 * p50: rank 10 is the end of (0.1, 0.5] = 0.5 s. p90: rank 18: 0.5 + 0.5*8/10 = 0.9 s.
 * p99: rank 19.8: 0.5 + 0.5*9.8/10 = 0.99 s. Mean 0.45 s. */
Test(server, interpolates_quantiles_and_states_the_bucket) {
    struct series_log l;
    begin(&l);
    static const int before[] = {7, 9, 9, 9}, add[2][4] = {{4, 6, 10, 10}, {0, 4, 10, 10}};
    static const char *const le[] = {"0.1", "0.5", "1.0", "+Inf"};
    for (uint32_t round = 0; round < 2; round++) {
        struct buf b;
        buf_init(&b, 4096);
        buf_puts(&b, "# TYPE vllm:time_to_first_token_seconds histogram\n");
        for (int engine = 0; engine < 2; engine++) {
            for (int i = 0; i < 4; i++)
                buf_printf(&b, "vllm:time_to_first_token_seconds_bucket{engine=\"%d\",le=\"%s\"} %d\n", engine,
                           le[i], before[i] + (round ? add[engine][i] : 0));
            buf_printf(&b, "vllm:time_to_first_token_seconds_count{engine=\"%d\"} %d\n", engine, 9 + 10 * (int)round);
            buf_printf(&b, "vllm:time_to_first_token_seconds_sum{engine=\"%d\"} %g\n", engine, 2 + 4.5 * round);
        }
        scrape(&l, round, round, b.p);
        buf_release(&b);
    }
    json_t *r;
    cr_assert(eq(int, server_report(&l, 0, 1000000000, NULL, &r, NULL), 0));
    const json_t *h = json_object_get(r, "ttft_ns");
    cr_assert(eq(dbl, at(h, "n", NULL), 20));
    cr_assert(epsilon_eq(dbl, at(h, "mean", NULL), 0.45e9, 1));
    cr_assert(epsilon_eq(dbl, at(h, "p50", "value"), 0.5e9, 1));
    cr_assert(epsilon_eq(dbl, at(h, "p90", "value"), 0.9e9, 1));
    cr_assert(epsilon_eq(dbl, at(h, "p99", "value"), 0.99e9, 1));
    cr_assert(epsilon_eq(dbl, at(h, "p50", "bucket_from"), 0.1e9, 1));
    cr_assert(epsilon_eq(dbl, at(h, "p50", "bucket_to"), 0.5e9, 1));
    json_decref(r);
    series_log_release(&l);
}

Test(server, warns_of_a_warm_cache_and_of_preemptions) {
    struct series_log l;
    begin(&l);
    scrape(&l, 0, 0, "vllm:prefix_cache_hits_total 0\nvllm:prefix_cache_queries_total 0\nvllm:num_preemptions_total 1\n");
    scrape(&l, 1, 1, "vllm:prefix_cache_hits_total 30\nvllm:prefix_cache_queries_total 120\nvllm:num_preemptions_total 3\n");
    json_t *r;
    struct server_compare c = {.prefixes = SERVER_PREFIXES_NONE};
    cr_assert(eq(int, server_report(&l, 0, 1000000000, &c, &r, NULL), 0));
    const json_t *warnings = json_object_get(r, "warnings");
    cr_assert(eq(dbl, at(r, "prefix_cache_hit_share", NULL), 0.25));
    cr_assert(eq(sz, json_array_size(warnings), 2));
    cr_assert_not_null(strstr(json_string_value(json_array_get(warnings, 0)), "preempted 2 requests"));
    cr_assert_not_null(strstr(json_string_value(json_array_get(warnings, 1)), "25.0 %"));
    json_decref(r);
    c.prefixes = SERVER_PREFIXES_SHARED;
    cr_assert(eq(int, server_report(&l, 0, 1000000000, &c, &r, NULL), 0));
    cr_assert(eq(sz, json_array_size(json_object_get(r, "warnings")), 1));
    json_decref(r);
    series_log_release(&l);
}

Test(server, knows_each_engine_by_its_names) {
    static const struct {
        const char *engine, *tokens_name, *running_name;
        double tokens, running;
    } rows[] = {
        {"sglang", "sglang:generation_tokens_total", "sglang:num_running_reqs", 7, 12},
        {"llama.cpp", "llamacpp:tokens_predicted_total", "llamacpp:requests_processing", 7, 12},
        {"tgi", "tgi_request_generated_tokens_sum", "tgi_batch_current_size", 7, 12},
        {"jetstream", "jetstream_request_output_length_sum", "num_requests_running", 7, 12},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct series_log l;
        begin(&l);
        for (int k = 0; k < 2; k++) {
            char text[200];
            snprintf(text, sizeof text, "%s %d\n%s %d\n", rows[i].tokens_name, 5 + 7 * k,
                     rows[i].running_name, 5 + 7 * k);
            scrape(&l, (uint32_t)k, k, text);
        }
        json_t *r;
        cr_assert(eq(int, server_report(&l, 0, 1000000000, NULL, &r, NULL), 0));
        cr_assert(eq(str, (char *)json_string_value(json_object_get(r, "engine")), (char *)rows[i].engine));
        cr_assert(eq(dbl, at(r, "generation_tokens", "run"), rows[i].tokens));
        cr_assert(eq(dbl, at(r, "running", "max"), rows[i].running));
        json_decref(r);
        series_log_release(&l);
    }
}
