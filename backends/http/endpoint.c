/* The endpoint before the first request: URL, addresses, GET models, and the class that its answers
 * carry (DESIGN.md idea 6: a class is inherited, and never grows stronger on the way). */
#include "backends/http/http_internal.h"

#include "harness/core/json.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MODELS_BODY_MAX_BYTES = 8 * 1024 * 1024, MODEL_IDS_MAX = 64, HEADER_MAX_BYTES = 512 };

static bool ends_with(const char *s, const char *tail) {
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && !strcmp(s + n - k, tail);
}

/* "/v1/" -> "/v1", "/" -> "" */
static void drop_trailing_slashes(char *path) {
    size_t n = strlen(path);
    while (n && path[n - 1] == '/')
        path[--n] = '\0';
}

/* base path -> path of the API and of the model list */
static void complete_path(const char *base, const struct protocol *protocol, struct buf *api,
                          struct buf *models) {
    const struct protocol *whole = protocol_of_path(base);
    if (whole) {
        buf_puts(api, base);
        buf_put(models, base, strlen(base) - strlen(whole->path));
        buf_puts(models, "/models");
        return;
    }
    const char *version = ends_with(base, "/v1") ? "" : "/v1";
    buf_printf(api, "%s%s%s", base, version, protocol->path);
    buf_printf(models, "%s%s/models", base, version);
}

static int set_path(CURLU *u, const char *path, char **url, struct err *e) {
    char *whole = NULL;
    if (curl_url_set(u, CURLUPART_PATH, path, 0) || curl_url_get(u, CURLUPART_URL, &whole, 0))
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    *url = strdup(whole);
    curl_free(whole);
    return *url ? 0 : err_set(e, ASSAY_ENOMEM, "out of memory");
}

static int resolve_host(struct endpoint *ep, struct curl_slist **resolved, struct err *e) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC}, *list = NULL;
    int rc = getaddrinfo(ep->host, ep->port, &hints, &list);
    if (rc)
        return err_set(e, ASSAY_EENV, "cannot resolve host '%s': %s", ep->host, gai_strerror(rc));
    struct buf entry, plain;
    buf_init(&entry, sizeof ep->addresses + 320);
    buf_init(&plain, sizeof ep->addresses - 1);
    buf_printf(&entry, "%s:%s:", ep->host, ep->port);
    int n = 0;
    for (const struct addrinfo *a = list; a && n < 8; a = a->ai_next) {
        char text[INET6_ADDRSTRLEN + 16];
        if (getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST))
            continue;
        buf_printf(&plain, "%s%s", n ? "," : "", text);
        bool six = a->ai_family == AF_INET6;
        buf_printf(&entry, "%s%s%s%s", n ? "," : "", six ? "[" : "", text, six ? "]" : "");
        n++;
    }
    freeaddrinfo(list);
    rc = 0;
    if (plain.p && !plain.failed)
        memcpy(ep->addresses, plain.p, plain.n + 1);
    if (!n || entry.failed)
        rc = err_set(e, ASSAY_EENV, "host '%s' has no usable address", ep->host);
    else if (strcmp(ep->addresses, ep->host)) {
        struct curl_slist *list_with_it = curl_slist_append(*resolved, entry.p);
        if (list_with_it)
            *resolved = list_with_it;
        else
            rc = err_set(e, ASSAY_ENOMEM, "out of memory");
    }
    buf_release(&entry);
    buf_release(&plain);
    return rc;
}

