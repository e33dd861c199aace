/* Tables, numbers with units, the progress line. All of it is for eyes: nothing here is parsed
 * back. */
#include "harness/cli/term.h"

#include "harness/core/clock.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool takes_escapes(FILE *out) {
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    if (no_color && *no_color)
        return false;
    return term && strcmp(term, "dumb") != 0 && isatty(fileno(out));
}

const char *term_bold(FILE *out) {
    return takes_escapes(out) ? "\033[1m" : "";
}

const char *term_plain(FILE *out) {
    return takes_escapes(out) ? "\033[0m" : "";
}

int term_width(FILE *out) {
    const char *columns = getenv("COLUMNS");
    int64_t n;
    if (columns && !parse_i64(columns, &n) && n >= 40 && n <= 1000)
        return (int)n;
    struct winsize w;
    int fd = fileno(out);
    if (fd >= 0 && isatty(fd) && !ioctl(fd, TIOCGWINSZ, &w) && w.ws_col >= 40)
        return w.ws_col;
    return 80;
}

size_t term_columns(const char *s) {
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

void term_text(FILE *out, const char *s) {
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        /* C1 controls come as U+0080..U+009F: C2 80..9F */
        if (c == 0xC2 && (unsigned char)s[1] >= 0x80 && (unsigned char)s[1] < 0xA0) {
            putc('?', out);
            s++;
        } else {
            putc(c < 0x20 || c == 0x7F ? '?' : c, out);
        }
    }
}

void term_wrap(FILE *out, const char *s, int at, int indent, int width) {
    int column = at;
    bool first = true;
    while (*s) {
        s += strspn(s, " ");
        size_t n = strcspn(s, " \n");
        char word[512];
        size_t keep = n < sizeof word ? n : sizeof word - 1;
        memcpy(word, s, keep);
        word[keep] = '\0';
        int columns = (int)term_columns(word);
        if (!first && column + 1 + columns > width) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
            first = true;
        }
        if (n) {
            fprintf(out, "%s%s", first ? "" : " ", word);
            column += columns + !first;
            first = false;
        }
        s += n;
        if (*s == '\n') {
            s++;
            fprintf(out, "\n%*s", *s && *s != '\n' ? indent : 0, "");
            column = indent;
            first = true;
        }
    }
    putc('\n', out);
}

void table_init(struct table *t, struct arena *a, const char *align, const char *const *headings) {
    *t = (struct table){.align = align, .arena = a, .headings = headings, .columns = strlen(align)};
    if (t->columns > TABLE_COLUMNS_MAX)
        t->columns = TABLE_COLUMNS_MAX;
}

void table_cell(struct table *t, const char *text) {
    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 16 * t->columns;
        const char **cell = arena_alloc(t->arena, cap, sizeof *cell);
        if (!cell) {
            t->failed = true;
            return;
        }
        if (t->n)
            memcpy(cell, t->cell, t->n * sizeof *cell);
        t->cell = cell;
        t->cap = cap;
    }
    const char *copy = text && *text ? arena_strdup(t->arena, text) : "";
    if (!copy)
        t->failed = true;
    t->cell[t->n++] = copy ? copy : "";
}

void table_cellf(struct table *t, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    table_cell(t, text);
}

static void print_row(const struct table *t, const char *const *cell, const size_t *width,
                      FILE *out, int indent) {
    fprintf(out, "%*s", indent, "");
    size_t last = 0;
    for (size_t c = 0; c < t->columns; c++)
        if (*cell[c])
            last = c;
    for (size_t c = 0; c <= last; c++) {
        size_t pad = width[c] - term_columns(cell[c]);
        if (c)
            fputs("  ", out);
        if (t->align[c] == 'r')
            fprintf(out, "%*s", (int)pad, "");
        term_text(out, cell[c]);
        if (t->align[c] != 'r' && c < last)
            fprintf(out, "%*s", (int)pad, "");
    }
    putc('\n', out);
}

void table_print(const struct table *t, FILE *out, int indent) {
    size_t width[TABLE_COLUMNS_MAX] = {0};
    for (size_t c = 0; c < t->columns; c++)
        if (t->headings)
            width[c] = term_columns(t->headings[c]);
    size_t rows = t->columns ? t->n / t->columns : 0;
    for (size_t i = 0; i < rows * t->columns; i++) {
        size_t n = term_columns(t->cell[i]), c = i % t->columns;
        width[c] = n > width[c] ? n : width[c];
    }
    if (t->headings) {
        fputs(term_bold(out), out);
        print_row(t, t->headings, width, out, indent);
        fputs(term_plain(out), out);
    }
    for (size_t r = 0; r < rows; r++)
        print_row(t, t->cell + r * t->columns, width, out, indent);
    if (t->failed)
        fputs("… (out of memory)\n", out);
}

/* v with three significant digits, all digits of a greater whole part; not for exponents. */
static void digits(char *out, size_t n, double v) {
    double a = fabs(v), limit = 99.95; /* from here on no digit behind the point is left */
    int decimals = 0;
    /* 9.996 prints as 10.0: what it is after rounding decides */
    for (; a != 0 && a < limit && decimals < 5; decimals++)
        limit /= 10;
    snprintf(out, n, "%.*f", decimals, v);
}

