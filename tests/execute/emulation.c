#include "emulation.h"

#include "interpreter.h"
#include "plans.h"

#include <stdlib.h>
#include <string.h>

typedef struct emulated_stage {
    const ty_plan_stage *planned;
    ty_stage_device *device;
    uint64_t count;
    float *history; /* [steps + 1][count] */
    float *state;
} emulated_stage;

typedef struct emulation {
    const ty_plan *plan;
    ty_dataset *dataset;
    uint64_t labels_per_sample;
    emulated_stage *stages;
} emulation;

static const ty_device_backend *const cpu = &ty_device_cpu;

uint32_t emulated_version(const ty_plan *plan, uint32_t stage, uint32_t start, uint32_t t,
                          uint32_t m)
{
    const uint32_t replicas = plan->stages[stage].replicas, count = plan->micro_batches / replicas;
    const uint32_t n = (t - start) * count + m / replicas;
    uint32_t later = 0, ahead;

    if (!ty_schedule_at(plan->schedule)->is_asynchronous)
        return t - start > plan->staleness ? t - plan->staleness : start;
    if (plan->schedule == TY_PIPEDREAM_2BW)
        return t > 0 ? t - 1 : 0;
    for (uint32_t s = stage; s < plan->stage_count; s++)
        later += plan->stages[s].replicas;
    ahead = (later - 1) / replicas;
    return start + (n > ahead ? (n - ahead) / count : 0);
}

/* The layer of a stage whose matrix another stage shares. */
static uint32_t tied_layer(const ty_plan *plan, uint32_t stage)
{
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        if (bucket->tied_stage == TY_NO_STAGE)
            continue;
        if (bucket->stage == stage)
            return bucket->first_layer;
        for (uint32_t l = 0; bucket->tied_stage == stage && l < plan->workload->layer_count; l++)
            if (plan->workload->layers[l].tied_to == bucket->first_layer &&
                ty_plan_stage_of_layer(plan, l) == stage)
                return l;
    }
    return TY_NO_LAYER;
}

static void stage_open(const emulation *e, uint32_t index, uint32_t steps)
{
    const ty_plan *plan = e->plan;
    emulated_stage *stage = &e->stages[index];
    ty_stage_options options = {
        .workload = plan->workload,
        .first_layer = plan->stages[index].first_layer,
        .layer_count = plan->stages[index].layer_count,
        .micro_batch_size = plan->micro_batch_size,
        .slots = 1,
        .loss_scale = 1.0 / ((double)plan->global_batch * (double)e->labels_per_sample),
        .seed = plan->seed,
        .tied_layer = tied_layer(plan, index)};
    ty_error error = {0};

    stage->planned = &plan->stages[index];
    must(cpu->open(&options, &stage->device, &error) == TY_OK, plan->strategy, error.message);
    stage->count = cpu->parameter_count(stage->device);
    stage->history = ty_alloc((steps + 1) * stage->count, sizeof *stage->history);
    stage->state =
        ty_alloc(stage->count * ty_optimizer_state_count(&plan->optimizer), sizeof *stage->state);
    memcpy(stage->history, cpu->parameters(stage->device), stage->count * sizeof *stage->history);
}

static void load(const emulation *e, uint32_t t, uint32_t m)
{
    const ty_plan *plan = e->plan;
    const bool is_token = plan->workload->input_kind == TY_INPUT_TOKEN;
    const uint64_t row = ty_shape_elements(&plan->workload->input);
    ty_stage_device *first = e->stages[0].device, *last = e->stages[plan->stage_count - 1].device;

    for (uint32_t j = 0; j < plan->micro_batch_size; j++) {
        uint64_t sample = ty_dataset_shuffled(e->dataset, plan->seed,
                                              (uint64_t)t * plan->global_batch +
                                                  (uint64_t)m * plan->micro_batch_size + j);
        if (ty_dataset_sample(e->dataset, sample, is_token ? NULL : cpu->input(first, 0) + j * row,
                              is_token ? cpu->tokens(first, 0) + j * row : NULL,
                              cpu->labels(last, 0) + j * e->labels_per_sample, NULL) != TY_OK)
            abort();
    }
}

