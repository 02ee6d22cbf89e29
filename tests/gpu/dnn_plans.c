/* Plans of the real cuDNN for devices that are described to it: no GPU is needed, and nothing runs.
 * Requests of the zoo's layers must be accepted within the backend's memory limit; known
 * unsupported ones must be refused. A driver stand-in satisfies cuDNN (driver_stand_in.cmake). */
#include "cuda_dnn.h"
#include "dnn_norms.h"
#include "emulator/dnn_mistakes.h"
#include "memory/scratch.h"
#include "ty_workloads.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { EXIT_SKIP = 77 };

static int planned, failures;

/* ---- Devices ---- */

/* Figures: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and the
 * data sheets of both. */
typedef struct device {
    const char *label, *name;
    int capability, processors, clock_khz, memory_clock_khz, pci;
    long long l2_bytes, shared_bytes, block_shared_bytes, memory_bytes;
} device;

static const device devices[] = {
    {"H100", "NVIDIA H100 80GB HBM3", 90, 132, 1980000, 2619000, 0x2330, 50 << 20, 228 << 10,
     227 << 10, 85000000000},
    {"A100", "NVIDIA A100-SXM4-80GB", 80, 108, 1410000, 1593000, 0x20b2, 40 << 20, 164 << 10,
     163 << 10, 85000000000},
};
enum { H100, A100, DEVICES };

#if CUDNN_VERSION >= 91100
static bool target_make(const cuda_dnn *dnn, const device *d, cuda_dnn_target *out)
{
    cudnnBackendDescriptor_t made = NULL;
    char text[2048];
    const int length = snprintf(
        text, sizeof text,
        "{\"version\": 1, \"deviceName\": \"%s\", \"cudaDeviceId\": 0, \"deviceVer\": %d, "
        "\"smVer\": %d, \"driverVer\": 13000, \"pciDeviceId\": %d, \"isTccDriver\": 0, "
        "\"supportCoopLaunch\": 1, \"multiProcessorCount\": %d, \"smClockRateKHz\": %d, "
        "\"memClockRateKHz\": %d, \"totalGlobalMem\": %lld, \"l2CacheSize\": %lld, "
        "\"warpSize\": 32, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, "
        "\"maxCtasPerSM\": 32, \"regsPerBlock\": 65536, \"maxRegistersPerSM\": 65536, "
        "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": %lld, "
        "\"reservedSharedMemoryPerBlock\": 1024, \"maxSharedMemoryPerSM\": %lld, "
        "\"maxBlockSize\": [1024, 1024, 64], \"maxGridSize\": [2147483647, 65535, 65535]}",
        d->name, 10 * d->capability, 10 * d->capability, d->pci, d->processors, d->clock_khz,
        d->memory_clock_khz, d->memory_bytes, d->l2_bytes, d->block_shared_bytes, d->shared_bytes);

    *out = (cuda_dnn_target){.dnn = dnn, .capability = d->capability};
    if (dnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made) !=
            CUDNN_STATUS_SUCCESS ||
        dnn->cudnnBackendSetAttribute(made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                      CUDNN_TYPE_CHAR, length, text) != CUDNN_STATUS_SUCCESS ||
        dnn->cudnnBackendFinalize(made) != CUDNN_STATUS_SUCCESS)
        return false;
    out->properties = made;
    return true;
}
#else
static bool target_make(const cuda_dnn *dnn, const device *d, cuda_dnn_target *out)
{
    (void)dnn, (void)d, (void)out;
    return false;
}
#endif

/* ---- Attention ---- */

static const char *name_of(cuda_type type)
{
    return type == CUDA_TYPE_FLOAT ? "fp32" : type == CUDA_TYPE_BF16 ? "bf16" : "fp16";
}

static void fail(const char *what, const char *why)
{
    printf("FAIL %s: %s\n", what, why);
    failures++;
}

