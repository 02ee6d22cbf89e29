/* Plans with overlapping steps, virtual stages, a backward pass in two parts, sharded state, local
 * steps, or stale gradients; running statistics; runs resumed from a checkpoint. */
#include "../execute/emulation.h"
#include "gpu_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPT "gpt-tiny sequence=32", "gpt-tiny sequence=8"

/* Convolutions followed by batch norm, the second one in a residual block. */
const char batch_norm_small[] =
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"batch-norm-small\", \"family\": "
    "\"sequential\", \"source\": \"resnet18.json\", \"input\": [1, 28, 28], "
    "\"sample_bytes\": 785, \"dataset\": \"fashion-mnist\", \"global_batch\": 8, "
    "\"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.05, \"momentum\": 0.9, "
    "\"weight_decay\": 0}, \"layers\": ["
    "{\"kind\": \"conv2d\", \"out_channels\": 4, \"kernel\": 5, \"stride\": 3},"
    "{\"kind\": \"batch_norm\"}, {\"kind\": \"relu\"},"
    "{\"branches\": [[], [{\"kind\": \"conv2d\", \"out_channels\": 4, \"kernel\": 3, "
    "\"padding\": 1}, {\"kind\": \"batch_norm\"}]], \"join\": \"add\"},"
    "{\"kind\": \"relu\"}, {\"kind\": \"flatten\"}, {\"kind\": \"linear\", "
    "\"out_features\": 10}, {\"kind\": \"softmax_cross_entropy\"}]}";

/* Norms of every head's queries and keys, as in Qwen3. */
#define QWEN                                                                                       \
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"qwen-tiny\", \"family\": \"decoder\","          \
    "\"source\": \"qwen3-8b.json\", \"blocks\": 2, \"features\": 16, \"heads\": 4,"                \
    "\"kv_heads\": 2, \"head_size\": 6, \"has_qk_norm\": true, \"hidden_features\": 24,"           \
    "\"vocabulary\": 34, \"sequence\": 8, \"longest_sequence\": 8, \"token_bytes\": 1,"            \
    "\"dataset\": \"synthetic\", \"global_batch\": 8, \"optimizer\": {\"kind\": \"sgd\","          \
    "\"learning_rate\": 0.1, \"momentum\": 0.9, \"weight_decay\": 0}}"

/* Both directions of a sequence in parallel, then one. */
#define BOTH_WAYS                                                                                  \
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"both-ways\", \"family\": \"sequential\","       \
    "\"source\": \"gnmt-8.json\", \"sequence\": 6, \"token_bytes\": 4, \"dataset\": "              \
    "\"synthetic\", \"global_batch\": 8, \"optimizer\": {\"kind\": \"sgd\","                       \
    "\"learning_rate\": 0.1, \"momentum\": 0.9, \"weight_decay\": 0}, \"layers\": ["               \
    "{\"kind\": \"embedding\", \"vocabulary\": 64, \"features\": 12},"                             \
    "{\"branches\": [[{\"kind\": \"lstm\", \"hidden_features\": 10}],"                             \
    "[{\"kind\": \"lstm\", \"hidden_features\": 10, \"is_reversed\": true}]],"                     \
    "\"join\": \"concat_features\"}, {\"kind\": \"lstm\", \"hidden_features\": 12},"               \
    "{\"kind\": \"linear\", \"out_features\": 64}, {\"kind\": \"softmax_cross_entropy\"}]}"

/* Two sequences in one batch, relative position biases, as in T5. */
#define T5                                                                                         \
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"t5-tiny\", \"family\": "                        \
    "\"encoder_decoder\", \"source\": \"t5-small.json\", \"blocks\": 1, \"decoder_blocks\": 1,"    \
    "\"features\": 16, \"heads\": 2, \"head_size\": 8, \"hidden_features\": 24,"                   \
    "\"relative_buckets\": 8, \"vocabulary\": 34, \"sequence\": 12, \"decoder_sequence\": 7,"      \
    "\"longest_sequence\": 12, \"token_bytes\": 1, \"dataset\": \"synthetic\", \"global_batch\": " \
    "8,"                                                                                           \
    "\"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.1, \"momentum\": 0.9,"                \
    "\"weight_decay\": 0}}"

