/**
 * @file cuda_libraries.h
 * cuBLASLt, cuDNN and NCCL, loaded on first use: a host without cuDNN trains transformers, one
 * without NCCL trains on one GPU. Types come from the libraries' own headers; all functions used
 * belong to their stable C interfaces. Internal to execute/cuda/.
 */
#ifndef TY_EXECUTE_CUDA_LIBRARIES_H
#define TY_EXECUTE_CUDA_LIBRARIES_H

#include "ty_core.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nccl.h>

#define CUDA_BLAS_FUNCTIONS(X)                                                                     \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtGetVersion)                                                                          \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)

#define CUDA_DNN_FUNCTIONS(X)                                                                      \
    X(cudnnGetVersion)                                                                             \
    X(cudnnCreate)                                                                                 \
    X(cudnnDestroy)                                                                                \
    X(cudnnSetStream)                                                                              \
    X(cudnnBackendCreateDescriptor)                                                                \
    X(cudnnBackendDestroyDescriptor)                                                               \
    X(cudnnBackendSetAttribute)                                                                    \
    X(cudnnBackendGetAttribute)                                                                    \
    X(cudnnBackendFinalize)                                                                        \
    X(cudnnBackendExecute)

#define CUDA_NCCL_FUNCTIONS(X)                                                                     \
    X(ncclGetVersion)                                                                              \
    X(ncclGetUniqueId)                                                                             \
    X(ncclGetErrorString)                                                                          \
    X(ncclCommInitRankConfig)                                                                      \
    X(ncclCommGetAsyncError)                                                                       \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommAbort)                                                                               \
    X(ncclAllReduce)                                                                               \
    X(ncclAllGather)                                                                               \
    X(ncclReduceScatter)                                                                           \
    X(ncclReduce)                                                                                  \
    X(ncclBroadcast)                                                                               \
    X(ncclGroupStart)                                                                              \
    X(ncclGroupEnd)                                                                                \
    X(ncclSend)                                                                                    \
    X(ncclRecv)

#define CUDA_LIBRARY_FIELD(function) __typeof__(&function) function;

typedef struct cuda_blas {
    CUDA_BLAS_FUNCTIONS(CUDA_LIBRARY_FIELD)
} cuda_blas;
typedef struct cuda_dnn {
    CUDA_DNN_FUNCTIONS(CUDA_LIBRARY_FIELD)
} cuda_dnn;
typedef struct cuda_nccl {
    CUDA_NCCL_FUNCTIONS(CUDA_LIBRARY_FIELD)
} cuda_nccl;

/** Each loads its library once per process. The TY_EUNSUPPORTED message names the missing file. */
ty_status cuda_blas_load(const cuda_blas **out, ty_error *error) TY_MUST_CHECK;
ty_status cuda_dnn_load(const cuda_dnn **out, ty_error *error) TY_MUST_CHECK;
ty_status cuda_nccl_load(const cuda_nccl **out, ty_error *error) TY_MUST_CHECK;

/* ---- Errors of the libraries as ty_status ---- */

ty_status cuda_fail(ty_error *error, const char *call, cudaError_t code);
ty_status cuda_blas_fail(ty_error *error, const char *call, cublasStatus_t code);
ty_status cuda_dnn_fail(ty_error *error, const char *call, cudnnStatus_t code);

/** Jumps to `label` when a CUDA runtime call fails. */
#define CUDA_CHECK(call, status, label)                                                            \
    do {                                                                                           \
        cudaError_t code_ = (call);                                                                \
        if (code_ != cudaSuccess) {                                                                \
            (status) = cuda_fail(error, #call, code_);                                             \
            goto label;                                                                            \
        }                                                                                          \
    } while (0)

/** The same for a cuDNN call. */
#define CUDA_DNN_CHECK(call, status, label)                                                        \
    do {                                                                                           \
        cudnnStatus_t code_ = (call);                                                              \
        if (code_ != CUDNN_STATUS_SUCCESS) {                                                       \
            (status) = cuda_dnn_fail(error, #call, code_);                                         \
            goto label;                                                                            \
        }                                                                                          \
    } while (0)

#endif
