/* Lanes of the CPU backend, as threads of this process that exchange through memory: what they tell
 * each other is what the plan says, and together they compute what one device does. */
#include "device.h"
#include "network.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST_LANES = 4, MOST_EXCHANGES = 8, BATCH = 2, SEQUENCE = 8, VOCABULARY = 37 };

typedef struct lane_hub {
    pthread_barrier_t barrier;
    uint32_t lanes;
    float *data[MOST_LANES];
    ty_lane_exchange log[MOST_EXCHANGES]; /* of lane 0, since it was emptied */
    uint32_t log_count;
} lane_hub;

typedef struct lane {
    lane_hub *hub;
    uint32_t position;
    const ty_plan *plan;
    pthread_t thread;
    ty_stage_device *device;
    const int32_t *tokens, *labels;
    double loss;
    uint64_t correct, labels_seen;
    ty_error error;
} lane;

/* Every lane makes the same sums in the same order, of what all had, and then writes its own. */
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
    const uint64_t count =
        exchange->count * (exchange->kind == TY_ALL_GATHER ? own->hub->lanes : 1);
    float *result = ty_alloc(count, sizeof *result);

    (void)error;
    own->hub->data[own->position] = exchange->data;
    if (own->position == 0 && own->hub->log_count < MOST_EXCHANGES)
        own->hub->log[own->hub->log_count++] = *exchange;
    pthread_barrier_wait(&own->hub->barrier);
    exchange_here(own, exchange, result);
    pthread_barrier_wait(&own->hub->barrier);
    memcpy(exchange->data, result, count * sizeof *result);
    ty_free(result);
    return TY_OK;
}

static void open_lane(lane *own)
{
    const ty_plan *plan = own->plan;
    const ty_stage_options options = {.workload = plan->workload,
                                      .layer_count = plan->workload->layer_count,
                                      .micro_batch_size = BATCH,
                                      .slots = 1,
                                      .loss_scale = 1.0 / (BATCH * SEQUENCE),
                                      .seed = 7,
                                      .tied_layer = TY_NO_LAYER,
                                      .lanes = {.count = own->hub->lanes,
                                                .position = own->position,
                                                .divides_sequence = plan->sequence_parallel,
                                                .exchange = exchange_in_memory,
                                                .context = own}};

    cr_assert_eq(ty_device_cpu.open(&options, &own->device, &own->error), TY_OK, "%s",
                 own->error.message);
    memcpy(ty_device_cpu.tokens(own->device, 0), own->tokens,
           BATCH * SEQUENCE * sizeof *own->tokens);
    memcpy(ty_device_cpu.labels(own->device, 0), own->labels,
           BATCH * SEQUENCE * sizeof *own->labels);
}

/* Whether lane 0 exchanged what the plan says of a pass of one layer. */
static void check_log(const lane *own, uint32_t layer, bool is_backward)
{
    const ty_plan *plan = own->plan;
    ty_inner_collective said[TY_MAX_INNER_COLLECTIVES];
    const uint32_t count = ty_layer_inner_collectives(plan, layer, is_backward, said);
    uint32_t met = 0;

    for (uint32_t i = 0; own->position == 0 && i < count; i++)
        for (uint32_t k = 0; k < said[i].count; k++, met++) {
            cr_assert_lt(met, own->hub->log_count, "layer %u exchanged too little", layer);
            cr_assert_eq(own->hub->log[met].kind, said[i].kind, "layer %u", layer);
            cr_assert_eq(own->hub->log[met].count * sizeof(float), said[i].bytes,
                         "layer %u: found %llu bytes, expected %llu", layer,
                         (unsigned long long)(own->hub->log[met].count * sizeof(float)),
                         (unsigned long long)said[i].bytes);
        }
    if (own->position == 0)
        cr_assert_eq(met, own->hub->log_count, "layer %u exchanged too much", layer);
    pthread_barrier_wait(&own->hub->barrier);
    if (own->position == 0)
        own->hub->log_count = 0;
    pthread_barrier_wait(&own->hub->barrier);
}

