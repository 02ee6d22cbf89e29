/*
 * The proof of a program, first half: what must hold within each position. As all replicas run the
 * same list, it is enough to look at each list once. program_walk.c then walks all ranks.
 *
 * "Before" means: by the order of streams and by waits, not by luck. Streams run in order, so what
 * is surely over when an instruction ends is a prefix of every stream; five numbers hold it. Where
 * steps overlap, one step goes through the list in its own order, what is most rounds ahead first.
 *
 * Below, `at` is a position, whose list is looked at, and `stage` one of the plan.
 */
#include "program_check.h"

#include "ty_memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef program_checker checker;

/* Which fields an operation has; the others must be absent. */
static const struct {
    bool is_pass, is_transfer, is_bucket;
} uses[TY_OP_COUNT] = {
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
    else if (uses[instruction->op].is_bucket)
        snprintf(text, size, "%s of bucket %u", op, instruction->bucket);
    else if (uses[instruction->op].is_transfer)
        snprintf(text, size, "%s of the %s of micro-batch %u %s stage %u", op,
                 ty_direction_name(instruction->direction), instruction->micro_batch,
                 instruction->op == TY_OP_SEND ? "to" : "from", instruction->peer_stage);
    else if (uses[instruction->op].is_pass)
        snprintf(text, size, "%s of micro-batch %u through layers %u to %u", op,
                 instruction->micro_batch, instruction->first_layer,
                 instruction->first_layer + instruction->layer_count - 1);
    else if (instruction->op == TY_OP_BEGIN)
        snprintf(text, size, "%s", op);
    else
        snprintf(text, size, "%s of micro-batch %u", op, instruction->micro_batch);
}

static ty_status complain(const checker *c, uint32_t stage, uint32_t index, const char *format, ...)
    TY_PRINTF(4, 5);

static ty_status complain(const checker *c, uint32_t stage, uint32_t index, const char *format, ...)
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

/* For what is not there. */
static ty_status complain_missing(const checker *c, uint32_t stage, const char *format, ...)
    TY_PRINTF(3, 4);

