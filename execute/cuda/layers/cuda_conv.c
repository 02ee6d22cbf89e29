/* Convolutions through cuDNN (cuda_dnn_conv.c), channels last, as it would copy planes to that
 * layout in its workspace. Its weight gradients have the type of the pass, and are added to the
 * fp32 ones. Parameters are [K][C][R][S]. Before each pass, weights are copied to scratch if cuDNN
 * reads another order, or if they are not at multiples of 16 bytes, as floats may be. */
#include "cuda_stage.h"

#include <stdio.h>

typedef struct conv {
    cuda_dnn_conv *plans[CUDA_DNN_PASSES]; /* NULL: never needed */
    uint64_t outputs, inputs, taps;        /* of the weights: inputs per group, places per window */
    bool is_permuted;                      /* cuDNN reads another order, [K][R][S][C] */
    uint64_t own_at; /* bytes of scratch before the weights or their gradient */
} conv;

static uint64_t weight_count(const conv *c)
{
    return c->outputs * c->inputs * c->taps;
}

static void conv2d_release(ty_stage_device *stage, stage_node *node)
{
    conv *c = node->state;

    (void)stage;
    for (int pass = 0; c != NULL && pass < CUDA_DNN_PASSES; pass++)
        cuda_dnn_conv_free(c->plans[pass]);
    ty_free(c);
}

/* ---- Requests to cuDNN --------- */

/* As in cuda_conv2d.order; any order if there is one channel or one pixel. */
static cuda_dnn_layout layout_of(const ty_stage_device *stage, const stage_value *value)
{
    const uint64_t *d = value->shape.dimensions;

    return cuda_dnn_channels_last(stage_batch(stage), d[0], d[1], d[2]);
}

static cuda_dnn_convolution convolution_of(const ty_stage_device *stage, const stage_node *node,
                                           cuda_dnn_pass pass)
{
    const uint64_t *a = node->layer->attributes;

    return (cuda_dnn_convolution){
        .pass = pass,
        .type = stage->own->type,
        .is_tf32 = stage->options.precision == TY_PRECISION_TF32,
        .adds = pass == CUDA_DNN_DATA && node->adds[0],
        .x = layout_of(stage, &stage->values[node->inputs[0]]),
        .w = cuda_dnn_channels_last(a[TY_OUT_CHANNELS], a[TY_IN_CHANNELS] / a[TY_GROUPS],
                                    a[TY_KERNEL_HEIGHT], a[TY_KERNEL_WIDTH]),
        .y = layout_of(stage, &stage->values[node->output]),
        .strides = {(int64_t)a[TY_STRIDE], (int64_t)a[TY_STRIDE]},
        .padding = {(int64_t)a[TY_PADDING_HEIGHT], (int64_t)a[TY_PADDING_WIDTH]}};
}

/* Whether the output of a pass is ever needed. */
static bool is_needed(const ty_stage_device *stage, const stage_node *node, cuda_dnn_pass pass)
{
    return pass == CUDA_DNN_DATA     ? stage->values[node->inputs[0]].needs_gradient
           : pass == CUDA_DNN_FILTER ? !node->layer->is_frozen && !node->is_matrix_frozen
                                     : true;
}

/* Key of a choice, in addition to the GPU and its driver: cuDNN's version, shapes, precision. */
static void key_make(const ty_stage_device *stage, const cuda_dnn_convolution *c, char *key)
{
    snprintf(key, CUDA_KEY_SIZE,
             "cudnn %zu %s %s%s of %lldx%lldx%lldx%lld by %lldx%lldx%lldx%lld/%lldx%lld+%lldx%lld, "
             "channels last",
             stage->own->dnn->cudnnGetVersion(), ty_precision_name(stage->options.precision),
             cuda_dnn_pass_name(c->pass), c->adds ? " added" : "", (long long)c->x.sizes[0],
             (long long)c->x.sizes[1], (long long)c->x.sizes[2], (long long)c->x.sizes[3],
             (long long)c->w.sizes[0], (long long)c->w.sizes[1], (long long)c->w.sizes[2],
             (long long)c->w.sizes[3], (long long)c->strides[0], (long long)c->strides[1],
             (long long)c->padding[0], (long long)c->padding[1]);
}

/* ---- Plans ---- */

enum { MOST_CANDIDATES = 16 };

/* Operands of a trial, whose output is unused. */
typedef struct trial {
    const cuda_dnn_conv *plan;
    void *memory, *x, *w, *y, *workspace;
} trial;

static bool trial_run(const void *context)
{
    const trial *t = context;

    return cuda_dnn_conv_run(t->plan, t->x, t->w, t->y, t->workspace, NULL) == TY_OK;
}

static uint64_t bytes_of(const ty_stage_device *stage, const cuda_dnn_layout *at)
{
    uint64_t bytes = stage->element;

    for (int i = 0; i < CUDA_DNN_AXES; i++)
        bytes *= (uint64_t)at->sizes[i];
    return bytes;
}

