/* The CUDA backend: a stage's layers on one GPU, and the plugin that contains it. */
#include "cuda_plugin.h"
#include "cuda_stage.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Workspace of matrix products; NVIDIA's advice for Hopper is 32 MiB (cuBLAS documentation, "cuBLAS
 * workspace"). */
#define WORKSPACE_BYTES (UINT64_C(32) << 20)

#define KIND(kind, name) [TY_LAYER_##kind] = &(name),
static const stage_kind *const kinds[TY_LAYER_KIND_COUNT] = {CUDA_KINDS(KIND)};
#undef KIND

/* ---- The device's clock ---- */

static ty_status device_time(ty_stage_device *stage, bool is_timed, ty_error *error)
{
    ty_status status = cuda_use(stage, error);

    for (int which = CUDA_CLOCK_START; which <= CUDA_CLOCK_STOP && status == TY_OK; which++)
        if (is_timed && stage->own->clock[which] == NULL)
            CUDA_CHECK(cudaEventCreateWithFlags(&stage->own->clock[which], cudaEventDefault),
                       status, done);
    if (status == TY_OK)
        stage->own->is_timed = is_timed;
done:
    return status;
}

static ty_status device_seconds(ty_stage_device *stage, double *seconds, ty_error *error)
{
    float milliseconds = 0;
    ty_status status = TY_OK;

    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, stage->own->clock[CUDA_CLOCK_START],
                                    stage->own->clock[CUDA_CLOCK_STOP]),
               status, done);
    *seconds = (double)milliseconds * 1e-3;
done:
    return status;
}

static void clock_free(ty_stage_device *stage)
{
    for (int which = CUDA_CLOCK_START; which <= CUDA_CLOCK_STOP; which++)
        if (stage->own->clock[which] != NULL)
            cudaEventDestroy(stage->own->clock[which]);
}

/* ---- The stage's own memory ---- */

/* An embedding only has the second part of backward, the weight gradients. */
static bool kept_allocate(ty_stage_device *stage, stage_node *node)
{
    if (!stage->options.splits_backward || !stage_gathers(stage, node) ||
        node->kind == &cuda_embedding_kind)
        return true;
    node->tp_kept = stage_slots(stage, 2 * node->tp_elements * stage->element, false, cuda_buffer);
    return node->tp_kept != NULL;
}

static bool nodes_allocate(ty_stage_device *stage)
{
    uint64_t sums = 0;

    for (uint32_t n = 0; n < stage->node_count; n++) {
        stage_node *node = &stage->nodes[n];
        sums = node->sum_floats > sums ? node->sum_floats : sums;
        if (!kept_allocate(stage, node))
            return false;
    }
    stage->own->sums = cuda_buffer(stage, sums * sizeof(float));
    return stage->own->sums != NULL;
}

/* Memory for a batch of numbers. */
static bool input_allocate(ty_stage_device *stage)
{
    if (stage->options.first_layer > 0 || stage->tokens != NULL)
        return true;
    stage->own->host_input =
        stage_slots(stage, stage->values[0].count * sizeof(float), false, cuda_host_buffer);
    stage->own->is_taken = ty_alloc(stage->options.slots, sizeof *stage->own->is_taken);
    return stage->own->host_input != NULL && stage->own->is_taken != NULL;
}

/* Per slot: tokens; the places ordered by token; start, token and number of the groups. */
static bool tokens_allocate(ty_stage_device *stage)
{
    uint64_t count = stage->values[0].count, bytes = count * sizeof(int32_t);
    uint64_t group_bytes = (3 * count + 2) * sizeof(int32_t);

    if (stage->tokens == NULL)
        return true;
    stage->own->token_slots =
        cuda_host_buffer(stage, stage->options.slots * sizeof *stage->own->token_slots);
    if (stage->own->token_slots == NULL)
        return false;
    for (uint32_t s = 0; s < stage->options.slots; s++) {
        token_slot *slot = &stage->own->token_slots[s];
        slot->tokens = cuda_buffer(stage, bytes);
        slot->groups = cuda_buffer(stage, group_bytes);
        slot->host_groups = cuda_host_buffer(stage, group_bytes);
        if (slot->tokens == NULL || slot->groups == NULL || slot->host_groups == NULL)
            return false;
    }
    return true;
}

