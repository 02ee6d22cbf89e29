/* The timeline: one lane per rank and stream, predicted above measured, as inline SVG in per cent
 * of the width so that zooming is a matter of width alone. The same as a chart: html_gantt.c. */
#include "html_timeline.h"
#include "operation.h"

#include <math.h>
#include <stdio.h>

#define LANE_HEIGHT 28
#define BAR_HEIGHT 11
#define AXIS_HEIGHT 22
#define MOST_TABLE_ROWS 600
#define MOST_SVG_BARS 1500 /* a page with charts has the picture twice */

/* Okabe and Ito's palette, which colour-blind readers can tell apart. */
const char *const ty_op_colours[TY_OP_COUNT] = {
    [TY_OP_LOAD] = "#8c8c8c",      [TY_OP_FORWARD] = "#0072b2",
    [TY_OP_RECOMPUTE] = "#56b4e9", [TY_OP_BACKWARD] = "#d55e00",
    [TY_OP_SEND] = "#cc79a7",      [TY_OP_RECEIVE] = "#cc79a7",
    [TY_OP_ENCODE] = "#b5a800",    [TY_OP_COLLECTIVE] = "#009e73",
    [TY_OP_DECODE] = "#b5a800",    [TY_OP_UPDATE] = "#e69f00",
    [TY_OP_BEGIN] = "#8c8c8c",     [TY_OP_BACKWARD_INPUT] = "#d55e00",
    [TY_OP_GATHER] = "#44aa99",    [TY_OP_BACKWARD_WEIGHT] = "#aa4499",
    [TY_OP_ACT] = "#332288",       [TY_OP_RENEW] = "#ddcc77",
};

/* Devices of one class are alike in all that a timeline shows, unless stragglers are measured. */
static bool is_like_one_before(const timeline_view *v, uint32_t rank)
{
    const ty_plan *plan = v->input->plan;
    const ty_cluster *cluster = v->input->cluster;

    for (uint32_t i = 0; i < v->rank_count; i++) {
        if (ty_plan_stage_of_rank(plan, v->ranks[i]) != ty_plan_stage_of_rank(plan, rank))
            continue;
        if (cluster == NULL ||
            ty_cluster_device_type(cluster, ty_plan_device_of_rank(plan, v->ranks[i])) ==
                ty_cluster_device_type(cluster, ty_plan_device_of_rank(plan, rank)))
            return true;
    }
    return false;
}

/* All ranks while they are few, else one of each position and type of device. */
static void choose_ranks(timeline_view *v)
{
    const ty_plan *plan = v->input->plan;
    uint32_t count = ty_plan_rank_count(plan);

    for (uint32_t r = 0; r < count && v->rank_count < TIMELINE_MOST_RANKS; r++) {
        if (count <= TIMELINE_FEW_RANKS || !is_like_one_before(v, r))
            v->ranks[v->rank_count++] = r;
    }
    for (uint32_t i = 0; i < v->rank_count; i++) {
        const ty_stage_program *program =
            &v->input->program->stages[ty_plan_stage_of_rank(plan, v->ranks[i])];
        for (uint32_t k = 0; k < program->instruction_count; k++) {
            v->has_stream[i][program->instructions[k].stream] = true;
            v->has_op[program->instructions[k].op] = true;
        }
    }
}

static void step_span(const ty_timeline *timeline, const ty_plan *plan, const ty_program *program,
                      uint32_t step, double *start_s, double *end_s)
{
    *start_s = HUGE_VAL;
    *end_s = -HUGE_VAL;
    for (uint32_t r = 0; r < timeline->rank_count; r++) {
        const ty_stage_program *stage = &program->stages[ty_plan_stage_of_rank(plan, r)];
        for (uint32_t i = 0; i < stage->instruction_count; i++) {
            const ty_event *e = ty_timeline_find(timeline, program, plan, step, r, i);
            if (stage->instructions[i].stream == TY_STREAM_COMPUTE)
                *start_s = fmin(*start_s, e->start_s);
            *end_s = fmax(*end_s, e->end_s);
        }
    }
}

/* The recorded step whose length is nearest to the step time: neither the luckiest nor the worst.
 */
