/* Plan -> program: one position at a time, in the order its schedule asks for. */
#include "lowering.h"

/* The input stream may be this many micro-batches ahead of the forwards: one batch is used while
   the next is assembled, so two buffers do. */
#define LOAD_AHEAD 2

#define LABEL_BYTES 4 /* class or token index, int32 */

#define ROW(schedule, function) [schedule] = function,
static ty_schedule_function *const schedules[TY_SCHEDULE_COUNT] = {TY_SCHEDULE_ORDERS(ROW)};
#undef ROW

static const ty_plan_stage *stage_of(const ty_lowering *l, ty_lower_pass pass)
{
    return &l->plan->stages[pass.stage];
}

static bool is_last_stage(const ty_lowering *l, ty_lower_pass pass)
{
    return pass.stage + 1 == l->plan->stage_count;
}

/* Where a stage's forwards are noted. */
static uint32_t *forwards_of(const ty_lowering *l, uint32_t stage)
{
    return &l->forwards[(size_t)(stage / l->program->stage_count) * l->micro_batches];
}

ty_instruction ty_lower_compute(ty_op op, ty_lower_pass pass, uint32_t first_layer,
                                uint32_t layer_count)
{
    ty_instruction instruction = ty_instruction_of(op);
    instruction.stage = pass.stage;
    instruction.lead = pass.lead;
    instruction.micro_batch = pass.micro_batch;
    instruction.first_layer = first_layer;
    instruction.layer_count = layer_count;
    return instruction;
}

ty_status ty_lower_append(ty_lowering *l, const ty_instruction *instruction, const uint32_t *waits,
                          uint32_t wait_count, uint32_t *index)
{
    return ty_program_append(l->program, l->position, instruction, waits, wait_count, index,
                             l->error);
}

/* What crosses the cut between two neighbouring stages, either way. */
static ty_instruction transfer(const ty_lowering *l, ty_op op, ty_lower_pass pass,
                               ty_direction direction, uint32_t peer_stage)
{
    ty_instruction instruction = ty_lower_compute(op, pass, 0, 0);
    instruction.peer_stage = peer_stage;
    instruction.direction = direction;
    instruction.bytes = l->transfer_bytes[2 * (peer_stage > pass.stage ? peer_stage : pass.stage) +
                                          ty_direction_way(direction)];
    return instruction;
}

/* Where episodes are learnt from, they are played in place. The first stage reads whole samples; a
   last stage that is not the first reads labels only, which may be stored more tightly than they
   are used. */
static ty_status lower_load(ty_lowering *l, ty_lower_pass pass, uint32_t *index)
{
    const ty_workload *workload = l->plan->workload;
    const uint32_t m = pass.micro_batch;
    ty_instruction load = ty_lower_compute(TY_OP_LOAD, pass, 0, 0);
    uint64_t labels = workload->tokens_per_sample > 0 ? workload->tokens_per_sample : 1;
    uint64_t bytes = workload->sample_bytes;

    if (workload->learning == TY_LEARNING_REINFORCEMENT)
        return pass.stage == 0 ? ty_lower_act(l, pass, index) : TY_OK;
    if (pass.stage != 0 && !is_last_stage(l, pass))
        return TY_OK;
    if (pass.stage != 0 && labels * LABEL_BYTES < bytes)
        bytes = labels * LABEL_BYTES;
    load.bytes = ty_lane_bytes(l->plan, bytes);
    return ty_lower_append(l, &load,
                           m < LOAD_AHEAD ? NULL : &forwards_of(l, pass.stage)[m - LOAD_AHEAD],
                           m < LOAD_AHEAD ? 0 : 1, index);
}

uint32_t ty_lower_first_backward(const ty_lowering *l, uint32_t stage)
{
    const ty_plan_stage *s = &l->plan->stages[stage];
    const uint32_t end = s->first_layer + s->layer_count;

    if (l->first_backward <= s->first_layer)
        return s->first_layer;
    return l->first_backward < end ? l->first_backward : end;
}

static bool has_backward(const ty_lowering *l, uint32_t stage)
{
    const ty_plan_stage *s = &l->plan->stages[stage];
    return ty_lower_first_backward(l, stage) < s->first_layer + s->layer_count;
}

/* The layers of a stage that a pass of an operation has. */
static void range_of(const ty_lowering *l, ty_op op, uint32_t stage, uint32_t *first, uint32_t *end)
{
    const ty_plan_stage *s = &l->plan->stages[stage];

    *first = op == TY_OP_FORWARD ? s->first_layer : ty_lower_first_backward(l, stage);
    *end = s->first_layer + s->layer_count;
}

