/* The CSV reader's strictness, and validate's promises: no row dropped in silence, bad rows named,
 * errors within what the simulator claims on the published tables (when they are at hand). */
#include "harness/run/csv.h"
#include "harness/run/validate.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int parse(struct csv_table *c, const char *text, struct err *e) {
    return csv_table_parse(c, text, strlen(text), "t.csv", e);
}

Test(run_csv, quotes_newlines_and_crlf) {
    struct csv_table c;
    struct err e = {0};
    cr_assert(eq(int, parse(&c, "a,b,c\r\n1,\"x, \"\"y\"\"\nz\",\r\n,,3", &e), 0), "%s", e.text);
    cr_assert(eq(sz, c.rows, 2));
    cr_assert(eq(str, (char *)csv_table_get(&c, 0, 1), "x, \"y\"\nz"));
    cr_assert(eq(str, (char *)csv_table_get(&c, 0, 2), ""));
    cr_assert(eq(str, (char *)csv_table_get(&c, 1, csv_table_column(&c, "c")), "3"));
    cr_assert(eq(sz, c.line[1], 4)); /* the quoted newline counts */
    cr_assert(eq(int, csv_table_column(&c, "d"), -1));
    csv_table_release(&c);
}

Test(run_csv, bad_rows_name_their_line) {
    static const struct {
        const char *text, *expect;
    } row[] = {{"", "empty"},
               {"a,b\n1\n", "t.csv:2: expected 2 fields, found 1"},
               {"a,b\n1,2\n1,2,3\n", "t.csv:3"},
               {"a\n\"x\n", "t.csv:2: a quoted field without"},
               {"a\n\"x\"y\n", "t.csv:2: text after a closing quote"},
               {"a\nx\"y\n", "t.csv:2: a quote inside"}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct csv_table c;
        struct err e = {0};
        cr_assert(eq(int, parse(&c, row[i].text, &e), ASSAY_EINPUT));
        cr_assert(ne(ptr, strstr(e.text, row[i].expect), NULL), "%s", e.text);
    }
}

/* ---- validate ---- */

static const char header[] = "id,group,source,source_ref,evidence,chip,generation,chips,topology,"
                             "slices,model,workload,phase,global_batch,"
                             "per_chip_batch,seq_len,isl,osl,concurrency,m,n,k,bytes,dtype,quant,"
                             "sharding,metric,value,unit,notes\n";

static json_t *validate(const char *rows, const struct validate_options *o, struct err *e) {
    char path[] = "/tmp/assay-validate-XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    fputs(header, f);
    fputs(rows, f);
    fclose(f);
    const char *p = path;
    json_t *out = NULL;
    (void)!validate_files(&p, 1, o, &out, e);
    unlink(path);
    return out;
}

