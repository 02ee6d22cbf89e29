/* Plans: virtual ranks on one GPU against one CPU rank, and plans that are refused with the
 * reason. */
#include "gpu_cases.h"
#include "ty_plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char mlp_small[] =
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"mlp-small\", \"family\": \"sequential\","
    "\"source\": \"mlp.json\", \"input\": [1, 28, 28], \"sample_bytes\": 785, \"dataset\": "
    "\"fashion-mnist\", \"global_batch\": 8, \"optimizer\": {\"kind\": \"sgd\", "
    "\"learning_rate\": 0.05, \"momentum\": 0.9, \"weight_decay\": 0}, \"layers\": ["
    "{\"kind\": \"flatten\"}, {\"kind\": \"linear\", \"out_features\": 48}, {\"kind\": \"relu\"},"
    "{\"kind\": \"linear\", \"out_features\": 32}, {\"kind\": \"relu\"}, {\"kind\": \"linear\", "
    "\"out_features\": 10}, {\"kind\": \"softmax_cross_entropy\"}]}";

/* As in a U-Net: the channel concatenation in 9 reads layer 1 again, the one in 6 reads layer 3. */
static const char u_net_small[] =
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"u-net-small\", \"family\": \"sequential\","
    "\"source\": \"unet.json\", \"input\": [2, 10, 10], \"sample_bytes\": 801,"
    "\"dataset\": \"synthetic\", \"global_batch\": 24, \"optimizer\": {\"kind\": \"sgd\","
    "\"learning_rate\": 0.05, \"momentum\": 0.9, \"weight_decay\": 0}, \"layers\": ["
    "{\"kind\": \"conv2d\", \"out_channels\": 5, \"kernel\": 3, \"padding\": 1},"
    "{\"kind\": \"relu\"}, {\"branches\": [[], [{\"kind\": \"conv2d\", \"out_channels\": 6, "
    "\"kernel\": 3, \"padding\": 1}, {\"kind\": \"relu\"}, {\"branches\": [[], ["
    "{\"kind\": \"conv2d\", \"out_channels\": 7, \"kernel\": 3, \"padding\": 1}, "
    "{\"kind\": \"relu\"}]], \"join\": \"concat\"}, {\"kind\": \"conv2d\", "
    "\"out_channels\": 4, \"kernel\": 3, \"padding\": 1}, {\"kind\": \"relu\"}]], "
    "\"join\": \"concat\"}, {\"kind\": \"conv2d\", \"out_channels\": 3, \"kernel\": 3}, "
    "{\"kind\": \"relu\"}, {\"kind\": \"flatten\"}, {\"kind\": \"linear\", "
    "\"out_features\": 10}, {\"kind\": \"softmax_cross_entropy\"}]}";

/* Almost only images, which are flattened. */
static const char flattened[] =
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"flattened\", \"family\": \"sequential\","
    "\"source\": \"lenet.json\", \"input\": [2, 16, 16], \"sample_bytes\": 2049,"
    "\"dataset\": \"synthetic\", \"global_batch\": 8, \"optimizer\": {\"kind\": \"sgd\","
    "\"learning_rate\": 0.05, \"momentum\": 0.9, \"weight_decay\": 0}, \"layers\": ["
    "{\"kind\": \"conv2d\", \"out_channels\": 16, \"kernel\": 3, \"padding\": 1},"
    "{\"kind\": \"flatten\"}, {\"kind\": \"linear\", \"out_features\": 2},"
    "{\"kind\": \"softmax_cross_entropy\"}]}";

/* Its source has a rate, so a thread makes batches and sends them ahead from the first on. */
static const char sent_ahead[] =
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"sent-ahead\", \"family\": \"sequential\","
    "\"source\": \"lenet.json\", \"input\": [2, 16, 16], \"sample_bytes\": 2049,"
    "\"input_s_per_sample\": 0.00001,"
    "\"dataset\": \"synthetic\", \"global_batch\": 24, \"optimizer\": {\"kind\": \"sgd\","
    "\"learning_rate\": 0.05, \"momentum\": 0.9, \"weight_decay\": 0}, \"layers\": ["
    "{\"kind\": \"conv2d\", \"out_channels\": 4, \"kernel\": 3, \"padding\": 1},"
    "{\"kind\": \"relu\"}, {\"kind\": \"flatten\"}, {\"kind\": \"linear\", "
    "\"out_features\": 10}, {\"kind\": \"softmax_cross_entropy\"}]}";

/* Almost only scores, whose buffer becomes their gradient. */
static const char scored[] =
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"scored\", \"family\": \"sequential\","
    "\"source\": \"lenet.json\", \"input\": [1, 2, 2], \"sample_bytes\": 17,"
    "\"dataset\": \"synthetic\", \"global_batch\": 64, \"optimizer\": {\"kind\": \"sgd\","
    "\"learning_rate\": 0.05, \"momentum\": 0.9, \"weight_decay\": 0}, \"layers\": ["
    "{\"kind\": \"flatten\"}, {\"kind\": \"linear\", \"out_features\": 32768},"
    "{\"kind\": \"softmax_cross_entropy\"}]}";

