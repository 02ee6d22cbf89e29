/*
 * Attention by the stand-in for cuDNN is attention, by a sum over every score in double precision;
 * and what is planted in the backend's calls is found: each rule of cuDNN's interface broken alone,
 * and strides that keep the rules and are of other places.
 */
#include "cuda_dnn.h"
#include "library_numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { B = 2, H = 4, G = 2, L = 9, D = 8, ROW = (H + 2 * G) * D, SCORES = B * H * L };
enum { PROJECTED = B * L * ROW, CONTEXT = B * L * H * D };

/* ---- What is planted ---- */

typedef enum sort {
    NOTHING,
    LEAVE_OUT,    /* the attribute is not set */
    OTHER_TYPE,   /* set as another type */
    FEWER,        /* with one value less */
    SAME_NUMBER,  /* a number that another has */
    OTHER_STRIDE, /* heads' rows lie closer */
    SHIFTED,      /* the last pointer lies two bytes behind */
    NO_POINTER,   /* or is none */
    OPEN,         /* a descriptor is not finalized */
    CHANGED       /* or is set behind that */
} sort;

static struct {
    sort what;
    cudnnBackendAttributeName_t name;
    int after; /* so many that are left alone */
    cudnnBackendDescriptor_t last;
} planted;

static cuda_dnn real, meddled;

static bool is_its_turn(cudnnBackendAttributeName_t name)
{
    return planted.what != NOTHING && planted.name == name && planted.after-- == 0;
}

static cudnnStatus_t meddled_set(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                                 cudnnBackendAttributeType_t type, int64_t count,
                                 const void *values)
{
    int64_t numbers[8] = {0};
    void *pointers[CUDA_DNN_MOST_POINTERS];

    if (!is_its_turn(name))
        return real.cudnnBackendSetAttribute(of, name, type, count, values);
    switch (planted.what) {
    case LEAVE_OUT:
        return CUDNN_STATUS_SUCCESS;
    case OTHER_TYPE:
        return real.cudnnBackendSetAttribute(of, name, CUDNN_TYPE_DOUBLE, count, values);
    case FEWER:
        return real.cudnnBackendSetAttribute(of, name, type, count - 1, values);
    case SAME_NUMBER:
        numbers[0] = 1;
        return real.cudnnBackendSetAttribute(of, name, type, count, numbers);
    case OTHER_STRIDE:
        memcpy(numbers, values, (size_t)count * sizeof *numbers);
        for (int i = 0; i < 4; i++)
            numbers[i] = numbers[i] == ROW ? H * D : numbers[i];
        return real.cudnnBackendSetAttribute(of, name, type, count, numbers);
    case SHIFTED:
    case NO_POINTER:
        memcpy(pointers, values, (size_t)count * sizeof *pointers);
        pointers[count - 1] = planted.what == SHIFTED ? (char *)pointers[count - 1] + 2 : NULL;
        return real.cudnnBackendSetAttribute(of, name, type, count, pointers);
    case OPEN:
    case CHANGED:
        planted.last = of;
        break;
    case NOTHING:
        break;
    }
    return real.cudnnBackendSetAttribute(of, name, type, count, values);
}

static cudnnStatus_t meddled_finalize(cudnnBackendDescriptor_t of)
{
    const bool is_by_value = true;
    cudnnStatus_t status;

    if (of == planted.last && planted.what == OPEN)
        return CUDNN_STATUS_SUCCESS;
    status = real.cudnnBackendFinalize(of);
    if (of == planted.last && planted.what == CHANGED && status == CUDNN_STATUS_SUCCESS)
        status = real.cudnnBackendSetAttribute(of, CUDNN_ATTR_TENSOR_IS_BY_VALUE,
                                               CUDNN_TYPE_BOOLEAN, 1, &is_by_value);
    return status;
}

/* ---- Attention, by every score ---- */

typedef struct numbers {
    uint16_t project[PROJECTED], context[CONTEXT], dcontext[CONTEXT], dproject[PROJECTED];
    float log_sums[SCORES], delta[SCORES];
} numbers;

static double number_at(const uint16_t *from, uint64_t at)
{
    return (double)number_get(CUDA_R_16BF, from, at);
}

static uint64_t query_at(int b, int h, int i)
{
    return (uint64_t)((b * L + i) * ROW + h * D);
}

static uint64_t key_at(int b, int h, int j)
{
    return (uint64_t)((b * L + j) * ROW + (H + h / (H / G)) * D);
}

enum { VALUES = G * D }; /* behind the keys */

