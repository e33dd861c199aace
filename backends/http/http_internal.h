/* What the files of this backend share: its options, one instance, one slot (a request in flight).
 */
#ifndef BACKENDS_HTTP_HTTP_INTERNAL_H
#define BACKENDS_HTTP_HTTP_INTERNAL_H

#include "backends/backend.h"
#include "backends/http/answer.h"
#include "backends/http/body.h"
#include "backends/http/endpoint.h"
#include "backends/http/loop.h"
#include "backends/http/protocol.h"
#include "backends/http/quirks.h"
#include "backends/http/scan.h"
#include "backends/http/sse.h"
#include "backends/http/talk.h"

enum http_when { WHEN_AUTO, WHEN_ON, WHEN_OFF }; /* auto: where the API and the server have it */
enum http_prompt { PROMPT_IDS, PROMPT_TEXT };
enum http_verify { VERIFY_OFF, VERIFY_ON, VERIFY_FAIL };
enum http_version { HTTP_1_1, HTTP_2 };

struct http_options {
    const char *url, *unix_socket, *model, *header, *api_key_env, *api_key_file, *ca_file, *proxy,
        *extra;
    const char *header_env, *header_file;
    int api, server, auth, prompt, verify_length, max_tokens_field, http, route;
    int ignore_eos, min_tokens, include_usage; /* enum http_when */
    bool stream, continuous_usage, return_token_ids;
    bool reuse, prewarm, tls_verify, busy_poll;
    int64_t timeout_connect_ns, timeout_first_token_ns, timeout_idle_ns, timeout_total_ns,
        timeout_drain_ns;
    int64_t spin_ns, max_event_bytes, vocab;
    double temperature;
    int64_t retries, retry_backoff_ns, retry_backoff_max_ns, cancel_tokens;
    double cancel_fraction;
    int64_t redirects;
    bool compression;
    int salt;
    const char *session_header;
    int64_t history_bytes;
    const char *tokenizer, *chat_template;
    int count; /* enum count_method, or COUNT_AUTO */
};
extern const struct option http_options_table[];

/* How the output tokens of a request were counted, in the order of preference of COUNT_AUTO. */
enum count_method { COUNT_USAGE, COUNT_IDS, COUNT_TOKENIZER, COUNT_EVENTS, COUNT_METHODS };
enum { COUNT_AUTO = COUNT_METHODS };

/* Time limits of a request. Each kind has one duration for all requests, so its list, appended at
 * the tail, stays sorted by deadline. */
enum slot_timer { TIMER_CONNECT, TIMER_FIRST_TOKEN, TIMER_IDLE, TIMER_TOTAL, TIMER_DRAIN, TIMER_COUNT };

enum { SLOT_ERROR_BYTES = 4096 }; /* kept of an answer that is an error */

enum { RETRY_ROWS = 5 };       /* rows of the table in retry.c */

struct slot;
struct slot_link {
    struct slot *prev, *next;
    int64_t at_ns; /* machine's clock */
    bool armed;
};
struct slot_list {
    struct slot *head, *tail;
    int64_t duration_ns; /* 0 = this limit is off */
};

enum slot_mode {
    MODE_HEAD,  /* no body byte yet */
    MODE_SSE,   /* events */
    MODE_BODY,  /* one JSON document */
    MODE_ERROR, /* a status other than 200: the first bytes are kept */
};

struct slot {
    struct http *h;
    CURL *easy;
    struct slot *next_free;
    struct slot *next_same; /* in the same bucket of http.buckets */
    struct endpoint *endpoint;
    struct slot_link timer[TIMER_COUNT];
    struct buf body;   /* what is sent */
    struct buf answer; /* MODE_BODY, MODE_ERROR */
    struct answer text; /* of choice 0; kept only for a tokenizer to count */
    struct sse sse;
    char curl_error[CURL_ERROR_SIZE];

