/* A validation as JSON and as a table. */
#include "asked.h"

#include <math.h>
#include <string.h>

static void put_share(ty_json_writer *w, const char *key, double value)
{
    if (isnan(value))
        ty_json_put_null(w, key);
    else
        ty_json_put_number(w, key, value);
}

static void put_score(const ty_validation_score *s, ty_json_writer *w)
{
    put_share(w, "mean_error", s->mean_error);
    put_share(w, "median_error", s->median_error);
    put_share(w, "p90_error", s->p90_error);
    put_share(w, "pair_order", s->pair_order);
    put_share(w, "mean_regret", s->mean_regret);
    ty_json_put_uint(w, "pairs", s->pairs);
    ty_json_put_uint(w, "choices", s->choices);
}

static void put_rows(const ty_validated_source *s, ty_json_writer *w)
{
    ty_json_open(w, "predictions", '[');
    for (uint32_t i = 0; i < s->rows; i++) {
        const ty_verdict *v = &s->verdicts[i];
        ty_json_open_flat(w, NULL, '{');
        ty_json_put_string(w, "id", s->records->items[i].id);
        ty_json_put_string(w, "predictor", s->row_predictors[i]);
        if (v->is_predicted) {
            ty_json_put_string(w, "metric", s->records->items[i].metric);
            ty_json_put_string(w, "unit", s->records->items[i].unit);
            ty_json_put_number(w, "measured", s->records->items[i].value);
            ty_json_put_number(w, "predicted", v->value);
            ty_json_put_bool(w, "is_fitted", v->is_fitted);
            if (v->command != NULL) {
                if (strcmp(v->answer_at, TY_STEP_TIME_AT) == 0)
                    ty_json_put_number(w, "predicted_step_time_s", v->answer);
                ty_json_put_raw(w, "command", v->command);
                ty_json_put_string(w, "answer_at", v->answer_at);
                ty_json_put_number(w, "answer", v->answer);
            }
            if (v->assumed[0] != '\0')
                ty_json_put_string(w, "assumed", v->assumed);
        } else {
            ty_json_put_string(w, "skipped", v->reason);
        }
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
}

static void put_source(const ty_validated_source *s, ty_json_writer *w)
{
    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "source", s->source);
    ty_json_put_uint(w, "rows", s->rows);
    ty_json_put_uint(w, "fitted_rows", s->fitted_rows);
    ty_json_put_uint(w, "skipped_rows", s->skipped_rows);
    ty_json_put_uint(w, "predicted_rows", s->score.rows);
    ty_json_put_uint(w, "recalled_rows", s->recalled_rows);
    put_score(&s->score, w);
    ty_json_open(w, "fitted", '{');
    put_score(&s->fitted, w);
    ty_json_close(w, '}');
    ty_json_open(w, "predictors", '[');
    for (uint32_t p = 0; p < s->predictor_count; p++) {
        ty_json_open(w, NULL, '{');
        ty_json_put_string(w, "predictor", s->predictors[p].predictor);
        ty_json_put_uint(w, "rows", s->predictors[p].score.rows);
        put_score(&s->predictors[p].score, w);
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
    ty_json_open(w, "skipped", '[');
    for (uint32_t k = 0; k < s->skip_count; k++) {
        ty_json_open_flat(w, NULL, '{');
        ty_json_put_string(w, "reason", s->skips[k].reason);
        ty_json_put_uint(w, "rows", s->skips[k].rows);
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
    put_rows(s, w);
    ty_json_close(w, '}');
}

void ty_validation_to_json(const ty_validation *validation, ty_json_writer *w)
{
    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "schema", "trainyard.validation/1");
    ty_json_open(w, "sources", '[');
    for (uint32_t i = 0; i < validation->source_count; i++)
        put_source(&validation->sources[i], w);
    ty_json_close(w, ']');
    ty_json_close(w, '}');
}

/* ---- For people -------------------------------------------------------------------------- */

static void add_share(ty_text *text, double value)
{
    if (isnan(value))
        ty_text_add(text, "       -");
    else
        ty_text_addf(text, " %5.1f %%", value * 100);
}

static void add_score(ty_text *text, const ty_validation_score *s)
{
    add_share(text, s->mean_error);
    add_share(text, s->median_error);
    add_share(text, s->p90_error);
    add_share(text, s->pair_order);
    add_share(text, s->mean_regret);
    ty_text_add(text, "\n");
}

void ty_validation_print(const ty_validation *validation, ty_text *text)
{
    ty_text_add(text, "source                     rows  scored  fitted  skipped"
                      "    mean  median     p90   order  regret\n");
    for (uint32_t i = 0; i < validation->source_count; i++) {
        const ty_validated_source *s = &validation->sources[i];
        ty_text_addf(text, "%-26s %4u %7u %7u %8u", s->source, s->rows, s->score.rows,
                     s->fitted_rows, s->skipped_rows);
        add_score(text, &s->score);
        for (uint32_t p = 0; p < s->predictor_count; p++) {
            ty_text_addf(text, "  %-29s %7u %16s", s->predictors[p].predictor,
                         s->predictors[p].score.rows, "");
            add_score(text, &s->predictors[p].score);
        }
        if (s->fitted_rows > 0) {
            ty_text_addf(text, "  %-29s %15u %8s", "fitted", s->fitted_rows, "");
            add_score(text, &s->fitted);
        }
        for (uint32_t k = 0; k < s->skip_count; k++)
            ty_text_addf(text, "  skipped %u: %s\n", s->skips[k].rows, s->skips[k].reason);
    }
    ty_text_add(text, "error: |predicted/measured - 1| of rows that nothing was fitted to; order: "
                      "pairs of one model on one\ncluster in the right order; regret: how much "
                      "worse the row chosen is than the best\n");
}
