/*
 * Internal to planner/: costs.c walks a program and asks, per operation, one of the functions
 * declared here. compute_costs.c prices what a device does alone, network_costs.c what crosses the
 * network.
 */
#ifndef TY_COSTING_H
#define TY_COSTING_H

#include "cost/kernels.h"
#include "network_cache.h"
#include "ty_planner.h"

/** A transfer to a neighbour: all micro-batches take the same. */
typedef struct ty_stage_transfer {
    bool is_known;
    uint64_t bytes;
    ty_instruction_cost cost;
} ty_stage_transfer;

/** What the replicas of the position in hand have in common, filled in once per position. */
/* Passes over a layer that differ in what ranks exchange. */
enum { COST_FORWARD, COST_BACKWARD, COST_AGAIN, COST_PASSES };

typedef struct ty_stage_costing {
    uint32_t stage;               /* the position, which is its first stage */
    uint32_t type_count;          /* kinds of device among the replicas */
    const ty_device_type **types; /* [type_count] */
    ty_layer_price *prices; /* [type_count][layers of the workload]: of those of the position */
    double *weight_shares;  /* [layers of the workload]: of backward, gradients of weights */
    ty_layer_again *again;  /* [layers of the workload]: what recomputing makes again of each */
    bool *takes_part;       /* [layers of the workload]: in backward */
    double *inner_s[COST_PASSES];  /* [layers of the workload]: among ranks */
    double *hidden_s[COST_PASSES]; /* likewise: among expert-parallel ranks, beside products */
    double rank_core_share;        /* of the greediest kind */
    double core_share;   /* of all ranks of a stage replica that are on the host of the first */
    bool has_spare_core; /* for each process on that host, besides its own */
    /* The cache's; NULL until asked for. Of an exchange of all but experts, and of experts; of the
     * ranks of a stage replica. */
    const ty_group_network *networks[2];
    double *gather_s; /* [buckets]: bringing weights together that layers compute beside; NAN: not
                         asked for */
    double play_s;    /* the episodes of a micro-batch; 0: not asked for */
    double bucket_crowds[2]; /* how much such groups slow each other; 0: not asked for */
    const ty_group_network *parallel[TY_PARALLELISM_COUNT];
    double
        parallel_crowds[TY_PARALLELISM_COUNT]; /* how much such groups of a rank slow each other */
    ty_stage_transfer transfers[2];            /* to the previous position, to the next */
    ty_server_network server_network;          /* workers 0: not asked for yet */
    ty_server_map server_map;                  /* where servers have whole tensors */
} ty_stage_costing;

typedef struct ty_costing {
    const ty_plan *plan;
    const ty_profile *profile; /* NULL: data sheets only */
    const ty_cluster *cluster;
    ty_network_cache *networks; /* of the cluster */
    bool is_local;              /* the cluster is the machine the profile was made on */
    ty_provenance provenance;   /* of the least certain figure so far */
    ty_stage_costing stage;
    ty_error *error;
} ty_costing;

typedef ty_status (*ty_cost_function)(ty_costing *costing, const ty_instruction *instruction,
                                      ty_instruction_cost *cost);

/* compute_costs.c */
ty_status ty_cost_stage_open(ty_costing *costing, uint32_t stage) TY_MUST_CHECK;
/** Another position on the same devices, of other layers: nothing but these is asked for anew. */
ty_status ty_cost_stage_likewise(ty_costing *costing, uint32_t stage) TY_MUST_CHECK;
/** What of it a compressor asks for: the devices, not the layers. */
ty_status ty_cost_stage_meet(ty_costing *costing, uint32_t stage) TY_MUST_CHECK;
/** Encodes and decode of a bucket of the stage in hand. */
void ty_cost_of_codec(ty_costing *costing, const ty_bucket *bucket, ty_codec_cost *cost);
void ty_cost_stage_close(ty_costing *costing);
ty_status ty_cost_layers(ty_costing *costing, const ty_instruction *instruction,
                         ty_instruction_cost *cost) TY_MUST_CHECK;
ty_status ty_cost_update(ty_costing *costing, const ty_instruction *instruction,
                         ty_instruction_cost *cost) TY_MUST_CHECK;
ty_status ty_cost_codec(ty_costing *costing, const ty_instruction *instruction,
                        ty_instruction_cost *cost) TY_MUST_CHECK;
/** Begin: a copy of the weights that it replaces. */
ty_status ty_cost_begin(ty_costing *costing, const ty_instruction *instruction,
                        ty_instruction_cost *cost) TY_MUST_CHECK;
