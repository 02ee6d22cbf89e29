/*
 * The link between devices, on emulated ones that have a stand-in for NCCL (emulator/nccl.cc):
 * small plans of every kind in many orders of completion, each drawn by a seed, and with a device
 * that is lost at any kernel. In every order that a GPU and NCCL allow, nothing hangs, and
 * gradients and losses are the CPU backend's. The emulator prints an error as a line with FAIL.
 *
 * TRAINYARD_LINK_ORDERS is the number of orders that each case "orders:" tries (8), or their range
 * (501-1000). TRAINYARD_LOST_STRIDE=N loses the device at every N-th kernel.
 */
#include "../execute/rank_threads.h"
#include "device_link.h"
#include "gpu_cases.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char gpt_small[] =
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"gpt-small\", \"family\": \"transformer\","
    "\"source\": \"gpt-tiny.json\", \"blocks\": 2, \"features\": 8, \"heads\": 2,"
    "\"hidden_features\": 16, \"vocabulary\": 40, \"positions\": 8, \"sequence\": 8,"
    "\"is_tied\": true, \"token_bytes\": 1, \"dataset\": \"synthetic\", \"global_batch\": 8,"
    "\"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.1, \"momentum\": 0.9,"
    "\"weight_decay\": 0}}";

/* The same with an untied output layer, so that the embedding's gradient may be sent as rows. */
static const char gpt_untied[] =
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"gpt-untied\", \"family\": \"transformer\","
    "\"source\": \"gpt-tiny.json\", \"blocks\": 1, \"features\": 8, \"heads\": 2,"
    "\"hidden_features\": 16, \"vocabulary\": 40, \"positions\": 8, \"sequence\": 8,"
    "\"is_tied\": false, \"token_bytes\": 1, \"dataset\": \"synthetic\", \"global_batch\": 8,"
    "\"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.1, \"momentum\": 0.9,"
    "\"weight_decay\": 0}}";

/* Eight experts and two tokens per rank, each for one expert: most experts, and some ranks, have no
 * work. */
static const char mixture_idle[] =
    "{\"schema\": \"trainyard.zoo/1\", \"source\": \"mixtral-8x7b.json\", \"name\": "
    "\"mixture-idle\", \"family\": \"decoder\", \"blocks\": 1, \"features\": 16, \"heads\": 2, "
    "\"kv_heads\": 1, \"experts\": 8, \"experts_per_token\": 1, \"expert_features\": 24, "
    "\"vocabulary\": 34, \"sequence\": 2, \"longest_sequence\": 2, \"token_bytes\": 1, "
    "\"dataset\": \"synthetic\", \"global_batch\": 8, \"optimizer\": {\"kind\": \"sgd\", "
    "\"learning_rate\": 0.1, \"momentum\": 0.9, \"weight_decay\": 0}}";

#define MLP mlp_small, mlp_small
#define GPT gpt_small, gpt_small
/* Rounding, random draws and choices may differ by one level if gradients differ in their last
 * bits. */
