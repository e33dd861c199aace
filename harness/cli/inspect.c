/* `assay inspect`: what is in a file, or in a definition that ships; --list names all that ships.
 */
#include "harness/cli/inspect.h"
#include "harness/cli/args.h"
#include "harness/cli/out.h"
#include "harness/cli/term.h"
#include "harness/cli/verbs.h"

#include "backends/backend.h"
#include "harness/core/embed.h"
#include "harness/core/json.h"

#include <string.h>

struct inspect_args {
    struct common c;
    bool list;
    int kind;
    const char *text;
};

/* What ships: a directory of the source tree each, embedded in the binary. */
static const struct {
    const char *title, *dir;
} shelves[] = {
    {"workloads", "workloads/library"},
    {"models", "workloads/models"},
    {"chips", "backends/tpu_sim/chips"},
    {"rules", "schemas/rules"},
};

/* The first of these members that is a text says what a definition is. */
static const char *description_of(const json_t *v) {
    static const char *const members[] = {"description", "title", "summary", "$source", "source"};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const char *s = json_string_value(json_object_get(v, members[i]));
        if (s)
            return s;
    }
    return "";
}

static int list_shelf(const char *dir, json_t *items, struct err *e) {
    size_t n, length = strlen(dir);
    const struct embedded *all = embedded_all(&n);
    for (size_t i = 0; i < n; i++) {
        const char *name = all[i].path;
        size_t total = strlen(name);
        if (strncmp(name, dir, length) || name[length] != '/' || total < 6 ||
            strcmp(name + total - 5, ".json"))
            continue;
        json_t *v = NULL;
        int rc = json_parse(all[i].data, all[i].size, name, &v, e);
        if (rc)
            return rc;
        json_t *item = json_object();
        int bad =
            json_object_set_new(item, "name", json_stringn(name + length + 1, total - length - 6));
        if (*description_of(v))
            bad |= json_object_set_new(item, "description", json_string(description_of(v)));
        bad |= json_array_append_new(items, item);
        json_decref(v);
        if (bad)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
    }
    return 0;
}

static int list_all(json_t *root, struct err *e) {
    for (size_t i = 0; i < sizeof shelves / sizeof *shelves; i++) {
        json_t *items = json_array();
        if (json_object_set_new(root, shelves[i].title, items))
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        int rc = list_shelf(shelves[i].dir, items, e);
        if (rc)
            return rc;
    }
    json_t *items = json_array();
    int bad = json_object_set_new(root, "backends", items);
    for (const struct backend_ops *const *b = backend_all; *b && !bad; b++)
        bad = json_array_append_new(
            items, json_pack("{s:s,s:s}", "name", (*b)->name, "description", (*b)->summary));
    return bad ? err_set(e, ASSAY_ENOMEM, "out of memory") : 0;
}

/* How much of a description fits a list: its first sentence, of a long one the part before a colon,
 * bracket or comma. */
static int first_sentence(const char *s) {
    enum { LONG = 90 };
    int n = 0, end = 0, depth = 0;
    for (; s[n] && n < LONG; n++) {
        bool stop = s[n] == ';' || (s[n] == '.' && (!s[n + 1] || s[n + 1] == ' '));
        if (stop)
            return n;
        if (n && !depth && strchr(":,(", s[n]) && s[s[n] == '(' ? n - 1 : n + 1] == ' ')
            end = s[n] == '(' ? n - 1 : n;
        depth += (s[n] == '(') - (s[n] == ')');
    }
    return s[n] && end ? end : n;
}

static void print_list(const json_t *root, struct arena *a, FILE *out) {
    const char *title;
    json_t *items, *item, *mutable = json_incref((json_t *)(uintptr_t)root);
    size_t i;
    bool first = true;
    json_object_foreach(mutable, title, items) {
        struct table t;
        if (!json_array_size(items))
            continue;
        fprintf(out, "%s%s%s%s\n", first ? "" : "\n", term_bold(out), title, term_plain(out));
        first = false;
        table_init(&t, a, "ll", NULL);
        json_array_foreach(items, i, item) {
            const char *s = json_string_value(json_object_get(item, "description"));
            table_cell(&t, json_string_value(json_object_get(item, "name")));
            table_cellf(&t, "%.*s", first_sentence(s ? s : ""), s ? s : "");
        }
        table_print(&t, out, 2);
    }
    json_decref(mutable);
}

static int run_list(const struct inspect_args *a, struct arena *arena, struct err *e) {
    json_t *root = json_object();
    int rc = list_all(root, e);
    if (!rc && a->c.json)
        out_json(root, stdout);
    else if (!rc)
        print_list(root, arena, stdout);
    json_decref(root);
    return rc;
}

static const char *const kind_names[] = {"auto",  "workload",  "trace", "chip", "model",
                                         "rules", "tokenizer", "hlo",   NULL};

// clang-format off
static const struct option inspect_options[] = {
    {.name = "kind", .type = OPT_ENUM, .offset = offsetof(struct inspect_args, kind),
     .choices = kind_names, .def = "auto", .help = "what FILE is, where its content leaves a doubt"},
    {.name = "list", .type = OPT_BOOL, .offset = offsetof(struct inspect_args, list),
     .help = "name the workloads, models, chips, rule packs and backends that ship"},
    {.name = "text", .type = OPT_STR, .offset = offsetof(struct inspect_args, text),
     .help = "a tokenizer: the ids of this text, and how many"},
    {0},
};
// clang-format on

static int run_inspect(void *options, struct err *e) {
    struct inspect_args *a = options;
    if (a->list)
        return a->c.args.n ? err_set(e, ASSAY_EUSAGE, "inspect: --list takes no FILE")
                           : run_list(a, &a->c.arena, e);
    if (!a->c.args.n)
        return err_set(e, ASSAY_EUSAGE,
                       "inspect: expected FILE or --list; see 'assay inspect --help'");
    json_t *facts = NULL;
    int rc = inspect_describe(a->c.args.v[0], (enum inspect_kind)a->kind, a->text, &facts, e);
    if (rc)
        return rc;
    if (a->c.json)
        out_json(facts, stdout);
    else
        inspect_print(facts, &a->c.arena, stdout);
    json_decref(facts);
    return 0;
}

// clang-format off
const struct verb verb_inspect = {
    .name = "inspect",
    .usage = "[FILE|NAME]",
    .summary = "what is in a workload, trace, model config, chip, rule pack, tokenizer or HLO dump",
    .about = "Reads FILE, or the shipped definition of that NAME, as the harness would, and says what it "
             "found: a file that is accepted here is accepted by 'run'. The kind of a file is taken from "
             "its content.",
    .examples = "assay inspect --list\n"
                "assay inspect llama3.1-70b\n"
                "assay inspect v6e --json\n",
    .args_min = 0,
    .args_max = 1,
    .options_size = sizeof(struct inspect_args),
    .options = (const struct option *const[]){inspect_options, common_output, NULL},
    .run = run_inspect,
};
// clang-format on
