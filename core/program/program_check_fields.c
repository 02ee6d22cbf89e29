/* Checks of each instruction by itself: its fields, and their values. */
#include "program_check.h"

#include <stdarg.h>
#include <stdio.h>

typedef program_checker checker;

const ty_op_use ty_op_uses[TY_OP_COUNT] = {
    [TY_OP_BACKWARD_INPUT] = {.is_pass = true}, [TY_OP_BACKWARD_WEIGHT] = {.is_pass = true},
    [TY_OP_GATHER] = {.is_bucket = true},       [TY_OP_FORWARD] = {.is_pass = true},
    [TY_OP_RECOMPUTE] = {.is_pass = true},      [TY_OP_BACKWARD] = {.is_pass = true},
    [TY_OP_SEND] = {.is_transfer = true},       [TY_OP_RECEIVE] = {.is_transfer = true},
    [TY_OP_ENCODE] = {.is_bucket = true},       [TY_OP_COLLECTIVE] = {.is_bucket = true},
    [TY_OP_DECODE] = {.is_bucket = true},       [TY_OP_UPDATE] = {.is_bucket = true},
};

/* ---- Messages ------------------------------------------------------------------------------ */

void ty_instruction_describe(const ty_instruction *instruction, char *text, size_t size)
{
    const char *op = ty_op_name(instruction->op);

    if ((unsigned)instruction->op >= TY_OP_COUNT)
        snprintf(text, size, "operation %d", (int)instruction->op);
    else if (ty_op_uses[instruction->op].is_bucket)
        snprintf(text, size, "%s of bucket %u", op, instruction->bucket);
    else if (ty_op_uses[instruction->op].is_transfer)
        snprintf(text, size, "%s of the %s of micro-batch %u %s stage %u", op,
                 ty_direction_name(instruction->direction), instruction->micro_batch,
                 instruction->op == TY_OP_SEND ? "to" : "from", instruction->peer_stage);
    else if (ty_op_uses[instruction->op].is_pass)
        snprintf(text, size, "%s of micro-batch %u through layers %u to %u", op,
                 instruction->micro_batch, instruction->first_layer,
                 instruction->first_layer + instruction->layer_count - 1);
    else if (instruction->op == TY_OP_BEGIN)
        snprintf(text, size, "%s", op);
    else
        snprintf(text, size, "%s of micro-batch %u", op, instruction->micro_batch);
}

ty_status ty_program_complain(const program_checker *c, uint32_t stage, uint32_t index,
                              const char *format, ...)
{
    char what[256], which[160];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    ty_instruction_describe(&c->program->stages[stage].instructions[index], which, sizeof which);
    return ty_fail(c->error, TY_EPARSE, "%s/stages/%u/instructions/%u: %s: %s", c->place, stage,
                   index, which, what);
}

