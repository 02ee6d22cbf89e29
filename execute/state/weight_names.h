/**
 * @file weight_names.h
 * What the parameter tensors of a workload's layers are called in files of others, and how they lie
 * there. Internal to execute/.
 *
 * Names and layouts are those of Hugging Face's transformers (models/gpt2, llama, qwen2, qwen3,
 * mistral, mixtral, qwen3_moe, bert: modeling_*.py) and of torchvision's ResNets. Which they are
 * follows from the layers, as every builder of workloads names them. Networks that none of these
 * are, lenet or mlp, have names of our own: LAYER.weight, LAYER.bias and so on. So has T5, all of
 * whose blocks use the first one's biases by distance: here the first block alone does.
 */
#ifndef TY_EXECUTE_WEIGHT_NAMES_H
#define TY_EXECUTE_WEIGHT_NAMES_H

#include "layer_tensors.h"

typedef enum weight_family {
    WEIGHTS_OWN,
    WEIGHTS_GPT2,
    WEIGHTS_LLAMA,
    WEIGHTS_BERT,
    WEIGHTS_RESNET,
    WEIGHT_FAMILY_COUNT
} weight_family;

typedef struct weight_names {
    const ty_workload *workload; /* borrowed */
    weight_family family;
} weight_names;

#define WEIGHT_NAME_SIZE 160

/** A tensor of a file: rows that lie together in a tensor of ours. */
typedef struct weight_piece {
    char name[WEIGHT_NAME_SIZE];
    char other[WEIGHT_NAME_SIZE]; /* what it may be called besides; "" */
    uint32_t dimension_count;     /* in the file */
    uint64_t dimensions[4];
    uint64_t rows, columns; /* of ours */
    bool is_transposed;     /* in the file [columns][rows] */
} weight_piece;

weight_names weight_names_of(const ty_workload *workload);
/** "gpt2"; "trainyard" where the names are our own. */
const char *weight_family_name(weight_family family);
/** The index-th piece of a tensor of a layer, in the order in which they lie; false behind the last
 * one, and for tensors that the layer does not have or has from another. */
bool weight_piece_at(const weight_names *names, uint32_t layer, uint32_t tensor, uint32_t index,
                     weight_piece *out);
/** What a name is without the part that every tensor of the family may begin with
 * ("transformer.", "model.", "bert."); the name itself where it has none. */
const char *weight_short_name(const weight_names *names, const char *name);
/** Whether files of the family may have such a tensor besides: masks, copies of tied matrices,
 * heads that were trained with. */
bool weight_is_spare(const weight_names *names, const char *name);

#endif
