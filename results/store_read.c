/* Reading runs back: which run is meant, its log, its signed record. */
#include "results/hash.h"
#include "results/store_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUN_REF_MIN = 4 };

/* ---- which run ---- */

/* A UUIDv7 begins with its time, so runs of one minute share their first digits and differ in the
 * last ones: both ends are accepted. */
int store_find_run(struct store *s, const char *ref, int64_t *run_id, char uuid[RUN_UUID],
                   struct err *e) {
    char key[RUN_UUID] = "";
    bool latest = strcmp(ref, "latest") == 0;
    size_t n = strlen(ref);
    if (!latest) {
        if (n < RUN_REF_MIN || n >= RUN_UUID)
            return err_set(e, ASSAY_EUSAGE,
                           "no run '%s': expected 'latest' or %d to 36 digits of a run's id", ref,
                           RUN_REF_MIN);
        for (size_t i = 0; i < n; i++) {
            char ch = ref[i];
            key[i] = (char)(ch >= 'A' && ch <= 'F' ? ch + 32 : ch);
            if (!strchr("0123456789abcdef-", key[i]))
                return err_set(e, ASSAY_EUSAGE, "no run '%s': '%c' is not part of a run's id", ref,
                               ch);
        }
    }
    sqlite3_stmt *st = NULL;
    int rc = sql_prepare(
        &s->c,
        latest ? "SELECT run_id, uuid FROM run ORDER BY run_id DESC LIMIT 1"
               : "SELECT run_id, uuid FROM run WHERE uuid>=?1 AND uuid<?1||'g'"
                 " UNION SELECT run_id, uuid FROM run WHERE substr(uuid,-length(?1))=?1 LIMIT 2",
        &st, e);
    if (!rc && !latest)
        rc = sql_bind(&s->c, st, e, "t", key);
    bool row = false;
    if (!rc)
        rc = sql_step(&s->c, st, &row, e);
    if (!rc && !row)
        rc = latest ? err_set(e, ASSAY_EUSAGE, "there is no run in '%s' yet", s->c.path)
                    : err_set(e, ASSAY_EUSAGE, "no run '%s' in '%s'", ref, s->c.path);
    if (!rc) {
        *run_id = sqlite3_column_int64(st, 0);
        snprintf(uuid, RUN_UUID, "%s", sql_text(st, 1));
        if (!latest)
            rc = sql_step(&s->c, st, &row, e);
        if (!rc && !latest && row)
            rc = err_set(e, ASSAY_EUSAGE,
                         "'%s' is the beginning or end of more than one run's id: give more digits",
                         ref);
    }
    sqlite3_finalize(st);
    return rc;
}

/* ---- the log ---- */

struct log_thread {
    sqlite3_stmt *st; /* NULL before the first call and after the end */
    int64_t sequence; /* expected next */
    bool ended;
};
struct log_source {
    struct store *s;
    int64_t run_id;
    uint32_t threads;
    struct log_thread thread[];
};

static int log_next(void *ctx, uint32_t thread, const uint8_t **p, size_t *n, struct err *e) {
    struct log_source *l = ctx;
    struct conn *c = &l->s->c;
    struct log_thread *t = &l->thread[thread];
    bool row = false;
    int rc = 0;
    *p = NULL;
    *n = 0;
    if (t->ended)
        return 0;
    if (!t->st) {
        rc = sql_prepare(c,
                         "SELECT sequence, sha256, data FROM chunk WHERE run_id=? AND thread=? "
                         "ORDER BY sequence",
                         &t->st, e);
        if (!rc)
            rc = sql_bind(c, t->st, e, "ii", l->run_id, (int64_t)thread);
    }
    if (!rc)
        rc = sql_step(c, t->st, &row, e);
    if (rc)
        return rc;
    if (!row) {
        t->ended = true;
        return 0;
    }
    int64_t sequence = sqlite3_column_int64(t->st, 0);
    const void *data = sqlite3_column_blob(t->st, 2);
    size_t bytes = (size_t)sqlite3_column_bytes(t->st, 2);
    unsigned char digest[SHA256_N];
    if (sequence != t->sequence)
        return err_set(e, ASSAY_EINPUT,
                       "the event log of thread %" PRIu32 " has a gap: expected chunk %" PRId64
                       ", found %" PRId64,
                       thread, t->sequence, sequence);
    sha256(data, bytes, digest);
    if (sqlite3_column_bytes(t->st, 1) != SHA256_N ||
        memcmp(digest, sqlite3_column_blob(t->st, 1), SHA256_N))
        return err_set(e, ASSAY_EINPUT,
                       "chunk %" PRId64 " of thread %" PRIu32 " of the event log has been changed: "
                       "its SHA-256 differs",
                       sequence, thread);
    t->sequence++;
    *p = data;
    *n = bytes;
    return 0;
}

