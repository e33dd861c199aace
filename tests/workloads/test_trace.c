/* Trace readers: fixtures row by row, malformed input with its place, the public excerpts' counted
 * facts, bounded memory, and plans from traces. */
#include "workloads/plan.h"
#include "workloads/trace.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA "tests/data/workloads/"

struct want {
    int64_t arrival_ns;
    uint32_t isl, osl, line, nblocks;
};

static void expect_rows(const char *path, enum trace_format f, const struct trace_options *o,
                        const struct want *want, size_t n, uint64_t dropped) {
    struct trace *t;
    struct trace_row r;
    struct err e = {0};
    bool end;
    cr_assert(eq(int, trace_open(path, f, o, &t, &e), 0), "%s", e.text);
    for (size_t i = 0; i < n; i++) {
        cr_assert(eq(int, trace_next(t, &r, &end, &e), 0), "%s", e.text);
        cr_assert(eq(int, end, 0));
        cr_assert(eq(i64, r.arrival_ns, want[i].arrival_ns), "row %zu", i);
        cr_assert(eq(u32, r.isl, want[i].isl), "row %zu", i);
        cr_assert(eq(u32, r.osl, want[i].osl), "row %zu", i);
        cr_assert(eq(u64, r.line, want[i].line), "row %zu", i);
        cr_assert(eq(u32, r.nblocks, want[i].nblocks), "row %zu", i);
    }
    for (int i = 0; i < 2; i++) { /* the end stays the end */
        cr_assert(eq(int, trace_next(t, &r, &end, &e), 0), "%s", e.text);
        cr_assert(eq(int, end, 1));
    }
    cr_assert(eq(u64, trace_dropped(t), dropped));
    trace_close(t);
}

Test(workloads_trace, mooncake_fixture) {
    static const struct want want[] = {
        {0, 1000, 50, 1, 2},        {0, 1536, 7, 2, 3},       {1500000000, 2050, 120, 3, 5},
        {2750000000, 512, 1, 5, 1}, {4000250000, 1, 9, 6, 1},
    };
    struct trace_options o = {0};
    expect_rows(DATA "mooncake.jsonl", TRACE_MOONCAKE, &o, want, 5, 0);
}

/* 2023-11-16 18:17:03 UTC is 1700158623 s after 1970; 2024-05-12 00:00 UTC is 1715472000. */
Test(workloads_trace, azure_fixtures) {
    static const struct want y2023[] = {
        {1700158623979960000, 4808, 10, 2, 0},
        {1700158624031960000, 3180, 8, 3, 0},
        {1700158624031960000, 110, 27, 4, 0},
        {1700179200000000100, 7433, 14, 5, 0},
    };
    static const struct want y2024[] = {
        {1715472000000000000, 100, 20, 2, 0},
        {1715472000500000000, 101, 21, 3, 0},
        {1715472001000000000, 102, 22, 4, 0},
        {1715472002000000000, 103, 23, 5, 0},
    };
    struct trace_options o = {0};
    expect_rows(DATA "azure_2023.csv", TRACE_AZURE, &o, y2023, 4, 0);
    expect_rows(DATA "azure_2024.csv", TRACE_AZURE, &o, y2024, 4, 0);
}

