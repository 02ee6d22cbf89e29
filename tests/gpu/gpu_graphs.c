/* Passes replayed as graphs: bit for bit equal to queued ones, in every schedule; changes from pass
 * to pass; work that cannot be captured. */
#include "gpu_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SWITCH "TRAINYARD_CUDA_GRAPHS"
#define FAULT "TRAINYARD_EMULATED_FAULT" /* of the emulator; a GPU has none */

bool graph_record_read(const ty_run *run, graph_record *out)
{
    const char *at = strstr(run->versions, " graphs for ");

    *out = (graph_record){.is_given_up = strstr(run->versions, "none for others") != NULL};
    while (at != NULL && at > run->versions && at[-1] >= '0' && at[-1] <= '9')
        at--;
    return (at != NULL && sscanf(at, "%u graphs for %llu of %llu passes", &out->graphs,
                                 &out->replays, &out->passes) == 3) ||
           wrong("found \"%.200s\", expected graphs in it", run->versions);
}

/* ---- Plans ---- */

enum { STEPS = 5 };

typedef struct graph_case {
    const char *name;
    const char *workload;
    plan_shape shape;
    const char *precision;
    uint32_t evaluate_every;
    const char *given_up; /* why passes with collectives are queued instead; NULL: none is */
} graph_case;

#define SMALL_GPT "gpt-tiny sequence=8"

static const graph_case plans[] = {
    {"graphs mlp, one rank", mlp_small, {.replicas = {1}, .buckets = 1, BATCH}, NULL, 0, NULL},
    {"graphs lenet, 1f1b 2 stages, pieces", "lenet", {SMALL_GPT_HALVES}, NULL, 0, NULL},
    {"graphs gpt, gpipe 2 stages, bf16",
     SMALL_GPT,
     {.schedule = TY_GPIPE, .replicas = {1, 1}, .cuts = {13}, .buckets = 1, BATCH},
     "bf16",
     0,
     NULL},
    {"graphs gpt, 1f1b 2 stages, recompute",
     SMALL_GPT,
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {1, 1},
      .cuts = {13},
      .buckets = 1,
      BATCH,
      .recompute = TY_RECOMPUTE_FULL},
     NULL,
     0,
     NULL},
    {"graphs lstm, zb-h1 2 stages", gnmt_small, {LSTM_ZERO_BUBBLE}, NULL, 0, NULL},
    {"graphs gpt, zb-h1 2 stages, fp16", SMALL_GPT, {GPT_ZERO_BUBBLE}, "fp16", 0, NULL},
    {"graphs mlp, interleaved 2 x 2", mlp_small, {MLP_INTERLEAVED}, NULL, 0, NULL},
    {"graphs mlp, pipedream 3 stages", mlp_small, {MLP_PIPEDREAM}, NULL, 0, NULL},
    {"graphs gpt, 2bw 2 stages, fp16", SMALL_GPT, {GPT_2BW}, "fp16", 0, NULL},
    {"graphs batch norm, data parallel 2, evaluated",
     batch_norm_small,
     {.replicas = {2}, .buckets = 2, BATCH},
     NULL,
     4,
     NULL},
    {"graphs gpt, ZeRO 3, data parallel 2, bf16",
     SMALL_GPT,
     {.replicas = {2}, .buckets = 3, BATCH, .zero = 3},
     "bf16",
     0,
     NULL},
    {"graphs mlp, ZeRO 3, data parallel 2, one micro-batch, fp16",
     mlp_small,
     {.replicas = {2}, .buckets = 3, .global_batch = 8, .micro_batch_size = 4, .zero = 3},
     "fp16",
     4,
     NULL},
    {"graphs mlp, local steps 2",
     mlp_small,
     {.replicas = {2}, .buckets = 2, BATCH, .local_steps = 2},
     NULL,
     0,
     NULL},
    {"graphs mlp, 1f1b 2 stages, gradients a step late",
     mlp_small,
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {1, 2},
      .cuts = {3},
      .buckets = 1,
      BATCH,
      .staleness = 1},
     NULL,
     0,
     NULL},
    {"graphs gpt, 2 ranks through the host",
     SMALL_GPT,
     {.replicas = {1}, .buckets = 1, BATCH, .tp = 2},
     NULL,
     0,
     "ranks exchange through the host's memory"},
};
enum { PLANS = sizeof plans / sizeof *plans };

