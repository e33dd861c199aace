/* The record: every required field of certification.md section 5, facts that come back to the bit,
 * values that canonical JSON cannot hold, and payloads that are no records. */
#include "harness/core/version.h"
#include "results/jcs.h"
#include "results/record.h"
#include "tests/results/vectors.h"

#include <float.h>
#include <math.h>
#include <regex.h>
#include <stdio.h>

struct fixture {
    struct run_begin begin;
    struct run_handle handle;
    struct metrics metrics;
    struct metrics_facts facts;
    struct verdict verdicts[3];
    struct record_input in;
    json_t *own[16];
    int nown;
};

static json_t *own(struct fixture *f, const char *text) {
    json_error_t je;
    json_t *v = json_loads(text, 0, &je);
    cr_assert(v != NULL, "%s: %s", text, je.text);
    return f->own[f->nown++] = v;
}

static void verdict(struct verdict *v, const char *rule, bool ok, const char *code) {
    *v = (struct verdict){.ok = ok};
    snprintf(v->rule, sizeof v->rule, "%s", rule);
    snprintf(v->reason_code, sizeof v->reason_code, "%s", code);
    snprintf(v->want, sizeof v->want, "600 s");
    snprintf(v->got, sizeof v->got, "612.4 s");
}

static struct fixture *fixture(void) {
    struct fixture *f = calloc(1, sizeof *f);
    f->begin = (struct run_begin){
        .workload = own(f, "{\"name\":\"chat\",\"version\":\"2\",\"kind\":\"serving\","
                           "\"model\":{\"$name\":\"llama3.1-8b\"},\"pattern\":\"poisson:40\","
                           "\"warmup\":{\"requests\":16}}"),
        .workload_file = own(f, "{\"name\":\"chat\"}"),
        .system = own(f, "{\"name\":\"v6e-8\"}"),
        .rules = own(f, "{\"name\":\"default\",\"version\":3}"),
        .backend = own(f, "{\"name\":\"tpu-sim\",\"version\":\"1\",\"class\":\"simulated\","
                          "\"modelId\":\"sim/v6e-8/llama3.1-8b\","
                          "\"details\":{\"engine\":{\"batch\":8},\"big\":9223372036854775807}}"),
        .environment = own(f, "{\"kernel\":\"6.1\"}"),
        .mode = "performance",
        .load_kind = "poisson",
        .load_value = 40,
        .seed = "18446744073709551615",
        .started_wall_ns = INT64_C(1796115600000000000),
    };
    f->handle = (struct run_handle){.register_seq = 41, .attempt = 2, .previous_size = 41};
    snprintf(f->handle.uuid, sizeof f->handle.uuid, "0190a5c0-7d3e-7cc3-9f6e-0123456789ab");
    snprintf(f->handle.campaign, sizeof f->handle.campaign, "c-2026-12");
    unsigned char *const digest[] = {f->handle.previous_root,  f->handle.workload_sha256,
                                     f->handle.system_sha256,  f->handle.harness_sha256,
                                     f->handle.backend_sha256, f->handle.environment_sha256,
                                     f->handle.rules_sha256};
    for (int i = 0; i < 7; i++)
        memset(digest[i], 0x10 + i, 32);
    f->metrics.m[0] = (struct metric){"ttft_ns", "p99",     "ns",      "lower", 443125000,
                                      24576,     438500000, 449750000, 0.99};
    f->metrics.m[1] = (struct metric){
        "output_tokens_per_s", "value", "tok/s", "higher", 12345.678, 24576, 0, 0, 0};
    f->metrics.n = 2;
    f->metrics.issued = 24580;
    f->metrics.completed = 24576;
    f->metrics.failed = 4;
    f->metrics.failed_by_class[FAIL_RESET] = 3;
    f->metrics.failed_by_class[FAIL_HTTP_STATUS] = 1;
    f->metrics.warmup_requests = 16;
    f->metrics.duration_ns = INT64_C(723250000000);
    f->metrics.compat = own(f, "{\"vllm\":{\"mean_ttft_ms\":1.5,\"total\":9007199254740993}}");
    f->facts = (struct metrics_facts){.chips = 8,
                                      .peak_flops_per_s = 9.18e14,
                                      .flops_per_token = 16060522496.0,
                                      .limit_ttft_ns = 450000000,
                                      .limit_e2e_ns = INT64_MAX,
                                      .max_concurrency = 64};
    verdict(&f->verdicts[0], "min_duration", true, "min-duration");
    verdict(&f->verdicts[1], "p99_ttft", false, "latency");
    verdict(&f->verdicts[2], "p99_tpot", false, "latency");
    f->in = (struct record_input){
        .begin = &f->begin,
        .handle = &f->handle,
        .metrics = &f->metrics,
        .facts = &f->facts,
        .verdicts = f->verdicts,
        .nverdicts = 3,
        .verdict = "INVALID",
        .finished_wall_ns = INT64_C(1796116323250000000),
        .monotonic_duration_ns = INT64_C(9223372036854775807),
        .result_class = "simulated",
        .system_name = "v6e-8",
        .chip = "v6e",
        .chips = 8,
        .log_chunks = 12,
        .log_bytes = 345678,
        .clock = own(f, "{\"source\":\"discrete-event\",\"virtual\":true,\"drift\":1e300}"),
    };
    memset(f->in.log_digest, 0xee, 32);
    return f;
}