Test(run_validate, every_row_is_modelled_or_named) {
    struct err e = {0};
    struct validate_options o = {.points = true};
    json_t *j = validate(
        "A1,g,s,r,log,v6e,6,1,,,gemm,matmul,matmul,,,,,,,8192,8192,8192,,bf16,,,time,1.33,ms,\n"
        "A2,g,s,r,log,v6e,6,1,,,gemm,matmul,matmul,,,,,,,8192,8192,,,bf16,,,time,1.33,ms,k is "
        "missing\n"
        "A3,g,s,r,log,B200,gpu,1,,,gemm,matmul,matmul,,,,,,,8192,8192,8192,,bf16,,,time,1.33,ms,\n"
        "A4,g,s,r,log,TPU7x,7,0.5,one core,,hbm "
        "copy,hbm,copy,,,,,,,,,,33554432,bf16,,,bandwidth,3009.8,GB/s,chip inferred\n"
        "A5,g,s,r,log,v6e,6,8,2x4,,no-such-model,serve,serve_mixed,,,,1024,1024,64,,,,,bf16,,"
        "tensor=8,mean_tpot,25,ms,\n"
        "A6,g,s,r,log,v6e,6,8,2x4,,Llama-3.3-70B-Instruct,serve,serve_mixed,,,,128,16,4,,,,,bf16,,"
        "tensor=8,mean_tpot,25,ms,8 prompts\n"
        "A7,g,s,r,log,v6e,6,16,4x4,1,Llama3.1-8B,train,train_step,48,3,8192,,,,,,,,bf16,,fsdp=16,"
        "step_time,3.393,s,\n",
        &o, &e);
    cr_assert(ne(ptr, j, NULL), "%s", e.text);
    cr_assert(eq(i64, json_integer_value(json_object_get(j, "rows")), 7));
    cr_assert(eq(i64, json_integer_value(json_object_get(j, "modelled")), 4));
    json_t *u = json_object_get(j, "unmodelled");
    cr_assert(eq(sz, json_array_size(u), 3));
    size_t i;
    json_t *x;
    json_array_foreach(u, i, x) {
        cr_assert(ne(
            ptr, (void *)(uintptr_t)strchr("235", json_string_value(json_object_get(x, "id"))[1]),
            NULL));
        cr_assert(gt(sz, json_string_length(json_object_get(x, "why")), 5));
    }
    cr_assert(eq(sz, json_array_size(json_object_get(j, "points")), 4));
    bool inferred = false;
    json_array_foreach(json_object_get(j, "by"), i, x) inferred =
        inferred || strcmp(json_string_value(json_object_get(x, "kind")), "hbm_inferred") == 0;
    cr_assert(inferred);
    json_decref(j);
}

Test(run_validate, statistics_are_of_relative_errors) {
    struct err e = {0};
    struct validate_options o = {.points = true};
    json_t *j = validate(
        "A1,g,s,r,log,v6e,6,1,,,gemm,matmul,matmul,,,,,,,8192,8192,8192,,bf16,,,time,1.0,ms,\n"
        "A2,g,s,r,log,v6e,6,1,,,gemm,matmul,matmul,,,,,,,8192,8192,8192,,bf16,,,time,2.0,ms,\n",
        &o, &e);
    cr_assert(ne(ptr, j, NULL), "%s", e.text);
    double got = json_number_value(
        json_object_get(json_array_get(json_object_get(j, "points"), 0), "predicted"));
    json_t *all = json_array_get(json_object_get(j, "by"), 0);
    double a = got - 1, b = got / 2 - 1;
    cr_assert(epsilon_eq(dbl, json_number_value(json_object_get(all, "bias")), (a + b) / 2, 1e-12));
    double mean = ((a < 0 ? -a : a) + (b < 0 ? -b : b)) / 2;
    cr_assert(epsilon_eq(dbl, json_number_value(json_object_get(all, "mean")), mean, 1e-12));
    cr_assert(epsilon_eq(dbl, json_number_value(json_object_get(all, "median")), mean, 1e-12));
    json_decref(j);
}

Test(run_validate, overrides_change_the_answer) {
    struct err e = {0};
    static const char row[] = "A1,g,s,r,log,v6e,6,1,,,hbm "
                              "copy,hbm,copy,,,,,,,,,,1073741824,bf16,,,bandwidth,1400,GB/s,\n";
    const char *half[] = {"v6e.hbm_gbps=819"}, *other[] = {"v5e.hbm_gbps=1"},
               *bad[] = {"hbm_gbps=1"};
    struct validate_options o = {.overrides = half, .noverrides = 1, .points = true};
    json_t *a = validate(row, NULL, &e), *b = validate(row, &o, &e);
    o.overrides = other;
    json_t *c = validate(row, &o, &e);
    double ea =
        json_number_value(json_object_get(json_array_get(json_object_get(a, "by"), 0), "bias"));
    double eb =
        json_number_value(json_object_get(json_array_get(json_object_get(b, "by"), 0), "bias"));
    double ec =
        json_number_value(json_object_get(json_array_get(json_object_get(c, "by"), 0), "bias"));
    cr_assert(epsilon_eq(dbl, 1 + eb, (1 + ea) / 2, 1e-3));
    cr_assert(eq(dbl, ea, ec));
    o.overrides = bad;
    cr_assert(eq(ptr, validate(row, &o, &e), NULL));
    cr_assert(eq(int, e.code, ASSAY_EUSAGE));
    json_decref(a);
    json_decref(b);
    json_decref(c);
}

