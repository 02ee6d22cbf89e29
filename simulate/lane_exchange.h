/* What the lanes of a rank tell each other inside its instructions, as the simulator plays it. The
 * costs have one figure for it, `inner_s`, the core which collectives it is made of
 * (ty_layer_inner_collectives); here they become a cost of each kind of lanes. */
#ifndef TY_LANE_EXCHANGE_H
#define TY_LANE_EXCHANGE_H

#include "ty_core.h"
#include "ty_topologies.h"

static inline uint64_t greatest_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/** The error of every part of a simulation that runs out of memory. */
static inline ty_status out_of_memory(ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "simulation: memory ran out");
}

/** An instruction, taken apart. */
typedef struct ty_lane_instruction {
    double compute_s;     /* what each lane does by itself */
    uint32_t collectives; /* of all kinds together */
    ty_instruction_cost
        costs[TY_LANE_KIND_COUNT]; /* of all collectives of a kind; seconds 0: none */
} ty_lane_instruction;

typedef struct ty_lane_exchanges {
    uint32_t position_count;
    ty_lane_instruction *
        *positions; /* [position][instruction]; NULL where lanes exchange nothing */
    bool (*is_used)[TY_LANE_KIND_COUNT];       /* [position]: whether some instruction has a cost */
    bool (*is_all_to_all)[TY_LANE_KIND_COUNT]; /* [position]: whether some collective is one */
} ty_lane_exchanges;

/**
 * Takes the instructions of a program apart. `inner_s` stays as it is: it is divided among the
 * kinds of lanes by what each would take over the links between them; the bytes are those of rings,
 * but no more than these links carry in that time.
 * @param out [out] clear also after a failure; empty where ranks have one lane
 */
ty_status ty_lane_exchanges_find(const ty_plan *plan, const ty_program *program,
                                 const ty_costs *costs, const ty_cluster *cluster,
                                 ty_lane_exchanges *out, ty_error *error) TY_MUST_CHECK;
void ty_lane_exchanges_clear(ty_lane_exchanges *exchanges);
/** NULL where the lanes exchange nothing in it, or there is no such position. */
const ty_lane_instruction *ty_lane_instruction_of(const ty_lane_exchanges *exchanges,
                                                  uint32_t position, uint32_t instruction);

/** Lanes of a rank that belong together along a kind: groups of a rank, the group of a lane, and
 * the n-th lane of one. */
uint32_t ty_lane_group_count(const ty_plan *plan, ty_lane_kind kind);
uint32_t ty_lane_group_of(const ty_plan *plan, ty_lane_kind kind, uint32_t lane);
uint32_t ty_lane_of_group(const ty_plan *plan, ty_lane_kind kind, uint32_t group, uint32_t n);
/**
 * The ways between the lanes of a kind of a position: of its group that lies on most hosts, which
 * stands for the others.
 * @param out [out] clear with ty_rails_clear
 */
ty_status ty_lane_rails(const ty_plan *plan, const ty_cluster *cluster, uint32_t position,
                        ty_lane_kind kind, ty_rails *out, ty_error *error) TY_MUST_CHECK;

struct ty_simulate_options;
/** ty_simulate, where it is known what lanes exchange. */
ty_status ty_simulate_lanes(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                            const ty_lane_exchanges *lanes, const ty_cluster *cluster,
                            const struct ty_simulate_options *options, ty_timeline **out,
                            ty_error *error) TY_MUST_CHECK;

#endif
