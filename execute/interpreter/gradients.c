/* Unsharded gradients and weights of layers, for any plan: all gradients of a step in one file,
 * which the tests compare between plans, and the weights for weights_save.c. */
#include "interpreter_parallel.h"
#include "sharding.h"

#include <string.h>

enum { GRADIENT_TAG = 5, PARALLEL_TAG = 10 };

typedef struct part {
    uint64_t offset, count;
} part;

/* Only on ranks of the layer's pipeline rank. */
static const virtual_stage_state *virtual_stage_of_layer(const ty_interpreter *in, uint32_t layer)
{
    const ty_plan *plan = in->options.plan;
    return &in->virtual_stages[ty_plan_stage_of_layer(plan, layer) / ty_plan_pipeline_size(plan)];
}

static ty_stage_device *device_of_layer(const ty_interpreter *in, uint32_t layer)
{
    return virtual_stage_of_layer(in, layer)->device;
}

typedef enum number_kind { GRADIENTS, WEIGHTS } number_kind;

/* On the device of a layer: gradients of the step that ended last, or the current weights. */
static float *numbers_of(const ty_interpreter *in, uint32_t layer, number_kind of)
{
    const virtual_stage_state *virtual_stage = virtual_stage_of_layer(in, layer);

    return of == WEIGHTS ? in->options.backend->parameters(virtual_stage->device)
                         : interpreter_gradients(in, virtual_stage, in->controls_done - 1);
}

/* Parts of a layer's numbers on this rank, in file order: the matrix that is tied to another stage,
 * if the layer owns one; the rest; experts or tables, if they are sharded over EP ranks. */
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
    if (ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL) > 1)
        in->options.backend->expert_slice(device, layer, 1, &parts[PART_EXPERTS].offset,
                                          &parts[PART_EXPERTS].count);
}

/* Reads them from the host or the device. */
static ty_status floats_read(const ty_interpreter *in, uint32_t layer, number_kind of, part from,
                             float *to, ty_error *error)
{
    const float *gathered = virtual_stage_of_layer(in, layer)->gathered;

    if (in->memory != NULL && gathered == NULL)
        return in->memory->read(in->virtual_stages[0].device, to,
                                numbers_of(in, layer, of) + from.offset, from.count * sizeof *to,
                                error);
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
               : backend->shards_join(device, layer, kind == PART_TIED, parts, whole);
}

static ty_status row_gather(ty_interpreter *in, ty_parallelism kind, float *parts, uint64_t count,
                            ty_error *error)
{
    const process_group *group = &in->groups[kind];

    return ty_collective_run(in->options.transport,
                             &(ty_collective_options){.kind = TY_ALL_GATHER,
                                                      .members = group->members,
                                                      .member_count = group->count,
                                                      .data = parts,
                                                      .count = count,
                                                      .element = TY_ELEMENT_FLOAT,
                                                      .tag = PARALLEL_TAG},
                             error);
}

/* Gathers a part's shards on each of the ranks over which it is sharded, [expert-parallel ranks, if
 * of experts][tensor-parallel ranks]; all other ranks have the same. */
static ty_status shards_join(ty_interpreter *in, uint32_t layer, number_kind of, part_kind kind,
                             part own, float **whole, uint64_t *count, ty_error *error)
{
    const process_group *tensor = &in->groups[TY_TENSOR_PARALLEL],
                        *expert = &in->groups[TY_EXPERT_PARALLEL];
    const uint64_t rows = kind == PART_EXPERTS ? expert->count : 1, row = tensor->count * own.count;
    float *parts = ty_alloc(rows * row, sizeof *parts);
    float *here;
    ty_status status = TY_OK;

    *count = own.count > 0 ? joined(in, layer, kind, NULL, NULL) : 0;
    *whole = ty_alloc(*count, sizeof **whole);
    TY_CHECK(ty_check_memory(parts != NULL && *whole != NULL, error), status, cleanup);
    here = parts + (kind == PART_EXPERTS ? expert->rank * row : 0);
    TY_CHECK(floats_read(in, layer, of, own, here + tensor->rank * own.count, error), status,
             cleanup);
    TY_CHECK(row_gather(in, TY_TENSOR_PARALLEL, here, own.count, error), status, cleanup);
    if (kind == PART_EXPERTS)
        TY_CHECK(row_gather(in, TY_EXPERT_PARALLEL, parts, row, error), status, cleanup);
    if (own.count > 0)
        joined(in, layer, kind, parts, *whole);
cleanup:
    ty_free(parts);
    return status;
}

