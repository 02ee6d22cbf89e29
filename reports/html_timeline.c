/* One step of the timelines: instructions, time per stage, the critical path. */
#include "critical_path.h"
#include "html.h"
#include "operation.h"
#include "partners.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FEW_RANKS 8 /* up to this number, all stage replicas are shown */
#define MOST_RANKS 16
#define MOST_ITEMS 8000 /* instructions in the chart; above, the shortest are left out */

/* One step of a timeline, with its begin and end. */
typedef struct one_step {
    const ty_timeline *timeline;
    uint32_t step;
    double start_s, end_s;
} one_step;

typedef struct view {
    const ty_report_input *in;
    ty_json_writer *w;
    partners *partners;
    uint32_t stage_replicas[MOST_RANKS];
    uint32_t stage_replica_count;
    uint32_t row[MOST_RANKS][TY_STREAM_COUNT]; /* of the chart */
    bool has_op[TY_OP_COUNT];
    one_step steps[2]; /* predicted, measured */
    int step_count;    /* 1: nothing was measured */
    double length_s;   /* of the longer step */
} view;

static const ty_stage_program *program_of(const view *v, uint32_t stage_replica)
{
    return &v->in->program->stages[ty_plan_stage_of_replica(v->in->plan, stage_replica)];
}

static const ty_event *event_of(const view *v, const one_step *s, uint32_t stage_replica,
                                uint32_t instruction)
{
    return ty_timeline_find(s->timeline, v->in->program, v->in->plan, s->step, stage_replica,
                            instruction);
}

/* ---- Shown stage replicas and steps
 * ------------------------------------------------------------------ */

/* Devices of one type have equal timelines, except for measured stragglers. */
static bool is_like_one_before(const view *v, uint32_t stage_replica)
{
    const ty_plan *plan = v->in->plan;
    const ty_cluster *cluster = v->in->cluster;

    for (uint32_t i = 0; i < v->stage_replica_count; i++) {
        if (ty_plan_stage_of_replica(plan, v->stage_replicas[i]) !=
            ty_plan_stage_of_replica(plan, stage_replica))
            continue;
        if (cluster == NULL ||
            ty_cluster_device_type(cluster,
                                   ty_plan_device_of_replica(plan, v->stage_replicas[i])) ==
                ty_cluster_device_type(cluster, ty_plan_device_of_replica(plan, stage_replica)))
            return true;
    }
    return false;
}

/* Chooses all stage replicas if they are few, else one per pipeline stage and device type. */
static void choose_replicas(view *v)
{
    const uint32_t count = ty_plan_stage_replica_count(v->in->plan);

    for (uint32_t r = 0; r < count && v->stage_replica_count < MOST_RANKS; r++)
        if (count <= FEW_RANKS || !is_like_one_before(v, r))
            v->stage_replicas[v->stage_replica_count++] = r;
    for (uint32_t i = 0; i < v->stage_replica_count; i++) {
        const ty_stage_program *program = program_of(v, v->stage_replicas[i]);
        for (uint32_t k = 0; k < program->instruction_count; k++) {
            v->row[i][program->instructions[k].stream] = 1;
            v->has_op[program->instructions[k].op] = true;
        }
    }
}

static void step_span(const ty_report_input *in, one_step *s)
{
    s->start_s = HUGE_VAL;
    s->end_s = -HUGE_VAL;
    for (uint32_t r = 0; r < s->timeline->stage_replica_count; r++) {
        const ty_stage_program *stage = &in->program->stages[ty_plan_stage_of_replica(in->plan, r)];
        for (uint32_t i = 0; i < stage->instruction_count; i++) {
            const ty_event *e = ty_timeline_find(s->timeline, in->program, in->plan, s->step, r, i);
            if (stage->instructions[i].stream == TY_STREAM_COMPUTE)
                s->start_s = fmin(s->start_s, e->start_s);
            s->end_s = fmax(s->end_s, e->end_s);
        }
    }
}

/* Finds the recorded step whose length is nearest to the step time. */
static one_step choose_step(const ty_report_input *in, const ty_timeline *timeline,
                            double step_time_s)
{
    one_step best = {.timeline = timeline};
    double distance = HUGE_VAL;

    for (uint32_t i = timeline->step_count > 1 ? 1 : 0; i < timeline->step_count; i++) {
        one_step s = {.timeline = timeline, .step = i};
        step_span(in, &s);
        if (fabs(s.end_s - s.start_s - step_time_s) < distance) {
            distance = fabs(s.end_s - s.start_s - step_time_s);
            best = s;
        }
    }
    return best;
}

