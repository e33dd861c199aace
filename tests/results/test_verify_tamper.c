/* Attacks on a store by somebody who has the file and any SQLite tool: each edits rows behind the
 * store's back, as far as it needs consistently, and must be found, with the right name. The numbers
 * T1… are those of the threat model in certification.md section 9. */
#include "harness/core/json.h"
#include "results/jcs.h"
#include "results/register.h"
#include "results/store_internal.h"
#include "results/verify.h"
#include "tests/results/fixture.h"

#include "results/hash.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct scratch dir;
static struct secret_key *key;
static struct run_handle run[3];

/* Three runs: the first two valid, of one campaign; the third invalid. */
static void setup(void) {
    struct err e = {0};
    struct store *s;
    struct definitions d = definitions_make("chat", "v6e", 8, "simulated");
    struct load l = load_default();
    dir = scratch_make();
    key = key_of(1);
    must(store_open(dir.db, STORE_WRITE, &s, NULL, &e), &e);
    l.requests = 1500; /* several chunks */
    run_make(s, &d, &l, key, "c", &run[0]);
    l.seed = 8;
    run_make(s, &d, &l, key, "c", &run[1]);
    l.fail_every = 3;
    run_make(s, &d, &l, key, "bad", &run[2]);
    store_close(s);
    definitions_release(&d);
}
static void teardown(void) {
    scratch_remove(&dir);
    secret_key_free(key);
}
TestSuite(results_verify_tamper, .init = setup, .fini = teardown, .timeout = 300);

/* The file's bytes, to undo an attack. */
struct image {
    unsigned char *p;
    size_t n;
};
static struct image image_take(void) {
    struct buf b;
    struct err e = {0};
    must(buf_read_file(&b, dir.db, 64 << 20, &e), &e);
    return (struct image){(unsigned char *)b.p, b.n};
}
static void image_free(struct image *i) {
    free(i->p);
}
static void image_put(const struct image *i) {
    FILE *f = fopen(dir.db, "wb");
    cr_assert(f && fwrite(i->p, 1, i->n, f) == i->n && fclose(f) == 0);
}

static json_t *verify(const char *ref, enum verify_outcome *outcome) {
    struct err e = {0};
    struct store *s;
    json_t *r;
    must(store_open(dir.db, STORE_READ, &s, NULL, &e), &e);
    if (ref)
        must(verify_run(s, ref, secret_key_public(key), 1, outcome, &r, &e), &e);
    else
        must(verify_store(s, secret_key_public(key), 1, outcome, &r, &e), &e);
    store_close(s);
    return r;
}

static const char *failed_detail(const json_t *r, const char *check) {
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(r, "checks"), i, c)
        if (!strcmp(json_string_value(json_object_get(c, "check")), check) && !json_is_true(json_object_get(c, "ok")))
            return json_string_value(json_object_get(c, "detail"));
    return NULL;
}

/* The run's verification must say `outcome`, by failing `check` with `part` in its detail; and the
 * whole store's must not be OK either. */
static void expect(const char *uuid, enum verify_outcome outcome, const char *check, const char *part, const char *what) {
    enum verify_outcome got, whole;
    json_t *r = verify(uuid, &got);
    const char *detail = failed_detail(r, check);
    char *text = json_dumps(r, JSON_INDENT(1));
    cr_assert(got == outcome, "%s: expected %s, got %s\n%s", what, verify_outcome_name(outcome), verify_outcome_name(got), text);
    cr_assert(detail != NULL, "%s: check %s did not fail\n%s", what, check, text);
    cr_assert(contains(detail, part), "%s: '%s' does not say '%s'", what, detail, part);
    free(text);
    json_decref(r);
    json_decref(verify(NULL, &whole));
    cr_assert(whole != VERIFY_OK, "%s: the whole store is said to be sound", what);
}

static void attack(const char *sql) {
    sqlite3 *c = raw_unguarded(dir.db);
    raw_exec(c, sql);
    raw_reguard(c);
}

Test(results_verify_tamper, before_any_attack_all_is_well) {
    enum verify_outcome got;
    json_t *r = verify(NULL, &got);
    char *text = json_dumps(r, JSON_INDENT(1));
    cr_assert(got == VERIFY_OK, "%s", text);
    free(text);
    json_decref(r);
}

/* ---- T1: rows ---- */

