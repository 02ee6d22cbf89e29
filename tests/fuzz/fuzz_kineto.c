/* Traces: an accepted one is a profile that survives a round trip. */
#include "fuzz.h"
#include "ty_workloads.h"

#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/tmp/trainyard-fuzz-XXXXXX";
    int file = mkstemp(path);
    ty_profile *profile = NULL;
    ty_error error = {0};

    MUST(file >= 0);
    MUST(write(file, data, size) == (ssize_t)size);
    close(file);
    if (ty_profile_import_kineto(path, &profile, NULL, &error) == TY_OK) {
        MUST(profile->layer_time_count > 0);
        for (uint32_t i = 0; i < profile->layer_time_count; i++)
            MUST(profile->layer_times[i].forward_s >= 0);
        ty_profile_free(profile);
    } else {
        MUST(error.message[0] != '\0');
    }
    unlink(path);
    return 0;
}