    bool active;
    uint64_t request;
    uint32_t isl, osl;
    uint32_t cancel_at;    /* token events after which the client gives up; 0 = never */
    uint32_t attempts;     /* before this one */
    int64_t issued_ns;     /* machine's clock: limits count from here, over all attempts */
    int64_t retry_at_ns;   /* waiting: when the next attempt begins */
    size_t waiting_at;     /* its place in that heap */
    bool waiting;          /* between two attempts: in http.waiting, not in the loop */
    uint32_t redirected;   /* times; the handle's URL and headers are then not the endpoint's */
    int64_t retry_after_s; /* Retry-After of the answer: seconds, or UTC when it was a date */
    bool retry_after_date;
    int64_t answer_date_s; /* its Date; -1 = none */
    struct talk_turn turn;
    struct curl_slist session_header; /* in front of the common headers */
    char session_line[256];

    /* sending */
    size_t out_bytes; /* of the body, accepted by the socket */
    bool begun, sent;

    /* the current read */
    int64_t read_ns;      /* machine's clock right after it */
    uint64_t read_action; /* loop.actions then */
    uint64_t read_number; /* reads of this request; equal = same read */
    bool read_is_head;    /* it began with header bytes */
    size_t read_bytes;    /* so far in that action */
    int64_t since_ns;     /* what it brought came after that */
    int64_t before_ns;    /* a clock reading before it: what it left nothing of came after that */
    uint64_t token_batch; /* loop.batches at the last token event */

    /* the response so far */
    enum slot_mode mode;
    int status;
    bool is_json;      /* by Content-Type */
    bool compressed;   /* by Content-Encoding */
    bool done_seen;    /* [DONE], or the API's last event */
    bool finish_seen;  /* a finish_reason */
    bool fail_put;     /* its failure is in the event log already */
    bool ids_complete; /* every token event had token_ids */
    uint32_t token_events;
    int64_t ids;        /* sum of token_ids */
    int64_t cumulative; /* last completion_tokens of an event with choices; -1 = none */
    int64_t prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens,
        written_tokens; /* -1 = not given */
    int fail;           /* enum fail_class */
};

/* What the metrics do not show; told in the record's details. */
struct http_counts {
    int64_t requests, cold_connections, retried, cancelled, token_events, coalesced, comments, slow_scans,
        without_usage, usage_beyond_asked, prompt_beyond_sent, length_mismatch, not_streamed, missing_final_blank_line, unclean_close,
        without_sent, redirected, compressed;
};

struct tokenizer;
struct tokenizer_work;

/* Counting with a model's tokenizer; see count.c. All NULL without -o tokenizer. */
struct http_tokens {
    const struct tokenizer *tokenizer; /* shared by all threads */
    struct tokenizer_work *work;
    struct buf text; /* of the request that is being counted */
    const char **word;
    struct body_words words;
    struct body_overhead overhead;
    const char *chat; /* name of the chat template; NULL = none */
    int64_t by[COUNT_METHODS], failed;
};

struct pending_token {
    const struct slot *slot; /* NULL = none */
    uint64_t read_number;
    int64_t time_ns, tokens, flags;
};

struct http {
    struct backend base;
    struct http_options o;
    const struct protocol *protocol;
    const struct workload *workload;
    struct event_sink *sink;
    int64_t origin_ns;
    struct endpoint *endpoints;
    size_t nendpoints;
    struct curl_slist *resolve;
    /* of all endpoints together */
    enum result_class result_class; /* the weakest */
    const char *class_source;
    char chip[64], model[128];
    int64_t chips;
    struct buf secrets; /* NUL-terminated values one after the other: never in a record */
    struct curl_slist *headers, *public_headers; /* public: those without the user's own */
    struct body_template body;
    struct talk talk;
    struct http_tokens tokens;
    struct loop loop;
    struct slot **slots;
    size_t nslots, cap_slots;
    struct slot *free;
    struct slot **buckets; /* requests in flight by id; a power of two of them, >= nslots */
    size_t nbuckets;
    struct slot **waiting; /* heap by retry_at_ns; room for nslots */
    size_t nwaiting;
    int64_t retried_by[RETRY_ROWS];
    struct slot_list timers[TIMER_COUNT];
    struct completion *ready; /* ring of cap_ready */
    size_t ready_head, nready, cap_ready;
    int64_t in_flight; /* slots active */
    struct pending_token pending;
    struct http_counts counts;
    struct err fatal; /* code != 0: the run cannot go on */
    int first_error_class, first_error_status;
    char first_error[SLOT_ERROR_BYTES + 1];
};

