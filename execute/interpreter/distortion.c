/*
 * Compression error of a rank's gradients, |Cg - g|^2 / |g|^2. Every DISTORTION_INTERVAL steps each
 * bucket's gradients also go through a separate compressor that has no residual and no other ranks.
 * Only on request.
 */
#include "codec_kinds.h"
#include "interpreter_buckets.h"
#include "interpreter_watches.h"

/* Steps, the same as for gradient noise. */
enum { DISTORTION_INTERVAL = 16 };

typedef struct probe {
    ty_codec *codec; /* NULL: the bucket is not measured */
    float *sum;
} probe;

struct distortion_watch {
    probe *probes; /* [bucket] */
    double sum;
    uint32_t steps;
};

ty_status interpreter_distortion_open(ty_interpreter *in, const ty_codec_options *options,
                                      uint32_t bucket, ty_error *error)
{
    ty_codec_options alone = *options;

    if (!in->options.measure_distortion || !ty_compression_is_lossy(&options->compression))
        return TY_OK;
    if (in->distortion == NULL) {
        in->distortion = ty_alloc(1, sizeof *in->distortion);
        TY_TRY(ty_check_memory(in->distortion != NULL, error));
        in->distortion->probes =
            ty_alloc(in->options.plan->bucket_count, sizeof *in->distortion->probes);
        TY_TRY(ty_check_memory(in->distortion->probes != NULL, error));
    }
    alone.member_count = 1;
    alone.position = 0;
    in->distortion->probes[bucket].sum = ty_alloc(options->count, sizeof(float));
    TY_TRY(ty_check_memory(in->distortion->probes[bucket].sum != NULL, error));
    return ty_codec_open(&alone, &in->distortion->probes[bucket].codec, error);
}

void interpreter_distortion_close(ty_interpreter *in)
{
    struct distortion_watch *d = in->distortion;

    if (d == NULL)
        return;
    for (uint32_t b = 0; d->probes != NULL && b < in->options.plan->bucket_count; b++) {
        ty_codec_close(d->probes[b].codec);
        ty_free(d->probes[b].sum);
    }
    ty_free(d->probes);
    ty_free(d);
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
    const bucket_state *bucket = &in->buckets[index];
    const probe *own;
    const float *gradients;
    double lost, whole;
    step_control *sums;

    if (in->distortion == NULL || step % DISTORTION_INTERVAL != 0)
        return;
    own = &in->distortion->probes[index];
    if (own->codec == NULL)
        return;
    gradients = interpreter_gradients(in, bucket->virtual_stage, step) + bucket->offset;
    residual_clear(own->codec);
    for (uint32_t p = 0; p < ty_compression_phases(&own->codec->options.compression); p++)
        ty_codec_encode(own->codec, p, gradients);
    ty_codec_decode(own->codec, own->sum);
    squares_add(bucket->count, gradients, own->sum, &lost, &whole);
    pthread_mutex_lock(&in->lock);
    sums = &in->sums[step % in->window];
    sums->lost_square += lost;
    sums->whole_square += whole;
    pthread_mutex_unlock(&in->lock);
}

void interpreter_distortion_add(ty_interpreter *in, const step_control *control)
{
    if (in->distortion == NULL || !(control->whole_square > 0))
        return;
    in->distortion->sum += control->lost_square / control->whole_square;
    in->distortion->steps++;
}

double ty_interpreter_distortion(const ty_interpreter *in, uint32_t *steps)
{
    *steps = in->distortion != NULL ? in->distortion->steps : 0;
    return *steps > 0 ? in->distortion->sum / *steps : 0;
}
