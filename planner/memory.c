/* Memory of one device of a stage, row by row as the worker allocates it: parameters, their
 * gradients and optimizer state; a set of activations ("slot") for each micro-batch in flight; one
 * set of gradients of activations, since backward does one micro-batch at a time; buffers. Sums are
 * doubles, exact up to 2^53 bytes, so that no product of sizes can wrap. */
#include "ty_planner.h"

#include <math.h>

/* Scratch of kernel libraries, message queues, the program itself. An allowance, not yet a
 * measurement. */
#define WORKSPACE_BYTES ((uint64_t)64 << 20)

/* Staging for a message that arrives before its slot is free, and for one that leaves. */
#define STAGING_BUFFERS 2
/* A ring reduces one piece while the next arrives. */
#define RING_PIECES 2

typedef struct context {
    const ty_plan *plan;
    const ty_plan_stage *stage;
    uint32_t index, end; /* of the stage; layer behind its last */
    double slots, samples;
} context;

static const ty_layer *layer_at(const context *c, uint32_t layer)
{
    return &c->plan->workload->layers[layer];
}

/* ---- Parameters ------------------------------------------------------------------------------ */

/* Bytes of the matrices that layers of this stage use and layers of an earlier one own; a matrix
 * with several users here is one copy. */
static double tied_copies(const context *c, bool only_trained)
{
    double bytes = 0;
    for (uint32_t user = c->stage->first_layer; user < c->end; user++) {
        const ty_layer *l = layer_at(c, user);
        uint32_t earlier = c->stage->first_layer;
        if (l->tied_to >= c->stage->first_layer || /* TY_NO_LAYER is the largest */
            (only_trained && layer_at(c, l->tied_to)->is_frozen))
            continue;
        while (layer_at(c, earlier)->tied_to != l->tied_to)
            earlier++;
        if (earlier == user)
            bytes += (double)l->attributes[TY_IN_FEATURES] *
                     (double)l->attributes[TY_OUT_FEATURES] * c->plan->workload->element_bytes;
    }
    return bytes;
}

static double parameters(const context *c, bool only_trained)
{
    double bytes = tied_copies(c, only_trained);
    for (uint32_t i = c->stage->first_layer; i < c->end; i++)
        if (!only_trained || !layer_at(c, i)->is_frozen)
            bytes += (double)layer_at(c, i)->parameter_bytes;
    return bytes;
}

/* ---- Activations, per sample ----------------------------------------------------------------- */

static double stage_input(const context *c)
{
    const ty_workload *w = c->plan->workload;
    if (c->stage->first_layer > 0)
        return (double)ty_workload_cut_bytes(w, c->stage->first_layer);
    return (double)ty_shape_elements(&w->input) * w->element_bytes;
}

/* What crosses to the next stage; 0 behind the last. */
static double stage_output(const context *c)
{
    return (double)ty_workload_cut_bytes(c->plan->workload, c->end);
}

static double stash(const context *c)
{
    double bytes = 0;
    for (uint32_t i = c->stage->first_layer; i < c->end; i++)
        bytes += (double)layer_at(c, i)->stash_bytes;
    return bytes;
}

/* A gradient for each output that has memory of its own, and for the largest of what layers keep
 * beside their output, one layer at a time. */
static double activation_gradients(const context *c)
{
    double outputs = 0, inner = 0;
    for (uint32_t i = c->stage->first_layer; i < c->end; i++) {
        double kept = (double)layer_at(c, i)->stash_bytes;
        double output = fmin(kept, (double)layer_at(c, i)->output_bytes);
        outputs += output;
        inner = fmax(inner, kept - output);
    }
    return outputs + inner;
}

/* Recomputing, the slots share everything but the stage's input, and its output where that is to be
 * sent. */
static double activations(const context *c)
{
    double kept = c->stage->recompute == TY_RECOMPUTE_FULL
                      ? c->slots * (stage_input(c) + stage_output(c)) + stash(c)
                      : c->slots * (stage_input(c) + stash(c));
    return c->samples * (kept + activation_gradients(c));
}

