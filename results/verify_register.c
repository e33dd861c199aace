/* The register under examination: one walk that checks every entry against the arithmetic and
 * against its own row, and keeps what it says of each run; then one run's record against that, and
 * the campaign's account ("k of n started runs were valid"). Source: certification.md section 6. */
#include "harness/core/arena.h"
#include "harness/core/clock.h"
#include "results/jcs.h"
#include "results/verify_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct register_state {
    struct arena arena; /* texts */
    struct run_entry *run;
    size_t nruns, cap;
    json_t *counter; /* campaign -> runs started so far */
    unsigned char (*leaf)[32];
    size_t leaf_cap;
    struct merkle tree;
    unsigned char chain[32];
    char last_at[40];
};

/* The first finding of each kind, and how many there are. */
struct finding {
    const char *check;
    enum verify_outcome bad;
    int64_t n;
    char first[512];
};
enum { F_FORMAT, F_DENSE, F_CHAIN, F_MERKLE, F_TIME, F_RUNS, F_COUNT };

static void found(struct finding *f, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void found(struct finding *f, const char *fmt, ...) {
    if (f->n++)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f->first, sizeof f->first, fmt, ap);
    va_end(ap);
}

/* ---- finding runs: the array is in order of their start; UUIDs need not be ---- */

static int by_uuid(const void *a, const void *b) {
    return strcmp(((const struct run_entry *)a)->uuid, ((const struct run_entry *)b)->uuid);
}

static struct run_entry *find(const struct register_state *g, const char *uuid) {
    struct run_entry key;
    snprintf(key.uuid, sizeof key.uuid, "%s", uuid);
    return g->nruns ? bsearch(&key, g->run, g->nruns, sizeof *g->run, by_uuid) : NULL;
}

const struct run_entry *register_find(const struct register_state *g, const char *uuid) {
    return find(g, uuid);
}

/* Keeps the array sorted; new ids are nearly always the greatest, as UUIDv7 begins with the time.
 */
static struct run_entry *insert(struct register_state *g, const char *uuid) {
    if (g->nruns == g->cap) {
        size_t cap = g->cap ? 2 * g->cap : 64;
        struct run_entry *p = realloc(g->run, cap * sizeof *p);
        if (!p)
            return NULL;
        g->run = p;
        g->cap = cap;
    }
    size_t at = g->nruns;
    while (at && strcmp(g->run[at - 1].uuid, uuid) > 0)
        at--;
    memmove(&g->run[at + 1], &g->run[at], (g->nruns - at) * sizeof *g->run);
    g->nruns++;
    g->run[at] = (struct run_entry){.fate = FATE_OPEN};
    snprintf(g->run[at].uuid, sizeof g->run[at].uuid, "%s", uuid);
    return &g->run[at];
}

/* ---- one entry ---- */

static bool digest_at(const json_t *o, const char *name, unsigned char out[32]) {
    const char *hex = json_string_value(json_object_get(o, name));
    return hex && strlen(hex) == 64 && hex_decode(hex, 32, out) == 0;
}

static const char *keep(struct register_state *g, const json_t *o, const char *name) {
    const char *s = json_string_value(json_object_get(o, name));
    return arena_strdup(&g->arena, s ? s : "");
}

/* How many runs of the campaign have started, this one included; -1 without memory. */
static int64_t count_campaign(struct register_state *g, const char *campaign) {
    int64_t n = json_integer_value(json_object_get(g->counter, campaign)) + 1;
    return json_object_set_new(g->counter, campaign, json_integer(n)) ? -1 : n;
}