int endpoint_resolve(struct endpoint *ep, const char *url, const struct protocol *protocol,
                     bool unix_socket, struct curl_slist **resolved, struct err *e) {
    CURLU *u = curl_url();
    char *scheme = NULL, *host = NULL, *port = NULL, *path = NULL, *user = NULL;
    struct buf api, models;
    buf_init(&api, 4096);
    buf_init(&models, 4096);
    int rc = 0;
    if (!u) {
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
        goto out;
    }
    CURLUcode code = curl_url_set(u, CURLUPART_URL, url, CURLU_NON_SUPPORT_SCHEME);
    if (code) {
        rc = err_set(e, ASSAY_EUSAGE,
                     "-o url: '%s' is not a URL (%s); expected http://host:port or https://…", url,
                     curl_url_strerror(code));
        goto out;
    }
    if (curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) ||
        (strcmp(scheme, "http") && strcmp(scheme, "https"))) {
        rc = err_set(e, ASSAY_EUSAGE, "-o url: '%s': expected scheme http or https, found '%s'",
                     url, scheme ? scheme : "none");
        goto out;
    }
    if (curl_url_get(u, CURLUPART_USER, &user, 0) == CURLUE_OK) {
        rc = err_set(
            e, ASSAY_EUSAGE,
            "-o url: credentials in a URL would be recorded; use api_key_env or api_key_file");
        goto out;
    }
    if (curl_url_get(u, CURLUPART_HOST, &host, 0) ||
        curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) ||
        curl_url_get(u, CURLUPART_PATH, &path, 0)) {
        rc = err_set(e, ASSAY_EUSAGE, "-o url: '%s' has no host", url);
        goto out;
    }
    ep->tls = !strcmp(scheme, "https");
    size_t n = strlen(host);
    bool bracketed = n > 2 && host[0] == '['; /* a literal IPv6 address */
    snprintf(ep->host, sizeof ep->host, "%.*s", (int)(bracketed ? n - 2 : n), host + bracketed);
    snprintf(ep->port, sizeof ep->port, "%s", port);
    curl_url_set(u, CURLUPART_FRAGMENT, NULL, 0);
    drop_trailing_slashes(path);
    complete_path(path, protocol, &api, &models);
    if ((rc = buf_check(&api, "the URL", e)) || (rc = buf_check(&models, "the URL", e)) ||
        (rc = set_path(u, api.p, &ep->url, e)) || (rc = set_path(u, models.p, &ep->models_url, e)))
        goto out;
    if (!unix_socket)
        rc = resolve_host(ep, resolved, e);
out:
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_free(path);
    curl_free(user);
    curl_url_cleanup(u);
    buf_release(&api);
    buf_release(&models);
    return rc;
}

void endpoint_release(struct endpoint *ep) {
    free(ep->url);
    free(ep->models_url);
    json_decref(ep->model_ids);
    *ep = (struct endpoint){0};
}

/* ---- the probe ---- */

struct probe {
    struct buf body;
    char class_text[32], chip_text[HEADER_MAX_BYTES], server[128], location[HEADER_MAX_BYTES];
    bool is_json;
    const struct server_kind *by_header, *by_model;
};

static size_t probe_body(char *p, size_t one, size_t n, void *ctx) {
    (void)one;
    struct probe *pr = ctx;
    buf_put(&pr->body, p, n);
    return pr->body.failed ? 0 : n;
}

/* Copies the header's value when the line is that header. */
static bool header_copy(const char *line, size_t n, const char *name, char *out, size_t out_bytes) {
    size_t k = strlen(name);
    if (n <= k || line[k] != ':' || strncasecmp(line, name, k))
        return false;
    line += k + 1;
    n -= k + 1;
    while (n && (*line == ' ' || *line == '\t')) {
        line++;
        n--;
    }
    while (n && (line[n - 1] == '\r' || line[n - 1] == '\n' || line[n - 1] == ' '))
        n--;
    snprintf(out, out_bytes, "%.*s", (int)n, line);
    return true;
}

bool endpoint_class_header(const char *line, size_t n, enum result_class *c) {
    char text[32];
    if (!header_copy(line, n, "X-Assay-Class", text, sizeof text))
        return false;
    if (result_class_parse(text, c))
        *c = CLASS_NONE; /* a word that this version does not know proves nothing */
    return true;
}

static size_t probe_header(char *p, size_t one, size_t n, void *ctx) {
    (void)one;
    struct probe *pr = ctx;
    header_copy(p, n, "X-Assay-Class", pr->class_text, sizeof pr->class_text);
    header_copy(p, n, "X-Assay-Chip", pr->chip_text, sizeof pr->chip_text);
    header_copy(p, n, "Server", pr->server, sizeof pr->server);
    header_copy(p, n, "Location", pr->location, sizeof pr->location);
    if (!pr->by_header)
        pr->by_header = server_by_header(p, n);
    char type[64];
    if (header_copy(p, n, "Content-Type", type, sizeof type))
        pr->is_json = !strncasecmp(type, "application/json", 16);
    return n;
}