#define CHOSEN NULL, 1e-2, 1e-3
#define MLP_REPLICAS .replicas = {2}, .buckets = 2, BATCH
#define COMPRESSED(kind_, ...)                                                                     \
    MLP,                                                                                           \
    {                                                                                              \
        MLP_REPLICAS, .compression = {.kind = TY_COMPRESSION_##kind_, ##__VA_ARGS__ }              \
    }
static const plan_case plans[] = {
    {"link mlp, data parallel 2", MLP, {.replicas = {2}, .buckets = 3, BATCH}, EXACT, true},
    {"link mlp, gpipe 3 stages",
     MLP,
     {.schedule = TY_GPIPE, .replicas = {1, 1, 1}, .cuts = {2, 4}, .buckets = 1, BATCH},
     EXACT,
     true},
    {"link mlp, 1f1b 2+1",
     MLP,
     {.schedule = TY_ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {3}, .buckets = 2, BATCH},
     EXACT,
     true},
    {"link mlp, 1f1b 2+2", MLP, {MLP_TWICE}, EXACT, true},
    {"link gpt, 1f1b 2 stages, recompute, tied",
     GPT,
     {SMALL_GPT_HALVES, .recompute = TY_RECOMPUTE_FULL},
     EXACT,
     true},
    {"link mlp, interleaved 2 x 2", MLP, {MLP_INTERLEAVED}, EXACT, true},
    {"link mlp, pipedream 3 stages", MLP, {MLP_PIPEDREAM}, EXACT, true},
    {"link mlp, 2bw 2+1", MLP, {MLP_2BW}, EXACT, true},
    {"link mlp, zb-h1 2+2, fp16 buckets",
     MLP,
     {.schedule = TY_ZERO_BUBBLE,
      .replicas = {2, 2},
      .cuts = {3},
      .buckets = 2,
      BATCH,
      .compression.kind = TY_COMPRESSION_FP16},
     NULL,
     4e-3,
     1e-2,
     true},
    {"link gpt, data parallel 2, 2 lanes along the sequence",
     GPT,
     {.replicas = {2}, .buckets = 2, BATCH, .tp = 2, .divides_sequence = true},
     EXACT,
     true},
    {"link gpt, 1f1b 2 stages of 2 contexts", GPT, {SMALL_GPT_HALVES, .contexts = 2}, EXACT, true},
    {"link gpt, ZeRO 2, 2 contexts",
     GPT,
     {.replicas = {1}, .buckets = 2, BATCH, .zero = 2, .contexts = 2},
     EXACT,
     true},
    {"link mlp, ZeRO 1, 3 replicas", MLP, {THREE_REPLICAS, .zero = 1}, EXACT, true},
    /* Passes read 16-bit weights, unsharded; of the fp32 master weights each device has only its
     * shard. */
    {"link mlp, ZeRO 2, 3 replicas, bf16, evaluated",
     MLP,
     {THREE_REPLICAS, .zero = 2},
     "bf16",
     1e-1,
     3e-2,
     true,
     2},
    {"link mlp, ZeRO 3, 1f1b 2+2", MLP, {MLP_TWICE, .zero = 3}, EXACT, true},
    /* One micro-batch per replica: gradients are reduced during backward, bucket by bucket. */
    {"link mlp, ZeRO 2, 3 replicas of one micro-batch",
     MLP,
     {.replicas = {3}, .buckets = 3, .global_batch = 12, .micro_batch_size = 4, .zero = 2},
     EXACT,
     true},
    {"link gpt, ZeRO 3, data parallel 2, one micro-batch, recompute, bf16",
     GPT,
     {.replicas = {2},
      .buckets = 5,
      .global_batch = 8,
      .micro_batch_size = 4,
      .zero = 3,
      .recompute = TY_RECOMPUTE_FULL},
     "bf16",
     1e-1,
     3e-2,
     true},
    {"link mlp, ZeRO 3, 1f1b 2+2, one micro-batch, evaluated",
     MLP,
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {2, 2},
      .cuts = {3},
      .buckets = 2,
      .global_batch = 8,
      .micro_batch_size = 4,
      .zero = 3},
     EXACT,
     true,
     2},
    {"link mlp, one-bit, 3 replicas",
     MLP,
     {THREE_REPLICAS, .compression.kind = TY_COMPRESSION_ONE_BIT},
     NULL,
     1e-2,
     1e-3,
     true},
    {"link mlp, powersgd, 1f1b 2+1",
     MLP,
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {2, 1},
      .cuts = {3},
      .buckets = 2,
      BATCH,
      .compression = {.kind = TY_COMPRESSION_POWERSGD, .rank = 2}},
     NULL,
     1e-3,
     1e-3,
     true},
    {"link mlp, late, 1f1b 2+2, top-k",
     MLP,
     {MLP_TWICE, .compression = {.kind = TY_COMPRESSION_TOP_K, .ratio = 1}, .staleness = 1},
     EXACT,
     true},
    {"link mlp, local steps 2, gpipe 2+2",
     MLP,
     {.schedule = TY_GPIPE,
      .replicas = {2, 2},
      .cuts = {3},
      .buckets = 2,
      .global_batch = 16,
      .micro_batch_size = 2,
      .local_steps = 2},
     EXACT,
     true},
    {"link mlp, gpipe 2+2, bf16",
     MLP,
     {.schedule = TY_GPIPE, .replicas = {2, 2}, .cuts = {3}, .buckets = 2, BATCH},
     "bf16",
     1e-1,
     3e-2,
     true},
    {"link mlp, zb-h1 3 stages",
     MLP,
     {.schedule = TY_ZERO_BUBBLE, .replicas = {1, 1, 1}, .cuts = {2, 4}, .buckets = 1, BATCH},
     EXACT,
     true},
    {"link mlp, zb-h1 2+2, 2 steps late",
     MLP,
     {.schedule = TY_ZERO_BUBBLE,
      .replicas = {2, 2},
      .cuts = {3},
      .buckets = 2,
      BATCH,
      .staleness = 2},
     EXACT,
     true},
    {"link mlp, two replicas, interleaved 2 x 2",
     MLP,
     {.schedule = TY_INTERLEAVED,
      .replicas = {2, 2, 2, 2},
      .cuts = {2, 4, 5},
      .buckets = 1,
      BATCH,
      .virtual_stages = 2},
     EXACT,
     true},
    {"link mlp, pipedream 2+1, bf16 buckets",
     MLP,
     {.schedule = TY_PIPEDREAM,
      .replicas = {2, 1},
      .cuts = {3},
      .buckets = 1,
      BATCH,
      .compression.kind = TY_COMPRESSION_BF16},
     NULL,
     4e-3,
     1e-2,
     true},
    {"link mlp, 2bw 2+2, fp16",
     MLP,
     {.schedule = TY_PIPEDREAM_2BW, .replicas = {2, 2}, .cuts = {3}, .buckets = 1, BATCH},
     "fp16",
     3e-2,
     1e-2,
     true},
    {"link mlp, ZeRO 2, gpipe 2+2, recompute operators",
     MLP,
     {.schedule = TY_GPIPE,
      .replicas = {2, 2},
      .cuts = {3},
      .buckets = 2,
      BATCH,
      .zero = 2,
      .recompute = TY_RECOMPUTE_OPERATOR},
     EXACT,
     true},
    {"link mlp, ZeRO 2, random-k",
     MLP,
     {MLP_REPLICAS, .compression = {.kind = TY_COMPRESSION_RANDOM_K, .ratio = 0.25}, .zero = 2},
     NULL,
     1e-4,
     1e-3,
     true},
    {"link mlp, ZeRO 3, 3 replicas, fp16",
     MLP,
     {THREE_REPLICAS, .zero = 3},
     "fp16",
     3e-2,
     1e-2,
     true},
    {"link mlp, fp8-e4m3", COMPRESSED(FP8_E4M3), CHOSEN, true},
    {"link mlp, fp8-e5m2", COMPRESSED(FP8_E5M2), CHOSEN, true},
    {"link mlp, int8", COMPRESSED(INT8), CHOSEN, true},
    {"link mlp, ternary", COMPRESSED(TERNARY), CHOSEN, true},
    {"link mlp, top-k-sampled", COMPRESSED(TOP_K_SAMPLED, .ratio = 0.01), CHOSEN, true},
    {"link mlp, dgc", COMPRESSED(DGC, .ratio = 0.05, .warmup_steps = 2), CHOSEN, true},
    {"link batch norm, data parallel 2, evaluated",
     batch_norm_small,
     batch_norm_small,
     {MLP_REPLICAS},
     EXACT,
     true,
     2},
    {"link lstm, 1f1b 2+2",
     gnmt_small,
     gnmt_small,
     {.schedule = TY_ONE_F_ONE_B, .replicas = {2, 2}, .cuts = {2}, .buckets = 1, BATCH},
     EXACT,
     true},
    {"link gpt, data parallel 2, rows",
     gpt_untied,
     gpt_untied,
     {.replicas = {2}, .buckets = 2, BATCH, .compression.kind = TY_COMPRESSION_ROWS},
     EXACT,
     true},
    {"link gpt, 1f1b 2 stages of 2 lanes, recompute selective",
     GPT,
     {SMALL_GPT_HALVES, .tp = 2, .recompute = TY_RECOMPUTE_SELECTIVE},
     EXACT,
     true},
    {"link gpt, 2 x 2 lanes along the sequence",
     GPT,
     {.replicas = {1}, .buckets = 2, BATCH, .tp = 2, .divides_sequence = true, .contexts = 2},
     EXACT,
     true},
    {"link mixture, 2 lanes of 2 experts",
     MIXTURE,
     MIXTURE,
     {.replicas = {1}, .buckets = 2, BATCH, .experts = 2},
     EXACT,
     true},
    {"link mixture, 2 x 2 lanes of experts and their features",
     moe_small,
     moe_small,
     {.replicas = {1}, .buckets = 2, BATCH, .tp = 2, .experts = 2},
     EXACT,
     true},
    {"link mixture, 4 lanes of an expert, bf16",
     MIXTURE,
     MIXTURE,
     {.replicas = {1}, .buckets = 2, .global_batch = 8, .micro_batch_size = 4, .experts = 4},
     "bf16",
     1e-1,
     3e-2,
     true},
    {"link mixture, 4 lanes of experts, most of them idle",
     mixture_idle,
     mixture_idle,
     {.replicas = {1}, .buckets = 2, .global_batch = 8, .micro_batch_size = 4, .experts = 4},
     EXACT,
     true},
    {"link mixture, 1f1b 2 stages of 2 lanes of experts, recompute",
     MIXTURE,
     MIXTURE,
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {1, 1},
      .cuts = {7},
      .buckets = 2,
      BATCH,
      .experts = 2,
      .recompute = TY_RECOMPUTE_FULL},
     EXACT,
     true},
    {"link mixture, ZeRO 3, data parallel 2, 2 lanes of experts, one micro-batch",
     MIXTURE,
     MIXTURE,
     {.replicas = {2},
      .buckets = 3,
      .global_batch = 8,
      .micro_batch_size = 4,
      .zero = 3,
      .experts = 2},
     EXACT,
     true},
    {"link gpt, data parallel 2, 2 lanes, fp16",
     GPT,
     {.replicas = {2}, .buckets = 2, BATCH, .tp = 2},
     "fp16",
     3e-2,
     1e-2,
     true},
    {"link gpt, 1f1b 2 stages, 2 lanes along the sequence, bf16",
     GPT,
     {SMALL_GPT_HALVES, .tp = 2, .divides_sequence = true},
     "bf16",
     1e-1,
     3e-2,
     true},
    {"link gpt, zb-h1 2 stages of 2 contexts",
     GPT,
     {.schedule = TY_ZERO_BUBBLE,
      .replicas = {1, 1},
      .cuts = {5},
      .buckets = 1,
      BATCH,
      .contexts = 2},
     EXACT,
     true},
};
enum { PLANS = sizeof plans / sizeof *plans, STEPS = 3, ORDERS = 8, LOST_STRIDE = 23 };

