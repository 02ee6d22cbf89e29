/* The planner's memory estimate of a stage against the CPU worker's allocations for it. */
#include "device.h"
#include "plans.h"
#include "stage_layers.h"

#include <criterion/criterion.h>
#include <math.h>

/* Memory of the device: the model's weights, gradients and activations, and of its communication
 * the gradients at the cuts. The transport owns the staging of messages. */
static double device_share(const ty_plan *plan, uint32_t stage, const ty_memory_use *use)
{
    const double buffers = 2; /* for received and for sent data */
    double staging = 0;

    for (uint32_t cut = stage; cut <= stage + 1; cut++)
        if (cut > 0 && cut < plan->stage_count)
            staging += buffers * (double)ty_plan_transfer_bytes(plan, cut, TY_ACTIVATION);
    return (double)(use->parameter_bytes + use->gradient_bytes + use->activation_bytes +
                    use->communication_bytes) -
           staging;
}

/* The stage's layer whose matrix another stage also has. */
static uint32_t tied_layer(const ty_plan *plan, uint32_t stage)
{
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        if (bucket->tied_stage == TY_NO_STAGE)
            continue;
        if (bucket->stage == stage)
            return bucket->first_layer;
        for (uint32_t l = 0; bucket->tied_stage == stage && l < plan->workload->layer_count; l++)
            if (plan->workload->layers[l].tied_to == bucket->first_layer)
                return l;
    }
    return TY_NO_LAYER;
}

static double parallel_bytes(const ty_plan *plan, const ty_program *program, uint32_t stage,
                             uint32_t rank)
{
    const ty_plan_stage *own = &plan->stages[stage];
    const ty_stage_options options = {
        .workload = plan->workload,
        .first_layer = own->first_layer,
        .layer_count = own->layer_count,
        .micro_batch_size =
            plan->micro_batch_size / ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL),
        .parallel = {.ep_size = ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL),
                     .ep_rank = rank,
                     .tables = plan->table_shard},
        .slots = ty_program_peak_in_flight(program, stage),
        .recompute = own->recompute,
        .recompute_blocks = own->recompute_blocks,
        .loss_scale = 1,
        .tied_layer = tied_layer(plan, stage),
        .splits_backward = ty_schedule_at(plan->schedule)->splits_backward};
    ty_stage_device *device = NULL;
    ty_error error = {0};
    double bytes;

    cr_assert_eq(ty_device_cpu.open(&options, &device, &error), TY_OK, "%s", error.message);
    bytes = (double)ty_device_cpu.memory_bytes(device);
    ty_device_cpu.close(device);
    return bytes;
}

/* Maximum over the ranks. */
static double worker_bytes(const ty_plan *plan, const ty_program *program, uint32_t stage)
{
    double most = 0;

    for (uint32_t rank = 0; rank < ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL); rank++)
        most = fmax(most, parallel_bytes(plan, program, stage, rank));
    return most;
}

