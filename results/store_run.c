/* A run's beginning and end: one commit each. Begin is durable before any load and refuses the run
 * when it cannot be; end stores record, index rows and the closing register entry together. */
#include "harness/core/clock.h"
#include "harness/core/version.h"
#include "results/hash.h"
#include "results/jcs.h"
#include "results/store_internal.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum { DOCUMENT_MAX_BYTES = 64 * 1024 * 1024 };

void uuid_v7(char out[RUN_UUID]) {
    unsigned char b[16];
    size_t got = 0;
    while (got < sizeof b) {
        ssize_t n = getrandom(b + got, sizeof b - got, 0);
        if (n > 0)
            got += (size_t)n;
    }
    uint64_t ms = (uint64_t)(clock_wall_ns() / NS_PER_MS);
    for (int i = 0; i < 6; i++)
        b[i] = (unsigned char)(ms >> (40 - 8 * i));
    b[6] = (unsigned char)(0x70 | (b[6] & 0x0f));
    b[8] = (unsigned char)(0x80 | (b[8] & 0x3f));
    char hex[33];
    hex_encode(b, sizeof b, hex);
    snprintf(out, RUN_UUID, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
             hex + 20);
}

/* ---- the executable ---- */

static pthread_once_t harness_once = PTHREAD_ONCE_INIT;
static unsigned char harness_digest[SHA256_N];
static struct err harness_err;
static int harness_rc;

static void hash_harness(void) {
    harness_rc = sha256_file("/proc/self/exe", harness_digest, &harness_err);
}

static int harness_sha256(unsigned char out[SHA256_N], struct err *e) {
    pthread_once(&harness_once, hash_harness);
    if (harness_rc)
        return err_set(e, harness_rc, "hashing this executable: %s", harness_err.text);
    memcpy(out, harness_digest, SHA256_N);
    return 0;
}

/* ---- rows that are shared by runs ---- */

static const char *text_of(const json_t *o, const char *key, const char *otherwise) {
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : otherwise;
}

/* Stores the canonical bytes of v unless they are there; digest receives their SHA-256. */
static int put_document(struct conn *c, const json_t *v, const char *what,
                        unsigned char digest[SHA256_N], struct err *e) {
    struct buf b;
    int64_t ignored;
    bool found = false;
    buf_init(&b, DOCUMENT_MAX_BYTES);
    int rc = v ? jcs_encode(v, &b, e) : err_set(e, ASSAY_EUSAGE, "a run needs it");
    if (!rc)
        rc = buf_check(&b, what, e);
    if (rc)
        goto out;
    sha256(b.p, b.n, digest);
    rc = sql_get_int(c, e, &ignored, &found, "SELECT 1 FROM document WHERE digest=?", "h", digest);
    if (!rc && !found)
        rc = sql_run(c, e, "INSERT INTO document VALUES(?,CAST(? AS TEXT))", "hb", digest,
                     (const void *)b.p, b.n);
out:
    buf_release(&b);
    return rc ? err_wrap(e, "storing the %s", what) : 0;
}

/* ---- beginning ---- */

/* The weaker of two claims counts; unknown words are the weakest. */
static const char *class_of(const json_t *backend, const json_t *system) {
    static const char *const classes[] = {"none", "projected", "simulated", "emulated", "measured"};
    const char *name[2] = {text_of(backend, "class", NULL), text_of(system, "class", NULL)};
    size_t best = sizeof classes / sizeof classes[0] - 1;
    bool known = false;
    for (int k = 0; k < 2; k++) {
        if (!name[k])
            continue;
        size_t i = sizeof classes / sizeof classes[0] - 1;
        while (i > 0 && strcmp(classes[i], name[k]))
            i--;
        if (i < best)
            best = i;
        known = true;
    }
    return known ? classes[best] : "none";
}

/* The workload without its seed: runs that differ in nothing else compete for the same result. */
static int campaign_workload_sha256(const json_t *workload, unsigned char out[SHA256_N],
                                    struct err *e) {
    json_t *w = json_copy((json_t *)(uintptr_t)workload); /* shallow; the original is not changed */
    if (!w)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    json_object_del(w, "seed");
    json_object_del(w, "overrides");
    int rc = jcs_sha256(w, out, e);
    json_decref(w);
    return rc;
}