Test(workloads_trace, burstgpt_keeps_or_drops_failures_and_spreads_equal_seconds) {
    struct trace_options o = {.seed = 5};
    static const struct want y8[] = {{19440110000000000, 906, 446, 2, 0},
                                     {19440161500000000, 36, 29, 3, 0},
                                     {19440192000000000, 1779, 123, 4, 0}};
    expect_rows(DATA "burstgpt_8.csv", TRACE_BURSTGPT, &o, y8, 3, 0);
    for (int keep = 0; keep < 2; keep++) {
        struct trace *t;
        struct trace_row r[8];
        struct err e = {0};
        bool end = false;
        size_t n = 0;
        o.keep_failures = keep;
        cr_assert(eq(int, trace_open(DATA "burstgpt_6.csv", TRACE_BURSTGPT, &o, &t, &e), 0), "%s",
                  e.text);
        while (trace_next(t, &r[n], &end, &e) == 0 && !end)
            n++;
        cr_assert(eq(int, end, 1), "%s", e.text);
        cr_assert(eq(sz, n, keep ? 6 : 4));
        cr_assert(eq(u64, trace_dropped(t), keep ? 0 : 2));
        for (size_t i = 0; i < n; i++) {
            int64_t second = i < (keep ? 4 : 3) ? 5 : i == (keep ? 4 : 3) ? 6 : 45;
            cr_assert(eq(i64, r[i].arrival_ns / 1000000000, second));
            if (i)
                cr_assert(le(i64, r[i - 1].arrival_ns, r[i].arrival_ns), "order is kept");
        }
        cr_assert(gt(i64, r[0].arrival_ns, 5000000000), "three in one second are spread");
        cr_assert(ne(i64, r[0].arrival_ns, r[1].arrival_ns));
        cr_assert(eq(i64, r[n - 1 - keep].arrival_ns, 6000000000), "a lone one stays");
        cr_assert(eq(u32, r[0].isl, 472));
        if (keep) {
            cr_assert(eq(int, r[1].failed, 1));
            cr_assert(eq(u32, r[1].isl, 100));
            cr_assert(eq(u32, r[1].osl, 1));
            cr_assert(eq(u32, r[5].isl, 1));
        }
        trace_close(t);
    }
}

Test(workloads_trace, sharegpt_fixture) {
    struct trace *t;
    struct trace_row r;
    struct trace_options o = {0};
    struct err e = {0};
    bool end;
    cr_assert(eq(int, trace_open(DATA "sharegpt.json", TRACE_SHAREGPT, &o, &t, &e), 0), "%s",
              e.text);
    cr_assert(eq(int, trace_next(t, &r, &end, &e), 0), "%s", e.text);
    cr_assert(eq(str, (char *)(uintptr_t)r.text, "What is an assay?"));
    cr_assert(eq(u32, r.isl, 5));  /* 17 bytes */
    cr_assert(eq(u32, r.osl, 11)); /* 43 bytes */
    cr_assert(eq(u64, r.line, 2));
    cr_assert(eq(i64, r.arrival_ns, -1));
    cr_assert(eq(int, trace_next(t, &r, &end, &e), 0), "%s", e.text);
    cr_assert(eq(str, (char *)(uintptr_t)r.text, "Größe \u2260 Güte \\"));
    cr_assert(eq(u32, r.osl, 1));
    cr_assert(eq(u64, r.line, 8));
    cr_assert(eq(int, trace_next(t, &r, &end, &e), 0), "%s", e.text);
    cr_assert(eq(int, end, 1));
    cr_assert(eq(u64, trace_dropped(t), 2));
    trace_close(t);
}

#define MC "{\"timestamp\":0,\"input_length\":600,\"output_length\":5,\"hash_ids\":[1,2]"
#define AZ "TIMESTAMP,ContextTokens,GeneratedTokens\n"
#define BU "Timestamp,Request tokens,Response tokens\n"
#define SG "[{\"conversations\":[{\"value\":\"a\"},{\"value\":\"b\"}]}"