static ty_status complain_missing(const checker *c, uint32_t stage, const char *format, ...)
{
    char what[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return ty_fail(c->error, TY_EPARSE, "%s/stages/%u/instructions: expected %s", c->place, stage,
                   what);
}

/* ---- Where backward ends -------------------------------------------------------------------- */

/* The lowest layer of a stage that backward comes to; the layer behind the stage: none. */
static uint32_t lowest_backward(const checker *c, uint32_t stage)
{
    const ty_plan_stage *own = &c->plan->stages[stage];
    const uint32_t end = own->first_layer + own->layer_count;

    if (c->first_backward <= own->first_layer)
        return own->first_layer;
    return c->first_backward < end ? c->first_backward : end;
}

static bool has_backward(const checker *c, uint32_t stage)
{
    const ty_plan_stage *own = &c->plan->stages[stage];
    return lowest_backward(c, stage) < own->first_layer + own->layer_count;
}

/* Whether a gradient crosses the cut before a stage: something before it is trained. */
static bool has_gradient_before(const checker *c, uint32_t stage)
{
    return stage > 0 && c->plan->stages[stage].first_layer > c->first_backward;
}

/* ---- Fields of one instruction ------------------------------------------------------------- */

static const ty_instruction *instruction_at(const checker *c, uint32_t at, uint32_t index)
{
    return &c->program->stages[at].instructions[index];
}

static ty_status check_transfer_fields(const checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = instruction_at(c, at, index);
    const bool goes_up = (in->direction == TY_ACTIVATION) == (in->op == TY_OP_SEND);

    if (in->direction != TY_ACTIVATION && in->direction != TY_GRADIENT)
        return complain(c, at, index, "expected direction \"activation\" or \"gradient\"");
    if (goes_up ? in->stage + 1 == c->plan->stage_count : in->stage == 0)
        return complain(c, at, index, "there is no stage %s stage %u", goes_up ? "after" : "before",
                        in->stage);
    if (in->peer_stage != (goes_up ? in->stage + 1 : in->stage - 1))
        return complain(c, at, index, "expected stage %u", goes_up ? in->stage + 1 : in->stage - 1);
    if (in->direction == TY_GRADIENT &&
        !has_gradient_before(c, goes_up ? in->stage + 1 : in->stage))
        return complain(c, at, index, "nothing before stage %u is trained",
                        goes_up ? in->stage + 1 : in->stage);
    return TY_OK;
}

static bool holds_bucket(const ty_bucket *bucket, uint32_t stage)
{
    return bucket->stage == stage || bucket->tied_stage == stage;
}

static ty_status check_layer_fields(const checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = instruction_at(c, at, index);
    const ty_plan_stage *own;
    uint32_t first = 0, count = 0;

    if (uses[in->op].is_pass) {
        own = &c->plan->stages[in->stage];
        if (in->layer_count == 0 || in->first_layer < own->first_layer ||
            in->first_layer - own->first_layer >= own->layer_count ||
            in->layer_count > own->first_layer + own->layer_count - in->first_layer)
            return complain(c, at, index, "expected layers of the stage, %u to %u",
                            own->first_layer, own->first_layer + own->layer_count - 1);
        return TY_OK;
    }
    if (uses[in->op].is_bucket) {
        const ty_bucket *bucket = &c->plan->buckets[in->bucket];
        if (!holds_bucket(bucket, in->stage))
            return complain(c, at, index, "the bucket belongs to stage %u", bucket->stage);
        first = bucket->first_layer;
        count = bucket->layer_count;
    }
    if (in->first_layer != first || in->layer_count != count)
        return complain(c, at, index, "found layers %u + %u, expected %u + %u", in->first_layer,
                        in->layer_count, first, count);
    return TY_OK;
}

static uint64_t expected_bytes(const ty_plan *plan, const ty_instruction *in)
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
        return ty_lane_bytes(plan, plan->workload->sample_bytes);
    case TY_OP_BEGIN:
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

static ty_status check_bytes(const checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = instruction_at(c, at, index);
    const uint64_t expected = expected_bytes(c->plan, in);

    /* A stage that loads only samples or only labels reads a part of them. */
    if (in->op == TY_OP_LOAD ? in->bytes > expected : in->bytes != expected)
        return complain(c, at, index, "found %llu bytes, expected %s%llu",
                        (unsigned long long)in->bytes, in->op == TY_OP_LOAD ? "at most " : "",
                        (unsigned long long)expected);
    return TY_OK;
}

/* Phases there are in the exchange of the bucket; only encodes and collectives have one. */
static ty_status check_phase(const checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = instruction_at(c, at, index);
    const bool has_phase = in->op == TY_OP_ENCODE || in->op == TY_OP_COLLECTIVE;
    const uint32_t phases =
        has_phase ? ty_compression_phases(&c->plan->buckets[in->bucket].compression) : 1;

    if (in->phase >= phases)
        return complain(c, at, index, "found phase %u, expected less than %u", in->phase, phases);
    return TY_OK;
}

/* Bucket and micro-batch: the one or the other, none for begin, and both for a gather of ZeRO 3. */
static ty_status check_subject(const checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = instruction_at(c, at, index);
    const uint32_t micro_batches = c->stages[at].micro_batches;
    const bool is_gather_of_pass = in->op == TY_OP_GATHER && c->plan->zero == 3;

    if (uses[in->op].is_bucket) {
        if (in->bucket >= c->plan->bucket_count)
            return complain(c, at, index, "the plan has %u buckets", c->plan->bucket_count);
        if (!is_gather_of_pass && in->micro_batch != TY_NO_MICRO_BATCH)
            return complain(c, at, index, "a bucket belongs to no micro-batch");
    } else if (in->bucket != TY_NO_BUCKET) {
        return complain(c, at, index, "belongs to no bucket");
    }
    if ((is_gather_of_pass || (!uses[in->op].is_bucket && in->op != TY_OP_BEGIN)) &&
        in->micro_batch >= micro_batches)
        return complain(c, at, index, "a replica of the stage has %u micro-batches", micro_batches);
    if (in->op == TY_OP_BEGIN && in->micro_batch != TY_NO_MICRO_BATCH)
        return complain(c, at, index, "belongs to no micro-batch");
    return TY_OK;
}

/* Without a flush what the schedule finds right, within reason; else only gradients are late, all
   by the plan's staleness. */
static ty_status check_lead(const checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = instruction_at(c, at, index);
    const uint32_t expected = in->op == TY_OP_UPDATE ? 0 : c->plan->staleness;

    if (!ty_schedule_is_asynchronous(c->plan->schedule) && in->lead != expected)
        return complain(c, at, index, "is %u steps ahead, expected %u in schedule \"%s\"%s",
                        in->lead, expected, ty_schedule_name(c->plan->schedule),
                        c->plan->staleness > 0 ? " with staleness" : "");
    if (ty_schedule_is_asynchronous(c->plan->schedule) && in->lead >= ty_plan_rank_count(c->plan))
        return complain(c, at, index, "is %u steps ahead, expected less than the plan's ranks, %u",
                        in->lead, ty_plan_rank_count(c->plan));
    return TY_OK;
}

static ty_status check_fields(const checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = instruction_at(c, at, index);
    ty_status status;

    if ((unsigned)in->op >= TY_OP_COUNT)
        return complain(c, at, index, "expected an operation of a program");
    if (in->stream != ty_op_stream(in->op))
        return complain(c, at, index, "found stream \"%s\", expected \"%s\"",
                        ty_stream_name(in->stream), ty_stream_name(ty_op_stream(in->op)));
    if (in->op == TY_OP_BEGIN ? in->stage != TY_NO_STAGE
                              : in->stage >= c->plan->stage_count || in->stage % c->positions != at)
        return complain(c, at, index, "found stage %u, expected one of position %u", in->stage, at);
    if ((status = check_lead(c, at, index)) != TY_OK ||
        (status = check_subject(c, at, index)) != TY_OK)
        return status;
    if (uses[in->op].is_transfer) {
        if ((status = check_transfer_fields(c, at, index)) != TY_OK)
            return status;
    } else if (in->peer_stage != TY_NO_STAGE || in->direction != TY_NO_DIRECTION) {
        return complain(c, at, index, "has neither peer stage nor direction");
    }
    if ((status = check_phase(c, at, index)) != TY_OK ||
        (status = check_layer_fields(c, at, index)) != TY_OK ||
        (status = check_bytes(c, at, index)) != TY_OK)
        return status;
    for (uint32_t w = 0; w < in->wait_count; w++)
        if (in->waits[w] >= index || instruction_at(c, at, in->waits[w])->lead < in->lead)
            return complain(c, at, index, "waits for instruction %u, expected an earlier one",
                            in->waits[w]);
    return TY_OK;
}

/* ---- Order --------------------------------------------------------------------------------- */

/* The order in which one step goes through a list: stable, by falling lead. */
static void set_sequence(const checker *c, uint32_t at)
{
    const ty_stage_program *s = &c->program->stages[at];
    stage_facts *f = &c->stages[at];
    uint32_t turn = 0;

    for (uint32_t lead = f->lead + 1; lead-- > 0;)
        for (uint32_t i = 0; i < s->instruction_count; i++)
            if (s->instructions[i].lead == lead) {
                f->turns[i] = turn;
                f->sequence[turn++] = i;
            }
}

/* Streams hold the list in its own order; clocks go by the step's. */
static void set_streams(const checker *c, uint32_t at)
{
    const ty_stage_program *s = &c->program->stages[at];
    stage_facts *f = &c->stages[at];

    for (uint32_t i = 0; i < s->instruction_count; i++) {
        const ty_stream stream = s->instructions[i].stream;
        f->order[i] = f->stream_lengths[stream];
        f->streams[stream][f->stream_lengths[stream]++] = i;
    }
}

/* `last`: what each stream did before, in the step's order. */
static void set_clock(const checker *c, uint32_t at, uint32_t index, uint32_t last[TY_STREAM_COUNT])
{
    stage_facts *f = &c->stages[at];
    const ty_instruction *in = instruction_at(c, at, index);
    uint32_t *clock = &f->clocks[(size_t)index * TY_STREAM_COUNT];

    if (last[in->stream] != TY_NO_INSTRUCTION)
        memcpy(clock, &f->clocks[(size_t)last[in->stream] * TY_STREAM_COUNT],
               TY_STREAM_COUNT * sizeof *clock);
    for (uint32_t w = 0; w < in->wait_count; w++) {
        const uint32_t *other = &f->clocks[(size_t)in->waits[w] * TY_STREAM_COUNT];
        for (int s = 0; s < TY_STREAM_COUNT; s++)
            if (other[s] > clock[s])
                clock[s] = other[s];
    }
    clock[in->stream] = f->turns[index] + 1;
    last[in->stream] = index;
}

static bool is_before(const checker *c, uint32_t at, uint32_t first, uint32_t second)
{
    const stage_facts *f = &c->stages[at];
    const uint32_t *clock = &f->clocks[(size_t)second * TY_STREAM_COUNT];
    return clock[instruction_at(c, at, first)->stream] > f->turns[first];
}

/* `needed`, which may be absent, must be surely over when `index` starts. */
static ty_status require(const checker *c, uint32_t at, uint32_t index, uint32_t needed,
                         const char *what)
{
    if (needed == TY_NO_INSTRUCTION)
        return complain(c, at, index, "expected %s before it", what);
    if (!is_before(c, at, needed, index))
        return complain(c, at, index, "does not wait for %s, instruction %u", what, needed);
    return TY_OK;
}

/* An instruction that must be there once: notes its place. */
static ty_status note_once(const checker *c, uint32_t at, uint32_t index, uint32_t *place)
{
    if (*place != TY_NO_INSTRUCTION)
        return complain(c, at, index, "is already instruction %u", *place);
    *place = index;
    return TY_OK;
}

/* ---- One micro-batch ----------------------------------------------------------------------- */

pass_places *ty_program_pass(const program_checker *c, uint32_t stage, uint32_t micro_batch)
{
    const stage_facts *f = &c->stages[stage % c->positions];
    return &f->passes[(size_t)(stage / c->positions) * f->micro_batches + micro_batch];
}

static bool stage_loads(const checker *c, uint32_t stage)
{
    return stage == 0 || stage + 1 == c->plan->stage_count;
}

static bool is_in(const ty_bucket *bucket, uint32_t layer)
{
    return layer >= bucket->first_layer && layer - bucket->first_layer < bucket->layer_count;
}

static bool overlaps(const ty_bucket *bucket, const ty_instruction *in)
{
    return is_in(bucket, in->first_layer) ||
           (bucket->first_layer >= in->first_layer &&
            bucket->first_layer - in->first_layer < in->layer_count);
}

/* Sharded weights are gathered before a pass uses them: for the step, or for the very pass. */
static ty_status check_gathered(const checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = instruction_at(c, at, index);
    ty_status status;

    if (c->plan->zero == 0)
        return TY_OK;
    for (uint32_t b = 0; b < c->plan->bucket_count; b++) {
        const ty_bucket *bucket = &c->plan->buckets[b];
        const uint32_t gather = c->stages[at].buckets[b].gather;
        if (bucket->stage != in->stage || !ty_bucket_is_sharded(c->plan, bucket) ||
            !overlaps(bucket, in))
            continue;
        if ((status = require(c, at, index, gather, "the gather of its weights")) != TY_OK)
            return status;
        if (c->plan->zero == 3 && instruction_at(c, at, gather)->micro_batch != in->micro_batch)
            return complain(c, at, index, "expected a gather of bucket %u for its micro-batch", b);
    }
    return TY_OK;
}

static ty_status check_forward(const checker *c, uint32_t at, uint32_t index, pass_places *pass)
{
    const ty_instruction *in = instruction_at(c, at, index);
    const ty_plan_stage *own = &c->plan->stages[in->stage];
    const uint32_t end = in->first_layer + in->layer_count;
    const bool has_last = end == own->first_layer + own->layer_count;
    ty_status status;

    if (pass->forward_end != TY_NO_INSTRUCTION)
        return complain(c, at, index, "is done already at instruction %u", pass->forward_end);
    if (in->first_layer != pass->forward_next)
        return complain(c, at, index, "expected layer %u next", pass->forward_next);
    if (in->first_layer == own->first_layer && in->stage > 0) {
        status =
            require(c, at, index, pass->receives[TY_ACTIVATION], "the receive of its activation");
        if (status != TY_OK)
            return status;
    }
    /* Samples at the first layer, labels at the loss. */
    if ((in->first_layer == own->first_layer && in->stage == 0) ||
        (has_last && in->stage + 1 == c->plan->stage_count)) {
        status = require(c, at, index, pass->load, "the load of its data");
        if (status != TY_OK)
            return status;
    }
    pass->forward_next = end;
    if (has_last)
        pass->forward_end = index;
    return TY_OK;
}

static ty_status check_recompute(const checker *c, uint32_t at, uint32_t index, pass_places *pass)
{
    const ty_instruction *in = instruction_at(c, at, index);

    if (c->plan->stages[in->stage].recompute != TY_RECOMPUTE_FULL)
        return complain(c, at, index, "the plan does not recompute this stage");
    if (!has_backward(c, in->stage))
        return complain(c, at, index, "the stage has no backward to recompute for");
    if (pass->forward_end == TY_NO_INSTRUCTION)
        return complain(c, at, index, "expected all forwards of the micro-batch before it");
    if (in->first_layer != pass->recompute_next)
        return complain(c, at, index, "found layer %u, expected each layer once in order",
                        in->first_layer);
    pass->recompute_next = in->first_layer + in->layer_count;
    return TY_OK;
}

/* What must be over before the first piece of a backward. */
static ty_status check_backward_start(const checker *c, uint32_t at, uint32_t index,
                                      const pass_places *pass)
{
    const ty_instruction *in = instruction_at(c, at, index);
    const ty_plan_stage *own = &c->plan->stages[in->stage];

    if (pass->forward_end == TY_NO_INSTRUCTION)
        return complain(c, at, index, "expected all forwards of the micro-batch before it");
    if (own->recompute == TY_RECOMPUTE_FULL &&
        pass->recompute_next != own->first_layer + own->layer_count)
        return complain(c, at, index, "expected recompute of all layers before it");
    if (in->stage + 1 < c->plan->stage_count)
        return require(c, at, index, pass->receives[TY_GRADIENT], "the receive of its gradient");
    return TY_OK;
}

/* Gradients of activations: backward, or its first part. */
static ty_status check_input_part(const checker *c, uint32_t at, uint32_t index, pass_places *pass)
{
    const ty_instruction *in = instruction_at(c, at, index);
    const ty_plan_stage *own = &c->plan->stages[in->stage];
    ty_status status;

    if (pass->backward_end != TY_NO_INSTRUCTION)
        return complain(c, at, index, "is done already at instruction %u", pass->backward_end);
    if (in->first_layer < lowest_backward(c, in->stage))
        return complain(c, at, index, "nothing before layer %u is trained", c->first_backward);
    if (in->first_layer + in->layer_count != pass->backward_next)
        return complain(c, at, index, "expected layer %u next", pass->backward_next - 1);
    if (pass->backward_next == own->first_layer + own->layer_count &&
        (status = check_backward_start(c, at, index, pass)) != TY_OK)
        return status;
    pass->backward_next = in->first_layer;
    if (in->first_layer == lowest_backward(c, in->stage))
        pass->backward_end = index;
    return TY_OK;
}

/* Gradients of weights: backward, or its second part, behind the first part of the same layers. */
static ty_status check_weight_part(const checker *c, uint32_t at, uint32_t index, pass_places *pass)
{
    const ty_instruction *in = instruction_at(c, at, index);
    uint32_t *last_backward = c->stages[at].last_backward;

    if (pass->weight_end != TY_NO_INSTRUCTION)
        return complain(c, at, index, "is done already at instruction %u", pass->weight_end);
    if (in->first_layer + in->layer_count != pass->weight_next)
        return complain(c, at, index, "expected layer %u next", pass->weight_next - 1);
    if (in->first_layer < pass->backward_next)
        return complain(c, at, index, "expected backward_input of layer %u before it",
                        in->first_layer);
    pass->weight_next = in->first_layer;
    if (in->first_layer == lowest_backward(c, in->stage))
        pass->weight_end = index;
    for (uint32_t i = 0; i < in->layer_count; i++)
        if (last_backward[in->first_layer + i] <= c->stages[at].turns[index])
            last_backward[in->first_layer + i] = c->stages[at].turns[index] + 1;
    return TY_OK;
}

static ty_status check_send(const checker *c, uint32_t at, uint32_t index, pass_places *pass)
{
    const bool is_activation = instruction_at(c, at, index)->direction == TY_ACTIVATION;
    ty_status status =
        note_once(c, at, index, &pass->sends[is_activation ? TY_ACTIVATION : TY_GRADIENT]);

    if (status != TY_OK)
        return status;
    return require(c, at, index, is_activation ? pass->forward_end : pass->backward_end,
                   is_activation ? "the forward that makes it" : "the backward that makes it");
}

/* ---- Buckets ------------------------------------------------------------------------------- */

/* The weights that a gather brings together are those of the step before. */
static ty_status note_gather(const checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = instruction_at(c, at, index);
    uint32_t *place = &c->stages[at].buckets[in->bucket].gather;

    if (!ty_bucket_is_sharded(c->plan, &c->plan->buckets[in->bucket]))
        return complain(c, at, index, "the bucket is not sharded");
    if (c->plan->zero < 3 && *place != TY_NO_INSTRUCTION)
        return complain(c, at, index, "is already instruction %u", *place);
    *place = index;
    return require(c, at, index, c->stages[at].begin, "the begin of the step");
}

static ty_status note_bucket(const checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = instruction_at(c, at, index);
    const ty_bucket *bucket = &c->plan->buckets[in->bucket];
    bucket_places *places = &c->stages[at].buckets[in->bucket];

    if (in->op == TY_OP_UPDATE)
        return note_once(c, at, index, &places->update);
    if (in->op == TY_OP_GATHER)
        return note_gather(c, at, index);
    if (ty_bucket_device_count(c->plan, bucket) == 1)
        return complain(c, at, index, "the bucket has one member and is not exchanged");
    if (in->op == TY_OP_COLLECTIVE)
        return note_once(c, at, index, &places->collectives[in->phase]);
    if (bucket->compression.kind == TY_COMPRESSION_NONE)
        return complain(c, at, index, "the bucket is not compressed");
    return note_once(c, at, index,
                     in->op == TY_OP_ENCODE ? &places->encodes[in->phase] : &places->decode);
}

/* Whether the backward of a layer of `stage` adds to a bucket: by its own parameters, or by those
   of the layer it is tied to. */
static bool adds_to(const ty_workload *w, uint32_t stage, uint32_t layer, const ty_bucket *bucket)
{
    const ty_layer *l = &w->layers[layer];

    if (bucket->of_experts)
        return is_in(bucket, layer) && ty_layer_expert_elements(w, layer) > 0 && !l->is_frozen;
    if (bucket->stage == stage && is_in(bucket, layer) && l->parameter_bytes > 0 && !l->is_frozen)
        return true;
    return l->tied_to != TY_NO_LAYER && is_in(bucket, l->tied_to) &&
           !w->layers[l->tied_to].is_frozen;
}

/* The last instruction of a position that adds to a bucket, or TY_NO_INSTRUCTION. */
static uint32_t last_backward_of(const checker *c, uint32_t at, const ty_bucket *bucket)
{
    const stage_facts *f = &c->stages[at];
    uint32_t last = 0;

    for (uint32_t s = at; s < c->plan->stage_count; s += c->positions) {
        const ty_plan_stage *own = &c->plan->stages[s];
        for (uint32_t l = own->first_layer; l < own->first_layer + own->layer_count; l++)
            if (f->last_backward[l] > last && adds_to(c->plan->workload, s, l, bucket))
                last = f->last_backward[l];
    }
    return last > 0 ? f->sequence[last - 1] : TY_NO_INSTRUCTION;
}

/* The last instruction whose result an exchange of the bucket carries: in evolution scores, which
   forwards make. */
static uint32_t source_of(const checker *c, uint32_t at, const ty_bucket *bucket)
{
    const stage_facts *f = &c->stages[at];
    uint32_t last = 0;

    if (c->plan->workload->learning != TY_LEARNING_EVOLUTION)
        return last_backward_of(c, at, bucket);
    for (uint32_t m = 0; m < f->micro_batches; m++)
        last = f->passes[m].forward_end > last ? f->passes[m].forward_end : last;
    return last;
}

static ty_status check_bucket(const checker *c, uint32_t at, uint32_t index)
{
    const ty_bucket *bucket = &c->plan->buckets[index];
    const bucket_places *places = &c->stages[at].buckets[index];
    const bool is_encoded = bucket->compression.kind != TY_COMPRESSION_NONE;
    const bool has_second = ty_compression_phases(&bucket->compression) > 1;
    const struct {
        uint32_t place;
        ty_op op;
        const char *name;
        bool is_needed;
    } chain[] = {
        {places->encodes[0], TY_OP_ENCODE, "the encode of its bucket", is_encoded},
        {places->collectives[0], TY_OP_COLLECTIVE, "the collective of its bucket", true},
        {places->encodes[1], TY_OP_ENCODE, "the second encode of its bucket", has_second},
        {places->collectives[1], TY_OP_COLLECTIVE, "the second collective of its bucket",
         has_second},
        {places->decode, TY_OP_DECODE, "the decode of its bucket", is_encoded},
        {places->update, TY_OP_UPDATE, "the update of its bucket", true},
    };
    const size_t last = sizeof chain / sizeof chain[0] - 1;
    const bool is_exchanged = ty_bucket_device_count(c->plan, bucket) > 1;
    const bool is_evolution = c->plan->workload->learning == TY_LEARNING_EVOLUTION;
    uint32_t before = source_of(c, at, bucket);
    const char *name =
        is_evolution ? "the last forward" : "the last backward that adds to its bucket";
    ty_status status;

    for (size_t i = is_exchanged ? 0 : last; i <= last; i++) {
        if (!chain[i].is_needed)
            continue;
        if (chain[i].place == TY_NO_INSTRUCTION)
            return complain_missing(c, at, "one %s of bucket %u%s, found none",
                                    ty_op_name(chain[i].op), index,
                                    i == 2 || i == 3 ? " in phase 1" : "");
        if ((status = require(c, at, chain[i].place, before, name)) != TY_OK)
            return status;
        before = chain[i].place;
        name = chain[i].name;
    }
    return TY_OK;
}

/* ---- One position -------------------------------------------------------------------------- */

static ty_status check_pass_piece(const checker *c, uint32_t at, uint32_t index, pass_places *pass)
{
    const ty_op op = instruction_at(c, at, index)->op;
    ty_status status = check_gathered(c, at, index);

    if (status != TY_OK)
        return status;
    if (op == TY_OP_FORWARD)
        return check_forward(c, at, index, pass);
    if (op == TY_OP_RECOMPUTE)
        return check_recompute(c, at, index, pass);
    if (op != TY_OP_BACKWARD_WEIGHT && (status = check_input_part(c, at, index, pass)) != TY_OK)
        return status;
    return op == TY_OP_BACKWARD_INPUT ? TY_OK : check_weight_part(c, at, index, pass);
}

static ty_status check_instruction(const checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = instruction_at(c, at, index);
    pass_places *pass;

    if (in->op == TY_OP_BEGIN) {
        if (c->stages[at].order[index] != 0)
            return complain(c, at, index, "expected it at the head of its stream");
        return note_once(c, at, index, &c->stages[at].begin);
    }
    if (uses[in->op].is_bucket)
        return note_bucket(c, at, index);
    pass = ty_program_pass(c, in->stage, in->micro_batch);
    if (uses[in->op].is_pass)
        return check_pass_piece(c, at, index, pass);
    if (in->op == TY_OP_SEND)
        return check_send(c, at, index, pass);
    if (in->op == TY_OP_RECEIVE)
        return note_once(c, at, index, &pass->receives[in->direction]);
    if (!stage_loads(c, in->stage))
        return complain(c, at, index, "only the first and the last stage load");
    return note_once(c, at, index, &pass->load);
}

/* That nothing of a micro-batch is missing. */
static ty_status check_pass(const checker *c, uint32_t at, uint32_t stage, uint32_t micro_batch)
{
    const pass_places *pass = ty_program_pass(c, stage, micro_batch);
    const bool is_first = stage == 0, is_last = stage + 1 == c->plan->stage_count;
    const struct {
        bool is_needed;
        uint32_t place;
        const char *what;
    } parts[] = {
        {!is_first, pass->receives[TY_ACTIVATION], "a receive of the activation"},
        {!is_last, pass->sends[TY_ACTIVATION], "a send of the activation"},
        {!is_last && has_gradient_before(c, stage + 1), pass->receives[TY_GRADIENT],
         "a receive of the gradient"},
        {has_gradient_before(c, stage), pass->sends[TY_GRADIENT], "a send of the gradient"},
    };

    if (pass->forward_end == TY_NO_INSTRUCTION)
        return complain_missing(c, at, "a forward of layer %u for micro-batch %u",
                                pass->forward_next, micro_batch);
    if (has_backward(c, stage) && pass->backward_end == TY_NO_INSTRUCTION)
        return complain_missing(c, at, "a backward of layer %u for micro-batch %u",
                                pass->backward_next - 1, micro_batch);
    if (has_backward(c, stage) && pass->weight_end == TY_NO_INSTRUCTION)
        return complain_missing(c, at, "a backward_weight of layer %u for micro-batch %u",
                                pass->weight_next - 1, micro_batch);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].is_needed && parts[i].place == TY_NO_INSTRUCTION)
            return complain_missing(c, at, "%s of micro-batch %u, to match stage %u", parts[i].what,
                                    micro_batch, i == 0 || i == 3 ? stage - 1 : stage + 1);
    return TY_OK;
}

