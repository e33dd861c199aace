/* Typed field tables: text in, JSON in, JSON out, help. */
#include "harness/core/options.h"

#include "harness/core/buf.h"
#include "harness/core/clock.h"
#include "harness/core/json.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t JSON_INT_MAX = (INT64_C(1) << 53) - 1;

/* ---- text to numbers ---- */

int parse_i64(const char *s, int64_t *v) {
    char *end;
    errno = 0;
    long long x = strtoll(s, &end, 10);
    if (end == s || *end || errno || isspace((unsigned char)*s))
        return ASSAY_EINPUT;
    *v = x;
    return 0;
}

int parse_u64(const char *s, uint64_t *v) {
    char *end;
    errno = 0;
    unsigned long long x = strtoull(s, &end, 10);
    if (end == s || *end || errno || !isdigit((unsigned char)*s))
        return ASSAY_EINPUT;
    *v = x;
    return 0;
}

int parse_f64(const char *s, double *v) {
    char *end;
    errno = 0;
    double x = strtod(s, &end);
    if (end == s || *end || !isfinite(x) || isspace((unsigned char)*s))
        return ASSAY_EINPUT;
    *v = x;
    return 0;
}

struct unit {
    const char *name;
    double factor;
};
static const struct unit duration_units[] = {
    {"ns", 1},    {"us", 1e3},   {"ms", 1e6},     {"s", 1e9},
    {"m", 60e9},  {"min", 60e9}, {"h", 3600e9},   {NULL, 0},
};
static const struct unit byte_units[] = {
    {"", 1},       {"B", 1},
    {"kB", 1e3},   {"KB", 1e3},  {"MB", 1e6},         {"GB", 1e9},          {"TB", 1e12},
    {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824}, {"TiB", 1099511627776}, {NULL, 0},
};

/* A number >= 0 followed by one of the units; exact for integers times integer factors. */
static int parse_scaled(const char *s, const struct unit *units, int64_t *out) {
    char *end;
    if (!isdigit((unsigned char)*s) && *s != '.')
        return ASSAY_EINPUT;
    errno = 0;
    double x = strtod(s, &end);
    if (end == s || !isfinite(x))
        return ASSAY_EINPUT;
    for (const struct unit *u = units; u->name; u++)
        if (strcmp(end, u->name) == 0) {
            double v = x * u->factor;
            if (v >= 9.2e18)
                return ASSAY_EINPUT;
            *out = (int64_t)(v + 0.5);
            return 0;
        }
    return ASSAY_EINPUT;
}

int parse_duration_ns(const char *s, int64_t *ns) {
    return parse_scaled(s, duration_units, ns);
}

int parse_bytes(const char *s, int64_t *bytes) {
    return parse_scaled(s, byte_units, bytes);
}

static int parse_bool(const char *s, bool *v) {
    static const char *const yes[] = {"true", "on", "yes", "1"};
    static const char *const no[] = {"false", "off", "no", "0"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(s, yes[i]) == 0) {
            *v = true;
            return 0;
        }
        if (strcmp(s, no[i]) == 0) {
            *v = false;
            return 0;
        }
    }
    return ASSAY_EINPUT;
}

/* ---- nearest names ---- */

static size_t edit_distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b);
    size_t row[65];
    if (n > 64 || m > 64)
        return 64;
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diag = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t up = row[j];
            size_t best = diag + (a[i - 1] != b[j - 1]);
            if (up + 1 < best)
                best = up + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
            diag = up;
        }
    }
    return row[m];
}

const char *nearest_name(const char *name, const char *const *candidates, size_t n) {
    const char *best = NULL;
    size_t best_d = strlen(name) / 3 + 2;
    for (size_t i = 0; i < n; i++) {
        size_t d = edit_distance(name, candidates[i]);
        if (strncmp(name, candidates[i], strlen(name)) == 0 && strlen(name) >= 2)
            d = 1;
        if (d < best_d) {
            best_d = d;
            best = candidates[i];
        }
    }
    return best;
}

/* ---- rows ---- */

static const struct option *find_row(const struct option *table, const char *name) {
    for (; table->type != OPT_END; table++)
        if (strcmp(table->name, name) == 0)
            return table;
    return NULL;
}

static void *field(const struct option *row, void *object) {
    return (char *)object + row->offset;
}

static const void *const_field(const struct option *row, const void *object) {
    return (const char *)object + row->offset;
}

static const char *near_row(const struct option *table, const char *name) {
    const char *names[256];
    size_t n = 0;
    for (; table->type != OPT_END && n < 256; table++)
        if (!(table->flags & OPTION_HIDDEN))
            names[n++] = table->name;
    return nearest_name(name, names, n);
}

