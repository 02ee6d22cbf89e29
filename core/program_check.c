/*
 * The proof of a program, first half: what must hold within each stage. As all replicas of a stage
 * run the same list, it is enough to look at each list once. program_walk.c then walks all ranks.
 *
 * "Before" means: by the order of streams and by waits, not by luck. Streams run in order, so what
 * is surely over when an instruction ends is a prefix of every stream; five numbers hold it.
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
    [TY_OP_FORWARD] = {.is_pass = true},      [TY_OP_RECOMPUTE] = {.is_pass = true},
    [TY_OP_BACKWARD] = {.is_pass = true},     [TY_OP_SEND] = {.is_transfer = true},
    [TY_OP_RECEIVE] = {.is_transfer = true},  [TY_OP_ENCODE] = {.is_bucket = true},
    [TY_OP_COLLECTIVE] = {.is_bucket = true}, [TY_OP_DECODE] = {.is_bucket = true},
    [TY_OP_UPDATE] = {.is_bucket = true},
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

/* ---- Fields of one instruction ------------------------------------------------------------- */

static ty_status check_transfer_fields(const checker *c, uint32_t stage, uint32_t index)
{
    const ty_instruction *in = &c->program->stages[stage].instructions[index];
    const bool goes_up = (in->direction == TY_ACTIVATION) == (in->op == TY_OP_SEND);

    if (in->direction != TY_ACTIVATION && in->direction != TY_GRADIENT)
        return complain(c, stage, index, "expected direction \"activation\" or \"gradient\"");
    if (goes_up ? stage + 1 == c->plan->stage_count : stage == 0)
        return complain(c, stage, index, "there is no stage %s stage %u",
                        goes_up ? "after" : "before", stage);
    if (in->peer_stage != (goes_up ? stage + 1 : stage - 1))
        return complain(c, stage, index, "expected stage %u", goes_up ? stage + 1 : stage - 1);
    return TY_OK;
}

static bool holds_bucket(const ty_bucket *bucket, uint32_t stage)
{
    return bucket->stage == stage || bucket->tied_stage == stage;
}

static ty_status check_layer_fields(const checker *c, uint32_t stage, uint32_t index)
{
    const ty_instruction *in = &c->program->stages[stage].instructions[index];
    const ty_plan_stage *own = &c->plan->stages[stage];
    uint32_t first = 0, count = 0;

    if (uses[in->op].is_pass) {
        if (in->layer_count == 0 || in->first_layer < own->first_layer ||
            in->first_layer - own->first_layer >= own->layer_count ||
            in->layer_count > own->first_layer + own->layer_count - in->first_layer)
            return complain(c, stage, index, "expected layers of the stage, %u to %u",
                            own->first_layer, own->first_layer + own->layer_count - 1);
        return TY_OK;
    }
    if (uses[in->op].is_bucket) {
        const ty_bucket *bucket = &c->plan->buckets[in->bucket];
        if (!holds_bucket(bucket, stage))
            return complain(c, stage, index, "the bucket belongs to stage %u", bucket->stage);
        first = bucket->first_layer;
        count = bucket->layer_count;
    }
    if (in->first_layer != first || in->layer_count != count)
        return complain(c, stage, index, "found layers %u + %u, expected %u + %u", in->first_layer,
                        in->layer_count, first, count);
    return TY_OK;
}

static uint64_t expected_bytes(const ty_plan *plan, uint32_t stage, const ty_instruction *in)
{
    switch (in->op) {
    case TY_OP_SEND:
    case TY_OP_RECEIVE: {
        uint32_t later = in->peer_stage > stage ? in->peer_stage : stage;
        return ty_workload_cut_bytes(plan->workload, plan->stages[later].first_layer) *
               plan->micro_batch_size;
    }
    case TY_OP_ENCODE:
    case TY_OP_DECODE:
        return plan->buckets[in->bucket].gradient_bytes;
    case TY_OP_COLLECTIVE:
        return ty_bucket_wire_bytes(&plan->buckets[in->bucket]);
    case TY_OP_LOAD:
        return plan->workload->sample_bytes * plan->micro_batch_size;
    case TY_OP_FORWARD:
    case TY_OP_RECOMPUTE:
    case TY_OP_BACKWARD:
    case TY_OP_UPDATE:
    case TY_OP_COUNT:
        break;
    }
    return 0;
}

