/* Plan files, `trainyard.plan/1`: tables of their members, reading, writing, and the digest of the
 * members that affect execution. */
#include "json_parts.h"
#include "plan_check.h"
#include "ty_base.h"
#include "ty_json.h"
#include "ty_plan.h"
#include "workload_layers.h"

#include <string.h>

#define MOST_LAYOUTS ((uint64_t)1 << 53) /* as JSON holds it */
#define MOST_SHARE (1 + 1e-6)
#define MOST_INDEX (UINT32_MAX - 1)
#define SCHEMA "trainyard.plan/1"
#define DIGEST "digest"

JSON_NAMES(schedule_name, ty_schedule, ty_schedule_name)
JSON_NAMES(recompute_name, ty_recompute, ty_recompute_name)
JSON_NAMES(shard_name, ty_server_shard, ty_server_shard_name)
JSON_NAMES(table_shard_name, ty_table_shard, ty_table_shard_name)
JSON_NAMES(algorithm_name, ty_algorithm, ty_algorithm_name)
JSON_NAMES(compression_name, ty_compression_kind, ty_compression_name)
JSON_NAMES(provenance_name, ty_provenance, ty_provenance_name)

/* ---- Summary ------------------------------------------------------------------------------- */

#define SUMMARY(name) #name, JSON_NUMBER, JSON_AT(ty_step_summary, name)
static const json_field summary_fields[] = {
    {SUMMARY(step_time_s), 0, DBL_MAX},
    {SUMMARY(samples_per_s), 0, DBL_MAX},
    {SUMMARY(tokens_per_s), 0, DBL_MAX, .about = "0 where samples are not sequences"},
    {"devices", JSON_UINT32, JSON_AT(ty_step_summary, devices), 1, TY_MAX_RANKS,
     .is_optional = true, .about = "in use, which the rates that follow are over"},
    {SUMMARY(mfu), 0, DBL_MAX, .is_optional = true,
     .about = "model FLOPs, without recomputation, over the peak of the plan's precision"},
    {SUMMARY(tflops_per_device), 0, DBL_MAX, .is_optional = true, .about = "model TFLOP/s"},
    {SUMMARY(tokens_per_s_per_device), 0, DBL_MAX, .is_optional = true},
    {SUMMARY(compute_share), 0, MOST_SHARE},
    {SUMMARY(exposed_collective_share), 0, MOST_SHARE,
     .about = "compute waits for gradient communication"},
    {SUMMARY(exposed_transfer_share), 0, MOST_SHARE,
     .about = "compute waits for a transfer that is on its way"},
    {SUMMARY(bubble_share), 0, MOST_SHARE,
     .about = "compute waits for the compute of another stage"},
    {SUMMARY(input_share), 0, MOST_SHARE, .about = "compute waits for data"},
    {"limited_by", JSON_CHARS, JSON_AT(ty_step_summary, limited_by), 1,
     sizeof((ty_step_summary *)NULL)->limited_by - 1, .is_optional = true},
};
const json_record ty_step_summary_record = JSON_RECORD(ty_step_summary, summary_fields);

void ty_step_summary_to_json(const ty_step_summary *summary, ty_json_writer *writer,
                             const char *key)
{
    ty_record_write(&ty_step_summary_record, summary, NULL, writer, key);
}

ty_status ty_step_summary_from_json(const ty_json *object, ty_step_summary *out, ty_error *error)
{
    ty_step_summary summary = {0};

    TY_TRY(ty_record_read_all(object, &ty_step_summary_record, &summary, NULL, error));
    *out = summary;
    return TY_OK;
}

/* ---- Execution: the members that the digest covers; the context is the plan ---------------- */

/* One device per rank of each replica. */
static ty_status read_devices(const ty_json *object, const json_field *field, void *record,
                              const void *context, ty_error *error)
{
    ty_plan_stage *stage = record;
    const size_t count = (size_t)stage->replicas * ty_plan_replica_ranks(context);
    uint32_t found;

    return ty_json_uint32_array(object, field->key, count, count, 0, MOST_INDEX, &stage->devices,
                                &found, error);
}

static void write_devices(const json_field *field, const void *record, const void *context,
                          ty_json_writer *writer)
{
    const ty_plan_stage *stage = record;

    ty_json_put_uint32_array(writer, field->key, stage->devices,
                             stage->replicas * ty_plan_replica_ranks(context));
}

static const json_field stage_fields[] = {
    {"first_layer", JSON_UINT32, JSON_AT(ty_plan_stage, first_layer), 0, MOST_INDEX},
    {"layer_count", JSON_UINT32, JSON_AT(ty_plan_stage, layer_count), 0, MOST_INDEX,
     .about = "0 of a first stage: actors"},
    {"replicas", JSON_UINT32, JSON_AT(ty_plan_stage, replicas), 1, TY_MAX_RANKS},
    {"devices", JSON_UINTS, JSON_AT(ty_plan_stage, devices), 0, MOST_INDEX, .least_count = 1,
     .read = read_devices, .write = write_devices, .about = "of each replica those of its ranks"},
    {"recompute", JSON_NAME, JSON_AT(ty_plan_stage, recompute), .name = recompute_name,
     .name_count = TY_RECOMPUTE_COUNT},
    {"recompute_blocks", JSON_UINT32, JSON_AT(ty_plan_stage, recompute_blocks), 1,
     TY_MAX_RECOMPUTE_BLOCKS, .is_optional = true},
};
static const json_record stage_record = JSON_RECORD(ty_plan_stage, stage_fields);