/* What a row wants, for messages: "an integer in 1..64", "one of: a, b". */
static void expectation(const struct option *row, struct buf *b) {
    static const char *const nouns[] = {
        [OPT_BOOL] = "true or false",
        [OPT_I64] = "an integer",
        [OPT_U64] = "an integer >= 0",
        [OPT_F64] = "a number",
        [OPT_STR] = "a string",
        [OPT_DURATION] = "a duration like \"1.5s\", \"20ms\" or \"10min\"",
        [OPT_BYTES] = "a size like \"64KiB\" or \"1.5GB\"",
        [OPT_JSON] = "a JSON value",
    };
    if (row->type == OPT_ENUM) {
        buf_puts(b, "one of: ");
        for (int i = 0; row->choices[i]; i++)
            buf_printf(b, "%s%s", i ? ", " : "", row->choices[i]);
        return;
    }
    buf_puts(b, nouns[row->type]);
    if (row->min == 0 && row->max == 0)
        return;
    if (row->type == OPT_DURATION)
        buf_printf(b, " from %.15gns to %.15gns", row->min, row->max);
    if (row->type != OPT_I64 && row->type != OPT_U64 && row->type != OPT_F64)
        return;
    if (row->max >= 1e300)
        buf_printf(b, " >= %.15g", row->min);
    else
        buf_printf(b, " in %.15g..%.15g", row->min, row->max);
}

static int complain(const struct option *row, int code, const char *where, const char *found,
                    struct err *e) {
    struct buf b;
    buf_init(&b, 4096);
    expectation(row, &b);
    int rc = err_set(e, code, "%s: expected %s, found %s", where, b.p ? b.p : "?", found);
    buf_release(&b);
    return rc;
}

static bool in_range(const struct option *row, double v) {
    if (row->min == 0 && row->max == 0)
        return true;
    return v >= row->min && v <= row->max;
}

/* Sets the field from text; returns false when the text does not fit the row. */
static bool set_text(const struct option *row, void *object, const char *value, struct arena *a) {
    void *p = field(row, object);
    switch (row->type) {
    case OPT_BOOL:
        return parse_bool(value, p) == 0;
    case OPT_I64: {
        int64_t v;
        if (parse_i64(value, &v) || !in_range(row, (double)v))
            return false;
        *(int64_t *)p = v;
        return true;
    }
    case OPT_U64: {
        uint64_t v;
        if (parse_u64(value, &v) || !in_range(row, (double)v))
            return false;
        *(uint64_t *)p = v;
        return true;
    }
    case OPT_F64: {
        double v;
        if (parse_f64(value, &v) || !in_range(row, v))
            return false;
        *(double *)p = v;
        return true;
    }
    case OPT_STR: {
        char *s = arena_strdup(a, value);
        *(const char **)p = s;
        return s != NULL;
    }
    case OPT_ENUM:
        for (int i = 0; row->choices[i]; i++)
            if (strcmp(row->choices[i], value) == 0) {
                *(int *)p = i;
                return true;
            }
        return false;
    case OPT_DURATION:
        return parse_duration_ns(value, p) == 0 && in_range(row, (double)*(const int64_t *)p);
    case OPT_BYTES:
        return parse_bytes(value, p) == 0 && in_range(row, (double)*(const int64_t *)p);
    case OPT_JSON:
    case OPT_END:
        break;
    }
    return false;
}

void options_defaults(const struct option *table, void *object, struct arena *a) {
    for (; table->type != OPT_END; table++)
        if (table->def && !set_text(table, object, table->def, a)) {
            fprintf(stderr, "assay: bug: default '%s' of option '%s' does not fit its row\n",
                    table->def, table->name);
            abort();
        }
}

static int unknown(const struct option *table, int code, const char *where, const char *key,
                   struct err *e) {
    const char *near = near_row(table, key);
    if (near)
        return err_set(e, code, "%s: unknown key '%s'; did you mean '%s'?", where, key, near);
    struct buf b;
    buf_init(&b, 700);
    for (const struct option *r = table; r->type != OPT_END; r++)
        if (!(r->flags & OPTION_HIDDEN))
            buf_printf(&b, "%s%s", b.n ? ", " : "", r->name);
    int rc = err_set(e, code, "%s: unknown key '%s'; known are: %s", where, key,
                     b.p && !b.failed ? b.p : "(see help)");
    buf_release(&b);
    return rc;
}

