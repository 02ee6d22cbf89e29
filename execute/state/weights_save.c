/* Saves the weights of a run as safetensors. */
#include "interpreter_parallel.h"
#include "sharding.h"
#include "weight_names.h"
#include "weights.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STATISTICS_TAG = 11 };

/* ---- Header ---- */

/* Every piece of every layer, in the order in which they are written. */
static void header_write(const weight_names *names, ty_text *text)
{
    ty_json_writer writer = ty_json_writer_compact_on(text);
    uint64_t offset = 0;
    weight_piece piece;

    ty_json_open(&writer, NULL, '{');
    ty_json_open(&writer, "__metadata__", '{');
    ty_json_put_string(&writer, "format", "pt");
    ty_json_close(&writer, '}');
    for (uint32_t l = 0; l < names->workload->layer_count; l++)
        for (uint32_t t = 0; t < LAYER_FILE_TENSORS; t++)
            for (uint32_t i = 0; weight_piece_at(names, l, t, i, &piece); i++) {
                const uint64_t bytes = piece.rows * piece.columns * sizeof(float);

                ty_json_open(&writer, piece.name, '{');
                ty_json_put_string(&writer, "dtype", "F32");
                ty_json_open(&writer, "shape", '[');
                for (uint32_t d = 0; d < piece.dimension_count; d++)
                    ty_json_put_uint(&writer, NULL, piece.dimensions[d]);
                ty_json_close(&writer, ']');
                ty_json_open(&writer, "data_offsets", '[');
                ty_json_put_uint(&writer, NULL, offset);
                ty_json_put_uint(&writer, NULL, offset + bytes);
                ty_json_close(&writer, ']');
                ty_json_close(&writer, '}');
                offset += bytes;
            }
    ty_json_close(&writer, '}');
    while (text->length % 8 != 0) /* aligns the numbers */
        ty_text_add(text, " ");
}

static ty_status header_put(const weight_names *names, ty_file_writer *file, ty_error *error)
{
    ty_text text = {0};
    unsigned char length[8];
    ty_status status;

    header_write(names, &text);
    TY_CHECK(ty_text_check(&text, error), status, cleanup);
    for (uint32_t i = 0; i < sizeof length; i++)
        length[i] = (unsigned char)((uint64_t)text.length >> (8 * i));
    TY_CHECK(ty_file_writer_add(file, length, sizeof length, error), status, cleanup);
    status = ty_file_writer_add(file, text.data, text.length, error);
cleanup:
    ty_text_clear(&text);
    return status;
}

/* ---- Numbers ---- */

static void piece_make(const weight_piece *piece, const float *from, float *out)
{
    for (uint64_t r = 0; r < piece->rows; r++)
        for (uint64_t c = 0; c < piece->columns; c++) {
            const uint64_t at = r * piece->columns + c;
            out[piece->is_transposed ? c * piece->rows + r : at] = from[at];
        }
}

/* @param numbers of all tensors of the layer, one after the other, statistics last */
static ty_status layer_put(const weight_names *names, uint32_t layer, const float *numbers,
                           uint64_t count, ty_file_writer *file, ty_error *error)
{
    float *made = ty_alloc(count, sizeof *made);
    uint64_t used = 0;
    weight_piece piece;
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(made != NULL, error));
    for (uint32_t t = 0; t < LAYER_FILE_TENSORS; t++)
        for (uint32_t i = 0; weight_piece_at(names, layer, t, i, &piece); i++) {
            const uint64_t elements = piece.rows * piece.columns;

            if (elements > count - used) {
                status = ty_fail(error, TY_EBACKEND, "layer %s: found %llu weights, expected more",
                                 names->workload->layers[layer].name, (unsigned long long)count);
                goto cleanup;
            }
            piece_make(&piece, numbers + used, made);
            TY_CHECK(ty_file_writer_add(file, made, elements * sizeof *made, error), status,
                     cleanup);
            used += elements;
        }
cleanup:
    ty_free(made);
    return status;
}