/* text, the message's beginning, what it must say; every one is refused by the first bad row */
static const struct {
    enum trace_format format;
    const char *text, *place, *says;
} malformed[] = {
    {TRACE_MOONCAKE, MC "}\n" MC "\n", "t:2:69:", "',' or '}', found the line's end"},
    {TRACE_MOONCAKE, MC "}\n{\"timest", "t:2:", "closing '\"'"},
    {TRACE_MOONCAKE, "[]", "t:1:1:", "expected '{', found '['"},
    {TRACE_MOONCAKE, MC "} x", "t:1:", "the line's end, found 'x'"},
    {TRACE_MOONCAKE, MC "}\n\n\n{}", "t:4:1:", "member \"timestamp\""},
    {TRACE_MOONCAKE, "{\"timestamp\":1,\"input_length\":5}", "t:1:1:", "\"output_length\""},
    {TRACE_MOONCAKE, "{\"timestamp\":-1", "t:1:14:", "a time in ms"},
    {TRACE_MOONCAKE, "{\"timestamp\":\"0\"", "t:1:14:", "a time in ms"},
    {TRACE_MOONCAKE, "{\"timestamp\":1e3", "t:1:15:", "',' or '}', found 'e'"},
    {TRACE_MOONCAKE, "{\"timestamp\":99999999999999999999", "t:1:14:", "a time in ms"},
    {TRACE_MOONCAKE, "{\"input_length\":0", "t:1:17:", "at least 1"},
    {TRACE_MOONCAKE, "{\"input_length\":5.5", "t:1:17:", "input_length from 1"},
    {TRACE_MOONCAKE, "{\"output_length\":16777217", "t:1:18:", "output_length from 1"},
    {TRACE_MOONCAKE, "{\"timestamp\":1,\"timestamp\":2", "t:1:16:", "each member once"},
    {TRACE_MOONCAKE, "{\"hash_ids\":[1,]", "t:1:16:", "a block id"},
    {TRACE_MOONCAKE, "{\"hash_ids\":[-1]", "t:1:14:", "a block id"},
    {TRACE_MOONCAKE, "{\"hash_ids\":[18446744073709551616]", "t:1:14:", "a block id"},
    {TRACE_MOONCAKE, "{\"hash_ids\":7", "t:1:13:", "an array"},
    {TRACE_MOONCAKE, "{\"x\":[1-2]", "t:1:8:", "',' or ']'"},
    {TRACE_MOONCAKE, "{\"x\":tru", "t:1:6:", "a value"},
    {TRACE_MOONCAKE, "{\"x\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
     "t:1:", "64 nested"},
    {TRACE_MOONCAKE, "{\"timestamp\":0,\"input_length\":600,\"output_length\":5,\"hash_ids\":[1]}",
     "t:1:1:", "expected 2 hash_ids"},
    {TRACE_MOONCAKE, "\xef\xbb\xbf{}", "t:1:1:", "byte 0xef"},
    {TRACE_AZURE, "", "t:1:1:", "a header line"},
    {TRACE_AZURE, "TIMESTAMP,Tokens\n", "t:1:1:", "a column 'ContextTokens'"},
    {TRACE_AZURE, "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n", "t:1:11:", "multimodal"},
    {TRACE_AZURE, AZ "2023-11-16 18:17:03,5\n", "t:2:22:", "GeneratedTokens from 1"},
    {TRACE_AZURE, AZ "2023-11-16 18:17:03,x,5\n", "t:2:21:", "found 'x'"},
    {TRACE_AZURE, AZ "2023-11-16 18:17:03,5,-5\n", "t:2:23:", "found '-5'"},
    {TRACE_AZURE, AZ "2023-11-16 18:17:03,5,\n", "t:2:23:", "found ''"},
    {TRACE_AZURE, AZ "2023-02-29 18:17:03,5,5\n", "t:2:1:", "a time such as"},
    {TRACE_AZURE, AZ "2023-11-16 24:17:03,5,5\n", "t:2:1:", "a time such as"},
    {TRACE_AZURE, AZ "2023-11-16 18:17:03.,5,5\n", "t:2:1:", "a time such as"},
    {TRACE_AZURE, AZ "2023-11-16 18:17:03+1,5,5\n", "t:2:1:", "a time such as"},
    {TRACE_AZURE, AZ "\"2023,5,5\n", "t:2:1:", "closing '\"'"},
    {TRACE_AZURE, AZ "\"2023\"x,5,5\n", "t:2:7:", "',' after"},
    {TRACE_AZURE,
     AZ "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33",
     "t:2:", "at most 32 columns"},
    {TRACE_BURSTGPT, "Timestamp;Request tokens\n", "t:1:1:", "a column 'Timestamp'"},
    {TRACE_BURSTGPT, BU "five,5,5\n", "t:2:1:", "a Timestamp"},
    {TRACE_BURSTGPT, BU "5\n", "t:2:2:", "the line's end"},
    {TRACE_BURSTGPT, BU "5,0,5\n", "t:2:3:", "Request tokens from 1"},
    {TRACE_BURSTGPT, BU "5,5,5.0\n", "t:2:5:", "Response tokens"},
    {TRACE_BURSTGPT, BU "1,1,1\n9223372037,1,1\n", "t:3:1:", "a Timestamp"},
    {TRACE_SHAREGPT, "", "t:1:1:", "'[', found the file's end"},
    {TRACE_SHAREGPT, "{}", "t:1:1:", "'[', found '{'"},
    {TRACE_SHAREGPT, "[", "t:1:2:", "found the file's end"},
    {TRACE_SHAREGPT, "[5]", "t:1:2:", "found '5'"},
    {TRACE_SHAREGPT, "[\n\n  {\"id\":\n", "t:3:3:", "the file's end cuts off"},
    {TRACE_SHAREGPT, SG, "t:1:", "',' or ']', found the file's end"},
    {TRACE_SHAREGPT, SG ",]", "t:1:", "'{', found ']'"},
    {TRACE_SHAREGPT, SG "] x", "t:1:", "the file's end, found 'x'"},
    {TRACE_SHAREGPT, "[{\"id\" 5}]", "t:1:8:", "':' expected"},
    {TRACE_SHAREGPT, "[\n{\"id\": 1,\n \"id\": 2}]", "t:3:", "duplicate"},
    {TRACE_SHAREGPT, "[{\"conversations\":5}]", "t:1:1:", "/0/conversations: expected an array"},
    {TRACE_SHAREGPT, "[{\"conversations\":[{\"value\":\"a\"},{\"value\":5}]}]",
     "t:1:1:", "/0/conversations/1/value"},
    {TRACE_SHAREGPT, "[{\"conversations\":[\"a\",\"b\"]}]", "t:1:1:", "/0/conversations/0/value"},
    {TRACE_SHAREGPT, "[{\"id\":\"\xff\"}]", "t:1:", "decode byte 0xff"},
};

