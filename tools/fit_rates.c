/* Fits the rates of the catalogue's devices to measured kernels, and scores both.
 *
 *     fit_rates FOLDER          constants and errors as JSON
 *     fit_rates FOLDER --table  errors as the table of docs/reference/devices.md
 *
 * FOLDER has gemm-DEVICE.csv, attention-forward-DEVICE.csv, experts-forward.csv and
 * training-kernels-DEVICE.csv. The time of a kernel is that of a plan (planner/cost/kernels.h): a
 * launch, plus the larger of FLOPs at a share of the peak, with an edge per side, and of its
 * traffic. Per device, the program fits the share of products in each precision with one edge and
 * one launch, then the share of attention with heads of 128, its backward, and grouped products of
 * experts with their own edge. The loss is the mean of |log(predicted / measured)|; small, medium
 * and large kernels have equal weight. Small kernels of attention and experts fill no current
 * device and are only scored. Every fifth shape of an operation is held out. Deterministic. */
#include "cost/kernels.h"
#include "ty_base.h"
#include "ty_topologies.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_FLOP 20e9
#define MEDIUM_FLOP 500e9
#define CAUSAL_SHARE 0.5
/* Inputs in fp8 are scaled: read for the maximum, read and written. */
#define CAST_BYTES 5.0
#define CAST_LAUNCHES 2
#define BACKWARD_WORK 2.5 /* backward over forward FLOPs of attention: five products for two */
/* Passes of experts: gate and up read and one written; permutation and its inverse, a read and a
 * write each. */
#define ACTIVATION_PASSES 3.0
#define PERMUTATION_PASSES 4.0
enum { APART = 5, SIZES = 3 };
static const char *const size_names[SIZES] = {"small", "medium", "large"};

typedef enum operation {
    PRODUCT_BF16,
    PRODUCT_FP8,
    ATTENTION,
    ATTENTION_OTHER, /* heads of other sizes */
    ATTENTION_BACKWARD,
    EXPERTS_BF16,
    EXPERTS_FP8,
    OPERATIONS
} operation;
static const char *const operation_names[OPERATIONS] = {"products bf16",
                                                        "products fp8",
                                                        "attention, heads of 128",
                                                        "attention, other heads",
                                                        "attention backward",
                                                        "experts bf16",
                                                        "experts fp8"};

/* Fitted constants of a device; the launch is in us. */
typedef enum constant {
    SHARE_BF16,
    SHARE_FP8,
    EDGE,
    LAUNCH_US,
    SHARE_ATTENTION,
    BACKWARD,
    GROUPED_BF16,
    GROUPED_FP8,
    GROUPED_EDGE,
    CONSTANTS
} constant;
static const struct {
    const char *name;
    double start, minimum, maximum;
} constants[CONSTANTS] = {
    [SHARE_BF16] = {"matmul_efficiency", 0.7, 0.05, 1},
    [SHARE_FP8] = {"fp8_efficiency", 0.6, 0.05, 1},
    [EDGE] = {"product_edge", 20, 0, 1000},
    [LAUNCH_US] = {"launch_us", 3, 0, 50},
    [SHARE_ATTENTION] = {"attention_efficiency", 0.4, 0.02, 1},
    [BACKWARD] = {"attention_backward", 0.8, 0.1, 2},
    [GROUPED_BF16] = {"grouped_of_products_bf16", 0.6, 0.02, 2},
    [GROUPED_FP8] = {"grouped_of_products_fp8", 0.6, 0.02, 2},
    [GROUPED_EDGE] = {"grouped_edge", 50, 0, 1000},
};

/* One measured call: consecutive kernels of one kind. */
typedef struct sample {
    operation of;
    bool is_apart;
    uint32_t kernel_count;
    ty_kernel kernels[4];
    double flop, seconds;
} sample;

typedef struct sample_set {
    const char *device;   /* in the catalogue */
    const char *file;     /* in file names, or in experts-forward.csv */
    const char *training; /* training-kernels-...: instead of inference's; NULL: none */
    ty_device_type type;
    sample *samples;
    size_t count;
    uint32_t of_file[OPERATIONS];
    double fitted[CONSTANTS];
    bool is_fitted[CONSTANTS];
} sample_set;

