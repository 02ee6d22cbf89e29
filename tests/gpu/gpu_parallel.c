/* Ranks as threads that communicate through memory: together they compute the result of one
 * device. */
#include "../execute/rank_hub.h"
#include "gpu_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 2, SLOTS = 2 };

typedef struct rank {
    rank_hub *hub;
    uint32_t position;
    pthread_t thread;
    ty_stage_options options;
    ty_stage_device *device, *alone; /* alone: of the CPU backend, with the unsharded batches */
    double loss;
    uint64_t correct, labels;
    bool is_wrong;
    ty_error error;
} rank;

static ty_status exchange_in_memory(void *context, const ty_parallel_exchange *exchange,
                                    ty_error *error)
{
    rank *own = context;
    const uint64_t bytes = rank_hub_bytes(own->hub, exchange);
    void *brought = malloc(bytes), *result = malloc(bytes);
    ty_status status = gpu->memory->read(own->device, brought, exchange->data, bytes, error);

    rank_hub_exchange(own->hub, own->position, exchange, brought, result);
    if (status == TY_OK)
        status = gpu->memory->write(own->device, exchange->data, result, bytes, error);
    free(brought);
    free(result);
    return status;
}

/* A rank's shard of the single device's batch. */
static void batch_take(const rank *own, uint32_t slot)
{
    rank_hub_tokens(own->hub, own->position, SAMPLES, cpu->tokens(own->alone, slot),
                    gpu->tokens(own->device, slot));
    rank_hub_tokens(own->hub, own->position, SAMPLES, cpu->labels(own->alone, slot),
                    gpu->labels(own->device, slot));
}

static ty_status backward(const rank *own, uint32_t slot, ty_error *error)
{
    const uint32_t layers = own->options.layer_count;
    ty_status status;

    if (!own->options.splits_backward)
        return gpu->backward(own->device, slot, 0, layers, slot == 0, error);
    status = gpu->backward_input(own->device, slot, 0, layers, error);
    if (status == TY_OK)
        status = gpu->backward_weight(own->device, slot, 0, layers, slot == 0, error);
    return status;
}

static void *rank_run(void *argument)
{
    rank *own = argument;
    ty_status status = TY_OK;

    for (uint32_t s = 0; s < SLOTS && status == TY_OK; s++) {
        batch_take(own, s);
        status = gpu->forward(own->device, s, 0, own->options.layer_count, &own->error);
        gpu->loss(own->device, s, &own->loss, &own->correct, &own->labels);
    }
    for (uint32_t s = 0; s < SLOTS && status == TY_OK; s++)
        status = backward(own, s, &own->error);
    own->is_wrong = status != TY_OK;
    return NULL;
}

static bool ranks_open(rank *ranks, rank_hub *hub, const ty_stage_options *of_one,
                       ty_stage_device *alone)
{
    bool is_right = true;

    for (uint32_t l = 0; l < ty_plan_replica_ranks(hub->plan) && is_right; l++) {
        ranks[l] = (rank){.hub = hub, .position = l, .options = *of_one, .alone = alone};
        ranks[l].options.parallel = rank_hub_group(hub, l);
        ranks[l].options.parallel.exchange = exchange_in_memory;
        ranks[l].options.parallel.context = &ranks[l];
        is_right = stage_open(gpu, &ranks[l].options, &ranks[l].device);
        hub->devices[l] = ranks[l].device;
    }
    return is_right;
}

static bool threads_run(rank *ranks, void *(*run)(void *rank))
{
    const uint32_t width = ty_plan_replica_ranks(ranks[0].hub->plan);
    bool is_right = true;

    for (uint32_t l = 0; l < width; l++)
        pthread_create(&ranks[l].thread, NULL, run, &ranks[l]);
    for (uint32_t l = 0; l < width; l++)
        pthread_join(ranks[l].thread, NULL);
    for (uint32_t l = 0; l < width && is_right; l++)
        is_right = !ranks[l].is_wrong || wrong("lane %u: %s", l, ranks[l].error.message);
    return is_right;
}

