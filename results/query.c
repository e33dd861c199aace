/* Runs the named questions and read-only SQL, and prints rows as an aligned table, CSV (RFC 4180)
 * or JSON. The SQL of others is refused unless it is one reading statement, and stopped at its time
 * limit. */
#include "results/query.h"

#include "harness/core/clock.h"
#include "harness/core/options.h"
#include "results/hash.h"
#include "results/jcs.h"
#include "results/store_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    TABLE_MAX_BYTES = 256 * 1024 * 1024,
    VALUE_MAX_BYTES = 64 * 1024 * 1024, /* one text or blob that SQL of others may make */
    PROGRESS_OPS = 1000,
};
static const int64_t default_limit_ns = 30 * NS_PER_S;

/* ---- cells ---- */

static bool is_safe_integer(int64_t v) {
    return v >= -(INT64_C(1) << 53) + 1 && v <= (INT64_C(1) << 53) - 1;
}

/* A number as machines read it back: the shortest text of the double. */
static void put_real(struct buf *b, double v) {
    char text[32];
    if (jcs_number(v, text, NULL))
        snprintf(text, sizeof text, "%s", v > 0 ? "Infinity" : "-Infinity");
    buf_puts(b, text);
}

/* For people: six digits, trailing zeros gone, thousands plain. */
static void put_real_short(struct buf *b, double v) {
    double a = v < 0 ? -v : v;
    buf_printf(b, a >= 1e6 && a < 1e15 ? "%.0f" : "%.6g", v);
}

static void put_hex(struct buf *b, const void *p, size_t n) {
    char two[3];
    for (size_t i = 0; i < n; i++) {
        hex_encode((const unsigned char *)p + i, 1, two);
        buf_puts(b, two);
    }
}

static void put_text_cell(struct buf *b, sqlite3_stmt *st, int col, bool people) {
    switch (sqlite3_column_type(st, col)) {
    case SQLITE_NULL:
        break;
    case SQLITE_INTEGER:
        buf_printf(b, "%" PRId64, (int64_t)sqlite3_column_int64(st, col));
        break;
    case SQLITE_FLOAT:
        (people ? put_real_short : put_real)(b, sqlite3_column_double(st, col));
        break;
    case SQLITE_BLOB:
        put_hex(b, sqlite3_column_blob(st, col), (size_t)sqlite3_column_bytes(st, col));
        break;
    default:
        buf_put(b, sqlite3_column_text(st, col), (size_t)sqlite3_column_bytes(st, col));
    }
}

/* ---- CSV ---- */

/* Text that a spreadsheet would take for a formula gets an apostrophe in front. */
static void put_csv_text(struct buf *b, const char *s, size_t n) {
    bool formula = n && strchr("=+-@\t\r", s[0]) != NULL;
    bool quote = memchr(s, '"', n) || memchr(s, ',', n) || memchr(s, '\n', n) ||
                 memchr(s, '\r', n) || (n && (s[0] == ' ' || s[n - 1] == ' '));
    if (quote)
        buf_putc(b, '"');
    if (formula)
        buf_putc(b, '\'');
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"')
            buf_putc(b, '"');
        buf_putc(b, s[i]);
    }
    if (quote)
        buf_putc(b, '"');
}

static void csv_row(struct buf *b, sqlite3_stmt *st, int cols, bool heading) {
    for (int i = 0; i < cols; i++) {
        if (i)
            buf_putc(b, ',');
        if (heading)
            put_csv_text(b, sqlite3_column_name(st, i), strlen(sqlite3_column_name(st, i)));
        else if (sqlite3_column_type(st, i) == SQLITE_TEXT)
            put_csv_text(b, (const char *)sqlite3_column_text(st, i),
                         (size_t)sqlite3_column_bytes(st, i));
        else
            put_text_cell(b, st, i, false);
    }
    buf_puts(b, "\r\n");
}

/* ---- JSON ---- */

