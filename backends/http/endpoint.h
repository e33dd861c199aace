/* The endpoint: its addresses, and what it says of itself before the first request (reachability,
 * model names, result class, chip). */
#ifndef BACKENDS_HTTP_ENDPOINT_H
#define BACKENDS_HTTP_ENDPOINT_H

#include "backends/backend.h"

#include <curl/curl.h>

struct http;
struct protocol;
struct server_kind;

enum { HTTP_VERSIONS = 4 }; /* rows of the table of versions in route.c */

struct endpoint {
    char *url;        /* where requests go */
    char *models_url; /* GET: reachability, class, models */
    char host[256];
    char port[8];
    bool tls;
    char addresses[512];

    enum result_class result_class;
    const char *class_source; /* "default", "header", "model" */
    char chip[64];
    int64_t chips;
    char chip_sha256[65];
    char server[128]; /* Server header */
    const struct server_kind *kind;
    const char *kind_source; /* "option", "host", "owned_by", "header", "none" */
    long http_version; /* CURL_HTTP_VERSION_* of the probe's answer */
    bool has_models;   /* GET models answered with a list */
    json_t *model_ids;

    /* the run */
    int64_t requests, failed, retries, in_flight, connections;
    int64_t by_version[HTTP_VERSIONS]; /* answers */
};

/* Splits and completes the URL; resolves the host. `http://host:port` and `…/v1` are completed to
 * the API's path; one that ends in the path of an API is taken as it is. host:port:addresses is added to
 * *resolved, for CURLOPT_RESOLVE, unless the host is literal. ASSAY_EUSAGE, ASSAY_EENV. */
int endpoint_resolve(struct endpoint *ep, const char *url, const struct protocol *protocol,
                     bool unix_socket, struct curl_slist **resolved, struct err *e) MUST_USE;

/* Asks GET models. ASSAY_EENV when it cannot be reached, does not answer, refuses the key, or is
 * not ready. Sets class, chip and models. */
int endpoint_probe(struct http *h, struct endpoint *ep, struct err *e) MUST_USE;

void endpoint_release(struct endpoint *ep);

/* Reads one response header of the kinds that say what stands behind the endpoint.
 * *weaker is set when its class is weaker than the one known so far; unknown classes count as none.
 */
bool endpoint_class_header(const char *line, size_t n, enum result_class *c);

#endif
