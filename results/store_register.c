/* The run register in the store: the next entry, the head, the walk over all. The arithmetic is
 * register.c's; whether the entries are right is verify_register.c's question. */
#include "harness/core/clock.h"
#include "results/jcs.h"
#include "results/store_internal.h"

#include <inttypes.h>
#include <string.h>

enum { ENTRY_MAX_BYTES = 64 * 1024 };

/* A time older than its predecessor's by more than this is flagged. Source: certification.md 8. */
static const int64_t clock_regress_ns = NS_PER_S;

struct head {
    struct merkle tree;
    unsigned char chain[SHA256_N]; /* zeros when empty */
    int64_t at_ns;                 /* INT64_MIN when empty */
};

static int read_head(struct conn *c, struct head *h, struct err *e) {
    *h = (struct head){.at_ns = INT64_MIN};
    sqlite3_stmt *st = NULL;
    bool row = false;
    int rc = sql_prepare(
        c, "SELECT seq, chain, edge, at_ns FROM register_entry ORDER BY seq DESC LIMIT 1", &st, e);
    if (!rc)
        rc = sql_step(c, st, &row, e);
    if (rc || !row)
        goto out;
    h->tree.size = (uint64_t)sqlite3_column_int64(st, 0) + 1;
    h->at_ns = sqlite3_column_int64(st, 3);
    size_t edges = (size_t)__builtin_popcountll(h->tree.size);
    if (sqlite3_column_bytes(st, 1) != SHA256_N ||
        (size_t)sqlite3_column_bytes(st, 2) != edges * SHA256_N) {
        rc = err_set(e, ASSAY_EINPUT,
                     "'%s' is damaged: register entry %" PRIu64 " has no valid edge", c->path,
                     h->tree.size - 1);
        goto out;
    }
    memcpy(h->chain, sqlite3_column_blob(st, 1), SHA256_N);
    const unsigned char *p = sqlite3_column_blob(st, 2);
    for (int k = 63; k >= 0; k--)
        if (h->tree.size >> k & 1) {
            memcpy(h->tree.edge[k], p, SHA256_N);
            p += SHA256_N;
        }
out:
    sqlite3_finalize(st);
    return rc;
}

int register_head(struct conn *c, uint64_t *size, unsigned char root[32], struct err *e) {
    struct head h;
    int rc = read_head(c, &h, e);
    if (rc)
        return rc;
    *size = h.tree.size;
    merkle_root(&h.tree, root);
    return 0;
}

size_t register_edge(const struct merkle *m, unsigned char out[64 * 32]) {
    size_t n = 0;
    for (int k = 63; k >= 0; k--)
        if (m->size >> k & 1) {
            memcpy(out + n, m->edge[k], SHA256_N);
            n += SHA256_N;
        }
    return n;
}

int register_append(struct conn *c, const char *kind, int64_t run_id, int64_t at_ns, json_t *o,
                    int64_t *seq, struct err *e) {
    struct head h;
    struct buf entry;
    buf_init(&entry, ENTRY_MAX_BYTES);
    int rc = read_head(c, &h, e);
    if (rc)
        goto out;
    char at[40];
    clock_rfc3339(at_ns, at, sizeof at);
    *seq = (int64_t)h.tree.size;
    int bad = json_object_set_new(o, "type", json_string(kind)) ||
              json_object_set_new(o, "seq", json_integer(*seq)) ||
              json_object_set_new(o, "at", json_string(at));
    if (!bad && h.at_ns != INT64_MIN && at_ns < h.at_ns - clock_regress_ns)
        bad = json_object_set_new(o, "clockRegressed", json_true());
    if (bad) {
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
        goto out;
    }
    rc = jcs_encode(o, &entry, e);
    if (!rc)
        rc = buf_check(&entry, "the register entry", e);
    if (rc)
        goto out;
    unsigned char leaf[SHA256_N], chain[SHA256_N], edge[64 * SHA256_N];
    merkle_leaf(entry.p, entry.n, leaf);
    register_chain(h.chain, entry.p, entry.n, chain);
    merkle_append(&h.tree, leaf);
    size_t edge_n = register_edge(&h.tree, edge);
    rc = sql_run(c, e, "INSERT INTO register_entry VALUES(?,?,nullif(?,0),?,?,?,?,?)", "itiibhhb",
                 *seq, kind, run_id, at_ns, (const void *)entry.p, entry.n, leaf, chain,
                 (const void *)edge, edge_n);
out:
    buf_release(&entry);
    return rc ? err_wrap(e, "writing the run register") : 0;
}

int store_register_each(struct store *s, register_visit_fn *fn, void *ctx, struct err *e) {
    sqlite3_stmt *st = NULL;
    bool row = true;
    int rc = sql_prepare(&s->c, "SELECT seq, entry, leaf, chain FROM register_entry ORDER BY seq",
                         &st, e);
    while (!rc && !(rc = sql_step(&s->c, st, &row, e)) && row) {
        int64_t seq = sqlite3_column_int64(st, 0);
        if (sqlite3_column_bytes(st, 2) != SHA256_N || sqlite3_column_bytes(st, 3) != SHA256_N)
            rc = err_set(e, ASSAY_EINPUT,
                         "'%s' is damaged: register entry %" PRId64 " has a short digest",
                         s->c.path, seq);
        else
            rc = fn(ctx, (uint64_t)seq, sqlite3_column_blob(st, 1),
                    (size_t)sqlite3_column_bytes(st, 1), sqlite3_column_blob(st, 2),
                    sqlite3_column_blob(st, 3), e);
    }
    sqlite3_finalize(st);
    return rc;
}

int store_checkpoint(struct store *s, const char *origin, const struct secret_key *k,
                     struct buf *note, struct err *e) {
    struct conn *c = &s->c;
    uint64_t size;
    unsigned char root[SHA256_N];
    int64_t there = 0;
    int rc = sql_begin(c, e);
    if (!rc)
        rc = register_head(c, &size, root, e);
    if (!rc && !size)
        rc = err_set(e, ASSAY_EUSAGE, "the register is empty");
    if (!rc)
        rc = checkpoint_print(origin, size, root, k, note, e);
    if (!rc)
        rc = sql_get_int(c, e, &there, NULL,
                         "SELECT count(*) FROM checkpoint WHERE origin=? AND size=?", "ti", origin,
                         (int64_t)size);
    if (!rc && !there)
        rc = sql_run(c, e, "INSERT INTO checkpoint VALUES(?,?,?,CAST(? AS TEXT))", "tihb", origin,
                     (int64_t)size, root, (const void *)note->p, note->n);
    if (!rc)
        rc = sql_commit(c, e);
    if (rc)
        sql_rollback(c);
    return rc;
}