static ty_status check_bytes(const checker *c, uint32_t stage, uint32_t index)
{
    const ty_instruction *in = &c->program->stages[stage].instructions[index];
    const uint64_t expected = expected_bytes(c->plan, stage, in);

    /* A stage that loads only samples or only labels reads a part of them. */
    if (in->op == TY_OP_LOAD ? in->bytes > expected : in->bytes != expected)
        return complain(c, stage, index, "found %llu bytes, expected %s%llu",
                        (unsigned long long)in->bytes, in->op == TY_OP_LOAD ? "at most " : "",
                        (unsigned long long)expected);
    return TY_OK;
}

static ty_status check_fields(const checker *c, uint32_t stage, uint32_t index)
{
    const ty_instruction *in = &c->program->stages[stage].instructions[index];
    const uint32_t micro_batches = c->stages[stage].micro_batches;
    ty_status status;

    if ((unsigned)in->op >= TY_OP_COUNT)
        return complain(c, stage, index, "expected an operation of a program");
    if (in->stream != ty_op_stream(in->op))
        return complain(c, stage, index, "found stream \"%s\", expected \"%s\"",
                        ty_stream_name(in->stream), ty_stream_name(ty_op_stream(in->op)));
    if (uses[in->op].is_bucket) {
        if (in->bucket >= c->plan->bucket_count)
            return complain(c, stage, index, "the plan has %u buckets", c->plan->bucket_count);
        if (in->micro_batch != TY_NO_MICRO_BATCH)
            return complain(c, stage, index, "a bucket belongs to no micro-batch");
    } else {
        if (in->micro_batch >= micro_batches)
            return complain(c, stage, index, "a replica of the stage has %u micro-batches",
                            micro_batches);
        if (in->bucket != TY_NO_BUCKET)
            return complain(c, stage, index, "belongs to no bucket");
    }
    if (uses[in->op].is_transfer) {
        if ((status = check_transfer_fields(c, stage, index)) != TY_OK)
            return status;
    } else if (in->peer_stage != TY_NO_STAGE || in->direction != TY_NO_DIRECTION) {
        return complain(c, stage, index, "has neither peer stage nor direction");
    }
    if ((status = check_layer_fields(c, stage, index)) != TY_OK ||
        (status = check_bytes(c, stage, index)) != TY_OK)
        return status;
    for (uint32_t w = 0; w < in->wait_count; w++)
        if (in->waits[w] >= index)
            return complain(c, stage, index, "waits for instruction %u, expected an earlier one",
                            in->waits[w]);
    return TY_OK;
}

/* ---- Order --------------------------------------------------------------------------------- */

static void set_clock(const checker *c, uint32_t stage, uint32_t index)
{
    stage_facts *f = &c->stages[stage];
    const ty_instruction *in = &c->program->stages[stage].instructions[index];
    uint32_t *clock = &f->clocks[(size_t)index * TY_STREAM_COUNT];
    const uint32_t place = f->stream_lengths[in->stream];

    f->order[index] = place;
    if (place > 0)
        memcpy(clock, &f->clocks[(size_t)f->streams[in->stream][place - 1] * TY_STREAM_COUNT],
               TY_STREAM_COUNT * sizeof *clock);
    for (uint32_t w = 0; w < in->wait_count; w++) {
        const uint32_t *other = &f->clocks[(size_t)in->waits[w] * TY_STREAM_COUNT];
        for (int s = 0; s < TY_STREAM_COUNT; s++)
            if (other[s] > clock[s])
                clock[s] = other[s];
    }
    clock[in->stream] = index + 1;
    f->streams[in->stream][f->stream_lengths[in->stream]++] = index;
}

