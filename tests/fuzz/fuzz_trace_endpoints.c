/* Any bytes as an MLPerf Endpoints conversation file: sessions whose calls hang together as promised and
 * whose messages are JSON, or an error that names the place. */
#include "tests/fuzz/session_laws.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    session_laws(data, size, TRACE_ENDPOINTS);
    return 0;
}
