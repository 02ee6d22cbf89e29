/*
 * The search: the entire zoo on clusters of 16 devices, toy chains against exhaustive enumeration,
 * options, refusals, interruption and failing allocations.
 */
#include "../pin.h"
#include "../quick.h"
#include "plans.h"

#include "ty_workloads.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const clusters[] = {"2x dgx-a100", "4x p100-server", "2x dgx1-v100"};
#define CLUSTER_COUNT (sizeof clusters / sizeof *clusters)

static ty_workload *open_workload(const char *name)
{
    ty_workload *workload = NULL;
    ty_error error = {0};
    cr_assert_eq(ty_workload_open(name, &workload, &error), TY_OK, "%s", error.message);
    return workload;
}

static ty_cluster *open_cluster(const char *text)
{
    ty_cluster *cluster = NULL;
    ty_error error = {0};
    cr_assert_eq(ty_cluster_open(text, NULL, &cluster, &error), TY_OK, "%s", error.message);
    return cluster;
}

/* Two hosts with two devices each, behind a switch. */
static ty_cluster *small_cluster(uint64_t memory_bytes, double bus, double net)
{
    static const char format[] =
        "{\"schema\": \"trainyard.cluster/1\", \"name\": \"small\", \"device_types\": ["
        "{\"name\": \"d\", \"source\": \"made up\", \"peak_fp32_flop_per_s\": 1e12,"
        " \"peak_tf32_flop_per_s\": 0, \"peak_fp16_flop_per_s\": 0,"
        " \"memory_bandwidth_bytes_per_s\": 1e11, \"launch_overhead_s\": 0,"
        " \"matmul_efficiency\": 1, \"memory_efficiency\": 0.5, \"core_share\": 0,"
        " \"power_w\": 100, \"memory_bytes\": %llu}],"
        "\"link_types\": ["
        "{\"name\": \"bus\", \"source\": \"made up\", \"bandwidth_bytes_per_s\": %.0f,"
        " \"latency_s\": 1e-6},"
        "{\"name\": \"net\", \"source\": \"made up\", \"bandwidth_bytes_per_s\": %.0f,"
        " \"latency_s\": 5e-6}],"
        "\"vertices\": ["
        "{\"name\": \"a\", \"kind\": \"host\"}, {\"name\": \"b\", \"kind\": \"host\"},"
        "{\"name\": \"a0\", \"kind\": \"device\", \"type\": \"d\", \"host\": \"a\"},"
        "{\"name\": \"a1\", \"kind\": \"device\", \"type\": \"d\", \"host\": \"a\"},"
        "{\"name\": \"b0\", \"kind\": \"device\", \"type\": \"d\", \"host\": \"b\"},"
        "{\"name\": \"b1\", \"kind\": \"device\", \"type\": \"d\", \"host\": \"b\"},"
        "{\"name\": \"s\", \"kind\": \"switch\"}],"
        "\"links\": ["
        "{\"from\": \"a0\", \"to\": \"a\", \"type\": \"bus\"},"
        "{\"from\": \"a1\", \"to\": \"a\", \"type\": \"bus\"},"
        "{\"from\": \"b0\", \"to\": \"b\", \"type\": \"bus\"},"
        "{\"from\": \"b1\", \"to\": \"b\", \"type\": \"bus\"},"
        "{\"from\": \"a\", \"to\": \"s\", \"type\": \"net\"},"
        "{\"from\": \"b\", \"to\": \"s\", \"type\": \"net\"}]}";
    char text[4096];
    ty_cluster *cluster = NULL;
    ty_error error = {0};

    snprintf(text, sizeof text, format, (unsigned long long)memory_bytes, bus, net);
    cr_assert_eq(ty_cluster_parse(text, "small", &cluster, &error), TY_OK, "%s", error.message);
    return cluster;
}

/* A plan of a chain, for its workload: layers with the given seconds per sample. */
#define CHAIN_LAYERS 5
#define CHAIN_BATCH 16
#define DEVICES 4
static ty_plan *random_chain(random_numbers *numbers)
{
    const plan_shape shape = {.schedule = TY_GPIPE,
                              .replicas = {1},
                              .layers = {CHAIN_LAYERS},
                              .buckets = 1,
                              .micro_batches = 1};
    ty_plan *plan = make_plan(&shape);

    plan->workload->global_batch = CHAIN_BATCH;
    plan->workload->optimizer = plan->optimizer;
    for (uint32_t i = 0; i < CHAIN_LAYERS; i++) {
        ty_layer *layer = &plan->workload->layers[i];
        uint32_t size = 100 + random_below(numbers, 20000);
        layer->output.dimensions[0] = size;
        layer->output_bytes = layer->stash_bytes = size * 4ull;
        layer->parameter_bytes = 4000ull * (1 + random_below(numbers, 2000));
        layer->measured_forward_s = 1e-4 * (1 + random_below(numbers, 20));
        layer->measured_backward_s = 2 * layer->measured_forward_s;
    }
    cr_assert_eq(ty_workload_index_make(plan->workload, NULL), TY_OK);
    return plan;
}

/* Language models on GPUs from Ampere on use their default framework. All others use the worker,
 * which can run every plan. */
static ty_plan *search(const ty_workload *workload, const ty_cluster *cluster,
                       const ty_plan_options *options)
{
    const bool is_of_worker = workload->tokens_per_sample == 0 ||
                              !(ty_cluster_device_type(cluster, 0)->peak_tf32_flop_per_s > 0);
    ty_plan_options own = *options;
    ty_stack *worker = NULL;
    ty_plan *plan = NULL;
    ty_error error = {0};

    if (own.stack == NULL && is_of_worker) {
        cr_assert_eq(ty_stack_open(TY_WORKER_STACK, &worker, &error), TY_OK, "%s", error.message);
        own.stack = worker;
    }
    cr_assert_eq(ty_plan_search(workload, cluster, NULL, &own, &plan, &error), TY_OK, "%s: %s",
                 workload->name, error.message);
    ty_stack_free(worker);
    return plan;
}

static char *json_of(const ty_plan *plan)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    char *json = NULL;

    ty_plan_to_json(plan, &writer, NULL);
    cr_assert_eq(ty_text_take(&text, &json, NULL), TY_OK);
    return json;
}

/* ---- The zoo ----------------------------------------------------------------------------- */

static void expect_good_plan(const ty_plan *plan, const ty_cluster *cluster)
{
    ty_error error = {0};
    ty_program *program = NULL;
    double best_s = plan->candidates[0].step_time_s;

    cr_expect_eq(ty_plan_check(plan, "plan", &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_plan_lower(plan, &program, &error), TY_OK, "%s", error.message);
    cr_expect_eq(ty_program_check(plan, program, "program", &error), TY_OK, "%s", error.message);
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        ty_memory_use use;
        cr_assert_eq(ty_stage_memory(plan, program, s, &use, &error), TY_OK);
        cr_expect_eq(memcmp(&use, &plan->memory[s], sizeof use), 0, "the plan's own figures");
        for (uint32_t r = 0; r < plan->stages[s].replicas; r++)
            cr_expect_leq(
                ty_memory_use_total(&use),
                ty_cluster_device_type(cluster, plan->stages[s].devices[r])->memory_bytes);
    }
    cr_expect_str_eq(plan->candidates[0].reason, "chosen");
    for (uint32_t c = 1; c < plan->candidate_count; c++)
        for (uint32_t other = 0; other < c; other++)
            cr_assert_str_neq(plan->candidates[c].fix, plan->candidates[other].fix,
                              "%s: candidates %u and %u are one", plan->workload->name, other, c);
    cr_expect_eq(best_s, plan->prediction.step_time_s);
    for (uint32_t c = 1; c < plan->candidate_count; c++) {
        const char *reason = plan->candidates[c].reason;
        bool is_estimated =
            strstr(reason, "% slower: ") != NULL || strstr(reason, "as fast") != NULL;
        cr_expect(!is_estimated || plan->candidates[c].step_time_s >= best_s, "%s: %s",
                  plan->candidates[c].name, reason);
    }
    ty_program_free(program);
}

/* Models above this do not fit 16 devices of 16 GB with their optimizer states and activations. */
#define LARGEST_PARAMETER_BYTES 2000000000u

/* Visits every model of the zoo that fits, on every cluster; in the quick form on one of them. */
static void each_question(void (*visit)(const ty_workload *, const ty_cluster *))
{
    char **names = NULL;
    uint32_t count = 0, visited = 0;

    cr_assert_eq(ty_zoo_list(&names, &count, NULL), TY_OK);
    for (uint32_t i = 0; i < count; i++) {
        ty_workload *workload = open_workload(names[i]);
        bool is_small = ty_workload_parameter_bytes(workload, 0, workload->layer_count) <
                        LARGEST_PARAMETER_BYTES;
        if (workload->global_batch < 16)
            workload->global_batch = 16;
        visited += is_small;
        for (size_t c = 0; is_small && c < CLUSTER_COUNT; c++) {
            if (is_quick() && c != i % CLUSTER_COUNT)
                continue;
            ty_cluster *cluster = open_cluster(clusters[c]);
            visit(workload, cluster);
            ty_cluster_free(cluster);
        }
        ty_workload_free(workload);
        ty_free(names[i]);
    }
    ty_free(names);
    cr_assert_geq(visited, 6);
}

/* The first word of a row up to its details: the name of its strategy. */
static size_t strategy_length(const char *name)
{
    const char *details = strstr(name, " x "); /* ", 16 x 32" */
    while (details > name && *details != ',')
        details--;
    return (size_t)(details - name);
}

