/* Workloads: names and tables of their parts, sums over ranges of layers, cuts between them. */
#include "ty_workload.h"

#include "ty_base.h"
#include "ty_json.h"
#include "workload_layers.h"

#include <stdio.h>

const char *const ty_input_kind_names[2] = {"real", "token"};
const char *const ty_learning_names[TY_LEARNING_COUNT] = {"gradient", "evolution", "reinforcement"};

const char *ty_learning_name(ty_learning learning)
{
    return (unsigned)learning < TY_LEARNING_COUNT ? ty_learning_names[learning] : "unknown";
}

bool ty_attribute_is_shown(const ty_layer *layer, ty_attribute attribute)
{
    ty_attribute_use use = ty_layer_attribute_use(layer->kind, attribute);
    return use == TY_ATTRIBUTE_REQUIRED ||
           (use == TY_ATTRIBUTE_OPTIONAL && layer->attributes[attribute] != 0);
}

bool ty_workload_has_images(const ty_workload *workload)
{
    return workload->input_kind == TY_INPUT_REAL && workload->input.dimension_count == 3;
}

ty_status ty_layer_signature(const ty_workload *workload, uint32_t layer, char **out,
                             ty_error *error)
{
    const ty_layer *l = &workload->layers[layer];
    ty_text text = {0};
    char shape[TY_SHAPE_TEXT_SIZE], number[32];

    ty_text_add(&text, ty_layer_kind_name(l->kind));
    for (ty_attribute a = 0; a < TY_ATTRIBUTE_COUNT; a++) {
        if (ty_attribute_is_shown(l, a))
            ty_text_addf(&text, " %s=%llu", ty_attribute_name(a),
                         (unsigned long long)l->attributes[a]);
    }
    for (uint32_t i = 0; i == 0 || i < l->input_count; i++) {
        ty_shape_text(ty_layer_input_shape(workload, layer, i), shape);
        ty_text_addf(&text, "%s%s", i == 0 ? " input=" : ",", shape);
    }
    if (ty_layer_row_of(l)->is_opaque) { /* has no attributes: its times identify it */
        ty_format_number(l->measured_forward_s, number);
        ty_text_addf(&text, " forward_s=%s", number);
        ty_format_number(l->measured_backward_s, number);
        ty_text_addf(&text, " backward_s=%s", number);
    }
    if (l->is_frozen)
        ty_text_add(&text, " is_frozen=1"); /* no gradient of its parameters */
    if (workload->element_bytes != 4)
        ty_text_addf(&text, " element_bytes=%u", workload->element_bytes);
    if (workload->precision == TY_PRECISION_TF32 || ty_precision_is_narrow(workload->precision))
        ty_text_addf(&text, " precision=%s", ty_precision_name(workload->precision));
    return ty_text_take(&text, out, error);
}

void ty_workload_set_precision(ty_workload *workload, ty_precision precision)
{
    const uint64_t old = workload->element_bytes, bytes = ty_precision_bytes(precision);

    for (uint32_t i = 0; i < workload->layer_count; i++) {
        ty_layer *l = &workload->layers[i];
        l->parameter_bytes = l->parameter_bytes / old * bytes;
        l->output_bytes = l->output_bytes / old * bytes;
        l->stash_bytes = l->stash_bytes / old * bytes;
        l->traffic_bytes = l->traffic_bytes / old * bytes;
    }
    for (uint32_t i = 0; i < workload->layer_count; i++)
        workload->index.cut_bytes[i] = workload->index.cut_bytes[i] / old * bytes;
    workload->element_bytes = (uint32_t)bytes;
    workload->precision = precision;
}

/* ---- Frozen layers ------------------------------------------------------------------------- */

bool ty_layer_is_trained(const ty_workload *workload, uint32_t layer)
{
    const ty_layer *l = &workload->layers[layer];

    if (workload->learning == TY_LEARNING_EVOLUTION || l->is_frozen)
        return false;
    return l->parameter_bytes > 0 ||
           (l->tied_to != TY_NO_LAYER && !workload->layers[l->tied_to].is_frozen);
}

bool ty_layer_has_table(const ty_layer *layer)
{
    return ty_layer_row_of(layer)->table != TY_TABLE_NONE;
}

bool ty_layer_has_heads(const ty_layer *layer)
{
    return ty_layer_row_of(layer)->split == TY_SPLIT_HEADS;
}

bool ty_layer_is_bag(const ty_layer *layer)
{
    return ty_layer_row_of(layer)->table == TY_TABLE_OF_BAG;
}

/* Parameters may be unknown (imported traces), so only frozen layers are known not to be trained.
 */
static bool has_backward_everywhere(const ty_workload *workload)
{
    for (uint32_t i = 0; i < workload->layer_count; i++)
        if (workload->layers[i].is_frozen)
            return false;
    return workload->learning != TY_LEARNING_EVOLUTION;
}

uint32_t ty_workload_first_backward(const ty_workload *workload)
{
    uint32_t first = 0;

    if (has_backward_everywhere(workload))
        return 0;
    while (first < workload->layer_count && !ty_layer_is_trained(workload, first))
        first++;
    return first;
}

/* ---- Teachers ------------------------------------------------------------------------------ */

bool ty_workload_has_teacher(const ty_workload *workload)
{
    return workload->teacher.labelled > 0;
}

/* The trained layer with parameters that has the index of `layer` among the frozen ones, or vice
 * versa. */
