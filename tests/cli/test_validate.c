/* `assay validate` as a script uses it; the figures are tested with the simulator. */
#include "tests/cli/child.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(cli_validate, .fini = child_home_remove);

#define DATA "../shared/data/tpu-validation/matmul.csv"

Test(cli_validate, one_object_in_which_every_row_is_accounted_for) {
    if (access(DATA, R_OK))
        cr_skip_test("there are no published measurements here");
    const struct child *c = assay("validate " DATA " --json --points");
    cr_assert(eq(int, c->status, 0), "%s", c->err);
    json_t *v = child_object(c), *row;
    int64_t rows = json_integer_value(json_object_get(v, "rows"));
    int64_t modelled = json_integer_value(json_object_get(v, "modelled"));
    cr_assert(eq(i64, rows, modelled + (int64_t)json_array_size(json_object_get(v, "unmodelled"))));
    cr_assert(eq(i64, modelled, (int64_t)json_array_size(json_object_get(v, "points"))));
    size_t i;
    int64_t counted = 0;
    json_array_foreach(json_object_get(v, "by"), i, row) {
        CHECK(json_is_number(json_object_get(row, "median")));
        if (!strcmp(json_string_value(json_object_get(row, "size_class")), "all"))
            counted += json_integer_value(json_object_get(row, "n"));
    }
    cr_assert(eq(i64, counted, modelled));
    json_decref(v);
    c = assay("validate " DATA);
    cr_assert(eq(int, c->status, 0));
    CHECK(strstr(c->out, "kind") && strstr(c->out, "bias"), "%s", c->out);
}

Test(cli_validate, wrong_use) {
    char path[300], args[400];
    snprintf(path, sizeof path, "%s/x.csv", child_home());
    FILE *f = fopen(path, "w");
    fputs("a,b\n1\n", f);
    fclose(f);
    snprintf(args, sizeof args, "validate %s", path);
    const struct child *c = assay(args);
    cr_assert(eq(int, c->status, 2));
    CHECK(strstr(c->err, "x.csv"), "%s", c->err);
    cr_assert(eq(str, (char *)c->out, ""));
    cr_assert(eq(int, assay("validate")->status, 2));
    cr_assert(eq(int, assay("validate /nonexistent.csv")->status, 2));
}
