/* The JSON form of comparisons. */
#include "operation.h"
#include "ty_reports.h"

static void put_interval(const double figure[3], ty_json_writer *w, const char *key)
{
    ty_json_open_flat(w, key, '{');
    ty_json_put_number(w, "low", figure[0]);
    ty_json_put_number(w, "expected", figure[1]);
    ty_json_put_number(w, "high", figure[2]);
    ty_json_close(w, '}');
}

void ty_target_comparison_to_json(const ty_target_comparison *t, ty_json_writer *w)
{
    ty_json_open(w, "target", '{');
    if (t->until.accuracy > 0)
        ty_json_put_number(w, "accuracy", t->until.accuracy);
    else
        ty_json_put_number(w, "loss", t->until.loss);
    if (t->is_reached) {
        ty_json_put_number(w, "measured_steps", t->measured_steps);
        ty_json_put_number(w, "measured_s", t->measured_s);
    }
    if (t->is_predicted) {
        put_interval(t->predicted_steps, w, "predicted_steps");
        put_interval(t->predicted_s, w, "predicted_s");
    }
    ty_json_close(w, '}');
}

void ty_comparison_to_json(const ty_plan *plan, const ty_comparison *c, ty_json_writer *w,
                           const char *key)
{
    ty_json_open(w, key, '{');
    ty_json_put_string(w, "schema", "trainyard.comparison/1");
    ty_json_put_string(w, "workload", plan->workload->name);
    ty_json_put_string(w, "cluster", plan->cluster_name);
    ty_json_put_string(w, "strategy", plan->strategy);
    ty_json_put_number(w, "predicted_step_time_s", c->predicted.step_time_s);
    ty_json_put_number(w, "measured_step_time_s", c->measured.step_time_s);
    ty_json_put_number(w, "step_time_error", c->step_time_error);
    if (ty_comparison_is_busy(c)) {
        ty_json_open_flat(w, "busy", '{');
        ty_json_put_number(w, "disturbed_share", c->disturbed_share);
        ty_json_put_number(w, "others_share", c->others_share);
        ty_json_put_number(w, "load", c->load);
        ty_json_put_uint(w, "quiet_steps", c->quiet_steps);
        if (c->quiet_step_time_s > 0) {
            ty_json_put_number(w, "quiet_step_time_s", c->quiet_step_time_s);
            ty_json_put_number(w, "quiet_step_time_error", c->quiet_error);
        }
        ty_json_close(w, '}');
    }
    ty_json_put_uint(w, "predicted_peak_memory_bytes", c->predicted_peak_memory_bytes);
    ty_json_put_uint(w, "measured_peak_memory_bytes", c->measured_peak_memory_bytes);
    ty_step_summary_to_json(&c->predicted, w, "predicted");
    ty_step_summary_to_json(&c->measured, w, "measured");
    if (ty_target_is_set(&c->target.until))
        ty_target_comparison_to_json(&c->target, w);
    ty_deployment_to_json(&plan->deployment, plan->workload, w, "deployment");
    if (c->variant.bits > 0) {
        char variant[TY_VARIANT_TEXT_SIZE];
        ty_variant_text(&c->variant, variant);
        ty_json_open_flat(w, "accuracy", '{');
        ty_json_put_string(w, "variant", variant);
        ty_json_put_number(w, "as_trained", c->accuracy);
        ty_json_put_number(w, "as_variant", c->variant_accuracy);
        ty_json_close(w, '}');
    }
    ty_json_open(w, "operations", '[');
    for (uint32_t r = 0; r < c->row_count; r++) {
        const ty_comparison_row *row = &c->rows[r];
        char name[128];
        ty_operation_name(plan, row->op, row->first_layer, row->layer_count, row->bucket,
                          row->phase, name, sizeof name);
        ty_json_open_flat(w, NULL, '{');
        ty_json_put_uint(w, "stage", row->stage);
        ty_json_put_string(w, "operation", name);
        ty_json_put_number(w, "per_step", row->per_step);
        ty_json_put_number(w, "predicted_s", row->predicted_s);
        ty_json_put_number(w, "measured_s", row->measured_s);
        ty_json_put_number(w, "error", row->error);
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
    ty_json_close(w, '}');
}
