/* The verifier on sound stores and on envelope files: what it says, and about whom. Attacks are in
 * test_verify_tamper.c. */
#include "harness/core/json.h"
#include "results/dsse.h"
#include "results/store_internal.h"
#include "results/verify.h"
#include "tests/results/fixture.h"
#include "tests/results/vectors.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct scratch dir;
static struct store *s;
static struct secret_key *key, *other;
static struct definitions d;

static void setup(void) {
    struct err e = {0};
    dir = scratch_make();
    key = key_of(1);
    other = key_of(2);
    d = definitions_make("chat", "v6e", 8, "simulated");
    must(store_open(dir.db, STORE_WRITE, &s, NULL, &e), &e);
}
static void teardown(void) {
    store_close(s);
    scratch_remove(&dir);
    definitions_release(&d);
    secret_key_free(key);
    secret_key_free(other);
}
TestSuite(results_verify, .init = setup, .fini = teardown, .timeout = 60);

static const char *text(const json_t *o, const char *name) {
    const char *t = json_string_value(json_object_get(o, name));
    return t ? t : "";
}

static bool is_ok(const json_t *check) {
    return json_is_true(json_object_get(check, "ok"));
}

static void all_ok(const json_t *report) {
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(report, "checks"), i, c)
        cr_assert(is_ok(c), "%s: %s", text(c, "check"), text(c, "detail"));
    cr_assert(eq(str, (char *)text(report, "outcome"), "OK"));
}

static json_t *check_named(const json_t *report, const char *name) {
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(report, "checks"), i, c)
        if (strcmp(text(c, "check"), name) == 0)
            return c;
    return NULL;
}

/* Three runs of one campaign with their own speed: the second is the best, the third the worst. */
static void three_runs(struct run_handle h[3]) {
    static const int64_t tpot[] = {5000000, 4000000, 6000000};
    struct load l = load_default();
    for (int i = 0; i < 3; i++) {
        l.tpot_ns = tpot[i];
        run_make(s, &d, &l, key, "the-campaign", &h[i]);
    }
}

Test(results_verify, a_sound_run_is_ok_in_every_respect) {
    struct run_handle h[3];
    struct err e = {0};
    enum verify_outcome outcome;
    json_t *r;
    three_runs(h);
    for (int i = 0; i < 3; i++) {
        must(verify_run(s, h[i].uuid, secret_key_public(key), 1, &outcome, &r, &e), &e);
        all_ok(r);
        cr_assert(eq(int, outcome, VERIFY_OK));
        cr_assert(eq(str, (char *)text(r, "run"), h[i].uuid));
        cr_assert(eq(str, (char *)text(r, "class"), "simulated"));
        cr_assert(eq(str, (char *)text(r, "chip"), "v6e"));
        cr_assert(eq(str, (char *)text(r, "trust"), "trusted"));
        json_decref(r);
    }
    static const char *const wanted[] = {"record", "signatures", "trust", "payload_type", "statement", "canonical",
                                         "workload", "system", "rules", "environment", "backend", "log", "metrics",
                                         "counts", "verdicts", "rows", "register", "register_entries"};
    must(verify_run(s, "latest", secret_key_public(key), 1, &outcome, &r, &e), &e);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        cr_assert(check_named(r, wanted[i]) != NULL, "no check '%s'", wanted[i]);
    json_decref(r);
}

