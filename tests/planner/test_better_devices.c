/* A better device is never slower. For two hosts of the catalogue, the first at least as good as
 * the second in every figure, no framework makes a kernel, a collective or a step longer on the
 * first. */
#include "../pin.h"
#include "../quick.h"
#include "cost/kernels.h"
#include "ty_base.h"
#include "ty_topologies.h"
#include "ty_workloads.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SLACK 1.005
#define MOST_HOSTS 128
#define MOST_STACKS 32
#define NEAR 8  /* devices of a host whose links are compared */
#define LEAST 4 /* devices of a host: with fewer there are no relevant links */

/* ---- Which hosts are better --------------------------------------------------------------------
 */

/* A host of the catalogue, and eight of them. */
typedef struct place {
    char *name;
    ty_cluster *one, *eight;
    const ty_device_type *device;
    uint32_t devices;
    double inside[NEAR], inside_s[NEAR]; /* bandwidth and latency from device 0 to k */
    double outside, outside_s;           /* to the first device of the next host */
    double network;                      /* of all NICs of a host */
    const char *network_kind;
} place;

static place places[MOST_HOSTS];
static uint32_t place_count;
static ty_stack *stacks[MOST_STACKS];
static uint32_t stack_count;

static ty_cluster *open_hosts(const char *name, uint32_t count)
{
    ty_cluster *cluster = NULL;
    ty_error error = {0};
    char text[128];

    snprintf(text, sizeof text, "%ux %s", count, name);
    if (ty_cluster_open(text, NULL, &cluster, &error) != TY_OK) /* a cluster, not a host */
        return NULL;
    return cluster;
}

static void measure_path(const ty_cluster *cluster, uint32_t to, double *bandwidth, double *latency)
{
    ty_path path = {0};
    ty_error error = {0};

    cr_assert_eq(ty_cluster_path(cluster, 0, to, &path, &error), TY_OK, "%s", error.message);
    *bandwidth = path.bandwidth_bytes_per_s;
    *latency = path.latency_s;
    ty_path_clear(&path);
}

/* Bandwidth to the next host while all devices send. */
static double network_of(const ty_cluster *cluster, uint32_t devices, const char **kind)
{
    uint32_t links[64], count = 0;
    double sum = 0;

    for (uint32_t d = 0; d < devices; d++) {
        ty_device_ports ports;
        uint32_t i = 0;
        cr_assert_eq(ty_cluster_device_ports(cluster, d, devices, &ports, NULL), TY_OK);
        while (i < count && links[i] != ports.network_link)
            i++;
        if (i < count || count == sizeof links / sizeof *links)
            continue;
        links[count++] = ports.network_link;
        sum += ports.network_bytes_per_s;
        *kind = ports.network_kind;
    }
    return sum;
}

static void open_place(const char *name)
{
    place p = {.one = open_hosts(name, 1), .eight = open_hosts(name, 8)};

    if (p.one == NULL || p.eight == NULL || place_count == MOST_HOSTS) {
        ty_cluster_free(p.one);
        ty_cluster_free(p.eight);
        return;
    }
    p.name = ty_strdup(name);
    p.device = ty_cluster_device_type(p.one, 0);
    p.devices = ty_cluster_device_count(p.one);
    for (uint32_t k = 1; k < p.devices && k < NEAR; k++)
        measure_path(p.one, k, &p.inside[k], &p.inside_s[k]);
    measure_path(p.eight, p.devices, &p.outside, &p.outside_s);
    p.network = network_of(p.eight, p.devices, &p.network_kind);
    places[place_count++] = p;
}

static void open_all(void)
{
    char **names = NULL;
    uint32_t count = 0;
    ty_error error = {0};

    cr_assert_eq(ty_catalogue_list(&names, &count, &error), TY_OK, "%s", error.message);
    for (uint32_t i = 0; i < count; i++)
        open_place(names[i]);
    ty_names_free(names, count);
    cr_assert_eq(ty_stack_names(&names, &count, &error), TY_OK, "%s", error.message);
    cr_assert(count <= MOST_STACKS);
    for (; stack_count < count; stack_count++)
        cr_assert_eq(ty_stack_open(names[stack_count], &stacks[stack_count], &error), TY_OK, "%s",
                     error.message);
    ty_names_free(names, count);
}

