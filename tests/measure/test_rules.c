/* Rule packs: what ships loads and judges sensibly, each kind at its edge, malformed packs say where. */
#include "harness/core/embed.h"
#include "harness/core/json.h"
#include "harness/measure/rules.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

static struct rule_pack *parse(const char *rules) {
    char text[4096];
    snprintf(text, sizeof text, "{\"name\":\"t\",\"version\":\"1\",\"rules\":[%s]}", rules);
    json_t *j;
    struct rule_pack *p;
    struct err e = {0};
    cr_assert(eq(int, json_parse(text, strlen(text), "t.json", &j, &e), 0), "%s", e.text);
    int rc = rules_from_json(j, "t.json", &p, &e);
    cr_assert(eq(int, rc, 0), "%s", e.text);
    json_decref(j);
    return p;
}

static const struct rules_facts calm = {.real_clock = true, .seed = 0, .max_concurrency = 4};

static struct metrics good_run(void) {
    struct metrics m = {.issued = 1000,
                        .completed = 1000,
                        .duration_ns = INT64_C(612400000000),
                        .token_events = 100000};
    m.m[m.n++] = (struct metric){"e2e_ns", "p50", "ns", "lower", 3e9, 1000, 0, 0, 0};
    m.m[m.n++] = (struct metric){"lateness_ns", "max", "ns", "lower", 31e6, 1000, 0, 0, 0};
    m.m[m.n++] = (struct metric){"lateness_ns", "p99", "ns", "lower", 29e6, 1000, 0, 0, 0};
    m.m[m.n++] = (struct metric){"ttft_ns", "max", "ns", "lower", 900e6, 1000, 0, 0, 0};
    m.m[m.n++] = (struct metric){"ttft_ns", "p99", "ns", "lower", 449.6e6, 1000, 0, 0, 0};
    m.m[m.n++] = (struct metric){"tpot_ns", "max", "ns", "lower", 50e6, 1000, 0, 0, 0};
    m.m[m.n++] = (struct metric){"tpot_ns", "p99", "ns", "lower", 39e6, 1000, 0, 0, 0};
    m.m[m.n++] = (struct metric){"output_tokens_per_s", "value", "tok/s", "higher", 12345.6, 1000, 0, 0, 0};
    return m;
}

static void expect(const char *rules, const struct metrics *m, const struct rules_facts *f, bool ok,
                   const char *want, const char *got, const char *code) {
    struct rule_pack *p = parse(rules);
    struct verdict v[RULES_MAX];
    cr_assert(eq(int, rules_evaluate(p, m, f, v), 1));
    cr_assert(eq(int, v[0].ok, ok), "%s: %s / %s", rules, v[0].want, v[0].got);
    cr_assert(eq(str, v[0].want, (char *)want), "%s", rules);
    cr_assert(eq(str, v[0].got, (char *)got), "%s", rules);
    cr_assert(eq(str, v[0].reason_code, (char *)code));
    rules_free(p);
}

