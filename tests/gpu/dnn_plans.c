/* Plans of the real cuDNN, for devices that are described to it: no GPU is needed, and nothing
 * runs. What layers of the zoo ask for it must take, in the memory that the backend allows; what is
 * known to be beyond it must be refused. cuDNN believes in a driver (driver_stand_in.cmake).
 *
 * Attention's graphs are the backend's own. Convolutions it asks for by cuDNN's older interface,
 * which wants a device; here they are the same operations as graphs: [B,C,H,W], sums in floats. */
#include "cuda_dnn.h"
#include "emulator/dnn_mistakes.h"
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

/* Queries, keys and values of a token side by side, as the backend has them of one sequence. */
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

/* Queries of one sequence, and behind them keys and values of another. */
static cuda_attention apart(uint64_t batch, uint64_t queries, uint64_t keys, uint64_t heads,
                            uint64_t kv_heads, uint64_t size)
{
    cuda_attention a = packed(batch, queries, heads, kv_heads, size, false);

    a.keys = keys;
    a.stride = heads * size;
    a.key_stride = 2 * kv_heads * size;
    a.key_at = batch * queries * a.stride; /* a multiple of 128 elements, as the backend has it */
    a.value_at = a.key_at + kv_heads * size;
    return a;
}

/* What backward has to keep: a number for every score, and of heads that share keys the gradients
 * of keys and values of each. Beside it a few numbers a row. */
static bool is_expected(const cuda_attention *a, uint64_t bytes)
{
    const uint64_t queries = (a->length + 63) / 64 * 64, keys = (a->keys + 127) / 128 * 128;
    const uint64_t scores = a->batch * a->heads * a->length * a->keys * 2;
    const uint64_t whole =
        a->heads == a->kv_heads ? 0 : 2 * a->batch * a->heads * a->keys * a->head_size * 2;
    const uint64_t most = a->batch * a->heads * queries * keys * 2 + whole;

    return bytes >= scores && bytes <= most + a->batch * a->heads * queries * 16 + 4096;
}

static void attention_plan(const cuda_dnn_target *target, const char *device, const char *name,
                           cuda_type type, const cuda_attention *a)
{
    cuda_dnn_attention *made = NULL;
    ty_error error = {0};
    char what[128];

    snprintf(what, sizeof what, "%s attention %s %s", device, name, name_of(type));
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

/* What the emulator's stand-in refuses cuDNN does, too. */
static void mistakes_refuse(const cuda_dnn_target *target)
{
    const cuda_dnn meddled = dnn_meddled(target->dnn);
    const cuda_attention a = packed(2, 128, 4, 2, 64, true);
    cuda_dnn_target other = *target;

    other.dnn = &meddled;
    attention_plan(&other, "H100", "without a mistake", CUDA_TYPE_BF16, &a);
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

/* The first attention of a network of the zoo, of which tensor lanes divide the heads. */
static void attention_of_zoo(const cuda_dnn_target *target, const char *device, const char *name,
                             uint64_t batch, uint64_t lanes)
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
        asked = packed(batch, w->layers[l].output.dimensions[0], a[TY_HEADS] / lanes,
                       a[TY_KV_HEADS] / lanes, a[TY_HEAD_SIZE], a[TY_IS_CAUSAL] != 0);
        attention_plan(target, device, name, CUDA_TYPE_BF16, &asked);
        attention_plan(target, device, name, CUDA_TYPE_HALF, &asked);
        break;
    }
    ty_workload_free(w);
}

/* ---- Convolutions ---- */

typedef struct convolution {
    cuda_dnn_layout x, w, y;
    int64_t strides[2], padding[2];
} convolution;

static cuda_dnn_layout row_major(int64_t n, int64_t c, int64_t h, int64_t w)
{
    return (cuda_dnn_layout){{n, c, h, w}, {c * h * w, h * w, w, 1}};
}

enum { FORWARD, DATA, FILTER, PASSES };
static const char *const pass_names[] = {"forward", "data", "filter"};

