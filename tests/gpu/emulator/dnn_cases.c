/*
 * The stand-in for cuDNN computes attention and convolutions correctly, by sums over every score
 * and every product in double precision. Inserted mistakes in the backend's calls are detected:
 * each breaks one rule of cuDNN's interface, or uses valid strides of another layout.
 */
#include "cuda_dnn.h"
#include "dnn_mistakes.h"
#include "library_numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

enum { VALUES = G * D }; /* after the keys */

/* Probabilities of one query.
 * @return the log-sum of its scores */
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

/* A shared plan lives as long as its last owner. */
static bool shares(cuda_dnn_attention *made, const cuda_attention *asked)
{
    cuda_attention other = *asked;

    cuda_dnn_attention_free(cuda_dnn_attention_share(made));
    other.key_stride += D;
    return cuda_dnn_attention_is_alike(asked, asked) && !cuda_dnn_attention_is_alike(asked, &other);
}

static answer answer_of(cuda_type type, uint64_t head_size, bool is_causal, bool is_ordered)
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
                              .is_causal = is_causal,
                              .is_ordered = is_ordered};
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

/* ---- Convolutions, by every product ---- */

enum { MOST_NUMBERS = 512, GROUPS = 2 };

typedef struct convolved {
    double x[MOST_NUMBERS], w[MOST_NUMBERS], y[MOST_NUMBERS];
} convolved;

static cuda_dnn_layout planes(uint64_t n, uint64_t c, uint64_t h, uint64_t w)
{
    return (cuda_dnn_layout){{(int64_t)n, (int64_t)c, (int64_t)h, (int64_t)w},
                             {(int64_t)(c * h * w), (int64_t)(h * w), (int64_t)w, 1}};
}

/* Two images of 6 channels in two groups, 4 out. */
static cuda_dnn_convolution convolution(cuda_dnn_layout (*lay)(uint64_t, uint64_t, uint64_t,
                                                               uint64_t))
{
    return (cuda_dnn_convolution){.type = CUDA_TYPE_BF16,
                                  .x = lay(2, 6, 7, 5),
                                  .w = lay(4, 6 / GROUPS, 3, 2),
                                  .y = lay(2, 4, 4, 4),
                                  .strides = {2, 1},
                                  .padding = {1, 0}};
}

static int64_t at(const cuda_dnn_layout *of, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return a * of->strides[0] + b * of->strides[1] + c * of->strides[2] + d * of->strides[3];
}

/* Adds the result of the pass. */
static void by_every_product(const cuda_dnn_convolution *c, convolved *n)
{
    const int64_t *x = c->x.sizes, *w = c->w.sizes, *y = c->y.sizes;
    const int64_t outs = w[0] / GROUPS;

    for (int64_t i = 0; i < y[0] * y[1] * y[2] * y[3]; i++)
        for (int64_t j = 0; j < w[1] * w[2] * w[3]; j++) {
            const int64_t image = i / (y[1] * y[2] * y[3]), out = i / (y[2] * y[3]) % y[1];
            const int64_t p = i / y[3] % y[2], q = i % y[3];
            const int64_t channel = j / (w[2] * w[3]), r = j / w[3] % w[2], s = j % w[3];
            const int64_t row = p * c->strides[0] + r - c->padding[0];
            const int64_t column = q * c->strides[1] + s - c->padding[1];
            double *of_x, *of_w = n->w + at(&c->w, out, channel, r, s);
            double *of_y = n->y + at(&c->y, image, out, p, q);
            if (row < 0 || row >= x[2] || column < 0 || column >= x[3])
                continue;
            of_x = n->x + at(&c->x, image, out / outs * w[1] + channel, row, column);
            if (c->pass == CUDA_DNN_FORWARD)
                *of_y += *of_x * *of_w;
            else if (c->pass == CUDA_DNN_DATA)
                *of_x += *of_y * *of_w;
            else
                *of_w += *of_y * *of_x;
        }
}

/* Three tensors in memory; one of them is the output. */
typedef struct in_memory {
    _Alignas(256) float x[MOST_NUMBERS], w[MOST_NUMBERS], y[MOST_NUMBERS];
} in_memory;

static cudaDataType_t number_type_of(cuda_type type)
{
    return number_type(cuda_dnn_type(type));
}

static answer compare(const cuda_dnn_convolution *c, const in_memory *found, convolved *n,
                      double tolerance)
{
    const void *made = c->pass == CUDA_DNN_FORWARD ? found->y
                       : c->pass == CUDA_DNN_DATA  ? found->x
                                                   : found->w;
    double *expected = c->pass == CUDA_DNN_FORWARD ? n->y : c->pass == CUDA_DNN_DATA ? n->x : n->w;

    if (!c->adds)
        memset(expected, 0, sizeof n->x);
    by_every_product(c, n);
    for (uint64_t i = 0; i < MOST_NUMBERS; i++)
        if (expected[i] != 0 && fabs((double)number_get(number_type_of(c->type), made, i) -
                                     expected[i]) > tolerance * (fabs(expected[i]) + 0.5))
            return WRONG;
    return TAKEN;
}