/* A host with enough cores for every plan here. */
static ty_cluster *cores(void)
{
    ty_text json = {0};
    ty_cluster *cluster = NULL;
    ty_error error = {0};
    char *text = NULL;

    ty_text_add(&json,
                "{\"schema\": \"trainyard.cluster/1\", \"name\": \"cores\","
                "\"device_types\": [{\"name\": \"cpu\", \"source\": \"a test\","
                "\"peak_fp32_flop_per_s\": 1e11, \"peak_tf32_flop_per_s\": 0,"
                "\"peak_fp16_flop_per_s\": 0, \"memory_bandwidth_bytes_per_s\": 1e10,"
                "\"memory_bytes\": 16000000000, \"launch_overhead_s\": 1e-6,"
                "\"matmul_efficiency\": 1, \"memory_efficiency\": 1, \"power_w\": 0,"
                "\"core_share\": 1}], \"link_types\": [{\"name\": \"memory\","
                "\"source\": \"a test\", \"bandwidth_bytes_per_s\": 1e10, \"latency_s\": 1e-6}],"
                "\"vertices\": [{\"name\": \"host\", \"kind\": \"host\", \"cores\": 4}");
    for (int rank = 0; rank < 4; rank++)
        ty_text_addf(&json,
                     ", {\"name\": \"rank-%d\", \"kind\": \"device\", \"type\": \"cpu\","
                     "\"host\": \"host\"}",
                     rank);
    ty_text_add(&json, "], \"links\": [");
    for (int rank = 0; rank < 4; rank++)
        ty_text_addf(&json, "%s{\"from\": \"rank-%d\", \"to\": \"host\", \"type\": \"memory\"}",
                     rank > 0 ? ", " : "", rank);
    ty_text_add(&json, "]}");
    cr_assert_eq(ty_text_take(&json, &text, &error), TY_OK);
    cr_assert_eq(ty_cluster_parse(text, "cores", &cluster, &error), TY_OK, "%s", error.message);
    ty_free(text);
    return cluster;
}

static void compare(const char *workload, const plan_shape *shape, double tolerance)
{
    ty_plan *plan = make_plan(workload, shape);
    ty_program *program = NULL;
    ty_error error = {0};

    ty_cluster_free(plan->cluster);
    plan->cluster = cores();
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
#define MANY_SAMPLES .replicas = {1, 1}, .buckets = 1, .global_batch = 1024, .micro_batch_size = 256
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

/* Data stored between the two parts of a backward pass is as large as the activations. */
Test(stage_memory, is_what_the_worker_allocates)
{
    static const struct {
        const char *workload;
        double tolerance;
        plan_shape one, two; /* backward in one part, and in two parts */
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
        {"dlrm-tiny",
         0.1,
         {"1f1b", ONE_PART, .cuts = {10}, MANY_SAMPLES},
         {"zb-h1", TWO_PARTS, .cuts = {11}, MANY_SAMPLES}},
        {"dlrm-tiny",
         0.1,
         {"1f1b by row", ONE_PART, .cuts = {10}, MANY_SAMPLES, .experts = 2,
          .tables = TY_TABLES_ROW},
         {"zb-h1 by row", TWO_PARTS, .cuts = {11}, MANY_SAMPLES, .experts = 2,
          .tables = TY_TABLES_ROW}},
        {"dlrm-tiny",
         0.1,
         {"1f1b by column", ONE_PART, .cuts = {10}, MANY_SAMPLES, .experts = 2,
          .tables = TY_TABLES_COLUMN},
         {"zb-h1 by column", TWO_PARTS, .cuts = {11}, MANY_SAMPLES, .experts = 2,
          .tables = TY_TABLES_COLUMN}},
        {"dlrm-tiny",
         0.1,
         {"1f1b by table", ONE_PART, .cuts = {10}, MANY_SAMPLES, .experts = 2,
          .tables = TY_TABLES_TABLE},
         {"zb-h1 by table", TWO_PARTS, .cuts = {11}, MANY_SAMPLES, .experts = 2,
          .tables = TY_TABLES_TABLE}},
        {"lenet",
         0.1,
         {"1f1b", ONE_PART, .cuts = {2, 5}, THREE},
         {"zb-h1", TWO_PARTS, .cuts = {2, 5}, THREE}},
    };
    static const plan_shape more_in_flight = {"zb-2p", .schedule = TY_ZERO_BUBBLE_2P,
                                              .cuts = {7, 13}, THREE};

    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        compare(rows[r].workload, &rows[r].one, rows[r].tolerance);
        compare(rows[r].workload, &rows[r].two, rows[r].tolerance);
    }
    compare(transformer, &more_in_flight, 0.1);
}

/* Each kind of recomputation, with four micro-batches in flight. The model omits two effects for
 * LeNet's small convolutions: oneDNN pads their channels to full vectors, and it stores the pooled
 * inputs if only norms, activation functions or every second product are recomputed. */