static timeline_step choose_step(const ty_report_input *in, const ty_timeline *timeline,
                                 double step_time_s)
{
    timeline_step best = {.timeline = timeline};
    double distance = HUGE_VAL;

    for (uint32_t s = timeline->step_count > 1 ? 1 : 0; s < timeline->step_count; s++) {
        double start_s, end_s;
        step_span(timeline, in->plan, in->program, s, &start_s, &end_s);
        if (fabs(end_s - start_s - step_time_s) < distance) {
            distance = fabs(end_s - start_s - step_time_s);
            best.step = s;
            best.start_s = start_s;
            best.end_s = end_s;
        }
    }
    return best;
}

static void put_bar(timeline_view *v, const char *what, const ty_instruction *in, double from_s,
                    double to_s, double y, double opacity)
{
    char name[128], time[32], at[32];

    if (to_s - from_s <= v->length_s * 1e-5 || to_s - from_s < v->least_s)
        return;
    ty_operation_name(v->input->plan, in->op, in->first_layer, in->layer_count, in->bucket,
                      in->phase, name, sizeof name);
    ty_format_seconds(to_s - from_s, time);
    ty_format_seconds(from_s > 0 ? from_s : 0, at);
    ty_text_addf(v->html,
                 "<rect x=\"%.4f%%\" width=\"%.4f%%\" y=\"%.1f\" height=\"%d\" fill=\"%s\" "
                 "fill-opacity=\"%.2f\"><title>",
                 from_s / v->length_s * 100, (to_s - from_s) / v->length_s * 100, y, BAR_HEIGHT,
                 ty_op_colours[in->op], opacity);
    ty_html_escape(v->html, what);
    ty_text_add(v->html, " ");
    ty_html_escape(v->html, name);
    if (in->micro_batch != TY_NO_MICRO_BATCH)
        ty_text_addf(v->html, ", micro-batch %u", in->micro_batch);
    ty_text_addf(v->html, ": %s from %s</title></rect>", time, at);
}

/* A waiting instruction is drawn pale until its last partner was ready. */
static void put_lane(timeline_view *v, const timeline_step *s, const char *what, uint32_t rank,
                     ty_stream stream, double y)
{
    const ty_plan *plan = v->input->plan;
    const ty_stage_program *stage = &v->input->program->stages[ty_plan_stage_of_rank(plan, rank)];

    for (uint32_t i = 0; i < stage->instruction_count; i++) {
        const ty_instruction *in = &stage->instructions[i];
        const ty_event *e;
        double ready_s;
        if (in->stream != stream)
            continue;
        e = ty_timeline_find(s->timeline, v->input->program, plan, s->step, rank, i);
        ready_s = ty_partners_ready_s(v->partners, s->timeline, e);
        put_bar(v, "waiting:", in, fmax(e->start_s, s->start_s) - s->start_s, ready_s - s->start_s,
                y, 0.2);
        put_bar(v, what, in, fmax(ready_s, s->start_s) - s->start_s, e->end_s - s->start_s, y, 1);
    }
}

static void put_axis(timeline_view *v, int height)
{
    for (int tick = 0; tick <= 10; tick++) {
        char label[32];
        ty_format_seconds(v->length_s * tick / 10, label);
        ty_text_addf(v->html, "<line class=\"axis\" x1=\"%d%%\" x2=\"%d%%\" y1=\"16\" y2=\"%d\"/>",
                     tick * 10, tick * 10, height);
        if (tick % 2 == 0 && tick < 10)
            ty_text_addf(v->html, "<text x=\"%d%%\" dx=\"3\" y=\"13\">%s</text>", tick * 10, label);
    }
}

static void put_legend(timeline_view *v)
{
    ty_text_add(v->html, "<ul class=\"legend\">");
    for (int op = 0; op < TY_OP_COUNT; op++)
        if (v->has_op[op])
            ty_text_addf(
                v->html,
                "<li><svg width=\"12\" height=\"12\" aria-hidden=\"true\"><rect width=\"12\" "
                "height=\"12\" fill=\"%s\"/></svg>%s</li>",
                ty_op_colours[op], ty_op_name((ty_op)op));
    ty_text_add(v->html, "<li class=\"faint\">pale: waiting</li></ul>\n");
}