static const json_field bucket_fields[] = {
    {"stage", JSON_UINT32, JSON_AT(ty_bucket, stage), 0, MOST_INDEX},
    {"first_layer", JSON_UINT32, JSON_AT(ty_bucket, first_layer), 0, MOST_INDEX},
    {"layer_count", JSON_UINT32, JSON_AT(ty_bucket, layer_count), 1, MOST_INDEX},
    {"tied_stage", JSON_UINT32, JSON_AT(ty_bucket, tied_stage), 0, MOST_INDEX, .is_optional = true,
     .absent = TY_NO_STAGE},
    {"of_experts", JSON_BOOL, JSON_AT(ty_bucket, of_experts), .is_optional = true},
    {"gradient_bytes", JSON_UINT64, JSON_AT(ty_bucket, gradient_bytes), 1, TY_JSON_MAX_INTEGER},
    {"algorithm", JSON_NAME, JSON_AT(ty_bucket, algorithm), .name = algorithm_name,
     .name_count = TY_ALGORITHM_COUNT},
    {"compression", JSON_NAME, JSON_AT(ty_bucket, compression.kind), .name = compression_name,
     .name_count = TY_COMPRESSION_COUNT},
    {NULL, JSON_MEMBERS, JSON_AT(ty_bucket, compression), .of = &ty_compression_record},
};
static const json_record bucket_record = JSON_FLAT_RECORD(ty_bucket, bucket_fields);

static const json_field server_fields[] = {
    {"devices", JSON_UINTS, JSON_AT(ty_plan_servers, devices), 0, MOST_INDEX, .least_count = 1,
     .most_count = TY_MAX_RANKS, .count_at = offsetof(ty_plan_servers, count)},
    {"shard", JSON_NAME, JSON_AT(ty_plan_servers, shard), .name = shard_name,
     .name_count = TY_SERVER_SHARD_COUNT},
};
static const json_record servers_record = JSON_RECORD(ty_plan_servers, server_fields);

static void write_cluster_digest(const json_field *field, const void *record, const void *context,
                                 ty_json_writer *writer)
{
    const ty_plan *plan = record;
    ty_digest digest = {{0}}; /* for a plan made by hand without a cluster */

    (void)context;
    if (plan->cluster != NULL && ty_cluster_digest(plan->cluster, &digest, NULL) != TY_OK)
        writer->text->failed = TY_ENOMEM;
    ty_json_put_string(writer, field->key, digest.hex);
}

/* One entry per bucket. */
static ty_status read_order(const ty_json *object, const json_field *field, void *record,
                            const void *context, ty_error *error)
{
    ty_plan *plan = record;
    uint32_t found;

    (void)context;
    return ty_json_uint32_array(object, field->key, plan->bucket_count, plan->bucket_count, 0,
                                MOST_INDEX, &plan->exchange_order, &found, error);
}

static void write_order(const json_field *field, const void *record, const void *context,
                        ty_json_writer *writer)
{
    const ty_plan *plan = record;

    (void)context;
    ty_json_put_uint32_array(writer, field->key, plan->exchange_order, plan->bucket_count);
}

/* Derived from the rest of the plan, for readers of the file. */
static bool has_recipe(const void *record)
{
    const ty_plan *plan = record;
    const ty_recipe recipe = ty_plan_recipe(plan);

    return ty_recipe_changes(&recipe, &plan->workload->optimizer);
}

static ty_status read_recipe(const ty_json *object, const json_field *field, void *record,
                             const void *context, ty_error *error)
{
    ty_recipe recipe = {0};
    const ty_json *value;

    (void)record;
    TY_TRY(ty_json_object(object, field->key, &value, error));
    return ty_record_read_all(value, field->of, &recipe, context, error);
}

static void write_recipe(const json_field *field, const void *record, const void *context,
                         ty_json_writer *writer)
{
    const ty_plan *plan = record;
    const ty_recipe recipe = ty_plan_recipe(plan);

    ty_record_write(field->of, &recipe, context, writer, field->key);
}

static const json_field recipe_fields[] = {
    {"delay_updates", JSON_NUMBER, JSON_AT(ty_recipe, delay_updates), 0, UINT32_MAX},
    {"error_feedback", JSON_BOOL, JSON_AT(ty_recipe, has_feedback)},
    {"learning_rate_factor", JSON_NUMBER, JSON_AT(ty_recipe, rate_factor), 0, UINT32_MAX},
    {"momentum", JSON_NUMBER, JSON_AT(ty_recipe, momentum), 0, 1, .is_optional = true},
};
static const json_record recipe_record = JSON_FLAT_RECORD(ty_recipe, recipe_fields);