static const struct {
    const char *sql, *part;
} row_edits[] = {
    {"UPDATE metric SET value=value*1.0000001 WHERE run_id=1 AND metric_id=(SELECT metric_id FROM metric_def WHERE name="
     "'output_tokens_per_s')", "output_tokens_per_s"},
    {"UPDATE metric SET n=n+1 WHERE run_id=1", "table metric"},
    {"UPDATE metric SET ci_lo=ci_lo-1 WHERE run_id=1 AND ci_lo IS NOT NULL", "table metric"},
    {"DELETE FROM metric WHERE run_id=1 AND metric_id=(SELECT min(metric_id) FROM metric WHERE run_id=1)", "table metric"},
    {"INSERT INTO metric SELECT 1, (SELECT metric_id FROM metric_def WHERE name='mfu'), 0.9, 1, NULL, NULL, NULL", "table metric"},
    {"UPDATE metric_def SET better='lower' WHERE name='output_tokens_per_s'", "output_tokens_per_s"},
    {"UPDATE metric_def SET unit='ms' WHERE name='ttft_ns'", "ttft_ns"},
    {"UPDATE run_end SET completed=completed+1 WHERE run_id=1", "e.completed"},
    {"UPDATE run_end SET output_tokens=output_tokens*2 WHERE run_id=1", "e.output_tokens"},
    {"UPDATE run_end SET duration_ns=duration_ns-1 WHERE run_id=1", "e.duration_ns"},
    {"UPDATE run_end SET finished_ns=finished_ns+1 WHERE run_id=1", "e.finished_ns"},
    {"UPDATE run_end SET verdict='INVALID' WHERE run_id=1", "e.verdict"},
    {"UPDATE run SET class='measured' WHERE run_id=1", "r.class"}, /* T19 */
    {"UPDATE run SET chip='v7x' WHERE run_id=1", "r.chip"},
    {"UPDATE run SET chips=4 WHERE run_id=1", "r.chips"},
    {"UPDATE run SET load_value=64 WHERE run_id=1", "r.load_value"},
    {"UPDATE run SET load_kind='poisson' WHERE run_id=1", "r.load_kind"},
    {"UPDATE run SET mode='accuracy' WHERE run_id=1", "r.mode"},
    {"UPDATE run SET seed='1' WHERE run_id=1", "r.seed"},
    {"UPDATE run SET started_ns=started_ns-1000000000 WHERE run_id=1", "r.started_ns"},
    {"UPDATE run SET attempt=9 WHERE run_id=1", "r.attempt"},
    {"UPDATE run SET campaign_id=2, attempt=9 WHERE run_id=1", "c.name"},
    {"UPDATE campaign SET name='better' WHERE campaign_id=1", "c.name"},
    {"UPDATE system SET name='fast'", "s.name"},
    {"UPDATE workload SET version='9'", "w.version"},
    {"UPDATE software SET version='9.9' WHERE kind='harness'", "h.version"},
    {"UPDATE software SET name='other' WHERE kind='harness'", "h.name"},
    {"UPDATE software SET kind='backend' WHERE kind='harness'", "h.kind"},
    {"UPDATE software SET kind='harness' WHERE kind='backend'", "b.kind"},
    {"UPDATE run_end SET reason='none' WHERE run_id=1", "e.reason"},
    {"UPDATE software SET digest=zeroblob(32) WHERE kind='harness'", "h.digest"},
    {"UPDATE rule_pack SET name='strict'", "p.name"},
    {"UPDATE verdict SET ok=1-ok WHERE run_id=1 AND position=0", "table verdict"},
    {"UPDATE verdict SET got='1000000' WHERE run_id=1 AND position=0", "table verdict"},
    {"DELETE FROM verdict WHERE run_id=1 AND position=0", "table verdict"},
    {"INSERT INTO invalid_reason VALUES(1,'x')", "table invalid_reason"},
    {"UPDATE artifact SET sha256=zeroblob(32) WHERE run_id=1", "table artifact"},
    {"DELETE FROM artifact WHERE run_id=1 AND name='system.json'", "table artifact"},
    {"DELETE FROM campaign WHERE campaign_id=1", "incomplete"},
};

Test(results_verify_tamper, t1_each_edited_column_is_named) {
    struct image sound = image_take();
    for (size_t i = 0; i < sizeof row_edits / sizeof row_edits[0]; i++) {
        attack(row_edits[i].sql);
        expect(run[0].uuid, VERIFY_MISMATCH, "rows", row_edits[i].part, row_edits[i].sql);
        image_put(&sound);
    }
    image_free(&sound);
}

/* ---- T2, T3: the envelope ---- */

Test(results_verify_tamper, t2_one_byte_of_the_payload) {
    attack("UPDATE envelope SET payload=CAST(replace(CAST(payload AS TEXT),'\"n\":1500','\"n\":1501') AS BLOB) WHERE run_id=1");
    expect(run[0].uuid, VERIFY_INVALID, "signatures", "does not belong", "payload");
    expect(run[0].uuid, VERIFY_INVALID, "record", "the rows name another", "payload");
}

Test(results_verify_tamper, t3_another_payload_type) {
    attack("UPDATE envelope SET payload_type='application/json' WHERE run_id=1");
    expect(run[0].uuid, VERIFY_INVALID, "payload_type", "application/json", "type");
    expect(run[0].uuid, VERIFY_INVALID, "signatures", "does not belong", "type");
}

Test(results_verify_tamper, a_removed_record_or_signature) {
    attack("DELETE FROM signature WHERE payload_sha256=(SELECT payload_sha256 FROM envelope WHERE run_id=1)");
    expect(run[0].uuid, VERIFY_INVALID, "signatures", "no signature", "signature");
    attack("DELETE FROM envelope WHERE run_id=2");
    expect(run[1].uuid, VERIFY_INVALID, "record", "no signed record", "envelope");
    attack("UPDATE run_end SET verdict='ABORTED', reason='oops', payload_sha256=NULL WHERE run_id=2");
    expect(run[1].uuid, VERIFY_REGISTER, "register_entries", "does not say", "aborted afterwards");
    attack("DELETE FROM run_end WHERE run_id=2");
    expect(run[1].uuid, VERIFY_REGISTER, "register_entries", "does not say", "opened afterwards");
}

/* ---- T4, T5: replay ---- */

Test(results_verify_tamper, t4_an_old_record_as_the_newest_runs) {
    attack("UPDATE run_end SET payload_sha256=NULL WHERE run_id=2; DELETE FROM envelope WHERE run_id=2;"
           "UPDATE envelope SET run_id=2 WHERE run_id=1;"
           "UPDATE run_end SET payload_sha256=NULL WHERE run_id=1;"
           "UPDATE run_end SET payload_sha256=(SELECT payload_sha256 FROM envelope WHERE run_id=2) WHERE run_id=2");
    expect(run[1].uuid, VERIFY_MISMATCH, "register_entries", "another run", "replay");
    expect(run[1].uuid, VERIFY_MISMATCH, "log", "not the log that was signed", "replay");
    expect(run[1].uuid, VERIFY_MISMATCH, "rows", "r.uuid", "replay");
}

Test(results_verify_tamper, t5_a_record_for_another_system_or_workload) {
    attack("UPDATE document SET doc=replace(doc,'\"hosts\":1','\"hosts\":2') WHERE digest=(SELECT digest FROM system)");
    expect(run[0].uuid, VERIFY_MISMATCH, "system", "is not the one", "system");
    attack("UPDATE document SET doc=replace(doc,'\"value\":32','\"value\":33') WHERE digest=(SELECT digest FROM workload)");
    expect(run[0].uuid, VERIFY_MISMATCH, "workload", "is not the one", "workload"); /* T7 */
    attack("DELETE FROM document WHERE digest=(SELECT digest FROM rule_pack)");
    expect(run[0].uuid, VERIFY_MISMATCH, "rules", "not in the store", "rules");
    attack("DELETE FROM document WHERE digest=(SELECT environment_digest FROM run WHERE run_id=1)");
    expect(run[0].uuid, VERIFY_MISMATCH, "environment", "not in the store", "environment");
}

