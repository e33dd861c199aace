/* Any bytes as an Azure and as a BurstGPT trace: rows with lengths in range, or an error that names
 * the place. */
#include "workloads/trace.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const enum trace_format formats[] = {TRACE_AZURE, TRACE_BURSTGPT};
    for (int i = 0; i < 2; i++) {
        struct trace *t = NULL;
        struct trace_options o = {.keep_failures = size % 2};
        struct err e = {0};
        bool end = false;
        int rc = trace_open_memory(data, size, "fuzz", formats[i], &o, &t, &e);
        while (rc == 0 && !end) {
            struct trace_row row;
            rc = trace_next(t, &row, &end, &e);
            if (rc == 0 && !end && (row.isl == 0 || row.osl == 0))
                abort();
        }
        trace_close(t);
        if (rc && strncmp(e.text, "fuzz:", 5))
            abort();
    }
    return 0;
}
