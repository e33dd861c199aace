/* The telemetry reader: a table of column names, a line splitter that knows brackets, times and
 * numbers with units. The integral is in telemetry_power.c. */
#include "harness/measure/telemetry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum column { COLUMN_TIME, COLUMN_DEVICE, COLUMN_POWER, COLUMN_UTILIZATION, COLUMNS };

/* Of one kind the first that the header has counts. */
static const struct {
    enum column column;
    const char *name;
} names[] = {
    {COLUMN_TIME, "timestamp"},
    {COLUMN_TIME, "time"},
    {COLUMN_DEVICE, "index"},
    {COLUMN_DEVICE, "gpu"},
    {COLUMN_DEVICE, "device"},
    {COLUMN_DEVICE, "device_id"},
    {COLUMN_DEVICE, "chip"},
    {COLUMN_DEVICE, "uuid"},
    {COLUMN_DEVICE, "gpu_uuid"},
    {COLUMN_DEVICE, "pci.bus_id"},
    {COLUMN_DEVICE, "gpu_bus_id"},
    {COLUMN_POWER, "power.draw.instant"},
    {COLUMN_POWER, "power.draw"},
    {COLUMN_POWER, "power.draw.average"},
    {COLUMN_POWER, "power_w"},
    {COLUMN_POWER, "socket_power"},
    {COLUMN_POWER, "current_socket_power"},
    {COLUMN_POWER, "average_socket_power"},
    {COLUMN_POWER, "power"},
    {COLUMN_UTILIZATION, "utilization.gpu"},
    {COLUMN_UTILIZATION, "gfx_activity"},
    {COLUMN_UTILIZATION, "gfx"},
    {COLUMN_UTILIZATION, "utilization"},
    {COLUMN_UTILIZATION, "duty_cycle"},
    {COLUMN_UTILIZATION, "tensorcore_utilization"},
};

struct reader {
    const char *name;
    int64_t line;
    const char *at; /* of the line, for columns in messages */
    struct str field[TELEMETRY_COLUMNS_MAX];
    int nfields, width;
    int column[COLUMNS]; /* -1: not there */
    double factor;       /* of power, from the header's unit */
    struct telemetry_zone zone;
    struct str header;
};

static int bad(const struct reader *r, struct str f, const char *expected, struct err *e) {
    char found[41];
    size_t n = f.n < 40 ? f.n : 40;
    for (size_t i = 0; i < n; i++)
        found[i] = f.p[i] >= ' ' && f.p[i] < 127 ? f.p[i] : '?';
    found[n] = 0;
    return err_set(e, ASSAY_EINPUT, "%s:%lld:%lld: expected %s, found '%s'", r->name,
                   (long long)r->line, (long long)(f.p - r->at) + 1, expected, found);
}

static struct str trim(const char *p, size_t n) {
    while (n && (*p == ' ' || *p == '\t')) {
        p++;
        n--;
    }
    while (n && (p[n - 1] == ' ' || p[n - 1] == '\t' || p[n - 1] == '\r'))
        n--;
    return (struct str){p, n};
}

/* Commas inside quotes and inside brackets do not part fields. */
static int split(struct reader *r, struct str line, struct err *e) {
    size_t from = 0;
    int depth = 0;
    bool quoted = false;
    r->nfields = 0;
    for (size_t i = 0; i <= line.n; i++) {
        char c = i < line.n ? line.p[i] : ',';
        if (i < line.n && c == '"')
            quoted = !quoted;
        else if (!quoted && c == '[')
            depth++;
        else if (!quoted && c == ']' && depth)
            depth--;
        else if (c == ',' && (i == line.n || (!quoted && !depth))) {
            if (r->nfields == TELEMETRY_COLUMNS_MAX)
                return bad(r, (struct str){line.p + from, line.n - from}, "at most 256 columns", e);
            struct str f = trim(line.p + from, i - from);
            if (f.n >= 2 && f.p[0] == '"' && f.p[f.n - 1] == '"')
                f = trim(f.p + 1, f.n - 2);
            r->field[r->nfields++] = f;
            from = i + 1;
        }
    }
    return 0;
}

static bool same(struct str s, const char *text) {
    return s.n == strlen(text) && !strncasecmp(s.p, text, s.n);
}

/* "power.draw [W]" -> the name, and what a reading is to be multiplied by to be W. */
static struct str column_name(struct str f, double *factor) {
    const char *bracket = f.n ? memchr(f.p, '[', f.n) : NULL;
    *factor = 1;
    if (!bracket)
        return f;
    struct str unit = {bracket + 1, f.n - (size_t)(bracket - f.p) - 1};
    if (unit.n && unit.p[unit.n - 1] == ']')
        unit.n--;
    if (same(unit, "mW"))
        *factor = 1e-3;
    return trim(f.p, (size_t)(bracket - f.p));
}

