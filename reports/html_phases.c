/* A training of several phases: its headline, and a row for each of them. */
#include "html.h"
#include "page.h"

#include <math.h>
#include <stdio.h>

#define MOST_PHASES 1000

/* Pixels of a phase's images; 0: samples are none. */
typedef struct image_size {
    double height, width;
} image_size;

static ty_status read_image_size(const ty_json *phase, image_size *out, ty_error *error)
{
    const ty_json *plan, *workload, *shape;
    ty_status status;

    *out = (image_size){0};
    TY_CHECK(ty_json_object(phase, "plan", &plan, error), status, done);
    TY_CHECK(ty_json_object(plan, "workload", &workload, error), status, done);
    TY_CHECK(ty_json_array(workload, "input_shape", 1, TY_MAX_DIMENSIONS, &shape, error), status,
             done);
    if (ty_json_size(shape) != 3)
        goto done;
    TY_CHECK(ty_json_as_number(ty_json_at(shape, 1), 1, 1e10, &out->height, error), status, done);
    status = ty_json_as_number(ty_json_at(shape, 2), 1, 1e10, &out->width, error);
done:
    return status;
}

/* Whether phases have images of several sizes. */
static ty_status find_sizes(const ty_json *phases, bool *out, ty_error *error)
{
    image_size first, other;
    ty_status status;

    *out = false;
    TY_CHECK(read_image_size(ty_json_at(phases, 0), &first, error), status, done);
    for (size_t i = 1; i < ty_json_size(phases); i++) {
        TY_CHECK(read_image_size(ty_json_at(phases, i), &other, error), status, done);
        *out = *out || other.height != first.height || other.width != first.width;
    }
done:
    return status;
}

/* What a phase goes of the way to the target. @return NaN: it is not known */
static double share_of(const page *p, uint32_t phase)
{
    const ty_report_document *score = ty_page_document(p, "trainyard.phased-score/1");
    const ty_json *phases;
    double share;

    if (score == NULL ||
        ty_json_array(score->root, "phases", 1, MOST_PHASES, &phases, NULL) != TY_OK ||
        phase >= ty_json_size(phases) || !ty_json_has(ty_json_at(phases, phase), "share_of_way") ||
        ty_json_number(ty_json_at(phases, phase), "share_of_way", 0, 1e300, &share, NULL) != TY_OK)
        return NAN;
    return share;
}

static ty_status put_phase(page *p, const ty_json *phase, uint32_t number, bool has_sizes,
                           ty_error *error)
{
    const double share = share_of(p, number - 1);
    const ty_json *plan, *optimizer;
    image_size size;
    const char *strategy;
    double momentum = 0, rate, batch, steps, time_s;
    char cell[40];
    ty_status status;

    TY_CHECK(ty_json_number(phase, "steps", 1, 1e9, &steps, error), status, done);
    TY_CHECK(ty_json_number(phase, "time_s", 0, 1e300, &time_s, error), status, done);
    TY_CHECK(ty_json_object(phase, "plan", &plan, error), status, done);
    TY_CHECK(ty_json_string(plan, "strategy", &strategy, error), status, done);
    TY_CHECK(ty_json_number(plan, "global_batch", 1, 1e10, &batch, error), status, done);
    TY_CHECK(ty_json_object(plan, "optimizer", &optimizer, error), status, done);
    TY_CHECK(ty_json_number(optimizer, "learning_rate", 0, 1e300, &rate, error), status, done);
    if (ty_json_has(optimizer, "momentum"))
        TY_CHECK(ty_json_number(optimizer, "momentum", 0, 1, &momentum, error), status, done);
    TY_CHECK(read_image_size(phase, &size, error), status, done);
    ty_page_row(p);
    ty_text_addf(p->html, "<td>%u</td><td>%.0f</td>", number, batch);
    if (has_sizes)
        ty_text_addf(p->html, "<td>%.0fx%.0f</td>", size.height, size.width);
    ty_text_addf(p->html, "<td>%.4g</td><td>%.4g</td><td>%.0f</td>", rate, momentum, steps);
    ty_format_seconds(time_s / steps, cell);
    ty_page_number(p, cell);
    ty_format_seconds(time_s, cell);
    ty_page_number(p, cell);
    ty_format_count(steps * batch / time_s, cell);
    ty_page_number(p, cell);
    if (isfinite(share_of(p, 0))) {
        snprintf(cell, sizeof cell, "%.3g %%", 100 * share);
        ty_page_number(p, cell);
    }
    ty_page_text(p, strategy);
    ty_page_end_row(p);
done:
    return status;
}

ty_status ty_page_phases(page *p, const ty_json *root, ty_error *error)
{
    const ty_json *phases;
    char headings[120];
    bool has_sizes;
    ty_status status;

    TY_CHECK(ty_json_array(root, "phases", 1, MOST_PHASES, &phases, error), status, done);
    TY_CHECK(find_sizes(phases, &has_sizes, error), status, done);
    ty_page_section(p, "phases", "Phases of the training");
    ty_page_note(p, "One behind the other, each from the weights, the optimizer's state and the "
                    "place in the data that the one before left.");
    snprintf(headings, sizeof headings,
             "phase|batch%s|learning rate|momentum|steps|step|time|samples/s%s|<plan",
             has_sizes ? "|images" : "", isfinite(share_of(p, 0)) ? "|of the way" : "");
    ty_page_table(p, headings);
    for (size_t i = 0; i < ty_json_size(phases); i++)
        TY_CHECK(put_phase(p, ty_json_at(phases, i), (uint32_t)i + 1, has_sizes, error), status,
                 done);
    ty_page_end_table(p);
done:
    return status;
}

/* ---- The headline -------------------------------------------------------------------------- */

