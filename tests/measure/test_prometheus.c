/* The /metrics reader. Truth: what python3-prometheus-client 0.16.0 of Debian 12 reads from the same
 * two texts (tests/data/prometheus/NAME.expected: name|type of the family|sorted labels|value and time
 * stamp), and by hand the errors' places. */
#include "harness/core/buf.h"
#include "harness/measure/prometheus.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b) {
    const struct prom_label *x = a, *y = b;
    size_t n = x->name.n < y->name.n ? x->name.n : y->name.n;
    int c = memcmp(x->name.p, y->name.p, n);
    return c ? c : (x->name.n > y->name.n) - (x->name.n < y->name.n);
}

/* The type as the other reader calls it. */
static const char *type_of(const struct prom_sample *s) {
    if (s->kind == PROM_UNTYPED)
        return "unknown";
    if (s->kind == PROM_OTHER)
        return "info";
    return prom_kind_name(s->kind);
}

struct dump {
    struct buf out;
};

static int on_sample(void *ctx, const struct prom_sample *s, struct err *e) {
    struct dump *d = ctx;
    struct prom_label l[PROM_LABELS_MAX];
    (void)e;
    memcpy(l, s->labels, (size_t)s->nlabels * sizeof *l);
    qsort(l, (size_t)s->nlabels, sizeof *l, by_name);
    buf_printf(&d->out, "%.*s|%s|", (int)s->name.n, s->name.p, type_of(s));
    for (int i = 0; i < s->nlabels; i++) {
        buf_printf(&d->out, "%s%.*s=", i ? "," : "", (int)l[i].name.n, l[i].name.p);
        for (size_t k = 0; k < l[i].value.n; k++)
            if (l[i].value.p[k] == '\n')
                buf_puts(&d->out, "\\n");
            else if (l[i].value.p[k] == '\\')
                buf_puts(&d->out, "\\\\");
            else
                buf_putc(&d->out, l[i].value.p[k]);
    }
    if (isnan(s->value))
        buf_puts(&d->out, "|nan");
    else
        buf_printf(&d->out, "|%.17g", s->value);
    if (s->has_timestamp)
        buf_printf(&d->out, " %.3f", s->timestamp_s);
    buf_putc(&d->out, '\n');
    return 0;
}

static int read_text(const char *text, size_t n, bool openmetrics, size_t step, struct dump *d,
                     struct err *e) {
    struct prom p;
    int rc = 0;
    buf_init(&d->out, 1 << 20);
    prom_init(&p, "t", openmetrics, on_sample, d);
    for (size_t at = 0; !rc && at < n; at += step)
        rc = prom_feed(&p, text + at, n - at < step ? n - at : step, e);
    if (!rc)
        rc = prom_finish(&p, e);
    prom_release(&p);
    return rc;
}

static void check_file(const char *name, const char *expected, bool openmetrics) {
    struct buf text, want;
    struct err e = {0};
    cr_assert(eq(int, buf_read_file(&text, name, 1 << 20, &e), 0), "%s", e.text);
    cr_assert(eq(int, buf_read_file(&want, expected, 1 << 20, &e), 0), "%s", e.text);
    static const size_t steps[] = {1 << 20, 1, 7, 64};
    for (size_t i = 0; i < 4; i++) {
        struct dump d;
        cr_assert(eq(int, read_text(text.p, text.n, openmetrics, steps[i], &d, &e), 0), "%s", e.text);
        cr_assert(eq(str, d.out.p, want.p));
        buf_release(&d.out);
    }
    buf_release(&text);
    buf_release(&want);
}

Test(prometheus, reads_the_text_format_as_the_reference_client_does) {
    check_file("tests/data/prometheus/vllm.prom", "tests/data/prometheus/vllm.expected", false);
}

Test(prometheus, reads_openmetrics_as_the_reference_client_does) {
    check_file("tests/data/prometheus/jetstream.om", "tests/data/prometheus/jetstream.expected", true);
}

