/* What a device has of its memory taken beside a stage's rows: by libraries, and for these to work
 * in. */
#include "memory/memory.h"
#include "memory/scratch.h"

#include <string.h>

/* What an accelerator's libraries take of its memory. An allowance, not a measurement. */
#define ACCELERATOR_BYTES ((uint64_t)64 << 20)
/* Heads that cuDNN has attention for: as its support matrix for Hopper has it, and gpu_cudnn_plans
 * finds it. */
#define MULTIPLE_OF_HEADS 8
#define LARGEST_HEADS 256
/* What a rank on a host's cores is resident with beside its stage and its samples: 19 MiB of
 * program and libraries, 2 to 4 of heap, 1 to 3 of messages in shared memory, the rest in their
 * buffers. Measured by mapping on ranks of mlp and gpt-tiny, 26.2 to 29.3 MiB; Debian 12, oneDNN
 * 2.6.3, Open MPI 4.1.4, 2026-11-25. */
#define PROCESS_BYTES ((uint64_t)27 << 20)
/* oneDNN's convolutions besides, which it makes as it needs them: libdnnl is resident with so much
 * more of itself. Measured as above on ranks of lenet and resnet18. */
#define CONVOLUTION_BYTES ((uint64_t)3 << 20)
/* Samples that lie in memory: Fashion-MNIST's 60,000 for training, each rank its own copy
 * (execute/data/data_idx.c). Text is mapped, synthetic samples are made when they are asked for. */
#define FASHION_MNIST_SAMPLES 60000
/* What cuDNN's backward of a layer works in on one rank; 0 where attention is the worker's own
 * (execute/cuda/layers/cuda_attention.c). */
static uint64_t attention_scratch(const ty_plan *plan, uint32_t layer)
{
    const ty_workload *w = plan->workload;
    const ty_layer *l = &w->layers[layer];
    const uint64_t *a = l->attributes, ranks = ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL);
    const uint64_t kv_heads = a[TY_KV_HEADS] < ranks ? 1 : a[TY_KV_HEADS] / ranks;
    uint64_t bytes;

    if (ty_memory_numbers(w, layer).scores <= 0 || w->element_bytes != sizeof(uint16_t) ||
        a[TY_RELATIVE_BUCKETS] > 0 || ty_plan_parallel_size(plan, TY_CONTEXT_PARALLEL) > 1 ||
        a[TY_HEAD_SIZE] % MULTIPLE_OF_HEADS != 0 || a[TY_HEAD_SIZE] > LARGEST_HEADS)
        return 0;
    bytes = ty_attention_scratch(
        plan->micro_batch_size / ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL),
        a[TY_HEADS] / ranks, kv_heads, a[TY_HEAD_SIZE], l->output.dimensions[0],
        ty_layer_input_shape(w, layer, 0)->dimensions[0], false);
    return bytes <= TY_ATTENTION_SCRATCH_LIMIT ? bytes : 0;
}

/* Whether what cuDNN's convolutions work in is known: of devices with TF32, from Ampere on. Of what
 * is older the worker's GPU backend runs on Turing alone; plans there stand for others' software.
 */
static bool has_known_convolutions(const ty_plan *plan, uint32_t stage)
{
    const uint32_t *devices = plan->stages[stage].devices;

    return plan->cluster == NULL || devices == NULL ||
           ty_cluster_device_type(plan->cluster, devices[0])->peak_tf32_flop_per_s > 0;
}

/* What these work in, with the filters in their order (execute/cuda/layers/cuda_conv.c). */
static uint64_t convolution_scratch(const ty_plan *plan, uint32_t layer)
{
    const ty_workload *w = plan->workload;
    const ty_layer *l = &w->layers[layer];
    const uint64_t *a = l->attributes, *in = ty_layer_input_shape(w, layer, 0)->dimensions;
    const ty_convolution c = {.samples = plan->micro_batch_size /
                                         ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL),
                              .groups = a[TY_GROUPS],
                              .in_channels = a[TY_IN_CHANNELS],
                              .in_pixels = in[1] * in[2],
                              .out_channels = a[TY_OUT_CHANNELS],
                              .out_pixels = l->output.dimensions[1] * l->output.dimensions[2],
                              .window_height = a[TY_KERNEL_HEIGHT],
                              .window_width = a[TY_KERNEL_WIDTH],
                              .stride = a[TY_STRIDE],
                              .reads_samples = l->input_count == 0};

    return ty_convolution_scratch(&c, w->precision) +
           a[TY_OUT_CHANNELS] * (a[TY_IN_CHANNELS] / a[TY_GROUPS]) * a[TY_KERNEL_HEIGHT] *
               a[TY_KERNEL_WIDTH] * w->element_bytes;
}

uint64_t ty_memory_workspace(const ty_plan *plan, uint32_t position, uint32_t positions,
                             bool is_on_cores)
{
    const ty_workload *w = plan->workload;
    uint64_t bytes = PROCESS_BYTES, scratch = 0;
    bool has_convolution = false;

    for (uint32_t s = position; s < plan->stage_count; s += positions) {
        const ty_plan_stage *stage = &plan->stages[s];
        for (uint32_t i = stage->first_layer; i < stage->first_layer + stage->layer_count; i++) {
            const bool is_convolution = ty_memory_row_of(w->layers[i].kind)->is_convolution;
            const uint64_t own = !is_convolution                   ? attention_scratch(plan, i)
                                 : has_known_convolutions(plan, s) ? convolution_scratch(plan, i)
                                                                   : 0;

            scratch = own > scratch ? own : scratch; /* which layers have in turns */
            has_convolution = has_convolution || is_convolution;
        }
    }
    if (!is_on_cores)
        return ACCELERATOR_BYTES + scratch;
    if (has_convolution)
        bytes += CONVOLUTION_BYTES;
    if (strcmp(w->dataset, "fashion-mnist") == 0 && (position == 0 || position + 1 == positions))
        bytes += FASHION_MNIST_SAMPLES * w->sample_bytes;
    return bytes;
}