/* "v6e;chips=8;sha256=…" */
static void read_chip(struct endpoint *ep, const char *text) {
    size_t n = strcspn(text, ";");
    snprintf(ep->chip, sizeof ep->chip, "%.*s", (int)n, text);
    for (const char *p = text + n; *p == ';'; p += strcspn(p, ";")) {
        p++;
        p += strspn(p, " ");
        size_t k = strcspn(p, ";");
        if (k > 6 && !memcmp(p, "chips=", 6)) {
            char digits[20];
            snprintf(digits, sizeof digits, "%.*s", (int)(k - 6), p + 6);
            int64_t v;
            if (parse_i64(digits, &v) == 0 && v > 0)
                ep->chips = v;
        } else if (k > 7 && !memcmp(p, "sha256=", 7)) {
            snprintf(ep->chip_sha256, sizeof ep->chip_sha256, "%.*s", (int)(k - 7), p + 7);
        }
    }
}

/* "sim/v6e-8/llama3.1-70b": chip v6e, 8 chips */
static void read_simulated_model(struct endpoint *ep, const char *model) {
    const char *p = model + 4, *slash = strchr(p, '/');
    const char *dash = slash ? memrchr(p, '-', (size_t)(slash - p)) : NULL;
    if (!dash || ep->chip[0])
        return;
    char digits[20];
    int64_t v;
    snprintf(digits, sizeof digits, "%.*s", (int)(slash - dash - 1), dash + 1);
    if (parse_i64(digits, &v) || v <= 0)
        return;
    snprintf(ep->chip, sizeof ep->chip, "%.*s", (int)(dash - p), p);
    ep->chips = v;
}

static void read_models(struct endpoint *ep, struct probe *pr) {
    json_t *root = NULL;
    if (!pr->body.p || json_parse(pr->body.p, pr->body.n, "models", &root, NULL))
        return;
    const json_t *data = json_object_get(root, "data"), *row;
    size_t i;
    ep->has_models = json_is_array(data);
    json_array_foreach(data, i, row) {
        json_t *id = json_object_get(row, "id");
        if (json_is_string(id) && json_array_size(ep->model_ids) < MODEL_IDS_MAX)
            json_array_append(ep->model_ids, id);
        if (!pr->by_model)
            pr->by_model = server_by_model(row);
    }
    json_decref(root);
}

/* What the user says, else the surest of what the server says of itself. */
static void read_kind(struct endpoint *ep, const struct probe *pr, int asked) {
    const struct {
        const struct server_kind *kind;
        const char *source;
    } rows[] = {
        {asked != SERVER_AUTO ? &server_kinds[asked] : NULL, "option"},
        {server_by_host(ep->host), "host"},
        {pr->by_model, "owned_by"},
        {pr->by_header, "header"},
        {&server_kinds[SERVER_GENERIC], "none"},
    };
    size_t i = 0;
    while (!rows[i].kind)
        i++;
    ep->kind = rows[i].kind;
    ep->kind_source = rows[i].source;
}

/* model: what requests will name; NULL = what the endpoint lists. */
static int read_class(struct endpoint *ep, const struct probe *pr, const char *model,
                      struct err *e) {
    ep->result_class = CLASS_MEASURED;
    ep->class_source = "default";
    if (pr->chip_text[0])
        read_chip(ep, pr->chip_text);
    if (pr->class_text[0]) {
        if (result_class_parse(pr->class_text, &ep->result_class))
            return err_set(e, ASSAY_EENV,
                           "the endpoint names result class '%s', which is unknown here",
                           pr->class_text);
        ep->class_source = "header";
    }
    const json_t *id;
    size_t i;
    bool simulated = model && !strncmp(model, "sim/", 4);
    json_array_foreach(ep->model_ids, i, id) simulated |=
        !strncmp(json_string_value(id), "sim/", 4);
    if (simulated && ep->result_class > CLASS_SIMULATED) {
        ep->result_class = CLASS_SIMULATED;
        ep->class_source = "model";
    }
    if (!model && json_array_size(ep->model_ids))
        model = json_string_value(json_array_get(ep->model_ids, 0));
    if (model && !strncmp(model, "sim/", 4))
        read_simulated_model(ep, model);
    return 0;
}