/* ---- what was read beside the run ---- */

Test(results_verify_tamper, series_that_were_changed_removed_or_added) {
    static const char *const attacks[][2] = {
        {"UPDATE series_sample SET value=value+1 WHERE run_id=1 AND series=0 AND round=1", "not those that were signed"},
        {"UPDATE series_sample SET value=0 WHERE run_id=1 AND value IS NULL", "not those that were signed"},
        {"UPDATE series_round SET t_ns=t_ns+1 WHERE run_id=1 AND round=1", "not those that were signed"},
        {"UPDATE series SET labels='{}' WHERE run_id=1 AND series=0", "not those that were signed"},
        {"UPDATE series_source SET location='http://other/metrics' WHERE run_id=1", "not those that were signed"},
        {"DELETE FROM series_sample WHERE run_id=1 AND series=0", "not those that were signed"},
        {"INSERT INTO series_sample VALUES(1,7,0,1.0)", "belongs to no series"},
        {"DELETE FROM series WHERE run_id=1 AND series=0", "do not follow each other"},
    };
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
        attack(attacks[i][0]);
        expect(run[0].uuid, VERIFY_MISMATCH, "series", attacks[i][1], attacks[i][0]);
    }
}

/* ---- T6: the log ---- */

Test(results_verify_tamper, t6_a_bit_of_the_log) {
    attack("UPDATE chunk SET data=CAST(substr(data,1,100)||x'ff'||substr(data,102) AS BLOB) WHERE run_id=1 AND sequence=1");
    expect(run[0].uuid, VERIFY_MISMATCH, "log", "SHA-256 differs", "bit");
}

Test(results_verify_tamper, t6_the_last_chunk) {
    attack("DELETE FROM chunk WHERE run_id=1 AND sequence=(SELECT max(sequence) FROM chunk WHERE run_id=1)");
    expect(run[0].uuid, VERIFY_MISMATCH, "log", "not the log that was signed", "truncated");
    attack("DELETE FROM chunk WHERE run_id=1 AND sequence=1");
    expect(run[0].uuid, VERIFY_MISMATCH, "log", "missing", "gap");
    attack("DELETE FROM chunk WHERE run_id=1");
    expect(run[0].uuid, VERIFY_INCOMPLETE, "log", "not here", "all");
}

Test(results_verify_tamper, t6_chunks_of_another_run) {
    attack("DELETE FROM chunk WHERE run_id=1; INSERT INTO chunk SELECT 1,thread,sequence,events,first_ns,last_ns,sha256,data"
           " FROM chunk WHERE run_id=2");
    expect(run[0].uuid, VERIFY_MISMATCH, "log", "not the log that was signed", "swapped logs");
}

Test(results_verify_tamper, t6_two_chunks_exchanged) {
    attack("UPDATE chunk SET sequence=1000 WHERE run_id=1 AND sequence=0; UPDATE chunk SET sequence=0 WHERE run_id=1 AND"
           " sequence=1; UPDATE chunk SET sequence=1 WHERE run_id=1 AND sequence=1000");
    expect(run[0].uuid, VERIFY_MISMATCH, "log", "does not describe the blob", "exchanged");
}

typedef void edit_event_fn(struct event_block *k, uint32_t i);

/* One more input token a request. */
static void more_input(struct event_block *k, uint32_t i) {
    if (k->kind[i] == EVENT_ISSUE)
        k->b[i] += 1;
}

static void edit_chunk(sqlite3 *c, int64_t run_id, int64_t sequence, edit_event_fn *edit) {
    struct event_block *k = malloc(sizeof *k);
    static uint8_t out[EVENTLOG_BLOCK_MAX_BYTES];
    struct err e = {0};
    sqlite3_stmt *st;
    unsigned char digest[32];
    cr_assert(sqlite3_prepare_v2(c, "SELECT data FROM chunk WHERE run_id=?1 AND sequence=?2", -1, &st, NULL) == 0);
    sqlite3_bind_int64(st, 1, run_id);
    sqlite3_bind_int64(st, 2, sequence);
    cr_assert(sqlite3_step(st) == SQLITE_ROW);
    must(eventlog_decode(sqlite3_column_blob(st, 0), (size_t)sqlite3_column_bytes(st, 0), k, &e), &e);
    sqlite3_finalize(st);
    for (uint32_t i = 0; i < k->n; i++)
        edit(k, i);
    size_t n = eventlog_encode(k, out);
    sha256(out, n, digest);
    cr_assert(sqlite3_prepare_v2(c, "UPDATE chunk SET data=?3, sha256=?4 WHERE run_id=?1 AND sequence=?2", -1, &st, NULL) == 0);
    sqlite3_bind_int64(st, 1, run_id);
    sqlite3_bind_int64(st, 2, sequence);
    sqlite3_bind_blob(st, 3, out, (int)n, SQLITE_STATIC);
    sqlite3_bind_blob(st, 4, digest, 32, SQLITE_STATIC);
    cr_assert(sqlite3_step(st) == SQLITE_DONE);
    sqlite3_finalize(st);
    free(k);
}

Test(results_verify_tamper, t6_a_log_that_was_written_again_consistently) {
    sqlite3 *c = raw_unguarded(dir.db);
    edit_chunk(c, 1, 1, more_input);
    raw_reguard(c);
    expect(run[0].uuid, VERIFY_MISMATCH, "log", "not the log that was signed", "rewritten");
}

/* ---- T10: the register ---- */

Test(results_verify_tamper, t10_the_end_of_the_register_is_gone) {
    attack("DELETE FROM register_entry WHERE seq>=(SELECT min(seq) FROM register_entry WHERE run_id=3)");
    expect(run[2].uuid, VERIFY_REGISTER, "register_entries", "not in the register", "tail");
}