static bool number_set(const char *name, const char *format, uint32_t a, uint32_t b)
{
    char text[64];

    snprintf(text, sizeof text, format, a, b);
    return setenv(name, text, 1) == 0;
}

/* Whether the run's description names the link. */
static bool is_linked(const ty_run *run)
{
    return run->versions != NULL && strstr(run->versions, "link nccl") != NULL;
}

/* Collectives of ranks are part of their passes' graphs, except between experts, or if no kernel
 * fits next to one that waits. */
static bool is_recorded(const plan_case *c, const ty_run *run)
{
    const char *crowded = getenv("TRAINYARD_EMULATED_CROWDED");
    graph_record found;

    if ((c->shape.tp < 2 && c->shape.contexts < 2) || c->shape.experts > 1 ||
        (crowded != NULL && crowded[0] == '1'))
        return true;
    return graph_record_read(run, &found) &&
           ((found.replays > 0 && !found.is_given_up) || wrong("found %.200s", run->versions));
}

static bool order_run(const plan_case *c, const plan_shape *shape, uint32_t order,
                      const outcome *expected)
{
    outcome found = {0};
    char said[sizeof message];
    bool is_right;

    number_set("TRAINYARD_EMULATED_ORDER", "%u", order, 0);
    is_right = plan_run_evaluated(c->workload, shape, "cuda", c->precision, STEPS,
                                  c->evaluate_every, &found) &&
               (is_linked(found.run) || wrong("not over NCCL")) && is_recorded(c, found.run) &&
               outcome_compare(c, &found, expected);
    outcome_free(&found);
    snprintf(said, sizeof said, "%s", message);
    return is_right || wrong("order %u: %.400s", order, said);
}