static bool is_before(const checker *c, uint32_t stage, uint32_t first, uint32_t second)
{
    const ty_instruction *a = &c->program->stages[stage].instructions[first];
    const uint32_t *clock = &c->stages[stage].clocks[(size_t)second * TY_STREAM_COUNT];
    return clock[a->stream] > first;
}

/* `needed`, which may be absent, must be surely over when `index` starts. */
static ty_status require(const checker *c, uint32_t stage, uint32_t index, uint32_t needed,
                         const char *what)
{
    if (needed == TY_NO_INSTRUCTION)
        return complain(c, stage, index, "expected %s before it", what);
    if (!is_before(c, stage, needed, index))
        return complain(c, stage, index, "does not wait for %s, instruction %u", what, needed);
    return TY_OK;
}

/* An instruction that must be there once: notes its place. */
static ty_status note_once(const checker *c, uint32_t stage, uint32_t index, uint32_t *place)
{
    if (*place != TY_NO_INSTRUCTION)
        return complain(c, stage, index, "is already instruction %u", *place);
    *place = index;
    return TY_OK;
}

/* ---- One micro-batch ----------------------------------------------------------------------- */

static bool stage_loads(const checker *c, uint32_t stage)
{
    return stage == 0 || stage + 1 == c->plan->stage_count;
}

static ty_status check_forward(const checker *c, uint32_t stage, uint32_t index, pass_places *pass)
{
    const ty_instruction *in = &c->program->stages[stage].instructions[index];
    const ty_plan_stage *own = &c->plan->stages[stage];
    const uint32_t end = in->first_layer + in->layer_count;
    const bool has_last = end == own->first_layer + own->layer_count;
    ty_status status;

    if (pass->forward_end != TY_NO_INSTRUCTION)
        return complain(c, stage, index, "is done already at instruction %u", pass->forward_end);
    if (in->first_layer != pass->forward_next)
        return complain(c, stage, index, "expected layer %u next", pass->forward_next);
    if (in->first_layer == own->first_layer && stage > 0) {
        status = require(c, stage, index, pass->receives[TY_ACTIVATION],
                         "the receive of its activation");
        if (status != TY_OK)
            return status;
    }
    /* Samples at the first layer, labels at the loss. */
    if ((in->first_layer == own->first_layer && stage == 0) ||
        (has_last && stage + 1 == c->plan->stage_count)) {
        status = require(c, stage, index, pass->load, "the load of its data");
        if (status != TY_OK)
            return status;
    }
    pass->forward_next = end;
    if (has_last)
        pass->forward_end = index;
    return TY_OK;
}

static ty_status check_recompute(const checker *c, uint32_t stage, uint32_t index,
                                 pass_places *pass)
{
    const ty_instruction *in = &c->program->stages[stage].instructions[index];

    if (c->plan->stages[stage].recompute == TY_RECOMPUTE_NONE)
        return complain(c, stage, index, "the plan does not recompute this stage");
    if (pass->forward_end == TY_NO_INSTRUCTION)
        return complain(c, stage, index, "expected all forwards of the micro-batch before it");
    if (in->first_layer != pass->recompute_next)
        return complain(c, stage, index, "found layer %u, expected each layer once in order",
                        in->first_layer);
    pass->recompute_next = in->first_layer + in->layer_count;
    return TY_OK;
}