static void close_all(void)
{
    while (place_count > 0) {
        place *p = &places[--place_count];
        ty_cluster_free(p->one);
        ty_cluster_free(p->eight);
        ty_free(p->name);
    }
    while (stack_count > 0)
        ty_stack_free(stacks[--stack_count]);
}

/* Launch times are among the figures, because they dominate the time of tiny models. */
static bool is_better_device(const ty_device_type *a, const ty_device_type *b)
{
    return a->peak_fp32_flop_per_s >= b->peak_fp32_flop_per_s &&
           a->peak_tf32_flop_per_s >= b->peak_tf32_flop_per_s &&
           a->peak_fp16_flop_per_s >= b->peak_fp16_flop_per_s &&
           a->peak_fp8_flop_per_s >= b->peak_fp8_flop_per_s &&
           a->peak_fp4_flop_per_s >= b->peak_fp4_flop_per_s &&
           a->memory_bandwidth_bytes_per_s >= b->memory_bandwidth_bytes_per_s &&
           a->memory_bytes >= b->memory_bytes && a->launch_overhead_s <= b->launch_overhead_s;
}

static bool is_better_inside(const place *a, const place *b)
{
    if (a == b || a->devices < LEAST || b->devices < LEAST ||
        !is_better_device(a->device, b->device))
        return false;
    for (uint32_t k = 1; k < NEAR && k < a->devices && k < b->devices; k++)
        if (a->inside[k] < b->inside[k] || a->inside_s[k] > b->inside_s[k])
            return false;
    return true;
}

/* Also requires equally large interconnects of the same kind to other hosts, and the same
 * collective library or none: their overheads do not depend on the device. */
static bool is_better(const place *a, const place *b)
{
    return is_better_inside(a, b) && a->devices == b->devices &&
           strcmp(a->network_kind, b->network_kind) == 0 &&
           ty_is_nccl_device(a->device->name) == ty_is_nccl_device(b->device->name) &&
           a->outside >= b->outside && a->outside_s <= b->outside_s && a->network >= b->network;
}

static const place *place_named(const char *name)
{
    for (uint32_t p = 0; p < place_count; p++)
        if (strcmp(places[p].name, name) == 0)
            return &places[p];
    cr_assert(false, "no host %s", name);
    return NULL;
}

