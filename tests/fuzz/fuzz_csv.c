/* Any bytes as CSV: a message, or a table whose every field can be read. */
#include "harness/run/csv.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct csv_table c;
    struct err e = {0};
    if (size > 1 << 20)
        return 0;
    if (csv_table_parse(&c, (const char *)data, size, "fuzz.csv", &e)) {
        if (e.text[0] == '\0')
            abort();
        return 0;
    }
    size_t total = 0;
    for (size_t r = 0; r < c.rows; r++)
        for (size_t k = 0; k < c.columns; k++)
            total += strlen(csv_table_get(&c, r, (int)k));
    if (total > size)
        abort();
    csv_table_release(&c);
    return 0;
}
