/* Memory of a device in addition to a stage's rows: of libraries, and their workspace. */
#include "memory/memory.h"
#include "memory/scratch.h"

#include <string.h>

/* Memory of an accelerator's libraries. An allowance, not a measurement. */
#define ACCELERATOR_BYTES ((uint64_t)64 << 20)
/* Head sizes for which cuDNN has attention: by its support matrix for Hopper, confirmed by
 * gpu_cudnn_plans. */
#define MULTIPLE_OF_HEADS 8
#define LARGEST_HEADS 256
/* Resident memory of a rank on a host's cores without its stage and samples: 19 MiB of program and
 * libraries, 2 to 4 of heap, 1 to 3 of messages in shared memory, the rest in their buffers.
 * Measured by mapping on ranks of mlp and gpt-tiny, 26.2 to 29.3 MiB; Debian 12, oneDNN 2.6.3, Open
 * MPI 4.1.4, 2026-11-25. */
#define PROCESS_BYTES ((uint64_t)27 << 20)
/* Additional resident memory of libdnnl with oneDNN's convolutions, which it compiles on demand.
 * Measured as above on ranks of lenet and resnet18. */
#define CONVOLUTION_BYTES ((uint64_t)3 << 20)
/* Samples in memory: Fashion-MNIST's 60,000 for training, one copy per rank
 * (execute/data/data_idx.c). Text is mapped, synthetic samples are generated on demand. */
#define FASHION_MNIST_SAMPLES 60000
/* Batches of numbers on their way to a device, as floats (execute/interpreter/interpreter_input.c).
 */
#define BATCHES_AHEAD 2
/* Workspace of cuDNN's backward of a layer on one rank; 0 if attention is the worker's own
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

/* Whether the workspace of cuDNN's convolutions is known: for devices with TF32, from Ampere on. Of
 * older ones, the worker's GPU backend runs only on Turing; plans for the others are for other
 * frameworks.
 */
static bool has_known_convolutions(const ty_plan *plan, uint32_t stage)
{
    const uint32_t *devices = plan->stages[stage].devices;

    return plan->cluster == NULL || devices == NULL ||
           ty_cluster_device_type(plan->cluster, devices[0])->peak_tf32_flop_per_s > 0;
}

/* Workspace of convolutions, with the filters in their order (execute/cuda/layers/cuda_conv.c). */
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

static uint64_t batches_ahead(const ty_plan *plan, uint32_t position)
{
    const ty_workload *w = plan->workload;

    if (position > 0 || w->input_kind != TY_INPUT_REAL || w->learning == TY_LEARNING_REINFORCEMENT)
        return 0;
    return BATCHES_AHEAD * ty_rank_bytes(plan, ty_shape_elements(&w->input) * sizeof(float));
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

            scratch = own > scratch ? own : scratch; /* which layers use in turn */
            has_convolution = has_convolution || is_convolution;
        }
    }
    if (!is_on_cores)
        return ACCELERATOR_BYTES + scratch + batches_ahead(plan, position);
    if (has_convolution)
        bytes += CONVOLUTION_BYTES;
    if (strcmp(w->dataset, "fashion-mnist") == 0 && (position == 0 || position + 1 == positions))
        bytes += FASHION_MNIST_SAMPLES * w->sample_bytes;
    return bytes;
}
