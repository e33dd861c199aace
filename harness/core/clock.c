/* Thin wrappers over clock_gettime. */
#include "harness/core/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static int64_t read_clock(clockid_t id) {
    struct timespec ts;
    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

int64_t clock_now_ns(void) {
    return read_clock(CLOCK_MONOTONIC);
}

int64_t clock_wall_ns(void) {
    return read_clock(CLOCK_REALTIME);
}

int64_t clock_cpu_ns(void) {
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

void clock_rfc3339(int64_t wall_ns, char *out, size_t out_bytes) {
    int64_t frac = wall_ns % NS_PER_S;
    if (frac < 0)
        frac += NS_PER_S;
    time_t s = (time_t)((wall_ns - frac) / NS_PER_S);
    struct tm tm;
    gmtime_r(&s, &tm);
    char date[24], digits[16] = "";
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
    if (frac) {
        int n = snprintf(digits, sizeof digits, ".%09" PRId64, frac);
        while (digits[n - 1] == '0')
            digits[--n] = '\0';
    }
    snprintf(out, out_bytes, "%s%sZ", date, digits);
}
