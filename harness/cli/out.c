/* JSON on the way to a reader. Knows nothing of what the members mean, except that a name that ends
 * in _ns is a time and is shown with its unit. */
#include "harness/cli/out.h"

#include "harness/cli/term.h"

#include <string.h>

void out_json(const json_t *v, FILE *out) {
    json_dumpf(v, out, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    putc('\n', out);
}

static bool is_scalar(const json_t *v) {
    return !json_is_object(v) && !json_is_array(v);
}

/* How a number is shown follows from its name: units sit there. */
static const struct {
    const char *part;
    const char *(*format)(char *out, double v);
} units[] = {
    {"_bytes", fmt_bytes},
    {"_share", fmt_percent},
    {"_ns", fmt_ns},
};

static const char *number(char *text, const char *name, const json_t *v) {
    for (size_t i = 0; name && i < sizeof units / sizeof *units; i++) {
        const char *at = strstr(name, units[i].part);
        size_t n = strlen(units[i].part);
        /* "memory_bytes", "weight_bytes_bf16"; not "bytes_per_token" */
        if (at && (!at[n] || (at[n] == '_' && strncmp(at + n, "_per_", 5) != 0)))
            return units[i].format(text, json_number_value(v));
    }
    return json_is_integer(v) ? fmt_count(text, json_integer_value(v))
                              : fmt_number(text, json_real_value(v));
}

static void scalar(const char *name, const json_t *v, FILE *out) {
    char text[FMT_BYTES];
    if (json_is_string(v))
        term_text(out, json_string_value(v));
    else if (json_is_number(v))
        fputs(number(text, name, v), out);
    else
        fputs(json_is_true(v) ? "yes" : json_is_false(v) ? "no" : "-", out);
}

static void array(const char *name, const json_t *v, int indent, FILE *out);

/* How wide a scalar is, near enough. */
static size_t width_of(const char *name, const json_t *v) {
    char text[FMT_BYTES];
    if (json_is_string(v))
        return term_columns(json_string_value(v));
    return json_is_number(v) ? term_columns(number(text, name, v)) : 3;
}

/* A few short members (a spread, a digest, a figure with its source) fit on one line. */
static bool is_line(const json_t *v) {
    enum { LINE_COLUMNS = 140 };
    const char *name;
    json_t *member;
    json_t *mutable = (json_t *)(uintptr_t)v;
    size_t width = 0;
    if (!json_is_object(v) || !json_object_size(v))
        return false;
    json_object_foreach(mutable, name, member) {
        if (!is_scalar(member))
            return false;
        width += term_columns(name) + width_of(name, member) + 3;
    }
    return width <= LINE_COLUMNS;
}

/* unit_name: of the object, for members like "p50" whose unit is in it. */
static void line(const char *unit_name, const json_t *v, FILE *out) {
    const char *name;
    json_t *member;
    json_t *mutable = (json_t *)(uintptr_t)v;
    const char *sep = "";
    json_object_foreach(mutable, name, member) {
        fputs(sep, out);
        term_text(out, name);
        putc(' ', out);
        scalar(strchr(name, '_') ? name : unit_name, member, out);
        sep = "  ";
    }
    putc('\n', out);
}

static bool is_flat(const json_t *v) {
    size_t i;
    json_t *item;
    json_array_foreach(v, i, item) {
        if (!is_scalar(item))
            return false;
    }
    return json_is_array(v);
}

static void object(const json_t *v, int indent, FILE *out) {
    size_t width = 0;
    const char *name;
    json_t *member;
    json_t *mutable =
        (json_t *)(uintptr_t)v; /* the iteration macros want it so; nothing is changed */
    json_object_foreach(mutable, name, member) {
        if ((is_scalar(member) || is_line(member) || is_flat(member)) && term_columns(name) > width)
            width = term_columns(name);
    }
    json_object_foreach(mutable, name, member) {
        fprintf(out, "%*s", indent, "");
        term_text(out, name);
        if (is_scalar(member)) {
            fprintf(out, "%*s  ", (int)(width - term_columns(name)), "");
            scalar(name, member, out);
            putc('\n', out);
        } else if (is_line(member)) {
            fprintf(out, "%*s  ", (int)(width - term_columns(name)), "");
            line(name, member, out);
        } else if (json_is_object(member)) {
            putc('\n', out);
            object(member, indent + 2, out);
        } else {
            if (is_flat(member))
                fprintf(out, "%*s  ", (int)(width - term_columns(name)), "");
            array(name, member, indent, out);
        }
    }
}

static void array(const char *name, const json_t *v, int indent, FILE *out) {
    size_t i;
    json_t *item;
    if (is_flat(v)) {
        json_array_foreach(v, i, item) {
            if (i)
                fputs(", ", out);
            scalar(name, item, out);
        }
        if (!json_array_size(v))
            fputs("(none)", out);
        putc('\n', out);
        return;
    }
    putc('\n', out);
    json_array_foreach(v, i, item) {
        fprintf(out, "%*s%zu", indent + 2, "", i + 1);
        if (is_line(item)) {
            fputs("  ", out);
            line(NULL, item, out);
            continue;
        }
        putc('\n', out);
        out_tree(item, indent + 4, out);
    }
}

void out_tree(const json_t *v, int indent, FILE *out) {
    if (json_is_object(v)) {
        object(v, indent, out);
    } else if (json_is_array(v)) {
        array(NULL, v, indent, out);
    } else {
        fprintf(out, "%*s", indent, "");
        scalar(NULL, v, out);
        putc('\n', out);
    }
}