static answer convolution_answer(const cuda_dnn_convolution *c, double tolerance, uint32_t *choice)
{
    static in_memory memory;
    static convolved numbers;
    cuda_dnn_target target = {.dnn = &meddled, .capability = 90};
    cuda_dnn_conv *made = NULL;
    void *workspace = NULL;
    uint64_t state = 5;
    answer found = REFUSED;
    ty_error error = {0};

    for (uint64_t i = 0; i < MOST_NUMBERS * 3; i++) {
        float *to = i < MOST_NUMBERS ? memory.x : i < 2 * MOST_NUMBERS ? memory.w : memory.y;
        state = state * 6364136223846793005u + 1442695040888963407u;
        number_put(number_type_of(c->type), to, i % MOST_NUMBERS,
                   (float)((state >> 40) % 20001) / 10000 - 1);
        (i < MOST_NUMBERS       ? numbers.x
         : i < 2 * MOST_NUMBERS ? numbers.w
                                : numbers.y)[i % MOST_NUMBERS] =
            (double)number_get(number_type_of(c->type), to, i % MOST_NUMBERS);
    }
    (void)meddled.cudnnCreate(&target.handle);
    (void)meddled.cudnnSetStream(target.handle, NULL);
    if (cuda_dnn_conv_new(&target, c, CUDA_DNN_ANY_CHOICE, &made, &error) == TY_OK) {
        *choice = cuda_dnn_conv_choice(made);
        cuda_dnn_conv_free(cuda_dnn_conv_share(made));
        workspace = malloc(cuda_dnn_conv_workspace(made));
        if (cuda_dnn_conv_run(made, memory.x, memory.w, memory.y, workspace, &error) == TY_OK)
            found = compare(c, &memory, &numbers, tolerance);
    }
    cuda_dnn_conv_free(made);
    (void)meddled.cudnnDestroy(target.handle);
    free(workspace);
    return found;
}

/* Indices of the stand-in's choices: the first with tensor cores that computes as requested, and
 * the first without, which is among the fallbacks. */
enum { WITH_TENSOR_CORES = 5, WITHOUT = 7 };

static void convolutions_check(const char *name, cuda_dnn_convolution c, uint32_t expected,
                               double tolerance)
{
    answer worst = TAKEN;
    uint32_t choice = CUDA_DNN_ANY_CHOICE;

    for (int i = 0; i < 2 * CUDA_DNN_PASSES; i++) {
        answer one;
        c.pass = (cuda_dnn_pass)(i / 2);
        c.adds = i % 2 != 0;
        one = convolution_answer(&c, tolerance, &choice);
        if (choice != expected)
            one = WRONG;
        worst = one != TAKEN ? one : worst;
    }
    expect(name, TAKEN, worst);
}

static void precisions_check(void)
{
    cuda_dnn_convolution other = convolution(planes);
    cuda_dnn_convolution last = convolution(cuda_dnn_channels_last), c = last;
    uint32_t choice;

    convolutions_check("planes, bf16", other, WITH_TENSOR_CORES, 1e-2);
    convolutions_check("channels last, bf16", last, WITH_TENSOR_CORES, 1e-2);
    other.type = last.type = CUDA_TYPE_HALF;
    convolutions_check("planes, fp16", other, WITH_TENSOR_CORES, 1e-3);
    convolutions_check("channels last, fp16", last, WITH_TENSOR_CORES, 1e-3);
    other.type = last.type = CUDA_TYPE_FLOAT;
    convolutions_check("planes, fp32", other, WITHOUT, 1e-6);
    convolutions_check("channels last, fp32", last, WITHOUT, 1e-6);
    last.is_tf32 = true;
    convolutions_check("channels last, TF32", last, WITH_TENSOR_CORES, 2e-3);
    expect("TF32 as if it were fp32", WRONG, convolution_answer(&last, 1e-6, &choice));
    c.w = cuda_dnn_channels_last(4, 4, 3, 2);
    expect("4 of 6 channels", REFUSED, convolution_answer(&c, 1, &choice));
    c.w = planes(4, 3, 3, 2);
    expect("weights in planes, images not", REFUSED, convolution_answer(&c, 1, &choice));
    c = convolution(cuda_dnn_channels_last);
    c.y = cuda_dnn_channels_last(2, 4, 3, 4);
    expect("an output of fewer rows", REFUSED, convolution_answer(&c, 1, &choice));
    c = convolution(cuda_dnn_channels_last);
    c.x = cuda_dnn_channels_last(2, 8, 7, 5);
    c.x.sizes[1] = 6;
    expect("images with gaps", REFUSED, convolution_answer(&c, 1, &choice));
}