static int run_started(struct register_state *g, const json_t *o, int64_t seq, struct finding *f,
                       struct err *e) {
    const char *uuid = json_string_value(json_object_get(o, "runId"));
    unsigned char root[32], claimed[32];
    if (!uuid || strlen(uuid) != 36) {
        found(f, "entry %" PRId64 ": run.started without a run's id", seq);
        return 0;
    }
    if (find(g, uuid)) {
        found(f, "entry %" PRId64 ": run %s is started a second time", seq, uuid);
        return 0;
    }
    merkle_root(&g->tree, root); /* before this entry: the size it saw is seq */
    const char *campaign = keep(g, o, "campaign"), *seed = keep(g, o, "seed"),
               *at = keep(g, o, "at");
    struct run_entry *run = insert(g, uuid);
    if (!run || !campaign || !seed || !at)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    if ((run->counted = count_campaign(g, campaign)) < 0)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    run->campaign = campaign;
    run->seed = seed;
    run->at = at;
    run->started_seq = seq;
    run->attempt = json_integer_value(json_object_get(o, "attempt"));
    memcpy(run->previous_root, root, 32);
    if (!digest_at(o, "workloadSha256", run->workload) ||
        !digest_at(o, "systemSha256", run->system) ||
        !digest_at(o, "harnessSha256", run->harness) || !digest_at(o, "rulesSha256", run->rules) ||
        !digest_at(o, "previousRoot", claimed))
        found(f, "entry %" PRId64 ": run.started lacks a digest", seq);
    else if (memcmp(claimed, root, 32) != 0)
        found(f,
              "entry %" PRId64
              ": run %s was started on another register: its previous root differs",
              seq, uuid);
    if (run->attempt != run->counted)
        found(f,
              "entry %" PRId64 ": run %s says it is attempt %" PRId64
              " of its campaign, the register counts %" PRId64,
              seq, uuid, run->attempt, run->counted);
    return 0;
}

static void run_closed(struct register_state *g, const json_t *o, const char *type, int64_t seq,
                       struct finding *f) {
    const char *uuid = json_string_value(json_object_get(o, "runId"));
    const char *verdict = json_string_value(json_object_get(o, "verdict"));
    struct run_entry *run = uuid ? find(g, uuid) : NULL;
    bool finished = strcmp(type, "run.finished") == 0;
    if (!run) {
        found(f, "entry %" PRId64 ": %s of a run that was not started", seq, type);
        return;
    }
    if (run->fate != FATE_OPEN) {
        found(f, "entry %" PRId64 ": run %s ends a second time", seq, uuid);
        return;
    }
    run->has_payload = digest_at(o, "payloadSha256", run->payload);
    run->fate = !finished                              ? FATE_ABORTED
                : verdict && !strcmp(verdict, "VALID") ? FATE_VALID
                                                       : FATE_INVALID;
    if (finished && (!run->has_payload || !verdict))
        found(f, "entry %" PRId64 ": run.finished without verdict or payload digest", seq);
}

static bool keep_leaf(struct register_state *g, const unsigned char leaf[32]) {
    if (g->tree.size == g->leaf_cap) {
        size_t cap = g->leaf_cap ? 2 * g->leaf_cap : 256;
        void *p = realloc(g->leaf, cap * sizeof *g->leaf);
        if (!p)
            return false;
        g->leaf = p;
        g->leaf_cap = cap;
    }
    memcpy(g->leaf[g->tree.size], leaf, 32);
    return true;
}