static void release(struct fixture *f) {
    for (int i = 0; i < f->nown; i++)
        json_decref(f->own[i]);
    free(f);
}

static char *build(const struct fixture *f, size_t *n) {
    struct buf b;
    struct err e = {0};
    buf_init(&b, 1 << 20);
    cr_assert(zero(int, record_build(&f->in, &b, &e)), "%s", e.text);
    return buf_take(&b, n);
}

/* The value at a dotted path, numbers as array indices. */
static const json_t *at(const json_t *o, const char *path) {
    char name[64];
    while (o && *path) {
        size_t n = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        o = json_is_array(o) ? json_array_get(o, strtoul(name, NULL, 10))
                             : json_object_get(o, name);
        path += n + (path[n] == '.');
    }
    return o;
}

static const char *text_at(const json_t *o, const char *path) {
    const char *s = json_string_value(at(o, path));
    return s ? s : "(no string)";
}

Test(results_record, has_every_required_field) {
    /* certification.md section 5, rows marked R; then what this project adds. */
    static const char *const required[] = {
        "run.runId",
        "run.registerSeq",
        "run.campaign",
        "run.attempt",
        "run.startedOn",
        "run.finishedOn",
        "run.monotonicDurationNs",
        "run.verdict",
        "run.invalidReasons",
        "run.seed",
        "run.mode",
        "harness.name",
        "harness.version",
        "harness.digest.sha256",
        "harness.source",
        "harness.dirty",
        "workload.name",
        "workload.version",
        "workload.digest.sha256",
        "workload.dataset.name",
        "workload.dataset.digest.sha256",
        "workload.scenario",
        "workload.targetQps",
        "workload.overrides",
        "system.name",
        "system.class",
        "system.descriptor.digest.sha256",
        "system.accelerators",
        "system.accelerator",
        "backend.name",
        "backend.version",
        "backend.config.digest.sha256",
        "environment.digest.sha256",
        "clock.source",
        "metrics.0.name",
        "metrics.0.stat",
        "metrics.0.value",
        "metrics.0.unit",
        "metrics.0.n",
        "metrics.0.better",
        "metrics.0.ci.level",
        "metrics.0.ci.lo",
        "metrics.0.ci.hi",
        "metrics.0.ci.method",
        "metrics.1.ci",
        "metrics.1.ciReason",
        "warmup.rule",
        "warmup.dropped",
        "warmup.steadyStateIndex",
        "outliers.policy",
        "outliers.count",
        "previous.registerSize",
        "previous.registerRoot",
        "rules.name",
        "rules.version",
        "rules.digest.sha256",
        "verdicts.1.reasonCode",
        "counts.failedByClass.reset",
        "facts.chips",
        "log.chunks",
        "compat.vllm",
    };
    struct fixture *f = fixture();
    size_t n;
    char *text = build(f, &n);
    json_t *s;
    const json_t *p;
    struct err e = {0};
    cr_assert(zero(int, record_parse(text, n, &s, &p, &e)), "%s", e.text);
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++)
        cr_assert(at(p, required[i]) != NULL, "%s", required[i]);
    cr_assert(eq(str, text_at(s, "_type"), RECORD_STATEMENT_TYPE));
    cr_assert(eq(str, text_at(p, "run.startedOn"), "2026-12-01T09:00:00Z"));
    cr_assert(eq(str, text_at(p, "run.finishedOn"), "2026-12-01T09:12:03.25Z"));
    cr_assert(eq(str, text_at(p, "run.monotonicDurationNs"), "9223372036854775807"));
    cr_assert(eq(str, text_at(p, "run.seed"), "18446744073709551615"));
    cr_assert(eq(sz, json_array_size(at(p, "run.invalidReasons")), 1), "each code once");
    cr_assert(eq(str, text_at(p, "run.invalidReasons.0"), "latency"));
    cr_assert(eq(str, text_at(p, "rules.version"), "3"));
    cr_assert(eq(str, text_at(p, "workload.model"), "llama3.1-8b"));
    cr_assert(eq(str, text_at(p, "warmup.rule"), "requests:16"));
    cr_assert(eq(str, text_at(p, "metrics.1.ciReason"), "deterministic"));
    cr_assert(eq(str, text_at(p, "backend.details.big"), "9223372036854775807"));
    cr_assert(at(p, "backend.details.engine.batch") != NULL, "short parts are there in full");
    cr_assert(eq(str, text_at(p, "compat.vllm.total"), "9007199254740993"));
    cr_assert(eq(str, text_at(p, "clock.drift"), "1e+300"));
    cr_assert(eq(int, json_is_true(at(p, "harness.dirty")),
                 strstr(assay_version, "dirty") || strcmp(assay_version, "unknown") == 0));
    /* no files: the digest over no lines */
    cr_assert(eq(str, text_at(p, "workload.dataset.digest.sha256"),
                 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
    json_decref(s);
    free(text);
    release(f);
}

Test(results_record, subjects_are_the_digests_of_the_run) {
    struct fixture *f = fixture();
    size_t n;
    char *text = build(f, &n);
    json_t *s;
    struct err e = {0};
    unsigned char d[32];
    cr_assert(zero(int, record_parse(text, n, &s, NULL, &e)), "%s", e.text);
    const struct {
        const char *name;
        const unsigned char *digest;
    } want[] = {{"raw/events.assaylog", f->in.log_digest},
                {"workload/effective.json", f->handle.workload_sha256},
                {"rules.json", f->handle.rules_sha256},
                {"system.json", f->handle.system_sha256},
                {"environment.json", f->handle.environment_sha256}};
    cr_assert(eq(sz, json_array_size(json_object_get(s, "subject")), 5));
    for (int i = 0; i < 5; i++) {
        cr_assert(zero(int, record_subject(s, want[i].name, d, &e)), "%s", e.text);
        cr_assert(eq(str, hex32(d), hex32(want[i].digest)));
    }
    cr_assert(eq(int, record_subject(s, "absent", d, &e), ASSAY_EINPUT));
    json_decref(s);
    free(text);
    release(f);
}

Test(results_record, long_backend_details_are_named_by_digest) {
    struct fixture *f = fixture();
    json_t *s, *long_text = json_array();
    const json_t *p;
    size_t n;
    unsigned char digest[32];
    for (int i = 0; i < 600; i++)
        json_array_append_new(long_text, json_integer(i));
    json_object_set(json_object_get(f->begin.backend, "details"), "chip", long_text);
    char *text = build(f, &n);
    cr_assert(zero(int, record_parse(text, n, &s, &p, NULL)));
    cr_assert(zero(int, jcs_sha256(long_text, digest, NULL)));
    cr_assert(eq(str, text_at(p, "backend.details.chip.digest.sha256"), hex32(digest)));
    json_decref(s);
    json_decref(long_text);
    free(text);
    release(f);
}

Test(results_record, is_canonical_and_repeats_to_the_byte) {
    struct fixture *f = fixture();
    size_t n, m;
    char *a = build(f, &n), *b = build(f, &m);
    cr_assert(eq(str, a, b));
    json_t *s;
    struct buf again;
    buf_init(&again, 1 << 20);
    cr_assert(zero(int, record_parse(a, n, &s, NULL, NULL)));
    cr_assert(zero(int, jcs_encode(s, &again, NULL)));
    cr_assert(eq(str, a, again.p));
    buf_release(&again);
    json_decref(s);
    free(a);
    free(b);
    release(f);
}

Test(results_record, facts_come_back_to_the_bit) {
    static const struct metrics_facts cases[] = {
        {0},
        {1, 1.0, 0.1, 1, 2, 3, 4},
        {INT64_MAX, 1e300, DBL_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX},
        {INT64_C(9007199254740991), 9007199254740991.0, 9007199254740992.0, 0, 0, 0,
         INT64_C(9007199254740992)},
        {256, 2.307e15, 2.0 * 70553706496.0, 450000000, 40000000, 0, 512},
        {8, 5e-324, 2.2250738585072014e-308, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture *f = fixture();
        struct metrics_facts back;
        const json_t *p;
        json_t *s;
        size_t n;
        struct err e = {0};
        f->facts = cases[i];
        char *text = build(f, &n);
        cr_assert(zero(int, record_parse(text, n, &s, &p, &e)), "%s", e.text);
        cr_assert(zero(int, record_facts(p, &back, &e)), "%s", e.text);
        cr_assert(back.chips == cases[i].chips && back.limit_ttft_ns == cases[i].limit_ttft_ns &&
                      back.limit_tpot_ns == cases[i].limit_tpot_ns &&
                      back.limit_e2e_ns == cases[i].limit_e2e_ns &&
                      back.max_concurrency == cases[i].max_concurrency &&
                      memcmp(&back.peak_flops_per_s, &cases[i].peak_flops_per_s, 8) == 0 &&
                      memcmp(&back.flops_per_token, &cases[i].flops_per_token, 8) == 0,
                  "case %zu", i);
        json_decref(s);
        free(text);
        release(f);
    }
}

Test(results_record, facts_that_are_not_are_refused) {
    static const char good[] =
        "{\"facts\":{\"chips\":8,\"peakFlopsPerS\":1,\"flopsPerToken\":1,\"limitTtftNs\":\"0\","
        "\"limitTpotNs\":\"0\",\"limitE2eNs\":\"0\",\"maxConcurrency\":0}}";
    static const char *const change[][2] = {
        {"\"chips\":8", "\"chips\":-1"},
        {"\"chips\":8", "\"chips\":8.5"},
        {"\"chips\":8", "\"chips\":\"eight\""},
        {"\"chips\":8,", ""},
        {"\"limitTtftNs\":\"0\"", "\"limitTtftNs\":0"},
        {"\"limitTtftNs\":\"0\"", "\"limitTtftNs\":\"\""},
        {"\"limitTtftNs\":\"0\"", "\"limitTtftNs\":\"9223372036854775808\""},
        {"\"peakFlopsPerS\":1", "\"peakFlopsPerS\":null"},
        {"\"peakFlopsPerS\":1", "\"peakFlopsPerS\":-1"},
        {"\"peakFlopsPerS\":1", "\"peakFlopsPerS\":\"inf\""},
        {"\"facts\"", "\"fakts\""},
    };
    struct metrics_facts f;
    struct err e = {0};
    json_t *p = json_loads(good, 0, NULL);
    cr_assert(zero(int, record_facts(p, &f, &e)), "%s", e.text);
    json_decref(p);
    for (size_t i = 0; i < sizeof change / sizeof change[0]; i++) {
        struct buf b;
        buf_init(&b, 1000);
        const char *from = strstr(good, change[i][0]);
        cr_assert(from != NULL);
        buf_printf(&b, "%.*s%s%s", (int)(from - good), good, change[i][1],
                   from + strlen(change[i][0]));
        p = json_loads(b.p, 0, NULL);
        cr_assert(p != NULL, "%s", b.p);
        cr_assert(eq(int, record_facts(p, &f, &e), ASSAY_EINPUT), "%s", b.p);
        cr_assert(strstr(e.text, "/predicate/facts") != NULL, "%s", e.text);
        json_decref(p);
        buf_release(&b);
    }
}

Test(results_record, what_json_cannot_hold_is_an_error_not_a_gap) {
    struct fixture *f = fixture();
    struct buf b;
    struct err e = {0};
    buf_init(&b, 1 << 20);
    f->metrics.m[0].value = (double)NAN;
    cr_assert(eq(int, record_build(&f->in, &b, &e), ASSAY_EINPUT));
    cr_assert(strstr(e.text, "metrics") != NULL, "%s", e.text);
    f->metrics.m[0].value = 1;
    snprintf(f->verdicts[0].got, sizeof f->verdicts[0].got, "\xff");
    cr_assert(eq(int, record_build(&f->in, &b, &e), ASSAY_EINPUT));
    cr_assert(strstr(e.text, "verdicts") != NULL, "%s", e.text);
    snprintf(f->verdicts[0].got, sizeof f->verdicts[0].got, "x");
    buf_release(&b);
    buf_init(&b, 100);
    cr_assert(eq(int, record_build(&f->in, &b, &e), ASSAY_EINPUT), "larger than the payload limit");
    buf_release(&b);
    release(f);
}

Test(results_record, a_measured_run_says_single_run) {
    struct fixture *f = fixture();
    json_t *s;
    const json_t *p;
    size_t n;
    f->in.clock = own(f, "{\"source\":\"CLOCK_MONOTONIC\",\"virtual\":false}");
    f->in.chip = "";
    f->in.chips = 0;
    char *text = build(f, &n);
    cr_assert(zero(int, record_parse(text, n, &s, &p, NULL)));
    cr_assert(eq(str, text_at(p, "metrics.1.ciReason"), "single-run"));
    cr_assert(eq(str, text_at(p, "system.accelerator"), "unknown"));
    json_decref(s);
    free(text);
    release(f);
}

Test(results_record, payloads_that_are_no_records_are_refused) {
#define HEX "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\""
#define SUBJ(name) "{\"name\":\"" name "\",\"digest\":{\"sha256\":" HEX "}}"
#define STATEMENT(type, subject, ptype, predicate)                                                 \
    "{\"_type\":\"" type "\",\"subject\":" subject ",\"predicateType\":\"" ptype                   \
    "\",\"predicate\":" predicate "}"
    static const struct {
        const char *text;
        int good;
        const char *says;
    } c[] = {
        {STATEMENT(RECORD_STATEMENT_TYPE, "[" SUBJ("a/b") "]", RECORD_PREDICATE_TYPE, "{}"), 1, ""},
        {STATEMENT("x", "[" SUBJ("a") "]", RECORD_PREDICATE_TYPE, "{}"), 0, "/_type"},
        {STATEMENT(RECORD_STATEMENT_TYPE, "[" SUBJ("a") "]", "x/v2", "{}"), 0, "/predicateType"},
        {STATEMENT(RECORD_STATEMENT_TYPE, "[]", RECORD_PREDICATE_TYPE, "{}"), 0, "/subject"},
        {STATEMENT(RECORD_STATEMENT_TYPE, "{}", RECORD_PREDICATE_TYPE, "{}"), 0, "/subject"},
        {STATEMENT(RECORD_STATEMENT_TYPE, "[" SUBJ("a") "," SUBJ("a") "]", RECORD_PREDICATE_TYPE,
                   "{}"),
         0, "twice"},
        {STATEMENT(RECORD_STATEMENT_TYPE, "[" SUBJ("../a") "]", RECORD_PREDICATE_TYPE, "{}"), 0,
         "/subject/0/name"},
        {STATEMENT(RECORD_STATEMENT_TYPE, "[" SUBJ("a/../b") "]", RECORD_PREDICATE_TYPE, "{}"), 0,
         "/subject/0/name"},
        {STATEMENT(RECORD_STATEMENT_TYPE, "[" SUBJ("a//b") "]", RECORD_PREDICATE_TYPE, "{}"), 0,
         "/subject/0/name"},
        {STATEMENT(RECORD_STATEMENT_TYPE, "[" SUBJ("a/") "]", RECORD_PREDICATE_TYPE, "{}"), 0,
         "/subject/0/name"},
        {STATEMENT(RECORD_STATEMENT_TYPE, "[" SUBJ("/a") "]", RECORD_PREDICATE_TYPE, "{}"), 0,
         "/subject/0/name"},
        {STATEMENT(RECORD_STATEMENT_TYPE, "[" SUBJ("a\\\\b") "]", RECORD_PREDICATE_TYPE, "{}"), 0,
         "/subject/0/name"},
        {STATEMENT(RECORD_STATEMENT_TYPE, "[" SUBJ("") "]", RECORD_PREDICATE_TYPE, "{}"), 0,
         "/subject/0/name"},
        {STATEMENT(RECORD_STATEMENT_TYPE, "[" SUBJ("a\\u0000b") "]", RECORD_PREDICATE_TYPE, "{}"),
         0, "U+0000"},
        {STATEMENT(RECORD_STATEMENT_TYPE, "[" SUBJ("a") "]", RECORD_PREDICATE_TYPE,
                   "{\"v\":[{\"x\":\"VALID\\u0000\"}]}"),
         0, "U+0000"},
        {STATEMENT(RECORD_STATEMENT_TYPE, "[{\"name\":\"a\",\"digest\":{\"sha256\":\"AB\"}}]",
                   RECORD_PREDICATE_TYPE, "{}"),
         0, "/subject/0/digest/sha256"},
        {STATEMENT(RECORD_STATEMENT_TYPE, "[{\"name\":\"a\"}]", RECORD_PREDICATE_TYPE, "{}"), 0,
         "/subject/0/digest/sha256"},
        {STATEMENT(RECORD_STATEMENT_TYPE, "[" SUBJ("a") "]", RECORD_PREDICATE_TYPE, "[]"), 0,
         "/predicate"},
        {"[]", 0, "expected an object"},
        {"{", 0, "record:1"},
    };
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        json_t *s;
        const json_t *p;
        struct err e = {0};
        int rc = record_parse(c[i].text, strlen(c[i].text), &s, &p, &e);
        cr_assert(eq(int, rc, c[i].good ? 0 : ASSAY_EINPUT), "%s: %s", c[i].text, e.text);
        cr_assert(strstr(e.text, c[i].says) != NULL, "%s: %s", c[i].text, e.text);
        json_decref(s);
    }
}

Test(results_record, vectors_statement_is_read) {
    /* The published example omits facts, but it is a statement of this type. */
    const char *text = vec_str(vectors_get("dsse"), "payload_utf8");
    json_t *s;
    const json_t *p;
    struct err e = {0};
    unsigned char d[32];
    cr_assert(zero(int, record_parse(text, strlen(text), &s, &p, &e)), "%s", e.text);
    cr_assert(eq(str, text_at(p, "run.campaign"), "c-2026-12"));
    cr_assert(zero(int, record_subject(s, "raw/run.log", d, &e)));
    cr_assert(
        eq(str, hex32(d), "3bf21ecaf94f228c9fb1da75336b8268c1516b1af31e5355ac775aff50ddc967"));
    struct metrics_facts f;
    cr_assert(eq(int, record_facts(p, &f, &e), ASSAY_EINPUT));
    json_decref(s);
}

/* ---- schemas/record.json: the published form, checked against what the builder writes ---- */

static bool is_type(const json_t *v, const char *type) {
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return strcmp(type, "object") == 0;
    case JSON_ARRAY:
        return strcmp(type, "array") == 0;
    case JSON_STRING:
        return strcmp(type, "string") == 0;
    case JSON_INTEGER:
        return strcmp(type, "integer") == 0 || strcmp(type, "number") == 0;
    case JSON_REAL:
        return strcmp(type, "number") == 0;
    case JSON_NULL:
        return strcmp(type, "null") == 0;
    default:
        return strcmp(type, "boolean") == 0;
    }
}

