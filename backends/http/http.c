/* Backend `http`: a client of OpenAI- and Anthropic-style endpoints that times what it reads as exactly as one
 * thread can. The vtable, the options and the set-up are here; a request's life is in stream.c,
 * waiting in loop.c, what an endpoint says of itself in endpoint.c, the
 * choice among several in route.c, trying again in retry.c. */
#include "backends/http/http_internal.h"

#include "harness/core/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const char *const whens[] = {"auto", "on", "off", NULL};
static const char *const prompts[] = {"ids", "text", NULL};
static const char *const verifies[] = {"off", "on", "fail", NULL};
static const char *const versions[] = {"1.1", "2", NULL};
static const char *const salts[] = {"off", "request", "session", NULL};
static const char *const max_fields[] = {"auto", "max_tokens", "max_completion_tokens",
                                         "max_output_tokens", NULL};

#define AT(f) offsetof(struct http_options, f)
const struct option http_options_table[] = {
    {"url", OPT_STR, AT(url), .flags = OPTION_REQUIRED,
     .help = "http://host:port, or with a path ending in /v1 or in an API's own; several endpoints: "
             "separated by commas"},
    {"route", OPT_ENUM, AT(route), .choices = route_names, .def = "round-robin",
     .help = "which of several endpoints a request goes to"},
    {"http", OPT_ENUM, AT(http), .choices = versions, .def = "1.1",
     .help = "2: many streams a connection; https negotiates it, http takes it for granted"},
    {"unix_socket", OPT_STR, AT(unix_socket),
     .help = "path of a Unix socket to connect to instead"},
    {"api", OPT_ENUM, AT(api), .choices = protocol_names, .def = "completions", .help = "which API to speak: OpenAI's completions, chat and responses, Anthropic's messages"},
    {"server", OPT_ENUM, AT(server), .choices = server_kind_names, .def = "auto",
     .help = "whose quirks to respect; auto: as the endpoint says of itself, generic: nobody's"},
    {"model", OPT_STR, AT(model), .help = "served name; default: asked from the endpoint"},
    {"stream", OPT_BOOL, AT(stream), .def = "on", .help = "ask for server-sent events"},
    {"prompt", OPT_ENUM, AT(prompt), .choices = prompts, .def = "ids",
     .help = "completions: token ids (exact input length) or words"},
    {"header", OPT_STR, AT(header), .flags = OPTION_SECRET,
     .help = "'Name: value' sent with every request; several: separated by newlines"},
    {"header_env", OPT_STR, AT(header_env), .flags = OPTION_SECRET,
     .help = "'Name: VARIABLE': a header whose value an environment variable holds; several: "
             "separated by newlines"},
    {"header_file", OPT_STR, AT(header_file), .flags = OPTION_SECRET,
     .help = "file of 'Name: value' lines sent with every request"},
    {"api_key_env", OPT_STR, AT(api_key_env), .flags = OPTION_SECRET,
     .help = "environment variable that holds the key"},
    {"api_key_file", OPT_STR, AT(api_key_file), .flags = OPTION_SECRET,
     .help = "file that holds the key"},
    {"auth", OPT_ENUM, AT(auth), .choices = auth_names, .def = "auto",
     .help = "how the key is sent; auto: x-api-key for messages, else bearer"},
    {"ca_file", OPT_STR, AT(ca_file), .help = "https: trusted certificates (PEM)"},
    {"tls_verify", OPT_BOOL, AT(tls_verify), .def = "on", .help = "https: check the certificate"},
    {"proxy", OPT_STR, AT(proxy), .help = "proxy URL; the environment's is never used"},
    {"reuse", OPT_BOOL, AT(reuse), .def = "on", .help = "keep connections for later requests"},
    {"prewarm", OPT_BOOL, AT(prewarm), .def = "on",
     .help = "connect for max_in_flight requests (at most 4096) before the run begins"},
    {"timeout_connect", OPT_DURATION, AT(timeout_connect_ns), .min = 1e6, .max = 3.6e12,
     .def = "10s", .help = "connection set-up; also the answer to the first probe"},
    {"timeout_first_token", OPT_DURATION, AT(timeout_first_token_ns), .def = "600s",
     .help = "from issue to the first token event; 0 = none"},
    {"timeout_idle", OPT_DURATION, AT(timeout_idle_ns), .def = "120s",
     .help = "between reads once tokens came; 0 = none"},
    {"timeout_total", OPT_DURATION, AT(timeout_total_ns), .def = "3600s",
     .help = "from issue to the end; 0 = none"},
    {"timeout_drain", OPT_DURATION, AT(timeout_drain_ns), .min = 1e6, .max = 3.6e12, .def = "2s",
     .help = "from [DONE] or an error event to the body's end; then the connection is dropped"},
    {"retries", OPT_I64, AT(retries), .min = 0, .max = 1000, .def = "0",
     .help = "further attempts after connect errors, resets before any byte, 429 and 503; the wait "
             "is part of the latency"},
    {"retry_backoff", OPT_DURATION, AT(retry_backoff_ns), .min = 1e6, .max = 3.6e12, .def = "250ms",
     .help = "before the first retry when no Retry-After says; doubles with each"},
    {"retry_backoff_max", OPT_DURATION, AT(retry_backoff_max_ns), .min = 1e6, .max = 3.6e12,
     .def = "30s", .help = "where the doubling ends"},
    {"redirects", OPT_I64, AT(redirects), .min = 0, .max = 20, .def = "0",
     .help = "307 and 308 to follow in a row, as part of the latency; another origin gets no key and "
             "no header of yours; else a redirect is a failure"},
    {"compression", OPT_BOOL, AT(compression), .def = "off",
     .help = "ask for compressed answers; what comes compressed is decoded in any case"},
    {"cancel_fraction", OPT_F64, AT(cancel_fraction), .min = 0, .max = 1, .def = "0",
     .help = "part of the requests that the client gives up while they stream"},
    {"cancel_tokens", OPT_I64, AT(cancel_tokens), .unit = "token events", .min = 1, .max = 1e9,
     .def = "1", .help = "after which it gives up"},
    {"ignore_eos", OPT_ENUM, AT(ignore_eos), .choices = whens, .def = "auto",
     .help = "send ignore_eos: true; auto: where the API and the server have it"},
    {"min_tokens", OPT_ENUM, AT(min_tokens), .choices = whens, .def = "auto",
     .help = "send min_tokens = output length; auto: where the API and the server have it"},
    {"max_tokens_field", OPT_ENUM, AT(max_tokens_field), .choices = max_fields, .def = "auto",
     .help = "auto: what the API and the server call it; max_completion_tokens for chat"},
    {"include_usage", OPT_ENUM, AT(include_usage), .choices = whens, .def = "auto",
     .help = "ask for a usage event; auto: where the API has to be asked"},
    {"continuous_usage", OPT_BOOL, AT(continuous_usage), .def = "off",
     .help = "ask for usage on every event: exact tokens per event (vLLM, SGLang)"},
    {"return_token_ids", OPT_BOOL, AT(return_token_ids), .def = "off",
     .help = "ask for token ids in every event (vLLM)"},
    {"temperature", OPT_F64, AT(temperature), .min = -1, .max = 2, .def = "0",
     .help = "sampling temperature; negative = not sent"},
    {"extra", OPT_STR, AT(extra), .help = "JSON object whose members are added to every request"},
    {"vocab", OPT_I64, AT(vocab), .unit = "tokens", .min = 0, .max = 1e7, .def = "0",
     .help = "vocabulary that token ids are drawn from; 0 = the workload's model"},
    {"history", OPT_BYTES, AT(history_bytes), .min = 1e6, .max = 1e12, .def = "1GiB",
     .help = "most memory for the texts of the sessions in flight, per thread"},
    {"salt", OPT_ENUM, AT(salt), .choices = salts, .def = "off",
     .help = "against prefix caches: other leading tokens in each request or session"},
    {"session_header", OPT_STR, AT(session_header),
     .help = "header that names the session, for sticky routing, such as X-Session-ID"},
    {"tokenizer", OPT_STR, AT(tokenizer),
     .help = "the model's tokenizer.json, or its folder: counts answers, makes text prompts of exact "
             "length"},
    {"chat_template", OPT_STR, AT(chat_template),
     .help = "family whose template the server puts around messages, or off; default: as beside the "
             "tokenizer"},
    {"count", OPT_ENUM, AT(count), .choices = count_names, .def = "auto",
     .help = "output tokens: by the first of these that a request gives; auto: in this order"},
    {"verify_length", OPT_ENUM, AT(verify_length), .choices = verifies, .def = "on",
     .help = "output length against what was asked: on = counted in the details, fail = the "
             "request fails"},
    {"max_event", OPT_BYTES, AT(max_event_bytes), .min = 1024, .max = 1e9, .def = "16MiB",
     .help = "largest event or body"},
    {"spin", OPT_DURATION, AT(spin_ns), .min = 0, .max = 1e9, .def = "60us",
     .help = "busy wait before a deadline: exact issue times"},
    {"busy_poll", OPT_BOOL, AT(busy_poll), .def = "off",
     .help = "never sleep while requests are in flight: takes a whole core a thread, and no wake-up "
             "is in the stamps"},
    {0},
};

