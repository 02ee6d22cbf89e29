/* Plan files, `trainyard.plan/1`: reading, writing, and the digest of what is to be run. */
#include "json_parts.h"
#include "plan_check.h"
#include "ty_file.h"
#include "ty_memory.h"
#include "workload_layers.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#define MOST_LAYOUTS ((uint64_t)1 << 53) /* as JSON holds it */
#define SCHEMA "trainyard.plan/1"

/* ---- Tables: names by number, figures by place ---------------------------------------------- */

static const char *schedule_name(int i)
{
    return ty_schedule_name((ty_schedule)i);
}

static const char *recompute_name(int i)
{
    return ty_recompute_name((ty_recompute)i);
}

static const char *shard_name(int i)
{
    return ty_server_shard_name((ty_server_shard)i);
}

static const char *table_name(int i)
{
    return ty_table_shard_name((ty_table_shard)i);
}

static const char *algorithm_name(int i)
{
    return ty_algorithm_name((ty_algorithm)i);
}

static const char *provenance_name(int i)
{
    return ty_provenance_name((ty_provenance)i);
}

static const struct {
    const char *key;
    size_t offset;
    double maximum;
} summary_figures[] = {
    {"step_time_s", offsetof(ty_step_summary, step_time_s), DBL_MAX},
    {"samples_per_s", offsetof(ty_step_summary, samples_per_s), DBL_MAX},
    {"tokens_per_s", offsetof(ty_step_summary, tokens_per_s), DBL_MAX},
    {"compute_share", offsetof(ty_step_summary, compute_share), 1 + 1e-6},
    {"exposed_collective_share", offsetof(ty_step_summary, exposed_collective_share), 1 + 1e-6},
    {"exposed_transfer_share", offsetof(ty_step_summary, exposed_transfer_share), 1 + 1e-6},
    {"bubble_share", offsetof(ty_step_summary, bubble_share), 1 + 1e-6},
    {"input_share", offsetof(ty_step_summary, input_share), 1 + 1e-6},
};

static const struct {
    const char *key;
    size_t offset;
} memory_figures[] = {
    {"parameter_bytes", offsetof(ty_memory_use, parameter_bytes)},
    {"gradient_bytes", offsetof(ty_memory_use, gradient_bytes)},
    {"optimizer_bytes", offsetof(ty_memory_use, optimizer_bytes)},
    {"activation_bytes", offsetof(ty_memory_use, activation_bytes)},
    {"communication_bytes", offsetof(ty_memory_use, communication_bytes)},
    {"compression_bytes", offsetof(ty_memory_use, compression_bytes)},
    {"workspace_bytes", offsetof(ty_memory_use, workspace_bytes)},
};

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* ---- Summary ------------------------------------------------------------------------------- */

void ty_step_summary_to_json(const ty_step_summary *summary, ty_json_writer *writer,
                             const char *key)
{
    ty_json_open(writer, key, '{');
    for (size_t i = 0; i < COUNT(summary_figures); i++) {
        double value;
        memcpy(&value, (const char *)summary + summary_figures[i].offset, sizeof value);
        ty_json_put_number(writer, summary_figures[i].key, value);
    }
    if (summary->limited_by[0] != '\0')
        ty_json_put_string(writer, "limited_by", summary->limited_by);
    ty_json_close(writer, '}');
}

ty_status ty_step_summary_from_json(const ty_json *object, ty_step_summary *out, ty_error *error)
{
    ty_step_summary summary = {0};
    ty_status status;

    for (size_t i = 0; i < COUNT(summary_figures); i++) {
        double value;
        status = ty_json_number(object, summary_figures[i].key, 0, summary_figures[i].maximum,
                                &value, error);
        if (status != TY_OK)
            return status;
        memcpy((char *)&summary + summary_figures[i].offset, &value, sizeof value);
    }
    if (ty_json_has(object, "limited_by")) {
        const char *text;
        if ((status = ty_json_string(object, "limited_by", &text, error)) != TY_OK)
            return status;
        if (strlen(text) >= sizeof summary.limited_by)
            return ty_json_fail(object, error, "\"limited_by\" to be shorter than %zu bytes",
                                sizeof summary.limited_by);
        memcpy(summary.limited_by, text, strlen(text));
    }
    if ((status = ty_json_end(object, error)) != TY_OK)
        return status;
    *out = summary;
    return TY_OK;
}