/* Two sequences in one batch; the second attends to the first with additive scores (tanh). */
#define ADDITIVE                                                                                   \
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"additive\", \"family\": \"sequential\","        \
    "\"source\": \"gnmt-8.json\", \"sequence\": 9, \"token_bytes\": 4, \"dataset\": "              \
    "\"synthetic\", \"global_batch\": 8, \"optimizer\": {\"kind\": \"sgd\","                       \
    "\"learning_rate\": 0.1, \"momentum\": 0.9, \"weight_decay\": 0}, \"layers\": ["               \
    "{\"kind\": \"embedding\", \"vocabulary\": 64, \"features\": 12}, {\"label\": \"batch\"},"     \
    "{\"kind\": \"slice\", \"rows\": 5}, {\"kind\": \"lstm\", \"hidden_features\": 10},"           \
    "{\"label\": \"encoded\"}, {\"from\": \"batch\"},"                                             \
    "{\"kind\": \"slice\", \"first_row\": 5, \"rows\": 4},"                                        \
    "{\"kind\": \"additive_attention\", \"memory\": \"encoded\", \"hidden_features\": 7},"         \
    "{\"kind\": \"linear\", \"out_features\": 64}, {\"kind\": \"softmax_cross_entropy\"}]}"

static const plan_case plans[] = {
    {"plan mixture, data parallel 2, ZeRO 2",
     MIXTURE,
     MIXTURE,
     {.replicas = {2}, .buckets = 2, BATCH, .zero = 2},
     EXACT},
    {"plan mixture, 1f1b 2+1, recompute",
     MIXTURE,
     MIXTURE,
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {2, 1},
      .cuts = {7},
      .buckets = 2,
      BATCH,
      .recompute = TY_RECOMPUTE_FULL},
     EXACT},
    {"plan mixture, zb-h1 2 stages",
     MIXTURE,
     MIXTURE,
     {.schedule = TY_ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {6}, .buckets = 1, BATCH},
     EXACT},
    {"plan mixture, 2 lanes of 2 experts",
     MIXTURE,
     MIXTURE,
     {.replicas = {1}, .buckets = 2, .global_batch = 8, .micro_batch_size = 4, .experts = 2},
     EXACT},
    {"plan mixture, data parallel 2, 4 lanes of an expert, bf16",
     MIXTURE,
     MIXTURE,
     {.replicas = {2}, .buckets = 2, .global_batch = 8, .micro_batch_size = 4, .experts = 4},
     "bf16",
     1e-1,
     3e-2},
    {"plan mixture, 1f1b 2+1 of 2 lanes of experts, recompute",
     MIXTURE,
     MIXTURE,
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {2, 1},
      .cuts = {7},
      .buckets = 2,
      BATCH,
      .experts = 2,
      .recompute = TY_RECOMPUTE_FULL},
     EXACT},
    {"plan mixture, zb-h1 2 stages of 2 lanes of experts",
     MIXTURE,
     MIXTURE,
     {.schedule = TY_ZERO_BUBBLE,
      .replicas = {1, 1},
      .cuts = {6},
      .buckets = 1,
      BATCH,
      .experts = 2},
     EXACT},
    {"plan mixture, interleaved 2 x 2 of 2 lanes of experts, fp16",
     MIXTURE,
     MIXTURE,
     {.schedule = TY_INTERLEAVED,
      .replicas = {1, 1, 1, 1},
      .cuts = {4, 7, 10},
      .buckets = 1,
      BATCH,
      .virtual_stages = 2,
      .experts = 2},
     "fp16",
     3e-2,
     1e-2},
    {"plan mixture, ZeRO 3, data parallel 2, 2 lanes of experts, 2 contexts, one micro-batch",
     MIXTURE,
     MIXTURE,
     {.replicas = {2},
      .buckets = 3,
      .global_batch = 8,
      .micro_batch_size = 4,
      .zero = 3,
      .contexts = 2,
      .experts = 2},
     EXACT},
    {"plan mixture, 2 contexts",
     MIXTURE,
     MIXTURE,
     {.replicas = {1}, .buckets = 1, BATCH, .contexts = 2},
     EXACT},
    {"plan t5, 1f1b 2+1",
     T5,
     T5,
     {.schedule = TY_ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {12}, .buckets = 2, BATCH},
     EXACT},
    {"plan t5, zb-h1 2 stages",
     T5,
     T5,
     {.schedule = TY_ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {12}, .buckets = 1, BATCH},
     EXACT},
    {"plan t5, 2 lanes", T5, T5, {.replicas = {1}, .buckets = 2, BATCH, .tp = 2}, EXACT},
    {"plan additive, zb-h1 2 stages",
     ADDITIVE,
     ADDITIVE,
     {.schedule = TY_ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {3}, .buckets = 1, BATCH},
     EXACT},
    {"plan normed heads, zb-h1 2 stages",
     QWEN,
     QWEN,
     {.schedule = TY_ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {7}, .buckets = 1, BATCH},
     EXACT},
    {"plan normed heads, data parallel 2, 2 contexts",
     QWEN,
     QWEN,
     {.replicas = {2}, .buckets = 2, BATCH, .contexts = 2},
     EXACT},
    {"plan both ways, zb-h1 2 stages",
     BOTH_WAYS,
     BOTH_WAYS,
     {.schedule = TY_ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {2}, .buckets = 1, BATCH},
     EXACT},
    {"plan batch norm, data parallel 2, evaluated",
     batch_norm_small,
     batch_norm_small,
     {.replicas = {2}, .buckets = 2, BATCH},
     EXACT,
     true,
     2},
    {"plan batch norm, 1f1b 2 stages, recompute, evaluated",
     batch_norm_small,
     batch_norm_small,
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {1, 1},
      .cuts = {3},
      .buckets = 1,
      BATCH,
      .recompute = TY_RECOMPUTE_FULL},
     EXACT,
     true,
     2},
    {"plan mlp, interleaved 2 x 2", "mlp", "mlp", {MLP_INTERLEAVED}, EXACT},
    {"plan gpt, interleaved 2 x 2, data parallel 2, fp16",
     GPT,
     {GPT_INTERLEAVED_TWICE},
     "fp16",
     3e-2,
     1e-2},
    {"plan mlp, pipedream 3 stages, evaluated",
     "mlp",
     "mlp",
     {.schedule = TY_PIPEDREAM,
      .replicas = {1, 1, 1},
      .cuts = {2, 4},
      .buckets = 1,
      .global_batch = 8,
      .micro_batch_size = 4},
     EXACT,
     true,
     2},
    {"plan mlp, 2bw 2 stages", "mlp", "mlp", {MLP_2BW}, EXACT, true},
    {"plan gpt, pipedream 2 stages, bf16",
     GPT,
     {.schedule = TY_PIPEDREAM, .replicas = {1, 1}, .cuts = {13}, .buckets = 1, BATCH},
     "bf16",
     1e-1,
     3e-2,
     true},
    {"plan gpt, 2bw 2 stages, fp16", GPT, {GPT_2BW}, "fp16", 3e-2, 1e-2, true},
    {"plan lenet, zb-h1 2 stages",
     "lenet",
     "lenet",
     {.schedule = TY_ZERO_BUBBLE, .replicas = {2, 1}, .cuts = {5}, .buckets = 2, BATCH},
     EXACT},
    {"plan batch norm, zb-h1 2 stages, evaluated",
     batch_norm_small,
     batch_norm_small,
     {.schedule = TY_ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {3}, .buckets = 1, BATCH},
     EXACT,
     true,
     2},
    {"plan lenet, zb-2p 3 stages",
     "lenet",
     "lenet",
     {.schedule = TY_ZERO_BUBBLE_2P, .replicas = {1, 1, 1}, .cuts = {2, 5}, .buckets = 1, BATCH},
     EXACT},
    {"plan lstm, zb-h1 2 stages", gnmt_small, gnmt_small, {LSTM_ZERO_BUBBLE}, EXACT},
    {"plan gpt, zb-h1 3 stages, bf16",
     GPT,
     {.schedule = TY_ZERO_BUBBLE, .replicas = {1, 1, 1}, .cuts = {2, 13}, .buckets = 1, BATCH},
     "bf16",
     1e-1,
     3e-2},
    {"plan gpt, zb-h1 2 stages of 2 lanes along the sequence",
     GPT,
     {GPT_ZERO_BUBBLE, .tp = 2, .divides_sequence = true},
     EXACT},
    {"plan mlp, local steps 2 of 3 replicas",
     "mlp",
     "mlp",
     {THREE_REPLICAS, .local_steps = 2},
     EXACT,
     true},
    {"plan mlp, local steps 2, 1f1b 2 stages, bf16",
     "mlp",
     "mlp",
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {2, 2},
      .cuts = {3},
      .buckets = 2,
      .global_batch = 16,
      .micro_batch_size = 2,
      .local_steps = 2},
     "bf16",
     1e-1,
     3e-2,
     true},
    {"plan mlp, ZeRO 1, 3 replicas", "mlp", "mlp", {THREE_REPLICAS, .zero = 1}, EXACT, true, 2},
    {"plan gpt, ZeRO 2, 1f1b 2 stages, bf16",
     GPT,
     {.schedule = TY_ONE_F_ONE_B, .replicas = {2, 2}, .cuts = {13}, .buckets = 2, BATCH, .zero = 2},
     "bf16",
     1e-1,
     3e-2},
    {"plan gpt, ZeRO 3, data parallel 2, recompute",
     GPT,
     {.replicas = {2}, .buckets = 3, BATCH, .zero = 3, .recompute = TY_RECOMPUTE_FULL},
     EXACT},
    {"plan gpt, ZeRO 3, data parallel 2, fp16",
     GPT,
     {.replicas = {2}, .buckets = 3, BATCH, .zero = 3},
     "fp16",
     3e-2,
     1e-2},
    /* One micro-batch per replica: the device also has shards and gradient buffers. */
    {"plan mlp, ZeRO 3, 3 replicas of one micro-batch, evaluated",
     "mlp",
     mlp_small,
     {.replicas = {3}, .buckets = 3, .global_batch = 12, .micro_batch_size = 4, .zero = 3},
     EXACT,
     true,
     2},
    {"plan gpt, ZeRO 2, data parallel 2, one micro-batch, fp16",
     GPT,
     {.replicas = {2}, .buckets = 6, .global_batch = 8, .micro_batch_size = 4, .zero = 2},
     "fp16",
     3e-2,
     1e-2},
    {"plan gpt, ZeRO 3, data parallel 2, one micro-batch, recompute",
     GPT,
     {.replicas = {2},
      .buckets = 6,
      .global_batch = 8,
      .micro_batch_size = 4,
      .zero = 3,
      .recompute = TY_RECOMPUTE_FULL},
     EXACT},
    {"plan gpt, ZeRO 3, interleaved 2 x 2, data parallel 2",
     GPT,
     {GPT_INTERLEAVED_TWICE, .zero = 3},
     EXACT},
    {"plan gpt, ZeRO 3, data parallel 2, 2 lanes along the sequence, one micro-batch",
     GPT,
     {.replicas = {2},
      .buckets = 4,
      .global_batch = 8,
      .micro_batch_size = 4,
      .tp = 2,
      .divides_sequence = true,
      .zero = 3},
     EXACT},
    {"plan mixture, ZeRO 3, 1f1b 2+2, one micro-batch",
     MIXTURE,
     MIXTURE,
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {2, 2},
      .cuts = {7},
      .buckets = 2,
      .global_batch = 8,
      .micro_batch_size = 4,
      .zero = 3},
     EXACT},
    {"plan mlp, ZeRO 3, one micro-batch, random-k",
     "mlp",
     mlp_small,
     {.replicas = {2},
      .buckets = 3,
      .global_batch = 8,
      .micro_batch_size = 4,
      .compression = {.kind = TY_COMPRESSION_RANDOM_K, .ratio = 0.25},
      .zero = 3},
     NULL,
     1e-4,
     1e-3,
     true},
    {"plan mlp, ZeRO 2, data parallel 2, fp16 buckets",
     "mlp",
     "mlp",
     {.replicas = {2}, .buckets = 2, BATCH, .compression.kind = TY_COMPRESSION_FP16, .zero = 2},
     NULL,
     4e-3,
     1e-2},
    {"plan gpt, ZeRO 1, data parallel 2, 2 lanes along the sequence",
     GPT,
     {.replicas = {2}, .buckets = 2, BATCH, .tp = 2, .divides_sequence = true, .zero = 1},
     EXACT},
    {"plan gpt, ZeRO 2, 2 contexts",
     GPT,
     {.replicas = {1}, .buckets = 2, BATCH, .zero = 2, .contexts = 2},
     EXACT},
    {"plan gpt, ZeRO 3, data parallel 2, 2 contexts, fp16",
     GPT,
     {.replicas = {2}, .buckets = 2, BATCH, .zero = 3, .contexts = 2},
     "fp16",
     3e-2,
     1e-2},
    {"plan gpt, zb-h1 2 stages of 2 contexts", GPT, {GPT_ZERO_BUBBLE, .contexts = 2}, EXACT},
    {"plan gpt, interleaved 2 x 2 of 2 contexts, bf16",
     GPT,
     {GPT_INTERLEAVED, .contexts = 2},
     "bf16",
     1e-1,
     3e-2},
};
enum { PLANS = sizeof plans / sizeof *plans };