/* Queries, keys and values of a token are adjacent, as the backend stores those of one sequence. */
static cuda_attention packed(uint64_t batch, uint64_t length, uint64_t heads, uint64_t kv_heads,
                             uint64_t size, bool is_causal)
{
    const uint64_t stride = (heads + 2 * kv_heads) * size;

    return (cuda_attention){.batch = batch,
                            .length = length,
                            .keys = length,
                            .heads = heads,
                            .kv_heads = kv_heads,
                            .head_size = size,
                            .stride = stride,
                            .key_stride = stride,
                            .key_at = heads * size,
                            .value_at = (heads + kv_heads) * size,
                            .context_stride = heads * size,
                            .scale = 1.0f / sqrtf((float)size),
                            .is_causal = is_causal};
}

/* Queries of one sequence, followed by keys and values of another. */
static cuda_attention apart(uint64_t batch, uint64_t queries, uint64_t keys, uint64_t heads,
                            uint64_t kv_heads, uint64_t size)
{
    cuda_attention a = packed(batch, queries, heads, kv_heads, size, false);

    a.keys = keys;
    a.stride = heads * size;
    a.key_stride = 2 * kv_heads * size;
    a.key_at = batch * queries * a.stride; /* a multiple of 128 elements, as in the backend */
    a.value_at = a.key_at + kv_heads * size;
    return a;
}

/* The planner's bytes, with queries and keys rounded up at most; with unordered sums on Hopper half
 * of the sums. A few numbers per row are added. */
static bool is_expected(const cuda_attention *a, uint64_t bytes)
{
    const uint64_t queries = (a->length + 63) / 64 * 64, keys = (a->keys + 127) / 128 * 128;
    const uint64_t counted = ty_attention_scratch(a->batch, a->heads, a->kv_heads, a->head_size,
                                                  a->length, a->keys, a->is_ordered);
    const uint64_t most = ty_attention_scratch(a->batch, a->heads, a->kv_heads, a->head_size,
                                               queries, keys, a->is_ordered);
    const uint64_t half = a->batch * a->heads * a->length * a->head_size * sizeof(float);
    const uint64_t least = counted - (a->is_ordered ? 0 : half);

    return bytes >= least && bytes <= most + a->batch * a->heads * queries * 16 + 4096;
}

static void attention_plan_of(const cuda_dnn_target *target, const char *device, const char *name,
                              cuda_type type, const cuda_attention *a)
{
    cuda_dnn_attention *made = NULL;
    ty_error error = {0};
    char what[128];

    snprintf(what, sizeof what, "%s attention %s %s%s", device, name, name_of(type),
             a->is_ordered ? " ordered" : "");
    if (cuda_dnn_attention_new(target, type, a, &made, &error) != TY_OK) {
        fail(what, error.message);
        return;
    }
    printf("%s: %llu samples of %llu, %llu heads of %llu, %llu of keys%s: forward %llu B, backward "
           "%llu B\n",
           what, (unsigned long long)a->batch, (unsigned long long)a->length,
           (unsigned long long)a->heads, (unsigned long long)a->head_size,
           (unsigned long long)a->kv_heads, a->is_causal ? ", causal" : "",
           (unsigned long long)cuda_dnn_forward_workspace(made),
           (unsigned long long)cuda_dnn_backward_workspace(made));
    if (!is_expected(a, cuda_dnn_backward_workspace(made)))
        fail(what, "backward's memory is not that of its scores");
    planned += 2;
    cuda_dnn_attention_free(made);
}

/* With unordered sums, and with a fixed order. */
static void attention_plan(const cuda_dnn_target *target, const char *device, const char *name,
                           cuda_type type, cuda_attention a)
{
    for (int is_ordered = 0; is_ordered < 2; is_ordered++) {
        a.is_ordered = is_ordered != 0;
        attention_plan_of(target, device, name, type, &a);
    }
}

static void attention_refuse(const cuda_dnn_target *target, const char *name, cuda_type type,
                             const cuda_attention *a)
{
    cuda_dnn_attention *made = NULL;
    ty_error error = {0};
    const ty_status status = cuda_dnn_attention_new(target, type, a, &made, &error);

    if (status == TY_EUNSUPPORTED)
        printf("refused %s: %s\n", name, error.message);
    else
        fail(name, status == TY_OK ? "was not refused" : error.message);
    cuda_dnn_attention_free(made);
}