static bool loss_allocate(ty_stage_device *stage)
{
    const stage_value *logits;
    uint64_t rows;

    if (!stage_has_loss(stage))
        return true;
    logits = &stage->values[stage->nodes[stage->node_count - 1].inputs[0]];
    rows = stage_rows(logits);
    stage->own->labels = stage_slots(stage, rows * sizeof(int32_t), false, cuda_buffer);
    stage->own->losses = stage_slots(stage, sizeof(cuda_loss), false, cuda_buffer);
    stage->own->host_losses = cuda_host_buffer(stage, stage->options.slots * sizeof(cuda_loss));
    stage->own->row_loss = cuda_buffer(stage, rows * sizeof *stage->own->row_loss);
    stage->own->row_best = cuda_buffer(stage, rows * sizeof *stage->own->row_best);
    return stage->own->labels != NULL && stage->own->losses != NULL &&
           stage->own->host_losses != NULL && stage->own->row_loss != NULL &&
           stage->own->row_best != NULL;
}

/* Results of optimizer steps and measurements. */
static bool figures_allocate(ty_stage_device *stage)
{
    stage->own->squares = cuda_buffer(stage, CUDA_SQUARE_PARTS * sizeof *stage->own->squares);
    stage->own->host_square = cuda_host_buffer(stage, sizeof *stage->own->host_square);
    stage->own->scale = cuda_buffer(stage, sizeof *stage->own->scale);
    stage->own->host_scale = cuda_host_buffer(stage, sizeof *stage->own->host_scale);
    stage->own->is_bad = cuda_buffer(stage, sizeof *stage->own->is_bad);
    stage->own->host_is_bad = cuda_host_buffer(stage, sizeof *stage->own->host_is_bad);
    return stage->own->scale != NULL && stage->own->host_scale != NULL &&
           stage->own->is_bad != NULL && stage->own->host_is_bad != NULL &&
           stage->own->squares != NULL && stage->own->host_square != NULL;
}

static bool own_allocate(ty_stage_device *stage)
{
    return nodes_allocate(stage) && input_allocate(stage) && tokens_allocate(stage) &&
           loss_allocate(stage) && figures_allocate(stage);
}

/* ---- Buffers ---- */

static float *device_input(ty_stage_device *stage, uint32_t slot)
{
    if (stage->own->host_input != NULL)
        return stage->own->host_input[slot];
    return stage->before.data == NULL ? NULL : (float *)stage->before.data[slot];
}

/* ---- Passes: what comes in ---- */