/* Rows start with the best of each strategy. */
static void expect_strategies_first(const ty_plan *plan, const ty_workload *workload)
{
    uint32_t different = 0, cut_count = 0, *cuts = NULL;

    for (uint32_t i = 0; i < plan->candidate_count; i++) {
        bool is_new = true;
        for (uint32_t k = 0; k < i && is_new; k++)
            is_new = strategy_length(plan->candidates[i].name) !=
                         strategy_length(plan->candidates[k].name) ||
                     strncmp(plan->candidates[i].name, plan->candidates[k].name,
                             strategy_length(plan->candidates[k].name)) != 0;
        cr_expect(!is_new || i == different, "%s is the first of its kind in row %u",
                  plan->candidates[i].name, i);
        different += is_new;
    }
    cr_assert_eq(ty_workload_cuts(workload, &cuts, &cut_count, NULL), TY_OK);
    cr_expect_gt(different, cut_count < 6 ? 0 : 3, "%s: %u strategies", workload->name, different);
    ty_free(cuts);
}

static void plan_twice(const ty_workload *workload, const ty_cluster *cluster)
{
    ty_plan_options options = ty_plan_options_default();
    ty_plan *first = search(workload, cluster, &options);
    ty_plan *second = search(workload, cluster, &options);
    char *a = json_of(first), *b = json_of(second);

    expect_good_plan(first, cluster);
    expect_strategies_first(first, workload);
    cr_expect_str_eq(a, b, "%s on %s: two answers to one question", workload->name,
                     ty_cluster_name(cluster));
    ty_free(a);
    ty_free(b);
    ty_plan_free(first);
    ty_plan_free(second);
}

Test(search, zoo_is_planned_the_same_way_twice_with_the_best_of_each_strategy_first)
{
    each_question(plan_twice);
}

Test(search, tied_weights_get_a_bucket)
{
    ty_workload *gpt2 = open_workload("gpt2");
    ty_cluster *cluster = open_cluster(clusters[0]);
    ty_plan_options options = ty_plan_options_default();
    ty_plan *plan;
    const ty_bucket *tied;

    pin(&options.pins, "pp=2");
    options.pins.axes |= TY_AXES_OF_DIMENSIONS;
    plan = search(gpt2, cluster, &options);
    tied = &plan->buckets[plan->bucket_count - 1];
    cr_expect_eq(tied->stage, 0);
    cr_expect_eq(tied->tied_stage, 1);
    cr_expect_eq(tied->layer_count, 1);
    cr_expect_eq(gpt2->layers[tied->first_layer].kind, TY_LAYER_EMBEDDING);
    cr_expect_eq(tied->gradient_bytes, 50257ull * 768 * 4, "found %llu",
                 (unsigned long long)tied->gradient_bytes);
    ty_plan_free(plan);
    ty_cluster_free(cluster);
    ty_workload_free(gpt2);
}

/* ---- Options ----------------------------------------------------------------------------- */

static uint32_t exchanged_buckets(const ty_plan *plan, ty_compression_kind compression)
{
    uint32_t count = 0;

    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        if (bucket->tied_stage != TY_NO_STAGE || ty_bucket_member_count(plan, bucket) == 1)
            continue;
        cr_expect_eq(bucket->compression.kind, compression, "bucket %u", b);
        count++;
    }
    return count;
}

Test(search, fixed_options_are_honoured)
{
    static const struct {
        const char *name, *fix;
        ty_plan_options options;
    } rows[] = {
        {"stages", "pp=4", {0}},
        {"one stage", "pp=1", {0}},
        {"replicas", "replicas=8+4+4", {0}},
        {"replicas of one stage", "replicas=16", {0}},
        {"both", "pp=3,replicas=8+4+4", {0}},
        {"gpipe", "pp=2,schedule=gpipe", {0}},
        {"1f1b", "pp=2,schedule=1f1b", {0}},
        {"micro-batch", "micro_batch=4", {0}},
        {"batch", "", {.global_batch = 512}},
        {"none", "compression=none", {0}},
        {"fp16", "compression=fp16", {0}},
        {"top-k", "compression=top-k:0.02", {0}},
        {"buckets", "pp=1,bucket=10MB", {0}},
        {"one bucket", "pp=1,bucket=1GiB", {0}},
        {"seed", "", {.seed = 7}},
        {"late", "staleness=2", {0}},
        {"late in stages", "staleness=1,replicas=8+4+4", {0}},
        {"late in zero bubble", "staleness=1,pp=2,schedule=zb-h1", {0}},
        {"zero bubble", "pp=4,schedule=zb-2p", {0}},
    };
    ty_workload *vgg = open_workload("vgg16");
    ty_cluster *cluster = open_cluster(clusters[1]);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_plan_options o = rows[i].options;
        const ty_pins *pins = &o.pins;
        ty_plan *plan;
        pin(&o.pins, "%s", rows[i].fix);
        plan = search(vgg, cluster, &o);
        expect_good_plan(plan, cluster);
        cr_expect(pins->pipeline_stages == 0 || plan->stage_count == pins->pipeline_stages, "%s",
                  rows[i].name);
        cr_expect(pins->micro_batch_size == 0 || plan->micro_batch_size == pins->micro_batch_size,
                  "%s", rows[i].name);
        cr_expect_eq(plan->global_batch, o.global_batch > 0 ? o.global_batch : 256, "%s",
                     rows[i].name);
        cr_expect(!ty_is_pinned(pins, TY_AXIS(SCHEDULE)) || plan->schedule == pins->schedule, "%s",
                  rows[i].name);
        if (ty_is_pinned(pins, TY_AXIS(COMPRESSION)))
            cr_expect_gt(exchanged_buckets(plan, pins->compression.kind), 0, "%s", rows[i].name);
        for (uint32_t s = 0; s < pins->replicas.count; s++)
            cr_expect_eq(plan->stages[s].replicas, pins->replicas.numbers[s], "%s", rows[i].name);
        /* A bucket is closed once it has this size: all but the last one have it. */
        for (uint32_t b = 0; pins->bucket_bytes > 0 && b + 1 < plan->bucket_count; b++)
            cr_expect_geq(plan->buckets[b].gradient_bytes, pins->bucket_bytes, "%s", rows[i].name);
        cr_expect(pins->bucket_bytes != 1u << 30 || plan->bucket_count == 1, "%s", rows[i].name);
        cr_expect_eq(plan->seed, o.seed);
        cr_expect_eq(plan->staleness, pins->staleness, "%s", rows[i].name);
        for (uint32_t k = 0; k < plan->candidate_count; k++)
            cr_expect_eq(strstr(plan->candidates[k].name, ", staleness ") != NULL,
                         pins->staleness > 0, "%s: %s", rows[i].name, plan->candidates[k].name);
        for (uint32_t b = 0; b < plan->bucket_count; b++)
            cr_expect(plan->buckets[b].compression.kind != TY_COMPRESSION_TOP_K ||
                          plan->buckets[b].compression.ratio == 0.02,
                      "%s", rows[i].name);
        ty_plan_free(plan);
    }
    ty_cluster_free(cluster);
    ty_workload_free(vgg);
}

/* the user must allow lossy compression, and fp16 must be expected to help */
/* For every named framework, the plan is one that it can run; unsupported ones are refused. */
Test(search, stacks_get_what_they_can_run)
{
    static const char *const networks[] = {"vgg16", "gpt2"};
    char **names = NULL;
    uint32_t count = 0, refused = 0;
    ty_error error = {0};

    cr_assert_eq(ty_stack_names(&names, &count, &error), TY_OK, "%s", error.message);
    for (size_t n = 0; n < sizeof networks / sizeof *networks; n++) {
        ty_workload *workload = open_workload(networks[n]);
        ty_cluster *cluster = open_cluster("4x p100-server");
        for (uint32_t i = 0; i < count; i++) {
            ty_plan_options options = ty_plan_options_default();
            ty_stack *stack = NULL;
            ty_plan *plan = NULL;
            cr_assert_eq(ty_stack_open(names[i], &stack, &error), TY_OK, "%s", error.message);
            options.stack = stack;
            options.allow_lossy = true;
            cr_assert_eq(ty_plan_search(workload, cluster, NULL, &options, &plan, &error), TY_OK,
                         "%s by %s: %s", networks[n], names[i], error.message);
            cr_expect_eq(ty_plan_use_stack(plan, stack, &error), TY_OK, "%s by %s: %s", networks[n],
                         names[i], error.message);
            ty_plan_free(plan);
            plan = NULL;
            pin(&options.pins, "pp=2");
            if (ty_plan_search(workload, cluster, NULL, &options, &plan, &error) == TY_EINVAL) {
                cr_expect(!ty_axis_may(&stack->plans.may, TY_AXIS_PP, TY_KIND_MORE), "%s",
                          error.message);
                refused++;
            } else {
                cr_expect(ty_axis_may(&stack->plans.may, TY_AXIS_PP, TY_KIND_MORE), "%s", names[i]);
            }
            ty_plan_free(plan);
            ty_stack_free(stack);
        }
        ty_workload_free(workload);
        ty_cluster_free(cluster);
    }
    cr_expect_eq(refused, 10, "five stacks of two networks have no pipelines; %u", refused);
    ty_names_free(names, count);
}

/* Each refused combination with one that is accepted; those of Megatron are by its validate_args.
 * Norms and activation functions only: Megatron-Core recomputes those of experts, other frameworks
 * those of any layer. */