/* cuDNN refuses the same calls as the emulator's stand-in. */
static void mistakes_refuse(const cuda_dnn_target *target)
{
    const cuda_dnn meddled = dnn_meddled(target->dnn);
    cuda_attention a = packed(2, 128, 4, 2, 64, true);
    cuda_dnn_target other = *target;

    other.dnn = &meddled;
    attention_plan(&other, "H100", "without a mistake", CUDA_TYPE_BF16, a);
    a.is_ordered = true; /* the other form's last operation may be left out */
    for (int m = 0; m < DNN_PLAN_MISTAKES; m++) {
        const dnn_mistake *mistake = &dnn_plan_mistakes[m];
        cuda_dnn_attention *made = NULL;
        ty_error error = {0};

        dnn_plant(mistake);
        if (cuda_dnn_attention_new(&other, CUDA_TYPE_BF16, &a, &made, &error) == TY_OK)
            fail(mistake->what, "was not refused");
        else if (!dnn_was_made())
            fail(mistake->what, "is not in any call");
        else
            printf("refused %s: %s\n", mistake->what, error.message);
        cuda_dnn_attention_free(made);
    }
    dnn_plant(NULL);
}

/* The first attention of a zoo model, with the heads sharded over tensor-parallel ranks. */
static void attention_of_zoo(const cuda_dnn_target *target, const char *device, const char *name,
                             uint64_t batch, uint64_t ranks)
{
    ty_workload *w = NULL;
    ty_error error = {0};

    if (ty_workload_open(name, &w, &error) != TY_OK) {
        fail(name, error.message);
        return;
    }
    for (uint32_t l = 0; l < w->layer_count; l++) {
        const uint64_t *a = w->layers[l].attributes;
        cuda_attention asked;
        if (w->layers[l].kind != TY_LAYER_ATTENTION)
            continue;
        asked = packed(batch, w->layers[l].output.dimensions[0], a[TY_HEADS] / ranks,
                       a[TY_KV_HEADS] / ranks, a[TY_HEAD_SIZE], a[TY_IS_CAUSAL] != 0);
        attention_plan(target, device, name, CUDA_TYPE_BF16, asked);
        attention_plan(target, device, name, CUDA_TYPE_HALF, asked);
        break;
    }
    ty_workload_free(w);
}

/* ---- Convolutions ---- */

typedef cuda_dnn_layout layout_of(uint64_t n, uint64_t c, uint64_t h, uint64_t w);

static cuda_dnn_layout planes(uint64_t n, uint64_t c, uint64_t h, uint64_t w)
{
    return (cuda_dnn_layout){{(int64_t)n, (int64_t)c, (int64_t)h, (int64_t)w},
                             {(int64_t)(c * h * w), (int64_t)(h * w), (int64_t)w, 1}};
}

static cuda_dnn_convolution convolution_of(const ty_workload *w, uint32_t layer, uint64_t batch,
                                           layout_of *lay)
{
    const uint64_t *a = w->layers[layer].attributes;
    const uint64_t *in = ty_layer_input_shape(w, layer, 0)->dimensions;
    const uint64_t *out = w->layers[layer].output.dimensions;

    return (cuda_dnn_convolution){
        .x = lay(batch, in[0], in[1], in[2]),
        .w = lay(a[TY_OUT_CHANNELS], a[TY_IN_CHANNELS] / a[TY_GROUPS], a[TY_KERNEL_HEIGHT],
                 a[TY_KERNEL_WIDTH]),
        .y = lay(batch, out[0], out[1], out[2]),
        .strides = {(int64_t)a[TY_STRIDE], (int64_t)a[TY_STRIDE]},
        .padding = {(int64_t)a[TY_PADDING_HEIGHT], (int64_t)a[TY_PADDING_WIDTH]}};
}

/* Plans of one shape in every pass, for the data gradient also with accumulation, except for the
 * model's input images.
 * @return the largest workspace in bytes */