Test(better_devices, are_found, .init = open_all, .fini = close_all)
{
    static const char *const rows[][2] = {{"dgx-h200", "dgx-h100"},
                                          {"dgx-b200", "dgx-h200"},
                                          {"dgx-h100", "hgx-h800"},
                                          {"gb300-tray", "dgx-b300"},
                                          {"mi325x-server", "mi300x-server"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_expect(is_better_inside(place_named(rows[i][0]), place_named(rows[i][1])), "%s",
                  rows[i][0]);
        cr_expect(!is_better_inside(place_named(rows[i][1]), place_named(rows[i][0])), "%s",
                  rows[i][0]);
    }
}

/* ---- Kernels -----------------------------------------------------------------------------------
 */

/* Pairs of devices where a host of the first is better inside than one of the second. */
static uint32_t pairs_of_devices(uint32_t (*pairs)[2], uint32_t room)
{
    uint32_t count = 0;

    for (uint32_t a = 0; a < place_count; a++)
        for (uint32_t b = 0; b < place_count; b++) {
            uint32_t i = 0;
            if (strcmp(places[a].device->name, places[b].device->name) == 0 ||
                !is_better_inside(&places[a], &places[b]))
                continue;
            while (i < count &&
                   (strcmp(places[pairs[i][0]].device->name, places[a].device->name) != 0 ||
                    strcmp(places[pairs[i][1]].device->name, places[b].device->name) != 0))
                i++;
            if (i < count)
                continue;
            cr_assert(count < room);
            pairs[count][0] = a;
            pairs[count++][1] = b;
        }
    return count;
}

/* Compares the kernels of a layer on all devices.
 * @return number of pairs of times that were compared */
static uint64_t compare_layer(const ty_plan *plan, uint32_t layer, const ty_rates *rates,
                              uint32_t (*pairs)[2], uint32_t pair_count, double *worst)
{
    uint64_t compared = 0;

    for (int back = 0; back < 2; back++) {
        ty_kernel kernels[TY_MOST_KERNELS];
        const uint32_t count = ty_layer_kernels(plan, layer, back, kernels);
        double seconds[MOST_HOSTS][TY_MOST_KERNELS];
        for (uint32_t p = 0; p < place_count; p++)
            for (uint32_t i = 0; i < count && rates[p].bytes_per_s > 0; i++)
                seconds[p][i] = ty_kernels_seconds(&kernels[i], 1, &rates[p], back);
        for (uint32_t j = 0; j < pair_count; j++) {
            const uint32_t a = pairs[j][0], b = pairs[j][1];
            if (!(rates[a].bytes_per_s > 0 && rates[b].bytes_per_s > 0))
                continue;
            for (uint32_t i = 0; i < count; i++, compared++) {
                const double ratio = seconds[b][i] > 0 ? seconds[a][i] / seconds[b][i] : 1;
                if (ratio <= SLACK || ratio <= *worst)
                    continue;
                *worst = ratio;
                cr_expect(false,
                          "%s, %s, %s, layer %s %s, kernel %u (%g x %g x %g): %s takes %.4g s, %s "
                          "%.4g s",
                          plan->stack->name, plan->workload->name,
                          ty_precision_name(plan->workload->precision),
                          plan->workload->layers[layer].name, back ? "backward" : "forward", i,
                          kernels[i].m, kernels[i].n, kernels[i].k, places[a].device->name,
                          seconds[a][i], places[b].device->name, seconds[b][i]);
            }
        }
    }
    return compared;
}

/* Rates of all devices; empty for devices without a rate in this precision. */
static void rates_of_all(const ty_stack *stack, ty_precision precision, ty_rates *rates)
{
    for (uint32_t p = 0; p < place_count; p++) {
        rates[p] = ty_rates_of(places[p].device, stack, precision);
        if (!(rates[p].product_flop_per_s > 0) ||
            (ty_precision_is_narrow(precision) && !(rates[p].narrow_flop_per_s > 0)))
            rates[p] = (ty_rates){0};
    }
}

static bool is_seen(const ty_workload *w, uint32_t layer, char **seen, uint32_t *count)
{
    char *signature = NULL;

    cr_assert_eq(ty_layer_signature(w, layer, &signature, NULL), TY_OK);
    for (uint32_t i = 0; i < *count; i++)
        if (strcmp(seen[i], signature) == 0) {
            ty_free(signature);
            return true;
        }
    seen[(*count)++] = signature;
    return false;
}

static uint64_t compare_network(ty_workload *w, const ty_stack *stack, uint32_t (*pairs)[2],
                                uint32_t pair_count, double *worst)
{
    static const ty_precision precisions[] = {TY_PRECISION_FP32, TY_PRECISION_TF32,
                                              TY_PRECISION_BF16, TY_PRECISION_FP8,
                                              TY_PRECISION_FP4};
    static const uint32_t sizes[][2] = {{1, 8}, {8, 1}, {1, 1}}; /* micro-batch, TP size */
    const uint32_t size_count = quick_or_all(2, 3);
    char **seen = ty_alloc(w->layer_count, sizeof *seen);
    uint32_t seen_count = 0;
    uint64_t compared = 0;
    ty_rates rates[MOST_HOSTS];

    for (uint32_t l = 0; l < w->layer_count; l++) {
        if (is_seen(w, l, seen, &seen_count))
            continue;
        for (size_t p = 0; p < sizeof precisions / sizeof *precisions; p++) {
            ty_workload_set_precision(w, precisions[p]);
            rates_of_all(stack, precisions[p], rates);
            for (uint32_t s = 0; s < size_count; s++) {
                const ty_plan plan = {.workload = w,
                                      .stack = (ty_stack *)stack,
                                      .micro_batch_size = sizes[s][0],
                                      .tensor_parallel = sizes[s][1],
                                      .sequence_parallel = sizes[s][1] > 1};
                compared += compare_layer(&plan, l, rates, pairs, pair_count, worst);
            }
        }
    }
    while (seen_count > 0)
        ty_free(seen[--seen_count]);
    ty_free(seen);
    return compared;
}

Test(better_devices, kernels, .init = open_all, .fini = close_all, .timeout = 1800)
{
    uint32_t pairs[2048][2];
    const uint32_t pair_count = pairs_of_devices(pairs, sizeof pairs / sizeof *pairs);
    char **names = NULL;
    uint32_t count = 0;
    uint64_t compared = 0;
    ty_error error = {0};

    cr_assert(pair_count > 200, "%u pairs", pair_count);
    cr_assert_eq(ty_zoo_list(&names, &count, &error), TY_OK, "%s", error.message);
    for (uint32_t s = 0; s < stack_count; s++) {
        double worst = 0;
        for (uint32_t i = s % quick_or_all(13, 1); i < count; i += quick_or_all(13, 1)) {
            ty_workload *w = NULL;
            cr_assert_eq(ty_workload_open(names[i], &w, &error), TY_OK, "%s: %s", names[i],
                         error.message);
            compared += compare_network(w, stacks[s], pairs, pair_count, &worst);
            ty_workload_free(w);
        }
    }
    ty_names_free(names, count);
    cr_log_info("%u pairs of devices, %llu kernels compared", pair_count,
                (unsigned long long)compared);
}

/* ---- Collectives -------------------------------------------------------------------------------
 */

static void compare_collectives(const char *what, const ty_cluster *a, const ty_cluster *b)
{
    static const uint64_t sizes[] = {1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26, 1 << 30};
    enum { SIZES = sizeof sizes / sizeof *sizes };

    for (int kind = 0; kind < TY_COLLECTIVE_COUNT; kind++) {
        const ty_collective_question question = {.kind = (ty_collective_kind)kind};
        ty_collective_answer better[SIZES], worse[SIZES];
        if (ty_collective_ask(a, &question, sizes, SIZES, better, NULL) != TY_OK ||
            ty_collective_ask(b, &question, sizes, SIZES, worse, NULL) != TY_OK)
            continue;
        for (int i = 0; i < SIZES; i++)
            cr_expect(better[i].seconds <= SLACK * worse[i].seconds,
                      "%s: %s of %llu bytes takes %.4g s (%s %s) and %.4g s (%s %s)", what,
                      ty_collective_name((ty_collective_kind)kind), (unsigned long long)sizes[i],
                      better[i].seconds, better[i].algorithm, better[i].protocol, worse[i].seconds,
                      worse[i].algorithm, worse[i].protocol);
    }
}

Test(better_devices, collectives, .init = open_all, .fini = close_all, .timeout = 600)
{
    uint32_t pairs = 0;

    for (uint32_t a = 0; a < place_count; a++)
        for (uint32_t b = 0; b < place_count; b++) {
            char what[160];
            if (!is_better(&places[a], &places[b]))
                continue;
            pairs++;
            snprintf(what, sizeof what, "%s and %s", places[a].name, places[b].name);
            if (places[a].devices > 1)
                compare_collectives(what, places[a].one, places[b].one);
            snprintf(what, sizeof what, "8x %s and 8x %s", places[a].name, places[b].name);
            compare_collectives(what, places[a].eight, places[b].eight);
        }
    cr_log_info("%u pairs of hosts", pairs);
    cr_assert(pairs > 80, "%u pairs", pairs);
}

/* ---- Steps -------------------------------------------------------------------------------------
 */

static uint32_t pick(uint64_t *state, uint32_t count)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    return (uint32_t)((*state >> 33) % count);
}

