/* Sections of the report that are about the plan itself: verdict, step, memory, search, sources. */
#include "certainty.h"
#include "html.h"
#include "operation.h"
#include "page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void ty_page_card(ty_text *html, const char *label, const char *value)
{
    ty_text_add(html, "<li><span class=\"faint\">");
    ty_html_escape(html, label);
    ty_text_add(html, "</span><b>");
    ty_html_escape(html, value);
    ty_text_add(html, "</b></li>");
}

static void put_memory_card(const ty_report_input *in, ty_text *html)
{
    const double capacity = ty_page_capacity(in->plan, in->cluster);
    char used[32], whole[32], text[72];

    if (in->plan->memory == NULL)
        return;
    ty_format_memory((double)ty_page_peak_bytes(in->plan), used);
    ty_format_memory(capacity, whole);
    snprintf(text, sizeof text, capacity > 0 ? "%s of %s" : "%s", used, whole);
    ty_page_card(html, "memory of the fullest device", text);
}

/* MFU, TFLOP/s and tokens/s per device, as far as they are known. */
static void put_rate_cards(const ty_report_input *in, const ty_step_summary *s, ty_text *html)
{
    const char *noun =
        in->cluster == NULL ? "device" : ty_device_noun(ty_cluster_device_type(in->cluster, 0));
    char label[48], value[32];

    if (s->mfu > 0) {
        snprintf(value, sizeof value, "%.1f %%", 100 * s->mfu);
        ty_page_card(html, "MFU", value);
    }
    if (s->tflops_per_device > 0) {
        snprintf(label, sizeof label, "TFLOP/s per %s", noun);
        snprintf(value, sizeof value, "%.3g", s->tflops_per_device);
        ty_page_card(html, label, value);
    }
    if (s->tokens_per_s_per_device > 0) {
        snprintf(label, sizeof label, "tokens/s per %s", noun);
        ty_format_count(s->tokens_per_s_per_device, value);
        ty_page_card(html, label, value);
    }
}

/* Of a question that has no answer, or of documents alone. */
static ty_status put_other_verdict(page *p, ty_error *error)
{
    const ty_report_document *phases = ty_page_document(p, "trainyard.phased-plan/1");
    const ty_report_document *failed = ty_page_document(p, "trainyard.infeasible/1");
    const ty_report_document *asked = ty_page_document(p, "trainyard.whatif/1");
    const char *workload, *cluster, *reason;

    if (phases != NULL)
        return ty_page_phases_verdict(p, phases->root, error);
    if (asked != NULL)
        ty_page_whatif_answer(p, asked);
    if (failed == NULL && asked != NULL)
        return TY_OK;
    if (failed == NULL || ty_json_string(failed->root, "workload", &workload, NULL) != TY_OK ||
        ty_json_string(failed->root, "cluster", &cluster, NULL) != TY_OK ||
        ty_json_string(failed->root, "reason", &reason, NULL) != TY_OK) {
        ty_text_add(p->html, "<p class=\"verdict\">No plan is part of this report.</p>\n");
        return TY_OK;
    }
    ty_text_add(p->html, "<p class=\"verdict over\"><strong>No plan fits.</strong> ");
    ty_html_escape(p->html, workload);
    ty_text_add(p->html, " on ");
    ty_html_escape(p->html, cluster);
    ty_text_add(p->html, ": ");
    ty_html_escape(p->html, reason);
    ty_text_add(p->html, ".</p>\n");
    return TY_OK;
}

/* Money and energy, where they are known: by the hour, and of as much work as people speak of. */
static void put_bill_cards(page *p, const ty_step_summary *s)
{
    const bool has_tokens = s->tokens_per_s > 0;
    const double seconds = has_tokens ? 1e9 / s->tokens_per_s : 1e6 / s->samples_per_s;
    const char *work = has_tokens ? "a billion tokens" : "a million samples";
    char label[64], value[40];

    if (isfinite(p->bill.usd_per_hour)) {
        ty_page_format(PAGE_USD, p->bill.usd_per_hour, value);
        ty_page_card(p->html, "cost an hour", value);
        snprintf(label, sizeof label, "cost of %s", work);
        ty_page_format(PAGE_USD, ty_page_usd(&p->bill, seconds), value);
        ty_page_card(p->html, label, value);
    }
    if (isfinite(p->bill.power_w)) {
        ty_page_format(PAGE_POWER, p->bill.power_w, value);
        ty_page_card(p->html, "power", value);
        snprintf(label, sizeof label, "energy of %s", work);
        ty_page_format(PAGE_ENERGY, ty_page_energy_j(&p->bill, seconds), value);
        ty_page_card(p->html, label, value);
    }
}

