/* The CUDA backend: a stage's layers on one GPU. What the layers become is decided in cuda_build.c;
 * here are the functions of the backend and of the plugin that holds it. */
#include "cuda_plugin.h"
#include "cuda_stage.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of matrix products; NVIDIA's advice for Hopper is 32 MiB (cuBLAS documentation, "cuBLAS
 * workspace"). */
#define WORKSPACE_BYTES (UINT64_C(32) << 20)

/* ---- The device's clock ---- */

enum { CLOCK_START, CLOCK_STOP };

/* In a graph a mark is a part of it, which marks the time whenever it is launched. */
static ty_status clock_mark(const ty_stage_device *stage, int which, cudaStream_t stream,
                            ty_error *error)
{
    ty_status status = TY_OK;

    if (stage->is_timed)
        CUDA_CHECK(cudaEventRecordWithFlags(stage->clock[which], stream,
                                            stage->is_recording ? cudaEventRecordExternal
                                                                : cudaEventRecordDefault),
                   status, done);
done:
    return status;
}

static ty_status device_time(ty_stage_device *stage, bool is_timed, ty_error *error)
{
    ty_status status = cuda_use(stage, error);

    for (int which = CLOCK_START; which <= CLOCK_STOP && status == TY_OK; which++)
        if (is_timed && stage->clock[which] == NULL)
            CUDA_CHECK(cudaEventCreateWithFlags(&stage->clock[which], cudaEventDefault), status,
                       done);
    if (status == TY_OK)
        stage->is_timed = is_timed;
done:
    return status;
}

static ty_status device_seconds(ty_stage_device *stage, double *seconds, ty_error *error)
{
    float milliseconds = 0;
    ty_status status = TY_OK;

    CUDA_CHECK(
        cudaEventElapsedTime(&milliseconds, stage->clock[CLOCK_START], stage->clock[CLOCK_STOP]),
        status, done);
    *seconds = (double)milliseconds * 1e-3;
done:
    return status;
}

static void clock_free(ty_stage_device *stage)
{
    for (int which = CLOCK_START; which <= CLOCK_STOP; which++)
        if (stage->clock[which] != NULL)
            cudaEventDestroy(stage->clock[which]);
}

/* ---- Streams ---- */

/* The side stream has nothing to do now, so that its mark is of this moment. A pass marks its own
 * start. */
ty_status cuda_use(const ty_stage_device *stage, ty_error *error)
{
    ty_status status = TY_OK;

    CUDA_CHECK(cudaSetDevice(stage->ordinal), status, done);
    status = clock_mark(stage, CLOCK_START, stage->side, error);
done:
    return status;
}

/* Kernels that could not be started, then what went wrong on the way. */
static ty_status stream_wait(cudaStream_t stream, ty_error *error)
{
    ty_status status = TY_OK;

    CUDA_CHECK(cudaGetLastError(), status, done);
    CUDA_CHECK(cudaStreamSynchronize(stream), status, done);
done:
    return status;
}

ty_status cuda_pass_wait(const ty_stage_device *stage, ty_error *error)
{
    ty_status status = clock_mark(stage, CLOCK_STOP, stage->stream, error);

    return status == TY_OK ? stream_wait(stage->stream, error) : status;
}

ty_status cuda_side_wait(const ty_stage_device *stage, ty_error *error)
{
    ty_status status = clock_mark(stage, CLOCK_STOP, stage->side, error);

    return status == TY_OK ? stream_wait(stage->side, error) : status;
}

/* ---- Opening ---- */

static ty_status options_check(const ty_stage_options *options, ty_error *error)
{
    const ty_workload *workload = options->workload;
    ty_status status;

    if (options->layer_count == 0 || options->first_layer >= workload->layer_count ||
        options->layer_count > workload->layer_count - options->first_layer)
        return ty_fail(error, TY_EINVAL, "found layers %u + %u, expected a range within 0 to %u",
                       (unsigned)options->first_layer, (unsigned)options->layer_count,
                       (unsigned)workload->layer_count);
    if (options->micro_batch_size == 0 || options->slots == 0)
        return ty_fail(error, TY_EINVAL,
                       "found %u samples per micro-batch in %u slots, expected at least 1 of each",
                       (unsigned)options->micro_batch_size, (unsigned)options->slots);
    if (workload->element_bytes != sizeof(float) &&
        workload->element_bytes != ty_precision_bytes(options->precision))
        return ty_fail(error, TY_EUNSUPPORTED,
                       "the plan's numbers have %u bytes: found precision %s, expected that of "
                       "the plan (%s)",
                       (unsigned)workload->element_bytes, ty_precision_name(options->precision),
                       ty_precision_name(workload->precision));
    status = cuda_supports(workload, options->first_layer, options->layer_count, error);
    return status == TY_OK ? lanes_check(options, error) : status;
}