static double step_on(const ty_plan *plan, const ty_program *program, const ty_cluster *cluster)
{
    ty_costs *costs = NULL;
    ty_step_summary summary = {0};
    ty_error error = {0};

    cr_assert_eq(ty_costs_of_program(plan, program, cluster, &costs, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_estimate_summary(plan, program, costs, 4, &summary, &error), TY_OK, "%s",
                 error.message);
    ty_costs_free(costs);
    return summary.step_time_s;
}

/* A plan for the worse host, from a seed, and its time on the better one.
 * @return whether there was such a plan */
static bool compare_plan(uint64_t seed, uint32_t (*pairs)[2], uint32_t pair_count)
{
    static const char *const networks[] = {"gpt2",          "bert-base", "resnet50", "llama-3-8b",
                                           "qwen3-30b-a3b", "t5-base",   "vgg16",    "dlrm-tiny"};
    static const ty_precision precisions[] = {TY_PRECISION_BF16, TY_PRECISION_FP8};
    uint64_t state = seed * 7919;
    const uint32_t drawn = pick(&state, pair_count);
    const place *a = &places[pairs[drawn][0]], *b = &places[pairs[drawn][1]];
    const bool is_one = pick(&state, 2) == 0;
    const char *network = networks[pick(&state, sizeof networks / sizeof *networks)];
    const ty_stack *stack = stacks[pick(&state, stack_count)];
    const ty_cluster *worse = is_one ? b->one : b->eight;
    ty_plan_options options = ty_plan_options_default();
    ty_workload *workload = NULL;
    ty_program *program = NULL;
    ty_plan *plan = NULL;
    ty_error error = {0};
    bool is_planned;

    cr_assert_eq(ty_workload_open(network, &workload, &error), TY_OK, "%s", error.message);
    ty_workload_set_precision(workload, precisions[pick(&state, 2)]);
    options.stack = stack;
    options.answer_alone = true;
    options.global_batch = ty_cluster_device_count(worse) << pick(&state, 3);
    options.pins.axes |= TY_AXES_OF_DIMENSIONS;
    pin(&options.pins, "micro_batch=1,tp=%u", 1u << pick(&state, 3));
    pin(&options.pins, "zero=%u", pick(&state, 4));
    pin(&options.pins, "pp=%u", 1u << pick(&state, 2));
    is_planned = ty_plan_search(workload, worse, NULL, &options, &plan, NULL) == TY_OK;
    if (is_planned) {
        double worse_s, better_s;
        cr_assert_eq(ty_plan_lower(plan, &program, &error), TY_OK, "%s", error.message);
        worse_s = step_on(plan, program, worse);
        better_s = step_on(plan, program, is_one ? a->one : a->eight);
        cr_expect(better_s <= SLACK * worse_s,
                  "seed %llu: %s, %s, %s, %s on %s%s takes %.6g s, on %s%s %.6g s",
                  (unsigned long long)seed, stack->name, network,
                  ty_precision_name(workload->precision), plan->strategy, is_one ? "" : "8x ",
                  a->name, better_s, is_one ? "" : "8x ", b->name, worse_s);
    }
    ty_program_free(program);
    ty_plan_free(plan);
    ty_workload_free(workload);
    return is_planned;
}

Test(better_devices, steps, .init = open_all, .fini = close_all, .timeout = 1800)
{
    const uint32_t wanted = quick_or_all(200, 2000);
    uint32_t pairs[2048][2], pair_count = 0, compared = 0;
    uint64_t seed = 0;

    for (uint32_t a = 0; a < place_count; a++)
        for (uint32_t b = 0; b < place_count; b++)
            if (is_better(&places[a], &places[b])) {
                cr_assert(pair_count < sizeof pairs / sizeof *pairs);
                pairs[pair_count][0] = a;
                pairs[pair_count++][1] = b;
            }
    while (compared < wanted && ++seed < 100 * (uint64_t)wanted)
        compared += compare_plan(seed, pairs, pair_count);
    cr_log_info("%u plans of %llu drawn", compared, (unsigned long long)seed);
    cr_assert_eq(compared, wanted);
}