/* All tensor-parallel ranks with the same context-parallel rank have the same loss, and these
 * losses add up. */
static bool losses_compare(const rank *ranks, const precision_case *p)
{
    const uint32_t tensor = ty_plan_parallel_size(ranks[0].hub->plan, TY_TENSOR_PARALLEL);
    const bool is_exact = p->precision == TY_PRECISION_FP32;
    const double tolerance = is_exact ? 1e-5 : 3e-2;
    double loss = 0, expected = 0;
    uint64_t correct = 0, labels = 0, expected_correct, expected_labels;

    for (uint32_t l = 0; l < ty_plan_replica_ranks(ranks[0].hub->plan); l++) {
        const rank *first = &ranks[l - l % tensor];
        if (ranks[l].loss != first->loss)
            return wrong("lanes of one part know losses %.9g and %.9g", first->loss, ranks[l].loss);
        loss += ranks[l].loss / tensor;
        correct += l % tensor == 0 ? ranks[l].correct : 0;
        labels += l % tensor == 0 ? ranks[l].labels : 0;
    }
    cpu->loss(ranks[0].alone, SLOTS - 1, &expected, &expected_correct, &expected_labels);
    if (!(fabs(loss - expected) <= tolerance * expected) || labels != expected_labels ||
        (is_exact && correct != expected_correct))
        return wrong("loss %g, %llu of %llu right, expected %g, %llu of %llu", loss,
                     (unsigned long long)correct, (unsigned long long)labels, expected,
                     (unsigned long long)expected_correct, (unsigned long long)expected_labels);
    return true;
}

/* All layers as on one device: the weights of one context-parallel rank, or, if that is NULL, the
 * gradients. */
static bool shards_joined(const rank_hub *hub, const ty_stage_device *alone,
                          const uint32_t *context, float *whole)
{
    const ty_workload *w = hub->plan->workload;

    for (uint32_t l = 0; l < w->layer_count; l++) {
        uint64_t offset, expected, count;
        float *layer = context != NULL ? rank_hub_weights(hub, *context, l, &count)
                                       : rank_hub_gradients(hub, l, &count);

        cpu->slice(alone, l, 1, &offset, &expected);
        if (layer == NULL || count != expected)
            return wrong("layer %s has %llu numbers on all lanes, expected %llu", w->layers[l].name,
                         (unsigned long long)count, (unsigned long long)expected);
        memcpy(whole + offset, layer, count * sizeof *whole);
        ty_free(layer);
    }
    return true;
}

/* Initial weights, equal to the bit. */
static bool weights_compare(const rank_hub *hub, ty_stage_device *alone, float *whole)
{
    const uint64_t bytes = cpu->parameter_count(alone) * sizeof *whole;

    for (uint32_t c = 0; c < ty_plan_parallel_size(hub->plan, TY_CONTEXT_PARALLEL); c++)
        if (!shards_joined(hub, alone, &c, whole) ||
            memcmp(whole, cpu->parameters(alone), bytes) != 0)
            return wrong("initial weights differ");
    return true;
}

typedef struct parallel_case {
    const char *name;
    ty_workload *(*make)(void);
    uint32_t ranks, contexts; /* of tensors, and of sequences */
    bool divides_sequence, splits_backward;
} parallel_case;