static void device_close(ty_stage_device *stage)
{
    if (stage == NULL)
        return;
    (void)cudaSetDevice(stage->ordinal);
    cuda_graphs_free(stage);
    clock_free(stage);
    for (uint32_t n = 0; n < stage->node_count; n++) {
        if (stage->nodes[n].kind->release != NULL)
            stage->nodes[n].kind->release(stage, &stage->nodes[n]);
        ty_free(stage->nodes[n].inputs);
        ty_free(stage->nodes[n].adds);
    }
    cuda_products_free(stage);
    cuda_choices_close(stage);
    if (stage->dnn_handle != NULL)
        stage->dnn->cudnnDestroy(stage->dnn_handle);
    if (stage->blas_handle != NULL)
        stage->blas->cublasLtDestroy(stage->blas_handle);
    cuda_memory_release(stage, stage->codec_workspace);
    cuda_buffers_free(stage);
    cuda_cuts_free(stage);
    if (stage->stream != NULL)
        cudaStreamDestroy(stage->stream);
    if (stage->side != NULL)
        cudaStreamDestroy(stage->side);
    cuda_layouts_clear(stage);
    stage_parameters_clear(&stage->placed);
    stage_segments_clear(&stage->segments);
    ty_free(stage->state_ranges);
    ty_free(stage->values);
    ty_free(stage->nodes);
    ty_free(stage->taken);
    pthread_mutex_destroy(&stage->memory_lock);
    ty_launch_order_close(&stage->launches);
    ty_free(stage);
}

ty_status cuda_dnn_open(ty_stage_device *stage, ty_error *error)
{
    ty_status status = TY_OK;

    if (stage->dnn_handle != NULL)
        return TY_OK;
    TY_CHECK(cuda_dnn_load(&stage->dnn, error), status, done);
    CUDA_DNN_CHECK(stage->dnn->cudnnCreate(&stage->dnn_handle), status, done);
    CUDA_DNN_CHECK(stage->dnn->cudnnSetStream(stage->dnn_handle, stage->stream), status, done);
done:
    return status;
}

/* Which GPU, what it has, and the attention kernels' right to its shared memory. */
static ty_status device_choose(ty_stage_device *stage, ty_error *error)
{
    struct cudaDeviceProp properties;
    int count = 0, shared = 0, runtime = 0;
    ty_status status = TY_OK;

    CUDA_CHECK(cudaGetDeviceCount(&count), status, done);
    if (count == 0)
        return ty_fail(error, TY_EUNSUPPORTED, "there is no GPU");
    stage->ordinal = (int)(stage->options.local_rank % (uint32_t)count);
    CUDA_CHECK(cudaSetDevice(stage->ordinal), status, done);
    CUDA_CHECK(cudaGetDeviceProperties(&properties, stage->ordinal), status, done);
    CUDA_CHECK(
        cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, stage->ordinal),
        status, done);
    CUDA_CHECK(cudaRuntimeGetVersion(&runtime), status, done);
    if (stage->options.precision == TY_PRECISION_BF16 && properties.major < 8)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "%s has compute capability %d.%d, and bf16 needs 8.0; fp16 may do",
                       properties.name, properties.major, properties.minor);
    stage->shared_bytes = (uint64_t)shared;
    stage->capability = 10 * properties.major + properties.minor;
    stage->processors = properties.multiProcessorCount;
    stage->capacity_bytes = properties.totalGlobalMem;
    memcpy(&stage->identity, &properties.uuid, sizeof stage->identity);
    CUDA_CHECK(cuda_attention_prepare(stage->shared_bytes), status, done);
    snprintf(stage->description, sizeof stage->description, "%.64s, CUDA %d.%d, %s",
             properties.name, runtime / 1000, runtime % 1000 / 10,
             ty_precision_name(stage->options.precision));
done:
    return status;
}

static ty_status attention_choose(ty_stage_device *stage, ty_error *error)
{
    const char *asked = getenv(CUDA_ATTENTION_SWITCH);

    if (asked == NULL || asked[0] == '\0' || strcmp(asked, "auto") == 0)
        stage->attention_asked = CUDA_ATTENTION_AUTO;
    else if (strcmp(asked, "own") == 0)
        stage->attention_asked = CUDA_ATTENTION_OWN;
    else
        return ty_fail(error, TY_EINVAL,
                       CUDA_ATTENTION_SWITCH ": found \"%s\", expected auto or own", asked);
    return TY_OK;
}

/* Behind what the description says of the device, whose attention there is. */
static void attention_describe(ty_stage_device *stage)
{
    const size_t length = strlen(stage->description), room = sizeof stage->description - length;
    char *const end = stage->description + length;
    const uint32_t all = stage->attention_layers, of_dnn = stage->attention_layers_of_dnn;

    if (of_dnn > 0 && of_dnn == all) {
        const size_t version = stage->dnn->cudnnGetVersion();
        snprintf(end, room, ", attention by cuDNN %zu.%zu%s", version / 10000,
                 version % 10000 / 100, stage->options.is_deterministic ? ", deterministic" : "");
    } else if (of_dnn > 0) {
        snprintf(end, room, ", attention of %u of %u layers by cuDNN (others: %s)", of_dnn, all,
                 stage->attention_reason);
    } else if (all > 0) {
        snprintf(end, room, ", own attention (%s)", stage->attention_reason);
    }
}