/* Layers [first, end) in one instruction, or in pieces behind their gathers. */
static ty_status lower_range(ty_lowering *l, ty_op op, ty_lower_pass pass, uint32_t first,
                             uint32_t end, const uint32_t waits[2], uint32_t *index)
{
    const ty_instruction whole = ty_lower_compute(op, pass, first, end - first);

    if (ty_lower_is_gathered(l, pass) && (op == TY_OP_FORWARD || l->plan->zero == 3))
        return ty_lower_gathered_range(l, op, pass, first, end, waits, index);
    return ty_lower_append(l, &whole, waits, 2, index);
}

/* All of a stage. */
static ty_status lower_pass(ty_lowering *l, ty_op op, ty_lower_pass pass, const uint32_t waits[2],
                            uint32_t *index)
{
    uint32_t first, end;

    range_of(l, op, pass.stage, &first, &end);
    if (op == TY_OP_FORWARD)
        return lower_range(l, op, pass, first, end, waits, index);
    return ty_lower_backward_range(l, op, pass, first, end, waits, index);
}

static ty_status bare_pass(ty_lowering *l, ty_op op, ty_lower_pass pass)
{
    ty_instruction whole;
    uint32_t first, end;

    range_of(l, op, pass.stage, &first, &end);
    whole = ty_lower_compute(op, pass, first, end - first);
    return ty_lower_append(l, &whole, NULL, 0, NULL);
}

/* ---- Segments ------------------------------------------------------------------------------ */

/* Whether the stage's last pass so far was the forward of this very micro-batch, and left what its
 * backward needs of the last segment. */
static bool is_served_by_forward(const ty_lowering *l, ty_lower_pass pass)
{
    const ty_stage_program *list = &l->program->stages[l->position];
    uint32_t i = list->instruction_count;

    if (!ty_plan_forward_serves_backward(l->plan, pass.stage))
        return false;
    while (i-- > 0) {
        const ty_instruction *in = &list->instructions[i];
        if (in->stage == pass.stage && in->stream == TY_STREAM_COMPUTE && in->op != TY_OP_BEGIN)
            return in->op == TY_OP_FORWARD && in->micro_batch == pass.micro_batch &&
                   in->lead == pass.lead;
    }
    return false;
}

/* Of the segment that ends before layer `end`, if one does. Waits for nothing: it may run while the
 * gradient is still on its way. */
static ty_status lower_recompute(ty_lowering *l, ty_lower_pass pass, uint32_t end)
{
    const ty_plan_stage *stage = stage_of(l, pass);
    const bool is_last = end == stage->first_layer + stage->layer_count;
    const uint32_t nothing[2] = {TY_NO_INSTRUCTION, TY_NO_INSTRUCTION};
    uint32_t ignored;

    if (!is_last && l->segments[end] != end)
        return TY_OK;
    if (is_last && is_served_by_forward(l, pass))
        return TY_OK;
    return lower_range(l, TY_OP_RECOMPUTE, pass, l->segments[end - 1], end, nothing, &ignored);
}

ty_status ty_lower_backward_range(ty_lowering *l, ty_op op, ty_lower_pass pass, uint32_t first,
                                  uint32_t end, const uint32_t waits[2], uint32_t *index)
{
    const bool is_recomputed = ty_recompute_has_segments(stage_of(l, pass)->recompute);
    const uint32_t nothing[2] = {TY_NO_INSTRUCTION, TY_NO_INSTRUCTION};
    ty_status status = TY_OK;

    while (end > first) {
        const uint32_t segment = l->segments[end - 1];
        const uint32_t start = is_recomputed && segment > first ? segment : first;
        if (is_recomputed)
            TY_CHECK(lower_recompute(l, pass, end), status, done);
        TY_CHECK(lower_range(l, op, pass, start, end, waits, index), status, done);
        waits = nothing;
        end = start;
    }
done:
    return status;
}

ty_status ty_lower_forward(ty_lowering *l, ty_lower_pass pass)
{
    uint32_t *forward;
    uint32_t sources[2] = {TY_NO_INSTRUCTION, TY_NO_INSTRUCTION}; /* load, receive */
    ty_instruction instruction;
    ty_status status = TY_OK;

    if (l->are_passes_only)
        return bare_pass(l, TY_OP_FORWARD, pass);
    forward = &forwards_of(l, pass.stage)[pass.micro_batch];
    TY_CHECK(lower_load(l, pass, &sources[0]), status, done);
    if (pass.stage > 0) {
        instruction = transfer(l, TY_OP_RECEIVE, pass, TY_ACTIVATION, pass.stage - 1);
        TY_CHECK(ty_lower_append(l, &instruction, NULL, 0, &sources[1]), status, done);
    }
    ty_lower_forget_gathered(l);
    TY_CHECK(lower_pass(l, TY_OP_FORWARD, pass, sources, forward), status, done);
    if (!is_last_stage(l, pass)) {
        instruction = transfer(l, TY_OP_SEND, pass, TY_ACTIVATION, pass.stage + 1);
        TY_CHECK(ty_lower_append(l, &instruction, forward, 1, NULL), status, done);
    }
done:
    return status;
}

