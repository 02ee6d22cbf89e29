/* Language models: their layout (tensor, pipeline, data parallel and the rest) in closed form. */
#include "predictors.h"
#include "ty_layout.h"

#include <stdio.h>
#include <string.h>

static bool is_language_model(const ty_record *r)
{
    static const char *const families[] = {"gpt", "moe-gpt", "bert", "t5", "encoder-decoder"};

    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(r->model_family, families[i]) == 0)
            return true;
    return false;
}

bool ty_takes_layout(const ty_records *records, uint32_t index)
{
    const ty_record *r = &records->items[index];
    return is_language_model(r) && strcmp(r->kind, "training-speed") == 0;
}

/* In the record's own unit: its figure times or over how much slower the predicted step is. */
ty_status ty_predict_layout(const ty_records *records, uint32_t index, ty_verdict *out,
                            ty_error *error)
{
    const ty_record *r = &records->items[index];
    ty_layout_record layout;
    double step_s, slower;
    ty_status status = ty_layout_predict_record(r->json, &layout, &step_s, error);

    if (status != TY_OK)
        return status;
    if (layout.reason[0] != '\0' || !(layout.measured_step_s > 0) || !(step_s > 0)) {
        snprintf(out->reason, sizeof out->reason, "%s",
                 layout.reason[0] != '\0' ? layout.reason : "no step time");
        return TY_OK;
    }
    slower = step_s / layout.measured_step_s;
    out->is_predicted = true;
    out->is_fitted = layout.is_fitted;
    out->value = ty_record_more_is_better(r) ? r->value / slower : r->value * slower;
    return TY_OK;
}