static ty_status check_backward(const checker *c, uint32_t stage, uint32_t index, pass_places *pass)
{
    const ty_instruction *in = &c->program->stages[stage].instructions[index];
    const ty_plan_stage *own = &c->plan->stages[stage];
    const uint32_t end = own->first_layer + own->layer_count;
    ty_status status;

    if (pass->backward_end != TY_NO_INSTRUCTION)
        return complain(c, stage, index, "is done already at instruction %u", pass->backward_end);
    if (in->first_layer + in->layer_count != pass->backward_next)
        return complain(c, stage, index, "expected layer %u next", pass->backward_next - 1);
    if (pass->backward_next == end) {
        if (pass->forward_end == TY_NO_INSTRUCTION)
            return complain(c, stage, index, "expected all forwards of the micro-batch before it");
        if (own->recompute == TY_RECOMPUTE_FULL && pass->recompute_next != end)
            return complain(c, stage, index, "expected recompute of all layers before it");
        if (stage + 1 < c->plan->stage_count) {
            status = require(c, stage, index, pass->receives[TY_GRADIENT],
                             "the receive of its gradient");
            if (status != TY_OK)
                return status;
        }
    }
    pass->backward_next = in->first_layer;
    if (in->first_layer == own->first_layer)
        pass->backward_end = index;
    for (uint32_t i = 0; i < in->layer_count; i++)
        c->stages[stage].last_backward[in->first_layer - own->first_layer + i] = index;
    return TY_OK;
}

static ty_status check_send(const checker *c, uint32_t stage, uint32_t index, pass_places *pass)
{
    const bool is_activation =
        c->program->stages[stage].instructions[index].direction == TY_ACTIVATION;
    ty_status status =
        note_once(c, stage, index, &pass->sends[is_activation ? TY_ACTIVATION : TY_GRADIENT]);

    if (status != TY_OK)
        return status;
    return require(c, stage, index, is_activation ? pass->forward_end : pass->backward_end,
                   is_activation ? "the forward that makes it" : "the backward that makes it");
}

/* ---- Buckets ------------------------------------------------------------------------------- */

static ty_status note_bucket(const checker *c, uint32_t stage, uint32_t index)
{
    const ty_instruction *in = &c->program->stages[stage].instructions[index];
    const ty_bucket *bucket = &c->plan->buckets[in->bucket];
    bucket_places *places = &c->stages[stage].buckets[in->bucket];

    if (in->op == TY_OP_UPDATE)
        return note_once(c, stage, index, &places->update);
    if (ty_bucket_member_count(c->plan, bucket) == 1)
        return complain(c, stage, index, "the bucket has one member and is not exchanged");
    if (in->op == TY_OP_COLLECTIVE)
        return note_once(c, stage, index, &places->collective);
    if (bucket->compression == TY_COMPRESSION_NONE)
        return complain(c, stage, index, "the bucket is not compressed");
    return note_once(c, stage, index, in->op == TY_OP_ENCODE ? &places->encode : &places->decode);
}

static bool is_in(const ty_bucket *bucket, uint32_t layer)
{
    return layer >= bucket->first_layer && layer - bucket->first_layer < bucket->layer_count;
}

/* Whether the backward of a layer of `stage` adds to a bucket: by its own parameters, or by those
   of the layer it is tied to. */
static bool adds_to(const ty_workload *w, uint32_t stage, uint32_t layer, const ty_bucket *bucket)
{
    const ty_layer *l = &w->layers[layer];

    if (bucket->stage == stage && is_in(bucket, layer) && l->parameter_bytes > 0 && !l->is_frozen)
        return true;
    return l->tied_to != TY_NO_LAYER && is_in(bucket, l->tied_to) &&
           !w->layers[l->tied_to].is_frozen;
}

static uint32_t last_backward_of(const checker *c, uint32_t stage, const ty_bucket *bucket)
{
    const ty_plan_stage *own = &c->plan->stages[stage];
    const uint32_t *last_backward = c->stages[stage].last_backward;
    uint32_t last = 0;

    for (uint32_t i = 0; i < own->layer_count; i++)
        if (last_backward[i] > last &&
            adds_to(c->plan->workload, stage, own->first_layer + i, bucket))
            last = last_backward[i];
    return last;
}

