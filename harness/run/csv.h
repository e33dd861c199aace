/* A strict reader of CSV tables (RFC 4180): one header line, every row as long as it, quotes
 * doubled. Errors are `file:line: …`. Fields are borrowed from the table. */
#ifndef HARNESS_RUN_CSV_H
#define HARNESS_RUN_CSV_H

#include "harness/core/err.h"

#include <stddef.h>

enum { CSV_COLUMNS_MAX = 256, CSV_ROWS_MAX = 2000000 };

struct csv_table {
    char *text;         /* owned; fields point into it */
    const char **field; /* rows x columns, owned */
    size_t *line;       /* of each row, owned */
    size_t columns, rows;
    const char *name[CSV_COLUMNS_MAX];
};

int csv_table_open(struct csv_table *c, const char *path, struct err *e) MUST_USE;
/* The same from memory. label: for messages. */
int csv_table_parse(struct csv_table *c, const char *text, size_t n, const char *label,
                    struct err *e) MUST_USE;
void csv_table_release(struct csv_table *c);

/* Index of a column, -1 when there is none. */
int csv_table_column(const struct csv_table *c, const char *name);
static inline const char *csv_table_get(const struct csv_table *c, size_t row, int column) {
    return column < 0 ? "" : c->field[row * c->columns + (size_t)column];
}

#endif