static const json_field decision_fields[] = {
    {"workload_digest", JSON_DIGEST, JSON_AT(ty_plan, workload_digest)},
    {"cluster_digest", JSON_DIGEST, .read = ty_record_pass_by, .write = write_cluster_digest},
    {"schedule", JSON_NAME, JSON_AT(ty_plan, schedule), .name = schedule_name,
     .name_count = TY_SCHEDULE_COUNT},
    {"global_batch", JSON_UINT32, JSON_AT(ty_plan, global_batch), 1, UINT32_MAX},
    {"micro_batch_size", JSON_UINT32, JSON_AT(ty_plan, micro_batch_size), 1, UINT32_MAX},
    {"micro_batches", JSON_UINT32, JSON_AT(ty_plan, micro_batches), 1, TY_MAX_MICRO_BATCHES},
    {"interleave", JSON_UINT32, JSON_AT(ty_plan, virtual_stages), 1, TY_MAX_STAGES_OF_A_PLAN,
     .is_optional = true, .absent = 1},
    {"tensor_parallel", JSON_UINT32, JSON_AT(ty_plan, tensor_parallel), 1, TY_MAX_PARALLEL_SIZE,
     .is_optional = true, .absent = 1},
    {"context_parallel", JSON_UINT32, JSON_AT(ty_plan, context_parallel), 1, TY_MAX_PARALLEL_SIZE,
     .is_optional = true, .absent = 1},
    {"expert_parallel", JSON_UINT32, JSON_AT(ty_plan, expert_parallel), 1, TY_MAX_PARALLEL_SIZE,
     .is_optional = true, .absent = 1},
    {"sequence_parallel", JSON_BOOL, JSON_AT(ty_plan, sequence_parallel), .is_optional = true},
    {"table_shard", JSON_NAME, JSON_AT(ty_plan, table_shard), .is_optional = true,
     .name = table_shard_name, .name_count = TY_TABLE_SHARD_COUNT},
    {"zero", JSON_UINT32, JSON_AT(ty_plan, zero), 0, 3, .is_optional = true},
    {"staleness", JSON_UINT32, JSON_AT(ty_plan, staleness), 0, TY_MAX_STALENESS,
     .is_optional = true},
    {"lag", JSON_UINT32, JSON_AT(ty_plan, lag), 0, TY_MAX_LAG, .is_optional = true,
     .about = "updates that the weights of actors lack"},
    {"optimizer", JSON_STRUCT, JSON_AT(ty_plan, optimizer), .of = &ty_optimizer_record,
     .schema = "optimizer.json"},
    {"seed", JSON_UINT64, JSON_AT(ty_plan, seed), 0, TY_JSON_MAX_INTEGER},
    {"servers", JSON_STRUCT, JSON_AT(ty_plan, servers), .of = &servers_record, .is_optional = true,
     JSON_SAID(ty_plan, servers.count)},
    {"stages", JSON_ROWS, JSON_AT(ty_plan, stages), 1, TY_MAX_STAGES_OF_A_PLAN, .of = &stage_record,
     .count_at = offsetof(ty_plan, stage_count)},
    {"buckets", JSON_ROWS, JSON_AT(ty_plan, buckets), 0, 1000000, .of = &bucket_record,
     .count_at = offsetof(ty_plan, bucket_count)},
    {"exchange_order", JSON_UINTS, JSON_AT(ty_plan, exchange_order), 0, MOST_INDEX,
     .is_optional = true, JSON_SAID(ty_plan, exchange_order), .read = read_order,
     .write = write_order,
     .about = "in which order buckets are exchanged, each once; absent: as backward finishes them"},
};
static const json_record decision_record = JSON_RECORD(ty_plan, decision_fields);

/* ---- Predictions --------------------------------------------------------------------------- */

static bool has_prediction(const void *plan)
{
    return ((const ty_plan *)plan)->has_prediction;
}

static bool is_uneven(const void *plan)
{
    const ty_imbalance *uneven = ((const ty_plan *)plan)->uneven;

    return uneven[TY_UNEVEN_BATCH].count > 0 || uneven[TY_UNEVEN_BLOCKS].count > 0;
}

static bool is_batch_uneven(const void *uneven)
{
    return ((const ty_imbalance *)uneven)[TY_UNEVEN_BATCH].count > 0;
}

static bool is_blocks_uneven(const void *uneven)
{
    return ((const ty_imbalance *)uneven)[TY_UNEVEN_BLOCKS].count > 0;
}

static bool has_searched(const void *record)
{
    const ty_plan *plan = record;

    return plan->candidate_count > 0 && plan->searched.estimates > 0;
}

/* A prediction requires its other members. */
static ty_status read_prediction(const ty_json *object, const json_field *field, void *record,
                                 const void *context, ty_error *error)
{
    ty_plan *plan = record;
    const ty_json *value;
    ty_status status = ty_json_object(object, field->key, &value, error);

    (void)context;
    plan->has_prediction = true;
    return status == TY_OK ? ty_step_summary_from_json(value, &plan->prediction, error) : status;
}

/* The upper end is not below the lower one. */
static ty_status read_most(const ty_json *object, const json_field *field, void *record,
                           const void *context, ty_error *error)
{
    ty_plan *plan = record;

    (void)context;
    return ty_json_number(object, field->key, plan->least_step_time_s, DBL_MAX,
                          &plan->most_step_time_s, error);
}