static ty_status check_bucket(const checker *c, uint32_t stage, uint32_t index)
{
    const ty_bucket *bucket = &c->plan->buckets[index];
    const bucket_places *places = &c->stages[stage].buckets[index];
    const bool is_encoded = bucket->compression != TY_COMPRESSION_NONE;
    const struct {
        uint32_t place;
        const char *name;
        bool is_needed;
    } chain[] = {
        {places->encode, "the encode of its bucket", is_encoded},
        {places->collective, "the collective of its bucket", true},
        {places->decode, "the decode of its bucket", is_encoded},
        {places->update, "the update of its bucket", true},
    };
    const bool is_exchanged = ty_bucket_member_count(c->plan, bucket) > 1;
    uint32_t before = last_backward_of(c, stage, bucket);
    const char *name = "the last backward that adds to its bucket";
    ty_status status;

    for (size_t i = is_exchanged ? 0 : 3; i < sizeof chain / sizeof chain[0]; i++) {
        if (!chain[i].is_needed)
            continue;
        if (chain[i].place == TY_NO_INSTRUCTION)
            return complain_missing(c, stage, "one %s of bucket %u, found none",
                                    i == 0   ? "encode"
                                    : i == 1 ? "collective"
                                    : i == 2 ? "decode"
                                             : "update",
                                    index);
        if ((status = require(c, stage, chain[i].place, before, name)) != TY_OK)
            return status;
        before = chain[i].place;
        name = chain[i].name;
    }
    return TY_OK;
}

/* ---- One stage ----------------------------------------------------------------------------- */

static ty_status check_instruction(const checker *c, uint32_t stage, uint32_t index)
{
    const ty_instruction *in = &c->program->stages[stage].instructions[index];
    pass_places *pass = uses[in->op].is_bucket ? NULL : &c->stages[stage].passes[in->micro_batch];

    switch (in->op) {
    case TY_OP_LOAD:
        if (!stage_loads(c, stage))
            return complain(c, stage, index, "only the first and the last stage load");
        return note_once(c, stage, index, &pass->load);
    case TY_OP_FORWARD:
        return check_forward(c, stage, index, pass);
    case TY_OP_RECOMPUTE:
        return check_recompute(c, stage, index, pass);
    case TY_OP_BACKWARD:
        return check_backward(c, stage, index, pass);
    case TY_OP_SEND:
        return check_send(c, stage, index, pass);
    case TY_OP_RECEIVE:
        return note_once(c, stage, index, &pass->receives[in->direction]);
    case TY_OP_ENCODE:
    case TY_OP_COLLECTIVE:
    case TY_OP_DECODE:
    case TY_OP_UPDATE:
        return note_bucket(c, stage, index);
    case TY_OP_COUNT:
        break;
    }
    return TY_OK;
}

/* That nothing of a micro-batch is missing. */
static ty_status check_pass(const checker *c, uint32_t stage, uint32_t micro_batch)
{
    const pass_places *pass = &c->stages[stage].passes[micro_batch];
    const bool is_first = stage == 0, is_last = stage + 1 == c->plan->stage_count;
    const struct {
        bool is_needed;
        uint32_t place;
        const char *what;
    } parts[] = {
        {!is_first, pass->receives[TY_ACTIVATION], "a receive of the activation"},
        {!is_last, pass->sends[TY_ACTIVATION], "a send of the activation"},
        {!is_last, pass->receives[TY_GRADIENT], "a receive of the gradient"},
        {!is_first, pass->sends[TY_GRADIENT], "a send of the gradient"},
    };

    if (pass->forward_end == TY_NO_INSTRUCTION)
        return complain_missing(c, stage, "a forward of layer %u for micro-batch %u",
                                pass->forward_next, micro_batch);
    if (pass->backward_end == TY_NO_INSTRUCTION)
        return complain_missing(c, stage, "a backward of layer %u for micro-batch %u",
                                pass->backward_next - 1, micro_batch);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].is_needed && parts[i].place == TY_NO_INSTRUCTION)
            return complain_missing(c, stage, "%s of micro-batch %u, to match stage %u",
                                    parts[i].what, micro_batch,
                                    i == 0 || i == 3 ? stage - 1 : stage + 1);
    return TY_OK;
}

