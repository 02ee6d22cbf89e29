/* Plans in which steps overlap, ranks hold several stages, backward comes in two parts, replicas
 * share what they keep or step alone; running statistics; runs that go on from a checkpoint. */
#include "gpu_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPT "gpt-tiny sequence=32", "gpt-tiny sequence=8"

/* Convolutions with batch norm between them. */
static const char batch_norm_small[] =
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"batch-norm-small\", \"family\": "
    "\"sequential\", \"source\": \"resnet18.json\", \"input\": [1, 28, 28], "
    "\"sample_bytes\": 785, \"dataset\": \"fashion-mnist\", \"global_batch\": 8, "
    "\"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.05, \"momentum\": 0.9, "
    "\"weight_decay\": 0}, \"layers\": ["
    "{\"kind\": \"conv2d\", \"out_channels\": 4, \"kernel\": 5, \"stride\": 3},"
    "{\"kind\": \"batch_norm\"}, {\"kind\": \"relu\"},"
    "{\"kind\": \"conv2d\", \"out_channels\": 6, \"kernel\": 3}, {\"kind\": \"batch_norm\"},"
    "{\"kind\": \"relu\"}, {\"kind\": \"flatten\"}, {\"kind\": \"linear\", "
    "\"out_features\": 10}, {\"kind\": \"softmax_cross_entropy\"}]}";

