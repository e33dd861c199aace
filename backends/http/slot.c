/* Slots: what a request in flight owns, made at open and used again and again; and their time
 * limits. What happens to a response is in stream.c. */
#include "backends/http/http_internal.h"

#include "harness/core/clock.h"
#include "harness/core/rng.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- timers ---- */

void timer_disarm(struct slot *s, enum slot_timer k) {
    struct slot_link *link = &s->timer[k];
    struct slot_list *list = &s->h->timers[k];
    if (!link->armed)
        return;
    *(link->prev ? &link->prev->timer[k].next : &list->head) = link->next;
    *(link->next ? &link->next->timer[k].prev : &list->tail) = link->prev;
    *link = (struct slot_link){0};
}

/* Nearly always at the tail; a retried request goes back to the place its issue gave it. */
void timer_arm(struct slot *s, enum slot_timer k, int64_t from_ns) {
    struct slot_list *list = &s->h->timers[k];
    timer_disarm(s, k);
    if (!list->duration_ns)
        return;
    int64_t at_ns = from_ns + list->duration_ns;
    struct slot *prev = list->tail;
    while (prev && prev->timer[k].at_ns > at_ns)
        prev = prev->timer[k].prev;
    struct slot *next = prev ? prev->timer[k].next : list->head;
    s->timer[k] = (struct slot_link){prev, next, at_ns, true};
    *(prev ? &prev->timer[k].next : &list->head) = s;
    *(next ? &next->timer[k].prev : &list->tail) = s;
}

int64_t slots_next_timer(const struct http *h) {
    int64_t at = INT64_MAX;
    for (int k = 0; k < TIMER_COUNT; k++) {
        const struct slot *s = h->timers[k].head;
        if (s && s->timer[k].at_ns < at)
            at = s->timer[k].at_ns;
    }
    return at;
}

void slots_check_timers(struct http *h, int64_t now_ns) {
    static const int classes[TIMER_COUNT] = {
        [TIMER_CONNECT] = FAIL_TIMEOUT_CONNECT,
        [TIMER_FIRST_TOKEN] = FAIL_TIMEOUT_FIRST_TOKEN,
        [TIMER_IDLE] = FAIL_TIMEOUT_IDLE,
        [TIMER_TOTAL] = FAIL_TIMEOUT_TOTAL,
        [TIMER_DRAIN] = FAIL_NO_OUTPUT, /* only when [DONE] came without a token */
    };
    for (int k = 0; k < TIMER_COUNT; k++)
        for (struct slot *s; (s = h->timers[k].head) && s->timer[k].at_ns <= now_ns;) {
            /* not set anew at each read: that would touch three slots for every event */
            if (k == TIMER_IDLE && s->read_ns + h->timers[k].duration_ns > now_ns)
                timer_arm(s, TIMER_IDLE, s->read_ns);
            else
                slot_abort(s, classes[k]);
        }
}

/* ---- life ---- */

/* A connection of its own for a request: also when libcurl tries again because a kept one had died. */
static int on_new_socket(void *ctx, curl_socket_t fd, curlsocktype purpose) {
    (void)fd, (void)purpose;
    struct slot *s = ctx;
    if (!s->timer[TIMER_CONNECT].armed)
        timer_arm(s, TIMER_CONNECT, clock_now_ns());
    return CURL_SOCKOPT_OK;
}

int slot_new(struct http *h, struct slot **out, struct err *e) {
    struct slot *s = calloc(1, sizeof *s);
    if (!s || !(s->easy = curl_easy_init())) {
        free(s);
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    }
    s->h = h;
    buf_init(&s->body, BODY_MAX_BYTES);
    buf_init(&s->answer, (size_t)h->o.max_event_bytes);
    buf_reserve(&s->answer, h->o.stream ? SLOT_ERROR_BYTES : 65536);
    sse_init(&s->sse, (size_t)h->o.max_event_bytes);
    answer_init(&s->text, 0, (size_t)h->o.max_event_bytes);
    CURL *c = s->easy;
    http_easy_common(h, c);
    stream_attach(s);
    /* libcurl would keep its own limit in a tree that it searches at each read, connected or not; it
     * then has one of 300 s that cannot be turned off, only raised */
    if (h->o.timeout_connect_ns < 300 * NS_PER_S)
        curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, 0L);
    curl_easy_setopt(c, CURLOPT_SOCKOPTFUNCTION, on_new_socket);
    curl_easy_setopt(c, CURLOPT_SOCKOPTDATA, s);
    curl_easy_setopt(c, CURLOPT_PRIVATE, s);
    curl_easy_setopt(c, CURLOPT_POST, 1L);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, h->headers);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, s->curl_error);
    /* several streams of one connection wait for it rather than open more */
    curl_easy_setopt(c, CURLOPT_PIPEWAIT, h->o.http == HTTP_2 ? 1L : 0L);
    if (!h->o.reuse) {
        curl_easy_setopt(c, CURLOPT_FRESH_CONNECT, 1L);
        curl_easy_setopt(c, CURLOPT_FORBID_REUSE, 1L);
    }
    *out = s;
    return 0;
}

void slot_free(struct slot *s) {
    if (!s)
        return;
    curl_easy_cleanup(s->easy);
    buf_release(&s->body);
    buf_release(&s->answer);
    answer_release(&s->text);
    sse_release(&s->sse);
    free(s);
}

/* ---- by request ---- */

