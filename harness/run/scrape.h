/* Reads a server's /metrics while a run goes on: once before, every interval, once after. One thread
 * with one libcurl handle, of low priority; it shares nothing with the client but the machine. It is
 * not pinned: the client's threads are not either, and a fixed CPU might be just theirs. */
#ifndef HARNESS_RUN_SCRAPE_H
#define HARNESS_RUN_SCRAPE_H

#include "harness/core/err.h"
#include "harness/measure/series.h"

#include <stdint.h>

enum { SCRAPE_URLS_MAX = 32, SCRAPE_BODY_MAX_BYTES = 64 * 1024 * 1024 };

struct scraper;

/* Makes the reading before the run. urls: borrowed until scraper_free, as is log, which must not be
 * touched by others until scraper_stop. origin_ns: CLOCK_MONOTONIC time of the run's zero.
 * A URL that cannot be reached or shows something else: ASSAY_EENV; with optional set, *out is NULL
 * and the log stays empty instead. Credentials in a URL are ASSAY_EUSAGE: the record names it. */
int scraper_open(const char *const *urls, int nurls, bool optional, int64_t origin_ns,
                 int64_t interval_ns, struct series_log *log, struct scraper **out,
                 struct err *e) MUST_USE;
int scraper_start(struct scraper *s, struct err *e) MUST_USE;
/* Ends the thread and makes the last reading. Never fails: what went wrong is in the scrapes' ok. */
void scraper_stop(struct scraper *s);
/* What the first failed reading said, "" when none failed. */
const char *scraper_error(const struct scraper *s);
void scraper_free(struct scraper *s); /* NULL is fine */

#endif
