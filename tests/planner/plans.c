#include "plans.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void *need(void *block)
{
    if (block == NULL)
        abort();
    return block;
}

ty_plan *make_plan(const plan_shape *shape)
{
    ty_cluster *cluster = NULL;
    ty_error error = {0};

    must(ty_cluster_open("host:1 gpu:64 @v100-sxm2-16gb nvlink2 edr100", NULL, &cluster, &error) ==
             TY_OK,
         "cluster", error.message);
    return plan_of(chain_workload(shape_layers(shape), shape->is_tied), cluster, shape);
}

uint32_t random_below(random_numbers *numbers, uint32_t limit)
{
    uint64_t x = numbers->state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    numbers->state = x;
    return (uint32_t)((x * 0x2545F4914F6CDD1DULL) >> 33) % limit;
}

/* From 0.1 ms to 10 ms; one in ten takes no time at all. */
double random_seconds(random_numbers *numbers)
{
    return random_below(numbers, 10) == 0 ? 0 : 1e-4 * (1 + random_below(numbers, 100));
}

plan_shape random_shape(random_numbers *numbers)
{
    plan_shape shape = {.schedule = random_below(numbers, 2) == 0 ? TY_GPIPE : TY_ONE_F_ONE_B};
    const uint32_t stages = 1 + random_below(numbers, MAX_STAGES);
    bool is_replicated = false;

    shape.micro_batches = 6 * (1 + random_below(numbers, 4));
    shape.compression.kind = (ty_compression_kind)random_below(numbers, TY_COMPRESSION_COUNT);
    if (shape.compression.kind == TY_COMPRESSION_ROWS) /* there are no embeddings here */
        shape.compression.kind = TY_COMPRESSION_NONE;
    shape.recompute = random_below(numbers, 3) == 0 ? TY_RECOMPUTE_FULL : TY_RECOMPUTE_NONE;
    shape.staleness = random_below(numbers, 2) == 0 ? random_below(numbers, 4) : 0;
    if (shape.recompute != TY_RECOMPUTE_NONE)
        shape.recompute_blocks = random_below(numbers, 3);
    if (shape.recompute != TY_RECOMPUTE_NONE && shape.recompute_blocks == 0 &&
        random_below(numbers, 2) == 0)
        shape.recompute = TY_RECOMPUTE_OPERATOR;
    shape.is_tied = stages > 1 && random_below(numbers, 2) == 0;
    for (uint32_t s = 0; s < stages; s++) {
        shape.replicas[s] = 1 + random_below(numbers, 3);
        is_replicated = is_replicated || shape.replicas[s] > 1;
        shape.layers[s] = 2 + random_below(numbers, 4);
        shape.stage_buckets[s] = 1 + random_below(numbers, shape.layers[s]);
    }
    if (!is_replicated)
        shape.staleness = 0;
    return shape;
}

ty_costs *make_costs(const ty_plan *plan, const ty_program *program)
{
    ty_costs *costs = NULL;

    if (ty_costs_new(plan, program, &costs, NULL) != TY_OK)
        abort();
    costs->host_count = costs->stage_replica_count;
    costs->host_cores = need(ty_alloc(costs->host_count, sizeof *costs->host_cores));
    for (uint32_t stage_replica = 0; stage_replica < costs->stage_replica_count; stage_replica++) {
        costs->replica_host[stage_replica] = stage_replica;
        costs->host_cores[stage_replica] = HUGE_VAL;
    }
    for (uint32_t s = 0; s < costs->stage_count; s++)
        for (uint32_t i = 0; i < costs->instruction_counts[s]; i++)
            if (program->stages[s].instructions[i].op != TY_OP_RECEIVE)
                costs->instructions[s][i].core_share = 1;
    return costs;
}

void set_seconds(ty_costs *costs, const ty_program *program, uint32_t stage, ty_op op,
                 double seconds)
{
    for (uint32_t i = 0; i < costs->instruction_counts[stage]; i++)
        if (program->stages[stage].instructions[i].op == op)
            costs->instructions[stage][i].seconds = seconds;
}

void set_random_seconds(ty_costs *costs, const ty_plan *plan, const ty_program *program,
                        random_numbers *numbers)
{
    double *bucket_s = need(ty_alloc(plan->bucket_count, sizeof *bucket_s));

    for (uint32_t b = 0; b < plan->bucket_count; b++)
        bucket_s[b] = random_seconds(numbers);
    for (uint32_t s = 0; s < costs->stage_count; s++) {
        for (uint32_t i = 0; i < costs->instruction_counts[s]; i++) {
            const ty_instruction *instruction = &program->stages[s].instructions[i];
            double *seconds = &costs->instructions[s][i].seconds;
            if (instruction->op == TY_OP_COLLECTIVE)
                *seconds = bucket_s[instruction->bucket];
            else if (instruction->op != TY_OP_RECEIVE)
                *seconds = random_seconds(numbers);
        }
    }
    ty_free(bucket_s);
}

void share_host(ty_costs *costs, double cores)
{
    costs->host_count = 1;
    costs->host_cores[0] = cores;
    for (uint32_t stage_replica = 0; stage_replica < costs->stage_replica_count; stage_replica++)
        costs->replica_host[stage_replica] = 0;
}
