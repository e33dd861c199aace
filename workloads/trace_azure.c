/* Azure LLM inference traces (github.com/Azure/AzurePublicDataset): TIMESTAMP,ContextTokens,
 * GeneratedTokens with CR LF line ends. Stamps have seven fractional digits (2023) or an offset
 * from UTC (2024); arrivals are ns since 1970. */
#include "harness/core/clock.h"
#include "workloads/trace_internal.h"

struct azure {
    int time, isl, osl;
};

static int azure_open(struct trace *t, struct err *e) {
    struct azure *s = t->state;
    struct csv_line h;
    bool end;
    int rc = csv_next(&t->reader, &h, &end, e);
    if (rc)
        return rc;
    if (end)
        return reader_fault(&t->reader, 1, 1, e, "expected a header line, found an empty file");
    if ((rc = csv_column(&t->reader, &h, "TIMESTAMP", &s->time, e)) ||
        (rc = csv_column(&t->reader, &h, "ContextTokens", &s->isl, e)) ||
        (rc = csv_column(&t->reader, &h, "GeneratedTokens", &s->osl, e)))
        return rc;
    int images = csv_find(&h, "NumImages");
    if (images >= 0)
        return reader_fault(
            &t->reader, h.line, h.column[images], e,
            "expected a trace of text requests, found the column 'NumImages' of the "
            "multimodal one");
    return 0;
}

static bool digits(const char **p, int n, int64_t *out) {
    *out = 0;
    for (int i = 0; i < n; i++, (*p)++) {
        if (**p < '0' || **p > '9')
            return false;
        *out = *out * 10 + (**p - '0');
    }
    return true;
}

static bool is(const char **p, char c) {
    if (**p != c)
        return false;
    ++*p;
    return true;
}

/* Days since 1970-01-01 in the proleptic Gregorian calendar, years from March.
 * Source: Howard Hinnant, chrono-compatible low-level date algorithms, days_from_civil. */
static int64_t days_of(int64_t y, int64_t m, int64_t d) {
    y -= m <= 2;
    int64_t era = y / 400, yoe = y - era * 400;
    int64_t doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

static bool days_in_month_ok(int64_t y, int64_t m, int64_t d) {
    static const int64_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    return m >= 1 && m <= 12 && d >= 1 && d <= days[m - 1] + (leap && m == 2);
}

/* "Z", "+00:00", "+0530", "+05" or nothing (UTC is assumed: the 2023 files name no zone). */
static bool parse_offset(const char *p, int64_t *seconds) {
    *seconds = 0;
    if (*p == '\0' || (p[0] == 'Z' && p[1] == '\0'))
        return true;
    int64_t sign = *p == '-' ? -1 : 1, h, m = 0;
    if (!is(&p, '+') && !is(&p, '-'))
        return false;
    if (!digits(&p, 2, &h))
        return false;
    if (*p) {
        is(&p, ':');
        if (!digits(&p, 2, &m))
            return false;
    }
    *seconds = sign * (h * 3600 + m * 60);
    return *p == '\0' && h <= 23 && m <= 59;
}

/* Years 1970 to 2199: within int64 ns. */
static bool parse_stamp(const char *p, int64_t *ns) {
    int64_t y, mo, d, h, mi, s, f = 0, scale = NS_PER_S, offset;
    if (!digits(&p, 4, &y) || !is(&p, '-') || !digits(&p, 2, &mo) || !is(&p, '-') ||
        !digits(&p, 2, &d) || (!is(&p, ' ') && !is(&p, 'T')) || !digits(&p, 2, &h) ||
        !is(&p, ':') || !digits(&p, 2, &mi) || !is(&p, ':') || !digits(&p, 2, &s))
        return false;
    if (is(&p, '.')) {
        const char *start = p;
        for (; *p >= '0' && *p <= '9'; p++) {
            scale /= 10;
            f += scale * (*p - '0');
        }
        if (p == start)
            return false;
    }
    if (y < 1970 || y > 2199 || !days_in_month_ok(y, mo, d) || h > 23 || mi > 59 || s > 59 ||
        !parse_offset(p, &offset))
        return false;
    *ns = (days_of(y, mo, d) * 86400 + h * 3600 + mi * 60 + s - offset) * NS_PER_S + f;
    return true;
}

static int azure_next(struct trace *t, struct trace_row *row, bool *end, struct err *e) {
    const struct azure *s = t->state;
    struct csv_line c;
    int rc = csv_next(&t->reader, &c, end, e);
    if (rc || *end)
        return rc;
    *row = (struct trace_row){.line = c.line};
    if (s->time >= c.n || !parse_stamp(c.field[s->time], &row->arrival_ns))
        return csv_fault(&t->reader, &c, s->time, "a time such as 2023-11-16 18:17:03.9799600", e);
    if ((rc = csv_tokens(&t->reader, &c, s->isl, "ContextTokens", 1, &row->isl, e)))
        return rc;
    return csv_tokens(&t->reader, &c, s->osl, "GeneratedTokens", 1, &row->osl, e);
}

const struct trace_ops trace_azure = {
    .info = {.name = "azure",
             .summary = "Azure LLM inference CSV: TIMESTAMP, ContextTokens, GeneratedTokens",
             .resolution_ns = 100},
    .state_bytes = sizeof(struct azure),
    .open = azure_open,
    .next = azure_next,
};
