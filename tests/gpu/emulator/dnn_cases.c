/*
 * Attention by the stand-in for cuDNN is attention, by a sum over every score in double precision;
 * and what is planted in the backend's calls is found: each rule of cuDNN's interface broken alone,
 * and strides that keep the rules and are of other places.
 */
#include "cuda_dnn.h"
#include "dnn_mistakes.h"
#include "library_numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { B = 2, H = 4, G = 2, L = 9, D = 8, ROW = (H + 2 * G) * D, SCORES = B * H * L };
enum { PROJECTED = B * L * ROW, CONTEXT = B * L * H * D };

static cuda_dnn meddled;

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

    cuda_dnn_attention_free(cuda_dnn_attention_share(made));
    other.key_stride += D;
    return cuda_dnn_attention_is_alike(asked, asked) && !cuda_dnn_attention_is_alike(asked, &other);
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

static void plant(answer expected, const dnn_mistake *mistake)
{
    dnn_plant(mistake);
    expect(mistake->what, expected, answer_of(CUDA_TYPE_BF16, D, true));
    if (!dnn_was_made())
        expect("it is not in any call", REFUSED, TAKEN);
    dnn_plant(NULL);
}

/* Places that are others', by the rules. */
static const dnn_mistake places[] = {
    {"queries' rows too close", DNN_OTHER_STRIDE, CUDNN_ATTR_TENSOR_STRIDES, 0},
    {"keys' rows too close", DNN_OTHER_STRIDE, CUDNN_ATTR_TENSOR_STRIDES, 1},
    {"values' rows too close", DNN_OTHER_STRIDE, CUDNN_ATTR_TENSOR_STRIDES, 2},
};

/* What cuDNN has a default for, or is known when a plan runs. */
static const dnn_mistake calls[] = {
    {"no type of sums", DNN_LEAVE_OUT, CUDNN_ATTR_MATMUL_COMP_TYPE, 0},
    {"no handle", DNN_LEAVE_OUT, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 0},
    {"numbers without the last tensor", DNN_FEWER, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1},
    {"log-sums at an odd place", DNN_SHIFTED, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 0},
    {"no log-sums", DNN_NO_POINTER, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 0},
    {"no gradient of values", DNN_NO_POINTER, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1},
    {"no memory to work in", DNN_NO_POINTER, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1},
};

int main(void)
{
    const cuda_dnn *found = NULL;
    ty_error error = {0};

    if (cuda_dnn_load(&found, &error) != TY_OK)
        return 1;
    meddled = dnn_meddled(found);
    expect("in order", TAKEN, answer_of(CUDA_TYPE_BF16, D, true));
    expect("all keys", TAKEN, answer_of(CUDA_TYPE_BF16, D, false));
    expect("fp32", REFUSED, answer_of(CUDA_TYPE_FLOAT, D, true));
    expect("heads of 12", REFUSED, answer_of(CUDA_TYPE_BF16, 12, true));
    expect("heads of 264", REFUSED, answer_of(CUDA_TYPE_BF16, 264, true));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        plant(WRONG, &places[i]);
    for (size_t i = 0; i < DNN_PLAN_MISTAKES; i++)
        plant(REFUSED, &dnn_plan_mistakes[i]);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        plant(REFUSED, &calls[i]);
    printf("%d failed\n", failures);
    return failures > 0;
}
