/* What is read beside a run. */
#include "harness/run/beside.h"

#include "harness/core/clock.h"
#include "harness/measure/server.h"

#include <stdio.h>
#include <string.h>

static int open_scraper(const struct run_options *o, const struct prepared *p, struct beside *b,
                        struct err *e) {
    const char *urls[SCRAPE_URLS_MAX];
    int n = 0;
    bool off = false, automatic = o->nscrape == 0;
    for (int i = 0; i < o->nscrape; i++) {
        if (!strcmp(o->scrape[i], "off")) {
            off = true;
        } else if (!strcmp(o->scrape[i], "auto")) {
            automatic = true;
        } else {
            if (n == SCRAPE_URLS_MAX)
                return err_set(e, ASSAY_EUSAGE, "--scrape: at most %d URLs", SCRAPE_URLS_MAX);
            urls[n++] = o->scrape[i];
        }
    }
    if (off && (n || o->nscrape > 1))
        return err_set(e, ASSAY_EUSAGE, "--scrape: 'off' excludes others");
    if (n && automatic)
        return err_set(e, ASSAY_EUSAGE, "--scrape: 'auto' excludes URLs");
    if (n && p->info.virtual_clock)
        return err_set(e, ASSAY_EUSAGE,
                       "--scrape: this run's clock is virtual: a server's metrics cannot be laid beside it");
    if (off || (automatic && (p->info.virtual_clock || !p->info.metrics_urls[0])))
        return 0;
    snprintf(b->urls, sizeof b->urls, "%s", automatic ? p->info.metrics_urls : "");
    for (char *at = b->urls; *at && n < SCRAPE_URLS_MAX;) {
        urls[n++] = at;
        at += strcspn(at, " ");
        if (*at)
            *at++ = '\0';
    }
    return scraper_open(urls, n, automatic, p->origin_ns,
                        o->scrape_interval_ns ? o->scrape_interval_ns : NS_PER_S, &b->log, &b->scraper, e);
}

int beside_open(const struct run_options *o, const struct prepared *p, struct beside *b,
                struct err *e) {
    *b = (struct beside){0};
    series_log_init(&b->log);
    return open_scraper(o, p, b, e);
}

int beside_start(struct beside *b, struct err *e) {
    return b->scraper ? scraper_start(b->scraper, e) : 0;
}

void beside_stop(struct beside *b) {
    if (b->scraper)
        scraper_stop(b->scraper);
}

/* Whether the workload sends the same tokens twice; a trace may or may not. */
static enum server_prefixes prefixes_of(const struct workload *w) {
    return w->has_sessions  ? SERVER_PREFIXES_SHARED
           : w->trace_path ? SERVER_PREFIXES_UNKNOWN
                           : SERVER_PREFIXES_NONE;
}

static double mean_of(const struct metrics *m, const char *name) {
    const struct metric *v = metrics_find(m, name, "mean");
    return v ? v->value : 0;
}

int beside_report(struct beside *b, struct store *s, const struct run_handle *h,
                  const struct prepared *p, const struct metrics *m, struct err *e) {
    struct server_compare c = {.ttft_mean_ns = mean_of(m, "ttft_ns"),
                               .e2e_mean_ns = mean_of(m, "e2e_ns"),
                               .prefixes = prefixes_of(p->workload)};
    struct eventlog_source src;
    if (!b->log.nsources)
        return 0;
    int rc = store_log_open(s, h->run_id, &src, e);
    if (rc)
        return rc;
    rc = client_totals_read(&src, &c.totals, e);
    store_log_close(&src);
    if (!rc)
        rc = server_report(&b->log, c.totals.window_begin_ns, c.totals.window_begin_ns + m->duration_ns,
                           &c, &b->server, e);
    if (!rc)
        rc = series_log_sort(&b->log, e);
    if (rc)
        return rc;
    series_digest(&b->log, b->digest);
    b->any = true;
    return 0;
}

void beside_summary(const struct beside *b, json_t *summary) {
    json_t *warnings = json_object_get(summary, "warnings");
    if (b->server) {
        json_object_set(summary, "server", b->server);
        json_array_extend(warnings, json_object_get(b->server, "warnings"));
    }
    const char *why = b->scraper ? scraper_error(b->scraper) : "";
    if (*why)
        json_array_append_new(warnings, json_sprintf("the server's metrics were not always read: %s", why));
}

void beside_release(struct beside *b) {
    scraper_free(b->scraper);
    series_log_release(&b->log);
    json_decref(b->server);
    *b = (struct beside){0};
}