const char *fmt_ns(char *out, double ns) {
    static const struct {
        double unit;
        const char *name;
    } units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}};
    double a = fabs(ns);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (a >= units[i].unit * 0.9995) {
            char number[FMT_BYTES - 8];
            digits(number, sizeof number, ns / units[i].unit);
            /* seconds keep a digit behind the point: a window of 612.4 s */
            if (i == 0 && a >= 100e9 && a < 1e14)
                snprintf(number, sizeof number, "%.1f", ns / 1e9);
            snprintf(out, FMT_BYTES, "%s %s", number, units[i].name);
            return out;
        }
    snprintf(out, FMT_BYTES, "%.0f ns", ns);
    return out;
}

/* Puts a comma between each three digits of the integer part of text. */
static void group_digits(char *out, size_t n, const char *text) {
    size_t sign = *text == '-', whole = strspn(text + sign, "0123456789"), used = 0;
    for (size_t i = 0; text[i] && used + 2 < n; i++) {
        if (i > sign && i < sign + whole && (sign + whole - i) % 3 == 0)
            out[used++] = ',';
        out[used++] = text[i];
    }
    out[used] = '\0';
}

const char *fmt_count(char *out, int64_t n) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, n);
    group_digits(out, FMT_BYTES, text);
    return out;
}

const char *fmt_number(char *out, double v) {
    char text[FMT_BYTES];
    double a = fabs(v);
    if (a != 0 && (a < 1e-3 || a >= 1e15))
        snprintf(text, sizeof text, "%.3g", v);
    else if (a >= 100 && a < 10000)
        snprintf(text, sizeof text, "%.1f", v);
    else
        digits(text, sizeof text, v);
    group_digits(out, FMT_BYTES, text);
    return out;
}

const char *fmt_bytes(char *out, double bytes) {
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t i = 0;
    double v = bytes;
    for (; fabs(v) >= 1024 && i + 1 < sizeof names / sizeof *names; i++)
        v /= 1024;
    if (i == 0) {
        snprintf(out, FMT_BYTES, "%.0f B", v);
        return out;
    }
    char number[FMT_BYTES - 8];
    digits(number, sizeof number, v);
    snprintf(out, FMT_BYTES, "%s %s", number, names[i]);
    return out;
}

const char *fmt_percent(char *out, double fraction) {
    snprintf(out, FMT_BYTES, "%.1f %%", fraction * 100);
    return out;
}

const char *fmt_si(char *out, double v) {
    static const char *const names[] = {"", "k", "M", "G", "T", "P", "E"};
    size_t i = 0;
    for (; fabs(v) >= 1000 && i + 1 < sizeof names / sizeof *names; i++)
        v /= 1000;
    char number[FMT_BYTES - 4];
    digits(number, sizeof number, v);
    snprintf(out, FMT_BYTES, "%s %s", number, names[i]);
    if (i == 0)
        snprintf(out, FMT_BYTES, "%s", number);
    return out;
}

void progress_init(struct progress *p, bool wanted) {
    *p = (struct progress){.on = wanted && takes_escapes(stderr), .started_ns = clock_now_ns()};
}

static void clock_text(char *out, size_t n, int64_t ns) {
    int64_t s = ns / NS_PER_S;
    if (s >= 3600)
        snprintf(out, n, "%" PRId64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60), (int)(s % 60));
    else
        snprintf(out, n, "%d:%02d", (int)(s / 60), (int)(s % 60));
}

void progress_format(const struct run_progress *r, const char *label, int64_t wall_ns, char *out,
                     size_t n) {
    struct buf b;
    buf_init(&b, 1024);
    char t[FMT_BYTES], u[FMT_BYTES];
    if (*label)
        buf_printf(&b, "%s  ", label);
    clock_text(t, sizeof t, r->elapsed_ns);
    buf_printf(&b, "%s  %s", t, fmt_count(u, r->done));
    if (r->total > 0)
        buf_printf(&b, "/%s (%.0f %%)", fmt_count(u, r->total),
                   100 * (double)r->done / (double)r->total);
    if (r->failed)
        buf_printf(&b, "  failed %s", fmt_count(u, r->failed));
    buf_printf(&b, "  in flight %s", fmt_count(u, r->in_flight));
    buf_printf(&b, "  %s/s", fmt_number(u, r->rate_per_s));
    if (r->e2e_p50_ns > 0)
        buf_printf(&b, "  E2E p50 %s p99 %s", fmt_ns(t, (double)r->e2e_p50_ns),
                   fmt_ns(u, (double)r->e2e_p99_ns));
    if (r->total > 0 && r->done > 0 && r->done < r->total) {
        clock_text(t, sizeof t,
                   (int64_t)((double)wall_ns * (double)(r->total - r->done) / (double)r->done));
        buf_printf(&b, "  ETA %s", t);
    }
    snprintf(out, n, "%s", b.failed || !b.p ? "" : b.p);
    buf_release(&b);
}

void progress_draw(void *progress, const struct run_progress *r) {
    struct progress *p = progress;
    if (!p->on)
        return;
    char text[1024];
    progress_format(r, p->label, clock_now_ns() - p->started_ns, text, sizeof text);
    /* cut at the terminal's width, at a character's edge: a wrapped line cannot be redrawn */
    int width = term_width(stderr) - 1, columns = 0;
    char *end = text;
    for (; *end; end++) {
        columns += ((unsigned char)*end & 0xC0) != 0x80;
        if (columns > width)
            break;
    }
    *end = '\0';
    fprintf(stderr, "\r\033[K%s", text);
    fflush(stderr);
    p->drawn = true;
}

void progress_clear(struct progress *p) {
    if (p->drawn)
        fputs("\r\033[K", stderr);
    p->drawn = false;
}