/* ---- Stale gradients ---- */

#define CLOSE NULL, 0, 1e-4
static const plan_case late[] = {
    {"late mlp, data parallel 2, a step",
     "mlp",
     "mlp",
     {.replicas = {2}, .buckets = 3, BATCH, .staleness = 1},
     CLOSE},
    {"late gpt, 1f1b 2+2, 2 steps, bf16",
     GPT,
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {2, 2},
      .cuts = {13},
      .buckets = 2,
      BATCH,
      .staleness = 2},
     "bf16",
     0,
     3e-2},
    {"late mlp, zb-h1 2+2, 2 steps, all of top-k",
     "mlp",
     "mlp",
     {.schedule = TY_ZERO_BUBBLE,
      .replicas = {2, 2},
      .cuts = {3},
      .buckets = 2,
      BATCH,
      .compression = {.kind = TY_COMPRESSION_TOP_K, .ratio = 1},
      .staleness = 2},
     CLOSE},
    {"late gpt, interleaved 2 x 2, data parallel 2, a step, fp16",
     GPT,
     {GPT_INTERLEAVED_TWICE, .staleness = 1},
     "fp16",
     0,
     1e-2},
    {"late gpt, gpipe 1+2, recompute, 3 steps",
     GPT,
     {.schedule = TY_GPIPE,
      .replicas = {1, 2},
      .cuts = {13},
      .buckets = 1,
      BATCH,
      .recompute = TY_RECOMPUTE_FULL,
      .staleness = 3},
     CLOSE},
    {"late gpt, data parallel 2, 2 lanes along the sequence, a step",
     GPT,
     {.replicas = {2}, .buckets = 2, BATCH, .staleness = 1, .tp = 2, .divides_sequence = true},
     CLOSE},
    {"late gpt, data parallel 2, 2 contexts, a step",
     GPT,
     {.replicas = {2}, .buckets = 2, BATCH, .staleness = 1, .contexts = 2},
     CLOSE},
};
enum { LATE_PLANS = sizeof late / sizeof *late, LATE_STEPS = 6 };

