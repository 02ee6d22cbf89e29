/**
 * @file cuda_plugin.h
 * The interface between the worker and its CUDA plugin. Internal to execute/.
 *
 * The plugin holds the "cuda" backend: its own kernels, the CUDA runtime (static), and calls into
 * cuBLASLt, cuDNN and NCCL, which it loads when a layer or a link first needs them. Building it
 * requires the CUDA toolkit. It loads everywhere, and reports if there is no GPU.
 */
#ifndef TY_EXECUTE_CUDA_PLUGIN_H
#define TY_EXECUTE_CUDA_PLUGIN_H

#include "device.h"

#define TY_CUDA_PLUGIN_FILE "libtrainyard-cuda.so"
#define TY_CUDA_PLUGIN_SYMBOL "ty_cuda_plugin_get"
/** Raised with every change of device.h, device_link.h, transport.h, codec_kinds.h or a core
 *  structure in them. */
#define TY_CUDA_PLUGIN_VERSION 9

typedef struct ty_cuda_plugin {
    uint32_t version;
    const ty_device_backend *backend;
    /** TY_EUNSUPPORTED if there is no GPU or no driver for it. */
    ty_status (*check)(ty_error *error);
} ty_cuda_plugin;

/** @param is_alone whether the run has one rank; the first call decides how kernels are loaded */
typedef const ty_cuda_plugin *ty_cuda_plugin_getter(bool is_alone);

#endif
