/* The HLO reader on texts written for the purpose: each corner of the grammar, print and read
 * again, every prefix; and what is refused, with its place. */
#include "workloads/hlo/hlo.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition, ...) cr_assert(eq(int, !!(condition), 1), ##__VA_ARGS__)

TestSuite(workloads_hlo, .timeout = 60);

static struct hlo_file *read_text(const char *text) {
    struct hlo_file *f = NULL;
    struct err e = {0};
    cr_assert(eq(int, hlo_parse(text, strlen(text), "t.hlo", &f, &e), 0), "%s", e.text);
    return f;
}

static const struct hlo_instr *last(const struct hlo_file *f) {
    const struct hlo_computation *c = &f->modules[0].computations[f->modules[0].entry];
    return &c->instrs[c->root];
}

static void expect_str(struct str got, const char *want) {
    CHECK(got.n == strlen(want) && !memcmp(got.p, want, got.n), "'%.*s', want '%s'", (int)got.n,
          got.p, want);
}

static void print_all(const struct hlo_file *f, struct buf *out) {
    buf_init(out, 64 << 20);
    for (size_t k = 0; k < f->nmodules; k++) {
        if (k)
            buf_puts(out, "// -----\n");
        hlo_print(&f->modules[k], out);
    }
    struct err e;
    cr_assert(eq(int, buf_check(out, "print", &e), 0));
}

/* Everything that the grammar allows, in one module. */
static const char corners[] =
    "// a licence\n/* and a block\n   of it */\n"
    "HloModule corners.1: , is_scheduled=true, entry_computation_layout={(f32[2,3]{1,0}, "
    "/*index=1*/s32[])->f32[2,3]{1,0}},\n"
    "  input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {2}, must-alias) }, "
    "num_partitions=4\n"
    "\nFileNames\n1 \"a/b.py\"\n2 \"c \\\"d\\\".py\"\n\nFunctionNames\n1 \"f\"\n\nFileLocations\n"
    "1 {file_name_id=1 function_name_id=1 line=2 end_line=2 column=1 end_column=3}\n\nStackFrames\n"
    "1 {file_location_id=1 parent_frame_id=1}\n\n"
    "%add.0 (x: f32[], y: f32[]) -> f32[] {\n"
    "  %x = f32[] parameter(0)\n"
    "  %y = f32[] parameter(1)\n"
    "  ROOT %s = f32[] add(f32[] %x, f32[] %y)\n"
    "}, execution_thread=\"main\"\n"
    "\r\n"
    "bare { p.0 = (f32[2,3]{1,0:T(8,128)(2,1)S(1)}, (s32[], b(u8[4])), /*index=2*/token[]) "
    "parameter(0)\n"
    "  g = f32[2,3]{1,0} get-tuple-element(p.0), index=0 ROOT c = pred[2,3] compare(g, p.0#0), "
    "direction=LT }\n"
    "ENTRY main-1_x (a: f32[2,3], n: s32[]) -> f32[2,3]{1,0} {\n"
    "  a = f32[2, 3]{1, 0} parameter( 0 ), sharding={devices=[2,1]<=[2]}\n"
    "  n = s32[] parameter(1)\n"
    "  k = s4[4]{0:E(4)} constant({1, -2, 3, 4})\n"
    "  e = f32[1000]{0} constant({...})\n"
    "  z = c64[] constant((1.5, -inf))\n"
    "  q = (s32[], f32[2]) constant((7, {nan, 1e-3}))\n"
    "  m = s64[] constant(-9223372036854775808)\n"
    "  bd = f32[<=4,?,3] custom-call(a), custom_call_target=\"weird \\\" , } name\", "
    "backend_config={\"a\": [1, \"}\\\"\"], \"b\": {}}, literal=s32[] 1, "
    "api_version=API_VERSION_TYPED_FFI\n"
    "  nested = f32[2,3] multiply(f32[2,3]{1,0} add(a, f32[2,3] broadcast(f32[] constant(2)))\n"
    "     /*index=1*/, %a), metadata={op_type=\"mul\" op_name=\"it's {odd\" source_line=3}, "
    "control-predecessors={%a,%n}\n"
    "  unknown = f32[2,3] frobnicate(nested, n), level=3, dims=b01f_01io->b01f, pads=1_1x-1_2\n"
    "  st = ((f32[2,3]), f32[2,3], s32[]) custom-call-start(a), custom_call_target=\"foo\"\n"
    "  up = ((f32[2,3]), f32[2,3], s32[]) custom-call-update(st)\n"
    "  dn = f32[2,3] custom-call-done(up)\n"
    "  t = tuple(nested, n)\n"
    "  ar = f32[2,3] all-reduce(dn), channel_id=1, use_global_device_ids=true, "
    "replica_groups=[2,2] <= [2,2] T(1,0), to_apply=add.0\n"
    "  ag = f32[4,3] all-gather(dn), replica_groups=mesh['x'=2,'y'=2], device_ids=(0,2,1,3) {'x'}, "
    "dimensions={0}\n"
    "  shapeless = subtract(ar, t#0)\n"
    "  ROOT r = f32[2,3]{1,0} add(unknown, shapeless), frontend_attributes={kernel={\n \"x\" }}\n"
    "}\n";

