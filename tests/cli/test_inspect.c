/* `assay inspect` on all that ships, against figures that others published. */
#include "harness/core/embed.h"
#include "tests/cli/child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(cli_inspect, .fini = child_home_remove);

static json_t *inspect(const char *name) {
    char args[512];
    snprintf(args, sizeof args, "inspect --json %s", name);
    const struct child *c = assay(args);
    cr_assert(eq(int, c->status, 0), "%s: %s", name, c->err);
    return child_object(c);
}

/* Every embedded definition can be inspected, is told by its name, and is in the list. */
Test(cli_inspect, everything_that_ships) {
    static const struct {
        const char *dir, *kind, *shelf;
    } dirs[] = {
        {"workloads/library/", "workload", "workloads"},
        {"workloads/models/", "model", "models"},
        {"backends/tpu_sim/chips/", "chip", "chips"},
        {"schemas/rules/", "rules", "rules"},
    };
    const struct child *c = assay("inspect --list --json");
    cr_assert(eq(int, c->status, 0));
    json_t *list = child_object(c);
    size_t n, seen = 0;
    const struct embedded *all = embedded_all(&n);
    for (size_t i = 0; i < n; i++)
        for (size_t d = 0; d < sizeof dirs / sizeof *dirs; d++) {
            size_t length = strlen(dirs[d].dir), total = strlen(all[i].path);
            if (strncmp(all[i].path, dirs[d].dir, length))
                continue;
            char name[256];
            snprintf(name, sizeof name, "%.*s", (int)(total - length - 5), all[i].path + length);
            json_t *v = inspect(name);
            cr_assert(eq(str, (char *)json_string_value(json_object_get(v, "kind")),
                         (char *)dirs[d].kind));
            json_decref(v);
            bool there = false;
            size_t k;
            json_t *item;
            json_array_foreach(json_object_get(list, dirs[d].shelf), k, item)
                there |= !strcmp(json_string_value(json_object_get(item, "name")), name);
            CHECK(there, "%s is not in the list", name);
            seen++;
        }
    json_decref(list);
    CHECK(seen >= 20, "%zu", seen);
}

/* Parameter counts: Meta's Llama 3.1 safetensors totals on huggingface.co; the KV cache of an 8B model
 * in bf16 is 2*32 layers*8 heads*128*2 bytes = 128 KiB a token. */
Test(cli_inspect, models_have_the_published_size) {
    json_t *v = inspect("llama3.1-8b");
    cr_assert(eq(i64, json_integer_value(json_object_get(v, "parameters")), 8030261248));
    cr_assert(eq(i64, json_integer_value(json_object_get(v, "kv_bytes_per_token_bf16")), 131072));
    json_decref(v);
    v = inspect("llama3.1-70b");
    cr_assert(eq(i64, json_integer_value(json_object_get(v, "parameters")), 70553706496));
    json_decref(v);
}

/* Cloud TPU documentation: v6e has 918 TFLOP/s in bf16 and 1638 GB/s of HBM. */
Test(cli_inspect, chips_have_the_published_peaks) {
    json_t *v = inspect("v6e"), *p = json_object_get(v, "parameters");
    cr_assert(eq(i64, json_integer_value(json_object_get(json_object_get(p, "bf16_tflops"), "value")),
                 918));
    double ridge = json_real_value(json_object_get(v, "ridge_bf16_flops_per_byte"));
    CHECK(ridge > 560.43 && ridge < 560.45, "%g", ridge);
    json_decref(v);
}

Test(cli_inspect, workloads_are_walked) {
    json_t *v = inspect("inferencex-1k1k");
    cr_assert(eq(i64, json_integer_value(json_object_get(v, "requests")), 64 * 10));
    cr_assert(eq(i64, json_integer_value(json_object_get(v, "warmup_requests")), 64 * 2));
    json_t *isl = json_object_get(v, "isl");
    /* uniform in [int(0.8 * 1024), 1024] */
    CHECK(json_integer_value(json_object_get(isl, "min")) >= 819);
    CHECK(json_integer_value(json_object_get(isl, "max")) <= 1024);
    cr_assert(eq(sz, strlen(json_string_value(json_object_get(v, "sha256"))), 64));
    json_decref(v);
}

