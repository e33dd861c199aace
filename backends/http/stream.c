/* One request from its first byte out to its last byte in: stamps, token events, success or the
 * class of failure. Rules: openai-streaming.md sections 4 to 6.
 *
 * Where stamps come from. libcurl's debug callback is called right after each send (with the bytes
 * the socket accepted) and right after each read, before the body is taken out of its chunks. So
 * SENT is the time at which the send that took the last body byte returned, and a token event has
 * the time at which the read of its last byte returned; both are late by one clock reading and one
 * function call, well below a microsecond. Several events of one read share its stamp and are
 * marked so.
 *
 * How late a stamp can be beyond that: the bytes may have waited while other sockets were served. What
 * a read brings came after the last look at all sockets that did not report this one (loop.since_ns),
 * and after the read before it, if that took all there was; the stamp minus that instant bounds the
 * delay and goes into the event. Unseen, and therefore not in it: the wake-up from a sleep in epoll
 * (see loop.h), the kernel's own way from the wire to the socket, and the server's or the network's
 * sending of several events at once. */
#include "backends/http/http_internal.h"

#include "harness/core/clock.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- events ---- */

void flush_pending_token(struct http *h) {
    struct pending_token *p = &h->pending;
    if (!p->slot)
        return;
    event_put(h->sink, p->time_ns, EVENT_TOKENS, p->slot->request, p->tokens, p->flags);
    h->counts.token_events++;
    if (p->flags & TOKENS_COALESCED)
        h->counts.coalesced++;
    p->slot = NULL;
}

static int64_t event_time(const struct http *h, int64_t machine_ns) {
    int64_t t = machine_ns - h->origin_ns;
    return t < h->sink->last_ns ? h->sink->last_ns : t;
}

static void put(struct slot *s, int64_t machine_ns, enum event_kind kind, int64_t a, int64_t b) {
    struct http *h = s->h;
    flush_pending_token(h);
    event_put(h->sink, event_time(h, machine_ns), kind, s->request, a, b);
}

/* The bucket of how long what a read brought may have waited until time_ns, of the backend's clock. */
static int64_t bound_of(const struct slot *s, int64_t time_ns, int64_t since_ns) {
    return event_bound_bucket(time_ns + s->h->origin_ns - since_ns);
}

/* A token event waits until the next one or the end of the read, to learn whether it shares its
 * read. */
static void put_token(struct slot *s, int64_t tokens, int64_t flags) {
    struct http *h = s->h;
    struct pending_token *p = &h->pending;
    if (p->slot == s && p->read_number == s->read_number) {
        p->flags |= TOKENS_COALESCED;
        flags |= TOKENS_COALESCED;
    }
    /* HTTP/2: frames of one read are handed out one by one, among those of other streams */
    if (h->o.http == HTTP_2 && s->token_batch == h->loop.batches)
        flags |= TOKENS_COALESCED;
    s->token_batch = h->loop.batches;
    flush_pending_token(h);
    int64_t t = event_time(h, s->read_ns);
    flags |= bound_of(s, t, s->since_ns) << EVENT_TOKENS_BOUND_SHIFT;
    *p = (struct pending_token){s, s->read_number, t, tokens, flags};
}

/* Keeps the first failure's text for the record; secrets may be echoed by the server. */
static void note_error(struct slot *s, const char *text, size_t n) {
    struct http *h = s->h;
    if (h->first_error_class)
        return;
    h->first_error_class = s->fail;
    h->first_error_status = s->status;
    if (n > SLOT_ERROR_BYTES)
        n = SLOT_ERROR_BYTES;
    memcpy(h->first_error, text, n);
    h->first_error[n] = '\0';
    for (size_t at = 0; at < h->secrets.n; at += strlen(h->secrets.p + at) + 1) {
        const char *secret = h->secrets.p + at;
        size_t k = strlen(secret);
        for (char *hit = h->first_error;
             (hit = memmem(hit, n - (size_t)(hit - h->first_error), secret, k));)
            memset(hit, '*', k);
        enum { TELLING_BYTES = 4 };
        while (--k >= TELLING_BYTES) /* a text may have been cut within the secret */
            if (k <= n && !memcmp(h->first_error + n - k, secret, k))
                memset(h->first_error + n - k, '*', k);
    }
}