/* ---- Writing ------------------------------------------------------------------------------- */

static void write_stage(const ty_plan *plan, const ty_plan_stage *stage, ty_json_writer *writer)
{
    ty_json_open(writer, NULL, '{');
    ty_json_put_uint(writer, "first_layer", stage->first_layer);
    ty_json_put_uint(writer, "layer_count", stage->layer_count);
    ty_json_put_uint(writer, "replicas", stage->replicas);
    ty_json_put_uint32_array(writer, "devices", stage->devices,
                             stage->replicas * ty_plan_width(plan));
    ty_json_put_string(writer, "recompute", ty_recompute_name(stage->recompute));
    if (stage->recompute_blocks > 0)
        ty_json_put_uint(writer, "recompute_blocks", stage->recompute_blocks);
    ty_json_close(writer, '}');
}

static void write_bucket(const ty_bucket *bucket, ty_json_writer *writer)
{
    ty_json_open_flat(writer, NULL, '{');
    ty_json_put_uint(writer, "stage", bucket->stage);
    ty_json_put_uint(writer, "first_layer", bucket->first_layer);
    ty_json_put_uint(writer, "layer_count", bucket->layer_count);
    if (bucket->tied_stage != TY_NO_STAGE)
        ty_json_put_uint(writer, "tied_stage", bucket->tied_stage);
    if (bucket->of_experts)
        ty_json_put_bool(writer, "of_experts", true);
    ty_json_put_uint(writer, "gradient_bytes", bucket->gradient_bytes);
    ty_json_put_string(writer, "algorithm", ty_algorithm_name(bucket->algorithm));
    ty_compression_write(&bucket->compression, writer, "compression");
    ty_json_close(writer, '}');
}

/* What most plans do without is left out there. */
static void write_dimensions(const ty_plan *plan, ty_json_writer *writer)
{
    if (plan->interleave > 1)
        ty_json_put_uint(writer, "interleave", plan->interleave);
    if (plan->tensor_parallel > 1)
        ty_json_put_uint(writer, "tensor_parallel", plan->tensor_parallel);
    if (plan->context_parallel > 1)
        ty_json_put_uint(writer, "context_parallel", plan->context_parallel);
    if (plan->expert_parallel > 1)
        ty_json_put_uint(writer, "expert_parallel", plan->expert_parallel);
    if (plan->sequence_parallel)
        ty_json_put_bool(writer, "sequence_parallel", true);
    if (plan->table_shard != TY_TABLES_WHOLE)
        ty_json_put_string(writer, "table_shard", ty_table_shard_name(plan->table_shard));
    if (plan->zero > 0)
        ty_json_put_uint(writer, "zero", plan->zero);
    if (plan->staleness > 0)
        ty_json_put_uint(writer, "staleness", plan->staleness);
}

/* What is to be run: all that the digest covers. */
static void write_decision(const ty_plan *plan, const ty_digest *cluster, ty_json_writer *writer)
{
    ty_json_put_string(writer, "workload_digest", plan->workload_digest.hex);
    ty_json_put_string(writer, "cluster_digest", cluster->hex);
    ty_json_put_string(writer, "schedule", ty_schedule_name(plan->schedule));
    ty_json_put_uint(writer, "global_batch", plan->global_batch);
    ty_json_put_uint(writer, "micro_batch_size", plan->micro_batch_size);
    ty_json_put_uint(writer, "micro_batches", plan->micro_batches);
    write_dimensions(plan, writer);
    ty_optimizer_write(&plan->optimizer, writer);
    ty_json_put_uint(writer, "seed", plan->seed);
    if (plan->servers.count > 0) {
        ty_json_open(writer, "servers", '{');
        ty_json_put_uint32_array(writer, "devices", plan->servers.devices, plan->servers.count);
        ty_json_put_string(writer, "shard", ty_server_shard_name(plan->servers.shard));
        ty_json_close(writer, '}');
    }
    ty_json_open(writer, "stages", '[');
    for (uint32_t s = 0; s < plan->stage_count; s++)
        write_stage(plan, &plan->stages[s], writer);
    ty_json_close(writer, ']');
    ty_json_open(writer, "buckets", '[');
    for (uint32_t b = 0; b < plan->bucket_count; b++)
        write_bucket(&plan->buckets[b], writer);
    ty_json_close(writer, ']');
    if (plan->exchange_order != NULL)
        ty_json_put_uint32_array(writer, "exchange_order", plan->exchange_order,
                                 plan->bucket_count);
}

