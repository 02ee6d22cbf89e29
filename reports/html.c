/* The HTML report: one page, no network, the answer first. */
#include "html.h"
#include "operation.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void ty_html_escape(ty_text *html, const char *text)
{
    for (const char *c = text; c != NULL && *c != '\0'; c++) {
        const char *entity = *c == '&'    ? "&amp;"
                             : *c == '<'  ? "&lt;"
                             : *c == '>'  ? "&gt;"
                             : *c == '"'  ? "&quot;"
                             : *c == '\'' ? "&#39;"
                                          : NULL;
        if (entity != NULL)
            ty_text_add(html, entity);
        else
            ty_text_append(html, c, 1);
    }
}

static void put_card(ty_text *html, const char *label, const char *value)
{
    ty_text_add(html, "<li><span class=\"faint\">");
    ty_html_escape(html, label);
    ty_text_add(html, "</span><b>");
    ty_html_escape(html, value);
    ty_text_add(html, "</b></li>");
}

static const ty_step_summary *prediction_of(const ty_report_input *in)
{
    if (in->comparison != NULL)
        return &in->comparison->predicted;
    return in->plan->simulation.step_time_s > 0 ? &in->plan->simulation : &in->plan->prediction;
}

static void put_memory_card(const ty_report_input *in, ty_text *html)
{
    char memory[32];
    uint64_t peak = 0;

    if (in->plan->memory == NULL)
        return;
    for (uint32_t i = 0; i < in->plan->stage_count; i++)
        if (ty_memory_use_total(&in->plan->memory[i]) > peak)
            peak = ty_memory_use_total(&in->plan->memory[i]);
    ty_format_memory((double)peak, memory);
    put_card(html, "memory of a device", memory);
}

static void put_verdict(const ty_report_input *in, ty_text *html)
{
    const ty_step_summary *s = prediction_of(in);
    char time[32], rate[32], error[32];

    ty_format_seconds(s->step_time_s, time);
    ty_format_count(s->samples_per_s, rate);
    ty_text_add(html, "<p class=\"verdict\">Train <strong>");
    ty_html_escape(html, in->plan->workload->name);
    ty_text_add(html, "</strong> on <strong>");
    ty_html_escape(html, in->plan->cluster_name);
    ty_text_add(html, "</strong> with <strong>");
    ty_html_escape(html, in->plan->strategy);
    if (!(s->step_time_s > 0)) {
        ty_text_add(html, "</strong>. Nothing was predicted.</p>\n");
        return;
    }
    ty_text_addf(html, "</strong>: %s a step, %s samples/s predicted", time, rate);
    if (in->comparison != NULL) {
        ty_format_seconds(in->comparison->measured.step_time_s, time);
        ty_text_addf(html, ", %s measured (%+.1f %%)", time, in->comparison->step_time_error * 100);
    }
    ty_text_add(html, ". Limited by ");
    ty_html_escape(html,
                   in->comparison != NULL ? in->comparison->measured.limited_by : s->limited_by);
    ty_text_add(html, ".</p>\n<ul class=\"cards\">");
    ty_format_seconds(s->step_time_s, time);
    put_card(html, "predicted step", time);
    if (in->comparison != NULL) {
        ty_format_seconds(in->comparison->measured.step_time_s, time);
        put_card(html, "measured step", time);
        snprintf(error, sizeof error, "%+.1f %%", in->comparison->step_time_error * 100);
        put_card(html, "prediction error", error);
        ty_format_count(in->comparison->measured.samples_per_s, rate);
        put_card(html, "measured samples/s", rate);
    } else {
        put_card(html, "predicted samples/s", rate);
    }
    put_memory_card(in, html);
    ty_text_add(html, "</ul>\n");
}

/* ---- What a step is made of -------------------------------------------------------------- */

typedef struct part {
    const char *name;
    const char *colour;
    double (*share)(const ty_step_summary *s);
} part;

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

static const part parts[] = {
    {"compute", "#0072b2", compute_share},
    {"exposed gradient exchange", "#009e73", collective_share},
    {"exposed transfers", "#cc79a7", transfer_share},
    {"pipeline bubble", "#8c8c8c", bubble_share},
    {"input", "#e69f00", input_share},
};
#define PART_COUNT (sizeof parts / sizeof parts[0])

