/* The table of instruction costs. The planner fills it. */
#include "ty_program.h"

#include "ty_base.h"

ty_status ty_costs_new(const ty_plan *plan, const ty_program *program, ty_costs **out,
                       ty_error *error)
{
    ty_status status = TY_OK;
    ty_costs *costs = ty_alloc(1, sizeof *costs);

    TY_TRY(ty_check_memory(costs != NULL, error));
    costs->stage_count = program->stage_count;
    costs->stage_replica_count = ty_plan_stage_replica_count(plan);
    costs->instruction_counts = ty_alloc(program->stage_count, sizeof *costs->instruction_counts);
    costs->instructions = ty_alloc(program->stage_count, sizeof *costs->instructions);
    costs->replica_host = ty_alloc(costs->stage_replica_count, sizeof *costs->replica_host);
    TY_CHECK(ty_check_memory(costs->instruction_counts != NULL && costs->instructions != NULL &&
                                 costs->replica_host != NULL,
                             error),
             status, cleanup);
    for (uint32_t s = 0; s < program->stage_count; s++) {
        uint32_t count = program->stages[s].instruction_count;
        costs->instructions[s] = ty_alloc(count, sizeof **costs->instructions);
        TY_CHECK(ty_check_memory(costs->instructions[s] != NULL, error), status, cleanup);
        costs->instruction_counts[s] = count;
    }
    *out = costs;
    costs = NULL;

cleanup:
    ty_costs_free(costs);
    return status;
}

void ty_costs_free(ty_costs *costs)
{
    if (costs == NULL)
        return;
    for (uint32_t s = 0; costs->instructions != NULL && s < costs->stage_count; s++)
        ty_free(costs->instructions[s]);
    ty_free(costs->instructions);
    ty_free(costs->instruction_counts);
    ty_free(costs->replica_host);
    ty_free(costs->host_cores);
    ty_free(costs);
}
