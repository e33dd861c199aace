/* Any bytes as HLO text: modules that print, read back and print the same, and that can be priced;
 * or an error that names the place. */
#include "workloads/hlo/facts.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok) {
    if (!ok)
        abort();
}

static void print_all(const struct hlo_file *f, struct buf *out) {
    buf_init(out, (size_t)64 << 20);
    for (size_t k = 0; k < f->nmodules; k++) {
        if (k)
            buf_puts(out, "\n// -----\n");
        hlo_print(&f->modules[k], out);
    }
}

static void price(const struct hlo_module *m) {
    struct hlo_analysis *a = NULL;
    struct hlo_facts facts;
    struct hlo_top top[4];
    struct arena arena = {0};
    struct err e = {0};
    size_t n;
    if (hlo_analyse(m, NULL, &a, &e)) {
        must(strstr(e.text, "does not fit 63 bits") != NULL);
        return;
    }
    int rc = hlo_facts(a, &arena, &facts, &e);
    if (!rc)
        rc = hlo_top(a, HLO_BYTES, top, 4, &n, &e);
    must(!rc || strstr(e.text, "63 bits") != NULL);
    must(facts.entry_instructions > 0);
    for (uint32_t k = 0; k < m->n; k++) {
        const struct hlo_computation *c = &m->computations[k];
        for (uint32_t j = 0; j < c->n; j++) {
            struct hlo_groups g;
            int64_t ids[16], padded = hlo_shape_padded_bytes(c->instrs[j].shape);
            must(padded < 0 || padded >= c->instrs[j].shape->bytes);
            if (!hlo_groups(m, c, &c->instrs[j], &g, NULL))
                (void)hlo_groups_ids(&g, ids, 16);
        }
    }
    hlo_analysis_free(a);
    arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct hlo_file *f = NULL, *g = NULL;
    struct err e = {0};
    char *text = malloc(size + 1);
    must(text != NULL);
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    if (hlo_parse(text, size, "fuzz", &f, &e)) {
        must(!strncmp(e.text, "fuzz:", 5));
    } else {
        struct buf once, twice;
        print_all(f, &once);
        must(!once.failed);
        must(hlo_parse(once.p, once.n, "printed", &g, &e) == 0);
        print_all(g, &twice);
        must(once.n == twice.n && !memcmp(once.p, twice.p, once.n));
        for (size_t k = 0; k < f->nmodules; k++)
            price(&f->modules[k]);
        hlo_free(g);
        hlo_free(f);
        buf_release(&once);
        buf_release(&twice);
    }
    free(text);
    return 0;
}