static ty_status check_all_there(const checker *c, uint32_t at)
{
    ty_status status;

    for (uint32_t s = at; s < c->plan->stage_count; s += c->positions) {
        for (uint32_t m = 0; m < c->stages[at].micro_batches; m++)
            if ((status = check_pass(c, at, s, m)) != TY_OK)
                return status;
        for (uint32_t b = 0; b < c->plan->bucket_count; b++)
            if (holds_bucket(&c->plan->buckets[b], s) && (status = check_bucket(c, at, b)) != TY_OK)
                return status;
    }
    return TY_OK;
}

static ty_status check_position(const checker *c, uint32_t at)
{
    const ty_stage_program *s = &c->program->stages[at];
    const stage_facts *f = &c->stages[at];
    uint32_t last[TY_STREAM_COUNT];
    ty_status status;

    for (uint32_t i = 0; i < s->instruction_count; i++)
        if ((status = check_fields(c, at, i)) != TY_OK)
            return status;
    set_sequence(c, at);
    set_streams(c, at);
    for (int i = 0; i < TY_STREAM_COUNT; i++)
        last[i] = TY_NO_INSTRUCTION;
    for (uint32_t turn = 0; turn < s->instruction_count; turn++) {
        set_clock(c, at, f->sequence[turn], last);
        if ((status = check_instruction(c, at, f->sequence[turn])) != TY_OK)
            return status;
    }
    return check_all_there(c, at);
}