int options_set(const struct option *table, void *object, const char *key, const char *value,
                const char *where, struct arena *a, struct err *e) {
    const struct option *row = find_row(table, key);
    if (!row || row->type == OPT_JSON)
        return unknown(table, ASSAY_EUSAGE, where, key, e);
    if (set_text(row, object, value, a))
        return 0;
    char place[320], found[128];
    snprintf(place, sizeof place, "%s %s", where, key);
    snprintf(found, sizeof found, "'%.100s'", value);
    return complain(row, ASSAY_EUSAGE, place, found, e);
}

int options_set_pair(const struct option *table, void *object, const char *pair, const char *where,
                     struct arena *a, struct err *e) {
    const char *eq = strchr(pair, '=');
    char key[256];
    size_t n = eq ? (size_t)(eq - pair) : strlen(pair);
    if (n == 0 || n >= sizeof key)
        return err_set(e, ASSAY_EUSAGE, "%s: expected KEY=VALUE, found '%.100s'", where, pair);
    memcpy(key, pair, n);
    key[n] = '\0';
    if (eq)
        return options_set(table, object, key, eq + 1, where, a, e);
    const struct option *row = find_row(table, key);
    if (!row)
        return unknown(table, ASSAY_EUSAGE, where, key, e);
    if (row->type == OPT_BOOL)
        return options_set(table, object, key, "true", where, a, e);
    return err_set(e, ASSAY_EUSAGE, "%s: '%s' needs a value: %s=...", where, key, key);
}

/* ---- JSON ---- */

static bool set_json(const struct option *row, void *object, const json_t *v, struct arena *a) {
    void *p = field(row, object);
    switch (row->type) {
    case OPT_BOOL:
        if (!json_is_boolean(v))
            return false;
        *(bool *)p = json_is_true(v);
        return true;
    case OPT_I64:
        if (!json_is_integer(v) || !in_range(row, (double)json_integer_value(v)))
            return false;
        *(int64_t *)p = json_integer_value(v);
        return true;
    case OPT_U64:
        if (json_is_string(v))
            return set_text(row, object, json_string_value(v), a);
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            !in_range(row, (double)json_integer_value(v)))
            return false;
        *(uint64_t *)p = (uint64_t)json_integer_value(v);
        return true;
    case OPT_F64:
        if (!json_is_number(v) || !in_range(row, json_number_value(v)))
            return false;
        *(double *)p = json_number_value(v);
        return true;
    case OPT_STR:
        return json_is_string(v) && strlen(json_string_value(v)) == json_string_length(v) &&
               set_text(row, object, json_string_value(v), a);
    case OPT_ENUM:
    case OPT_DURATION:
        return json_is_string(v) && set_text(row, object, json_string_value(v), a);
    case OPT_BYTES:
        if (json_is_integer(v) && json_integer_value(v) >= 0) {
            *(int64_t *)p = json_integer_value(v);
            return true;
        }
        return json_is_string(v) && set_text(row, object, json_string_value(v), a);
    case OPT_JSON:
        *(const json_t **)p = v;
        return true;
    case OPT_END:
        break;
    }
    return false;
}

int options_from_json(const struct option *table, void *object, const json_t *json,
                      const char *file, const char *pointer, struct arena *a, struct err *e) {
    char where[512];
    const char *shown = *pointer ? pointer : "/";
    if (!json_is_object(json)) {
        char found[64];
        json_excerpt(json, found, sizeof found);
        return err_set(e, ASSAY_EINPUT, "%s: at %s: expected an object, found %s", file, shown,
                       found);
    }
    const char *key;
    json_t *v;
    /* the macro of jansson takes a non-const object; nothing is changed here */
    void *it = json_object_iter((json_t *)(uintptr_t)json);
    for (; it; it = json_object_iter_next((json_t *)(uintptr_t)json, it)) {
        key = json_object_iter_key(it);
        v = json_object_iter_value(it);
        const struct option *row = find_row(table, key);
        if (!row && (key[0] == '$' || strcmp(key, "comment") == 0 ||
                     strcmp(key, "source_note") == 0))
            continue;
        if (!row) {
            snprintf(where, sizeof where, "%s: at %s", file, shown);
            return unknown(table, ASSAY_EINPUT, where, key, e);
        }
        if (!set_json(row, object, v, a)) {
            char found[64];
            json_excerpt(v, found, sizeof found);
            snprintf(where, sizeof where, "%s: at %s/%s", file, pointer, key);
            return complain(row, ASSAY_EINPUT, where, found, e);
        }
    }
    for (const struct option *row = table; row->type != OPT_END; row++)
        if ((row->flags & OPTION_REQUIRED) && !json_object_get(json, row->name)) {
            snprintf(where, sizeof where, "%s: at %s/%s", file, pointer, row->name);
            return complain(row, ASSAY_EINPUT, where, "nothing (the member is required)", e);
        }
    return 0;
}