ty_status ty_lower_send_gradient(ty_lowering *l, ty_lower_pass pass, uint32_t backward)
{
    ty_instruction send;
    /* A gradient crosses the cut before a stage where something before it is trained. */
    if (pass.stage == 0 || l->first_backward >= l->plan->stages[pass.stage].first_layer)
        return TY_OK;
    send = transfer(l, TY_OP_SEND, pass, TY_GRADIENT, pass.stage - 1);
    return ty_lower_append(l, &send, &backward, 1, NULL);
}

/* The gradient that backward starts from. */
static ty_status lower_backward_inputs(ty_lowering *l, ty_lower_pass pass, uint32_t *received)
{
    ty_instruction instruction;

    ty_lower_forget_gathered(l);
    *received = TY_NO_INSTRUCTION;
    if (is_last_stage(l, pass))
        return TY_OK;
    instruction = transfer(l, TY_OP_RECEIVE, pass, TY_GRADIENT, pass.stage + 1);
    return ty_lower_append(l, &instruction, NULL, 0, received);
}

ty_status ty_lower_backward(ty_lowering *l, ty_lower_pass pass, bool is_last)
{
    uint32_t waits[2] = {TY_NO_INSTRUCTION, TY_NO_INSTRUCTION}, backward;
    ty_status status = TY_OK;

    if (!has_backward(l, pass.stage))
        return TY_OK;
    if (l->are_passes_only)
        return bare_pass(l, TY_OP_BACKWARD, pass);
    TY_CHECK(lower_backward_inputs(l, pass, &waits[0]), status, done);
    if (is_last)
        return ty_lower_last_backward(l, TY_OP_BACKWARD, pass, waits[0]);
    TY_CHECK(lower_pass(l, TY_OP_BACKWARD, pass, waits, &backward), status, done);
    status = ty_lower_send_gradient(l, pass, backward);
done:
    return status;
}

ty_status ty_lower_backward_input(ty_lowering *l, ty_lower_pass pass)
{
    uint32_t waits[2] = {TY_NO_INSTRUCTION, TY_NO_INSTRUCTION}, backward;
    ty_status status = TY_OK;

    if (!has_backward(l, pass.stage))
        return TY_OK;
    if (l->are_passes_only)
        return bare_pass(l, TY_OP_BACKWARD_INPUT, pass);
    TY_CHECK(lower_backward_inputs(l, pass, &waits[0]), status, done);
    TY_CHECK(lower_pass(l, TY_OP_BACKWARD_INPUT, pass, waits, &backward), status, done);
    status = ty_lower_send_gradient(l, pass, backward);
done:
    return status;
}

ty_status ty_lower_backward_weight(ty_lowering *l, ty_lower_pass pass, bool is_last)
{
    const uint32_t nothing[2] = {TY_NO_INSTRUCTION, TY_NO_INSTRUCTION};
    uint32_t ignored;

    if (!has_backward(l, pass.stage))
        return TY_OK;
    if (l->are_passes_only)
        return bare_pass(l, TY_OP_BACKWARD_WEIGHT, pass);
    if (is_last)
        return ty_lower_last_backward(l, TY_OP_BACKWARD_WEIGHT, pass, TY_NO_INSTRUCTION);
    return lower_pass(l, TY_OP_BACKWARD_WEIGHT, pass, nothing, &ignored);
}

uint32_t ty_lower_warmup(const ty_lowering *l)
{
    uint32_t later = 0;

    for (uint32_t s = l->position; s < l->program->stage_count; s++)
        later += l->plan->stages[s].replicas;
    return (later - 1) / l->plan->stages[l->position].replicas;
}

/* What lowering itself relies on; ty_plan_check says the rest, and costs a search too much. */
static ty_status check_plan(const ty_plan *plan, ty_error *error)
{
    if ((uint32_t)plan->schedule >= TY_SCHEDULE_COUNT)
        return ty_fail(error, TY_EINVAL, "plan:/schedule: found %d, expected a schedule",
                       (int)plan->schedule);
    if (plan->stage_count == 0 || plan->stage_count % ty_plan_interleave(plan) != 0)
        return ty_fail(error, TY_EINVAL,
                       "plan:/stages: found %u, expected a multiple of interleave, %u",
                       plan->stage_count, ty_plan_interleave(plan));
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        uint32_t replicas = plan->stages[s].replicas;
        if (replicas == 0 || plan->micro_batches == 0 || plan->micro_batches % replicas != 0)
            return ty_fail(error, TY_EINVAL,
                           "plan:/stages/%u/replicas: found %u, expected a divisor of the %u "
                           "micro-batches",
                           s, replicas, plan->micro_batches);
        if (replicas != plan->stages[s % ty_plan_position_count(plan)].replicas)
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
    if (plan->exchange_order != NULL && ty_plan_priority_refusal(plan) != NULL)
        return ty_fail(error, TY_EINVAL, "plan:/exchange_order: found one, expected none: %s",
                       ty_plan_priority_refusal(plan));
    return TY_OK;
}

