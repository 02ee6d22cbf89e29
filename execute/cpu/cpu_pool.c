/* Maximum and average pooling, in channels-last layout: the inner loops run over channels. */
#include "cpu_pool.h"
#include "cpu_math.h"

#define VECTOR 16 /* numbers of the widest vector registers */

/* A window's part inside the image: rows [top, bottom), columns [left, right); and the index of its
 * first number in the entire window. */
typedef struct window {
    uint64_t top, bottom, left, right, first;
} window;

CPU_INLINE uint64_t clip(uint64_t at, uint64_t stride, uint64_t padding, uint64_t size,
                         uint64_t limit, uint64_t *first, uint64_t *end)
{
    uint64_t start = at * stride, stop = start + size;

    *first = start > padding ? start - padding : 0;
    stop = stop > padding ? stop - padding : 0;
    *end = stop < limit ? stop : limit;
    return start < padding ? padding - start : 0;
}

CPU_INLINE window window_at(const cpu_pooling *p, uint64_t row, uint64_t column)
{
    window w;
    uint64_t above = clip(row, p->windows.stride, p->windows.padding_height, p->windows.height,
                          p->windows.in_height, &w.top, &w.bottom);
    uint64_t before = clip(column, p->windows.stride, p->windows.padding_width, p->windows.width,
                           p->windows.in_width, &w.left, &w.right);

    w.first = above * p->windows.width + before;
    return w;
}

/* The first of equal maxima; none if the maximum is not above `least`. */
CPU_INLINE void window_maximum(const cpu_pooling *p, const window *w, const float *image,
                               float least, float *restrict y, cpu_place *restrict places)
{
    const uint64_t channels = p->windows.channels;

    memcpy(y, image + (w->top * p->windows.in_width + w->left) * channels, channels * sizeof *y);
    for (uint64_t c = 0; c < channels; c++)
        places[c] = (cpu_place)w->first;
    for (uint64_t h = w->top; h < w->bottom; h++)
        for (uint64_t v = w->left; v < w->right; v++) {
            const float *x = image + (h * p->windows.in_width + v) * channels;
            const cpu_place place =
                (cpu_place)(w->first + (h - w->top) * p->windows.width + (v - w->left));
            for (uint64_t c = 0; c < channels; c++) {
                places[c] = x[c] > y[c] ? place : places[c];
                y[c] = x[c] > y[c] ? x[c] : y[c];
            }
        }
    for (uint64_t c = 0; c < channels; c++)
        places[c] = y[c] > least ? places[c] : CPU_NO_PLACE;
}

/* The divisor counts padding, as in PyTorch's and torchvision's models. */
CPU_INLINE void window_average(const cpu_pooling *p, const window *w, const float *image, float *y)
{
    uint64_t channels = p->windows.channels;
    float scale = 1.0f / (float)(p->windows.height * p->windows.width);

    memset(y, 0, channels * sizeof *y);
    for (uint64_t h = w->top; h < w->bottom; h++)
        for (uint64_t v = w->left; v < w->right; v++) {
            const float *x = image + (h * p->windows.in_width + v) * channels;
            for (uint64_t c = 0; c < channels; c++)
                y[c] += x[c];
        }
    for (uint64_t c = 0; c < channels; c++)
        y[c] *= scale;
}

CPU_INLINE void maximum_gradient(const cpu_pooling *p, const window *w,
                                 const cpu_place *restrict places, const float *restrict dy,
                                 bool adds, float *dimage)
{
    for (uint64_t h = w->top; h < w->bottom; h++)
        for (uint64_t v = w->left; v < w->right; v++) {
            const cpu_place place =
                (cpu_place)(w->first + (h - w->top) * p->windows.width + (v - w->left));
            float *restrict dx = dimage + (h * p->windows.in_width + v) * p->windows.channels;
            for (uint64_t c = 0; c < p->windows.channels; c++) {
                float part = places[c] == place ? dy[c] : 0.0f;
                dx[c] = adds ? dx[c] + part : part;
            }
        }
}

CPU_INLINE void average_gradient(const cpu_pooling *p, const window *w, const float *dy,
                                 float *dimage)
{
    float scale = 1.0f / (float)(p->windows.height * p->windows.width);

    for (uint64_t h = w->top; h < w->bottom; h++)
        for (uint64_t v = w->left; v < w->right; v++) {
            float *dx = dimage + (h * p->windows.in_width + v) * p->windows.channels;
            for (uint64_t c = 0; c < p->windows.channels; c++)
                dx[c] += scale * dy[c];
        }
}

/* ---- Two by two, as in most models: a window at a time in registers ---- */

