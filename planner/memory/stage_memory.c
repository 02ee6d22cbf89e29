/* Memory of a device of a stage: see memory.h for the terms that are added here. */
#include "cost/kernels.h"
#include "memory/memory.h"

#include <math.h>

/* The most that a row counts: more than any device has, and rows add up to less than 2^53. */
#define MOST_BYTES 1125899906842624.0 /* 2^50 */

static uint64_t whole_bytes(double bytes)
{
    return (uint64_t)fmin(bytes, MOST_BYTES);
}

/* ---- Weights, gradients, optimizer states ---------------------------------------------------- */

memory_states ty_memory_states(const ty_plan *plan, const memory_weights *w)
{
    const ty_stack *stack = ty_stack_of(plan);
    const double element = plan->workload->element_bytes;
    const bool has_copy = element < TY_GRADIENT_ELEMENT_BYTES;
    const bool is_copy_alone = has_copy && stack->memory == TY_MEMORY_WORKER;
    const bool shards_gradients = plan->zero >= 2 && !w->sums_gradients;
    /* Exact where all layers have 0, 4 or 8 bytes per parameter. */
    const double states = w->trained > 0 ? w->states / w->trained : 0;
    const double weights = plan->zero < 3 ? 0 : is_copy_alone ? w->sharded : w->elsewhere;

    return (memory_states){
        .weights = fmax(0, w->all - weights), /* rounding may give all to some ranks */
        .gradients = (1.0 + plan->staleness) *
                     (w->trained - (shards_gradients ? w->elsewhere : 0)) / element *
                     stack->gradient_bytes,
        .optimizer = (states + (has_copy ? TY_GRADIENT_ELEMENT_BYTES : 0)) *
                     (w->trained - (plan->zero >= 1 ? w->elsewhere : 0)) / element};
}

/* Whether no earlier layer of the stage uses the same matrix of a layer before the stage: several
 * users share one copy. */
static bool is_first_user(const stage_memory *m, uint32_t user)
{
    uint32_t earlier = m->first;

    while (memory_layer(m, earlier)->tied_to != memory_layer(m, user)->tied_to)
        earlier++;
    return earlier == user;
}

static void add_trained(const ty_plan *plan, uint32_t layer, double bytes, memory_weights *w)
{
    if (plan->workload->layers[layer].is_frozen)
        return;
    w->trained += bytes;
    w->states += bytes * ty_plan_optimizer_work(plan, layer, 1).state_bytes;
}

static memory_weights weights_of(const stage_memory *m)
{
    const ty_plan *plan = m->plan;
    const double element = plan->workload->element_bytes;
    memory_weights w = {.sums_gradients = m->stack->memory == TY_MEMORY_WORKER &&
                                          plan->micro_batches != m->stage->replicas};

    for (uint32_t i = m->first; i < m->end; i++) {
        const ty_layer *l = memory_layer(m, i);
        double bytes = (double)l->parameter_bytes * ty_rank_parameter_share(plan, i);
        w.all += bytes;
        add_trained(plan, i, bytes, &w);
        if (l->tied_to >= m->first || !is_first_user(m, i)) /* TY_NO_LAYER is the largest */
            continue;
        bytes = (double)l->attributes[TY_IN_FEATURES] * (double)l->attributes[TY_OUT_FEATURES] *
                element * ty_rank_parameter_share(plan, l->tied_to);
        w.all += bytes;
        add_trained(plan, l->tied_to, bytes, &w);
    }
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        const double bytes = (double)bucket->gradient_bytes / TY_GRADIENT_ELEMENT_BYTES * element;
        if (bucket->stage != m->index || !ty_bucket_is_sharded(plan, bucket))
            continue;
        w.sharded += bytes;
        w.elsewhere += bytes * (1 - 1.0 / ty_bucket_device_count(plan, bucket));
    }
    return w;
}

/* ---- Actors ---------------------------------------------------------------------------------- */

/* Batches that actors can store: one is sent while the next is generated (execute/). */
#define ACTOR_BATCHES 2

static double batch_bytes(const ty_plan *plan)
{
    return (double)plan->micro_batch_size * (double)ty_workload_episode_bytes(plan->workload);
}

