/* The passes of a micro-batch: load or receive, layers, send. The last backward is split at bucket
 * boundaries, so that each bucket is reduced as soon as it is complete. */
#include "lowering.h"

/* The input stream may be this many micro-batches ahead of the forwards: one batch is used while
 * the next is assembled, so two buffers are enough. */
#define LOAD_AHEAD 2

#define LABEL_BYTES 4 /* class or token index, int32 */

static const ty_plan_stage *stage_of(const ty_lowering *l, ty_lower_pass pass)
{
    return &l->plan->stages[pass.stage];
}

static bool is_last_stage(const ty_lowering *l, ty_lower_pass pass)
{
    return pass.stage + 1 == l->plan->stage_count;
}

/* The stored indices of a stage's forwards. */
static uint32_t *forwards_of(const ty_lowering *l, uint32_t stage)
{
    return &l->forwards[(size_t)(stage / l->program->stage_count) * l->micro_batches];
}

/* The send across the cut between two neighboring stages, either way. */
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

/* The first stage reads samples and labels, or generates them. A last stage that is not the first
 * reads only labels, which may be stored in fewer bytes than they are used. */
static ty_status lower_load(ty_lowering *l, ty_lower_pass pass, uint32_t *index)
{
    const ty_workload *workload = l->plan->workload;
    const uint32_t m = pass.micro_batch;
    ty_instruction load = ty_lower_compute(TY_OP_LOAD, pass, 0, 0);
    uint64_t labels = workload->tokens_per_sample > 0 ? workload->tokens_per_sample : 1;
    uint64_t bytes = workload->sample_bytes;

    load.stream = ty_plan_load_stream(l->plan);
    if (load.stream == TY_STREAM_COMPUTE)
        return pass.stage == 0 ? ty_lower_append(l, &load, NULL, 0, index) : TY_OK;
    if (pass.stage != 0 && !is_last_stage(l, pass))
        return TY_OK;
    if (pass.stage != 0 && labels * LABEL_BYTES < bytes)
        bytes = labels * LABEL_BYTES;
    load.bytes = ty_rank_bytes(l->plan, bytes);
    return ty_lower_append(l, &load,
                           m < LOAD_AHEAD ? NULL : &forwards_of(l, pass.stage)[m - LOAD_AHEAD],
                           m < LOAD_AHEAD ? 0 : 1, index);
}

/* The first layer of a stage with a backward pass; the layer after the stage if it has none. */
static uint32_t first_backward(const ty_lowering *l, uint32_t stage)
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
    return first_backward(l, stage) < s->first_layer + s->layer_count;
}

/* The layers of a stage that an operation's pass covers. */
static void range_of(const ty_lowering *l, ty_op op, uint32_t stage, uint32_t *first, uint32_t *end)
{
    const ty_plan_stage *s = &l->plan->stages[stage];

    *first = op == TY_OP_FORWARD ? s->first_layer : first_backward(l, stage);
    *end = s->first_layer + s->layer_count;
}

