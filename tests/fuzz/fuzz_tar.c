/* Tar: entries are within the file, and the iteration ends. */
#include "fuzz.h"
#include "tar_entries.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    uint64_t at = 0, before = 0;
    bool is_end = false;
    ty_error error = {0};

    while (!is_end) {
        tar_entry entry = {0};
        const ty_status status = tar_next(bytes, length, &at, "input", &entry, &is_end, &error);

        MUST(status == TY_OK || status == TY_EPARSE);
        if (status == TY_EPARSE) {
            MUST(strncmp(error.message, "input: ", 7) == 0);
            return 0;
        }
        MUST(at <= length);
        MUST(is_end || at > before);
        MUST(is_end || (entry.offset <= length && entry.bytes <= length - entry.offset));
        MUST(memchr(entry.name, '\0', sizeof entry.name) != NULL);
        before = at;
    }
    return 0;
}
