/* Ranks of the CPU backend, as threads of this process that communicate through memory: their
 * collectives are those of the plan, and together they compute the result of one device. */
#include "network.h"
#include "rank_hub.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST_EXCHANGES = 8, BATCH = 2, SEQUENCE = 16, VOCABULARY = 37 };
enum { LONG_SEQUENCE = 320 }; /* chunks of more queries than attention processes at a time */

/* Shared state of a replica's ranks. */
typedef struct group {
    rank_hub hub;
    ty_parallel_exchange log[MOST_EXCHANGES]; /* of rank 0, since the last reset */
    uint32_t log_count, layer;                /* the layer under way */
} group;

typedef struct rank {
    group *of;
    uint32_t position;
    const ty_plan *plan;
    pthread_t thread;
    ty_stage_device *device;
    const int32_t *tokens, *labels;
    double loss;
    uint64_t correct, labels_seen;
    ty_error error;
} rank;

/* Elements of a collective as plans count them. An all-to-all with unequal shards counts all
 * elements of one rank, which the first of two calls sends and the second returns. */
static uint64_t planned_count(const group *of, const ty_parallel_exchange *exchange)
{
    const uint64_t *counts = exchange->sent_counts;
    uint32_t before = 0;
    uint64_t sum = 0;

    if (exchange->sent_counts == NULL)
        return exchange->count;
    for (uint32_t i = 0; i < of->log_count; i++)
        before += of->log[i].sent_counts != NULL;
    if (before % 2 == 1)
        counts = exchange->received_counts;
    for (uint32_t l = 0; l < ty_plan_parallel_size(of->hub.plan, exchange->among); l++)
        sum += counts[l];
    return sum;
}

/* A router's collectives are not in the plan: numbers of copies per destination; sums of scores and
 * the weights' gradients, which have fewer elements than a token has features. */
static bool is_of_router(const group *of, const ty_parallel_exchange *exchange)
{
    const ty_plan *plan = of->hub.plan;
    const ty_layer *layer = &plan->workload->layers[of->layer];
    const uint64_t tokens = BATCH * plan->workload->tokens_per_sample /
                            ty_plan_parallel_size(plan, TY_CONTEXT_PARALLEL) /
                            ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL);

    if (layer->kind != TY_LAYER_MOE)
        return false;
    if (exchange->among == TY_TENSOR_PARALLEL)
        return exchange->kind == TY_ALL_REDUCE &&
               (exchange->count == tokens * layer->attributes[TY_EXPERTS] ||
                exchange->count == tokens * layer->attributes[TY_EXPERTS_PER_TOKEN]);
    return exchange->kind == TY_ALL_TO_ALL && exchange->sent_counts == NULL;
}

static void log_add(group *of, const ty_parallel_exchange *exchange)
{
    const uint64_t count = planned_count(of, exchange);

    if (is_of_router(of, exchange) || of->log_count == MOST_EXCHANGES)
        return;
    of->log[of->log_count] = *exchange;
    of->log[of->log_count++].count = count;
}

static ty_status exchange_in_memory(void *context, const ty_parallel_exchange *exchange,
                                    ty_error *error)
{
    rank *own = context;
    const uint64_t bytes = rank_hub_bytes(&own->of->hub, exchange);
    char *result = ty_alloc(bytes, 1);

    (void)error;
    if (own->position == 0)
        log_add(own->of, exchange);
    rank_hub_exchange(&own->of->hub, own->position, exchange, exchange->data, result);
    memcpy(exchange->received != NULL ? exchange->received : exchange->data, result, bytes);
    ty_free(result);
    return TY_OK;
}

static void take_tokens(const rank *own, const int32_t *whole, int32_t *part)
{
    cr_assert_eq(rank_hub_tokens(&own->of->hub, own->position, BATCH, whole, part),
                 BATCH * own->plan->workload->tokens_per_sample /
                     ty_plan_parallel_size(own->plan, TY_CONTEXT_PARALLEL) /
                     ty_plan_parallel_size(own->plan, TY_EXPERT_PARALLEL));
}

