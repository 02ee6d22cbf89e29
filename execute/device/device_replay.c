/* The replay backend: a stage that computes nothing. It has the buffers of messages, of the plan's
 * sizes, so that an interconnect or a schedule can be tried without the devices. Instructions take
 * their predicted time in interpreter_replay.c. */
#include "device.h"

struct ty_stage_device {
    uint32_t slots;
    /* [slots][floats]: tensors that cross the cut before the stage, and the cut after it */
    float *input, *input_gradient, *output, *output_gradient;
    uint64_t input_floats, output_floats; /* of a slot */
};

/* A layer of any kind is a time and some bytes. */
static ty_status replay_supports(const ty_workload *workload, uint32_t first_layer,
                                 uint32_t layer_count, ty_error *error)
{
    (void)workload, (void)first_layer, (void)layer_count, (void)error;
    return TY_OK;
}

static void replay_close(ty_stage_device *stage)
{
    if (stage == NULL)
        return;
    ty_free(stage->input);
    ty_free(stage->input_gradient);
    ty_free(stage->output);
    ty_free(stage->output_gradient);
    ty_free(stage);
}

/* Floats that have room for the tensor before `layer`; 0 at the model's ends. */
static uint64_t cut_floats(const ty_stage_options *options, uint32_t layer)
{
    uint64_t bytes;

    if (layer == 0 || layer == options->workload->layer_count)
        return 0;
    bytes = ty_workload_cut_bytes(options->workload, layer) * options->micro_batch_size;
    return (bytes + sizeof(float) - 1) / sizeof(float);
}

/* Allocates [slots][floats]; NULL if `floats` is 0. */
static bool buffer_make(uint64_t floats, uint32_t slots, float **out)
{
    if (floats == 0)
        return true;
    if (floats > SIZE_MAX / sizeof(float) / slots)
        return false;
    *out = ty_alloc(slots, floats * sizeof(float));
    return *out != NULL;
}

static ty_status replay_open(const ty_stage_options *options, ty_stage_device **out,
                             ty_error *error)
{
    ty_stage_device *stage = ty_alloc(1, sizeof *stage);

    TY_TRY(ty_check_memory(stage != NULL, error));
    stage->slots = options->slots;
    stage->input_floats = cut_floats(options, options->first_layer);
    stage->output_floats = cut_floats(options, options->first_layer + options->layer_count);
    if (!buffer_make(stage->input_floats, stage->slots, &stage->input) ||
        !buffer_make(stage->input_floats, stage->slots, &stage->input_gradient) ||
        !buffer_make(stage->output_floats, stage->slots, &stage->output) ||
        !buffer_make(stage->output_floats, stage->slots, &stage->output_gradient)) {
        replay_close(stage);
        return ty_fail(error, TY_ENOMEM, "out of memory for the messages of %u micro-batches",
                       options->slots);
    }
    *out = stage;
    return TY_OK;
}

static float *slot_of(float *buffers, uint64_t floats, uint32_t slot)
{
    return buffers == NULL ? NULL : buffers + slot * floats;
}

static float *replay_input(ty_stage_device *stage, uint32_t slot)
{
    return slot_of(stage->input, stage->input_floats, slot);
}

static float *replay_output(ty_stage_device *stage, uint32_t slot)
{
    return slot_of(stage->output, stage->output_floats, slot);
}

static float *replay_input_gradient(ty_stage_device *stage, uint32_t slot)
{
    return slot_of(stage->input_gradient, stage->input_floats, slot);
}

static float *replay_output_gradient(ty_stage_device *stage, uint32_t slot)
{
    return slot_of(stage->output_gradient, stage->output_floats, slot);
}

/* There are none: collectives have buffers of their own. */
static uint64_t replay_parameter_count(const ty_stage_device *stage)
{
    (void)stage;
    return 0;
}

static float *replay_array(ty_stage_device *stage)
{
    (void)stage;
    return NULL;
}

static uint64_t replay_memory_bytes(const ty_stage_device *stage)
{
    return 2 * (stage->input_floats + stage->output_floats) * stage->slots * sizeof(float);
}

const ty_device_backend ty_device_replay = {
    .name = "replay",
    .is_timed = true,
    .supports = replay_supports,
    .open = replay_open,
    .close = replay_close,
    .input = replay_input,
    .output = replay_output,
    .input_gradient = replay_input_gradient,
    .output_gradient = replay_output_gradient,
    .parameter_count = replay_parameter_count,
    .parameters = replay_array,
    .gradients = replay_array,
    .memory_bytes = replay_memory_bytes,
};
