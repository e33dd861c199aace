/* The built program as a child with a home of its own: what it printed, and its exit code. */
#ifndef TESTS_CLI_CHILD_H
#define TESTS_CLI_CHILD_H

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <jansson.h>

/* Any condition with a message, beside the typed comparisons of Criterion. */
#define CHECK(condition, ...) cr_assert(eq(int, !!(condition), 1), ##__VA_ARGS__)

enum { CHILD_TEXT_MAX = 1 << 20 };

struct child {
    int status;                /* exit code; 128 + signal when it was killed */
    char out[CHILD_TEXT_MAX];  /* stdout and stderr, cut at the size, NUL-terminated */
    char err[CHILD_TEXT_MAX];
};

/* A fresh temporary directory for this test's XDG_DATA_HOME; removed by child_home_remove. */
const char *child_home(void);
void child_home_remove(void);

/* Runs `assay ARGS`; ARGS are split at blanks (a part in single quotes stays whole). The result lives
 * until the next call. */
const struct child *assay(const char *args);

/* Parses out as exactly one JSON object; fails the test when it is not. The caller decrefs. */
json_t *child_object(const struct child *c);

#endif
