/* Lanes: threads that exchange through memory, and together are what one device is. */
#include "gpu_cases.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LANES = 4 };

typedef struct lane_hub {
    pthread_barrier_t barrier;
    uint32_t lanes;
    float *data[MOST_LANES]; /* what each brought, on the host */
} lane_hub;

typedef struct lane {
    lane_hub *hub;
    uint32_t position;
    pthread_t thread;
    ty_stage_options options;
    ty_stage_device *device;
    double loss;
    uint64_t correct, labels;
    bool is_wrong;
    ty_error error;
} lane;

/* Every lane makes the same sums in the same order, of what all brought. */
static void exchange_here(const lane *own, const ty_lane_exchange *exchange, float *result)
{
    const lane_hub *hub = own->hub;
    const uint64_t count = exchange->count;

    for (uint64_t i = 0; exchange->kind != TY_ALL_GATHER && i < count; i++) {
        result[i] = hub->data[0][i];
        for (uint32_t l = 1; l < hub->lanes; l++)
            result[i] = exchange->is_maximum ? fmaxf(result[i], hub->data[l][i])
                                             : result[i] + hub->data[l][i];
    }
    for (uint32_t l = 0; exchange->kind == TY_ALL_GATHER && l < hub->lanes; l++)
        memcpy(result + l * count, hub->data[l] + l * count, count * sizeof *result);
}

static ty_status exchange_in_memory(void *context, const ty_lane_exchange *exchange,
                                    ty_error *error)
{
    lane *own = context;
    const uint64_t all = exchange->kind == TY_ALL_GATHER ? own->hub->lanes : 1;
    const uint64_t bytes = exchange->count * all * sizeof(float);
    float *brought = malloc(bytes), *result = malloc(bytes);
    ty_status status = gpu->memory->read(own->device, brought, exchange->data, bytes, error);

    own->hub->data[own->position] = brought;
    pthread_barrier_wait(&own->hub->barrier);
    exchange_here(own, exchange, result);
    pthread_barrier_wait(&own->hub->barrier);
    if (status == TY_OK)
        status = gpu->memory->write(own->device, exchange->data, result, bytes, error);
    free(brought);
    free(result);
    return status;
}

static void *lane_run(void *argument)
{
    lane *own = argument;
    const uint32_t layers = own->options.layer_count;
    ty_status status = TY_OK;

    for (uint32_t s = 0; s < 2 && status == TY_OK; s++) {
        batch_fill(gpu, own->device, s, own->options.workload, own->options.micro_batch_size,
                   11 + s);
        status = gpu->forward(own->device, s, 0, layers, &own->error);
        gpu->loss(own->device, s, &own->loss, &own->correct, &own->labels);
    }
    for (uint32_t s = 0; s < 2 && status == TY_OK; s++)
        status = gpu->backward(own->device, s, 0, layers, s == 0, &own->error);
    own->is_wrong = status != TY_OK;
    return NULL;
}

static bool lanes_open(lane *lanes, lane_hub *hub, const ty_stage_options *of_one,
                       bool divides_sequence)
{
    bool is_right = true;

    for (uint32_t l = 0; l < hub->lanes && is_right; l++) {
        lanes[l].hub = hub;
        lanes[l].position = l;
        lanes[l].options = *of_one;
        lanes[l].options.lanes = (ty_lane_group){.count = hub->lanes,
                                                 .position = l,
                                                 .divides_sequence = divides_sequence,
                                                 .exchange = exchange_in_memory,
                                                 .context = &lanes[l]};
        is_right = stage_open(gpu, &lanes[l].options, &lanes[l].device);
    }
    return is_right;
}

static bool group_run(lane *lanes, lane_hub *hub)
{
    bool is_right = true;

    pthread_barrier_init(&hub->barrier, NULL, hub->lanes);
    for (uint32_t l = 0; l < hub->lanes; l++)
        pthread_create(&lanes[l].thread, NULL, lane_run, &lanes[l]);
    for (uint32_t l = 0; l < hub->lanes; l++)
        pthread_join(lanes[l].thread, NULL);
    pthread_barrier_destroy(&hub->barrier);
    for (uint32_t l = 0; l < hub->lanes && is_right; l++) {
        is_right = !lanes[l].is_wrong || wrong("lane %u: %s", l, lanes[l].error.message);
        if (is_right && lanes[l].loss != lanes[0].loss)
            is_right =
                wrong("lanes 0 and %u know losses %.9g and %.9g", l, lanes[0].loss, lanes[l].loss);
    }
    return is_right;
}