/* A counting sort by token, stable, so that sums over places go in their order. */
static void tokens_group(const int32_t *tokens, uint64_t count, int32_t *groups, int32_t *places)
{
    int32_t *order = groups, *starts = groups + count, *group_tokens = groups + 2 * count + 1;
    int32_t *group_count = groups + 3 * count + 1;
    int32_t found = 0, at = 0;

    /* places[t]: first the number of the token's places, then the index for its next place. */
    for (uint64_t i = 0; i < count; i++)
        places[tokens[i]]++;
    for (uint64_t i = 0; i < count; i++) {
        int32_t token = tokens[i], here = places[token];
        if (here <= 0)
            continue; /* its group exists already */
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

/* On the host, before the batch goes to the device, which must not look up invalid tokens. */
static ty_status tokens_prepare(const ty_stage_device *stage, uint32_t slot, ty_error *error)
{
    const int32_t *tokens = stage->tokens[slot];
    uint64_t count = stage->values[0].count;
    int32_t *places = NULL;

    for (uint64_t i = 0; i < count; i++)
        if (tokens[i] < 0 || (uint64_t)tokens[i] >= stage->own->token_vocabulary)
            return ty_fail(error, TY_EINVAL, "layer %s: token %ld at place %lu, expected 0 to %lu",
                           stage->nodes[0].layer->name, (long)tokens[i], (unsigned long)i,
                           (unsigned long)(stage->own->token_vocabulary - 1));
    places = ty_alloc(stage->own->token_vocabulary, sizeof *places);
    TY_TRY(ty_check_memory(places != NULL, error));
    tokens_group(tokens, count, stage->own->token_slots[slot].host_groups, places);
    ty_free(places);
    return TY_OK;
}

static ty_status tokens_enter(ty_stage_device *stage, uint32_t slot, ty_error *error)
{
    uint64_t count = stage->values[0].count;
    token_slot *to = &stage->own->token_slots[slot];
    ty_status status = TY_OK;

    CUDA_CHECK(cudaMemcpyAsync(to->tokens, stage->tokens[slot], count * sizeof *to->tokens,
                               cudaMemcpyHostToDevice, stage->own->stream),
               status, done);
    CUDA_CHECK(cudaMemcpyAsync(to->groups, to->host_groups, (3 * count + 2) * sizeof *to->groups,
                               cudaMemcpyHostToDevice, stage->own->stream),
               status, done);
done:
    return status;
}

/* Queued before the pass and not in its graph, because the address changes from batch to batch. */
static ty_status numbers_enter(ty_stage_device *stage, uint32_t slot, ty_error *error)
{
    ty_status status = TY_OK;

    if (stage->own->host_input == NULL)
        return TY_OK;
    if (!stage->own->is_taken[slot])
        CUDA_CHECK(cudaMemcpyAsync(stage->before.data[slot], stage->own->host_input[slot],
                                   stage->before.numbers * sizeof(float), cudaMemcpyHostToDevice,
                                   stage->own->stream),
                   status, done);
    stage->own->is_taken[slot] = false;
done:
    return status;
}

static ty_status memory_input_send(ty_stage_device *stage, void *room, const float *host,
                                   ty_error *error)
{
    ty_status status = TY_OK;

    CUDA_CHECK(cudaSetDevice(stage->own->ordinal), status, done);
    CUDA_CHECK(cudaMemcpyAsync(room, host, stage->before.numbers * sizeof(float),
                               cudaMemcpyHostToDevice, stage->own->sending),
               status, done);
    CUDA_CHECK(cudaStreamSynchronize(stage->own->sending), status, done);
done:
    return status;
}

static ty_status memory_input_take(ty_stage_device *stage, uint32_t slot, const void *room,
                                   ty_error *error)
{
    ty_status status = TY_OK;

    CUDA_CHECK(cudaSetDevice(stage->own->ordinal), status, done);
    CUDA_CHECK(cudaMemcpyAsync(stage->before.data[slot], room,
                               stage->before.numbers * sizeof(float), cudaMemcpyDeviceToDevice,
                               stage->own->stream),
               status, done);
    status = cuda_stream_wait(stage->own->stream, error);
    stage->own->is_taken[slot] = true;
done:
    return status;
}

static ty_status input_enter(ty_stage_device *stage, uint32_t slot, ty_error *error)
{
    if (stage->tokens != NULL)
        return tokens_enter(stage, slot, error);
    cuda_input_take(stage, slot);
    return TY_OK;
}

static ty_status labels_enter(ty_stage_device *stage, uint32_t slot, ty_error *error)
{
    uint64_t count = stage->labels_per_sample * stage_batch(stage);
    ty_status status = TY_OK;

    CUDA_CHECK(cudaMemcpyAsync(stage->own->labels[slot], stage->labels[slot],
                               count * sizeof(int32_t), cudaMemcpyHostToDevice, stage->own->stream),
               status, done);
done:
    return status;
}

/* ---- Passes ---- */

static ty_status loss_leave(ty_stage_device *stage, uint32_t slot, ty_error *error)
{
    ty_status status = TY_OK;

    CUDA_CHECK(cudaMemcpyAsync(&stage->own->host_losses[slot], stage->own->losses[slot],
                               sizeof(cuda_loss), cudaMemcpyDeviceToHost, stage->own->stream),
               status, done);
done:
    return status;
}

static ty_status loss_check(const ty_stage_device *stage, uint32_t slot, ty_error *error)
{
    const stage_node *node = &stage->nodes[stage->node_count - 1];
    const ty_shape *logits = &node->whole_input;
    int64_t row = stage->own->host_losses[slot].bad_row;

    if (row < 0)
        return TY_OK;
    return ty_fail(error, TY_EINVAL, "layer %s: label %ld of row %lu, expected 0 to %lu",
                   node->layer->name, (long)stage->labels[slot][row], (unsigned long)row,
                   (unsigned long)(logits->dimensions[logits->dimension_count - 1] - 1));
}

static ty_status forward_queue(ty_stage_device *stage, const stage_pass *pass, ty_error *error)
{
    const bool is_end = stage_pass_has_last(stage, pass), has_loss = stage_has_loss(stage);

    TY_TRY(cuda_clock_mark(stage, CUDA_CLOCK_START, stage->own->stream, error));
    if (stage_pass_has_first(stage, pass))
        TY_TRY(input_enter(stage, pass->slot, error));
    if (is_end && has_loss)
        TY_TRY(labels_enter(stage, pass->slot, error));
    TY_TRY(stage_nodes_forward(stage, pass, error));
    if (is_end && has_loss)
        TY_TRY(loss_leave(stage, pass->slot, error));
    if (is_end && !has_loss && !pass->is_again) /* the message still exists */
        cuda_output_give(stage, pass->slot);
    return cuda_clock_mark(stage, CUDA_CLOCK_STOP, stage->own->stream, error);
}

static ty_status forward_run(ty_stage_device *stage, const stage_pass *pass, ty_error *error)
{
    ty_status status;

    TY_CHECK(cuda_use(stage, error), status, done);
    if (stage_pass_has_first(stage, pass) && stage->tokens != NULL)
        TY_CHECK(tokens_prepare(stage, pass->slot, error), status, done);
    if (stage_pass_has_first(stage, pass) && !pass->is_again)
        TY_CHECK(numbers_enter(stage, pass->slot, error), status, done);
    TY_CHECK(cuda_pass_run(stage, pass, forward_queue, error), status, done);
    TY_CHECK(cuda_stream_wait(stage->own->stream, error), status, done);
    if (stage_pass_has_last(stage, pass) && stage_has_loss(stage))
        status = loss_check(stage, pass->slot, error);
done:
    return status;
}

/* Backward starts from the loss's factor, or the neighbor's gradients. */
static ty_status gradient_enter(ty_stage_device *stage, uint32_t slot, ty_error *error)
{
    ty_status status = TY_OK;

    if (stage_has_loss(stage))
        CUDA_CHECK(cudaMemcpyAsync(stage->own->scale, stage->own->host_scale,
                                   sizeof *stage->own->scale, cudaMemcpyHostToDevice,
                                   stage->own->stream),
                   status, done);
    else
        cuda_gradient_take(stage, slot);
done:
    return status;
}

static ty_status backward_queue(ty_stage_device *stage, const stage_pass *pass, ty_error *error)
{
    const bool has_inputs = pass->part != STAGE_WEIGHTS;

    TY_TRY(cuda_clock_mark(stage, CUDA_CLOCK_START, stage->own->stream, error));
    if (has_inputs && stage_pass_has_last(stage, pass))
        TY_TRY(gradient_enter(stage, pass->slot, error));
    TY_TRY(stage_nodes_backward(stage, pass, error));
    if (has_inputs && stage_pass_has_first(stage, pass))
        cuda_gradient_give(stage, pass->slot);
    return cuda_clock_mark(stage, CUDA_CLOCK_STOP, stage->own->stream, error);
}

static ty_status device_pass(ty_stage_device *stage, const stage_pass *pass, ty_error *error)
{
    if (pass->is_forward)
        return forward_run(stage, pass, error);
    TY_TRY(cuda_use(stage, error));
    TY_TRY(cuda_pass_run(stage, pass, backward_queue, error));
    return cuda_stream_wait(stage->own->stream, error);
}

/* ---- Functions that every stage needs ---- */

static void accumulate(const ty_stage_device *stage, uint64_t count, const void *from, bool adds,
                       void *to)
{
    cuda_accumulate(stage->own->type, count, from, adds, to, stage->own->stream);
}

static void sum(const ty_stage_device *stage, uint64_t count, const void *a, const void *b,
                bool has_relu, void *y)
{
    cuda_sum(stage->own->type, count, a, b, has_relu, y, stage->own->stream);
}

static ty_status clear(ty_stage_device *stage, uint64_t bytes, void *to, ty_error *error)
{
    ty_status status = TY_OK;

    CUDA_CHECK(cudaMemsetAsync(to, 0, bytes, stage->own->stream), status, done);
done:
    return status;
}

static void copy_rows(const ty_stage_device *stage, uint64_t rows, uint64_t columns,
                      const void *from, uint64_t from_stride, bool adds, void *to,
                      uint64_t to_stride)
{
    cuda_copy_rows(stage->own->type, rows, columns, from, from_stride, adds, to, to_stride,
                   stage->own->stream);
}

static void transpose(const ty_stage_device *stage, uint64_t rows, uint64_t columns,
                      const void *from, bool adds, void *to)
{
    cuda_transpose(stage->own->type, stage_batch(stage), rows, columns, from, stage->own->type,
                   adds, to, stage->own->stream);
}

static const cuda_activation activations[] = {[STAGE_RELU] = CUDA_RELU,
                                              [STAGE_GELU] = CUDA_GELU,
                                              [STAGE_SILU] = CUDA_SILU,
                                              [STAGE_TANH] = CUDA_TANH};

static void activate(const ty_stage_device *stage, stage_activation kind, uint64_t count,
                     const void *x, void *y)
{
    cuda_activate(stage->own->type, activations[kind], count, x, y, stage->own->stream);
}

static void activate_backward(const ty_stage_device *stage, stage_activation kind, uint64_t count,
                              const void *of, const void *dy, bool adds, void *dx)
{
    cuda_activate_backward(stage->own->type, activations[kind], count, of, dy, adds, dx,
                           stage->own->stream);
}

static void to_pieces(const ty_stage_device *stage, const stage_pieces *pieces, const void *whole,
                      void *message)
{
    cuda_to_pieces(stage->own->type, pieces, whole, message, stage->own->stream);
}

static void from_pieces(const ty_stage_device *stage, const stage_pieces *pieces,
                        const void *message, void *whole)
{
    cuda_from_pieces(stage->own->type, pieces, message, whole, stage->own->stream);
}

static const stage_backend stage_functions = {.name = "cuda",
                                              .memory = "GPU ",
                                              .kinds = kinds,
                                              .alignment = 256, /* as in cudaMalloc */
                                              .copies_messages = true,
                                              .buffer = cuda_buffer,
                                              .host_buffer = cuda_host_buffer,
                                              .allocate = own_allocate,
                                              .pass = device_pass,
                                              .exchange = cuda_parallel_exchange,
                                              .accumulate = accumulate,
                                              .sum = sum,
                                              .clear = clear,
                                              .transpose = transpose,
                                              .activate = activate,
                                              .activate_backward = activate_backward,
                                              .copy_rows = copy_rows,
                                              .to_pieces = to_pieces,
                                              .from_pieces = from_pieces};

/* ---- Opening ---- */

static ty_status device_supports(const ty_workload *workload, uint32_t first_layer,
                                 uint32_t layer_count, ty_error *error)
{
    return stage_supports(&stage_functions, workload, first_layer, layer_count, error);
}

static ty_status options_check(const ty_stage_options *options, ty_error *error)
{
    const ty_workload *workload = options->workload;
    const ty_status status = stage_options_check(&stage_functions, options, error);

    if (status != TY_OK || workload->element_bytes == sizeof(float) ||
        workload->element_bytes == ty_precision_bytes(options->precision))
        return status;
    return ty_fail(error, TY_EUNSUPPORTED,
                   "the plan's numbers have %u bytes: found precision %s, expected that of the "
                   "plan (%s)",
                   (unsigned)workload->element_bytes, ty_precision_name(options->precision),
                   ty_precision_name(workload->precision));
}

static void device_close(ty_stage_device *stage)
{
    if (stage == NULL)
        return;
    (void)cudaSetDevice(stage->own->ordinal);
    cuda_graphs_free(stage);
    clock_free(stage);
    stage_nodes_release(stage);
    cuda_products_free(stage);
    cuda_choices_close(stage);
    if (stage->own->dnn_handle != NULL)
        stage->own->dnn->cudnnDestroy(stage->own->dnn_handle);
    if (stage->own->blas_handle != NULL)
        stage->own->blas->cublasLtDestroy(stage->own->blas_handle);
    cuda_memory_release(stage, stage->own->codec_workspace);
    cuda_buffers_free(stage);
    if (stage->own->stream != NULL)
        cudaStreamDestroy(stage->own->stream);
    if (stage->own->side != NULL)
        cudaStreamDestroy(stage->own->side);
    if (stage->own->sending != NULL)
        cudaStreamDestroy(stage->own->sending);
    ty_free(stage->own->is_taken);
    cuda_layouts_clear(stage);
    ty_free(stage->own->state_ranges);
    ty_free(stage->own->taken);
    pthread_mutex_destroy(&stage->own->memory_lock);
    ty_launch_order_close(&stage->own->launches);
    stage_clear(stage);
}

/* Chooses the GPU, reads its properties, and allows the attention kernels its shared memory. */
static ty_status device_choose(ty_stage_device *stage, ty_error *error)
{
    struct cudaDeviceProp properties;
    int count = 0, shared = 0, runtime = 0;
    ty_status status = TY_OK;

    CUDA_CHECK(cudaGetDeviceCount(&count), status, done);
    if (count == 0)
        return ty_fail(error, TY_EUNSUPPORTED, "there is no GPU");
    stage->own->ordinal = (int)(stage->options.local_rank % (uint32_t)count);
    CUDA_CHECK(cudaSetDevice(stage->own->ordinal), status, done);
    CUDA_CHECK(cudaGetDeviceProperties(&properties, stage->own->ordinal), status, done);
    CUDA_CHECK(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                      stage->own->ordinal),
               status, done);
    CUDA_CHECK(cudaRuntimeGetVersion(&runtime), status, done);
    if (stage->options.precision == TY_PRECISION_BF16 && properties.major < 8)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "%s has compute capability %d.%d, and bf16 needs 8.0; fp16 may do",
                       properties.name, properties.major, properties.minor);
    stage->own->shared_bytes = (uint64_t)shared;
    stage->own->capability = 10 * properties.major + properties.minor;
    stage->own->processors = properties.multiProcessorCount;
    stage->own->capacity_bytes = properties.totalGlobalMem;
    memcpy(&stage->own->identity, &properties.uuid, sizeof stage->own->identity);
    CUDA_CHECK(cuda_attention_prepare(stage->own->shared_bytes), status, done);
    snprintf(stage->own->description, sizeof stage->own->description, "%.64s, CUDA %d.%d, %s",
             properties.name, runtime / 1000, runtime % 1000 / 10,
             ty_precision_name(stage->options.precision));
done:
    return status;
}