Test(search, pins_are_checked_against_stacks)
{
    static const char *const workloads[] = {
        "transformer blocks=12 features=64 heads=4 hidden_features=256 vocabulary=100 sequence=16 "
        "positions=16",
        "decoder blocks=2 features=64 heads=4 kv_heads=4 expert_features=64 vocabulary=100 "
        "sequence=16 experts=4 experts_per_token=2"};
    enum { DENSE, EXPERTS };
    static const struct {
        const char *stack, *fix, *why; /* NULL: it can run that */
        int workload;
        bool is_fp16;
    } rows[] = {
        {"trainyard", "pp=2,schedule=gpipe", NULL, DENSE, false},
        {"pytorch-ddp", "pp=2,schedule=gpipe", "has no pp=2: its pp is 1", DENSE, false},
        {"pytorch-ddp", "pp=1,schedule=gpipe", NULL, DENSE, false},
        {"torchtitan", "pp=2,schedule=gpipe", NULL, DENSE, false},
        {"torchtitan", "zero=1", "has no zero=1: its zero is 0, 2, 3", DENSE, false},
        {"pytorch-fsdp", "cp=2", "stack pytorch-fsdp has no cp=2: its cp is 1", DENSE, false},
        {"pytorch-fsdp", "recompute=elementwise", NULL, DENSE, false},
        {"megatron", "recompute=elementwise",
         "has no recompute=elementwise: its recompute is none, selective, full", DENSE, false},
        {"megatron", "recompute=elementwise", NULL, EXPERTS, false},
        {"megatron", "tp=2,sp=0", "2 tensor-parallel ranks without it", EXPERTS, false},
        {"maxtext", "tp=2,sp=0", NULL, EXPERTS, false},
        {"megatron", "tp=2,sp=1", NULL, EXPERTS, false},
        {"megatron", "tp=2", NULL, EXPERTS, false},
        {"megatron", "tp=2,sp=0", NULL, DENSE, false},
        {"megatron", "ep=4", "no expert parallelism in fp16; found 4", EXPERTS, true},
        {"maxtext", "ep=4", NULL, EXPERTS, true},
        {"megatron", "ep=4", NULL, EXPERTS, false},
        {"megatron", "ep=1", NULL, EXPERTS, true},
        {"megatron", "recompute=full:5", "found 12 blocks, 1 of such stages, and 5", DENSE, false},
        {"maxtext", "recompute=full:5", NULL, DENSE, false},
        {"megatron", "recompute=full:4", NULL, DENSE, false},
        {"megatron", "recompute=full:4,pp=2", "found 12 blocks, 2 of such stages, and 4", DENSE,
         false},
        {"megatron", "recompute=full:3,pp=2", NULL, DENSE, false},
        {"megatron", "recompute=full,pp=5", NULL, DENSE, false},
        {"megatron", "recompute=stage,pp=5", "found 12 blocks, 5 of such stages, and 0 (a stage)",
         DENSE, false},
        {"megatron", "recompute=stage,pp=6", NULL, DENSE, false},
        {"megatron", "replicas=2+1", "has no replicas=2+1: its replicas is equal", DENSE, false},
        {"megatron", "replicas=2+2", NULL, DENSE, false},
        {"megatron", "staleness=1", "has no staleness=1: its staleness is 0", DENSE, false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_workload *workload = open_workload(workloads[rows[i].workload]);
        ty_stack *stack = NULL;
        ty_pins pins = {0};
        ty_error error = {0};
        cr_assert_eq(ty_stack_open(rows[i].stack, &stack, &error), TY_OK, "%s", error.message);
        pin(&pins, "%s", rows[i].fix);
        cr_expect_eq(ty_stack_check(stack, &pins, workload, rows[i].is_fp16, &error),
                     rows[i].why == NULL ? TY_OK : TY_EINVAL, "%s %s: %s", rows[i].stack,
                     rows[i].fix, error.message);
        cr_expect(rows[i].why == NULL || strstr(error.message, rows[i].why) != NULL, "%s %s: %s",
                  rows[i].stack, rows[i].fix, error.message);
        ty_stack_free(stack);
        ty_workload_free(workload);
    }
}

Test(search, compression_is_proposed_where_it_helps)
{
    ty_workload *resnet = open_workload("resnet50");
    ty_plan_options options = ty_plan_options_default();
    ty_cluster *one = open_cluster("1x dgx-a100"), *many = open_cluster(clusters[1]);
    ty_plan *plan = search(resnet, one, &options);

    for (uint32_t c = 0; c < plan->candidate_count; c++)
        cr_expect(strncmp(plan->candidates[c].name, "data parallel", 13) != 0 ||
                      strstr(plan->candidates[c].name, "fp16") == NULL,
                  "%s: over NVLink there is nothing to gain", plan->candidates[c].name);
    ty_plan_free(plan);
    for (int is_lossy = 0; is_lossy < 2; is_lossy++) {
        bool has_fp16 = false, has_top_k = false;
        options.allow_lossy = is_lossy;
        plan = search(resnet, many, &options);
        for (uint32_t c = 0; c < plan->candidate_count; c++) {
            has_fp16 = has_fp16 || strstr(plan->candidates[c].name, "fp16") != NULL;
            has_top_k = has_top_k || strstr(plan->candidates[c].name, "top-k") != NULL;
        }
        cr_expect(has_fp16, "over 25 GbE there is");
        cr_expect_eq(has_top_k, is_lossy);
        ty_plan_free(plan);
    }
    ty_cluster_free(one);
    ty_cluster_free(many);
    ty_workload_free(resnet);
}

Test(search, nonsense_is_refused)
{
    static const struct {
        const char *fix;
        ty_plan_options options;
        const char *message;
    } rows[] = {
        {"micro_batch=3", {0}, "a global batch of 256 cannot be cut into micro-batches of 3"},
        {"micro_batch=512", {0}, "cannot be cut into micro-batches of 512"},
        {"pp=17", {0}, "17 pipeline stages need 17 devices, the cluster has 16"},
        {"replicas=8+4", {0}, "replicas: '8+4' needs 12 devices"},
        {"replicas=8+9", {0}, "replicas: '8+9' needs 17 devices"},
        {"replicas=4294967295", {0}, "needs 4294967295 devices"},
        {"pp=3,replicas=8+8", {0}, "3 pipeline stages were asked for"},
        {"replicas=10+6", {0}, "the 10 of stage 0 do not share 256 micro-batches evenly"},
        {"replicas=8+8,micro_batch=64",
         {0},
         "the 8 of stage 0 do not share 4 micro-batches evenly"},
        {"compression=fp16,pp=16", {0}, "exchange no gradients: nothing is there for fp16"},
        {"",
         {.pins = {.axes = TY_AXIS(COMPRESSION), .compression.kind = TY_COMPRESSION_TOP_K}},
         "compression: found ratio 0 for top-k, expected more than 0"},
        {"",
         {.pins = {.axes = TY_AXIS(COMPRESSION), .compression.kind = (ty_compression_kind)99}},
         "has no compression=unknown"},
        {"", {.pins = {.staleness = 65}}, "staleness: found 65, expected at most 64"},
        {"staleness=1,pp=16", {0}, "staleness: found 1, expected 0: no stage has replicas"},
        {"staleness=2,schedule=pipedream",
         {0},
         "staleness: found 2, expected 0: gradients of that schedule are late already"},
        {"staleness=1,zero=1", {0}, "staleness: found 1, expected 0: with ZeRO"},
        {"", {.seed = (uint64_t)1 << 53}, "seed: found 9007199254740992, expected less than 2^53"},
        {"", {.simulate_top = 3}, "3 finalists are to be simulated, but nothing does that"},
    };
    ty_workload *vgg = open_workload("vgg16"), *mlp = open_workload("mlp");
    ty_cluster *cluster = open_cluster(clusters[0]);
    ty_plan_options small = {.global_batch = 8};
    ty_plan *plan = NULL;
    ty_error error = {0};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_plan_options o = rows[i].options;
        pin(&o.pins, "%s", rows[i].fix);
        cr_expect_eq(ty_plan_search(vgg, cluster, NULL, &o, &plan, &error), TY_EINVAL, "%s",
                     rows[i].message);
        cr_expect(strstr(error.message, rows[i].message) != NULL, "found \"%s\", expected \"%s\"",
                  error.message, rows[i].message);
        cr_expect_null(plan);
    }
    cr_expect_eq(ty_plan_search(mlp, cluster, NULL, &small, &plan, &error), TY_EINVAL);
    cr_expect(strstr(error.message, "a global batch of 8 is too small for 16 devices: ask for at "
                                    "least 16") != NULL,
              "%s", error.message);
    ty_cluster_free(cluster);
    ty_workload_free(vgg);
    ty_workload_free(mlp);
}

/* ---- Exhaustive enumeration --------------------------------------------------- */

typedef struct enumeration {
    const ty_plan *chain;
    const ty_cluster *cluster;
    uint32_t stages, first_layers[DEVICES + 1], replicas[DEVICES + 1];
    char best[100];
    uint32_t plans;
    double best_s;
} enumeration;

static ty_plan *toy_plan(const enumeration *e, uint32_t micro_batches, ty_schedule schedule,
                         ty_algorithm algorithm)
{
    ty_plan *plan = NULL;
    uint32_t device = 0;

    cr_assert_eq(ty_plan_copy(e->chain, &plan, NULL), TY_OK);
    ty_free(plan->stages[0].devices);
    ty_free(plan->stages);
    ty_free(plan->buckets);
    plan->schedule = schedule;
    plan->micro_batches = micro_batches;
    plan->micro_batch_size = CHAIN_BATCH / micro_batches;
    plan->global_batch = CHAIN_BATCH;
    plan->stage_count = plan->bucket_count = e->stages;
    plan->stages = ty_alloc(e->stages, sizeof *plan->stages);
    plan->buckets = ty_alloc(e->stages, sizeof *plan->buckets);
    for (uint32_t s = 0; s < e->stages; s++) {
        ty_plan_stage *stage = &plan->stages[s];
        ty_bucket *bucket = &plan->buckets[s];
        uint32_t end = s + 1 < e->stages ? e->first_layers[s + 1] : CHAIN_LAYERS;
        stage->first_layer = e->first_layers[s];
        stage->layer_count = end - e->first_layers[s];
        stage->replicas = e->replicas[s];
        stage->devices = ty_alloc(stage->replicas, sizeof *stage->devices);
        for (uint32_t r = 0; r < stage->replicas; r++)
            stage->devices[r] = device++;
        *bucket = (ty_bucket){.stage = s,
                              .first_layer = stage->first_layer,
                              .layer_count = stage->layer_count,
                              .tied_stage = TY_NO_STAGE,
                              .algorithm = algorithm};
        bucket->gradient_bytes = ty_bucket_gradient_bytes(plan, bucket);
    }
    return plan;
}