static bool matches(const char *pattern, const char *text) {
    regex_t re;
    cr_assert(zero(int, regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB)), "%s", pattern);
    bool ok = regexec(&re, text, 0, NULL, 0) == 0;
    regfree(&re);
    return ok;
}

static json_t *schema_root;

/* The part of JSON Schema that record.json uses; "" or the place that does not fit. A member that
 * the schema does not list does not fit either: the builder and the schema must know the same ones.
 */
static const char *misfit(const json_t *schema, const json_t *v, const char *where) {
    static char text[512];
    const json_t *k;
    json_t *member;
    const char *name;
    size_t i;
    char here[256];
#define MISFIT(what) (snprintf(text, sizeof text, "%s: %s", where, what), text)
    if ((k = json_object_get(schema, "$ref"))) {
        name = strrchr(json_string_value(k), '/') + 1;
        return misfit(json_object_get(json_object_get(schema_root, "$defs"), name), v, where);
    }
    if ((k = json_object_get(schema, "anyOf"))) {
        for (i = 0; i < json_array_size(k); i++)
            if (!*misfit(json_array_get(k, i), v, where))
                return "";
        return MISFIT("none of anyOf");
    }
    if ((k = json_object_get(schema, "const")) && !json_equal(k, v))
        return MISFIT("const");
    if ((k = json_object_get(schema, "enum"))) {
        bool found = false;
        for (i = 0; i < json_array_size(k); i++)
            found = found || json_equal(json_array_get(k, i), v);
        if (!found)
            return MISFIT("enum");
    }
    if ((k = json_object_get(schema, "type"))) {
        bool found = json_is_string(k) && is_type(v, json_string_value(k));
        for (i = 0; i < json_array_size(k); i++)
            found = found || is_type(v, json_string_value(json_array_get(k, i)));
        if (!found)
            return MISFIT("type");
    }
    if (json_is_string(v) && (k = json_object_get(schema, "pattern")) &&
        !matches(json_string_value(k), json_string_value(v)))
        return MISFIT("pattern");
    if (json_is_number(v) && (k = json_object_get(schema, "minimum")) &&
        json_number_value(v) < json_number_value(k))
        return MISFIT("minimum");
    k = json_object_get(schema, "required");
    for (i = 0; json_is_object(v) && i < json_array_size(k); i++)
        if (!json_object_get(v, json_string_value(json_array_get(k, i))))
            return MISFIT(json_string_value(json_array_get(k, i)));
    if ((k = json_object_get(schema, "items")))
        for (i = 0; i < json_array_size(v); i++) {
            snprintf(here, sizeof here, "%s/%zu", where, i);
            if (*misfit(k, json_array_get(v, i), here))
                return text;
        }
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *others = json_object_get(schema, "additionalProperties");
    if (json_is_object(v) && (properties || others))
        json_object_foreach((json_t *)(uintptr_t)v, name, member) {
            k = json_object_get(properties, name);
            snprintf(here, sizeof here, "%s/%s", where, name);
            if (!k && !others)
                return MISFIT(name);
            if (*misfit(k ? k : others, member, here))
                return text;
        }
    return "";
#undef MISFIT
}

Test(results_record, fits_the_published_schema) {
    json_error_t je;
    schema_root = json_load_file("schemas/record.json", JSON_REJECT_DUPLICATES, &je);
    cr_assert(schema_root != NULL, "%d:%d: %s", je.line, je.column, je.text);
    struct fixture *f = fixture();
    size_t n;
    char *text = build(f, &n);
    json_t *s;
    cr_assert(zero(int, record_parse(text, n, &s, NULL, NULL)));
    cr_assert(eq(str, misfit(schema_root, s, ""), ""));
    /* and the check can fail */
    json_t *run = json_object_get(json_object_get(s, "predicate"), "run");
    json_object_set_new(run, "seed", json_integer(1));
    cr_assert(eq(str, misfit(schema_root, s, ""), "/predicate/run/seed: type"));
    json_object_set_new(run, "seed", json_string("-1"));
    cr_assert(eq(str, misfit(schema_root, s, ""), "/predicate/run/seed: pattern"));
    json_object_del(run, "seed");
    cr_assert(eq(str, misfit(schema_root, s, ""), "/predicate/run: seed"));
    json_decref(s);
    json_decref(schema_root);
    free(text);
    release(f);
}