static uint64_t convolution_plans(const cuda_dnn_target *target, const char *name, bool is_first,
                                  cuda_dnn_convolution c)
{
    uint64_t most = 0;

    for (int i = 0; i <= CUDA_DNN_PASSES; i++) {
        cuda_dnn_conv *made = NULL;
        ty_error error = {0};
        char what[192];

        c.adds = i == CUDA_DNN_PASSES;
        c.pass = c.adds ? CUDA_DNN_DATA : (cuda_dnn_pass)i;
        if (is_first && c.pass == CUDA_DNN_DATA)
            continue;
        snprintf(what, sizeof what, "%s %s %s%s, %lldx%lldx%lld by %lldx%lldx%lldx%lld/%lld", name,
                 name_of(c.type), cuda_dnn_pass_name(c.pass), c.adds ? " added" : "",
                 (long long)c.x.sizes[1], (long long)c.x.sizes[2], (long long)c.x.sizes[3],
                 (long long)c.w.sizes[0], (long long)c.w.sizes[1], (long long)c.w.sizes[2],
                 (long long)c.w.sizes[3], (long long)c.strides[0]);
        if (cuda_dnn_conv_new(target, &c, CUDA_DNN_ANY_CHOICE, &made, &error) != TY_OK) {
            fail(what, error.message);
            continue;
        }
        if (cuda_dnn_conv_workspace(made) > most)
            most = cuda_dnn_conv_workspace(made);
        planned++;
        cuda_dnn_conv_free(made);
    }
    return most;
}

/* In each precision. The workspace of a model's largest layer is recorded: cuDNN's and the
 * planner's. The latter may exceed the former by this many bytes, since partial sums are an upper
 * bound. In TF32 Hopper's engines copy less, and in fp16 some read three channels without
 * padding. */
static const struct {
    const char *name;
    ty_precision precision;
    cuda_type type;
    uint64_t most_beyond;
} precisions[] = {{"bf16", TY_PRECISION_BF16, CUDA_TYPE_BF16, 25000000},
                  {"fp16", TY_PRECISION_FP16, CUDA_TYPE_HALF, 90000000},
                  {"TF32", TY_PRECISION_TF32, CUDA_TYPE_FLOAT, 90000000},
                  {"fp32", TY_PRECISION_FP32, CUDA_TYPE_FLOAT, 0}};
enum { PRECISIONS = sizeof precisions / sizeof *precisions };

typedef struct scratch {
    uint64_t taken[PRECISIONS], counted[PRECISIONS];
} scratch;

static ty_convolution counted_of(const cuda_dnn_convolution *c, bool is_first)
{
    const int64_t *x = c->x.sizes, *w = c->w.sizes, *y = c->y.sizes;

    return (ty_convolution){.samples = (uint64_t)x[0],
                            .groups = (uint64_t)(x[1] / w[1]),
                            .in_channels = (uint64_t)x[1],
                            .in_pixels = (uint64_t)(x[2] * x[3]),
                            .out_channels = (uint64_t)y[1],
                            .out_pixels = (uint64_t)(y[2] * y[3]),
                            .window_height = (uint64_t)w[2],
                            .window_width = (uint64_t)w[3],
                            .stride = (uint64_t)c->strides[0],
                            .reads_samples = is_first};
}

static void keep_most(uint64_t bytes, uint64_t *most)
{
    *most = bytes > *most ? bytes : *most;
}

static void precisions_plan(const cuda_dnn_target *target, const char *what, bool is_first,
                            cuda_dnn_convolution c, scratch *s)
{
    const ty_convolution counted = counted_of(&c, is_first);

    for (int p = 0; p < PRECISIONS; p++) {
        c.type = precisions[p].type;
        c.is_tf32 = precisions[p].precision == TY_PRECISION_TF32;
        keep_most(convolution_plans(target, what, is_first, c), &s->taken[p]);
        keep_most(ty_convolution_scratch(&counted, precisions[p].precision), &s->counted[p]);
    }
}

/* The planner's workspace is at least cuDNN's, up to 1 %, and not much more. */
static void scratch_check(const char *name, const scratch *s)
{
    for (int p = 0; p < PRECISIONS; p++) {
        const uint64_t hundredth = s->taken[p] / 100;
        char what[128];

        snprintf(what, sizeof what, "%s %s", name, precisions[p].name);
        printf("%s: at most %.1f MB, counted %.1f\n", what, (double)s->taken[p] / 1e6,
               (double)s->counted[p] / 1e6);
        if (s->counted[p] < s->taken[p] - hundredth)
            fail(what, "works in more memory than planners count");
        if (s->counted[p] > s->taken[p] + hundredth + precisions[p].most_beyond)
            fail(what, "works in less memory than planners count");
    }
}

