/* What certifying costs: number formatting, canonical JSON, SHA-256, base64, signatures, tree
 * proofs. CPU time of this process, best of five. */
#include "harness/core/clock.h"
#include "results/dsse.h"
#include "results/hash.h"
#include "results/jcs.h"
#include "results/register.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5, NUMBERS = 20000, BYTES = 16 << 20, LEAVES = 100000 };

static double integers[NUMBERS], doubles[NUMBERS];
static unsigned char *block;
static unsigned char (*leaves)[32];
static struct buf text;
static struct secret_key *key;
static unsigned char sig[64];

static void must(int ok) {
    if (!ok)
        abort();
}

static void number_all(const double *x) {
    char out[32];
    for (int i = 0; i < NUMBERS; i++)
        must(jcs_number(x[i], out, NULL) == 0);
}
static void run_integers(void) {
    number_all(integers);
}
static void run_doubles(void) {
    number_all(doubles);
}
static void run_sha256(void) {
    unsigned char digest[32];
    sha256(block, BYTES, digest);
}
static void run_base64(void) {
    buf_clear(&text);
    base64_encode(block, BYTES, &text);
}
static void run_base64_back(void) {
    struct buf back;
    buf_init(&back, BYTES);
    must(base64_decode(text.p, text.n, &back, NULL) == 0);
    buf_release(&back);
}
static void run_sign(void) {
    for (int i = 0; i < 100; i++)
        key_sign(key, block, 4096, sig);
}
static void run_verify(void) {
    for (int i = 0; i < 100; i++)
        must(key_verify(secret_key_public(key), block, 4096, sig));
}
static void run_tree(void) {
    struct merkle m = {0};
    for (int i = 0; i < LEAVES; i++)
        merkle_append(&m, leaves[i]);
}
static void run_proof(void) {
    unsigned char path[64][32];
    int n;
    must(merkle_inclusion((const unsigned char(*)[32])leaves, LEAVES, LEAVES / 3, path, &n) == 0);
}

int main(void) {
    static const struct {
        const char *what, *unit;
        void (*run)(void);
        double per, scale; /* time of a run / per * scale, or per / time when scale is 0 */
    } bench[] = {
        {"jcs_number, integers", "ns each", run_integers, NUMBERS, 1},
        {"jcs_number, random doubles", "ns each", run_doubles, NUMBERS, 1},
        {"sha256", "MB/s", run_sha256, (double)BYTES, 0},
        {"base64_encode", "MB/s", run_base64, (double)BYTES, 0},
        {"base64_decode", "MB/s", run_base64_back, (double)BYTES, 0},
        {"key_sign, 4 KiB", "us each", run_sign, 100, 1e-3},
        {"key_verify, 4 KiB", "us each", run_verify, 100, 1e-3},
        {"merkle_append", "ns each", run_tree, LEAVES, 1},
        {"merkle_inclusion of 100,000", "ms each", run_proof, 1, 1e-6},
    };
    unsigned char chain[32] = {0};
    for (int i = 0; i < NUMBERS; i++) { /* as the published corpus: a SHA-256 chain */
        do {
            sha256(chain, sizeof chain, chain);
            memcpy(&doubles[i], chain, sizeof doubles[i]);
        } while (!(doubles[i] - doubles[i] == 0));
        integers[i] = (double)(i * INT64_C(1234567891));
    }
    block = malloc(BYTES);
    leaves = calloc(LEAVES, sizeof *leaves);
    must(block && leaves);
    memset(block, 0x5a, BYTES);
    for (int i = 0; i < LEAVES; i++)
        memcpy(leaves[i], &i, sizeof i);
    buf_init(&text, 2 * BYTES);
    must(secret_key_from_seed(chain, &key, NULL) == 0);
    for (size_t i = 0; i < sizeof bench / sizeof bench[0]; i++) {
        int64_t best = INT64_MAX;
        for (int k = 0; k < ROUNDS; k++) {
            int64_t t = clock_cpu_ns();
            bench[i].run();
            t = clock_cpu_ns() - t;
            best = t < best ? t : best;
        }
        double ns = (double)best;
        printf("%-30s %10.1f %s\n", bench[i].what,
               bench[i].scale > 0 ? ns / bench[i].per * bench[i].scale : bench[i].per / ns * 1e3,
               bench[i].unit);
    }
    secret_key_free(key);
    buf_release(&text);
    free(block);
    free(leaves);
    return 0;
}