static double step_time(const ty_plan *plan, const ty_cluster *cluster)
{
    ty_program *program = NULL;
    ty_costs *costs = NULL;
    ty_timeline *timeline = NULL;
    ty_step_summary summary;
    ty_error error = {0};

    cr_assert_eq(ty_plan_lower(plan, &program, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_costs_of_program(plan, program, cluster, &costs, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_estimate(plan, program, costs, 3, &timeline, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_timeline_summarize(plan, program, timeline, &summary, &error), TY_OK, "%s",
                 error.message);
    ty_timeline_free(timeline);
    ty_costs_free(costs);
    ty_program_free(program);
    return summary.step_time_s;
}

static void try_division(enumeration *e)
{
    for (uint32_t m = 1; m <= CHAIN_BATCH; m++) {
        bool is_shared = CHAIN_BATCH % m == 0;
        for (uint32_t s = 0; s < e->stages; s++)
            is_shared = is_shared && m % e->replicas[s] == 0;
        for (int schedule = 0; is_shared && schedule <= TY_ONE_F_ONE_B; schedule++)
            for (int algorithm = 0; algorithm <= TY_TREE; algorithm++) {
                ty_plan *plan = toy_plan(e, m, (ty_schedule)schedule, (ty_algorithm)algorithm);
                double seconds = step_time(plan, e->cluster);
                if (seconds < e->best_s) {
                    e->best_s = seconds;
                    snprintf(e->best, sizeof e->best, "%s, %u micro-batches, stages at",
                             ty_schedule_name((ty_schedule)schedule), m);
                    for (uint32_t s = 0; s < e->stages; s++)
                        snprintf(e->best + strlen(e->best), sizeof e->best - strlen(e->best),
                                 " %u x %u", e->first_layers[s], e->replicas[s]);
                }
                e->plans++;
                ty_plan_free(plan);
            }
    }
}

/* All partitions of the layers from `first` on, from stage `stage` on, with `devices` left. */
static void divide(enumeration *e, uint32_t stage, uint32_t first, uint32_t devices)
{
    e->first_layers[stage] = first;
    for (uint32_t r = 1; r <= devices; r++) {
        e->replicas[stage] = r;
        if (r == devices) {
            e->stages = stage + 1;
            try_division(e);
            continue;
        }
        for (uint32_t next = first + 1; next < CHAIN_LAYERS; next++)
            divide(e, stage + 1, next, devices - r);
    }
}

/* One bucket per stage and no compression, so that both spaces are the same. The search evaluates a
 * few partitions for each number of stages, so that it sometimes misses the best one by a
 * little. */
#define ROUNDS 25
Test(search, as_good_as_enumeration)
{
    random_numbers numbers = {20240607};
    double worst = 1;
    int optimal = 0;

    for (int round = 0; round < ROUNDS; round++) {
        ty_plan *chain = random_chain(&numbers);
        double net = round % 2 == 0 ? 1e9 : 1e10;
        ty_cluster *cluster = small_cluster(1ull << 36, 1e10, net);
        enumeration e = {.chain = chain, .cluster = cluster, .best_s = HUGE_VAL};
        ty_plan_options options = {0};
        ty_plan *plan;
        double found_s;

        pin(&options.pins, "bucket=1024GiB,compression=none");
        plan = search(chain->workload, cluster, &options);
        found_s = plan->prediction.step_time_s;
        divide(&e, 0, 0, DEVICES);
        cr_expect_gt(e.plans, 300);
        cr_expect_leq(found_s, e.best_s * 1.02,
                      "round %d: found %.6g s (%s), the best is %.6g s (%s)", round, found_s,
                      plan->candidates[0].name, e.best_s, e.best);
        cr_expect_geq(found_s, e.best_s * (1 - 1e-9), "round %d: better than everything", round);
        worst = fmax(worst, found_s / e.best_s);
        optimal += found_s <= e.best_s * (1 + 1e-9);
        ty_plan_free(plan);
        ty_cluster_free(cluster);
        ty_plan_free(chain);
    }
    cr_expect_geq(optimal, ROUNDS * 9 / 10);
    cr_log_info("%d of %d answers are the best, the worst takes %.4f times as long", optimal,
                ROUNDS, worst);
}

/* ---- Memory, interruption ---------------------------------------------------------------- */

Test(search, too_little_memory_is_told)
{
    random_numbers numbers = {3};
    ty_plan *chain = random_chain(&numbers), *plan = NULL;
    ty_plan_options options = ty_plan_options_default();
    /* Less than the workspace, and slightly more. With the second size every partition fails the
     * first check; with the first size all pass it. */
    const uint64_t sizes[] = {1u << 20, (64u << 20) + (1u << 16)};

    options.memory_reserve = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ty_cluster *cluster = small_cluster(sizes[i], 1e10, 1e9);
        ty_error error = {0};
        char expected[32], need_text[32], missing_text[32];
        unsigned stage = 99;
        const char *at;
        cr_assert_eq(ty_plan_search(chain->workload, cluster, NULL, &options, &plan, &error),
                     TY_EINFEASIBLE);
        cr_expect_null(plan);
        cr_expect(strstr(error.message, "chain does not fit: the closest plan (") != NULL, "%s",
                  error.message);
        at = strstr(error.message, "needs ");
        cr_assert_not_null(at);
        cr_assert_eq(sscanf(at, "needs %31[0-9.] %*s a device and misses %31[0-9.] %*s on stage %u",
                            need_text, missing_text, &stage),
                     3, "%s", error.message);
        cr_expect_lt(stage, 4);
        /* Required minus missing memory is a device's memory. */
        ty_format_memory(atof(need_text) * 1048576 - (double)sizes[i], expected);
        cr_expect_float_eq(
            atof(need_text) - atof(missing_text) * (strstr(at, "KiB on stage") ? 1.0 / 1024 : 1),
            (double)sizes[i] / 1048576, 0.6, "%s (about %s)", error.message, expected);
        ty_cluster_free(cluster);
    }
    ty_plan_free(chain);
}

/* Stale gradients need memory that synchronous ones do not. */
Test(search, too_late_for_the_memory_is_told)
{
    ty_workload *vgg = open_workload("vgg16");
    ty_cluster *cluster = open_cluster("host:2 gpu:2 @v100-sxm2-16gb nvlink2 eth10 nics=2");
    ty_plan_options options = {0};
    ty_plan *plan = NULL;
    ty_error error = {0};

    pin(&options.pins, "staleness=40,pp=1");
    cr_expect_eq(ty_plan_search(vgg, cluster, NULL, &options, &plan, &error), TY_EINFEASIBLE);
    cr_expect_not_null(strstr(error.message, "vgg16 does not fit: the closest plan (data parallel"),
                       "%s", error.message);
    cr_expect_not_null(strstr(error.message, "staleness 40"), "%s", error.message);
    pin(&options.pins, "staleness=1");
    plan = search(vgg, cluster, &options);
    cr_expect_eq(plan->staleness, 1);
    ty_plan_free(plan);
    ty_cluster_free(cluster);
    ty_workload_free(vgg);
}

/* A batch whose divisors do not match the number of devices. */
Test(search, no_division_is_told)
{
    random_numbers numbers = {4};
    ty_plan *chain = random_chain(&numbers), *plan = NULL;
    ty_cluster *cluster = small_cluster(1ull << 36, 1e10, 1e9);
    ty_plan_options options = {.global_batch = 7};
    ty_error error = {0};

    pin(&options.pins, "pp=1");
    cr_expect_eq(ty_plan_search(chain->workload, cluster, NULL, &options, &plan, &error),
                 TY_EINFEASIBLE);
    cr_expect(strstr(error.message, "no way to divide chain with a global batch of 7 over 4 "
                                    "devices") != NULL,
              "%s", error.message);
    ty_cluster_free(cluster);
    ty_plan_free(chain);
}

typedef struct patience {
    int polls, most;
} patience;

static bool is_out_of_patience(void *context)
{
    patience *p = context;
    return ++p->polls > p->most;
}

Test(search, interruption_returns_the_best_so_far)
{
    ty_workload *resnet = open_workload("resnet50");
    ty_cluster *cluster = open_cluster(clusters[0]);
    ty_plan_options options = ty_plan_options_default();
    ty_plan *whole = search(resnet, cluster, &options);

    for (int most = 0; most < 40; most += 3) {
        patience p = {.most = most};
        ty_plan *plan;
        uint32_t estimated = 0;
        options.should_stop = is_out_of_patience;
        options.stop_context = &p;
        plan = search(resnet, cluster, &options);
        expect_good_plan(plan, cluster);
        for (uint32_t c = 0; c < plan->candidate_count; c++)
            estimated += plan->candidates[c].peak_memory_bytes > 0;
        cr_expect_leq(estimated, (uint32_t)most + 1, "%u after %d polls", estimated, most);
        cr_expect_geq(plan->prediction.step_time_s, whole->prediction.step_time_s);
        ty_plan_free(plan);
    }
    ty_plan_free(whole);
    ty_cluster_free(cluster);
    ty_workload_free(resnet);
}

/* Interrupted before any plan fits: returns neither a plan nor the refusal of a complete search. */
Test(search, interrupted_search_without_a_fit_ends)
{
    ty_workload *llama = open_workload("llama-2-70b");
    ty_cluster *cluster = open_cluster(clusters[0]);
    ty_plan_options options = ty_plan_options_default();
    patience p = {.most = 0};
    ty_plan *plan = NULL;
    ty_error error = {0};

    options.should_stop = is_out_of_patience;
    options.stop_context = &p;
    cr_expect_eq(ty_plan_search(llama, cluster, NULL, &options, &plan, &error), TY_EINTERRUPTED,
                 "%s", error.message);
    cr_expect_null(plan);
    ty_cluster_free(cluster);
    ty_workload_free(llama);
}

/* ---- Simulated finalists ----------------------------------------------------------------- */

/* A simulator in which everything but GPipe takes twice as long, and which counts calls. */
static ty_status prefer_gpipe(void *context, const ty_plan *plan, const ty_program *program,
                              const ty_costs *costs, ty_step_summary *summary, ty_error *error)
{
    ty_timeline *timeline = NULL;
    ty_status status;

    ++*(uint32_t *)context;
    TY_CHECK(ty_estimate(plan, program, costs, 3, &timeline, error), status, done);
    TY_CHECK(ty_timeline_summarize(plan, program, timeline, summary, error), status, done);
    if (plan->stage_count == 1 || plan->schedule != TY_GPIPE)
        summary->step_time_s *= 2;
done:
    ty_timeline_free(timeline);
    return status;
}

static ty_status interrupted_simulator(void *context, const ty_plan *plan,
                                       const ty_program *program, const ty_costs *costs,
                                       ty_step_summary *summary, ty_error *error)
{
    uint32_t *count = context;
    if (*count > 0)
        return ty_fail(error, TY_EINTERRUPTED, "interrupted");
    return prefer_gpipe(context, plan, program, costs, summary, error);
}

static ty_status broken_simulator(void *context, const ty_plan *plan, const ty_program *program,
                                  const ty_costs *costs, ty_step_summary *summary, ty_error *error)
{
    (void)context, (void)plan, (void)program, (void)costs, (void)summary;
    return ty_fail(error, TY_EBACKEND, "the simulator is broken");
}

Test(search, the_simulator_has_the_last_word)
{
    ty_workload *resnet = open_workload("resnet50");
    ty_cluster *cluster = open_cluster(clusters[1]);
    uint32_t simulated = 0, rows = 0;
    ty_plan_options options = {
        .simulate_top = 8, .simulate = prefer_gpipe, .simulate_context = &simulated};
    ty_plan *plan = search(resnet, cluster, &options);
    ty_plan *other = NULL;
    ty_error error = {0};

    cr_expect(simulated > 1 && simulated <= 8, "%u", simulated);
    cr_expect_eq(plan->schedule, TY_GPIPE);
    cr_expect_gt(plan->stage_count, 1);
    cr_expect_eq(plan->simulation.step_time_s, plan->prediction.step_time_s);
    for (uint32_t c = 0; c < plan->candidate_count; c++)
        rows += plan->candidates[c].simulated_step_time_s > 0;
    cr_expect_eq(rows, simulated);
    for (uint32_t a = 0; a < plan->candidate_count; a++)
        cr_expect(plan->candidates[a].simulated_step_time_s <= 0 ||
                      plan->candidates[a].simulated_step_time_s >=
                          plan->candidates[0].simulated_step_time_s,
                  "row %u", a);
    simulated = 0;
    options.simulate = interrupted_simulator;
    other = search(resnet, cluster, &options);
    cr_expect_gt(other->simulation.step_time_s, 0, "the one that was simulated");
    cr_expect_eq(other->stage_count, 1, "%s", other->strategy);
    ty_plan_free(other);
    other = NULL;
    options.simulate = broken_simulator;
    cr_expect_eq(ty_plan_search(resnet, cluster, NULL, &options, &other, &error), TY_EBACKEND);
    cr_expect_str_eq(error.message, "the simulator is broken");
    cr_expect_null(other);
    ty_plan_free(plan);
    ty_cluster_free(cluster);
    ty_workload_free(resnet);
}

/* Layouts that were simulated, by their description. */
typedef struct simulations {
    char strategies[8][256];
    uint32_t count;
    double factor; /* relative to the estimate; 0: it takes too long */
} simulations;

static ty_status by_factor(void *context, const ty_plan *plan, const ty_program *program,
                           const ty_costs *costs, ty_step_summary *summary, ty_error *error)
{
    simulations *seen = context;
    ty_status status;

    snprintf(seen->strategies[seen->count % 8], sizeof seen->strategies[0], "%s, %u micro-batches",
             plan->strategy, plan->micro_batches);
    seen->count++;
    if (!(seen->factor > 0))
        return ty_fail(error, TY_ELIMIT, "it would take 9 s");
    status = ty_estimate_summary(plan, program, costs, 3, summary, error);
    summary->step_time_s *= seen->factor;
    return status;
}

static void keep_line(void *context, const char *line)
{
    snprintf(context, 256, "%s", line);
}

/* One simulation, of the answer, unless it makes the answer slower than another estimate; no layout
 * twice; and an estimate if simulation takes too long. */
Test(search, simulates_its_answer)
{
    static const double factors[] = {1.0, 1.5, 0.0};
    ty_workload *llama = open_workload("llama-3.1-70b");
    ty_cluster *cluster = open_cluster("8x dgx-h100");

    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        simulations seen = {.factor = factors[i]};
        char line[256] = "";
        ty_plan_options options = ty_plan_options_default();
        options.global_batch = 512;
        options.tolerance = TY_USUAL_TOLERANCE;
        options.simulate_top = 8;
        options.simulate = by_factor;
        options.simulate_context = &seen;
        options.note = keep_line;
        options.note_context = line;
        ty_plan *plan = search(llama, cluster, &options);
        if (factors[i] > 1)
            cr_expect(seen.count > 1 && seen.count <= 8, "%u", seen.count);
        else
            cr_expect_eq(seen.count, 1);
        for (uint32_t a = 0; a < seen.count; a++)
            for (uint32_t b = 0; b < a; b++)
                cr_expect_str_neq(seen.strategies[a], seen.strategies[b]);
        cr_expect_float_eq(plan->simulation.step_time_s / plan->prediction.step_time_s, factors[i],
                           1e-6, "%g of %g s", plan->simulation.step_time_s,
                           plan->prediction.step_time_s);
        cr_expect_eq(strstr(line, "the step time is an estimate: it would take 9 s") != NULL,
                     !(factors[i] > 0), "%s", line);
        ty_plan_free(plan);
    }
    ty_cluster_free(cluster);
    ty_workload_free(llama);
}

/* ---- Failing memory ---------------------------------------------------------------------- */

Test(search, survives_failing_allocations)
{
    random_numbers numbers = {5};
    ty_plan *chain = random_chain(&numbers), *plan = NULL;
    ty_cluster *cluster = small_cluster(1ull << 36, 1e10, 1e9);
    ty_cluster *tiny = small_cluster(1u << 20, 1e10, 1e9);
    const struct {
        const ty_cluster *cluster;
        const char *fix;
        ty_status end;
    } rows[] = {
        {cluster, "micro_batch=4,pp=2", TY_OK},
        {cluster, "micro_batch=8,replicas=2+2", TY_OK},
        {tiny, "micro_batch=4,pp=2", TY_EINFEASIBLE},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_status status = TY_ENOMEM;
        ty_plan_options options = {0};
        long n;
        pin(&options.pins, "%s", rows[i].fix);
        for (n = 1; status == TY_ENOMEM; n += 1 + n / 200) {
            ty_error error = {0};
            ty_memory_fail_after(n);
            status =
                ty_plan_search(chain->workload, rows[i].cluster, NULL, &options, &plan, &error);
            ty_memory_fail_after(0);
            cr_assert(status == rows[i].end || status == TY_ENOMEM, "allocation %ld: %d, %s", n,
                      (int)status, error.message);
            cr_assert_neq(error.message[0] == '\0', status != TY_OK, "allocation %ld", n);
            cr_assert_eq(plan == NULL, status != TY_OK);
        }
        cr_expect_gt(n, 200);
        ty_plan_free(plan);
        plan = NULL;
    }
    ty_cluster_free(cluster);
    ty_cluster_free(tiny);
    ty_plan_free(chain);
}

/* ---- Compressors ------------------------------------------------------------------------- */

/* Every kind can be requested. The resulting plan has a program that the checker accepts and costs
 * that the estimator supports. */
Test(search, every_compressor_can_be_fixed)
{
    static const char *const specs[] = {"none",          "fp16",
                                        "bf16",          "fp8-e4m3",
                                        "fp8-e5m2",      "int8",
                                        "ternary",       "one-bit",
                                        "top-k:0.01",    "top-k-sampled:0.01",
                                        "random-k:0.01", "dgc:0.001:100:2",
                                        "powersgd-2"};
    ty_workload *vgg = open_workload("vgg16");
    ty_cluster *cluster = open_cluster(clusters[1]);

    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        ty_plan_options o = {0};
        ty_plan *plan;
        pin(&o.pins, "pp=1,bucket=25MiB,compression=%s", specs[i]);
        plan = search(vgg, cluster, &o);
        expect_good_plan(plan, cluster);
        for (uint32_t b = 0; b < plan->bucket_count; b++)
            cr_expect(ty_compression_equals(&plan->buckets[b].compression, &o.pins.compression),
                      "%s", specs[i]);
        ty_plan_free(plan);
    }
    ty_cluster_free(cluster);
    ty_workload_free(vgg);
}