Test(run_validate, malformed_tables_are_refused) {
    struct err e = {0};
    cr_assert(
        eq(ptr,
           validate("A1,g,s,r,log,v6e,6,one,,,gemm,matmul,matmul,,,,,,,1,1,1,,bf16,,,time,1,ms,\n",
                    NULL, &e),
           NULL));
    cr_assert(eq(int, e.code, ASSAY_EINPUT));
    cr_assert(ne(ptr, strstr(e.text, ":2: column 'chips'"), NULL), "%s", e.text);
    const char *none = "/no/such/file.csv";
    json_t *out;
    cr_assert(lt(int, validate_files(&none, 1, NULL, &out, &e), 0));
    cr_assert(eq(ptr, out, NULL));
}

/* ---- the published tables ---- */

#define DATA "../shared/data/tpu-validation/"

static json_t *table(const char *const *files, int n) {
    if (access(DATA, R_OK) != 0)
        cr_skip_test("the published measurements are not beside this tree");
    json_t *out;
    struct err e = {0};
    cr_assert(eq(int, validate_files(files, n, NULL, &out, &e), 0), "%s", e.text);
    return out;
}

static double figure(json_t *j, const char *kind, const char *generation, const char *name) {
    size_t i;
    json_t *x;
    json_array_foreach(
        json_object_get(j, "by"), i,
        x) if (strcmp(json_string_value(json_object_get(x, "kind")), kind) == 0 &&
               strcmp(json_string_value(json_object_get(x, "generation")), generation) == 0 &&
               strcmp(json_string_value(json_object_get(x, "size_class")), "all") ==
                   0) return json_number_value(json_object_get(x, name));
    cr_fail("no rows of this kind");
    return 0;
}

Test(run_validate, v4_kernels, .timeout = 60) {
    static const char *const f[] = {DATA "tpu-v4-kernels.csv"};
    json_t *j = table(f, 1);
    cr_assert(lt(dbl, figure(j, "gemm", "v4", "mean"), 0.08));
    cr_assert(lt(dbl, figure(j, "gemm", "v4", "p95"), 0.20));
    cr_assert(lt(dbl, figure(j, "elementwise", "v4", "mean"), 0.06));
    cr_assert(lt(dbl, figure(j, "activation", "v4", "mean"), 0.05));
    cr_assert(lt(dbl, figure(j, "copy", "v4", "mean"), 0.08));
    json_decref(j);
}

Test(run_validate, single_operations, .timeout = 60) {
    static const char *const f[] = {DATA "matmul.csv", DATA "hbm.csv"};
    json_t *j = table(f, 2);
    cr_assert(lt(dbl, figure(j, "matmul", "7x", "mean"), 0.06));
    cr_assert(lt(dbl, figure(j, "matmul", "v5e", "mean"), 0.06));
    cr_assert(lt(dbl, figure(j, "hbm", "7x", "mean"), 0.03));
    json_decref(j);
}

Test(run_validate, training_steps, .timeout = 60) {
    static const char *const f[] = {DATA "train.csv"};
    json_t *j = table(f, 1);
    cr_assert(lt(dbl, figure(j, "step_time", "v6e", "median"), 0.10));
    cr_assert(lt(dbl, figure(j, "train_flops", "v4", "median"), 0.10));
    cr_assert(lt(dbl, figure(j, "train_flops", "v5e", "median"), 0.10));
    cr_assert(lt(dbl, figure(j, "train_flops", "v5p", "median"), 0.10));
    cr_assert(lt(dbl, figure(j, "step_time", "7x", "median"), 0.15));
    json_decref(j);
}