/* seq, entry, leaf, chain, edge, kind, at_ns, uuid of run_id */
static int one_entry(struct register_state *g, sqlite3_stmt *st, int64_t expected,
                     struct finding *f, struct err *e) {
    int64_t seq = sqlite3_column_int64(st, 0);
    const void *entry = sqlite3_column_blob(st, 1);
    size_t n = (size_t)sqlite3_column_bytes(st, 1);
    unsigned char want[32], edge[64 * 32];
    struct err why = {0};
    json_t *o = NULL;
    if (seq != expected)
        found(&f[F_DENSE], "expected entry %" PRId64 ", found %" PRId64, expected, seq);

    int rc = 0;
    if (jcs_parse(entry ? entry : "", n, "entry", &o, &why)) {
        found(&f[F_FORMAT], "entry %" PRId64 ": %s", seq, why.text);
    } else {
        struct buf again;
        buf_init(&again, 1024 * 1024);
        const char *type = json_string_value(json_object_get(o, "type"));
        const char *at = json_string_value(json_object_get(o, "at"));
        const char *uuid = json_string_value(json_object_get(o, "runId"));
        char row_at[40];
        if (jcs_encode(o, &again, &why) || again.failed || again.n != n ||
            memcmp(again.p, entry, n))
            found(&f[F_FORMAT], "entry %" PRId64 " is not canonical JSON", seq);
        buf_release(&again);
        clock_rfc3339(sqlite3_column_int64(st, 6), row_at, sizeof row_at);
        if (!type || json_integer_value(json_object_get(o, "seq")) != seq)
            found(&f[F_FORMAT], "entry %" PRId64 " has another number inside", seq);
        else if (strcmp(type, sql_text(st, 5)) || (uuid && strcmp(uuid, sql_text(st, 7))))
            found(&f[F_FORMAT], "entry %" PRId64 ": the row's kind or run is not the entry's", seq);
        if (!at || strcmp(at, row_at) != 0)
            found(&f[F_TIME], "entry %" PRId64 ": the row's time is not the entry's", seq);
        if (type && strcmp(type, "run.started") == 0)
            rc = run_started(g, o, seq, &f[F_RUNS], e);
        else if (type && (strcmp(type, "run.finished") == 0 || strcmp(type, "run.aborted") == 0))
            run_closed(g, o, type, seq, &f[F_RUNS]);
    }
    register_chain(g->chain, entry, n, want);
    if (sqlite3_column_bytes(st, 3) != 32 || memcmp(want, sqlite3_column_blob(st, 3), 32))
        found(&f[F_CHAIN], "entry %" PRId64 ": the hash chain breaks here", seq);
    memcpy(g->chain, want, 32);
    merkle_leaf(entry, n, want);
    if (sqlite3_column_bytes(st, 2) != 32 || memcmp(want, sqlite3_column_blob(st, 2), 32))
        found(&f[F_MERKLE], "entry %" PRId64 ": the leaf hash differs", seq);
    if (!keep_leaf(g, want))
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
    merkle_append(&g->tree, want);
    size_t bytes = register_edge(&g->tree, edge);
    if ((size_t)sqlite3_column_bytes(st, 4) != bytes ||
        memcmp(edge, sqlite3_column_blob(st, 4), bytes))
        found(&f[F_MERKLE], "entry %" PRId64 ": the tree's edge differs", seq);
    json_decref(o);
    return rc;
}

/* Times may step back by a second; more must carry its flag, and is told. */
static void check_times(struct store *s, struct finding *f, struct err *e) {
    int64_t seq = 0;
    bool any = false;
    if (sql_get_int(&s->c, e, &seq, &any,
                    "SELECT seq FROM (SELECT seq, entry, at_ns, lag(at_ns) OVER (ORDER BY seq) AS "
                    "before FROM register_entry)"
                    " WHERE at_ns<before-1000000000 AND instr(CAST(entry AS "
                    "TEXT),'\"clockRegressed\":true')=0 ORDER BY seq LIMIT 1",
                    ""))
        found(f, "%s", e->text);
    else if (any)
        found(f, "entry %" PRId64 " is more than a second older than the one before", seq);
}