/* Mostly outputs of batch norms and sums: four blocks, two of them with projection shortcuts. */
static const char residual[] =
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"small-residual\", \"family\": \"residual\","
    "\"source\": \"resnet18.json\", \"input\": [3, 64, 64], \"sample_bytes\": 12289,"
    "\"block\": \"bottleneck\", \"blocks\": [2, 2], \"width\": 8, \"classes\": 10,"
    "\"dataset\": \"synthetic\", \"global_batch\": 8, \"optimizer\": {\"kind\": \"sgd\","
    "\"learning_rate\": 0.05, \"momentum\": 0.9, \"weight_decay\": 0}}";

/* A vocabulary of 200, sequence length 16, with an untied output layer. */

#define UNTIED                                                                                     \
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"gpt-untied\", \"family\": \"transformer\","     \
    "\"source\": \"gpt-tiny.json\", \"blocks\": 1, \"features\": 32, \"heads\": 4,"                \
    "\"hidden_features\": 64, \"vocabulary\": 200, \"positions\": 16, \"sequence\": 16,"           \
    "\"is_tied\": false, \"token_bytes\": 1, \"dataset\": \"synthetic\", \"global_batch\": 8,"     \
    "\"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.1, \"momentum\": 0.9,"                \
    "\"weight_decay\": 0}}"
static const plan_case plans[] = {
    {"plan mlp, one rank", "mlp", "mlp", {.replicas = {1}, .buckets = 1, BATCH}, EXACT},
    {"plan mlp, data parallel 2", "mlp", "mlp", {.replicas = {2}, .buckets = 3, BATCH}, EXACT},
    {"plan mlp, data parallel 2, fp16 buckets",
     "mlp",
     "mlp",
     {.replicas = {2}, .buckets = 2, BATCH, .compression.kind = TY_COMPRESSION_FP16},
     NULL,
     4e-3,
     1e-2},
    {"plan mlp, data parallel 2, top-k of all",
     "mlp",
     "mlp",
     {.replicas = {2},
      .buckets = 2,
      BATCH,
      .compression = {.kind = TY_COMPRESSION_TOP_K, .ratio = 1}},
     EXACT},
    {"plan lenet, 1f1b 2+1",
     "lenet",
     "lenet",
     {.schedule = TY_ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {5}, .buckets = 2, BATCH},
     EXACT},
    {"plan images sent ahead, data parallel 2",
     sent_ahead,
     sent_ahead,
     {.replicas = {2}, .buckets = 2, BATCH},
     EXACT},
    {"plan images sent ahead, 1f1b 2 stages, recompute",
     sent_ahead,
     sent_ahead,
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {1, 1},
      .cuts = {2},
      .buckets = 1,
      BATCH,
      .recompute = TY_RECOMPUTE_FULL},
     EXACT},
    {"plan gpt, gpipe 2 stages",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.schedule = TY_GPIPE, .replicas = {1, 1}, .cuts = {13}, .buckets = 1, BATCH},
     EXACT},
    {"plan gpt, 1f1b 3 stages, recompute",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {1, 1, 1},
      .cuts = {7, 13},
      .buckets = 1,
      BATCH,
      .recompute = TY_RECOMPUTE_FULL},
     EXACT},
    {"plan u-net, 1f1b 4 stages, tensors relayed",
     u_net_small,
     u_net_small,
     {.schedule = TY_ONE_F_ONE_B, .replicas = {1, 1, 1, 1}, .cuts = {3, 5, 8}, .buckets = 1, BATCH},
     EXACT},
    {"plan lstm, data parallel 2",
     gnmt_small,
     gnmt_small,
     {.replicas = {2}, .buckets = 2, BATCH},
     EXACT},
    {"plan lstm, 1f1b 2 stages, bf16",
     gnmt_small,
     gnmt_small,
     {.schedule = TY_ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {2}, .buckets = 1, BATCH},
     "bf16",
     1e-1,
     3e-2},
    {"plan gpt, 1f1b 3 stages, cuts inside a block, selective",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {1, 1, 1},
      .cuts = {2, 3},
      .buckets = 1,
      BATCH,
      .recompute = TY_RECOMPUTE_SELECTIVE},
     EXACT},
    {"plan gpt, gpipe 2 stages, cut inside a block, bf16",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.schedule = TY_GPIPE, .replicas = {1, 1}, .cuts = {12}, .buckets = 1, BATCH},
     "bf16",
     1e-1,
     3e-2},
    {"plan gpt untied, data parallel 2, rows",
     UNTIED,
     UNTIED,
     {.replicas = {2}, .buckets = 2, BATCH, .compression.kind = TY_COMPRESSION_ROWS},
     EXACT},
    {"plan gpt, 2 lanes",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.replicas = {1}, .buckets = 2, BATCH, .tp = 2},
     EXACT},
    {"plan gpt, data parallel 2, 2 lanes, fp16 buckets",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.replicas = {2}, .buckets = 2, BATCH, .tp = 2, .compression.kind = TY_COMPRESSION_FP16},
     NULL,
     4e-3,
     1e-2},
    {"plan gpt, data parallel 2, 2 lanes, top-k",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.replicas = {2},
      .buckets = 2,
      BATCH,
      .tp = 2,
      .compression = {.kind = TY_COMPRESSION_TOP_K, .ratio = 1}},
     EXACT},
    {"plan gpt, data parallel 2, 2 lanes along the sequence",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.replicas = {2}, .buckets = 2, BATCH, .tp = 2, .divides_sequence = true},
     EXACT},
    {"plan gpt, 1f1b 2 stages of 2 lanes along the sequence, recompute",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {1, 1},
      .cuts = {11},
      .buckets = 1,
      BATCH,
      .tp = 2,
      .divides_sequence = true,
      .recompute = TY_RECOMPUTE_FULL},
     EXACT},
    {"plan gpt, gpipe 2 stages of 2 lanes, loss alone, bf16",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.schedule = TY_GPIPE, .replicas = {1, 1}, .cuts = {27}, .buckets = 1, BATCH, .tp = 2},
     "bf16",
     1e-1,
     3e-2},
    {"plan gpt, 4 lanes along the sequence, fp16",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.replicas = {1}, .buckets = 1, BATCH, .tp = 4, .divides_sequence = true},
     "fp16",
     3e-2,
     1e-2},
    {"plan gpt, 2 contexts, top-k of all",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.replicas = {1},
      .buckets = 2,
      BATCH,
      .compression = {.kind = TY_COMPRESSION_TOP_K, .ratio = 1},
      .contexts = 2},
     EXACT},
    {"plan gpt, data parallel 2, 4 contexts, bf16",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.replicas = {2}, .buckets = 2, BATCH, .contexts = 4},
     "bf16",
     1e-1,
     3e-2},
    {"plan gpt, 1f1b 2+1 of 2 contexts, selective",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {2, 1},
      .cuts = {13},
      .buckets = 2,
      BATCH,
      .recompute = TY_RECOMPUTE_SELECTIVE,
      .contexts = 2},
     EXACT},
    {"plan gpt, gpipe 2 stages of 2 contexts, recompute, fp16",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.schedule = TY_GPIPE,
      .replicas = {1, 1},
      .cuts = {11},
      .buckets = 1,
      BATCH,
      .recompute = TY_RECOMPUTE_FULL,
      .contexts = 2},
     "fp16",
     3e-2,
     1e-2},
    {"plan gpt, 2 x 2 lanes along the sequence",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.replicas = {1}, .buckets = 2, BATCH, .tp = 2, .divides_sequence = true, .contexts = 2},
     EXACT},
    {"plan gpt, data parallel 2, bf16",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.replicas = {2}, .buckets = 3, BATCH},
     "bf16",
     1e-1,
     3e-2},
    {"plan gpt, data parallel 2, fp16",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.replicas = {2}, .buckets = 3, BATCH},
     "fp16",
     3e-2,
     1e-2},
};
enum { PLANS = sizeof plans / sizeof *plans };