static const json_field outside_fields[] = {
    {"least_step_time_s", JSON_NUMBER, JSON_AT(ty_plan, least_step_time_s), 0, DBL_MAX},
    {"most_step_time_s", JSON_NUMBER, JSON_AT(ty_plan, most_step_time_s), 0, DBL_MAX,
     .read = read_most},
};
static const json_record outside_record = JSON_RECORD(ty_plan, outside_fields);

typedef struct better {
    uint32_t count;
    double samples_per_s;
} better;
_Static_assert(sizeof(better) == sizeof((ty_imbalance *)NULL)->better[0], "a row of ty_uneven");

static const json_field better_fields[] = {
    {"count", JSON_UINT32, JSON_AT(better, count), 1, UINT32_MAX},
    {"samples_per_s", JSON_NUMBER, JSON_AT(better, samples_per_s), 0, DBL_MAX},
};
static const json_record better_record = JSON_FLAT_RECORD(better, better_fields);

enum { MOST_BETTER = sizeof((ty_imbalance *)NULL)->better / sizeof(better) };
static const json_field uneven_fields[] = {
    {"count", JSON_UINT32, JSON_AT(ty_imbalance, count), 1, UINT32_MAX},
    {"parts", JSON_UINT32, JSON_AT(ty_imbalance, parts), 1, UINT32_MAX},
    {"lost_share", JSON_NUMBER, JSON_AT(ty_imbalance, lost_share), 0, 1},
    {"better", JSON_HERE, JSON_AT(ty_imbalance, better), 0, MOST_BETTER, .of = &better_record,
     .count_at = offsetof(ty_imbalance, better_count)},
};
static const json_record uneven_record = JSON_RECORD(ty_imbalance, uneven_fields);

static const json_field unevens_fields[] = {
    {"global_batch", JSON_STRUCT, .at = TY_UNEVEN_BATCH * sizeof(ty_imbalance),
     .of = &uneven_record, .is_optional = true, .is_said = is_batch_uneven},
    {"blocks", JSON_STRUCT, .at = TY_UNEVEN_BLOCKS * sizeof(ty_imbalance), .of = &uneven_record,
     .is_optional = true, .is_said = is_blocks_uneven},
};
static const json_record unevens_record =
    JSON_RECORD(ty_imbalance[TY_IMBALANCE_COUNT], unevens_fields);

#define COST(name, most)                                                                           \
    {                                                                                              \
#name, JSON_NUMBER, JSON_AT(ty_training_cost, name), 0, most, .is_optional = true          \
    }
static const json_field cost_fields[] = {
    {"steps", JSON_NUMBER, JSON_AT(ty_training_cost, steps), DBL_MIN, DBL_MAX},
    COST(samples, DBL_MAX),
    COST(tokens, DBL_MAX),
    COST(days, DBL_MAX),
    COST(goodput, 1),
    {"price_kind", JSON_CHARS, JSON_AT(ty_training_cost, price_kind), 1,
     sizeof((ty_training_cost *)NULL)->price_kind - 1, .is_optional = true},
    COST(price_usd_per_device_hour, DBL_MAX),
    COST(cost_usd, DBL_MAX),
    COST(cost_usd_per_million_tokens, DBL_MAX),
    COST(energy_mwh, DBL_MAX),
};
const json_record ty_training_cost_record = JSON_RECORD(ty_training_cost, cost_fields);

#define BYTES(name)                                                                                \
    {                                                                                              \
#name, JSON_UINT64, JSON_AT(ty_memory_use, name), 0, TY_JSON_MAX_INTEGER                   \
    }
static const json_field memory_fields[] = {
    BYTES(parameter_bytes),  BYTES(gradient_bytes),      BYTES(optimizer_bytes),
    BYTES(activation_bytes), BYTES(communication_bytes), BYTES(compression_bytes),
    BYTES(workspace_bytes),
};
static const json_record memory_record = JSON_FLAT_RECORD(ty_memory_use, memory_fields);

/* One per stage. */
static ty_status read_memory(const ty_json *object, const json_field *field, void *record,
                             const void *context, ty_error *error)
{
    ty_plan *plan = record;
    const ty_json *array;
    ty_status status = TY_OK;

    TY_TRY(ty_json_array(object, field->key, plan->stage_count, plan->stage_count, &array, error));
    plan->memory = ty_alloc(plan->stage_count, sizeof *plan->memory);
    TY_TRY(ty_check_memory(plan->memory != NULL, error));
    for (uint32_t s = 0; s < plan->stage_count && status == TY_OK; s++)
        status =
            ty_record_read_all(ty_json_at(array, s), field->of, &plan->memory[s], context, error);
    return status;
}

static bool has_usable(const void *plan)
{
    ty_memory_peak peak;
    return ty_plan_memory_peak(plan, &peak) && peak.usable_bytes > 0;
}

/* Derived from the cluster. */
static ty_status read_usable(const ty_json *object, const json_field *field, void *record,
                             const void *context, ty_error *error)
{
    uint64_t bytes;

    (void)record, (void)context;
    return ty_json_uint64(object, field->key, 1, TY_JSON_MAX_INTEGER, &bytes, error);
}

