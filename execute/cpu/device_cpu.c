/*
 * The CPU backend: a stage's layers on one core, through oneDNN and vector loops. Nothing is
 * allocated between open and close.
 */
#include "cpu_layer.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const stage_kind cpu_add = {.order = STAGE_ANY_ORDER,
                            .is_sum = true,
                            .forward = stage_add_forward,
                            .backward = stage_add_backward};
const stage_kind cpu_concat = {.forward = stage_concat_forward, .backward = stage_concat_backward};
const stage_kind cpu_slice_layer = {.forward = stage_slice_forward,
                                    .backward = stage_slice_backward};

#define KIND(kind, name) [TY_LAYER_##kind] = &(name),
static const stage_kind *const kinds[TY_LAYER_KIND_COUNT] = {CPU_KINDS(KIND)};
#undef KIND

/* ---- Memory ---- */

static bool own_allocate(ty_stage_device *stage)
{
    const uint64_t bytes = stage->set_stride * sizeof(float);

    stage->own->losses = cpu_buffer(stage, stage->options.slots * sizeof *stage->own->losses);
    stage->gradient_sets = cpu_buffer(stage, bytes * stage_gradient_set_count(stage));
    stage->versions = cpu_buffer(stage, bytes * stage_version_count(stage));
    stage->gradients = stage->gradient_sets;
    stage->parameters = stage->versions;
    return stage->own->losses != NULL && stage->gradients != NULL && stage->parameters != NULL;
}

/* ---- Passes ---- */

/* Copies tensors that are not stored in the message, after the last forward and before the first
 * backward. */
static void output_gather(ty_stage_device *stage, uint32_t slot)
{
    const stage_cut *cut = &stage->behind;

    for (uint32_t i = 0; i < cut->count; i++) {
        const stage_crossing *tensor = &cut->tensors[i];
        const stage_value *value = &stage->values[tensor->value];
        if (tensor->is_copied)
            cpu_accumulate(value->count, value->data[slot], false,
                           stage_part_at(cut, cut->data[slot], tensor->offset));
    }
}

static void gradient_scatter(ty_stage_device *stage, uint32_t slot)
{
    const stage_cut *cut = &stage->behind;

    for (uint32_t i = 0; i < cut->count; i++) {
        const stage_crossing *tensor = &cut->tensors[i];
        const stage_value *value = &stage->values[tensor->value];
        if (tensor->is_gradient_copied)
            cpu_accumulate(value->count,
                           stage_part_at(cut, cut->gradient[slot], tensor->gradient_offset),
                           tensor->adds, value->gradient[slot]);
    }
}

static ty_status cpu_pass(ty_stage_device *stage, const stage_pass *pass, ty_error *error)
{
    const bool has_last = stage_pass_has_last(stage, pass);
    ty_status status;

    cpu_single_thread();
    if (!pass->is_forward && pass->part != STAGE_WEIGHTS && has_last)
        gradient_scatter(stage, pass->slot);
    if (!pass->is_forward)
        return stage_nodes_backward(stage, pass, error);
    status = stage_nodes_forward(stage, pass, error);
    if (status == TY_OK && has_last && !pass->is_again) /* the message is intact */
        output_gather(stage, pass->slot);
    return status;
}

static ty_status cpu_exchange(ty_stage_device *stage, const ty_parallel_exchange *exchange,
                              ty_error *error)
{
    const ty_parallel_group *parallel = &stage->options.parallel;

    return parallel->exchange(parallel->context, exchange, error);
}

static void accumulate(const ty_stage_device *stage, uint64_t count, const void *from, bool adds,
                       void *to)
{
    (void)stage;
    cpu_accumulate(count, from, adds, to);
}

static void sum(const ty_stage_device *stage, uint64_t count, const void *a, const void *b,
                bool has_relu, void *y)
{
    (void)stage, (void)has_relu; /* joins no sum */
    cpu_sum(count, a, b, y);
}

static ty_status clear(ty_stage_device *stage, uint64_t bytes, void *to, ty_error *error)
{
    (void)stage, (void)error;
    memset(to, 0, bytes);
    return TY_OK;
}

static void copy_rows(const ty_stage_device *stage, uint64_t rows, uint64_t columns,
                      const void *from, uint64_t from_stride, bool adds, void *to,
                      uint64_t to_stride)
{
    (void)stage;
    for (uint64_t r = 0; r < rows; r++)
        cpu_accumulate(columns, (const float *)from + r * from_stride, adds,
                       (float *)to + r * to_stride);
}

static const stage_backend backend = {.name = "cpu",
                                      .memory = "",
                                      .kinds = kinds,
                                      .alignment = CPU_ALIGNMENT,
                                      .buffer = cpu_buffer,
                                      .host_buffer = cpu_buffer,
                                      .allocate = own_allocate,
                                      .pass = cpu_pass,
                                      .exchange = cpu_exchange,
                                      .accumulate = accumulate,
                                      .sum = sum,
                                      .clear = clear,
                                      .transpose = cpu_transpose,
                                      .activate = cpu_activate,
                                      .activate_backward = cpu_activate_backward,
                                      .copy_rows = copy_rows,
                                      .to_pieces = cpu_to_pieces,
                                      .from_pieces = cpu_from_pieces};

