/* Hand-made and random plans, programs and costs for the planner's tests. */
#ifndef TY_TEST_PLANS_H
#define TY_TEST_PLANS_H

#include "../plan_shape.h"

#include "ty_planner.h"

#define MAX_STAGES 4

/* A chain of the shape's layers, on a host of 64 GPUs. */
ty_plan *make_plan(const plan_shape *shape);

/* A reproducible stream of numbers: xorshift64* (Vigna, 2016). */
typedef struct random_numbers {
    uint64_t state;
} random_numbers;
uint32_t random_below(random_numbers *numbers, uint32_t limit);
double random_seconds(random_numbers *numbers);
plan_shape random_shape(random_numbers *numbers);

/* One host per rank with enough cores, core_share 1 for all, every time 0. */
ty_costs *make_costs(const ty_plan *plan, const ty_program *program);
/* Seconds for all instructions of an operation of a stage. */
void set_seconds(ty_costs *costs, const ty_program *program, uint32_t stage, ty_op op,
                 double seconds);
/* Random seconds for everything but receives; members of a collective agree. */
void set_random_seconds(ty_costs *costs, const ty_plan *plan, const ty_program *program,
                        random_numbers *numbers);
/* All ranks on one host. */
void share_host(ty_costs *costs, double cores);

#endif
