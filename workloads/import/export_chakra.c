/* A workload as a Chakra execution trace of one data-parallel rank: every layer's forward and
 * backward as compute nodes, its gradients as an all-reduce. A trace has times or flop, sizes and
 * edges; other data goes into Trainyard's own attributes. One attribute of the metadata is the full
 * workload with its kinds of layers, with a digest of its nodes. */
#include "chakra_write.h"

#include <string.h>

enum { FORWARD, BACKWARD, GRADIENTS, PASS_COUNT };

/* @param nodes all later messages */
static void put_metadata(const ty_workload *w, const ty_text *nodes, ty_text *file)
{
    ty_text message = {0}, whole = {0};
    ty_json_writer writer = ty_json_writer_on(&whole);
    ty_digest digest = ty_digest_of(nodes->data, nodes->length);

    ty_wire_put_bytes(&message, TY_CHAKRA_VERSION, "0.0.4", 5);
    ty_chakra_put_string(&message, TY_CHAKRA_METADATA_ATTRIBUTE, TY_CHAKRA_WORKLOAD, w->name);
    ty_chakra_put_string(&message, TY_CHAKRA_METADATA_ATTRIBUTE, TY_CHAKRA_SOURCE, w->source);
    ty_chakra_put_integer(&message, TY_CHAKRA_METADATA_ATTRIBUTE, TY_CHAKRA_GLOBAL_BATCH,
                          TY_CHAKRA_UINT64, w->global_batch);
    ty_chakra_put_integer(&message, TY_CHAKRA_METADATA_ATTRIBUTE, TY_CHAKRA_INPUT_ELEMENTS,
                          TY_CHAKRA_UINT64, ty_shape_elements(&w->input));
    ty_workload_to_json(w, &writer, NULL);
    ty_chakra_put_string(&message, TY_CHAKRA_METADATA_ATTRIBUTE, TY_CHAKRA_WHOLE,
                         whole.data != NULL ? whole.data : "");
    ty_chakra_put_string(&message, TY_CHAKRA_METADATA_ATTRIBUTE, TY_CHAKRA_NODES, digest.hex);
    if (whole.failed != TY_OK && message.failed == TY_OK)
        message.failed = whole.failed;
    ty_chakra_put_message(file, &message);
    ty_text_clear(&whole);
}

static uint64_t node_id(uint32_t layer, uint32_t pass)
{
    return (uint64_t)layer * PASS_COUNT + pass;
}

static void put_forward(const ty_workload *w, uint32_t layer, ty_text *file)
{
    const ty_layer *l = &w->layers[layer];
    bool is_view = l->kernel_count == 0;
    ty_text node = {0};

    ty_chakra_begin_node(&node, node_id(layer, FORWARD), l->name, "", TY_CHAKRA_COMPUTE);
    for (uint32_t i = 0; i < l->input_count; i++)
        ty_wire_put_uint(&node, TY_CHAKRA_DATA, node_id(l->inputs[i], FORWARD));
    ty_chakra_put_work(&node, l->measured_forward_s, l->forward_flop, l->output_bytes);
    ty_chakra_put_number(&node, TY_CHAKRA_FORWARD_S, l->measured_forward_s);
    ty_chakra_put_number(&node, TY_CHAKRA_BACKWARD_S, l->measured_backward_s);
    ty_chakra_put_number(&node, TY_CHAKRA_FORWARD_FLOP, l->forward_flop);
    ty_chakra_put_number(&node, TY_CHAKRA_BACKWARD_FLOP, l->backward_flop);
    ty_chakra_put_integer(&node, TY_CHAKRA_ATTRIBUTE, TY_CHAKRA_PARAMETER_BYTES, TY_CHAKRA_UINT64,
                          l->parameter_bytes);
    ty_chakra_put_integer(&node, TY_CHAKRA_ATTRIBUTE, TY_CHAKRA_OUTPUT_ELEMENTS, TY_CHAKRA_UINT64,
                          ty_shape_elements(&l->output));
    ty_chakra_put_integer(&node, TY_CHAKRA_ATTRIBUTE, TY_CHAKRA_IS_VIEW, TY_CHAKRA_BOOL, is_view);
    ty_chakra_put_integer(&node, TY_CHAKRA_ATTRIBUTE, TY_CHAKRA_IS_TIMED, TY_CHAKRA_BOOL,
                          !is_view && l->traffic_bytes == 0);
    ty_chakra_put_message(file, &node);
}

