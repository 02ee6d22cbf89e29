/* Convolutions as cuDNN graphs of one operation. cuDNN's heuristics list engines by estimated
 * speed. Each has notes on its numerics, documented under "cudnnBackendNumericalNote_t". For
 * floats, the first engines use tensor cores and multiply in TF32, while their notes only mention
 * tensor cores. For halves, some add in 16 bits although float sums are requested. */
#include "cuda_dnn.h"
#include "gpu_scratch.h"

/* Numbers of the tensors of a call. */
enum { IMAGES = 1, WEIGHTS, OUTPUTS };

struct cuda_dnn_conv {
    const cuda_dnn *dnn;
    cudnnHandle_t handle;
    uint32_t uses;
    cuda_dnn_convolution asked;
    cuda_dnn_plan plan;
};

/* A pass, and the names of its attributes. */
typedef struct operation {
    const char *name;
    cudnnBackendDescriptorType_t kind;
    cudnnBackendAttributeName_t convolution, alpha, beta, x, w, y;
} operation;

static const operation operations[CUDA_DNN_PASSES] = {
    {"forward", CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    {"data", CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    {"filter", CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
};

const char *cuda_dnn_pass_name(cuda_dnn_pass pass)
{
    return operations[pass].name;
}

cuda_dnn_layout cuda_dnn_channels_last(uint64_t n, uint64_t c, uint64_t h, uint64_t w)
{
    return (cuda_dnn_layout){{(int64_t)n, (int64_t)c, (int64_t)h, (int64_t)w},
                             {(int64_t)(h * w * c), 1, (int64_t)(w * c), (int64_t)c}};
}

/* ---- Plans ---- */

static void graph_make(cuda_dnn_graph *g, const cuda_dnn_convolution *c)
{
    const operation *o = &operations[c->pass];
    const cudnnDataType_t type = cuda_dnn_type(c->type);
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t axes = 2, dilations[2] = {1, 1};
    const float alpha = 1.0f, beta = c->adds ? 1.0f : 0.0f;
    const cudnnBackendDescriptor_t kind = cuda_dnn_make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cudnnBackendDescriptor_t made;

    cuda_dnn_set_type(g, kind, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    cuda_dnn_set(g, kind, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    cuda_dnn_set(g, kind, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes);
    cuda_dnn_set(g, kind, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations);
    cuda_dnn_set(g, kind, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, c->strides);
    cuda_dnn_set(g, kind, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, c->padding);
    cuda_dnn_set(g, kind, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, c->padding);
    cuda_dnn_finalize(g, kind);
    made = cuda_dnn_make(g, o->kind);
    cuda_dnn_link(g, made, o->convolution, kind);
    cuda_dnn_link(g, made, o->x, cuda_dnn_tensor(g, IMAGES, type, &c->x, CUDA_DNN_REAL));
    cuda_dnn_link(g, made, o->w, cuda_dnn_tensor(g, WEIGHTS, type, &c->w, CUDA_DNN_REAL));
    cuda_dnn_link(g, made, o->y, cuda_dnn_tensor(g, OUTPUTS, type, &c->y, CUDA_DNN_REAL));
    cuda_dnn_set(g, made, o->alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
    cuda_dnn_set(g, made, o->beta, CUDNN_TYPE_FLOAT, 1, &beta);
    cuda_dnn_operation(g, made);
}

static uint64_t element_count(const cuda_dnn_layout *of)
{
    return (uint64_t)(of->sizes[0] * of->sizes[1] * of->sizes[2] * of->sizes[3]);
}

static cuda_dnn_terms terms_of(const cuda_dnn_convolution *c)
{
    const bool is_exact = c->type == CUDA_TYPE_FLOAT && !c->is_tf32;
    const uint64_t images = (element_count(&c->x) + element_count(&c->y)) * sizeof(float);

    return (cuda_dnn_terms){
        .workspace_bytes = TY_CONVOLUTION_SCRATCH_LIMIT + (is_exact ? images : 0),
        .refused_notes = CUDA_DNN_NOTE(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) |
                         CUDA_DNN_NOTE(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) |
                         CUDA_DNN_NOTE(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) |
                         (is_exact ? CUDA_DNN_NOTE(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) : 0)};
}

/* Converts plans to convolutions; all or none. */
static ty_status plans_give(const cuda_dnn_target *target, const cuda_dnn_convolution *asked,
                            const cuda_dnn_plan *plans, uint32_t count, cuda_dnn_conv **out,
                            ty_error *error)
{
    uint32_t made = 0;

    while (made < count && (out[made] = ty_alloc(1, sizeof **out)) != NULL) {
        *out[made] = (cuda_dnn_conv){target->dnn, target->handle, 1, *asked, plans[made]};
        made++;
    }
    if (made == count)
        return TY_OK;
    for (uint32_t i = made; i < count; i++)
        target->dnn->cudnnBackendDestroyDescriptor(plans[i].descriptor);
    for (uint32_t i = 0; i < made; i++)
        cuda_dnn_conv_free(out[i]);
    return ty_fail(error, TY_ENOMEM, "out of memory for plans of convolutions");
}

ty_status cuda_dnn_conv_new(const cuda_dnn_target *target, const cuda_dnn_convolution *asked,
                            uint32_t wanted, cuda_dnn_conv **out, ty_error *error)
{
    const cuda_dnn_terms terms = terms_of(asked);
    cuda_dnn_graph g = {.target = target};
    cuda_dnn_plan plan;
    uint32_t count;
    ty_status status;

    graph_make(&g, asked);
    status = cuda_dnn_plans_make(&g, &terms, wanted, 1, &plan, &count, error);
    return status == TY_OK ? plans_give(target, asked, &plan, 1, out, error) : status;
}

ty_status cuda_dnn_conv_list(const cuda_dnn_target *target, const cuda_dnn_convolution *asked,
                             uint32_t most, cuda_dnn_conv **out, uint32_t *count, ty_error *error)
{
    const cuda_dnn_terms terms = terms_of(asked);
    cuda_dnn_graph g = {.target = target};
    cuda_dnn_plan *plans = ty_alloc(most, sizeof *plans);
    uint32_t made;
    ty_status status;

    TY_TRY(ty_check_memory(plans != NULL, error));
    graph_make(&g, asked);
    TY_CHECK(cuda_dnn_plans_make(&g, &terms, CUDA_DNN_ANY_CHOICE, most, plans, &made, error),
             status, done);
    status = plans_give(target, asked, plans, made, out, error);
    if (status == TY_OK)
        *count = made;
done:
    ty_free(plans);
    return status;
}

void cuda_dnn_conv_free(cuda_dnn_conv *conv)
{
    if (conv == NULL || --conv->uses > 0)
        return;
    conv->dnn->cudnnBackendDestroyDescriptor(conv->plan.descriptor);
    ty_free(conv);
}

cuda_dnn_conv *cuda_dnn_conv_share(cuda_dnn_conv *conv)
{
    conv->uses++;
    return conv;
}

static bool is_same(const cuda_dnn_layout *a, const cuda_dnn_layout *b)
{
    for (int i = 0; i < CUDA_DNN_AXES; i++)
        if (a->sizes[i] != b->sizes[i] || a->strides[i] != b->strides[i])
            return false;
    return true;
}

bool cuda_dnn_conv_is_alike(const cuda_dnn_convolution *a, const cuda_dnn_convolution *b)
{
    return a->pass == b->pass && a->type == b->type && a->is_tf32 == b->is_tf32 &&
           a->adds == b->adds && is_same(&a->x, &b->x) && is_same(&a->w, &b->w) &&
           is_same(&a->y, &b->y) && a->strides[0] == b->strides[0] &&
           a->strides[1] == b->strides[1] && a->padding[0] == b->padding[0] &&
           a->padding[1] == b->padding[1];
}

uint64_t cuda_dnn_conv_workspace(const cuda_dnn_conv *conv)
{
    return conv->plan.workspace_bytes;
}

const cuda_dnn_convolution *cuda_dnn_conv_asked(const cuda_dnn_conv *conv)
{
    return &conv->asked;
}

uint32_t cuda_dnn_conv_choice(const cuda_dnn_conv *conv)
{
    return conv->plan.choice;
}

/* ---- Calls ---- */

ty_status cuda_dnn_conv_run(const cuda_dnn_conv *conv, const void *x, const void *w, const void *y,
                            void *workspace, ty_error *error)
{
    cuda_dnn_pack p = {0};

    cuda_dnn_pack_add(&p, IMAGES, x);
    cuda_dnn_pack_add(&p, WEIGHTS, w);
    cuda_dnn_pack_add(&p, OUTPUTS, y);
    return cuda_dnn_plan_run(conv->dnn, conv->handle, &conv->plan, &p, workspace, error);
}