static const sample_set known[] = {
    {.device = "a100-sxm4-80gb", .file = "a100-sxm4-80gb"},
    {.device = "h100-sxm", .file = "h100-sxm"},
    {.device = "h200-sxm", .file = "h200-sxm"},
    {.device = "b200", .file = "b200-sxm"},
    {.device = "b300", .file = "b300-sxm"},
    {.device = "gb200", .file = "gb200"},
    {.device = "l40s", .file = "l40s"},
    {.device = "rtx-pro-6000", .file = "rtx-pro-6000"},
    {.device = "a100-pcie-80gb", .training = "a100-pcie-80gb"},
    {.device = "b200", .training = "b200-sxm"},
};
enum { SETS = sizeof known / sizeof known[0] };

static void stop(const ty_error *error)
{
    fprintf(stderr, "fit_rates: %s\n", error->message);
    exit(EXIT_FAILURE);
}

/* ---- Reading ------------------------------------------------------------------------------- */

static void add(sample_set *set, sample s)
{
    ty_error error = {0};
    sample *grown = ty_resize(set->samples, set->count + 1, sizeof *grown);

    if (grown == NULL) {
        ty_fail(&error, TY_ENOMEM, "out of memory");
        stop(&error);
    }
    for (uint32_t k = 0; k < s.kernel_count; k++)
        s.flop += s.kernels[k].times * s.kernels[k].flop;
    s.is_apart = ++set->of_file[s.of] % APART == 0;
    set->samples = grown;
    set->samples[set->count++] = s;
}

/* The result has 16 bits if the operands have 8. */
static ty_kernel product(double times, double m, double n, double k, bool is_narrow)
{
    const double operand_bytes = is_narrow ? 1 : 2, result_bytes = 2;

    return (ty_kernel){.kind = TY_KERNEL_PRODUCT,
                       .is_narrow = is_narrow,
                       .times = times,
                       .m = m,
                       .n = n,
                       .k = k,
                       .flop = 2 * m * n * k,
                       .bytes = operand_bytes * (m * k + k * n) + result_bytes * m * n,
                       .launches = 1};
}

static ty_kernel pass(double bytes, double launches)
{
    return (ty_kernel){.kind = TY_KERNEL_PASS, .times = 1, .bytes = bytes, .launches = launches};
}

static ty_kernel attention(double heads, double sequence, double head, double value)
{
    return (ty_kernel){.kind = TY_KERNEL_ATTENTION,
                       .times = heads,
                       .m = sequence,
                       .n = sequence,
                       .k = head,
                       .flop = 2 * sequence * sequence * (head + value) * CAUSAL_SHARE,
                       .bytes = 2 * 2 * sequence * (head + value),
                       .launches = 1};
}

static void read_product(sample_set *set, const char *line)
{
    char precision[8];
    double m, n, k, us;

    if (sscanf(line, "%7[^,],%lf,%lf,%lf,%lf", precision, &m, &n, &k, &us) == 5) {
        const bool is_fp8 = strcmp(precision, "fp8") == 0;
        add(set, (sample){.of = is_fp8 ? PRODUCT_FP8 : PRODUCT_BF16,
                          .kernel_count = is_fp8 ? 2 : 1,
                          .kernels = {product(1, m, n, k, is_fp8),
                                      pass(CAST_BYTES * m * k, CAST_LAUNCHES)},
                          .seconds = us * 1e-6});
    }
}

static void read_attention(sample_set *set, const char *line)
{
    double batch, sequence, heads, us, head;

    if (sscanf(line, "%lf,%lf,%lf,%*f,%lf,%*[^,],%lf", &batch, &sequence, &heads, &head, &us) == 5)
        add(set, (sample){.of = head == 128 ? ATTENTION : ATTENTION_OTHER,
                          .kernel_count = 1,
                          .kernels = {attention(batch * heads, sequence, head, head)},
                          .seconds = us * 1e-6});
}

