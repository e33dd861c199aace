/* The machine's clocks. Only backends with the real clock, the command line and the store may call
 * these: the harness asks its backend for the time (backend_ops.now). */
#ifndef HARNESS_CORE_CLOCK_H
#define HARNESS_CORE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#define NS_PER_S INT64_C(1000000000)
#define NS_PER_MS INT64_C(1000000)

int64_t clock_now_ns(void);  /* CLOCK_MONOTONIC */
int64_t clock_wall_ns(void); /* CLOCK_REALTIME, ns since 1970 */
int64_t clock_cpu_ns(void);  /* CPU time of this process */

/* RFC 3339 in UTC with 'Z', at most 9 fractional digits and none that are trailing zeros.
 * out: at least 31 bytes. Source: certification.md section 3, profile rules. */
void clock_rfc3339(int64_t wall_ns, char *out, size_t out_bytes);

#endif