/* ---- All ----------------------------------------------------------------------------------- */

static void passes_clear(const checker *c, uint32_t at)
{
    const uint32_t none = TY_NO_INSTRUCTION;

    for (uint32_t s = at; s < c->plan->stage_count; s += c->positions)
        for (uint32_t m = 0; m < c->stages[at].micro_batches; m++) {
            const uint32_t first = c->plan->stages[s].first_layer;
            const uint32_t end = first + c->plan->stages[s].layer_count;
            *ty_program_pass(c, s, m) = (pass_places){
                .load = none,
                .sends = {none, none, none},
                .receives = {none, none, none},
                .forward_end = none,
                .backward_end = none,
                .weight_end = none,
                .forward_next = first,
                .recompute_next = first,
                .backward_next = end,
                .weight_next = end,
            };
        }
}

static ty_status facts_new(const checker *c, uint32_t at)
{
    stage_facts *f = &c->stages[at];
    const uint32_t none = TY_NO_INSTRUCTION, held = ty_plan_interleave(c->plan);
    const uint32_t count = c->program->stages[at].instruction_count;

    f->begin = none;
    f->micro_batches = c->plan->micro_batches / c->plan->stages[at].replicas;
    f->lead = ty_program_lead(c->program, at);
    if ((has_backward(c, at) ? count / 2 : count) / held <
        f->micro_batches) /* before making room */
        return complain_missing(c, at, "a forward%s for each of %u micro-batches",
                                has_backward(c, at) ? " and a backward" : "", f->micro_batches);
    f->sequence = ty_alloc(count, sizeof *f->sequence);
    f->turns = ty_alloc(count, sizeof *f->turns);
    f->order = ty_alloc(count, sizeof *f->order);
    f->clocks = ty_alloc(count, TY_STREAM_COUNT * sizeof *f->clocks);
    f->last_backward = ty_alloc(c->plan->workload->layer_count, sizeof *f->last_backward);
    f->passes = ty_alloc((size_t)f->micro_batches * held, sizeof *f->passes);
    f->buckets = ty_alloc(c->plan->bucket_count, sizeof *f->buckets);
    for (int i = 0; i < TY_STREAM_COUNT; i++)
        if ((f->streams[i] = ty_alloc(count, sizeof **f->streams)) == NULL)
            return ty_fail(c->error, TY_ENOMEM, "out of memory");
    if (f->sequence == NULL || f->turns == NULL || f->order == NULL || f->clocks == NULL ||
        f->last_backward == NULL || f->passes == NULL || f->buckets == NULL)
        return ty_fail(c->error, TY_ENOMEM, "out of memory");
    passes_clear(c, at);
    for (uint32_t b = 0; b < c->plan->bucket_count; b++)
        f->buckets[b] = (bucket_places){.encodes = {none, none},
                                        .collectives = {none, none},
                                        .decode = none,
                                        .update = none,
                                        .gather = none};
    return TY_OK;
}