static void write_uneven(const ty_plan *plan, ty_json_writer *writer)
{
    bool is_open = false;

    for (int kind = 0; kind < TY_UNEVEN_COUNT; kind++) {
        const ty_uneven *uneven = &plan->uneven[kind];
        if (uneven->count == 0)
            continue;
        if (!is_open)
            ty_json_open(writer, "divides_badly", '{');
        is_open = true;
        ty_json_open(writer, ty_uneven_name((ty_uneven_kind)kind), '{');
        ty_json_put_uint(writer, "count", uneven->count);
        ty_json_put_uint(writer, "parts", uneven->parts);
        ty_json_put_number(writer, "lost_share", uneven->lost_share);
        ty_json_open(writer, "better", '[');
        for (uint32_t i = 0; i < uneven->better_count; i++) {
            ty_json_open_flat(writer, NULL, '{');
            ty_json_put_uint(writer, "count", uneven->better[i].count);
            ty_json_put_number(writer, "samples_per_s", uneven->better[i].samples_per_s);
            ty_json_close(writer, '}');
        }
        ty_json_close(writer, ']');
        ty_json_close(writer, '}');
    }
    if (is_open)
        ty_json_close(writer, '}');
}

static void write_answer(const ty_plan *plan, ty_json_writer *writer)
{
    if (plan->has_prediction) {
        ty_step_summary_to_json(&plan->prediction, writer, "prediction");
        if (plan->simulation.step_time_s > 0)
            ty_step_summary_to_json(&plan->simulation, writer, "simulation");
        ty_json_put_string(writer, "provenance", ty_provenance_name(plan->provenance));
        if (plan->most_step_time_s > 0) {
            ty_json_open(writer, "outside_measurements", '{');
            ty_json_put_number(writer, "least_step_time_s", plan->least_step_time_s);
            ty_json_put_number(writer, "most_step_time_s", plan->most_step_time_s);
            ty_json_close(writer, '}');
        }
        write_uneven(plan, writer);
        ty_json_open(writer, "memory", '[');
        for (uint32_t s = 0; s < plan->stage_count; s++) {
            ty_json_open_flat(writer, NULL, '{');
            for (size_t i = 0; i < COUNT(memory_figures); i++) {
                uint64_t bytes;
                memcpy(&bytes, (const char *)&plan->memory[s] + memory_figures[i].offset,
                       sizeof bytes);
                ty_json_put_uint(writer, memory_figures[i].key, bytes);
            }
            ty_json_close(writer, '}');
        }
        ty_json_close(writer, ']');
    }
    if (plan->candidate_count > 0 && plan->searched.estimates > 0) {
        ty_json_open(writer, "searched", '{');
        ty_json_put_uint(writer, "layouts", plan->searched.layouts);
        ty_json_put_uint(writer, "estimates", plan->searched.estimates);
        ty_json_close(writer, '}');
    }
    ty_json_open(writer, "candidates", '[');
    for (uint32_t i = 0; i < plan->candidate_count; i++) {
        const ty_candidate *candidate = &plan->candidates[i];
        ty_json_open_flat(writer, NULL, '{');
        ty_json_put_string(writer, "name", candidate->name);
        ty_json_put_number(writer, "step_time_s", candidate->step_time_s);
        ty_json_put_number(writer, "simulated_step_time_s", candidate->simulated_step_time_s);
        ty_json_put_uint(writer, "peak_memory_bytes", candidate->peak_memory_bytes);
        ty_json_put_string(writer, "reason", candidate->reason);
        if (candidate->fix != NULL)
            ty_json_put_string(writer, "fix", candidate->fix);
        ty_json_close(writer, '}');
    }
    ty_json_close(writer, ']');
}

