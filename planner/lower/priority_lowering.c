/*
 * Builds a program with a priority order of collectives from the one without: the loop of steps
 * begins before the last backward instead of the first forward. Then come the collectives in the
 * plan's order, each as soon as its gradients are ready, and the next step's passes. Their first
 * forward is split where buckets begin, so that each part follows the update of its own bucket.
 */
#include "lowering.h"

#include "ty_base.h"

#include <string.h>

typedef struct turning {
    ty_lowering *l;
    const ty_stage_program *old;
    uint32_t *places; /* [instructions of the old list]: new index of the last part;
                         TY_NO_INSTRUCTION: not yet */
    uint32_t last_micro_batch, first_micro_batch;
    uint32_t exchanged; /* of the order */
} turning;

/* Appends an instruction of the old list, or a part of it. */
static ty_status put(turning *t, uint32_t old, const ty_instruction *as, bool has_waits)
{
    uint32_t waits[8], count = 0;
    const uint32_t most = sizeof waits / sizeof *waits;

    for (uint32_t w = 0; w < as->wait_count && has_waits; w++) {
        if (count == most || t->places[as->waits[w]] == TY_NO_INSTRUCTION)
            return ty_fail(t->l->error, TY_EINVAL, "a %s cannot be moved before what it waits for",
                           ty_op_name(as->op));
        waits[count++] = t->places[as->waits[w]];
    }
    return ty_lower_append(t->l, as, waits, count, &t->places[old]);
}

/* Whether all that the first collective of a bucket waits for is in the new list. */
static bool is_ready(const turning *t, uint32_t bucket)
{
    for (uint32_t i = 0; i < t->old->instruction_count; i++) {
        const ty_instruction *in = &t->old->instructions[i];
        if (in->stream != TY_STREAM_COLLECTIVE || in->bucket != bucket)
            continue;
        for (uint32_t w = 0; w < in->wait_count; w++)
            if (t->places[in->waits[w]] == TY_NO_INSTRUCTION)
                return false;
        return true;
    }
    return false;
}

/* The update of a bucket, or its collectives. */
static ty_status put_bucket(turning *t, uint32_t bucket, bool is_update)
{
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < t->old->instruction_count && status == TY_OK; i++) {
        const ty_instruction *in = &t->old->instructions[i];
        if (in->bucket == bucket &&
            (is_update ? in->op == TY_OP_UPDATE : in->stream == TY_STREAM_COLLECTIVE))
            status = put(t, i, in, true);
    }
    return status;
}

static bool is_last_backward(const turning *t, const ty_instruction *in)
{
    return in->op == TY_OP_BACKWARD && in->micro_batch == t->last_micro_batch;
}

/* The step's last backward, each part followed by the collectives that are next in order. */
static ty_status put_backward(turning *t)
{
    const ty_plan *plan = t->l->plan;

    for (uint32_t i = 0; i < t->old->instruction_count; i++) {
        if (!is_last_backward(t, &t->old->instructions[i]))
            continue;
        TY_TRY(put(t, i, &t->old->instructions[i], true));
        while (t->exchanged < plan->bucket_count && is_ready(t, plan->exchange_order[t->exchanged]))
            TY_TRY(put_bucket(t, plan->exchange_order[t->exchanged++], false));
    }
    return TY_OK;
}

/* The first forward of the next step, split where buckets begin, after their updates: buckets are
 * ordered from the last layer to the first. */
static ty_status put_first_forward(turning *t, uint32_t index)
{
    const ty_plan *plan = t->l->plan;
    ty_instruction piece = t->old->instructions[index];
    const uint32_t end = piece.first_layer + piece.layer_count;
    bool is_first = true;

    piece.lead = 1;
    for (uint32_t left = plan->bucket_count + 1; left-- > 0;) {
        const uint32_t next = left > 0 ? plan->buckets[left - 1].first_layer : end;
        if (left < plan->bucket_count)
            TY_TRY(put_bucket(t, left, true));
        if (next <= piece.first_layer)
            continue;
        piece.layer_count = next - piece.first_layer;
        TY_TRY(put(t, index, &piece, is_first));
        piece.first_layer = next;
        is_first = false;
    }
    return TY_OK;
}

/* Passes and loads of the next step, in their order. */
static ty_status put_next_step(turning *t)
{
    for (uint32_t i = 0; i < t->old->instruction_count; i++) {
        ty_instruction in = t->old->instructions[i];
        if (is_last_backward(t, &in) || in.op == TY_OP_UPDATE || in.stream == TY_STREAM_COLLECTIVE)
            continue;
        in.lead = 1;
        if (in.op == TY_OP_FORWARD && in.micro_batch == t->first_micro_batch)
            TY_TRY(put_first_forward(t, i));
        else
            TY_TRY(put(t, i, &in, true));
    }
    return TY_OK;
}

ty_status ty_lower_by_priority(ty_lowering *l)
{
    ty_stage_program *list = &l->program->stages[l->pipeline_rank];
    ty_stage_program old = *list;
    turning t = {.l = l, .old = &old, .first_micro_batch = TY_NO_MICRO_BATCH};
    ty_status status = TY_OK;

    *list = (ty_stage_program){0};
    TY_CHECK(ty_check_memory((t.places = ty_alloc(old.instruction_count, sizeof *t.places)) != NULL,
                             l->error),
             status, done);
    for (uint32_t i = 0; i < old.instruction_count; i++) {
        const ty_instruction *in = &old.instructions[i];
        t.places[i] = TY_NO_INSTRUCTION;
        if (in->op == TY_OP_BACKWARD)
            t.last_micro_batch = in->micro_batch;
        if (in->op == TY_OP_FORWARD && t.first_micro_batch == TY_NO_MICRO_BATCH)
            t.first_micro_batch = in->micro_batch;
    }
    TY_CHECK(put_backward(&t), status, done);
    TY_CHECK(put_next_step(&t), status, done);
done:
    for (uint32_t i = 0; i < old.instruction_count; i++)
        ty_free(old.instructions[i].waits);
    ty_free(old.instructions);
    ty_free(t.places);
    return status;
}