/* Initial weights, then loss and gradients, against one device of the CPU backend. */
static bool case_parallel(const parallel_case *n, const precision_case *p)
{
    ty_workload *w = n->make();
    const ty_plan plan = {.workload = w,
                          .micro_batch_size = SAMPLES,
                          .tensor_parallel = n->ranks,
                          .context_parallel = n->contexts,
                          .sequence_parallel = n->divides_sequence};
    ty_stage_options o = options_of(w, SAMPLES, TY_PRECISION_FP32), other = o;
    rank_hub hub;
    rank ranks[MOST_RANKS] = {0};
    ty_stage_device *alone = NULL;
    float *whole = NULL;
    bool is_right;

    other.precision = p->precision;
    other.splits_backward = n->splits_backward;
    rank_hub_open(&hub, gpu, &plan);
    is_right = stage_open(cpu, &o, &alone) && ranks_open(ranks, &hub, &other, alone);
    if (is_right) {
        whole = malloc(cpu->parameter_count(alone) * sizeof *whole);
        is_right = weights_compare(&hub, alone, whole) && two_passes(cpu, alone, &o) &&
                   threads_run(ranks, rank_run) && losses_compare(ranks, p) &&
                   shards_joined(&hub, alone, NULL, whole) &&
                   is_close(w, alone, whole, cpu->gradients(alone), p->tolerance);
    }
    free(whole);
    cpu->close(alone);
    rank_hub_close(&hub);
    network_free(w);
    return is_right;
}

static void *rank_update(void *argument)
{
    static const ty_optimizer descent = {.kind = TY_OPTIMIZER_SGD, .learning_rate = 0.1};
    rank *own = argument;
    bool is_finite = true;

    own->is_wrong =
        gpu->memory->update(own->device, &descent, 1, 0, gpu->parameter_count(own->device),
                            &is_finite, &own->error) != TY_OK;
    own->correct = is_finite;
    return NULL;
}

/* An update after one rank's gradients overflowed: every rank must skip it.
 * @return whether all agreed */
static bool ranks_update(rank *ranks, bool expected)
{
    bool is_right = threads_run(ranks, rank_update);

    for (uint32_t l = 0; l < ty_plan_replica_ranks(ranks[0].hub->plan) && is_right; l++)
        if ((ranks[l].correct == 1) != expected)
            is_right = wrong("lane %u %s", l, expected ? "did not update" : "updated");
    return is_right;
}

static bool case_overflow(void)
{
    ty_workload *w = network_make_gpt(1, 8, 2, 4, 9);
    const ty_plan plan = {.workload = w, .micro_batch_size = 1, .tensor_parallel = 2};
    const ty_stage_options o = options_of(w, 1, TY_PRECISION_FP16);
    const float beyond = INFINITY, nothing = 0;
    rank_hub hub;
    rank ranks[MOST_RANKS] = {0};
    bool is_right;

    rank_hub_open(&hub, gpu, &plan);
    is_right = ranks_open(ranks, &hub, &o, NULL) && ranks_update(ranks, true) &&
               device_write(ranks[1].device, gpu->gradients(ranks[1].device), &beyond, 1) &&
               ranks_update(ranks, false) &&
               device_write(ranks[1].device, gpu->gradients(ranks[1].device), &nothing, 1) &&
               ranks_update(ranks, true);
    rank_hub_close(&hub);
    network_free(w);
    return is_right;
}

/* A vocabulary that is no multiple of the TP size, heads of an odd size, a tied matrix, biases,
 * position rows. */
static ty_workload *make_parallel_gpt(void)
{
    return network_make_gpt(2, 28, 4, 12, 37);
}

/* Rms norms, a gated mlp without biases, two query heads per key-value head, an untied output
 * projection with a bias; with 4 ranks the last one has one word. */
static ty_workload *make_parallel_llama(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){8});
    int x = network_embedding(w, 37, 32, 0), y;

    w->rotary_base = 100;
    y = network_attention(w, network_simple(w, x, TY_LAYER_RMS_NORM), 8, 4, 4, false, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_mlp(w, network_simple(w, x, TY_LAYER_RMS_NORM), 48, false, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    x = network_simple(w, x, TY_LAYER_RMS_NORM);
    network_loss(w, network_linear(w, x, 37, true));
    return w;
}

static ty_workload *make_parallel_encoder(void)
{
    return network_make_encoder(32, 4, 16, 37, true);
}

/* Sequences of several tiles; one tile has queries of both chunks of a rank. */
static ty_workload *make_parallel_long(void)
{
    return network_make_gpt(1, 16, 2, 320, 37);
}

/* Recurrent states, passed from token to token. */
static ty_workload *make_parallel_lstm(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){8});
    const int x = network_lstm(w, network_embedding(w, 37, 32, 0), 32, true);

    network_loss(w, network_linear(w, x, 37, false));
    return w;
}