/* Backward of a layer depends on its own forward and on the backward of its readers. */
static void put_backward(const ty_workload *w, uint32_t layer, const uint32_t *first_reader,
                         const uint32_t *readers, ty_text *file)
{
    const ty_layer *l = &w->layers[layer];
    ty_text node = {0};

    ty_chakra_begin_node(&node, node_id(layer, BACKWARD), l->name, " backward", TY_CHAKRA_COMPUTE);
    ty_wire_put_uint(&node, TY_CHAKRA_DATA, node_id(layer, FORWARD));
    for (uint32_t i = first_reader[layer]; i < first_reader[layer + 1]; i++)
        ty_wire_put_uint(&node, TY_CHAKRA_DATA, node_id(readers[i], BACKWARD));
    ty_chakra_put_work(&node, l->measured_backward_s, l->backward_flop, l->output_bytes);
    ty_chakra_put_integer(&node, TY_CHAKRA_ATTRIBUTE, TY_CHAKRA_PART_OF, TY_CHAKRA_UINT64,
                          node_id(layer, FORWARD));
    ty_chakra_put_message(file, &node);
    if (l->parameter_bytes == 0 || l->is_frozen)
        return;
    ty_chakra_begin_node(&node, node_id(layer, GRADIENTS), l->name, " gradients",
                         TY_CHAKRA_COLLECTIVE);
    ty_wire_put_uint(&node, TY_CHAKRA_DATA, node_id(layer, BACKWARD));
    ty_chakra_put_integer(&node, TY_CHAKRA_ATTRIBUTE, "is_cpu_op", TY_CHAKRA_BOOL, 0);
    ty_chakra_put_integer(&node, TY_CHAKRA_ATTRIBUTE, "comm_type", TY_CHAKRA_INT64,
                          0); /* all-reduce */
    ty_chakra_put_integer(&node, TY_CHAKRA_ATTRIBUTE, "comm_size", TY_CHAKRA_INT64,
                          l->parameter_bytes);
    ty_chakra_put_integer(&node, TY_CHAKRA_ATTRIBUTE, TY_CHAKRA_PART_OF, TY_CHAKRA_UINT64,
                          node_id(layer, FORWARD));
    ty_chakra_put_message(file, &node);
}

/* Readers of every layer, grouped by counting. */
static ty_status list_readers(const ty_workload *w, uint32_t **first, uint32_t **readers,
                              ty_error *error)
{
    uint32_t total = 0;

    *first = ty_alloc((size_t)w->layer_count + 2, sizeof **first);
    for (uint32_t i = 0; i < w->layer_count; i++)
        total += w->layers[i].input_count;
    *readers = ty_alloc(total, sizeof **readers);
    TY_TRY(ty_check_memory(*first != NULL && *readers != NULL, error));
    for (uint32_t i = 0; i < w->layer_count; i++)
        for (uint32_t k = 0; k < w->layers[i].input_count; k++)
            (*first)[w->layers[i].inputs[k] + 2]++;
    for (uint32_t i = 2; i < w->layer_count + 2; i++)
        (*first)[i] += (*first)[i - 1];
    for (uint32_t i = 0; i < w->layer_count; i++)
        for (uint32_t k = 0; k < w->layers[i].input_count; k++)
            (*readers)[(*first)[w->layers[i].inputs[k] + 1]++] = i;
    return TY_OK;
}

ty_status ty_workload_export_chakra(const ty_workload *workload, const char *path, ty_error *error)
{
    ty_status status = TY_OK;
    uint32_t *first = NULL, *readers = NULL;
    ty_text file = {0}, nodes = {0};

    TY_CHECK(list_readers(workload, &first, &readers, error), status, cleanup);
    for (uint32_t i = 0; i < workload->layer_count; i++)
        put_forward(workload, i, &nodes);
    for (uint32_t i = workload->layer_count; i-- > 0;)
        put_backward(workload, i, first, readers, &nodes);
    TY_CHECK(ty_text_check(&nodes, error), status, cleanup);
    put_metadata(workload, &nodes, &file);
    ty_text_append(&file, nodes.data, nodes.length);
    status = ty_file_write_text(path, &file, error);

cleanup:
    ty_text_clear(&file);
    ty_text_clear(&nodes);
    ty_free(first);
    ty_free(readers);
    return status;
}
