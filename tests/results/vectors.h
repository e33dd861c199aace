/* The published certification vectors (a JSON file beside the project). Tests that need them skip
 * when they are not there. */
#ifndef TESTS_RESULTS_VECTORS_H
#define TESTS_RESULTS_VECTORS_H

#include "results/hash.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VECTORS_PATH "../shared/data/certification-vectors.json"

/* The item `name`; skips the test when the file is absent. Lives until the test's process ends. */
static inline json_t *vectors_get(const char *name) {
    static json_t *root;
    if (!root) {
        root = json_load_file(VECTORS_PATH, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
        if (!root)
            cr_skip_test("no " VECTORS_PATH);
    }
    json_t *v = json_object_get(root, name);
    cr_assert(v != NULL, "vectors have '%s'", name);
    return v;
}

static inline const char *vec_str(const json_t *o, const char *name) {
    const char *s = json_string_value(json_object_get(o, name));
    cr_assert(s != NULL, "vector has string '%s'", name);
    return s;
}

/* Hex text to bytes; *n receives the count. */
static inline unsigned char *vec_unhex(const char *hex, size_t *n) {
    *n = strlen(hex) / 2;
    unsigned char *p = calloc(*n + 1, 1);
    cr_assert(p && hex_decode(hex, *n, p) == 0);
    return p;
}

static inline void vec_hex32(const char *hex, unsigned char out[32]) {
    cr_assert(strlen(hex) == 64 && hex_decode(hex, 32, out) == 0);
}

static inline double vec_double(const char *hex) {
    uint64_t bits = strtoull(hex, NULL, 16);
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

static inline const char *hex32(const unsigned char p[32]) {
    static char out[4][65];
    static int i;
    i = (i + 1) % 4;
    hex_encode(p, 32, out[i]);
    return out[i];
}

#endif