static void facts_clear(stage_facts *f)
{
    ty_free(f->sequence);
    ty_free(f->turns);
    ty_free(f->order);
    ty_free(f->clocks);
    ty_free(f->last_backward);
    ty_free(f->passes);
    ty_free(f->buckets);
    for (int i = 0; i < TY_STREAM_COUNT; i++)
        ty_free(f->streams[i]);
}

static ty_status check_origin(const checker *c)
{
    ty_digest digest;
    ty_status status = ty_plan_digest(c->plan, &digest, c->error);

    if (status != TY_OK)
        return status;
    if (strcmp(digest.hex, c->program->plan_digest.hex) != 0)
        return ty_fail(c->error, TY_EPARSE,
                       "%s/plan_digest: found %.12s..., this program was lowered from another "
                       "plan (digest %.12s...)",
                       c->place, c->program->plan_digest.hex, digest.hex);
    if (c->program->stage_count != c->positions)
        return ty_fail(c->error, TY_EPARSE, "%s/stages: found %u, expected the plan's %u", c->place,
                       c->program->stage_count, c->positions);
    return TY_OK;
}

ty_status ty_program_check_at(const ty_plan *plan, const ty_program *program, const char *place,
                              ty_error *error)
{
    ty_status status = TY_OK;
    checker c = {.plan = plan,
                 .program = program,
                 .place = place,
                 .positions = ty_plan_position_count(plan),
                 .first_backward = ty_workload_first_backward(plan->workload),
                 .error = error};

    TY_CHECK(check_origin(&c), status, cleanup);
    c.stages = ty_alloc(c.positions, sizeof *c.stages);
    if (c.stages == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t p = 0; p < c.positions; p++) {
        TY_CHECK(facts_new(&c, p), status, cleanup);
        TY_CHECK(check_position(&c, p), status, cleanup);
    }
    status = ty_program_walk(&c);

cleanup:
    for (uint32_t p = 0; c.stages != NULL && p < c.positions; p++)
        facts_clear(&c.stages[p]);
    ty_free(c.stages);
    return status;
}

ty_status ty_program_check(const ty_plan *plan, const ty_program *program, const char *name,
                           ty_error *error)
{
    char place[TY_JSON_PLACE_SIZE];

    snprintf(place, sizeof place, "%s:", name);
    return ty_program_check_at(plan, program, place, error);
}
