/* Redirects, when asked (-o redirects=N): a benchmark that follows them silently measures another server.
 * Only 307 and 308 are followed, which keep the request as it is, and never from https to http. What the
 * user's headers and key were given for is one origin (scheme, host, port): no other one gets them. libcurl's
 * own following would send them along. */
#include "backends/http/http_internal.h"

#include "harness/core/clock.h"

#include <string.h>
#include <strings.h>

static bool same_part(CURLU *a, CURLU *b, CURLUPart part) {
    char *x = NULL, *y = NULL;
    bool same = !curl_url_get(a, part, &x, CURLU_DEFAULT_PORT) &&
                !curl_url_get(b, part, &y, CURLU_DEFAULT_PORT) && !strcasecmp(x, y);
    curl_free(x);
    curl_free(y);
    return same;
}

static bool has_scheme(CURLU *u, const char *name) {
    char *scheme = NULL;
    bool yes = !curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) && !strcasecmp(scheme, name);
    curl_free(scheme);
    return yes;
}

bool redirect_allowed(const char *from, const char *to, bool *same_origin) {
    CURLU *a = curl_url(), *b = curl_url();
    bool ok = a && b && !curl_url_set(a, CURLUPART_URL, from, 0) &&
              !curl_url_set(b, CURLUPART_URL, to, 0) && (has_scheme(b, "https") || (has_scheme(b, "http") && !has_scheme(a, "https")));
    *same_origin = ok && same_part(a, b, CURLUPART_SCHEME) && same_part(a, b, CURLUPART_HOST) &&
                   same_part(a, b, CURLUPART_PORT);
    curl_url_cleanup(a);
    curl_url_cleanup(b);
    return ok;
}

bool redirect_takes(struct slot *s) {
    struct http *h = s->h;
    bool same = false;
    char *to = NULL;
    if (s->waiting || s->fail != FAIL_HTTP_STATUS || (s->status != 307 && s->status != 308) ||
        s->redirected >= h->o.redirects ||
        curl_easy_getinfo(s->easy, CURLINFO_REDIRECT_URL, &to) != CURLE_OK || !to ||
        !redirect_allowed(s->endpoint->url, to, &same) ||
        curl_easy_setopt(s->easy, CURLOPT_URL, to) != CURLE_OK)
        return false;
    if (!same)
        curl_easy_setopt(s->easy, CURLOPT_HTTPHEADER, h->public_headers);
    s->redirected++;
    h->counts.redirected++;
    retry_at(s, clock_now_ns());
    return true;
}
