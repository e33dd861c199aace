/* Several endpoints in one run: all are asked before it begins, the weakest class of them is the
 * run's, and each request is given one by a rule that depends on nothing but the plan (round-robin,
 * session-sticky) or on what is in flight (least-in-flight). */
#include "backends/http/http_internal.h"

#include <stdlib.h>
#include <string.h>

enum { ENDPOINTS_MAX = 256 };

static const struct {
    long curl;
    const char *name;
} versions[HTTP_VERSIONS] = {
    {CURL_HTTP_VERSION_1_0, "1.0"},
    {CURL_HTTP_VERSION_1_1, "1.1"},
    {CURL_HTTP_VERSION_2_0, "2"},
    {CURL_HTTP_VERSION_3, "3"},
};

static int version_row(long curl) {
    for (int i = 0; i < HTTP_VERSIONS; i++)
        if (versions[i].curl == curl)
            return i;
    return -1;
}

/* ---- before the run ---- */

static int add_endpoint(struct http *h, const char *url, size_t n, struct err *e) {
    if (h->nendpoints == ENDPOINTS_MAX)
        return err_set(e, ASSAY_EUSAGE, "-o url: expected at most %d endpoints", ENDPOINTS_MAX);
    struct endpoint *p = realloc(h->endpoints, (h->nendpoints + 1) * sizeof *p);
    char *one = strndup(url, n);
    if (p)
        h->endpoints = p;
    if (!p || !one) {
        free(one);
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    }
    struct endpoint *ep = &p[h->nendpoints++];
    *ep = (struct endpoint){0};
    int rc = endpoint_resolve(ep, one, h->protocol, h->o.unix_socket, &h->resolve, e);
    free(one);
    return rc;
}

/* Without TLS, libcurl before 8.0 opens a second session on a connection that has one already. */
static int check_plain_http2(const struct http *h, struct err *e) {
    const curl_version_info_data *v = curl_version_info(CURLVERSION_NOW);
    if (h->o.http != HTTP_2 || h->endpoints[0].tls || !h->o.reuse || v->version_num >= 0x080000)
        return 0;
    return err_set(e, ASSAY_EUSAGE,
                   "-o http=2: libcurl %s cannot use an HTTP/2 connection without TLS twice (8.0 "
                   "can): expected https, or -o reuse=off for a connection each, found '%s'",
                   v->version, h->endpoints[0].url);
}

int route_resolve(struct http *h, struct err *e) {
    const char *p = h->o.url;
    int rc = 0;
    for (bool more = true; more && !rc;) {
        size_t n = strcspn(p, ",");
        rc = add_endpoint(h, p, n, e);
        more = p[n] == ',';
        p += n + more;
    }
    if (!rc && h->o.unix_socket && h->nendpoints > 1)
        rc = err_set(e, ASSAY_EUSAGE, "-o unix_socket is one endpoint, -o url names %zu",
                     h->nendpoints);
    for (size_t i = 1; i < h->nendpoints && !rc && h->o.http == HTTP_2; i++)
        if (h->endpoints[i].tls != h->endpoints[0].tls)
            rc = err_set(e, ASSAY_EUSAGE,
                         "-o http=2: '%s' and '%s': expected one scheme for all endpoints",
                         h->endpoints[0].url, h->endpoints[i].url);
    return rc ? rc : check_plain_http2(h, e);
}

static bool lists_model(const struct endpoint *ep, const char *name) {
    const json_t *id;
    size_t i;
    json_array_foreach(ep->model_ids, i, id) if (!strcmp(json_string_value(id), name)) return true;
    return false;
}

/* The name that requests carry: as asked, else the workload's when it is served, else the first
 * that the first endpoint lists, else the workload's. */
static int choose_model(struct http *h, struct err *e) {
    const char *planned =
        h->workload && h->workload->has_model ? h->workload->model.name : NULL;
    const struct endpoint *first = &h->endpoints[0];
    const char *name = h->o.model;
    if (!name && planned && lists_model(first, planned))
        name = planned;
    if (!name && json_array_size(first->model_ids))
        name = json_string_value(json_array_get(first->model_ids, 0));
    if (!name)
        name = planned;
    if (!name)
        return err_set(
            e, ASSAY_EUSAGE,
            "the endpoint names no model at '%s' and the workload has none: set -o model=…",
            first->models_url);
    if (strlen(name) >= sizeof h->model)
        return err_set(e, ASSAY_EUSAGE, "the model's name is longer than %zu bytes",
                       sizeof h->model - 1);
    for (size_t i = 1; i < h->nendpoints && !h->o.model; i++)
        if (json_array_size(h->endpoints[i].model_ids) && !lists_model(&h->endpoints[i], name))
            return err_set(e, ASSAY_EENV,
                           "'%s' serves model '%s', but '%s' does not list it: endpoints of one "
                           "run serve one model (or set -o model=…)",
                           first->models_url, name, h->endpoints[i].models_url);
    memcpy(h->model, name, strlen(name) + 1);
    return 0;
}