/* Every shape of a model once, channels last. */
static void convolutions_of_zoo(const cuda_dnn_target *target, const char *device, const char *name,
                                uint64_t batch)
{
    enum { MOST_SHAPES = 160 };
    static cuda_dnn_convolution seen[MOST_SHAPES];
    scratch most = {0};
    uint32_t count = 0;
    const int before = planned;
    ty_workload *w = NULL;
    ty_error error = {0};
    char what[64];

    if (ty_workload_open(name, &w, &error) != TY_OK) {
        fail(name, error.message);
        return;
    }
    snprintf(what, sizeof what, "%s convolution %s", device, name);
    for (uint32_t l = 0; l < w->layer_count && count < MOST_SHAPES; l++) {
        uint32_t s = 0;
        if (w->layers[l].kind != TY_LAYER_CONV2D)
            continue;
        seen[count] = convolution_of(w, l, batch, cuda_dnn_channels_last);
        while (!cuda_dnn_conv_is_alike(&seen[s], &seen[count]))
            s++;
        if (s == count)
            precisions_plan(target, what, w->layers[l].input_count == 0, seen[count++], &most);
    }
    printf("%s, %llu images: %u shapes, %d plans\n", what, (unsigned long long)batch,
           (unsigned)count, planned - before);
    scratch_check(what, &most);
    if (count == MOST_SHAPES)
        fail(name, "has more shapes than there is room for");
    ty_workload_free(w);
}

/* 64 images of 64 channels, 3x3. */
static cuda_dnn_convolution example(cuda_type type, layout_of *lay)
{
    return (cuda_dnn_convolution){.type = type,
                                  .x = lay(64, 64, 56, 56),
                                  .w = lay(64, 64, 3, 3),
                                  .y = lay(64, 64, 56, 56),
                                  .strides = {1, 1},
                                  .padding = {1, 1}};
}

/* The first plan; the caller's, or NULL. */
static cuda_dnn_conv *plan_of(const cuda_dnn_target *target, const cuda_dnn_convolution *c)
{
    cuda_dnn_conv *made = NULL;
    ty_error error = {0};

    if (cuda_dnn_conv_new(target, c, CUDA_DNN_ANY_CHOICE, &made, &error) != TY_OK)
        fail("a plan", error.message);
    return made;
}

/* Tensor cores read tensors with channels last: cuDNN copies planes. */
static void layouts_compare(const cuda_dnn_target *target, const char *device)
{
    static layout_of *const layouts[] = {planes, cuda_dnn_channels_last};

    for (cuda_dnn_pass pass = 0; pass < CUDA_DNN_PASSES; pass++) {
        uint64_t bytes[2] = {0};
        for (int l = 0; l < 2; l++) {
            cuda_dnn_convolution c = example(CUDA_TYPE_BF16, layouts[l]);
            cuda_dnn_conv *plan;
            c.pass = pass;
            plan = plan_of(target, &c);
            if (plan != NULL)
                bytes[l] = cuda_dnn_conv_workspace(plan);
            cuda_dnn_conv_free(plan);
        }
        printf("%s 64x64x56x56 by 3x3 in bf16, %s: %llu B in planes, %llu B channels last\n",
               device, cuda_dnn_pass_name(pass), (unsigned long long)bytes[0],
               (unsigned long long)bytes[1]);
        if (bytes[1] >= bytes[0])
            fail("channels last", "takes no less memory than planes");
    }
}

/* With few groups and with many, with pairs of channels and with single ones: no more than the
 * estimate. */
static void groups_check(const cuda_dnn_target *target, const char *device)
{
    enum { CHANNELS = 256, ALLOWANCE = 1000000 /* bytes */ };
    static const uint64_t groups[] = {4, 16, CHANNELS / 2, CHANNELS};

    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        cuda_dnn_convolution c = example(CUDA_TYPE_FLOAT, cuda_dnn_channels_last);
        scratch most = {0};
        char what[64];

        c.x = c.y = cuda_dnn_channels_last(64, CHANNELS, 28, 28);
        c.w = cuda_dnn_channels_last(CHANNELS, CHANNELS / groups[g], 3, 3);
        snprintf(what, sizeof what, "%s convolution of %llu groups", device,
                 (unsigned long long)groups[g]);
        precisions_plan(target, what, false, c, &most);
        for (int p = 0; p < PRECISIONS; p++)
            if (most.taken[p] > most.counted[p] + ALLOWANCE)
                fail(what, "works in more memory than planners count");
    }
}

