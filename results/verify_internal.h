/* What the verifier's files share: the report, the register as loaded, the parts of one run's
 * check. */
#ifndef RESULTS_VERIFY_INTERNAL_H
#define RESULTS_VERIFY_INTERNAL_H

#include "results/hash.h"
#include "results/store_internal.h"
#include "results/verify.h"

struct register_state;

/* ---- verify.c: the report ---- */

struct report {
    json_t *root, *checks;
    enum verify_outcome worst;
    bool failed_memory;
};
int report_init(struct report *r, struct err *e) MUST_USE;
/* Gives the JSON away, or nothing on failure; either way the report is gone. */
int report_finish(struct report *r, enum verify_outcome *outcome, json_t **out,
                  struct err *e) MUST_USE;
void report_drop(struct report *r);
/* Which of two failures names the whole: the greater. */
int report_severity(enum verify_outcome o);
/* One line of the report. bad: what the outcome becomes when it is not ok. */
void report_check(struct report *r, const char *check, bool ok, enum verify_outcome bad,
                  const char *fmt, ...) PRINTF_LIKE(5, 6);
/* A check with a list of findings: n of them, the first in words; fmt is the detail when there is
 * none. */
void report_findings(struct report *r, const char *check, enum verify_outcome bad, int64_t n,
                     const char *first, const char *fmt, ...) PRINTF_LIKE(6, 7);
/* A check that could not be made because of an error is a failed check. */
void report_error(struct report *r, const char *check, enum verify_outcome bad,
                  const struct err *e);

/* A signed payload that has been looked at. predicate NULL: it could not be read. */
struct signed_record {
    struct dsse dsse;
    unsigned char sha256[32];
    json_t *statement;
    const json_t *predicate;
};
void signed_record_release(struct signed_record *s);
/* statement and canonical form; fills statement and predicate. Signatures: see each caller. */
void check_statement(struct signed_record *s, struct report *r);
/* stored: public keys by which a signature of another owner can at least be seen to be genuine. */
void check_signatures(const struct dsse *d, const struct public_key *trusted, int ntrusted,
                      const struct public_key *stored, int nstored, struct report *r);

/* All checks of a stored run. */
int check_stored_run(struct store *s, const struct register_state *g, int64_t run_id,
                     const char *uuid, const struct public_key *trusted, int ntrusted,
                     bool with_campaign, struct report *r, struct err *e) MUST_USE;

/* Text at a dotted path of the predicate, NULL when there is none. */
const json_t *json_at(const json_t *o, const char *path);
const char *text_at(const json_t *o, const char *path);
/* Integers and reals travel as numbers or, when large, as strings. false: neither. */
bool number_at(const json_t *o, const char *path, double *out);
bool integer_at(const json_t *o, const char *path, int64_t *out);

/* ---- verify_register.c ---- */

enum run_fate { FATE_OPEN, FATE_VALID, FATE_INVALID, FATE_ABORTED };

/* What the register says of one run. */
struct run_entry {
    char uuid[RUN_UUID];
    const char *campaign; /* arena */
    const char *seed;     /* arena */
    const char *at;       /* arena: of run.started */
    int64_t started_seq, attempt;
    int64_t counted; /* n-th run.started of the campaign, counted here */
    enum run_fate fate;
    bool has_payload;
    unsigned char payload[32], previous_root[32]; /* root computed here, at size started_seq */
    unsigned char workload[32], system[32], harness[32], rules[32];
};
/* Walks the register: format, density, chain, leaves, edges, times, row columns. Adds the checks.
 */
int register_load(struct store *s, struct register_state **out, struct report *r,
                  struct err *e) MUST_USE;
void register_free(struct register_state *g);
const struct run_entry *register_find(const struct register_state *g, const char *uuid);
/* Record against register. */
void check_registered(const struct register_state *g, const char *uuid,
                      const struct signed_record *s, struct report *r);
/* The campaign's runs and this run's place among them: adds "campaign" to the report. */
int report_campaign(struct store *s, const struct register_state *g, const char *uuid,
                    const json_t *predicate, struct report *r, struct err *e) MUST_USE;
/* false: the register is shorter. */
bool register_root_at(const struct register_state *g, uint64_t size, unsigned char root[32]);
void check_checkpoints(struct store *s, const struct register_state *g, struct report *r);
uint64_t register_size(const struct register_state *g);
int register_each_run(const struct register_state *g,
                      int (*fn)(void *ctx, const struct run_entry *e), void *ctx);

/* ---- verify_rows.c: the index tables against the signed payload ---- */

void check_rows(struct store *s, int64_t run_id, const struct signed_record *rec, struct report *r);
void check_documents(struct store *s, const struct signed_record *rec, struct report *r);

/* ---- verify_series.c: what was read beside the run ---- */

void check_series(struct store *s, int64_t run_id, const struct signed_record *rec,
                  struct report *r);

/* ---- verify_log.c: the event log, and what follows from it ---- */

void check_log(struct store *s, int64_t run_id, const struct signed_record *rec, struct report *r);

#endif
