/* Names of failure classes. The sink itself is inline. */
#include "harness/core/event.h"

static const char *const fail_class_names[FAIL_CLASS_COUNT] = {
    [FAIL_NONE] = "none",
    [FAIL_CONNECT] = "connect",
    [FAIL_TLS] = "tls",
    [FAIL_TIMEOUT_CONNECT] = "timeout_connect",
    [FAIL_TIMEOUT_FIRST_TOKEN] = "timeout_first_token",
    [FAIL_TIMEOUT_IDLE] = "timeout_idle",
    [FAIL_TIMEOUT_TOTAL] = "timeout_total",
    [FAIL_HTTP_STATUS] = "http_status",
    [FAIL_IN_BAND_ERROR] = "in_band_error",
    [FAIL_RESET] = "reset",
    [FAIL_TRUNCATED] = "truncated",
    [FAIL_NO_TERMINATOR] = "no_terminator",
    [FAIL_NO_OUTPUT] = "no_output",
    [FAIL_BAD_JSON] = "bad_json",
    [FAIL_BAD_SSE] = "bad_sse",
    [FAIL_CANCELLED] = "cancelled",
    [FAIL_LENGTH_MISMATCH] = "length_mismatch",
    [FAIL_REJECTED] = "rejected",
};

const char *fail_class_name(int fail_class) {
    if (fail_class < 0 || fail_class >= FAIL_CLASS_COUNT)
        return "unknown";
    return fail_class_names[fail_class];
}
