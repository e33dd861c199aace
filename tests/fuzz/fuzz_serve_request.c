/* The reader of request bodies: never crashes, never disagrees with jansson on what is JSON, and
 * what it accepts is within its limits. First byte: the endpoint, and whether conversations are
 * looked for. */
#include "backends/serve/serve_internal.h"

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct sessions *sessions;
    if (!sessions && sessions_new(&sessions, NULL))
        return 0;
    struct serve_limits limits = {
        .max_context = 8192, .model_id = "sim/v6e-8/m", .model_name = "m"};
    struct serve_request r;
    struct serve_error e = {0};
    if (size < 1)
        return 0;
    const char *body = (const char *)data + 1;
    size_t n = size - 1;
    bool chat = data[0] & 1;
    limits.sessions = data[0] & 2 ? sessions : NULL;
    int rc = serve_request_parse(body, n, chat ? SERVE_CHAT : SERVE_COMPLETIONS, &limits, &r, &e);
    json_t *j = json_loadb(body, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    if (rc == 0 && (r.isl < 1 || r.osl < 1 || r.isl + r.osl > limits.max_context || r.shared < 0 ||
                    r.shared >= r.isl || (r.session == REQUEST_NO_SESSION) != !limits.sessions))
        abort();
    if (rc && (!e.message[0] || !e.type || e.status < 400))
        abort();
    if (j && rc && !strncmp(e.message, "the body is not valid JSON", 26) &&
        !memchr(body, '\0', n)) /* it skips some NULs */
        abort();
    /* jansson alone refuses numbers beyond double and object names with NUL */
    if (!j && rc == 0 && !memchr(body, 'e', n) && !memchr(body, 'E', n) &&
        !memmem(body, n, "u0000", 5) && n < 300)
        abort();
    json_decref(j);
    return 0;
}
