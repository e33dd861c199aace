/* Power and utilisation of devices from a CSV that somebody else's tool wrote beside the run, and their
 * integral over the measured window.
 *
 * One reader for all of them, by column names (a table in telemetry.c):
 *   nvidia-smi --query-gpu=timestamp,index,power.draw,utilization.gpu --format=csv -l 1
 *     values with units ("123.45 W", "37 %"), "[N/A]" or "[Not Supported]" where there is none, local
 *     time as 2024/01/31 14:30:22.123
 *   amd-smi metric -p -u --csv -w 1
 *     timestamp in whole s since 1970, gpu, socket_power, gfx_activity, "N/A"; lists stand unquoted in
 *     brackets, commas and all; a line about CTRL + C precedes the header
 *   generic: timestamp, device, power_w, utilization
 * tpu-info prints boxes for people, no CSV and no power: a script that samples it (or a rack's meter)
 * writes the generic form. Checked against: nvidia-smi's manual page and logs in public issues,
 * amd-smi's help text and the columns that InferenceX's scripts read; no such device was at hand.
 *
 * Times: ISO 8601 or the form above, with Z or an offset, else in the zone of the options; or a number
 * since 1970, in s, ms, us or ns by its size. A last line without its newline is still being written,
 * and left out. A header that comes again (the tool was restarted) is skipped. */
#ifndef HARNESS_MEASURE_TELEMETRY_H
#define HARNESS_MEASURE_TELEMETRY_H

#include "harness/core/err.h"
#include "harness/measure/series.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    TELEMETRY_COLUMNS_MAX = 256,
    TELEMETRY_LINE_MAX_BYTES = 64 * 1024,
    TELEMETRY_FILE_MAX_BYTES = 256 * 1024 * 1024,
    TELEMETRY_DEVICES_MAX = 4096,
};

struct telemetry_zone {
    bool local;       /* this machine's zone, as mktime knows it */
    int64_t offset_s; /* else east of UTC */
};
/* "local", "utc", "+02:00", "-0530". */
int telemetry_zone_parse(const char *text, struct telemetry_zone *z, struct err *e) MUST_USE;

struct telemetry_reading {
    const char *device; /* valid during the callback */
    int64_t wall_ns;    /* since 1970 */
    double power_w;     /* NaN: not given */
    double utilization; /* 0..1; NaN: not given */
};
typedef int telemetry_fn(void *ctx, const struct telemetry_reading *r, struct err *e);

/* ASSAY_EINPUT `name:line:column: …`; the callback's own error passes through. A text that is empty
 * or holds no whole line has no readings. */
int telemetry_parse(const char *text, size_t n, const char *name, const struct telemetry_zone *zone,
                    telemetry_fn *fn, void *ctx, struct err *e) MUST_USE;

/* The `power` object from all sources of kind "telemetry" in l: series power_w and utilization with a
 * label device. Per device the power is integrated by trapezoids between readings; where two are
 * further apart than gap_ns nothing is known. The window's edges take the nearest reading, when it is
 * not further than gap_ns, else that part is not covered. joules_per_output_token stands only when
 * each device is covered to 99 % and there are as many as chips (0 = unknown). NULL: no telemetry. */
int power_report(struct series_log *l, int64_t begin_ns, int64_t end_ns, int64_t output_tokens,
                 int64_t chips, int64_t gap_ns, json_t **out, struct err *e) MUST_USE;

#endif