static uint64_t trial_cut(const ty_stage_device *stage, const cuda_dnn_convolution *c,
                          uint64_t workspace_bytes, trial *t)
{
    cuda_cutter cut = {.from = t->memory};

    t->x = cuda_cut_off(&cut, bytes_of(stage, &c->x));
    t->w = cuda_cut_off(&cut, bytes_of(stage, &c->w));
    t->y = cuda_cut_off(&cut, bytes_of(stage, &c->y));
    t->workspace = cuda_cut_off(&cut, workspace_bytes + 1);
    return cut.used;
}

/* The fastest of several plans, on operands filled with one small number. */
static ty_status fastest_find(const ty_stage_device *stage, cuda_dnn_conv *const *plans,
                              uint32_t count, uint32_t *fastest, ty_error *error)
{
    enum { BYTE = 0x2c };
    const cuda_dnn_convolution *asked = cuda_dnn_conv_asked(plans[0]);
    trial t = {0};
    uint64_t workspace_bytes = 0, bytes;
    float least = -1, milliseconds;
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < count; i++)
        if (cuda_dnn_conv_workspace(plans[i]) > workspace_bytes)
            workspace_bytes = cuda_dnn_conv_workspace(plans[i]);
    bytes = trial_cut(stage, asked, workspace_bytes, &t);
    CUDA_CHECK(cudaMalloc(&t.memory, bytes), status, cleanup);
    CUDA_CHECK(cudaMemsetAsync(t.memory, BYTE, bytes, stage->own->stream), status, cleanup);
    (void)trial_cut(stage, asked, workspace_bytes, &t);
    for (uint32_t i = 0; i < count; i++) {
        t.plan = plans[i];
        TY_CHECK(cuda_trials_time(stage, trial_run, &t, &milliseconds, error), status, cleanup);
        if (milliseconds >= 0 && (least < 0 || milliseconds < least)) {
            least = milliseconds;
            *fastest = i;
        }
    }
cleanup:
    cudaFree(t.memory);
    return status;
}

/* Creates and times every usable plan, and frees all but the fastest. */
static ty_status plan_measure(ty_stage_device *stage, const cuda_dnn_target *target,
                              const cuda_dnn_convolution *asked, const char *key,
                              cuda_dnn_conv **out, ty_error *error)
{
    cuda_dnn_conv *plans[MOST_CANDIDATES];
    uint32_t count = 0, fastest = 0;
    ty_status status;

    TY_CHECK(cuda_dnn_conv_list(target, asked, MOST_CANDIDATES, plans, &count, error), status,
             done);
    TY_CHECK(fastest_find(stage, plans, count, &fastest, error), status, done);
    TY_CHECK(cuda_choice_note(stage, key, cuda_dnn_conv_choice(plans[fastest]), error), status,
             done);
    *out = cuda_dnn_conv_share(plans[fastest]);
done:
    for (uint32_t i = 0; i < count; i++)
        cuda_dnn_conv_free(plans[i]);
    return status;
}

/* The plan of an earlier layer with the same convolution, or NULL. */
static cuda_dnn_conv *alike_find(const ty_stage_device *stage, const stage_node *node,
                                 const cuda_dnn_convolution *asked)
{
    for (const stage_node *n = stage->nodes; n < node; n++) {
        const conv *c = n->kind == &cuda_conv2d ? n->state : NULL;
        cuda_dnn_conv *plan = c != NULL ? c->plans[asked->pass] : NULL;
        if (plan != NULL && cuda_dnn_conv_is_alike(cuda_dnn_conv_asked(plan), asked))
            return plan;
    }
    return NULL;
}

/* The plan measured as fastest earlier, or now if the stage is open for profiling; else cuDNN's
 * first. */
static ty_status plan_make(ty_stage_device *stage, const stage_node *node, cuda_dnn_pass pass,
                           cuda_dnn_conv **out, ty_error *error)
{
    const cuda_dnn_target target = {stage->own->dnn, stage->own->dnn_handle, NULL,
                                    stage->own->capability};
    const cuda_dnn_convolution asked = convolution_of(stage, node, pass);
    cuda_dnn_conv *alike = alike_find(stage, node, &asked);
    uint32_t chosen = CUDA_DNN_ANY_CHOICE;
    char key[CUDA_KEY_SIZE];

    if (alike != NULL) {
        *out = cuda_dnn_conv_share(alike);
        return TY_OK;
    }
    key_make(stage, &asked, key);
    if (!cuda_choice_find(stage, key, &chosen) && stage->options.measures_algorithms)
        return plan_measure(stage, &target, &asked, key, out, error);
    return cuda_dnn_conv_new(&target, &asked, chosen, out, error);
}