/* Runs with the precision of the plan, and that of the job; NULL: none. */
static bool run_as(ty_plan *plan, const char *of_plan, const char *of_job, const char *backend,
                   uint32_t steps, uint32_t evaluate_every, outcome *out)
{
    char *directory = directory_make();
    ty_precision precision = TY_PRECISION_FP32;
    ty_job *job;
    ty_error error = {0};
    bool is_right = true;

    if (of_plan != NULL && ty_precision_find(of_plan, &precision, &error) == TY_OK) {
        ty_workload_set_precision(plan->workload, precision);
        is_right = ty_workload_digest(plan->workload, &plan->workload_digest, &error) == TY_OK;
    }
    job = make_job(plan, steps, directory);
    ty_free(job->backend);
    job->backend = ty_strdup(backend);
    job->precision = ty_strdup(of_job);
    job->evaluate_every = evaluate_every;
    job->deterministic = is_deterministic;
    job->until.accuracy = evaluate_every > 0 ? 1 : 0; /* never reached */
    is_right = is_right &&
               ty_execute_job_locally(job, ty_plan_rank_count(job->plan), &(ty_execute_options){0},
                                      &error) == TY_OK &&
               ty_file_read(job->gradients, 0, &out->gradients, &out->length, &error) == TY_OK &&
               ty_run_load(job->output, &out->run, &error) == TY_OK;
    directory_remove(directory);
    ty_job_free(job);
    return is_right || wrong("%s: %s", backend, error.message);
}

bool plan_run_evaluated(const char *workload, const plan_shape *shape, const char *backend,
                        const char *precision, uint32_t steps, uint32_t evaluate_every,
                        outcome *out)
{
    return run_as(make_plan(workload, shape), precision, NULL, backend, steps, evaluate_every, out);
}

bool plan_run(const char *workload, const plan_shape *shape, const char *backend,
              const char *precision, uint32_t steps, outcome *out)
{
    return plan_run_evaluated(workload, shape, backend, precision, steps, 0, out);
}

void outcome_free(outcome *o)
{
    ty_free(o->gradients);
    ty_run_free(o->run);
}