/* Sends a table that one rank has entirely to the first rank of the stage replica. */
static ty_status table_fetch(ty_interpreter *in, uint32_t layer, number_kind of, part own,
                             uint32_t replica_rank, float **whole, uint64_t *count, ty_error *error)
{
    const uint32_t owner =
        ty_plan_rank_along(in->options.plan, TY_EXPERT_PARALLEL, 0, replica_rank);
    const uint32_t first_process = in->stage_replica * ty_plan_replica_ranks(in->options.plan);
    ty_transport *transport = in->options.transport;
    const float *numbers = numbers_of(in, layer, of) + own.offset;
    ty_status status = TY_OK;

    *count = joined(in, layer, PART_EXPERTS, NULL, NULL);
    *whole = ty_alloc(*count, sizeof **whole);
    TY_TRY(ty_check_memory(*whole != NULL, error));
    if (in->replica_rank == owner)
        joined(in, layer, PART_EXPERTS, numbers, *whole);
    if (in->replica_rank == owner && owner > 0)
        status = ty_transport_send(transport, first_process, PARALLEL_TAG, *whole,
                                   *count * sizeof **whole, error);
    if (in->replica_rank == 0 && owner > 0)
        status = ty_transport_receive(transport, first_process + owner, PARALLEL_TAG, *whole,
                                      *count * sizeof **whole, error);
    return status;
}

/* Unsharded numbers of a part. */
static ty_status part_whole(ty_interpreter *in, uint32_t layer, number_kind of, part_kind kind,
                            part own, const float **gradients, float **owned, uint64_t *count,
                            ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    ty_status status;

    if (kind == PART_EXPERTS && plan->table_shard == TY_TABLES_TABLE &&
        ty_layer_is_bag(&plan->workload->layers[layer])) {
        const uint32_t replica_rank =
            ty_table_rank(plan->workload, in->groups[TY_EXPERT_PARALLEL].count, layer);
        status = table_fetch(in, layer, of, own, replica_rank, owned, count, error);
        *gradients = *owned;
        return status;
    }
    if ((kind == PART_EXPERTS && own.count > 0) || in->groups[TY_TENSOR_PARALLEL].count > 1) {
        status = shards_join(in, layer, of, kind, own, owned, count, error);
        *gradients = *owned;
        return status;
    }
    *count = own.count;
    if (virtual_stage_of_layer(in, layer)->gathered != NULL) {
        *gradients = virtual_stage_of_layer(in, layer)->gathered + own.offset;
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

/* Appends one part, from the first rank of its stage replica, to the file's text on rank 0. */
static ty_status part_move(ty_interpreter *in, uint32_t stage_replica, uint32_t layer,
                           number_kind of, part_kind kind, part own, ty_text *text, ty_error *error)
{
    ty_transport *transport = in->options.transport;
    const float *gradients = NULL;
    float *owned = NULL;
    uint64_t count = 0;
    ty_status status = TY_OK;

    if (in->stage_replica == stage_replica)
        TY_CHECK(part_whole(in, layer, of, kind, own, &gradients, &owned, &count, error), status,
                 cleanup);
    if (interpreter_is_first_rank(in, stage_replica) && stage_replica != 0)
        TY_CHECK(part_send(transport, gradients, count, error), status, cleanup);
    if (transport->rank != 0)
        goto cleanup;
    if (stage_replica != 0) {
        TY_CHECK(
            part_receive(transport, interpreter_rank(in, stage_replica), &owned, &count, error),
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
    uint32_t from = ty_plan_first_replica(plan, ty_plan_stage_of_layer(plan, layer));
    part parts[PART_COUNT] = {{0, 0}};

    if (in->stage_replica == from)
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

    for (uint32_t h = 0; h < in->virtual_stage_count && status == TY_OK; h++) {
        const virtual_stage_state *virtual_stage = &in->virtual_stages[h];

        if (virtual_stage->version_count > 1)
            in->options.backend->select(virtual_stage->device,
                                        in->controls_done % virtual_stage->version_count);
        if (in->options.backend->statistics != NULL)
            status = interpreter_statistics_average(in, virtual_stage, error);
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