/* Of ranks that run episodes: a second copy of the weights, and the layers' outputs of one step. */
static void add_player(const ty_plan *plan, ty_memory_use *use)
{
    const ty_workload *w = plan->workload;
    const double steps = (double)w->input.dimensions[0];
    double outputs = 0;

    for (uint32_t l = 0; l + 1 < w->layer_count; l++)
        outputs += (double)w->layers[l].output_bytes;
    use->parameter_bytes += ty_workload_parameter_bytes(w, 0, w->layer_count);
    use->gradient_bytes += ty_workload_parameter_bytes(w, 0, w->layer_count); /* there, unused */
    use->activation_bytes += (uint64_t)(outputs / steps * plan->micro_batch_size);
    /* Sets of weights that may be in transit at once: those of a step, of the next, and of every
     * step of lag. */
    const double set = (double)ty_plan_policy_bytes(plan) * ty_plan_policy_messages(plan, 0);
    use->communication_bytes += (uint64_t)(set * (plan->lag + 3));
}

static void count_actors(const ty_plan *plan, ty_memory_use *out)
{
    const ty_workload *w = plan->workload;
    const double numbers =
        (double)ty_workload_parameter_bytes(w, 0, w->layer_count) / w->element_bytes;

    out->communication_bytes = (uint64_t)(ACTOR_BATCHES * batch_bytes(plan));
    out->optimizer_bytes =
        (uint64_t)(numbers * ty_plan_optimizer_work(plan, 0, w->layer_count).state_bytes);
    add_player(plan, out);
}

/* ---- A device -------------------------------------------------------------------------------- */

static bool is_on_cores(const ty_plan *plan, uint32_t stage)
{
    const uint32_t *devices = plan->stages[stage].devices;

    return plan->cluster != NULL && devices != NULL &&
           ty_cluster_device_type(plan->cluster, devices[0])->core_share > 0;
}

static void stage_memory_close(stage_memory *m)
{
    ty_free(m->takes_part);
    ty_free(m->layers);
    ty_free(m->again);
    ty_free(m->segments);
}