static uint32_t asked_count(const char *name, uint32_t otherwise)
{
    const char *value = getenv(name);

    return value != NULL ? (uint32_t)atoi(value) : otherwise;
}

static void *emulator_function(const char *name)
{
    void *const plugin = dlopen(getenv("TRAINYARD_CUDA_PLUGIN"), RTLD_NOW | RTLD_NOLOAD);

    return plugin != NULL ? dlsym(plugin, name) : NULL;
}

/* A hash of the order in which operations began on all devices since the last call. */
static uint64_t order_take(void)
{
    uint64_t (*take)(void) = NULL;

    *(void **)&take = emulator_function("emulated_order_take");
    return take != NULL ? take() : 0;
}

static uint32_t different_count(const uint64_t *numbers, uint32_t count)
{
    uint32_t different = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t earlier = 0;
        while (numbers[earlier] != numbers[i])
            earlier++;
        different += earlier == i;
    }
    return different;
}

/* One run in each order from `first` to `last`. */
static bool case_orders(const plan_case *c, uint32_t first, uint32_t last)
{
    const uint32_t count = last - first + 1;
    uint64_t *taken = calloc((size_t)count, sizeof *taken);
    plan_shape shape = c->shape;
    outcome expected = {0};
    bool is_right;

    shape.name = c->name;
    is_right =
        plan_run_evaluated(c->workload, &shape, "cpu", NULL, STEPS, c->evaluate_every, &expected);
    (void)order_take(); /* the last case's */
    for (uint32_t order = first; order <= last && is_right; order++) {
        is_right = order_run(c, &shape, order, &expected);
        taken[order - first] = order_take();
    }
    if (is_right && different_count(taken, count) <= count / 2)
        is_right = wrong("%u different orders in %u runs", different_count(taken, count), count);
    outcome_free(&expected);
    free(taken);
    return is_right;
}

