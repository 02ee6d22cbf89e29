/* Checks of a pipeline rank's instructions for its buckets. */
#include "program_check.h"

typedef program_checker checker;

/* A gather has the weights of the previous step. */
static ty_status note_gather(const checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = ty_program_instruction(c, at, index);
    uint32_t *place = &c->stages[at].buckets[in->bucket].gather;

    if (!ty_bucket_is_sharded(c->plan, &c->plan->buckets[in->bucket]))
        return ty_program_complain(c, at, index, "the bucket is not sharded");
    if (c->plan->zero < 3 && *place != TY_NO_INSTRUCTION)
        return ty_program_complain(c, at, index, "is already instruction %u", *place);
    *place = index;
    return ty_program_require(c, at, index, c->stages[at].begin, "the begin of the step");
}

ty_status ty_program_bucket_note(const checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = ty_program_instruction(c, at, index);
    const ty_bucket *bucket = &c->plan->buckets[in->bucket];
    bucket_places *places = &c->stages[at].buckets[in->bucket];

    if (in->op == TY_OP_UPDATE)
        return ty_program_note_once(c, at, index, &places->update);
    if (in->op == TY_OP_GATHER)
        return note_gather(c, at, index);
    if (ty_bucket_device_count(c->plan, bucket) == 1)
        return ty_program_complain(c, at, index, "the bucket has one member and is not exchanged");
    if (in->op == TY_OP_COLLECTIVE)
        return ty_program_note_once(c, at, index, &places->collectives[in->phase]);
    if (bucket->compression.kind == TY_COMPRESSION_NONE)
        return ty_program_complain(c, at, index, "the bucket is not compressed");
    return ty_program_note_once(
        c, at, index, in->op == TY_OP_ENCODE ? &places->encodes[in->phase] : &places->decode);
}

/* Whether the backward of a layer of `stage` adds to a bucket: by its own parameters, or by those
   of the layer it is tied to. */
static bool adds_to(const ty_plan *plan, uint32_t stage, uint32_t layer, const ty_bucket *bucket)
{
    const ty_workload *w = plan->workload;
    const ty_layer *l = &w->layers[layer];

    if (bucket->of_experts)
        return ty_bucket_has_layer(bucket, layer) && ty_layer_expert_elements(plan, layer) > 0 &&
               !l->is_frozen;
    if (bucket->stage == stage && ty_bucket_has_layer(bucket, layer) && l->parameter_bytes > 0 &&
        !l->is_frozen)
        return true;
    return l->tied_to != TY_NO_LAYER && ty_bucket_has_layer(bucket, l->tied_to) &&
           !w->layers[l->tied_to].is_frozen;
}

/* The last instruction of a pipeline rank that adds to a bucket, or TY_NO_INSTRUCTION. */
static uint32_t last_backward_of(const checker *c, uint32_t at, const ty_bucket *bucket)
{
    const stage_facts *f = &c->stages[at];
    uint32_t last = 0;

    for (uint32_t s = at; s < c->plan->stage_count; s += c->pipeline_size) {
        const ty_plan_stage *own = &c->plan->stages[s];
        for (uint32_t l = own->first_layer; l < own->first_layer + own->layer_count; l++)
            if (f->last_backward[l] > last && adds_to(c->plan, s, l, bucket))
                last = f->last_backward[l];
    }
    return last > 0 ? f->sequence[last - 1] : TY_NO_INSTRUCTION;
}

/* The last instruction whose result a bucket's collective sends; in evolution, scores of
 * forward. */
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

ty_status ty_program_bucket_check(const checker *c, uint32_t at, uint32_t index)
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

    for (size_t i = is_exchanged ? 0 : last; i <= last; i++) {
        if (!chain[i].is_needed)
            continue;
        if (chain[i].place == TY_NO_INSTRUCTION)
            return ty_program_complain_missing(c, at, "one %s of bucket %u%s, found none",
                                               ty_op_name(chain[i].op), index,
                                               i == 2 || i == 3 ? " in phase 1" : "");
        TY_TRY(ty_program_require(c, at, chain[i].place, before, name));
        before = chain[i].place;
        name = chain[i].name;
    }
    return TY_OK;
}
