/* Workloads as `trainyard.workload/1`. */
#include "json_parts.h"
#include "json_record.h"
#include "ty_file.h"
#include "ty_memory.h"
#include "workload_layers.h"

#include <math.h>
#include <string.h>

/* ---- reading ---- */

static ty_status read_shape(const ty_json *object, const char *key, ty_shape *out, ty_error *error)
{
    const ty_json *array = NULL;
    ty_status status = ty_json_array(object, key, 1, TY_MAX_DIMENSIONS, &array, error);

    for (uint32_t i = 0; status == TY_OK && i < ty_json_size(array); i++) {
        status =
            ty_json_as_uint64(ty_json_at(array, i), 1, TY_MAX_QUANTITY, &out->dimensions[i], error);
        out->dimension_count = i + 1;
    }
    return status;
}

static ty_status read_attributes(const ty_json *object, ty_layer *layer, ty_error *error)
{
    const ty_json *attributes = NULL;
    ty_status status;

    TY_CHECK(ty_json_object(object, "attributes", &attributes, error), status, done);
    for (ty_attribute a = 0; a < TY_ATTRIBUTE_COUNT; a++) {
        ty_attribute_use use = ty_layer_attribute_use(layer->kind, a);
        if (use == TY_ATTRIBUTE_UNUSED ||
            (use == TY_ATTRIBUTE_OPTIONAL && !ty_json_has(attributes, ty_attribute_name(a))))
            continue;
        TY_CHECK(ty_json_uint64(attributes, ty_attribute_name(a), ty_attribute_is_size(a) ? 1 : 0,
                                ty_attribute_is_flag(a) ? 1 : TY_MAX_ATTRIBUTE,
                                &layer->attributes[a], error),
                 status, done);
    }
    TY_CHECK(ty_json_end(attributes, error), status, done);
done:
    return status;
}

static ty_status read_quantities(const ty_json *object, ty_layer *layer, ty_error *error)
{
    const struct {
        const char *key;
        uint64_t *out;
    } sizes[] = {{"parameter_bytes", &layer->parameter_bytes},
                 {"output_bytes", &layer->output_bytes},
                 {"stash_bytes", &layer->stash_bytes},
                 {"traffic_bytes", &layer->traffic_bytes}};
    const struct {
        const char *key;
        double *out;
    } numbers[] = {{"forward_flop", &layer->forward_flop},
                   {"backward_flop", &layer->backward_flop},
                   {"measured_forward_s", &layer->measured_forward_s},
                   {"measured_backward_s", &layer->measured_backward_s}};
    ty_status status;

    for (size_t i = 0; i < 4; i++)
        TY_CHECK(ty_json_uint64(object, sizes[i].key, 0, TY_MAX_QUANTITY, sizes[i].out, error),
                 status, done);
    for (size_t i = 0; i < (layer->kind == TY_LAYER_OPAQUE ? 4 : 2); i++)
        TY_CHECK(ty_json_number(object, numbers[i].key, 0.0, HUGE_VAL, numbers[i].out, error),
                 status, done);
    TY_CHECK(ty_json_uint32(object, "kernel_count", 0, UINT32_MAX, &layer->kernel_count, error),
             status, done);
done:
    return status;
}

static ty_status read_layer(const ty_json *object, uint32_t index, ty_layer *layer, ty_error *error)
{
    ty_status status;
    int kind = 0;

    layer->tied_to = TY_NO_LAYER;
    TY_CHECK(ty_json_string_copy(object, "name", &layer->name, error), status, done);
    TY_CHECK(ty_json_enum(object, "kind", ty_layer_kind_names, TY_LAYER_KIND_COUNT, &kind, error),
             status, done);
    layer->kind = (ty_layer_kind)kind;
    TY_CHECK(read_attributes(object, layer, error), status, done);
    TY_CHECK(ty_json_uint32_array(object, "inputs", 0, index, 0, UINT32_MAX, &layer->inputs,
                                  &layer->input_count, error),
             status, done);
    if (ty_json_has(object, "tied_to"))
        TY_CHECK(ty_json_uint32(object, "tied_to", 0, UINT32_MAX - 1, &layer->tied_to, error),
                 status, done);
    if (ty_json_has(object, "is_frozen"))
        TY_CHECK(ty_json_bool(object, "is_frozen", &layer->is_frozen, error), status, done);
    TY_CHECK(read_shape(object, "output_shape", &layer->output, error), status, done);
    TY_CHECK(read_quantities(object, layer, error), status, done);
    TY_CHECK(ty_json_end(object, error), status, done);
done:
    return status;
}

