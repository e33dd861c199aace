/* `assay inspect` on HLO text: told by its name or its first word; facts by hand. */
#include "tests/cli/child.h"

#include <stdio.h>
#include <string.h>

TestSuite(cli_inspect_hlo, .fini = child_home_remove);

/* A loop of ten rounds with a dot of 2·8·8·8 flops and an all-reduce of 256 bytes in groups of 4.
 */
static const char module[] =
    "// a comment\n/* and one more */\n"
    "HloModule step, num_partitions=4\n"
    "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }\n"
    "cond { t = (s32[], f32[8,8]) parameter(0) i = s32[] get-tuple-element(t), index=0\n"
    "  n = s32[] constant(10) ROOT r = pred[] compare(i, n), direction=LT }\n"
    "body { t = (s32[], f32[8,8]) parameter(0) i = s32[] get-tuple-element(t), index=0\n"
    "  x = f32[8,8] get-tuple-element(t), index=1 one = s32[] constant(1) j = s32[] add(i, one)\n"
    "  d = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "  s = f32[8,8] all-reduce(d), replica_groups=[1,4]<=[4], to_apply=sum\n"
    "  ROOT r = (s32[], f32[8,8]) tuple(j, s) }\n"
    "ENTRY main { p = f32[8,8] parameter(0) z = s32[] constant(0) t = (s32[], f32[8,8]) tuple(z, "
    "p)\n"
    "  w = (s32[], f32[8,8]) while(t), condition=cond, body=body x = f32[8,8] "
    "get-tuple-element(w), index=1\n"
    "  ROOT r = f32[8,8] custom-call(x), custom_call_target=\"%s\" }\n";

static const char *write_module(const char *name, const char *target) {
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", child_home(), name);
    FILE *f = fopen(path, "w");
    fprintf(f, module, target);
    fclose(f);
    return path;
}

static int64_t at(json_t *o, const char *a, const char *b, const char *c) {
    json_t *v = json_object_get(o, a);
    v = b ? json_object_get(v, b) : v;
    v = c ? json_object_get(v, c) : v;
    CHECK(json_is_integer(v), "%s %s %s", a, b ? b : "", c ? c : "");
    return json_integer_value(v);
}

Test(cli_inspect_hlo, facts) {
    static const char *const names[] = {"x.hlo", "x.txt"};
    for (int k = 0; k < 2; k++) {
        char args[400];
        snprintf(args, sizeof args, "inspect --json %s", write_module(names[k], "Sharding"));
        const struct child *c = assay(args);
        cr_assert(eq(int, c->status, 0), "%s", c->err);
        json_t *v = child_object(c);
        cr_assert(eq(str, (char *)json_string_value(json_object_get(v, "kind")), "hlo"));
        cr_assert(eq(sz, json_array_size(json_object_get(v, "modules")), 1));
        json_t *m = json_array_get(json_object_get(v, "modules"), 0);
        cr_assert(eq(i64, at(m, "computations", NULL, NULL), 4));
        cr_assert(eq(i64, at(m, "partitions", NULL, NULL), 4));
        cr_assert(eq(i64, at(m, "entry_parameter_bytes", NULL, NULL), 256));
        cr_assert(eq(i64, at(m, "each_instruction_once", "dot_flops", NULL), 1024));
        cr_assert(eq(i64, at(m, "executed", "dot_flops", NULL), 10240));
        /* a round: 1024 + 1 + 3/4 of 64; a test 1, eleven times */
        cr_assert(eq(i64, at(m, "executed", "flops", NULL), 10 * (1024 + 1 + 48) + 11));
        cr_assert(eq(i64, at(m, "executed", "unknown_ops", NULL), 0));
        /* XLA: one round, one test, -1 of the custom call; its all-reduce adds 64 */
        cr_assert(eq(i64, at(m, "xla_cost_analysis", "flops", NULL), 1024 + 1 + 64 + 1 - 1));
        cr_assert(eq(i64, at(m, "collectives", "all-reduce", "executed"), 10));
        cr_assert(eq(i64, at(m, "collectives", "all-reduce", "sent_bytes"), 10 * 384));
        json_t *trips = json_object_get(json_object_get(m, "loops"), "trips");
        cr_assert(eq(i64, json_integer_value(json_array_get(trips, 0)), 10));
        cr_assert(eq(str, (char *)json_string_value(json_object_get(m, "shapes")), "per_device"));
        cr_assert(eq(str, (char *)json_string_value(json_object_get(m, "figures")), "complete"));
        json_t *top = json_array_get(json_object_get(m, "top_by_flops"), 0);
        cr_assert(eq(str, (char *)json_string_value(json_object_get(top, "instruction")), "d"));
        cr_assert(eq(i64, at(top, "executed", NULL, NULL), 10));
        json_decref(v);
    }
}

Test(cli_inspect_hlo, a_kernel_that_nobody_knows) {
    char args[400];
    snprintf(args, sizeof args, "inspect %s", write_module("x.hlo", "mystery"));
    const struct child *c = assay(args);
    cr_assert(eq(int, c->status, 0), "%s", c->err);
    CHECK(strstr(c->out, "lower bound"), "%s", c->out);
    CHECK(strstr(c->out, "target mystery  count 1  executed 1  without_price 1"), "%s", c->out);
}

Test(cli_inspect_hlo, what_is_refused) {
    char path[300], args[400];
    snprintf(path, sizeof path, "%s/cut.hlo", child_home());
    snprintf(args, sizeof args, "inspect %s", path);
    FILE *f = fopen(path, "w");
    fputs("HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n", f);
    fclose(f);
    const struct child *c = assay(args);
    cr_assert(eq(int, c->status, 2));
    CHECK(strstr(c->err,
                 "cut.hlo:4:1: expected an instruction or '}', found the end of the text (in "
                 "computation 'e' of line 2)"),
          "%s", c->err);
    /* told what it is, a file of another name is read as that */
    snprintf(path, sizeof path, "%s/cut.text", child_home());
    snprintf(args, sizeof args, "inspect --kind hlo %s", path);
    f = fopen(path, "w");
    fputs("e { p = f32[2] parameter(0) }", f);
    fclose(f);
    cr_assert(eq(int, assay(args)->status, 0));
}