/* ---- Embeddings as rows ------------------------------------------------------------------ */

/* A decoder whose embedding has half of the weights, `vocabulary` rows; batch 32, 4 samples per
 * replica, 8 replicas. */
static ty_workload *wordy(unsigned vocabulary, bool is_tied, bool is_frozen)
{
    static const char format[] =
        "{\"schema\": \"trainyard.zoo/1\", \"name\": \"wordy\", \"family\": \"transformer\","
        "\"source\": \"made up\", \"blocks\": 2, \"features\": 256, \"heads\": 4,"
        "\"hidden_features\": 1024, \"vocabulary\": %u, \"positions\": 64, \"sequence\": 64,"
        "\"is_tied\": %s, %s \"token_bytes\": 2, \"dataset\": \"synthetic\", \"global_batch\": 32,"
        "\"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.01, \"momentum\": 0.9,"
        "\"weight_decay\": 0}}";
    char text[1024], path[] = "/tmp/wordyXXXXXX";
    const int file = mkstemp(path);
    ty_workload *workload;

    snprintf(text, sizeof text, format, vocabulary, is_tied ? "true" : "false",
             is_frozen ? "\"frozen_through\": \"embedding\"," : "");
    cr_assert(file >= 0 && close(file) == 0);
    cr_assert_eq(ty_file_write(path, text, strlen(text), NULL), TY_OK);
    workload = open_workload(path);
    remove(path);
    return workload;
}