static ty_status libraries_open(ty_stage_device *stage, ty_error *error)
{
    cublasStatus_t code;
    ty_status status = TY_OK;

    CUDA_CHECK(cudaStreamCreateWithFlags(&stage->stream, cudaStreamNonBlocking), status, done);
    CUDA_CHECK(cudaStreamCreateWithFlags(&stage->side, cudaStreamNonBlocking), status, done);
    TY_CHECK(cuda_blas_load(&stage->blas, error), status, done);
    code = stage->blas->cublasLtCreate(&stage->blas_handle);
    if (code != CUBLAS_STATUS_SUCCESS)
        return cuda_blas_fail(error, "cublasLtCreate", code);
    TY_CHECK(cuda_choices_open(stage, stage->description, error), status, done);
    stage->workspace_bytes = WORKSPACE_BYTES;
    stage->workspace = cuda_buffer(stage, WORKSPACE_BYTES);
    if (stage->workspace == NULL)
        status = ty_fail(error, TY_ENOMEM, "out of GPU memory for matrix products");
done:
    return status;
}

static void device_scale_loss(ty_stage_device *stage, double factor)
{
    stage->loss_factor = factor;
    *stage->host_scale = (float)(stage->options.loss_scale * factor);
}

static ty_status device_open(const ty_stage_options *options, ty_stage_device **out,
                             ty_error *error)
{
    static const cuda_type types[TY_PRECISION_COUNT] = {[TY_PRECISION_FP32] = CUDA_TYPE_FLOAT,
                                                        [TY_PRECISION_TF32] = CUDA_TYPE_FLOAT,
                                                        [TY_PRECISION_BF16] = CUDA_TYPE_BF16,
                                                        [TY_PRECISION_FP16] = CUDA_TYPE_HALF};
    ty_stage_device *stage = NULL;
    ty_status status = TY_OK;

    TY_CHECK(options_check(options, error), status, cleanup);
    stage = ty_alloc(1, sizeof *stage);
    if (stage == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for a stage");
        goto cleanup;
    }
    pthread_mutex_init(&stage->memory_lock, NULL);
    ty_launch_order_open(&stage->launches);
    stage->options = *options;
    stage->type = types[options->precision];
    stage->element = stage->type == CUDA_TYPE_FLOAT ? sizeof(float) : sizeof(uint16_t);
    stage->behind.type =
        options->workload->element_bytes == sizeof(float) ? CUDA_TYPE_FLOAT : stage->type;
    stage->before.type = options->first_layer == 0 ? CUDA_TYPE_FLOAT : stage->behind.type;
    TY_CHECK(cuda_graphs_open(stage, error), status, cleanup);
    TY_CHECK(attention_choose(stage, error), status, cleanup);
    TY_CHECK(device_choose(stage, error), status, cleanup);
    TY_CHECK(libraries_open(stage, error), status, cleanup);
    TY_CHECK(cuda_build(stage, error), status, cleanup);
    attention_describe(stage);
    device_scale_loss(stage, 1.0);
    *out = stage;
    stage = NULL; /* given away */

cleanup:
    device_close(stage);
    return status;
}

/* ---- Buffers ---- */

static float *device_input(ty_stage_device *stage, uint32_t slot)
{
    if (stage->host_input != NULL)
        return stage->host_input[slot];
    return stage->before.data == NULL ? NULL : (float *)stage->before.data[slot];
}

static float *device_swap_input(ty_stage_device *stage, uint32_t slot, float *fresh)
{
    float *used = stage->host_input[slot];

    stage->host_input[slot] = fresh;
    return used;
}

static int32_t *device_tokens(ty_stage_device *stage, uint32_t slot)
{
    return stage->host_tokens == NULL ? NULL : stage->host_tokens[slot];
}

static int32_t *device_labels(ty_stage_device *stage, uint32_t slot)
{
    return stage->host_labels == NULL ? NULL : stage->host_labels[slot];
}

static float *device_output(ty_stage_device *stage, uint32_t slot)
{
    return stage->behind.data == NULL ? NULL : stage->behind.data[slot];
}

static float *device_input_gradient(ty_stage_device *stage, uint32_t slot)
{
    return stage->before.gradient == NULL ? NULL : stage->before.gradient[slot];
}

static float *device_output_gradient(ty_stage_device *stage, uint32_t slot)
{
    return stage->behind.gradient == NULL ? NULL : stage->behind.gradient[slot];
}

/* ---- Passes: what comes in ---- */

/* A counting sort by token, stable, so that sums over places go in their order. */
static void tokens_group(const int32_t *tokens, uint64_t count, int32_t *groups, int32_t *places)
{
    int32_t *order = groups, *starts = groups + count, *group_tokens = groups + 2 * count + 1;
    int32_t *group_count = groups + 3 * count + 1;
    int32_t found = 0, at = 0;

    /* places[t]: first how often the token is there, then where its next place goes. */
    for (uint64_t i = 0; i < count; i++)
        places[tokens[i]]++;
    for (uint64_t i = 0; i < count; i++) {
        int32_t token = tokens[i], here = places[token];
        if (here <= 0)
            continue; /* its group has been started */
        starts[found] = at;
        group_tokens[found++] = token;
        places[token] = -1 - at;
        at += here;
    }
    starts[found] = at;
    *group_count = found;
    for (uint64_t i = 0; i < count; i++)
        order[-1 - places[tokens[i]]--] = (int32_t)i;
}

