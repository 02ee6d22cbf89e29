/* Plan -> program: one stage at a time, in the order its schedule asks for. */
#include "lowering.h"

/* The input stream may be this many micro-batches ahead of the forwards: one batch is used while
   the next is assembled, so two buffers do. */
#define LOAD_AHEAD 2

#define LABEL_BYTES 4 /* class or token index, int32 */

static const ty_schedule_function schedules[TY_SCHEDULE_COUNT] = {
    [TY_GPIPE] = ty_schedule_gpipe,
    [TY_ONE_F_ONE_B] = ty_schedule_one_f_one_b,
};

static const ty_plan_stage *stage_of(const ty_lowering *l)
{
    return &l->plan->stages[l->stage];
}

static bool is_last_stage(const ty_lowering *l)
{
    return l->stage + 1 == l->plan->stage_count;
}

ty_instruction ty_lower_compute(ty_op op, uint32_t micro_batch, uint32_t first_layer,
                                uint32_t layer_count)
{
    ty_instruction instruction = ty_instruction_of(op);
    instruction.micro_batch = micro_batch;
    instruction.first_layer = first_layer;
    instruction.layer_count = layer_count;
    return instruction;
}

ty_status ty_lower_append(ty_lowering *l, const ty_instruction *instruction, const uint32_t *waits,
                          uint32_t wait_count, uint32_t *index)
{
    return ty_program_append(l->program, l->stage, instruction, waits, wait_count, index, l->error);
}

/* Bytes of one micro-batch across the cut before layer `layer`. */
static uint64_t cut_bytes(const ty_plan *plan, uint32_t layer)
{
    return ty_workload_cut_bytes(plan->workload, layer) * plan->micro_batch_size;
}

/* What crosses the cut between two neighbouring stages, either way: as large forward as backward.
 */
static ty_instruction transfer(const ty_lowering *l, ty_op op, uint32_t micro_batch,
                               ty_direction direction, uint32_t peer_stage)
{
    ty_instruction instruction = ty_instruction_of(op);
    instruction.micro_batch = micro_batch;
    instruction.peer_stage = peer_stage;
    instruction.direction = direction;
    instruction.bytes = peer_stage > l->stage ? l->output_bytes : l->input_bytes;
    return instruction;
}

/* The first stage reads whole samples; a last stage that is not the first reads labels only, which
   may be stored more tightly than they are used. */
static ty_status lower_load(ty_lowering *l, uint32_t micro_batch, uint32_t *index)
{
    const ty_workload *workload = l->plan->workload;
    ty_instruction load = ty_instruction_of(TY_OP_LOAD);
    uint64_t labels = workload->tokens_per_sample > 0 ? workload->tokens_per_sample : 1;
    uint64_t bytes = workload->sample_bytes;

    if (l->stage != 0 && !is_last_stage(l))
        return TY_OK;
    if (l->stage != 0 && labels * LABEL_BYTES < bytes)
        bytes = labels * LABEL_BYTES;
    load.micro_batch = micro_batch;
    load.bytes = bytes * l->plan->micro_batch_size;
    return ty_lower_append(l, &load,
                           micro_batch < LOAD_AHEAD ? NULL : &l->forwards[micro_batch - LOAD_AHEAD],
                           micro_batch < LOAD_AHEAD ? 0 : 1, index);
}

ty_status ty_lower_forward(ty_lowering *l, uint32_t micro_batch)
{
    const ty_plan_stage *stage = stage_of(l);
    uint32_t sources[2] = {TY_NO_INSTRUCTION, TY_NO_INSTRUCTION}; /* load, receive */
    ty_instruction instruction;
    ty_status status = TY_OK;

    TY_CHECK(lower_load(l, micro_batch, &sources[0]), status, done);
    if (l->stage > 0) {
        instruction = transfer(l, TY_OP_RECEIVE, micro_batch, TY_ACTIVATION, l->stage - 1);
        TY_CHECK(ty_lower_append(l, &instruction, NULL, 0, &sources[1]), status, done);
    }
    instruction =
        ty_lower_compute(TY_OP_FORWARD, micro_batch, stage->first_layer, stage->layer_count);
    TY_CHECK(ty_lower_append(l, &instruction, sources, 2, &l->forwards[micro_batch]), status, done);
    if (!is_last_stage(l)) {
        instruction = transfer(l, TY_OP_SEND, micro_batch, TY_ACTIVATION, l->stage + 1);
        TY_CHECK(ty_lower_append(l, &instruction, &l->forwards[micro_batch], 1, NULL), status,
                 done);
    }
done:
    return status;
}

