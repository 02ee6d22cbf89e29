/**
 * @file init.h
 * Initial weights, the same in every backend. Internal to execute/.
 */
#ifndef TY_EXECUTE_INIT_H
#define TY_EXECUTE_INIT_H

#include "ty_core.h"

/** Standard normal numbers times `deviation`: elements [first, first + count) of a tensor; element
 * i depends on (seed, layer, tensor, i) only. */
void ty_init_normal(uint64_t seed, uint32_t layer, uint32_t tensor, double deviation,
                    uint64_t first, uint64_t count, float *out);
/** Standard deviation of a tensor's initial numbers; 0: all of them are its constant. */
double ty_init_deviation(const ty_workload *workload, const ty_layer_tensor *tensor);

#endif