static void fail(struct slot *s, enum fail_class c, const char *text, size_t n) {
    if (s->fail)
        return;
    s->fail = (int)c;
    note_error(s, text, n);
    timer_disarm(s, TIMER_FIRST_TOKEN);
    timer_disarm(s, TIMER_IDLE);
}

/* An event that says that the request failed: the failure is of its read; the body's end may take long. */
static void fail_in_band(struct slot *s, const struct sse_event *ev) {
    fail(s, FAIL_IN_BAND_ERROR, ev->data.p, ev->data.n);
    put(s, s->read_ns, EVENT_FAIL, s->fail, s->status);
    s->fail_put = true;
    timer_arm(s, TIMER_DRAIN, s->read_ns);
}

static void lied(struct slot *s, enum result_class c, const char *how) {
    struct http *h = s->h;
    if (c >= h->result_class || h->fatal.code)
        return;
    err_set(&h->fatal, ASSAY_EENV,
            "the endpoint at '%s' said class '%s' when the run began and now says '%s' (%s): its "
            "numbers cannot be trusted",
            s->endpoint->url, result_class_name(h->result_class), result_class_name(c), how);
}

/* ---- the response ---- */

static void merge(int64_t *into, int64_t v) {
    if (v >= 0)
        *into = v;
}

static void take_usage(struct slot *s, const struct scan *c) {
    merge(&s->prompt_tokens, c->prompt_tokens);
    merge(&s->completion_tokens, c->completion_tokens);
    merge(&s->cached_tokens, c->cached_tokens);
    merge(&s->reasoning_tokens, c->reasoning_tokens);
    merge(&s->written_tokens, c->written_tokens);
}

static void take_tokens(struct slot *s, const struct scan *c) {
    unsigned output = c->flags & (SCAN_CONTENT | SCAN_REASONING | SCAN_REFUSAL | SCAN_TOOL_CALL);
    /* Growth of cumulative usage. Usage that first shows up late is a total, not a step, unless the
     * event is the first output. */
    int64_t step = -1;
    if (c->completion_tokens >= 0 && c->completion_tokens <= count_most(s) + 1) {
        if (s->cumulative >= 0)
            step = c->completion_tokens - s->cumulative;
        else if (s->token_events == 0 && output)
            step = c->completion_tokens;
        if (c->completion_tokens > s->cumulative)
            s->cumulative = c->completion_tokens;
    }
    if (!output && c->token_ids <= 0 && step <= 0)
        return;
    int64_t tokens = c->token_ids > 0 ? c->token_ids : step >= 0 ? step : 1;
    if (c->token_ids > 0)
        s->ids += c->token_ids;
    else
        s->ids_complete = false;
    int64_t flags = 0;
    if (output == SCAN_REASONING)
        flags |= TOKENS_REASONING;
    if (output & SCAN_TOOL_CALL)
        flags |= TOKENS_TOOL_CALL;
    if (s->token_events++ == 0) {
        timer_disarm(s, TIMER_FIRST_TOKEN);
        timer_arm(s, TIMER_IDLE, s->read_ns);
    }
    put_token(s, tokens, flags);
    if (s->token_events == s->cancel_at) {
        s->fail = FAIL_CANCELLED; /* wanted: no error to keep */
        s->h->counts.cancelled++;
    }
}

static bool is_done_mark(struct str d) {
    while (d.n && (*d.p == ' ' || *d.p == '\t')) {
        d.p++;
        d.n--;
    }
    while (d.n && (d.p[d.n - 1] == ' ' || d.p[d.n - 1] == '\t' || d.p[d.n - 1] == '\n'))
        d.n--;
    return d.n == 6 && !memcmp(d.p, "[DONE]", 6);
}

/* The API's own end: [DONE], or the last event of an API that has one. */
static void take_end(struct slot *s) {
    s->done_seen = true;
    timer_disarm(s, TIMER_FIRST_TOKEN);
    timer_disarm(s, TIMER_IDLE);
    timer_arm(s, TIMER_DRAIN, s->read_ns);
}