static ty_status lower_position(ty_lowering *l)
{
    const size_t held = ty_plan_interleave(l->plan), buckets = l->plan->bucket_count;
    ty_status status = TY_OK;

    l->micro_batches = l->plan->micro_batches / l->plan->stages[l->position].replicas;
    if (ty_plan_is_of_actors(l->plan, l->position))
        return l->are_passes_only ? TY_OK : ty_lower_actors(l);
    if (l->are_passes_only)
        return schedules[l->plan->schedule](l);
    l->forwards = ty_alloc(held * l->micro_batches, sizeof *l->forwards);
    l->backwards = ty_alloc(held, sizeof *l->backwards);
    l->averaged = ty_alloc(buckets, sizeof *l->averaged);
    l->gathers = ty_alloc(buckets, sizeof *l->gathers);
    if (l->forwards == NULL || l->backwards == NULL || l->averaged == NULL || l->gathers == NULL) {
        status = ty_fail(l->error, TY_ENOMEM, "out of memory");
        goto cleanup;
    }
    for (size_t k = 0; k < held * l->micro_batches; k++)
        l->forwards[k] = TY_NO_INSTRUCTION;
    for (size_t b = 0; b < buckets; b++)
        l->averaged[b] = l->gathers[b] = TY_NO_INSTRUCTION;
    TY_CHECK(ty_lower_begin(l), status, cleanup);
    TY_CHECK(schedules[l->plan->schedule](l), status, cleanup);
    TY_CHECK(ty_lower_scores(l), status, cleanup);
    TY_CHECK(ty_lower_updates(l), status, cleanup);
    TY_CHECK(ty_lower_policy(l), status, cleanup);
    /* Late gradients: passes and exchanges run ahead of the updates, the last in the list. */
    ty_stage_program *list = &l->program->stages[l->position];
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
    if ((l->transfer_bytes = ty_alloc(l->plan->stage_count, 2 * sizeof *l->transfer_bytes)) == NULL)
        return ty_fail(l->error, TY_ENOMEM, "out of memory");
    for (uint32_t s = 0; s < l->plan->stage_count; s++) {
        l->transfer_bytes[2 * s] = ty_plan_transfer_bytes(l->plan, s, TY_ACTIVATION);
        l->transfer_bytes[2 * s + 1] = ty_plan_transfer_bytes(l->plan, s, TY_GRADIENT);
    }
    return TY_OK;
}

/* A program without the digest of its plan: nobody else sees it. */
static ty_status unsigned_new(const ty_plan *plan, ty_program **out, ty_error *error)
{
    ty_program *program = ty_alloc(1, sizeof *program);

    if (program == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    program->stage_count = ty_plan_position_count(plan);
    if ((program->stages = ty_alloc(program->stage_count, sizeof *program->stages)) == NULL) {
        ty_free(program);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    *out = program;
    return TY_OK;
}

static ty_status lower_plan(const ty_plan *plan, bool are_passes_only, bool is_signed,
                            ty_program **out, ty_error *error)
{
    ty_lowering lowering = {.plan = plan,
                            .are_passes_only = are_passes_only,
                            .first_backward = ty_workload_first_backward(plan->workload),
                            .error = error};
    ty_status status = TY_OK;

    TY_CHECK(check_plan(plan, error), status, cleanup);
    TY_CHECK(is_signed ? ty_program_new(plan, &lowering.program, error)
                       : unsigned_new(plan, &lowering.program, error),
             status, cleanup);
    if (!are_passes_only) {
        TY_CHECK(find_transfers(&lowering), status, cleanup);
        TY_CHECK(find_segments(&lowering), status, cleanup);
    }
    for (lowering.position = 0; lowering.position < lowering.program->stage_count;
         lowering.position++)
        TY_CHECK(lower_position(&lowering), status, cleanup);
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
    return lower_plan(plan, false, true, out, error);
}

ty_status ty_plan_lower_passes(const ty_plan *plan, ty_program **out, ty_error *error)
{
    return lower_plan(plan, true, false, out, error);
}

ty_status ty_plan_lower_unsigned(const ty_plan *plan, ty_program **out, ty_error *error)
{
    return lower_plan(plan, false, false, out, error);
}