ty_status ty_program_complain_missing(const program_checker *c, uint32_t stage, const char *format,
                                      ...)
{
    char what[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return ty_fail(c->error, TY_EPARSE, "%s/stages/%u/instructions: expected %s", c->place, stage,
                   what);
}

/* ---- The end of backward ------------------------------------------------------------------- */

uint32_t ty_program_lowest_backward(const program_checker *c, uint32_t stage)
{
    const ty_plan_stage *own = &c->plan->stages[stage];
    const uint32_t end = own->first_layer + own->layer_count;

    if (c->first_backward <= own->first_layer)
        return own->first_layer;
    return c->first_backward < end ? c->first_backward : end;
}

bool ty_program_has_backward(const program_checker *c, uint32_t stage)
{
    const ty_plan_stage *own = &c->plan->stages[stage];
    return ty_program_lowest_backward(c, stage) < own->first_layer + own->layer_count;
}

bool ty_program_has_gradient_before(const program_checker *c, uint32_t stage)
{
    return stage > 0 && c->plan->stages[stage].first_layer > c->first_backward;
}

/* ---- Fields of one instruction ------------------------------------------------------------- */

static ty_status check_transfer_fields(const program_checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = ty_program_instruction(c, at, index);
    const bool goes_up = (in->direction == TY_ACTIVATION) == (in->op == TY_OP_SEND);

    if (in->direction != TY_ACTIVATION && in->direction != TY_GRADIENT)
        return ty_program_complain(c, at, index,
                                   "expected direction \"activation\" or \"gradient\"");
    if (goes_up ? in->stage + 1 == c->plan->stage_count : in->stage == 0)
        return ty_program_complain(c, at, index, "there is no stage %s stage %u",
                                   goes_up ? "after" : "before", in->stage);
    if (in->peer_stage != (goes_up ? in->stage + 1 : in->stage - 1))
        return ty_program_complain(c, at, index, "expected stage %u",
                                   goes_up ? in->stage + 1 : in->stage - 1);
    if (in->direction == TY_GRADIENT && ty_plan_actors(c->plan) == 0 &&
        !ty_program_has_gradient_before(c, goes_up ? in->stage + 1 : in->stage))
        return ty_program_complain(c, at, index, "nothing before stage %u is trained",
                                   goes_up ? in->stage + 1 : in->stage);
    return TY_OK;
}

static ty_status check_layer_fields(const program_checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = ty_program_instruction(c, at, index);
    const ty_plan_stage *own;
    uint32_t first = 0, count = 0;

    if (ty_op_uses[in->op].is_pass) {
        own = &c->plan->stages[in->stage];
        if (in->layer_count == 0 || in->first_layer < own->first_layer ||
            in->first_layer - own->first_layer >= own->layer_count ||
            in->layer_count > own->first_layer + own->layer_count - in->first_layer)
            return ty_program_complain(c, at, index, "expected layers of the stage, %u to %u",
                                       own->first_layer, own->first_layer + own->layer_count - 1);
        return TY_OK;
    }
    if (ty_op_uses[in->op].is_bucket) {
        const ty_bucket *bucket = &c->plan->buckets[in->bucket];
        if (!ty_bucket_is_of_stage(bucket, in->stage))
            return ty_program_complain(c, at, index, "the bucket belongs to stage %u",
                                       bucket->stage);
        first = bucket->first_layer;
        count = bucket->layer_count;
    }
    if (in->first_layer != first || in->layer_count != count)
        return ty_program_complain(c, at, index, "found layers %u + %u, expected %u + %u",
                                   in->first_layer, in->layer_count, first, count);
    return TY_OK;
}

static uint64_t expected_bytes(const ty_plan *plan, uint32_t at, const ty_instruction *in)
{
    switch (in->op) {
    case TY_OP_SEND:
    case TY_OP_RECEIVE:
        return ty_plan_transfer_bytes(plan, in->peer_stage > in->stage ? in->peer_stage : in->stage,
                                      in->direction);
    case TY_OP_ENCODE:
    case TY_OP_DECODE:
        return plan->buckets[in->bucket].gradient_bytes;
    case TY_OP_COLLECTIVE:
        return ty_plan_exchange_bytes(plan, &plan->buckets[in->bucket], in->phase);
    case TY_OP_GATHER:
        return ty_bucket_gather_bytes(plan, &plan->buckets[in->bucket]);
    case TY_OP_LOAD:
        return ty_rank_bytes(plan, plan->workload->sample_bytes);
    case TY_OP_BEGIN:
        return ty_plan_is_of_actors(plan, at)
                   ? ty_plan_policy_messages(plan, at) * ty_plan_policy_bytes(plan)
                   : 0;
    case TY_OP_FORWARD:
    case TY_OP_RECOMPUTE:
    case TY_OP_BACKWARD:
    case TY_OP_BACKWARD_INPUT:
    case TY_OP_BACKWARD_WEIGHT:
    case TY_OP_UPDATE:
    case TY_OP_COUNT:
        break;
    }
    return 0;
}

static ty_status check_bytes(const program_checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = ty_program_instruction(c, at, index);
    const uint64_t expected = expected_bytes(c->plan, at, in);

    /* A stage that loads only samples or only labels reads a part of them. */
    if (in->op == TY_OP_LOAD ? in->bytes > expected : in->bytes != expected)
        return ty_program_complain(
            c, at, index, "found %llu bytes, expected %s%llu", (unsigned long long)in->bytes,
            in->op == TY_OP_LOAD ? "at most " : "", (unsigned long long)expected);
    return TY_OK;
}

/* The phase is one of the bucket's compression; only encodes and collectives have one. */
static ty_status check_phase(const program_checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = ty_program_instruction(c, at, index);
    const bool has_phase = in->op == TY_OP_ENCODE || in->op == TY_OP_COLLECTIVE;
    const uint32_t phases =
        has_phase ? ty_compression_phases(&c->plan->buckets[in->bucket].compression) : 1;

    if (in->phase >= phases)
        return ty_program_complain(c, at, index, "found phase %u, expected less than %u", in->phase,
                                   phases);
    return TY_OK;
}

/* Bucket and micro-batch: one of them, none for begin, and both for a gather of ZeRO 3. */
static ty_status check_subject(const program_checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = ty_program_instruction(c, at, index);
    const uint32_t micro_batches = c->stages[at].micro_batches;
    const bool is_gather_of_pass = in->op == TY_OP_GATHER && c->plan->zero == 3;

    if (ty_op_uses[in->op].is_bucket) {
        if (in->bucket >= c->plan->bucket_count)
            return ty_program_complain(c, at, index, "the plan has %u buckets",
                                       c->plan->bucket_count);
        if (!is_gather_of_pass && in->micro_batch != TY_NO_MICRO_BATCH)
            return ty_program_complain(c, at, index, "a bucket belongs to no micro-batch");
    } else if (in->bucket != TY_NO_BUCKET) {
        return ty_program_complain(c, at, index, "belongs to no bucket");
    }
    if ((is_gather_of_pass || (!ty_op_uses[in->op].is_bucket && in->op != TY_OP_BEGIN)) &&
        in->micro_batch >= micro_batches)
        return ty_program_complain(c, at, index, "a replica of the stage has %u micro-batches",
                                   micro_batches);
    if (in->op == TY_OP_BEGIN && in->micro_batch != TY_NO_MICRO_BATCH)
        return ty_program_complain(c, at, index, "belongs to no micro-batch");
    return TY_OK;
}

/* With `exchange_order` only the last backward and the instructions after it are of the current
 * step, all others of the next. */
static ty_status check_lead_of_order(const program_checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = ty_program_instruction(c, at, index);
    const uint32_t expected = !ty_op_uses[in->op].is_bucket;

    if (in->lead == expected || (in->op == TY_OP_BACKWARD && in->lead == 0))
        return TY_OK;
    return ty_program_complain(c, at, index,
                               "is %u steps ahead, expected %u with an order of all-reduces",
                               in->lead, expected);
}

/* Without a flush, any lead of the schedule within limits. Otherwise only gradients are stale, all
 * by the plan's staleness, and actors are ahead by its lag + 1. */
static ty_status check_lead(const program_checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = ty_program_instruction(c, at, index);
    const bool is_ahead = ty_plan_is_of_actors(c->plan, at) &&
                          (in->op == TY_OP_LOAD || in->direction == TY_ACTIVATION);
    const uint32_t expected = is_ahead                 ? c->plan->lag + 1
                              : in->op == TY_OP_UPDATE ? 0
                                                       : c->plan->staleness;

    if (c->plan->exchange_order != NULL)
        return check_lead_of_order(c, at, index);

    if (!ty_schedule_at(c->plan->schedule)->is_asynchronous && in->lead != expected)
        return ty_program_complain(
            c, at, index, "is %u steps ahead, expected %u in schedule \"%s\"%s", in->lead, expected,
            ty_schedule_name(c->plan->schedule), c->plan->staleness > 0 ? " with staleness" : "");
    if (ty_schedule_at(c->plan->schedule)->is_asynchronous &&
        in->lead >= ty_plan_stage_replica_count(c->plan))
        return ty_program_complain(
            c, at, index, "is %u steps ahead, expected less than the plan's stage replicas, %u",
            in->lead, ty_plan_stage_replica_count(c->plan));
    return TY_OK;
}

ty_status ty_instruction_check(const program_checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = ty_program_instruction(c, at, index);

    if ((unsigned)in->op >= TY_OP_COUNT)
        return ty_program_complain(c, at, index, "expected an operation of a program");
    if (!ty_op_runs_in(in->op, in->stream))
        return ty_program_complain(c, at, index, "found stream \"%s\", expected \"%s\"",
                                   ty_stream_name(in->stream),
                                   ty_stream_name(ty_op_stream(in->op)));
    if (in->op == TY_OP_BEGIN
            ? in->stage != TY_NO_STAGE
            : in->stage >= c->plan->stage_count || in->stage % c->pipeline_size != at)
        return ty_program_complain(c, at, index, "found stage %u, expected one of pipeline rank %u",
                                   in->stage, at);
    TY_TRY(check_lead(c, at, index));
    TY_TRY(check_subject(c, at, index));
    if (ty_op_uses[in->op].is_transfer) {
        TY_TRY(check_transfer_fields(c, at, index));
    } else if (in->peer_stage != TY_NO_STAGE || in->direction != TY_NO_DIRECTION) {
        return ty_program_complain(c, at, index, "has neither peer stage nor direction");
    }
    TY_TRY(check_phase(c, at, index));
    TY_TRY(check_layer_fields(c, at, index));
    TY_TRY(check_bytes(c, at, index));
    for (uint32_t w = 0; w < in->wait_count; w++)
        if (in->waits[w] >= index || ty_program_instruction(c, at, in->waits[w])->lead < in->lead)
            return ty_program_complain(
                c, at, index, "waits for instruction %u, expected an earlier one", in->waits[w]);
    return TY_OK;
}

static bool is_before(const program_checker *c, uint32_t at, uint32_t first, uint32_t second)
{
    const stage_facts *f = &c->stages[at];
    const uint32_t *clock = &f->clocks[(size_t)second * TY_STREAM_COUNT];
    return clock[ty_program_instruction(c, at, first)->stream] > f->turns[first];
}

ty_status ty_program_note_once(const program_checker *c, uint32_t at, uint32_t index,
                               uint32_t *place)
{
    if (*place != TY_NO_INSTRUCTION)
        return ty_program_complain(c, at, index, "is already instruction %u", *place);
    *place = index;
    return TY_OK;
}

ty_status ty_program_require(const program_checker *c, uint32_t at, uint32_t index, uint32_t needed,
                             const char *what)
{
    if (needed == TY_NO_INSTRUCTION)
        return ty_program_complain(c, at, index, "expected %s before it", what);
    if (!is_before(c, at, needed, index))
        return ty_program_complain(c, at, index, "does not wait for %s, instruction %u", what,
                                   needed);
    return TY_OK;
}