Test(measure_rules, kinds) {
    struct metrics m = good_run(), x;
    struct rules_facts f;
    expect("{\"kind\":\"min_duration\",\"min\":\"600s\"}", &m, &calm, true, "600 s", "612.4 s", "");
    expect("{\"kind\":\"min_duration\",\"min\":\"612400ms\"}", &m, &calm, true, "612.4 s", "612.4 s", "");
    x = m;
    x.duration_ns = INT64_C(599999999999); /* digits enough to see it */
    expect("{\"kind\":\"min_duration\",\"min\":\"10min\"}", &x, &calm, false, "600 s",
           "599.999999999 s", "min-duration");
    expect("{\"kind\":\"min_requests\",\"min\":1000}", &m, &calm, true, "1000", "1000", "");
    expect("{\"kind\":\"min_requests\",\"min\":1001}", &m, &calm, false, "1001", "1000", "min-requests");
    expect("{\"kind\":\"requests_per_concurrency\",\"min\":250}", &m, &calm, true, "1000", "1000", "");
    expect("{\"kind\":\"requests_per_concurrency\",\"min\":251}", &m, &calm, false, "1004", "1000",
           "min-requests");
    f = calm;
    f.max_concurrency = 0;
    expect("{\"kind\":\"requests_per_concurrency\",\"min\":10}", &m, &f, false, "10 x concurrency",
           "a load pattern without a concurrency", "min-requests");

    x = m;
    x.failed = 30;
    x.in_flight_at_end = 20;
    x.completed = 950;
    expect("{\"kind\":\"max_failed_fraction\",\"max\":0.05}", &x, &calm, true, "<= 5 %",
           "5 % (50 of 1000)", "");
    x.completed = 949;
    expect("{\"kind\":\"max_failed_fraction\",\"max\":0.05}", &x, &calm, false, "<= 5 %",
           "5.1 % (51 of 1000)", "failed-requests");
    expect("{\"kind\":\"none_in_flight\"}", &x, &calm, false, "0 in flight at the end",
           "20 in flight at the end", "in-flight");
    expect("{\"kind\":\"completed_all\"}", &x, &calm, false, "1000 completed",
           "949 completed, 30 failed, 20 in flight", "completed-all");
    expect("{\"kind\":\"completed_all\"}", &m, &calm, true, "1000 completed",
           "1000 completed, 0 failed, 0 in flight", "");
    x = (struct metrics){0};
    expect("{\"kind\":\"max_failed_fraction\",\"max\":1}", &x, &calm, false, "a measured request",
           "none", "failed-requests");
    expect("{\"kind\":\"completed_all\"}", &x, &calm, false, "1 completed",
           "0 completed, 0 failed, 0 in flight", "completed-all");

    expect("{\"kind\":\"latency_limit\",\"metric\":\"ttft_ns\",\"max\":\"450ms\"}", &m, &calm, true,
           "<= 450 ms", "449.6 ms", "");
    expect("{\"kind\":\"latency_limit\",\"metric\":\"ttft_ns\",\"max\":\"449.5ms\"}", &m, &calm, false,
           "<= 449.5 ms", "449.6 ms", "latency-limit");
    expect("{\"kind\":\"latency_limit\",\"metric\":\"ttft_ns\",\"stat\":\"p99.9\",\"max\":\"1s\"}", &m,
           &calm, false, "<= 1 s", "no ttft_ns p99.9: 1000 observations are too few",
           "latency-limit");
    expect("{\"kind\":\"latency_limit\",\"metric\":\"itl_ns\",\"max\":\"1us\"}", &m, &calm, false,
           "<= 1 us", "no itl_ns", "latency-limit");
    expect("{\"kind\":\"min_value\",\"metric\":\"output_tokens_per_s\",\"min\":12000}", &m, &calm, true,
           "12000 tok/s", "12346 tok/s", "");
    expect("{\"kind\":\"max_value\",\"metric\":\"output_tokens_per_s\",\"max\":12345.5}", &m, &calm,
           false, "<= 12345.5 tok/s", "12345.6 tok/s", "max-value");

    /* 1 % of 3 s is 30 ms, more than the floor of 1 ms */
    expect("{\"kind\":\"max_lateness\"}", &m, &calm, true, "<= 30 ms", "29 ms", "");
    expect("{\"kind\":\"max_lateness\",\"share\":0.009}", &m, &calm, false, "<= 27 ms", "29 ms",
           "send-lag");
    expect("{\"kind\":\"max_lateness\",\"share\":0,\"floor\":\"29ms\"}", &m, &calm, true, "<= 29 ms",
           "29 ms", "");
    f = calm;
    f.real_clock = false;
    expect("{\"kind\":\"max_lateness\",\"share\":0}", &m, &f, true, "real clocks only",
           "virtual clock", "");
    x = m;
    x.m[2].stat = "p95"; /* no p99: the largest stands in */
    expect("{\"kind\":\"max_lateness\"}", &x, &calm, false, "<= 30 ms", "31 ms", "send-lag");
    x.n = 0;
    expect("{\"kind\":\"max_lateness\"}", &x, &calm, false, "<= 1 ms", "no request was sent",
           "send-lag");

    /* p99 of 449.6 ms, of which 14.6 are the client's: 3.247 % */
    const char *client = "{\"kind\":\"max_client_error\"}";
    expect(client, &m, &calm, true, "<= 1 % or 50 us", "no answers", "");
    x = m;
    x.stamps = 100000;
    expect(client, &x, &calm, true, "<= 1 % or 50 us", "no figure by more than 50 us", "");
    x.m[3].client_lo = 100e6; /* a max: not judged */
    x.m[3].client_hi = 900e6;
    x.m[4].client_lo = 435e6;
    x.m[4].client_hi = 449.6e6;
    expect(client, &x, &calm, false, "<= 1 % or 50 us",
           "ttft_ns p99 of 450 ms could be 3.2 % lower: lateness p99 29 ms, stamps ", "client-error");
    x.m[x.n++] = (struct metric){.name = "stamp_bound_ns", .stat = "p99", .unit = "ns", .value = 3000};
    expect("{\"kind\":\"max_client_error\",\"max\":0.04,\"floor\":\"0s\"}", &x, &calm, true, "<= 4 %",
           "ttft_ns p99 of 450 ms could be 3.2 % lower: lateness p99 29 ms, stamps 3 us", "");
    expect("{\"kind\":\"max_client_error\",\"floor\":\"20ms\"}", &x, &calm, true, "<= 1 % or 20 ms",
           "no figure by more than 20 ms", "");
    x.m[4].client_lo = 449.6e6 * (1 - 0.01004);
    expect(client, &x, &calm, false, "<= 1 % or 50 us",
           "ttft_ns p99 of 450 ms could be 1.004 % lower: lateness p99 29 ms, stamps 3 us", "client-error");
    x.m[7].client_lo = 12345.6; /* of 12345.6 tok/s: 1.5 % */
    x.m[7].client_hi = 12345.6 * 1.015;
    x.m[4].client_lo = 449.6e6;
    expect(client, &x, &calm, false, "<= 1 % or 50 us",
           "output_tokens_per_s of 12346 tok/s could be 1.5 % higher: lateness p99 29 ms, stamps 3 us",
           "client-error");
    f = calm;
    f.no_system = true;
    expect(client, &x, &f, true, "systems only", "class none: the client itself", "");
    f = calm;
    f.real_clock = false;
    expect(client, &x, &f, true, "real clocks only", "virtual clock", "");
    x.stamps_unbounded = 7; /* fails closed */
    expect(client, &x, &calm, false, "<= 1 % or 50 us", "7 of 100000 stamps state no bound", "client-error");

    expect("{\"kind\":\"not_interrupted\"}", &m, &calm, true, "not interrupted", "not interrupted", "");
    f = calm;
    f.interrupted = true;
    expect("{\"kind\":\"not_interrupted\"}", &m, &f, false, "not interrupted", "interrupted",
           "interrupted");
    x = m;
    x.interrupted = 1;
    expect("{\"kind\":\"not_interrupted\"}", &x, &calm, false, "not interrupted", "interrupted",
           "interrupted");
    f = calm;
    f.clock_stepped = true;
    expect("{\"kind\":\"no_clock_step\"}", &m, &f, false, "no clock step", "the clock stepped",
           "clock-step");
    f = calm;
    f.seed = UINT64_MAX;
    expect("{\"kind\":\"seed\"}", &m, &f, true, "any", "18446744073709551615", "");
    expect("{\"kind\":\"seed\",\"allowed\":[1,\"18446744073709551615\"]}", &m, &f, true,
           "1, 18446744073709551615", "18446744073709551615", "");
    expect("{\"kind\":\"seed\",\"allowed\":[1,2]}", &m, &f, false, "1, 2", "18446744073709551615",
           "seed");
}