/* The first plan's index in cuDNN's choices. */
static uint32_t choice_of(const cuda_dnn_target *target, const cuda_dnn_convolution *c)
{
    cuda_dnn_conv *plan = plan_of(target, c);
    const uint32_t choice = plan != NULL ? cuda_dnn_conv_choice(plan) : CUDA_DNN_ANY_CHOICE;

    cuda_dnn_conv_free(plan);
    return choice;
}

/* cuDNN's first choices for floats use tensor cores, and for a first layer in halves they
 * accumulate in 16 bits. Neither is used unless requested. */
static void precisions_check(const cuda_dnn_target *target)
{
    cuda_dnn_convolution c = example(CUDA_TYPE_FLOAT, cuda_dnn_channels_last);
    uint32_t exact = choice_of(target, &c), tf32;

    c.is_tf32 = true;
    tf32 = choice_of(target, &c);
    printf("choice %u in fp32, %u in TF32\n", (unsigned)exact, (unsigned)tf32);
    if (tf32 != 0 || exact == 0)
        fail("fp32", "computes in TF32, or TF32 does not");
    c = (cuda_dnn_convolution){.type = CUDA_TYPE_HALF,
                               .x = cuda_dnn_channels_last(32, 3, 224, 224),
                               .w = cuda_dnn_channels_last(64, 3, 7, 7),
                               .y = cuda_dnn_channels_last(32, 64, 112, 112),
                               .strides = {2, 2},
                               .padding = {3, 3}};
    exact = choice_of(target, &c);
    printf("choice %u for a first layer in fp16\n", (unsigned)exact);
    if (exact == 0)
        fail("fp16", "adds in 16 bits");
}

/* For floats whose planes exceed the limit, too, an engine that creates these. */
static void copies_check(const cuda_dnn_target *target)
{
    cuda_dnn_convolution c = {.pass = CUDA_DNN_DATA,
                              .type = CUDA_TYPE_FLOAT,
                              .x = cuda_dnn_channels_last(256, 64, 56, 56),
                              .w = cuda_dnn_channels_last(64, 64, 3, 3),
                              .y = cuda_dnn_channels_last(256, 64, 56, 56),
                              .strides = {1, 1},
                              .padding = {1, 1}};
    cuda_dnn_conv *plan = plan_of(target, &c);

    if (plan != NULL && cuda_dnn_conv_workspace(plan) < TY_CONVOLUTION_SCRATCH_LIMIT)
        fail("256 images in fp32", "have no room for planes");
    cuda_dnn_conv_free(plan);
}

static void convolution_refuse(const cuda_dnn_target *target, const char *name,
                               const cuda_dnn_convolution *c)
{
    cuda_dnn_conv *made = NULL;
    ty_error error = {0};

    if (cuda_dnn_conv_new(target, c, CUDA_DNN_ANY_CHOICE, &made, &error) != TY_OK)
        printf("refused %s: %s\n", name, error.message);
    else
        fail(name, "was not refused");
    cuda_dnn_conv_free(made);
}

static void convolution_mistakes(const cuda_dnn_target *target)
{
    const cuda_dnn meddled = dnn_meddled(target->dnn);
    const cuda_dnn_convolution asked = example(CUDA_TYPE_BF16, cuda_dnn_channels_last);
    cuda_dnn_target other = *target;

    other.dnn = &meddled;
    convolution_plans(&other, "without a mistake", false, asked);
    for (int m = 0; m < DNN_CONV_MISTAKES; m++) {
        dnn_plant(&dnn_conv_mistakes[m]);
        convolution_refuse(&other, dnn_conv_mistakes[m].what, &asked);
        if (!dnn_was_made())
            fail(dnn_conv_mistakes[m].what, "is not in any call");
    }
    dnn_plant(NULL);
}