/* Between emulated devices, whose collectives are part of the graphs. */
#define TWO_RANKS                                                                                  \
    {                                                                                              \
        .replicas = {1}, .buckets = 2, BATCH, .tp = 2                                              \
    }
static const graph_case parallel_plans[] = {
    {"graphs of lanes, gpt, data parallel 2, bf16",
     gpt_small,
     {.replicas = {2}, .buckets = 2, BATCH, .tp = 2},
     "bf16",
     0,
     NULL},
    {"graphs of lanes, gpt, along the sequence, fp16",
     gpt_small,
     {.replicas = {1}, .buckets = 2, BATCH, .tp = 2, .divides_sequence = true},
     "fp16",
     0,
     NULL},
    {"graphs of lanes, gpt, a sample at a time",
     gpt_small,
     {.replicas = {1},
      .buckets = 2,
      .global_batch = 4,
      .micro_batch_size = 1,
      .tp = 2,
      .divides_sequence = true},
     NULL,
     0,
     NULL},
    {"graphs of lanes, gpt, 1f1b 2 stages of 2 contexts, bf16",
     gpt_small,
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {1, 1},
      .cuts = {5},
      .buckets = 2,
      BATCH,
      .contexts = 2,
      .recompute = TY_RECOMPUTE_FULL},
     "bf16",
     0,
     NULL},
    {"graphs of lanes, gpt, 2 x 2, bf16",
     gpt_small,
     {.replicas = {1}, .buckets = 2, BATCH, .tp = 2, .divides_sequence = true, .contexts = 2},
     "bf16",
     0,
     NULL},
    {"graphs of lanes, gpt, interleaved 2 x 2",
     gpt_small,
     {.schedule = TY_INTERLEAVED,
      .replicas = {1, 1, 1, 1},
      .cuts = {4, 8, 12},
      .buckets = 1,
      BATCH,
      .virtual_stages = 2,
      .tp = 2},
     NULL,
     0,
     NULL},
    {"graphs of lanes, gpt, zb-h1 2 stages, bf16",
     gpt_small,
     {.schedule = TY_ZERO_BUBBLE,
      .replicas = {1, 1},
      .cuts = {5},
      .buckets = 1,
      BATCH,
      .tp = 2,
      .divides_sequence = true},
     "bf16",
     0,
     NULL},
};
enum { PARALLEL_PLANS = sizeof parallel_plans / sizeof *parallel_plans };

/* If one rank cannot create graphs, the other one does not use its own either: NCCL kernels would
 * not fit next to each other. */
static const struct {
    const char *variable, *value;
    graph_case plan;
} parallel_faults[] = {
    {FAULT,
     "instantiate:1",
     {"graphs of lanes given up by one", gpt_small, TWO_RANKS, NULL, 0, "none for others"}},
    {"TRAINYARD_EMULATED_CROWDED",
     "1",
     {"graphs of lanes given up for want of room", gpt_small, TWO_RANKS, NULL, 0,
      "kernels of NCCL may take 8 of 1 multiprocessors"}},
};
enum { PARALLEL_FAULTS = sizeof parallel_faults / sizeof *parallel_faults };

static bool run_with(const graph_case *c, const char *is_on, outcome *out)
{
    plan_shape shape = c->shape;

    shape.name = c->name;
    setenv(SWITCH, is_on, 1);
    return plan_run_evaluated(c->workload, &shape, "cuda", c->precision, STEPS, c->evaluate_every,
                              out);
}

