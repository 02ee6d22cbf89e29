/* Custom framework files: the network of a log, and the output of a fit. */
#include "fit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

ty_status ty_fit_add_log(ty_fit *fit, const ty_collective_log *log, const ty_cluster *cluster,
                         ty_error *error)
{
    uint32_t hosts = log->hosts;

    if (log->ranks > ty_cluster_device_count(cluster))
        return ty_fail(error, TY_EINVAL,
                       "found %u ranks in the log, expected at most the %u devices of cluster "
                       "\"%s\"",
                       log->ranks, ty_cluster_device_count(cluster), ty_cluster_name(cluster));
    if (hosts == 0) /* ranks fill hosts in order */
        hosts = ty_cluster_device_host(cluster, log->ranks - 1) + 1;
    for (uint32_t i = 0; i < log->row_count; i++) {
        const ty_collective_log_row *row = &log->rows[i];
        char size[32], name[96];
        ty_format_memory((double)row->size, size);
        snprintf(name, sizeof name, "%s of %s", ty_collective_name(log->kind), size);
        TY_TRY(ty_fit_add_collective(
            fit, cluster, log->kind, log->ranks, hosts, row->bytes,
            &(ty_measurement){.name = name, .seconds = fmin(row->out_of_place_s, row->in_place_s)},
            error));
    }
    return TY_OK;
}

/* ---- The stack ------------------------------------------------------------------------------- */

/* Length of the device in the "DEVICE:KEY" of a fitted constant; 0: none. */
static size_t device_length(const ty_fit_constant *constant)
{
    const char *colon = constant->is_fitted ? strchr(constant->name, ':') : NULL;
    return colon != NULL ? (size_t)(colon - constant->name) : 0;
}

static bool is_first_of_device(const ty_fit_constant *constants, uint32_t c)
{
    const size_t device = device_length(&constants[c]);

    for (uint32_t i = 0; i < c; i++)
        if (device_length(&constants[i]) == device &&
            memcmp(constants[i].name, constants[c].name, device) == 0)
            return false;
    return true;
}

/* @param from start of the key in its name */
static void constant_to_json(const ty_fit_constant *constant, size_t from, const char *source,
                             ty_json_writer *w)
{
    if (!constant->is_fitted)
        return;
    ty_json_open_flat(w, constant->name + from, '{');
    ty_json_put_number(w, "value", constant->after);
    ty_json_put_string(w, "source", source != NULL ? source : "trainyard calibrate");
    ty_json_close(w, '}');
}

void ty_fit_stack_to_json(const ty_fit *fit, const ty_fit_origin *origin, ty_json_writer *w,
                          const char *key)
{
    uint32_t count;
    const ty_fit_constant *constants = ty_fit_constants(fit, &count);
    ty_text said = {0}, name = {0};
    bool has_devices = false;

    ty_json_open(w, key, '{');
    ty_json_put_string(w, "schema", "trainyard.stack/1");
    ty_json_put_string(w, "name", origin->name);
    ty_text_addf(&said, "%s, calibrated", ty_fit_stack(fit)->title);
    ty_json_put_string(w, "title", said.data != NULL ? said.data : "calibrated");
    ty_text_clear(&said);
    ty_text_addf(&said, "fitted by trainyard calibrate to %s, %s", origin->data, origin->date);
    ty_json_put_string(w, "source", said.data != NULL ? said.data : "trainyard calibrate");
    ty_json_put_string(w, "provenance", ty_provenance_name(TY_CALIBRATED));
    ty_json_put_string(w, "like", origin->like);
    for (uint32_t c = 0; c < count; c++)
        if (device_length(&constants[c]) == 0)
            constant_to_json(&constants[c], 0, said.data, w);
    for (uint32_t c = 0; c < count; c++) {
        const size_t device = device_length(&constants[c]);
        if (device == 0 || !is_first_of_device(constants, c))
            continue;
        if (!has_devices)
            ty_json_open(w, "on", '[');
        has_devices = true;
        ty_text_append(&name, constants[c].name, device);
        ty_json_open(w, NULL, '{');
        ty_json_put_string(w, "device", name.data != NULL ? name.data : "");
        for (uint32_t o = c; o < count; o++)
            if (device_length(&constants[o]) == device &&
                memcmp(constants[o].name, constants[c].name, device) == 0)
                constant_to_json(&constants[o], device + 1, said.data, w);
        ty_json_close(w, '}');
        ty_text_clear(&name);
    }
    if (has_devices)
        ty_json_close(w, ']');
    ty_json_close(w, '}');
    if (said.failed != TY_OK)
        w->text->failed = said.failed;
    ty_text_clear(&said);
}

/* ---- Documents ------------------------------------------------------------------------------- */