static void global_init(void) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

void http_easy_common(struct http *h, CURL *c) {
    const struct http_options *o = &h->o;
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_HTTP_VERSION,
                     o->http == HTTP_1_1       ? (long)CURL_HTTP_VERSION_1_1
                     : h->endpoints[0].tls     ? (long)CURL_HTTP_VERSION_2TLS
                                               : (long)CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
    curl_easy_setopt(c, CURLOPT_TCP_NODELAY, 1L);
    /* decodes what comes compressed, asked or not; headers.c decides whether it is asked for */
    curl_easy_setopt(c, CURLOPT_ACCEPT_ENCODING, "");
    curl_easy_setopt(c, CURLOPT_PROXY, o->proxy ? o->proxy : "");
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)(o->timeout_connect_ns / NS_PER_MS));
    curl_easy_setopt(c, CURLOPT_RESOLVE, h->resolve);
    if (o->unix_socket)
        curl_easy_setopt(c, CURLOPT_UNIX_SOCKET_PATH, o->unix_socket);
    if (o->ca_file)
        curl_easy_setopt(c, CURLOPT_CAINFO, o->ca_file);
    if (!o->tls_verify) {
        curl_easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 0L);
    }
}

/* ---- open ---- */

/* connections 0: as many as the system grants, since nobody knows how many it will take. */
static int check_file_limit(int64_t connections, struct err *e) {
    enum { OTHER_FILES = 128, UNBOUNDED = 65536 };
    struct rlimit r;
    rlim_t want = connections ? (rlim_t)connections + OTHER_FILES : UNBOUNDED;
    if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur == RLIM_INFINITY || r.rlim_cur >= want)
        return 0;
    rlim_t had = r.rlim_cur;
    r.rlim_cur = r.rlim_max == RLIM_INFINITY || r.rlim_max >= want ? want : r.rlim_max;
    if ((setrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur < want) && connections)
        return err_set(e, ASSAY_EENV,
                       "%lld requests in flight need %lld open files, the limit is %lld (ulimit)",
                       (long long)connections, (long long)want, (long long)had);
    return 0;
}