/* Gated experts; then more of them, with biases, next to shared ones. */
static ty_workload *make_parallel_mixture(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){8});
    int x = network_embedding(w, 37, 32, 0);

    x = network_join(
        w, TY_LAYER_ADD,
        (int[]){x, network_moe(w, network_simple(w, x, TY_LAYER_RMS_NORM), 4, 2, 16, false, true)},
        2);
    x = network_join(w, TY_LAYER_ADD,
                     (int[]){x, network_moe_shared(w, network_simple(w, x, TY_LAYER_RMS_NORM), 6, 3,
                                                   8, 12, true, false)},
                     2);
    network_loss(w, network_linear(w, x, 37, false));
    return w;
}

static ty_workload *make_one_score(void)
{
    ty_workload *w = network_new(TY_INPUT_REAL, 1, (uint64_t[]){8});

    network_loss(w, network_linear(w, -1, 1, true));
    return w;
}

static ty_workload *make_pair(int (*join)(ty_workload *w, int first, int second))
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){8});
    const int first = network_embedding(w, 37, 32, 0), second = network_embedding(w, 37, 32, 0);

    network_loss(w, network_linear(w, join(w, first, second), 37, false));
    return w;
}

static int join_cross(ty_workload *w, int first, int second)
{
    return network_cross_attention(w, second, first, 4, 4, 8, false);
}

static ty_workload *make_cross(void)
{
    return make_pair(join_cross);
}

static ty_workload *make_option(ty_attribute option, uint64_t value)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){8});
    const int x = network_attention(w, network_embedding(w, 37, 32, 0), 4, 4, 8, false, true);

    network_option(w, x, option, value);
    network_loss(w, network_linear(w, x, 37, false));
    return w;
}

static ty_workload *make_relative(void)
{
    return make_option(TY_RELATIVE_BUCKETS, 4);
}

/* Layers that cannot be sharded, with the CPU backend's message; layers that only that backend
 * trains; and, on the emulator only, operations without a cuDNN plan. */
#define FAULT "TRAINYARD_EMULATED_FAULT"
typedef struct refusal_case {
    const char *name;
    ty_workload *(*make)(void);
    ty_parallel_group parallel;
    const char *words;
    const char *fault; /* the emulator's, or NULL */
} refusal_case;

static const refusal_case refusals[] = {
    {"refused contexts of uneven length",
     make_parallel_llama,
     {.cp_size = 3},
     "sequences of 8 tokens"},
    {"refused contexts of an lstm", make_parallel_lstm, {.cp_size = 2}, "lstm) is not of tokens"},
    {"refused contexts of images", network_make_lenet, {.cp_size = 2}, "sequences of 0 tokens"},
    {"refused cross along the sequence",
     make_cross,
     {.tp_size = 2, .divides_sequence = true},
     "does not divide attention to another sequence"},
    {"refused relative of contexts",
     make_relative,
     {.cp_size = 2},
     "does not divide attention with relative_buckets among contexts"},
    {"refused bags", network_make_dlrm, {0}, "does not train layers of kind embedding_bag"},
    {"refused one score", make_one_score, {0}, "does not train a loss of one class"},
    {"refused parts of contexts",
     make_parallel_llama,
     {.tp_size = 4, .cp_size = 4, .divides_sequence = true},
     "sequences of 8, which sequence parallelism divides by 16"},
    {"refused convolutions",
     network_make_lenet,
     {0},
     "layer layer0: cuDNN has no kernel for it that repeats and keeps the precision",
     "convolutions"},
};
enum { REFUSALS = sizeof refusals / sizeof *refusals };