Test(results_verify, the_campaign_is_told) {
    struct run_handle h[3];
    struct err e = {0};
    enum verify_outcome outcome;
    json_t *r;
    static const int rank[] = {2, 1, 3};
    three_runs(h);
    struct load bad = load_default();
    bad.fail_every = 2;
    run_make(s, &d, &bad, key, "the-campaign", NULL);
    struct run_begin b = begin_of(&d);
    b.campaign = "the-campaign";
    struct run_handle open;
    must(store_run_begin(s, &b, &open, &e), &e);
    struct run_end end = {.verdict = "ABORTED", .abort_reason = "gave up"};
    must(store_run_end(s, &open, &end, &e), &e);
    for (int i = 0; i < 3; i++) {
        must(verify_run(s, h[i].uuid, secret_key_public(key), 1, &outcome, &r, &e), &e);
        json_t *c = json_object_get(r, "campaign");
        cr_assert(eq(str, (char *)text(c, "name"), "the-campaign"));
        cr_assert(eq(i64, json_integer_value(json_object_get(c, "started")), 5));
        cr_assert(eq(i64, json_integer_value(json_object_get(c, "valid")), 3));
        cr_assert(eq(i64, json_integer_value(json_object_get(c, "invalid")), 1));
        cr_assert(eq(i64, json_integer_value(json_object_get(c, "aborted")), 1));
        cr_assert(eq(i64, json_integer_value(json_object_get(c, "rank")), rank[i]));
        cr_assert(eq(str, (char *)text(c, "metric"), "output_tokens_per_s"));
        cr_assert(contains(text(c, "text"), "3 of 5 started runs were valid"), "%s", text(c, "text"));
        json_decref(r);
    }
}

Test(results_verify, an_invalid_run_is_a_true_record_of_it) {
    struct load l = load_default();
    struct err e = {0};
    enum verify_outcome outcome;
    json_t *r;
    l.fail_every = 2;
    run_make(s, &d, &l, key, NULL, NULL);
    must(verify_run(s, "latest", secret_key_public(key), 1, &outcome, &r, &e), &e);
    all_ok(r);
    cr_assert(eq(str, (char *)text(r, "verdict"), "INVALID"));
    json_decref(r);
}

Test(results_verify, nobodys_signature_is_untrusted) {
    struct load l = load_default();
    struct err e = {0};
    enum verify_outcome outcome;
    json_t *r;
    run_make(s, &d, &l, key, NULL, NULL);
    must(verify_run(s, "latest", NULL, 0, &outcome, &r, &e), &e);
    cr_assert(eq(int, outcome, VERIFY_UNTRUSTED));
    json_decref(r);
    must(verify_run(s, "latest", secret_key_public(other), 1, &outcome, &r, &e), &e);
    cr_assert(eq(int, outcome, VERIFY_UNTRUSTED));
    cr_assert(eq(str, (char *)text(r, "trust"), "untrusted"));
    cr_assert(is_ok(check_named(r, "signatures")));
    json_decref(r);
}

Test(results_verify, open_and_aborted_runs_have_no_figures) {
    struct run_begin b = begin_of(&d);
    struct run_handle h;
    struct err e = {0};
    enum verify_outcome outcome;
    json_t *r;
    must(store_run_begin(s, &b, &h, &e), &e);
    must(verify_run(s, "latest", secret_key_public(key), 1, &outcome, &r, &e), &e);
    cr_assert(eq(int, outcome, VERIFY_INCOMPLETE));
    json_decref(r);
    must(verify_store(s, secret_key_public(key), 1, &outcome, &r, &e), &e); /* it may be running */
    cr_assert(eq(int, outcome, VERIFY_OK));
    cr_assert(eq(i64, json_integer_value(json_object_get(json_object_get(r, "runs"), "open")), 1));
    json_decref(r);
    struct run_end end = {.verdict = "ABORTED", .abort_reason = "gave up"};
    must(store_run_end(s, &h, &end, &e), &e);
    must(verify_run(s, "latest", secret_key_public(key), 1, &outcome, &r, &e), &e);
    cr_assert(eq(int, outcome, VERIFY_OK));
    cr_assert(contains(text(check_named(r, "record"), "detail"), "gave up"));
    json_decref(r);
    cr_assert(eq(int, verify_run(s, "ffffffff", NULL, 0, &outcome, &r, &e), ASSAY_EUSAGE));
}

