/* Maximum and average pooling, in channels-last layout: the inner loops run over channels. */
#include "cpu_layer.h"
#include "cpu_math.h"

#define CHANNEL_BLOCK 64
#define VECTOR 16 /* numbers of the widest vector registers there are */

typedef struct pool {
    uint64_t batch, channels;
    uint64_t in_height, in_width, out_height, out_width;
    uint64_t height, width, stride, padding_height, padding_width;
    bool is_average;
    bool is_tiling;  /* every input pixel is in exactly one window */
    bool is_halving; /* maxima of tiling windows of two by two */
} pool;

/* A window's part inside the image: rows [top, bottom), columns [left, right). */
typedef struct window {
    uint64_t top, bottom, left, right;
} window;

CPU_INLINE void clip(uint64_t at, uint64_t stride, uint64_t padding, uint64_t size, uint64_t limit,
                     uint64_t *first, uint64_t *end)
{
    uint64_t start = at * stride, stop = start + size;

    *first = start > padding ? start - padding : 0;
    stop = stop > padding ? stop - padding : 0;
    *end = stop < limit ? stop : limit;
}

CPU_INLINE window window_at(const pool *p, uint64_t row, uint64_t column)
{
    window w;

    clip(row, p->stride, p->padding_height, p->height, p->in_height, &w.top, &w.bottom);
    clip(column, p->stride, p->padding_width, p->width, p->in_width, &w.left, &w.right);
    return w;
}

CPU_INLINE void window_maximum(const pool *p, const window *w, const float *image, float *y)
{
    uint64_t channels = p->channels;

    memcpy(y, image + (w->top * p->in_width + w->left) * channels, channels * sizeof *y);
    for (uint64_t h = w->top; h < w->bottom; h++)
        for (uint64_t v = w->left; v < w->right; v++) {
            const float *x = image + (h * p->in_width + v) * channels;
            for (uint64_t c = 0; c < channels; c++)
                y[c] = x[c] > y[c] ? x[c] : y[c];
        }
}

/* The divisor counts padding, as PyTorch's and torchvision's networks have it. */
CPU_INLINE void window_average(const pool *p, const window *w, const float *image, float *y)
{
    uint64_t channels = p->channels;
    float scale = 1.0f / (float)(p->height * p->width);

    memset(y, 0, channels * sizeof *y);
    for (uint64_t h = w->top; h < w->bottom; h++)
        for (uint64_t v = w->left; v < w->right; v++) {
            const float *x = image + (h * p->in_width + v) * channels;
            for (uint64_t c = 0; c < channels; c++)
                y[c] += x[c];
        }
    for (uint64_t c = 0; c < channels; c++)
        y[c] *= scale;
}

/* The first input equal to the maximum gets its gradient. A relu in place behind the pooling only
 * changes outputs whose gradient it makes zero. */
CPU_INLINE void maximum_gradient(const pool *p, const window *w, const float *image, const float *y,
                                 const float *dy, float *dimage)
{
    for (uint64_t first = 0; first < p->channels; first += CHANNEL_BLOCK) {
        uint64_t left = p->channels - first, count = left < CHANNEL_BLOCK ? left : CHANNEL_BLOCK;
        float rest[CHANNEL_BLOCK]; /* the gradient until it has found its place, then 0 */

        memcpy(rest, dy + first, count * sizeof *rest);
        for (uint64_t h = w->top; h < w->bottom; h++)
            for (uint64_t v = w->left; v < w->right; v++) {
                uint64_t at = (h * p->in_width + v) * p->channels + first;
                const float *x = image + at;
                float *restrict dx = dimage + at;
                for (uint64_t c = 0; c < count; c++) {
                    float part = x[c] == y[first + c] ? rest[c] : 0.0f;
                    rest[c] -= part;
                    dx[c] = p->is_tiling ? part : dx[c] + part;
                }
            }
    }
}

CPU_INLINE void average_gradient(const pool *p, const window *w, const float *dy, float *dimage)
{
    float scale = 1.0f / (float)(p->height * p->width);

    for (uint64_t h = w->top; h < w->bottom; h++)
        for (uint64_t v = w->left; v < w->right; v++) {
            float *dx = dimage + (h * p->in_width + v) * p->channels;
            for (uint64_t c = 0; c < p->channels; c++)
                dx[c] += scale * dy[c];
        }
}

static ty_status pool_build(ty_stage_device *stage, cpu_node *node, ty_error *error)
{
    const uint64_t *a = node->layer->attributes;
    const ty_shape *in = &stage->values[node->inputs[0]].shape;
    const ty_shape *out = &stage->values[node->output].shape;
    bool is_global = a[TY_IS_GLOBAL] != 0;
    pool *p = cpu_buffer(stage, 1, sizeof *p);

    if (p == NULL)
        return ty_fail(error, TY_ENOMEM, "layer %s: out of memory", node->layer->name);
    *p = (pool){
        .batch = cpu_batch(stage),
        .channels = in->dimensions[0],
        .in_height = in->dimensions[1],
        .in_width = in->dimensions[2],
        .out_height = out->dimensions[1],
        .out_width = out->dimensions[2],
        .height = is_global ? in->dimensions[1] : a[TY_KERNEL_HEIGHT],
        .width = is_global ? in->dimensions[2] : a[TY_KERNEL_WIDTH],
        .stride = is_global ? 1 : a[TY_STRIDE],
        .padding_height = is_global ? 0 : a[TY_PADDING_HEIGHT],
        .padding_width = is_global ? 0 : a[TY_PADDING_WIDTH],
        .is_average = a[TY_IS_AVERAGE] != 0,
    };
    p->is_tiling = !p->is_average && !node->adds[0] && p->padding_height == 0 &&
                   p->padding_width == 0 && p->stride == p->height && p->stride == p->width &&
                   p->out_height * p->height == p->in_height &&
                   p->out_width * p->width == p->in_width;
    p->is_halving = p->is_tiling && p->height == 2 && p->width == 2;
    node->state = p;
    return TY_OK;
}