int register_load(struct store *s, struct register_state **out, struct report *r, struct err *e) {
    struct finding f[F_COUNT] = {
        [F_FORMAT] = {.check = "register_entries_format"},
        [F_DENSE] = {.check = "register_dense"},
        [F_CHAIN] = {.check = "register_chain"},
        [F_MERKLE] = {.check = "register_merkle"},
        [F_TIME] = {.check = "register_times"},
        [F_RUNS] = {.check = "register_order"},
    };
    struct register_state *g = calloc(1, sizeof *g);
    sqlite3_stmt *st = NULL;
    bool row = true;
    *out = g;
    if (!g || !(g->counter = json_object()))
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    int rc = sql_prepare(
        &s->c,
        "SELECT seq, entry, leaf, chain, edge, kind, at_ns, (SELECT uuid FROM run r WHERE r.run_id="
        "g.run_id) FROM register_entry g ORDER BY seq",
        &st, e);
    int64_t expected = 0;
    while (!rc && !(rc = sql_step(&s->c, st, &row, e)) && row) {
        rc = one_entry(g, st, expected, f, e);
        expected = sqlite3_column_int64(st, 0) + 1;
    }
    sqlite3_finalize(st);
    if (rc)
        return rc;
    struct err why = {0};
    check_times(s, &f[F_TIME], &why);
    char root[SHA256_HEX];
    unsigned char digest[32];
    merkle_root(&g->tree, digest);
    hex_encode(digest, 32, root);
    for (int i = 0; i < F_COUNT; i++)
        if (f[i].n)
            report_findings(r, f[i].check, VERIFY_REGISTER, f[i].n, f[i].first, "sound");
    int64_t bad = 0;
    for (int i = 0; i < F_COUNT; i++)
        bad += f[i].n;
    if (!bad)
        report_check(r, "register", true, VERIFY_REGISTER,
                     "%" PRIu64 " entries: dense, chained, in the Merkle tree with root %s",
                     g->tree.size, root);
    if (json_object_set_new(r->root, "register",
                            json_pack("{s:I s:s}", "size", (json_int_t)g->tree.size, "root", root)))
        r->failed_memory = true;
    return 0;
}

void register_free(struct register_state *g) {
    if (!g)
        return;
    arena_release(&g->arena);
    json_decref(g->counter);
    free(g->leaf);
    free(g->run);
    free(g);
}

bool register_root_at(const struct register_state *g, uint64_t size, unsigned char root[32]) {
    struct merkle m = {0};
    if (size > g->tree.size)
        return false;
    for (uint64_t i = 0; i < size; i++)
        merkle_append(&m, g->leaf[i]);
    merkle_root(&m, root);
    return true;
}

/* The checkpoints kept beside the register: each is a root that it has had. */
void check_checkpoints(struct store *s, const struct register_state *g, struct report *r) {
    sqlite3_stmt *st = NULL;
    struct err e = {0};
    bool row = true;
    int64_t n = 0, bad = 0;
    char first[256] = "";
    int rc = sql_prepare(&s->c, "SELECT origin, size, root FROM checkpoint ORDER BY size", &st, &e);
    for (; !rc && !(rc = sql_step(&s->c, st, &row, &e)) && row; n++) {
        unsigned char root[32];
        int64_t size = sqlite3_column_int64(st, 1);
        bool ok = size > 0 && register_root_at(g, (uint64_t)size, root) &&
                  sqlite3_column_bytes(st, 2) == 32 &&
                  memcmp(root, sqlite3_column_blob(st, 2), 32) == 0;
        if (!ok && !bad++)
            snprintf(first, sizeof first,
                     "the checkpoint of '%.80s' at size %" PRId64 " is not of this register",
                     sql_text(st, 0), size);
    }
    sqlite3_finalize(st);
    if (rc)
        report_error(r, "checkpoints", VERIFY_REGISTER, &e);
    else
        report_findings(r, "checkpoints", VERIFY_REGISTER, bad, first,
                        "%" PRId64 " kept checkpoint%s agree", n, n == 1 ? "" : "s");
}

uint64_t register_size(const struct register_state *g) {
    return g->tree.size;
}

int register_each_run(const struct register_state *g,
                      int (*fn)(void *ctx, const struct run_entry *e), void *ctx) {
    int rc = 0;
    for (size_t i = 0; !rc && i < g->nruns; i++)
        rc = fn(ctx, &g->run[i]);
    return rc;
}

