#include "scenario.h"

#include "ty_base.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

ty_cluster *cluster_of(const char *text)
{
    ty_cluster *cluster = NULL;
    ty_error error = {0};
    cr_assert(ty_cluster_open(text, NULL, &cluster, &error) == TY_OK, "%s: %s", text,
              error.message);
    return cluster;
}

ty_cluster *cluster_of_cores(uint32_t ranks, uint32_t cores)
{
    ty_transfer_time transfers[] = {{1000, 1e-5, 0}, {1000000, 1e-3, 0}};
    ty_profile profile = {
        .machine = "test",
        .backend = "cpu",
        .date = "2026-01-01",
        .versions = "none",
        .cores = cores,
        .concurrent_ranks = 1,
        .memory_bytes = (uint64_t)1 << 34,
        .peak_flop_per_s = 1e11,
        .memory_bandwidth_bytes_per_s = 1e10,
        .transfer_time_count = 2,
        .transfer_times = transfers,
    };
    ty_cluster *cluster = NULL;
    ty_error error = {0};
    cr_assert(ty_cluster_local(ranks, &profile, &cluster, &error) == TY_OK, "%s", error.message);
    return cluster;
}

void scenario_open(scenario *s, ty_cluster *cluster, uint32_t stages, const uint32_t *replicas,
                   uint32_t micro_batches)
{
    ty_workload *workload = chain_workload(stages, false);
    plan_shape shape = {.micro_batches = micro_batches, .micro_batch_size = 1};

    cr_assert(stages <= MOST_STAGES);
    for (uint32_t i = 0; i < stages; i++) {
        workload->layers[i].is_frozen = true; /* buckets are scenario_bucket's */
        shape.layers[i] = 1;
        shape.replicas[i] = replicas[i];
    }
    memset(s, 0, sizeof *s);
    s->cluster = cluster;
    s->options = ty_simulate_options_default();
    s->options.steps = 1;
    s->options.time_limit_s = 60.0;
    s->made = plan_of(workload, ty_cluster_share(cluster), &shape);
    ty_free(s->made->buckets);
    s->made->buckets = ty_alloc(MOST_BUCKETS, sizeof(ty_bucket));
    s->plan = *s->made;
    s->stages = s->plan.stages;
    s->buckets = s->plan.buckets;
    s->program.stage_count = stages;
    s->program.stages = s->codes;
}

uint32_t scenario_bucket(scenario *s, uint32_t stage, ty_algorithm algorithm,
                         ty_compression_kind compression)
{
    cr_assert(s->plan.bucket_count < MOST_BUCKETS);
    s->buckets[s->plan.bucket_count] = (ty_bucket){
        .stage = stage,
        .first_layer = stage,
        .layer_count = 1,
        .tied_stage = TY_NO_STAGE,
        .gradient_bytes = 4096,
        .algorithm = algorithm,
        .compression.kind = compression,
        .compression.ratio = compression == TY_COMPRESSION_TOP_K ? 0.01 : 0.0,
    };
    return s->plan.bucket_count++;
}

ty_instruction op(ty_op what)
{
    return ty_instruction_of(what);
}

ty_instruction transfer(ty_op what, ty_direction direction, uint32_t peer_stage,
                        uint32_t micro_batch)
{
    ty_instruction instruction = ty_instruction_of(what);
    instruction.direction = direction;
    instruction.peer_stage = peer_stage;
    instruction.micro_batch = micro_batch;
    return instruction;
}

ty_instruction exchange(uint32_t bucket)
{
    ty_instruction instruction = ty_instruction_of(TY_OP_COLLECTIVE);
    instruction.bucket = bucket;
    return instruction;
}

uint32_t scenario_add(scenario *s, uint32_t stage, ty_instruction instruction,
                      const uint32_t *waits, ty_instruction_cost cost)
{
    uint32_t index = 0, count = 0;
    ty_error error = {0};

    while (waits != NULL && waits[count] != TY_NO_INSTRUCTION)
        count++;
    cr_assert(ty_program_append(&s->program, stage, &instruction, waits, count, &index, &error) ==
                  TY_OK,
              "%s", error.message);
    cr_assert(index < MOST_INSTRUCTIONS);
    s->cost_rows[stage][index] = cost;
    return index;
}

void scenario_close(scenario *s)
{
    ty_error error = {0};
    ty_costs *costs = NULL;

    cr_assert(ty_costs_new(&s->plan, &s->program, &costs, &error) == TY_OK, "%s", error.message);
    for (uint32_t i = 0; i < s->plan.stage_count; i++)
        memcpy(costs->instructions[i], s->cost_rows[i],
               costs->instruction_counts[i] * sizeof(ty_instruction_cost));
    costs->host_count = ty_cluster_host_count(s->cluster);
    costs->host_cores = ty_alloc(costs->host_count, sizeof *costs->host_cores);
    for (uint32_t h = 0; h < costs->host_count; h++) {
        const uint32_t cores = ty_cluster_host_cores(s->cluster, h);
        costs->host_cores[h] = cores > 0 ? (double)cores : HUGE_VAL;
    }
    for (uint32_t r = 0; r < costs->stage_replica_count; r++)
        costs->replica_host[r] =
            ty_cluster_device_host(s->cluster, ty_plan_device_of_replica(&s->plan, r));
    s->costs = costs;
}

void scenario_free(scenario *s)
{
    for (uint32_t i = 0; i < s->plan.stage_count; i++) {
        for (uint32_t k = 0; k < s->codes[i].instruction_count; k++)
            ty_free(s->codes[i].instructions[k].waits);
        ty_free(s->codes[i].instructions);
    }
    s->plan.workload = s->made->workload;
    *s->made = s->plan;
    ty_plan_free(s->made);
    ty_costs_free(s->costs);
    ty_cluster_free(s->cluster);
}

ty_timeline *scenario_simulate(const scenario *s)
{
    ty_timeline *timeline = NULL;
    ty_error error = {0};
    ty_status status =
        ty_simulate(&s->plan, &s->program, s->costs, s->cluster, &s->options, &timeline, &error);
    cr_assert(status == TY_OK, "%s: %s", ty_status_name(status), error.message);
    status = ty_timeline_check(&s->plan, &s->program, timeline, "simulation", &error);
    cr_assert(status == TY_OK, "%s", error.message);
    return timeline;
}

const ty_event *event_of(const scenario *s, const ty_timeline *timeline, uint32_t step,
                         uint32_t stage_replica, uint32_t instruction)
{
    const ty_event *event =
        ty_timeline_find(timeline, &s->program, &s->plan, step, stage_replica, instruction);
    cr_assert(event != NULL, "no event of step %u, stage replica %u, instruction %u", step,
              stage_replica, instruction);
    return event;
}

void expect_close(const char *what, double found, double expected, double tolerance)
{
    const double allowed = fmax(tolerance * fabs(expected), 2e-9);
    cr_expect(fabs(found - expected) <= allowed, "%s: found %.12g, expected %.12g", what, found,
              expected);
}