/* ---- Opening ---- */

static ty_status cpu_supports(const ty_workload *workload, uint32_t first_layer,
                              uint32_t layer_count, ty_error *error)
{
    if (workload->precision != TY_PRECISION_FP32 || workload->element_bytes != sizeof(float))
        return ty_fail(
            error, TY_EUNSUPPORTED,
            "the cpu backend computes in fp32: the plan is for %s, in numbers of %u bytes "
            "(plan with --precision fp32)",
            ty_precision_name(workload->precision), workload->element_bytes);
    return stage_supports(&backend, workload, first_layer, layer_count, error);
}

static void cpu_close(ty_stage_device *stage)
{
    if (stage == NULL)
        return;
    stage_nodes_release(stage);
    for (uint32_t b = 0; b < stage->blocks.count; b++)
        ty_free(stage->blocks.blocks[b]);
    stage_clear(stage);
}

/* Initial weights, in every version. */
static void weights_start(ty_stage_device *stage)
{
    stage_weights_fill(stage, stage->versions);
    for (uint32_t v = 1; v < stage_version_count(stage); v++)
        memcpy(stage->versions + v * stage->set_stride, stage->versions,
               stage->placed.count * sizeof *stage->versions);
    for (uint32_t n = 0; n < stage->node_count; n++)
        if (stage->nodes[n].kind == &cpu_batch_norm)
            cpu_batch_norm_start(stage, &stage->nodes[n]);
}

static ty_status cpu_open(const ty_stage_options *options, ty_stage_device **out, ty_error *error)
{
    ty_stage_device *stage = NULL;
    ty_status status = TY_OK;

    cpu_single_thread();
    if (options->precision != TY_PRECISION_FP32)
        return ty_fail(error, TY_EUNSUPPORTED, "the cpu backend computes in fp32, not in %s",
                       ty_precision_name(options->precision));
    TY_CHECK(stage_options_check(&backend, options, error), status, cleanup);
    TY_CHECK(cpu_supports(options->workload, options->first_layer, options->layer_count, error),
             status, cleanup);
    TY_CHECK(stage_new(&backend, options, sizeof *stage->own, &stage, error), status, cleanup);
    stage->element = stage->before.number_bytes = stage->behind.number_bytes = sizeof(float);
    stage->element_kind = TY_ELEMENT_FLOAT;
    TY_CHECK(stage_build(stage, error), status, cleanup);
    weights_start(stage);
    *out = stage;
    stage = NULL; /* given away */

cleanup:
    cpu_close(stage);
    return status;
}

/* ---- The backend's own functions of device.h ---- */

static float *cpu_input(ty_stage_device *stage, uint32_t slot)
{
    if (stage->before.count > 0)
        return stage->before.data[slot];
    return stage->tokens != NULL ? NULL : stage->values[0].data[slot];
}

/* Values that are views of the input share its array of slots; slots may share memory. */
static float *cpu_swap_input(ty_stage_device *stage, uint32_t slot, float *fresh)
{
    void **slots = stage->values[0].data, *used = slots[slot];

    for (uint32_t s = 0; s < stage->options.slots; s++)
        if (slots[s] == used)
            slots[s] = fresh;
    return used;
}

static void cpu_loss_read(ty_stage_device *stage, uint32_t slot, double *loss_sum,
                          uint64_t *correct, uint64_t *labels)
{
    const bool has_loss = stage_has_loss(stage);

    *loss_sum = has_loss ? stage->own->losses[slot].sum : 0.0;
    *correct = has_loss ? stage->own->losses[slot].correct : 0;
    *labels = has_loss ? stage->labels_per_sample * stage_batch(stage) : 0;
}

static void cpu_select(ty_stage_device *stage, uint32_t version)
{
    stage->parameters = stage->versions + version * stage->set_stride;
}

/* Returns full pages to the system, which allocates others, of zeros, when they are touched. */
static void cpu_discard(ty_stage_device *stage, float *first, uint64_t count)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t start = ((uintptr_t)first + page - 1) / page * page;
    const uintptr_t end = (uintptr_t)(first + count) / page * page;

    (void)stage;
    if (start < end)
        madvise((void *)start, end - start, MADV_DONTNEED);
}

static double cpu_square(ty_stage_device *stage, const float *first, uint64_t count)
{
    (void)stage;
    return cpu_sum_of_squares(count, first);
}

const ty_device_backend ty_device_cpu = {
    .name = "cpu",
    .supports = cpu_supports,
    .open = cpu_open,
    .close = cpu_close,
    .input = cpu_input,
    .swap_input = cpu_swap_input,
    .loss = cpu_loss_read,
    .select = cpu_select,
    .discard = cpu_discard,
    .square = cpu_square,
    STAGE_FUNCTIONS,
};