/* ---- a record against the register ---- */

static bool same_hex(const json_t *predicate, const char *path, const unsigned char digest[32]) {
    const char *text = text_at(predicate, path);
    char hex[SHA256_HEX];
    hex_encode(digest, 32, hex);
    return text && strcmp(text, hex) == 0;
}

void check_registered(const struct register_state *g, const char *uuid,
                      const struct signed_record *s, struct report *r) {
    const json_t *p = s->predicate;
    const struct run_entry *e = register_find(g, uuid);
    const char *verdict = text_at(p, "run.verdict"), *campaign = text_at(p, "run.campaign"),
               *seed = text_at(p, "run.seed"), *run_id = text_at(p, "run.runId"),
               *started = text_at(p, "run.startedOn");
    int64_t seq = -1, attempt = -1, size = -1;
    if (!e) {
        report_check(r, "register_entries", false, VERIFY_REGISTER,
                     "the run is not in the register");
        return;
    }
    bool valid = verdict && strcmp(verdict, "VALID") == 0;
    const struct {
        bool ok;
        const char *what;
    } must[] = {
        {run_id && strcmp(run_id, uuid) == 0, "the record is of another run"},
        {integer_at(p, "run.registerSeq", &seq) && seq == e->started_seq,
         "registerSeq is not the entry's number"},
        {integer_at(p, "run.attempt", &attempt) && attempt == e->counted,
         "attempt is not what the register counts"},
        {campaign && strcmp(campaign, e->campaign) == 0, "the campaign differs"},
        {seed && strcmp(seed, e->seed) == 0, "the seed differs"},
        {started && strcmp(started, e->at) == 0, "the start time differs"},
        {same_hex(p, "workload.digest.sha256", e->workload),
         "the workload differs from the one registered"},
        {same_hex(p, "system.descriptor.digest.sha256", e->system),
         "the system differs from the one registered"},
        {same_hex(p, "harness.digest.sha256", e->harness),
         "the harness differs from the one registered"},
        {same_hex(p, "rules.digest.sha256", e->rules),
         "the rule pack differs from the one registered"},
        {integer_at(p, "previous.registerSize", &size) && size == e->started_seq,
         "previous.registerSize is not the size at the start"},
        {same_hex(p, "previous.registerRoot", e->previous_root),
         "previous.registerRoot is not the root at that size: the register has been rewritten"},
        {e->fate == (valid ? FATE_VALID : FATE_INVALID),
         "the register has no run.finished with this verdict"},
        {e->has_payload && memcmp(e->payload, s->sha256, 32) == 0,
         "the register names another payload"},
    };
    int bad = 0;
    const char *first = "";
    for (size_t i = 0; i < sizeof must / sizeof must[0]; i++)
        if (!must[i].ok && !bad++)
            first = must[i].what;
    report_findings(r, "register_entries", VERIFY_REGISTER, bad, first,
                    "entry %" PRId64 " of %" PRIu64 ", attempt %" PRId64
                    " of its campaign; previous root agrees",
                    seq, g->tree.size, attempt);
}

/* ---- the campaign ---- */

struct standing {
    struct store *s;
    const char *campaign, *metric, *stat, *better;
    double value;
    bool ranked; /* this run is valid and has the value */
    int64_t started, valid, invalid, aborted, open, better_ones, unknown;
};

static const json_t *find_metric(const json_t *predicate, const char *name, const char *stat) {
    size_t i;
    json_t *m;
    json_t *all = (json_t *)(uintptr_t)json_object_get(predicate, "metrics");
    json_array_foreach(all, i, m) {
        const char *n = text_at(m, "name"), *st = text_at(m, "stat");
        if (n && st && strcmp(n, name) == 0 && strcmp(st, stat) == 0)
            return m;
    }
    return NULL;
}