static ty_status attention_choose(ty_stage_device *stage, ty_error *error)
{
    const char *asked = getenv(CUDA_ATTENTION_SWITCH);

    if (asked == NULL || asked[0] == '\0' || strcmp(asked, "auto") == 0)
        stage->own->attention_asked = CUDA_ATTENTION_AUTO;
    else if (strcmp(asked, "own") == 0)
        stage->own->attention_asked = CUDA_ATTENTION_OWN;
    else
        return ty_fail(error, TY_EINVAL,
                       CUDA_ATTENTION_SWITCH ": found \"%s\", expected auto or own", asked);
    return TY_OK;
}

/* Appends the attention kernels in use to the device's description. */
static void attention_describe(ty_stage_device *stage)
{
    const size_t length = strlen(stage->own->description),
                 room = sizeof stage->own->description - length;
    char *const end = stage->own->description + length;
    const uint32_t all = stage->own->attention_layers, of_dnn = stage->own->attention_layers_of_dnn;

    if (of_dnn > 0 && of_dnn == all) {
        const size_t version = stage->own->dnn->cudnnGetVersion();
        snprintf(end, room, ", attention by cuDNN %zu.%zu%s", version / 10000,
                 version % 10000 / 100, stage->options.is_deterministic ? ", deterministic" : "");
    } else if (of_dnn > 0) {
        snprintf(end, room, ", attention of %u of %u layers by cuDNN (others: %s)", of_dnn, all,
                 stage->own->attention_reason);
    } else if (all > 0) {
        snprintf(end, room, ", own attention (%s)", stage->own->attention_reason);
    }
}