/* Bytes that are not UTF-8 become U+FFFD, so that the output always parses. */
static size_t utf8_length(const unsigned char *p, size_t n) {
    size_t want = p[0] < 0x80                   ? 1
                  : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
                  : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
                  : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
                                                : 0;
    if (!want || want > n)
        return 0;
    for (size_t i = 1; i < want; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return want;
}

static void put_json_text(struct buf *b, const char *s, size_t n) {
    const unsigned char *p = (const unsigned char *)s;
    buf_putc(b, '"');
    for (size_t i = 0; i < n;) {
        size_t k = utf8_length(p + i, n - i);
        if (!k)
            buf_puts(b, "\xef\xbf\xbd");
        else if (p[i] < 0x20)
            buf_printf(b, "\\u%04x", p[i]);
        else if (p[i] == '"' || p[i] == '\\')
            buf_printf(b, "\\%c", p[i]);
        else
            buf_put(b, p + i, k);
        i += k ? k : 1;
    }
    buf_putc(b, '"');
}

static void json_row(struct buf *b, sqlite3_stmt *st, int cols) {
    bool first = true;
    buf_putc(b, '{');
    for (int i = 0; i < cols; i++) {
        int type = sqlite3_column_type(st, i);
        if (type == SQLITE_NULL) /* absent, never null */
            continue;
        if (!first)
            buf_putc(b, ',');
        first = false;
        put_json_text(b, sqlite3_column_name(st, i), strlen(sqlite3_column_name(st, i)));
        buf_putc(b, ':');
        bool quoted = type == SQLITE_BLOB ||
                      (type == SQLITE_INTEGER && !is_safe_integer(sqlite3_column_int64(st, i)));
        double v = type == SQLITE_FLOAT ? sqlite3_column_double(st, i) : 0;
        quoted = quoted || v - v != 0; /* infinite */
        if (type == SQLITE_TEXT) {
            put_json_text(b, (const char *)sqlite3_column_text(st, i),
                          (size_t)sqlite3_column_bytes(st, i));
            continue;
        }
        if (quoted)
            buf_putc(b, '"');
        put_text_cell(b, st, i, false);
        if (quoted)
            buf_putc(b, '"');
    }
    buf_putc(b, '}');
}

/* ---- table: cells are kept until the widths are known ---- */

struct table {
    struct buf text; /* cells, each NUL-terminated, row by row */
    size_t *width;   /* of each column, in characters */
    bool *numeric;   /* a column without text is aligned right */
    int cols;
};

static size_t display_width(const char *s) {
    size_t n = 0;
    for (; *s; s++)
        n += (*s & 0xc0) != 0x80;
    return n;
}

static void table_cell(struct table *t, int col, sqlite3_stmt *st, bool heading) {
    size_t at = t->text.n;
    if (heading)
        buf_puts(&t->text, sqlite3_column_name(st, col));
    else
        put_text_cell(&t->text, st, col, true);
    if (t->text.failed)
        return;
    for (size_t i = at; i < t->text.n; i++) /* control characters would break the lines */
        if ((unsigned char)t->text.p[i] < 0x20 || t->text.p[i] == 0x7f)
            t->text.p[i] = ' ';
    buf_put(&t->text, "", 1);
    if (t->text.failed)
        return;
    size_t w = display_width(t->text.p + at);
    if (w > t->width[col])
        t->width[col] = w;
    if (!heading && sqlite3_column_type(st, col) != SQLITE_NULL &&
        sqlite3_column_type(st, col) != SQLITE_INTEGER &&
        sqlite3_column_type(st, col) != SQLITE_FLOAT)
        t->numeric[col] = false;
}

static void pad(FILE *out, size_t n) {
    for (; n; n--)
        putc(' ', out);
}

static void table_print(const struct table *t, FILE *out) {
    int col = 0;
    for (size_t i = 0; i < t->text.n; i += strlen(t->text.p + i) + 1) {
        const char *cell = t->text.p + i;
        size_t gap = t->width[col] - display_width(cell);
        bool last = col == t->cols - 1;
        if (t->numeric[col])
            pad(out, gap);
        fputs(cell, out);
        if (!t->numeric[col] && !last)
            pad(out, gap);
        fputs(last ? "\n" : "  ", out);
        col = last ? 0 : col + 1;
    }
}

/* ---- all rows of a statement ---- */

static int print_table(struct conn *c, sqlite3_stmt *st, FILE *out, struct err *e) {
    int cols = sqlite3_column_count(st), rc = 0;
    struct table t = {.cols = cols};
    buf_init(&t.text, TABLE_MAX_BYTES);
    t.width = calloc((size_t)cols, sizeof *t.width);
    t.numeric = calloc((size_t)cols, sizeof *t.numeric);
    if (!t.width || !t.numeric) {
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
        goto out;
    }
    bool row = true;
    for (int i = 0; i < cols; i++) {
        t.numeric[i] = true;
        table_cell(&t, i, st, true);
    }
    while (!rc && !(rc = sql_step(c, st, &row, e)) && row) {
        for (int i = 0; i < cols; i++)
            table_cell(&t, i, st, false);
        rc = buf_check(&t.text, "the table", e);
    }
    if (!rc)
        table_print(&t, out);
out:
    buf_release(&t.text);
    free(t.width);
    free(t.numeric);
    return rc;
}

/* query NULL: not a named one */
static int print_stream(struct conn *c, sqlite3_stmt *st, const char *query, enum query_format f,
                        FILE *out, struct err *e) {
    struct buf b;
    int cols = sqlite3_column_count(st), rc = 0;
    bool row = true;
    buf_init(&b, TABLE_MAX_BYTES);
    if (f == QUERY_CSV) {
        csv_row(&b, st, cols, true);
    } else {
        buf_putc(&b, '{');
        if (query) {
            buf_puts(&b, "\"query\":");
            put_json_text(&b, query, strlen(query));
            buf_putc(&b, ',');
        }
        buf_puts(&b, "\"rows\":[");
    }
    for (int64_t n = 0; !rc && !(rc = sql_step(c, st, &row, e)) && row; n++) {
        if (f == QUERY_JSON)
            buf_puts(&b, n ? ",\n" : "\n");
        if (f == QUERY_CSV)
            csv_row(&b, st, cols, false);
        else
            json_row(&b, st, cols);
        rc = buf_check(&b, "a row", e);
        if (!rc)
            fwrite(b.p, 1, b.n, out);
        buf_clear(&b);
    }
    if (!rc && f == QUERY_JSON)
        buf_puts(&b, "]}\n");
    if (!rc && b.n)
        fwrite(b.p, 1, b.n, out);
    buf_release(&b);
    return rc;
}

/* A JSON object holds a name once. */
static int check_names(sqlite3_stmt *st, struct err *e) {
    int n = sqlite3_column_count(st);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            if (!strcmp(sqlite3_column_name(st, i), sqlite3_column_name(st, j)))
                return err_set(e, ASSAY_EUSAGE,
                               "columns %d and %d are both called '%s', which JSON cannot hold; name one "
                               "of them with AS",
                               j + 1, i + 1, sqlite3_column_name(st, i));
    return 0;
}

static int print_rows(struct conn *c, sqlite3_stmt *st, const char *query, enum query_format f,
                      FILE *out, struct err *e) {
    int rc = f == QUERY_JSON ? check_names(st, e) : 0;
    if (rc)
        return rc;
    rc = f == QUERY_TABLE ? print_table(c, st, out, e) : print_stream(c, st, query, f, out, e);
    if (!rc && (fflush(out) || ferror(out)))
        rc = err_set(e, ASSAY_EENV, "cannot write the answer");
    return rc;
}

/* ---- named questions ---- */

static int find_query(const char *name, const struct named_query **out, struct err *e) {
    const char *names[128];
    size_t n = 0;
    for (const struct named_query *q = named_queries; q->name; q++) {
        if (strcmp(q->name, name) == 0) {
            *out = q;
            return 0;
        }
        names[n++] = q->name;
    }
    const char *near = nearest_name(name, names, n);
    return err_set(e, ASSAY_EUSAGE, "no question '%s'%s%s%s; --list shows all", name,
                   near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
}

int query_check_name(const char *name, struct err *e) {
    const struct named_query *q;
    return find_query(name, &q, e);
}

enum { PARAMS_MAX = sizeof((struct named_query){0}.param) / sizeof(struct query_param) };

/* Which parameters are numbers: what is required, what has a number as its default, and limits in ms
 * (which may be empty). All others are texts, also when they look like numbers: "01930000" is the
 * beginning of a run's id. */
enum param_kind { PARAM_TEXT, PARAM_NUMBER, PARAM_NUMBER_OR_NONE };
static enum param_kind param_kind(const struct query_param *p) {
    double v;
    if (!p->def || (*p->def && parse_f64(p->def, &v) == 0))
        return PARAM_NUMBER;
    return strstr(p->name, "_ms") ? PARAM_NUMBER_OR_NONE : PARAM_TEXT;
}

static int bind_param(struct conn *c, sqlite3_stmt *st, const struct named_query *q,
                      const struct query_param *p, const char *text, struct err *e) {
    enum param_kind kind = param_kind(p);
    char at[64];
    double real = 0;
    snprintf(at, sizeof at, ":%s", p->name);
    int i = sqlite3_bind_parameter_index(st, at);
    bool number = kind == PARAM_NUMBER || (kind == PARAM_NUMBER_OR_NONE && *text);
    if (number && parse_f64(text, &real))
        return err_set(e, ASSAY_EUSAGE, "question '%s': %s: expected a number, found '%s'", q->name,
                       p->name, text);
    int rc = !i       ? 0
             : number ? sqlite3_bind_double(st, i, real)
                      : sqlite3_bind_text(st, i, text, -1, SQLITE_TRANSIENT);
    return rc ? sql_error(c, rc, e, "binding a parameter") : 0;
}

static int param_index(const struct named_query *q, const char *arg, size_t n, int *out,
                       struct err *e) {
    const char *names[PARAMS_MAX];
    char given[64];
    int count = 0;
    for (; count < PARAMS_MAX && q->param[count].name; count++) {
        names[count] = q->param[count].name;
        if (strlen(names[count]) == n && strncmp(names[count], arg, n) == 0) {
            *out = count;
            return 0;
        }
    }
    snprintf(given, sizeof given, "%.*s", (int)(n < 60 ? n : 60), arg);
    const char *near = nearest_name(given, names, (size_t)count);
    struct buf all;
    buf_init(&all, 512);
    for (int i = 0; i < count; i++)
        buf_printf(&all, "%s%s", i ? ", " : "", names[i]);
    int rc = err_set(e, ASSAY_EUSAGE, "question '%s' has no parameter '%s'%s%s%s; it has %s",
                     q->name, given, near ? ": did you mean '" : "", near ? near : "",
                     near ? "'?" : "", all.n ? all.p : "none");
    buf_release(&all);
    return rc;
}

static int bind_args(struct conn *c, sqlite3_stmt *st, const struct named_query *q,
                     const char *const *args, int nargs, struct err *e) {
    const char *value[PARAMS_MAX] = {0};
    for (int i = 0; i < PARAMS_MAX && q->param[i].name; i++)
        value[i] = q->param[i].def;
    for (int i = 0; i < nargs; i++) {
        const char *eq = strchr(args[i], '=');
        int p = 0;
        if (!eq)
            return err_set(e, ASSAY_EUSAGE, "expected a parameter as name=value, found '%s'",
                           args[i]);
        int rc = param_index(q, args[i], (size_t)(eq - args[i]), &p, e);
        if (rc)
            return rc;
        value[p] = eq + 1;
    }
    for (int i = 0; i < PARAMS_MAX && q->param[i].name; i++) {
        if (!value[i])
            return err_set(e, ASSAY_EUSAGE, "question '%s' needs %s=… (%s)", q->name,
                           q->param[i].name, q->param[i].help);
        int rc = bind_param(c, st, q, &q->param[i], value[i], e);
        if (rc)
            return rc;
    }
    return 0;
}

int query_run(struct store *s, const char *name, const char *const *args, int nargs,
              enum query_format f, FILE *out, struct err *e) {
    const struct named_query *q;
    sqlite3_stmt *st = NULL;
    int rc = find_query(name, &q, e);
    if (!rc)
        rc = sql_prepare(&s->c, q->sql, &st, e);
    if (!rc)
        rc = bind_args(&s->c, st, q, args, nargs, e);
    if (!rc)
        rc = print_rows(&s->c, st, q->name, f, out, e);
    sqlite3_finalize(st);
    return rc;
}

/* ---- SQL of others ---- */

static int authorize_reading(void *ctx, int action, const char *a, const char *b,
                             const char *database, const char *trigger) {
    (void)ctx, (void)a, (void)database, (void)trigger;
    switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE:
        return SQLITE_OK;
    case SQLITE_FUNCTION:
        return b && strcmp(b, "load_extension") == 0 ? SQLITE_DENY : SQLITE_OK;
    default:
        return SQLITE_DENY;
    }
}

static int out_of_time(void *ctx) {
    return clock_now_ns() >= *(const int64_t *)ctx;
}

/* Skips white space and comments. */
static const char *skip_blank(const char *p) {
    for (;;) {
        if (isspace((unsigned char)*p)) {
            p++;
        } else if (p[0] == '-' && p[1] == '-') {
            while (*p && *p != '\n')
                p++;
        } else if (p[0] == '/' && p[1] == '*') {
            const char *end = strstr(p + 2, "*/");
            p = end ? end + 2 : p + strlen(p);
        } else {
            return p;
        }
    }
}

static bool begins_reading(const char *sql) {
    static const char *const verbs[] = {"SELECT", "WITH", "VALUES", "EXPLAIN"};
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        size_t n = strlen(verbs[i]);
        if (strncasecmp(sql, verbs[i], n) == 0 && !isalnum((unsigned char)sql[n]) && sql[n] != '_')
            return true;
    }
    return false;
}