/* Headers of [layer, count] and floats between them; see ty_interpreter_save_gradients. */
static bool files_compare(const outcome *found, const outcome *expected, double tolerance)
{
    double difference = 0, norm = 0;
    size_t at = 0;

    if (found->length != expected->length)
        return wrong("gradients of %zu bytes, expected %zu", found->length, expected->length);
    while (at < expected->length) {
        uint64_t header[2];
        memcpy(header, expected->gradients + at, sizeof header);
        at += sizeof header;
        for (uint64_t i = 0; i < header[1]; i++, at += sizeof(float)) {
            float f, e;
            memcpy(&f, found->gradients + at, sizeof f);
            memcpy(&e, expected->gradients + at, sizeof e);
            difference += pow((double)f - (double)e, 2);
            norm += pow((double)e, 2);
        }
    }
    if (!(norm > 0 && difference <= tolerance * tolerance * norm))
        return wrong("gradients differ by %g of %g, expected at most %g of it", sqrt(difference),
                     sqrt(norm), tolerance);
    return true;
}

/* Results of one CPU rank for a workload; plans of the same workload share that run. All plans have
 * one global batch. */
static const outcome *outcome_alone(const char *workload, uint32_t global_batch, uint32_t steps)
{
    static const char *of;
    static outcome kept;
    const plan_shape alone = {.name = "one rank",
                              .replicas = {1},
                              .buckets = 1,
                              .global_batch = global_batch,
                              .micro_batch_size = global_batch};

    if (of != NULL && strcmp(of, workload) == 0)
        return &kept;
    outcome_free(&kept);
    kept = (outcome){0};
    of = plan_run(workload, &alone, "cpu", NULL, steps, &kept) ? workload : NULL;
    return of != NULL ? &kept : NULL;
}

static bool losses_of_runs_compare(const ty_run *found, const ty_run *expected, double tolerance)
{
    for (uint32_t i = 0; i < expected->step_count; i++) {
        double f = found->losses[i], e = expected->losses[i];
        if (!(fabs(f - e) <= tolerance * fabs(e)))
            return wrong("loss of step %u is %.7g, expected %.7g", i, f, e);
    }
    if (found->evaluation_count != expected->evaluation_count)
        return wrong("%u evaluations, expected %u", found->evaluation_count,
                     expected->evaluation_count);
    for (uint32_t i = 0; i < expected->evaluation_count; i++) {
        double f = found->evaluations[i].loss, e = expected->evaluations[i].loss;
        if (!(fabs(f - e) <= tolerance * fabs(e)))
            return wrong("test loss %u is %.7g, expected %.7g", i, f, e);
    }
    return true;
}

/* For equal plans with lossless gradient collectives. */
static bool noise_compare(const ty_gradient_noise *found, const ty_gradient_noise *expected,
                          double tolerance)
{
    if (found->steps != expected->steps ||
        !(fabs(found->variance - expected->variance) <= tolerance * expected->variance))
        return wrong("gradient noise %g in %u steps, expected %g in %u", found->variance,
                     (unsigned)found->steps, expected->variance, (unsigned)expected->steps);
    return true;
}

bool outcome_compare(const plan_case *c, const outcome *found, const outcome *expected)
{
    return files_compare(found, expected, c->gradient_tolerance) &&
           losses_of_runs_compare(found->run, expected->run, c->loss_tolerance) &&
           (!c->is_alike ||
            noise_compare(&found->run->noise, &expected->run->noise, 10 * c->loss_tolerance));
}

bool case_plan(const plan_case *c)
{
    plan_shape shape = c->shape;
    const char *workload = is_quick ? c->quick_workload : c->workload;
    uint32_t steps = is_quick ? 3 : 20;
    const outcome *expected;
    outcome found = {0}, alike = {0};
    bool is_right;

    shape.name = c->name;
    if (c->is_alike)
        expected =
            plan_run_evaluated(workload, &shape, "cpu", NULL, steps, c->evaluate_every, &alike)
                ? &alike
                : NULL;
    else
        expected = outcome_alone(workload, shape.global_batch, steps);
    is_right = expected != NULL &&
               plan_run_evaluated(workload, &shape, "cuda", c->precision, steps, c->evaluate_every,
                                  &found) &&
               outcome_compare(c, &found, expected);
    outcome_free(&found);
    outcome_free(&alike);
    return is_right;
}

/* A plan of 16 bits sends tensors at cuts in the type of the passes, a plan of floats sends them as
 * floats: the results are equal. A run in floats of a plan of 16 bits is refused. */