Test(results_verify_tamper, t10_an_old_copy_is_found_by_a_checkpoint) {
    struct err e = {0};
    struct store *s;
    struct buf note, vkey;
    char copy[400], sql[500];
    enum verify_outcome outcome;
    json_t *r;
    buf_init(&note, 4096);
    buf_init(&vkey, 4096);
    must(checkpoint_vkey("assay.test/log", secret_key_public(key), &vkey), &e);
    /* before the bad run there was a copy */
    sqlite3 *c = raw_open(dir.db);
    snprintf(copy, sizeof copy, "%s/old.db", dir.dir);
    snprintf(sql, sizeof sql, "VACUUM INTO '%s'", copy);
    raw_exec(c, sql);
    sqlite3_close(c);
    must(store_open(dir.db, STORE_WRITE, &s, NULL, &e), &e);
    struct definitions d = definitions_make("chat", "v6e", 8, "simulated");
    struct load l = load_default();
    run_make(s, &d, &l, key, "c", NULL);
    must(store_checkpoint(s, "assay.test/log", key, &note, &e), &e);
    store_close(s);
    definitions_release(&d);
    must(store_open(copy, STORE_READ, &s, NULL, &e), &e);
    must(verify_checkpoint(s, note.p, note.n, vkey.p, &outcome, &r, &e), &e);
    cr_assert(eq(int, outcome, VERIFY_REGISTER));
    cr_assert(contains(failed_detail(r, "consistency"), "its end is missing"));
    json_decref(r);
    store_close(s);
    buf_release(&note);
    buf_release(&vkey);
}

static const struct {
    const char *sql, *check;
} register_edits[] = {
    {"UPDATE register_entry SET entry=CAST(replace(CAST(entry AS TEXT),'\"VALID\"','\"INVALID\"') AS BLOB) WHERE seq=1", "register_chain"},
    {"UPDATE register_entry SET entry=CAST(' '||CAST(entry AS TEXT) AS BLOB) WHERE seq=1", "register_entries_format"},
    {"UPDATE register_entry SET leaf=zeroblob(32) WHERE seq=1", "register_merkle"},
    {"UPDATE register_entry SET chain=zeroblob(32) WHERE seq=1", "register_chain"},
    {"UPDATE register_entry SET edge=zeroblob(length(edge)) WHERE seq=1", "register_merkle"},
    {"UPDATE register_entry SET edge=x'' WHERE seq=1", "register_merkle"},
    {"UPDATE register_entry SET at_ns=at_ns+1000000000 WHERE seq=1", "register_times"},
    {"UPDATE register_entry SET kind='key.added' WHERE seq=1", "register_entries_format"},
    {"UPDATE register_entry SET run_id=3 WHERE seq=1", "register_entries_format"},
    {"UPDATE register_entry SET seq=99 WHERE seq=5", "register_dense"},
    {"DELETE FROM register_entry WHERE seq=2", "register_dense"},
    {"UPDATE register_entry SET seq=-1 WHERE seq=1; UPDATE register_entry SET seq=1 WHERE seq=2;"
     "UPDATE register_entry SET seq=2 WHERE seq=-1", "register_chain"},
};

Test(results_verify_tamper, t10_each_edit_of_the_register) {
    struct image sound = image_take();
    for (size_t i = 0; i < sizeof register_edits / sizeof register_edits[0]; i++) {
        attack(register_edits[i].sql);
        enum verify_outcome got, whole;
        json_t *r = verify(run[2].uuid, &got);
        cr_assert(got == VERIFY_REGISTER, "%s: %s", register_edits[i].sql, verify_outcome_name(got));
        cr_assert(failed_detail(r, register_edits[i].check) != NULL, "%s: %s did not fail", register_edits[i].sql,
                  register_edits[i].check);
        json_decref(r);
        json_decref(verify(NULL, &whole));
        cr_assert(whole != VERIFY_OK);
        image_put(&sound);
    }
    image_free(&sound);
}

/* ---- forgeries that keep everything consistent that the forger can ---- */

/* Makes chain, leaves, edges, numbers and previous roots of the register agree again. */
static void rebuild_register(sqlite3 *c) {
    struct merkle m = {0};
    unsigned char chain[32] = {0}, leaf[32], edge[64 * 32], root[32];
    struct err e = {0};
    sqlite3_stmt *in, *out;
    int64_t seqs[64];
    int n = 0;
    cr_assert(sqlite3_prepare_v2(c, "SELECT seq FROM register_entry ORDER BY seq", -1, &in, NULL) == 0);
    while (sqlite3_step(in) == SQLITE_ROW)
        seqs[n++] = sqlite3_column_int64(in, 0);
    sqlite3_finalize(in);
    for (int i = 0; i < n; i++) {
        char hex[SHA256_HEX];
        struct buf b;
        json_t *o;
        cr_assert(sqlite3_prepare_v2(c, "SELECT entry FROM register_entry WHERE seq=?", -1, &in, NULL) == 0);
        sqlite3_bind_int64(in, 1, seqs[i]);
        cr_assert(sqlite3_step(in) == SQLITE_ROW);
        must(json_parse(sqlite3_column_blob(in, 0), (size_t)sqlite3_column_bytes(in, 0), "entry", &o, &e), &e);
        sqlite3_finalize(in);
        json_object_set_new(o, "seq", json_integer(i));
        if (json_object_get(o, "previousRoot")) {
            merkle_root(&m, root);
            hex_encode(root, 32, hex);
            json_object_set_new(o, "previousRoot", json_string(hex));
        }
        buf_init(&b, 1 << 16);
        must(jcs_encode(o, &b, &e), &e);
        json_decref(o);
        register_chain(chain, b.p, b.n, chain);
        merkle_leaf(b.p, b.n, leaf);
        merkle_append(&m, leaf);
        size_t en = register_edge(&m, edge);
        cr_assert(sqlite3_prepare_v2(c, "UPDATE register_entry SET entry=?2, leaf=?3, chain=?4, edge=?5, seq=?6 WHERE seq=?1",
                                     -1, &out, NULL) == 0);
        sqlite3_bind_int64(out, 1, seqs[i]);
        sqlite3_bind_blob(out, 2, b.p, (int)b.n, SQLITE_STATIC);
        sqlite3_bind_blob(out, 3, leaf, 32, SQLITE_STATIC);
        sqlite3_bind_blob(out, 4, chain, 32, SQLITE_STATIC);
        sqlite3_bind_blob(out, 5, edge, (int)en, SQLITE_STATIC);
        sqlite3_bind_int64(out, 6, i);
        cr_assert(sqlite3_step(out) == SQLITE_DONE, "%s", sqlite3_errmsg(c));
        sqlite3_finalize(out);
        buf_release(&b);
    }
}

