/* Programs: building, and queries of all readers. The proof is in program_check.c, the file in
 * program_json.c, the listing in program_print.c. */
#include "ty_program.h"

#include "ty_base.h"

#include <assert.h>
#include <string.h>

static const struct {
    const char *name;
    ty_stream stream;
} ops[TY_OP_COUNT] = {
    [TY_OP_BEGIN] = {"begin", TY_STREAM_COMPUTE},
    [TY_OP_LOAD] = {"load", TY_STREAM_INPUT},
    [TY_OP_FORWARD] = {"forward", TY_STREAM_COMPUTE},
    [TY_OP_RECOMPUTE] = {"recompute", TY_STREAM_COMPUTE},
    [TY_OP_BACKWARD] = {"backward", TY_STREAM_COMPUTE},
    [TY_OP_BACKWARD_INPUT] = {"backward_input", TY_STREAM_COMPUTE},
    [TY_OP_BACKWARD_WEIGHT] = {"backward_weight", TY_STREAM_COMPUTE},
    [TY_OP_SEND] = {"send", TY_STREAM_SEND},
    [TY_OP_RECEIVE] = {"receive", TY_STREAM_RECEIVE},
    [TY_OP_ENCODE] = {"encode", TY_STREAM_COLLECTIVE},
    [TY_OP_COLLECTIVE] = {"collective", TY_STREAM_COLLECTIVE},
    [TY_OP_DECODE] = {"decode", TY_STREAM_COLLECTIVE},
    [TY_OP_UPDATE] = {"update", TY_STREAM_COMPUTE},
    [TY_OP_GATHER] = {"gather", TY_STREAM_COLLECTIVE},
};

const char *ty_op_name(ty_op op)
{
    return (unsigned)op < TY_OP_COUNT ? ops[op].name : "unknown";
}

ty_stream ty_op_stream(ty_op op)
{
    assert((unsigned)op < TY_OP_COUNT);
    return ops[op].stream;
}

bool ty_op_runs_in(ty_op op, ty_stream stream)
{
    return stream == ty_op_stream(op) || (op == TY_OP_LOAD && stream == TY_STREAM_COMPUTE);
}

ty_stream ty_plan_load_stream(const ty_plan *plan)
{
    const bool is_made = plan->workload->learning == TY_LEARNING_REINFORCEMENT;

    return is_made ? TY_STREAM_COMPUTE : TY_STREAM_INPUT;
}

const char *ty_stream_name(ty_stream stream)
{
    static const char *const names[TY_STREAM_COUNT] = {
        [TY_STREAM_COMPUTE] = "compute", [TY_STREAM_SEND] = "send",
        [TY_STREAM_RECEIVE] = "receive", [TY_STREAM_COLLECTIVE] = "collective",
        [TY_STREAM_INPUT] = "input",
    };
    return (unsigned)stream < TY_STREAM_COUNT ? names[stream] : "unknown";
}

const char *ty_direction_name(ty_direction direction)
{
    static const char *const names[] = {
        [TY_NO_DIRECTION] = "none",
        [TY_ACTIVATION] = "activation",
        [TY_GRADIENT] = "gradient",
    };
    return (unsigned)direction < sizeof names / sizeof names[0] ? names[direction] : "unknown";
}

uint32_t ty_direction_way(ty_direction direction)
{
    return direction != TY_ACTIVATION;
}

/* ---- Building ------------------------------------------------------------------------------ */

ty_instruction ty_instruction_of(ty_op op)
{
    return (ty_instruction){.op = op,
                            .stream = ty_op_stream(op),
                            .stage = TY_NO_STAGE,
                            .micro_batch = TY_NO_MICRO_BATCH,
                            .bucket = TY_NO_BUCKET,
                            .peer_stage = TY_NO_STAGE};
}

ty_status ty_program_new(const ty_plan *plan, ty_program **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_program *program = ty_alloc(1, sizeof *program);

    TY_TRY(ty_check_memory(program != NULL, error));
    program->stage_count = ty_plan_pipeline_size(plan);
    program->stages = ty_alloc(program->stage_count, sizeof *program->stages);
    TY_CHECK(ty_check_memory(program->stages != NULL, error), status, cleanup);
    TY_CHECK(ty_plan_digest(plan, &program->plan_digest, error), status, cleanup);
    *out = program;
    program = NULL;

cleanup:
    ty_program_free(program);
    return status;
}