static bool valid(const char *pack, const struct metrics *m, const struct rules_facts *f) {
    struct rule_pack *p;
    struct err e = {0};
    struct verdict v[RULES_MAX];
    cr_assert(eq(int, rules_load(pack, &p, &e), 0), "%s", e.text);
    cr_assert(eq(str, (char *)rules_name(p), (char *)pack));
    cr_assert(rules_version(p)[0] != '\0');
    int n = rules_evaluate(p, m, f, v);
    bool ok = n > 0;
    for (int i = 0; i < n; i++) {
        ok = ok && v[i].ok;
        cr_assert(eq(int, v[i].reason_code[0] == '\0', v[i].ok));
    }
    rules_free(p);
    return ok;
}

Test(measure_rules, shipped_packs_judge_sensibly) {
    struct metrics good = good_run(), bad = good_run(), none = {0};
    bad.completed = 0;
    bad.failed = 1000;
    static const char *const packs[] = {"default", "inferencex-fixed-seq", "chat-slo"};
    for (int i = 0; i < 3; i++) {
        cr_assert(valid(packs[i], &good, &calm), "%s", packs[i]);
        cr_assert(eq(int, valid(packs[i], &bad, &calm), false), "%s", packs[i]);
        cr_assert(eq(int, valid(packs[i], &none, &calm), false), "%s", packs[i]);
        struct rules_facts f = calm;
        f.interrupted = true;
        cr_assert(eq(int, valid(packs[i], &good, &f), false), "%s", packs[i]);
    }
    struct metrics training = {.issued = 10, .completed = 10, .duration_ns = 1000};
    cr_assert(valid("default", &training, &calm));
}

