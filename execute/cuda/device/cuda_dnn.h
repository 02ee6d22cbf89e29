/**
 * @file cuda_dnn.h
 * cuDNN operation graphs: one graph per pass of a convolution, and two for attention. The attention
 * graphs replace the kernels of attention.cu, with the same layouts, by strides, and the same
 * log-sums up to rounding. cuDNN has fused kernels for some patterns of operations; plan creation
 * refuses all others. Internal to execute/cuda/.
 *
 * Plans can be created without a GPU, from a GPU's properties, as in the tests.
 */
#ifndef TY_EXECUTE_CUDA_DNN_H
#define TY_EXECUTE_CUDA_DNN_H

#include "cuda_kernels.h"
#include "cuda_libraries.h"

static inline cudnnDataType_t cuda_dnn_type(cuda_type type)
{
    return type == CUDA_TYPE_FLOAT  ? CUDNN_DATA_FLOAT
           : type == CUDA_TYPE_BF16 ? CUDNN_DATA_BFLOAT16
                                    : CUDNN_DATA_HALF;
}

/** Target of plans: a handle and its device, or, if that is NULL, a described device (a finalized
 * CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR), whose plans cannot run. */
typedef struct cuda_dnn_target {
    const cuda_dnn *dnn;
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t properties;
    int capability; /* ten times the compute capability: 90 */
} cuda_dnn_target;

/* ---- Graphs (cuda_dnn_graph.c) ---- */

enum { CUDA_DNN_AXES = 4, CUDA_DNN_MOST_DESCRIPTORS = 192, CUDA_DNN_MOST_OPERATIONS = 32 };

/** Elements: samples, heads or channels, and two more. */
typedef struct cuda_dnn_layout {
    int64_t sizes[CUDA_DNN_AXES], strides[CUDA_DNN_AXES];
} cuda_dnn_layout;

/** In memory, virtual (never stored), or one number from the host per call. */
typedef enum cuda_dnn_sort { CUDA_DNN_REAL, CUDA_DNN_VIRTUAL, CUDA_DNN_VALUE } cuda_dnn_sort;

/** A graph under construction: all zeros but the target. After a failure, further calls do
 * nothing. */
typedef struct cuda_dnn_graph {
    const cuda_dnn_target *target;
    cudnnBackendDescriptor_t made[CUDA_DNN_MOST_DESCRIPTORS];
    cudnnBackendDescriptor_t operations[CUDA_DNN_MOST_OPERATIONS];
    uint32_t made_count, operation_count;
    ty_status status;
    ty_error reason;
} cuda_dnn_graph;

/** Descriptors, owned by the graph; NULL after a failure. */
cudnnBackendDescriptor_t cuda_dnn_make(cuda_dnn_graph *g, cudnnBackendDescriptorType_t kind);
cudnnBackendDescriptor_t cuda_dnn_tensor(cuda_dnn_graph *g, int64_t number, cudnnDataType_t type,
                                         const cuda_dnn_layout *at, cuda_dnn_sort sort);
void cuda_dnn_set(cuda_dnn_graph *g, cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t count, const void *values);
void cuda_dnn_set_type(cuda_dnn_graph *g, cudnnBackendDescriptor_t of,
                       cudnnBackendAttributeName_t name, cudnnDataType_t type);
void cuda_dnn_link(cuda_dnn_graph *g, cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                   cudnnBackendDescriptor_t value);
void cuda_dnn_finalize(cuda_dnn_graph *g, cudnnBackendDescriptor_t of);
/** Finalizes an operation and appends it to the graph. */
void cuda_dnn_operation(cuda_dnn_graph *g, cudnnBackendDescriptor_t made);

/** Requirements for cuDNN's engines, in addition to the operations. */
typedef struct cuda_dnn_terms {
    uint64_t workspace_bytes; /* largest workspace of a plan */
    uint32_t refused_notes;   /* notes that no engine may have, CUDA_DNN_NOTE of each */
} cuda_dnn_terms;
#define CUDA_DNN_NOTE(note) (UINT32_C(1) << (uint32_t)(note))

