/* Sections about training and money, and those made of other commands' documents: loss and time to
 * target, cost, validation, compression, launch files. */
#include "page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Loss and time to target --------------------------------------------------------------- */

/* A diverged run has losses that are no numbers. */
static void loss_text(double loss, char out[32])
{
    if (isfinite(loss))
        snprintf(out, 32, "%.4f", loss);
    else
        snprintf(out, 32, "not finite");
}

#define MOST_CURVE_POINTS 400

/* The curve is broken where losses are no numbers. */
static void put_plain_curve(const ty_run *run, ty_text *html)
{
    const uint32_t stride = run->step_count / MOST_CURVE_POINTS + 1;
    bool is_drawing = false;
    double highest = 0;

    for (uint32_t s = 0; s < run->step_count; s++)
        if (isfinite(run->losses[s]))
            highest = fmax(highest, run->losses[s]);
    ty_text_add(html, "<div class=\"fallback panel\"><svg width=\"100%\" height=\"180\" "
                      "viewBox=\"0 0 1000 100\" preserveAspectRatio=\"none\" role=\"img\" "
                      "aria-label=\"Loss against steps\"><path class=\"curve\" d=\"");
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
    ty_text_add(html, "\"/></svg></div>\n");
}

static void put_loss_steps(page *p, const ty_run *run)
{
    const uint32_t stride = run->step_count / MOST_CURVE_POINTS + 1;
    const size_t count = (run->step_count + stride - 1) / stride;
    double *x = ty_alloc(count, sizeof *x), *y = ty_alloc(count, sizeof *y);
    const page_series series = {.name = "training loss", .values = y};

    if (x == NULL || y == NULL)
        p->html->failed = TY_ENOMEM;
    for (size_t i = 0; p->html->failed == TY_OK && i < count; i++) {
        x[i] = (double)(i * stride + 1);
        y[i] = run->losses[i * stride];
    }
    if (p->html->failed == TY_OK)
        ty_page_plot(p, &(page_plot){.id = "loss-steps",
                                     .caption = "Loss against steps",
                                     .alternative = "Curve of the training loss",
                                     .x_name = "steps",
                                     .x = x,
                                     .x_unit = PAGE_COUNT,
                                     .unit = PAGE_COUNT,
                                     .y_name = "loss",
                                     .count = count,
                                     .series = &series,
                                     .series_count = 1,
                                     .is_line = true});
    ty_free(x);
    ty_free(y);
}

/* The loss after some seconds at a pace; NaN before the first step and after the last one. */
static double loss_after(const ty_run *run, double seconds, double pace_s)
{
    const double step = pace_s > 0 ? seconds / pace_s : 0;

    if (!(step >= 1) || step > run->step_count)
        return NAN;
    return run->losses[(uint32_t)step - 1];
}

/* The same losses at the pace that was measured and at the one that was predicted. */
static void put_loss_time(page *p, const ty_run *run, double predicted_step_s)
{
    const double pace_s = run->wall_s / run->step_count;
    const double end_s = run->step_count * fmax(pace_s, predicted_step_s);
    const size_t count = run->step_count < MOST_CURVE_POINTS ? run->step_count : MOST_CURVE_POINTS;
    double *x = ty_alloc(count, sizeof *x);
    double *y = ty_alloc(count * 2, sizeof *y);
    const page_series series[] = {{.name = "at the measured pace", .values = y},
                                  {.name = "at the predicted pace",
                                   .values = y != NULL ? y + count : NULL,
                                   .is_dashed = true}};

    if (x == NULL || y == NULL)
        p->html->failed = TY_ENOMEM;
    for (size_t i = 0; p->html->failed == TY_OK && i < count; i++) {
        x[i] = end_s * (double)(i + 1) / (double)count;
        y[i] = loss_after(run, x[i], pace_s);
        y[count + i] = loss_after(run, x[i], predicted_step_s);
    }
    if (p->html->failed == TY_OK)
        ty_page_plot(p, &(page_plot){.id = "loss-time",
                                     .caption = "Loss against seconds of training",
                                     .alternative = "Curves of the training loss over time, at "
                                                    "the measured and at the predicted pace",
                                     .x_name = "seconds",
                                     .x = x,
                                     .x_unit = PAGE_SECONDS,
                                     .unit = PAGE_COUNT,
                                     .y_name = "loss",
                                     .count = count,
                                     .series = series,
                                     .series_count = predicted_step_s > 0 ? 2 : 1,
                                     .is_line = true});
    ty_free(x);
    ty_free(y);
}

