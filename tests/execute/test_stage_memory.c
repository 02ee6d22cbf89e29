/* The planner's memory of a stage against what the CPU worker allocates for it. */
#include "device.h"
#include "plans.h"

#include <criterion/criterion.h>
#include <math.h>

/* What the device has: the model's weights, gradients and activations, and of its communication the
 * gradients of what crosses the cuts; staging of messages is the transport's. */
static double device_share(const ty_plan *plan, uint32_t stage, const ty_memory_use *use)
{
    const double buffers = 2; /* for what comes, and for what goes */
    double staging = 0;

    for (uint32_t cut = stage; cut <= stage + 1; cut++)
        if (cut > 0 && cut < plan->stage_count)
            staging += buffers * (double)ty_plan_transfer_bytes(plan, cut, TY_ACTIVATION);
    return (double)(use->parameter_bytes + use->gradient_bytes + use->activation_bytes +
                    use->communication_bytes) -
           staging;
}

static double worker_bytes(const ty_plan *plan, const ty_program *program, uint32_t stage)
{
    const ty_plan_stage *own = &plan->stages[stage];
    const ty_stage_options options = {.workload = plan->workload,
                                      .first_layer = own->first_layer,
                                      .layer_count = own->layer_count,
                                      .micro_batch_size = plan->micro_batch_size,
                                      .slots = ty_program_peak_in_flight(program, stage),
                                      .recompute = own->recompute,
                                      .loss_scale = 1,
                                      .tied_layer = TY_NO_LAYER,
                                      .splits_backward = plan->schedule == TY_ZERO_BUBBLE};
    ty_stage_device *device = NULL;
    ty_error error = {0};
    double bytes;

    cr_assert_eq(ty_device_cpu.open(&options, &device, &error), TY_OK, "%s", error.message);
    bytes = (double)ty_device_cpu.memory_bytes(device);
    ty_device_cpu.close(device);
    return bytes;
}

static void compare(const char *workload, const plan_shape *shape, double tolerance)
{
    ty_plan *plan = make_plan(workload, shape);
    ty_program *program = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_plan_lower(plan, &program, &error), TY_OK, "%s", error.message);
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        ty_memory_use use;
        double expected, found;

        cr_assert_eq(ty_stage_memory(plan, program, s, &use, &error), TY_OK, "%s", error.message);
        expected = worker_bytes(plan, program, s);
        found = device_share(plan, s, &use);
        cr_log_info("%s of %s, stage %u: %.0f, %.0f bytes (%+.1f %%)", shape->name,
                    plan->workload->name, s, found, expected, 100 * (found / expected - 1));
        cr_expect(fabs(found - expected) <= tolerance * expected,
                  "%s of %s: stage %u: the model has %.0f bytes, the worker %.0f (%+.1f %%)",
                  shape->name, plan->workload->name, s, found, expected,
                  100 * (found / expected - 1));
    }
    ty_program_free(program);
    ty_plan_free(plan);
}

#define LARGE_BATCH .buckets = 1, .global_batch = 64, .micro_batch_size = 16
#define TWO .replicas = {1, 1}, LARGE_BATCH
#define ONE_PART .schedule = TY_ONE_F_ONE_B
#define TWO_PARTS .schedule = TY_ZERO_BUBBLE
#define THREE .replicas = {1, 1, 1}, LARGE_BATCH

static const char transformer[] =
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"transformer\", \"family\": \"transformer\","
    "\"source\": \"gpt-tiny.json\", \"blocks\": 3, \"features\": 48, \"heads\": 4,"
    "\"hidden_features\": 192, \"vocabulary\": 100, \"positions\": 24, \"sequence\": 24,"
    "\"is_tied\": false, \"token_bytes\": 1, \"dataset\": \"synthetic\", \"global_batch\": 8,"
    "\"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.1, \"momentum\": 0,"
    "\"weight_decay\": 0}}";

#define EXPERTS(more)                                                                              \
    "{\"schema\": \"trainyard.zoo/1\", \"source\": \"mixtral-8x7b.json\", \"name\": \"experts\","  \
    "\"family\": \"decoder\", \"blocks\": 2, \"features\": 32, \"heads\": 4, \"kv_heads\": 2,"     \
    "\"experts\": 4, \"experts_per_token\": 2, \"expert_features\": 64, " more                     \
    "\"vocabulary\": 64, \"sequence\": 32, \"longest_sequence\": 32, \"token_bytes\": 1,"          \
    "\"dataset\": \"synthetic\", \"global_batch\": 16, \"optimizer\": {\"kind\": \"sgd\","         \
    "\"learning_rate\": 0.1, \"momentum\": 0, \"weight_decay\": 0}}"
static const char experts[] = EXPERTS("");
static const char shared_experts[] = EXPERTS("\"shared_features\": 96, ");

/* What backward in two parts keeps from the first to the second is as large as the activations.
 * Copies of images in another order, which convolutions compute in, are not in the model. */
Test(stage_memory, is_what_the_worker_allocates)
{
    static const struct {
        const char *workload;
        double tolerance;
        plan_shape one, two; /* backward in one part, and in two */
    } rows[] = {
        {"mlp",
         0.03,
         {"1f1b", ONE_PART, .cuts = {3, 5}, THREE},
         {"zb-h1", TWO_PARTS, .cuts = {3, 5}, THREE}},
        {transformer,
         0.1,
         {"1f1b", ONE_PART, .cuts = {7, 13}, THREE},
         {"zb-h1", TWO_PARTS, .cuts = {7, 13}, THREE}},
        {experts,
         0.1,
         {"1f1b", ONE_PART, .cuts = {7}, TWO},
         {"zb-h1", TWO_PARTS, .cuts = {7}, TWO}},
        {shared_experts,
         0.1,
         {"1f1b", ONE_PART, .cuts = {7}, TWO},
         {"zb-h1", TWO_PARTS, .cuts = {7}, TWO}},
        {gnmt_small,
         0.1,
         {"1f1b", ONE_PART, .cuts = {2}, TWO},
         {"zb-h1", TWO_PARTS, .cuts = {2}, TWO}},
        {"lenet",
         0.4,
         {"1f1b", ONE_PART, .cuts = {2, 5}, THREE},
         {"zb-h1", TWO_PARTS, .cuts = {2, 5}, THREE}},
    };

    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        compare(rows[r].workload, &rows[r].one, rows[r].tolerance);
        compare(rows[r].workload, &rows[r].two, rows[r].tolerance);
    }
}