Test(workloads_trace, malformed_rows_name_line_and_column) {
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        struct trace *t = NULL;
        struct trace_options o = {0};
        struct err e = {0};
        bool end = false;
        int rc = trace_open_memory(malformed[i].text, strlen(malformed[i].text), "t",
                                   malformed[i].format, &o, &t, &e);
        while (rc == 0 && !end) {
            struct trace_row r;
            rc = trace_next(t, &r, &end, &e);
        }
        trace_close(t);
        cr_assert(eq(int, rc, ASSAY_EINPUT), "accepted: %s", malformed[i].text);
        cr_assert(eq(int, strncmp(e.text, malformed[i].place, strlen(malformed[i].place)), 0),
                  "%s\nwanted %s for %s", e.text, malformed[i].place, malformed[i].text);
        cr_assert(ne(ptr, strstr(e.text, malformed[i].says), NULL), "%s\nwanted '%s'", e.text,
                  malformed[i].says);
    }
}

/* Every prefix of a good file either ends cleanly or is refused; none crashes or loops. */
Test(workloads_trace, every_truncation_is_an_error_or_a_shorter_trace) {
    static const struct {
        enum trace_format format;
        const char *path;
        bool may_be_shorter; /* a cut at a line's end cannot be seen */
    } files[] = {
        {TRACE_MOONCAKE, DATA "mooncake.jsonl", true},
        {TRACE_AZURE, DATA "azure_2023.csv", true},
        {TRACE_BURSTGPT, DATA "burstgpt_6.csv", true},
        {TRACE_SHAREGPT, DATA "sharegpt.json", false},
    };
    for (size_t i = 0; i < 4; i++) {
        static char text[4096];
        FILE *f = fopen(files[i].path, "rb");
        size_t n = fread(text, 1, sizeof text, f);
        fclose(f);
        cr_assert(lt(sz, n, sizeof text));
        while (n && text[n - 1] == '\n')
            n--;
        size_t errors = 0;
        for (size_t k = 0; k < n; k++) {
            struct trace *t = NULL;
            struct trace_options o = {0};
            struct err e = {0};
            bool end = false;
            int rc = trace_open_memory(text, k, "t", files[i].format, &o, &t, &e);
            while (rc == 0 && !end) {
                struct trace_row r;
                rc = trace_next(t, &r, &end, &e);
            }
            trace_close(t);
            errors += rc != 0;
            if (rc)
                cr_assert(eq(int, strncmp(e.text, "t:", 2), 0), "%s", e.text);
        }
        if (!files[i].may_be_shorter)
            cr_assert(eq(sz, errors, n));
        cr_assert(gt(sz, errors, n / 4));
    }
}