static bool case_cut_types(void)
{
    static const char *const precisions[] = {"bf16", "fp16"};
    const plan_shape shape = {.name = "cut types",
                              .schedule = TY_ONE_F_ONE_B,
                              .replicas = {2, 1},
                              .cuts = {5},
                              .buckets = 2,
                              BATCH};
    bool is_right = true;

    for (int p = 0; p < 2 && is_right; p++) {
        outcome narrow = {0}, wide = {0}, none = {0};

        is_deterministic = true;
        is_right =
            run_as(make_plan(gpt_small, &shape), precisions[p], NULL, "cuda", 3, 0, &narrow) &&
            run_as(make_plan(gpt_small, &shape), NULL, precisions[p], "cuda", 3, 0, &wide);
        if (is_right && (narrow.length != wide.length ||
                         memcmp(narrow.gradients, wide.gradients, wide.length) != 0))
            is_right = wrong("%s: gradients of the two differ", precisions[p]);
        for (uint32_t s = 0; is_right && s < wide.run->step_count; s++)
            is_right = narrow.run->losses[s] == wide.run->losses[s] ||
                       wrong("%s: losses of step %u differ", precisions[p], s);
        if (is_right)
            is_right =
                !run_as(make_plan(gpt_small, &shape), precisions[p], "fp32", "cuda", 3, 0, &none) &&
                strstr(message, "the plan's numbers have 2 bytes") != NULL;
        is_deterministic = false;
        outcome_free(&narrow);
        outcome_free(&wide);
        outcome_free(&none);
    }
    return is_right;
}

/* A test of the model as it would be deployed, in the middle of training: with every ZeRO stage the
 * test uses the variant's weights, and training continues with its own. */
static bool variant_run(uint32_t zero, const char *backend, const char *precision, bool has_variant,
                        outcome *out)
{
    const plan_shape shape = {
        .name = "variant", .replicas = {2}, .buckets = 3, .zero = zero, BATCH};
    ty_plan *plan = make_plan(mlp_small, &shape);
    ty_budget budget = {.memory_bytes = UINT64_C(1) << 30};
    ty_error error = {0};

    if (has_variant && (ty_variant_parse("int4-pruned-50", &budget.variant, &error) != TY_OK ||
                        ty_deploy(plan->workload, &budget, &plan->deployment, &error) != TY_OK)) {
        ty_plan_free(plan);
        return wrong("%s", error.message);
    }
    return run_as(plan, NULL, precision, backend, 4, 2, out);
}

static bool case_variants(void)
{
    static const struct {
        const char *precision;
        double tolerance;
    } in[] = {{"fp32", 1e-4}, {"bf16", 5e-4}};
    outcome expected = {0};
    bool is_right = variant_run(0, "cpu", NULL, true, &expected);

    for (uint32_t run = 0; run < 8 && is_right; run++) {
        const uint32_t zero = run / 2, p = run % 2;
        outcome found = {0}, plain = {0};

        is_right = variant_run(zero, "cuda", in[p].precision, true, &found) &&
                   variant_run(zero, "cuda", in[p].precision, false, &plain) &&
                   losses_of_runs_compare(found.run, plain.run, 0);
        for (uint32_t e = 0; is_right && e < expected.run->evaluation_count; e++) {
            const ty_evaluation *of = &expected.run->evaluations[e],
                                *test = &found.run->evaluations[e];

            is_right = (fabs(test->variant_loss - of->variant_loss) <=
                            in[p].tolerance * of->variant_loss &&
                        fabs(of->variant_loss - of->loss) > 4 * in[p].tolerance * of->loss) ||
                       wrong("ZeRO %u, %s: loss %g of the variant, expected %g; %g as trained",
                             (unsigned)zero, in[p].precision, test->variant_loss, of->variant_loss,
                             of->loss);
        }
        outcome_free(&found);
        outcome_free(&plain);
    }
    outcome_free(&expected);
    return is_right;
}

/* ---- Every compressor, against the CPU backend with the same plan ---- */

/* Gradients that differ in their last bits are sometimes rounded, drawn or chosen differently: some
 * elements differ by a level, and so do residuals. */
#define CHOSEN 1e-2

static const struct {
    const char *spec;
    double gradient_tolerance;
    uint32_t replicas, zero;
} compressed[] = {{"bf16", 1e-3, 2, 0},          {"bf16", 1e-3, 2, 2},
                  {"fp8-e4m3", CHOSEN, 2, 0},    {"fp8-e5m2", CHOSEN, 2, 0},
                  {"int8", CHOSEN, 2, 0},        {"ternary", CHOSEN, 2, 0},
                  {"one-bit", CHOSEN, 2, 0},     {"one-bit", CHOSEN, 3, 0},
                  {"top-k:0.01", CHOSEN, 2, 0},  {"top-k-sampled:0.01", CHOSEN, 2, 0},
                  {"random-k:0.25", 1e-4, 2, 0}, {"random-k:0.25", 1e-4, 2, 1},
                  {"dgc:0.01", CHOSEN, 2, 0},    {"dgc:0.05:2:1", CHOSEN, 2, 0},
                  {"powersgd-2", 1e-3, 2, 0},    {"powersgd-8", 1e-3, 3, 0}};
enum { COMPRESSED = sizeof compressed / sizeof *compressed };

