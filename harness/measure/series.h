/* What was read beside the run: time series of a server's /metrics (or of a telemetry file), kept in
 * memory while the run goes on and stored with it. A series is a metric name and its labels from one
 * source; a round is one visit of all sources. A reading that repeats the one before is not kept, so
 * that the thousands of idle buckets of a server cost nothing: the value at round r is that of the
 * last sample at or before r. NaN: the server no longer shows the series (or says NaN).
 *
 * Not thread-safe: one thread at a time. Times are ns of the run's clock. */
#ifndef HARNESS_MEASURE_SERIES_H
#define HARNESS_MEASURE_SERIES_H

#include "harness/core/arena.h"
#include "harness/core/buf.h"
#include "harness/core/err.h"
#include "harness/measure/prometheus.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    SERIES_SOURCES_MAX = 64,
    SERIES_MAX = 200000,
    SERIES_SAMPLES_MAX = 16 * 1024 * 1024, /* 16 bytes each */
    SERIES_LABELS_MAX_BYTES = 64 * 1024,
};

struct series_source {
    const char *kind;     /* "prometheus" or "telemetry" */
    const char *location; /* URL without user and password, or file name */
};
struct series_scrape {
    uint32_t source, round;
    int64_t t_ns; /* middle of the request, or the reading's stamp */
    int64_t took_ns, bytes;
    bool ok;
};
struct series {
    uint32_t source;
    enum prom_kind kind;
    const char *name;   /* "vllm:generation_tokens_total" */
    const char *labels; /* JSON object of texts, names ascending: {"engine":"0"} */
    double last;        /* NaN: absent */
    uint32_t seen;      /* round of the last reading + 1 */
    uint32_t first, n;  /* range of samples after series_log_sort */
};
struct series_sample {
    uint32_t series, round;
    double value;
};

struct series_log {
    struct arena arena;
    struct series_source source[SERIES_SOURCES_MAX];
    struct series_scrape *scrape;
    struct series *series;
    struct series_sample *sample;
    uint32_t *slots; /* hash of source, name, labels -> index + 1 */
    struct pending *pending;
    size_t nsources, nscrapes, nseries, nsamples, npending, nslots;
    size_t scrape_cap, series_cap, sample_cap, pending_cap;
    struct buf key;
    bool full;   /* a limit was met: later samples are missing */
    bool sorted; /* samples are ordered by (series, round) and ranges are set */
};

void series_log_init(struct series_log *l);
void series_log_release(struct series_log *l);

/* kind and location are copied. */
int series_source_add(struct series_log *l, const char *kind, const char *location, uint32_t *id,
                      struct err *e) MUST_USE;
/* One reading of a scrape; kept aside until series_commit. */
int series_put(struct series_log *l, uint32_t source, const char *name, const char *labels,
               enum prom_kind kind, double value, struct err *e) MUST_USE;
/* The same from a /metrics text: sorts the labels, writes them as JSON. */
int series_put_prom(struct series_log *l, uint32_t source, const struct prom_sample *s,
                    struct err *e) MUST_USE;
/* Takes the scrape and, when it is ok, its readings; else they are dropped and nothing has changed.
 * every: keep repeated values, too, and do not take an unread series for gone (telemetry). */
int series_commit(struct series_log *l, const struct series_scrape *s, bool every,
                  struct err *e) MUST_USE;
/* What was stored comes back; in the order of series_log_sort. */
int series_restore_scrape(struct series_log *l, const struct series_scrape *s,
                          struct err *e) MUST_USE;
int series_restore_series(struct series_log *l, uint32_t source, enum prom_kind kind,
                          const char *name, const char *labels, struct err *e) MUST_USE;
int series_restore_sample(struct series_log *l, uint32_t series, uint32_t round, double value,
                          struct err *e) MUST_USE;
/* Orders the scrapes by (source, round) and the samples by (series, round); call before they are
 * read. */
int series_log_sort(struct series_log *l, struct err *e) MUST_USE;

/* The value of a label as its JSON text without quotes; n = 0 when there is none. */
struct str series_label(const char *labels, const char *name);
/* A text as a JSON string, quotes included; invalid UTF-8 becomes U+FFFD. */
void json_text_put(struct buf *b, struct str s);

#endif
