/* Hand-made and random plans, programs and costs for the planner's tests. */
#ifndef TY_TEST_PLANS_H
#define TY_TEST_PLANS_H

#include "ty_planner.h"

#define MAX_STAGES 4
#define MAX_SHAPE_STAGES 16 /* with interleaving */

/* A plan in short: a chain whose layer i has (i + 1) * 1000 parameters and whose cuts carry 400
   bytes per sample, in micro-batches of two samples. */
typedef struct plan_shape {
    ty_schedule schedule;
    uint32_t stage_count;
    uint32_t virtual_stages; /* 0: 1; stage_count counts them all */
    uint32_t zero, staleness;
    uint32_t replicas[MAX_SHAPE_STAGES];
    uint32_t layers[MAX_SHAPE_STAGES];
    uint32_t buckets[MAX_SHAPE_STAGES]; /* of each stage, at most its layers */
    uint32_t micro_batches;
    ty_compression compression; /* ratio, rank 0: usual ones */
    bool is_tied; /* the last layer uses the first one's matrix; needs two stages, and two
                     layers in the first one */
    bool is_recomputed, is_by_operator;
    uint32_t recompute_blocks;
} plan_shape;

/* Aborts when memory runs out: tests of failing allocation make their plans before. */
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