/** Owned by the caller, who destroys the descriptor. */
typedef struct cuda_dnn_plan {
    cudnnBackendDescriptor_t descriptor;
    uint64_t workspace_bytes;
    uint32_t choice; /* its index among cuDNN's choices */
} cuda_dnn_plan;

/**
 * Plans of cuDNN's choices for a graph that meet the terms, best guess first. Clears the graph.
 * @param wanted  index of the choice to create, if it meets the terms; else the first ones are
 *                created. An index is valid for one cuDNN version, driver and GPU type.
 * @param most    plans to create; >= 1
 * @param count   [out] >= 1
 * @return TY_EUNSUPPORTED, with the reason of the last refusal, if there is none; TY_EBACKEND if
 *         cuDNN fails otherwise; TY_ELIMIT for a graph that is too large.
 */
#define CUDA_DNN_ANY_CHOICE UINT32_MAX
ty_status cuda_dnn_plans_make(cuda_dnn_graph *g, const cuda_dnn_terms *terms, uint32_t wanted,
                              uint32_t most, cuda_dnn_plan *out, uint32_t *count,
                              ty_error *error) TY_MUST_CHECK;
/** The first of these plans. */
ty_status cuda_dnn_plan_make(cuda_dnn_graph *g, const cuda_dnn_terms *terms, cuda_dnn_plan *out,
                             ty_error *error) TY_MUST_CHECK;

/** Pointers to the tensors of a call, by tensor number. */
enum { CUDA_DNN_MOST_POINTERS = 16 };
typedef struct cuda_dnn_pack {
    int64_t count, numbers[CUDA_DNN_MOST_POINTERS];
    void *pointers[CUDA_DNN_MOST_POINTERS];
} cuda_dnn_pack;
void cuda_dnn_pack_add(cuda_dnn_pack *pack, int64_t number, const void *at);
/** Runs on the handle's stream. Allocates nothing there, so a graph can capture it. */
ty_status cuda_dnn_plan_run(const cuda_dnn *dnn, cudnnHandle_t handle, const cuda_dnn_plan *plan,
                            const cuda_dnn_pack *pack, void *workspace,
                            ty_error *error) TY_MUST_CHECK;

/* ---- Attention (cuda_dnn_attention.c) ---- */

typedef struct cuda_dnn_attention cuda_dnn_attention;

/**
 * Plans of forward and backward.
 * @param type       bf16 or half
 * @param attention  shapes, strides, scale and mask; tiles are not read. The queries are those of
 *                   the entire sequence, and the scores have no bias.
 * @return TY_EUNSUPPORTED, with the reason, if cuDNN has no kernel, or none within
 * TY_ATTENTION_SCRATCH_LIMIT; TY_EBACKEND if cuDNN fails otherwise; TY_ENOMEM. Sums have a fixed
 * order if the attention requires it; see cuda_dnn_attention.c.
 */
ty_status cuda_dnn_attention_new(const cuda_dnn_target *target, cuda_type type,
                                 const cuda_attention *attention, cuda_dnn_attention **out,
                                 ty_error *error) TY_MUST_CHECK;
void cuda_dnn_attention_free(cuda_dnn_attention *attention);
/** The same plans for another layer with the same attention, to be freed once more; NULL stays
 * NULL. cuDNN takes half a second or more to create plans. */
cuda_dnn_attention *cuda_dnn_attention_share(cuda_dnn_attention *attention);
bool cuda_dnn_attention_is_alike(const cuda_attention *a, const cuda_attention *b);

/** Workspace bytes of each plan; the stage's scratch has the maximum of both. */
uint64_t cuda_dnn_forward_workspace(const cuda_dnn_attention *attention);
uint64_t cuda_dnn_backward_workspace(const cuda_dnn_attention *attention);

/** As cuda_attention_forward, on the handle's stream. */
ty_status cuda_dnn_attention_forward(const cuda_dnn_attention *attention, const void *queries,
                                     const void *keys, void *context, float *log_sums,
                                     void *workspace, ty_error *error) TY_MUST_CHECK;