/* A run without interruption: saving gradients would end it early and is not requested. */
static bool stretch_run(ty_job *job, const char *backend, const char *precision, ty_run **out)
{
    ty_error error = {0};

    ty_free(job->backend);
    ty_free(job->precision);
    ty_free(job->gradients);
    job->gradients = NULL;
    job->backend = ty_strdup(backend);
    job->precision = ty_strdup(precision);
    return (ty_execute_job_locally(job, ty_plan_rank_count(job->plan), &(ty_execute_options){0},
                                   &error) == TY_OK &&
            ty_run_load(job->output, out, &error) == TY_OK) ||
           wrong("%s: %s", backend, error.message);
}

static bool losses_compare(const char *of, const double *found, const double *expected,
                           double tolerance)
{
    for (uint32_t t = 0; t < LATE_STEPS; t++)
        if (!(fabs(found[t] - expected[t]) <= tolerance * fabs(expected[t])))
            return wrong("loss of step %u is %.7g, %s has %.7g", t, found[t], of, expected[t]);
    return true;
}

/* Whether the emulation would detect synchronous gradients. */
static bool lateness_shows(ty_job *job, const double *expected, double tolerance)
{
    const uint32_t staleness = job->plan->staleness;
    double fresh[LATE_STEPS], difference = 0;

    job->plan->staleness = 0;
    emulate_job(job, fresh);
    job->plan->staleness = staleness;
    for (uint32_t t = 0; t < LATE_STEPS; t++)
        difference = fmax(difference, fabs(fresh[t] - expected[t]) / expected[t]);
    return difference > 2 * tolerance || wrong("not late at all, by %g", difference);
}

