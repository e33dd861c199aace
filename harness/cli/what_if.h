/* `run --what-if`: the same run on chips with one figure changed, each a run of its own with its own record, and how
 * the answer moved. */
#ifndef HARNESS_CLI_WHAT_IF_H
#define HARNESS_CLI_WHAT_IF_H

#include "harness/cli/verb.h"
#include "harness/run/run.h"

#include <jansson.h>
#include <stdio.h>

/* list: "hbm_gbps=1.5x,mxu_eff=0.9": figures of the chip, factors or values. base: the options of the run whose
 * result r is. *out: [{what, run, valid, figures: {NAME: {value, ratio}}}], a new reference.
 * The check comes before the run: a list or a key that is wrong must not cost it. */
int what_if_check(const char *list, const struct run_options *base, struct err *e) MUST_USE;
int what_if_execute(const char *list, const struct run_options *base, const struct run_result *r, json_t **out,
                    struct err *e) MUST_USE;
void what_if_print(const json_t *rows, struct arena *a, FILE *out);

#endif
