/* Logs of nccl-tests: an accepted log has rows that a profile supports. */
#include "fuzz.h"
#include "ty_planner.h"

#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    ty_collective_log *log = NULL;
    ty_error error = {0};
    ty_status status;

    MUST(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    status = ty_collective_log_parse(text, "input", TY_COLLECTIVE_COUNT, &log, &error);
    if (status == TY_OK) {
        MUST(log->row_count > 0 && log->ranks > 0 && log->kind < TY_COLLECTIVE_COUNT);
        for (uint32_t i = 0; i < log->row_count; i++) {
            MUST(log->rows[i].size > 0 && log->rows[i].bytes <= log->rows[i].size);
            MUST(isfinite(log->rows[i].out_of_place_s) && log->rows[i].out_of_place_s > 0);
            MUST(isfinite(log->rows[i].in_place_s) && log->rows[i].in_place_s > 0);
        }
    } else {
        MUST(status == TY_EPARSE && strncmp(error.message, "input:", strlen("input:")) == 0);
        MUST(log == NULL);
    }
    ty_collective_log_free(log);
    free(text);
    return 0;
}
