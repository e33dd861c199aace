/* The record: an in-toto Statement whose predicate says what ran, on what, with which outcome.
 * Fields: certification.md section 5. One builder, used by run and by tests; the verifier reads the
 * payload bytes only. */
#ifndef RESULTS_RECORD_H
#define RESULTS_RECORD_H

#include "harness/core/buf.h"
#include "harness/core/err.h"
#include "harness/measure/metrics.h"
#include "harness/measure/rules.h"
#include "results/store.h"
#include "workloads/workload.h"

#include <jansson.h>
#include <stdint.h>

/* The one place that names the predicate type (as the test vectors do). */
#define RECORD_PREDICATE_TYPE "https://assay.example/attestation/benchmark-result/v1"
#define RECORD_STATEMENT_TYPE "https://in-toto.io/Statement/v1"

/* Subjects. The log's digest is log_writer_close's; all others are SHA-256 of canonical JSON. */
#define RECORD_SUBJECT_LOG "raw/events.assaylog"
#define RECORD_SUBJECT_WORKLOAD "workload/effective.json"
#define RECORD_SUBJECT_RULES "rules.json"
#define RECORD_SUBJECT_SYSTEM "system.json"
#define RECORD_SUBJECT_ENVIRONMENT "environment.json"
#define RECORD_SUBJECT_SERIES "raw/series.assayseries" /* series_digest's; only with series */

struct record_input {
    const struct run_begin *begin;
    const struct run_handle *handle;
    const struct metrics *metrics;
    const struct metrics_facts *facts; /* signed: a verifier needs them to recompute */
    const struct verdict *verdicts;
    int nverdicts;
    const char *verdict; /* "VALID" or "INVALID" */
    int64_t finished_wall_ns, monotonic_duration_ns;
    const char *result_class, *system_name, *chip;
    int64_t chips;
    uint64_t log_chunks, log_bytes;
    unsigned char log_digest[32];
    const json_t *clock;             /* {"source","virtual",…} */
    const json_t *client;            /* lateness, CPU share, context switches… ; may be NULL */
    const json_t *observed;          /* what the backend's instances saw, an array; may be NULL */
    const json_t *bottleneck;        /* may be NULL */
    const json_t *server;            /* server_report's; may be NULL */
    const json_t *power;             /* power_report's; may be NULL */
    const unsigned char *series_digest; /* 32 bytes; NULL = no series were read */
    const struct workload *workload; /* for its overrides as typed; NULL = none */
};
/* Canonical Statement bytes into out (initialised by the caller). */
int record_build(const struct record_input *in, struct buf *out, struct err *e) MUST_USE;

/* A copy in which every number keeps to the profile: what the record holds of a part. */
json_t *record_profile_copy(const json_t *v);

/* Reads payload bytes whose signature has been verified: canonical-JSON profile, statement and
 * predicate type, subjects (named once, relative, with a SHA-256), no string with a NUL inside.
 * *statement: a new reference; *predicate: borrowed from it, may be NULL. */
int record_parse(const void *payload, size_t n, json_t **statement, const json_t **predicate,
                 struct err *e) MUST_USE;

/* The digest of a subject; ASSAY_EINPUT when the statement has none of that name. */
int record_subject(const json_t *statement, const char *name, unsigned char digest[32],
                   struct err *e) MUST_USE;

/* Reads back the facts that record_build wrote, so that metrics can be recomputed from the log. */
int record_facts(const json_t *predicate, struct metrics_facts *f, struct err *e) MUST_USE;

#endif
