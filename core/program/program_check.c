/*
 * The proof of a program, first half: checks within each pipeline rank. All replicas run the same
 * list, so one check per list is enough. program_walk.c then walks all stage replicas.
 *
 * "Before" means: guaranteed by the order of streams and by waits. Streams run in order, so the
 * instructions that are certainly done when another one ends are a prefix of every stream, given by
 * five numbers. If steps overlap, a step runs through the list in its own order, the most rounds
 * ahead first.
 */
#include "program_check.h"

#include "ty_base.h"

#include <stdio.h>
#include <string.h>

typedef program_checker checker;

/* ---- Order --------------------------------------------------------------------------------- */

/* The order in which one step runs through a list: stable, by decreasing lead. */
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

/* Streams have the list in its own order; clocks use the step's order. */
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

/* `last`: the previous instruction of each stream, in the step's order. */
static void set_clock(const checker *c, uint32_t at, uint32_t index, uint32_t last[TY_STREAM_COUNT])
{
    stage_facts *f = &c->stages[at];
    const ty_instruction *in = ty_program_instruction(c, at, index);
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

/* ---- One micro-batch ----------------------------------------------------------------------- */

/* Samples at the first layer, labels at the loss; a device that generates samples has both. */
static bool stage_loads(const checker *c, uint32_t stage)
{
    return stage == 0 ||
           (ty_plan_load_stream(c->plan) == TY_STREAM_INPUT && stage + 1 == c->plan->stage_count);
}

/* Sharded weights are gathered before a pass uses them: once per step, or for each pass. */
static ty_status check_gathered(const checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = ty_program_instruction(c, at, index);

    if (c->plan->zero == 0)
        return TY_OK;
    for (uint32_t b = 0; b < c->plan->bucket_count; b++) {
        const ty_bucket *bucket = &c->plan->buckets[b];
        const uint32_t gather = c->stages[at].buckets[b].gather;
        if (bucket->stage != in->stage || !ty_bucket_is_sharded(c->plan, bucket) ||
            !ty_program_overlaps(bucket, in))
            continue;
        TY_TRY(ty_program_require(c, at, index, gather, "the gather of its weights"));
        if (c->plan->zero == 3 &&
            ty_program_instruction(c, at, gather)->micro_batch != in->micro_batch)
            return ty_program_complain(c, at, index,
                                       "expected a gather of bucket %u for its micro-batch", b);
    }
    return TY_OK;
}

static ty_status check_forward(const checker *c, uint32_t at, uint32_t index, pass_places *pass)
{
    const ty_instruction *in = ty_program_instruction(c, at, index);
    const ty_plan_stage *own = &c->plan->stages[in->stage];
    const uint32_t end = in->first_layer + in->layer_count;
    const bool has_last = end == own->first_layer + own->layer_count;

    if (pass->forward_end != TY_NO_INSTRUCTION)
        return ty_program_complain(c, at, index, "is done already at instruction %u",
                                   pass->forward_end);
    if (in->first_layer != pass->forward_next)
        return ty_program_complain(c, at, index, "expected layer %u next", pass->forward_next);
    if (in->first_layer == own->first_layer && in->stage > 0) {
        TY_TRY(ty_program_require(c, at, index, pass->receives[TY_ACTIVATION],
                                  "the receive of its activation"));
    }
    if (stage_loads(c, in->stage) && ((in->first_layer == own->first_layer && in->stage == 0) ||
                                      (has_last && in->stage + 1 == c->plan->stage_count))) {
        TY_TRY(ty_program_require(c, at, index, pass->load, "the load of its data"));
    }
    pass->forward_next = end;
    if (has_last)
        pass->forward_end = index;
    return TY_OK;
}

static ty_status check_recompute(const checker *c, uint32_t at, uint32_t index,
                                 const pass_places *pass)
{
    const ty_instruction *in = ty_program_instruction(c, at, index);

    if (!ty_recompute_has_segments(c->plan->stages[in->stage].recompute))
        return ty_program_complain(c, at, index, "the plan does not recompute this stage");
    if (!ty_program_has_backward(c, in->stage))
        return ty_program_complain(c, at, index, "the stage has no backward to recompute for");
    if (pass->forward_end == TY_NO_INSTRUCTION)
        return ty_program_complain(c, at, index,
                                   "expected all forwards of the micro-batch before it");
    return TY_OK;
}

/* Instructions that must be done before the first part of a backward. */
static ty_status check_backward_start(const checker *c, uint32_t at, uint32_t index,
                                      const pass_places *pass)
{
    const ty_instruction *in = ty_program_instruction(c, at, index);

    if (pass->forward_end == TY_NO_INSTRUCTION)
        return ty_program_complain(c, at, index,
                                   "expected all forwards of the micro-batch before it");
    if (in->stage + 1 < c->plan->stage_count)
        return ty_program_require(c, at, index, pass->receives[TY_GRADIENT],
                                  "the receive of its gradient");
    return TY_OK;
}

/* Gradients of activations: backward, or its first part. */
static ty_status check_input_part(const checker *c, uint32_t at, uint32_t index, pass_places *pass)
{
    const ty_instruction *in = ty_program_instruction(c, at, index);
    const ty_plan_stage *own = &c->plan->stages[in->stage];
    ty_status status;

    if (pass->backward_end != TY_NO_INSTRUCTION)
        return ty_program_complain(c, at, index, "is done already at instruction %u",
                                   pass->backward_end);
    if (in->first_layer < ty_program_lowest_backward(c, in->stage))
        return ty_program_complain(c, at, index, "nothing before layer %u is trained",
                                   c->first_backward);
    if (in->first_layer + in->layer_count != pass->backward_next)
        return ty_program_complain(c, at, index, "expected layer %u next", pass->backward_next - 1);
    if (pass->backward_next == own->first_layer + own->layer_count &&
        (status = check_backward_start(c, at, index, pass)) != TY_OK)
        return status;
    pass->backward_next = in->first_layer;
    if (in->first_layer == ty_program_lowest_backward(c, in->stage))
        pass->backward_end = index;
    return TY_OK;
}

/* Gradients of weights: backward, or its second part, after the first part of the same layers. */
static ty_status check_weight_part(const checker *c, uint32_t at, uint32_t index, pass_places *pass)
{
    const ty_instruction *in = ty_program_instruction(c, at, index);
    uint32_t *last_backward = c->stages[at].last_backward;

    if (pass->weight_end != TY_NO_INSTRUCTION)
        return ty_program_complain(c, at, index, "is done already at instruction %u",
                                   pass->weight_end);
    if (in->first_layer + in->layer_count != pass->weight_next)
        return ty_program_complain(c, at, index, "expected layer %u next", pass->weight_next - 1);
    if (in->first_layer < pass->backward_next)
        return ty_program_complain(c, at, index, "expected backward_input of layer %u before it",
                                   in->first_layer);
    pass->weight_next = in->first_layer;
    if (in->first_layer == ty_program_lowest_backward(c, in->stage))
        pass->weight_end = index;
    for (uint32_t i = 0; i < in->layer_count; i++)
        if (last_backward[in->first_layer + i] <= c->stages[at].turns[index])
            last_backward[in->first_layer + i] = c->stages[at].turns[index] + 1;
    return TY_OK;
}

/* Weights are sent after all updates. */
static ty_status check_weights_send(const checker *c, uint32_t at, uint32_t index)
{
    for (uint32_t b = 0; b < c->plan->bucket_count; b++)
        TY_TRY(ty_program_require(c, at, index, c->stages[at].buckets[b].update,
                                  "the update of every bucket"));
    return TY_OK;
}

static ty_status check_send(const checker *c, uint32_t at, uint32_t index, pass_places *pass)
{
    const ty_direction direction = ty_program_instruction(c, at, index)->direction;
    const bool is_activation = direction == TY_ACTIVATION;

    TY_TRY(ty_program_note_once(c, at, index, &pass->sends[direction]));
    if (!is_activation && ty_plan_actors(c->plan) > 0)
        return check_weights_send(c, at, index);
    if (ty_plan_is_of_actors(c->plan, at))
        return ty_program_require(c, at, index, pass->load, "the load that makes it");
    return ty_program_require(c, at, index, is_activation ? pass->forward_end : pass->backward_end,
                              is_activation ? "the forward that makes it"
                                            : "the backward that makes it");
}

/* ---- Actors -------------------------------------------------------------------------------- */

/* Checks the messages with weights: begin uses those that arrive, and it is in the list before the
 * loads for a later step. */
static ty_status check_weights(const checker *c, uint32_t at)
{
    const bool receives = ty_plan_is_of_actors(c->plan, at);
    const uint32_t begin = c->stages[at].begin;
    const uint32_t messages = ty_plan_policy_messages(c->plan, at);

    if (ty_plan_actors(c->plan) == 0)
        return TY_OK;
    if (receives && begin == TY_NO_INSTRUCTION)
        return ty_program_complain_missing(c, at, "a begin with the weights");
    for (uint32_t m = 0; m < c->stages[at].micro_batches; m++) {
        const pass_places *pass = ty_program_pass(c, at, m);
        const uint32_t moved = receives ? pass->receives[TY_GRADIENT] : pass->sends[TY_GRADIENT];
        if ((moved != TY_NO_INSTRUCTION) != (m < messages))
            return ty_program_complain_missing(c, at,
                                               "%u messages with weights, those of "
                                               "micro-batches 0 to %u",
                                               messages, messages - 1);
        if (receives && m < messages)
            TY_TRY(ty_program_require(c, at, begin, moved, "the receive of its weights"));
        if (receives && pass->load < begin)
            return ty_program_complain(c, at, pass->load,
                                       "expected the begin, instruction %u, before it", begin);
    }
    return TY_OK;
}

/* ---- One pipeline rank --------------------------------------------------------------------------
 */

static ty_status check_pass_piece(const checker *c, uint32_t at, uint32_t index, pass_places *pass)
{
    const ty_op op = ty_program_instruction(c, at, index)->op;
    ty_status status = TY_OK;

    TY_TRY(check_gathered(c, at, index));
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
    const ty_instruction *in = ty_program_instruction(c, at, index);
    pass_places *pass;

    if (in->op == TY_OP_BEGIN) {
        if (c->stages[at].order[index] != 0)
            return ty_program_complain(c, at, index, "expected it at the head of its stream");
        return ty_program_note_once(c, at, index, &c->stages[at].begin);
    }
    if (ty_op_uses[in->op].is_bucket)
        return ty_program_bucket_note(c, at, index);
    pass = ty_program_pass(c, in->stage, in->micro_batch);
    if (ty_op_uses[in->op].is_pass)
        return check_pass_piece(c, at, index, pass);
    if (in->op == TY_OP_SEND)
        return check_send(c, at, index, pass);
    if (in->op == TY_OP_RECEIVE)
        return ty_program_note_once(c, at, index, &pass->receives[in->direction]);
    if (!stage_loads(c, in->stage))
        return ty_program_complain(c, at, index, "only the first and the last stage load");
    if (in->stream != ty_plan_load_stream(c->plan))
        return ty_program_complain(c, at, index, "expected stream \"%s\"",
                                   ty_stream_name(ty_plan_load_stream(c->plan)));
    return ty_program_note_once(c, at, index, &pass->load);
}

/* ---- Recomputation ------------------------------------------------------------------------- */

/* The one set of activations inside a stage that recomputes, as a replica runs through the list:
 * the layers of one segment, or the first of them, for one micro-batch of one step. */
typedef struct working_set {
    uint32_t micro_batch, lead;
    uint32_t first, end; /* empty if they are equal */
} working_set;

static bool holds(const working_set *set, const ty_instruction *in)
{
    return set->micro_batch == in->micro_batch && set->lead == in->lead &&
           in->first_layer >= set->first && in->first_layer + in->layer_count <= set->end;
}

/* A forward leaves its last segment, if backward may use it; a recompute computes one, possibly in
 * parts. */
static ty_status set_make(const checker *c, uint32_t at, uint32_t index, uint32_t segment,
                          working_set *set)
{
    const ty_instruction *in = ty_program_instruction(c, at, index);
    const uint32_t end = in->first_layer + in->layer_count;
    const bool goes_on = set->micro_batch == in->micro_batch && set->lead == in->lead &&
                         set->first == segment && set->end == in->first_layer;

    if (in->op == TY_OP_FORWARD && !ty_plan_forward_serves_backward(c->plan, in->stage)) {
        *set = (working_set){0};
        return TY_OK;
    }
    if (in->op == TY_OP_RECOMPUTE && holds(set, in))
        return ty_program_complain(c, at, index, "its layers are still there from before");
    if (in->op == TY_OP_RECOMPUTE && !goes_on && in->first_layer != segment)
        return ty_program_complain(c, at, index,
                                   "found layer %u, expected each layer of the segment from layer "
                                   "%u on, once and in order",
                                   in->first_layer, segment);
    if (goes_on && in->first_layer > segment)
        set->end = end;
    else if (in->first_layer <= segment)
        *set = (working_set){in->micro_batch, in->lead, segment, end};
    else
        *set = (working_set){0};
    return TY_OK;
}

/* Every backward has the activations of its layers. Streams run in the order of the list, so this
 * checks that order. */
static ty_status check_segments(const checker *c, uint32_t at, uint32_t stage, uint32_t *starts)
{
    const ty_stage_program *list = &c->program->stages[at];
    const uint32_t count = ty_plan_segments(c->plan, stage, starts);
    working_set set = {0};
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < list->instruction_count && count > 0 && status == TY_OK; i++) {
        const ty_instruction *in = &list->instructions[i];
        uint32_t segment = count - 1;

        if (in->stage != stage || !ty_op_uses[in->op].is_pass)
            continue;
        while (starts[segment] >= in->first_layer + in->layer_count)
            segment--;
        if (in->op == TY_OP_FORWARD || in->op == TY_OP_RECOMPUTE)
            status = set_make(c, at, i, starts[segment], &set);
        else if (!holds(&set, in))
            return ty_program_complain(
                c, at, i, "expected a recompute of its segment, from layer %u on, just before it",
                starts[segment]);
    }
    return status;
}

