/*
 * The gradient noise scale: the batch size up to which larger batches pay. Measured almost for free
 * in data-parallel steps, from the gradients of each replica and their sum.
 * Source: McCandlish et al., "An Empirical Model of Large-Batch Training", 2018, appendix A.1: with
 * gradients of b and of B samples,
 *     |G|^2 = (B |G_B|^2 - b |G_b|^2) / (B - b),   S = (|G_b|^2 - |G_B|^2) / (1/b - 1/B)
 * are unbiased; the noise scale is S / |G|^2, each averaged over steps first. Both are sums over
 * parameters, so that buckets add up, each with its own b = B / replicas. A replica's gradient is
 * divided by the global batch already: the mean over its b samples is `replicas` times as large.
 * Tensor-parallel ranks add up the squares of their shards. With context parallelism nothing is
 * measured: each CP rank has the gradient of other tokens, and no replica ever has its own.
 */
#include "interpreter_buckets.h"
#include "interpreter_parallel.h"
#include "interpreter_watches.h"
#include "sharding.h"

#include <math.h>

/* Steps between measurements: two readings of all gradients then cost less than 1% of the reads and
 * writes of the steps between. */
enum { NOISE_INTERVAL = 16 };

struct noise_watch {
    ty_gradient_noise sums;   /* over the steps it was measured in */
    ty_noise_sample *samples; /* [sums.steps], with room for interpreter_noise_most */
    double *own_squares;      /* [bucket]: of this rank's gradients, before they are reduced */
};

/* Tied buckets are sums over two uses, not over replicas; a compressor's losses, random draws and
 * residuals are noise of their own. */
static bool is_measured(const ty_interpreter *in, uint32_t bucket, uint32_t step)
{
    const ty_bucket *planned = &in->options.plan->buckets[bucket];

    return step % NOISE_INTERVAL == 0 && planned->tied_stage == TY_NO_STAGE &&
           in->groups[TY_CONTEXT_PARALLEL].count == 1 &&
           !ty_compression_is_lossy(&planned->compression) && in->options.backend->square != NULL &&
           in->options.plan->workload->local_steps <= 1 && in->scenario.hooks->exchange == NULL;
}

void interpreter_noise_before(ty_interpreter *in, uint32_t index, uint32_t step)
{
    bucket_state *bucket = &in->buckets[index];

    if (is_measured(in, index, step))
        in->noise->own_squares[index] =
            interpreter_rank_square(in, index, interpreter_bucket_gradients(in, bucket, step),
                                    bucket->offset, bucket->count);
}

void interpreter_noise_after(ty_interpreter *in, uint32_t index, uint32_t step)
{
    const bucket_state *bucket = &in->buckets[index];
    const double replicas = bucket->member_count, batch = in->options.plan->global_batch;
    const uint64_t first = bucket->is_sharded ? bucket->share_offset : bucket->offset;
    const uint64_t count = bucket->is_sharded ? bucket->share_count : bucket->count;
    double small, big;
    step_control *sums;

    if (!is_measured(in, index, step))
        return;
    /* This rank's contribution to the means over replicas. */
    small = replicas * in->noise->own_squares[index];
    big = interpreter_rank_square(
        in, index, interpreter_gradients_at(in, bucket->virtual_stage, step, first), first, count);
    if (!bucket->is_sharded)
        big /= replicas;
    pthread_mutex_lock(&in->lock);
    sums = &in->sums[step % in->window];
    sums->gradient_square += (replicas * big - small) / (replicas - 1);
    sums->gradient_variance += (small - big) * batch / (replicas - 1);
    sums->noise_count += 1;
    pthread_mutex_unlock(&in->lock);
}

/* Scaled gradients have their step's factor, and steps with an overflow do not count. */
void interpreter_noise_add(ty_interpreter *in, const step_control *control)
{
    const bool is_scaled = in->options.precision == TY_PRECISION_FP16;
    const double scale = is_scaled ? in->loss_scales[in->controls_done % in->window] : 1;
    ty_noise_sample sample;

    if (control->noise_count <= 0 || control->overflow_count > 0)
        return;
    sample = (ty_noise_sample){in->controls_done, control->gradient_square / (scale * scale),
                               control->gradient_variance / (scale * scale)};
    if (!isfinite(sample.square) || !isfinite(sample.variance)) /* training diverges */
        return;
    in->noise->sums.square += sample.square;
    in->noise->sums.variance += sample.variance;
    in->noise->samples[in->noise->sums.steps++] = sample;
}

uint32_t interpreter_noise_most(uint32_t steps)
{
    return steps / NOISE_INTERVAL + (steps % NOISE_INTERVAL != 0);
}

ty_status interpreter_noise_open(ty_interpreter *in, ty_error *error)
{
    in->noise = ty_alloc(1, sizeof *in->noise);
    TY_TRY(ty_check_memory(in->noise != NULL, error));
    in->noise->samples =
        ty_alloc(interpreter_noise_most(in->options.steps), sizeof *in->noise->samples);
    in->noise->own_squares =
        ty_alloc(in->options.plan->bucket_count, sizeof *in->noise->own_squares);
    return ty_check_memory(in->noise->samples != NULL && in->noise->own_squares != NULL, error);
}

void interpreter_noise_close(ty_interpreter *in)
{
    if (in->noise == NULL)
        return;
    ty_free(in->noise->samples);
    ty_free(in->noise->own_squares);
    ty_free(in->noise);
}

ty_gradient_noise *interpreter_noise_sums(ty_interpreter *in, ty_noise_sample **samples)
{
    *samples = in->noise->samples;
    return &in->noise->sums;
}

const ty_noise_sample *ty_interpreter_noise_samples(const ty_interpreter *in, uint32_t *count)
{
    *count = in->noise->sums.steps;
    return in->noise->samples;
}

ty_gradient_noise ty_interpreter_noise(const ty_interpreter *in)
{
    ty_gradient_noise mean = in->noise->sums;

    if (mean.steps > 0) {
        mean.square /= mean.steps;
        mean.variance /= mean.steps;
    }
    return mean;
}
