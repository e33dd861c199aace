/* A store with runs in it, for the tests of store, verify and query: temporary directories, small
 * definitions, synthetic event logs, complete signed runs. */
#ifndef TESTS_RESULTS_FIXTURE_H
#define TESTS_RESULTS_FIXTURE_H

#include "results/record.h"
#include "results/store.h"

#include <sqlite3.h>
#include <stdint.h>

/* A fresh directory, removed by scratch_remove. */
struct scratch {
    char dir[256], db[300];
};
struct scratch scratch_make(void);
void scratch_remove(const struct scratch *s);

/* Aborts the test with the error's text. */
void must(int rc, const struct err *e);

struct definitions {
    json_t *workload, *system, *rules, *backend, *environment;
};
/* chips of `chip`; class as given; isl and osl appear in the workload. */
struct definitions definitions_make(const char *workload, const char *chip, int chips,
                                    const char *result_class);
void definitions_release(struct definitions *d);
struct run_begin begin_of(const struct definitions *d);

/* How the synthetic load behaves: every request waits ttft_ns, then osl tokens tpot_ns apart. */
struct load {
    int requests, concurrency;
    uint32_t isl, osl;
    int64_t ttft_ns, tpot_ns, jitter_ns;
    uint32_t threads;
    int fail_every;   /* each n-th request fails; 0 = none */
    int64_t bound;    /* event_bound_bucket that each stamp states; 0 = none */
    uint64_t seed;
};
struct load load_default(void);
/* Writes the events of the load to the sinks (one a thread). Deterministic. */
void load_record(const struct load *l, struct event_sink *sinks);

/* A whole run: begin, log, metrics, verdicts, record, signature, end. handle may be NULL. */
void run_make(struct store *s, const struct definitions *d, const struct load *l,
              const struct secret_key *key, const char *campaign, struct run_handle *handle);

/* The key with 32 times `fill` as its seed. */
struct secret_key *key_of(unsigned char fill);

/* A plain connection without any of the store's settings: what an attacker or another tool has.
 * foreign keys off; raw_unguarded also drops every trigger and ignores CHECK constraints. */
sqlite3 *raw_open(const char *db);
sqlite3 *raw_unguarded(const char *db);
/* Puts back the triggers that raw_unguarded dropped, and closes. */
void raw_reguard(sqlite3 *db);
/* Fails the test when the SQL fails. */
void raw_exec(sqlite3 *db, const char *sql);
bool contains(const char *text, const char *part);
bool raw_fails(sqlite3 *db, const char *sql);
/* The error's text, "" when it worked. */
const char *raw_error(sqlite3 *db, const char *sql);
int64_t raw_int(sqlite3 *db, const char *sql);

#endif