static ty_status libraries_open(ty_stage_device *stage, ty_error *error)
{
    cublasStatus_t code;
    ty_status status = TY_OK;

    CUDA_CHECK(cudaStreamCreateWithFlags(&stage->own->stream, cudaStreamNonBlocking), status, done);
    CUDA_CHECK(cudaStreamCreateWithFlags(&stage->own->side, cudaStreamNonBlocking), status, done);
    CUDA_CHECK(cudaStreamCreateWithFlags(&stage->own->sending, cudaStreamNonBlocking), status,
               done);
    TY_CHECK(cuda_blas_load(&stage->own->blas, error), status, done);
    code = stage->own->blas->cublasLtCreate(&stage->own->blas_handle);
    if (code != CUBLAS_STATUS_SUCCESS)
        return cuda_blas_fail(error, "cublasLtCreate", code);
    TY_CHECK(cuda_choices_open(stage, stage->own->description, error), status, done);
    stage->own->workspace_bytes = WORKSPACE_BYTES;
    stage->own->workspace = cuda_buffer(stage, WORKSPACE_BYTES);
    if (stage->own->workspace == NULL)
        status = ty_fail(error, TY_ENOMEM, "out of GPU memory for matrix products");
done:
    return status;
}

static void device_scale_loss(ty_stage_device *stage, double factor)
{
    stage->own->loss_factor = factor;
    *stage->own->host_scale = (float)(stage->options.loss_scale * factor);
}