static void open_rank(rank *own)
{
    const ty_plan *plan = own->plan;
    ty_stage_options options = {
        .workload = plan->workload,
        .layer_count = plan->workload->layer_count,
        .micro_batch_size = BATCH / ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL),
        .slots = 1,
        .loss_scale = 1.0 / (BATCH * (double)plan->workload->tokens_per_sample),
        .seed = 7,
        .tied_layer = TY_NO_LAYER,
        .parallel = rank_hub_group(&own->of->hub, own->position)};

    options.parallel.exchange = exchange_in_memory;
    options.parallel.context = own;
    cr_assert_eq(ty_device_cpu.open(&options, &own->device, &own->error), TY_OK, "%s",
                 own->error.message);
    own->of->hub.devices[own->position] = own->device;
    take_tokens(own, own->tokens, ty_device_cpu.tokens(own->device, 0));
    take_tokens(own, own->labels, ty_device_cpu.labels(own->device, 0));
}

/* The next collective of the log in a group of this kind, from `from` on. */
static uint32_t next_among(const group *of, ty_parallelism kind, uint32_t from)
{
    while (from < of->log_count && of->log[from].among != kind)
        from++;
    return from;
}

/* Whether rank 0 ran the planned collectives of a pass of one layer, in order within each kind of
 * group. */
static void check_log(const rank *own, uint32_t layer, bool is_backward)
{
    ty_inner_collective said[TY_MAX_INNER_COLLECTIVES];
    const uint32_t count = ty_layer_inner_collectives(own->plan, layer, is_backward, said);
    group *of = own->of;
    uint32_t met = 0, at[TY_PARALLELISM_COUNT] = {0};

    for (uint32_t i = 0; own->position == 0 && i < count; i++)
        for (uint32_t k = 0; k < said[i].count; k++, met++) {
            const uint32_t found = next_among(of, said[i].among, at[said[i].among]);
            cr_assert_lt(found, of->log_count, "layer %u exchanged too little", layer);
            cr_assert_eq(of->log[found].kind, said[i].kind, "layer %u", layer);
            cr_assert_eq(of->log[found].count * sizeof(float), said[i].bytes,
                         "layer %u: found %llu bytes, expected %llu", layer,
                         (unsigned long long)(of->log[found].count * sizeof(float)),
                         (unsigned long long)said[i].bytes);
            at[said[i].among] = found + 1;
        }
    if (own->position == 0)
        cr_assert_eq(met, of->log_count, "layer %u exchanged too much", layer);
    pthread_barrier_wait(&of->hub.barrier);
    if (own->position == 0)
        of->log_count = 0;
    pthread_barrier_wait(&of->hub.barrier);
}

static void *run_rank(void *argument)
{
    rank *own = argument;
    const uint32_t layers = own->plan->workload->layer_count;

    for (uint32_t l = 0; l < layers; l++) {
        if (own->position == 0)
            own->of->layer = l;
        cr_assert_eq(ty_device_cpu.forward(own->device, 0, l, 1, &own->error), TY_OK, "%s",
                     own->error.message);
        check_log(own, l, false);
    }
    ty_device_cpu.loss(own->device, 0, &own->loss, &own->correct, &own->labels_seen);
    for (uint32_t l = layers; l-- > 0;) {
        if (own->position == 0)
            own->of->layer = l;
        cr_assert_eq(ty_device_cpu.backward(own->device, 0, l, 1, true, &own->error), TY_OK, "%s",
                     own->error.message);
        check_log(own, l, true);
    }
    return NULL;
}

static void check_gradients(const group *ranks, const group *alone)
{
    for (uint32_t layer = 0; layer < ranks->hub.plan->workload->layer_count; layer++) {
        uint64_t expected_count, count;
        float *found = rank_hub_gradients(&ranks->hub, layer, &count);
        float *expected = rank_hub_gradients(&alone->hub, layer, &expected_count);
        double difference = 0, norm = 0;

        cr_assert_eq(count, expected_count, "layer %u", layer);
        for (uint64_t i = 0; i < count; i++) {
            difference += pow((double)found[i] - (double)expected[i], 2);
            norm += pow((double)expected[i], 2);
        }
        cr_assert(sqrt(difference) <= 1e-5 * (sqrt(norm) + 1e-4),
                  "gradients of layer %u differ by %g of %g", layer, sqrt(difference), sqrt(norm));
        ty_free(found);
        ty_free(expected);
    }
}

static void run_group(rank *ranks, group *of, const ty_plan *plan, const int32_t *tokens,
                      const int32_t *labels)
{
    const uint32_t width = ty_plan_replica_ranks(plan);

    of->log_count = 0;
    rank_hub_open(&of->hub, &ty_device_cpu, plan);
    for (uint32_t l = 0; l < width; l++) {
        ranks[l] =
            (rank){.of = of, .position = l, .plan = plan, .tokens = tokens, .labels = labels};
        open_rank(&ranks[l]);
    }
    for (uint32_t l = 0; l < width; l++)
        cr_assert_eq(pthread_create(&ranks[l].thread, NULL, run_rank, &ranks[l]), 0);
    for (uint32_t l = 0; l < width; l++)
        pthread_join(ranks[l].thread, NULL);
}