/* Capacity doubles at 16, 32, 64 ...: the count alone determines when. */
static ty_status stage_grow(ty_stage_program *stage, ty_error *error)
{
    const uint32_t count = stage->instruction_count;
    ty_instruction *grown;

    if (count == TY_NO_INSTRUCTION / 2)
        return ty_fail(error, TY_ENOMEM, "a stage program has too many instructions");
    if (count != 0 && (count < 16 || (count & (count - 1)) != 0))
        return TY_OK;
    grown = ty_resize(stage->instructions, count == 0 ? 16 : (size_t)count * 2, sizeof *grown);
    TY_TRY(ty_check_memory(grown != NULL, error));
    stage->instructions = grown;
    return TY_OK;
}

ty_status ty_program_append(ty_program *program, uint32_t stage, const ty_instruction *instruction,
                            const uint32_t *waits, uint32_t wait_count, uint32_t *index,
                            ty_error *error)
{
    ty_stage_program *s;
    ty_instruction *added;
    uint32_t *kept = NULL;
    uint32_t kept_count = 0;

    if (stage >= program->stage_count)
        return ty_fail(error, TY_EINVAL, "stage %u of a program of %u stages", stage,
                       program->stage_count);
    s = &program->stages[stage];
    for (uint32_t i = 0; i < wait_count; i++) {
        if (waits[i] == TY_NO_INSTRUCTION)
            continue;
        if (waits[i] >= s->instruction_count)
            return ty_fail(error, TY_EINVAL, "stage %u: instruction %u cannot wait for %u", stage,
                           s->instruction_count, waits[i]);
        kept_count++;
    }
    TY_TRY(stage_grow(s, error));
    if (kept_count > 0) {
        kept = ty_alloc(kept_count, sizeof *kept);
        TY_TRY(ty_check_memory(kept != NULL, error));
        kept_count = 0;
        for (uint32_t i = 0; i < wait_count; i++)
            if (waits[i] != TY_NO_INSTRUCTION)
                kept[kept_count++] = waits[i];
    }
    added = &s->instructions[s->instruction_count];
    *added = *instruction;
    if (added->stage == TY_NO_STAGE && added->op != TY_OP_BEGIN)
        added->stage = stage;
    added->waits = kept;
    added->wait_count = kept_count;
    if (index != NULL)
        *index = s->instruction_count;
    s->instruction_count++;
    return TY_OK;
}

void ty_program_free(ty_program *program)
{
    if (program == NULL)
        return;
    for (uint32_t s = 0; program->stages != NULL && s < program->stage_count; s++) {
        for (uint32_t i = 0; i < program->stages[s].instruction_count; i++)
            ty_free(program->stages[s].instructions[i].waits);
        ty_free(program->stages[s].instructions);
    }
    ty_free(program->stages);
    ty_free(program);
}

/* ---- Queries ------------------------------------------------------------------------------- */

uint64_t ty_program_event_count(const ty_plan *plan, const ty_program *program)
{
    uint64_t count = 0;
    for (uint32_t s = 0; s < program->stage_count; s++) /* the first stages of all pipeline ranks */
        count += (uint64_t)plan->stages[s].replicas * program->stages[s].instruction_count;
    return count;
}

uint32_t ty_program_last_pass(const ty_stage_program *program, uint32_t load)
{
    const ty_instruction *of = &program->instructions[load];

    for (uint32_t i = program->instruction_count; i-- > load;) {
        const ty_instruction *pass = &program->instructions[i];
        if (pass->stream == TY_STREAM_COMPUTE && pass->stage == of->stage &&
            pass->micro_batch == of->micro_batch)
            return i;
    }
    return load;
}

uint32_t ty_program_lead(const ty_program *program, uint32_t pipeline_rank)
{
    const ty_stage_program *s = &program->stages[pipeline_rank];
    uint32_t lead = 0;

    for (uint32_t i = 0; i < s->instruction_count; i++)
        if (s->instructions[i].lead > lead)
            lead = s->instructions[i].lead;
    return lead;
}

