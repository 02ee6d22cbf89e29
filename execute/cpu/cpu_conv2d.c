/*
 * Convolutions, in channels-last layout, fused with the relu after them, if there is one, and the
 * pooling after that. Images that are pooled are computed a few at a time. So they are still in the
 * cache when they are pooled, and again when backward turns their gradient into one of weights. All
 * images together, the largest tensors of most such models, never exist.
 */
#include "cpu_conv_product.h"
#include "cpu_layer.h"
#include "cpu_pool.h"

/* Bytes of the images of a piece: half of the smallest second-level cache per core of servers since
 * 2017 (1 MiB, Skylake-SP). The other half is for their inputs. */
#define PIECE_BYTES (512 << 10)
/* A piece computes gradients of all weights, which are added to those of other pieces. The addition
 * reads and writes four numbers per weight; the piece itself takes two operations per weight and
 * pixel. From this many pixels on the addition takes at most a twentieth of the time, at 64
 * operations in the time of a number. */
#define PIECE_PIXELS 2048

typedef struct convolution {
    cpu_conv *conv;
    cpu_conv_shape shape;   /* of a piece */
    uint64_t piece;         /* samples at once; it divides the batch */
    uint64_t in, made, out; /* floats of a sample: input, convolution, output */
    bool has_pool, has_bias;
    bool has_product; /* its input's gradient is a product */
    cpu_pooling pool;
    /* Offsets in the scratch, after that of oneDNN or the product, in bytes: the images of a piece
     * or their gradient, and a gradient to be added to another. */
    uint64_t images_at, sums_at;
} convolution;

static uint64_t weight_count(const stage_node *node)
{
    const uint64_t *a = node->layer->attributes;
    return a[TY_OUT_CHANNELS] * (a[TY_IN_CHANNELS] / a[TY_GROUPS]) * a[TY_KERNEL_HEIGHT] *
           a[TY_KERNEL_WIDTH];
}

static bool is_piece(const convolution *c, uint64_t samples, uint64_t pixels)
{
    return samples * c->made * sizeof(float) >= PIECE_BYTES && samples * pixels >= PIECE_PIXELS;
}

/* The fewest samples, among the divisors of the batch, for which a piece pays. */
static uint64_t piece_of(const convolution *c, uint64_t batch, uint64_t pixels)
{
    uint64_t samples = 1;

    while (samples < batch && (batch % samples != 0 || !is_piece(c, samples, pixels)))
        samples++;
    return samples;
}

static cpu_conv_shape shape_of(const stage_node *node, const stage_value *in)
{
    const uint64_t *a = node->layer->attributes;
    const ty_shape *made = &node->layer->output;

    return (cpu_conv_shape){
        .groups = a[TY_GROUPS],
        .in_channels = a[TY_IN_CHANNELS],
        .in_height = in->shape.dimensions[1],
        .in_width = in->shape.dimensions[2],
        .out_channels = a[TY_OUT_CHANNELS],
        .out_height = made->dimensions[1],
        .out_width = made->dimensions[2],
        .kernel_height = a[TY_KERNEL_HEIGHT],
        .kernel_width = a[TY_KERNEL_WIDTH],
        .stride = a[TY_STRIDE],
        .padding_height = a[TY_PADDING_HEIGHT],
        .padding_width = a[TY_PADDING_WIDTH],
        .has_bias = a[TY_HAS_BIAS] != 0,
        .has_relu = node->has_relu,
        .has_weight_gradient = !node->layer->is_frozen,
    };
}

/* @return bytes of the scratch */
static uint64_t scratch_cut(const stage_node *node, const stage_value *in, convolution *c)
{
    uint64_t sums = weight_count(node) + node->layer->attributes[TY_OUT_CHANNELS];

    if (node->adds[0] && in->needs_gradient && c->piece * c->in > sums)
        sums = c->piece * c->in;
    c->images_at = cpu_conv_scratch_bytes(c->conv);
    if (c->has_product && cpu_conv_product_bytes(&c->shape) > c->images_at)
        c->images_at = cpu_conv_product_bytes(&c->shape);
    c->images_at = (c->images_at + 63) / 64 * 64;
    c->sums_at = c->images_at;
    if (c->has_pool)
        c->sums_at += (c->piece * c->made * sizeof(float) + 63) / 64 * 64;
    return c->sums_at + sums * sizeof(float);
}

static ty_status conv2d_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    const stage_value *in = &stage->values[node->inputs[0]], *out = &stage->values[node->output];
    const ty_shape *made = &node->layer->output;
    const uint64_t batch = stage_batch(stage);
    cpu_conv_shape shape = shape_of(node, in);
    convolution *c = cpu_buffer(stage, sizeof *c);
    ty_status status;

    if (c == NULL)
        return ty_fail(error, TY_ENOMEM, "layer %s: out of memory", node->layer->name);
    *c = (convolution){
        .piece = batch,
        .in = in->count / batch,
        .made = ty_shape_elements(made),
        .out = out->count / batch,
        .has_pool = node->pool != NULL,
        .has_bias = shape.has_bias,
    };
    node->state = c;
    if (c->has_pool) {
        c->pool = cpu_pooling_of(node->pool, made, &node->pool->output);
        c->piece = piece_of(c, batch, shape.out_height * shape.out_width);
        node->stash_bytes = c->pool.windows.is_average ? 0 : out->count * sizeof(cpu_place);
    }
    shape.batch = c->piece;
    c->has_product = in->needs_gradient && cpu_conv_product_suits(&shape);
    shape.has_input_gradient = in->needs_gradient && !c->has_product;
    c->shape = shape;
    status = cpu_conv_open(&shape, node->layer->name, &c->conv, error);
    if (status == TY_OK)
        node->scratch_bytes = scratch_cut(node, in, c);
    return status;
}