/* Against one process that delays its gradients the same way, and against the CPU backend. */
static bool case_late(const plan_case *c)
{
    char *directory = directory_make();
    plan_shape shape = c->shape;
    double emulated[LATE_STEPS];
    ty_run *found = NULL, *beside = NULL;
    ty_job *job;
    bool is_right;

    shape.name = c->name;
    job = make_job(make_plan(is_quick ? c->quick_workload : c->workload, &shape), LATE_STEPS,
                   directory);
    emulate_job(job, emulated);
    is_right = (c->precision != NULL || lateness_shows(job, emulated, c->loss_tolerance)) &&
               stretch_run(job, "cuda", c->precision, &found) &&
               losses_compare("the emulation", found->losses, emulated, c->loss_tolerance) &&
               stretch_run(job, "cpu", NULL, &beside) &&
               losses_compare("the CPU backend", found->losses, beside->losses, c->loss_tolerance);
    ty_run_free(found);
    ty_run_free(beside);
    ty_job_free(job);
    directory_remove(directory);
    return is_right;
}

/* ---- Runs resumed from a checkpoint: bit for bit those without interruption ---- */

enum { WHOLE_STEPS = 4, CUT_STEPS = 2 };

static const plan_case checkpoints[] = {
    {.name = "checkpoint mlp, one rank",
     .workload = "mlp",
     .shape = {.replicas = {1}, .buckets = 2, BATCH}},
    {.name = "checkpoint mlp, data parallel 2, top-k",
     .workload = "mlp",
     .shape = {.replicas = {2},
               .buckets = 2,
               BATCH,
               .compression = {.kind = TY_COMPRESSION_TOP_K, .ratio = 0.1}}},
    {.name = "checkpoint small mlp, data parallel 2, dgc",
     .workload = mlp_small,
     .shape = {.replicas = {2},
               .buckets = 2,
               BATCH,
               .compression = {.kind = TY_COMPRESSION_DGC, .ratio = 0.05, .warmup_steps = 3}}},
    {.name = "checkpoint small mlp, data parallel 2, one-bit",
     .workload = mlp_small,
     .shape = {.replicas = {2}, .buckets = 2, BATCH, .compression.kind = TY_COMPRESSION_ONE_BIT}},
    {.name = "checkpoint small mlp, data parallel 2, powersgd",
     .workload = mlp_small,
     .shape = {.replicas = {2},
               .buckets = 2,
               BATCH,
               .compression = {.kind = TY_COMPRESSION_POWERSGD, .rank = 2}}},
    {.name = "checkpoint batch norm, data parallel 2",
     .workload = batch_norm_small,
     .shape = {.replicas = {2}, .buckets = 1, BATCH},
     .evaluate_every = CUT_STEPS},
    {.name = "checkpoint mlp, pipedream 2 stages",
     .workload = "mlp",
     .shape = {.schedule = TY_PIPEDREAM, .replicas = {1, 1}, .cuts = {3}, .buckets = 1, BATCH}},
    {.name = "checkpoint gpt, 2bw 2 stages, bf16",
     .workload = "gpt-tiny sequence=8",
     .shape = {GPT_2BW},
     .precision = "bf16"},
    {.name = "checkpoint gpt, ZeRO 3, data parallel 2, bf16",
     .workload = "gpt-tiny sequence=8",
     .shape = {.replicas = {2}, .buckets = 3, BATCH, .zero = 3},
     .precision = "bf16"},
    {.name = "checkpoint gpt, ZeRO 3, data parallel 2, one micro-batch, fp16",
     .workload = "gpt-tiny sequence=8",
     .shape = {.replicas = {2}, .buckets = 4, .global_batch = 8, .micro_batch_size = 4, .zero = 3},
     .precision = "fp16"},
    {.name = "checkpoint mixture, ZeRO 1, 2 lanes of experts, bf16",
     .workload = MIXTURE,
     .shape = {.replicas = {1}, .buckets = 2, BATCH, .zero = 1, .experts = 2},
     .precision = "bf16"},
    {.name = "checkpoint small mlp, data parallel 2, a step late, top-k",
     .workload = mlp_small,
     .shape = {.replicas = {2},
               .buckets = 2,
               BATCH,
               .compression = {.kind = TY_COMPRESSION_TOP_K, .ratio = 0.1},
               .staleness = 1}},
    {.name = "checkpoint gpt, 1f1b 2+1 of 2 contexts, 2 steps late, fp16",
     .workload = "gpt-tiny sequence=8",
     .shape = {.schedule = TY_ONE_F_ONE_B,
               .replicas = {2, 1},
               .cuts = {13},
               .buckets = 1,
               BATCH,
               .staleness = 2,
               .contexts = 2},
     .precision = "fp16"},
    {.name = "checkpoint gpt, ZeRO 1, 2 contexts, bf16",
     .workload = "gpt-tiny sequence=8",
     .shape = {.replicas = {1}, .buckets = 2, BATCH, .zero = 1, .contexts = 2},
     .precision = "bf16"},
    {.name = "checkpoint mlp, local steps 2",
     .workload = "mlp",
     .shape = {.replicas = {2}, .buckets = 2, BATCH, .local_steps = 2}},
    {.name = "checkpoint gpt, interleaved 2 x 2, fp16",
     .workload = "gpt-tiny sequence=8",
     .shape = {GPT_INTERLEAVED},
     .precision = "fp16"},
};
enum { CHECKPOINTS = sizeof checkpoints / sizeof *checkpoints };