/* ---- Buffers --------------------------------------------------------------------------------- */

static bool is_exchanged_here(const context *c, const ty_bucket *bucket)
{
    return (bucket->stage == c->index || bucket->tied_stage == c->index) &&
           ty_bucket_member_count(c->plan, bucket) > 1;
}

/* To each neighbour: staging, and per slot the gradient that is received or waits to be sent. */
static double neighbour_buffers(const context *c)
{
    double input = c->stage->first_layer > 0 ? stage_input(c) : 0;
    return c->samples * (c->slots + STAGING_BUFFERS) * (input + stage_output(c));
}

/* Scratch of a collective: a tree receives whole payloads to add them, a ring pieces of them; what
 * is gathered arrives in place. */
static double collective_scratch(const context *c, const ty_bucket *bucket)
{
    double wire = (double)ty_bucket_wire_bytes(bucket);
    if (ty_bucket_collective(bucket) == TY_ALL_GATHER)
        return 0;
    if (bucket->algorithm == TY_TREE)
        return wire;
    return fmin(wire, RING_PIECES * wire / ty_bucket_member_count(c->plan, bucket));
}

/* Buckets are exchanged one after the other, so the largest scratch serves all. */
static double bucket_buffers(const context *c)
{
    double largest = 0;
    for (uint32_t b = 0; b < c->plan->bucket_count; b++)
        if (is_exchanged_here(c, &c->plan->buckets[b]))
            largest = fmax(largest, collective_scratch(c, &c->plan->buckets[b]));
    return ceil(largest);
}

/* Encoded payloads, of all members where they are gathered, and what top-k has not sent yet. */
static double compression(const context *c)
{
    double bytes = 0;
    for (uint32_t b = 0; b < c->plan->bucket_count; b++) {
        const ty_bucket *bucket = &c->plan->buckets[b];
        bool is_gathered = ty_bucket_collective(bucket) == TY_ALL_GATHER;
        if (!is_exchanged_here(c, bucket) || bucket->compression == TY_COMPRESSION_NONE)
            continue;
        bytes += (double)ty_bucket_wire_bytes(bucket) *
                 (is_gathered ? ty_bucket_member_count(c->plan, bucket) : 1);
        if (bucket->compression == TY_COMPRESSION_TOP_K)
            bytes += (double)bucket->gradient_bytes;
    }
    return bytes;
}

/* ---- All rows -------------------------------------------------------------------------------- */

#define LARGEST 9007199254740992.0 /* 2^53 */

ty_status ty_stage_memory(const ty_plan *plan, const ty_program *program, uint32_t stage,
                          ty_memory_use *out, ty_error *error)
{
    context c = {.plan = plan, .index = stage, .samples = plan->micro_batch_size};
    double state = ty_optimizer_state_count(&plan->optimizer);
    double all, trained, live, communicated, compressed;

    if (stage >= plan->stage_count || program->stage_count != plan->stage_count)
        return ty_fail(error, TY_EINVAL,
                       "found stage %u and a program of %u stages, expected one "
                       "of %u",
                       stage, program->stage_count, plan->stage_count);
    c.stage = &plan->stages[stage];
    c.end = c.stage->first_layer + c.stage->layer_count;
    c.slots = ty_program_peak_in_flight(program, stage);
    all = parameters(&c, false);
    trained = parameters(&c, true);
    live = activations(&c);
    communicated = neighbour_buffers(&c) + bucket_buffers(&c);
    compressed = compression(&c);
    if (!(all + trained * (1 + state) + live + communicated + compressed < LARGEST))
        return ty_fail(error, TY_EINVAL, "stage %u: needs more than 2^53 bytes", stage);
    *out = (ty_memory_use){.parameter_bytes = (uint64_t)all,
                           .gradient_bytes = (uint64_t)trained,
                           .optimizer_bytes = (uint64_t)(trained * state),
                           .activation_bytes = (uint64_t)live,
                           .communication_bytes = (uint64_t)communicated,
                           .compression_bytes = (uint64_t)compressed,
                           .workspace_bytes = WORKSPACE_BYTES};
    return TY_OK;
}