static ty_status view_open(view *v, const ty_timeline *predicted, ty_error *error)
{
    const ty_report_input *in = v->in;
    const ty_timeline *recorded = in->run != NULL ? in->run->timeline : NULL;
    ty_step_summary summary;

    TY_TRY(ty_partners_new(in->plan, in->program, &v->partners, error));
    TY_TRY(ty_timeline_summarize(in->plan, in->program, predicted, &summary, error));
    choose_replicas(v);
    v->steps[0] = choose_step(in, predicted, summary.step_time_s);
    v->step_count = 1;
    if (recorded != NULL && recorded->step_count > 0) {
        TY_TRY(ty_timeline_check(in->plan, in->program, recorded, "run:/timeline", error));
        v->steps[v->step_count++] = choose_step(in, recorded, in->run->summary.step_time_s);
    }
    for (int k = 0; k < v->step_count; k++)
        v->length_s = fmax(v->length_s, v->steps[k].end_s - v->steps[k].start_s);
    return TY_OK;
}

/* ---- Instructions --------------------------------------------------------------------------- */

static int longest_first(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a < b) - (a > b);
}

/* Finds the length below which instructions are left out. */
static ty_status least_item(const view *v, double *least_s, ty_error *error)
{
    uint64_t count = 0, at = 0;
    double *lengths;

    for (uint32_t r = 0; r < v->stage_replica_count; r++)
        count += program_of(v, v->stage_replicas[r])->instruction_count;
    *least_s = 0;
    count *= (uint64_t)v->step_count;
    if (count <= MOST_ITEMS)
        return TY_OK;
    lengths = ty_alloc(count, sizeof *lengths);
    TY_TRY(ty_check_memory(lengths != NULL, error));
    for (int k = 0; k < v->step_count; k++)
        for (uint32_t r = 0; r < v->stage_replica_count; r++)
            for (uint32_t i = 0; i < program_of(v, v->stage_replicas[r])->instruction_count; i++) {
                const ty_event *e = event_of(v, &v->steps[k], v->stage_replicas[r], i);
                lengths[at++] = e->end_s - e->start_s;
            }
    qsort(lengths, at, sizeof *lengths, longest_first);
    *least_s = lengths[MOST_ITEMS];
    ty_free(lengths);
    return TY_OK;
}

/* [row, measured, operation, name, micro-batch, start, ready, end, critical]; microseconds of the
 * step; a wait lasts from start to ready; name is an index into "names". */
static void put_item(const view *v, int measured, uint32_t shown, uint32_t index, uint32_t name,
                     bool is_critical)
{
    const one_step *s = &v->steps[measured];
    const ty_instruction *in = &program_of(v, v->stage_replicas[shown])->instructions[index];
    const ty_event *e = event_of(v, s, v->stage_replicas[shown], index);
    const double ready_s = ty_partners_ready_s(v->partners, s->timeline, e);
    const double start_us = fmax(e->start_s - s->start_s, 0) * 1e6;

    if (e->end_s > s->start_s)
        ty_report_put_row(v->w, "uuuuffffu", v->row[shown][in->stream], (uint32_t)measured,
                          (uint32_t)in->op, name,
                          in->micro_batch == TY_NO_MICRO_BATCH ? -1.0 : (double)in->micro_batch,
                          start_us, fmax((ready_s - s->start_s) * 1e6, start_us),
                          (e->end_s - s->start_s) * 1e6, (uint32_t)is_critical);
}

static bool is_same_operation(const ty_instruction *a, const ty_instruction *b)
{
    return a->op == b->op && a->first_layer == b->first_layer && a->layer_count == b->layer_count &&
           a->bucket == b->bucket && a->phase == b->phase && a->peer_stage == b->peer_stage &&
           a->direction == b->direction;
}

static void put_name(const view *v, const ty_instruction *in)
{
    char name[160];
    size_t length;

    ty_operation_name(v->in->plan, in->op, in->first_layer, in->layer_count, in->bucket, in->phase,
                      name, sizeof name);
    length = strlen(name);
    if (in->peer_stage != TY_NO_STAGE && length + 40 < sizeof name)
        snprintf(name + length, sizeof name - length, " (%s, stage %u)",
                 ty_direction_name(in->direction), in->peer_stage);
    ty_json_put_string(v->w, NULL, name);
}

#define NAME_WINDOW 64 /* operations of one stage replica to compare with the next one */

/* Writes each name once per stage replica, since names repeat for every micro-batch.
 * @param index [out] of the name, for the instructions of all shown stage replicas; free with
 * ty_free */