/* The variant that a device gets, what it takes there, and how well it did in the run. */
static void put_deployment_cards(const ty_report_input *in, ty_text *html)
{
    const ty_deployment *d = &in->plan->deployment;
    char name[TY_VARIANT_TEXT_SIZE], label[64], bytes[32], text[96];

    if (d->variant.bits == 0)
        return;
    ty_variant_text(&d->variant, name);
    ty_format_bytes((double)d->need.weight_bytes + (double)d->need.activation_bytes, bytes);
    snprintf(text, sizeof text, "%s, %s", name, bytes);
    ty_page_card(html, "deployed as", text);
    if (in->run == NULL || in->run->variant.bits == 0 || in->run->evaluation_count == 0)
        return;
    const ty_evaluation *last = &in->run->evaluations[in->run->evaluation_count - 1];
    ty_variant_text(&in->run->variant, name);
    snprintf(label, sizeof label, "test accuracy as %s", name);
    snprintf(text, sizeof text, "%.2f %% of %.2f %%", 100 * last->variant_accuracy,
             100 * last->accuracy);
    ty_page_card(html, label, text);
}

static void put_verdict_cards(page *p, const ty_step_summary *s)
{
    static const char *const how_sure[] = {
        [TY_MEASURED] = "measured",
        [TY_CALIBRATED] = "calibrated",
        [TY_DATASHEET] = "of data sheets",
    };
    const ty_report_input *in = p->in;
    const ty_stack *stack = in->plan->stack;
    const ty_stack_judged *judged = ty_plan_judged(in->plan, in->cluster);
    /* As ty_print_certainty has it. */
    const bool is_fitted = in->plan->provenance == TY_DATASHEET && in->cluster != NULL &&
                           stack != NULL && stack->fitted_count > 0 &&
                           !ty_workload_has_times(in->plan->workload);
    char text[96], time[32], longer[32];

    ty_text_add(p->html, "<ul class=\"cards\">");
    ty_format_seconds(s->step_time_s, time);
    ty_page_card(p->html, "predicted step time", time);
    if (in->comparison != NULL) {
        ty_format_seconds(in->comparison->measured.step_time_s, time);
        ty_page_card(p->html, "measured step time", time);
        snprintf(text, sizeof text, "%+.1f %%", in->comparison->step_time_error * 100);
        ty_page_card(p->html,
                     ty_comparison_is_busy(in->comparison) ? "prediction error, machine busy"
                                                           : "prediction error",
                     text);
        ty_format_count(in->comparison->measured.samples_per_s, text);
        ty_page_card(p->html, "measured samples/s", text);
    } else {
        ty_format_count(s->samples_per_s, text);
        ty_page_card(p->html, "predicted samples/s", text);
        if (s->tokens_per_s > 0) {
            ty_format_count(s->tokens_per_s, text);
            ty_page_card(p->html, "predicted tokens/s", text);
        }
    }
    put_rate_cards(in, s, p->html);
    put_memory_card(in, p->html);
    put_deployment_cards(in, p->html);
    snprintf(text, sizeof text, "%u in %u stage%s", ty_plan_process_count(in->plan),
             in->plan->stage_count, in->plan->stage_count > 1 ? "s" : "");
    if (in->plan->servers.count > 0)
        snprintf(text, sizeof text, "%u, and %u server%s", ty_plan_process_count(in->plan),
                 in->plan->servers.count, in->plan->servers.count > 1 ? "s" : "");
    ty_page_card(p->html, "devices", text);
    if (judged != NULL && in->plan->provenance != TY_MEASURED) {
        /* As far off as its stack is in the mean, to either side. */
        ty_format_seconds(s->step_time_s / (1 + judged->mean_error), time);
        ty_format_seconds(s->step_time_s * (1 + judged->mean_error), longer);
        snprintf(text, sizeof text, "%s to %s", time, longer);
        ty_page_card(p->html, "error band of step time", text);
        snprintf(text, sizeof text, "%.2g %% off over %u rows", 100 * judged->mean_error,
                 judged->rows);
        ty_page_card(p->html, "published runs", text);
    } else {
        ty_page_card(p->html, "times are",
                     is_fitted ? "fitted to published runs" : how_sure[in->plan->provenance]);
    }
    put_bill_cards(p, s);
    ty_text_add(p->html, "</ul>\n");
}