static void put_stack(ty_text *html, const char *label, const ty_step_summary *s, double longest_s,
                      int y)
{
    double at = 0;

    ty_text_addf(html, "<text x=\"0\" y=\"%d\">%s</text>", y + 15, label);
    for (size_t i = 0; i < PART_COUNT; i++) {
        double width = parts[i].share(s) * s->step_time_s / longest_s * 85;
        ty_text_addf(html,
                     "<rect x=\"%.3f%%\" y=\"%d\" width=\"%.3f%%\" height=\"20\" "
                     "fill=\"%s\"><title>%s %s: %.1f %%</title></rect>",
                     15 + at, y, width, parts[i].colour, label, parts[i].name,
                     parts[i].share(s) * 100);
        at += width;
    }
}

static void put_breakdown(const ty_report_input *in, ty_text *html)
{
    const ty_step_summary *predicted = prediction_of(in);
    const ty_step_summary *measured = in->comparison != NULL ? &in->comparison->measured : NULL;
    double longest_s = predicted->step_time_s;

    if (measured != NULL)
        longest_s = fmax(longest_s, measured->step_time_s);
    if (!(longest_s > 0))
        return;
    ty_text_addf(
        html,
        "<h2>What a step is made of</h2>\n<div class=\"chart\"><svg width=\"100%%\" height=\"%d\" "
        "role=\"img\" aria-label=\"Stacked bars of the parts of a step; the table below has "
        "the figures\">",
        measured != NULL ? 56 : 28);
    put_stack(html, "predicted", predicted, longest_s, 4);
    if (measured != NULL)
        put_stack(html, "measured", measured, longest_s, 32);
    ty_text_add(html,
                "</svg></div>\n<div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th "
                "class=\"text\">part of the step, averaged over ranks</th><th>predicted</th>");
    if (measured != NULL)
        ty_text_add(html, "<th>measured</th>");
    ty_text_add(html, "</tr></thead><tbody>");
    for (size_t i = 0; i < PART_COUNT; i++) {
        ty_text_addf(html,
                     "<tr><td class=\"text\"><svg width=\"12\" height=\"12\" aria-hidden=\"true\" "
                     "style=\"display:inline-block\"><rect width=\"12\" height=\"12\" "
                     "fill=\"%s\"/></svg> %s</td><td>%.1f %%</td>",
                     parts[i].colour, parts[i].name, parts[i].share(predicted) * 100);
        if (measured != NULL)
            ty_text_addf(html, "<td>%.1f %%</td>", parts[i].share(measured) * 100);
        ty_text_add(html, "</tr>");
    }
    ty_text_add(html, "</tbody></table></div>\n");
}

/* ---- Tables ------------------------------------------------------------------------------ */

static void put_errors(const ty_report_input *in, ty_text *html)
{
    if (in->comparison == NULL)
        return;
    ty_text_add(
        html,
        "<h2 id=\"errors\">Predicted against measured, operation by operation</h2>\n<p "
        "class=\"faint\">Medians over ranks and recorded steps. Waiting for a partner is not "
        "counted.</p>\n<div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th>stage</th><th "
        "class=\"text\">operation</th><th>per step</th><th>predicted</th><th>measured</th>"
        "<th>error</th></tr></thead><tbody>\n");
    for (uint32_t r = 0; r < in->comparison->row_count; r++) {
        const ty_comparison_row *row = &in->comparison->rows[r];
        char name[128], predicted[32], measured[32];
        ty_operation_name(in->plan, row->op, row->first_layer, row->layer_count, row->bucket,
                          row->phase, name, sizeof name);
        ty_format_seconds(row->predicted_s, predicted);
        ty_format_seconds(row->measured_s, measured);
        ty_text_addf(html, "<tr><td>%u</td><td class=\"text\">", row->stage);
        ty_html_escape(html, name);
        ty_text_addf(html, "</td><td>%.0f</td><td>%s</td><td>%s</td>", row->per_step, predicted,
                     measured);
        if (row->measured_s > 0)
            ty_text_addf(html, "<td%s>%+.1f %%</td></tr>\n",
                         fabs(row->error) > 0.1 ? " class=\"over\"" : "", row->error * 100);
        else
            ty_text_add(html, "<td>–</td></tr>\n");
    }
    ty_text_add(html, "</tbody></table></div>\n");
}

