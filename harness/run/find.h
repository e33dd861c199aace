/* The highest load that meets stated limits.
 *
 * The load is what the workload's pattern counts: requests in flight (closed loop), requests a second
 * (open loop), the speed of a trace. A limit asks that a share of the measured requests keeps a bound:
 * TTFT p99 <= 2 s is a share of 99 %; a goodput of 0.95 is a share of 95 % of requests that keep all
 * limits of the workload. A failed request keeps no limit, one in flight at the end neither.
 *
 * A probe is one to `repeats` runs at one load, each an ordinary signed run of the same campaign, with
 * seeds s, s+1, …: the same ones at every load, so that loads are compared on like traffic. After each run
 * the requests so far are pooled and each limit is tested by the binomial distribution, with as many
 * observations as the requests are worth: fewer, since neighbours in a queue suffer together. A run's n
 * are worth n/t, t the greater of (1 + r1)/(1 - r1), r1 their lag-1 autocorrelation in the order of issue,
 * and the variance of FIND_BATCHES batch means of keeping the limit over that of as many independent
 * requests (it sees what decays slowly). A probe passes when every share is shown to be kept and fails when one is shown not to be; the
 * tests of a probe share an error of FIND_ERROR, half to each side, in equal parts by Bonferroni. What
 * stays open after the last repeat is undecided, and does not pass.
 * An open loop whose queue grows without bound fails at once, and on a real clock its run is stopped.
 *
 * The search doubles or halves the load to a bracket, then bisects it, in integers or to a ratio. It needs
 * a system that does not get faster under load; where probes contradict that, it says so. */
#ifndef HARNESS_RUN_FIND_H
#define HARNESS_RUN_FIND_H

#include "harness/core/arena.h"
#include "harness/run/run.h"

#include <stdbool.h>

enum { FIND_LIMITS_MAX = 8, FIND_PROBES_MAX = 96, FIND_REPEATS_MAX = 32, FIND_NAME = 24,
       FIND_BATCHES = 30 };
#define FIND_ERROR 0.05

enum find_what { FIND_TTFT, FIND_TPOT, FIND_E2E, FIND_GOODPUT };

struct find_limit {
    enum find_what what;
    int64_t share_ppm; /* of requests that must keep it; 0 = a limit of a good request alone */
    int64_t limit_ns;  /* 0 = goodput, which has those of the workload */
    char name[FIND_NAME];  /* "ttft_p99", "goodput", "ttft" */
    char value[FIND_NAME]; /* as typed: "2s" */
};
/* "ttft_p99=2s", "tpot_p99.9=50ms", "goodput=0.95", "goodput=95%", or "ttft=2s": what a good request must
 * keep. Anything else is ASSAY_EUSAGE. */
int find_limit_parse(const char *text, const char *where, struct find_limit *l,
                     struct err *e) MUST_USE;
/* The overrides "limits.ttft=2s", … that make goodput count by these limits: the plain one of a latency,
 * else that of its highest percentile. At most 3; out holds them, texts are of the arena. */
int find_overrides(const struct find_limit *l, int n, struct arena *a, const char *out[3], int *nout,
                   struct err *e) MUST_USE;

enum find_verdict { FIND_PASS, FIND_FAIL, FIND_UNDECIDED };
const char *find_verdict_name(enum find_verdict v);

/* How a limit fared in the pooled runs of a probe. */
struct find_figure {
    int64_t n;        /* requests that have the value */
    double effective; /* independent ones they are worth */
    double within;    /* share that kept the limit */
    double value;     /* ns at the percentile; goodput: the share */
    double lo, hi;    /* its interval at the probe's level; NAN = too few requests for that side */
    enum find_verdict verdict;
};

struct find_probe {
    double load;
    enum find_verdict verdict;
    int limiting;  /* the limit that is nearest to failing, or failed worst */
    char why[64];  /* a reason beside the limits: "overload", "rule min_duration"; else "" */
    int runs;
    char uuid[FIND_REPEATS_MAX][RUN_UUID];
    int64_t requests; /* measured, of all runs */
    double output_tokens_per_s, requests_per_s, goodput_per_s; /* of the last run; NAN = absent */
    struct find_figure at[FIND_LIMITS_MAX];
};

struct find_options {
    const struct find_limit *limit; /* those with a share; at least one */
    int nlimits;
    double from, to;  /* range of the load; 0 = open */
    double precision; /* of a rate, 0.02: pass and fail lie that close; concurrencies are exact */
    int repeats;
};

struct find {
    const struct find_options *options;
    struct pattern pattern; /* its value is the load */
    bool integer, open_loop, real_clock;
    char campaign[192];
    char result_class[16]; /* of its runs: "simulated"; "" before the first */
    struct find_probe probe[FIND_PROBES_MAX]; /* by rising load */
    int nprobes;
    /* the answer: all NAN = no load meets the limits */
    double highest;     /* that passes */
    double lowest_fail; /* NAN = none failed: the range ended before the limits */
    double estimate;    /* where the pooled figures cross the limits; NAN = they do not */
    int limited_by;     /* index of a limit; -1 = none, or see why of the lowest failing probe */
    int violations;     /* pairs of probes of which the higher load did better, beyond chance */
    double violation[2];/* the loads of the first */
};

/* run: of the probe; ended: the run has, p is as judged so far. */
typedef void find_visit_fn(void *ctx, const struct find *f, const struct find_probe *p, int run,
                           bool ended);

/* Runs the search. 0; ASSAY_ENEGATIVE when no load passes; ASSAY_EINTERRUPTED; or the error of a run that
 * could not be made. f is filled as far as it got. */
int find_execute(const struct run_options *base, const struct find_options *o, find_visit_fn *visit,
                 void *ctx, struct find *f, struct err *e) MUST_USE;

/* The object of `sweep --find --json`; new reference, NULL when memory runs out. */
json_t *find_to_json(const struct find *f);

#endif
