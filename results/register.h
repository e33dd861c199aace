/* The run register's arithmetic: hash chain, RFC 9162 Merkle tree, proofs, checkpoint notes. Pure;
 * the entries live in the store. Source: certification.md section 6. */
#ifndef RESULTS_REGISTER_H
#define RESULTS_REGISTER_H

#include "harness/core/buf.h"
#include "harness/core/err.h"
#include "results/key.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void register_chain(const unsigned char prev[32], const void *entry, size_t n, unsigned char out[32]);
void merkle_leaf(const void *entry, size_t n, unsigned char out[32]);

/* A growing tree kept as its right edge: O(log n) memory; append and root in O(log n). */
struct merkle {
    uint64_t size;
    unsigned char edge[64][32];
};
void merkle_append(struct merkle *m, const unsigned char leaf[32]);
void merkle_root(const struct merkle *m, unsigned char out[32]);

/* Over an array of n leaf hashes. path: up to 64 hashes; *np receives the count. */
int merkle_inclusion(const unsigned char (*leaves)[32], uint64_t n, uint64_t index,
                     unsigned char path[64][32], int *np) MUST_USE;
bool merkle_check_inclusion(const unsigned char leaf[32], uint64_t index, uint64_t n,
                            const unsigned char (*path)[32], int np, const unsigned char root[32]);
int merkle_consistency(const unsigned char (*leaves)[32], uint64_t m, uint64_t n,
                       unsigned char path[64][32], int *np) MUST_USE;
bool merkle_check_consistency(uint64_t m, uint64_t n, const unsigned char root_m[32],
                              const unsigned char root_n[32], const unsigned char (*path)[32], int np);

/* C2SP tlog-checkpoint, signed note. */
int checkpoint_print(const char *origin, uint64_t size, const unsigned char root[32],
                     const struct secret_key *k, struct buf *out, struct err *e) MUST_USE;
int checkpoint_check(const char *note, size_t n, const char *vkey, uint64_t *size,
                     unsigned char root[32], struct err *e) MUST_USE;
int checkpoint_vkey(const char *origin, const struct public_key *k, struct buf *out) MUST_USE;

#endif
