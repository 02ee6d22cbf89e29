/*
 * What compressors lose of a rank's gradients, |Cg - g|^2 / |g|^2: each bucket's are put through a
 * compressor of its own that has no residual and no other members, every so many steps, beside the
 * exchange. Only where it is asked for.
 */
#include "codec_kinds.h"
#include "interpreter_state.h"

/* As often as the gradient noise. */
enum { DISTORTION_INTERVAL = 16 };

ty_status interpreter_distortion_open(ty_interpreter *in, const ty_codec_options *options,
                                      bucket_state *bucket, ty_error *error)
{
    ty_codec_options alone = *options;

    if (!in->options.measure_distortion || !ty_compression_is_lossy(&options->compression))
        return TY_OK;
    alone.member_count = 1;
    alone.position = 0;
    bucket->probe_sum = ty_alloc(bucket->count, sizeof *bucket->probe_sum);
    if (bucket->probe_sum == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for a compressor");
    return ty_codec_open(&alone, &bucket->probe, error);
}

static void squares_add(uint64_t count, const float *restrict whole, const float *restrict sent,
                        double *lost_square, double *whole_square)
{
    double lost = 0, all = 0;

    for (uint64_t i = 0; i < count; i++) {
        const double left = (double)sent[i] - (double)whole[i];
        lost += left * left;
        all += (double)whole[i] * (double)whole[i];
    }
    *lost_square = lost;
    *whole_square = all;
}

static void residual_clear(ty_codec *codec)
{
    for (uint32_t i = 0; i < CODEC_MOST_ARRAYS && codec->arrays[i] != NULL; i++)
        memset(codec->arrays[i], 0, codec->array_counts[i] * sizeof(float));
}

void interpreter_distortion_measure(ty_interpreter *in, uint32_t index, uint32_t step)
{
    bucket_state *bucket = &in->buckets[index];
    const float *gradients;
    double lost, whole;
    step_control *sums;

    if (bucket->probe == NULL || step % DISTORTION_INTERVAL != 0)
        return;
    gradients = interpreter_gradients(in, bucket->held, step) + bucket->offset;
    residual_clear(bucket->probe);
    for (uint32_t p = 0; p < ty_compression_phases(&bucket->probe->options.compression); p++)
        ty_codec_encode(bucket->probe, p, gradients);
    ty_codec_decode(bucket->probe, bucket->probe_sum);
    squares_add(bucket->count, gradients, bucket->probe_sum, &lost, &whole);
    pthread_mutex_lock(&in->lock);
    sums = &in->sums[step % in->window];
    sums->lost_square += lost;
    sums->whole_square += whole;
    pthread_mutex_unlock(&in->lock);
}

void interpreter_distortion_add(ty_interpreter *in, const step_control *control)
{
    if (!(control->whole_square > 0))
        return;
    in->distortion_sum += control->lost_square / control->whole_square;
    in->distortion_steps++;
}

double ty_interpreter_distortion(const ty_interpreter *in, uint32_t *steps)
{
    *steps = in->distortion_steps;
    return in->distortion_steps > 0 ? in->distortion_sum / in->distortion_steps : 0;
}