static void short_name(const char *name, const unsigned char digest[SHA256_N], struct buf *b) {
    char hex[9];
    hex_encode(digest, 4, hex);
    buf_printf(b, "%s%.64s@%s", b->n ? "/" : "", name, hex);
}

struct ids {
    int64_t campaign, workload, system, rules, harness, backend;
};

static int put_shared(struct conn *c, const struct run_begin *b, struct run_handle *h,
                      unsigned char workload_file[SHA256_N], struct ids *id, struct err *e) {
    const char *wname = text_of(b->workload, "name", "unnamed");
    const char *sname = text_of(b->system, "name", "unnamed");
    const char *rname = text_of(b->rules, "name", "unnamed");
    const struct {
        const json_t *doc;
        const char *what;
        unsigned char *digest;
    } docs[] = {
        {b->workload, "workload", h->workload_sha256},
        {b->workload_file ? b->workload_file : b->workload, "workload file", workload_file},
        {b->system, "system description", h->system_sha256},
        {b->rules, "rule pack", h->rules_sha256},
        {b->backend, "backend description", h->backend_sha256},
        {b->environment, "environment", h->environment_sha256},
    };
    int rc = harness_sha256(h->harness_sha256, e);
    for (size_t i = 0; !rc && i < sizeof docs / sizeof docs[0]; i++)
        rc = put_document(c, docs[i].doc, docs[i].what, docs[i].digest, e);
    if (rc)
        return rc;

    struct buf name;
    buf_init(&name, sizeof h->campaign - 1);
    if (b->campaign) {
        buf_puts(&name, b->campaign);
    } else {
        unsigned char w[SHA256_N];
        rc = campaign_workload_sha256(b->workload, w, e);
        short_name(wname, w, &name);
        short_name(sname, h->system_sha256, &name);
        short_name(rname, h->rules_sha256, &name);
    }
    if (!rc)
        rc = buf_check(&name, "the campaign's name", e);
    if (!rc)
        snprintf(h->campaign, sizeof h->campaign, "%s", name.n ? name.p : "");
    buf_release(&name);
    if (rc)
        return rc;

    /* a version may be written as a number in the pack */
    char number[24] = "";
    const json_t *v = json_object_get(b->rules, "version");
    if (json_is_integer(v))
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    const char *version = json_is_string(v) ? json_string_value(v) : number;
    const json_t *model = json_object_get(b->workload, "model");
    const char *mname = json_is_object(model)
                            ? text_of(model, "name", text_of(model, "$name", NULL))
                            : json_string_value(model);
    rc = sql_id(c, e, &id->campaign, "SELECT campaign_id FROM campaign WHERE name=?",
                "INSERT INTO campaign(name) VALUES(?)", "t", h->campaign);
    if (!rc)
        rc = sql_id(c, e, &id->workload, "SELECT workload_id FROM workload WHERE digest=?1",
                    "INSERT INTO workload(digest,name,version,kind,model) VALUES(?,?,?,?,?)",
                    "htttt", h->workload_sha256, wname, text_of(b->workload, "version", ""),
                    text_of(b->workload, "kind", "unknown"), mname);
    if (!rc)
        rc = sql_id(c, e, &id->system, "SELECT system_id FROM system WHERE digest=?1",
                    "INSERT INTO system(digest,name) VALUES(?,?)", "ht", h->system_sha256, sname);
    if (!rc)
        rc = sql_id(c, e, &id->rules, "SELECT rule_pack_id FROM rule_pack WHERE digest=?1",
                    "INSERT INTO rule_pack(digest,name,version) VALUES(?,?,?)", "htt",
                    h->rules_sha256, rname, version);
    static const char find[] =
        "SELECT software_id FROM software WHERE kind=? AND name=? AND version=? AND digest=?";
    static const char add[] = "INSERT INTO software(kind,name,version,digest) VALUES(?,?,?,?)";
    if (!rc)
        rc = sql_id(c, e, &id->harness, find, add, "ttth", "harness", "assay", assay_version,
                    h->harness_sha256);
    if (!rc)
        rc = sql_id(c, e, &id->backend, find, add, "tttb", "backend",
                    text_of(b->backend, "name", "unnamed"), text_of(b->backend, "version", ""),
                    (const void *)"", (size_t)0);
    return rc;
}

