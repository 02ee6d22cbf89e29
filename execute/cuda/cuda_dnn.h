/**
 * @file cuda_dnn.h
 * cuDNN by graphs of its operations, and attention as two of them, beside our own kernels
 * (attention.cu): the same layouts, by strides, and the same log-sums, numbers up to rounding.
 * cuDNN knows some patterns of operations and has fused kernels for them; what it has none for is
 * refused when plans are made. Internal to execute/cuda/.
 *
 * Plans can be made without a GPU, from properties of one, as tests do.
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

/** Whose plans are made: a handle's, on its device, or, where that is NULL, of a device that is
 * described (a finalized CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR), which cannot be run. */
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

/** In memory, nowhere, or one number that a call brings from the host. */
typedef enum cuda_dnn_sort { CUDA_DNN_REAL, CUDA_DNN_VIRTUAL, CUDA_DNN_VALUE } cuda_dnn_sort;

/** A graph in the making: all zeros but the target. After a failure nothing more is done. */
typedef struct cuda_dnn_graph {
    const cuda_dnn_target *target;
    cudnnBackendDescriptor_t made[CUDA_DNN_MOST_DESCRIPTORS];
    cudnnBackendDescriptor_t operations[CUDA_DNN_MOST_OPERATIONS];
    uint32_t made_count, operation_count;
    ty_status status;
    ty_error reason;
} cuda_dnn_graph;

/** Descriptors, which are the graph's; NULL after a failure. */
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
/** Finalizes an operation too, which is the graph's next. */
void cuda_dnn_operation(cuda_dnn_graph *g, cudnnBackendDescriptor_t made);

/** The caller's; destroyed as a descriptor. */
typedef struct cuda_dnn_plan {
    cudnnBackendDescriptor_t descriptor;
    uint64_t workspace_bytes;
} cuda_dnn_plan;

/** Of working memory. The backward of attention keeps a 16-bit number for every score. */
#define CUDA_DNN_WORKSPACE_LIMIT (UINT64_C(2) << 30)
/**
 * The first of cuDNN's choices for a graph that it does not call nondeterministic, and that works
 * in no more memory than CUDA_DNN_WORKSPACE_LIMIT. Clears the graph.
 * @return TY_EUNSUPPORTED, with what the last was refused for, when there is none; TY_EBACKEND
 *         where cuDNN fails otherwise; TY_ELIMIT for a graph that is too large.
 */
ty_status cuda_dnn_plan_make(cuda_dnn_graph *g, cuda_dnn_plan *out, ty_error *error) TY_MUST_CHECK;

/** Where the tensors of a call are, by their numbers. */
enum { CUDA_DNN_MOST_POINTERS = 16 };
typedef struct cuda_dnn_pack {
    int64_t count, numbers[CUDA_DNN_MOST_POINTERS];
    void *pointers[CUDA_DNN_MOST_POINTERS];
} cuda_dnn_pack;
void cuda_dnn_pack_add(cuda_dnn_pack *pack, int64_t number, const void *at);
/** On the handle's stream. Allocates nothing there: it may be captured. */
ty_status cuda_dnn_plan_run(const cuda_dnn *dnn, cudnnHandle_t handle, const cuda_dnn_plan *plan,
                            const cuda_dnn_pack *pack, void *workspace,
                            ty_error *error) TY_MUST_CHECK;

/* ---- Attention (cuda_dnn_attention.c) ---- */

typedef struct cuda_dnn_attention cuda_dnn_attention;

/**
 * Plans of forward and backward.
 * @param type       bf16 or half
 * @param attention  shapes, strides, scale and mask; tiles are not read. The queries are all of the
 *                   sequence's, and nothing is added to the scores.
 * @return TY_EUNSUPPORTED, with the reason, for what cuDNN has no kernel for, or none within
 *         CUDA_DNN_WORKSPACE_LIMIT; TY_EBACKEND where cuDNN fails otherwise; TY_ENOMEM.
 * Sums have a fixed order by the form of the graph; see cuda_dnn_attention.c.
 */
ty_status cuda_dnn_attention_new(const cuda_dnn_target *target, cuda_type type,
                                 const cuda_attention *attention, cuda_dnn_attention **out,
                                 ty_error *error) TY_MUST_CHECK;
void cuda_dnn_attention_free(cuda_dnn_attention *attention);
/** The same plans for another layer that asks the same, freed once more; NULL stays NULL. Making
 * them takes cuDNN half a second and more. */
cuda_dnn_attention *cuda_dnn_attention_share(cuda_dnn_attention *attention);
bool cuda_dnn_attention_is_alike(const cuda_attention *a, const cuda_attention *b);

/** Bytes of working memory, of each plan; the stage's scratch has the most of both. */
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

#endif