static json_t *duration_json(int64_t ns) {
    static const struct unit printed[] = {{"h", 3600e9}, {"min", 60e9}, {"s", 1e9}, {"ms", 1e6},
                                          {"us", 1e3},   {"ns", 1},     {NULL, 0}};
    const struct unit *u = printed;
    while (ns % (int64_t)u->factor)
        u++;
    if (ns == 0)
        u = &printed[2];
    char text[40];
    snprintf(text, sizeof text, "%" PRId64 "%s", ns / (int64_t)u->factor, u->name);
    return json_string(text);
}

static json_t *integer_json(bool negative, uint64_t magnitude) {
    if (magnitude <= (uint64_t)JSON_INT_MAX)
        return json_integer(negative ? -(int64_t)magnitude : (int64_t)magnitude);
    char text[32];
    snprintf(text, sizeof text, "%s%" PRIu64, negative ? "-" : "", magnitude);
    return json_string(text);
}

static json_t *row_json(const struct option *row, const void *object) {
    const void *p = const_field(row, object);
    switch (row->type) {
    case OPT_BOOL:
        return json_boolean(*(const bool *)p);
    case OPT_I64:
    case OPT_BYTES: {
        int64_t v = *(const int64_t *)p;
        return integer_json(v < 0, v < 0 ? (uint64_t)0 - (uint64_t)v : (uint64_t)v);
    }
    case OPT_U64:
        return integer_json(false, *(const uint64_t *)p);
    case OPT_F64:
        return json_real(*(const double *)p);
    case OPT_STR:
        return json_string(*(const char *const *)p);
    case OPT_ENUM:
        return json_string(row->choices[*(const int *)p]);
    case OPT_DURATION:
        return duration_json(*(const int64_t *)p);
    case OPT_JSON:
    case OPT_END:
        break;
    }
    return NULL;
}

json_t *options_to_json(const struct option *table, const void *object) {
    json_t *out = json_object();
    for (; out && table->type != OPT_END; table++) {
        if (table->flags & OPTION_SECRET || table->type == OPT_JSON)
            continue;
        if (table->type == OPT_STR && !*(const char *const *)const_field(table, object))
            continue;
        if (json_object_set_new(out, table->name, row_json(table, object))) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

/* 3600000000000 -> "3600s", in the largest unit that leaves an integer. */
static void put_duration(struct buf *b, double ns) {
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}};
    size_t i = 0;
    while (i < 3 && (ns < units[i].ns || ns != floor(ns / units[i].ns) * units[i].ns))
        i++;
    buf_printf(b, "%.15g%s", ns > 0 ? ns / units[i].ns : 0, ns > 0 ? units[i].unit : "s");
}

void options_remarks(const struct option *row, char *out, size_t bytes) {
    static const char *const nouns[] = {
        [OPT_BOOL] = "on or off", [OPT_I64] = "integer",       [OPT_U64] = "integer",
        [OPT_F64] = "number",     [OPT_DURATION] = "duration", [OPT_BYTES] = "size",
        [OPT_JSON] = "JSON",
    };
    struct buf b;
    buf_init(&b, 4096);
    bool ranged = row->min != 0 || row->max != 0;
    if (row->type == OPT_ENUM)
        for (int i = 0; row->choices[i]; i++)
            buf_printf(&b, "%s%s", i ? ", " : "", row->choices[i]);
    else if (row->type != OPT_STR)
        buf_puts(&b, nouns[row->type]);
    if (ranged && row->type == OPT_DURATION) {
        buf_putc(&b, ' ');
        put_duration(&b, row->min);
        buf_puts(&b, "..");
        put_duration(&b, row->max);
    } else if (ranged && row->max >= 1e300) {
        buf_printf(&b, " >= %.15g", row->min);
    } else if (ranged) {
        buf_printf(&b, " %.15g..%.15g", row->min, row->max);
    }
    if (row->unit && row->type != OPT_DURATION)
        buf_printf(&b, "%s%s", b.n ? ", " : "", row->unit);
    if (row->def && *row->def)
        buf_printf(&b, "%sdefault %s", b.n ? "; " : "", row->def);
    bool any = b.n && !b.failed;
    snprintf(out, bytes, "%s%s%s", any ? " (" : "", any ? b.p : "", any ? ")" : "");
    buf_release(&b);
}