/* Names of one pass's attributes. */
static const struct {
    cudnnBackendDescriptorType_t kind;
    cudnnBackendAttributeName_t operation, alpha, beta, x, w, y;
} passes[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
};

static ty_status convolution_plan(const cuda_dnn_target *target, cuda_type type, int pass,
                                  const convolution *c, uint64_t *bytes, ty_error *error)
{
    const cudnnDataType_t data = cuda_dnn_type(type);
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t axes = 2, dilation[2] = {1, 1};
    const float one = 1.0f, zero = 0.0f;
    cuda_dnn_graph g = {.target = target};
    cuda_dnn_plan plan = {0};
    cudnnBackendDescriptor_t kind = cuda_dnn_make(&g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR), made;
    ty_status status;

    cuda_dnn_set_type(&g, kind, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    cuda_dnn_set(&g, kind, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    cuda_dnn_set(&g, kind, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes);
    cuda_dnn_set(&g, kind, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    cuda_dnn_set(&g, kind, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, c->strides);
    cuda_dnn_set(&g, kind, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, c->padding);
    cuda_dnn_set(&g, kind, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, c->padding);
    cuda_dnn_finalize(&g, kind);
    made = cuda_dnn_make(&g, passes[pass].kind);
    cuda_dnn_link(&g, made, passes[pass].operation, kind);
    cuda_dnn_link(&g, made, passes[pass].x, cuda_dnn_tensor(&g, 1, data, &c->x, CUDA_DNN_REAL));
    cuda_dnn_link(&g, made, passes[pass].w, cuda_dnn_tensor(&g, 2, data, &c->w, CUDA_DNN_REAL));
    cuda_dnn_link(&g, made, passes[pass].y, cuda_dnn_tensor(&g, 3, data, &c->y, CUDA_DNN_REAL));
    cuda_dnn_set(&g, made, passes[pass].alpha, CUDNN_TYPE_FLOAT, 1, &one);
    cuda_dnn_set(&g, made, passes[pass].beta, CUDNN_TYPE_FLOAT, 1, &zero);
    cuda_dnn_operation(&g, made);
    status = cuda_dnn_plan_make(&g, &plan, error);
    if (status == TY_OK) {
        *bytes = plan.workspace_bytes;
        target->dnn->cudnnBackendDestroyDescriptor(plan.descriptor);
    }
    return status;
}

static void convolution_passes(const cuda_dnn_target *target, const char *device, const char *name,
                               cuda_type type, const convolution *c)
{
    for (int pass = 0; pass < PASSES; pass++) {
        ty_error error = {0};
        uint64_t bytes;
        char what[192];

        snprintf(what, sizeof what,
                 "%s convolution %s %s %s, %lldx%lldx%lld by %lldx%lldx%lld/%lld", device, name,
                 name_of(type), pass_names[pass], (long long)c->x.sizes[1],
                 (long long)c->x.sizes[2], (long long)c->x.sizes[3], (long long)c->w.sizes[0],
                 (long long)c->w.sizes[2], (long long)c->w.sizes[3], (long long)c->strides[0]);
        if (convolution_plan(target, type, pass, c, &bytes, &error) != TY_OK) {
            fail(what, error.message);
            continue;
        }
        printf("%s: %llu B\n", what, (unsigned long long)bytes);
        planned++;
    }
}

static convolution convolution_of(const ty_workload *w, uint32_t layer, int64_t batch)
{
    const uint64_t *a = w->layers[layer].attributes;
    const uint64_t *in = ty_layer_input_shape(w, layer, 0)->dimensions;
    const uint64_t *out = w->layers[layer].output.dimensions;

    return (convolution){.x = row_major(batch, (int64_t)in[0], (int64_t)in[1], (int64_t)in[2]),
                         .w = row_major((int64_t)a[TY_OUT_CHANNELS],
                                        (int64_t)(a[TY_IN_CHANNELS] / a[TY_GROUPS]),
                                        (int64_t)a[TY_KERNEL_HEIGHT], (int64_t)a[TY_KERNEL_WIDTH]),
                         .y = row_major(batch, (int64_t)out[0], (int64_t)out[1], (int64_t)out[2]),
                         .strides = {(int64_t)a[TY_STRIDE], (int64_t)a[TY_STRIDE]},
                         .padding = {(int64_t)a[TY_PADDING_HEIGHT], (int64_t)a[TY_PADDING_WIDTH]}};
}

/* Every shape of a network once. */
static void convolutions_of_zoo(const cuda_dnn_target *target, const char *device, const char *name,
                                int64_t batch)
{
    enum { MOST_SHAPES = 64 };
    convolution seen[MOST_SHAPES];
    uint32_t count = 0;
    ty_workload *w = NULL;
    ty_error error = {0};

    if (ty_workload_open(name, &w, &error) != TY_OK) {
        fail(name, error.message);
        return;
    }
    for (uint32_t l = 0; l < w->layer_count && count < MOST_SHAPES; l++) {
        uint32_t s = 0;
        if (w->layers[l].kind != TY_LAYER_CONV2D)
            continue;
        seen[count] = convolution_of(w, l, batch);
        while (memcmp(&seen[s], &seen[count], sizeof *seen) != 0)
            s++;
        if (s < count)
            continue;
        convolution_passes(target, device, name, CUDA_TYPE_BF16, &seen[count]);
        convolution_passes(target, device, name, CUDA_TYPE_FLOAT, &seen[count++]);
    }
    ty_workload_free(w);
}

static void convolution_refuse(const cuda_dnn_target *target)
{
    const convolution c = {.x = row_major(4, 64, 56, 56),
                           .w = row_major(64, 48, 3, 3), /* of which 64 channels are no multiple */
                           .y = row_major(4, 64, 56, 56),
                           .strides = {1, 1},
                           .padding = {1, 1}};
    ty_error error = {0};
    uint64_t bytes;

    if (convolution_plan(target, CUDA_TYPE_BF16, FORWARD, &c, &bytes, &error) != TY_OK)
        printf("refused 48 of 64 channels: %s\n", error.message);
    else
        fail("48 of 64 channels", "was not refused");
}

int main(void)
{
    void *const driver = dlopen("libcuda.so.1", RTLD_NOW);
    const cuda_dnn *dnn;
    cuda_dnn_target targets[DEVICES];
    cuda_attention a;
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
    for (int d = 0; d < DEVICES; d++) {
        attention_of_zoo(&targets[d], devices[d].label, "gpt2", 16, 1);
        attention_of_zoo(&targets[d], devices[d].label, "bert-large", 8, 1);
        attention_of_zoo(&targets[d], devices[d].label, "llama-3-8b", 1, 4);
        a = packed(3, 19, 6, 2, 16, true);
        attention_plan(&targets[d], devices[d].label, "small", CUDA_TYPE_BF16, &a);
        a = apart(8, 128, 512, 12, 12, 64);
        attention_plan(&targets[d], devices[d].label, "to another sequence", CUDA_TYPE_BF16, &a);
    }
    a = packed(1, 256, 4, 4, 264, true);
    attention_refuse(&targets[H100], "heads of 264 on an H100", CUDA_TYPE_BF16, &a);
    a = packed(1, 256, 4, 4, 256, true);
    attention_plan(&targets[H100], devices[H100].label, "of 256", CUDA_TYPE_BF16, &a);
    attention_refuse(&targets[A100], "heads of 256 on an A100", CUDA_TYPE_BF16, &a);
    a = packed(1, 8192, 32, 8, 128, true);
    attention_refuse(&targets[H100], "Llama 3 8B undivided", CUDA_TYPE_BF16, &a);
    mistakes_refuse(&targets[H100]);
    convolutions_of_zoo(&targets[H100], devices[H100].label, "lenet", 64);
    convolutions_of_zoo(&targets[H100], devices[H100].label, "resnet50", 32);
    convolution_refuse(&targets[H100]);
    for (int d = 0; d < DEVICES; d++)
        dnn->cudnnBackendDestroyDescriptor(targets[d].properties);
    printf("%d plans, %d failed\n", planned, failures);
    return failures > 0 || planned == 0;
}