static uint32_t counterpart(const ty_workload *workload, uint32_t layer)
{
    const ty_layer *own = &workload->layers[layer];
    uint32_t before = 0;

    if (!ty_workload_has_teacher(workload) || own->parameter_bytes == 0)
        return TY_NO_LAYER;
    for (uint32_t i = 0; i < layer; i++)
        before += workload->layers[i].parameter_bytes > 0 &&
                  workload->layers[i].is_frozen == own->is_frozen;
    for (uint32_t i = 0; i < workload->layer_count; i++)
        if (workload->layers[i].parameter_bytes > 0 &&
            workload->layers[i].is_frozen != own->is_frozen && before-- == 0)
            return i;
    return TY_NO_LAYER;
}

uint32_t ty_layer_leader(const ty_workload *workload, uint32_t layer)
{
    return workload->layers[layer].is_frozen ? counterpart(workload, layer) : TY_NO_LAYER;
}

uint32_t ty_layer_follower(const ty_workload *workload, uint32_t layer)
{
    return workload->layers[layer].is_frozen ? TY_NO_LAYER : counterpart(workload, layer);
}

const char *ty_workload_whole_reason(const ty_workload *workload)
{
    if (workload->learning == TY_LEARNING_EVOLUTION)
        return "a population is evaluated";
    if (workload->learning == TY_LEARNING_REINFORCEMENT)
        return "a policy plays episodes";
    return ty_workload_has_teacher(workload) ? "a teacher follows what is trained" : NULL;
}

uint64_t ty_workload_episode_bytes(const ty_workload *workload)
{
    const uint64_t steps = workload->input.dimensions[0];

    return sizeof(float) * (ty_shape_elements(&workload->input) + 2 * steps + 1);
}

bool ty_workload_has_times(const ty_workload *workload)
{
    for (uint32_t l = 0; l < workload->layer_count; l++)
        if (workload->layers[l].measured_forward_s > 0 ||
            workload->layers[l].measured_backward_s > 0)
            return true;
    return false;
}

bool ty_workload_is_dense(const ty_workload *workload)
{
    bool has_experts = false;

    for (uint32_t l = 0; l < workload->layer_count; l++) {
        const ty_layer *layer = &workload->layers[l];
        const ty_layer_row *row = ty_layer_row_of(layer);
        if (row->has_activation && (!row->has_experts || layer->attributes[TY_SHARED_FEATURES] > 0))
            return true;
        has_experts = has_experts || row->has_experts;
    }
    return !has_experts;
}

bool ty_workload_has_experts(const ty_workload *workload)
{
    for (uint32_t l = 0; l < workload->layer_count; l++)
        if (ty_layer_row_of(&workload->layers[l])->has_experts)
            return true;
    return false;
}

void ty_workload_mark_backward(const ty_workload *workload, bool *takes_part)
{
    bool is_everywhere = has_backward_everywhere(workload);

    for (uint32_t i = 0; i < workload->layer_count; i++) {
        const ty_layer *l = &workload->layers[i];
        takes_part[i] = is_everywhere || ty_layer_is_trained(workload, i);
        for (uint32_t k = 0; k < l->input_count; k++)
            takes_part[i] = takes_part[i] || takes_part[l->inputs[k]];
    }
}

/* ---- Sums ---------------------------------------------------------------------------------- */

uint64_t ty_workload_parameter_bytes(const ty_workload *workload, uint32_t first, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = first; i < first + count; i++)
        sum += workload->layers[i].parameter_bytes;
    return sum;
}

uint64_t ty_workload_stash_bytes(const ty_workload *workload, uint32_t first, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = first; i < first + count; i++)
        sum += workload->layers[i].stash_bytes;
    return sum;
}

double ty_workload_forward_flop(const ty_workload *workload, uint32_t first, uint32_t count)
{
    double sum = 0.0;
    for (uint32_t i = first; i < first + count; i++)
        sum += workload->layers[i].forward_flop;
    return sum;
}

double ty_workload_backward_flop(const ty_workload *workload, uint32_t first, uint32_t count)
{
    double sum = 0.0;
    for (uint32_t i = first; i < first + count; i++)
        sum += workload->layers[i].backward_flop;
    return sum;
}

bool ty_workload_is_divisible(const ty_workload *workload, uint32_t layer)
{
    if (layer == 0 || layer >= workload->layer_count)
        return false;
    for (uint32_t i = layer; i < workload->layer_count; i++)
        if (workload->layers[i].input_count == 0)
            return false;
    return true;
}

bool ty_workload_is_cut(const ty_workload *workload, uint32_t layer)
{
    if (layer == 0 || layer >= workload->layer_count)
        return false;
    for (uint32_t i = layer; i < workload->layer_count; i++) {
        const ty_layer *l = &workload->layers[i];
        if (l->input_count == 0)
            return false; /* the batch crosses too */
        for (uint32_t k = 0; k < l->input_count; k++) {
            if (l->inputs[k] < layer && l->inputs[k] != layer - 1)
                return false;
        }
    }
    return workload->index.last_readers[layer - 1] >= layer;
}

void ty_workload_index_clear(ty_workload *workload)
{
    ty_free(workload->index.last_readers);
    ty_free(workload->index.blocks);
    ty_free(workload->index.cut_bytes);
    workload->index = (ty_workload_index){0};
}
