/* Data sets: the loader of a workload, and the order in which samples are visited. */
#include "dataset.h"
#include "tokens.h"

#include <string.h>

static const struct {
    const char *name;
    ty_status (*open)(ty_dataset *dataset, const char *directory, bool is_test, ty_error *error);
} loaders[] = {
    {"fashion-mnist", dataset_open_idx},
    {"text", dataset_open_text},
    {"synthetic", dataset_open_synthetic},
    {"corridor", dataset_open_corridor},
};

/* Scores of the loss, along the last dimension: with a teacher those of both models. */
static uint64_t score_count(const ty_workload *workload)
{
    const ty_shape *scores = ty_layer_input_shape(workload, workload->layer_count - 1, 0);

    return scores->dimensions[scores->dimension_count - 1];
}

uint64_t ty_labels_per_sample(const ty_workload *workload)
{
    return ty_shape_elements(ty_layer_input_shape(workload, workload->layer_count - 1, 0)) /
           score_count(workload);
}

uint64_t ty_class_count(const ty_workload *workload)
{
    const uint64_t scores = score_count(workload);

    if (ty_workload_has_teacher(workload))
        return scores / 2;
    return scores == 1 ? 2 : scores; /* one score compares two labels */
}

/* The required shape of a sample, from the first and the last layers. */
static ty_status shape_from_workload(const ty_workload *workload, ty_dataset *dataset,
                                     ty_error *error)
{
    const ty_layer *loss = &workload->layers[workload->layer_count - 1];

    if (!ty_layer_row_of(loss)->is_loss || loss->input_count != 1)
        return ty_fail(error, TY_EINVAL, "%s: found layer %s at the end, expected a loss",
                       workload->name, loss->name);
    dataset->teacher = workload->teacher;
    dataset->view = workload->input;
    dataset->view_count = ty_workload_has_teacher(workload) ? 2 : 1;
    dataset->view.dimensions[0] /= dataset->view_count;
    dataset->input_count = ty_shape_elements(&dataset->view);
    dataset->class_count = ty_class_count(workload);
    dataset->label_count = ty_labels_per_sample(workload);
    if (workload->input_kind != TY_INPUT_TOKEN)
        return TY_OK;
    dataset->token_count = UINT64_MAX;
    for (uint32_t l = 0; l < workload->layer_count; l++) {
        const ty_layer *layer = &workload->layers[l];
        if (ty_layer_row_of(layer)->table == TY_TABLE_OF_TOKENS &&
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
                       "%s: found data set %s, expected fashion-mnist, text, synthetic or corridor",
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
    if (!is_test && workload->teacher.labelled > dataset->sample_count) {
        status = ty_fail(error, TY_EINVAL,
                         "%s: found a teacher with labels of %u samples, expected at most %llu, "
                         "which the data set has",
                         workload->name, workload->teacher.labelled,
                         (unsigned long long)dataset->sample_count);
        goto cleanup;
    }
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

    if (dataset->make == NULL)
        return TY_OK;
    TY_TRY(dataset_ahead_open(dataset, reading, &made, error));
    dataset_ahead_close(dataset->ahead);
    dataset->ahead = made;
    return TY_OK;
}

ty_status ty_dataset_sample(const ty_dataset *dataset, uint64_t sample, float *input,
                            int32_t *tokens, int32_t *labels, ty_error *error)
{
    ty_status status = TY_OK;

    if (dataset->ahead != NULL)
        status = dataset_ahead_take(dataset->ahead, sample, input, labels, error);
    else
        dataset->sample(dataset, sample, input, tokens, labels);
    if (status == TY_OK && input != NULL && dataset->view_count > 1)
        memcpy(input + dataset->input_count, input, dataset->input_count * sizeof *input);
    return status;
}

void ty_dataset_expect(const ty_dataset *dataset, uint64_t sample)
{
    if (dataset->ahead != NULL)
        dataset_ahead_expect(dataset->ahead, sample);
}

void ty_dataset_fill(const ty_dataset *dataset)
{
    if (dataset->fill != NULL)
        dataset->fill(dataset);
}

uint32_t ty_dataset_skipped(const ty_dataset *dataset, const char **first)
{
    return dataset->ahead != NULL ? dataset_ahead_skipped(dataset->ahead, first) : 0;
}

/*
 * A Feistel network permutes the numbers of 2h bits, where 4^h is the first power of 4 that holds
 * all samples; a result that is too large is permuted again until it fits ("cycle walking"; Black
 * and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002). At most 4 rounds of it on
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

/* Keys of permutations and displacements, different from those of all epochs. */
enum { CHOSEN_KEY = -1, CHOSEN_EPOCH_KEY = -2, VIEW_KEY = -3 };

uint64_t ty_dataset_visited(const ty_dataset *dataset, uint64_t seed, uint64_t position,
                            bool *has_label)
{
    const ty_teacher *teacher = &dataset->teacher;
    const uint64_t count = teacher->labelled;
    uint64_t at, chosen;

    *has_label = count == 0 || position % teacher->every == 0;
    if (count == 0 || !*has_label)
        return ty_dataset_shuffled(dataset, seed, position);
    at = position / teacher->every;
    chosen = permute(dataset_hash(dataset_hash(seed, (uint64_t)CHOSEN_EPOCH_KEY), at / count),
                     count, at % count);
    return permute(dataset_hash(seed, (uint64_t)CHOSEN_KEY), dataset->sample_count, chosen);
}

/* In place, from the side that moves first; the image's edge fills the gap. */
static void displace(float *image, uint64_t height, uint64_t width, int64_t down, int64_t right)
{
    const int64_t h = (int64_t)height, w = (int64_t)width;

    for (int64_t i = 0; i < h; i++) {
        const int64_t y = down > 0 ? h - 1 - i : i;
        const int64_t from = y - down < 0 ? 0 : y - down >= h ? h - 1 : y - down;
        float *to = image + y * w;
        const float *row = image + from * w;

        for (int64_t j = 0; j < w; j++) {
            const int64_t x = right > 0 ? w - 1 - j : j;
            const int64_t at = x - right < 0 ? 0 : x - right >= w ? w - 1 : x - right;
            to[x] = row[at];
        }
    }
}

void ty_dataset_displace(const ty_dataset *dataset, uint64_t seed, uint64_t position, float *input)
{
    const uint64_t shift = dataset->teacher.shift, ways = 2 * shift + 1;
    const ty_shape *view = &dataset->view;

    for (uint64_t v = 0; v < dataset->view_count && shift > 0; v++) {
        const uint64_t bits =
            dataset_hash(dataset_hash(seed, (uint64_t)VIEW_KEY), 2 * position + v);
        const int64_t down = (int64_t)((bits & UINT32_MAX) % ways) - (int64_t)shift;
        const int64_t right = (int64_t)((bits >> 32) % ways) - (int64_t)shift;

        for (uint64_t c = 0; c < view->dimensions[0]; c++)
            displace(input + v * dataset->input_count +
                         c * view->dimensions[1] * view->dimensions[2],
                     view->dimensions[1], view->dimensions[2], down, right);
    }
}
