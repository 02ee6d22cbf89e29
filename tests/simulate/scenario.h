/* Small plans, programs and costs made by hand, and invariants of every timeline. */
#ifndef SCENARIO_H
#define SCENARIO_H

#include "../plan_shape.h"

#include "ty_simulate.h"

enum { MOST_STAGES = 4, MOST_INSTRUCTIONS = 128, MOST_BUCKETS = 8 };

typedef struct scenario {
    ty_plan plan, *made;   /* tests change the copy, and give it other workloads */
    ty_plan_stage *stages; /* the plan's */
    ty_bucket *buckets;
    ty_program program;
    ty_stage_program codes[MOST_STAGES];
    ty_instruction_cost cost_rows[MOST_STAGES][MOST_INSTRUCTIONS];
    ty_costs *costs; /* by scenario_close */
    ty_cluster *cluster;
    ty_simulate_options options;
} scenario;

/* A cluster from its one-line description; aborts the test if that is invalid. */
ty_cluster *cluster_of(const char *text);
/* CPU stage replicas on one host that share its cores. */
ty_cluster *cluster_of_cores(uint32_t ranks, uint32_t cores);

/* A plan of `stages` stages; stage replicas are on devices 0, 1, 2 ... The scenario takes ownership
 * of the cluster. */
void scenario_open(scenario *s, ty_cluster *cluster, uint32_t stages, const uint32_t *replicas,
                   uint32_t micro_batches);
/* A bucket of a stage; returns its index. */
uint32_t scenario_bucket(scenario *s, uint32_t stage, ty_algorithm algorithm,
                         ty_compression_kind compression);
/* Appends; `waits` ends with TY_NO_INSTRUCTION; returns the index. */
uint32_t scenario_add(scenario *s, uint32_t stage, ty_instruction instruction,
                      const uint32_t *waits, ty_instruction_cost cost);
/* Makes the costs: hosts and cores as in the cluster. */
void scenario_close(scenario *s);
void scenario_free(scenario *s);

/* Instructions with the fields that are relevant here. */
ty_instruction op(ty_op what);
ty_instruction transfer(ty_op what, ty_direction direction, uint32_t peer_stage,
                        uint32_t micro_batch);
ty_instruction exchange(uint32_t bucket);

/* Simulates; the test fails unless it succeeds and the timeline is complete. */
ty_timeline *scenario_simulate(const scenario *s);
/* The event of a step, stage replica and instruction. */
const ty_event *event_of(const scenario *s, const ty_timeline *timeline, uint32_t step,
                         uint32_t stage_replica, uint32_t instruction);

/* The test fails unless |found - expected| <= tolerance * expected (or 2 ns, SimGrid's resolution).
 */
void expect_close(const char *what, double found, double expected, double tolerance);

#endif