/* On the host, before the batch goes to the device: what is not a token is not looked up there. */
static ty_status tokens_prepare(const ty_stage_device *stage, uint32_t slot, ty_error *error)
{
    const int32_t *tokens = stage->host_tokens[slot];
    uint64_t count = stage->values[0].count;
    int32_t *places = NULL;

    for (uint64_t i = 0; i < count; i++)
        if (tokens[i] < 0 || (uint64_t)tokens[i] >= stage->token_vocabulary)
            return ty_fail(error, TY_EINVAL, "layer %s: token %ld at place %lu, expected 0 to %lu",
                           stage->nodes[0].layer->name, (long)tokens[i], (unsigned long)i,
                           (unsigned long)(stage->token_vocabulary - 1));
    places = ty_alloc(stage->token_vocabulary, sizeof *places);
    if (places == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for tokens");
    tokens_group(tokens, count, stage->token_slots[slot].host_groups, places);
    ty_free(places);
    return TY_OK;
}

static ty_status tokens_enter(ty_stage_device *stage, uint32_t slot, ty_error *error)
{
    uint64_t count = stage->values[0].count;
    token_slot *to = &stage->token_slots[slot];
    ty_status status = TY_OK;

    CUDA_CHECK(cudaMemcpyAsync(to->tokens, stage->host_tokens[slot], count * sizeof *to->tokens,
                               cudaMemcpyHostToDevice, stage->stream),
               status, done);
    CUDA_CHECK(cudaMemcpyAsync(to->groups, to->host_groups, (3 * count + 2) * sizeof *to->groups,
                               cudaMemcpyHostToDevice, stage->stream),
               status, done);
done:
    return status;
}

/* Queued before the pass and not in its graph, because the address changes from batch to batch. A
 * timed pass includes it. */
static ty_status numbers_enter(ty_stage_device *stage, uint32_t slot, ty_error *error)
{
    ty_status status = TY_OK;

    if (stage->host_input != NULL)
        CUDA_CHECK(cudaMemcpyAsync(stage->before.data[slot], stage->host_input[slot],
                                   stage->before.numbers * sizeof(float), cudaMemcpyHostToDevice,
                                   stage->stream),
                   status, done);
done:
    return status;
}

static ty_status input_enter(ty_stage_device *stage, uint32_t slot, ty_error *error)
{
    ty_status status = TY_OK;

    if (stage->host_tokens != NULL)
        return tokens_enter(stage, slot, error);
    if (stage->is_timed)
        TY_CHECK(numbers_enter(stage, slot, error), status, done);
    cuda_input_take(stage, slot);
done:
    return status;
}

static ty_status labels_enter(ty_stage_device *stage, uint32_t slot, ty_error *error)
{
    uint64_t count = stage->labels_per_sample * cuda_batch(stage);
    ty_status status = TY_OK;

    CUDA_CHECK(cudaMemcpyAsync(stage->labels[slot], stage->host_labels[slot],
                               count * sizeof(int32_t), cudaMemcpyHostToDevice, stage->stream),
               status, done);
done:
    return status;
}

/* ---- Passes ---- */

static bool is_between(const cuda_node *node, uint32_t first, uint32_t count)
{
    return node->layer_index >= first && node->layer_index - first < count;
}

static ty_status loss_leave(ty_stage_device *stage, uint32_t slot, ty_error *error)
{
    ty_status status = TY_OK;

    CUDA_CHECK(cudaMemcpyAsync(&stage->host_losses[slot], stage->losses[slot], sizeof(cuda_loss),
                               cudaMemcpyDeviceToHost, stage->stream),
               status, done);
done:
    return status;
}

static ty_status loss_check(const ty_stage_device *stage, uint32_t slot, ty_error *error)
{
    const cuda_node *node = &stage->nodes[stage->node_count - 1];
    const ty_shape *logits = &node->whole_input;
    int64_t row = stage->host_losses[slot].bad_row;

    if (row < 0)
        return TY_OK;
    return ty_fail(error, TY_EINVAL, "layer %s: label %ld of row %lu, expected 0 to %lu",
                   node->layer->name, (long)stage->host_labels[slot][row], (unsigned long)row,
                   (unsigned long)(logits->dimensions[logits->dimension_count - 1] - 1));
}

static bool is_from_start(const ty_stage_device *stage, uint32_t first, uint32_t count)
{
    return count > 0 && first == stage->options.first_layer;
}

/* A node's forward; or, of what recomputing finds, nothing, or the rest. */
static ty_status node_forward(ty_stage_device *stage, const cuda_node *node, const cuda_pass *pass,
                              ty_error *error)
{
    if (pass->is_again && node->is_kept)
        return TY_OK;
    if (pass->is_again && node->kept_bytes > 0)
        return node->kind->again(stage, node, pass->slot, error);
    return node->kind->forward(stage, node, pass->slot, error);
}

static ty_status forward_queue(ty_stage_device *stage, const cuda_pass *pass, ty_error *error)
{
    const bool is_end = stage_range_has_last(&stage->options, pass->first, pass->count),
               has_loss = cuda_has_loss(stage);
    ty_status status;

    TY_CHECK(clock_mark(stage, CLOCK_START, stage->stream, error), status, done);
    if (is_from_start(stage, pass->first, pass->count))
        TY_CHECK(input_enter(stage, pass->slot, error), status, done);
    if (is_end && has_loss)
        TY_CHECK(labels_enter(stage, pass->slot, error), status, done);
    for (uint32_t n = 0; n < stage->node_count; n++) {
        const cuda_node *node = &stage->nodes[n];
        if (is_between(node, pass->first, pass->count))
            TY_CHECK(node_forward(stage, node, pass, error), status, done);
    }
    if (is_end && has_loss)
        TY_CHECK(loss_leave(stage, pass->slot, error), status, done);
    if (is_end && !has_loss && !pass->is_again) /* the message is still there */
        cuda_output_give(stage, pass->slot);
    status = clock_mark(stage, CLOCK_STOP, stage->stream, error);
done:
    return status;
}

static ty_status forward_run(ty_stage_device *stage, const cuda_pass *pass, ty_error *error)
{
    ty_status status;

    TY_CHECK(stage_range_check(&stage->options, pass->slot, pass->first, pass->count, error),
             status, done);
    TY_CHECK(cuda_use(stage, error), status, done);
    if (is_from_start(stage, pass->first, pass->count) && stage->host_tokens != NULL)
        TY_CHECK(tokens_prepare(stage, pass->slot, error), status, done);
    if (is_from_start(stage, pass->first, pass->count) && !stage->is_timed)
        TY_CHECK(numbers_enter(stage, pass->slot, error), status, done);
    TY_CHECK(cuda_pass_run(stage, pass, forward_queue, error), status, done);
    TY_CHECK(stream_wait(stage->stream, error), status, done);
    if (stage_range_has_last(&stage->options, pass->first, pass->count) && cuda_has_loss(stage))
        status = loss_check(stage, pass->slot, error);
done:
    return status;
}

static ty_status device_forward(ty_stage_device *stage, uint32_t slot, uint32_t first,
                                uint32_t count, ty_error *error)
{
    const cuda_pass pass = {.is_forward = true, .slot = slot, .first = first, .count = count};

    return forward_run(stage, &pass, error);
}

static ty_status device_recompute(ty_stage_device *stage, uint32_t slot, uint32_t first,
                                  uint32_t count, ty_error *error)
{
    const cuda_pass pass = {
        .is_forward = true, .is_again = true, .slot = slot, .first = first, .count = count};

    return forward_run(stage, &pass, error);
}

/* What backward starts from: the loss's factor, or the neighbour's gradients. */
static ty_status gradient_enter(ty_stage_device *stage, uint32_t slot, ty_error *error)
{
    ty_status status = TY_OK;

    if (cuda_has_loss(stage))
        CUDA_CHECK(cudaMemcpyAsync(stage->scale, stage->host_scale, sizeof *stage->scale,
                                   cudaMemcpyHostToDevice, stage->stream),
                   status, done);
    else
        cuda_gradient_take(stage, slot);
done:
    return status;
}

static ty_status backward_queue(ty_stage_device *stage, const cuda_pass *pass, ty_error *error)
{
    const bool has_inputs = pass->part != CUDA_WEIGHTS;
    ty_status status;

    TY_CHECK(clock_mark(stage, CLOCK_START, stage->stream, error), status, done);
    if (has_inputs && stage_range_has_last(&stage->options, pass->first, pass->count))
        TY_CHECK(gradient_enter(stage, pass->slot, error), status, done);
    for (uint32_t n = stage->node_count; n-- > 0;) {
        const cuda_node *node = &stage->nodes[n];
        bool has_part = has_inputs || node->tensor_count > 0;
        if (has_part && is_between(node, pass->first, pass->count) &&
            stage->values[node->output].needs_gradient)
            TY_CHECK(node->kind->backward(stage, node, pass->slot, pass->is_first, error), status,
                     done);
    }
    if (has_inputs && is_from_start(stage, pass->first, pass->count))
        cuda_gradient_give(stage, pass->slot);
    status = clock_mark(stage, CLOCK_STOP, stage->stream, error);
done:
    return status;
}

static ty_status backward_part(ty_stage_device *stage, uint32_t slot, uint32_t first,
                               uint32_t count, bool is_first, cuda_part part, ty_error *error)
{
    const cuda_pass pass = {
        .part = part, .slot = slot, .first = first, .count = count, .is_first = is_first};
    ty_status status;

    TY_CHECK(stage_range_check(&stage->options, slot, first, count, error), status, done);
    TY_CHECK(cuda_use(stage, error), status, done);
    stage->part = part;
    stage->slot = slot;
    TY_CHECK(cuda_pass_run(stage, &pass, backward_queue, error), status, done);
    status = stream_wait(stage->stream, error);
done:
    return status;
}

static ty_status device_backward(ty_stage_device *stage, uint32_t slot, uint32_t first,
                                 uint32_t count, bool is_first, ty_error *error)
{
    return backward_part(stage, slot, first, count, is_first, CUDA_BOTH, error);
}

static ty_status device_backward_input(ty_stage_device *stage, uint32_t slot, uint32_t first,
                                       uint32_t count, ty_error *error)
{
    return backward_part(stage, slot, first, count, false, CUDA_INPUTS, error);
}

static ty_status device_backward_weight(ty_stage_device *stage, uint32_t slot, uint32_t first,
                                        uint32_t count, bool is_first, ty_error *error)
{
    return backward_part(stage, slot, first, count, is_first, CUDA_WEIGHTS, error);
}

static void device_loss(ty_stage_device *stage, uint32_t slot, double *loss_sum, uint64_t *correct,
                        uint64_t *labels)
{
    bool has_loss = stage->losses != NULL;

    *loss_sum = has_loss ? stage->host_losses[slot].sum : 0.0;
    *correct = has_loss ? stage->host_losses[slot].correct : 0;
    *labels = has_loss ? stage->labels_per_sample * cuda_batch(stage) : 0;
}

/* ---- Parameters ---- */

static uint64_t device_parameter_count(const ty_stage_device *stage)
{
    return stage->placed.count;
}

static void device_select(ty_stage_device *stage, uint32_t version)
{
    stage->parameters = stage->versions + version * stage->set_stride;
    stage->weights =
        (char *)stage->version_weights + version * stage->weight_stride * stage->element;
}

static float *device_statistics(ty_stage_device *stage, uint64_t *count)
{
    *count = stage->statistic_count;
    return stage->statistics;
}

static void device_set_evaluating(ty_stage_device *stage, bool is_evaluating)
{
    stage->is_evaluating = is_evaluating;
}

static float *device_parameters(ty_stage_device *stage)
{
    return stage->parameters;
}

static float *device_gradients(ty_stage_device *stage)
{
    return stage->gradient_sets;
}

static void device_select_gradients(ty_stage_device *stage, uint32_t set)
{
    stage->gradients = stage->gradient_sets + set * stage->set_stride;
}

static void device_slice(const ty_stage_device *stage, uint32_t first_layer, uint32_t layer_count,
                         uint64_t *offset, uint64_t *count)
{
    stage_parameters_slice(&stage->options, &stage->placed, first_layer, layer_count, offset,
                           count);
}

static void device_expert_slice(const ty_stage_device *stage, uint32_t first_layer,
                                uint32_t layer_count, uint64_t *offset, uint64_t *count)
{
    stage_parameters_expert_slice(&stage->options, &stage->placed, first_layer, layer_count, offset,
                                  count);
}

static uint64_t device_experts_join(const ty_stage_device *stage, uint32_t layer,
                                    const float *parts, float *whole)
{
    return stage_parameters_experts_join(&stage->options, &stage->placed, layer, parts, whole);
}

static uint64_t device_lanes_join(const ty_stage_device *stage, uint32_t layer, bool is_tied,
                                  const float *parts, float *whole)
{
    return stage_parameters_join(&stage->options, &stage->placed, layer, is_tied, parts, whole);
}

/* By one thread, on the side stream. What fails shows as no number, and in the next call. */
static double device_square(ty_stage_device *stage, const float *first, uint64_t count)
{
    ty_error ignored;
    ty_error *error = &ignored;
    ty_status status;

    TY_CHECK(cuda_use(stage, error), status, done);
    cuda_squares(count, first, stage->squares, stage->side);
    CUDA_CHECK(cudaMemcpyAsync(stage->host_square, stage->squares, sizeof *stage->host_square,
                               cudaMemcpyDeviceToHost, stage->side),
               status, done);
    status = stream_wait(stage->side, error);
done:
    return status == TY_OK ? *stage->host_square : (double)NAN;
}

static void device_tied_slice(const ty_stage_device *stage, uint64_t *offset, uint64_t *count)
{
    *offset = stage->placed.tied_offset;
    *count = stage->placed.tied_count;
}

static uint64_t device_memory_bytes(const ty_stage_device *stage)
{
    return stage->memory_bytes;
}

/* ---- Memory ---- */

void cuda_memory_count(ty_stage_device *stage, uint64_t bytes)
{
    pthread_mutex_lock(&stage->memory_lock);
    stage->taken_bytes += bytes;
    if (stage->taken_bytes > stage->peak_bytes)
        stage->peak_bytes = stage->taken_bytes;
    pthread_mutex_unlock(&stage->memory_lock);
}

static bool taken_note(ty_stage_device *stage, void *memory, uint64_t bytes)
{
    bool has_room = true;

    pthread_mutex_lock(&stage->memory_lock);
    if (stage->taken_count == stage->taken_room) {
        const uint32_t room = stage->taken_room > 0 ? 2 * stage->taken_room : 16;
        cuda_taken *grown = ty_resize(stage->taken, room, sizeof *grown);
        has_room = grown != NULL;
        stage->taken = has_room ? grown : stage->taken;
        stage->taken_room = has_room ? room : stage->taken_room;
    }
    if (has_room)
        stage->taken[stage->taken_count++] = (cuda_taken){memory, bytes};
    pthread_mutex_unlock(&stage->memory_lock);
    if (has_room)
        cuda_memory_count(stage, bytes);
    return has_room;
}

void *cuda_memory_allocate(void *device, uint64_t bytes)
{
    ty_stage_device *stage = device;
    void *made = NULL;

    bytes = bytes > 0 ? bytes : 1;
    if (cudaSetDevice(stage->ordinal) != cudaSuccess || cudaMalloc(&made, bytes) != cudaSuccess ||
        cudaMemset(made, 0, bytes) != cudaSuccess || cudaStreamSynchronize(NULL) != cudaSuccess ||
        !taken_note(stage, made, bytes)) {
        (void)cudaGetLastError();
        cudaFree(made);
        return NULL;
    }
    return made;
}

void cuda_memory_release(void *device, void *memory)
{
    ty_stage_device *stage = device;

    (void)cudaSetDevice(stage->ordinal);
    cudaFree(memory);
    pthread_mutex_lock(&stage->memory_lock);
    for (uint32_t t = 0; t < stage->taken_count; t++)
        if (memory != NULL && stage->taken[t].memory == memory) {
            stage->taken_bytes -= stage->taken[t].bytes;
            stage->taken[t] = stage->taken[--stage->taken_count];
            break;
        }
    pthread_mutex_unlock(&stage->memory_lock);
}

static uint64_t memory_peak(ty_stage_device *stage)
{
    uint64_t bytes;

    pthread_mutex_lock(&stage->memory_lock);
    bytes = stage->peak_bytes;
    pthread_mutex_unlock(&stage->memory_lock);
    return bytes;
}

static void *memory_allocate(ty_stage_device *stage, uint64_t bytes)
{
    return cuda_memory_allocate(stage, bytes);
}

static void memory_release(ty_stage_device *stage, void *memory)
{
    cuda_memory_release(stage, memory);
}

static void *memory_host_allocate(ty_stage_device *stage, uint64_t bytes)
{
    void *made = NULL;

    if (cudaSetDevice(stage->ordinal) != cudaSuccess ||
        cudaHostAlloc(&made, bytes > 0 ? bytes : 1, cudaHostAllocDefault) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    return made;
}

static void memory_host_release(ty_stage_device *stage, void *memory)
{
    (void)stage;
    cudaFreeHost(memory);
}

static ty_status memory_move(ty_stage_device *stage, void *to, const void *from, uint64_t bytes,
                             enum cudaMemcpyKind kind, ty_error *error)
{
    ty_status status;

    TY_CHECK(cuda_use(stage, error), status, done);
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, stage->side), status, done);
    status = cuda_side_wait(stage, error);
done:
    return status;
}