/** As cuda_attention_backward. */
ty_status cuda_dnn_attention_backward(const cuda_dnn_attention *attention, const void *queries,
                                      const void *keys, const void *context, const float *log_sums,
                                      const void *dcontext, float *delta, void *dqueries,
                                      void *dkeys, void *workspace, ty_error *error) TY_MUST_CHECK;

/* ---- Convolutions (cuda_dnn_conv.c) ---- */

/** Output of a plan: y from x and w; or, from the gradient of y, that of x or that of w. */
typedef enum cuda_dnn_pass {
    CUDA_DNN_FORWARD,
    CUDA_DNN_DATA,
    CUDA_DNN_FILTER,
    CUDA_DNN_PASSES
} cuda_dnn_pass;
/** "forward", "data", "filter" */
const char *cuda_dnn_pass_name(cuda_dnn_pass pass);

/** One pass of a convolution; gradients have the layout of their tensors. Groups are the channels
 * of x over those of w. */
typedef struct cuda_dnn_convolution {
    cuda_dnn_pass pass;
    cuda_type type;                 /* of x, w and y; sums are floats */
    bool is_tf32;                   /* floats may be rounded to TF32 before they are multiplied */
    bool adds;                      /* to the output, before it is rounded */
    cuda_dnn_layout x, w, y;        /* [n][c][h][w], [k][c / groups][r][s], [n][k][p][q] */
    int64_t strides[2], padding[2]; /* of rows and columns; padding on both sides */
} cuda_dnn_convolution;

/** Layout of these sizes with the channels of a pixel adjacent (NHWC). */
cuda_dnn_layout cuda_dnn_channels_last(uint64_t n, uint64_t c, uint64_t h, uint64_t w);

typedef struct cuda_dnn_conv cuda_dnn_conv; /* a plan of a pass */

/**
 * A plan of one of cuDNN's engines that is deterministic by its notes, sums in floats, does not
 * round its operands (fp32 without tensor cores, which would round to TF32) and fits
 * TY_CONVOLUTION_SCRATCH_LIMIT. In fp32 the limit adds the size of x and y, which most engines
 * without tensor cores copy to planes. Engines that need less are the last resort in the data pass.
 * @param wanted  index of one of cuDNN's choices, or CUDA_DNN_ANY_CHOICE; if it is unusable, the
 *                first usable one
 * @return TY_EUNSUPPORTED, with the reason, if cuDNN has none; TY_EBACKEND if it fails otherwise;
 *         TY_ENOMEM.
 */
ty_status cuda_dnn_conv_new(const cuda_dnn_target *target, const cuda_dnn_convolution *asked,
                            uint32_t wanted, cuda_dnn_conv **out, ty_error *error) TY_MUST_CHECK;
/** The first `most` of them, best guess first, for comparison. @param count [out] >= 1 */
ty_status cuda_dnn_conv_list(const cuda_dnn_target *target, const cuda_dnn_convolution *asked,
                             uint32_t most, cuda_dnn_conv **out, uint32_t *count,
                             ty_error *error) TY_MUST_CHECK;
void cuda_dnn_conv_free(cuda_dnn_conv *conv);
/** The same plan for another layer with the same convolution, to be freed once more. */
cuda_dnn_conv *cuda_dnn_conv_share(cuda_dnn_conv *conv);
bool cuda_dnn_conv_is_alike(const cuda_dnn_convolution *a, const cuda_dnn_convolution *b);
/** Workspace bytes. */
uint64_t cuda_dnn_conv_workspace(const cuda_dnn_conv *conv);
/** The convolution of a plan, and its index among cuDNN's choices. */
const cuda_dnn_convolution *cuda_dnn_conv_asked(const cuda_dnn_conv *conv);
uint32_t cuda_dnn_conv_choice(const cuda_dnn_conv *conv);
/** Runs on the handle's stream and writes the pass's output; all pointers are multiples of 16
 * bytes. */
ty_status cuda_dnn_conv_run(const cuda_dnn_conv *conv, const void *x, const void *w, const void *y,
                            void *workspace, ty_error *error) TY_MUST_CHECK;

#endif
