/* Files of measurements: accepted ones are valid, and can be scored without errors. */
#include "fuzz.h"
#include "validate/row_question.h"

#include <math.h>
#include <string.h>

static void use_record(const ty_record *r)
{
    static ty_json_document *names;
    char line[TY_ROW_QUESTION_SIZE], reason[TY_SKIP_REASON_SIZE] = "";
    ty_row_question asked;

    MUST(r->id[0] != '\0' && r->metric[0] != '\0' && isfinite(r->value));
    MUST(r->gpus >= 0 && r->global_batch >= 0 && r->micro_batches >= 0 && r->runs >= 0);
    MUST(isfinite(ty_record_also_measured(r, "epochs")));
    MUST(strlen(ty_find_text(r->json, "model.name")) == strlen(r->model));
    MUST(names != NULL || ty_names_open(&names, NULL) == TY_OK);
    MUST(ty_names_cluster(ty_json_root(names), r, line, reason) == (reason[0] == '\0'));
    ty_ask_language_model(ty_json_root(names), r, &asked, reason);
    MUST((reason[0] == '\0') == (asked.measured_step_s > 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    ty_records *records = NULL;
    ty_error error = {0};
    ty_status status = ty_records_parse((const char *)bytes, length, "input", &records, &error);

    if (status == TY_OK)
        for (uint32_t i = 0; i < records->count; i++)
            use_record(&records->items[i]);
    else
        MUST(status == TY_EPARSE && strlen(error.message) > 10);
    ty_records_free(records);
    return 0;
}