Test(workloads_hlo, corners_of_the_grammar) {
    struct hlo_file *f = read_text(corners);
    cr_assert(eq(sz, f->nmodules, 1));
    const struct hlo_module *m = &f->modules[0];
    expect_str(m->name, "corners.1");
    cr_assert(eq(u32, m->n, 3));
    cr_assert(eq(u32, m->entry, 2));
    cr_assert(eq(i64, m->partitions, 4));
    cr_assert(eq(i64, hlo_alias_entries(m), 2));
    expect_str(m->computations[0].thread, "\"main\"");
    const struct hlo_computation *bare = &m->computations[1];
    cr_assert(eq(u32, bare->n, 4)); /* one of them without a name */
    cr_assert(eq(u32, bare->root, 3));
    const struct hlo_shape *p = bare->instrs[0].shape;
    cr_assert(eq(u32, p->nelements, 3));
    cr_assert(eq(u32, p->leaves, 4));
    cr_assert(eq(i64, p->bytes, 24 + 4 + 4));
    cr_assert(eq(i32, p->elements[0]->memory_space, 1));
    expect_str(p->elements[0]->layout, "T(8,128)(2,1)S(1)");
    const struct hlo_computation *c = &m->computations[2];
    const struct hlo_instr *i = c->instrs;
    cr_assert(eq(i64, i[1].value, 1));
    cr_assert(eq(i64, i[2].shape->bytes, 2)); /* four times four bits */
    cr_assert(eq(i64, i[6].value, INT64_MIN));
    cr_assert(eq(i64, i[7].shape->count, HLO_UNKNOWN_COUNT));
    cr_assert(eq(u64, i[7].shape->bounded, 1));
    struct str s;
    CHECK(hlo_attr(m, c, &i[7], HLO_KEY_CUSTOM_CALL_TARGET, &s));
    expect_str(s, "\"weird \\\" , } name\"");
    CHECK(hlo_attr(m, c, &i[7], HLO_KEY_BACKEND_CONFIG, &s));
    expect_str(s, "{\"a\": [1, \"}\\\"\"], \"b\": {}}");
    CHECK(hlo_attr(m, c, &i[7], HLO_KEY_LITERAL, &s));
    expect_str(s, "s32[] 1");
    /* constant, broadcast, add, then their user */
    cr_assert(eq(u16, i[8].opcode, HLO_CONSTANT));
    cr_assert(eq(u16, i[9].opcode, HLO_BROADCAST));
    cr_assert(eq(u16, i[10].opcode, HLO_ADD));
    cr_assert(eq(u16, i[11].opcode, HLO_MULTIPLY));
    CHECK(hlo_operand(c, &i[11], 0) == &i[10]);
    CHECK(hlo_operand(c, &i[11], 1) == &i[0]);
    cr_assert(eq(u16, i[12].opcode, HLO_UNKNOWN));
    expect_str(hlo_instr_opcode(m, c, &i[12]), "frobnicate");
    cr_assert(eq(u16, i[13].opcode, HLO_ASYNC_START));
    cr_assert(eq(int, hlo_instr_wrapped(m, c, &i[13]), HLO_CUSTOM_CALL));
    cr_assert(eq(u16, i[14].opcode, HLO_ASYNC_UPDATE));
    cr_assert(eq(u16, i[15].opcode, HLO_ASYNC_DONE));
    cr_assert(eq(u32, i[16].shape->nelements, 2)); /* the inferred tuple */
    expect_str(m->computations[0].name, "add.0");
    cr_assert(eq(u32, hlo_callee(c, &i[17], HLO_KEY_TO_APPLY), 0));
    struct hlo_groups g;
    cr_assert(eq(int, hlo_groups(m, c, &i[17], &g, NULL), 0));
    cr_assert(eq(i64, g.groups, 2));
    cr_assert(eq(int, hlo_groups(m, c, &i[18], &g, NULL), 0));
    cr_assert(eq(i64, g.size, 2));
    cr_assert(eq(i64, last(f)->shape->count, 6));
    hlo_free(f);
}