ty_status ty_page_verdict(page *p, ty_error *error)
{
    const ty_report_input *in = p->in;
    const ty_step_summary *s = p->prediction;
    char time[32], rate[32];

    if (s == NULL)
        return put_other_verdict(p, error);
    ty_format_seconds(s->step_time_s, time);
    ty_format_count(s->samples_per_s, rate);
    ty_text_add(p->html, "<p class=\"verdict\">Train <strong>");
    ty_html_escape(p->html, in->plan->workload->name);
    ty_text_add(p->html, "</strong> on <strong>");
    ty_html_escape(p->html, in->plan->cluster_name);
    ty_text_add(p->html, "</strong> with <strong>");
    ty_html_escape(p->html, in->plan->strategy);
    if (!(s->step_time_s > 0)) {
        ty_text_add(p->html, "</strong>. Nothing was predicted.</p>\n");
        return TY_OK;
    }
    ty_text_addf(p->html, "</strong>: %s a step, %s samples/s predicted", time, rate);
    if (in->comparison != NULL) {
        ty_format_seconds(in->comparison->measured.step_time_s, time);
        ty_text_addf(p->html, ", %s measured (%+.1f %%)", time,
                     in->comparison->step_time_error * 100);
    }
    ty_text_add(p->html, ". Limited by ");
    ty_html_escape(p->html,
                   in->comparison != NULL ? in->comparison->measured.limited_by : s->limited_by);
    if (in->comparison != NULL && ty_comparison_is_busy(in->comparison)) {
        ty_text_add(p->html, ". <strong>The machine</strong> ");
        ty_print_busy(in->comparison, " ", p->html);
    }
    ty_text_add(p->html, ".</p>\n");
    put_verdict_cards(p, s);
    return TY_OK;
}

/* ---- What a step is made of -------------------------------------------------------------- */

static double compute_share(const ty_step_summary *s)
{
    return s->compute_share;
}
static double collective_share(const ty_step_summary *s)
{
    return s->exposed_collective_share;
}
static double transfer_share(const ty_step_summary *s)
{
    return s->exposed_transfer_share;
}
static double bubble_share(const ty_step_summary *s)
{
    return s->bubble_share;
}
static double input_share(const ty_step_summary *s)
{
    return s->input_share;
}

const page_part ty_page_parts[PAGE_PART_COUNT] = {
    {"compute", "#0072b2", compute_share},
    {"exposed gradient exchange", "#009e73", collective_share},
    {"exposed transfers", "#cc79a7", transfer_share},
    {"pipeline bubble", "#8c8c8c", bubble_share},
    {"input", "#e69f00", input_share},
};

static void put_stack(ty_text *html, const char *label, const ty_step_summary *s, double longest_s,
                      int y)
{
    double at = 0;

    ty_text_addf(html, "<text x=\"0\" y=\"%d\">%s</text>", y + 15, label);
    for (size_t i = 0; i < PAGE_PART_COUNT; i++) {
        double width = ty_page_parts[i].share(s) * s->step_time_s / longest_s * 85;
        ty_text_addf(html,
                     "<rect x=\"%.3f%%\" y=\"%d\" width=\"%.3f%%\" height=\"20\" "
                     "fill=\"%s\"><title>%s %s: %.1f %%</title></rect>",
                     15 + at, y, width, ty_page_parts[i].colour, label, ty_page_parts[i].name,
                     ty_page_parts[i].share(s) * 100);
        at += width;
    }
}

