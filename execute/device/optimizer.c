/* One step of an optimizer over a slice of parameters. */
#include "cpu_math.h"
#include "device.h"

CPU_CLONES static void sgd_plain(uint64_t count, float rate, float decay, float *w, const float *g)
{
    for (uint64_t i = 0; i < count; i++)
        w[i] -= rate * (g[i] + decay * w[i]);
}

CPU_CLONES static void sgd_momentum(uint64_t count, float rate, float momentum, float decay,
                                    float *restrict w, const float *restrict g, float *restrict v)
{
    for (uint64_t i = 0; i < count; i++) {
        v[i] = momentum * v[i] + (g[i] + decay * w[i]);
        w[i] -= rate * v[i];
    }
}

/* Constants of a step, the same for every parameter. */
typedef struct adamw {
    float beta1, beta2;
    float rate;          /* learning rate over the bias correction of the first moment */
    float root_scale;    /* 1 / sqrt(bias correction of the second moment) */
    float epsilon, keep; /* keep: 1 - learning rate times decay */
} adamw;

/* @param state first and second moment of each parameter */
CPU_CLONES static void adamw_step(uint64_t count, const adamw *a, float *restrict w,
                                  const float *restrict g, float *restrict state)
{
    const float beta1 = a->beta1, beta2 = a->beta2, rate = a->rate, root_scale = a->root_scale;
    const float epsilon = a->epsilon, keep = a->keep;

    for (uint64_t i = 0; i < count; i++) {
        const float m = beta1 * state[2 * i] + (1.0f - beta1) * g[i];
        const float v = beta2 * state[2 * i + 1] + (1.0f - beta2) * g[i] * g[i];
        state[2 * i] = m;
        state[2 * i + 1] = v;
        w[i] = keep * w[i] - rate * m / (sqrtf(v) * root_scale + epsilon);
    }
}

void ty_optimizer_step(const ty_optimizer *optimizer, uint64_t step, uint64_t count,
                       float *parameters, const float *gradients, float *state)
{
    float rate = (float)optimizer->learning_rate, decay = (float)optimizer->weight_decay;

    if (ty_optimizer_row_of(optimizer->kind)->has_betas) {
        double correction1 = 1.0 - pow(optimizer->beta1, (double)step);
        double correction2 = 1.0 - pow(optimizer->beta2, (double)step);
        adamw a = {
            .beta1 = (float)optimizer->beta1,
            .beta2 = (float)optimizer->beta2,
            .rate = (float)(optimizer->learning_rate / correction1),
            .root_scale = (float)(1.0 / sqrt(correction2)),
            .epsilon = (float)optimizer->epsilon,
            .keep = (float)(1.0 - optimizer->learning_rate * optimizer->weight_decay),
        };
        adamw_step(count, &a, parameters, gradients, state);
    } else if (ty_optimizer_state_count(optimizer) == 0) {
        sgd_plain(count, rate, decay, parameters, gradients);
    } else {
        sgd_momentum(count, rate, (float)optimizer->momentum, decay, parameters, gradients, state);
    }
}
