/* Error messages of CUDA and its libraries. */
#include "cuda_libraries.h"

ty_status cuda_fail(ty_error *error, const char *call, cudaError_t code)
{
    (void)cudaGetLastError(); /* clears the error, which is reported now */
    if (code == cudaErrorNoKernelImageForDevice)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "this plugin has no code for the GPU: build it with "
                       "-DTY_CUDA_ARCHITECTURES=native");
    return ty_fail(error, code == cudaErrorMemoryAllocation ? TY_ENOMEM : TY_EBACKEND, "%s: %s",
                   call, cudaGetErrorString(code));
}

ty_status cuda_blas_fail(ty_error *error, const char *call, cublasStatus_t code)
{
    return ty_fail(error, TY_EBACKEND, "%s: status %d", call, (int)code);
}

ty_status cuda_dnn_fail(ty_error *error, const char *call, cudnnStatus_t code)
{
    return ty_fail(error, TY_EBACKEND, "%s: status %d", call, (int)code);
}