static int register_started(struct conn *c, const struct run_begin *b, struct run_handle *h,
                            struct err *e) {
    char hex[5][SHA256_HEX];
    const unsigned char *digest[5] = {h->workload_sha256, h->system_sha256, h->harness_sha256,
                                      h->rules_sha256, h->previous_root};
    int rc = register_head(c, &h->previous_size, h->previous_root, e);
    if (rc)
        return rc;
    for (int i = 0; i < 5; i++)
        hex_encode(digest[i], SHA256_N, hex[i]);
    json_t *o = json_pack("{ss ss sI ss ss ss ss ss ss}", "runId", h->uuid, "campaign", h->campaign,
                          "attempt", (json_int_t)h->attempt, "workloadSha256", hex[0],
                          "systemSha256", hex[1], "harnessSha256", hex[2], "rulesSha256", hex[3],
                          "previousRoot", hex[4], "seed", b->seed);
    rc =
        o ? register_append(c, "run.started", h->run_id, b->started_wall_ns, o, &h->register_seq, e)
          : err_set(e, ASSAY_EINPUT, "the campaign's name or the seed is not valid UTF-8");
    json_decref(o);
    return rc;
}

static int begin_locked(struct store *s, const struct run_begin *b, struct run_handle *h,
                        struct err *e) {
    struct conn *c = &s->c;
    struct ids id = {0};
    unsigned char workload_file[SHA256_N];
    int rc = put_shared(c, b, h, workload_file, &id, e);
    if (!rc)
        rc = sql_get_int(c, e, &h->attempt, NULL, "SELECT count(*)+1 FROM run WHERE campaign_id=?",
                         "i", id.campaign);
    if (rc)
        return rc;
    const json_t *chips = json_object_get(b->system, "chips");
    if (!json_is_integer(chips))
        chips = json_object_get(b->backend, "chips");
    int64_t nchips = json_integer_value(chips);
    rc = sql_run(
        c, e,
        "INSERT INTO run(uuid,campaign_id,attempt,workload_id,workload_file_digest,system_id,"
        "rule_pack_id,environment_digest,harness_id,backend_id,backend_digest,class,chip,chips,"
        "mode,load_kind,load_value,seed,started_ns) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        "tiiihiihiihttittdti", h->uuid, id.campaign, h->attempt, id.workload, workload_file,
        id.system, id.rules, h->environment_sha256, id.harness, id.backend, h->backend_sha256,
        class_of(b->backend, b->system),
        text_of(b->system, "chip", text_of(b->backend, "chip", "")),
        nchips > 0 ? nchips : (int64_t)0, b->mode, b->load_kind, b->load_value, b->seed,
        b->started_wall_ns);
    if (rc)
        return rc;
    h->run_id = sqlite3_last_insert_rowid(c->db);
    rc = lease_take(s, h->run_id, e); /* before anybody can see the run */
    return rc ? rc : register_started(c, b, h, e);
}

int store_run_begin(struct store *s, const struct run_begin *b, struct run_handle *h,
                    struct err *e) {
    *h = (struct run_handle){0};
    snprintf(h->uuid, sizeof h->uuid, "%s", b->uuid);
    int rc = sql_begin(&s->c, e);
    if (!rc)
        rc = begin_locked(s, b, h, e);
    if (!rc)
        rc = sql_commit(&s->c, e);
    if (rc) {
        sql_rollback(&s->c);
        lease_drop(s, h->run_id);
        return err_wrap(e, "registering the run");
    }
    return 0;
}

/* ---- ending ---- */

static int put_metrics(struct conn *c, int64_t run_id, const struct metrics *m, struct err *e) {
    for (int i = 0; m && i < m->n; i++) {
        const struct metric *v = &m->m[i];
        int64_t def;
        int rc = sql_id(
            c, e, &def,
            "SELECT metric_id FROM metric_def WHERE name=?1 AND stat=?2 AND unit=?3 AND better=?4",
            "INSERT INTO metric_def(name,stat,unit,better,description) VALUES(?,?,?,?,?)", "ttttt",
            v->name, v->stat, v->unit, v->better, "");
        static const char add[] = "INSERT INTO metric VALUES(?,?,?,?,?,?,?)";
        if (!rc && v->ci_level > 0)
            rc = sql_run(c, e, add, "iididdd", run_id, def, v->value, v->n, v->ci_level, v->ci_lo,
                         v->ci_hi);
        else if (!rc)
            rc = sql_run(c, e, add, "iidinnn", run_id, def, v->value, v->n);
        if (rc)
            return err_wrap(e, "storing metric %s %s", v->name, v->stat);
    }
    return 0;
}