static void put_stages(const ty_report_input *in, ty_text *html)
{
    const ty_plan *plan = in->plan;

    ty_text_add(html,
                "<h2>Stages and memory</h2>\n<div class=\"scroll\" "
                "tabindex=\"0\"><table><thead><tr><th>stage</"
                "th><th class=\"text\">layers</th><th>replicas</th><th>parameters</th><th>gradients"
                "</th><th>optimizer</th><th>activations</th><th>exchange</th><th>compression"
                "</th><th>workspace</th><th>total</th></tr></thead><tbody>\n");
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        const ty_plan_stage *stage = &plan->stages[s];
        static const ty_memory_use unknown = {0};
        const ty_memory_use *use = plan->memory != NULL ? &plan->memory[s] : &unknown;
        const uint64_t columns[] = {use->parameter_bytes,     use->gradient_bytes,
                                    use->optimizer_bytes,     use->activation_bytes,
                                    use->communication_bytes, use->compression_bytes,
                                    use->workspace_bytes,     ty_memory_use_total(use)};
        ty_text_addf(html, "<tr><td>%u</td><td class=\"text\">", s);
        ty_html_escape(html, plan->workload->layers[stage->first_layer].name);
        ty_text_add(html, " … ");
        ty_html_escape(html,
                       plan->workload->layers[stage->first_layer + stage->layer_count - 1].name);
        ty_text_addf(html, " (%u)</td><td>%u</td>", stage->layer_count, stage->replicas);
        for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
            char bytes[32] = "–";
            if (plan->memory != NULL)
                ty_format_memory((double)columns[i], bytes);
            ty_text_addf(html, "<td>%s</td>", bytes);
        }
        ty_text_add(html, "</tr>\n");
    }
    ty_text_add(html, "</tbody></table></div>\n");
}

#define SHOWN_CANDIDATES 40

static void put_candidates(const ty_report_input *in, ty_text *html)
{
    if (in->plan->candidate_count == 0)
        return;
    ty_text_add(html,
                "<h2>What else was considered</h2>\n<div class=\"scroll\" "
                "tabindex=\"0\"><table><thead><tr><th "
                "class=\"text\">candidate</th><th>estimated</th><th>simulated</th><th>memory</"
                "th><th class=\"text\">fate</th></tr></thead><tbody>\n");
    for (uint32_t c = 0; c < in->plan->candidate_count && c < SHOWN_CANDIDATES; c++) {
        const ty_candidate *row = &in->plan->candidates[c];
        char estimated[32] = "–", simulated[32] = "–", memory[32] = "–";
        if (row->step_time_s > 0)
            ty_format_seconds(row->step_time_s, estimated);
        if (row->simulated_step_time_s > 0)
            ty_format_seconds(row->simulated_step_time_s, simulated);
        if (row->peak_memory_bytes > 0)
            ty_format_memory((double)row->peak_memory_bytes, memory);
        ty_text_add(html, "<tr><td class=\"text\">");
        ty_html_escape(html, row->name);
        ty_text_addf(html, "</td><td>%s</td><td>%s</td><td>%s</td><td class=\"why\">", estimated,
                     simulated, memory);
        ty_html_escape(html, row->reason);
        ty_text_add(html, "</td></tr>\n");
    }
    ty_text_add(html, "</tbody></table></div>\n");
    if (in->plan->candidate_count > SHOWN_CANDIDATES)
        ty_text_addf(html, "<p class=\"faint\">And %u more.</p>\n",
                     in->plan->candidate_count - SHOWN_CANDIDATES);
}

/* ---- Loss -------------------------------------------------------------------------------- */

#define MOST_CURVE_POINTS 400

/* A diverged run has losses that are no numbers. */
static void loss_text(double loss, char out[32])
{
    if (isfinite(loss))
        snprintf(out, 32, "%.4f", loss);
    else
        snprintf(out, 32, "not finite");
}