static ty_status put_names(const view *v, uint32_t **index, ty_error *error)
{
    uint64_t count = 0, at = 0;
    uint32_t names = 0;

    for (uint32_t r = 0; r < v->stage_replica_count; r++)
        count += program_of(v, v->stage_replicas[r])->instruction_count;
    *index = ty_alloc(count, sizeof **index);
    TY_TRY(ty_check_memory(*index != NULL, error));
    ty_json_open(v->w, "names", '[');
    for (uint32_t r = 0; r < v->stage_replica_count; r++) {
        const ty_stage_program *stage = program_of(v, v->stage_replicas[r]);
        const ty_instruction *recent[NAME_WINDOW];
        uint32_t number[NAME_WINDOW], known = 0;
        for (uint32_t i = 0; i < stage->instruction_count; i++, at++) {
            const ty_instruction *in = &stage->instructions[i];
            const uint32_t window = known < NAME_WINDOW ? known : NAME_WINDOW;
            uint32_t k = 0;
            while (k < window && !is_same_operation(recent[k], in))
                k++;
            if (k == window) {
                k = known++ % NAME_WINDOW;
                recent[k] = in;
                number[k] = names++;
                put_name(v, in);
            }
            (*index)[at] = number[k];
        }
    }
    ty_json_close(v->w, ']');
    return TY_OK;
}

/* Names the rows, one per stage replica and stream that has instructions, and numbers them. */
static void put_rows(view *v)
{
    uint32_t count = 0;

    ty_json_open(v->w, "rows", '[');
    for (uint32_t i = 0; i < v->stage_replica_count; i++)
        for (int s = 0; s < TY_STREAM_COUNT; s++)
            if (v->row[i][s] > 0) {
                char name[64];
                snprintf(name, sizeof name, "%u %s", v->stage_replicas[i],
                         ty_stream_name((ty_stream)s));
                ty_json_put_string(v->w, NULL, name);
                v->row[i][s] = count++;
            }
    ty_json_close(v->w, ']');
    ty_json_open(v->w, "operations", '[');
    for (int op = 0; op < TY_OP_COUNT; op++)
        ty_json_put_string(v->w, NULL, v->has_op[op] ? ty_op_name((ty_op)op) : "");
    ty_json_close(v->w, ']');
}

static ty_status put_items(view *v, const critical_path *path, ty_error *error)
{
    uint32_t *names = NULL;
    double least_s;
    ty_status status;

    TY_CHECK(least_item(v, &least_s, error), status, done);
    ty_json_put_number(v->w, "least_s", least_s);
    put_rows(v);
    TY_CHECK(put_names(v, &names, error), status, done);
    ty_json_open(v->w, "items", '[');
    for (int k = 0; k < v->step_count; k++) {
        uint64_t at = 0;
        for (uint32_t r = 0; r < v->stage_replica_count; r++)
            for (uint32_t i = 0; i < program_of(v, v->stage_replicas[r])->instruction_count;
                 i++, at++) {
                const ty_event *e = event_of(v, &v->steps[k], v->stage_replicas[r], i);
                if (e->end_s - e->start_s > 0 && e->end_s - e->start_s >= least_s)
                    put_item(v, k, r, i, names[at],
                             k == 0 && ty_critical_path_has(path, v->stage_replicas[r], i));
            }
    }
    ty_json_close(v->w, ']');
done:
    ty_free(names);
    return status;
}

/* ---- Time per stage ------------------------------------------------------------------------- */

/* In the script's order. */
enum { FORWARD, BACKWARD, RECOMPUTE, UPDATE, EXCHANGE, TRANSFER, INPUT, IDLE, PART_COUNT };

static int part_of_op(ty_op op)
{
    if (op == TY_OP_FORWARD || op == TY_OP_LOAD)
        return FORWARD;
    if (op == TY_OP_RECOMPUTE)
        return RECOMPUTE;
    return op == TY_OP_UPDATE || op == TY_OP_BEGIN ? UPDATE : BACKWARD;
}

/* Cause of the wait of a compute instruction: its last dependency, if that ended after `since_s`.
 */