/* A run, or a part of one, on a backend. */
typedef struct leg {
    const plan_case *plan;
    const char *backend;
} leg;

static bool part_run(const leg *l, const char *directory, uint32_t every, uint32_t steps,
                     bool resume, ty_run **out)
{
    const plan_case *c = l->plan;
    char state[4096];
    plan_shape shape = c->shape;
    ty_error error = {0};
    ty_job *job;
    bool is_right;

    shape.name = c->name;
    snprintf(state, sizeof state, "%s/state", directory);
    job = make_job(make_plan(c->workload, &shape), steps, directory);
    ty_free(job->backend);
    ty_free(job->gradients); /* saving them would force a checkpoint interval */
    job->gradients = NULL;
    job->backend = ty_strdup(l->backend);
    job->precision = ty_strdup(c->precision);
    job->checkpoint = ty_strdup(state);
    job->checkpoint_every = every;
    job->resume = resume;
    job->deterministic = true;
    job->evaluate_every = c->evaluate_every;
    job->until.accuracy = c->evaluate_every > 0 ? 1 : 0; /* never reached */
    is_right = ty_execute_job_locally(job, ty_plan_rank_count(job->plan), &(ty_execute_options){0},
                                      &error) == TY_OK &&
               ty_run_load(job->output, out, &error) == TY_OK;
    ty_job_free(job);
    return is_right || wrong("%s", error.message);
}