uint32_t ty_program_stashed_versions(const ty_program *program, ty_schedule schedule,
                                     uint32_t pipeline_rank)
{
    const bool counts = ty_schedule_at(schedule)->versions == TY_WEIGHTS_IN_FLIGHT;

    return ty_schedule_stashed_versions(schedule,
                                        counts ? ty_program_lead(program, pipeline_rank) : 0);
}

uint32_t ty_program_largest_lead(const ty_program *program)
{
    uint32_t largest = 0;

    for (uint32_t p = 0; p < program->stage_count; p++) {
        const uint32_t lead = ty_program_lead(program, p);
        largest = lead > largest ? lead : largest;
    }
    return largest;
}

/* The lowest layers that the list of a pipeline rank computes forward and backward for one of its
   stages; UINT32_MAX: none. */
typedef struct lowest_layers {
    uint32_t forward, backward;
} lowest_layers;

static bool ends_stash(ty_op op)
{
    return op == TY_OP_BACKWARD || op == TY_OP_BACKWARD_WEIGHT;
}

static lowest_layers lowest_layers_of(const ty_stage_program *s, uint32_t stage)
{
    lowest_layers lowest = {UINT32_MAX, UINT32_MAX};

    for (uint32_t i = 0; i < s->instruction_count; i++) {
        const ty_instruction *in = &s->instructions[i];
        if (in->stage != stage)
            continue;
        if (in->op == TY_OP_FORWARD && in->first_layer < lowest.forward)
            lowest.forward = in->first_layer;
        if (ends_stash(in->op) && in->first_layer < lowest.backward)
            lowest.backward = in->first_layer;
    }
    return lowest;
}

/* Change in the live stashes: +1, -1 or 0. The stash of a micro-batch is live from the first part
 * of its forward, with the stage's first layer, to the last part of its backward, with the lowest
 * layer. In a backward of two parts, the weights' part counts. */
static int stash_change(const ty_instruction *in, lowest_layers lowest)
{
    if (in->op == TY_OP_FORWARD)
        return in->first_layer == lowest.forward;
    return ends_stash(in->op) && in->first_layer == lowest.backward ? -1 : 0;
}

/* Virtual stages whose lowest layers are looked up once; with more, at every instruction.
 */
#define KNOWN_STAGES 64

static uint32_t stages_of(const ty_program *program, uint32_t pipeline_rank)
{
    const ty_stage_program *s = &program->stages[pipeline_rank];
    uint32_t most = 0;

    for (uint32_t i = 0; i < s->instruction_count; i++)
        if (s->instructions[i].op == TY_OP_FORWARD &&
            s->instructions[i].stage / program->stage_count >= most)
            most = s->instructions[i].stage / program->stage_count + 1;
    return most;
}

/* If steps overlap, stashes of several rounds are live, so this covers enough rounds to fill the
 * pipeline. Without backward, for frozen layers, a stash ends with the forward. */
double ty_program_peak_stash(const ty_program *program, uint32_t pipeline_rank,
                             const double *weights)
{
    const ty_stage_program *s = &program->stages[pipeline_rank];
    const uint32_t lead = ty_program_lead(program, pipeline_rank);
    const uint32_t stages = stages_of(program, pipeline_rank);
    lowest_layers known[KNOWN_STAGES], lowest;
    double alive = 0, peak = 0;

    if (stages == 1)
        return ty_program_peak_in_flight(program, pipeline_rank) * weights[0];
    for (uint32_t local = 0; local < KNOWN_STAGES && local < stages; local++)
        known[local] = lowest_layers_of(s, pipeline_rank + local * program->stage_count);
    for (uint32_t round = 0; round <= lead; round++)
        for (uint32_t i = 0; i < s->instruction_count; i++) {
            const ty_instruction *in = &s->instructions[i];
            const uint32_t local = in->stage / program->stage_count;
            double change;
            if (round + in->lead < lead || (in->op != TY_OP_FORWARD && !ends_stash(in->op)))
                continue;
            lowest = local < KNOWN_STAGES ? known[local] : lowest_layers_of(s, in->stage);
            change = stash_change(in, lowest) * weights[local];
            alive += change;
            peak = alive > peak ? alive : peak;
            if (change > 0 && lowest.backward == UINT32_MAX)
                alive -= change;
        }
    return peak;
}

