/* The verifier: order of the checks, the report, envelope files. What is checked of a stored run is
 * in verify_rows.c, verify_log.c and verify_register.c. Source: certification.md section 10. */
#include "results/verify.h"

#include "harness/core/json.h"
#include "harness/core/options.h"
#include "results/jcs.h"
#include "results/record.h"
#include "results/verify_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENVELOPE_MAX_BYTES = 2 * DSSE_PAYLOAD_MAX_BYTES, KEYS_MAX = 256 };

const char *verify_outcome_name(enum verify_outcome o) {
    static const char *const names[] = {
        [VERIFY_OK] = "OK",
        [VERIFY_UNTRUSTED] = "UNTRUSTED",
        [VERIFY_INVALID] = "INVALID",
        [VERIFY_EXPIRED] = "EXPIRED",
        [VERIFY_REVOKED] = "REVOKED",
        [VERIFY_INCOMPLETE] = "INCOMPLETE",
        [VERIFY_MISMATCH] = "MISMATCH",
        [VERIFY_REGISTER] = "REGISTER",
    };
    return (size_t)o < sizeof names / sizeof names[0] ? names[o] : "UNKNOWN";
}

/* ---- report ---- */

/* Which of two failures names the whole: a false record outweighs an unknown signer. */
int report_severity(enum verify_outcome o) {
    static const int of[] = {
        [VERIFY_OK] = 0,      [VERIFY_INCOMPLETE] = 1, [VERIFY_UNTRUSTED] = 2, [VERIFY_EXPIRED] = 3,
        [VERIFY_REVOKED] = 4, [VERIFY_REGISTER] = 5,   [VERIFY_MISMATCH] = 6,  [VERIFY_INVALID] = 7,
    };
    return of[o];
}

int report_init(struct report *r, struct err *e) {
    *r = (struct report){.root = json_object(), .checks = json_array()};
    if (r->root && r->checks && json_object_set(r->root, "checks", r->checks) == 0)
        return 0;
    json_decref(r->root);
    json_decref(r->checks);
    return err_set(e, ASSAY_ENOMEM, "out of memory");
}

static void report_add(struct report *r, const char *check, bool ok, enum verify_outcome bad,
                       const char *detail) {
    json_t *c = json_pack("{s:s s:b s:s}", "check", check, "ok", ok, "detail", detail);
    if (!c) /* a stored text that is not UTF-8 */
        c = json_pack("{s:s s:b s:s}", "check", check, "ok", ok, "detail",
                      "(the detail cannot be shown: it is not UTF-8)");
    if (json_array_append_new(r->checks, c))
        r->failed_memory = true;
    if (!ok && report_severity(bad) > report_severity(r->worst))
        r->worst = bad;
}