Test(prometheus, says_where_a_text_is_malformed) {
    static const struct {
        const char *text, *message;
        bool openmetrics;
    } rows[] = {
        {"a 1\nb{x=\"1\" y=\"2\"} 3\n", "t:2:9: expected ',' or '}', found 'y=\"2\"} 3'", false},
        {"a\n", "t:1:2: expected '{' or a blank and a value, found the end of the line", false},
        {"a 1x\n", "t:1:3: expected a number, found '1x'", false},
        {"a 0x10\n", "t:1:3: expected a number, found '0x10'", false},
        {"a 1 2 3\n", "t:1:7: expected an exemplar or the end of the line, found '3'", false},
        {"a{b=\"c} 1\n", "t:1:10: expected '\"', found the end of the line", false},
        {"a{b=\"c\",b=\"d\"} 1\n", "t:1:9: expected each label name once, found 'b=\"d\"} 1'", false},
        {"\n\n<html>\n",
         "t:3:1: expected a metric name, '#' or an empty line, found '<html>'", false},
        {"# TYPE a meter\n",
         "t:1:10: expected counter, gauge, histogram, summary or untyped, found 'meter'", false},
        {"a 1\n# EOF\na 2\n", "t:3:1: expected nothing after # EOF, found 'a 2'", true},
        {"a 1\n", "t:2:1: expected '# EOF' at the end: the text was cut", true},
        {"a 1 NaN\n", "t:1:5: expected a finite time stamp, found 'NaN'", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = {0};
        struct dump d;
        cr_assert(eq(int, read_text(rows[i].text, strlen(rows[i].text), rows[i].openmetrics, 1024,
                                    &d, &e),
                     ASSAY_EINPUT));
        cr_assert(eq(str, e.text, (char *)rows[i].message));
        buf_release(&d.out);
    }
}

Test(prometheus, a_suffix_belongs_to_a_family_only_where_its_type_gives_it) {
    static const char text[] = "# TYPE a gauge\na_total 1\n# TYPE b counter\nb_total 2\nb_sum 3\r\n"
                               "# TYPE c_total counter\nc_total 4";
    struct dump d;
    struct err e = {0};
    cr_assert(eq(int, read_text(text, sizeof text - 1, false, 1024, &d, &e), 0), "%s", e.text);
    cr_assert(eq(str, d.out.p,
                 "a_total|unknown||1\nb_total|counter||2\nb_sum|unknown||3\nc_total|counter||4\n"));
    buf_release(&d.out);
}

Test(prometheus, keeps_the_families_of_a_large_text) {
    struct buf b;
    struct dump d;
    struct err e = {0};
    buf_init(&b, 4 << 20);
    for (int i = 0; i < 5000; i++)
        buf_printf(&b, "# TYPE m%d_x counter\nm%d_x_total %d\n", i, i, i);
    cr_assert(eq(int, read_text(b.p, b.n, false, 4096, &d, &e), 0), "%s", e.text);
    int lines = 0;
    for (const char *at = d.out.p; (at = strstr(at, "|counter|")); at++)
        lines++;
    cr_assert(eq(int, lines, 5000));
    buf_release(&b);
    buf_release(&d.out);
}

Test(prometheus, refuses_a_line_without_end) {
    struct prom p;
    struct err e = {0};
    struct dump d;
    buf_init(&d.out, 64);
    char *text = malloc(PROM_LINE_MAX_BYTES + 2);
    memset(text, 'a', PROM_LINE_MAX_BYTES + 2);
    prom_init(&p, "t", false, on_sample, &d);
    cr_assert(eq(int, prom_feed(&p, text, PROM_LINE_MAX_BYTES + 2, &e), ASSAY_EINPUT));
    cr_assert(eq(str, e.text, "t:1:1: expected a line of at most 1048576 bytes"));
    prom_release(&p);
    buf_release(&d.out);
    free(text);
}
