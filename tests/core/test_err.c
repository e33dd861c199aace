/* The error idiom: codes, context, exit codes. */
#include "harness/core/err.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

Test(core_err, context_goes_in_front) {
    struct err e = {0};
    cr_assert(eq(int, err_set(&e, ASSAY_EINPUT, "expected '%c'", '{'), ASSAY_EINPUT));
    cr_assert(eq(int, err_wrap(&e, "loading '%s'", "x.json"), ASSAY_EINPUT));
    cr_assert(eq(str, e.text, "loading 'x.json': expected '{'"));
}

/* What a message quotes may be a name that clears the screen or forges a title. */
Test(core_err, a_quoted_name_cannot_steer_the_terminal) {
    struct err e = {0};
    err_set(&e, ASSAY_EINPUT, "found '%s'", "\x1b[31mred\r\x7f \xc2\x9b" "2J \xc3\xa9\tend\n");
    cr_assert(eq(str, e.text, "found '?[31mred?? ??2J \xc3\xa9\tend\n'"));
    err_wrap(&e, "%s", "\x07");
    cr_assert(eq(int, e.text[0], '?'));
}

Test(core_err, exit_codes_follow_the_contract) {
    cr_assert(eq(int, err_exit_code(0), 0));
    cr_assert(eq(int, err_exit_code(ASSAY_ENEGATIVE), 1));
    cr_assert(eq(int, err_exit_code(ASSAY_EUSAGE), 2));
    cr_assert(eq(int, err_exit_code(ASSAY_EINPUT), 2));
    cr_assert(eq(int, err_exit_code(ASSAY_EENV), 3));
    cr_assert(eq(int, err_exit_code(ASSAY_EINTERRUPTED), 4));
}