ty_status ty_fit_to_json(const ty_fit *fit, const ty_fit_origin *origin, ty_json_writer *w,
                         ty_error *error)
{
    static const char *const stages[] = {"before", "after", "left_out"};
    uint32_t row_count, constant_count;
    const ty_fit_row *rows = ty_fit_rows(fit, &row_count);
    const ty_fit_constant *constants = ty_fit_constants(fit, &constant_count);
    ty_fit_score scores[3];

    for (int s = 0; s < 3; s++)
        TY_TRY(ty_fit_score_of(fit, (ty_fit_stage)s, false, NULL, &scores[s], error));
    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "schema", "trainyard.fit/1");
    ty_json_open(w, "rows", '[');
    for (uint32_t i = 0; i < row_count; i++) {
        ty_json_open_flat(w, NULL, '{');
        ty_json_put_string(w, "name", rows[i].name);
        ty_json_put_number(w, "measured_s", rows[i].measured_s);
        ty_json_put_number(w, "before_s", rows[i].before_s);
        ty_json_put_number(w, "after_s", rows[i].after_s);
        if (!isnan(rows[i].left_out_s))
            ty_json_put_number(w, "left_out_s", rows[i].left_out_s);
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
    for (int s = 0; s < 3; s++) {
        if (scores[s].rows == 0)
            continue;
        ty_json_open_flat(w, stages[s], '{');
        ty_json_put_number(w, "mean_error", scores[s].mean);
        ty_json_put_number(w, "signed_mean_error", scores[s].signed_mean);
        ty_json_put_number(w, "median_error", scores[s].median);
        ty_json_put_number(w, "p90_error", scores[s].p90);
        ty_json_close(w, '}');
    }
    ty_json_open(w, "constants", '[');
    for (uint32_t c = 0; c < constant_count; c++) {
        ty_json_open_flat(w, NULL, '{');
        ty_json_put_string(w, "name", constants[c].name);
        ty_json_put_number(w, "before", constants[c].before);
        ty_json_put_number(w, "after", constants[c].after);
        ty_json_put_number(w, "told", constants[c].told);
        if (constants[c].is_at_limit)
            ty_json_put_bool(w, "is_at_limit", true);
        if (!constants[c].is_fitted)
            ty_json_put_string(w, "left_alone", constants[c].reason);
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
    ty_fit_stack_to_json(fit, origin, w, "stack");
    ty_json_close(w, '}');
    return TY_OK;
}

static void add_prediction(double predicted_s, double measured_s, ty_text *text)
{
    char seconds[32];

    if (isnan(predicted_s))
        return;
    ty_format_seconds(predicted_s, seconds);
    ty_text_addf(text, " %10s %+6.1f %%", seconds, 100 * (predicted_s / measured_s - 1));
}

ty_status ty_fit_to_text(const ty_fit *fit, ty_text *text, ty_error *error)
{
    uint32_t row_count, constant_count;
    const ty_fit_row *rows = ty_fit_rows(fit, &row_count);
    const ty_fit_constant *constants = ty_fit_constants(fit, &constant_count);
    ty_fit_score before, after, left_out;
    uint32_t silent = 0, fitted = 0;
    int width = 4;

    TY_TRY(ty_fit_score_of(fit, TY_FIT_BEFORE, false, NULL, &before, error));
    TY_TRY(ty_fit_score_of(fit, TY_FIT_AFTER, false, NULL, &after, error));
    TY_TRY(ty_fit_score_of(fit, TY_FIT_LEFT_OUT, false, NULL, &left_out, error));
    for (uint32_t i = 0; i < row_count; i++)
        width = (int)strlen(rows[i].name) > width ? (int)strlen(rows[i].name) : width;
    ty_text_addf(text, "%-*s %10s %19s %19s%s\n", width, "row", "measured", "before    ",
                 "after    ", left_out.rows > 0 ? "        left out    " : "");
    for (uint32_t i = 0; i < row_count; i++) {
        const ty_fit_row *r = &rows[i];
        char measured[32];
        ty_format_seconds(r->measured_s, measured);
        ty_text_addf(text, "%-*s %10s", width, r->name, measured);
        add_prediction(r->before_s, r->measured_s, text);
        add_prediction(r->after_s, r->measured_s, text);
        add_prediction(r->left_out_s, r->measured_s, text);
        ty_text_add(text, "\n");
    }
    ty_text_addf(text, "\nerror       %.3g %% before, %.3g %% after", 100 * before.mean,
                 100 * after.mean);
    if (left_out.rows > 0)
        ty_text_addf(text, ", %.3g %% of rows left out of the fit", 100 * left_out.mean);
    ty_text_add(text, " (mean)\n");
    for (uint32_t c = 0; c < constant_count; c++)
        fitted += constants[c].is_fitted;
    if (fitted == 0)
        ty_text_add(text, "fitted      nothing: no constant lowers the error of rows left out\n");
    for (uint32_t c = 0; c < constant_count; c++)
        if (constants[c].is_fitted)
            ty_text_addf(text, "fitted      %s %.4g, was %.4g%s\n", constants[c].name,
                         constants[c].after, constants[c].before,
                         constants[c].is_at_limit ? ": the limit of what it may be" : "");
    for (uint32_t c = 0; c < constant_count; c++)
        if (!constants[c].is_fitted && constants[c].told >= TY_FIT_LEAST_TOLD)
            ty_text_addf(text, "left alone  %s %.4g: %s\n", constants[c].name, constants[c].before,
                         constants[c].reason);
    for (uint32_t c = 0; c < constant_count; c++)
        if (!constants[c].is_fitted && constants[c].told < TY_FIT_LEAST_TOLD)
            ty_text_addf(text, "%s%s", silent++ > 0 ? ", " : "untold      ", constants[c].name);
    ty_text_add(text, silent > 0 ? "\n" : "");
    return TY_OK;
}