static uint32_t rows_of(const ty_plan *plan)
{
    uint32_t count = 0;

    for (uint32_t b = 0; b < plan->bucket_count; b++)
        count += plan->buckets[b].compression.kind == TY_COMPRESSION_ROWS;
    return count;
}

/* The candidate that differs from the chosen one only in its embeddings, or NULL. */
static const ty_candidate *dense_candidate(const ty_plan *plan)
{
    char name[256];

    snprintf(name, sizeof name, "%s, dense embeddings", plan->candidates[0].name);
    for (uint32_t c = 1; c < plan->candidate_count; c++)
        if (strcmp(plan->candidates[c].name, name) == 0)
            return &plan->candidates[c];
    return NULL;
}

/* 30000 rows, where a replica's 256 tokens touch few of them; the same with 200 rows; a tied
 * embedding; and a frozen one. The candidate without row compression shows its gain. */
Test(search, embeddings_travel_as_rows_where_that_is_shorter)
{
    static const struct {
        unsigned vocabulary;
        bool is_tied, is_frozen, has_rows;
    } cases[] = {{30000, false, false, true},
                 {200, false, false, false},
                 {30000, true, false, false},
                 {30000, false, true, false}};
    ty_cluster *cluster = open_cluster("2x p100-server");

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ty_workload *w = wordy(cases[i].vocabulary, cases[i].is_tied, cases[i].is_frozen);
        ty_plan_options o = {.pins = {.axes = TY_AXIS(PP), .pipeline_stages = 1}};
        ty_plan *plan = search(w, cluster, &o), *dense;
        const ty_candidate *other = dense_candidate(plan);
        expect_good_plan(plan, cluster);
        cr_expect_eq(rows_of(plan), cases[i].has_rows ? 1 : 0, "case %zu", i);
        cr_expect_eq(other != NULL, cases[i].has_rows, "case %zu", i);
        if (other != NULL)
            cr_expect(other->step_time_s > plan->candidates[0].step_time_s, "%s: %s", other->name,
                      other->reason);
        pin(&o.pins, "compression=none");
        dense = search(w, cluster, &o);
        cr_expect_eq(rows_of(dense), 0, "rows of %zu were not asked for", i);
        cr_expect(!cases[i].has_rows ||
                      dense->prediction.step_time_s > plan->prediction.step_time_s,
                  "case %zu: %g s dense, %g s", i, dense->prediction.step_time_s,
                  plan->prediction.step_time_s);
        ty_plan_free(plan);
        ty_plan_free(dense);
        ty_workload_free(w);
    }
    ty_cluster_free(cluster);
}

/* Table by table: with millions of rows, a replica's 16 samples touch 16; with a few rows, all of
 * them. */
Test(search, tables_of_clicks_travel_as_rows_each_by_itself)
{
    ty_workload *w = open_workload("dlrm-kaggle");
    ty_cluster *cluster = open_cluster("2x p100-server");
    ty_plan_options o = {
        .pins = {.axes = TY_AXIS(PP) | TY_AXIS(EP) | TY_AXIS(TABLES), .pipeline_stages = 1}};
    ty_plan *plan = search(w, cluster, &o), *dense;
    uint32_t large = 0, small = 0;

    expect_good_plan(plan, cluster);
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        const bool is_rows = bucket->compression.kind == TY_COMPRESSION_ROWS;
        for (uint32_t l = bucket->first_layer; l < bucket->first_layer + bucket->layer_count; l++) {
            const uint64_t rows = w->layers[l].attributes[TY_VOCABULARY];
            cr_expect(!is_rows || w->layers[l].kind == TY_LAYER_EMBEDDING_BAG, "%s",
                      w->layers[l].name);
            cr_expect(rows < 1000000 || is_rows, "%s is dense", w->layers[l].name);
            cr_expect(rows == 0 || rows > 30 || !is_rows, "%s travels as rows", w->layers[l].name);
            large += rows >= 1000000;
            small += rows > 0 && rows <= 30;
        }
        if (is_rows)
            cr_expect_eq(ty_bucket_extent(plan, bucket).row_room, 16);
    }
    cr_expect_eq(large, 5);
    cr_expect_eq(small, 7);
    pin(&o.pins, "embeddings=dense");
    dense = search(w, cluster, &o);
    cr_expect_eq(rows_of(dense), 0);
    cr_expect_gt(dense->prediction.step_time_s, 2 * plan->prediction.step_time_s);
    ty_plan_free(plan);
    ty_plan_free(dense);
    ty_workload_free(w);
    ty_cluster_free(cluster);
}

/* Half a billion numbers in tables, where a sample reads a few hundred: over slow links they are
 * sharded, and no plan without sharding is as fast. Tables that fit no device are sharded, too. */
Test(search, tables_of_clicks_on_ranks)
{
    ty_workload *w = open_workload("dlrm-kaggle");
    ty_cluster *cluster = open_cluster("2x p100-server");
    ty_plan_options o = {.pins.axes = TY_AXIS(EP) | TY_AXIS(TABLES)};
    ty_plan *whole = search(w, cluster, &o), *plan;

    cr_expect_eq(whole->table_shard, TY_TABLES_WHOLE);
    o.pins.axes = 0;
    plan = search(w, cluster, &o);
    expect_good_plan(plan, cluster);
    cr_expect_neq(plan->table_shard, TY_TABLES_WHOLE, "%s", plan->strategy);
    cr_expect_lt(plan->prediction.step_time_s, whole->prediction.step_time_s);
    ty_plan_free(plan);
    ty_plan_free(whole);
    for (uint32_t l = 0; l < w->layer_count; l++) /* 16 times the width: 35 GB of weights */
        if (w->layers[l].kind == TY_LAYER_EMBEDDING_BAG) {
            w->layers[l].attributes[TY_VOCABULARY] *= 16;
            w->layers[l].parameter_bytes *= 16;
        }
    plan = search(w, cluster, &o);
    cr_expect_neq(plan->table_shard, TY_TABLES_WHOLE, "%s", plan->strategy);
    for (uint32_t s = 0; s < plan->stage_count; s++)
        cr_expect_leq(ty_memory_use_total(&plan->memory[s]),
                      ty_cluster_device_type(cluster, 0)->memory_bytes, "%s", plan->strategy);
    ty_plan_free(plan);
    ty_workload_free(w);
    ty_cluster_free(cluster);
}

/* Pinned row compression is used at any cost; if no gradient can be rows, an error is reported. */
Test(search, rows_can_be_fixed)
{
    ty_plan_options o = {
        .pins = {.axes = TY_AXIS(COMPRESSION), .compression.kind = TY_COMPRESSION_ROWS}};
    ty_cluster *cluster = open_cluster("2x p100-server"), *hosts = open_cluster("2x dgx-h100");
    ty_workload *few = wordy(200, false, false), *tied = wordy(200, true, false),
                *vgg = open_workload("vgg16"), *gnmt = open_workload("gnmt-8"),
                *experts = open_workload("mixtral-8x7b sequence=1024");
    ty_plan *plan = search(few, cluster, &o), *none = NULL;
    ty_error error = {0};

    expect_good_plan(plan, cluster);
    cr_expect_eq(rows_of(plan), 1);
    ty_plan_free(plan);
    pin(&o.pins, "pp=1");
    plan = search(gnmt, cluster, &o);
    expect_good_plan(plan, cluster);
    cr_expect_eq(rows_of(plan), 2, "both embeddings of gnmt-8");
    ty_plan_free(plan);
    cr_expect_eq(ty_plan_search(vgg, cluster, NULL, &o, &none, &error), TY_EINVAL);
    cr_expect(strstr(error.message, "nothing of vgg16 can travel as rows: it has no embedding") !=
                  NULL,
              "%s", error.message);
    cr_expect_eq(ty_plan_search(tied, cluster, NULL, &o, &none, &error), TY_EINVAL);
    cr_expect(strstr(error.message, "expected an embedding that is not tied") != NULL, "%s",
              error.message);
    pin(&o.pins, "zero=1");
    o.pins.axes |= TY_AXES_OF_DIMENSIONS;
    cr_expect_eq(ty_plan_search(few, cluster, NULL, &o, &none, &error), TY_EINVAL);
    cr_expect(strstr(error.message, "found rows with zero 1") != NULL, "%s", error.message);
    /* a model that fits no device is not tensor-parallel, since that excludes rows */
    o = (ty_plan_options){0};
    pin(&o.pins, "compression=rows");
    plan = search(experts, hosts, &o);
    cr_expect_eq(ty_plan_replica_ranks(plan), 1, "%u ranks", ty_plan_replica_ranks(plan));
    ty_plan_free(plan);
    ty_workload_free(experts);
    ty_cluster_free(hosts);
    ty_workload_free(few);
    ty_workload_free(tied);
    ty_workload_free(vgg);
    ty_workload_free(gnmt);
    ty_cluster_free(cluster);
}