static ty_status device_open(const ty_stage_options *options, ty_stage_device **out,
                             ty_error *error)
{
    static const cuda_type types[TY_PRECISION_COUNT] = {[TY_PRECISION_FP32] = CUDA_TYPE_FLOAT,
                                                        [TY_PRECISION_TF32] = CUDA_TYPE_FLOAT,
                                                        [TY_PRECISION_BF16] = CUDA_TYPE_BF16,
                                                        [TY_PRECISION_FP16] = CUDA_TYPE_HALF};
    static const ty_element elements[] = {[CUDA_TYPE_FLOAT] = TY_ELEMENT_FLOAT,
                                          [CUDA_TYPE_BF16] = TY_ELEMENT_BFLOAT,
                                          [CUDA_TYPE_HALF] = TY_ELEMENT_HALF};
    ty_stage_device *stage = NULL;
    ty_status status = TY_OK;

    TY_CHECK(options_check(options, error), status, cleanup);
    TY_CHECK(stage_new(&stage_functions, options, sizeof *stage->own, &stage, error), status,
             cleanup);
    pthread_mutex_init(&stage->own->memory_lock, NULL);
    ty_launch_order_open(&stage->own->launches);
    stage->own->type = types[options->precision];
    stage->element = stage->own->type == CUDA_TYPE_FLOAT ? sizeof(float) : sizeof(uint16_t);
    stage->element_kind = elements[stage->own->type];
    /* The batch is floats. */
    stage->behind.number_bytes = options->workload->element_bytes;
    stage->before.number_bytes =
        options->first_layer == 0 ? sizeof(float) : stage->behind.number_bytes;
    TY_CHECK(cuda_graphs_open(stage, error), status, cleanup);
    TY_CHECK(attention_choose(stage, error), status, cleanup);
    TY_CHECK(device_choose(stage, error), status, cleanup);
    TY_CHECK(libraries_open(stage, error), status, cleanup);
    status = stage_build(stage, error);
    (void)cudaGetLastError(); /* clears the error of the failed allocation */
    if (status == TY_OK && !options->is_sharded)
        status = cuda_parameters_open(stage, NULL, error);
    if (status != TY_OK)
        goto cleanup;
    attention_describe(stage);
    device_scale_loss(stage, 1.0);
    *out = stage;
    stage = NULL; /* owned by the result */

cleanup:
    device_close(stage);
    return status;
}

