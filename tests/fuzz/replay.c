/* Runs a fuzz target over files: the corpus replay of the test suite (and AFL++'s main). */
#include "harness/core/buf.h"

#include <stdint.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        struct buf b;
        struct err e = {0};
        if (buf_read_file(&b, argv[i], 64u << 20, &e)) {
            fprintf(stderr, "%s\n", e.text);
            return 2;
        }
        /* an exact-size copy, so that reading past the end is seen */
        LLVMFuzzerTestOneInput((const uint8_t *)b.p, b.n);
        buf_release(&b);
    }
    printf("%d inputs\n", argc - 1);
    return 0;
}