static ty_status memory_read(ty_stage_device *stage, void *host, const void *device, uint64_t bytes,
                             ty_error *error)
{
    return memory_move(stage, host, device, bytes, cudaMemcpyDeviceToHost, error);
}

/* The kept range whose floats lie at `at` in a set, and are not shared out; or NULL. */
static const cuda_range *range_at(const cuda_layout *layout, uint64_t at)
{
    for (uint32_t k = 0; k < layout->kept_count; k++) {
        const cuda_range *range = &layout->kept[k];

        if (at >= range->start && at - range->start < range->count)
            return cuda_range_find(layout->whole, layout->whole_count, range->offset) == NULL
                       ? range
                       : NULL;
    }
    return NULL;
}

static cuda_copy copy_of_set(const ty_stage_device *stage, uint64_t set)
{
    return cuda_copy_of(stage, (char *)stage->version_weights +
                                   set * stage->weight_stride * stage->element);
}

/* Weights, of any set, from outside have a copy that follows them. */
void cuda_weights_follow(ty_stage_device *stage, const float *at, uint64_t count,
                         cudaStream_t stream)
{
    const uint64_t all = cuda_version_count(stage) * stage->set_stride;
    const uintptr_t first = (uintptr_t)stage->versions, end = (uintptr_t)(stage->versions + all);
    const cuda_range *range;
    cuda_copy copy;
    uint64_t place, set;

    if (stage->type == CUDA_TYPE_FLOAT || (uintptr_t)at < first || (uintptr_t)at >= end)
        return;
    place = (uint64_t)(at - stage->versions);
    set = place / stage->set_stride;
    place -= set * stage->set_stride;
    range = range_at(&stage->weight_layout, place);
    copy = copy_of_set(stage, set);
    if (range != NULL)
        cuda_copy_make(stage->type, &copy, range->offset + (place - range->start), count, at,
                       stream);
}