static const char *optimizer_name(int i)
{
    return ty_optimizer_name((ty_optimizer_kind)i);
}

static bool is_adamw(const void *optimizer)
{
    return ((const ty_optimizer *)optimizer)->kind == TY_OPTIMIZER_ADAMW;
}

static bool is_sgd(const void *optimizer)
{
    return !is_adamw(optimizer);
}

static const json_field optimizer_fields[] = {
    {"kind", JSON_NAME, JSON_AT(ty_optimizer, kind), .name = optimizer_name,
     .name_count = TY_OPTIMIZER_ADAMW + 1},
    {"learning_rate", JSON_NUMBER, JSON_AT(ty_optimizer, learning_rate), 0, HUGE_VAL},
    {"beta1", JSON_NUMBER, JSON_AT(ty_optimizer, beta1), 0, 1, .applies = is_adamw},
    {"beta2", JSON_NUMBER, JSON_AT(ty_optimizer, beta2), 0, 1, .applies = is_adamw},
    {"epsilon", JSON_NUMBER, JSON_AT(ty_optimizer, epsilon), 0, HUGE_VAL, .applies = is_adamw},
    {"momentum", JSON_NUMBER, JSON_AT(ty_optimizer, momentum), 0, 1, .applies = is_sgd},
    {"weight_decay", JSON_NUMBER, JSON_AT(ty_optimizer, weight_decay), 0, HUGE_VAL},
};
const json_record ty_optimizer_record = JSON_FLAT_RECORD(ty_optimizer, optimizer_fields);

