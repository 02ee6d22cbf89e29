/**
 * @file weights.h
 * Weights that go in and come out as safetensors. Internal to execute/.
 *
 *     TY_CHECK(weights_open(path, workload, &file, error), status, done);
 *     options.weights = weights_source(file);    // stages that are opened with it start from them
 *     ...
 *     weights_close(file);                       // once they are open
 */
#ifndef TY_EXECUTE_WEIGHTS_H
#define TY_EXECUTE_WEIGHTS_H

#include "interpreter.h"

typedef struct weights weights;

/**
 * Opens a file (safetensors_open) and finds in it every tensor of the workload, by the names and in
 * the layout of weight_names.h. In a workload with frozen layers these must be there; a trained
 * layer whose tensors are absent or of another shape, as a head of other classes has, starts from
 * the seed, and tensors that belong to no layer are let be. In any other all must be there, and
 * nothing else.
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
 * The present weights of a run, whole, whatever the plan, in fp32: gathered layer by layer on
 * process 0, which writes them. Between runs, on all ranks; statistics are averaged over replicas.
 */
ty_status weights_save(ty_interpreter *interpreter, const char *path,
                       ty_error *error) TY_MUST_CHECK;

#endif