/* Reads experts: gate and up in one product, down in another, of all experts of a device. Rows with
 * power-law choices of experts on several devices are skipped, since their time depends on which
 * experts a device has. */
static void read_experts(sample_set *set, const char *line)
{
    char device[32], precision[8], distribution[32];
    double tokens, hidden, width, chosen, experts, tensor, parallel, us;

    if (sscanf(line, "%31[^,],%7[^,],%lf,%lf,%lf,%lf,%lf,%lf,%lf,%31[^,],%*[^,],%lf", device,
               precision, &tokens, &hidden, &width, &chosen, &experts, &tensor, &parallel,
               distribution, &us) == 11 &&
        strcmp(device, set->file) == 0 &&
        (strcmp(distribution, "balanced") == 0 || parallel <= 1)) {
        const bool is_fp8 = strcmp(precision, "fp8") == 0;
        const double rows = tokens * chosen / experts;
        const double routed = tokens * chosen / parallel;
        sample s = {
            .of = is_fp8 ? EXPERTS_FP8 : EXPERTS_BF16,
            .kernel_count = 4,
            .kernels = {product(experts / parallel, rows, 2 * width / tensor, hidden, is_fp8),
                        product(experts / parallel, rows, hidden, width / tensor, is_fp8),
                        pass(ACTIVATION_PASSES * 2 * routed * width / tensor, 1),
                        pass(PERMUTATION_PASSES * 2 * routed * hidden, 2)},
            .seconds = us * 1e-6};
        s.kernels[0].is_grouped = s.kernels[1].is_grouped = true;
        add(set, s);
    }
}

static void read_training(sample_set *set, const char *line)
{
    double peak_tflop, a, b, c, d, share;
    const char *shape = strchr(line, '"'), *end = shape != NULL ? strchr(shape + 1, '"') : NULL;
    const bool is_backward = strncmp(line, "sdp_bwd", 7) == 0;
    sample s = {.kernel_count = 1};

    if (end == NULL || sscanf(line, "%*[^,],%lf", &peak_tflop) != 1 ||
        sscanf(end + 1, ",%lf", &share) != 1)
        return;
    if (sscanf(shape, "\"b=%lf, m=%lf, k=%lf, n=%lf", &a, &b, &d, &c) == 4) {
        s.kernels[0] = product(a, b, c, d, false);
        if (strstr(shape, "out_dtype=fp32") != NULL) /* added to what is there */
            s.kernels[0].bytes += a * b * c * (4 + 4 - 2);
        s.seconds = 2 * a * b * c * d;
    } else if (sscanf(shape, "\"ng=%lf, M=%lf, N=%lf, K=%lf", &a, &b, &c, &d) == 4) {
        s.of = EXPERTS_BF16;
        s.kernels[0] = product(a, b, c, d, false);
        s.kernels[0].is_grouped = true;
        s.seconds = 2 * a * b * c * d;
    } else if (sscanf(shape,
                      "\"batch=%*f, seq_len=%lf, head_num=%lf, kv_head_num=%*f, qk_head_dim=%lf, "
                      "v_head_dim=%lf",
                      &a, &b, &c, &d) == 4) {
        /* Their share also counts the part above the diagonal. */
        s.of = is_backward ? ATTENTION_BACKWARD : ATTENTION;
        s.kernels[0] = attention(b, a, c, d);
        s.kernels[0].flop *= is_backward ? BACKWARD_WORK : 1;
        s.kernels[0].bytes *= is_backward ? 2 : 1;
        s.seconds = b * s.kernels[0].flop / CAUSAL_SHARE;
    } else
        return;
    s.seconds /= peak_tflop * 1e12 * share;
    add(set, s);
}