static void on_event(void *ctx, const struct sse_event *ev) {
    struct slot *s = ctx;
    struct http *h = s->h;
    if (s->fail)
        return;
    if (is_done_mark(ev->data)) {
        if (!s->done_seen)
            take_end(s);
        return;
    }
    if (ev->type.n == 5 && !memcmp(ev->type.p, "error", 5)) {
        fail_in_band(s, ev);
        return;
    }
    struct scan c;
    bool slow;
    enum scan_result r = scan_any(h->protocol->dialect, ev->data.p, ev->data.n, &c, &slow);
    h->counts.slow_scans += slow;
    if (r != SCAN_OK) {
        if (!s->done_seen)
            fail(s, FAIL_BAD_JSON, ev->data.p, ev->data.n);
        return;
    }
    if (c.flags & SCAN_SIMULATED)
        lied(s, CLASS_SIMULATED, "in an event");
    if (c.flags & SCAN_USAGE)
        take_usage(s, &c);
    if (s->done_seen)
        return;
    if (c.flags & SCAN_ERROR) {
        fail_in_band(s, ev);
        return;
    }
    if (c.flags & SCAN_FINISH)
        s->finish_seen = true;
    if (c.flags & SCAN_CHOICES) {
        if (count_keeps_text(h))
            count_take_text(s, &c);
        take_tokens(s, &c);
    }
    if (c.flags & SCAN_END && !s->fail)
        take_end(s);
}

static void choose_mode(struct slot *s) {
    long status = 0;
    curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
    s->status = status >= 200 ? (int)status : 0; /* 1xx: no answer came yet */
    if (status != 200)
        s->mode = MODE_ERROR;
    else if (s->is_json || !s->h->o.stream)
        s->mode = MODE_BODY;
    else
        s->mode = MODE_SSE;
    if (s->mode != MODE_SSE)
        timer_disarm(s, TIMER_FIRST_TOKEN);
}

/* A read that may have left something in the socket or in a buffer of libcurl's. */
static bool may_have_left(const struct slot *s) {
    const struct http_options *o = &s->h->o;
    return s->endpoint->tls || o->proxy || o->http == HTTP_2 || s->read_bytes >= CURL_MAX_WRITE_SIZE;
}

/* Stamps a read that has just returned and notes since when what it brought may have waited: since the
 * loop's look, or longer if the read before may have left something, as a full buffer tells and TLS
 * and HTTP/2 hide; or less long if that one left nothing. HTTP/2: a read is of the connection; libcurl
 * hands its frames out stream by stream, and each stream's stamp is late by those before it; what one
 * stream's turn left of another's is known to be gone only when nothing at all was ready. */
static void stamp(struct slot *s) {
    struct loop *l = &s->h->loop;
    if (s->h->o.http == HTTP_2)
        s->since_ns = l->quiet_ns < l->since_ns ? l->quiet_ns : l->since_ns;
    else if (!may_have_left(s))
        s->since_ns = l->since_ns > s->before_ns ? l->since_ns : s->before_ns;
    else if (s->read_ns <= l->since_ns) /* that look would have reported the rest */
        s->since_ns = l->since_ns;
    s->before_ns = l->clock_ns;
    s->read_ns = l->clock_ns = clock_now_ns();
    s->read_action = l->actions;
    s->read_bytes = 0;
    s->read_number++;
}

/* A read that libcurl did not announce would get a stamp here: late by the header's parsing. */
static void ensure_stamp(struct slot *s) {
    struct loop *l = &s->h->loop;
    if (s->read_action == l->actions)
        return;
    stamp(s);
    l->must_look = true;
}

static size_t on_body(char *p, size_t one, size_t n, void *ctx) {
    (void)one;
    struct slot *s = ctx;
    ensure_stamp(s);
    if (s->mode == MODE_HEAD)
        choose_mode(s);
    switch (s->mode) {
    case MODE_SSE:
        if (s->fail)
            return n; /* draining */
        if (sse_feed(&s->sse, p, n, on_event, s))
            fail(s, FAIL_BAD_SSE, "an event is larger than max_event", 33);
        /* what follows cannot be understood, or is not wanted: do not read it */
        return s->fail == FAIL_BAD_SSE || s->fail == FAIL_BAD_JSON || s->fail == FAIL_CANCELLED
                   ? 0
                   : n;
    case MODE_BODY:
        buf_put(&s->answer, p, n);
        if (s->answer.failed)
            fail(s, FAIL_BAD_JSON, "the body is larger than max_event", 33);
        return s->fail ? 0 : n;
    default:
        if (s->answer.n < SLOT_ERROR_BYTES)
            buf_put(&s->answer, p, n < SLOT_ERROR_BYTES ? n : SLOT_ERROR_BYTES);
        return n;
    }
}

