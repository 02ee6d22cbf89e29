/* The timeline: one lane per rank and stream, predicted above measured, as inline SVG in per cent
 * of the width so that zooming is a matter of width alone. */
#include "html.h"
#include "operation.h"
#include "partners.h"

#include <math.h>
#include <stdio.h>

#define LANE_HEIGHT 28
#define BAR_HEIGHT 11
#define AXIS_HEIGHT 22
#define MOST_RANKS 8
#define MOST_TABLE_ROWS 600

/* Okabe and Ito's palette, which colour-blind readers can tell apart. */
static const char *const colours[TY_OP_COUNT] = {
    [TY_OP_LOAD] = "#8c8c8c",      [TY_OP_FORWARD] = "#0072b2",
    [TY_OP_RECOMPUTE] = "#56b4e9", [TY_OP_BACKWARD] = "#d55e00",
    [TY_OP_SEND] = "#cc79a7",      [TY_OP_RECEIVE] = "#cc79a7",
    [TY_OP_ENCODE] = "#b5a800",    [TY_OP_COLLECTIVE] = "#009e73",
    [TY_OP_DECODE] = "#b5a800",    [TY_OP_UPDATE] = "#e69f00",
    [TY_OP_BEGIN] = "#8c8c8c",     [TY_OP_BACKWARD_INPUT] = "#d55e00",
    [TY_OP_GATHER] = "#44aa99",    [TY_OP_BACKWARD_WEIGHT] = "#aa4499",
};

typedef struct view {
    const ty_report_input *input;
    const partners *partners;
    ty_text *html;
    uint32_t ranks[MOST_RANKS];
    uint32_t rank_count;
    bool has_stream[MOST_RANKS][TY_STREAM_COUNT];
    bool has_op[TY_OP_COUNT];
    double length_s; /* what the width stands for */
} view;

/* One step of a timeline and when it began. */
typedef struct step_view {
    const ty_timeline *timeline;
    uint32_t step;
    double start_s, end_s;
} step_view;

