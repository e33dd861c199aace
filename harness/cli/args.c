/* argv to options. One loop over the words; everything it knows about an option is in the option's
 * row and in two small tables here: the letters of the common few, and where an override writes. */
#include "harness/cli/args.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    char letter;
} letters[] = {
    {"option", 'o'}, {"out", 'O'}, {"threads", 'j'}, {"quiet", 'q'}, {"help", 'h'},
};

/* Members of the workload schema (schemas/workload.json). */
static const struct {
    const char *name, *path;
} override_paths[] = {
    {"duration", "duration"}, {"isl", "isl"},   {"osl", "osl"},       {"pattern", "pattern"},
    {"requests", "requests"}, {"seed", "seed"}, {"warmup", "warmup"},
};

char args_letter(const char *name) {
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (!strcmp(letters[i].name, name))
            return letters[i].letter;
    return 0;
}

const char *args_override_path(const char *name) {
    for (size_t i = 0; i < sizeof override_paths / sizeof *override_paths; i++)
        if (!strcmp(override_paths[i].name, name))
            return override_paths[i].path;
    return NULL;
}

const struct option *args_row_at(const struct verb *v, size_t i) {
    for (const struct option *const *t = v->options; t && *t; t++)
        for (const struct option *o = *t; o->type != OPT_END; o++)
            if (i-- == 0)
                return o;
    return i == 0 ? common_help : NULL;
}

const struct option *args_row(const struct verb *v, const char *name) {
    const struct option *o;
    for (size_t i = 0; (o = args_row_at(v, i)); i++)
        if (!strcmp(o->name, name))
            return o;
    return NULL;
}

static const struct option *row_of_letter(const struct verb *v, char letter) {
    const struct option *o;
    for (size_t i = 0; (o = args_row_at(v, i)); i++)
        if (args_letter(o->name) == letter)
            return o;
    return NULL;
}

const char *args_value_word(const struct option *row, char *buf, size_t n) {
    switch (row->type) {
    case OPT_BOOL:
        return NULL;
    case OPT_ENUM: {
        size_t used = 0;
        for (int i = 0; row->choices[i] && used < n; i++)
            used += (size_t)snprintf(buf + used, n - used, "%s%s", i ? "|" : "", row->choices[i]);
        return buf;
    }
    case OPT_DURATION:
        return row->unit ? row->unit : "TIME";
    case OPT_BYTES:
        return row->unit ? row->unit : "BYTES";
    case OPT_STR:
    case OPT_JSON:
        return row->unit ? row->unit : "TEXT";
    default:
        return row->unit ? row->unit : "N";
    }
}

