/* The event log under examination, and what follows from it: every chunk's digest, the whole log's
 * digest against the signed one, every metric computed again, every rule judged again. */
#include "harness/core/json.h"
#include "harness/core/options.h"
#include "results/record.h"
#include "results/verify_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double float_tolerance = 1e-12; /* relative; certification.md section 10 item 9 */

/* ---- chunks ---- */

/* The rows' own columns against the blobs. false: *why says what is wrong. */
static bool chunks_are_sound(struct store *s, int64_t run_id, struct err *why) {
    sqlite3_stmt *st = NULL;
    bool row = true;
    struct event_block *k = malloc(sizeof *k);
    if (!k) {
        err_set(why, ASSAY_ENOMEM, "out of memory");
        return false;
    }
    int rc = sql_prepare(
        &s->c,
        "SELECT thread, sequence, events, first_ns, last_ns, sha256, data FROM chunk WHERE run_id=?"
        " ORDER BY thread, sequence",
        &st, why);
    if (!rc)
        rc = sql_bind(&s->c, st, why, "i", run_id);
    int64_t thread = -1, next = 0;
    while (!rc && !(rc = sql_step(&s->c, st, &row, why)) && row) {
        int64_t t = sqlite3_column_int64(st, 0), q = sqlite3_column_int64(st, 1);
        const void *p = sqlite3_column_blob(st, 6);
        size_t n = (size_t)sqlite3_column_bytes(st, 6);
        unsigned char digest[32];
        next = t == thread ? next : 0;
        thread = t;
        sha256(p, n, digest);
        if (q != next++)
            rc = err_set(why, ASSAY_EINPUT, "thread %" PRId64 ": chunk %" PRId64 " is missing", t,
                         next - 1);
        else if (sqlite3_column_bytes(st, 5) != 32 ||
                 memcmp(digest, sqlite3_column_blob(st, 5), 32))
            rc = err_set(why, ASSAY_EINPUT,
                         "thread %" PRId64 " chunk %" PRId64 ": its SHA-256 differs", t, q);
        else if ((rc = eventlog_decode(p, n, k, why)))
            err_wrap(why, "thread %" PRId64 " chunk %" PRId64, t, q);
        else if (k->thread != t || k->sequence != (uint64_t)q ||
                 k->n != sqlite3_column_int64(st, 2) ||
                 k->time_ns[0] != sqlite3_column_int64(st, 3) ||
                 k->time_ns[k->n - 1] != sqlite3_column_int64(st, 4))
            rc = err_set(why, ASSAY_EINPUT,
                         "thread %" PRId64 " chunk %" PRId64 ": the row does not describe the blob",
                         t, q);
    }
    sqlite3_finalize(st);
    free(k);
    return !rc;
}

static bool check_chunks(struct store *s, int64_t run_id, const struct signed_record *rec,
                         struct report *r) {
    struct err why = {0};
    uint64_t chunks, bytes;
    unsigned char digest[32], signed_digest[32];
    int64_t want_chunks = -1, want_bytes = -1;
    if (log_digest(&s->c, run_id, &chunks, &bytes, digest, &why) ||
        record_subject(rec->statement, RECORD_SUBJECT_LOG, signed_digest, &why)) {
        report_error(r, "log", VERIFY_INVALID, &why);
        return false;
    }
    bool counted = integer_at(rec->predicate, "log.chunks", &want_chunks) &&
                   integer_at(rec->predicate, "log.bytes", &want_bytes);
    if (chunks == 0 && want_chunks > 0) {
        report_check(r, "log", false, VERIFY_INCOMPLETE,
                     "the event log is not here: %" PRId64 " chunks, %" PRId64 " bytes",
                     want_chunks, want_bytes);
        return false;
    }
    if (!chunks_are_sound(s, run_id, &why)) {
        report_error(r, "log", VERIFY_MISMATCH, &why);
        return false;
    }
    bool same = memcmp(digest, signed_digest, 32) == 0;
    bool sizes = counted && (uint64_t)want_chunks == chunks && (uint64_t)want_bytes == bytes;
    report_check(r, "log", same && sizes, VERIFY_MISMATCH,
                 same && sizes
                     ? "%" PRIu64 " chunks, %" PRIu64 " bytes: the digest is the signed one"
                     : "%" PRIu64 " chunks, %" PRIu64 " bytes: this is not the log that was signed",
                 chunks, bytes);
    return same && sizes;
}

/* ---- metrics ---- */

/* Order statistics of integers are equal or wrong; sums and ratios may differ in the last digits.
 */
static bool values_agree(const struct metric *m, double v) {
    bool order = m->stat[0] == 'p' || strcmp(m->stat, "min") == 0 || strcmp(m->stat, "max") == 0;
    if (m->value == v)
        return true;
    if (order && strcmp(m->unit, "tok/s") != 0)
        return false;
    double scale = fabs(m->value) > fabs(v) ? fabs(m->value) : fabs(v);
    return fabs(m->value - v) <= float_tolerance * scale;
}

