/* Plan -> program: one pipeline rank at a time, in the order of its schedule. */
#include "lowering.h"

#define ROW(schedule, function) [schedule] = function,
static ty_schedule_function *const schedules[TY_SCHEDULE_COUNT] = {TY_SCHEDULE_ORDERS(ROW)};
#undef ROW

/* Assumptions of lowering itself; ty_plan_check checks the rest, but is too slow for a search. */
static ty_status check_plan(const ty_plan *plan, ty_error *error)
{
    if ((uint32_t)plan->schedule >= TY_SCHEDULE_COUNT)
        return ty_fail(error, TY_EINVAL, "plan:/schedule: found %d, expected a schedule",
                       (int)plan->schedule);
    if (plan->stage_count == 0 || plan->stage_count % ty_plan_virtual_stages(plan) != 0)
        return ty_fail(error, TY_EINVAL,
                       "plan:/stages: found %u, expected a multiple of the virtual stages, %u",
                       plan->stage_count, ty_plan_virtual_stages(plan));
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        uint32_t replicas = plan->stages[s].replicas;
        if (replicas == 0 || plan->micro_batches == 0 || plan->micro_batches % replicas != 0)
            return ty_fail(error, TY_EINVAL,
                           "plan:/stages/%u/replicas: found %u, expected a divisor of the %u "
                           "micro-batches",
                           s, replicas, plan->micro_batches);
        if (replicas != plan->stages[s % ty_plan_pipeline_size(plan)].replicas)
            return ty_fail(error, TY_EINVAL,
                           "plan:/stages/%u/replicas: found %u, expected those of the stage it "
                           "shares its devices with",
                           s, replicas);
    }
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        bool is_tied = bucket->tied_stage != TY_NO_STAGE;
        if (bucket->stage >= plan->stage_count ||
            (is_tied && bucket->tied_stage >= plan->stage_count))
            return ty_fail(error, TY_EINVAL, "plan:/buckets/%u/%s: found %u, expected less than %u",
                           b, bucket->stage >= plan->stage_count ? "stage" : "tied_stage",
                           bucket->stage >= plan->stage_count ? bucket->stage : bucket->tied_stage,
                           plan->stage_count);
        if (plan->exchange_order != NULL && plan->exchange_order[b] >= plan->bucket_count)
            return ty_fail(error, TY_EINVAL,
                           "plan:/exchange_order/%u: found %u, expected one of the %u buckets", b,
                           plan->exchange_order[b], plan->bucket_count);
    }
    if (plan->exchange_order != NULL && ty_plan_refusal(TY_AXIS_PRIORITY, plan) != NULL)
        return ty_fail(error, TY_EINVAL, "plan:/exchange_order: found one, expected none: %s",
                       ty_plan_refusal(TY_AXIS_PRIORITY, plan));
    return TY_OK;
}

static ty_status lower_pipeline_rank(ty_lowering *l)
{
    const size_t virtual_stages = ty_plan_virtual_stages(l->plan), buckets = l->plan->bucket_count;
    ty_status status = TY_OK;

    l->micro_batches = l->plan->micro_batches / l->plan->stages[l->pipeline_rank].replicas;
    if (ty_plan_is_of_actors(l->plan, l->pipeline_rank))
        return l->are_passes_only ? TY_OK : ty_lower_actors(l);
    if (l->are_passes_only)
        return schedules[l->plan->schedule](l);
    l->forwards = ty_alloc(virtual_stages * l->micro_batches, sizeof *l->forwards);
    l->backwards = ty_alloc(virtual_stages, sizeof *l->backwards);
    l->averaged = ty_alloc(buckets, sizeof *l->averaged);
    l->gathers = ty_alloc(buckets, sizeof *l->gathers);
    TY_CHECK(ty_check_memory(l->forwards != NULL && l->backwards != NULL && l->averaged != NULL &&
                                 l->gathers != NULL,
                             l->error),
             status, cleanup);
    for (size_t k = 0; k < virtual_stages * l->micro_batches; k++)
        l->forwards[k] = TY_NO_INSTRUCTION;
    for (size_t b = 0; b < buckets; b++)
        l->averaged[b] = l->gathers[b] = TY_NO_INSTRUCTION;
    TY_CHECK(ty_lower_begin(l), status, cleanup);
    TY_CHECK(schedules[l->plan->schedule](l), status, cleanup);
    TY_CHECK(ty_lower_scores(l), status, cleanup);
    TY_CHECK(ty_lower_updates(l), status, cleanup);
    TY_CHECK(ty_lower_weights_out(l), status, cleanup);
    /* Stale gradients: passes and collectives run ahead of the updates, the last in the list. */
    ty_stage_program *list = &l->program->stages[l->pipeline_rank];
    for (uint32_t i = 0; i < list->instruction_count; i++)
        if (list->instructions[i].op != TY_OP_UPDATE)
            list->instructions[i].lead += l->plan->staleness;
    if (l->plan->exchange_order != NULL)
        status = ty_lower_by_priority(l);

cleanup:
    ty_free(l->forwards);
    ty_free(l->backwards);
    ty_free(l->averaged);
    ty_free(l->gathers);
    return status;
}