static void state_remove(char *directory)
{
    char command[4200];

    snprintf(command, sizeof command, "rm -rf '%s/state'", directory);
    if (system(command) != 0)
        printf("note %s/state is left\n", directory);
    directory_remove(directory);
}

/* Losses of all steps; the first ones may be from another run. */
static bool runs_equal(const ty_run *found, const ty_run *expected, double tolerance)
{
    for (uint32_t i = 0; i < WHOLE_STEPS; i++)
        if (!(fabs(found->losses[i] - expected->losses[i]) <= tolerance * expected->losses[i]))
            return wrong("loss of step %u is %.17g, expected %.17g", i, found->losses[i],
                         expected->losses[i]);
    if (expected->evaluation_count > 0 &&
        found->evaluations[found->evaluation_count - 1].loss !=
            expected->evaluations[expected->evaluation_count - 1].loss)
        return wrong("test losses differ");
    return true;
}

/* One run of all steps, and one run of some of them that another one continues. */
static bool case_goes_on(leg of_whole, leg of_first, leg of_rest, uint32_t every, double tolerance)
{
    char *whole = directory_make(), *cut = directory_make();
    ty_run *expected = NULL, *first = NULL, *found = NULL;
    const bool is_right = part_run(&of_whole, whole, every, WHOLE_STEPS, false, &expected) &&
                          part_run(&of_first, cut, every, CUT_STEPS, false, &first) &&
                          part_run(&of_rest, cut, every, WHOLE_STEPS, true, &found) &&
                          runs_equal(found, expected, tolerance);

    ty_run_free(expected);
    ty_run_free(first);
    ty_run_free(found);
    state_remove(whole);
    state_remove(cut);
    return is_right;
}