int ty_program_stash_change(const ty_stage_program *program, uint32_t instruction)
{
    const ty_instruction *in = &program->instructions[instruction];
    return in->op == TY_OP_FORWARD || ends_stash(in->op)
               ? stash_change(in, lowest_layers_of(program, in->stage))
               : 0;
}

uint32_t ty_program_peak_in_flight(const ty_program *program, uint32_t stage)
{
    const uint32_t pipeline_rank = stage % program->stage_count;
    const ty_stage_program *s = &program->stages[pipeline_rank];
    const uint32_t lead = ty_program_lead(program, pipeline_rank);
    const lowest_layers lowest = lowest_layers_of(s, stage);
    uint32_t alive = 0, peak = 0;

    if (lowest.backward == UINT32_MAX)
        return lowest.forward == UINT32_MAX ? 0 : 1;
    for (uint32_t round = 0; round <= lead; round++)
        for (uint32_t i = 0; i < s->instruction_count; i++) {
            const ty_instruction *in = &s->instructions[i];
            if (in->stage != stage || round + in->lead < lead)
                continue;
            if (stash_change(in, lowest) > 0 && ++alive > peak)
                peak = alive;
            else if (stash_change(in, lowest) < 0 && alive > 0)
                alive--;
        }
    return peak + s->more_in_flight;
}

/* Bytes per rank, from the bytes per sample that cross the cut before `layer`, produced by `first`
 * and later layers: its shard of scores over a sharded vocabulary, which only the loss reads. With
 * sequence parallelism, its shard of the sequence for other tensors. */
static uint64_t transfer_bytes(const ty_plan *plan, uint32_t first, uint32_t layer, uint64_t bytes)
{
    const ty_workload *w = plan->workload;
    const ty_layer *loss = &w->layers[w->layer_count - 1];
    const uint64_t ranks = ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL);
    uint64_t scores = 0;

    for (uint32_t k = 0; ranks > 1 && k < loss->input_count; k++) {
        const uint32_t made_by = loss->inputs[k];
        if (made_by < first || made_by >= layer ||
            ty_layer_tensor_split(w, made_by) != TY_SPLIT_VOCABULARY)
            continue;
        bytes -= w->layers[made_by].output_bytes;
        scores += ty_layer_rank_bytes(plan, made_by);
    }
    return ty_rank_bytes(plan, (plan->sequence_parallel ? bytes / ranks : bytes) + scores);
}

uint64_t ty_plan_transfer_bytes(const ty_plan *plan, uint32_t stage, ty_direction direction)
{
    const ty_workload *w = plan->workload;
    const uint32_t layer = plan->stages[stage].first_layer;

    if (stage == ty_plan_first_stage(plan)) {
        if (direction == TY_GRADIENT)
            return ty_plan_policy_bytes(plan);
        return stage > 0 ? plan->micro_batch_size * ty_workload_episode_bytes(w) : 0;
    }
    if (direction == TY_GRADIENT)
        return transfer_bytes(plan, ty_workload_first_backward(w), layer,
                              ty_workload_cut_gradient_bytes(w, layer));
    return transfer_bytes(plan, 0, layer, ty_workload_cut_bytes(w, layer));
}

uint64_t ty_bucket_gather_bytes(const ty_plan *plan, const ty_bucket *bucket)
{
    const uint64_t elements = bucket->gradient_bytes / TY_GRADIENT_ELEMENT_BYTES;
    const uint32_t members = ty_bucket_device_count(plan, bucket);
    return (elements + members - 1) / members * plan->workload->element_bytes;
}

uint32_t ty_program_global_micro_batch(const ty_plan *plan, uint32_t stage, uint32_t replica,
                                       uint32_t micro_batch)
{
    return micro_batch * plan->stages[stage].replicas + replica;
}

uint32_t ty_program_peer_replica(const ty_plan *plan, uint32_t stage_replica,
                                 const ty_instruction *instruction)
{
    uint32_t stage = ty_plan_stage_of_replica(plan, stage_replica);
    uint32_t global = ty_program_global_micro_batch(
        plan, stage, stage_replica - ty_plan_first_replica(plan, stage), instruction->micro_batch);

    assert(instruction->peer_stage < plan->stage_count);
    return ty_plan_first_replica(plan, instruction->peer_stage) +
           global % plan->stages[instruction->peer_stage].replicas;
}