/* The signed value of another run of the campaign; false when its record is not there or not the
 * one that the register names. */
static bool value_of(const struct standing *k, const struct run_entry *e, double *v) {
    struct err ignored = {0};
    sqlite3_stmt *st = NULL;
    bool row = false, ok = false;
    unsigned char digest[32];
    json_t *o = NULL;
    if (!sql_prepare(&k->s->c, "SELECT payload FROM envelope JOIN run USING(run_id) WHERE uuid=?",
                     &st, &ignored) &&
        !sql_bind(&k->s->c, st, &ignored, "t", e->uuid) &&
        !sql_step(&k->s->c, st, &row, &ignored) && row) {
        const void *p = sqlite3_column_blob(st, 0);
        size_t n = (size_t)sqlite3_column_bytes(st, 0);
        sha256(p, n, digest);
        if (e->has_payload && memcmp(digest, e->payload, 32) == 0 &&
            !jcs_parse(p, n, "record", &o, &ignored)) {
            const json_t *m = find_metric(json_object_get(o, "predicate"), k->metric, k->stat);
            ok = m && number_at(m, "value", v);
        }
    }
    json_decref(o);
    sqlite3_finalize(st);
    return ok;
}

static int count_one(void *ctx, const struct run_entry *e) {
    struct standing *k = ctx;
    double v;
    if (strcmp(e->campaign, k->campaign) != 0)
        return 0;
    k->started++;
    k->valid += e->fate == FATE_VALID;
    k->invalid += e->fate == FATE_INVALID;
    k->aborted += e->fate == FATE_ABORTED;
    k->open += e->fate == FATE_OPEN;
    if (e->fate != FATE_VALID || !k->ranked)
        return 0;
    if (!value_of(k, e, &v))
        k->unknown++;
    else
        k->better_ones += strcmp(k->better, "lower") == 0 ? v < k->value : v > k->value;
    return 0;
}

int report_campaign(struct store *s, const struct register_state *g, const char *uuid,
                    const json_t *predicate, struct report *r, struct err *e) {
    const struct run_entry *own = register_find(g, uuid);
    struct standing k = {.s = s};
    if (!own)
        return 0;
    k.campaign = own->campaign;
    const json_t *m = find_metric(predicate, "output_tokens_per_s", "value");
    if (!m)
        m = json_array_get(json_object_get(predicate, "metrics"), 0);
    k.metric = text_at(m, "name");
    k.stat = text_at(m, "stat");
    k.better = text_at(m, "better");
    k.ranked = own->fate == FATE_VALID && k.metric && k.stat && k.better &&
               number_at(m, "value", &k.value);
    register_each_run(g, count_one, &k);
    json_t *c =
        json_pack("{s:s s:I s:I s:I s:I s:I}", "name", k.campaign, "started", (json_int_t)k.started,
                  "valid", (json_int_t)k.valid, "invalid", (json_int_t)k.invalid, "aborted",
                  (json_int_t)k.aborted, "open", (json_int_t)k.open);
    char text[256];
    int n = snprintf(text, sizeof text, "%" PRId64 " of %" PRId64 " started runs were valid",
                     k.valid, k.started);
    int bad = !c;
    if (k.ranked) {
        bad = bad || json_object_set_new(c, "metric", json_string(k.metric)) ||
              json_object_set_new(c, "rank", json_integer(k.better_ones + 1));
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "; this value is number %" PRId64 " of %" PRId64 " by %.60s",
                      k.better_ones + 1, k.valid, k.metric);
        if (k.unknown)
            snprintf(text + n, sizeof text - (size_t)n, " (%" PRId64 " cannot be read)", k.unknown);
    }
    bad = bad || json_object_set_new(c, "text", json_string(text)) ||
          json_object_set_new(r->root, "campaign", c);
    return bad ? err_set(e, ASSAY_ENOMEM, "out of memory") : 0;
}