/* ---- Plans with the same order of instructions ---- */

/* By FNV-1a. */
static void number_add(uint64_t *hash, uint64_t number)
{
    *hash = (*hash ^ (number + 1)) * 0x100000001b3u;
}

/* Instructions of all ranks, their order, dependencies and collectives, without layers and sizes.
 * TP, CP and EP ranks communicate inside passes as well: for these, also the kinds of the layers,
 * and all else that changes passes. */
static uint64_t instructions_hash(const plan_case *c)
{
    plan_shape shape = c->shape;
    ty_plan *plan;
    ty_program *program = NULL;
    ty_error error = {0};
    uint64_t hash = 0xcbf29ce484222325u;

    shape.name = c->name;
    plan = make_plan(c->workload, &shape);
    if (ty_plan_lower(plan, &program, &error) != TY_OK) {
        ty_plan_free(plan);
        return 0; /* reported by the plan's own case */
    }
    for (uint32_t s = 0; s < plan->stage_count; s++)
        number_add(&hash, plan->stages[s].replicas);
    for (uint32_t s = 0; s < program->stage_count; s++)
        for (uint32_t i = 0; i < program->stages[s].instruction_count; i++) {
            const ty_instruction *in = &program->stages[s].instructions[i];
            const uint64_t parts[] = {in->op,          in->stage,     in->lead,
                                      in->micro_batch, in->bucket,    in->phase,
                                      in->peer_stage,  in->direction, in->wait_count};
            for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
                number_add(&hash, parts[p]);
            for (uint32_t w = 0; w < in->wait_count; w++)
                number_add(&hash, in->waits[w]);
            if (in->op == TY_OP_COLLECTIVE)
                number_add(&hash, ty_compression_collective(&c->shape.compression, in->phase));
        }
    number_add(&hash, plan->zero);
    number_add(&hash, plan->workload->local_steps);
    number_add(&hash, c->evaluate_every);
    if (ty_plan_replica_ranks(plan) > 1) {
        const uint64_t passes[] = {
            c->shape.tp,        c->shape.divides_sequence,
            c->shape.contexts,  c->shape.experts,
            c->shape.recompute, c->precision != NULL && strcmp(c->precision, "fp16") == 0};
        for (size_t p = 0; p < sizeof passes / sizeof *passes; p++)
            number_add(&hash, passes[p]);
        for (uint32_t l = 0; l < plan->workload->layer_count; l++)
            number_add(&hash, plan->workload->layers[l].kind);
    }
    ty_program_free(program);
    ty_plan_free(plan);
    return hash;
}

/* Of plans with the same order of instructions, only the first runs in several orders of
 * completion. */