static ty_status read_time(const ty_json *phases, double *time_s, ty_error *error)
{
    double own;
    ty_status status = TY_OK;

    *time_s = 0;
    for (size_t i = 0; i < ty_json_size(phases); i++) {
        TY_CHECK(ty_json_number(ty_json_at(phases, i), "time_s", 0, 1e300, &own, error), status,
                 done);
        *time_s += own;
    }
done:
    return status;
}

/* Samples a second of each of a few phases, or of the slowest and the fastest of many. */
static ty_status put_rates(page *p, const ty_json *phases, ty_error *error)
{
    enum { FEW = 5 };
    double least = HUGE_VAL, most = 0;
    char label[72], text[32], other[32];
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < ty_json_size(phases); i++) {
        const ty_json *phase = ty_json_at(phases, i), *plan;
        double steps, time_s, batch, rate;
        TY_CHECK(ty_json_number(phase, "steps", 1, 1e9, &steps, error), status, done);
        TY_CHECK(ty_json_number(phase, "time_s", 0, 1e300, &time_s, error), status, done);
        TY_CHECK(ty_json_object(phase, "plan", &plan, error), status, done);
        TY_CHECK(ty_json_number(plan, "global_batch", 1, 1e10, &batch, error), status, done);
        rate = steps * batch / time_s;
        least = fmin(least, rate);
        most = fmax(most, rate);
        snprintf(label, sizeof label, "samples/s of phase %u", i + 1);
        ty_format_count(rate, text);
        if (ty_json_size(phases) <= FEW)
            ty_page_card(p->html, label, text);
    }
    if (ty_json_size(phases) <= FEW)
        goto done;
    ty_format_count(least, text);
    ty_format_count(most, other);
    snprintf(label, sizeof label, "%s to %s", text, other);
    ty_page_card(p->html, "samples/s by phase", label);
done:
    return status;
}

/* What of a target is known. */
typedef struct target {
    bool is_reached;
    double time_s, low_s, high_s, steps, last, missing, share;
} target;

static bool read_target(const page *p, target *out)
{
    const ty_report_document *score = ty_page_document(p, "trainyard.phased-score/1");
    const ty_json *root = score != NULL ? score->root : NULL, *interval, *share;

    *out = (target){0};
    return root != NULL && ty_json_has(root, "time_to_target_s") &&
           ty_json_object(root, "time_to_target_s", &interval, NULL) == TY_OK &&
           ty_json_number(interval, "low", 0, 1e300, &out->low_s, NULL) == TY_OK &&
           ty_json_number(interval, "expected", 0, 1e300, &out->time_s, NULL) == TY_OK &&
           ty_json_number(interval, "high", 0, 1e300, &out->high_s, NULL) == TY_OK &&
           ty_json_object(root, "share_of_way", &share, NULL) == TY_OK &&
           ty_json_number(share, "expected", 0, 1e300, &out->share, NULL) == TY_OK &&
           ty_json_number(root, "steps_to_target", 0, 1e300, &out->steps, NULL) == TY_OK &&
           ty_json_number(root, "last_phase", 1, MOST_PHASES, &out->last, NULL) == TY_OK &&
           ty_json_bool(root, "is_reached", &out->is_reached, NULL) == TY_OK &&
           (out->is_reached ||
            ty_json_number(root, "missing_steps", 0, 1e300, &out->missing, NULL) == TY_OK);
}

static void put_target(page *p, const target *t)
{
    if (t->is_reached)
        ty_text_addf(p->html, " The target is met in phase %.0f, after %.0f steps in all.", t->last,
                     t->steps);
    else
        ty_text_addf(p->html,
                     " They go %.3g %% of the way to the target: %.0f more steps of phase %.0f "
                     "would reach it.",
                     100 * t->share, t->missing, t->last);
}

ty_status ty_page_phases_verdict(page *p, const ty_json *root, ty_error *error)
{
    const ty_json *phases, *plan, *workload;
    const char *name, *cluster;
    double time_s;
    target t;
    const bool has_target = read_target(p, &t);
    char time[32], low[32], high[32], text[72];
    ty_status status;

    TY_CHECK(ty_json_array(root, "phases", 1, MOST_PHASES, &phases, error), status, done);
    TY_CHECK(ty_json_object(ty_json_at(phases, 0), "plan", &plan, error), status, done);
    TY_CHECK(ty_json_object(plan, "workload", &workload, error), status, done);
    TY_CHECK(ty_json_string(workload, "name", &name, error), status, done);
    TY_CHECK(ty_json_string(plan, "cluster_name", &cluster, error), status, done);
    TY_CHECK(read_time(phases, &time_s, error), status, done);
    ty_format_seconds(time_s, time);
    ty_text_add(p->html, "<p class=\"verdict\">Train <strong>");
    ty_html_escape(p->html, name);
    ty_text_add(p->html, "</strong> on <strong>");
    ty_html_escape(p->html, cluster);
    ty_text_addf(p->html, "</strong> in <strong>%zu phase%s</strong>: %s predicted.",
                 ty_json_size(phases), ty_json_size(phases) > 1 ? "s" : "", time);
    if (has_target)
        put_target(p, &t);
    ty_text_add(p->html, "</p>\n<ul class=\"cards\">");
    ty_page_card(p->html, "predicted time of all phases", time);
    if (has_target) {
        ty_format_seconds(t.time_s, time);
        ty_page_card(p->html, t.is_reached ? "time to target" : "time to target, gone on", time);
        ty_format_seconds(t.low_s, low);
        ty_format_seconds(t.high_s, high);
        snprintf(text, sizeof text, "%s to %s", low, high);
        ty_page_card(p->html, "eight times in ten", text);
    }
    status = put_rates(p, phases, error);
    ty_text_add(p->html, "</ul>\n");
done:
    return status;
}