static int add_slot(struct http *h, struct err *e) {
    if (h->nslots == h->cap_slots) {
        size_t cap = h->cap_slots ? h->cap_slots * 2 : 64;
        struct slot **p = realloc(h->slots, cap * sizeof *p);
        if (!p)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        h->slots = p;
        struct slot **w = realloc(h->waiting, cap * sizeof *w), **b = calloc(cap, sizeof *b);
        if (w)
            h->waiting = w;
        if (!w || !b) {
            free(b);
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        }
        slots_rehash(h, b, cap);
        h->cap_slots = cap;
    }
    struct slot *s;
    int rc = slot_new(h, &s, e);
    if (rc)
        return rc;
    h->slots[h->nslots++] = s;
    s->next_free = h->free;
    h->free = s;
    return 0;
}

/* Room for one more completion than there are requests that could give one. */
static int grow_ready(struct http *h, struct err *e) {
    if (h->nready + (size_t)h->in_flight + 1 < h->cap_ready)
        return 0;
    size_t cap = h->cap_ready ? h->cap_ready * 2 : 128;
    struct completion *p = calloc(cap, sizeof *p);
    if (!p)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    for (size_t i = 0; i < h->nready; i++)
        p[i] = h->ready[(h->ready_head + i) % h->cap_ready];
    free(h->ready);
    h->ready = p;
    h->ready_head = 0;
    h->cap_ready = cap;
    return 0;
}