static void write_usable(const json_field *field, const void *record, const void *context,
                         ty_json_writer *writer)
{
    ty_memory_peak peak;

    (void)context;
    if (ty_plan_memory_peak(record, &peak))
        ty_json_put_uint(writer, field->key, peak.usable_bytes);
}

void ty_step_rates_to_json(const ty_step_summary *summary, ty_json_writer *writer)
{
    if (summary->mfu > 0)
        ty_json_put_number(writer, "mfu", summary->mfu);
    if (summary->tflops_per_device > 0)
        ty_json_put_number(writer, "tflops_per_device", summary->tflops_per_device);
    if (summary->tokens_per_s_per_device > 0)
        ty_json_put_number(writer, "tokens_per_s_per_device", summary->tokens_per_s_per_device);
}

/* ---- Interval and nearest runs -------------------------------------------------------------- */

#define OF_INTERVAL(name, most)                                                                    \
    {                                                                                              \
#name, JSON_NUMBER, JSON_AT(ty_step_interval, name), DBL_MIN, most                         \
    }
static const json_field interval_fields[] = {
    OF_INTERVAL(expected_s, DBL_MAX),
    OF_INTERVAL(low_s, DBL_MAX),
    OF_INTERVAL(high_s, DBL_MAX),
    OF_INTERVAL(coverage, 1),
};
static const json_record interval_record = JSON_FLAT_RECORD(ty_step_interval, interval_fields);

#define OF_RUN(name)                                                                               \
    {                                                                                              \
#name, JSON_CHARS, JSON_AT(ty_nearest_run, name), 1,                                       \
            sizeof((ty_nearest_run *)NULL)->name - 1                                               \
    }
static const json_field nearest_fields[] = {
    OF_RUN(model),
    {"devices", JSON_UINT32, JSON_AT(ty_nearest_run, devices), 1, UINT32_MAX},
    OF_RUN(device),
    OF_RUN(framework),
    OF_RUN(precision),
    {"step_s", JSON_NUMBER, JSON_AT(ty_nearest_run, step_s), DBL_MIN, DBL_MAX},
    {"tokens_per_s", JSON_NUMBER, JSON_AT(ty_nearest_run, tokens_per_s), 0, DBL_MAX,
     .is_optional = true},
    OF_RUN(source),
};
static const json_record nearest_record = JSON_FLAT_RECORD(ty_nearest_run, nearest_fields);

static const json_field interval_member_fields[] = {
    {"interval", JSON_STRUCT, JSON_AT(ty_plan, interval), .applies = has_prediction,
     .is_optional = true, JSON_SAID(ty_plan, interval.coverage), .of = &interval_record,
     .about = "range of the step time, by the errors on published runs"},
    {"nearest", JSON_HERE, JSON_AT(ty_plan, nearest), 0, TY_MOST_NEAREST, .applies = has_prediction,
     .is_optional = true, .of = &nearest_record, .count_at = offsetof(ty_plan, nearest_count),
     .about = "published runs, the nearest first"},
};
static const json_record interval_members = JSON_RECORD(ty_plan, interval_member_fields);

void ty_plan_interval_to_json(const ty_plan *plan, ty_json_writer *writer)
{
    ty_record_put(&interval_members, plan, NULL, writer);
}

void ty_plan_rates_to_json(const ty_plan *plan, const ty_step_summary *summary,
                           ty_json_writer *writer)
{
    ty_memory_peak peak;

    ty_step_rates_to_json(summary, writer);
    if (ty_plan_memory_peak(plan, &peak)) {
        ty_json_put_uint(writer, "peak_memory_bytes", peak.bytes);
        if (peak.usable_bytes > 0)
            ty_json_put_uint(writer, "usable_memory_bytes", peak.usable_bytes);
    }
    ty_plan_interval_to_json(plan, writer);
}

static const json_field candidate_fields[] = {
    {"name", JSON_TEXT, JSON_AT(ty_candidate, name)},
    {"step_time_s", JSON_NUMBER, JSON_AT(ty_candidate, step_time_s), 0, DBL_MAX},
    {"simulated_step_time_s", JSON_NUMBER, JSON_AT(ty_candidate, simulated_step_time_s), 0,
     DBL_MAX},
    {"peak_memory_bytes", JSON_UINT64, JSON_AT(ty_candidate, peak_memory_bytes), 0,
     TY_JSON_MAX_INTEGER},
    {"reason", JSON_TEXT, JSON_AT(ty_candidate, reason)},
    {"fix", JSON_TEXT, JSON_AT(ty_candidate, fix), .is_optional = true},
    {"is_asked", JSON_BOOL, JSON_AT(ty_candidate, is_asked), .is_optional = true,
     .about = "named with --against"},
};
static const json_record candidate_record = JSON_FLAT_RECORD(ty_candidate, candidate_fields);

static const json_field searched_fields[] = {
    {"layouts", JSON_UINT64, JSON_AT(ty_plan_searched, layouts), 0, MOST_LAYOUTS},
    {"estimates", JSON_UINT32, JSON_AT(ty_plan_searched, estimates), 1, UINT32_MAX},
};
static const json_record searched_record = JSON_RECORD(ty_plan_searched, searched_fields);

