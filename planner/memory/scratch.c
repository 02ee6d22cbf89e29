/* cuDNN's copies and partial sums: scratch.h has the source. */
#include "memory/scratch.h"

/* Channels of samples that fp32 kernels read without a copy. */
#define FEW_CHANNELS 4
/* A filter of 3 x 3 as a tile of 4 x 4. */
#define TILE_NUMBERS UINT64_C(16)
/* Groups whose planes are copied at a time; in 16 bits fewer are copied. */
#define GROUPS_AT_ONCE 8
/* Multiples of channels for tensor cores: this number with groups, this number of bytes without. */
#define GROUP_MULTIPLE 4
#define MULTIPLE_BYTES 16
/* Parts into which pixels are split, about one per processor of a device, and the maximum size of
 * all their sums. */
#define MOST_PARTS 128
#define MOST_SUMS_BYTES (UINT64_C(40) << 20)

uint64_t ty_attention_scratch(uint64_t samples, uint64_t heads, uint64_t kv_heads,
                              uint64_t head_size, uint64_t length, uint64_t keys, bool is_ordered)
{
    const uint64_t sums = is_ordered ? samples * heads * length * keys * sizeof(uint16_t)
                                     : 2 * samples * heads * length * head_size * sizeof(float);
    const uint64_t shared = heads == kv_heads ? 0 : 2 * samples * heads * keys * head_size;

    return sums + shared * sizeof(uint16_t);
}

static uint64_t round_up(uint64_t number, uint64_t multiple)
{
    return (number + multiple - 1) / multiple * multiple;
}

/* Numbers of images, every group's channels rounded up. */
static uint64_t image(const ty_convolution *c, uint64_t channels, uint64_t pixels,
                      uint64_t multiple)
{
    return c->samples * pixels * c->groups * round_up(channels / c->groups, multiple);
}

static uint64_t inputs(const ty_convolution *c, uint64_t multiple)
{
    return image(c, c->in_channels, c->in_pixels, multiple);
}

static uint64_t outputs(const ty_convolution *c, uint64_t multiple)
{
    return image(c, c->out_channels, c->out_pixels, multiple);
}

static uint64_t filters(const ty_convolution *c, uint64_t multiple)
{
    return round_up(c->out_channels, multiple) * round_up(c->in_channels / c->groups, multiple) *
           c->window_height * c->window_width;
}

static bool is_by_channel(const ty_convolution *c)
{
    return c->groups > 1 && c->groups == c->in_channels;
}

/* cuDNN makes no copies beyond the limit: it uses an engine that needs none. */
static uint64_t within_limit(uint64_t bytes)
{
    return bytes <= TY_CONVOLUTION_SCRATCH_LIMIT ? bytes : 0;
}

/* ---- Without tensor cores ---- */

static uint64_t filter_planes(const ty_convolution *c)
{
    const uint64_t window = c->window_height * c->window_width;
    const uint64_t bytes = filters(c, 1) * sizeof(float);
    const bool is_tiled = c->window_height == 3 && c->window_width == 3 && c->stride == 1;
    const uint64_t tiled =
        is_tiled ? within_limit(bytes / window * (2 * window + TILE_NUMBERS)) : 0;

    return tiled > 0 ? tiled : window > 1 ? within_limit(bytes) : 0;
}

static uint64_t planes(const ty_convolution *c)
{
    const uint64_t images = (inputs(c, 1) + outputs(c, 1)) * sizeof(float);

    if (is_by_channel(c) || (c->reads_samples && c->in_channels <= FEW_CHANNELS))
        return 0;
    return (c->groups > GROUPS_AT_ONCE ? images / c->groups * GROUPS_AT_ONCE : images) +
           filter_planes(c);
}

/* ---- With tensor cores ---- */

static uint64_t tf32_copies(const ty_convolution *c, uint64_t multiple)
{
    const uint64_t in = inputs(c, multiple) * sizeof(float);
    const uint64_t out = outputs(c, multiple) * sizeof(float);
    const uint64_t both = within_limit(in + out);
    const uint64_t forward = within_limit(in);
    const uint64_t backward = c->reads_samples ? 0 : within_limit(out);

    return (both > 0             ? both
            : forward > backward ? forward
                                 : backward) +
           filters(c, 1) * sizeof(float);
}

static uint64_t narrow_copies(const ty_convolution *c, uint64_t multiple)
{
    const bool is_regrouped = c->groups > 1 && c->groups < GROUPS_AT_ONCE;
    const uint64_t in = inputs(c, multiple), out = outputs(c, multiple);

    return within_limit(((is_regrouped || in != inputs(c, 1) ? in : 0) +
                         (is_regrouped || out != outputs(c, 1) ? out : 0)) *
                        sizeof(uint16_t));
}

static uint64_t partial_sums(const ty_convolution *c, uint64_t multiple)
{
    const uint64_t part = filters(c, multiple) * sizeof(float);

    return part < MOST_SUMS_BYTES / MOST_PARTS ? part * MOST_PARTS : MOST_SUMS_BYTES;
}

uint64_t ty_convolution_scratch(const ty_convolution *convolution, ty_precision precision)
{
    const ty_convolution *c = convolution;
    const uint64_t multiple =
        c->groups > 1 ? GROUP_MULTIPLE : MULTIPLE_BYTES / ty_precision_bytes(precision);
    uint64_t bytes;

    if (precision == TY_PRECISION_FP32)
        return planes(c);
    bytes = partial_sums(c, multiple);
    if (!is_by_channel(c))
        bytes +=
            precision == TY_PRECISION_TF32 ? tf32_copies(c, multiple) : narrow_copies(c, multiple);
    return bytes < TY_CONVOLUTION_SCRATCH_LIMIT ? bytes : TY_CONVOLUTION_SCRATCH_LIMIT;
}