static void case_compressed(int index)
{
    char name[96];
    plan_case c = {.name = name,
                   .workload = mlp_small,
                   .quick_workload = mlp_small,
                   .shape = {.replicas = {compressed[index].replicas},
                             .buckets = 2,
                             .global_batch = 4 * compressed[index].replicas,
                             .micro_batch_size = 2,
                             .zero = compressed[index].zero},
                   .gradient_tolerance = compressed[index].gradient_tolerance,
                   .loss_tolerance = 1e-3,
                   .is_alike = true};
    ty_error error = {0};

    snprintf(name, sizeof name, "plan small mlp, data parallel %u, ZeRO %u, compressed: %s",
             compressed[index].replicas, compressed[index].zero, compressed[index].spec);
    if (is_asked(name))
        report(name, (ty_compression_parse(compressed[index].spec, &c.shape.compression, &error) ==
                          TY_OK ||
                      wrong("%s", error.message)) &&
                         case_plan(&c));
}

static const char gpt_wide[] =
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"gpt-wide\", \"family\": \"transformer\","
    "\"source\": \"gpt-tiny.json\", \"blocks\": 2, \"features\": 64, \"heads\": 4,"
    "\"hidden_features\": 256, \"vocabulary\": 256, \"positions\": 64, \"sequence\": 64,"
    "\"is_tied\": false, \"token_bytes\": 1, \"dataset\": \"synthetic\", \"global_batch\": 64,"
    "\"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.1, \"momentum\": 0,"
    "\"weight_decay\": 0}}";
#define LARGE_BATCH .buckets = 1, .global_batch = 64, .micro_batch_size = 16
/* ---- Memory predicted by the model against the memory of stages ---- */

static const struct {
    const char *name, *workload;
    plan_shape shape;
    double tolerance, slack_bytes;
} predicted[] = {
    {"predicted memory of mlp, 1f1b 3 stages",
     "mlp",
     {.schedule = TY_ONE_F_ONE_B, .replicas = {1, 1, 1}, .cuts = {3, 5}, LARGE_BATCH},
     0.1,
     0},
    /* A flattened tensor is a copy, and so is its gradient. */
    {"predicted memory of images, one rank", flattened, {.replicas = {1}, LARGE_BATCH}, 0.01, 0},
    {"predicted memory of scores, one rank", scored, {.replicas = {1}, LARGE_BATCH}, 0.05, 0},
    /* Sums are fused into the norms before them, unless they are recomputed. On an H100 and an H200
     * cuDNN's workspace for such small convolutions is 0.9 to 1.1 MB more than predicted. */
    {"predicted memory of residual blocks, one rank",
     residual,
     {.replicas = {1}, LARGE_BATCH},
     0.01,
     1.1e6},
    {"predicted memory of residual blocks, 1f1b 2 stages",
     residual,
     {.schedule = TY_ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {16}, LARGE_BATCH},
     0.01,
     1.1e6},
    {"predicted memory of residual blocks, recompute",
     residual,
     {.replicas = {1}, LARGE_BATCH, .recompute = TY_RECOMPUTE_FULL},
     0.01,
     1.1e6},
    /* The model describes the activations of the CPU worker: here 13 to 14 % more. */
    {"predicted memory of gpt, 1f1b 2 stages",
     gpt_wide,
     {.schedule = TY_ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {7}, LARGE_BATCH},
     0.15,
     0},
    {"predicted memory of gpt, 1f1b 2 stages, recompute",
     gpt_wide,
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {1, 1},
      .cuts = {7},
      LARGE_BATCH,
      .recompute = TY_RECOMPUTE_FULL},
     0.15,
     0},
    /* And here 23 %. */
    {"predicted memory of gpt, gpipe 2 stages, recompute elements",
     gpt_wide,
     {.schedule = TY_GPIPE,
      .replicas = {1, 1},
      .cuts = {7},
      LARGE_BATCH,
      .recompute = TY_RECOMPUTE_ELEMENTWISE},
     0.25,
     0},
    {"predicted memory of gpt, zb-h1 2 stages",
     gpt_wide,
     {.schedule = TY_ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {7}, LARGE_BATCH},
     0.1,
     0},
};
enum { PREDICTED = sizeof predicted / sizeof *predicted };

static bool stage_predicted(const ty_plan *plan, const ty_program *program, uint32_t s,
                            double tolerance, double slack_bytes)
{
    const ty_plan_stage *of = &plan->stages[s];
    const ty_stage_options options = {.workload = plan->workload,
                                      .first_layer = of->first_layer,
                                      .layer_count = of->layer_count,
                                      .micro_batch_size = plan->micro_batch_size,
                                      .slots = ty_program_peak_in_flight(program, s),
                                      .recompute = of->recompute,
                                      .recompute_blocks = of->recompute_blocks,
                                      .loss_scale = 1,
                                      .tied_layer = TY_NO_LAYER,
                                      .splits_backward =
                                          ty_schedule_at(plan->schedule)->splits_backward};
    const uint64_t workspace_bytes = UINT64_C(32) << 20; /* cuBLASLt's */
    ty_memory_use use;
    ty_stage_device *stage = NULL;
    ty_error error = {0};
    double expected, found;

    if (ty_stage_memory(plan, program, s, &use, &error) != TY_OK)
        return wrong("%s", error.message);
    if (!stage_open(gpu, &options, &stage))
        return false;
    expected = (double)(use.parameter_bytes + use.gradient_bytes + use.activation_bytes +
                        use.communication_bytes);
    found = (double)(gpu->memory->peak_bytes(stage) - workspace_bytes);
    gpu->close(stage);
    return (found - expected <= tolerance * found + slack_bytes &&
            expected - found <= tolerance * found) ||
           wrong("stage %u takes %.0f bytes, predicted are %.0f", s, found, expected);
}

