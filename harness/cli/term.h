/* What people look at: aligned tables, numbers with units, the progress line. Sober: bold headings
 * on a terminal, nothing in a pipe. Not for machines: those get --json or --csv. */
#ifndef HARNESS_CLI_TERM_H
#define HARNESS_CLI_TERM_H

#include "harness/core/arena.h"
#include "harness/core/err.h"
#include "harness/run/run.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* "\033[1m" and "\033[0m" when out is a terminal that takes them (NO_COLOR and TERM=dumb
 * respected), else "". */
const char *term_bold(FILE *out);
const char *term_plain(FILE *out);
/* Columns of the terminal; $COLUMNS when set; 80 when out is none. */
int term_width(FILE *out);

/* Characters on the screen, for UTF-8 without combining or wide ones. */
size_t term_columns(const char *s);
/* Writes s with control characters as '?': names come from files and endpoints. */
void term_text(FILE *out, const char *s);
/* Words of s between columns `indent` and `width`; the first line is taken to be at column `at`. */
void term_wrap(FILE *out, const char *s, int at, int indent, int width);

enum { TABLE_COLUMNS_MAX = 20, FMT_BYTES = 48 };

/* A table is filled cell by cell, row by row. align: one of 'l', 'r' a column. Headings may be
 * NULL. A cell NULL or "" stays empty; a right-aligned empty cell in a body means "not known". */
struct table {
    const char *align;
    const char *const *headings;
    struct arena *arena;
    const char **cell;
    size_t columns, n, cap;
    bool failed; /* memory ran out */
};
void table_init(struct table *t, struct arena *a, const char *align, const char *const *headings);
void table_cell(struct table *t, const char *text);
void table_cellf(struct table *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
void table_print(const struct table *t, FILE *out, int indent);

/* Each writes into out[FMT_BYTES] and returns it. */
const char *fmt_ns(char *out, double ns);       /* "412 ns", "18.3 µs", "1.24 ms", "612.4 s" */
const char *fmt_count(char *out, int64_t n);    /* "1,234,567" */
const char *fmt_number(char *out, double v);    /* "0.0123", "12.3", "12,345" */
const char *fmt_bytes(char *out, double bytes); /* "1.50 GiB" */
const char *fmt_percent(char *out, double fraction); /* "71.2 %" */
const char *fmt_si(char *out, double v); /* "918 T", "1.64 T", "819 G": powers of 1000 */

/* The progress line on stderr, redrawn in place; nothing unless stderr is a terminal. */
struct progress {
    bool on, drawn;
    int64_t
        started_ns; /* clock_now_ns when it began: the estimate of the end is in the user's time */
    char label[64]; /* in front: a sweep's point; may be "" */
};
void progress_init(struct progress *p, bool wanted);
void progress_draw(void *progress, const struct run_progress *r); /* a run_options.progress */
void progress_clear(struct progress *p);
/* The line's text alone, at most n - 1 bytes: what progress_draw prints. wall_ns: since the start.
 */
void progress_format(const struct run_progress *r, const char *label, int64_t wall_ns, char *out,
                     size_t n);

#endif