static int take_header(struct reader *r, struct str line, struct err *e) {
    int rc = split(r, line, e);
    if (rc)
        return rc;
    for (int c = 0; c < COLUMNS; c++)
        r->column[c] = -1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int k = 0; k < r->nfields && r->column[names[i].column] < 0; k++) {
            double factor;
            if (!same(column_name(r->field[k], &factor), names[i].name))
                continue;
            r->column[names[i].column] = k;
            if (names[i].column == COLUMN_POWER)
                r->factor = factor;
        }
    struct str all = {line.p, line.n};
    if (r->column[COLUMN_TIME] < 0)
        return bad(r, all, "a header with a column 'timestamp'", e);
    if (r->column[COLUMN_POWER] < 0 && r->column[COLUMN_UTILIZATION] < 0)
        return bad(r, all, "a header with a column 'power.draw', 'socket_power' or 'power_w'", e);
    r->width = r->nfields;
    r->header = line;
    return 0;
}

/* ---- values ---- */

static bool missing(struct str f) {
    return !f.n || f.p[0] == '[' || same(f, "N/A") || same(f, "nan") || same(f, "-");
}

/* The number in front, *rest what follows it, trimmed. */
static bool number(struct str f, double *v, struct str *rest) {
    char text[64], *end;
    size_t n = 0;
    while (n < f.n && n < sizeof text - 1 && strchr("+-.0123456789eE", f.p[n]) && f.p[n])
        n++;
    memcpy(text, f.p, n);
    text[n] = 0;
    *v = strtod(text, &end);
    size_t used = (size_t)(end - text);
    *rest = trim(f.p + used, f.n - used);
    return used && isfinite(*v);
}

static int power_of(const struct reader *r, double *w, struct err *e) {
    *w = (double)NAN;
    if (r->column[COLUMN_POWER] < 0)
        return 0;
    struct str f = r->field[r->column[COLUMN_POWER]], unit;
    double v;
    if (missing(f))
        return 0;
    if (!number(f, &v, &unit) || (unit.n && !same(unit, "W") && !same(unit, "mW")))
        return bad(r, f, "a power such as 123.45 W", e);
    v *= unit.n ? same(unit, "mW") && unit.p[0] == 'm' ? 1e-3 : 1 : r->factor;
    if (v < 0 || v > 1e7)
        return bad(r, f, "a power from 0 to 10 MW", e);
    *w = v;
    return 0;
}

static int utilization_of(const struct reader *r, double *share, struct err *e) {
    *share = (double)NAN;
    if (r->column[COLUMN_UTILIZATION] < 0)
        return 0;
    struct str f = r->field[r->column[COLUMN_UTILIZATION]], unit;
    double v;
    if (missing(f))
        return 0;
    if (!number(f, &v, &unit) || (unit.n && !same(unit, "%")) || v < 0 || v > 100)
        return bad(r, f, "a utilisation from 0 to 100 %", e);
    *share = v / 100;
    return 0;
}

/* ---- times ---- */

/* Exactly n digits. */
static bool digits(struct str *s, size_t n, int *v) {
    *v = 0;
    if (s->n < n)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (s->p[i] < '0' || s->p[i] > '9')
            return false;
        *v = *v * 10 + (s->p[i] - '0');
    }
    s->p += n;
    s->n -= n;
    return true;
}

static bool skip(struct str *s, const char *any) {
    if (!s->n || !strchr(any, *s->p) || !*s->p)
        return false;
    s->p++;
    s->n--;
    return true;
}