static size_t discard(char *p, size_t one, size_t n, void *ctx) {
    (void)p;
    (void)one;
    (void)ctx;
    return n;
}

struct warming {
    CURL *easy; /* NULL = free */
    struct endpoint *endpoint;
};

static int warming_start(struct http *h, struct warming *w, struct endpoint *ep, struct err *e) {
    CURL *c = curl_easy_init();
    if (!c)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    http_easy_common(h, c);
    curl_easy_setopt(c, CURLOPT_URL, ep->models_url);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, h->headers);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, discard);
    curl_easy_setopt(c, CURLOPT_PRIVATE, w);
    /* a connection each, not one after the other over the same */
    curl_easy_setopt(c, CURLOPT_FRESH_CONNECT, 1L);
    *w = (struct warming){c, ep};
    return loop_add(&h->loop, c, e);
}

static void warming_end(struct warming *w) {
    long connects = 0;
    curl_easy_getinfo(w->easy, CURLINFO_NUM_CONNECTS, &connects);
    w->endpoint->connections += connects;
    curl_easy_cleanup(w->easy);
    w->easy = NULL;
}

/* Opens n connections to each endpoint by asking for the model list on each, so that the first
 * requests of the run find them ready; not all at once, since a server's queue of connections is
 * short. A connection that cannot be had is no error here: the request will tell. */
static int prewarm(struct http *h, int64_t n, struct err *e) {
    enum { AT_ONCE = 64 };
    struct warming w[AT_ONCE] = {0};
    int64_t begun = 0, ended = 0, all = n * (int64_t)h->nendpoints;
    int64_t deadline = clock_now_ns() + h->o.timeout_connect_ns;
    int rc = 0;
    while (ended < all && !rc && clock_now_ns() < deadline) {
        for (int i = 0; i < AT_ONCE && begun < all && !rc; i++)
            if (!w[i].easy)
                rc = warming_start(h, &w[i], &h->endpoints[begun++ / n], e);
        bool drained;
        CURLcode code;
        if (!rc)
            rc = loop_step(&h->loop, deadline, 0, &drained, e);
        for (CURL *c; (c = loop_finished(&h->loop, &code)); ended++) {
            struct warming *mine = NULL;
            curl_easy_getinfo(c, CURLINFO_PRIVATE, &mine);
            warming_end(mine);
        }
    }
    for (int i = 0; i < AT_ONCE; i++)
        if (w[i].easy) {
            curl_multi_remove_handle(h->loop.multi, w[i].easy);
            warming_end(&w[i]);
        }
    h->loop.in_multi = 0;
    return rc;
}

/* How many connections an endpoint needs for its part of the requests in flight. */
static int64_t connections_each(const struct http *h, int64_t in_flight) {
    enum { PREWARM_MAX = 4096 };
    if (h->o.http == HTTP_2)
        return 1;
    int64_t n = in_flight < PREWARM_MAX ? in_flight : PREWARM_MAX, each = (int64_t)h->nendpoints;
    return (n + each - 1) / each;
}