static ty_status read_layers(const ty_json *object, ty_workload *workload, ty_error *error)
{
    const ty_json *layers = NULL;
    ty_status status;

    TY_CHECK(ty_json_array(object, "layers", 1, UINT32_MAX - 1, &layers, error), status, done);
    workload->layers = ty_alloc(ty_json_size(layers), sizeof *workload->layers);
    if (workload->layers == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    workload->layer_count = (uint32_t)ty_json_size(layers);
    for (uint32_t i = 0; i < workload->layer_count; i++)
        TY_CHECK(read_layer(ty_json_at(layers, i), i, &workload->layers[i], error), status, done);
done:
    return status;
}

ty_status ty_teacher_read(const ty_json *object, ty_teacher *teacher, ty_error *error)
{
    const ty_json *t = NULL;
    ty_status status;

    TY_CHECK(ty_json_object(object, "teacher", &t, error), status, done);
    TY_CHECK(ty_json_uint32(t, "labelled", 1, UINT32_MAX, &teacher->labelled, error), status, done);
    TY_CHECK(ty_json_uint32(t, "every", 1, TY_MAX_TEACHER_EVERY, &teacher->every, error), status,
             done);
    TY_CHECK(ty_json_number(t, "decay", 0.0, 1.0, &teacher->decay, error), status, done);
    TY_CHECK(
        ty_json_number(t, "consistency", 0.0, TY_MAX_CONSISTENCY, &teacher->consistency, error),
        status, done);
    TY_CHECK(ty_json_uint32(t, "shift", 0, TY_MAX_SHIFT, &teacher->shift, error), status, done);
    TY_CHECK(ty_json_end(t, error), status, done);
done:
    return status;
}

static void write_teacher(const ty_teacher *teacher, ty_json_writer *writer)
{
    ty_json_open_flat(writer, "teacher", '{');
    ty_json_put_uint(writer, "labelled", teacher->labelled);
    ty_json_put_uint(writer, "every", teacher->every);
    ty_json_put_number(writer, "decay", teacher->decay);
    ty_json_put_number(writer, "consistency", teacher->consistency);
    ty_json_put_uint(writer, "shift", teacher->shift);
    ty_json_close(writer, '}');
}

/* Absent: ordinary training. Local steps of 1 are what every step does anyway. */
static ty_status read_scenario(const ty_json *object, ty_workload *w, ty_error *error)
{
    ty_status status = TY_OK;
    int learning = TY_LEARNING_GRADIENT;

    if (ty_json_has(object, "learning"))
        TY_CHECK(ty_json_enum(object, "learning", ty_learning_names, TY_LEARNING_COUNT, &learning,
                              error),
                 status, done);
    w->learning = (ty_learning)learning;
    if (ty_json_has(object, "local_steps"))
        TY_CHECK(
            ty_json_uint32(object, "local_steps", 1, TY_MAX_LOCAL_STEPS, &w->local_steps, error),
            status, done);
    if (w->local_steps == 1)
        w->local_steps = 0;
    if (ty_json_has(object, "rotary_base"))
        TY_CHECK(ty_json_uint64(object, "rotary_base", 1, TY_MAX_QUANTITY, &w->rotary_base, error),
                 status, done);
    if (ty_json_has(object, "input_s_per_sample"))
        TY_CHECK(ty_json_number(object, "input_s_per_sample", 0.0, TY_MAX_INPUT_S,
                                &w->input_s_per_sample, error),
                 status, done);
    if (ty_json_has(object, "deviation"))
        TY_CHECK(ty_json_number(object, "deviation", 0.0, TY_MAX_DEVIATION, &w->deviation, error),
                 status, done);
    if (ty_json_has(object, "teacher"))
        TY_CHECK(ty_teacher_read(object, &w->teacher, error), status, done);
done:
    return status;
}

/* Not said: as numbers of that size are usually computed with. */
static ty_precision usual_precision(uint32_t element_bytes)
{
    return element_bytes == ty_precision_bytes(TY_PRECISION_BF16) ? TY_PRECISION_BF16
                                                                  : TY_PRECISION_FP32;
}

static const char *precision_name(int i)
{
    return ty_precision_name((ty_precision)i);
}

static ty_status read_workload(const ty_json *object, ty_workload *w, ty_error *error)
{
    ty_status status;
    const ty_json *optimizer;
    int input_kind = 0, precision;

    TY_CHECK(ty_json_schema(object, TY_WORKLOAD_SCHEMA, error), status, done);
    TY_CHECK(ty_json_string_copy(object, "name", &w->name, error), status, done);
    TY_CHECK(ty_json_string_copy(object, "source", &w->source, error), status, done);
    TY_CHECK(ty_json_uint32(object, "element_bytes", 1, 8, &w->element_bytes, error), status, done);
    precision = usual_precision(w->element_bytes);
    if (ty_json_has(object, "precision"))
        TY_CHECK(ty_json_name(object, "precision", precision_name, TY_PRECISION_COUNT, &precision,
                              error),
                 status, done);
    w->precision = (ty_precision)precision;
    TY_CHECK(ty_json_enum(object, "input_kind", ty_input_kind_names, 2, &input_kind, error), status,
             done);
    w->input_kind = (ty_input_kind)input_kind;
    TY_CHECK(read_shape(object, "input_shape", &w->input, error), status, done);
    TY_CHECK(ty_json_uint64(object, "sample_bytes", 0, TY_MAX_QUANTITY, &w->sample_bytes, error),
             status, done);
    TY_CHECK(ty_json_uint64(object, "tokens_per_sample", 0, TY_MAX_QUANTITY, &w->tokens_per_sample,
                            error),
             status, done);
    TY_CHECK(ty_json_string_copy(object, "dataset", &w->dataset, error), status, done);
    TY_CHECK(ty_json_uint32(object, "global_batch", 1, UINT32_MAX, &w->global_batch, error), status,
             done);
    TY_CHECK(ty_json_object(object, "optimizer", &optimizer, error), status, done);
    TY_CHECK(ty_record_read_all(optimizer, &ty_optimizer_record, &w->optimizer, NULL, error),
             status, done);
    TY_CHECK(read_scenario(object, w, error), status, done);
    TY_CHECK(read_layers(object, w, error), status, done);
    TY_CHECK(ty_json_end(object, error), status, done);
done:
    return status;
}

ty_status ty_workload_from_json(const ty_json *object, ty_workload **out, ty_error *error)
{
    char place[TY_JSON_PLACE_SIZE];
    ty_workload *workload = ty_alloc(1, sizeof *workload);
    ty_status status = TY_OK;

    if (workload == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    TY_CHECK(read_workload(object, workload, error), status, cleanup);
    ty_json_place(object, place);
    TY_CHECK(ty_workload_check_at(workload, place, error), status, cleanup);
    TY_CHECK(ty_workload_index_make(workload, error), status, cleanup);
    *out = workload;
    workload = NULL;

cleanup:
    ty_workload_free(workload);
    return status;
}

ty_status ty_workload_load(const char *path, ty_workload **out, ty_error *error)
{
    ty_json_document *document = NULL;
    ty_status status;

    TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
    TY_CHECK(ty_workload_from_json(ty_json_root(document), out, error), status, cleanup);

cleanup:
    ty_json_free(document);
    return status;
}

/* ---- writing ---- */

static void write_shape(const ty_shape *shape, ty_json_writer *writer, const char *key)
{
    ty_json_open_flat(writer, key, '[');
    for (uint32_t i = 0; i < shape->dimension_count; i++)
        ty_json_put_uint(writer, NULL, shape->dimensions[i]);
    ty_json_close(writer, ']');
}

static void write_layer(const ty_layer *layer, ty_json_writer *writer)
{
    ty_json_open(writer, NULL, '{');
    ty_json_put_string(writer, "name", layer->name);
    ty_json_put_string(writer, "kind", ty_layer_kind_name(layer->kind));
    ty_json_open_flat(writer, "attributes", '{');
    for (ty_attribute a = 0; a < TY_ATTRIBUTE_COUNT; a++) {
        if (ty_attribute_is_shown(layer, a))
            ty_json_put_uint(writer, ty_attribute_name(a), layer->attributes[a]);
    }
    ty_json_close(writer, '}');
    ty_json_put_uint32_array(writer, "inputs", layer->inputs, layer->input_count);
    if (layer->tied_to != TY_NO_LAYER)
        ty_json_put_uint(writer, "tied_to", layer->tied_to);
    if (layer->is_frozen)
        ty_json_put_bool(writer, "is_frozen", true);
    write_shape(&layer->output, writer, "output_shape");
    ty_json_put_number(writer, "forward_flop", layer->forward_flop);
    ty_json_put_number(writer, "backward_flop", layer->backward_flop);
    ty_json_put_uint(writer, "parameter_bytes", layer->parameter_bytes);
    ty_json_put_uint(writer, "output_bytes", layer->output_bytes);
    ty_json_put_uint(writer, "stash_bytes", layer->stash_bytes);
    ty_json_put_uint(writer, "traffic_bytes", layer->traffic_bytes);
    ty_json_put_uint(writer, "kernel_count", layer->kernel_count);
    if (layer->kind == TY_LAYER_OPAQUE) {
        ty_json_put_number(writer, "measured_forward_s", layer->measured_forward_s);
        ty_json_put_number(writer, "measured_backward_s", layer->measured_backward_s);
    }
    ty_json_close(writer, '}');
}

void ty_workload_to_json(const ty_workload *workload, ty_json_writer *writer, const char *key)
{
    ty_json_open(writer, key, '{');
    ty_json_put_string(writer, "schema", TY_WORKLOAD_SCHEMA);
    ty_json_put_string(writer, "name", workload->name);
    ty_json_put_string(writer, "source", workload->source);
    ty_json_put_uint(writer, "element_bytes", workload->element_bytes);
    if (workload->precision != usual_precision(workload->element_bytes))
        ty_json_put_string(writer, "precision", ty_precision_name(workload->precision));
    ty_json_put_string(writer, "input_kind", ty_input_kind_names[workload->input_kind]);
    write_shape(&workload->input, writer, "input_shape");
    ty_json_put_uint(writer, "sample_bytes", workload->sample_bytes);
    ty_json_put_uint(writer, "tokens_per_sample", workload->tokens_per_sample);
    ty_json_put_string(writer, "dataset", workload->dataset);
    ty_json_put_uint(writer, "global_batch", workload->global_batch);
    ty_record_write(&ty_optimizer_record, &workload->optimizer, NULL, writer, "optimizer");
    if (workload->learning != TY_LEARNING_GRADIENT)
        ty_json_put_string(writer, "learning", ty_learning_name(workload->learning));
    if (workload->local_steps > 1)
        ty_json_put_uint(writer, "local_steps", workload->local_steps);
    if (workload->rotary_base > 0)
        ty_json_put_uint(writer, "rotary_base", workload->rotary_base);
    if (workload->input_s_per_sample > 0)
        ty_json_put_number(writer, "input_s_per_sample", workload->input_s_per_sample);
    if (workload->deviation > 0)
        ty_json_put_number(writer, "deviation", workload->deviation);
    if (ty_workload_has_teacher(workload))
        write_teacher(&workload->teacher, writer);
    ty_json_open(writer, "layers", '[');
    for (uint32_t i = 0; i < workload->layer_count; i++)
        write_layer(&workload->layers[i], writer);
    ty_json_close(writer, ']');
    ty_json_close(writer, '}');
}

static ty_status write_text(const ty_workload *workload, ty_text *text, ty_error *error)
{
    ty_json_writer writer = ty_json_writer_on(text);

    ty_workload_to_json(workload, &writer, NULL);
    ty_text_add(text, "\n");
    return ty_text_check(text, error);
}

ty_status ty_workload_save(const ty_workload *workload, const char *path, ty_error *error)
{
    ty_text text = {0};
    ty_status status;

    TY_CHECK(write_text(workload, &text, error), status, cleanup);
    TY_CHECK(ty_file_write(path, text.data, text.length, error), status, cleanup);

cleanup:
    ty_text_clear(&text);
    return status;
}

ty_status ty_workload_digest(const ty_workload *workload, ty_digest *out, ty_error *error)
{
    ty_text text = {0};
    ty_status status;

    TY_CHECK(write_text(workload, &text, error), status, cleanup);
    *out = ty_digest_of(text.data, text.length);

cleanup:
    ty_text_clear(&text);
    return status;
}

/* What follows from the size of images is left out. */
static void forget_size(ty_layer *layer)
{
    if (layer->kind == TY_LAYER_OPAQUE)
        return;
    for (uint32_t d = 0; d < layer->output.dimension_count; d++)
        layer->output.dimensions[d] = 0;
    if (layer->attributes[TY_IS_GLOBAL] != 0)
        layer->attributes[TY_KERNEL_HEIGHT] = layer->attributes[TY_KERNEL_WIDTH] = 0;
    layer->forward_flop = layer->backward_flop = 0;
    layer->output_bytes = layer->stash_bytes = layer->traffic_bytes = 0;
}

ty_status ty_workload_network_digest(const ty_workload *workload, ty_digest *out, ty_error *error)
{
    ty_workload network = *workload;
    ty_status status;

    if (!ty_workload_has_images(workload))
        return ty_workload_digest(workload, out, error);
    network.layers = ty_alloc(workload->layer_count, sizeof *network.layers);
    if (network.layers == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    memcpy(network.layers, workload->layers, workload->layer_count * sizeof *network.layers);
    for (uint32_t l = 0; l < network.layer_count; l++)
        forget_size(&network.layers[l]);
    network.input.dimensions[1] = network.input.dimensions[2] = 0;
    network.sample_bytes = 0;
    status = ty_workload_digest(&network, out, error);
    ty_free(network.layers);
    return status;
}
