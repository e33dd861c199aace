/* Percentile definitions, means, and the small procedures over series. The distributions behind
 * intervals and tests are in stats_dist.c. */
#include "harness/measure/stats.h"

#include "harness/core/int128.h"

#include <assert.h>
#include <math.h>

int64_t stats_nearest_rank(int64_t n, int64_t p_ppm) {
    assert(n >= 1 && p_ppm >= 0 && p_ppm <= STATS_PPM);
    int64_t r = (int64_t)(((i128)n * p_ppm + STATS_PPM - 1) / STATS_PPM);
    return r < 1 ? 1 : r;
}

int64_t stats_loadgen_index(int64_t n, double p) {
    int64_t i = (int64_t)((double)n * p);
    return i < n ? i : n - 1;
}

int64_t stats_lower_index(int64_t n, int64_t p_ppm) {
    return (int64_t)((i128)(n - 1) * p_ppm / STATS_PPM);
}

static struct stats_position position(int64_t n, double h0) { /* h0: 0-based */
    double whole = floor(h0);
    if (h0 <= 0)
        return (struct stats_position){0, 0, 0};
    if (h0 >= (double)(n - 1))
        return (struct stats_position){n - 1, n - 1, 0};
    return (struct stats_position){(int64_t)whole, (int64_t)whole + 1, h0 - whole};
}

struct stats_position stats_linear7(int64_t n, double p) {
    return position(n, (double)(n - 1) * p);
}

struct stats_position stats_median_unbiased8(int64_t n, double p) {
    double third = 1.0 / 3.0;
    return position(n, ((double)n + third) * p + third - 1);
}

double stats_interpolate(double x_lo, double x_hi, double fraction) {
    double d = x_hi - x_lo;
    return fraction >= 0.5 ? x_hi - d * (1 - fraction) : x_lo + d * fraction;
}

bool stats_informative(int64_t n, int64_t p_ppm) {
    return (i128)n * (STATS_PPM - p_ppm) >= 10 * (i128)STATS_PPM;
}

double stats_sum(const double *x, size_t n) {
    double sum = 0, c = 0;
    for (size_t i = 0; i < n; i++) {
        double t = sum + x[i];
        c += fabs(sum) >= fabs(x[i]) ? (sum - t) + x[i] : (x[i] - t) + sum;
        sum = t;
    }
    return sum + c;
}

double stats_mean(const double *x, size_t n) {
    return stats_sum(x, n) / (double)n;
}

double stats_mean_geometric(const double *x, size_t n) {
    double sum = 0, c = 0;
    for (size_t i = 0; i < n; i++) {
        double l = log(x[i]), t = sum + l;
        c += fabs(sum) >= fabs(l) ? (sum - t) + l : (l - t) + sum;
        sum = t;
    }
    return exp((sum + c) / (double)n);
}

double stats_mean_harmonic(const double *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += 1 / x[i];
    return (double)n / sum;
}

double stats_median(const double *sorted, size_t n) {
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

double stats_mean_olympic(const double *x, size_t n) {
    assert(n >= 3);
    size_t lo = 0, hi = 0;
    for (size_t i = 1; i < n; i++) {
        lo = x[i] < x[lo] ? i : lo;
        hi = x[i] >= x[hi] ? i : hi; /* the last of equals: never the one dropped as smallest */
    }
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += i == lo || i == hi ? 0 : x[i];
    return sum / (double)(n - 2);
}

double stats_sd(const double *x, size_t n) {
    double mean = stats_mean(x, n), sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    return sqrt(sum / (double)(n - 1));
}

double stats_mad(const double *sorted, size_t n, double *work) {
    double m = stats_median(sorted, n);
    /* deviations grow to both sides of the median: a merge sorts them */
    size_t right = 0;
    while (right < n && sorted[right] < m)
        right++;
    size_t left = right;
    for (size_t i = 0; i < n; i++) {
        bool from_left = left > 0 && (right == n || m - sorted[left - 1] <= sorted[right] - m);
        work[i] = from_left ? m - sorted[--left] : sorted[right++] - m;
    }
    return stats_median(work, n);
}

struct stats_interval stats_t_interval(const double *x, size_t n, double level) {
    assert(n >= 2);
    double mean = stats_mean(x, n), sd = stats_sd(x, n);
    double half = stats_t_quantile(0.5 + level / 2, (double)(n - 1)) * sd / sqrt((double)n);
    return (struct stats_interval){mean, sd, mean - half, mean + half};
}

int64_t stats_sample_size(double cv, double relative_half_width, double level) {
    for (int64_t n = 2; n < INT64_C(100000000); n += n < 100000 ? 1 : n / 1000)
        if (stats_t_quantile(0.5 + level / 2, (double)(n - 1)) * cv <=
            relative_half_width * sqrt((double)n))
            return n;
    return INT64_MAX;
}

struct stats_mser stats_mser5(const double *x, size_t n, double *work) {
    size_t m = n / 5;
    assert(m >= 2);
    for (size_t i = 0; i < m; i++)
        work[i] = stats_mean(x + 5 * i, 5);
    struct stats_mser best = {.statistic = HUGE_VAL};
    for (size_t d = 0; d <= m / 2; d++) {
        size_t k = m - d;
        double mean = stats_mean(work + d, k), sum = 0;
        for (size_t i = d; i < m; i++)
            sum += (work[i] - mean) * (work[i] - mean);
        double s = sum / ((double)k * (double)k);
        if (s < best.statistic)
            best = (struct stats_mser){d, s, mean, d < m / 2};
    }
    return best;
}

double stats_lag1(const double *x, size_t n) {
    if (n < 3)
        return 0;
    double mean = stats_mean(x, n), num = 0, den = 0;
    for (size_t i = 0; i < n; i++) {
        den += (x[i] - mean) * (x[i] - mean);
        if (i)
            num += (x[i] - mean) * (x[i - 1] - mean);
    }
    return den > 0 ? num / den : 0;
}

size_t stats_correct_omission(const int64_t *v, size_t n, int64_t interval, int64_t *out,
                              size_t max) {
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (k < max)
            out[k] = v[i];
        k++;
        if (interval <= 0)
            continue;
        for (int64_t x = v[i] - interval; x >= interval; x -= interval) {
            if (k < max)
                out[k] = x;
            k++;
        }
    }
    return k;
}

struct stats_hdr stats_hdr_size(int64_t lowest, int64_t highest, int digits) {
    assert(lowest >= 1 && highest >= 2 * lowest && digits >= 1 && digits <= 5);
    int64_t unit_resolution = 2;
    for (int i = 0; i < digits; i++)
        unit_resolution *= 10;
    struct stats_hdr h = {.sub_bucket_count = 2, .bucket_count = 1};
    while (h.sub_bucket_count < unit_resolution)
        h.sub_bucket_count *= 2;
    while (lowest >> (h.unit_magnitude + 1))
        h.unit_magnitude++;
    for (int64_t reach = h.sub_bucket_count << h.unit_magnitude; reach <= highest;) {
        h.bucket_count++;
        if (reach > INT64_MAX / 2)
            break;
        reach *= 2;
    }
    h.counts_len = (h.bucket_count + 1) * (h.sub_bucket_count / 2);
    return h;
}

int64_t stats_dd_index(double x, double alpha) {
    return (int64_t)ceil(log(x) / log((1 + alpha) / (1 - alpha)));
}

double stats_dd_value(int64_t index, double alpha) {
    double gamma = (1 + alpha) / (1 - alpha);
    return 2 * pow(gamma, (double)index) / (gamma + 1);
}