/* ---- With ZeRO: against the peak that ranks report ---- */

/* Many layers, few tokens: weights, gradients and optimizer states dominate. */
static const char gpt_deep[] =
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"gpt-deep\", \"family\": \"transformer\","
    "\"source\": \"gpt-tiny.json\", \"blocks\": 8, \"features\": 64, \"heads\": 2,"
    "\"hidden_features\": 256, \"vocabulary\": 64, \"positions\": 8, \"sequence\": 8,"
    "\"is_tied\": false, \"token_bytes\": 1, \"dataset\": \"synthetic\", \"global_batch\": 4,"
    "\"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.1, \"momentum\": 0.9,"
    "\"weight_decay\": 0}}";
/* Few weights, many tokens, each of which two of eight experts process. */
static const char mixture_wide[] =
    "{\"schema\": \"trainyard.zoo/1\", \"source\": \"mixtral-8x7b.json\", \"name\": "
    "\"mixture-wide\", \"family\": \"decoder\", \"blocks\": 2, \"features\": 32, \"heads\": 2, "
    "\"kv_heads\": 1, \"experts\": 8, \"experts_per_token\": 2, \"expert_features\": 64, "
    "\"vocabulary\": 64, \"sequence\": 128, \"longest_sequence\": 128, \"token_bytes\": 1, "
    "\"dataset\": \"synthetic\", \"global_batch\": 16, \"optimizer\": {\"kind\": \"sgd\", "
    "\"learning_rate\": 0.1, \"momentum\": 0.9, \"weight_decay\": 0}}";
#define FOUR_REPLICAS .replicas = {4}, .global_batch = 4, .micro_batch_size = 1
static const struct {
    const char *name, *workload;
    ty_precision precision;
    plan_shape shape;
} sharded[] = {
    {"predicted memory of mlp, ZeRO 3",
     "mlp",
     TY_PRECISION_FP32,
     {FOUR_REPLICAS, .buckets = 8, .zero = 3}},
    {"predicted memory of gpt, ZeRO 1",
     gpt_deep,
     TY_PRECISION_FP32,
     {FOUR_REPLICAS, .buckets = 10, .zero = 1}},
    {"predicted memory of gpt, ZeRO 2",
     gpt_deep,
     TY_PRECISION_FP32,
     {FOUR_REPLICAS, .buckets = 10, .zero = 2}},
    {"predicted memory of gpt, ZeRO 3",
     gpt_deep,
     TY_PRECISION_FP32,
     {FOUR_REPLICAS, .buckets = 10, .zero = 3}},
    {"predicted memory of gpt, ZeRO 1, bf16",
     gpt_deep,
     TY_PRECISION_BF16,
     {FOUR_REPLICAS, .buckets = 10, .zero = 1}},
    {"predicted memory of gpt, ZeRO 2, fp16",
     gpt_deep,
     TY_PRECISION_FP16,
     {FOUR_REPLICAS, .buckets = 10, .zero = 2}},
    {"predicted memory of gpt, ZeRO 3, bf16",
     gpt_deep,
     TY_PRECISION_BF16,
     {FOUR_REPLICAS, .buckets = 10, .zero = 3}},
    {"predicted memory of gpt, ZeRO 3, 2 micro-batches",
     gpt_deep,
     TY_PRECISION_FP32,
     {.replicas = {2}, .global_batch = 4, .micro_batch_size = 1, .buckets = 10, .zero = 3}},
    {"predicted memory of mixture, 1 lane of experts",
     mixture_wide,
     TY_PRECISION_FP32,
     {.replicas = {1}, .global_batch = 16, .micro_batch_size = 16, .buckets = 1}},
    {"predicted memory of mixture, 2 lanes of experts",
     mixture_wide,
     TY_PRECISION_FP32,
     {.replicas = {1}, .global_batch = 16, .micro_batch_size = 16, .buckets = 1, .experts = 2}},
    {"predicted memory of mixture, 4 lanes of experts, bf16",
     mixture_wide,
     TY_PRECISION_BF16,
     {.replicas = {1}, .global_batch = 16, .micro_batch_size = 16, .buckets = 1, .experts = 4}},
};
enum { SHARDED = sizeof sharded / sizeof *sharded };

/* The model includes the receive buffers of a ring, which here belong to the host or NCCL. */
static double ring_bytes(const ty_plan *plan)
{
    uint64_t largest = 0;

    for (uint32_t b = 0; b < plan->bucket_count; b++)
        if (plan->buckets[b].gradient_bytes > largest)
            largest = plan->buckets[b].gradient_bytes;
    return 2.0 * (double)largest / plan->stages[0].replicas;
}