void ty_page_breakdown(page *p)
{
    const ty_step_summary *predicted = p->prediction;
    const ty_step_summary *measured =
        p->in->comparison != NULL ? &p->in->comparison->measured : NULL;
    ty_text *html = p->html;
    double longest_s = predicted != NULL ? predicted->step_time_s : 0;

    if (measured != NULL)
        longest_s = fmax(longest_s, measured->step_time_s);
    if (!(longest_s > 0)) {
        ty_page_missing(p, "What a step is made of", "a plan with a prediction");
        return;
    }
    ty_page_section(p, "breakdown", "What a step is made of");
    ty_text_addf(html,
                 "<div class=\"panel\"><svg width=\"100%%\" height=\"%d\" role=\"img\" "
                 "aria-label=\"Stacked bars of the parts of a step; the table below has the "
                 "figures\">",
                 measured != NULL ? 56 : 28);
    put_stack(html, "predicted", predicted, longest_s, 4);
    if (measured != NULL)
        put_stack(html, "measured", measured, longest_s, 32);
    ty_text_add(html, "</svg></div>\n");
    ty_page_table(p, measured != NULL ? "<part of the step, averaged over ranks|predicted|measured"
                                      : "<part of the step, averaged over ranks|predicted");
    for (size_t i = 0; i < PAGE_PART_COUNT; i++) {
        ty_text_addf(html,
                     "<tr><td class=\"text\"><svg class=\"key\" width=\"12\" height=\"12\" "
                     "aria-hidden=\"true\"><rect width=\"12\" height=\"12\" "
                     "fill=\"%s\"/></svg> %s</td><td>%.1f %%</td>",
                     ty_page_parts[i].colour, ty_page_parts[i].name,
                     ty_page_parts[i].share(predicted) * 100);
        if (measured != NULL)
            ty_text_addf(html, "<td>%.1f %%</td>", ty_page_parts[i].share(measured) * 100);
        ty_page_end_row(p);
    }
    ty_page_end_table(p);
}

/* ---- Tables ------------------------------------------------------------------------------ */

void ty_page_errors(page *p)
{
    const ty_comparison *c = p->in->comparison;

    if (c == NULL) {
        ty_page_missing(p, "Predicted against measured",
                        "a run of the plan: trainyard run PLAN -o RUN");
        return;
    }
    ty_page_section(p, "errors", "Predicted against measured, operation by operation");
    ty_page_note(p, "Medians over ranks and recorded steps. Waiting for a partner is not counted.");
    ty_page_table(p, "stage|<operation|per step|predicted|measured|error");
    for (uint32_t r = 0; r < c->row_count; r++) {
        const ty_comparison_row *row = &c->rows[r];
        char name[128], predicted[32], measured[32];
        ty_operation_name(p->in->plan, row->op, row->first_layer, row->layer_count, row->bucket,
                          row->phase, name, sizeof name);
        ty_format_seconds(row->predicted_s, predicted);
        ty_format_seconds(row->measured_s, measured);
        ty_text_addf(p->html, "<tr><td>%u</td>", row->stage);
        ty_page_text(p, name);
        ty_text_addf(p->html, "<td>%.0f</td><td>%s</td><td>%s</td>", row->per_step, predicted,
                     measured);
        if (row->measured_s > 0)
            ty_text_addf(p->html, "<td%s>%+.1f %%</td></tr>\n",
                         fabs(row->error) > 0.1 ? " class=\"over\"" : "", row->error * 100);
        else
            ty_text_add(p->html, "<td>–</td></tr>\n");
    }
    ty_page_end_table(p);
}

/* ---- Memory ------------------------------------------------------------------------------ */

