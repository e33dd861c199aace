/* The scraper: see the header. */
#include "harness/run/scrape.h"

#include "harness/core/clock.h"
#include "harness/measure/prometheus.h"

#include <curl/curl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TIMEOUT_CONNECT_MS = 2000, TIMEOUT_MS = 10000, NICE = 10 };

struct target {
    struct scraper *s;
    const char *url;
    uint32_t source;
    /* one reading */
    struct prom prom;
    bool begun; /* prom is initialised */
    int64_t bytes;
    struct err err;
};

struct scraper {
    struct series_log *log;
    struct target target[SCRAPE_URLS_MAX];
    int ntargets;
    int64_t origin_ns, interval_ns;
    uint32_t round;
    CURL *easy;
    struct curl_slist *headers;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool started, stopping; /* stopping: under lock */
    bool memory;            /* the log could not grow: no more readings */
    char curl_error[CURL_ERROR_SIZE];
    struct err first;
};

/* ---- one reading ---- */

static int on_sample(void *ctx, const struct prom_sample *p, struct err *e) {
    struct target *t = ctx;
    return series_put_prom(t->s->log, t->source, p, e);
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx) {
    struct target *t = ctx;
    long status = 0;
    curl_easy_getinfo(t->s->easy, CURLINFO_RESPONSE_CODE, &status);
    n *= size;
    t->bytes += (int64_t)n;
    if (status != 200)
        return n;
    if (t->bytes > SCRAPE_BODY_MAX_BYTES) {
        err_set(&t->err, ASSAY_EENV, "%s: more than %d bytes", t->url, SCRAPE_BODY_MAX_BYTES);
        return 0;
    }
    if (!t->begun) {
        char *type = NULL;
        curl_easy_getinfo(t->s->easy, CURLINFO_CONTENT_TYPE, &type);
        bool openmetrics = type && strstr(type, "openmetrics");
        prom_init(&t->prom, t->url, openmetrics, on_sample, t);
        t->begun = true;
    }
    return prom_feed(&t->prom, data, n, &t->err) ? 0 : n;
}

static int get(struct scraper *s, struct target *t) {
    long status = 0;
    curl_easy_setopt(s->easy, CURLOPT_URL, t->url);
    curl_easy_setopt(s->easy, CURLOPT_WRITEDATA, t);
    s->curl_error[0] = '\0';
    t->err = (struct err){0};
    t->begun = false;
    t->bytes = 0;
    CURLcode code = curl_easy_perform(s->easy);
    curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
    if (t->err.code)
        return t->err.code;
    if (code)
        return err_set(&t->err, ASSAY_EENV, "cannot read '%s': %s", t->url,
                       s->curl_error[0] ? s->curl_error : curl_easy_strerror(code));
    if (status != 200)
        return err_set(&t->err, ASSAY_EENV, "cannot read '%s': HTTP status %ld", t->url, status);
    int rc = t->begun ? prom_finish(&t->prom, &t->err) : 0;
    if (!rc && !(t->begun && t->prom.samples))
        rc = err_set(&t->err, ASSAY_EENV, "'%s' shows no metrics", t->url);
    return rc;
}

static void read_target(struct scraper *s, struct target *t) {
    int64_t begin = clock_now_ns();
    int rc = get(s, t);
    int64_t took = clock_now_ns() - begin;
    if (t->begun)
        prom_release(&t->prom);
    t->begun = false;
    struct series_scrape scrape = {.source = t->source,
                                   .round = s->round,
                                   .t_ns = begin + took / 2 - s->origin_ns,
                                   .took_ns = took,
                                   .bytes = t->bytes,
                                   .ok = rc == 0};
    if (rc && !s->first.code)
        s->first = t->err;
    struct err e = {0};
    if (series_commit(s->log, &scrape, false, &e)) {
        s->memory = true;
        s->log->full = true;
    }
}

static void read_round(struct scraper *s) {
    for (int i = 0; i < s->ntargets && !s->memory; i++)
        read_target(s, &s->target[i]);
    s->round++;
}

/* ---- the thread ---- */

static struct timespec at(int64_t ns) {
    return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
}