/* The optional members of requests: as asked, else those that the API and every server have. */
static unsigned choose_fields(const struct http *h) {
    const struct http_options *o = &h->o;
    const struct {
        int when;
        unsigned field;
    } rows[] = {
        {o->ignore_eos, FIELD_IGNORE_EOS},
        {o->min_tokens, FIELD_MIN_TOKENS},
        {o->include_usage, FIELD_INCLUDE_USAGE},
        {o->continuous_usage ? WHEN_ON : WHEN_OFF, FIELD_CONTINUOUS_USAGE},
        {o->return_token_ids ? WHEN_ON : WHEN_OFF, FIELD_RETURN_TOKEN_IDS},
    };
    unsigned fields = 0, known = h->protocol->fields;
    for (size_t i = 0; i < h->nendpoints; i++)
        known &= h->endpoints[i].kind->accepts;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].when == WHEN_ON ||
            (rows[i].when == WHEN_AUTO && known & rows[i].field))
            fields |= rows[i].field;
    return fields;
}

/* What requests call the output length; NULL: as the API does. */
static const char *choose_max_key(const struct http *h) {
    if (h->o.max_tokens_field)
        return max_fields[h->o.max_tokens_field];
    return h->o.api == API_CHAT ? h->endpoints[0].kind->chat_max_tokens_key : NULL;
}

static void http_close(struct backend *b);

static int http_open(const struct backend_open_args *args, struct backend **out, struct err *e) {
    enum { SLOTS_UNBOUNDED = 64, KEPT_UNBOUNDED = 4096 };
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, global_init);
    struct http *h = calloc(1, sizeof *h);
    if (!h)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    h->base.ops = &backend_http;
    h->o = *(const struct http_options *)args->options;
    h->workload = args->workload;
    h->sink = args->sink;
    h->origin_ns = args->origin_ns;
    h->loop = LOOP_NONE;
    const struct http_options *o = &h->o;
    h->protocol = &protocols[o->api];
    h->timers[TIMER_CONNECT].duration_ns = o->timeout_connect_ns;
    h->timers[TIMER_FIRST_TOKEN].duration_ns = o->timeout_first_token_ns;
    h->timers[TIMER_IDLE].duration_ns = o->timeout_idle_ns;
    h->timers[TIMER_TOTAL].duration_ns = o->timeout_total_ns;
    h->timers[TIMER_DRAIN].duration_ns = o->timeout_drain_ns;

    int64_t slots = args->max_in_flight > 0 ? args->max_in_flight : SLOTS_UNBOUNDED;
    int rc = 0;
    if (!o->url) {
        rc = err_set(e, ASSAY_EUSAGE, "backend 'http' needs -o url=http://host:port");
        goto out;
    }
    if ((rc = check_file_limit(args->max_in_flight, e)) || (rc = headers_make(h, e)) ||
        (rc = count_open(h, e)) || (rc = route_resolve(h, e)) || (rc = route_probe(h, e)))
        goto out;
    const struct body_options body = {
        .protocol = h->protocol,
        .text = o->prompt == PROMPT_TEXT,
        .model = h->model,
        .max_tokens_key = choose_max_key(h),
        .fields = choose_fields(h),
        .stream = o->stream,
        .temperature = o->temperature,
        .extra = o->extra,
        .vocab = o->vocab                                      ? o->vocab
                 : args->workload && args->workload->has_model ? args->workload->model.vocab
                                                               : 0,
        .words = h->tokens.words.count ? &h->tokens.words : NULL,
        .overhead = h->tokens.overhead,
    };
    const struct talk_options talk = {o->salt, o->history_bytes};
    talk_init(&h->talk, &talk);
    if ((rc = body_template_init(&h->body, &body, e)) ||
        (rc =
             loop_init(&h->loop, args->max_in_flight > 0 ? (long)slots + 16 : KEPT_UNBOUNDED, e)) ||
        (rc = grow_ready(h, e)))
        goto out;
    h->loop.never_sleeps = o->busy_poll;
    for (int64_t i = 0; i < slots && !rc; i++)
        rc = add_slot(h, e);
    if (!rc && o->prewarm && o->reuse)
        rc = prewarm(h, connections_each(h, slots), e);
out:
    if (rc) {
        http_close(&h->base);
        return rc;
    }
    *out = &h->base;
    return 0;
}

