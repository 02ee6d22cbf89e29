/* All gradients of a step in one file, whatever the plan: what the tests compare between plans. */
#include "interpreter_state.h"

#include <string.h>

enum { GRADIENT_TAG = 5 };

typedef struct part {
    uint64_t offset, count;
} part;

/* On a rank of the layer's position. */
static ty_stage_device *device_of_layer(const ty_interpreter *in, uint32_t layer)
{
    const ty_plan *plan = in->options.plan;
    return in->held[ty_plan_stage_of_layer(plan, layer) / ty_plan_position_count(plan)].device;
}

/* A layer's gradients on this rank: the matrix that is tied to another stage, if the layer owns
 * one, and the rest. */
static void parts_of(const ty_interpreter *in, uint32_t layer, part parts[2])
{
    const ty_plan *plan = in->options.plan;
    ty_stage_device *device = device_of_layer(in, layer);
    uint32_t i;

    parts[0] = (part){0, 0};
    for (i = 0; i < plan->bucket_count; i++) {
        if (plan->buckets[i].tied_stage != TY_NO_STAGE && plan->buckets[i].first_layer == layer)
            in->options.backend->tied_slice(device, &parts[0].offset, &parts[0].count);
    }
    in->options.backend->slice(device, layer, 1, &parts[1].offset, &parts[1].count);
}

/* One part from its rank to the end of the file's text on rank 0. */
static ty_status part_move(ty_interpreter *in, uint32_t from, uint32_t layer, part own,
                           ty_text *text, ty_error *error)
{
    ty_transport *transport = in->options.transport;
    const float *gradients = NULL;
    float *received = NULL;
    ty_status status = TY_OK;

    if (in->rank == from)
        TY_CHECK(interpreter_host_floats(
                     in, in->options.backend->gradients(device_of_layer(in, layer)) + own.offset,
                     own.count, &gradients, &received, error),
                 status, cleanup);
    if (in->rank == from && from != 0) {
        TY_CHECK(ty_transport_send(transport, 0, GRADIENT_TAG, &own.count, sizeof own.count, error),
                 status, cleanup);
        TY_CHECK(ty_transport_send(transport, 0, GRADIENT_TAG, gradients,
                                   own.count * sizeof *gradients, error),
                 status, cleanup);
    }
    if (in->rank != 0)
        goto cleanup;
    if (from != 0) {
        TY_CHECK(ty_transport_receive(transport, from, GRADIENT_TAG, &own.count, sizeof own.count,
                                      error),
                 status, cleanup);
        received = ty_alloc(own.count, sizeof *received); /* rank 0 had none of its own */
        if (received == NULL) {
            status = ty_fail(error, TY_ENOMEM, "out of memory for gradients");
            goto cleanup;
        }
        TY_CHECK(ty_transport_receive(transport, from, GRADIENT_TAG, received,
                                      own.count * sizeof *received, error),
                 status, cleanup);
        gradients = received;
    }
    ty_text_append(text, (const char *)gradients, own.count * sizeof *gradients);
cleanup:
    ty_free(received);
    return status;
}

static ty_status layer_move(ty_interpreter *in, uint32_t layer, ty_text *text, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    uint32_t from = ty_plan_first_rank(plan, ty_plan_stage_of_layer(plan, layer));
    uint64_t header[2] = {layer, 0};
    size_t start = text->length;
    part parts[2] = {{0, 0}, {0, 0}};
    ty_status status;

    if (in->rank == from)
        parts_of(in, layer, parts);
    ty_text_append(text, (const char *)header, sizeof header);
    TY_CHECK(part_move(in, from, layer, parts[0], text, error), status, done);
    TY_CHECK(part_move(in, from, layer, parts[1], text, error), status, done);
    if (in->rank == 0 && !text->failed) {
        header[1] = (text->length - start - sizeof header) / sizeof(float);
        memcpy(text->data + start, header, sizeof header);
    }
done:
    return status;
}

ty_status ty_interpreter_save_gradients(ty_interpreter *in, const char *path, ty_error *error)
{
    ty_text text = {0};
    uint32_t layer;
    ty_status status = TY_OK;

    TY_CHECK(interpreter_gather_all(in, true, error), status, cleanup);
    for (layer = 0; layer < in->options.plan->workload->layer_count; layer++)
        TY_CHECK(layer_move(in, layer, &text, error), status, cleanup);
    if (in->rank == 0) {
        if (text.failed)
            status = ty_fail(error, TY_ENOMEM, "out of memory for gradients");
        else
            status = ty_file_write(path, text.data, text.length, error);
    }
cleanup:
    if (status != TY_OK)
        in->options.transport->is_broken = true;
    ty_text_clear(&text);
    return status;
}