ty_status ty_lower_send_gradient(ty_lowering *l, uint32_t micro_batch, uint32_t backward)
{
    ty_instruction send;
    if (l->stage == 0)
        return TY_OK;
    send = transfer(l, TY_OP_SEND, micro_batch, TY_GRADIENT, l->stage - 1);
    return ty_lower_append(l, &send, &backward, 1, NULL);
}

ty_status ty_lower_backward(ty_lowering *l, uint32_t micro_batch, bool is_last)
{
    const ty_plan_stage *stage = stage_of(l);
    uint32_t received = TY_NO_INSTRUCTION, backward;
    ty_instruction instruction;
    ty_status status = TY_OK;

    if (!is_last_stage(l)) {
        instruction = transfer(l, TY_OP_RECEIVE, micro_batch, TY_GRADIENT, l->stage + 1);
        TY_CHECK(ty_lower_append(l, &instruction, NULL, 0, &received), status, done);
    }
    if (stage->recompute == TY_RECOMPUTE_FULL) {
        /* Waits for nothing: it may run while the gradient is still on its way. */
        instruction =
            ty_lower_compute(TY_OP_RECOMPUTE, micro_batch, stage->first_layer, stage->layer_count);
        TY_CHECK(ty_lower_append(l, &instruction, NULL, 0, NULL), status, done);
    }
    if (is_last)
        return ty_lower_last_backward(l, micro_batch, received);
    instruction =
        ty_lower_compute(TY_OP_BACKWARD, micro_batch, stage->first_layer, stage->layer_count);
    TY_CHECK(ty_lower_append(l, &instruction, &received, 1, &backward), status, done);
    status = ty_lower_send_gradient(l, micro_batch, backward);
done:
    return status;
}

/* What lowering itself relies on; ty_plan_check says the rest, and costs a search too much. */
static ty_status check_plan(const ty_plan *plan, ty_error *error)
{
    if ((uint32_t)plan->schedule >= TY_SCHEDULE_COUNT)
        return ty_fail(error, TY_EINVAL, "plan:/schedule: found %d, expected gpipe or 1f1b",
                       (int)plan->schedule);
    if (plan->stage_count == 0)
        return ty_fail(error, TY_EINVAL, "plan:/stages: found none, expected at least one");
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        uint32_t replicas = plan->stages[s].replicas;
        if (replicas == 0 || plan->micro_batches == 0 || plan->micro_batches % replicas != 0)
            return ty_fail(error, TY_EINVAL,
                           "plan:/stages/%u/replicas: found %u, expected a divisor of the %u "
                           "micro-batches",
                           s, replicas, plan->micro_batches);
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
    }
    return TY_OK;
}

static ty_status lower_stage(ty_lowering *l)
{
    ty_status status = TY_OK;

    l->micro_batches = l->plan->micro_batches / stage_of(l)->replicas;
    l->input_bytes = cut_bytes(l->plan, stage_of(l)->first_layer);
    l->output_bytes = cut_bytes(l->plan, stage_of(l)->first_layer + stage_of(l)->layer_count);
    l->forwards = ty_alloc(l->micro_batches, sizeof *l->forwards);
    l->averaged = ty_alloc(l->plan->bucket_count, sizeof *l->averaged);
    if (l->forwards == NULL || l->averaged == NULL) {
        status = ty_fail(l->error, TY_ENOMEM, "out of memory");
        goto cleanup;
    }
    for (uint32_t b = 0; b < l->plan->bucket_count; b++)
        l->averaged[b] = TY_NO_INSTRUCTION;
    TY_CHECK(schedules[l->plan->schedule](l), status, cleanup);
    status = ty_lower_updates(l);

cleanup:
    ty_free(l->forwards);
    ty_free(l->averaged);
    return status;
}

ty_status ty_plan_lower(const ty_plan *plan, ty_program **out, ty_error *error)
{
    ty_lowering lowering = {.plan = plan, .error = error};
    ty_status status = TY_OK;

    TY_CHECK(check_plan(plan, error), status, cleanup);
    TY_CHECK(ty_program_new(plan, &lowering.program, error), status, cleanup);
    for (lowering.stage = 0; lowering.stage < plan->stage_count; lowering.stage++)
        TY_CHECK(lower_stage(&lowering), status, cleanup);
    *out = lowering.program;
    lowering.program = NULL;

cleanup:
    ty_program_free(lowering.program);
    return status;
}