static ty_status check_recomputing(const checker *c, uint32_t at)
{
    uint32_t *starts = ty_alloc(c->plan->workload->layer_count, sizeof *starts);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(starts != NULL, c->error));
    for (uint32_t s = at; s < c->plan->stage_count && status == TY_OK; s += c->pipeline_size)
        status = check_segments(c, at, s, starts);
    ty_free(starts);
    return status;
}

/* Checks that nothing of a micro-batch is missing. */
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
        {!is_last && ty_program_has_gradient_before(c, stage + 1), pass->receives[TY_GRADIENT],
         "a receive of the gradient"},
        {ty_program_has_gradient_before(c, stage), pass->sends[TY_GRADIENT],
         "a send of the gradient"},
    };

    if (!ty_plan_is_of_actors(c->plan, stage) && pass->forward_end == TY_NO_INSTRUCTION)
        return ty_program_complain_missing(c, at, "a forward of layer %u for micro-batch %u",
                                           pass->forward_next, micro_batch);
    if (ty_program_has_backward(c, stage) && pass->backward_end == TY_NO_INSTRUCTION)
        return ty_program_complain_missing(c, at, "a backward of layer %u for micro-batch %u",
                                           pass->backward_next - 1, micro_batch);
    if (ty_program_has_backward(c, stage) && pass->weight_end == TY_NO_INSTRUCTION)
        return ty_program_complain_missing(c, at,
                                           "a backward_weight of layer %u for micro-batch %u",
                                           pass->weight_next - 1, micro_batch);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].is_needed && parts[i].place == TY_NO_INSTRUCTION)
            return ty_program_complain_missing(c, at, "%s of micro-batch %u, to match stage %u",
                                               parts[i].what, micro_batch,
                                               i == 0 || i == 3 ? stage - 1 : stage + 1);
    return TY_OK;
}