static int put_verdicts(struct conn *c, int64_t run_id, const struct run_end *end, struct err *e) {
    int rc = 0;
    for (int i = 0; !rc && i < end->nverdicts; i++) {
        const struct verdict *v = &end->verdicts[i];
        rc = sql_run(c, e, "INSERT INTO verdict VALUES(?,?,?,?,?,?,?)", "iitittt", run_id,
                     (int64_t)i, v->rule, (int64_t)v->ok, v->want, v->got, v->reason_code);
        int64_t there = 1;
        if (!rc && !v->ok)
            rc = sql_get_int(c, e, &there, NULL,
                             "SELECT count(*) FROM invalid_reason WHERE run_id=? AND code=?", "it",
                             run_id, v->reason_code);
        if (!rc && !there)
            rc = sql_run(c, e, "INSERT INTO invalid_reason VALUES(?,?)", "it", run_id,
                         v->reason_code);
    }
    return rc;
}

/* The record's subjects: what its digests cover. */
static int put_artifacts(struct conn *c, int64_t run_id, const json_t *payload, struct err *e) {
    size_t i;
    json_t *subject;
    int rc = 0;
    json_array_foreach(json_object_get(payload, "subject"), i, subject) {
        const char *hex = text_of(json_object_get(subject, "digest"), "sha256", "");
        unsigned char digest[SHA256_N];
        if (hex_decode(hex, SHA256_N, digest) || hex[2 * SHA256_N])
            return err_set(e, ASSAY_EINPUT, "the record's subject %zu has no SHA-256", i);
        rc = sql_run(c, e, "INSERT INTO artifact VALUES(?,?,?)", "ith", run_id,
                     text_of(subject, "name", ""), digest);
        if (rc)
            return rc;
    }
    return 0;
}

static int put_key(struct conn *c, const struct public_key *k, const char *owner, struct err *e) {
    int64_t there;
    int rc =
        sql_get_int(c, e, &there, NULL, "SELECT count(*) FROM key WHERE keyid=?", "t", k->keyid);
    if (!rc && !there)
        rc = sql_run(c, e, "INSERT INTO key VALUES(?,?,?)", "tht", k->keyid, k->raw, owner);
    return rc;
}

static int put_signature(struct conn *c, const unsigned char digest[SHA256_N],
                         const struct dsse_signature *sig, const struct public_key *k,
                         const char *owner, int64_t at_ns, struct err *e) {
    int rc = put_key(c, k, owner, e);
    if (!rc)
        rc = sql_run(c, e, "INSERT INTO signature VALUES(?,?,?,?)", "htbi", digest, k->keyid,
                     (const void *)sig->sig, sizeof sig->sig, at_ns);
    return rc;
}

static int end_locked(struct conn *c, const struct run_handle *h, const struct run_end *end,
                      const json_t *payload, struct err *e) {
    unsigned char digest[SHA256_N] = {0};
    bool aborted = strcmp(end->verdict, "ABORTED") == 0;
    const struct metrics *m = end->metrics;
    int rc = 0;
    if (end->payload) {
        sha256(end->payload, end->payload_bytes, digest);
        rc = sql_run(c, e, "INSERT INTO envelope VALUES(?,?,?,?)", "hitb", digest, h->run_id,
                     DSSE_PAYLOAD_TYPE, end->payload, end->payload_bytes);
        if (!rc && end->signature)
            rc = put_signature(c, digest, end->signature, end->key, "runner", end->finished_wall_ns,
                               e);
    }
    if (!rc)
        rc = sql_run(c, e, "INSERT INTO run_end VALUES(?,?,?,?,?,?,?,?,?,?,?)",
                     m ? "iiitthiiiii" : "iiitthnnnnn", h->run_id, end->finished_wall_ns,
                     end->duration_ns, end->verdict,
                     aborted ? (end->abort_reason ? end->abort_reason : "unknown") : NULL,
                     end->payload ? digest : NULL, m ? m->issued : 0, m ? m->completed : 0,
                     m ? m->failed : 0, m ? m->input_tokens : 0, m ? m->output_tokens : 0);
    if (!rc)
        rc = put_metrics(c, h->run_id, m, e);
    if (!rc)
        rc = put_verdicts(c, h->run_id, end, e);
    if (!rc)
        rc = put_artifacts(c, h->run_id, payload, e);
    if (!rc && end->series)
        rc = series_store(c, h->run_id, end->series, e);
    if (rc)
        return rc;

    char hex[SHA256_HEX];
    hex_encode(digest, SHA256_N, hex);
    json_t *o = json_pack("{ss}", "runId", h->uuid);
    const char *kind = aborted ? "run.aborted" : "run.finished";
    int bad = !o;
    if (aborted)
        bad = bad ||
              json_object_set_new(o, "reason",
                                  json_string(end->abort_reason ? end->abort_reason : "unknown"));
    else
        bad = bad || json_object_set_new(o, "verdict", json_string(end->verdict));
    if (end->payload)
        bad = bad || json_object_set_new(o, "payloadSha256", json_string(hex));
    int64_t seq;
    rc = bad ? err_set(e, ASSAY_EINPUT, "the reason or verdict of the run is not valid UTF-8")
             : register_append(c, kind, h->run_id, end->finished_wall_ns, o, &seq, e);
    json_decref(o);
    if (!rc)
        rc = sql_run(c, e, "DELETE FROM lease WHERE run_id=?", "i", h->run_id);
    return rc;
}

