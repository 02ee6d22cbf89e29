/* The software that is taken for granted where nobody names one. */
#include "ty_planner.h"

const char *ty_stack_default_name(const ty_workload *workload, const ty_cluster *cluster)
{
    (void)workload;
    (void)cluster;
    return TY_WORKER_STACK;
}