static void exec_blob(sqlite3 *c, const char *sql, const void *a, size_t an, const void *b, size_t bn, int64_t id) {
    sqlite3_stmt *st;
    cr_assert(sqlite3_prepare_v2(c, sql, -1, &st, NULL) == 0, "%s: %s", sql, sqlite3_errmsg(c));
    sqlite3_bind_blob(st, 1, a, (int)an, SQLITE_STATIC);
    sqlite3_bind_blob(st, 2, b, (int)bn, SQLITE_STATIC);
    sqlite3_bind_int64(st, 3, id);
    cr_assert(sqlite3_step(st) == SQLITE_DONE, "%s: %s", sql, sqlite3_errmsg(c));
    sqlite3_finalize(st);
}

/* Puts new payload bytes in a run's place: signed with k, named by all rows and by the register. */
static void replace_payload(sqlite3 *c, int64_t run_id, const char *p, size_t n, const struct secret_key *k) {
    struct err e = {0};
    struct dsse_signature sig;
    unsigned char digest[32];
    char hex[SHA256_HEX], sql[512];
    sha256(p, n, digest);
    hex_encode(digest, 32, hex);
    must(dsse_sign(DSSE_PAYLOAD_TYPE, p, n, k, &sig, &e), &e);
    exec_blob(c, "DELETE FROM signature WHERE payload_sha256=(SELECT payload_sha256 FROM envelope WHERE run_id=?3) AND"
                 " ?1 IS ?1 AND ?2 IS ?2", "", 0, "", 0, run_id);
    snprintf(sql, sizeof sql, "UPDATE register_entry SET entry=CAST(replace(CAST(entry AS TEXT),(SELECT lower(hex(payload_sha256))"
             " FROM envelope WHERE run_id=%d),'%s') AS BLOB)", (int)run_id, hex);
    raw_exec(c, sql);
    exec_blob(c, "UPDATE envelope SET payload=?1, payload_sha256=?2 WHERE run_id=?3", p, n, digest, 32, run_id);
    exec_blob(c, "UPDATE run_end SET payload_sha256=?2 WHERE run_id=?3 AND ?1 IS ?1", "", 0, digest, 32, run_id);
    snprintf(sql, sizeof sql, "INSERT OR IGNORE INTO key VALUES('%s',x'", secret_key_public(k)->keyid);
    hex_encode(secret_key_public(k)->raw, 32, hex);
    snprintf(sql + strlen(sql), sizeof sql - strlen(sql), "%s','forger')", hex);
    raw_exec(c, sql);
    snprintf(sql, sizeof sql, "INSERT INTO signature VALUES(?2,'%s',?1,1)", secret_key_public(k)->keyid);
    sqlite3_stmt *st;
    cr_assert(sqlite3_prepare_v2(c, sql, -1, &st, NULL) == 0);
    sqlite3_bind_blob(st, 1, sig.sig, 64, SQLITE_STATIC);
    sqlite3_bind_blob(st, 2, digest, 32, SQLITE_STATIC);
    cr_assert(sqlite3_step(st) == SQLITE_DONE, "%s", sqlite3_errmsg(c));
    sqlite3_finalize(st);
    rebuild_register(c);
}

static json_t *statement_of(sqlite3 *c, int64_t run_id) {
    struct err e = {0};
    sqlite3_stmt *st;
    json_t *o;
    cr_assert(sqlite3_prepare_v2(c, "SELECT payload FROM envelope WHERE run_id=?", -1, &st, NULL) == 0);
    sqlite3_bind_int64(st, 1, run_id);
    cr_assert(sqlite3_step(st) == SQLITE_ROW);
    must(json_parse(sqlite3_column_blob(st, 0), (size_t)sqlite3_column_bytes(st, 0), "payload", &o, &e), &e);
    sqlite3_finalize(st);
    return o;
}

typedef void edit_fn(json_t *predicate);

static void forge(int64_t run_id, edit_fn *edit, const struct secret_key *k, const char *more_sql) {
    struct err e = {0};
    struct buf b;
    sqlite3 *c = raw_unguarded(dir.db);
    json_t *o = statement_of(c, run_id);
    edit(json_object_get(o, "predicate"));
    buf_init(&b, 1 << 20);
    must(jcs_encode(o, &b, &e), &e);
    replace_payload(c, run_id, b.p, b.n, k);
    if (more_sql)
        raw_exec(c, more_sql);
    buf_release(&b);
    json_decref(o);
    raw_reguard(c);
}

static json_t *metric_of(json_t *predicate, const char *name, const char *stat) {
    size_t i;
    json_t *m;
    json_array_foreach(json_object_get(predicate, "metrics"), i, m)
        if (!strcmp(json_string_value(json_object_get(m, "name")), name) &&
            !strcmp(json_string_value(json_object_get(m, "stat")), stat))
            return m;
    cr_assert(false, "no metric %s %s", name, stat);
    return NULL;
}

static void faster(json_t *p) {
    json_t *m = metric_of(p, "output_tokens_per_s", "value");
    json_object_set_new(m, "value", json_real(json_number_value(json_object_get(m, "value")) * (1 + 1e-9)));
}

/* The forger has the runner's key, rows and register agree: only the log tells. */
Test(results_verify_tamper, t20_a_figure_edited_before_signing) {
    forge(3, faster, key, "UPDATE metric SET value=value*(1+1e-9) WHERE run_id=3 AND metric_id=(SELECT metric_id FROM metric_def"
                          " WHERE name='output_tokens_per_s')");
    expect(run[2].uuid, VERIFY_MISMATCH, "metrics", "output_tokens_per_s", "edited figure");
}

