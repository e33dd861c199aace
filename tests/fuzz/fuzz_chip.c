/* Any bytes as a chip file: a message or a chip, and what loads loads again from its own document.
 */
#include "backends/tpu_sim/chip.h"
#include "harness/core/json.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err e = {0};
    json_t *json = NULL;
    if (size > 1 << 16 || json_parse((const char *)data, size, "fuzz.json", &json, &e))
        return 0;
    struct chip a, b;
    if (chip_from_json(json, "fuzz.json", NULL, 0, &a, &e) == 0) {
        if (chip_from_json(json, "fuzz.json", NULL, 0, &b, &e) || memcmp(&a, &b, sizeof a) != 0)
            abort();
    } else if (e.text[0] == '\0') {
        abort();
    }
    json_decref(json);
    return 0;
}