static ty_status plans_make(ty_stage_device *stage, stage_node *node, conv *c, ty_error *error)
{
    uint64_t workspace_bytes = 0;

    for (cuda_dnn_pass pass = 0; pass < CUDA_DNN_PASSES; pass++) {
        uint64_t bytes;
        if (!is_needed(stage, node, pass))
            continue;
        TY_TRY(plan_make(stage, node, pass, &c->plans[pass], error));
        bytes = cuda_dnn_conv_workspace(c->plans[pass]);
        workspace_bytes = bytes > workspace_bytes ? bytes : workspace_bytes;
    }
    c->own_at = (workspace_bytes + 255) / 256 * 256;
    node->scratch_bytes = c->own_at + weight_count(c) * stage->element;
    return TY_OK;
}

static ty_status conv2d_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    const uint64_t *a = node->layer->attributes;
    const stage_value *out = &stage->values[node->output];
    conv *c = ty_alloc(1, sizeof *c);
    ty_error reason = {0};
    ty_status status;

    TY_TRY(ty_check_memory(c != NULL, error));
    node->state = c;
    c->outputs = a[TY_OUT_CHANNELS];
    c->inputs = a[TY_IN_CHANNELS] / a[TY_GROUPS];
    c->taps = a[TY_KERNEL_HEIGHT] * a[TY_KERNEL_WIDTH];
    c->is_permuted = c->inputs > 1 && c->taps > 1;
    node->sum_floats = cuda_column_sums_scratch(out->count / c->outputs, c->outputs);
    TY_CHECK(cuda_dnn_open(stage, &reason), status, done);
    status = plans_make(stage, node, c, &reason);
done:
    if (status != TY_OK)
        return ty_fail(error, status, "layer %s: %s", node->layer->name, reason.message);
    return TY_OK;
}

/* ---- Passes ---- */

/* Weights in the order that cuDNN reads. */
static const void *weights_find(const ty_stage_device *stage, const stage_node *node)
{
    enum { ALIGNMENT = 16 };
    const conv *c = node->state;
    const void *weights = cuda_weights(stage, node, 0);
    void *own = (char *)stage->scratch + c->own_at;

    if (c->is_permuted)
        cuda_filter_permute(stage->own->type, c->outputs, c->inputs, c->taps, weights, own,
                            stage->own->stream);
    else if ((uintptr_t)weights % ALIGNMENT != 0)
        cuda_copy_rows(stage->own->type, 1, weight_count(c), weights, weight_count(c), false, own,
                       weight_count(c), stage->own->stream);
    else
        return weights;
    return own;
}

static ty_status conv2d_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                ty_error *error)
{
    const conv *c = node->state;
    void *y = cuda_out(stage, node, slot);
    ty_status status = cuda_dnn_conv_run(c->plans[CUDA_DNN_FORWARD], cuda_in(stage, node, 0, slot),
                                         weights_find(stage, node), y, stage->scratch, error);

    if (status == TY_OK && node->layer->attributes[TY_HAS_BIAS] != 0)
        cuda_add_bias(stage->own->type, cuda_count(stage, node), c->outputs,
                      cuda_parameters(stage, node, 1), y, stage->own->stream);
    return status;
}

static ty_status weights_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                  bool is_first, ty_error *error)
{
    const conv *c = node->state;
    float *dw = cuda_parameter_gradient(stage, node, 0);
    void *own = (char *)stage->scratch + c->own_at;
    void *dy = cuda_out_gradient(stage, node);

    if (dw == NULL)
        return TY_OK;
    TY_TRY(cuda_dnn_conv_run(c->plans[CUDA_DNN_FILTER], cuda_in(stage, node, 0, slot), own, dy,
                             stage->scratch, error));
    if (c->is_permuted)
        cuda_filter_gradient(stage->own->type, c->outputs, c->inputs, c->taps, own,
                             stage_adds(node, 0, is_first), dw, stage->own->stream);
    else
        cuda_accumulate_float(stage->own->type, weight_count(c), own, stage_adds(node, 0, is_first),
                              dw, stage->own->stream);
    if (node->layer->attributes[TY_HAS_BIAS] != 0)
        cuda_column_sums(stage->own->type, cuda_count(stage, node) / c->outputs, c->outputs,
                         c->outputs, dy, stage_adds(node, 1, is_first),
                         cuda_parameter_gradient(stage, node, 1), stage->own->sums,
                         stage->own->stream);
    return TY_OK;
}

static ty_status conv2d_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                 bool is_first, ty_error *error)
{
    const conv *c = node->state;
    void *dx = cuda_in_gradient(stage, node, 0);
    ty_status status = weights_backward(stage, node, slot, is_first, error);

    if (status != TY_OK || dx == NULL)
        return status;
    return cuda_dnn_conv_run(c->plans[CUDA_DNN_DATA], dx, weights_find(stage, node),
                             cuda_out_gradient(stage, node), stage->scratch, error);
}

const stage_kind cuda_conv2d = {.order = STAGE_CHANNELS_LAST,
                                .floats = STAGE_BIT(1),
                                .build = conv2d_build,
                                .forward = conv2d_forward,
                                .backward = conv2d_backward,
                                .release = conv2d_release};
