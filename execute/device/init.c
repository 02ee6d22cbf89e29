/* Initial weights: a counter-based generator, so that any rank can compute any part of any tensor.
 */
#include "init.h"

#include <math.h>
#include <pthread.h>
#include <unistd.h>

/* The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
 * generators", OOPSLA 2014): stream `key`, element i is mix(key + i * gamma). */
static const uint64_t gamma_step = 0x9e3779b97f4a7c15u;

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Box and Muller, 1958: two uniforms of 32 bits give two normals. */
static void normal_pair(uint64_t key, uint64_t pair, double out[2])
{
    uint64_t bits = mix(key + (pair + 1) * gamma_step);
    double u = ((double)(bits >> 32) + 0.5) * 0x1p-32;
    double angle = 6.283185307179586 * ((double)(bits & 0xffffffffu) * 0x1p-32);
    double radius = sqrt(-2.0 * log(u));

    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}

/* Elements [first, first + count) of a stream. */
typedef struct fill {
    uint64_t key;
    double deviation;
    uint64_t first, count;
    float *out;
} fill;

static void *fill_run(void *argument)
{
    const fill *f = argument;

    for (uint64_t pair = f->first / 2; 2 * pair < f->first + f->count; pair++) {
        double both[2];
        normal_pair(f->key, pair, both);
        for (uint64_t k = 0; k < 2; k++)
            if (2 * pair + k >= f->first && 2 * pair + k < f->first + f->count)
                f->out[2 * pair + k - f->first] = (float)(f->deviation * both[k]);
    }
    return NULL;
}

/* Starting a thread pays from about ten milliseconds of work on. */
enum { MOST_THREADS = 8, ELEMENTS_PER_THREAD = 1 << 19 };

void ty_init_normal(uint64_t seed, uint32_t layer, uint32_t tensor, double deviation,
                    uint64_t first, uint64_t count, float *out)
{
    const uint64_t key = mix(mix(seed + gamma_step) ^ (((uint64_t)layer << 32) | tensor));
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const uint64_t most = cores < 1 ? 1 : cores < MOST_THREADS ? (uint64_t)cores : MOST_THREADS;
    const uint64_t wanted = count / ELEMENTS_PER_THREAD;
    const uint64_t parts = wanted < 1 ? 1 : wanted < most ? wanted : most;
    pthread_t threads[MOST_THREADS];
    bool is_started[MOST_THREADS];
    fill fills[MOST_THREADS];

    for (uint64_t i = 0; i < parts; i++) {
        const uint64_t begin = count / parts * i;
        const uint64_t end = i + 1 == parts ? count : count / parts * (i + 1);
        fills[i] = (fill){key, deviation, first + begin, end - begin, out + begin};
        is_started[i] =
            i + 1 < parts && pthread_create(&threads[i], NULL, fill_run, &fills[i]) == 0;
        if (!is_started[i])
            fill_run(&fills[i]);
    }
    for (uint64_t i = 0; i < parts; i++)
        if (is_started[i])
            pthread_join(threads[i], NULL);
}

/* By fan-in: the default of torch.nn.Linear and torch.nn.Conv2d (variance of a uniform number
 * within 1 / sqrt(fan in)). Published learning rates of small models usually assume it: LeNet at
 * 0.05 with momentum 0.9 diverges from the larger He initialization. In models with attention:
 * Radford et al., "Language models are unsupervised multitask learners", 2019, section 2.3. Layers
 * that write to the residual stream start smaller by the square root of their number, two per
 * block. */
double ty_init_deviation(const ty_workload *workload, const ty_layer_tensor *tensor)
{
    uint32_t blocks = 0;

    if (tensor->start == TY_START_CONSTANT)
        return 0;
    for (uint32_t l = 0; l < workload->layer_count; l++)
        blocks += ty_layer_has_heads(&workload->layers[l]);
    if (tensor->start == TY_START_FAN_IN && blocks == 0)
        return sqrt(1.0 / (3.0 * (double)tensor->fan_in));
    return tensor->start == TY_START_RESIDUAL && blocks > 0 ? 0.02 / sqrt(2.0 * blocks) : 0.02;
}
