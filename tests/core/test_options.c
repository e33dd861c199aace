/* Option tables: every type from text and from JSON, and what bad input is told. */
#include "harness/core/json.h"
#include "harness/core/options.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

struct thing {
    bool flag;
    int64_t count;
    uint64_t seed;
    double rate;
    const char *name;
    int mode;
    int64_t wait_ns, size;
    const char *secret;
};
static const char *const modes[] = {"fast", "slow", NULL};
#define AT(f) offsetof(struct thing, f)
static const struct option table[] = {
    {"flag", OPT_BOOL, AT(flag), .help = "a flag"},
    {"count", OPT_I64, AT(count), .min = 1, .max = 64, .def = "4", .help = "how many"},
    {"seed", OPT_U64, AT(seed)},
    {"rate", OPT_F64, AT(rate), .min = 0.5, .max = 1e308, .unit = "1/s"},
    {"name", OPT_STR, AT(name), .flags = OPTION_REQUIRED},
    {"mode", OPT_ENUM, AT(mode), .choices = modes, .def = "slow"},
    {"wait", OPT_DURATION, AT(wait_ns), .def = "1.5s"},
    {"size", OPT_BYTES, AT(size)},
    {"key", OPT_STR, AT(secret), .flags = OPTION_SECRET},
    {0},
};

static struct arena arena;

Test(core_options, text_of_each_type) {
    struct thing t = {0};
    struct err e = {0};
    options_defaults(table, &t, &arena);
    cr_assert(eq(i64, t.count, 4));
    cr_assert(eq(int, t.mode, 1));
    cr_assert(eq(i64, t.wait_ns, 1500000000));
    const char *pairs[] = {"flag", "count=64", "seed=18446744073709551615", "rate=2.5", "name=a=b",
                           "mode=fast", "wait=20us", "size=64KiB"};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        cr_assert(eq(int, options_set_pair(table, &t, pairs[i], "-o", &arena, &e), 0), "%s",
                  e.text);
    cr_assert(t.flag);
    cr_assert(eq(u64, t.seed, UINT64_MAX));
    cr_assert(eq(str, (char *)t.name, "a=b"));
    cr_assert(eq(i64, t.wait_ns, 20000));
    cr_assert(eq(i64, t.size, 65536));
    arena_release(&arena);
}

struct bad {
    const char *input, *message;
};

Test(core_options, bad_text_says_what_was_expected) {
    static const struct bad bad[] = {
        {"count=65", "-o count: expected an integer in 1..64, found '65'"},
        {"count=4x", "-o count: expected an integer in 1..64, found '4x'"},
        {"cuont=4", "-o: unknown key 'cuont'; did you mean 'count'?"},
        {"rate=nan", "-o rate: expected a number >= 0.5, found 'nan'"},
        {"mode=quick", "-o mode: expected one of: fast, slow, found 'quick'"},
        {"wait=5", "-o wait: expected a duration like \"1.5s\", \"20ms\" or \"10min\", found '5'"},
        {"seed=-1", "-o seed: expected an integer >= 0, found '-1'"},
        {"name", "-o: 'name' needs a value: name=..."},
        {"=1", "-o: expected KEY=VALUE, found '=1'"},
    };
    struct thing t = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e = {0};
        cr_assert(
            eq(int, options_set_pair(table, &t, bad[i].input, "-o", &arena, &e), ASSAY_EUSAGE));
        cr_assert(eq(str, e.text, (char *)bad[i].message));
    }
    arena_release(&arena);
}

Test(core_options, bad_json_names_the_pointer) {
    static const struct bad bad[] = {
        {"{}", "f.json: at /x/name: expected a string, found nothing (the member is required)"},
        {"{\"name\":1}", "f.json: at /x/name: expected a string, found 1"},
        {"{\"name\":\"a\",\"count\":0}",
         "f.json: at /x/count: expected an integer in 1..64, found 0"},
        {"{\"name\":\"a\",\"count\":1.5}",
         "f.json: at /x/count: expected an integer in 1..64, found 1.5"},
        {"{\"name\":\"a\",\"nmae\":2}", "f.json: at /x: unknown key 'nmae'; did you mean 'name'?"},
        {"[]", "f.json: at /x: expected an object, found an array"},
    };
    struct thing t = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e = {0};
        json_t *j;
        cr_assert(eq(int, json_parse(bad[i].input, strlen(bad[i].input), "f.json", &j, &e), 0));
        cr_assert(eq(int, options_from_json(table, &t, j, "f.json", "/x", &arena, &e),
                     ASSAY_EINPUT));
        cr_assert(eq(str, e.text, (char *)bad[i].message));
        json_decref(j);
    }
    arena_release(&arena);
}

Test(core_options, json_round_trip_keeps_values_and_hides_secrets) {
    struct thing t = {0}, u = {0};
    struct err e = {0};
    options_defaults(table, &t, &arena);
    t.name = "n";
    t.secret = "hush";
    t.seed = UINT64_MAX;
    json_t *j = options_to_json(table, &t);
    cr_assert(eq(ptr, json_object_get(j, "key"), NULL));
    json_object_set_new(j, "rate", json_real(1.0));
    cr_assert(eq(int, options_from_json(table, &u, j, "f", "", &arena, &e), 0), "%s", e.text);
    cr_assert(eq(u64, u.seed, UINT64_MAX));
    cr_assert(eq(i64, u.wait_ns, t.wait_ns));
    json_decref(j);
    arena_release(&arena);
}

Test(core_json, set_path_creates_and_refuses) {
    struct err e = {0};
    json_t *j = json_object();
    cr_assert(eq(int, json_set_path(j, "a.b", "3", &e), 0));
    cr_assert(eq(int, json_set_path(j, "a.c", "text", &e), 0));
    cr_assert(eq(i64, json_integer_value(json_object_get(json_object_get(j, "a"), "b")), 3));
    cr_assert(eq(int, json_set_path(j, "a.b.c", "1", &e), ASSAY_EUSAGE));
    cr_assert(eq(str, e.text, "cannot set 'a.b.c': 'b' is an integer, not an object"));
    cr_assert(eq(int, json_set_path(j, "a..c", "1", &e), ASSAY_EUSAGE));
    json_decref(j);
}

Test(core_json, syntax_errors_have_line_and_column) {
    struct err e = {0};
    json_t *j;
    const char *t = "{\n  \"a\": 1,\n  \"a\": 2}";
    cr_assert(eq(int, json_parse(t, strlen(t), "w.json", &j, &e), ASSAY_EINPUT));
    cr_assert(eq(int, strncmp(e.text, "w.json:3:", 9), 0), "%s", e.text);
}