/* What one device has of a layer, from the lanes' parameters or gradients; with the sequence
 * divided gradients of undivided layers are sums over lanes. */
static bool layer_joined(const lane *lanes, uint32_t layer, bool is_gradient, bool is_summed,
                         float *whole)
{
    const uint32_t count = lanes[0].hub->lanes;
    uint64_t offset, part, all = gpu->lanes_join(lanes[0].device, layer, false, NULL, NULL);
    float *parts;
    bool is_right = true;

    gpu->slice(lanes[0].device, layer, 1, &offset, &part);
    parts = malloc(count * part * sizeof *parts + 1);
    for (uint32_t l = 0; l < count && is_right; l++) {
        float *from =
            is_gradient ? gpu->gradients(lanes[l].device) : gpu->parameters(lanes[l].device);
        is_right = part == 0 || device_read(lanes[l].device, from + offset, part, parts + l * part);
    }
    gpu->lanes_join(lanes[0].device, layer, false, parts, whole);
    for (uint32_t l = 1; l < count && is_gradient && is_summed && part == all; l++)
        for (uint64_t i = 0; i < all; i++)
            whole[i] = l == 1 ? parts[i] + parts[part + i] : whole[i] + parts[l * part + i];
    free(parts);
    return is_right;
}

static bool lanes_joined(const lane *lanes, const ty_stage_device *one, const ty_workload *w,
                         bool is_gradient, bool is_summed, float *whole)
{
    bool is_right = true;

    for (uint32_t l = 0; l < w->layer_count && is_right; l++) {
        uint64_t offset, count;

        cpu->slice(one, l, 1, &offset, &count);
        if (gpu->lanes_join(lanes[0].device, l, false, NULL, NULL) != count)
            return wrong("layer %s has %llu numbers on all lanes, expected %llu", w->layers[l].name,
                         (unsigned long long)gpu->lanes_join(lanes[0].device, l, false, NULL, NULL),
                         (unsigned long long)count);
        is_right = layer_joined(lanes, l, is_gradient, is_summed, whole + offset);
    }
    return is_right;
}

typedef struct lane_case {
    const char *name;
    ty_workload *(*make)(void);
    uint32_t lanes;
    bool divides_sequence;
} lane_case;

/* Initial weights to the bit, then loss and gradients, beside one device of the CPU backend. */
static bool case_lanes(const lane_case *n, const precision_case *p)
{
    ty_workload *w = n->make();
    ty_stage_options o = options_of(w, 2, TY_PRECISION_FP32), other_o = o;
    lane_hub hub = {.lanes = n->lanes};
    lane lanes[MOST_LANES] = {0};
    ty_stage_device *one = NULL;
    float *whole = NULL;
    double expected = 0, tolerance = p->precision == TY_PRECISION_FP32 ? 1e-5 : 3e-2;
    uint64_t right, labels;
    bool is_right;

    other_o.precision = p->precision;
    is_right = stage_open(cpu, &o, &one) && lanes_open(lanes, &hub, &other_o, n->divides_sequence);
    if (is_right) {
        whole = malloc(cpu->parameter_count(one) * sizeof *whole);
        is_right = lanes_joined(lanes, one, w, false, false, whole);
        if (is_right &&
            memcmp(whole, cpu->parameters(one), cpu->parameter_count(one) * sizeof *whole) != 0)
            is_right = wrong("initial weights differ");
    }
    is_right = is_right && group_run(lanes, &hub) && two_passes(cpu, one, &o, false);
    if (is_right) {
        cpu->loss(one, 1, &expected, &right, &labels);
        if (!(fabs(lanes[0].loss - expected) <= tolerance * expected) ||
            lanes[0].labels != labels ||
            (p->precision == TY_PRECISION_FP32 && lanes[0].correct != right))
            is_right =
                wrong("loss %g, %llu of %llu right, expected %g, %llu of %llu", lanes[0].loss,
                      (unsigned long long)lanes[0].correct, (unsigned long long)lanes[0].labels,
                      expected, (unsigned long long)right, (unsigned long long)labels);
    }
    is_right = is_right && lanes_joined(lanes, one, w, true, n->divides_sequence, whole) &&
               is_close(w, one, whole, cpu->gradients(one), p->tolerance);
    free(whole);
    cpu->close(one);
    for (uint32_t l = 0; l < n->lanes; l++)
        gpu->close(lanes[l].device);
    network_free(w);
    return is_right;
}