/* The value when the line is this header, else n = 0. */
static struct str header_value(const char *line, size_t n, const char *name) {
    size_t k = strlen(name);
    if (n <= k || line[k] != ':' || strncasecmp(line, name, k))
        return (struct str){0};
    line += k + 1;
    n -= k + 1;
    while (n && (*line == ' ' || *line == '\t')) {
        line++;
        n--;
    }
    while (n && (line[n - 1] == '\r' || line[n - 1] == '\n' || line[n - 1] == ' '))
        n--;
    return (struct str){line, n};
}

static size_t on_header(char *p, size_t one, size_t n, void *ctx) {
    (void)one;
    struct slot *s = ctx;
    struct str v;
    enum result_class c;
    switch (n ? p[0] | 0x20 : 0) {
    case 'h': /* a status line: what a 1xx response said no longer counts */
        if (n > 5 && !strncasecmp(p, "HTTP/", 5))
            s->is_json = s->compressed = false;
        break;
    case 'c':
        v = header_value(p, n, "Content-Type");
        if (v.n >= 16 && !strncasecmp(v.p, "application/json", 16))
            s->is_json = true;
        v = header_value(p, n, "Content-Encoding");
        if (v.n && (v.n != 8 || strncasecmp(v.p, "identity", 8)))
            s->compressed = true;
        break;
    case 'x':
        if (endpoint_class_header(p, n, &c))
            lied(s, c, "response header X-Assay-Class");
        break;
    case 'd':
    case 'r':
        if (s->h->o.retries)
            retry_header(s, p, n);
        break;
    default:
        break;
    }
    return n;
}

static void stamp_read(struct slot *s, bool head, size_t n) {
    struct loop *l = &s->h->loop;
    /* the body part of a read that began with headers is announced again */
    bool same = s->read_action == l->actions && s->read_is_head;
    s->read_is_head = head;
    if (!same)
        stamp(s);
    s->read_bytes += n;
    l->must_look |= may_have_left(s);
}

static int on_debug(CURL *easy, curl_infotype type, char *p, size_t n, void *ctx) {
    (void)easy;
    struct slot *s = ctx;
    switch (type) {
    case CURLINFO_HEADER_OUT:
        if (n >= 5 && !memcmp(p, "POST ", 5)) {
            /* libcurl sends again, on a fresh connection, when a reused one was closed unanswered
             */
            s->h->counts.retried += s->begun;
            s->begun = true;
            timer_disarm(s, TIMER_CONNECT);
            s->sent = false;
            s->out_bytes = 0;
        }
        break;
    case CURLINFO_DATA_OUT:
        s->out_bytes += n;
        if (!s->sent && s->out_bytes >= s->body.n) {
            s->sent = true;
            put(s, s->h->loop.clock_ns = clock_now_ns(), EVENT_SENT, 0, 0);
        }
        break;
    case CURLINFO_HEADER_IN:
        stamp_read(s, true, n);
        break;
    case CURLINFO_DATA_IN:
        stamp_read(s, false, n);
        break;
    default:
        break;
    }
    return 0;
}

/* ---- the end ---- */

/* What libcurl's result means when the API's own end was not seen. */
static enum fail_class transport_failure(struct slot *s, CURLcode code) {
    switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
        return FAIL_CONNECT;
    case CURLE_OPERATION_TIMEDOUT: /* libcurl has no other limit */
        return FAIL_TIMEOUT_CONNECT;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_ENGINE_INITFAILED:
    case CURLE_SSL_INVALIDCERTSTATUS:
    case CURLE_USE_SSL_FAILED:
        return FAIL_TLS;
    case CURLE_PARTIAL_FILE:
        return FAIL_TRUNCATED;
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_SEND_FAIL_REWIND:
        return FAIL_RESET;
    case CURLE_RECV_ERROR: {
        /* a broken chunk frame is reported with the same code, without a system error */
        long os_error = 0;
        curl_easy_getinfo(s->easy, CURLINFO_OS_ERRNO, &os_error);
        return os_error || !strstr(s->curl_error, "chunk") ? FAIL_RESET : FAIL_BAD_SSE;
    }
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_HTTP2:
    case CURLE_BAD_CONTENT_ENCODING:
        return FAIL_BAD_SSE;
    default:
        return s->begun ? FAIL_RESET : FAIL_CONNECT;
    }
}

