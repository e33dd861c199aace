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

Test(core_err, exit_codes_follow_the_contract) {
    cr_assert(eq(int, err_exit_code(0), 0));
    cr_assert(eq(int, err_exit_code(ASSAY_ENEGATIVE), 1));
    cr_assert(eq(int, err_exit_code(ASSAY_EUSAGE), 2));
    cr_assert(eq(int, err_exit_code(ASSAY_EINPUT), 2));
    cr_assert(eq(int, err_exit_code(ASSAY_EENV), 3));
    cr_assert(eq(int, err_exit_code(ASSAY_EINTERRUPTED), 4));
}
