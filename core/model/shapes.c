/* Attributes of layers, and shapes of their inputs. */
#include "workload_layers.h"

#include <stdio.h>

typedef enum range { SIZE, SIZE_OR_0, FLAG } range; /* >= 1; >= 0; 0 or 1 */

static const struct attribute {
    const char *name;
    range range;
} attributes[TY_ATTRIBUTE_COUNT] = {
    [TY_IN_FEATURES] = {"in_features", SIZE},
    [TY_OUT_FEATURES] = {"out_features", SIZE},
    [TY_HAS_BIAS] = {"has_bias", FLAG},
    [TY_IN_CHANNELS] = {"in_channels", SIZE},
    [TY_OUT_CHANNELS] = {"out_channels", SIZE},
    [TY_KERNEL_HEIGHT] = {"kernel_height", SIZE},
    [TY_KERNEL_WIDTH] = {"kernel_width", SIZE},
    [TY_STRIDE] = {"stride", SIZE},
    [TY_PADDING_HEIGHT] = {"padding_height", SIZE_OR_0},
    [TY_PADDING_WIDTH] = {"padding_width", SIZE_OR_0},
    [TY_GROUPS] = {"groups", SIZE},
    [TY_IS_AVERAGE] = {"is_average", FLAG},
    [TY_IS_GLOBAL] = {"is_global", FLAG},
    [TY_FEATURES] = {"features", SIZE},
    [TY_HIDDEN_FEATURES] = {"hidden_features", SIZE},
    [TY_IS_GATED] = {"is_gated", FLAG},
    [TY_VOCABULARY] = {"vocabulary", SIZE},
    [TY_POSITIONS] = {"positions", SIZE_OR_0},
    [TY_HEADS] = {"heads", SIZE},
    [TY_KV_HEADS] = {"kv_heads", SIZE},
    [TY_HEAD_SIZE] = {"head_size", SIZE},
    [TY_IS_CAUSAL] = {"is_causal", FLAG},
    [TY_EXPERTS] = {"experts", SIZE},
    [TY_EXPERTS_PER_TOKEN] = {"experts_per_token", SIZE},
    [TY_CLASSES] = {"classes", SIZE},
    [TY_FIRST_ROW] = {"first_row", SIZE_OR_0},
    [TY_ROWS] = {"rows", SIZE},
    [TY_TOKEN_TYPES] = {"token_types", SIZE},
    [TY_VALUE_HEAD_SIZE] = {"value_head_size", SIZE},
    [TY_HAS_QKV_BIAS] = {"has_qkv_bias", FLAG},
    [TY_HAS_QK_NORM] = {"has_qk_norm", FLAG},
    [TY_QUERY_RANK] = {"query_rank", SIZE},
    [TY_KV_RANK] = {"kv_rank", SIZE},
    [TY_ROTARY_SIZE] = {"rotary_size", SIZE},
    [TY_RELATIVE_BUCKETS] = {"relative_buckets", SIZE},
    [TY_IS_FUSED] = {"is_fused", FLAG},
    [TY_IS_RELU] = {"is_relu", FLAG},
    [TY_SHARED_FEATURES] = {"shared_features", SIZE},
    [TY_HAS_ROUTER_BIAS] = {"has_router_bias", FLAG},
    [TY_IS_REVERSED] = {"is_reversed", FLAG},
    [TY_IS_OF_FEATURES] = {"is_of_features", FLAG},
    [TY_WINDOW] = {"window", SIZE},
    [TY_CHOSEN_ROWS] = {"chosen_rows", SIZE},
    [TY_INDEX_HEADS] = {"index_heads", SIZE},
    [TY_INDEX_HEAD_SIZE] = {"index_head_size", SIZE},
    [TY_HAS_SINKS] = {"has_sinks", FLAG},
    [TY_HAS_GATE] = {"has_gate", FLAG},
    [TY_HAS_WIDE_QK_NORM] = {"has_wide_qk_norm", FLAG},
    [TY_LACKS_KEY_BIAS] = {"lacks_key_bias", FLAG},
    [TY_SHARES_KV] = {"shares_kv", FLAG},
    [TY_LATENT_FEATURES] = {"latent_features", SIZE},
    [TY_LACKS_SHIFT] = {"lacks_shift", FLAG},
    [TY_IS_SHARED] = {"is_shared", FLAG},
    [TY_STATE_SIZE] = {"state_size", SIZE},
    [TY_STEP_RANK] = {"step_rank", SIZE},
    [TY_HAS_STEP_NORMS] = {"has_step_norms", FLAG},
};

_Static_assert(TY_ATTRIBUTE_COUNT <= 64, "an attribute is a bit of the sets in rows of kinds");

const char *ty_attribute_name(ty_attribute attribute)
{
    return (unsigned)attribute < TY_ATTRIBUTE_COUNT ? attributes[attribute].name : "unknown";
}

bool ty_attribute_is_size(ty_attribute attribute)
{
    return attributes[attribute].range == SIZE;
}

bool ty_attribute_is_flag(ty_attribute attribute)
{
    return attributes[attribute].range == FLAG;
}

uint64_t ty_shape_elements(const ty_shape *shape)
{
    uint64_t product = 1;
    for (uint32_t i = 0; i < shape->dimension_count; i++)
        product *= shape->dimensions[i];
    return product;
}

void ty_shape_text(const ty_shape *shape, char out[TY_SHAPE_TEXT_SIZE])
{
    size_t length = 0;

    out[0] = '\0';
    for (uint32_t i = 0; i < shape->dimension_count && i < TY_MAX_DIMENSIONS; i++)
        length += (size_t)snprintf(out + length, TY_SHAPE_TEXT_SIZE - length, "%s%llu",
                                   i == 0 ? "" : "x", (unsigned long long)shape->dimensions[i]);
}

const ty_shape *ty_layer_input_shape(const ty_workload *workload, uint32_t layer, uint32_t i)
{
    const ty_layer *l = &workload->layers[layer];
    return i < l->input_count ? &workload->layers[l->inputs[i]].output : &workload->input;
}