/* All tensor-parallel ranks with the same context-parallel rank have the same loss, and these
 * losses add up. */
static void check_losses(const rank *ranks, const ty_plan *plan, const rank *alone)
{
    const uint32_t tensor = ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL);
    uint64_t correct = 0, labels = 0;
    double loss = 0;

    for (uint32_t l = 0; l < ty_plan_replica_ranks(plan); l++) {
        const rank *first = &ranks[l - l % tensor];
        cr_assert_eq(ranks[l].loss, first->loss, "ranks know different losses");
        loss += ranks[l].loss / tensor;
        correct += l % tensor == 0 ? ranks[l].correct : 0;
        labels += l % tensor == 0 ? ranks[l].labels_seen : 0;
    }
    cr_assert_lt(fabs(loss - alone->loss), 1e-5 * alone->loss);
    cr_assert_eq(correct, alone->correct);
    cr_assert_eq(labels, alone->labels_seen);
}

static void compare_plan(const ty_plan *plan)
{
    const ty_plan one = {.workload = plan->workload, .micro_batch_size = BATCH};
    int32_t tokens[BATCH * LONG_SEQUENCE], labels[BATCH * LONG_SEQUENCE];
    rank alone[MOST_RANKS], ranks[MOST_RANKS];
    group here, there;

    for (int i = 0; i < BATCH * LONG_SEQUENCE; i++) {
        tokens[i] = i * 11 % VOCABULARY;
        labels[i] = i * 17 % VOCABULARY;
    }
    run_group(alone, &here, &one, tokens, labels);
    run_group(ranks, &there, plan, tokens, labels);
    check_losses(ranks, plan, alone);
    check_gradients(&there, &here);
    rank_hub_close(&here.hub);
    rank_hub_close(&there.hub);
}

static void compare_ranks(ty_workload *workload, uint32_t tensor, uint32_t context,
                          bool divides_sequence)
{
    compare_plan(&(ty_plan){.workload = workload,
                            .micro_batch_size = BATCH,
                            .tensor_parallel = tensor,
                            .context_parallel = context,
                            .sequence_parallel = divides_sequence});
}

/* Each kind separately, and both together. */
static void compare(ty_workload *workload)
{
    static const uint32_t ranks[][2] = {{2, 1}, {4, 1}, {1, 2}, {1, 4}, {2, 2}, {4, 2}, {2, 4}};

    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        compare_ranks(workload, ranks[i][0], ranks[i][1], false);
        if (ranks[i][0] > 1)
            compare_ranks(workload, ranks[i][0], ranks[i][1], true);
    }
}

Test(tensor_ranks, exchange_what_the_plan_says_and_compute_what_one_does)
{
    ty_workload *gpt = network_make_gpt(2, 32, 4, SEQUENCE, VOCABULARY);

    compare(gpt);
    network_free(gpt);
}

/* Rms norms, a gated mlp without biases, two query heads per key-value head, an untied output
 * projection with a bias. */
static ty_workload *decoder(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){SEQUENCE});
    int x = network_embedding(w, VOCABULARY, 32, 0), y;

    w->rotary_base = 100;
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

Test(tensor_ranks, of_a_decoder)
{
    ty_workload *w = decoder();

    compare(w);
    network_free(w);
}

/* Memory per additional micro-batch in flight. */
static uint64_t slot_bytes(const ty_workload *workload, uint32_t ranks)
{
    uint64_t bytes[2];

    for (uint32_t slots = 1; slots <= 2; slots++) {
        const ty_stage_options options = {
            .workload = workload,
            .layer_count = workload->layer_count,
            .micro_batch_size = BATCH,
            .slots = slots,
            .tied_layer = TY_NO_LAYER,
            .parallel = {.tp_size = ranks, .divides_sequence = ranks > 1}};
        ty_stage_device *device = NULL;
        ty_error error = {0};
        cr_assert_eq(ty_device_cpu.open(&options, &device, &error), TY_OK, "%s", error.message);
        bytes[slots - 1] = ty_device_cpu.memory_bytes(device);
        ty_device_cpu.close(device);
    }
    return bytes[1] - bytes[0];
}

/* All activations are sharded except two: the batch, whose tokens and labels every rank has, and
 * the scores after the output projection: each rank has those of its padded words. Buffers are
 * rounded up. */