int store_run_end(struct store *s, const struct run_handle *h, const struct run_end *end,
                  struct err *e) {
    json_t *payload = NULL;
    int rc = 0;
    if (!end->payload && strcmp(end->verdict, "ABORTED"))
        return err_set(e, ASSAY_EUSAGE, "a run that was not aborted needs its signed record");
    if (end->payload)
        rc = jcs_parse(end->payload, end->payload_bytes, "record", &payload, e);
    if (!rc)
        rc = sql_begin(&s->c, e);
    if (!rc)
        rc = end_locked(&s->c, h, end, payload, e);
    if (!rc)
        rc = sql_commit(&s->c, e);
    if (rc)
        sql_rollback(&s->c);
    else
        lease_drop(s, h->run_id);
    json_decref(payload);
    return rc ? err_wrap(e, "storing the end of run %s", h->uuid) : 0;
}

int run_abort(struct conn *c, int64_t run_id, const char *uuid, const char *reason, int64_t at_ns,
              int64_t duration_ns, struct err *e) {
    struct run_handle h = {.run_id = run_id};
    snprintf(h.uuid, sizeof h.uuid, "%s", uuid);
    struct run_end end = {.verdict = "ABORTED",
                          .finished_wall_ns = at_ns,
                          .duration_ns = duration_ns,
                          .abort_reason = reason};
    return end_locked(c, &h, &end, NULL, e);
}

int store_sign(struct store *s, int64_t run_id, const struct dsse_signature *sig,
               const struct public_key *k, const char *owner, struct err *e) {
    unsigned char digest[SHA256_N];
    sqlite3_stmt *st = NULL;
    bool row = false;
    int rc = sql_begin(&s->c, e);
    if (!rc)
        rc = sql_prepare(&s->c, "SELECT payload_sha256 FROM envelope WHERE run_id=?", &st, e);
    if (!rc)
        rc = sql_bind(&s->c, st, e, "i", run_id);
    if (!rc)
        rc = sql_step(&s->c, st, &row, e);
    if (!rc && (!row || sqlite3_column_bytes(st, 0) != SHA256_N))
        rc = err_set(e, ASSAY_EUSAGE, "the run has no record to sign");
    if (!rc)
        memcpy(digest, sqlite3_column_blob(st, 0), SHA256_N);
    sqlite3_finalize(st);
    int64_t there = 0;
    if (!rc)
        rc = sql_get_int(&s->c, e, &there, NULL,
                         "SELECT count(*) FROM signature WHERE payload_sha256=? AND keyid=?", "ht",
                         digest, k->keyid);
    if (!rc && there)
        rc = err_set(e, ASSAY_EUSAGE, "key %s has signed this record already", k->keyid);
    if (!rc)
        rc = put_signature(&s->c, digest, sig, k, owner, clock_wall_ns(), e);
    if (!rc)
        rc = sql_commit(&s->c, e);
    if (rc)
        sql_rollback(&s->c);
    return rc;
}