/* The preferred one of several, and another one if that is unavailable. */
static void choices_check(void)
{
    const cuda_dnn_convolution c = convolution(cuda_dnn_channels_last);
    static const uint32_t wanted[][2] = {
        {WITHOUT, WITHOUT}, {0, WITH_TENSOR_CORES}, {99, WITH_TENSOR_CORES}};
    cuda_dnn_target target = {.dnn = &meddled, .capability = 90};
    cuda_dnn_conv *made[4] = {NULL};
    uint32_t count = 0;
    bool is_right;
    ty_error error = {0};

    (void)meddled.cudnnCreate(&target.handle);
    is_right = cuda_dnn_conv_list(&target, &c, 4, made, &count, &error) == TY_OK && count == 2 &&
               cuda_dnn_conv_choice(made[0]) == WITH_TENSOR_CORES &&
               cuda_dnn_conv_choice(made[1]) == WITHOUT;
    for (uint32_t i = 0; i < count; i++)
        cuda_dnn_conv_free(made[i]);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        made[0] = NULL;
        is_right = is_right &&
                   cuda_dnn_conv_new(&target, &c, wanted[i][0], made, &error) == TY_OK &&
                   cuda_dnn_conv_choice(made[0]) == wanted[i][1];
        cuda_dnn_conv_free(made[0]);
    }
    (void)meddled.cudnnDestroy(target.handle);
    expect("choices", TAKEN, is_right ? TAKEN : WRONG);
}

/* ---- Inserted mistakes ---- */

static answer attention_answer(void)
{
    return answer_of(CUDA_TYPE_BF16, D, true, true);
}

static answer conv_answer(void)
{
    const cuda_dnn_convolution c = convolution(cuda_dnn_channels_last);
    uint32_t choice;

    return convolution_answer(&c, 1e-2, &choice);
}

static void plant(answer expected, const dnn_mistake *mistake, answer (*ask)(void))
{
    dnn_plant(mistake);
    expect(mistake->what, expected, ask());
    if (!dnn_was_made())
        expect("it is not in any call", REFUSED, TAKEN);
    dnn_plant(NULL);
}

/* Locations that other tensors use, by the rules. */
static const dnn_mistake places[] = {
    {"queries' rows too close", DNN_OTHER_STRIDE, CUDNN_ATTR_TENSOR_STRIDES, 0},
    {"keys' rows too close", DNN_OTHER_STRIDE, CUDNN_ATTR_TENSOR_STRIDES, 1},
    {"values' rows too close", DNN_OTHER_STRIDE, CUDNN_ATTR_TENSOR_STRIDES, 2},
};

/* Attributes that have a default in cuDNN, or are checked when a plan runs. */
static const dnn_mistake calls[] = {
    {"no type of sums", DNN_LEAVE_OUT, CUDNN_ATTR_MATMUL_COMP_TYPE, 0},
    {"no handle", DNN_LEAVE_OUT, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 0},
    {"numbers without the last tensor", DNN_FEWER, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1},
    {"log-sums at an odd place", DNN_SHIFTED, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 0},
    {"no log-sums", DNN_NO_POINTER, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 0},
    {"no gradient of values", DNN_NO_POINTER, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1},
    {"no memory to work in", DNN_NO_POINTER, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1},
};

static const dnn_mistake conv_calls[] = {
    {"no type of sums", DNN_LEAVE_OUT, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, 0},
    {"two tensors of one number", DNN_SAME_NUMBER, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1},
    {"numbers without the last tensor", DNN_FEWER, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 0},
    {"an output at an odd place", DNN_SHIFTED, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 0},
    {"no output", DNN_NO_POINTER, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 0},
    {"no memory to work in", DNN_NO_POINTER, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 0},
};

int main(void)
{
    const cuda_dnn *found = NULL;
    ty_error error = {0};

    if (cuda_dnn_load(&found, &error) != TY_OK)
        return 1;
    meddled = dnn_meddled(found);
    expect("in order", TAKEN, answer_of(CUDA_TYPE_BF16, D, true, true));
    expect("all keys", TAKEN, answer_of(CUDA_TYPE_BF16, D, false, true));
    expect("in any order", TAKEN, answer_of(CUDA_TYPE_BF16, D, true, false));
    expect("in any order, all keys", TAKEN, answer_of(CUDA_TYPE_BF16, D, false, false));
    expect("fp32", REFUSED, answer_of(CUDA_TYPE_FLOAT, D, true, true));
    expect("heads of 12", REFUSED, answer_of(CUDA_TYPE_BF16, 12, true, true));
    expect("heads of 264", REFUSED, answer_of(CUDA_TYPE_BF16, 264, true, true));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        plant(WRONG, &places[i], attention_answer);
    for (size_t i = 0; i < DNN_PLAN_MISTAKES; i++)
        plant(REFUSED, &dnn_plan_mistakes[i], attention_answer);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        plant(REFUSED, &calls[i], attention_answer);
    precisions_check();
    choices_check();
    for (size_t i = 0; i < DNN_CONV_MISTAKES; i++)
        plant(REFUSED, &dnn_conv_mistakes[i], conv_answer);
    for (size_t i = 0; i < sizeof conv_calls / sizeof *conv_calls; i++)
        plant(REFUSED, &conv_calls[i], conv_answer);
    printf("%d failed\n", failures);
    return failures > 0;
}
