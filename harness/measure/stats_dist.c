/* The incomplete beta function and what stands on it: binomial, Student's t, order-statistic ranks,
 * early stopping. Accuracy matters at a threshold, so the prefactor is the binomial density in
 * Loader's saddle-point form (Loader 2000, "Fast and accurate computation of binomial
 * probabilities"): differences of log-gammas would lose nine digits at arguments near 10^6. */
#include "harness/measure/stats.h"

#include <assert.h>
#include <math.h>

/* log(n!) - log(sqrt(2 pi n) (n/e)^n) */
static double stirling_error(double n) {
    if (n <= 15) {
        int sign;
        return lgamma_r(n + 1, &sign) - (n + 0.5) * log(n) + n - 0.9189385332046727;
    }
    double n2 = n * n;
    return (1.0 / 12 - (1.0 / 360 - (1.0 / 1260 - (1.0 / 1680 - 1.0 / 1188 / n2) / n2) / n2) / n2) /
           n;
}

/* x log(x/m) + m - x, without cancellation when x is near m. */
static double deviance(double x, double m) {
    if (fabs(x - m) < 0.1 * (x + m)) {
        double v = (x - m) / (x + m), s = (x - m) * v, term = 2 * x * v;
        for (int j = 1; j < 1000; j++) {
            term *= v * v;
            double next = s + term / (2 * j + 1);
            if (next == s)
                return next;
            s = next;
        }
    }
    return x * log(x / m) + m - x;
}

/* x^a (1-x)^b / B(a, b), from the binomial density of a successes in a + b. */
static double beta_density(double a, double b, double x) {
    double n = a + b;
    double l = stirling_error(n) - stirling_error(a) - stirling_error(b) - deviance(a, n * x) -
               deviance(b, n * (1 - x));
    return sqrt(a * b / (2 * M_PI * n)) * exp(l);
}

/* Lentz's evaluation of the continued fraction; converges in O(sqrt(max(a, b))) steps for
 * x < (a + 1)/(a + b + 2). */
static double beta_fraction(double a, double b, double x) {
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    double h = d;
    for (int m = 1; m < 1000000; m++) {
        double m2 = 2.0 * m;
        double t = m * (b - m) * x / ((a + m2 - 1) * (a + m2));
        d = 1 + t * d;
        c = 1 + t / c;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = fabs(c) < tiny ? tiny : c;
        h *= d * c;
        t = -(a + m) * (a + b + m) * x / ((a + m2) * (a + m2 + 1));
        d = 1 + t * d;
        c = 1 + t / c;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = fabs(c) < tiny ? tiny : c;
        double step = d * c;
        h *= step;
        if (fabs(step - 1) < 1e-16)
            break;
    }
    return h;
}

double stats_beta(double a, double b, double x) {
    assert(a > 0 && b > 0);
    if (x <= 0)
        return 0;
    if (x >= 1)
        return 1;
    double f = beta_density(a, b, x);
    if (x < (a + 1) / (a + b + 2))
        return f * beta_fraction(a, b, x) / a;
    return 1 - f * beta_fraction(b, a, 1 - x) / b;
}

double stats_binomial_cdf(int64_t k, int64_t n, double p) {
    if (k < 0)
        return 0;
    if (k >= n)
        return 1;
    return stats_beta((double)(n - k), (double)(k + 1), 1 - p);
}

/* P(X >= k), not as 1 - cdf: small tails keep their digits. */
static double binomial_tail(int64_t k, int64_t n, double p) {
    if (k <= 0)
        return 1;
    if (k > n)
        return 0;
    return stats_beta((double)k, (double)(n - k + 1), p);
}

