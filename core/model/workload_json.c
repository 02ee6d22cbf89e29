/* Workloads as `trainyard.workload/1`. */
#include "json_parts.h"
#include "ty_base.h"
#include "ty_json.h"
#include "workload_layers.h"

#include <math.h>
#include <string.h>

static ty_status read_dimensions(const ty_json *object, const char *key, ty_shape *out,
                                 ty_error *error)
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

static void write_dimensions(const ty_shape *shape, ty_json_writer *writer, const char *key)
{
    ty_json_open_flat(writer, key, '[');
    for (uint32_t i = 0; i < shape->dimension_count; i++)
        ty_json_put_uint(writer, NULL, shape->dimensions[i]);
    ty_json_close(writer, ']');
}

/* ---- Layers -------------------------------------------------------------------------------- */

static ty_status read_attributes(const ty_json *object, const json_field *field, void *out,
                                 const void *context, ty_error *error)
{
    ty_layer *layer = out;
    const ty_json *attributes = NULL;

    (void)context;
    TY_TRY(ty_json_object(object, field->key, &attributes, error));
    for (ty_attribute a = 0; a < TY_ATTRIBUTE_COUNT; a++) {
        ty_attribute_use use = ty_layer_attribute_use(layer->kind, a);
        if (use == TY_ATTRIBUTE_UNUSED ||
            (use == TY_ATTRIBUTE_OPTIONAL && !ty_json_has(attributes, ty_attribute_name(a))))
            continue;
        TY_TRY(ty_json_uint64(attributes, ty_attribute_name(a), ty_attribute_is_size(a) ? 1 : 0,
                              ty_attribute_is_flag(a) ? 1 : TY_MAX_ATTRIBUTE, &layer->attributes[a],
                              error));
    }
    return ty_json_end(attributes, error);
}

static void write_attributes(const json_field *field, const void *in, const void *context,
                             ty_json_writer *writer)
{
    const ty_layer *layer = in;

    (void)context;
    ty_json_open_flat(writer, field->key, '{');
    for (ty_attribute a = 0; a < TY_ATTRIBUTE_COUNT; a++)
        if (ty_attribute_is_shown(layer, a))
            ty_json_put_uint(writer, ty_attribute_name(a), layer->attributes[a]);
    ty_json_close(writer, '}');
}

/* At most one per earlier layer; `context` is its index. */
static ty_status read_inputs(const ty_json *object, const json_field *field, void *out,
                             const void *context, ty_error *error)
{
    ty_layer *layer = out;

    return ty_json_uint32_array(object, field->key, 0, *(const uint32_t *)context, 0, UINT32_MAX,
                                &layer->inputs, &layer->input_count, error);
}

static ty_status read_output(const ty_json *object, const json_field *field, void *layer,
                             const void *context, ty_error *error)
{
    (void)context;
    return read_dimensions(object, field->key, &((ty_layer *)layer)->output, error);
}

static void write_output(const json_field *field, const void *layer, const void *context,
                         ty_json_writer *writer)
{
    (void)context;
    write_dimensions(&((const ty_layer *)layer)->output, writer, field->key);
}

static bool is_opaque(const void *layer)
{
    return ty_layer_row_of(layer)->is_opaque;
}

JSON_NAMES(layer_kind_name, ty_layer_kind, ty_layer_kind_name)

#define SHAPE(key_, read_, write_)                                                                 \
    {                                                                                              \
        key_, JSON_UINTS, .minimum = 1, .maximum = TY_MAX_QUANTITY, .least_count = 1,              \
                          .most_count = TY_MAX_DIMENSIONS, .read = (read_), .write = (write_)      \
    }
#define BYTES(member)                                                                              \
    {                                                                                              \
#member, JSON_UINT64, JSON_AT(ty_layer, member), 0, TY_MAX_QUANTITY                        \
    }
#define AMOUNT(member) #member, JSON_NUMBER, JSON_AT(ty_layer, member), 0, HUGE_VAL

/* Per sample, except the parameters. */
static const json_field layer_fields[] = {
    {"name", JSON_TEXT, JSON_AT(ty_layer, name)},
    {"kind", JSON_NAME, JSON_AT(ty_layer, kind), .name = layer_kind_name,
     .name_count = TY_LAYER_KIND_COUNT},
    {"attributes", JSON_OTHER, .read = read_attributes, .write = write_attributes,
     .about = "whole numbers: those of the kind"},
    {"inputs", JSON_UINTS, JSON_AT(ty_layer, inputs), 0, UINT32_MAX, .read = read_inputs,
     .count_at = offsetof(ty_layer, input_count),
     .about = "indices of earlier layers; none: the batch"},
    {"tied_to", JSON_UINT32, JSON_AT(ty_layer, tied_to), 0, UINT32_MAX - 1, .absent = TY_NO_LAYER,
     .is_optional = true, .about = "the layer whose matrix it uses"},
    {"is_frozen", JSON_BOOL, JSON_AT(ty_layer, is_frozen), .is_optional = true},
    SHAPE("output_shape", read_output, write_output),
    {AMOUNT(forward_flop)},
    {AMOUNT(backward_flop)},
    BYTES(parameter_bytes),
    BYTES(output_bytes),
    BYTES(stash_bytes),
    BYTES(traffic_bytes),
    {"kernel_count", JSON_UINT32, JSON_AT(ty_layer, kernel_count), 0, UINT32_MAX},
    {AMOUNT(measured_forward_s), .applies = is_opaque},
    {AMOUNT(measured_backward_s), .applies = is_opaque},
};
static const json_record layer_record = JSON_RECORD(ty_layer, layer_fields);