static bool outcomes_equal(const outcome *found, const outcome *expected)
{
    if (found->length != expected->length ||
        memcmp(found->gradients, expected->gradients, expected->length) != 0)
        return wrong("gradients of the first step differ");
    for (uint32_t i = 0; i < expected->run->step_count; i++)
        if (found->run->losses[i] != expected->run->losses[i])
            return wrong("loss of step %u is %.17g, without graphs %.17g", (unsigned)i,
                         found->run->losses[i], expected->run->losses[i]);
    for (uint32_t i = 0; i < expected->run->evaluation_count; i++)
        if (found->run->evaluations[i].loss != expected->run->evaluations[i].loss)
            return wrong("test loss %u is %.17g, without graphs %.17g", (unsigned)i,
                         found->run->evaluations[i].loss, expected->run->evaluations[i].loss);
    return true;
}

/* Each pass is queued once and captured once, so that most passes of five steps are replays. */
static bool records_check(const graph_case *c, const outcome *with, const outcome *without)
{
    graph_record on, off;

    if (!graph_record_read(with->run, &on) || !graph_record_read(without->run, &off))
        return false;
    if (off.graphs != 0 || off.replays != 0 || off.passes != on.passes)
        return wrong("without graphs found %u for %llu of %llu passes, expected none of %llu",
                     off.graphs, off.replays, off.passes, on.passes);
    if (c->given_up != NULL ? strstr(with->run->versions, c->given_up) == NULL : on.is_given_up)
        return wrong("found %.200s", with->run->versions);
    if (c->given_up == NULL && (on.graphs == 0 || on.replays * 2 < on.passes))
        return wrong("found %u graphs for %llu of %llu passes", on.graphs, on.replays, on.passes);
    return true;
}

static bool case_graphs(const graph_case *c)
{
    outcome with = {0}, without = {0};
    bool is_right;

    is_deterministic = true;
    is_right = run_with(c, "0", &without) && run_with(c, "1", &with) &&
               outcomes_equal(&with, &without) && records_check(c, &with, &without);
    is_deterministic = false;
    unsetenv(SWITCH);
    outcome_free(&with);
    outcome_free(&without);
    return is_right;
}

/* ---- One stage whose loss scale overflows in the middle, and whose weight version changes ---- */

enum { ROUNDS = 6, OVERFLOW_ROUND = 4 };
static const double scales[ROUNDS] = {1024, 256, 2048, 512, 1e30, 128};

typedef struct round_result {
    double loss;
    bool is_finite;
    float *gradients; /* before the update */
} round_result;

/* Each round has another batch, loss scale and weight version. */
static bool round_run(ty_stage_device *stage, const ty_stage_options *o, uint32_t round,
                      round_result *out)
{
    const uint64_t count = gpu->parameter_count(stage);
    const ty_optimizer optimizer = {
        .kind = TY_OPTIMIZER_SGD, .learning_rate = 0.05, .momentum = 0.9};
    uint64_t right, labels;
    ty_error error = {0};

    gpu->select(stage, round % 2);
    gpu->memory->scale_loss(stage, scales[round]);
    for (uint32_t slot = 0; slot < 2; slot++) {
        batch_fill(gpu, stage, slot, o->workload, o->micro_batch_size, 100 * round + slot);
        if (gpu->forward(stage, slot, 0, o->layer_count, &error) != TY_OK ||
            gpu->backward(stage, slot, 0, o->layer_count, slot == 0, &error) != TY_OK)
            return wrong("%s", error.message);
    }
    gpu->loss(stage, 1, &out->loss, &right, &labels);
    out->gradients = malloc(count * sizeof *out->gradients);
    return device_read(stage, gpu->gradients(stage), count, out->gradients) &&
           (gpu->memory->update(stage, &optimizer, round + 1, 0, count, &out->is_finite, &error) ==
                TY_OK ||
            wrong("%s", error.message));
}

static bool rounds_run(const char *is_on, const char *fault, round_result results[ROUNDS],
                       ty_device_graphs *graphs, uint64_t *count)
{
    ty_workload *w = network_make_activations();
    ty_stage_options o = options_of(w, 2, TY_PRECISION_FP16);
    ty_stage_device *stage = NULL;
    bool is_right;

    setenv(SWITCH, is_on, 1);
    o.versions = 2;
    is_right = stage_open(gpu, &o, &stage);
    unsetenv(SWITCH);
    if (fault != NULL)
        setenv(FAULT, fault, 1);
    for (uint32_t r = 0; r < ROUNDS && is_right; r++)
        is_right = round_run(stage, &o, r, &results[r]);
    unsetenv(FAULT);
    if (is_right) {
        *graphs = gpu->memory->graphs(stage);
        if (graphs->given_up != NULL)
            snprintf(message, sizeof message, "%s", graphs->given_up);
        graphs->given_up = graphs->given_up != NULL ? message : NULL; /* outlives the stage */
        *count = gpu->parameter_count(stage);
    }
    gpu->close(stage);
    network_free(w);
    return is_right;
}

