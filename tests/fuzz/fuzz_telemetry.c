/* Any bytes as a telemetry CSV: readings in range, or an error that names the place. */
#include "harness/measure/telemetry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_reading(void *ctx, const struct telemetry_reading *r, struct err *e) {
    (void)ctx;
    (void)e;
    if (!r->device || !*r->device || r->power_w < 0 || r->power_w > 1e7 || r->utilization < 0 ||
        r->utilization > 1 || isinf(r->power_w))
        abort();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct telemetry_zone zones[] = {{.local = true}, {.offset_s = 7200}};
    for (int i = 0; i < 2; i++) {
        struct err e = {0};
        if (telemetry_parse((const char *)data, size, "fuzz", &zones[i], on_reading, NULL, &e) &&
            strncmp(e.text, "fuzz:", 5))
            abort();
    }
    return 0;
}