static ty_status check_stage(const checker *c, uint32_t stage)
{
    const ty_stage_program *s = &c->program->stages[stage];
    ty_status status;

    for (uint32_t i = 0; i < s->instruction_count; i++) {
        if ((status = check_fields(c, stage, i)) != TY_OK)
            return status;
        set_clock(c, stage, i);
        if ((status = check_instruction(c, stage, i)) != TY_OK)
            return status;
    }
    for (uint32_t m = 0; m < c->stages[stage].micro_batches; m++)
        if ((status = check_pass(c, stage, m)) != TY_OK)
            return status;
    for (uint32_t b = 0; b < c->plan->bucket_count; b++)
        if (holds_bucket(&c->plan->buckets[b], stage) &&
            (status = check_bucket(c, stage, b)) != TY_OK)
            return status;
    return TY_OK;
}

/* ---- All ----------------------------------------------------------------------------------- */

static ty_status facts_new(const checker *c, uint32_t stage)
{
    stage_facts *f = &c->stages[stage];
    const ty_plan_stage *own = &c->plan->stages[stage];
    const uint32_t count = c->program->stages[stage].instruction_count;

    f->micro_batches = c->plan->micro_batches / own->replicas;
    if (count / 2 < f->micro_batches) /* before room is made for so many */
        return complain_missing(c, stage, "a forward and a backward for each of %u micro-batches",
                                f->micro_batches);
    f->order = ty_alloc(count, sizeof *f->order);
    f->clocks = ty_alloc(count, TY_STREAM_COUNT * sizeof *f->clocks);
    f->last_backward = ty_alloc(own->layer_count, sizeof *f->last_backward);
    f->passes = ty_alloc(f->micro_batches, sizeof *f->passes);
    f->buckets = ty_alloc(c->plan->bucket_count, sizeof *f->buckets);
    for (int i = 0; i < TY_STREAM_COUNT; i++)
        if ((f->streams[i] = ty_alloc(count, sizeof **f->streams)) == NULL)
            return ty_fail(c->error, TY_ENOMEM, "out of memory");
    if (f->order == NULL || f->clocks == NULL || f->last_backward == NULL || f->passes == NULL ||
        f->buckets == NULL)
        return ty_fail(c->error, TY_ENOMEM, "out of memory");
    for (uint32_t m = 0; m < f->micro_batches; m++)
        f->passes[m] = (pass_places){
            .load = TY_NO_INSTRUCTION,
            .sends = {TY_NO_INSTRUCTION, TY_NO_INSTRUCTION, TY_NO_INSTRUCTION},
            .receives = {TY_NO_INSTRUCTION, TY_NO_INSTRUCTION, TY_NO_INSTRUCTION},
            .forward_end = TY_NO_INSTRUCTION,
            .backward_end = TY_NO_INSTRUCTION,
            .forward_next = own->first_layer,
            .recompute_next = own->first_layer,
            .backward_next = own->first_layer + own->layer_count,
        };
    for (uint32_t b = 0; b < c->plan->bucket_count; b++)
        f->buckets[b] = (bucket_places){TY_NO_INSTRUCTION, TY_NO_INSTRUCTION, TY_NO_INSTRUCTION,
                                        TY_NO_INSTRUCTION};
    return TY_OK;
}

static void facts_clear(stage_facts *f)
{
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
    if (c->program->stage_count != c->plan->stage_count)
        return ty_fail(c->error, TY_EPARSE, "%s/stages: found %u, expected the plan's %u", c->place,
                       c->program->stage_count, c->plan->stage_count);
    return TY_OK;
}

ty_status ty_program_check_at(const ty_plan *plan, const ty_program *program, const char *place,
                              ty_error *error)
{
    ty_status status = TY_OK;
    checker c = {.plan = plan, .program = program, .place = place, .error = error};

    TY_CHECK(check_origin(&c), status, cleanup);
    c.stages = ty_alloc(plan->stage_count, sizeof *c.stages);
    if (c.stages == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        TY_CHECK(facts_new(&c, s), status, cleanup);
        TY_CHECK(check_stage(&c, s), status, cleanup);
    }
    status = ty_program_walk(&c);

cleanup:
    for (uint32_t s = 0; c.stages != NULL && s < plan->stage_count; s++)
        facts_clear(&c.stages[s]);
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