void report_check(struct report *r, const char *check, bool ok, enum verify_outcome bad,
                  const char *fmt, ...) {
    char detail[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(detail, sizeof detail, fmt, ap);
    va_end(ap);
    report_add(r, check, ok, bad, detail);
}

void report_findings(struct report *r, const char *check, enum verify_outcome bad, int64_t n,
                     const char *first, const char *fmt, ...) {
    char detail[1024];
    if (n) {
        snprintf(detail, sizeof detail, "%s%s", first, n > 1 ? " (and more)" : "");
    } else {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(detail, sizeof detail, fmt, ap);
        va_end(ap);
    }
    report_add(r, check, !n, bad, detail);
}

void report_error(struct report *r, const char *check, enum verify_outcome bad,
                  const struct err *e) {
    report_add(r, check, false, bad, e->text);
}

/* Takes the report apart: *out gets the JSON. */
int report_finish(struct report *r, enum verify_outcome *outcome, json_t **out, struct err *e) {
    bool bad = r->failed_memory ||
               json_object_set_new(r->root, "outcome", json_string(verify_outcome_name(r->worst)));
    json_decref(r->checks);
    *outcome = r->worst;
    *out = r->root;
    if (!bad)
        return 0;
    json_decref(r->root);
    *out = NULL;
    return err_set(e, ASSAY_ENOMEM, "out of memory");
}

void report_drop(struct report *r) {
    json_decref(r->checks);
    json_decref(r->root);
}

/* ---- reading JSON ---- */

const json_t *json_at(const json_t *o, const char *path) {
    char key[64];
    while (o && *path) {
        size_t n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        o = json_object_get(o, key);
        path += n + (path[n] == '.');
    }
    return o;
}

const char *text_at(const json_t *o, const char *path) {
    return json_string_value(json_at(o, path));
}

bool number_at(const json_t *o, const char *path, double *out) {
    const json_t *v = json_at(o, path);
    if (json_is_number(v))
        *out = json_number_value(v);
    return json_is_number(v) || (json_is_string(v) && parse_f64(json_string_value(v), out) == 0);
}

bool integer_at(const json_t *o, const char *path, int64_t *out) {
    const json_t *v = json_at(o, path);
    if (json_is_integer(v))
        *out = json_integer_value(v);
    return json_is_integer(v) || (json_is_string(v) && parse_i64(json_string_value(v), out) == 0);
}

/* ---- the envelope ---- */

void signed_record_release(struct signed_record *s) {
    dsse_release(&s->dsse);
    json_decref(s->statement);
    *s = (struct signed_record){0};
}

/* Genuine: verifies under a key at hand. Trusted: that key counts here. Each key counts once,
 * whatever key ids the envelope names. */
void check_signatures(const struct dsse *d, const struct public_key *trusted, int ntrusted,
                      const struct public_key *stored, int nstored, struct report *r) {
    struct err e = {0};
    int distinct = 0, genuine = 0;
    bool *matched = calloc((size_t)(ntrusted + nstored) + 1, sizeof *matched);
    if (!matched) {
        r->failed_memory = true;
        return;
    }
    json_t *signers = json_array();
    bool first_ok = dsse_verify(d, trusted, ntrusted, matched, &distinct, &e) == 0;
    if (first_ok && dsse_verify(d, stored, nstored, matched + ntrusted, &genuine, &e) == 0) {
        /* a signature that names a key at hand and does not verify under it was changed */
        int bad = 0, unknown = 0;
        for (int i = 0; i < d->nsig; i++) {
            struct dsse one = *d;
            one.sig[0] = d->sig[i];
            one.nsig = 1;
            int under_trusted = 0, under_stored = 0;
            if (dsse_verify(&one, trusted, ntrusted, matched, &under_trusted, &e) ||
                dsse_verify(&one, stored, nstored, matched, &under_stored, &e))
                break;
            bool known = false;
            for (int k = 0; k < ntrusted + nstored; k++)
                known = known || strcmp((k < ntrusted ? trusted[k] : stored[k - ntrusted]).keyid,
                                        d->sig[i].keyid) == 0;
            bool good = under_trusted || under_stored;
            bad += !good && known;
            unknown += !good && !known;
            json_t *one_json = json_pack("{s:s s:s}", "keyid", d->sig[i].keyid, "status",
                                         under_trusted  ? "trusted"
                                         : under_stored ? "untrusted"
                                         : known        ? "bad"
                                                        : "unknown");
            if (json_array_append_new(signers, one_json))
                r->failed_memory = true;
        }
        report_findings(
            r, "signatures", VERIFY_INVALID, d->nsig ? bad : 1,
            d->nsig ? "a signature does not belong to these bytes" : "there is no signature",
            "%d signature%s, %d of unknown keys", d->nsig, d->nsig == 1 ? "" : "s", unknown);
        if (d->nsig > 0 && !bad)
            report_check(
                r, "trust", distinct > 0, VERIFY_UNTRUSTED,
                distinct > 0
                    ? "signed by %d trusted key%s; %d signature%s of other keys"
                    : "signed by %d trusted key%s; %d signature%s of keys that do not count here",
                distinct, distinct == 1 ? "" : "s", d->nsig - distinct,
                d->nsig - distinct == 1 ? "" : "s");
    } else {
        report_error(r, "signatures", VERIFY_INVALID, &e);
    }
    if (json_object_set_new(r->root, "signers", signers) ||
        json_object_set_new(r->root, "trust", json_string(distinct > 0 ? "trusted" : "untrusted")))
        r->failed_memory = true;
    free(matched);
}

void check_statement(struct signed_record *s, struct report *r) {
    struct err e = {0};
    const struct dsse *d = &s->dsse;
    report_check(r, "payload_type", strcmp(d->payload_type, DSSE_PAYLOAD_TYPE) == 0, VERIFY_INVALID,
                 "%s", d->payload_type);
    if (record_parse(d->payload.p, d->payload.n, &s->statement, &s->predicate, &e)) {
        report_error(r, "statement", VERIFY_INVALID, &e);
        return;
    }
    report_check(r, "statement", true, VERIFY_INVALID, "in-toto statement with %zu subjects",
                 json_array_size(json_object_get(s->statement, "subject")));
    struct buf again;
    buf_init(&again, DSSE_PAYLOAD_MAX_BYTES);
    int rc = jcs_encode(s->statement, &again, &e);
    bool same = !rc && !again.failed && again.n == d->payload.n &&
                memcmp(again.p, d->payload.p, again.n) == 0;
    report_check(r, "canonical", same, VERIFY_INVALID,
                 same ? "%zu bytes of canonical JSON" : "the %zu bytes are not canonical JSON",
                 d->payload.n);
    buf_release(&again);
    const char *const members[][2] = {{"run", "run.runId"},
                                      {"class", "system.class"},
                                      {"chip", "system.accelerator"},
                                      {"verdict", "run.verdict"}};
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        const char *v = text_at(s->predicate, members[i][1]);
        if (v && json_object_set_new(r->root, members[i][0], json_string(v)))
            r->failed_memory = true;
    }
    int64_t chips;
    if (integer_at(s->predicate, "system.accelerators", &chips) && chips > 0 &&
        json_object_set_new(r->root, "chips", json_integer(chips)))
        r->failed_memory = true;
}