static ty_status read_layers(const ty_json *object, const json_field *field, void *out,
                             const void *context, ty_error *error)
{
    ty_workload *workload = out;
    const ty_json *layers = NULL;

    (void)context;
    TY_TRY(ty_json_array(object, field->key, 1, UINT32_MAX - 1, &layers, error));
    workload->layers = ty_alloc(ty_json_size(layers), sizeof *workload->layers);
    TY_TRY(ty_check_memory(workload->layers != NULL, error));
    workload->layer_count = (uint32_t)ty_json_size(layers);
    for (uint32_t i = 0; i < workload->layer_count; i++)
        TY_TRY(ty_record_read_all(ty_json_at(layers, i), &layer_record, &workload->layers[i], &i,
                                  error));
    return TY_OK;
}

/* ---- Optimizers ---------------------------------------------------------------------------- */

JSON_NAMES(optimizer_name, ty_optimizer_kind, ty_optimizer_name)

static bool has_betas(const void *optimizer)
{
    return ty_optimizer_row_of(((const ty_optimizer *)optimizer)->kind)->has_betas;
}

static bool has_momentum(const void *optimizer)
{
    return ty_optimizer_row_of(((const ty_optimizer *)optimizer)->kind)->has_momentum;
}

static const json_field optimizer_fields[] = {
    {"kind", JSON_NAME, JSON_AT(ty_optimizer, kind), .name = optimizer_name,
     .name_count = TY_OPTIMIZER_COUNT},
    {"learning_rate", JSON_NUMBER, JSON_AT(ty_optimizer, learning_rate), 0, HUGE_VAL},
    {"beta1", JSON_NUMBER, JSON_AT(ty_optimizer, beta1), 0, 1, .applies = has_betas},
    {"beta2", JSON_NUMBER, JSON_AT(ty_optimizer, beta2), 0, 1, .applies = has_betas},
    {"epsilon", JSON_NUMBER, JSON_AT(ty_optimizer, epsilon), 0, HUGE_VAL, .applies = has_betas},
    {"momentum", JSON_NUMBER, JSON_AT(ty_optimizer, momentum), 0, 1, .applies = has_momentum},
    {"weight_decay", JSON_NUMBER, JSON_AT(ty_optimizer, weight_decay), 0, HUGE_VAL},
};
const json_record ty_optimizer_record = JSON_FLAT_RECORD(ty_optimizer, optimizer_fields);

/* ---- Workloads ----------------------------------------------------------------------------- */

static const json_field teacher_fields[] = {
    {"labelled", JSON_UINT32, JSON_AT(ty_teacher, labelled), 1, UINT32_MAX},
    {"every", JSON_UINT32, JSON_AT(ty_teacher, every), 1, TY_MAX_TEACHER_EVERY},
    {"decay", JSON_NUMBER, JSON_AT(ty_teacher, decay), 0, 1},
    {"consistency", JSON_NUMBER, JSON_AT(ty_teacher, consistency), 0, TY_MAX_CONSISTENCY},
    {"shift", JSON_UINT32, JSON_AT(ty_teacher, shift), 0, TY_MAX_SHIFT},
};
static const json_record teacher_record = JSON_FLAT_RECORD(ty_teacher, teacher_fields);

ty_status ty_teacher_read(const ty_json *object, ty_teacher *teacher, ty_error *error)
{
    const ty_json *t = NULL;

    TY_TRY(ty_json_object(object, "teacher", &t, error));
    return ty_record_read_all(t, &teacher_record, teacher, NULL, error);
}

/* Default: the usual format for numbers of that size. */
static ty_precision usual_precision(uint32_t element_bytes)
{
    return element_bytes == ty_precision_bytes(TY_PRECISION_BF16) ? TY_PRECISION_BF16
                                                                  : TY_PRECISION_FP32;
}

static bool has_unusual_precision(const void *workload)
{
    const ty_workload *w = workload;

    return w->precision != usual_precision(w->element_bytes);
}

static bool has_teacher(const void *workload)
{
    return ty_workload_has_teacher(workload);
}