static void read_file(const char *folder, const char *kind, const char *device, sample_set *set,
                      void (*read_line)(sample_set *, const char *))
{
    ty_error error = {0};
    char path[512], *text = NULL, *rest, *line;
    size_t length;

    snprintf(path, sizeof path, "%s/%s%s.csv", folder, kind, device);
    if (ty_file_read(path, 0, &text, &length, &error) != TY_OK)
        stop(&error);
    for (line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        read_line(set, line);
    ty_free(text);
}

static void read_set(const char *folder, sample_set *set)
{
    char text[64];
    ty_cluster *cluster = NULL;
    ty_error error = {0};
    char path[512];

    snprintf(text, sizeof text, "host:1 gpu:1 @%s pcie4 eth100", set->device);
    if (ty_cluster_open(text, NULL, &cluster, &error) != TY_OK)
        stop(&error);
    set->type = *ty_cluster_device_type(cluster, 0);
    set->type.name = set->type.source = NULL;
    ty_cluster_free(cluster);
    if (set->training != NULL) {
        read_file(folder, "training-kernels-", set->training, set, read_training);
        return;
    }
    read_file(folder, "gemm-", set->file, set, read_product);
    snprintf(path, sizeof path, "%s/attention-forward-%s.csv", folder, set->file);
    if (ty_file_exists(path))
        read_file(folder, "attention-forward-", set->file, set, read_attention);
    read_file(folder, "experts-forward", "", set, read_experts);
}

/* ---- Fitting ------------------------------------------------------------------------------- */

static double seconds_of(const sample_set *set, const sample *s, const double c[CONSTANTS])
{
    const bool is_grouped = s->of == EXPERTS_BF16 || s->of == EXPERTS_FP8;
    const ty_rates rates = {
        .product_flop_per_s = set->type.peak_fp16_flop_per_s * c[SHARE_BF16],
        .narrow_flop_per_s = set->type.peak_fp8_flop_per_s * c[SHARE_FP8],
        .attention_flop_per_s = set->type.peak_fp16_flop_per_s * c[SHARE_ATTENTION],
        .attention_backward = c[BACKWARD],
        .grouped = c[s->of == EXPERTS_FP8 ? GROUPED_FP8 : GROUPED_BF16],
        .bytes_per_s = set->type.memory_bandwidth_bytes_per_s * set->type.memory_efficiency,
        .kernel_s = c[LAUNCH_US] * 1e-6,
        .edge = c[is_grouped ? GROUPED_EDGE : EDGE]};

    return ty_kernels_seconds(s->kernels, s->kernel_count, &rates, s->of == ATTENTION_BACKWARD);
}

static int size_of(const sample *s)
{
    return s->flop < SMALL_FLOP ? 0 : s->flop < MEDIUM_FLOP ? 1 : 2;
}

/* Mean |log| of the fitted samples of some operations (bits), with equal weight per operation and
 * size; 0 without samples. */
static double loss(const sample_set *set, uint32_t operations, const double c[CONSTANTS])
{
    double sums[OPERATIONS][SIZES] = {{0}}, counts[OPERATIONS][SIZES] = {{0}}, sum = 0, count = 0;

    for (size_t i = 0; i < set->count; i++) {
        const sample *s = &set->samples[i];
        const bool is_product = s->of == PRODUCT_BF16 || s->of == PRODUCT_FP8;
        const int size = size_of(s);
        if (s->is_apart || (operations >> s->of & 1) == 0 || (!is_product && size == 0))
            continue;
        sums[s->of][size] += fabs(log(seconds_of(set, s, c) / s->seconds));
        counts[s->of][size]++;
    }
    for (int o = 0; o < OPERATIONS; o++)
        for (int z = 0; z < SIZES; z++)
            if (counts[o][z] > 0) {
                sum += sums[o][z] / counts[o][z];
                count++;
            }
    return count > 0 ? sum / count : 0;
}

/* Fits one constant after the other with shrinking steps, until none improves. */
static void fit(sample_set *set, uint32_t operations, uint32_t fitted)
{
    double *c = set->fitted, least = loss(set, operations, c);

    if (!(least > 0))
        return;
    for (int p = 0; p < CONSTANTS; p++)
        set->is_fitted[p] = set->is_fitted[p] || (fitted >> p & 1) != 0;
    for (double step = 0.5; step > 1e-3; step /= 1.5)
        for (bool is_better = true; is_better;) {
            is_better = false;
            for (int p = 0; p < CONSTANTS; p++)
                for (int sign = -1; (fitted >> p & 1) != 0 && sign <= 1; sign += 2) {
                    const double before = c[p];
                    double found;
                    c[p] = p == EDGE || p == GROUPED_EDGE || p == LAUNCH_US
                               ? before + sign * step * constants[p].start
                               : before * exp(sign * step);
                    c[p] = fmin(fmax(c[p], constants[p].minimum), constants[p].maximum);
                    found = loss(set, operations, c);
                    if (found < least * (1 - 1e-6)) {
                        least = found;
                        is_better = true;
                    } else {
                        c[p] = before;
                    }
                }
        }
}

static void fit_set(sample_set *set)
{
    fit(set, 1u << PRODUCT_BF16, 1u << SHARE_BF16 | 1u << EDGE | 1u << LAUNCH_US);
    fit(set, 1u << PRODUCT_FP8, 1u << SHARE_FP8);
    if (set->of_file[PRODUCT_FP8] > 0)
        fit(set, 1u << PRODUCT_BF16 | 1u << PRODUCT_FP8,
            1u << SHARE_BF16 | 1u << SHARE_FP8 | 1u << EDGE | 1u << LAUNCH_US);
    fit(set, 1u << ATTENTION, 1u << SHARE_ATTENTION);
    fit(set, 1u << ATTENTION_BACKWARD, 1u << BACKWARD);
    fit(set, 1u << EXPERTS_BF16, 1u << GROUPED_BF16 | 1u << GROUPED_EDGE);
    fit(set, 1u << EXPERTS_FP8, 1u << GROUPED_FP8);
}

/* ---- Output -------------------------------------------------------------------------------- */

typedef enum shapes { FITTED_SHAPES, SHAPES_APART, ALL_SHAPES } shapes;
typedef struct cell {
    uint32_t count;
    double error; /* mean |log| */
} cell;

static cell cell_of(const sample_set *set, const double c[CONSTANTS], operation of, int size,
                    shapes which)
{
    cell out = {0};

    for (size_t i = 0; i < set->count; i++) {
        const sample *s = &set->samples[i];
        if (s->of != of || size_of(s) != size ||
            (which != ALL_SHAPES && s->is_apart != (which == SHAPES_APART)))
            continue;
        out.error += fabs(log(seconds_of(set, s, c) / s->seconds));
        out.count++;
    }
    out.error /= out.count > 0 ? out.count : 1;
    return out;
}

/* Takes the catalogue's constants of a device, as a plan does; constants that it leaves to stacks
 * stay as fitted. */
static void take_catalogue(const sample_set *set, double c[CONSTANTS])
{
    const ty_stack *none = ty_stack_of(&(ty_plan){0});
    const ty_rates wide = ty_rates_of(&set->type, none, TY_PRECISION_BF16);
    const ty_rates narrow = ty_rates_of(&set->type, none, TY_PRECISION_FP8);

    memcpy(c, set->fitted, CONSTANTS * sizeof *c);
    c[SHARE_BF16] = wide.product_flop_per_s / set->type.peak_fp16_flop_per_s;
    if (set->type.peak_fp8_flop_per_s > 0)
        c[SHARE_FP8] = narrow.narrow_flop_per_s / set->type.peak_fp8_flop_per_s;
    c[EDGE] = wide.edge;
    c[LAUNCH_US] = wide.kernel_s * 1e6;
    c[SHARE_ATTENTION] = wide.attention_flop_per_s > 0
                             ? wide.attention_flop_per_s / set->type.peak_fp16_flop_per_s
                             : c[SHARE_BF16];
    c[BACKWARD] = wide.attention_backward;
}

static const char *kernels_of(const sample_set *set)
{
    return set->training != NULL ? "training" : "inference";
}

static void write_json(const sample_set sets[SETS], ty_text *text)
{
    ty_json_writer w = ty_json_writer_on(text);

    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "schema", "trainyard.fit_rates/1");
    ty_json_open(&w, "devices", '[');
    for (int i = 0; i < SETS; i++) {
        const sample_set *set = &sets[i];
        ty_json_open(&w, NULL, '{');
        ty_json_put_string(&w, "device", set->device);
        ty_json_put_string(&w, "kernels", kernels_of(set));
        ty_json_open_flat(&w, "fitted", '{');
        for (int p = 0; p < CONSTANTS; p++)
            if (set->is_fitted[p])
                ty_json_put_number(&w, constants[p].name, set->fitted[p]);
        ty_json_close(&w, '}');
        ty_json_open(&w, "errors", '[');
        for (int o = 0; o < OPERATIONS; o++)
            for (int size = 0; size < SIZES; size++) {
                const cell in = cell_of(set, set->fitted, (operation)o, size, FITTED_SHAPES);
                const cell out = cell_of(set, set->fitted, (operation)o, size, SHAPES_APART);
                if (in.count + out.count == 0)
                    continue;
                ty_json_open_flat(&w, NULL, '{');
                ty_json_put_string(&w, "operation", operation_names[o]);
                ty_json_put_string(&w, "size", size_names[size]);
                ty_json_put_uint(&w, "shapes", in.count);
                ty_json_put_number(&w, "mean_log_error", in.error);
                ty_json_put_uint(&w, "shapes_apart", out.count);
                ty_json_put_number(&w, "mean_log_error_apart", out.error);
                ty_json_close(&w, '}');
            }
        ty_json_close(&w, ']');
        ty_json_close(&w, '}');
    }
    ty_json_close(&w, ']');
    ty_json_close(&w, '}');
    ty_text_add(text, "\n");
}