static struct slot **bucket(const struct http *h, uint64_t request) {
    return &h->buckets[request * 0x9E3779B97F4A7C15u >> 32 & (h->nbuckets - 1)];
}

struct slot *slot_find(const struct http *h, uint64_t request) {
    struct slot *s = h->nbuckets ? *bucket(h, request) : NULL;
    while (s && s->request != request)
        s = s->next_same;
    return s;
}

static void remember(struct slot *s) {
    struct slot **b = bucket(s->h, s->request);
    s->next_same = *b;
    *b = s;
}

void slot_forget(struct slot *s) {
    struct slot **p = bucket(s->h, s->request);
    while (*p != s)
        p = &(*p)->next_same;
    *p = s->next_same;
}

void slots_rehash(struct http *h, struct slot **buckets, size_t n) {
    free(h->buckets);
    h->buckets = buckets;
    h->nbuckets = n;
    for (size_t i = 0; i < h->nslots; i++)
        if (h->slots[i]->active)
            remember(h->slots[i]);
}

/* ---- a request ---- */

/* The session's own header in front of the list that all requests share. */
static void put_session_header(struct slot *s, const struct request *r) {
    struct http *h = s->h;
    const char *name = h->o.session_header;
    if (!name && r->talk)
        name = "X-Session-ID";
    bool send = name && r->session != REQUEST_NO_SESSION;
    if (send) {
        char value[160];
        talk_session_name(r, value, sizeof value);
        snprintf(s->session_line, sizeof s->session_line, "%.80s: %s", name, value);
        s->session_header = (struct curl_slist){s->session_line, h->headers};
    }
    curl_easy_setopt(s->easy, CURLOPT_HTTPHEADER, send ? &s->session_header : h->headers);
}

void slot_clear(struct slot *s) {
    buf_clear(&s->answer);
    answer_clear(&s->text);
    sse_clear(&s->sse);
    s->curl_error[0] = '\0';
    s->out_bytes = 0;
    s->begun = s->sent = s->read_is_head = s->is_json = s->compressed = s->done_seen = s->finish_seen =
        s->fail_put = false;
    s->read_action = s->read_number = s->read_bytes = 0;
    s->read_ns = s->since_ns = s->before_ns = 0;
    s->mode = MODE_HEAD;
    s->status = 0;
    s->ids_complete = true;
    s->token_events = 0;
    s->ids = 0;
    s->cumulative = s->prompt_tokens = s->completion_tokens = s->cached_tokens =
        s->reasoning_tokens = s->written_tokens = -1;
    s->fail = FAIL_NONE;
    s->retry_after_s = s->answer_date_s = -1;
}

int slot_send(struct slot *s, struct err *e) {
    timer_arm(s, TIMER_CONNECT, clock_now_ns());
    return loop_add(&s->h->loop, s->easy, e);
}

/* Which requests are given up early: a pure function of the request, so the same ones in each run. */
static uint32_t choose_cancel(const struct http_options *o, const struct request *r) {
    uint64_t state = r->id ^ 0x63616e63656cu;
    double u = (double)(splitmix64(&state) >> 11) * 0x1p-53;
    return u < o->cancel_fraction ? (uint32_t)o->cancel_tokens : 0;
}

/* A large buffer for a large body only: libcurl allocates it for each upload. */
static long upload_buffer(size_t body_bytes) {
    enum { SMALL = 64 * 1024, LARGE = 512 * 1024 };
    return body_bytes > SMALL ? LARGE : SMALL;
}

/* Bytes for an answer's text: its tokens, with what a server escapes. */
static size_t text_room(const struct answer *a, uint32_t osl) {
    enum { BYTES_PER_TOKEN = 24, BYTES_SPARE = 4096 };
    size_t room = (size_t)osl * BYTES_PER_TOKEN + BYTES_SPARE;
    return room < a->raw.max ? room : a->raw.max;
}

int slot_start(struct slot *s, const struct request *r, struct err *e) {
    struct http *h = s->h;
    int rc = talk_body(&h->talk, &h->body, r, &s->body, e);
    if (rc)
        return rc;
    put_session_header(s, r);
    s->turn = talk_turn_of(r);
    slot_clear(s);
    if (count_keeps_text(h)) /* before the clock starts; only very long tokens need more */
        buf_reserve(&s->text.raw, text_room(&s->text, r->osl));
    s->active = true;
    s->request = r->id;
    s->isl = r->isl;
    s->osl = r->osl;
    s->attempts = 0;
    s->cancel_at = choose_cancel(&h->o, r);
    remember(s);
    h->counts.requests++;
    h->in_flight++;
    struct endpoint *ep = route_choose(h, r);
    if (s->endpoint != ep || s->redirected)
        curl_easy_setopt(s->easy, CURLOPT_URL, ep->url);
    s->redirected = 0;
    s->endpoint = ep;
    ep->requests++;
    ep->in_flight++;
    s->issued_ns = clock_now_ns();
    timer_arm(s, TIMER_TOTAL, s->issued_ns);
    if (h->o.stream)
        timer_arm(s, TIMER_FIRST_TOKEN, s->issued_ns);
    curl_easy_setopt(s->easy, CURLOPT_UPLOAD_BUFFERSIZE, upload_buffer(s->body.n));
    curl_easy_setopt(s->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)s->body.n);
    curl_easy_setopt(s->easy, CURLOPT_POSTFIELDS, s->body.p);
    return slot_send(s, e);
}
