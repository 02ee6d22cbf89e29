/* Data sets: which loader serves a workload, and the order in which samples are visited. */
#include "dataset.h"

#include <string.h>

static const struct {
    const char *name;
    ty_status (*open)(ty_dataset *dataset, const char *directory, bool is_test, ty_error *error);
} loaders[] = {
    {"fashion-mnist", dataset_open_idx},
    {"text", dataset_open_text},
    {"synthetic", dataset_open_synthetic},
};

uint64_t dataset_hash(uint64_t key, uint64_t counter)
{
    uint64_t x = key + (counter + 1) * 0x9e3779b97f4a7c15u;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* What a sample has to look like, from the first and the last layers. */
static ty_status shape_from_workload(const ty_workload *workload, ty_dataset *dataset,
                                     ty_error *error)
{
    const ty_layer *loss = &workload->layers[workload->layer_count - 1];
    const ty_shape *logits;

    if (loss->kind != TY_LAYER_SOFTMAX_CROSS_ENTROPY || loss->input_count != 1)
        return ty_fail(error, TY_EINVAL, "%s: found layer %s at the end, expected a loss",
                       workload->name, loss->name);
    logits = &workload->layers[loss->inputs[0]].output;
    dataset->input_count = ty_shape_elements(&workload->input);
    dataset->class_count = logits->dimensions[logits->dimension_count - 1];
    dataset->label_count = ty_shape_elements(logits) / dataset->class_count;
    if (dataset->class_count == 1) /* the score of one label against the other */
        dataset->class_count = 2;
    if (workload->input_kind != TY_INPUT_TOKEN)
        return TY_OK;
    dataset->token_count = UINT64_MAX;
    for (uint32_t l = 0; l < workload->layer_count; l++) {
        const ty_layer *layer = &workload->layers[l];
        if (layer->kind == TY_LAYER_EMBEDDING &&
            layer->attributes[TY_VOCABULARY] < dataset->token_count)
            dataset->token_count = layer->attributes[TY_VOCABULARY];
    }
    return TY_OK;
}

ty_status ty_dataset_open(const ty_workload *workload, const char *directory, bool is_test,
                          ty_dataset **out, ty_error *error)
{
    const size_t count = sizeof loaders / sizeof *loaders;
    ty_dataset *dataset = NULL;
    ty_status status = TY_OK;
    size_t i = 0;

    while (i < count && strcmp(loaders[i].name, workload->dataset) != 0)
        i++;
    if (i == count)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "%s: found data set %s, expected fashion-mnist, text or synthetic",
                       workload->name, workload->dataset);
    dataset = ty_alloc(1, sizeof *dataset);
    if (dataset == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for data set %s", workload->dataset);
    dataset->workload = workload;
    TY_CHECK(shape_from_workload(workload, dataset, error), status, cleanup);
    if (loaders[i].open == dataset_open_synthetic && directory != NULL)
        status = dataset->token_count > 0 ? dataset_open_text(dataset, directory, is_test, error)
                                          : dataset_open_images(dataset, directory, is_test, error);
    else
        status = loaders[i].open(dataset, directory, is_test, error);
    TY_CHECK(status, status, cleanup);
    TY_CHECK(ty_dataset_prepare(dataset, &(ty_reading){0}, error), status, cleanup);
    *out = dataset;
    dataset = NULL; /* given away */

cleanup:
    ty_dataset_close(dataset);
    return status;
}

void ty_dataset_close(ty_dataset *dataset)
{
    if (dataset == NULL)
        return;
    ty_free(dataset->inputs);
    ty_free(dataset->labels);
    ty_tokens_close(dataset->tokens);
    dataset_ahead_close(dataset->ahead);
    if (dataset->state_free != NULL)
        dataset->state_free(dataset->state);
    ty_free(dataset);
}

uint64_t ty_dataset_sample_count(const ty_dataset *dataset)
{
    return dataset->sample_count;
}

bool ty_dataset_takes_work(const ty_dataset *dataset)
{
    return dataset->make != NULL;
}

double ty_dataset_stored_bytes(const ty_dataset *dataset, uint64_t sample)
{
    return dataset->stored_bytes != NULL ? dataset->stored_bytes(dataset, sample)
                                         : dataset->sample_bytes;
}

double ty_dataset_data_bytes(const ty_dataset *dataset)
{
    return dataset->data_bytes;
}

ty_status ty_dataset_prepare(ty_dataset *dataset, const ty_reading *reading, ty_error *error)
{
    dataset_ahead *made = NULL;
    ty_status status;

    if (dataset->make == NULL)
        return TY_OK;
    status = dataset_ahead_open(dataset, reading, &made, error);
    if (status != TY_OK)
        return status;
    dataset_ahead_close(dataset->ahead);
    dataset->ahead = made;
    return TY_OK;
}

ty_status ty_dataset_sample(const ty_dataset *dataset, uint64_t sample, float *input,
                            int32_t *tokens, int32_t *labels, ty_error *error)
{
    if (dataset->ahead != NULL)
        return dataset_ahead_take(dataset->ahead, sample, input, labels, error);
    dataset->sample(dataset, sample, input, tokens, labels);
    return TY_OK;
}

void ty_dataset_expect(const ty_dataset *dataset, uint64_t sample)
{
    if (dataset->ahead != NULL)
        dataset_ahead_expect(dataset->ahead, sample);
}

uint32_t ty_dataset_skipped(const ty_dataset *dataset, const char **first)
{
    return dataset->ahead != NULL ? dataset_ahead_skipped(dataset->ahead, first) : 0;
}

/*
 * A Feistel network permutes the numbers of 2h bits, where 4^h is the first power of 4 that holds
 * all samples; a result that is too large is put in again until it fits ("cycle walking"; Black and
 * Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002). At most 4 rounds of it on
 * average.
 */
static uint64_t permute(uint64_t key, uint64_t count, uint64_t at)
{
    unsigned half = 1;

    while (half < 32 && (uint64_t)1 << (2 * half) < count)
        half++;
    do {
        uint64_t mask = ((uint64_t)1 << half) - 1;
        uint64_t left = at >> half, right = at & mask;
        for (uint64_t round = 0; round < 6; round++) {
            uint64_t next = left ^ (dataset_hash(key + round, right) & mask);
            left = right;
            right = next;
        }
        at = left << half | right;
    } while (at >= count);
    return at;
}

uint64_t ty_dataset_shuffled(const ty_dataset *dataset, uint64_t seed, uint64_t position)
{
    uint64_t epoch = position / dataset->sample_count;

    return permute(dataset_hash(seed, epoch), dataset->sample_count,
                   position % dataset->sample_count);
}