/* Counted facts of the public excerpts (Mooncake FAST25-release, AzurePublicDataset; heads of the
 * files), by a program that shares nothing with this one. */
Test(workloads_trace, public_excerpts_have_the_counted_facts, .timeout = 60) {
    static const struct {
        const char *path;
        enum trace_format format;
        uint64_t rows;
        int64_t duration_ns;
        uint64_t in, out;
        struct length_stats isl, osl; /* mean unused */
        uint64_t references, distinct;
    } facts[] = {
        {"mooncake/conversation_head2000.jsonl",
         TRACE_MOONCAKE,
         2000,
         669000000000,
         27441774,
         704602,
         {0, 891, 7963, 29448, 98812, 123192},
         {0, 1, 363, 602, 1059, 2000},
         54559,
         38788},
        {"mooncake/synthetic_head600.jsonl",
         TRACE_MOONCAKE,
         600,
         165837000000,
         7414999,
         118142,
         {0, 13, 4399, 36208, 56635, 134773},
         {0, 1, 168, 444, 776, 811},
         14873,
         13229},
        {"azure/AzureLLMInferenceTrace_conv_head4000.csv",
         TRACE_AZURE,
         4000,
         815079228000,
         4731122,
         1014932,
         {0, 2, 1047, 2468, 4114, 7930},
         {0, 10, 204, 430, 625, 1000},
         0,
         0},
        {"azure/AzureLLMInferenceTrace_code_head4000.csv",
         TRACE_AZURE,
         4000,
         1365357816000,
         8171220,
         109683,
         {0, 6, 1445, 5108, 7436, 7437},
         {0, 6, 13, 54, 246, 1899},
         0,
         0},
        {"burstgpt/burstgpt_rows_transcribed.csv",
         TRACE_BURSTGPT,
         4,
         144000000000,
         3656,
         776,
         {0, 36, 906, 1779, 1779, 1779},
         {0, 29, 123, 446, 446, 446},
         0,
         0},
        {"burstgpt/burstgpt1_rows_transcribed.csv",
         TRACE_BURSTGPT,
         3,
         113000000000,
         1976,
         524,
         {0, 417, 472, 1087, 1087, 1087},
         {0, 18, 230, 276, 276, 276},
         0,
         0},
    };
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        char path[256];
        struct trace_stats s;
        struct trace_options o = {0};
        struct err e = {0};
        snprintf(path, sizeof path, "../shared/data/traces/%s", facts[i].path);
        if (access(path, R_OK))
            cr_skip_test("%s is not here", path);
        cr_assert(eq(int, trace_summary(path, facts[i].format, &o, &s, &e), 0), "%s", e.text);
        cr_assert(eq(u64, s.rows, facts[i].rows));
        cr_assert(eq(i64, s.duration_ns, facts[i].duration_ns));
        cr_assert(eq(u64, s.input_tokens, facts[i].in));
        cr_assert(eq(u64, s.output_tokens, facts[i].out));
        cr_assert(eq(u64, s.out_of_order, 0));
        cr_assert(eq(int, s.rate_plausible, 1));
        const struct length_stats *got[] = {&s.isl, &s.osl},
                                  *want[] = {&facts[i].isl, &facts[i].osl};
        for (int k = 0; k < 2; k++) {
            cr_assert(eq(u32, got[k]->min, want[k]->min));
            cr_assert(eq(u32, got[k]->p50, want[k]->p50));
            cr_assert(eq(u32, got[k]->p90, want[k]->p90));
            cr_assert(eq(u32, got[k]->p99, want[k]->p99));
            cr_assert(eq(u32, got[k]->max, want[k]->max));
        }
        cr_assert(eq(u64, s.block_references, facts[i].references));
        cr_assert(eq(u64, s.distinct_blocks, facts[i].distinct));
        if (s.block_references)
            cr_assert(lt(dbl,
                         fabs(s.ideal_hit_share -
                              (1 - (double)facts[i].distinct / (double)facts[i].references)),
                         1e-12));
        cr_assert(eq(int, trace_check_rate(path, facts[i].format, &o, &e), 0), "%s", e.text);
    }
}