Test(measure_rules, every_embedded_pack_loads) {
    size_t n, packs = 0;
    const struct embedded *all = embedded_all(&n);
    for (size_t i = 0; i < n; i++) {
        if (strncmp(all[i].path, "schemas/rules/", 14) != 0)
            continue;
        json_t *j;
        struct rule_pack *p;
        struct err e = {0};
        cr_assert(eq(int, json_parse(all[i].data, all[i].size, all[i].path, &j, &e), 0), "%s", e.text);
        int rc = rules_from_json(j, all[i].path, &p, &e);
        cr_assert(eq(int, rc, 0), "%s", e.text);
        char file[128];
        snprintf(file, sizeof file, "schemas/rules/%s.json", rules_name(p));
        cr_assert(eq(str, file, (char *)all[i].path));
        cr_assert(eq(int, json_equal(rules_json(p), j), 1));
        rules_free(p);
        json_decref(j);
        packs++;
    }
    cr_assert(ge(sz, packs, 3));
}

/* The schema names the same kinds as the code does. */
Test(measure_rules, schema_knows_every_kind) {
    const struct embedded *f = embedded_find("schemas/rule-pack.json");
    cr_assert(f != NULL);
    const char *help;
    int n = 0;
    for (const char *k; (k = rules_kind(n, &help)); n++) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "\"%s\"", k);
        cr_assert(strstr(f->data, quoted) != NULL, "%s", k);
        cr_assert(help[0] != '\0');
        if (n)
            cr_assert(lt(int, strcmp(rules_kind(n - 1, NULL), k), 0));
    }
    cr_assert(ge(int, n, 10));
}