Test(tensor_ranks, keep_their_part_of_the_sequence)
{
    ty_workload *gpt = network_make_gpt(2, 64, 4, SEQUENCE, VOCABULARY);
    const uint64_t batch = 2 * BATCH * SEQUENCE * sizeof(int32_t);
    const uint64_t alone = slot_bytes(gpt, 1) - batch;

    for (uint32_t ranks = 2; ranks <= 4; ranks *= 2) {
        const uint64_t padding = BATCH * SEQUENCE * MOST_RANKS * sizeof(float) * 2 + 64 * 64;
        const uint64_t found = slot_bytes(gpt, ranks);
        cr_expect_leq(found, alone / ranks + batch + padding, "%u ranks: %llu of %llu bytes", ranks,
                      (unsigned long long)found, (unsigned long long)alone);
    }
    network_free(gpt);
}

Test(tensor_ranks, of_long_sequences)
{
    ty_workload *gpt = network_make_gpt(1, 16, 2, LONG_SEQUENCE, VOCABULARY);

    compare_ranks(gpt, 1, 2, false);
    compare_ranks(gpt, 2, 2, true);
    network_free(gpt);
}

Test(tensor_ranks, of_an_encoder)
{
    ty_workload *w = network_make_encoder(32, 4, SEQUENCE, VOCABULARY, true);

    compare(w);
    network_free(w);
}

/* Gated experts, experts with biases next to shared ones, and one for single tokens. */
static ty_workload *experts(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){SEQUENCE});
    int x = network_embedding(w, VOCABULARY, 32, 0), y;

    y = network_attention(w, network_simple(w, x, TY_LAYER_RMS_NORM), 8, 4, 4, false, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_moe(w, network_simple(w, x, TY_LAYER_RMS_NORM), 4, 2, 48, false, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_moe_shared(w, network_simple(w, x, TY_LAYER_RMS_NORM), 6, 5, 16, 24, true, false);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_moe(w, network_simple(w, x, TY_LAYER_RMS_NORM), 2, 1, 16, false, true);
    network_loss(w, network_linear(w, y, VOCABULARY, false));
    return w;
}

Test(tensor_ranks, of_experts)
{
    ty_workload *w = experts();

    for (uint32_t contexts = 1; contexts <= 4; contexts *= 2)
        for (uint32_t tensor = 1; tensor * contexts <= 4; tensor *= 2)
            compare_plan(&(ty_plan){.workload = w,
                                    .micro_batch_size = BATCH,
                                    .tensor_parallel = tensor,
                                    .context_parallel = contexts,
                                    .expert_parallel = 2});
    compare(w);
    network_free(w);
}

/* Keys and values of another sequence of the same length; relative position biases; no output
 * bias. */
static ty_workload *two_sequences(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){SEQUENCE});
    int memory = network_embedding(w, VOCABULARY, 32, 0), x, y;

    y = network_attention(w, network_simple(w, memory, TY_LAYER_RMS_NORM), 8, 8, 4, false, false);
    network_option(w, y, TY_RELATIVE_BUCKETS, 7);
    memory = network_join(w, TY_LAYER_ADD, (int[]){memory, y}, 2);
    x = network_embedding(w, VOCABULARY, 32, 0);
    y = network_attention(w, network_simple(w, x, TY_LAYER_RMS_NORM), 4, 4, 5, false, true);
    network_option(w, y, TY_RELATIVE_BUCKETS, 6);
    network_option(w, y, TY_HAS_QKV_BIAS, 1);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_simple(w, x, TY_LAYER_RMS_NORM);
    y = network_cross_attention(w, y, memory, 8, 4, 4, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_mlp(w, network_simple(w, x, TY_LAYER_RMS_NORM), 48, true, false);
    network_option(w, y, TY_IS_RELU, 1);
    x = network_simple(w, network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2), TY_LAYER_TANH);
    network_loss(w, network_linear(w, x, VOCABULARY, true));
    return w;
}

Test(tensor_ranks, of_two_sequences)
{
    ty_workload *w = two_sequences();

    compare(w);
    network_free(w);
}

/* Cross attention over fewer tokens, which are not sharded along the sequence. */
Test(tensor_ranks, of_a_shorter_memory)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){SEQUENCE});
    int tokens = network_embedding(w, VOCABULARY, 32, 0), memory = network_slice(w, tokens, 3, 6);
    int x = network_simple(w, tokens, TY_LAYER_RMS_NORM);

    x = network_cross_attention(w, x, memory, 8, 4, 4, false);
    network_loss(w, network_linear(w, x, VOCABULARY, true));
    compare_ranks(w, 2, 1, false);
    compare_ranks(w, 4, 1, false);
    network_free(w);
}