static void http_close(struct backend *b) {
    struct http *h = (struct http *)b;
    if (!h)
        return;
    for (size_t i = 0; i < h->nslots; i++) {
        if (h->slots[i]->active && !h->slots[i]->waiting)
            loop_remove(&h->loop, h->slots[i]->easy);
        slot_free(h->slots[i]);
    }
    loop_release(&h->loop);
    free(h->slots);
    free(h->ready);
    talk_release(&h->talk);
    body_template_release(&h->body);
    count_close(h);
    free(h->waiting);
    free(h->buckets);
    route_release(h);
    headers_release(h);
    free(h);
}

/* ---- the run ---- */

static int64_t http_now(struct backend *b) {
    return clock_now_ns() - ((struct http *)b)->origin_ns;
}

static void collect(struct http *h) {
    CURLcode code;
    for (CURL *c; (c = loop_finished(&h->loop, &code));) {
        struct slot *s = NULL;
        curl_easy_getinfo(c, CURLINFO_PRIVATE, &s);
        slot_finish(s, code);
    }
    flush_pending_token(h);
}

static int http_submit(struct backend *b, const struct request *r, struct completion *c,
                       struct err *e) {
    struct http *h = (struct http *)b;
    (void)c;
    if (h->fatal.code) {
        *e = h->fatal;
        return h->fatal.code;
    }
    int rc = grow_ready(h, e);
    if (!rc && !h->free)
        rc = add_slot(h, e);
    if (rc)
        return rc;
    struct slot *s = h->free;
    h->free = s->next_free;
    rc = slot_start(s, r, e);
    if (!rc)
        rc = loop_glance(&h->loop, e);
    collect(h);
    return rc ? rc : SUBMIT_QUEUED;
}

static int http_wait(struct backend *b, int64_t until_ns, struct completion *c, int max, int *n,
                     const volatile int *stop, struct err *e) {
    struct http *h = (struct http *)b;
    int64_t until = until_ns > INT64_MAX - h->origin_ns ? INT64_MAX : until_ns + h->origin_ns;
    *n = 0;
    for (;;) {
        if (h->fatal.code) {
            if (e)
                *e = h->fatal;
            return h->fatal.code;
        }
        while (h->nready && *n < max) {
            c[(*n)++] = h->ready[h->ready_head];
            h->ready_head = (h->ready_head + 1) % h->cap_ready;
            h->nready--;
        }
        if (*n)
            return 0;
        if (*stop)
            return err_set(e, ASSAY_EINTERRUPTED, "interrupted");
        if (until == INT64_MAX && h->in_flight == 0)
            return 0;
        int64_t timer = slots_next_timer(h), retry = retry_next(h);
        if (retry < timer)
            timer = retry;
        bool drained;
        int rc = loop_step(&h->loop, timer < until ? timer : until,
                           timer < until ? 0 : h->o.spin_ns, &drained, e);
        if (rc)
            return rc;
        collect(h);
        int64_t now = h->loop.clock_ns; /* if until passed since, the next step will tell */
        /* bytes that are there already count before a limit does, unless there is no end of them */
        if (timer <= now && (drained || timer + 100 * NS_PER_MS <= now))
            slots_check_timers(h, now);
        if (retry <= now) {
            if ((rc = retry_run(h, now, e)))
                return rc;
            collect(h);
        }
        if (now >= until && !h->nready && !h->fatal.code)
            return 0;
    }
}

static void http_cancel(struct backend *b, uint64_t request) {
    struct http *h = (struct http *)b;
    struct slot *s = slot_find(h, request);
    if (s)
        slot_abort(s, FAIL_CANCELLED);
}

/* ---- describe ---- */