static bool rounds_equal(const round_result *found, const round_result *expected, uint64_t count)
{
    for (uint32_t r = 0; r < ROUNDS; r++) {
        if (found[r].loss != expected[r].loss)
            return wrong("loss of round %u is %.17g, queued %.17g", r, found[r].loss,
                         expected[r].loss);
        if (memcmp(found[r].gradients, expected[r].gradients, count * sizeof(float)) != 0)
            return wrong("gradients of round %u differ", r);
        if (found[r].is_finite != expected[r].is_finite ||
            expected[r].is_finite != (r != OVERFLOW_ROUND))
            return wrong("round %u: an overflow %s", r, found[r].is_finite ? "is not seen" : "");
    }
    return true;
}

static void rounds_free(round_result *results)
{
    for (uint32_t r = 0; r < ROUNDS; r++)
        free(results[r].gradients);
}

/* 6 rounds of 4 passes. Slot and weight version distinguish the passes, so that the first two
 * rounds are queued and the rest are graphs. */
static bool case_overflow(void)
{
    round_result with[ROUNDS] = {0}, without[ROUNDS] = {0};
    ty_device_graphs on = {0}, off = {0};
    uint64_t count = 0;
    bool is_right = rounds_run("0", NULL, without, &off, &count) &&
                    rounds_run("1", NULL, with, &on, &count) && rounds_equal(with, without, count);

    if (is_right && (on.count != 8 || on.replays != 16 || on.queued != 8 || off.count != 0))
        is_right = wrong("%u graphs, %llu passes replayed and %llu queued; expected 8, 16 and 8",
                         (unsigned)on.count, (unsigned long long)on.replays,
                         (unsigned long long)on.queued);
    rounds_free(with);
    rounds_free(without);
    return is_right;
}

/* ---- Work that cannot be captured runs without graphs ---- */

typedef struct fault_case {
    const char *name, *fault;
    const char *told; /* in the reported reason */
} fault_case;

static const fault_case faults[] = {
    {"graphs given up, libraries that allocate", "allocate", "cublasLtMatmul"},
    {"graphs given up, no memory for them", "instantiate", "cudaGraphInstantiate"},
    {"graphs given up, none can be launched", "launch", "cudaGraphLaunch"},
};
enum { FAULTS = sizeof faults / sizeof *faults };

static bool case_fault(const fault_case *c)
{
    round_result with[ROUNDS] = {0}, without[ROUNDS] = {0};
    ty_device_graphs on = {0}, off = {0};
    uint64_t count = 0;
    bool is_right = rounds_run("0", NULL, without, &off, &count) &&
                    rounds_run("1", c->fault, with, &on, &count) &&
                    rounds_equal(with, without, count);

    if (is_right && (on.count != 0 || on.replays != 0 || on.queued != 4 * ROUNDS))
        is_right = wrong("%u graphs, %llu passes replayed and %llu queued; expected all queued",
                         (unsigned)on.count, (unsigned long long)on.replays,
                         (unsigned long long)on.queued);
    if (is_right && (on.given_up == NULL || strstr(on.given_up, c->told) == NULL))
        is_right = wrong("found the reason %.200s, expected one with %s",
                         on.given_up != NULL ? on.given_up : "none", c->told);
    rounds_free(with);
    rounds_free(without);
    return is_right;
}