static int part_of_gap(const view *v, const one_step *s, uint32_t stage_replica,
                       const ty_instruction *next, double since_s)
{
    const ty_stage_program *stage = program_of(v, stage_replica);
    int part = IDLE;

    for (uint32_t k = 0; k < next->wait_count; k++) {
        const double end_s = event_of(v, s, stage_replica, next->waits[k])->end_s;
        const ty_stream stream = stage->instructions[next->waits[k]].stream;
        if (end_s <= since_s)
            continue;
        since_s = end_s;
        part = stream == TY_STREAM_COLLECTIVE ? EXCHANGE
               : stream == TY_STREAM_INPUT    ? INPUT
               : stream == TY_STREAM_COMPUTE  ? IDLE
                                              : TRANSFER;
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

/* Splits the step of one stage replica's compute stream by cause, in the order of execution. If
 * instructions lead, this is not the program's order.
 * @param order scratch memory for its instructions */
static void split_replica(const view *v, const one_step *s, uint32_t stage_replica,
                          const ty_event **order, double parts[PART_COUNT])
{
    const ty_stage_program *stage = program_of(v, stage_replica);
    double cursor = s->start_s;
    uint32_t count = 0;

    for (uint32_t i = 0; i < stage->instruction_count; i++)
        if (stage->instructions[i].stream == TY_STREAM_COMPUTE)
            order[count++] = event_of(v, s, stage_replica, i);
    qsort(order, count, sizeof *order, by_start);
    for (uint32_t i = 0; i < count; i++) {
        const ty_event *e = order[i];
        const ty_instruction *in = &stage->instructions[e->instruction];
        if (e->start_s > cursor)
            parts[part_of_gap(v, s, stage_replica, in, cursor)] += e->start_s - cursor;
        if (e->end_s > fmax(cursor, e->start_s))
            parts[part_of_op(in->op)] += e->end_s - fmax(cursor, e->start_s);
        cursor = fmax(cursor, e->end_s);
    }
    parts[IDLE] += fmax(s->end_s - cursor, 0);
}

/* {name, seconds of each part} of every shown stage replica, predicted before measured */
static ty_status put_stage_parts(const view *v, ty_error *error)
{
    const bool is_by_stage = v->stage_replica_count == v->in->program->stage_count;
    const char *kind = !is_by_stage                              ? "stage replica"
                       : ty_plan_virtual_stages(v->in->plan) > 1 ? "pipeline rank"
                                                                 : "stage";
    const ty_event **order;
    uint32_t longest = 0;

    for (uint32_t s = 0; s < v->in->program->stage_count; s++)
        longest = v->in->program->stages[s].instruction_count > longest
                      ? v->in->program->stages[s].instruction_count
                      : longest;
    order = ty_alloc(longest, sizeof *order);
    TY_TRY(ty_check_memory(order != NULL, error));
    ty_json_open(v->w, "stage_parts", '[');
    for (uint32_t r = 0; r < v->stage_replica_count; r++)
        for (int k = 0; k < v->step_count; k++) {
            const uint32_t stage_replica = v->stage_replicas[r];
            double parts[PART_COUNT] = {0};
            char name[64];
            split_replica(v, &v->steps[k], stage_replica, order, parts);
            snprintf(name, sizeof name, "%s %u%s", kind,
                     is_by_stage ? ty_plan_stage_of_replica(v->in->plan, stage_replica)
                                 : stage_replica,
                     v->step_count == 1 ? ""
                     : k == 1           ? " measured"
                                        : " predicted");
            ty_json_open(v->w, NULL, '{');
            ty_json_put_string(v->w, "name", name);
            ty_json_open(v->w, "seconds", '[');
            for (int i = 0; i < PART_COUNT; i++)
                ty_report_put_figure(v->w, NULL, parts[i]);
            ty_json_close(v->w, ']');
            ty_json_close(v->w, '}');
        }
    ty_json_close(v->w, ']');
    ty_free(order);
    return TY_OK;
}

/* ---- The critical path ---------------------------------------------------------------------- */

/* [operation, instructions, seconds] */
static void put_critical_path(const view *v, const critical_path *path)
{
    double seconds[TY_OP_COUNT] = {0};
    uint32_t counts[TY_OP_COUNT] = {0};

    for (uint32_t i = 0; i < path->count; i++) {
        const path_link *link = &path->links[i];
        const ty_op op = program_of(v, link->stage_replica)->instructions[link->instruction].op;
        seconds[op] += link->to_s - link->from_s;
        counts[op]++;
    }
    ty_json_open(v->w, "critical_path", '[');
    for (int op = 0; op < TY_OP_COUNT; op++)
        if (counts[op] > 0)
            ty_report_put_row(v->w, "suf", ty_op_name((ty_op)op), counts[op], seconds[op]);
    ty_json_close(v->w, ']');
}

ty_status ty_report_put_timeline(const ty_report_input *in, ty_json_writer *w, ty_error *error)
{
    const ty_timeline *predicted = in->simulated != NULL ? in->simulated : in->estimated;
    view v = {.in = in, .w = w};
    critical_path path = {0};
    ty_status status = TY_OK;

    if (predicted == NULL)
        return TY_OK;
    TY_CHECK(view_open(&v, predicted, error), status, done);
    TY_CHECK(ty_critical_path_find(in->plan, in->program, predicted, v.partners, v.steps[0].step,
                                   v.steps[0].start_s, &path, error),
             status, done);
    ty_json_open(w, "timeline", '{');
    ty_report_put_figure(w, "length_us", v.length_s * 1e6);
    ty_json_put_bool(w, "is_measured", v.step_count == 2);
    ty_json_put_bool(w, "has_all_replicas",
                     v.stage_replica_count == ty_plan_stage_replica_count(in->plan));
    TY_CHECK(put_items(&v, &path, error), status, done);
    TY_CHECK(put_stage_parts(&v, error), status, done);
    put_critical_path(&v, &path);
    ty_json_close(w, '}');
done:
    ty_critical_path_clear(&path);
    ty_partners_free(v.partners);
    return status;
}
