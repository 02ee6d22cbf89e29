/* Presets: each plans as its system would, and the plans are valid. */
#include "ty_planner.h"

#include <criterion/criterion.h>
#include <string.h>

typedef struct rule {
    const char *system;
    bool is_whole;     /* data parallel */
    bool has_schedule; /* of `schedule`, if it has stages */
    ty_schedule schedule;
    bool has_algorithm; /* of `algorithm` for gradients */
    ty_algorithm algorithm;
    ty_recompute recompute;
    uint32_t least_zero;
} rule;

static const rule rules[] = {
    {"baidu-ring", true, false, 0, true, TY_RING, TY_RECOMPUTE_NONE, 0},
    {"parameter-server", true, false, 0, true, TY_PARAMETER_SERVER, TY_RECOMPUTE_NONE, 0},
    {"tensorflow-on-spark", true, false, 0, true, TY_PARAMETER_SERVER, TY_RECOMPUTE_NONE, 0},
    {"bigdl", true, false, 0, true, TY_BLOCK_MANAGER, TY_RECOMPUTE_NONE, 0},
    {"horovod", true, false, 0, false, 0, TY_RECOMPUTE_NONE, 0},
    {"ddp", true, false, 0, false, 0, TY_RECOMPUTE_NONE, 0},
    {"moxing", true, false, 0, false, 0, TY_RECOMPUTE_NONE, 0},
    {"gpipe", false, true, TY_GPIPE, false, 0, TY_RECOMPUTE_FULL, 0},
    {"pipedream", false, true, TY_PIPEDREAM, false, 0, TY_RECOMPUTE_NONE, 0},
    {"pipedream-2bw", false, true, TY_PIPEDREAM_2BW, false, 0, TY_RECOMPUTE_NONE, 0},
    {"zero", true, false, 0, false, 0, TY_RECOMPUTE_NONE, 1},
};

static void expect_rule(const rule *r, const ty_plan *plan)
{
    ty_program *program = NULL;
    ty_error error = {0};

    cr_expect_eq(ty_plan_check(plan, r->system, &error), TY_OK, "%s: %s", r->system, error.message);
    cr_assert_eq(ty_plan_lower(plan, &program, &error), TY_OK, "%s: %s", r->system, error.message);
    cr_expect_eq(ty_program_check(plan, program, r->system, &error), TY_OK, "%s: %s", r->system,
                 error.message);
    cr_expect(!r->is_whole || plan->stage_count == 1, "%s: %s", r->system, plan->strategy);
    cr_expect(!r->has_schedule || plan->schedule == r->schedule, "%s: %s", r->system,
              plan->strategy);
    cr_expect_geq(plan->zero, r->least_zero, "%s", r->system);
    for (uint32_t s = 0; s < plan->stage_count; s++)
        cr_expect_eq(plan->stages[s].recompute, r->recompute, "%s", r->system);
    for (uint32_t b = 0; r->has_algorithm && b < plan->bucket_count; b++)
        cr_expect_eq(plan->buckets[b].algorithm, r->algorithm, "%s, bucket %u", r->system, b);
    ty_program_free(program);
}

Test(systems, plan_as_they_would)
{
    ty_workload *vgg = NULL;
    ty_cluster *cluster = NULL;
    const ty_plan_options options = ty_plan_options_default();
    ty_error error = {0};

    cr_assert_eq(ty_workload_open("vgg16", &vgg, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_cluster_open("2x p100-server", NULL, &cluster, &error), TY_OK, "%s",
                 error.message);
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        const ty_system *system = ty_system_find(rules[i].system);
        ty_plan *plan = NULL;
        cr_assert_not_null(system, "%s", rules[i].system);
        cr_assert_eq(ty_plan_system(system, vgg, cluster, NULL, &options, &plan, &error), TY_OK,
                     "%s", error.message);
        expect_rule(&rules[i], plan);
        ty_plan_free(plan);
    }
    ty_cluster_free(cluster);
    ty_workload_free(vgg);
}