static void orders_run(void)
{
    const char *asked = getenv("TRAINYARD_LINK_ORDERS");
    const char *dash = asked != NULL ? strchr(asked, '-') : NULL;
    const uint32_t first = dash != NULL ? asked_count("TRAINYARD_LINK_ORDERS", 1) : 1;
    const uint32_t last =
        dash != NULL ? (uint32_t)atoi(dash + 1) : asked_count("TRAINYARD_LINK_ORDERS", ORDERS);
    uint64_t hashes[PLANS];
    char name[160];

    for (int i = 0; i < PLANS; i++) {
        int earlier = 0;
        hashes[i] = instructions_hash(&plans[i]);
        while (hashes[earlier] != hashes[i])
            earlier++;
        snprintf(name, sizeof name, "orders: %s", plans[i].name + strlen("link "));
        if (earlier == i && is_asked(name))
            report(name, case_orders(&plans[i], first, last));
    }
}

/* ---- A device is lost ---- */

/* Every rank ends with an error, at whichever kernel the device is lost. After the last kernel the
 * run succeeds. */
static bool case_lost(const plan_case *c, uint32_t device, uint32_t stride)
{
    plan_shape shape = c->shape;
    outcome expected = {0}, found = {0};
    uint32_t kernel = 1, lost = 0;
    bool has_run = false, is_right;

    shape.name = c->name;
    is_right = plan_run(c->workload, &shape, "cpu", NULL, STEPS, &expected);
    for (; is_right && !has_run; kernel += stride) {
        number_set("TRAINYARD_EMULATED_LOST", "%u:%u", device, kernel);
        number_set("TRAINYARD_EMULATED_ORDER", "%u", kernel, 0);
        has_run = plan_run(c->workload, &shape, "cuda", c->precision, STEPS, &found);
        lost += !has_run;
        is_right = !has_run || outcome_compare(c, &found, &expected);
        outcome_free(&found);
        found = (outcome){0};
    }
    unsetenv("TRAINYARD_EMULATED_LOST");
    outcome_free(&expected);
    return is_right && (lost > 3 || wrong("lost at %u kernels only", lost));
}

static void lost_run(const plan_case *c)
{
    const uint32_t stride = asked_count("TRAINYARD_LOST_STRIDE", LOST_STRIDE);
    char name[160];

    for (uint32_t device = 0; device < 2; device++) {
        snprintf(name, sizeof name, "lost device %u of %s", device, c->name + strlen("link "));
        if (is_asked(name))
            report(name, case_lost(c, device, stride));
    }
}

/* ---- Memory ---- */

static uint32_t ranks_of(uint32_t asked)
{
    return asked > 0 ? asked : 1;
}

/* Each rank's reported peak of device memory, or that of the rank with the most, is the emulator's
 * figure: with state, compressors and the memory of links. */
static bool case_memory(const plan_case *c)
{
    uint64_t (*given)(int device) = NULL;
    const uint32_t width =
        ranks_of(c->shape.tp) * ranks_of(c->shape.contexts) * ranks_of(c->shape.experts);
    plan_shape shape = c->shape;
    outcome found = {0};
    bool is_right;

    *(void **)&given = emulator_function("emulated_memory_peak");
    if (given == NULL)
        return wrong("the emulator does not tell what it gave");
    for (int device = 0; device < 4; device++)
        (void)given(device);
    shape.name = c->name;
    is_right = plan_run(c->workload, &shape, "cuda", c->precision, STEPS, &found);
    for (uint32_t rank = 0; is_right && rank < found.run->stage_replica_count; rank++) {
        uint64_t bytes = 0;

        for (uint32_t replica_rank = 0; replica_rank < width; replica_rank++) {
            const uint64_t of_rank = given((int)(rank * width + replica_rank));
            bytes = of_rank > bytes ? of_rank : bytes;
        }
        is_right = found.run->peak_memory_bytes[rank] == bytes ||
                   wrong("rank %u says %llu bytes, its device gave %llu", rank,
                         (unsigned long long)found.run->peak_memory_bytes[rank],
                         (unsigned long long)bytes);
    }
    outcome_free(&found);
    return is_right;
}

/* ---- A link without a plan ---- */

/* Ranks 0 and 2 share a device, 3 and 4 have none. */
static ty_status devices_of_rank(ty_transport *transport, ty_error *error)
{
    static const unsigned char of[] = {7, 8, 7, 0, 0};
    static const uint32_t expected[] = {0, 1, 0, 3, 4};
    ty_device_identity own = {{of[transport->rank]}};
    uint32_t first = 0;
    ty_status status = ty_device_first_user(transport, &own, &first, error);

    if (status == TY_OK && first != expected[transport->rank])
        return ty_fail(error, TY_EINVAL, "rank %u's device is first used by %u, expected %u",
                       transport->rank, first, expected[transport->rank]);
    return status;
}

