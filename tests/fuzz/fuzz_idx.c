/* IDX files: an accepted file has exactly the length that its header states. */
#include "dataset.h"
#include "fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    for (uint32_t dimensions = 1; dimensions <= 3; dimensions++) {
        uint32_t sizes[3] = {0};
        uint64_t product = 1;
        ty_error error = {0};
        ty_status status = idx_check(bytes, length, "input", dimensions, sizes, &error);

        MUST(status == TY_OK || status == TY_EPARSE);
        if (status == TY_EPARSE) {
            MUST(strncmp(error.message, "input: ", 7) == 0);
            continue;
        }
        for (uint32_t d = 0; d < dimensions; d++)
            product *= sizes[d];
        MUST(product > 0 && product + IDX_HEADER(dimensions) == length);
        MUST(bytes[2] == 8 && bytes[3] == dimensions);
    }
    return 0;
}