static int judge_status(const struct endpoint *ep, const struct probe *pr, long status,
                        struct err *e) {
    if (status == 401 || status == 403)
        return err_set(
            e, ASSAY_EENV,
            "the endpoint at '%s' refuses the key (HTTP %ld): set api_key_env or api_key_file",
            ep->models_url, status);
    if (status >= 300 && status < 400)
        return err_set(
            e, ASSAY_EENV,
            "the endpoint at '%s' redirects (HTTP %ld) to '%s': give that address, redirects "
            "would be timed",
            ep->models_url, status, pr->location[0] ? pr->location : "nowhere");
    if (status >= 500)
        return err_set(e, ASSAY_EENV, "the endpoint at '%s' is not ready (HTTP %ld): %.200s",
                       ep->models_url, status, pr->body.p ? pr->body.p : "");
    return 0;
}

/* GET, and where it leads, as often as redirects are followed. */
static CURLcode probe_perform(struct http *h, const struct endpoint *ep, CURL *c, struct probe *pr) {
    for (int64_t hops = 0;; hops++) {
        char *to = NULL;
        bool same;
        CURLcode code = curl_easy_perform(c);
        if (code != CURLE_OK || hops >= h->o.redirects ||
            curl_easy_getinfo(c, CURLINFO_REDIRECT_URL, &to) != CURLE_OK || !to ||
            !redirect_allowed(ep->models_url, to, &same) ||
            curl_easy_setopt(c, CURLOPT_URL, to) != CURLE_OK)
            return code;
        curl_easy_setopt(c, CURLOPT_HTTPHEADER, same ? h->headers : h->public_headers);
        struct buf body = pr->body;
        buf_clear(&body);
        *pr = (struct probe){.body = body};
    }
}

int endpoint_probe(struct http *h, struct endpoint *ep, struct err *e) {
    struct probe pr = {0};
    char text[CURL_ERROR_SIZE] = "";
    int rc = 0;
    buf_init(&pr.body, MODELS_BODY_MAX_BYTES);
    ep->model_ids = json_array();
    CURL *c = curl_easy_init();
    if (!c || !ep->model_ids) {
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
        goto out;
    }
    http_easy_common(h, c);
    curl_easy_setopt(c, CURLOPT_URL, ep->models_url);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, h->headers);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, probe_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, &pr);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, probe_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, &pr);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, text);
    curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)(h->o.timeout_connect_ns / 1000000) + 1);
    CURLcode code = probe_perform(h, ep, c, &pr);
    if (code == CURLE_OPERATION_TIMEDOUT) {
        curl_off_t sent = 0;
        curl_easy_getinfo(c, CURLINFO_PRETRANSFER_TIME_T, &sent);
        rc = err_set(e, ASSAY_EENV,
                     sent ? "the endpoint at '%s' took the connection but did not answer within "
                            "timeout_connect (%.3g s)"
                          : "cannot reach '%s' within timeout_connect (%.3g s)",
                     ep->models_url, (double)h->o.timeout_connect_ns / 1e9);
        goto out;
    }
    if (code != CURLE_OK) {
        rc = err_set(e, ASSAY_EENV, "cannot reach '%s': %s", ep->models_url,
                     text[0] ? text : curl_easy_strerror(code));
        goto out;
    }
    long status = 0;
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    if ((rc = judge_status(ep, &pr, status, e)))
        goto out;
    memcpy(ep->server, pr.server, sizeof ep->server);
    if (status == 200)
        read_models(ep, &pr);
    read_kind(ep, &pr, h->o.server);
    curl_easy_getinfo(c, CURLINFO_HTTP_VERSION, &ep->http_version);
    rc = read_class(ep, &pr, h->o.model, e);
out:
    curl_easy_cleanup(c);
    buf_release(&pr.body);
    return rc;
}
