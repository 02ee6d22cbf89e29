/**
 * @file library_graphs.h
 * The stand-in for cuDNN's graphs, limited to those of convolutions and attention.
 */
#ifndef TY_TEST_GPU_LIBRARY_GRAPHS_H
#define TY_TEST_GPU_LIBRARY_GRAPHS_H

#include <cudnn.h>

cudnnStatus_t graph_descriptor_create(cudnnBackendDescriptorType_t kind,
                                      cudnnBackendDescriptor_t *out);
cudnnStatus_t graph_descriptor_destroy(cudnnBackendDescriptor_t made);
cudnnStatus_t graph_attribute_set(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                                  cudnnBackendAttributeType_t type, int64_t count,
                                  const void *values);
cudnnStatus_t graph_attribute_get(cudnnBackendDescriptor_t const of,
                                  cudnnBackendAttributeName_t name,
                                  cudnnBackendAttributeType_t type, int64_t asked, int64_t *count,
                                  void *values);
cudnnStatus_t graph_finalize(cudnnBackendDescriptor_t of);
cudnnStatus_t graph_execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                            cudnnBackendDescriptor_t pack);

#endif