static void put_run_loss(page *p, const ty_run *run)
{
    char first[32], last[32];

    loss_text(run->losses[0], first);
    loss_text(run->losses[run->step_count - 1], last);
    ty_text_addf(p->html,
                 "<p class=\"faint\">Mean over each step's %u samples: %s at the first step, %s at "
                 "step %u.</p>\n",
                 p->in->plan->global_batch, first, last, run->step_count);
    put_plain_curve(run, p->html);
    put_loss_steps(p, run);
    if (run->wall_s > 0)
        put_loss_time(p, run, p->prediction->step_time_s);
}

/* Accuracy over measured time: when a target was reached is read off here. */
static void put_accuracy_chart(page *p, const ty_run *run)
{
    const uint32_t count = run->evaluation_count;
    double *x = ty_alloc(count, sizeof *x), *y = ty_alloc(count, sizeof *y);
    const page_series series = {.name = "test accuracy", .values = y};

    if (x == NULL || y == NULL)
        p->html->failed = TY_ENOMEM;
    for (uint32_t i = 0; p->html->failed == TY_OK && i < count; i++) {
        x[i] = run->evaluations[i].seconds;
        y[i] = run->evaluations[i].accuracy;
    }
    if (p->html->failed == TY_OK)
        ty_page_plot(p, &(page_plot){.id = "accuracy",
                                     .caption = "Test accuracy against seconds of training",
                                     .alternative = "Curve of the accuracy of every evaluation "
                                                    "over measured time",
                                     .x_name = "seconds",
                                     .x = x,
                                     .x_unit = PAGE_SECONDS,
                                     .unit = PAGE_SHARE,
                                     .y_name = "accuracy",
                                     .count = count,
                                     .series = &series,
                                     .series_count = 1,
                                     .is_line = true});
    ty_free(x);
    ty_free(y);
}

static void put_evaluations(page *p, const ty_run *run)
{
    const bool has_variant = run->variant.bits > 0;
    char time[32], name[TY_VARIANT_TEXT_SIZE];
    char columns[128] = "steps|measured time|test accuracy|test loss";

    if (run->evaluation_count == 0)
        return;
    put_accuracy_chart(p, run);
    if (has_variant) {
        ty_variant_text(&run->variant, name);
        snprintf(columns, sizeof columns,
                 "steps|measured time|test accuracy|test loss|accuracy as %s|loss as %s", name,
                 name);
    }
    ty_page_table(p, columns);
    for (uint32_t i = 0; i < run->evaluation_count; i++) {
        const ty_evaluation *e = &run->evaluations[i];
        char loss[32];
        ty_format_seconds(e->seconds, time);
        loss_text(e->loss, loss);
        ty_text_addf(p->html, "<tr><td>%u</td><td>%s</td><td>%.2f %%</td><td>%s</td>", e->step,
                     time, e->accuracy * 100, loss);
        loss_text(e->variant_loss, loss);
        if (has_variant)
            ty_text_addf(p->html, "<td>%.2f %%</td><td>%s</td>", e->variant_accuracy * 100, loss);
        ty_text_add(p->html, "</tr>\n");
    }
    ty_page_end_table(p);
}

static void put_interval(page *p, const ty_json *score, const char *key, const char *label,
                         page_unit unit)
{
    static const char *const ends[] = {"low", "expected", "high"};
    const ty_json *interval;

    if (!ty_json_has(score, key) || ty_json_object(score, key, &interval, NULL) != TY_OK)
        return;
    ty_page_row(p);
    ty_page_text(p, label);
    for (int i = 0; i < 3; i++) {
        double value = NAN;
        char cell[40];
        if (ty_json_has(interval, ends[i]) &&
            ty_json_number(interval, ends[i], 0, 1e300, &value, NULL) != TY_OK)
            value = NAN;
        ty_page_format(unit, value, cell);
        ty_page_number(p, cell);
    }
    ty_page_end_row(p);
}