static ty_status stage_memory_open(const ty_plan *plan, bool is_on_cores, stage_memory *out,
                                   ty_error *error)
{
    const uint32_t layers = plan->workload->layer_count;

    *out = (stage_memory){.plan = plan,
                          .stack = ty_stack_of(plan),
                          .samples = plan->micro_batch_size,
                          .is_on_cores = is_on_cores,
                          .takes_part = ty_alloc(layers, sizeof *out->takes_part),
                          .layers = ty_alloc(layers, sizeof *out->layers),
                          .again = ty_alloc(layers, sizeof *out->again),
                          .segments = ty_alloc(layers, 2 * sizeof *out->segments)};
    if (out->takes_part == NULL || out->layers == NULL || out->again == NULL ||
        out->segments == NULL) {
        stage_memory_close(out);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    out->crossing = out->segments + layers;
    ty_workload_mark_backward(plan->workload, out->takes_part);
    return TY_OK;
}

static void stage_memory_set(stage_memory *m, uint32_t stage, double slots)
{
    const ty_workload *w = m->plan->workload;
    const ty_plan_stage *s = &m->plan->stages[stage];
    const ty_recompute_range range = {s->first_layer, s->layer_count, s->recompute,
                                      s->recompute_blocks};

    m->stage = s;
    m->index = stage;
    m->first = s->first_layer;
    m->end = s->first_layer + s->layer_count;
    m->slots = slots;
    m->crossing_count = m->end < w->layer_count ? ty_workload_crossing(w, m->end, m->crossing) : 0;
    m->segment_count = ty_recompute_segments(w, &range, m->segments);
    ty_recompute_mark_again(w, &range, m->segments, m->segment_count, m->again);
}

static void activations_of(const stage_memory *m, double *slot, double *once)
{
    (m->stack->memory == TY_MEMORY_AUTOGRAD ? ty_autograd_activations
                                            : ty_worker_activations)(m, slot, once);
}

/* The model as one stage: at its ends, a stage only adds bytes, such as copies of images and
 * tensors that are read twice. */
ty_status ty_memory_least_slots(const ty_plan *plan, uint32_t *devices, double *bytes,
                                ty_error *error)
{
    const bool is_autograd = ty_stack_of(plan)->memory == TY_MEMORY_AUTOGRAD;
    ty_plan_stage everything = {
        .layer_count = plan->workload->layer_count, .replicas = 1, .devices = devices};
    ty_plan whole = *plan;
    stage_memory m;
    double slot, once;

    whole.stage_count = 1;
    whole.stages = &everything;
    TY_TRY(stage_memory_open(&whole, is_on_cores(&whole, 0), &m, error));
    stage_memory_set(&m, 0, 1);
    activations_of(&m, &slot, &once);
    for (uint32_t i = 0; i < m.end; i++)
        bytes[i] = !m.takes_part[i] ? 0
                   : is_autograd    ? m.layers[i].all / m.samples
                                    : m.layers[i].all - m.layers[i].copies;
    stage_memory_close(&m);
    return TY_OK;
}

ty_status ty_stage_memory(const ty_plan *plan, const ty_program *program, uint32_t stage,
                          ty_memory_use *out, ty_error *error)
{
    const uint32_t positions = plan->stage_count > 0 ? ty_plan_pipeline_size(plan) : 1;
    const uint32_t position = stage % positions;
    const ty_stack *stack = ty_stack_of(plan);
    const bool is_autograd = stack->memory == TY_MEMORY_AUTOGRAD;
    double weights = 0, gradients = 0, optimizer = 0, activations, communication = 0,
           compression = 0, most = 0, versions, *slots;
    stage_memory m;
    ty_status status = TY_OK;

    if (stage >= plan->stage_count || program->stage_count != positions)
        return ty_fail(error, TY_EINVAL,
                       "found stage %u and a program of %u stages, expected one of %u", stage,
                       program->stage_count, plan->stage_count);
    if (ty_plan_is_of_actors(plan, stage)) {
        *out = (ty_memory_use){.workspace_bytes = ty_memory_workspace(plan, position, positions,
                                                                      is_on_cores(plan, stage))};
        count_actors(plan, out);
        return TY_OK;
    }
    TY_TRY(stage_memory_open(plan, is_on_cores(plan, stage), &m, error));
    if ((slots = ty_alloc(ty_plan_virtual_stages(plan), sizeof *slots)) == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory");
        goto done;
    }
    versions = 1 + ty_program_stashed_versions(program, plan->schedule, position);
    for (uint32_t s = position; s < plan->stage_count; s += positions) {
        stage_memory_set(&m, s, ty_program_peak_in_flight(program, s));
        const memory_weights held = weights_of(&m);
        const memory_states states = ty_memory_states(plan, &held);
        double once;
        weights += states.weights + (versions - 1) * held.all;
        gradients += states.gradients;
        optimizer += states.optimizer;
        communication += is_autograd ? ty_autograd_buffers(&m, held.all) : ty_worker_buffers(&m);
        compression += ty_memory_compression(&m);
        activations_of(&m, &slots[s / positions], &once);
        most = fmax(most, once);
    }
    /* Peak of all virtual stages' slots together. */
    activations = ty_program_peak_stash(program, position, slots) + most;
    *out = (ty_memory_use){
        .parameter_bytes = whole_bytes(weights),
        .gradient_bytes = whole_bytes(gradients),
        .optimizer_bytes = whole_bytes(optimizer),
        .activation_bytes = whole_bytes(activations),
        .communication_bytes = whole_bytes(communication),
        .compression_bytes = whole_bytes(compression),
        .workspace_bytes =
            is_autograd ? whole_bytes(stack->context_bytes + stack->memory_waste * activations)
                        : ty_memory_workspace(plan, position, positions, m.is_on_cores)};
    if (plan->workload->learning == TY_LEARNING_REINFORCEMENT) {
        add_player(plan, out);
        out->communication_bytes +=
            (uint64_t)(ty_program_peak_in_flight(program, stage) * batch_bytes(plan));
    }
done:
    ty_free(slots);
    stage_memory_close(&m);
    return status;
}