Test(results_verify, a_sound_store_is_ok) {
    struct run_handle h[3];
    struct err e = {0};
    enum verify_outcome outcome;
    json_t *r;
    must(verify_store(s, NULL, 0, &outcome, &r, &e), &e); /* an empty one, too */
    cr_assert(eq(int, outcome, VERIFY_OK));
    json_decref(r);
    three_runs(h);
    must(verify_store(s, secret_key_public(key), 1, &outcome, &r, &e), &e);
    all_ok(r);
    cr_assert(eq(i64, json_integer_value(json_object_get(json_object_get(r, "runs"), "ok")), 3));
    json_decref(r);
    /* and so it is for a reader */
    store_close(s);
    must(store_open(dir.db, STORE_READ, &s, NULL, &e), &e);
    must(verify_store(s, secret_key_public(key), 1, &outcome, &r, &e), &e);
    all_ok(r);
    json_decref(r);
}

Test(results_verify, a_log_of_many_threads_verifies) {
    struct load l = load_default();
    struct err e = {0};
    enum verify_outcome outcome;
    json_t *r;
    l.threads = 4;
    l.requests = 2000;
    run_make(s, &d, &l, key, NULL, NULL);
    must(verify_run(s, "latest", secret_key_public(key), 1, &outcome, &r, &e), &e);
    all_ok(r);
    json_decref(r);
}

/* certification.md section 8: an entry older than the one before by more than a second says so. */
Test(results_verify, a_clock_that_was_set_back_is_told) {
    struct run_begin b = begin_of(&d);
    struct run_handle h;
    struct err e = {0};
    enum verify_outcome outcome;
    json_t *r;
    static const int64_t back[] = {0, 500000000, 5000000000};
    int64_t now = b.started_wall_ns;
    for (int i = 0; i < 3; i++) {
        uuid_v7(b.uuid);
        b.started_wall_ns = now - back[i];
        must(store_run_begin(s, &b, &h, &e), &e);
    }
    cr_assert(eq(i64, raw_int(store_sqlite(s), "SELECT sum((json_extract(entry,'$.clockRegressed') IS 1)<<seq) FROM register_entry"), 4));
    must(verify_store(s, NULL, 0, &outcome, &r, &e), &e);
    cr_assert(eq(int, outcome, VERIFY_OK));
    json_decref(r);
    sqlite3 *c = raw_unguarded(dir.db); /* without the flag it is a finding */
    raw_exec(c, "UPDATE register_entry SET at_ns=at_ns+9000000000 WHERE seq=0");
    raw_reguard(c);
    must(verify_store(s, NULL, 0, &outcome, &r, &e), &e);
    cr_assert(eq(int, outcome, VERIFY_REGISTER));
    json_decref(r);
}

/* ---- checkpoints ---- */

Test(results_verify, a_register_extends_its_checkpoints) {
    struct run_handle h[3];
    struct err e = {0};
    enum verify_outcome outcome;
    json_t *r;
    struct buf note, vkey;
    buf_init(&note, 4096);
    buf_init(&vkey, 4096);
    cr_assert(eq(int, store_checkpoint(s, "assay.test/log", key, &note, &e), ASSAY_EUSAGE)); /* empty */
    three_runs(h);
    must(store_checkpoint(s, "assay.test/log", key, &note, &e), &e);
    must(checkpoint_vkey("assay.test/log", secret_key_public(key), &vkey), &e);
    struct load l = load_default();
    run_make(s, &d, &l, key, NULL, NULL);
    must(verify_checkpoint(s, note.p, note.n, vkey.p, &outcome, &r, &e), &e);
    all_ok(r);
    json_decref(r);
    note.p[note.n / 3] ^= 1;
    must(verify_checkpoint(s, note.p, note.n, vkey.p, &outcome, &r, &e), &e);
    cr_assert(eq(int, outcome, VERIFY_INVALID));
    json_decref(r);
    buf_release(&note);
    buf_release(&vkey);
}

/* ---- files ---- */

static void write_text(const char *path, const char *p, size_t n) {
    FILE *f = fopen(path, "wb");
    cr_assert(f && fwrite(p, 1, n, f) == n && fclose(f) == 0);
}