static int prepare_reading(struct conn *c, const char *sql, sqlite3_stmt **st, struct err *e) {
    const char *tail = NULL;
    if (!begins_reading(skip_blank(sql)))
        return err_set(e, ASSAY_EUSAGE,
                       "--sql takes one statement that reads: SELECT, WITH, VALUES or EXPLAIN");
    int q = sqlite3_prepare_v2(c->db, sql, -1, st, &tail);
    if (q == SQLITE_AUTH)
        return err_set(e, ASSAY_EUSAGE, "--sql only reads: %s", sqlite3_errmsg(c->db));
    if (q)
        return err_set(e, ASSAY_EUSAGE, "--sql: %s", sqlite3_errmsg(c->db));
    tail = skip_blank(tail);
    while (*tail == ';')
        tail = skip_blank(tail + 1);
    if (*tail)
        return err_set(e, ASSAY_EUSAGE, "--sql takes one statement, found another: '%.40s'", tail);
    if (!*st || !sqlite3_stmt_readonly(*st))
        return err_set(e, ASSAY_EUSAGE, "--sql only reads");
    return 0;
}

int query_sql(struct store *s, const char *sql, int64_t time_limit_ns, enum query_format f,
              FILE *out, struct err *e) {
    struct conn *c = &s->c;
    sqlite3_stmt *st = NULL;
    int64_t limit = time_limit_ns > 0 ? time_limit_ns : default_limit_ns,
            deadline = clock_now_ns() + limit;
    int old_length = sqlite3_limit(c->db, SQLITE_LIMIT_LENGTH, VALUE_MAX_BYTES);
    sqlite3_set_authorizer(c->db, authorize_reading, NULL);
    sqlite3_progress_handler(c->db, PROGRESS_OPS, out_of_time, &deadline);
    int rc = prepare_reading(c, sql, &st, e);
    if (!rc)
        rc = print_rows(c, st, NULL, f, out, e);
    int q = sqlite3_errcode(c->db);
    if (rc && (q == SQLITE_INTERRUPT))
        rc = err_set(e, ASSAY_EUSAGE, "--sql was stopped at its time limit of %.3g s",
                     (double)limit / 1e9);
    else if (rc && (q == SQLITE_ERROR || q == SQLITE_TOOBIG) && st)
        rc = err_set(e, ASSAY_EUSAGE, "--sql: %s", sqlite3_errmsg(c->db));
    sqlite3_finalize(st);
    sqlite3_progress_handler(c->db, 0, NULL, NULL);
    sqlite3_limit(c->db, SQLITE_LIMIT_LENGTH, old_length);
    if (s->mode == STORE_WRITE)
        conn_restrict(c);
    else
        conn_unrestrict(c);
    return rc;
}