static uint64_t parameters_of(const ty_memory_use *use)
{
    return use->parameter_bytes;
}
static uint64_t gradients_of(const ty_memory_use *use)
{
    return use->gradient_bytes;
}
static uint64_t optimizer_of(const ty_memory_use *use)
{
    return use->optimizer_bytes;
}
static uint64_t activations_of(const ty_memory_use *use)
{
    return use->activation_bytes;
}
static uint64_t exchange_of(const ty_memory_use *use)
{
    return use->communication_bytes;
}
static uint64_t compression_of(const ty_memory_use *use)
{
    return use->compression_bytes;
}
static uint64_t workspace_of(const ty_memory_use *use)
{
    return use->workspace_bytes;
}

const page_purpose ty_page_purposes[PAGE_PURPOSE_COUNT] = {
    {"parameters", parameters_of},   {"gradients", gradients_of}, {"optimizer", optimizer_of},
    {"activations", activations_of}, {"exchange", exchange_of},   {"compression", compression_of},
    {"workspace", workspace_of},
};

#define NAME_SIZE 96

/* "stages 1 to 62": positions that are alike are one. */
static void name_position(const ty_plan *plan, uint32_t first, char out[NAME_SIZE])
{
    const char *noun = ty_plan_interleave(plan) > 1 ? "position" : "stage";
    uint32_t alike = 0, last = first;

    for (uint32_t p = first; p < ty_plan_position_count(plan); p++)
        if (ty_page_alike_position(plan, p) == first) {
            alike++;
            last = p;
        }
    if (alike == 1)
        snprintf(out, NAME_SIZE, "%s %u", noun, first);
    else if (last - first + 1 == alike)
        snprintf(out, NAME_SIZE, "%ss %u to %u", noun, first, last);
    else
        snprintf(out, NAME_SIZE, "%u %ss, %u to %u", alike, noun, first, last);
}

static void put_memory_chart(page *p)
{
    const ty_plan *plan = p->in->plan;
    const uint32_t most = ty_plan_position_count(plan);
    page_series series[PAGE_PURPOSE_COUNT];
    double *values = ty_alloc((size_t)most * PAGE_PURPOSE_COUNT, sizeof *values);
    char(*names)[NAME_SIZE] = ty_alloc(most, sizeof *names);
    const char **categories = ty_alloc(most, sizeof *categories);
    uint32_t count = 0;

    if (values == NULL || names == NULL || categories == NULL)
        p->html->failed = TY_ENOMEM;
    for (uint32_t s = 0; p->html->failed == TY_OK && s < most; s++) {
        if (ty_page_alike_position(plan, s) != s)
            continue;
        for (int i = 0; i < PAGE_PURPOSE_COUNT; i++)
            values[(size_t)i * most + count] = (double)ty_page_purposes[i].bytes(&plan->memory[s]);
        name_position(plan, s, names[count]);
        categories[count] = names[count];
        count++;
    }
    for (int i = 0; i < PAGE_PURPOSE_COUNT; i++)
        series[i] = (page_series){.name = ty_page_purposes[i].name,
                                  .values = values != NULL ? &values[(size_t)i * most] : NULL};
    if (p->html->failed == TY_OK)
        ty_page_plot(p, &(page_plot){.id = "memory",
                                     .caption = "Memory of a device by purpose, one bar for all "
                                                "stages that are alike",
                                     .alternative = "Stacked bars of memory by purpose for every "
                                                    "kind of stage, with the capacity of the "
                                                    "smallest device as a line",
                                     .x_name = "stages",
                                     .categories = categories,
                                     .unit = PAGE_MEMORY,
                                     .y_name = "bytes of a device",
                                     .count = count,
                                     .series = series,
                                     .series_count = PAGE_PURPOSE_COUNT,
                                     .is_stacked = true,
                                     .limit = ty_page_capacity(plan, p->in->cluster),
                                     .limit_name = "capacity of the smallest device"});
    ty_free(values);
    ty_free(names);
    ty_free(categories);
}

/* Layers of a position: the first and the last of each of its stages up to two, and their number.
 */