int store_log_open(struct store *s, int64_t run_id, struct eventlog_source *src, struct err *e) {
    *src = (struct eventlog_source){0};
    int64_t threads;
    int rc = sql_get_int(&s->c, e, &threads, NULL, "SELECT max(thread)+1 FROM chunk WHERE run_id=?",
                         "i", run_id);
    if (rc)
        return rc;
    if (threads < 0 || threads > EVENTLOG_THREADS_MAX)
        return err_set(e, ASSAY_EINPUT,
                       "the event log has thread number %" PRId64 ", expected less than %d",
                       threads - 1, EVENTLOG_THREADS_MAX);
    struct log_source *l = calloc(1, sizeof *l + (size_t)threads * sizeof l->thread[0]);
    if (!l)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    l->s = s;
    l->run_id = run_id;
    l->threads = (uint32_t)threads;
    *src = (struct eventlog_source){.ctx = l, .threads = l->threads, .next = log_next};
    return 0;
}

void store_log_close(struct eventlog_source *src) {
    struct log_source *l = src->ctx;
    for (uint32_t i = 0; l && i < l->threads; i++)
        sqlite3_finalize(l->thread[i].st);
    free(l);
    *src = (struct eventlog_source){0};
}

int log_digest(struct conn *c, int64_t run_id, uint64_t *chunks, uint64_t *bytes,
               unsigned char digest[SHA256_N], struct err *e) {
    *chunks = *bytes = 0;
    struct sha256_stream *h = sha256_new();
    sqlite3_stmt *st = NULL;
    bool row = true;
    int rc = sql_prepare(c,
                         "SELECT thread, sequence, sha256, length(data) FROM chunk WHERE run_id=? "
                         "ORDER BY thread, sequence",
                         &st, e);
    if (!rc)
        rc = sql_bind(c, st, e, "i", run_id);
    while (!rc && !(rc = sql_step(c, st, &row, e)) && row) {
        uint64_t thread = (uint64_t)sqlite3_column_int64(st, 0),
                 sequence = (uint64_t)sqlite3_column_int64(st, 1);
        unsigned char head[12];
        for (int i = 0; i < 4; i++)
            head[i] = (unsigned char)(thread >> (8 * i));
        for (int i = 0; i < 8; i++)
            head[4 + i] = (unsigned char)(sequence >> (8 * i));
        sha256_add(h, head, sizeof head);
        sha256_add(h, sqlite3_column_blob(st, 2), (size_t)sqlite3_column_bytes(st, 2));
        ++*chunks;
        *bytes += (uint64_t)sqlite3_column_int64(st, 3);
    }
    sqlite3_finalize(st);
    sha256_finish(h, digest);
    return rc;
}

/* ---- the record ---- */

int store_envelope(struct store *s, int64_t run_id, struct dsse *d, struct err *e) {
    struct conn *c = &s->c;
    sqlite3_stmt *st = NULL;
    bool row = false;
    *d = (struct dsse){0};
    buf_init(&d->payload, DSSE_PAYLOAD_MAX_BYTES);
    int rc = sql_prepare(
        c, "SELECT payload_type, payload, payload_sha256 FROM envelope WHERE run_id=?", &st, e);
    if (!rc)
        rc = sql_bind(c, st, e, "i", run_id);
    if (!rc)
        rc = sql_step(c, st, &row, e);
    if (!rc && !row)
        rc = err_set(e, ASSAY_EINPUT, "the run has no signed record: it is open or was aborted");
    if (rc)
        goto out;
    snprintf(d->payload_type, sizeof d->payload_type, "%s", sql_text(st, 0));
    buf_put(&d->payload, sqlite3_column_blob(st, 1), (size_t)sqlite3_column_bytes(st, 1));
    rc = buf_check(&d->payload, "the signed record", e);
    unsigned char digest[SHA256_N] = {0};
    if (!rc && sqlite3_column_bytes(st, 2) == SHA256_N)
        memcpy(digest, sqlite3_column_blob(st, 2), SHA256_N);
    sqlite3_finalize(st);
    st = NULL;
    if (!rc)
        rc = sql_prepare(
            c, "SELECT keyid, sig FROM signature WHERE payload_sha256=? ORDER BY added_ns, keyid",
            &st, e);
    if (!rc)
        rc = sql_bind(c, st, e, "h", digest);
    while (!rc && !(rc = sql_step(c, st, &row, e)) && row) {
        if (d->nsig == DSSE_SIGNATURES_MAX)
            rc = err_set(e, ASSAY_EINPUT, "the record has more than %d signatures",
                         DSSE_SIGNATURES_MAX);
        else if (sqlite3_column_bytes(st, 1) != 64)
            rc = err_set(e, ASSAY_EINPUT, "a signature of the record is not 64 bytes long");
        if (rc)
            break;
        struct dsse_signature *g = &d->sig[d->nsig++];
        snprintf(g->keyid, sizeof g->keyid, "%s", sql_text(st, 0));
        memcpy(g->sig, sqlite3_column_blob(st, 1), 64);
    }
out:
    sqlite3_finalize(st);
    if (rc)
        dsse_release(d);
    return rc;
}
