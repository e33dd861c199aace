/* A scripted server on loopback for tests of HTTP clients: answers the k-th POST with exactly the
 * bytes, pauses and endings of the k-th reply (the last one repeats), and GET with a model list. */
#ifndef TESTS_BACKENDS_MOCK_SERVER_H
#define TESTS_BACKENDS_MOCK_SERVER_H

#include <stddef.h>

enum mock_action {
    MOCK_END,   /* keep the connection, wait for the next request */
    MOCK_SEND,  /* text as it is; value > 0: in pieces of that many bytes, 200 us apart */
    MOCK_HEAD,  /* 200, text/event-stream, chunked; text: further header lines */
    MOCK_CHUNK, /* text as one HTTP chunk, one write */
    MOCK_BYTES, /* value bytes of text, whatever they are, as one HTTP chunk, one write */
    MOCK_EVENT, /* "data: TEXT\n\n" as one HTTP chunk, one write */
    MOCK_LAST,  /* the chunked body's end */
    MOCK_SLEEP, /* value ms */
    MOCK_CLOSE, /* orderly */
    MOCK_RESET, /* RST */
    MOCK_HANG,  /* until the client closes */
};

struct mock_step {
    enum mock_action action;
    const char *text;
    int value;
};

struct mock_config {
    const struct mock_step *const
        *replies;                /* NULL-terminated list of step lists, each ended by MOCK_END */
    const char *models;          /* body of GET; NULL = one model "mock" */
    const char *models_status;   /* NULL = "200 OK" */
    const char *models_headers;  /* further header lines, each with CR LF */
    const char *unix_path;       /* listen there instead of on a port */
    int port;                    /* 0 = any free one */
    const char *speak_first;     /* sent on accept */
    int hang_models;             /* accept and never answer GET */
    int posts_before_idle_close; /* > 0: a connection is closed unanswered at its n-th POST + 1 */
};

struct mock;
struct mock *mock_start(const struct mock_config *c);
int mock_port(const struct mock *m);
int mock_posts(const struct mock *m);
int mock_connections(const struct mock *m);
/* Raw bytes of POST k (head and body), NUL-terminated; lives until mock_stop. */
const char *mock_post(const struct mock *m, int k);
/* The latest GET, likewise; NULL = none. Not while one may be running. */
const char *mock_get(const struct mock *m);
void mock_stop(struct mock *m);

#endif