static void *run_lane(void *argument)
{
    lane *own = argument;
    const uint32_t layers = own->plan->workload->layer_count;

    for (uint32_t l = 0; l < layers; l++) {
        cr_assert_eq(ty_device_cpu.forward(own->device, 0, l, 1, &own->error), TY_OK, "%s",
                     own->error.message);
        check_log(own, l, false);
    }
    ty_device_cpu.loss(own->device, 0, &own->loss, &own->correct, &own->labels_seen);
    for (uint32_t l = layers; l-- > 0;) {
        cr_assert_eq(ty_device_cpu.backward(own->device, 0, l, 1, true, &own->error), TY_OK, "%s",
                     own->error.message);
        check_log(own, l, true);
    }
    return NULL;
}

/* Gradients of a layer of all lanes, as one device has them; with the sequence divided those of
 * undivided layers are sums over lanes. */
static float *joined(lane *lanes, const ty_plan *plan, uint32_t layer, uint64_t *count)
{
    const uint32_t width = ty_plan_width(plan);
    const bool adds = plan->sequence_parallel && ty_tensor_parameter_share(plan, layer) >= 1;
    uint64_t offset, part;
    float *parts, *whole;

    ty_device_cpu.slice(lanes[0].device, layer, 1, &offset, &part);
    parts = ty_alloc(width * part, sizeof *parts);
    *count = ty_device_cpu.lanes_join(lanes[0].device, layer, false, NULL, NULL);
    whole = ty_alloc(*count, sizeof *whole);
    for (uint32_t l = 0; l < width; l++)
        memcpy(parts + l * part, ty_device_cpu.gradients(lanes[l].device) + offset,
               part * sizeof *parts);
    ty_device_cpu.lanes_join(lanes[0].device, layer, false, parts, whole);
    for (uint64_t i = 0; adds && i < part; i++) {
        whole[i] = 0;
        for (uint32_t l = 0; l < width; l++)
            whole[i] += parts[l * part + i];
    }
    ty_free(parts);
    return whole;
}

static void check_gradients(lane *lanes, const ty_plan *plan, lane *alone)
{
    for (uint32_t layer = 0; layer < plan->workload->layer_count; layer++) {
        uint64_t offset, expected_count, count;
        float *found = joined(lanes, plan, layer, &count);
        const float *expected = ty_device_cpu.gradients(alone->device);
        double difference = 0, norm = 0;

        ty_device_cpu.slice(alone->device, layer, 1, &offset, &expected_count);
        cr_assert_eq(count, expected_count, "layer %u", layer);
        for (uint64_t i = 0; i < count; i++) {
            difference += pow((double)found[i] - expected[offset + i], 2);
            norm += pow((double)expected[offset + i], 2);
        }
        cr_assert(sqrt(difference) <= 1e-5 * (sqrt(norm) + 1e-4),
                  "gradients of layer %u differ by %g of %g", layer, sqrt(difference), sqrt(norm));
        ty_free(found);
    }
}

static void run_group(lane *lanes, lane_hub *hub, const ty_plan *plan, const int32_t *tokens,
                      const int32_t *labels)
{
    *hub = (lane_hub){.lanes = ty_plan_width(plan)};
    cr_assert_eq(pthread_barrier_init(&hub->barrier, NULL, hub->lanes), 0);
    for (uint32_t l = 0; l < hub->lanes; l++) {
        lanes[l] =
            (lane){.hub = hub, .position = l, .plan = plan, .tokens = tokens, .labels = labels};
        open_lane(&lanes[l]);
    }
    for (uint32_t l = 0; l < hub->lanes; l++)
        cr_assert_eq(pthread_create(&lanes[l].thread, NULL, run_lane, &lanes[l]), 0);
    for (uint32_t l = 0; l < hub->lanes; l++)
        pthread_join(lanes[l].thread, NULL);
}

static void close_group(lane *lanes, lane_hub *hub)
{
    for (uint32_t l = 0; l < hub->lanes; l++)
        ty_device_cpu.close(lanes[l].device);
    pthread_barrier_destroy(&hub->barrier);
}