static void write_file(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    cr_assert(ne(ptr, f, NULL));
    fputs(text, f);
    cr_assert(eq(int, fclose(f), 0));
}

Test(workloads_trace, a_wrong_time_unit_is_refused_unless_forced) {
    char path[] = "/tmp/assay-trace-XXXXXX";
    struct trace_options o = {0}, forced = {.force = true};
    struct trace_stats s;
    struct err e = {0};
    int fd = mkstemp(path);
    close(fd);
    /* seconds taken for milliseconds read 1000 times too fast: 1001 rows in 5 ms */
    FILE *f = fopen(path, "w");
    for (int i = 0; i <= 1000; i++)
        fprintf(f, "{\"timestamp\":%g,\"input_length\":5,\"output_length\":5}\n", i / 200.0);
    fclose(f);
    cr_assert(eq(int, trace_check_rate(path, TRACE_MOONCAKE, &o, &e), ASSAY_EINPUT));
    cr_assert(ne(ptr, strstr(e.text, "2e+05 a second"), NULL), "%s", e.text);
    cr_assert(eq(int, trace_check_rate(path, TRACE_MOONCAKE, &forced, &e), 0));
    cr_assert(eq(int, trace_summary(path, TRACE_MOONCAKE, &o, &s, &e), 0));
    cr_assert(eq(int, s.rate_plausible, 0));
    /* nanoseconds taken for milliseconds: one in 11 days */
    write_file(path, "{\"timestamp\":0,\"input_length\":5,\"output_length\":5}\n"
                     "{\"timestamp\":1000000000,\"input_length\":5,\"output_length\":5}\n");
    cr_assert(eq(int, trace_check_rate(path, TRACE_MOONCAKE, &o, &e), ASSAY_EINPUT));
    cr_assert(ne(ptr, strstr(e.text, "1e-06 a second"), NULL), "%s", e.text);
    write_file(path, "{\"timestamp\":0,\"input_length\":5,\"output_length\":5}\n");
    cr_assert(eq(int, trace_check_rate(path, TRACE_MOONCAKE, &o, &e), 0), "one row has no rate");
    unlink(path);
}

static struct workload *load(const char *const *overrides, int n) {
    struct workload *w;
    struct err e = {0};
    cr_assert(eq(int, workload_load(DATA "replay.json", overrides, n, &w, &e), 0), "%s", e.text);
    return w;
}

