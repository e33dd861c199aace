/* The headers of every request, and the secrets among them: the key and header values from the
 * command line, the environment or a file. Secrets go to the server and nowhere else. */
#include "backends/http/http_internal.h"

#include "harness/core/version.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { SECRET_FILE_MAX_BYTES = 64 * 1024, SECRETS_MAX_BYTES = 1024 * 1024, SECRET_MIN_BYTES = 4 };

/* Remembers a value that must never be told. Very short ones would blank harmless text. */
static void keep_secret(struct http *h, const char *p, size_t n) {
    if (n >= SECRET_MIN_BYTES)
        buf_put(&h->secrets, p, n);
    if (n >= SECRET_MIN_BYTES)
        buf_putc(&h->secrets, '\0');
}

static int append(struct curl_slist **to, const char *line, struct err *e) {
    struct curl_slist *list = curl_slist_append(*to, line);
    if (!list)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    *to = list;
    return 0;
}

static int add(struct http *h, const char *line, struct err *e) {
    return append(&h->headers, line, e);
}

/* One of the backend's own, which any server may see. */
static int add_public(struct http *h, const char *line, struct err *e) {
    int rc = add(h, line, e);
    return rc ? rc : append(&h->public_headers, line, e);
}

static int from_environment(const char *name, const char *option, const char **value,
                            struct err *e) {
    *value = getenv(name);
    if (!*value || !**value)
        return err_set(e, ASSAY_EENV, "-o %s: environment variable '%s' is not set or empty",
                       option, name);
    return 0;
}

static int read_secret_file(struct buf *b, const char *path, struct err *e) {
    int rc = buf_read_file(b, path, SECRET_FILE_MAX_BYTES, e);
    if (rc && e)
        e->code = ASSAY_EENV;
    return rc ? ASSAY_EENV : 0;
}

/* ---- the key ---- */

static int add_key(struct http *h, const char *text, struct err *e) {
    size_t n = strcspn(text, " \t\r\n");
    if (!n)
        return err_set(e, ASSAY_EENV, "the key is empty");
    struct buf line;
    buf_init(&line, SECRET_FILE_MAX_BYTES + 64);
    int auth = h->o.auth == AUTH_AUTO ? (int)h->protocol->auth : h->o.auth;
    buf_printf(&line, "%s%.*s", auth_lines[auth], (int)n, text);
    int rc = buf_check(&line, "the key", e);
    if (!rc)
        rc = add(h, line.p, e);
    keep_secret(h, text, n);
    if (line.p)
        explicit_bzero(line.p, line.n);
    buf_release(&line);
    return rc;
}

static int key(struct http *h, struct err *e) {
    const struct http_options *o = &h->o;
    if (o->api_key_env && o->api_key_file)
        return err_set(e, ASSAY_EUSAGE, "-o api_key_env and -o api_key_file exclude each other");
    if (o->api_key_env) {
        const char *v;
        int rc = from_environment(o->api_key_env, "api_key_env", &v, e);
        return rc ? rc : add_key(h, v, e);
    }
    if (!o->api_key_file)
        return 0;
    struct buf b;
    int rc = read_secret_file(&b, o->api_key_file, e);
    if (rc)
        return rc;
    rc = add_key(h, b.p ? b.p : "", e);
    if (b.p)
        explicit_bzero(b.p, b.n);
    buf_release(&b);
    return rc;
}

/* ---- other headers ---- */

typedef int line_fn(struct http *h, const char *line, const char *value, const char *option,
                    struct err *e);

/* 'Name: value' */
static int plain_line(struct http *h, const char *line, const char *value, const char *option,
                      struct err *e) {
    (void)option;
    keep_secret(h, value, strlen(value));
    return add(h, line, e);
}

