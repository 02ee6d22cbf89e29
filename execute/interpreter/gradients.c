/* Gradients and weights of whole layers, whatever the plan: all gradients of a step in one file,
 * which the tests compare between plans, and the weights for weights_save.c. */
#include "interpreter_lanes.h"
#include "sharding.h"

#include <string.h>

enum { GRADIENT_TAG = 5, LANES_TAG = 10 };

typedef struct part {
    uint64_t offset, count;
} part;

/* On a rank of the layer's position. */
static const held_stage *held_of_layer(const ty_interpreter *in, uint32_t layer)
{
    const ty_plan *plan = in->options.plan;
    return &in->held[ty_plan_stage_of_layer(plan, layer) / ty_plan_position_count(plan)];
}

static ty_stage_device *device_of_layer(const ty_interpreter *in, uint32_t layer)
{
    return held_of_layer(in, layer)->device;
}

typedef enum number_kind { GRADIENTS, WEIGHTS } number_kind;

/* On the device of a layer: gradients of the step that ended last, or the present weights. */
static float *numbers_of(const ty_interpreter *in, uint32_t layer, number_kind of)
{
    const held_stage *held = held_of_layer(in, layer);

    return of == WEIGHTS ? in->options.backend->parameters(held->device)
                         : interpreter_gradients(in, held, in->controls_done - 1);
}

/* What a layer's numbers on this rank are, in their order: the matrix that is tied to another
 * stage, if the layer owns one, its experts, if lanes divide them, and between them the rest. */
typedef enum part_kind { PART_TIED, PART_OWN, PART_EXPERTS, PART_COUNT } part_kind;

static void parts_of(const ty_interpreter *in, uint32_t layer, part parts[PART_COUNT])
{
    const ty_plan *plan = in->options.plan;
    ty_stage_device *device = device_of_layer(in, layer);

    for (uint32_t i = 0; i < plan->bucket_count; i++) {
        if (plan->buckets[i].tied_stage != TY_NO_STAGE && plan->buckets[i].first_layer == layer)
            in->options.backend->tied_slice(device, &parts[PART_TIED].offset,
                                            &parts[PART_TIED].count);
    }
    in->options.backend->slice(device, layer, 1, &parts[PART_OWN].offset, &parts[PART_OWN].count);
    if (ty_plan_lanes(plan, TY_EXPERT_LANES) > 1)
        in->options.backend->expert_slice(device, layer, 1, &parts[PART_EXPERTS].offset,
                                          &parts[PART_EXPERTS].count);
}

/* From wherever they are. */
static ty_status floats_read(const ty_interpreter *in, uint32_t layer, number_kind of, part from,
                             float *to, ty_error *error)
{
    const float *gathered = held_of_layer(in, layer)->gathered;

    if (in->memory != NULL && gathered == NULL)
        return in->memory->read(in->held[0].device, to, numbers_of(in, layer, of) + from.offset,
                                from.count * sizeof *to, error);
    memcpy(to, (gathered != NULL ? gathered : numbers_of(in, layer, of)) + from.offset,
           from.count * sizeof *to);
    return TY_OK;
}

static uint64_t joined(const ty_interpreter *in, uint32_t layer, part_kind kind, const float *parts,
                       float *whole)
{
    const ty_device_backend *backend = in->options.backend;
    const ty_stage_device *device = device_of_layer(in, layer);

    return kind == PART_EXPERTS
               ? backend->experts_join(device, layer, parts, whole)
               : backend->lanes_join(device, layer, kind == PART_TIED, parts, whole);
}

static ty_status row_gather(ty_interpreter *in, ty_lane_kind kind, float *parts, uint64_t count,
                            ty_error *error)
{
    const lane_row *lanes = &in->lanes[kind];

    return ty_collective_run(in->options.transport,
                             &(ty_collective_options){.kind = TY_ALL_GATHER,
                                                      .members = lanes->members,
                                                      .member_count = lanes->count,
                                                      .data = parts,
                                                      .count = count,
                                                      .element = TY_ELEMENT_FLOAT,
                                                      .tag = LANES_TAG},
                             error);
}

/* A part of all lanes that divide it, [expert lanes, of experts][tensor lanes], on each of them;
 * the others have the same. */