static const json_field answer_fields[] = {
    {"recipe", JSON_STRUCT, .is_optional = true, .is_said = has_recipe, .of = &recipe_record,
     .read = read_recipe, .write = write_recipe,
     .about = "what late or compressed gradients change in the optimizer of the workload"},
    {"prediction", JSON_STRUCT, JSON_AT(ty_plan, prediction), .is_optional = true,
     .is_said = has_prediction, .of = &ty_step_summary_record, .read = read_prediction,
     .schema = "step-summary.json"},
    {"simulation", JSON_STRUCT, JSON_AT(ty_plan, simulation), .applies = has_prediction,
     .is_optional = true, JSON_SAID(ty_plan, simulation.step_time_s), .of = &ty_step_summary_record,
     .schema = "step-summary.json"},
    {"provenance", JSON_NAME, JSON_AT(ty_plan, provenance), .applies = has_prediction,
     .name = provenance_name, .name_count = TY_DATASHEET + 1},
    {"outside_measurements", JSON_STRUCT, .applies = has_prediction, .is_optional = true,
     JSON_SAID(ty_plan, most_step_time_s), .of = &outside_record},
    {NULL, JSON_MEMBERS, .of = &interval_members},
    {"divides_badly", JSON_STRUCT, JSON_AT(ty_plan, uneven), .applies = has_prediction,
     .is_optional = true, .is_said = is_uneven, .of = &unevens_record},
    {"cost", JSON_STRUCT, JSON_AT(ty_plan, cost), .applies = has_prediction, .is_optional = true,
     JSON_SAID(ty_plan, cost.steps), .of = &ty_training_cost_record,
     .schema = "training-cost.json"},
    {"memory", JSON_ROWS, JSON_AT(ty_plan, memory), .applies = has_prediction, .of = &memory_record,
     .count_at = offsetof(ty_plan, stage_count), .read = read_memory,
     .about = "of a device of each stage"},
    {"usable_memory_bytes", JSON_UINT64, .minimum = 1, .maximum = TY_JSON_MAX_INTEGER,
     .applies = has_prediction, .is_optional = true, .is_said = has_usable, .read = read_usable,
     .write = write_usable, .about = "of the device with the least free memory"},
    {"memory_reserve", JSON_NUMBER, JSON_AT(ty_plan, memory_reserve), 0, 1,
     .applies = has_prediction, .is_optional = true,
     .about = "share of usable memory that stays free"},
    {"searched", JSON_STRUCT, JSON_AT(ty_plan, searched), .is_optional = true,
     .is_said = has_searched, .of = &searched_record},
    {"candidates", JSON_ROWS, JSON_AT(ty_plan, candidates), 0, 10000000, .of = &candidate_record,
     .count_at = offsetof(ty_plan, candidate_count)},
};

/* ---- Inputs -------------------------------------------------------------------------------- */

static ty_status read_workload(const ty_json *object, const json_field *field, void *record,
                               const void *context, ty_error *error)
{
    const ty_json *value;

    (void)context;
    TY_TRY(ty_json_object(object, field->key, &value, error));
    return ty_workload_from_json(value, &((ty_plan *)record)->workload, error);
}

static void write_workload(const json_field *field, const void *record, const void *context,
                           ty_json_writer *writer)
{
    (void)context;
    ty_workload_to_json(((const ty_plan *)record)->workload, writer, field->key);
}

/* Whatever the layout of the file, the cluster's digest is of its one-line form. */
static ty_status read_cluster(const ty_json *object, const json_field *field, void *record,
                              const void *context, ty_error *error)
{
    const ty_json *value;
    char *text = NULL, place[TY_JSON_PLACE_SIZE];
    ty_digest expected, found;
    ty_status status;

    (void)context;
    TY_CHECK(ty_json_digest(object, "cluster_digest", &expected, error), status, done);
    TY_CHECK(ty_json_object(object, field->key, &value, error), status, done);
    TY_CHECK(ty_json_text(value, &text, error), status, done);
    found = ty_digest_of(text, strlen(text));
    if (strcmp(found.hex, expected.hex) != 0) {
        ty_json_place(object, place);
        status = ty_fail(error, TY_EPARSE,
                         "%s/cluster_digest: this plan was made for another cluster (digest "
                         "%.12s...), found one with digest %.12s...",
                         place, expected.hex, found.hex);
        goto done;
    }
    status = ty_cluster_from_json(value, &((ty_plan *)record)->cluster, error);
done:
    ty_free(text);
    return status;
}

static void write_cluster(const json_field *field, const void *record, const void *context,
                          ty_json_writer *writer)
{
    char *text;

    (void)context;
    if (ty_cluster_text(((const ty_plan *)record)->cluster, &text, NULL) != TY_OK) {
        writer->text->failed = TY_ENOMEM;
        return;
    }
    ty_json_put_raw(writer, field->key, text);
    ty_free(text);
}