static ty_status check_all_there(const checker *c, uint32_t at)
{
    for (uint32_t s = at; s < c->plan->stage_count; s += c->pipeline_size) {
        for (uint32_t m = 0; m < c->stages[at].micro_batches; m++)
            TY_TRY(check_pass(c, at, s, m));
        for (uint32_t b = 0; b < c->plan->bucket_count; b++)
            if (ty_bucket_is_of_stage(&c->plan->buckets[b], s))
                TY_TRY(ty_program_bucket_check(c, at, b));
    }
    return TY_OK;
}

static ty_status check_pipeline_rank(const checker *c, uint32_t at)
{
    const ty_stage_program *s = &c->program->stages[at];
    const stage_facts *f = &c->stages[at];
    uint32_t last[TY_STREAM_COUNT];

    for (uint32_t i = 0; i < s->instruction_count; i++)
        TY_TRY(ty_instruction_check(c, at, i));
    set_sequence(c, at);
    set_streams(c, at);
    for (int i = 0; i < TY_STREAM_COUNT; i++)
        last[i] = TY_NO_INSTRUCTION;
    for (uint32_t turn = 0; turn < s->instruction_count; turn++) {
        set_clock(c, at, f->sequence[turn], last);
        TY_TRY(check_instruction(c, at, f->sequence[turn]));
    }
    TY_TRY(check_recomputing(c, at));
    TY_TRY(ty_program_check_order(c, at));
    TY_TRY(check_weights(c, at));
    return check_all_there(c, at);
}

