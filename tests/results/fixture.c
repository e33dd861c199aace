/* See fixture.h. */
#include "harness/measure/server.h"
#include "tests/results/fixture.h"

#include "harness/core/clock.h"
#include "results/hash.h"

#include <criterion/criterion.h>
#include <ftw.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct scratch scratch_make(void) {
    struct scratch s;
    const char *tmp = getenv("TMPDIR");
    snprintf(s.dir, sizeof s.dir, "%s/assay-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    cr_assert(mkdtemp(s.dir) != NULL);
    snprintf(s.db, sizeof s.db, "%s/assay.db", s.dir);
    return s;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f) {
    (void)st, (void)type, (void)f;
    return remove(path);
}

void scratch_remove(const struct scratch *s) {
    chmod(s->dir, 0700);
    nftw(s->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void must(int rc, const struct err *e) {
    cr_assert(rc == 0, "%s (%s:%d)", e->text, e->file ? e->file : "?", e->line);
}

struct definitions definitions_make(const char *workload, const char *chip, int chips,
                                    const char *result_class) {
    char name[64];
    snprintf(name, sizeof name, "%s-%d", chip, chips);
    struct definitions d = {
        .workload = json_pack("{s:s s:s s:s s:s s:{s:i} s:{s:i}}", "name", workload, "version", "1", "kind",
                              "serving", "model", "llama3.1-8b", "isl", "value", 128, "osl", "value", 32),
        .system = json_pack("{s:s s:s s:s s:i s:i}", "name", name, "class", result_class, "chip", chip,
                            "chips", chips, "hosts", 1),
        .rules = json_pack("{s:s s:s s:[{s:s s:i}{s:s s:f}]}", "name", "test", "version", "1", "rules", "kind",
                           "min_requests", "min", 10, "kind", "max_failed_fraction", "max", 0.01),
        .backend = json_pack("{s:s s:s s:s s:{s:s}}", "name", "null", "version", "1", "class", result_class,
                             "config", "clock", "virtual"),
        .environment = json_pack("{s:s s:s}", "os", "Linux", "kernel", "6.1"),
    };
    cr_assert(d.workload && d.system && d.rules && d.backend && d.environment);
    return d;
}

void definitions_release(struct definitions *d) {
    json_decref(d->workload);
    json_decref(d->system);
    json_decref(d->rules);
    json_decref(d->backend);
    json_decref(d->environment);
}

struct run_begin begin_of(const struct definitions *d) {
    struct run_begin b = {
        .workload = d->workload,
        .workload_file = d->workload,
        .system = d->system,
        .rules = d->rules,
        .backend = d->backend,
        .environment = d->environment,
        .mode = "performance",
        .load_kind = "concurrency",
        .load_value = 4,
        .seed = "18446744073709551615",
        .started_wall_ns = clock_wall_ns(),
    };
    uuid_v7(b.uuid);
    return b;
}

struct load load_default(void) {
    return (struct load){.requests = 64, .concurrency = 4, .isl = 128, .osl = 16, .ttft_ns = 20000000,
                         .tpot_ns = 5000000, .jitter_ns = 1000000, .threads = 1, .seed = 7};
}

static uint64_t next_random(uint64_t *x) {
    *x = *x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *x >> 33;
}

/* One shard: `concurrency` lanes, each issuing its next request when the one before is done. The
 * lanes' events are merged by time. */
static void record_shard(const struct load *l, struct event_sink *sink, uint32_t shard) {
    struct lane {
        int64_t at;
        uint64_t request;
        uint32_t token; /* 0: to be issued; 1..osl: next token; osl + 1: to be ended */
        bool fails;
    } lane[64] = {0};
    uint64_t x = l->seed + shard, next = shard;
    int lanes = l->concurrency < 64 ? l->concurrency : 64;
    event_put(sink, 0, EVENT_MARK, MARK_RUN_BEGIN, 0, 0);
    event_put(sink, 0, EVENT_MARK, MARK_WINDOW_BEGIN, 0, 0);
    for (;;) {
        struct lane *k = NULL;
        for (int i = 0; i < lanes; i++)
            if ((lane[i].token || next < (uint64_t)l->requests) && (!k || lane[i].at < k->at))
                k = &lane[i];
        if (!k)
            break;
        int64_t jitter = (int64_t)(next_random(&x) % (uint64_t)(l->jitter_ns + 1));
        if (k->token == 0) {
            k->request = next;
            next += l->threads;
            k->fails = l->fail_every && (k->request + 1) % (uint64_t)l->fail_every == 0;
            event_put(sink, k->at, EVENT_ISSUE, k->request, 0, l->isl);
            k->token = k->fails ? l->osl + 1 : 1;
            k->at += l->ttft_ns + jitter;
        } else if (k->token <= l->osl) {
            event_put(sink, k->at, EVENT_TOKENS, k->request, 1, l->bound << EVENT_TOKENS_BOUND_SHIFT);
            if (k->token++ < l->osl)
                k->at += l->tpot_ns + jitter;
        } else {
            if (k->fails)
                event_put(sink, k->at, EVENT_FAIL, k->request, FAIL_RESET, 0);
            else
                event_put(sink, k->at, EVENT_DONE, k->request, l->osl,
                          l->isl | l->bound << EVENT_DONE_BOUND_SHIFT);
            k->token = 0;
        }
    }
    event_put(sink, sink->last_ns, EVENT_MARK, MARK_WINDOW_END, sink->last_ns, 0);
    event_put(sink, sink->last_ns, EVENT_MARK, MARK_RUN_END, 0, 0);
}

void load_record(const struct load *l, struct event_sink *sinks) {
    for (uint32_t i = 0; i < l->threads; i++)
        record_shard(l, &sinks[i], i);
}

void run_make(struct store *s, const struct definitions *d, const struct load *l, const struct secret_key *key,
              const char *campaign, struct run_handle *handle) {
    struct err e = {0};
    struct run_handle h;
    struct run_begin b = begin_of(d);
    b.campaign = campaign;
    b.load_value = l->concurrency;
    must(store_run_begin(s, &b, &h, &e), &e);

    struct event_sink sinks[16];
    struct log_writer *w;
    struct record_input in = {.begin = &b, .handle = &h};
    must(log_writer_open(s, &h, l->threads, sinks, &w, &e), &e);
    load_record(l, sinks);
    must(log_writer_close(w, &in.log_chunks, &in.log_bytes, in.log_digest, &e), &e);

    struct eventlog_source src;
    struct metrics m;
    struct metrics_facts facts = {.chips = json_integer_value(json_object_get(d->system, "chips")),
                                  .max_concurrency = l->concurrency};
    must(store_log_open(s, h.run_id, &src, &e), &e);
    must(metrics_compute(&src, &facts, &m, &e), &e);
    store_log_close(&src);

    struct rule_pack *pack;
    struct verdict v[RULES_MAX];
    struct rules_facts rf = {.seed = UINT64_MAX, .max_concurrency = l->concurrency};
    must(rules_from_json(d->rules, "test", &pack, &e), &e);
    in.nverdicts = rules_evaluate(pack, &m, &rf, v);
    in.verdicts = v;
    bool valid = true;
    for (int i = 0; i < in.nverdicts; i++)
        valid = valid && v[i].ok;

    json_t *clock = json_pack("{s:s s:b s:s s:b s:I}", "source", "discrete-event", "virtual", 1, "resolutionNs",
                              "1", "stepped", 0, "wallMinusMonotonicNs", (json_int_t)0);
    in.metrics = &m;
    in.facts = &facts;
    in.verdict = valid ? "VALID" : "INVALID";
    in.finished_wall_ns = clock_wall_ns();
    in.monotonic_duration_ns = m.duration_ns;
    in.result_class = json_string_value(json_object_get(d->system, "class"));
    in.system_name = json_string_value(json_object_get(d->system, "name"));
    in.chip = json_string_value(json_object_get(d->system, "chip"));
    in.chips = facts.chips;
    in.clock = clock;
    struct buf payload;
    struct dsse_signature sig;
    buf_init(&payload, DSSE_PAYLOAD_MAX_BYTES);
    /* two readings of a server that agrees with the client */
    struct series_log series;
    struct client_totals totals;
    unsigned char series_sha256[32];
    uint32_t source;
    series_log_init(&series);
    must(store_log_open(s, h.run_id, &src, &e), &e);
    must(client_totals_read(&src, &totals, &e), &e);
    store_log_close(&src);
    must(series_source_add(&series, "prometheus", "http://h:1/metrics", &source, &e), &e);
    for (uint32_t round = 0; round < 2; round++) {
        double tokens = 1000 + (round ? (double)totals.output_tokens : 0);
        must(series_put(&series, source, "vllm:generation_tokens_total", "{\"engine\":\"0\"}", PROM_COUNTER,
                        tokens, &e), &e);
        must(series_put(&series, source, "vllm:kv_cache_usage_perc", "{}", PROM_GAUGE,
                        round ? (double)NAN : 0.25, &e), &e);
        struct series_scrape scrape = {source, round, round * INT64_C(1000000000), 1000, 100, true};
        must(series_commit(&series, &scrape, false, &e), &e);
    }
    must(series_log_sort(&series, &e), &e);
    series_digest(&series, series_sha256);
    in.series_digest = series_sha256;
    const struct metric *ttft = metrics_find(&m, "ttft_ns", "mean"), *e2e = metrics_find(&m, "e2e_ns", "mean");
    struct server_compare compare = {.totals = totals,
                                     .ttft_mean_ns = ttft ? ttft->value : 0,
                                     .e2e_mean_ns = e2e ? e2e->value : 0};
    json_t *server;
    must(server_report(&series, totals.window_begin_ns, totals.window_begin_ns + m.duration_ns, &compare, &server, &e),
         &e);
    in.server = server;
    must(record_build(&in, &payload, &e), &e);
    must(dsse_sign(DSSE_PAYLOAD_TYPE, payload.p, payload.n, key, &sig, &e), &e);
    struct run_end end = {.verdict = in.verdict,
                          .finished_wall_ns = in.finished_wall_ns,
                          .duration_ns = m.duration_ns,
                          .metrics = &m,
                          .verdicts = v,
                          .nverdicts = in.nverdicts,
                          .payload = payload.p,
                          .payload_bytes = payload.n,
                          .signature = &sig,
                          .key = secret_key_public(key),
                          .series = &series};
    must(store_run_end(s, &h, &end, &e), &e);
    buf_release(&payload);
    series_log_release(&series);
    json_decref(server);
    json_decref(clock);
    rules_free(pack);
    metrics_release(&m);
    if (handle)
        *handle = h;
}

struct secret_key *key_of(unsigned char fill) {
    unsigned char seed[32];
    struct secret_key *k;
    struct err e = {0};
    memset(seed, fill, sizeof seed);
    must(secret_key_from_seed(seed, &k, &e), &e);
    return k;
}

sqlite3 *raw_open(const char *db) {
    sqlite3 *c;
    cr_assert(sqlite3_open(db, &c) == SQLITE_OK);
    sqlite3_busy_timeout(c, 5000);
    return c;
}

void raw_exec(sqlite3 *db, const char *sql) {
    char *text = NULL;
    int rc = sqlite3_exec(db, sql, NULL, NULL, &text);
    cr_assert(rc == SQLITE_OK, "%s: %s", sql, text ? text : "");
}

const char *raw_error(sqlite3 *db, const char *sql) {
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK ? "" : sqlite3_errmsg(db);
}

bool contains(const char *text, const char *part) {
    return strstr(text, part) != NULL;
}

bool raw_fails(sqlite3 *db, const char *sql) {
    return *raw_error(db, sql) != '\0';
}

int64_t raw_int(sqlite3 *db, const char *sql) {
    sqlite3_stmt *st;
    cr_assert(sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(db));
    int64_t v = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : -1;
    sqlite3_finalize(st);
    return v;
}

enum { TRIGGERS_MAX = 128 };
static char *triggers[TRIGGERS_MAX];

sqlite3 *raw_unguarded(const char *db) {
    sqlite3 *c = raw_open(db);
    sqlite3_stmt *st;
    char drop[TRIGGERS_MAX][160];
    int n = 0;
    cr_assert(sqlite3_prepare_v2(c, "SELECT name, sql FROM sqlite_schema WHERE type='trigger'", -1, &st, NULL) == 0);
    while (sqlite3_step(st) == SQLITE_ROW && n < TRIGGERS_MAX) {
        free(triggers[n]);
        triggers[n] = strdup((const char *)sqlite3_column_text(st, 1));
        snprintf(drop[n++], sizeof drop[0], "DROP TRIGGER \"%s\"", (const char *)sqlite3_column_text(st, 0));
    }
    if (n < TRIGGERS_MAX) {
        free(triggers[n]);
        triggers[n] = NULL;
    }
    sqlite3_finalize(st);
    raw_exec(c, "PRAGMA ignore_check_constraints=ON; PRAGMA synchronous=OFF; BEGIN");
    for (int i = 0; i < n; i++)
        raw_exec(c, drop[i]);
    raw_exec(c, "COMMIT");
    cr_assert(raw_int(c, "SELECT count(*) FROM sqlite_schema WHERE type='trigger'") == 0);
    return c;
}

void raw_reguard(sqlite3 *db) {
    raw_exec(db, "BEGIN");
    for (int i = 0; i < TRIGGERS_MAX && triggers[i]; i++) {
        raw_exec(db, triggers[i]);
        free(triggers[i]);
        triggers[i] = NULL;
    }
    raw_exec(db, "COMMIT");
    sqlite3_close(db);
}