static void put_layers(page *p, uint32_t position)
{
    const ty_plan *plan = p->in->plan;
    const uint32_t positions = ty_plan_position_count(plan);
    const ty_layer *layers = plan->workload->layers;
    uint32_t count = 0;

    for (uint32_t s = position; s < plan->stage_count; s += positions) {
        const ty_plan_stage *stage = &plan->stages[s];
        count += stage->layer_count;
        if (s != position && s + positions < plan->stage_count) {
            ty_text_add(p->html, s == position + positions ? "; …" : "");
            continue;
        }
        ty_text_add(p->html, s == position ? "" : "; ");
        if (stage->layer_count == 0) {
            ty_text_add(p->html, "none: actors");
            continue;
        }
        ty_html_escape(p->html, layers[stage->first_layer].name);
        ty_text_add(p->html, " … ");
        ty_html_escape(p->html, layers[stage->first_layer + stage->layer_count - 1].name);
    }
    ty_text_addf(p->html, " (%u", count);
    if (ty_plan_interleave(plan) > 1)
        ty_text_addf(p->html, " in %u stages", ty_plan_interleave(plan));
    ty_text_add(p->html, ")");
}

static void put_stages(page *p)
{
    const ty_plan *plan = p->in->plan;

    ty_page_table(p, "<stages that are alike|<layers of the first|replicas|recompute|"
                     "memory of a device");
    for (uint32_t s = 0; s < ty_plan_position_count(plan); s++) {
        const ty_plan_stage *stage = &plan->stages[s];
        char bytes[32] = "–", name[NAME_SIZE];
        if (ty_page_alike_position(plan, s) != s)
            continue;
        name_position(plan, s, name);
        ty_page_row(p);
        ty_page_text(p, name);
        ty_text_add(p->html, "<td class=\"why\">");
        put_layers(p, s);
        if (plan->memory != NULL)
            ty_format_memory((double)ty_memory_use_total(&plan->memory[s]), bytes);
        ty_text_addf(p->html, "</td><td>%u</td><td>", stage->replicas);
        ty_recompute_text(stage->recompute, stage->recompute_blocks, p->html);
        ty_text_addf(p->html, "</td><td>%s</td></tr>\n", bytes);
    }
    ty_page_end_table(p);
}

void ty_page_memory(page *p)
{
    if (p->in->plan == NULL) {
        ty_page_missing(p, "Stages and memory", "a plan: trainyard plan ... -o PLAN");
        return;
    }
    ty_page_section(p, "memory", "Stages and memory");
    put_stages(p);
    if (p->in->plan->memory != NULL)
        put_memory_chart(p);
}

/* ---- Search ------------------------------------------------------------------------------ */

#define SHOWN_CANDIDATES 100
#define MOST_POINTS 2000
#define MOST_FASTER 20

static bool is_faster(const ty_plan *plan, const ty_candidate *c)
{
    return c != &plan->candidates[0] && ty_candidate_step_s(c) > 0 &&
           ty_candidate_step_s(c) < ty_candidate_step_s(&plan->candidates[0]);
}

/* Only by an estimate, beside a chosen plan that was simulated: no point of the front. */
static bool is_faster_by_estimate(const ty_plan *plan, const ty_candidate *c)
{
    return is_faster(plan, c) && !(c->simulated_step_time_s > 0) &&
           plan->candidates[0].simulated_step_time_s > 0;
}

/* Candidates whose figure is below the chosen plan's, and why they were not chosen. */
static void put_faster(page *p)
{
    const ty_plan *plan = p->in->plan;
    const ty_candidate *chosen = &plan->candidates[0];
    uint32_t count = 0;
    char cell[32];

    for (uint32_t i = 1; i < plan->candidate_count; i++) {
        const ty_candidate *c = &plan->candidates[i];
        if (!is_faster(plan, c) || count++ >= MOST_FASTER)
            continue;
        if (count == 1)
            ty_page_table(p, "<shown as faster than the chosen plan|step time|<of|<not chosen "
                             "because");
        ty_page_row(p);
        ty_page_text(p, c->name);
        ty_format_seconds(ty_candidate_step_s(c), cell);
        ty_page_number(p, cell);
        ty_page_text(p, c->simulated_step_time_s > 0 ? "simulation" : "estimate");
        ty_text_add(p->html, "<td class=\"why\">");
        ty_html_escape(p->html, c->reason);
        if (is_faster_by_estimate(plan, c)) {
            ty_format_seconds(chosen->step_time_s, cell);
            ty_text_addf(p->html,
                         "; it was not simulated, and the chosen plan's own estimate is %s", cell);
        }
        ty_text_add(p->html, "</td>");
        ty_page_end_row(p);
    }
    if (count > 0)
        ty_page_end_table(p);
    if (count > MOST_FASTER)
        ty_text_addf(p->html, "<p class=\"faint\">And %u more.</p>\n", count - MOST_FASTER);
}

