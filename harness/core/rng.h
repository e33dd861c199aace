/* Random numbers that repeat to the bit on any machine and any number of threads.
 *
 * Two kinds. `struct rng` is xoshiro256** filled by splitmix64 (the generator of statistics.md
 * section 4). rng_at() makes one for a place (seed, stream, index): what is drawn for request i
 * depends on nothing that was drawn before, so shards of a plan are exactly parts of the whole.
 * `struct mt19937` is the legacy numpy generator, for InferenceX's lengths (inferencex.md 2.2).
 *
 * The transcendental functions here use only + - * / and sqrt of IEEE doubles, because libm's log and
 * exp may differ in the last bit between processors. */
#ifndef HARNESS_CORE_RNG_H
#define HARNESS_CORE_RNG_H

#include <stdint.h>

struct rng {
    uint64_t s[4];
};

uint64_t splitmix64(uint64_t *state);
void rng_seed(struct rng *r, uint64_t seed);
struct rng rng_at(uint64_t seed, uint64_t stream, uint64_t index);

uint64_t rng_next(struct rng *r);
double rng_uniform(struct rng *r);                      /* [0, 1), 53 bits */
uint64_t rng_below(struct rng *r, uint64_t n);          /* [0, n), unbiased enough: high 64 bits of x*n */
double rng_exponential(struct rng *r);                  /* mean 1 */
double rng_normal(struct rng *r);                       /* mean 0, variance 1; Wichura AS241 */
double rng_lognormal(struct rng *r, double mu, double sigma); /* of the underlying normal */
double rng_gamma(struct rng *r, double shape);          /* mean = shape; Marsaglia and Tsang 2000 */

/* Deterministic elementary functions, relative error below 1e-14. */
double det_log(double x); /* x > 0 */
double det_exp(double x);

struct mt19937 {
    uint32_t mt[624];
    int i;
};
void mt_seed(struct mt19937 *m, uint32_t seed); /* classic single-integer initialisation */
uint32_t mt_next32(struct mt19937 *m);
/* [lo, hi): masked rejection as numpy's legacy randint does; no draw when hi - lo == 1. */
int64_t mt_range(struct mt19937 *m, int64_t lo, int64_t hi);

#endif
