/* Files of measurements: what is read keeps what it promises, and is scored without harm. */
#include "fuzz.h"
#include "ty_validate.h"

#include <math.h>
#include <string.h>

static void use_record(const ty_records *records, uint32_t index)
{
    const ty_record *r = &records->items[index];

    MUST(r->id[0] != '\0' && r->metric[0] != '\0' && isfinite(r->value));
    MUST(r->gpus >= 0 && r->global_batch >= 0 && r->micro_batches >= 0 && r->runs >= 0);
    MUST(isfinite(ty_record_also_measured(r, "epochs")));
    MUST(strlen(ty_record_text(r, "model", "name")) == strlen(r->model));
    for (uint32_t p = 0;; p++) {
        MUST(ty_predictor_at(p) != NULL); /* the last one takes all */
        if (ty_predictor_at(p)->takes(records, index))
            break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    ty_records *records = NULL;
    ty_error error = {0};
    ty_status status = ty_records_parse((const char *)bytes, length, "input", &records, &error);

    if (status == TY_OK)
        for (uint32_t i = 0; i < records->count; i++)
            use_record(records, i);
    else
        MUST(status == TY_EPARSE && strlen(error.message) > 10);
    ty_records_free(records);
    return 0;
}
