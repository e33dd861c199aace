/* How fast HLO text is read and priced, and what it takes to hold: on a generated text of 100 MB
 * and on the largest public file at hand. The peer is one pass of memchr over the same bytes, which
 * is as fast as bytes can be looked at. One JSON object a line; the best of three passes, CPU time.
 *   bench_hlo [FILE...] */
#include "harness/core/clock.h"
#include "workloads/hlo/cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PASSES = 3 };

static size_t lines_of(const char *text, size_t n) {
    size_t lines = 0;
    for (const char *p = text, *end = text + n; (p = memchr(p, '\n', (size_t)(end - p))); p++)
        lines++;
    return lines;
}

static size_t instructions_of(const struct hlo_file *f) {
    size_t n = 0;
    for (size_t k = 0; k < f->nmodules; k++)
        for (uint32_t j = 0; j < f->modules[k].n; j++)
            n += f->modules[k].computations[j].n;
    return n;
}

static int run(const char *name, const char *text, size_t n, struct err *e) {
    int64_t parse_ns = INT64_MAX, peer_ns = INT64_MAX, price_ns = INT64_MAX;
    size_t memory = 0, instructions = 0, lines = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        struct hlo_file *f = NULL;
        struct hlo_analysis *a = NULL;
        int64_t t0 = clock_cpu_ns();
        lines = lines_of(text, n);
        int64_t t1 = clock_cpu_ns();
        int rc = hlo_parse(text, n, name, &f, e);
        int64_t t2 = clock_cpu_ns();
        for (size_t k = 0; !rc && k < f->nmodules; k++) {
            rc = hlo_analyse(&f->modules[k], NULL, &a, e);
            hlo_analysis_free(a);
            a = NULL;
        }
        int64_t t3 = clock_cpu_ns();
        if (rc) {
            hlo_free(f);
            return rc;
        }
        peer_ns = t1 - t0 < peer_ns ? t1 - t0 : peer_ns;
        parse_ns = t2 - t1 < parse_ns ? t2 - t1 : parse_ns;
        price_ns = t3 - t2 < price_ns ? t3 - t2 : price_ns;
        memory = f->memory_bytes;
        instructions = instructions_of(f);
        hlo_free(f);
    }
    double mb = (double)n / 1e6;
    printf("{\"hlo\": \"%s\", \"text_mb\": %.1f, \"lines\": %zu, \"instructions\": %zu, "
           "\"parse_mb_per_s\": %.0f, \"memchr_mb_per_s\": %.0f, \"parse_over_memchr\": %.4f, "
           "\"parse_ns_per_instruction\": %.0f, \"price_ns_per_instruction\": %.0f, "
           "\"memory_bytes_per_text_byte\": %.2f}\n",
           name, mb, lines, instructions, mb / ((double)parse_ns * 1e-9),
           mb / ((double)peer_ns * 1e-9), (double)peer_ns / (double)parse_ns,
           (double)parse_ns / (double)instructions, (double)price_ns / (double)instructions,
           (double)memory / (double)n);
    return 0;
}

/* Lines as a compiler writes them: names with numbers, layouts, metadata; computations of 300. */
static void generate(struct buf *b, size_t bytes, bool metadata) {
    static const char *const shapes[] = {"bf16[2,8192,8192]{2,1,0}", "f32[128,80,28672]{2,1,0}",
                                         "f32[]", "s32[2,8192]{1,0}", "pred[2,8192]{1,0}"};
    static const char *const ops[] = {"add", "multiply", "subtract", "maximum", "divide"};
    unsigned seed = 1, name = 0;
    buf_puts(b, "HloModule generated, num_partitions=128\n\n");
    for (unsigned c = 0; b->n < bytes && !b->failed; c++) {
        unsigned last[5];
        buf_printf(b, "%%region_%u.%u (a: f32[]) -> f32[] {\n  %%scalar.%u = f32[] parameter(0)\n",
                   c, c * 7, name);
        for (unsigned k = 0; k < 5; k++) {
            buf_printf(b, "  %%constant.%u = %s constant({...})\n", ++name, shapes[k]);
            last[k] = name;
        }
        for (unsigned k = 0; k < 300; k++) {
            seed = seed * 1103515245u + 12345u;
            unsigned s = (seed >> 16) % 5, op = (seed >> 20) % 5;
            buf_printf(b, "  %%value.%u = %s %s(%s %%%s.%u, %s %%%s.%u)", ++name, shapes[s],
                       ops[op], shapes[s], last[s] & 0x80000000u ? "value" : "constant",
                       last[s] & 0x7fffffffu, shapes[s],
                       last[s] & 0x80000000u ? "value" : "constant", last[s] & 0x7fffffffu);
            if (metadata)
                buf_printf(b,
                           ", metadata={op_name=\"jit(train_step)/jit(main)/transpose(jvp("
                           "TransformerLinenPure))/decoder/while/body/layers/mlp/%s\" "
                           "source_file=\"/deps/maxtext/layers/linears.py\" source_line=%u}",
                           ops[op], k);
            buf_putc(b, '\n');
            last[s] = name | 0x80000000u;
        }
        buf_printf(b, "  ROOT %%root.%u = f32[] negate(f32[] %%scalar.%u)\n}\n\n", name + 1,
                   name - 305);
        name++;
    }
}

int main(int argc, char **argv) {
    static const char *const files[] = {"../shared/data/hlo/fwd_gemma4_2b_bf16.1p7MB.hlo"};
    enum { GENERATED_BYTES = 100 * 1000 * 1000 };
    struct err e = {0};
    struct buf b;
    int rc = 0;
    for (int metadata = 1; metadata >= 0 && !rc; metadata--) {
        buf_init(&b, (size_t)GENERATED_BYTES + (1 << 20));
        generate(&b, GENERATED_BYTES, metadata);
        rc = buf_check(&b, "the generated text", &e);
        if (!rc)
            rc = run(metadata ? "generated, metadata" : "generated, bare", b.p, b.n, &e);
        buf_release(&b);
    }
    int n = argc > 1 ? argc - 1 : 1;
    for (int k = 0; k < n && !rc; k++) {
        const char *path = argc > 1 ? argv[k + 1] : files[0];
        if (argc == 1 && access(path, R_OK))
            continue; /* not here */
        rc = buf_read_file(&b, path, HLO_FILE_MAX_BYTES - 1, &e);
        if (!rc)
            rc = run(strrchr(path, '/') ? strrchr(path, '/') + 1 : path, b.p, b.n, &e);
        buf_release(&b);
    }
    if (rc)
        fprintf(stderr, "bench_hlo: %s\n", e.text);
    return rc ? err_exit_code(rc) : 0;
}
