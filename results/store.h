/* The store: SQLite behind a few functions. Schema: schemas/sql/; design: results-db.md.
 *
 * A run is written in three acts: store_run_begin commits the register entry before any load;
 * chunks are appended while it runs, from one writer thread with its own connection;
 * store_run_end commits the signed record, the metrics and the closing register entry at once.
 * Nothing is ever updated. A run without an end is "open"; the next store_open for writing closes
 * open runs whose process is gone as aborted, reason crash-recovered. */
#ifndef RESULTS_STORE_H
#define RESULTS_STORE_H

#include "harness/core/err.h"
#include "harness/measure/eventlog.h"
#include "harness/measure/metrics.h"
#include "harness/measure/rules.h"
#include "harness/measure/series.h"
#include "results/dsse.h"
#include "results/register.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { RUN_UUID = 37 };

struct store;

enum store_mode { STORE_READ, STORE_WRITE };
/* path NULL = $ASSAY_DB, else $XDG_DATA_HOME/assay/assay.db, else ~/.local/share/assay/assay.db.
 * STORE_WRITE creates file and directories, migrates (after a backup), recovers open runs; says how
 * many in *recovered (may be NULL). STORE_READ works on a read-only file and directory.
 * Not a database, other application_id, newer version: ASSAY_EINPUT, file untouched.
 * Locked, full, unwritable, network file system: ASSAY_EENV with path and free bytes. */
int store_open(const char *path, enum store_mode mode, struct store **out, int *recovered,
               struct err *e) MUST_USE;
void store_close(struct store *s);
const char *store_path(const struct store *s);
struct sqlite3 *store_sqlite(struct store *s); /* for results/query.c and verify.c only */

void uuid_v7(char out[RUN_UUID]);

/* What is known before the run starts. All digests are of canonical JSON. */
struct run_begin {
    char uuid[RUN_UUID];
    const char *campaign;        /* NULL = "workload/system/rules" derived from names and digests */
    const json_t *workload;      /* effective definition; borrowed, as all here */
    const json_t *workload_file; /* as given */
    const json_t *system;        /* the system description */
    const json_t *rules;         /* the rule pack */
    const json_t *backend;       /* {"name","version","class","config":{…}} */
    const json_t *environment;
    const char *mode;      /* "performance", … */
    const char *load_kind; /* pattern_kind_name, or "sessions" */
    double load_value;
    const char *seed; /* decimal */
    int64_t started_wall_ns;
};
struct run_handle {
    int64_t run_id;
    char uuid[RUN_UUID];
    int64_t register_seq; /* of run.started */
    int64_t attempt;      /* n-th of the campaign */
    char campaign[256];
    uint64_t previous_size; /* register checkpoint seen at the start */
    unsigned char previous_root[32];
    unsigned char workload_sha256[32], system_sha256[32], harness_sha256[32], backend_sha256[32],
        environment_sha256[32], rules_sha256[32];
};
int store_run_begin(struct store *s, const struct run_begin *b, struct run_handle *h,
                    struct err *e) MUST_USE;

/* The log writer: a thread of its own that takes full blocks over a bounded queue, encodes, hashes
 * and commits them (all blocks that are ready in one transaction; at latest after EVENT_FLUSH_NS).
 * threads: how many sinks. sinks[i] is initialised for shard i. */
struct log_writer;
int log_writer_open(struct store *s, const struct run_handle *h, uint32_t threads,
                    struct event_sink *sinks, struct log_writer **out, struct err *e) MUST_USE;
/* The first write error so far, else 0; cheap, for the driver's loop: a full disk ends the run. */
int log_writer_error(struct log_writer *w, struct err *e) MUST_USE;
/* How often a recorder had to wait for a free block. */
uint64_t log_writer_stalls(const struct log_writer *w);
/* Flushes the sinks, waits for the last commit, gives the log's total size and digest
 * (SHA-256 over thread (LE32), sequence (LE64) and blob SHA-256, in that order, of each chunk). */
int log_writer_close(struct log_writer *w, uint64_t *chunks, uint64_t *bytes,
                     unsigned char digest[32], struct err *e) MUST_USE;

/* A run's log as stored; close with store_log_close. Each chunk's digest is checked on the way. */
int store_log_open(struct store *s, int64_t run_id, struct eventlog_source *src,
                   struct err *e) MUST_USE;
void store_log_close(struct eventlog_source *src);

struct run_end {
    const char *verdict; /* "VALID", "INVALID", "ABORTED" */
    int64_t finished_wall_ns, duration_ns;
    const struct metrics *metrics;
    const struct verdict *verdicts;
    int nverdicts;
    const void *payload; /* canonical Statement bytes; NULL for ABORTED without record */
    size_t payload_bytes;
    const struct dsse_signature *signature;
    const struct public_key *key;
    const char *abort_reason;
    const struct series_log *series; /* what was read beside the run, sorted; NULL = nothing */
};
int store_run_end(struct store *s, const struct run_handle *h, const struct run_end *end,
                  struct err *e) MUST_USE;

/* SHA-256 of a sorted series log as the record signs it; bytes: schemas/database.md. */
void series_digest(const struct series_log *l, unsigned char digest[32]);
/* A run's series as stored, sorted, into *l (initialised here; release it also after an error). */
int store_series_load(struct store *s, int64_t run_id, struct series_log *l,
                      struct err *e) MUST_USE;

/* Adds another signature to a run's record; the caller has made it over store_envelope's payload.
 * ASSAY_EUSAGE when there is no record or the key has signed it already. */
int store_sign(struct store *s, int64_t run_id, const struct dsse_signature *sig,
               const struct public_key *k, const char *owner, struct err *e) MUST_USE;

/* Resolves "latest", a uuid or a unique prefix of one (>= 4 characters). ASSAY_EUSAGE when none. */
int store_find_run(struct store *s, const char *ref, int64_t *run_id, char uuid[RUN_UUID],
                   struct err *e) MUST_USE;

/* The signed record of a run. payload and signatures go into *d (release with dsse_release). */
int store_envelope(struct store *s, int64_t run_id, struct dsse *d, struct err *e) MUST_USE;

/* What a chip-hour costs from a day on; the newest one that has begun counts. `assay query prices`
 * lists them. A second price for the same chip, basis and day is ASSAY_EUSAGE. */
struct price {
    const char *chip;       /* as in system descriptions: "v6e" */
    const char *valid_from; /* YYYY-MM-DD */
    double usd_per_chip_hour;
    const char *basis;  /* "list", "contract" or "tco-model" */
    const char *source; /* where the figure was read */
};
int store_price_add(struct store *s, const struct price *p, struct err *e) MUST_USE;

/* A consistent copy of a store that may be in use; refuses to overwrite. Durable when it returns.
 */
int store_backup(struct store *s, const char *to, struct err *e) MUST_USE;

/* Signs the register as it stands (C2SP tlog-checkpoint), keeps the note and appends it to *note.
 */
int store_checkpoint(struct store *s, const char *origin, const struct secret_key *k,
                     struct buf *note, struct err *e) MUST_USE;

/* The register, in order. entry is valid during the call. */
typedef int register_visit_fn(void *ctx, uint64_t seq, const void *entry, size_t n,
                              const unsigned char leaf[32], const unsigned char chain[32],
                              struct err *e);
int store_register_each(struct store *s, register_visit_fn *fn, void *ctx, struct err *e) MUST_USE;

#endif