/* ---- All ----------------------------------------------------------------------------------- */

static void passes_clear(const checker *c, uint32_t at)
{
    const uint32_t none = TY_NO_INSTRUCTION;

    for (uint32_t s = at; s < c->plan->stage_count; s += c->pipeline_size)
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
                .backward_next = end,
                .weight_next = end,
            };
        }
}

static ty_status facts_new(const checker *c, uint32_t at)
{
    stage_facts *f = &c->stages[at];
    const uint32_t none = TY_NO_INSTRUCTION, virtual_stages = ty_plan_virtual_stages(c->plan);
    const uint32_t count = c->program->stages[at].instruction_count;

    f->begin = none;
    f->micro_batches = c->plan->micro_batches / c->plan->stages[at].replicas;
    f->lead = ty_program_lead(c->program, at);
    if ((ty_program_has_backward(c, at) ? count / 2 : count) / virtual_stages <
        f->micro_batches) /* before the allocation */
        return ty_program_complain_missing(c, at, "a forward%s for each of %u micro-batches",
                                           ty_program_has_backward(c, at) ? " and a backward" : "",
                                           f->micro_batches);
    f->sequence = ty_alloc(count, sizeof *f->sequence);
    f->turns = ty_alloc(count, sizeof *f->turns);
    f->order = ty_alloc(count, sizeof *f->order);
    f->clocks = ty_alloc(count, TY_STREAM_COUNT * sizeof *f->clocks);
    f->last_backward = ty_alloc(c->plan->workload->layer_count, sizeof *f->last_backward);
    f->passes = ty_alloc((size_t)f->micro_batches * virtual_stages, sizeof *f->passes);
    f->buckets = ty_alloc(c->plan->bucket_count, sizeof *f->buckets);
    for (int i = 0; i < TY_STREAM_COUNT; i++)
        TY_TRY(ty_check_memory((f->streams[i] = ty_alloc(count, sizeof **f->streams)) != NULL,
                               c->error));
    TY_TRY(ty_check_memory(f->sequence != NULL && f->turns != NULL && f->order != NULL &&
                               f->clocks != NULL && f->last_backward != NULL && f->passes != NULL &&
                               f->buckets != NULL,
                           c->error));
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

    TY_TRY(ty_plan_digest(c->plan, &digest, c->error));
    if (strcmp(digest.hex, c->program->plan_digest.hex) != 0)
        return ty_fail(c->error, TY_EPARSE,
                       "%s/plan_digest: found %.12s..., this program was lowered from another "
                       "plan (digest %.12s...)",
                       c->place, c->program->plan_digest.hex, digest.hex);
    if (c->program->stage_count != c->pipeline_size)
        return ty_fail(c->error, TY_EPARSE, "%s/stages: found %u, expected the plan's %u", c->place,
                       c->program->stage_count, c->pipeline_size);
    return TY_OK;
}

ty_status ty_program_check_at(const ty_plan *plan, const ty_program *program, const char *place,
                              ty_error *error)
{
    ty_status status = TY_OK;
    checker c = {.plan = plan,
                 .program = program,
                 .place = place,
                 .pipeline_size = ty_plan_pipeline_size(plan),
                 .first_backward = ty_workload_first_backward(plan->workload),
                 .error = error};

    TY_CHECK(check_origin(&c), status, cleanup);
    c.stages = ty_alloc(c.pipeline_size, sizeof *c.stages);
    TY_TRY(ty_check_memory(c.stages != NULL, error));
    for (uint32_t p = 0; p < c.pipeline_size; p++) {
        TY_CHECK(facts_new(&c, p), status, cleanup);
        TY_CHECK(check_pipeline_rank(&c, p), status, cleanup);
    }
    status = ty_program_walk(&c);

cleanup:
    for (uint32_t p = 0; c.stages != NULL && p < c.pipeline_size; p++)
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
