/* Costs of a program: one table from operation to the function that prices it. */
#include "costing.h"

#include <math.h>

static const ty_cost_function functions[TY_OP_COUNT] = {
    [TY_OP_LOAD] = ty_cost_load,         [TY_OP_FORWARD] = ty_cost_layers,
    [TY_OP_RECOMPUTE] = ty_cost_layers,  [TY_OP_BACKWARD] = ty_cost_layers,
    [TY_OP_SEND] = ty_cost_send,         [TY_OP_RECEIVE] = ty_cost_receive,
    [TY_OP_ENCODE] = ty_cost_codec,      [TY_OP_COLLECTIVE] = ty_cost_collective,
    [TY_OP_DECODE] = ty_cost_codec,      [TY_OP_UPDATE] = ty_cost_update,
    [TY_OP_BEGIN] = ty_cost_begin,       [TY_OP_BACKWARD_INPUT] = ty_cost_layers,
    [TY_OP_GATHER] = ty_cost_collective, [TY_OP_BACKWARD_WEIGHT] = ty_cost_layers,
};

ty_costing ty_costing_of(const ty_plan *plan, ty_network_cache *networks, ty_error *error)
{
    uint32_t ignored;

    return (ty_costing){.plan = plan,
                        .profile = plan->profile,
                        .cluster = ty_network_cache_cluster(networks),
                        .networks = networks,
                        .is_local = plan->profile != NULL && plan->cluster_name != NULL &&
                                    ty_cluster_is_local(plan->cluster_name, &ignored),
                        .error = error};
}

static ty_status check_devices(const ty_plan *plan, const ty_cluster *cluster, ty_error *error)
{
    for (uint32_t s = 0; s < plan->stage_count; s++)
        for (uint32_t q = 0; q < plan->stages[s].replicas * ty_plan_replica_ranks(plan); q++)
            if (plan->stages[s].devices[q] >= ty_cluster_device_count(cluster))
                return ty_fail(error, TY_EINVAL,
                               "plan:/stages/%u/devices/%u: found %u, but cluster \"%s\" has %u "
                               "devices",
                               s, q, plan->stages[s].devices[q], ty_cluster_name(cluster),
                               ty_cluster_device_count(cluster));
    for (uint32_t s = 0; s < plan->servers.count; s++)
        if (plan->servers.devices[s] >= ty_cluster_device_count(cluster))
            return ty_fail(error, TY_EINVAL,
                           "plan:/servers/devices/%u: found %u, but cluster \"%s\" has %u devices",
                           s, plan->servers.devices[s], ty_cluster_name(cluster),
                           ty_cluster_device_count(cluster));
    if (plan->idle_devices > 0 && (uint64_t)plan->idle_devices + ty_plan_launched_count(plan) !=
                                      ty_cluster_device_count(cluster))
        return ty_fail(error, TY_EINVAL,
                       "plan:/idle_devices: found %u, expected %u: the stages and servers use %u "
                       "of the %u of cluster \"%s\"",
                       plan->idle_devices,
                       ty_cluster_device_count(cluster) - ty_plan_launched_count(plan),
                       ty_plan_launched_count(plan), ty_cluster_device_count(cluster),
                       ty_cluster_name(cluster));
    return TY_OK;
}

/* The host whose cores each stage replica shares. */
static ty_status place_replicas(const ty_plan *plan, const ty_cluster *cluster, ty_costs *costs,
                                ty_error *error)
{
    uint32_t hosts = ty_cluster_host_count(cluster), stage_replica = 0;

    TY_TRY(ty_check_memory((costs->host_cores = ty_alloc(hosts, sizeof *costs->host_cores)) != NULL,
                           error));
    costs->host_count = hosts;
    for (uint32_t h = 0; h < hosts; h++) {
        uint32_t cores = ty_cluster_host_cores(cluster, h);
        costs->host_cores[h] = cores > 0 ? (double)cores : HUGE_VAL;
    }
    for (uint32_t s = 0; s < ty_plan_pipeline_size(plan); s++)
        for (uint32_t q = 0; q < plan->stages[s].replicas; q++)
            costs->replica_host[stage_replica++] = ty_cluster_device_host(
                cluster, plan->stages[s].devices[q * ty_plan_replica_ranks(plan)]);
    return TY_OK;
}

static ty_status cost_stage(ty_costing *costing, const ty_stage_program *stage, uint32_t index,
                            ty_instruction_cost *out)
{
    ty_status status = TY_OK;

    TY_CHECK(ty_cost_stage_open(costing, index), status, cleanup);
    for (uint32_t i = 0; i < stage->instruction_count; i++) {
        const ty_instruction *instruction = &stage->instructions[i];
        if ((uint32_t)instruction->op >= TY_OP_COUNT) {
            status = ty_fail(costing->error, TY_EINVAL,
                             "program:/stages/%u: instruction %u has no operation", index, i);
            goto cleanup;
        }
        TY_CHECK(functions[instruction->op](costing, instruction, &out[i]), status, cleanup);
    }
cleanup:
    ty_cost_stage_close(costing);
    return status;
}

ty_status ty_costs_by_networks(const ty_plan *plan, const ty_program *program,
                               ty_network_cache *networks, ty_costs **out, ty_error *error)
{
    const ty_cluster *cluster = ty_network_cache_cluster(networks);
    ty_costing costing = ty_costing_of(plan, networks, error);
    ty_costs *costs = NULL;
    ty_status status = TY_OK;

    if (program->stage_count != ty_plan_pipeline_size(plan))
        return ty_fail(error, TY_EINVAL, "a program of %u stages, expected the plan's %u",
                       program->stage_count, ty_plan_pipeline_size(plan));
    TY_CHECK(check_devices(plan, cluster, error), status, cleanup);
    TY_CHECK(ty_costs_new(plan, program, &costs, error), status, cleanup);
    TY_CHECK(place_replicas(plan, cluster, costs, error), status, cleanup);
    for (uint32_t s = 0; s < program->stage_count; s++)
        TY_CHECK(cost_stage(&costing, &program->stages[s], s, costs->instructions[s]), status,
                 cleanup);
    costs->provenance = costing.provenance;
    *out = costs;
    costs = NULL;

cleanup:
    ty_costs_free(costs);
    return status;
}

ty_status ty_costs_of_program(const ty_plan *plan, const ty_program *program,
                              const ty_cluster *cluster, ty_costs **out, ty_error *error)
{
    ty_network_cache *networks = NULL;
    ty_status status = ty_network_cache_new(cluster, &networks, error);

    if (status == TY_OK)
        status = ty_costs_by_networks(plan, program, networks, out, error);
    ty_network_cache_free(networks);
    return status;
}