/* What is printed reads back as the same, and prints the same. */
Test(workloads_hlo, printing_is_a_fixed_point) {
    struct buf once, twice;
    struct hlo_file *f = read_text(corners);
    print_all(f, &once);
    struct hlo_file *g = read_text(once.p);
    print_all(g, &twice);
    cr_assert(eq(str, twice.p, once.p));
    const struct hlo_module *a = f->modules, *b = g->modules;
    cr_assert(eq(u32, a->n, b->n));
    cr_assert(eq(u32, a->nattrs, b->nattrs));
    for (uint32_t k = 0; k < a->n; k++) {
        const struct hlo_computation *x = &a->computations[k], *y = &b->computations[k];
        cr_assert(eq(u32, x->n, y->n));
        cr_assert(eq(u32, x->root, y->root));
        for (uint32_t j = 0; j < x->n; j++) {
            cr_assert(eq(u16, x->instrs[j].opcode, y->instrs[j].opcode));
            cr_assert(eq(i64, x->instrs[j].value, y->instrs[j].value));
            cr_assert(eq(u16, x->instrs[j].nattrs, y->instrs[j].nattrs));
            CHECK(hlo_shape_same(x->instrs[j].shape, y->instrs[j].shape));
            for (uint32_t o = 0; o < x->instrs[j].noperands; o++)
                cr_assert(eq(u32, x->operands[x->instrs[j].operands + o],
                             y->operands[y->instrs[j].operands + o]));
        }
    }
    hlo_free(f);
    hlo_free(g);
    buf_release(&once);
    buf_release(&twice);
}

/* No prefix crashes; one that is accepted ends where a computation does. */
Test(workloads_hlo, every_prefix_ends_in_an_error) {
    size_t n = sizeof corners - 1, accepted = 0;
    for (size_t k = 0; k < n; k++) {
        char *text = calloc(k + 1, 1); /* exactly that long, so that reading on is seen */
        struct hlo_file *f = NULL;
        struct err e = {0};
        memcpy(text, corners, k);
        int rc = hlo_parse(text, k, "t.hlo", &f, &e);
        if (!rc) {
            while (k && strchr(" \r\n", text[k - 1]))
                text[--k] = 0;
            CHECK(text[k - 1] == '}' || text[k - 1] == '"', "%s", text);
            accepted++;
            k = strlen(text) + strspn(corners + strlen(text), " \r\n");
            hlo_free(f);
        } else {
            cr_assert(eq(int, rc, ASSAY_EINPUT), "%s", e.text);
            CHECK(!strncmp(e.text, "t.hlo:", 6), "%s", e.text);
        }
        free(text);
    }
    CHECK(accepted >= 2 && accepted < 6, "%zu", accepted);
}

Test(workloads_hlo, entry_root_and_name_by_default) {
    struct hlo_file *f = read_text("first { a = f32[] parameter(0) }\n"
                                   "second { b = f32[] parameter(0) c = f32[] negate(b) }\n");
    expect_str(f->modules[0].name, "module_second");
    cr_assert(eq(int, f->modules[0].has_header, 0));
    cr_assert(eq(u32, f->modules[0].entry, 1));
    cr_assert(eq(u32, f->modules[0].computations[1].root, 1));
    hlo_free(f);
}

Test(workloads_hlo, several_modules) {
    struct hlo_file *f =
        read_text("// RUN: it\n// -----\nHloModule a\nENTRY x { p = f32[] parameter(0) }\n"
                  "// -----\n// nothing\n// -----\n"
                  "y { p = f32[2] parameter(0) } // ----- is none\n// ------\n"
                  "z { p = f32[] parameter(0) }\n// -----");
    cr_assert(eq(sz, f->nmodules, 2));
    expect_str(f->modules[0].name, "a");
    expect_str(f->modules[1].name, "module_z");
    cr_assert(eq(u32, f->modules[1].n, 2));
    hlo_free(f);
}

/* Bytes: published rules of xla/shape_util.cc; padding: docs/tiled_layout.md. */
Test(workloads_hlo, bytes_of_shapes) {
    static const struct {
        const char *shape;
        int64_t bytes, padded;
    } rows[] = {
        {"pred[3]", 3, 3},
        {"bf16[2,3]{1,0}", 12, 12},
        {"f32[]", 4, 4},
        {"f32[0,5]", 0, 0},
        {"c128[2]", 32, 32},
        {"u4[5]", 5, 5},
        {"u4[5]{0:E(4)}", 3, 3},
        {"s1[9]{0:E(1)}", 2, 2},
        {"token[]", 0, 0},
        {"opaque[]", 8, 8},
        {"f8e8m0fnu[7]", 7, 7},
        {"f32[<=8,2]", 64, 64},
        {"f32[?,2]", -1, -1},
        {"(f32[2], (s8[3], token[]))", 11, 11},
        {"f32[10,130]{1,0:T(8,128)}", 5200, 16 * 256 * 4},
        {"f32[4096,4]{0,1:T(4,128)}", 65536, 65536},
        {"bf16[1,128,4096]{2,1,0:T(8,128)(2,1)S(1)}", 1048576, 1048576},
        {"f32[3,10,130]{2,1,0:T(8,128)}", 15600, 3 * 16 * 256 * 4},
        {"f32[1000]{0:T(1024)}", 4000, 4096},
        {"u32[]{:T(128)}", 4, 512},
        {"f32[3,5,100]{2,1,0:T(*,8,128)}", 6000, 16 * 128 * 4},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        char text[256];
        snprintf(text, sizeof text, "c { p = %s parameter(0) }", rows[k].shape);
        struct hlo_file *f = read_text(text);
        cr_assert(eq(i64, last(f)->shape->bytes, rows[k].bytes), "%s", rows[k].shape);
        cr_assert(eq(i64, hlo_shape_padded_bytes(last(f)->shape), rows[k].padded), "%s",
                  rows[k].shape);
        expect_str(last(f)->shape->text, rows[k].shape);
        hlo_free(f);
    }
}