/* 'Name: VARIABLE' */
static int environment_line(struct http *h, const char *line, const char *value,
                            const char *option, struct err *e) {
    const char *v;
    int rc = from_environment(value, option, &v, e);
    if (rc)
        return rc;
    if (strpbrk(v, "\r\n"))
        return err_set(e, ASSAY_EENV, "-o %s: environment variable '%s' holds more than one line",
                       option, value);
    struct buf b;
    buf_init(&b, SECRETS_MAX_BYTES);
    buf_printf(&b, "%.*s: %s", (int)strcspn(line, ":"), line, v);
    rc = buf_check(&b, "a header", e);
    if (!rc)
        rc = plain_line(h, b.p, v, option, e);
    if (b.p)
        explicit_bzero(b.p, b.n);
    buf_release(&b);
    return rc;
}

/* Calls fn for each line of text that is not empty. */
static int each_line(struct http *h, const char *text, const char *option, line_fn *fn,
                     struct err *e) {
    struct buf line;
    buf_init(&line, 128 * 1024);
    int rc = 0, number = 0;
    for (const char *p = text; *p && !rc;) {
        size_t n = strcspn(p, "\r\n");
        number++;
        if (n) {
            buf_clear(&line);
            buf_put(&line, p, n);
            rc = buf_check(&line, "a header", e);
            size_t name = rc ? 0 : strcspn(line.p, ":");
            const char *value = rc ? NULL : line.p + name + (line.p[name] == ':');
            /* the line may be a secret: the message says only where it stands */
            if (!rc && (name == 0 || line.p[name] != ':' || strcspn(line.p, " \t") < name))
                rc = err_set(e, ASSAY_EUSAGE, "-o %s: line %d: expected 'Name: value'", option,
                             number);
            if (!rc)
                rc = fn(h, line.p, value + strspn(value, " \t"), option, e);
        }
        p += n + strspn(p + n, "\r") ;
        p += *p == '\n';
    }
    if (line.p)
        explicit_bzero(line.p, line.n);
    buf_release(&line);
    return rc;
}

static int from_file(struct http *h, const char *path, struct err *e) {
    struct buf b;
    int rc = read_secret_file(&b, path, e);
    if (rc)
        return rc;
    rc = each_line(h, b.p ? b.p : "", "header_file", plain_line, e);
    if (b.p)
        explicit_bzero(b.p, b.n);
    buf_release(&b);
    return rc;
}

/* A header of the line's name is there already. */
static bool has_header(const struct http *h, const char *line) {
    size_t n = strcspn(line, ":") + 1;
    for (const struct curl_slist *p = h->headers; p; p = p->next)
        if (!strncasecmp(p->data, line, n))
            return true;
    return false;
}

int headers_make(struct http *h, struct err *e) {
    static const char *const fixed[] = {"Content-Type: application/json",
                                        "Accept: text/event-stream, application/json", "Expect:"};
    char agent[256];
    int rc = 0;
    buf_init(&h->secrets, SECRETS_MAX_BYTES);
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed && !rc; i++)
        rc = add_public(h, fixed[i], e);
    if (!rc && !h->o.compression)
        rc = add_public(h, "Accept-Encoding:", e); /* libcurl would ask for what it can decode */
    snprintf(agent, sizeof agent, "User-Agent: assay/%s", assay_version);
    if (!rc)
        rc = add_public(h, agent, e);
    if (!rc)
        rc = key(h, e);
    if (!rc && h->o.header)
        rc = each_line(h, h->o.header, "header", plain_line, e);
    if (!rc && h->o.header_env)
        rc = each_line(h, h->o.header_env, "header_env", environment_line, e);
    if (!rc && h->o.header_file)
        rc = from_file(h, h->o.header_file, e);
    for (const char *const *p = h->protocol->headers; *p && !rc; p++)
        if (!has_header(h, *p))
            rc = add_public(h, *p, e);
    return rc ? rc : buf_check(&h->secrets, "headers", e);
}

void headers_release(struct http *h) {
    for (struct curl_slist *p = h->headers; p; p = p->next)
        explicit_bzero(p->data, strlen(p->data));
    curl_slist_free_all(h->headers);
    curl_slist_free_all(h->public_headers);
    if (h->secrets.p)
        explicit_bzero(h->secrets.p, h->secrets.n);
    buf_release(&h->secrets);
}
