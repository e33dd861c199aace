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

/* ---- telemetry ---- */

enum { MARGIN_S = 60 }; /* readings so far outside the run are not kept */

struct telemetry_file {
    struct beside *b;
    uint32_t source, round;
    int64_t from_ns, to_ns;
};

static int ignore_reading(void *ctx, const struct telemetry_reading *r, struct err *e) {
    (void)ctx;
    (void)r;
    (void)e;
    return 0;
}

static int keep_reading(void *ctx, const struct telemetry_reading *r, struct err *e) {
    struct telemetry_file *f = ctx;
    struct series_scrape s = {.source = f->source, .round = f->round, .ok = true};
    struct buf *labels = &f->b->log.key;
    int64_t since;
    if (__builtin_sub_overflow(r->wall_ns, f->b->wall_ns, &since) ||
        __builtin_add_overflow(since, f->b->run_ns, &s.t_ns) || s.t_ns < f->from_ns || s.t_ns > f->to_ns)
        return 0;
    buf_clear(labels);
    buf_puts(labels, "{\"device\":");
    json_text_put(labels, (struct str){r->device, strlen(r->device)});
    buf_putc(labels, '}');
    int rc = buf_check(labels, "a device's name", e);
    if (!rc)
        rc = series_put(&f->b->log, f->source, "power_w", labels->p, PROM_GAUGE, r->power_w, e);
    if (!rc)
        rc = series_put(&f->b->log, f->source, "utilization", labels->p, PROM_GAUGE, r->utilization, e);
    if (!rc)
        rc = series_commit(&f->b->log, &s, true, e);
    f->round++;
    return rc;
}

static int read_telemetry(struct beside *b, const char *path, telemetry_fn *fn, void *ctx,
                          struct err *e) {
    struct buf text;
    int rc = buf_read_file(&text, path, TELEMETRY_FILE_MAX_BYTES, e);
    if (!rc)
        rc = telemetry_parse(text.p, text.n, path, &b->zone, fn, ctx, e);
    buf_release(&text);
    return rc;
}

/* What is in the files already must be readable; that they grow is the point of them. */
static int open_telemetry(const struct run_options *o, const struct prepared *p, struct beside *b,
                          struct err *e) {
    b->o = o;
    b->wall_ns = clock_wall_ns();
    b->run_ns = clock_now_ns() - p->origin_ns;
    int rc = telemetry_zone_parse(o->telemetry_tz ? o->telemetry_tz : "local", &b->zone, e);
    if (!rc && o->ntelemetry && p->info.virtual_clock)
        rc = err_set(e, ASSAY_EUSAGE,
                     "--telemetry: this run's clock is virtual: readings of devices cannot be laid beside it");
    for (int i = 0; !rc && i < o->ntelemetry; i++)
        rc = read_telemetry(b, o->telemetry[i], ignore_reading, NULL, e);
    return rc;
}

static int take_telemetry(struct beside *b, int64_t end_ns, struct err *e) {
    for (int i = 0; i < b->o->ntelemetry; i++) {
        const char *path = b->o->telemetry[i], *slash = strrchr(path, '/');
        struct telemetry_file f = {.b = b,
                                   .from_ns = -MARGIN_S * NS_PER_S,
                                   .to_ns = end_ns + MARGIN_S * NS_PER_S};
        struct err why = {0};
        int rc = series_source_add(&b->log, "telemetry", slash ? slash + 1 : path, &f.source, e);
        if (rc)
            return rc;
        /* the run is over and worth keeping: a file that went bad meanwhile is said, not an end */
        if (read_telemetry(b, path, keep_reading, &f, &why))
            json_array_append_new(b->notes, json_sprintf("telemetry was read in part: %s", why.text));
    }
    return 0;
}

int beside_open(const struct run_options *o, const struct prepared *p, struct beside *b,
                struct err *e) {
    *b = (struct beside){.notes = json_array()};
    series_log_init(&b->log);
    int rc = open_telemetry(o, p, b, e);
    return rc ? rc : open_scraper(o, p, b, e);
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
    return workload_has_sessions(w)  ? SERVER_PREFIXES_SHARED
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
    if (!b->scraper && !b->o->ntelemetry)
        return 0;
    int rc = store_log_open(s, h->run_id, &src, e);
    if (rc)
        return rc;
    rc = client_totals_read(&src, &c.totals, e);
    store_log_close(&src);
    int64_t begin = c.totals.window_begin_ns, end = begin + m->duration_ns;
    if (!rc)
        rc = take_telemetry(b, end, e);
    if (!rc)
        rc = server_report(&b->log, begin, end, &c, &b->server, e);
    if (!rc)
        rc = power_report(&b->log, begin, end, m->output_tokens, p->facts.chips,
                          b->o->telemetry_gap_ns ? b->o->telemetry_gap_ns : 5 * NS_PER_S, &b->power, e);
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
    if (b->power) {
        json_object_set(summary, "power", b->power);
        json_array_extend(warnings, json_object_get(b->power, "warnings"));
    }
    json_array_extend(warnings, b->notes);
    const char *why = b->scraper ? scraper_error(b->scraper) : "";
    if (*why)
        json_array_append_new(warnings, json_sprintf("the server's metrics were not always read: %s", why));
}

void beside_release(struct beside *b) {
    scraper_free(b->scraper);
    series_log_release(&b->log);
    json_decref(b->server);
    json_decref(b->power);
    json_decref(b->notes);
    *b = (struct beside){0};
}