static void p50_by_one(json_t *p) {
    json_t *m = metric_of(p, "ttft_ns", "p50");
    json_object_set_new(m, "value", json_integer((json_int_t)json_number_value(json_object_get(m, "value")) - 1));
}
static void more_done(json_t *p) {
    json_t *c = json_object_get(p, "counts");
    json_object_set_new(c, "completed", json_integer(json_integer_value(json_object_get(c, "completed")) + 1));
}
static void no_failures(json_t *p) {
    json_object_del(json_object_get(json_object_get(p, "counts"), "failedByClass"), "reset");
}
static void valid_after_all(json_t *p) {
    json_object_set_new(json_object_get(p, "run"), "verdict", json_string("VALID"));
}
static void rule_kept(json_t *p) {
    json_t *v;
    size_t i;
    json_array_foreach(json_object_get(p, "verdicts"), i, v)
        json_object_set_new(v, "ok", json_true());
    json_object_set_new(json_object_get(p, "run"), "invalidReasons", json_array());
    valid_after_all(p);
}
static void no_interval(json_t *p) {
    json_object_set_new(metric_of(p, "ttft_ns", "p50"), "ci", json_null());
}
static void one_figure_less(json_t *p) {
    json_array_remove(json_object_get(p, "metrics"), 0);
}
static void invented(json_t *p) {
    json_array_append_new(json_object_get(p, "metrics"),
                          json_pack("{s:s s:s s:f s:s s:i s:s s:n}", "name", "mfu", "stat", "value", "value", 0.75, "unit", "1",
                                    "n", 1, "better", "higher", "ci"));
}
static void more_chips(json_t *p) {
    json_object_set_new(json_object_get(p, "facts"), "chips", json_integer(1)); /* per-chip figures then differ */
}
static void silicon(json_t *p) {
    json_object_set_new(json_object_get(p, "system"), "class", json_string("measured"));
}
static void other_campaign(json_t *p) {
    json_object_set_new(json_object_get(p, "run"), "campaign", json_string("fresh"));
}
static void first_attempt(json_t *p) {
    json_object_set_new(json_object_get(p, "run"), "attempt", json_integer(7));
}
static void other_history(json_t *p) {
    json_object_set_new(json_object_get(p, "previous"), "registerRoot",
                        json_string("06feca96438e6a8a5c2a0136fb5c4c6c5498e63290c2158f3262bc3c95ce335f"));
}

Test(results_verify_tamper, forgeries_with_the_runners_key) {
    static const struct {
        edit_fn *edit;
        enum verify_outcome outcome;
        const char *check, *part;
    } f[] = {
        {p50_by_one, VERIFY_MISMATCH, "metrics", "ttft_ns p50"},
        {more_done, VERIFY_MISMATCH, "counts", "counts.completed"},
        {no_failures, VERIFY_MISMATCH, "counts", "failedByClass.reset"},
        {valid_after_all, VERIFY_MISMATCH, "verdicts", "signed as VALID"},
        {rule_kept, VERIFY_MISMATCH, "verdicts", "rule "},
        {no_interval, VERIFY_MISMATCH, "metrics", "interval"},
        {one_figure_less, VERIFY_MISMATCH, "metrics", "figures are signed"},
        {invented, VERIFY_MISMATCH, "metrics", "figures are signed"},
        {more_chips, VERIFY_MISMATCH, "metrics", "per_chip"},
        {silicon, VERIFY_MISMATCH, "rows", "r.class"},
        {other_campaign, VERIFY_MISMATCH, "register_entries", "campaign differs"},
        {first_attempt, VERIFY_MISMATCH, "register_entries", "attempt"},
        {other_history, VERIFY_REGISTER, "register_entries", "rewritten"},
    };
    struct image sound = image_take();
    for (size_t i = 0; i < sizeof f / sizeof f[0]; i++) {
        forge(3, f[i].edit, key, NULL);
        expect(run[2].uuid, f[i].outcome, f[i].check, f[i].part, f[i].part);
        image_put(&sound);
    }
    image_free(&sound);
}

/* ---- what the client may have added ---- */

enum { STATED = 20 }; /* 1 ms and a half: as late as stamps of the bounded run may be */

/* A fourth run, whose log states bounds; then it holds figures with clientLo and clientHi. */
static struct run_handle make_bounded_run(void) {
    struct err e = {0};
    struct store *s;
    struct run_handle h;
    struct definitions d = definitions_make("chat", "v6e", 8, "simulated");
    struct load l = load_default();
    l.bound = STATED;
    must(store_open(dir.db, STORE_WRITE, &s, NULL, &e), &e);
    run_make(s, &d, &l, key, "bounded", &h);
    store_close(s);
    definitions_release(&d);
    enum verify_outcome got;
    json_t *r = verify(h.uuid, &got);
    cr_assert(got == VERIFY_OK);
    json_decref(r);
    return h;
}

static void client_side(json_t *p, const char *side, double factor) {
    json_t *m = metric_of(p, "itl_ns", "p50");
    double v = json_number_value(json_object_get(m, side));
    cr_assert(v > 0, "no %s", side);
    json_object_set_new(m, side, json_integer((json_int_t)(v * factor)));
}
static void higher_low(json_t *p) {
    client_side(p, "clientLo", 1.001);
}
static void lower_high(json_t *p) {
    client_side(p, "clientHi", 0.999);
}
static void no_client_sides(json_t *p) {
    json_t *m = metric_of(p, "e2e_ns", "p50");
    cr_assert(json_object_get(m, "clientLo") && json_object_get(m, "clientHi"));
    json_object_del(m, "clientLo");
    json_object_del(m, "clientHi");
}
static void invented_sides(json_t *p) {
    json_t *m = metric_of(p, "stamp_bound_ns", "p50");
    cr_assert(json_object_get(m, "clientLo") == NULL);
    json_object_set_new(m, "clientLo", json_integer(1));
    json_object_set_new(m, "clientHi", json_integer(2));
}
static void smaller_bound(json_t *p) {
    json_object_set_new(metric_of(p, "stamp_bound_ns", "p99"), "value", json_integer(1000));
}

