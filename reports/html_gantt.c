/* One step as charts: instructions over time, seconds by stage, the critical path. */
#include "critical_path.h"
#include "html_timeline.h"
#include "operation.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ITEMS 8000 /* bars in the chart; beyond, the shortest are left out */

static const ty_stage_program *program_of(const timeline_view *v, uint32_t rank)
{
    return &v->input->program->stages[ty_plan_stage_of_rank(v->input->plan, rank)];
}

static const ty_event *event_of(const timeline_view *v, const timeline_step *s, uint32_t rank,
                                uint32_t instruction)
{
    return ty_timeline_find(s->timeline, v->input->program, v->input->plan, s->step, rank,
                            instruction);
}

/* ---- The chart of instructions ------------------------------------------------------------- */

static int longest_first(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a < b) - (a > b);
}

/* The length below which bars are left out. */
static ty_status least_item(const timeline_view *v, const timeline_step *steps[2], double *least_s,
                            ty_error *error)
{
    uint64_t count = 0, at = 0;
    double *lengths;

    for (uint32_t r = 0; r < v->rank_count; r++)
        count += program_of(v, v->ranks[r])->instruction_count;
    *least_s = 0;
    count *= steps[1] != NULL ? 2 : 1;
    if (count <= MOST_ITEMS)
        return TY_OK;
    lengths = ty_alloc(count, sizeof *lengths);
    if (lengths == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (int k = 0; k < 2 && steps[k] != NULL; k++)
        for (uint32_t r = 0; r < v->rank_count; r++)
            for (uint32_t i = 0; i < program_of(v, v->ranks[r])->instruction_count; i++) {
                const ty_event *e = event_of(v, steps[k], v->ranks[r], i);
                lengths[at++] = e->end_s - e->start_s;
            }
    qsort(lengths, at, sizeof *lengths, longest_first);
    *least_s = lengths[MOST_ITEMS];
    ty_free(lengths);
    return TY_OK;
}

static int32_t lane_of(const timeline_view *v, uint32_t rank, ty_stream stream)
{
    int32_t lane = 0;

    for (uint32_t i = 0; i < rank; i++)
        for (int s = 0; s < TY_STREAM_COUNT; s++)
            lane += v->has_stream[i][s];
    for (int s = 0; s < (int)stream; s++)
        lane += v->has_stream[rank][s];
    return lane;
}

/* [lane, measured, operation, name, micro-batch, start, ready, end, critical]; times in
 * microseconds of the step; name is an index into names. */
static void put_item(page *p, const timeline_view *v, const timeline_step *s, uint32_t shown,
                     uint32_t index, uint32_t name, bool is_measured, bool is_critical)
{
    const ty_instruction *in = &program_of(v, v->ranks[shown])->instructions[index];
    const ty_event *e = event_of(v, s, v->ranks[shown], index);
    const double ready_s = ty_partners_ready_s(v->partners, s->timeline, e);
    const double start_us = fmax(e->start_s - s->start_s, 0) * 1e6;
    char row[192];

    if (e->end_s <= s->start_s)
        return;
    snprintf(row, sizeof row, "[%d,%d,%d,%u,%d,%.7g,%.7g,%.7g,%d]",
             (int)lane_of(v, shown, in->stream), is_measured, (int)in->op, name,
             in->micro_batch == TY_NO_MICRO_BATCH ? -1 : (int)in->micro_batch, start_us,
             fmax((ready_s - s->start_s) * 1e6, start_us), (e->end_s - s->start_s) * 1e6,
             is_critical);
    ty_json_put_raw(&p->json, NULL, row);
}

/* Names repeat for every micro-batch: each is written once a position. */
typedef struct name_table {
    uint32_t *first; /* [instructions of all shown ranks]: index of the name */
    uint32_t count;
} name_table;

static bool is_same_operation(const ty_instruction *a, const ty_instruction *b)
{
    return a->op == b->op && a->first_layer == b->first_layer && a->layer_count == b->layer_count &&
           a->bucket == b->bucket && a->phase == b->phase && a->peer_stage == b->peer_stage &&
           a->direction == b->direction;
}

static void put_name(page *p, const timeline_view *v, const ty_instruction *in)
{
    char name[160];
    size_t length;

    ty_operation_name(v->input->plan, in->op, in->first_layer, in->layer_count, in->bucket,
                      in->phase, name, sizeof name);
    length = strlen(name);
    if (in->peer_stage != TY_NO_STAGE && length + 40 < sizeof name)
        snprintf(name + length, sizeof name - length, " (%s, stage %u)",
                 ty_direction_name(in->direction), in->peer_stage);
    ty_json_put_string(&p->json, NULL, name);
}

/* The same operation is looked for among the last ones with a name of their own. */
#define NAME_WINDOW 64

static ty_status put_names(page *p, const timeline_view *v, name_table *names, ty_error *error)
{
    uint64_t count = 0, at = 0;

    for (uint32_t r = 0; r < v->rank_count; r++)
        count += program_of(v, v->ranks[r])->instruction_count;
    names->first = ty_alloc(count, sizeof *names->first);
    if (names->first == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    ty_json_open(&p->json, "names", '[');
    for (uint32_t r = 0; r < v->rank_count; r++) {
        const ty_stage_program *stage = program_of(v, v->ranks[r]);
        const ty_instruction *recent[NAME_WINDOW];
        uint32_t index[NAME_WINDOW], known = 0;
        for (uint32_t i = 0; i < stage->instruction_count; i++, at++) {
            const ty_instruction *in = &stage->instructions[i];
            const uint32_t window = known < NAME_WINDOW ? known : NAME_WINDOW;
            uint32_t k = 0;
            while (k < window && !is_same_operation(recent[k], in))
                k++;
            if (k == window) {
                k = known++ % NAME_WINDOW;
                recent[k] = in;
                index[k] = names->count++;
                put_name(p, v, in);
            }
            names->first[at] = index[k];
        }
    }
    ty_json_close(&p->json, ']');
    return TY_OK;
}

static void put_lane_names(page *p, const timeline_view *v)
{
    ty_json_open(&p->json, "lanes", '[');
    for (uint32_t i = 0; i < v->rank_count; i++)
        for (int s = 0; s < TY_STREAM_COUNT; s++)
            if (v->has_stream[i][s]) {
                char name[64];
                snprintf(name, sizeof name, "%u %s", v->ranks[i], ty_stream_name((ty_stream)s));
                ty_json_put_string(&p->json, NULL, name);
            }
    ty_json_close(&p->json, ']');
    ty_json_open(&p->json, "ops", '[');
    for (int op = 0; op < TY_OP_COUNT; op++) {
        ty_json_open(&p->json, NULL, '[');
        ty_json_put_string(&p->json, NULL, ty_op_name((ty_op)op));
        ty_json_put_string(&p->json, NULL, ty_op_colours[op]);
        ty_json_put_bool(&p->json, NULL, v->has_op[op]);
        ty_json_close(&p->json, ']');
    }
    ty_json_close(&p->json, ']');
}

ty_status ty_page_gantt(page *p, const timeline_view *v, const timeline_step *measured,
                        ty_error *error)
{
    const timeline_step *steps[2] = {&v->predicted, measured};
    ty_status status = TY_OK;
    critical_path path = {0};
    name_table names = {0};
    double least_s = 0;

    ty_page_chart(p, "timeline", "timeline",
                  measured != NULL ? "Instructions over time, predicted above measured"
                                   : "Instructions over time, predicted",
                  "Timeline of one step by rank and stream; the tables below have every "
                  "instruction. Arrow keys move, plus and minus zoom, 0 shows the whole step");
    TY_CHECK(least_item(v, steps, &least_s, error), status, done);
    TY_CHECK(ty_critical_path_find(v->input->plan, v->input->program, v->predicted.timeline,
                                   v->partners, v->predicted.step, v->predicted.start_s, &path,
                                   error),
             status, done);
    ty_json_put_number(&p->json, "length", v->length_s * 1e6);
    ty_json_put_bool(&p->json, "measured", measured != NULL);
    put_lane_names(p, v);
    TY_CHECK(put_names(p, v, &names, error), status, done);
    ty_json_open(&p->json, "items", '[');
    for (int k = 0; k < 2 && steps[k] != NULL; k++) {
        uint64_t at = 0;
        for (uint32_t r = 0; r < v->rank_count; r++)
            for (uint32_t i = 0; i < program_of(v, v->ranks[r])->instruction_count; i++, at++) {
                const ty_event *e = event_of(v, steps[k], v->ranks[r], i);
                if (e->end_s - e->start_s > 0 && e->end_s - e->start_s >= least_s)
                    put_item(p, v, steps[k], r, i, names.first[at], k == 1,
                             k == 0 && ty_critical_path_has(&path, v->ranks[r], i));
            }
    }
    ty_json_close(&p->json, ']');
    ty_json_close(&p->json, '}');
    if (least_s > 0) {
        char shortest[32];
        ty_format_seconds(least_s, shortest);
        ty_text_addf(p->html,
                     "<p class=\"faint\">The chart leaves out what is shorter than %s; "
                     "trainyard simulate PLAN --trace FILE writes everything.</p>\n",
                     shortest);
    }
done:
    ty_free(names.first);
    ty_critical_path_clear(&path);
    return status;
}

/* ---- Seconds by stage ---------------------------------------------------------------------- */

enum {
    PART_FORWARD,
    PART_BACKWARD,
    PART_RECOMPUTE,
    PART_UPDATE,
    PART_EXCHANGE,
    PART_TRANSFER,
    PART_INPUT,
    PART_IDLE,
    STAGE_PART_COUNT
};

static const page_series stage_parts[STAGE_PART_COUNT] = {
    [PART_FORWARD] = {.name = "forward", .colour = "#0072b2"},
    [PART_BACKWARD] = {.name = "backward", .colour = "#d55e00"},
    [PART_RECOMPUTE] = {.name = "recompute", .colour = "#56b4e9"},
    [PART_UPDATE] = {.name = "update", .colour = "#e69f00"},
    [PART_EXCHANGE] = {.name = "waiting for gradients", .colour = "#009e73"},
    [PART_TRANSFER] = {.name = "waiting for a neighbour", .colour = "#cc79a7"},
    [PART_INPUT] = {.name = "waiting for input", .colour = "#b5a800"},
    [PART_IDLE] = {.name = "idle", .colour = "#8c8c8c"},
};

static int part_of_op(ty_op op)
{
    if (op == TY_OP_FORWARD || op == TY_OP_ACT)
        return PART_FORWARD;
    if (op == TY_OP_RECOMPUTE)
        return PART_RECOMPUTE;
    return op == TY_OP_UPDATE || op == TY_OP_BEGIN || op == TY_OP_RENEW ? PART_UPDATE
                                                                        : PART_BACKWARD;
}

/* What a compute instruction waited for last, if that ended after `since_s`. */
static int part_of_gap(const timeline_view *v, const timeline_step *s, uint32_t rank,
                       const ty_instruction *next, double since_s)
{
    const ty_stage_program *stage = program_of(v, rank);
    int part = PART_IDLE;

    for (uint32_t k = 0; k < next->wait_count; k++) {
        const double end_s = event_of(v, s, rank, next->waits[k])->end_s;
        const ty_stream stream = stage->instructions[next->waits[k]].stream;
        if (end_s <= since_s)
            continue;
        since_s = end_s;
        part = stream == TY_STREAM_COLLECTIVE ? PART_EXCHANGE
               : stream == TY_STREAM_INPUT    ? PART_INPUT
               : stream == TY_STREAM_COMPUTE  ? PART_IDLE
                                              : PART_TRANSFER;
    }
    return part;
}

static int by_start(const void *left, const void *right)
{
    const ty_event *a = *(const ty_event *const *)left, *b = *(const ty_event *const *)right;

    if (a->start_s < b->start_s || a->start_s > b->start_s)
        return a->start_s < b->start_s ? -1 : 1;
    return (a->instruction > b->instruction) - (a->instruction < b->instruction);
}

/* Splits the step of one rank's compute stream, in the order in which it ran, which is not the
 * program's where instructions lead; `parts` has a stride of `columns`.
 * @param order room for its instructions */
static void split_rank(const timeline_view *v, const timeline_step *s, uint32_t rank,
                       const ty_event **order, double *parts, size_t columns)
{
    const ty_stage_program *stage = program_of(v, rank);
    double cursor = s->start_s;
    uint32_t count = 0;

    for (uint32_t i = 0; i < stage->instruction_count; i++)
        if (stage->instructions[i].stream == TY_STREAM_COMPUTE)
            order[count++] = event_of(v, s, rank, i);
    qsort(order, count, sizeof *order, by_start);
    for (uint32_t i = 0; i < count; i++) {
        const ty_event *e = order[i];
        const ty_instruction *in = &stage->instructions[e->instruction];
        if (e->start_s > cursor)
            parts[(size_t)part_of_gap(v, s, rank, in, cursor) * columns] += e->start_s - cursor;
        if (e->end_s > fmax(cursor, e->start_s))
            parts[(size_t)part_of_op(in->op) * columns] += e->end_s - fmax(cursor, e->start_s);
        cursor = fmax(cursor, e->end_s);
    }
    parts[PART_IDLE * columns] += fmax(s->end_s - cursor, 0);
}

ty_status ty_page_stage_parts(page *p, const timeline_view *v, const timeline_step *measured,
                              ty_error *error)
{
    const uint32_t each = measured != NULL ? 2 : 1;
    const size_t columns = (size_t)v->rank_count * each;
    const bool is_by_stage = v->rank_count == v->input->program->stage_count;
    /* A rank that has several stages is at a position of the pipeline. */
    const char *kind = !is_by_stage                             ? "rank"
                       : ty_plan_interleave(v->input->plan) > 1 ? "position"
                                                                : "stage";
    double *values = ty_alloc(columns * STAGE_PART_COUNT, sizeof *values);
    char(*names)[48] = ty_alloc(columns, sizeof *names);
    const char **categories = ty_alloc(columns, sizeof *categories);
    const ty_program *program = v->input->program;
    const ty_event **order;
    page_series series[STAGE_PART_COUNT];
    uint32_t longest = 0;
    ty_status status = TY_OK;

    for (uint32_t s = 0; s < program->stage_count; s++)
        longest = program->stages[s].instruction_count > longest
                      ? program->stages[s].instruction_count
                      : longest;
    order = ty_alloc(longest, sizeof *order);
    if (values == NULL || names == NULL || categories == NULL || order == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory");
        goto done;
    }
    for (size_t c = 0; c < columns; c++) {
        const uint32_t rank = v->ranks[c / each];
        const bool is_measured = c % each == 1;
        split_rank(v, is_measured ? measured : &v->predicted, rank, order, &values[c], columns);
        snprintf(names[c], sizeof names[c], "%s %u%s", kind,
                 is_by_stage ? ty_plan_stage_of_rank(v->input->plan, rank) : rank,
                 each == 1     ? ""
                 : is_measured ? " measured"
                               : " predicted");
        categories[c] = names[c];
    }
    for (int i = 0; i < STAGE_PART_COUNT; i++) {
        series[i] = stage_parts[i];
        series[i].values = &values[(size_t)i * columns];
    }
    ty_page_plot(p, &(page_plot){.id = "stages",
                                 .caption = "Seconds of one step, one rank a bar",
                                 .alternative = "Stacked bars, one for a rank of each stage or "
                                                "position: computing, and waiting by cause",
                                 .x_name = kind,
                                 .categories = categories,
                                 .unit = PAGE_SECONDS,
                                 .y_name = "seconds of a step",
                                 .count = columns,
                                 .series = series,
                                 .series_count = STAGE_PART_COUNT,
                                 .is_stacked = true});
done:
    ty_free(values);
    ty_free(names);
    ty_free(categories);
    ty_free(order);
    return status;
}

/* ---- The critical path --------------------------------------------------------------------- */

ty_status ty_page_critical_path(page *p, const timeline_view *v, ty_error *error)
{
    critical_path path = {0};
    double seconds[TY_OP_COUNT] = {0}, total_s = 0;
    uint32_t counts[TY_OP_COUNT] = {0};
    ty_status status =
        ty_critical_path_find(v->input->plan, v->input->program, v->predicted.timeline, v->partners,
                              v->predicted.step, v->predicted.start_s, &path, error);

    if (status != TY_OK)
        return status;
    for (uint32_t i = 0; i < path.count; i++) {
        const path_link *link = &path.links[i];
        const ty_op op = program_of(v, link->rank)->instructions[link->instruction].op;
        seconds[op] += link->to_s - link->from_s;
        total_s += link->to_s - link->from_s;
        counts[op]++;
    }
    ty_page_note(p, "The critical path: the chain of instructions, over all ranks, that the length "
                    "of the predicted step is made of, outlined in the chart. A shorter step needs "
                    "one of these to be shorter:");
    ty_page_table(p, "<operation|instructions|seconds|share");
    for (int op = 0; op < TY_OP_COUNT; op++) {
        char cell[40];
        if (counts[op] == 0)
            continue;
        ty_page_row(p);
        ty_page_text(p, ty_op_name((ty_op)op));
        snprintf(cell, sizeof cell, "%u", counts[op]);
        ty_page_number(p, cell);
        ty_page_format(PAGE_SECONDS, seconds[op], cell);
        ty_page_number(p, cell);
        ty_page_format(PAGE_SHARE, total_s > 0 ? seconds[op] / total_s : (double)NAN, cell);
        ty_page_number(p, cell);
        ty_page_end_row(p);
    }
    ty_page_end_table(p);
    ty_critical_path_clear(&path);
    return TY_OK;
}
