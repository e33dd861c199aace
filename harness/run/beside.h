/* What is read beside a run: a server's metrics while it goes on, telemetry files afterwards. Private to harness/run. */
#ifndef HARNESS_RUN_BESIDE_H
#define HARNESS_RUN_BESIDE_H

#include "harness/measure/series.h"
#include "harness/measure/telemetry.h"
#include "harness/run/run_internal.h"
#include "harness/run/scrape.h"

struct beside {
    struct series_log log;
    struct scraper *scraper;
    char urls[4096]; /* of the backend, when none was given; split in place */
    json_t *server, *power;
    json_t *notes; /* what the reader must know besides their own warnings; texts */
    const struct run_options *o;
    struct telemetry_zone zone;
    int64_t wall_ns, run_ns; /* one moment in both clocks */
    unsigned char digest[32];
    bool any; /* the log holds something: it is stored and signed */
};

/* Checks the options and makes the first reading; nothing has been written yet. */
int beside_open(const struct run_options *o, const struct prepared *p, struct beside *b,
                struct err *e) MUST_USE;
/* Around the load. */
int beside_start(struct beside *b, struct err *e) MUST_USE;
void beside_stop(struct beside *b);
/* Figures from what was read; m: of the run, its log stored. */
int beside_report(struct beside *b, struct store *s, const struct run_handle *h,
                  const struct prepared *p, const struct metrics *m, struct err *e) MUST_USE;
/* Adds "server", "power" and their warnings to the run's summary. */
void beside_summary(const struct beside *b, json_t *summary);
void beside_release(struct beside *b);

#endif