/* Number and offset of a layer's statistics in those of its stage; 0 without. */
static uint64_t statistics_find(const ty_plan *plan, uint32_t layer, uint64_t *offset)
{
    const ty_layer *layers = plan->workload->layers;
    const uint32_t stage = ty_plan_stage_of_layer(plan, layer);
    uint64_t own = 0;

    *offset = 0;
    for (uint32_t l = plan->stages[stage].first_layer; l <= layer; l++) {
        *offset += own;
        own =
            ty_layer_row_of(&layers[l])->has_statistics ? 2 * layers[l].attributes[TY_FEATURES] : 0;
    }
    return own;
}

/* Appends statistics, from the first rank of the stage, to the text on rank 0. */
static ty_status statistics_move(ty_interpreter *in, uint32_t layer, ty_text *text, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const uint32_t stage = ty_plan_stage_of_layer(plan, layer);
    const uint32_t stage_replica = ty_plan_first_replica(plan, stage);
    ty_transport *transport = in->options.transport;
    const float *numbers = NULL;
    float *owned = NULL;
    uint64_t offset, of_stage;
    const uint64_t count = statistics_find(plan, layer, &offset);
    ty_status status = TY_OK;

    if (count == 0)
        return TY_OK;
    if (in->stage_replica == stage_replica) {
        const virtual_stage_state *virtual_stage =
            &in->virtual_stages[stage / ty_plan_pipeline_size(plan)];
        const float *all = in->options.backend->statistics(virtual_stage->device, &of_stage);

        TY_CHECK(interpreter_host_floats(in, all + offset, count, &numbers, &owned, error), status,
                 cleanup);
        if (stage_replica != 0 && interpreter_is_first_rank(in, stage_replica))
            TY_CHECK(ty_transport_send(transport, 0, STATISTICS_TAG, numbers,
                                       count * sizeof *numbers, error),
                     status, cleanup);
    }
    if (transport->rank == 0 && stage_replica != 0) {
        numbers = owned = ty_alloc(count, sizeof *owned);
        TY_CHECK(ty_check_memory(owned != NULL, error), status, cleanup);
        TY_CHECK(ty_transport_receive(transport, interpreter_rank(in, stage_replica),
                                      STATISTICS_TAG, owned, count * sizeof *owned, error),
                 status, cleanup);
    }
    if (transport->rank == 0)
        ty_text_append(text, (const char *)numbers, count * sizeof *numbers);
cleanup:
    ty_free(owned);
    return status;
}

/* ---- All of it ---- */

static ty_status layers_put(ty_interpreter *in, const weight_names *names, ty_file_writer *file,
                            ty_error *error)
{
    ty_transport *transport = in->options.transport;
    ty_text text = {0};
    ty_status status = TY_OK;

    if (transport->rank == 0)
        status = header_put(names, file, error);
    TY_CHECK(ty_transport_agree(transport, status, error), status, cleanup);
    for (uint32_t l = 0; l < names->workload->layer_count; l++) {
        text.length = 0;
        status = interpreter_weights_move(in, l, &text, error);
        if (status == TY_OK)
            status = statistics_move(in, l, &text, error);
        if (status != TY_OK) { /* other ranks wait for messages that never come */
            transport->is_broken = true;
            goto cleanup;
        }
        if (transport->rank == 0)
            status = ty_text_check(&text, error);
        if (status == TY_OK && transport->rank == 0)
            status = layer_put(names, l, (const float *)(const void *)text.data,
                               text.length / sizeof(float), file, error);
        TY_CHECK(ty_transport_agree(transport, status, error), status, cleanup);
    }
cleanup:
    ty_text_clear(&text);
    return status;
}

ty_status weights_save(ty_interpreter *in, const char *path, ty_error *error)
{
    const weight_names names = weight_names_of(in->options.plan->workload);
    ty_transport *transport = in->options.transport;
    ty_file_writer *file = NULL;
    ty_status status = TY_OK;

    if (transport->rank == 0)
        status = ty_file_writer_open(path, &file, error);
    TY_CHECK(ty_transport_agree(transport, status, error), status, cleanup);
    status = interpreter_weights_ready(in, error);
    if (status != TY_OK) {
        transport->is_broken = true;
        goto cleanup;
    }
    TY_CHECK(layers_put(in, &names, file, error), status, cleanup);
    interpreter_shares_only(in);
    if (transport->rank == 0)
        status = ty_file_writer_finish(&file, error);
    status = ty_transport_agree(transport, status, error);
cleanup:
    ty_file_writer_drop(file);
    return status;
}
