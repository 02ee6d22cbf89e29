/* The readable listing of a program: `trainyard estimate --program`. */
#include "ty_program.h"

#include <stdio.h>

/* "layers 3-7 (conv2 .. relu3)" */
static void print_layers(const ty_plan *plan, const ty_instruction *in, ty_text *text)
{
    const ty_layer *layers = plan->workload->layers;
    const uint32_t first = in->first_layer, last = first + in->layer_count - 1;

    if (in->layer_count == 0)
        return;
    if (in->layer_count == 1)
        ty_text_addf(text, "  layer %u (%s)", first, layers[first].name);
    else
        ty_text_addf(text, "  layers %u-%u (%s .. %s)", first, last, layers[first].name,
                     layers[last].name);
}

static void print_bucket(const ty_plan *plan, const ty_instruction *in, ty_text *text)
{
    const ty_bucket *bucket = &plan->buckets[in->bucket];

    ty_text_addf(text, "  bucket %u", in->bucket);
    if (in->op == TY_OP_COLLECTIVE)
        ty_text_addf(text, "  %s %s of %u", ty_algorithm_name(bucket->algorithm),
                     ty_collective_name(ty_plan_exchange_kind(plan, bucket, in->phase)),
                     ty_bucket_device_count(plan, bucket));
    else if (in->op == TY_OP_ENCODE || in->op == TY_OP_DECODE) {
        ty_text_add(text, "  ");
        ty_compression_text(&bucket->compression, text);
    }
    if (ty_compression_phases(&bucket->compression) > 1 &&
        (in->op == TY_OP_ENCODE || in->op == TY_OP_COLLECTIVE))
        ty_text_addf(text, "  phase %u", in->phase);
}

static void print_instruction(const ty_plan *plan, uint32_t index, const ty_instruction *in,
                              ty_text *text)
{
    char bytes[32];

    ty_text_addf(text, "%6u  %-10s %-10s", index, ty_stream_name(in->stream), ty_op_name(in->op));
    if (ty_plan_virtual_stages(plan) > 1 && in->stage != TY_NO_STAGE)
        ty_text_addf(text, "  stage %u", in->stage);
    if (in->lead > 0)
        ty_text_addf(text, "  %u step%s ahead", in->lead, in->lead == 1 ? "" : "s");
    if (in->micro_batch != TY_NO_MICRO_BATCH)
        ty_text_addf(text, "  micro-batch %u", in->micro_batch);
    if (in->bucket != TY_NO_BUCKET)
        print_bucket(plan, in, text);
    if (in->peer_stage != TY_NO_STAGE)
        ty_text_addf(text, "  %s %s stage %u", ty_direction_name(in->direction),
                     in->op == TY_OP_SEND ? "to" : "from", in->peer_stage);
    print_layers(plan, in, text);
    if (in->bytes > 0) {
        ty_format_bytes((double)in->bytes, bytes);
        ty_text_addf(text, "  %s", bytes);
    }
    for (uint32_t w = 0; w < in->wait_count; w++)
        ty_text_addf(text, "%s%u", w == 0 ? "  after " : ", ", in->waits[w]);
    ty_text_add(text, "\n");
}

static void print_pipeline_rank(const ty_plan *plan, const ty_program *program,
                                uint32_t pipeline_rank, ty_text *text)
{
    const ty_plan_stage *stage = &plan->stages[pipeline_rank];
    const uint32_t first_replica = ty_plan_first_replica(plan, pipeline_rank);
    const uint32_t local = plan->micro_batches / stage->replicas;

    ty_text_addf(text, "stage %u", pipeline_rank);
    for (uint32_t s = pipeline_rank + program->stage_count; s < plan->stage_count;
         s += program->stage_count)
        ty_text_addf(text, ", %u", s);
    if (stage->replicas == 1)
        ty_text_addf(text, ": stage replica %u", first_replica);
    else
        ty_text_addf(text, ": stage replicas %u-%u", first_replica,
                     first_replica + stage->replicas - 1);
    if (ty_plan_replica_ranks(plan) > 1)
        ty_text_addf(text, " of %u devices", ty_plan_replica_ranks(plan));
    if (ty_plan_is_of_actors(plan, pipeline_rank)) {
        ty_text_addf(text, ", actors, %u micro-batch%s of %u each\n", local, local == 1 ? "" : "es",
                     plan->micro_batch_size);
        return;
    }
    for (uint32_t s = pipeline_rank; s < plan->stage_count; s += program->stage_count)
        ty_text_addf(text, "%s %u-%u", s == pipeline_rank ? ", layers" : " and",
                     plan->stages[s].first_layer,
                     plan->stages[s].first_layer + plan->stages[s].layer_count - 1);
    ty_text_addf(text, ", %u micro-batch%s of %u each, at most %u in flight\n", local,
                 local == 1 ? "" : "es", plan->micro_batch_size,
                 ty_program_peak_in_flight(program, pipeline_rank));
}

void ty_program_print(const ty_plan *plan, const ty_program *program, ty_text *text)
{
    for (uint32_t s = 0; s < program->stage_count; s++) {
        print_pipeline_rank(plan, program, s, text);
        for (uint32_t i = 0; i < program->stages[s].instruction_count; i++)
            print_instruction(plan, i, &program->stages[s].instructions[i], text);
    }
}
