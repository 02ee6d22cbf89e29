/* A stage replica's memory over time: see ty_simulate.h. */
#include "ty_simulate.h"

#include "ty_base.h"

#include <math.h>
#include <stdlib.h>

typedef struct change {
    double time_s;
    double bytes;
} change;

static int compare_changes(const void *left, const void *right)
{
    const change *a = left, *b = right;
    if (a->time_s != b->time_s)
        return a->time_s < b->time_s ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes); /* frees come first */
}

/*
 * Bytes that an in-flight micro-batch adds per layer of its stage. The memory model has the peak
 * activations of all virtual stages of a pipeline rank; they are assumed to be even over its
 * layers.
 */
static ty_status stash_of_layer(const ty_plan *plan, const ty_program *program,
                                uint32_t pipeline_rank, double *out, ty_error *error)
{
    const uint32_t pipeline_size = ty_plan_pipeline_size(plan);
    double *layers = ty_alloc(ty_plan_virtual_stages(plan), sizeof *layers);
    double peak;

    TY_TRY(ty_check_memory(layers != NULL, error));
    for (uint32_t s = pipeline_rank; s < plan->stage_count; s += pipeline_size)
        layers[s / pipeline_size] = plan->stages[s].layer_count;
    peak = ty_program_peak_stash(program, pipeline_rank, layers);
    ty_free(layers);
    *out = peak > 0 ? (double)plan->memory[pipeline_rank].activation_bytes / peak : 0.0;
    return TY_OK;
}

/* Whether a backward of a stage frees its activations; if not, its forward does. */
static bool has_backward(const ty_stage_program *code, uint32_t stage)
{
    for (uint32_t i = 0; i < code->instruction_count; i++)
        if (code->instructions[i].stage == stage && ty_program_stash_change(code, i) < 0)
            return true;
    return false;
}

static uint32_t list_changes(const ty_plan *plan, const ty_program *program,
                             const ty_timeline *timeline, uint32_t stage_replica,
                             double stash_bytes, change *changes)
{
    const uint32_t pipeline_rank = ty_plan_stage_of_replica(plan, stage_replica);
    const ty_stage_program *code = &program->stages[pipeline_rank];
    uint32_t count = 0;

    for (uint32_t i = 0; i < code->instruction_count; i++) {
        const uint32_t stage = code->instructions[i].stage;
        const int way = ty_program_stash_change(code, i);
        if (way == 0)
            continue;
        const double bytes = stash_bytes * plan->stages[stage].layer_count;
        const bool is_over = way > 0 && !has_backward(code, stage);
        for (uint32_t step = 0; step < timeline->step_count; step++) {
            const ty_event *event =
                ty_timeline_find(timeline, program, plan, step, stage_replica, i);
            changes[count++] = (change){way > 0 ? event->start_s : event->end_s, way * bytes};
            if (is_over)
                changes[count++] = (change){event->end_s, -bytes};
        }
    }
    qsort(changes, count, sizeof *changes, compare_changes);
    return count;
}

ty_status ty_memory_curve(const ty_plan *plan, const ty_program *program,
                          const ty_timeline *timeline, uint32_t stage_replica,
                          ty_memory_point **out, uint32_t *count, ty_error *error)
{
    if (plan->memory == NULL)
        return ty_fail(error, TY_EINVAL, "memory over time: the plan says nothing of memory");
    if (stage_replica >= ty_plan_stage_replica_count(plan))
        return ty_fail(error, TY_EINVAL,
                       "memory over time: found stage replica %u, expected one below %u",
                       stage_replica, ty_plan_stage_replica_count(plan));
    const uint32_t pipeline_rank = ty_plan_stage_of_replica(plan, stage_replica);
    const ty_memory_use *use = &plan->memory[pipeline_rank];
    const size_t most =
        (size_t)timeline->step_count * program->stages[pipeline_rank].instruction_count * 2;
    double stash_bytes;
    const ty_status status = stash_of_layer(plan, program, pipeline_rank, &stash_bytes, error);
    if (status != TY_OK)
        return status;
    change *changes = ty_alloc(most, sizeof *changes);
    ty_memory_point *points = ty_alloc(most + 1, sizeof *points);
    if (changes == NULL || points == NULL) {
        ty_free(changes);
        ty_free(points);
        return ty_fail(error, TY_ENOMEM, "memory over time: memory ran out");
    }
    const uint32_t changed =
        list_changes(plan, program, timeline, stage_replica, stash_bytes, changes);
    double bytes = (double)(ty_memory_use_total(use) - use->activation_bytes);
    uint32_t kept = 1;
    points[0] = (ty_memory_point){0.0, (uint64_t)bytes};
    for (uint32_t i = 0; i < changed; i++) {
        bytes += changes[i].bytes;
        if (changes[i].time_s > points[kept - 1].time_s)
            kept++;
        points[kept - 1] = (ty_memory_point){changes[i].time_s, (uint64_t)fmax(0.0, round(bytes))};
    }
    ty_free(changes);
    *out = points;
    *count = kept;
    return TY_OK;
}
