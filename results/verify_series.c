/* What was read beside the run: the stored series have the digest that was signed, and the server's
 * figures follow from them and from the event log. */
#include "harness/measure/server.h"
#include "harness/measure/telemetry.h"
#include "results/jcs.h"
#include "results/record.h"
#include "results/verify_internal.h"

#include <string.h>

/* The same bytes under the profile. */
static bool same_part(json_t *mine, const json_t *theirs, struct err *e) {
    struct buf a, b;
    json_t *copy = record_profile_copy(mine);
    buf_init(&a, DSSE_PAYLOAD_MAX_BYTES);
    buf_init(&b, DSSE_PAYLOAD_MAX_BYTES);
    bool same = copy && !jcs_encode(copy, &a, e) && !jcs_encode(theirs, &b, e) && !a.failed &&
                !b.failed && a.n == b.n && memcmp(a.p, b.p, a.n) == 0;
    buf_release(&a);
    buf_release(&b);
    json_decref(copy);
    return same;
}

/* Mean of a signed metric, 0 = none. */
static double mean_of(const json_t *predicate, const char *name) {
    const json_t *list = json_object_get(predicate, "metrics");
    double v = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *m = json_array_get(list, i);
        const char *n = text_at(m, "name"), *s = text_at(m, "stat");
        if (n && s && !strcmp(n, name) && !strcmp(s, "mean") && number_at(m, "value", &v))
            return v;
    }
    return 0;
}

static void check_power(struct series_log *l, int64_t begin_ns, int64_t end_ns,
                        const struct signed_record *rec, struct report *r) {
    const json_t *theirs = json_object_get(rec->predicate, "power");
    int64_t tokens = 0, chips = 0, gap_ns = 0;
    struct err why = {0};
    json_t *mine = NULL;
    integer_at(rec->predicate, "counts.outputTokens", &tokens);
    integer_at(rec->predicate, "facts.chips", &chips);
    integer_at(theirs, "gap_limit_ns", &gap_ns);
    if (power_report(l, begin_ns, end_ns, tokens, chips, gap_ns, &mine, &why)) {
        report_error(r, "power", VERIFY_MISMATCH, &why);
    } else if (mine || theirs) {
        bool same = mine && theirs && same_part(mine, theirs, &why);
        report_check(r, "power", same, VERIFY_MISMATCH,
                     same ? "the energy follows from the devices' readings"
                          : "the energy as signed does not follow from the devices' readings");
    }
    json_decref(mine);
}

static void check_server(struct store *s, int64_t run_id, struct series_log *l,
                         const struct signed_record *rec, struct report *r) {
    const json_t *theirs = json_object_get(rec->predicate, "server");
    struct eventlog_source src;
    struct err why = {0};
    struct server_compare c = {.ttft_mean_ns = mean_of(rec->predicate, "ttft_ns"),
                               .e2e_mean_ns = mean_of(rec->predicate, "e2e_ns"),
                               .prefixes = server_prefixes_of(theirs)};
    int64_t window = 0;
    json_t *mine = NULL;
    int rc = store_log_open(s, run_id, &src, &why);
    if (!rc) {
        rc = client_totals_read(&src, &c.totals, &why);
        store_log_close(&src);
    }
    integer_at(rec->predicate, "counts.windowNs", &window);
    if (!rc && __builtin_add_overflow(c.totals.window_begin_ns, window, &window))
        rc = err_set(&why, ASSAY_EINPUT, "the measured window has no end");
    if (!rc)
        rc = server_report(l, c.totals.window_begin_ns, window, &c, &mine, &why);
    if (rc) {
        report_error(r, "server", VERIFY_MISMATCH, &why);
    } else if (mine || theirs) {
        bool same = mine && theirs && same_part(mine, theirs, &why);
        report_check(r, "server", same, VERIFY_MISMATCH,
                     same ? "the server's figures follow from its series"
                          : "the server's figures as signed do not follow from its series");
    }
    json_decref(mine);
    check_power(l, c.totals.window_begin_ns, window, rec, r);
}

/* Whether an earlier check has passed: what follows from a changed log says nothing. */
static bool passed(const struct report *r, const char *check) {
    for (size_t i = 0; i < json_array_size(r->checks); i++) {
        const json_t *c = json_array_get(r->checks, i);
        const char *name = json_string_value(json_object_get(c, "check"));
        if (name && !strcmp(name, check))
            return json_is_true(json_object_get(c, "ok"));
    }
    return false;
}

void check_series(struct store *s, int64_t run_id, const struct signed_record *rec,
                  struct report *r) {
    unsigned char want[32], got[32];
    struct series_log l;
    struct err why = {0};
    bool is_signed = record_subject(rec->statement, RECORD_SUBJECT_SERIES, want, NULL) == 0;
    int rc = store_series_load(s, run_id, &l, &why);
    if (rc) {
        report_error(r, "series", VERIFY_MISMATCH, &why);
    } else if (is_signed || l.nsources || l.nscrapes || l.nseries || l.nsamples) {
        series_digest(&l, got);
        bool same = is_signed && memcmp(want, got, sizeof got) == 0;
        report_check(r, "series", same, VERIFY_MISMATCH,
                     same        ? "%zu series, %zu samples of %zu sources"
                     : is_signed ? "the stored series (%zu with %zu samples of %zu sources) are not those that "
                                   "were signed"
                                 : "%zu series with %zu samples of %zu sources are stored, none was signed",
                     l.nseries, l.nsamples, l.nsources);
        if (same && passed(r, "log"))
            check_server(s, run_id, &l, rec, r);
    }
    series_log_release(&l);
}
