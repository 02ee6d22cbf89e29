/* Configurations of training programs, with a model for those that have none. An accepted one has a
 * valid workload and a described layout, and gives the same when it is read again. */
#define _GNU_SOURCE /* memfd_create */
#include "fuzz.h"
#include "ty_training_config.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static ty_status load(const char *path, const char *model, ty_training_config *out, ty_text *fix)
{
    ty_error error = {0};
    ty_status status = ty_training_config_load(path, model, 1000, out, &error);

    if (status != TY_OK) {
        MUST(error.message[0] != '\0');
        MUST(out->workload == NULL && out->report.notes == NULL);
        return status;
    }
    MUST(out->format != NULL);
    MUST(ty_workload_check(out->workload, "input", NULL) == TY_OK);
    MUST(out->global_batch == 0 || out->workload->global_batch == out->global_batch);
    MUST(!out->has_zero || out->zero <= 3);
    MUST(ty_training_config_fix(out, fix, NULL) == TY_OK);
    return TY_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const models[] = {NULL, "mlp"};
    int file = memfd_create("config", MFD_CLOEXEC);
    char path[64];

    MUST(file >= 0);
    MUST(write(file, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        ty_training_config first = {0}, second = {0};
        ty_text fix = {0}, again = {0};
        ty_status status = load(path, models[m], &first, &fix);
        MUST(load(path, models[m], &second, &again) == status);
        MUST(fix.length == again.length);
        MUST(fix.length == 0 || memcmp(fix.data, again.data, fix.length) == 0);
        MUST(first.global_batch == second.global_batch && first.devices == second.devices);
        ty_text_clear(&fix);
        ty_text_clear(&again);
        ty_training_config_clear(&first);
        ty_training_config_clear(&second);
    }
    close(file);
    return 0;
}