/* Days from 1970-01-01; the proleptic Gregorian calendar. */
static int64_t days_of(int y, int m, int d) {
    int64_t a = y - (m <= 2), era = (a >= 0 ? a : a - 399) / 400, yoe = a - era * 400;
    int64_t doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

/* "Z", "+hh:mm", "+hhmm", "+hh" -> true. */
static bool offset_of(struct str s, int64_t *offset_s) {
    int h = 0, m = 0;
    bool minus = s.n && *s.p == '-';
    *offset_s = 0;
    if (same(s, "Z") || same(s, "UTC"))
        return true;
    if (!skip(&s, "+-") || !digits(&s, 2, &h))
        return false;
    skip(&s, ":");
    if (s.n && !digits(&s, 2, &m))
        return false;
    *offset_s = (minus ? -1 : 1) * ((int64_t)h * 3600 + m * 60);
    return !s.n && h <= 18 && m < 60;
}

int telemetry_zone_parse(const char *text, struct telemetry_zone *z, struct err *e) {
    *z = (struct telemetry_zone){0};
    if (!strcmp(text, "local"))
        z->local = true;
    else if (!offset_of((struct str){text, strlen(text)}, &z->offset_s) && strcmp(text, "utc"))
        return err_set(e, ASSAY_EUSAGE, "--telemetry-tz: expected local, utc or an offset such as +02:00, found '%s'",
                       text);
    return 0;
}

static bool civil_time(const struct reader *r, struct str s, int64_t *ns) {
    static const int month_days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int y, mo, d, h, mi, sec;
    int64_t fraction = 0, unit = 100000000, offset;
    if (!digits(&s, 4, &y) || !skip(&s, "/-") || !digits(&s, 2, &mo) || !skip(&s, "/-") ||
        !digits(&s, 2, &d) || !skip(&s, "T ") || !digits(&s, 2, &h) || !skip(&s, ":") ||
        !digits(&s, 2, &mi) || !skip(&s, ":") || !digits(&s, 2, &sec))
        return false;
    if (y < 1970 || y > 2200 || mo < 1 || mo > 12 || d < 1 || d > month_days[mo - 1] || h > 23 ||
        mi > 59 || sec > 60)
        return false;
    if (skip(&s, ".,"))
        for (; s.n && *s.p >= '0' && *s.p <= '9'; s.p++, s.n--, unit /= 10)
            fraction += unit * (*s.p - '0');
    s = trim(s.p, s.n);
    int64_t seconds = days_of(y, mo, d) * 86400 + h * 3600 + mi * 60 + sec;
    if (s.n) {
        if (!offset_of(s, &offset))
            return false;
        seconds -= offset;
    } else if (r->zone.local) {
        struct tm tm = {.tm_year = y - 1900, .tm_mon = mo - 1, .tm_mday = d, .tm_hour = h,
                        .tm_min = mi, .tm_sec = sec, .tm_isdst = -1};
        time_t t = mktime(&tm);
        if (t == (time_t)-1)
            return false;
        seconds = t;
    } else {
        seconds -= r->zone.offset_s;
    }
    *ns = seconds * INT64_C(1000000000) + fraction;
    return true;
}

/* Since 1970 in s, ms, us or ns, exact: 1e9 s is 2001 and 1e11 s is 5138, so the size tells. */
static bool epoch_time(struct str s, int64_t *ns) {
    int64_t whole = 0, scale = 1000000000, fraction = 0;
    size_t n = 0;
    for (; n < s.n && s.p[n] >= '0' && s.p[n] <= '9'; n++)
        if (n == 19 || __builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, s.p[n] - '0', &whole))
            return false;
    for (int64_t v = whole; scale > 1 && v >= 100000000000; v /= 1000)
        scale /= 1000;
    if (n < s.n && s.p[n] == '.') {
        int64_t unit = scale;
        for (n++; n < s.n && s.p[n] >= '0' && s.p[n] <= '9'; n++)
            fraction += (unit /= 10) * (s.p[n] - '0');
    }
    return n && n == s.n && whole >= 100000000 && !__builtin_mul_overflow(whole, scale, ns) &&
           !__builtin_add_overflow(*ns, fraction, ns);
}

/* ---- lines ---- */

static int row(struct reader *r, struct str line, telemetry_fn *fn, void *ctx, struct err *e) {
    struct telemetry_reading t = {0};
    char device[128] = "0";
    int rc = split(r, line, e);
    if (rc)
        return rc;
    if (r->nfields != r->width) {
        char expected[64];
        snprintf(expected, sizeof expected, "%d columns as in the header", r->width);
        return bad(r, line, expected, e);
    }
    struct str time = r->field[r->column[COLUMN_TIME]];
    if (!civil_time(r, time, &t.wall_ns) && !epoch_time(time, &t.wall_ns))
        return bad(r, time, "a time such as 2024/01/31 14:30:22.123, ISO 8601 or s since 1970", e);
    if (r->column[COLUMN_DEVICE] >= 0) {
        struct str d = r->field[r->column[COLUMN_DEVICE]];
        if (!d.n || d.n >= sizeof device || memchr(d.p, 0, d.n))
            return bad(r, d, "a device of 1 to 127 bytes", e);
        memcpy(device, d.p, d.n);
        device[d.n] = 0;
    }
    t.device = device;
    if ((rc = power_of(r, &t.power_w, e)) || (rc = utilization_of(r, &t.utilization, e)))
        return rc;
    return fn(ctx, &t, e);
}

int telemetry_parse(const char *text, size_t n, const char *name, const struct telemetry_zone *zone,
                    telemetry_fn *fn, void *ctx, struct err *e) {
    struct reader r = {.name = name, .zone = *zone, .factor = 1};
    const char *at = text, *end = n ? text + n : text, *lf;
    int rc = 0;
    if (n >= 3 && !memcmp(at, "\xef\xbb\xbf", 3))
        at += 3;
    for (; !rc && at < end && (lf = memchr(at, '\n', (size_t)(end - at))); at = lf + 1) {
        struct str line = trim(at, (size_t)(lf - at));
        r.line++;
        r.at = at;
        if (line.n > TELEMETRY_LINE_MAX_BYTES)
            rc = bad(&r, line, "a line of at most 64 KiB", e);
        else if (!line.n || (!r.width && line.n > 6 && !memcmp(line.p, "'CTRL'", 6)))
            continue;
        else if (!r.width)
            rc = take_header(&r, line, e);
        else if (line.n != r.header.n || memcmp(line.p, r.header.p, line.n) != 0)
            rc = row(&r, line, fn, ctx, e);
    }
    return rc;
}