static ty_status weights_follow(ty_stage_device *stage, const float *at, uint64_t count,
                                ty_error *error)
{
    cuda_weights_follow(stage, at, count, stage->side);
    return stream_wait(stage->side, error);
}

static ty_status memory_write(ty_stage_device *stage, void *device, const void *host,
                              uint64_t bytes, ty_error *error)
{
    ty_status status = memory_move(stage, device, host, bytes, cudaMemcpyHostToDevice, error);

    return status == TY_OK ? weights_follow(stage, device, bytes / sizeof(float), error) : status;
}

static ty_status memory_copy(ty_stage_device *stage, void *to, const void *from, uint64_t bytes,
                             ty_error *error)
{
    ty_status status = memory_move(stage, to, from, bytes, cudaMemcpyDeviceToDevice, error);

    return status == TY_OK ? weights_follow(stage, to, bytes / sizeof(float), error) : status;
}

static ty_status memory_weights_average(ty_stage_device *stage, uint64_t offset, uint64_t count,
                                        uint32_t divisor, ty_error *error)
{
    float *weights = stage->parameters + cuda_kept_start(&stage->weight_layout, offset);
    const cuda_copy copy = cuda_copy_of(stage, stage->weights);
    ty_status status;

    TY_CHECK(cuda_use(stage, error), status, done);
    if (divisor > 1)
        cuda_divide(count, (float)divisor, weights, stage->side);
    if (stage->type != CUDA_TYPE_FLOAT)
        cuda_copy_make(stage->type, &copy, offset, count, weights, stage->side);
    status = stream_wait(stage->side, error);
done:
    return status;
}