static const struct {
    const char *name;
    size_t offset;
} count_rows[] = {
    {"requests", offsetof(struct http_counts, requests)},
    {"cold_connections", offsetof(struct http_counts, cold_connections)},
    {"retried", offsetof(struct http_counts, retried)},
    {"cancelled_by_option", offsetof(struct http_counts, cancelled)},
    {"token_events", offsetof(struct http_counts, token_events)},
    {"coalesced_token_events", offsetof(struct http_counts, coalesced)},
    {"comments", offsetof(struct http_counts, comments)},
    {"slow_scans", offsetof(struct http_counts, slow_scans)},
    {"requests_without_usage", offsetof(struct http_counts, without_usage)},
    {"usage_beyond_asked", offsetof(struct http_counts, usage_beyond_asked)},
    {"prompt_usage_beyond_sent", offsetof(struct http_counts, prompt_beyond_sent)},
    {"length_mismatch", offsetof(struct http_counts, length_mismatch)},
    {"not_streamed", offsetof(struct http_counts, not_streamed)},
    {"missing_final_blank_line", offsetof(struct http_counts, missing_final_blank_line)},
    {"unclean_close", offsetof(struct http_counts, unclean_close)},
    {"redirected", offsetof(struct http_counts, redirected)},
    {"compressed", offsetof(struct http_counts, compressed)},
    {"requests_without_sent_stamp", offsetof(struct http_counts, without_sent)},
};

static json_t *describe_counts(const struct http_counts *k) {
    json_t *o = json_object();
    for (size_t i = 0; i < sizeof count_rows / sizeof *count_rows; i++) {
        int64_t v;
        memcpy(&v, (const char *)k + count_rows[i].offset, sizeof v);
        if (v)
            json_object_set_new(o, count_rows[i].name, json_integer(v));
    }
    return o;
}

static int64_t count_total(const struct http *h) {
    int64_t n = 0;
    for (int i = 0; i < COUNT_METHODS; i++)
        n += h->tokens.by[i];
    return n;
}

/* What a reader of the numbers must know. */
static json_t *describe_warnings(const struct http *h) {
    json_t *w = json_array();
    const struct http_counts *k = &h->counts;
    if (h->tokens.by[COUNT_EVENTS] && h->o.count != COUNT_EVENTS)
        json_array_append_new(
            w, json_sprintf("%lld requests came without usage: their output tokens are their token events",
                            (long long)h->tokens.by[COUNT_EVENTS]));
    int asked = h->o.count;
    if (asked != COUNT_AUTO && h->tokens.by[asked] < count_total(h))
        json_array_append_new(
            w, json_sprintf("%lld requests could not be counted by %s, as asked: see counted_by",
                            (long long)(count_total(h) - h->tokens.by[asked]), count_names[asked]));
    if (k->usage_beyond_asked)
        json_array_append_new(
            w, json_sprintf("%lld requests came with usage beyond both the tokens that were asked and those "
                            "that arrived: it is not believed beyond the larger of the two",
                            (long long)k->usage_beyond_asked));
    if (k->prompt_beyond_sent)
        json_array_append_new(
            w, json_sprintf("%lld requests came with prompt usage far beyond the prompt that was sent: it is "
                            "not believed",
                            (long long)k->prompt_beyond_sent));
    if (k->length_mismatch && h->o.verify_length != VERIFY_OFF)
        json_array_append_new(w, json_sprintf("uncontrolled output length: %lld requests answered "
                                              "another number of tokens than asked",
                                              (long long)k->length_mismatch));
    if (k->retried)
        json_array_append_new(
            w, json_sprintf(
                   "%lld requests were sent twice: the server closed idle connections under them",
                   (long long)k->retried));
    if (k->not_streamed)
        json_array_append_new(
            w, json_sprintf("%lld requests were answered in one piece: they have no first token",
                            (long long)k->not_streamed));
    if (k->redirected)
        json_array_append_new(
            w, json_sprintf("%lld redirects were followed: their time is part of the latency",
                            (long long)k->redirected));
    if (k->compressed && !h->o.compression)
        json_array_append_new(
            w, json_sprintf("%lld answers came compressed though nobody asked for it: tokens may have "
                            "waited in the server's compressor",
                            (long long)k->compressed));
    return w;
}

/* The text may be anything: bytes that JSON cannot hold become question marks. */
static json_t *describe_error(const struct http *h) {
    json_t *text = json_string(h->first_error);
    if (!text) {
        char plain[sizeof h->first_error];
        size_t n = strlen(h->first_error);
        for (size_t i = 0; i <= n; i++)
            plain[i] = (signed char)h->first_error[i] < 0 ? '?' : h->first_error[i];
        text = json_string(plain);
    }
    return json_pack("{s:s, s:i, s:o}", "class", fail_class_name(h->first_error_class), "status",
                     h->first_error_status, "text", text);
}