/* Shapes that follow from the operands. */
Test(workloads_hlo, inferred_shapes) {
    static const struct {
        const char *op;
        unsigned dtype;
        int rank;
        int64_t count;
    } rows[] = {
        {"add(a, a)", HLO_F32, 2, 12},
        {"dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}", HLO_F32, 2, 15},
        {"dot(a, a), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, "
         "rhs_contracting_dims={1}",
         HLO_F32, 1, 3},
        {"compare(a, a), direction=EQ", HLO_PRED, 2, 12},
        {"get-tuple-element(t), index=1", HLO_F32, 2, 20},
        {"exponential(b)", HLO_F32, 2, 20},
        {"select(pred[3,4] compare(a, a), a, a)", HLO_F32, 2, 12},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        char text[512];
        snprintf(
            text, sizeof text,
            "c { a = f32[3,4] parameter(0) b = f32[4,5] parameter(1) t = tuple(a, b) ROOT r = %s }",
            rows[k].op);
        struct hlo_file *f = read_text(text);
        cr_assert(eq(u8, last(f)->shape->dtype, rows[k].dtype), "%s", rows[k].op);
        cr_assert(eq(u8, last(f)->shape->rank, rows[k].rank), "%s", rows[k].op);
        cr_assert(eq(i64, last(f)->shape->count, rows[k].count), "%s", rows[k].op);
        hlo_free(f);
    }
}

Test(workloads_hlo, opcodes_are_sorted_and_found) {
    for (int op = 1; op < HLO_OPCODE_COUNT; op++) {
        const char *name = hlo_opcode_name(op);
        cr_assert(eq(int, hlo_opcode_find(name, strlen(name)), op), "%s", name);
        if (op > 1)
            cr_assert(lt(str, (char *)hlo_opcode_name(op - 1), (char *)name));
    }
    cr_assert(eq(int, HLO_OPCODE_COUNT - 1, 136)); /* hlo_opcode.h of the commit in the header */
    cr_assert(eq(int, hlo_opcode_find("ad", 2), HLO_UNKNOWN));
    cr_assert(eq(int, hlo_opcode_find("added", 5), HLO_UNKNOWN));
}