static ty_status lanes_join(ty_interpreter *in, uint32_t layer, number_kind of, part_kind kind,
                            part own, float **whole, uint64_t *count, ty_error *error)
{
    const lane_row *tensor = &in->lanes[TY_TENSOR_LANES], *expert = &in->lanes[TY_EXPERT_LANES];
    const uint64_t rows = kind == PART_EXPERTS ? expert->count : 1, row = tensor->count * own.count;
    float *parts = ty_alloc(rows * row, sizeof *parts);
    float *here;
    ty_status status = TY_OK;

    *count = own.count > 0 ? joined(in, layer, kind, NULL, NULL) : 0;
    *whole = ty_alloc(*count, sizeof **whole);
    TY_CHECK(ty_check_memory(parts != NULL && *whole != NULL, error), status, cleanup);
    here = parts + (kind == PART_EXPERTS ? expert->position * row : 0);
    TY_CHECK(floats_read(in, layer, of, own, here + tensor->position * own.count, error), status,
             cleanup);
    TY_CHECK(row_gather(in, TY_TENSOR_LANES, here, own.count, error), status, cleanup);
    if (kind == PART_EXPERTS)
        TY_CHECK(row_gather(in, TY_EXPERT_LANES, parts, row, error), status, cleanup);
    if (own.count > 0)
        joined(in, layer, kind, parts, *whole);
cleanup:
    ty_free(parts);
    return status;
}

/* A table that one lane has whole, on that one and the first. */
static ty_status table_fetch(ty_interpreter *in, uint32_t layer, number_kind of, part own,
                             uint32_t lane, float **whole, uint64_t *count, ty_error *error)
{
    const uint32_t owner = ty_plan_lane_along(in->options.plan, TY_EXPERT_LANES, 0, lane);
    const uint32_t first_process = in->rank * ty_plan_width(in->options.plan);
    ty_transport *transport = in->options.transport;
    const float *numbers = numbers_of(in, layer, of) + own.offset;
    ty_status status = TY_OK;

    *count = joined(in, layer, PART_EXPERTS, NULL, NULL);
    *whole = ty_alloc(*count, sizeof **whole);
    TY_TRY(ty_check_memory(*whole != NULL, error));
    if (in->lane == owner)
        joined(in, layer, PART_EXPERTS, numbers, *whole);
    if (in->lane == owner && owner > 0)
        status = ty_transport_send(transport, first_process, LANES_TAG, *whole,
                                   *count * sizeof **whole, error);
    if (in->lane == 0 && owner > 0)
        status = ty_transport_receive(transport, first_process + owner, LANES_TAG, *whole,
                                      *count * sizeof **whole, error);
    return status;
}

/* A part of this rank's, as one device has it. */
static ty_status part_whole(ty_interpreter *in, uint32_t layer, number_kind of, part_kind kind,
                            part own, const float **gradients, float **owned, uint64_t *count,
                            ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    ty_status status;

    if (kind == PART_EXPERTS && plan->table_shard == TY_TABLES_TABLE &&
        ty_layer_is_bag(&plan->workload->layers[layer])) {
        const uint32_t lane =
            ty_table_lane(plan->workload, in->lanes[TY_EXPERT_LANES].count, layer);
        status = table_fetch(in, layer, of, own, lane, owned, count, error);
        *gradients = *owned;
        return status;
    }
    if ((kind == PART_EXPERTS && own.count > 0) || in->lanes[TY_TENSOR_LANES].count > 1) {
        status = lanes_join(in, layer, of, kind, own, owned, count, error);
        *gradients = *owned;
        return status;
    }
    *count = own.count;
    if (held_of_layer(in, layer)->gathered != NULL) {
        *gradients = held_of_layer(in, layer)->gathered + own.offset;
        return TY_OK;
    }
    return interpreter_host_floats(in, numbers_of(in, layer, of) + own.offset, own.count, gradients,
                                   owned, error);
}

static ty_status part_receive(ty_transport *transport, uint32_t from, float **out, uint64_t *count,
                              ty_error *error)
{
    ty_status status =
        ty_transport_receive(transport, from, GRADIENT_TAG, count, sizeof *count, error);

    if (status != TY_OK)
        return status;
    *out = ty_alloc(*count, sizeof **out);
    TY_TRY(ty_check_memory(*out != NULL, error));
    return ty_transport_receive(transport, from, GRADIENT_TAG, *out, *count * sizeof **out, error);
}

