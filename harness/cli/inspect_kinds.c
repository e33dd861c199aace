/* One row a kind of file: where it ships, how to tell it, what to say of it. */
#include "harness/cli/inspect.h"

#include "harness/cli/out.h"
#include "harness/core/embed.h"
#include "harness/core/json.h"

#include <stdbool.h>
#include <string.h>

struct kind {
    enum inspect_kind kind;
    const char *name, *shelf;
    const char *mark; /* a member that only this kind has */
};

static const struct kind kinds[] = {
    {INSPECT_WORKLOAD, "workload", "workloads/library", "isl"},
    {INSPECT_MODEL, "model", "workloads/models", "hidden_size"},
    {INSPECT_CHIP, "chip", "backends/tpu_sim/chips", "parameters"},
    {INSPECT_RULES, "rules", "schemas/rules", "rules"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const struct kind *kind_row(enum inspect_kind kind) {
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i].kind == kind)
            return &kinds[i];
    return NULL;
}

static bool is_path(const char *name) {
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 5 && !strcmp(name + n - 5, ".json"));
}

/* The shipped definition of that name, of the wanted kind or of any. */
static const struct embedded *shipped(const char *name, enum inspect_kind kind,
                                      const struct kind **row) {
    for (size_t i = 0; i < KINDS; i++) {
        const struct embedded *f;
        if (kind != INSPECT_AUTO && kinds[i].kind != kind)
            continue;
        if ((f = embedded_find_in(kinds[i].shelf, name, ".json"))) {
            *row = &kinds[i];
            return f;
        }
    }
    return NULL;
}

int inspect_describe(const char *name, enum inspect_kind kind, json_t **out, struct err *e) {
    const struct kind *row = kind_row(kind);
    json_t *v = NULL;
    int rc;
    if (is_path(name)) {
        rc = json_parse_file(name, &v, e);
    } else {
        const struct embedded *f = shipped(name, kind, &row);
        if (!f)
            return err_set(e, ASSAY_EINPUT,
                           "nothing that ships is called '%s'; 'assay inspect --list' names all, a "
                           "file's name contains '/' or ends in .json",
                           name);
        rc = json_parse(f->data, f->size, f->path, &v, e);
    }
    if (rc)
        return rc;
    for (size_t i = 0; i < KINDS && !row; i++)
        if (json_object_get(v, kinds[i].mark))
            row = &kinds[i];
    if (!row)
        rc = err_set(e, ASSAY_EINPUT, "%s: cannot tell what this is; see --kind", name);
    else if (!(*out = json_pack("{s:s,s:s,s:O}", "kind", row->name, "name", name, "definition", v)))
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
    json_decref(v);
    return rc;
}

void inspect_print(const json_t *facts, struct arena *a, FILE *out) {
    (void)a;
    out_tree(facts, 0, out);
}