void ty_plan_to_json(const ty_plan *plan, ty_json_writer *writer, const char *key)
{
    ty_digest digest;
    char *cluster;

    if (ty_cluster_digest(plan->cluster, &digest, NULL) != TY_OK ||
        ty_cluster_text(plan->cluster, &cluster, NULL) != TY_OK) {
        writer->text->failed = TY_ENOMEM;
        return;
    }
    ty_json_open(writer, key, '{');
    ty_json_put_string(writer, "schema", SCHEMA);
    ty_json_put_string(writer, "strategy", plan->strategy);
    ty_json_put_string(writer, "cluster_name", plan->cluster_name);
    if (plan->fix != NULL)
        ty_json_put_string(writer, "fix", plan->fix);
    if (plan->idle_devices > 0)
        ty_json_put_uint(writer, "idle_devices", plan->idle_devices);
    ty_input_to_json(&plan->input, writer, "input");
    write_decision(plan, &digest, writer);
    write_answer(plan, writer);
    ty_workload_to_json(plan->workload, writer, "workload");
    ty_json_put_raw(writer, "cluster", cluster);
    ty_free(cluster);
    if (plan->profile != NULL)
        ty_profile_to_json(plan->profile, writer, "profile");
    if (plan->stack != NULL)
        ty_stack_to_json(plan->stack, writer, "stack");
    ty_json_close(writer, '}');
}

ty_status ty_plan_save(const ty_plan *plan, const char *path, ty_error *error)
{
    ty_status status = TY_OK;
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);

    TY_CHECK(ty_plan_check(plan, path, error), status, cleanup);
    ty_plan_to_json(plan, &writer, NULL);
    ty_text_add(&text, "\n");
    status = ty_file_write_text(path, &text, error);

cleanup:
    ty_text_clear(&text);
    return status;
}

ty_status ty_plan_digest(const ty_plan *plan, ty_digest *out, ty_error *error)
{
    ty_text text = {0};
    char *json;
    ty_digest cluster = {{0}}; /* of a plan made by hand that has none */
    ty_status status =
        plan->cluster == NULL ? TY_OK : ty_cluster_digest(plan->cluster, &cluster, error);
    ty_json_writer writer = ty_json_writer_on(&text);

    if (status != TY_OK)
        return status;
    ty_json_open(&writer, NULL, '{');
    write_decision(plan, &cluster, &writer);
    ty_json_close(&writer, '}');
    status = ty_text_take(&text, &json, error);
    if (status != TY_OK) {
        ty_text_clear(&text);
        return status;
    }
    *out = ty_digest_of(json, strlen(json));
    ty_free(json);
    return TY_OK;
}

/* ---- Reading ------------------------------------------------------------------------------- */

/* `width`: devices a replica. */
static ty_status read_stage(const ty_json *object, uint32_t width, ty_plan_stage *stage,
                            ty_error *error)
{
    ty_status status;
    int recompute;
    uint32_t count;

    TY_CHECK(ty_json_uint32(object, "first_layer", 0, UINT32_MAX - 1, &stage->first_layer, error),
             status, done);
    TY_CHECK(ty_json_uint32(object, "layer_count", 1, UINT32_MAX - 1, &stage->layer_count, error),
             status, done);
    TY_CHECK(ty_json_uint32(object, "replicas", 1, TY_MAX_RANKS, &stage->replicas, error), status,
             done);
    TY_CHECK(ty_json_uint32_array(object, "devices", (size_t)stage->replicas * width,
                                  (size_t)stage->replicas * width, 0, UINT32_MAX - 1,
                                  &stage->devices, &count, error),
             status, done);
    TY_CHECK(
        ty_json_name(object, "recompute", recompute_name, TY_RECOMPUTE_COUNT, &recompute, error),
        status, done);
    stage->recompute = (ty_recompute)recompute;
    if (ty_json_has(object, "recompute_blocks"))
        TY_CHECK(ty_json_uint32(object, "recompute_blocks", 1, TY_MAX_RECOMPUTE_BLOCKS,
                                &stage->recompute_blocks, error),
                 status, done);
    status = ty_json_end(object, error);

done:
    return status;
}