static float *memory_kept(const ty_stage_device *stage, ty_parameter_array of, uint64_t offset)
{
    return of == TY_WEIGHTS ? stage->parameters + cuda_kept_start(&stage->weight_layout, offset)
                            : stage->gradients + cuda_kept_start(&stage->gradient_layout, offset);
}

static float *memory_whole(const ty_stage_device *stage, uint64_t offset)
{
    return stage->gradients + cuda_used_start(&stage->gradient_layout, offset);
}

/* Its kernels go where those of passes do, perhaps by another thread. */
static ty_status memory_update(ty_stage_device *stage, const ty_optimizer *optimizer, uint64_t step,
                               uint64_t offset, uint64_t count, bool *is_finite, ty_error *error)
{
    ty_status status;

    cuda_recording_hold(stage);
    status = cuda_update_slice(stage, optimizer, step, offset, count, is_finite, error);
    cuda_recording_go_on(stage);
    return status;
}

static ty_status memory_multiply(ty_stage_device *stage, uint64_t side, const void *x,
                                 const void *weight, void *y, ty_error *error)
{
    const cuda_affine product = {
        .rows = side, .in = side, .out = side, .x = x, .weight = weight, .y = y};
    ty_status status;

    TY_CHECK(cuda_use(stage, error), status, done);
    TY_CHECK(clock_mark(stage, CLOCK_START, stage->stream, error), status, done);
    TY_CHECK(cuda_affine_forward(stage, &product, error), status, done);
    status = cuda_pass_wait(stage, error);
done:
    return status;
}

