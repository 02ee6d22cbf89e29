/**
 * @file weights.h
 * Reads and writes weights as safetensors. Internal to execute/.
 *
 *     TY_CHECK(weights_open(path, workload, &file, error), status, done);
 *     options.weights = weights_source(file);    // stages opened with it start from these weights
 *     ...
 *     weights_close(file);                       // once they are open
 */
#ifndef TY_EXECUTE_WEIGHTS_H
#define TY_EXECUTE_WEIGHTS_H

#include "interpreter.h"

typedef struct weights weights;

/**
 * Opens a file (safetensors_open) and finds in it every tensor of the workload, by the names and in
 * the layout of weight_names.h. In a workload with frozen layers the file must have those. A
 * trained layer whose tensors are missing or of another shape, such as a head of other classes,
 * starts from the seed, and tensors that belong to no layer are ignored. For any other workload the
 * file must have exactly its tensors.
 * @return TY_EIO; TY_EPARSE naming the tensor that is missing, one too many or of another shape
 */
ty_status weights_open(const char *path, const ty_workload *workload, weights **out,
                       ty_error *error) TY_MUST_CHECK;
const ty_weights *weights_source(const weights *file);
void weights_close(weights *file);

/** Layers with parameters, or statistics, of their own, and those of them that start from the
 * seed. */
void weights_count(const weights *file, uint32_t *layers, uint32_t *fresh);

/**
 * Saves the current weights of a run, unsharded for any plan, in fp32: gathers them layer by layer
 * on rank 0, which writes them. Between runs, on all ranks; statistics are averaged over replicas.
 */
ty_status weights_save(ty_interpreter *interpreter, const char *path,
                       ty_error *error) TY_MUST_CHECK;

#endif
