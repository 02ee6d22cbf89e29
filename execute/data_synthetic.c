/*
 * Data made from nothing, of any shape, and learnable. Numbers: noise plus a pattern of signs that
 * belongs to the label. Tokens: each follows from the one before by a fixed permutation-like rule;
 * where there are fewer labels than tokens, they belong to the last of these. Clicks, where the
 * workload has bags of embeddings: indices of which few are frequent, as categories of clicks are,
 * and numbers; whether there was a click is the sign of a sum to which each index, or number, adds
 * its own part.
 */
#include "dataset.h"

enum { TRAIN_SAMPLES = 65536, TEST_SAMPLES = 8192 };

#define SAMPLE_KEY 0x53796e7468657469u
#define PATTERN_KEY 0x5061747465726e73u
#define TOKEN_KEY 0x546f6b656e73u
#define CLICK_KEY 0x436c69636b73u

/* In [-1, 1). */
static float noise(uint64_t bits)
{
    return (float)(int32_t)(bits >> 32) * 0x1p-31f;
}

static void numbers_sample(const ty_dataset *dataset, uint64_t sample, float *input,
                           int32_t *tokens, int32_t *labels)
{
    uint64_t key = dataset_hash(SAMPLE_KEY, dataset->first + sample);
    uint64_t label = key % dataset->class_count;

    (void)tokens;
    if (input != NULL)
        for (uint64_t i = 0; i < dataset->input_count; i++) {
            uint64_t sign = dataset_hash(PATTERN_KEY + label, i) >> 63;
            input[i] = noise(dataset_hash(key, i)) + (sign != 0 ? 0.5f : -0.5f);
        }
    if (labels != NULL)
        for (uint64_t i = 0; i < dataset->label_count; i++)
            labels[i] = (int32_t)label;
}

static void tokens_sample(const ty_dataset *dataset, uint64_t sample, float *input, int32_t *tokens,
                          int32_t *labels)
{
    const uint64_t unlabelled = dataset->input_count - dataset->label_count;
    uint64_t token = dataset_hash(SAMPLE_KEY, dataset->first + sample) % dataset->token_count;

    (void)input;
    for (uint64_t i = 0; i < dataset->input_count; i++) {
        if (tokens != NULL)
            tokens[i] = (int32_t)token;
        token = dataset_hash(TOKEN_KEY, token) % dataset->token_count;
        if (labels != NULL && i >= unlabelled)
            labels[i - unlabelled] = (int32_t)(token % dataset->class_count);
    }
}

uint64_t dataset_skewed(uint64_t count, uint64_t bits)
{
    uint64_t runs = 1, first, length;

    while (runs < 63 && ((uint64_t)1 << runs) - 1 < count)
        runs++;
    first = ((uint64_t)1 << bits % runs) - 1;
    length = first + 1 < count - first ? first + 1 : count - first;
    return first + dataset_hash(bits, 0) % length;
}

/* What a number of a sample is: an index of a table, or, with no rows, just a number. */
typedef struct click_place {
    uint64_t rows, table; /* table: the place of its first index */
} click_place;

static void clicks_sample(const ty_dataset *dataset, uint64_t sample, float *input, int32_t *tokens,
                          int32_t *labels)
{
    const click_place *places = dataset->state;
    const uint64_t key = dataset_hash(SAMPLE_KEY, dataset->first + sample);
    float sum = 0;

    (void)tokens;
    for (uint64_t i = 0; i < dataset->input_count; i++) {
        const uint64_t bits = dataset_hash(key, i);
        float value = noise(bits);
        if (places[i].rows > 0) {
            const uint64_t index = dataset_skewed(places[i].rows, bits);
            value = (float)index;
            sum += noise(dataset_hash(CLICK_KEY + places[i].table, index));
        } else {
            sum += dataset_hash(CLICK_KEY + i, 0) >> 63 != 0 ? value : -value;
        }
        if (input != NULL)
            input[i] = value;
    }
    if (labels != NULL)
        for (uint64_t i = 0; i < dataset->label_count; i++)
            labels[i] = sum > 0;
}

/* Of bags that share a number the one with the fewest rows counts. */
static ty_status clicks_open(ty_dataset *dataset, ty_error *error)
{
    const ty_workload *w = dataset->workload;
    click_place *places = NULL;

    for (uint32_t l = 0; l < w->layer_count; l++) {
        const uint64_t *a = w->layers[l].attributes;
        if (w->layers[l].kind != TY_LAYER_EMBEDDING_BAG)
            continue;
        if (places == NULL)
            places = ty_alloc(dataset->input_count, sizeof *places);
        if (places == NULL)
            return ty_fail(error, TY_ENOMEM, "out of memory for %llu numbers a sample",
                           (unsigned long long)dataset->input_count);
        for (uint64_t i = a[TY_FIRST_ROW]; i < a[TY_FIRST_ROW] + a[TY_ROWS]; i++)
            if (places[i].rows == 0 || a[TY_VOCABULARY] < places[i].rows)
                places[i] = (click_place){a[TY_VOCABULARY], a[TY_FIRST_ROW]};
    }
    if (places == NULL)
        return TY_OK;
    dataset->state = places;
    dataset->state_free = ty_free;
    dataset->sample = clicks_sample;
    return TY_OK;
}

ty_status dataset_open_synthetic(ty_dataset *dataset, const char *unused, bool is_test,
                                 ty_error *error)
{
    (void)unused;
    if (dataset->token_count != 0 && dataset->label_count > dataset->input_count)
        return ty_fail(error, TY_EINVAL,
                       "synthetic data has at most one label per token, the workload expects more");
    dataset->first = is_test ? TRAIN_SAMPLES : 0;
    dataset->sample_count = is_test ? TEST_SAMPLES : TRAIN_SAMPLES;
    dataset->sample = dataset->token_count != 0 ? tokens_sample : numbers_sample;
    return clicks_open(dataset, error);
}