static const plan_case plans[] = {
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
    {"plan mlp, interleaved 2 x 2",
     "mlp",
     "mlp",
     {.schedule = TY_INTERLEAVED,
      .replicas = {1, 1, 1, 1},
      .cuts = {2, 4, 5},
      .buckets = 1,
      BATCH,
      .interleave = 2},
     EXACT},
    {"plan gpt, interleaved 2 x 2, data parallel 2, fp16",
     GPT,
     {.schedule = TY_INTERLEAVED,
      .replicas = {2, 2, 2, 2},
      .cuts = {7, 13, 19},
      .buckets = 1,
      BATCH,
      .interleave = 2},
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
    {"plan mlp, 2bw 2 stages",
     "mlp",
     "mlp",
     {.schedule = TY_PIPEDREAM_2BW, .replicas = {2, 1}, .cuts = {3}, .buckets = 1, BATCH},
     EXACT,
     true},
    {"plan gpt, pipedream 2 stages, bf16",
     GPT,
     {.schedule = TY_PIPEDREAM, .replicas = {1, 1}, .cuts = {13}, .buckets = 1, BATCH},
     "bf16",
     1e-1,
     3e-2,
     true},
    {"plan gpt, 2bw 2 stages, fp16",
     GPT,
     {.schedule = TY_PIPEDREAM_2BW, .replicas = {1, 1}, .cuts = {13}, .buckets = 1, BATCH},
     "fp16",
     3e-2,
     1e-2,
     true},
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
    {"plan lstm, zb-h1 2 stages",
     gnmt_small,
     gnmt_small,
     {.schedule = TY_ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {2}, .buckets = 1, BATCH},
     EXACT},
    {"plan gpt, zb-h1 3 stages, bf16",
     GPT,
     {.schedule = TY_ZERO_BUBBLE, .replicas = {1, 1, 1}, .cuts = {2, 13}, .buckets = 1, BATCH},
     "bf16",
     1e-1,
     3e-2},
    {"plan gpt, zb-h1 2 stages of 2 lanes along the sequence",
     GPT,
     {.schedule = TY_ZERO_BUBBLE,
      .replicas = {1, 1},
      .cuts = {13},
      .buckets = 1,
      BATCH,
      .lanes = 2,
      .divides_sequence = true},
     EXACT},
    {"plan mlp, local steps 2 of 3 replicas",
     "mlp",
     "mlp",
     {.replicas = {3}, .buckets = 2, .global_batch = 12, .micro_batch_size = 2, .local_steps = 2},
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
    {"plan mlp, ZeRO 1, 3 replicas",
     "mlp",
     "mlp",
     {.replicas = {3}, .buckets = 2, .global_batch = 12, .micro_batch_size = 2, .zero = 1},
     EXACT,
     true,
     2},
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
    {"plan mlp, ZeRO 2, data parallel 2, fp16 buckets",
     "mlp",
     "mlp",
     {.replicas = {2}, .buckets = 2, BATCH, .compression.kind = TY_COMPRESSION_FP16, .zero = 2},
     NULL,
     4e-3,
     1e-2},
    {"plan gpt, ZeRO 1, data parallel 2, 2 lanes along the sequence",
     GPT,
     {.replicas = {2}, .buckets = 2, BATCH, .lanes = 2, .divides_sequence = true, .zero = 1},
     EXACT},
};
enum { PLANS = sizeof plans / sizeof *plans };

/* ---- Runs that go on from a checkpoint: bit for bit those that were never cut ---- */

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
    {.name = "checkpoint batch norm, data parallel 2",
     .workload = batch_norm_small,
     .shape = {.replicas = {2}, .buckets = 1, BATCH},
     .evaluate_every = CUT_STEPS},
    {.name = "checkpoint mlp, pipedream 2 stages",
     .workload = "mlp",
     .shape = {.schedule = TY_PIPEDREAM, .replicas = {1, 1}, .cuts = {3}, .buckets = 1, BATCH}},
    {.name = "checkpoint gpt, 2bw 2 stages, bf16",
     .workload = "gpt-tiny sequence=8",
     .shape = {.schedule = TY_PIPEDREAM_2BW, .replicas = {1, 1}, .cuts = {13}, .buckets = 1, BATCH},
     .precision = "bf16"},
    {.name = "checkpoint gpt, ZeRO 3, data parallel 2, bf16",
     .workload = "gpt-tiny sequence=8",
     .shape = {.replicas = {2}, .buckets = 3, BATCH, .zero = 3},
     .precision = "bf16"},
    {.name = "checkpoint mlp, local steps 2",
     .workload = "mlp",
     .shape = {.replicas = {2}, .buckets = 2, BATCH, .local_steps = 2}},
    {.name = "checkpoint gpt, interleaved 2 x 2, fp16",
     .workload = "gpt-tiny sequence=8",
     .shape = {.schedule = TY_INTERLEAVED,
               .replicas = {1, 1, 1, 1},
               .cuts = {7, 13, 19},
               .buckets = 1,
               BATCH,
               .interleave = 2},
     .precision = "fp16"},
};
enum { CHECKPOINTS = sizeof checkpoints / sizeof *checkpoints };

/* Saves after every CUT_STEPS. */
static bool part_run(const plan_case *c, const char *directory, uint32_t steps, bool resume,
                     ty_run **out)
{
    char path[4096], state[4096];
    plan_shape shape = c->shape;
    ty_error error = {0};
    ty_job *job;
    bool is_right;

    shape.name = c->name;
    snprintf(path, sizeof path, "%s/workload.json", directory);
    snprintf(state, sizeof state, "%s/state", directory);
    if (c->workload[0] == '{' &&
        ty_file_write(path, c->workload, strlen(c->workload), &error) != TY_OK)
        return wrong("%s", error.message);
    job = make_job(make_plan(c->workload[0] == '{' ? path : c->workload, &shape), steps, directory);
    ty_free(job->backend);
    ty_free(job->gradients); /* saving them would end a stretch */
    job->gradients = NULL;
    job->backend = ty_strdup("cuda");
    job->precision = ty_strdup(c->precision);
    job->checkpoint = ty_strdup(state);
    job->checkpoint_every = CUT_STEPS;
    job->resume = resume;
    job->evaluate_every = c->evaluate_every;
    job->until.accuracy = c->evaluate_every > 0 ? 1 : 0; /* never reached */
    is_right = ty_execute_job_locally(job, ty_plan_process_count(job->plan),
                                      &(ty_execute_options){0}, &error) == TY_OK &&
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

static bool case_checkpoint(const plan_case *c)
{
    char *whole = directory_make(), *cut = directory_make();
    ty_run *expected = NULL, *first = NULL, *found = NULL;
    bool is_right = part_run(c, whole, WHOLE_STEPS, false, &expected) &&
                    part_run(c, cut, CUT_STEPS, false, &first) &&
                    part_run(c, cut, WHOLE_STEPS, true, &found);

    for (uint32_t i = 0; is_right && i < WHOLE_STEPS; i++)
        if (found->losses[i] != expected->losses[i])
            is_right = wrong("loss of step %u is %.17g, expected %.17g", i, found->losses[i],
                             expected->losses[i]);
    if (is_right && c->evaluate_every > 0 &&
        found->evaluations[found->evaluation_count - 1].loss !=
            expected->evaluations[expected->evaluation_count - 1].loss)
        is_right = wrong("test losses differ");
    ty_run_free(expected);
    ty_run_free(first);
    ty_run_free(found);
    state_remove(whole);
    state_remove(cut);
    return is_right;
}

void schedules_run(void)
{
    for (int i = 0; i < PLANS; i++)
        if (is_asked(plans[i].name))
            report(plans[i].name, case_plan(&plans[i]));
    for (int i = 0; i < CHECKPOINTS; i++)
        if (is_asked(checkpoints[i].name))
            report(checkpoints[i].name, case_checkpoint(&checkpoints[i]));
}