static size_t collect(const struct workload *w, uint32_t shard, uint32_t shards,
                      struct request *out) {
    struct plan *p;
    struct err e = {0};
    size_t n = 0;
    cr_assert(eq(int, plan_open(w, shard, shards, &p, &e), 0), "%s", e.text);
    for (bool end = false;; n++) {
        cr_assert(eq(int, plan_next(p, &out[n], &end, &e), 0), "%s", e.text);
        if (end)
            break;
        cr_assert(eq(u32, out[n].block_tokens, 512));
        cr_assert(eq(u64, out[n].blocks[out[n].nblocks - 1] > 7, 0));
        out[n].blocks = NULL;
        out[n].text = NULL;
    }
    plan_close(p);
    return n;
}

Test(workloads_trace, a_plan_takes_the_trace_line_by_line_in_any_sharding) {
    static const int64_t arrivals[] = {0, 0, 1500000000, 2750000000, 4000250000};
    struct request one[8], many[8];
    struct workload *w = load(NULL, 0);
    cr_assert(eq(int, (int)w->pattern.kind, PATTERN_TRACE));
    cr_assert(eq(dbl, w->pattern.value, 2));
    cr_assert(eq(sz, collect(w, 0, 1, one), 5));
    for (size_t i = 0; i < 5; i++) {
        cr_assert(eq(u64, one[i].id, i));
        cr_assert(eq(i64, one[i].arrival_ns, arrivals[i]));
        cr_assert(eq(u64, one[i].session, REQUEST_NO_SESSION));
    }
    for (uint32_t shards = 2; shards <= 8; shards++)
        for (uint32_t s = 0; s < shards; s++) {
            size_t n = collect(w, s, shards, many);
            for (size_t i = 0; i < n; i++)
                cr_assert(eq(int, memcmp(&many[i], &one[s + i * shards], sizeof *one), 0));
            cr_assert(eq(sz, n, s >= 5 ? 0 : (5 - s + shards - 1) / shards));
        }
    workload_free(w);
    static const char *const o[] = {"requests=2", "warmup=1"};
    w = load(o, 2);
    cr_assert(eq(sz, collect(w, 0, 1, one), 3));
    workload_free(w);
}

Test(workloads_trace, times_that_go_back_are_refused_when_they_decide) {
    char path[] = "/tmp/assay-trace-XXXXXX", o[64];
    struct plan *p;
    struct request r;
    struct err e = {0};
    bool end;
    close(mkstemp(path));
    write_file(path, "{\"timestamp\":9,\"input_length\":5,\"output_length\":5}\n"
                     "{\"timestamp\":8,\"input_length\":5,\"output_length\":5}\n");
    snprintf(o, sizeof o, "trace.path=%s", path);
    const char *const both[] = {o, "pattern=concurrency:1"};
    for (int n = 1; n <= 2; n++) {
        struct workload *w = load(both, n);
        cr_assert(eq(int, plan_open(w, 0, 1, &p, &e), 0), "%s", e.text);
        cr_assert(eq(int, plan_next(p, &r, &end, &e), 0), "%s", e.text);
        int rc = plan_next(p, &r, &end, &e);
        cr_assert(eq(int, rc, n == 1 ? ASSAY_EINPUT : 0));
        if (rc)
            cr_assert(ne(ptr, strstr(e.text, ":2:1: expected a time at or after"), NULL), "%s",
                      e.text);
        plan_close(p);
        workload_free(w);
    }
    unlink(path);
}