/* `count` channels of a window. */
CPU_INLINE void halve_maximum(uint64_t count, const float *restrict x, uint64_t right,
                              uint64_t below, float least, float *restrict y,
                              cpu_place *restrict places)
{
    for (uint64_t c = 0; c < count; c++) {
        const float x0 = x[c], x1 = x[right + c], x2 = x[below + c], x3 = x[below + right + c];
        const float above = x1 > x0 ? x1 : x0, under = x3 > x2 ? x3 : x2;
        const int32_t of_above = x1 > x0 ? 1 : 0, of_under = x3 > x2 ? 3 : 2;
        const float maximum = under > above ? under : above;
        const int32_t place = under > above ? of_under : of_above;
        y[c] = maximum;
        places[c] = (cpu_place)(maximum > least ? place : CPU_NO_PLACE);
    }
}

CPU_INLINE void halve_gradient(uint64_t count, const cpu_place *restrict places,
                               const float *restrict dy, uint64_t right, uint64_t below,
                               float *restrict dx)
{
    for (uint64_t c = 0; c < count; c++) {
        const int32_t place = places[c];
        const float part = dy[c];
        dx[c] = place == 0 ? part : 0.0f;
        dx[right + c] = place == 1 ? part : 0.0f;
        dx[below + c] = place == 2 ? part : 0.0f;
        dx[below + right + c] = place == 3 ? part : 0.0f;
    }
}

/* Channels go in blocks of a vector; the last block may repeat some, which changes nothing. */
CPU_CLONES static void halve_forward(const cpu_pooling *p, const float *image, float least,
                                     float *y, cpu_place *places)
{
    const uint64_t channels = p->windows.channels, row_size = p->windows.in_width * channels;

    for (uint64_t row = 0; row < p->windows.out_height; row++, image += 2 * row_size)
        for (uint64_t column = 0; column < p->windows.out_width;
             column++, y += channels, places += channels) {
            const float *x = image + 2 * column * channels;
            if (channels < VECTOR)
                halve_maximum(channels, x, channels, row_size, least, y, places);
            for (uint64_t next = VECTOR; next < channels + VECTOR && channels >= VECTOR;
                 next += VECTOR) {
                const uint64_t c = (next < channels ? next : channels) - VECTOR;
                halve_maximum(VECTOR, x + c, channels, row_size, least, y + c, places + c);
            }
        }
}

CPU_CLONES static void halve_backward(const cpu_pooling *p, const cpu_place *places,
                                      const float *dy, float *dimage)
{
    const uint64_t channels = p->windows.channels, row_size = p->windows.in_width * channels;

    for (uint64_t row = 0; row < p->windows.out_height; row++, dimage += 2 * row_size)
        for (uint64_t column = 0; column < p->windows.out_width;
             column++, places += channels, dy += channels) {
            float *dx = dimage + 2 * column * channels;
            if (channels < VECTOR)
                halve_gradient(channels, places, dy, channels, row_size, dx);
            for (uint64_t next = VECTOR; next < channels + VECTOR && channels >= VECTOR;
                 next += VECTOR) {
                const uint64_t c = (next < channels ? next : channels) - VECTOR;
                halve_gradient(VECTOR, places + c, dy + c, channels, row_size, dx + c);
            }
        }
}

/* ---- Any window ---- */

CPU_CLONES static void image_forward(const cpu_pooling *p, const float *image, float least,
                                     float *y, cpu_place *places)
{
    for (uint64_t row = 0; row < p->windows.out_height; row++)
        for (uint64_t column = 0; column < p->windows.out_width;
             column++, y += p->windows.channels) {
            window w = window_at(p, row, column);
            if (p->windows.is_average) {
                window_average(p, &w, image, y);
                continue;
            }
            window_maximum(p, &w, image, least, y, places);
            places += p->windows.channels;
        }
}

CPU_CLONES static void image_backward(const cpu_pooling *p, const cpu_place *places,
                                      const float *dy, bool adds, float *dimage)
{
    for (uint64_t row = 0; row < p->windows.out_height; row++)
        for (uint64_t column = 0; column < p->windows.out_width;
             column++, dy += p->windows.channels) {
            window w = window_at(p, row, column);
            if (p->windows.is_average) {
                average_gradient(p, &w, dy, dimage);
                continue;
            }
            maximum_gradient(p, &w, places, dy, adds, dimage);
            places += p->windows.channels;
        }
}

/* ---- Batches ---- */

/* Floats of a sample. */
static uint64_t cpu_pooling_in(const cpu_pooling *p)
{
    return p->windows.in_height * p->windows.in_width * p->windows.channels;
}