/* [seconds, bytes, kind, name, reason]; kind 0 chosen, 1 on the front, 2 simulated, 3 other. */
static uint32_t put_points(page *p)
{
    const ty_plan *plan = p->in->plan;
    uint32_t drawn = 0;

    ty_json_open(&p->json, "points", '[');
    for (uint32_t i = 0; i < plan->candidate_count && i < MOST_POINTS; i++) {
        const ty_candidate *c = &plan->candidates[i];
        if (!(ty_candidate_step_s(c) > 0) || c->peak_memory_bytes == 0)
            continue;
        ty_json_open(&p->json, NULL, '[');
        ty_json_put_number(&p->json, NULL, ty_candidate_step_s(c));
        ty_json_put_uint(&p->json, NULL, c->peak_memory_bytes);
        ty_json_put_uint(&p->json, NULL,
                         i == 0                                                            ? 0
                         : ty_plan_is_on_front(plan, i) && !is_faster_by_estimate(plan, c) ? 1
                         : c->simulated_step_time_s > 0                                    ? 2
                                                                                           : 3);
        ty_json_put_string(&p->json, NULL, c->name);
        ty_json_put_string(&p->json, NULL, c->reason);
        ty_json_close(&p->json, ']');
        drawn++;
    }
    ty_json_close(&p->json, ']');
    return drawn;
}

static void put_candidates(page *p)
{
    const ty_plan *plan = p->in->plan;

    ty_page_table(p, "<candidate|estimated|simulated|memory|<fate");
    for (uint32_t c = 0; c < plan->candidate_count && c < SHOWN_CANDIDATES; c++) {
        const ty_candidate *row = &plan->candidates[c];
        char cells[3][32] = {"–", "–", "–"};
        if (row->step_time_s > 0)
            ty_format_seconds(row->step_time_s, cells[0]);
        if (row->simulated_step_time_s > 0)
            ty_format_seconds(row->simulated_step_time_s, cells[1]);
        if (row->peak_memory_bytes > 0)
            ty_format_memory((double)row->peak_memory_bytes, cells[2]);
        ty_page_row(p);
        ty_page_text(p, row->name);
        for (int i = 0; i < 3; i++)
            ty_page_number(p, cells[i]);
        ty_text_add(p->html, "<td class=\"why\">");
        ty_html_escape(p->html, row->reason);
        ty_text_add(p->html, "</td>");
        ty_page_end_row(p);
    }
    ty_page_end_table(p);
    if (plan->candidate_count > SHOWN_CANDIDATES)
        ty_text_addf(p->html, "<p class=\"faint\">And %u more: --candidates FILE writes all.</p>\n",
                     plan->candidate_count - SHOWN_CANDIDATES);
}

void ty_page_search(page *p)
{
    if (p->in->plan == NULL || p->in->plan->candidate_count == 0) {
        ty_page_missing(p, "What else was considered", "a plan that was searched for");
        return;
    }
    ty_page_section(p, "search", "What else was considered");
    ty_page_chart(p, "search", "scatter", "Step time against memory of every candidate",
                  "Scatter of candidates by step time and memory, the chosen one and the Pareto "
                  "front marked; the table has the reasons");
    put_points(p);
    ty_page_chart_table(p, "Candidates and why they lost");
    put_candidates(p);
    ty_page_end_chart(p);
    put_faster(p);
}

/* ---- Provenance -------------------------------------------------------------------------- */

static void put_fact(page *p, const char *name, const char *value)
{
    if (value == NULL || value[0] == '\0')
        return;
    ty_text_add(p->html, "<tr><td class=\"text\">");
    ty_html_escape(p->html, name);
    ty_text_add(p->html, "</td><td class=\"why\">");
    ty_html_escape(p->html, value);
    ty_text_add(p->html, "</td></tr>\n");
}