/* Row payloads of all members are in memory. If memory only suffices for dense gradients, the plan
 * uses those instead. */
Test(search, rows_give_way_to_memory)
{
    ty_plan_options o = {.pins = {.axes = TY_AXIS(PP) | TY_AXIS(MICRO_BATCH) | TY_AXIS(BUCKET) |
                                          TY_AXES_OF_DIMENSIONS,
                                  .pipeline_stages = 1,
                                  .micro_batch_size = 8,
                                  .bucket_bytes = 1u << 20}};
    ty_workload *w = wordy(2600, false, false);
    ty_cluster *roomy = small_cluster(1ull << 40, 1e9, 1e8), *tight;
    ty_plan *plan = search(w, roomy, &o), *dense;

    cr_expect_eq(rows_of(plan), 1);
    pin(&o.pins, "compression=none");
    dense = search(w, roomy, &o);
    tight = small_cluster(dense->candidates[0].peak_memory_bytes, 1e9, 1e8);
    cr_assert_gt(plan->candidates[0].peak_memory_bytes, dense->candidates[0].peak_memory_bytes);
    ty_plan_free(plan);
    ty_unpin(&o.pins, TY_AXIS_COMPRESSION);
    plan = search(w, tight, &o);
    cr_expect_eq(rows_of(plan), 0);
    cr_expect(strstr(plan->candidates[0].name, "dense embeddings") != NULL, "%s",
              plan->candidates[0].name);
    expect_good_plan(plan, tight);
    ty_plan_free(plan);
    ty_plan_free(dense);
    ty_cluster_free(roomy);
    ty_cluster_free(tight);
    ty_workload_free(w);
}

/* The seconds of all gradient collectives by the costs of a plan's program, including encodes and
 * decodes. */
static double exchange_s(const ty_plan *plan, const ty_cluster *cluster)
{
    ty_program *program = NULL;
    ty_costs *costs = NULL;
    double sum_s = 0;

    cr_assert_eq(ty_plan_lower(plan, &program, NULL), TY_OK);
    cr_assert_eq(ty_costs_of_program(plan, program, cluster, &costs, NULL), TY_OK);
    for (uint32_t i = 0; i < program->stages[0].instruction_count; i++)
        if (program->stages[0].instructions[i].stream == TY_STREAM_COLLECTIVE)
            sum_s += costs->instructions[0][i].seconds;
    ty_costs_free(costs);
    ty_program_free(program);
    return sum_s;
}

/* The compressor shortens the collectives exactly if the ring is slower than the reported crossover
 * bandwidth. A search without a pin compresses no bucket that would be slower. */
Test(search, crossover_is_where_exchanges_are_equal)
{
    static const char *const specs[] = {"fp16", "int8", "one-bit", "top-k:0.01", "powersgd-4"};
    static const char *const networks[] = {"2x p100-server", "16x dgx-a100"};
    ty_workload *vgg = open_workload("vgg16");
    uint32_t pays = 0, loses = 0;

    for (size_t n = 0; n < sizeof networks / sizeof *networks; n++) {
        ty_cluster *cluster = open_cluster(networks[n]);
        ty_plan_options o = {
            .pins = {.axes = TY_AXIS(PP) | TY_AXIS(COMPRESSION), .pipeline_stages = 1}};
        ty_plan *plan = search(vgg, cluster, &o);
        double plain_s = exchange_s(plan, cluster);
        for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
            ty_compression c;
            double bandwidth, ring, compressed_s;
            cr_assert_eq(ty_compression_parse(specs[i], &c, NULL), TY_OK);
            cr_assert_eq(ty_plan_compression_crossover(plan, cluster, &c, &bandwidth, &ring, NULL),
                         TY_OK);
            for (uint32_t b = 0; b < plan->bucket_count; b++)
                plan->buckets[b].compression = c;
            compressed_s = exchange_s(plan, cluster);
            for (uint32_t b = 0; b < plan->bucket_count; b++)
                plan->buckets[b].compression = (ty_compression){0};
            cr_expect_eq(compressed_s < plain_s, ring < bandwidth,
                         "%s on %s: %g s, plain %g s; crossover %g, ring %g", specs[i], networks[n],
                         compressed_s, plain_s, bandwidth, ring);
            pays += compressed_s < plain_s;
            loses += compressed_s >= plain_s;
        }
        ty_plan_free(plan);
        ty_cluster_free(cluster);
    }
    cr_expect(pays > 0 && loses > 0, "%u pay, %u lose", pays, loses);
    ty_workload_free(vgg);
}

/* ---- Idle devices ------------------------------------------------------------------ */

static double best_step_s(const char *workload, const char *cluster_text, bool may_idle,
                          uint32_t *idle)
{
    ty_workload *w = open_workload(workload);
    ty_cluster *cluster = open_cluster(cluster_text);
    ty_plan_options options = ty_plan_options_default();
    ty_plan *plan;
    double step_s;

    options.idle = may_idle ? TY_IDLE_MAY : TY_IDLE_NEVER;
    plan = search(w, cluster, &options);
    step_s = plan->prediction.step_time_s;
    *idle = plan->idle_devices;
    cr_expect_eq(plan->idle_devices + ty_plan_rank_count(plan), ty_cluster_device_count(cluster),
                 "%s on %s: %u devices idle", workload, cluster_text, plan->idle_devices);
    ty_plan_free(plan);
    ty_cluster_free(cluster);
    ty_workload_free(w);
    return step_s;
}

/* A larger cluster is never slower than a smaller one: the planner may leave hosts idle. */
Test(search, more_hosts_are_never_slower)
{
    static const struct {
        const char *workload, *host;
    } rows[] = {{"mlp", "dgx-a100"},
                {"squeezenet", "gaudi2-server"}, /* 4 of 9 hosts, and 8 are slower than those */
                {"lenet", "p100-server"},
                {"bert-base", "dgx1-v100"},
                {"gpt2", "dgx-a100"},
                {"vgg16", "dgx1-v100"},
                {"gpt-tiny", "dgx-a100"},
                {"bert-large", "dgx1-v100"},
                {"gnmt-8", "dgx1-v100"},
                {"resnet18", "g4dn.12xlarge"},
                {"alexnet", "k80-8-edr"},
                {"bert-base-mlm", "g5.48xlarge"},
                {"resnet50", "dgx1-p100"}};
    enum { MOST_HOSTS = 9, ROWS = sizeof rows / sizeof *rows, QUICK_ROWS = 4 };
    uint32_t plans_with_idle = 0, idle;

    for (size_t r = 0; r < quick_or_all(QUICK_ROWS, ROWS); r++) {
        double last_s = HUGE_VAL;
        for (int hosts = 1; hosts <= MOST_HOSTS; hosts++) {
            char cluster[64];
            double step_s;
            snprintf(cluster, sizeof cluster, "%dx %s", hosts, rows[r].host);
            step_s = best_step_s(rows[r].workload, cluster, true, &idle);
            cr_expect(step_s <= last_s, "%s on %s: %.9g s, on one host fewer %.9g s",
                      rows[r].workload, cluster, step_s, last_s);
            plans_with_idle += idle > 0;
            last_s = step_s;
        }
    }
    cr_expect_gt(plans_with_idle, 10); /* otherwise nothing was tested */
    cr_expect_gt(best_step_s("mlp", "2x dgx-a100", false, &idle),
                 best_step_s("mlp", "1x dgx-a100", false, &idle));
}

/* Half of the cluster's hosts have other devices: no layout suits both. */
Test(search, unlike_hosts_may_be_left_out)
{
    ty_workload *llama = open_workload("llama-2-7b");
    ty_cluster *cluster = open_cluster("2x dgx1-v100 + 2x dgx-a100");
    ty_plan_options options = ty_plan_options_default();
    ty_plan *plan;

    ty_workload_set_precision(llama, TY_PRECISION_BF16); /* which is slow on the V100s */
    options.idle = TY_IDLE_MAY;
    plan = search(llama, cluster, &options);
    cr_expect_gt(plan->idle_devices, 0);
    for (uint32_t s = 0; s < plan->stage_count; s++)
        for (uint32_t d = 0; d < plan->stages[s].replicas * ty_plan_replica_ranks(plan); d++)
            cr_expect_eq(ty_cluster_device_type(cluster, plan->stages[s].devices[d]),
                         ty_cluster_device_type(cluster, 16), "device %u is no A100",
                         plan->stages[s].devices[d]);
    ty_plan_free(plan);
    ty_cluster_free(cluster);
    ty_workload_free(llama);
}

/* An encoder and a decoder are not equal blocks, so that no layouts are enumerated, and the model
 * fits no device. Tensor parallelism is searched all the same, and no pinned TP size is faster. */
Test(search, ranks_where_no_device_holds_the_network)
{
    ty_workload *workload = open_workload("t5-11b");
    ty_cluster *cluster = open_cluster("2x dgx-a100");
    ty_plan_options options = ty_plan_options_default();
    ty_plan *free_plan = NULL, *pinned = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_plan_search(workload, cluster, NULL, &options, &free_plan, &error), TY_OK, "%s",
                 error.message);
    cr_expect_gt(free_plan->tensor_parallel, 1);
    for (uint32_t ranks = 1; ranks <= 8; ranks *= 2) {
        pin(&options.pins, "tp=%u", ranks);
        cr_assert_eq(ty_plan_search(workload, cluster, NULL, &options, &pinned, &error), TY_OK,
                     "%u ranks: %s", ranks, error.message);
        cr_expect_leq(free_plan->prediction.step_time_s,
                      pinned->prediction.step_time_s * (1 + 1e-9), "%u ranks: %g s, free %g s",
                      ranks, pinned->prediction.step_time_s, free_plan->prediction.step_time_s);
        ty_plan_free(pinned);
    }
    ty_plan_free(free_plan);
    ty_cluster_free(cluster);
    ty_workload_free(workload);
}