static void put_lanes(timeline_view *v, const timeline_step *predicted,
                      const timeline_step *measured)
{
    int lanes = 0;
    int lane = 0;

    ty_text_add(v->html, "<div class=\"timeline\"><div class=\"names\">");
    for (uint32_t i = 0; i < v->rank_count; i++)
        for (int s = 0; s < TY_STREAM_COUNT; s++)
            if (v->has_stream[i][s]) {
                ty_text_addf(v->html, "<div>rank %u %s</div>", v->ranks[i],
                             ty_stream_name((ty_stream)s));
                lanes++;
            }
    ty_text_addf(v->html,
                 "</div><div class=\"lanes\" tabindex=\"0\"><svg width=\"100%%\" height=\"%d\" "
                 "role=\"img\" aria-label=\"Timeline of one step: %s\">",
                 lanes * LANE_HEIGHT + AXIS_HEIGHT,
                 measured != NULL ? "predicted above measured" : "predicted");
    put_axis(v, lanes * LANE_HEIGHT + AXIS_HEIGHT);
    for (uint32_t i = 0; i < v->rank_count; i++)
        for (int s = 0; s < TY_STREAM_COUNT; s++)
            if (v->has_stream[i][s]) {
                double y = AXIS_HEIGHT + LANE_HEIGHT * lane++;
                put_lane(v, predicted, "predicted:", v->ranks[i], (ty_stream)s, y + 2);
                if (measured != NULL)
                    put_lane(v, measured, "measured:", v->ranks[i], (ty_stream)s,
                             y + 3 + BAR_HEIGHT);
            }
    ty_text_add(v->html, "</svg></div></div>\n");
}

/* The same facts as a table. */
static void put_table(timeline_view *v, const timeline_step *predicted,
                      const timeline_step *measured)
{
    const ty_plan *plan = v->input->plan;
    uint32_t rows = 0;

    ty_text_add(v->html,
                "<details><summary>Every instruction</summary><div class=\"scroll\" "
                "tabindex=\"0\"><table><thead><tr><th>rank</th><th class=\"text\">stream</th><th "
                "class=\"text\">instruction</th><th>predicted start</th><th>predicted end</th>");
    if (measured != NULL)
        ty_text_add(v->html, "<th>measured start</th><th>measured end</th>");
    ty_text_add(v->html, "</tr></thead><tbody>\n");
    for (uint32_t r = 0; r < v->rank_count; r++) {
        uint32_t rank = v->ranks[r];
        const ty_stage_program *stage =
            &v->input->program->stages[ty_plan_stage_of_rank(plan, rank)];
        for (uint32_t i = 0; i < stage->instruction_count && rows < MOST_TABLE_ROWS; i++, rows++) {
            const ty_instruction *in = &stage->instructions[i];
            const timeline_step *views[2] = {predicted, measured};
            char name[128];
            ty_operation_name(plan, in->op, in->first_layer, in->layer_count, in->bucket, in->phase,
                              name, sizeof name);
            ty_text_addf(v->html, "<tr><td>%u</td><td class=\"text\">%s</td><td class=\"text\">",
                         rank, ty_stream_name(in->stream));
            ty_html_escape(v->html, name);
            ty_text_add(v->html, "</td>");
            for (int k = 0; k < 2 && views[k] != NULL; k++) {
                const ty_event *e = ty_timeline_find(views[k]->timeline, v->input->program, plan,
                                                     views[k]->step, rank, i);
                char start[32], end[32];
                ty_format_seconds(fmax(e->start_s - views[k]->start_s, 0), start);
                ty_format_seconds(e->end_s - views[k]->start_s, end);
                ty_text_addf(v->html, "<td>%s</td><td>%s</td>", start, end);
            }
            ty_text_add(v->html, "</tr>\n");
        }
    }
    ty_text_add(v->html, "</tbody></table></div>");
    if (rows == MOST_TABLE_ROWS)
        ty_text_addf(v->html, "<p class=\"faint\">The first %d instructions.</p>", MOST_TABLE_ROWS);
    ty_text_add(v->html, "</details>\n");
}