static void put_plan_facts(page *p, const ty_plan *plan)
{
    ty_digest cluster;

    put_fact(p, "layer and transfer times", ty_provenance_name(plan->provenance));
    put_fact(p, "predicted step",
             p->prediction != &plan->prediction ? "simulated, with contention on links and cores"
                                                : "estimated");
    put_fact(p, "memory", "counted by the planner's memory model (docs/design/memory-model.md)");
    if (plan->stack != NULL) {
        put_fact(p, "stack", plan->stack->title);
        put_fact(p, "constants of the stack", plan->stack->source);
    }
    if (plan->fix != NULL && plan->stack != NULL) {
        ty_text again = {0};
        ty_plan_add_question(plan, &again);
        ty_text_addf(&again, " --fix %s", plan->fix);
        if (!again.failed)
            put_fact(p, "what gives this plan again", again.data);
        ty_text_clear(&again);
    }
    put_fact(p, "workload", plan->workload->source);
    put_fact(p, "workload digest", plan->workload_digest.hex);
    if (ty_cluster_digest(plan->cluster, &cluster, NULL) == TY_OK)
        put_fact(p, "cluster digest", cluster.hex);
    if (plan->deployment.variant.bits > 0) {
        ty_text deployed = {0};
        ty_deployment_sentence(&plan->deployment, &deployed);
        if (!deployed.failed)
            put_fact(p, "what is trained is deployed", deployed.data);
        ty_text_clear(&deployed);
    }
    if (plan->idle_devices > 0) {
        char idle[96];
        snprintf(idle, sizeof idle, "%u of %u, counted in what a step costs and draws",
                 plan->idle_devices, plan->idle_devices + ty_plan_launched_count(plan));
        put_fact(p, "devices that stay idle", idle);
    }
    for (int kind = 0; kind < TY_UNEVEN_COUNT; kind++) {
        ty_text uneven = {0};
        ty_print_uneven(plan, (ty_uneven_kind)kind, &uneven);
        if (uneven.length > 0 && !uneven.failed)
            put_fact(p, "divides badly", uneven.data);
        ty_text_clear(&uneven);
    }
    if (plan->profile != NULL) {
        put_fact(p, "profile of", plan->profile->machine);
        put_fact(p, "profile date", plan->profile->date);
        put_fact(p, "profile libraries", plan->profile->versions);
    }
}

static void put_device_facts(page *p)
{
    const ty_cluster *cluster = p->in->cluster;
    const ty_device_type *last = NULL;

    for (uint32_t d = 0; cluster != NULL && d < ty_cluster_device_count(cluster); d++) {
        const ty_device_type *type = ty_cluster_device_type(cluster, d);
        if (type == last)
            continue;
        last = type;
        put_fact(p, type->name, type->source);
    }
}

void ty_page_provenance(page *p)
{
    const ty_report_input *in = p->in;

    ty_page_section(p, "provenance", "Where the figures come from");
    ty_text_add(p->html, "<div class=\"scroll\" tabindex=\"0\"><table><tbody>\n");
    if (in->plan != NULL)
        put_plan_facts(p, in->plan);
    put_device_facts(p);
    if (in->run != NULL) {
        put_fact(p, "run on", in->run->machine);
        put_fact(p, "run date", in->run->date);
        put_fact(p, "run libraries", in->run->versions);
    }
    put_fact(p, "command", in->command);
    ty_text_add(p->html, "</tbody></table></div>\n");
    if (in->document_count == 0)
        return;
    ty_page_table(p, "<file|<schema|<SHA-256");
    for (uint32_t i = 0; i < in->document_count; i++) {
        if (in->documents[i].is_derived)
            continue;
        ty_page_row(p);
        ty_page_text(p, in->documents[i].path);
        ty_page_text(p, in->documents[i].schema);
        ty_page_text(p, in->documents[i].digest.hex);
        ty_page_end_row(p);
    }
    ty_page_end_table(p);
}