static bool text_is(const json_t *o, const char *name, const char *want) {
    const char *s = text_at(o, name);
    return s && strcmp(s, want) == 0;
}

/* clientLo and clientHi: there when the client's error moves the figure. */
static bool client_agrees(const json_t *v, const struct metric *m) {
    const struct metric sides[] = {{.value = m->client_lo, .stat = "", .unit = ""},
                                   {.value = m->client_hi, .stat = "", .unit = ""}};
    static const char *const names[] = {"clientLo", "clientHi"};
    for (int i = 0; i < 2; i++) {
        double x;
        bool there = number_at(v, names[i], &x);
        if (there != metric_client_moves(m) || (there && !values_agree(&sides[i], x)))
            return false;
    }
    return true;
}

/* "" when the signed figure is the computed one. */
static void compare_metric(const json_t *v, const struct metric *m, char *out, size_t n) {
    double value, lo, hi, level;
    int64_t count;
    out[0] = '\0';
    if (!number_at(v, "value", &value) || !values_agree(m, value))
        snprintf(out, n, "%s %s: signed %.17g, the log gives %.17g", m->name, m->stat, value,
                 m->value);
    else if (!text_is(v, "unit", m->unit) || !text_is(v, "better", m->better))
        snprintf(out, n, "%s %s: another unit or direction", m->name, m->stat);
    else if (!integer_at(v, "n", &count) || count != m->n)
        snprintf(out, n, "%s %s: n differs", m->name, m->stat);
    else if ((m->ci_level > 0) != json_is_object(json_object_get(v, "ci")))
        snprintf(out, n, "%s %s: an interval is missing or invented", m->name, m->stat);
    else if (m->ci_level > 0 && (!number_at(v, "ci.lo", &lo) || !number_at(v, "ci.hi", &hi) ||
                                 !number_at(v, "ci.level", &level) || lo != m->ci_lo ||
                                 hi != m->ci_hi || level != m->ci_level))
        snprintf(out, n, "%s %s: the interval differs", m->name, m->stat);
    else if (!client_agrees(v, m))
        snprintf(out, n, "%s %s: what the client may have added differs", m->name, m->stat);
}

static void check_metrics(const struct signed_record *rec, const struct metrics *m,
                          struct report *r) {
    const json_t *list = json_object_get(rec->predicate, "metrics");
    char first[512] = "", one[512];
    int bad = 0;
    size_t n = json_array_size(list);
    if (n != (size_t)m->n) {
        snprintf(first, sizeof first, "%zu figures are signed, the log gives %d", n, m->n);
        bad++;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        const char *name = text_at(v, "name"), *stat = text_at(v, "stat");
        const struct metric *mine = name && stat ? metrics_find(m, name, stat) : NULL;
        if (mine)
            compare_metric(v, mine, one, sizeof one);
        else
            snprintf(one, sizeof one, "%s %s does not follow from the log", name ? name : "?",
                     stat ? stat : "?");
        if (one[0] && !bad++)
            snprintf(first, sizeof first, "%s", one);
    }
    report_findings(r, "metrics", VERIFY_MISMATCH, bad, first,
                    "%zu figures computed again from the log", n);
}

static void check_counts(const struct signed_record *rec, const struct metrics *m,
                         struct report *r) {
    const struct {
        const char *path;
        int64_t want;
    } counts[] = {
        {"counts.issued", m->issued},
        {"counts.completed", m->completed},
        {"counts.failed", m->failed},
        {"counts.inFlightAtEnd", m->in_flight_at_end},
        {"counts.warmupRequests", m->warmup_requests},
        {"counts.inputTokens", m->input_tokens},
        {"counts.outputTokens", m->output_tokens},
        {"counts.tokenEvents", m->token_events},
        {"counts.events", m->events},
        {"counts.windowNs", m->duration_ns},
    };
    char first[160] = "";
    int bad = 0;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        int64_t v = -1;
        if ((!integer_at(rec->predicate, counts[i].path, &v) || v != counts[i].want) && !bad++)
            snprintf(first, sizeof first, "%s: signed %" PRId64 ", the log gives %" PRId64,
                     counts[i].path, v, counts[i].want);
    }
    for (int i = 0; i < FAIL_CLASS_COUNT; i++) {
        char path[64];
        int64_t v = 0;
        snprintf(path, sizeof path, "counts.failedByClass.%s", fail_class_name(i));
        integer_at(rec->predicate, path, &v);
        if (v != m->failed_by_class[i] && !bad++)
            snprintf(first, sizeof first, "%s: signed %" PRId64 ", the log gives %" PRId64, path, v,
                     m->failed_by_class[i]);
    }
    report_findings(r, "counts", VERIFY_MISMATCH, bad, first,
                    "requests, tokens and events counted again");
}