static void device_loss(ty_stage_device *stage, uint32_t slot, double *loss_sum, uint64_t *correct,
                        uint64_t *labels)
{
    const bool has_loss = stage_has_loss(stage);

    *loss_sum = has_loss ? stage->own->host_losses[slot].sum : 0.0;
    *correct = has_loss ? stage->own->host_losses[slot].correct : 0;
    *labels = has_loss ? stage->labels_per_sample * stage_batch(stage) : 0;
}

/* ---- Parameters ---- */

static void device_select(ty_stage_device *stage, uint32_t version)
{
    stage->parameters = stage->versions + version * stage->set_stride;
    stage->own->weights =
        (char *)stage->own->version_weights + version * stage->own->weight_stride * stage->element;
}

/* Called by one thread; runs on the side stream. A failure gives NaN and shows in the next call. */
static double device_square(ty_stage_device *stage, const float *first, uint64_t count)
{
    ty_error ignored;
    ty_error *error = &ignored;
    ty_status status;

    TY_CHECK(cuda_use(stage, error), status, done);
    cuda_squares(count, first, stage->own->squares, stage->own->side);
    CUDA_CHECK(cudaMemcpyAsync(stage->own->host_square, stage->own->squares,
                               sizeof *stage->own->host_square, cudaMemcpyDeviceToHost,
                               stage->own->side),
               status, done);
    status = cuda_stream_wait(stage->own->side, error);
done:
    return status == TY_OK ? *stage->own->host_square : (double)NAN;
}