Test(workloads_hlo, windows_and_labels) {
    struct hlo_window_dim w[4];
    struct hlo_dim_labels l;
    size_t n;
    static const char text[] = "{size=3x1 stride=2x5 pad=-1_2x0_4 rhs_dilate=1x3 rhs_reversal=0x1}";
    CHECK(hlo_window((struct str){text, sizeof text - 1}, w, 4, &n));
    cr_assert(eq(sz, n, 2));
    cr_assert(eq(i64, w[0].pad_low, -1));
    cr_assert(eq(i64, w[1].pad_high, 4));
    cr_assert(eq(i64, w[1].stride, 5));
    cr_assert(eq(i64, w[0].lhs_dilate, 1));
    cr_assert(eq(int, w[1].reversed, 1));
    static const char *const bad[] = {
        "{size=3x3 colour=1x1}", "{size=}", "{size=3", "size=3", "{size=0}", "{pad=1}",
        "{size=1x1x1x1x1}"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        cr_assert(not(hlo_window((struct str){bad[k], strlen(bad[k])}, w, 4, &n)), "%s", bad[k]);
    static const char labels[] = "bf01_o1i0->f10b";
    CHECK(hlo_dim_labels((struct str){labels, sizeof labels - 1}, &l));
    cr_assert(eq(int, l.nspatial, 2));
    cr_assert(eq(int, l.kernel_out, 0));
    cr_assert(eq(int, l.kernel_spatial[0], 3));
    cr_assert(eq(int, l.out_spatial[0], 2));
    static const char *const wrong[] = {
        "b0f_0io", "b0f_0io->b1f", "b0f_01io->b0f", "bb0f_0io->b0f", "0f_0io->b0f", "b0f_0io-b0f",
        ""};
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
        cr_assert(not(hlo_dim_labels((struct str){wrong[k], strlen(wrong[k])}, &l)), "%s",
                  wrong[k]);
}

/* Groups by hand: the ids, group by group. Iota and transpose: xla/hlo/ir/replica_group.cc. */
Test(workloads_hlo, replica_groups) {
    static const struct {
        const char *text;
        int64_t groups, size, n, ids[16];
    } rows[] = {
        {"{{0,1},{2,3}}", 2, 2, 4, {0, 1, 2, 3}},
        {"{{0, 2, 4}, {1,3,5,6}}", 2, 3, 7, {0, 2, 4, 1, 3, 5, 6}},
        {"{}", 0, 0, 0, {0}},
        {"[2,4]<=[8]", 2, 4, 8, {0, 1, 2, 3, 4, 5, 6, 7}},
        {"[4,2]<=[2,4]T(1,0)", 4, 2, 8, {0, 4, 1, 5, 2, 6, 3, 7}},
        {"[2,4]<=[2,2,2]T(1,0,2)", 2, 4, 8, {0, 1, 4, 5, 2, 3, 6, 7}},
        {"mesh['x'=2,'y'=4] {'y'}", 2, 4, 8, {0, 1, 2, 3, 4, 5, 6, 7}},
        {"mesh['x'=2,'y'=4] {'x'}", 4, 2, 8, {0, 4, 1, 5, 2, 6, 3, 7}},
        {"mesh['x'=2,'y'=2] {'y','x'}", 1, 4, 4, {0, 2, 1, 3}},
        {"mesh['x'=1,'y'=1,'z'=4] {'z'}", 1, 4, 4, {0, 1, 2, 3}},
        {"mesh['x'=8] {'x':(2)2}", 4, 2, 8, {0, 2, 1, 3, 4, 6, 5, 7}},
        {"mesh['x'=8] {'x':(1)2,'x':(4)2}", 2, 4, 8, {0, 1, 4, 5, 2, 3, 6, 7}},
        {"mesh['x'=2,'y'=2] {}", 4, 1, 4, {0, 1, 2, 3}},
        {"mesh['x'=2,'y'=2], device_ids=(3,2,1,0) {'y'}", 2, 2, 4, {3, 2, 1, 0}},
        {"mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)), {'y'}", 2, 2, 4, {0, 2, 1, 3}},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        char text[512];
        snprintf(text, sizeof text,
                 "s { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"
                 "c { p = f32[8] parameter(0) ROOT r = f32[8] all-reduce(p), replica_groups=%s, "
                 "to_apply=s }",
                 rows[k].text);
        struct hlo_file *f = read_text(text);
        struct hlo_groups g;
        int64_t ids[16];
        const struct hlo_module *m = &f->modules[0];
        cr_assert(eq(int, hlo_groups(m, &m->computations[1], last(f), &g, NULL), 0));
        expect_str(g.text, rows[k].text);
        cr_assert(eq(i64, g.groups, rows[k].groups), "%s", rows[k].text);
        cr_assert(eq(i64, g.size, rows[k].size), "%s", rows[k].text);
        cr_assert(eq(i64, hlo_groups_ids(&g, ids, 16), rows[k].n), "%s", rows[k].text);
        for (int64_t i = 0; i < rows[k].n; i++)
            cr_assert(eq(i64, ids[i], rows[k].ids[i]), "%s at %d", rows[k].text, (int)i);
        hlo_free(f);
    }
    int64_t pairs[4][2];
    static const char text[] = "{{0,1}, {1,2},{2,0}}";
    cr_assert(eq(i64, hlo_pairs((struct str){text, sizeof text - 1}, pairs, 4), 3));
    cr_assert(eq(i64, pairs[2][0], 2));
    cr_assert(eq(i64, hlo_pairs((struct str){"{}", 2}, pairs, 4), 0));
    cr_assert(eq(i64, hlo_pairs((struct str){"{{0}}", 5}, pairs, 4), -1));
}

/* Before partitioning, after, in between, and on one device. */
Test(workloads_hlo, scope) {
    static const struct {
        const char *header, *body;
        enum hlo_scope want;
    } rows[] = {
        {"", "r = f32[8] negate(p)", HLO_SCOPE_SINGLE},
        {", num_partitions=4", "r = f32[8] negate(p)", HLO_SCOPE_PER_DEVICE},
        {", num_partitions=4", "r = f32[8] negate(p), sharding={devices=[4]<=[4]}",
         HLO_SCOPE_GLOBAL},
        {", num_partitions=4", "r = f32[8] negate(p), sharding={replicated}", HLO_SCOPE_PER_DEVICE},
        {", num_partitions=4",
         "r = f32[8] negate(p), sharding={devices=[1,4]<=[4] last_tile_dim_replicate}",
         HLO_SCOPE_PER_DEVICE},
        {", num_partitions=4",
         "r = f32[8] negate(p), sharding={devices=[1,2,2]<=[4] last_tile_dims={manual, "
         "replicated}}",
         HLO_SCOPE_PER_DEVICE},
        {", num_partitions=4", "r = f32[8] negate(p), sharding={mesh['x'=4], [{'x'}]}",
         HLO_SCOPE_GLOBAL},
        {", num_partitions=4", "r = f32[8] negate(p), sharding={mesh['x'=4], [{}]}",
         HLO_SCOPE_PER_DEVICE},
        {"", "r = f32[8] collective-permute(p), source_target_pairs={{0,1}}", HLO_SCOPE_PER_DEVICE},
        {"",
         "q = f32[8] negate(p), sharding={devices=[4]<=[4]}\n r = f32[8] collective-permute(q), "
         "source_target_pairs={{0,1}}",
         HLO_SCOPE_MIXED},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        char text[512];
        snprintf(
            text, sizeof text,
            "HloModule m%s\nENTRY c { p = f32[8] parameter(0), sharding={devices=[4]<=[4]}\n %s }",
            rows[k].header, rows[k].body);
        struct hlo_file *f = read_text(text);
        cr_assert(eq(int, hlo_scope(&f->modules[0]), rows[k].want), "%s", rows[k].body);
        hlo_free(f);
    }
}

/* ---- what is refused ---- */

static void expect_error(const char *text, size_t n, const char *want) {
    struct hlo_file *f = NULL;
    struct err e = {0};
    int rc = hlo_parse(text, n, "t.hlo", &f, &e);
    cr_assert(eq(int, rc, ASSAY_EINPUT), "accepted: %.200s", text);
    CHECK(strstr(e.text, want), "%s\nwant: %s\nfor: %.200s", e.text, want, text);
}

Test(workloads_hlo, errors_say_where_and_what) {
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"", "t.hlo:1:1: expected 'HloModule' or a computation, found the end of the text"},
        {"// nothing\n", "t.hlo:2:1: expected 'HloModule' or a computation, found the end"},
        {"HloModule m\n", "t.hlo:2:1: expected a computation, found the end of the text"},
        {"HloModule\n{", "t.hlo:2:1: expected the name of the module, found '{'"},
        {"HloModule m, x\nc { }",
         "t.hlo:2:1: expected '=' after the name of an attribute, found 'c'"},
        {"HloModule a\nx { p = f32[] parameter(0) }\nHloModule b\n",
         "t.hlo:3:1: expected a computation, found a trailing module"},
        {"c {",
         "t.hlo:1:4: expected an instruction or '}', found the end of the text (in computation "
         "'c' of line 1)"},
        {"c { }", "t.hlo:1:5: expected an instruction, found '}'"},
        {"c {\n  p = f32[] parameter(0)\n// -----\nd { p = f32[] parameter(0) }",
         "t.hlo:3:1: expected an instruction or '}', found '// -----', which ends the module"},
        {"c { p = f32[] parameter(0) } d", "t.hlo:1:31: expected '{', found the end"},
        {"c { p = f32[] parameter(0) }\nc { p = f32[] parameter(0) }",
         "t.hlo:2:1: expected a new name, found computation 'c' a second time"},
        {"ENTRY c { p = f32[] parameter(0) }\nENTRY d { p = f32[] parameter(0) }",
         "t.hlo:2:1: expected one ENTRY computation, found a second"},
        {"c { p = f32[] parameter(0)\n p = f32[] parameter(1) }",
         "t.hlo:2:2: expected a new name, found 'p' a second time"},
        {"c { ROOT p = f32[] parameter(0)\n ROOT q = f32[] parameter(1) }",
         "t.hlo:2:7: expected one ROOT, found a second: 'q'"},
        {"c { p = f32[] parameter(1) }", "expected parameters numbered from 0"},
        {"c { p = f32[] parameter(0) q = f32[] parameter(0) }", "found parameter(0) again"},
        {"c { p = f32[] parameter(-1) }", "expected a parameter number >= 0"},
        {"c { p = f32[] add(p, p) }", "t.hlo:1:19: expected an operand defined before, found 'p'"},
        {"c { p = f32[] parameter(0) r = f32[] add(p) }",
         "t.hlo:1:28: expected 2 operands of 'add', found 1"},
        {"c { p = f32[] parameter(0) r = f32[] reduce(p), to_apply=x }",
         "expected a computation defined before, found 'x'"},
        {"c { p = f32[] parameter(0) r = f32[2] add(f32[2] p, p) }",
         "expected an operand of the shape written here, found 'p' of another shape"},
        {"c { p = f33[] parameter(0) }", "expected '(' after the opcode, found '['"},
        {"c { p = f32[2 parameter(0) }", "expected ',' or ']', found 'parameter'"},
        {"c { p = f32[-2] parameter(0) }", "expected a dimension >= 0, found '-2'"},
        {"c { p = f32[2x3] parameter(0) }", "t.hlo:1:14: expected ',' or ']', found 'x3'"},
        {"c { p = f32[99999999999999999999] parameter(0) }",
         "expected an integer of at most 64 bits"},
        {"c { p = f32[4294967296,4294967296] parameter(0) }", "fewer than 2^63 bytes"},
        {"c { p = f32[2]{1} parameter(0) }", "expected a layout of the 1 dimensions, each once"},
        {"c { p = f32[2,3]{1} parameter(0) }", "expected a layout of 2 dimensions, found 1"},
        {"c { p = f32[2,3]{0,0} parameter(0) }",
         "expected a layout of the 2 dimensions, each once"},
        {"c { p = f32[2]{0:Z(1)} parameter(0) }", "expected a layout property"},
        {"c { p = f32[2]{0:T(1} parameter(0) }", "expected ')', found '}'"},
        {"c { p = (f32[2], f32[] parameter(0) }", "expected ',', found 'parameter'"},
        {"c (a: f32[]) -> { p = f32[] parameter(0) }", "expected a shape, found '{'"},
        {"c (a f32[]) -> f32[] { p = f32[] parameter(0) }", "expected ':', found 'f32'"},
        {"c (a: f32[2]) -> f32[2] {\n p = f32[] parameter(0) }",
         "t.hlo:2:2: expected a root of the result's shape in the signature, found another"},
        {"c { p = f32[] constant(1", "expected the closing bracket of this '('"},
        {"c { p = f32[] constant( ) }", "expected a literal"},
        {"c { p = f32[] parameter(0), a=\"x }", "expected the closing \" of this string"},
        {"c { p = f32[] parameter(0), a={\"x\\\"} }", "expected the closing \" of this string"},
        {"c { /* p = f32[] parameter(0) }", "t.hlo:1:5: expected the end '*/' of this comment"},
        {"c { p = f32[] parameter(0), a={ ( } }", "expected ')', found '}'"},
        {"c { p = f32[] parameter(0), a= }", "expected a value, found '}'"},
        {"c { p = f32[] parameter(0), =1 }", "expected the name of an attribute, found '='"},
        {"c { p = (f32[]) parameter(0) r = f32[] get-tuple-element(p), index=1 }",
         "expected an index of a tuple of 1, found 1"},
        {"c { p = (f32[]) parameter(0) r = f32[] get-tuple-element(p) }",
         "expected the attribute 'index'"},
        {"c { p = f32[] parameter(0) r = f32[] get-tuple-element(p), index=0 }",
         "expected an operand that is a tuple"},
        {"c { p = (f32[]) parameter(0) r = s32[] get-tuple-element(p), index=0 }",
         "expected the shape of element 0"},
        {"c { p = (f32[]) parameter(0) r = f32[] negate(p#1) }",
         "expected an index of a tuple of 1, found 1"},
        {"c { p = f32[2,3] parameter(0) r = f32[2,2] dot(p, p), lhs_contracting_dims={2}, "
         "rhs_contracting_dims={1} }",
         "expected a dimension of an operand of 2, found 2"},
        {"c { p = f32[2,3] parameter(0) r = f32[2,2] dot(p, p), lhs_contracting_dims={1}, "
         "rhs_contracting_dims={0} }",
         "expected contracted dimensions of one size, found 3 and 2"},
        {"c { p = f32[2,3] parameter(0) r = f32[2,2] dot(p, p), lhs_contracting_dims={1} }",
         "expected as many contracted dimensions of the left as of the right, found 1 and 0"},
        {"c { p = f32[2,2] parameter(0) r = f32[2,2] dot(p, p), lhs_contracting_dims={1,1}, "
         "rhs_contracting_dims={0,1} }",
         "expected each dimension once"},
        {"c { p = f32[2,2] parameter(0) r = f32[2,2] dot(p, p), lhs_contracting_dims=1 }",
         "expected dimensions like {0,1}"},
        {"b { p = f32[] parameter(0) }\nc { p = f32[] parameter(0) r = f32[] while(p), condition=b "
         "}",
         "expected the attribute 'body' of 'while'"},
        {"b { p = f32[] parameter(0) }\nc { p = f32[] parameter(0) r = f32[] while(p), body=b }",
         "expected the attribute 'condition' of 'while'"},
        {"b { p = f32[] constant(0) }\n"
         "c { p = f32[] parameter(0) r = f32[] while(p), body=b, condition=b }",
         "expected a body of one parameter, found 0"},
        {"c { p = f32[] parameter(0) r = f32[] fusion(p), kind=kLoop }",
         "expected the attribute 'calls' of 'fusion'"},
        {"b { p = f32[] parameter(0) }\n"
         "c { p = f32[] parameter(0) r = f32[] fusion(p, p), kind=kLoop, calls=b }",
         "expected 1 operands, as 'b' has parameters, found 2"},
        {"b { p = f32[] parameter(0) }\nc { p = f32[] parameter(0) r = f32[] fusion(p), calls={b "
         "b} }",
         "expected ',', found 'b'"},
        {"c { p = s32[] parameter(0) r = f32[] conditional(p, p) }",
         "expected 'branch_computations'"},
        {"c { p = f32[8] parameter(0) r = f32[16] all-gather(p), replica_groups=[2,4]<=[4] }",
         "expected as many devices in the groups as in the iota they are cut from, found "
         "[2,4]<=[4]"},
        {"c { p = f32[8] parameter(0) r = f32[16] all-gather(p), replica_groups=[2,4]<=[2,4]T(0,0) "
         "}",
         "expected replica_groups as"},
        {"c { p = f32[8] parameter(0) r = f32[16] all-gather(p), replica_groups={{0,a}} }",
         "expected replica_groups as"},
        {"c { p = f32[8] parameter(0) r = f32[16] all-gather(p), replica_groups=mesh['x'=2] {'y'} "
         "}",
         "expected replica_groups as"},
        {"c { p = f32[8] parameter(0) r = f32[16] all-gather(p), replica_groups=mesh['x'=4] "
         "{'x':(2)4} }",
         "expected replica_groups as"},
        {"c { p = f32[8] parameter(0) r = f32[8] collective-permute(p), source_target_pairs={{0}} "
         "}",
         "expected pairs like {{0,1},{1,2}}"},
        {"c { p = f32[1,2,1] parameter(0) r = f32[1,2,1] convolution(p, p), window={size=1} }",
         "expected the attribute 'dim_labels'"},
        {"c { p = f32[1,2,1] parameter(0) r = f32[1,2,1] convolution(p, p), window={size=1x1}, "
         "dim_labels=b0f_0io->b0f }",
         "expected a window of 1 dimensions"},
        {"c { p = f32[1,2,1] parameter(0) r = f32[1,2,1] convolution(p, p), window={size=1}, "
         "dim_labels=b0f_0io->b0f, feature_group_count=0 }",
         "expected a count >= 1"},
        {"c { p = f32[2] parameter(0) r = frobnicate(p) }",
         "expected the shape of this 'frobnicate': it does not follow from its operands"},
        {"c { p = parameter(0) }", "expected the shape of this 'parameter'"},
        {"c { p = f32[] parameter(0) }, execution=\"x\"", "expected 'execution_thread'"},
        {"c { p = f32[] parameter(0) @ }", "expected an instruction or '}', found '@'"},
        {"c { p = f32[] negate(f32[] parameter(0) }", "expected ',', found '}'"},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        expect_error(rows[k].text, strlen(rows[k].text), rows[k].want);
}