/* Bars shorter than this are left out of the plain picture, so that not too many remain. */
static double least_bar(const timeline_view *v)
{
    uint64_t bars = 0;

    for (uint32_t r = 0; r < v->rank_count; r++)
        bars += v->input->program->stages[ty_plan_stage_of_rank(v->input->plan, v->ranks[r])]
                    .instruction_count;
    return bars <= MOST_SVG_BARS ? 0 : v->length_s / MOST_SVG_BARS;
}

static void put_plain(timeline_view *v, const timeline_step *measured)
{
    v->least_s = least_bar(v);
    ty_text_add(v->html, "<div class=\"fallback\">");
    put_legend(v);
    ty_text_add(v->html,
                "<div class=\"tools\" hidden><button type=\"button\" data-zoom=\"2\">Zoom "
                "in</button><button type=\"button\" data-zoom=\"0.5\">Zoom out</button><button "
                "type=\"button\" data-zoom=\"0\">Whole step</button><span id=\"pointed\" "
                "class=\"faint\"></span></div>\n");
    put_lanes(v, &v->predicted, measured);
    ty_text_add(v->html, "</div>\n");
}

static void put_introduction(page *p, const timeline_view *v, const timeline_step *measured)
{
    ty_text_addf(
        p->html, "<p class=\"faint\">%s. Times count from the step's first computation.%s</p>\n",
        measured != NULL ? "In each lane the upper bar is the prediction, the lower one the "
                           "measurement"
                         : "Predicted; nothing was measured yet",
        v->rank_count < ty_plan_rank_count(p->in->plan)
            ? " One rank of each stage and type of device is shown."
            : "");
}

static ty_status view_open(timeline_view *v, const ty_timeline *timeline,
                           const ty_timeline *recorded, ty_error *error)
{
    const ty_report_input *in = v->input;
    ty_step_summary summary;
    ty_status status = TY_OK;

    TY_CHECK(ty_partners_new(in->plan, in->program, &v->partners, error), status, done);
    TY_CHECK(ty_timeline_summarize(in->plan, in->program, timeline, &summary, error), status, done);
    choose_ranks(v);
    v->predicted = choose_step(in, timeline, summary.step_time_s);
    v->length_s = v->predicted.end_s - v->predicted.start_s;
    if (recorded != NULL) {
        TY_CHECK(ty_timeline_check(in->plan, in->program, recorded, "run:/timeline", error), status,
                 done);
        v->measured = choose_step(in, recorded, in->run->summary.step_time_s);
        v->length_s = fmax(v->length_s, v->measured.end_s - v->measured.start_s);
    }
done:
    return status;
}

ty_status ty_page_timeline(page *p, ty_error *error)
{
    const ty_report_input *in = p->in;
    const ty_timeline *timeline = in->simulated != NULL ? in->simulated : in->estimated;
    const ty_timeline *recorded = in->run != NULL ? in->run->timeline : NULL;
    timeline_view v = {.input = in, .html = p->html};
    const timeline_step *measured;
    ty_status status = TY_OK;

    if (timeline == NULL) {
        ty_page_missing(p, "Timeline and stages", "a plan, which is simulated for it");
        return TY_OK;
    }
    if (recorded != NULL && recorded->step_count == 0)
        recorded = NULL;
    TY_CHECK(view_open(&v, timeline, recorded, error), status, done);
    measured = recorded != NULL ? &v.measured : NULL;
    ty_page_section(p, "stages", "What each stage does");
    TY_CHECK(ty_page_stage_parts(p, &v, measured, error), status, done);
    ty_page_section(p, "timeline", "Timeline of one step");
    put_introduction(p, &v, measured);
    TY_CHECK(ty_page_gantt(p, &v, measured, error), status, done);
    put_plain(&v, measured);
    put_table(&v, &v.predicted, measured);
    ty_text_add(p->html, "</figure>\n");
    TY_CHECK(ty_page_critical_path(p, &v, error), status, done);
done:
    ty_partners_free(v.partners);
    return status;
}