Test(results_verify_tamper, the_clients_part_edited_before_signing) {
    static const struct {
        edit_fn *edit;
        const char *part;
    } f[] = {
        {higher_low, "itl_ns p50: what the client may have added"},
        {lower_high, "itl_ns p50: what the client may have added"},
        {no_client_sides, "e2e_ns p50: what the client may have added"},
        {invented_sides, "stamp_bound_ns p50: what the client may have added"},
        {smaller_bound, "stamp_bound_ns p99: signed 1000"},
    };
    struct run_handle h = make_bounded_run();
    struct image sound = image_take();
    for (size_t i = 0; i < sizeof f / sizeof f[0]; i++) {
        forge(h.run_id, f[i].edit, key, NULL);
        expect(h.uuid, VERIFY_MISMATCH, "metrics", f[i].part, f[i].part);
        image_put(&sound);
    }
    image_free(&sound);
}

/* As if each stamp had been taken at once. */
static void at_once(struct event_block *k, uint32_t i) {
    int shift = k->kind[i] == EVENT_TOKENS ? EVENT_TOKENS_BOUND_SHIFT
                : k->kind[i] == EVENT_DONE ? EVENT_DONE_BOUND_SHIFT
                                           : 0;
    if (shift) {
        cr_assert(eq(i64, k->b[i] >> shift, STATED));
        k->b[i] = (k->b[i] & ((INT64_C(1) << shift) - 1)) | INT64_C(1) << shift;
    }
}

/* The statement of a run with the digest and size of the log as it now is. */
static void name_the_log(json_t *statement, int64_t run_id) {
    struct err e = {0};
    struct store *s;
    uint64_t chunks, bytes;
    unsigned char digest[32];
    char hex[SHA256_HEX];
    json_t *one, *log = json_object_get(json_object_get(statement, "predicate"), "log");
    size_t i;
    int named = 0;
    must(store_open(dir.db, STORE_READ, &s, NULL, &e), &e);
    must(log_digest(&s->c, run_id, &chunks, &bytes, digest, &e), &e);
    store_close(s);
    hex_encode(digest, 32, hex);
    json_array_foreach(json_object_get(statement, "subject"), i, one)
        if (!strcmp(json_string_value(json_object_get(one, "name")), RECORD_SUBJECT_LOG)) {
            json_object_set_new(json_object_get(one, "digest"), "sha256", json_string(hex));
            named++;
        }
    cr_assert(eq(int, named, 1));
    json_object_set_new(log, "bytes", json_integer((json_int_t)bytes));
}

Test(results_verify_tamper, smaller_bounds_in_the_log) {
    struct err e = {0};
    struct run_handle h = make_bounded_run();
    sqlite3 *c = raw_unguarded(dir.db);
    edit_chunk(c, h.run_id, 0, at_once);
    raw_reguard(c);
    expect(h.uuid, VERIFY_MISMATCH, "log", "not the log that was signed", "bounds");
    /* with the runner's key the record can name that log; the figures in it are still of the other */
    c = raw_unguarded(dir.db);
    json_t *o = statement_of(c, h.run_id);
    name_the_log(o, h.run_id);
    struct buf b;
    buf_init(&b, 1 << 20);
    must(jcs_encode(o, &b, &e), &e);
    replace_payload(c, h.run_id, b.p, b.n, key);
    raw_reguard(c);
    buf_release(&b);
    json_decref(o);
    expect(h.uuid, VERIFY_MISMATCH, "metrics", "client_error_share value: signed", "bounds, signed again");
}

static void nothing(json_t *p) {
    (void)p;
}

/* A forger with a key of his own: all figures agree, nobody vouches. */
Test(results_verify_tamper, a_strangers_signature) {
    struct secret_key *stranger = key_of(9);
    forge(3, nothing, stranger, NULL);
    expect(run[2].uuid, VERIFY_UNTRUSTED, "trust", "do not count here", "stranger");
    secret_key_free(stranger);
}

/* A bad run is cut out of rows and register, and the register is made consistent again. */
Test(results_verify_tamper, t9_a_dropped_run_shows_in_every_later_record) {
    sqlite3 *c = raw_unguarded(dir.db);
    static const char *const tables[] = {"metric", "verdict", "invalid_reason", "artifact", "chunk", "run_end", "envelope", "register_entry", "run"};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        char sql[128];
        snprintf(sql, sizeof sql, "DELETE FROM %s WHERE run_id=2", tables[i]);
        raw_exec(c, sql);
    }
    rebuild_register(c);
    raw_reguard(c);
    expect(run[2].uuid, VERIFY_REGISTER, "register_entries", "registerSeq", "dropped run");
    /* the rows alone */
    attack("DELETE FROM run WHERE run_id=1");
    enum verify_outcome whole;
    json_t *r = verify(NULL, &whole);
    cr_assert(failed_detail(r, "register_runs") != NULL);
    json_decref(r);
}

/* ---- T13, T14: signatures ---- */

/* S + L, the group's order (RFC 8032 5.1.7): the same signature to a verifier that does not check. */
Test(results_verify_tamper, t13_a_malleated_signature) {
    static const unsigned char order[32] = {0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7,
                                            0xa2, 0xde, 0xf9, 0xde, 0x14, 0,    0,    0,    0,    0,    0,
                                            0,    0,    0,    0,    0,    0,    0,    0,    0,    0x10};
    sqlite3 *c = raw_unguarded(dir.db);
    sqlite3_stmt *st;
    unsigned char sig[64];
    cr_assert(sqlite3_prepare_v2(c, "SELECT sig FROM signature JOIN envelope USING(payload_sha256) WHERE run_id=1", -1, &st, NULL) == 0);
    cr_assert(sqlite3_step(st) == SQLITE_ROW);
    memcpy(sig, sqlite3_column_blob(st, 0), 64);
    sqlite3_finalize(st);
    unsigned carry = 0;
    for (int i = 0; i < 32; i++) {
        carry += (unsigned)sig[32 + i] + order[i];
        sig[32 + i] = (unsigned char)carry;
        carry >>= 8;
    }
    exec_blob(c, "UPDATE signature SET sig=?1 WHERE payload_sha256=(SELECT payload_sha256 FROM envelope WHERE run_id=?3) AND ?2 IS ?2",
              sig, 64, "", 0, 1);
    raw_reguard(c);
    expect(run[0].uuid, VERIFY_INVALID, "signatures", "does not belong", "malleated");
}

