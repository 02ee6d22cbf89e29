/* Optimizers, and sums over parameters. */
#include "gpu_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool update_compare(ty_stage_device *one, ty_stage_device *other, const ty_optimizer *opt)
{
    uint64_t count = cpu->parameter_count(one), state = 3;
    float *optimizer = calloc(count * 2, sizeof *optimizer), *host = malloc(count * sizeof *host);
    float *gradients = cpu->gradients(one);
    bool is_finite, is_right = true;
    ty_error error = {0};

    for (uint64_t step = 1; step <= 3 && is_right; step++) {
        for (uint64_t i = 0; i < count; i++)
            gradients[i] = next_float(&state);
        is_right = device_write(other, gpu->gradients(other), gradients, count);
        ty_optimizer_step(opt, step, count, cpu->parameters(one), gradients, optimizer);
        if (gpu->memory->update(other, opt, step, 0, count, &is_finite, &error) != TY_OK)
            is_right = wrong("%s", error.message);
    }
    is_right = is_right && device_read(other, gpu->parameters(other), count, host);
    for (uint64_t i = 0; i < count && is_right; i++)
        if (!(fabs((double)host[i] - (double)cpu->parameters(one)[i]) <=
              2e-6 * (1 + fabs((double)host[i]))))
            is_right = wrong("weight %llu is %.9g, expected %.9g", (unsigned long long)i,
                             (double)host[i], (double)cpu->parameters(one)[i]);
    free(optimizer);
    free(host);
    return is_right;
}

static bool case_update(const ty_optimizer *optimizer)
{
    ty_workload *w = network_make_activations();
    ty_stage_options o = options_of(w, 2, TY_PRECISION_FP32);
    ty_stage_device *one = NULL, *other = NULL;
    bool is_right = stage_open(cpu, &o, &one) && stage_open(gpu, &o, &other) &&
                    update_compare(one, other, optimizer);

    cpu->close(one);
    gpu->close(other);
    network_free(w);
    return is_right;
}

/* State for some parameters only: the memory is proportional, and the other parameters are not
 * updated. */
static bool state_compare(ty_stage_device *stage)
{
    const ty_optimizer adamw = {.kind = TY_OPTIMIZER_ADAMW,
                                .learning_rate = 0.01,
                                .beta1 = 0.9,
                                .beta2 = 0.95,
                                .epsilon = 1e-8};
    const ty_parameter_range ranges[] = {{0, 0}, {10, 20}, {50, 70}};
    const uint64_t before = gpu->memory_bytes(stage), states = 2, kept = 20 + 70;
    bool is_finite = false;
    ty_error error = {0};

    if (gpu->memory->state_open(stage, states, ranges, 3, &error) != TY_OK)
        return wrong("%s", error.message);
    if (gpu->memory_bytes(stage) - before != kept * states * sizeof(float))
        return wrong("state of %llu bytes, expected %llu",
                     (unsigned long long)(gpu->memory_bytes(stage) - before),
                     (unsigned long long)(kept * states * sizeof(float)));
    if (gpu->memory->state(stage, 55) - gpu->memory->state(stage, 10) != (20 + 5) * (int)states ||
        gpu->memory->state(stage, 30) != NULL)
        return wrong("state lies elsewhere");
    if (gpu->memory->update(stage, &adamw, 1, 50, 70, &is_finite, &error) != TY_OK || !is_finite)
        return wrong("%s", error.message);
    return gpu->memory->update(stage, &adamw, 1, 30, 5, &is_finite, &error) == TY_EINVAL ||
           wrong("an update without state went through");
}

/* Against a sum in doubles, for a range with any start and end. */
static bool square_compare(ty_stage_device *stage)
{
    const uint64_t first = 3, count = gpu->parameter_count(stage) - 8;
    float *host = malloc(gpu->parameter_count(stage) * sizeof *host);
    uint64_t state = 9;
    double expected = 0, found;
    bool is_right;

    for (uint64_t i = 0; i < first + count; i++)
        host[i] = next_float(&state);
    for (uint64_t i = first; i < first + count; i++)
        expected += (double)host[i] * (double)host[i];
    is_right = device_write(stage, gpu->gradients(stage), host, first + count);
    found = gpu->square(stage, gpu->gradients(stage) + first, count);
    free(host);
    return is_right && (fabs(found - expected) <= 1e-12 * expected ||
                        wrong("sum of squares %.17g, expected %.17g", found, expected));
}

static bool case_alone(bool (*compare)(ty_stage_device *stage))
{
    ty_workload *w = network_make_activations();
    ty_stage_options o = options_of(w, 2, TY_PRECISION_FP32);
    ty_stage_device *stage = NULL;
    bool is_right = stage_open(gpu, &o, &stage) && compare(stage);

    gpu->close(stage);
    network_free(w);
    return is_right;
}

void updates_run(void)
{
    static const ty_optimizer optimizers[] = {
        {.kind = TY_OPTIMIZER_SGD, .learning_rate = 0.1, .weight_decay = 0.01},
        {.kind = TY_OPTIMIZER_SGD, .learning_rate = 0.1, .momentum = 0.9},
        {.kind = TY_OPTIMIZER_ADAMW,
         .learning_rate = 0.01,
         .beta1 = 0.9,
         .beta2 = 0.95,
         .epsilon = 1e-8,
         .weight_decay = 0.1}};
    static const char *const updates[] = {"update sgd", "update momentum", "update adamw"};

    for (int i = 0; i < 3; i++)
        if (is_asked(updates[i]))
            report(updates[i], case_update(&optimizers[i]));
    if (is_asked("update with state of a share"))
        report("update with state of a share", case_alone(state_compare));
    if (is_asked("update: squares"))
        report("update: squares", case_alone(square_compare));
}