static ty_status part_send(ty_transport *transport, const float *gradients, uint64_t count,
                           ty_error *error)
{
    ty_status status = ty_transport_send(transport, 0, GRADIENT_TAG, &count, sizeof count, error);

    if (status != TY_OK)
        return status;
    return ty_transport_send(transport, 0, GRADIENT_TAG, gradients, count * sizeof *gradients,
                             error);
}

/* One part from its rank's first lane to the end of the file's text on process 0. */
static ty_status part_move(ty_interpreter *in, uint32_t rank, uint32_t layer, number_kind of,
                           part_kind kind, part own, ty_text *text, ty_error *error)
{
    ty_transport *transport = in->options.transport;
    const float *gradients = NULL;
    float *owned = NULL;
    uint64_t count = 0;
    ty_status status = TY_OK;

    if (in->rank == rank)
        TY_CHECK(part_whole(in, layer, of, kind, own, &gradients, &owned, &count, error), status,
                 cleanup);
    if (interpreter_is_first_lane(in, rank) && rank != 0)
        TY_CHECK(part_send(transport, gradients, count, error), status, cleanup);
    if (transport->rank != 0)
        goto cleanup;
    if (rank != 0) {
        TY_CHECK(part_receive(transport, interpreter_process(in, rank), &owned, &count, error),
                 status, cleanup);
        gradients = owned;
    }
    ty_text_append(text, (const char *)gradients, count * sizeof *gradients);
cleanup:
    ty_free(owned);
    return status;
}

static ty_status layer_move(ty_interpreter *in, uint32_t layer, number_kind of, ty_text *text,
                            ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    uint32_t from = ty_plan_first_rank(plan, ty_plan_stage_of_layer(plan, layer));
    part parts[PART_COUNT] = {{0, 0}};

    if (in->rank == from)
        parts_of(in, layer, parts);
    for (int k = 0; k < PART_COUNT; k++)
        TY_TRY(part_move(in, from, layer, of, (part_kind)k, parts[k], text, error));
    return TY_OK;
}

static ty_status gradients_move(ty_interpreter *in, uint32_t layer, ty_text *text, ty_error *error)
{
    uint64_t header[2] = {layer, 0};
    size_t start = text->length;
    ty_status status;

    ty_text_append(text, (const char *)header, sizeof header);
    status = layer_move(in, layer, GRADIENTS, text, error);
    if (status == TY_OK && in->options.transport->rank == 0 && !text->failed) {
        header[1] = (text->length - start - sizeof header) / sizeof(float);
        memcpy(text->data + start, header, sizeof header);
    }
    return status;
}

ty_status interpreter_weights_ready(ty_interpreter *in, ty_error *error)
{
    ty_status status = interpreter_gather_all(in, false, error);

    for (uint32_t h = 0; h < in->held_count && status == TY_OK; h++) {
        const held_stage *held = &in->held[h];

        if (held->version_count > 1)
            in->options.backend->select(held->device, in->controls_done % held->version_count);
        if (in->options.backend->statistics != NULL)
            status = interpreter_statistics_average(in, held, error);
    }
    return status;
}

ty_status interpreter_weights_move(ty_interpreter *in, uint32_t layer, ty_text *text,
                                   ty_error *error)
{
    return layer_move(in, layer, WEIGHTS, text, error);
}

ty_status ty_interpreter_save_gradients(ty_interpreter *in, const char *path, ty_error *error)
{
    ty_text text = {0};
    uint32_t layer;
    ty_status status = TY_OK;

    TY_CHECK(interpreter_gather_all(in, true, error), status, cleanup);
    for (layer = 0; layer < in->options.plan->workload->layer_count; layer++)
        TY_CHECK(gradients_move(in, layer, &text, error), status, cleanup);
    if (in->options.transport->rank == 0)
        status = ty_file_write_text(path, &text, error);
    interpreter_shares_only(in);
cleanup:
    if (status != TY_OK)
        in->options.transport->is_broken = true;
    ty_text_clear(&text);
    return status;
}
