/* One step of an episode, for playing; training and evaluation use full episodes. */
#include "ty_workload.h"

#include "ty_base.h"

#include <string.h>

static ty_status layer_copy(const ty_layer *from, uint64_t steps, ty_layer *to, ty_error *error)
{
    *to = *from;
    to->name = ty_strdup(from->name);
    to->inputs = ty_alloc((size_t)from->input_count + 1, sizeof *to->inputs);
    TY_TRY(ty_check_memory(to->name != NULL && to->inputs != NULL, error));
    memcpy(to->inputs, from->inputs, from->input_count * sizeof *to->inputs);
    to->output.dimensions[0] = 1;
    to->forward_flop /= (double)steps;
    to->output_bytes /= steps;
    to->stash_bytes /= steps;
    to->traffic_bytes /= steps;
    return TY_OK;
}

static ty_status loss_add(const ty_workload *whole, ty_workload *step, ty_error *error)
{
    const ty_shape *scores = &step->layers[step->layer_count - 1].output;
    ty_layer *loss = &step->layers[step->layer_count];

    *loss = (ty_layer){.name = ty_strdup("loss"),
                       .kind = TY_LAYER_SOFTMAX_CROSS_ENTROPY,
                       .attributes[TY_CLASSES] = scores->dimensions[scores->dimension_count - 1],
                       .input_count = 1,
                       .inputs = ty_alloc(1, sizeof *loss->inputs),
                       .tied_to = TY_NO_LAYER,
                       .output = {1, {1}},
                       .output_bytes = whole->element_bytes,
                       .kernel_count = 1};
    step->layer_count++;
    TY_TRY(ty_check_memory(loss->name != NULL && loss->inputs != NULL, error));
    loss->inputs[0] = step->layer_count - 2;
    return TY_OK;
}

static uint32_t layers_that_play(const ty_workload *w)
{
    return w->layer_count - (w->learning == TY_LEARNING_REINFORCEMENT ? 1 : 0);
}

ty_status ty_workload_step_make(const ty_workload *w, ty_workload **out, ty_error *error)
{
    const uint32_t layers = layers_that_play(w);
    ty_workload *step = ty_alloc(1, sizeof *step);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(step != NULL, error));
    *step = *w;
    step->index = (ty_workload_index){0};
    step->layer_count = 0;
    step->name = ty_strdup(w->name);
    step->source = ty_strdup(w->source);
    step->dataset = ty_strdup(w->dataset);
    step->layers = ty_alloc((size_t)layers + 1, sizeof *step->layers);
    step->input.dimensions[0] = 1;
    TY_CHECK(ty_check_memory(step->name != NULL && step->source != NULL && step->dataset != NULL &&
                                 step->layers != NULL,
                             error),
             status, cleanup);
    for (uint32_t l = 0; l < layers; l++) {
        step->layer_count++;
        TY_CHECK(layer_copy(&w->layers[l], w->input.dimensions[0], &step->layers[l], error), status,
                 cleanup);
    }
    TY_CHECK(loss_add(w, step, error), status, cleanup);
    TY_CHECK(ty_workload_index_make(step, error), status, cleanup);
    *out = step;
    step = NULL; /* given away */

cleanup:
    ty_workload_free(step);
    return status;
}

ty_status ty_workload_play_signature(const ty_workload *w, char **out, ty_error *error)
{
    ty_text text = {0};
    ty_status status = TY_OK;

    ty_text_addf(&text, "play %llu steps", (unsigned long long)w->input.dimensions[0]);
    for (uint32_t l = 0; l < layers_that_play(w); l++) {
        char *signature = NULL;
        TY_CHECK(ty_layer_signature(w, l, &signature, error), status, failed);
        ty_text_addf(&text, ", %s", signature);
        ty_free(signature);
    }
    return ty_text_take(&text, out, error);

failed:
    ty_text_clear(&text);
    return status;
}