static void conv2d_release(ty_stage_device *stage, stage_node *node)
{
    const convolution *c = node->state;

    (void)stage;
    if (c != NULL)
        cpu_conv_close(c->conv);
}

static float *scratch_at(const ty_stage_device *stage, uint64_t bytes)
{
    return (float *)(void *)((char *)stage->scratch + bytes);
}

/* Places of the maxima of a piece's images, from its first sample on. */
static cpu_place *places_at(const stage_node *node, const convolution *c, uint32_t slot,
                            uint64_t first)
{
    return c->pool.windows.is_average ? NULL : (cpu_place *)node->stash[slot] + first * c->out;
}

static ty_status conv2d_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                ty_error *error)
{
    const convolution *c = node->state;
    const float *x = cpu_in(stage, node, 0, slot), *weight = cpu_parameters(stage, node, 0);
    const float *bias = c->has_bias ? cpu_parameters(stage, node, 1) : NULL;
    float *y = cpu_out(stage, node, slot), *images = scratch_at(stage, c->images_at);
    ty_status status = TY_OK;

    for (uint64_t b = 0; b < stage_batch(stage) && status == TY_OK; b += c->piece) {
        status = cpu_conv_forward(c->conv, x + b * c->in, weight, bias,
                                  c->has_pool ? images : y + b * c->out, stage->scratch, error);
        if (status == TY_OK && c->has_pool)
            cpu_pooling_forward(&c->pool, c->piece, images, node->has_relu, y + b * c->out,
                                places_at(node, c, slot, b));
    }
    return status;
}

/* Of a piece; `adds`: to the gradients of earlier pieces. */
static ty_status weight_gradients(ty_stage_device *stage, const stage_node *node, const float *x,
                                  const float *dy, bool adds, ty_error *error)
{
    const convolution *c = node->state;
    const uint64_t weights = weight_count(node), out = node->layer->attributes[TY_OUT_CHANNELS];
    float *dw = cpu_parameter_gradient(stage, node, 0);
    float *db = c->has_bias ? cpu_parameter_gradient(stage, node, 1) : NULL;
    float *sums = scratch_at(stage, c->sums_at);
    ty_status status;

    if (dw == NULL)
        return TY_OK;
    if (!adds)
        return cpu_conv_backward_weights(c->conv, x, dy, dw, db, stage->scratch, error);
    status = cpu_conv_backward_weights(c->conv, x, dy, sums, c->has_bias ? sums + weights : NULL,
                                       stage->scratch, error);
    if (status != TY_OK)
        return status;
    cpu_accumulate(weights, sums, true, dw);
    if (c->has_bias)
        cpu_accumulate(out, sums + weights, true, db);
    return TY_OK;
}

/* Of a piece; dx may be NULL. */
static ty_status input_gradient(ty_stage_device *stage, const stage_node *node, const float *dy,
                                float *dx, ty_error *error)
{
    const convolution *c = node->state;
    const float *weight = cpu_parameters(stage, node, 0);
    float *to = node->adds[0] ? scratch_at(stage, c->sums_at) : dx;
    ty_status status = TY_OK;

    if (dx == NULL)
        return TY_OK;
    if (c->has_product)
        cpu_conv_product_data(&c->shape, dy, weight, to, stage->scratch);
    else
        status = cpu_conv_backward_data(c->conv, dy, weight, to, stage->scratch, error);
    if (status == TY_OK && to != dx)
        cpu_accumulate(c->piece * c->in, to, true, dx);
    return status;
}

static ty_status conv2d_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                 bool is_first, ty_error *error)
{
    const convolution *c = node->state;
    const float *x = cpu_in(stage, node, 0, slot);
    float *dy = cpu_out_gradient(stage, node, slot), *dx = cpu_in_gradient(stage, node, 0, slot);
    float *images = scratch_at(stage, c->images_at);
    const bool adds = stage_adds(node, 0, is_first);
    ty_status status = TY_OK;

    if (node->has_relu && !c->has_pool)
        cpu_relu_mask(stage->values[node->output].count, cpu_out(stage, node, slot), dy);
    for (uint64_t b = 0; b < stage_batch(stage) && status == TY_OK; b += c->piece) {
        float *of_piece = c->has_pool ? images : dy + b * c->out;
        if (c->has_pool)
            cpu_pooling_backward(&c->pool, c->piece, places_at(node, c, slot, b), dy + b * c->out,
                                 false, images);
        status = weight_gradients(stage, node, x + b * c->in, of_piece, adds || b > 0, error);
        if (status == TY_OK)
            status =
                input_gradient(stage, node, of_piece, dx == NULL ? NULL : dx + b * c->in, error);
    }
    return status;
}

const stage_kind cpu_conv2d = {
    .order = STAGE_CHANNELS_LAST,
    .fuses_relu = true,
    .fuses_pool = true,
    .build = conv2d_build,
    .forward = conv2d_forward,
    .backward = conv2d_backward,
    .release = conv2d_release,
};