static void end_of_events(struct slot *s) {
    const struct protocol *protocol = s->h->protocol;
    struct sse_event ev;
    if (sse_pending(&s->sse, &ev)) {
        /* the standard discards it; a server that forgot the blank line meant it */
        struct scan c;
        bool slow;
        if (is_done_mark(ev.data) ||
            scan_any(protocol->dialect, ev.data.p, ev.data.n, &c, &slow) == SCAN_OK) {
            s->h->counts.missing_final_blank_line++;
            on_event(s, &ev);
        }
    }
    if (s->fail)
        return;
    if (s->sse.events == 0 && s->sse.ignored > 0 && !s->token_events)
        fail(s, FAIL_BAD_SSE, "the body holds lines, but none of an event stream", 49);
    else if (!s->token_events)
        fail(s, FAIL_NO_OUTPUT, "the stream ended without a token", 32);
    else if (!s->done_seen && (!s->finish_seen || protocol->end_event))
        fail(s, FAIL_NO_TERMINATOR, protocol->no_end, strlen(protocol->no_end));
}

/* One document instead of a stream: asked for, or answered all the same. There is no first token.
 */
static void end_of_body(struct slot *s) {
    struct scan c;
    bool slow;
    if (s->h->o.stream)
        s->h->counts.not_streamed++;
    if (scan_any(s->h->protocol->dialect, s->answer.p ? s->answer.p : "", s->answer.n, &c, &slow) !=
        SCAN_OK) {
        if (s->answer.n)
            fail(s, FAIL_BAD_JSON, s->answer.p, s->answer.n);
        else
            fail(s, FAIL_NO_OUTPUT, "the body is empty", 17);
        return;
    }
    s->h->counts.slow_scans += slow;
    if (c.flags & SCAN_SIMULATED)
        lied(s, CLASS_SIMULATED, "in the body");
    if (c.flags & SCAN_USAGE)
        take_usage(s, &c);
    if (c.flags & SCAN_ERROR) {
        fail(s, FAIL_IN_BAND_ERROR, s->answer.p, s->answer.n);
        return;
    }
    bool output = c.flags & (SCAN_CONTENT | SCAN_REASONING | SCAN_REFUSAL | SCAN_TOOL_CALL);
    if (count_keeps_text(s->h))
        count_take_text(s, &c);
    if (c.token_ids > 0)
        s->ids = c.token_ids;
    else
        s->ids_complete = false;
    if (!output && c.token_ids <= 0 && c.completion_tokens <= 0)
        fail(s, FAIL_NO_OUTPUT, s->answer.p, s->answer.n);
}

static void judge(struct slot *s, CURLcode code) {
    struct http *h = s->h;
    if (s->mode == MODE_HEAD)
        choose_mode(s);
    if (s->fail)
        return;
    if (s->mode == MODE_ERROR && s->status) {
        fail(s, FAIL_HTTP_STATUS, s->answer.p ? s->answer.p : "", s->answer.n);
        return;
    }
    bool api_end = s->mode == MODE_SSE && s->done_seen && s->token_events;
    if (code != CURLE_OK && !api_end) {
        const char *text = s->curl_error[0] ? s->curl_error : curl_easy_strerror(code);
        fail(s, transport_failure(s, code), text, strlen(text));
        return;
    }
    h->counts.unclean_close += code != CURLE_OK;
    if (s->mode == MODE_SSE)
        end_of_events(s);
    else
        end_of_body(s);
}

/* Input tokens as the server counted them; 0: not given, or past all belief. Text may fall into
 * other tokens than it was made from and a template adds some, hence the room. */