/* http.c */
void http_easy_common(struct http *h, CURL *easy);

/* count.c */
extern const char *const count_names[]; /* by enum count_method, then auto */
int count_open(struct http *h, struct err *e) MUST_USE;
void count_close(struct http *h);
bool count_keeps_text(const struct http *h); /* answers' texts are wanted */
void count_take_text(struct slot *s, const struct scan *c);
int64_t count_most(const struct slot *s); /* the largest usage that can be believed */
int64_t count_output(struct slot *s, enum count_method *used); /* of a request that has ended well */
json_t *count_describe(const struct http *h); /* NULL without a tokenizer */
json_t *count_observe(const struct http *h); /* requests by method */

/* headers.c */
int headers_make(struct http *h, struct err *e) MUST_USE;
void headers_release(struct http *h);

/* redirect.c */
bool redirect_takes(struct slot *s); /* the answer is a redirect that is followed: not the end */
/* False: not to be followed. *same_origin: it may have what was given for `from`. */
bool redirect_allowed(const char *from, const char *to, bool *same_origin);

/* route.c */
extern const char *const route_names[];
int route_resolve(struct http *h, struct err *e) MUST_USE; /* -o url into endpoints */
int route_probe(struct http *h, struct err *e) MUST_USE;   /* asks all of them */
void route_release(struct http *h);
struct endpoint *route_choose(struct http *h, const struct request *r);
bool route_answered(struct endpoint *ep, CURL *easy); /* a transfer ended; true: on a new connection */
json_t *route_describe(const struct http *h);
json_t *route_observe(const struct http *h);

/* retry.c */
bool retry_takes(struct slot *s); /* the failed attempt is followed by another: not the end */
int retry_run(struct http *h, int64_t now_ns, struct err *e) MUST_USE; /* sends what is due */
int64_t retry_next(const struct http *h);                              /* INT64_MAX = none */
void retry_at(struct slot *s, int64_t at_ns);
void retry_forget(struct slot *s);                                     /* it waits no longer */
void retry_header(struct slot *s, const char *line, size_t n);         /* one header line */
json_t *retry_observe(const struct http *h); /* retries by cause; NULL when there were none */

/* slot.c */
struct slot *slot_find(const struct http *h, uint64_t request);
/* Takes n (a power of two) empty buckets for the table of requests in flight. */
void slots_rehash(struct http *h, struct slot **buckets, size_t n);
void slot_forget(struct slot *s); /* its request is over */
int slot_send(struct slot *s, struct err *e) MUST_USE; /* one attempt */
void slot_clear(struct slot *s);                       /* forgets what an attempt left */
int slot_new(struct http *h, struct slot **out, struct err *e) MUST_USE;
void slot_free(struct slot *s);
int slot_start(struct slot *s, const struct request *r, struct err *e) MUST_USE;
void timer_arm(struct slot *s, enum slot_timer k, int64_t now_ns);
void timer_disarm(struct slot *s, enum slot_timer k);
void slots_check_timers(struct http *h, int64_t now_ns);
int64_t slots_next_timer(const struct http *h); /* INT64_MAX = none */

/* stream.c */
void stream_attach(struct slot *s);              /* sets the callbacks of its easy handle, once */
void slot_finish(struct slot *s, CURLcode code); /* the transfer has left the loop */
void slot_abort(struct slot *s, int fail_class); /* takes it out of the loop, then finishes it */
void flush_pending_token(struct http *h);

#endif
