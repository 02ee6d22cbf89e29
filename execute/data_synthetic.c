/*
 * Data made from nothing, of any shape, and learnable. Numbers: noise plus a pattern of signs that
 * belongs to the label. Tokens: each follows from the one before by a fixed permutation-like rule;
 * where there are fewer labels than tokens, they belong to the last of these.
 */
#include "dataset.h"

enum { TRAIN_SAMPLES = 65536, TEST_SAMPLES = 8192 };

#define SAMPLE_KEY 0x53796e7468657469u
#define PATTERN_KEY 0x5061747465726e73u
#define TOKEN_KEY 0x546f6b656e73u

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
    return TY_OK;
}