static int64_t count_input(struct slot *s) {
    enum { TEMPLATE_TOKENS = 4096 };
    int64_t most = 2 * (int64_t)s->isl + TEMPLATE_TOKENS, n = 0;
    bool beside = s->h->protocol->cached_beside;
    const int64_t parts[] = {s->prompt_tokens, beside ? s->cached_tokens : 0,
                             beside ? s->written_tokens : 0};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i] > most - n) {
            s->h->counts.prompt_beyond_sent++;
            return 0;
        }
        n += parts[i] > 0 ? parts[i] : 0;
    }
    return n;
}

/* v as a part of n: in 0..n. */
static int64_t part_of(int64_t v, int64_t n) {
    return v < 0 ? 0 : v < n ? v : n;
}

static void push_completion(struct http *h, struct completion c) {
    h->ready[(h->ready_head + h->nready++) % h->cap_ready] = c;
}

void slot_finish(struct slot *s, CURLcode code) {
    struct http *h = s->h;
    flush_pending_token(h);
    int64_t end_ns = clock_now_ns();
    int told = h->first_error_class;
    judge(s, code);
    flush_pending_token(h); /* an event without its blank line */
    if (!s->waiting)
        h->counts.cold_connections += route_answered(s->endpoint, s->easy);
    if (s->fail && (redirect_takes(s) || retry_takes(s))) {
        if (!told)
            h->first_error_class = 0; /* of an attempt, not of a request */
        return;
    }
    if (s->waiting)
        retry_forget(s);
    enum count_method counted = COUNT_EVENTS;
    int64_t n = s->fail ? 0 : count_output(s, &counted);
    if (!s->fail) {
        bool exact = counted == COUNT_USAGE || counted == COUNT_IDS; /* the server's own number */
        bool beyond = s->completion_tokens > count_most(s);
        h->counts.without_usage += s->completion_tokens < 0;
        h->counts.usage_beyond_asked += beyond;
        if (exact && (n != s->osl || beyond)) {
            h->counts.length_mismatch++;
            if (h->o.verify_length == VERIFY_FAIL)
                fail(s, FAIL_LENGTH_MISMATCH, "", 0);
        }
        if (!s->fail && n < 1)
            fail(s, FAIL_NO_OUTPUT, "usage says that no token was made", 33);
    }
    h->counts.comments += (int64_t)s->sse.comments;
    h->counts.without_sent += !s->sent;
    h->counts.compressed += s->compressed;
    struct completion c = {.request = s->request, .fail_class = s->fail};
    if (s->fail) {
        if (!s->fail_put)
            put(s, end_ns, EVENT_FAIL, s->fail, s->status);
    } else {
        int64_t in = count_input(s);
        h->tokens.by[counted]++;
        if (s->cached_tokens > 0 || s->reasoning_tokens > 0)
            put(s, end_ns, EVENT_USAGE, part_of(s->cached_tokens, in ? in : s->isl),
                part_of(s->reasoning_tokens, n));
        int64_t since = s->read_ns > h->loop.since_ns ? s->since_ns : h->loop.since_ns;
        put(s, end_ns, EVENT_DONE, n,
            in | bound_of(s, event_time(h, end_ns), since) << EVENT_DONE_BOUND_SHIFT);
        c.output_tokens = n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
    }
    c.time_ns = h->sink->last_ns;
    talk_answered(&h->talk, &s->turn, s->fail != FAIL_NONE);
    push_completion(h, c);
    for (int k = 0; k < TIMER_COUNT; k++)
        timer_disarm(s, (enum slot_timer)k);
    slot_forget(s);
    s->active = false;
    s->endpoint->failed += s->fail != FAIL_NONE;
    s->endpoint->in_flight--;
    h->in_flight--;
    s->next_free = h->free;
    h->free = s;
}

void slot_abort(struct slot *s, int fail_class) {
    if (fail_class && !s->fail && !(s->done_seen && s->token_events))
        fail(s, (enum fail_class)fail_class, "", 0);
    if (!s->waiting)
        loop_remove(&s->h->loop, s->easy);
    slot_finish(s, CURLE_ABORTED_BY_CALLBACK);
}

void stream_attach(struct slot *s) {
    CURL *c = s->easy;
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, s);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, s);
    curl_easy_setopt(c, CURLOPT_DEBUGFUNCTION, on_debug);
    curl_easy_setopt(c, CURLOPT_DEBUGDATA, s);
    curl_easy_setopt(c, CURLOPT_VERBOSE, 1L);
}