static ty_plan *link_plan;
static ty_program *link_program;

static void ring(void *context)
{
    atomic_fetch_add((atomic_uint *)context, 1);
}

/* A sum of [rank + 1] over two ranks, which serve the link but poll their request only after the
 * bell rings. */
static ty_status sum_on_link(const ty_link_options *options, ty_device_link *link, ty_error *error)
{
    static const uint32_t members[] = {0, 1};
    const ty_device_memory *memory = gpu->memory;
    atomic_uint *rings = options->context;
    float *data = memory->allocate(options->stage, sizeof *data);
    float number = (float)options->transport->rank + 1;
    ty_request *request = NULL;
    bool is_moved = false, is_done = false;
    ty_status status = memory->write(options->stage, data, &number, sizeof number, error);

    if (status == TY_OK)
        status = link->exchange(link,
                                &(ty_collective_options){.kind = TY_ALL_REDUCE,
                                                         .members = members,
                                                         .member_count = 2,
                                                         .data = data,
                                                         .count = 1,
                                                         .element = TY_ELEMENT_FLOAT},
                                &request, error);
    while (status == TY_OK && atomic_load(rings) == 0)
        status = link->advance(link, &is_moved, error);
    while (status == TY_OK && !is_done)
        status = link->test(link, request, &is_done, error);
    if (status == TY_OK)
        status = memory->read(options->stage, &number, data, sizeof number, error);
    memory->release(options->stage, data);
    if (status == TY_OK && (number != 3 || atomic_load(rings) != 1))
        return ty_fail(error, TY_EINVAL, "found %g after %u rings, expected 3 after 1",
                       (double)number, atomic_load(rings));
    return status;
}

static ty_status link_of_rank(ty_transport *transport, ty_error *error)
{
    atomic_uint rings = 0;
    ty_stage_options options = {.workload = link_plan->workload,
                                .layer_count = link_plan->workload->layer_count,
                                .micro_batch_size = 2,
                                .slots = 1,
                                .loss_scale = 1,
                                .tied_layer = TY_NO_LAYER,
                                .local_rank = transport->rank};
    ty_link_options to = {.plan = link_plan,
                          .program = link_program,
                          .backend = gpu,
                          .transport = transport,
                          .ring = ring,
                          .context = &rings};
    ty_device_link *link = NULL;
    ty_status status = gpu->open(&options, &to.stage, error);

    if (status == TY_OK)
        status = ty_device_link_open(&to, &link, error);
    if (status == TY_OK)
        status = sum_on_link(&to, link, error);
    if (status != TY_OK)
        transport->is_broken = true;
    if (link != NULL)
        link->close(link);
    if (to.stage != NULL)
        gpu->close(to.stage);
    return status;
}

static bool case_of_ranks(uint32_t count, rank_function function)
{
    ty_error error = {0};

    return rank_threads_all(ty_transport_local, count, function, &error) == TY_OK ||
           wrong("%s", error.message);
}

static bool case_rings(void)
{
    const plan_shape shape = {.name = "link", .replicas = {2}, .buckets = 1, BATCH};
    ty_error error = {0};
    bool is_right;

    link_plan = make_plan(mlp_small, &shape);
    is_right =
        ty_plan_lower(link_plan, &link_program, &error) == TY_OK && case_of_ranks(2, link_of_rank);
    ty_program_free(link_program);
    ty_plan_free(link_plan);
    return is_right;
}

void links_run(void)
{
    char name[160];

    if (is_asked("devices of ranks"))
        report("devices of ranks", case_of_ranks(5, devices_of_rank));
    if (getenv("TRAINYARD_EMULATED_DEVICES") == NULL)
        return;
    if (is_asked("link rings and serves"))
        report("link rings and serves", case_rings());
    for (int i = 0; i < PLANS; i++) {
        if (is_asked(plans[i].name))
            report(plans[i].name, case_orders(&plans[i], 1, 1));
        lost_run(&plans[i]);
        snprintf(name, sizeof name, "memory of %s", plans[i].name + strlen("link "));
        if (plans[i].shape.tp < 2 && plans[i].shape.contexts < 2 && is_asked(name))
            report(name, case_memory(&plans[i]));
    }
    orders_run();
}