/* ---- Memory ---- */

static uint64_t memory_peak(ty_stage_device *stage)
{
    uint64_t bytes;

    pthread_mutex_lock(&stage->own->memory_lock);
    bytes = stage->own->peak_bytes;
    pthread_mutex_unlock(&stage->own->memory_lock);
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

    if (cudaSetDevice(stage->own->ordinal) != cudaSuccess ||
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
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, stage->own->side), status, done);
    status = cuda_side_wait(stage, error);
done:
    return status;
}

static ty_status memory_read(ty_stage_device *stage, void *host, const void *device, uint64_t bytes,
                             ty_error *error)
{
    return memory_move(stage, host, device, bytes, cudaMemcpyDeviceToHost, error);
}

static ty_status weights_follow(ty_stage_device *stage, const float *at, uint64_t count,
                                ty_error *error)
{
    cuda_weights_follow(stage, at, count, stage->own->side);
    return cuda_stream_wait(stage->own->side, error);
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
    float *weights = stage->parameters + cuda_kept_start(&stage->own->weight_layout, offset);
    const cuda_copy copy = cuda_copy_of(stage, stage->own->weights);

    TY_TRY(cuda_use(stage, error));
    if (divisor > 1)
        cuda_divide(count, (float)divisor, weights, stage->own->side);
    if (stage->own->type != CUDA_TYPE_FLOAT)
        cuda_copy_make(stage->own->type, &copy, offset, count, weights, stage->own->side);
    return cuda_stream_wait(stage->own->side, error);
}

static float *memory_kept(const ty_stage_device *stage, ty_parameter_array of, uint64_t offset)
{
    return of == TY_WEIGHTS
               ? stage->parameters + cuda_kept_start(&stage->own->weight_layout, offset)
               : stage->gradients + cuda_kept_start(&stage->own->gradient_layout, offset);
}

static float *memory_whole(const ty_stage_device *stage, uint64_t offset)
{
    return stage->gradients + cuda_used_start(&stage->own->gradient_layout, offset);
}

/* Queues its kernels on the stream of the passes, perhaps from another thread. */
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

    TY_TRY(cuda_use(stage, error));
    TY_TRY(cuda_clock_mark(stage, CUDA_CLOCK_START, stage->own->stream, error));
    TY_TRY(cuda_affine_forward(stage, &product, error));
    return cuda_pass_wait(stage, error);
}

static uint64_t device_capacity(const ty_stage_device *stage)
{
    return stage->own->capacity_bytes;
}

static ty_device_identity device_identity(const ty_stage_device *stage)
{
    return stage->own->identity;
}

static const char *device_describe(const ty_stage_device *stage)
{
    return stage->own->description;
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
    .input_send = memory_input_send,
    .input_take = memory_input_take,
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
    .supports = device_supports,
    .open = device_open,
    .close = device_close,
    .input = device_input,
    .loss = device_loss,
    .select = device_select,
    .square = device_square,
    STAGE_FUNCTIONS,
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

/* CUDA and NCCL read these variables on their first call. They are set here because no other thread
 * may read the environment meanwhile. With several ranks, kernels are loaded early: loading one may
 * wait for all running kernels, including NCCL's, which wait for a peer. Each stream gets its own
 * hardware queue, so that none blocks another. The user's settings take precedence, with one
 * exception: NCCL must connect when a communicator is created, not at the first message of another
 * size. */
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