static ty_status read_bucket(const ty_json *object, ty_bucket *bucket, ty_error *error)
{
    ty_status status;
    int algorithm;

    TY_CHECK(ty_json_uint32(object, "stage", 0, UINT32_MAX - 1, &bucket->stage, error), status,
             done);
    TY_CHECK(ty_json_uint32(object, "first_layer", 0, UINT32_MAX - 1, &bucket->first_layer, error),
             status, done);
    TY_CHECK(ty_json_uint32(object, "layer_count", 1, UINT32_MAX - 1, &bucket->layer_count, error),
             status, done);
    bucket->tied_stage = TY_NO_STAGE;
    if (ty_json_has(object, "tied_stage"))
        TY_CHECK(
            ty_json_uint32(object, "tied_stage", 0, UINT32_MAX - 1, &bucket->tied_stage, error),
            status, done);
    if (ty_json_has(object, "of_experts"))
        TY_CHECK(ty_json_bool(object, "of_experts", &bucket->of_experts, error), status, done);
    TY_CHECK(ty_json_uint64(object, "gradient_bytes", 1, TY_JSON_MAX_INTEGER,
                            &bucket->gradient_bytes, error),
             status, done);
    TY_CHECK(
        ty_json_name(object, "algorithm", algorithm_name, TY_ALGORITHM_COUNT, &algorithm, error),
        status, done);
    bucket->algorithm = (ty_algorithm)algorithm;
    TY_CHECK(ty_compression_read(object, "compression", &bucket->compression, error), status, done);
    status = ty_json_end(object, error);

done:
    return status;
}

static ty_status read_memory(const ty_json *object, ty_memory_use *memory, ty_error *error)
{
    for (size_t i = 0; i < COUNT(memory_figures); i++) {
        uint64_t bytes;
        ty_status status =
            ty_json_uint64(object, memory_figures[i].key, 0, TY_JSON_MAX_INTEGER, &bytes, error);
        if (status != TY_OK)
            return status;
        memcpy((char *)memory + memory_figures[i].offset, &bytes, sizeof bytes);
    }
    return ty_json_end(object, error);
}

static ty_status read_candidate(const ty_json *object, ty_candidate *candidate, ty_error *error)
{
    ty_status status;

    TY_CHECK(ty_json_string_copy(object, "name", &candidate->name, error), status, done);
    TY_CHECK(ty_json_number(object, "step_time_s", 0, DBL_MAX, &candidate->step_time_s, error),
             status, done);
    TY_CHECK(ty_json_number(object, "simulated_step_time_s", 0, DBL_MAX,
                            &candidate->simulated_step_time_s, error),
             status, done);
    TY_CHECK(ty_json_uint64(object, "peak_memory_bytes", 0, TY_JSON_MAX_INTEGER,
                            &candidate->peak_memory_bytes, error),
             status, done);
    TY_CHECK(ty_json_string_copy(object, "reason", &candidate->reason, error), status, done);
    if (ty_json_has(object, "fix"))
        TY_CHECK(ty_json_string_copy(object, "fix", &candidate->fix, error), status, done);
    status = ty_json_end(object, error);

done:
    return status;
}

/* An array member with room for its elements, zeroed. */
static ty_status read_array(const ty_json *object, const char *key, size_t minimum, size_t maximum,
                            size_t size, const ty_json **array, void **room, ty_error *error)
{
    ty_status status = ty_json_array(object, key, minimum, maximum, array, error);

    if (status != TY_OK)
        return status;
    *room = ty_alloc(ty_json_size(*array), size);
    return *room == NULL ? ty_fail(error, TY_ENOMEM, "out of memory") : TY_OK;
}