int verify_file(const char *path, const struct public_key *trusted, int ntrusted,
                enum verify_outcome *outcome, json_t **report, struct err *e) {
    struct buf text;
    struct report r;
    struct err found = {0};
    struct signed_record rec = {0};
    *report = NULL;
    int rc = buf_read_file(&text, path, ENVELOPE_MAX_BYTES, e);
    if (!rc)
        rc = report_init(&r, e);
    if (rc) {
        buf_release(&text);
        return rc;
    }
    if (dsse_parse(text.p, text.n, path, &rec.dsse, &found)) {
        report_error(&r, "envelope", VERIFY_INVALID, &found);
    } else {
        check_signatures(&rec.dsse, trusted, ntrusted, NULL, 0, &r);
        check_statement(&rec, &r);
        report_check(&r, "log", false, VERIFY_INCOMPLETE,
                     "an envelope alone holds no event log and no register: its figures were not "
                     "computed again");
    }
    signed_record_release(&rec);
    buf_release(&text);
    return report_finish(&r, outcome, report, e);
}

/* ---- a stored run ---- */

/* The store's own keys: never trusted, but good enough to see that a signature is genuine. */
static int load_keys(struct store *s, int64_t run_id, struct public_key *keys, int *n,
                     struct report *r, struct err *e) {
    sqlite3_stmt *st = NULL;
    bool row = true, sound = true;
    *n = 0;
    int rc = sql_prepare(
        &s->c,
        "SELECT keyid, public FROM key WHERE keyid IN(SELECT keyid FROM signature JOIN envelope "
        "USING(payload_sha256) WHERE run_id=?)",
        &st, e);
    if (!rc)
        rc = sql_bind(&s->c, st, e, "i", run_id);
    while (!rc && *n < KEYS_MAX && !(rc = sql_step(&s->c, st, &row, e)) && row) {
        struct err why = {0};
        const char *id = sql_text(st, 0);
        struct public_key *k = &keys[*n];
        if (sqlite3_column_bytes(st, 1) != 32 ||
            public_key_from_raw(sqlite3_column_blob(st, 1), k, &why) || strcmp(k->keyid, id) != 0) {
            report_check(r, "keys", false, VERIFY_INVALID,
                         "the stored key '%s' is not the key of that id", id);
            sound = false;
        } else {
            ++*n;
        }
    }
    sqlite3_finalize(st);
    int64_t loose = 0;
    if (!rc)
        rc = sql_get_int(&s->c, e, &loose, NULL,
                         "SELECT count(*) FROM signature JOIN envelope USING(payload_sha256) WHERE "
                         "run_id=? AND keyid NOT IN"
                         "(SELECT keyid FROM key)",
                         "i", run_id);
    if (!rc && loose) {
        report_check(r, "keys", false, VERIFY_INVALID,
                     "a signature names a key that is not stored");
        sound = false;
    }
    if (!rc && sound)
        report_check(r, "keys", true, VERIFY_INVALID, "%d stored key%s", *n, *n == 1 ? "" : "s");
    return rc;
}

static int check_envelope(struct store *s, int64_t run_id, const struct public_key *trusted,
                          int ntrusted, struct signed_record *rec, struct report *r,
                          struct err *e) {
    struct err why = {0};
    int nkeys, rc = store_envelope(s, run_id, &rec->dsse, &why);
    if (rc) {
        report_error(r, "record", rc == ASSAY_EINPUT ? VERIFY_INVALID : VERIFY_INCOMPLETE, &why);
        return 0;
    }
    sha256(rec->dsse.payload.p, rec->dsse.payload.n, rec->sha256);
    int64_t agree;
    rc = sql_get_int(
        &s->c, e, &agree, NULL,
        "SELECT count(*) FROM run_end e JOIN envelope v USING(run_id) WHERE e.run_id=?1 AND "
        "e.payload_sha256=?2 AND v.payload_sha256=?2",
        "ih", run_id, rec->sha256);
    if (rc)
        return rc;
    char hex[SHA256_HEX];
    hex_encode(rec->sha256, 32, hex);
    report_check(r, "record", agree == 1, VERIFY_INVALID,
                 agree == 1 ? "payload SHA-256 %s"
                            : "the payload's SHA-256 is %s, the rows name another",
                 hex);
    if (json_object_set_new(r->root, "record_sha256", json_string(hex)))
        r->failed_memory = true;
    struct public_key *keys = calloc(KEYS_MAX, sizeof *keys);
    if (!keys)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    rc = load_keys(s, run_id, keys, &nkeys, r, e);
    if (!rc)
        check_signatures(&rec->dsse, trusted, ntrusted, keys, nkeys, r);
    free(keys);
    check_statement(rec, r);
    return rc;
}