bool stats_quantile_ci(int64_t n, int64_t p_ppm, double level, struct stats_ranks *out) {
    double p = (double)p_ppm / (double)STATS_PPM, tail = (1 - level) / 2;
    if (n < 1 || stats_binomial_cdf(0, n, p) > tail || binomial_tail(n, n, p) > tail)
        return false;
    /* Both ranks lie within about 10 standard deviations of n p; begin there, widen if need be. */
    double centre = (double)n * p, reach = 10 * sqrt((double)n * p * (1 - p)) + 10;
    int64_t below = (int64_t)(centre - reach), above = (int64_t)(centre + reach);
    int64_t lo = below > 1 && stats_binomial_cdf(below - 1, n, p) <= tail ? below : 1;
    int64_t hi = above < n ? above : n; /* P(B < lo) <= tail; find the largest such lo */
    for (int64_t a = lo, b = hi + 1; b - a > 1;) {
        int64_t mid = a + (b - a) / 2;
        if (stats_binomial_cdf(mid - 1, n, p) <= tail)
            lo = a = mid;
        else
            b = mid;
    }
    /* the smallest hi with P(B >= hi) <= tail */
    int64_t high = above < n && binomial_tail(above, n, p) <= tail ? above : n;
    for (int64_t a = lo, b = high; b - a > 1;) {
        int64_t mid = a + (b - a) / 2;
        if (binomial_tail(mid, n, p) <= tail)
            high = b = mid;
        else
            a = mid;
    }
    *out = (struct stats_ranks){
        lo, high, 1 - stats_binomial_cdf(lo - 1, n, p) - binomial_tail(high, n, p)};
    return true;
}

int64_t stats_quantile_ci_min_n(int64_t p_ppm, double level) {
    struct stats_ranks r;
    int64_t hi = 1;
    while (!stats_quantile_ci(hi, p_ppm, level, &r)) {
        if (hi > INT64_MAX / 4)
            return INT64_MAX;
        hi *= 2;
    }
    for (int64_t lo = hi / 2; hi - lo > 1;) { /* lo: none exists */
        int64_t mid = lo + (hi - lo) / 2;
        if (stats_quantile_ci(mid, p_ppm, level, &r))
            hi = mid;
        else
            lo = mid;
    }
    return hi;
}

/* P(T > t) for t >= 0 */
static double t_tail(double t, double df) {
    double t2 = t * t;
    if (t2 > df) /* the side on which df/(df + t^2) is small keeps its digits */
        return 0.5 * stats_beta(df / 2, 0.5, df / (df + t2));
    return 0.5 - 0.5 * stats_beta(0.5, df / 2, t2 / (df + t2));
}

double stats_t_quantile(double p, double df) {
    assert(p > 0 && p < 1 && df > 0);
    if (p == 0.5)
        return 0;
    if (p < 0.5)
        return -stats_t_quantile(1 - p, df);
    double tail = 1 - p, lo = 0, hi = 1;
    while (t_tail(hi, df) > tail && hi < 1e300)
        hi *= 2;
    for (int i = 0; i < 200 && hi - lo > 1e-15 * hi; i++) {
        double mid = lo + (hi - lo) / 2;
        if (mid <= lo || mid >= hi)
            break;
        if (t_tail(mid, df) > tail)
            lo = mid;
        else
            hi = mid;
    }
    return lo + (hi - lo) / 2;
}

int64_t stats_early_stopping_h(int64_t t, double p, double d, double c) {
    assert(t >= 0 && p - d > 0 && p - d < 1 && c > 0 && c < 1);
    int64_t hi = 1;
    while (stats_beta((double)hi, (double)(t + 1), p - d) >= 1 - c) {
        if (hi > INT64_MAX / 4)
            return INT64_MAX;
        hi *= 2;
    }
    for (int64_t lo = hi / 2; hi - lo > 1;) {
        int64_t mid = lo + (hi - lo) / 2;
        if (stats_beta((double)mid, (double)(t + 1), p - d) < 1 - c)
            hi = mid;
        else
            lo = mid;
    }
    return hi;
}

int64_t stats_early_stopping_t(int64_t n, double p, double d, double c) {
    /* h(t) + t <= n says that h = n - t already suffices for t */
    if (n < 2 || stats_beta((double)(n - 1), 2, p - d) >= 1 - c)
        return 0;
    int64_t lo = 1, hi = n; /* t = n leaves h = 0: never enough */
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (stats_beta((double)(n - mid), (double)(mid + 1), p - d) < 1 - c)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}
