/* A workload: what is asked of a system, independent of which system.
 *
 * Loading resolves defaults and overrides into one effective definition, whose canonical JSON is what
 * the record's workload digest covers; the file as given is kept beside it.
 * Schema: schemas/workload.json. Shipped definitions: workloads/library. */
#ifndef WORKLOADS_WORKLOAD_H
#define WORKLOADS_WORKLOAD_H

#include "harness/core/arena.h"
#include "harness/core/err.h"
#include "workloads/model.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum workload_kind { WORKLOAD_TRAINING, WORKLOAD_DECODE, WORKLOAD_SERVING, WORKLOAD_AGENTIC };
const char *workload_kind_name(enum workload_kind k);
struct workload;
/* Whether its requests come in sessions, synthetic or recorded. */
bool workload_has_sessions(const struct workload *w);

/* A length in tokens (or another count). */
enum dist_kind {
    DIST_FIXED,       /* value */
    DIST_UNIFORM,     /* min..max inclusive */
    DIST_RANGE_RATIO, /* InferenceX: uniform in [int(value*ratio), value], numpy legacy draws */
    DIST_NORMAL,      /* mean, stddev, clipped to min..max, rounded half away from zero */
    DIST_LOGNORMAL,   /* median, sigma (of the log), clipped to min..max */
    DIST_EMPIRICAL,   /* values[] with weights[] */
    DIST_EXPONENTIAL, /* mean, clipped: think times */
};
struct dist {
    enum dist_kind kind;
    double value, ratio, mean, stddev, median, sigma, min, max;
    double mu;                      /* log of the median (DIST_LOGNORMAL) */
    const double *values, *weights; /* arena; weights cumulative, last = 1 */
    const double *given;            /* weights as given */
    int64_t n;
};

/* The load pattern: when requests are issued. */
enum pattern_kind {
    PATTERN_OFFLINE,     /* all at time 0 */
    PATTERN_SINGLE,      /* one at a time */
    PATTERN_CONCURRENCY, /* value = requests (or sessions) in flight */
    PATTERN_POISSON,     /* value = rate 1/s */
    PATTERN_CONSTANT,    /* value = rate 1/s */
    PATTERN_GAMMA,       /* value = rate 1/s, shape: burstiness (1 = Poisson, < 1 burstier) */
    PATTERN_TRACE,       /* the trace's own times; value = speed factor */
};
struct pattern {
    enum pattern_kind kind;
    double value, shape;
};
const char *pattern_kind_name(enum pattern_kind k);
/* "offline", "single", "concurrency:64", "poisson:2.5", "constant:10", "gamma:4,0.5", "trace", "trace:2" */
int pattern_parse(const char *text, struct pattern *p, struct err *e) MUST_USE;

/* "concurrency:64" back from its parts; parses to the same bits. */
void pattern_print(const struct pattern *p, char *out, size_t out_bytes);

enum trace_format {
    TRACE_NONE,
    TRACE_MOONCAKE,
    TRACE_AZURE,
    TRACE_BURSTGPT,
    TRACE_SHAREGPT,
    TRACE_ENDPOINTS,
    TRACE_WEKA
};

enum { WORKLOAD_OVERRIDES_MAX = 32, WORKLOAD_OVERRIDE_BYTES = 160 };

struct workload {
    struct arena arena;
    const char *name, *version, *description;
    enum workload_kind kind;
    struct model model;
    bool has_model;

    struct pattern pattern;
    int64_t
        requests; /* measured requests (sessions' turns count singly); 0 = until duration or trace end */
    int64_t duration_ns;     /* 0 = until requests are done */
    int64_t warmup_requests; /* issued before the measured window, by the same pattern */
    int64_t warmup_ns;       /* or for that long */
    uint64_t seed;
    const char *rules; /* rule pack, name or resolved path; NULL = "default" */

    struct dist isl,
        osl; /* input, output tokens of a request, or of a session's turn (new tokens) */
    /* leading tokens of a prompt (of its isl, at most isl - 1) that are the same for all requests of a
     * group; a session is in one group whole, drawn uniformly */
    int64_t shared_prefix_tokens;  /* 0 = none */
    int64_t shared_prefix_groups;
    const char *trace_path; /* as resolved; NULL = synthetic */
    enum trace_format trace_format;
    bool trace_force;         /* take it although its rate says that the time unit is wrong */
    bool trace_keep_failures; /* requests that failed when recorded are issued too */
    int64_t trace_plays;       /* sessions: how often the whole trace is played; 0 = without end */
    int64_t trace_max_delay_ns; /* sessions: longer recorded delays are cut to it; -1 = none are */
    int64_t trace_max_context; /* sessions with a longer request are left out; 0 = none are */
    const char *trace_sha256; /* as stated by the file; NULL = the caller digests and fills it in */

    /* synthetic sessions; has_sessions false = there are none (recorded ones: workload_has_sessions) */
    bool has_sessions;
    int64_t sessions;      /* how many; 0 = as many as requests need */
    struct dist turns;     /* per session, >= 1 */
    struct dist first_isl; /* the first turn's input (system prompt, repository…), before isl */
    struct dist think_ns;  /* delay after the previous answer, in ns */
    int64_t max_context;   /* a session ends before its context would exceed this; 0 = model's */

    /* latency limits for goodput and for the rule pack; 0 = none */
    int64_t limit_ttft_ns, limit_tpot_ns, limit_e2e_ns;

    /* kind training */
    int64_t global_batch; /* sequences */
    int64_t seq_len;
    int64_t steps;

    json_t *file_json;      /* as given */
    json_t *effective_json; /* resolved: defaults and overrides applied, model inlined */
    char overrides[WORKLOAD_OVERRIDES_MAX]
                  [WORKLOAD_OVERRIDE_BYTES]; /* as typed, in order; also inside effective_json */
    int noverrides;
};

/* name: of the shipped library, or a path. overrides: "json.path=value" texts (--set, --isl, …),
 * applied in order to the file's JSON before validation. isl=N and osl=N keep a range ratio and
 * replace any other kind of length; warmup=10 counts requests, warmup=30s is a time; a path into
 * "model" works also when the file only names the model. Relative paths in a file (model, rules, trace)
 * count from the file's folder, those of overrides from the current one.
 * Errors name file and JSON pointer (ASSAY_EINPUT) or the override (ASSAY_EUSAGE). */
int workload_load(const char *name, const char *const *overrides, int noverrides,
                  struct workload **out, struct err *e) MUST_USE;
/* From JSON already in memory (a verifier's stored definition). json is borrowed. Relative trace
 * paths are taken as they are. effective_json reads back to an equal effective_json. */
int workload_from_json(const json_t *json, const char *label, struct workload **out,
                       struct err *e) MUST_USE;
void workload_free(struct workload *w);

#endif
