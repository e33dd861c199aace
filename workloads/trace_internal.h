/* Between the trace readers: a bounded reader of lines or bytes, and one row of functions a format. */
#ifndef WORKLOADS_TRACE_INTERNAL_H
#define WORKLOADS_TRACE_INTERNAL_H

#include "workloads/trace.h"

/* A window on the file: bytes buf[begin..end) are read and not yet used. */
struct reader {
    const char *name;
    int fd;          /* -1 when from memory */
    const char *mem; /* what is left of it */
    size_t mem_n;
    char *buf;
    size_t cap, begin, end;
    bool eof;
    uint64_t line; /* of buf[begin], 1-based */
};

/* First, once: allocates the window. */
int reader_start(struct reader *r, struct err *e) MUST_USE;
/* Reads more behind `end`, keeping begin..end (which may move); *got = false at the end of file. */
int reader_more(struct reader *r, bool *got, struct err *e) MUST_USE;
/* The next line without its LF or CR LF, NUL-terminated and writable until the next call.
 * r->line is its number during the caller's work. */
int reader_line(struct reader *r, char **line, size_t *n, bool *end, struct err *e) MUST_USE;
/* `name:line:column: text`; column 1-based. */
int reader_fault(const struct reader *r, uint64_t line, size_t column, struct err *e,
                 const char *fmt, ...) PRINTF_LIKE(5, 6);

struct trace_ops {
    struct trace_format_info info;
    size_t state_bytes;
    int (*open)(struct trace *t, struct err *e); /* reads a header; may be NULL */
    int (*next)(struct trace *t, struct trace_row *row, bool *end, struct err *e);
    void (*close)(struct trace *t); /* may be NULL */
};
extern const struct trace_ops trace_mooncake, trace_azure, trace_burstgpt, trace_sharegpt;

struct trace {
    const struct trace_ops *ops;
    struct reader reader;
    struct trace_options options;
    void *state; /* ops->state_bytes, zeroed */
    uint64_t dropped;
};

/* "12.5" -> units of unit_ns; digits beyond a nanosecond are cut. false: not such a number, or too
 * large. */
bool parse_decimal_ns(const char *p, size_t n, int64_t unit_ns, int64_t *out);

/* CSV: the fields of one line, unquoted in place. */
enum { CSV_FIELDS_MAX = 32 };
struct csv_line {
    uint64_t line;
    int n;
    char *field[CSV_FIELDS_MAX];
    size_t length[CSV_FIELDS_MAX], column[CSV_FIELDS_MAX];
};
/* The next line that is not empty. */
int csv_next(struct reader *r, struct csv_line *c, bool *end, struct err *e) MUST_USE;
/* Index of the column of that name in a header, -1 when absent. */
int csv_find(const struct csv_line *header, const char *name);
/* The same, absence being an error. */
int csv_column(const struct reader *r, const struct csv_line *header, const char *name, int *index,
               struct err *e) MUST_USE;
/* A token count of at least min. Checks that the line has the field. */
int csv_tokens(const struct reader *r, const struct csv_line *c, int index, const char *name,
               uint32_t min, uint32_t *out, struct err *e) MUST_USE;
int csv_fault(const struct reader *r, const struct csv_line *c, int index, const char *expected,
              struct err *e);

#endif