/* With a tolerance the chosen plan is within it. Each simpler plan, requested by pins, is slower
 * than that or is the chosen plan. */
Test(search, simplest_of_what_is_as_fast)
{
    static const struct {
        const char *workload, *cluster;
        uint32_t batch;
    } rows[] = {{"llama-3-8b", "16x dgx-h100", 1024}, {"llama-2-7b", "4x dgx-a100", 256},
                {"gpt2-xl", "2x dgx1-v100", 128},     {"mixtral-8x7b", "16x dgx-h100", 1024},
                {"bert-large", "2x dgx1-v100", 256},  {"vgg16", "4x p100-server", 256},
                {"gnmt-8", "4x p100-server", 512},    {"gpt3-175b", "64x dgx-a100", 256}};
    const double tolerance = 0.05;
    uint32_t simpler = 0;

    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        ty_workload *workload = open_workload(rows[r].workload);
        ty_cluster *cluster = open_cluster(rows[r].cluster);
        ty_plan_options options = ty_plan_options_default();
        ty_plan *fastest, *answer, *pinned[3] = {NULL};
        ty_error error = {0};
        double limit_s;

        ty_workload_set_precision(workload, TY_PRECISION_BF16);
        options.global_batch = rows[r].batch;
        fastest = search(workload, cluster, &options);
        limit_s = fastest->prediction.step_time_s * (1 + tolerance);
        options.tolerance = tolerance;
        answer = search(workload, cluster, &options);
        cr_expect_leq(answer->prediction.step_time_s, limit_s, "%s", rows[r].workload);
        options.tolerance = 0;
        for (int p = 2; p >= 0; p--) { /* no virtual stages; PP 1; also TP, CP and EP 1 */
            const bool is_so = p == 2 ? ty_plan_virtual_stages(answer) == 1
                               : p == 1
                                   ? answer->stage_count == 1
                                   : answer->stage_count == 1 && ty_plan_replica_ranks(answer) == 1;
            bool is_as_fast;
            options.pins = (ty_pins){0};
            pin(&options.pins, "%s", p == 2 ? "vpp=1" : p == 1 ? "pp=1" : "pp=1,tp=1,cp=1,ep=1");
            is_as_fast =
                ty_plan_search(workload, cluster, NULL, &options, &pinned[p], &error) == TY_OK &&
                pinned[p]->prediction.step_time_s <= limit_s;
            cr_expect(!is_as_fast || is_so, "%s on %s: %d is as fast", rows[r].workload,
                      rows[r].cluster, p);
            ty_plan_free(pinned[p]);
        }
        simpler += answer->prediction.step_time_s > fastest->prediction.step_time_s;
        for (uint32_t c = 1; c < answer->candidate_count; c++)
            if (answer->candidates[c].step_time_s > 0 &&
                answer->candidates[c].step_time_s < answer->prediction.step_time_s * 0.999)
                cr_expect(strstr(answer->candidates[c].reason, "faster, less simple") != NULL ||
                              strstr(answer->candidates[c].reason, "not estimated") != NULL,
                          "%s", answer->candidates[c].reason);
        ty_plan_free(answer);
        ty_plan_free(fastest);
        ty_cluster_free(cluster);
        ty_workload_free(workload);
    }
    cr_expect_geq(simpler, 2);
}

Test(search, devices_can_be_fixed)
{
    static const struct {
        uint32_t devices;
        const char *refusal; /* NULL: there is a plan */
    } rows[] = {{8, NULL},     {4, NULL},  {24, NULL},
                {16, NULL},    {12, NULL}, {23, "the same number of each"},
                {32, "has 24"}};
    ty_workload *mlp = open_workload("mlp");
    ty_cluster *cluster = open_cluster("3x dgx-a100");

    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        ty_plan_options options = ty_plan_options_default();
        ty_plan *plan = NULL;
        ty_error error = {0};
        ty_status status;
        pin(&options.pins, "devices=%u", rows[r].devices);
        options.global_batch = 384;
        status = ty_plan_search(mlp, cluster, NULL, &options, &plan, &error);
        if (rows[r].refusal != NULL) {
            cr_expect_eq(status, TY_EINVAL);
            cr_expect_not_null(strstr(error.message, rows[r].refusal), "%s", error.message);
            continue;
        }
        cr_assert_eq(status, TY_OK, "%u: %s", rows[r].devices, error.message);
        cr_expect_eq(ty_plan_rank_count(plan), rows[r].devices);
        cr_expect_eq(plan->idle_devices, 24 - rows[r].devices);
        ty_plan_free(plan);
    }
    ty_cluster_free(cluster);
    ty_workload_free(mlp);
}

/* Pins that do not divide over all devices have a plan on fewer, if the question allows that. */
Test(search, idle_if_needed)
{
    ty_workload *resnet = open_workload("resnet50");
    ty_cluster *cluster = open_cluster("2x dgx-a100");
    ty_plan_options options = ty_plan_options_default();
    ty_plan *plan = NULL;
    ty_error error = {0};

    pin(&options.pins, "pp=2,micro_batch=64"); /* of 256: four micro-batches for eight replicas */
    cr_expect_eq(ty_plan_search(resnet, cluster, NULL, &options, &plan, &error), TY_EINFEASIBLE);
    cr_expect_not_null(strstr(error.message, "no way to divide"), "%s", error.message);
    options.idle = TY_IDLE_IF_NEEDED;
    plan = search(resnet, cluster, &options);
    expect_good_plan(plan, cluster);
    cr_expect_eq(plan->stage_count, 2);
    cr_expect_eq(plan->micro_batch_size, 64);
    cr_expect_eq(plan->idle_devices, 8, "%u", plan->idle_devices);
    ty_plan_free(plan);
    plan = NULL;
    ty_unpin(&options.pins, TY_AXIS_MICRO_BATCH);
    pin(&options.pins, "dp=4"); /* sizes that contradict the number of devices are a mistake */
    cr_expect_eq(ty_plan_search(resnet, cluster, NULL, &options, &plan, &error), TY_EINVAL);
    cr_expect_not_null(strstr(error.message, "add devices=8"), "%s", error.message);
    ty_unpin(&options.pins, TY_AXIS_DP);
    pin(&options.pins, "micro_batch=16"); /* all devices, although fewer could be as fast */
    plan = search(resnet, cluster, &options);
    cr_expect_eq(plan->idle_devices, 0);
    ty_plan_free(plan);
    ty_cluster_free(cluster);
    ty_workload_free(resnet);
}

/* A plan's file contains the number of idle devices, and the cost functions check it. */
Test(search, idle_devices_are_told_and_checked)
{
    ty_workload *mlp = open_workload("mlp");
    ty_cluster *cluster = open_cluster("2x dgx-a100");
    ty_plan_options options = ty_plan_options_default();
    ty_plan *plan, *again = NULL;
    ty_program *program = NULL;
    ty_costs *costs = NULL;
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_json_document *document = NULL;
    ty_error error = {0};

    pin(&options.pins, "devices=8");
    plan = search(mlp, cluster, &options);
    ty_plan_to_json(plan, &writer, NULL);
    cr_assert_eq(ty_json_parse(text.data, text.length, "plan", &document, &error), TY_OK);
    cr_assert_eq(ty_plan_from_json(ty_json_root(document), &again, &error), TY_OK, "%s",
                 error.message);
    cr_expect_eq(again->idle_devices, 8);
    cr_assert_eq(ty_plan_lower(again, &program, &error), TY_OK);
    cr_expect_eq(ty_costs_of_program(again, program, cluster, &costs, &error), TY_OK, "%s",
                 error.message);
    ty_costs_free(costs);
    again->idle_devices = 7;
    cr_expect_eq(ty_costs_of_program(again, program, cluster, &costs, &error), TY_EINVAL);
    cr_expect_not_null(strstr(error.message, "/idle_devices: found 7, expected 8"), "%s",
                       error.message);
    ty_program_free(program);
    ty_plan_free(again);
    ty_json_free(document);
    ty_text_clear(&text);
    ty_plan_free(plan);
    ty_cluster_free(cluster);
    ty_workload_free(mlp);
}

/* Layers with two parallel paths are partitioned too, if they are more than a stage's share:
 * U-Net's cuts of a single tensor are before and after all of its work. */
Test(search, stages_begin_where_several_tensors_cross)
{
    ty_workload *workload = open_workload("unet");
    ty_cluster *cluster = open_cluster("host:1 gpu:8 @p40 pcie3 eth10 nics=8");
    ty_plan_options options = ty_plan_options_default();
    double all, largest = 0;
    uint32_t wide = 0;
    ty_plan *plan = NULL;
    ty_error error = {0};

    pin(&options.pins, "pp=8,micro_batch=4");
    options.global_batch = 128;
    cr_assert_eq(ty_plan_search(workload, cluster, NULL, &options, &plan, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(plan->stage_count, 8);
    all = ty_workload_forward_flop(workload, 0, workload->layer_count);
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        const ty_plan_stage *stage = &plan->stages[s];
        largest = fmax(largest,
                       ty_workload_forward_flop(workload, stage->first_layer, stage->layer_count));
        wide += s > 0 && !ty_workload_is_cut(workload, stage->first_layer);
    }
    cr_expect_geq(wide, 4);
    cr_expect_lt(largest, all / 3, "the largest of 8 stages has %.0f %% of the work",
                 100 * largest / all);
    ty_plan_free(plan);
    ty_cluster_free(cluster);
    ty_workload_free(workload);
}