static ty_status read_dimensions(const ty_json *object, ty_plan *plan, ty_error *error)
{
    const struct {
        const char *key;
        uint32_t minimum, maximum;
        uint32_t *value;
    } dimensions[] = {
        {"interleave", 1, TY_MAX_STAGES_OF_A_PLAN, &plan->interleave},
        {"tensor_parallel", 1, TY_MAX_LANES, &plan->tensor_parallel},
        {"context_parallel", 1, TY_MAX_LANES, &plan->context_parallel},
        {"expert_parallel", 1, TY_MAX_LANES, &plan->expert_parallel},
        {"zero", 0, 3, &plan->zero},
        {"staleness", 0, TY_MAX_STALENESS, &plan->staleness},
    };
    int shard = TY_TABLES_WHOLE;
    ty_status status = TY_OK;

    for (size_t i = 0; i < COUNT(dimensions); i++)
        if (ty_json_has(object, dimensions[i].key))
            TY_CHECK(ty_json_uint32(object, dimensions[i].key, dimensions[i].minimum,
                                    dimensions[i].maximum, dimensions[i].value, error),
                     status, done);
    if (ty_json_has(object, "sequence_parallel"))
        TY_CHECK(ty_json_bool(object, "sequence_parallel", &plan->sequence_parallel, error), status,
                 done);
    if (ty_json_has(object, "table_shard"))
        TY_CHECK(
            ty_json_name(object, "table_shard", table_name, TY_TABLE_SHARD_COUNT, &shard, error),
            status, done);
    plan->table_shard = (ty_table_shard)shard;
done:
    return status;
}

static ty_status read_servers(const ty_json *object, ty_plan_servers *servers, ty_error *error)
{
    ty_status status;
    int shard;

    TY_CHECK(ty_json_uint32_array(object, "devices", 1, TY_MAX_RANKS, 0, UINT32_MAX - 1,
                                  &servers->devices, &servers->count, error),
             status, done);
    TY_CHECK(ty_json_name(object, "shard", shard_name, TY_SERVER_SHARD_COUNT, &shard, error),
             status, done);
    servers->shard = (ty_server_shard)shard;
    status = ty_json_end(object, error);

done:
    return status;
}

static ty_status read_decision(const ty_json *object, ty_plan *plan, ty_error *error)
{
    ty_status status;
    const ty_json *value;
    void *room;
    int schedule;

    TY_CHECK(ty_json_digest(object, "workload_digest", &plan->workload_digest, error), status,
             done);
    TY_CHECK(ty_json_name(object, "schedule", schedule_name, TY_SCHEDULE_COUNT, &schedule, error),
             status, done);
    plan->schedule = (ty_schedule)schedule;
    TY_CHECK(ty_json_uint32(object, "global_batch", 1, UINT32_MAX, &plan->global_batch, error),
             status, done);
    TY_CHECK(
        ty_json_uint32(object, "micro_batch_size", 1, UINT32_MAX, &plan->micro_batch_size, error),
        status, done);
    TY_CHECK(ty_json_uint32(object, "micro_batches", 1, TY_MAX_MICRO_BATCHES, &plan->micro_batches,
                            error),
             status, done);
    TY_CHECK(read_dimensions(object, plan, error), status, done);
    TY_CHECK(ty_optimizer_read(object, &plan->optimizer, error), status, done);
    TY_CHECK(ty_json_uint64(object, "seed", 0, TY_JSON_MAX_INTEGER, &plan->seed, error), status,
             done);

    if (ty_json_has(object, "servers")) {
        TY_CHECK(ty_json_object(object, "servers", &value, error), status, done);
        TY_CHECK(read_servers(value, &plan->servers, error), status, done);
    }
    TY_CHECK(read_array(object, "stages", 1, TY_MAX_STAGES_OF_A_PLAN, sizeof *plan->stages, &value,
                        &room, error),
             status, done);
    plan->stages = room;
    plan->stage_count = (uint32_t)ty_json_size(value);
    for (uint32_t s = 0; s < plan->stage_count; s++)
        TY_CHECK(read_stage(ty_json_at(value, s), ty_plan_width(plan), &plan->stages[s], error),
                 status, done);

    TY_CHECK(read_array(object, "buckets", 0, 1000000, sizeof *plan->buckets, &value, &room, error),
             status, done);
    plan->buckets = room;
    plan->bucket_count = (uint32_t)ty_json_size(value);
    for (uint32_t b = 0; b < plan->bucket_count; b++)
        TY_CHECK(read_bucket(ty_json_at(value, b), &plan->buckets[b], error), status, done);
    if (ty_json_has(object, "exchange_order")) {
        uint32_t count;
        TY_CHECK(ty_json_uint32_array(object, "exchange_order", plan->bucket_count,
                                      plan->bucket_count, 0, UINT32_MAX - 1, &plan->exchange_order,
                                      &count, error),
                 status, done);
    }

done:
    return status;
}