/* What the score assumed, a line each. */
static void put_notes(page *p, const ty_json *score)
{
    const ty_json *notes;
    const char *note;

    if (!ty_json_has(score, "notes") ||
        ty_json_array(score, "notes", 0, SIZE_MAX, &notes, NULL) != TY_OK ||
        ty_json_size(notes) == 0)
        return;
    ty_text_add(p->html, "<ul class=\"faint\">");
    for (size_t i = 0; i < ty_json_size(notes); i++) {
        if (ty_json_as_string(ty_json_at(notes, i), &note, NULL) != TY_OK)
            continue;
        ty_text_add(p->html, "<li>");
        ty_html_escape(p->html, note);
        ty_text_add(p->html, "</li>");
    }
    ty_text_add(p->html, "</ul>\n");
}

static void put_score(page *p, const ty_json *score)
{
    const char *source = "prior";

    ty_page_table(p, "<predicted, with its interval|low|expected|high");
    put_interval(p, score, "time_to_target_s", "time to target", PAGE_SECONDS);
    put_interval(p, score, "samples_to_target", "samples to target", PAGE_COUNT);
    put_interval(p, score, "compression_multiplier", "samples more by compression", PAGE_FACTOR);
    put_interval(p, score, "staleness_multiplier", "samples more by staleness", PAGE_FACTOR);
    put_interval(p, score, "money_usd", "money", PAGE_USD);
    put_interval(p, score, "energy_j", "energy", PAGE_ENERGY);
    ty_page_end_table(p);
    if (ty_json_has(score, "convergence_provenance") &&
        ty_json_string(score, "convergence_provenance", &source, NULL) != TY_OK)
        source = "prior";
    ty_text_add(p->html, "<p class=\"faint\">Convergence is ");
    ty_html_escape(p->html, source);
    ty_text_add(p->html, ".</p>\n");
    put_notes(p, score);
}

void ty_page_loss(page *p, const ty_json *score)
{
    const ty_run *run = p->in->plan != NULL ? p->in->run : NULL;
    const bool has_loss = run != NULL && run->losses != NULL && run->step_count >= 2;
    const bool has_target = score != NULL && ty_json_has(score, "time_to_target_s");

    if (!has_loss && !has_target) {
        ty_page_missing(p, "Loss and time to target",
                        "a run of the plan (loss); --task NAME or a calibration, as the catalogue "
                        "does not know how this workload converges (time to target)");
        return;
    }
    ty_page_section(p, "loss", "Loss and time to target");
    if (has_loss) {
        put_run_loss(p, run);
        put_evaluations(p, run);
    }
    if (has_target)
        put_score(p, score);
}

/* ---- Cost and energy ----------------------------------------------------------------------- */

static void put_cost_row(page *p, const char *what, double samples, const page_bill *b, double rate)
{
    const double seconds = samples / rate;
    char cell[40];

    ty_page_row(p);
    ty_page_text(p, what);
    ty_page_format(PAGE_SECONDS, seconds, cell);
    ty_page_number(p, cell);
    ty_page_format(PAGE_USD, ty_page_usd(b, seconds), cell);
    ty_page_number(p, cell);
    ty_page_format(PAGE_ENERGY, ty_page_energy_j(b, seconds), cell);
    ty_page_number(p, cell);
    ty_page_end_row(p);
}

static void put_bill_note(page *p, const page_bill *b)
{
    char note[256], figure[40];

    if (isfinite(b->usd_per_hour)) {
        ty_page_format(PAGE_USD, b->usd_per_hour, figure);
        snprintf(note, sizeof note, "The cluster costs %s an hour.", figure);
    } else {
        snprintf(note, sizeof note, "No price is known of these hosts.");
    }
    ty_page_note(p, note);
    if (isfinite(b->power_w)) {
        ty_page_format(PAGE_POWER, b->power_w, figure);
        snprintf(note, sizeof note, "It takes %s while training.", figure);
        ty_page_note(p, note);
    }
}