static ty_status find_segments(ty_lowering *l)
{
    const uint32_t layers = l->plan->workload->layer_count;
    uint32_t *starts = ty_alloc(layers, sizeof *starts);

    l->segments = ty_alloc(layers, sizeof *l->segments);
    if (starts == NULL || l->segments == NULL) {
        ty_free(starts);
        return ty_fail(l->error, TY_ENOMEM, "out of memory");
    }
    for (uint32_t s = 0; s < l->plan->stage_count; s++) {
        const ty_plan_stage *stage = &l->plan->stages[s];
        const uint32_t count = ty_plan_segments(l->plan, s, starts);
        uint32_t segment = 0;
        for (uint32_t i = stage->first_layer; i < stage->first_layer + stage->layer_count; i++) {
            segment += segment + 1 < count && starts[segment + 1] == i;
            l->segments[i] = count > 0 ? starts[segment] : stage->first_layer;
        }
    }
    ty_free(starts);
    return TY_OK;
}

static ty_status find_transfers(ty_lowering *l)
{
    TY_TRY(ty_check_memory(
        (l->transfer_bytes = ty_alloc(l->plan->stage_count, 2 * sizeof *l->transfer_bytes)) != NULL,
        l->error));
    for (uint32_t s = 0; s < l->plan->stage_count; s++) {
        l->transfer_bytes[2 * s] = ty_plan_transfer_bytes(l->plan, s, TY_ACTIVATION);
        l->transfer_bytes[2 * s + 1] = ty_plan_transfer_bytes(l->plan, s, TY_GRADIENT);
    }
    return TY_OK;
}

/* A program without the digest of its plan, for internal use. */
static ty_status unsigned_new(const ty_plan *plan, ty_program **out, ty_error *error)
{
    ty_program *program = ty_alloc(1, sizeof *program);

    TY_TRY(ty_check_memory(program != NULL, error));
    program->stage_count = ty_plan_pipeline_size(plan);
    if ((program->stages = ty_alloc(program->stage_count, sizeof *program->stages)) == NULL) {
        ty_free(program);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    *out = program;
    return TY_OK;
}

ty_status ty_lower_refuse(const ty_lowering *l)
{
    return ty_fail(
        l->error, TY_ELIMIT,
        "a step of %u micro-batches has more than %u instructions, the most of a program: "
        "expected a smaller global batch or larger micro-batches",
        l->plan->micro_batches, TY_MAX_INSTRUCTIONS);
}

/* Refuses at once what would be refused later: a forward comes with at least three others. */
static ty_status check_size(const ty_lowering *l)
{
    uint64_t passes = 0;

    for (uint32_t s = 0; s < l->plan->stage_count; s++)
        passes += l->plan->micro_batches / l->plan->stages[s].replicas;
    return passes > l->left / 4 ? ty_lower_refuse(l) : TY_OK;
}

/* The first `micro_batches` of a plan. @param most instructions */
static ty_status lower_plan(const ty_plan *plan, uint32_t micro_batches, uint64_t most,
                            bool are_passes_only, bool is_signed, ty_program **out, ty_error *error)
{
    const bool are_all_in_flight = ty_schedule_at(plan->schedule)->has_full_in_flight;
    ty_plan some = *plan;
    ty_lowering lowering = {.plan = &some,
                            .are_passes_only = are_passes_only,
                            .first_backward = ty_workload_first_backward(plan->workload),
                            .left = most,
                            .error = error};
    ty_status status = TY_OK;

    TY_CHECK(check_plan(plan, error), status, cleanup);
    some.micro_batches = micro_batches;
    TY_CHECK(check_size(&lowering), status, cleanup);
    TY_CHECK(is_signed ? ty_program_new(plan, &lowering.program, error)
                       : unsigned_new(plan, &lowering.program, error),
             status, cleanup);
    lowering.program->left_out = plan->micro_batches - micro_batches;
    if (!are_passes_only) {
        TY_CHECK(find_transfers(&lowering), status, cleanup);
        TY_CHECK(find_segments(&lowering), status, cleanup);
    }
    for (uint32_t s = 0; s < lowering.program->stage_count; s++) {
        lowering.pipeline_rank = s;
        TY_CHECK(lower_pipeline_rank(&lowering), status, cleanup);
        if (are_all_in_flight)
            lowering.program->stages[s].more_in_flight =
                lowering.program->left_out / plan->stages[s].replicas;
    }
    *out = lowering.program;
    lowering.program = NULL;

cleanup:
    ty_free(lowering.transfer_bytes);
    ty_free(lowering.segments);
    ty_program_free(lowering.program);
    return status;
}

ty_status ty_plan_lower(const ty_plan *plan, ty_program **out, ty_error *error)
{
    return lower_plan(plan, plan->micro_batches, TY_MAX_INSTRUCTIONS, false, true, out, error);
}

ty_status ty_plan_lower_passes(const ty_plan *plan, ty_program **out, ty_error *error)
{
    TY_TRY(check_plan(plan, error));
    return lower_plan(plan, ty_plan_memory_micro_batches(plan), UINT64_MAX, true, false, out,
                      error);
}

ty_status ty_plan_lower_unsigned(const ty_plan *plan, ty_program **out, ty_error *error)
{
    return lower_plan(plan, plan->micro_batches, TY_MAX_INSTRUCTIONS, false, false, out, error);
}

ty_status ty_plan_lower_short(const ty_plan *plan, uint32_t micro_batches, ty_program **out,
                              ty_error *error)
{
    return lower_plan(plan, micro_batches, UINT64_MAX, false, false, out, error);
}