/* One all-reduce per layer against large buckets: baidu-ring has more buckets than bigdl. */
Test(systems, fuse_as_they_would)
{
    ty_workload *vgg = NULL;
    ty_cluster *cluster = NULL;
    const ty_plan_options options = ty_plan_options_default();
    ty_plan *layers = NULL, *all = NULL;
    uint32_t trained = 0;

    cr_assert_eq(ty_workload_open("vgg16", &vgg, NULL), TY_OK);
    cr_assert_eq(ty_cluster_open("2x p100-server", NULL, &cluster, NULL), TY_OK);
    cr_assert_eq(
        ty_plan_system(ty_system_find("baidu-ring"), vgg, cluster, NULL, &options, &layers, NULL),
        TY_OK);
    cr_assert_eq(ty_plan_system(ty_system_find("bigdl"), vgg, cluster, NULL, &options, &all, NULL),
                 TY_OK);
    for (uint32_t l = 0; l < vgg->layer_count; l++)
        trained += vgg->layers[l].parameter_bytes > 0;
    cr_expect_eq(layers->bucket_count, trained);
    cr_expect_eq(all->bucket_count, 1);
    ty_plan_free(layers);
    ty_plan_free(all);
    ty_cluster_free(cluster);
    ty_workload_free(vgg);
}

/* GPipe and PipeDream-2BW replicate complete pipelines. PipeDream replicates each stage separately:
 * VGG's first layers have most of the work, its last layers most of the weights. */
Test(systems, replicate_as_they_would)
{
    static const struct {
        const char *name;
        bool is_even;
    } replicated[] = {{"gpipe", true}, {"pipedream-2bw", true}, {"pipedream", false}};
    ty_workload *vgg = NULL;
    ty_cluster *cluster = NULL;
    const ty_plan_options options = ty_plan_options_default();

    cr_assert_eq(ty_workload_open("vgg16", &vgg, NULL), TY_OK);
    cr_assert_eq(ty_cluster_open("pipedream-a", NULL, &cluster, NULL), TY_OK);
    for (size_t i = 0; i < sizeof replicated / sizeof replicated[0]; i++) {
        ty_plan *plan = NULL;
        ty_error error = {0};
        bool is_even = true;
        cr_assert_eq(ty_plan_system(ty_system_find(replicated[i].name), vgg, cluster, NULL,
                                    &options, &plan, &error),
                     TY_OK, "%s", error.message);
        for (uint32_t s = 1; s < plan->stage_count; s++)
            is_even = is_even && plan->stages[s].replicas == plan->stages[0].replicas;
        cr_expect_gt(plan->stage_count, 1, "%s", plan->strategy);
        cr_expect_eq(is_even, replicated[i].is_even, "%s", plan->strategy);
        ty_plan_free(plan);
    }
    ty_cluster_free(cluster);
    ty_workload_free(vgg);
}

Test(systems, megatron_wants_transformers)
{
    ty_workload *vgg = NULL, *gpt = NULL;
    ty_cluster *cluster = NULL;
    const ty_plan_options options = ty_plan_options_default();
    ty_plan *plan = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_workload_open("vgg16", &vgg, NULL), TY_OK);
    cr_assert_eq(ty_workload_open("gpt3-175b", &gpt, NULL), TY_OK);
    ty_workload_set_precision(gpt, TY_PRECISION_BF16);
    cr_assert_eq(ty_cluster_open("16x dgx-a100", NULL, &cluster, NULL), TY_OK);
    cr_expect_eq(
        ty_plan_system(ty_system_find("megatron"), vgg, cluster, NULL, &options, &plan, &error),
        TY_EINVAL);
    cr_expect(strstr(error.message, "no layout") != NULL, "%s", error.message);
    cr_assert_eq(
        ty_plan_system(ty_system_find("megatron"), gpt, cluster, NULL, &options, &plan, &error),
        TY_OK, "%s", error.message);
    cr_expect_gt(plan->tensor_parallel, 1, "%s", plan->strategy);
    cr_expect_gt(plan->stage_count, 1, "%s", plan->strategy);
    cr_expect_eq(ty_plan_check(plan, "megatron", &error), TY_OK, "%s", error.message);
    ty_plan_free(plan);
    ty_cluster_free(cluster);
    ty_workload_free(vgg);
    ty_workload_free(gpt);
}

Test(systems, unknown_and_last)
{
    uint32_t count = 0;

    while (ty_system_at(count) != NULL) {
        cr_expect_eq(ty_system_find(ty_system_at(count)->name), ty_system_at(count));
        count++;
    }
    cr_expect_eq(count, sizeof rules / sizeof rules[0] + 1, "megatron, and those above");
    cr_expect_null(ty_system_find("spark"));
}
