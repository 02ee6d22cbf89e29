/* A mean teacher: frozen layers that follow the trained ones (ty_teacher). */
#include "dataset.h"
#include "scenario.h"

/* Displaces views, and hides a label that must not be seen. */
static void view(const scenario_run *run, const ty_dataset *dataset, uint64_t position,
                 bool has_label, float *input, int32_t *labels)
{
    if (input != NULL)
        ty_dataset_displace(dataset, run->plan->seed, position, input);
    if (labels != NULL && !has_label)
        labels[0] = TY_NO_LABEL;
}

static void updated(const scenario_run *run, uint32_t index, uint32_t step)
{
    const ty_bucket *bucket = &run->plan->buckets[index];
    const float kept = (float)run->plan->workload->teacher.decay;
    float *weights = run->backend->parameters(run->device);

    (void)step;
    for (uint32_t l = bucket->first_layer; l < bucket->first_layer + bucket->layer_count; l++) {
        const uint32_t follower = ty_layer_follower(run->plan->workload, l);
        uint64_t from, to, count;

        if (follower == TY_NO_LAYER)
            continue;
        run->backend->slice(run->device, l, 1, &from, &count);
        run->backend->slice(run->device, follower, 1, &to, &count);
        for (uint64_t i = 0; i < count; i++)
            weights[to + i] = kept * weights[to + i] + (1.0f - kept) * weights[from + i];
    }
}

const scenario teacher = {.view = view, .updated = updated};