/* Layers [first, end) in one instruction, or in parts after their all-gathers. */
static ty_status lower_range(ty_lowering *l, ty_op op, ty_lower_pass pass, uint32_t first,
                             uint32_t end, const uint32_t waits[2], uint32_t *index)
{
    const ty_instruction whole = ty_lower_compute(op, pass, first, end - first);

    if (ty_lower_is_gathered(l, pass) && (op == TY_OP_FORWARD || l->plan->zero == 3))
        return ty_lower_gathered_range(l, op, pass, first, end, waits, index);
    return ty_lower_append(l, &whole, waits, 2, index);
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

/* Whether the stage's last pass so far was the forward of the same micro-batch, so that the
 * activations of the last segment still exist. */
static bool is_served_by_forward(const ty_lowering *l, ty_lower_pass pass)
{
    const ty_stage_program *list = &l->program->stages[l->pipeline_rank];
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

/* Recomputes the segment that ends before layer `end`, if any. It has no waits: it may run while
 * the gradient is still in transit. */
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

static ty_status backward_range(ty_lowering *l, ty_op op, ty_lower_pass pass, uint32_t first,
                                uint32_t end, const uint32_t waits[2], uint32_t *index)
{
    const bool is_recomputed = ty_recompute_has_segments(stage_of(l, pass)->recompute);
    const uint32_t nothing[2] = {TY_NO_INSTRUCTION, TY_NO_INSTRUCTION};

    while (end > first) {
        const uint32_t segment = l->segments[end - 1];
        const uint32_t start = is_recomputed && segment > first ? segment : first;
        if (is_recomputed)
            TY_TRY(lower_recompute(l, pass, end));
        TY_TRY(lower_range(l, op, pass, start, end, waits, index));
        waits = nothing;
        end = start;
    }
    return TY_OK;
}

/* Recomputes all of a stage. */
static ty_status lower_pass(ty_lowering *l, ty_op op, ty_lower_pass pass, const uint32_t waits[2],
                            uint32_t *index)
{
    uint32_t first, end;

    range_of(l, op, pass.stage, &first, &end);
    if (op == TY_OP_FORWARD)
        return lower_range(l, op, pass, first, end, waits, index);
    return backward_range(l, op, pass, first, end, waits, index);
}

ty_status ty_lower_forward(ty_lowering *l, ty_lower_pass pass)
{
    uint32_t *forward;
    uint32_t sources[2] = {TY_NO_INSTRUCTION, TY_NO_INSTRUCTION}; /* load, receive */
    ty_instruction instruction;

    if (l->are_passes_only)
        return bare_pass(l, TY_OP_FORWARD, pass);
    forward = &forwards_of(l, pass.stage)[pass.micro_batch];
    TY_TRY(lower_load(l, pass, &sources[0]));
    if (pass.stage > 0) {
        instruction = transfer(l, TY_OP_RECEIVE, pass, TY_ACTIVATION, pass.stage - 1);
        TY_TRY(ty_lower_append(l, &instruction, NULL, 0, &sources[1]));
    }
    ty_lower_forget_gathered(l);
    TY_TRY(lower_pass(l, TY_OP_FORWARD, pass, sources, forward));
    if (!is_last_stage(l, pass)) {
        instruction = transfer(l, TY_OP_SEND, pass, TY_ACTIVATION, pass.stage + 1);
        TY_TRY(ty_lower_append(l, &instruction, forward, 1, NULL));
    }
    return TY_OK;
}

static ty_status send_gradient(ty_lowering *l, ty_lower_pass pass, uint32_t backward)
{
    ty_instruction send;
    /* A gradient crosses the cut before a stage if a layer before it is trained. */
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

/* ---- The last backward -------------------------------------------------------------------- */

/* First layer of the part that ends before `end`: the start of its bucket. For the last part, the
 * end of backward: it includes the layers before the first bucket, which have no gradients. */
static ty_status piece_start(const ty_lowering *l, uint32_t own, uint32_t bucket, bool is_final,
                             uint32_t end, uint32_t *first)
{
    const uint32_t lowest = first_backward(l, own);

    if (!is_final && (l->plan->buckets[bucket].first_layer <= lowest ||
                      l->plan->buckets[bucket].first_layer >= end))
        return ty_fail(
            l->error, TY_EINVAL,
            "plan:/buckets/%u/first_layer: found %u, expected more than %u and less than "
            "%u: buckets go from the stage's last layer to its first",
            bucket, l->plan->buckets[bucket].first_layer, lowest, end);
    *first = is_final ? lowest : l->plan->buckets[bucket].first_layer;
    return TY_OK;
}

static ty_status last_backward(ty_lowering *l, ty_op op, ty_lower_pass pass, uint32_t received)
{
    const ty_plan_stage *stage = &l->plan->stages[pass.stage];
    const uint32_t none = l->plan->bucket_count;
    const bool is_overlapped = l->plan->workload->local_steps <= 1;
    uint32_t end = stage->first_layer + stage->layer_count;
    uint32_t bucket = is_overlapped ? ty_lower_next_piece(l, pass.stage, 0) : none, next, first = 0;
    uint32_t waits[2] = {received, TY_NO_INSTRUCTION}, backward = TY_NO_INSTRUCTION;

    do {
        next = bucket == none ? none : ty_lower_next_piece(l, pass.stage, bucket + 1);
        TY_TRY(piece_start(l, pass.stage, bucket, next == none, end, &first));
        TY_TRY(backward_range(l, op, pass, first, end, waits, &backward));
        if (next == none && op == TY_OP_BACKWARD)
            TY_TRY(send_gradient(l, pass, backward));
        if (bucket != none)
            TY_TRY(ty_lower_exchange_piece(l, bucket, backward));
        end = first;
        bucket = next;
    } while (bucket != none);
    l->backwards[pass.stage / l->program->stage_count] = backward;
    return is_overlapped ? TY_OK : ty_lower_exchange_own(l, pass.stage, backward);
}

/* ---- Backward ------------------------------------------------------------------------------ */

/* All gradients of a stage, or only those of activations. */
static ty_status backward(ty_lowering *l, ty_op op, ty_lower_pass pass, bool is_last)
{
    uint32_t waits[2] = {TY_NO_INSTRUCTION, TY_NO_INSTRUCTION}, last;

    if (!has_backward(l, pass.stage))
        return TY_OK;
    if (l->are_passes_only)
        return bare_pass(l, op, pass);
    TY_TRY(lower_backward_inputs(l, pass, &waits[0]));
    if (is_last)
        return last_backward(l, op, pass, waits[0]);
    TY_TRY(lower_pass(l, op, pass, waits, &last));
    return send_gradient(l, pass, last);
}

ty_status ty_lower_backward(ty_lowering *l, ty_lower_pass pass, bool is_last)
{
    return backward(l, TY_OP_BACKWARD, pass, is_last);
}

ty_status ty_lower_backward_input(ty_lowering *l, ty_lower_pass pass)
{
    return backward(l, TY_OP_BACKWARD_INPUT, pass, false);
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
        return last_backward(l, TY_OP_BACKWARD_WEIGHT, pass, TY_NO_INSTRUCTION);
    return lower_pass(l, TY_OP_BACKWARD_WEIGHT, pass, nothing, &ignored);
}

uint32_t ty_plan_warmup(const ty_plan *plan, uint32_t pipeline_rank)
{
    uint32_t later = 0;

    for (uint32_t s = pipeline_rank; s < ty_plan_pipeline_size(plan); s++)
        later += plan->stages[s].replicas;
    return (later - 1) / plan->stages[pipeline_rank].replicas;
}

uint32_t ty_lower_warmup(const ty_lowering *l)
{
    return ty_plan_warmup(l->plan, l->pipeline_rank);
}

/* ---- Actors ---------------------------------------------------------------------------------- */

/* Sends the weights of the ending step across the cut, in one message or in parts. */
static ty_status lower_weights(ty_lowering *l, ty_op op, const uint32_t *wait, uint32_t *indices)
{
    for (uint32_t m = 0; m < ty_plan_policy_messages(l->plan, l->pipeline_rank); m++) {
        const ty_lower_pass pass = {.stage = l->pipeline_rank, .micro_batch = m};
        const ty_instruction message = transfer(l, op, pass, TY_GRADIENT, 1 - l->pipeline_rank);
        const ty_status status = ty_lower_append(l, &message, wait, wait == NULL ? 0 : 1,
                                                 indices == NULL ? NULL : &indices[m]);
        if (status != TY_OK)
            return status;
    }
    return TY_OK;
}

/* In a round, actors receive the weights of step t, then generate samples of step t + 1 + lag with
 * them. */
ty_status ty_lower_actors(ty_lowering *l)
{
    const uint32_t messages = ty_plan_policy_messages(l->plan, l->pipeline_rank);
    ty_instruction begin = ty_instruction_of(TY_OP_BEGIN);
    uint32_t *received = ty_alloc(messages, sizeof *received);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(received != NULL, l->error));
    TY_CHECK(lower_weights(l, TY_OP_RECEIVE, NULL, received), status, cleanup);
    begin.bytes = messages * ty_plan_policy_bytes(l->plan);
    TY_CHECK(ty_lower_append(l, &begin, received, messages, NULL), status, cleanup);
    for (uint32_t m = 0; m < l->micro_batches; m++) {
        const ty_lower_pass pass = {l->pipeline_rank, m, l->plan->lag + 1};
        const ty_instruction send = transfer(l, TY_OP_SEND, pass, TY_ACTIVATION, 1);
        uint32_t load = 0;
        TY_CHECK(lower_load(l, pass, &load), status, cleanup);
        TY_CHECK(ty_lower_append(l, &send, &load, 1, NULL), status, cleanup);
    }
cleanup:
    ty_free(received);
    return status;
}

/* Learners', after their updates. */
ty_status ty_lower_weights_out(ty_lowering *l)
{
    const uint32_t updated = l->program->stages[l->pipeline_rank].instruction_count - 1;

    return lower_weights(l, TY_OP_SEND, &updated, NULL);
}