static void *lane_update(void *argument)
{
    static const ty_optimizer descent = {.kind = TY_OPTIMIZER_SGD, .learning_rate = 0.1};
    lane *own = argument;
    bool is_finite = true;

    own->is_wrong =
        gpu->memory->update(own->device, &descent, 1, 0, gpu->parameter_count(own->device),
                            &is_finite, &own->error) != TY_OK;
    own->correct = is_finite;
    return NULL;
}

/* An update after one lane's gradients overflowed: no lane may do it. @return whether all agreed */
static bool lanes_update(lane *lanes, lane_hub *hub, bool expected)
{
    bool is_right = true;

    pthread_barrier_init(&hub->barrier, NULL, hub->lanes);
    for (uint32_t l = 0; l < hub->lanes; l++)
        pthread_create(&lanes[l].thread, NULL, lane_update, &lanes[l]);
    for (uint32_t l = 0; l < hub->lanes; l++)
        pthread_join(lanes[l].thread, NULL);
    pthread_barrier_destroy(&hub->barrier);
    for (uint32_t l = 0; l < hub->lanes && is_right; l++) {
        is_right = !lanes[l].is_wrong || wrong("lane %u: %s", l, lanes[l].error.message);
        if (is_right && (lanes[l].correct == 1) != expected)
            is_right = wrong("lane %u %s", l, expected ? "did not update" : "updated");
    }
    return is_right;
}

static bool case_overflow(void)
{
    ty_workload *w = network_make_gpt(1, 8, 2, 4, 9);
    const ty_stage_options o = options_of(w, 1, TY_PRECISION_FP16);
    const float beyond = INFINITY, nothing = 0;
    lane_hub hub = {.lanes = 2};
    lane lanes[MOST_LANES] = {0};
    bool is_right = lanes_open(lanes, &hub, &o, false) && lanes_update(lanes, &hub, true) &&
                    device_write(lanes[1].device, gpu->gradients(lanes[1].device), &beyond, 1) &&
                    lanes_update(lanes, &hub, false) &&
                    device_write(lanes[1].device, gpu->gradients(lanes[1].device), &nothing, 1) &&
                    lanes_update(lanes, &hub, true);

    for (uint32_t l = 0; l < hub.lanes; l++)
        gpu->close(lanes[l].device);
    network_free(w);
    return is_right;
}

/* Words that lanes do not divide evenly, heads of an odd size, a tied matrix, biases, positions. */
static ty_workload *make_lane_gpt(void)
{
    return network_make_gpt(2, 28, 4, 12, 37);
}

/* Rms norms, a gated mlp without biases, two query heads to a key head, an output projection of its
 * own with a bias; with 4 lanes the last has one word. */
static ty_workload *make_lane_llama(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){8});
    int x = network_embedding(w, 37, 32, 0), y;

    y = network_attention(w, network_simple(w, x, TY_LAYER_RMS_NORM), 8, 4, 4, false, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_mlp(w, network_simple(w, x, TY_LAYER_RMS_NORM), 48, false, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    x = network_simple(w, x, TY_LAYER_RMS_NORM);
    network_loss(w, network_linear(w, x, 37, true));
    return w;
}

static const lane_case lane_cases[] = {
    {"lanes gpt, 2", make_lane_gpt, 2, false},
    {"lanes gpt, 4", make_lane_gpt, 4, false},
    {"lanes llama, 2", make_lane_llama, 2, false},
    {"lanes llama, 4", make_lane_llama, 4, false},
    {"lanes gpt, 2 along the sequence", make_lane_gpt, 2, true},
    {"lanes gpt, 4 along the sequence", make_lane_gpt, 4, true},
    {"lanes llama, 2 along the sequence", make_lane_llama, 2, true},
    {"lanes llama, 4 along the sequence", make_lane_llama, 4, true},
};
enum { LANE_CASES = sizeof lane_cases / sizeof *lane_cases };

void lanes_run(void)
{
    char name[96];

    if (is_asked("lanes overflow"))
        report("lanes overflow", case_overflow());
    for (int n = 0; n < LANE_CASES; n++)
        for (int p = 0; p < PRECISIONS; p += is_quick ? 2 : 1) {
            snprintf(name, sizeof name, "%s, %s", lane_cases[n].name,
                     ty_precision_name(precisions[p].precision));
            if (is_asked(name))
                report(name, case_lanes(&lane_cases[n], &precisions[p]));
        }
}