static ty_status read_uneven(const ty_json *object, const char *key, ty_uneven *out,
                             ty_error *error)
{
    const ty_json *value, *better;
    ty_status status;

    TY_CHECK(ty_json_object(object, key, &value, error), status, done);
    TY_CHECK(ty_json_uint32(value, "count", 1, UINT32_MAX, &out->count, error), status, done);
    TY_CHECK(ty_json_uint32(value, "parts", 1, UINT32_MAX, &out->parts, error), status, done);
    TY_CHECK(ty_json_number(value, "lost_share", 0, 1, &out->lost_share, error), status, done);
    TY_CHECK(ty_json_array(value, "better", 0, sizeof out->better / sizeof out->better[0], &better,
                           error),
             status, done);
    out->better_count = (uint32_t)ty_json_size(better);
    for (uint32_t i = 0; i < out->better_count; i++) {
        const ty_json *row = ty_json_at(better, i);
        TY_CHECK(ty_json_uint32(row, "count", 1, UINT32_MAX, &out->better[i].count, error), status,
                 done);
        TY_CHECK(
            ty_json_number(row, "samples_per_s", 0, DBL_MAX, &out->better[i].samples_per_s, error),
            status, done);
        TY_CHECK(ty_json_end(row, error), status, done);
    }
    TY_CHECK(ty_json_end(value, error), status, done);
done:
    return status;
}

static ty_status read_prediction(const ty_json *object, ty_plan *plan, ty_error *error)
{
    ty_status status;
    const ty_json *value;
    void *room;
    int provenance;

    TY_CHECK(ty_json_object(object, "prediction", &value, error), status, done);
    TY_CHECK(ty_step_summary_from_json(value, &plan->prediction, error), status, done);
    if (ty_json_has(object, "simulation")) {
        TY_CHECK(ty_json_object(object, "simulation", &value, error), status, done);
        TY_CHECK(ty_step_summary_from_json(value, &plan->simulation, error), status, done);
    }
    TY_CHECK(
        ty_json_name(object, "provenance", provenance_name, TY_DATASHEET + 1, &provenance, error),
        status, done);
    plan->provenance = (ty_provenance)provenance;
    if (ty_json_has(object, "outside_measurements")) {
        TY_CHECK(ty_json_object(object, "outside_measurements", &value, error), status, done);
        TY_CHECK(
            ty_json_number(value, "least_step_time_s", 0, DBL_MAX, &plan->least_step_time_s, error),
            status, done);
        TY_CHECK(ty_json_number(value, "most_step_time_s", plan->least_step_time_s, DBL_MAX,
                                &plan->most_step_time_s, error),
                 status, done);
        TY_CHECK(ty_json_end(value, error), status, done);
    }
    if (ty_json_has(object, "divides_badly")) {
        TY_CHECK(ty_json_object(object, "divides_badly", &value, error), status, done);
        for (int kind = 0; kind < TY_UNEVEN_COUNT; kind++)
            if (ty_json_has(value, ty_uneven_name((ty_uneven_kind)kind)))
                TY_CHECK(read_uneven(value, ty_uneven_name((ty_uneven_kind)kind),
                                     &plan->uneven[kind], error),
                         status, done);
        TY_CHECK(ty_json_end(value, error), status, done);
    }
    TY_CHECK(read_array(object, "memory", plan->stage_count, plan->stage_count,
                        sizeof *plan->memory, &value, &room, error),
             status, done);
    plan->memory = room;
    for (uint32_t s = 0; s < plan->stage_count; s++)
        TY_CHECK(read_memory(ty_json_at(value, s), &plan->memory[s], error), status, done);
    plan->has_prediction = true;

done:
    return status;
}

static ty_status read_searched(const ty_json *object, ty_plan_searched *out, ty_error *error)
{
    const ty_json *searched;
    ty_status status = TY_OK;

    if (!ty_json_has(object, "searched"))
        return TY_OK;
    TY_CHECK(ty_json_object(object, "searched", &searched, error), status, done);
    TY_CHECK(ty_json_uint64(searched, "layouts", 0, MOST_LAYOUTS, &out->layouts, error), status,
             done);
    status = ty_json_uint32(searched, "estimates", 1, UINT32_MAX, &out->estimates, error);
done:
    return status;
}