/* Models, and images per micro-batch. */
static const struct {
    const char *name;
    uint64_t batch;
} networks[] = {{"lenet", 64},           {"resnet50", 64},    {"alexnet", 64},
                {"resnext50-32x4d", 64}, {"densenet121", 64}, {"inception-v3", 64},
                {"squeezenet", 64},      {"unet", 40}};
static void convolutions_plan(const cuda_dnn_target *targets)
{
    cuda_dnn_convolution c = example(CUDA_TYPE_BF16, cuda_dnn_channels_last);

    for (int d = 0; d < DEVICES; d++) {
        layouts_compare(&targets[d], devices[d].label);
        precisions_check(&targets[d]);
        copies_check(&targets[d]);
        groups_check(&targets[d], devices[d].label);
        for (size_t n = 0; n < sizeof networks / sizeof *networks; n++)
            convolutions_of_zoo(&targets[d], devices[d].label, networks[n].name, networks[n].batch);
    }
    c.w = cuda_dnn_channels_last(64, 48, 3, 3);
    convolution_refuse(&targets[H100], "48 of 64 channels", &c);
    convolution_mistakes(&targets[H100]);
}

static void attention_plans(const cuda_dnn_target *targets)
{
    cuda_attention a;

    for (int d = 0; d < DEVICES; d++) {
        attention_of_zoo(&targets[d], devices[d].label, "gpt2", 16, 1);
        attention_of_zoo(&targets[d], devices[d].label, "bert-large", 8, 1);
        attention_of_zoo(&targets[d], devices[d].label, "llama-3-8b", 1, 4);
        a = packed(3, 19, 6, 2, 16, true);
        attention_plan(&targets[d], devices[d].label, "small", CUDA_TYPE_BF16, a);
        a = apart(8, 128, 512, 12, 12, 64);
        attention_plan(&targets[d], devices[d].label, "to another sequence", CUDA_TYPE_BF16, a);
    }
    a = packed(1, 256, 4, 4, 264, true);
    attention_refuse(&targets[H100], "heads of 264 on an H100", CUDA_TYPE_BF16, &a);
    a = packed(1, 256, 4, 4, 256, true);
    attention_plan(&targets[H100], devices[H100].label, "of 256", CUDA_TYPE_BF16, a);
    attention_refuse(&targets[A100], "heads of 256 on an A100", CUDA_TYPE_BF16, &a);
    a = packed(1, 8192, 32, 8, 128, true);
    attention_plan_of(&targets[H100], devices[H100].label, "Llama 3 8B undivided", CUDA_TYPE_BF16,
                      &a);
    a.is_ordered = true;
    attention_refuse(&targets[H100], "Llama 3 8B undivided", CUDA_TYPE_BF16, &a);
    mistakes_refuse(&targets[H100]);
}

int main(void)
{
    void *const driver = dlopen("libcuda.so.1", RTLD_NOW);
    const cuda_dnn *dnn;
    cuda_dnn_target targets[DEVICES];
    ty_error error = {0};

    if (cuda_dnn_load(&dnn, &error) != TY_OK) {
        printf("skipped: %s\n", error.message);
        return EXIT_SKIP;
    }
    if (driver == NULL || dlsym(driver, "trainyard_stand_in") == NULL) {
        printf("skipped: the driver that is found is not the stand-in\n");
        return EXIT_SKIP;
    }
    for (int d = 0; d < DEVICES; d++)
        if (!target_make(dnn, &devices[d], &targets[d])) {
            printf("skipped: cuDNN %zu does not take a device that is described\n",
                   dnn->cudnnGetVersion());
            return EXIT_SKIP;
        }
    printf("cuDNN %zu\n", dnn->cudnnGetVersion());
    attention_plans(targets);
    convolutions_plan(targets);
    for (int d = 0; d < DEVICES; d++)
        planned += dnn_norms_plan(&targets[d], devices[d].label, d != H100, &failures);
    for (int d = 0; d < DEVICES; d++)
        dnn->cudnnBackendDestroyDescriptor(targets[d].properties);
    printf("%d plans, %d failed\n", planned, failures);
    return failures > 0 || planned == 0;
}
