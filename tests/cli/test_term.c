/* Numbers with units, tables and the progress line, against strings written by hand. */
#include "harness/cli/term.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include <stdlib.h>
#include <string.h>

typedef const char *format_fn(char *out, double v);

Test(cli_term, numbers_carry_units_and_three_digits) {
    static const struct {
        format_fn *f;
        double v;
        const char *want;
    } rows[] = {
        {fmt_ns, 0, "0 ns"},
        {fmt_ns, 412, "412 ns"},
        {fmt_ns, 999, "999 ns"},
        {fmt_ns, 1000, "1.00 µs"},
        {fmt_ns, 18340, "18.3 µs"},
        {fmt_ns, 1.2399e6, "1.24 ms"},
        {fmt_ns, 99.96e6, "100 ms"},
        {fmt_ns, 999.9e6, "1.00 s"},
        {fmt_ns, 612.4e9, "612.4 s"},
        {fmt_number, 0, "0"},
        {fmt_number, 0.0123, "0.0123"},
        {fmt_number, 1.5, "1.50"},
        {fmt_number, 9.996, "10.0"},
        {fmt_number, 123.45, "123.5"},
        {fmt_number, 1234567.2, "1,234,567"},
        {fmt_number, 0.00012, "0.00012"},
        {fmt_bytes, 512, "512 B"},
        {fmt_bytes, 1536, "1.50 KiB"},
        {fmt_bytes, 34359738368.0, "32.0 GiB"},
        {fmt_percent, 0.7121, "71.2 %"},
        {fmt_si, 918e12, "918 T"},
        {fmt_si, 1.64e12, "1.64 T"},
        {fmt_si, 12, "12.0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char out[FMT_BYTES];
        cr_assert(eq(str, (char *)rows[i].f(out, rows[i].v), (char *)rows[i].want));
    }
    char out[FMT_BYTES];
    cr_assert(eq(str, (char *)fmt_count(out, 0), "0"));
    cr_assert(eq(str, (char *)fmt_count(out, 999), "999"));
    cr_assert(eq(str, (char *)fmt_count(out, 1000), "1,000"));
    cr_assert(eq(str, (char *)fmt_count(out, -1234567), "-1,234,567"));
    cr_assert(eq(str, (char *)fmt_count(out, INT64_MIN), "-9,223,372,036,854,775,808"));
}

static char *printed(void (*print)(FILE *out)) {
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    print(f);
    fclose(f);
    return text;
}

static void small_table(FILE *out) {
    struct arena a = {0};
    struct table t;
    table_init(&t, &a, "lr", (const char *const[]){"name", "µs"});
    table_cell(&t, "a");
    table_cell(&t, "1");
    table_cell(&t, "longer\033[31m");
    table_cellf(&t, "%d", 1000);
    table_cell(&t, "last");
    table_cell(&t, "");
    table_print(&t, out, 2);
    arena_release(&a);
}

Test(cli_term, tables_align_and_let_no_escape_through) {
    char *text = printed(small_table);
    cr_assert(eq(str, text, "  name           µs\n"
                            "  a               1\n"
                            "  longer?[31m  1000\n"
                            "  last\n"));
    free(text);
}

static void wrapped(FILE *out) {
    fputs("0123", out);
    term_wrap(out, "one two three four\nfive", 4, 2, 12);
}

Test(cli_term, words_wrap_at_the_width) {
    char *text = printed(wrapped);
    cr_assert(eq(str, text, "0123one two\n  three four\n  five\n"));
    free(text);
}

Test(cli_term, progress_says_how_far_and_until_when) {
    char text[256];
    struct run_progress p = {.elapsed_ns = 65 * INT64_C(1000000000), .issued = 300, .done = 250,
        .failed = 2, .total = 1000, .in_flight = 50, .rate_per_s = 3.85,
        .e2e_p50_ns = 120 * 1000000, .e2e_p99_ns = 900 * 1000000};
    progress_format(&p, "", 65 * INT64_C(1000000000), text, sizeof text);
    cr_assert(eq(str, text, "1:05  250/1,000 (25 %)  failed 2  in flight 50  3.85/s  "
                            "E2E p50 120 ms p99 900 ms  ETA 3:15"));
    p = (struct run_progress){.total = -1};
    progress_format(&p, "x=1", 0, text, sizeof text);
    cr_assert(eq(str, text, "x=1  0:00  0  in flight 0  0/s"));
}