Test(results_verify_tamper, t14_one_key_under_two_names_counts_once) {
    attack("INSERT INTO key SELECT 'sha256:'||lower(hex(zeroblob(32))), zeroblob(32), 'somebody else';"
           "INSERT INTO signature SELECT payload_sha256,'sha256:'||lower(hex(zeroblob(32))),sig,2 FROM signature JOIN envelope"
           " USING(payload_sha256) WHERE run_id=1");
    expect(run[0].uuid, VERIFY_INVALID, "keys", "not the key of that id", "second name");
    enum verify_outcome got;
    json_t *r = verify(run[0].uuid, &got), *c;
    size_t i;
    json_array_foreach(json_object_get(r, "checks"), i, c)
        if (!strcmp(json_string_value(json_object_get(c, "check")), "trust"))
            cr_assert(contains(json_string_value(json_object_get(c, "detail")), "1 trusted key;"));
    json_decref(r);
    attack("DELETE FROM key WHERE public=zeroblob(32)");
    expect(run[0].uuid, VERIFY_INVALID, "keys", "not stored", "no key");
}

/* ---- T15: JSON tricks, signed with the runner's key ---- */

static void forge_text(const char *find, const char *put) {
    sqlite3 *c = raw_unguarded(dir.db);
    sqlite3_stmt *st;
    struct buf b;
    buf_init(&b, 1 << 20);
    cr_assert(sqlite3_prepare_v2(c, "SELECT replace(CAST(payload AS TEXT),?1,?2) FROM envelope WHERE run_id=3", -1, &st, NULL) == 0);
    sqlite3_bind_text(st, 1, find, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 2, put, -1, SQLITE_STATIC);
    cr_assert(sqlite3_step(st) == SQLITE_ROW);
    buf_put(&b, sqlite3_column_text(st, 0), (size_t)sqlite3_column_bytes(st, 0));
    sqlite3_finalize(st);
    replace_payload(c, 3, b.p, b.n, key);
    raw_reguard(c);
    buf_release(&b);
}

Test(results_verify_tamper, t15_duplicate_names) {
    forge_text("\"class\":\"simulated\"", "\"class\":\"measured\",\"class\":\"simulated\"");
    expect(run[2].uuid, VERIFY_INVALID, "statement", "", "duplicate");
}

Test(results_verify_tamper, t15_bytes_that_are_not_canonical) {
    forge_text("\"class\":\"simulated\"", "\"class\": \"simulated\"");
    expect(run[2].uuid, VERIFY_INVALID, "canonical", "not canonical", "space");
}

Test(results_verify_tamper, t15_inexact_integers) {
    forge_text("\"attempt\":1", "\"attempt\":9007199254740993");
    expect(run[2].uuid, VERIFY_INVALID, "statement", "", "2^53");
}

/* ---- T23: guards ---- */

static void store_fails(const char *check, const char *part) {
    enum verify_outcome got;
    json_t *r = verify(NULL, &got);
    const char *detail = failed_detail(r, check);
    cr_assert(got != VERIFY_OK && detail != NULL, "%s did not fail", check);
    cr_assert(contains(detail, part), "%s", detail);
    json_decref(r);
}

Test(results_verify_tamper, t23_a_removed_guard_is_noticed) {
    sqlite3 *c = raw_open(dir.db);
    raw_exec(c, "DROP TRIGGER metric_guard_replace");
    sqlite3_close(c);
    store_fails("schema", "trigger 'metric_guard_replace' is missing");
    c = raw_open(dir.db);
    raw_exec(c, "PRAGMA foreign_keys=OFF; INSERT OR REPLACE INTO metric SELECT run_id,metric_id,value*2,n,ci_level,ci_lo,ci_hi"
                " FROM metric WHERE run_id=1");
    sqlite3_close(c);
    expect(run[0].uuid, VERIFY_MISMATCH, "rows", "table metric", "replace");
}

Test(results_verify_tamper, t18_a_view_that_shows_other_figures) {
    sqlite3 *c = raw_open(dir.db);
    raw_exec(c, "DROP VIEW v_open_run; CREATE VIEW v_open_run AS SELECT 1 AS run");
    sqlite3_close(c);
    store_fails("schema", "view 'v_open_run' is missing or changed");
}

Test(results_verify_tamper, t18_a_trigger_that_acts) {
    sqlite3 *c = raw_open(dir.db);
    raw_exec(c, "CREATE TRIGGER x AFTER INSERT ON tag BEGIN DELETE FROM price; END");
    sqlite3_close(c);
    store_fails("schema", "trigger 'x' is not of this program");
}

/* ---- bit flips anywhere in the file ---- */

/* No flip may turn the store into one that verifies with another content; most are found, the rest hit
 * bytes that carry nothing (free space, indexes, planner rows). */
Test(results_verify_tamper, random_bit_flips_never_change_a_verified_figure) {
    struct image sound = image_take(), flipped = {malloc(sound.n), sound.n};
    struct err e = {0};
    struct store *s;
    static const char sum[] = "SELECT CAST(total(value*n)*1e3 AS INTEGER) FROM metric JOIN run_end USING(run_id) WHERE verdict='VALID'";
    sqlite3 *c = raw_open(dir.db);
    int64_t want = raw_int(c, sum);
    sqlite3_close(c);
    srand(3);
    int found = 0;
    for (int round = 0; round < 100; round++) {
        size_t at = (size_t)(((uint64_t)rand() << 16 ^ (uint64_t)rand()) % sound.n);
        memcpy(flipped.p, sound.p, sound.n);
        flipped.p[at] ^= (unsigned char)(1 << (rand() % 8));
        image_put(&flipped);
        enum verify_outcome outcome = VERIFY_INVALID;
        json_t *r = NULL;
        if (store_open(dir.db, STORE_READ, &s, NULL, &e) == 0) {
            if (verify_store(s, secret_key_public(key), 1, &outcome, &r, &e))
                outcome = VERIFY_INVALID;
            if (outcome == VERIFY_OK)
                cr_assert(raw_int(store_sqlite(s), sum) == want, "bit at %zu changed a figure unseen", at);
            store_close(s);
        }
        found += outcome != VERIFY_OK;
        json_decref(r);
    }
    cr_assert(gt(int, found, 50));
    image_free(&sound);
    image_free(&flipped);
}