static uint64_t cpu_pooling_out(const cpu_pooling *p)
{
    return p->windows.out_height * p->windows.out_width * p->windows.channels;
}

/* Windows have less than 2^31 numbers: their images would be larger than memory. */
cpu_pooling cpu_pooling_of(const ty_layer *layer, const ty_shape *in, const ty_shape *out)
{
    cpu_pooling p = {.windows = pool_windows_of(layer, in, out)};

    p.is_tiling = !p.windows.is_average && p.windows.padding_height == 0 &&
                  p.windows.padding_width == 0 && p.windows.stride == p.windows.height &&
                  p.windows.stride == p.windows.width &&
                  p.windows.out_height * p.windows.height == p.windows.in_height &&
                  p.windows.out_width * p.windows.width == p.windows.in_width;
    p.is_halving = p.is_tiling && p.windows.height == 2 && p.windows.width == 2;
    return p;
}

void cpu_pooling_forward(const cpu_pooling *p, uint64_t samples, const float *image, bool has_relu,
                         float *y, cpu_place *places)
{
    const uint64_t in = cpu_pooling_in(p), out = cpu_pooling_out(p);
    const float least = has_relu ? 0.0f : -INFINITY;

    for (uint64_t b = 0; b < samples; b++)
        (p->is_halving ? halve_forward : image_forward)(
            p, image + b * in, least, y + b * out, p->windows.is_average ? NULL : places + b * out);
}

void cpu_pooling_backward(const cpu_pooling *p, uint64_t samples, const cpu_place *places,
                          const float *dy, bool adds, float *dimage)
{
    const uint64_t in = cpu_pooling_in(p), out = cpu_pooling_out(p);

    if (!p->is_tiling && !adds)
        memset(dimage, 0, samples * in * sizeof *dimage);
    for (uint64_t b = 0; b < samples; b++) {
        const cpu_place *of_sample = p->windows.is_average ? NULL : places + b * out;
        if (p->is_halving && !adds)
            halve_backward(p, of_sample, dy + b * out, dimage + b * in);
        else
            image_backward(p, of_sample, dy + b * out, adds || !p->is_tiling, dimage + b * in);
    }
}

/* ---- The layer ---- */

static ty_status pool_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    const stage_value *in = &stage->values[node->inputs[0]], *out = &stage->values[node->output];
    cpu_pooling *p = cpu_buffer(stage, sizeof *p);

    if (p == NULL)
        return ty_fail(error, TY_ENOMEM, "layer %s: out of memory", node->layer->name);
    *p = cpu_pooling_of(node->layer, &in->shape, &out->shape);
    node->state = p;
    node->stash_bytes = p->windows.is_average ? 0 : out->count * sizeof(cpu_place);
    return TY_OK;
}

static ty_status pool_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              ty_error *error)
{
    (void)error;
    cpu_pooling_forward(node->state, stage_batch(stage), cpu_in(stage, node, 0, slot), false,
                        cpu_out(stage, node, slot), node->stash[slot]);
    return TY_OK;
}

static ty_status pool_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                               bool is_first, ty_error *error)
{
    float *dimage = cpu_in_gradient(stage, node, 0, slot);

    (void)is_first, (void)error;
    if (dimage != NULL)
        cpu_pooling_backward(node->state, stage_batch(stage), node->stash[slot],
                             cpu_out_gradient(stage, node, slot), node->adds[0], dimage);
    return TY_OK;
}

/* A convolution pools its images itself, a few at a time, if the pooling is their only reader; the
 * relu between the two is fused as well. There are two exceptions. The average of a relu's output
 * would need that output in backward. Backward in two parts would need the images' gradient twice.
 */
static bool pool_join(stage_lowering *low, const stage_place *place)
{
    ty_stage_device *stage = low->stage;
    const ty_layer *layer = &low->workload->layers[place->layer];
    const stage_value *read = &stage->values[place->inputs[0]];
    stage_node *last = stage_last_node(low);

    if (last == NULL || stage->values[last->output].data_of != read->data_of || !read->is_private ||
        !last->kind->fuses_pool || last->pool != NULL ||
        (layer->attributes[TY_IS_AVERAGE] != 0 && last->has_relu) || stage->options.splits_backward)
        return false;
    stage->values[read->data_of].is_inside = true;
    last->pool = layer;
    last->output = place->output;
    return true;
}

const stage_kind cpu_pool = {
    .join = pool_join,
    .order = STAGE_CHANNELS_LAST,
    .build = pool_build,
    .forward = pool_forward,
    .backward = pool_backward,
};