/* A checkpoint has no pending updates: with one after every step, the staleness, and a change of
 * it, has no effect. */
static bool case_other_staleness(void)
{
    plan_case in_time = {.name = "gradients in time",
                         .workload = "gpt-tiny sequence=8",
                         .shape = {.replicas = {2}, .buckets = 2, BATCH},
                         .precision = "fp16"};
    plan_case late_by_one = in_time, late_by_two = in_time;

    late_by_one.shape.staleness = 1;
    late_by_two.shape.staleness = 2;
    return case_goes_on((leg){&in_time, "cuda"}, (leg){&late_by_one, "cuda"},
                        (leg){&late_by_two, "cuda"}, 1, 0);
}

static bool case_alike(const plan_case *c)
{
    const leg own = {c, "cuda"};

    return case_goes_on(own, own, own, CUT_STEPS, 0);
}

/* Each backend resumes from the other's checkpoint, with compressors and all state. */
static bool case_other_backend(void)
{
    static const plan_case changing[] = {
        {.name = "dgc",
         .workload = mlp_small,
         .shape = {.replicas = {2},
                   .buckets = 2,
                   BATCH,
                   .compression = {.kind = TY_COMPRESSION_DGC, .ratio = 0.05}}},
        {.name = "powersgd",
         .workload = mlp_small,
         .shape = {.replicas = {2},
                   .buckets = 2,
                   BATCH,
                   .compression = {.kind = TY_COMPRESSION_POWERSGD, .rank = 2}}},
        {.name = "int8",
         .workload = mlp_small,
         .shape = {.replicas = {2}, .buckets = 2, BATCH, .compression.kind = TY_COMPRESSION_INT8}},
    };
    bool is_right = true;

    for (size_t i = 0; i < sizeof changing / sizeof *changing && is_right; i++) {
        const leg on_cpu = {&changing[i], "cpu"}, on_gpu = {&changing[i], "cuda"};
        is_right = case_goes_on(on_cpu, on_cpu, on_gpu, CUT_STEPS, 1e-3) &&
                   case_goes_on(on_gpu, on_gpu, on_cpu, CUT_STEPS, 1e-3);
    }
    return is_right;
}

void schedules_run(void)
{
    if (is_asked("checkpoint of another backend"))
        report("checkpoint of another backend", case_other_backend());
    for (int i = 0; i < PLANS; i++)
        if (is_asked(plans[i].name))
            report(plans[i].name, case_plan(&plans[i]));
    for (int i = 0; i < LATE_PLANS; i++)
        if (is_asked(late[i].name))
            report(late[i].name, case_late(&late[i]));
    for (int i = 0; i < CHECKPOINTS; i++)
        if (is_asked(checkpoints[i].name))
            report(checkpoints[i].name, case_alike(&checkpoints[i]));
    if (is_asked("checkpoint gpt, another staleness, fp16"))
        report("checkpoint gpt, another staleness, fp16", case_other_staleness());
}