static uint64_t device_capacity(const ty_stage_device *stage)
{
    return stage->capacity_bytes;
}

static ty_device_identity device_identity(const ty_stage_device *stage)
{
    return stage->identity;
}

static const char *device_describe(const ty_stage_device *stage)
{
    return stage->description;
}

/* ---- The backend and its plugin ---- */

static const ty_device_memory memory = {
    .parameters_open = cuda_parameters_open,
    .kept = memory_kept,
    .whole = memory_whole,
    .gather_begin = cuda_gather_begin,
    .gather_end = cuda_gather_end,
    .allocate = memory_allocate,
    .release = memory_release,
    .host_allocate = memory_host_allocate,
    .host_release = memory_host_release,
    .read = memory_read,
    .write = memory_write,
    .copy = memory_copy,
    .weights_average = memory_weights_average,
    .state_open = cuda_state_open,
    .state = cuda_state,
    .update = memory_update,
    .scale_loss = device_scale_loss,
    .codec_open = cuda_codec_open,
    .codec_encode = cuda_codec_encode,
    .codec_decode = cuda_codec_decode,
    .link_check = cuda_link_check,
    .link_open = cuda_link_open,
    .identity = device_identity,
    .describe = device_describe,
    .graphs = cuda_graphs_counts,
    .time = device_time,
    .seconds = device_seconds,
    .multiply = memory_multiply,
    .capacity_bytes = device_capacity,
    .peak_bytes = memory_peak,
};

static const ty_device_backend backend = {
    .name = "cuda",
    .supports = cuda_supports,
    .open = device_open,
    .close = device_close,
    .input = device_input,
    .swap_input = device_swap_input,
    .tokens = device_tokens,
    .labels = device_labels,
    .output = device_output,
    .input_gradient = device_input_gradient,
    .output_gradient = device_output_gradient,
    .forward = device_forward,
    .recompute = device_recompute,
    .backward = device_backward,
    .backward_input = device_backward_input,
    .backward_weight = device_backward_weight,
    .statistics = device_statistics,
    .set_evaluating = device_set_evaluating,
    .loss = device_loss,
    .parameter_count = device_parameter_count,
    .select = device_select,
    .parameters = device_parameters,
    .gradients = device_gradients,
    .select_gradients = device_select_gradients,
    .slice = device_slice,
    .square = device_square,
    .tied_slice = device_tied_slice,
    .lanes_join = device_lanes_join,
    .expert_slice = device_expert_slice,
    .experts_join = device_experts_join,
    .memory_bytes = device_memory_bytes,
    .memory = &memory,
};

static ty_status check(ty_error *error)
{
    int count = 0;
    cudaError_t code = cudaGetDeviceCount(&count);

    if (code != cudaSuccess)
        return ty_fail(error, TY_EUNSUPPORTED, "no GPU can be used here: %s",
                       cudaGetErrorString(code));
    if (count == 0)
        return ty_fail(error, TY_EUNSUPPORTED, "there is no GPU here");
    return TY_OK;
}

__attribute__((visibility("default"))) const ty_cuda_plugin *ty_cuda_plugin_get(bool is_alone);

/* CUDA and NCCL read these when they are first called; they are set here, since no other thread may
 * read the environment meanwhile. Among several ranks kernels are loaded before they are needed,
 * since loading one may wait for all that runs, NCCL's kernels that wait for a peer among it. A
 * stream has a hardware queue of its own, so that none holds up another. A user's own setting
 * counts; but the link needs NCCL to connect when a communicator is made, and not when a message of
 * another size first comes. */
static void environment_set(bool is_alone)
{
    setenv("CUDA_MODULE_LOADING", is_alone ? "LAZY" : "EAGER", 0);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    setenv("NCCL_RUNTIME_CONNECT", "0", 1);
}

const ty_cuda_plugin *ty_cuda_plugin_get(bool is_alone)
{
    static const ty_cuda_plugin plugin = {
        .version = TY_CUDA_PLUGIN_VERSION, .backend = &backend, .check = check};

    environment_set(is_alone);
    return &plugin;
}