/* Chips add up when every endpoint tells them; kinds of chip that differ are named side by side. */
static void merge(struct http *h) {
    const struct endpoint *first = &h->endpoints[0];
    h->result_class = first->result_class;
    h->class_source = first->class_source;
    h->chips = 0;
    struct buf chip;
    buf_init(&chip, sizeof h->chip - 1);
    bool all = true;
    for (size_t i = 0; i < h->nendpoints; i++) {
        const struct endpoint *ep = &h->endpoints[i];
        if (ep->result_class < h->result_class) {
            h->result_class = ep->result_class;
            h->class_source = ep->class_source;
        }
        all &= ep->chips > 0;
        h->chips += ep->chips;
        bool new = ep->chip[0];
        for (size_t k = 0; k < i; k++)
            new &= strcmp(h->endpoints[k].chip, ep->chip) != 0;
        if (new)
            buf_printf(&chip, "%s%s", chip.n ? "+" : "", ep->chip);
    }
    if (!all)
        h->chips = 0;
    snprintf(h->chip, sizeof h->chip, "%s", chip.p && !chip.failed ? chip.p : first->chip);
    buf_release(&chip);
}

int route_probe(struct http *h, struct err *e) {
    int rc = 0;
    for (size_t i = 0; i < h->nendpoints && !rc; i++)
        rc = endpoint_probe(h, &h->endpoints[i], e);
    if (!rc)
        rc = choose_model(h, e);
    if (!rc)
        merge(h);
    return rc;
}

void route_release(struct http *h) {
    for (size_t i = 0; i < h->nendpoints; i++)
        endpoint_release(&h->endpoints[i]);
    free(h->endpoints);
    curl_slist_free_all(h->resolve);
}

/* ---- one request ---- */

static size_t by_request(const struct http *h, const struct request *r) {
    return r->id % h->nendpoints;
}

/* All turns of a session go where its first went: that is where their prefix is cached. */
static size_t by_session(const struct http *h, const struct request *r) {
    return r->session == REQUEST_NO_SESSION ? by_request(h, r) : r->session % h->nendpoints;
}

/* Ties go round, so that a light load is spread too. */
static size_t by_load(const struct http *h, const struct request *r) {
    size_t first = by_request(h, r), best = first;
    for (size_t k = 1; k < h->nendpoints; k++) {
        size_t i = (first + k) % h->nendpoints;
        if (h->endpoints[i].in_flight < h->endpoints[best].in_flight)
            best = i;
    }
    return best;
}

const char *const route_names[] = {"round-robin", "least-in-flight", "session-sticky", NULL};

struct endpoint *route_choose(struct http *h, const struct request *r) {
    static size_t (*const rules[])(const struct http *, const struct request *) = {
        by_request, by_load, by_session};
    return &h->endpoints[h->nendpoints > 1 ? rules[h->o.route](h, r) : 0];
}

bool route_answered(struct endpoint *ep, CURL *easy) {
    long v = 0, connects = 0;
    if (curl_easy_getinfo(easy, CURLINFO_NUM_CONNECTS, &connects) == CURLE_OK)
        ep->connections += connects;
    int row = curl_easy_getinfo(easy, CURLINFO_HTTP_VERSION, &v) == CURLE_OK ? version_row(v) : -1;
    if (row >= 0)
        ep->by_version[row]++;
    return connects > 0;
}

/* ---- what the record says ---- */

json_t *route_describe(const struct http *h) {
    json_t *all = json_array();
    for (size_t i = 0; i < h->nendpoints; i++) {
        const struct endpoint *ep = &h->endpoints[i];
        int row = version_row(ep->http_version);
        json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "url", ep->url, "addresses",
                              ep->addresses, "class", result_class_name(ep->result_class),
                              "class_source", ep->class_source, "server_kind", ep->kind->name,
                              "server_kind_source", ep->kind_source);
        if (row >= 0)
            json_object_set_new(o, "http", json_string(versions[row].name));
        if (ep->server[0])
            json_object_set_new(o, "server", json_string(ep->server));
        if (ep->chip[0])
            json_object_set_new(o, "chip", json_string(ep->chip));
        if (ep->chips)
            json_object_set_new(o, "chips", json_integer(ep->chips));
        if (ep->chip_sha256[0])
            json_object_set_new(o, "chip_sha256", json_string(ep->chip_sha256));
        json_object_set(o, "models", ep->model_ids);
        json_array_append_new(all, o);
    }
    return all;
}

json_t *route_observe(const struct http *h) {
    json_t *all = json_array();
    for (size_t i = 0; i < h->nendpoints; i++) {
        const struct endpoint *ep = &h->endpoints[i];
        json_t *answers = json_object();
        for (int k = 0; k < HTTP_VERSIONS; k++)
            if (ep->by_version[k])
                json_object_set_new(answers, versions[k].name, json_integer(ep->by_version[k]));
        json_t *o = json_pack("{s:s, s:I, s:I, s:I, s:o}", "url", ep->url, "requests",
                              (json_int_t)ep->requests, "failed", (json_int_t)ep->failed,
                              "connections", (json_int_t)ep->connections, "answers_by_http_version",
                              answers);
        if (ep->retries)
            json_object_set_new(o, "retries", json_integer(ep->retries));
        json_array_append_new(all, o);
    }
    return all;
}