void ty_page_cost(page *p, const ty_json *score)
{
    const ty_report_input *in = p->in;
    const ty_step_summary *s = p->prediction;
    const bool is_measured = in->comparison != NULL;
    double rate;

    if (s == NULL || !(s->samples_per_s > 0) ||
        (!isfinite(p->bill.usd_per_hour) && !isfinite(p->bill.power_w))) {
        ty_page_missing(p, "Cost and energy",
                        "a cluster whose hosts have a price or whose devices have a power");
        return;
    }
    rate = is_measured ? in->comparison->measured.samples_per_s : s->samples_per_s;
    ty_page_section(p, "cost", "Cost and energy");
    put_bill_note(p, &p->bill);
    ty_page_table(p, is_measured ? "<at the measured rate|time|money|energy"
                                 : "<at the predicted rate|time|money|energy");
    put_cost_row(p, "a step", in->plan->global_batch, &p->bill, rate);
    put_cost_row(p, "a million samples", 1e6, &p->bill, rate);
    if (in->plan->workload->tokens_per_sample > 0)
        put_cost_row(p, "a billion tokens", 1e9 / (double)in->plan->workload->tokens_per_sample,
                     &p->bill, rate);
    ty_page_end_table(p);
    if (!ty_json_has(score, "time_to_target_s"))
        put_notes(p, score);
}

/* ---- Validation ---------------------------------------------------------------------------- */

#define MOST_SOURCES 64

static ty_status read_share(const ty_json *source, const char *key, double *out, ty_error *error)
{
    *out = NAN;
    return ty_json_has(source, key) ? ty_json_number(source, key, 0, 1e300, out, error) : TY_OK;
}

static ty_status put_validation(page *p, const ty_json *root, ty_error *error)
{
    static const char *const keys[] = {"median_error", "mean_error", "p90_error", "pair_order"};
    const char *names[MOST_SOURCES];
    double values[4][MOST_SOURCES];
    const page_series series[] = {{.name = "median error", .values = values[0]},
                                  {.name = "mean error", .values = values[1]},
                                  {.name = "90th percentile", .values = values[2]},
                                  {.name = "pair order right", .values = values[3]}};
    const ty_json *sources;
    size_t count;
    ty_status status = TY_OK;

    TY_CHECK(ty_json_array(root, "sources", 0, MOST_SOURCES, &sources, error), status, done);
    count = ty_json_size(sources);
    for (size_t i = 0; i < count; i++) {
        const ty_json *source = ty_json_at(sources, i);
        TY_CHECK(ty_json_string(source, "source", &names[i], error), status, done);
        for (int k = 0; k < 4; k++)
            TY_CHECK(read_share(source, keys[k], &values[k][i], error), status, done);
    }
    ty_page_section(p, "validation", "Against published measurements");
    ty_page_plot(p, &(page_plot){.id = "validation",
                                 .caption = "Error of predictions, and pairs in the right order",
                                 .alternative = "Bars of errors and pair order by source",
                                 .x_name = "source",
                                 .categories = names,
                                 .unit = PAGE_SHARE,
                                 .y_name = "share",
                                 .count = count,
                                 .series = series,
                                 .series_count = 4});
done:
    return status;
}

/* ---- Compression --------------------------------------------------------------------------- */

#define MOST_CURVES 16
#define MOST_BANDWIDTHS 256

static ty_status read_numbers(const ty_json *array, double *out, ty_error *error)
{
    ty_status status = TY_OK;

    for (size_t i = 0; i < ty_json_size(array) && status == TY_OK; i++)
        status = ty_json_as_number(ty_json_at(array, i), 0, 1e300, &out[i], error);
    return status;
}