static size_t resident_bytes(void) {
    long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    cr_assert(eq(int, fscanf(f, "%ld %ld", &size, &resident), 2));
    fclose(f);
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* A hundred megabytes of trace must not become a hundred megabytes of memory. */
Test(workloads_trace, memory_does_not_grow_with_the_file, .timeout = 120) {
#if defined(__SANITIZE_ADDRESS__)
    cr_skip_test("a sanitizer keeps freed memory");
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
    cr_skip_test("a sanitizer keeps freed memory");
#endif
#endif
    static const struct {
        enum trace_format format;
        const char *head, *row, *tail;
        size_t bytes;
    } files[] = {
        {TRACE_MOONCAKE, "",
         "{\"timestamp\": 0, \"input_length\": 1600, \"output_length\": 5, \"hash_ids\": "
         "[1000001, 1000002, 1000003, 1000004]}\n",
         "", 100 << 20},
        {TRACE_SHAREGPT, "[",
         "{\"id\":\"x\",\"conversations\":[{\"from\":\"human\",\"value\":\"0123456789 "
         "0123456789\"},{\"from\":\"gpt\",\"value\":\"0123456789\"}]},\n",
         "{\"conversations\":[]}]", 32 << 20},
        {TRACE_BURSTGPT, "Timestamp,Request tokens,Response tokens\n", "5.5,1,1\n6.5,2,2\n", "",
         16 << 20},
    };
    for (size_t i = 0; i < 3; i++) {
        char path[] = "/tmp/assay-trace-XXXXXX";
        size_t row = strlen(files[i].row), n = files[i].bytes / row;
        close(mkstemp(path));
        FILE *f = fopen(path, "w");
        fputs(files[i].head, f);
        for (size_t k = 0; k < n; k++)
            fwrite(files[i].row, 1, row, f);
        fputs(files[i].tail, f);
        cr_assert(eq(int, fclose(f), 0));

        struct trace *t;
        struct trace_row r;
        struct trace_options o = {0};
        struct err e = {0};
        bool end = false;
        size_t before = resident_bytes(), rows = 0, most = 0;
        int rc = trace_open(path, files[i].format, &o, &t, &e);
        while (rc == 0 && (rc = trace_next(t, &r, &end, &e)) == 0 && !end)
            if (++rows % 65536 == 0 && resident_bytes() > most)
                most = resident_bytes();
        unlink(path);
        cr_assert(eq(int, rc, 0), "%s", e.text);
        cr_assert(eq(sz, rows, i == 2 ? 2 * n : n));
        cr_assert(lt(sz, most, before + (8 << 20)), "grew by %zu bytes", most - before);
        trace_close(t);
    }
}

Test(workloads_trace, a_row_beyond_the_limit_is_refused) {
    size_t n = (size_t)TRACE_ROW_MAX_BYTES + 100;
    char *text = malloc(n);
    struct trace *t;
    struct trace_row r;
    struct trace_options o = {0};
    struct err e = {0};
    bool end;
    memset(text, ' ', n);
    cr_assert(eq(int, trace_open_memory(text, n, "t", TRACE_MOONCAKE, &o, &t, &e), 0));
    cr_assert(eq(int, trace_next(t, &r, &end, &e), ASSAY_EINPUT));
    cr_assert(ne(ptr, strstr(e.text, "at most 67108864 bytes"), NULL), "%s", e.text);
    trace_close(t);
    memcpy(text, "[{\"a\":\"", 7);
    cr_assert(eq(int, trace_open_memory(text, n, "t", TRACE_SHAREGPT, &o, &t, &e), 0));
    cr_assert(eq(int, trace_next(t, &r, &end, &e), ASSAY_EINPUT));
    trace_close(t);
    free(text);
}

Test(workloads_trace, files_that_cannot_be_opened) {
    struct trace *t;
    struct trace_options o = {0};
    struct err e = {0};
    cr_assert(eq(int, trace_open("/no/such", TRACE_AZURE, &o, &t, &e), ASSAY_EINPUT));
    cr_assert(ne(ptr, strstr(e.text, "cannot open '/no/such'"), NULL), "%s", e.text);
    cr_assert(eq(int, trace_open("/tmp", TRACE_AZURE, &o, &t, &e), ASSAY_EINPUT));
    cr_assert(eq(int, trace_open("/tmp", TRACE_NONE, &o, &t, &e), ASSAY_EUSAGE));
}