Test(stage_memory, is_what_the_worker_allocates_to_recompute)
{
    static const char resnet18[] =
        "{\"schema\": \"trainyard.zoo/1\", \"name\": \"resnet18-small\", \"family\": \"residual\","
        "\"source\": \"resnet18.json\", \"input\": [3, 64, 64], \"sample_bytes\": 12290,"
        "\"block\": \"basic\", \"blocks\": [2, 2, 2, 2], \"width\": 16, \"classes\": 10,"
        "\"dataset\": \"synthetic\", \"global_batch\": 16, \"optimizer\": {\"kind\": \"sgd\","
        "\"learning_rate\": 0.02, \"momentum\": 0.9, \"weight_decay\": 0.0001}}";
    static const struct {
        const char *workload;
        uint32_t cut, samples; /* a micro-batch */
        double tolerance;
    } networks[] = {{"mlp", 3, 32, 0.1},
                    {"lenet", 5, 8, 0.4},
                    {"gpt-tiny", 13, 8, 0.1},
                    {resnet18, 18, 64, 0.1}};
    static const struct {
        ty_recompute kind;
        uint32_t blocks;
        const char *name;
    } kinds[] = {{TY_RECOMPUTE_NONE, 0, "none"},
                 {TY_RECOMPUTE_SELECTIVE, 0, "selective"},
                 {TY_RECOMPUTE_ELEMENTWISE, 0, "elementwise"},
                 {TY_RECOMPUTE_OPERATOR, 0, "operator"},
                 {TY_RECOMPUTE_FULL, 1, "full"},
                 {TY_RECOMPUTE_FULL, 2, "full:2"},
                 {TY_RECOMPUTE_FULL, 0, "stage"}};

    for (size_t n = 0; n < sizeof networks / sizeof networks[0]; n++)
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            const plan_shape gpipe = {kinds[k].name,
                                      .schedule = TY_GPIPE,
                                      .cuts = {networks[n].cut},
                                      .replicas = {1, 1},
                                      .buckets = 1,
                                      .global_batch = 4 * networks[n].samples,
                                      .micro_batch_size = networks[n].samples,
                                      .recompute = kinds[k].kind,
                                      .recompute_blocks = kinds[k].blocks};
            compare(networks[n].workload, &gpipe, networks[n].tolerance);
        }
}

/* ---- The working set of a recomputed stage ---- */

Test(working_set, as_large_as_the_segment_that_needs_most)
{
    uint64_t used[3] = {0};
    uint32_t starts[3] = {0, 4, 6};
    const stage_segments segments = {.count = 3, .starts = starts}, none = {0};
    stage_working_set set = {.used = used};

    cr_assert_eq(stage_segment_of_part(&segments, false, 1), 1);
    cr_assert_eq(stage_segment_of_part(&segments, true, 1), STAGE_NO_SEGMENT);
    cr_assert_eq(stage_segment_of_part(&none, false, 1), STAGE_NO_SEGMENT);
    cr_assert_eq(stage_segment_of_stash(&segments, false, 5), 1);
    cr_assert_eq(stage_segment_of_stash(&segments, true, 5), STAGE_NO_SEGMENT);
    for (int pass = 0; pass < 2; pass++) {
        cr_expect_eq(stage_working_set_take(&set, 0, 1, 64), 0);
        cr_expect_eq(stage_working_set_take(&set, 0, 65, 64), 64);
        cr_expect_eq(stage_working_set_take(&set, 2, 1, 256), 0);
        cr_expect_eq(stage_working_set_take(&set, 2, 256, 256), 256);
        cr_expect_eq(stage_working_set_take(&set, STAGE_NO_SEGMENT, 1000, 256), 0);
        cr_expect_eq(stage_working_set_measure(&set, &segments), 512, "all is given back");
    }
}