static void expect_group_refusal(const ty_workload *workload, ty_parallel_group parallel,
                                 const char *words)
{
    const ty_stage_options options = {.workload = workload,
                                      .layer_count = workload->layer_count,
                                      .micro_batch_size = 1,
                                      .slots = 1,
                                      .tied_layer = TY_NO_LAYER,
                                      .parallel = parallel};
    ty_stage_device *device = NULL;
    ty_error error = {0};

    cr_assert_neq(ty_device_cpu.open(&options, &device, &error), TY_OK, "%s", words);
    cr_assert_not_null(strstr(error.message, words), "found \"%s\", expected \"%s\"", error.message,
                       words);
}

static void expect_refusal(const ty_workload *workload, uint32_t ranks, bool divides_sequence,
                           const char *words)
{
    expect_group_refusal(
        workload, (ty_parallel_group){.tp_size = ranks, .divides_sequence = divides_sequence},
        words);
}

/* Norms of queries and keys, which are replicated on tensor-parallel ranks. */
Test(tensor_ranks, of_normed_heads)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){SEQUENCE});
    int x = network_embedding(w, VOCABULARY, 32, 0);

    x = network_attention(w, x, 8, 4, 4, false, true);
    network_option(w, x, TY_HAS_QK_NORM, 1);
    network_loss(w, network_linear(w, x, VOCABULARY, true));
    compare_ranks(w, 1, 2, false);
    compare_ranks(w, 1, 4, false);
    expect_refusal(w, 2, false, "(has_qk_norm), expected a plan without tensor parallelism");
    network_free(w);
}

Test(tensor_ranks, says_which_sequences_cannot_be_divided)
{
    ty_workload *w = decoder();

    expect_group_refusal(w, (ty_parallel_group){.cp_size = 3}, "sequences of 16 tokens");
    expect_group_refusal(w,
                         (ty_parallel_group){.tp_size = 4, .cp_size = 8, .divides_sequence = true},
                         "sequences of 16, which sequence parallelism divides by 32");
    network_free(w);
    w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){SEQUENCE});
    network_loss(
        w, network_linear(w, network_lstm(w, network_embedding(w, VOCABULARY, 32, 0), 32, true),
                          VOCABULARY, false));
    expect_group_refusal(w, (ty_parallel_group){.cp_size = 2}, "lstm) is not of tokens");
    network_free(w);
    w = network_make_lenet();
    expect_group_refusal(w, (ty_parallel_group){.cp_size = 2}, "sequences of 0 tokens");
    network_free(w);
}

Test(tensor_ranks, says_what_cannot_be_divided)
{
    ty_workload *w = decoder();
    const uint64_t length = SEQUENCE;
    int x;

    expect_refusal(w, 3, false, "expected a divisor");
    expect_refusal(w, 8, false, "4 key and value heads among 8 ranks");
    network_free(w);
    w = network_new(TY_INPUT_TOKEN, 1, &length);
    x = network_embedding(w, VOCABULARY, 32, 0);
    x = network_linear(w, network_mlp(w, x, 48, false, true), 32, false);
    network_loss(w, network_linear(w, x, VOCABULARY, false));
    expect_refusal(w, 2, true, "a linear is not sharded along the sequence");
    network_free(w);
    w = network_new(TY_INPUT_TOKEN, 1, &length);
    x = network_moe_shared(w, network_embedding(w, VOCABULARY, 32, 0), 4, 2, 48, 7, false, true);
    network_loss(w, network_linear(w, x, VOCABULARY, false));
    expect_refusal(w, 2, false, "7 shared features among 2 ranks");
    expect_group_refusal(w,
                         (ty_parallel_group){.tp_size = 2, .divides_sequence = true, .ep_size = 2},
                         "found 2 expert-parallel ranks with sequence parallelism");
    expect_group_refusal(w, (ty_parallel_group){.ep_size = 3}, "expected a divisor of them");
    network_free(w);
    w = network_new(TY_INPUT_TOKEN, 1, &(uint64_t){SEQUENCE - 1});
    x = network_embedding(w, VOCABULARY, 32, 0);
    network_loss(w, network_linear(w, network_mlp(w, x, 48, false, true), VOCABULARY, false));
    expect_refusal(w, 2, true, "which sequence parallelism divides by 2");
    network_free(w);
}
