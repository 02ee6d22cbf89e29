/* What a stage of Piper's costs: time and memory of the layers between two ideals. */
#ifndef TY_PIPER_STAGE_H
#define TY_PIPER_STAGE_H

#include "ty_partition.h"

/** What is known before any stage is looked at. */
typedef struct piper_costs {
    const ty_piper_input *input;
    ty_arena *arena;
    uint32_t tensor_count, *tensors; /* tensor-parallel degrees that any layer has */
    const ty_piper_degree **degrees; /* [tensor][layer] NULL: the layer has no such degree */
    double *least_device_s;          /* [layer] of compute, over degrees and variants */
    uint32_t *edge_starts, *edges;   /* of layer v: edges[edge_starts[v] ..), both ways */
    /* Sums over the layers of an ideal, [tensor][ideal]: */
    double *compute_s, *parameter_bytes; /* of the least variant in each */
    uint32_t *lacking;                   /* layers that have no such degree */
    uint32_t ideal_count;
    /* Room for one stage at a time. */
    uint32_t *layers, *picks;
    double (*cut_bytes)[2]; /* [layer of the stage][variant] twice what its cut edges carry */
    struct piper_swap *swaps;
} piper_costs;
ty_status piper_costs_make(const ty_piper_input *input, piper_costs *out,
                           ty_error *error) TY_MUST_CHECK;
/** Adds the sums over ideals. */
ty_status piper_costs_sum(piper_costs *costs, const ty_ideals *ideals,
                          ty_error *error) TY_MUST_CHECK;
void piper_costs_clear(piper_costs *costs);

/** A stage being priced; only one of a piper_costs at a time. */
typedef struct piper_stage {
    piper_costs *costs;
    const ty_ideals *ideals;
    uint32_t from, to;
    uint32_t layer_count;         /* 0: not listed yet */
    uint32_t degree;              /* that the cut bytes are of; UINT32_MAX: none yet */
    uint32_t replicas, in_flight; /* that the time was asked for last; 0: none yet */
    double time_s, memory_bytes;
} piper_stage;

void piper_stage_begin(piper_stage *stage, piper_costs *costs, const ty_ideals *ideals,
                       uint32_t from, uint32_t to);
/** Whether all layers can run on that many devices. */
bool piper_stage_has(const piper_stage *stage, uint32_t degree);
/** A time that the stage cannot be below. O(1). */
double piper_least_s(const piper_stage *stage, uint32_t degree, uint32_t replicas);
/** Its time with that many replicas in this and all later stages; HUGE_VAL where it does not fit.
 */
double piper_stage_s(piper_stage *stage, uint32_t degree, uint32_t replicas,
                     uint32_t total_replicas);
/** Layers, variants, time and memory; `out` has room for the layers, and its replicas. */
void piper_stage_describe(piper_stage *stage, uint32_t degree, uint32_t total_replicas,
                          ty_piper_stage *out);

#endif
