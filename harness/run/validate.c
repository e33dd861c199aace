/* Reading the tables, sorting rows to their models, statistics of the errors. What a row's model is
 * stands in validate_kernels.c, validate_serve.c and validate_train.c. */
#include "harness/run/validate_internal.h"

#include "harness/core/options.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- small helpers ---- */

bool validate_has(const char *text, const char *word) {
    return strstr(text, word) != NULL;
}

double validate_find_number(const char *text, const char *key) {
    const char *p = strstr(text, key);
    if (!p)
        return -1;
    p += strlen(key);
    while (*p == ' ' || *p == '=' || *p == ':')
        p++;
    char *end;
    double x = strtod(p, &end);
    return end == p ? -1 : x;
}

const char *validate_class(struct validator *v, double x, const double *limits) {
    char text[32];
    const double *l = limits;
    while (*l > 0 && x > *l)
        l++;
    if (*l > 0)
        snprintf(text, sizeof text, "<=%.0f", *l);
    else
        snprintf(text, sizeof text, ">%.0f", l[-1]);
    return arena_strdup(&v->arena, text);
}

const char *validate_chip_name(const char *name) {
    static const char *const alias[][2] = {{"TPU7x", "7x"}, {"v3", "v3"},   {"v4", "v4"},
                                           {"v5e", "v5e"},  {"v5p", "v5p"}, {"v6e", "v6e"}};
    for (size_t i = 0; i < sizeof alias / sizeof alias[0]; i++)
        if (strcmp(name, alias[i][0]) == 0)
            return alias[i][1];
    return NULL;
}

int validate_chip_overrides(const struct validator *v, const char *ours, struct chip_override *out,
                            int max) {
    int n = 0;
    size_t len = strlen(ours);
    for (int i = 0; i < v->o->noverrides && n < max; i++) {
        const char *s = v->o->overrides[i], *value = strchr(s, '=');
        if (strncmp(s, ours, len) != 0 || s[len] != '.' || !value)
            continue;
        char *key = arena_strndup((struct arena *)(uintptr_t)&v->arena, s + len + 1,
                                  (size_t)(value - s) - len - 1);
        out[n++] = (struct chip_override){key, value + 1};
    }
    return n;
}

int validate_chip(struct validator *v, const char *name, const struct chip **chip, struct err *e) {
    *chip = NULL;
    const char *ours = validate_chip_name(name);
    if (!ours)
        return 0;
    for (int i = 0; i < v->chips; i++)
        if (strcmp(v->chip[i].name, ours) == 0) {
            *chip = &v->chip[i];
            return 0;
        }
    struct chip_override ov[VALIDATE_OVERRIDES_MAX];
    int n = validate_chip_overrides(v, ours, ov, VALIDATE_OVERRIDES_MAX);
    int rc = chip_load(ours, ov, (size_t)n, &v->chip[v->chips], NULL, e);
    if (rc)
        return rc;
    *chip = &v->chip[v->chips++];
    return 0;
}

int validate_add_point(struct validator *v, const char *id, const char *kind,
                       const char *generation, const char *size_class, double want, double got,
                       struct err *e) {
    if (v->points == v->points_cap) {
        size_t n = v->points_cap ? v->points_cap * 2 : 1024;
        struct validate_point *p = realloc(v->point, n * sizeof *p);
        if (!p)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        v->point = p;
        v->points_cap = n;
    }
    v->point[v->points++] = (struct validate_point){
        .id = arena_strdup(&v->arena, id),
        .kind = arena_strdup(&v->arena, kind),
        .generation = arena_strdup(&v->arena, generation),
        .size_class = size_class,
        .want = want,
        .got = got,
    };
    return 0;
}

int validate_add_why(struct validator *v, const char *id, const char *why, struct err *e) {
    json_t *u = json_pack("{s:s,s:s}", "id", id, "why", why);
    if (!u || json_array_append_new(v->unmodelled, u))
        return err_set(e, ASSAY_EINPUT, "row '%.40s': its id is not valid UTF-8", id);
    return 0;
}

int validate_number(const struct csv_table *c, size_t row, int column, const char *file, double *x,
                    struct err *e) {
    const char *s = csv_table_get(c, row, column);
    *x = -1;
    if (*s && parse_f64(s, x))
        return err_set(e, ASSAY_EINPUT, "%s:%zu: column '%s': expected a number, found \"%.40s\"",
                       file, c->line[row], c->name[column], s);
    return 0;
}

/* ---- the general table ---- */

