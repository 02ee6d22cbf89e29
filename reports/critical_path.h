/**
 * @file critical_path.h
 * The longest dependency chain of one step. It goes back from the compute instruction that ends
 * last. Each instruction leads to the one that it waited for last: the one before it in its stream,
 * one of its `waits`, the send of a receive, or the last member of a collective. Internal to
 * reports/.
 */
#ifndef TY_REPORTS_CRITICAL_PATH_H
#define TY_REPORTS_CRITICAL_PATH_H

#include "partners.h"

typedef struct path_link {
    uint32_t stage_replica, instruction;
    double from_s, to_s; /* its part of the step */
} path_link;

typedef struct critical_path {
    uint32_t count;
    path_link *links; /* from the last to the first */
} critical_path;

/** @param start_s begin of the step, where the path ends */
ty_status ty_critical_path_find(const ty_plan *plan, const ty_program *program,
                                const ty_timeline *timeline, const partners *p, uint32_t step,
                                double start_s, critical_path *out, ty_error *error) TY_MUST_CHECK;
void ty_critical_path_clear(critical_path *path);
bool ty_critical_path_has(const critical_path *path, uint32_t stage_replica, uint32_t instruction);

#endif