/* The fate of a run that has no record: open or aborted. */
static int check_without_record(struct store *s, const struct register_state *g, int64_t run_id,
                                const char *uuid, bool *has_record, struct report *r,
                                struct err *e) {
    sqlite3_stmt *st = NULL;
    bool row = false;
    int rc = sql_prepare(
        &s->c,
        "SELECT verdict, reason, record_sha256 IS NOT NULL AND record_sha256<>'', class, chip,"
        " (SELECT count(*) FROM envelope v WHERE v.run_id=r.run_id) FROM v_run r WHERE run_id=?",
        &st, e);
    if (!rc)
        rc = sql_bind(&s->c, st, e, "i", run_id);
    if (!rc)
        rc = sql_step(&s->c, st, &row, e);
    *has_record = !rc && row && (sqlite3_column_int(st, 2) || sqlite3_column_int(st, 5));
    if (!rc && !row) {
        report_check(r, "rows", false, VERIFY_MISMATCH, "the run's rows are incomplete");
    } else if (!rc && !*has_record) {
        const char *verdict = sql_text(st, 0), *reason = sql_text(st, 1);
        bool aborted = strcmp(verdict, "ABORTED") == 0;
        const struct run_entry *entry = register_find(g, uuid);
        report_check(r, "record", aborted, aborted ? VERIFY_OK : VERIFY_INCOMPLETE,
                     aborted ? "the run was aborted (%s): it has no record and no figures"
                             : "the run is %s: it has no record yet",
                     aborted && reason ? reason : "open");
        bool agrees = entry && (aborted ? entry->fate == FATE_ABORTED : entry->fate == FATE_OPEN);
        report_check(r, "register_entries", agrees, VERIFY_REGISTER,
                     agrees ? "the register says the same"
                            : "the register does not say that the run is %s",
                     verdict);
        if (json_object_set_new(r->root, "class", json_string(sql_text(st, 3))) ||
            json_object_set_new(r->root, "chip", json_string(sql_text(st, 4))))
            r->failed_memory = true;
    }
    sqlite3_finalize(st);
    return rc;
}

int check_stored_run(struct store *s, const struct register_state *g, int64_t run_id,
                     const char *uuid, const struct public_key *trusted, int ntrusted,
                     bool with_campaign, struct report *r, struct err *e) {
    struct signed_record rec = {0};
    bool has_record;
    if (json_object_set_new(r->root, "run", json_string(uuid)))
        r->failed_memory = true;
    int rc = check_without_record(s, g, run_id, uuid, &has_record, r, e);
    if (!rc && has_record)
        rc = check_envelope(s, run_id, trusted, ntrusted, &rec, r, e);
    if (!rc && rec.predicate) {
        check_documents(s, &rec, r);
        check_log(s, run_id, &rec, r);
        check_series(s, run_id, &rec, r);
        check_rows(s, run_id, &rec, r);
        check_registered(g, uuid, &rec, r);
    }
    if (!rc && with_campaign)
        rc = report_campaign(s, g, uuid, rec.predicate, r, e);
    signed_record_release(&rec);
    return rc;
}

int verify_run(struct store *s, const char *ref, const struct public_key *trusted, int ntrusted,
               enum verify_outcome *outcome, json_t **report, struct err *e) {
    struct report r;
    struct register_state *g = NULL;
    int64_t run_id;
    char uuid[RUN_UUID];
    *report = NULL;
    int rc = store_find_run(s, ref, &run_id, uuid, e);
    if (!rc)
        rc = report_init(&r, e);
    if (rc)
        return rc;
    rc = register_load(s, &g, &r, e);
    if (!rc)
        rc = check_stored_run(s, g, run_id, uuid, trusted, ntrusted, true, &r, e);
    register_free(g);
    if (!rc)
        return report_finish(&r, outcome, report, e);
    report_drop(&r);
    return rc;
}