/* ---- verdicts ---- */

static bool same_verdict(const json_t *v, const struct verdict *mine) {
    return text_is(v, "rule", mine->rule) && text_is(v, "want", mine->want) &&
           text_is(v, "got", mine->got) && text_is(v, "reasonCode", mine->reason_code) &&
           json_is_true(json_object_get(v, "ok")) == mine->ok;
}

static int load_rules(struct store *s, const json_t *predicate, struct rule_pack **pack,
                      struct err *e) {
    const char *hex = text_at(predicate, "rules.digest.sha256");
    unsigned char digest[32];
    sqlite3_stmt *st = NULL;
    bool row = false;
    json_t *doc = NULL;
    if (!hex || strlen(hex) != 64 || hex_decode(hex, 32, digest))
        return err_set(e, ASSAY_EINPUT, "the record names no rule pack");
    int rc = sql_prepare(&s->c, "SELECT doc FROM document WHERE digest=?", &st, e);
    if (!rc)
        rc = sql_bind(&s->c, st, e, "h", digest);
    if (!rc)
        rc = sql_step(&s->c, st, &row, e);
    if (!rc && !row)
        rc = err_set(e, ASSAY_EINPUT, "the rule pack is not in the store");
    if (!rc)
        rc = json_parse(sql_text(st, 0), (size_t)sqlite3_column_bytes(st, 0), "rule pack", &doc, e);
    sqlite3_finalize(st);
    if (!rc)
        rc = rules_from_json(doc, "rule pack", pack, e);
    json_decref(doc);
    return rc;
}

static void check_verdicts(struct store *s, const struct signed_record *rec,
                           const struct metrics *m, const struct metrics_facts *facts,
                           struct report *r) {
    const json_t *p = rec->predicate, *list = json_object_get(p, "verdicts");
    struct rule_pack *pack = NULL;
    struct verdict mine[RULES_MAX];
    struct err why = {0};
    struct rules_facts f = {.interrupted = m->interrupted,
                            .max_concurrency = facts->max_concurrency,
                            .real_clock = !json_is_true(json_at(p, "clock.virtual"))};
    const char *class = text_at(p, "system.class");
    f.no_system = class && !strcmp(class, "none");
    f.clock_stepped = f.real_clock && json_is_true(json_at(p, "clock.stepped"));
    const char *seed = text_at(p, "run.seed"), *verdict = text_at(p, "run.verdict");
    if (!seed || parse_u64(seed, &f.seed)) {
        report_check(r, "verdicts", false, VERIFY_INVALID, "the record's seed is not a number");
        return;
    }
    if (load_rules(s, p, &pack, &why)) {
        report_error(r, "verdicts", VERIFY_INCOMPLETE, &why);
        return;
    }
    int n = rules_evaluate(pack, m, &f, mine), bad = json_array_size(list) != (size_t)n;
    bool valid = true;
    char first[160] = "the number of verdicts differs";
    for (int i = 0; i < n; i++) {
        valid = valid && mine[i].ok;
        if (!same_verdict(json_array_get(list, (size_t)i), &mine[i]) && !bad++)
            snprintf(first, sizeof first, "rule %s: the log gives %s (%s)", mine[i].rule,
                     mine[i].ok ? "ok" : "not ok", mine[i].got);
    }
    if (!bad && (!verdict || (strcmp(verdict, "VALID") == 0) != valid)) {
        bad++;
        snprintf(first, sizeof first, "the run is %s by its rules, signed as %s",
                 valid ? "valid" : "invalid", verdict ? verdict : "nothing");
    }
    report_findings(r, "verdicts", VERIFY_MISMATCH, bad, first, "%d rules judged again", n);
    rules_free(pack);
}

void check_log(struct store *s, int64_t run_id, const struct signed_record *rec, struct report *r) {
    struct eventlog_source src;
    struct metrics_facts facts;
    struct metrics *m = calloc(1, sizeof *m);
    struct err why = {0};
    if (!m) {
        r->failed_memory = true;
        return;
    }
    if (!check_chunks(s, run_id, rec, r))
        goto out;
    int rc = record_facts(rec->predicate, &facts, &why);
    if (!rc)
        rc = store_log_open(s, run_id, &src, &why);
    if (!rc) {
        rc = metrics_compute(&src, &facts, m, &why);
        store_log_close(&src);
    }
    if (rc) {
        report_error(r, "metrics", VERIFY_MISMATCH, &why);
        goto out;
    }
    check_metrics(rec, m, r);
    check_counts(rec, m, r);
    check_verdicts(s, rec, m, &facts, r);
    metrics_release(m);
out:
    free(m);
}
