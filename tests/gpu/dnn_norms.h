/* Plans of the real cuDNN for norms. Norms run on our own kernels; cuDNN's plans are kept as an
 * alternative, should a GPU prove them faster. */
#ifndef TY_TESTS_GPU_DNN_NORMS_H
#define TY_TESTS_GPU_DNN_NORMS_H

#include "cuda_dnn.h"

/** Plans ResNet-50's batch norms with the operations that follow them, GPT-2's layer norms and
 * Llama 3 8B's RMS norms, in bf16, forward and backward; and a batch norm that cuDNN refuses.
 * @param only_sums  of batch norms only those followed by a sum, which have the others' operations
 * @param failures [in, out] number of failures, each printed to stdout
 * @return number of plans */
int dnn_norms_plan(const cuda_dnn_target *target, const char *device, bool only_sums,
                   int *failures);

#endif