/* Rounds keep to a grid; one that is missed is left out, not made up for. */
static void *scrape_main(void *arg) {
    struct scraper *s = arg;
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE); /* of this thread alone, on Linux */
    int64_t next = clock_now_ns() + s->interval_ns;
    pthread_mutex_lock(&s->lock);
    while (!s->stopping) {
        struct timespec until = at(next);
        pthread_cond_timedwait(&s->wake, &s->lock, &until);
        int64_t now = clock_now_ns();
        if (s->stopping || now < next)
            continue;
        pthread_mutex_unlock(&s->lock);
        read_round(s);
        now = clock_now_ns();
        while (next <= now)
            next += s->interval_ns;
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

int scraper_start(struct scraper *s, struct err *e) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for the client's threads */
    s->started = pthread_create(&s->thread, NULL, scrape_main, s) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return s->started ? 0 : err_set(e, ASSAY_EENV, "cannot start the thread that reads /metrics");
}

static void stop_thread(struct scraper *s) {
    if (!s->started)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    s->started = false;
}

void scraper_stop(struct scraper *s) {
    stop_thread(s);
    read_round(s);
}

const char *scraper_error(const struct scraper *s) {
    return s->first.text;
}

/* ---- opening ---- */

static int check_url(const char *url, struct err *e) {
    CURLU *u = curl_url();
    char *scheme = NULL, *user = NULL;
    int rc = 0;
    if (!u)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    CURLUcode code = curl_url_set(u, CURLUPART_URL, url, CURLU_NON_SUPPORT_SCHEME);
    if (code)
        rc = err_set(e, ASSAY_EUSAGE, "--scrape: '%s' is not a URL (%s); expected off, auto or http://…",
                     url, curl_url_strerror(code));
    else if (curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) ||
             (strcmp(scheme, "http") && strcmp(scheme, "https")))
        rc = err_set(e, ASSAY_EUSAGE, "--scrape: '%s': expected scheme http or https, found '%s'", url,
                     scheme ? scheme : "none");
    else if (!curl_url_get(u, CURLUPART_USER, &user, 0))
        rc = err_set(e, ASSAY_EUSAGE, "--scrape: credentials in a URL would be recorded");
    curl_free(scheme);
    curl_free(user);
    curl_url_cleanup(u);
    return rc;
}

static int set_up(struct scraper *s, struct err *e) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, &attr);
    pthread_condattr_destroy(&attr);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    s->easy = curl_easy_init();
    s->headers = curl_slist_append(NULL, "Accept: text/plain;version=0.0.4, "
                                         "application/openmetrics-text;version=1.0.0;q=0.5");
    if (!s->easy || !s->headers)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    curl_easy_setopt(s->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(s->easy, CURLOPT_PROXY, ""); /* none of the environment's, as the client */
    curl_easy_setopt(s->easy, CURLOPT_HTTPHEADER, s->headers);
    curl_easy_setopt(s->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(s->easy, CURLOPT_ERRORBUFFER, s->curl_error);
    curl_easy_setopt(s->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)TIMEOUT_CONNECT_MS);
    curl_easy_setopt(s->easy, CURLOPT_TIMEOUT_MS, (long)TIMEOUT_MS);
    curl_easy_setopt(s->easy, CURLOPT_FOLLOWLOCATION, 1L); /* SGLang's /metrics once answered 307 */
    curl_easy_setopt(s->easy, CURLOPT_MAXREDIRS, 3L);
    curl_easy_setopt(s->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    return 0;
}

int scraper_open(const char *const *urls, int nurls, bool optional, int64_t origin_ns,
                 int64_t interval_ns, struct series_log *log, struct scraper **out,
                 struct err *e) {
    *out = NULL;
    if (nurls > SCRAPE_URLS_MAX)
        return err_set(e, ASSAY_EUSAGE, "--scrape: at most %d URLs, found %d", SCRAPE_URLS_MAX, nurls);
    struct scraper *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    s->log = log;
    s->origin_ns = origin_ns;
    s->interval_ns = interval_ns;
    int rc = set_up(s, e);
    for (int i = 0; !rc && i < nurls; i++) {
        struct target *t = &s->target[s->ntargets++];
        *t = (struct target){.s = s, .url = urls[i]};
        if (!(rc = check_url(urls[i], e)))
            rc = series_source_add(log, "prometheus", urls[i], &t->source, e);
    }
    if (!rc) {
        read_round(s);
        if (s->first.code && optional) {
            series_log_release(log);
            series_log_init(log);
            scraper_free(s);
            return 0;
        }
        if (s->first.code)
            rc = err_set(e, ASSAY_EENV, "--scrape: %s", s->first.text);
    }
    if (rc)
        scraper_free(s);
    else
        *out = s;
    return rc;
}

void scraper_free(struct scraper *s) {
    if (!s)
        return;
    stop_thread(s);
    curl_easy_cleanup(s->easy);
    curl_slist_free_all(s->headers);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
