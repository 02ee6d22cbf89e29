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

/* Loss over steps, or over seconds at the run's mean pace. */
static void put_loss_chart(page *p, const ty_run *run, bool is_by_time)
{
    const uint32_t stride = run->step_count / MOST_CURVE_POINTS + 1;
    const size_t count = (run->step_count + stride - 1) / stride;
    const double pace_s = run->wall_s / run->step_count;
    double *x = ty_alloc(count, sizeof *x), *y = ty_alloc(count, sizeof *y);
    page_series series = {.name = "training loss", .values = y};

    if (x == NULL || y == NULL)
        p->html->failed = TY_ENOMEM;
    for (size_t i = 0; p->html->failed == TY_OK && i < count; i++) {
        x[i] = (double)(i * stride + 1) * (is_by_time ? pace_s : 1);
        y[i] = run->losses[i * stride];
    }
    if (p->html->failed == TY_OK)
        ty_page_plot(p, &(page_plot){.id = is_by_time ? "loss-time" : "loss-steps",
                                     .caption = is_by_time ? "Loss against seconds of training"
                                                           : "Loss against steps",
                                     .alternative = "Curve of the training loss",
                                     .x_name = is_by_time ? "seconds" : "steps",
                                     .x = x,
                                     .x_unit = is_by_time ? PAGE_SECONDS : PAGE_COUNT,
                                     .unit = PAGE_COUNT,
                                     .y_name = "loss",
                                     .count = count,
                                     .series = &series,
                                     .series_count = 1,
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
    put_loss_chart(p, run, false);
    if (run->wall_s > 0)
        put_loss_chart(p, run, true);
}

static void put_evaluations(page *p, const ty_run *run)
{
    if (run->evaluation_count == 0)
        return;
    ty_page_table(p, "steps|measured time|test accuracy|test loss");
    for (uint32_t i = 0; i < run->evaluation_count; i++) {
        const ty_evaluation *e = &run->evaluations[i];
        char time[32], loss[32];
        ty_format_seconds(e->seconds, time);
        loss_text(e->loss, loss);
        ty_text_addf(p->html, "<tr><td>%u</td><td>%s</td><td>%.2f %%</td><td>%s</td></tr>\n",
                     e->step, time, e->accuracy * 100, loss);
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

static void put_score(page *p, const ty_json *score)
{
    const char *source = "prior";

    ty_page_table(p, "<predicted, with its interval|low|expected|high");
    put_interval(p, score, "time_to_target_s", "time to target", PAGE_SECONDS);
    put_interval(p, score, "samples_to_target", "samples to target", PAGE_COUNT);
    put_interval(p, score, "money_usd", "money", PAGE_USD);
    ty_page_end_table(p);
    if (ty_json_has(score, "convergence_provenance") &&
        ty_json_string(score, "convergence_provenance", &source, NULL) != TY_OK)
        source = "prior";
    ty_text_add(p->html, "<p class=\"faint\">Convergence is ");
    ty_html_escape(p->html, source);
    ty_text_add(p->html, ".</p>\n");
}

void ty_page_loss(page *p, const ty_json *score)
{
    const ty_run *run = p->in->plan != NULL ? p->in->run : NULL;
    const bool has_loss = run != NULL && run->step_count >= 2;

    if (!has_loss && score == NULL) {
        ty_page_missing(p, "Loss and time to target",
                        "a run of the plan (loss), a score document (predicted time to target)");
        return;
    }
    ty_page_section(p, "loss", "Loss and time to target");
    if (has_loss) {
        put_run_loss(p, run);
        put_evaluations(p, run);
    }
    if (score != NULL)
        put_score(p, score);
}

/* ---- Cost and energy ----------------------------------------------------------------------- */

typedef struct bill {
    double usd_per_hour; /* NaN: a host has no price */
    double power_w;      /* NaN: neither host nor device says */
    uint32_t hosts;
    const ty_host_type *type; /* of the first host with a price */
} bill;

/* Hosts that the plan uses, whole: that is how they are rented. */
static ty_status bill_of(const ty_report_input *in, bill *out, ty_error *error)
{
    const uint32_t devices = ty_cluster_device_count(in->cluster);
    const uint32_t hosts = ty_cluster_host_count(in->cluster);
    double *device_w = ty_alloc(hosts, sizeof *device_w);
    bool *used = ty_alloc(hosts, sizeof *used);

    if (device_w == NULL || used == NULL) {
        ty_free(device_w);
        ty_free(used);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    *out = (bill){0};
    for (uint32_t s = 0; s < in->plan->stage_count; s++)
        for (uint32_t d = 0; d < in->plan->stages[s].replicas * ty_plan_width(in->plan); d++)
            used[ty_cluster_device_host(in->cluster, in->plan->stages[s].devices[d])] = true;
    for (uint32_t d = 0; d < devices; d++)
        device_w[ty_cluster_device_host(in->cluster, d)] +=
            ty_cluster_device_type(in->cluster, d)->power_w;
    for (uint32_t h = 0; h < hosts; h++) {
        const ty_host_type *type = used[h] ? ty_cluster_host_type(in->cluster, h) : NULL;
        const bool has_price = type != NULL && type->price_date != NULL;
        const double power_w = type != NULL && type->power_w > 0 ? type->power_w : device_w[h];
        if (!used[h])
            continue;
        out->hosts++;
        out->usd_per_hour += has_price ? type->price_usd_per_hour : (double)NAN;
        out->power_w += power_w > 0 ? power_w : (double)NAN;
        if (has_price && out->type == NULL)
            out->type = type;
    }
    ty_free(device_w);
    ty_free(used);
    return TY_OK;
}

static void put_cost_row(page *p, const char *what, double samples, const bill *b, double rate)
{
    const double hours = samples / rate / 3600;
    char cell[40];

    ty_page_row(p);
    ty_page_text(p, what);
    ty_page_format(PAGE_SECONDS, hours * 3600, cell);
    ty_page_number(p, cell);
    ty_page_format(PAGE_USD, hours * b->usd_per_hour, cell);
    ty_page_number(p, cell);
    if (isfinite(b->power_w))
        snprintf(cell, sizeof cell, "%.3g kWh", hours * b->power_w / 1000);
    else
        snprintf(cell, sizeof cell, "–");
    ty_page_number(p, cell);
    ty_page_end_row(p);
}

static void put_bill_note(page *p, const bill *b)
{
    char note[512], price[40];

    ty_page_format(PAGE_USD, b->usd_per_hour, price);
    if (b->type != NULL)
        snprintf(note, sizeof note, "%u whole hosts at %s an hour, on demand, as of %s (%.160s).",
                 b->hosts, price, b->type->price_date,
                 b->type->price_source != NULL ? b->type->price_source : "catalogue");
    else
        snprintf(note, sizeof note, "No price is known of these hosts; only energy is counted.");
    ty_page_note(p, note);
    if (isfinite(b->power_w)) {
        snprintf(note, sizeof note,
                 "Power under load: %.3g kW, of hosts where the catalogue knows it, else of their "
                 "devices alone; cooling and network are not counted.",
                 b->power_w / 1000);
        ty_page_note(p, note);
    }
}

void ty_page_cost(page *p)
{
    const ty_report_input *in = p->in;
    const ty_step_summary *s = ty_page_prediction(p);
    const bool is_measured = in->comparison != NULL;
    double rate;
    bill b;

    if (in->cluster == NULL || s == NULL || !(s->samples_per_s > 0) ||
        bill_of(in, &b, NULL) != TY_OK || (!isfinite(b.usd_per_hour) && !isfinite(b.power_w)) ||
        (!(b.usd_per_hour > 0) && !(b.power_w > 0))) {
        ty_page_missing(p, "Cost and energy",
                        "a cluster whose hosts have a price or whose devices have a power");
        return;
    }
    rate = is_measured ? in->comparison->measured.samples_per_s : s->samples_per_s;
    ty_page_section(p, "cost", "Cost and energy");
    put_bill_note(p, &b);
    ty_page_table(p, is_measured ? "<at the measured rate|time|money|energy"
                                 : "<at the predicted rate|time|money|energy");
    put_cost_row(p, "a step", in->plan->global_batch, &b, rate);
    put_cost_row(p, "a million samples", 1e6, &b, rate);
    if (in->plan->workload->tokens_per_sample > 0)
        put_cost_row(p, "a thousand million tokens",
                     1e9 / (double)in->plan->workload->tokens_per_sample, &b, rate);
    ty_page_end_table(p);
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
    size_t points, count;
    ty_status status = TY_OK;

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
    ty_page_plot(p, &(page_plot){.id = "compression",
                                 .caption = "Seconds of an exchange over the network's bandwidth",
                                 .alternative = "Lines of seconds over bandwidth by compressor: "
                                                "they cross where one begins to pay",
                                 .x_name = "bandwidth",
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

#define MOST_LAUNCH_FILES 64

static ty_status put_launch(page *p, const ty_json *root, ty_error *error)
{
    const ty_json *files;
    ty_status status = TY_OK;

    TY_CHECK(ty_json_array(root, "files", 1, MOST_LAUNCH_FILES, &files, error), status, done);
    ty_page_section(p, "launch", "Launch files");
    ty_text_add(p->html, "<div class=\"tabs\">");
    for (size_t i = 0; i < ty_json_size(files); i++) {
        const ty_json *file = ty_json_at(files, i);
        const char *target, *name, *text;
        TY_CHECK(ty_json_string(file, "target", &target, error), status, done);
        TY_CHECK(ty_json_string(file, "name", &name, error), status, done);
        TY_CHECK(ty_json_string(file, "text", &text, error), status, done);
        ty_text_add(p->html, "<div class=\"tab\"><h3>");
        ty_html_escape(p->html, target);
        ty_text_add(p->html, ": ");
        ty_html_escape(p->html, name);
        ty_text_add(p->html, "</h3><pre tabindex=\"0\">");
        ty_html_escape(p->html, text);
        ty_text_add(p->html, "</pre></div>\n");
    }
    ty_text_add(p->html, "</div>\n");
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
     "a trainyard.compression/1 document (docs/files.md)"},
    {"trainyard.validation/1", put_validation, "Against published measurements",
     "a trainyard.validation/1 document"},
    {"trainyard.launch/1", put_launch, "Launch files", "a trainyard.launch/1 document"},
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