ty_status ty_cost_load(ty_costing *costing, const ty_instruction *instruction,
                       ty_instruction_cost *cost) TY_MUST_CHECK;

/** Seconds to move bytes through the memory of the slowest kind of device of the position. */
double ty_cost_memory_s(const ty_costing *costing, double bytes);
/** Seconds that an instruction takes beyond its work. */
double ty_cost_overhead_s(const ty_costing *costing);

/* network_costs.c */
ty_status ty_cost_send(ty_costing *costing, const ty_instruction *instruction,
                       ty_instruction_cost *cost) TY_MUST_CHECK;
/** Nothing: the send carries the whole transfer. */
ty_status ty_cost_receive(ty_costing *costing, const ty_instruction *instruction,
                          ty_instruction_cost *cost) TY_MUST_CHECK;
ty_status ty_cost_collective(ty_costing *costing, const ty_instruction *instruction,
                             ty_instruction_cost *cost) TY_MUST_CHECK;

/** Seconds that a collective among the ranks of a stage replica of the position in hand is waited
 * for.
 * @param hidden_s [out] of expert-parallel ranks, what runs beside products */
ty_status ty_cost_inner(ty_costing *costing, const ty_inner_collective *inner, double *seconds,
                        double *hidden_s) TY_MUST_CHECK;

/** A phase of a bucket's exchange; asks `stage` for nothing but the network, which may be unknown
 *  yet. */
ty_status ty_cost_bucket(ty_costing *costing, uint32_t bucket, uint32_t phase,
                         ty_algorithm algorithm, uint64_t bytes,
                         ty_instruction_cost *cost) TY_MUST_CHECK;

/** Any collective among a bucket's members, likewise. */
ty_status ty_cost_collective_of(ty_costing *costing, const ty_bucket *bucket,
                                ty_collective_kind kind, ty_algorithm algorithm, uint64_t bytes,
                                ty_instruction_cost *cost) TY_MUST_CHECK;

/* server_costs.c */
/** An all-reduce of a bucket of the plan by the plan's servers. @param members of the bucket */
ty_status ty_cost_servers(ty_costing *costing, const ty_bucket *bucket,
                          const ty_group_network *members, uint64_t bytes,
                          ty_instruction_cost *cost) TY_MUST_CHECK;

/* compression_choice.c */
/**
 * The whole exchange of a bucket if it were compressed by `compression`: all collectives and the
 * compressor. The stage in hand is the bucket's, by ty_cost_stage_open or ty_cost_stage_meet.
 */
ty_status ty_cost_exchange(ty_costing *costing, const ty_bucket *bucket,
                           const ty_compression *compression, ty_exchange_terms *terms,
                           double *seconds) TY_MUST_CHECK;
/** ty_cost_stage_meet for the stage of a bucket, where `stage` says that another one is in hand. */
ty_status ty_cost_stage_turn(ty_costing *costing, const ty_bucket *bucket,
                             uint32_t *stage) TY_MUST_CHECK;
/**
 * Leaves every bucket uncompressed that is exchanged sooner that way, by what the costs say of it
 * alone. Where all would be, none is: such a plan is to lose on its own account.
 */
ty_status ty_choose_compressions(ty_plan *plan, ty_network_cache *networks,
                                 ty_error *error) TY_MUST_CHECK;

/** Whether a collective library chooses the algorithm for a bucket's members by itself. */
ty_status ty_cost_is_library(ty_costing *costing, const ty_bucket *bucket, bool *out) TY_MUST_CHECK;

/** Starts a costing of all of a plan, on the cluster of `networks`. */
ty_costing ty_costing_of(const ty_plan *plan, ty_network_cache *networks, ty_error *error);
/** ty_costs_of_program, with networks that are known already. */
ty_status ty_costs_by_networks(const ty_plan *plan, const ty_program *program,
                               ty_network_cache *networks, ty_costs **out,
                               ty_error *error) TY_MUST_CHECK;

/* algorithm_choice.c */
/** The library's own choice on devices that it is modelled for; else ring or tree for each bucket,
 * whichever is cheaper for its bytes. */
ty_status ty_choose_algorithms(ty_plan *plan, ty_network_cache *networks,
                               ty_error *error) TY_MUST_CHECK;

/** A figure of this trustworthiness was used. */
static inline void ty_cost_relies_on(ty_costing *costing, ty_provenance provenance)
{
    if (provenance > costing->provenance)
        costing->provenance = provenance;
}

#endif