static void write_cell(ty_text *text, const cell *of)
{
    if (of->count == 0)
        ty_text_add(text, " - |");
    else
        ty_text_addf(text, " %.2f |", of->error);
}

static void write_table(const sample_set sets[SETS], ty_text *text)
{
    ty_text_add(text, "| device | kernels | operation | size | shapes | fitted | kept apart | "
                      "catalogue |\n| --- | --- | --- | --- | ---: | ---: | ---: | ---: |\n");
    for (int i = 0; i < SETS; i++) {
        double own[CONSTANTS];
        take_catalogue(&sets[i], own);
        for (int o = 0; o < OPERATIONS; o++)
            for (int size = 0; size < SIZES; size++) {
                const cell in =
                               cell_of(&sets[i], sets[i].fitted, (operation)o, size, FITTED_SHAPES),
                           out =
                               cell_of(&sets[i], sets[i].fitted, (operation)o, size, SHAPES_APART),
                           all = cell_of(&sets[i], own, (operation)o, size, ALL_SHAPES);
                if (all.count == 0)
                    continue;
                ty_text_addf(text, "| %s | %s | %s | %s | %u |", sets[i].device,
                             kernels_of(&sets[i]), operation_names[o], size_names[size], all.count);
                write_cell(text, &in);
                write_cell(text, &out);
                write_cell(text, &all);
                ty_text_add(text, "\n");
            }
    }
}

int main(int count, char **words)
{
    static sample_set sets[SETS];
    const bool is_table = count == 3 && strcmp(words[2], "--table") == 0;
    ty_text text = {0};
    ty_error error = {0};
    ty_status status;

    if (count != 2 && !is_table) {
        fprintf(stderr, "usage: fit_rates FOLDER [--table]\n");
        return 2;
    }
    for (int i = 0; i < SETS; i++) {
        sets[i] = known[i];
        for (int p = 0; p < CONSTANTS; p++)
            sets[i].fitted[p] = constants[p].start;
        read_set(words[1], &sets[i]);
        fit_set(&sets[i]);
    }
    if (is_table)
        write_table(sets, &text);
    else
        write_json(sets, &text);
    for (int i = 0; i < SETS; i++)
        ty_free(sets[i].samples);
    status = ty_file_write_text("-", &text, &error);
    ty_text_clear(&text);
    if (status != TY_OK)
        stop(&error);
    return EXIT_SUCCESS;
}