/* Bytes of a micro-batch at the cut before a stage. */
static uint64_t cut_bytes(const emulation *e, uint32_t stage, ty_direction direction)
{
    ty_plan whole = *e->plan; /* the emulation has no TP, CP or EP ranks */

    whole.tensor_parallel = whole.context_parallel = whole.expert_parallel = 0;
    whole.sequence_parallel = false;
    return ty_plan_transfer_bytes(&whole, stage, direction);
}

static double micro_batch(const emulation *e, uint32_t t, uint32_t m)
{
    const uint32_t stages = e->plan->stage_count;
    double loss = 0;
    uint64_t correct, labels;
    ty_error error = {0};

    load(e, t, m);
    for (uint32_t s = 0; s < stages; s++) {
        const emulated_stage *stage = &e->stages[s];
        const float *weights =
            stage->history + emulated_version(e->plan, s, 0, t, m) * stage->count;
        if (s > 0)
            memcpy(cpu->input(stage->device, 0), cpu->output(e->stages[s - 1].device, 0),
                   cut_bytes(e, s, TY_ACTIVATION));
        memcpy(cpu->parameters(stage->device), weights, stage->count * sizeof *weights);
        must(cpu->forward(stage->device, 0, stage->planned->first_layer,
                          stage->planned->layer_count, &error) == TY_OK,
             e->plan->strategy, error.message);
    }
    cpu->loss(e->stages[stages - 1].device, 0, &loss, &correct, &labels);
    for (uint32_t s = stages; s-- > 0;) {
        const emulated_stage *stage = &e->stages[s];
        if (s + 1 < stages)
            memcpy(cpu->output_gradient(stage->device, 0),
                   cpu->input_gradient(e->stages[s + 1].device, 0),
                   cut_bytes(e, s + 1, TY_GRADIENT));
        must(cpu->backward(stage->device, 0, stage->planned->first_layer,
                           stage->planned->layer_count, m == 0, &error) == TY_OK,
             e->plan->strategy, error.message);
    }
    return loss;
}

/* Both stages with a tied matrix update it with the sum of both gradients. */
static void tied_sum(const emulation *e)
{
    for (uint32_t b = 0; b < e->plan->bucket_count; b++) {
        const ty_bucket *bucket = &e->plan->buckets[b];
        uint64_t first, second, count;
        float *a, *c;

        if (bucket->tied_stage == TY_NO_STAGE)
            continue;
        cpu->tied_slice(e->stages[bucket->stage].device, &first, &count);
        cpu->tied_slice(e->stages[bucket->tied_stage].device, &second, &count);
        a = cpu->gradients(e->stages[bucket->stage].device) + first;
        c = cpu->gradients(e->stages[bucket->tied_stage].device) + second;
        for (uint64_t i = 0; i < count; i++)
            a[i] = c[i] = a[i] + c[i];
    }
}

static void update(const emulation *e, uint32_t t)
{
    tied_sum(e);
    for (uint32_t s = 0; s < e->plan->stage_count; s++) {
        const emulated_stage *stage = &e->stages[s];
        const float *newest = stage->history + t * stage->count;
        float *next = stage->history + (t + 1) * stage->count;
        memcpy(next, newest, stage->count * sizeof *next);
        ty_optimizer_step(&e->plan->optimizer, t + 1, stage->count, next,
                          cpu->gradients(stage->device), stage->state);
    }
}

void emulate_job(const ty_job *job, double *losses)
{
    const ty_plan *plan = job->plan;
    emulation e = {.plan = plan, .labels_per_sample = ty_labels_per_sample(plan->workload)};
    ty_error error = {0};

    e.stages = ty_alloc(plan->stage_count, sizeof *e.stages);
    must(ty_dataset_open(plan->workload, job->data, false, &e.dataset, &error) == TY_OK, job->data,
         error.message);
    for (uint32_t s = 0; s < plan->stage_count; s++)
        stage_open(&e, s, job->steps);
    for (uint32_t t = 0; t < job->steps; t++) {
        losses[t] = 0;
        for (uint32_t m = 0; m < plan->micro_batches; m++)
            losses[t] += micro_batch(&e, t, m);
        losses[t] /= (double)plan->global_batch * (double)e.labels_per_sample;
        update(&e, t);
    }
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        cpu->close(e.stages[s].device);
        ty_free(e.stages[s].history);
        ty_free(e.stages[s].state);
    }
    ty_free(e.stages);
    ty_dataset_close(e.dataset);
}
