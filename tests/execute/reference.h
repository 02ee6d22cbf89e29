/*
 * The slow, obvious version: every layer forward and backward in double precision, one loop per
 * index, plain layouts, nothing in place. The oracle of the CPU backend. Finite differences of its
 * forward pass check its backward pass.
 */
#ifndef TEST_EXECUTE_REFERENCE_H
#define TEST_EXECUTE_REFERENCE_H

#include "ty_core.h"

typedef struct reference {
    const ty_workload *workload;
    uint64_t batch;
    double loss_scale;
    const double *input;   /* or NULL for tokens */
    const int32_t *tokens; /* or NULL */
    const int32_t *labels;
    uint64_t parameter_count;
    uint64_t *offsets; /* [layer_count + 1] of a layer's parameters, without tied ones */
    double *parameters, *gradients;
    double **outputs, **output_gradients; /* [layer_count] */
    double *input_gradient;
    double loss_sum;
    uint64_t correct;
} reference;

reference *reference_new(const ty_workload *workload, uint64_t batch);
void reference_free(reference *r);
void reference_forward(reference *r);
/* After the forward pass; overwrites all gradients. Frozen layers have gradient 0. */
void reference_backward(reference *r);

#endif