static ty_status read_profile(const ty_json *object, const json_field *field, void *record,
                              const void *context, ty_error *error)
{
    const ty_json *value;

    (void)context;
    TY_TRY(ty_json_object(object, field->key, &value, error));
    return ty_profile_from_json(value, &((ty_plan *)record)->profile, error);
}

static void write_profile(const json_field *field, const void *record, const void *context,
                          ty_json_writer *writer)
{
    (void)context;
    ty_profile_to_json(((const ty_plan *)record)->profile, writer, field->key);
}

static ty_status read_stack(const ty_json *object, const json_field *field, void *record,
                            const void *context, ty_error *error)
{
    const ty_json *value;

    (void)context;
    TY_TRY(ty_json_object(object, field->key, &value, error));
    return ty_stack_from_json(value, &((ty_plan *)record)->stack, error);
}

static void write_stack(const json_field *field, const void *record, const void *context,
                        ty_json_writer *writer)
{
    (void)context;
    ty_stack_to_json(((const ty_plan *)record)->stack, writer, field->key);
}

static bool has_stack(const void *plan)
{
    return ((const ty_plan *)plan)->stack != NULL;
}

/* After the stack, which contains it. */
static ty_status read_stack_reason(const ty_json *object, const json_field *field, void *record,
                                   const void *context, ty_error *error)
{
    ty_stack *stack = ((ty_plan *)record)->stack;
    const ty_json *value;

    (void)context;
    if (stack != NULL)
        return ty_json_string_copy(object, field->key, &stack->why, error);
    TY_TRY(ty_json_member(object, field->key, &value, error));
    return ty_json_fail(value, error, "a stack before its reason");
}

static void write_stack_reason(const json_field *field, const void *record, const void *context,
                               ty_json_writer *writer)
{
    (void)context;
    ty_json_put_string(writer, field->key, ((const ty_plan *)record)->stack->why);
}

static bool has_stack_reason(const void *plan)
{
    return has_stack(plan) && ((const ty_plan *)plan)->stack->why != NULL;
}

static bool has_input(const void *plan)
{
    return ty_input_is_said(&((const ty_plan *)plan)->input);
}

static void write_deployment(const json_field *field, const void *record, const void *context,
                             ty_json_writer *writer)
{
    const ty_plan *plan = record;

    (void)context;
    ty_deployment_to_json(&plan->deployment, plan->workload, writer, field->key);
}

static const json_field head_fields[] = {
    {"strategy", JSON_TEXT, JSON_AT(ty_plan, strategy)},
    {"cluster_name", JSON_TEXT, JSON_AT(ty_plan, cluster_name)},
    {"fix", JSON_TEXT, JSON_AT(ty_plan, fix), .is_optional = true},
    {"idle_devices", JSON_UINT32, JSON_AT(ty_plan, idle_devices), 0, TY_MAX_RANKS,
     .is_optional = true},
    {"input", JSON_STRUCT, JSON_AT(ty_plan, input), .is_optional = true, .is_said = has_input,
     .of = &ty_input_record, .about = "what is said of the samples, with --input"},
    /* After the workload, whose figures it needs. */
    {"deployment", JSON_OTHER, .is_optional = true, JSON_SAID(ty_plan, deployment.variant.bits),
     .read = ty_record_pass_by, .write = write_deployment, .schema = "deployment.json"},
};

static const json_field document_fields[] = {
    {"workload", JSON_OTHER, .read = read_workload, .write = write_workload,
     .schema = "workload.json"},
    {"cluster", JSON_OTHER, .read = read_cluster, .write = write_cluster, .schema = "cluster.json"},
    {"profile", JSON_OTHER, .is_optional = true, JSON_SAID(ty_plan, profile), .read = read_profile,
     .write = write_profile, .schema = "profile.json"},
    {"stack", JSON_OTHER, .is_optional = true, .is_said = has_stack, .read = read_stack,
     .write = write_stack, .schema = "stack.json"},
    {"stack_reason", JSON_OTHER, .is_optional = true, .is_said = has_stack_reason,
     .read = read_stack_reason, .write = write_stack_reason,
     .about = "why the default stack is this one and not the first that its list names"},
};

static const json_record head_record = JSON_RECORD(ty_plan, head_fields);
static const json_record answer_record = JSON_RECORD(ty_plan, answer_fields);
static const json_record document_record = JSON_RECORD(ty_plan, document_fields);

/* In file order. */
static const json_field content_fields[] = {
    {NULL, JSON_MEMBERS, .of = &head_record},
    {NULL, JSON_MEMBERS, .of = &decision_record},
    {NULL, JSON_MEMBERS, .of = &answer_record},
    {NULL, JSON_MEMBERS, .of = &document_record},
};
static const json_record content_record = JSON_RECORD(ty_plan, content_fields);

static void write_digest(const json_field *field, const void *record, const void *context,
                         ty_json_writer *writer)
{
    ty_text text = {0};
    ty_json_writer compact = ty_json_writer_compact_on(&text);
    ty_digest digest = {{0}};

    (void)context;
    ty_record_write_document(SCHEMA, &content_record, record, record, &compact, NULL);
    if (text.failed != TY_OK)
        writer->text->failed = text.failed;
    else
        digest = ty_digest_of(text.data, text.length);
    ty_json_put_string(writer, field->key, digest.hex);
    ty_text_clear(&text);
}

