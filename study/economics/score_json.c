/* `trainyard.score/1`. */
#include "ty_economics.h"
#include "ty_json.h"

#include <math.h>
#include <string.h>

static void put_failures(const ty_failure_forecast *f, ty_json_writer *w)
{
    ty_json_open(w, "failures", '{');
    if (isinf(f->system_mtbf_s))
        ty_json_put_null(w, "system_mtbf_s");
    else
        ty_json_put_number(w, "system_mtbf_s", f->system_mtbf_s);
    if (isinf(f->checkpoint_interval_s))
        ty_json_put_null(w, "checkpoint_interval_s");
    else
        ty_json_put_number(w, "checkpoint_interval_s", f->checkpoint_interval_s);
    ty_json_put_number(w, "goodput", f->goodput);
    ty_json_close(w, '}');
}

static void put_target(const ty_score *s, ty_json_writer *w)
{
    ty_json_put_string(w, "convergence_provenance", s->is_prior ? "prior" : "measured");
    ty_json_put_number(w, "steps_to_target", s->steps);
    ty_interval_to_json(s->samples_to_target, w, "samples_to_target");
    ty_interval_to_json(s->compression_multiplier, w, "compression_multiplier");
    ty_interval_to_json(s->staleness_multiplier, w, "staleness_multiplier");
    ty_interval_to_json(s->rate_multiplier, w, "rate_multiplier");
    ty_interval_to_json(s->time_to_target_s, w, "time_to_target_s");
    if (s->has_price)
        ty_interval_to_json(s->money_usd, w, "money_usd");
    if (s->has_power)
        ty_interval_to_json(s->energy_j, w, "energy_j");
}

void ty_score_notes_to_json(const char *notes, ty_json_writer *w)
{
    ty_text line = {0};

    ty_json_open(w, "notes", '[');
    for (const char *end; (end = strchr(notes, '\n')) != NULL; notes = end + 1) {
        ty_text_append(&line, notes, (size_t)(end - notes));
        if (line.failed != TY_OK)
            w->text->failed = line.failed;
        else
            ty_json_put_string(w, NULL, line.data);
        ty_text_clear(&line);
    }
    ty_json_close(w, ']');
}

void ty_score_to_json(const ty_score *s, ty_json_writer *w, const char *key)
{
    ty_json_open(w, key, '{');
    if (key == NULL)
        ty_json_put_string(w, "schema", "trainyard.score/1");
    ty_json_put_number(w, "step_time_s", s->step_time_s);
    ty_json_put_number(w, "samples_per_s", s->samples_per_s);
    ty_step_rates_to_json(&s->step, w);
    ty_json_put_string(w, "provenance", ty_provenance_name(s->provenance));
    if (s->is_bound_by_input)
        ty_json_put_string(w, "input_bound_by", s->input_bound_by);
    ty_json_put_uint(w, "checkpoint_bytes", s->checkpoint_bytes);
    put_failures(&s->failures, w);
    if (s->has_price)
        ty_json_put_number(w, "price_usd_per_hour", s->price_usd_per_hour);
    if (s->has_power)
        ty_interval_to_json(s->power_w, w, "power_w");
    if (s->has_target)
        put_target(s, w);
    if (s->cost.steps > 0)
        ty_record_write(&ty_training_cost_record, &s->cost, NULL, w, "cost");
    ty_score_notes_to_json(s->notes, w);
    ty_json_close(w, '}');
}
