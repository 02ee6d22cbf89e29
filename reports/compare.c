/* Compares prediction and measurement: medians per kind of operation. */
#include "busy.h"
#include "partners.h"
#include "ty_reports.h"

#include <stdlib.h>

/* Durations of one row. */
typedef struct samples {
    double *values;
    uint64_t count, capacity;
} samples;

static ty_status samples_add(samples *s, double value)
{
    if (s->count == s->capacity) {
        uint64_t capacity = s->capacity > 0 ? s->capacity * 2 : 64;
        double *more = ty_resize(s->values, capacity, sizeof *more);
        if (more == NULL)
            return TY_ENOMEM;
        s->values = more;
        s->capacity = capacity;
    }
    s->values[s->count++] = value;
    return TY_OK;
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static double median(samples *s)
{
    if (s->count == 0)
        return 0;
    qsort(s->values, s->count, sizeof *s->values, by_value);
    return s->count % 2 == 1 ? s->values[s->count / 2]
                             : 0.5 * (s->values[s->count / 2 - 1] + s->values[s->count / 2]);
}

static bool is_same_kind(const ty_comparison_row *row, uint32_t stage, const ty_instruction *in)
{
    return row->stage == stage && row->op == in->op && row->bucket == in->bucket &&
           row->phase == in->phase && row->first_layer == in->first_layer &&
           row->layer_count == in->layer_count;
}

/* Makes rows of all stages, and the row of every instruction. */
static ty_status make_rows(const ty_program *program, ty_comparison *c, uint32_t **row_of,
                           ty_error *error)
{
    uint32_t total = 0;

    for (uint32_t s = 0; s < program->stage_count; s++)
        total += program->stages[s].instruction_count;
    c->rows = ty_alloc(total, sizeof *c->rows);
    TY_TRY(ty_check_memory(c->rows != NULL, error));
    for (uint32_t s = 0; s < program->stage_count; s++) {
        const ty_stage_program *stage = &program->stages[s];
        uint32_t first = c->row_count;
        row_of[s] = ty_alloc(stage->instruction_count, sizeof *row_of[s]);
        TY_TRY(ty_check_memory(row_of[s] != NULL, error));
        for (uint32_t i = 0; i < stage->instruction_count; i++) {
            const ty_instruction *in = &stage->instructions[i];
            uint32_t r = first;
            while (r < c->row_count && !is_same_kind(&c->rows[r], s, in))
                r++;
            if (r == c->row_count)
                c->rows[c->row_count++] = (ty_comparison_row){.stage = s,
                                                              .op = in->op,
                                                              .bucket = in->bucket,
                                                              .phase = in->phase,
                                                              .first_layer = in->first_layer,
                                                              .layer_count = in->layer_count};
            c->rows[r].per_step += 1;
            row_of[s][i] = r;
        }
    }
    return TY_OK;
}

/* Finds the medians of one timeline for each row. */
static ty_status find_medians(const ty_plan *plan, const partners *p, uint32_t *const *row_of,
                              const ty_timeline *timeline, uint32_t row_count, double *medians,
                              ty_error *error)
{
    ty_status status = TY_OK;
    samples *all = ty_alloc(row_count, sizeof *all);

    TY_TRY(ty_check_memory(all != NULL, error));
    for (uint64_t e = 0; e < timeline->event_count; e++) {
        const ty_event *event = &timeline->events[e];
        uint32_t row =
            row_of[ty_plan_stage_of_replica(plan, event->stage_replica)][event->instruction];
        double own_s = event->end_s - ty_partners_ready_s(p, timeline, event);
        if (samples_add(&all[row], own_s) != TY_OK) {
            status = ty_fail(error, TY_ENOMEM, "out of memory");
            goto done;
        }
    }
    for (uint32_t r = 0; r < row_count; r++)
        medians[r] = median(&all[r]);
done:
    for (uint32_t r = 0; r < row_count; r++)
        ty_free(all[r].values);
    ty_free(all);
    return status;
}

static ty_status fill_medians(const ty_plan *plan, const partners *p, uint32_t *const *row_of,
                              const ty_timeline *predicted, const ty_timeline *measured,
                              ty_comparison *c, ty_error *error)
{
    ty_status status = TY_OK;
    double *medians = ty_alloc(c->row_count, 2 * sizeof *medians); /* predicted, then measured */

    TY_TRY(ty_check_memory(medians != NULL, error));
    TY_CHECK(find_medians(plan, p, row_of, predicted, c->row_count, medians, error), status, done);
    TY_CHECK(find_medians(plan, p, row_of, measured, c->row_count, medians + c->row_count, error),
             status, done);
    for (uint32_t r = 0; r < c->row_count; r++) {
        ty_comparison_row *row = &c->rows[r];
        row->predicted_s = medians[r];
        row->measured_s = medians[c->row_count + r];
        if (row->measured_s > 0)
            row->error = row->predicted_s / row->measured_s - 1;
    }
done:
    ty_free(medians);
    return status;
}

static double share(const ty_comparison_row *row)
{
    return row->per_step * (row->measured_s > 0 ? row->measured_s : row->predicted_s);
}

static int by_stage_then_share(const void *left, const void *right)
{
    const ty_comparison_row *a = left, *b = right;

    if (a->stage != b->stage)
        return a->stage < b->stage ? -1 : 1;
    if (share(a) < share(b) || share(a) > share(b))
        return share(a) > share(b) ? -1 : 1;
    if (a->op != b->op)
        return a->op < b->op ? -1 : 1;
    if (a->bucket != b->bucket)
        return a->bucket < b->bucket ? -1 : 1;
    if (a->phase != b->phase)
        return a->phase < b->phase ? -1 : 1;
    return a->first_layer < b->first_layer ? -1 : a->first_layer > b->first_layer;
}

static void fill_memory(const ty_plan *plan, const ty_run *run, ty_comparison *c)
{
    for (uint32_t s = 0; plan->memory != NULL && s < plan->stage_count; s++)
        if (ty_memory_use_total(&plan->memory[s]) > c->predicted_peak_memory_bytes)
            c->predicted_peak_memory_bytes = ty_memory_use_total(&plan->memory[s]);
    for (uint32_t r = 0; r < run->stage_replica_count; r++)
        if (run->peak_memory_bytes[r] > c->measured_peak_memory_bytes)
            c->measured_peak_memory_bytes = run->peak_memory_bytes[r];
}

/* A comparison reports disturbed steps from this share on. */
#define BUSY_SHARE 0.05

bool ty_comparison_is_busy(const ty_comparison *comparison)
{
    return comparison->disturbed_share >= BUSY_SHARE || comparison->others_share >= TY_BUSY_SHARE;
}

/* A step lasts from the end of the previous step to its last event. */
static ty_status fill_quiet(const ty_run *run, ty_comparison *c, ty_error *error)
{
    const ty_disturbance *d = &run->disturbance;
    const ty_timeline *timeline = run->timeline;
    double *ends = ty_alloc(timeline->step_count, sizeof *ends), sum_s = 0;
    uint32_t next = 0;

    TY_TRY(ty_check_memory(ends != NULL, error));
    if (d->steps > 0)
        c->disturbed_share = (double)d->disturbed_steps / d->steps;
    c->others_share = d->others_share;
    c->load = d->load;
    for (uint64_t e = 0; e < timeline->event_count; e++) {
        const ty_event *event = &timeline->events[e];
        if (event->end_s > ends[event->step])
            ends[event->step] = event->end_s;
    }
    for (uint32_t s = 0; s < timeline->step_count && d->steps > 0; s++) {
        const bool is_disturbed = next < d->timeline_step_count && d->timeline_steps[next] == s;
        next += is_disturbed;
        if (s == 0 || is_disturbed)
            continue;
        sum_s += ends[s] - ends[s - 1];
        c->quiet_steps++;
    }
    if (c->quiet_steps > 0 && sum_s > 0) {
        c->quiet_step_time_s = sum_s / c->quiet_steps;
        c->quiet_error = c->predicted.step_time_s / c->quiet_step_time_s - 1;
    }
    ty_free(ends);
    return TY_OK;
}

/* At the end. */
static void fill_variant(const ty_run *run, ty_comparison *c)
{
    if (run->variant.bits == 0 || run->evaluation_count == 0)
        return;
    c->variant = run->variant;
    c->accuracy = run->evaluations[run->evaluation_count - 1].accuracy;
    c->variant_accuracy = run->evaluations[run->evaluation_count - 1].variant_accuracy;
}

static void fill_target(const ty_run *run, ty_comparison *c)
{
    const ty_evaluation *reached = ty_run_reached(run);

    c->target.until = run->until;
    c->target.is_reached = reached != NULL;
    if (reached != NULL) {
        c->target.measured_steps = reached->step;
        c->target.measured_s = reached->seconds;
    }
}

ty_status ty_compare(const ty_plan *plan, const ty_program *program, const ty_timeline *predicted,
                     const ty_run *run, ty_comparison **out, ty_error *error)
{
    ty_status status = TY_OK;
    partners *p = NULL;
    ty_comparison *c = NULL;
    uint32_t **row_of = NULL;

    if (run->timeline == NULL)
        return ty_fail(error, TY_EINVAL,
                       "the run has no timeline to compare with: it recorded none");
    c = ty_alloc(1, sizeof *c);
    row_of = ty_alloc(program->stage_count, sizeof *row_of);
    TY_CHECK(ty_check_memory(c != NULL && row_of != NULL, error), status, done);
    TY_CHECK(ty_partners_new(plan, program, &p, error), status, done);
    TY_CHECK(ty_timeline_summarize(plan, program, predicted, &c->predicted, error), status, done);
    TY_CHECK(ty_timeline_summarize(plan, program, run->timeline, &c->measured, error), status,
             done);
    c->step_time_error = c->predicted.step_time_s / c->measured.step_time_s - 1;
    TY_CHECK(make_rows(program, c, row_of, error), status, done);
    TY_CHECK(fill_medians(plan, p, row_of, predicted, run->timeline, c, error), status, done);
    qsort(c->rows, c->row_count, sizeof *c->rows, by_stage_then_share);
    TY_CHECK(fill_quiet(run, c, error), status, done);
    fill_memory(plan, run, c);
    fill_target(run, c);
    fill_variant(run, c);
    *out = c;
    c = NULL;

done:
    if (row_of != NULL)
        for (uint32_t s = 0; s < program->stage_count; s++)
            ty_free(row_of[s]);
    ty_free(row_of);
    ty_partners_free(p);
    ty_comparison_free(c);
    return status;
}

void ty_comparison_free(ty_comparison *comparison)
{
    if (comparison != NULL)
        ty_free(comparison->rows);
    ty_free(comparison);
}