static const json_field plan_fields[] = {
    {NULL, JSON_MEMBERS, .of = &content_record},
    {DIGEST, JSON_DIGEST, .is_optional = true, .read = ty_record_pass_by, .write = write_digest,
     .about = "of the document without this member"},
};
const json_record ty_plan_record = JSON_RECORD(ty_plan, plan_fields);

/* ---- Documents ----------------------------------------------------------------------------- */

void ty_plan_add_question(const ty_plan *plan, ty_text *text)
{
    char percent[32];

    ty_text_addf(text, "--global-batch %u --stack ", plan->global_batch);
    ty_quote_shell(text, ty_stack_words(plan->stack));
    ty_text_addf(text, " --precision %s", ty_precision_name(plan->workload->precision));
    if (plan->has_prediction && fabs(plan->memory_reserve - TY_USUAL_MEMORY_RESERVE) > 1e-9) {
        ty_format_number(100 * plan->memory_reserve, percent);
        ty_text_addf(text, " --memory-reserve %s%%", percent);
    }
    if (ty_input_is_said(&plan->input)) {
        ty_text_add(text, " --input ");
        ty_input_words(&plan->input, text);
    }
    if (plan->deployment.variant.bits > 0) {
        ty_text_add(text, " --budget ");
        ty_budget_words(&plan->deployment.budget, text);
    }
}

void ty_plan_to_json(const ty_plan *plan, ty_json_writer *writer, const char *key)
{
    ty_record_write_document(SCHEMA, &ty_plan_record, plan, plan, writer, key);
}

ty_status ty_plan_save(const ty_plan *plan, const char *path, ty_error *error)
{
    TY_TRY(ty_plan_check(plan, path, error));
    return ty_record_save(SCHEMA, &ty_plan_record, plan, plan, path, error);
}

ty_status ty_plan_digest(const ty_plan *plan, ty_digest *out, ty_error *error)
{
    ty_text text = {0};
    char *json;
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_status status;

    ty_record_write(&decision_record, plan, plan, &writer, NULL);
    status = ty_text_take(&text, &json, error);
    if (status != TY_OK) {
        ty_text_clear(&text);
        return status;
    }
    *out = ty_digest_of(json, strlen(json));
    ty_free(json);
    return TY_OK;
}

/* Digest of the rest of the document, whatever its layout. Older plans have none. */
static ty_status check_digest(const ty_json *object, ty_error *error)
{
    char *text = NULL, place[TY_JSON_PLACE_SIZE];
    ty_digest expected, found;
    ty_status status = TY_OK;

    if (!ty_json_has(object, DIGEST))
        return TY_OK;
    TY_CHECK(ty_json_digest(object, DIGEST, &expected, error), status, done);
    TY_CHECK(ty_json_text_without(object, DIGEST, &text, error), status, done);
    found = ty_digest_of(text, strlen(text));
    ty_json_place(object, place);
    if (strcmp(found.hex, expected.hex) != 0)
        status = ty_fail(error, TY_EPARSE,
                         "%s/" DIGEST ": the plan changed after it was written: found the digest "
                         "%.12s..., expected %.12s...; remove \"" DIGEST "\" to use it as it is",
                         place, found.hex, expected.hex);
done:
    ty_free(text);
    return status;
}

void ty_plan_free(ty_plan *plan)
{
    if (plan == NULL)
        return;
    ty_workload_free(plan->workload);
    ty_cluster_free(plan->cluster);
    ty_profile_free(plan->profile);
    ty_stack_free(plan->stack);
    ty_record_clear(&ty_plan_record, plan);
    ty_free(plan);
}

ty_status ty_plan_from_json(const ty_json *object, ty_plan **out, ty_error *error)
{
    ty_status status = TY_OK;
    char place[TY_JSON_PLACE_SIZE];
    ty_plan *plan = ty_alloc(1, sizeof *plan);

    TY_TRY(ty_check_memory(plan != NULL, error));
    TY_CHECK(ty_json_schema(object, SCHEMA, error), status, cleanup);
    TY_CHECK(ty_record_read(object, &ty_plan_record, plan, plan, error), status, cleanup);
    if (ty_json_has(object, "deployment"))
        TY_CHECK(
            ty_deployment_from_json(object, "deployment", plan->workload, &plan->deployment, error),
            status, cleanup);
    ty_json_ignore(object, DIGEST); /* last: specific errors are more helpful */
    TY_CHECK(ty_json_end(object, error), status, cleanup);
    if (plan->stack == NULL) /* from a version without stacks */
        TY_CHECK(ty_stack_open(TY_WORKER_STACK, &plan->stack, error), status, cleanup);
    ty_json_place(object, place);
    TY_CHECK(ty_plan_check_at(plan, place, error), status, cleanup);
    TY_CHECK(check_digest(object, error), status, cleanup);
    *out = plan;
    plan = NULL;

cleanup:
    ty_plan_free(plan);
    return status;
}

JSON_LOAD(ty_plan_load, ty_plan, ty_plan_from_json)