int query_schema(struct store *s, enum query_format f, FILE *out, struct err *e) {
    sqlite3_stmt *st = NULL;
    bool row = true;
    json_t *list = json_array();
    int rc = sql_prepare(
        &s->c,
        "SELECT sql, type, name FROM sqlite_schema WHERE type IN('view','table') AND name NOT LIKE 'sqlite\\_%'"
        " ESCAPE '\\' ORDER BY type DESC, name",
        &st, e);
    while (!rc && !(rc = sql_step(&s->c, st, &row, e)) && row)
        if (f != QUERY_JSON)
            fprintf(out, "%s;\n\n", sql_text(st, 0));
        else if (json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "type", sql_text(st, 1), "name",
                                                       sql_text(st, 2), "sql", sql_text(st, 0)))) {
            rc = err_set(e, ASSAY_ENOMEM, "out of memory");
            break;
        }
    sqlite3_finalize(st);
    if (!rc && f == QUERY_JSON) {
        json_t *root = json_pack("{s:O}", "objects", list);
        if (!root || json_dumpf(root, out, JSON_COMPACT))
            rc = err_set(e, root ? ASSAY_EENV : ASSAY_ENOMEM, "cannot write the schema");
        putc('\n', out);
        json_decref(root);
    }
    json_decref(list);
    if (!rc && (fflush(out) || ferror(out)))
        rc = err_set(e, ASSAY_EENV, "cannot write the schema");
    return rc;
}
