/* Rebuilds a model for another image size, as in progressive resizing. */
#include "builder.h"

#include <string.h>

static bool has_figures_of(const ty_layer *a, const ty_layer *b)
{
    return a->forward_flop == b->forward_flop && a->backward_flop == b->backward_flop &&
           a->parameter_bytes == b->parameter_bytes && a->output_bytes == b->output_bytes &&
           a->stash_bytes == b->stash_bytes && a->traffic_bytes == b->traffic_bytes &&
           a->kernel_count == b->kernel_count;
}

/* Refuses figures from other sources, which would be lost. */
static ty_status check_figures(ty_workload *w, const ty_layer *before, ty_error *error)
{
    ty_status status = ty_workload_settle(w, error);

    for (uint32_t l = 0; l < w->layer_count && status == TY_OK; l++) {
        if (ty_layer_row_of(&before[l])->is_opaque)
            status = ty_fail(error, TY_EINVAL,
                             "layer %.80s: found an opaque one, expected layers "
                             "of which figures at other sizes are known",
                             before[l].name);
        else if (!has_figures_of(&w->layers[l], &before[l]))
            status = ty_fail(error, TY_EINVAL,
                             "layer %.80s: found figures that are not those of a %s layer, "
                             "expected ones that are known at other sizes",
                             before[l].name, ty_layer_kind_name(before[l].kind));
    }
    return status;
}

static ty_status set_shapes(ty_workload *w, const ty_shape *old, ty_error *error)
{
    ty_error detail = {0};

    for (uint32_t i = 0; i < w->layer_count; i++) {
        ty_layer *l = &w->layers[i];
        if (l->attributes[TY_IS_GLOBAL] != 0) {
            const ty_shape *in = ty_layer_input_shape(w, i, 0);
            l->attributes[TY_KERNEL_HEIGHT] = in->dimensions[1];
            l->attributes[TY_KERNEL_WIDTH] = in->dimensions[2];
        }
        if (ty_layer_shape(w, i, &l->output, &detail) != TY_OK)
            return ty_fail(error, TY_EINVAL, "layer %.60s: %.140s, as images of %llux%llu make it",
                           l->name, detail.message, (unsigned long long)old->dimensions[1],
                           (unsigned long long)old->dimensions[2]);
    }
    return TY_OK;
}

ty_status ty_workload_set_image_size(ty_workload *workload, uint32_t height, uint32_t width,
                                     ty_error *error)
{
    ty_workload before = *workload;
    ty_error detail = {0};
    uint64_t numbers;
    ty_status status;

    if (!ty_workload_has_images(workload))
        return ty_fail(error, TY_EINVAL, "image_size: found samples of %.80s that are not images",
                       workload->name);
    before.layers = ty_alloc(workload->layer_count, sizeof *before.layers);
    TY_TRY(ty_check_memory(before.layers != NULL, error));
    memcpy(before.layers, workload->layers, workload->layer_count * sizeof *before.layers);
    TY_CHECK(check_figures(workload, before.layers, &detail), status, cleanup);
    numbers = ty_shape_elements(&workload->input);
    workload->input.dimensions[1] = height;
    workload->input.dimensions[2] = width;
    workload->sample_bytes +=
        workload->sample_bytes / numbers * (ty_shape_elements(&workload->input) - numbers);
    TY_CHECK(set_shapes(workload, &before.input, &detail), status, cleanup);
    TY_CHECK(ty_workload_settle(workload, &detail), status, cleanup);
    TY_CHECK(ty_workload_check(workload, workload->name, &detail), status, cleanup);
    workload->index = (ty_workload_index){0};
    status = ty_workload_index_make(workload, &detail);
    ty_workload_index_clear(status == TY_OK ? &before : workload);

cleanup:
    if (status != TY_OK) {
        workload->index = before.index;
        memcpy(workload->layers, before.layers, workload->layer_count * sizeof *before.layers);
        workload->input = before.input;
        workload->sample_bytes = before.sample_bytes;
        status = ty_fail(error, status == TY_EPARSE ? TY_EINVAL : status,
                         "image_size %ux%u: %.200s", height, width, detail.message);
    }
    ty_free(before.layers);
    return status;
}