/* Of one query its probabilities. @return the log-sum of its scores */
static double chances_of(const uint16_t *project, int b, int h, int i, bool is_causal, double *p)
{
    const int seen = is_causal ? i + 1 : L;
    double sum = 0;

    for (int j = 0; j < L; j++) {
        double score = 0;
        for (int d = 0; d < D; d++)
            score += number_at(project, query_at(b, h, i) + (uint64_t)d) *
                     number_at(project, key_at(b, h, j) + (uint64_t)d);
        p[j] = j < seen ? exp(score / sqrt(D)) : 0;
        sum += p[j];
    }
    for (int j = 0; j < L; j++)
        p[j] /= sum;
    return log(sum);
}

static void reference(const numbers *n, bool is_causal, double *context, double *log_sums,
                      double *dproject)
{
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int i = 0; i < L; i++) {
                const uint64_t row = (uint64_t)((b * L + i) * H * D + h * D);
                const uint64_t query = query_at(b, h, i);
                double p[L], dp[L], delta = 0;

                log_sums[(b * H + h) * L + i] = chances_of(n->project, b, h, i, is_causal, p);
                for (int j = 0; j < L; j++) {
                    const uint64_t value = key_at(b, h, j) + VALUES;
                    dp[j] = 0;
                    for (uint64_t d = 0; d < D; d++) {
                        context[row + d] += p[j] * number_at(n->project, value + d);
                        dp[j] += number_at(n->dcontext, row + d) * number_at(n->project, value + d);
                        dproject[value + d] += p[j] * number_at(n->dcontext, row + d);
                    }
                    delta += p[j] * dp[j];
                }
                for (int j = 0; j < L; j++) {
                    const double ds = p[j] * (dp[j] - delta) / sqrt(D);
                    const uint64_t key = key_at(b, h, j);
                    for (uint64_t d = 0; d < D; d++) {
                        dproject[query + d] += ds * number_at(n->project, key + d);
                        dproject[key + d] += ds * number_at(n->project, query + d);
                    }
                }
            }
}

static bool is_near(double found, double expected)
{
    return fabs(found - expected) <= 2e-2 * (fabs(expected) + 0.5);
}

static bool numbers_check(const numbers *n, bool is_causal)
{
    double *context = calloc(CONTEXT, sizeof *context),
           *log_sums = calloc(SCORES, sizeof *log_sums);
    double *dproject = calloc(PROJECTED, sizeof *dproject);
    bool is_right = true;

    reference(n, is_causal, context, log_sums, dproject);
    for (uint64_t i = 0; i < CONTEXT; i++)
        is_right = is_right && is_near(number_at(n->context, i), context[i]);
    for (uint64_t i = 0; i < SCORES; i++)
        is_right = is_right && is_near((double)n->log_sums[i], log_sums[i]);
    for (uint64_t i = 0; i < PROJECTED; i++)
        is_right = is_right && is_near(number_at(n->dproject, i), dproject[i]);
    free(context);
    free(log_sums);
    free(dproject);
    return is_right;
}

/* ---- Cases ---- */

typedef enum answer { TAKEN, REFUSED, WRONG } answer;
static const char *const answers[] = {"taken", "refused", "other numbers"};

static void fill(numbers *n)
{
    uint64_t state = 3;

    for (uint64_t i = 0; i < PROJECTED + CONTEXT; i++) {
        const float one = (float)((state >> 40) % 2001) / 1000 - 1;
        state = state * 6364136223846793005u + 1442695040888963407u;
        number_put(CUDA_R_16BF, i < PROJECTED ? n->project : n->dcontext,
                   i < PROJECTED ? i : i - PROJECTED, one);
    }
}

/* Plans that are shared live as long as the last who has them. */
static bool shares(cuda_dnn_attention *made, const cuda_attention *asked)
{
    cuda_attention other = *asked;
    cuda_dnn_attention *again = cuda_dnn_attention_share(made, asked);

    other.key_stride += D;
    if (again != NULL)
        cuda_dnn_attention_free(again);
    return again == made && cuda_dnn_attention_share(made, &other) == NULL;
}

