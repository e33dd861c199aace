/* What a server says of itself at /metrics: the Prometheus text format 0.0.4 and OpenMetrics 1.0, read
 * as a stream. Pure: bytes in, samples out through a callback; no socket, no clock, no JSON.
 *
 * Read: HELP, TYPE, UNIT and EOF lines, comments, labels with \\ \" \n escapes, NaN and +-Inf, time
 * stamps, exemplars (skipped), CR LF. A family's type belongs to its samples, whose names may have a
 * suffix (_bucket _sum _count of histograms and summaries, _total _created of counters, …). Lines may
 * be split anywhere between two feeds. Metric names in quotes (UTF-8 names) are refused: servers send
 * them only to clients that ask. Sources: Prometheus "Exposition formats", OpenMetrics 1.0. */
#ifndef HARNESS_MEASURE_PROMETHEUS_H
#define HARNESS_MEASURE_PROMETHEUS_H

#include "harness/core/arena.h"
#include "harness/core/buf.h"
#include "harness/core/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PROM_LINE_MAX_BYTES = 1 << 20,
    PROM_LABELS_MAX = 64,
    PROM_FAMILIES_MAX = 1 << 16,
};

enum prom_kind {
    PROM_UNTYPED, /* no TYPE line, "untyped" or "unknown" */
    PROM_COUNTER,
    PROM_GAUGE,
    PROM_HISTOGRAM,
    PROM_SUMMARY,
    PROM_OTHER, /* info, stateset, gaugehistogram */
    PROM_KINDS
};
const char *prom_kind_name(enum prom_kind k);
enum prom_kind prom_kind_parse(const char *name); /* PROM_KINDS when unknown */

struct prom_label {
    struct str name, value; /* value: escapes undone */
};

/* Views are valid during the callback. */
struct prom_sample {
    struct str name;   /* as written, with its suffix */
    struct str family; /* as its TYPE line names it, else the name */
    enum prom_kind kind;
    const struct prom_label *labels; /* as written, not sorted; no name occurs twice */
    int nlabels;
    double value; /* may be NaN or infinite */
    bool has_timestamp;
    double timestamp_s; /* since 1970 */
};
typedef int prom_sample_fn(void *ctx, const struct prom_sample *s, struct err *e);

struct prom_family;
struct prom {
    struct arena arena; /* the families: one allocation a TYPE line, none a sample */
    struct buf line;    /* an incomplete line */
    struct buf text;    /* label values whose escapes were undone, of one line */
    struct prom_family **slots;
    size_t nslots, nfamilies;
    const char *source; /* for messages; borrowed */
    bool openmetrics;   /* time stamps in s, nothing after # EOF; else in ms */
    bool ended;         /* # EOF was seen */
    int64_t line_number, samples;
    prom_sample_fn *fn;
    void *ctx;
    struct prom_label label[PROM_LABELS_MAX];
};

/* source: how messages call the text ("http://…/metrics"), borrowed. */
void prom_init(struct prom *p, const char *source, bool openmetrics, prom_sample_fn *fn, void *ctx);
/* ASSAY_EINPUT `source:line:column: …`; also the callback's own error. Nothing may be fed after it. */
int prom_feed(struct prom *p, const void *bytes, size_t n, struct err *e) MUST_USE;
/* The last line may lack its newline. An OpenMetrics text without # EOF was cut: ASSAY_EINPUT. */
int prom_finish(struct prom *p, struct err *e) MUST_USE;
void prom_release(struct prom *p);

static inline bool str_is(struct str s, const char *text, size_t n) {
    return s.n == n && __builtin_memcmp(s.p, text, n) == 0;
}

#endif