#define TEXT(f) offsetof(struct validate_row, f)
static const struct {
    const char *name;
    size_t offset;
    bool number;
} columns[] = {
    {"id", TEXT(id), false},
    {"group", TEXT(group), false},
    {"evidence", TEXT(evidence), false},
    {"chip", TEXT(chip), false},
    {"generation", TEXT(generation), false},
    {"chips", TEXT(chips), true},
    {"topology", TEXT(topology), false},
    {"slices", TEXT(slices), false},
    {"model", TEXT(model), false},
    {"workload", TEXT(workload), false},
    {"phase", TEXT(phase), false},
    {"global_batch", TEXT(global_batch), true},
    {"per_chip_batch", TEXT(per_chip_batch), true},
    {"seq_len", TEXT(seq_len), true},
    {"isl", TEXT(isl), true},
    {"osl", TEXT(osl), true},
    {"concurrency", TEXT(concurrency), true},
    {"m", TEXT(m), true},
    {"n", TEXT(n), true},
    {"k", TEXT(k), true},
    {"bytes", TEXT(bytes), true},
    {"dtype", TEXT(dtype), false},
    {"quant", TEXT(quant), false},
    {"sharding", TEXT(sharding), false},
    {"metric", TEXT(metric), false},
    {"value", TEXT(value), true},
    {"unit", TEXT(unit), false},
    {"notes", TEXT(notes), false},
};

typedef int row_model(struct validator *, const struct validate_row *, struct validate_answer *,
                      struct err *);
static const struct {
    const char *workload;
    row_model *model;
} models[] = {
    {"matmul", validate_kernel_row},     {"hbm", validate_kernel_row},
    {"collective", validate_kernel_row}, {"kernel", validate_kernel_row},
    {"serve", validate_serve_row},       {"train", validate_train_row},
};

static int general_row(struct validator *v, const struct validate_row *r, struct err *e) {
    struct validate_answer a = {.size_class = "all"};
    const char *ours = validate_chip_name(r->chip);
    row_model *model = NULL;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (strcmp(models[i].workload, r->workload) == 0)
            model = models[i].model;
    if (!ours)
        a.why = "no chip file for this chip";
    else if (!model)
        a.why = "unknown workload";
    else if (r->value <= 0)
        a.why = "the measurement is not a positive number";
    else {
        int rc = model(v, r, &a, e);
        if (rc)
            return err_wrap(e, "%s:%zu: row '%s'", r->file, r->line, r->id);
    }
    if (a.why)
        return validate_add_why(v, r->id, a.why, e);
    char kind[48];
    bool inferred = validate_has(r->notes, "inferred") || validate_has(r->notes, "assumed");
    snprintf(kind, sizeof kind, "%s%s", a.kind, inferred ? "_inferred" : "");
    return validate_add_point(v, r->id, kind, ours, a.size_class, r->value, a.got, e);
}

static int general_table(struct validator *v, const struct csv_table *c, const char *file,
                         struct err *e) {
    int at[sizeof columns / sizeof columns[0]];
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        if ((at[i] = csv_table_column(c, columns[i].name)) < 0)
            return err_set(e, ASSAY_EINPUT, "%s:1: no column '%s'", file, columns[i].name);
    for (size_t row = 0; row < c->rows; row++) {
        struct validate_row r = {.file = file, .line = c->line[row]};
        for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
            void *field = (char *)&r + columns[i].offset;
            if (columns[i].number) {
                int rc = validate_number(c, row, at[i], file, field, e);
                if (rc)
                    return rc;
            } else {
                *(const char **)field = csv_table_get(c, row, at[i]);
            }
        }
        if (!*r.id)
            return err_set(e, ASSAY_EINPUT, "%s:%zu: the row has no id", file, r.line);
        int rc = general_row(v, &r, e);
        if (rc)
            return rc;
    }
    return 0;
}

static int one_file(struct validator *v, const char *path, struct err *e) {
    struct csv_table c;
    int rc = csv_table_open(&c, path, e);
    if (rc)
        return rc;
    v->rows += c.rows;
    if (csv_table_column(&c, "avg_us") >= 0)
        rc = validate_v4_table(v, &c, path, e);
    else if (csv_table_column(&c, "p50_us") >= 0)
        rc = validate_v6e_table(v, &c, path, e);
    else if (csv_table_column(&c, "metric") >= 0)
        rc = general_table(v, &c, path, e);
    else
        rc = err_set(e, ASSAY_EINPUT,
                     "%s:1: no column 'metric', 'avg_us' or 'p50_us': not a table of measurements",
                     path);
    csv_table_release(&c);
    return rc;
}

/* ---- statistics ---- */

