/**
 * @file weight_names.h
 * Names and layouts of a workload's parameter tensors in files of other frameworks. Internal to
 * execute/.
 *
 * Names and layouts are those of Hugging Face's transformers (models/gpt2, llama, qwen2, qwen3,
 * mistral, mixtral, qwen3_moe, bert: modeling_*.py) and of torchvision's ResNets. The layers'
 * names, which every builder of workloads chooses alike, determine the family. Models of no family,
 * such as lenet or mlp, use this project's names: LAYER.weight, LAYER.bias and so on. So does T5,
 * whose blocks all use the first one's biases by distance; here only the first block does.
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

/** A tensor of a file: contiguous rows of a layer's tensor. */
typedef struct weight_piece {
    char name[WEIGHT_NAME_SIZE];
    char other[WEIGHT_NAME_SIZE]; /* alternative name; "": none */
    uint32_t dimension_count;     /* in the file */
    uint64_t dimensions[4];
    uint64_t rows, columns; /* in the layer's tensor */
    bool is_transposed;     /* in the file [columns][rows] */
} weight_piece;

weight_names weight_names_of(const ty_workload *workload);
/** "gpt2"; "trainyard" for this project's names. */
const char *weight_family_name(weight_family family);
/** The index-th piece of a layer's tensor, in memory order; false after the last one, and for
 * tensors that the layer does not have or shares with another. */
bool weight_piece_at(const weight_names *names, uint32_t layer, uint32_t tensor, uint32_t index,
                     weight_piece *out);
/** A name without the family's optional prefix ("transformer.", "model.", "bert."); the name itself
 * if it has none. */
const char *weight_short_name(const weight_names *names, const char *name);
/** Whether files of the family may also have such a tensor: masks, copies of tied matrices, heads
 * for pretraining. */
bool weight_is_spare(const weight_names *names, const char *name);

#endif