/* The reader's depth ends before its stack does. */
Test(workloads_hlo, recursion_is_bounded) {
    static const struct {
        const char *before, *repeat, *want;
    } rows[] = {
        {"c { p = ", "(", "expected at most 1000 nested tuples"},
        {"c { p = f32[] negate(", "f32[] negate(", "expected at most 1000 nested instructions"},
        {"c { p = f32[] constant(", "{", "expected at most 1000 nested brackets"},
        {"c { p = f32[] parameter(0), a=", "[", "expected at most 1000 nested brackets"},
    };
    enum { TIMES = 20000 };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct buf b;
        buf_init(&b, 1 << 20);
        buf_puts(&b, rows[k].before);
        for (int i = 0; i < TIMES; i++)
            buf_puts(&b, rows[k].repeat);
        expect_error(b.p, b.n, rows[k].want);
        buf_release(&b);
    }
    /* and is at least the 500 that the field's files need */
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_puts(&b, "c { p = ");
    for (int i = 0; i < 600; i++)
        buf_putc(&b, '(');
    buf_puts(&b, "f32[]");
    for (int i = 0; i < 600; i++)
        buf_putc(&b, ')');
    buf_puts(&b, " parameter(0) }");
    struct hlo_file *f = read_text(b.p);
    cr_assert(eq(u16, last(f)->shape->depth, 600));
    hlo_free(f);
    buf_release(&b);
}