static int by_magnitude(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int by_group(const void *a, const void *b) {
    const struct validate_point *x = a, *y = b;
    int c = strcmp(x->kind, y->kind);
    if (!c)
        c = strcmp(x->generation, y->generation);
    if (!c)
        c = (int)strlen(x->size_class) - (int)strlen(y->size_class); /* "<=64" before "<=512" */
    if (!c)
        c = strcmp(x->size_class, y->size_class);
    return c ? c : strcmp(x->id, y->id);
}

static int put_group(json_t *by, const struct validate_point *p, size_t n, const char *size_class,
                     double *scratch, struct err *e) {
    double sum = 0, bias = 0;
    for (size_t i = 0; i < n; i++) {
        double x = p[i].got / p[i].want - 1;
        bias += x;
        scratch[i] = x < 0 ? -x : x;
        sum += scratch[i];
    }
    qsort(scratch, n, sizeof *scratch, by_magnitude);
    size_t p95 = (n * 95 + 99) / 100; /* nearest rank */
    double median = n % 2 ? scratch[n / 2] : (scratch[n / 2 - 1] + scratch[n / 2]) / 2;
    json_t *g =
        json_pack("{s:s,s:s,s:s,s:I,s:f,s:f,s:f,s:f}", "kind", p->kind, "generation", p->generation,
                  "size_class", size_class, "n", (json_int_t)n, "mean", sum / (double)n, "median",
                  median, "p95", scratch[p95 - 1], "bias", bias / (double)n);
    if (!g || json_array_append_new(by, g))
        return err_set(e, ASSAY_EINPUT,
                       "kind '%s' of generation '%s' has an error that is not a number", p->kind,
                       p->generation);
    return 0;
}

static size_t run_length(const struct validate_point *p, size_t n, bool whole_kind) {
    size_t i = 1;
    while (i < n && strcmp(p[i].kind, p->kind) == 0 &&
           strcmp(p[i].generation, p->generation) == 0 &&
           (whole_kind || strcmp(p[i].size_class, p->size_class) == 0))
        i++;
    return i;
}

static int statistics(struct validator *v, json_t *by, struct err *e) {
    double *scratch = calloc(v->points + 1, sizeof *scratch);
    if (!scratch)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    if (v->points)
        qsort(v->point, v->points, sizeof *v->point, by_group);
    int rc = 0;
    for (size_t i = 0; i < v->points && !rc;) {
        const struct validate_point *p = &v->point[i];
        size_t n = run_length(p, v->points - i, true);
        rc = put_group(by, p, n, "all", scratch, e);
        for (size_t j = 0; j < n && !rc;) {
            size_t k = run_length(p + j, n - j, false);
            if (strcmp(p[j].size_class, "all") != 0)
                rc = put_group(by, p + j, k, p[j].size_class, scratch, e);
            j += k;
        }
        i += n;
    }
    free(scratch);
    return rc;
}

static json_t *list_points(const struct validator *v) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < v->points; i++) {
        const struct validate_point *p = &v->point[i];
        json_t *x = json_pack("{s:s,s:s,s:s,s:s,s:f,s:f,s:f}", "id", p->id, "kind", p->kind,
                              "generation", p->generation, "size_class", p->size_class, "measured",
                              p->want, "predicted", p->got, "error", p->got / p->want - 1);
        if (!x || json_array_append_new(list, x))
            break;
    }
    return list;
}

static int check_overrides(const struct validate_options *o, struct err *e) {
    static const char *const chips[] = {"v3", "v4", "v5e", "v5p", "v6e", "7x"};
    for (int i = 0; i < o->noverrides; i++) {
        const char *s = o->overrides[i];
        size_t n = strcspn(s, "."), j = 0;
        while (j < 6 && (strlen(chips[j]) != n || strncmp(chips[j], s, n) != 0))
            j++;
        if (j == 6 || !strchr(s, '='))
            return err_set(e, ASSAY_EUSAGE,
                           "override '%.60s': expected CHIP.KEY=VALUE, as v6e.hbm_eff=0.9", s);
    }
    return 0;
}

int validate_files(const char *const *paths, int npaths, const struct validate_options *o,
                   json_t **out, struct err *e) {
    static const struct validate_options none = {0};
    struct validator v = {.o = o ? o : &none, .unmodelled = json_array()};
    json_t *by = json_array();
    *out = NULL;
    int rc = check_overrides(v.o, e);
    for (int i = 0; i < npaths && !rc; i++)
        rc = one_file(&v, paths[i], e);
    if (!rc)
        rc = statistics(&v, by, e);
    if (!rc) {
        *out = json_pack("{s:I,s:I,s:O,s:O}", "rows", (json_int_t)v.rows, "modelled",
                         (json_int_t)v.points, "unmodelled", v.unmodelled, "by", by);
        if (!*out || (v.o->points && json_object_set_new(*out, "points", list_points(&v))))
            rc = err_set(e, ASSAY_ENOMEM, "out of memory");
    }
    json_decref(by);
    json_decref(v.unmodelled);
    validate_serve_release(&v);
    free(v.point);
    arena_release(&v.arena);
    return rc;
}
