/* Statistics that a certified number needs: percentile definitions, order-statistic intervals, means,
 * Student's t, binomial early stopping, warm-up detection, coordinated omission. Pure functions of
 * their arguments; no allocation unless said.
 *
 * Probabilities that decide a rank are integers in millionths, so that the rank is exact:
 * 100 * 0.07 is 7.000000000000001 in doubles and would give rank 8. */
#ifndef HARNESS_MEASURE_STATS_H
#define HARNESS_MEASURE_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STATS_PPM INT64_C(1000000)

/* --- percentile definitions: which order statistics -------------------------------------------- */

/* ceil(n p), at least 1: 1-based rank of the nearest-rank percentile. n >= 1, 0 <= p_ppm <= 10^6. */
int64_t stats_nearest_rank(int64_t n, int64_t p_ppm);

/* LoadGen's index, 0-based: its double product and truncation (mlcommons/inference
 * loadgen/results.cc). One above nearest-rank - 1 when n p is whole; clamped to n - 1. */
int64_t stats_loadgen_index(int64_t n, double p);

/* floor(p (n - 1)), 0-based: numpy's method="lower", used by the MLPerf Endpoints client. */
int64_t stats_lower_index(int64_t n, int64_t p_ppm);

/* Interpolating definitions: value = x[lo] + fraction * (x[hi] - x[lo]), 0-based. */
struct stats_position {
    int64_t lo, hi;
    double fraction;
};
struct stats_position stats_linear7(int64_t n, double p); /* numpy's default, Hyndman-Fan type 7 */
struct stats_position stats_median_unbiased8(int64_t n, double p); /* type 8 */
/* As numpy computes it, so that the last bit agrees too. */
double stats_interpolate(double x_lo, double x_hi, double fraction);

/* Whether a percentile has at least ten observations beyond it: n (1 - p) >= 10. */
bool stats_informative(int64_t n, int64_t p_ppm);

/* --- order-statistic intervals ------------------------------------------------------------------ */

/* Distribution-free interval [x_lo, x_hi] of the p quantile: 1-based ranks with each tail at most
 * (1 - level)/2 under Binomial(n, p). False when n is too small for one.
 * Requires independent observations: with autocorrelated latencies it covers less. */
struct stats_ranks {
    int64_t lo, hi;
    double coverage;
};
bool stats_quantile_ci(int64_t n, int64_t p_ppm, double level, struct stats_ranks *out);
/* The smallest n for which that interval exists. */
int64_t stats_quantile_ci_min_n(int64_t p_ppm, double level);

/* --- distributions ------------------------------------------------------------------------------ */

/* Regularised incomplete beta function I_x(a, b); a, b > 0. Relative error about 1e-13 (1e-11 at
 * arguments near 10^6). */
double stats_beta(double a, double b, double x);
double stats_binomial_cdf(int64_t k, int64_t n, double p); /* P(X <= k) */
/* Student's t: the point that is exceeded with probability 1 - p; 0 < p < 1, df > 0. */
double stats_t_quantile(double p, double df);

/* --- means and spread --------------------------------------------------------------------------- */

double stats_sum(const double *x, size_t n);             /* Neumaier compensation, in order */
double stats_mean(const double *x, size_t n);            /* these need n >= 1 */
double stats_mean_geometric(const double *x, size_t n);  /* x > 0 */
double stats_mean_harmonic(const double *x, size_t n);   /* x > 0 */
double stats_median(const double *sorted, size_t n);
double stats_mean_olympic(const double *x, size_t n);    /* without the smallest and largest; n >= 3 */
double stats_sd(const double *x, size_t n);              /* sample: n - 1; n >= 2 */
/* Median absolute deviation from the median; work: n doubles. */
double stats_mad(const double *sorted, size_t n, double *work);
#define STATS_MAD_TO_SIGMA 1.4826022185056018 /* 1/Phi^-1(3/4): of a normal distribution */

struct stats_interval {
    double mean, sd, lo, hi;
};
/* mean +- t s / sqrt(n); n >= 2. For fewer than 30 runs use this, never a percentile bootstrap. */
struct stats_interval stats_t_interval(const double *x, size_t n, double level);
/* Runs needed for a relative half-width at that level when the runs' coefficient of variation is cv. */
int64_t stats_sample_size(double cv, double relative_half_width, double level);

/* --- early stopping ----------------------------------------------------------------------------- */

/* MLPerf's binomial test (mlcommons/inference loadgen/early_stopping.cc): with t results over the
 * limit, the fewest h under it that show with confidence c that a fraction p - d is under it. */
int64_t stats_early_stopping_h(int64_t t, double p, double d, double c);
/* The largest t >= 1 with h(t) + t <= n: report the sorted value of 1-based rank n - t + 1.
 * 0 when n is too small. */
int64_t stats_early_stopping_t(int64_t n, double p, double d, double c);

/* --- series ------------------------------------------------------------------------------------- */

/* MSER-5: batch means of five; cuts the batches before the point that minimises the variance of the
 * remaining mean, looking at most at the first half. reached: the minimum was not at that limit. */
struct stats_mser {
    size_t cut_batches;
    double statistic, mean_after;
    bool reached;
};
/* n >= 10; work: n/5 doubles, receives the batch means. */
struct stats_mser stats_mser5(const double *x, size_t n, double *work);

/* Lag-1 autocorrelation; 0 for a constant series or n < 3. */
double stats_lag1(const double *x, size_t n);

/* HdrHistogram's repair of coordinated omission: for v > interval also v - interval, v - 2 interval,
 * … while >= interval. Writes at most max values, returns how many there are. A repaired number is
 * never certifiable. Source: HdrHistogram_c, hdr_record_corrected_values. */
size_t stats_correct_omission(const int64_t *v, size_t n, int64_t interval, int64_t *out, size_t max);

/* Counters that an HdrHistogram needs for [lowest, highest] with that many decimal digits. */
struct stats_hdr {
    int64_t sub_bucket_count, unit_magnitude, bucket_count, counts_len;
};
struct stats_hdr stats_hdr_size(int64_t lowest, int64_t highest, int digits);

/* DDSketch (Masson, Rim and Lee, VLDB 2019): bucket of x > 0 and a bucket's estimate. */
int64_t stats_dd_index(double x, double alpha);
double stats_dd_value(int64_t index, double alpha);

#endif
