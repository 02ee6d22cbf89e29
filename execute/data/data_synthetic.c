/*
 * Generated data of any shape that can be learned. Numbers: noise plus a pattern of signs for the
 * label, in a pool of samples that are generated once and repeat. Tokens: each follows from the one
 * before by a fixed permutation-like rule; if there are fewer labels than tokens, they belong to
 * the last tokens. Clicks, if the workload has embedding bags: numbers, and indices with few
 * frequent values, like categories in click logs. The label is the sign of a sum with one term for
 * each index or number.
 */
#include "dataset.h"

#include <pthread.h>
#include <string.h>

enum { TRAIN_SAMPLES = 65536, TEST_SAMPLES = 8192 };

#define SAMPLE_KEY 0x53796e7468657469u
#define PATTERN_KEY 0x5061747465726e73u
#define TOKEN_KEY 0x546f6b656e73u
#define CLICK_KEY 0x436c69636b73u

/* Uniform in [-1, 1). */
static float noise(uint64_t bits)
{
    return (float)(int32_t)(bits >> 32) * 0x1p-31f;
}

/* ---- Numbers ------------------------------------------------------------------------------- */

/* As many samples as fit, up to 1,024, each generated on its first use. */
enum { POOL_SAMPLES = 1024 };
#define POOL_BYTES ((uint64_t)256 << 20)

typedef struct sample_pool {
    pthread_mutex_t lock;
    uint64_t count;
    bool is_made[POOL_SAMPLES];
    int8_t *values; /* owned: [count][input_count], in 64ths */
} sample_pool;

static void pool_free(void *state)
{
    sample_pool *pool = state;

    pthread_mutex_destroy(&pool->lock);
    ty_free(pool->values);
    ty_free(pool);
}

/* Spreads the lowest 8 bits over bytes, each as the second highest bit of one. */
static uint64_t spread(uint64_t bits)
{
    const uint64_t apart = (bits & 0xff) * 0x0101010101010101u & 0x8040201008040201u;

    return ((apart + 0x7f7f7f7f7f7f7f7fu) & 0x8080808080808080u) >> 1;
}

/* Eight numbers at a time: 7 bits of noise each, from -64 on, plus or minus 32 by the sign. */
static void pool_fill(int8_t *values, uint64_t count, uint64_t key, uint64_t label)
{
    uint64_t signs = 0;

    for (uint64_t i = 0; i < count; i += 8, signs >>= 8) {
        uint64_t sums;
        int8_t made[8];
        if (i % 64 == 0)
            signs = dataset_hash(PATTERN_KEY + label, i / 64);
        sums = (dataset_hash(key, i / 8) & 0x7f7f7f7f7f7f7f7fu) + spread(signs);
        for (int k = 0; k < 8; k++)
            made[k] = (int8_t)((int)(sums >> 8 * k & 255) - 96);
        memcpy(values + i, made, count - i < 8 ? count - i : 8);
    }
}

static uint64_t pool_key(const ty_dataset *dataset, uint64_t at)
{
    return dataset_hash(SAMPLE_KEY, dataset->first + at);
}

static const int8_t *pool_sample(const ty_dataset *dataset, uint64_t at)
{
    sample_pool *pool = dataset->state;
    const uint64_t count = dataset->input_count, key = pool_key(dataset, at);
    int8_t *values = pool->values + at * count;

    pthread_mutex_lock(&pool->lock);
    if (!pool->is_made[at])
        pool_fill(values, count, key, key % dataset->class_count);
    pool->is_made[at] = true;
    pthread_mutex_unlock(&pool->lock);
    return values;
}

static void numbers_fill(const ty_dataset *dataset)
{
    const sample_pool *pool = dataset->state;

    for (uint64_t at = 0; at < pool->count; at++)
        pool_sample(dataset, at);
}

static void numbers_convert(const int8_t *restrict values, uint64_t count, float *restrict input)
{
    for (uint64_t i = 0; i < count; i++)
        input[i] = (float)values[i] * 0x1p-6f;
}

static void numbers_sample(const ty_dataset *dataset, uint64_t sample, float *input,
                           int32_t *tokens, int32_t *labels)
{
    const sample_pool *pool = dataset->state;
    const uint64_t at = sample % pool->count;
    const int32_t label = (int32_t)(pool_key(dataset, at) % dataset->class_count);

    (void)tokens;
    if (input != NULL)
        numbers_convert(pool_sample(dataset, at), dataset->input_count, input);
    if (labels != NULL)
        for (uint64_t i = 0; i < dataset->label_count; i++)
            labels[i] = label;
}

static ty_status numbers_open(ty_dataset *dataset, ty_error *error)
{
    const uint64_t most = POOL_BYTES / dataset->input_count;
    sample_pool *pool = ty_alloc(1, sizeof *pool);

    TY_TRY(ty_check_memory(pool != NULL, error));
    pthread_mutex_init(&pool->lock, NULL);
    dataset->state = pool;
    dataset->state_free = pool_free;
    dataset->sample = numbers_sample;
    dataset->fill = numbers_fill;
    pool->count = most > POOL_SAMPLES ? POOL_SAMPLES : most > 1 ? most : 1;
    pool->values = ty_alloc(pool->count, dataset->input_count);
    if (pool->values == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for %llu synthetic samples",
                       (unsigned long long)pool->count);
    return TY_OK;
}

/* ---- Tokens -------------------------------------------------------------------------------- */

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

/* ---- Clicks -------------------------------------------------------------------------------- */

uint64_t dataset_skewed(uint64_t count, uint64_t bits)
{
    uint64_t runs = 1, first, length;

    while (runs < 63 && ((uint64_t)1 << runs) - 1 < count)
        runs++;
    first = ((uint64_t)1 << bits % runs) - 1;
    length = first + 1 < count - first ? first + 1 : count - first;
    return first + dataset_hash(bits, 0) % length;
}

/* The role of a number of a sample: an index of a table, or, with no rows, just a number. */
typedef struct click_place {
    uint64_t rows, table; /* table: the offset of its first index */
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

static bool has_clicks(const ty_workload *workload)
{
    for (uint32_t l = 0; l < workload->layer_count; l++)
        if (ty_layer_is_bag(&workload->layers[l]))
            return true;
    return false;
}

/* If bags share a number, the one with the fewest rows counts. */
static ty_status clicks_open(ty_dataset *dataset, ty_error *error)
{
    const ty_workload *w = dataset->workload;
    click_place *places = ty_alloc(dataset->input_count, sizeof *places);

    if (places == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for %llu numbers a sample",
                       (unsigned long long)dataset->input_count);
    for (uint32_t l = 0; l < w->layer_count; l++) {
        const uint64_t *a = w->layers[l].attributes;
        if (!ty_layer_is_bag(&w->layers[l]))
            continue;
        for (uint64_t i = a[TY_FIRST_ROW]; i < a[TY_FIRST_ROW] + a[TY_ROWS]; i++)
            if (places[i].rows == 0 || a[TY_VOCABULARY] < places[i].rows)
                places[i] = (click_place){a[TY_VOCABULARY], a[TY_FIRST_ROW]};
    }
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
    if (dataset->token_count == 0)
        return has_clicks(dataset->workload) ? clicks_open(dataset, error)
                                             : numbers_open(dataset, error);
    dataset->sample = tokens_sample;
    return TY_OK;
}