/* All ranks while they are few, else the first replica of each stage. */
static void choose_ranks(view *v)
{
    const ty_plan *plan = v->input->plan;
    uint32_t count = ty_plan_rank_count(plan);

    for (uint32_t r = 0; r < count && v->rank_count < MOST_RANKS; r++) {
        uint32_t stage = ty_plan_stage_of_rank(plan, r);
        if (count <= MOST_RANKS || r == ty_plan_first_rank(plan, stage))
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
static step_view choose_step(const ty_report_input *in, const ty_timeline *timeline,
                             double step_time_s)
{
    step_view best = {.timeline = timeline};
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

static void put_bar(view *v, const char *what, const ty_instruction *in, double from_s, double to_s,
                    double y, double opacity)
{
    char name[128], time[32], at[32];

    if (to_s - from_s <= v->length_s * 1e-5)
        return;
    ty_operation_name(v->input->plan, in->op, in->first_layer, in->layer_count, in->bucket,
                      in->phase, name, sizeof name);
    ty_format_seconds(to_s - from_s, time);
    ty_format_seconds(from_s > 0 ? from_s : 0, at);
    ty_text_addf(v->html,
                 "<rect x=\"%.4f%%\" width=\"%.4f%%\" y=\"%.1f\" height=\"%d\" fill=\"%s\" "
                 "fill-opacity=\"%.2f\"><title>",
                 from_s / v->length_s * 100, (to_s - from_s) / v->length_s * 100, y, BAR_HEIGHT,
                 colours[in->op], opacity);
    ty_html_escape(v->html, what);
    ty_text_add(v->html, " ");
    ty_html_escape(v->html, name);
    if (in->micro_batch != TY_NO_MICRO_BATCH)
        ty_text_addf(v->html, ", micro-batch %u", in->micro_batch);
    ty_text_addf(v->html, ": %s from %s</title></rect>", time, at);
}

/* A waiting instruction is drawn pale until its last partner was ready. */
static void put_lane(view *v, const step_view *s, const char *what, uint32_t rank, ty_stream stream,
                     double y)
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

static void put_axis(view *v, int height)
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

static void put_legend(view *v)
{
    ty_text_add(v->html, "<ul class=\"legend\">");
    for (int op = 0; op < TY_OP_COUNT; op++)
        if (v->has_op[op])
            ty_text_addf(
                v->html,
                "<li><svg width=\"12\" height=\"12\" aria-hidden=\"true\"><rect width=\"12\" "
                "height=\"12\" fill=\"%s\"/></svg>%s</li>",
                colours[op], ty_op_name((ty_op)op));
    ty_text_add(v->html, "<li class=\"faint\">pale: waiting</li></ul>\n");
}

static void put_lanes(view *v, const step_view *predicted, const step_view *measured)
{
    int lanes = 0;
    int lane = 0;

    ty_text_add(v->html, "<div class=\"timeline\"><div class=\"names\">");
    for (uint32_t i = 0; i < v->rank_count; i++)
        for (int s = 0; s < TY_STREAM_COUNT; s++)
            if (v->has_stream[i][s]) {
                ty_text_addf(v->html, "<div style=\"height:%dpx\">rank %u %s</div>", LANE_HEIGHT,
                             v->ranks[i], ty_stream_name((ty_stream)s));
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
static void put_table(view *v, const step_view *predicted, const step_view *measured)
{
    const ty_plan *plan = v->input->plan;
    uint32_t rows = 0;

    ty_text_add(v->html,
                "<details><summary>The timeline as a table</summary><div class=\"scroll\" "
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
            const step_view *views[2] = {predicted, measured};
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

ty_status ty_html_timeline(const ty_report_input *in, ty_text *html, ty_error *error)
{
    const ty_timeline *timeline = in->simulated != NULL ? in->simulated : in->estimated;
    const ty_timeline *recorded = in->run != NULL ? in->run->timeline : NULL;
    ty_step_summary summary;
    step_view predicted, measured = {0};
    partners *p = NULL;
    view v = {.input = in, .html = html};
    ty_status status = TY_OK;

    if (timeline == NULL)
        return TY_OK;
    if (recorded != NULL && recorded->step_count == 0)
        recorded = NULL;
    TY_CHECK(ty_partners_new(in->plan, in->program, &p, error), status, done);
    TY_CHECK(ty_timeline_summarize(in->plan, in->program, timeline, &summary, error), status, done);
    v.partners = p;
    choose_ranks(&v);
    predicted = choose_step(in, timeline, summary.step_time_s);
    v.length_s = predicted.end_s - predicted.start_s;
    if (recorded != NULL) {
        TY_CHECK(ty_timeline_check(in->plan, in->program, recorded, "run:/timeline", error), status,
                 done);
        measured = choose_step(in, recorded, in->run->summary.step_time_s);
        v.length_s = fmax(v.length_s, measured.end_s - measured.start_s);
    }
    ty_text_add(html, "<h2 id=\"timeline\">Timeline of one step</h2>\n");
    ty_text_addf(
        html, "<p class=\"faint\">%s. Times count from the step's first computation.%s</p>\n",
        recorded != NULL ? "In each lane the upper bar is the prediction, the lower one the "
                           "measurement"
                         : "Predicted; nothing was measured yet",
        v.rank_count < ty_plan_rank_count(in->plan) ? " One rank of each stage is shown." : "");
    put_legend(&v);
    ty_text_add(html, "<div class=\"tools\" hidden><button data-zoom=\"2\">Zoom in</button><button "
                      "data-zoom=\"0.5\">Zoom out</button><button data-zoom=\"0\">Whole "
                      "step</button><span id=\"pointed\" class=\"faint\"></span></div>\n");
    put_lanes(&v, &predicted, recorded != NULL ? &measured : NULL);
    put_table(&v, &predicted, recorded != NULL ? &measured : NULL);
done:
    ty_partners_free(p);
    return status;
}
