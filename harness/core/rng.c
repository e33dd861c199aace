/* Generators and the deterministic elementary functions they need. */
#include "harness/core/rng.h"

#include "harness/core/int128.h"

#include <math.h>
#include <string.h>

uint64_t splitmix64(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void rng_seed(struct rng *r, uint64_t seed) {
    for (int i = 0; i < 4; i++)
        r->s[i] = splitmix64(&seed);
}

/* Two rounds of mixing separate the three coordinates before they seed the state. */
struct rng rng_at(uint64_t seed, uint64_t stream, uint64_t index) {
    uint64_t s = seed;
    uint64_t a = splitmix64(&s) ^ (stream * UINT64_C(0xd1342543de82ef95));
    uint64_t b = splitmix64(&a) ^ (index * UINT64_C(0xaf251af3b0f025b5));
    struct rng r;
    rng_seed(&r, splitmix64(&b));
    return r;
}

static uint64_t rotl(uint64_t x, int k) {
    return (x << k) | (x >> (64 - k));
}

uint64_t rng_next(struct rng *r) {
    uint64_t *s = r->s;
    uint64_t result = rotl(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

double rng_uniform(struct rng *r) {
    return (double)(rng_next(r) >> 11) * 0x1p-53;
}

uint64_t rng_below(struct rng *r, uint64_t n) {
    return (uint64_t)(((u128)rng_next(r) * n) >> 64);
}

/* ln x = e ln 2 + 2 atanh((m-1)/(m+1)), m in [sqrt(1/2), sqrt 2): the series in z = ((m-1)/(m+1))^2
 * <= 0.0295 converges below 1e-17 after eleven terms. */
double det_log(double x) {
    uint64_t bits;
    if (x < 0x1p-1022)
        return det_log(x * 0x1p54) - 54 * 0.6931471805599453094;
    memcpy(&bits, &x, 8);
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & UINT64_C(0x000fffffffffffff)) | UINT64_C(0x3ff0000000000000);
    double m;
    memcpy(&m, &bits, 8);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        e++;
    }
    double f = (m - 1) / (m + 1), z = f * f, w = z * z;
    /* two independent halves of the series, so that their multiplications overlap */
    double even = 1.0 / 23, odd = 1.0 / 21;
    even = even * w + 1.0 / 19;
    odd = odd * w + 1.0 / 17;
    even = even * w + 1.0 / 15;
    odd = odd * w + 1.0 / 13;
    even = even * w + 1.0 / 11;
    odd = odd * w + 1.0 / 9;
    even = even * w + 1.0 / 7;
    odd = odd * w + 1.0 / 5;
    even = even * w + 1.0 / 3;
    double s = (even + odd * z) * z;
    /* ln 2 in two parts, so that e * high is exact */
    double hi = e * 0x1.62e42fefa38p-1, lo = e * 0x1.ef35793c7673p-45;
    return hi + (2 * f + (2 * f * s + lo));
}

/* e^x = 2^k e^r, |r| <= ln(2)/2, Taylor to r^13 (error below 1e-17). */
double det_exp(double x) {
    if (x > 709.7)
        return (double)INFINITY;
    if (x < -745.2)
        return 0;
    double kf = floor(x * 1.4426950408889634 + 0.5);
    double r = (x - kf * 0x1.62e42fefa38p-1) - kf * 0x1.ef35793c7673p-45;
    /* 1/14! … 1/0! */
    static const double inverse[] = {1.0 / 87178291200, 1.0 / 6227020800, 1.0 / 479001600,
                                     1.0 / 39916800,    1.0 / 3628800,    1.0 / 362880,
                                     1.0 / 40320,       1.0 / 5040,       1.0 / 720,
                                     1.0 / 120,         1.0 / 24,         1.0 / 6,
                                     0.5,               1,                1};
    double s = 0;
    for (int i = 0; i < 15; i++)
        s = s * r + inverse[i];
    return ldexp(s, (int)kf);
}

double rng_exponential(struct rng *r) {
    return -det_log(1 - rng_uniform(r));
}

/* Inverse of the normal distribution. Source: M. J. Wichura, Algorithm AS 241 (PPND16), Applied
 * Statistics 37 (1988); relative error about 1e-16. */
static double normal_quantile(double p) {
    static const double a[] = {3.3871328727963666080e0, 1.3314166789178437745e+2,
                               1.9715909503065514427e+3, 1.3731693765509461125e+4,
                               4.5921953931549871457e+4, 6.7265770927008700853e+4,
                               3.3430575583588128105e+4, 2.5090809287301226727e+3};
    static const double b[] = {1, 4.2313330701600911252e+1, 6.8718700749205790830e+2,
                               5.3941960214247511077e+3, 2.1213794301586595867e+4,
                               3.9307895800092710610e+4, 2.8729085735721942674e+4,
                               5.2264952788528545610e+3};
    static const double c[] = {1.42343711074968357734e0, 4.63033784615654529590e0,
                               5.76949722146069140550e0, 3.64784832476320460504e0,
                               1.27045825245236838258e0, 2.41780725177450611770e-1,
                               2.27238449892691845833e-2, 7.74545014278341407640e-4};
    static const double d[] = {1, 2.05319162663775882187e0, 1.67638483018380384940e0,
                               6.89767334985100004550e-1, 1.48103976427480074590e-1,
                               1.51986665636164571966e-2, 5.47593808499534494600e-4,
                               1.05075007164441684324e-9};
    static const double g[] = {6.65790464350110377720e0, 5.46378491116411436990e0,
                               1.78482653991729133580e0, 2.96560571828504891230e-1,
                               2.65321895265761230930e-2, 1.24266094738807843860e-3,
                               2.71155556874348757815e-5, 2.01033439929228813265e-7};
    static const double h[] = {1, 5.99832206555887937690e-1, 1.36929880922735805310e-1,
                               1.48753612908506148525e-2, 7.86869131145613259100e-4,
                               1.84631831751005468180e-5, 1.42151175831644588870e-7,
                               2.04426310338993978564e-15};
    const double *num, *den;
    double q = p - 0.5, r, sign = q < 0 ? -1 : 1;
    if (fabs(q) <= 0.425) {
        r = 0.180625 - q * q;
        num = a;
        den = b;
        sign = q;
    } else {
        r = sqrt(-det_log(q < 0 ? p : 1 - p));
        if (r <= 5) {
            r -= 1.6;
            num = c;
            den = d;
        } else {
            r -= 5;
            num = g;
            den = h;
        }
    }
    double x = 0, y = 0;
    for (int i = 7; i >= 0; i--) {
        x = x * r + num[i];
        y = y * r + den[i];
    }
    return sign * x / y;
}

double rng_normal(struct rng *r) {
    /* (0, 1): the centre of one of 2^53 cells */
    return normal_quantile(((double)(rng_next(r) >> 11) + 0.5) * 0x1p-53);
}

double rng_lognormal(struct rng *r, double mu, double sigma) {
    return det_exp(mu + sigma * rng_normal(r));
}

double rng_gamma(struct rng *r, double shape) {
    if (shape < 1) {
        double u = 1 - rng_uniform(r);
        return rng_gamma(r, shape + 1) * det_exp(det_log(u) / shape);
    }
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = rng_normal(r), v = 1 + c * x;
        if (v <= 0)
            continue;
        v = v * v * v;
        double u = 1 - rng_uniform(r);
        if (det_log(u) < 0.5 * x * x + d - d * v + d * det_log(v))
            return d * v;
    }
}

void mt_seed(struct mt19937 *m, uint32_t seed) {
    m->mt[0] = seed;
    for (uint32_t i = 1; i < 624; i++)
        m->mt[i] = UINT32_C(1812433253) * (m->mt[i - 1] ^ (m->mt[i - 1] >> 30)) + i;
    m->i = 624;
}

uint32_t mt_next32(struct mt19937 *m) {
    if (m->i == 624) {
        for (int k = 0; k < 624; k++) {
            uint32_t y = (m->mt[k] & 0x80000000u) | (m->mt[(k + 1) % 624] & 0x7fffffffu);
            m->mt[k] = m->mt[(k + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        m->i = 0;
    }
    uint32_t y = m->mt[m->i++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

int64_t mt_range(struct mt19937 *m, int64_t lo, int64_t hi) {
    uint32_t range = (uint32_t)(hi - lo - 1);
    if (range == 0)
        return lo;
    uint32_t mask = range;
    mask |= mask >> 1;
    mask |= mask >> 2;
    mask |= mask >> 4;
    mask |= mask >> 8;
    mask |= mask >> 16;
    uint32_t v;
    do
        v = mt_next32(m) & mask;
    while (v > range);
    return lo + v;
}