/* Beside each model list: http://host/v1/models -> http://host/metrics. */
static void metrics_urls(const struct http *h, char *out, size_t bytes) {
    static const char *const tails[] = {"/v1/models", "/models"};
    struct buf b;
    buf_init(&b, bytes - 1);
    for (size_t i = 0; i < (size_t)h->nendpoints; i++) {
        const char *models = h->endpoints[i].models_url;
        size_t n = strlen(models), tail = 0;
        for (size_t k = 0; !tail && k < sizeof tails / sizeof *tails; k++)
            if (n >= strlen(tails[k]) && !strcmp(models + n - strlen(tails[k]), tails[k]))
                tail = strlen(tails[k]);
        if (tail)
            buf_printf(&b, "%s%.*s/metrics", b.n ? " " : "", (int)(n - tail), models);
    }
    if (b.n && !b.failed)
        memcpy(out, b.p, b.n + 1);
    buf_release(&b);
}

static int http_describe(struct backend *b, struct backend_info *info, struct err *e) {
    struct http *h = (struct http *)b;
    const struct endpoint *first = &h->endpoints[0];
    *info = (struct backend_info){.result_class = h->result_class, .chips = h->chips};
    memcpy(info->chip, h->chip, sizeof info->chip);
    _Static_assert(sizeof h->model == sizeof info->model_id, "copied whole");
    memcpy(info->model_id, h->model, sizeof info->model_id);
    if (!h->o.unix_socket)
        metrics_urls(h, info->metrics_urls, sizeof info->metrics_urls);
    json_t *d = json_object();
    json_object_set_new(d, "options", options_to_json(http_options_table, &h->o));
    json_object_set_new(d, "endpoint", json_string(first->url));
    json_object_set_new(d, "addresses", json_string(first->addresses));
    json_object_set_new(d, "class_source", json_string(h->class_source));
    if (first->server[0])
        json_object_set_new(d, "server", json_string(first->server));
    json_object_set_new(d, "server_kind", json_string(first->kind->name));
    json_object_set_new(d, "server_kind_source", json_string(first->kind_source));
    if (first->chip_sha256[0])
        json_object_set_new(d, "chip_sha256", json_string(first->chip_sha256));
    json_object_set(d, "models", first->model_ids);
    json_object_set_new(d, "endpoints", route_describe(h));
    json_object_set_new(d, "libcurl", json_string(curl_version()));
    json_t *tokenizer = count_describe(h);
    if (tokenizer)
        json_object_set_new(d, "tokenizer", tokenizer);
    if (!d)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    info->details = d;
    return 0;
}

static json_t *http_observe(struct backend *b) {
    struct http *h = (struct http *)b;
    json_t *d = json_object(), *warnings = describe_warnings(h);
    json_object_set_new(d, "counts", describe_counts(&h->counts));
    json_object_set_new(d, "counted_by", count_observe(h));
    if (json_array_size(warnings))
        json_object_set(d, "warnings", warnings);
    json_decref(warnings);
    json_t *wakes = loop_wakes_json(&h->loop);
    if (wakes)
        json_object_set_new(d, "wake_ups", wakes);
    json_object_set_new(d, "endpoints", route_observe(h));
    json_t *retries = retry_observe(h);
    if (retries)
        json_object_set_new(d, "retries", retries);
    if (h->first_error_class)
        json_object_set_new(d, "first_error", describe_error(h));
    return d;
}

const struct backend_ops backend_http = {
    .abi = BACKEND_ABI,
    .name = "http",
    .summary = "a client of OpenAI- and Anthropic-style endpoints, streaming or not: measures a real server",
    .version = "1",
    .caps = BACKEND_SERVING,
    .options = http_options_table,
    .options_size = sizeof(struct http_options),
    .open = http_open,
    .describe = http_describe,
    .observe = http_observe,
    .submit = http_submit,
    .wait = http_wait,
    .now = http_now,
    .cancel = http_cancel,
    .close = http_close,
};
