/* The simulator against published measurements: error by kind, chip generation and size class.
 *
 * Reads the tables of measurements (CSV; columns by header), models every row it can with the same
 * code that runs answer, and names the reason for every row it cannot: no row is dropped in
 * silence. Rows whose chip or count their source only lets one infer are counted on their own (kind
 * "…_inferred"), since they would blur a certified error. */
#ifndef HARNESS_RUN_VALIDATE_H
#define HARNESS_RUN_VALIDATE_H

#include "harness/core/err.h"

#include <jansson.h>
#include <stdbool.h>

struct validate_options {
    const char *const *overrides; /* "CHIP.KEY=VALUE": figures of a chip file, as v6e.hbm_eff=0.9 */
    int noverrides;
    bool points; /* list every modelled row under "points" */
};

/* {"rows":N,"modelled":M,"unmodelled":[{"id","why"}],
 *  "by":[{"kind","generation","size_class","n","mean","median","p95","bias"}]}
 * Errors are fractions of the measurement; mean, median and p95 of |error|, bias of the error
 * itself. ASSAY_EINPUT names the file and line of a malformed row. */
int validate_files(const char *const *paths, int npaths, const struct validate_options *o,
                   json_t **out, struct err *e) MUST_USE;

#endif