Test(measure_rules, malformed_packs_say_where) {
    static const struct {
        const char *json, *message;
    } bad[] = {
        {"[]", "t.json: at /: expected an object"},
        {"{}", "t.json: at /name: expected"},
        {"{\"name\":1,\"version\":\"1\",\"rules\":[]}", "t.json: at /name: expected"},
        {"{\"name\":\"t\",\"version\":\"1\"}", "t.json: at /rules: expected"},
        {"{\"name\":\"t\",\"version\":\"1\",\"rules\":{}}", "at /rules: expected an array of 1 to 64"},
        {"{\"name\":\"t\",\"version\":\"1\",\"rules\":[]}", "at /rules: expected an array of 1 to 64"},
        {"{\"name\":\"t\",\"version\":\"1\",\"rules\":[3]}", "at /rules/0: expected an object, found 3"},
        {"{\"name\":\"t\",\"version\":\"1\",\"rules\":[{}]}", "at /rules/0/kind: expected a kind of rule, found nothing"},
        {"{\"name\":\"t\",\"version\":\"1\",\"rules\":[{\"kind\":\"min_duraton\",\"min\":\"1s\"}]}",
         "at /rules/0/kind: expected a kind of rule, found 'min_duraton' (did you mean 'min_duration'?)"},
        {"{\"name\":\"t\",\"version\":\"1\",\"rules\":[{\"kind\":\"min_duration\"}]}", "at /rules/0/min: expected"},
        {"{\"name\":\"t\",\"version\":\"1\",\"rules\":[{\"kind\":\"min_duration\",\"min\":600}]}", "at /rules/0/min: expected"},
        {"{\"name\":\"t\",\"version\":\"1\",\"rules\":[{\"kind\":\"not_interrupted\"},{\"kind\":\"min_requests\",\"min\":0}]}",
         "at /rules/1/min: expected"},
        {"{\"name\":\"t\",\"version\":\"1\",\"rules\":[{\"kind\":\"max_failed_fraction\",\"max\":2}]}", "at /rules/0/max: expected"},
        {"{\"name\":\"t\",\"version\":\"1\",\"rules\":[{\"kind\":\"not_interrupted\",\"min\":2}]}", "at /rules/0"},
        {"{\"name\":\"t\",\"version\":\"1\",\"rules\":[{\"kind\":\"latency_limit\",\"metric\":\"ttft\",\"max\":\"1s\"}]}",
         "at /rules/0/metric: expected a metric, found 'ttft' (did you mean 'ttft_ns'?)"},
        {"{\"name\":\"t\",\"version\":\"1\",\"rules\":[{\"kind\":\"latency_limit\",\"metric\":\"ttft_ns\",\"stat\":\"p98\",\"max\":\"1s\"}]}",
         "at /rules/0/stat: 'ttft_ns' has no statistic 'p98'"},
        {"{\"name\":\"t\",\"version\":\"1\",\"rules\":[{\"kind\":\"latency_limit\",\"metric\":\"mfu\",\"stat\":\"value\",\"max\":\"1s\"}]}",
         "at /rules/0/metric: expected a metric in ns"},
        {"{\"name\":\"t\",\"version\":\"1\",\"rules\":[{\"kind\":\"seed\",\"allowed\":[1,-1]}]}", "at /rules/0/allowed/1: expected a seed, found -1"},
        {"{\"name\":\"t\",\"version\":\"1\",\"rules\":[{\"kind\":\"seed\",\"allowed\":[]}]}", "at /rules/0/allowed: expected 1 to 64 seeds"},
        {"{\"name\":\"t\",\"version\":\"1\",\"rules\":[{\"kind\":\"seed\"},{\"kind\":\"seed\"}]}",
         "at /rules/1/id: expected a unique id, found 'seed' of /rules/0 again"},
        {"{\"name\":\"t\",\"version\":\"1\",\"rules\":[{\"kind\":\"seed\",\"id\":\"\"}]}", "at /rules/0/id: expected 1 to 47 bytes"},
        {"{\"name\":\"t\",\"version\":\"1\",\"rulez\":[],\"rules\":[{\"kind\":\"seed\"}]}", "rulez"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        json_t *j;
        struct rule_pack *p;
        struct err e = {0};
        cr_assert(eq(int, json_parse(bad[i].json, strlen(bad[i].json), "t.json", &j, &e), 0), "%s", e.text);
        cr_assert(eq(int, rules_from_json(j, "t.json", &p, &e), ASSAY_EINPUT), "row %zu", i);
        cr_assert(strstr(e.text, bad[i].message) != NULL, "row %zu: %s", i, e.text);
        cr_assert(p == NULL);
        json_decref(j);
    }
    struct rule_pack *p;
    struct err e = {0};
    cr_assert(eq(int, rules_load("defualt", &p, &e), ASSAY_EUSAGE));
    cr_assert(strstr(e.text, "did you mean 'default'") != NULL, "%s", e.text);
    cr_assert(lt(int, rules_load("/nonexistent/pack.json", &p, &e), 0));
}

Test(measure_rules, no_pack_makes_half_a_run_or_an_empty_one_valid) {
    struct rule_pack *p;
    struct verdict v[RULES_MAX];
    struct err e = {0};
    json_t *j = json_pack("{s:s, s:s, s:[{s:s, s:i}]}", "name", "lax", "version", "1", "rules",
                          "kind", "min_requests", "min", 1);
    cr_assert(eq(int, rules_from_json(j, "lax", &p, &e), 0), "%s", e.text);
    struct metrics some = {.issued = 5, .completed = 5}, none = {.issued = 5, .failed = 5};
    struct rules_facts whole = {0}, half = {.interrupted = true};
    cr_assert(eq(int, rules_evaluate(p, &some, &whole, v), 1));
    cr_assert(v[0].ok, "%s", v[0].got);
    cr_assert(eq(int, rules_evaluate(p, &some, &half, v), 2));
    cr_assert(not(v[1].ok));
    int n = rules_evaluate(p, &none, &whole, v);
    cr_assert(not(v[n - 1].ok));
    rules_free(p);
    json_decref(j);
}