static ty_status read_candidates(const ty_json *object, ty_plan *plan, ty_error *error)
{
    ty_status status;
    const ty_json *value;
    void *room;

    TY_CHECK(read_array(object, "candidates", 0, 10000000, sizeof *plan->candidates, &value, &room,
                        error),
             status, done);
    plan->candidates = room;
    plan->candidate_count = (uint32_t)ty_json_size(value);
    for (uint32_t i = 0; i < plan->candidate_count; i++)
        TY_CHECK(read_candidate(ty_json_at(value, i), &plan->candidates[i], error), status, done);

done:
    return status;
}

/* However a file lays the cluster out, its digest is that of its one-line form. */
static ty_status read_cluster(const ty_json *object, ty_plan *plan, ty_error *error)
{
    const ty_json *value;
    char *text = NULL, place[TY_JSON_PLACE_SIZE];
    ty_digest expected, found;
    ty_status status;

    TY_CHECK(ty_json_digest(object, "cluster_digest", &expected, error), status, done);
    TY_CHECK(ty_json_object(object, "cluster", &value, error), status, done);
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
    status = ty_cluster_from_json(value, &plan->cluster, error);
done:
    ty_free(text);
    return status;
}

static ty_status read_documents(const ty_json *object, ty_plan *plan, ty_error *error)
{
    ty_status status;
    const ty_json *value;

    TY_CHECK(ty_json_object(object, "workload", &value, error), status, done);
    TY_CHECK(ty_workload_from_json(value, &plan->workload, error), status, done);
    TY_CHECK(read_cluster(object, plan, error), status, done);
    if (ty_json_has(object, "profile")) {
        TY_CHECK(ty_json_object(object, "profile", &value, error), status, done);
        TY_CHECK(ty_profile_from_json(value, &plan->profile, error), status, done);
    }
    if (!ty_json_has(object, "stack")) { /* written before there were stacks */
        status = ty_stack_open(TY_WORKER_STACK, &plan->stack, error);
        goto done;
    }
    TY_CHECK(ty_json_object(object, "stack", &value, error), status, done);
    TY_CHECK(ty_stack_from_json(value, &plan->stack, error), status, done);

done:
    return status;
}

ty_status ty_plan_from_json(const ty_json *object, ty_plan **out, ty_error *error)
{
    ty_status status = TY_OK;
    char place[TY_JSON_PLACE_SIZE];
    ty_plan *plan = ty_alloc(1, sizeof *plan);

    if (plan == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    TY_CHECK(ty_json_schema(object, SCHEMA, error), status, cleanup);
    TY_CHECK(ty_json_string_copy(object, "strategy", &plan->strategy, error), status, cleanup);
    TY_CHECK(ty_json_string_copy(object, "cluster_name", &plan->cluster_name, error), status,
             cleanup);
    if (ty_json_has(object, "fix"))
        TY_CHECK(ty_json_string_copy(object, "fix", &plan->fix, error), status, cleanup);
    if (ty_json_has(object, "idle_devices"))
        TY_CHECK(
            ty_json_uint32(object, "idle_devices", 0, TY_MAX_RANKS, &plan->idle_devices, error),
            status, cleanup);
    if (ty_json_has(object, "input"))
        TY_CHECK(ty_input_from_json(object, "input", &plan->input, error), status, cleanup);
    TY_CHECK(read_decision(object, plan, error), status, cleanup);
    if (ty_json_has(object, "prediction"))
        TY_CHECK(read_prediction(object, plan, error), status, cleanup);
    TY_CHECK(read_searched(object, &plan->searched, error), status, cleanup);
    TY_CHECK(read_candidates(object, plan, error), status, cleanup);
    TY_CHECK(read_documents(object, plan, error), status, cleanup);
    TY_CHECK(ty_json_end(object, error), status, cleanup);
    ty_json_place(object, place);
    TY_CHECK(ty_plan_check_at(plan, place, error), status, cleanup);
    *out = plan;
    plan = NULL;

cleanup:
    ty_plan_free(plan);
    return status;
}

ty_status ty_plan_load(const char *path, ty_plan **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_json_document *document = NULL;

    TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
    status = ty_plan_from_json(ty_json_root(document), out, error);

cleanup:
    ty_json_free(document);
    return status;
}