static bool case_sharded(int index)
{
    const uint64_t workspace_bytes = UINT64_C(32) << 20; /* cuBLASLt's */
    const ty_precision precision = sharded[index].precision;
    plan_shape shape = sharded[index].shape;
    ty_program *program = NULL;
    ty_error error = {0};
    ty_memory_use use = {0};
    outcome found = {0};
    ty_plan *plan;
    double expected, taken;
    bool is_right;

    shape.name = sharded[index].name;
    plan = make_plan(sharded[index].workload, &shape);
    ty_workload_set_precision(plan->workload, precision);
    is_right =
        ((ty_plan_lower(plan, &program, &error) == TY_OK &&
          ty_stage_memory(plan, program, 0, &use, &error) == TY_OK) ||
         wrong("%s", error.message)) &&
        plan_run(sharded[index].workload, &shape, "cuda", ty_precision_name(precision), 1, &found);
    if (is_right) {
        expected = (double)(use.parameter_bytes + use.gradient_bytes + use.optimizer_bytes +
                            use.activation_bytes + use.communication_bytes) -
                   ring_bytes(plan);
        taken = (double)(found.run->peak_memory_bytes[0] - workspace_bytes);
        is_right = fabs(expected - taken) <= (shape.zero > 0 ? 0.02 : 0.1) * taken ||
                   wrong("a rank takes %.0f bytes, predicted are %.0f", taken, expected);
    }
    outcome_free(&found);
    ty_program_free(program);
    ty_plan_free(plan);
    return is_right;
}

static bool case_predicted(int index)
{
    plan_shape shape = predicted[index].shape;
    ty_program *program = NULL;
    ty_error error = {0};
    ty_plan *plan;
    bool is_right;

    shape.name = predicted[index].name;
    plan = make_plan(predicted[index].workload, &shape);
    is_right = ty_plan_lower(plan, &program, &error) == TY_OK || wrong("%s", error.message);
    for (uint32_t s = 0; is_right && s < plan->stage_count; s++)
        is_right = stage_predicted(plan, program, s, predicted[index].tolerance,
                                   predicted[index].slack_bytes);
    ty_program_free(program);
    ty_plan_free(plan);
    return is_right;
}

/* ---- Plans that need functions this backend lacks: refused by name ---- */

static const plan_case refusals[] = {
    {.name = "refused local steps of lanes in fp16",
     .workload = "gpt-tiny sequence=8",
     .shape = {.replicas = {2}, .buckets = 1, BATCH, .local_steps = 2, .tp = 2},
     .precision = "fp16"},
};
enum { REFUSALS = sizeof refusals / sizeof *refusals };

static bool case_refused(const plan_case *c)
{
    const char *what = c->name + strlen("refused ");
    plan_shape shape = c->shape;
    outcome found = {0};
    bool has_run;

    shape.name = c->name;
    has_run = plan_run(c->workload != NULL ? c->workload : "mlp", &shape, "cuda", c->precision, 1,
                       &found);
    outcome_free(&found);
    if (has_run || strstr(message, what) == NULL)
        return wrong("found %.200s, expected a refusal of %s", has_run ? "a run" : message, what);
    return true;
}

/* Residuals cannot follow the loss scale: compressors with error feedback are refused with fp16. */
static bool case_feedback_refused(void)
{
    bool is_right = true;

    for (int i = 0; i < COMPRESSED && is_right; i++) {
        plan_shape shape = {
            .name = "fp16 with error feedback", .replicas = {2}, .buckets = 1, BATCH};
        outcome found = {0};
        ty_error error = {0};

        if (ty_compression_parse(compressed[i].spec, &shape.compression, &error) != TY_OK)
            return wrong("%s", error.message);
        if (!ty_compression_has_feedback(&shape.compression))
            continue;
        if (plan_run(mlp_small, &shape, "cuda", "fp16", 1, &found))
            is_right = wrong("%s was not refused", compressed[i].spec);
        else
            is_right = strstr(message, "keeps gradients from step to step") != NULL &&
                       strstr(message, ty_compression_name(shape.compression.kind)) != NULL;
        outcome_free(&found);
    }
    return is_right;
}

void plans_run(void)
{
    for (int i = 0; i < PLANS; i++)
        if (is_asked(plans[i].name))
            report(plans[i].name, case_plan(&plans[i]));
    if (is_asked("plan of 16 bits, plan of floats"))
        report("plan of 16 bits, plan of floats", case_cut_types());
    if (is_asked("variants of plans with ZeRO"))
        report("variants of plans with ZeRO", case_variants());
    for (int i = 0; i < COMPRESSED; i++)
        case_compressed(i);
    for (int i = 0; i < PREDICTED; i++)
        if (is_asked(predicted[i].name))
            report(predicted[i].name, case_predicted(i));
    for (int i = 0; i < SHARDED; i++)
        if (is_asked(sharded[i].name))
            report(sharded[i].name, case_sharded(i));
    if (is_asked("refused fp16 with error feedback"))
        report("refused fp16 with error feedback", case_feedback_refused());
    for (int i = 0; i < REFUSALS; i++)
        if (is_asked(refusals[i].name))
            report(refusals[i].name, case_refused(&refusals[i]));
}