static ty_status put_compression(page *p, const ty_json *root, ty_error *error)
{
    double x[MOST_BANDWIDTHS], values[MOST_CURVES][MOST_BANDWIDTHS];
    page_series series[MOST_CURVES];
    const ty_json *bandwidths, *curves, *seconds;
    double here = 0;
    size_t points, count;
    ty_status status = TY_OK;

    if (ty_json_has(root, "ring_bandwidth_bytes_per_s"))
        TY_CHECK(ty_json_number(root, "ring_bandwidth_bytes_per_s", 0, 1e300, &here, error), status,
                 done);
    TY_CHECK(ty_json_array(root, "bandwidths_bytes_per_s", 1, MOST_BANDWIDTHS, &bandwidths, error),
             status, done);
    TY_CHECK(read_numbers(bandwidths, x, error), status, done);
    points = ty_json_size(bandwidths);
    TY_CHECK(ty_json_array(root, "curves", 1, MOST_CURVES, &curves, error), status, done);
    count = ty_json_size(curves);
    for (size_t c = 0; c < count; c++) {
        const ty_json *curve = ty_json_at(curves, c);
        series[c] = (page_series){.values = values[c]};
        TY_CHECK(ty_json_string(curve, "compression", &series[c].name, error), status, done);
        TY_CHECK(ty_json_array(curve, "seconds", points, points, &seconds, error), status, done);
        TY_CHECK(read_numbers(seconds, values[c], error), status, done);
    }
    ty_page_section(p, "compression", "Where compression pays");
    ty_page_note(p, "All gradient exchanges of a step, if nothing of them were hidden behind "
                    "compute: below the bandwidth where a compressor's line crosses that of none, "
                    "it shortens them.");
    ty_page_plot(p, &(page_plot){.id = "compression",
                                 .caption = "Seconds of all gradient exchanges over bandwidth",
                                 .alternative = "Lines of seconds over bandwidth by compressor: "
                                                "they cross where one begins to pay",
                                 .x_name = "bandwidth",
                                 .limit = here,
                                 .limit_name = "this cluster's narrowest ring",
                                 .x = x,
                                 .x_unit = PAGE_RATE,
                                 .unit = PAGE_SECONDS,
                                 .y_name = "seconds",
                                 .count = points,
                                 .series = series,
                                 .series_count = (uint32_t)count,
                                 .is_line = true,
                                 .is_log_x = true,
                                 .is_log_y = true});
done:
    return status;
}

/* ---- Launch files -------------------------------------------------------------------------- */

#define MOST_TARGETS 64
#define MOST_LAUNCH_FILES 4096

static ty_status put_launch_file(page *p, const ty_json *file, ty_error *error)
{
    ty_status status = TY_OK;
    const char *name, *text = "";
    uint64_t bytes;

    TY_CHECK(ty_json_string(file, "name", &name, error), status, done);
    if (ty_json_has(file, "text"))
        TY_CHECK(ty_json_lines(file, "text", &text, error), status, done);
    bytes = strlen(text);
    if (ty_json_has(file, "bytes"))
        TY_CHECK(ty_json_uint64(file, "bytes", 0, UINT64_C(1) << 53, &bytes, error), status, done);
    ty_text_add(p->html, "<h4>");
    ty_html_escape(p->html, name);
    ty_text_add(p->html, "</h4>");
    if (text[0] != '\0') {
        ty_text_add(p->html, "<pre tabindex=\"0\">");
        ty_html_escape(p->html, text);
        ty_text_add(p->html, "</pre>");
    }
    if (bytes > strlen(text)) {
        char size[32];
        ty_format_bytes((double)bytes, size);
        ty_text_addf(p->html, "<p class=\"faint\">%s; trainyard export writes it whole.</p>\n",
                     size);
    }
done:
    return status;
}

