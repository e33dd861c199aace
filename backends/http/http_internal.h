/* What the files of this backend share: its options, one instance, one slot (a request in flight).
 */
#ifndef BACKENDS_HTTP_HTTP_INTERNAL_H
#define BACKENDS_HTTP_HTTP_INTERNAL_H

#include "backends/backend.h"
#include "backends/http/body.h"
#include "backends/http/endpoint.h"
#include "backends/http/loop.h"
#include "backends/http/scan.h"
#include "backends/http/sse.h"

enum http_api { API_COMPLETIONS, API_CHAT };
enum http_prompt { PROMPT_IDS, PROMPT_TEXT };
enum http_verify { VERIFY_OFF, VERIFY_ON, VERIFY_FAIL };
enum http_max_field { MAX_FIELD_AUTO, MAX_FIELD_TOKENS, MAX_FIELD_COMPLETION };

struct http_options {
    const char *url, *unix_socket, *model, *header, *api_key_env, *api_key_file, *ca_file, *proxy,
        *extra;
    int api, prompt, verify_length, max_tokens_field;
    bool stream, ignore_eos, min_tokens, include_usage, continuous_usage, return_token_ids;
    bool reuse, prewarm, tls_verify;
    int64_t timeout_connect_ns, timeout_first_token_ns, timeout_idle_ns, timeout_total_ns,
        timeout_drain_ns;
    int64_t spin_ns, max_event_bytes, vocab;
    double temperature;
};
extern const struct option http_options_table[];

/* Time limits of a request. Each kind has one duration for all requests, so its list, appended at
 * the tail, stays sorted by deadline. */
enum slot_timer { TIMER_FIRST_TOKEN, TIMER_IDLE, TIMER_TOTAL, TIMER_DRAIN, TIMER_COUNT };

enum { SLOT_ERROR_BYTES = 4096 }; /* kept of an answer that is an error */

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
    struct slot_link timer[TIMER_COUNT];
    struct buf body;   /* what is sent */
    struct buf answer; /* MODE_BODY, MODE_ERROR */
    struct sse sse;
    char curl_error[CURL_ERROR_SIZE];

    bool active;
    uint64_t request;
    uint32_t isl, osl;

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

    /* the response so far */
    enum slot_mode mode;
    int status;
    bool is_json;      /* by Content-Type */
    bool done_seen;    /* [DONE] */
    bool finish_seen;  /* a finish_reason */
    bool ids_complete; /* every token event had token_ids */
    uint32_t token_events;
    int64_t ids;        /* sum of token_ids */
    int64_t cumulative; /* last completion_tokens of an event with choices; -1 = none */
    int64_t prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens; /* -1 = not given */
    int fail;                                                                  /* enum fail_class */
};

/* What the metrics do not show; told in the record's details. */
struct http_counts {
    int64_t requests, cold_connections, retried, token_events, coalesced, comments, slow_scans,
        without_usage, usage_beyond_asked, prompt_beyond_sent, length_mismatch, not_streamed, missing_final_blank_line, unclean_close,
        without_sent;
};

struct pending_token {
    const struct slot *slot; /* NULL = none */
    uint64_t read_number;
    int64_t time_ns, tokens, flags;
};

struct http {
    struct backend base;
    struct http_options o;
    const struct workload *workload;
    struct event_sink *sink;
    int64_t origin_ns;
    struct endpoint endpoint;
    char *api_key;
    struct curl_slist *headers;
    struct body_template body;
    struct loop loop;
    struct slot **slots;
    size_t nslots, cap_slots;
    struct slot *free;
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

/* slot.c */
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
