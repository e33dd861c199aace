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
    void (*seen)(void *ctx, const void *p, size_t n); /* as in trace_options */
    void *seen_ctx;
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

/* JSON within a line. Every function goes past what it read; faults are `name:line:column: expected X,
 * found Y`. */
struct lex {
    const struct reader *r;
    const char *start, *p, *end;
};
int lex_fault(const struct lex *s, const char *expected, struct err *e);
void lex_space(struct lex *s);
int lex_take(struct lex *s, char c, const char *expected, struct err *e) MUST_USE;
bool lex_peek(struct lex *s, char c);
/* The raw text between the quotes; escapes stay as they are. */
int lex_string(struct lex *s, const char **text, size_t *n, struct err *e) MUST_USE;
/* A number's text: what of JSON's numbers is digits, sign and point. */
int lex_number(struct lex *s, const char **text, size_t *n, const char *expected,
                struct err *e) MUST_USE;
int lex_integer(struct lex *s, uint64_t max, const char *expected, uint64_t *out,
                 struct err *e) MUST_USE;
int lex_skip(struct lex *s, struct err *e) MUST_USE; /* any value */
/* An array of at most TRACE_BLOCKS_MAX block ids into a list that grows. */
struct id_list {
    uint64_t *id;
    size_t cap;
};
int lex_ids(struct lex *s, struct id_list *l, uint32_t *count, struct err *e) MUST_USE;

struct trace_ops {
    struct trace_format_info info;
    size_t state_bytes;
    int (*open)(struct trace *t, struct err *e); /* reads a header; may be NULL */
    /* one of the two */
    int (*next)(struct trace *t, struct trace_row *row, bool *end, struct err *e);
    int (*next_session)(struct trace *t, struct session *s, bool *end, struct err *e);
    void (*close)(struct trace *t); /* may be NULL */
};
extern const struct trace_ops trace_mooncake, trace_azure, trace_burstgpt, trace_sharegpt,
    trace_endpoints, trace_weka;

struct trace {
    const struct trace_ops *ops;
    struct reader reader;
    struct trace_options options;
    void *state; /* ops->state_bytes, zeroed */
    uint64_t dropped;
    struct session session; /* trace_next of a format with sessions: walked so far */
    uint32_t call;
};

/* "12.5" -> units of unit_ns; digits beyond a nanosecond are cut. false: not such a number, or too
 * large. */
bool parse_decimal_ns(const char *p, size_t n, int64_t unit_ns, int64_t *out);

/* At least 1: see TRACE_BYTES_PER_TOKEN. */
uint32_t trace_estimate_tokens(size_t bytes);

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
