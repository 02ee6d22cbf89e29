/* The proof of a program with an `exchange_order`: buckets are reduced in that order, and no
 * forward of the next step runs before its layers are updated. */
#include "program_check.h"

typedef program_checker checker;

/* A forward comes after the updates of all its weights, in the order of the compute stream. */
static ty_status check_updated(const checker *c, uint32_t at, uint32_t index)
{
    const ty_instruction *in = ty_program_instruction(c, at, index);
    const ty_workload *w = c->plan->workload;

    for (uint32_t b = 0; b < c->plan->bucket_count; b++) {
        const ty_bucket *bucket = &c->plan->buckets[b];
        const uint32_t update = c->stages[at].buckets[b].update;
        bool reads = ty_program_overlaps(bucket, in);
        for (uint32_t l = in->first_layer; l < in->first_layer + in->layer_count && !reads; l++)
            reads = w->layers[l].tied_to != TY_NO_LAYER &&
                    ty_bucket_has_layer(bucket, w->layers[l].tied_to);
        if (reads && update != TY_NO_INSTRUCTION && update > index)
            return ty_program_complain(
                c, at, index, "expected the update of bucket %u, instruction %u, before it", b,
                update);
    }
    return TY_OK;
}

ty_status ty_program_check_order(const program_checker *c, uint32_t at)
{
    const ty_stage_program *list = &c->program->stages[at];
    const ty_plan *plan = c->plan;
    uint32_t met = 0;
    ty_status status = TY_OK;

    if (plan->exchange_order == NULL)
        return TY_OK;
    for (uint32_t i = 0; i < list->instruction_count && status == TY_OK; i++) {
        const ty_instruction *in = &list->instructions[i];
        if (in->op == TY_OP_FORWARD)
            status = check_updated(c, at, i);
        if (in->stream != TY_STREAM_COLLECTIVE ||
            (met > 0 && in->bucket == plan->exchange_order[met - 1]))
            continue;
        if (met == plan->bucket_count || in->bucket != plan->exchange_order[met])
            return ty_program_complain(c, at, i, "expected the exchange of bucket %u next",
                                       plan->exchange_order[met < plan->bucket_count ? met : 0]);
        met++;
    }
    return status;
}

bool ty_program_overlaps(const ty_bucket *bucket, const ty_instruction *in)
{
    return ty_bucket_has_layer(bucket, in->first_layer) ||
           (bucket->first_layer >= in->first_layer &&
            bucket->first_layer - in->first_layer < in->layer_count);
}