static bool case_refused(const refusal_case *c)
{
    ty_workload *w = c->make();
    ty_stage_options o = options_of(w, 1, TY_PRECISION_FP32);
    ty_stage_device *opened = NULL;
    ty_error error = {.message = "a stage"};
    bool is_emulated = true;

    o.parallel = c->parallel;
    if (c->fault != NULL)
        setenv(FAULT, c->fault, 1);
    if (gpu->open(&o, &opened, &error) == TY_OK)
        is_emulated = strstr(gpu->memory->describe(opened), "emulated") != NULL;
    unsetenv(FAULT);
    gpu->close(opened);
    network_free(w);
    if (c->fault != NULL && !is_emulated)
        return true; /* a GPU has none */
    return (opened == NULL && strstr(error.message, c->words) != NULL) ||
           wrong("found %.200s, expected %s", error.message, c->words);
}

static const parallel_case parallel_cases[] = {
    {"lanes gpt, 2", make_parallel_gpt, 2, 1, false, false},
    {"lanes gpt, 4", make_parallel_gpt, 4, 1, false, false},
    {"lanes llama, 2", make_parallel_llama, 2, 1, false, false},
    {"lanes llama, 4", make_parallel_llama, 4, 1, false, false},
    {"lanes encoder, 4", make_parallel_encoder, 4, 1, false, false},
    {"lanes gpt, 2 along the sequence", make_parallel_gpt, 2, 1, true, false},
    {"lanes gpt, 4 along the sequence", make_parallel_gpt, 4, 1, true, false},
    {"lanes llama, 2 along the sequence", make_parallel_llama, 2, 1, true, false},
    {"lanes llama, 4 along the sequence", make_parallel_llama, 4, 1, true, false},
    {"lanes mixture, 2", make_parallel_mixture, 2, 1, false, false},
    {"lanes mixture, 4", make_parallel_mixture, 4, 1, false, false},
    {"lanes mixture, 2 along the sequence", make_parallel_mixture, 2, 1, true, false},
    {"lanes mixture, 4 along the sequence, backward in two parts", make_parallel_mixture, 4, 1,
     true, true},
    {"lanes mixture, 2, backward in two parts", make_parallel_mixture, 2, 1, false, true},
    {"contexts gpt, 2", make_parallel_gpt, 1, 2, false, false},
    {"contexts llama, 2", make_parallel_llama, 1, 2, false, false},
    {"contexts llama, 4", make_parallel_llama, 1, 4, false, false},
    {"contexts encoder, 4", make_parallel_encoder, 1, 4, false, false},
    {"contexts long, 2", make_parallel_long, 1, 2, false, false},
    {"contexts llama, 2, backward in two parts", make_parallel_llama, 1, 2, false, true},
    {"contexts llama, 2 x 2", make_parallel_llama, 2, 2, false, false},
    {"contexts llama, 2 x 2 along the sequence", make_parallel_llama, 2, 2, true, false},
    {"contexts encoder, 4 x 2 along the sequence, backward in two parts", make_parallel_encoder, 4,
     2, true, true},
};
enum { PARALLEL_CASES = sizeof parallel_cases / sizeof *parallel_cases };

void parallel_run(void)
{
    char name[128];

    if (is_asked("lanes overflow"))
        report("lanes overflow", case_overflow());
    for (int i = 0; i < REFUSALS; i++)
        if (is_asked(refusals[i].name))
            report(refusals[i].name, case_refused(&refusals[i]));
    for (int n = 0; n < PARALLEL_CASES; n++)
        for (int p = 0; p < PRECISIONS; p += is_quick ? 2 : 1) {
            snprintf(name, sizeof name, "%s, %s", parallel_cases[n].name,
                     ty_precision_name(precisions[p].precision));
            if (is_asked(name))
                report(name, case_parallel(&parallel_cases[n], &precisions[p]));
        }
}