Test(cli_inspect, what_is_refused) {
    static const struct {
        const char *text, *says;
    } files[] = {
        {"{", ":1:"},
        {"[]", "expected a"},
        {"{\"strange\":1}", "expected a workload, trace, model config, chip, rule pack or tokenizer"},
        {"{\"kind\":\"serving\"}", "name"},
        {"{\"kind\":\"serving\",\"name\":\"x\",\"isl\":1,\"osl\":1,\"pattern\":\"often\",\"requests\":1}",
         "/pattern"},
    };
    char path[300], args[400];
    snprintf(path, sizeof path, "%s/x.json", child_home());
    snprintf(args, sizeof args, "inspect %s", path);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        FILE *f = fopen(path, "w");
        fputs(files[i].text, f);
        fclose(f);
        const struct child *c = assay(args);
        cr_assert(eq(int, c->status, 2), "%s", files[i].text);
        CHECK(strstr(c->err, files[i].says) && strstr(c->err, "x.json"), "%s: %s", files[i].text, c->err);
        cr_assert(eq(str, (char *)c->out, ""));
    }
    cr_assert(eq(int, assay("inspect --kind chip llama3.1-8b")->status, 2));
}

Test(cli_inspect, for_people_it_is_a_page) {
    const struct child *c = assay("inspect llama3.1-8b");
    cr_assert(eq(int, c->status, 0));
    CHECK(!strncmp(c->out, "model llama3.1-8b\n\n", 19), "%.60s", c->out);
    CHECK(strstr(c->out, "\nparameters               8,030,261,248\n"), "%s", c->out);
    CHECK(!strchr(c->out, '\033'), "an escape in a pipe");
    c = assay("inspect chat-serving");
    CHECK(strstr(c->out, "\nisl              mean "), "%s", c->out);
}

/* Ids of the Rust library for the same file (tests/data/tokenizer/golden.json: variant "llama3 split"). */
Test(cli_inspect, a_tokenizer_and_the_ids_of_a_text) {
    json_t *v = inspect("tests/data/tokenizer/bytes.json --text 'Hello, world!'"), *id;
    static const int want[] = {39, 68, 75, 385, 11, 267, 279, 75, 67, 0};
    size_t i;
    cr_assert(eq(str, (char *)json_string_value(json_object_get(v, "kind")), "tokenizer"));
    cr_assert(eq(str, (char *)json_string_value(json_object_get(v, "algorithm")), "byte-level BPE"));
    cr_assert(eq(str, (char *)json_string_value(json_object_get(v, "post_processor")), "TemplateProcessing"));
    cr_assert(eq(str, (char *)json_string_value(json_object_get(v, "chat_template")), "none"));
    cr_assert(eq(i64, json_integer_value(json_object_get(v, "vocabulary")), 522));
    cr_assert(eq(i64, json_integer_value(json_object_get(v, "highest_id")), 530));
    cr_assert(eq(i64, json_integer_value(json_object_get(v, "tokens")), 10));
    cr_assert(eq(i64, json_integer_value(json_object_get(v, "tokens_with_template")), 11));
    cr_assert(eq(sz, json_array_size(json_object_get(v, "ids")), 10));
    json_array_foreach(json_object_get(v, "ids"), i, id)
        cr_assert(eq(i64, json_integer_value(id), want[i]));
    cr_assert(eq(str, (char *)json_string_value(json_array_get(json_object_get(v, "pieces"), 0)), "H"));
    json_decref(v);
    const struct child *c = assay("inspect tests/data/tokenizer/chars.json");
    cr_assert(eq(int, c->status, 0), "%s", c->err);
    cr_assert(ne(ptr, strstr(c->out, "character BPE"), NULL), "%s", c->out);
    c = assay("inspect v6e --text x");
    cr_assert(eq(int, c->status, 2));
    cr_assert(ne(ptr, strstr(c->err, "--text is for a tokenizer, 'v6e' is a chip"), NULL), "%s", c->err);
    c = assay("inspect tests/data/http");
    cr_assert(eq(int, c->status, 2), "%d", c->status);
    cr_assert(ne(ptr, strstr(c->err, "tests/data/http/tokenizer.json"), NULL), "%s", c->err);
}