static answer answer_of(cuda_type type, uint64_t head_size, bool is_causal)
{
    const cuda_attention a = {.batch = B,
                              .length = L,
                              .keys = L,
                              .heads = H,
                              .kv_heads = G,
                              .head_size = head_size,
                              .stride = (H + 2 * G) * head_size,
                              .key_stride = (H + 2 * G) * head_size,
                              .key_at = H * head_size,
                              .value_at = (H + G) * head_size,
                              .context_stride = H * head_size,
                              .scale = 1.0f / sqrtf((float)head_size),
                              .is_causal = is_causal};
    cuda_dnn_target target = {.dnn = &meddled, .capability = 90};
    cuda_dnn_attention *made = NULL;
    numbers *n = aligned_alloc(256, (sizeof *n + 255) / 256 * 256);
    void *workspace = NULL;
    answer found = REFUSED;
    ty_error error = {0};

    memset(n, 0, sizeof *n);
    fill(n);
    (void)meddled.cudnnCreate(&target.handle);
    (void)meddled.cudnnSetStream(target.handle, NULL);
    if (cuda_dnn_attention_new(&target, type, &a, &made, &error) == TY_OK && shares(made, &a)) {
        workspace = malloc(cuda_dnn_backward_workspace(made));
        if (cuda_dnn_attention_forward(made, n->project, n->project, n->context, n->log_sums,
                                       workspace, &error) == TY_OK &&
            cuda_dnn_attention_backward(made, n->project, n->project, n->context, n->log_sums,
                                        n->dcontext, n->delta, n->dproject, n->dproject, workspace,
                                        &error) == TY_OK)
            found = numbers_check(n, is_causal) ? TAKEN : WRONG;
    }
    cuda_dnn_attention_free(made);
    (void)meddled.cudnnDestroy(target.handle);
    free(workspace);
    free(n);
    return found;
}

static int failures;

static void expect(const char *what, answer expected, answer found)
{
    printf("%s %s: %s\n", found == expected ? "ok  " : "FAIL", what, answers[found]);
    failures += found != expected;
}

static void plant(const char *what, answer expected, sort mistake, cudnnBackendAttributeName_t name,
                  int after)
{
    planted.what = mistake;
    planted.name = name;
    planted.after = after;
    planted.last = NULL;
    expect(what, expected, answer_of(CUDA_TYPE_BF16, D, true));
    if (planted.after >= 0)
        expect(what, REFUSED, TAKEN); /* it has not been met */
    planted.what = NOTHING;
}

int main(void)
{
    enum { QUERY, KEY, VALUE }; /* of forward's tensors */
    const cuda_dnn *found = NULL;
    ty_error error = {0};

    if (cuda_dnn_load(&found, &error) != TY_OK)
        return 1;
    real = meddled = *found;
    meddled.cudnnBackendSetAttribute = meddled_set;
    meddled.cudnnBackendFinalize = meddled_finalize;
    expect("in order", TAKEN, answer_of(CUDA_TYPE_BF16, D, true));
    expect("all keys", TAKEN, answer_of(CUDA_TYPE_BF16, D, false));
    expect("fp32", REFUSED, answer_of(CUDA_TYPE_FLOAT, D, true));
    expect("heads of 12", REFUSED, answer_of(CUDA_TYPE_BF16, 12, true));
    expect("heads of 264", REFUSED, answer_of(CUDA_TYPE_BF16, 264, true));
    plant("queries' rows too close", WRONG, OTHER_STRIDE, CUDNN_ATTR_TENSOR_STRIDES, QUERY);
    plant("keys' rows too close", WRONG, OTHER_STRIDE, CUDNN_ATTR_TENSOR_STRIDES, KEY);
    plant("values' rows too close", WRONG, OTHER_STRIDE, CUDNN_ATTR_TENSOR_STRIDES, VALUE);
    plant("no strides", REFUSED, LEAVE_OUT, CUDNN_ATTR_TENSOR_STRIDES, 1);
    plant("three strides", REFUSED, FEWER, CUDNN_ATTR_TENSOR_STRIDES, 2);
    plant("sizes as doubles", REFUSED, OTHER_TYPE, CUDNN_ATTR_TENSOR_DIMENSIONS, 4);
    plant("two tensors of one number", REFUSED, SAME_NUMBER, CUDNN_ATTR_TENSOR_UNIQUE_ID, 3);
    plant("no type of sums", REFUSED, LEAVE_OUT, CUDNN_ATTR_MATMUL_COMP_TYPE, 0);
    plant("a product that makes nothing", REFUSED, LEAVE_OUT, CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1);
    plant("a choice without conditions", REFUSED, LEAVE_OUT, CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
          0);
    plant("an operation left out", REFUSED, FEWER, CUDNN_ATTR_OPERATIONGRAPH_OPS, 1);
    plant("a tensor that is not final", REFUSED, OPEN, CUDNN_ATTR_TENSOR_UNIQUE_ID, 5);
    plant("a tensor changed behind that", REFUSED, CHANGED, CUDNN_ATTR_TENSOR_UNIQUE_ID, 5);
    plant("no handle", REFUSED, LEAVE_OUT, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 0);
    plant("numbers without the last tensor", REFUSED, FEWER, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1);
    plant("log-sums at an odd place", REFUSED, SHIFTED, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 0);
    plant("no log-sums", REFUSED, NO_POINTER, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 0);
    plant("no gradient of values", REFUSED, NO_POINTER, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1);
    plant("no memory to work in", REFUSED, NO_POINTER, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1);
    printf("%d failed\n", failures);
    return failures > 0;
}
