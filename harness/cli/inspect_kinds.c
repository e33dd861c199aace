/* One row a kind of file: where it ships, how to tell it, what to say of it. */
#include "harness/cli/inspect.h"
#include "harness/cli/inspect_internal.h"

#include "harness/cli/out.h"
#include "harness/cli/term.h"
#include "harness/core/embed.h"
#include "harness/core/json.h"
#include "harness/measure/rules.h"

#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct kind {
    enum inspect_kind kind;
    const char *name, *shelf;
    const char *mark; /* a member that only this kind has */
    int (*describe)(const char *name, json_t *facts, struct err *e);
    /* the same with a text to apply it to; NULL: it takes none */
    int (*describe_text)(const char *name, const char *text, json_t *facts, struct err *e);
};

static int inspect_rules(const char *name, json_t *facts, struct err *e);

static const struct kind kinds[] = {
    {INSPECT_WORKLOAD, "workload", "workloads/library", "kind", inspect_workload},
    {INSPECT_MODEL, "model", "workloads/models", "hidden_size", inspect_model},
    {INSPECT_CHIP, "chip", "backends/tpu_sim/chips", "parameters", inspect_chip},
    {INSPECT_RULES, "rules", "schemas/rules", "rules", inspect_rules},
    {INSPECT_TOKENIZER, "tokenizer", NULL, "added_tokens", inspect_tokenizer,
     inspect_tokenizer_text},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Files that are no JSON object, told by their name or head; none ships. */
static const struct {
    struct kind kind;
    bool (*is)(const char *path);
} text_kinds[] = {
    {{INSPECT_HLO, "hlo", NULL, NULL, inspect_hlo}, inspect_is_hlo},
    {{INSPECT_TRACE, "trace", NULL, NULL, inspect_trace}, inspect_is_trace},
};
enum { TEXT_KINDS = sizeof text_kinds / sizeof *text_kinds };

/* A rule pack is its rules. */
static int inspect_rules(const char *name, json_t *facts, struct err *e) {
    struct rule_pack *pack = NULL;
    int rc = rules_load(name, &pack, e);
    if (rc)
        return rc;
    const char *member;
    json_t *value, *json = json_copy((json_t *)(uintptr_t)rules_json(pack));
    int bad = !json;
    json_object_del(json, "$schema");
    json_object_foreach(json, member, value) {
        bad |= json_object_set(facts, member, value);
    }
    json_decref(json);
    rules_free(pack);
    return bad ? err_set(e, ASSAY_ENOMEM, "out of memory") : 0;
}

static const struct kind *kind_row(enum inspect_kind kind) {
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i].kind == kind)
            return &kinds[i];
    /* a trace's format is taken from its content in any case */
    return kind == INSPECT_HLO ? &text_kinds[0].kind : NULL;
}

static bool is_folder(const char *name) {
    struct stat st;
    return !stat(name, &st) && S_ISDIR(st.st_mode);
}

static bool is_path(const char *name) {
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 5 && !strcmp(name + n - 5, ".json"));
}

/* Which kind ships under that name; NULL when none does. */
static const struct kind *shipped_kind(const char *name) {
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i].shelf && embedded_find_in(kinds[i].shelf, name, ".json"))
            return &kinds[i];
    return NULL;
}

/* Which kind a JSON file is; NULL: none of them. */
static int file_kind(const char *path, const struct kind **row, struct err *e) {
    json_t *v = NULL;
    int rc = json_parse_file(path, &v, e);
    for (size_t i = 0; i < KINDS && !rc && !*row; i++)
        if (json_object_get(v, kinds[i].mark))
            *row = &kinds[i];
    json_decref(v);
    return rc;
}

static int find_kind(const char *name, const struct kind **row, struct err *e) {
    *row = NULL;
    if (!is_path(name) && access(name, F_OK)) {
        *row = shipped_kind(name);
        return *row
                   ? 0
                   : err_set(e, ASSAY_EINPUT,
                             "'%s' is no file, and nothing that ships is called so; 'assay inspect "
                             "--list' names all",
                             name);
    }
    if (is_folder(name)) { /* a model's, as it is downloaded */
        *row = kind_row(INSPECT_TOKENIZER);
        return 0;
    }
    for (size_t i = 0; i < TEXT_KINDS; i++)
        if (text_kinds[i].is(name)) {
            *row = &text_kinds[i].kind;
            return 0;
        }
    int rc = file_kind(name, row, e);
    if (!rc && !*row)
        rc = err_set(
            e, ASSAY_EINPUT,
            "%s: expected a workload, trace, model config, chip, rule pack or tokenizer, found no member "
            "that tells one",
            name);
    return rc;
}

int inspect_describe(const char *name, enum inspect_kind kind, const char *text, json_t **out,
                     struct err *e) {
    const struct kind *row = kind_row(kind);
    int rc = row ? 0 : find_kind(name, &row, e);
    if (rc)
        return rc;
    if (text && !row->describe_text)
        return err_set(e, ASSAY_EUSAGE, "inspect: --text is for a tokenizer, '%s' is a %s", name,
                       row->name);
    *out = json_pack("{s:s,s:s}", "kind", row->name, "name", name);
    if (!*out)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    rc = text ? row->describe_text(name, text, *out, e) : row->describe(name, *out, e);
    if (rc)
        json_decref(*out);
    return rc;
}

/* Figures with their sources. */
static void print_parameters(const json_t *parameters, struct arena *a, FILE *out) {
    static const char *const headings[] = {"parameter", "value",       "unit",
                                           "what",      "uncertainty", "source"};
    static const char *const texts[] = {"unit", "what", "uncertainty", "source"};
    json_t *mutable = (json_t *)(uintptr_t)parameters, *row;
    const char *name;
    struct table t;
    char text[FMT_BYTES];
    table_init(&t, a, "lrllll", headings);
    json_object_foreach(mutable, name, row) {
        table_cell(&t, name);
        const json_t *value = json_object_get(row, "value");
        table_cell(&t, json_is_integer(value) ? fmt_count(text, json_integer_value(value))
                                              : fmt_number(text, json_number_value(value)));
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
            table_cell(&t, json_string_value(json_object_get(row, texts[i])));
    }
    putc('\n', out);
    table_print(&t, out, 0);
}

void inspect_print(const json_t *facts, struct arena *a, FILE *out) {
    const json_t *parameters = json_object_get(facts, "parameters");
    json_t *rest = json_copy((json_t *)(uintptr_t)facts);
    const char *description = json_string_value(json_object_get(facts, "description"));
    fprintf(out, "%s%s ", term_bold(out), json_string_value(json_object_get(facts, "kind")));
    term_text(out, json_string_value(json_object_get(facts, "name")));
    fprintf(out, "%s\n", term_plain(out));
    if (description)
        term_wrap(out, description, 0, 0, term_width(out));
    putc('\n', out);
    json_object_del(rest, "kind");
    json_object_del(rest, "name");
    json_object_del(rest, "description");
    json_object_del(rest, "effective"); /* for programs: people have the file */
    if (json_is_object(parameters))
        json_object_del(rest, "parameters");
    out_tree(rest, 0, out);
    json_decref(rest);
    if (json_is_object(parameters))
        print_parameters(parameters, a, out);
}