/* The curve is broken where losses are no numbers. */
static void put_curve(const ty_run *run, double highest, ty_text *html)
{
    uint32_t stride = run->step_count / MOST_CURVE_POINTS + 1;
    bool is_drawing = false;

    for (uint32_t s = 0; s < run->step_count; s += stride) {
        if (!isfinite(run->losses[s])) {
            is_drawing = false;
            continue;
        }
        ty_text_addf(html, "%c%.1f %.2f", is_drawing ? 'L' : 'M',
                     1000.0 * s / (run->step_count - 1),
                     highest > 0 ? 100 - 100 * run->losses[s] / highest : 100.0);
        is_drawing = true;
    }
}

static void put_loss(const ty_report_input *in, ty_text *html)
{
    const ty_run *run = in->run;
    double highest = 0;
    char first[32], last[32];

    if (run == NULL || run->step_count < 2)
        return;
    for (uint32_t s = 0; s < run->step_count; s++)
        if (isfinite(run->losses[s]))
            highest = fmax(highest, run->losses[s]);
    loss_text(run->losses[0], first);
    loss_text(run->losses[run->step_count - 1], last);
    ty_text_addf(
        html,
        "<h2>Loss</h2>\n<p class=\"faint\">Mean over each step's %u samples: %s at the first "
        "step, %s at step %u. The curve's top is %.3g, its foot 0.</p>\n<div "
        "class=\"chart\"><svg width=\"100%%\" height=\"180\" viewBox=\"0 0 1000 100\" "
        "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"Loss against steps\"><path "
        "class=\"curve\" d=\"",
        in->plan->global_batch, first, last, run->step_count, highest);
    put_curve(run, highest, html);
    ty_text_add(html, "\"/></svg></div>\n");
}

/* ---- Provenance -------------------------------------------------------------------------- */

static void put_fact(ty_text *html, const char *name, const char *value)
{
    if (value == NULL || value[0] == '\0')
        return;
    ty_text_add(html, "<tr><td class=\"text\">");
    ty_html_escape(html, name);
    ty_text_add(html, "</td><td class=\"why\">");
    ty_html_escape(html, value);
    ty_text_add(html, "</td></tr>\n");
}

static void put_provenance(const ty_report_input *in, ty_text *html)
{
    const ty_plan *plan = in->plan;

    ty_text_add(html, "<h2>Where the figures come from</h2>\n<div class=\"scroll\" "
                      "tabindex=\"0\"><table><tbody>\n");
    put_fact(html, "layer and transfer times", ty_provenance_name(plan->provenance));
    put_fact(html, "workload", plan->workload->source);
    put_fact(html, "workload digest", plan->workload_digest.hex);
    put_fact(html, "cluster digest", plan->cluster_digest.hex);
    if (plan->profile != NULL) {
        put_fact(html, "profile of", plan->profile->machine);
        put_fact(html, "profile date", plan->profile->date);
        put_fact(html, "profile libraries", plan->profile->versions);
    }
    if (in->run != NULL) {
        put_fact(html, "run on", in->run->machine);
        put_fact(html, "run date", in->run->date);
        put_fact(html, "run libraries", in->run->versions);
    }
    put_fact(html, "command", in->command);
    ty_text_add(html, "</tbody></table></div>\n");
}

ty_status ty_report_html(const ty_report_input *in, ty_text *html, ty_error *error)
{
    ty_status status;
    const char *title = in->title != NULL ? in->title : "Trainyard report";

    ty_text_add(html,
                "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta "
                "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
                "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n<meta "
                "name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link "
                "rel=\"icon\" href=\"data:,\">\n<title>");
    ty_html_escape(html, title);
    ty_text_add(html, "</title>\n<style>\n");
    ty_text_add(html, ty_page_css);
    ty_text_add(html, "</style></head><body>\n<h1>");
    ty_html_escape(html, title);
    ty_text_add(html, "</h1>\n");
    put_verdict(in, html);
    put_breakdown(in, html);
    status = ty_html_timeline(in, html, error);
    if (status != TY_OK)
        return status;
    put_errors(in, html);
    put_stages(in, html);
    put_candidates(in, html);
    put_loss(in, html);
    put_provenance(in, html);
    ty_text_add(html, "<script>\n");
    ty_text_add(html, ty_page_js);
    ty_text_add(html, "</script>\n</body></html>\n");
    return ty_text_check(html, error);
}