static ty_status read_input(const ty_json *object, const json_field *field, void *workload,
                            const void *context, ty_error *error)
{
    (void)context;
    return read_dimensions(object, field->key, &((ty_workload *)workload)->input, error);
}

static void write_input(const json_field *field, const void *workload, const void *context,
                        ty_json_writer *writer)
{
    (void)context;
    write_dimensions(&((const ty_workload *)workload)->input, writer, field->key);
}

JSON_NAMES(precision_name, ty_precision, ty_precision_name)

static const char *input_kind_name(int i)
{
    return ty_input_kind_names[i];
}

JSON_NAMES(learning_name, ty_learning, ty_learning_name)

#define AT(member) JSON_AT(ty_workload, member)

/* Members of scenarios are absent in ordinary training. */
static const json_field fields[] = {
    {"name", JSON_TEXT, AT(name)},
    {"source", JSON_TEXT, AT(source)},
    {"element_bytes", JSON_UINT32, AT(element_bytes), 1, 8},
    {"precision", JSON_NAME, AT(precision), .name = precision_name,
     .name_count = TY_PRECISION_COUNT, .is_optional = true, .is_said = has_unusual_precision},
    {"input_kind", JSON_NAME, AT(input_kind), .name = input_kind_name, .name_count = 2},
    SHAPE("input_shape", read_input, write_input),
    {"sample_bytes", JSON_UINT64, AT(sample_bytes), 0, TY_MAX_QUANTITY},
    {"tokens_per_sample", JSON_UINT64, AT(tokens_per_sample), 0, TY_MAX_QUANTITY},
    {"dataset", JSON_TEXT, AT(dataset)},
    {"global_batch", JSON_UINT32, AT(global_batch), 1, UINT32_MAX},
    {"optimizer", JSON_STRUCT, AT(optimizer), .of = &ty_optimizer_record,
     .schema = "optimizer.json"},
    {"learning", JSON_NAME, AT(learning), .absent = TY_LEARNING_GRADIENT, .name = learning_name,
     .name_count = TY_LEARNING_COUNT, .is_optional = true},
    {"local_steps", JSON_UINT32, AT(local_steps), 1, TY_MAX_LOCAL_STEPS, .is_optional = true},
    {"rotary_base", JSON_UINT64, AT(rotary_base), 1, TY_MAX_QUANTITY, .is_optional = true},
    {"input_s_per_sample", JSON_NUMBER, AT(input_s_per_sample), 0, TY_MAX_INPUT_S,
     .is_optional = true},
    {"deviation", JSON_NUMBER, AT(deviation), 0, TY_MAX_DEVIATION, .is_optional = true},
    {"teacher", JSON_STRUCT, AT(teacher), .of = &teacher_record, .is_optional = true,
     .is_said = has_teacher},
    {"layers", JSON_ROWS, AT(layers), 1, UINT32_MAX - 1, .of = &layer_record,
     .count_at = offsetof(ty_workload, layer_count), .read = read_layers},
};
const json_record ty_workload_record = JSON_RECORD(ty_workload, fields);

void ty_workload_free(ty_workload *workload)
{
    if (workload == NULL)
        return;
    ty_workload_index_clear(workload);
    ty_record_clear(&ty_workload_record, workload);
    ty_free(workload);
}

static ty_status read_workload(const ty_json *object, ty_workload *w, ty_error *error)
{
    TY_TRY(ty_json_schema(object, TY_WORKLOAD_SCHEMA, error));
    TY_TRY(ty_record_read_all(object, &ty_workload_record, w, NULL, error));
    if (!ty_json_has(object, "precision"))
        w->precision = usual_precision(w->element_bytes);
    if (w->local_steps == 1) /* the default */
        w->local_steps = 0;
    return TY_OK;
}

ty_status ty_workload_from_json(const ty_json *object, ty_workload **out, ty_error *error)
{
    char place[TY_JSON_PLACE_SIZE];
    ty_workload *workload = ty_alloc(1, sizeof *workload);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(workload != NULL, error));
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

JSON_LOAD(ty_workload_load, ty_workload, ty_workload_from_json)

void ty_workload_to_json(const ty_workload *workload, ty_json_writer *writer, const char *key)
{
    ty_record_write_document(TY_WORKLOAD_SCHEMA, &ty_workload_record, workload, NULL, writer, key);
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

/* Members that depend on the size of images are left out. */
static void forget_size(ty_layer *layer)
{
    if (ty_layer_row_of(layer)->is_opaque)
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
    TY_TRY(ty_check_memory(network.layers != NULL, error));
    memcpy(network.layers, workload->layers, workload->layer_count * sizeof *network.layers);
    for (uint32_t l = 0; l < network.layer_count; l++)
        forget_size(&network.layers[l]);
    network.input.dimensions[1] = network.input.dimensions[2] = 0;
    network.sample_bytes = 0;
    status = ty_workload_digest(&network, out, error);
    ty_free(network.layers);
    return status;
}