/* Two by two, what most networks have: a window at a time in registers. */
CPU_CLONES static void halve_forward(const pool *p, const float *image, float *y)
{
    const uint64_t channels = p->channels, row_size = p->in_width * channels;

    for (uint64_t row = 0; row < p->out_height; row++, image += 2 * row_size)
        for (uint64_t column = 0; column < p->out_width; column++, y += channels) {
            const float *x = image + 2 * column * channels;
            for (uint64_t c = 0; c < channels; c++) {
                float above = x[c] > x[channels + c] ? x[c] : x[channels + c];
                float right = x[row_size + channels + c];
                float below = x[row_size + c] > right ? x[row_size + c] : right;
                y[c] = above > below ? above : below;
            }
        }
}

/* What of a gradient that has not found its place belongs to an input. */
CPU_INLINE float halve_take(float x, float maximum, float *rest)
{
    float part = x == maximum ? *rest : 0.0f;
    *rest -= part;
    return part;
}

/* `count` channels of a window. */
CPU_INLINE void halve_gradient(uint64_t count, const float *restrict x, const float *restrict y,
                               const float *restrict dy, uint64_t right, uint64_t below,
                               float *restrict dx)
{
    for (uint64_t c = 0; c < count; c++) {
        float rest = dy[c];
        dx[c] = halve_take(x[c], y[c], &rest);
        dx[right + c] = halve_take(x[right + c], y[c], &rest);
        dx[below + c] = halve_take(x[below + c], y[c], &rest);
        dx[below + right + c] = halve_take(x[below + right + c], y[c], &rest);
    }
}

/* Channels go in blocks of a vector; the last block may do some again, which changes nothing. */
CPU_CLONES static void halve_backward(const pool *p, const float *image, const float *y,
                                      const float *dy, float *dimage)
{
    const uint64_t channels = p->channels, row_size = p->in_width * channels;

    for (uint64_t row = 0; row < p->out_height; row++)
        for (uint64_t column = 0; column < p->out_width; column++, y += channels, dy += channels) {
            const uint64_t at = 2 * row * row_size + 2 * column * channels;
            const float *x = image + at;
            float *dx = dimage + at;
            if (channels < VECTOR)
                halve_gradient(channels, x, y, dy, channels, row_size, dx);
            for (uint64_t next = VECTOR; next < channels + VECTOR && channels >= VECTOR;
                 next += VECTOR) {
                const uint64_t c = (next < channels ? next : channels) - VECTOR;
                halve_gradient(VECTOR, x + c, y + c, dy + c, channels, row_size, dx + c);
            }
        }
}

CPU_CLONES static void image_forward(const pool *p, const float *image, float *y)
{
    for (uint64_t row = 0; row < p->out_height; row++)
        for (uint64_t column = 0; column < p->out_width; column++, y += p->channels) {
            window w = window_at(p, row, column);
            if (p->is_average)
                window_average(p, &w, image, y);
            else
                window_maximum(p, &w, image, y);
        }
}

CPU_CLONES static void image_backward(const pool *p, const float *image, const float *y,
                                      const float *dy, float *dimage)
{
    for (uint64_t row = 0; row < p->out_height; row++)
        for (uint64_t column = 0; column < p->out_width; column++) {
            window w = window_at(p, row, column);
            if (p->is_average)
                average_gradient(p, &w, dy, dimage);
            else
                maximum_gradient(p, &w, image, y, dy, dimage);
            y += p->channels;
            dy += p->channels;
        }
}

static ty_status pool_forward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                              ty_error *error)
{
    const pool *p = node->state;
    uint64_t in = p->in_height * p->in_width * p->channels;
    uint64_t out = p->out_height * p->out_width * p->channels;
    const float *image = cpu_in(stage, node, 0, slot);
    float *y = cpu_out(stage, node, slot);

    (void)error;
    for (uint64_t b = 0; b < p->batch; b++)
        (p->is_halving ? halve_forward : image_forward)(p, image + b * in, y + b * out);
    return TY_OK;
}

static ty_status pool_backward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                               bool is_first, ty_error *error)
{
    const pool *p = node->state;
    uint64_t in = p->in_height * p->in_width * p->channels;
    uint64_t out = p->out_height * p->out_width * p->channels;
    const float *image = cpu_in(stage, node, 0, slot), *y = cpu_out(stage, node, slot);
    const float *dy = cpu_out_gradient(stage, node, slot);
    float *dimage = cpu_in_gradient(stage, node, 0, slot);

    (void)is_first, (void)error;
    if (dimage == NULL)
        return TY_OK;
    if (!p->is_tiling && !node->adds[0])
        memset(dimage, 0, p->batch * in * sizeof *dimage);
    for (uint64_t b = 0; b < p->batch; b++)
        (p->is_halving ? halve_backward : image_backward)(p, image + b * in, y + b * out,
                                                          dy + b * out, dimage + b * in);
    return TY_OK;
}

const cpu_kind cpu_pool = {
    .layout = CPU_CHANNELS_LAST,
    .build = pool_build,
    .forward = pool_forward,
    .backward = pool_backward,
};