bool strings_add(struct strings *l, const char *s, struct arena *a) {
    if (l->n == l->cap) {
        int cap = l->cap ? 2 * l->cap : 8;
        const char **v = arena_alloc(a, (size_t)cap, sizeof *v);
        if (!v)
            return false;
        if (l->n)
            memcpy(v, l->v, (size_t)l->n * sizeof *v);
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = s;
    return true;
}

void args_near(const char *name, const char *const *candidates, size_t n, char *out, size_t out_n) {
    enum { NEAR_MAX = 4 };
    size_t used = 0, length = strlen(name);
    int found = 0;
    out[0] = '\0';
    const char *nearest = nearest_name(name, candidates, n);
    for (size_t i = 0; i < n && found < NEAR_MAX && used < out_n; i++) {
        bool begins = length >= 2 && !strncmp(candidates[i], name, length);
        if (!begins && candidates[i] != nearest)
            continue;
        used += (size_t)snprintf(out + used, out_n - used, "%s'%s'",
                                 found ? " or " : "; did you mean ", candidates[i]);
        found++;
    }
    if (found && used + 2 <= out_n)
        snprintf(out + used, out_n - used, "?");
}

static int unknown_option(const struct verb *v, const char *name, struct err *e) {
    enum { ROWS_MAX = 128 };
    const char *names[ROWS_MAX];
    size_t n = 0;
    const struct option *o;
    for (size_t i = 0; n < ROWS_MAX && (o = args_row_at(v, i)); i++)
        if (!(o->flags & OPTION_HIDDEN))
            names[n++] = o->name;
    char bare[64], near[256], dashed[320];
    snprintf(bare, sizeof bare, "%s", name);
    args_near(bare, names, n, near, sizeof near);
    /* the words as they are to be typed */
    size_t used = 0;
    bool open = true;
    for (const char *c = near; *c && used + 4 < sizeof dashed; c++) {
        dashed[used++] = *c;
        if (*c == '\'') {
            if (open) {
                dashed[used++] = '-';
                dashed[used++] = '-';
            }
            open = !open;
        }
    }
    dashed[used] = '\0';
    return err_set(e, ASSAY_EUSAGE, "%s: unknown option '--%s'%s", v->name, name, dashed);
}

/* Sets the row's field; messages name the option as it is typed: `run --threads: expected …`. */
static int set_value(const struct verb *v, const struct option *row, const char *value,
                     void *object, size_t offset, struct arena *a, struct err *e) {
    char dashed[72];
    snprintf(dashed, sizeof dashed, "--%s", row->name);
    struct option one[2] = {*row, {0}};
    one[0].name = dashed;
    one[0].offset = offset;
    return options_set(one, object, dashed, value, v->name, a, e);
}

/* Checks value by the row's type without storing it: --isl 12x must fail here, as --isl. */
static int check_value(const struct verb *v, const struct option *row, const char *value,
                       struct arena *a, struct err *e) {
    union {
        bool b;
        int i;
        int64_t i64;
        double f;
        const char *s;
    } scratch = {0};
    return set_value(v, row, value, &scratch, 0, a, e);
}

static int store_value(const struct verb *v, const struct option *row, const char *value,
                       struct common *c, struct err *e) {
    void *object = c;
    if (row->flags & CLI_OVERRIDE) {
        int rc = check_value(v, row, value, &c->arena, e);
        if (rc)
            return rc;
        const char *path = args_override_path(row->name);
        size_t n = strlen(path) + strlen(value) + 2;
        char *text = arena_alloc(&c->arena, n, 1);
        if (!text)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        snprintf(text, n, "%s=%s", path, value);
        if (!strings_add(&c->overrides, text, &c->arena))
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        return 0;
    }
    if (row->flags & CLI_LIST) {
        struct strings *l = (struct strings *)(void *)((char *)object + row->offset);
        if (!strings_add(l, value, &c->arena))
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        return 0;
    }
    return set_value(v, row, value, object, row->offset, &c->arena, e);
}

/* One option at argv[*i]: `--name[=value]` or `-x[value]`. Advances *i over a value of its own. */
static int parse_option(const struct verb *v, int argc, const char *const *argv, int *i,
                        struct common *c, struct err *e) {
    const char *word = argv[*i], *value = NULL;
    const struct option *row;
    char name[64];
    if (word[1] == '-') {
        const char *equals = strchr(word, '=');
        size_t n = equals ? (size_t)(equals - word) - 2 : strlen(word) - 2;
        if (n >= sizeof name)
            return err_set(e, ASSAY_EUSAGE, "%s: unknown option '%.60s…'", v->name, word);
        memcpy(name, word + 2, n);
        name[n] = '\0';
        row = args_row(v, name);
        if (!row)
            return unknown_option(v, name, e);
        value = equals ? equals + 1 : NULL;
    } else {
        row = row_of_letter(v, word[1]);
        if (!row) {
            const struct option *is_long = args_row(v, word + 1);
            if (is_long)
                return err_set(e, ASSAY_EUSAGE, "%s: unknown option '%s'; did you mean '-%s'?",
                               v->name, word, word);
            return err_set(e, ASSAY_EUSAGE, "%s: unknown option '%s'", v->name, word);
        }
        if (word[2]) {
            if (row->type == OPT_BOOL)
                return err_set(e, ASSAY_EUSAGE, "%s: unknown option '%s'; '-%c' takes no value",
                               v->name, word, word[1]);
            value = word + 2 + (word[2] == '=');
        }
    }
    if (!value && row->type == OPT_BOOL)
        value = "true";
    if (!value) {
        char words[128];
        if (*i + 1 >= argc)
            return err_set(e, ASSAY_EUSAGE, "%s: option '%s' needs a value: %s", v->name, word,
                           args_value_word(row, words, sizeof words));
        value = argv[++*i];
    }
    return store_value(v, row, value, c, e);
}

static int check_count(const struct verb *v, const struct common *c, struct err *e) {
    if (c->args.n < v->args_min)
        return err_set(e, ASSAY_EUSAGE, "%s: expected %s, found %s%s%s; see 'assay %s --help'",
                       v->name, v->usage, c->args.n ? "'" : "nothing",
                       c->args.n ? c->args.v[c->args.n - 1] : "", c->args.n ? "' only" : "",
                       v->name);
    if (v->args_max >= 0 && c->args.n > v->args_max)
        return err_set(e, ASSAY_EUSAGE,
                       "%s: unexpected argument '%s': it takes %s; see 'assay %s --help'", v->name,
                       c->args.v[v->args_max], *v->usage ? v->usage : "none", v->name);
    return 0;
}

/* Required rows are texts: NULL is "not given". */
static int check_required(const struct verb *v, const void *options, struct err *e) {
    const struct option *o;
    for (size_t i = 0; (o = args_row_at(v, i)); i++) {
        if (!(o->flags & OPTION_REQUIRED))
            continue;
        assert(o->type == OPT_STR && !(o->flags & (CLI_LIST | CLI_OVERRIDE)));
        if (!*(const char *const *)(const void *)((const char *)options + o->offset)) {
            char words[64];
            return err_set(e, ASSAY_EUSAGE,
                           "%s: option '--%s %s' is required; see 'assay %s --help'", v->name,
                           o->name, args_value_word(o, words, sizeof words), v->name);
        }
    }
    return 0;
}

int args_parse(const struct verb *v, int argc, const char *const *argv, void *options,
               struct err *e) {
    struct common *c = options;
    c->verb = v;
    for (const struct option *const *t = v->options; t && *t; t++)
        for (const struct option *o = *t; o->type != OPT_END; o++)
            if (o->def && !(o->flags & (CLI_LIST | CLI_OVERRIDE))) {
                struct option one[2] = {*o, {0}};
                options_defaults(one, options, &c->arena);
            }
    bool ended = false;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (!ended && !strcmp(word, "--")) {
            ended = true;
        } else if (!ended && word[0] == '-' && word[1]) {
            int rc = parse_option(v, argc, argv, &i, c, e);
            if (rc)
                return rc;
            if (c->help)
                return 0;
        } else if (!strings_add(&c->args, word, &c->arena)) {
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        }
    }
    int rc = check_count(v, c, e);
    return rc ? rc : check_required(v, options, e);
}