/* The run's record reports it, and the results are the same. */
static bool case_fault_of_plan(void)
{
    const graph_case *c = &plans[0];
    outcome with = {0}, without = {0};
    graph_record record;
    bool is_right = run_with(c, "0", &without);

    setenv(FAULT, "allocate", 1);
    is_right = is_right && run_with(c, "1", &with);
    unsetenv(FAULT);
    unsetenv(SWITCH);
    is_right = is_right && outcomes_equal(&with, &without) && graph_record_read(with.run, &record);
    if (is_right && (record.graphs != 0 || !record.is_given_up))
        is_right = wrong("found %.300s", with.run->versions);
    outcome_free(&with);
    outcome_free(&without);
    return is_right;
}

/* Runs both with and without graphs, if the fault changes nothing else. */
static bool case_parallel_fault(const char *variable, const char *value, const graph_case *c)
{
    bool is_right;

    setenv(variable, value, 1);
    is_right = case_graphs(c);
    unsetenv(variable);
    return is_right;
}

/* A rank that fails to launch its graph ends the run on all ranks, since the others have launched
 * theirs. */
static bool case_parallel_launch(void)
{
    const graph_case c = {"graphs of lanes, one not launched", gpt_small, TWO_RANKS, NULL, 0, NULL};
    outcome out = {0};
    bool has_run;

    setenv(FAULT, "launch:1", 1);
    has_run = run_with(&c, "1", &out);
    unsetenv(FAULT);
    unsetenv(SWITCH);
    outcome_free(&out);
    return (!has_run && strstr(message, "cudaGraphLaunch") != NULL) ||
           wrong("found \"%.200s\", expected the launch that failed", message);
}

static void parallel_graphs_run(void)
{
    for (int i = 0; i < PARALLEL_PLANS; i++)
        if (is_asked(parallel_plans[i].name))
            report(parallel_plans[i].name, case_graphs(&parallel_plans[i]));
    for (int i = 0; i < PARALLEL_FAULTS; i++)
        if (is_asked(parallel_faults[i].plan.name))
            report(parallel_faults[i].plan.name,
                   case_parallel_fault(parallel_faults[i].variable, parallel_faults[i].value,
                                       &parallel_faults[i].plan));
    if (is_asked("graphs of lanes, one not launched"))
        report("graphs of lanes, one not launched", case_parallel_launch());
}

static bool case_switch(void)
{
    ty_workload *w = network_make_activations();
    ty_stage_options o = options_of(w, 2, TY_PRECISION_FP32);
    ty_stage_device *stage = NULL;
    ty_error error = {0};
    bool is_refused;

    setenv(SWITCH, "perhaps", 1);
    is_refused = gpu->open(&o, &stage, &error) == TY_EINVAL &&
                 strstr(error.message, SWITCH ": found \"perhaps\", expected 0 or 1") != NULL;
    unsetenv(SWITCH);
    if (!is_refused && stage != NULL)
        gpu->close(stage);
    network_free(w);
    return is_refused || wrong("found %.200s", error.message);
}

/* Only the emulator can inject faults. */
static bool is_emulated(void)
{
    ty_workload *w = network_make_activations();
    ty_stage_options o = options_of(w, 2, TY_PRECISION_FP32);
    ty_stage_device *stage = NULL;
    bool is_found =
        stage_open(gpu, &o, &stage) && strstr(gpu->memory->describe(stage), "emulated") != NULL;

    if (stage != NULL)
        gpu->close(stage);
    network_free(w);
    return is_found;
}

void graphs_run(void)
{
    for (int i = 0; i < PLANS; i++)
        if (is_asked(plans[i].name))
            report(plans[i].name, case_graphs(&plans[i]));
    if (is_asked("graphs of a stage, fp16, an overflow, two sets of weights"))
        report("graphs of a stage, fp16, an overflow, two sets of weights", case_overflow());
    if (is_asked("graphs switched"))
        report("graphs switched", case_switch());
    for (int i = 0; i < FAULTS; i++)
        if (is_asked(faults[i].name) && is_emulated())
            report(faults[i].name, case_fault(&faults[i]));
    if (is_asked("graphs given up, told by the run") && is_emulated())
        report("graphs given up, told by the run", case_fault_of_plan());
    if (getenv("TRAINYARD_EMULATED_DEVICES") != NULL)
        parallel_graphs_run();
}