static void compare(ty_workload *workload, uint32_t width, bool divides_sequence)
{
    const ty_plan one = {.workload = workload, .micro_batch_size = BATCH};
    const ty_plan plan = {.workload = workload,
                          .micro_batch_size = BATCH,
                          .tensor_parallel = width,
                          .sequence_parallel = divides_sequence};
    int32_t tokens[BATCH * SEQUENCE], labels[BATCH * SEQUENCE];
    lane alone[MOST_LANES], lanes[MOST_LANES];
    lane_hub here, hub;

    for (int i = 0; i < BATCH * SEQUENCE; i++) {
        tokens[i] = i * 11 % VOCABULARY;
        labels[i] = i * 17 % VOCABULARY;
    }
    run_group(alone, &here, &one, tokens, labels);
    run_group(lanes, &hub, &plan, tokens, labels);
    for (uint32_t l = 0; l < width; l++) {
        cr_assert_lt(fabs(lanes[l].loss - alone[0].loss), 1e-5 * alone[0].loss);
        cr_assert_eq(lanes[l].correct, alone[0].correct);
        cr_assert_eq(lanes[l].loss, lanes[0].loss, "lanes know different losses");
    }
    check_gradients(lanes, &plan, alone);
    close_group(alone, &here);
    close_group(lanes, &hub);
}

Test(tensor_lanes, exchange_what_the_plan_says_and_compute_what_one_does)
{
    ty_workload *gpt = network_make_gpt(2, 32, 4, SEQUENCE, VOCABULARY);

    for (uint32_t width = 2; width <= MOST_LANES; width *= 2) {
        compare(gpt, width, false);
        compare(gpt, width, true);
    }
    network_free(gpt);
}

/* Rms norms, a gated mlp without biases, two query heads to a key head, an output projection of its
 * own with a bias. */
static ty_workload *decoder(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){SEQUENCE});
    int x = network_embedding(w, VOCABULARY, 32, 0), y;

    y = network_simple(w, x, TY_LAYER_RMS_NORM);
    y = network_attention(w, y, 8, 4, 4, false, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_simple(w, x, TY_LAYER_RMS_NORM);
    y = network_mlp(w, y, 48, false, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    x = network_simple(w, x, TY_LAYER_RMS_NORM);
    network_loss(w, network_linear(w, x, VOCABULARY, true));
    return w;
}

Test(tensor_lanes, of_a_decoder)
{
    ty_workload *w = decoder();

    for (uint32_t width = 2; width <= MOST_LANES; width *= 2) {
        compare(w, width, false);
        compare(w, width, true);
    }
    network_free(w);
}

static void expect_refusal(const ty_workload *workload, uint32_t lanes, bool divides_sequence,
                           const char *words)
{
    const ty_stage_options options = {
        .workload = workload,
        .layer_count = workload->layer_count,
        .micro_batch_size = 1,
        .slots = 1,
        .tied_layer = TY_NO_LAYER,
        .lanes = {.count = lanes, .divides_sequence = divides_sequence}};
    ty_stage_device *device = NULL;
    ty_error error = {0};

    cr_assert_neq(ty_device_cpu.open(&options, &device, &error), TY_OK, "%s", words);
    cr_assert_not_null(strstr(error.message, words), "found \"%s\", expected \"%s\"", error.message,
                       words);
}

Test(tensor_lanes, says_what_cannot_be_divided)
{
    ty_workload *w = decoder();
    const uint64_t length = SEQUENCE;
    int x;

    expect_refusal(w, 3, false, "expected a divisor");
    expect_refusal(w, 8, false, "4 key and value heads among 8 lanes");
    network_free(w);
    w = network_new(TY_INPUT_TOKEN, 1, &length);
    x = network_embedding(w, VOCABULARY, 32, 0);
    x = network_linear(w, network_mlp(w, x, 48, false, true), 32, false);
    network_loss(w, network_linear(w, x, VOCABULARY, false));
    expect_refusal(w, 2, true, "a linear is not divided along the sequence");
    w->tokens_per_sample = 7;
    expect_refusal(w, 2, true, "sequences of 7 tokens among 2 lanes");
    network_free(w);
}
