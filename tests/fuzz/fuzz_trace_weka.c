/* Any bytes as a Weka trace: sessions whose calls hang together as promised, or an error that names the
 * place. */
#include "tests/fuzz/session_laws.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    session_laws(data, size, TRACE_WEKA);
    return 0;
}