/* Tuples of tuples without written shapes double at each step. */
Test(workloads_hlo, inferred_tuples_are_bounded) {
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_puts(&b, "c { t0 = f32[] parameter(0)\n");
    for (int i = 1; i < 60; i++)
        buf_printf(&b, "t%d = tuple(t%d, t%d)\n", i, i - 1, i - 1);
    buf_puts(&b, "}");
    expect_error(b.p, b.n, "expected a tuple of at most");
    buf_release(&b);
}

/* A zero inside the text is no end of it. */
Test(workloads_hlo, bytes_of_any_value) {
    static const char text[] = "c { p = f32[] parameter(0), a=\"x\0y\\\"\"\0 }";
    expect_error(text, sizeof text - 1, "expected an instruction or '}', found");
    struct hlo_file *f = NULL;
    static const char fine[] = "c { p = f32[] parameter(0), a={\"x\0y\\\"\"} }";
    cr_assert(eq(int, hlo_parse(fine, sizeof fine - 1, "t", &f, NULL), 0));
    hlo_free(f);
}

Test(workloads_hlo, files_that_are_none) {
    struct hlo_file *f = NULL;
    struct err e = {0};
    cr_assert(eq(int, hlo_load("/nonexistent/x.hlo", &f, &e), ASSAY_EINPUT));
    CHECK(strstr(e.text, "cannot open '/nonexistent/x.hlo'"), "%s", e.text);
    cr_assert(eq(int, hlo_load("/dev", &f, &e), ASSAY_EINPUT));
    CHECK(strstr(e.text, "regular file"), "%s", e.text);
}
