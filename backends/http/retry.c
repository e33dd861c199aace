/* Trying again, when asked: which failures, how long to wait, and the requests that wait. The wait
 * is the user's: latency goes on counting from the intended time, and limits from the issue. */
#include "backends/http/http_internal.h"

#include "harness/core/clock.h"
#include "harness/core/rng.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* What is safe and useful to send again: nothing was read of an answer, or the server asked to come
 * back. A row without a status is for any. */
static const struct retry_row {
    int fail_class, status;
    const char *name;
} rows[RETRY_ROWS] = {
    {FAIL_CONNECT, 0, "connect"},
    {FAIL_TIMEOUT_CONNECT, 0, "timeout_connect"},
    {FAIL_RESET, 0, "reset"}, /* before any byte of the answer */
    {FAIL_HTTP_STATUS, 429, "http_429"},
    {FAIL_HTTP_STATUS, 503, "http_503"},
};

static int find_row(const struct slot *s) {
    bool any_byte = s->read_number > 0;
    for (int i = 0; i < RETRY_ROWS; i++)
        if (rows[i].fail_class == s->fail && (rows[i].status ? rows[i].status == s->status
                                                             : !any_byte))
            return i;
    return -1;
}

/* ---- how long ---- */

enum { RETRY_AFTER_MAX_S = 1000 * 1000 };

/* The value of a header line that has this name, as a string; false when it is another header or
 * longer than any date. */
static bool value_of(const char *line, size_t n, const char *name, char *out, size_t out_bytes) {
    size_t k = strlen(name);
    if (n <= k || line[k] != ':' || strncasecmp(line, name, k))
        return false;
    for (line += k + 1, n -= k + 1; n && (*line == ' ' || *line == '\t'); line++)
        n--;
    while (n && strchr("\r\n \t", line[n - 1]))
        n--;
    if (n == 0 || n >= out_bytes || memchr(line, '\0', n))
        return false;
    memcpy(out, line, n);
    out[n] = '\0';
    return true;
}

/* Retry-After is a number of seconds or an HTTP date (RFC 9110 section 10.2.3). */
void retry_header(struct slot *s, const char *line, size_t n) {
    char text[64];
    if (value_of(line, n, "Date", text, sizeof text)) {
        s->answer_date_s = curl_getdate(text, NULL);
    } else if (value_of(line, n, "Retry-After", text, sizeof text)) {
        s->retry_after_date = text[strspn(text, "0123456789")] != '\0';
        if (s->retry_after_date)
            s->retry_after_s = curl_getdate(text, NULL);
        else
            s->retry_after_s = strlen(text) > 7 ? RETRY_AFTER_MAX_S : strtol(text, NULL, 10);
    }
}

/* -1: the answer does not say. A date counts from the answer's own date, so clocks may differ. */
static int64_t asked_wait_s(const struct slot *s) {
    int64_t wait_s = s->retry_after_s;
    if (wait_s < 0)
        return -1;
    if (s->retry_after_date) {
        wait_s -= s->answer_date_s >= 0 ? s->answer_date_s : (int64_t)time(NULL);
        if (wait_s < 0)
            wait_s = 0;
    }
    return wait_s < RETRY_AFTER_MAX_S ? wait_s : RETRY_AFTER_MAX_S;
}

/* backoff * 2^attempts up to the maximum, of which the upper half is spread: requests that failed
 * together do not come back together. The spread depends on the request alone. */
static int64_t backoff_ns(const struct slot *s) {
    const struct http_options *o = &s->h->o;
    int64_t ns = o->retry_backoff_ns;
    for (uint32_t k = 0; k < s->attempts && ns < o->retry_backoff_max_ns; k++)
        ns *= 2;
    if (ns > o->retry_backoff_max_ns)
        ns = o->retry_backoff_max_ns;
    uint64_t state = s->request * 64 + s->attempts;
    double u = (double)(splitmix64(&state) >> 11) * 0x1p-53;
    return ns / 2 + (int64_t)((double)(ns / 2) * u);
}

/* ---- the requests that wait: a binary heap by time ---- */

static void put_at(struct http *h, size_t i, struct slot *s) {
    h->waiting[i] = s;
    s->waiting_at = i;
}

static void rise(struct http *h, size_t i, struct slot *s) {
    for (size_t up; i && h->waiting[up = (i - 1) / 2]->retry_at_ns > s->retry_at_ns; i = up)
        put_at(h, i, h->waiting[up]);
    put_at(h, i, s);
}

static void sink(struct http *h, size_t i, struct slot *s) {
    for (size_t k; (k = 2 * i + 1) < h->nwaiting; i = k) {
        if (k + 1 < h->nwaiting && h->waiting[k + 1]->retry_at_ns < h->waiting[k]->retry_at_ns)
            k++;
        if (h->waiting[k]->retry_at_ns >= s->retry_at_ns)
            break;
        put_at(h, i, h->waiting[k]);
    }
    put_at(h, i, s);
}

void retry_forget(struct slot *s) {
    struct http *h = s->h;
    size_t i = s->waiting_at;
    struct slot *last = h->waiting[--h->nwaiting];
    s->waiting = false;
    if (last == s)
        return;
    if (i && h->waiting[(i - 1) / 2]->retry_at_ns > last->retry_at_ns)
        rise(h, i, last);
    else
        sink(h, i, last);
}

int64_t retry_next(const struct http *h) {
    return h->nwaiting ? h->waiting[0]->retry_at_ns : INT64_MAX;
}

int retry_run(struct http *h, int64_t now_ns, struct err *e) {
    while (h->nwaiting && h->waiting[0]->retry_at_ns <= now_ns) {
        struct slot *s = h->waiting[0];
        retry_forget(s);
        int rc = slot_send(s, e);
        if (rc)
            return rc;
    }
    return 0;
}

/* Clears the attempt that is over and sends the request again at at_ns. */
void retry_at(struct slot *s, int64_t at_ns) {
    struct http *h = s->h;
    s->retry_at_ns = at_ns;
    slot_clear(s);
    timer_disarm(s, TIMER_CONNECT);
    timer_disarm(s, TIMER_IDLE);
    timer_disarm(s, TIMER_DRAIN);
    if (h->o.stream)
        timer_arm(s, TIMER_FIRST_TOKEN, s->issued_ns);
    s->waiting = true;
    rise(h, h->nwaiting++, s);
}

/* ---- the decision ---- */

bool retry_takes(struct slot *s) {
    struct http *h = s->h;
    int row = s->attempts < h->o.retries ? find_row(s) : -1;
    if (row < 0 || s->waiting)
        return false;
    int64_t asked_s = rows[row].status ? asked_wait_s(s) : -1, now = clock_now_ns();
    int64_t at_ns = now + (asked_s >= 0 ? asked_s * NS_PER_S : backoff_ns(s));
    h->retried_by[row]++;
    s->endpoint->retries++;
    s->attempts++;
    retry_at(s, at_ns);
    return true;
}

json_t *retry_observe(const struct http *h) {
    json_t *o = json_object();
    for (int i = 0; i < RETRY_ROWS; i++)
        if (h->retried_by[i])
            json_object_set_new(o, rows[i].name, json_integer(h->retried_by[i]));
    if (json_object_size(o))
        return o;
    json_decref(o);
    return NULL;
}