static ty_status put_launch_target(page *p, const ty_json *target, ty_error *error)
{
    ty_status status = TY_OK;
    const ty_json *files;
    const char *name, *title = "", *next = "";

    TY_CHECK(ty_json_string(target, "target", &name, error), status, done);
    if (ty_json_has(target, "title"))
        TY_CHECK(ty_json_string(target, "title", &title, error), status, done);
    if (ty_json_has(target, "next"))
        TY_CHECK(ty_json_string(target, "next", &next, error), status, done);
    TY_CHECK(ty_json_array(target, "files", 1, MOST_LAUNCH_FILES, &files, error), status, done);
    ty_text_add(p->html, "<div class=\"tab\"><h3>");
    ty_html_escape(p->html, name);
    ty_text_add(p->html, "</h3><p class=\"faint\">");
    ty_html_escape(p->html, title);
    ty_text_add(p->html, next[0] != '\0' ? ". To start: <code>" : "");
    ty_html_escape(p->html, next);
    ty_text_add(p->html, next[0] != '\0' ? "</code></p>\n" : "</p>\n");
    for (size_t i = 0; i < ty_json_size(files); i++)
        TY_CHECK(put_launch_file(p, ty_json_at(files, i), error), status, done);
    ty_text_add(p->html, "</div>\n");
done:
    return status;
}

static ty_status put_launch_refusals(page *p, const ty_json *targets, ty_error *error)
{
    ty_status status = TY_OK;
    bool is_open = false;

    for (size_t i = 0; i < ty_json_size(targets); i++) {
        const ty_json *target = ty_json_at(targets, i);
        const char *name, *reason;
        if (!ty_json_has(target, "reason"))
            continue;
        TY_CHECK(ty_json_string(target, "target", &name, error), status, done);
        TY_CHECK(ty_json_string(target, "reason", &reason, error), status, done);
        if (!is_open)
            ty_page_table(p, "<cannot express this plan|<because");
        is_open = true;
        ty_page_row(p);
        ty_page_text(p, name);
        ty_text_add(p->html, "<td class=\"why\">");
        ty_html_escape(p->html, reason);
        ty_text_add(p->html, "</td>");
        ty_page_end_row(p);
    }
    if (is_open)
        ty_page_end_table(p);
done:
    return status;
}

static ty_status put_launch(page *p, const ty_json *root, ty_error *error)
{
    const ty_json *targets;
    const char *plan = "PLAN";
    ty_status status = TY_OK;

    TY_CHECK(ty_json_array(root, "targets", 1, MOST_TARGETS, &targets, error), status, done);
    if (ty_json_has(root, "plan"))
        TY_CHECK(ty_json_string(root, "plan", &plan, error), status, done);
    ty_page_section(p, "launch", "Launch files");
    ty_text_add(p->html, "<p class=\"faint\">Written by <code>trainyard export ");
    ty_html_escape(p->html, plan);
    ty_text_add(p->html, " --to TARGET -o FOLDER</code>.</p>\n<div class=\"tabs\">");
    for (size_t i = 0; i < ty_json_size(targets); i++)
        if (!ty_json_has(ty_json_at(targets, i), "reason"))
            TY_CHECK(put_launch_target(p, ty_json_at(targets, i), error), status, done);
    ty_text_add(p->html, "</div>\n");
    TY_CHECK(put_launch_refusals(p, targets, error), status, done);
done:
    return status;
}

/* ---- All of them --------------------------------------------------------------------------- */

typedef struct document_section {
    const char *schema;
    ty_status (*put)(page *p, const ty_json *root, ty_error *error);
    const char *title, *filled_by;
} document_section;

static const document_section document_sections[] = {
    {"trainyard.compression/1", put_compression, "Where compression pays",
     "a plan with replicas that exchange gradients"},
    {"trainyard.validation/1", put_validation, "Against published measurements",
     "the document of trainyard validate --json"},
    {"trainyard.launch/1", put_launch, "Launch files", "a plan"},
    {"trainyard.phased-plan/1", ty_page_phases, "Phases of the training",
     "the document of trainyard plan --phases"},
};

ty_status ty_page_documents(page *p, ty_error *error)
{
    ty_status status = TY_OK;

    for (size_t i = 0; i < sizeof document_sections / sizeof document_sections[0]; i++) {
        const document_section *section = &document_sections[i];
        const ty_report_document *document = ty_page_document(p, section->schema);
        if (document == NULL)
            ty_page_missing(p, section->title, section->filled_by);
        else
            TY_CHECK(section->put(p, document->root, error), status, done);
    }
done:
    return status;
}