static enum verify_outcome look_at(const char *p, size_t n, const struct public_key *trusted, int ntrusted) {
    struct err e = {0};
    enum verify_outcome outcome;
    json_t *r;
    char path[400];
    snprintf(path, sizeof path, "%s/e.json", dir.dir);
    write_text(path, p, n);
    must(verify_file(path, trusted, ntrusted, &outcome, &r, &e), &e);
    json_decref(r);
    return outcome;
}

Test(results_verify, an_envelope_alone_is_incomplete) {
    struct load l = load_default();
    struct err e = {0};
    struct dsse env;
    struct buf out;
    struct run_handle h;
    run_make(s, &d, &l, key, NULL, &h);
    must(store_envelope(s, h.run_id, &env, &e), &e);
    buf_init(&out, 4 << 20);
    must(dsse_print(env.payload_type, env.payload.p, env.payload.n, env.sig, env.nsig, &out, &e), &e);
    cr_assert(eq(int, look_at(out.p, out.n, secret_key_public(key), 1), VERIFY_INCOMPLETE));
    cr_assert(eq(int, look_at(out.p, out.n, secret_key_public(other), 1), VERIFY_UNTRUSTED));
    cr_assert(eq(int, look_at(out.p, out.n, NULL, 0), VERIFY_UNTRUSTED));
    cr_assert(eq(int, look_at(out.p, out.n - 1, secret_key_public(key), 1), VERIFY_INVALID));
    cr_assert(eq(int, look_at("{}", 2, secret_key_public(key), 1), VERIFY_INVALID));
    cr_assert(eq(int, look_at("", 0, secret_key_public(key), 1), VERIFY_INVALID));
    /* one byte of the payload */
    char *at = strstr(out.p, "\"payload\"");
    cr_assert(at != NULL);
    at[40] = at[40] == 'A' ? 'B' : 'A';
    cr_assert(ne(int, look_at(out.p, out.n, secret_key_public(key), 1), VERIFY_INCOMPLETE));
    buf_release(&out);
    dsse_release(&env);
    enum verify_outcome outcome;
    json_t *r;
    cr_assert(verify_file("/nonexistent/e.json", NULL, 0, &outcome, &r, &e) < 0);
    cr_assert(r == NULL);
}

/* The published example and its eight variants, made and checked by other implementations. */
Test(results_verify, the_published_envelope_and_its_variants) {
    json_t *vec = vectors_get("dsse"), *negative = vectors_get("dsse_negative"), *keys = vectors_get("keys");
    struct public_key trusted[2];
    struct err e = {0};
    unsigned char raw[32];
    static const char *const names[] = {"submitter", "reviewer"};
    for (int i = 0; i < 2; i++) {
        vec_hex32(vec_str(json_object_get(keys, names[i]), "public_raw"), raw);
        must(public_key_from_raw(raw, &trusted[i], &e), &e);
    }
    char *envelope = json_dumps(json_object_get(vec, "envelope"), 0);
    cr_assert(envelope != NULL);
    cr_assert(eq(int, look_at(envelope, strlen(envelope), trusted, 2), VERIFY_INCOMPLETE));
    cr_assert(eq(int, look_at(envelope, strlen(envelope), trusted, 1), VERIFY_INCOMPLETE));
    free(envelope);
    size_t i;
    json_t *v;
    json_array_foreach(negative, i, v) {
        envelope = json_dumps(json_object_get(v, "envelope"), 0);
        const char *name = vec_str(v, "name");
        enum verify_outcome got = look_at(envelope, strlen(envelope), trusted, 2);
        bool accepted = got == VERIFY_INCOMPLETE;
        bool accept = !strncmp(vec_str(v, "expect"), "accept", 6) || !strcmp(name, "same_key_twice");
        cr_assert(accepted == accept, "%s: %s", name, verify_outcome_name(got));
        free(envelope);
    }
}
